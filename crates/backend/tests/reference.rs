//! The suite on the reference itself: it is judged by its own answers, so what this shows is that strides,
//! offsets and gaps do not matter to it, and that every case can be run.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use kernelwise_backend::{Host, conformance};

#[test]
fn the_reference_conforms() {
    let machine = kernelwise_probe::machine();
    let host = Host::new(machine.clone(), []).unwrap();
    for operation in conformance::operations() {
        let report = conformance::check(&host, &machine, operation);
        assert!(report.findings.is_empty(), "{operation}: {report}");
        assert!(report.runs > 20, "{operation}: {report}");
    }
}
