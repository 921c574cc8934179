//! What trying others costs and brings.

use std::collections::BTreeMap;

use super::*;

const SIDES: [u64; 3] = [6, 6, 4];
const CALLS: usize = 300;

/// 144 settings and what they really take: a bowl with a floor at `seed`'s place, uneven by a tenth. Prices know of it as much as `told`
/// says: nothing with 0, everything but half a factor of e with 1.
fn bowl(seed: u64, told: f64) -> (Landscape, BTreeMap<Params, f64>) {
    let mut dice = Dice::new(seed);
    let floor = SIDES.map(|side| dice.below(side as usize) as f64);
    let mut truth = BTreeMap::new();
    let mut landscape = Landscape::of(&[1000.0; 144]);
    for (place, point) in landscape.points.iter_mut().enumerate() {
        let place = place as u64;
        let at = [place % 6, place / 6 % 6, place / 36];
        let names = ["a", "b", "c"].into_iter().zip(at);
        point.params = names.fold(Params::new(), |params, (name, value)| {
            params.with(name, value).unwrap()
        });
        let away: f64 = at
            .iter()
            .zip(floor)
            .map(|(a, b)| (*a as f64 - b).powi(2))
            .sum();
        let slower = 0.1 * away + 0.1 * dice.normal().abs();
        point.time_ns *= (told * (slower + 0.5 * dice.normal())).exp();
        truth.insert(point.params.clone(), 500.0 * slower.exp());
    }
    landscape.spread = 1.0;
    (landscape, truth)
}

/// What a call took over the best time, and whether it was a trial; for each of many calls, by whoever decides.
fn follow(
    seed: u64,
    told: f64,
    turn: impl Fn(&Adaptive<Strategy<Landscape>>, &mut Dice, &[(f64, bool)]) -> (Choice, bool),
) -> Vec<(f64, bool)> {
    let (landscape, truth) = bowl(seed, told);
    let least = truth.values().copied().fold(f64::INFINITY, f64::min);
    let adaptive = Adaptive::new(landscape.strategy(), seed);
    let mut dice = Dice::new(seed + 1000);
    let mut past = Vec::new();
    for _ in 0..CALLS {
        let (choice, trial) = turn(&adaptive, &mut dice, &past);
        let time = truth[&choice.params];
        let measured = time * (0.03 * dice.normal()).exp();
        let feedback = ran(adaptive.strategy(), &workload(64), choice, measured);
        adaptive.feedback(&feedback).unwrap();
        past.push((time / least - 1.0, trial));
    }
    past
}

fn adapting(seed: u64, told: f64) -> Vec<(f64, bool)> {
    follow(seed, told, |adaptive, _, _| {
        let turn = adaptive.turn(&workload(64), &quiet(), &Constraints::default());
        let turn = turn.unwrap();
        (turn.choice, turn.trial)
    })
}

/// As often, but anything.
fn at_random(seed: u64) -> Vec<(f64, bool)> {
    follow(seed, 0.0, |adaptive, dice, past| {
        let trials = past.iter().filter(|(_, trial)| *trial).count() as f64;
        if !past.is_empty() && trials < 2.0 * ((past.len() + 1) as f64).sqrt() {
            let points = &adaptive.strategy().priced().points;
            let any = &points[dice.below(points.len())];
            return (Choice::of(any.params.clone()), true);
        }
        (best(adaptive.strategy(), &workload(64)).best.choice, false)
    })
}

/// On landscapes whose prices say nothing, over 20 seeds: what is lost over the best grows slower than the calls, and is less than what
/// as many random trials lose.
#[test]
fn regret_grows_slower_than_calls_and_less_than_at_random() {
    let sum = |past: &[(f64, bool)]| past.iter().map(|(regret, _)| regret).sum::<f64>();
    let (mut quarter, mut all, mut random, mut wins, mut last) = (0.0, 0.0, 0.0, 0, 0.0);
    let mut informed = 0.0;
    for seed in 0..20 {
        let (own, other) = (adapting(seed, 0.0), at_random(seed));
        quarter += sum(&own[..CALLS / 4]);
        all += sum(&own);
        informed += sum(&adapting(seed, 1.0));
        random += sum(&other);
        wins += u32::from(sum(&own) < sum(&other));
        let served = own[CALLS - 50..].iter().filter(|(_, trial)| !trial);
        last += served.map(|(regret, _)| *regret).fold(0.0, f64::max);
        let trials = own.iter().filter(|(_, trial)| *trial).count() as f64;
        assert!(
            trials <= 2.0 * (CALLS as f64).sqrt() + 1.0,
            "{trials} trials"
        );
    }
    // Growing with the calls would be 4, with their root 2.
    assert!(all < 2.5 * quarter, "{all} after {quarter}");
    assert!(all < 0.7 * random, "{all}, at random {random}");
    assert!(
        informed < 0.5 * all,
        "{informed} with prices, {all} without"
    );
    assert!(wins >= 17, "{wins} of 20");
    // What serves in the end is the best there is, or nearly.
    assert!(last / 20.0 < 0.05, "{} in the end", last / 20.0);
}

/// What is sure to be slower is not tried.
#[test]
fn what_is_sure_to_be_slower_is_not_tried() {
    let mut landscape = Landscape::of(&[1000.0, 1e9, 1100.0, 1e9, 1200.0, 1e9]);
    landscape.spread = 0.1;
    let adaptive = Adaptive::new(landscape.strategy(), 1);
    let on = workload(64);
    let mut tried = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let turn = adaptive
            .turn(&on, &quiet(), &Constraints::default())
            .unwrap();
        tried.insert(x(&turn.choice));
        let price = adaptive
            .strategy()
            .priced()
            .price(&on, &turn.choice)
            .unwrap();
        let feedback = ran(adaptive.strategy(), &on, turn.choice, price.time_ns.get());
        adaptive.feedback(&feedback).unwrap();
    }
    assert!(tried.contains(&0) && tried.len() > 1, "{tried:?}");
    assert!(tried.iter().all(|x| x % 2 == 0), "{tried:?}");
}

/// A choice that fails when tried is not tried again, and calls go on.
#[test]
fn trials_that_fail_are_remembered() {
    let adaptive = Adaptive::new(Landscape::of(&[1000.0; 8]).strategy(), 3);
    let on = workload(64);
    let mut failures = vec![0; 8];
    for _ in 0..100 {
        let turn = adaptive
            .turn(&on, &quiet(), &Constraints::default())
            .unwrap();
        let choice = x(&turn.choice);
        let mut feedback = ran(adaptive.strategy(), &on, turn.choice, 900.0);
        if choice != 5 {
            failures[choice as usize] += 1;
            feedback.outcome = Outcome::Failed {
                why: "crash".into(),
            };
        }
        adaptive.feedback(&feedback).unwrap();
    }
    assert!(failures.iter().all(|count| *count <= 1), "{failures:?}");
    assert_eq!(x(&best(adaptive.strategy(), &on).best.choice), 5);
}
