//! `kernelwise cache`, `export` and `import`: what is on record, and how it travels.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use kernelwise_store::{Export, FileError, Imported, Prune, Skipped, Wisdom, WisdomError};
use kernelwise_types::Fingerprint;

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
        Cache::Path => output::text(&format!("{}\n", records.path())),
        Cache::Stats(stats) => {
            let kept = store.kept()?;
            match stats.format {
                Format::Json => output::json("kernelwise.cache_stats/1", &kept),
                Format::Table => {
                    let rows = [
                        ("series", kept.series),
                        ("runs", kept.runs),
                        ("samples kept as they came", kept.samples),
                        ("machines", kept.machines),
                        ("origins", kept.origins),
                        ("quarantines", kept.quarantines),
                        ("bytes", kept.bytes),
                    ];
                    let rows = rows.map(|(name, count)| (name.to_owned(), count.to_string()));
                    output::text(&output::section(&records.path(), &rows))
                }
            }
        }
        Cache::Verify => {
            let mut wrong = store.verify()?;
            wrong.extend(store.warnings().iter().map(ToString::to_string));
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
                ..Prune::default()
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
    let wisdom = Wisdom::from_bytes(&bytes).context("standard input")?;
    Ok(wisdom)
}
