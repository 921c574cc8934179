//! `kernelwise kernels`: what there is to choose from, and what may run on a given input.
//!
//! Nothing is measured here. Parameters depend on the input, so without `--shape` they are those of the first usual shape
//! that the kernel accepts, which is named beside them.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use kernelwise_backend::{Fault, HostKernel, ReferenceKernel, Space, Terms, admit};
use kernelwise_bench::default_shapes;
use kernelwise_types::op::Operation;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, KernelId, LayoutKind, Machine, Needs, Numerics, Technique, Workload,
};
use serde::Serialize;

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
    let workload = workload(args)?;
    let kernels = select(args, workload.as_ref(), &machine)?;
    let listed =
        |kernel: &Arc<dyn HostKernel>| list(kernel.as_ref(), workload.as_ref(), args, &machine);
    let document = Document {
        workload: workload.as_ref(),
        kernels: kernels.iter().filter_map(listed).collect(),
    };
    match args.format {
        Format::Json => output::json("kernelwise.kernels/1", &document),
        Format::Table => output::text(&table(&document)),
    }
}

/// The name before the dot, if it is that of an operation.
pub(super) fn operation(op: &str) -> Result<&'static str, Failure> {
    let name = op.split('.').next().unwrap_or_default();
    let known = Operation::NAMES.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| {
        // Reading it as a workload gives the nearest name.
        let hint = format!("{name} f32").parse::<Workload>().err();
        Failure::NotFound(hint.map_or_else(|| anyhow!("unknown operation `{op}`"), Into::into))
    })
}

/// The input to judge kernels on: a whole workload, or fields that `--op` and `--dtype` complete.
fn workload(args: &args::Kernels) -> Result<Option<Workload>, Failure> {
    let Some(shape) = &args.shape else {
        return Ok(None);
    };
    let first = shape.split([' ', '.']).next().unwrap_or_default();
    let text = match &args.op {
        Some(op) if !Operation::NAMES.contains(&first) => {
            operation(op)?;
            format!("{op} {} {shape}", args.dtype.unwrap_or(DType::F32))
        }
        _ => shape.clone(),
    };
    let workload: Workload = text
        .parse()
        .with_context(|| format!("`{text}`"))
        .map_err(Failure::Usage)?;
    if let Some(op) = &args.op
        && operation(op)? != workload.operation().name()
    {
        return Err(Failure::Usage(anyhow!(
            "`{text}` is no {op}: leave --op out, or name another shape"
        )));
    }
    Ok(Some(workload))
}

/// The kernels asked for, references last.
fn select(
    args: &args::Kernels,
    workload: Option<&Workload>,
    machine: &Machine,
) -> Result<Vec<Arc<dyn HostKernel>>, Failure> {
    let asked = args.op.as_deref().map(operation).transpose()?;
    let mut kernels = kernelwise_cpu::kernels()?;
    kernels.extend(references(asked, workload, args.dtype, machine));
    let of_operation = |id: &KernelId| {
        let name = id.operation().split('.').next().unwrap_or_default();
        match (workload, &args.op) {
            (Some(workload), _) => {
                let operation = workload.operation();
                let same =
                    id.operation() == operation.name() || id.operation() == operation.to_string();
                same && id.dtypes() == workload.dtypes()
            }
            // `reduce.sum` is computed by kernels for it and by kernels for every reduction.
            (None, Some(op)) => {
                id.operation() == op || id.operation() == name && Some(name) == asked
            }
            (None, None) => true,
        }
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
        return Err(Failure::NotFound(nothing(args, techniques)));
    }
    Ok(kernels)
}

/// What there is instead.
fn nothing(args: &args::Kernels, mut techniques: Vec<Technique>) -> anyhow::Error {
    techniques.sort_unstable();
    techniques.dedup();
    let names: Vec<&str> = techniques.into_iter().map(Technique::name).collect();
    match (args.technique, names.as_slice()) {
        (Some(wanted), [_, ..]) => anyhow!(
            "no kernel asked for is {}; there are: {}",
            wanted.name(),
            names.join(", ")
        ),
        _ => anyhow!("no kernel is like that: ask without --dtype, or for another --op"),
    }
}

/// The reference kernels of the workload, or of one usual shape of every operation asked for.
fn references(
    asked: Option<&'static str>,
    workload: Option<&Workload>,
    dtype: Option<DType>,
    machine: &Machine,
) -> Vec<Arc<dyn HostKernel>> {
    let workloads: Vec<Workload> = match workload {
        Some(workload) => vec![workload.clone()],
        None => Operation::NAMES
            .iter()
            .filter(|name| asked.is_none_or(|asked| asked == **name))
            .filter_map(|name| default_shapes(name, machine).into_iter().next())
            .filter_map(|shape| match dtype {
                Some(dtype) => Workload::new(shape.operation().clone(), dtype).ok(),
                None => Some(shape),
            })
            .collect(),
    };
    let reference = |workload| ReferenceKernel::for_workload(workload);
    let kernels = workloads.iter().filter_map(reference);
    kernels
        .map(|kernel| Arc::new(kernel) as Arc<dyn HostKernel>)
        .collect()
}

/// A kernel as it is told; `None` if there is no workload to tell its parameters for.
fn list(
    kernel: &dyn HostKernel,
    workload: Option<&Workload>,
    args: &args::Kernels,
    machine: &Machine,
) -> Option<Listed> {
    let mut terms = Terms::usual(machine);
    if args.allow_reduced {
        terms.numerics = Numerics::ReducedPrecision;
    }
    let spec = kernel.spec();
    let parameters_for = match workload {
        Some(workload) => workload.clone(),
        None => usual(kernel, machine)?,
    };
    let space = kernel.space(&parameters_for, machine);
    let parameters = space.axes().map(|(name, axis)| Parameter {
        name,
        values: axis.values().to_vec(),
        default: axis.default_value(),
    });
    Some(Listed {
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
    })
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

/// The first usual shape that a kernel accepts, in its element type; else the first of its operation.
fn usual(kernel: &dyn HostKernel, machine: &Machine) -> Option<Workload> {
    let id = &kernel.spec().id;
    let name = id.operation().split('.').next()?;
    let dtype = *id.dtypes().first()?;
    let typed = |shape: Workload| Workload::new(shape.operation().clone(), dtype).ok();
    let shapes: Vec<Workload> = default_shapes(name, machine)
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
