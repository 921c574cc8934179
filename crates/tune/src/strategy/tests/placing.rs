//! Which device, and answers that are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelwise_types::units::ByteRate;
use kernelwise_types::{Reading, SystemState};
use proptest::prelude::{
    Just, Strategy as _, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::*;

type Made = Arc<Strategy<Landscape>>;

fn host(times: &[f64]) -> Made {
    Arc::new(Landscape::of(times).named(Backend::Cpu, "host").strategy())
}

fn gpu(name: &str, times: &[f64]) -> Made {
    Arc::new(Landscape::of(times).named(Backend::Cuda, name).strategy())
}

/// 64x64x64 in f32 are 3 x 16 KiB: at 1 GB/s and without latency 49 us.
fn copied(bytes_per_second: f64, latency_ns: f64) -> Link {
    Link::Copied {
        bandwidth: ByteRate::new(bytes_per_second).unwrap(),
        latency_ns: ns(latency_ns),
    }
}

fn together(capacity: usize, devices: &[(Made, Link)]) -> Coordinator {
    let mut all = Coordinator::new(capacity);
    for (strategy, link) in devices {
        all.add(Arc::clone(strategy) as Arc<dyn TuningStrategy>, *link)
            .unwrap();
    }
    all
}

fn place(all: &Coordinator, constraints: &Constraints) -> Result<Arc<Placement>, TuneError> {
    all.recommend(&workload(64), &quiet(), constraints)
}

fn device(placement: &Placement) -> &str {
    &placement.recommendation.device
}

fn calls(calls: u64) -> Constraints {
    Constraints {
        calls,
        ..Constraints::default()
    }
}

#[test]
fn the_way_to_a_device_counts() {
    let devices = |link| {
        [
            (host(&[50_000.0]), Link::Here),
            (gpu("fast", &[5000.0]), link),
        ]
    };
    // 49152 bytes: 49 us over the slow link, 5 over the fast one.
    let slow = place(&together(0, &devices(copied(1e9, 0.0))), &calls(1)).unwrap();
    assert_eq!((device(&slow), slow.transfer_ns), ("host", ns(0.0)));
    assert_eq!(slow.total_ns, ns(50_000.0));
    let passed = &slow.passed_over[0];
    assert!((passed.total_ns.unwrap().get() - 54_152.0).abs() < 1e-6);
    assert!(passed.why.contains("on the way"), "{}", passed.why);
    let fast = place(&together(0, &devices(copied(1e10, 100.0))), &calls(1)).unwrap();
    assert_eq!(device(&fast), "fast");
    assert!((fast.total_ns.get() - (5000.0 + 4915.2 + 200.0)).abs() < 1e-6);
    assert_eq!(fast.passed_over[0].device, "host");
    // A link over which nothing gets is no way.
    let cut = place(&together(0, &devices(copied(0.0, 0.0))), &calls(1)).unwrap();
    assert_eq!((device(&cut), cut.passed_over[0].total_ns), ("host", None));
}

#[test]
fn what_is_compiled_once_pays_after_enough_calls() {
    let compiled = Landscape::of(&[1000.0]).with(|_, point| point.compile_ns = 1e6);
    let compiled = Arc::new(compiled.named(Backend::WebGpu, "browser").strategy());
    let all = together(0, &[(host(&[3000.0]), Link::Here), (compiled, Link::Here)]);
    let at = |count| {
        let placement = place(&all, &calls(count)).unwrap();
        device(&placement).to_owned()
    };
    assert_eq!(
        [at(1), at(499), at(501), at(1_000_000)],
        ["host", "host", "browser", "browser"]
    );
}

/// A latency that the way alone uses up leaves a device out; what is left of it is what the device has to keep.
#[test]
fn limits_include_the_way() {
    let all = together(0, &[(gpu("far", &[1000.0]), copied(1e9, 0.0))]);
    let within = |time: f64| {
        let constraints = Constraints {
            latency_ns: Some(ns(time)),
            ..Constraints::default()
        };
        place(&all, &constraints).map(|placement| placement.total_ns.get())
    };
    assert!((within(50_200.0).unwrap() - 50_152.0).abs() < 1e-6);
    for short in [50_100.0, 40_000.0] {
        let Err(TuneError::Infeasible(error)) = within(short) else {
            panic!("{short} is not enough")
        };
        assert_eq!(error.limit, Limit::Latency);
    }
    let energy = Constraints {
        energy_j: Some(1e3),
        ..Constraints::default()
    };
    let Err(TuneError::Infeasible(error)) = place(&all, &energy) else {
        panic!("nobody knows what the way takes")
    };
    assert_eq!(error.limit, Limit::Energy);
}

#[test]
fn nobody_to_ask_is_an_error_and_so_are_two_of_one_name() {
    let none = Coordinator::new(4);
    assert_eq!(place(&none, &calls(1)), Err(TuneError::NoDevice));
    let mut twice = together(4, &[(host(&[1.0]), Link::Here)]);
    let error = twice.add(host(&[2.0]), Link::Here).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there are two strategies for cpu `host`: give one device another name"
    );
}

/// Where no device can, all of them say why.
#[test]
fn every_device_says_why_not() {
    let all = together(
        4,
        &[
            (host(&[1000.0]), Link::Here),
            (gpu("gpu", &[900.0]), Link::Here),
        ],
    );
    let short = Constraints {
        latency_ns: Some(ns(10.0)),
        ..Constraints::default()
    };
    let Err(TuneError::Infeasible(error)) = place(&all, &short) else {
        panic!("10 ns are not enough")
    };
    assert_eq!(error.limit, Limit::Latency);
    let words = [
        "cpu host (latency)",
        "cuda gpu (latency)",
        "10.0 ns are allowed",
    ];
    assert!(
        words.iter().all(|word| error.why.contains(word)),
        "{}",
        error.why
    );
    // Kept like any other answer.
    assert_eq!(place(&all, &short), Err(TuneError::Infeasible(error)));
    assert_eq!(all.statistics().hits, 1);
}

/// A device that is added later is asked, whatever was kept.
#[test]
fn a_new_device_makes_old_answers_old() {
    let mut all = together(4, &[(host(&[1000.0]), Link::Here)]);
    assert_eq!(device(&place(&all, &calls(1)).unwrap()), "host");
    all.add(gpu("new", &[10.0]), Link::Here).unwrap();
    assert_eq!(device(&place(&all, &calls(1)).unwrap()), "new");
}

proptest! {
    /// Whatever the order in which devices are added, the answer is the same, ties included.
    #[test]
    fn the_order_of_devices_does_not_matter(
        times in prop::collection::vec(1u32..4, 5),
        order in Just((0..5usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let made: Vec<(Made, Link)> = times.iter().enumerate().map(|(i, time)| {
            let times = [f64::from(*time) * 1000.0];
            match i {
                0 => (host(&times), Link::Here),
                _ => (gpu(&format!("gpu {i}"), &times), Link::Here),
            }
        }).collect();
        let shuffled: Vec<_> = order.iter().map(|i| made[*i].clone()).collect();
        let (one, other) = (together(0, &made), together(0, &shuffled));
        prop_assert_eq!(place(&one, &calls(1)), place(&other, &calls(1)));
        let least = times.iter().min().unwrap();
        prop_assert_eq!(place(&one, &calls(1)).unwrap().total_ns.get(), f64::from(*least) * 1000.0);
    }
}

/// One thing that may happen to a coordinator.
#[derive(Debug, Clone)]
enum Step {
    Ask {
        size: u64,
        state: usize,
        constraints: usize,
    },
    Tell {
        device: bool,
        size: u64,
        x: u64,
        time: f64,
    },
    Fail {
        x: u64,
        size: u64,
    },
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    let ask = (1u64..4, 0usize..7, 0usize..9).prop_map(|(size, state, constraints)| Step::Ask {
        size,
        state,
        constraints,
    });
    let tell =
        (any::<bool>(), 1u64..4, 0u64..3, 100.0..1e5f64).prop_map(|(device, size, x, time)| {
            Step::Tell {
                device,
                size,
                x,
                time,
            }
        });
    let fail = (1u64..3, 1u64..4).prop_map(|(x, size)| Step::Fail { x, size });
    prop::collection::vec(prop_oneof![12 => ask, 2 => tell, 1 => fail], 1..80)
}

/// States and limits that differ from each other in one thing each.
fn states() -> Vec<SystemState> {
    let changes: [fn(&mut SystemState); 7] = [
        |_| {},
        |s| s.throttling = Reading::Known(true),
        |s| s.memory_available = Reading::Known(Bytes(600)),
        |s| s.temperature = Reading::Known(kernelwise_types::units::Celsius::new(80.0).unwrap()),
        |s| s.power_mode = Reading::Known(kernelwise_types::state::PowerMode::PowerSave),
        |s| s.run_queue = Reading::Known(3),
        |s| {
            s.battery = Reading::Known(kernelwise_types::state::Battery {
                charge: Share::new(0.5).unwrap(),
                discharging: true,
            });
        },
    ];
    let made = changes.into_iter().map(|change| {
        let mut state = quiet();
        change(&mut state);
        state
    });
    made.collect()
}

fn limits() -> Vec<Constraints> {
    let changes: [fn(&mut Constraints); 9] = [
        |_| {},
        |c| c.memory = Some(Bytes(700)),
        |c| c.power = Some(Watts::new(50.0).unwrap()),
        |c| c.temperature = Some(kernelwise_types::units::Celsius::new(75.0).unwrap()),
        |c| c.latency_ns = Some(ns(60_000.0)),
        |c| c.throughput_per_s = Some(5e4),
        |c| {
            c.real_time = Some(RealTime {
                period_ns: ns(1e6),
                deadline_ns: ns(2e5),
            });
        },
        |c| c.numerics = Numerics::ReducedPrecision,
        |c| c.calls = 1000,
    ];
    let made = changes.into_iter().map(|change| {
        let mut constraints = Constraints::default();
        change(&mut constraints);
        constraints
    });
    made.collect()
}

fn varied(landscape: Landscape) -> Landscape {
    landscape.with(|x, point| {
        point.memory = [1000, 650, 500][x];
        point.power = [Some(100.0), Some(40.0), None][x];
        point.units = 3 - x as u32;
        point.compile_ns = [1e5, 0.0, 0.0][x];
        point.numerics = [
            Numerics::Reordered,
            Numerics::Reordered,
            Numerics::ReducedPrecision,
        ][x];
    })
}

proptest! {
    /// What is kept is what would be said anew, for any requests and feedback in any order; there is never more kept than there
    /// is room for; and the hit rate is hits over requests.
    #[test]
    fn kept_answers_are_those_that_would_be_given(capacity in 0usize..5, steps in steps()) {
        let cpu: Made = Arc::new(varied(Landscape::of(&[30_000.0, 32_000.0, 28_000.0])).named(Backend::Cpu, "host").strategy());
        let cuda: Made = Arc::new(varied(Landscape::of(&[3000.0, 2500.0, 2000.0])).named(Backend::Cuda, "gpu").strategy());
        let devices = [(Arc::clone(&cpu), Link::Here), (Arc::clone(&cuda), copied(2e9, 100.0))];
        let (kept, anew) = (together(capacity, &devices), together(0, &devices));
        let (states, limits) = (states(), limits());
        let mut asked = 0;
        for step in steps {
            match step {
                Step::Ask { size, state, constraints } => {
                    asked += 1;
                    let on = workload(32 * size);
                    let ask = |all: &Coordinator| all.recommend(&on, &states[state], &limits[constraints]);
                    prop_assert_eq!(ask(&kept), ask(&anew));
                    prop_assert!(kept.kept() <= capacity);
                }
                Step::Tell { device, size, x, time } => {
                    // Through the coordinator, or past it.
                    let feedback = ran(if device { &*cuda } else { &*cpu }, &workload(32 * size), at(x), time);
                    if device { kept.feedback(&feedback).unwrap() } else { cpu.feedback(&feedback).unwrap() }
                }
                Step::Fail { x, size } => {
                    let failed = Feedback {
                        outcome: Outcome::Failed { why: "crash".into() },
                        ..ran(&*cuda, &workload(32 * size), at(x), 1.0)
                    };
                    kept.feedback(&failed).unwrap();
                }
            }
        }
        let (figures, fresh) = (kept.statistics(), anew.statistics());
        prop_assert_eq!((figures.requests, fresh.requests, fresh.hits), (asked, asked, 0));
        let rate = figures.hit_rate.map(Share::get);
        prop_assert_eq!(rate, (asked > 0).then(|| figures.hits as f64 / asked as f64));
    }
}

#[test]
fn hits_are_counted_and_a_hot_request_stays() {
    let all = together(3, &[(host(&[1000.0]), Link::Here)]);
    for n in 1..=50 {
        all.recommend(&workload(8), &quiet(), &calls(1)).unwrap();
        all.recommend(&workload(8 + n), &quiet(), &calls(1))
            .unwrap();
    }
    let figures = all.statistics();
    // The hot one was missed once, each of the others once.
    assert_eq!((figures.requests, figures.hits, all.kept()), (100, 49, 3));
    assert_eq!(figures.hit_rate.unwrap().get(), 0.49);
    assert_eq!(Coordinator::new(3).statistics(), Statistics::default());
}

#[test]
fn feedback_goes_to_its_device_and_changes_the_answer() {
    let (cpu, cuda) = (host(&[1000.0]), gpu("gpu", &[900.0]));
    let all = together(
        8,
        &[
            (Arc::clone(&cpu), Link::Here),
            (Arc::clone(&cuda), Link::Here),
        ],
    );
    let on = workload(64);
    let first = place(&all, &calls(1)).unwrap();
    assert_eq!(device(&first), "gpu");
    for _ in 0..3 {
        let slow = Feedback::ran(&first.recommendation, &on, ns(5000.0));
        all.feedback(&slow).unwrap();
    }
    assert_eq!((cpu.revision(), cuda.revision()), (0, 3));
    assert_eq!(device(&place(&all, &calls(1)).unwrap()), "host");
    let stray = Feedback {
        device: "lost".into(),
        ..Feedback::ran(&first.recommendation, &on, ns(1.0))
    };
    let error = all.feedback(&stray).unwrap_err();
    assert!(matches!(error, TuneError::Unknown { .. }), "{error}");
}

#[test]
fn figures_of_placements_follow_from_the_requests() {
    let all = together(
        2,
        &[
            (host(&[1000.0]), Link::Here),
            (gpu("gpu", &[100.0]), copied(1e10, 0.0)),
        ],
    );
    let impossible = Constraints {
        latency_ns: Some(ns(0.1)),
        ..Constraints::default()
    };
    for n in [64, 64, 128, 512, 512, 64] {
        let placement = all.recommend(&workload(n), &quiet(), &calls(1)).unwrap();
        if n == 512 {
            let time = placement.recommendation.best.expected.time_ns;
            all.feedback(&Feedback::ran(
                &placement.recommendation,
                &workload(n),
                time,
            ))
            .unwrap();
        }
    }
    assert!(place(&all, &impossible).is_err());
    let (mut requests, mut hits, mut refused) = (0, 0, 0);
    let (mut placed, mut fed) = (
        BTreeMap::<String, u64>::new(),
        BTreeMap::<String, u64>::new(),
    );
    for request in all.requests() {
        match request {
            Request::Fed { backend, device } => {
                *fed.entry(format!("{backend} {device}")).or_default() += 1
            }
            Request::Placed { hit, device, .. } => {
                requests += 1;
                hits += u64::from(hit);
                match device {
                    Some((backend, device)) => {
                        *placed.entry(format!("{backend} {device}")).or_default() += 1
                    }
                    None => refused += 1,
                }
            }
        }
    }
    let figures = all.statistics();
    assert_eq!(
        (figures.requests, figures.hits, figures.refused),
        (requests, hits, refused)
    );
    assert_eq!(
        (requests, hits, refused),
        (7, 1, 1),
        "feedback makes answers old"
    );
    assert_eq!((&figures.placed, &figures.fed), (&placed, &fed));
    assert_eq!((placed.len(), fed.values().sum::<u64>()), (2, 2));
}

/// Devices and choices whose descriptions are wrong: calls that follow recommendations and tell their times get faster.
#[test]
fn following_recommendations_makes_calls_faster() {
    let (mut first, mut last, mut least) = (0.0, 0.0, 0.0);
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let prices: Vec<f64> = (0..12)
            .map(|_| 1000.0 * (0.3 * dice.normal()).exp())
            .collect();
        let cpu = host(&prices[..6]);
        let cuda = gpu("gpu", &prices[6..]);
        let truth: Vec<f64> = prices
            .iter()
            .map(|t| t * (0.5 * dice.normal()).exp())
            .collect();
        let all = together(16, &[(cpu, Link::Here), (cuda, Link::Here)]);
        let on = workload(64);
        let mut times = Vec::new();
        for _ in 0..40 {
            let said = all.recommend(&on, &quiet(), &calls(1)).unwrap();
            let said = &said.recommendation;
            let offset = if said.device == "gpu" { 6 } else { 0 };
            let time = truth[offset + x(&said.best.choice) as usize];
            all.feedback(&Feedback::ran(
                said,
                &on,
                ns(time * (0.02 * dice.normal()).exp()),
            ))
            .unwrap();
            times.push(time.ln());
        }
        first += times[0];
        last += times[39];
        least += truth.iter().copied().fold(f64::INFINITY, f64::min).ln();
    }
    let (first, last) = (
        ((first - least) / 200.0).exp(),
        ((last - least) / 200.0).exp(),
    );
    assert!(
        last < 0.95 * first,
        "{last} times the best after 40 calls, {first} before"
    );
}

/// Advice follows from what takes the time.
#[test]
fn advice_names_what_takes_the_time() {
    let said = |landscape: Landscape, link: Link, count: u64| {
        let strategy: Made = Arc::new(landscape.named(Backend::Cuda, "gpu").strategy());
        place(&together(0, &[(strategy, link)]), &calls(count))
            .unwrap()
            .advice
            .join("\n")
    };
    let bound = |bound| Landscape {
        bound,
        ..Landscape::of(&[1e6])
    };
    let words = |of| said(bound(of), Link::Here, 1);
    assert!(words(Bound::Compute).contains("bound by arithmetic"));
    assert!(words(Bound::Memory).contains("bound by moving bytes"));
    assert!(words(Bound::Latency).contains("several such calls into one"));
    let way = said(bound(Bound::Compute), copied(1e7, 0.0), 1);
    assert!(way.contains("keep operands on gpu"), "{way}");
    let once = bound(Bound::Compute).with(|_, point| point.compile_ns = 1e8);
    let few = said(once.clone(), Link::Here, 10);
    assert!(few.contains("from 100 calls on"), "{few}");
    let many = said(once, Link::Here, 1000);
    assert!(!many.contains("paid once"), "{many}");
}

#[test]
fn two_threads_share_a_coordinator() {
    let all = together(
        8,
        &[
            (host(&[1000.0]), Link::Here),
            (gpu("gpu", &[900.0]), copied(1e10, 0.0)),
        ],
    );
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let all = &all;
            scope.spawn(move || {
                for n in 0..100 {
                    let on = workload(8 + (n + thread) % 4);
                    let placement = all.recommend(&on, &quiet(), &calls(1)).unwrap();
                    if n % 10 == 0 {
                        all.feedback(&Feedback::ran(&placement.recommendation, &on, ns(800.0)))
                            .unwrap();
                    }
                }
            });
        }
    });
    let figures = all.statistics();
    assert_eq!(
        (figures.requests, figures.fed.values().sum::<u64>()),
        (200, 20)
    );
}
