//! Peak arithmetic: multiply-adds on registers, nothing else.

use std::hint::black_box;

use kernelwise_types::DType;
use kernelwise_types::calibration::Peak;

use super::contest::Contest;
use super::crew::Until;
use super::loops::Loops;
use super::{Bench, CalibrateError, Findings, LEAST_SAMPLES, Step, threads_text};

/// Element types whose peak is measured.
pub(super) const MEASURED: [DType; 3] = [DType::F32, DType::F64, DType::I32];

/// Operations of one thread in one sample: some 0.1 ms with the widest vectors of today, 1 ms without
/// any. Short enough to fall between two interrupts, long enough for any clock.
const SAMPLE_FLOPS: u64 = 16 << 20;

/// A factor so small that values near one stay there over a whole sample.
const TINY: f64 = 1e-9;

/// Why an element type has no peak of its own.
pub(super) fn not_measured(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 | DType::F64 | DType::I32 => None,
        DType::F16 | DType::Bf16 => {
            Some("kernels convert to f32 to compute; no loop uses instructions of its own")
        }
        DType::Complex64 => Some("its operations are f32 operations: compare with the peak of f32"),
        DType::Complex128 => {
            Some("its operations are f64 operations: compare with the peak of f64")
        }
        DType::Bool => Some("truth values have no arithmetic"),
        _ => Some("of the integers only i32 has a loop"),
    }
}

/// What a loop does to its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    F32,
    F64,
    I32,
    /// Sums only: the ceiling where integers are multiplied slowly.
    I32Sums,
}

/// Runs the loop and returns its operations.
fn run(loops: &dyn Loops, arithmetic: Arithmetic, rounds: u32) -> u64 {
    match arithmetic {
        Arithmetic::F32 => black_box(loops.multiply_add_f32(rounds, black_box(TINY as f32))).flops,
        Arithmetic::F64 => black_box(loops.multiply_add_f64(rounds, black_box(TINY))).flops,
        Arithmetic::I32 => {
            black_box(loops.multiply_add_i32(rounds, black_box(3), black_box(1))).flops
        }
        Arithmetic::I32Sums => black_box(loops.add_i32(rounds, black_box(1))).flops,
    }
}

/// The peak of one element type with one thread count.
#[derive(Debug)]
pub(super) struct PeakStep<'a> {
    dtype: DType,
    threads: u32,
    contest: Contest<(&'a dyn Loops, Arithmetic)>,
}

impl<'a> PeakStep<'a> {
    pub(super) fn new(loops: &'a [Box<dyn Loops>], dtype: DType, threads: u32) -> Self {
        let ways: &[Arithmetic] = match dtype {
            DType::F64 => &[Arithmetic::F64],
            DType::I32 => &[Arithmetic::I32, Arithmetic::I32Sums],
            _ => &[Arithmetic::F32],
        };
        let contenders = loops
            .iter()
            .flat_map(|loops| ways.iter().map(|way| (&**loops, *way)));
        Self {
            dtype,
            threads,
            contest: Contest::new(contenders),
        }
    }
}

impl Step for PeakStep<'_> {
    fn name(&self) -> String {
        format!("peak {}, {}", self.dtype, threads_text(self.threads))
    }

    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError> {
        let (crew, threads) = (&bench.crew, self.threads);
        let now = crew.clock().now();
        self.contest.visit(now, deadline, |(loops, way), deadline| {
            let round_flops = run(loops, way, 1);
            let rounds = (SAMPLE_FLOPS / round_flops) as u32;
            let work = move || {
                run(loops, way, rounds);
            };
            let until = Until {
                deadline,
                least: LEAST_SAMPLES,
            };
            let samples = crew.sample(vec![work; threads as usize], until)?;
            let flops = round_flops * u64::from(rounds) * u64::from(threads);
            Ok((flops, samples))
        })
    }

    fn report(&self, findings: &mut Findings) -> bool {
        let Some(((loops, _), rate)) = self.contest.winner() else {
            return false;
        };
        findings.peaks.push(Peak {
            dtype: self.dtype,
            threads: self.threads,
            isa: loops.isa(),
            rate,
        });
        true
    }
}
