//! What a strategy did, as a list of events, and the figures that follow from it.

use std::collections::VecDeque;

use kernelwise_types::Workload;
use kernelwise_types::units::{Nanos, Share};
use serde::{Deserialize, Serialize};

use super::priced::Choice;

/// Events that are kept; of more, the oldest go.
const KEPT: usize = 4096;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A recommendation was made.
    Recommended {
        /// For what.
        workload: Workload,
        /// What.
        choice: Choice,
        /// The time expected of it.
        expected_ns: Nanos,
    },
    /// A call was timed.
    Ran {
        /// Of what.
        workload: Workload,
        /// With what.
        choice: Choice,
        /// How long it took.
        time_ns: Nanos,
        /// What was expected before this call was known.
        expected_ns: Nanos,
        /// Whether its time lies within the interval that was stated.
        within: bool,
    },
    /// A call failed.
    Failed {
        /// Of what.
        workload: Workload,
        /// With what.
        choice: Choice,
    },
}

/// What follows from the events that are kept. Without events of a kind there is no figure, rather than a zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Recommendations made.
    pub optimizations: u64,
    /// Calls that were timed.
    pub timed: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Half of the timed calls were off by less than this factor.
    pub median_error_factor: Option<f64>,
    /// Part of the timed calls that lie within their 90 % intervals.
    #[serde(rename = "covered_share")]
    pub covered: Option<Share>,
    /// Geometric mean, over workloads timed with several choices, of the first choice's time over that of the fastest: what
    /// trying others brought.
    pub gain_factor: Option<f64>,
    /// Events that are no longer kept and not counted here.
    pub forgotten: u64,
}

/// The last events.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    forgotten: u64,
}

impl Log {
    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() == KEPT {
            self.events.pop_front();
            self.forgotten += 1;
        }
        self.events.push_back(event);
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut errors = Vec::new();
        let (mut optimizations, mut failed, mut within) = (0, 0, 0);
        for event in &self.events {
            match event {
                Event::Recommended { .. } => optimizations += 1,
                Event::Failed { .. } => failed += 1,
                Event::Ran {
                    time_ns,
                    expected_ns,
                    within: inside,
                    ..
                } => {
                    errors.push((time_ns.get() / expected_ns.get()).ln().abs());
                    within += u64::from(*inside);
                }
            }
        }
        let timed = errors.len() as u64;
        errors.sort_by(f64::total_cmp);
        let middle = errors.get(errors.len() / 2);
        Metrics {
            optimizations,
            timed,
            failed,
            median_error_factor: middle.map(|error| error.exp()),
            covered: Share::of(within, timed),
            gain_factor: gain(&self.events),
            forgotten: self.forgotten,
        }
    }
}

/// By what the fastest choice of a workload beats the first, as a mean over workloads.
fn gain<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<f64> {
    // Fastest and first by workload, each the mean of ln t of its choice.
    type Times = Vec<(Choice, f64, f64)>;
    let mut workloads: Vec<(&Workload, Times)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for event in events {
        let Event::Ran {
            workload,
            choice,
            time_ns,
            ..
        } = event
        else {
            continue;
        };
        let place = *places.entry(workload).or_insert_with(|| {
            workloads.push((workload, Times::new()));
            workloads.len() - 1
        });
        let times = &mut workloads[place].1;
        let ln = time_ns.get().ln();
        match times.iter_mut().find(|(known, _, _)| known == choice) {
            Some((_, sum, count)) => (*sum, *count) = (*sum + ln, *count + 1.0),
            None => times.push((choice.clone(), ln, 1.0)),
        }
    }
    let several = workloads.iter().filter(|(_, times)| times.len() > 1);
    let gains: Vec<f64> = several
        .filter_map(|(_, times)| {
            let mut means = times.iter().map(|(_, sum, count)| sum / count);
            let first = means.next()?;
            Some(first - means.fold(first, f64::min))
        })
        .collect();
    let count = gains.len() as f64;
    (!gains.is_empty()).then(|| (gains.iter().sum::<f64>() / count).exp())
}
