//! Small real runs: what is told, not how fast it was.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernelwise_backend::{Call, Fault, Host, HostKernel, OwnKernel, Scratch, Setting};
use kernelwise_bench::{
    Bench, BenchError, Figures, Options, Outcome, Rivals, ShapeFigures, Source, summarise,
};
use kernelwise_types::calibration::Peak;
use kernelwise_types::units::{FlopRate, Nanos};
use kernelwise_types::{
    Calibration, DType, KernelSpec, Measured, Needs, Numerics, Refusal, Technique, Workload,
};
use serde_json::Value;

/// A machine whose only known ceiling is this peak.
fn calibration(peak_gflops: f64) -> Calibration {
    let rate = FlopRate::new(peak_gflops * 1e9).unwrap();
    let nanos = Nanos::from_u64(20);
    Calibration {
        peaks: vec![Peak {
            dtype: DType::F32,
            threads: 1,
            isa: None,
            rate: Measured {
                value: rate,
                low: rate,
                high: rate,
                samples: 9,
            },
        }],
        bandwidths: Vec::new(),
        handed_over: Vec::new(),
        fork_joins: Vec::new(),
        timer: Measured {
            value: nanos,
            low: nanos,
            high: nanos,
            samples: 9,
        },
        skipped: Vec::new(),
    }
}

type Body = fn(&mut Call<'_, '_>, &Setting, &mut Scratch) -> Result<(), Fault>;

fn kernel(variant: &str, technique: Technique, numerics: Numerics, body: Body) -> OwnKernel<Body> {
    let spec = KernelSpec {
        id: format!("cpu-matmul-f32-{variant}").parse().unwrap(),
        version: 1,
        technique,
        numerics,
        needs: Needs::default(),
    };
    OwnKernel::new(spec, body)
}

/// Rows times columns, and `extra` on top.
fn product(call: &mut Call<'_, '_>, extra: f32) -> Result<(), Fault> {
    let (workload, inputs, outputs) = call.parts();
    let kernelwise_types::op::Operation::Matmul(shape) = workload.operation() else {
        return Err(Fault::kernel("test", "is a product"));
    };
    let (a, b) = (inputs[0].as_slice::<f32>()?, inputs[1].as_slice::<f32>()?);
    let out = outputs[0].as_mut_slice::<f32>()?;
    for (position, out) in out.iter_mut().enumerate() {
        let (row, column) = (position / shape.n, position % shape.n);
        let term = |i: usize| a[row * shape.k + i] * b[i * shape.n + column];
        *out = (0..shape.k).map(term).sum::<f32>() + extra;
    }
    Ok(())
}

/// A benchmark alone in the process: others' processor time would look like helping threads.
struct Alone(
    Bench,
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl Deref for Alone {
    type Target = Bench;
    fn deref(&self) -> &Bench {
        &self.0
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut Bench {
        &mut self.0
    }
}

fn bench(kernels: Vec<Arc<dyn HostKernel>>, peak_gflops: f64, allow_reduced: bool) -> Alone {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Host::new(kernelwise_probe::machine(), kernels).unwrap();
    let options = Options {
        budget: Duration::from_millis(60),
        seed: 5,
        allow_reduced,
        ..Options::default()
    };
    let rivals = Rivals::without("left out of this test");
    let bench = Bench::new(host, calibration(peak_gflops), rivals, options);
    Alone(bench, alone)
}

fn kernels() -> Vec<Arc<dyn HostKernel>> {
    let plain: Body = |call, _, _| product(call, 0.0);
    let off: Body = |call, _, _| product(call, 100.0);
    let slightly_off: Body = |call, _, _| product(call, 1e-4);
    let fails: Body = |_, _, _| Err(Fault::kernel("test", "has no time today"));
    let panics: Body = |_, _, _| panic!("on purpose");
    let picky = |_: &Workload| {
        let condition = "needs a full moon".to_owned();
        Err(Refusal::Shape { condition })
    };
    let (vector, reordered) = (Technique::Vector, Numerics::Reordered);
    vec![
        Arc::new(kernel("plain", vector, reordered, plain)),
        Arc::new(kernel("again", Technique::Library, reordered, plain)),
        Arc::new(kernel("off", vector, reordered, off)),
        Arc::new(kernel("fails", vector, reordered, fails)),
        Arc::new(kernel("panics", vector, reordered, panics)),
        Arc::new(kernel(
            "rough",
            vector,
            Numerics::ReducedPrecision,
            slightly_off,
        )),
        Arc::new(kernel("picky", vector, reordered, plain).accepting(picky)),
    ]
}

fn shape(bench: &Bench, text: &str) -> ShapeFigures {
    let figures = bench.shape(&text.parse().unwrap(), &AtomicBool::new(false));
    figures.unwrap().unwrap()
}

fn outcome(figures: &ShapeFigures, name: &str) -> Option<Outcome> {
    let found = figures.contenders.iter().find(|c| c.name.ends_with(name));
    found.map(|standing| standing.verdict)
}

#[test]
fn every_contender_is_told_apart() {
    let bench = bench(kernels(), 1e6, false);
    let figures = shape(&bench, "matmul f32 4x8x4");
    assert_eq!(figures.checked_against, "the reference");
    assert_eq!(outcome(&figures, "-off"), Some(Outcome::Wrong));
    assert_eq!(outcome(&figures, "-fails"), Some(Outcome::Failed));
    assert_eq!(outcome(&figures, "-panics"), Some(Outcome::Failed));
    assert_eq!(figures.wrong().count(), 1);
    for refused in [
        ("-picky", "needs a full moon"),
        ("-rough", "reduced_precision"),
    ] {
        let found = figures
            .refused
            .iter()
            .find(|r| r.kernel.as_str().ends_with(refused.0));
        assert!(found.unwrap().reason.contains(refused.1));
        assert_eq!(outcome(&figures, refused.0), None);
    }
    for timed in ["-plain", "-again", "gemm", "matrixmultiply"] {
        let standing = figures
            .contenders
            .iter()
            .find(|c| c.name.ends_with(timed))
            .unwrap();
        let times = standing.times.unwrap();
        assert!(times.time_ns > 0.0 && times.samples > 0 && times.gflops.is_some());
        assert_eq!(standing.prior_ns.is_some(), timed.starts_with('-'));
    }
    let winner = figures.winner.clone().unwrap();
    assert!(figures.tie_class.contains(&winner));
    let first = &figures.contenders[0];
    assert_eq!((&first.name, first.verdict), (&winner, Outcome::Winner));
    let sources: Vec<Source> = figures.contenders.iter().map(|c| c.source).collect();
    for source in [Source::Own, Source::Wrapped, Source::Rival] {
        assert!(sources.contains(&source));
    }
}

#[test]
fn reduced_precision_races_when_asked() {
    let bench = bench(kernels(), 1e6, true);
    let figures = shape(&bench, "matmul f32 4x8x4");
    let rough = figures
        .contenders
        .iter()
        .find(|c| c.name.ends_with("-rough"));
    assert!(!rough.unwrap().opt_in && rough.unwrap().times.is_some());
}

/// Work the reference would take long for: two that agree are the answer.
#[test]
fn without_the_reference_two_must_agree() {
    let bench = bench(kernels(), 1e6, false);
    let figures = shape(&bench, "matmul f32 2x2000000x2");
    assert!(
        figures.checked_against.contains("confirms"),
        "{}",
        figures.checked_against
    );
    assert_eq!(outcome(&figures, "-off"), Some(Outcome::Wrong));
    assert_ne!(outcome(&figures, "-plain"), Some(Outcome::Wrong));
    assert_ne!(outcome(&figures, "gemm"), Some(Outcome::Wrong));
}

#[test]
fn what_outruns_the_machine_wins_nothing() {
    let bench = bench(kernels(), 1e-6, false);
    let figures = shape(&bench, "matmul f32 4x8x4");
    assert_eq!(outcome(&figures, "-plain"), Some(Outcome::NotBelieved));
    assert_eq!(outcome(&figures, "gemm"), Some(Outcome::NotBelieved));
    assert_eq!((figures.winner, figures.tie_class.len()), (None, 0));
    assert_eq!(figures.ratios["best_over_best_library"].value(), None);
    let plain = &figures
        .contenders
        .iter()
        .find(|c| c.name.ends_with("-plain"));
    assert!(
        plain
            .unwrap()
            .detail
            .starts_with("above peak, not believed")
    );
}

#[test]
fn what_cannot_be_measured_says_why() {
    let bench = bench(kernels(), 1e6, false);
    let error = |text: &str| {
        let shape = bench.shape(&text.parse().unwrap(), &AtomicBool::new(false));
        shape.unwrap_err()
    };
    let ambiguous = error("sort.arg u32 10");
    assert!(matches!(ambiguous, BenchError::Ambiguous));
    assert!(ambiguous.to_string().contains("`stable`"));
    let large = error("copy f32 1000000000000");
    assert!(matches!(large, BenchError::Memory { .. }), "{large}");
    for error in [&ambiguous, &large] {
        let words = error.to_string();
        assert!(
            words.starts_with("it has "),
            "the shape stands beside it: {words}"
        );
    }
    let nobody = error("custom.x f32 8");
    assert!(matches!(nobody, BenchError::NoKernel), "{nobody}");
    assert_eq!(nobody.to_string(), "no kernel computes it");
    let cancelled = bench.shape(&"matmul f32 2x2x2".parse().unwrap(), &AtomicBool::new(true));
    assert!(cancelled.unwrap().is_none());
}

/// Nothing is null but a `value` with a reason beside it.
fn assert_nulls_have_reasons(value: &Value, path: &str) {
    match value {
        Value::Null => assert!(path.ends_with(".value"), "{path} is null"),
        Value::Object(fields) => {
            let unknown = fields.get("value") == Some(&Value::Null);
            assert_eq!(unknown, fields.contains_key("reason") && unknown, "{path}");
            for (name, inner) in fields {
                // The null comparison of a busy machine may come to nothing, and says so in words.
                if name != "null_comparison" {
                    assert_nulls_have_reasons(inner, &format!("{path}.{name}"));
                }
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| assert_nulls_have_reasons(item, path)),
        _ => {}
    }
}

#[test]
fn the_json_has_units_in_its_names_and_reasons_for_its_gaps() {
    let mut bench = bench(kernels(), 1e6, false);
    let texts = ["matmul f32 4x8x4", "matmul f32 3x3x3"];
    let shapes: Vec<ShapeFigures> = texts.iter().map(|text| shape(&bench, text)).collect();
    let figures = Figures {
        interrupted: false,
        conditions: bench.conditions(),
        rivals: bench.rivals().facts("matmul"),
        summary: summarise(&shapes),
        shapes,
        skipped: Vec::new(),
    };
    let json = serde_json::to_value(&figures).unwrap();
    assert_nulls_have_reasons(&json, "figures");
    let shape = &json["shapes"][0];
    assert_eq!(shape["workload"], texts[0]);
    assert_eq!(shape["flops"], 2 * 4 * 8 * 4);
    let openblas = &shape["ratios"]["best_over_openblas"];
    assert_eq!(openblas["reason"], "openblas: left out of this test");
    let best = &shape["contenders"][0];
    for field in ["time_ns", "samples", "gflops", "peak_share", "over_winner"] {
        assert!(best[field].is_number(), "{field}: {best}");
    }
    assert_eq!(json["summary"]["shapes"], 2);
    assert_eq!(json["summary"]["wrong_results"], 2);
    let conditions = &json["conditions"];
    assert_eq!(
        (&conditions["threads"], &conditions["seed"]),
        (&1.into(), &5.into())
    );
    assert!(conditions["clock"]["clock"].is_string());
}
