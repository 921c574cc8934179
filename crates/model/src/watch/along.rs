//! Collects what goes along with what: states of the machine, and how far runs were off meanwhile.
//!
//! The machine is looked at far less often than kernels run. Runs between two looks share their readings: as pairs of their own they
//! would make one coincidence a certainty. So all runs under one state are one pair.
//!
//! How far a run is off is told from the mean of its stream in the same window, not from what
//! [`DriftWatch`](super::DriftWatch) takes for its level: a program with one stream has its level move along with the machine.

use std::collections::BTreeMap;

use super::state::SystemState;

/// States of the machine that are tested for correlations at a time: enough to find r = 0.3.
pub(super) const WINDOW: usize = 128;

/// The runs of every stream under one state: sum of their residuals, and how many they were.
type Runs = BTreeMap<u64, (f64, f64)>;

#[derive(Debug, Clone, Default)]
pub(super) struct Along {
    /// States that are over.
    over: Vec<(SystemState, Runs)>,
    /// The one that lasts.
    lasting: Option<(SystemState, Runs)>,
}

impl Along {
    /// Takes a run; answers with pairs of states and deviations when the window is full, and begins anew.
    pub(super) fn observe(
        &mut self,
        stream: u64,
        residual: f64,
        state: SystemState,
    ) -> Option<Vec<(SystemState, f64)>> {
        let same = |(lasting, _): &(SystemState, Runs)| lasting.readings() == state.readings();
        if !self.lasting.as_ref().is_some_and(same) {
            let before = self.lasting.replace((state, Runs::new()));
            self.over.extend(before);
        }
        if let Some((_, runs)) = &mut self.lasting {
            let (sum, count) = runs.entry(stream).or_default();
            (*sum, *count) = (*sum + residual, *count + 1.0);
        }
        (self.over.len() >= WINDOW).then(|| pairs(std::mem::take(&mut self.over)))
    }
}

/// How far the runs under each state were off the means of their streams, in the mean of those streams. One that ran under a single
/// state has nothing to be off from.
fn pairs(states: Vec<(SystemState, Runs)>) -> Vec<(SystemState, f64)> {
    let mut means: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (stream, (sum, count)) in states.iter().flat_map(|(_, runs)| runs) {
        let (means, states) = means.entry(*stream).or_default();
        (*means, *states) = (*means + sum / count, *states + 1.0);
    }
    let pair = |(state, runs): (SystemState, Runs)| {
        let off = runs.iter().filter_map(|(stream, (sum, count))| {
            let (means, states) = means.get(stream)?;
            (*states > 1.0).then(|| sum / count - means / states)
        });
        let (sum, count) = off.fold((0.0, 0.0), |(sum, count), off| (sum + off, count + 1.0));
        (count > 0.0).then(|| (state, sum / count))
    };
    states.into_iter().filter_map(pair).collect()
}
