//! How fast a machine can possibly be: ceilings measured by the probe, each with its spread.
//!
//! These are the denominators of every "share of peak" and the limits of every plausibility check:
//! a kernel that seems to run above them was measured wrongly.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::machine::Isa;
use crate::units::{ByteRate, FlopRate, Nanos};

/// A measured figure: the value that stands for it and the range its samples covered.
///
/// For a rate, `value` is the best sample, because a ceiling is what the machine can do at all; for a
/// cost it is the median. `low` and `high` are the quartiles of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured<T> {
    /// The figure.
    pub value: T,
    /// Lower quartile of the samples.
    pub low: T,
    /// Upper quartile of the samples.
    pub high: T,
    /// How many samples there were.
    pub samples: u32,
}

impl<T: Into<f64> + Copy> Measured<T> {
    /// Distance of the quartiles relative to the value: 0.01 is one per cent. Zero when the value is.
    pub fn spread(&self) -> f64 {
        let (value, low, high) = (self.value.into(), self.low.into(), self.high.into());
        if value == 0.0 {
            0.0
        } else {
            (high - low).abs() / value
        }
    }
}

/// The result of one calibration run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Peak arithmetic by element type and thread count.
    pub peaks: Vec<Peak>,
    /// Bandwidth by place, pattern and thread count.
    pub bandwidths: Vec<Bandwidth>,
    /// Bandwidth of data that another thread had last, by cache, pattern and thread count: the typical one, not the best, for it is
    /// what sharing a call among threads costs and no ceiling. Empty in calibrations from before it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handed_over: Vec<Bandwidth>,
    /// What it takes until sleeping threads and their caller all run and have ended, by thread count.
    pub fork_joins: Vec<ForkJoin>,
    /// Cost of reading the clock once.
    pub timer: Measured<Nanos>,
    /// What could not be calibrated, and why.
    pub skipped: Vec<String>,
}

/// Peak arithmetic rate for one element type and thread count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Element type.
    pub dtype: DType,
    /// Threads that worked at once, each on its own processor.
    pub threads: u32,
    /// The instruction set that was fastest; `None` for portable code.
    pub isa: Option<Isa>,
    /// Multiply and add counted as two. For integers the faster of multiply-adds and plain sums: where
    /// their multiplication is slow, a kernel that only adds runs at a higher rate.
    pub rate: Measured<FlopRate>,
}

/// A bandwidth: where the data lay, what was done to it, by how many threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Where the data lay.
    pub place: MemoryPlace,
    /// What was done to it.
    pub pattern: AccessPattern,
    /// Threads that worked at once, each on its own part.
    pub threads: u32,
    /// Size of the data each thread worked on, in bytes. For main memory the part of the whole
    /// footprint that each thread walked through.
    pub working_set_bytes: u64,
    /// Bytes the program read and wrote; traffic that the caches add (a line fetched before it is
    /// overwritten) is not counted, as it is not in [`Cost`](crate::Cost).
    pub rate: Measured<ByteRate>,
}

/// Cost of a fork and join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkJoin {
    /// Threads that share a call, the caller among them.
    pub threads: u32,
    /// What a call takes longer than its share of the work does, where calls follow each other, so that helpers are awake. The
    /// caller is bound to a processor; helpers run where those of kernels do.
    pub cost: Measured<Nanos>,
}

/// A level of the memory hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPlace {
    /// First-level cache.
    L1,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// Main memory.
    Dram,
}

/// What a bandwidth test does with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Load everything: one read stream.
    Read,
    /// Fill with a constant: one write stream.
    Write,
    /// `a[i] = b[i]`: one read, one write.
    Copy,
    /// `a[i] = b[i] + s * c[i]`: two reads, one write.
    Triad,
}

impl MemoryPlace {
    /// All places, nearest first.
    pub const ALL: [Self; 4] = [Self::L1, Self::L2, Self::L3, Self::Dram];

    /// The name as in field names: `l1`, `dram`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::Dram => "dram",
        }
    }
}

impl AccessPattern {
    /// All patterns.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Copy, Self::Triad];

    /// The name as in field names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
        }
    }
}

impl fmt::Display for MemoryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Calibration {
    /// The peak for this element type and thread count.
    pub fn peak(&self, dtype: DType, threads: u32) -> Option<&Peak> {
        self.peaks
            .iter()
            .find(|peak| peak.dtype == dtype && peak.threads == threads)
    }

    /// The bandwidth of this place and pattern at this thread count.
    pub fn bandwidth(
        &self,
        place: MemoryPlace,
        pattern: AccessPattern,
        threads: u32,
    ) -> Option<&Bandwidth> {
        self.bandwidths
            .iter()
            .find(|b| b.place == place && b.pattern == pattern && b.threads == threads)
    }

    /// The bandwidth of data in this place that another thread had last.
    pub fn handed_over(
        &self,
        place: MemoryPlace,
        pattern: AccessPattern,
        threads: u32,
    ) -> Option<&Bandwidth> {
        self.handed_over
            .iter()
            .find(|b| b.place == place && b.pattern == pattern && b.threads == threads)
    }

    /// The highest bandwidth of this place and pattern over all thread counts: the machine's ceiling.
    pub fn best_bandwidth(&self, place: MemoryPlace, pattern: AccessPattern) -> Option<&Bandwidth> {
        self.bandwidths
            .iter()
            .filter(|b| b.place == place && b.pattern == pattern)
            .max_by(|a, b| a.rate.value.get().total_cmp(&b.rate.value.get()))
    }
}
