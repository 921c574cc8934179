//! Operations: one file each, with what makes a problem legal, what shapes come out and what it costs.
//!
//! An operation holds its whole problem size as plain numbers (`m`, `n`, `k`; `stride`, `pad`). Everything
//! else is derived from them: operand shapes, arithmetic, bytes. There is no field in which a caller
//! could state a size that contradicts the shapes.
//!
//! To add one: write `op/<name>.rs` with a struct that implements [`Problem`], then add a line to the
//! `operations!` list below. The list makes the enum, the parser and the dispatch.

use std::fmt;

use crate::dtype::{DType, UnknownDType};
use crate::shape::{Shape, ShapeError};
use crate::text::Fields;

mod activation;
mod axis;
mod conv;
mod conv2d;
mod conv3d;
mod copy;
mod custom;
mod elementwise;
mod fft;
mod gather;
mod matmul;
mod norm;
mod pool;
mod reduce;
mod scan;
mod scatter;
mod softmax;
mod sort;
mod step;
mod transpose;
mod variant;
mod window;

pub use activation::{Activation, ActivationKind, Slope};
pub use conv2d::Conv2d;
pub use conv3d::Conv3d;
pub use copy::{Reshape, TensorCopy};
pub use custom::{Custom, CustomName, Declared};
pub use elementwise::Elementwise;
pub use fft::{Fft, FftKind};
pub use gather::{Gather, IndexType};
pub use matmul::Matmul;
pub use norm::{Norm, NormKind};
pub use pool::{Pool2d, PoolKind};
pub use reduce::{Axes, Reduce, ReduceKind};
pub use scan::{Scan, ScanKind};
pub use scatter::{Scatter, ScatterKind};
pub use softmax::{Softmax, SoftmaxKind};
pub use sort::{Sort, SortKind};
pub use step::{Binary, Broadcast, Step, Steps, Unary};
pub use transpose::{Permutation, Transpose};

/// One tensor that an operation reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// What it is called in the operation's documentation: `a`, `weights`, `out`.
    pub name: &'static str,
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
}

impl Operand {
    pub(crate) fn new(
        name: &'static str,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Self, WorkloadError> {
        Ok(Self {
            name,
            dtype,
            shape: Shape::new(dims)?,
        })
    }

    pub(crate) const fn of(name: &'static str, dtype: DType, shape: Shape) -> Self {
        Self { name, dtype, shape }
    }

    /// Its size in memory when stored without gaps.
    pub fn bytes(&self) -> u64 {
        // Shapes are bounded so that this product fits for every element type.
        self.shape.elements() as u64 * self.dtype.size() as u64
    }
}

/// Arithmetic of one call; the three counts of [`Cost`](crate::Cost) that are not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Arithmetic operations.
    pub flops: u64,
    /// Evaluations of transcendental functions.
    pub transcendentals: u64,
    /// Key comparisons.
    pub comparisons: u64,
}

impl Work {
    /// Arithmetic and nothing else.
    const fn flops(flops: u64) -> Self {
        Self {
            flops,
            transcendentals: 0,
            comparisons: 0,
        }
    }

    /// The same work as often as the product of the factors says.
    fn times(self, factors: &[usize]) -> Option<Self> {
        let times = count(factors)?;
        Some(Self {
            flops: self.flops.checked_mul(times)?,
            transcendentals: self.transcendentals.checked_mul(times)?,
            comparisons: self.comparisons.checked_mul(times)?,
        })
    }
}

/// Bytes one call must move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// What every operation can tell about one problem. Sealed: a user's own operation is [`Custom`].
pub trait Problem: fmt::Debug + sealed::Sealed {
    /// The operation's name, the first word of its text form.
    fn name(&self) -> &'static str;

    /// Whether the parameters fit each other and the element type. Operand shapes may be asked for
    /// only after this said yes. Dimensions of zero are legal here.
    fn check(&self, dtype: DType) -> Result<(), WorkloadError>;

    /// What is read, in the order kernels take it.
    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError>;

    /// What is written.
    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError>;

    /// Arithmetic, counted as [`Cost`](crate::Cost) says. `None` when a count does not fit 64 bits.
    fn work(&self, dtype: DType) -> Option<Work>;

    /// Compulsory traffic. The default reads every input and writes every output once; operations
    /// that touch only a part (gather) or read what they update (scatter-add) say so.
    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let sum = |operands: Vec<Operand>| {
            operands
                .iter()
                .try_fold(0u64, |sum, operand| sum.checked_add(operand.bytes()))
        };
        let (read, written) = (sum(self.inputs(dtype)?), sum(self.outputs(dtype)?));
        let too_large = WorkloadError::TooLarge {
            op: self.name(),
            what: "bytes moved",
        };
        Ok(Traffic {
            read: read.ok_or(too_large.clone())?,
            written: written.ok_or(too_large)?,
        })
    }

    /// Writes `.variant`, the dot included, if this operation has variants.
    fn write_variant(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Writes the fields after the element type, each with a blank before it.
    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

mod sealed {
    pub trait Sealed {}
}

/// Reads an operation from the parts of its text form.
trait Parse: Sized {
    /// `variant` is what followed the dot, empty if there was no dot.
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError>;
}

/// Makes the enum, its dispatch and the parser from one list: variant, text name, example.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $example:literal;)*) => {
        /// An operation with its whole problem size.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $variant($variant),)*
        }

        $(
            impl sealed::Sealed for $variant {}
            impl From<$variant> for Operation {
                fn from(problem: $variant) -> Self {
                    Self::$variant(problem)
                }
            }
        )*

        impl Operation {
            /// The names of all operations, as they begin a workload text.
            pub const NAMES: &[&str] = &[$($name),*];

            /// A workload text for each of [`NAMES`](Self::NAMES), for help and messages.
            pub const EXAMPLES: &[&str] = &[$($example),*];

            /// The problem behind the name.
            pub fn problem(&self) -> &dyn Problem {
                match self { $(Self::$variant(problem) => problem,)* }
            }

            /// Reads `name`, what follows its dot, and the words after the element type.
            pub(crate) fn parse<'a>(
                name: &str,
                variant: &str,
                words: impl Iterator<Item = &'a str>,
            ) -> Result<Self, WorkloadError> {
                match name {
                    $($name => {
                        let mut fields = Fields::new($name, words);
                        let problem = <$variant as Parse>::parse(variant, &mut fields)?;
                        fields.finish()?;
                        Ok(Self::$variant(problem))
                    })*
                    other => Err(WorkloadError::UnknownOperation { word: other.to_owned() }),
                }
            }
        }
    };
}

operations! {
    /// Matrix product, batched and transposed.
    Matmul = "matmul", "matmul f32 512x512x512";
    /// A chain of element-by-element steps in one pass.
    Elementwise = "elementwise", "elementwise.add:row+gelu f32 128x768";
    /// An activation function.
    Activation = "activation", "activation.gelu f32 128x768";
    /// Convolution of images.
    Conv2d = "conv2d", "conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1";
    /// Convolution of volumes.
    Conv3d = "conv3d", "conv3d f32 n1 c16 d16 h56 w56 k32 t3 r3 s3 stride1 pad1";
    /// Pooling of images.
    Pool2d = "pool2d", "pool2d.max f32 n32 c64 h56 w56 r2 s2 stride2 pad0";
    /// Layer, RMS and batch normalisation.
    Norm = "norm", "norm.layer f32 128x768";
    /// Softmax and its logarithm.
    Softmax = "softmax", "softmax f32 128x1024";
    /// Reduction over some or all axes.
    Reduce = "reduce", "reduce.sum f32 1024x1024 axes1";
    /// Running sums, products and extremes.
    Scan = "scan", "scan.sum f32 8x1024 axis1";
    /// Sorting of rows: keys, pairs or indices.
    Sort = "sort", "sort u32 8x1000";
    /// Fourier transform.
    Fft = "fft", "fft complex64 64x1024";
    /// Picks slices by index.
    Gather = "gather", "gather f32 50000x768 axis0 idx4096";
    /// Puts slices where indices say.
    Scatter = "scatter", "scatter.add f32 50000x768 axis0 idx4096";
    /// Permutation of axes.
    Transpose = "transpose", "transpose f32 1024x2048 perm1,0";
    /// The same elements in rows of another length.
    Reshape = "reshape", "reshape f32 4x6 to=8x3";
    /// A plain copy.
    TensorCopy = "copy", "copy f32 1024x1024";
    /// A user's own operation.
    Custom = "custom", "custom.wave_step f64 512x512";
}

/// Writes the name with its variant, as it begins a workload text: `matmul`, `reduce.sum`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.problem().write_variant(f)
    }
}

impl Operation {
    /// The operation's name.
    pub fn name(&self) -> &'static str {
        self.problem().name()
    }

    /// Whether the cost is known: always, except for a custom operation that does not declare one.
    pub(crate) fn has_cost(&self) -> bool {
        !matches!(self, Self::Custom(custom) if custom.declared.is_none())
    }
}

/// Why a text or a set of parameters is not a workload. Every message names the operation and the
/// part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The text has no words, or no element type.
    #[error(
        "`{text}` is not a workload: write an operation, an element type and sizes, such as `matmul f32 512x512x512`"
    )]
    Syntax {
        /// The text as given.
        text: String,
    },
    /// The first word names no operation.
    #[error("unknown operation `{word}`{}", operation_hint(.word))]
    UnknownOperation {
        /// The word.
        word: String,
    },
    /// What follows the dot names no variant of the operation.
    #[error("{}", unknown_variant(.op, .word, .known))]
    UnknownVariant {
        /// The operation.
        op: &'static str,
        /// The word after the dot; empty if there was none.
        word: String,
        /// The variants there are; an empty one stands for "no variant".
        known: &'static [&'static str],
    },
    /// The second word names no element type.
    #[error(transparent)]
    UnknownDType(#[from] UnknownDType),
    /// The operation is not defined on this element type.
    #[error("{op} is not defined on {dtype}: it takes {allowed}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The element type asked for.
        dtype: DType,
        /// Which ones it takes, in words.
        allowed: &'static str,
    },
    /// A field that must be there is not.
    #[error("{op} needs {field}{}", example(.op, .field))]
    Missing {
        /// The operation.
        op: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field is there but not readable.
    #[error("{op}: `{word}` is not readable: expected {expected}")]
    BadField {
        /// The operation.
        op: &'static str,
        /// The field as written.
        word: String,
        /// What would be readable.
        expected: &'static str,
    },
    /// A field the operation does not know, or knows only once.
    #[error("{op} has no use for `{word}`: remove it, or check its spelling{}", example(.op, .word))]
    UnexpectedField {
        /// The operation.
        op: &'static str,
        /// The field as written.
        word: String,
    },
    /// Sizes that do not fit each other.
    #[error("{op}: {detail}")]
    Illegal {
        /// The operation.
        op: &'static str,
        /// What does not fit, and what would.
        detail: String,
    },
    /// A shape that cannot exist.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A count that does not fit 64 bits.
    #[error("{op}: the number of {what} does not fit 64 bits: split the problem")]
    TooLarge {
        /// The operation.
        op: &'static str,
        /// What overflowed.
        what: &'static str,
    },
    /// An operand without elements: there is nothing to choose or to measure.
    #[error(
        "{op}: operand `{operand}` of shape {shape} is empty: there is nothing to compute, skip the call"
    )]
    Empty {
        /// The operation.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its shape.
        shape: Shape,
    },
}

/// A missing variant is another mistake than a mistyped one, and reads so.
fn unknown_variant(op: &str, word: &str, known: &[&'static str]) -> String {
    let words = || known.iter().copied().filter(|word| !word.is_empty());
    match words().next() {
        Some(first) if word.is_empty() => {
            let known = crate::text::hint("", words());
            format!("{op} needs a variant, such as `{op}.{first}`{known}")
        }
        _ => format!(
            "{op} has no variant `{word}`{}",
            crate::text::hint(word, words())
        ),
    }
}

/// What a word that names no operation may have meant: another library's name, a variant without its
/// operation, or a slip of the keyboard.
fn operation_hint(word: &str) -> String {
    const ELSEWHERE: &[(&str, &str)] = &[
        ("gemm", "matmul"),
        ("conv", "conv2d"),
        ("pool", "pool2d.max"),
        ("layernorm", "norm.layer"),
        ("rmsnorm", "norm.rms"),
        ("batchnorm", "norm.batch"),
        ("argsort", "sort.arg"),
        ("cumsum", "scan.sum"),
    ];
    let word = word.to_ascii_lowercase();
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == word);
    let qualified = match elsewhere {
        Some((_, ours)) => Some((*ours).to_owned()),
        None if ActivationKind::named(&word).is_some() => Some(format!("activation.{word}")),
        None if Unary::is_word(&word) || Binary::is_word(&word) => {
            Some(format!("elementwise.{word}"))
        }
        None if ReduceKind::is_word(&word) => Some(format!("reduce.{word}")),
        None => None,
    };
    match qualified {
        Some(ours) => format!("; did you mean `{ours}`?"),
        None => crate::text::hint(&word, Operation::NAMES.iter().copied()),
    }
}

/// `, as in …` with the example of an operation, where the field is a bare key; a phrase explains
/// itself.
fn example(op: &str, field: &str) -> String {
    let position = Operation::NAMES.iter().position(|name| *name == op);
    match position {
        Some(at) if !field.contains(' ') => format!(", as in `{}`", Operation::EXAMPLES[at]),
        _ => String::new(),
    }
}

/// Refuses element types an operation is not defined on.
fn require(
    ok: bool,
    op: &'static str,
    dtype: DType,
    allowed: &'static str,
) -> Result<(), WorkloadError> {
    if ok {
        Ok(())
    } else {
        Err(WorkloadError::DType { op, dtype, allowed })
    }
}

/// Refuses sizes that do not fit each other.
fn legal(ok: bool, op: &'static str, detail: impl FnOnce() -> String) -> Result<(), WorkloadError> {
    if ok {
        Ok(())
    } else {
        Err(WorkloadError::Illegal {
            op,
            detail: detail(),
        })
    }
}

/// Refuses a word after the dot where the operation has no variants.
fn no_variant(op: &'static str, variant: &str) -> Result<(), WorkloadError> {
    if variant.is_empty() {
        Ok(())
    } else {
        Err(WorkloadError::UnexpectedField {
            op,
            word: format!(".{variant}"),
        })
    }
}

/// The product of sizes as a count, or `None` if it does not fit 64 bits.
fn count(factors: &[usize]) -> Option<u64> {
    factors.iter().try_fold(1u64, |product, &factor| {
        product.checked_mul(u64::try_from(factor).ok()?)
    })
}
