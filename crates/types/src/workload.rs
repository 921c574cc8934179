//! A workload: one operation on one element type, checked, with everything derived from it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cost::Cost;
use crate::dtype::DType;
use crate::layout::LayoutKind;
use crate::op::{Operand, Operation, WorkloadError};
use crate::units::{Bytes, Flops};

/// One operation with its sizes, element type and memory layout: the thing Kernelwise chooses kernels
/// for, and the key under which it remembers them.
///
/// A workload that exists is legal: its parts fit, no operand is empty, and its cost fits 64 bits. The
/// text form round-trips and is what stands in records.
///
/// ```
/// use kernelwise_types::Workload;
///
/// let workload: Workload = "matmul f32 512x512x512".parse()?;
/// let cost = workload.cost().expect("only custom operations may have no cost");
/// assert_eq!(cost.flops.0, 2 * 512 * 512 * 512);
/// assert_eq!(cost.bytes_read.0, 2 * 512 * 512 * 4);
/// assert_eq!(workload.to_string(), "matmul f32 512x512x512");
///
/// let error = "matmull f32 512x512x512".parse::<Workload>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown operation `matmull`; did you mean `matmul`?");
/// # Ok::<(), kernelwise_types::op::WorkloadError>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Workload {
    operation: Operation,
    dtype: DType,
    layout: LayoutKind,
    derived: Arc<Derived>,
}

/// What follows from the operation and the element type; computed once, shared by clones.
#[derive(Debug)]
struct Derived {
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    cost: Option<Cost>,
}

impl Workload {
    /// Checks an operation on an element type, operands lying row by row without gaps.
    pub fn new(operation: impl Into<Operation>, dtype: DType) -> Result<Self, WorkloadError> {
        let operation = operation.into();
        let problem = operation.problem();
        problem.check(dtype)?;
        let (inputs, outputs) = (problem.inputs(dtype)?, problem.outputs(dtype)?);
        let op = problem.name();
        // What a custom operation reads and writes is unknown; its size speaks for it.
        let size = match &operation {
            Operation::Custom(custom) => Some(Operand::of("size", dtype, custom.shape)),
            _ => None,
        };
        if let Some(empty) = inputs
            .iter()
            .chain(&outputs)
            .chain(&size)
            .find(|operand| operand.shape.is_empty())
        {
            return Err(WorkloadError::Empty {
                op,
                operand: empty.name,
                shape: empty.shape,
            });
        }
        let cost = cost(&operation, dtype)?;
        let derived = Arc::new(Derived {
            inputs,
            outputs,
            cost,
        });
        Ok(Self {
            operation,
            dtype,
            layout: LayoutKind::Contiguous,
            derived,
        })
    }

    /// The same with operands that lie in memory in another way.
    pub fn with_layout(mut self, layout: LayoutKind) -> Self {
        self.layout = layout;
        self
    }

    /// The operation with its sizes.
    #[inline]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The element types a kernel must know: that of the workload, then those of operands that have
    /// another, each once, in order. A product of `i8` has `i8` and `i32`.
    pub fn dtypes(&self) -> Vec<DType> {
        let mut dtypes = vec![self.dtype];
        for operand in self.inputs().iter().chain(self.outputs()) {
            if !dtypes.contains(&operand.dtype) {
                dtypes.push(operand.dtype);
            }
        }
        dtypes
    }

    /// Elements of the first output, or of the size that a custom operation is kept under.
    pub fn elements(&self) -> u64 {
        match (&self.operation, self.outputs().first()) {
            (Operation::Custom(custom), _) => custom.shape.elements() as u64,
            (_, Some(output)) => output.shape.elements() as u64,
            (_, None) => 0,
        }
    }

    /// How the operands lie in memory: the least convenient of them counts.
    #[inline]
    pub fn layout(&self) -> LayoutKind {
        self.layout
    }

    /// What is read, in the order kernels take it.
    #[inline]
    pub fn inputs(&self) -> &[Operand] {
        &self.derived.inputs
    }

    /// What is written.
    #[inline]
    pub fn outputs(&self) -> &[Operand] {
        &self.derived.outputs
    }

    /// What one call costs; `None` for a custom operation that did not say.
    pub fn cost(&self) -> Option<&Cost> {
        self.derived.cost.as_ref()
    }
}

fn cost(operation: &Operation, dtype: DType) -> Result<Option<Cost>, WorkloadError> {
    if !operation.has_cost() {
        return Ok(None);
    }
    let problem = operation.problem();
    let too_large = |what| WorkloadError::TooLarge {
        op: problem.name(),
        what,
    };
    let work = problem
        .work(dtype)
        .ok_or_else(|| too_large("arithmetic operations"))?;
    let traffic = problem.traffic(dtype)?;
    traffic
        .read
        .checked_add(traffic.written)
        .ok_or_else(|| too_large("bytes moved"))?;
    Ok(Some(Cost {
        flops: Flops(work.flops),
        transcendentals: work.transcendentals,
        comparisons: work.comparisons,
        bytes_read: Bytes(traffic.read),
        bytes_written: Bytes(traffic.written),
    }))
}

// Equality and hash look at what the rest is derived from.
impl PartialEq for Workload {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, self.layout) == (other.dtype, other.layout)
            && self.operation == other.operation
    }
}

impl Eq for Workload {}

impl Hash for Workload {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.operation, self.dtype, self.layout).hash(state);
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.dtype)?;
        self.operation.problem().write_fields(f)?;
        match self.layout {
            LayoutKind::Contiguous => Ok(()),
            other => write!(f, " layout={}", other.name()),
        }
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let syntax = || WorkloadError::Syntax {
            text: text.to_owned(),
        };
        let mut words = text.split_ascii_whitespace();
        let head = words.next().ok_or_else(syntax)?;
        let (name, variant) = head.split_once('.').unwrap_or((head, ""));
        if head.ends_with('.') {
            return Err(syntax());
        }
        if !Operation::NAMES.contains(&name) {
            return Err(WorkloadError::UnknownOperation {
                word: name.to_owned(),
            });
        }
        let dtype: DType = words.next().ok_or_else(syntax)?.parse()?;
        let (layouts, fields): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.starts_with("layout="));
        let operation = Operation::parse(name, variant, fields.into_iter())?;
        let layout = match layouts.as_slice() {
            [] => LayoutKind::Contiguous,
            [one] => LayoutKind::ALL
                .into_iter()
                .find(|kind| one.strip_prefix("layout=") == Some(kind.name()))
                .ok_or_else(|| WorkloadError::BadField {
                    op: operation.name(),
                    word: (*one).to_owned(),
                    expected: "layout=contiguous, layout=row_gaps or layout=strided",
                })?,
            [_, second, ..] => {
                let word = (*second).to_owned();
                return Err(WorkloadError::UnexpectedField {
                    op: operation.name(),
                    word,
                });
            }
        };
        Ok(Self::new(operation, dtype)?.with_layout(layout))
    }
}

impl TryFrom<String> for Workload {
    type Error = WorkloadError;
    fn try_from(text: String) -> Result<Self, WorkloadError> {
        text.parse()
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> Self {
        workload.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everything_that_changes_the_answer_is_in_the_key() {
        let texts = [
            "matmul f32 64x64x64",
            "matmul f32 64x64x65",
            "matmul f64 64x64x64",
            "matmul f32 64x64x64 ta",
            "matmul f32 64x64x64 tb",
            "matmul f32 64x64x64 layout=strided",
            "conv2d f32 n1 c8 h8 w8 k8 r3 s3 stride1 pad1",
            "conv2d f32 n1 c8 h8 w8 k8 r3 s3 stride1 pad1 groups8",
            "reduce.sum f32 64x64",
            "reduce.max f32 64x64",
        ];
        let keys: HashSet<Workload> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(keys.len(), texts.len());
        // The same problem, however it is put, has one key.
        let again: Workload = "matmul f32 64x64x64 layout=contiguous".parse().unwrap();
        assert!(keys.contains(&again));
    }

    #[test]
    fn element_types_and_size_are_those_of_the_operands() {
        let of = |text: &str| text.parse::<Workload>().unwrap();
        assert_eq!(of("matmul i8 2x3x4").dtypes(), [DType::I8, DType::I32]);
        assert_eq!(
            of("reduce.argmax f32 8x9 axes1").dtypes(),
            [DType::F32, DType::I64]
        );
        assert_eq!(of("copy bool 4").dtypes(), [DType::Bool]);
        assert_eq!(of("matmul f32 2x3x4").elements(), 8);
        assert_eq!(of("custom.mine f32 5x5").elements(), 25);
    }
}
