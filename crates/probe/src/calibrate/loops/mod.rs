//! The loops whose speed is a ceiling, in the widest vectors the processor has.
//!
//! Every instruction set has one file with its few vector primitives and a token that only run-time
//! detection can make; the bodies are written once, in the `vector_loops!` macro, so that all sets do
//! the same work and count it the same way. [`portable`] is the floor for processors without a file
//! and the answer key of the tests. A new instruction set is a file like `avx2.rs` and a line in
//! [`available`].
//!
//! Arithmetic runs on registers only. Floats do `a = a * x + a` with a tiny `x`: the values stay near
//! one, where no processor is slow, and the addend is the accumulator, as in every dot product.
//! Integers do `a = a * x + y`, and `a = a + y` as well: where a vector multiplication of integers takes
//! two steps, plain sums are the faster kernel, and a ceiling has to lie above both.

use kernelwise_types::machine::Isa;

#[macro_use]
mod bodies;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

/// Floats in one [`Block`].
pub(super) const BLOCK_FLOATS: usize = 128;

/// Floats in one cache line of 64 bytes, eight of which make a [`Block`].
const LINE_FLOATS: usize = 16;

/// What memory is cut into: eight cache lines of 64 bytes, aligned to the widest vector there is. A
/// slice of blocks needs no loop for leftovers, and no loop has to check alignment.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [f32; BLOCK_FLOATS]);

impl Block {
    /// Its size.
    pub(super) const BYTES: usize = size_of::<Self>();

    /// The same number in every place.
    pub(super) const fn of(value: f32) -> Self {
        Self([value; BLOCK_FLOATS])
    }
}

/// Arithmetic done, and its result so that it had to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tally<T> {
    /// Operations, a multiply-add being two.
    pub(super) flops: u64,
    /// The sum of all accumulators, to be handed to `black_box`.
    pub(super) sum: T,
}

/// How results reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Through the caches.
    Plain,
    /// Past the caches (non-temporal), which saves fetching lines that are overwritten anyway.
    Streaming,
}

/// The loops of one instruction set. Lane `k` of the accumulators, counted over all of them, starts at
/// [`start_float`] or [`start_int`].
pub(super) trait Loops: Sync + Send + std::fmt::Debug {
    /// The instruction set; `None` for portable code.
    fn isa(&self) -> Option<Isa>;

    /// Whether [`Stores::Streaming`] is different from [`Stores::Plain`] here.
    fn can_stream(&self) -> bool;

    /// `a = a * x + a` on every lane, `rounds` times.
    fn multiply_add_f32(&self, rounds: u32, x: f32) -> Tally<f32>;

    /// `a = a * x + a` on every lane, `rounds` times.
    fn multiply_add_f64(&self, rounds: u32, x: f64) -> Tally<f64>;

    /// `a = a * x + y` on every lane, `rounds` times, wrapping.
    fn multiply_add_i32(&self, rounds: u32, x: i32, y: i32) -> Tally<i32>;

    /// `a = a + y` on every lane, `rounds` times, wrapping.
    fn add_i32(&self, rounds: u32, y: i32) -> Tally<i32>;

    /// Loads everything, `repeats` times over. Adding up all of it would keep the arithmetic units as
    /// busy as the load units and hide what those can do, so only the first line of each block counts:
    /// the result is the wrapping sum of the bits of its floats.
    fn read(&self, src: &[Block], repeats: u32) -> u32;

    /// Fills every byte, `repeats` times over.
    fn fill(&self, dst: &mut [Block], byte: u8, repeats: u32, stores: Stores);

    /// `dst = src`, `repeats` times over, up to the length of the shorter.
    fn copy(&self, dst: &mut [Block], src: &[Block], repeats: u32, stores: Stores);

    /// `dst = b + s * c` with `sources` `[b, c]`, `repeats` times over, up to the length of the shortest.
    fn triad(
        &self,
        dst: &mut [Block],
        sources: [&[Block]; 2],
        s: f32,
        repeats: u32,
        stores: Stores,
    );
}

/// Where accumulator lane `k` begins in floating-point loops: all different, near one.
fn start_float(k: usize) -> f32 {
    // At most a few hundred lanes, so the division is exact.
    1.0 + k as f32 / 1024.0
}

/// Where accumulator lane `k` begins in integer loops.
fn start_int(k: usize) -> i32 {
    k as i32
}

/// The loops this processor can run, widest vectors first, portable code last. Asks the processor, not
/// the description of the machine: running an instruction that is not there ends the process.
pub(super) fn available() -> Vec<Box<dyn Loops>> {
    let mut found: Vec<Box<dyn Loops>> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        found.extend(avx512::Avx512::detect().map(|token| Box::new(token) as _));
        found.extend(avx2::Avx2Fma::detect().map(|token| Box::new(token) as _));
    }
    #[cfg(target_arch = "aarch64")]
    found.extend(neon::Neon::detect().map(|token| Box::new(token) as _));
    found.push(Box::new(portable::Portable));
    found
}
