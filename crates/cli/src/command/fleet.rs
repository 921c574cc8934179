//! `kernelwise sync` and `kernelwise bench store`: records on a server, and what remembering costs.

#[cfg(feature = "postgres")]
use anyhow::anyhow;
use kernelwise_measure::TscClock;
#[cfg(feature = "postgres")]
use kernelwise_store::fleet::{Fleet, FleetOptions, sync_per_s};
use kernelwise_store::{Figures, WallClock, figures};
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
#[cfg(feature = "postgres")]
use crate::records::Records;
use crate::records::now_s;
use crate::{output, progress};

/// The server that the environment names.
#[cfg(feature = "postgres")]
fn named_server() -> Option<FleetOptions> {
    let url = std::env::var("KERNELWISE_DATABASE_URL").ok()?;
    Some(FleetOptions::new(&url)).filter(|_| !url.is_empty())
}

/// The same for those who need one.
#[cfg(feature = "postgres")]
pub(super) fn server() -> Result<FleetOptions, Failure> {
    named_server().ok_or_else(|| {
        Failure::Usage(anyhow!(
            "KERNELWISE_DATABASE_URL is not set: it names the server, as in postgresql://user@host/kernelwise"
        ))
    })
}

/// Pushes and pulls.
#[cfg(feature = "postgres")]
pub(crate) fn sync(args: &args::Sync) -> Result<(), Failure> {
    let server = server()?;
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let (store, here) = (records.store()?, records.memory().here()?);
    store.describe(&machine);
    store.flush()?;
    let mut fleet = Fleet::connect(&server)?;
    if args.preview {
        let preview = fleet.preview(store, &here)?;
        return match args.format {
            Format::Json => output::json("kernelwise.sync_preview/1", &preview),
            Format::Table => {
                let mut text = format!(
                    "{} series and {} notes would leave this machine, {} of {} kinds of machine would come\n",
                    preview.records_out, preview.notes_out, preview.records_in, preview.kinds
                );
                for line in &preview.first_out {
                    text += &format!("  {line}\n");
                }
                output::text(&text)
            }
        };
    }
    let bar = progress::uncounted("exchanging records with the server");
    let synced = fleet.sync(store, &here)?;
    bar.finish_and_clear();
    if synced.may_not_push {
        output::note("this user may read only: nothing left this machine");
    }
    match args.format {
        Format::Json => output::json("kernelwise.sync/1", &synced),
        Format::Table => output::text(&format!(
            "{} series and {} notes left this machine, {} series and {} notes came\n",
            synced.records_out, synced.notes_out, synced.taken.records, synced.taken.notes
        )),
    }
}

/// Says how to have it.
#[cfg(not(feature = "postgres"))]
pub(crate) fn sync(_: &args::Sync) -> Result<(), Failure> {
    without_server()
}

#[cfg(not(feature = "postgres"))]
pub(super) fn without_server() -> Result<(), Failure> {
    Err(Failure::Usage(anyhow::anyhow!(
        "built without PostgreSQL: build with `--features postgres`"
    )))
}

#[derive(Debug, Serialize)]
struct Costs {
    #[serde(flatten)]
    figures: Figures,
    /// Records a second to the server of KERNELWISE_DATABASE_URL; `null` without one.
    sync_per_s: Option<f64>,
}

/// Measures what remembering costs, in a folder of its own.
pub(crate) fn bench(args: &args::BenchStore) -> Result<(), Failure> {
    let folder =
        std::env::temp_dir().join(format!("kernelwise-bench-store-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let bar = progress::uncounted("writing and reading records");
    let measured = measure(&folder);
    bar.finish_and_clear();
    let _ = std::fs::remove_dir_all(&folder);
    let costs = measured?;
    match args.format {
        Format::Json => output::json("kernelwise.bench_store/1", &costs),
        Format::Table => output::text(&costs_text(&costs)),
    }
}

fn costs_text(costs: &Costs) -> String {
    let figures = &costs.figures;
    let rows = [
        (
            "recording a run (p50)",
            format!("{:.1} ns", figures.record_ns_p50),
        ),
        (
            "runs written per second",
            format!("{:.0}", figures.writes_per_s),
        ),
        (
            "the same, every one of a new series",
            format!("{:.0}", figures.new_series_per_s),
        ),
        (
            "opening and reading 100,000 series",
            format!("{:.0} ms", figures.open_100k_ms),
        ),
        (
            "bytes of a series",
            format!("{:.0}", figures.bytes_per_series),
        ),
        (
            "records pushed to the server per second",
            costs.sync_per_s.map_or_else(
                || "unknown: KERNELWISE_DATABASE_URL names no server".to_owned(),
                |rate| format!("{rate:.0}"),
            ),
        ),
    ];
    let rows = rows.map(|(name, value)| (name.to_owned(), value));
    output::section("the cost of remembering", &rows)
}

fn measure(folder: &std::path::Path) -> Result<Costs, Failure> {
    let (clock, wall) = (TscClock::new(), WallClock::new(now_s));
    let embedded = folder.join("embedded");
    std::fs::create_dir_all(&embedded)?;
    let figures = figures(&embedded, &clock, wall.clone())?;
    Ok(Costs {
        figures,
        sync_per_s: pushed(folder, &clock, wall)?,
    })
}

#[cfg(feature = "postgres")]
fn pushed(
    folder: &std::path::Path,
    clock: &TscClock,
    wall: WallClock,
) -> Result<Option<f64>, Failure> {
    const RECORDS: u32 = 20_000;
    let Some(server) = named_server() else {
        return Ok(None);
    };
    let dir = folder.join("fleet");
    std::fs::create_dir_all(&dir)?;
    Ok(Some(sync_per_s(&server, &dir, RECORDS, clock, wall)?))
}

#[cfg(not(feature = "postgres"))]
fn pushed(_: &std::path::Path, _: &TscClock, _: WallClock) -> Result<Option<f64>, Failure> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here and not on the built program, whose figures take many seconds.
    #[test]
    fn the_table_names_every_figure() {
        let figures = Figures {
            record_ns_p50: 23.2,
            record_ns_p99: 80.0,
            writes_per_s: 281_421.0,
            new_series_per_s: 40_693.0,
            open_100k_ms: 531.0,
            bytes_per_series: 403.0,
        };
        let alone = Costs {
            figures,
            sync_per_s: None,
        };
        insta::assert_snapshot!(costs_text(&alone));
    }
}
