//! The loop bodies, once for all vector instruction sets.

/// Implements [`Loops`](super::Loops) for a token.
///
/// The module that calls it provides, for its instruction set: the vector types `F32`, `F64`, `I32`;
/// `ACCUMULATORS`, enough independent chains to hide the latency of a multiply-add and few enough to
/// stay in registers; and functions with the same target features: `splat_f32`, `splat_f64`,
/// `splat_i32`, `multiply_add_f32(a, b, c)` = `a * b + c` (the same for `f64` and `i32`), `add_i32`,
/// `stream(&mut F32, F32)` and `stream_end()`.
macro_rules! vector_loops {
    ($token:ident, $features:literal, $isa:expr, streaming: $streaming:literal) => {
        use std::hint::black_box;
        use std::mem::transmute;

        use super::{Block, LINE_FLOATS, Loops, Stores, Tally, start_float, start_int};

        const F32_LANES: usize = size_of::<F32>() / 4;
        const F64_LANES: usize = size_of::<F64>() / 8;
        const I32_LANES: usize = size_of::<I32>() / 4;
        const PER_BLOCK: usize = Block::BYTES / size_of::<F32>();
        const PER_LINE: usize = LINE_FLOATS / F32_LANES;

        // What the casts between blocks and vectors below rely on.
        const _: () = assert!(PER_BLOCK * size_of::<F32>() == Block::BYTES);
        const _: () = assert!(align_of::<F32>() <= align_of::<Block>());
        const _: () = assert!(size_of::<I32>() == size_of::<F32>());

        #[inline(always)]
        fn floats(block: &Block) -> &[F32; PER_BLOCK] {
            // SAFETY: a block is exactly that many vectors large and aligned to at least one of them
            // (asserted above), and every bit pattern is a vector of floats.
            unsafe { &*std::ptr::from_ref(block).cast() }
        }

        #[inline(always)]
        fn floats_mut(block: &mut Block) -> &mut [F32; PER_BLOCK] {
            // SAFETY: as in `floats`; the exclusive borrow passes on to the result.
            unsafe { &mut *std::ptr::from_mut(block).cast() }
        }

        #[inline(always)]
        fn integers(block: &Block) -> &[I32; PER_BLOCK] {
            // SAFETY: as in `floats`; integer vectors have the same size, and every bit pattern is one.
            unsafe { &*std::ptr::from_ref(block).cast() }
        }

        /// A store that the compiler neither drops nor turns into a call of the system's `memcpy` or
        /// `memset`, which are measured on their own.
        fn store(place: &mut F32, value: F32) {
            // SAFETY: `place` is a live exclusive reference, hence valid for writes and aligned.
            unsafe { std::ptr::write_volatile(place, value) }
        }

        /// A load that happens even if nobody looks at the value.
        fn load(value: &I32) -> I32 {
            // SAFETY: `value` is a live reference, hence valid for reads and aligned.
            unsafe { std::ptr::read_volatile(value) }
        }

        #[target_feature(enable = $features)]
        fn peak_f32(rounds: u32, x: f32) -> f32 {
            const LANES: usize = ACCUMULATORS * F32_LANES;
            let start: [f32; LANES] = black_box(std::array::from_fn(start_float));
            // SAFETY: both arrays have the same size, and every bit pattern is a vector of floats.
            let mut accumulators: [F32; ACCUMULATORS] = unsafe { transmute(start) };
            let x = splat_f32(x);
            for _ in 0..rounds {
                for a in &mut accumulators {
                    *a = multiply_add_f32(*a, x, *a);
                }
            }
            // SAFETY: the same cast back; every bit pattern is a float.
            let lanes: [f32; LANES] = unsafe { transmute(accumulators) };
            lanes.iter().sum()
        }

        #[target_feature(enable = $features)]
        fn peak_f64(rounds: u32, x: f64) -> f64 {
            const LANES: usize = ACCUMULATORS * F64_LANES;
            let start: [f64; LANES] = black_box(std::array::from_fn(|k| f64::from(start_float(k))));
            // SAFETY: both arrays have the same size, and every bit pattern is a vector of floats.
            let mut accumulators: [F64; ACCUMULATORS] = unsafe { transmute(start) };
            let x = splat_f64(x);
            for _ in 0..rounds {
                for a in &mut accumulators {
                    *a = multiply_add_f64(*a, x, *a);
                }
            }
            // SAFETY: the same cast back; every bit pattern is a float.
            let lanes: [f64; LANES] = unsafe { transmute(accumulators) };
            lanes.iter().sum()
        }

        #[target_feature(enable = $features)]
        fn peak_i32(rounds: u32, x: i32, y: i32) -> i32 {
            const LANES: usize = ACCUMULATORS * I32_LANES;
            let start: [i32; LANES] = black_box(std::array::from_fn(start_int));
            // SAFETY: both arrays have the same size, and every bit pattern is a vector of integers.
            let mut accumulators: [I32; ACCUMULATORS] = unsafe { transmute(start) };
            let (x, y) = (splat_i32(x), splat_i32(y));
            for _ in 0..rounds {
                for a in &mut accumulators {
                    *a = multiply_add_i32(*a, x, y);
                }
            }
            // SAFETY: the same cast back; every bit pattern is an integer.
            let lanes: [i32; LANES] = unsafe { transmute(accumulators) };
            lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
        }

        #[target_feature(enable = $features)]
        fn peak_sum_i32(rounds: u32, y: i32) -> i32 {
            const LANES: usize = ACCUMULATORS * I32_LANES;
            let start: [i32; LANES] = black_box(std::array::from_fn(start_int));
            // SAFETY: both arrays have the same size, and every bit pattern is a vector of integers.
            let mut accumulators: [I32; ACCUMULATORS] = unsafe { transmute(start) };
            for _ in 0..rounds {
                // Hidden each round: the compiler would otherwise replace the sums by one product.
                let y = splat_i32(black_box(y));
                for a in &mut accumulators {
                    *a = add_i32(*a, y);
                }
            }
            // SAFETY: the same cast back; every bit pattern is an integer.
            let lanes: [i32; LANES] = unsafe { transmute(accumulators) };
            lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
        }

        #[target_feature(enable = $features)]
        fn read(src: &[Block], repeats: u32) -> u32 {
            let mut sums = [splat_i32(0); PER_LINE];
            for _ in 0..repeats {
                for block in src {
                    let (line, rest) = integers(block).split_at(PER_LINE);
                    for (sum, value) in sums.iter_mut().zip(line) {
                        *sum = add_i32(*sum, load(value));
                    }
                    for value in rest {
                        load(value);
                    }
                }
            }
            // SAFETY: both arrays have the same size, and every bit pattern is an integer.
            let lanes: [u32; PER_LINE * I32_LANES] = unsafe { transmute(sums) };
            lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
        }

        #[target_feature(enable = $features)]
        fn fill(dst: &mut [Block], byte: u8, repeats: u32, stores: Stores) {
            let value = splat_f32(f32::from_bits(u32::from(byte) * 0x0101_0101));
            for _ in 0..repeats {
                match stores {
                    Stores::Plain => {
                        for block in dst.iter_mut() {
                            for place in floats_mut(block) {
                                store(place, value);
                            }
                        }
                    }
                    Stores::Streaming => {
                        for block in dst.iter_mut() {
                            for place in floats_mut(block) {
                                stream(place, value);
                            }
                        }
                        stream_end();
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        fn copy(dst: &mut [Block], src: &[Block], repeats: u32, stores: Stores) {
            for _ in 0..repeats {
                match stores {
                    Stores::Plain => {
                        for (to, from) in dst.iter_mut().zip(black_box(src)) {
                            for (place, value) in floats_mut(to).iter_mut().zip(floats(from)) {
                                store(place, *value);
                            }
                        }
                    }
                    Stores::Streaming => {
                        for (to, from) in dst.iter_mut().zip(black_box(src)) {
                            for (place, value) in floats_mut(to).iter_mut().zip(floats(from)) {
                                stream(place, *value);
                            }
                        }
                        stream_end();
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        fn triad(dst: &mut [Block], [b, c]: [&[Block]; 2], s: f32, repeats: u32, stores: Stores) {
            let s = splat_f32(s);
            for _ in 0..repeats {
                let sources = black_box(b).iter().zip(black_box(c));
                match stores {
                    Stores::Plain => {
                        for (to, (b, c)) in dst.iter_mut().zip(sources) {
                            let values = floats(b).iter().zip(floats(c));
                            for (place, (b, c)) in floats_mut(to).iter_mut().zip(values) {
                                store(place, multiply_add_f32(s, *c, *b));
                            }
                        }
                    }
                    Stores::Streaming => {
                        for (to, (b, c)) in dst.iter_mut().zip(sources) {
                            let values = floats(b).iter().zip(floats(c));
                            for (place, (b, c)) in floats_mut(to).iter_mut().zip(values) {
                                stream(place, multiply_add_f32(s, *c, *b));
                            }
                        }
                        stream_end();
                    }
                }
            }
        }

        impl Loops for $token {
            fn isa(&self) -> Option<Isa> {
                Some($isa)
            }

            fn can_stream(&self) -> bool {
                $streaming
            }

            fn multiply_add_f32(&self, rounds: u32, x: f32) -> Tally<f32> {
                Tally {
                    flops: 2 * u64::from(rounds) * (ACCUMULATORS * F32_LANES) as u64,
                    // SAFETY: the token exists, so detection found the features.
                    sum: unsafe { peak_f32(rounds, x) },
                }
            }

            fn multiply_add_f64(&self, rounds: u32, x: f64) -> Tally<f64> {
                Tally {
                    flops: 2 * u64::from(rounds) * (ACCUMULATORS * F64_LANES) as u64,
                    // SAFETY: the token exists, so detection found the features.
                    sum: unsafe { peak_f64(rounds, x) },
                }
            }

            fn multiply_add_i32(&self, rounds: u32, x: i32, y: i32) -> Tally<i32> {
                Tally {
                    flops: 2 * u64::from(rounds) * (ACCUMULATORS * I32_LANES) as u64,
                    // SAFETY: the token exists, so detection found the features.
                    sum: unsafe { peak_i32(rounds, x, y) },
                }
            }

            fn add_i32(&self, rounds: u32, y: i32) -> Tally<i32> {
                Tally {
                    flops: u64::from(rounds) * (ACCUMULATORS * I32_LANES) as u64,
                    // SAFETY: the token exists, so detection found the features.
                    sum: unsafe { peak_sum_i32(rounds, y) },
                }
            }

            fn read(&self, src: &[Block], repeats: u32) -> u32 {
                // SAFETY: the token exists, so detection found the features.
                unsafe { read(src, repeats) }
            }

            fn fill(&self, dst: &mut [Block], byte: u8, repeats: u32, stores: Stores) {
                // SAFETY: the token exists, so detection found the features.
                unsafe { fill(dst, byte, repeats, stores) }
            }

            fn copy(&self, dst: &mut [Block], src: &[Block], repeats: u32, stores: Stores) {
                // SAFETY: the token exists, so detection found the features.
                unsafe { copy(dst, src, repeats, stores) }
            }

            fn triad(
                &self,
                dst: &mut [Block],
                sources: [&[Block]; 2],
                s: f32,
                repeats: u32,
                stores: Stores,
            ) {
                // SAFETY: the token exists, so detection found the features.
                unsafe { triad(dst, sources, s, repeats, stores) }
            }
        }
    };
}
