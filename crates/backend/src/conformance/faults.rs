//! What a host kernel must survive when it is called without having been asked first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kernelwise_types::units::Bytes;
use kernelwise_types::{DType, KernelId, Machine, Workload};

use super::{Report, cases, same, views, views_mut};
use crate::call::Call;
use crate::fault::Fault;
use crate::kernel::HostKernel;
use crate::sample::{self, Arrangement, Tensor, Values};
use crate::scratch::Scratch;
use crate::space::{MAX_KNOBS, Setting};

/// Most workspace that a wild setting gets.
const MOST_LENT: Bytes = Bytes(64 << 20);

/// Calls a kernel directly with what it never asked for: other operations, other element types, no
/// workspace, wild settings. It may do the work if it can; otherwise it must say so and leave the outputs
/// alone. It must not panic.
pub fn check_host(kernel: &Arc<dyn HostKernel>, machine: &Machine) -> Report {
    let mut report = Report::default();
    let id = &kernel.spec().id;
    let mine = id.operation().split('.').next().unwrap_or_default();
    for operation in cases::operations() {
        for dtype in [
            DType::F32,
            DType::F64,
            DType::I32,
            DType::U8,
            DType::Complex64,
        ] {
            let cases = cases::of(operation, dtype);
            // Its own operation everywhere, of the others one case each.
            let count = if operation == mine { cases.len() } else { 1 };
            for workload in cases.iter().take(count) {
                for setting in settings(kernel, workload, machine) {
                    try_it(kernel, workload, &setting, &mut report);
                }
            }
        }
    }
    report
}

/// No values, all zero, all huge, and the kernel's own default.
fn settings(kernel: &Arc<dyn HostKernel>, workload: &Workload, machine: &Machine) -> Vec<Setting> {
    vec![
        Setting::NONE,
        Setting::new([0; MAX_KNOBS]),
        Setting::new([u32::MAX; MAX_KNOBS]),
        kernel.space(workload, machine).default_setting(),
    ]
}

fn try_it(
    kernel: &Arc<dyn HostKernel>,
    workload: &Workload,
    setting: &Setting,
    report: &mut Report,
) {
    let id = &kernel.spec().id;
    let case = format!("{workload} {:?} without asking", setting.as_slice());
    for arrangement in [Arrangement::Contiguous, Arrangement::Strided] {
        let tensors = || -> Result<(Vec<Tensor>, Vec<Tensor>), Fault> {
            let inputs = sample::inputs(workload, arrangement, Values::Ordinary, 7)?;
            let outputs = sample::outputs(workload, arrangement, Values::Ordinary, 7)?;
            Ok((inputs, outputs))
        };
        let Ok((inputs, before)) = tensors() else {
            return report.find(id, &case, "the case cannot be made");
        };
        for lent in [false, true] {
            let mut outputs = before.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut scratch = Scratch::new();
                // With the workspace it asks for, a kernel gets as far as believing the setting.
                let wanted = if lent {
                    kernel.workspace(workload, setting)
                } else {
                    Bytes(0)
                };
                if wanted <= MOST_LENT {
                    scratch.reserve(wanted)?;
                }
                let inputs = views(&inputs)?;
                let mut outputs = views_mut(&mut outputs)?;
                let mut call = Call::new(workload, &inputs, &mut outputs)?;
                kernel.execute(&mut call, setting, &mut scratch)
            }));
            judge(id, &case, &result, same(&outputs, &before), report);
        }
    }
}

fn judge(
    id: &KernelId,
    case: &str,
    result: &std::thread::Result<Result<(), Fault>>,
    untouched: bool,
    report: &mut Report,
) {
    match result {
        Err(_) => report.find(id, case, "panicked"),
        Ok(Err(fault)) if !untouched => {
            report.find(id, case, format!("wrote outputs and then failed: {fault}"));
        }
        Ok(_) => report.runs += 1,
    }
}
