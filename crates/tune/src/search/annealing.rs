//! From neighbour to neighbour: to better ones always, to worse ones the less often the colder it is.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Neighbourhood, Space};

/// At first, twice as slow is accepted in one case of four: exp(-ln 2 / 0.5).
const HOT: f64 = 0.5;
/// Per evaluation.
const COOLING: f64 = 0.97;
/// Here a change of one percent is accepted in one case of seven; it is time to start again.
const COLD: f64 = 0.005;

#[derive(Debug)]
pub(super) struct Annealing {
    tried: Tried,
    here: Option<(f64, Configuration)>,
    heat: f64,
}

impl Annealing {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            tried: Tried::new(space, seed),
            here: None,
            heat: HOT,
        }
    }
}

impl Search for Annealing {
    fn name(&self) -> &'static str {
        "annealing"
    }

    fn ask(&mut self) -> Option<Configuration> {
        let Some((_, here)) = &self.here else {
            return self.tried.fresh();
        };
        let mut near = self.tried.space.neighbours(here, Neighbourhood::OneChange);
        near.shuffle(&mut self.tried.random);
        let next = self.tried.first_new(near)?;
        Some(next)
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let score = self.tried.told(configuration, outcome);
        match &mut self.here {
            // A second answer, and not a step.
            Some((here, of)) if of == configuration => {
                *here = score;
                return;
            }
            _ => {}
        }
        if score.is_finite() {
            let worse = self
                .here
                .as_ref()
                .map_or(0.0, |(here, _)| (score - here).max(0.0));
            let luck: f64 = self.tried.random.random();
            if luck < (-worse / self.heat).exp() {
                self.here = Some((score, configuration.clone()));
            }
        }
        self.heat *= COOLING;
        if self.heat < COLD {
            // Again from the best, less hot.
            self.heat = HOT / 4.0;
            self.here = self.tried.best().cloned();
        }
    }
}
