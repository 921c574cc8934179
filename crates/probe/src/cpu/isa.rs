//! Instruction sets that kernels may use here.
//!
//! The standard library asks the processor *and* whether the operating system saves the registers, so
//! what it confirms can be executed. It does not answer for AMX yet; see [`super::x86::amx`].

use kernelwise_types::machine::Isa;

/// Pairs each set with the standard library's name for it.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub(crate) fn detected() -> Vec<Isa> {
    macro_rules! detect {
        ($($isa:ident = $feature:tt,)*) => {
            [$((Isa::$isa, std::is_x86_feature_detected!($feature)),)*]
        };
    }
    let sets = detect! {
        Sse2 = "sse2",
        Sse41 = "sse4.1",
        Sse42 = "sse4.2",
        Avx = "avx",
        Avx2 = "avx2",
        Fma = "fma",
        F16c = "f16c",
        Bmi1 = "bmi1",
        Bmi2 = "bmi2",
        Popcnt = "popcnt",
        Avx512f = "avx512f",
        Avx512dq = "avx512dq",
        Avx512bw = "avx512bw",
        Avx512vl = "avx512vl",
        Avx512vnni = "avx512vnni",
        Avx512bf16 = "avx512bf16",
        Avx512fp16 = "avx512fp16",
        AvxVnni = "avxvnni",
    };
    present(&sets)
}

/// Pairs each set with the standard library's name for it.
#[cfg(target_arch = "aarch64")]
pub(crate) fn detected() -> Vec<Isa> {
    macro_rules! detect {
        ($($isa:ident = $feature:tt,)*) => {
            [$((Isa::$isa, std::arch::is_aarch64_feature_detected!($feature)),)*]
        };
    }
    let sets = detect! {
        Neon = "neon",
        Fp16 = "fp16",
        DotProd = "dotprod",
        Bf16 = "bf16",
        I8mm = "i8mm",
        Sve = "sve",
        Sve2 = "sve2",
    };
    present(&sets)
}

/// No kernel here asks for instruction sets of other architectures.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn detected() -> Vec<Isa> {
    Vec::new()
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64"))]
fn present(sets: &[(Isa, bool)]) -> Vec<Isa> {
    sets.iter()
        .filter(|(_, detected)| *detected)
        .map(|(isa, _)| *isa)
        .collect()
}
