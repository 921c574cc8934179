//! Loops without any assumption on the processor; what the compiler makes of them is SSE2 on x86-64.
//!
//! Filling and copying are the system library's `memset` and `memcpy`: tuned for each processor, and on
//! some faster than any vector loop because they use string instructions.

use std::hint::black_box;

use kernelwise_types::machine::Isa;

use super::{Block, LINE_FLOATS, Loops, Stores, Tally, start_float, start_int};

/// Works everywhere, so nothing has to be proved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

/// Twelve registers of 128 bits, of the sixteen that x86-64 has.
const BYTES: usize = 12 * 16;

const F32_LANES: usize = BYTES / 4;
const F64_LANES: usize = BYTES / 8;
const I32_LANES: usize = BYTES / 4;

impl Loops for Portable {
    fn isa(&self) -> Option<Isa> {
        None
    }

    fn can_stream(&self) -> bool {
        false
    }

    fn multiply_add_f32(&self, rounds: u32, x: f32) -> Tally<f32> {
        let mut lanes: [f32; F32_LANES] = black_box(std::array::from_fn(start_float));
        for _ in 0..rounds {
            for a in &mut lanes {
                // Two steps: without an instruction for it, a fused one is a call of the library.
                *a += *a * x;
            }
        }
        Tally {
            flops: 2 * u64::from(rounds) * F32_LANES as u64,
            sum: black_box(lanes).iter().sum(),
        }
    }

    fn multiply_add_f64(&self, rounds: u32, x: f64) -> Tally<f64> {
        let mut lanes: [f64; F64_LANES] =
            black_box(std::array::from_fn(|k| f64::from(start_float(k))));
        for _ in 0..rounds {
            for a in &mut lanes {
                *a += *a * x;
            }
        }
        Tally {
            flops: 2 * u64::from(rounds) * F64_LANES as u64,
            sum: black_box(lanes).iter().sum(),
        }
    }

    fn multiply_add_i32(&self, rounds: u32, x: i32, y: i32) -> Tally<i32> {
        let mut lanes: [i32; I32_LANES] = black_box(std::array::from_fn(start_int));
        for _ in 0..rounds {
            for a in &mut lanes {
                *a = a.wrapping_mul(x).wrapping_add(y);
            }
        }
        Tally {
            flops: 2 * u64::from(rounds) * I32_LANES as u64,
            sum: black_box(lanes)
                .iter()
                .fold(0, |sum, lane| sum.wrapping_add(*lane)),
        }
    }

    fn add_i32(&self, rounds: u32, y: i32) -> Tally<i32> {
        let start: [i32; I32_LANES] = black_box(std::array::from_fn(start_int));
        // A copy whose address nobody has seen, so that it can live in registers.
        let mut lanes = start.map(|lane| lane);
        for _ in 0..rounds {
            // Hidden each round: the compiler would otherwise replace the sums by one product.
            let y = black_box(y);
            for a in &mut lanes {
                *a = a.wrapping_add(y);
            }
        }
        Tally {
            flops: u64::from(rounds) * I32_LANES as u64,
            sum: black_box(lanes)
                .iter()
                .fold(0, |sum, lane| sum.wrapping_add(*lane)),
        }
    }

    fn read(&self, src: &[Block], repeats: u32) -> u32 {
        let (mut sum, mut touched) = (0u32, 0u32);
        for _ in 0..repeats {
            for block in black_box(src) {
                let (line, rest) = block.0.split_at(LINE_FLOATS);
                for value in line {
                    sum = sum.wrapping_add(value.to_bits());
                }
                for value in rest {
                    touched |= value.to_bits();
                }
            }
        }
        black_box(touched);
        sum
    }

    fn fill(&self, dst: &mut [Block], byte: u8, repeats: u32, _stores: Stores) {
        for _ in 0..repeats {
            // SAFETY: the slice is valid for writes over its length, and any bytes make floats.
            unsafe { std::ptr::write_bytes(dst.as_mut_ptr(), byte, dst.len()) };
            black_box(&mut *dst);
        }
    }

    fn copy(&self, dst: &mut [Block], src: &[Block], repeats: u32, _stores: Stores) {
        let blocks = dst.len().min(src.len());
        for _ in 0..repeats {
            dst[..blocks].copy_from_slice(&black_box(src)[..blocks]);
            black_box(&mut *dst);
        }
    }

    fn triad(
        &self,
        dst: &mut [Block],
        [b, c]: [&[Block]; 2],
        s: f32,
        repeats: u32,
        _stores: Stores,
    ) {
        for _ in 0..repeats {
            let sources = black_box(b).iter().zip(black_box(c));
            for (to, (b, c)) in dst.iter_mut().zip(sources) {
                for (place, (b, c)) in to.0.iter_mut().zip(b.0.iter().zip(&c.0)) {
                    *place = b + s * c;
                }
            }
            black_box(&mut *dst);
        }
    }
}
