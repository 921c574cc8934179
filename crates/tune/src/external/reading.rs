//! Reading what a program printed: its time, and whether its result is right.

use serde_json::Value as Json;

use super::outcome::{Failed, FailureKind, shown};
use super::process::Ran;
use super::spec::{Check, Time};

/// The time of a run in seconds.
pub(crate) fn time(ran: &Ran, how: &Time) -> Result<f64, Failed> {
    let none = |message: String| Failed {
        kind: FailureKind::NoTime,
        message,
    };
    let (number, unit) = match how {
        Time::Clock => (ran.seconds, 1.0),
        Time::Pattern(pattern, unit) => {
            let text = String::from_utf8_lossy(&ran.stdout);
            let found = pattern.captures(&text).and_then(|found| found.get(1));
            let Some(found) = found else {
                let begin = shown(text.trim());
                return Err(none(format!(
                    "`{pattern}` is not in what it printed: {begin}"
                )));
            };
            let Ok(number) = found.as_str().trim().parse::<f64>() else {
                let word = shown(found.as_str());
                return Err(none(format!("`{word}` is not a number of a time")));
            };
            (number, *unit)
        }
        Time::Field(way, unit) => {
            let text = String::from_utf8_lossy(&ran.stdout);
            let Some(number) = json(&text).and_then(|json| member(&json, way)) else {
                let (way, begin) = (way.join("."), shown(text.trim()));
                return Err(none(format!(
                    "no number `{way}` in the JSON it printed: {begin}"
                )));
            };
            (number, *unit)
        }
    };
    let time = number * unit;
    match time.is_finite() && time > 0.0 {
        true => Ok(time),
        false => Err(none(format!(
            "{number} is not a time: times are above zero"
        ))),
    }
}

/// All of the text, or its last line that is an object: programs say other things, too.
fn json(text: &str) -> Option<Json> {
    if let Ok(whole) = serde_json::from_str(text) {
        return Some(whole);
    }
    let lines = text
        .lines()
        .rev()
        .filter(|line| line.trim_start().starts_with('{'));
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .next()
}

/// The number at the end of a way through objects and lists.
fn member(json: &Json, way: &[String]) -> Option<f64> {
    let end = way.iter().try_fold(json, |at, name| match at {
        Json::Array(list) => list.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    });
    end?.as_f64()
}

/// Whether what was printed is as it has to be.
pub(crate) fn check(ran: &Ran, wanted: &Check) -> Result<(), Failed> {
    let text = String::from_utf8_lossy(&ran.stdout);
    let wrong = |wanted: &str| Failed {
        kind: FailureKind::Wrong,
        message: format!(
            "printed `{}` instead of `{}`",
            shown(text.trim()),
            shown(wanted)
        ),
    };
    if let Some(pattern) = wanted
        .pattern
        .as_ref()
        .filter(|pattern| !pattern.is_match(&text))
    {
        return Err(wrong(pattern.as_str()));
    }
    match &wanted.text {
        Some(expected) if expected.trim() != text.trim() => Err(wrong(expected.trim())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use regex_lite::Regex;

    use super::super::process::End;
    use super::*;

    fn printed(text: &[u8]) -> Ran {
        Ran {
            end: End::Exit(0),
            stdout: text.to_vec(),
            stderr: Vec::new(),
            seconds: 0.5,
        }
    }

    #[test]
    fn times_are_read_in_three_ways() {
        let pattern = Time::Pattern(Regex::new(r"took ([0-9.e+-]+) ms").unwrap(), 1e-3);
        assert_eq!(time(&printed(b"x\ntook 1.5 ms\n"), &pattern), Ok(1.5e-3));
        assert_eq!(time(&printed(b""), &Time::Clock), Ok(0.5));
        let field = Time::Field(vec!["runs".into(), "1".into(), "t".into()], 1.0);
        let text = b"warming up {\n{\"runs\": [{}, {\"t\": 0.25}]}\nbye\n";
        assert_eq!(time(&printed(text), &field), Ok(0.25));
    }

    #[test]
    fn garbage_is_no_time() {
        let pattern = Time::Pattern(Regex::new("t=(.*)").unwrap(), 1.0);
        for garbage in [
            "",
            "t=",
            "t=fast",
            "t=-1",
            "t=0",
            "t=1e999",
            "t=nan",
            "\u{1b}[2J\0\u{fffd}",
        ] {
            let failed = time(&printed(garbage.as_bytes()), &pattern).unwrap_err();
            assert_eq!(failed.kind, FailureKind::NoTime, "{garbage}");
            assert!(!failed.message.contains('\u{1b}'));
        }
        let field = Time::Field(vec!["t".into()], 1.0);
        for garbage in [&b"\xff\xfe{"[..], b"{\"t\": \"1\"}", b"[1]", b"{"] {
            let failed = time(&printed(garbage), &field).unwrap_err();
            assert_eq!(failed.kind, FailureKind::NoTime);
        }
    }

    #[test]
    fn results_are_held_against_pattern_and_text() {
        let both = Check {
            pattern: Some(Regex::new("^sum: 4").unwrap()),
            text: Some("sum: 42\n".into()),
            command: None,
        };
        assert_eq!(check(&printed(b"sum: 42"), &both), Ok(()));
        for wrong in [&b"sum: 41"[..], b"sum: 52", b""] {
            assert_eq!(
                check(&printed(wrong), &both).unwrap_err().kind,
                FailureKind::Wrong
            );
        }
    }
}
