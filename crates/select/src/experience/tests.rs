use super::*;

fn problem(size: f32) -> Problem {
    Problem::new(vec![size, size.ln()], f64::from(size))
        .alike(&"kind", f64::from(size))
        .on_line(&"all", f64::from(size.ln()))
}

/// ln of the time of an arm: the first has little to set up, the second is faster per element.
fn ln_t(arm: usize, size: f32) -> f64 {
    let size = f64::from(size);
    [10.0 + size, 100.0 + 0.25 * size][arm].ln()
}

/// Sizes from 2 to 2000, some more than once.
fn sizes() -> impl Iterator<Item = f32> {
    (0..200).map(|i| 2.0 * 1.035f32.powi((i * 77) % 200))
}

fn leave(experience: &mut Experience, id: ProblemId) {
    experience.leave(id);
    if experience.is_due() {
        experience.refit();
    }
}

fn experienced(arms: &[usize]) -> Experience {
    let mut experience = Experience::new(1);
    for size in sizes() {
        let id = experience.meet(problem(size), vec![true; 2]);
        for arm in arms {
            experience.observe(id, *arm, ln_t(*arm, size));
        }
        leave(&mut experience, id);
    }
    experience
}

#[test]
fn sizes_between_those_that_were_seen_are_foreseen() {
    let mut experience = experienced(&[0, 1]);
    assert!(experience.fits() > 3);
    for size in [5.0, 31.0, 77.0, 150.0, 555.0, 1500.0] {
        let id = experience.meet(problem(size), vec![true; 2]);
        let outlook: Vec<Outlook> = experience.outlook(id).into_iter().flatten().collect();
        for (arm, outlook) in outlook.iter().enumerate() {
            let off = (outlook.time.mean - ln_t(arm, size)).abs();
            assert!(off < 0.15, "{arm} at {size}: off by {off}");
        }
        let better = usize::from(ln_t(1, size) < ln_t(0, size));
        let gap = (ln_t(0, size) - ln_t(1, size)).abs();
        if gap > 0.2 {
            assert!(
                outlook[better].slowdown < outlook[1 - better].slowdown,
                "at {size}"
            );
        }
    }
}

#[test]
fn what_never_ran_is_not_guessed() {
    let mut experience = experienced(&[0]);
    let id = experience.meet(problem(100.0), vec![true; 2]);
    let outlook = experience.outlook(id);
    assert!(outlook[0].is_some() && outlook[1].is_none());
    // Nor what may not.
    let id = experience.meet(problem(100.0), vec![false, true]);
    assert_eq!(experience.outlook(id), [None, None]);
    let nothing = Experience::new(1);
    assert_eq!(nothing.outlook(ProblemId(0)), []);
}

#[test]
fn before_the_first_fit_the_mean_speaks() {
    let mut experience = Experience::new(1);
    for size in [10.0, 20.0] {
        let id = experience.meet(problem(size), vec![true]);
        experience.observe(id, 0, f64::from(size).ln() + 1.0);
        leave(&mut experience, id);
    }
    assert_eq!(experience.fits(), 0);
    let id = experience.meet(problem(40.0), vec![true]);
    let outlook = experience.outlook(id)[0].unwrap();
    assert!((outlook.time.mean - (40f64.ln() + 1.0)).abs() < 1e-6);
    assert_eq!(outlook.slowdown, 0.0);
    // A second look at a run replaces the first.
    experience.observe(id, 0, 40f64.ln() + 1.0);
    experience.observe(id, 0, 40f64.ln() + 4.0);
    let next = experience.meet(problem(80.0), vec![true]);
    let outlook = experience.outlook(next)[0].unwrap();
    assert!((outlook.time.mean - (80f64.ln() + 2.0)).abs() < 1e-6);
}

#[test]
fn a_neighbour_corrects_what_the_models_get_wrong() {
    let mut experience = experienced(&[0, 1]);
    let foreseen = |experience: &mut Experience| {
        let id = experience.meet(problem(300.0), vec![true; 2]);
        experience.outlook(id)[0].unwrap().time.mean
    };
    let before = foreseen(&mut experience);
    // Close by it was half as fast again, in a way no model knows of yet.
    for _ in 0..6 {
        let id = experience.meet(problem(301.0), vec![true; 2]);
        experience.observe(id, 0, ln_t(0, 301.0) + 0.5);
        leave(&mut experience, id);
    }
    assert!(foreseen(&mut experience) > before + 0.1);
}

#[test]
fn errors_are_known_from_what_came_after() {
    let sd = |noise: f64| {
        let mut experience = Experience::new(1);
        for (i, size) in sizes().chain(sizes()).enumerate() {
            let id = experience.meet(problem(size), vec![true]);
            let sign = if (i * 7919) % 13 < 6 { 1.0 } else { -1.0 };
            experience.observe(id, 0, ln_t(0, size) + sign * noise);
            leave(&mut experience, id);
        }
        let id = experience.meet(problem(50.0), vec![true]);
        experience.outlook(id)[0].unwrap().time.sd
    };
    let (calm, wild) = (sd(0.0), sd(0.4));
    assert!(calm < 0.25 && wild > 0.3, "{calm} {wild}");
}

#[test]
fn the_oldest_make_room_and_are_not_written_to() {
    let mut experience = Experience::new(1);
    let first = experience.meet(problem(10.0), vec![true]);
    experience.observe(first, 0, 1.0);
    experience.leave(first);
    experience.forget(1);
    experience.observe(first, 0, 5.0);
    experience.leave(first);
    assert_eq!(experience.outlook(first), []);
    assert!(experience.lines.is_empty());
    let next = experience.meet(problem(10.0), vec![true]);
    assert_ne!(next, first);
    // An arm that is not there, a time that is none.
    experience.observe(next, 7, 1.0);
    experience.observe(next, 0, f64::NAN);
    assert_eq!(experience.runs, 1);
}

#[test]
fn models_fitted_beside_are_taken_over() {
    let mut experience = experienced(&[0, 1]);
    let mut beside = experience.clone();
    // Meanwhile more is seen.
    let late = experience.meet(problem(60.0), vec![true; 3]);
    experience.observe(late, 0, ln_t(0, 60.0) + 1.0);
    experience.leave(late);
    // And something that was seen before turns out otherwise.
    let first = ProblemId(0);
    let y = ln_t(0, sizes().next().unwrap());
    experience.observe(first, 0, y + 2.0);
    let fits = experience.fits();
    beside.refit();
    experience.adopt(beside.clone());
    assert_eq!(experience.fits(), fits + 1);
    let off = experience.seen.last().unwrap().errors[0].time.unwrap();
    let early = experience.seen[0].errors[0].time.unwrap();
    assert!((early - 2.0).abs() < 0.3, "{early}");
    assert!((off - 1.0).abs() < 0.2, "{off}");
    let foresee = |experience: &mut Experience| {
        let id = experience.meet(problem(500.0), vec![true; 2]);
        experience.outlook(id)[1].unwrap().time.mean
    };
    assert!((foresee(&mut experience) - foresee(&mut beside)).abs() < 0.05);
}

#[test]
fn a_small_memory_keeps_the_latest() {
    let mut experience = Experience::with_capacity(1, 100);
    for size in sizes().chain(sizes()) {
        let id = experience.meet(problem(size), vec![true]);
        experience.observe(id, 0, ln_t(0, size));
        leave(&mut experience, id);
        assert!(experience.seen.len() <= 100);
    }
    let id = experience.meet(problem(100.0), vec![true]);
    let outlook = experience.outlook(id)[0].unwrap();
    assert!(outlook.fitted && (outlook.time.mean - ln_t(0, 100.0)).abs() < 0.3);
}

#[test]
fn nine_in_ten_times_lie_in_their_intervals() {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
    // Noise of many small and some large steps: a mean distance says little about its tails.
    let mut noise = || {
        let wide = if random.random::<f64>() < 0.12 {
            1.0
        } else {
            0.05
        };
        wide * (random.random::<f64>() - 0.5)
    };
    let mut experience = Experience::new(1);
    let (mut held, mut count) = (0.0, 0.0);
    for i in 0..1500 {
        let size = 2.0 * 1.0051f32.powi((i * 977) % 1499);
        let id = experience.meet(problem(size), vec![true]);
        let y = ln_t(0, size) + noise();
        if let Some(Some(Outlook { time, .. })) = experience.outlook(id).first()
            && i >= 300
        {
            held += f64::from(u8::from((y - time.mean).abs() <= NINETY * time.sd));
            count += 1.0;
        }
        experience.observe(id, 0, y);
        leave(&mut experience, id);
    }
    let share = held / count;
    assert!((0.87..=0.94).contains(&share), "{share} of {count}");
    assert_eq!(experience.measured(0), 1500);
}
