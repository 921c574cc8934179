//! `kernelwise bench select`: what a choice costs.

use kernelwise_bench::{Hits, hits};

use crate::allocations;
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{output, progress};

/// Measures and prints it.
pub(crate) fn run(args: &args::BenchSelect) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let bar = progress::uncounted("timing choices");
    let figures = hits(&machine, Some(allocations::during));
    bar.finish_and_clear();
    let figures = figures?;
    match args.format {
        Format::Json => output::json("kernelwise.bench_select/1", &figures),
        Format::Table => output::text(&table(&figures)),
    }
}

fn table(figures: &Hits) -> String {
    let nanos = |ns: f64| format!("{ns:.1} ns");
    let ratio = |ratio: Option<f64>| {
        ratio.map_or("unknown: one processor".to_owned(), |r| format!("{r:.2}"))
    };
    let rows = [
        ("a choice, key included (p50)", nanos(figures.hit_ns_p50)),
        ("the same, upper quartile", nanos(figures.hit_ns_p75)),
        ("through a plan (p50)", nanos(figures.plan_ns_p50)),
        (
            "among 64 kernels (p50)",
            nanos(figures.hit_64_kernels_ns_p50),
        ),
        (
            "one of 100,000 workloads (p50)",
            nanos(figures.hit_many_keys_ns_p50),
        ),
        (
            "the same over one workload",
            format!("{:.2}", figures.many_keys_over_one),
        ),
        (
            "RwLock<HashMap>, for comparison (p50)",
            nanos(figures.rwlock_ns_p50),
        ),
        ("two threads over one", ratio(figures.speedup_2_threads)),
        (
            "two threads, a selector each",
            ratio(figures.speedup_2_threads_apart),
        ),
        (
            "allocations of a choice",
            figures
                .allocs_per_hit
                .map_or("unknown".to_owned(), |n| n.to_string()),
        ),
    ];
    let rows = rows.map(|(name, value)| (name.to_owned(), value));
    output::section("the cost of choosing", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here and not on the built program, whose figures take a quarter of a minute.
    #[test]
    fn the_table_names_every_figure() {
        let figures = Hits {
            hit_ns_p50: 56.5,
            hit_ns_p75: 58.0,
            plan_ns_p50: 16.1,
            hit_64_kernels_ns_p50: 56.6,
            hit_many_keys_ns_p50: 175.3,
            many_keys_over_one: 3.36,
            many_keys: 100_000,
            rwlock_ns_p50: 135.3,
            speedup_2_threads: Some(1.9),
            speedup_2_threads_apart: None,
            allocs_per_hit: Some(0.0),
        };
        insta::assert_snapshot!(table(&figures));
    }
}
