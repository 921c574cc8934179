//! Successive halving (Jamieson and Talwalkar, 2016). What is handed out here is not longer runs, which kernels do not have, but
//! evaluations in the neighbourhood: of several starts, each gets some; the better half gets twice as many; and so on
//! until one is left. Then come other starts.

use std::collections::HashMap;
use std::sync::Arc;

use rand::seq::SliceRandom;

use super::tried::Tried;
use super::{Outcome, Search};
use crate::space::{Configuration, Neighbourhood, Space};

const STARTS: usize = 8;
/// Evaluations per start in the first round.
const SHARE: usize = 2;

#[derive(Debug)]
pub(super) struct Halving {
    tried: Tried,
    /// The best of each line that goes on; starts that are not told yet are infinitely slow.
    lines: Vec<(f64, Option<Configuration>)>,
    share: usize,
    /// Lines whose turn is to come in this round.
    turns: Vec<usize>,
    out: HashMap<Configuration, usize>,
}

impl Halving {
    pub(super) fn new(space: Arc<Space>, seed: u64) -> Self {
        let mut halving = Self {
            tried: Tried::new(space, seed),
            lines: Vec::new(),
            share: 0,
            turns: Vec::new(),
            out: HashMap::new(),
        };
        halving.start();
        halving
    }

    fn start(&mut self) {
        self.lines = vec![(f64::INFINITY, None); STARTS];
        self.share = SHARE;
        self.turns = (0..STARTS).rev().collect();
    }

    /// The better half, with twice the share.
    fn halve(&mut self) {
        self.lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.lines.truncate(self.lines.len() / 2);
        if self.lines.is_empty() {
            return self.start();
        }
        self.turns = (0..self.lines.len())
            .rev()
            .flat_map(|line| vec![line; self.share])
            .collect();
        self.share *= 2;
    }
}

impl Search for Halving {
    fn name(&self) -> &'static str {
        "halving"
    }

    fn ask(&mut self) -> Option<Configuration> {
        if self.turns.is_empty() {
            // The round has to be over before halves can be told apart; until then, what is asked for is a bonus.
            match self.out.is_empty() {
                true => self.halve(),
                false => return self.tried.fresh(),
            }
        }
        let line = self.turns.pop()?;
        let next = match &self.lines[line].1 {
            None => self.tried.fresh()?,
            Some(best) => {
                let mut near = self.tried.space.neighbours(best, Neighbourhood::OneChange);
                near.shuffle(&mut self.tried.random);
                self.tried.first_new(near)?
            }
        };
        self.out.insert(next.clone(), line);
        Some(next)
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let score = self.tried.told(configuration, outcome);
        for (known, of) in &mut self.lines {
            if of.as_ref() == Some(configuration) {
                *known = score;
            }
        }
        if let Some(line) = self.out.remove(configuration)
            && score < self.lines[line].0
        {
            self.lines[line] = (score, Some(configuration.clone()));
        }
    }
}
