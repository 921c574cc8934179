//! `kernelwise sync` and `kernelwise bench store`: records on a server, and what remembering costs.

#[cfg(feature = "postgres")]
use anyhow::anyhow;
use kernelwise_measure::TscClock;
#[cfg(feature = "postgres")]
use kernelwise_store::fleet::{
    Fleet, FleetError, FleetOptions, ServerSeen, SyncPreview, sync_per_s,
};
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
    // What would leave is told without a server too.
    let server = match args.preview {
        true => named_server(),
        false => Some(server()?),
    };
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let (store, here) = (records.store()?, records.memory().here()?);
    store.describe(&machine);
    store.flush()?;
    let Some(server) = server.filter(|_| !args.preview) else {
        let preview = SyncPreview::of(store, &here, named_server().as_ref())?;
        return match args.format {
            Format::Json => output::json("kernelwise.sync_preview/1", &preview),
            Format::Table => output::text(&preview_text(&preview)),
        };
    };
    let mut fleet = Fleet::connect(&server)?;
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

/// Lines of a preview that a table shows.
#[cfg(feature = "postgres")]
const SHOWN: usize = 20;

#[cfg(feature = "postgres")]
fn preview_text(preview: &SyncPreview) -> String {
    let (records, notes) = (preview.records_out, preview.notes_out);
    let mut text = format!("{records} series and {notes} notes would leave this machine, ");
    text += &match preview.server {
        ServerSeen::Asked => {
            let (come, kinds) = (preview.records_in, preview.kinds);
            format!("{come} of {kinds} kinds of machine would come\n")
        }
        ServerSeen::Empty => "the server has no tables yet\n".to_owned(),
        ServerSeen::Away => {
            let trouble = preview.trouble.as_deref().unwrap_or_default();
            format!("as far as is known here: {trouble}\n")
        }
        _ => "as far as is known here: KERNELWISE_DATABASE_URL names no server\n".to_owned(),
    };
    for line in preview.out.iter().take(SHOWN) {
        text += &format!("  {line}\n");
    }
    let more = preview.out.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("  … and {more} more: --format json has them all\n");
    }
    text
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
    #[serde(flatten)]
    pushed: Pushed,
}

/// What pushing to a server costs.
#[derive(Debug, Serialize)]
struct Pushed {
    /// Records a second; `null` if that was not measured.
    sync_per_s: Option<f64>,
    /// Which server took them.
    sync_server: SyncServer,
    /// Why it was not measured.
    sync_trouble: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SyncServer {
    /// That of KERNELWISE_DATABASE_URL.
    #[cfg(feature = "postgres")]
    Named,
    /// One that was started for it, on this machine.
    #[cfg(feature = "postgres")]
    Private,
    None,
}

impl SyncServer {
    fn words(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Named => "that of KERNELWISE_DATABASE_URL",
            #[cfg(feature = "postgres")]
            Self::Private => "a private one on this machine",
            Self::None => "none",
        }
    }
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
            "records pushed to a server per second",
            match (costs.pushed.sync_per_s, &costs.pushed.sync_trouble) {
                (Some(rate), _) => format!("{rate:.0}"),
                (None, Some(trouble)) => format!("unknown: {trouble}"),
                (None, None) => "unknown".to_owned(),
            },
        ),
        ("the server", costs.pushed.sync_server.words().to_owned()),
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
        pushed: pushed(folder, &clock, wall)?,
    })
}

#[cfg(feature = "postgres")]
fn pushed(folder: &std::path::Path, clock: &TscClock, wall: WallClock) -> Result<Pushed, Failure> {
    const RECORDS: u32 = 20_000;
    let dir = folder.join("fleet");
    std::fs::create_dir_all(&dir)?;
    let rate = |options: &FleetOptions| sync_per_s(options, &dir, RECORDS, clock, wall);
    let (sync_server, measured) = match named_server() {
        Some(server) => (SyncServer::Named, rate(&server)),
        None => match on_a_private_server(rate) {
            // What is not installed is not missed.
            Err(error @ FleetError::Private { .. }) => (SyncServer::None, Err(error)),
            measured => (SyncServer::Private, measured),
        },
    };
    Ok(match measured {
        Ok(rate) => Pushed {
            sync_per_s: Some(rate),
            sync_server,
            sync_trouble: None,
        },
        Err(error @ (FleetError::Private { .. } | FleetError::Refused { .. })) => Pushed {
            sync_per_s: None,
            sync_server,
            sync_trouble: Some(error.to_string()),
        },
        Err(error) => return Err(error.into()),
    })
}

/// A server of the usual settings, of which nobody knows and nothing stays.
#[cfg(all(feature = "postgres", unix))]
fn on_a_private_server<T>(
    measure: impl FnOnce(&FleetOptions) -> Result<T, FleetError>,
) -> Result<T, FleetError> {
    use kernelwise_store::fleet::{Listen, PrivateServer};

    let server = PrivateServer::start(Listen::Socket, |_| vec![])?;
    measure(&FleetOptions::new(&server.url("owner")))
}

#[cfg(all(feature = "postgres", not(unix)))]
fn on_a_private_server<T>(
    _: impl FnOnce(&FleetOptions) -> Result<T, FleetError>,
) -> Result<T, FleetError> {
    Err(FleetError::Private {
        reason: "this system has no sockets in files".into(),
    })
}

#[cfg(not(feature = "postgres"))]
fn pushed(_: &std::path::Path, _: &TscClock, _: WallClock) -> Result<Pushed, Failure> {
    Ok(Pushed {
        sync_per_s: None,
        sync_server: SyncServer::None,
        sync_trouble: Some("built without PostgreSQL".into()),
    })
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
            pushed: Pushed {
                sync_per_s: None,
                sync_server: SyncServer::None,
                sync_trouble: Some("no private server".into()),
            },
        };
        insta::assert_snapshot!(costs_text(&alone));
    }

    #[cfg(all(feature = "postgres", unix))]
    #[test]
    fn pushing_is_measured_where_a_server_is_installed() {
        if kernelwise_store::fleet::PrivateServer::programs().is_none() {
            return kernelwise_testing::skip("postgres", "initdb and postgres were not found");
        }
        let folder = tempfile::tempdir().unwrap();
        let clock = TscClock::new();
        let pushed = pushed(folder.path(), &clock, WallClock::new(now_s)).unwrap();
        // A server that a developer named is measured too.
        assert_ne!(pushed.sync_server, SyncServer::None);
        assert!(pushed.sync_per_s.is_some_and(|rate| rate > 0.0));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_preview_counts_what_it_does_not_show() {
        let line = |i: usize| format!("{{\"line\":{i}}}");
        let mut preview = SyncPreview {
            records_out: 25,
            out: (0..25).map(line).collect(),
            ..SyncPreview::default()
        };
        let text = preview_text(&preview);
        assert_eq!(text.lines().count(), 22, "{text}");
        assert!(text.contains("{\"line\":19}") && !text.contains("{\"line\":20}"));
        assert!(text.contains("… and 5 more"), "{text}");
        assert!(text.contains("KERNELWISE_DATABASE_URL names no server"));
        preview.out.truncate(20);
        assert!(!preview_text(&preview).contains("more"));
    }
}
