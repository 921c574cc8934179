//! The loops of the calibration on other people's memory.
//!
//! A calibrated bandwidth is the best of many short samples at places of the calibration's own choosing. A kernel is timed
//! over long calls, on operands that lie where they lie, in the middle of what else goes on. How much of the
//! distance between the two is the kernel's own fault shows the same loop beside it, on the same operands.

use super::loops::{self, Block, Loops, Stores};

/// The fastest loops of this processor, with streaming stores where it has them.
#[derive(Debug)]
pub struct BareLoop {
    loops: Box<dyn Loops>,
}

/// Operands that the loops cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("operands of a bare loop have one length and begin at the same place of a cache line")]
pub struct Unaligned;

impl Default for BareLoop {
    /// The widest loops that stream; on a processor without, plain ones.
    fn default() -> Self {
        let mut all = loops::available();
        let streaming = all.iter().position(|loops| loops.can_stream());
        Self {
            loops: all.swap_remove(streaming.unwrap_or(0)),
        }
    }
}

impl BareLoop {
    /// `to = from`.
    pub fn copy(&self, to: &mut [f32], from: &[f32]) -> Result<(), Unaligned> {
        let (to, from) = (blocks_mut(to), blocks(from));
        if sizes(&from) != [to.0.len(), to.1.len(), to.2.len()] {
            return Err(Unaligned);
        }
        to.0.copy_from_slice(from.0);
        self.loops.copy(to.1, from.1, 1, Stores::Streaming);
        to.2.copy_from_slice(from.2);
        Ok(())
    }

    /// `to = b + c`.
    pub fn add(&self, to: &mut [f32], b: &[f32], c: &[f32]) -> Result<(), Unaligned> {
        let (to, b, c) = (blocks_mut(to), blocks(b), blocks(c));
        if sizes(&b) != [to.0.len(), to.1.len(), to.2.len()] || sizes(&b) != sizes(&c) {
            return Err(Unaligned);
        }
        let plain = |to: &mut [f32], b: &[f32], c: &[f32]| {
            for ((to, b), c) in to.iter_mut().zip(b).zip(c) {
                *to = b + c;
            }
        };
        plain(to.0, b.0, c.0);
        // One times a number, added in one rounding, is the sum.
        let stores = Stores::Streaming;
        self.loops.triad(to.1, [b.1, c.1], 1.0, 1, stores);
        plain(to.2, b.2, c.2);
        Ok(())
    }
}

/// What is before the first whole block, the blocks, and what is after them.
fn blocks(floats: &[f32]) -> (&[f32], &[Block], &[f32]) {
    // SAFETY: a block is an array of floats.
    unsafe { floats.align_to() }
}

fn blocks_mut(floats: &mut [f32]) -> (&mut [f32], &mut [Block], &mut [f32]) {
    // SAFETY: as in `blocks`; a block may be given any floats.
    unsafe { floats.align_to_mut() }
}

fn sizes((head, lines, tail): &(&[f32], &[Block], &[f32])) -> [usize; 3] {
    [head.len(), lines.len(), tail.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many numbers that begin `skip` floats after a cache line, in memory of its own.
    fn numbers(memory: &mut Vec<f32>, skip: usize, len: usize) -> &mut [f32] {
        *memory = (0..len + 32).map(|i| i as f32).collect();
        let line = memory.as_ptr().align_offset(64);
        &mut memory[line + skip..line + skip + len]
    }

    #[test]
    fn every_length_is_copied_and_added() {
        let bare = BareLoop::default();
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        for len in [0, 1, 100, 128, 129, 1000] {
            for skip in [0, 3] {
                let (a, b) = (numbers(&mut a, skip, len), numbers(&mut b, skip, len));
                let to = numbers(&mut c, skip, len);
                to.fill(-1.0);
                bare.copy(to, a).unwrap();
                assert_eq!(to, a);
                bare.add(to, a, b).unwrap();
                for (to, (a, b)) in to.iter().zip(a.iter().zip(b.iter())) {
                    assert_eq!(*to, a + b);
                }
            }
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_refused_and_nothing_is_written() {
        let bare = BareLoop::default();
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        for (skip, len) in [(1, 1000), (0, 999)] {
            let a = numbers(&mut a, skip, len);
            let b = numbers(&mut b, 0, 1000);
            let to = numbers(&mut c, 0, 1000);
            to.fill(-1.0);
            assert_eq!(bare.copy(to, a), Err(Unaligned));
            assert_eq!(bare.add(to, a, b), Err(Unaligned));
            assert_eq!(bare.add(to, b, a), Err(Unaligned));
            assert!(to.iter().all(|x| *x == -1.0));
        }
    }
}
