//! What candidates do to us: each is a failed configuration, nothing more, and nothing is left of it.

use kernelwise_measure::{ScriptedClock, TscClock};

use super::super::{Conclusion, Ended, FailureKind};
use super::{Program, runs};

/// One parameter, all its values tried, one run each.
fn spec(values: &str, more: &str) -> String {
    format!(
        r#"
name = "misbehaved"
files = ["run.sh"]
strategy = "exhaustive"
[parameters]
what = [{values}]
[run]
command = ["sh", "{{spec_dir}}/run.sh", "{{what}}", "{{spec_dir}}"]
timeout = 60
[repeat]
warm_up = 0
runs = 1
[time]
from = "output"
pattern = 'took ([^ ]+) ms'
unit = "ms"
{more}"#
    )
}

#[test]
fn whatever_a_candidate_does_is_a_failed_configuration() {
    let values =
        r#""fine", "garbage", "silent", "crash", "exit", "wrong", "endless", "negative", "gone""#;
    let program = Program::new(
        &spec(
            values,
            "[check]\npattern = 'sum 42'\n[limits]\noutput = 100_000\n",
        ),
        r#"
case $1 in
  fine) echo sum 42 took 2.5 ms;;
  garbage) head -c 5000 /dev/urandom; echo sum 42;;
  silent) ;;
  crash) kill -SEGV $$;;
  exit) echo "an error, sorry" >&2; exit 3;;
  wrong) echo sum 41 took 1 ms;;
  endless) while :; do echo sum 42 took 1 ms; done;;
  negative) echo sum 42 took -1 ms;;
  gone) rm -rf "$PWD"; echo sum 42 took 3 ms;;
esac
"#,
    );
    let (found, all) = program.all();
    let kind = |name: &str| {
        all[name]
            .result
            .as_ref()
            .map_err(|failed| failed.kind)
            .copied()
    };
    assert_eq!(kind("fine"), Ok(2.5e-3));
    assert_eq!(kind("gone"), Ok(3e-3), "it did run");
    assert_eq!(kind("garbage"), Err(FailureKind::NoTime));
    assert_eq!(kind("silent"), Err(FailureKind::Wrong));
    assert_eq!(kind("crash"), Err(FailureKind::Crash));
    assert_eq!(kind("exit"), Err(FailureKind::Exit));
    assert_eq!(kind("wrong"), Err(FailureKind::Wrong));
    assert_eq!(kind("endless"), Err(FailureKind::Output));
    assert_eq!(kind("negative"), Err(FailureKind::NoTime));
    let exit = all["exit"].result.as_ref().unwrap_err();
    assert_eq!(exit.message, "exit code 3: an error, sorry");

    assert_eq!(found.evaluations, 9);
    assert_eq!(found.ended, Ended::Nothing);
    // One that removes its folder cannot run twice there, and what does not work is not the best.
    assert_eq!(found.conclusion, Conclusion::DefaultIsBest);
    assert_eq!(found.best.unwrap().time, 2.5e-3);
    let wrong = found
        .failures
        .iter()
        .find(|one| one.kind == FailureKind::Wrong)
        .unwrap();
    assert_eq!(wrong.count, 2);
    assert!(
        wrong.first.contains("instead of `sum 42`"),
        "{}",
        wrong.first
    );
    let left = [
        "run.sh",
        "spec.session",
        "spec.session.cache.json",
        "spec.session.t4.json",
        "spec.toml",
    ];
    assert_eq!(program.files(), left);
}

#[test]
fn a_hang_ends_with_all_its_children() {
    let values = r#""fine", "hang", "children", "child""#;
    let text = spec(values, "").replace("timeout = 60", "timeout = 3");
    let mut program = Program::new(
        &text,
        r#"
case $1 in
  fine) echo took 1 ms;;
  hang) trap '' TERM INT HUP; echo $$ >> $2/pids; while :; do sleep 100; done;;
  children) sleep 100 & echo $! >> $2/pids; (trap '' HUP; sleep 100 & echo $! >> $2/pids; wait) & wait;;
  # Ends at once, and leaves a child that holds its output open.
  child) sleep 100 & echo $! >> $2/pids; echo took 2 ms;;
esac
"#,
    );
    program.clock = Box::new(ScriptedClock::with_cost(20_000_000));
    let (found, all) = program.all();
    for name in ["hang", "children"] {
        assert_eq!(
            all[name].result.as_ref().unwrap_err().kind,
            FailureKind::Timeout,
            "{name}"
        );
    }
    assert_eq!(all["child"].result, Ok(2e-3));
    assert_eq!(found.best.unwrap().time, 1e-3);
    let pids = program.read("pids");
    assert!(pids.lines().count() >= 4, "{pids}");
    assert_eq!(pids.lines().filter(|pid| runs(pid)).count(), 0, "{pids}");
}

#[cfg(target_os = "linux")]
#[test]
fn who_leaves_the_group_is_found_all_the_same() {
    let program = Program::new(
        &spec(r#""fine", "daemon""#, ""),
        r#"
if [ $1 = daemon ]; then
  setsid sh -c 'echo $$ >> '$2'/pids; exec sleep 100' </dev/null >/dev/null 2>&1 &
  while ! [ -s $2/pids ]; do sleep 0.01; done
fi
echo took 1 ms
"#,
    );
    let (_, all) = program.all();
    assert_eq!(all["daemon"].result, Ok(1e-3));
    let pids = program.read("pids");
    assert!(pids.lines().count() >= 1);
    assert_eq!(pids.lines().filter(|pid| runs(pid)).count(), 0, "{pids}");
}

#[cfg(target_os = "linux")]
#[test]
fn disk_processes_and_memory_are_bounded() {
    let values = r#""fine", "file", "files", "forks", "memory""#;
    let limits = "[limits]\ndisk = 2_000_000\nprocesses = 12\nmemory = 400_000_000\n";
    let mut program = Program::new(
        &spec(values, limits),
        r#"
case $1 in
  fine) ;;
  file) head -c 50000000 /dev/zero > big; echo went on;;
  files) i=0; while :; do head -c 500000 /dev/zero > $i; i=$((i+1)); sleep 0.01; done;;
  forks) while :; do sleep 100 & done;;
  memory) dd if=/dev/zero of=/dev/null bs=1G count=1 || exit 1;;
esac
echo took 1 ms
"#,
    );
    program.clock = Box::new(TscClock::new());
    let (_, all) = program.all();
    let kind = |name: &str| {
        all[name]
            .result
            .as_ref()
            .map_err(|failed| failed.kind)
            .copied()
    };
    assert_eq!(kind("fine"), Ok(1e-3));
    assert_eq!(kind("file"), Err(FailureKind::Disk));
    assert_eq!(kind("files"), Err(FailureKind::Disk));
    assert_eq!(kind("forks"), Err(FailureKind::Processes));
    assert_eq!(kind("memory"), Err(FailureKind::Exit));
}

#[test]
fn the_same_words_are_compiled_once_and_evaluations_do_not_meet() {
    let program = Program::new(
        r#"
name = "built"
strategy = "exhaustive"
[parameters]
level = [1, 2, 3, 4]
size = [10, 20]
[compile]
command = ["sh", "{spec_dir}/compile.sh", "{level}", "{work}/product", "{spec_dir}"]
timeout = 0.1
[run]
command = ["sh", "{spec_dir}/run.sh", "{work}/product"]
environment = { SIZE = "{size}" }
[repeat]
warm_up = 0
runs = 2
[time]
from = "json"
field = "took"
unit = "us"
"#,
        // Fails if another configuration was here before.
        r#"
[ "$(cat seen 2>/dev/null || echo $SIZE)" = $SIZE ] || exit 7
echo $SIZE > seen
echo "{\"took\": $(cat $1)$SIZE}"
"#,
    );
    program.write(
        "compile.sh",
        "echo $1 >> $3/compiled\n[ $1 = 2 ] && { echo 'spec: error: not 2' >&2; exit 1; }\n[ $1 = 4 ] && sleep 100\necho $1 > $2\n",
    );
    let found = program.tune().unwrap();
    assert_eq!(program.read("compiled"), "1\n2\n3\n4\n");
    assert_eq!(found.evaluations, 8);
    let [failed, hung] = &found.failures[..] else {
        panic!("{:?}", found.failures);
    };
    assert_eq!((failed.kind, failed.count), (FailureKind::Compile, 2));
    assert_eq!(failed.first, "exit code 1: spec: error: not 2");
    assert_eq!((hung.kind, hung.count), (FailureKind::CompileTimeout, 2));
    assert!((found.best.unwrap().time - 110e-6).abs() < 1e-12);
}

#[test]
fn a_command_can_check_and_the_clock_can_time() {
    let mut program = Program::new(
        r#"
name = "checked"
strategy = "exhaustive"
[parameters]
what = ["right", "wrong"]
slow = [true, false]
[run]
command = ["sh", "{spec_dir}/run.sh", "{what}", "{slow}"]
timeout = 60
[repeat]
warm_up = 0
runs = 1
[check]
command = ["grep", "-q", "right", "{output}"]
"#,
        "[ $2 = true ] && sleep 0.3\necho $1\n",
    );
    program.clock = Box::new(TscClock::new());
    let found = program.tune().unwrap();
    assert_eq!(
        (found.failures[0].kind, found.failures[0].count),
        (FailureKind::Wrong, 2)
    );
    assert_eq!(found.conclusion, Conclusion::Faster);
    assert_eq!(found.best.unwrap().values["slow"], false.into());
    assert!(found.default.unwrap().time > 0.3, "sleeping is part of it");
    assert!(found.gain.unwrap().low > 1.0);
}
