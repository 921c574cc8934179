//! Numbers and times as a person would write them. The same words stand on the page and in Markdown.

use kernelwise_types::units::{ByteRate, FlopRate, Nanos};

/// What stands where no number is.
pub(crate) const UNKNOWN: &str = "unknown";

/// A duration with its unit.
pub(crate) fn nanos(ns: f64) -> String {
    Nanos::new(ns).map_or_else(|_| UNKNOWN.to_owned(), |ns| ns.to_string())
}

/// A rate of arithmetic with its unit.
pub(crate) fn flops(per_s: f64) -> String {
    FlopRate::new(per_s).map_or_else(|_| UNKNOWN.to_owned(), |rate| rate.to_string())
}

/// A rate of bytes with its unit.
pub(crate) fn bytes_per_s(per_s: f64) -> String {
    ByteRate::new(per_s).map_or_else(|_| UNKNOWN.to_owned(), |rate| rate.to_string())
}

/// A factor: `×1.23`.
pub(crate) fn factor(factor: f64) -> String {
    match factor {
        f if !f.is_finite() => UNKNOWN.to_owned(),
        f if f < 9.995 => format!("×{f:.2}"),
        f if f < 99.95 => format!("×{f:.1}"),
        f => format!("×{f:.0}"),
    }
}

/// A share of one as per cent.
pub(crate) fn percent(share: f64) -> String {
    match (100.0 * share).is_finite() {
        true => format!("{:.0} %", 100.0 * share),
        false => UNKNOWN.to_owned(),
    }
}

/// Calls per second, three digits.
pub(crate) fn per_second(rate: f64) -> String {
    match rate {
        r if !r.is_finite() => UNKNOWN.to_owned(),
        r if r >= 99.95 => format!("{r:.0} /s"),
        r if r >= 9.995 => format!("{r:.1} /s"),
        r => format!("{r:.2} /s"),
    }
}

/// Seconds as they are read beside a budget.
pub(crate) fn seconds(s: f64) -> String {
    nanos(s * 1e9)
}

/// A power of ten of bytes, in words: `10 kB` of 4.
pub fn decade(power: u32) -> String {
    let unit = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let place = (power / 3) as usize;
    let digits = ["1", "10", "100"][(power % 3) as usize];
    format!("{digits} {}", unit.get(place).unwrap_or(&"?"))
}

/// A number of things: `1 kernel`, `2 kernels`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        n => format!("{n} {thing}s"),
    }
}

/// Seconds since 1970 as a date and time of day: `2027-01-15 08:00 UTC`. The calendar repeats every 400 years of 146097 days; counted from March, the
/// day that leap years add is the last.
pub fn utc(at_s: u64) -> String {
    let (days, second) = (at_s / 86_400, at_s % 86_400);
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year + 400 * era + next;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Characters that change how others are shown, or are not shown themselves, made visible. Text of records may hold anything.
pub(crate) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        let moves = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        moves || c.is_control() && c != '\n'
    };
    let shown = |c: char| if c == '\t' { ' ' } else { '\u{fffd}' };
    text.chars()
        .map(|c| if hidden(c) { shown(c) } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_800_000_000, "2027-01-15 08:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ];
        for (at_s, text) in known {
            assert_eq!(utc(at_s), text);
        }
    }

    #[test]
    fn numbers_carry_their_unit_and_nonsense_is_unknown() {
        assert_eq!(
            (nanos(5_400.0), nanos(f64::NAN)),
            ("5.40 µs".into(), UNKNOWN.into())
        );
        assert_eq!(
            (factor(1.234), factor(12.34)),
            ("×1.23".into(), "×12.3".into())
        );
        assert_eq!(
            (factor(f64::INFINITY), percent(f64::MAX)),
            (UNKNOWN.into(), UNKNOWN.into())
        );
        assert_eq!(
            (per_second(1234.5), per_second(2.345)),
            ("1234 /s".into(), "2.35 /s".into())
        );
        assert_eq!(
            (decade(0), decade(4), decade(9)),
            ("1 B".into(), "10 kB".into(), "1 GB".into())
        );
        assert_eq!(decade(40), "10 ?");
        assert_eq!(
            (count(1, "kernel"), count(0, "kernel")),
            ("1 kernel".into(), "0 kernels".into())
        );
    }

    #[test]
    fn what_hides_or_moves_text_is_shown() {
        assert_eq!(
            visible("a\u{202e}b\0c\td\ne\u{1b}"),
            "a\u{fffd}b\u{fffd}c d\ne\u{fffd}"
        );
        assert_eq!(visible("µ × 日本"), "µ × 日本");
    }
}
