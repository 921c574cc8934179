//! Shapes drawn over the sizes that programs use, so that a model of times sees the ground between the usual ones.
//!
//! Sizes are drawn evenly in their logarithm: between ten and a hundred lie as many as between a hundred and a thousand. Half of
//! them are rounded to multiples of eight, as people choose sizes; the other half are whatever came, as data does.

use kernelwise_types::Workload;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Operations that shapes are drawn for, the most used first.
pub const SPREAD_OPERATIONS: [&str; 10] = [
    "matmul",
    "conv2d",
    "elementwise",
    "reduce",
    "softmax",
    "transpose",
    "sort",
    "activation",
    "norm",
    "copy",
];

/// Arithmetic of a drawn product or convolution at the most: a hundredth of a second of one modern core.
const MOST_FLOPS: u64 = 500_000_000;

/// So many different shapes of an operation, the same for the same seed. Empty for operations that none are drawn for.
pub fn spread_shapes(operation: &str, count: usize, seed: u64) -> Vec<Workload> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut shapes: Vec<Workload> = Vec::new();
    // Some draws are too large, and small ones repeat.
    for _ in 0..20 * count {
        if shapes.len() == count {
            break;
        }
        let Some(text) = draw(operation, &mut random) else {
            break;
        };
        let Ok(shape) = text.parse::<Workload>() else {
            continue;
        };
        let fits = shape.cost().is_some_and(|cost| cost.flops.0 <= MOST_FLOPS);
        if fits && !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

fn draw(operation: &str, random: &mut Pcg64) -> Option<String> {
    let mut size = |least: f64, most: f64| {
        let drawn = (least.ln() + (most / least).ln() * random.random::<f64>()).exp();
        let whole = drawn.round() as u64;
        match random.random::<bool>() && whole > 8 {
            true => whole.next_multiple_of(8),
            false => whole,
        }
    };
    Some(match operation {
        "matmul" => {
            let (m, k, n) = (size(2.0, 1024.0), size(2.0, 1024.0), size(2.0, 1024.0));
            format!("matmul f32 {m}x{k}x{n}")
        }
        "conv2d" => {
            let (c, k, side) = (size(3.0, 512.0), size(8.0, 512.0), size(7.0, 112.0));
            let filter = 2 * (size(1.0, 3.9) / 2) + 1;
            let (stride, pad) = (size(1.0, 2.4), filter / 2);
            format!(
                "conv2d f32 n1 c{c} h{side} w{side} k{k} r{filter} s{filter} stride{stride} pad{pad}"
            )
        }
        "elementwise" => format!("elementwise.add f32 {}", size(100.0, 4e6)),
        "activation" => format!("activation.gelu f32 {}", size(100.0, 2e6)),
        "copy" => format!("copy f32 {}", size(100.0, 4e6)),
        "reduce" => format!(
            "reduce.sum f32 {}x{} axes1",
            size(4.0, 2000.0),
            size(4.0, 2000.0)
        ),
        "softmax" => format!("softmax f32 {}x{}", size(1.0, 1000.0), size(8.0, 4000.0)),
        "norm" => format!("norm.layer f32 {}x{}", size(1.0, 1000.0), size(8.0, 4000.0)),
        "transpose" => format!(
            "transpose f32 {}x{} perm1,0",
            size(8.0, 2000.0),
            size(8.0, 2000.0)
        ),
        "sort" => format!("sort u32 {}", size(50.0, 1e6)),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_as_many_as_asked_for_over_decades() {
        for operation in SPREAD_OPERATIONS {
            let shapes = spread_shapes(operation, 60, 1);
            assert_eq!(shapes.len(), 60, "{operation}");
            assert_eq!(shapes, spread_shapes(operation, 60, 1));
            assert_ne!(shapes, spread_shapes(operation, 60, 2));
            let moved = |shape: &Workload| shape.cost().unwrap().bytes().0 as f64;
            let (mut least, mut most) = (f64::INFINITY, 0f64);
            for shape in &shapes {
                assert_eq!(shape.operation().name(), operation);
                assert!(shape.cost().unwrap().flops.0 <= MOST_FLOPS);
                (least, most) = (least.min(moved(shape)), most.max(moved(shape)));
            }
            assert!(most / least > 100.0, "{operation}: {least} to {most}");
        }
        assert!(spread_shapes("fft", 5, 1).is_empty());
    }
}
