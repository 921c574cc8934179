//! The page as text: provenance, hostile records, size.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[allow(dead_code, reason = "each test uses a part of it")]
mod made;

use kernelwise_report::{
    Event, EventKind, Facts, Gain, MOST_ROWS, Quarantined, Ratio, RegretPoint, Report, Severity,
};
use kernelwise_types::{Estimate, Interval, Reading};
use proptest::prelude::*;

/// The body of the table with this id.
fn table<'p>(page: &'p str, id: &str) -> &'p str {
    let start = page
        .find(&format!("id=\"{id}\""))
        .unwrap_or_else(|| panic!("no table {id}"));
    let body = page[start..].find("<tbody>").unwrap() + start;
    &page[body..body + page[body..].find("</tbody>").unwrap()]
}

#[test]
fn every_number_says_how_it_is_known() {
    let mut facts = made::facts(40, 11);
    facts.rows.truncate(2);
    let interval_ns = Interval::new(made::ns(10.0), made::ns(20.0)).unwrap();
    let (workload, kernel) = ("matmul f32 8x8x8", "cpu-matmul-f32-a");
    let estimates = [
        (made::measured(15.0, 4), "measured"),
        (
            Estimate::Modelled {
                time_ns: made::ns(15.0),
                interval_ns,
                model: "trees".into(),
            },
            "modelled: trees",
        ),
        (
            Estimate::Prior {
                time_ns: made::ns(15.0),
                source: "roofline".into(),
            },
            "prior: roofline",
        ),
        (Estimate::Unknown, "unknown"),
    ];
    facts.rows = estimates
        .iter()
        .map(|(estimate, _)| made::row(workload, kernel, "", estimate.clone()))
        .collect();
    let page = Report::of(&facts).html();
    let rows: Vec<&str> = table(&page, "times").split("<tr>").skip(1).collect();
    assert_eq!(rows.len(), estimates.len());
    for (row, (_, word)) in rows.iter().zip(&estimates) {
        assert!(row.contains(word), "{word} in {row}");
    }
    let words = ["measured", "modelled", "prior", "unknown"];
    for id in [
        "winner-list",
        "gain-list",
        "error-list",
        "event-list",
        "load-list",
        "regret-list",
        "calibration-list",
    ] {
        for row in table(&page, id).split("<tr>").skip(1) {
            assert!(words.iter().any(|word| row.contains(word)), "{id}: {row}");
        }
    }
    // Tiles and limits of the roofline.
    let tiles = &page[page.find("class=\"tiles\"").unwrap()..];
    let tiles = &tiles[..tiles.find("</ul>").unwrap()];
    assert_eq!(
        tiles.matches("<li>").count(),
        tiles.matches("class=\"chip").count()
    );
    assert!(
        page.contains("dram 15.6 GB/s <span class=\"chip measured\">"),
        "limits carry their rates"
    );
}

#[test]
fn the_map_shows_winners_and_hatches_ties() {
    let mut facts = Facts::new(made::machine(), made::NOW_S);
    let rows = [
        ("matmul f32 8x8x8", "a", 100.0),
        ("matmul f32 8x8x8", "b", 101.0),
        ("matmul f32 64x64x64", "a", 900.0),
        ("matmul f32 64x64x64", "b", 600.0),
    ];
    facts.rows = rows
        .map(|(workload, variant, time)| {
            made::row(
                workload,
                &format!("cpu-matmul-f32-{variant}"),
                "",
                made::measured(time, 9),
            )
        })
        .into();
    let page = Report::of(&facts).html();
    let fields: Vec<&str> = page
        .split("<td class=\"field ")
        .skip(1)
        .map(|field| &field[..field.find("</td>").unwrap()])
        .collect();
    assert_eq!(fields.len(), 2);
    assert!(
        fields[0].starts_with("k0 tie\"")
            && fields[0].contains("cpu-matmul-f32-a\n")
            && fields[0].contains("near tie")
    );
    assert!(
        fields[1].starts_with("k1\"") && fields[1].contains("cpu-matmul-f32-b\n"),
        "{}",
        fields[1]
    );
}

const HOSTILE: &str =
    "</script><img src=x onerror=alert(1)>\"'`|=cmd\u{0}\u{1b}[31m\u{202e}&lt;\n=2+2";

/// Facts with that text wherever a text may stand.
fn hostile() -> Facts {
    let mut facts = made::facts(30, 13);
    let hostile = || HOSTILE.to_owned();
    facts.machine.cpu.model = Reading::Known(hostile());
    facts.machine.cpu.arch = hostile();
    facts.machine.os = hostile();
    facts.machine.kernel = Reading::unknown(HOSTILE);
    let source = Estimate::Prior {
        time_ns: made::ns(1.0),
        source: hostile(),
    };
    facts.rows.push(made::row(
        "matmul f32 8x8x8",
        "cpu-matmul-f32-a",
        "",
        source,
    ));
    if let Reading::Known(gains) = &mut facts.gains {
        gains.judged_on = hostile();
        let one = gains.operations["matmul"];
        gains.operations.insert(hostile(), one);
    }
    if let Reading::Known(regret) = &mut facts.regret {
        regret.source = hostile();
    }
    facts.events = Reading::Known(vec![Event {
        at_s: 5,
        kind: EventKind::Drift,
        severity: Severity::Minor,
        words: hostile(),
        during: hostile(),
    }]);
    let quarantine = Quarantined {
        kernel: hostile(),
        version: 1,
        case: hostile(),
        evidence: hostile(),
        lifted: false,
    };
    facts.quarantines = Reading::Known(vec![quarantine]);
    if let Reading::Known(demo) = &mut facts.load_demo {
        (demo.phases[0].stream, demo.phases[0].phase) = (hostile(), hostile());
    }
    if let Reading::Known(calibration) = &mut facts.calibration {
        calibration.skipped = vec![hostile()];
    }
    facts.state = Reading::unknown(HOSTILE);
    (facts.warnings, facts.conditions, facts.commands) =
        (vec![hostile()], vec![hostile()], vec![hostile()]);
    facts
}

#[test]
fn hostile_text_stays_text_on_the_page() {
    let facts = hostile();
    let page = Report::of(&facts).html();
    assert!(
        page.matches("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;")
            .count()
            > 15
    );
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(
        !page
            .chars()
            .any(|c| c.is_control() && c != '\n' || c == '\u{202e}')
    );
    // What was an entity in the record is shown as it stood there.
    assert!(page.contains("&amp;lt;"));
}

#[test]
fn hostile_text_stays_text_in_the_other_forms() {
    let facts = hostile();
    let report = Report::of(&facts);
    let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(value["warnings"][0], HOSTILE);
    assert_eq!(value["machine"]["cpu"]["model"]["value"], HOSTILE);

    let text = report.csv().unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let evidence = records
        .iter()
        .find(|record| &record[0] == "quarantine")
        .unwrap();
    assert!(evidence[11].starts_with("</script>") && evidence[11].contains('\u{fffd}'));
    let mut commands = facts.clone();
    commands.commands = vec!["=cmd|' /C calc'!A0".into(), "@SUM(1)".into(), "-2+3".into()];
    let text = Report::of(&commands).csv().unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    for record in reader.records().map(Result::unwrap) {
        for cell in &record {
            assert!(
                !cell.starts_with(['=', '+', '-', '@', '\t', '\r']),
                "{cell:?}"
            );
        }
    }

    let markdown = report.markdown();
    assert!(!markdown.contains("<img") && !markdown.contains("</script>"));
    assert!(!markdown.chars().any(|c| c.is_control() && c != '\n'));
    // A row of a table stays one line with as many cells as its heading.
    let row = markdown
        .lines()
        .find(|line| line.contains("kept away"))
        .unwrap();
    assert_eq!(row.replace("\\|", "").matches('|').count(), 6);
}

#[test]
fn big_records_make_a_page_that_can_be_opened() {
    let facts = made::facts(3_400, 17);
    let page = Report::of(&facts).html();
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    assert_eq!(table(&page, "times").matches("<tr>").count(), MOST_ROWS);
    assert!(page.contains("Shown are 3000 of 3400 times"));
    // Every point is drawn, also those without a row: the last operation is not cut off.
    let points = made::facts(3_400, 17)
        .rows
        .iter()
        .filter(|row| row.workload.cost().is_some_and(|cost| cost.flops.0 > 0))
        .count();
    let note = format!("All {points} points are drawn.");
    assert!(page.contains(&note), "{note}");
    let roofline = &page[page.find("id=\"roofline\"").unwrap()..];
    let roofline = &roofline[..roofline.find("</section>").unwrap()];
    // A few of them lie in the same place to a tenth, and points with a hole are drawn twice.
    let drawn = roofline.matches("h0").count();
    assert!(drawn + 200 > points, "{drawn} of {points}");
    // What the table leaves out is spread over the kernels: each of the slow ones is in it.
    let listed = table(&page, "times");
    for row in facts.rows.iter().rev().take(400) {
        let kernel = format!("<td>{}</td>", row.candidate.kernel);
        assert!(listed.contains(&kernel), "{kernel}");
    }
    // The fastest of every workload are among them.
    let report: serde_json::Value =
        serde_json::from_str(&Report::of(&facts).json().unwrap()).unwrap();
    let fastest = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["fastest"] == true)
        .count();
    assert_eq!(
        table(&page, "times").matches(">yes</td></tr>").count(),
        fastest
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_that_are_none_are_never_shown(odd in proptest::collection::vec(proptest::num::f64::ANY, 12), times in proptest::collection::vec(0.0..1e300f64, 6)) {
        let mut facts = made::facts(12, 41);
        for (row, time) in facts.rows.iter_mut().zip(&times) {
            row.estimate = Estimate::Prior { time_ns: made::ns(*time), source: "anywhere".into() };
        }
        if let Reading::Known(gains) = &mut facts.gains {
            let ratio = Some(Ratio { mean: odd[0], low: Some(odd[1]), high: Some(odd[2]) });
            gains.all = Some(Gain { shapes: 3, single_best_over_choice: ratio, static_rule_over_choice: None });
            gains.operations.clear();
        }
        if let Reading::Known(regret) = &mut facts.regret {
            regret.points = odd[3..9].chunks(2).map(|pair| RegretPoint { calls: 7, excess_s: pair[0], budget_s: pair[1], regret_s: pair[0] * pair[1] }).collect();
        }
        if let Reading::Known(demo) = &mut facts.load_demo {
            (demo.phases[0].kernelwise_calls_per_s, demo.phases[0].best_fixed_calls_per_s) = (Some(odd[9]), Some(odd[10]));
        }
        if let Reading::Known(list) = &mut facts.predictions {
            for (one, time) in list.iter_mut().zip(&times) {
                one.measured = made::ns(*time);
            }
        }
        let report = Report::of(&facts);
        for form in [report.html(), report.csv().unwrap(), report.markdown()] {
            let mut words = form.split(|c: char| !c.is_alphanumeric());
            prop_assert_eq!(words.find(|word| ["NaN", "inf"].contains(word)), None);
        }
        serde_json::from_str::<serde_json::Value>(&report.json().unwrap()).unwrap();
    }
}

#[test]
fn the_same_facts_make_the_same_page() {
    assert_eq!(
        Report::of(&made::facts(60, 19)).html(),
        Report::of(&made::facts(60, 19)).html()
    );
}

#[test]
fn it_has_one_heading_of_the_first_order_and_every_link_leads_somewhere() {
    let facts = made::facts(60, 23);
    let page = Report::of(&facts).html();
    assert_eq!(page.matches("<h1").count(), 1);
    for target in page
        .split("href=\"#")
        .skip(1)
        .map(|rest| &rest[..rest.find('"').unwrap()])
    {
        assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
    }
    let mut ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .map(|rest| &rest[..rest.find('"').unwrap()])
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids stand once");
}

#[test]
fn regret_and_the_cost_of_trials_are_two_curves() {
    let facts = made::facts(40, 43);
    let page = Report::of(&facts).html();
    let figure = &page[page.find("data-figure=\"regret\"").unwrap()..];
    let figure = &figure[..figure.find("</figure>").unwrap()];
    for part in [
        "class=\"curve\"",
        "class=\"curve behind\"",
        "class=\"budget\"",
        "cost of trials",
        "regret of all calls",
    ] {
        assert!(figure.contains(part), "{part}");
    }
    let last = facts.regret.known().unwrap().points.last().unwrap();
    let row = table(&page, "regret-list").rsplit("<tr>").next().unwrap();
    for value in [last.excess_s, last.budget_s, last.regret_s] {
        assert!(
            row.contains(&format!("data-v=\"{value}\"")),
            "{value} in {row}"
        );
    }
}

#[test]
fn warnings_come_first_and_their_absence_is_said() {
    let mut facts = made::facts(40, 47);
    facts.warnings = vec!["others kept processors busy during 52 of 57 races".into()];
    let report = Report::of(&facts);
    let page = report.html();
    let machine = &page[page.find("<section id=\"machine\"").unwrap()..];
    assert!(machine.contains("<li>others kept processors busy during 52 of 57 races</li>"));
    assert!(!machine.contains("No warnings were recorded."));
    assert!(
        report
            .words()
            .iter()
            .any(|words| words.contains("52 of 57"))
    );
    facts.warnings.clear();
    let page = Report::of(&facts).html();
    assert!(page.contains("<p>No warnings were recorded.</p>"));
}

#[test]
fn events_say_during_what_they_were_noticed_and_correlations_have_a_lane() {
    let facts = made::facts(40, 53);
    let page = Report::of(&facts).html();
    let events = &page[page.find("<section id=\"events\"").unwrap()..];
    let events = &events[..events.find("</section>").unwrap()];
    assert!(events.contains("Noticed while <code>kernelwise learn</code> ran."));
    let lanes: Vec<&str> = events
        .split("<text class=\"row\"")
        .skip(1)
        .map(|text| &text[text.find('>').unwrap() + 1..text.find('<').unwrap()])
        .collect();
    assert_eq!(lanes, ["drift", "anomaly", "trend", "correlation"]);
    assert!(table(&page, "event-list").contains("rank correlation 0.52 over 128 runs"));
}

#[test]
fn all_operations_together_stand_last() {
    let facts = made::facts(40, 59);
    let report = Report::of(&facts);
    let page = report.html();
    let rows = table(&page, "gain-list");
    let last = rows.rsplit("<tr>").next().unwrap();
    assert!(last.starts_with("<td>all</td>"), "{last}");
    assert!(page.contains("÷ time of the learned choice"));
    let markdown = report.markdown();
    let all = markdown.find("| all | 381").unwrap();
    assert!(all > markdown.find("| transpose | 52").unwrap());
}
