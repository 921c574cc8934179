//! Every kernel of the processor through the suite: one test per operation, so that they run side by side
//! and a failure names its operation.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::sync::{Arc, LazyLock};

use kernelwise_backend::{Backend, Host, HostKernel, conformance};
use kernelwise_types::Machine;

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let machine = kernelwise_probe::machine();
    // Threads are a parameter to try even where the test has one processor only.
    let threads = machine.usable_threads().max(2);
    machine.with_threads(threads)
});

static KERNELS: LazyLock<Vec<Arc<dyn HostKernel>>> =
    LazyLock::new(|| kernelwise_cpu::kernels().unwrap());

static HOST: LazyLock<Host> =
    LazyLock::new(|| Host::new(MACHINE.clone(), KERNELS.iter().cloned()).unwrap());

macro_rules! conforms {
    ($($operation:ident),* $(,)?) => {
        $(
            #[test]
            fn $operation() {
                let name = stringify!($operation);
                let report = conformance::check(&*HOST, &MACHINE, name);
                assert!(report.findings.is_empty(), "{report}");
                // More than the reference: the operation has kernels of its own.
                let own = |kernel: &&Arc<dyn HostKernel>| {
                    kernel.spec().id.operation().split('.').next() == Some(name)
                };
                assert!(KERNELS.iter().filter(own).count() >= 2, "{name} has too few kernels");
                for kernel in KERNELS.iter().filter(own) {
                    let report = conformance::check_host(kernel, &MACHINE);
                    assert!(report.findings.is_empty(), "{report}");
                }
            }
        )*

        #[test]
        fn every_operation_is_listed_here() {
            let listed = [$(stringify!($operation)),*];
            for operation in conformance::operations() {
                assert!(listed.contains(&operation), "{operation}");
            }
        }
    };
}

conforms!(
    matmul,
    conv2d,
    conv3d,
    elementwise,
    activation,
    pool2d,
    norm,
    softmax,
    reduce,
    scan,
    sort,
    fft,
    gather,
    scatter,
    transpose,
    reshape,
    copy,
);

/// What is written into records must not change by accident.
#[test]
fn kernel_ids_are_unique_and_in_a_fixed_order() {
    let ids = || -> Vec<String> {
        let kernels = kernelwise_cpu::kernels().unwrap();
        kernels
            .iter()
            .map(|kernel| kernel.spec().id.to_string())
            .collect()
    };
    let first = ids();
    assert_eq!(first, ids());
    let mut unique = first.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), first.len());
    assert_eq!(HOST.kernels().len(), first.len());
}

/// The suite above runs over it too, where there is one.
#[cfg(feature = "openblas")]
#[test]
fn openblas_is_a_kernel_where_it_is_installed() {
    let named = |kernel: &&Arc<dyn HostKernel>| kernel.spec().id.to_string().ends_with("-openblas");
    match KERNELS.iter().filter(named).count() {
        0 => kernelwise_testing::skip("openblas", "no OpenBLAS: ci/rivals installs one"),
        kernels => assert_eq!(kernels, 2, "f32 and f64"),
    }
}
