//! What records of other devices say about this one.
//!
//! 1. **Before anything is measured**, all that is known of a device is its name: those of the same maker weigh more, as their rankings agree far
//!    better, and most of all those whose units, by what is published of them, hold as many threads in groups that are as wide. What comes first is what is
//!    best with such relatives, by its rank and by how much it is slower than their best. Strangers are believed less: only ranks count, those of neighbours as
//!    well, and that of the record which likes it least, because a peak that stands alone, on one device or among its neighbours, is not where it was on
//!    another kind of device.
//! 2. **From then on**, a record weighs the more the better it predicts ln t of what was measured here, up to a factor. A record
//!    that says nothing, every configuration being equally fast, is weighed with the others: where it wins, others do not matter.
//! 3. **Peaks**, configurations that no change of one parameter makes faster, are where they were on other devices more reliably than the best of them is
//!    the best again: another kind of memory or more threads lift one of them above another. So some are looked at, also where
//!    they are expected to be half as fast as the best. Records that mislead lose a few evaluations by that.
//! 4. What the records expect is taken as given, and models learn what it leaves unexplained. Where records contradict
//!    each other, they are doubted. Where none has anything, as its device or its list of values did not have it, they expect what they
//!    have next to it.
//! 5. Configurations that stood together elsewhere are near each other for the smooth guess, however far apart their parameters are.

use std::collections::{HashMap, HashSet};

use super::Knowledge;
use crate::gpu::{Api, Gpu, device};
use crate::recorded::Record;
use crate::space::{Configuration, Neighbourhood, Space, Value};

/// How much more a device of the same maker weighs before anything is measured.
const SAME_MAKER: f64 = 4.0;
/// How much more it weighs if its units hold as many threads, so that as much of a launch runs at once. Recorded spaces could not say how much:
/// of ten, one has such a relative, and the fraction of the optimum that its first recommendation has changed by 0.003.
const SAME_UNITS: f64 = 4.0;
/// A configuration slower than the best by this much, in ln t, is slow; how much slower does not matter here.
const SLOW: f32 = 1.5;
/// Measurements after which agreement weighs as much as what was believed before.
const BELIEVED: f64 = 4.0;
/// How decisive agreement is: weights go with this power of the inverse error.
const DECISIVE: i32 = 4;
/// Measurements after which weights stay.
const SETTLED: usize = 40;
/// The best by records that are looked at together with their neighbours.
const FRONT: usize = 100;
/// How much neighbours count in the rank of a configuration.
const NEIGHBOURS: f64 = 0.3;
/// A peak that takes more than twice as long as the best of its record, in ln t, is not looked at. Beside each other, peaks of two recorded devices move by
/// factors up to 2.5, most of them by less.
const LOW: f64 = std::f64::consts::LN_2;
/// How much of the contradictions of records is doubt, and after how many measurements half of it is gone.
const DOUBT: f64 = 0.3;
const DOUBT_HALVES: f64 = 8.0;

/// One record, by configurations of the space searched.
#[derive(Debug)]
struct Donor {
    /// ln of the time over the best one, up to [`SLOW`]; not a number where it has none.
    slowness: Vec<f32>,
    /// From 0, the best, to 1.
    rank: Vec<f32>,
    /// What it weighs before anything is measured.
    kinship: f64,
    /// Places of its peaks, the fastest first, and how many of them were taken.
    peaks: Vec<usize>,
    taken: usize,
}

#[derive(Debug)]
pub(super) struct Warm {
    configurations: Vec<Configuration>,
    places: HashMap<Configuration, usize>,
    donors: Vec<Donor>,
    weights: Vec<f64>,
    /// What is added to the slowness that records expect, to make it a time.
    shift: f64,
    weighed: usize,
    /// The best, and when that was found out.
    front: Option<(usize, Vec<usize>)>,
    /// Places where a record lacks something and was asked what it has next to them.
    guessed: Vec<bool>,
}

impl Warm {
    /// None if no record has the parameters of the space.
    pub(super) fn new(space: &Space, knowledge: &Knowledge) -> Option<Self> {
        let mut warm = Self {
            configurations: Vec::new(),
            places: HashMap::new(),
            donors: Vec::new(),
            weights: Vec::new(),
            shift: 0.0,
            weighed: 0,
            front: None,
            guessed: Vec::new(),
        };
        for record in &knowledge.records {
            warm.add(space, record, &knowledge.device);
        }
        let all = warm.configurations.len();
        for donor in &mut warm.donors {
            donor.slowness.resize(all, f32::NAN);
            donor.rank.resize(all, f32::NAN);
        }
        warm.guessed = vec![false; all];
        warm.weights = normalised(warm.donors.iter().map(|donor| donor.kinship).collect());
        (!warm.donors.is_empty()).then_some(warm)
    }

    fn add(&mut self, space: &Space, record: &Record, device: &str) {
        let Some(translation) = Translation::new(space, &record.space) else {
            return;
        };
        let Some(best) = record.best() else {
            return;
        };
        let mut slowness = vec![f32::NAN; self.configurations.len()];
        let mut order = Vec::new();
        for entry in &record.entries {
            let Some(here) = translation.translate(&entry.configuration) else {
                continue;
            };
            if !space.allows(&here) {
                continue;
            }
            let next = self.configurations.len();
            let place = *self.places.entry(here.clone()).or_insert(next);
            if place == next {
                self.configurations.push(here);
            }
            slowness.resize(self.configurations.len(), f32::NAN);
            let ratio = entry
                .result
                .map_or(f64::INFINITY, |time| (time / best).ln());
            slowness[place] = (ratio as f32).min(SLOW);
            order.push((ratio, place));
        }
        if order.is_empty() {
            return;
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let peaks = self.peaks(&order);
        let last = order.len() as f32;
        let mut rank = vec![f32::NAN; slowness.len()];
        for (nth, (ratio, place)) in order.into_iter().enumerate() {
            rank[place] = if ratio.is_finite() {
                nth as f32 / last
            } else {
                1.0
            };
        }
        self.donors.push(Donor {
            slowness,
            rank,
            kinship: kinship(device, &record.device),
            peaks,
            taken: 0,
        });
    }

    /// Of places with their slowness, in its order, those that no change of one parameter makes faster.
    fn peaks(&self, order: &[(f64, usize)]) -> Vec<usize> {
        // A line has all values of one parameter, the others staying as they are; its fastest is met first.
        let mut met = HashSet::new();
        let mut peaks = Vec::new();
        for &(_, place) in order.iter().take_while(|(slowness, _)| *slowness <= LOW) {
            let places = self.configurations[place].places();
            let mut fastest = true;
            for slot in 0..places.len() {
                let mut line: Box<[u16]> = places.into();
                line[slot] = u16::MAX;
                fastest &= met.insert(line);
            }
            if fastest {
                peaks.push(place);
            }
        }
        peaks
    }

    /// The next peak of a record that nobody measured here, records taking turns by what they weigh.
    pub(super) fn next_peak(
        &mut self,
        is_new: impl Fn(&Configuration) -> bool,
    ) -> Option<Configuration> {
        let turn = |(donor, weight): &(&mut Donor, &f64)| (donor.taken + 1) as f64 / **weight;
        loop {
            let donors = self.donors.iter_mut().zip(&self.weights);
            let left = donors.filter(|(donor, _)| donor.taken < donor.peaks.len());
            let (donor, _) = left.min_by(|a, b| turn(a).total_cmp(&turn(b)))?;
            let place = donor.peaks[donor.taken];
            donor.taken += 1;
            let peak = &self.configurations[place];
            if is_new(peak) {
                return Some(peak.clone());
            }
        }
    }

    /// Has to be called before anything is asked about a configuration: records that lack it say what they have next to it, in the mean.
    pub(super) fn meet(&mut self, space: &Space, configuration: &Configuration) {
        let lacks = |place: &usize| {
            let mut donors = self.donors.iter();
            donors.any(|donor| donor.slowness[*place].is_nan())
        };
        let place = match self.places.get(configuration).copied() {
            Some(place) if self.guessed[place] || !lacks(&place) => return,
            Some(place) => place,
            None => self.make_place(configuration),
        };
        let near = space.neighbours(configuration, Neighbourhood::Adjacent);
        let near = near.iter().filter_map(|one| self.places.get(one).copied());
        // From what was measured only: a guess from guesses would carry a record to where it has nothing.
        let near: Vec<usize> = near.filter(|place| !self.guessed[*place]).collect();
        self.guessed[place] = true;
        for donor in &mut self.donors {
            if donor.slowness[place].is_nan() {
                donor.slowness[place] = mean_at(&donor.slowness, &near);
                donor.rank[place] = mean_at(&donor.rank, &near);
            }
        }
    }

    fn make_place(&mut self, configuration: &Configuration) -> usize {
        let place = self.configurations.len();
        self.places.insert(configuration.clone(), place);
        self.configurations.push(configuration.clone());
        self.guessed.push(false);
        for donor in &mut self.donors {
            donor.slowness.push(f32::NAN);
            donor.rank.push(f32::NAN);
        }
        place
    }

    /// Where a configuration stands with the records, from 0, the best, to 1, on a scale that is finer among the best.
    pub(super) fn standing(&self, configuration: &Configuration) -> f32 {
        let place = self.places.get(configuration);
        let ranks = self.donors.iter().filter_map(|donor| {
            let rank = donor.rank[*place?];
            (!rank.is_nan()).then_some(rank.sqrt())
        });
        let (sum, count) = ranks.fold((0.0, 0.0_f32), |(sum, count), one| (sum + one, count + 1.0));
        if count > 0.0 { sum / count } else { 0.5 }
    }

    /// Whether weights have come to rest.
    pub(super) fn is_settled(&self) -> bool {
        self.weighed >= SETTLED
    }

    /// Weighs records by how well they predict what was measured.
    pub(super) fn weigh<'a>(&mut self, seen: impl Iterator<Item = (&'a Configuration, f64)>) {
        let seen: Vec<(Option<usize>, f64)> = seen
            .map(|(configuration, time)| (self.places.get(configuration).copied(), time))
            .collect();
        self.weighed = seen.len();
        let mut errors: Vec<f64> = self
            .donors
            .iter()
            .map(|donor| error(&seen, |place| f64::from(donor.slowness[place])))
            .collect();
        // The record that says nothing.
        errors.push(error(&seen, |_| 0.0));
        let count = seen.len() as f64;
        let mean = errors.iter().sum::<f64>() / errors.len() as f64 + 1e-9;
        let weights = errors.iter().map(|error| {
            let error = (error * count + mean * BELIEVED) / (count + BELIEVED);
            (mean / error).powi(DECISIVE)
        });
        self.weights = normalised(weights.collect());
        // What is left for the one that says nothing shrinks what the others say.
        self.weights.pop();
        let slow: f64 = seen
            .iter()
            .map(|(place, time)| time - self.slowness(*place))
            .sum();
        self.shift = slow / count.max(1.0);
    }

    fn slowness(&self, place: Option<usize>) -> f64 {
        match place {
            Some(place) if !self.donors.iter().all(|one| one.slowness[place].is_nan()) => {
                self.mix(|donor| donor.slowness[place]).0
            }
            // Nobody tried it, nor anything next to it: as slow as most are.
            _ => f64::from(SLOW) / 2.0 * self.weights.iter().sum::<f64>(),
        }
    }

    /// The weighted sum over donors that know, scaled to all of them, and the weighted variance.
    fn mix(&self, of: impl Fn(&Donor) -> f32) -> (f64, f64) {
        let (mut sum, mut squares, mut known, mut total) = (0.0, 0.0, 0.0, 0.0);
        for (donor, weight) in self.donors.iter().zip(&self.weights) {
            let value = f64::from(of(donor));
            total += weight;
            if value.is_nan() {
                continue;
            }
            sum += weight * value;
            squares += weight * value * value;
            known += weight;
        }
        if known <= 0.0 {
            return (0.0, 0.0);
        }
        let mean = sum / known;
        (
            mean * total,
            (squares / known - mean * mean).max(0.0) * total,
        )
    }

    /// ln t that records expect here.
    pub(super) fn expects(&self, configuration: &Configuration) -> f64 {
        self.shift + self.slowness(self.places.get(configuration).copied())
    }

    /// How far they contradict each other, as a variance.
    pub(super) fn doubts(&self, configuration: &Configuration) -> f64 {
        let Some(place) = self.places.get(configuration) else {
            return 0.0;
        };
        let (_, variance) = self.mix(|donor| donor.slowness[*place]);
        DOUBT * variance / (1.0 + self.weighed as f64 / DOUBT_HALVES)
    }

    /// The weighted rank of a place; the middle if nobody knows.
    fn rank(&self, place: usize) -> f64 {
        let total: f64 = self.weights.iter().sum();
        match self.donors.iter().all(|donor| donor.rank[place].is_nan()) || total <= 0.0 {
            true => 0.5,
            false => self.mix(|donor| donor.rank[place]).0 / total,
        }
    }

    /// How little is expected of a place. Where there are relatives, it also counts by how much a configuration is slower; where there are none, only the order.
    fn demerit(&self, place: usize) -> f64 {
        match self.has_kin() {
            true => self.rank(place) + self.slowness(Some(place)),
            false => self.rank(place),
        }
    }

    fn has_kin(&self) -> bool {
        let mut donors = self.donors.iter();
        donors.any(|donor| donor.kinship >= SAME_MAKER)
    }

    /// Half the rank of a place, half the one that the record gives it that likes it least.
    fn cautious_rank(&self, place: usize) -> f64 {
        // Those that do not know it are passed over: a maximum ignores what is not a number.
        let disliked = self.donors.iter().map(|donor| f64::from(donor.rank[place]));
        f64::midpoint(self.rank(place), disliked.fold(0.0, f64::max))
    }

    /// Places of the best, best first; found again when weights changed.
    fn front(&mut self) -> &[usize] {
        let stale = self
            .front
            .as_ref()
            .is_none_or(|(when, _)| *when != self.weighed);
        if stale {
            let ranked = (0..self.configurations.len()).map(|place| (self.demerit(place), place));
            let mut ranked: Vec<(f64, usize)> = ranked.collect();
            // More than are needed, as some will have been measured by the time they are asked for.
            let wanted = 2 * FRONT;
            if ranked.len() > wanted {
                ranked.select_nth_unstable_by(wanted, |a, b| a.0.total_cmp(&b.0));
                ranked.truncate(wanted);
            }
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            let front = ranked.into_iter().map(|(_, place)| place).collect();
            self.front = Some((self.weighed, front));
        }
        self.front.as_ref().map_or(&[], |(_, front)| front)
    }

    /// Configurations worth a look.
    pub(super) fn best(&mut self, is_new: impl Fn(&Configuration) -> bool) -> Vec<Configuration> {
        let front = self.front().to_vec();
        let configurations = front.into_iter().map(|place| &self.configurations[place]);
        configurations
            .filter(|one| is_new(one))
            .take(FRONT)
            .cloned()
            .collect()
    }

    /// What to begin with: what is best with relatives. Where there are only strangers, a peak that stands alone among its neighbours is not where it was,
    /// so theirs count as well, and as the very first may be all that is ever measured, it is one that no record dislikes.
    pub(super) fn first(
        &mut self,
        space: &Space,
        cautious: bool,
        is_new: impl Fn(&Configuration) -> bool,
    ) -> Option<Configuration> {
        let best = self.best(is_new);
        if self.has_kin() {
            return best.into_iter().next();
        }
        let score = |configuration: &Configuration| {
            let rank = |one: &Configuration| match self.places.get(one) {
                Some(place) if cautious => self.cautious_rank(*place),
                Some(place) => self.rank(*place),
                None => 0.5,
            };
            let near = space.neighbours(configuration, Neighbourhood::Adjacent);
            let own = rank(configuration);
            if near.is_empty() {
                return own;
            }
            let around = near.iter().map(rank).sum::<f64>() / near.len() as f64;
            (1.0 - NEIGHBOURS) * own + NEIGHBOURS * around
        };
        let scored = best.into_iter().map(|one| (score(&one), one));
        scored
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, one)| one)
    }
}

/// The variance of what is left of ln t when a prediction is taken away, whatever the shift.
fn error(seen: &[(Option<usize>, f64)], predicts: impl Fn(usize) -> f64) -> f64 {
    let left = seen.iter().filter_map(|(place, time)| {
        let left = time - predicts((*place)?);
        (!left.is_nan()).then_some(left)
    });
    let left: Vec<f64> = left.collect();
    let count = left.len().max(1) as f64;
    let mean = left.iter().sum::<f64>() / count;
    left.iter()
        .map(|one| (one - mean) * (one - mean))
        .sum::<f64>()
        / count
}

/// The mean of what is known at some places; not a number if nothing is.
fn mean_at(values: &[f32], places: &[usize]) -> f32 {
    let known = places.iter().map(|place| values[*place]);
    let known: Vec<f32> = known.filter(|value| !value.is_nan()).collect();
    known.iter().sum::<f32>() / known.len() as f32
}

fn normalised(mut weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= total);
    weights
}

/// How much what was measured on one device says about another one of which only the name is known.
fn kinship(here: &str, there: &str) -> f64 {
    let alike = |unit: &dyn Fn(&Gpu) -> Option<(u32, u32)>| {
        let (here, there) = (device(here).ok()?, device(there).ok()?);
        Some(here.api == there.api && unit(&here)? == unit(&there)?)
    };
    let same_maker = maker(here).is_some() && maker(here) == maker(there);
    match alike(&|gpu| Some((gpu.subgroup, gpu.residency.as_ref()?.threads))) {
        Some(true) => SAME_MAKER * SAME_UNITS,
        _ if same_maker => SAME_MAKER,
        _ => 1.0,
    }
}

/// Who made a device, by its name: with or without the maker's own, as drivers differ. Of makers that are not known, the first word.
fn maker(name: &str) -> Option<String> {
    let api = device(name).ok().map(|gpu| gpu.api);
    let lower = name.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let first = lower.split_whitespace().next();
    let known = match api {
        Some(Api::Cuda) => Some("nvidia"),
        Some(Api::Hip) => Some("amd"),
        Some(Api::Metal) => Some("apple"),
        Some(Api::WebGpu) => None,
        None => words.find_map(|word| match word {
            "nvidia" | "geforce" | "quadro" | "tesla" | "titan" | "rtx" | "gtx" => Some("nvidia"),
            "amd" | "radeon" | "instinct" => Some("amd"),
            "intel" => Some("intel"),
            _ => None,
        }),
    };
    known.or(first).map(str::to_owned)
}

/// Whether a record can say anything about a space.
pub(crate) fn fits(space: &Space, record: &Record) -> bool {
    Translation::new(space, &record.space).is_some()
}

/// From places in a record's space to places in another one.
struct Translation {
    /// By parameter searched: the parameter of the record, and for each of its values the place here.
    columns: Vec<(usize, Vec<Option<u16>>)>,
}

impl Translation {
    /// None unless the parameters have the same names, in whatever order. One that has a single value on one side may be missing on the other.
    fn new(to: &Space, from: &Space) -> Option<Self> {
        let needed = |space: &Space, other: &Space| {
            space.parameters().iter().all(|parameter| {
                parameter.values.len() == 1
                    || other
                        .parameters()
                        .iter()
                        .any(|one| one.name == parameter.name)
            })
        };
        if !needed(to, from) || !needed(from, to) {
            return None;
        }
        let columns = to.parameters().iter().map(|parameter| {
            let found = from
                .parameters()
                .iter()
                .position(|one| one.name == parameter.name);
            let Some(slot) = found else {
                return (usize::MAX, vec![Some(0)]);
            };
            let here = |value: &Value| {
                let place = parameter.values.iter().position(|one| one == value);
                place.map(|place| place as u16)
            };
            (
                slot,
                from.parameters()[slot].values.iter().map(here).collect(),
            )
        });
        Some(Self {
            columns: columns.collect(),
        })
    }

    fn translate(&self, configuration: &Configuration) -> Option<Configuration> {
        let places = self.columns.iter().map(|(slot, values)| {
            let place = configuration.places().get(*slot).copied().unwrap_or(0);
            values.get(usize::from(place)).copied().flatten()
        });
        places
            .collect::<Option<Box<[u16]>>>()
            .map(Configuration::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_kin_has_units_alike_and_then_the_same_maker() {
        let near = SAME_MAKER * SAME_UNITS;
        assert_eq!(kinship("NVIDIA RTX A4000", "NVIDIA RTX A6000"), near);
        assert_eq!(kinship("NVIDIA RTX A4000", "rtx-3090"), near);
        assert_eq!(
            kinship("NVIDIA RTX A4000", "NVIDIA A100-PCIE-40GB"),
            SAME_MAKER
        );
        assert_eq!(kinship("NVIDIA RTX A4000", "AMD Radeon PRO W7800"), 1.0);
        // Not in the table; drivers of before did not name the maker.
        assert_eq!(kinship("A100", "GeForce GTX TITAN X"), SAME_MAKER);
        assert_eq!(
            kinship("Quadro K6000", "NVIDIA GeForce GTX 980"),
            SAME_MAKER
        );
        assert_eq!(kinship("Radeon VII", "mi250x"), SAME_MAKER);
        assert_eq!(kinship("Acme 1", "Acme 2"), SAME_MAKER);
        // Processors: makers do not always come first.
        let cores = ["12th Gen Intel(R) Core(TM) i7", "Intel(R) Xeon(R) 6154"];
        assert_eq!(kinship(cores[0], cores[1]), SAME_MAKER);
        assert_eq!(kinship(cores[0], "AMD EPYC 7B13"), 1.0);
        assert_eq!(kinship("Acme 1", "Quadro K6000"), 1.0);
        assert_eq!(kinship("", ""), 1.0);
    }
}
