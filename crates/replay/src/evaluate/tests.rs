//! On a record whose law is known: who learns it, and what is reported of them.

use kernelwise_measure::ScriptedClock;
use kernelwise_model::WidthMismatch;

use super::*;

/// Three algorithms: one for few channels, one for many, one that is rare and slow.
fn record(problems: usize) -> FindDb {
    let mut rows = String::from(
        "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
         dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_direct,ms_gemm,ms_rare\n",
    );
    for i in 0..problems {
        let (c, k) = (1 + i % 200, 1 << (i % 7));
        let work = (c * k) as f64;
        // Up to a tenth of noise, from digits nobody can guess.
        let noise = |salt: f64| 1.0 + 0.1 * (1e4 * (i as f64 + salt).sin()).fract();
        let (direct, gemm) = (work * noise(0.0), (500.0 + 0.25 * work) * noise(0.3));
        let rare = if i % 25 == 0 {
            (3.0 * work).to_string()
        } else {
            String::new()
        };
        rows += &format!(
            "2,{c},1,8,8,1,3,3,{k},1,8,8,1,0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1,{direct},{gemm},{rare}\n"
        );
    }
    FindDb::read(rows.as_bytes()).unwrap()
}

fn on(record: &FindDb, contenders: &[Contender]) -> Result<Evaluation, EvaluateError> {
    let clock = ScriptedClock::with_cost(7);
    let go_on = |_: Progress<'_>| ControlFlow::Continue(());
    evaluate(record, contenders, &Setup::default(), &clock, &go_on)
}

#[test]
fn models_that_learn_choose_better_than_any_order() {
    let record = record(1400);
    let kinds = ModelKind::ALL.map(Contender::from);
    let evaluation = on(&record, &kinds).unwrap();
    assert_eq!(
        (evaluation.train_problems, evaluation.test_problems),
        (700, 700)
    );
    assert_eq!(evaluation.oracle.geo_slowdown, 1.0);
    let fixed = evaluation.static_order_figures.geo_slowdown;
    assert!(fixed > 1.3, "{fixed}");
    for model in &evaluation.models {
        assert!(model.geo_slowdown < 1.0 + 0.5 * (fixed - 1.0), "{model:?}");
        let coverage = model.coverage_90.unwrap();
        assert!((0.82..=0.99).contains(&coverage), "{model:?}");
        assert!(1.0 <= model.median_error_factor, "{model:?}");
        assert!(
            model.median_error_factor <= model.p90_error_factor && model.p90_error_factor < 2.0
        );
        // The clock moves by 7 ns with each look.
        let seconds = if model.name.contains("with") {
            14e-9
        } else {
            7e-9
        };
        assert!((model.train_s - seconds).abs() < 1e-12, "{model:?}");
        assert!((0.0..7.0 / 700.0).contains(&model.predict_ns), "{model:?}");
        assert_eq!(model.sampled_to, None);
    }
    let names = evaluation.models.iter().map(|model| model.name.as_str());
    let names: Vec<&str> = names.filter(|name| !name.contains("with")).collect();
    assert_eq!(names, ModelKind::NAMES);
    // Whatever the threads did, the same again.
    let again = on(&record, &kinds).unwrap();
    let choices =
        |e: &Evaluation| -> Vec<f64> { e.models.iter().map(|m| m.geo_slowdown).collect() };
    assert_eq!(choices(&again), choices(&evaluation));
}

/// Somebody's own: knows the law of the record, or fails.
#[derive(Debug)]
struct Insider {
    fails: bool,
    most_rows: usize,
}

#[derive(Debug)]
struct Law(f32);

impl Regressor for Insider {
    fn train(&self, table: &Table, _: u64) -> Result<Box<dyn Predict>, FitError> {
        if self.fails {
            return Err(FitError::Other("out of ideas".to_owned()));
        }
        let sum: f32 = table.rows().map(|(_, target, _)| target).sum();
        match table.len() {
            0 => Err(FitError::Empty),
            rows => Ok(Box::new(Law(sum / rows as f32))),
        }
    }

    fn most_rows(&self) -> usize {
        self.most_rows
    }
}

impl Predict for Law {
    fn predict(&self, _: &[f32]) -> Result<f32, WidthMismatch> {
        Ok(self.0)
    }

    fn width(&self) -> usize {
        0
    }
}

fn insider(fails: bool, most_rows: usize, try_slowdowns: bool) -> Contender {
    Contender {
        name: "insider".to_owned(),
        settings: Box::new(Insider { fails, most_rows }),
        try_slowdowns,
    }
}

#[test]
fn a_model_from_outside_takes_part_and_its_failure_is_named() {
    let record = record(300);
    let evaluation = on(&record, &[insider(false, 100, true)]).unwrap();
    // A mean per algorithm is an order of preference, and slowdowns make no other of it.
    let [model, beside] = evaluation.models.as_slice() else {
        panic!("{evaluation:?}");
    };
    // What is no better is told all the same.
    assert_eq!(beside.name, "insider with slowdowns");
    assert!(beside.geo_slowdown >= model.geo_slowdown - 1e-12);
    assert!(model.geo_slowdown >= evaluation.static_order_figures.geo_slowdown - 1e-12);
    assert_eq!(
        (model.name.as_str(), model.sampled_to),
        ("insider", Some(100))
    );
    let failed = on(&record, &[insider(true, 100, false)])
        .unwrap_err()
        .to_string();
    assert!(
        failed.contains("insider cannot be fitted to the times of"),
        "{failed}"
    );
    assert!(failed.contains("out of ideas"), "{failed}");
}

#[test]
fn an_algorithm_that_was_never_seen_is_not_chosen() {
    // Two problems: one to learn from, which has no time of the rare one or has nothing else to say.
    let evaluation = on(&record(2), &[ModelKind::BoostedTrees.into()]).unwrap();
    assert_eq!(evaluation.models[0].coverage_90, None);
    assert_eq!(on(&record(1), &[]), Err(EvaluateError::TooFew(1)));
}

#[test]
fn whoever_watches_hears_every_fit_and_may_break_off() {
    let heard = Mutex::new(Vec::new());
    let clock = ScriptedClock::with_cost(7);
    let contenders = [Contender::from(ModelKind::Ridge)];
    let run = |until: usize| {
        heard.lock().unwrap().clear();
        evaluate(
            &record(60),
            &contenders,
            &Setup::default(),
            &clock,
            &|progress| {
                assert_eq!((progress.name, progress.of), ("ridge", 6));
                heard.lock().unwrap().push(progress.done);
                match progress.done < until {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            },
        )
    };
    assert!(run(usize::MAX).is_ok());
    heard.lock().unwrap().sort_unstable();
    assert_eq!(*heard.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(run(0), Err(EvaluateError::BrokenOff));
}
