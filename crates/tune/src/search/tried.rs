//! What was asked for and told: the part of memory that all strategies have in common.

use std::collections::HashMap;
use std::sync::Arc;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::Outcome;
use crate::space::{Configuration, Space, Walk};

/// Draws before unknown configurations are looked for one by one.
const DRAWS: usize = 100;
/// Bindings after which that is given up.
const PATIENCE: usize = 2_000_000;

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
        let better = self.best.as_ref().is_none_or(|(best, _)| score < *best);
        if better && score.is_finite() {
            self.best = Some((score, configuration.clone()));
        }
        score
    }

    /// The best one that works, with ln of its time.
    pub(super) fn best(&self) -> Option<&(f64, Configuration)> {
        self.best.as_ref()
    }

    /// A random one that was not asked for; noted as out.
    pub(super) fn fresh(&mut self) -> Option<Configuration> {
        for _ in 0..DRAWS {
            let drawn = self.space.sample(&mut self.random)?;
            if self.is_new(&drawn) {
                self.asked(&drawn);
                return Some(drawn);
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
