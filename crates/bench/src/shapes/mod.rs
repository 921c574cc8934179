//! The shapes that are benchmarked when none are named, and files of shapes.

mod file;
mod spread;

use kernelwise_types::{Machine, Workload};

pub use file::{ShapeFileError, read_shapes};
pub use spread::{SPREAD_OPERATIONS, spread_shapes};

/// What a list of shapes is written with: every text is a workload, `@` its beyond-cache number of elements.
const MATMUL: &[&str] = &[
    "matmul f32 2x2x2",
    "matmul f32 3x3x3",
    "matmul f32 4x4x4",
    "matmul f32 6x6x6",
    "matmul f32 8x8x8",
    "matmul f32 12x12x12",
    "matmul f32 15x15x15",
    "matmul f32 16x16x16",
    "matmul f32 17x17x17",
    "matmul f32 24x24x24",
    "matmul f32 32x32x32",
    "matmul f32 48x48x48",
    "matmul f32 64x64x64",
    "matmul f32 100x100x100",
    "matmul f32 128x128x128",
    "matmul f32 256x256x256",
    "matmul f32 384x384x384",
    "matmul f32 512x512x512",
    "matmul f32 768x768x768",
    "matmul f32 1024x1024x1024",
    "matmul f32 1024x1024x1024 tb",
    // Skinny: few rows, few columns, both with a long inner dimension.
    "matmul f32 4x512x512",
    "matmul f32 512x512x4",
    "matmul f32 16x1024x1024",
    "matmul f32 1024x1024x16",
    "matmul f32 1024x16x1024",
    "matmul f32 8x16384x8",
    "matmul f32 32x8192x32",
    "matmul f32 64x64x2048 ta",
    // Matrix times vector, both ways.
    "matmul f32 1x64x64",
    "matmul f32 1x1024x1024",
    "matmul f32 1024x1024x1",
    "matmul f32 1x1024x1024 tb",
    // Many small ones.
    "matmul f32 1000x4x4x4",
    "matmul f32 256x16x16x16",
    "matmul f32 64x32x64x32",
];

/// Every kind of layer of ResNet-50 for one image, then what other networks add: depthwise and large filters.
const CONV2D: &[&str] = &[
    "conv2d f32 n1 c3 h224 w224 k64 r7 s7 stride2 pad3",
    "conv2d f32 n1 c64 h56 w56 k64 r1 s1",
    "conv2d f32 n1 c64 h56 w56 k64 r3 s3 pad1",
    "conv2d f32 n1 c64 h56 w56 k256 r1 s1",
    "conv2d f32 n1 c256 h56 w56 k64 r1 s1",
    "conv2d f32 n1 c256 h56 w56 k128 r1 s1",
    "conv2d f32 n1 c128 h56 w56 k128 r3 s3 stride2 pad1",
    "conv2d f32 n1 c128 h28 w28 k512 r1 s1",
    "conv2d f32 n1 c256 h56 w56 k512 r1 s1 stride2",
    "conv2d f32 n1 c512 h28 w28 k128 r1 s1",
    "conv2d f32 n1 c128 h28 w28 k128 r3 s3 pad1",
    "conv2d f32 n1 c512 h28 w28 k256 r1 s1",
    "conv2d f32 n1 c256 h28 w28 k256 r3 s3 stride2 pad1",
    "conv2d f32 n1 c256 h14 w14 k1024 r1 s1",
    "conv2d f32 n1 c512 h28 w28 k1024 r1 s1 stride2",
    "conv2d f32 n1 c1024 h14 w14 k256 r1 s1",
    "conv2d f32 n1 c256 h14 w14 k256 r3 s3 pad1",
    "conv2d f32 n1 c1024 h14 w14 k512 r1 s1",
    "conv2d f32 n1 c512 h14 w14 k512 r3 s3 stride2 pad1",
    "conv2d f32 n1 c512 h7 w7 k2048 r1 s1",
    "conv2d f32 n1 c1024 h14 w14 k2048 r1 s1 stride2",
    "conv2d f32 n1 c2048 h7 w7 k512 r1 s1",
    "conv2d f32 n1 c512 h7 w7 k512 r3 s3 pad1",
    "conv2d f32 n1 c32 h112 w112 k32 r3 s3 pad1 groups32",
    "conv2d f32 n1 c512 h14 w14 k512 r3 s3 pad1 groups512",
    "conv2d f32 n1 c32 h28 w28 k64 r5 s5 pad2",
    "conv2d f32 n1 c16 h64 w64 k16 r15 s15 pad7",
];

/// The texts of one operation's shapes; `@` is a number of elements that does not fit the caches.
fn texts(operation: &str) -> &'static [&'static str] {
    match operation {
        "matmul" => MATMUL,
        "conv2d" => CONV2D,
        "conv3d" => &[
            "conv3d f32 n1 c3 d8 h56 w56 k16 t3 r3 s3 pad1",
            "conv3d f32 n1 c16 d8 h28 w28 k32 t3 r3 s3 pad1",
            "conv3d f32 n1 c64 d4 h14 w14 k64 t3 r3 s3 pad1",
            "conv3d f32 n1 c64 d4 h14 w14 k64 t1 r1 s1",
        ],
        "elementwise" => &[
            "elementwise.add f32 1000",
            "elementwise.add f32 100000",
            "elementwise.add:row+gelu f32 128x768",
            "elementwise.mul+add f32 1000000",
            "elementwise.add f32 @",
            "elementwise.mul:scalar+relu f32 @",
        ],
        "activation" => &[
            "activation.relu f32 1000",
            "activation.relu f32 1000000",
            "activation.gelu f32 1000",
            "activation.gelu f32 128x768",
            "activation.sigmoid f32 1000000",
            "activation.tanh f32 1000000",
        ],
        "pool2d" => &[
            "pool2d.max f32 n1 c64 h112 w112 r3 s3 stride2 pad1",
            "pool2d.max f32 n1 c64 h56 w56 r2 s2 stride2 pad0",
            "pool2d.avg f32 n1 c2048 h7 w7 r7 s7",
        ],
        "norm" => &[
            "norm.layer f32 128x768",
            "norm.layer f32 16x64",
            "norm.rms f32 128x4096",
            "norm.batch f32 1x64x56x56 infer",
        ],
        "softmax" => &[
            "softmax f32 1024x16",
            "softmax f32 128x1024",
            "softmax f32 4x50000",
            "softmax.log f32 128x1024",
        ],
        "reduce" => &[
            "reduce.sum f32 1000",
            "reduce.sum f32 1000000",
            "reduce.sum f32 1024x1024 axes1",
            "reduce.sum f32 1024x1024 axes0",
            "reduce.max f32 1000000",
            "reduce.argmax f32 128x1000 axes1",
        ],
        "scan" => &[
            "scan.sum f32 1000",
            "scan.sum f32 1000000",
            "scan.sum f32 128x1024 axis1",
            "scan.max f32 1024x128 axis0",
        ],
        "sort" => &[
            "sort u32 1000",
            "sort u32 100000",
            "sort u32 1000000",
            "sort f32 1000000",
            "sort u32 1000x100",
            "sort.pairs u32 1000000 values=u32 stable",
            "sort.arg f32 100000 stable",
        ],
        "fft" => &[
            "fft complex64 1000x64",
            "fft complex64 64x1024",
            "fft complex64 1000",
            "fft complex64 65536",
            "fft.real f32 64x1024",
        ],
        "gather" => &[
            "gather f32 50000x64 axis0 idx4096",
            "gather f32 50000x768 axis0 idx1024",
            "gather f32 1000000 axis0 idx100000",
        ],
        "scatter" => &[
            "scatter.add f32 50000x64 axis0 idx4096",
            "scatter.add f32 10000x768 axis0 idx1024",
            "scatter.assign f32 1000000 axis0 idx100000",
        ],
        "transpose" => &[
            "transpose f32 64x64 perm1,0",
            "transpose f32 1024x2048 perm1,0",
            "transpose f32 1000x1001 perm1,0",
            "transpose f32 8x128x12x64 perm0,2,1,3",
        ],
        "reshape" => &["reshape f32 1000x100 to=100x1000"],
        "copy" => &[
            "copy f32 1000",
            "copy f32 100000",
            "copy f32 1000000",
            "copy f32 @",
        ],
        _ => &[],
    }
}

/// The shapes of an operation that are benchmarked when none are named: sizes over decades, some awkward ones, and for
/// copies and elementwise work one that lies in main memory. With a variant (`reduce.max`) only those of it; where there are
/// none, those of the other variants with this one in their place. Empty for a custom operation, whose shapes only its
/// author knows, and for names that are no operation.
pub fn default_shapes(operation: &str, machine: &Machine) -> Vec<Workload> {
    let far = beyond_cache(machine).to_string();
    let name = operation
        .split_once('.')
        .map_or(operation, |(name, _)| name);
    let all: Vec<Workload> = texts(name)
        .iter()
        .filter_map(|text| text.replace('@', &far).parse().ok())
        .collect();
    if name == operation {
        return all;
    }
    let of_variant = |shape: &&Workload| shape.operation().to_string() == operation;
    let shapes: Vec<Workload> = all.iter().filter(of_variant).cloned().collect();
    if !shapes.is_empty() {
        return shapes;
    }
    let mut made: Vec<Workload> = Vec::new();
    for shape in &all {
        let text = shape.to_string();
        let fields = text.split_once(' ').map_or("", |(_, fields)| fields);
        // Not every variant takes the sizes and the element type of another.
        if let Ok(shape) = format!("{operation} {fields}").parse()
            && !made.contains(&shape)
        {
            made.push(shape);
        }
    }
    made
}

/// Elements of an f32 tensor such that two of them are twice as large as the last-level caches, as the calibration of main
/// memory has it, within an eighth of the memory each. 64 MiB where the caches are unknown.
fn beyond_cache(machine: &Machine) -> u64 {
    const UNKNOWN: u64 = 64 << 20;
    let cache = machine.last_level_caches().map(|c| c.size_bytes.0).max();
    let memory = machine.usable_memory().map_or(u64::MAX, |memory| memory.0);
    let bytes = cache.unwrap_or(UNKNOWN).max(UNKNOWN).min(memory / 8);
    // Whole thousands, so that it can be read.
    (bytes / 4).next_multiple_of(1000)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use kernelwise_types::op::Operation;
    use kernelwise_types::units::Bytes;
    use kernelwise_types::{LayoutKind, Reading};

    use super::*;

    /// A text that could not be read would silently not be measured.
    #[test]
    fn every_text_is_a_shape_of_its_operation_and_stands_once() {
        let machine = kernelwise_probe::machine();
        for name in Operation::NAMES {
            let shapes = default_shapes(name, &machine);
            assert_eq!(shapes.len(), texts(name).len(), "{name}");
            assert_eq!(shapes.is_empty(), *name == "custom", "{name}");
            assert!(shapes.iter().all(|shape| shape.operation().name() == *name));
            let different: HashSet<&Workload> = shapes.iter().collect();
            assert_eq!(different.len(), shapes.len(), "{name}");
        }
        assert!(default_shapes("matmull", &machine).is_empty());
    }

    #[test]
    fn a_variant_has_its_own_shapes_or_those_of_the_others() {
        let machine = kernelwise_probe::machine();
        let texts = |operation: &str| -> Vec<String> {
            let shapes = default_shapes(operation, &machine);
            shapes.iter().map(Workload::to_string).collect()
        };
        assert_eq!(texts("reduce.argmax"), ["reduce.argmax f32 128x1000 axes1"]);
        let means = texts("reduce.mean");
        assert!(means.contains(&"reduce.mean f32 1000".to_owned()));
        assert!(means.iter().all(|text| text.starts_with("reduce.mean ")));
        let different: HashSet<&String> = means.iter().collect();
        assert_eq!(different.len(), means.len());
        // Its element type is not that of every Fourier transform.
        assert!(!texts("fft.inverse_real").is_empty());
        for none in ["reduce.foo", "matmul.foo", "custom.wave_step"] {
            assert!(texts(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn far_shapes_outgrow_the_caches_of_the_machine_at_hand() {
        let mut machine = kernelwise_probe::machine();
        machine.memory = Reading::Known(Bytes(64 << 30));
        machine.limits.memory = Reading::Known(None);
        for mebibytes in [8, 300] {
            if let Reading::Known(caches) = &mut machine.caches {
                caches
                    .iter_mut()
                    .for_each(|cache| cache.size_bytes = Bytes(mebibytes << 20));
            }
            let shapes = default_shapes("copy", &machine);
            let bytes = shapes.iter().map(|s| s.inputs()[0].bytes()).max();
            assert!(bytes >= Some(mebibytes << 20), "{bytes:?}");
            assert!(shapes.iter().all(|s| s.layout() == LayoutKind::Contiguous));
        }
        machine.memory = Reading::Known(Bytes(256 << 20));
        assert!(beyond_cache(&machine) * 4 <= 33 << 20);
    }
}
