use proptest::prelude::*;

use super::*;
use crate::space::Value;

const NAMES: [&str; 4] = ["a", "b", "word", "yes"];

fn values() -> [Value; 4] {
    [6.into(), 4.into(), "nvcc".into(), true.into()]
}

fn holds(text: &str) -> bool {
    let values = values();
    let expression = Expression::parse(text, &NAMES).unwrap();
    expression.holds(|slot| &values[slot]).unwrap()
}

#[test]
fn it_computes_as_python_does() {
    for text in [
        "a + b * 2 == 14",
        "(a + b) * 2 == 20",
        "a / b == 1.5",
        "a // b == 1",
        "-a // b == -2",
        "-7 % 3 == 2 and 7 % -3 == -2 and -7.5 % 2 == 0.5",
        // The 0.1 of a float is more than a tenth, so that it goes into 1 nine times.
        "1.0 // 0.1 == 9.0 and 0.09 < 1.0 % 0.1 < 0.1",
        "-1.0 // 0.1 == -10.0 and 0 <= -1.0 % 0.1 < 1e-10",
        "6 % 0.1 > 0.09 and 6 // 0.1 == 59.0",
        "5.0 % 2.5 == 0 and 7.5 // -2 == -4.0 and 7.5 % -2 == -0.5",
        "2 ** 3 ** 2 == 512",
        "-2 ** 2 == -4",
        "2 ** -1 == 0.5",
        "min(a, b, 5) == 4 and max(a, b) == 6 and abs(b - a) == 2",
        "1 < b <= 4 < a",
        "not 1 < b < 3",
        "a in (1, 2, 6) and b not in [5, 6,] and b in {4}",
        "word == 'nvcc' and word != \"hip\" and word in ('hip', 'nvcc')",
        "yes == True and yes == 1 and not yes == false",
        "a == 1 or b == 4 and yes",
        "not a == 1 or b / 0 == 1",
        "a % (b / 2) == 0",
        "1e3 == 1000 and .5 == 1 / 2",
        // Python answers with operands, so that this is 3 > 2.
        "(0 or 3) > 2",
        "9223372036854775807 * 2 > 9223372036854775807",
        "word",
    ] {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("not ({text})")), "{text}");
    }
}

#[test]
fn restrictions_of_real_spaces_are_read() {
    let names = ["MWG", "MDIMC", "VWM", "KWG", "NDIMC", "MDIMA"];
    let values: [Value; 6] = [
        64.into(),
        8.into(),
        4.into(),
        32.into(),
        16.into(),
        32.into(),
    ];
    for (text, expected) in [
        ("MWG % (MDIMC*VWM) == 0", true),
        ("KWG % ((MDIMC*NDIMC)/MDIMA) == 0", true),
        ("32 <= MDIMC*NDIMC <= 100", false),
        ("VWM==0 or (MDIMC*VWM+15-1)*(NDIMC+14) < 12*1024", true),
    ] {
        let expression = Expression::parse(text, &names).unwrap();
        assert_eq!(
            expression.holds(|slot| &values[slot]),
            Ok(expected),
            "{text}"
        );
    }
    let expression = Expression::parse("VWM > 1 or MWG == 1", &names).unwrap();
    assert_eq!(expression.slots(), [0, 2]);
}

#[test]
fn errors_say_where_and_what() {
    for (text, at, part) in [
        ("a = 1", 2, "compare with `==`"),
        ("a && b", 2, "write `and`"),
        ("a +", 3, "a value belongs here, not the end"),
        ("(a", 2, "`)` belongs here"),
        ("a b", 2, "an operator belongs here, not `b`"),
        ("wrd == 'x'", 0, "did you mean `word`?"),
        ("zzzz > 1", 0, "no parameter is called `zzzz`"),
        ("word == 'x", 8, "no closing '"),
        ("1.2.3 > 1", 0, "is not a number"),
        ("min() > 1", 0, "`min` of 0 values"),
        ("a in 3", 5, "a list in parentheses"),
        ("a not 3", 6, "`in` belongs here"),
        ("a ? b", 2, "unknown sign `?`"),
        ("", 0, "a value belongs here"),
        ("a + and", 4, "a value belongs here, not `and`"),
    ] {
        let error = Expression::parse(text, &NAMES).unwrap_err();
        assert_eq!(error.at, at, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("at character {}", at + 1)),
            "{error}"
        );
    }
}

#[test]
fn no_text_exhausts_the_stack() {
    for text in [
        "(".repeat(100_000),
        "not ".repeat(100_000),
        "-".repeat(100_000) + "a",
    ] {
        assert!(Expression::parse(&text, &NAMES).is_err());
    }
    let long = vec!["a"; 900].join("+");
    assert!(holds(&format!("{long} == 5400")));
    let longer = vec!["a"; 100_000].join("+");
    let error = Expression::parse(&longer, &NAMES).unwrap_err();
    assert!(
        error.to_string().contains("more than 2000 words"),
        "{error}"
    );
}

#[test]
fn what_has_no_value_says_why() {
    let values = values();
    for (text, error) in [
        ("a / (b - 4) > 1", ComputeError::DivisionByZero),
        ("a % 0 == 0", ComputeError::DivisionByZero),
        ("0 ** -1 == 0", ComputeError::DivisionByZero),
        ("word * 2 == 1", ComputeError::Words("*")),
        ("word < 1", ComputeError::Words("<")),
    ] {
        let expression = Expression::parse(text, &NAMES).unwrap();
        assert_eq!(expression.holds(|slot| &values[slot]), Err(error), "{text}");
    }
}

/// A tree, with its text and its value computed apart from the code under test.
#[derive(Debug, Clone)]
struct Known {
    text: String,
    value: i64,
}

fn known() -> impl Strategy<Value = Known> {
    let leaf = prop_oneof![
        (0_i64..50).prop_map(|value| Known {
            text: value.to_string(),
            value
        }),
        Just(Known {
            text: "a".to_owned(),
            value: 6
        }),
        Just(Known {
            text: "b".to_owned(),
            value: 4
        }),
    ];
    leaf.prop_recursive(5, 40, 2, |inner| {
        (inner.clone(), inner, 0..9).prop_map(|(x, y, operator)| {
            let (a, b) = (x.value, y.value);
            let join = |sign: &str| format!("({} {sign} {})", x.text, y.text);
            let small = |value: i64| value.clamp(-1_000_000, 1_000_000);
            let floor = |a: i64, b: i64| (a as f64 / b as f64).floor() as i64;
            let (text, value) = match operator {
                0 => (join("+"), a + b),
                1 => (join("-"), a - b),
                2 if small(a) == a && small(b) == b => (join("*"), a * b),
                3 if b != 0 && small(a) == a => (join("//"), floor(a, b)),
                4 if b != 0 && small(a) == a => (join("%"), a - b * floor(a, b)),
                5 => (format!("min({}, {})", x.text, y.text), a.min(b)),
                6 => (format!("max({}, {})", x.text, y.text), a.max(b)),
                7 => (join("<"), i64::from(a < b)),
                8 => (format!("-{}", x.text), -a),
                _ => (join("=="), i64::from(a == b)),
            };
            Known { text, value }
        })
    })
}

proptest! {
    #[test]
    fn values_agree_with_those_computed_by_hand(known in known()) {
        prop_assume!(known.text.len() < 2_000 && known.value.abs() < 1 << 50);
        let values = values();
        let equal = Expression::parse(&format!("{} == {}", known.text, known.value), &NAMES);
        let other = Expression::parse(&format!("{} == {}", known.text, known.value + 1), &NAMES);
        prop_assert_eq!(equal.unwrap().holds(|slot| &values[slot]), Ok(true));
        prop_assert_eq!(other.unwrap().holds(|slot| &values[slot]), Ok(false));
    }

    #[test]
    fn any_text_is_read_or_refused_within_itself(text in "[ab0-9 ()+*/%<>=!'a-z.,-]{0,40}") {
        let values = values();
        match Expression::parse(&text, &NAMES) {
            Ok(expression) => drop(expression.holds(|slot| &values[slot])),
            Err(error) => prop_assert!(error.at <= text.chars().count()),
        }
    }
}
