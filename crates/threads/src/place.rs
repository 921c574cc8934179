//! Where helpers run: beside their caller, and in its place while it waits for them.
//!
//! Beside another program there are more threads than processors, and a system that is fair to threads one by one is not fair to those
//! that work together:
//!
//! - A helper that waits behind its caller, on the processor on which the caller works, helps nobody, and as one processor has to have a
//!   thread more than another, the system sees no reason to move it. So helpers keep off the processor their caller is on.
//! - A helper whose processor is taken away in the middle of a piece gets it back after a time slice, some milliseconds, and the
//!   caller has to wait for it. Meanwhile the caller's own processor is free. So a helper that does not run is brought there,
//!   and sent back once it is done.
//!
//! `kernelwise demo load` shows what both are worth: on two processors beside one busy program, two threads serve 1.2 to 1.3 times the
//! calls of one, and without them about as many.
//!
//! Whether a helper runs is told by its clock of processor time; one that does is left where it is. Where nobody is in the way
//! no system call is made but when a caller is found on another processor than the last one.

use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Most helpers that are told where to run: telling them takes a microsecond each, and one of very many who is in the wrong place matters
/// little.
pub(crate) const MOST: usize = 31;

/// No processor.
const NOWHERE: usize = usize::MAX;

/// Where the helpers of a crew may run.
pub(crate) struct Place {
    /// Where whoever made the crew could run; `None` where there is nothing to choose.
    home: Option<libc::cpu_set_t>,
    /// The processor that helpers keep off.
    off: AtomicUsize,
    /// The process that the helpers are in: one that was forked from it has none.
    process: u32,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("chooses", &self.chooses())
            .field("off", &self.off)
            .finish()
    }
}

impl Place {
    /// For so many helpers of whoever calls this.
    pub(crate) fn of(helpers: usize) -> Self {
        let home = (1..=MOST).contains(&helpers).then(own_processors).flatten();
        Self {
            home: home.filter(has_several),
            off: AtomicUsize::new(NOWHERE),
            process: std::process::id(),
        }
    }

    /// Whether helpers are told anything.
    pub(crate) fn chooses(&self) -> bool {
        self.home.is_some()
    }

    /// Sees to it that helpers keep off the processor that the caller is on. They run where the caller may, or, if that is one processor
    /// only, where whoever made the crew could.
    pub(crate) fn keep_off_caller(&self, helpers: &[JoinHandle<()>]) {
        let (Some(home), Some(here)) = (&self.home, here()) else {
            return;
        };
        if self.off.swap(here, Ordering::Relaxed) == here || self.process != std::process::id() {
            return;
        }
        let mut others = own_processors().filter(has_several).unwrap_or(*home);
        // SAFETY: the set is ours, and the number is one that it holds.
        unsafe { libc::CPU_CLR(here, &mut others) };
        if !helpers.iter().all(|helper| send(helper, &others)) {
            // What was refused now may not be the next time.
            self.off.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Brings a helper to where the caller is, which is about to sleep. [`Place::keep_off_caller`] sends it back.
    pub(crate) fn bring_here(&self, helper: &JoinHandle<()>) {
        let (true, Some(here)) = (self.chooses(), here()) else {
            return;
        };
        // SAFETY: zeros are a set without processors, and the number is one that it holds.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(here, &mut set);
            set
        };
        self.off.store(NOWHERE, Ordering::Relaxed);
        send(helper, &set);
    }

    /// The processor time a helper has had, in nanoseconds; `None` where nothing could be done about it.
    pub(crate) fn has_run_ns(&self, helper: &JoinHandle<()>) -> Option<i64> {
        if !self.chooses() || self.process != std::process::id() {
            return None;
        }
        // SAFETY: the thread is of this process and was not joined, as its handle is still there, so it has a clock; both places are ours.
        unsafe {
            let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
            let known = libc::pthread_getcpuclockid(helper.as_pthread_t(), &mut clock) == 0
                && libc::clock_gettime(clock, &mut time) == 0;
            known.then_some(time.tv_sec * 1_000_000_000 + time.tv_nsec)
        }
    }
}

/// The processor that this thread is on, if a set can hold its number.
fn here() -> Option<usize> {
    // SAFETY: takes nothing and has no conditions.
    let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
    here.filter(|here| *here < libc::CPU_SETSIZE as usize)
}

fn has_several(set: &libc::cpu_set_t) -> bool {
    // SAFETY: reads the set that is handed in.
    unsafe { libc::CPU_COUNT(set) > 1 }
}

/// The processors that this thread may run on; `None` if they are more than a set of the usual size holds.
fn own_processors() -> Option<libc::cpu_set_t> {
    // SAFETY: zeros are a set without processors, which is ours to be written to.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let read = libc::sched_getaffinity(0, std::mem::size_of_val(&set), &mut set);
        (read == 0).then_some(set)
    }
}

/// Lets a helper run on these processors only, and tells whether the system allows it. One that does not leaves the helper where it is, which is
/// slower and right.
fn send(helper: &JoinHandle<()>, to: &libc::cpu_set_t) -> bool {
    // SAFETY: the thread is of this process and was not joined, as its handle is still there, and the set is only read.
    unsafe {
        libc::pthread_setaffinity_np(helper.as_pthread_t(), std::mem::size_of_val(to), to) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::Crew;

    fn set(processors: &[usize]) -> libc::cpu_set_t {
        // SAFETY: zeros are a set without processors; numbers beyond its size change nothing.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            processors
                .iter()
                .for_each(|one| libc::CPU_SET(*one, &mut set));
            set
        }
    }

    fn list(set: &libc::cpu_set_t) -> Vec<usize> {
        // SAFETY: reads a set that is ours.
        let has = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, set) };
        (0..libc::CPU_SETSIZE as usize).filter(has).collect()
    }

    /// Two processors of this machine; `None`, with the reason told, if there are none to choose from.
    fn two_processors() -> Option<(usize, usize)> {
        let own = own_processors().map(|set| list(&set)).unwrap_or_default();
        let may_bind = own_processors().is_some_and(|set| bind(&set));
        match own[..] {
            [one, other, ..] if may_bind => Some((one, other)),
            _ => {
                let why = "this process has a single processor, or may not bind its threads";
                kernelwise_testing::skip("pin", why);
                None
            }
        }
    }

    fn bind(set: &libc::cpu_set_t) -> bool {
        // SAFETY: the set is only read.
        unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(set), set) == 0 }
    }

    /// Binds the calling thread.
    fn stay_on(processors: &[usize]) {
        assert!(bind(&set(processors)));
    }

    fn processors_of(helper: &JoinHandle<()>) -> Vec<usize> {
        let mut found = set(&[]);
        // SAFETY: the thread was not joined, and the set is ours to be written to.
        let read = unsafe {
            let size = std::mem::size_of_val(&found);
            libc::pthread_getaffinity_np(helper.as_pthread_t(), size, &mut found)
        };
        assert_eq!(read, 0);
        list(&found)
    }

    /// Tells threads that it is over, also where a test fails.
    struct Over(Arc<AtomicBool>);

    impl Drop for Over {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// In a thread of its own, whose processors are nobody else's business.
    fn apart(body: impl FnOnce() + Send + 'static) {
        let ended = std::thread::spawn(body).join();
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }

    #[test]
    fn helpers_keep_off_the_processor_of_whoever_calls() {
        let Some((one, other)) = two_processors() else {
            return;
        };
        apart(move || {
            stay_on(&[one, other]);
            let crew = Crew::new(2).unwrap();
            assert_eq!(processors_of(&crew.helpers[0]), [one, other]);
            for (mine, theirs) in [(one, other), (other, one), (other, one)] {
                stay_on(&[mine]);
                crew.share(2, &|_| {});
                assert_eq!(processors_of(&crew.helpers[0]), [theirs]);
            }
        });
    }

    #[test]
    fn a_helper_that_does_not_run_is_brought_to_its_caller_and_sent_back() {
        let Some((one, other)) = two_processors() else {
            return;
        };
        apart(move || {
            stay_on(&[one, other]);
            let crew = Crew::new(2).unwrap();
            stay_on(&[one]);
            // Others who are busy where the helper is, so that its time is over in the middle of a piece.
            let over = Over(Arc::new(AtomicBool::new(false)));
            for _ in 0..3 {
                let over = Arc::clone(&over.0);
                std::thread::spawn(move || {
                    stay_on(&[other]);
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let caller = std::thread::current().id();
            let brought = AtomicUsize::new(0);
            for _ in 0..2_000 {
                crew.share(8, &|_| {
                    for _ in 0..5_000 {
                        std::hint::spin_loop();
                    }
                    let is_guest =
                        std::thread::current().id() != caller && super::here() == Some(one);
                    brought.fetch_add(usize::from(is_guest), Ordering::Relaxed);
                });
                assert_eq!(processors_of(&crew.helpers[0]), [other], "sent back");
                if brought.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
            assert!(brought.into_inner() > 0, "the caller waited instead");
        });
    }

    #[test]
    fn clocks_tell_who_runs() {
        let crew = Crew::new(2).unwrap();
        let place = Place::of(1);
        let Some(before) = place.has_run_ns(&crew.helpers[0]) else {
            assert!(!place.chooses(), "a clock that cannot be read");
            return;
        };
        let come = AtomicUsize::new(0);
        // Both take a piece, and the helper works until its clock has moved.
        crew.share(2, &|_| {
            let first = come.fetch_add(1, Ordering::SeqCst) == 0;
            while first && come.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            for _ in 0..100_000 {
                std::hint::spin_loop();
            }
        });
        assert!(place.has_run_ns(&crew.helpers[0]) > Some(before));
    }

    /// Somebody binds the whole program to other processors: helpers go where their caller may.
    #[test]
    fn helpers_follow_what_their_caller_is_allowed() {
        let own = own_processors().map(|set| list(&set)).unwrap_or_default();
        let [one, other, third, ..] = own[..] else {
            kernelwise_testing::skip("three processors", "this process has fewer");
            return;
        };
        apart(move || {
            stay_on(&[one, other]);
            let crew = Crew::new(2).unwrap();
            stay_on(&[other, third]);
            crew.share(2, &|_| {});
            let allowed = processors_of(&crew.helpers[0]);
            assert!(allowed == [other] || allowed == [third], "{allowed:?}");
        });
    }

    #[test]
    fn where_there_is_nothing_to_choose_nobody_is_told() {
        let Some((one, other)) = two_processors() else {
            return;
        };
        apart(move || {
            assert!(!Place::of(0).chooses() && Place::of(1).chooses());
            assert!(!Place::of(MOST + 1).chooses());
            stay_on(&[one]);
            assert!(!Place::of(1).chooses());
            let crew = Crew::new(2).unwrap();
            stay_on(&[other]);
            crew.share(2, &|_| {});
            assert_eq!(processors_of(&crew.helpers[0]), [one]);
        });
    }
}
