use kernelwise_select::{Budget, Policy};

use crate::{StaticOrder, first_in_bucket, oracle};

use super::*;

/// Three algorithms whose places change with the sizes; the third cannot do every problem.
fn record() -> FindDb {
    let mut rows = String::from(
        "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
         dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_a,ms_b,ms_c\n",
    );
    for c in [3, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        for k in [8, 16, 24, 32, 64, 96, 128, 256] {
            for n in [1, 2, 4, 8, 16, 32] {
                let work = f64::from(c * k * n);
                let a = 5.0 + 0.02 * work;
                let b = 60.0 + 0.008 * work;
                let third = match c % 16 {
                    0 => format!("{}", 20.0 + 0.004 * work * f64::from(n).sqrt()),
                    _ => String::new(),
                };
                rows += &format!(
                    "2,{c},1,14,14,1,3,3,{k},1,14,14,{n},0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1,{a},{b},{third}\n"
                );
            }
        }
    }
    FindDb::read(rows.as_bytes()).unwrap()
}

fn setup(policy: &str, share: f64) -> Setup {
    Setup {
        rules: Rules {
            policy: policy.parse().unwrap(),
            budget: Budget {
                share,
                ..Budget::default()
            },
            ..Rules::default()
        },
        ..Setup::default()
    }
}

#[test]
fn learning_beats_every_fixed_order_and_stays_within_its_budget() {
    let record = record();
    for seed in 1..4 {
        let setup = Setup {
            seed,
            ..setup("bandit", 0.1)
        };
        let learned = replay(&record, &setup).unwrap();
        let order = order(&record, &setup);
        let fixed = StaticOrder::best(&record, &order).figures;
        assert!(
            learned.geo_slowdown < fixed.geo_slowdown,
            "{learned:?} {fixed:?}"
        );
        assert!(learned.geo_slowdown >= 1.0 && learned.trials > 0);
        assert_eq!((learned.invalid_picks, learned.budget_overruns), (0, 0));
        assert_eq!(learned.problems, record.problems.len());
        assert_eq!(oracle(&record, &order).geo_slowdown, 1.0);
    }
}

#[test]
fn less_to_spend_is_less_spent() {
    let record = record();
    let spent = |share| replay(&record, &setup("bandit", share)).unwrap();
    let (much, little) = (spent(0.2), spent(0.01));
    assert!(little.trials < much.trials && little.trial_share < much.trial_share);
    let none = Setup {
        rules: Rules {
            budget: Budget::NONE,
            ..Rules::default()
        },
        ..Setup::default()
    };
    let none = replay(&record, &none).unwrap();
    assert_eq!((none.trials, none.trial_share), (0, 0.0));
}

#[test]
fn every_policy_plays_and_the_same_seed_plays_the_same() {
    let record = record();
    for policy in Policy::NAMES {
        let setup = Setup {
            limit: 150,
            ..setup(policy, 0.1)
        };
        let figures = replay(&record, &setup).unwrap();
        assert_eq!(
            (figures.problems, figures.invalid_picks),
            (150, 0),
            "{policy}"
        );
        assert_eq!(replay(&record, &setup).unwrap(), figures, "{policy}");
        let other = Setup { seed: 2, ..setup };
        assert_ne!(replay(&record, &other).unwrap(), figures, "{policy}");
    }
    // Trying everything, it is seen that the budget is not asked.
    let all = replay(&record, &setup("exhaustive", 0.0)).unwrap();
    assert!(all.trial_share > 0.5 && all.budget_overruns > 0);
}

#[test]
fn noise_is_seen_by_the_learner_and_not_by_the_judge() {
    let record = record();
    let noisy = Setup {
        noise: 0.05,
        ..setup("bandit", 0.1)
    };
    let figures = replay(&record, &noisy).unwrap();
    assert_ne!(figures, replay(&record, &setup("bandit", 0.1)).unwrap());
    assert_eq!(figures.budget_overruns, 0);
    // Nothing is faster than the best, whatever was seen.
    assert!(figures.geo_slowdown >= 1.0 && figures.total_over_oracle >= 1.0);
    let wild = Setup {
        noise: f64::NAN,
        ..noisy
    };
    assert!(
        replay(&record, &wild)
            .unwrap_err()
            .to_string()
            .contains("0 to 1")
    );
}

#[test]
fn a_tuner_pays_for_every_bucket() {
    let record = record();
    let order = order(&record, &Setup::default());
    let tuned = first_in_bucket(&record, &order);
    assert!(tuned.geo_slowdown < 1.1 && tuned.trial_share > 0.1);
    // The best order in hindsight is no worse than the one declared.
    let best = StaticOrder::best(&record, &order);
    let mut sorted = best.order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2]);
    let declared = |problem: &Recorded| problem.times_ms[0].unwrap() / problem.best_ms();
    let logs: f64 = record.problems.iter().map(|p| declared(p).ln()).sum();
    let declared = (logs / record.problems.len() as f64).exp();
    assert!(best.figures.geo_slowdown <= declared);
}

#[test]
fn whoever_watches_may_break_off() {
    let record = record();
    let mut heard = Vec::new();
    let figures = replay_watched(&record, &Setup::default(), &mut |done| {
        heard.push(done);
        match done {
            20 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!(figures.unwrap().problems, 20);
    assert_eq!(heard, (0..=20).collect::<Vec<_>>());
}
