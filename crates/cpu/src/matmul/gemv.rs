//! A matrix by a vector: `m` or `n` is 1.
//!
//! Every value of the matrix is read once, so the matrix is walked the way it lies in memory, several rows at a time:
//!
//! - where rows of the memory belong to one element of the result each (`a · x`, or `x · b` with `b` transposed), as
//!   *dot products* of rows with the vector;
//! - else (`x · b`, or `a` transposed) as a *combination* of rows, weighted by the vector and added up in the result.
//!
//! Threads share out the elements of the result, over all matrices of a batch.
#![allow(unsafe_code)]

use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Matmul, Operation};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{float32x4_t, float64x2_t};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

use crate::declare::{Needing, spec};
use crate::gemm::{Array, Vector};
use crate::isa::Level;
use crate::pool::{self, Schedule};

knobs! {
    /// How the matrix is walked.
    pub(crate) struct GemvKnobs {
        /// Threads that work at once.
        threads,
        /// Rows of the matrix that are read at once: 1, 2, 4 or 8.
        unroll,
    }
}

/// The kernels, for the instruction sets this processor has.
pub(super) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels: Vec<Arc<dyn HostKernel>> = Vec::new();
    for &level in levels {
        kernels.push(Arc::new(Gemv::<f32>::new(level)?));
        kernels.push(Arc::new(Gemv::<f64>::new(level)?));
    }
    Ok(kernels)
}

/// Rows that are read at once unless a setting says otherwise.
const UNROLL: u32 = 8;

/// Elements of the result that rows are combined into before the next ones: they stay in the first cache.
const STRIP: usize = 2048;

/// Elements of the result, at the least, that a thread takes: a cache line or more.
const GRAIN: usize = 16;

/// The kernel for one element type and level.
#[derive(Debug)]
struct Gemv<T: 'static> {
    spec: KernelSpec,
    walks: &'static Walks<T>,
}

impl<T: Real> Gemv<T> {
    fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("gemv-{}", level.name());
        let spec = spec(
            "matmul",
            &[T::DTYPE],
            &variant,
            Technique::Vector,
            Numerics::Reordered,
        )?;
        Ok(Self {
            spec: spec.on(level),
            walks: T::walks(level),
        })
    }

    fn refusal() -> Refusal {
        Refusal::Shape {
            condition: "needs a vector: m or n of 1".to_owned(),
        }
    }
}

/// A product with a vector, seen from its matrix.
struct Shape {
    /// Elements of one result.
    length: usize,
    /// Elements of one vector.
    depth: usize,
    /// The matrix is `b`.
    matrix_is_b: bool,
    /// Rows of the memory belong to one element of the result each.
    dots: bool,
}

impl Shape {
    /// `None` if neither side is a vector.
    fn of(product: &Matmul) -> Option<Self> {
        let depth = product.k;
        match (product.m, product.n) {
            (1, length) => Some(Self {
                length,
                depth,
                matrix_is_b: true,
                // One column is one row, in memory.
                dots: product.trans_b || length == 1,
            }),
            (length, 1) => Some(Self {
                length,
                depth,
                matrix_is_b: false,
                dots: !product.trans_a,
            }),
            _ => None,
        }
    }
}

impl<T: Real> Kernel for Gemv<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match workload.operation() {
            Operation::Matmul(product) if product.m == 1 || product.n == 1 => Ok(()),
            _ => Err(Self::refusal()),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<GemvKnobs, 2>([Axis::threads(machine), Axis::new(UNROLL, [1, 2, 4, 8])])
    }

    fn hint(&self) -> Hint {
        Hint::percent(80)
    }
}

impl<T: Real> HostKernel for Gemv<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let shape = match (workload.operation(), inputs, &*outputs) {
            (Operation::Matmul(product), [_, _], [_]) => Shape::of(product),
            _ => None,
        };
        let Some(shape) = shape else {
            return Err(Fault::Refused {
                kernel: self.spec.id.to_string(),
                refusal: Self::refusal(),
            });
        };
        let (a, b) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<T>()?);
        let (matrix, vector) = if shape.matrix_is_b { (b, a) } else { (a, b) };
        let result = outputs[0].as_mut_slice::<T>()?;
        let knobs = GemvKnobs::of(setting);
        let threads = pool::threads(knobs.threads);
        let walk = walk(self.walks, knobs.unroll);
        pool::share_slice(
            threads,
            Schedule::Static,
            result,
            GRAIN,
            |position, piece| {
                let (mut position, mut rest) = (position, piece);
                while !rest.is_empty() {
                    let (number, first) = (position / shape.length, position % shape.length);
                    let (now, later) = rest.split_at_mut(rest.len().min(shape.length - first));
                    let size = shape.length * shape.depth;
                    let matrix = matrix[number * size..][..size].as_ptr();
                    let vector = &vector[number * shape.depth..][..shape.depth];
                    // SAFETY: the matrix of this number has a row or a column for each element of the result, from
                    // `first` on there are enough for `now`, and the walk is that of a level that exists.
                    unsafe {
                        if shape.dots {
                            (walk.dots)(matrix.add(first * shape.depth), vector, now);
                        } else {
                            for (strip, now) in now.chunks_mut(STRIP).enumerate() {
                                let column = matrix.add(first + strip * STRIP);
                                (walk.combine)(column, shape.length, vector, now);
                            }
                        }
                    }
                    position += now.len();
                    rest = later;
                }
            },
        );
        Ok(())
    }
}

/// Dot products of the first rows of a matrix, one for each element of the result; rows are as long as the vector.
/// To be called with a matrix of at least so many rows, on a processor that has the level.
type Dots<T> = unsafe fn(matrix: *const T, vector: &[T], result: &mut [T]);

/// The rows of a matrix, `stride` apart, weighted by the vector and added up. To be called with a matrix of as many rows
/// as the vector has elements, each readable as far as the result is long, on a processor that has the level.
type Combine<T> = unsafe fn(matrix: *const T, stride: usize, vector: &[T], result: &mut [T]);

/// Both ways through a matrix, so many rows at a time.
#[derive(Debug)]
struct Walk<T: 'static> {
    rows: u32,
    dots: Dots<T>,
    combine: Combine<T>,
}

/// The ways of one level.
type Walks<T> = [Walk<T>; 4];

/// The numbers that are multiplied here.
trait Real: Element {
    /// The ways of a level.
    fn walks(level: Level) -> &'static Walks<Self>;
}

/// The walk that reads so many rows at once, or the next that reads more, or the last.
fn walk<T>(walks: &Walks<T>, rows: u32) -> &Walk<T> {
    let [.., last] = walks;
    walks.iter().find(|walk| walk.rows >= rows).unwrap_or(last)
}

/// The body of [`Dots`], to be inlined into a function that is compiled for the level: `R` rows at a time, each in
/// `U` sums.
///
/// # Safety
/// As [`Dots`] says.
#[inline(always)]
unsafe fn dots<V: Vector, const R: usize, const U: usize>(
    matrix: *const V::Scalar,
    vector: &[V::Scalar],
    result: &mut [V::Scalar],
) {
    let depth = vector.len();
    let mut row = matrix;
    let mut blocks = result.chunks_exact_mut(R);
    // SAFETY: there is a row for each element of the result, walked in order.
    unsafe {
        for block in &mut blocks {
            let totals = dots_of_rows::<V, R, U>(row, vector);
            block.copy_from_slice(&totals);
            row = row.wrapping_add(R * depth);
        }
        for element in blocks.into_remainder() {
            [*element] = dots_of_rows::<V, 1, SUMS>(row, vector);
            row = row.wrapping_add(depth);
        }
    }
}

/// Sums in flight: two multipliers with a latency of four.
const SUMS: usize = 8;

/// Dot products of `R` rows.
///
/// # Safety
/// There are so many rows, and the promises of [`Vector`] hold.
#[inline(always)]
unsafe fn dots_of_rows<V: Vector, const R: usize, const U: usize>(
    first: *const V::Scalar,
    vector: &[V::Scalar],
) -> [V::Scalar; R] {
    let depth = vector.len();
    let row = |r: usize, at: usize| first.wrapping_add(r * depth + at);
    let mut at = 0;
    // SAFETY: `at` and the lanes behind it stay below the depth, the last ones by a mask.
    unsafe {
        let mut sums = [[V::zero(); U]; R];
        while at + U * V::LANES <= depth {
            for u in 0..U {
                let at = at + u * V::LANES;
                let x = V::load(vector.as_ptr().add(at));
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[u] = V::load(row(r, at)).multiply_add(x, sums[u]);
                }
            }
            at += U * V::LANES;
        }
        while at < depth {
            let mask = V::mask(depth - at);
            let x = V::load_part(vector.as_ptr().add(at), mask);
            for (r, sums) in sums.iter_mut().enumerate() {
                sums[0] = V::load_part(row(r, at), mask).multiply_add(x, sums[0]);
            }
            at += V::LANES;
        }
        let mut totals = [V::Scalar::default(); R];
        for (total, sums) in totals.iter_mut().zip(sums) {
            let mut sum = V::zero();
            for part in sums {
                sum = sum.add(part);
            }
            *total = sum.total();
        }
        totals
    }
}

/// The body of [`Combine`], to be inlined into a function that is compiled for the level: `R` rows at a time.
///
/// # Safety
/// As [`Combine`] says.
#[inline(always)]
unsafe fn combine<V: Vector, const R: usize>(
    matrix: *const V::Scalar,
    stride: usize,
    vector: &[V::Scalar],
    result: &mut [V::Scalar],
) {
    let mut rows = matrix;
    let mut fresh = true;
    let mut groups = vector.chunks_exact(R);
    // SAFETY: there is a row for each element of the vector, walked in order.
    unsafe {
        for weights in &mut groups {
            combine_rows::<V, R>(rows, stride, weights, fresh, result);
            rows = rows.wrapping_add(R * stride);
            fresh = false;
        }
        for weight in groups.remainder() {
            combine_rows::<V, 1>(rows, stride, std::slice::from_ref(weight), fresh, result);
            rows = rows.wrapping_add(stride);
            fresh = false;
        }
    }
}

/// Adds `R` weighted rows to the result, or with `fresh` makes them the result.
///
/// # Safety
/// There are so many rows and weights, rows as long as the result, and the promises of [`Vector`] hold.
#[inline(always)]
unsafe fn combine_rows<V: Vector, const R: usize>(
    rows: *const V::Scalar,
    stride: usize,
    weights: &[V::Scalar],
    fresh: bool,
    result: &mut [V::Scalar],
) {
    let (length, result) = (result.len(), result.as_mut_ptr());
    let mut at = 0;
    // SAFETY: `at` and the lanes behind it stay below the length, the last ones by a mask.
    unsafe {
        let mut factors = [V::zero(); R];
        for (r, factor) in factors.iter_mut().enumerate() {
            *factor = V::splat(weights.as_ptr().add(r));
        }
        while at < length {
            let whole = at + V::LANES <= length;
            let mask = V::mask(length - at);
            let to = result.add(at);
            // Two sums, so that a row need not wait for all before it.
            let mut sums = [V::zero(); 2];
            if !fresh {
                sums[0] = if whole {
                    V::load(to)
                } else {
                    V::load_part(to, mask)
                };
            }
            for (r, factor) in factors.into_iter().enumerate() {
                let from = rows.wrapping_add(r * stride + at);
                let values = if whole {
                    V::load(from)
                } else {
                    V::load_part(from, mask)
                };
                sums[r % 2] = values.multiply_add(factor, sums[r % 2]);
            }
            let sum = sums[0].add(sums[1]);
            if whole {
                sum.store(to)
            } else {
                sum.store_part(to, mask)
            }
            at += V::LANES;
        }
    }
}

/// Compiles both walks for a level, one table per element type.
macro_rules! level {
    ($level:ident, $f32:ty, $f64:ty $(, $features:literal)?) => {
        mod $level {
            use super::*;

            /// # Safety
            /// As [`Dots`] says.
            $(#[target_feature(enable = $features)])?
            unsafe fn dots<V: Vector, const R: usize, const U: usize>(
                matrix: *const V::Scalar,
                vector: &[V::Scalar],
                result: &mut [V::Scalar],
            ) {
                // SAFETY: the caller keeps the promises.
                unsafe { super::dots::<V, R, U>(matrix, vector, result) }
            }

            /// # Safety
            /// As [`Combine`] says.
            $(#[target_feature(enable = $features)])?
            unsafe fn combine<V: Vector, const R: usize>(
                matrix: *const V::Scalar,
                stride: usize,
                vector: &[V::Scalar],
                result: &mut [V::Scalar],
            ) {
                // SAFETY: the caller keeps the promises.
                unsafe { super::combine::<V, R>(matrix, stride, vector, result) }
            }

            const fn walks<V: Vector>() -> Walks<V::Scalar> {
                [
                    Walk { rows: 1, dots: dots::<V, 1, SUMS>, combine: combine::<V, 1> },
                    Walk { rows: 2, dots: dots::<V, 2, 4>, combine: combine::<V, 2> },
                    Walk { rows: 4, dots: dots::<V, 4, 2>, combine: combine::<V, 4> },
                    Walk { rows: 8, dots: dots::<V, 8, 1>, combine: combine::<V, 8> },
                ]
            }

            pub(super) static F32: Walks<f32> = walks::<$f32>();
            pub(super) static F64: Walks<f64> = walks::<$f64>();
        }
    };
}

level!(portable, Array<f32, 4>, Array<f64, 2>);
#[cfg(target_arch = "x86_64")]
level!(avx2, __m256, __m256d, "avx2,fma");
#[cfg(target_arch = "x86_64")]
level!(
    avx512,
    __m512,
    __m512d,
    "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq"
);
#[cfg(target_arch = "aarch64")]
level!(neon, float32x4_t, float64x2_t, "neon");

/// The walks of the widest instruction set that a level includes.
macro_rules! real {
    ($scalar:ty, $table:ident) => {
        impl Real for $scalar {
            fn walks(level: Level) -> &'static Walks<Self> {
                #[cfg(target_arch = "x86_64")]
                if level.has_avx512() {
                    return &avx512::$table;
                } else if level.has_avx2() {
                    return &avx2::$table;
                }
                #[cfg(target_arch = "aarch64")]
                if level != Level::PORTABLE {
                    return &neon::$table;
                }
                let _ = level;
                &portable::$table
            }
        }
    };
}

real!(f32, F32);
real!(f64, F64);

#[cfg(test)]
mod tests {
    use super::super::small::tests::{check, check_changed, fault, named, text};
    use super::*;

    fn gemv() -> Vec<Arc<dyn HostKernel>> {
        named(kernels(&Level::all()).unwrap(), "gemv-")
    }

    fn setting(threads: u32, unroll: u32) -> Setting {
        GemvKnobs { threads, unroll }.setting()
    }

    #[test]
    fn both_sides_and_both_orders_are_right_at_every_length() {
        for kernel in gemv() {
            for length in [1, 2, 7, 16, 33, 67] {
                for depth in [1, 3, 8, 15, 64, 133] {
                    for rest in [
                        format!("1x{depth}x{length}"),
                        format!("1x{depth}x{length} tb"),
                        format!("{length}x{depth}x1"),
                        format!("{length}x{depth}x1 ta"),
                    ] {
                        check(&*kernel, &text(&*kernel, &rest), 0, &setting(1, 4));
                    }
                }
            }
        }
    }

    #[test]
    fn strips_threads_and_batches_fit_together() {
        for kernel in gemv() {
            for (threads, unroll) in [(1, 1), (2, 2), (3, 8), (0, 0), (2, 99)] {
                for rest in [
                    "1x5x4200",
                    "1x9x70 tb",
                    "70x9x1",
                    "70x9x1 ta",
                    "5x1x7x13",
                    "5x13x7x1 ta",
                    "5x13x7x1",
                    "3x1x9x1",
                ] {
                    let text = text(&*kernel, rest);
                    check(&*kernel, &text, 0, &setting(threads, unroll));
                }
            }
        }
    }

    #[test]
    fn values_that_are_no_numbers_stay_in_their_places() {
        for kernel in gemv() {
            for rest in ["1x9x19", "19x9x1"] {
                let text = text(&*kernel, rest);
                if text.contains("f32") {
                    check_changed::<f32>(&*kernel, &text, 0, &setting(1, 4), |a, b| {
                        (a[3], b[2]) = (f32::INFINITY, f32::NAN);
                    });
                }
            }
        }
    }

    #[test]
    fn the_setting_decides_how_many_rows_are_read_at_once() {
        let walks = f32::walks(Level::PORTABLE);
        let rows = [0, 1, 2, 3, 4, 8, 9].map(|unroll| walk(walks, unroll).rows);
        assert_eq!(rows, [1, 1, 2, 4, 4, 8, 8]);
    }

    #[test]
    fn matrices_are_refused_unwritten() {
        for kernel in gemv() {
            let refusal = kernel
                .accepts(&"matmul f32 2x3x2".parse().unwrap())
                .unwrap_err();
            assert_eq!(refusal.to_string(), "needs a vector: m or n of 1");
            fault(&*kernel, "matmul f32 2x3x2", false);
            fault(&*kernel, "elementwise.add f32 4x4", false);
        }
    }
}
