//! Sorting of rows: keys, keys with values, or the order as positions.
//!
//! Keys become unsigned numbers that compare as they do (`order`); where something moves with them, their position
//! is put below, which makes all records different and every sort stable. What is left is to sort numbers:
//!
//! | variant | how | best for |
//! |---|---|---|
//! | `std` | the standard library's unstable sort | medium rows, keys in order already |
//! | `radix` | by digits, without comparing (`radix`) | long rows |
//! | `parallel` | rows shared out, or parts sorted by digits and merged (`merge`) | long or many rows |
//! | `network-…` | many short rows in vector registers (`network`) | rows up to 32 |
//!
//! All give the one answer of the reference, bit by bit.
#![allow(unsafe_code)]

pub(crate) mod by_place;
mod merge;
mod network;
mod order;
mod radix;
mod row;
mod run;
mod top_first;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Sharing, Space,
    knobs,
};
use kernelwise_types::op::{Operation, Sort, SortKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Refusal, Technique, Workload,
};

use crate::declare::{Needing, spec};
use crate::index::memory::made_for;
use crate::isa::Level;
use crate::pool::{Schedule, most_pieces, threads};
use radix::Digits;
pub(crate) use row::Lines;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let widest = levels.last().copied().unwrap_or(Level::PORTABLE);
    let mut kernels: Vec<Arc<dyn HostKernel>> = Vec::new();
    for dtypes in element_types() {
        for method in [Method::Std, Method::Radix, Method::Parallel] {
            kernels.push(Arc::new(SortKernel::new(&dtypes, method)?));
        }
        // Wide keys that have to move something along are not for vectors.
        if dtypes.len() == 1 || dtypes[0].size() <= NARROW {
            let network = SortKernel::new(&dtypes, Method::Network(widest))?;
            kernels.push(Arc::new(network));
        }
    }
    Ok(kernels)
}

/// Keys alone (or with values of their own type), and with values of another type. Positions are i64, so
/// that every kind of key has a kernel for i64.
fn element_types() -> Vec<Vec<DType>> {
    use DType::{F32, F64, I32, I64, U32, U64};
    const COMMON: [DType; 6] = [U32, I32, U64, I64, F32, F64];
    let keys = DType::ALL.iter().copied().filter(|key| key.is_ordered());
    keys.flat_map(|key| {
        let values: &[DType] = if COMMON.contains(&key) {
            &COMMON
        } else {
            &[I64]
        };
        let others = values.iter().filter(move |value| **value != key);
        std::iter::once(vec![key]).chain(others.map(move |&value| vec![key, value]))
    })
    .collect()
}

/// Bytes of the widest keys whose records with a position fit a vector's lanes: 64 bits.
const NARROW: usize = 4;

/// How records are sorted.
#[derive(Debug, Clone, Copy)]
enum Method {
    Std,
    Radix,
    Parallel,
    Network(Level),
}

knobs! {
    /// Parameters of the radix sort.
    struct RadixKnobs {
        /// Bits of a digit: more means fewer passes and more counters.
        digit_bits,
        /// The most significant digit first (1), or last (0).
        top_first,
    }
}

knobs! {
    /// Parameters of the parallel sort.
    struct ParallelKnobs {
        /// Threads that work at once.
        threads,
        /// Bits of a digit.
        digit_bits,
        /// The most significant digit first (1), or last (0).
        top_first,
    }
}

impl ParallelKnobs {
    fn digits(self) -> Digits {
        Digits {
            bits: self.digit_bits,
            top_first: self.top_first != 0,
        }
    }
}

/// Bits of the digits by which keys are mostly sorted.
const DIGIT: u32 = 8;
/// Passes over a digit that merging two parts takes as long as, on both threads: of 10,000, 100,000 and a million keys of 32 bits, four digits, two
/// threads took 0.77, 0.69 and 0.67 of the time of one (f32) and 0.78, 0.92 and 0.66 (u32) on a server processor of 2023, of 64 bits 0.74, 0.46 and 0.57
/// (`kernelwise bench ops --op sort --threads 2`), where half would be no merging at all.
const MERGE_PASSES: f64 = 2.0;

/// Keys of a row from which its top digit is better sorted first, unless measured otherwise.
const LONG: usize = 2048;

#[derive(Debug)]
struct SortKernel {
    spec: KernelSpec,
    method: Method,
}

impl SortKernel {
    fn new(dtypes: &[DType], method: Method) -> Result<Self, InvalidKernelId> {
        let (variant, technique) = match method {
            Method::Std => ("std".to_owned(), Technique::Library),
            Method::Radix => ("radix".to_owned(), Technique::Algorithmic),
            Method::Parallel => ("parallel".to_owned(), Technique::Algorithmic),
            Method::Network(level) => (format!("network-{}", level.name()), Technique::Vector),
        };
        let mut spec = spec("sort", dtypes, &variant, technique, Numerics::BitIdentical)?
            .following(LayoutKind::Strided);
        // Times of the versions before are of few different keys.
        spec.version += 1;
        let spec = match method {
            Method::Network(level) => spec.on(level),
            Method::Std | Method::Radix | Method::Parallel => spec,
        };
        Ok(Self { spec, method })
    }

    /// Threads and digits of a setting, whatever it holds.
    fn knobs(&self, setting: &Setting) -> ParallelKnobs {
        match self.method {
            Method::Parallel => ParallelKnobs::of(setting),
            Method::Radix => {
                let RadixKnobs {
                    digit_bits,
                    top_first,
                } = RadixKnobs::of(setting);
                ParallelKnobs {
                    threads: 1,
                    digit_bits,
                    top_first,
                }
            }
            Method::Std | Method::Network(_) => ParallelKnobs {
                threads: 1,
                digit_bits: 0,
                top_first: 0,
            },
        }
    }
}

/// The sort of a workload, and how long its rows are.
fn problem(workload: &Workload) -> Option<(&Sort, usize)> {
    match workload.operation() {
        Operation::Sort(op) => Some((op, *op.shape.dims().get(op.axis)?)),
        _ => None,
    }
}

impl Kernel for SortKernel {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        let refuse = |condition: &str| {
            Err(Refusal::Shape {
                condition: condition.to_owned(),
            })
        };
        let Some((op, len)) = problem(workload) else {
            return refuse("needs a sort");
        };
        if u32::try_from(len).is_err() {
            return refuse("needs rows of fewer than 2^32 keys");
        }
        match self.method {
            Method::Network(_) if len > network::MAX_LEN => refuse("needs rows of at most 32 keys"),
            // The records would have 128 bits, which no vector register compares.
            Method::Network(_) if op.kind != SortKind::Keys && workload.dtype().size() > NARROW => {
                refuse("needs keys of at most 32 bits to move something along")
            }
            _ => Ok(()),
        }
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        // Wide digits save a pass only where keys are wide.
        let wide = if workload.dtype().size() >= 4 {
            &radix::DIGIT_BITS[..]
        } else {
            &radix::DIGIT_BITS[..1]
        };
        let digits = Axis::new(8, wide.iter().copied());
        let len = problem(workload).map_or(0, |(_, len)| len);
        let top = Axis::switch(len >= LONG);
        let text = "digit_bits = 8 where top_first = 1";
        match self.method {
            Method::Std | Method::Network(_) => Space::none(),
            Method::Radix => Space::of::<RadixKnobs, 2>([digits, top])
                .with_constraint(text, |knobs: RadixKnobs| {
                    knobs.top_first == 0 || knobs.digit_bits == 8
                }),
            Method::Parallel => {
                Space::of::<ParallelKnobs, 3>([Axis::threads(machine), digits, top])
                    .with_constraint(text, |knobs: ParallelKnobs| {
                        knobs.top_first == 0 || knobs.digit_bits == 8
                    })
            }
        }
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some((op, len)) = problem(workload) else {
            return Bytes(0);
        };
        let key = workload.dtype().size();
        let record = match op.kind {
            SortKind::Keys => key,
            SortKind::Arg | SortKind::Pairs(_) if key > NARROW => 16,
            SortKind::Arg | SortKind::Pairs(_) => 8,
        };
        let last = op.axis + 1 == op.shape.rank();
        let in_place =
            op.kind == SortKind::Keys && last && workload.layout() == LayoutKind::Contiguous;
        let knobs = self.knobs(setting);
        let Needs { records, counts } = self.needs(Sizes {
            rows: op.shape.elements() / len.max(1),
            len,
            key: key as u32 * 8,
            in_place,
            threads: threads(knobs.threads),
            digits: knobs.digits(),
        });
        let bytes = |count: usize, size: usize| Carver::room::<u8>(count.saturating_mul(size)).0;
        Bytes(bytes(records, record).saturating_add(bytes(counts, size_of::<u32>())))
    }

    fn hint(&self) -> Hint {
        // Sorting is nowhere near the bandwidth of a copy; what matters is the order among these. Two threads took 0.77 of the time of
        // one for 10,000 keys, and as long for 1,000.
        match self.method {
            Method::Std => Hint::percent(4).best_for(0..=4096),
            Method::Radix => Hint::percent(10).best_for(4096..=u64::MAX),
            Method::Parallel => Hint::percent(10).best_for(1 << 13..=u64::MAX),
            Method::Network(_) => Hint::percent(20),
        }
    }

    fn sharing(&self, workload: &Workload, setting: &Setting) -> Sharing {
        let Some((op, len)) = problem(workload) else {
            return Sharing::default();
        };
        let knobs = self.knobs(setting);
        let (rows, threads) = (op.shape.elements() / len.max(1), threads(knobs.threads));
        if whole_rows(rows, len, threads) {
            return Sharing::parts(rows as u64);
        }
        let rounds = merge::rounds(len, threads);
        let passes = (workload.dtype().size() * 8) as f64 / f64::from(DIGIT);
        // Row after row.
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        Sharing::default()
            .forked((1 + rounds).saturating_mul(rows))
            .with_extra(f64::from(rounds) * MERGE_PASSES / passes)
    }
}

/// Whether threads take whole rows of this length. If not, they share each row.
fn whole_rows(rows: usize, len: usize, threads: usize) -> bool {
    threads < 2 || rows >= threads.saturating_mul(2) || len < threads.saturating_mul(2)
}

/// What the amount of scratch memory depends on.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    len: usize,
    /// Bits of a key.
    key: u32,
    /// Whether the output serves as one of the buffers.
    in_place: bool,
    threads: usize,
    digits: Digits,
}

/// Scratch memory: records, and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needs {
    records: usize,
    counts: usize,
}

impl Sizes {
    /// Whether threads take whole rows. If not, they share each row.
    fn whole_rows(&self) -> bool {
        whole_rows(self.rows, self.len, self.threads)
    }

    /// How many rows are sorted at once, each with buffers of its own.
    fn at_once(&self) -> usize {
        if self.whole_rows() {
            most_pieces(self.threads, Schedule::Static).min(self.rows.max(1))
        } else {
            1
        }
    }
}

impl SortKernel {
    fn needs(&self, sizes: Sizes) -> Needs {
        let spare = usize::from(sizes.in_place);
        match self.method {
            Method::Network(_) => Needs {
                records: 0,
                counts: 0,
            },
            Method::Std => Needs {
                records: sizes.len * (1 - spare),
                counts: 0,
            },
            Method::Radix | Method::Parallel if sizes.whole_rows() => {
                let buffers = sizes.digits.buffers(sizes.key);
                // The output takes the place of the second.
                let buffers = if buffers == 2 { 2 - spare } else { buffers };
                Needs {
                    records: (sizes.len * buffers).saturating_mul(sizes.at_once()),
                    counts: sizes.digits.counters(sizes.key) * sizes.at_once(),
                }
            }
            Method::Radix | Method::Parallel => Needs {
                records: sizes.len * (2 - spare),
                counts: sizes.digits.counters(sizes.key) * sizes.threads,
            },
        }
    }
}

impl HostKernel for SortKernel {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let Operation::Sort(op) = workload.operation() else {
            return Err(self.unfit());
        };
        if !made_for(&self.spec, workload) {
            return Err(self.unfit());
        }
        self.accepts(workload).map_err(|refusal| Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal,
        })?;
        match workload.dtype().size() {
            1 => self.run::<u8>(op, inputs, outputs, setting, scratch),
            2 => self.run::<u16>(op, inputs, outputs, setting, scratch),
            4 => self.run::<u32>(op, inputs, outputs, setting, scratch),
            8 => self.run::<u64>(op, inputs, outputs, setting, scratch),
            _ => Err(self.unfit()),
        }
    }
}
