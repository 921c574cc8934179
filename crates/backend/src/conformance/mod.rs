//! The suite every backend runs: each of its kernels against the reference.
//!
//! Every case is one workload with drawn values. Each kernel that is admitted runs it in several memory
//! arrangements and at every corner of its parameter space, and must give the reference's answer within its
//! numerics class, leave its inputs and the gaps between outputs alone, and answer impossible requests with a
//! fault that leaves the outputs as they were. A kernel that no case reaches is a finding too.
//!
//! ```
//! use kernelwise_backend::{Host, conformance};
//!
//! let machine = kernelwise_probe::machine();
//! let host = Host::new(machine.clone(), [])?;
//! let report = conformance::check(&host, &machine, "transpose");
//! assert!(report.findings.is_empty(), "{report}");
//! assert!(report.runs > 0, "the reference itself was run");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cases;
mod faults;
mod tolerance;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, KernelId, Machine, Numerics, TensorView, TensorViewMut, ViewError, Workload,
};

use crate::backend::Backend;
use crate::call::Call;
use crate::fault::{Blame, Fault};
use crate::kernel::{Kernel, Terms, admit};
use crate::sample::{self, Arrangement, Tensor, Values};
use crate::scratch::Scratch;
use crate::space::Setting;

pub use faults::check_host;

/// What the suite found.
#[derive(Debug, Default)]
pub struct Report {
    /// How many times a kernel ran and was compared.
    pub runs: u64,
    /// Kernels that ran at least once.
    pub reached: BTreeSet<KernelId>,
    /// What is wrong, at most [`MOST_FINDINGS`] of it.
    pub findings: Vec<Finding>,
}

/// How many findings are kept: one broken kernel breaks hundreds of cases.
pub const MOST_FINDINGS: usize = 20;

/// One thing that is wrong with one kernel.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The kernel.
    pub kernel: KernelId,
    /// Where it was seen: workload, arrangement, values, setting.
    pub case: String,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs of {} kernels", self.runs, self.reached.len())?;
        for Finding { kernel, case, what } in &self.findings {
            writeln!(f, "{kernel} on {case}: {what}")?;
        }
        Ok(())
    }
}

impl Report {
    fn find(&mut self, kernel: &KernelId, case: impl fmt::Display, what: impl fmt::Display) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding {
                kernel: kernel.clone(),
                case: case.to_string(),
                what: what.to_string(),
            });
        }
    }
}

/// The operations the suite has cases for.
pub fn operations() -> impl Iterator<Item = &'static str> {
    cases::operations()
}

/// Runs every kernel of `backend` for one of [`operations`] through its cases, on this machine's terms.
pub fn check(backend: &dyn Backend, machine: &Machine, operation: &str) -> Report {
    let mut report = Report::default();
    for dtype in DType::ALL {
        for workload in cases::of(operation, *dtype) {
            for values in [Values::Ordinary, Values::Special] {
                check_case(backend, machine, &workload, values, &mut report);
            }
        }
    }
    // Kernels of this operation that nothing reached are kernels nobody tested.
    for kernel in backend.kernels() {
        let id = &kernel.spec().id;
        let name = id.operation().split('.').next().unwrap_or_default();
        if name == operation && !report.reached.contains(id) {
            report.find(id, "all cases", "no case was admitted: add one it accepts");
        }
    }
    report
}

/// The answer, and what each of its elements is measured against.
struct Answer {
    inputs: Vec<Tensor>,
    before: Vec<Tensor>,
    outputs: Vec<Tensor>,
    scales: Vec<Vec<f64>>,
}

fn check_case(
    backend: &dyn Backend,
    machine: &Machine,
    workload: &Workload,
    values: Values,
    report: &mut Report,
) {
    let candidates = backend.candidates(workload);
    if candidates.is_empty() {
        return;
    }
    let answer = match answer(workload, values) {
        Ok(answer) => answer,
        Err(fault) => {
            let id = &candidates[0].spec().id;
            return report.find(
                id,
                workload,
                format!("the reference itself failed: {fault}"),
            );
        }
    };
    let arrangements: Vec<(Arrangement, Placed)> = Arrangement::ALL
        .into_iter()
        .filter_map(|arrangement| Some((arrangement, Placed::new(&answer, arrangement).ok()?)))
        .collect();
    for kernel in candidates {
        for (arrangement, placed) in &arrangements {
            let case = Case {
                backend,
                machine,
                workload,
                values,
                answer: &answer,
                arrangement: *arrangement,
                placed,
            };
            case.check(&kernel, report);
        }
    }
}

/// The reference's answer on freshly drawn inputs.
fn answer(workload: &Workload, values: Values) -> Result<Answer, Fault> {
    let seed = 0x5eed ^ workload.to_string().len() as u64;
    let inputs = sample::inputs(workload, Arrangement::Contiguous, values, seed)?;
    let before = sample::outputs(workload, Arrangement::Contiguous, values, seed)?;
    let compute = |inputs: &[Tensor], before: &[Tensor]| {
        let mut outputs = before.to_vec();
        {
            let inputs: Vec<TensorView<'_>> = views(inputs)?;
            let mut outputs: Vec<TensorViewMut<'_>> = views_mut(&mut outputs)?;
            kernelwise_reference::compute(workload, &inputs, &mut outputs)
                .map_err(|error| Fault::kernel("the reference", error))?;
        }
        Ok::<_, Fault>(outputs)
    };
    let outputs = compute(&inputs, &before)?;
    let results: Vec<Vec<[f64; 2]>> = outputs.iter().map(Tensor::numbers).collect();
    let size = |[re, im]: [f64; 2]| re.abs().max(im.abs());
    let scales = match tolerance::scale(workload.operation()) {
        tolerance::Scale::Absolute => {
            let absolute = |tensors: &[Tensor]| -> Result<Vec<Tensor>, ViewError> {
                tensors.iter().map(Tensor::absolute).collect()
            };
            let outputs = compute(&absolute(&inputs)?, &absolute(&before)?)?;
            let sizes = |tensor: &Tensor| tensor.numbers().into_iter().map(size).collect();
            outputs.iter().map(sizes).collect()
        }
        tolerance::Scale::Result => {
            let sizes = |result: &Vec<[f64; 2]>| result.iter().copied().map(size).collect();
            results.iter().map(sizes).collect()
        }
        tolerance::Scale::Largest => {
            let largest = |result: &Vec<[f64; 2]>| {
                let largest = result.iter().copied().map(size).fold(0.0, f64::max);
                vec![largest; result.len()]
            };
            results.iter().map(largest).collect()
        }
        tolerance::Scale::ResultOrOne => {
            let sizes =
                |result: &Vec<[f64; 2]>| result.iter().map(|parts| size(*parts).max(1.0)).collect();
            results.iter().map(sizes).collect()
        }
    };
    Ok(Answer {
        inputs,
        before,
        outputs,
        scales,
    })
}

fn views(tensors: &[Tensor]) -> Result<Vec<TensorView<'_>>, ViewError> {
    tensors.iter().map(Tensor::view).collect()
}

fn views_mut(tensors: &mut [Tensor]) -> Result<Vec<TensorViewMut<'_>>, ViewError> {
    tensors.iter_mut().map(Tensor::view_mut).collect()
}

/// The tensors of a case in one arrangement.
struct Placed {
    inputs: Vec<Tensor>,
    before: Vec<Tensor>,
}

impl Placed {
    fn new(answer: &Answer, arrangement: Arrangement) -> Result<Self, ViewError> {
        let arranged = |tensors: &[Tensor]| -> Result<Vec<Tensor>, ViewError> {
            tensors
                .iter()
                .map(|tensor| tensor.arranged(arrangement))
                .collect()
        };
        Ok(Self {
            inputs: arranged(&answer.inputs)?,
            before: arranged(&answer.before)?,
        })
    }
}

struct Case<'a> {
    backend: &'a dyn Backend,
    machine: &'a Machine,
    workload: &'a Workload,
    values: Values,
    answer: &'a Answer,
    arrangement: Arrangement,
    placed: &'a Placed,
}

impl Case<'_> {
    fn check(&self, kernel: &Arc<dyn Kernel>, report: &mut Report) {
        let spec = kernel.spec();
        if self.values == Values::Special
            && !tolerance::special_values_are_defined(self.workload, spec.numerics)
        {
            return;
        }
        let terms = Terms {
            machine: self.machine,
            numerics: Numerics::ReducedPrecision,
            workspace: Bytes(1 << 30),
        };
        let settings = kernel.space(self.workload, self.machine).corners();
        if settings.is_empty() {
            report.find(&spec.id, self.workload, "its space has no legal corner");
        }
        for setting in settings {
            let mut outputs = self.placed.before.clone();
            let case = format!(
                "{} {:?} {:?} {:?}",
                self.workload,
                self.arrangement,
                self.values,
                setting.as_slice()
            );
            let result = self.run(&spec.id, &setting, &terms, &mut outputs);
            match result {
                Ok(()) => {
                    report.runs += 1;
                    report.reached.insert(spec.id.clone());
                    if let Err(what) = self.compare(&outputs, spec.numerics) {
                        report.find(&spec.id, &case, what);
                    }
                }
                Err(Ran::Fault(fault)) => {
                    if fault.blame() != Blame::Caller {
                        report.find(&spec.id, &case, &fault);
                    }
                    let asked = admit(kernel.as_ref(), self.workload, None, &setting, &terms);
                    if asked.is_ok() && !matches!(fault, Fault::Refused { .. }) {
                        report.find(&spec.id, &case, format!("admitted, then refused: {fault}"));
                    }
                    if !same(&outputs, &self.placed.before) {
                        report.find(&spec.id, &case, "wrote outputs and then refused");
                    }
                }
                Err(Ran::Panic) => report.find(&spec.id, &case, "panicked"),
            }
        }
    }

    fn run(
        &self,
        id: &KernelId,
        setting: &Setting,
        terms: &Terms<'_>,
        outputs: &mut [Tensor],
    ) -> Result<(), Ran> {
        let inputs = views(&self.placed.inputs).map_err(Fault::from)?;
        let mut outputs = views_mut(outputs).map_err(Fault::from)?;
        let mut call = Call::new(self.workload, &inputs, &mut outputs).map_err(Fault::from)?;
        let mut scratch = Scratch::new();
        let run = || {
            self.backend
                .run(id, &mut call, setting, &mut scratch, terms)
        };
        // Whatever a panic leaves half done is thrown away with the case.
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => Ok(result.map(drop)?),
            Err(_) => Err(Ran::Panic),
        }
    }

    fn compare(&self, outputs: &[Tensor], numerics: Numerics) -> Result<(), String> {
        let bound = tolerance::bound(self.workload, numerics);
        for (number, (actual, expected)) in outputs.iter().zip(&self.answer.outputs).enumerate() {
            match bound {
                None => {
                    if let Some(position) = actual.first_difference(expected) {
                        return Err(self.wrong(number, position, actual, expected));
                    }
                }
                Some(bound) => {
                    let pairs = expected.numbers().into_iter().zip(actual.numbers());
                    let mut pairs = pairs.zip(&self.answer.scales[number]);
                    let wrong = pairs.position(|((expected, actual), scale)| {
                        let allowed = if scale.is_finite() {
                            bound * scale
                        } else {
                            f64::INFINITY
                        };
                        !tolerance::near(expected, actual, allowed)
                    });
                    if let Some(position) = wrong {
                        return Err(self.wrong(number, position, actual, expected));
                    }
                }
            }
            // Gaps and neighbours: put the result's elements into memory as it was before.
            let mut rebuilt = self.placed.before[number].clone();
            rebuilt.assign(actual).map_err(|error| error.to_string())?;
            if !rebuilt.same_memory(actual) {
                return Err(format!(
                    "output {number}: memory between the elements was written"
                ));
            }
        }
        Ok(())
    }

    fn wrong(&self, output: usize, position: usize, actual: &Tensor, expected: &Tensor) -> String {
        let at = |tensor: &Tensor| tensor.numbers().get(position).copied();
        format!(
            "output {output} at {position}: {:?} instead of {:?}",
            at(actual),
            at(expected)
        )
    }
}

/// How a run that gave nothing ended.
enum Ran {
    Fault(Fault),
    Panic,
}

impl From<Fault> for Ran {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn same(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_memory(b))
}
