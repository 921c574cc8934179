//! The latest runs of a series as they came, in few bytes: enough to play them again.

use kernelwise_types::Conditions;
use kernelwise_types::units::{Nanos, Share};

/// How many samples of a series are kept as they came.
pub const RECENT: usize = 32;

/// One timed run as it came: when, how long, what had been predicted, and what the machine was doing. Kept in 16 bytes, so
/// times have seven digits and shares two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawSample {
    /// When, in seconds since 1970.
    pub unix_s: u64,
    /// How long it took.
    pub time_ns: f64,
    /// How long it was predicted to take; `None` if nothing was.
    pub predicted_ns: Option<f64>,
    /// What the machine was doing.
    pub conditions: Conditions,
}

/// What stands for an unknown share or switch.
const UNKNOWN: u8 = 255;

/// A raw sample in the bytes it is kept in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Packed {
    pub(crate) time_ns: f32,
    pub(crate) predicted_ns: f32,
    pub(crate) conditions: [u8; 4],
}

impl Packed {
    pub(crate) fn new(time: Nanos, predicted: Option<Nanos>, conditions: &Conditions) -> Self {
        let share = |share: Option<Share>| {
            share.map_or(UNKNOWN, |share| {
                (share.get() * 200.0).round().clamp(0.0, 200.0) as u8
            })
        };
        Self {
            time_ns: time.get() as f32,
            predicted_ns: predicted.map_or(f32::NAN, |time| time.get() as f32),
            conditions: [
                share(conditions.cpu_utilisation),
                share(conditions.cpu_pressure),
                share(conditions.steal),
                conditions.throttling.map_or(UNKNOWN, u8::from),
            ],
        }
    }

    fn write(&self, unix_s: u64, out: &mut Vec<u8>) {
        let unix_s = u32::try_from(unix_s).unwrap_or(u32::MAX);
        out.extend(unix_s.to_le_bytes());
        out.extend(self.time_ns.to_le_bytes());
        out.extend(self.predicted_ns.to_le_bytes());
        out.extend(self.conditions);
    }
}

const PACKED: usize = 16;

/// Appends samples to those kept, and lets the oldest go.
pub(crate) fn append(kept: &mut Vec<u8>, unix_s: u64, samples: &[Packed]) {
    for sample in samples {
        sample.write(unix_s, kept);
    }
    // A blob of another length is damaged: what was appended is not.
    let whole = kept.len() / PACKED * PACKED;
    let surplus = kept.len() - whole.min(RECENT * PACKED);
    kept.drain(..surplus);
}

/// The samples in a blob, oldest first.
pub(crate) fn unpack(blob: &[u8]) -> Vec<RawSample> {
    let share = |byte: u8| Share::new(f64::from(byte) / 200.0).ok();
    let sample = |b: &[u8; PACKED]| RawSample {
        unix_s: u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        time_ns: f64::from(f32::from_le_bytes([b[4], b[5], b[6], b[7]])),
        predicted_ns: Some(f64::from(f32::from_le_bytes([b[8], b[9], b[10], b[11]])))
            .filter(|time| !time.is_nan()),
        conditions: Conditions {
            cpu_utilisation: share(b[12]),
            cpu_pressure: share(b[13]),
            steal: share(b[14]),
            throttling: (b[15] != UNKNOWN).then_some(b[15] != 0),
        },
    };
    let (samples, _) = blob.as_chunks::<PACKED>();
    samples
        .iter()
        .map(sample)
        .filter(|sample| sample.time_ns.is_finite())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_samples_are_kept_as_they_came() {
        let conditions = Conditions {
            cpu_utilisation: Share::new(0.5).ok(),
            cpu_pressure: None,
            steal: Share::new(0.0).ok(),
            throttling: Some(true),
        };
        let mut blob = Vec::new();
        for i in 0..50u32 {
            let time = Nanos::new(f64::from(i)).unwrap();
            let predicted = (i % 2 == 0).then_some(time);
            let packed = Packed::new(time, predicted, &conditions);
            append(&mut blob, u64::from(1000 + i), &[packed]);
        }
        let samples = unpack(&blob);
        assert_eq!(samples.len(), RECENT);
        assert_eq!(samples[0].unix_s, 1000 + 50 - RECENT as u64);
        let latest = samples.last().unwrap();
        assert_eq!((latest.time_ns, latest.predicted_ns), (49.0, None));
        assert_eq!(latest.conditions, conditions);
        assert_eq!(samples[RECENT - 2].predicted_ns, Some(48.0));

        // A blob that lost a byte loses samples, not the reader.
        blob.pop();
        assert_eq!(unpack(&blob).len(), RECENT - 1);
    }
}
