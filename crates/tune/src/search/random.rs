//! At random, nothing twice.

use std::sync::Arc;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Space};

#[derive(Debug)]
pub(super) struct Random(Tried);

impl Random {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self(Tried::new(space, seed))
    }
}

impl Search for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn ask(&mut self) -> Option<Configuration> {
        self.0.fresh()
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        self.0.told(configuration, outcome);
    }
}
