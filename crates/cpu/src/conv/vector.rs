//! Vectors of f32 for code that is written once and compiled for each level.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::isa::{Body, Level};

/// A vector of one level.
///
/// # Safety
/// The functions may be called only in code that runs at that level; pointers are valid for all lanes.
pub(super) unsafe trait Vector: Copy {
    /// How many lanes there are, at most [`MOST_LANES`].
    const LANES: usize;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// The elements at these distances from `from`; there are as many as lanes.
    unsafe fn gather(from: *const f32, distances: *const i32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn subtract(self, other: Self) -> Self;
    unsafe fn multiply(self, other: Self) -> Self;
    /// `self * factor + sum`, rounded once where the level can.
    unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self;
}

/// Most lanes of any level.
pub(super) const MOST_LANES: usize = 16;

/// Code that works in vectors. `run` must be `#[inline(always)]`, and so must what it calls.
pub(super) trait Vectorised {
    /// The code.
    ///
    /// # Safety
    /// The processor has the level of `V`.
    unsafe fn run<V: Vector>(self);
}

/// Runs code in the vectors of a level.
pub(super) fn vectorised(level: Level, code: impl Vectorised) {
    level.run(Compiled(code));
}

struct Compiled<C>(C);

impl<C: Vectorised> Body for Compiled<C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // SAFETY: plain arrays need no instructions in particular.
        unsafe { self.0.run::<Four>() }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self) {
        // SAFETY: `Level::run` comes here only where the processor has AVX2.
        unsafe { self.0.run::<__m256>() }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self) {
        // SAFETY: `Level::run` comes here only where the processor has AVX-512.
        unsafe { self.0.run::<__m512>() }
    }
}

/// Lanes of a level's vector.
pub(super) fn lanes(level: Level) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() {
        return 16;
    } else if level.has_avx2() {
        return 8;
    }
    let _ = level;
    4
}

/// Four values in plain code, for the compiler to put into whatever registers there are.
#[derive(Clone, Copy)]
struct Four([f32; 4]);

impl Four {
    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

// SAFETY: plain arithmetic on arrays, and pointers the caller vouches for.
unsafe impl Vector for Four {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: readable for all lanes; an array is aligned like its elements.
        Self(unsafe { from.cast::<[f32; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above, writable.
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn gather(from: *const f32, distances: *const i32) -> Self {
        // SAFETY: the caller gives four distances to readable elements.
        Self(std::array::from_fn(|i| unsafe {
            from.offset(distances.add(i).read() as isize).read()
        }))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn multiply(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
        // Where it is no instruction, a fused multiply-add is a slow function.
        if cfg!(target_arch = "aarch64") {
            Self(std::array::from_fn(|i| {
                self.0[i].mul_add(factor.0[i], sum.0[i])
            }))
        } else {
            self.with(factor, |a, b| a * b).with(sum, |a, b| a + b)
        }
    }
}

/// The vector of one x86 level, from its intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($vector:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $subtract:ident, $multiply:ident,
     $multiply_add:ident, $distances:ident, |$from:ident, $index:ident| $gather:expr) => {
        // SAFETY: every function is an instruction of this level on pointers the caller vouches for.
        unsafe impl Vector for $vector {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $splat(value) }
            }

            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as above, and readable for all lanes.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above, writable.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn gather($from: *const f32, distances: *const i32) -> Self {
                // SAFETY: as above; there are as many distances as lanes, each to a readable element.
                unsafe {
                    let $index = $distances(distances.cast());
                    $gather
                }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn subtract(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $subtract(self, other) }
            }

            #[inline(always)]
            unsafe fn multiply(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $multiply(self, other) }
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                // SAFETY: as above.
                unsafe { $multiply_add(self, factor, sum) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
vector!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps,
    _mm512_fmadd_ps, _mm512_loadu_si512, |from, index| _mm512_i32gather_ps::<4>(index, from));
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
vector!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps,
    _mm256_fmadd_ps, _mm256_loadu_si256, |from, index| _mm256_i32gather_ps::<4>(from, index));
