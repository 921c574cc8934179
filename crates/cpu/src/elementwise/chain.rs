//! A chain with its operands: what one block goes through.

use kernelwise_backend::{Carver, Fault};
use kernelwise_types::op::{Broadcast, Step, Steps};
use kernelwise_types::{Shape, TensorView};

use super::fused::FAR;
use super::loops::{Other, Out, Stepped};
use crate::isa::Level;
use crate::movement::stream::{LINE, MOST_PAGES, PAGE, Stream, expect_read};

/// The further operand of a binary step, for the whole shape.
#[derive(Debug, Clone, Copy)]
enum Operand<'a, T> {
    /// One for each element.
    Full(&'a [T]),
    /// One for each place in a row, again and again; `values` goes on with its beginning unless it is long.
    Row { values: &'a [T], length: usize },
    /// The same for all.
    Scalar(T),
}

impl<'a, T: Copy> Operand<'a, T> {
    /// How many elements from this position on are one slice.
    fn reach(&self, position: usize) -> usize {
        match self {
            Self::Row { values, length } => values.len() - position % length,
            Self::Full(_) | Self::Scalar(_) => usize::MAX,
        }
    }

    /// The values for a block that is within [`reach`](Self::reach).
    fn at(&self, position: usize, length: usize) -> Other<'a, T> {
        match *self {
            Self::Full(values) => Other::Each(&values[position..position + length]),
            Self::Row {
                values,
                length: row,
            } => {
                let start = position % row;
                Other::Each(&values[start..start + length])
            }
            Self::Scalar(value) => Other::Same(value),
        }
    }
}

/// Steps and operands.
pub(super) struct Chain<'a, T> {
    level: Level,
    steps: Steps,
    first: &'a [T],
    /// One for each binary step, in their order; the rest is never looked at.
    further: [Operand<'a, T>; Steps::MAX],
    block: usize,
}

/// Rows longer than so many blocks are not repeated: few blocks meet their ends.
const LONG_ROW: usize = 16;

/// Elements of a row operand with its beginning repeated after its end, so that blocks need not stop there; `None`
/// for a long one. Two blocks more leave room for one that ends with a cache line, and several pages more for
/// large results, which are made in several pages side by side.
fn repeated<T>(row: usize, block: usize, elements: usize) -> Option<usize> {
    let pages = match elements * size_of::<T>() > FAR {
        true => 2 * MOST_PAGES * PAGE / size_of::<T>(),
        false => 0,
    };
    (row < LONG_ROW * block).then(|| row + pages.max(2 * block))
}

/// Fills memory with a row again and again.
fn repeat<T: Copy>(row: &[T], room: &mut [T]) {
    let mut filled = row.len().min(room.len());
    room[..filled].copy_from_slice(&row[..filled]);
    while 0 < filled && filled < room.len() {
        let more = filled.min(room.len() - filled);
        room.copy_within(..more, filled);
        filled += more;
    }
}

/// How many elements of scratch memory row operands take, each by itself.
pub(super) fn repeated_rows<T>(
    steps: &Steps,
    shape: &Shape,
    block: usize,
) -> impl Iterator<Item = usize> {
    let row = shape.dims().last().copied().unwrap_or(1);
    let elements = shape.elements();
    let rows = steps
        .as_slice()
        .iter()
        .filter(|step| matches!(step, Step::Binary(_, Broadcast::Row)));
    rows.filter_map(move |_| repeated::<T>(row, block, elements))
}

impl<'a, T: Stepped> Chain<'a, T> {
    /// Takes the operands, which must lie without gaps; `None` if there are not as many as the steps need.
    /// Short rows are repeated in scratch memory.
    pub(super) fn new(
        level: Level,
        steps: Steps,
        inputs: &'a [TensorView<'a>],
        block: usize,
        pieces: &mut Carver<'a>,
    ) -> Result<Option<Self>, Fault> {
        let mut operands = inputs.iter();
        let Some(first) = operands.next() else {
            return Ok(None);
        };
        let mut chain = Self {
            level,
            steps,
            first: first.as_slice()?,
            further: [Operand::Full(&[]); Steps::MAX],
            block: block.max(1),
        };
        let modes = steps.as_slice().iter().filter_map(|step| match step {
            Step::Binary(_, broadcast) => Some(*broadcast),
            _ => None,
        });
        for (slot, mode) in chain.further.iter_mut().zip(modes) {
            let Some(operand) = operands.next() else {
                return Ok(None);
            };
            let values = operand.as_slice::<T>()?;
            *slot = match (mode, values) {
                (Broadcast::Full, values) if values.len() == chain.first.len() => {
                    Operand::Full(values)
                }
                (Broadcast::Scalar, [value]) => Operand::Scalar(*value),
                (Broadcast::Row, [_, ..]) => {
                    let length = values.len();
                    let values = match repeated::<T>(length, chain.block, chain.first.len()) {
                        None => values,
                        Some(room) => {
                            let room = pieces.take::<T>(room)?;
                            repeat(values, room);
                            room
                        }
                    };
                    Operand::Row { values, length }
                }
                _ => return Ok(None),
            };
        }
        Ok(Some(chain))
    }

    /// A chain without elements, to ask what it could do.
    pub(super) fn empty(level: Level, steps: Steps) -> Self {
        Self {
            level,
            steps,
            first: &[],
            further: [Operand::Full(&[]); Steps::MAX],
            block: 1,
        }
    }

    /// How many loops it takes, or `None` if a step is not defined on these elements: tried with no elements.
    pub(super) fn loops(&self) -> Option<usize> {
        self.go(0, 0, &mut [&mut [], &mut []], Out::Near(&mut []))
    }

    /// Whether the last loop can write past the caches, and whether it is the only one.
    pub(super) fn streams(&self, stream: Stream) -> Option<usize> {
        self.go(0, 0, &mut [&mut [], &mut []], Out::Past(&mut [], stream))
    }

    /// Elements of the first operand.
    pub(super) fn len(&self) -> usize {
        self.first.len()
    }

    /// How many elements the next block has, of `left` from this position on, if blocks are as long as the
    /// setting says times `factor`.
    pub(super) fn next_block(&self, position: usize, left: usize, factor: usize) -> usize {
        let reach = self
            .further
            .iter()
            .map(|operand| operand.reach(position))
            .min();
        left.min(self.block * factor)
            .min(reach.unwrap_or(usize::MAX))
    }

    /// Asks for the operands of a block to come; what is computed meanwhile hides the way from memory.
    pub(super) fn expect(&self, position: usize, length: usize) {
        let further = self.further.iter().filter_map(|operand| match operand {
            Operand::Full(values) => Some(*values),
            Operand::Row { .. } | Operand::Scalar(_) => None,
        });
        for values in std::iter::once(self.first).chain(further) {
            let end = values.len().min(position + length);
            let step = (LINE / size_of::<T>()).max(1);
            for value in values[position.min(end)..end].iter().step_by(step) {
                expect_read(std::ptr::from_ref(value).cast());
            }
        }
    }

    /// All steps for the next `length` elements from `position` on, at most [`next_block`](Self::next_block) of
    /// them. The results of all loops but the last go to and fro between two buffers of at least that many.
    pub(super) fn block(
        &self,
        position: usize,
        length: usize,
        between: &mut [&mut [T]; 2],
        out: Out<'_, T>,
    ) {
        // Whether there are loops was asked before.
        let _ = self.go(position, length, between, out);
    }

    fn go(
        &self,
        position: usize,
        length: usize,
        between: &mut [&mut [T]; 2],
        mut out: Out<'_, T>,
    ) -> Option<usize> {
        let steps = self.steps.as_slice();
        if let (Out::Past(out, stream), [_, _, ..]) = (&mut out, steps) {
            let further = steps.iter().filter(is_binary).count();
            let mut others = [Other::Same(T::ZERO); Steps::MAX];
            for (other, operand) in others.iter_mut().zip(&self.further[..further]) {
                *other = operand.at(position, length);
            }
            let x = &self.first[position..position + length];
            let out = Out::Past(out, *stream);
            if T::chain(self.level, steps, x, &others[..further], out) {
                return Some(1);
            }
        }
        let (mut done, mut operand, mut loops) = (0, 0, 0);
        while done < steps.len() {
            let [read, write] = between;
            let x = match loops {
                0 => &self.first[position..position + length],
                _ => &read[..length],
            };
            let other = |operand: usize| self.further[operand].at(position, length);
            let rest = &steps[done..];
            let pair = target(rest.len() == 2, &mut out, write, length);
            let together = match *rest {
                [Step::Binary(f, _), Step::Activation(g), ..] => {
                    T::then_activation(self.level, (f, g), x, other(operand), pair)
                }
                [Step::Binary(f, _), Step::Binary(g, _), ..] => {
                    let others = (other(operand), other(operand + 1));
                    T::then_binary(self.level, (f, g), x, others, pair)
                }
                _ => false,
            };
            if !together {
                let single = target(rest.len() == 1, &mut out, write, length);
                let there_is = match rest[0] {
                    Step::Unary(f) => T::unary(self.level, f, x, single),
                    Step::Activation(f) => T::activation(self.level, f, x, single),
                    Step::Binary(f, _) => T::binary(self.level, f, x, other(operand), single),
                };
                if !there_is {
                    return None;
                }
            }
            let taken = if together { 2 } else { 1 };
            operand += rest[..taken].iter().filter(is_binary).count();
            done += taken;
            loops += 1;
            between.swap(0, 1);
        }
        Some(loops)
    }
}

fn is_binary(step: &&Step) -> bool {
    matches!(step, Step::Binary(..))
}

/// What ends the chain goes to the output, the rest to a buffer.
fn target<'b, T>(
    ends: bool,
    out: &'b mut Out<'_, T>,
    between: &'b mut [T],
    length: usize,
) -> Out<'b, T> {
    // A chain of one loop has no buffers, and looks for pairs all the same.
    let length = length.min(between.len());
    match out {
        _ if !ends => Out::Near(&mut between[..length]),
        Out::Near(out) => Out::Near(out),
        Out::Past(out, stream) => Out::Past(out, *stream),
    }
}
