//! `kernelwise bench model`: what fitting a model takes, and asking it.

use kernelwise_measure::{Clock, TscClock};
use kernelwise_model::{Boosting, ModelKind, Table};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{output, progress};

/// Rows that are asked about, as often as this; the quickest pass counts.
const ASKED: usize = 2000;
const PASSES: usize = 5;

#[derive(Debug, Serialize)]
struct Figures {
    model: &'static str,
    rows: u32,
    features: u16,
    /// Threads the fit may use.
    threads: usize,
    seed: u64,
    fit_s: f64,
    /// The most memory the program ever had, with the rows; `null` where the system does not tell.
    peak_rss_mib: Option<f64>,
    /// The same before there were rows.
    rss_before_mib: Option<f64>,
    /// Nanoseconds of an answer, in the form that answers fastest.
    predict_ns: f64,
}

/// Measures and prints it.
pub(crate) fn run(args: &args::BenchModel) -> Result<(), Failure> {
    let kind: ModelKind = args.model.parse().map_err(anyhow::Error::new)?;
    let clock = TscClock::new();
    let rss_before_mib = most_memory_mib();
    let bar = progress::uncounted("fitting a model to made-up rows");
    let (table, asked) = made_up(args)?;
    let began = clock.now();
    let fitted = kind.fit(&table, args.seed).map_err(anyhow::Error::new)?;
    let fit_s = clock.now().saturating_sub(began) as f64 / 1e9;
    let peak_rss_mib = most_memory_mib();
    let model = fitted.compile();
    let pass = || {
        let began = clock.now();
        for row in &asked {
            std::hint::black_box(model.predict(std::hint::black_box(row)).ok());
        }
        clock.now().saturating_sub(began) as f64 / asked.len() as f64
    };
    let predict_ns = (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min);
    bar.finish_and_clear();
    let is_of_trees = matches!(
        kind,
        ModelKind::BoostedTrees | ModelKind::BoostedTreesThorough
    );
    let figures = Figures {
        model: kind.name(),
        rows: args.rows,
        features: args.features,
        threads: match is_of_trees {
            true => Boosting::threads(args.rows as usize, args.features.into()),
            false => 1,
        },
        seed: args.seed,
        fit_s,
        peak_rss_mib,
        rss_before_mib,
        predict_ns,
    };
    match args.format {
        Format::Json => output::json("kernelwise.bench_model/1", &figures),
        Format::Table => output::text(&text(&figures)),
    }
}

/// Rows as models of times have them: sizes over some orders of magnitude, and ln of a time with a cost per call, a rate that some
/// of them decide, and a tenth of noise. Some of them are asked about.
fn made_up(args: &args::BenchModel) -> Result<(Table, Vec<Vec<f32>>), Failure> {
    let mut random = Pcg64Mcg::seed_from_u64(args.seed);
    let mut table = Table::new(args.features.into());
    let mut asked = Vec::new();
    for _ in 0..args.rows {
        let row: Vec<f32> = (0..args.features)
            .map(|_| (12.0 * random.random::<f32>()).exp2().floor())
            .collect();
        let work: f32 = row.iter().take(3).product();
        let strided = row.last().is_some_and(|last| *last > 64.0);
        let rate = if strided { 0.02 } else { 0.1 };
        let noise = 0.1 * (random.random::<f32>() - 0.5);
        let target = (1000.0 + work / rate).ln() + noise;
        table.push(&row, target).map_err(anyhow::Error::new)?;
        if asked.len() < ASKED {
            asked.push(row);
        }
    }
    Ok((table, asked))
}

/// The most memory this process ever had, as Linux counts it.
fn most_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn text(figures: &Figures) -> String {
    let mib = |mib: Option<f64>| mib.map_or("unknown".to_owned(), |mib| format!("{mib:.0} MiB"));
    let title = format!(
        "{} of {} rows with {} features",
        figures.model, figures.rows, figures.features
    );
    let rows = [
        ("fitted in", format!("{:.2} s", figures.fit_s)),
        ("on threads, at the most", figures.threads.to_string()),
        ("memory at the most", mib(figures.peak_rss_mib)),
        ("before there were rows", mib(figures.rss_before_mib)),
        ("an answer takes", format!("{:.0} ns", figures.predict_ns)),
    ];
    let rows = rows.map(|(name, value)| (name.to_owned(), value));
    output::section(&title, &rows)
}
