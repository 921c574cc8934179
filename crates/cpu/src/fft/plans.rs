//! Plans that are kept: made at the first call of a length, read ever after.

use std::sync::{Arc, PoisonError, RwLock};

/// Most plans one kernel keeps. When there are more, the oldest goes.
const MOST: usize = 64;

/// Plans by length and direction.
pub(super) struct Plans<P: ?Sized> {
    kept: RwLock<Vec<(usize, bool, Arc<P>)>>,
}

impl<P: ?Sized> std::fmt::Debug for Plans<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list()
            .entries(kept.iter().map(|(len, back, _)| (len, back)))
            .finish()
    }
}

impl<P: ?Sized> Plans<P> {
    pub(super) const fn new() -> Self {
        Self {
            kept: RwLock::new(Vec::new()),
        }
    }

    /// The plan for this length and direction, made now if there is none. Plans are whole before they are kept, so a
    /// panic while making one leaves nothing behind that is wrong.
    pub(super) fn get(&self, len: usize, back: bool, make: impl FnOnce() -> Arc<P>) -> Arc<P> {
        let find = |kept: &[(usize, bool, Arc<P>)]| {
            let found = kept.iter().find(|plan| (plan.0, plan.1) == (len, back));
            found.map(|(_, _, plan)| Arc::clone(plan))
        };
        if let Some(plan) = find(&self.kept.read().unwrap_or_else(PoisonError::into_inner)) {
            return plan;
        }
        let made = make();
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        if let Some(plan) = find(&kept) {
            return plan;
        }
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push((len, back, Arc::clone(&made)));
        made
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_plan_is_made_once_and_the_oldest_is_forgotten() {
        let plans = Plans::<(usize, bool)>::new();
        let made = Cell::new(0);
        let get = |len, back| {
            let plan = plans.get(len, back, || {
                made.set(made.get() + 1);
                Arc::new((len, back))
            });
            assert_eq!(*plan, (len, back));
        };
        (0..3).for_each(|_| get(8, false));
        assert_eq!(made.get(), 1);
        get(8, true);
        assert_eq!(made.get(), 2);
        (100..100 + MOST).for_each(|len| get(len, false));
        assert_eq!(made.get(), 2 + MOST);
        get(100 + MOST - 1, false);
        assert_eq!(made.get(), 2 + MOST, "the newest are kept");
        get(8, false);
        assert_eq!(made.get(), 3 + MOST, "the oldest is not");
    }
}
