//! Predicted times: finite, above zero, within the device's peak, longer for more work.

use kernelwise_types::{DType, Numerics, Workload};
use proptest::prelude::*;

use super::{parse, workloads};
use crate::gpu::advice::ranked;
use crate::gpu::{
    Arithmetic, Gpu, LaunchError, Prediction, Wishes, device, devices, predict, recommend,
};
use crate::strategy::Bound;

/// Devices whose rates are known.
fn known() -> Vec<Gpu> {
    let all = devices().into_iter();
    let known: Vec<Gpu> = all
        .filter(|gpu| gpu.peak_flops(DType::F32, Arithmetic::Own).is_some())
        .collect();
    assert!(known.len() > 20);
    known
}

fn time(gpu: &Gpu, workload: &Workload) -> Option<Prediction> {
    match recommend(gpu, workload, &Wishes::default()) {
        Ok(advice) => Some(advice.prediction.unwrap()),
        Err(LaunchError::Unsupported { .. }) => None,
        Err(error) => panic!("{workload}: {error}"),
    }
}

/// No rate above the peak, by figures that are taken from the device alone.
fn within_peak(gpu: &Gpu, workload: &Workload, arithmetic: Arithmetic, time: &Prediction) {
    let seconds = time.warm_ns.seconds();
    assert!(seconds.is_finite() && seconds > 0.0, "{workload}");
    let cost = workload.cost().unwrap();
    let peak = gpu.peak_flops(workload.dtype(), arithmetic).unwrap();
    assert!(
        cost.flops.0 as f64 / seconds <= peak,
        "{workload} on {}: {time:?}",
        gpu.name
    );
    let bandwidth = gpu.cache_bandwidth().map_or(gpu.bandwidth().unwrap(), |c| {
        c.max(gpu.bandwidth().unwrap())
    });
    let limit = if gpu.l2_bytes.is_some_and(|l2| cost.bytes().0 <= l2) {
        bandwidth
    } else {
        gpu.bandwidth().unwrap()
    };
    assert!(
        cost.bytes().0 as f64 / seconds <= limit,
        "{workload} on {}: {time:?}",
        gpu.name
    );
    assert!(time.cold_ns > time.warm_ns);
    let range = time.interval_ns;
    assert!(range.low() <= time.warm_ns && time.warm_ns <= range.high());
    assert!(range.low() >= time.floor_ns && range.high().get() > 3.0 * time.warm_ns.get());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every operation, every launch that is considered, sizes over four decades.
    #[test]
    fn no_launch_is_faster_than_the_peak(a in 0u32..13, b in 0u32..13, c in 0u32..6, odd in 0usize..3, which in 0usize..64) {
        let all = known();
        let gpu = &all[which % all.len()];
        let wishes = Wishes { allowed: Numerics::ReducedPrecision, memory_bytes: None };
        for workload in workloads((1 << a) + odd, (1 << b) + odd, (1 << c) + odd) {
            for (launch, prediction) in ranked(gpu, &workload, &wishes).into_iter().flatten() {
                prop_assert_eq!(predict(gpu, &workload, &launch), prediction);
                within_peak(gpu, &workload, launch.config.arithmetic, &prediction.unwrap());
            }
        }
    }

    /// More of any size never takes less.
    #[test]
    fn more_work_never_takes_less(
        a in 1usize..3000, b in 1usize..3000, c in 1usize..40, more in (1usize..500, 1usize..500, 1usize..40), which in 0usize..64,
    ) {
        let all = known();
        let gpu = &all[which % all.len()];
        let larger = [(a + more.0, b, c), (a, b + more.1, c), (a, b, c + more.2), (2 * a, b, c), (a, 2 * b, c)];
        let before = workloads(a, b, c);
        for (a, b, c) in larger {
            for (small, large) in before.iter().zip(workloads(a, b, c)) {
                // Lengths of transforms that do not halve take another algorithm; their count is not monotone.
                if small.operation().name() == "fft" && small.cost().unwrap().flops.0 > large.cost().unwrap().flops.0 {
                    continue;
                }
                let (Some(t), Some(u)) = (time(gpu, small), time(gpu, &large)) else { continue };
                // Sums of floats in another order.
                let slack = 1.0 - 1e-9;
                prop_assert!(u.warm_ns.get() >= slack * t.warm_ns.get(), "{}: {small} {} > {large} {}", gpu.name, t.warm_ns, u.warm_ns);
            }
        }
    }
}

#[test]
fn a_large_product_is_near_the_peak_and_a_copy_near_the_bandwidth() {
    let gpu = device("a100").unwrap();
    let product = time(&gpu, &parse("matmul f32 8192x8192x8192")).unwrap();
    assert_eq!(product.bound, Bound::Compute);
    let share = product.floor_ns.get() / product.warm_ns.get();
    assert!((0.4..=1.0).contains(&share), "{share}");
    let copy = time(&gpu, &parse("copy f32 16384x16384")).unwrap();
    assert_eq!(copy.bound, Bound::Memory);
    let share = copy.floor_ns.get() / copy.warm_ns.get();
    assert!((0.5..=1.0).contains(&share), "{share}");
    // Two GiB at 1555 GB/s.
    assert!((copy.floor_ns.seconds() - 2.147_483_648 / 1555.0).abs() < 1e-6);
    let tiny = time(&gpu, &parse("copy f32 8")).unwrap();
    assert_eq!(tiny.bound, Bound::Latency);
    assert!(tiny.warm_ns.get() >= 5000.0);
}

#[test]
fn precision_and_layout_change_the_time() {
    let gpu = device("a100").unwrap();
    let of = |text: &str| time(&gpu, &parse(text)).unwrap().warm_ns;
    assert!(of("matmul f64 4096x4096x4096") > of("matmul f32 4096x4096x4096"));
    assert!(of("matmul f16 4096x4096x4096") < of("matmul f32 4096x4096x4096"));
    assert!(of("copy f32 8192x8192 layout=strided") > of("copy f32 8192x8192"));
    let permitted = Wishes {
        allowed: Numerics::ReducedPrecision,
        memory_bytes: None,
    };
    let product = parse("matmul f32 4096x4096x4096");
    let tf32 = recommend(&gpu, &product, &permitted)
        .unwrap()
        .prediction
        .unwrap();
    assert!(tf32.warm_ns.get() < 0.5 * of("matmul f32 4096x4096x4096").get());
}

#[test]
fn what_cannot_be_known_is_not_predicted() {
    for name in ["webgpu-default", "apple-m3"] {
        let advice = recommend(
            &device(name).unwrap(),
            &parse("matmul f32 512x512x512"),
            &Wishes::default(),
        )
        .unwrap();
        assert_eq!(advice.prediction, None);
        assert!(
            advice
                .alternatives
                .iter()
                .all(|other| other.prediction.is_none())
                && !advice.alternatives.is_empty()
        );
        assert!(
            advice
                .reasoning
                .iter()
                .any(|line| line.starts_with("no prediction")),
            "{:?}",
            advice.reasoning
        );
        // The order is not that of the list: a tile that reuses comes first.
        assert!(advice.launch.config.tile[0] > 1, "{:?}", advice.launch);
    }
    // A custom operation that does not say what it costs.
    let advice = recommend(
        &device("a100").unwrap(),
        &parse("custom.wave_step f64 512x512"),
        &Wishes::default(),
    )
    .unwrap();
    assert_eq!(advice.prediction, None);
    assert!(advice.launch.grid[0] >= 1);
}

#[test]
fn compiling_is_paid_once() {
    let gpu = device("apple-m2").unwrap();
    let warm = |text: &str| {
        let time = time(&gpu, &parse(text)).unwrap();
        time.cold_ns.get() - time.warm_ns.get()
    };
    let (small, large) = (warm("copy f32 8"), warm("copy f32 8192x8192"));
    assert!(
        (small - large).abs() < 1.0 && small > 1e6,
        "{small} {large}"
    );
}
