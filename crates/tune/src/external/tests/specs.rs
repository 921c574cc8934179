//! Specifications that are none: found before anything runs, and said with file, line and remedy.

use std::path::Path;

use super::super::{Spec, SpecError, SpecProblem};
use crate::space::NoneAllowed;

const GOOD: &str = r#"name = "n"
restrictions = [
  "tile % 2 == 0",
]
[parameters]
tile = [2, 4]
flags = ["", "-O2"]
[run]
command = [
  "echo",
  "{tile}",
  "{flags}",
]
[time]
from = "output"
pattern = "(.*)"
unit = "s"
"#;

/// The line and the message, with one piece of the good one replaced.
fn problem(piece: &str, by: &str) -> (usize, String) {
    assert!(GOOD.contains(piece), "{piece}");
    match Spec::parse(&GOOD.replacen(piece, by, 1), Path::new("dir/s.toml")) {
        Err(SpecError::Line {
            path,
            line,
            problem,
        }) => {
            assert_eq!(path, Path::new("dir/s.toml"));
            (line, problem.to_string())
        }
        other => panic!("{by}: {other:?}"),
    }
}

#[test]
fn the_good_one_is_good() {
    let spec = Spec::parse(GOOD, Path::new("dir/s.toml")).unwrap();
    assert_eq!(spec.space().points(), 4);
    assert_eq!(spec.session(), Path::new("dir/s.session"));
}

#[test]
fn every_mistake_has_a_line_and_a_remedy() {
    for (piece, by, line, words) in [
        (
            "\"{tile}\"",
            "\"-T{tiel}\"",
            11,
            "`{tiel}` is unknown: did you mean `tile`? (there are {tile}, {flags}, {work}, {spec_dir}; `{{` is a brace) at character 3 of `-T{tiel}`",
        ),
        (
            "\"{tile}\"",
            "\"{tile}{output}\"",
            11,
            "`{output}` is unknown",
        ),
        ("\"{flags}\"", "\"{flags\"", 12, "a brace is not closed"),
        (
            "tile % 2 == 0",
            "tile %% 2",
            3,
            "at character 7 of `tile %% 2`",
        ),
        (
            "tile % 2 == 0",
            "tiel > 2",
            3,
            "at character 1 of `tiel > 2`",
        ),
        ("tile % 2 == 0", "flags * 2 > 3", 3, "cannot be computed"),
        ("tile % 2 == 0", "tile > 9", 3, "allow no configuration"),
        ("tile = [2, 4]", "tile = []", 6, "has no values"),
        ("tile = [2, 4]", "tile = [2, 2]", 6, "the value 2 twice"),
        (
            "tile = [2, 4]",
            "tile = 3",
            6,
            "{ from = 1, to = 8, step = 1 }",
        ),
        ("tile = [2, 4]", "tile = [[1]]", 6, "needs a list of values"),
        (
            "tile = [2, 4]",
            "tile = { from = 4, to = 2 }",
            6,
            "is not one",
        ),
        (
            "tile = [2, 4]",
            "tile = { from = 0, to = 8, times = 2 }",
            6,
            "is not one",
        ),
        (
            "tile = [2, 4]",
            "tile = { from = 1, to = 9_000_000 }",
            6,
            "at most 65536",
        ),
        (
            "tile = [2, 4]",
            "tile = [2, 4]\nwork = [1]",
            7,
            "cannot be called `work`",
        ),
        (
            "tile = [2, 4]",
            "tile = [2, 4]\nidle = [1, 2]",
            7,
            "put {idle} into a command",
        ),
        (
            "\"echo\"",
            "\"no-such-program-here\"",
            9,
            "install it, or give its path",
        ),
        ("[run]", "[run]\ntimeout = 0.0", 9, "above zero"),
        ("[run]", "[run]\ntimeout = -3", 9, "above zero"),
        ("[run]", "[run]\nshell = true", 9, "unknown field `shell`"),
        ("[time]", "[repeat]\nruns = 0\n[time]", 15, "above zero"),
        ("[time]", "[limits]\noutput = 0\n[time]", 15, "above zero"),
        ("\"(.*)\"", "\"(.*\"", 16, "is not a pattern"),
        ("\"(.*)\"", "\".*\"", 16, "put parentheses around it"),
        ("\"s\"", "\"hours\"", 17, "write s, ms, us or ns"),
        ("\"output\"", "\"stars\"", 15, "not \"stars\""),
        ("\"output\"", "\"clock\"", 15, "leave them out"),
        (
            "name = \"n\"",
            "name = \"n\"\nstrategy = \"genetics\"",
            2,
            "did you mean `genetic`?",
        ),
        (
            "name = \"n\"",
            "name = \"n\"\nfiles = [\"nowhere.c\"]",
            2,
            "relative to the specification",
        ),
        ("name = \"n\"", "name = n", 1, "n"),
    ] {
        let (at, said) = problem(piece, by);
        assert!(said.contains(words), "{by}: {said}");
        assert_eq!(at, line, "{by}: {said}");
    }
}

#[test]
fn values_of_every_kind_and_ranges_are_read() {
    let text = GOOD.replace("tile = [2, 4]", "tile = { from = 2, to = 20, times = 3 }");
    let spec = Spec::parse(&text, Path::new("s.toml")).unwrap();
    assert_eq!(
        spec.space().parameters()[0].values,
        [2.into(), 6.into(), 18.into()]
    );
    let text = GOOD
        .replace("tile = [2, 4]", "tile = [2, true, 0.5, 'word']")
        .replace("tile % 2 == 0", "True");
    let spec = Spec::parse(&text, Path::new("s.toml")).unwrap();
    assert_eq!(
        spec.space().parameters()[0].values,
        [2.into(), true.into(), 0.5.into(), "word".into()]
    );
}

#[test]
fn the_example_of_the_repository_is_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tune-external/spec.toml");
    match crate::external::process::find("cc") {
        Some(_) => drop(Spec::open(&path).unwrap()),
        None => kernelwise_testing::skip("cc", "the example is compiled by it"),
    }
}

#[test]
fn restrictions_over_a_huge_space_are_read_in_bounded_time() {
    let parameters: String = (0..10)
        .map(|slot| format!("p{slot} = {{ from = 1, to = 16 }}\n"))
        .collect();
    let places: String = (0..10).map(|slot| format!(", \"{{p{slot}}}\"")).collect();
    let spec = |restriction: &str| {
        let text = format!(
            "name = \"n\"\nrestrictions = [\"{restriction}\"]\n[parameters]\n{parameters}[run]\ncommand = [\"echo\"{places}]\n"
        );
        Spec::parse(&text, Path::new("s.toml"))
    };
    let found = spec("p0 * p9 >= 200").unwrap();
    assert!(found.space().allows(found.default_configuration()));
    let sum = "p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 + p8 + p9 > 160";
    match spec(sum) {
        Err(SpecError::Line {
            line: 2,
            problem: problem @ SpecProblem::NoneAllowed(NoneAllowed::NotFound { .. }),
            ..
        }) => assert!(problem.to_string().contains("loosen the restrictions")),
        other => panic!("{other:?}"),
    }
    let empty = spec("p0 * p9 >= 300").unwrap_err().to_string();
    assert!(
        empty.contains("the restrictions allow no configuration"),
        "{empty}"
    );
}

#[test]
fn a_description_in_a_file_is_a_space() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("space.t1.json");
    let description = r#"{"ConfigurationSpace": {
        "TuningParameters": [{"Name": "tile", "Values": "[1, 2, 4]"}, {"Name": "flags", "Values": ["", "-O2"]}],
        "Conditions": [{"Expression": "tile > 1 or flags == ''"}]}}"#;
    std::fs::write(&file, description).unwrap();
    let text = GOOD.replacen(
        "[parameters]\ntile = [2, 4]\nflags = [\"\", \"-O2\"]\n",
        "",
        1,
    );
    let text = text.replacen("restrictions", "space = \"space.t1.json\"\nrestrictions", 1);
    let path = folder.path().join("s.toml");
    let spec = Spec::parse(&text, &path).unwrap();
    // Both of its own condition and of the file's.
    assert_eq!(spec.space().configurations().count(), 4);
    assert_eq!(spec.space().restrictions().count(), 2);
    let problem = |text: &str| match Spec::parse(text, &path) {
        Err(SpecError::Line { line, problem, .. }) => (line, problem.to_string()),
        other => panic!("{other:?}"),
    };
    let (line, words) = problem(&text.replacen("space.t1.json", "nowhere.json", 1));
    assert!(
        line == 2 && words.contains("`nowhere.json`"),
        "{line}: {words}"
    );
    let (line, words) = problem(&text.replacen("\"{tile}\",", "", 1));
    assert!(
        line == 2 && words.contains("parameter `tile` has no effect"),
        "{line}: {words}"
    );
    let (line, words) = problem(&text.replacen("tile % 2", "title % 2", 1));
    assert!(line == 4 && words.contains("title"), "{line}: {words}");
    let (_, words) = problem(&text.replacen("[run]", "[parameters]\nx = [1]\n[run]", 1));
    assert!(words.contains("both say what to tune"), "{words}");
    let (_, words) = problem(&text.replacen("space = \"space.t1.json\"", "", 1));
    assert!(words.contains("nothing to tune"), "{words}");
    std::fs::write(&file, description.replace("tile", "work")).unwrap();
    let (_, words) = problem(&text);
    assert!(words.contains("cannot be called `work`"), "{words}");
}

#[test]
fn records_to_begin_from_have_to_fit() {
    let folder = tempfile::tempdir().unwrap();
    let record = |names: &str| {
        format!(
            r#"{{"tune_params_keys": ["{names}", "flags"], "tune_params": {{"{names}": [2, 4], "flags": [""]}},
               "cache": {{"2,": {{"time": 1.0}}, "4,": {{"time": 2.0}}}}}}"#
        )
    };
    std::fs::write(folder.path().join("good.json"), record("tile")).unwrap();
    std::fs::write(folder.path().join("other.json"), record("block")).unwrap();
    let read = |line: &str| Spec::parse(&format!("{line}\n{GOOD}"), &folder.path().join("s.toml"));
    let spec = read("warm = [\"good.json\"]\nruns = 500").unwrap();
    assert_eq!(spec.knowledge.records.len(), 1);
    assert_eq!(spec.knowledge.runs, Some(500.0));
    for (line, words) in [
        (
            "warm = [\"other.json\"]",
            "`other.json` has other parameters",
        ),
        ("warm = [\"none.json\"]", "`none.json`: cannot read"),
        ("runs = 0", "`runs` has to be above zero"),
    ] {
        match read(line) {
            Err(SpecError::Line {
                line: 1, problem, ..
            }) => {
                assert!(problem.to_string().contains(words), "{problem}");
            }
            other => panic!("{other:?}"),
        }
    }
}
