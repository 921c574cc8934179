//! Specifications that are none: found before anything runs, and said with file, line and remedy.

use std::path::Path;

use super::super::{Spec, SpecError};

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
