//! From a key to a choice in nanoseconds, and from a sample to a better choice in the background.
//!
//! A [`Case`] is one workload with its candidates. What callers read of it is one word, [`Case::word`]: who serves, who is to
//! be tried, how often to take the time. The learner writes that word; nobody waits for anybody. Each thread keeps
//! the cases it meets in a table of its own, so that a hit touches no memory another thread writes to: no lock, no
//! allocation, no counter that is shared. Only the first call of a case, on each thread, takes the longer way.
//!
//! Calls that were timed go to a queue of fixed size; the learner takes them from there
//! ([`settle`](Engine::settle)). A queue that is full drops what comes and counts it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_queue::ArrayQueue;
use kernelwise_measure::Clock;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::budget::Ledger;
use crate::key::Key;
use crate::learn::{Event, Facts, Learned, Rules, Sample};

/// Samples that wait for the learner at most.
const QUEUE: usize = 4096;

/// Events that are kept for those who ask.
const EVENTS: usize = 1024;

/// A case before it is known.
pub(crate) struct NewCase {
    /// What it is called in reports.
    pub(crate) name: String,
    /// What is known of the candidates beforehand.
    pub(crate) facts: Vec<Facts>,
    /// Which of them may not serve.
    pub(crate) barred: Vec<bool>,
    /// Whatever the owner needs to run them.
    pub(crate) payload: Box<dyn Any + Send + Sync>,
}

/// One workload with its candidates.
pub(crate) struct Case {
    head: Head,
    pub(crate) key: Key,
    pub(crate) name: String,
    pub(crate) payload: Box<dyn Any + Send + Sync>,
    /// Calls that were counted so far; each thread adds its own when it takes the time.
    calls: AtomicU64,
    /// When it was last seen in use, by a count of uses.
    used: AtomicU64,
    learned: Mutex<Learned>,
}

/// What every call reads, alone in its cache line: who reads it is not disturbed by who writes beside it.
#[repr(align(64))]
struct Head {
    word: AtomicU64,
    /// Tells the case from others that had the same key before.
    serial: u64,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish()
    }
}

/// What callers read: bits 0 to 15 who serves, 16 to 31 who is to be tried plus one, 32 to 39 the logarithm of the
/// period, 40 whether there is anybody at all, 48 to 63 the number of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const SOMEBODY: u64 = 1 << 40;

    fn of(learned: &Learned, rules: &Rules) -> Self {
        let Some(choice) = learned.choice() else {
            return Self(0);
        };
        let trial = learned.trial().map_or(0, |trial| {
            (trial.candidate as u64 + 1) << 16 | u64::from(trial.serial) << 48
        });
        let period = u64::from(learned.period(rules).trailing_zeros());
        Self(choice.serves as u64 | trial | period << 32 | Self::SOMEBODY)
    }

    fn serves(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    fn tried(self) -> Option<usize> {
        ((self.0 >> 16 & 0xffff) as usize).checked_sub(1)
    }

    fn serial(self) -> u16 {
        (self.0 >> 48) as u16
    }

    fn without_trial(self) -> Self {
        Self(self.0 & !(0xffff << 16))
    }

    /// One less than the period, a power of two.
    fn mask(self) -> u32 {
        (1 << (self.0 >> 32 & 0xff)) - 1
    }
}

/// A case in a thread's own table.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) case: Arc<Case>,
    /// Calls of this thread since it last took the time.
    calls: Cell<u32>,
    /// Calls that the case does not know of yet.
    uncounted: Cell<u32>,
    /// Calls whose time was wanted.
    timed: Cell<u32>,
    /// A trial that this thread has begun: the first call of it finds caches cold, the next one is timed.
    begun: Cell<Option<(usize, u16)>>,
}

/// What one call is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) candidate: usize,
    /// Calls that its time would stand for; zero if nobody wants to know it.
    pub(crate) calls: u32,
    /// The number of the trial it is.
    pub(crate) trial: Option<u16>,
}

/// Calls that a thread counts for itself before it tells: telling is a write that other threads notice.
const UNCOUNTED: u32 = 256;

impl Seat {
    pub(crate) fn new(case: Arc<Case>) -> Self {
        Self {
            case,
            calls: Cell::new(0),
            uncounted: Cell::new(0),
            timed: Cell::new(0),
            begun: Cell::new(None),
        }
    }

    /// Calls of this thread whose time was wanted, so far.
    pub(crate) fn timed_calls(&self) -> u32 {
        self.timed.get()
    }

    /// Who computes this call; `None` if nobody may.
    #[inline]
    pub(crate) fn pick(&self) -> Option<Pick> {
        let word = Word(self.case.head.word.load(Ordering::Relaxed));
        let calls = self.calls.get() + 1;
        if calls & word.mask() != 0 && word.0 >> 16 & 0xffff == 0 {
            self.calls.set(calls);
            return Some(Pick {
                candidate: word.serves(),
                calls: 0,
                trial: None,
            });
        }
        self.timed(word, calls)
    }

    /// A call whose time is wanted, perhaps a trial.
    fn timed(&self, word: Word, calls: u32) -> Option<Pick> {
        if word.0 & Word::SOMEBODY == 0 {
            return None;
        }
        self.calls.set(0);
        self.timed.set(self.timed.get().wrapping_add(1));
        self.uncounted.set(self.uncounted.get() + calls);
        if self.uncounted.get() >= UNCOUNTED {
            self.count();
        }
        if let Some((candidate, serial)) = self.begun.take() {
            return Some(Pick {
                candidate,
                calls,
                trial: Some(serial),
            });
        }
        let trial = word.tried().filter(|_| {
            // One thread takes a trial, however many see it.
            let taken = word.without_trial().0;
            let order = Ordering::Relaxed;
            let exchange = self
                .case
                .head
                .word
                .compare_exchange(word.0, taken, order, order);
            exchange.is_ok()
        });
        let Some(candidate) = trial else {
            return Some(Pick {
                candidate: word.serves(),
                calls,
                trial: None,
            });
        };
        self.begun.set(Some((candidate, word.serial())));
        // So that the next call comes here.
        self.calls.set(word.mask());
        Some(Pick {
            candidate,
            calls: 0,
            trial: None,
        })
    }

    /// Tells the case what this thread counted.
    fn count(&self) {
        let calls = self.uncounted.take();
        self.case.calls.fetch_add(calls.into(), Ordering::Relaxed);
    }
}

impl Drop for Seat {
    /// What was not counted yet is counted now.
    fn drop(&mut self) {
        self.uncounted.set(self.uncounted.get() + self.calls.get());
        self.count();
    }
}

/// A thread's own table: open addressing, at most half full.
#[derive(Debug)]
struct Table {
    engine: u64,
    generation: u64,
    places: Vec<Option<(Key, Seat)>>,
    filled: usize,
}

impl Table {
    /// Of no engine.
    const NONE: Self = Self {
        engine: 0,
        generation: 0,
        places: Vec::new(),
        filled: 0,
    };

    #[inline]
    fn get(&self, key: Key) -> Option<&Seat> {
        let mask = self.places.len().wrapping_sub(1);
        let mut place = key.place(mask);
        loop {
            match self.places.get(place)? {
                Some((known, seat)) if *known == key => return Some(seat),
                Some(_) => place = (place + 1) & mask,
                None => return None,
            }
        }
    }

    fn insert(&mut self, key: Key, seat: Seat, capacity: usize) {
        if self.filled >= capacity {
            // Rare: the shared map still has them.
            let size = self.places.len();
            self.places.clear();
            self.places.resize_with(size, || None);
            self.filled = 0;
        }
        if 2 * (self.filled + 1) > self.places.len() {
            let larger = (2 * self.places.len()).max(64);
            let old = std::mem::take(&mut self.places);
            self.places.resize_with(larger, || None);
            for (key, seat) in old.into_iter().flatten() {
                self.put(key, seat);
            }
        }
        self.put(key, seat);
        self.filled += 1;
    }

    fn put(&mut self, key: Key, seat: Seat) {
        let mask = self.places.len() - 1;
        let mut place = key.place(mask);
        while self.places[place].is_some() {
            place = (place + 1) & mask;
        }
        self.places[place] = Some((key, seat));
    }
}

thread_local! {
    /// The table of the engine that this thread used last.
    static TABLE: RefCell<Table> = const { RefCell::new(Table::NONE) };
    /// Those of others that it uses.
    static OTHERS: RefCell<Vec<Table>> = const { RefCell::new(Vec::new()) };
}

/// Engines whose tables a thread keeps.
const ENGINES_OF_A_THREAD: usize = 8;

/// Numbers for engines, so that a thread's tables are never taken for another's.
static ENGINES: AtomicU64 = AtomicU64::new(1);

/// What learning shares between cases.
#[derive(Debug)]
struct Learning {
    ledger: Ledger,
    random: Pcg64Mcg,
    events: std::collections::VecDeque<(String, Event)>,
}

/// A sample on its way to the learner.
#[derive(Debug)]
struct Report {
    case: Arc<Case>,
    sample: Sample,
}

/// All cases of one selector.
pub(crate) struct Engine {
    number: u64,
    /// Changes whenever tables of threads must be thrown away.
    generation: AtomicU64,
    /// Changes whenever cases would be made differently.
    epoch: AtomicU64,
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<dyn Clock + Send + Sync>,
    capacity: usize,
    /// Learns, but goes on serving what it began with.
    shadow: bool,
    cases: Mutex<HashMap<Key, Arc<Case>>>,
    uses: AtomicU64,
    queue: ArrayQueue<Report>,
    dropped: AtomicU64,
    evicted: AtomicU64,
    /// Of the ledger, for those who cannot wait for it.
    served_ns: AtomicU64,
    learning: Mutex<Learning>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("number", &self.number)
            .finish()
    }
}

/// What was locked by a thread that panicked is as good as before: every change is made in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn new(
        rules: Rules,
        clock: Arc<dyn Clock + Send + Sync>,
        seed: u64,
        capacity: usize,
        shadow: bool,
    ) -> Self {
        Self {
            number: ENGINES.fetch_add(1, Ordering::Relaxed),
            generation: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            rules,
            clock,
            capacity: capacity.max(1),
            shadow,
            cases: Mutex::default(),
            uses: AtomicU64::new(0),
            queue: ArrayQueue::new(QUEUE),
            dropped: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            served_ns: AtomicU64::new(0),
            learning: Mutex::new(Learning {
                ledger: Ledger::default(),
                random: Pcg64Mcg::seed_from_u64(seed),
                events: std::collections::VecDeque::new(),
            }),
        }
    }

    /// Does something, once, at this thread's seat of a case; `make` says what a new one is like. Both get what is handed in.
    ///
    /// The table is borrowed meanwhile. A call within the call finds its seats as well; only one that meets a new case
    /// gets a seat that is not kept.
    #[inline]
    pub(crate) fn at_seat<C, E, R>(
        &self,
        key: Key,
        context: &mut C,
        make: impl Fn(&C) -> Result<NewCase, E>,
        mut body: impl FnMut(&mut C, &Seat) -> R,
    ) -> Result<R, E> {
        let generation = self.generation.load(Ordering::Acquire);
        let mut known = |context: &mut C| {
            let found = TABLE.try_with(|table| {
                let table = table.try_borrow().ok()?;
                if table.engine != self.number || table.generation != generation {
                    return None;
                }
                table.get(key).map(|seat| body(context, seat))
            });
            found.ok().flatten()
        };
        if let Some(result) = known(context) {
            return Ok(result);
        }
        let case = self.sit(key, generation, || make(context))?;
        match known(context) {
            Some(result) => Ok(result),
            None => Ok(body(context, &Seat::new(case))),
        }
    }

    /// The longer way: makes the case if nobody did, and takes a seat unless the table is in use.
    #[cold]
    fn sit<E>(
        &self,
        key: Key,
        generation: u64,
        make: impl Fn() -> Result<NewCase, E>,
    ) -> Result<Arc<Case>, E> {
        let case = loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            // Nothing is locked while the owner, whose kernels may be anybody's code, says what the case is like.
            let known = lock(&self.cases).get(&key).cloned();
            let case = match known {
                Some(case) => break case,
                None => self.add(key, make()?),
            };
            // What it is made of may have changed since it was asked for; then it is made anew.
            if self.epoch.load(Ordering::Acquire) == epoch {
                break case;
            }
            lock(&self.cases).remove(&key);
        };
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        case.used.store(now, Ordering::Relaxed);
        let seat = Seat::new(Arc::clone(&case));
        // What is thrown away ends after the borrow: payloads may be anybody's code.
        let mut out = Vec::new();
        let _ = TABLE.try_with(|table| {
            let Ok(mut table) = table.try_borrow_mut() else {
                return;
            };
            if table.engine != self.number {
                self.exchange(&mut table, &mut out);
            }
            if table.generation != generation {
                let fresh = Table {
                    engine: self.number,
                    generation,
                    ..Table::NONE
                };
                out.push(std::mem::replace(&mut *table, fresh));
            }
            if table.get(key).is_none() {
                table.insert(key, seat, self.capacity);
            }
        });
        drop(out);
        Ok(case)
    }

    /// Brings this engine's table to the front.
    fn exchange(&self, table: &mut Table, out: &mut Vec<Table>) {
        let _ = OTHERS.try_with(|others| {
            let Ok(mut others) = others.try_borrow_mut() else {
                return;
            };
            let mine = others.iter().position(|other| other.engine == self.number);
            let mine = mine.map(|place| others.remove(place));
            let mine = mine.unwrap_or(Table {
                engine: self.number,
                generation: self.generation.load(Ordering::Acquire),
                ..Table::NONE
            });
            let before = std::mem::replace(table, mine);
            if before.engine != 0 {
                others.insert(0, before);
            }
            if others.len() > ENGINES_OF_A_THREAD {
                out.extend(others.drain(ENGINES_OF_A_THREAD..));
            }
        });
    }

    /// Tells the cases what this thread counted.
    fn count_own(&self) {
        let _ = TABLE.try_with(|table| {
            if let Ok(table) = table.try_borrow()
                && table.engine == self.number
            {
                for (_, seat) in table.places.iter().flatten() {
                    seat.count();
                }
            }
        });
    }

    fn add(&self, key: Key, new: NewCase) -> Arc<Case> {
        let mut learned = Learned::new(new.facts, &self.rules);
        for (candidate, barred) in new.barred.into_iter().enumerate() {
            if barred {
                learned.bar(candidate, true, &self.rules);
            }
        }
        let case = Arc::new(Case {
            key,
            name: new.name,
            payload: new.payload,
            head: Head {
                word: AtomicU64::new(Word::of(&learned, &self.rules).0),
                serial: self.uses.fetch_add(1, Ordering::Relaxed),
            },
            calls: AtomicU64::new(0),
            used: AtomicU64::new(self.uses.load(Ordering::Relaxed)),
            learned: Mutex::new(learned),
        });
        let mut evicted = Vec::new();
        let mut cases = lock(&self.cases);
        if cases.len() >= self.capacity {
            // Those used longest ago, a few at a time, so that it is seldom done.
            let mut ages: Vec<(u64, Key)> = cases
                .values()
                .map(|case| (case.used.load(Ordering::Relaxed), case.key))
                .collect();
            ages.sort_unstable();
            for (_, key) in ages.into_iter().take((self.capacity / 16).max(1)) {
                evicted.extend(cases.remove(&key));
            }
        }
        // Somebody else may have been faster.
        let case = Arc::clone(cases.entry(key).or_insert(case));
        drop(cases);
        let count = evicted.len() as u64;
        if count > 0 {
            self.evicted.fetch_add(count, Ordering::Relaxed);
            self.renew();
        }
        case
    }

    /// From now on cases are made differently.
    pub(crate) fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Changes when cases that were looked up may be known no more.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes every thread look its cases up anew.
    fn renew(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Forgets the cases for which `gone` holds.
    pub(crate) fn forget(&self, gone: impl Fn(&Case) -> bool) {
        let out: Vec<Arc<Case>> = {
            let mut cases = lock(&self.cases);
            cases
                .extract_if(|_, case| gone(case))
                .map(|(_, case)| case)
                .collect()
        };
        if !out.is_empty() {
            self.renew();
        }
    }

    /// Takes note of a call that was timed; waits for nobody.
    pub(crate) fn observe(&self, case: &Arc<Case>, sample: Sample) {
        let report = Report {
            case: Arc::clone(case),
            sample,
        };
        if let Err(report) = self.queue.push(report) {
            self.settle();
            if self.queue.push(report).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether samples wait.
    pub(crate) fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Learns from what waits, unless another thread is at it. Returns how many samples it took.
    pub(crate) fn settle(&self) -> usize {
        let mut learning = match self.learning.try_lock() {
            Ok(learning) => learning,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        let (mut taken, mut news) = (0, Vec::new());
        // Those that come in meanwhile are for the next time.
        for _ in 0..QUEUE {
            let Some(Report { case, sample }) = self.queue.pop() else {
                break;
            };
            taken += 1;
            let Learning {
                ledger,
                random,
                events,
            } = &mut *learning;
            let mut learned = lock(&case.learned);
            let asked = learned.trial();
            let events_of_it = learned.learn(&sample, &self.rules, ledger, random);
            self.publish(&case, &learned, asked.map(|trial| trial.serial));
            drop(learned);
            let now = self.uses.fetch_add(1, Ordering::Relaxed);
            case.used.store(now, Ordering::Relaxed);
            for event in events_of_it {
                if events.len() == EVENTS {
                    events.pop_front();
                }
                events.push_back((case.name.clone(), event));
                news.push((case.name.clone(), event));
            }
        }
        let served = learning.ledger.served_ns() as u64;
        self.served_ns.store(served, Ordering::Relaxed);
        drop(learning);
        // Subscribers are anybody's code: nothing is locked when they hear of it.
        for (case, event) in news {
            tracing::debug!(case, ?event, "learned");
        }
        taken
    }

    /// Tells callers what was learned. A trial that was asked for before and is not offered any more is under way: it is not
    /// offered to another. In shadow, only who failed is replaced.
    fn publish(&self, case: &Case, learned: &Learned, asked: Option<u16>) {
        let word = Word::of(learned, &self.rules);
        let mut seen = case.head.word.load(Ordering::Relaxed);
        loop {
            let before = Word(seen);
            let same = learned.trial().map(|trial| trial.serial) == asked;
            let under_way = asked.is_some() && same && before.tried().is_none();
            let mut next = match under_way {
                true => word.without_trial(),
                false => word,
            };
            if self.shadow {
                let serves = before.serves();
                let there = before.0 & Word::SOMEBODY != 0 && !learned.is_barred(serves);
                next = next.without_trial();
                if there {
                    next = Word(next.0 & !0xffff | serves as u64);
                }
            }
            let order = Ordering::Relaxed;
            match case.head.word.compare_exchange(seen, next.0, order, order) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Bars a candidate of a case or lets it in.
    pub(crate) fn bar(&self, case: &Case, candidate: usize, barred: bool) {
        let mut learned = lock(&case.learned);
        let asked = learned.trial().map(|trial| trial.serial);
        learned.bar(candidate, barred, &self.rules);
        self.publish(case, &learned, asked);
    }

    /// What is known of a case.
    pub(crate) fn learned(&self, case: &Case) -> Learned {
        lock(&case.learned).clone()
    }

    /// All cases, by name, with the calls of this thread counted but for the few since it last took the time.
    pub(crate) fn cases(&self) -> Vec<Arc<Case>> {
        self.count_own();
        let mut cases: Vec<_> = lock(&self.cases).values().cloned().collect();
        cases.sort_by(|a, b| a.name.cmp(&b.name).then(a.key.cmp(&b.key)));
        cases
    }

    pub(crate) fn case(&self, key: Key) -> Option<Arc<Case>> {
        lock(&self.cases).get(&key).cloned()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        lock(&self.learning).ledger
    }

    pub(crate) fn events(&self) -> Vec<(String, Event)> {
        lock(&self.learning).events.iter().cloned().collect()
    }

    /// Samples that found the queue full, and cases that made room for others.
    pub(crate) fn losses(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.dropped), read(&self.evicted))
    }

    /// Time served, as of the last time anything was learned.
    pub(crate) fn served_ns(&self) -> f64 {
        self.served_ns.load(Ordering::Relaxed) as f64
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Case {
    /// Tells it from others that had the same key before.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.head.serial
    }

    /// Calls that were counted so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
