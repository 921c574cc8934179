//! `kernelwise kernels`: what there is to choose from, and what may run on a given input.
//!
//! Nothing is measured here. Parameters depend on the input, so without `--shape` they are those of the first usual shape
//! that the kernel accepts, which is named beside them.

use std::sync::Arc;

use anyhow::anyhow;
use kernelwise_backend::{Fault, HostKernel, ReferenceKernel, Space, Terms, admit};
use kernelwise_bench::default_shapes;
use kernelwise_types::op::{Operation, SortKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, KernelId, LayoutKind, Machine, Needs, Numerics, Technique, Workload,
};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::output;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<&'a Workload>,
    kernels: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    id: KernelId,
    operation: String,
    dtypes: Vec<DType>,
    variant: String,
    version: u32,
    technique: Technique,
    numerics: Numerics,
    needs: Needs,
    parameters: Vec<Parameter>,
    /// Conditions that tie parameters to each other.
    conditions: Vec<String>,
    /// The workload whose parameters are listed.
    parameters_for: Workload,
    /// Only when there is an input to judge it on.
    #[serde(flatten)]
    eligibility: Option<Eligibility>,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    values: Vec<u32>,
    default: u32,
}

/// Whether a kernel may run, with what it needs for it or the reason why not.
#[derive(Serialize)]
struct Eligibility {
    eligible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_bytes: Option<u64>,
}

/// Lists them.
pub(crate) fn run(args: &args::Kernels) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let asked = args.op.as_deref().map(Asked::parse).transpose()?;
    let workload = workload(args, asked.as_ref())?;
    let kernels = select(args, asked.as_ref(), workload.as_ref(), &machine)?;
    let listed = |kernel: &Arc<dyn HostKernel>| {
        let input = workload
            .clone()
            .or_else(|| usual(kernel.as_ref(), asked.as_ref(), &machine));
        // Without an input there are no parameters to tell.
        let input = input?;
        Some(list(
            kernel.as_ref(),
            workload.as_ref(),
            input,
            args,
            &machine,
        ))
    };
    let document = Document {
        workload: workload.as_ref(),
        kernels: kernels.iter().filter_map(listed).collect(),
    };
    match args.format {
        Format::Json => output::json("kernelwise.kernels/1", &document),
        Format::Table => output::text(&table(&document)),
    }
}

/// The input to judge kernels on.
fn workload(args: &args::Kernels, asked: Option<&Asked>) -> Result<Option<Workload>, Failure> {
    let Some(shape) = &args.shape else {
        return Ok(None);
    };
    let workload = asked::shape(shape, asked, args.dtype)?;
    match args.dtype {
        Some(dtype) if dtype != workload.dtype() => Err(Failure::Usage(anyhow!(
            "--dtype {dtype} contradicts --shape `{workload}`: leave --dtype out, or write {dtype} in the shape"
        ))),
        _ => Ok(Some(workload)),
    }
}

/// The kernels asked for, references last.
fn select(
    args: &args::Kernels,
    asked: Option<&Asked>,
    workload: Option<&Workload>,
    machine: &Machine,
) -> Result<Vec<Arc<dyn HostKernel>>, Failure> {
    let mut kernels = kernelwise_cpu::kernels()?;
    kernels.extend(references(asked, workload, args.dtype, machine));
    let shapes = asked.filter(|asked| asked.has_variant());
    let shapes = shapes.map(|asked| default_shapes(asked.as_str(), machine));
    let of_operation = |id: &KernelId| match (workload, asked) {
        (Some(workload), _) => {
            let operation = workload.operation();
            let same =
                id.operation() == operation.name() || id.operation() == operation.to_string();
            same && id.dtypes() == workload.dtypes()
        }
        (None, Some(asked)) => {
            let one_variant = id.operation() != asked::name_of(id);
            let shapes = shapes.as_deref().unwrap_or_default();
            asked.is_computed_by(id) && (one_variant || has_types_of(id, shapes))
        }
        (None, None) => true,
    };
    let of_type = |id: &KernelId| {
        args.dtype
            .is_none_or(|dtype| id.dtypes().first() == Some(&dtype))
    };
    kernels.retain(|kernel| of_operation(&kernel.spec().id) && of_type(&kernel.spec().id));
    let techniques: Vec<Technique> = kernels.iter().map(|k| k.spec().technique).collect();
    if let Some(wanted) = args.technique {
        kernels.retain(|kernel| kernel.spec().technique == wanted);
    }
    if kernels.is_empty() {
        return Err(Failure::NotFound(nothing(
            args, asked, workload, techniques,
        )));
    }
    Ok(kernels)
}

/// Whether a kernel has the element types of one of the shapes. An id without a variant says nothing about variants, its
/// types do: who writes sums writes no indices.
fn has_types_of(id: &KernelId, shapes: &[Workload]) -> bool {
    let Some(&dtype) = id.dtypes().first() else {
        return false;
    };
    let fits = |shape: &Workload| match shape.operation() {
        // The usual shapes have one type of values, kernels have others.
        Operation::Sort(sort) if matches!(sort.kind, SortKind::Pairs(_)) => true,
        operation => {
            let typed = Workload::new(operation.clone(), dtype);
            typed.is_ok_and(|typed| typed.dtypes() == id.dtypes())
        }
    };
    // Without a shape there is nothing to hold against it.
    shapes.is_empty() || shapes.iter().any(fits)
}

/// What there is instead.
fn nothing(
    args: &args::Kernels,
    asked: Option<&Asked>,
    workload: Option<&Workload>,
    mut techniques: Vec<Technique>,
) -> anyhow::Error {
    techniques.sort_unstable();
    techniques.dedup();
    let names: Vec<&str> = techniques.into_iter().map(Technique::name).collect();
    if let (Some(wanted), [_, ..]) = (args.technique, names.as_slice()) {
        return anyhow!(
            "no kernel asked for is {}; there are: {}",
            wanted.name(),
            names.join(", ")
        );
    }
    match (workload, asked, args.dtype) {
        (Some(workload), ..) => {
            anyhow!("no kernel computes `{workload}`: name another --shape")
        }
        (None, Some(asked), Some(dtype)) => anyhow!(
            "no kernel computes {asked} in {dtype}: ask without --dtype, or for another --op"
        ),
        (None, Some(asked), None) => {
            anyhow!("no kernel computes {asked}: ask for another --op")
        }
        (None, None, Some(dtype)) => {
            anyhow!("no kernel computes anything in {dtype}: ask without --dtype")
        }
        (None, None, None) => anyhow!("there is no kernel"),
    }
}

/// The reference kernels of the workload, or of one usual shape of every operation asked for.
fn references(
    asked: Option<&Asked>,
    workload: Option<&Workload>,
    dtype: Option<DType>,
    machine: &Machine,
) -> Vec<Arc<dyn HostKernel>> {
    let typed = |shape: Workload| match dtype {
        Some(dtype) => Workload::new(shape.operation().clone(), dtype).ok(),
        None => Some(shape),
    };
    let first = |operation: &str| {
        let shapes = default_shapes(operation, machine);
        shapes.into_iter().find_map(typed)
    };
    let workloads: Vec<Workload> = match (workload, asked) {
        (Some(workload), _) => vec![workload.clone()],
        (None, Some(asked)) => first(asked.as_str()).into_iter().collect(),
        (None, None) => Operation::NAMES
            .iter()
            .filter_map(|name| first(name))
            .collect(),
    };
    let reference = |workload| ReferenceKernel::for_workload(workload);
    let kernels = workloads.iter().filter_map(reference);
    kernels
        .map(|kernel| Arc::new(kernel) as Arc<dyn HostKernel>)
        .collect()
}

/// A kernel as it is told.
fn list(
    kernel: &dyn HostKernel,
    workload: Option<&Workload>,
    parameters_for: Workload,
    args: &args::Kernels,
    machine: &Machine,
) -> Listed {
    let mut terms = Terms::usual(machine);
    if args.allow_reduced {
        terms.numerics = Numerics::ReducedPrecision;
    }
    let spec = kernel.spec();
    let space = kernel.space(&parameters_for, machine);
    let parameters = space.axes().map(|(name, axis)| Parameter {
        name,
        values: axis.values().to_vec(),
        default: axis.default_value(),
    });
    Listed {
        id: spec.id.clone(),
        operation: spec.id.operation().to_owned(),
        dtypes: spec.id.dtypes().to_vec(),
        variant: spec.id.variant().to_owned(),
        version: spec.version,
        technique: spec.technique,
        numerics: spec.numerics,
        needs: spec.needs.clone(),
        parameters: parameters.collect(),
        conditions: space.conditions().map(str::to_owned).collect(),
        eligibility: workload.map(|workload| judge(kernel, workload, &space, &terms)),
        parameters_for,
    }
}

fn judge(
    kernel: &dyn HostKernel,
    workload: &Workload,
    space: &Space,
    terms: &Terms<'_>,
) -> Eligibility {
    let setting = space.default_setting();
    match admit(kernel, workload, None, &setting, terms) {
        Ok(()) => Eligibility {
            eligible: true,
            reason: None,
            workspace_bytes: Some(kernel.workspace(workload, &setting).0),
        },
        Err(fault) => Eligibility {
            eligible: false,
            reason: Some(match fault {
                Fault::Refused { refusal, .. } => refusal.to_string(),
                other => other.to_string(),
            }),
            workspace_bytes: None,
        },
    }
}

/// The first usual shape of what was asked for that a kernel accepts, in its element type; else the first of them.
fn usual(kernel: &dyn HostKernel, asked: Option<&Asked>, machine: &Machine) -> Option<Workload> {
    let id = &kernel.spec().id;
    // The narrower of the two: one variant asked for, or the only one the kernel computes.
    let name = match asked {
        Some(asked) if id.operation() == asked::name_of(id) => asked.as_str(),
        _ => id.operation(),
    };
    let dtype = *id.dtypes().first()?;
    let typed = |shape: Workload| Workload::new(shape.operation().clone(), dtype).ok();
    // A variant without shapes of its own is told on those of its operation.
    let shapes: Vec<Workload> = [name, asked::name_of(id)]
        .into_iter()
        .map(|name| default_shapes(name, machine))
        .find(|shapes| !shapes.is_empty())?
        .into_iter()
        .filter_map(typed)
        .collect();
    let terms = Terms {
        numerics: Numerics::ReducedPrecision,
        ..Terms::usual(machine)
    };
    let accepted = shapes.iter().find(|shape| {
        let setting = kernel.space(shape, machine).default_setting();
        admit(kernel, shape, None, &setting, &terms).is_ok()
    });
    accepted.or(shapes.first()).cloned()
}

fn table(document: &Document<'_>) -> String {
    let rows = document.kernels.iter().map(|kernel| {
        let parameters: Vec<String> = kernel.parameters.iter().map(parameter).collect();
        let mut row = vec![
            kernel.id.to_string(),
            kernel.technique.name().to_owned(),
            kernel.numerics.name().to_owned(),
            kernel.version.to_string(),
            parameters.join(" "),
        ];
        row.push(match &kernel.eligibility {
            None => needs(&kernel.needs),
            Some(Eligibility {
                reason: Some(reason),
                ..
            }) => format!("no: {reason}"),
            Some(eligible) => match eligible.workspace_bytes {
                None | Some(0) => "yes".to_owned(),
                Some(bytes) => format!("yes, with {} of workspace", Bytes(bytes)),
            },
        });
        row
    });
    let last = match document.workload {
        Some(_) => "may run",
        None => "needs",
    };
    let headings = [
        "kernel",
        "technique",
        "numerics",
        "version",
        "parameters (default first)",
        last,
    ];
    let title = match document.workload {
        Some(workload) => format!("{workload}\n"),
        None => String::new(),
    };
    title + &output::columns(&headings, &[3], rows.collect())
}

/// `tile=64|32|128`: the default, then the others.
fn parameter(parameter: &Parameter) -> String {
    let others = parameter
        .values
        .iter()
        .filter(|value| **value != parameter.default);
    let values: Vec<String> = std::iter::once(&parameter.default)
        .chain(others)
        .map(u32::to_string)
        .collect();
    format!("{}={}", parameter.name, values.join("|"))
}

fn needs(needs: &Needs) -> String {
    let mut words: Vec<String> = needs.isa.iter().map(ToString::to_string).collect();
    if needs.layout != LayoutKind::Strided {
        words.push(format!("operands no worse than {}", needs.layout.name()));
    }
    if needs.alignment > 1 {
        words.push(format!("alignment to {} bytes", needs.alignment));
    }
    match (needs.min_elements, needs.max_elements) {
        (0, None) => {}
        (min, None) => words.push(format!("outputs of at least {min} elements")),
        (min, Some(max)) => words.push(format!("outputs of {min} to {max} elements")),
    }
    match words.as_slice() {
        [] => "nothing".to_owned(),
        words => words.join(", "),
    }
}
