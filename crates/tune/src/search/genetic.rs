//! A population whose better members have children, one at a time: a child takes the place of the worst.

use std::sync::Arc;

use rand::RngExt;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Space};

/// Members.
const MEMBERS: usize = 20;
/// Members among which a parent is the best.
const TOURNAMENT: usize = 3;
/// Children tried until one is allowed and new.
const BIRTHS: usize = 20;

#[derive(Debug)]
pub(super) struct Genetic {
    tried: Tried,
    /// With ln of their times.
    members: Vec<(f64, Configuration)>,
    asked: usize,
}

impl Genetic {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            tried: Tried::new(space, seed),
            members: Vec::new(),
            asked: 0,
        }
    }

    fn parent(&mut self) -> Configuration {
        let members = self.members.len();
        let drawn = (0..TOURNAMENT).map(|_| self.tried.random.random_range(0..members));
        // They are in order.
        let best = drawn.min().unwrap_or(0);
        self.members[best].1.clone()
    }

    fn child(&mut self) -> Configuration {
        let (mother, father) = (self.parent(), self.parent());
        let space = Arc::clone(&self.tried.space);
        let random = &mut self.tried.random;
        let genes = mother.places().iter().zip(father.places());
        let mutations = 1.0 / space.parameters().len() as f64;
        let genes = genes.zip(space.parameters()).map(|((a, b), parameter)| {
            if random.random_bool(mutations) {
                return random.random_range(0..parameter.values.len()) as u16;
            }
            if random.random() { *a } else { *b }
        });
        Configuration::new(genes.collect::<Vec<u16>>())
    }
}

impl Search for Genetic {
    fn name(&self) -> &'static str {
        "genetic"
    }

    fn ask(&mut self) -> Option<Configuration> {
        self.asked += 1;
        if self.asked <= MEMBERS || self.members.is_empty() {
            return self.tried.fresh();
        }
        let children: Vec<Configuration> = (0..BIRTHS).map(|_| self.child()).collect();
        self.tried.first_new(children)
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let score = self.tried.told(configuration, outcome);
        self.members.retain(|(_, member)| member != configuration);
        let place = self.members.partition_point(|(other, _)| *other <= score);
        self.members.insert(place, (score, configuration.clone()));
        self.members.truncate(MEMBERS);
    }
}
