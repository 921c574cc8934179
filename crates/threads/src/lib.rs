//! Threads that help whoever calls, and are in nobody's way in between.
//!
//! A kernel on several threads is called for a fraction of a millisecond, now and then, by a program that does other things in between. Four
//! things decide then what the threads are worth:
//!
//! - **The caller works too.** A caller that hands all of the work over and sleeps leaves its processor just when the system looks
//!   for one to wake the others on: where each processor has a thread, two of them often end up on the same one and a call on two
//!   threads takes as long as on one. A caller that goes on working keeps its processor, and there is one thread less to wake.
//! - **Nobody is waited for who has not begun.** Pieces are taken one by one by whoever is free. A helper that gets no processor,
//!   because another program has it, takes none, and the call ends without it.
//! - **Helpers sleep soon.** For some microseconds they look out for the next call, then they leave the processor to whoever
//!   computes next.
//! - **Helpers run beside their caller, not behind it**, and one whose processor was taken away goes on on the caller's, which has to
//!   wait for it anyway (on Linux; `place.rs` says how, and what it is worth).
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! let crew = kernelwise_threads::Crew::new(2)?;
//! let sum = AtomicUsize::new(0);
//! crew.share(10, &|piece| {
//!     sum.fetch_add(piece, Ordering::Relaxed);
//! });
//! assert_eq!(sum.into_inner(), 45);
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::place::{MOST, Place};

#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")),
    path = "place_anywhere.rs"
)]
mod place;

/// How often a thread looks before it goes to sleep: 10 to 30 µs by processor, about as long as waking one takes.
const LOOKS: u32 = 500;

/// How long a caller sleeps before it looks again whether those it waits for run.
const NAP: Duration = Duration::from_micros(500);

/// A caller and its helpers.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    place: Place,
}

#[derive(Debug)]
struct Shared {
    /// Who calls; whoever comes meanwhile works alone.
    turn: Mutex<()>,
    post: Mutex<Post>,
    /// There is a new job, or no more.
    posted: Condvar,
    /// The last helper is done.
    done: Condvar,
    /// The number of the newest job, for helpers that are not asleep yet.
    newest: AtomicU64,
    /// Helpers that work on the job, and for each whether it is one of them.
    inside: AtomicUsize,
    works: Box<[AtomicBool]>,
}

/// Where helpers find their work.
#[derive(Debug)]
struct Post {
    number: u64,
    job: Option<Posted>,
    asleep: usize,
    is_over: bool,
}

/// A job of which the caller sees to it that it stays while a helper is inside.
#[derive(Debug, Clone, Copy)]
struct Posted(*const Job<'static>);

// SAFETY: what it points to is shared between threads, which a job allows: the body is `Sync`, the rest are atomics and locks.
unsafe impl Send for Posted {}

/// What is to be done: a body for each number below `pieces`.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    pieces: usize,
    next: AtomicUsize,
    /// What a helper's body panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes pieces until there are none left.
    fn work(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
            (self.body)(piece);
        }
    }
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// A crew of so many threads, the caller being one of them. Fewer than two threads are the caller alone.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::beginning(threads, |_| {})
    }

    /// The same; `begin` is run first by each of the others, which are numbered from one.
    fn beginning(
        threads: usize,
        begin: impl Fn(usize) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            turn: Mutex::new(()),
            post: Mutex::new(Post {
                number: 0,
                job: None,
                asleep: 0,
                is_over: false,
            }),
            posted: Condvar::new(),
            done: Condvar::new(),
            newest: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            works: (1..threads).map(|_| AtomicBool::new(false)).collect(),
        });
        let begin = Arc::new(begin);
        let mut crew = Self {
            shared,
            helpers: Vec::new(),
            place: Place::of(threads.saturating_sub(1)),
        };
        for number in 1..threads {
            let (shared, begin) = (Arc::clone(&crew.shared), Arc::clone(&begin));
            let helper = std::thread::Builder::new()
                .name(format!("kernelwise-{number}"))
                .spawn(move || {
                    begin(number);
                    shared.help(number - 1);
                })?;
            crew.helpers.push(helper);
        }
        Ok(crew)
    }

    /// How many threads share a call, the caller among them.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `body` with every number below `pieces`, each once, on the caller's thread and on as many of the others as come in
    /// time. Whoever calls while another call is under way, or from within a body, works alone.
    ///
    /// # Panics
    ///
    /// If a body does, once no other is running.
    pub fn share(&self, pieces: usize, body: &(dyn Fn(usize) + Sync)) {
        let turn = match self.shared.turn.try_lock() {
            Ok(turn) => turn,
            // A body panicked on the caller's thread.
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return (0..pieces).for_each(body),
        };
        let job = Job {
            body,
            pieces,
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
        };
        self.place.keep_off_caller(&self.helpers);
        let under_way = self.post(&job);
        job.work();
        drop(under_way);
        drop(turn);
        let panic = job.panic.into_inner();
        if let Some(panic) = panic.unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }

    /// Offers a job to the helpers, until the answer is dropped.
    fn post<'a>(&'a self, job: &'a Job<'_>) -> UnderWay<'a> {
        let shared = &self.shared;
        let mut post = lock(&shared.post);
        post.number += 1;
        post.job = Some(Posted(std::ptr::from_ref(job).cast()));
        shared.newest.store(post.number, Ordering::Relaxed);
        let wanted = job.pieces.saturating_sub(1).min(post.asleep);
        drop(post);
        for _ in 0..wanted {
            shared.posted.notify_one();
        }
        UnderWay(self)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.shared.post).is_over = true;
        self.shared.newest.fetch_add(1, Ordering::Relaxed);
        self.shared.posted.notify_all();
        for helper in self.helpers.drain(..) {
            // It caught what bodies panicked with; there is nothing to hear.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// What the helper of this number does all its life.
    fn help(&self, number: usize) {
        let mut seen = 0;
        while let Some(Posted(job)) = self.next_job(number, &mut seen) {
            // SAFETY: `next_job` counted this thread as inside while the job was on the post; the caller takes it down and then
            // waits until nobody is inside before the job goes away.
            let job = unsafe { &*job };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.work())) {
                // The remaining pieces are nobody's any more.
                job.next.store(job.pieces, Ordering::Relaxed);
                *lock(&job.panic) = Some(panic);
            }
            self.works[number].store(false, Ordering::Relaxed);
            // From here on the job may be gone.
            if self.inside.fetch_sub(1, Ordering::Release) == 1 {
                // Who waits does so under this lock, so it hears.
                let _post = lock(&self.post);
                self.done.notify_one();
            }
            for _ in 0..LOOKS {
                if self.newest.load(Ordering::Relaxed) != seen {
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Waits for a job that was not seen yet, and goes inside; `None` when there will be no more.
    fn next_job(&self, number: usize, seen: &mut u64) -> Option<Posted> {
        let mut post = lock(&self.post);
        loop {
            if post.is_over {
                return None;
            }
            if post.number != *seen {
                *seen = post.number;
                if let Some(job) = post.job {
                    // Before it is waited for: a helper may be stopped right here.
                    self.works[number].store(true, Ordering::Relaxed);
                    self.inside.fetch_add(1, Ordering::Relaxed);
                    return Some(job);
                }
            }
            post.asleep += 1;
            post = self
                .posted
                .wait(post)
                .unwrap_or_else(PoisonError::into_inner);
            post.asleep -= 1;
        }
    }
}

/// A job is on the post. When this goes, also because a body panicked, no helper knows it any more.
struct UnderWay<'a>(&'a Crew);

impl UnderWay<'_> {
    fn is_done(&self) -> bool {
        self.0.shared.inside.load(Ordering::Acquire) == 0
    }

    /// Looks for some microseconds whether all are done.
    fn looks_done(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.is_done()
        })
    }

    /// The processor time that each helper has had; `None` of those who do not work or cannot be asked.
    fn clocks(&self) -> [Option<i64>; MOST] {
        let Crew {
            shared,
            helpers,
            place,
        } = self.0;
        let mut clocks = [None; MOST];
        for (clock, (works, helper)) in clocks.iter_mut().zip(shared.works.iter().zip(helpers)) {
            let works = works.load(Ordering::Relaxed);
            *clock = works.then(|| place.has_run_ns(helper)).flatten();
        }
        clocks
    }

    /// Brings those here who had no processor since; the others are left alone. Tells whether anybody was brought.
    fn bring_the_stopped(&self, since: &[Option<i64>; MOST]) -> bool {
        let now = self.clocks();
        let stopped = since.iter().zip(&now).zip(&self.0.helpers);
        let stopped = stopped.filter(|((then, now), _)| then.is_some() && then == now);
        let mut brought = false;
        for (_, helper) in stopped {
            self.0.place.bring_here(helper);
            brought = true;
        }
        brought
    }

    /// Waits for those who are inside, the job having been taken down.
    fn wait(&self) {
        if self.looks_done() {
            return;
        }
        match self.0.place.chooses() {
            true => self.wait_and_bring(),
            false => {
                let shared = &self.0.shared;
                let mut post = lock(&shared.post);
                while !self.is_done() {
                    let waited = shared.done.wait(post);
                    post = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The same, with a look now and then at whether they run.
    fn wait_and_bring(&self) {
        let mut clocks = self.clocks();
        if self.looks_done() {
            return;
        }
        let mut brought = self.bring_the_stopped(&clocks);
        let shared = &self.0.shared;
        let mut post = lock(&shared.post);
        while !self.is_done() {
            clocks = self.clocks();
            let waited = shared.done.wait_timeout(post, NAP);
            let timeout;
            (post, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && !self.is_done() {
                brought |= self.bring_the_stopped(&clocks);
            }
        }
        drop(post);
        if brought {
            self.0.place.keep_off_caller(&self.0.helpers);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.0.shared.post).job = None;
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    /// Waits until so many have come; not for ever, but for seconds.
    fn meet(come: &AtomicUsize, all: usize) -> bool {
        come.fetch_add(1, Ordering::SeqCst);
        (0..10_000_000).any(|_| {
            std::thread::yield_now();
            come.load(Ordering::SeqCst) >= all
        })
    }

    fn thread_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[test]
    fn every_piece_is_done_once_however_often_and_by_how_many() {
        for threads in [1, 2, 3, 8] {
            let crew = Crew::new(threads).unwrap();
            assert_eq!(crew.threads(), threads);
            for round in 0..2_000 {
                let pieces = round % 17;
                let done: Vec<_> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                crew.share(pieces, &|piece| {
                    done[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn all_threads_work_at_once_and_the_caller_is_one_of_them() {
        let here = thread_name();
        for threads in [2, 4] {
            let numbers = Arc::new(Mutex::new(HashSet::new()));
            let begun = Arc::clone(&numbers);
            let crew = Crew::beginning(threads, move |number| {
                begun.lock().unwrap().insert(number);
            })
            .unwrap();
            for _ in 0..20 {
                let (come, names) = (AtomicUsize::new(0), Mutex::new(HashSet::new()));
                crew.share(threads, &|_| {
                    assert!(meet(&come, threads), "not all of {threads} came");
                    names.lock().unwrap().insert(thread_name());
                });
                let names = names.into_inner().unwrap();
                assert_eq!(names.len(), threads);
                assert!(names.contains(&here));
            }
            assert_eq!(*numbers.lock().unwrap(), (1..threads).collect());
        }
    }

    /// A helper that was not there in time is not waited for.
    #[test]
    fn a_call_ends_without_those_who_have_not_begun() {
        let (held, come) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
        let (gate, comes) = (Arc::clone(&held), Arc::clone(&come));
        let hold = held.lock().unwrap();
        let crew = Crew::beginning(2, move |_| {
            comes.fetch_add(1, Ordering::SeqCst);
            drop(gate.lock().unwrap());
        })
        .unwrap();
        let has_begun = meet(&come, 2);
        let mine = AtomicUsize::new(0);
        crew.share(5, &|_| {
            mine.fetch_add(1, Ordering::Relaxed);
        });
        drop(hold);
        assert!(has_begun);
        assert_eq!(mine.into_inner(), 5);
    }

    #[test]
    fn whoever_calls_meanwhile_or_from_within_works_alone() {
        let crew = Crew::new(2).unwrap();
        let (come, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        crew.share(2, &|_| {
            assert!(meet(&come, 2));
            let here = thread_name();
            crew.share(3, &|_| {
                assert_eq!(thread_name(), here);
                done.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(done.into_inner(), 6);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        crew.share(4, &|_| {
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * 500 * 4);
    }

    /// On the caller's thread or on a helper's: the caller hears of it, after all others have ended, and the crew goes on.
    #[test]
    fn a_panic_reaches_the_caller_and_harms_nobody() {
        let crew = Crew::new(2).unwrap();
        let here = thread_name();
        for helper in [false, true] {
            for _ in 0..50 {
                let (come, inside) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    crew.share(2, &|_| {
                        inside.fetch_add(1, Ordering::SeqCst);
                        assert!(meet(&come, 2));
                        if (thread_name() != here) == helper {
                            inside.fetch_sub(1, Ordering::SeqCst);
                            std::panic::panic_any("this one");
                        }
                        std::thread::sleep(Duration::from_millis(1));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                }));
                assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "this one");
                assert_eq!(inside.into_inner(), 0);
            }
        }
        let done = AtomicUsize::new(0);
        crew.share(7, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 7);
    }
}
