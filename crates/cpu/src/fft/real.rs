//! Real rows and half spectra through `realfft`.

use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Sharing, Space,
};
use kernelwise_types::op::FftKind;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::complex::plannable;
use super::plans::Plans;
use super::{FftKnobs, Real, Rows, problem, unfit};
use crate::declare::spec;
use crate::pool::{self, Schedule, most_pieces, share};

/// Real to half a spectrum, and back.
#[derive(Debug)]
pub(super) struct RealKernel<T: Real> {
    spec: KernelSpec,
    plans: Plans<dyn RealToComplex<T>>,
    plans_back: Plans<dyn ComplexToReal<T>>,
}

/// Scratch memory of one thread, in elements.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// The library works in its input, so a row is copied here first: real numbers, or complex ones on the way back.
    real: usize,
    complex: usize,
    /// What the library asks for.
    library: usize,
}

impl<T: Real> RealKernel<T> {
    pub(super) fn new() -> Result<Self, InvalidKernelId> {
        let dtypes = [T::DTYPE, <T::Complex as Element>::DTYPE];
        let spec = spec(
            "fft",
            &dtypes,
            "realfft",
            Technique::Library,
            Numerics::Reordered,
        )?;
        Ok(Self {
            spec,
            plans: Plans::new(),
            plans_back: Plans::new(),
        })
    }

    fn plan(&self, len: usize) -> Arc<dyn RealToComplex<T>> {
        self.plans
            .get(len, false, || RealFftPlanner::new().plan_fft_forward(len))
    }

    fn plan_back(&self, len: usize) -> Arc<dyn ComplexToReal<T>> {
        self.plans_back
            .get(len, true, || RealFftPlanner::new().plan_fft_inverse(len))
    }

    fn room(&self, kind: FftKind, len: usize) -> Room {
        match kind {
            FftKind::InverseReal => Room {
                real: 0,
                complex: len / 2 + 1,
                library: self.plan_back(len).get_scratch_len(),
            },
            _ => Room {
                real: len,
                complex: 0,
                library: self.plan(len).get_scratch_len(),
            },
        }
    }
}

impl<T: Real> Kernel for RealKernel<T> {
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
        let room = self.room(op.kind, len);
        let threads = pool::threads(FftKnobs::of(setting).threads);
        let pieces = most_pieces(threads, Schedule::Static).min(rows);
        let complex =
            Carver::room::<T::Complex>((room.complex + room.library).saturating_mul(pieces)).0;
        Bytes(complex.saturating_add(Carver::room::<T>(room.real.saturating_mul(pieces)).0))
    }

    fn hint(&self) -> Hint {
        Hint::percent(25)
    }

    fn sharing(&self, workload: &Workload, _setting: &Setting) -> Sharing {
        // A row is one thread's.
        problem(workload).map_or_else(Sharing::default, |(_, rows, _)| Sharing::parts(rows as u64))
    }
}

impl<T: Real> HostKernel for RealKernel<T> {
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
            problem.filter(|(op, ..)| matches!(op.kind, FftKind::Real | FftKind::InverseReal))
        else {
            return Err(unfit(&self.spec));
        };
        let half = len / 2 + 1;
        let room = self.room(op.kind, len);
        let each = room.complex + room.library;
        let threads = pool::threads(FftKnobs::of(setting).threads);
        let pieces = most_pieces(threads, Schedule::Static).min(rows);
        // The views are asked before memory is, so that a wrong call says what is wrong with it.
        if op.kind == FftKind::Real {
            let input = input.as_slice::<T>()?;
            let output = Rows::new(T::pairs_mut(output.as_mut_slice::<T::Complex>()?));
            let plan = self.plan(len);
            let lengths = (plan.len(), plan.complex_len());
            if lengths != (len, half) || input.len() != rows * len || output.len != rows * half {
                return Err(unfit(&self.spec));
            }
            let mut memory = scratch.carve();
            let complex = Rows::new(T::pairs_mut(
                memory.take::<T::Complex>(each.saturating_mul(pieces))?,
            ));
            let copies = Rows::new(memory.take::<T>(room.real.saturating_mul(pieces))?);
            share(threads, Schedule::Static, rows, 1, |piece, range| {
                // SAFETY: every piece has a number of its own below `pieces`, and rows of its own.
                let (scratch, copy) = unsafe {
                    (
                        complex.part(piece * each, each),
                        copies.part(piece * len, len),
                    )
                };
                for row in range {
                    copy.copy_from_slice(&input[row * len..(row + 1) * len]);
                    // SAFETY: as above.
                    let to = unsafe { output.part(row * half, half) };
                    // The library refuses slices of other lengths than its plan has, and these were compared.
                    let done = plan.process_with_scratch(copy, to, scratch);
                    debug_assert!(done.is_ok());
                }
            });
        } else {
            let input = T::pairs(input.as_slice::<T::Complex>()?);
            let output = Rows::new(output.as_mut_slice::<T>()?);
            let plan = self.plan_back(len);
            let lengths = (plan.len(), plan.complex_len());
            if lengths != (len, half) || input.len() != rows * half || output.len != rows * len {
                return Err(unfit(&self.spec));
            }
            let complex = scratch
                .carve()
                .take::<T::Complex>(each.saturating_mul(pieces))?;
            let complex = Rows::new(T::pairs_mut(complex));
            let scale = T::near(1.0 / len as f64);
            share(threads, Schedule::Static, rows, 1, |piece, range| {
                // SAFETY: every piece has a number of its own below `pieces`, and rows of its own.
                let memory = unsafe { complex.part(piece * each, each) };
                let (copy, scratch) = memory.split_at_mut(half);
                for row in range {
                    copy.copy_from_slice(&input[row * half..(row + 1) * half]);
                    // No real row has these; the library would complain.
                    copy[0].im = T::default();
                    if len % 2 == 0 {
                        copy[half - 1].im = T::default();
                    }
                    // SAFETY: as above.
                    let to = unsafe { output.part(row * len, len) };
                    // As above; the imaginary parts it would complain of are zero.
                    let done = plan.process_with_scratch(copy, to, scratch);
                    debug_assert!(done.is_ok());
                    to.iter_mut().for_each(|value| *value *= scale);
                }
            });
        }
        Ok(())
    }
}
