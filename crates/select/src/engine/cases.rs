//! All cases of one selector: how they are found, made, learned about and given up.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};

use crossbeam_queue::ArrayQueue;
use kernelwise_measure::Clock;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::seat::{Case, Seat};
use super::sync::{AtomicU64, Mutex, QUEUE, lock, thread_local};
use super::table::Table;
use super::word::{Published, Word};
use kernelwise_model::watch::{Event as Noticing, Observation, SystemState, Watch};

use crate::belief::Tally;
use crate::budget::Ledger;
use crate::key::Key;
use crate::kinds::{Kinds, Likeness};
use crate::learn::{Event, Facts, Foreseen, Learned, Rules, Sample};

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
    /// What others it is like, if any.
    pub(crate) likeness: Option<Likeness>,
    /// Whatever the owner needs to run them.
    pub(crate) payload: Box<dyn Any + Send + Sync>,
}

thread_local! {
    /// The table of the engine that this thread used last.
    static TABLE: RefCell<Table> = const { RefCell::new(Table::of(0, 0)) };
    /// Those of others that it uses.
    static OTHERS: RefCell<Vec<Table>> = const { RefCell::new(Vec::new()) };
}

/// Engines whose tables a thread keeps.
const ENGINES_OF_A_THREAD: usize = 8;

/// Numbers for engines, so that a thread's tables are never taken for another's.
static ENGINES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// Numbers for cases, of all engines: so that those of different ones seldom share a stamp.
static CASES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// How often a sample is shown to the watch at the most: looking takes some microseconds, and a tenth of a per cent of a thread is enough.
const WATCH_EVERY_NS: u64 = 5_000_000;

/// Shows a sample to the watch, beside what it usually takes, as ln t.
fn look(
    watch: &mut Watch,
    case: &Case,
    sample: &Sample,
    usual: f64,
    state: SystemState,
) -> Vec<Noticing> {
    let seen = Observation {
        stream: case.serial() << 16 | sample.candidate as u64,
        residual: sample.time_ns.max(0.01).ln() - usual,
        state,
        time_ns: sample.at_ns,
    };
    // What is no time says nothing, here either.
    watch
        .observe(&seen)
        .map_or_else(|_| Vec::new(), |news| news.cloned().collect())
}

/// What learning shares between cases.
#[derive(Debug)]
pub(super) struct Learning {
    ledger: Ledger,
    random: Pcg64Mcg,
    events: VecDeque<(String, Event)>,
    watch: Watch,
    /// What it noticed lately, with whose times those were.
    noticed: VecDeque<(Arc<Case>, usize, Noticing)>,
    /// When something was last shown to the watch.
    watched_ns: Option<u64>,
}

/// A sample on its way to the learner.
#[derive(Debug)]
struct Report {
    case: Arc<Case>,
    sample: Sample,
}

/// What was learned from at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TakenIn {
    pub(crate) samples: usize,
    /// Whether a case is among them whose next samples should not have to wait.
    pub(crate) open: bool,
}

/// A case of which something was noted, and no conclusion drawn yet.
struct Touched {
    case: Arc<Case>,
    /// The trial that was asked for before.
    asked: Option<u16>,
    /// The time of the latest sample.
    at_ns: u64,
}

/// How a seat was taken.
enum Sat {
    /// It is in the table.
    InTable(Arc<Case>),
    /// The table is in use: it may be kept aside.
    Aside(Rc<Seat>),
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
    pub(super) learning: Mutex<Learning>,
    kinds: Kinds,
    /// Candidates that were timed for the first time, and changes that were noticed.
    timed: AtomicU64,
    changes: AtomicU64,
    /// What the machine does, as far as anybody looks.
    pub(crate) state: Mutex<SystemState>,
    /// Who hears of what is learned from.
    pub(crate) listener: Option<Listener>,
}

/// Hears of a sample that was learned from.
pub(crate) type Listener = Box<dyn Fn(&Case, &Sample) + Send + Sync>;

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("number", &self.number)
            .finish()
    }
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
                events: VecDeque::new(),
                watch: Watch::default(),
                noticed: VecDeque::new(),
                watched_ns: None,
            }),
            kinds: Kinds::new(seed, capacity),
            timed: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            state: Mutex::default(),
            listener: None,
        }
    }

    /// Does something, once, at this thread's seat of a case; `make` says what a new one is like. Both get what is handed in.
    ///
    /// The table is borrowed meanwhile. A call within the call finds its seats as well; one that meets a new case gets a seat
    /// that is kept aside, and moves into the table when the outermost call is over. Only within a call of another engine, whose
    /// table is then in front, seats are not kept.
    #[inline]
    pub(crate) fn at_seat<C, E, R>(
        &self,
        key: Key,
        context: &mut C,
        make: impl Fn(&C) -> Result<NewCase, E>,
        mut body: impl FnMut(&mut C, &Seat) -> R,
    ) -> Result<R, E> {
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(result) = self.if_seated(key, generation, |seat| body(context, seat)) {
            return Ok(result);
        }
        self.at_new_seat(key, generation, context, make, body)
    }

    /// The same at a case that this thread has no seat at.
    #[cold]
    fn at_new_seat<C, E, R>(
        &self,
        key: Key,
        generation: u64,
        context: &mut C,
        make: impl Fn(&C) -> Result<NewCase, E>,
        mut body: impl FnMut(&mut C, &Seat) -> R,
    ) -> Result<R, E> {
        let own = match self.sit(key, generation, || make(context))? {
            Sat::InTable(case) => {
                let result = self.if_seated(key, generation, |seat| body(context, seat));
                match result {
                    Some(result) => return Ok(result),
                    None => Rc::new(Seat::new(case)),
                }
            }
            Sat::Aside(seat) => seat,
        };
        Ok(body(context, &own))
    }

    /// Does something at a seat that is in the table.
    #[inline]
    fn if_seated<R>(&self, key: Key, generation: u64, body: impl FnOnce(&Seat) -> R) -> Option<R> {
        let found = TABLE.try_with(|table| {
            let table = table.try_borrow().ok()?;
            if table.engine != self.number || table.generation != generation {
                return None;
            }
            let result = body(table.get(key)?);
            Some((result, table.is_awaited()))
        });
        let (result, awaited) = found.ok().flatten()?;
        if awaited {
            self.seat_those_aside();
        }
        Some(result)
    }

    /// The longer way: makes the case if nobody did, and takes a seat.
    fn sit<E>(
        &self,
        key: Key,
        generation: u64,
        make: impl Fn() -> Result<NewCase, E>,
    ) -> Result<Sat, E> {
        if let Some(seat) = self.if_mine(generation, |table| table.aside(key)).flatten() {
            return Ok(Sat::Aside(seat));
        }
        let case = self.find_or_make(key, make)?;
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        case.used.store(now, Ordering::Relaxed);
        let seat = Seat::new(Arc::clone(&case));
        // What is thrown away ends after the borrow: payloads may be anybody's code.
        let mut out = Vec::new();
        let mut seat = Some(seat);
        let _ = TABLE.try_with(|table| {
            let Ok(mut table) = table.try_borrow_mut() else {
                return;
            };
            if table.engine != self.number {
                self.exchange(&mut table, &mut out);
            }
            if table.engine != self.number {
                // The thread is ending, and some of what it had is gone.
                return;
            }
            if table.generation != generation {
                let fresh = Table::of(self.number, generation);
                out.push(std::mem::replace(&mut *table, fresh));
            }
            if let (None, Some(seat)) = (table.get(key), seat.take()) {
                self.insert(&mut table, key, seat, &mut out);
            }
        });
        drop(out);
        let Some(seat) = seat.map(Rc::new) else {
            return Ok(Sat::InTable(case));
        };
        self.if_mine(generation, |table| table.put_aside(key, Rc::clone(&seat)));
        Ok(Sat::Aside(seat))
    }

    /// Looks at the table in front, if it is this engine's and of this generation.
    fn if_mine<R>(&self, generation: u64, look: impl FnOnce(&Table) -> R) -> Option<R> {
        let looked = TABLE.try_with(|table| {
            let table = table.try_borrow().ok()?;
            let mine = table.engine == self.number && table.generation == generation;
            mine.then(|| look(&table))
        });
        looked.ok().flatten()
    }

    /// The case of a key, made if there is none.
    fn find_or_make<E>(
        &self,
        key: Key,
        make: impl Fn() -> Result<NewCase, E>,
    ) -> Result<Arc<Case>, E> {
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            // Nothing is locked while the owner, whose kernels may be anybody's code, says what the case is like.
            let known = lock(&self.cases).get(&key).cloned();
            if let Some(case) = known {
                return Ok(case);
            }
            // What it is made of may change while it is made; then it is made anew.
            if let Some(case) = self.add(key, make()?, epoch) {
                return Ok(case);
            }
        }
    }

    /// Puts a seat into a table; one that is full begins anew, which is rare: the shared map still has the cases.
    fn insert(&self, table: &mut Table, key: Key, seat: Seat, out: &mut Vec<Table>) {
        if table.filled() >= self.capacity {
            let fresh = Table::of(table.engine, table.generation);
            out.push(std::mem::replace(table, fresh));
        }
        table.insert(key, seat);
    }

    /// Gives those who waited for the table a place in it, unless a call is still at it.
    #[cold]
    fn seat_those_aside(&self) {
        let mut out = Vec::new();
        let _ = TABLE.try_with(|table| {
            let Ok(mut table) = table.try_borrow_mut() else {
                return;
            };
            for (key, seat) in table.take_aside() {
                // Nobody sits there any more: calls within calls end before those around them.
                if let (Ok(seat), None) = (Rc::try_unwrap(seat), table.get(key)) {
                    self.insert(&mut table, key, seat, &mut out);
                }
            }
        });
    }

    /// Brings this engine's table to the front.
    fn exchange(&self, table: &mut Table, out: &mut Vec<Table>) {
        let _ = OTHERS.try_with(|others| {
            let Ok(mut others) = others.try_borrow_mut() else {
                return;
            };
            let mine = others.iter().position(|other| other.engine == self.number);
            let mine = mine.map(|place| others.remove(place));
            let generation = self.generation.load(Ordering::Acquire);
            let mine = mine.unwrap_or(Table::of(self.number, generation));
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
                table.seats().for_each(Seat::count);
            }
        });
    }

    /// Takes a case in that was made as things were in `epoch`; `None` if they changed since.
    fn add(&self, key: Key, mut new: NewCase, epoch: u64) -> Option<Arc<Case>> {
        let like = new.likeness.take();
        let kin = like.and_then(|like| self.kinds.meet(like, &mut new.facts));
        let mut learned = Learned::new(new.facts, &self.rules);
        for (candidate, barred) in new.barred.into_iter().enumerate() {
            if barred {
                learned.bar(candidate, true, &self.rules);
            }
        }
        let number = CASES.fetch_add(1, Ordering::Relaxed);
        let published = Published::new(Word::of(&learned, &self.rules), number);
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let name = (key, new.name);
        let mut made = Case::new(name, new.payload, published, learned, used);
        made.kin = kin;
        let made = Arc::new(made);
        // Those who make room, and one that is outdated, end when nothing is locked: payloads may be anybody's code.
        let mut evicted = Vec::new();
        let case = {
            let mut cases = lock(&self.cases);
            // Whoever changes something does so before looking for the cases it concerns. Seen from under the lock, a case is made
            // of what is new or is there to be found.
            if self.epoch.load(Ordering::Acquire) != epoch {
                return None;
            }
            if cases.len() >= self.capacity && !cases.contains_key(&key) {
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
            Arc::clone(cases.entry(key).or_insert_with(|| Arc::clone(&made)))
        };
        let count = evicted.len() as u64;
        if count > 0 {
            self.evicted.fetch_add(count, Ordering::Relaxed);
            self.renew();
        }
        Some(case)
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
    pub(super) fn renew(&self) {
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
            self.take_in();
            if self.queue.push(report).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether samples wait.
    pub(crate) fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Learns what the samples so far say about cases to come. Not for callers: it may take a while.
    pub(crate) fn study(&self) {
        self.kinds.study(&*self.clock, self.served_ns());
    }

    /// The same however long it takes: somebody asked for it.
    pub(crate) fn study_all(&self) {
        self.kinds.study(&*self.clock, f64::INFINITY);
    }

    /// Takes over what was measured of candidates before. What is known already stays.
    pub(crate) fn recall(&self, case: &Case, known: &[(usize, Tally)]) {
        let mut learned = lock(&case.learned);
        let asked = learned.trial().map(|trial| trial.serial);
        for (candidate, tally) in known {
            let tally = tally.as_of(self.clock.now());
            let is_news = learned.recall(*candidate, tally);
            self.timed.fetch_add(u64::from(is_news), Ordering::Relaxed);
            if let (true, Some(kin), Some(mean)) = (is_news, &case.kin, tally.mean()) {
                kin.observe(*candidate, mean);
            }
        }
        learned.settle(&self.rules);
        self.publish(case, &learned, asked);
    }

    /// Learns about the cases that samples wait of, unless another thread is at it.
    pub(crate) fn take_in(&self) -> TakenIn {
        let mut learning = match self.learning.try_lock() {
            Ok(learning) => learning,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return TakenIn::default(),
        };
        let before = learning.ledger;
        let (mut taken, mut news, mut noticed) = (TakenIn::default(), Vec::new(), Vec::new());
        let mut heard = Vec::new();
        // In the order of their first samples, with where each stands.
        let (mut touched, mut places) = (Vec::<Touched>::new(), HashMap::new());
        // Those that come in meanwhile are for the next time.
        for _ in 0..QUEUE {
            let Some(Report { case, sample }) = self.queue.pop() else {
                break;
            };
            taken.samples += 1;
            let Learning {
                ledger,
                watch,
                noticed: kept,
                watched_ns,
                ..
            } = &mut *learning;
            let mut learned = lock(&case.learned);
            let is_time = watched_ns.is_none_or(|last| sample.at_ns >= last + WATCH_EVERY_NS);
            if is_time && let Some(usual) = learned.usual(sample.candidate) {
                *watched_ns = Some(sample.at_ns);
                for event in look(watch, &case, &sample, usual.mean, *lock(&self.state)) {
                    if kept.len() == EVENTS {
                        kept.pop_front();
                    }
                    kept.push_back((Arc::clone(&case), sample.candidate, event.clone()));
                    noticed.push((case.name.clone(), event));
                }
            }
            let asked = learned.trial().map(|trial| trial.serial);
            let place = *places.entry(case.serial()).or_insert_with(|| {
                let case = Arc::clone(&case);
                let at_ns = sample.at_ns;
                touched.push(Touched { case, asked, at_ns });
                touched.len() - 1
            });
            touched[place].at_ns = touched[place].at_ns.max(sample.at_ns);
            for event in learned.note(&sample, &self.rules, ledger) {
                news.push((case.name.clone(), event));
            }
            // Others of the kind need not hear of every sample, nor this one every time of them.
            let tally = learned.tally(sample.candidate).copied();
            if let (Some(kin), Some(tally)) = (&case.kin, tally)
                && tally.samples().is_power_of_two()
                && let Some(mean) = tally.mean()
            {
                kin.observe(sample.candidate, mean);
                if let Some(foreseen) = kin.news() {
                    learned.expect(&foreseen, &self.rules);
                }
            }
            let is_first = tally.is_some_and(|tally| tally.samples() == 1);
            self.timed.fetch_add(u64::from(is_first), Ordering::Relaxed);
            drop(learned);
            if self.listener.is_some() {
                heard.push((Arc::clone(&case), sample));
            }
        }
        for Touched { case, asked, at_ns } in touched {
            let Learning { ledger, random, .. } = &mut *learning;
            let mut learned = lock(&case.learned);
            let events = learned.conclude(at_ns, &self.rules, ledger, random);
            taken.open |= learned.is_open();
            self.publish(&case, &learned, asked);
            drop(learned);
            news.extend(events.into_iter().map(|event| (case.name.clone(), event)));
            let now = self.uses.fetch_add(1, Ordering::Relaxed);
            case.used.store(now, Ordering::Relaxed);
        }
        // Nor those of who is called so often that the queue would be full by then.
        taken.open |= taken.samples > QUEUE / 8;
        for (name, event) in &news {
            let is_change = matches!(event, Event::Changed { .. });
            self.changes
                .fetch_add(u64::from(is_change), Ordering::Relaxed);
            if learning.events.len() == EVENTS {
                learning.events.pop_front();
            }
            learning.events.push_back((name.clone(), *event));
        }
        let served = learning.ledger.served_ns() as u64;
        self.served_ns.store(served, Ordering::Relaxed);
        let after = learning.ledger;
        drop(learning);
        // Subscribers and recorders are anybody's code: nothing is locked when they hear of it.
        for (case, event) in &news {
            tracing::debug!(case, ?event, "learned");
        }
        for (case, sample) in &heard {
            if let Some(listener) = &self.listener {
                listener(case, sample);
            }
        }
        for (case, event) in &noticed {
            tracing::info!(case, time_ns = event.time_ns, what = ?event.what, "noticed");
        }
        if taken.samples > 0 {
            tell(taken.samples, &before, &after, &news);
        }
        taken
    }

    /// Tells callers what was learned. A trial that was asked for before and is not offered any more is under way: it is not
    /// offered to another. In shadow, only who failed is replaced.
    fn publish(&self, case: &Case, learned: &Learned, asked: Option<u16>) {
        let word = Word::of(learned, &self.rules);
        let same = learned.trial().map(|trial| trial.serial) == asked;
        case.published.publish(|before| {
            let under_way = asked.is_some() && same && before.offer().is_none();
            if self.shadow {
                let serves = before.known().serves();
                let there = before.known().is_somebody() && !learned.is_barred(serves);
                let next = word.without_offer();
                return if there { next.served_by(serves) } else { next };
            }
            match under_way {
                true => word.without_offer(),
                false => word,
            }
        });
    }

    /// Bars a candidate of a case or lets it in.
    pub(crate) fn bar(&self, case: &Case, candidate: usize, barred: bool) {
        let mut learned = lock(&case.learned);
        let asked = learned.trial().map(|trial| trial.serial);
        learned.bar(candidate, barred, &self.rules);
        self.publish(case, &learned, asked);
    }

    /// Takes what models that were fitted since say of candidates of a case.
    pub(crate) fn expect(&self, case: &Case, foreseen: &[Option<Foreseen>]) {
        let mut learned = lock(&case.learned);
        let asked = learned.trial().map(|trial| trial.serial);
        learned.expect(foreseen, &self.rules);
        self.publish(case, &learned, asked);
    }

    /// What is known of a case.
    pub(crate) fn learned(&self, case: &Case) -> Learned {
        let mut learned = lock(&case.learned).clone();
        learned.wait_until(self.clock.now());
        learned
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

    /// What was out of the ordinary, with the case and the candidate.
    pub(crate) fn noticed(&self) -> Vec<(Arc<Case>, usize, Noticing)> {
        lock(&self.learning).noticed.iter().cloned().collect()
    }

    pub(crate) fn events(&self) -> Vec<(String, Event)> {
        lock(&self.learning).events.iter().cloned().collect()
    }

    /// Candidates that were timed for the first time so far, and changes of kernels that were seen.
    pub(crate) fn news(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.timed), read(&self.changes))
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

/// Counts what was learned for those who collect figures. There are no workloads in the labels: a program may have very many.
fn tell(samples: usize, before: &Ledger, after: &Ledger, news: &[(String, Event)]) {
    let count = |name: &'static str, by: u64| metrics::counter!(name).increment(by);
    count("kernelwise_samples_total", samples as u64);
    count("kernelwise_trials_total", after.trials() - before.trials());
    let nanos = |after: f64, before: f64| (after - before).max(0.0) as u64;
    let served = nanos(after.served_ns(), before.served_ns());
    let excess = nanos(after.spent_ns(), before.spent_ns());
    count("kernelwise_served_nanoseconds_total", served);
    count("kernelwise_trials_excess_nanoseconds_total", excess);
    for (_, event) in news {
        let name = match event {
            Event::Switched { .. } => "kernelwise_switches_total",
            Event::Changed { .. } => "kernelwise_changes_total",
            Event::Crowded { .. } => "kernelwise_crowdings_total",
            Event::Common { .. } => "kernelwise_common_changes_total",
        };
        count(name, 1);
    }
}
