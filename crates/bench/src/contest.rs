//! One shape: are the contenders right, and how long do they take?

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_backend::sample::Tensor;
use kernelwise_backend::{Call, ReferenceKernel, Scratch, Setting, Terms, answer, run};
use kernelwise_measure::stats::{MIN_SAMPLES, location};
use kernelwise_measure::{AWAKE, Clock, Contender, Ending, Race, Sampler, TscClock};
use kernelwise_types::{Numerics, Technique, TensorView, TensorViewMut, ViewError, Workload};

use crate::bench::Options;
use crate::entrant::Entrant;
use crate::figures::Source;
use crate::rivals::Rival;
use crate::standings::Raced;

/// Work up to which the reference gives the answer: steps of its innermost loop.
const REFERENCE_STEPS: u64 = 4_000_000;
/// Results that are tried as answer until another contender confirms one.
const KEYS: usize = 3;
/// A call this long tells enough about a kernel that is far behind.
const LONG_CALL_NS: f64 = 2e6;
/// How far behind the fastest that is.
const FAR_BEHIND: f64 = 3.0;
/// How far behind the fastest of its kind a contender may be to meet the others in the last race.
const NEAR: f64 = 1.5;
/// Rounds of the first race.
const HEATS: usize = 3;
/// Most rounds of the last.
const ROUNDS: usize = 60;

/// One who takes part.
pub(crate) enum Candidate<'a> {
    Kernel(Entrant),
    Rival(Box<dyn Rival + 'a>),
}

impl Candidate<'_> {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Kernel(entrant) => entrant.kernel.spec().id.to_string(),
            Self::Rival(rival) => rival.name().to_owned(),
        }
    }

    pub(crate) fn numerics(&self) -> Numerics {
        match self {
            Self::Kernel(entrant) => entrant.kernel.spec().numerics,
            Self::Rival(_) => Numerics::Reordered,
        }
    }

    pub(crate) fn technique(&self) -> Technique {
        match self {
            Self::Kernel(entrant) => entrant.kernel.spec().technique,
            Self::Rival(_) => Technique::Library,
        }
    }

    /// The kinds of which the foremost always meet in the last race, because ratios are made of them.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Kernel(entrant) if entrant.opt_in => "reduced",
            Self::Kernel(entrant) if entrant.kernel.spec().technique == Technique::Algorithmic => {
                "algorithmic"
            }
            Self::Kernel(entrant) if entrant.source() == Source::Wrapped => "wrapped",
            Self::Kernel(_) => "own",
            Self::Rival(rival) => rival.name(),
        }
    }
}

/// The clock that kernels are timed with: processor time of this thread where they use no other.
pub(crate) fn clock(threads: u32, wall: &TscClock) -> &dyn Clock {
    #[cfg(unix)]
    if threads == 1 {
        return &kernelwise_measure::ThreadCpuClock;
    }
    #[cfg(not(unix))]
    let _ = threads;
    wall
}

/// A shape with all who take part.
pub(crate) struct Contest<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) inputs: &'a [Tensor],
    pub(crate) before: &'a [Tensor],
    pub(crate) terms: Terms<'a>,
    pub(crate) options: &'a Options,
    pub(crate) wall: &'a TscClock,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) candidates: Vec<Candidate<'a>>,
}

/// What one call of a contender gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Checked {
    /// The right result, in calls of so long.
    Right { call_ns: f64 },
    /// A wrong one.
    Wrong(String),
    /// The right one with the help of threads that the clock does not see.
    Helped(String),
    /// None.
    Failed(String),
}

/// What all results were held against, and what came of it, in the order of the candidates.
pub(crate) struct Answers {
    pub(crate) against: String,
    pub(crate) results: Vec<Checked>,
}

/// An answer to hold others against.
struct Key {
    outputs: Vec<Tensor>,
    numerics: Numerics,
}

impl Contest<'_> {
    /// Lets everyone compute the shape once.
    pub(crate) fn check(&mut self) -> Answers {
        if let Some(outputs) = self.reference() {
            let key = Key {
                outputs,
                numerics: Numerics::BitIdentical,
            };
            return Answers {
                against: "the reference".to_owned(),
                results: self.against(&key, None).0,
            };
        }
        let mut last = None;
        // The most exact ones first.
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        order.sort_by_key(|&number| self.candidates[number].numerics());
        for number in order.into_iter().take(KEYS) {
            let Ok((outputs, call_ns)) = self.compute(number) else {
                continue;
            };
            let key = Key {
                outputs,
                numerics: self.candidates[number].numerics(),
            };
            let (results, confirmed) = self.against(&key, Some((number, call_ns)));
            let name = self.candidates[number].name();
            if confirmed {
                let against = format!("{name}, which another contender confirms");
                return Answers { against, results };
            }
            if self.candidates.len() == 1 {
                let against =
                    format!("nothing: there is only {name}, and the reference is too slow");
                return Answers { against, results };
            }
            last = Some(name);
        }
        let name = last.map_or("nobody".to_owned(), |name| format!("not even with {name}"));
        let disagree = |_: &Candidate<'_>| Checked::Wrong(format!("agrees with nobody ({name})"));
        Answers {
            against: "nothing: no two contenders agree".to_owned(),
            results: self.candidates.iter().map(disagree).collect(),
        }
    }

    /// Everyone's result against the key, and whether somebody other than its maker agrees.
    fn against(&mut self, key: &Key, maker: Option<(usize, f64)>) -> (Vec<Checked>, bool) {
        let mut confirmed = false;
        let mut results = Vec::new();
        for number in 0..self.candidates.len() {
            if let Some((maker, call_ns)) = maker
                && maker == number
            {
                results.push(self.helped(number).unwrap_or(Checked::Right { call_ns }));
                continue;
            }
            let checked = match self.compute(number) {
                Err(error) => Checked::Failed(error),
                Ok((outputs, call_ns)) => {
                    let numerics = self.candidates[number].numerics().max(key.numerics);
                    let inputs = views(self.inputs).unwrap_or_default();
                    match answer::compare(self.workload, numerics, &inputs, &key.outputs, &outputs)
                    {
                        Err(what) => Checked::Wrong(what),
                        Ok(()) => {
                            confirmed = true;
                            self.helped(number).unwrap_or(Checked::Right { call_ns })
                        }
                    }
                }
            };
            results.push(checked);
        }
        (results, confirmed)
    }

    /// The reference's answer, where it comes in reasonable time.
    fn reference(&self) -> Option<Vec<Tensor>> {
        let operands = self.workload.inputs().iter().chain(self.workload.outputs());
        let elements: u64 = operands
            .map(|operand| operand.shape.elements() as u64)
            .sum();
        let flops = self.workload.cost().map_or(0, |cost| cost.flops.0);
        if elements.max(flops / 2) > REFERENCE_STEPS {
            return None;
        }
        let kernel = ReferenceKernel::for_workload(self.workload)?;
        let mut outputs = self.before.to_vec();
        {
            let inputs = views(self.inputs).ok()?;
            let mut outputs = views_mut(&mut outputs).ok()?;
            let mut call = Call::new(self.workload, &inputs, &mut outputs).ok()?;
            let mut scratch = Scratch::new();
            run(
                &kernel,
                &mut call,
                &Setting::NONE,
                &mut scratch,
                &self.terms,
            )
            .ok()?;
        }
        Some(outputs)
    }

    /// One contender's result, and how long a call takes: the shorter of two where the first is long, because that one found
    /// new memory.
    fn compute(&mut self, number: usize) -> Result<(Vec<Tensor>, f64), String> {
        let mut outputs = self.before.to_vec();
        let mut scratch = Scratch::new();
        let first = self.call_of(number, &mut outputs, &mut scratch)?;
        if first < LONG_CALL_NS {
            return Ok((outputs, first));
        }
        // Operations that update their output must do it once.
        let second = self.call_of(number, &mut outputs.clone(), &mut scratch)?;
        Ok((outputs, first.min(second)))
    }

    /// One call of one contender; how long it took.
    fn call_of(
        &mut self,
        number: usize,
        outputs: &mut [Tensor],
        scratch: &mut Scratch,
    ) -> Result<f64, String> {
        let words = |error: ViewError| error.to_string();
        let inputs = views(self.inputs).map_err(words)?;
        let mut outputs = views_mut(outputs).map_err(words)?;
        let mut call = Call::new(self.workload, &inputs, &mut outputs).map_err(words)?;
        let (terms, clock) = (self.terms, clock(self.options.threads, self.wall));
        match &mut self.candidates[number] {
            Candidate::Kernel(entrant) => timed(clock, || {
                let Entrant {
                    kernel, setting, ..
                } = entrant;
                let ran = run(kernel.as_ref(), &mut call, setting, scratch, &terms);
                ran.map_err(|fault| fault.to_string())
            }),
            Candidate::Rival(rival) => {
                let took = timed(clock, || rival.run(&mut call))?;
                rival.show(&mut call)?;
                Ok(took)
            }
        }
    }

    /// Whether a library that was told to use one thread was helped by others. Threads that end or settle down just then look
    /// like help, so it must show every time.
    #[cfg(unix)]
    fn helped(&mut self, number: usize) -> Option<Checked> {
        use kernelwise_measure::selfcheck::helper_threads;
        /// Shorter than this, a thread of the system that happens to run looks like help.
        const LONG_ENOUGH_NS: u64 = 2_000_000;
        const LOOKS: usize = 4;
        if self.options.threads > 1 {
            return None;
        }
        let Candidate::Rival(rival) = &mut self.candidates[number] else {
            // Kernels are held to their threads by tests of their own.
            return None;
        };
        let mut outputs = self.before.to_vec();
        let inputs = views(self.inputs).ok()?;
        let mut outputs = views_mut(&mut outputs).ok()?;
        let mut call = Call::new(self.workload, &inputs, &mut outputs).ok()?;
        let wall = self.wall;
        let mut seen = None;
        for _ in 0..LOOKS {
            let (result, warning) = helper_threads(|| {
                let start = wall.now();
                while wall.now().saturating_sub(start) < LONG_ENOUGH_NS {
                    rival.run(&mut call)?;
                }
                Ok::<(), String>(())
            });
            match (result, warning) {
                (Err(error), _) => return Some(Checked::Failed(error)),
                (Ok(()), None) => return None,
                (Ok(()), Some(warning)) => seen = Some(warning.to_string()),
            }
        }
        seen.map(Checked::Helped)
    }

    #[cfg(not(unix))]
    fn helped(&mut self, _number: usize) -> Option<Checked> {
        None
    }

    /// Races those that were right: all of them shortly, then those near the front of their kind. `None` if it was cancelled
    /// before the last race told anything.
    pub(crate) fn race(&mut self, checked: &[Checked]) -> Option<Raced> {
        let first = |number: &usize| match checked[*number] {
            Checked::Right { call_ns } => Some(call_ns),
            _ => None,
        };
        let everyone = 0..self.candidates.len();
        let fastest = everyone
            .clone()
            .filter_map(|n| first(&n))
            .fold(f64::INFINITY, f64::min);
        // Libraries always race: a ratio is only as good as what it divides by.
        let worth_racing = |number: &usize| {
            let rival = matches!(self.candidates[*number], Candidate::Rival(_));
            let near = |ns: f64| rival || ns < LONG_CALL_NS || ns < FAR_BEHIND * fastest;
            first(number).is_some_and(near)
        };
        let racing: Vec<usize> = everyone.clone().filter(worth_racing).collect();
        let heats = self.run(&racing, self.options.budget.mul_f64(0.3), HEATS);
        let time = |race: &Race, name: &str| {
            let entry = race.entry(name)?;
            location(&entry.samples_ns).filter(|_| entry.ending == Ending::Measured)
        };
        let mut finalists = Vec::new();
        for &number in &racing {
            let candidate = &self.candidates[number];
            let rivals = racing.iter().map(|&other| &self.candidates[other]);
            let of_its_kind = rivals.filter(|other| other.kind() == candidate.kind());
            let best = of_its_kind
                .filter_map(|other| time(&heats, &other.name()))
                .fold(f64::INFINITY, f64::min);
            // A contender that the heats did not reach may still be the best.
            let near = time(&heats, &candidate.name()).is_none_or(|ns| ns <= NEAR * best);
            let runs = heats.entry(&candidate.name());
            if near && runs.is_some_and(|entry| entry.ending == Ending::Measured) {
                finalists.push(number);
            }
        }
        let spent = Duration::from_nanos(heats.elapsed_ns);
        let race = self.run(
            &finalists,
            self.options.budget.saturating_sub(spent),
            ROUNDS,
        );
        if self.cancel.load(Ordering::Relaxed) && race.rounds < MIN_SAMPLES {
            return None;
        }
        Some(Raced {
            threads: self.options.threads,
            checked: checked.to_vec(),
            heats,
            race,
        })
    }

    /// Times these contenders side by side.
    fn run(&mut self, numbers: &[usize], budget: Duration, rounds: usize) -> Race {
        let clock = clock(self.options.threads, self.wall);
        // The budget is kept by the same clock: on a busy machine one thread then takes longer, and not fewer samples.
        let awake = if self.options.threads > 1 {
            AWAKE
        } else {
            Duration::ZERO
        };
        let sampler = Sampler::new(clock)
            .warm_up(1)
            .lead_in(1)
            .lead_in_for(awake)
            .max_rounds(rounds)
            .budget(budget)
            .seed(self.options.seed)
            .cancel(self.cancel);
        let mut outputs = self.before.to_vec();
        let call = views(self.inputs).and_then(|inputs| Ok((inputs, views_mut(&mut outputs)?)));
        let (inputs, mut outputs) = match call {
            Ok(tensors) => tensors,
            Err(error) => return sampler.run(vec![broken(&error)]),
        };
        let call = match Call::new(self.workload, &inputs, &mut outputs) {
            Ok(call) => RefCell::new(call),
            Err(error) => return sampler.run(vec![broken(&error)]),
        };
        // One call and one workspace for all kernels: they run in turn and never within each other.
        let scratch = RefCell::new(Scratch::new().with_large_pages());
        let mut contenders = Vec::new();
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            if !numbers.contains(&number) {
                continue;
            }
            let name = candidate.name();
            contenders.push(match candidate {
                Candidate::Rival(rival) => {
                    let call = &call;
                    Contender::new(name, move || rival.run(&mut call.borrow_mut()))
                }
                Candidate::Kernel(entrant) => {
                    let reserved = scratch.borrow_mut().reserve(entrant.workspace);
                    if let Err(fault) = reserved {
                        contenders.push(Contender::new(name, move || Err::<(), _>(fault.clone())));
                        continue;
                    }
                    let (call, scratch) = (&call, &scratch);
                    let Entrant {
                        kernel, setting, ..
                    } = entrant;
                    Contender::new(name, move || {
                        kernel.execute(&mut call.borrow_mut(), setting, &mut scratch.borrow_mut())
                    })
                }
            });
        }
        sampler.run(contenders)
    }
}

/// Runs something once; a panic is a failure like others.
fn timed(clock: &dyn Clock, body: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let start = clock.now();
    // What a panic leaves half done is not looked at.
    let result = catch_unwind(AssertUnwindSafe(body));
    let took = clock.now().saturating_sub(start);
    match result {
        Ok(result) => result.map(|()| took as f64),
        Err(_) => Err("panicked".to_owned()),
    }
}

fn broken<'a>(error: &ViewError) -> Contender<'a> {
    let words = error.to_string();
    Contender::new("tensors", move || Err::<(), _>(words.clone()))
}

fn views(tensors: &[Tensor]) -> Result<Vec<TensorView<'_>>, ViewError> {
    tensors.iter().map(Tensor::view).collect()
}

fn views_mut(tensors: &mut [Tensor]) -> Result<Vec<TensorViewMut<'_>>, ViewError> {
    tensors.iter_mut().map(Tensor::view_mut).collect()
}
