//! `kernelwise demo drift`: two kinds of slow, told apart.
//!
//! The learner is the real one; the kernels are numbers with noise, so that the same seed tells the same story.

use kernelwise_select::Policy;
use kernelwise_select::belief::Expected;
use kernelwise_select::budget::Ledger;
use kernelwise_select::learn::{Event, Facts, Learned, Rules, Sample};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::output;

/// Kernels and their times in nanoseconds; the first is the fastest.
const KERNELS: [(&str, f64); 3] = [("blocked", 1e6), ("tiled", 1.3e6), ("plain", 2e6)];

/// Calls before and after something happens.
const CALLS: usize = 300;

#[derive(Debug, Serialize)]
struct Told {
    seed: u64,
    scenes: Vec<Scene>,
}

/// Something happens, and what the learner makes of it.
#[derive(Debug, Serialize)]
struct Scene {
    what: &'static str,
    served_before: &'static str,
    served_after: &'static str,
    /// The call after which another kernel served; `null` if none did.
    left_after_calls: Option<usize>,
    switches: usize,
    /// What the learner said, with the number of the call.
    events: Vec<(usize, String)>,
}

/// Tells both stories.
pub(crate) fn drift(args: &args::DemoDrift) -> Result<(), Failure> {
    let scenes = vec![
        scene(
            args.seed,
            "the kernel in use becomes 10 times slower",
            |i| {
                if i == 0 { 10.0 } else { 1.0 }
            },
        ),
        scene(
            args.seed,
            "all kernels become twice as slow together",
            |_| 2.0,
        ),
    ];
    let told = Told {
        seed: args.seed,
        scenes,
    };
    match args.format {
        Format::Json => output::json("kernelwise.demo_drift/1", &told),
        Format::Table => output::text(&told.scenes.iter().map(text).collect::<String>()),
    }
}

fn scene(seed: u64, what: &'static str, slower: impl Fn(usize) -> f64) -> Scene {
    let rules = Rules {
        policy: Policy::Bandit,
        ..Rules::default()
    };
    // Nobody knows beforehand which is the fastest.
    let expected = Some(Expected {
        mean: 1.5e6f64.ln(),
        sd: 1.0,
    });
    let facts = KERNELS.map(|_| Facts {
        expected,
        modelled: None,
        hinted: 0.0,
        workspace: 0,
        threads: 1,
        busy: false,
        efficiency: None,
    });
    let mut learned = Learned::new(facts, &rules);
    let (mut ledger, mut random) = (Ledger::default(), Pcg64Mcg::seed_from_u64(seed));
    let mut now = 0;
    let mut call = |learned: &mut Learned, factor: &dyn Fn(usize) -> f64| {
        let serves = learned.choice().map_or(0, |choice| choice.serves);
        let trial = learned.trial();
        let candidate = trial.map_or(serves, |trial| trial.candidate);
        // Up to 3 % of noise to either side.
        let noise = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let time_ns = KERNELS[candidate].1 * factor(candidate) * (0.97 + 0.06 * noise);
        now += time_ns as u64;
        let sample = Sample {
            candidate,
            time_ns,
            calls: 1,
            trial: trial.map(|trial| trial.serial),
            at_ns: now,
        };
        learned.learn(&sample, &rules, &mut ledger, &mut random)
    };
    for _ in 0..CALLS {
        call(&mut learned, &|_| 1.0);
    }
    let served = |learned: &Learned| learned.choice().map_or(0, |choice| choice.serves);
    let before = served(&learned);
    let mut scene = Scene {
        what,
        served_before: KERNELS[before].0,
        served_after: KERNELS[before].0,
        left_after_calls: None,
        switches: 0,
        events: Vec::new(),
    };
    for number in 1..=CALLS {
        for event in call(&mut learned, &slower) {
            scene.switches += usize::from(matches!(event, Event::Switched { .. }));
            scene.events.push((number, words(&event)));
        }
        if served(&learned) != before {
            scene.left_after_calls.get_or_insert(number);
        }
    }
    scene.served_after = KERNELS[served(&learned)].0;
    scene
}

fn words(event: &Event) -> String {
    match event {
        Event::Switched { from, to } => {
            format!("{} serves in place of {}", KERNELS[*to].0, KERNELS[*from].0)
        }
        Event::Changed { candidate, factor } => {
            format!("{} takes {factor:.2} times as long", KERNELS[*candidate].0)
        }
        Event::Crowded { threads, factor } => {
            format!("all on {threads} threads take {factor:.2} times as long")
        }
        Event::Common { factor } => format!("the machine takes {factor:.2} times as long"),
        other => format!("{other:?}"),
    }
}

fn text(scene: &Scene) -> String {
    let mut text = format!("{}\n", scene.what);
    for (number, event) in &scene.events {
        text.push_str(&format!("  call {number:>3}: {event}\n"));
    }
    let end = match scene.left_after_calls {
        Some(calls) => format!("{} was left after {calls} calls", scene.served_before),
        None => format!(
            "{} served all {CALLS} calls but trials",
            scene.served_before
        ),
    };
    text.push_str(&format!("  {end}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_kinds_of_slow_end_differently() {
        for seed in 0..10 {
            let one = scene(seed, "one", |i| if i == 0 { 10.0 } else { 1.0 });
            assert!(
                one.left_after_calls.is_some_and(|calls| calls <= 20),
                "{one:?}"
            );
            assert_eq!((one.served_before, one.served_after), ("blocked", "tiled"));
            let all = scene(seed, "all", |_| 2.0);
            assert_eq!((all.left_after_calls, all.switches), (None, 0), "{all:?}");
            assert!(text(&all).contains("blocked served all"));
        }
    }
}
