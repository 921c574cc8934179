//! What every device, workload and launch has to keep, whatever the numbers.

mod devices;
mod launches;
mod prices;
mod times;

use kernelwise_types::op::{Custom, Declared, Matmul};
use kernelwise_types::{DType, Shape, Workload};

/// A workload of every operation, with three sizes that each make it larger.
fn workloads(a: usize, b: usize, c: usize) -> Vec<Workload> {
    let texts = [
        format!("matmul f32 {a}x{b}x{c}"),
        format!("matmul f16 {a}x{b}x{c}"),
        format!("matmul i8 {a}x{b}x{c}"),
        format!("elementwise.add:row+gelu f32 {a}x{b}"),
        format!("activation.gelu f32 {a}x{b}x{c}"),
        format!("activation.relu f16 {a}x{b}x{c} layout=strided"),
        format!("conv2d f32 n{a} c{b} h9 w9 k{c} r3 s3 stride1 pad1"),
        format!(
            "conv2d f32 n{a} c{b} h{} w7 k{b} r3 s3 stride1 pad1 groups{b}",
            c + 2
        ),
        format!("conv3d f32 n{a} c{b} d4 h6 w6 k{c} t3 r3 s3 stride1 pad1"),
        format!("pool2d.max f32 n{a} c{b} h{} w4 r2 s2 stride2 pad0", 2 * c),
        format!("norm.layer f32 {a}x{b}"),
        format!("norm.batch f32 {a}x{b}x{c}"),
        format!("softmax f32 {a}x{b}"),
        format!("reduce.sum f32 {a}x{b} axes1"),
        format!("reduce.sum f32 {a}x{b}x{c}"),
        format!("scan.sum f32 {a}x{b} axis1"),
        format!("sort u32 {a}x{b}"),
        format!("fft complex64 {a}x{b}"),
        format!("gather f32 {a}x{b} axis0 idx{c}"),
        format!("scatter.add f32 {a}x{b} axis0 idx{c}"),
        format!("transpose f32 {a}x{b} perm1,0"),
        format!("transpose f32 {a}x{b}x{c} perm1,0,2"),
        format!("reshape f32 {a}x{b} to={b}x{a}"),
        format!("copy f32 {a}x{b}"),
    ];
    let mut all: Vec<Workload> = texts.iter().map(|text| text.parse().unwrap()).collect();
    let batched = Matmul {
        batch: c,
        ..Matmul::new(a, b, a)
    };
    all.push(Workload::new(batched, DType::F32).unwrap());
    let shape = Shape::new(&[a, b]).unwrap();
    let elements = (a * b) as u64;
    let custom = Custom {
        declared: Some(Declared {
            flops: 7 * elements + 3,
            read: 8 * elements,
            written: 4 * elements,
        }),
        ..Custom::new("wave", shape).unwrap()
    };
    all.push(Workload::new(custom, DType::F32).unwrap());
    all
}

fn parse(text: &str) -> Workload {
    text.parse().unwrap()
}
