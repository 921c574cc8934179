//! All of them, in order.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Outcome, Search};
use crate::space::{Configuration, Space, Walk};

#[derive(Debug)]
pub(super) struct Exhaustive {
    walk: Walk,
    space: Arc<Space>,
    /// Told without having been asked for.
    known: HashSet<Configuration>,
}

impl Exhaustive {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Self {
            walk: Walk::new(&space),
            space,
            known: HashSet::new(),
        }
    }
}

impl Search for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn ask(&mut self) -> Option<Configuration> {
        loop {
            let next = self.walk.next_within(&self.space, usize::MAX)?;
            if !self.known.contains(&next) {
                return Some(next);
            }
        }
    }

    fn tell(&mut self, configuration: &Configuration, _: &Outcome) {
        self.known.insert(configuration.clone());
    }
}
