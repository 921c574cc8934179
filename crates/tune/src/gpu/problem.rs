//! The shape of the work: what a grid has to cover, and what may be cut into pieces.
//!
//! Eighteen operations are four kinds of work to a GPU: products of matrices (also convolutions, seen as products of
//! filters with windows), streams of elements, rows that are worked on as a whole, and exchanges of two axes.

use kernelwise_types::Workload;
use kernelwise_types::op::{NormKind, Operation};
use serde::{Deserialize, Serialize};

/// What a grid has to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Problem {
    /// `batch` products of m x k by k x n.
    Product {
        /// Independent products: batches, or groups of a convolution.
        batch: u64,
        /// Rows of an output; filters of a convolution.
        m: u64,
        /// Columns of an output; pixels of all images of a convolution.
        n: u64,
        /// What is summed over.
        k: u64,
    },
    /// Elements that do not see each other.
    Stream {
        /// How many.
        elements: u64,
    },
    /// Rows that do not see each other, each worked on as a whole.
    Rows {
        /// How many.
        rows: u64,
        /// Elements of a row.
        length: u64,
        /// Whether a row can be shared by several groups, whose results a second launch puts together.
        splits: bool,
        /// How often a row is read if it does not stay in shared memory.
        passes: u32,
    },
    /// Two axes change places: what is next to each other in the input is not in the output.
    Exchange {
        /// Independent exchanges.
        batch: u64,
        /// Elements along the axis that is innermost in the output.
        rows: u64,
        /// Elements along the axis that is innermost in the input.
        columns: u64,
    },
}

impl Problem {
    /// What a workload is to a GPU.
    pub fn of(workload: &Workload) -> Self {
        let size = |n: usize| n as u64;
        let elements = workload.elements().max(1);
        let stream = Self::Stream { elements };
        let output = || workload.outputs().first().map(|o| o.shape);
        match workload.operation() {
            Operation::Matmul(op) => Self::Product {
                batch: size(op.batch),
                m: size(op.m),
                n: size(op.n),
                k: size(op.k),
            },
            Operation::Conv2d(op) => {
                let taps = size(op.r) * size(op.s);
                product_of_windows(op.groups, op.k, op.c, taps, elements)
            }
            Operation::Conv3d(op) => {
                let taps = size(op.t) * size(op.r) * size(op.s);
                product_of_windows(op.groups, op.k, op.c, taps, elements)
            }
            Operation::Reduce(op) => {
                let all = size(op.shape.elements()).max(1);
                Self::rows(elements.min(all), all, true, 1)
            }
            Operation::Scan(op) => {
                let length = op.shape.dims().get(op.axis).copied().unwrap_or(1);
                Self::along(&op.shape, length, true, 2)
            }
            Operation::Softmax(op) => {
                let length = op.shape.dims().get(op.axis).copied().unwrap_or(1);
                Self::along(&op.shape, length, false, 3)
            }
            Operation::Norm(op) => {
                let dims = op.shape.dims();
                let length = match op.kind {
                    // Over everything but the channels, which are the second axis.
                    NormKind::Batch => {
                        op.shape.elements() / dims.get(1).copied().unwrap_or(1).max(1)
                    }
                    _ => dims.last().copied().unwrap_or(1),
                };
                let passes = if op.inference { 1 } else { 3 };
                Self::along(&op.shape, length, op.inference, passes)
            }
            Operation::Sort(op) => {
                let length = op.shape.dims().get(op.axis).copied().unwrap_or(1);
                Self::along(&op.shape, length, false, passes_of_halving(length))
            }
            Operation::Fft(op) => {
                let length = op.shape.dims().last().copied().unwrap_or(1);
                Self::along(&op.shape, length, false, passes_of_halving(length))
            }
            // Threads go over what is put, not over where it might be put.
            Operation::Scatter(_) => {
                let updates = workload.inputs().iter().map(|o| size(o.shape.elements()));
                Self::Stream {
                    elements: updates.skip(1).max().unwrap_or(elements).max(1),
                }
            }
            Operation::Transpose(op) => {
                let order: Vec<usize> = op.perm.iter().collect();
                let last = order.len().saturating_sub(1);
                let (Some(&innermost), Some(out)) = (order.last(), output()) else {
                    return stream;
                };
                // The innermost axis stays: whole runs are copied.
                if innermost == last {
                    return stream;
                }
                let rows = size(op.shape.dims().get(innermost).copied().unwrap_or(1)).max(1);
                let columns = size(op.shape.dims().get(last).copied().unwrap_or(1)).max(1);
                Self::Exchange {
                    batch: (size(out.elements()) / (rows * columns)).max(1),
                    rows,
                    columns,
                }
            }
            _ => stream,
        }
    }

    fn along(shape: &kernelwise_types::Shape, length: usize, splits: bool, passes: u32) -> Self {
        let rows = shape.elements() / length.max(1);
        Self::rows(rows as u64, shape.elements() as u64, splits, passes)
    }

    fn rows(rows: u64, elements: u64, splits: bool, passes: u32) -> Self {
        Self::Rows {
            rows: rows.max(1),
            length: (elements / rows.max(1)).max(1),
            splits,
            passes,
        }
    }
}

fn product_of_windows(
    groups: usize,
    filters: usize,
    channels: usize,
    taps: u64,
    outputs: u64,
) -> Problem {
    let (groups, filters, channels) = (groups.max(1) as u64, filters as u64, channels as u64);
    Problem::Product {
        batch: groups,
        m: (filters / groups).max(1),
        n: (outputs / filters.max(1)).max(1),
        k: (channels / groups * taps).max(1),
    }
}

/// Passes of an algorithm that halves, if a row does not stay near: a pass over memory does ten halvings in shared memory.
fn passes_of_halving(length: usize) -> u32 {
    let halvings = usize::BITS - length.leading_zeros();
    halvings.div_ceil(10).max(1)
}
