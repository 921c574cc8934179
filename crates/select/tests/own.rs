//! Users' own operations, on variants whose times a scripted clock tells.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use kernelwise_measure::ScriptedClock;
use kernelwise_select::own::{CallError, FeatureError, Features, Operation, OperationError};
use kernelwise_select::{Budget, Builder, Mode, Policy, Selector};
use kernelwise_types::{Estimate, Machine, Reason};

fn machine() -> Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(kernelwise_probe::machine).clone()
}

/// A selector without kernels, with a clock that only variants move.
struct Bed {
    clock: Arc<ScriptedClock>,
}

/// What a variant does.
#[derive(Default)]
struct Behaviour {
    runs: AtomicUsize,
    panics: AtomicBool,
    fails: AtomicBool,
    wrong: AtomicBool,
}

impl Behaviour {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Bed {
    fn new() -> Self {
        let clock = Arc::new(ScriptedClock::new());
        Self { clock }
    }

    fn builder(&self) -> Builder {
        Selector::builder(machine(), Vec::new())
            .clock(Arc::clone(&self.clock) as _)
            .background(false)
    }

    fn selector(&self) -> Selector {
        self.builder().build().unwrap()
    }

    /// Sorts, adds up, and takes as long as it is told: nanoseconds per element.
    fn sorting(
        &self,
        per_element: u64,
    ) -> (
        Arc<Behaviour>,
        impl Fn(&mut Vec<u32>) -> Result<u32, String> + Send + Sync + 'static,
    ) {
        let behaviour = Arc::new(Behaviour::default());
        let (does, clock) = (Arc::clone(&behaviour), Arc::clone(&self.clock));
        let run = move |input: &mut Vec<u32>| {
            does.runs.fetch_add(1, Ordering::Relaxed);
            clock.advance(per_element * input.len() as u64);
            let sum = input.iter().sum::<u32>();
            if does.fails.load(Ordering::Relaxed) {
                input.clear();
                return Err("did not feel like it".to_owned());
            }
            if does.panics.load(Ordering::Relaxed) {
                input.clear();
                panic!("on purpose");
            }
            input.sort_unstable();
            if does.wrong.load(Ordering::Relaxed) {
                input.reverse();
            }
            Ok(sum)
        };
        (behaviour, run)
    }
}

#[allow(clippy::ptr_arg)] // the features of an operation on lists
fn length(input: &Vec<u32>) -> Features {
    Features::new().size("length", input.len())
}

fn unsorted(length: usize) -> Vec<u32> {
    (0..length as u32).rev().collect()
}

type Sorting = Operation<Vec<u32>, u32>;

/// Calls it so many times on inputs of a length; every answer is right.
fn use_it(selector: &Selector, sorting: &Sorting, length: usize, calls: usize) {
    for _ in 0..calls {
        let mut input = unsorted(length);
        let sum = sorting.run(&mut input).unwrap();
        assert_eq!(sum, (0..length as u32).sum::<u32>());
        assert!(input.is_sorted() && input.len() == length);
        selector.settle();
    }
}

#[test]
fn each_case_gets_the_variant_that_is_fastest_there() {
    let bed = Bed::new();
    let selector = bed.selector();
    let clock = |ns: fn(u64) -> u64| {
        let clock = Arc::clone(&bed.clock);
        move |input: &mut [u32]| {
            clock.advance(ns(input.len() as u64));
            input.sort_unstable();
        }
    };
    let sorting = selector
        .operation("sorting")
        .features(|input: &[u32]| Features::new().size("length", input.len()))
        .variant("steady", clock(|n| 100 + 10 * n))
        .variant("quadratic", clock(|n| n * n))
        .build()
        .unwrap();
    for _ in 0..400 {
        for length in [4, 1000] {
            sorting.run(&mut unsorted(length)).unwrap();
            selector.settle();
        }
    }
    let small = sorting.explain(&[3, 2, 1, 0]).unwrap();
    assert_eq!(small.chosen.variant, "quadratic", "{small}");
    assert_eq!(small.reason, Reason::Best);
    assert!(small.confidence.unwrap().get() > 0.9);
    let Estimate::Measured {
        time_ns,
        interval_ns,
        samples,
    } = small.chosen.estimate
    else {
        panic!("never timed: {small}");
    };
    assert!((time_ns.get() - 16.0).abs() < 1.0 && interval_ns.is_some() && samples > 3);
    assert_eq!(small.alternatives[0].variant, "steady");
    assert!(matches!(
        small.alternatives[0].estimate,
        Estimate::Measured { .. }
    ));

    let learned = sorting.learned();
    let text: Vec<_> = learned.iter().map(|case| case.case.as_str()).collect();
    assert_eq!(text, ["length 4", "length 896 to 1023"]);
    assert_eq!(learned[1].chosen.variant, "steady", "{}", learned[1]);
    let words = learned[0].to_string();
    assert!(words.starts_with("sorting: length 4\n  runs quadratic: best on what is known\n"));
    assert!(words.contains("\n  over steady: "), "{words}");

    let statistics = selector.statistics();
    assert_eq!(statistics.workloads, 2);
    assert!(statistics.calls > 500 && statistics.trials > 0);
    let quality = statistics.quality["sorting"];
    assert!(quality.workloads >= 1 && quality.share_within_5pct == 1.0);
}

#[test]
fn a_variant_that_fails_does_not_run_again_and_the_reference_begins_anew() {
    for panics in [true, false] {
        let bed = Bed::new();
        let selector = bed.selector();
        let (plain, plain_run) = bed.sorting(10);
        let (fast, fast_run) = bed.sorting(1);
        match panics {
            true => fast.panics.store(true, Ordering::Relaxed),
            false => fast.fails.store(true, Ordering::Relaxed),
        }
        let sorting = selector
            .operation("sorting")
            .features(length)
            .try_variant("plain", plain_run)
            .try_variant("fast", fast_run)
            .restoring()
            .build()
            .unwrap();
        use_it(&selector, &sorting, 10, 100);
        assert_eq!((fast.runs(), plain.runs()), (1, 100));
        let quarantined = sorting.quarantined();
        assert_eq!(quarantined.len(), 1);
        assert_eq!(quarantined[0].variant, "fast");
        assert_eq!(quarantined[0].case, "length 10 to 11");
        let evidence = match panics {
            true => "panicked: on purpose",
            false => "failed: did not feel like it",
        };
        assert_eq!(quarantined[0].evidence, evidence);
        assert_eq!(selector.statistics().quarantined, 1);
        // Neither on other inputs.
        use_it(&selector, &sorting, 1000, 100);
        assert_eq!(fast.runs(), 1);
        let words = sorting.explain(&unsorted(10)).unwrap().to_string();
        let last = format!("  not fast: {evidence}, on length 10 to 11\n");
        assert!(words.ends_with(&last), "{words}");

        fast.panics.store(false, Ordering::Relaxed);
        fast.fails.store(false, Ordering::Relaxed);
        assert!(!sorting.unquarantine("plain") && !sorting.unquarantine("unheard of"));
        assert!(sorting.unquarantine("fast") && !sorting.unquarantine("fast"));
        use_it(&selector, &sorting, 10, 300);
        let chosen = sorting.explain(&unsorted(10)).unwrap().chosen;
        assert_eq!(chosen.variant, "fast");
    }
}

#[test]
fn without_a_copy_the_caller_hears_that_the_input_may_be_spoiled() {
    let bed = Bed::new();
    let selector = bed.selector();
    let (_, plain) = bed.sorting(10);
    let (fast, fast_run) = bed.sorting(1);
    fast.panics.store(true, Ordering::Relaxed);
    let sorting = selector
        .operation("sorting")
        .features(length)
        .try_variant("plain", plain)
        .try_variant("fast", fast_run)
        .build()
        .unwrap();
    let mut errors = Vec::new();
    for _ in 0..100 {
        errors.extend(sorting.run(&mut unsorted(10)).err());
        selector.settle();
    }
    let [CallError::Spoiled { variant, .. }] = &errors[..] else {
        panic!("{errors:?}");
    };
    assert_eq!(variant, "fast");
    assert_eq!(
        errors[0].to_string(),
        "operation `sorting`: `fast` panicked: on purpose, and the input may be half changed: make it anew and call again, \
         or let a copy be kept (`restoring`)"
    );
}

#[test]
fn an_input_that_the_reference_cannot_compute_is_no_evidence_against_others() {
    let bed = Bed::new();
    let selector = bed.selector();
    let (plain, plain_run) = bed.sorting(10);
    let (fast, fast_run) = bed.sorting(1);
    let sorting = selector
        .operation("sorting")
        .features(length)
        .try_variant("plain", plain_run)
        .try_variant("fast", fast_run)
        .restoring()
        .build()
        .unwrap();
    use_it(&selector, &sorting, 10, 300);
    assert_eq!(
        sorting.explain(&unsorted(10)).unwrap().chosen.variant,
        "fast"
    );
    for behaviour in [&plain, &fast] {
        behaviour.fails.store(true, Ordering::Relaxed);
    }
    let error = sorting.run(&mut unsorted(10)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation `sorting`: the reference `plain` failed: did not feel like it"
    );
    assert_eq!(sorting.quarantined(), []);
}

#[test]
fn wrong_outcomes_are_noticed_and_never_handed_out() {
    let bed = Bed::new();
    let selector = bed.builder().verify_one_in(4).build().unwrap();
    let (_, plain) = bed.sorting(10);
    let (fast, fast_run) = bed.sorting(1);
    fast.wrong.store(true, Ordering::Relaxed);
    let sorting = selector
        .operation("sorting")
        .features(length)
        .try_variant("plain", plain)
        .try_variant("fast", fast_run)
        .verified_by(|mine, reference| {
            mine.input == reference.input && mine.result == reference.result
        })
        .build()
        .unwrap();
    use_it(&selector, &sorting, 10, 100);
    assert_eq!(fast.runs(), 1);
    assert_eq!(
        sorting.quarantined()[0].evidence,
        "differs from the reference"
    );

    // Right when it is first looked at, and wrong later: the samples find it.
    fast.wrong.store(false, Ordering::Relaxed);
    sorting.unquarantine("fast");
    use_it(&selector, &sorting, 10, 2000);
    assert_eq!(
        sorting.explain(&unsorted(10)).unwrap().chosen.variant,
        "fast"
    );
    let verified = selector.statistics().verified;
    assert!(verified > 2, "{verified}");
    fast.wrong.store(true, Ordering::Relaxed);
    let mut wrong = 0;
    for _ in 0..5000 {
        let mut input = unsorted(10);
        sorting.run(&mut input).unwrap();
        wrong += u32::from(!input.is_sorted());
        selector.settle();
    }
    assert!(wrong > 0, "not every call is looked at");
    assert_eq!(sorting.quarantined().len(), 1);
    let last = use_it_once(&sorting);
    assert!(last.is_sorted());
}

fn use_it_once(sorting: &Sorting) -> Vec<u32> {
    let mut input = unsorted(10);
    sorting.run(&mut input).unwrap();
    input
}

#[test]
fn the_first_call_of_every_case_is_looked_at() {
    let bed = Bed::new();
    let selector = bed.builder().verify_one_in(0).build().unwrap();
    let (_, plain) = bed.sorting(10);
    let (_, fast) = bed.sorting(1);
    let compared = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&compared);
    let sorting = selector
        .operation("sorting")
        .features(length)
        .try_variant("plain", plain)
        .try_variant("fast", fast)
        .verified_by(move |mine, reference| {
            count.fetch_add(1, Ordering::Relaxed);
            mine.input == reference.input
        })
        .build()
        .unwrap();
    use_it(&selector, &sorting, 10, 300);
    assert_eq!(compared.load(Ordering::Relaxed), 1);
    use_it(&selector, &sorting, 100, 300);
    assert_eq!(compared.load(Ordering::Relaxed), 2);
}

#[test]
fn a_comparison_that_panics_vouches_for_nobody() {
    let bed = Bed::new();
    let selector = bed.selector();
    let (_, plain) = bed.sorting(10);
    let (_, fast) = bed.sorting(1);
    let sorting = selector
        .operation("sorting")
        .try_variant("plain", plain)
        .try_variant("fast", fast)
        .verified_by(|_, _| panic!("at a loss"))
        .build()
        .unwrap();
    use_it(&selector, &sorting, 10, 100);
    assert_eq!(
        sorting.quarantined()[0].evidence,
        "could not be compared: the comparison panicked: at a loss"
    );
    assert_eq!(sorting.quarantined()[0].case, "any input");
}

#[test]
fn features_that_make_no_case_are_told_and_the_input_is_untouched() {
    let bed = Bed::new();
    let selector = bed.selector();
    let (plain, run) = bed.sorting(10);
    let sorting = selector
        .operation("sorting")
        .features(|input: &Vec<u32>| {
            assert!(input.len() != 13, "unlucky");
            Features::new().share("sorted", 0.0 / input.len() as f64)
        })
        .try_variant("plain", run)
        .build()
        .unwrap();
    let mut nothing = Vec::new();
    let error = sorting.run(&mut nothing).unwrap_err();
    let CallError::Features {
        error: FeatureError::Share { name, value },
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(name == "sorted" && value.is_nan());
    assert!(sorting.explain(&nothing).is_err());
    let error = sorting.run(&mut unsorted(13)).unwrap_err().to_string();
    assert_eq!(
        error,
        "operation `sorting`: telling the features panicked: unlucky"
    );
    assert_eq!(plain.runs(), 0);
    sorting.run(&mut unsorted(3)).unwrap();
    assert_eq!(plain.runs(), 1);
}

#[test]
fn operations_that_cannot_be_are_refused_with_words() {
    let bed = Bed::new();
    let selector = bed.builder().force("lame", "sprint").build().unwrap();
    let words = |name: &str, variants: &[&str], reference: Option<&str>| {
        let mut builder = selector.operation::<Vec<u32>, ()>(name);
        for variant in variants {
            builder = builder.variant(variant, |_| ());
        }
        if let Some(reference) = reference {
            builder = builder.reference(reference);
        }
        builder.build().map(|_| ()).unwrap_err().to_string()
    };
    let refused = [
        (words("", &["a"], None), "an operation needs a name"),
        (
            words("x", &["a", " "], None),
            "a variant of `x` needs a name",
        ),
        (
            words("x=y", &["a"], None),
            "`x=y` is no name: leave out `=`, `,` and blanks at the ends, so that it can be forced",
        ),
        (
            words("sort", &["a"], None),
            "`sort` is a built-in operation: give yours another name",
        ),
        (
            words("x", &[], None),
            "operation `x` has no variants: add one",
        ),
        (
            words("x", &["a", "b", "a"], None),
            "operation `x` has two variants `a`: give one another name",
        ),
        (
            words("x", &["a", "b"], Some("c")),
            "operation `x` has no variant `c`: there are a, b",
        ),
        (
            words("lame", &["walk"], None),
            "operation `lame` has no variant `sprint`: there are walk",
        ),
    ];
    for (words, expected) in refused {
        assert_eq!(words, expected);
    }
}

#[test]
fn an_operation_made_again_goes_on_where_it_left_off() {
    let bed = Bed::new();
    let selector = bed.selector();
    let make = |names: [&str; 2]| {
        let (_, slow) = bed.sorting(10);
        let (_, fast) = bed.sorting(1);
        selector
            .operation("sorting")
            .features(length)
            .try_variant(names[0], slow)
            .try_variant(names[1], fast)
            .build()
    };
    use_it(&selector, &make(["plain", "fast"]).unwrap(), 10, 300);
    let again = make(["plain", "fast"]).unwrap();
    assert_eq!(again.explain(&unsorted(10)).unwrap().chosen.variant, "fast");
    let error = make(["plain", "new"]).unwrap_err();
    assert!(matches!(error, OperationError::Taken { .. }), "{error}");
}

#[test]
fn a_variant_may_use_the_operation_it_belongs_to() {
    let bed = Bed::new();
    let selector = bed.selector();
    let itself: Arc<OnceLock<Operation<[u32], ()>>> = Arc::new(OnceLock::new());
    let (halves, clock) = (Arc::clone(&itself), Arc::clone(&bed.clock));
    let merge = move |input: &mut [u32]| {
        let Some(sorting) = halves.get().filter(|_| input.len() > 1) else {
            return;
        };
        let (left, right) = input.split_at_mut(input.len() / 2);
        sorting.run(left).unwrap();
        sorting.run(right).unwrap();
        clock.advance(20 * input.len() as u64);
        input.sort();
    };
    let clock = Arc::clone(&bed.clock);
    let insertion = move |input: &mut [u32]| {
        clock.advance((input.len() * input.len()) as u64);
        input.sort();
    };
    let sorting = selector
        .operation("sorting")
        .features(|input: &[u32]| Features::new().size("length", input.len()))
        .variant("merge", merge)
        .variant("insertion", insertion)
        .restoring()
        .build()
        .unwrap();
    let sorting = itself.get_or_init(|| sorting);
    for _ in 0..600 {
        let mut input = unsorted(512);
        sorting.run(&mut input).unwrap();
        assert!(input.is_sorted());
        selector.settle();
    }
    let chosen = |length: usize| sorting.explain(&unsorted(length)).unwrap().chosen.variant;
    // 512² is far more than splitting costs; 16² is less, and was learned in calls within calls.
    assert_eq!(
        (chosen(512), chosen(16)),
        ("merge".into(), "insertion".into())
    );
    itself
        .get()
        .map(|sorting| assert_eq!(sorting.quarantined(), []))
        .unwrap();
}

#[test]
fn modes_and_forcing_are_those_of_the_selector() {
    let bed = Bed::new();
    let runs = |builder: Builder| {
        let selector = builder.build().unwrap();
        let (plain, plain_run) = bed.sorting(10);
        let (fast, fast_run) = bed.sorting(1);
        let sorting = selector
            .operation("sorting")
            .features(length)
            .try_variant("fast", fast_run)
            .try_variant("plain", plain_run)
            .reference("plain")
            .build()
            .unwrap();
        use_it(&selector, &sorting, 10, 100);
        let explained = sorting.explain(&unsorted(10)).unwrap();
        (plain.runs(), fast.runs(), explained)
    };
    let (plain, fast, explained) = runs(bed.builder().mode(Mode::Frozen));
    assert_eq!(
        (plain, fast),
        (100, 0),
        "the reference, and nothing is tried"
    );
    assert_eq!(explained.chosen.estimate, Estimate::Unknown);
    let (plain, fast, _) = runs(bed.builder().mode(Mode::Shadow));
    assert_eq!((plain, fast), (100, 0));
    let (plain, fast, _) = runs(bed.builder().policy(Policy::Exhaustive { samples: 2 }));
    assert!(fast > 90 && plain < 10, "{plain} plain, {fast} fast");
    let (plain, fast, explained) = runs(bed.builder().force_from("sorting=fast").unwrap());
    assert_eq!((plain, fast), (0, 100));
    assert_eq!(explained.reason, Reason::Forced);
    assert_eq!(explained.alternatives, []);
}

#[test]
fn one_that_was_forced_and_failed_leaves_the_reference() {
    let bed = Bed::new();
    let selector = bed.builder().force("sorting", "fast").build().unwrap();
    let (plain, plain_run) = bed.sorting(10);
    let (fast, fast_run) = bed.sorting(1);
    let (other, other_run) = bed.sorting(2);
    fast.panics.store(true, Ordering::Relaxed);
    let sorting = selector
        .operation("sorting")
        .features(length)
        .try_variant("plain", plain_run)
        .try_variant("fast", fast_run)
        .try_variant("other", other_run)
        .restoring()
        .build()
        .unwrap();
    use_it(&selector, &sorting, 10, 20);
    assert_eq!((plain.runs(), fast.runs(), other.runs()), (20, 1, 0));
    let explained = sorting.explain(&unsorted(10)).unwrap();
    assert_eq!(explained.chosen.variant, "plain");
    fast.panics.store(false, Ordering::Relaxed);
    sorting.unquarantine("fast");
    use_it(&selector, &sorting, 10, 20);
    assert_eq!((plain.runs(), fast.runs(), other.runs()), (20, 21, 0));
}

#[test]
fn many_threads_use_one_operation_while_a_variant_fails() {
    let selector = Selector::builder(machine(), Vec::new()).build().unwrap();
    let panicked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&panicked);
    let adding = selector
        .operation("adding")
        .features(|input: &[u64]| Features::new().size("length", input.len()))
        .variant("plain", |input: &mut [u64]| input.iter().sum::<u64>())
        .variant("touchy", move |input: &mut [u64]| {
            if count.fetch_add(1, Ordering::Relaxed) > 20 {
                input.fill(0);
                panic!("on purpose");
            }
            input.iter().sum()
        })
        .restoring()
        .build()
        .unwrap();
    let adding = Arc::new(adding);
    let threads = (1..=4u64).map(|thread| {
        let adding = Arc::clone(&adding);
        std::thread::spawn(move || {
            for call in 0..5000 {
                let mut input = vec![thread; 1 + call % 40];
                let sum = adding.run(&mut input).unwrap();
                assert_eq!(sum, thread * input.len() as u64);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    // A thread that was joined has counted its calls.
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let statistics = selector.statistics();
    assert_eq!(statistics.calls, 20_000);
    // Each thread may have been in it when the first one failed.
    assert!(panicked.load(Ordering::Relaxed) <= 21 + 4);
}

#[test]
fn a_case_that_was_never_met_is_expected_to_be_like_others() {
    let bed = Bed::new();
    let budget = Budget {
        share: 0.2,
        ..Budget::default()
    };
    let selector = bed.builder().budget(budget).build().unwrap();
    let clock = |ns: fn(u64) -> u64| {
        let clock = Arc::clone(&bed.clock);
        move |input: &mut [u32]| {
            clock.advance(ns(input.len() as u64));
            input.sort_unstable();
        }
    };
    let sorting = selector
        .operation("sorting")
        .features(|input: &[u32]| Features::new().size("length", input.len()))
        .variant("steady", clock(|n| 2000 + 10 * n))
        .variant("quadratic", clock(|n| n * n))
        .build()
        .unwrap();
    for length in (4..400).filter(|length| !(20..24).contains(length) && length % 50 != 0) {
        for _ in 0..6 {
            sorting.run(&mut unsorted(length)).unwrap();
            selector.settle();
        }
    }
    // Between the lengths that were met and beyond them.
    for (length, best) in [(20, "quadratic"), (600, "steady"), (5000, "steady")] {
        let answer = sorting.explain(&unsorted(length)).unwrap();
        assert_eq!(answer.chosen.variant, best, "{answer}");
        assert_eq!(answer.reason, Reason::Modelled, "{answer}");
    }
}
