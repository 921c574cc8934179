//! The workloads that every kernel is tried on: small, odd, around vector widths and tile borders.

use kernelwise_types::op::Operation;
use kernelwise_types::{DType, Workload};

/// Texts of one operation; `@` stands for the element type.
fn texts(operation: &str) -> Vec<String> {
    let texts: &[&str] = match operation {
        "matmul" => &[
            "matmul @ 1x1x1",
            "matmul @ 1x7x1",
            "matmul @ 2x1x3",
            "matmul @ 3x5x2",
            "matmul @ 1x37x19",
            "matmul @ 37x19x1",
            "matmul @ 1x19x37 tb",
            "matmul @ 37x19x1 ta",
            "matmul @ 16x16x16",
            "matmul @ 5x16x9 ta",
            "matmul @ 9x3x15 tb",
            "matmul @ 7x11x13 ta tb",
            "matmul @ 15x17x31",
            "matmul @ 33x9x65 ta",
            "matmul @ 33x9x65 tb",
            "matmul @ 20x70x50 ta tb",
            "matmul @ 65x130x49",
            "matmul @ 3x300x2",
            "matmul @ 5x600x3",
            "matmul @ 8x513x8",
            "matmul @ 3x5x7x4",
            "matmul @ 2x18x20x33 tb",
        ],
        "conv2d" => &[
            "conv2d @ n1 c1 h1 w1 k1 r1 s1 stride1 pad0",
            "conv2d @ n1 c3 h5 w7 k2 r3 s3 stride1 pad1",
            "conv2d @ n2 c4 h9 w8 k5 r1 s1 stride1 pad0",
            "conv2d @ n1 c4 h9 w8 k5 r1 s1 stride2 pad0",
            "conv2d @ n1 c2 h6 w18 k9 r3 s3 stride1 pad0",
            "conv2d @ n1 c5 h13 w11 k17 r3 s3 stride1 pad1",
            "conv2d @ n2 c3 h9 w10 k4 r3 s2 stride2x1 pad1x0",
            "conv2d @ n1 c3 h17 w16 k8 r7 s7 stride2 pad3",
            "conv2d @ n1 c2 h11 w12 k3 r3 s3 stride1 pad2 dil2",
            "conv2d @ n1 c6 h7 w7 k6 r3 s3 stride1 pad1 groups6",
            "conv2d @ n2 c4 h8 w9 k8 r3 s3 stride2 pad1 groups4",
            "conv2d @ n1 c6 h6 w7 k4 r3 s3 stride1 pad1 groups2",
            "conv2d @ n1 c2 h20 w21 k2 r9 s11 stride1 pad4",
            "conv2d @ n1 c33 h4 w4 k34 r3 s3 stride1 pad1",
        ],
        "conv3d" => &[
            "conv3d @ n1 c1 d1 h1 w1 k1 t1 r1 s1 stride1 pad0",
            "conv3d @ n2 c3 d4 h5 w6 k4 t3 r3 s3 stride1 pad1",
            "conv3d @ n1 c2 d5 h6 w7 k3 t2 r3 s1 stride2x1x2 pad1x0x0",
            "conv3d @ n1 c4 d5 h5 w18 k6 t3 r3 s3 stride1 pad1 groups2",
            "conv3d @ n1 c2 d6 h7 w7 k2 t2 r2 s2 stride1 pad1 dil2",
        ],
        "elementwise" => return elementwise(),
        "activation" => return activation(),
        "pool2d" => &[
            "pool2d.max @ n1 c1 h1 w1 r1 s1 stride1 pad0",
            "pool2d.max @ n2 c3 h8 w9 r2 s2 stride2 pad0",
            "pool2d.max @ n1 c2 h11 w37 r3 s3 stride2 pad1",
            "pool2d.max @ n1 c2 h7 w40 r3 s2 stride1 pad1x0",
            "pool2d.max @ n1 c1 h9 w9 r3 s3 stride3x1 pad1",
            "pool2d.avg @ n2 c3 h8 w9 r2 s2 stride2 pad0",
            "pool2d.avg @ n1 c2 h11 w37 r3 s3 stride2 pad1",
            "pool2d.avg @ n1 c2 h7 w40 r3 s2 stride1 pad1x0",
            "pool2d.avg @ n1 c2 h7 w7 r7 s7 stride1 pad0",
        ],
        "norm" => &[
            "norm.layer @ 1",
            "norm.layer @ 3x7",
            "norm.layer @ 2x3x65",
            "norm.layer @ 2x257",
            "norm.rms @ 3x7",
            "norm.rms @ 2x3x65",
            "norm.rms @ 2x257",
            "norm.batch @ 2x3",
            "norm.batch @ 4x3x5x7",
            "norm.batch @ 2x17x33",
            "norm.batch @ 4x3x5x7 infer",
            "norm.batch @ 2x17x33 infer",
        ],
        "softmax" => &[
            "softmax @ 1",
            "softmax @ 3x7",
            "softmax @ 2x3x65",
            "softmax @ 2x257",
            "softmax @ 5x19 axis0",
            "softmax @ 3x4x17 axis1",
            "softmax.log @ 3x7",
            "softmax.log @ 2x257",
            "softmax.log @ 3x4x17 axis1",
        ],
        "reduce" => return reduce(),
        "scan" => return scan(),
        "sort" => return sort(),
        "fft" => &[
            "fft @ 1",
            "fft @ 2x2",
            "fft @ 3x7",
            "fft @ 2x16",
            "fft @ 3x60",
            "fft @ 1x97",
            "fft.inverse @ 1",
            "fft.inverse @ 3x7",
            "fft.inverse @ 2x16",
            "fft.inverse @ 3x60",
            "fft.real @ 1",
            "fft.real @ 3x7",
            "fft.real @ 2x16",
            "fft.real @ 3x60",
            "fft.inverse_real @ 1",
            "fft.inverse_real @ 3x7",
            "fft.inverse_real @ 2x16",
            "fft.inverse_real @ 3x60",
        ],
        "gather" => {
            return with_indices(&[
                "gather @ 1 axis0 idx1",
                "gather @ 9x5 axis0 idx20",
                "gather @ 3x17x2 axis1 idx11",
                "gather @ 4x33 axis1 idx70",
                "gather @ 300x3 axis0 idx64",
            ]);
        }
        "scatter" => return scatter(),
        "transpose" => &[
            "transpose @ 1x1 perm1,0",
            "transpose @ 3x5 perm1,0",
            "transpose @ 17x33 perm1,0",
            "transpose @ 40x16 perm1,0",
            "transpose @ 3x4 perm0,1",
            "transpose @ 3x7x18 perm0,2,1",
            "transpose @ 3x7x18 perm2,0,1",
            "transpose @ 3x7x18 perm1,0,2",
            "transpose @ 3x7x18 perm2,1,0",
            "transpose @ 2x3x4x5 perm0,2,3,1",
            "transpose @ 2x3x4x5 perm3,1,0,2",
        ],
        "reshape" => &[
            "reshape @ 1 to=1x1",
            "reshape @ 4x6 to=8x3",
            "reshape @ 3x5x7 to=105",
            "reshape @ 35x3 to=5x21",
        ],
        "copy" => &[
            "copy @ 1",
            "copy @ 7",
            "copy @ 3x5",
            "copy @ 2x3x67",
            "copy @ 259",
        ],
        _ => &[],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn elementwise() -> Vec<String> {
    let steps = [
        "neg", "abs", "sqrt", "recip", "exp", "log", "sin", "cos", "square", "add", "sub", "mul",
        "div", "min", "max", "pow",
    ];
    let chains = [
        "add+relu",
        "add:row+gelu",
        "mul+add",
        "mul:scalar+add",
        "sub:row+square+mul:scalar",
        "mul+add:row+max:scalar+neg",
        "exp+add:scalar+log",
        "add+mul+sub+div+add+mul+sub+abs",
        "add:row+silu+mul",
        "min:row+max:scalar",
    ];
    let singles = steps.iter().flat_map(|step| {
        [
            format!("elementwise.{step} @ 3x37"),
            format!("elementwise.{step} @ 1"),
        ]
    });
    let rows = ["add", "mul", "sub"].iter().flat_map(|step| {
        [
            format!("elementwise.{step}:row @ 5x65"),
            format!("elementwise.{step}:scalar @ 5x65"),
        ]
    });
    let fused = chains.iter().flat_map(|chain| {
        [
            format!("elementwise.{chain} @ 3x37"),
            format!("elementwise.{chain} @ 2x3x130"),
        ]
    });
    singles.chain(rows).chain(fused).collect()
}

fn activation() -> Vec<String> {
    let kinds = [
        "relu",
        "leaky_relu",
        "sigmoid",
        "tanh",
        "silu",
        "gelu",
        "gelu_tanh",
        "softplus",
        "elu",
        "hard_swish",
    ];
    let shapes = ["1", "3x37", "2x130"];
    kinds
        .iter()
        .flat_map(|kind| {
            shapes
                .iter()
                .map(move |shape| format!("activation.{kind} @ {shape}"))
        })
        .chain(["activation.leaky_relu @ 65 slope0.2".to_owned()])
        .collect()
}

fn reduce() -> Vec<String> {
    let kinds = [
        "sum", "mean", "prod", "max", "min", "argmax", "argmin", "l2",
    ];
    let shapes = [
        "1",
        "7",
        "300",
        "3x37",
        "3x37 axes1",
        "37x5 axes0",
        "4x5x19 axes1",
        "4x5x19 axes0,2",
        "2x3x70 axes2",
        "3x4x17 axes0,1",
        "2x67x3 axes1,2",
    ];
    let of = |kind: &&str| shapes.map(|shape| format!("reduce.{kind} @ {shape}"));
    kinds.iter().flat_map(of).collect()
}

fn scan() -> Vec<String> {
    let kinds = ["sum", "prod", "max", "min"];
    let shapes = [
        "1",
        "37",
        "300 exclusive",
        "3x67 reverse",
        "5x7 axis0",
        "3x4x18 axis1 exclusive reverse",
    ];
    let of = |kind: &&str| shapes.map(|shape| format!("scan.{kind} @ {shape}"));
    kinds.iter().flat_map(of).collect()
}

fn scatter() -> Vec<String> {
    let kinds = ["assign", "add", "max", "min"];
    let shapes = [
        "1 axis0 idx1",
        "9x5 axis0 idx20",
        "3x17x2 axis1 idx11",
        "4x33 axis1 idx70",
    ];
    let texts: Vec<String> = kinds
        .iter()
        .flat_map(|kind| shapes.map(|shape| format!("scatter.{kind} @ {shape}")))
        .collect();
    with_indices(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn sort() -> Vec<String> {
    let keys = [
        "sort @ 1",
        "sort @ 2",
        "sort @ 3x17",
        "sort @ 2x300",
        "sort @ 2x65 desc",
        "sort @ 7x5 axis0",
        "sort @ 2x40 stable desc",
        "sort.arg @ 3x17",
        "sort.arg @ 2x300 desc",
        "sort.arg @ 7x5 axis0 stable",
    ];
    // What a key carries along is a type of its own.
    let values = ["u32", "i32", "u64", "i64", "f32", "f64"];
    let of = |value: &str| {
        ["3x17", "2x300 desc", "7x5 axis0 stable"].map(|shape| {
            let (shape, rest) = shape.split_once(' ').unwrap_or((shape, ""));
            format!("sort.pairs @ {shape} values={value} {rest}")
        })
    };
    let keys = keys.iter().map(|text| (*text).to_owned());
    keys.chain(values.into_iter().flat_map(of)).collect()
}

/// Each text with both types of indices.
fn with_indices(texts: &[&str]) -> Vec<String> {
    texts
        .iter()
        .flat_map(|text| [(*text).to_owned(), format!("{text} index=i32")])
        .collect()
}

/// The workloads of one operation on one element type; those that are not defined on it are left out.
pub(super) fn of(operation: &str, dtype: DType) -> Vec<Workload> {
    texts(operation)
        .iter()
        .filter_map(|text| text.replace('@', dtype.name()).parse().ok())
        .collect()
}

/// The operations there are cases for: all but the users' own.
pub(super) fn operations() -> impl Iterator<Item = &'static str> {
    Operation::NAMES
        .iter()
        .copied()
        .filter(|name| *name != "custom")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with a mistake would be left out in silence.
    #[test]
    fn every_text_is_a_workload_on_some_element_type() {
        for operation in operations() {
            let texts = texts(operation);
            assert!(!texts.is_empty(), "{operation}");
            for text in texts {
                let legal = DType::ALL
                    .iter()
                    .any(|dtype| text.replace('@', dtype.name()).parse::<Workload>().is_ok());
                assert!(legal, "{text}");
            }
        }
    }
}
