use kernelwise_model::{FitError, ModelKind, Predict, Table, WidthMismatch};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::belief::Tally;
use crate::selector::Remembered;

/// What `kernel` takes for a product, over a poor expectation: a cost per call, a rate, and noise of 5 %.
fn measured(kernel: &str, shape: [usize; 3], threads: u32, random: &mut Pcg64Mcg) -> Evidence {
    let [m, k, n] = shape;
    let work = (m * k * n) as f64;
    let (call, rate) = match kernel {
        "small" => (20.0, 0.2),
        _ => (2000.0, 0.02),
    };
    let noise = 1.0 + 0.05 * (random.random::<f64>() - 0.5);
    let time = (call + rate * work / f64::from(threads)) * noise;
    Evidence {
        of: Remembered {
            workload: format!("matmul f32 {m}x{k}x{n}").parse().unwrap(),
            candidate: Candidate {
                kernel: format!("cpu-matmul-f32-{kernel}").parse().unwrap(),
                params: Default::default(),
            },
            version: 1,
            tally: Tally::of(5, 5.0, time.ln(), 0.01).unwrap(),
        },
        threads,
        expected_ns: Some(0.05 * work + 1.0),
        away: None,
        slower: None,
    }
}

fn many(count: usize) -> Vec<Evidence> {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut all = Vec::new();
    for _ in 0..count {
        let shape = [(); 3].map(|()| (2f64 * 200f64.powf(random.random::<f64>())) as usize);
        for kernel in ["small", "large"] {
            for threads in [1, 2] {
                all.push(measured(kernel, shape, threads, &mut random));
            }
        }
    }
    all
}

#[test]
fn shapes_that_were_not_measured_are_foretold() {
    let judged = judge(&many(60), 0.02, 1);
    let all = judged.all.unwrap();
    assert!(all.median_error_factor < 1.12, "{all:?}");
    assert!(all.p90_error_factor < 1.5, "{all:?}");
    assert!((0.8..=0.98).contains(&all.coverage_90), "{all:?}");
    assert!(all.prior_median_error_factor.unwrap() > 1.5);
    assert_eq!(judged.operations["matmul"], all);
    assert!(judged.decades.len() >= 3);
    let by_size: usize = judged.sizes.values().map(|accuracy| accuracy.times).sum();
    assert!(by_size == all.times && judged.sizes.len() >= 3);
    assert_eq!(judged.without_model, 0);
    assert_eq!(judge(&many(60), 0.02, 1), judge(&many(60), 0.02, 1));
}

#[test]
fn far_away_intervals_are_wider_and_the_nearest_is_named() {
    let evidence = many(40);
    let forecast = Forecast::fit(&evidence, 1);
    let kernel = "cpu-matmul-f32-large".parse().unwrap();
    let of = |text: &str| {
        let workload: Workload = text.parse().unwrap();
        let work = workload.cost().unwrap().flops.0 as f64 / 2.0;
        let expected = Some(0.05 * work + 1.0);
        forecast.of(&workload, (&kernel, 1), 1, expected)
    };
    let seen = of(&evidence[0].of.workload.to_string()).unwrap();
    assert_eq!(seen.nearest, evidence[0].of.workload.to_string());
    assert!((seen.nearest_factor - 1.0).abs() < 1e-9);
    assert_eq!(seen.workloads, 40);
    let far = of("matmul f32 9000x9000x9000").unwrap();
    assert!(far.half_width > 2.0 * seen.half_width);
    assert!(far.nearest_factor > 20.0);
    assert!((seen.sd() * NINETY - seen.half_width).abs() < 1e-12);
    // Of another kind nothing is known.
    assert_eq!(of("matmul f32 8x8x8 ta"), None);
}

#[test]
fn a_kernel_that_never_ran_borrows_with_a_wide_interval() {
    let evidence = many(40);
    let forecast = Forecast::fit(&evidence, 1);
    let known = &evidence[0];
    let of = |name: &str, version| {
        let kernel = name.parse().unwrap();
        forecast.of(&known.of.workload, (&kernel, version), 1, known.expected_ns)
    };
    let familiar = of("cpu-matmul-f32-small", 1).unwrap();
    for (name, version) in [("cpu-matmul-f32-new", 1), ("cpu-matmul-f32-small", 2)] {
        let strange = of(name, version).unwrap();
        assert!(strange.half_width > 1.2 * familiar.half_width);
        assert!(strange.mean.is_finite());
    }
}

#[test]
fn little_evidence_makes_no_model_and_odd_evidence_no_trouble() {
    assert_eq!(Forecast::fit(&[], 1).kinds().count(), 0);
    assert_eq!(
        Forecast::fit(&many(FEWEST_WORKLOADS - 1), 1)
            .kinds()
            .count(),
        0
    );
    let forecast = Forecast::fit(&many(FEWEST_WORKLOADS), 1);
    let kinds: Vec<_> = forecast.kinds().collect();
    let [scope] = &kinds[..] else {
        panic!("{kinds:?}");
    };
    assert_eq!(scope.kind, "matmul f32 #x#x#");
    assert_eq!((scope.workloads, scope.kernels), (FEWEST_WORKLOADS, 4));
    let inside = |range: &(u64, u64)| range.0 >= 2 && range.0 < range.1 && range.1 <= 400;
    assert_eq!(scope.sizes.len(), 3);
    assert!(scope.sizes.iter().all(inside), "{scope:?}");
    assert_eq!(judge(&many(3), 0.02, 1).all, None);
    assert_eq!(judge(&many(3), 0.02, 1).without_model, 12);
    // Expectations that are missing or absurd, all times equal, one shape many times.
    let mut odd = many(20);
    odd[0].expected_ns = Some(f64::NAN);
    odd[1].expected_ns = Some(0.0);
    odd[2].expected_ns = None;
    for one in &mut odd {
        one.of.tally = Tally::of(1, 1.0, 3.0, 0.0).unwrap();
    }
    let doubled = [odd.clone(), odd].concat();
    let forecast = Forecast::fit(&doubled, 1);
    assert_eq!(forecast.kinds().count(), 1);
}

#[test]
fn choices_by_forecast_are_as_reliable_as_they_say() {
    let choices = judge(&many(80), 0.02, 1).choices.unwrap();
    assert_eq!(choices.workloads, 80);
    assert!(
        (1.0..1.1).contains(&choices.geo_slowdown),
        "{}",
        choices.geo_slowdown
    );
    let counted: usize = choices.reliability.iter().map(|class| class.choices).sum();
    assert_eq!(counted, 80);
    let sure = choices.reliability.last().unwrap();
    assert!(sure.from == 0.9 && sure.choices >= 10, "{sure:?}");
    assert!(
        sure.announced >= 0.9 && sure.within_zone >= 0.85,
        "{sure:?}"
    );
    // Whoever differs by a factor is never as good, and nobody is in a zone of less than nothing.
    let none = judge(&many(80), -1.0, 1).choices.unwrap();
    assert!(
        none.reliability
            .iter()
            .all(|class| class.within_zone == 0.0)
    );
    // One candidate is no choice.
    let alone: Vec<Evidence> = many(20).into_iter().step_by(4).collect();
    assert_eq!(judge(&alone, 0.02, 1).choices, None);
}

#[test]
fn what_matters_is_told_from_what_does_not() {
    let importance = judge(&many(60), 0.02, 1).importance;
    let of = |what: &str| importance[what];
    assert!(of("kernel") > 1.3, "{importance:?}");
    assert!(of("sizes") > 1.1, "{importance:?}");
    assert!(of("kernel") > of("powers of two in sizes") + 0.2);
    assert!(of("powers of two in sizes") < 1.1, "{importance:?}");
}

#[test]
fn a_forecast_that_was_written_answers_alike() {
    let evidence = many(20);
    let forecast = Forecast::fit(&evidence, 1);
    let text = serde_json::to_string(&forecast).unwrap();
    let read: Forecast = serde_json::from_str(&text).unwrap();
    let ask = |forecast: &Forecast| {
        let one = &evidence[3];
        let kernel = (&one.of.candidate.kernel, 1);
        forecast
            .of(&one.of.workload, kernel, 2, Some(777.0))
            .unwrap()
    };
    assert_eq!(ask(&read), ask(&forecast));
    // Parts that do not fit together answer with nothing.
    let damaged = text.replacen("\"column\":0", "\"column\":7777", 1);
    assert_ne!(damaged, text);
    let damaged: Forecast = serde_json::from_str(&damaged).unwrap();
    for one in &evidence {
        let kernel = (&one.of.candidate.kernel, 1);
        damaged.of(&one.of.workload, kernel, one.threads, one.expected_ns);
    }
    assert!(serde_json::from_str::<Forecast>("{\"kinds\":{\"x\":{}}}").is_err());
}

#[test]
fn other_machines_stand_in_until_there_are_own_times() {
    let theirs: Vec<Evidence> = many(30)
        .into_iter()
        .map(|one| Evidence {
            away: Some(0.4),
            ..one
        })
        .collect();
    let asked = &theirs[0];
    let of = |forecast: &Forecast| {
        let kernel = (&asked.of.candidate.kernel, 1);
        forecast
            .of(&asked.of.workload, kernel, asked.threads, asked.expected_ns)
            .unwrap()
    };
    let foreign = of(&Forecast::fit(&theirs, 1));
    assert!(matches!(foreign.estimate(), Some(Estimate::Prior { .. })));
    let here: Vec<Evidence> = many(30);
    let own = of(&Forecast::fit(&here, 1));
    assert!(matches!(own.estimate(), Some(Estimate::Modelled { .. })));
    // The same times, from farther away, say less.
    assert_eq!(foreign.mean, own.mean);
    assert!(foreign.half_width > own.half_width + 0.1);
    // Enough own times need nobody else.
    let both = [theirs.clone(), here].concat();
    assert_eq!(of(&Forecast::fit(&both, 1)), own);
}

#[test]
fn slow_moments_are_not_held_against_shapes() {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let usual = many(60);
    // Every third workload was measured while the machine was half as fast.
    let mut disturbed = usual.clone();
    for (i, four) in disturbed.chunks_mut(4).enumerate() {
        let slower = if i % 3 == 0 { 2f64.ln() } else { 0.0 };
        // The look is a little off.
        let look = slower + 0.02 * (random.random::<f64>() - 0.5);
        for one in four {
            let mean = one.of.tally.mean().unwrap() + slower;
            one.of.tally = Tally::of(5, 5.0, mean, 0.01).unwrap();
            one.slower = Some(look);
        }
    }
    let factor = |evidence: &[Evidence]| judge(evidence, 0.02, 1).all.unwrap().median_error_factor;
    let (calm, known) = (factor(&usual), factor(&disturbed));
    for one in &mut disturbed {
        one.slower = None;
    }
    let unknown = factor(&disturbed);
    assert!(known < calm + 0.03, "{calm} {known} {unknown}");
    assert!(unknown > known + 0.05, "{calm} {known} {unknown}");
    // A forecast is for the usual pace.
    let of = |evidence: &[Evidence]| {
        let one = &usual[5];
        let kernel = (&one.of.candidate.kernel, 1);
        let forecast = Forecast::fit(evidence, 1);
        let told = forecast.of(&one.of.workload, kernel, one.threads, one.expected_ns);
        told.unwrap().mean
    };
    let mut slow = usual.clone();
    for one in &mut slow {
        let mean = one.of.tally.mean().unwrap() + 0.5;
        (one.of.tally, one.slower) = (Tally::of(5, 5.0, mean, 0.01).unwrap(), Some(0.5));
    }
    assert!((of(&usual) - of(&slow)).abs() < 0.05);
}

const WEEK_S: f64 = 604_800.0;

/// The same, as records of these ages are read by a clock that is so much later: weights halve every week.
fn read_later(evidence: &[Evidence], ages_s: &[f64], later_s: f64) -> Vec<Evidence> {
    let faded = evidence.iter().zip(ages_s).map(|(one, age_s)| {
        let mut one = one.clone();
        let weight = 5.0 * (-(age_s + later_s) / WEEK_S).exp2();
        one.of.tally = Tally::of(5, weight, one.of.tally.mean().unwrap(), 0.01).unwrap();
        one
    });
    faded.collect()
}

#[test]
fn models_of_the_same_records_are_the_same_whenever_they_are_fitted() {
    let evidence = many(30);
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let mixed: Vec<f64> = evidence
        .iter()
        .map(|_| random.random_range(0..3_000_000) as f64)
        .collect();
    for ages_s in [vec![0.0; evidence.len()], mixed.clone()] {
        let now = Forecast::fit(&read_later(&evidence, &ages_s, 0.0), 1);
        for later_s in [1.0, 12_345.0, 8.0 * WEEK_S, 1e3 * WEEK_S] {
            let later = Forecast::fit(&read_later(&evidence, &ages_s, later_s), 1);
            assert_eq!(later, now, "{later_s} s later");
        }
    }
    // Ages that differ do count: the older of two times that disagree moves forecasts less.
    let mut disagree = evidence.clone();
    for (i, one) in disagree.iter_mut().enumerate() {
        let mean = one.of.tally.mean().unwrap() + if i % 8 < 4 { 1.0 } else { 0.0 };
        one.of.tally = Tally::of(5, 5.0, mean, 0.01).unwrap();
    }
    let mean_of = |old: usize| {
        let age_s = |i: usize| if (i % 8 < 4) == (old == 0) { 4e6 } else { 0.0 };
        let ages_s: Vec<f64> = (0..disagree.len()).map(age_s).collect();
        let forecast = Forecast::fit(&read_later(&disagree, &ages_s, 0.0), 1);
        let told = evidence.iter().map(|one| forecast.of_known(one).unwrap());
        told.map(|told| told.mean).sum::<f64>() / evidence.len() as f64
    };
    assert!(mean_of(0) < mean_of(1) - 0.05);
    // A single new time does not make the others worthless.
    let mut ages_s = vec![8.0 * WEEK_S; evidence.len()];
    ages_s[0] = 0.0;
    let factor = |evidence: &[Evidence]| judge(evidence, 0.02, 1).all.unwrap().median_error_factor;
    let (fresh, aged) = (
        factor(&evidence),
        factor(&read_later(&evidence, &ages_s, 0.0)),
    );
    assert!(aged < fresh + 0.02, "{fresh} {aged}");
}

/// Times of the small kernel, which is best with tiles of 16, as somebody tunes it, beside `many`.
fn tuned() -> Vec<Evidence> {
    let mut all = many(30);
    for one in &mut all {
        one.of.candidate.params = "threads=1,tile=64".parse().unwrap();
    }
    let tiles = all.clone().into_iter().flat_map(|one| {
        [4_u64, 16, 256].map(|tile| {
            let mut one = one.clone();
            let off = ((tile as f64).ln() - 16f64.ln()).abs() - 4f64.ln();
            let mean = one.of.tally.mean().unwrap() + 0.5 * off;
            one.of.tally = Tally::of(5, 5.0, mean, 0.01).unwrap();
            one.of.candidate.params = format!("threads=1,tile={tile}").parse().unwrap();
            one
        })
    });
    let tiles: Vec<Evidence> = tiles.collect();
    [all, tiles].concat()
}

#[test]
fn settings_of_a_kernel_have_forecasts_of_their_own() {
    let evidence = tuned();
    let forecast = Forecast::fit(&evidence, 1);
    let of = |tile: u64| {
        let one = &evidence[0];
        let candidate = Candidate {
            params: format!("threads=1,tile={tile}").parse().unwrap(),
            ..one.of.candidate.clone()
        };
        let told = forecast.of_candidate(
            &one.of.workload,
            &candidate,
            1,
            one.threads,
            one.expected_ns,
        );
        told.unwrap().mean
    };
    let tiles = [4, 16, 64, 256].map(of);
    // ln 4 apart, at half a unit each.
    let step = 0.5 * 4f64.ln();
    assert!(tiles[0] > tiles[1] + 0.5 * step, "{tiles:?}");
    assert!(tiles[2] > tiles[1] + 0.5 * step && tiles[3] > tiles[2] + 0.5 * step);
    // Nobody says which: as mostly.
    let one = &evidence[0];
    let kernel = (&one.of.candidate.kernel, 1);
    let usual = forecast.of(&one.of.workload, kernel, one.threads, one.expected_ns);
    assert!((usual.unwrap().mean - tiles[2]).abs() < 0.1 * step);
    let judged = judge(&evidence, 0.02, 1);
    assert!(judged.importance["parameters"] > 1.1, "{judged:?}");
    assert!(judged.all.unwrap().median_error_factor < 1.2);
}

#[test]
fn a_kernel_that_ran_on_small_shapes_only_is_not_near_large_ones() {
    let mut evidence = many(40);
    let is_large = |one: &Evidence| one.of.workload.cost().unwrap().flops.0 > 200_000;
    evidence
        .retain(|one| one.of.candidate.kernel.as_str() != "cpu-matmul-f32-small" || !is_large(one));
    let forecast = Forecast::fit(&evidence, 1);
    let large = evidence
        .iter()
        .max_by_key(|one| one.of.workload.cost().unwrap().flops.0);
    let large = large.unwrap();
    let on = |kernel: &str, one: &Evidence| {
        let kernel = kernel.parse().unwrap();
        let told = forecast.of(&one.of.workload, (&kernel, 1), 1, one.expected_ns);
        told.unwrap()
    };
    let of = |kernel: &str| on(kernel, large);
    let everywhere = of("cpu-matmul-f32-large");
    assert_eq!(everywhere.nearest, large.of.workload.to_string());
    assert_eq!(everywhere.workloads, 40);
    let small = of("cpu-matmul-f32-small");
    let nearest: Workload = small.nearest.parse().unwrap();
    assert!(nearest.cost().unwrap().flops.0 <= 200_000, "{small:?}");
    assert!(small.workloads < 40 && small.nearest_factor > 3.0);
    let at_home = evidence
        .iter()
        .find(|one| small.nearest == one.of.workload.to_string());
    let at_home = on("cpu-matmul-f32-small", at_home.unwrap());
    assert!(small.half_width > 1.2 * at_home.half_width, "{small:?}");
    let words = small.estimate().unwrap().to_string();
    assert!(words.contains(&small.nearest), "{words}");
}

/// Somebody's own: the mean of all, or nothing at all.
#[derive(Debug)]
struct Own {
    fails: bool,
}

#[derive(Debug)]
struct Mean(f32, usize);

impl Regressor for Own {
    fn train(&self, table: &Table, _: u64) -> Result<Box<dyn Predict>, FitError> {
        if self.fails {
            return Err(FitError::Other("out of ideas".to_owned()));
        }
        let sum: f32 = table.rows().map(|(_, target, _)| target).sum();
        Ok(Box::new(Mean(sum / table.len() as f32, table.width())))
    }

    fn label(&self) -> std::borrow::Cow<'_, str> {
        "the mean".into()
    }
}

impl Predict for Mean {
    fn predict(&self, _: &[f32]) -> Result<f32, WidthMismatch> {
        Ok(self.0)
    }

    fn width(&self) -> usize {
        self.1
    }
}

#[test]
fn any_type_of_model_can_take_the_place_of_curves_and_trees() {
    let evidence = many(30);
    let forecast = Forecast::fit_with(&evidence, &Own { fails: false }, 1);
    let told = |one: &Evidence| forecast.of_known(one).unwrap();
    let over = |one: &Evidence| told(one).mean - one.expected_ns.unwrap().ln();
    assert!((over(&evidence[0]) - over(&evidence[77])).abs() < 1e-6);
    let words = told(&evidence[0]).estimate().unwrap().to_string();
    assert!(words.contains("by the mean, n = 0"), "{words}");
    // Its interval is as wide as it is bad.
    let held = evidence.iter().filter(|one| {
        let told = told(one);
        (one.of.tally.mean().unwrap() - told.mean).abs() <= told.half_width
    });
    let held = held.count() as f64 / evidence.len() as f64;
    assert!((0.85..=0.97).contains(&held), "{held}");
    // It cannot be written; who reads finds nothing.
    let text = serde_json::to_string(&forecast).unwrap();
    let read: Forecast = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Forecast::default());
    assert_eq!((forecast.clone(), forecast.kinds().count()), (forecast, 1));
    assert_eq!(
        Forecast::fit_with(&evidence, &Own { fails: true }, 1),
        Forecast::default()
    );
    // The usual models are better than a mean, and types of models can be told apart.
    let error = |judged: Judged| judged.all.unwrap().median_error_factor;
    let usual = error(judge(&evidence, 0.02, 1));
    let mean = error(judge_with(&evidence, &Own { fails: false }, 0.02, 1));
    let trees = error(judge_with(&evidence, &ModelKind::BoostedTrees, 0.02, 1));
    assert!(usual < trees && trees < mean, "{usual} {trees} {mean}");
}

#[test]
fn new_models_replace_old_ones_only_if_they_are_known_to_be_as_good() {
    let all = many(60);
    let (first, both) = (&all[..80], &all[..160]);
    let nothing = Forecast::default().renewed(first, None, 1);
    assert!(nothing.taken && nothing.kept_out.is_empty());
    assert_eq!(nothing.forecast, Forecast::fit(first, 1));
    assert_eq!(nothing.error_factor_before, None);
    let old = nothing.forecast;
    // More of the same: no worse on what came since.
    let grown = old.renewed(both, None, 1);
    assert!(grown.taken, "{grown:?}");
    assert!(grown.error_factor_after.unwrap() < 1.02 * grown.error_factor_before.unwrap());
    assert_eq!(grown.forecast, Forecast::fit(both, 1));
    // A worse type of model stays out.
    let worse = old.renewed(both, Some(&Own { fails: false }), 1);
    assert!(!worse.taken && worse.forecast == old, "{worse:?}");
    assert_eq!(worse.kept_out, ["matmul f32 #x#x#"]);
    // Just enough for a model, too few to keep any back: nothing can be compared, and what is there stays.
    let few = old.renewed(&all[..4 * FEWEST_WORKLOADS], None, 1);
    assert!(!few.taken && few.forecast == old, "{few:?}");
    assert_eq!(few.error_factor_after, None);
    assert_eq!(few.kept_out, ["matmul f32 #x#x#"]);
    // Too few for any model change nothing, and nobody was kept out.
    let fewer = old.renewed(&all[..20], None, 1);
    assert_eq!((fewer.taken, fewer.kept_out.len()), (false, 0));
    // A model that cannot be fitted takes nobody's place.
    let failed = old.renewed(both, Some(&Own { fails: true }), 1);
    assert!(!failed.taken && failed.forecast == old);
}
