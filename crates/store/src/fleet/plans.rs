//! How the server finds what is pulled: through an index, whatever else is in the table.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use super::sync::{PULL_NOTES, PULL_RECORDS};
use super::{Fleet, FleetOptions, Listen, PrivateServer};

/// The SQL of docs/fleet.md that makes rows, with fewer of them.
fn generate(rows: u32) -> String {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md"));
    let (_, rest) = page.split_once("```sql\n").unwrap();
    let (sql, _) = rest.split_once("```").unwrap();
    assert!(sql.contains("generate_series(1, 1000000)"));
    sql.replace("1000000", &rows.to_string())
}

/// The plan of a statement, one line after another.
fn plan(fleet: &Fleet, sql: &str, types: &str, bound: &str) -> String {
    let prepare = format!("DEALLOCATE ALL; PREPARE asked {types} AS {sql}");
    fleet.link.run(&prepare).unwrap();
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE asked {bound}");
    let rows = fleet.link.query(&explain, &[]).unwrap();
    rows.iter()
        .map(|row| row.get::<_, String>(0) + "\n")
        .collect()
}

#[test]
fn pulls_go_through_an_index() {
    if PrivateServer::programs().is_none() {
        return kernelwise_testing::skip("postgres", "initdb and postgres were not found");
    }
    let settings = |_: &std::path::Path| vec!["fsync=off".into(), "autovacuum=off".into()];
    let server = PrivateServer::start(Listen::Socket, settings).unwrap();
    let fleet = Fleet::connect(&FleetOptions::new(&server.url("owner"))).unwrap();
    fleet.link.run(&generate(50_000)).unwrap();
    let notes = "INSERT INTO kernelwise.note (kind, fingerprint, name, at_s, changed, body)
        SELECT 'decision', fingerprint, workload, 1, changed, '{}' FROM kernelwise.series;
        ANALYZE kernelwise.note";
    fleet.link.run(notes).unwrap();
    // Of 50 rows a kind, and of 5000, which is more than come at once.
    for kind in ["kind 1", "kind 0"] {
        let bound = |more: &str| format!("(substr(md5('{kind}'), 1, 16), 40, 5, {more})");
        let types = "(text, bigint, bigint, bytea, text)";
        let records = plan(&fleet, PULL_RECORDS, types, &bound("'\\x00', ''"));
        assert!(records.contains("series_by_machine"), "{records}");
        assert!(!records.contains("Seq Scan"), "{records}");
        let types = "(text, bigint, bigint, text, text)";
        let notes = plan(&fleet, PULL_NOTES, types, &bound("'', ''"));
        assert!(notes.contains("note_by_machine"), "{notes}");
        assert!(!notes.contains("Seq Scan"), "{notes}");
        if kind == "kind 0" {
            // In the order of the index: nothing beyond the batch is read, let alone sorted.
            assert!(
                records.contains("Index Scan using series_by_machine"),
                "{records}"
            );
            assert!(!records.contains("Sort"), "{records}");
        }
    }
}
