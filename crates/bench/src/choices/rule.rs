//! The rule that somebody who knows the kernels would write by hand.
//!
//! It looks at sizes only, as a program without measurements can. Its numbers come from the benchmarks of this repository on one
//! machine: that is what such rules are like.

use kernelwise_types::op::{Conv2d, Matmul, Operation};
use kernelwise_types::{Candidate, Machine, Workload};

/// Whom the rule prefers: families of kernels, the best first, and how many threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preference {
    /// How the variant of a kernel begins; the empty text is any.
    pub families: Vec<&'static str>,
    /// Threads it should use, if it can.
    pub threads: u32,
}

/// Instructions in the order of preference, as variants end.
const INSTRUCTIONS: [&str; 4] = ["avx512", "avx2", "neon", "portable"];

/// Arithmetic that outweighs the waking of threads: some hundred microseconds of it.
const THREADED_FLOPS: u64 = 20_000_000;
/// The same for operations that move more than they compute, in elements.
const THREADED_ELEMENTS: u64 = 500_000;
/// Elements of f32 that a last-level cache does not hold, where writing around it pays.
const STREAMED_ELEMENTS: u64 = 8 << 20;

/// Who should compute a workload.
pub fn static_rule(workload: &Workload, machine: &Machine) -> Preference {
    let flops = workload.cost().map_or(0, |cost| cost.flops.0);
    let all = machine.usable_threads();
    let threads = |worth: bool| if worth { all } else { 1 };
    let by_arithmetic = threads(flops >= THREADED_FLOPS);
    let by_size = threads(workload.elements() >= THREADED_ELEMENTS);
    let streams = workload.elements() >= STREAMED_ELEMENTS;
    let (families, threads) = match workload.operation() {
        Operation::Matmul(product) => (matmul(product), by_arithmetic),
        Operation::Conv2d(conv) => (conv2d(conv), by_arithmetic),
        Operation::Softmax(_) => (vec!["two-pass", "online"], by_size),
        Operation::Elementwise(_) | Operation::Activation(_) if streams => (
            vec!["avx2-stream", "avx512", "avx2", "neon", "portable"],
            by_size,
        ),
        _ => (vec!["avx512", "avx2", "neon", "portable"], by_size),
    };
    Preference { families, threads }
}

fn matmul(product: &Matmul) -> Vec<&'static str> {
    let Matmul { batch, m, k, n, .. } = *product;
    let (smallest, largest) = (m.min(n).min(k), m.max(n).max(k));
    match () {
        // Vectors of instructions are half empty there.
        () if largest <= 6 => vec!["micro-portable", "micro", "unpacked"],
        () if largest <= 16 && smallest >= 8 => vec!["micro", "unpacked"],
        () if m.min(n) == 1 && m.max(n) * k > 1024 => vec!["gemv", "unpacked", "gemm"],
        () if batch > 1 => vec!["batched", "gemm"],
        () if m * n * k <= 64 * 64 * 64 => vec!["unpacked", "gemm"],
        () if k >= 4096 && m.max(n) <= 64 => vec!["splitk", "gemm", "packed"],
        () => vec!["gemm", "packed"],
    }
}

fn conv2d(conv: &Conv2d) -> Vec<&'static str> {
    let Conv2d { c, r, s, .. } = *conv;
    let unit_stride = conv.stride == [1, 1] && conv.dilation == [1, 1];
    match () {
        () if conv.groups > 1 && conv.groups == c => vec!["depthwise", "direct", "im2col"],
        () if (r, s) == (1, 1) => vec!["1x1", "im2col"],
        // Where reduced precision is allowed; else the others are all there is.
        () if (r, s) == (3, 3) && unit_stride && c >= 16 => {
            vec!["winograd-4x4", "winograd-2x2", "im2col"]
        }
        () if r * s >= 100 && unit_stride => vec!["fft", "im2col"],
        () if c <= 4 => vec!["direct", "im2col"],
        () => vec!["im2col", "direct"],
    }
}

impl Preference {
    /// The candidate it means: the first family that is there, by the best instructions, with the threads nearest to those
    /// wanted. Somebody is always picked while there is anybody.
    pub fn pick(&self, candidates: &[Candidate]) -> Option<usize> {
        let rank = |candidate: &Candidate| {
            let variant = candidate.kernel.variant();
            let families = self.families.iter();
            let family = families
                .clone()
                .position(|family| variant == *family)
                .or_else(|| {
                    let of = |family: &&str| variant.strip_prefix(*family)?.strip_prefix('-');
                    families.clone().position(|family| of(family).is_some())
                });
            let family = family.unwrap_or(self.families.len());
            let mut instructions = INSTRUCTIONS.iter();
            let instructions = instructions.position(|name| variant.ends_with(name));
            let threads = candidate.params.get("threads").unwrap_or(1);
            let apart = threads.abs_diff(u64::from(self.threads));
            (family, instructions.unwrap_or(INSTRUCTIONS.len()), apart)
        };
        let ranked = candidates.iter().enumerate();
        ranked
            .min_by(|(_, a), (_, b)| rank(a).cmp(&rank(b)).then_with(|| a.kernel.cmp(&b.kernel)))
            .map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(shape: &str, candidates: &[&str]) -> String {
        let machine = kernelwise_probe::machine().with_threads(2);
        let workload: Workload = shape.parse().unwrap();
        let candidate = |text: &&str| {
            let (kernel, params) = text.split_once(' ').unwrap_or((*text, ""));
            Candidate {
                kernel: kernel.parse().unwrap(),
                params: params.parse().unwrap(),
            }
        };
        let candidates: Vec<Candidate> = candidates.iter().map(candidate).collect();
        let number = static_rule(&workload, &machine).pick(&candidates).unwrap();
        format!(
            "{} {}",
            candidates[number].kernel.variant(),
            candidates[number].params
        )
    }

    #[test]
    fn sizes_decide_kernel_and_threads() {
        let products = [
            "cpu-matmul-f32-gemm threads=1",
            "cpu-matmul-f32-gemm threads=2",
            "cpu-matmul-f32-unpacked-portable",
            "cpu-matmul-f32-unpacked-avx2",
            "cpu-matmul-f32-micro-avx2",
            "cpu-matmul-f32-micro-portable",
        ];
        for (shape, kernel) in [
            ("matmul f32 8x8x8", "micro-avx2 "),
            ("matmul f32 4x4x4", "micro-portable "),
            ("matmul f32 4x16x4", "unpacked-avx2 "),
            ("matmul f32 40x40x40", "unpacked-avx2 "),
            ("matmul f32 100x100x100", "gemm threads=1"),
            ("matmul f32 512x512x512", "gemm threads=2"),
            // No kernel for vectors is there.
            ("matmul f32 1x64x64", "unpacked-avx2 "),
        ] {
            assert_eq!(picked(shape, &products), kernel, "{shape}");
        }
        let convolutions = [
            "cpu-conv2d-f32-im2col-avx2 threads=1",
            "cpu-conv2d-f32-im2col-avx2 threads=2",
            "cpu-conv2d-f32-winograd-2x2-avx2 threads=2",
            "cpu-conv2d-f32-direct-avx2 threads=2",
        ];
        let conv = "conv2d f32 n1 c64 h56 w56 k64 r3 s3 pad1";
        assert_eq!(picked(conv, &convolutions), "winograd-2x2-avx2 threads=2");
        assert_eq!(picked(conv, &convolutions[..2]), "im2col-avx2 threads=2");
        // Of an operation the rule knows no family of, somebody is picked all the same.
        assert_eq!(picked("copy f32 4", &["cpu-copy-f32-rows"]), "rows ");
    }
}
