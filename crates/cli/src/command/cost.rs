//! `kernelwise cost`: what an operation costs, from its shapes alone.

use anyhow::Context;
use kernelwise_types::op::Operand;
use kernelwise_types::{Cost, Workload};
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::output;

#[derive(Serialize)]
struct Answer<'a> {
    workload: &'a Workload,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// `null` for a custom operation that does not declare its cost.
    cost: Option<Counts>,
}

#[derive(Serialize)]
struct Tensor {
    name: &'static str,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: u64,
}

#[derive(Serialize)]
struct Counts {
    flops: u64,
    transcendentals: u64,
    comparisons: u64,
    read_bytes: u64,
    written_bytes: u64,
    intensity_flop_per_byte: Option<f64>,
}

/// Counts one workload.
pub(crate) fn run(args: &args::Cost) -> Result<(), Failure> {
    let text = args.words.join(" ");
    let workload: Workload = text
        .parse()
        .with_context(|| format!("`{text}`"))
        .map_err(Failure::Usage)?;
    match args.format {
        Format::Json => output::json("kernelwise.cost/1", &answer(&workload)),
        Format::Table => output::text(&table(&workload)),
    }
}

fn answer(workload: &Workload) -> Answer<'_> {
    let tensors = |operands: &[Operand]| {
        let tensor = |operand: &Operand| Tensor {
            name: operand.name,
            dtype: operand.dtype.name(),
            shape: operand.shape.dims().to_vec(),
            bytes: operand.bytes(),
        };
        operands.iter().map(tensor).collect()
    };
    let counts = |cost: &Cost| Counts {
        flops: cost.flops.0,
        transcendentals: cost.transcendentals,
        comparisons: cost.comparisons,
        read_bytes: cost.bytes_read.0,
        written_bytes: cost.bytes_written.0,
        intensity_flop_per_byte: cost.intensity(),
    };
    Answer {
        workload,
        inputs: tensors(workload.inputs()),
        outputs: tensors(workload.outputs()),
        cost: workload.cost().map(counts),
    }
}

fn table(workload: &Workload) -> String {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    for operand in workload.inputs() {
        row(
            "reads",
            format!("{} {} {}", operand.name, operand.dtype, operand.shape),
        );
    }
    for operand in workload.outputs() {
        row(
            "writes",
            format!("{} {} {}", operand.name, operand.dtype, operand.shape),
        );
    }
    match workload.cost() {
        None => row(
            "cost",
            "unknown (a custom operation that does not declare it)".to_owned(),
        ),
        Some(cost) => {
            row("arithmetic", format!("{} ({})", cost.flops, cost.flops.0));
            if cost.transcendentals > 0 {
                row("transcendentals", cost.transcendentals.to_string());
            }
            if cost.comparisons > 0 {
                row("comparisons", cost.comparisons.to_string());
            }
            row(
                "bytes read",
                format!("{} ({})", cost.bytes_read, cost.bytes_read.0),
            );
            row(
                "bytes written",
                format!("{} ({})", cost.bytes_written, cost.bytes_written.0),
            );
            let intensity = cost.intensity();
            row(
                "intensity",
                intensity.map_or("unknown".to_owned(), |i| format!("{i:.3} FLOP/byte")),
            );
        }
    }
    output::section(&workload.to_string(), &rows)
}
