//! A small classifier on arrays of `ndarray`: product, bias and activation in one pass, softmax, and a mean. Nothing is copied, also not
//! the columns of a larger array.
//!
//! Run it with `cargo run --release -p kernelwise --example ndarray`.

use std::error::Error;
use std::io::Write;

use kernelwise::op::{ActivationKind, Binary, Broadcast, ReduceKind, SoftmaxKind, Step};
use kernelwise::{Kernelwise, Tensor};
use ndarray::{Array1, Array2, s};

/// Classifies `rows` inputs of 64 numbers into 10 classes, so many times, and tells what was chosen.
pub(crate) fn run(out: &mut impl Write, rows: usize, times: usize) -> Result<(), Box<dyn Error>> {
    let kw = Kernelwise::new()?;
    // The inputs are columns of a larger table.
    let table = Array2::from_shape_fn((rows, 100), |(i, j)| ((i * 7 + j * 3) % 11) as f32 / 11.0);
    let inputs = table.slice(s![.., 20..84]);
    let weights = Array2::from_shape_fn((64, 10), |(i, j)| ((i + 5 * j) % 7) as f32 / 7.0 - 0.4);
    let bias = Array1::linspace(-0.5f32, 0.5, 10);
    let mut scores = Array2::<f32>::zeros((rows, 10));
    let mut hidden = scores.clone();
    let mut chances = scores.clone();
    let mut mean = Array1::<f32>::zeros(10);
    let steps = [
        Step::Binary(Binary::Add, Broadcast::Row),
        Step::Activation(ActivationKind::Relu),
    ];
    for _ in 0..times {
        kw.matmul(inputs, &weights, &mut scores)?;
        kw.elementwise(
            &steps,
            &[(&scores).tensor()?, (&bias).tensor()?],
            &mut hidden,
        )?;
        kw.softmax(SoftmaxKind::Plain, &hidden, Some(1), &mut chances)?;
        kw.reduce(ReduceKind::Mean, &chances, &[0], &mut mean)?;
    }
    // What plain ndarray says.
    let expected = (inputs.dot(&weights) + &bias).mapv(|x| x.max(0.0));
    let off = (&hidden - &expected).fold(0f32, |off, x| off.max(x.abs()));
    assert!(off < 1e-4, "{off}");
    assert!((mean.sum() - 1.0).abs() < 1e-4, "chances add up");
    for (kernel, calls) in kw.statistics().popular {
        writeln!(out, "{kernel} served {calls} calls")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout().lock(), 512, 2000)
}
