//! `kernelwise cache`, `export` and `import`: what is on record, and how it travels.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::anyhow;
use kernelwise_store::{
    Export, FileError, Imported, Kept, Prune, RawSample, SeriesKey, Skipped, Store, StoreError,
    Warning, Wisdom, WisdomError,
};
use kernelwise_types::units::{Nanos, Share};
use kernelwise_types::{Conditions, Fingerprint};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Cache, Format};
use crate::exit::Failure;
use crate::output;
use crate::records::Records;

const DAY_S: u64 = 24 * 60 * 60;

fn records() -> Result<Records, Failure> {
    Records::open(&kernelwise_probe::machine())
}

/// Shows, checks, thins out or forgets.
pub(crate) fn cache(asked: &Cache) -> Result<(), Failure> {
    let records = records()?;
    let store = records.store()?;
    match asked {
        Cache::Path => output::verbatim(&format!("{}\n", records.path())),
        Cache::Stats(args) => stats(args.format, &records),
        Cache::List(list) => self::list(list, store),
        Cache::Quarantine(asked) => quarantine(asked, &records),
        Cache::Verify => {
            let mut wrong = store.verify()?;
            let damage = |warning: &&Warning| matches!(warning, Warning::SetAside { .. });
            let warnings = store.warnings();
            wrong.extend(warnings.iter().filter(damage).map(ToString::to_string));
            match wrong.is_empty() {
                true => output::text("the file is sound\n"),
                false => Err(Failure::Failed(anyhow!("{}", wrong.join("; ")))),
            }
        }
        Cache::Prune(prune) => {
            let older = prune.older_than_days.map(|days| DAY_S * u64::from(days));
            let here = Fingerprint::of(&kernelwise_probe::machine());
            let pruned = store.prune(&Prune {
                older_than_s: older,
                keep_only: prune.other_machines.then_some(here),
                most_series: prune.most_series,
            })?;
            output::text(&format!(
                "{} series and {} notes were let go, {} compacted\n",
                pruned.series, pruned.notes, pruned.compacted
            ))
        }
        Cache::Clear(_) => {
            store.clear()?;
            output::text("nothing is on record any more\n")
        }
    }
}

/// How much is on record, and how much of it counts on this machine.
#[derive(Debug, Serialize)]
struct Stats {
    #[serde(flatten)]
    kept: Kept,
    /// Candidates that were measured on this kind of machine, under this software and in this version.
    measured_here: usize,
    /// Candidates of which there are only times of other software or of another version of the kernel.
    stale: usize,
    /// Candidates that other machines measured: evidence for models.
    measured_elsewhere: usize,
    /// Series that say nothing here, by reason.
    ignored: BTreeMap<&'static str, u64>,
}

/// Counts what is on record.
fn stats(format: Format, records: &Records) -> Result<(), Failure> {
    let calibration = records.memory().calibration()?;
    let found = records.found(&kernelwise_cpu::kernels()?, calibration.as_ref())?;
    let stale = found.here.iter().filter(|one| one.tally.is_stale()).count();
    let stats = Stats {
        kept: records.store()?.kept()?,
        measured_here: found.here.len() - stale,
        stale,
        measured_elsewhere: found.elsewhere.len(),
        ignored: found.ignored,
    };
    match format {
        Format::Json => output::json("kernelwise.cache_stats/1", &stats),
        Format::Table => {
            let Stats { kept, .. } = &stats;
            let rows = [
                ("series", kept.series),
                ("runs", kept.runs),
                ("samples kept as they came", kept.samples),
                ("machines", kept.machines),
                ("origins", kept.origins),
                ("quarantines", kept.quarantines),
                ("bytes", kept.bytes),
                ("measured here", stats.measured_here as u64),
                ("stale: to be verified", stats.stale as u64),
                ("measured elsewhere", stats.measured_elsewhere as u64),
            ];
            let rows = rows.map(|(name, count)| (name.to_owned(), count.to_string()));
            let ignored = stats.ignored.iter();
            let ignored =
                ignored.map(|(why, count)| (format!("ignored: {why}"), count.to_string()));
            let rows: Vec<_> = rows.into_iter().chain(ignored).collect();
            output::text(&output::section(&records.path(), &rows))
        }
    }
}

/// One series, as it is listed.
#[derive(Debug, Serialize)]
struct Series {
    workload: String,
    kernel: String,
    version: u32,
    parameters: String,
    runs: u64,
    failed: u64,
    /// Geometric mean; `null` if no run succeeded.
    time_ns: Option<f64>,
    /// Seconds since 1970.
    last_s: u64,
    machine: String,
    this_machine: bool,
    /// The latest single runs, oldest first, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<Vec<Single>>,
}

/// A single run, as it is listed.
#[derive(Debug, Serialize)]
struct Single {
    /// Seconds since 1970.
    at_s: u64,
    time_ns: f64,
    /// `null` if nothing was predicted.
    predicted_ns: Option<f64>,
    #[serde(flatten)]
    conditions: Conditions,
}

impl From<RawSample> for Single {
    fn from(sample: RawSample) -> Self {
        Self {
            at_s: sample.unix_s,
            time_ns: sample.time_ns,
            predicted_ns: sample.predicted_ns,
            conditions: sample.conditions,
        }
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    series: Vec<Series>,
}

/// Tells what is on record, series by series.
fn list(args: &args::CacheList, store: &Store) -> Result<(), Failure> {
    let here = Fingerprint::of(&kernelwise_probe::machine());
    let asked = args.op.as_deref().map(Asked::parse).transpose()?;
    let of = |workload: &str| {
        let Some(asked) = &asked else { return true };
        workload.parse().is_ok_and(|workload| asked.is(&workload))
    };
    let known = match args.this_machine {
        true => store.known(&here)?,
        false => store.known_anywhere()?,
    };
    let series = known.into_iter().filter(|one| of(&one.key.workload));
    let samples = |key: &SeriesKey| -> Result<Option<Vec<Single>>, StoreError> {
        let samples = args.samples.then(|| store.samples(key)).transpose()?;
        Ok(samples.map(|all| all.into_iter().map(Single::from).collect()))
    };
    let series = series.map(|one| {
        Ok(Series {
            samples: samples(&one.key)?,
            runs: one.statistics.times().samples(),
            failed: one.statistics.failed(),
            time_ns: one.statistics.times().geometric_mean().map(Nanos::get),
            last_s: one.statistics.last_s(),
            this_machine: one.key.place.fingerprint == here,
            machine: one.key.place.fingerprint.to_string(),
            workload: one.key.workload.to_string(),
            kernel: one.key.kernel.to_string(),
            version: one.key.version,
            parameters: one.key.params.to_string(),
        })
    });
    let listed = Listed {
        series: series.collect::<Result<_, StoreError>>()?,
    };
    if listed.series.is_empty() {
        let hint = "nothing of that is on record: run `kernelwise learn` first";
        return Err(Failure::NotFound(anyhow!(hint)));
    }
    match args.format {
        Format::Json => output::json("kernelwise.cache_list/1", &listed),
        Format::Table if args.samples => output::text(&singles(&listed)),
        Format::Table => {
            let time = |ns: Option<f64>| ns.and_then(|ns| Nanos::new(ns).ok());
            let rows = listed.series.iter().map(|one| {
                vec![
                    one.workload.clone(),
                    format!("{} v{}", one.kernel, one.version),
                    one.parameters.clone(),
                    time(one.time_ns).map_or("failed".to_owned(), |time| time.to_string()),
                    one.runs.to_string(),
                    match one.this_machine {
                        true => "this machine".to_owned(),
                        false => one.machine.clone(),
                    },
                ]
            });
            let headings = [
                "workload",
                "kernel",
                "parameters",
                "time",
                "runs",
                "measured on",
            ];
            output::text(&output::columns(&headings, &[3, 4], rows.collect()))
        }
    }
}

/// The single runs of all series.
fn singles(listed: &Listed) -> String {
    let time = |ns: f64| Nanos::new(ns).map_or("-".to_owned(), |time| time.to_string());
    let share = |share: Option<Share>| {
        share.map_or("-".to_owned(), |share| {
            format!("{:.0} %", 100.0 * share.get())
        })
    };
    let rows = listed.series.iter().flat_map(|one| {
        one.samples.iter().flatten().map(move |single| {
            vec![
                one.workload.clone(),
                format!("{} v{}", one.kernel, one.version),
                one.parameters.clone(),
                single.at_s.to_string(),
                time(single.time_ns),
                single.predicted_ns.map_or("-".to_owned(), time),
                share(single.conditions.cpu_utilisation),
            ]
        })
    });
    let headings = [
        "workload",
        "kernel",
        "parameters",
        "at (s since 1970)",
        "time",
        "predicted",
        "busy",
    ];
    output::columns(&headings, &[3, 4, 5, 6], rows.collect())
}

/// Lists kernels that are kept away, or lets one back in.
fn quarantine(args: &args::CacheQuarantine, records: &Records) -> Result<(), Failure> {
    let memory = records.memory();
    let kept = memory.quarantined()?;
    if let Some(kernel) = &args.lift {
        if !memory.lift_quarantine(kernel)? {
            let hint = asked::nearest(kernel, kept.iter().map(|one| one.kernel.as_str()));
            return Err(Failure::NotFound(anyhow!(
                "`{kernel}` is not kept away{hint}; `kernelwise cache quarantine` lists those that are"
            )));
        }
        records.store()?.flush()?;
        return output::text(&format!("{kernel} takes part again\n"));
    }
    let kept = kept.into_iter().map(|one| KeptAway {
        kernel: one.kernel.to_string(),
        version: one.version,
        workload: one.workload,
        evidence: one.evidence,
    });
    let kept = Quarantined {
        quarantined: kept.collect(),
    };
    match args.format {
        Format::Json => output::json("kernelwise.cache_quarantine/1", &kept),
        Format::Table if kept.quarantined.is_empty() => output::text("no kernel is kept away\n"),
        Format::Table => {
            let rows = kept.quarantined.iter().map(|one| {
                vec![
                    format!("{} v{}", one.kernel, one.version),
                    one.workload.clone(),
                    one.evidence.clone(),
                ]
            });
            output::text(&output::columns(
                &["kernel", "on", "evidence"],
                &[],
                rows.collect(),
            ))
        }
    }
}

#[derive(Debug, Serialize)]
struct Quarantined {
    quarantined: Vec<KeptAway>,
}

#[derive(Debug, Serialize)]
struct KeptAway {
    kernel: String,
    version: u32,
    workload: String,
    evidence: String,
}

/// Writes a wisdom file.
pub(crate) fn export(args: &args::Export) -> Result<(), Failure> {
    let here = Fingerprint::of(&kernelwise_probe::machine());
    let wisdom = records()?.store()?.export(&Export {
        only: args.this_machine.then_some(here),
    })?;
    if wisdom.is_empty() {
        let hint = "nothing is on record to export: run `kernelwise learn` first";
        return Err(Failure::NotFound(anyhow!(hint)));
    }
    match &args.output {
        Some(path) => {
            wisdom.save(path)?;
            let count = wisdom.records().count();
            output::note(&format!("{count} series in {}", path.display()));
        }
        None => std::io::stdout()
            .lock()
            .write_all(&wisdom.to_bytes(false))?,
    }
    Ok(())
}

/// Takes wisdom files over.
pub(crate) fn import(args: &args::Import) -> Result<(), Failure> {
    // All are read before one is taken over: a bad one changes nothing.
    let mut all = Wisdom::default();
    for path in &args.files {
        let (wisdom, skipped) = read(path)?;
        for Skipped { line, reason } in skipped {
            output::note(&format!(
                "{}: line {line} left out: {reason}",
                path.display()
            ));
        }
        all.merge(wisdom);
    }
    let records = records()?;
    let store = records.store()?;
    let Imported {
        records: new,
        notes,
        known,
    } = match args.preview {
        true => store.preview(&all)?,
        false => store.import(&all)?,
    };
    let would = if args.preview { "would be" } else { "were" };
    output::text(&format!(
        "{new} series and {notes} notes {would} taken over, {known} were known already\n"
    ))
}

fn read(path: &Path) -> Result<(Wisdom, Vec<Skipped>), Failure> {
    if path.as_os_str() != "-" {
        return Wisdom::load(path).map_err(|error| match &error {
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Failure::NotFound(error.into())
            }
            FileError::Wisdom {
                source: WisdomError::Newer { .. },
                ..
            } => Failure::Records(error.into()),
            _ => Failure::Failed(error.into()),
        });
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Wisdom::from_bytes(&bytes).map_err(|error| match error {
        WisdomError::Newer { .. } => Failure::Records(anyhow!("standard input: {error}")),
        _ => Failure::Failed(anyhow!(error).context("standard input")),
    })
}

/// Puts wisdom files together.
pub(crate) fn merge(args: &args::Merge) -> Result<(), Failure> {
    let mut all = Wisdom::default();
    for path in &args.files {
        let (wisdom, skipped) = read(path)?;
        for Skipped { line, reason } in skipped {
            let path = path.display();
            output::note(&format!("{path}: line {line} left out: {reason}"));
        }
        all.merge(wisdom);
    }
    all.save(&args.output)?;
    let (count, path) = (all.records().count(), args.output.display());
    output::note(&format!("{count} series in {path}"));
    Ok(())
}
