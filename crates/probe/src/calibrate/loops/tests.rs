use super::*;

/// Blocks whose floats are all different, so that a loop that skips or repeats some is noticed.
fn ramp(blocks: usize, scale: f32) -> Vec<Block> {
    (0..blocks)
        .map(|i| {
            Block(std::array::from_fn(|j| {
                scale * (i * BLOCK_FLOATS + j) as f32
            }))
        })
        .collect()
}

/// The lanes that a tally speaks of.
fn lanes(tally_flops: u64, rounds: u32, per_lane: u64) -> usize {
    let whole = u64::from(rounds) * per_lane;
    assert_eq!(tally_flops % whole, 0, "flops of whole lanes");
    (tally_flops / whole) as usize
}

#[test]
fn float_peaks_compute_what_they_count() {
    const ROUNDS: u32 = 19;
    for loops in available() {
        let tally = loops.multiply_add_f32(ROUNDS, 0.125);
        let count = lanes(tally.flops, ROUNDS, 2);
        let expected: f64 = (0..count)
            .map(|k| f64::from(start_float(k)) * 1.125f64.powi(ROUNDS as i32))
            .sum();
        let error = (f64::from(tally.sum) / expected - 1.0).abs();
        assert!(error < 1e-5, "{loops:?}: {tally:?}, expected {expected}");

        let tally = loops.multiply_add_f64(ROUNDS, 0.125);
        let count = lanes(tally.flops, ROUNDS, 2);
        let expected: f64 = (0..count)
            .map(|k| f64::from(start_float(k)) * 1.125f64.powi(ROUNDS as i32))
            .sum();
        let error = (tally.sum / expected - 1.0).abs();
        assert!(error < 1e-13, "{loops:?}: {tally:?}, expected {expected}");
    }
}

#[test]
fn integer_peaks_compute_what_they_count() {
    const ROUNDS: u32 = 23;
    let sum = |count: usize, step: &dyn Fn(i32) -> i32| {
        (0..count).fold(0i32, |sum, k| {
            let last = (0..ROUNDS).fold(start_int(k), |a, _| step(a));
            sum.wrapping_add(last)
        })
    };
    for loops in available() {
        let tally = loops.multiply_add_i32(ROUNDS, 3, 7);
        let count = lanes(tally.flops, ROUNDS, 2);
        let expected = sum(count, &|a| a.wrapping_mul(3).wrapping_add(7));
        assert_eq!(tally.sum, expected, "{loops:?}");

        let tally = loops.add_i32(ROUNDS, 5);
        let count = lanes(tally.flops, ROUNDS, 1);
        assert_eq!(tally.sum, sum(count, &|a| a.wrapping_add(5)), "{loops:?}");
    }
}

#[test]
fn work_grows_with_the_rounds_and_fills_whole_registers() {
    for loops in available() {
        let one = loops.multiply_add_f32(1, 0.0).flops;
        assert_eq!(loops.multiply_add_f32(10, 0.0).flops, 10 * one);
        // Half as many doubles as floats fit a register; a plain sum is half a multiply-add.
        assert_eq!(loops.multiply_add_f64(1, 0.0).flops * 2, one);
        assert_eq!(loops.multiply_add_i32(1, 0, 0).flops, one);
        assert_eq!(loops.add_i32(1, 0).flops * 2, one);
    }
}

#[test]
fn reading_visits_every_block_as_often_as_asked() {
    let src = ramp(5, 1.0);
    let once = src
        .iter()
        .flat_map(|block| &block.0[..LINE_FLOATS])
        .fold(0u32, |sum, value| sum.wrapping_add(value.to_bits()));
    for loops in available() {
        assert_eq!(loops.read(&src, 3), once.wrapping_mul(3), "{loops:?}");
    }
}

#[test]
fn writing_loops_leave_the_same_memory_whatever_the_stores() {
    let (b, c) = (ramp(5, 0.5), ramp(5, 2.0));
    let expected_triad: Vec<Block> = b
        .iter()
        .zip(&c)
        .map(|(b, c)| Block(std::array::from_fn(|j| b.0[j] + 3.0 * c.0[j])))
        .collect();
    let byte = 0x3f;
    let filled = Block::of(f32::from_bits(0x3f3f_3f3f));
    for loops in available() {
        for stores in [Stores::Plain, Stores::Streaming] {
            // One block more than the sources have: it must stay as it was.
            let untouched = Block::of(-1.0);
            let mut dst = vec![untouched; 6];
            loops.copy(&mut dst, &b, 2, stores);
            assert_eq!(dst[..5], b, "{loops:?} {stores:?}");
            assert_eq!(dst[5], untouched, "{loops:?} {stores:?}");

            // Small whole numbers and halves: exact with and without fusing.
            loops.triad(&mut dst, [&b, &c], 3.0, 2, stores);
            assert_eq!(dst[..5], expected_triad, "{loops:?} {stores:?}");
            assert_eq!(dst[5], untouched, "{loops:?} {stores:?}");

            loops.fill(&mut dst, byte, 2, stores);
            assert_eq!(dst, [filled; 6], "{loops:?} {stores:?}");
        }
    }
}

#[test]
fn portable_code_is_always_there_and_last() {
    let names: Vec<_> = available().iter().map(|loops| loops.isa()).collect();
    assert_eq!(names.last(), Some(&None));
    assert_eq!(names.iter().filter(|isa| isa.is_none()).count(), 1);
}
