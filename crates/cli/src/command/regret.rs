//! What learning would have cost: this machine's measured times played back to a learner that knows none of them.
//!
//! Calls of all workloads on record come in a random order. The learner starts from what was expected before anything ran, tries
//! others as its budget allows, and sees times that scatter as the measured ones did.

use std::collections::BTreeMap;

use kernelwise_report::{KnownBy, Regret, RegretPoint};
use kernelwise_select::Evidence;
use kernelwise_select::belief::Expected;
use kernelwise_select::budget::{Budget, Ledger};
use kernelwise_select::learn::{Facts, Learned, Rules, Sample};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Calls of each workload.
const CALLS: usize = 60;
/// Points of the curve.
const POINTS: usize = 120;
/// Times scatter by so much in ln t at the least: a single sample has no scatter of its own.
const LEAST_SD: f64 = 0.02;

/// What one workload's candidates take.
struct Course {
    learned: Learned,
    /// Mean and scatter of ln t.
    times: Vec<(f64, f64)>,
    best_ns: f64,
}

/// Plays all workloads with two or more candidates; `None` if there are none.
pub(super) fn regret(evidence: &[Evidence], seed: u64) -> Option<Regret> {
    let rules = Rules::default();
    let mut by_workload: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
    for one in evidence.iter().filter(|one| one.away.is_none()) {
        let name = one.of.workload.to_string();
        by_workload.entry(name).or_default().push(one);
    }
    let courses = by_workload.values().filter(|list| list.len() > 1);
    let mut courses: Vec<Course> = courses.filter_map(|list| course(list, &rules)).collect();
    if courses.is_empty() {
        return None;
    }
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut ledger = Ledger::default();
    let (mut now_ns, mut behind_ns, mut best_sum_ns) = (0.0_f64, 0.0_f64, 0.0_f64);
    let calls = CALLS * courses.len();
    let mut points = Vec::new();
    for call in 1..=calls {
        let place = random.random_range(0..courses.len());
        let Course {
            learned,
            times,
            best_ns,
        } = &mut courses[place];
        let trial = learned.trial();
        let serves = learned.choice().map_or(0, |choice| choice.serves);
        let candidate = trial.map_or(serves, |trial| trial.candidate);
        let (mean, sd) = times[candidate];
        let time_ns = (mean + sd * normal(&mut random)).exp();
        now_ns += time_ns;
        // Without the scatter, which is nobody's choice.
        behind_ns += mean.exp() - *best_ns;
        best_sum_ns += *best_ns;
        let sample = Sample {
            candidate,
            time_ns,
            calls: 1,
            trial: trial.map(|trial| trial.serial),
            at_ns: now_ns as u64,
        };
        learned.learn(&sample, &rules, &mut ledger, &mut random);
        if call % calls.div_ceil(POINTS) == 0 || call == calls {
            points.push(RegretPoint {
                calls: call as u64,
                excess_s: ledger.spent_ns() / 1e9,
                budget_s: allowed_ns(&ledger, &rules.budget) / 1e9,
                regret_s: behind_ns / 1e9,
            });
        }
    }
    Some(Regret {
        known_by: KnownBy::Modelled,
        source: format!(
            "A replay: the times measured here, played back to a learner that starts without them. {} workloads are called in a random order, {CALLS} times each on average. The cost of trials is what they took longer than the calls they replaced. Regret is {:.1} % of what the best kernels would have taken",
            courses.len(),
            100.0 * behind_ns / best_sum_ns.max(1.0)
        ),
        points,
    })
}

/// What trials may have cost by now.
fn allowed_ns(ledger: &Ledger, budget: &Budget) -> f64 {
    ledger.left(budget) + ledger.spent_ns()
}

fn course(list: &[&Evidence], rules: &Rules) -> Option<Course> {
    let times: Option<Vec<(f64, f64)>> = list
        .iter()
        .map(|one| Some((one.of.tally.mean()?, one.of.tally.sd().max(LEAST_SD))))
        .collect();
    let times = times?;
    let facts = list.iter().map(|one| Facts {
        expected: one.expected_ns.map(|ns| Expected {
            mean: ns.max(0.01).ln(),
            sd: 1.0,
        }),
        modelled: None,
        hinted: 0.0,
        workspace: 0,
        threads: 1,
        busy: false,
        efficiency: None,
    });
    let best = times.iter().map(|(mean, _)| *mean).min_by(f64::total_cmp)?;
    Some(Course {
        learned: Learned::new(facts, rules),
        times,
        best_ns: best.exp(),
    })
}

/// A number from the standard normal distribution (Box and Muller).
fn normal(random: &mut Pcg64Mcg) -> f64 {
    let (a, b): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}
