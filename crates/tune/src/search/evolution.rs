//! Differential evolution (Storn and Price, 1997) on the places of values: a member is challenged by another one, moved by a
//! difference between two more.

use std::collections::HashMap;
use std::sync::Arc;

use rand::RngExt;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Space};

const MEMBERS: usize = 16;
/// How far the difference moves.
const STEP: f64 = 0.7;
/// The share of parameters that are moved.
const MOVED: f64 = 0.8;
/// Challengers tried until one is allowed and new.
const TRIES: usize = 20;

#[derive(Debug)]
pub(super) struct Evolution {
    tried: Tried,
    members: Vec<(f64, Configuration)>,
    /// Whom a challenger challenges.
    challenged: HashMap<Configuration, usize>,
    asked: usize,
}

impl Evolution {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        Self {
            tried: Tried::new(space, seed),
            members: Vec::new(),
            challenged: HashMap::new(),
            asked: 0,
        }
    }

    fn challenger(&mut self, of: usize) -> Configuration {
        let space = Arc::clone(&self.tried.space);
        let random = &mut self.tried.random;
        let mut draw = || &self.members[random.random_range(0..self.members.len())].1;
        let (a, b, c) = (draw(), draw(), draw());
        let old = &self.members[of].1;
        let places = space
            .parameters()
            .iter()
            .enumerate()
            .map(|(slot, parameter)| {
                if !random.random_bool(MOVED) {
                    return old.places()[slot];
                }
                let at = |configuration: &Configuration| f64::from(configuration.places()[slot]);
                let moved = at(a) + STEP * (at(b) - at(c)) + random.random_range(-0.5..0.5);
                moved
                    .round()
                    .clamp(0.0, (parameter.values.len() - 1) as f64) as u16
            });
        Configuration::new(places.collect::<Vec<u16>>())
    }
}

impl Search for Evolution {
    fn name(&self) -> &'static str {
        "evolution"
    }

    fn ask(&mut self) -> Option<Configuration> {
        self.asked += 1;
        if self.asked <= MEMBERS || self.members.is_empty() {
            return self.tried.fresh();
        }
        let of = self.asked % self.members.len();
        let challengers: Vec<Configuration> = (0..TRIES).map(|_| self.challenger(of)).collect();
        let next = self.tried.first_new(challengers)?;
        self.challenged.insert(next.clone(), of);
        Some(next)
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let score = self.tried.told(configuration, outcome);
        let new = (score, configuration.clone());
        if let Some(known) = self
            .members
            .iter_mut()
            .find(|(_, one)| one == configuration)
        {
            known.0 = score;
            return;
        }
        match self.challenged.remove(configuration) {
            Some(of) if score <= self.members[of].0 => self.members[of] = new,
            Some(_) => {}
            None if self.members.len() < MEMBERS => self.members.push(new),
            None => {}
        }
    }
}
