//! Sessions: cancelled, cut short, resumed, finished, and not ours.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use kernelwise_measure::{ScriptedClock, TscClock};

use super::super::{Conclusion, Ended, SessionError, Spec, TuneError, tune};
use super::{Program, runs};
use crate::recorded::Record;
use crate::space::Configuration;

const SPEC: &str = r#"
name = "resumed"
files = ["run.sh"]
restrictions = ["x + y <= 24"]
[parameters]
x = { from = 0, to = 15 }
y = { from = 0, to = 15 }
[run]
command = ["sh", "{spec_dir}/run.sh", "{x}", "{y}", "{spec_dir}"]
[repeat]
warm_up = 0
runs = 1
[time]
from = "output"
pattern = 'took ([0-9]+)'
unit = "us"
[budget]
evaluations = 24
"#;

/// Best at 9 and 4; every ninth fails.
const SCRIPT: &str = r#"
echo $1,$2 >> $3/log
[ $((($1 * 5 + $2) % 9)) = 1 ] && exit 1
echo took $((100 + ($1 - 9) * ($1 - 9) + ($2 - 4) * ($2 - 4)))
"#;

#[test]
fn an_interrupted_session_ends_as_if_it_had_not_been() {
    let never = AtomicBool::new(false);
    let straight = Program::new(SPEC, SCRIPT);
    let mut asked = Vec::new();
    let whole = straight
        .watched(&never, &mut |_, evaluated| {
            asked.push(evaluated.configuration.clone())
        })
        .unwrap();
    assert_eq!(
        (whole.evaluations, whole.resumed, whole.ended),
        (24, 0, Ended::Evaluations)
    );

    let broken = Program::new(SPEC, SCRIPT);
    let mut pieces: Vec<Configuration> = Vec::new();
    for piece in [3, 1, 9] {
        let stop = AtomicBool::new(false);
        let before = pieces.len();
        let part = broken.watched(&stop, &mut |_, evaluated| {
            pieces.push(evaluated.configuration.clone());
            stop.store(pieces.len() == before + piece, Ordering::Relaxed);
        });
        let part = part.unwrap();
        assert_eq!(part.ended, Ended::Cancelled);
        assert_eq!(
            (part.resumed, part.evaluations),
            (before as u64, (before + piece) as u64)
        );
        // Killed while writing.
        let mut file = OpenOptions::new()
            .append(true)
            .open(broken.path("spec.session"))
            .unwrap();
        file.write_all(b"{\"evaluation\":{\"configura").unwrap();
    }
    let rest = broken.watched(&never, &mut |_, evaluated| {
        pieces.push(evaluated.configuration.clone())
    });
    let rest = rest.unwrap();
    assert_eq!(rest.resumed, 13);
    assert_eq!(pieces, asked, "none twice, and the same ones");
    assert_eq!(rest.best, whole.best);
    assert_eq!(rest.failures, whole.failures);

    // Finished: nothing runs any more.
    let log = broken.read("log");
    let again = broken.tune().unwrap();
    assert_eq!(broken.read("log"), log);
    assert_eq!(
        (again.resumed, again.best, again.gain),
        (24, rest.best, rest.gain)
    );

    // More to spend: it goes on from there.
    broken.write(
        "spec.toml",
        &SPEC
            .replace("= 24\n", "= 30\n")
            .replace("[run]", "[run]\ntimeout = 20"),
    );
    let more = broken.tune().unwrap();
    assert_eq!((more.resumed, more.evaluations), (24, 30));
}

#[test]
fn what_was_found_is_written_as_others_read_it() {
    let spec = SPEC.replace("files =", "device = \"Acme 1\"\nfiles =");
    let program = Program::new(&spec, SCRIPT);
    let found = program.tune().unwrap();
    for path in [found.cache.unwrap(), found.t4.unwrap()] {
        let record = Record::open(&path).unwrap();
        assert_eq!(record.entries.len(), 24);
        assert_eq!(record.kernel, "resumed");
        assert_eq!(record.device, "Acme 1");
        let best = found.best.as_ref().unwrap().time;
        assert!((record.best().unwrap() / best - 1.0).abs() < 1e-9);
        let failed = record
            .entries
            .iter()
            .filter(|entry| entry.result.is_err())
            .count();
        assert_eq!(failed as u64, found.failures[0].count);
    }
}

#[test]
fn another_program_does_not_go_on_with_a_session() {
    let program = Program::new(SPEC, SCRIPT);
    let session = program.path("spec.session");
    program.tune().unwrap();
    program.write("run.sh", &SCRIPT.replace("100 +", "90 +"));
    assert!(matches!(
        program.tune(),
        Err(TuneError::Session(SessionError::Other(_)))
    ));
    program.write("run.sh", SCRIPT);
    let text = program.read("spec.session");
    let second = text.lines().nth(1).unwrap();
    fs::write(&session, text.replace(second, "{\"garbage\": 1}")).unwrap();
    match program.tune() {
        Err(TuneError::Session(SessionError::Line { line, .. })) => assert_eq!(line, 2),
        other => panic!("{other:?}"),
    }
    fs::write(&session, text.replacen("\"x\":", "\"z\":", 1)).unwrap();
    assert!(matches!(
        program.tune(),
        Err(TuneError::Session(SessionError::Line { .. }))
    ));
    // Not a session at all, with or without an end of line: it is left as it is.
    for notes in [
        "my notes\n",
        "my notes",
        "\n",
        "\n\nnotes\n",
        "{\"session\":{}}\n",
    ] {
        fs::write(&session, notes).unwrap();
        match program.tune() {
            Err(TuneError::Session(error @ SessionError::NotOurs(_))) => {
                assert!(
                    error
                        .to_string()
                        .contains("spec.session is not a session file")
                );
            }
            other => panic!("{notes}: {other:?}"),
        }
        assert_eq!(program.read("spec.session"), notes);
    }
    // Killed while the first line was written: it begins anew.
    fs::write(&session, &text.as_bytes()[..20]).unwrap();
    assert_eq!(program.tune().unwrap().resumed, 0);
}

#[test]
fn every_run_has_seconds_of_its_own() {
    let text = SPEC.replace("evaluations = 24", "seconds = 2\nevaluations = 200");
    let mut program = Program::new(&text, SCRIPT);
    program.clock = Box::new(ScriptedClock::with_cost(20_000_000));
    let first = program.tune().unwrap();
    assert_eq!(first.ended, Ended::Seconds);
    let second = program.tune().unwrap();
    assert_eq!(second.resumed, first.evaluations);
    assert!(second.evaluations > first.evaluations, "{second:?}");
    assert!(second.seconds > first.seconds);
}

#[test]
fn a_session_begins_from_records_and_stops_when_more_is_not_worth_it() {
    let elsewhere = Program::new(&SPEC.replace("= 24", "= 120"), SCRIPT);
    let found = elsewhere.tune().unwrap();
    assert_eq!(found.warm_records, 0);
    let record = fs::read(found.cache.unwrap()).unwrap();
    let program = Program::new(
        &SPEC.replace("files =", "warm = [\"there.json\"]\nfiles ="),
        SCRIPT,
    );
    fs::write(program.path("there.json"), record).unwrap();
    let mut asked = Vec::new();
    let warm = program
        .watched(&AtomicBool::new(false), &mut |spec, evaluated| {
            asked.push(spec.space().describe(&evaluated.configuration));
        })
        .unwrap();
    assert_eq!((warm.warm_records, warm.ended), (1, Ended::Evaluations));
    // The default first, because gains are told against it; then what did best there, or next to it.
    assert_eq!(asked[0], "x=0, y=0");
    let near = |text: &String| {
        let numbers: Vec<i32> = text
            .split(['=', ','])
            .filter_map(|n| n.trim().parse().ok())
            .collect();
        (numbers[0] - 9).abs() + (numbers[1] - 4).abs() <= 3
    };
    assert!(asked[1..4].iter().all(near), "{asked:?}");
    // A handful of runs does not pay for compiling and measuring.
    let program = Program::new(&SPEC.replace("files =", "runs = 1\nfiles ="), SCRIPT);
    let found = program.tune().unwrap();
    assert_eq!(found.ended, Ended::NotWorth);
    assert!(found.evaluations < 24);
}

#[test]
fn a_session_that_is_under_way_is_left_alone() {
    let program = Program::new(SPEC, SCRIPT);
    let never = AtomicBool::new(false);
    let (mut refused, mut other) = (0, None);
    let found = program.watched(&never, &mut |spec, _| {
        let second = tune(spec, &spec.session(), &TscClock::new(), &never, &mut |_| {});
        refused += u64::from(matches!(
            second,
            Err(TuneError::Session(SessionError::Busy(_)))
        ));
        // Another one of nearly the same name is none of its business.
        let beside = spec.session().with_extension("other");
        other
            .get_or_insert_with(|| tune(spec, &beside, &ScriptedClock::new(), &never, &mut |_| {}));
    });
    let (found, other) = (found.unwrap(), other.unwrap().unwrap());
    assert_eq!((found.evaluations, other.evaluations), (refused, refused));
    assert_eq!((found.best, found.failures), (other.best, other.failures));
}

#[test]
fn folders_of_killed_sessions_go_and_those_of_others_stay() {
    let program = Program::new(SPEC, SCRIPT);
    let work = program.path("spec.session.work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("thesis.tex"), "precious").unwrap();
    assert!(matches!(program.tune(), Err(TuneError::NotOurs(_))));
    assert_eq!(program.read("spec.session.work/thesis.tex"), "precious");
    fs::write(work.join(super::super::room::SIGN), "").unwrap();
    program.tune().unwrap();
    assert!(!work.exists());
}

#[test]
fn cancelling_ends_a_run_under_way_and_forgets_it() {
    let hanging = "echo $$ >> $3/log\n[ $1 = 0 ] || sleep 100\necho took 7\n";
    let program = Program::new(&SPEC.replace("[run]", "[run]\ntimeout = 90"), hanging);
    let stop = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The default ends by itself; the first that does not is under way.
            while !program.read("log").lines().any(runs)
                || program.read("spec.session").lines().count() < 2
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        program.watched(&stop, &mut |_, _| {}).unwrap()
    });
    assert_eq!(found.ended, Ended::Cancelled);
    let begun = program.read("log").lines().count() as u64;
    assert_eq!(found.evaluations, begun - 1);
    assert!(!program.read("log").lines().any(runs));
    assert!(!program.path("spec.session.work").exists());
}

#[test]
fn the_budget_in_seconds_ends_runs_under_way() {
    let text = SPEC
        .replace("evaluations = 24", "seconds = 3")
        .replace("[run]", "[run]\ntimeout = 90");
    let mut program = Program::new(&text, "[ $1$2 = 00 ] || sleep 100\necho took 7\n");
    program.clock = Box::new(ScriptedClock::with_cost(20_000_000));
    let found = program.tune().unwrap();
    assert_eq!((found.ended, found.evaluations), (Ended::Seconds, 1));
    assert_eq!(found.conclusion, Conclusion::DefaultIsBest);
}

#[test]
fn differences_too_small_to_matter_are_called_so() {
    let text = SPEC.replace("= 15 }", "= 1 }");
    let nearly = Program::new(&text, "echo took $((10000 - $1 - $2))\n");
    let found = nearly.tune().unwrap();
    assert_eq!(found.conclusion, Conclusion::NoDifference);
    assert_eq!(found.as_good.len(), 3);
    let gain = found.gain.unwrap();
    assert!(gain.low > 1.0 && gain.high < 1.001, "{gain:?}");
    let none = Program::new(&text, "exit 1\n").tune().unwrap();
    assert_eq!(
        (none.conclusion, none.best, none.gain),
        (Conclusion::NothingWorks, None, None)
    );
    assert_eq!(none.failures[0].count, 4);
    let default_fails = Program::new(&text, "[ $1$2 = 00 ] && exit 1\necho took 1\n")
        .tune()
        .unwrap();
    assert_eq!(default_fails.conclusion, Conclusion::DefaultFails);
}

/// What the killed process of the test below is told: the folder of the program.
const TUNE_HERE: &str = "KERNELWISE_TEST_TUNE_HERE";

#[cfg(target_os = "linux")]
#[test]
fn after_a_kill_it_goes_on_and_orphans_are_gone() {
    if let Some(folder) = std::env::var_os(TUNE_HERE) {
        let spec = Spec::open(&Path::new(&folder).join("spec.toml")).unwrap();
        let never = AtomicBool::new(false);
        let _ = tune(
            &spec,
            &spec.session(),
            &ScriptedClock::new(),
            &never,
            &mut |_| {},
        );
        return;
    }
    // The sixth hangs until it is allowed to go on.
    let hang =
        "[ $(wc -l < $3/log) -gt 5 ] && ! [ -f $3/go ] && { echo $$ > $3/hung; exec sleep 300; }";
    let program = Program::new(
        SPEC,
        &SCRIPT.replacen("log\n", &format!("log\n{hang}\n"), 1),
    );
    let name = "external::tests::session::after_a_kill_it_goes_on_and_orphans_are_gone";
    let mut tuner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(TUNE_HERE, program.folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while program.read("hung").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(
            tuner.try_wait().unwrap().is_none(),
            "it ended without hanging"
        );
    }
    tuner.kill().unwrap();
    tuner.wait().unwrap();
    assert!(runs(&program.read("hung")), "nobody has ended it");
    assert!(program.path("spec.session.work").exists());

    program.write("go", "");
    let mut later = 0;
    let found = program
        .watched(&AtomicBool::new(false), &mut |_, _| later += 1)
        .unwrap();
    assert_eq!((found.resumed, found.evaluations, later), (5, 24, 19));
    assert!(!runs(&program.read("hung")));
    assert!(!program.path("spec.session.work").exists());
    // Those of the search: one line each, and one more of the one that hung. The rest are the finals.
    let log = program.read("log");
    let searched: Vec<&str> = log.lines().take(25).collect();
    let different: BTreeSet<&str> = searched.iter().copied().collect();
    assert_eq!(different.len(), 24, "{searched:?}");
}
