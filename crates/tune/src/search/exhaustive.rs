//! All of them, in order.
//!
//! A space may forbid so much that walking it finds nothing for hours. Where one step of the walk takes too many bindings, the rest is
//! drawn at random: such a space cannot be searched in full anyway.

use std::sync::Arc;

use super::tried::{PATIENCE, Tried};
use super::{Outcome, Search};
use crate::space::{Configuration, Space, Walk};

#[derive(Debug)]
pub(super) struct Exhaustive {
    /// None once it took too long.
    walk: Option<Walk>,
    tried: Tried,
}

impl Exhaustive {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            walk: Some(Walk::new(&space)),
            tried: Tried::new(space, seed),
        }
    }
}

impl Search for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn ask(&mut self) -> Option<Configuration> {
        while let Some(walk) = &mut self.walk {
            match walk.next_after(&self.tried.space, PATIENCE) {
                Some(next) if self.tried.is_new(&next) => {
                    self.tried.asked(&next);
                    return Some(next);
                }
                Some(_) => {}
                None if walk.gave_up() => self.walk = None,
                None => return None,
            }
        }
        self.tried.fresh()
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        self.tried.told(configuration, outcome);
    }
}
