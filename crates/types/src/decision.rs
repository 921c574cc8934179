//! Decisions: what was chosen, what was passed over, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::kernel::{KernelId, Refusal};
use crate::params::Params;
use crate::units::Share;
use crate::workload::Workload;

/// A kernel with a setting of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// The kernel.
    pub kernel: KernelId,
    /// Its setting.
    pub params: Params,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        if self.params == Params::new() {
            Ok(())
        } else {
            write!(f, " ({})", self.params)
        }
    }
}

/// Why this candidate and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The user said so.
    Forced,
    /// No other may run here.
    OnlyCandidate,
    /// Best on what was measured before and remembered; nothing was measured since.
    Remembered,
    /// The policy found it best on what is known.
    Best,
    /// A trained model found it best.
    Modelled,
    /// As good as the best within the indifference zone, and already in use.
    NearTie,
    /// In use, and kept until a witness has told whether it became slow or the machine did.
    Checking,
    /// Tried in order to learn, inside the exploration budget.
    Exploring,
    /// Too little is known; the default kernel serves.
    Default,
}

impl Reason {
    /// In words for a person.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Forced => "forced by the user",
            Self::OnlyCandidate => "the only one that may run here",
            Self::Remembered => "best on what was measured before and remembered",
            Self::Best => "best on what is known",
            Self::Modelled => "best by the model's prediction",
            Self::NearTie => "as good as the best, and already in use",
            Self::Checking => "kept while a suspected change is looked into",
            Self::Exploring => "tried in order to learn",
            Self::Default => "the default, for want of knowledge",
        }
    }
}

/// A candidate and what is known of its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// What is known of its time.
    pub estimate: Estimate,
}

/// One choice, complete enough to be explained later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// For which workload.
    pub workload: Workload,
    /// What was chosen.
    pub chosen: Ranked,
    /// Why.
    pub reason: Reason,
    /// Probability that the choice is within the indifference zone of the best; `None` when nothing
    /// is known that it could be computed from.
    pub confidence: Option<Share>,
    /// The others that might have run, fastest first; those of unknown time come last, by name.
    #[serde(deserialize_with = "ranked")]
    alternatives: Vec<Ranked>,
    /// Those that may not run here, and why.
    pub refused: Vec<(KernelId, Refusal)>,
}

/// The one order in which alternatives stand: by time, then by name.
fn rank(alternatives: &mut [Ranked]) {
    alternatives.sort_by(|a, b| {
        let time = |ranked: &Ranked| {
            ranked
                .estimate
                .time()
                .map_or(f64::INFINITY, |time| time.get())
        };
        let name = |ranked: &Ranked| {
            (
                ranked.candidate.kernel.clone(),
                ranked.candidate.params.clone(),
            )
        };
        time(a)
            .total_cmp(&time(b))
            .then_with(|| name(a).cmp(&name(b)))
    });
}

/// Reads alternatives in whatever order they were written.
fn ranked<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Ranked>, D::Error> {
    let mut alternatives = Vec::deserialize(deserializer)?;
    rank(&mut alternatives);
    Ok(alternatives)
}

impl Decision {
    /// Puts a decision together; alternatives are ranked here, so that every reader sees one order.
    pub fn new(
        workload: Workload,
        chosen: Ranked,
        reason: Reason,
        confidence: Option<Share>,
        mut alternatives: Vec<Ranked>,
        refused: Vec<(KernelId, Refusal)>,
    ) -> Self {
        rank(&mut alternatives);
        Self {
            workload,
            chosen,
            reason,
            confidence,
            alternatives,
            refused,
        }
    }

    /// The others that might have run, fastest first.
    pub fn alternatives(&self) -> &[Ranked] {
        &self.alternatives
    }
}

/// The decision in words, as `explain` shows it.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.workload)?;
        writeln!(
            f,
            "  runs {}: {}",
            self.chosen.candidate,
            self.reason.words()
        )?;
        writeln!(f, "    {}", self.chosen.estimate)?;
        match self.confidence {
            Some(confidence) => writeln!(f, "    confidence {confidence}")?,
            None => writeln!(f, "    confidence unknown")?,
        }
        for Ranked {
            candidate,
            estimate,
        } in &self.alternatives
        {
            writeln!(f, "  over {candidate}: {estimate}")?;
        }
        for (kernel, refusal) in &self.refused {
            writeln!(f, "  not {kernel}: {refusal}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn ranked(kernel: &str, params: &str, ns: Option<f64>) -> Ranked {
        let candidate = Candidate {
            kernel: kernel.parse().unwrap(),
            params: params.parse().unwrap(),
        };
        let prior = |ns| Estimate::Prior {
            time_ns: Nanos::new(ns).unwrap(),
            source: "roofline".into(),
        };
        Ranked {
            candidate,
            estimate: ns.map_or(Estimate::Unknown, prior),
        }
    }

    #[test]
    fn a_decision_reads_as_an_explanation() {
        let decision = Decision::new(
            "matmul f32 64x64x64".parse().unwrap(),
            ranked("cpu-matmul-f32-small", "threads=1", Some(5_400.0)),
            Reason::Best,
            Some(Share::new(0.93).unwrap()),
            vec![
                ranked("cpu-matmul-f32-b", "", None),
                ranked("cpu-matmul-f32-packed", "threads=2", Some(9_000.0)),
                ranked("cpu-matmul-f32-a", "", None),
                ranked("cpu-matmul-f32-packed", "threads=1", Some(7_000.0)),
            ],
            vec![("cpu-matmul-f64-small".parse().unwrap(), {
                let (kernel, workload) = (vec![crate::DType::F64], vec![crate::DType::F32]);
                Refusal::DType { kernel, workload }
            })],
        );
        assert_eq!(
            decision.to_string(),
            "matmul f32 64x64x64\n\
             \x20 runs cpu-matmul-f32-small (threads=1): best on what is known\n\
             \x20   5.40 µs prior from roofline\n\
             \x20   confidence 93.0 %\n\
             \x20 over cpu-matmul-f32-packed (threads=1): 7.00 µs prior from roofline\n\
             \x20 over cpu-matmul-f32-packed (threads=2): 9.00 µs prior from roofline\n\
             \x20 over cpu-matmul-f32-a: unknown\n\
             \x20 over cpu-matmul-f32-b: unknown\n\
             \x20 not cpu-matmul-f64-small: is made for f64, not f32\n"
        );
        let json = serde_json::to_string(&decision).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&json).unwrap(), decision);

        let mut shuffled: serde_json::Value = serde_json::from_str(&json).unwrap();
        shuffled["alternatives"].as_array_mut().unwrap().reverse();
        let read: Decision = serde_json::from_value(shuffled).unwrap();
        assert_eq!(read, decision, "alternatives are ranked on reading too");
    }
}
