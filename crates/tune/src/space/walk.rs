//! Down the tree of bindings, leaving forbidden branches.

use rand::Rng;
use rand::seq::SliceRandom;

use super::{Configuration, Space};

/// Where a walk through a space stands.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// Values are tried in this order; as they stand if empty.
    orders: Vec<Vec<u16>>,
    /// How many values of each bound parameter were tried.
    tried: Vec<usize>,
    places: Vec<u16>,
    /// In a list, the next.
    next_listed: usize,
    bindings: usize,
    gave_up: bool,
}

impl Walk {
    pub(crate) fn new(space: &Space) -> Self {
        Self {
            orders: Vec::new(),
            tried: vec![0],
            places: vec![0; space.parameters.len()],
            next_listed: 0,
            bindings: 0,
            gave_up: false,
        }
    }

    /// The same in a random order of values, drawn once per parameter.
    pub(super) fn shuffled(space: &Space, random: &mut impl Rng) -> Self {
        let mut walk = Self::new(space);
        for parameter in &space.parameters {
            let values = 0..parameter.values.len();
            let mut order: Vec<u16> = values.map(|place| place as u16).collect();
            order.shuffle(random);
            walk.orders.push(order);
        }
        walk
    }

    /// The next one, unless all of them take more than so many bindings.
    pub(crate) fn next_within(&mut self, space: &Space, bindings: usize) -> Option<Configuration> {
        if let Some(listed) = &space.listed {
            let next = listed.all().get(self.next_listed).cloned();
            self.next_listed += 1;
            return next;
        }
        while let Some(bound) = self.tried.len().checked_sub(1) {
            let tried_before = self.tried[bound];
            if tried_before == space.parameters[bound].values.len() {
                self.tried.pop();
                continue;
            }
            if self.bindings == bindings {
                self.gave_up = true;
                return None;
            }
            self.bindings += 1;
            self.tried[bound] += 1;
            let order = self.orders.get(bound);
            self.places[bound] = order.map_or(tried_before as u16, |order| order[tried_before]);
            if !space.may_go_on(&self.places, bound) {
                continue;
            }
            if bound + 1 == self.places.len() {
                return Some(Configuration::new(self.places.clone()));
            }
            self.tried.push(0);
        }
        None
    }

    /// Whether it ended for want of patience.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }
}

/// Allowed configurations, found one after the other.
#[derive(Debug)]
pub struct Configurations<'a> {
    space: &'a Space,
    walk: Walk,
}

impl<'a> Configurations<'a> {
    pub(super) fn new(space: &'a Space) -> Self {
        Self {
            space,
            walk: Walk::new(space),
        }
    }
}

impl Iterator for Configurations<'_> {
    type Item = Configuration;

    fn next(&mut self) -> Option<Configuration> {
        self.walk.next_within(self.space, usize::MAX)
    }
}
