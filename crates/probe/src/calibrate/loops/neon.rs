//! NEON: 32 registers of 128 bits.

use std::arch::aarch64::*;

use kernelwise_types::machine::Isa;

/// Proof that this processor runs NEON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

type F32 = float32x4_t;
type F64 = float64x2_t;
type I32 = int32x4_t;

// Cores with four units of four cycles each need sixteen chains.
const ACCUMULATORS: usize = 24;

#[inline]
#[target_feature(enable = "neon")]
fn splat_f32(x: f32) -> F32 {
    vdupq_n_f32(x)
}

#[inline]
#[target_feature(enable = "neon")]
fn splat_f64(x: f64) -> F64 {
    vdupq_n_f64(x)
}

#[inline]
#[target_feature(enable = "neon")]
fn splat_i32(x: i32) -> I32 {
    vdupq_n_s32(x)
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply_add_f32(a: F32, b: F32, c: F32) -> F32 {
    vfmaq_f32(c, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply_add_f64(a: F64, b: F64, c: F64) -> F64 {
    vfmaq_f64(c, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply_add_i32(a: I32, b: I32, c: I32) -> I32 {
    vmlaq_s32(c, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn add_i32(a: I32, b: I32) -> I32 {
    vaddq_s32(a, b)
}

/// The standard library offers no non-temporal store here; cores of this family notice streams of
/// whole lines by themselves and stop fetching what is overwritten.
#[inline]
#[target_feature(enable = "neon")]
fn stream(place: &mut F32, value: F32) {
    store(place, value);
}

#[inline]
#[target_feature(enable = "neon")]
fn stream_end() {}

vector_loops!(Neon, "neon", Isa::Neon, streaming: false);
