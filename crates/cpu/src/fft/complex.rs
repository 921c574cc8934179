//! Complex rows through `rustfft`.

use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Sharing, Space,
};
use kernelwise_types::op::FftKind;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};
use rustfft::{Fft, FftDirection, FftPlanner};

use super::plans::Plans;
use super::{FftKnobs, Real, Rows, problem, unfit};
use crate::declare::spec;
use crate::pool::{self, Schedule, most_pieces, share};

/// Longest row a plan is made for: plans hold tables as long as the row.
pub(super) const MAX_LEN: usize = 1 << 27;

/// Bytes of rows that are transformed before they are divided by their length, so that they are still near.
const NEAR: usize = 16 << 10;

/// Complex to complex, in both directions.
#[derive(Debug)]
pub(super) struct ComplexKernel<T: Real> {
    spec: KernelSpec,
    plans: Plans<dyn Fft<T>>,
}

impl<T: Real> ComplexKernel<T> {
    pub(super) fn new() -> Result<Self, InvalidKernelId> {
        let dtype = <T::Complex as Element>::DTYPE;
        let spec = spec(
            "fft",
            &[dtype],
            "rustfft",
            Technique::Library,
            Numerics::Reordered,
        )?;
        Ok(Self {
            spec,
            plans: Plans::new(),
        })
    }

    fn plan(&self, len: usize, back: bool) -> Arc<dyn Fft<T>> {
        let direction = if back {
            FftDirection::Inverse
        } else {
            FftDirection::Forward
        };
        self.plans
            .get(len, back, || FftPlanner::new().plan_fft(len, direction))
    }
}

/// Refuses what no plan is made for.
pub(super) fn plannable(workload: &Workload) -> Result<(), Refusal> {
    match problem(workload) {
        Some((_, _, len)) if len <= MAX_LEN => Ok(()),
        _ => Err(Refusal::Shape {
            condition: "needs rows of at most 2^27 elements".to_owned(),
        }),
    }
}

impl<T: Real> Kernel for ComplexKernel<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        plannable(workload)
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<FftKnobs, 1>([Axis::threads(machine)])
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some((op, rows, len)) = problem(workload).filter(|_| plannable(workload).is_ok())
        else {
            return Bytes(0);
        };
        let plan = self.plan(len, op.kind == FftKind::Inverse);
        let threads = pool::threads(FftKnobs::of(setting).threads);
        let pieces = most_pieces(threads, Schedule::Static).min(rows);
        Carver::room::<T::Complex>(plan.get_immutable_scratch_len().saturating_mul(pieces))
    }

    fn hint(&self) -> Hint {
        Hint::percent(30)
    }

    fn sharing(&self, workload: &Workload, _setting: &Setting) -> Sharing {
        // A row is one thread's.
        problem(workload).map_or_else(Sharing::default, |(_, rows, _)| Sharing::parts(rows as u64))
    }
}

impl<T: Real> HostKernel for ComplexKernel<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let ([input], [output]) = (inputs, outputs) else {
            return Err(unfit(&self.spec));
        };
        let problem = problem(workload).filter(|_| plannable(workload).is_ok());
        let Some((op, rows, len)) =
            problem.filter(|(op, ..)| matches!(op.kind, FftKind::Forward | FftKind::Inverse))
        else {
            return Err(unfit(&self.spec));
        };
        let back = op.kind == FftKind::Inverse;
        let input = T::pairs(input.as_slice::<T::Complex>()?);
        let output = T::pairs_mut(output.as_mut_slice::<T::Complex>()?);
        let plan = self.plan(len, back);
        let each = plan.get_immutable_scratch_len();
        let threads = pool::threads(FftKnobs::of(setting).threads);
        let pieces = most_pieces(threads, Schedule::Static).min(rows);
        let scratch = Rows::new(T::pairs_mut(
            scratch
                .carve()
                .take::<T::Complex>(each.saturating_mul(pieces))?,
        ));
        let output = Rows::new(output);
        let scale = T::near(1.0 / len as f64);
        share(threads, Schedule::Static, rows, 1, |piece, range| {
            // SAFETY: every piece has a number of its own below `pieces`, and rows of its own.
            let scratch = unsafe { scratch.part(piece * each, each) };
            let group = if back {
                (NEAR / (len * size_of::<T::Complex>())).max(1)
            } else {
                range.len()
            };
            let mut row = range.start;
            while row < range.end {
                let count = group.min(range.end - row);
                let from = &input[row * len..(row + count) * len];
                // SAFETY: as above.
                let to = unsafe { output.part(row * len, count * len) };
                plan.process_immutable_with_scratch(from, to, scratch);
                if back {
                    for value in to {
                        value.re *= scale;
                        value.im *= scale;
                    }
                }
                row += count;
            }
        });
        Ok(())
    }
}
