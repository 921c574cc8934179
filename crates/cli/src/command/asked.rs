//! What verbs are asked about, read and checked alike by all of them: operations, shapes, files of shapes, kernels by their names.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kernelwise_backend::{Host, HostKernel, Setting};
use kernelwise_bench::read_shapes;
use kernelwise_types::op::{Operation, WorkloadError};
use kernelwise_types::units::Bytes;
use kernelwise_types::{DType, KernelId, Machine, Numerics, Workload};

use crate::exit::Failure;

/// Likeness from which on a word is worth naming (Jaro and Winkler's measure): below it hints are guesses.
const ALIKE: f64 = 0.8;

/// `; did you mean …?`, if something known is alike; nothing otherwise.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |name: &str| strsim::jaro_winkler(word, name);
    let all = known.into_iter().map(|name| (likeness(name), name));
    match all.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, name)) if likeness >= ALIKE => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

/// Refuses inputs whose operands are larger than the memory: drawing them would end the program.
pub(super) fn must_fit(workload: &Workload, machine: &Machine) -> Result<(), Failure> {
    let Some((cost, usable)) = workload.cost().zip(machine.usable_memory()) else {
        return Ok(());
    };
    let needs = Bytes(cost.bytes_read.0.saturating_add(cost.bytes_written.0));
    match needs > usable {
        true => Err(Failure::Usage(anyhow!(
            "the operands of {workload} take {needs}, and there are {usable}: name a smaller shape"
        ))),
        false => Ok(()),
    }
}

/// How exact results must be.
pub(super) fn numerics(allow_reduced: bool) -> Numerics {
    match allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    }
}

/// A kernel for the workload by its name, with its usual setting there.
pub(super) fn kernel(
    name: &str,
    workload: &Workload,
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
) -> Result<(Arc<dyn HostKernel>, Setting), Failure> {
    let host = Host::new(machine.clone(), kernels.iter().cloned())?;
    let able = host.kernels_for(workload);
    let found = able.iter().find(|kernel| kernel.spec().id.as_str() == name);
    let Some(kernel) = found else {
        let ids: Vec<&str> = able
            .iter()
            .map(|kernel| kernel.spec().id.as_str())
            .collect();
        let there_are = match nearest(name, ids.iter().copied()) {
            hint if hint.is_empty() => "; there are".to_owned(),
            hint => format!("{hint} There are"),
        };
        return Err(Failure::NotFound(anyhow!(
            "no kernel for {workload} is called `{name}`{there_are} {}",
            ids.join(", ")
        )));
    };
    let setting = kernel.space(workload, machine).default_setting();
    Ok((Arc::clone(kernel), setting))
}

/// Refuses workloads that no kernel computes, not even a reference: those of custom operations.
pub(super) fn must_be_computed(
    workload: &Workload,
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
) -> Result<(), Failure> {
    let host = Host::new(machine.clone(), kernels.iter().cloned())?;
    match host.kernels_for(workload).is_empty() {
        true => Err(Failure::NotFound(anyhow!(
            "no kernel computes {workload}: `kernelwise kernels` lists those that there are"
        ))),
        false => Ok(()),
    }
}

/// The shapes in a file; those without an element type get this one. A file that does not exist is not found, as anywhere.
pub(super) fn shapes_in(path: &Path, dtype: DType) -> Result<Vec<Workload>, Failure> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let is_missing = error.kind() == ErrorKind::NotFound;
        let error = anyhow!(error).context(format!("cannot read the shapes in {file}"));
        match is_missing {
            true => Failure::NotFound(error),
            false => Failure::Failed(error),
        }
    })?;
    read_shapes(&file, &text, dtype).map_err(|error| Failure::Usage(error.into()))
}

/// An operation that exists, with a variant of it if one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The operation.
    pub(super) name: &'static str,
    /// With the variant, as workloads write it: `reduce.sum`. The name alone stands for all variants.
    full: String,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl Asked {
    /// Reads `reduce` or `reduce.sum`. What does not exist is not found, with what there is instead.
    pub(super) fn parse(op: &str) -> Result<Self, Failure> {
        let (name, variant) = match op.split_once('.') {
            Some((name, variant)) => (name, Some(variant)),
            None => (op, None),
        };
        let position = Operation::NAMES.iter().position(|known| *known == name);
        if name.is_empty() {
            return Err(Failure::NotFound(anyhow!(
                "`{op}` names no operation: write one such as `matmul`"
            )));
        }
        let Some(position) = position else {
            // Reading it as a workload gives the nearest name.
            let hint = format!("{name} f32").parse::<Workload>().err();
            let error = hint.map_or_else(|| anyhow!("unknown operation `{op}`"), Into::into);
            return Err(Failure::NotFound(error));
        };
        let name = Operation::NAMES[position];
        let mut full = op.to_owned();
        match variant {
            None => {}
            Some("") => {
                return Err(Failure::NotFound(anyhow!(
                    "`{op}` names no variant after the dot: leave the dot out, or name one"
                )));
            }
            Some(_) => match with_head(op, Operation::EXAMPLES[position]) {
                Ok(workload) => full = workload.operation().to_string(),
                Err(error) if is_about_variant(name, &error) => {
                    return Err(Failure::NotFound(error.into()));
                }
                // The variant exists, it only has no use for the sizes of the example.
                Err(_) => {}
            },
        }
        Ok(Self { name, full })
    }

    /// As workloads begin, with the variant if there is one.
    pub(super) fn as_str(&self) -> &str {
        &self.full
    }

    /// Whether one variant was asked for.
    pub(super) fn has_variant(&self) -> bool {
        self.full != self.name
    }

    /// Whether this is what the workload computes.
    pub(super) fn is(&self, workload: &Workload) -> bool {
        let operation = workload.operation();
        operation.name() == self.name && (!self.has_variant() || operation.to_string() == self.full)
    }

    /// Whether a kernel computes it. One without a variant in its id computes all of them.
    pub(super) fn is_computed_by(&self, id: &KernelId) -> bool {
        let (operation, name) = (id.operation(), name_of(id));
        name == self.name && (!self.has_variant() || operation == name || operation == self.full)
    }

    /// A shape of it, for messages.
    pub(super) fn example(&self) -> String {
        let mut known = Operation::NAMES.iter().zip(Operation::EXAMPLES);
        let example = known.find(|(name, _)| **name == self.name);
        let example = example.map_or(Operation::EXAMPLES[0], |(_, example)| *example);
        match with_head(&self.full, example) {
            Ok(workload) if self.has_variant() => workload.to_string(),
            _ => example.to_owned(),
        }
    }
}

/// The operation of a kernel, without a variant.
pub(super) fn name_of(id: &KernelId) -> &str {
    let operation = id.operation();
    operation
        .split_once('.')
        .map_or(operation, |(name, _)| name)
}

/// The shape of a text with another operation before it.
fn with_head(head: &str, text: &str) -> Result<Workload, WorkloadError> {
    let fields = text.split_once(' ').map_or("", |(_, fields)| fields);
    format!("{head} {fields}").parse()
}

/// Whether an example with another variant was refused because of the variant, and not because of its sizes.
fn is_about_variant(name: &str, error: &WorkloadError) -> bool {
    match error {
        WorkloadError::UnknownVariant { .. }
        | WorkloadError::UnexpectedField { .. }
        | WorkloadError::BadField { .. }
        | WorkloadError::Syntax { .. } => true,
        // A name with wrong letters, a chain that is too long: the sizes of their examples are always right.
        WorkloadError::Illegal { .. } => ["custom", "elementwise"].contains(&name),
        _ => false,
    }
}

/// The shape that a text names: a whole workload, or fields that the operation and the element type (f32 by default)
/// complete.
pub(super) fn shape(
    text: &str,
    asked: Option<&Asked>,
    dtype: Option<DType>,
) -> Result<Workload, Failure> {
    let first = text.split([' ', '.']).next().unwrap_or_default();
    let text = match asked {
        Some(asked) if !Operation::NAMES.contains(&first) => {
            format!("{asked} {} {text}", dtype.unwrap_or(DType::F32))
        }
        _ => text.to_owned(),
    };
    let workload: Workload = text
        .parse()
        .with_context(|| format!("`{text}`"))
        .map_err(Failure::Usage)?;
    match asked {
        Some(asked) if !asked.is(&workload) => Err(Failure::Usage(anyhow!(
            "`{text}` is no {asked}: leave --op out, or name another shape, such as `{}`",
            asked.example()
        ))),
        _ => Ok(workload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(op: &str) -> Asked {
        Asked::parse(op).unwrap()
    }

    fn missing(op: &str) -> String {
        match Asked::parse(op) {
            Err(Failure::NotFound(error)) => format!("{error:#}"),
            other => panic!("{op}: {other:?}"),
        }
    }

    #[test]
    fn every_operation_and_every_variant_in_an_example_exists() {
        for (name, example) in Operation::NAMES.iter().zip(Operation::EXAMPLES) {
            assert_eq!(asked(name).as_str(), *name);
            assert_eq!(asked(name).example(), *example);
            let workload: Workload = example.parse().unwrap();
            let full = asked(&workload.operation().to_string());
            assert!(full.is(&workload), "{example}");
            assert_eq!(full.name, *name);
        }
        // Variants that the example's sizes or element type do not suit.
        for op in ["sort.pairs", "fft.real", "norm.batch", "reduce.argmax"] {
            assert_eq!(asked(op).as_str(), op);
        }
    }

    #[test]
    fn what_does_not_exist_is_told_with_what_does() {
        for (op, expected) in [
            ("matmull", "did you mean `matmul`?"),
            ("reduce.foo", "known: sum, mean"),
            ("reduce.argmx", "did you mean `argmax`?"),
            ("matmul.foo", "no use for `.foo`"),
            ("elementwise.add:collumn", "`row` or `scalar`"),
            ("custom.Wave", "is not a name"),
            ("softmax.", "leave the dot out"),
            ("", "names no operation"),
        ] {
            assert!(missing(op).contains(expected), "{op}: {}", missing(op));
        }
    }

    #[test]
    fn a_kernel_without_variant_computes_all_of_them() {
        let id = |text: &str| text.parse::<KernelId>().unwrap();
        let (all, max) = (id("cpu-pool2d-f32-x"), id("cpu-pool2d.max-f32-x"));
        for (op, of_all, of_max) in [
            ("pool2d", true, true),
            ("pool2d.max", true, true),
            ("pool2d.avg", true, false),
            ("copy", false, false),
        ] {
            assert_eq!(asked(op).is_computed_by(&all), of_all, "{op}");
            assert_eq!(asked(op).is_computed_by(&max), of_max, "{op}");
        }
    }

    #[test]
    fn fields_are_completed_and_conflicts_named() {
        let matmul = asked("matmul");
        let text = |text: &str, asked: Option<&Asked>, dtype| match shape(text, asked, dtype) {
            Ok(workload) => workload.to_string(),
            Err(Failure::Usage(error)) => format!("{error:#}"),
            Err(other) => panic!("{text}: {other:?}"),
        };
        assert_eq!(text("2x3x4", Some(&matmul), None), "matmul f32 2x3x4");
        assert_eq!(
            text("2x3x4 ta", Some(&matmul), Some(DType::F64)),
            "matmul f64 2x3x4 ta"
        );
        assert_eq!(text("copy f32 9", None, None), "copy f32 9");
        let conflict = text("copy f32 9", Some(&matmul), None);
        assert!(
            conflict.contains("is no matmul") && conflict.contains("`matmul f32 512x512x512`"),
            "{conflict}"
        );
        let conflict = text("reduce.sum f32 9", Some(&asked("reduce.max")), None);
        assert!(
            conflict.contains("is no reduce.max") && conflict.contains("`reduce.max f32"),
            "{conflict}"
        );
    }
}
