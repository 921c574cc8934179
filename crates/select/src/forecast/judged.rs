//! How good forecasts are on workloads that they were not made from.

use std::collections::BTreeMap;

use kernelwise_model::Regressor;
use kernelwise_types::{Candidate, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::model::Kind;
use super::row::Row;
use super::{Forecast, HANDS};
use crate::belief::{Belief, chance_within};
use crate::problem::kind;
use crate::selector::Evidence;

/// How near forecasts come.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accuracy {
    /// Times that were forecast.
    pub times: usize,
    /// Half of them within this factor.
    pub median_error_factor: f64,
    /// Nine in ten within this one.
    pub p90_error_factor: f64,
    /// Share that lay in their 90 % intervals.
    pub coverage_90: f64,
    /// Half of the intervals are this wide or less: the upper end over the lower.
    pub median_interval_factor: f64,
    /// The analytic expectation, on the same times: half within this factor; `None` where there was none.
    pub prior_median_error_factor: Option<f64>,
}

/// How often choices that were announced about as sure were as good as the best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// Announced with a chance from here,
    pub from: f64,
    /// to here.
    pub to: f64,
    /// How many.
    pub choices: usize,
    /// What was announced, in the mean.
    pub announced: f64,
    /// The share that was within the indifference zone of the best measured.
    pub within_zone: f64,
}

/// What choosing by forecasts alone was worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choices {
    /// Workloads of which two or more candidates were forecast.
    pub workloads: usize,
    /// How much slower than the best measured, as a geometric mean.
    pub geo_slowdown: f64,
    /// By how sure they were.
    pub reliability: Vec<Reliability>,
}

/// What forecasts were worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// All together; `None` if nothing could be forecast.
    pub all: Option<Accuracy>,
    /// The same without knowing how fast the machine was at the moment, as somebody who asks beforehand.
    pub all_at_usual_pace: Option<Accuracy>,
    /// By operation.
    pub operations: BTreeMap<String, Accuracy>,
    /// By powers of ten of the time, in nanoseconds.
    pub decades: BTreeMap<u32, Accuracy>,
    /// By powers of ten of the bytes that are read and written.
    pub sizes: BTreeMap<u32, Accuracy>,
    /// Times of kinds with too few workloads for a model.
    pub without_model: usize,
    /// Choosing by forecasts; `None` if nobody had a choice.
    pub choices: Option<Choices>,
    /// All of them, time by time.
    #[serde(skip)]
    pub times: Vec<HeldOutTime>,
    /// By which factor errors grow, in the mean, if what is asked about one of these things is another time's: 1 where it
    /// does not matter.
    pub importance: BTreeMap<&'static str, f64>,
}

/// One time beside its forecast from others.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOutTime {
    /// The workload.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// What was measured, as ln t.
    pub y: f64,
    /// What was foretold, as ln t, for a machine as fast as it was.
    pub mean: f64,
    /// The same for one as fast as usual.
    usual: f64,
    /// Nine times in ten it should lie within so much of that.
    pub half_width: f64,
    sd: f64,
    prior_error: Option<f64>,
    decade: u32,
    /// Power of ten of the bytes that are read and written.
    size: u32,
}

impl HeldOutTime {
    fn error(&self) -> f64 {
        (self.y - self.mean).abs()
    }
}

/// Which hand each workload is dealt into.
pub(crate) fn hands(workloads: usize, seed: u64) -> Vec<usize> {
    let mut hands: Vec<usize> = (0..workloads).map(|i| i % HANDS).collect();
    hands.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    hands
}

/// Deals the workloads into five hands and forecasts each from the other four, intervals and all. Candidates that differ by less than
/// `zone`, in ln t, are as good as each other.
pub fn judge(evidence: &[Evidence], zone: f64, seed: u64) -> Judged {
    judge_by(evidence, None, zone, seed)
}

/// The same of another type of model than the usual ones; see [`Forecast::fit_with`].
pub fn judge_with(
    evidence: &[Evidence],
    regressor: &dyn Regressor,
    zone: f64,
    seed: u64,
) -> Judged {
    judge_by(evidence, Some(regressor), zone, seed)
}

fn judge_by(
    evidence: &[Evidence],
    regressor: Option<&dyn Regressor>,
    zone: f64,
    seed: u64,
) -> Judged {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for one in evidence {
        let next = places.len();
        places.entry(one.of.workload.to_string()).or_insert(next);
    }
    // Another deal than the one that intervals come from.
    let hands = hands(places.len(), seed.wrapping_add(1));
    let hand = |workload: &Workload| places.get(&workload.to_string()).map(|place| hands[*place]);
    let (mut told, mut without_model) = (Vec::new(), 0);
    let mut shuffled: BTreeMap<&'static str, (f64, usize)> = BTreeMap::new();
    for asked in 0..HANDS {
        let (asking, known): (Vec<&Evidence>, Vec<&Evidence>) = evidence
            .iter()
            .partition(|one| hand(&one.of.workload) == Some(asked));
        let known: Vec<Evidence> = known.into_iter().cloned().collect();
        let forecast = Forecast::fit_by(&known, regressor, seed);
        exchange(&forecast, &asking, &mut shuffled);
        for one in asking {
            let foretold = forecast.of_known(one);
            let (Some(foretold), Some(y)) = (foretold, one.of.tally.mean()) else {
                without_model += 1;
                continue;
            };
            told.push(HeldOutTime {
                workload: one.of.workload.clone(),
                candidate: one.of.candidate.clone(),
                y,
                mean: foretold.mean,
                usual: forecast
                    .of_usual(one)
                    .map_or(foretold.mean, |told| told.mean),
                sd: foretold.sd(),
                half_width: foretold.half_width,
                prior_error: one.expected_ns.map(|ns| (y - ns.max(0.01).ln()).abs()),
                decade: (y / std::f64::consts::LN_10).max(0.0) as u32,
                size: one
                    .of
                    .workload
                    .cost()
                    .map_or(0, |cost| cost.bytes().0.checked_ilog10().unwrap_or(0)),
            });
        }
    }
    let mut operations: BTreeMap<String, Vec<&HeldOutTime>> = BTreeMap::new();
    let mut decades: BTreeMap<u32, Vec<&HeldOutTime>> = BTreeMap::new();
    let mut sizes: BTreeMap<u32, Vec<&HeldOutTime>> = BTreeMap::new();
    for one in &told {
        operations
            .entry(one.workload.operation().name().to_owned())
            .or_default()
            .push(one);
        decades.entry(one.decade).or_default().push(one);
        sizes.entry(one.size).or_default().push(one);
    }
    let all: Vec<&HeldOutTime> = told.iter().collect();
    let unknown: Vec<HeldOutTime> = told
        .iter()
        .map(|one| HeldOutTime {
            mean: one.usual,
            ..one.clone()
        })
        .collect();
    let unknown: Vec<&HeldOutTime> = unknown.iter().collect();
    Judged {
        all: accuracy(&all),
        all_at_usual_pace: accuracy(&unknown),
        operations: each(operations),
        decades: each(decades),
        sizes: each(sizes),
        without_model,
        choices: choices(&told, zone),
        times: told,
        importance: shuffled
            .into_iter()
            .map(|(name, (more, count))| (name, (more / count.max(1) as f64).exp()))
            .collect(),
    }
}

/// What a forecast may be asked about, and how to take it from another row.
type Exchange = (&'static str, fn(&mut Row, &Row));

const EXCHANGES: [Exchange; 6] = [
    ("sizes", |row, other| {
        row.ln_sizes.clone_from(&other.ln_sizes);
        let sizes = row.ln_sizes.len();
        row.features[..sizes].copy_from_slice(&other.features[..sizes]);
        // Work and traffic follow from the sizes.
        let derived = 2 * sizes;
        row.features[derived..].copy_from_slice(&other.features[derived..]);
    }),
    ("powers of two in sizes", |row, other| {
        let sizes = row.ln_sizes.len();
        let powers = sizes..2 * sizes;
        row.features[powers.clone()].copy_from_slice(&other.features[powers]);
    }),
    ("analytic expectation", |row, other| {
        row.expected = other.expected;
    }),
    ("threads", |row, other| row.threads = other.threads),
    ("kernel", |row, other| row.arm.clone_from(&other.arm)),
    ("parameters", |row, other| {
        row.settings.clone_from(&other.settings);
    }),
];

/// How much larger errors are if one thing is taken from another row of the kind, summed up over rows.
fn exchange(
    forecast: &Forecast,
    asking: &[&Evidence],
    shuffled: &mut BTreeMap<&'static str, (f64, usize)>,
) {
    let mut by_kind: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
    for one in asking {
        by_kind.entry(kind(&one.of.workload)).or_default().push(one);
    }
    for (name, evidence) in by_kind {
        let Some(model) = forecast.kinds.get(&name) else {
            continue;
        };
        let (mut rows, _) = super::rows(&evidence);
        for row in &mut rows {
            row.settings = model.settings(&row.arm, Some(&row.params));
        }
        let mut others: Vec<&Row> = rows.iter().collect();
        others.shuffle(&mut Pcg64Mcg::seed_from_u64(1));
        for (row, other) in rows.iter().zip(others) {
            // Sizes of one kind are as many.
            if row.features.len() != other.features.len() {
                continue;
            }
            let Some(usual) = off(model, row, row.over) else {
                continue;
            };
            for (what, take) in EXCHANGES {
                let mut changed = row.clone();
                take(&mut changed, other);
                if let Some(error) = off(model, &changed, row.over) {
                    let (more, count) = shuffled.entry(what).or_default();
                    (*more, *count) = (*more + error - usual, *count + 1);
                }
            }
        }
    }
}

fn off(model: &Kind, row: &Row, over: f64) -> Option<f64> {
    Some((model.over(row)? - over).abs())
}

/// The candidate that is foretold to be fastest, on each workload, beside the one that was.
fn choices(told: &[HeldOutTime], zone: f64) -> Option<Choices> {
    let mut by_workload: BTreeMap<String, Vec<&HeldOutTime>> = BTreeMap::new();
    for one in told {
        let name = one.workload.to_string();
        by_workload.entry(name).or_default().push(one);
    }
    /// Ends of the classes of sureness.
    const ENDS: [f64; 5] = [0.0, 0.5, 0.7, 0.9, 1.0];
    let mut classes = [(0usize, 0.0, 0usize); ENDS.len() - 1];
    let (mut workloads, mut slower) = (0usize, 0.0);
    for candidates in by_workload.values().filter(|list| list.len() > 1) {
        let belief = |one: &&HeldOutTime| Belief {
            mean: one.mean,
            sd: one.sd,
            weight: 1.0,
        };
        let beliefs: Vec<Belief> = candidates.iter().map(belief).collect();
        let order = |a: &usize, b: &usize| candidates[*a].mean.total_cmp(&candidates[*b].mean);
        let chosen = (0..candidates.len()).min_by(order)?;
        let best = candidates.iter().map(|one| one.y).min_by(f64::total_cmp)?;
        let behind = candidates[chosen].y - best;
        let announced = chance_within(&beliefs, chosen, zone);
        let class = ENDS[1..].iter().position(|end| announced < *end);
        let (count, sum, hits) = &mut classes[class.unwrap_or(ENDS.len() - 2)];
        (*count, *sum) = (*count + 1, *sum + announced);
        *hits += usize::from(behind <= zone);
        (workloads, slower) = (workloads + 1, slower + behind);
    }
    let reliability = classes.iter().enumerate().filter(|(_, class)| class.0 > 0);
    let reliability = reliability.map(|(i, (count, sum, hits))| Reliability {
        from: ENDS[i],
        to: ENDS[i + 1],
        choices: *count,
        announced: sum / *count as f64,
        within_zone: *hits as f64 / *count as f64,
    });
    (workloads > 0).then(|| Choices {
        workloads,
        geo_slowdown: (slower / workloads as f64).exp(),
        reliability: reliability.collect(),
    })
}

fn each<K: Ord>(groups: BTreeMap<K, Vec<&HeldOutTime>>) -> BTreeMap<K, Accuracy> {
    let groups = groups.into_iter();
    groups
        .filter_map(|(name, told)| Some((name, accuracy(&told)?)))
        .collect()
}

fn accuracy(told: &[&HeldOutTime]) -> Option<Accuracy> {
    let factor = |mut errors: Vec<f64>, share: f64| {
        errors.sort_by(f64::total_cmp);
        let rank = (share * errors.len() as f64).ceil() as usize;
        errors.get(rank.checked_sub(1)?).map(|error| error.exp())
    };
    let list =
        |value: &dyn Fn(&HeldOutTime) -> f64| told.iter().map(|one| value(one)).collect::<Vec<_>>();
    let held = told
        .iter()
        .filter(|one| one.error() <= one.half_width)
        .count();
    Some(Accuracy {
        times: told.len(),
        median_error_factor: factor(list(&HeldOutTime::error), 0.5)?,
        p90_error_factor: factor(list(&HeldOutTime::error), 0.9)?,
        coverage_90: held as f64 / told.len() as f64,
        median_interval_factor: factor(list(&|one| 2.0 * one.half_width), 0.5)?,
        prior_median_error_factor: factor(
            told.iter().filter_map(|one| one.prior_error).collect(),
            0.5,
        ),
    })
}
