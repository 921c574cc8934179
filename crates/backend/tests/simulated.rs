//! The simulated device keeps the contract of a real one: results, times, and everything that goes wrong.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::sync::Arc;

use kernelwise_backend::{
    Accelerator, Axis, Backend, Blame, Call, Direction, Fault, Knobs, Mishap, Profile, Scratch,
    Setting, Simulated, SimulatedKernel, Space, Staged, Terms, Timing, conformance, knobs,
};
use kernelwise_measure::{Clock, ScriptedClock};
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{
    Backend as Family, DType, Device, KernelId, KernelSpec, Needs, Numerics, Reading, Technique,
    TensorView, TensorViewMut, Workload,
};

knobs! {
    struct Group {
        group,
    }
}

fn nanos(ns: f64) -> Nanos {
    Nanos::new(ns).unwrap()
}

fn spec(id: &str) -> KernelSpec {
    KernelSpec {
        id: id.parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    }
}

/// 10 ns per million operations, divided by the group size; transfers at 1 byte per ns after 100 ns.
fn device(clock: &Arc<ScriptedClock>, memory: u64) -> Simulated {
    let profile = Profile {
        device: Device {
            backend: Family::Cuda,
            name: Reading::Known("toy".to_owned()),
            driver: Reading::Known("1.0".to_owned()),
            memory: Reading::Known(Bytes(memory)),
            compute_units: Reading::Known(4),
        },
        transfer_latency: nanos(100.0),
        bytes_per_ns: 1.0,
        compile: nanos(5_000_000.0),
        patience: nanos(1e9),
    };
    let kernels = [
        "matmul-f32",
        "copy-f32",
        "scatter-f32_i64",
        "gather-f32_i64",
        "reduce-f32",
    ];
    let kernels = kernels.map(|kernel| {
        SimulatedKernel::new(spec(&format!("cuda-{kernel}-toy")), |workload, setting| {
            let flops = workload.cost().map_or(0, |cost| cost.flops.0);
            let group = f64::from(Group::of(setting).group.max(1));
            nanos(1000.0 + flops as f64 / 1e5 / group)
        })
        .with_space(Space::of::<Group, 1>([Axis::new(64, [32, 128])]))
    });
    Simulated::new(profile, kernels, Arc::clone(clock))
}

/// Runs a 2x2x2 product of ones.
fn product(staged: &Staged<Simulated>, setting: Setting) -> (Result<Timing, Fault>, [f32; 4]) {
    let machine = kernelwise_probe::machine();
    let workload: Workload = "matmul f32 2x2x2".parse().unwrap();
    let (a, b, mut out) = ([1f32; 4], [1f32; 4], [9f32; 4]);
    let square = || "2x2".parse().unwrap();
    let inputs = [
        TensorView::contiguous(&a, square()).unwrap(),
        TensorView::contiguous(&b, square()).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut out, square()).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let id: KernelId = "cuda-matmul-f32-toy".parse().unwrap();
    let terms = Terms::usual(&machine);
    let result = staged.run(&id, &mut call, &setting, &mut Scratch::new(), &terms);
    (result, out)
}

fn default() -> Setting {
    Group { group: 64 }.setting()
}

#[test]
fn it_conforms() {
    let machine = kernelwise_probe::machine();
    let clock = Arc::new(ScriptedClock::new());
    let staged = Staged::new(device(&clock, 1 << 30));
    for operation in ["matmul", "copy", "scatter", "gather", "reduce"] {
        let report = conformance::check(&staged, &machine, operation);
        assert!(report.findings.is_empty(), "{report}");
        assert!(report.runs > 10, "{report}");
    }
    assert_eq!(
        staged.accelerator().allocated(),
        Bytes(0),
        "buffers are given back"
    );
}

#[test]
fn parts_of_a_call_are_timed_apart_and_programs_are_compiled_once() {
    let clock = Arc::new(ScriptedClock::new());
    let staged = Staged::new(device(&clock, 1 << 20));
    let (first, out) = product(&staged, default());
    assert_eq!(out, [2.0; 4]);
    let first = first.unwrap();
    assert_eq!(first.compile, Some(nanos(5_000_000.0)));
    assert_eq!(first.upload, Some(nanos(2.0 * 116.0)));
    assert_eq!(first.download, Some(nanos(116.0)));
    let kernel = first.kernel.unwrap().get();
    assert!((kernel - 1000.0).abs() < 1.0, "{kernel}");
    // The clock moved by the sum, rounded up once per part.
    let passed = clock.now() as f64;
    assert!(
        (passed - first.total().unwrap().get()).abs() < 8.0,
        "{passed}"
    );

    let (second, _) = product(&staged, default());
    assert_eq!(second.unwrap().compile, None, "the program is there");
    let (other, _) = product(&staged, Group { group: 32 }.setting());
    assert!(
        other.unwrap().compile.is_some(),
        "another setting is another program"
    );

    let workload: Workload = "matmul f32 2x2x2".parse().unwrap();
    let expected = staged.transfer(&workload).unwrap();
    assert_eq!(expected, nanos(3.0 * 116.0), "what the transfers took");
    let one = staged
        .accelerator()
        .transfer(Bytes(900), Direction::Upload)
        .time();
    assert_eq!(one, Some(nanos(1000.0)));
}

/// Tensors that stay on the device are moved once; work goes on while the host does something else.
#[test]
fn resident_buffers_and_work_in_flight() {
    let clock = Arc::new(ScriptedClock::new());
    let device = device(&clock, 1 << 20);
    let workload: Workload = "copy f32 4".parse().unwrap();
    let shape = "4".parse().unwrap();
    let data = [1f32, 2.0, 3.0, 4.0];
    let mut from = device.allocate(DType::F32, shape).unwrap();
    let view = TensorView::contiguous(&data, shape).unwrap();
    let moved = device.upload(&view, &mut from).unwrap();
    device.wait(moved).unwrap();
    let id: KernelId = "cuda-copy-f32-toy".parse().unwrap();
    let (program, _) = device.compile(&id, &workload, &default()).unwrap();
    let mut to = [device.allocate(DType::F32, shape).unwrap()];

    let begin = clock.now();
    let first = device.launch(&program, &[&from], &mut to).unwrap();
    let second = device.launch(&program, &[&from], &mut to).unwrap();
    assert_eq!(clock.now(), begin, "a launch does not wait");
    clock.advance(700); // the host is busy meanwhile
    assert_eq!(
        device.wait(first).unwrap(),
        nanos(1000.0),
        "the device's time, not the host's"
    );
    assert_eq!(clock.now(), begin + 1000);
    assert_eq!(device.wait(second).unwrap(), nanos(1000.0));
    assert_eq!(clock.now(), begin + 2000, "one after the other");

    let mut out = [0f32; 4];
    let mut view = TensorViewMut::contiguous(&mut out, shape).unwrap();
    device.download(&to[0], &mut view).unwrap();
    assert_eq!(out, data);
}

#[test]
fn a_lost_device_says_so_until_it_is_opened_again() {
    let clock = Arc::new(ScriptedClock::new());
    let staged = Staged::new(device(&clock, 1 << 20));
    product(&staged, default()).0.unwrap();
    let shape = "4".parse().unwrap();
    let mut old = staged.accelerator().allocate(DType::F32, shape).unwrap();

    staged.accelerator().inject(Mishap::Lost);
    for _ in 0..2 {
        let (result, out) = product(&staged, default());
        let fault = result.unwrap_err();
        assert_eq!(
            fault.to_string(),
            "toy was lost: it was asked to go; open it again"
        );
        assert_eq!(fault.blame(), Blame::Device);
        assert_eq!(out, [9.0; 4], "the caller's memory is untouched");
    }
    staged.accelerator().reopen().unwrap();
    let (result, out) = product(&staged, default());
    assert!(
        result.unwrap().compile.is_some(),
        "programs went with the device"
    );
    assert_eq!(out, [2.0; 4]);

    let data = [0f32; 4];
    let view = TensorView::contiguous(&data, shape).unwrap();
    let fault = staged.accelerator().upload(&view, &mut old).unwrap_err();
    assert!(matches!(fault, Fault::DeviceLost { .. }), "{fault}");
    drop(old);
    assert_eq!(staged.accelerator().allocated(), Bytes(0), "counted once");
}

#[test]
fn each_mishap_is_a_fault_of_its_own_and_the_next_call_works() {
    let clock = Arc::new(ScriptedClock::new());
    let cases = [
        (
            Mishap::CompileError,
            Blame::Kernel,
            "cuda-matmul-f32-toy does not compile: an error was asked for",
        ),
        (
            Mishap::KernelError,
            Blame::Kernel,
            "cuda-matmul-f32-toy failed: an error was asked for",
        ),
        (
            Mishap::Hang,
            Blame::Device,
            "toy did not finish within 1000000000 ns",
        ),
    ];
    for (mishap, blame, message) in cases {
        let staged = Staged::new(device(&clock, 1 << 20));
        staged.accelerator().inject(mishap);
        let (result, out) = product(&staged, default());
        let fault = result.unwrap_err();
        assert_eq!(
            (fault.blame(), fault.to_string()),
            (blame, message.to_owned())
        );
        assert_eq!(out, [9.0; 4]);
        assert_eq!(product(&staged, default()).1, [2.0; 4]);
    }
    let staged = Staged::new(device(&clock, 1 << 20));
    staged.accelerator().inject(Mishap::WrongResult);
    assert_eq!(
        product(&staged, default()).1,
        [3.0, 2.0, 2.0, 2.0],
        "only a check finds this one"
    );
    assert_eq!(product(&staged, default()).1, [2.0; 4]);
}

#[test]
fn memory_is_bounded_and_kernels_can_grow_slow() {
    let clock = Arc::new(ScriptedClock::new());
    let small = Staged::new(device(&clock, 40));
    let (result, out) = product(&small, default());
    let fault = result.unwrap_err();
    assert!(
        fault.to_string().starts_with("toy has no room for 16 B"),
        "{fault}"
    );
    assert_eq!(out, [9.0; 4]);
    assert_eq!(
        small.accelerator().allocated(),
        Bytes(0),
        "what was taken is given back"
    );

    let staged = Staged::new(device(&clock, 1 << 20));
    let before = product(&staged, default()).0.unwrap().kernel.unwrap().get();
    staged
        .accelerator()
        .slow_down(&"cuda-matmul-f32-toy".parse().unwrap(), 10.0);
    let after = product(&staged, default()).0.unwrap().kernel.unwrap().get();
    assert!((after / before - 10.0).abs() < 0.1, "{before} {after}");
}

#[test]
fn requests_a_device_cannot_meet_are_refused() {
    let clock = Arc::new(ScriptedClock::new());
    let staged = Staged::new(device(&clock, 1 << 20));
    let fault = product(&staged, Setting::new([65])).0.unwrap_err();
    assert!(
        fault.to_string().contains("`group=65` is not offered"),
        "{fault}"
    );
    let error = staged
        .accelerator()
        .compile(
            &"cuda-sort-u32-toy".parse().unwrap(),
            &"copy f32 4".parse().unwrap(),
            &default(),
        )
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no kernel `cuda-sort-u32-toy` here"
    );
    // The kernel works on real shapes only through a checked call, so a wrong index is found on the way.
    let shape = "3".parse().unwrap();
    let gather: Workload = "gather f32 3 axis0 idx3".parse().unwrap();
    let (table, indices, mut out) = ([0f32; 3], [0i64, 7, 1], [5f32; 3]);
    let inputs = [
        TensorView::contiguous(&table, shape).unwrap(),
        TensorView::contiguous(&indices, shape).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut out, shape).unwrap()];
    let mut call = Call::new(&gather, &inputs, &mut outputs).unwrap();
    let machine = kernelwise_probe::machine();
    let id: KernelId = "cuda-gather-f32_i64-toy".parse().unwrap();
    let fault = staged
        .run(
            &id,
            &mut call,
            &default(),
            &mut Scratch::new(),
            &Terms::usual(&machine),
        )
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "index 7 at position 1 of `indices` is outside 0..3"
    );
    assert_eq!(out, [5.0; 3]);
}
