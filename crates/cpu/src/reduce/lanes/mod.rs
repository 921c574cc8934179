//! Numbers and vectors of them, as reductions, scans and pooling need them.
//!
//! The order of additions is part of what a reduction means to the compiler, so it does not make
//! vectors of a plain loop over floats. Here vectors are spelled out: [`Vector`] is a register of one of the levels of
//! [`isa`](crate::isa), a [`Job`] is code that works on any of them, and [`Number::on`] runs a job with the registers a
//! level has. What is element by element needs none of this and is left to the compiler.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use kernelwise_backend::Plain;

use crate::isa::Level;

/// An element that can be added, multiplied and compared. Integers wrap; what is not a number wins every
/// comparison.
pub(crate) trait Number: Plain + PartialOrd {
    /// What sums one element after the other are kept in.
    type Wide: Number;

    /// The neutral element of sums.
    const ZERO: Self;
    /// The neutral element of products.
    const ONE: Self;
    /// The neutral element of maxima.
    const LOWEST: Self;
    /// The neutral element of minima.
    const HIGHEST: Self;

    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// This number in a wider type.
    fn widen(self) -> Self::Wide;
    /// A wider number, rounded.
    fn narrow(wide: Self::Wide) -> Self;
    /// This divided by a count: integers are not, they have no mean.
    fn over(self, count: usize) -> Self;
    /// The square root; of integers, themselves: they have no length.
    fn root(self) -> Self;

    /// Runs a job with the registers of a level.
    fn on<J: Job<Self>>(level: Level, job: J) -> J::Output;

    /// Whether it is not a number.
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }

    /// The larger of two, and what is not a number if there is one.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self || other.is_nan() {
            other
        } else {
            self
        }
    }

    /// The smaller of two, and what is not a number if there is one.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if other < self || other.is_nan() {
            other
        } else {
            self
        }
    }
}

/// Code that works on vectors of any kind. `run` must be `#[inline(always)]`, and so must what it calls.
pub(crate) trait Job<T> {
    /// What comes out.
    type Output;

    /// The code.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn run<V: Vector<Scalar = T>>(self) -> Self::Output;
}

/// A register of several numbers.
///
/// # Safety
/// Every function asks that the processor has the instructions of the register; `load` and `store` also that
/// [`LANES`](Self::LANES) elements lie at the pointer, of any alignment.
pub(crate) trait Vector: Copy {
    /// What it holds.
    type Scalar: Number;
    /// How many: a power of two, at most [`MOST_LANES`].
    const LANES: usize;
    /// Whether a product and a sum are one instruction where these registers are.
    const FUSED: bool;

    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    unsafe fn splat(value: Self::Scalar) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    /// As [`Number::larger`], lane by lane.
    unsafe fn larger(self, other: Self) -> Self;
    /// As [`Number::smaller`], lane by lane.
    unsafe fn smaller(self, other: Self) -> Self;
    /// The lanes in the opposite order.
    unsafe fn reversed(self) -> Self;
    /// Every lane moved up by `by`, a power of two below [`LANES`](Self::LANES), and the last lanes of `fill` below.
    unsafe fn moved_up(self, by: usize, fill: Self) -> Self;
    /// The lanes with even and with odd numbers of two vectors that follow each other.
    unsafe fn parted(self, next: Self) -> (Self, Self);
}

/// The most lanes a vector has.
pub(crate) const MOST_LANES: usize = 16;

/// Vectors for the compiler to make of what it has: a few numbers.
#[derive(Clone, Copy)]
pub(crate) struct Few<T>([T; 4]);

impl<T: Number> Few<T> {
    #[inline(always)]
    fn zip(self, other: Self, of: impl Fn(T, T) -> T) -> Self {
        let (a, b) = (self.0, other.0);
        Self([
            of(a[0], b[0]),
            of(a[1], b[1]),
            of(a[2], b[2]),
            of(a[3], b[3]),
        ])
    }
}

impl<T: Number> Vector for Few<T> {
    type Scalar = T;
    const LANES: usize = 4;
    const FUSED: bool = cfg!(target_arch = "aarch64");

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller has four elements there; they need not be aligned as an array.
        Self(unsafe { from.cast::<[T; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[T; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Self([value; 4])
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        self.zip(other, T::plus)
    }
    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        self.zip(other, T::minus)
    }
    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        self.zip(other, T::times)
    }
    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        self.zip(other, T::larger)
    }
    #[inline(always)]
    unsafe fn smaller(self, other: Self) -> Self {
        self.zip(other, T::smaller)
    }
    #[inline(always)]
    unsafe fn reversed(self) -> Self {
        let [a, b, c, d] = self.0;
        Self([d, c, b, a])
    }
    #[inline(always)]
    unsafe fn moved_up(self, by: usize, fill: Self) -> Self {
        let ([a, b, c, _], [_, _, y, z]) = (self.0, fill.0);
        match by {
            1 => Self([z, a, b, c]),
            _ => Self([y, z, a, b]),
        }
    }
    #[inline(always)]
    unsafe fn parted(self, next: Self) -> (Self, Self) {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, next.0);
        (Self([a, c, e, g]), Self([b, d, f, h]))
    }
}

/// The registers of each level for one element type.
macro_rules! registers {
    ($rust:ty) => {
        #[inline(always)]
        fn on<J: Job<Self>>(level: Level, job: J) -> J::Output {
            #[cfg(target_arch = "x86_64")]
            if level.has_avx512() {
                // SAFETY: the level says that the processor has AVX-512.
                return unsafe { x86::avx512::<x86::Wide<$rust>, J>(job) };
            } else if level.has_avx2() {
                // SAFETY: the level says that the processor has AVX2.
                return unsafe { x86::avx2::<x86::Half<$rust>, J>(job) };
            }
            let _ = level;
            // SAFETY: plain arrays need no instructions in particular.
            unsafe { job.run::<Few<$rust>>() }
        }
    };
}

macro_rules! float {
    ($rust:ident) => {
        impl Number for $rust {
            type Wide = f64;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = Self::NEG_INFINITY;
            const HIGHEST: Self = Self::INFINITY;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn narrow(wide: f64) -> Self {
                wide as Self
            }
            #[inline(always)]
            fn over(self, count: usize) -> Self {
                (f64::from(self) / count as f64) as Self
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            registers!($rust);
        }
    };
}

macro_rules! integer {
    ($rust:ident) => {
        impl Number for $rust {
            type Wide = Self;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = Self::MIN;
            const HIGHEST: Self = Self::MAX;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
            #[inline(always)]
            fn over(self, _count: usize) -> Self {
                self
            }
            #[inline(always)]
            fn root(self) -> Self {
                self
            }
            registers!($rust);
        }
    };
}

float!(f32);
float!(f64);
integer!(i32);
integer!(i64);

/// The levels whose registers differ: those of ARM are what the compiler uses for portable code anyway.
pub(crate) fn distinct(levels: &[Level]) -> Vec<Level> {
    let mut kept = Vec::new();
    for &level in levels {
        #[cfg(target_arch = "x86_64")]
        let own = level.has_avx2();
        #[cfg(not(target_arch = "x86_64"))]
        let own = false;
        if own || level == Level::PORTABLE {
            kept.push(level);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function of a register against the same on single numbers.
    struct Functions<'a, T>(&'a [T], &'a [T]);

    impl<T: Number> Job<T> for Functions<'_, T> {
        type Output = usize;
        #[inline(always)]
        unsafe fn run<V: Vector<Scalar = T>>(self) -> usize {
            let (a, b) = (&self.0[..V::LANES], &self.1[..V::LANES]);
            let zipped = |of: fn(T, T) -> T| a.iter().zip(b).map(|(&a, &b)| of(a, b)).collect();
            let chained: Vec<T> = a.iter().chain(b).copied().collect();
            let every = |from| chained.iter().skip(from).step_by(2).copied().collect();
            // SAFETY: the slices have as many elements as the vector, and the caller vouches for the
            // instructions.
            unsafe {
                let (x, y) = (V::load(a.as_ptr()), V::load(b.as_ptr()));
                let list = |v: V| {
                    let mut lanes = vec![T::ZERO; V::LANES];
                    v.store(lanes.as_mut_ptr());
                    lanes
                };
                assert_eq!(list(V::splat(a[1])), vec![a[1]; V::LANES]);
                same(list(x.plus(y)), zipped(T::plus));
                same(list(x.minus(y)), zipped(T::minus));
                same(list(x.times(y)), zipped(T::times));
                same(list(x.larger(y)), zipped(T::larger));
                same(list(x.smaller(y)), zipped(T::smaller));
                same(list(x.reversed()), a.iter().rev().copied().collect());
                let (even, odd) = x.parted(y);
                same(list(even), every(0));
                same(list(odd), every(1));
                let mut by = 1;
                while by < V::LANES {
                    let moved = b[V::LANES - by..].iter().chain(a).take(V::LANES);
                    same(list(x.moved_up(by, y)), moved.copied().collect());
                    by *= 2;
                }
            }
            V::LANES
        }
    }

    /// As text, in which NaN equals itself.
    #[track_caller]
    fn same<T: Number>(actual: Vec<T>, expected: Vec<T>) {
        assert_eq!(format!("{actual:?}"), format!("{expected:?}"));
    }

    fn check<T: Number>(a: &[T], b: &[T]) {
        for level in distinct(&Level::all()) {
            let lanes = T::on(level, Functions(a, b));
            assert!(lanes <= MOST_LANES, "{}", level.name());
        }
    }

    #[test]
    fn registers_compute_what_single_numbers_do() {
        let numbers = |seed: u64| {
            (0..16u64).map(move |i| ((i + 1) * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64)
        };
        let (a, b): (Vec<i64>, Vec<i64>) = (numbers(3).collect(), numbers(7).collect());
        check(&a, &b);
        let short = |list: &[i64]| list.iter().map(|&x| x as i32).collect::<Vec<_>>();
        check(&short(&a), &short(&b));
        let mut x: Vec<f64> = a.iter().map(|&x| x as f64 / 1e15).collect();
        let mut y: Vec<f64> = b.iter().map(|&x| x as f64 / 1e15).collect();
        (x[0], y[1], x[2], y[3]) = (f64::NAN, f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
        check(&x, &y);
        let short = |list: &[f64]| list.iter().map(|&x| x as f32).collect::<Vec<_>>();
        check(&short(&x), &short(&y));
    }
}
