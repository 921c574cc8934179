//! Launches cover the output, keep the limits and take no liberties with precision.

use kernelwise_types::{Numerics, Workload};
use proptest::prelude::*;

use super::{parse, workloads};
use crate::gpu::advice::ranked;
use crate::gpu::launch::{launch, offered};
use crate::gpu::pieces::Extent;
use crate::gpu::{
    Arithmetic, Config, Gpu, Launch, LaunchError, Problem, Wishes, device, devices, recommend,
};

fn advised(name: &str, text: &str) -> Launch {
    let advice = recommend(&device(name).unwrap(), &parse(text), &Wishes::default());
    advice.unwrap().launch
}

/// Every output is someone's, and no limit is broken.
fn covers(gpu: &Gpu, workload: &Workload, launch: &Launch) {
    let size = Extent::of(workload, &launch.problem).size;
    let mut groups = launch.groups;
    if let Problem::Product { .. } = launch.problem {
        // Every part of the sums has its groups.
        let split = u64::from(launch.config.split);
        assert!(groups[2].is_multiple_of(split));
        groups[2] /= split;
    }
    for axis in 0..3 {
        assert!(
            launch.chunks[axis] * launch.piece[axis] >= size[axis],
            "{workload}: {launch:?}"
        );
        assert!(
            groups[axis] * launch.span[axis] >= launch.piece[axis],
            "{workload}: {launch:?}"
        );
        assert!(
            launch.grid[axis] >= 1 && launch.grid[axis] <= gpu.limits.grid[axis],
            "{workload}: {launch:?}"
        );
        // Not a group more than needed along an axis.
        assert!(
            (groups[axis] - 1) * launch.span[axis] < launch.piece[axis],
            "{workload}: {launch:?}"
        );
    }
    let all: u64 = launch.groups.iter().product();
    assert!(launch.grid.iter().product::<u64>() >= all);
    let config = &launch.config;
    assert!(config.threads() <= gpu.limits.threads_per_group);
    assert!(config.group[0] <= gpu.limits.group[0] && config.group[1] <= gpu.limits.group[1]);
    assert!(launch.shared_bytes <= gpu.limits.shared_per_group);
    // What a group covers is what its threads cover.
    if let Problem::Product { .. } = launch.problem {
        assert_eq!(launch.span[0], u64::from(config.group[0] * config.tile[0]));
        assert_eq!(launch.span[1], u64::from(config.group[1] * config.tile[1]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any rectangular shape, primes and single rows among them, on any device.
    #[test]
    fn grids_cover_every_output(a in 1usize..400, b in 1usize..400, c in 1usize..24, which in 0usize..64) {
        let all = devices();
        let gpu = &all[which % all.len()];
        for (a, b) in [(a, b), (1, b), (a, 1), (97, b)] {
            for workload in workloads(a, b, c) {
                match ranked(gpu, &workload, &Wishes::default()) {
                    Ok(launches) => launches.iter().for_each(|(launch, _)| covers(gpu, &workload, launch)),
                    Err(error) => prop_assert!(matches!(error, LaunchError::Unsupported { .. }), "{workload}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_grid_follows_the_shape() {
    let launch = advised("a100", "matmul f32 4096x512x1000");
    let [x, y] = [launch.span[0], launch.span[1]];
    assert_eq!(launch.grid, [1000u64.div_ceil(x), 4096u64.div_ceil(y), 1]);
    // A product with a vector does not get a square tile, and enough groups for all units.
    let thin = advised("a100", "matmul f32 1x4096x4096");
    assert!(
        thin.span[1] <= 4 && thin.groups.iter().product::<u64>() >= 108,
        "{thin:?}"
    );
    // A batch is an axis of its own, images of a convolution are not.
    assert_eq!(
        advised("a100", "conv2d f32 n7 c8 h9 w9 k5 r3 s3 stride1 pad1").piece,
        [7 * 81, 5, 1]
    );
    assert_eq!(
        advised(
            "a100",
            "conv2d f32 n7 c8 h9 w9 k4 r3 s3 stride1 pad1 groups2"
        )
        .piece,
        [7 * 81, 2, 2]
    );
}

#[test]
fn long_axes_are_folded_into_the_limits() {
    // More rows than a grid has along y.
    let gpu = device("a100").unwrap();
    let workload = parse("softmax f32 1000000x64");
    for (launch, _) in ranked(&gpu, &workload, &Wishes::default()).unwrap() {
        covers(&gpu, &workload, &launch);
    }
    let one = advised("a100", "softmax f32 70000x64");
    assert!(one.grid[1] <= 65_535, "{one:?}");
    // More elements than a browser has groups along x.
    let web = device("webgpu-default").unwrap();
    let workload = parse("copy f32 30000000");
    let launches = ranked(&web, &workload, &Wishes::default()).unwrap();
    let folded = launches
        .iter()
        .find(|(launch, _)| launch.groups[0] > 65_535)
        .unwrap();
    assert!(folded.0.grid[1] > 1, "{folded:?}");
    launches
        .iter()
        .for_each(|(launch, _)| covers(&web, &workload, launch));
}

#[test]
fn shared_memory_is_that_of_the_tiles() {
    for (text, bytes) in [
        ("matmul f32 512x512x512", 4),
        ("matmul f64 512x512x512", 8),
        ("matmul f16 512x512x512", 2),
    ] {
        let launch = advised("a100", text);
        let sides = launch.span[0] + launch.span[1];
        assert_eq!(
            launch.shared_bytes,
            sides * u64::from(launch.config.depth) * bytes,
            "{text}"
        );
    }
    // 16 x 16 outputs of single precision, 8 deep: two tiles of 512 bytes.
    let gpu = device("a100").unwrap();
    let workload = parse("matmul f32 512x512x512");
    let small = Config {
        group: [16, 16],
        tile: [1, 1],
        depth: 8,
        vector: 1,
        split: 1,
        staged: true,
        arithmetic: Arithmetic::Own,
    };
    assert_eq!(
        launch(&gpu, &workload, small, None).unwrap().shared_bytes,
        1024
    );
    assert_eq!(advised("a100", "copy f32 4096x4096").shared_bytes, 0);
}

#[test]
fn precision_is_not_given_away_unasked() {
    let tensor = |name: &str, text: &str, allowed| {
        let wishes = Wishes {
            allowed,
            memory_bytes: None,
        };
        let advice = recommend(&device(name).unwrap(), &parse(text), &wishes).unwrap();
        advice.launch.config.arithmetic
    };
    let product = "matmul f32 4096x4096x4096";
    use Numerics::{ReducedPrecision, Reordered};
    assert_eq!(tensor("a100", product, Reordered), Arithmetic::Own);
    assert_eq!(
        tensor("a100", product, ReducedPrecision),
        Arithmetic::Tensor
    );
    // Without the capability, permission does not help.
    assert_eq!(tensor("v100", product, ReducedPrecision), Arithmetic::Own);
    assert_eq!(
        tensor("a100", "matmul f64 1024x1024x1024", ReducedPrecision),
        Arithmetic::Own
    );
    // Halves lose nothing to matrix units.
    assert_eq!(
        tensor("v100", "matmul f16 4096x4096x4096", Reordered),
        Arithmetic::Tensor
    );
    assert_eq!(
        tensor("v100", "matmul bf16 4096x4096x4096", Reordered),
        Arithmetic::Own
    );
    // Every launch that is considered keeps it, not only the first.
    for name in ["a100", "apple-m2"] {
        let gpu = device(name).unwrap();
        let all = ranked(&gpu, &parse(product), &Wishes::default()).unwrap();
        assert!(
            all.iter()
                .all(|(launch, _)| launch.config.arithmetic == Arithmetic::Own),
            "{name}"
        );
    }
    let wishes = Wishes {
        allowed: ReducedPrecision,
        memory_bytes: None,
    };
    let all = ranked(&device("apple-m2").unwrap(), &parse(product), &wishes).unwrap();
    assert!(
        all.iter()
            .any(|(launch, _)| launch.config.arithmetic == Arithmetic::Half)
    );
    // Without the feature there are no halves in a browser.
    let all = ranked(&device("webgpu-default").unwrap(), &parse(product), &wishes).unwrap();
    assert!(
        all.iter()
            .all(|(launch, _)| launch.config.arithmetic == Arithmetic::Own)
    );
}

#[test]
fn bits_are_promised_only_where_nothing_is_rounded() {
    let exact = Wishes {
        allowed: Numerics::BitIdentical,
        memory_bytes: None,
    };
    let gpu = device("a100").unwrap();
    for text in [
        "copy f32 100",
        "transpose f32 30x40 perm1,0",
        "matmul i32 30x40x50",
        "sort f32 3x100",
    ] {
        assert!(recommend(&gpu, &parse(text), &exact).is_ok(), "{text}");
    }
    let error = recommend(&gpu, &parse("matmul f32 30x40x50"), &exact).unwrap_err();
    assert!(matches!(error, LaunchError::Permission { .. }), "{error}");
}

#[test]
fn memory_is_kept_by_cutting_or_refused() {
    // Three matrices of 1 GiB: a browser binds 128 MiB at a time.
    let big = "matmul f32 16384x16384x16384";
    let launch = advised("webgpu-default", big);
    assert!(launch.launches() > 1);
    for operand in [
        16384u64 * 16384 * 4 / launch.chunks[1],
        16384 * 16384 * 4 / launch.chunks[0],
    ] {
        assert!(operand <= 128 << 20, "{launch:?}");
    }
    covers(&device("webgpu-default").unwrap(), &parse(big), &launch);
    assert_eq!(advised("a100", big).launches(), 1);
    // One long row can be cut where parts of it can be put together.
    let sum = advised("webgpu-default", "reduce.sum f32 100000000");
    assert!(
        sum.chunks[0] > 2 && sum.memory_bytes <= 129 << 20,
        "{sum:?}"
    );
    // A limit of the caller's.
    let tight = Wishes {
        memory_bytes: Some(1 << 30),
        ..Wishes::default()
    };
    let advice = recommend(&device("a100").unwrap(), &parse(big), &tight).unwrap();
    assert!(
        advice.launch.launches() > 1 && advice.launch.memory_bytes <= 1 << 30,
        "{:?}",
        advice.launch
    );
    assert!(
        advice
            .reasoning
            .iter()
            .any(|line| line.contains("launches")),
        "{:?}",
        advice.reasoning
    );
    // Whole rows have to fit: no cutting helps a table that everyone needs.
    let limit = Wishes {
        memory_bytes: Some(1 << 20),
        ..Wishes::default()
    };
    let error = recommend(
        &device("a100").unwrap(),
        &parse("gather f32 50000x768 axis0 idx4096"),
        &limit,
    )
    .unwrap_err();
    assert!(
        matches!(error, LaunchError::Memory { operand, .. } if operand != "out"),
        "{error}"
    );
    let error = recommend(
        &device("a100").unwrap(),
        &parse("softmax f32 4x10000000"),
        &limit,
    )
    .unwrap_err();
    assert!(matches!(error, LaunchError::Memory { .. }), "{error}");
    // Nothing at all is not enough either.
    let none = Wishes {
        memory_bytes: Some(0),
        ..Wishes::default()
    };
    assert!(matches!(
        recommend(&device("a100").unwrap(), &parse("copy f32 100"), &none),
        Err(LaunchError::Memory { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Pieces keep the limit and leave nothing out.
    #[test]
    fn pieces_keep_the_limit(a in 1usize..3000, b in 1usize..3000, c in 1usize..64, limit in 12u32..26) {
        let gpu = device("l4").unwrap();
        let wishes = Wishes { memory_bytes: Some(1 << limit), ..Wishes::default() };
        for workload in workloads(a, b, c) {
            match ranked(&gpu, &workload, &wishes) {
                Ok(launches) => for (launch, _) in &launches {
                    prop_assert!(launch.memory_bytes <= 1 << limit, "{workload}: {launch:?}");
                    covers(&gpu, &workload, launch);
                },
                Err(LaunchError::Memory { bytes, .. }) => prop_assert!(bytes > 1 << limit),
                Err(error) => prop_assert!(false, "{workload}: {error}"),
            }
        }
    }
}

/// Limits of an adapter that has little: everything still fits, or says why not.
#[test]
fn small_limits_are_kept() {
    let mut gpu = device("webgpu-default").unwrap();
    gpu.limits.threads_per_group = 64;
    gpu.limits.group = [64, 8, 1];
    gpu.limits.shared_per_group = 2048;
    gpu.limits.grid = [100, 100, 100];
    gpu.check().unwrap();
    for workload in workloads(50, 60, 7) {
        match ranked(&gpu, &workload, &Wishes::default()) {
            Ok(launches) => {
                assert!(!launches.is_empty());
                launches
                    .iter()
                    .for_each(|(launch, _)| covers(&gpu, &workload, launch));
            }
            Err(error) => assert!(
                matches!(
                    error,
                    LaunchError::Unsupported { .. } | LaunchError::Nothing { .. }
                ),
                "{workload}: {error}"
            ),
        }
    }
    // A million groups are all there are, and nothing is cut that fits.
    gpu.limits.binding_bytes = None;
    let error = recommend(&gpu, &parse("copy f32 4000000000"), &Wishes::default()).unwrap_err();
    assert!(matches!(error, LaunchError::Nothing { .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("are more than the 1000000 that webgpu-default allows"),
        "{error}"
    );
}

#[test]
fn settings_from_outside_are_checked() {
    let gpu = device("a100").unwrap();
    let workload = parse("matmul f32 64x64x64");
    let good = advised("a100", "matmul f32 64x64x64").config;
    assert_eq!(Config::read(&good.params().unwrap()).unwrap(), good);
    offered(&gpu, &workload, &good).unwrap();
    for (bad, limit) in [
        (
            Config {
                group: [0, 1],
                ..good
            },
            false,
        ),
        (
            Config {
                group: [2048, 1],
                ..good
            },
            true,
        ),
        (
            Config {
                group: [u32::MAX, u32::MAX],
                ..good
            },
            true,
        ),
        (
            Config {
                tile: [3, 3],
                ..good
            },
            false,
        ),
        (Config { depth: 0, ..good }, false),
        (
            Config {
                arithmetic: Arithmetic::Half,
                ..good
            },
            false,
        ),
    ] {
        let error = offered(&gpu, &workload, &bad).unwrap_err();
        assert_eq!(
            matches!(error, LaunchError::Limit { .. }),
            limit,
            "{bad:?}: {error}"
        );
        assert!(
            limit || matches!(error, LaunchError::Config(_)),
            "{bad:?}: {error}"
        );
    }
    let read = |text: &str| Config::read(&text.parse().unwrap()).unwrap_err();
    assert_eq!(read("group_x=8"), "`arithmetic` is missing");
    assert_eq!(
        read("groupx=8"),
        "a launch has no parameter `groupx`: did you mean `group_x`?"
    );
}

#[test]
fn types_a_device_lacks_are_named() {
    for (name, text) in [
        ("apple-m2", "matmul f64 8x8x8"),
        ("webgpu-default", "copy f16 8"),
        ("webgpu-default", "sort i64 8"),
    ] {
        let error =
            recommend(&device(name).unwrap(), &parse(text), &Wishes::default()).unwrap_err();
        assert!(matches!(error, LaunchError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn occupancy_is_that_of_what_is_launched() {
    use crate::gpu::{Usage, occupancy};
    let gpu = device("a100").unwrap();
    for workload in workloads(300, 200, 9) {
        for (launch, _) in ranked(&gpu, &workload, &Wishes::default()).unwrap() {
            let usage = Usage {
                threads: launch.config.threads(),
                registers: launch.registers,
                shared_bytes: launch.shared_bytes,
            };
            assert_eq!(
                launch.occupancy,
                occupancy(&gpu, usage).unwrap(),
                "{workload}"
            );
        }
    }
    let launch = advised("apple-m2", "matmul f32 512x512x512");
    assert_eq!(launch.occupancy, None);
}
