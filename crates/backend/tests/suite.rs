//! The suite must find what is wrong: each kernel here breaks one rule.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Fault, Host, HostKernel, Knobs, OwnKernel, Scratch, Setting, Space, conformance,
    knobs,
};
use kernelwise_types::op::Operation;
use kernelwise_types::units::Bytes;
use kernelwise_types::{KernelSpec, LayoutKind, Needs, Numerics, Refusal, Technique};

fn spec(id: &str, layout: LayoutKind) -> KernelSpec {
    KernelSpec {
        id: id.parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs {
            layout,
            ..Needs::default()
        },
    }
}

/// A copy kernel of f32 whose body is given.
fn copy_kernel(
    body: impl Fn(&[f32], &mut [f32]) -> Result<(), Fault> + Send + Sync + 'static,
) -> Arc<dyn HostKernel> {
    let spec = spec("cpu-copy-f32-mine", LayoutKind::Contiguous);
    Arc::new(OwnKernel::new(spec, move |call, _, _| {
        let (workload, inputs, outputs) = call.parts();
        let Operation::TensorCopy(_) = workload.operation() else {
            return Err(Fault::kernel("mine", "only copies"));
        };
        body(inputs[0].as_slice()?, outputs[0].as_mut_slice()?)
    }))
}

fn findings(kernel: Arc<dyn HostKernel>, operation: &str) -> Vec<String> {
    let machine = kernelwise_probe::machine();
    let host = Host::new(machine.clone(), [Arc::clone(&kernel)]).unwrap();
    let mut report = conformance::check(&host, &machine, operation);
    report
        .findings
        .extend(conformance::check_host(&kernel, &machine).findings);
    report
        .findings
        .into_iter()
        .map(|finding| finding.what)
        .collect()
}

#[test]
fn a_right_kernel_has_no_findings() {
    let right = copy_kernel(|from, to| {
        to.copy_from_slice(from);
        Ok(())
    });
    assert_eq!(findings(right, "copy"), Vec::<String>::new());
}

#[test]
fn a_wrong_tail_is_found() {
    let wrong = copy_kernel(|from, to| {
        let whole = from.len() / 4 * 4;
        to[..whole].copy_from_slice(&from[..whole]);
        Ok(())
    });
    let found = findings(wrong, "copy");
    assert!(
        found.iter().any(|what| what.contains("instead of")),
        "{found:?}"
    );
}

#[test]
fn a_lost_sign_of_zero_is_found() {
    let wrong = copy_kernel(|from, to| {
        to.iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to = from + 0.0);
        Ok(())
    });
    assert!(!findings(wrong, "copy").is_empty());
}

#[test]
fn a_panic_is_found_and_survived() {
    let wrong = copy_kernel(|from, to| {
        assert!(from.len() != 7, "seven");
        to.copy_from_slice(from);
        Ok(())
    });
    assert!(
        findings(wrong, "copy")
            .iter()
            .any(|what| what == "panicked")
    );
}

#[test]
fn writing_before_refusing_is_found() {
    let wrong = copy_kernel(|from, to| {
        to.copy_from_slice(from);
        match from.len() {
            7 => Err(Fault::Workspace {
                needs: Bytes(1),
                given: Bytes(0),
            }),
            _ => Ok(()),
        }
    });
    let found = findings(wrong, "copy");
    assert!(
        found.iter().any(|what| what.starts_with("wrote outputs")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|what| what.starts_with("admitted, then refused")),
        "{found:?}"
    );
}

/// A kernel for rows with gaps that fills the gaps as well.
#[test]
fn writing_between_rows_is_found() {
    let spec = spec("cpu-copy-f32-mine", LayoutKind::RowGaps);
    let wrong = OwnKernel::new(
        spec,
        |call: &mut Call<'_, '_>, _: &Setting, _: &mut Scratch| {
            let (workload, inputs, outputs) = call.parts();
            let Operation::TensorCopy(_) = workload.operation() else {
                return Err(Fault::kernel("mine", "only copies"));
            };
            if inputs[0].dtype() != kernelwise_types::DType::F32 {
                return Err(Fault::kernel("mine", "only f32"));
            }
            kernelwise_reference::compute(workload, inputs, outputs)
                .map_err(|error| Fault::kernel("mine", error))?;
            let out = &mut outputs[0];
            let (shape, strides) = (*out.shape(), out.layout().strides().to_vec());
            if let ([rows, columns], [row, 1]) = (shape.dims(), strides.as_slice())
                && *rows > 1
                && *row > *columns as isize
            {
                let start = out.as_mut_ptr::<f32>()?;
                // SAFETY: one element after the first row is still inside the same allocation, because
                // a second row follows; the test wants it written.
                unsafe { start.add(*columns).write(0.0) };
            }
            Ok(())
        },
    );
    let found = findings(Arc::new(wrong), "copy");
    assert!(
        found
            .iter()
            .any(|what| what.contains("between the elements")),
        "{found:?}"
    );
}

#[test]
fn a_kernel_that_no_case_reaches_is_found() {
    let spec = spec("cpu-copy-f32-mine", LayoutKind::Contiguous);
    let never = OwnKernel::new(
        spec,
        |_: &mut Call<'_, '_>, _: &Setting, _: &mut Scratch| Err(Fault::kernel("mine", "never")),
    )
    .accepting(|_| {
        Err(Refusal::Shape {
            condition: "needs a Tuesday".to_owned(),
        })
    });
    let found = findings(Arc::new(never), "copy");
    assert_eq!(found, ["no case was admitted: add one it accepts"]);
}

knobs! {
    struct Step {
        by,
    }
}

/// Wrong only at one end of a parameter, and only the suite's corners see it.
#[test]
fn a_wrong_corner_of_the_space_is_found() {
    let spec = spec("cpu-copy-f32-mine", LayoutKind::Contiguous);
    let wrong = OwnKernel::new(
        spec,
        |call: &mut Call<'_, '_>, setting: &Setting, _: &mut Scratch| {
            let (workload, inputs, outputs) = call.parts();
            let Operation::TensorCopy(_) = workload.operation() else {
                return Err(Fault::kernel("mine", "only copies"));
            };
            let (from, to) = (
                inputs[0].as_slice::<f32>()?,
                outputs[0].as_mut_slice::<f32>()?,
            );
            to.copy_from_slice(from);
            if Step::of(setting).by == 8 {
                to[0] = 77.0;
            }
            Ok(())
        },
    )
    .with_space(|_, _| Space::of::<Step, 1>([Axis::new(1, [2, 4, 8])]));
    assert!(!findings(Arc::new(wrong), "copy").is_empty());
}

#[test]
fn two_kernels_of_one_name_are_refused() {
    let kernel = || copy_kernel(|_, _| Ok(()));
    let error = Host::new(kernelwise_probe::machine(), [kernel(), kernel()]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there are two kernels named `cpu-copy-f32-mine`: give one another variant"
    );
}
