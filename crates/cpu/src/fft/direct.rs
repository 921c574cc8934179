//! Tiny real rows as products with a matrix.
//!
//! Every transform of n numbers is linear, so each of its results is a sum of the row's real and imaginary parts with fixed
//! weights. For n up to 16 the weights fit a cache and many rows go through the same arithmetic at once, one in each
//! lane of a vector register; a fast algorithm saves little there and costs a copy and a call for each row. (Complex rows
//! are another matter: a library transforms a whole batch of them in one call.)

use std::f64::consts::FRAC_PI_2;

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Sharing, Space,
};
use kernelwise_types::op::FftKind;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::{FftKnobs, Real, Rows, problem, unfit};
use crate::declare::{Needing, spec};
use crate::index::memory::made_for;
use crate::isa::Level;
use crate::pool::{self, Schedule, share};
use crate::vector_math::{self, MathBody};

/// Longest row.
pub(super) const MAX_LEN: usize = 16;

/// Most numbers of a row: the real and imaginary parts of the longest half spectrum.
const MAX_NUMBERS: usize = 2 * (MAX_LEN / 2 + 1);

/// Rows transformed at once.
const LANES: usize = 16;

/// Results computed at once.
const RESULTS: usize = 4;

/// The weights of one transform.
#[derive(Debug)]
struct Weights<T> {
    kind: FftKind,
    len: usize,
    /// Numbers of a row before and after.
    from: usize,
    to: usize,
    /// Numbers of the input that are passed over: imaginary parts that no real row has.
    unused: [Option<usize>; 2],
    /// For each number of the result one weight for each of the input; rounded up to whole groups of results.
    weights: Vec<[T; MAX_NUMBERS]>,
}

/// cos and sin of a whole turn's r/n, exact at quarter turns.
fn turn(r: usize, n: usize) -> (f64, f64) {
    let (quarter, rest) = (4 * (r % n) / n, 4 * (r % n) % n);
    let (sin, cos) = (FRAC_PI_2 * rest as f64 / n as f64).sin_cos();
    match quarter {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    }
}

impl<T: Real> Weights<T> {
    /// `None` for transforms between complex rows.
    fn new(kind: FftKind, n: usize) -> Option<Self> {
        let half = n / 2 + 1;
        let scale = 1.0 / n as f64;
        let forward = |result: usize, number: usize| {
            let (cos, sin) = turn(number * (result / 2), n);
            [cos, -sin][result % 2]
        };
        let back = |result: usize, number: usize| {
            let k = number / 2;
            let (cos, sin) = turn(result * k, n);
            // An element and its mirror image add up to twice the real part.
            let twice = if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
            scale * twice * [cos, -sin][number % 2]
        };
        let weight: &dyn Fn(usize, usize) -> f64;
        let (from, to, unused) = match kind {
            FftKind::Real => {
                weight = &forward;
                (n, 2 * half, [None, None])
            }
            FftKind::InverseReal => {
                weight = &back;
                (2 * half, n, [Some(1), n.is_multiple_of(2).then_some(n + 1)])
            }
            FftKind::Forward | FftKind::Inverse => return None,
        };
        let row = |result: usize| {
            std::array::from_fn(|number| {
                T::near(if result < to && number < from {
                    weight(result, number)
                } else {
                    0.0
                })
            })
        };
        let weights = (0..to.next_multiple_of(RESULTS)).map(row).collect();
        Some(Self {
            kind,
            len: n,
            from,
            to,
            unused,
            weights,
        })
    }
}

/// Real to half a spectrum, and back.
#[derive(Debug)]
pub(super) struct DirectKernel<T> {
    spec: KernelSpec,
    level: Level,
    weights: Vec<Weights<T>>,
}

impl<T: Real> DirectKernel<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let dtypes = [T::DTYPE, <T::Complex as Element>::DTYPE];
        let variant = format!("direct-{}", level.name());
        let spec = spec(
            "fft",
            &dtypes,
            &variant,
            Technique::Vector,
            Numerics::Reordered,
        )?
        .on(level);
        let lengths = |kind| (1..=MAX_LEN).filter_map(move |len| Weights::new(kind, len));
        let weights = lengths(FftKind::Real)
            .chain(lengths(FftKind::InverseReal))
            .collect();
        Ok(Self {
            spec,
            level,
            weights,
        })
    }

    fn weights(&self, workload: &Workload) -> Option<&Weights<T>> {
        let (op, _, len) = problem(workload)?;
        self.weights
            .iter()
            .find(|weights| weights.kind == op.kind && weights.len == len)
    }
}

impl<T: Real> Kernel for DirectKernel<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match self.weights(workload) {
            Some(_) => Ok(()),
            None => Err(Refusal::Shape {
                condition: "needs real rows of at most 16 elements".to_owned(),
            }),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<FftKnobs, 1>([Axis::threads(machine)])
    }

    fn hint(&self) -> Hint {
        Hint::percent(30)
    }

    fn sharing(&self, workload: &Workload, _setting: &Setting) -> Sharing {
        // As many rows as a vector has lanes are one thread's.
        problem(workload).map_or_else(Sharing::default, |(_, rows, _)| {
            Sharing::parts(rows.div_ceil(LANES) as u64)
        })
    }
}

impl<T: Real> HostKernel for DirectKernel<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let ([input], [output]) = (inputs, outputs) else {
            return Err(unfit(&self.spec));
        };
        if !made_for(&self.spec, workload) {
            return Err(unfit(&self.spec));
        }
        let Some((weights, (_, rows, _))) = self.weights(workload).zip(problem(workload)) else {
            return Err(unfit(&self.spec));
        };
        let from = match weights.kind {
            FftKind::Real => input.as_slice::<T>()?,
            _ => numbers(T::pairs(input.as_slice::<T::Complex>()?)),
        };
        let to = match weights.kind {
            FftKind::InverseReal => output.as_mut_slice::<T>()?,
            _ => numbers_mut(T::pairs_mut(output.as_mut_slice::<T::Complex>()?)),
        };
        if from.len() != rows * weights.from || to.len() != rows * weights.to {
            return Err(unfit(&self.spec));
        }
        let to = Rows::new(to);
        let threads = pool::threads(FftKnobs::of(setting).threads);
        share(threads, Schedule::Static, rows, LANES, |_, range| {
            let from = &from[range.start * weights.from..range.end * weights.from];
            // SAFETY: ranges do not overlap, so neither do their rows.
            let to = unsafe { to.part(range.start * weights.to, range.len() * weights.to) };
            vector_math::run(self.level, Product { weights, from, to });
        });
        Ok(())
    }
}

/// Complex numbers as twice as many real ones.
fn numbers<T>(pairs: &[num_complex::Complex<T>]) -> &[T] {
    // SAFETY: a complex number is two real ones, one after the other (`repr(C)`).
    unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), 2 * pairs.len()) }
}

fn numbers_mut<T>(pairs: &mut [num_complex::Complex<T>]) -> &mut [T] {
    // SAFETY: as above; the exclusive borrow is passed on.
    unsafe { std::slice::from_raw_parts_mut(pairs.as_mut_ptr().cast(), 2 * pairs.len()) }
}

/// Rows times weights; with fused multiply-add where the level has it.
struct Product<'a, T> {
    weights: &'a Weights<T>,
    from: &'a [T],
    to: &'a mut [T],
}

impl<T: Real> MathBody for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Weights {
            from: width,
            to: results,
            unused,
            weights,
            ..
        } = self.weights;
        let (width, results) = (*width, *results);
        let mut block = [[T::default(); LANES]; MAX_NUMBERS];
        let blocks = self
            .from
            .chunks(LANES * width)
            .zip(self.to.chunks_mut(LANES * results));
        for (from, to) in blocks {
            for (lane, row) in from.chunks_exact(width).enumerate() {
                for (numbers, &number) in block.iter_mut().zip(row) {
                    numbers[lane] = number;
                }
            }
            // Set to zero rather than weighed with it: what is not finite must not come through.
            for &number in unused.iter().flatten() {
                block[number] = [T::default(); LANES];
            }
            for (group, weights) in weights.chunks_exact(RESULTS).enumerate() {
                let mut sums = [[T::default(); LANES]; RESULTS];
                for (number, x) in block[..width].iter().enumerate() {
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        let weight = weights[number];
                        for (sum, &x) in sum.iter_mut().zip(x) {
                            *sum = if FUSED {
                                T::fused(weight, x, *sum)
                            } else {
                                weight * x + *sum
                            };
                        }
                    }
                }
                for (result, sum) in (group * RESULTS..results).zip(&sums) {
                    for (row, &sum) in to.chunks_exact_mut(results).zip(sum) {
                        row[result] = sum;
                    }
                }
            }
        }
    }
}
