//! New models beside old ones: which of the two are used from now on.
//!
//! They are held against each other on workloads that came since, which neither was fitted to; where there are too few to spare,
//! on one workload in five that only the new ones do without, which is hard on the new ones. Models that cannot be held against the
//! old ones do not take their place.

use std::collections::{BTreeMap, BTreeSet};

use kernelwise_model::Regressor;

use super::judged::hands;
use super::{FEWEST_WORKLOADS, Forecast};
use crate::problem::kind;
use crate::selector::Evidence;

/// New models may be worse by this factor and still count as no worse: noise.
const AS_GOOD: f64 = 1.02;

/// What came of fitting anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Renewed {
    /// The models to use: new ones where they are no worse, old ones elsewhere.
    pub forecast: Forecast,
    /// Mean factor by which the old models were off on times that were held out; `None` without old models, or such times.
    pub error_factor_before: Option<f64>,
    /// The same of new ones.
    pub error_factor_after: Option<f64>,
    /// Whether any of the models are new.
    pub taken: bool,
    /// Kinds whose old models stay: new ones were worse, or could not be compared.
    pub kept_out: Vec<String>,
}

impl Forecast {
    /// Fits models to evidence, of the usual type or another, and takes them in the place of these, kind by kind, where they are no
    /// worse. Kinds that there is no model of yet have nothing to be compared with.
    pub fn renewed(
        &self,
        evidence: &[Evidence],
        regressor: Option<&dyn Regressor>,
        seed: u64,
    ) -> Renewed {
        let fit = |evidence: &[Evidence]| Self::fit_by(evidence, regressor, seed);
        let mut forecast = self.clone();
        let (mut errors, mut taken, mut kept_out) = (Errors::default(), false, Vec::new());
        for (kind, evidence) in by_kind(evidence) {
            let new = fit(&evidence);
            if new.kinds.is_empty() {
                continue;
            }
            if let Some(old) = self.kinds.get(&kind) {
                let held = held_out(&evidence, &old.workloads());
                let (held, rest): (Vec<Evidence>, Vec<Evidence>) = evidence
                    .iter()
                    .cloned()
                    .partition(|one| held.contains(&one.of.workload.to_string()));
                let compared = compare(self, &fit(&rest), &held);
                errors.add(&compared);
                if !compared.is_no_worse() {
                    kept_out.push(kind);
                    continue;
                }
            }
            taken = true;
            forecast = forecast.with(new);
        }
        Renewed {
            forecast,
            error_factor_before: errors.mean(errors.before),
            error_factor_after: errors.mean(errors.after),
            taken,
            kept_out,
        }
    }
}

/// Workloads to hold old and new models against: those that came since, or one in five if without those there are too few to fit.
fn held_out(evidence: &[Evidence], known: &BTreeSet<&str>) -> BTreeSet<String> {
    let all: BTreeSet<String> = evidence
        .iter()
        .map(|one| one.of.workload.to_string())
        .collect();
    let news: BTreeSet<String> = all
        .iter()
        .filter(|name| !known.contains(name.as_str()))
        .cloned()
        .collect();
    if !news.is_empty() && all.len() - news.len() >= FEWEST_WORKLOADS {
        return news;
    }
    let dealt = hands(all.len(), 1);
    let held = all.into_iter().zip(dealt).filter(|(_, hand)| *hand == 0);
    held.map(|(name, _)| name).collect()
}

fn by_kind(evidence: &[Evidence]) -> BTreeMap<String, Vec<Evidence>> {
    let mut kinds: BTreeMap<String, Vec<Evidence>> = BTreeMap::new();
    for one in evidence {
        let kind = kind(&one.of.workload);
        kinds.entry(kind).or_default().push(one.clone());
    }
    kinds
}

/// How far old and new models are off in all, in ln t, on times that both have something to say about.
#[derive(Debug, Default)]
struct Errors {
    before: f64,
    after: f64,
    count: f64,
}

impl Errors {
    fn add(&mut self, other: &Self) {
        self.before += other.before;
        self.after += other.after;
        self.count += other.count;
    }

    /// As a factor; `None` of none.
    fn mean(&self, sum: f64) -> Option<f64> {
        (self.count > 0.0).then(|| (sum / self.count).exp())
    }

    /// Where nothing can be compared, the new ones are not known to be as good.
    fn is_no_worse(&self) -> bool {
        let both = self.mean(self.before).zip(self.mean(self.after));
        both.is_some_and(|(before, after)| after <= before * AS_GOOD)
    }
}

fn compare(old: &Forecast, new: &Forecast, times: &[Evidence]) -> Errors {
    let mut errors = Errors::default();
    for one in times {
        let told = |forecast: &Forecast| {
            let foretold = forecast.of_known(one)?;
            Some((one.of.tally.mean()? - foretold.mean).abs())
        };
        if let (Some(old), Some(new)) = (told(old), told(new)) {
            errors.before += old;
            errors.after += new;
            errors.count += 1.0;
        }
    }
    errors
}
