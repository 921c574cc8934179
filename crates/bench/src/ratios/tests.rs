//! Scripted measurements, and the ratios that follow.

use kernelwise_measure::{ClockFacts, Ending, Entry, Stop};
use kernelwise_types::Numerics;

use super::*;
use crate::figures::{Outcome, Times};
use crate::judge::tests::calibration;

fn standing(name: &str, source: Source, time_ns: f64, ceiling: &Ceiling) -> Standing {
    Standing {
        name: name.to_owned(),
        source,
        technique: Technique::Vector,
        numerics: Numerics::Reordered,
        opt_in: false,
        setting: None,
        threads: 1,
        workspace_bytes: None,
        verdict: Outcome::Slower,
        detail: "scripted".to_owned(),
        times: Some(Times {
            time_ns,
            low_ns: None,
            high_ns: None,
            samples: 9,
            gflops: ceiling.gflops(time_ns),
            gbps: ceiling.gbps(time_ns),
            peak_share: ceiling.peak_share(time_ns),
            bandwidth_share: ceiling.bandwidth_share(time_ns),
            over_winner: None,
        }),
        prior_ns: None,
        measured_over_prior: None,
        warnings: Vec::new(),
    }
}

/// A race in which everyone always took the time of its standing.
fn race(standings: &[Standing]) -> Race {
    let entry = |standing: &Standing| {
        let samples_ns = vec![standing.times.unwrap().time_ns; 12];
        Entry {
            name: standing.name.clone(),
            ending: Ending::Measured,
            batch: 1,
            summary_ns: kernelwise_measure::Summary::of(&samples_ns),
            samples_ns,
        }
    };
    Race {
        clock: ClockFacts {
            clock: "scripted",
            cost_ns: 1.0,
            resolution_ns: Some(1),
        },
        stop: Stop::Precision,
        rounds: 12,
        elapsed_ns: 1,
        seed: 0,
        entries: standings.iter().map(entry).collect(),
    }
}

struct Script {
    workload: Workload,
    ceiling: Ceiling,
    standings: Vec<Standing>,
    absent: Vec<Absent>,
}

impl Script {
    fn new(text: &str, times: &[(&str, Source, f64)]) -> Self {
        let workload: Workload = text.parse().unwrap();
        let machine = kernelwise_probe::machine();
        let mut ceiling = Ceiling::of(&workload, 1, &machine, &calibration());
        // Whether a shape lies in memory must not depend on the machine the test runs on.
        ceiling.beyond_cache = workload.elements() >= 10_000_000;
        let standings = times
            .iter()
            .map(|(name, source, time)| standing(name, *source, *time, &ceiling))
            .collect();
        Self {
            workload,
            ceiling,
            standings,
            absent: Vec::new(),
        }
    }

    fn ratios(&self) -> (Ratios, Thresholds) {
        of(&Evidence {
            workload: &self.workload,
            ceiling: &self.ceiling,
            standings: &self.standings,
            race: &race(&self.standings),
            absent: &self.absent,
        })
    }
}

const PRODUCT: [(&str, Source, f64); 5] = [
    ("own", Source::Own, 1000.0),
    ("wrapped", Source::Wrapped, 800.0),
    ("gemm", Source::Rival, 880.0),
    ("matrixmultiply", Source::Rival, 2000.0),
    ("openblas", Source::Rival, 900.0),
];

#[test]
fn products_are_held_against_the_best_library() {
    let (ratios, thresholds) = Script::new("matmul f32 16x16x16", &PRODUCT).ratios();
    let value = |name: &str| ratios[name].value().unwrap();
    assert!((value("best_over_best_library") - 1.1).abs() < 1e-9);
    assert!((value("best_own_over_best_library") - 0.88).abs() < 1e-9);
    assert!((value("best_over_openblas") - 1.125).abs() < 1e-9);
    // 8192 operations in 800 ns at 100 GFLOP/s.
    assert!((value("peak_share") - 0.1024).abs() < 1e-9);
    let Ratio::Known { low, high, .. } = ratios["best_over_best_library"] else {
        panic!()
    };
    assert!(low.unwrap() <= 1.1 + 1e-9 && high.unwrap() >= 1.1 - 1e-9);
    assert_eq!(
        thresholds,
        Thresholds::from([("at_least_0_97", true), ("at_least_1_3", false)])
    );
}

#[test]
fn thresholds_turn_at_their_value_and_only_where_they_apply() {
    let flags = |text: &str, own: f64, theirs: f64| {
        let times = [("own", Source::Own, own), ("gemm", Source::Rival, theirs)];
        Script::new(text, &times).ratios().1
    };
    assert!(flags("matmul f32 16x16x16", 100.0, 130.0)["at_least_1_3"]);
    assert!(!flags("matmul f32 16x16x16", 100.0, 129.9)["at_least_1_3"]);
    assert!(!flags("matmul f32 17x17x17", 100.0, 130.0).contains_key("at_least_1_3"));
    assert!(!flags("matmul f32 9x4x4x4", 100.0, 130.0).contains_key("at_least_1_3"));
    assert!(flags("matmul f32 20x20x20", 100.0, 97.0)["at_least_0_97"]);
    assert!(!flags("matmul f32 20x20x20", 100.0, 96.9)["at_least_0_97"]);
    // 2 * 256^3 operations at 100 GFLOP/s are 335.5 us.
    let square = "matmul f32 256x256x256";
    assert!(flags(square, 335_544.32 / 0.821, 1e6)["peak_share_at_least_0_82"]);
    assert!(!flags(square, 335_544.32 / 0.819, 1e6)["peak_share_at_least_0_82"]);
    let oblong = flags("matmul f32 256x256x512", 1e6, 1e6);
    assert!(!oblong.contains_key("peak_share_at_least_0_82"));
    assert!(!flags("matmul f32 255x255x255", 1e6, 1e6).contains_key("peak_share_at_least_0_82"));
}

#[test]
fn what_is_wrong_unbelievable_or_opt_in_does_not_count() {
    for spoil in [
        (|s: &mut Standing| s.verdict = Outcome::Wrong) as fn(&mut Standing),
        |s| s.verdict = Outcome::NotBelieved,
        |s| s.verdict = Outcome::Failed,
        |s| s.opt_in = true,
    ] {
        let mut script = Script::new("matmul f32 20x20x20", &PRODUCT);
        spoil(&mut script.standings[1]);
        let value = script.ratios().0["best_over_best_library"].value().unwrap();
        assert!((value - 0.88).abs() < 1e-9);
    }
}

#[test]
fn an_absent_rival_leaves_a_reason() {
    let mut script = Script::new(
        "conv2d f32 n1 c8 h8 w8 k8 r3 s3 pad1",
        &[("own", Source::Own, 100.0)],
    );
    script.absent = vec![Absent {
        name: "onednn",
        reason: "not found; install it with `pip install x`".to_owned(),
    }];
    let (ratios, thresholds) = script.ratios();
    assert_eq!(
        ratios["best_over_onednn"],
        Ratio::unknown("onednn: not found; install it with `pip install x`")
    );
    let json = serde_json::to_value(&ratios["best_over_onednn"]).unwrap();
    assert!(
        json["value"].is_null() && json["reason"].is_string(),
        "{json}"
    );
    assert!(thresholds.is_empty());

    // A product still has the other libraries, and says which is missing.
    let mut script = Script::new("matmul f32 20x20x20", &PRODUCT[..4]);
    script.absent = vec![Absent {
        name: "openblas",
        reason: "gone".to_owned(),
    }];
    let ratios = script.ratios().0;
    let Ratio::Known { without, value, .. } = &ratios["best_over_best_library"] else {
        panic!()
    };
    assert_eq!(without, &["openblas: gone"]);
    assert!((value - 1.1).abs() < 1e-9);
    assert_eq!(ratios["best_over_openblas"].value(), None);
}

#[test]
fn convolutions_have_three_ratios_and_two_thresholds() {
    let times = [
        ("direct", Source::Own, 100.0),
        ("winograd", Source::Own, 50.0),
        ("onednn", Source::Rival, 72.0),
        ("onednn-plain", Source::Rival, 69.0),
    ];
    let mut script = Script::new("conv2d f32 n1 c8 h8 w8 k8 r3 s3 pad1", &times);
    script.standings[1].opt_in = true;
    let (ratios, thresholds) = script.ratios();
    let value = |name: &str| ratios[name].value().unwrap();
    assert!((value("best_over_onednn") - 0.72).abs() < 1e-9);
    assert!((value("best_over_onednn_plain") - 0.69).abs() < 1e-9);
    assert!((value("reduced_over_onednn") - 1.44).abs() < 1e-9);
    assert_eq!(
        thresholds,
        Thresholds::from([("at_least_0_7", true), ("plain_at_least_0_7", false)])
    );
    for other in [
        "conv2d f32 n2 c8 h8 w8 k8 r3 s3 pad1",
        "conv2d f32 n1 c8 h8 w8 k8 r5 s5 pad2",
        "conv2d f32 n1 c8 h8 w8 k8 r3 s3 pad1 groups8",
    ] {
        assert!(Script::new(other, &times).ratios().1.is_empty(), "{other}");
    }
}

#[test]
fn copies_are_held_against_main_memory_where_they_lie_there() {
    let near = Script::new("copy f32 1000", &[("own", Source::Own, 1.0)]);
    assert_eq!(near.ratios().0["dram_bandwidth_share"].value(), None);
    // 160 MB at 10 GB/s are 16 ms.
    let far = |time| Script::new("copy f32 20000000", &[("own", Source::Own, time)]).ratios();
    assert!(far(16e6 / 0.91).1["at_least_0_9"]);
    let (ratios, thresholds) = far(16e6 / 0.89);
    assert!((ratios["dram_bandwidth_share"].value().unwrap() - 0.89).abs() < 1e-9);
    assert!(!thresholds["at_least_0_9"]);
}

#[test]
fn copies_are_held_against_the_bare_loop_beside_them() {
    let race = |text: &str, ours: f64| {
        let times = [
            ("own", Source::Own, ours),
            ("bare-loop", Source::Rival, 20e6),
        ];
        Script::new(text, &times).ratios()
    };
    let (ratios, thresholds) = race("copy f32 20000000", 20e6 / 0.91);
    assert!((ratios["best_over_bare_loop"].value().unwrap() - 0.91).abs() < 1e-9);
    assert!(thresholds["at_least_0_9_of_bare_loop"]);
    let add = race("elementwise.add f32 20000000", 20e6 / 0.89).1;
    assert!(!add["at_least_0_9_of_bare_loop"]);
    // Where operands fit a cache, streaming is no measure; and some chains have no bare loop.
    assert!(
        !race("copy f32 1000", 10e6)
            .0
            .contains_key("best_over_bare_loop")
    );
    let alone = Script::new("copy f32 20000000", &[("own", Source::Own, 20e6)]);
    assert!(!alone.ratios().0.contains_key("best_over_bare_loop"));
}

#[test]
fn sorts_are_held_against_the_standard_library() {
    let sort = |text: &str, std: f64| {
        let times = [
            ("merge", Source::Own, 90.0),
            ("radix", Source::Own, 100.0),
            ("std", Source::Rival, std),
        ];
        let mut script = Script::new(text, &times);
        script.standings[1].technique = Technique::Algorithmic;
        script.ratios()
    };
    let (ratios, thresholds) = sort("sort u32 1000000", 151.0);
    assert!((ratios["radix_over_std"].value().unwrap() - 1.51).abs() < 1e-9);
    assert!(thresholds["at_least_1_5"]);
    assert!(!sort("sort u32 1000000", 149.0).1["at_least_1_5"]);
    assert!(sort("sort u32 1000", 151.0).1.is_empty());
    assert!(sort("sort f32 1000000", 151.0).1.is_empty());
}

#[test]
fn a_summary_names_the_worst_shape() {
    let shape = |text: &str, own: f64| {
        let times = [("own", Source::Own, own), ("gemm", Source::Rival, 100.0)];
        let script = Script::new(text, &times);
        let (ratios, thresholds) = script.ratios();
        crate::figures::ShapeFigures {
            workload: script.workload,
            flops: 1,
            moved_bytes: 1,
            place: script.ceiling.place,
            by_arithmetic: true,
            peak_gflops: kernelwise_types::Reading::Known(1.0),
            bandwidth_gbps: kernelwise_types::Reading::Known(1.0),
            inside_taps_share: None,
            checked_against: String::new(),
            stop: Stop::Precision,
            rounds: 9,
            contenders: script.standings,
            refused: Vec::new(),
            winner: None,
            tie_class: Vec::new(),
            ratios,
            thresholds,
        }
    };
    let mut shapes = vec![
        shape("matmul f32 20x20x20", 50.0),
        shape("matmul f32 30x30x30", 200.0),
    ];
    shapes[1].contenders[0].verdict = Outcome::Wrong;
    let summary = summarise(&shapes);
    let ratio = &summary.ratios["best_over_best_library"];
    assert_eq!((ratio.shapes, ratio.lowest), (2, 0.5));
    assert_eq!(ratio.lowest_at.to_string(), "matmul f32 30x30x30");
    assert!((ratio.geometric_mean - 1.0).abs() < 1e-12);
    let threshold = &summary.thresholds["at_least_0_97"];
    assert_eq!((threshold.met, threshold.of), (1, 2));
    assert_eq!(threshold.missed[0].to_string(), "matmul f32 30x30x30");
    assert_eq!((summary.shapes, summary.wrong_results), (2, 1));
    assert!(!summary.ratios.contains_key("best_over_openblas"));
}
