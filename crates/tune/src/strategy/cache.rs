//! A cache that forgets what was longest not asked for.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// At most so many values; of more, the least recently used goes.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    capacity: usize,
    /// The value and when it was last used.
    values: HashMap<K, (u64, V)>,
    /// Keys by when they were last used.
    uses: BTreeMap<u64, K>,
    now: u64,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            values: HashMap::new(),
            uses: BTreeMap::new(),
            now: 0,
        }
    }

    /// The value, which counts as a use.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.values.get_mut(key)?;
        let owned = self.uses.remove(used)?;
        self.now += 1;
        *used = self.now;
        self.uses.insert(self.now, owned);
        Some(value)
    }

    /// Keeps a value, in place of an older one of the same key.
    pub(super) fn put(&mut self, key: K, value: V) {
        if self.capacity == 0 {
            return;
        }
        self.now += 1;
        if let Some((used, _)) = self.values.remove(&key) {
            self.uses.remove(&used);
        } else if self.values.len() == self.capacity
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.uses.insert(self.now, key.clone());
        self.values.insert(key, (self.now, value));
    }

    /// All of them with their keys, in no order; that is no use.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.values.iter_mut().map(|(key, (_, value))| (key, value))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.uses.clear();
    }

    /// Values that are kept.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by the book: a list, the most recent last.
    #[derive(Default)]
    struct Plain(Vec<(u8, u32)>);

    impl Plain {
        fn get(&mut self, key: u8) -> Option<u32> {
            let at = self.0.iter().position(|(known, _)| *known == key)?;
            let entry = self.0.remove(at);
            self.0.push(entry);
            Some(entry.1)
        }

        fn put(&mut self, capacity: usize, key: u8, value: u32) {
            self.0.retain(|(known, _)| *known != key);
            self.0.push((key, value));
            if self.0.len() > capacity {
                self.0.remove(0);
            }
        }
    }

    proptest! {
        /// Gets and puts in any order leave what a list of recent uses leaves, and never more than there is room for.
        #[test]
        fn the_least_recently_used_goes(
            capacity in 0usize..6,
            steps in prop::collection::vec((any::<bool>(), 0u8..12, any::<u32>()), 0..200),
        ) {
            let (mut cache, mut plain) = (Cache::new(capacity), Plain::default());
            for (put, key, value) in steps {
                if put {
                    cache.put(key, value);
                    plain.put(capacity, key, value);
                } else {
                    prop_assert_eq!(cache.get(&key).copied(), plain.get(key));
                }
                prop_assert!(cache.len() <= capacity);
                prop_assert_eq!(cache.uses.len(), cache.len());
            }
        }

        /// A key asked for between any `capacity - 1` others stays, however many others come.
        #[test]
        fn a_hot_key_is_never_evicted(capacity in 2usize..8, others in prop::collection::vec(1u16.., 0..300)) {
            let mut cache = Cache::new(capacity);
            cache.put(0u16, 0u16);
            for (position, other) in others.into_iter().enumerate() {
                cache.put(other, other);
                if position % (capacity - 1) == capacity - 2 {
                    prop_assert_eq!(cache.get(&0), Some(&mut 0));
                }
            }
        }
    }
}
