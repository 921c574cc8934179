//! Products of a few shapes, each by the kernel that turns out to be fastest for it.
//!
//! Run it with `cargo run --release -p kernelwise --example matmul`.

use std::error::Error;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kernelwise::measure::TscClock;
use kernelwise::op::Matmul;
use kernelwise::probe::calibrate::{CalibrateOptions, calibrate};
use kernelwise::types::Estimate;
use kernelwise::{DType, Kernelwise, Workload, probe};

/// Small products are done in no time, and need not be done more often than this.
const MOST_CALLS: usize = 200_000;

/// Multiplies matrices of each shape (m, k, n) for so many floating-point operations, and tells what was learned.
pub(crate) fn run(
    out: &mut impl Write,
    kw: &Kernelwise,
    shapes: &[[usize; 3]],
    operations: usize,
) -> Result<(), Box<dyn Error>> {
    for &[m, k, n] in shapes {
        let (a, b) = (vec![0.5f32; m * k], vec![0.25f32; k * n]);
        let mut c = vec![0f32; m * n];
        for _ in 0..operations.div_ceil(2 * m * k * n).min(MOST_CALLS) {
            kw.matmul((&a, [m, k]), (&b, [k, n]), (&mut c, [m, n]))?;
        }
        assert!(c.iter().all(|element| *element == k as f32 / 8.0));

        let decision = kw.explain(&Workload::new(Matmul::new(m, k, n), DType::F32)?)?;
        let (chosen, reason) = (&decision.chosen, decision.reason.words());
        writeln!(out, "{}", decision.workload)?;
        writeln!(out, "  runs {}: {reason}", chosen.candidate)?;
        writeln!(out, "    {}", chosen.estimate)?;
        let timed = |estimate: &Estimate| matches!(estimate, Estimate::Measured { .. });
        let alternatives = decision.alternatives().iter();
        let (measured, others): (Vec<_>, Vec<_>) =
            alternatives.partition(|other| timed(&other.estimate));
        for other in measured.iter().take(3) {
            writeln!(out, "  over {}: {}", other.candidate, other.estimate)?;
        }
        let (more, never) = (measured.len().saturating_sub(3), others.len());
        writeln!(
            out,
            "  and {more} more that were timed, {never} that never were"
        )?;
    }
    let statistics = kw.statistics();
    writeln!(
        out,
        "{} calls took {:.2} s; {} of them were trials, which took {:.2} % on top",
        statistics.calls,
        statistics.served_ns / 1e9,
        statistics.trials,
        100.0 * statistics.trials_excess_ns / statistics.served_ns,
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // A second spent on what the machine can do at the best spares the first calls most of the poor guesses.
    let options = CalibrateOptions {
        budget: Duration::from_secs(1),
        ..CalibrateOptions::default()
    };
    let never = AtomicBool::new(false);
    let clock = TscClock::new();
    let calibration = calibrate(&probe::machine(), &clock, &options, &mut |_| (), &never)?;
    let kw = Kernelwise::builder()
        .calibration(calibration)
        .from_env()?
        .build()?;
    let shapes = [[4, 4, 4], [64, 64, 64], [1, 512, 512], [256, 256, 256]];
    run(&mut std::io::stdout().lock(), &kw, &shapes, 1_000_000_000)
}
