//! Records: what is remembered, and where it holds.

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::observation::Observation;

/// An observation together with the kind of machine and the version of the library it was made by.
/// Serialises to one JSON object that begins with its schema; a record of another schema is refused
/// rather than misread.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kernelwise_types::Record;
///
/// let json = r#"{"schema":"kernelwise.record/1","fingerprint":"00112233aabbccdd","library":"0.1.0",
///   "unix_s":1800000000,"observation":{"workload":"matmul f32 64x64x64","kernel":"cpu-matmul-f32-naive",
///   "version":1,"params":"threads=1","outcome":{"timed_out":{"limit_ns":1e9}},
///   "conditions":{"cpu_utilisation_share":0.5,"cpu_pressure_share":null,
///   "steal_share":null,"throttling":null}}}"#;
/// let record: Record = serde_json::from_str(json)?;
/// assert_eq!(record.observation.kernel.as_str(), "cpu-matmul-f32-naive");
///
/// let newer = json.replace("record/1", "record/2");
/// assert!(serde_json::from_str::<Record>(&newer).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    schema: Schema,
    /// The kind of machine.
    pub fingerprint: Fingerprint,
    /// Version of the library that made it.
    pub library: String,
    /// When, in whole seconds since 1970 UTC.
    pub unix_s: u64,
    /// What happened.
    pub observation: Observation,
}

/// The one schema this version writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "kernelwise.record/1")]
    Record1,
}

impl Record {
    /// An observation made on this kind of machine by this version of the library.
    pub fn new(fingerprint: Fingerprint, unix_s: u64, observation: Observation) -> Self {
        let library = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            schema: Schema::Record1,
            fingerprint,
            library,
            unix_s,
            observation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::observation::{Conditions, Outcome, TimeStats};
    use crate::params::Params;
    use crate::units::Nanos;

    #[test]
    fn records_round_trip_whatever_the_outcome() {
        let timed: TimeStats = [Nanos::from_u64(90), Nanos::from_u64(110)]
            .into_iter()
            .collect();
        for outcome in [
            Outcome::Timed(timed),
            Outcome::Failed {
                evidence: "out of memory".into(),
            },
            Outcome::WrongResult {
                evidence: "element 3: 0.5 instead of 0.25".into(),
            },
            Outcome::TimedOut {
                limit_ns: Nanos::from_u64(1_000_000),
            },
        ] {
            let observation = Observation {
                workload: "conv2d f32 n1 c3 h8 w8 k4 r3 s3 stride1 pad1"
                    .parse()
                    .unwrap(),
                kernel: "cpu-conv2d-f32-direct".parse().unwrap(),
                version: 2,
                params: Params::new().with("threads", 2).unwrap(),
                outcome,
                conditions: Conditions::default(),
            };
            let record = Record::new(Fingerprint::of(&machine()), 1_800_000_000, observation);
            let json = serde_json::to_string(&record).unwrap();
            assert!(
                json.starts_with(r#"{"schema":"kernelwise.record/1","#),
                "{json}"
            );
            assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
        }
    }
}
