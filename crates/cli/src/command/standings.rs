//! Who wins where, and what choosing is worth: on the times that were measured.

use std::collections::BTreeMap;

use kernelwise_bench::static_rule;
use kernelwise_report::{decade, size_bytes};
use kernelwise_select::{Evidence, Selector};
use kernelwise_types::{Candidate, Machine, Workload};
use serde::Serialize;

/// A choice is called unsure below this chance of being as good as the best.
const SURE: f64 = 0.9;

/// The kernel that wins most often among shapes of one operation that are about as large.
#[derive(Debug, Serialize)]
pub(super) struct Winner {
    pub(super) operation: String,
    /// Calls move so many bytes or more, up to ten times as many. The report has the same bands.
    pub(super) size_from_bytes: u64,
    /// The same as a power of ten.
    #[serde(skip)]
    pub(super) decade: u32,
    /// The shortest of the best times there.
    pub(super) from_ns: f64,
    pub(super) shapes: usize,
    pub(super) kernel: String,
    pub(super) wins: usize,
    /// Others that win there, most often first.
    pub(super) others: Vec<(String, usize)>,
}

/// Geometric means over shapes, with the range that holds nine times in ten.
#[derive(Debug, Serialize)]
pub(super) struct Gains {
    pub(super) shapes: usize,
    /// `None` where no kernel computes nearly all of the shapes.
    pub(super) single_best_over_choice: Option<Mean>,
    /// `None` where nobody wrote a rule.
    pub(super) static_rule_over_choice: Option<Mean>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Mean {
    pub(super) geometric: f64,
    /// Nine times in ten it lies from here; `None` of fewer than five.
    pub(super) low: Option<f64>,
    /// To here.
    pub(super) high: Option<f64>,
}

/// One workload with what its candidates take.
pub(super) struct Raced {
    pub(super) workload: Workload,
    pub(super) times: Vec<(Candidate, f64)>,
    pub(super) chosen: usize,
    pub(super) best: usize,
    pub(super) confidence: Option<f64>,
}

/// What is known of each workload, with the choice it leads to.
pub(super) fn raced(selector: &Selector, evidence: &[Evidence]) -> Vec<Raced> {
    let mut by_workload: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
    for one in evidence {
        let name = one.of.workload.to_string();
        by_workload.entry(name).or_default().push(one);
    }
    let raced = by_workload.into_values().filter_map(|all| {
        let workload = all[0].of.workload.clone();
        let time = |one: &&Evidence| Some((one.of.candidate.clone(), one.of.tally.mean()?.exp()));
        let times: Vec<(Candidate, f64)> = all.iter().filter_map(time).collect();
        let decision = selector.explain(&workload).ok()?;
        let chosen = times
            .iter()
            .position(|(one, _)| *one == decision.chosen.candidate)?;
        let order = |a: &usize, b: &usize| times[*a].1.total_cmp(&times[*b].1);
        let best = (0..times.len()).min_by(order)?;
        Some(Raced {
            workload,
            times,
            chosen,
            best,
            confidence: decision.confidence.map(|share| share.get()),
        })
    });
    raced.collect()
}

/// Kernel and threads, by which candidates are counted over shapes.
pub(super) fn name(candidate: &Candidate) -> String {
    match candidate.params.get("threads") {
        Some(threads) => format!("{} (threads={threads})", candidate.kernel),
        None => candidate.kernel.to_string(),
    }
}

pub(super) fn winners(raced: &[Raced]) -> Vec<Winner> {
    let mut bands: BTreeMap<(&str, u32), Vec<&Raced>> = BTreeMap::new();
    for one in raced {
        let band = decade(size_bytes(&one.workload));
        let operation = one.workload.operation().name();
        bands.entry((operation, band)).or_default().push(one);
    }
    let winner = |((operation, decade), all): ((&str, u32), Vec<&Raced>)| {
        let mut wins: BTreeMap<String, usize> = BTreeMap::new();
        for one in &all {
            *wins.entry(name(&one.times[one.chosen].0)).or_default() += 1;
        }
        let mut order: Vec<(String, usize)> = wins.into_iter().collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let (kernel, wins) = order.remove(0);
        Winner {
            operation: operation.to_owned(),
            size_from_bytes: 10u64.saturating_pow(decade),
            decade,
            from_ns: all
                .iter()
                .map(|one| one.times[one.best].1)
                .fold(f64::INFINITY, f64::min),
            shapes: all.len(),
            kernel,
            wins,
            others: order,
        }
    };
    bands.into_iter().map(winner).collect()
}

/// What fixed choices would cost, by operation and over all.
pub(super) fn gains(raced: &[Raced], machine: &Machine) -> BTreeMap<String, Gains> {
    let mut by_operation: BTreeMap<&str, Vec<&Raced>> = BTreeMap::new();
    for one in raced {
        let operation = one.workload.operation().name();
        by_operation.entry(operation).or_default().push(one);
    }
    let mut ratios: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (operation, shapes) in by_operation {
        let single = single_best(&shapes);
        for one in shapes {
            let (_, chosen) = &one.times[one.chosen];
            let over = |time: f64| (time / chosen).ln();
            let of_single = one.times.iter().find(|(c, _)| Some(name(c)) == single);
            let candidates: Vec<Candidate> = one.times.iter().map(|(c, _)| c.clone()).collect();
            let by_rule = static_rule(&one.workload, machine).pick(&candidates);
            for list in [operation, "all"] {
                let (singles, rules) = ratios.entry(list.to_owned()).or_default();
                singles.extend(of_single.map(|(_, time)| over(*time)));
                rules.extend(by_rule.map(|i| over(one.times[i].1)));
            }
        }
    }
    let gains = ratios.into_iter().map(|(list, (singles, rules))| {
        let gains = Gains {
            shapes: singles.len().max(rules.len()),
            single_best_over_choice: mean(&singles),
            static_rule_over_choice: mean(&rules),
        };
        (list, gains)
    });
    gains.collect()
}

/// The kernel with threads that takes least over all shapes it can compute, if it can compute nearly all of them.
fn single_best(shapes: &[&Raced]) -> Option<String> {
    let mut sums: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for one in shapes {
        let best = one.times[one.best].1;
        for (candidate, time) in &one.times {
            let (sum, count) = sums.entry(name(candidate)).or_default();
            (*sum, *count) = (*sum + (time / best).ln(), *count + 1);
        }
    }
    let everywhere = sums
        .into_iter()
        .filter(|(_, (_, count))| 10 * count >= 9 * shapes.len());
    let mean = |(sum, count): (f64, usize)| sum / count as f64;
    let best = everywhere.min_by(|a, b| mean(a.1).total_cmp(&mean(b.1)));
    best.map(|(name, _)| name)
}

/// The geometric mean of ratios given as logarithms, and where it lies nine times in ten; `None` of none.
fn mean(ln: &[f64]) -> Option<Mean> {
    let count = ln.len() as f64;
    let mean = ln.iter().sum::<f64>() / count;
    let freedom = (count - 1.0).max(1.0);
    let squares: f64 = ln.iter().map(|one| (one - mean).powi(2)).sum();
    let reach = student(freedom) * (squares / freedom / count).sqrt();
    (!ln.is_empty()).then(|| Mean::around(mean, reach, ln.len()))
}

/// The same without the lowest and the highest quarter, which are as if they lay at the ends of the rest (Tukey and McLaughlin): for ratios a few of which are spoiled.
pub(super) fn middle(ln: &[f64]) -> Option<Mean> {
    let mut ln: Vec<f64> = ln.iter().copied().filter(|one| one.is_finite()).collect();
    ln.sort_by(f64::total_cmp);
    let (count, quarter) = (ln.len(), ln.len() / 4);
    let kept = ln.get(quarter..count - quarter)?;
    let (low, high) = (*kept.first()?, *kept.last()?);
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    let drawn_in = ln.iter().map(|one| one.clamp(low, high));
    let all = drawn_in.clone().sum::<f64>() / count as f64;
    let squares: f64 = drawn_in.map(|one| (one - all).powi(2)).sum();
    let deviation = (squares / (count as f64 - 1.0).max(1.0)).sqrt();
    let error = deviation * (count as f64).sqrt() / kept.len() as f64;
    let freedom = (kept.len() as f64 - 1.0).max(1.0);
    Some(Mean::around(mean, student(freedom) * error, kept.len()))
}

/// How many standard errors reach as far as nine times in ten, by degrees of freedom: Student's distribution is wider than the normal one by this, to a
/// per cent from four on.
fn student(freedom: f64) -> f64 {
    const NINETY: f64 = 1.645;
    NINETY + (NINETY.powi(3) + NINETY) / (4.0 * freedom) + 1.6 / (freedom * freedom)
}

impl Mean {
    /// Of so many logarithms of ratios.
    fn around(mean: f64, reach: f64, count: usize) -> Self {
        let end = |y: f64| (count >= 5).then(|| y.exp());
        Self {
            geometric: mean.exp(),
            low: end(mean - reach),
            high: end(mean + reach),
        }
    }
}

pub(super) fn unsure(raced: &[Raced]) -> Vec<String> {
    let unsure = raced
        .iter()
        .filter(|one| one.confidence.is_some_and(|share| share < SURE));
    unsure.map(|one| one.workload.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_not_moved_by_what_lies_far_out() {
        let ratios = |last: f64| {
            let ln = [0.9f64, 1.1, 0.95, 1.05, 1.0, 1.0, 1.02, 0.98];
            let ln = ln.into_iter().chain([last, 1.0 / last]);
            ln.map(f64::ln).collect::<Vec<_>>()
        };
        let far = middle(&ratios(8.0)).unwrap();
        assert!((far.geometric - 1.0).abs() < 1e-3, "{far:?}");
        assert_eq!(far.low, middle(&ratios(9.0)).unwrap().low);
        // Student's 2.015 of five degrees of freedom, and the standard error of the mean of the middle six of ten.
        let kept = [0.98f64, 0.95, 1.0, 1.0, 1.02, 1.05].map(f64::ln);
        let drawn_in = kept.iter().chain([&kept[1], &kept[1], &kept[5], &kept[5]]);
        let all = drawn_in.clone().sum::<f64>() / 10.0;
        let squares: f64 = drawn_in.map(|one| (one - all).powi(2)).sum();
        let error = (squares / 9.0).sqrt() / (0.6 * 10f64.sqrt());
        let mean = kept.iter().sum::<f64>() / 6.0;
        let reach = far.high.unwrap().ln() - mean;
        assert!((reach / error - 2.015).abs() < 0.02, "{}", reach / error);
        assert!(middle(&[0.1, 0.2]).unwrap().low.is_none());
        assert!(middle(&[]).is_none());
    }

    /// A workload whose candidates, `a` and `b`, take so long; the faster one is chosen.
    fn raced(workload: &str, times: [f64; 2]) -> Raced {
        let candidate = |variant: &str| Candidate {
            kernel: format!("cpu-copy-f32-{variant}").parse().unwrap(),
            params: Default::default(),
        };
        let best = usize::from(times[1] < times[0]);
        Raced {
            workload: workload.parse().unwrap(),
            times: ["a", "b"].map(candidate).into_iter().zip(times).collect(),
            chosen: best,
            best,
            confidence: None,
        }
    }

    #[test]
    fn shapes_are_banded_by_the_bytes_they_move() {
        // 800 bytes; 1600 and 4000 bytes, which take more and less time than the first.
        let all = [
            raced("copy f32 100", [50.0, 60.0]),
            raced("copy f32 200", [700.0, 90.0]),
            raced("copy f32 500", [80.0, 30.0]),
        ];
        let winners = winners(&all);
        let told: Vec<(u64, usize, &str, f64)> = winners
            .iter()
            .map(|one| {
                (
                    one.size_from_bytes,
                    one.wins,
                    one.kernel.as_str(),
                    one.from_ns,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (100, 1, "cpu-copy-f32-a", 50.0),
                (1000, 2, "cpu-copy-f32-b", 30.0)
            ]
        );
    }
}
