//! How many calibrations measure at once: kernels that run beside each other are slower than alone.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::lock;

/// How often who waits is asked whether it still wants to.
const PATIENCE: Duration = Duration::from_millis(20);

thread_local! {
    /// The engines on whose behalf this thread measures. One calibration within another, begun by a kernel or by who watches,
    /// is part of it and must not wait for it.
    static MEASURING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A number of turns that are taken and given back.
#[derive(Debug)]
pub(in crate::selector) struct Turns {
    left: Mutex<usize>,
    given_back: Condvar,
}

/// A turn, given back when it ends.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// `None` within another of the same thread.
    of: Option<&'a Turns>,
}

impl Turns {
    /// So many at once, one at the least.
    pub(in crate::selector) fn new(at_once: usize) -> Self {
        Self {
            left: Mutex::new(at_once.max(1)),
            given_back: Condvar::new(),
        }
    }

    /// Waits for a turn. `None` if `wait_on`, which is asked now and then, says no.
    pub(super) fn take(&self, engine: u64, wait_on: &mut dyn FnMut() -> bool) -> Option<Turn<'_>> {
        let within = MEASURING.with_borrow(|measuring| measuring.contains(&engine));
        let taken = |of| {
            MEASURING.with_borrow_mut(|measuring| measuring.push(engine));
            Some(Turn { of })
        };
        if within {
            return taken(None);
        }
        loop {
            let mut left = lock(&self.left);
            if *left == 0 {
                let waited = self.given_back.wait_timeout(left, PATIENCE);
                left = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if *left > 0 {
                *left -= 1;
                return taken(Some(self));
            }
            // Who is asked may be anybody's code.
            drop(left);
            if !wait_on() {
                return None;
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        MEASURING.with_borrow_mut(|measuring| measuring.pop());
        if let Some(turns) = self.of {
            *lock(&turns.left) += 1;
            turns.given_back.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_turn_waits_until_it_will_not() {
        let turns = Turns::new(1);
        let first = turns.take(1, &mut || false).unwrap();
        // The same thread, for the same selector: part of the first.
        let within = turns.take(1, &mut || false).unwrap();
        drop(within);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut asked = 0;
                let turn = turns.take(1, &mut || {
                    asked += 1;
                    asked < 3
                });
                (turn.is_none(), asked)
            });
            assert_eq!(other.join().unwrap(), (true, 3));
            drop(first);
            let other = scope.spawn(|| turns.take(1, &mut || false).is_some());
            assert!(other.join().unwrap());
        });
        assert!(turns.take(1, &mut || false).is_some());
    }

    #[test]
    fn there_is_always_one_turn() {
        assert!(Turns::new(0).take(7, &mut || false).is_some());
    }
}
