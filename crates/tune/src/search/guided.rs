//! The default: measure where most can be gained, as models of what was measured tell it.
//!
//! What happens, in order:
//!
//! 1. **Start.** A few configurations, each the farthest from the others among some drawn; with records of other
//!    devices, what did best there, and for a while every second evaluation is a peak of one of them.
//! 2. **Believe.** ln t by [trees](crate::surrogate::forest) and by a [smooth guess](crate::surrogate::smooth), on equal terms. Where the two
//!    are apart, and where trees are apart from each other, little is known. If something failed, trees tell how likely a
//!    configuration works.
//! 3. **Look around.** Candidates are the neighbours of the best few, because good ones lie together, crossings of good ones, and random ones, because the best may
//!    lie elsewhere.
//! 4. **Choose** the candidate with the greatest expected gain times the chance that it works.
//!
//! Models are kept up to date rather than fitted anew, so that all of this takes less than a millisecond.
//! The plain form, [`Strategy::Model`](super::Strategy::Model), knows trees and random candidates only.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::tried::Tried;
use super::warm::Warm;
use super::{Knowledge, Outcome, Search};
use crate::space::{Configuration, Neighbourhood, Space};
use crate::surrogate::features::Features;
use crate::surrogate::forest::Forest;
use crate::surrogate::gain::expected_gain;
use crate::surrogate::smooth::Smooth;

/// Configurations that work before models are asked. Fewer know nothing; more could have been chosen better.
const START: usize = 5;
/// The same with records of other devices.
const WARM_START: usize = 3;
/// Peaks of other devices that are looked at, with every second evaluation: recorded devices have 8 to 23, most of them not slower than half the best.
const PEAKS: usize = 8;
/// Configurations drawn, of which the farthest is taken.
const FARTHEST_OF: usize = 10;
/// Trees for ln t, and how many of them are grown again after a measurement.
const TREES: usize = 24;
const REGROWN: usize = 6;
/// Up to so many measurements; with twice as many, half as many trees.
const ALL_REGROWN: usize = 80;
/// The same for validity.
const VALIDITY_TREES: usize = 10;
const VALIDITY_REGROWN: usize = 2;
/// Random candidates.
const DRAWN: usize = 100;
/// Candidates crossed from two of the best, and how many of those there are: what is good in one may be good in the other, and
/// once all neighbours are known the way on takes two changes.
const CROSSED: usize = 50;
const PARENTS: usize = 20;
/// Configurations whose neighbours are candidates, and how many of those at most.
const BEST_FEW: usize = 3;
const MOST_NEIGHBOURS: usize = 100;
/// The fastest configurations that the smooth guess goes through: its cost grows with the cube.
const SMOOTHED: usize = 100;
/// No configuration is given up as sure to fail.
const LEAST_CHANCE: f64 = 0.02;
/// Random candidates of the plain form.
const PLAIN_DRAWN: usize = 200;
const PLAIN_START: usize = 10;

/// One that works.
#[derive(Debug)]
struct Seen {
    configuration: Configuration,
    log_time: f64,
    row: Vec<f32>,
    smooth_row: Vec<f32>,
}

#[derive(Debug)]
pub(super) struct Guided {
    tried: Tried,
    features: Features,
    times: Forest,
    validity: Forest,
    seen: Vec<Seen>,
    /// Places in `seen`, the fastest first.
    order: Vec<usize>,
    told: usize,
    asked: usize,
    /// Where the start has been.
    starts: Vec<Vec<f32>>,
    plain: bool,
    warm: Option<Warm>,
    runs: Option<f64>,
    costs: f64,
    /// Whether nothing was worth its price when it was asked last.
    enough: bool,
}

impl Guided {
    pub(super) fn new(space: Arc<Space>, seed: u64, knowledge: &Knowledge) -> Self {
        let warm = Warm::new(&space, knowledge);
        Self {
            warm,
            runs: knowledge.runs,
            ..Self::build(space, seed, false)
        }
    }

    pub(super) fn plain(space: Arc<Space>, seed: u64) -> Self {
        Self::build(space, seed, true)
    }

    fn build(space: Arc<Space>, seed: u64, plain: bool) -> Self {
        let features = Features::new(&space);
        Self {
            times: Forest::new(features.width(), TREES),
            validity: Forest::new(features.width(), VALIDITY_TREES),
            tried: Tried::new(space, seed),
            features,
            seen: Vec::new(),
            order: Vec::new(),
            told: 0,
            asked: 0,
            starts: Vec::new(),
            plain,
            warm: None,
            runs: None,
            costs: 0.0,
            enough: false,
        }
    }

    /// Far from what was asked for, as far as some draws show.
    fn far(&mut self) -> Option<Configuration> {
        let mut farthest: Option<(f32, Vec<f32>, Configuration)> = None;
        for _ in 0..if self.plain { 1 } else { FARTHEST_OF } {
            let Some(drawn) = self.tried.space.sample(&mut self.tried.random) else {
                break;
            };
            if !self.tried.is_new(&drawn) {
                continue;
            }
            let mut row = Vec::new();
            self.features.smooth_row(&drawn, &mut row);
            let distance =
                |other: &Vec<f32>| row.iter().zip(other).map(|(a, b)| (a - b).abs()).sum();
            let nearest = self
                .starts
                .iter()
                .map(distance)
                .fold(f32::INFINITY, f32::min);
            if farthest.as_ref().is_none_or(|(best, ..)| nearest > *best) {
                farthest = Some((nearest, row, drawn));
            }
        }
        let Some((_, row, found)) = farthest else {
            return self.tried.fresh();
        };
        self.starts.push(row);
        self.tried.asked(&found);
        Some(found)
    }

    /// Brings the models up to date.
    fn learn(&mut self) -> Smooth {
        if let Some(warm) = &mut self.warm
            && !warm.is_settled()
        {
            // What others say is weighed anew, and so is what it leaves to be explained.
            let seen = self
                .seen
                .iter()
                .map(|seen| (&seen.configuration, seen.log_time));
            warm.weigh(seen);
            self.times.clear();
            for seen in &self.seen {
                let left = seen.log_time - warm.expects(&seen.configuration);
                self.times.push(&seen.row, left as f32);
            }
        }
        // A tree takes the longer the more there is to learn from, and a measurement more changes it the less.
        let regrown = REGROWN * ALL_REGROWN / self.seen.len().max(ALL_REGROWN);
        self.times.regrow(regrown.max(1), &mut self.tried.random);
        if self.some_failed() {
            self.validity
                .regrow(VALIDITY_REGROWN, &mut self.tried.random);
        }
        let fastest = if self.plain { 0 } else { SMOOTHED };
        let (mut points, mut targets) = (Vec::new(), Vec::new());
        for seen in self
            .order
            .iter()
            .take(fastest)
            .map(|place| &self.seen[*place])
        {
            points.extend_from_slice(&seen.smooth_row);
            targets.push(seen.log_time - self.expects(&seen.configuration));
        }
        let standing = usize::from(self.warm.is_some());
        Smooth::fit(self.features.smooth_width() + standing, points, &targets)
    }

    fn some_failed(&self) -> bool {
        self.told > self.seen.len()
    }

    fn expects(&self, configuration: &Configuration) -> f64 {
        self.warm
            .as_ref()
            .map_or(0.0, |warm| warm.expects(configuration))
    }

    /// Writes what models are told of a configuration: trees its parameters, the smooth guess also where it stands with records.
    fn rows(&mut self, configuration: &Configuration, row: &mut Vec<f32>, smooth: &mut Vec<f32>) {
        self.features.row(configuration, row);
        self.features.smooth_row(configuration, smooth);
        if let Some(warm) = &mut self.warm {
            warm.meet(&self.tried.space, configuration);
            smooth.push(warm.standing(configuration));
        }
    }

    fn candidates(&mut self) -> Vec<Configuration> {
        let mut candidates = Vec::new();
        if !self.plain {
            for place in self.order.iter().take(BEST_FEW) {
                let of = &self.seen[*place].configuration;
                let mut near = self.tried.space.neighbours(of, Neighbourhood::OneChange);
                if near.len() > MOST_NEIGHBOURS {
                    near.shuffle(&mut self.tried.random);
                    near.truncate(MOST_NEIGHBOURS);
                }
                candidates.extend(near);
            }
        }
        if !self.plain && !self.seen.is_empty() {
            for _ in 0..CROSSED {
                let crossed = self.crossed();
                if self.tried.is_new(&crossed) && self.tried.space.allows(&crossed) {
                    candidates.push(crossed);
                }
            }
        }
        if let Some(warm) = &mut self.warm {
            candidates.extend(warm.best(|one| self.tried.is_new(one)));
        }
        for _ in 0..if self.plain { PLAIN_DRAWN } else { DRAWN } {
            // What one sample does not find, a hundred would look for a hundred times as long.
            let Some(drawn) = self.tried.space.sample(&mut self.tried.random) else {
                break;
            };
            candidates.push(drawn);
        }
        candidates
    }

    /// Of each parameter the value of one of two good ones, or now and then any value.
    fn crossed(&mut self) -> Configuration {
        let parents = self.order.len().min(PARENTS);
        let random = &mut self.tried.random;
        let mut parent = || {
            let place = self.order[random.random_range(0..parents)];
            self.seen[place].configuration.places()
        };
        let (one, other) = (parent(), parent());
        let parameters = self.tried.space.parameters();
        let places = parameters.iter().enumerate().map(|(slot, parameter)| {
            match random.random_range(0..2 * parameters.len()) {
                0 => random.random_range(0..parameter.values.len()) as u16,
                draw if draw.is_multiple_of(2) => one[slot],
                _ => other[slot],
            }
        });
        Configuration::new(places.collect::<Vec<u16>>())
    }

    /// The candidate with the greatest expected gain, and the gain in ln t.
    fn choose(&mut self) -> Option<(f64, Configuration)> {
        let smooth = self.learn();
        let candidates = self.candidates();
        let best = self.tried.best().map_or(0.0, |(best, _)| *best);
        let (mut row, mut smooth_row, mut squares) = (Vec::new(), Vec::new(), Vec::new());
        let mut chosen: Option<(f64, Configuration)> = None;
        for candidate in candidates {
            if !self.tried.is_new(&candidate) {
                continue;
            }
            self.rows(&candidate, &mut row, &mut smooth_row);
            let believed = self.times.believe(&row);
            let (mut mean, mut variance) = (believed.mean, believed.variance);
            if !self.plain && !self.seen.is_empty() {
                let half = (smooth.guess(&smooth_row, &mut squares) - mean) / 2.0;
                mean += half;
                variance += half * half;
            }
            if let Some(warm) = &self.warm {
                mean += warm.expects(&candidate);
                variance += warm.doubts(&candidate);
            }
            let mut gain = expected_gain(best, mean, variance.sqrt());
            if self.some_failed() {
                gain *= self.validity.believe(&row).mean.clamp(LEAST_CHANCE, 1.0);
            }
            if chosen.as_ref().is_none_or(|(most, _)| gain > *most) {
                chosen = Some((gain, candidate));
            }
        }
        chosen
    }

    /// Takes a second answer in place of the first, if that was a time. What works now and then counts as working.
    fn correct(&mut self, configuration: &Configuration, log_time: f64) -> bool {
        let place = self
            .seen
            .iter()
            .position(|seen| seen.configuration == *configuration);
        let Some(place) = place else {
            return false;
        };
        if self.seen[place].log_time == log_time || log_time.is_infinite() {
            return true;
        }
        self.seen[place].log_time = log_time;
        self.order.retain(|other| *other != place);
        let seen = &self.seen;
        let rank = self
            .order
            .partition_point(|other| seen[*other].log_time <= log_time);
        self.order.insert(rank, place);
        // Rows of the forest are in the order of what was seen.
        let left = log_time - self.expects(configuration);
        self.times.correct(place, left as f32);
        true
    }

    /// Where another device has a peak, if there are records of others.
    fn next_peak(&mut self) -> Option<Configuration> {
        let peak = self
            .warm
            .as_mut()?
            .next_peak(|one| self.tried.is_new(one))?;
        self.tried.asked(&peak);
        Some(peak)
    }

    /// Whether so much gain per run, times the runs to come, is less than what finding out costs.
    fn not_worth(&self, gain: f64) -> bool {
        let (Some(runs), Some((best, _))) = (self.runs, self.tried.best()) else {
            return false;
        };
        let saved = runs * best.exp() * (1.0 - (-gain).exp());
        saved < self.costs / self.told.max(1) as f64
    }
}

impl Search for Guided {
    fn name(&self) -> &'static str {
        if self.plain { "model" } else { "default" }
    }

    fn ask(&mut self) -> Option<Configuration> {
        self.asked += 1;
        if self.asked <= 2 * PEAKS
            && self.asked.is_multiple_of(2)
            && let Some(peak) = self.next_peak()
        {
            return Some(peak);
        }
        let start = match (&self.warm, self.plain) {
            (_, true) => PLAIN_START,
            (None, false) => START,
            (Some(_), false) => WARM_START,
        };
        // Failed ones do not count, up to a limit: then validity has to be learned first.
        let starting = self.seen.len() < start && self.asked <= 3 * start;
        if starting {
            let cautious = self.asked == 1;
            let first = self.warm.as_mut().and_then(|warm| {
                warm.first(&self.tried.space, cautious, |one| self.tried.is_new(one))
            });
            if let Some(first) = first {
                self.tried.asked(&first);
                return Some(first);
            }
            return self.far();
        }
        match self.choose() {
            Some((gain, _)) if self.not_worth(gain) => {
                self.enough = true;
                None
            }
            Some((_, chosen)) => {
                self.tried.asked(&chosen);
                Some(chosen)
            }
            None => self.tried.fresh(),
        }
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        if self.tried.space.index(configuration).is_none() {
            return;
        }
        let again = self.tried.was_told(configuration);
        let log_time = self.tried.told(configuration, outcome);
        self.costs += outcome.cost.unwrap_or(0.0);
        if again && (self.correct(configuration, log_time) || log_time.is_infinite()) {
            return;
        }
        // What failed at first and works now was counted then.
        self.told += usize::from(!again);
        let (mut row, mut smooth_row) = (Vec::new(), Vec::new());
        self.rows(configuration, &mut row, &mut smooth_row);
        let works = log_time.is_finite();
        self.validity.push(&row, f32::from(u8::from(works)));
        if !works {
            return;
        }
        self.times
            .push(&row, (log_time - self.expects(configuration)) as f32);
        let place = self
            .order
            .partition_point(|place| self.seen[*place].log_time <= log_time);
        self.order.insert(place, self.seen.len());
        self.seen.push(Seen {
            configuration: configuration.clone(),
            log_time,
            row,
            smooth_row,
        });
    }

    fn has_had_enough(&self) -> bool {
        self.enough
    }
}
