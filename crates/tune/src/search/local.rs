//! From a configuration to the first better neighbour, until there is none; then from somewhere else.

use std::sync::Arc;

use rand::seq::SliceRandom;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Neighbourhood, Space};

#[derive(Debug)]
pub(super) struct Local {
    tried: Tried,
    here: Option<(f64, Configuration)>,
    /// Neighbours that were not looked at.
    near: Vec<Configuration>,
    /// Neighbours that are out: before they are told, nobody knows whether this is the end.
    out: usize,
}

impl Local {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            tried: Tried::new(space, seed),
            here: None,
            near: Vec::new(),
            out: 0,
        }
    }
}

impl Search for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn ask(&mut self) -> Option<Configuration> {
        while let Some(next) = self.near.pop() {
            if self.tried.is_new(&next) {
                self.tried.asked(&next);
                self.out += 1;
                return Some(next);
            }
        }
        if self.out == 0 {
            self.here = None;
        }
        let next = self.tried.fresh()?;
        self.out += 1;
        Some(next)
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let score = self.tried.told(configuration, outcome);
        self.out = self.out.saturating_sub(1);
        match &mut self.here {
            // A second answer, and not a step.
            Some((here, of)) if of == configuration => {
                *here = score;
                return;
            }
            _ => {}
        }
        if score.is_finite() && self.here.as_ref().is_none_or(|(here, _)| score < *here) {
            self.here = Some((score, configuration.clone()));
            self.near = self
                .tried
                .space
                .neighbours(configuration, Neighbourhood::OneChange);
            self.near.shuffle(&mut self.tried.random);
        }
    }
}
