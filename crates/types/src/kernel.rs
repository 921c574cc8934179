//! Kernels as they are spoken of: a stable name, what they need, how exact they are.
//!
//! What a kernel *does* belongs to its backend. Here is what must be known to decide whether it may run
//! on a workload at all. The decision is made on the real input and comes back with the reason.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::device::{Backend, UnknownBackend};
use crate::dtype::{DType, UnknownDType};
use crate::layout::LayoutKind;
use crate::machine::Isa;
use crate::op::Operation;
use crate::units::Bytes;
use crate::workload::Workload;

/// The stable name of a kernel: `{backend}-{op}-{dtypes}-{variant}`, such as `cpu-matmul-f32-avx2-6x16`.
/// Records refer to kernels by it, so renaming one is a migration.
///
/// ```
/// use kernelwise_types::{Backend, DType, KernelId};
///
/// let id: KernelId = "cpu-matmul-f32-avx2-6x16".parse()?;
/// assert_eq!((id.backend(), id.operation(), id.variant()), (Backend::Cpu, "matmul", "avx2-6x16"));
/// assert_eq!(id.dtypes(), [DType::F32]);
/// assert!("cpu-matmul-f33-naive".parse::<KernelId>().is_err());
/// # Ok::<(), kernelwise_types::InvalidKernelId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelId {
    text: String,
    backend: Backend,
    dtypes: Vec<DType>,
}

/// Why a text is no kernel id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKernelId {
    /// Fewer than four parts, an empty one, or characters other than `a-z 0-9 _ . -`.
    #[error(
        "`{text}` is not a kernel id: write backend-operation-types-variant in lower case, such as cpu-matmul-f32-naive"
    )]
    Form {
        /// The text as given.
        text: String,
    },
    /// The first part names no backend.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    /// The third part names no element types.
    #[error(transparent)]
    DType(#[from] UnknownDType),
}

impl KernelId {
    /// The four parts of the text; it was checked to have them.
    fn parts(&self) -> [&str; 4] {
        let mut parts = self.text.splitn(4, '-');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// The backend it runs on.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The operation it computes: all variants of it (`reduce`), or one (`reduce.sum`).
    pub fn operation(&self) -> &str {
        self.parts()[1]
    }

    /// The element types it is made for, as [`Workload::dtypes`] lists them; several are joined by `_`.
    pub fn dtypes(&self) -> &[DType] {
        &self.dtypes
    }

    /// What tells it from others of the same operation.
    pub fn variant(&self) -> &str {
        self.parts()[3]
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for KernelId {
    type Err = InvalidKernelId;

    fn from_str(text: &str) -> Result<Self, InvalidKernelId> {
        let form = || InvalidKernelId::Form {
            text: text.to_owned(),
        };
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b);
        if !text.bytes().all(allowed) || text.split('-').any(str::is_empty) {
            return Err(form());
        }
        let mut parts = text.splitn(4, '-');
        let (Some(backend), Some(_), Some(dtypes), Some(_)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(form());
        };
        Ok(Self {
            text: text.to_owned(),
            backend: backend.parse()?,
            dtypes: dtypes
                .split('_')
                .map(str::parse)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl TryFrom<String> for KernelId {
    type Error = InvalidKernelId;
    fn try_from(text: String) -> Result<Self, InvalidKernelId> {
        text.parse()
    }
}

impl From<KernelId> for String {
    fn from(id: KernelId) -> Self {
        id.text
    }
}

/// How a kernel's results relate to those of the reference kernel, strictest first. A caller allows a
/// class and gets every kernel that is at least as strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numerics {
    /// The same bits.
    BitIdentical,
    /// The same operations in another order: differences within the rounding of the element type.
    Reordered,
    /// Fewer bits somewhere inside, or another algorithm with larger error (f16 accumulation, TF32,
    /// Winograd): only when the caller asks for it.
    ReducedPrecision,
}

impl Numerics {
    /// The name as in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BitIdentical => "bit_identical",
            Self::Reordered => "reordered",
            Self::ReducedPrecision => "reduced_precision",
        }
    }
}

/// What sets a kernel apart from a plain loop: a filter for people, a feature for models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Technique {
    /// Slow and obvious: the answer key.
    Reference,
    /// One element after the other.
    Scalar,
    /// Vector instructions.
    Vector,
    /// Cut into blocks that stay in a cache.
    Blocked,
    /// Several steps in one pass over the data.
    Fused,
    /// Another way to compute the same: Winograd, Fourier, radix.
    Algorithmic,
    /// Another library's code.
    Library,
    /// A user's own.
    Custom,
}

impl Technique {
    /// Every technique.
    pub const ALL: [Self; 8] = [
        Self::Reference,
        Self::Scalar,
        Self::Vector,
        Self::Blocked,
        Self::Fused,
        Self::Algorithmic,
        Self::Library,
        Self::Custom,
    ];

    /// The name as in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Blocked => "blocked",
            Self::Fused => "fused",
            Self::Algorithmic => "algorithmic",
            Self::Library => "library",
            Self::Custom => "custom",
        }
    }
}

/// A kernel as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSpec {
    /// Its stable name.
    pub id: KernelId,
    /// Counts up whenever its results or its speed may have changed; statistics are kept per version.
    pub version: u32,
    /// What sets it apart.
    pub technique: Technique,
    /// How exact it is.
    pub numerics: Numerics,
    /// What it needs of input and machine.
    pub needs: Needs,
}

/// What a kernel needs. The default needs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Instruction sets.
    pub isa: Vec<Isa>,
    /// The least convenient layout it can work on.
    pub layout: LayoutKind,
    /// Alignment of every operand's first element, in bytes.
    pub alignment: usize,
    /// Fewest elements of the first output it is made for.
    pub min_elements: u64,
    /// Most elements of the first output it is made for; `None` for no limit.
    pub max_elements: Option<u64>,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            isa: Vec::new(),
            layout: LayoutKind::Strided,
            alignment: 1,
            min_elements: 0,
            max_elements: None,
        }
    }
}

/// What one call offers a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The problem, with the layout its tensors really have.
    pub workload: &'a Workload,
    /// Instruction sets of the machine.
    pub isa: &'a [Isa],
    /// The smallest alignment among the operands, in bytes.
    pub alignment: usize,
    /// How exact the caller wants the result at the least.
    pub numerics: Numerics,
}

/// Why a kernel may not run on an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// It computes something else.
    #[error("computes {kernel}, not {workload}")]
    Operation {
        /// What it computes.
        kernel: String,
        /// What was asked for.
        workload: String,
    },
    /// It is made for another element type.
    #[error("is made for {}, not {}", names(.kernel), names(.workload))]
    DType {
        /// Its element types.
        kernel: Vec<DType>,
        /// Those of the workload.
        workload: Vec<DType>,
    },
    /// The processor lacks an instruction set.
    #[error("needs {isa}, which this processor lacks")]
    Isa {
        /// The missing one.
        isa: Isa,
    },
    /// The tensors lie in memory in a way it cannot follow.
    #[error("needs operands no worse than {needs}, these are {actual}", needs = .needs.name(), actual = .actual.name())]
    Layout {
        /// The worst it can follow.
        needs: LayoutKind,
        /// What the tensors are.
        actual: LayoutKind,
    },
    /// An operand begins at an address it cannot use.
    #[error("needs operands aligned to {needs} bytes, one is aligned to {actual}")]
    Alignment {
        /// What it needs.
        needs: usize,
        /// The smallest alignment there is.
        actual: usize,
    },
    /// The output is outside the sizes it is made for.
    #[error("is made for outputs of {min} to {} elements, not {actual}", .max.map_or("any number of".to_owned(), |max| max.to_string()))]
    Size {
        /// Fewest elements.
        min: u64,
        /// Most elements.
        max: Option<u64>,
        /// Elements of this output.
        actual: u64,
    },
    /// Its results would be less exact than allowed.
    #[error("gives {} results, the caller allows {}", .kernel.name(), .allowed.name())]
    Numerics {
        /// What it is.
        kernel: Numerics,
        /// What is allowed.
        allowed: Numerics,
    },
    /// A condition of its own on the sizes does not hold.
    #[error("{condition}")]
    Shape {
        /// What it needs, as a sentence that follows its name: "needs a 3x3 filter".
        condition: String,
    },
    /// It wants more scratch memory than allowed.
    #[error("needs {needs} of workspace, {allowed} is allowed")]
    Workspace {
        /// What it needs.
        needs: Bytes,
        /// What is allowed.
        allowed: Bytes,
    },
}

fn names(dtypes: &[DType]) -> String {
    let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
    names.join("_")
}

impl KernelSpec {
    /// Whether this kernel may run here, or the first reason why not: what it is, then the machine,
    /// then the memory.
    pub fn admits(&self, offer: &Offer<'_>) -> Result<(), Refusal> {
        let Offer {
            workload,
            isa,
            alignment,
            numerics,
        } = *offer;
        let (mine, theirs) = (self.id.operation(), workload.operation());
        // The name of a custom operation is its variant, so there it must agree as well.
        let every_variant = mine == theirs.name() && !matches!(theirs, Operation::Custom(_));
        if !every_variant && mine != theirs.to_string() {
            return Err(Refusal::Operation {
                kernel: mine.to_owned(),
                workload: theirs.to_string(),
            });
        }
        let dtypes = workload.dtypes();
        if self.id.dtypes() != dtypes {
            return Err(Refusal::DType {
                kernel: self.id.dtypes().to_vec(),
                workload: dtypes,
            });
        }
        if self.numerics > numerics {
            return Err(Refusal::Numerics {
                kernel: self.numerics,
                allowed: numerics,
            });
        }
        let needs = &self.needs;
        if let Some(&missing) = needs.isa.iter().find(|needed| !isa.contains(needed)) {
            return Err(Refusal::Isa { isa: missing });
        }
        let elements = workload.elements();
        if elements < needs.min_elements || needs.max_elements.is_some_and(|max| elements > max) {
            let (min, max) = (needs.min_elements, needs.max_elements);
            return Err(Refusal::Size {
                min,
                max,
                actual: elements,
            });
        }
        if workload.layout() > needs.layout {
            return Err(Refusal::Layout {
                needs: needs.layout,
                actual: workload.layout(),
            });
        }
        if alignment < needs.alignment {
            return Err(Refusal::Alignment {
                needs: needs.alignment,
                actual: alignment,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_would_not_be_found_again_are_refused() {
        for text in [
            "",
            "cpu",
            "cpu-matmul-f32",
            "cpu--f32-x",
            "CPU-matmul-f32-x",
            "cpu-matmul-f32-",
            "cpu-mat mul-f32-x",
        ] {
            assert!(
                matches!(text.parse::<KernelId>(), Err(InvalidKernelId::Form { .. })),
                "{text:?}"
            );
        }
        let error = "cpi-matmul-f32-x".parse::<KernelId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend `cpi`; did you mean `cpu`?"
        );
        let mixed: KernelId = "cuda-matmul-i8_i32-wmma".parse().unwrap();
        assert_eq!(mixed.dtypes(), [DType::I8, DType::I32]);
        assert_eq!(
            serde_json::to_string(&mixed).unwrap(),
            "\"cuda-matmul-i8_i32-wmma\""
        );
    }

    /// Each need alone keeps the kernel out, and the reason says which.
    #[test]
    fn every_need_excludes_on_its_own() {
        let workload: Workload = "matmul f32 8x8x8".parse().unwrap();
        let spec = KernelSpec {
            id: "cpu-matmul-f32-avx2".parse().unwrap(),
            version: 1,
            technique: Technique::Scalar,
            numerics: Numerics::Reordered,
            needs: Needs {
                isa: vec![Isa::Avx2],
                layout: LayoutKind::RowGaps,
                alignment: 32,
                min_elements: 16,
                max_elements: Some(100),
            },
        };
        let good = Offer {
            workload: &workload,
            isa: &[Isa::Avx2],
            alignment: 64,
            numerics: Numerics::Reordered,
        };
        assert_eq!(spec.admits(&good), Ok(()));

        let reason = |offer: Offer<'_>| spec.admits(&offer).unwrap_err().to_string();
        let other: Workload = "matmul f64 8x8x8".parse().unwrap();
        assert_eq!(
            reason(Offer {
                workload: &other,
                ..good
            }),
            "is made for f32, not f64"
        );
        let tiny: Workload = "matmul f32 2x8x2".parse().unwrap();
        assert_eq!(
            reason(Offer {
                workload: &tiny,
                ..good
            }),
            "is made for outputs of 16 to 100 elements, not 4"
        );
        let huge: Workload = "matmul f32 80x8x80".parse().unwrap();
        assert_eq!(
            reason(Offer {
                workload: &huge,
                ..good
            }),
            "is made for outputs of 16 to 100 elements, not 6400"
        );
        let strided = workload.clone().with_layout(LayoutKind::Strided);
        assert_eq!(
            reason(Offer {
                workload: &strided,
                ..good
            }),
            "needs operands no worse than row_gaps, these are strided"
        );
        assert_eq!(
            reason(Offer {
                isa: &[Isa::Fma],
                ..good
            }),
            "needs avx2, which this processor lacks"
        );
        assert_eq!(
            reason(Offer {
                alignment: 16,
                ..good
            }),
            "needs operands aligned to 32 bytes, one is aligned to 16"
        );
        assert_eq!(
            reason(Offer {
                numerics: Numerics::BitIdentical,
                ..good
            }),
            "gives reordered results, the caller allows bit_identical"
        );
        let wrong = KernelSpec {
            id: "cpu-conv2d-f32-avx2".parse().unwrap(),
            ..spec.clone()
        };
        assert_eq!(
            wrong.admits(&good).unwrap_err().to_string(),
            "computes conv2d, not matmul"
        );
    }

    /// The id says which variant and which element types; a kernel is never offered another.
    #[test]
    fn kernels_serve_what_their_id_says() {
        let admits = |id: &str, workload: &str| {
            let spec = KernelSpec {
                id: id.parse().unwrap(),
                version: 1,
                technique: Technique::Scalar,
                numerics: Numerics::BitIdentical,
                needs: Needs {
                    min_elements: 1,
                    ..Needs::default()
                },
            };
            let offer = Offer {
                workload: &workload.parse().unwrap(),
                isa: &[],
                alignment: 1,
                numerics: Numerics::BitIdentical,
            };
            spec.admits(&offer).map_err(|refusal| refusal.to_string())
        };
        for (id, workload) in [
            ("cpu-reduce-f32-any", "reduce.max f32 8"),
            ("cpu-reduce.max-f32-x", "reduce.max f32 8"),
            ("cpu-matmul-i8_i32-x", "matmul i8 2x2x2"),
            (
                "cpu-gather-f32_i32-x",
                "gather f32 8x8 axis0 idx3 index=i32",
            ),
            ("cpu-custom.wave_step-f64-x", "custom.wave_step f64 512x512"),
        ] {
            assert_eq!(admits(id, workload), Ok(()), "{id} on {workload}");
        }
        for (id, workload, reason) in [
            (
                "cpu-reduce.sum-f32-x",
                "reduce.max f32 8",
                "computes reduce.sum, not reduce.max",
            ),
            (
                "cpu-custom-f64-x",
                "custom.wave_step f64 8",
                "computes custom, not custom.wave_step",
            ),
            (
                "cpu-gather-f32_i32-x",
                "gather f32 8x8 axis0 idx3",
                "is made for f32_i32, not f32_i64",
            ),
            (
                "cpu-sort.pairs-u32_f32-x",
                "sort.pairs u32 8 values=f64",
                "is made for u32_f32, not u32_f64",
            ),
        ] {
            assert_eq!(admits(id, workload), Err(reason.to_owned()));
        }
    }

    #[test]
    fn a_kernel_without_needs_runs_anywhere() {
        let id: KernelId = "cpu-matmul-f32-naive".parse().unwrap();
        let spec = KernelSpec {
            id,
            version: 1,
            technique: Technique::Scalar,
            numerics: Numerics::BitIdentical,
            needs: Needs::default(),
        };
        let workload = "matmul f32 1x1x1 layout=strided".parse().unwrap();
        let (isa, numerics) = (&[], Numerics::BitIdentical);
        let offer = Offer {
            workload: &workload,
            isa,
            alignment: 1,
            numerics,
        };
        assert_eq!(spec.admits(&offer), Ok(()));
    }
}
