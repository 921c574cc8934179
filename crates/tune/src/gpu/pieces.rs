//! What does not fit into memory, or into one buffer, is cut into pieces that are launched one after the other.

use kernelwise_types::Workload;
use kernelwise_types::op::Operation;

use super::launch::LaunchError;
use super::problem::Problem;

/// The work along its axes (x, y, z), and how it may be cut.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Extent {
    /// Size along each axis.
    pub(super) size: [u64; 3],
    /// Cuts along an axis are at multiples of this.
    pub(super) grain: [u64; 3],
    /// Bytes of each operand, its name, and the axes whose cuts make it smaller.
    pub(super) operands: Vec<(&'static str, u64, [bool; 3])>,
}

impl Extent {
    pub(super) fn of(workload: &Workload, problem: &Problem) -> Self {
        let (x, y, z) = (0, 1, 2);
        let axes = |list: &[usize]| [x, y, z].map(|axis| list.contains(&axis));
        let (inputs, outputs) = (workload.inputs(), workload.outputs());
        let both = inputs
            .iter()
            .map(|o| (o, false))
            .chain(outputs.iter().map(|o| (o, true)));
        let mut grain = [1, 1, 1];
        let mut operands = Vec::new();
        let size = match *problem {
            Problem::Product { batch, m, n, .. } => {
                let matmul = matches!(workload.operation(), Operation::Matmul(_));
                if !matmul {
                    // Windows overlap: images are cut from each other, not within.
                    let images = inputs.first().and_then(|o| o.shape.dims().first());
                    grain[x] = (n / images.map_or(1, |&n| n as u64).max(1)).max(1);
                }
                let [first, second] = match matmul {
                    true => [axes(&[y, z]), axes(&[x, z])],
                    // Images, then filters; groups of channels lie within both.
                    false => [axes(&[x]), axes(&[y])],
                };
                let output = if matmul {
                    axes(&[x, y, z])
                } else {
                    axes(&[x, y])
                };
                let masks = [first, second];
                for (operand, mask) in inputs.iter().zip(masks) {
                    operands.push((operand.name, operand.bytes(), mask));
                }
                operands.extend(outputs.iter().map(|o| (o.name, o.bytes(), output)));
                if !matmul {
                    grain[2] = batch;
                }
                [n, m, batch]
            }
            Problem::Stream { elements } => {
                let pooled = matches!(workload.operation(), Operation::Pool2d(_));
                if pooled && let Some(out) = outputs.first() {
                    // Planes are cut from each other.
                    grain[x] = out
                        .shape
                        .dims()
                        .iter()
                        .rev()
                        .take(2)
                        .map(|&n| n as u64)
                        .product();
                }
                for (operand, _) in both {
                    let own = operand.shape.elements() as u64;
                    let along = pooled || own == elements && elements > 1;
                    operands.push((operand.name, operand.bytes(), [along, false, false]));
                }
                [elements, 1, 1]
            }
            Problem::Rows {
                rows,
                length,
                splits,
                ..
            } => {
                for (operand, output) in both {
                    // Operands of all rows, and what all of them share.
                    let whole = operand.shape.elements() as u64 * 2 >= rows * length;
                    let cut = [whole && splits, whole || output, false];
                    operands.push((operand.name, operand.bytes(), cut));
                }
                [length, rows, 1]
            }
            Problem::Exchange {
                batch,
                rows,
                columns,
            } => {
                for (operand, _) in both {
                    operands.push((operand.name, operand.bytes(), axes(&[y, z])));
                }
                [columns, rows, batch]
            }
        };
        Self {
            size,
            grain,
            operands,
        }
    }

    /// Bytes of each operand that a piece needs.
    fn bytes(&self, cuts: [u64; 3]) -> impl Iterator<Item = (usize, u64)> {
        let each = self.operands.iter().enumerate();
        each.map(move |(at, (_, bytes, axes))| {
            let parts: u64 = (0..3)
                .filter(|&axis| axes[axis])
                .map(|axis| cuts[axis])
                .product();
            (at, bytes.div_ceil(parts.max(1)))
        })
    }

    /// Bytes of all operands of a piece.
    pub(super) fn total(&self, cuts: [u64; 3]) -> u64 {
        self.bytes(cuts)
            .map(|(_, bytes)| bytes)
            .fold(0, u64::saturating_add)
    }

    /// The size of the largest piece along each axis.
    pub(super) fn piece(&self, cuts: [u64; 3]) -> [u64; 3] {
        [0, 1, 2].map(|axis| {
            let each = self.grains(axis).div_ceil(cuts[axis].max(1));
            (each * self.grain[axis].max(1)).min(self.size[axis])
        })
    }

    /// The fewest cuts found, by halving what is largest, so that no operand of a piece is larger than `each` and all
    /// together not larger than `all`.
    pub(super) fn cuts(
        &self,
        device: &str,
        each: Option<u64>,
        all: Option<u64>,
    ) -> Result<[u64; 3], LaunchError> {
        let mut cuts = [1u64; 3];
        loop {
            let oversized = self
                .bytes(cuts)
                .filter(|(_, bytes)| each.is_some_and(|most| *bytes > most));
            let shrinkable = self
                .bytes(cuts)
                .filter(|(at, _)| self.axis_of(*at, cuts).is_some());
            let largest = |(at, _): (usize, u64)| at;
            let (at, most) =
                if let Some(at) = oversized.max_by_key(|(_, bytes)| *bytes).map(largest) {
                    (at, each)
                } else if all.is_some_and(|most| self.total(cuts) > most) {
                    let at = shrinkable.max_by_key(|(_, bytes)| *bytes).map(largest);
                    (at.unwrap_or(0), all)
                } else {
                    return Ok(cuts);
                };
            let axis = self.axis_of(at, cuts).ok_or_else(|| LaunchError::Memory {
                device: device.to_owned(),
                operand: self.operands.get(at).map_or("operands", |(name, ..)| name),
                bytes: self.total(cuts),
                most: most.unwrap_or(0),
            })?;
            cuts[axis] = (cuts[axis] * 2).min(self.grains(axis));
        }
    }

    /// The most cuts along an axis.
    fn grains(&self, axis: usize) -> u64 {
        self.size[axis].div_ceil(self.grain[axis].max(1))
    }

    /// An axis along which cutting makes this operand smaller: the outermost that can still be cut.
    fn axis_of(&self, operand: usize, cuts: [u64; 3]) -> Option<usize> {
        let (_, _, axes) = self.operands.get(operand)?;
        let mut order = [2, 1, 0].into_iter();
        order.find(|&axis| axes[axis] && cuts[axis] < self.grains(axis))
    }
}
