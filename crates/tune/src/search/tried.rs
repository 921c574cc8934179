//! What was asked for and told: the part of memory that all strategies have in common.

use std::collections::HashMap;
use std::sync::Arc;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::Outcome;
use crate::space::{Configuration, Space, Walk};

/// Draws before unknown configurations are looked for one by one.
const DRAWS: usize = 100;
/// Draws in a row that find nothing allowed, after which the same is done.
const FRUITLESS: usize = 4;
/// Bindings after which that is given up: about a second.
pub(super) const PATIENCE: usize = 2_000_000;

#[derive(Debug)]
pub(super) struct Tried {
    pub(super) space: Arc<Space>,
    pub(super) random: Pcg64Mcg,
    /// ln of the time, infinite if it failed; none while it is out.
    known: HashMap<Configuration, Option<f64>>,
    best: Option<(f64, Configuration)>,
    walk: Option<Walk>,
}

impl Tried {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            space,
            random: Pcg64Mcg::seed_from_u64(seed),
            known: HashMap::new(),
            best: None,
            walk: None,
        }
    }

    pub(super) fn is_new(&self, configuration: &Configuration) -> bool {
        !self.known.contains_key(configuration)
    }

    /// Notes that it is out.
    pub(super) fn asked(&mut self, configuration: &Configuration) {
        self.known.entry(configuration.clone()).or_insert(None);
    }

    /// ln of the time, infinite if it failed.
    pub(super) fn told(&mut self, configuration: &Configuration, outcome: &Outcome) -> f64 {
        let score = outcome.usable().map_or(f64::INFINITY, f64::ln);
        self.known.insert(configuration.clone(), Some(score));
        match &self.best {
            // The best turned out worse than it looked: another may be the best now.
            Some((best, of)) if of == configuration && score > *best => self.find_best(),
            Some((best, _)) if score >= *best => {}
            _ if score.is_finite() => self.best = Some((score, configuration.clone())),
            _ => {}
        }
        score
    }

    /// Of equals, the first in the order of configurations, so that it does not depend on how a table is laid out.
    fn find_best(&mut self) {
        let known = self.known.iter();
        let known = known.filter_map(|(one, score)| Some(((*score)?, one)));
        let working = known.filter(|(score, _)| score.is_finite());
        let best = working.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        self.best = best.map(|(score, one)| (score, one.clone()));
    }

    /// Whether it was told what came of this.
    pub(super) fn was_told(&self, configuration: &Configuration) -> bool {
        matches!(self.known.get(configuration), Some(Some(_)))
    }

    /// The best one that works, with ln of its time.
    pub(super) fn best(&self) -> Option<&(f64, Configuration)> {
        self.best.as_ref()
    }

    /// A random one that was not asked for; noted as out.
    pub(super) fn fresh(&mut self) -> Option<Configuration> {
        let mut fruitless = 0;
        for _ in 0..DRAWS {
            match self.space.sample(&mut self.random) {
                Some(drawn) if self.is_new(&drawn) => {
                    self.asked(&drawn);
                    return Some(drawn);
                }
                Some(_) => {}
                None => fruitless += 1,
            }
            if fruitless == FRUITLESS {
                break;
            }
        }
        // Few are left: from now on in order.
        let mut walk = self.walk.take().unwrap_or_else(|| Walk::new(&self.space));
        let next = loop {
            match walk.next_within(&self.space, PATIENCE) {
                Some(next) if self.is_new(&next) => break Some(next),
                Some(_) => {}
                None => break None,
            }
        };
        self.walk = Some(walk);
        next.inspect(|next| self.asked(next))
    }

    /// The first of some that is allowed and was not asked for, noted as out; otherwise a random one.
    pub(super) fn first_new(
        &mut self,
        candidates: impl IntoIterator<Item = Configuration>,
    ) -> Option<Configuration> {
        for candidate in candidates {
            if self.is_new(&candidate) && self.space.allows(&candidate) {
                self.asked(&candidate);
                return Some(candidate);
            }
        }
        self.fresh()
    }
}
