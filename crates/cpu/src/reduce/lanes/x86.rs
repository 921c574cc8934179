//! The registers of AVX2 and AVX-512.

use std::arch::x86_64::*;

use super::{Job, Vector};

/// A register of 256 bits.
#[derive(Clone, Copy)]
pub(crate) struct Half<T: Registers>(T::Half);

/// A register of 512 bits.
#[derive(Clone, Copy)]
pub(crate) struct Wide<T: Registers>(T::Wide);

/// Element types with registers of their own type.
pub(crate) trait Registers: Copy {
    type Half: Copy;
    type Wide: Copy;
}

impl Registers for f32 {
    type Half = __m256;
    type Wide = __m512;
}
impl Registers for f64 {
    type Half = __m256d;
    type Wide = __m512d;
}
impl Registers for i32 {
    type Half = __m256i;
    type Wide = __m512i;
}
impl Registers for i64 {
    type Half = __m256i;
    type Wide = __m512i;
}

/// Runs a job compiled for AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2<V: Vector, J: Job<V::Scalar>>(job: J) -> J::Output {
    // SAFETY: this function is compiled for these instructions, so its caller has them.
    unsafe { job.run::<V>() }
}

/// Runs a job compiled for AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn avx512<V: Vector, J: Job<V::Scalar>>(job: J) -> J::Output {
    // SAFETY: as above.
    unsafe { job.run::<V>() }
}

/// One register type: every function of [`Vector`] as an expression of intrinsics. The contract of the trait
/// gives each its instructions and its memory.
macro_rules! register {
    ($register:ident<$rust:ty>, $lanes:literal;
     load |$from:ident| $load:expr;
     store |$to:ident, $it:ident| $store:expr;
     splat |$value:ident| $splat:expr;
     each { $($name:ident |$a:ident, $b:ident| $binary:expr;)* }
     reversed |$r:ident| $reversed:expr;
     moved_up |$m:ident, $by:ident, $fill:ident| $moved:expr;
     parted |$p:ident, $q:ident| $parted:expr;) => {
        impl Vector for $register<$rust> {
            type Scalar = $rust;
            const LANES: usize = $lanes;
            const FUSED: bool = true;

            #[inline(always)]
            unsafe fn load($from: *const $rust) -> Self {
                // SAFETY: the contract of the trait.
                Self(unsafe { $load })
            }
            #[inline(always)]
            unsafe fn store(self, $to: *mut $rust) {
                let $it = self.0;
                // SAFETY: the contract of the trait.
                unsafe { $store }
            }
            #[inline(always)]
            unsafe fn splat($value: $rust) -> Self {
                // SAFETY: the contract of the trait.
                Self(unsafe { $splat })
            }
            $(#[inline(always)]
            unsafe fn $name(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                // SAFETY: the contract of the trait.
                Self(unsafe { $binary })
            })*
            #[inline(always)]
            unsafe fn reversed(self) -> Self {
                let $r = self.0;
                // SAFETY: the contract of the trait.
                Self(unsafe { $reversed })
            }
            #[inline(always)]
            unsafe fn moved_up(self, $by: usize, fill: Self) -> Self {
                let ($m, $fill) = (self.0, fill.0);
                // SAFETY: the contract of the trait.
                Self(unsafe { $moved })
            }
            #[inline(always)]
            unsafe fn parted(self, next: Self) -> (Self, Self) {
                let ($p, $q) = (self.0, next.0);
                // SAFETY: the contract of the trait.
                let (even, odd) = unsafe { $parted };
                (Self(even), Self(odd))
            }
        }
    };
}

// Comparisons: `b` where it is beyond `a` or not a number, `a` elsewhere. The instructions for maxima give their second
// operand when one is not a number, so what is lost is a NaN in the first, and it is put back.

register! { Half<f32>, 8;
    load |from| _mm256_loadu_ps(from);
    store |to, it| _mm256_storeu_ps(to, it);
    splat |value| _mm256_set1_ps(value);
    each {
    plus |a, b| _mm256_add_ps(a, b);
    minus |a, b| _mm256_sub_ps(a, b);
    times |a, b| _mm256_mul_ps(a, b);
    larger |a, b| _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
    smaller |a, b| _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
    }
    reversed |x| _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    moved_up |x, by, fill| match by {
        1 => _mm256_blend_ps::<0b1>(
            _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6)),
            _mm256_permutevar8x32_ps(fill, _mm256_set1_epi32(7)),
        ),
        2 => _mm256_blend_ps::<0b11>(
            _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5)),
            _mm256_permutevar8x32_ps(fill, _mm256_setr_epi32(6, 7, 6, 7, 6, 7, 6, 7)),
        ),
        _ => _mm256_permute2f128_ps::<0x21>(fill, x),
    };
    parted |x, y| {
        let sorted = |v| _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(v)));
        (
            sorted(_mm256_shuffle_ps::<0b10_00_10_00>(x, y)),
            sorted(_mm256_shuffle_ps::<0b11_01_11_01>(x, y)),
        )
    };
}

register! { Wide<f32>, 16;
    load |from| _mm512_loadu_ps(from);
    store |to, it| _mm512_storeu_ps(to, it);
    splat |value| _mm512_set1_ps(value);
    each {
    plus |a, b| _mm512_add_ps(a, b);
    minus |a, b| _mm512_sub_ps(a, b);
    times |a, b| _mm512_mul_ps(a, b);
    larger |a, b| _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
    smaller |a, b| _mm512_mask_mov_ps(_mm512_min_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
    }
    reversed |x| _mm512_permutexvar_ps(
        _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x);
    moved_up |x, by, fill| {
        let (x, fill) = (_mm512_castps_si512(x), _mm512_castps_si512(fill));
        _mm512_castsi512_ps(match by {
            1 => _mm512_alignr_epi32::<15>(x, fill),
            2 => _mm512_alignr_epi32::<14>(x, fill),
            4 => _mm512_alignr_epi32::<12>(x, fill),
            _ => _mm512_alignr_epi32::<8>(x, fill),
        })
    };
    parted |x, y| {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        (_mm512_permutex2var_ps(x, even, y), _mm512_permutex2var_ps(x, odd, y))
    };
}

register! { Half<f64>, 4;
    load |from| _mm256_loadu_pd(from);
    store |to, it| _mm256_storeu_pd(to, it);
    splat |value| _mm256_set1_pd(value);
    each {
    plus |a, b| _mm256_add_pd(a, b);
    minus |a, b| _mm256_sub_pd(a, b);
    times |a, b| _mm256_mul_pd(a, b);
    larger |a, b| _mm256_blendv_pd(_mm256_max_pd(a, b), a, _mm256_cmp_pd::<_CMP_UNORD_Q>(a, a));
    smaller |a, b| _mm256_blendv_pd(_mm256_min_pd(a, b), a, _mm256_cmp_pd::<_CMP_UNORD_Q>(a, a));
    }
    reversed |x| _mm256_permute4x64_pd::<0b00_01_10_11>(x);
    moved_up |x, by, fill| match by {
        1 => _mm256_blend_pd::<0b1>(
            _mm256_permute4x64_pd::<0b10_01_00_00>(x),
            _mm256_permute4x64_pd::<0b11_11_11_11>(fill),
        ),
        _ => _mm256_permute2f128_pd::<0x21>(fill, x),
    };
    parted |x, y| (
        _mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_unpacklo_pd(x, y)),
        _mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_unpackhi_pd(x, y)),
    );
}

register! { Wide<f64>, 8;
    load |from| _mm512_loadu_pd(from);
    store |to, it| _mm512_storeu_pd(to, it);
    splat |value| _mm512_set1_pd(value);
    each {
    plus |a, b| _mm512_add_pd(a, b);
    minus |a, b| _mm512_sub_pd(a, b);
    times |a, b| _mm512_mul_pd(a, b);
    larger |a, b| _mm512_mask_mov_pd(_mm512_max_pd(a, b), _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(a, a), a);
    smaller |a, b| _mm512_mask_mov_pd(_mm512_min_pd(a, b), _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(a, a), a);
    }
    reversed |x| _mm512_permutexvar_pd(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), x);
    moved_up |x, by, fill| {
        let (x, fill) = (_mm512_castpd_si512(x), _mm512_castpd_si512(fill));
        _mm512_castsi512_pd(match by {
            1 => _mm512_alignr_epi64::<7>(x, fill),
            2 => _mm512_alignr_epi64::<6>(x, fill),
            _ => _mm512_alignr_epi64::<4>(x, fill),
        })
    };
    parted |x, y| {
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
        (_mm512_permutex2var_pd(x, even, y), _mm512_permutex2var_pd(x, odd, y))
    };
}

register! { Half<i32>, 8;
    load |from| _mm256_loadu_si256(from.cast());
    store |to, it| _mm256_storeu_si256(to.cast(), it);
    splat |value| _mm256_set1_epi32(value);
    each {
    plus |a, b| _mm256_add_epi32(a, b);
    minus |a, b| _mm256_sub_epi32(a, b);
    times |a, b| _mm256_mullo_epi32(a, b);
    larger |a, b| _mm256_max_epi32(a, b);
    smaller |a, b| _mm256_min_epi32(a, b);
    }
    reversed |x| _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    moved_up |x, by, fill| match by {
        1 => _mm256_blend_epi32::<0b1>(
            _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6)),
            _mm256_permutevar8x32_epi32(fill, _mm256_set1_epi32(7)),
        ),
        2 => _mm256_blend_epi32::<0b11>(
            _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5)),
            _mm256_permutevar8x32_epi32(fill, _mm256_setr_epi32(6, 7, 6, 7, 6, 7, 6, 7)),
        ),
        _ => _mm256_permute2x128_si256::<0x21>(fill, x),
    };
    parted |x, y| {
        let (x, y) = (_mm256_castsi256_ps(x), _mm256_castsi256_ps(y));
        let sorted = |v| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(v));
        (
            sorted(_mm256_shuffle_ps::<0b10_00_10_00>(x, y)),
            sorted(_mm256_shuffle_ps::<0b11_01_11_01>(x, y)),
        )
    };
}

register! { Wide<i32>, 16;
    load |from| _mm512_loadu_si512(from.cast());
    store |to, it| _mm512_storeu_si512(to.cast(), it);
    splat |value| _mm512_set1_epi32(value);
    each {
    plus |a, b| _mm512_add_epi32(a, b);
    minus |a, b| _mm512_sub_epi32(a, b);
    times |a, b| _mm512_mullo_epi32(a, b);
    larger |a, b| _mm512_max_epi32(a, b);
    smaller |a, b| _mm512_min_epi32(a, b);
    }
    reversed |x| _mm512_permutexvar_epi32(
        _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x);
    moved_up |x, by, fill| match by {
        1 => _mm512_alignr_epi32::<15>(x, fill),
        2 => _mm512_alignr_epi32::<14>(x, fill),
        4 => _mm512_alignr_epi32::<12>(x, fill),
        _ => _mm512_alignr_epi32::<8>(x, fill),
    };
    parted |x, y| {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        (_mm512_permutex2var_epi32(x, even, y), _mm512_permutex2var_epi32(x, odd, y))
    };
}

register! { Half<i64>, 4;
    load |from| _mm256_loadu_si256(from.cast());
    store |to, it| _mm256_storeu_si256(to.cast(), it);
    splat |value| _mm256_set1_epi64x(value);
    each {
    plus |a, b| _mm256_add_epi64(a, b);
    minus |a, b| _mm256_sub_epi64(a, b);
    // AVX2 multiplies 32 bits: low by low in full, and the two mixed products into the upper half.
    times |a, b| {
        let crossed = _mm256_mullo_epi32(a, _mm256_shuffle_epi32::<0b10_11_00_01>(b));
        let upper = _mm256_add_epi32(crossed, _mm256_srli_epi64::<32>(crossed));
        _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(upper))
    };
    larger |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a));
    smaller |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
    }
    reversed |x| _mm256_permute4x64_epi64::<0b00_01_10_11>(x);
    moved_up |x, by, fill| match by {
        1 => _mm256_blend_epi32::<0b11>(
            _mm256_permute4x64_epi64::<0b10_01_00_00>(x),
            _mm256_permute4x64_epi64::<0b11_11_11_11>(fill),
        ),
        _ => _mm256_permute2x128_si256::<0x21>(fill, x),
    };
    parted |x, y| (
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi64(x, y)),
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpackhi_epi64(x, y)),
    );
}

register! { Wide<i64>, 8;
    load |from| _mm512_loadu_si512(from.cast());
    store |to, it| _mm512_storeu_si512(to.cast(), it);
    splat |value| _mm512_set1_epi64(value);
    each {
    plus |a, b| _mm512_add_epi64(a, b);
    minus |a, b| _mm512_sub_epi64(a, b);
    times |a, b| _mm512_mullo_epi64(a, b);
    larger |a, b| _mm512_max_epi64(a, b);
    smaller |a, b| _mm512_min_epi64(a, b);
    }
    reversed |x| _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), x);
    moved_up |x, by, fill| match by {
        1 => _mm512_alignr_epi64::<7>(x, fill),
        2 => _mm512_alignr_epi64::<6>(x, fill),
        _ => _mm512_alignr_epi64::<4>(x, fill),
    };
    parted |x, y| {
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
        (_mm512_permutex2var_epi64(x, even, y), _mm512_permutex2var_epi64(x, odd, y))
    };
}
