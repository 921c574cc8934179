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
    /// Parameters are bound in this order; as they stand if there is none.
    sequence: Option<Sequence>,
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
            sequence: None,
            next_listed: 0,
            bindings: 0,
            gave_up: false,
        }
    }

    /// The same in a random order of values, drawn once per parameter. Parameters that are restricted together are bound one after the
    /// other, so that a dead end is seen before all that lies between them was tried.
    pub(super) fn shuffled(space: &Space, random: &mut impl Rng) -> Self {
        let mut walk = Self::new(space);
        walk.sequence = Some(Sequence::of(space));
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
        while let Some(depth) = self.tried.len().checked_sub(1) {
            let tried_before = self.tried[depth];
            let sequence = self.sequence.as_ref();
            let bound = sequence.map_or(depth, |sequence| sequence.slots[depth]);
            if tried_before == space.parameters[bound].values.len() {
                self.tried.pop();
                continue;
            }
            if self.bindings == bindings {
                self.gave_up = true;
                return None;
            }
            self.bindings += 1;
            self.tried[depth] += 1;
            let order = self.orders.get(bound);
            self.places[bound] = order.map_or(tried_before as u16, |order| order[tried_before]);
            let may_go_on = match sequence {
                Some(sequence) => {
                    let mut known = sequence.known[depth].iter();
                    known.all(|one| space.holds(&space.restrictions[*one].expression, &self.places))
                }
                None => space.may_go_on(&self.places, bound),
            };
            if !may_go_on {
                continue;
            }
            if depth + 1 == self.places.len() {
                return Some(Configuration::new(self.places.clone()));
            }
            self.tried.push(0);
        }
        None
    }

    /// The next one, unless that takes more than so many bindings from here.
    pub(crate) fn next_after(&mut self, space: &Space, bindings: usize) -> Option<Configuration> {
        self.next_within(space, self.bindings.saturating_add(bindings))
    }

    /// Whether it ended for want of patience.
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up
    }
}

/// An order of parameters in which restrictions can be computed early.
#[derive(Debug, Clone)]
struct Sequence {
    slots: Vec<usize>,
    /// By place in the order: the restrictions that can be computed from there on.
    known: Vec<Vec<usize>>,
}

impl Sequence {
    /// Next come the parameters of the restriction that lacks fewest; in the end those without any.
    fn of(space: &Space) -> Self {
        let mut slots: Vec<usize> = Vec::with_capacity(space.parameters.len());
        let mut known = vec![Vec::new(); space.parameters.len()];
        let mut left: Vec<usize> = (0..space.restrictions.len()).collect();
        while !left.is_empty() {
            let lacks = |one: &usize| {
                let slots_of = space.restrictions[*one].expression.slots().iter();
                slots_of.filter(|slot| !slots.contains(slot)).count()
            };
            let next = (0..left.len()).min_by_key(|place| lacks(&left[*place]));
            let one = left.remove(next.unwrap_or(0));
            for slot in space.restrictions[one].expression.slots() {
                if !slots.contains(slot) {
                    slots.push(*slot);
                }
            }
            // One without names is asked with the first parameter.
            known[slots.len().saturating_sub(1)].push(one);
        }
        for slot in 0..space.parameters.len() {
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        Self { slots, known }
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
