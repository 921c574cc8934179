//! Facts as a machine could have them, made from a seed: for tests, and for looking at the page.

use kernelwise_report::{
    Event, EventKind, Facts, Gain, Gains, KnownBy, LoadDemo, LoadPhase, Prediction, Quarantined,
    Ratio, Regret, RegretPoint, Row, Severity,
};
use kernelwise_types::calibration::{AccessPattern, Bandwidth, ForkJoin, MemoryPlace, Peak};
use kernelwise_types::machine::{Cache, Cpu, CpuSignature, Hypervisor, Isa, Limits};
use kernelwise_types::state::PowerMode;
use kernelwise_types::units::{ByteRate, Bytes, FlopRate, Hertz, Nanos, Share};
use kernelwise_types::{
    Calibration, Candidate, DType, Estimate, Interval, Machine, Measured, Reading, SystemState,
    Workload,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// When all of it happened.
pub(crate) const NOW_S: u64 = 1_800_000_000;

pub(crate) fn machine() -> Machine {
    let cache = |level, kib: u64| Cache {
        level,
        unified: level > 1,
        size_bytes: Bytes(kib * 1024),
        line_bytes: Reading::Known(64),
        ways: Reading::Known(8),
        shared_by: Reading::Known(1),
        instances: Reading::Known(2),
    };
    Machine {
        cpu: Cpu {
            arch: "x86_64".into(),
            vendor: Reading::Known("GenuineIntel".into()),
            model: Reading::Known("Example 3000".into()),
            signature: Reading::Known(CpuSignature {
                family: 6,
                model: 207,
                stepping: 2,
            }),
            logical: 2,
            cores: Reading::Known(2),
            threads_per_core: Reading::Known(1),
            packages: Reading::Known(1),
            isa: vec![Isa::Sse2, Isa::Avx, Isa::Avx2, Isa::Fma],
            tsc: Reading::unknown("not asked"),
            max_frequency: Reading::unknown("not asked"),
        },
        caches: Reading::Known(vec![cache(1, 48), cache(2, 2048), cache(3, 32768)]),
        numa: Reading::unknown("one node"),
        memory: Reading::Known(Bytes(24 << 30)),
        limits: Limits {
            affinity: Reading::Known(2),
            cpu_quota: Reading::Known(None),
            memory: Reading::Known(None),
        },
        hypervisor: Reading::Known(Hypervisor::Named("KVM".into())),
        os: "linux".into(),
        kernel: Reading::Known("6.18.0".into()),
    }
}

fn around<T: TryFrom<f64>>(value: f64) -> Measured<T>
where
    T::Error: std::fmt::Debug,
{
    let of = |value: f64| T::try_from(value).unwrap();
    Measured {
        value: of(value),
        low: of(0.96 * value),
        high: of(0.99 * value),
        samples: 30,
    }
}

pub(crate) fn calibration() -> Calibration {
    let mut bandwidths = Vec::new();
    for (place, rate) in MemoryPlace::ALL.into_iter().zip([310e9, 140e9, 46e9, 11e9]) {
        for (pattern, share) in [(AccessPattern::Read, 1.0), (AccessPattern::Copy, 0.8)] {
            for threads in [1, 2] {
                let rate: Measured<ByteRate> = around(rate * share * f64::from(threads).sqrt());
                bandwidths.push(Bandwidth {
                    place,
                    pattern,
                    threads,
                    working_set_bytes: 1 << 15,
                    rate,
                });
            }
        }
    }
    let peaks = [(1, 104e9), (2, 207e9)];
    let peaks = peaks.map(|(threads, rate)| Peak {
        dtype: DType::F32,
        threads,
        isa: Some(Isa::Avx2),
        rate: around::<FlopRate>(rate),
    });
    Calibration {
        peaks: peaks.into(),
        bandwidths,
        handed_over: Vec::new(),
        fork_joins: vec![ForkJoin {
            threads: 2,
            cost: around::<Nanos>(5_200.0),
        }],
        timer: around::<Nanos>(21.0),
        skipped: vec!["f16: no instruction set for it".into()],
    }
}

pub(crate) fn state() -> SystemState {
    let none = "no sensor in this virtual machine";
    SystemState {
        cpu_utilisation: Reading::Known(Share::new(0.31).unwrap()),
        per_cpu_utilisation: Reading::unknown("not asked"),
        steal: Reading::Known(Share::new(0.012).unwrap()),
        run_queue: Reading::Known(2),
        load_1min: Reading::Known(0.8),
        cpu_pressure: Reading::Known(Share::new(0.04).unwrap()),
        memory_pressure: Reading::Known(Share::new(0.0).unwrap()),
        io_pressure: Reading::Known(Share::new(0.0).unwrap()),
        memory_available: Reading::Known(Bytes(17 << 30)),
        temperature: Reading::unknown(none),
        throttling: Reading::unknown(none),
        power: Reading::unknown(none),
        battery: Reading::unknown("no battery"),
        power_mode: Reading::Known(PowerMode::Performance),
        frequency: Reading::Known(Hertz::new(2.9e9).unwrap()),
    }
}

pub(crate) fn ns(value: f64) -> Nanos {
    Nanos::new(value).unwrap()
}

/// A time with five per cent to each side.
pub(crate) fn measured(value: f64, samples: u64) -> Estimate {
    let interval = Interval::new(ns(0.95 * value), ns(1.05 * value)).unwrap();
    Estimate::Measured {
        time_ns: ns(value),
        interval_ns: Some(interval),
        samples,
    }
}

pub(crate) fn row(workload: &str, kernel: &str, params: &str, estimate: Estimate) -> Row {
    Row {
        workload: workload.parse().unwrap(),
        candidate: Candidate {
            kernel: kernel.parse().unwrap(),
            params: params.parse().unwrap(),
        },
        estimate,
    }
}

/// Kernels of an operation: what tells them apart, their parameters, what a call costs, how many bytes and operations each
/// nanosecond does.
type Kind = (&'static str, &'static str, f64, f64, f64);
const KINDS: [Kind; 7] = [
    ("portable", "", 4.0, 3.0, 4.0),
    ("micro-avx2", "", 12.0, 14.0, 30.0),
    ("unpacked-avx2", "", 60.0, 24.0, 62.0),
    ("packed-avx2", "kc=512,mc=24,threads=1", 700.0, 26.0, 92.0),
    (
        "packed-avx2",
        "kc=512,mc=24,threads=2",
        6_500.0,
        40.0,
        168.0,
    ),
    ("openblas", "threads=2", 5_200.0, 42.0, 180.0),
    ("gemm", "threads=1", 420.0, 25.0, 96.0),
];

fn size(rng: &mut Pcg64Mcg, low: f64, high: f64) -> u64 {
    (low.ln() + rng.random::<f64>() * (high / low).ln()).exp() as u64
}

fn workload(rng: &mut Pcg64Mcg, operation: &str) -> String {
    let n = size(rng, 32.0, 6e6);
    let side = |rng: &mut Pcg64Mcg| size(rng, 3.0, 900.0);
    match operation {
        "matmul" => format!("matmul f32 {}x{}x{}", side(rng), side(rng), side(rng)),
        "conv2d" => {
            let (c, h) = (size(rng, 3.0, 64.0), size(rng, 7.0, 90.0));
            format!("conv2d f32 n1 c{c} h{h} w{h} k{c} r3 s3 stride1 pad1")
        }
        "reduce" => format!("reduce.sum f32 {n}"),
        "softmax" => format!("softmax f32 {}x{}", side(rng), side(rng)),
        "activation" => format!("activation.gelu f32 {n}"),
        "transpose" => format!("transpose f32 {}x{} perm1,0", side(rng), side(rng)),
        _ => format!("copy f32 {n}"),
    }
}

const OPERATIONS: [&str; 7] = [
    "activation",
    "conv2d",
    "copy",
    "matmul",
    "reduce",
    "softmax",
    "transpose",
];

/// A machine with so many rows, and something in every section.
pub(crate) fn facts(rows: usize, seed: u64) -> Facts {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut facts = Facts::new(machine(), NOW_S);
    facts.calibration = Reading::Known(calibration());
    facts.state = Reading::Known(state());
    let mut predictions = Vec::new();
    while facts.rows.len() < rows {
        let operation = OPERATIONS[rng.random_range(0..OPERATIONS.len())];
        let text = workload(&mut rng, operation);
        let shape: Workload = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let cost = *shape.cost().unwrap();
        for (variant, params, call, bytes, flops) in KINDS {
            if facts.rows.len() == rows || rng.random::<f64>() < 0.2 {
                continue;
            }
            let noise = (0.12 * (rng.random::<f64>() + rng.random::<f64>() - 1.0)).exp();
            let work = (cost.bytes().0 as f64 / bytes).max(cost.flops.0 as f64 / flops);
            let time = noise * (call + work);
            let kernel = format!("cpu-{operation}-f32-{variant}");
            let estimate = match rng.random_range(0..40) {
                0 => Estimate::Prior {
                    time_ns: ns(time),
                    source: "roofline".into(),
                },
                1 => Estimate::Modelled {
                    time_ns: ns(time),
                    interval_ns: Interval::new(ns(0.7 * time), ns(1.5 * time)).unwrap(),
                    model: "curves and trees".into(),
                },
                _ => measured(time, rng.random_range(3..60)),
            };
            let one = row(&text, &kernel, params, estimate);
            let told = time * (0.5 * (rng.random::<f64>() + rng.random::<f64>() - 1.0)).exp();
            predictions.push(Prediction {
                workload: one.workload.clone(),
                candidate: one.candidate.clone(),
                predicted: ns(told),
                interval: Interval::new(ns(told / 1.35), ns(told * 1.35)).unwrap(),
                measured: ns(time),
            });
            facts.rows.push(one);
        }
    }
    facts.predictions = Reading::Known(predictions);
    facts.gains = Reading::Known(gains());
    facts.regret = Reading::Known(regret(&mut rng));
    facts.events = Reading::Known(events());
    facts.quarantines = Reading::Known(vec![Quarantined {
        kernel: "cpu-conv2d-f32-winograd".into(),
        version: 2,
        case: "conv2d f32 n1 c8 h9 w9 k8 r3 s3 stride1 pad1".into(),
        evidence: "element 17 is 0.113 where the reference says 0.109; the largest error allowed is 0.0002".into(),
        lifted: false,
    }]);
    facts.load_demo = Reading::Known(load_demo());
    facts.warnings = vec!["the hypervisor gave 1.2 % of the time to others".into()];
    facts.conditions = vec!["mode adaptive, policy bandit, seed 7".into()];
    facts.commands = vec![
        "kernelwise learn --effort balanced".into(),
        "kernelwise demo load --format json".into(),
    ];
    facts
}

pub(crate) fn ratio(mean: f64, reach: f64) -> Option<Ratio> {
    Some(Ratio {
        mean,
        low: Some(mean / reach),
        high: Some(mean * reach),
    })
}

fn gains() -> Gains {
    let gain = |shapes, single: f64, rule: f64| Gain {
        shapes,
        single_best_over_choice: ratio(single, 1.0 + 0.25 / f64::from(shapes as u32).sqrt()),
        static_rule_over_choice: ratio(rule, 1.0 + 0.4 / f64::from(shapes as u32).sqrt()),
    };
    let list = [
        ("activation", gain(54, 1.023, 1.058)),
        ("conv2d", gain(58, 1.464, 1.436)),
        (
            "copy",
            Gain {
                single_best_over_choice: None,
                ..gain(52, 1.0, 2.157)
            },
        ),
        ("matmul", gain(59, 1.649, 1.135)),
        ("reduce", gain(54, 1.034, 1.033)),
        ("softmax", gain(52, 1.003, 1.011)),
        ("transpose", gain(52, 1.0, 1.067)),
    ];
    Gains {
        known_by: KnownBy::Measured,
        judged_on: "On the times that were learned from".into(),
        all: Some(gain(381, 1.131, 1.208)),
        operations: list.map(|(name, gain)| (name.to_owned(), gain)).into(),
    }
}

fn regret(rng: &mut impl Rng) -> Regret {
    let (mut points, mut excess_s, mut regret_s) = (Vec::new(), 0.0, 0.0);
    for step in 0..120_u32 {
        excess_s += 0.02 * rng.random::<f64>() * (-f64::from(step) / 25.0).exp();
        regret_s += 0.03 * rng.random::<f64>() * (-f64::from(step) / 40.0).exp();
        let calls = u64::from(step + 1) * 5_000;
        points.push(RegretPoint {
            calls,
            excess_s,
            budget_s: 0.1 + 0.00325 * f64::from(step + 1),
            regret_s,
        });
    }
    Regret {
        known_by: KnownBy::Measured,
        source: "One run of the selector with 600000 calls".into(),
        points,
    }
}

fn events() -> Vec<Event> {
    let event = |hours: u64, kind, severity, words: &str| Event {
        at_s: NOW_S - 3600 * hours,
        kind,
        severity,
        words: words.into(),
        during: "kernelwise learn".into(),
    };
    vec![
        event(
            70,
            EventKind::Anomaly,
            Severity::Minor,
            "one run of softmax f32 64x128 took 1.3 times as long as usual",
        ),
        event(
            52,
            EventKind::Drift,
            Severity::Major,
            "all kernels became 1.4 times slower together: the machine, not a kernel",
        ),
        event(47, EventKind::Drift, Severity::Minor, "and faster again"),
        event(
            30,
            EventKind::Trend,
            Severity::Minor,
            "matmul f32 512x512x512 creeps by 0.2 % an hour",
        ),
        event(
            9,
            EventKind::Anomaly,
            Severity::Critical,
            "cpu-conv2d-f32-winograd took 11 times as long, beyond what load explains",
        ),
        event(
            2,
            EventKind::Anomaly,
            Severity::Major,
            "copy f32 1000000 took 2.1 times as long while memory was short",
        ),
        event(
            1,
            EventKind::Correlation,
            Severity::Minor,
            "runs take longer the more processors others keep busy (rank correlation 0.52 over 128 runs)",
        ),
    ]
}

fn load_demo() -> LoadDemo {
    let phase = |stream: &str, phase: &str, rates: [f64; 3]| LoadPhase {
        stream: stream.into(),
        phase: phase.into(),
        best_fixed_calls_per_s: Some(rates[0]),
        library_default_calls_per_s: Some(rates[1]),
        kernelwise_calls_per_s: Some(rates[2]),
    };
    LoadDemo {
        known_by: KnownBy::Measured,
        phases: vec![
            phase("matmul f32 384x384x384", "idle", [1510.0, 1498.0, 1503.0]),
            phase(
                "matmul f32 384x384x384",
                "under load",
                [702.0, 540.0, 731.0],
            ),
            phase("conv2d, a layer of 56x56", "idle", [211.0, 208.0, 210.0]),
            LoadPhase {
                library_default_calls_per_s: None,
                ..phase("conv2d, a layer of 56x56", "under load", [96.0, 0.0, 104.0])
            },
        ],
    }
}
