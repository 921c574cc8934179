//! AVX2 with FMA: 16 registers of 256 bits.

use std::arch::x86_64::*;

use kernelwise_types::machine::Isa;

/// Proof that this processor and operating system run AVX2 and FMA.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2Fma(());

impl Avx2Fma {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        (std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma"))
            .then_some(Self(()))
    }
}

type F32 = __m256;
type F64 = __m256d;
type I32 = __m256i;

const ACCUMULATORS: usize = 12;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn splat_f32(x: f32) -> F32 {
    _mm256_set1_ps(x)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn splat_f64(x: f64) -> F64 {
    _mm256_set1_pd(x)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn splat_i32(x: i32) -> I32 {
    _mm256_set1_epi32(x)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_f32(a: F32, b: F32, c: F32) -> F32 {
    _mm256_fmadd_ps(a, b, c)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_f64(a: F64, b: F64, c: F64) -> F64 {
    _mm256_fmadd_pd(a, b, c)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_i32(a: I32, b: I32, c: I32) -> I32 {
    _mm256_add_epi32(_mm256_mullo_epi32(a, b), c)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_i32(a: I32, b: I32) -> I32 {
    _mm256_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn stream(place: &mut F32, value: F32) {
    // SAFETY: `place` is a live exclusive reference to a vector, hence aligned to its 32 bytes.
    unsafe { _mm256_stream_ps(std::ptr::from_mut(place).cast(), value) }
}

/// Waits until streamed stores have left the write-combining buffers: before that they are not done.
#[inline]
#[target_feature(enable = "avx2,fma")]
#[allow(unused_unsafe)] // newer compilers call the instruction safe
fn stream_end() {
    // SAFETY: the instruction belongs to SSE, which every x86-64 processor has.
    unsafe { _mm_sfence() }
}

vector_loops!(Avx2Fma, "avx2,fma", Isa::Avx2, streaming: true);
