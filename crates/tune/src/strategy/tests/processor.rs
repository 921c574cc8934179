//! The processor's prices, with made-up kernels on a made-up calibration.

use std::sync::Arc;

use kernelwise_backend::{Axis, Hint, Host, HostKernel, Knobs, OwnKernel, Space, knobs, prior};
use kernelwise_select::belief::Tally;
use kernelwise_select::forecast::Forecast;
use kernelwise_select::{Evidence as Known, Remembered};
use kernelwise_types::calibration::{AccessPattern, Bandwidth, ForkJoin, MemoryPlace, Peak};
use kernelwise_types::machine::Isa;
use kernelwise_types::units::{ByteRate, FlopRate};
use kernelwise_types::{
    Calibration, Candidate, DType, KernelSpec, Machine, Measured, Needs, Reading, Technique,
};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::*;

knobs! {
    struct Tiles {
        threads,
        tile,
    }
}

fn spec(id: &str, isa: Vec<Isa>, numerics: Numerics) -> KernelSpec {
    KernelSpec {
        id: id.parse().unwrap(),
        version: 1,
        technique: Technique::Blocked,
        numerics,
        needs: Needs {
            isa,
            ..Needs::default()
        },
    }
}

/// A kernel with threads and tiles that reaches a part of the roofline.
fn tiled(id: &str, percent: u8, isa: Vec<Isa>) -> Arc<dyn HostKernel> {
    let kernel = OwnKernel::new(spec(id, isa, Numerics::Reordered), |_, _, _| Ok(()))
        .with_space(|_, machine| {
            Space::of::<Tiles, 2>([Axis::threads(machine), Axis::new(64, [16, 32, 128])])
        })
        .with_hint(Hint::percent(percent));
    Arc::new(kernel)
}

/// Eight processors with AVX2.
fn machine() -> Machine {
    let mut machine = kernelwise_probe::machine().with_threads(8);
    machine.cpu.isa = vec![Isa::Sse2, Isa::Avx, Isa::Avx2, Isa::Fma];
    machine.cpu.model = Reading::Known("Example 3000".into());
    machine
}

fn kernels() -> Vec<Arc<dyn HostKernel>> {
    vec![
        tiled("cpu-matmul-f32-plain", 20, vec![Isa::Sse2]),
        tiled("cpu-matmul-f32-wide", 80, vec![Isa::Avx2]),
        tiled("cpu-matmul-f32-wider", 95, vec![Isa::Avx512f]),
    ]
}

fn measured<T: Copy>(value: T) -> Measured<T> {
    Measured {
        value,
        low: value,
        high: value,
        samples: 1,
    }
}

/// 100 GFLOP/s a thread, 20 GB/s for all of them, 3 us to wake any.
fn calibration() -> Calibration {
    let counts = [1, 2, 4, 8];
    let peak = |threads: u32| Peak {
        dtype: DType::F32,
        threads,
        isa: None,
        rate: measured(FlopRate::new(1e11 * f64::from(threads)).unwrap()),
    };
    let bandwidths = MemoryPlace::ALL.iter().flat_map(|&place| {
        [AccessPattern::Copy, AccessPattern::Read]
            .into_iter()
            .flat_map(move |pattern| {
                counts.map(|threads| Bandwidth {
                    place,
                    pattern,
                    threads,
                    working_set_bytes: 1,
                    rate: measured(ByteRate::new(2e10).unwrap()),
                })
            })
    });
    Calibration {
        peaks: counts.map(peak).to_vec(),
        bandwidths: bandwidths.collect(),
        handed_over: Vec::new(),
        fork_joins: vec![
            ForkJoin {
                threads: 2,
                cost: measured(ns(3000.0)),
            },
            ForkJoin {
                threads: 8,
                cost: measured(ns(3000.0)),
            },
        ],
        timer: measured(ns(10.0)),
        skipped: Vec::new(),
    }
}

fn cost() -> CpuCost {
    CpuCost::new(Host::new(machine(), kernels()).unwrap()).with_calibration(calibration())
}

fn ask(strategy: &Strategy<CpuCost>, on: &Workload, state: &SystemState) -> Recommendation {
    strategy
        .tune_for_workload(on, state, &Constraints::default())
        .unwrap()
}

fn threads(said: &Recommendation) -> u64 {
    said.best.choice.params.get("threads").unwrap()
}

fn busy(processors: usize) -> SystemState {
    let share = |p| Share::new(if p < processors { 1.0 } else { 0.0 }).unwrap();
    SystemState {
        per_cpu_utilisation: Reading::Known((0..8).map(share).collect()),
        ..quiet()
    }
}

#[test]
fn threads_follow_size_and_load() {
    let strategy = Strategy::new(cost());
    let at = |n, state: &SystemState| threads(&ask(&strategy, &workload(n), state));
    assert_eq!(at(1024, &quiet()), 8);
    assert_eq!(
        at(8, &quiet()),
        1,
        "waking threads takes longer than the work"
    );
    // 2 * 96^3 / 100 GFLOP/s are 18 us: worth 3 us of waking.
    assert!(at(96, &quiet()) > 1);
    assert_eq!(
        (at(1024, &busy(3)), at(1024, &busy(7)), at(1024, &busy(8))),
        (5, 1, 1)
    );
    let queue = SystemState {
        run_queue: Reading::Known(7),
        ..quiet()
    };
    assert_eq!(at(1024, &queue), 2, "six others want to run");
    let said = ask(&strategy, &workload(1024), &busy(3))
        .reasoning
        .join("\n");
    assert!(said.contains("3 processors are in use"), "{said}");
}

knobs! {
    struct Pieces {
        threads,
        schedule,
    }
}

/// Where others use the machine, threads take pieces as they get free.
#[test]
fn scheduling_follows_load() {
    let spec = spec("cpu-copy-f32-shared", vec![], Numerics::Reordered);
    let kernel = OwnKernel::new(spec, |_, _, _| Ok(())).with_space(|_, machine| {
        Space::of::<Pieces, 2>([Axis::threads(machine), Axis::switch(false)])
            .with_constraint("threads > 1 or schedule = 0", |knobs: Pieces| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    });
    let mut calibration = calibration();
    for bandwidth in &mut calibration.bandwidths {
        let rate = 2e10 * f64::from(bandwidth.threads);
        bandwidth.rate = measured(ByteRate::new(rate).unwrap());
    }
    let host = Host::new(machine(), [Arc::new(kernel) as Arc<dyn HostKernel>]).unwrap();
    let strategy = Strategy::new(CpuCost::new(host).with_calibration(calibration));
    let on = "copy f32 10000000".parse().unwrap();
    let said = |state: &SystemState| ask(&strategy, &on, state).best.choice.params.to_string();
    assert_eq!(said(&quiet()), "schedule=0,threads=8");
    assert_eq!(said(&busy(3)), "schedule=1,threads=5");
    assert_eq!(
        said(&busy(7)),
        "schedule=0,threads=1",
        "nobody to share with"
    );
}

proptest! {
    /// Never more threads than nobody uses, never a time above the calibrated peak, never predicted slower than the kernel's default.
    #[test]
    fn recommendations_keep_to_machine_and_default(
        m in 1u64..2000, k in 1u64..2000, n in 1u64..2000, in_use in 0usize..12,
    ) {
        let strategy = Strategy::new(cost());
        let on: Workload = format!("matmul f32 {m}x{k}x{n}").parse().unwrap();
        let said = ask(&strategy, &on, &busy(in_use));
        let free = 8u64.saturating_sub(in_use as u64).max(1);
        for ranked in std::iter::once(&said.best).chain(&said.alternatives) {
            let threads = ranked.choice.params.get("threads").unwrap();
            prop_assert!(threads <= free);
            let (time, flops) = (ranked.expected.time_ns, on.cost().unwrap().flops);
            prop_assert!(time.get() > 0.0 && time.get().is_finite());
            prop_assert!(flops.per(time).unwrap().get() <= 1.0001e11 * threads as f64);
        }
        let default = Choice {
            kernel: said.best.choice.kernel.clone(),
            params: "threads=1,tile=64".parse().unwrap(),
        };
        let default = strategy.predict(&on, &default).unwrap();
        prop_assert!(said.best.expected.time_ns <= default.time_ns);
        // Of settings that no formula tells apart, the default.
        prop_assert_eq!(said.best.choice.params.get("tile"), Some(64));
        // A time that cannot be, of one choice, makes none faster than the peak.
        let absurd = Feedback::ran(&said, &on, ns(said.best.expected.time_ns.get() / 1000.0));
        strategy.feedback(&absurd).unwrap();
        let again = ask(&strategy, &on, &busy(in_use));
        for ranked in std::iter::once(&again.best).chain(&again.alternatives) {
            let threads = ranked.choice.params.get("threads").unwrap();
            for time in [ranked.expected.time_ns, ranked.expected.interval_ns.low()] {
                let rate = on.cost().unwrap().flops.per(time).unwrap();
                prop_assert!(rate.get() <= 1.0001e11 * threads as f64, "{rate}");
            }
        }
    }

    /// Twice the work never takes less.
    #[test]
    fn prices_grow_with_the_work(n in 1u64..600) {
        let cost = cost();
        for tried in cost.settings(&workload(n), &Situation::default(), Numerics::Reordered).unwrap() {
            let at = |n| cost.price(&workload(n), &tried).unwrap().time_ns;
            prop_assert!(at(n) <= at(2 * n));
        }
    }
}

#[test]
fn vectors_are_no_wider_than_the_processor_has() {
    let kernel = |isa: &[Isa]| {
        let mut machine = machine();
        machine.cpu.isa = isa.to_vec();
        let all = kernels()
            .into_iter()
            .chain([tiled("cpu-matmul-f32-neon", 80, vec![Isa::Neon])]);
        let cost = CpuCost::new(Host::new(machine, all).unwrap()).with_calibration(calibration());
        let said = ask(&Strategy::new(cost), &workload(512), &quiet());
        (
            said.best.choice.kernel.unwrap().to_string(),
            said.best.expected.words.join(" "),
        )
    };
    assert_eq!(
        kernel(&[Isa::Sse2, Isa::Avx2]),
        (
            "cpu-matmul-f32-wide".into(),
            "256-bit vectors (avx2)".into()
        )
    );
    assert_eq!(
        kernel(&[Isa::Sse2, Isa::Avx2, Isa::Avx512f]),
        (
            "cpu-matmul-f32-wider".into(),
            "512-bit vectors (avx512f)".into()
        )
    );
    assert_eq!(
        kernel(&[Isa::Neon]),
        (
            "cpu-matmul-f32-neon".into(),
            "128-bit vectors (neon)".into()
        )
    );
    // Without any there is still the reference.
    assert_eq!(
        kernel(&[]),
        ("cpu-matmul-f32-reference".into(), String::new())
    );
}

/// A tile that was measured to be faster than the default is recommended; one that was slower is not.
#[test]
fn tiles_follow_what_was_measured() {
    let strategy = Strategy::new(cost());
    let on = workload(512);
    let said = ask(&strategy, &on, &quiet());
    let time = said.best.expected.time_ns.get();
    let tell = |tile: u64, factor: f64| {
        let params = Params::new()
            .with("threads", 8)
            .unwrap()
            .with("tile", tile)
            .unwrap();
        let choice = Choice {
            kernel: said.best.choice.kernel.clone(),
            params,
        };
        strategy
            .feedback(&ran(&strategy, &on, choice, time * factor))
            .unwrap();
    };
    let tile = || {
        ask(&strategy, &on, &quiet())
            .best
            .choice
            .params
            .get("tile")
            .unwrap()
    };
    tell(64, 1.3);
    assert_eq!(tile(), 64, "a default that was timed stays");
    tell(16, 1.6);
    tell(32, 1.0);
    assert_eq!(tile(), 32);
    assert_eq!(
        threads(&ask(&strategy, &on, &busy(4))),
        4,
        "fewer processors, fewer threads"
    );
}

/// What other numbers of threads took says nothing about tiles that nobody timed.
#[test]
fn tiles_that_nobody_timed_are_like_the_usual_ones_that_were() {
    let strategy = Strategy::new(cost());
    let on = workload(512);
    let kernel = ask(&strategy, &on, &quiet()).best.choice.kernel;
    let choice = |threads: u64, tile: u64| Choice {
        kernel: kernel.clone(),
        params: Params::new()
            .with("threads", threads)
            .and_then(|params| params.with("tile", tile))
            .unwrap(),
    };
    let price = |choice: &Choice| strategy.predict(&on, choice).unwrap().time_ns.get();
    // As fast on one thread as on eight, so that prices are far too low for eight and too high for one.
    let time = 3.0 * price(&choice(8, 64));
    for _ in 0..5 {
        for threads in [1, 8] {
            let told = ran(&strategy, &on, choice(threads, 64), time);
            strategy.feedback(&told).unwrap();
        }
    }
    let said = ask(&strategy, &on, &quiet());
    assert_eq!(said.best.choice.params.get("tile"), Some(64), "{said:?}");
    let (usual, other) = (
        strategy.predict(&on, &choice(8, 64)).unwrap(),
        strategy.predict(&on, &choice(8, 32)).unwrap(),
    );
    assert!(other.likely_ns >= usual.likely_ns && other.confidence < usual.confidence);
}

#[test]
fn bounds_are_told_apart() {
    let machine = machine();
    let own = |id: &str| {
        let kernel = OwnKernel::new(spec(id, vec![], Numerics::Reordered), |_, _, _| Ok(()));
        Arc::new(kernel) as Arc<dyn HostKernel>
    };
    let all = kernels().into_iter().chain([own("cpu-copy-f32-own")]);
    let cost = CpuCost::new(Host::new(machine, all).unwrap()).with_calibration(calibration());
    let strategy = Strategy::new(cost);
    let bound = |text: &str| {
        ask(&strategy, &text.parse().unwrap(), &quiet())
            .best
            .expected
            .bound
    };
    assert_eq!(bound("matmul f32 1024x1024x1024"), Bound::Compute);
    assert_eq!(bound("matmul f32 4096x1x4096"), Bound::Memory);
    assert_eq!(bound("copy f32 10000000"), Bound::Memory);
    assert_eq!(bound("copy f32 16"), Bound::Latency);
    assert_eq!(bound("matmul f32 4x4x4"), Bound::Latency);
}

/// A call that is bound by its start is worth joining with others: done in one, a part of it takes less.
#[test]
fn advice_to_join_calls_pays() {
    let mut all = Coordinator::new(0);
    all.add(Arc::new(Strategy::new(cost())), Link::Here)
        .unwrap();
    let place = |on: &str| {
        all.recommend(&on.parse().unwrap(), &quiet(), &Constraints::default())
            .unwrap()
    };
    let alone = place("matmul f32 8x8x8");
    assert!(
        alone
            .advice
            .join("\n")
            .contains("put several such calls into one")
    );
    let joined = place("matmul f32 512x8x8");
    assert!(joined.total_ns.get() / 64.0 < 0.9 * alone.total_ns.get());
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let cost = cost();
    let on = workload(64);
    let refused = |kernel: Option<&str>, params: &str| {
        let choice = Choice {
            kernel: kernel.map(|id| id.parse().unwrap()),
            params: params.parse().unwrap(),
        };
        let error = cost.price(&on, &choice).unwrap_err();
        (error.limit, error.why)
    };
    let wide = Some("cpu-matmul-f32-wide");
    let rows = [
        (None, "threads=1", Limit::Parameters, "name the kernel"),
        (
            Some("cpu-matmul-f32-none"),
            "",
            Limit::Operation,
            "no kernel `cpu-matmul-f32-none`",
        ),
        (
            wide,
            "threads=0,tile=64",
            Limit::Parameters,
            "`threads=0` is not offered",
        ),
        (
            wide,
            "threads=9,tile=64",
            Limit::Parameters,
            "`threads=9` is not offered",
        ),
        (
            wide,
            "threads=2,unroll=4",
            Limit::Parameters,
            "no parameter `unroll`",
        ),
        (
            wide,
            "threads=2",
            Limit::Parameters,
            "name all parameters of `cpu-matmul-f32-wide`: threads=2,tile=64",
        ),
        (
            Some("cpu-matmul-f32-wider"),
            "threads=1,tile=64",
            Limit::Operation,
            "needs avx512f",
        ),
    ];
    for (kernel, params, limit, words) in rows {
        let (named, why) = refused(kernel, params);
        assert!(named == limit && why.contains(words), "{why}");
    }
    let strategy = Strategy::new(cost);
    let exact = Constraints {
        numerics: Numerics::BitIdentical,
        ..Constraints::default()
    };
    // The reference is exact.
    let said = strategy.tune_for_workload(&on, &quiet(), &exact).unwrap();
    assert_eq!(
        said.best.choice.kernel.unwrap().as_str(),
        "cpu-matmul-f32-reference"
    );
    let custom = "custom.mine f32 8".parse().unwrap();
    let error = strategy
        .tune_for_workload(&custom, &quiet(), &exact)
        .unwrap_err();
    let TuneError::Infeasible(Infeasible { limit, why }) = error else {
        panic!("{error:?}")
    };
    assert!(
        limit == Limit::Operation && why.contains("no kernel for custom.mine"),
        "{why}"
    );
}

/// An operation whose work is nobody's to know is priced with as much doubt, and learned like any other.
#[test]
fn custom_operations_are_learned() {
    let spec = spec("cpu-custom.mine-f32-own", vec![], Numerics::Reordered);
    let kernel = OwnKernel::new(spec, |_, _, _| Ok(()));
    let host = Host::new(machine(), [Arc::new(kernel) as Arc<dyn HostKernel>]).unwrap();
    let strategy = Strategy::new(CpuCost::new(host).with_calibration(calibration()));
    let on: Workload = "custom.mine f32 1000".parse().unwrap();
    let said = ask(&strategy, &on, &quiet());
    let (low, high) = (
        said.best.expected.interval_ns.low(),
        said.best.expected.interval_ns.high(),
    );
    assert!(high.get() / low.get() > 1e3);
    for _ in 0..20 {
        strategy
            .feedback(&Feedback::ran(&said, &on, ns(7e6)))
            .unwrap();
    }
    let now = strategy
        .predict(&on, &said.best.choice)
        .unwrap()
        .time_ns
        .get();
    assert!((now / 7e6 - 1.0).abs() < 0.2, "{now}");
}

/// Without a calibration there are still prices, and they say what they are.
#[test]
fn an_uncalibrated_machine_says_so() {
    let strategy = Strategy::new(CpuCost::new(Host::new(machine(), kernels()).unwrap()));
    let said = ask(&strategy, &workload(512), &quiet());
    let Evidence::Prior { source, .. } = &said.best.expected.evidence else {
        panic!("{:?}", said.best.expected.evidence)
    };
    assert!(source.contains("not calibrated"), "{source}");
    let known = Strategy::new(cost());
    let sure = |strategy: &Strategy<CpuCost>| {
        ask(strategy, &workload(512), &quiet())
            .best
            .expected
            .confidence
    };
    assert!(sure(&strategy) < sure(&known));
    assert_eq!(said.best.expected.power, None, "nobody measured it");
}

/// Memory is every operand and the scratch.
#[test]
fn memory_is_the_sum_of_real_buffers() {
    let spec = spec("cpu-matmul-f32-packs", vec![], Numerics::Reordered);
    let kernel = OwnKernel::new(spec, |_, _, _| Ok(())).with_workspace(|_, _| Bytes(12_345));
    let host = Host::new(machine(), [Arc::new(kernel) as Arc<dyn HostKernel>]).unwrap();
    let said = ask(
        &Strategy::new(CpuCost::new(host)),
        &"matmul f32 10x20x30".parse().unwrap(),
        &quiet(),
    );
    assert_eq!(
        said.best.expected.memory,
        Bytes(4 * (200 + 600 + 300) + 12_345)
    );
}

/// Models of what was measured elsewhere take the place of hints: a kernel that lies about itself is not recommended.
#[test]
fn forecasts_outweigh_hints() {
    let (machine, calibration, kernels) = (machine(), calibration(), kernels());
    let mut evidence = Vec::new();
    for n in (100..400).step_by(20) {
        let on = workload(n);
        // The plain one takes a third of what its hint says, the wide one nine times as long.
        for (kernel, factor) in kernels.iter().zip([0.33, 9.0]) {
            for threads in [1, 8] {
                let setting = Tiles { threads, tile: 64 }.setting();
                let expected =
                    prior::estimate(kernel.as_ref(), &on, &setting, &machine, &calibration);
                let expected = expected.time().unwrap().get();
                evidence.push(Known {
                    of: Remembered {
                        workload: on.clone(),
                        candidate: Candidate {
                            kernel: kernel.spec().id.clone(),
                            params: format!("threads={threads},tile=64").parse().unwrap(),
                        },
                        version: 1,
                        tally: Tally::of(9, 9.0, (expected * factor).ln(), 0.02).unwrap(),
                    },
                    threads,
                    expected_ns: Some(expected),
                    away: None,
                    slower: None,
                });
            }
        }
    }
    let on = workload(290);
    let hinted = Strategy::new(cost());
    let wide = ask(&hinted, &on, &quiet()).best;
    assert_eq!(wide.choice.kernel.unwrap().as_str(), "cpu-matmul-f32-wide");
    let modelled = Strategy::new(cost().with_forecast(Forecast::fit(&evidence, 1)));
    let said = ask(&modelled, &on, &quiet());
    assert_eq!(
        said.best.choice.kernel.unwrap().as_str(),
        "cpu-matmul-f32-plain"
    );
    let Evidence::Model { source, .. } = &said.best.expected.evidence else {
        panic!("{:?}", said.best.expected.evidence)
    };
    assert!(source.contains("15 workloads"), "{source}");
    let truth = {
        let setting = Tiles {
            threads: 8,
            tile: 64,
        }
        .setting();
        let time = prior::estimate(kernels[0].as_ref(), &on, &setting, &machine, &calibration);
        0.33 * time.time().unwrap().get()
    };
    let said = &said.best.expected;
    assert!(said.interval_ns.low().get() < truth && truth < said.interval_ns.high().get());
    assert!(said.confidence > wide.expected.confidence);
}

/// What tuning found may be far from every default: it is considered, and what was measured of it is known.
#[test]
fn what_was_measured_is_among_the_choices() {
    let on = workload(64);
    let measured = Choice {
        kernel: Some("cpu-matmul-f32-wide".parse().unwrap()),
        params: "threads=3,tile=390".parse().unwrap(),
    };
    let kept = Kept {
        samples: 40,
        mean_ln: 1000f64.ln(),
        sd_ln: 0.01,
    };
    let wide: Arc<dyn HostKernel> = Arc::new(
        OwnKernel::new(
            spec("cpu-matmul-f32-wide", Vec::new(), Numerics::Reordered),
            |_, _, _| Ok(()),
        )
        .with_space(|_, _| {
            let every: Vec<u32> = (1..=400).collect();
            Space::of::<Tiles, 2>([Axis::new(1, [2, 3, 4]), Axis::new(64, every)])
        }),
    );
    let offered = |cost: &CpuCost| {
        let all = cost.settings(&on, &Situation::default(), Numerics::Reordered);
        all.unwrap().contains(&measured)
    };
    let host = || Host::new(machine(), [Arc::clone(&wide)]).unwrap();
    assert!(!offered(&CpuCost::new(host())), "there are too many");
    let cost = CpuCost::new(host()).with_known([measured.clone()]);
    assert!(offered(&cost));
    let strategy = Strategy::new(cost);
    strategy.recall(&on, &measured, &kept).unwrap();
    let said = ask(&strategy, &on, &busy(0));
    assert_eq!(said.best.choice, measured);
    assert_eq!(
        said.best.expected.evidence,
        Evidence::Measured { samples: 40 }
    );
    // But not on threads that others use.
    assert_ne!(ask(&strategy, &on, &busy(6)).best.choice, measured);
}
