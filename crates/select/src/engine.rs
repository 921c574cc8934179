//! From a key to a choice in nanoseconds, and from a sample to a better choice in the background.
//!
//! A [`Case`] is one workload with its candidates. What callers need to know of it is one word (`word.rs`): who serves, who is to
//! be tried, how often to take the time. The learner writes that word; nobody waits for anybody. Each thread keeps
//! a [`Seat`] at the cases it meets, with a copy of the word (`seat.rs`), in a table of its own (`table.rs`). A hit touches no memory
//! another thread writes often: no lock, no allocation, no counter that is shared, and one line of a large table. Only the
//! first call of a case, on each thread, takes the longer way (`cases.rs`).
//!
//! Calls that were timed go to a queue of fixed size; the learner takes them from there
//! ([`settle`](Engine::settle)). A queue that is full drops what comes and counts it.

mod cases;
mod seat;
mod sync;
mod table;
mod word;

pub(crate) use cases::{Engine, Listener, NewCase, TakenIn};
pub(crate) use seat::{Case, Pick, Seat};
pub(crate) use sync::lock;

#[cfg(test)]
mod explored;
#[cfg(test)]
mod tests;
