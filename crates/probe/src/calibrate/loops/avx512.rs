//! AVX-512: 32 registers of 512 bits.

use std::arch::x86_64::*;

use kernelwise_types::machine::Isa;

/// Proof that this processor and operating system run AVX-512F.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx512f").then_some(Self(()))
    }
}

type F32 = __m512;
type F64 = __m512d;
type I32 = __m512i;

const ACCUMULATORS: usize = 24;

#[inline]
#[target_feature(enable = "avx512f")]
fn splat_f32(x: f32) -> F32 {
    _mm512_set1_ps(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat_f64(x: f64) -> F64 {
    _mm512_set1_pd(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat_i32(x: i32) -> I32 {
    _mm512_set1_epi32(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_add_f32(a: F32, b: F32, c: F32) -> F32 {
    _mm512_fmadd_ps(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_add_f64(a: F64, b: F64, c: F64) -> F64 {
    _mm512_fmadd_pd(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_add_i32(a: I32, b: I32, c: I32) -> I32 {
    _mm512_add_epi32(_mm512_mullo_epi32(a, b), c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_i32(a: I32, b: I32) -> I32 {
    _mm512_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn stream(place: &mut F32, value: F32) {
    // SAFETY: `place` is a live exclusive reference to a vector, hence aligned to its 64 bytes.
    unsafe { _mm512_stream_ps(std::ptr::from_mut(place).cast(), value) }
}

/// Waits until streamed stores have left the write-combining buffers: before that they are not done.
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unused_unsafe)] // newer compilers call the instruction safe
fn stream_end() {
    // SAFETY: the instruction belongs to SSE, which every x86-64 processor has.
    unsafe { _mm_sfence() }
}

vector_loops!(Avx512, "avx512f", Isa::Avx512f, streaming: true);
