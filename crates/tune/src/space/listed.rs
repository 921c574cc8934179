//! A list of configurations, found again by their number.

use std::collections::HashMap;

use super::Configuration;

#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    all: Vec<Configuration>,
    places: HashMap<u128, usize>,
}

impl Listed {
    pub(super) fn push(&mut self, index: u128, configuration: Configuration) {
        let next = self.all.len();
        if *self.places.entry(index).or_insert(next) == next {
            self.all.push(configuration);
        }
    }

    pub(super) fn all(&self) -> &[Configuration] {
        &self.all
    }

    pub(super) fn place(&self, index: u128) -> Option<usize> {
        self.places.get(&index).copied()
    }
}
