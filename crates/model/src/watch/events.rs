//! What was noticed, in order, as much of it as there is room for.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::anomaly::Anomaly;
use super::correlate::Correlation;
use super::drift::Drift;
use super::trend::Trend;

/// Something that was noticed, or done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, counted from 0: numbers that are missing were dropped.
    pub number: u64,
    /// When, in nanoseconds of the caller's clock.
    pub time_ns: u64,
    /// What.
    #[serde(flatten)]
    pub what: Noticed,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
#[non_exhaustive]
pub enum Noticed {
    /// A stream has left its level.
    Drift {
        /// Which.
        stream: u64,
        /// How.
        #[serde(flatten)]
        drift: Drift,
    },
    /// A run was out of line.
    Anomaly {
        /// Of which stream.
        stream: u64,
        /// How.
        #[serde(flatten)]
        anomaly: Anomaly,
    },
    /// A stream creeps.
    Trend {
        /// Which.
        stream: u64,
        /// How; the slope is in ln t per second.
        #[serde(flatten)]
        trend: Trend,
    },
    /// Slowdown goes along with a reading of the machine.
    Correlation(Correlation),
}

/// The latest events. Older ones make room and are counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventLog {
    events: VecDeque<Event>,
    dropped: u64,
    #[serde(skip)]
    room: usize,
}

impl EventLog {
    /// A log that holds this many events, at least one.
    pub fn new(room: usize) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: 0,
            room: room.max(1),
        }
    }

    /// Adds an event; answers with its number.
    pub fn push(&mut self, time_ns: u64, what: Noticed) -> u64 {
        if self.events.len() == self.room {
            self.events.pop_front();
            self.dropped += 1;
        }
        let number = self.next_number();
        self.events.push_back(Event {
            number,
            time_ns,
            what,
        });
        number
    }

    /// The number of the next event.
    pub fn next_number(&self) -> u64 {
        self.dropped + self.events.len() as u64
    }

    /// The events from this number on that are still there, in order.
    pub fn since(&self, number: u64) -> impl ExactSizeIterator<Item = &Event> {
        let gone = number
            .saturating_sub(self.dropped)
            .min(self.events.len() as u64);
        self.events.range(gone as usize..)
    }

    /// All that are still there, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// How many had to make room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, Direction, Reading, Severity};
    use super::*;

    fn numbered(samples: usize) -> Noticed {
        Noticed::Correlation(Correlation {
            reading: Reading::Load,
            r: 0.5,
            p: 1e-3,
            samples,
        })
    }

    #[test]
    fn events_come_back_in_order_and_the_oldest_make_room() {
        let mut log = EventLog::new(3);
        assert_eq!(
            (log.iter().len(), log.dropped(), log.next_number()),
            (0, 0, 0)
        );
        for rows in 0..5 {
            assert_eq!(log.push(10 * rows as u64, numbered(rows)), rows as u64);
        }
        assert_eq!(log.dropped(), 2);
        let numbers = |from| {
            log.since(from)
                .map(|event| event.number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(0), [2, 3, 4]);
        assert_eq!(numbers(4), [4]);
        assert_eq!(numbers(5), [0_u64; 0]);
        assert_eq!(numbers(u64::MAX), [0_u64; 0]);
        let last = log.iter().last().unwrap();
        assert_eq!((last.time_ns, &last.what), (40, &numbered(4)));
        let mut least = EventLog::new(0);
        least.push(0, numbered(1));
        assert_eq!(least.iter().len(), 1);
    }

    #[test]
    fn they_read_the_same_after_they_were_written() {
        let mut log = EventLog::new(9);
        log.push(7, numbered(3));
        let text = serde_json::to_string(&log).unwrap();
        let expected = r#"{"events":[{"number":0,"time_ns":7,"event":"correlation","reading":"load","r":0.5,"p":0.001,"samples":3}],"dropped":0}"#;
        assert_eq!(text, expected);
        let (stream, direction) = (4, Direction::Faster);
        log.push(
            8,
            Noticed::Drift {
                stream,
                drift: Drift {
                    direction,
                    step: -0.2,
                    samples: 12,
                    others: 3,
                },
            },
        );
        log.push(
            9,
            Noticed::Anomaly {
                stream,
                anomaly: Anomaly {
                    direction,
                    deviation: -1.5,
                    score: -9.0,
                    severity: Severity::Critical,
                    cause: Cause::Unknown,
                },
            },
        );
        log.push(
            10,
            Noticed::Trend {
                stream,
                trend: Trend {
                    samples: 128,
                    score: -900,
                    p: 1e-4,
                    slope: -0.01,
                },
            },
        );
        log.push(
            11,
            Noticed::Correlation(Correlation {
                reading: Reading::MemoryPressure,
                r: 0.8,
                p: 1e-9,
                samples: 128,
            }),
        );
        for event in log.iter() {
            let text = serde_json::to_string(event).unwrap();
            let back: Event = serde_json::from_str(&text).unwrap();
            assert_eq!(&back, event, "{text}");
        }
    }
}
