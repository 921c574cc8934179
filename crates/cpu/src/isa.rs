//! Proof that the processor has an instruction set.
//!
//! A [`Level`] other than the portable one exists only after the processor was asked, so a function that
//! takes one may use the instructions it stands for. Kernels keep the level they were made with; nothing
//! is detected on the call path.
//!
//! Most vector code here is plain loops in an inlined body, compiled once per level through `Level::run`;
//! intrinsics are for the few places where the compiler does not find the right instructions.
#![allow(unsafe_code)]

use kernelwise_types::machine::Isa;

/// A set of vector instructions that this processor was seen to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Set {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Code that is compiled once for each level. Its functions must be `#[inline(always)]`, and so must what they call:
/// only what is inlined is compiled with the level's instructions.
pub(crate) trait Body: Sized {
    /// What comes out.
    type Output;

    /// The code.
    fn run(self) -> Self::Output;

    /// The code where there is AVX2, if it is another. Choosing it here rather than by asking the level before it runs
    /// spares the compiler every pair of a code and a level that never meet.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self) -> Self::Output {
        self.run()
    }

    /// The code where there is AVX-512, if it is another.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self) -> Self::Output {
        self.run_avx2()
    }
}

impl Level {
    /// What every processor of this architecture has.
    pub const PORTABLE: Self = Self(Set::Portable);

    /// AVX2 with fused multiply-add, if this processor has them.
    #[cfg(target_arch = "x86_64")]
    pub fn avx2() -> Option<Self> {
        let here = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        here.then_some(Self(Set::Avx2))
    }

    /// AVX-512 with the byte, word, double-word and length extensions, if this processor has them.
    #[cfg(target_arch = "x86_64")]
    pub fn avx512() -> Option<Self> {
        let here = Self::avx2().is_some()
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl");
        here.then_some(Self(Set::Avx512))
    }

    /// NEON, which every 64-bit ARM processor has.
    #[cfg(target_arch = "aarch64")]
    pub fn neon() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(Set::Neon))
    }

    /// Every level this processor has, the portable one first, the widest last.
    pub fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let detected = [Self::avx2(), Self::avx512()];
        #[cfg(target_arch = "aarch64")]
        let detected = [Self::neon()];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let detected: [Option<Self>; 0] = [];
        std::iter::once(Self::PORTABLE)
            .chain(detected.into_iter().flatten())
            .collect()
    }

    /// The widest level this processor has.
    pub fn widest() -> Self {
        Self::all().last().copied().unwrap_or(Self::PORTABLE)
    }

    /// The word for it in kernel ids.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
        }
    }

    /// The instruction sets it stands for, as a kernel's needs.
    pub fn isa(self) -> Vec<Isa> {
        match self.0 {
            Set::Portable => Vec::new(),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => vec![Isa::Neon],
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => vec![Isa::Avx2, Isa::Fma, Isa::F16c],
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => vec![
                Isa::Avx2,
                Isa::Fma,
                Isa::F16c,
                Isa::Avx512f,
                Isa::Avx512bw,
                Isa::Avx512dq,
                Isa::Avx512vl,
            ],
        }
    }

    /// Whether this level includes AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx512(self) -> bool {
        self.0 == Set::Avx512
    }

    /// Whether this level includes AVX2 and fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx2(self) -> bool {
        matches!(self.0, Set::Avx2 | Set::Avx512)
    }

    /// What so many per cent of the machine's peak become at this level, for code that computes rather than moves: narrower
    /// vectors do less at a time, and without a fused multiply-add half of that.
    pub(crate) fn part_of(self, percent: u8) -> u8 {
        let widest = Self::widest();
        if self == widest {
            return percent;
        }
        let bits = |level: Self| match level.0 {
            Set::Portable => 128,
            #[cfg(target_arch = "aarch64")]
            Set::Neon => 128,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 256,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 512,
        };
        let fused = if self == Self::PORTABLE { 2 } else { 1 };
        let part = u32::from(percent) * bits(self) / bits(widest) / fused;
        u8::try_from(part).unwrap_or(percent).max(1)
    }

    /// Runs the body compiled for this level.
    #[inline(always)]
    pub(crate) fn run<B: Body>(self, body: B) -> B::Output {
        match self.0 {
            Set::Portable => body.run(),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: this level exists only where the processor said it has NEON.
            Set::Neon => unsafe { neon(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level exists only where the processor said it has these instructions.
            Set::Avx2 => unsafe { avx2(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Set::Avx512 => unsafe { avx512(body) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<B: Body>(body: B) -> B::Output {
    body.run_avx2()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<B: Body>(body: B) -> B::Output {
    body.run_avx512()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn neon<B: Body>(body: B) -> B::Output {
    body.run()
}

/// The same value, about which the compiler knows nothing: what it cannot see through it keeps in a register, rather than
/// compute it anew from its neighbours.
#[inline(always)]
pub(crate) fn opaque(value: isize) -> isize {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if cfg!(not(miri)) {
        let mut value = value;
        // SAFETY: no instruction is emitted; the value stays in its register.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
        }
        return value;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the probe lists for this machine and what the levels ask for are found in different ways.
    #[test]
    fn levels_name_instruction_sets_that_the_probe_finds_too() {
        let machine = kernelwise_probe::machine();
        for level in Level::all() {
            for isa in level.isa() {
                assert!(machine.cpu.has(isa), "{} needs {isa}", level.name());
            }
        }
        assert_eq!(Level::all()[0], Level::PORTABLE);
        assert!(Level::widest() >= Level::PORTABLE);
    }

    #[test]
    fn narrower_levels_reach_less_of_the_peak() {
        let parts: Vec<u8> = Level::all().iter().map(|level| level.part_of(80)).collect();
        assert_eq!(parts.last(), Some(&80));
        assert!(parts.is_sorted_by(|a, b| a < b), "{parts:?}");
    }

    #[test]
    fn every_level_computes_the_same() {
        struct Sum<'a>(&'a [u32]);
        impl Body for Sum<'_> {
            type Output = u32;
            #[inline(always)]
            fn run(self) -> u32 {
                self.0.iter().sum()
            }
        }
        let numbers: Vec<u32> = (0..1000).collect();
        for level in Level::all() {
            assert_eq!(level.run(Sum(&numbers)), 499_500, "{}", level.name());
        }
    }
}
