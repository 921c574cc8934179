//! What holds for the parameters of every kernel that shares its work among threads.

use kernelwise_backend::sample::{self, Arrangement, Values};
use kernelwise_backend::{Call, Host, HostKernel, Scratch, Setting, Space, Terms, admit};
use kernelwise_types::{Machine, Numerics, Params, TensorView, TensorViewMut, Workload};

use crate::pool::trace;

/// Workloads with enough to share, so that every kernel has one it serves.
const WORKLOADS: &[&str] = &[
    "matmul f32 150x150x150",
    "matmul f64 150x150x150",
    "matmul f32 40x600x40",
    "matmul f64 40x600x40",
    "matmul f32 1x300x300",
    "matmul f64 300x300x1",
    "matmul f32 40x30x30x30",
    "matmul f64 40x30x30x30",
    "matmul f16 150x150x150",
    "matmul bf16 150x150x150",
    "conv2d f32 n2 c8 h24 w24 k32 r3 s3 stride1 pad1",
    "conv2d f32 n1 c8 h24 w24 k32 r3 s3 stride1 pad1",
    "conv2d f32 n1 c16 h24 w24 k64 r1 s1 stride1 pad0",
    "conv2d f32 n1 c16 h24 w24 k16 r3 s3 stride1 pad1 groups16",
    "conv2d f32 n1 c4 h40 w40 k4 r9 s9 stride1 pad4",
    "conv3d f32 n1 c4 d8 h8 w8 k32 t3 r3 s3 stride1 pad1",
    "elementwise.add f32 100000",
    "elementwise.add f64 100000",
    "activation.relu f32 100000",
    "activation.relu f64 100000",
    "pool2d.max f32 n2 c16 h32 w32 r3 s3 stride1 pad1",
    "pool2d.avg f32 n2 c16 h32 w32 r2 s2 stride2 pad0",
    "norm.layer f32 256x500",
    "norm.batch f32 16x32x50",
    "softmax f32 256x500",
    "softmax f32 256x500 axis0",
    "reduce.sum f32 256x5000 axes1",
    "reduce.max f32 256x5000 axes0",
    "reduce.sum f64 1000000 axes0",
    "scan.sum f32 256x500",
    "scan.sum f32 200000",
    "sort u32 100000",
    "sort u32 64x1000",
    "sort.arg f32 100000",
    "fft complex64 64x500",
    "fft.real f32 64x500",
    "gather f32 5000x64 axis0 idx3000",
    "scatter.add f32 5000x64 axis0 idx3000",
    "scatter.assign f32 5000x64 axis0 idx3000",
    "transpose f32 400x500 perm1,0",
    "reshape f32 400x500 to=500x400",
    "copy f32 200000",
    "copy f64 200000",
];

fn machine() -> Machine {
    let machine = kernelwise_probe::machine();
    let threads = machine.usable_threads().max(2);
    machine.with_threads(threads)
}

/// The default with other values, if the kernel has parameters of these names and allows them.
fn with(space: &Space, changes: &[(&str, u32)]) -> Option<Setting> {
    let mut params = Params::new();
    for (name, value) in changes {
        params = params.with(name, u64::from(*value)).ok()?;
    }
    space.setting(&params).ok()
}

/// What the kernel asks of the pool with this setting.
fn asked(
    kernel: &dyn HostKernel,
    workload: &Workload,
    machine: &Machine,
    setting: &Setting,
) -> Vec<(usize, usize)> {
    let inputs = sample::inputs(workload, Arrangement::Contiguous, Values::Ordinary, 1).unwrap();
    let mut outputs =
        sample::outputs(workload, Arrangement::Contiguous, Values::Ordinary, 1).unwrap();
    let inputs: Vec<TensorView<'_>> = inputs.iter().map(|t| t.view().unwrap()).collect();
    let mut outputs: Vec<TensorViewMut<'_>> =
        outputs.iter_mut().map(|t| t.view_mut().unwrap()).collect();
    let mut call = Call::new(workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    scratch
        .reserve(kernel.workspace(workload, setting))
        .unwrap();
    kernel.space(workload, machine).check(setting).unwrap();
    trace::take();
    kernel.execute(&mut call, setting, &mut scratch).unwrap();
    trace::take()
}

/// Kernels that share no work on a workload need not: a single row of something. But each must do so somewhere.
#[test]
fn threads_and_schedules_change_how_the_work_is_shared() {
    let machine = machine();
    let host = Host::new(machine.clone(), crate::kernels().unwrap()).unwrap();
    let terms = Terms {
        numerics: Numerics::ReducedPrecision,
        ..Terms::usual(&machine)
    };
    let mut seen = std::collections::BTreeMap::<String, bool>::new();
    let mut idle = Vec::new();
    for text in WORKLOADS {
        let workload: Workload = text.parse().unwrap();
        for kernel in host.kernels_for(&workload) {
            let kernel = kernel.as_ref();
            let space = kernel.space(&workload, &machine);
            let default = space.default_setting();
            if admit(kernel, &workload, None, &default, &terms).is_err() {
                continue;
            }
            let id = kernel.spec().id.to_string();
            let schedule = space.axes().map(|(name, _)| name);
            let schedule = schedule
                .into_iter()
                .find(|name| ["schedule", "dynamic"].contains(name));
            let (Some(one), Some(two)) = (
                with(&space, &[("threads", 1)]),
                with(&space, &[("threads", 2)]),
            ) else {
                continue;
            };
            let alone = asked(kernel, &workload, &machine, &one);
            let together = asked(kernel, &workload, &machine, &two);
            assert!(
                alone
                    .iter()
                    .all(|(threads, pieces)| *threads <= 1 && *pieces <= 1),
                "{id} on {text} is to use one thread and asked for {alone:?}"
            );
            let shares = together
                .iter()
                .any(|(threads, pieces)| *threads == 2 && *pieces > 1);
            *seen.entry(format!("{id} threads")).or_default() |= shares;
            let Some(schedule) = schedule else { continue };
            if with(&space, &[("threads", 1), (schedule, 1)]).is_some() {
                idle.push(format!(
                    "{id}: {schedule} may be set where one thread has no use for it"
                ));
            }
            if let Some(finer) = with(&space, &[("threads", 2), (schedule, 1)]) {
                let finer = asked(kernel, &workload, &machine, &finer);
                *seen.entry(format!("{id} {schedule}")).or_default() |= finer != together;
            }
        }
    }
    idle.extend(
        seen.iter()
            .filter(|(_, effect)| !**effect)
            .map(|(knob, _)| format!("{knob}: without effect")),
    );
    assert!(idle.is_empty(), "{}", idle.join("\n"));
    assert!(seen.len() > 60, "only {} parameters were tried", seen.len());
}
