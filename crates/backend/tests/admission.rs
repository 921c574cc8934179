//! Each condition alone keeps a kernel from running, with its reason, before a byte is written.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use kernelwise_backend::{
    Axis, Blame, Call, Fault, Knobs, OwnKernel, Scratch, Setting, Space, Terms, admit, knobs, run,
};
use kernelwise_types::machine::Isa;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    KernelSpec, LayoutKind, Machine, Needs, Numerics, Refusal, Technique, TensorView,
    TensorViewMut, Workload,
};

knobs! {
    struct Threads {
        threads,
    }
}

/// A copy that marks every output it touches.
fn kernel(
    needs: Needs,
) -> OwnKernel<impl Fn(&mut Call<'_, '_>, &Setting, &mut Scratch) -> Result<(), Fault> + Send + Sync>
{
    let spec = KernelSpec {
        id: "cpu-copy-f32-mine".parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::Reordered,
        needs,
    };
    OwnKernel::new(spec, |call, _, scratch| {
        let (_, inputs, outputs) = call.parts();
        scratch.slice::<f32>(256)?;
        outputs[0]
            .as_mut_slice::<f32>()?
            .copy_from_slice(inputs[0].as_slice()?);
        Ok(())
    })
    .accepting(|workload| match workload.elements() % 2 {
        0 => Ok(()),
        _ => Err(Refusal::Shape {
            condition: "needs an even number of elements".to_owned(),
        }),
    })
    .with_space(|_, machine| Space::of::<Threads, 1>([Axis::threads(machine)]))
    .with_workspace(|_, _| Bytes(2048))
}

fn reason(needs: Needs, workload: &str, change: impl Fn(&mut Terms<'_>)) -> String {
    let machine = kernelwise_probe::machine();
    let mut terms = Terms::usual(&machine);
    change(&mut terms);
    let workload: Workload = workload.parse().unwrap();
    let setting = Threads { threads: 1 }.setting();
    match admit(&kernel(needs), &workload, Some(4), &setting, &terms) {
        Ok(()) => "admitted".to_owned(),
        Err(fault) => {
            assert_eq!(fault.blame(), Blame::Caller);
            fault.to_string()
        }
    }
}

#[test]
fn every_condition_refuses_on_its_own() {
    let plain = Needs::default;
    assert_eq!(reason(plain(), "copy f32 8", |_| {}), "admitted");
    assert_eq!(
        reason(plain(), "copy f64 8", |_| {}),
        "cpu-copy-f32-mine is made for f32, not f64"
    );
    assert_eq!(
        reason(plain(), "copy f32 7", |_| {}),
        "cpu-copy-f32-mine needs an even number of elements"
    );
    assert_eq!(
        reason(plain(), "copy f32 8", |terms| terms.workspace = Bytes(1024)),
        "cpu-copy-f32-mine needs 2 KiB of workspace, 1 KiB is allowed"
    );
    assert_eq!(
        reason(plain(), "copy f32 8", |terms| terms.numerics =
            Numerics::BitIdentical),
        "cpu-copy-f32-mine gives reordered results, the caller allows bit_identical"
    );
    let aligned = Needs {
        alignment: 64,
        ..plain()
    };
    assert_eq!(
        reason(aligned, "copy f32 8", |_| {}),
        "cpu-copy-f32-mine needs operands aligned to 64 bytes, one is aligned to 4"
    );
    let contiguous = Needs {
        layout: LayoutKind::Contiguous,
        ..plain()
    };
    assert_eq!(
        reason(contiguous, "copy f32 8 layout=strided", |_| {}),
        "cpu-copy-f32-mine needs operands no worse than contiguous, these are strided"
    );
}

/// The machine says what it has; a kernel for another one is refused by name, not by a crash.
#[test]
fn instructions_the_processor_lacks_refuse() {
    let mut machine: Machine = kernelwise_probe::machine();
    machine
        .cpu
        .isa
        .retain(|isa| *isa != Isa::Sve2 && *isa != Isa::AmxInt8);
    let foreign = if cfg!(target_arch = "x86_64") {
        Isa::Sve2
    } else {
        Isa::AmxInt8
    };
    let needs = Needs {
        isa: vec![foreign],
        ..Needs::default()
    };
    let setting = Threads { threads: 1 }.setting();
    let workload = "copy f32 8".parse().unwrap();
    let fault = admit(
        &kernel(needs),
        &workload,
        None,
        &setting,
        &Terms::usual(&machine),
    )
    .unwrap_err();
    assert!(
        fault.to_string().contains("which this processor lacks"),
        "{fault}"
    );
}

#[test]
fn a_refused_run_leaves_outputs_as_they_were() {
    let machine = kernelwise_probe::machine();
    let kernel = kernel(Needs::default());
    let workload: Workload = "copy f32 8".parse().unwrap();
    let (x, mut out) = ([1f32; 8], [5f32; 8]);
    let inputs = [TensorView::contiguous(&x, "8".parse().unwrap()).unwrap()];
    let mut outputs = [TensorViewMut::contiguous(&mut out, "8".parse().unwrap()).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    let terms = Terms::usual(&machine);
    let wrong = Setting::new([machine.usable_threads() + 1]);
    let fault = run(&kernel, &mut call, &wrong, &mut scratch, &terms).unwrap_err();
    assert!(fault.to_string().contains("is not offered"), "{fault}");
    assert!(scratch.is_empty(), "nothing was reserved for it");

    let right = Threads { threads: 1 }.setting();
    run(&kernel, &mut call, &right, &mut scratch, &terms).unwrap();
    assert!(scratch.len() >= Bytes(2048));
    assert_eq!(out, [1.0; 8]);
}
