//! A sort of one's own: three ways to do it, each the best somewhere, and nobody says where.
//!
//! What matters is how long the input is and how much of it is in order already, so that is what the operation is told
//! to look at. Run it with `cargo run --release -p kernelwise --example own_variants`.

use std::error::Error;
use std::io::Write;

use kernelwise::Kernelwise;
use kernelwise::own::Features;

/// The share of neighbours in order, from a sample: looking at all of them would take as long as sorting few.
fn sortedness(input: &[u32]) -> f64 {
    const LOOKS: usize = 32;
    let pairs = input.len().saturating_sub(1);
    let looks = pairs.min(LOOKS);
    let at = |look: usize| look * pairs / looks;
    let in_order = (0..looks).filter(|look| input[at(*look)] <= input[at(*look) + 1]);
    match looks {
        0 => 1.0,
        looks => in_order.count() as f64 / looks as f64,
    }
}

/// Bytes from the lowest to the highest, each time keeping the order of what is equal.
fn radix(input: &mut [u32]) {
    let mut from = input.to_vec();
    let mut to = vec![0; input.len()];
    for shift in [0, 8, 16, 24] {
        let byte = |x: u32| (x >> shift & 0xff) as usize;
        let mut places = [0; 256];
        from.iter().for_each(|x| places[byte(*x)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for x in &from {
            to[places[byte(*x)]] = *x;
            places[byte(*x)] += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    input.copy_from_slice(&from);
}

/// Quick where little has to move; gives up where much has to.
fn insertion(input: &mut [u32]) {
    let mut moves = 16 * input.len();
    for i in 1..input.len() {
        let x = input[i];
        let mut hole = i;
        while hole > 0 && input[hole - 1] > x {
            input[hole] = input[hole - 1];
            hole -= 1;
            moves -= 1;
            if moves == 0 {
                input[hole] = x;
                return input.sort_unstable();
            }
        }
        input[hole] = x;
    }
}

/// Numbers in an order of which so many in a thousand neighbours were exchanged for something else.
fn numbers(length: usize, disorder: u64) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    };
    let mut numbers: Vec<u32> = (0..length as u32).map(|i| i * 1000).collect();
    for number in &mut numbers {
        if random() % 1000 < disorder {
            *number = random() as u32;
        }
    }
    numbers
}

/// Sorts inputs of several kinds, as many rounds as wanted, and tells what was learned.
pub(crate) fn run(
    out: &mut impl Write,
    lengths: &[usize],
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let kw = Kernelwise::new()?;
    let sorting = kw
        .operation("sorting")
        .features(|input: &[u32]| {
            Features::new()
                .size("length", input.len())
                .share("sorted", sortedness(input))
        })
        .variant("std", |input: &mut [u32]| input.sort_unstable())
        .variant("radix", radix)
        .variant("insertion", insertion)
        .verified_by(|mine, reference| mine.input == reference.input)
        .build()?;

    let mut scratch = Vec::new();
    for _ in 0..rounds {
        for &length in lengths {
            for disorder in [0, 20, 1000] {
                let input = numbers(length, disorder);
                // Short ones come in large numbers.
                for _ in 0..(2000 / length).max(1) {
                    scratch.clone_from(&input);
                    sorting.run(&mut scratch)?;
                    assert!(scratch.is_sorted());
                }
            }
        }
    }

    for case in sorting.learned() {
        writeln!(out, "{case}")?;
    }
    let statistics = kw.statistics();
    writeln!(
        out,
        "{} calls took {:.2} s; {} of them were trials, which took {:.2} % on top; {} outcomes were checked",
        statistics.calls,
        statistics.served_ns / 1e9,
        statistics.trials,
        100.0 * statistics.trials_excess_ns / statistics.served_ns,
        statistics.verified,
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout().lock(), &[16, 200, 20_000], 1500)
}
