//! Running a sort: the rows of a call, and the memory and threads they are sorted with.

use kernelwise_backend::{Carver, Fault, Scratch, Setting};
use kernelwise_types::op::{Sort, SortKind};
use kernelwise_types::{DType, Refusal, TensorView, TensorViewMut};

use super::order::{Bits, Record};
use super::radix::{self, KeyBits};
use super::row::{Keys, Line, Lines, Positioned, Positions, Row, Values};
use super::{Method, Sizes, SortKernel, merge, network};
use crate::index::memory::{first, first_mut};
use crate::pool::{Schedule, Start, share, threads};

impl SortKernel {
    /// Sorts all rows.
    ///
    /// # Safety
    ///
    /// Each row that `row` gives has `len` places; rows below `rows` do not share places of their outputs.
    pub(super) unsafe fn sort<R: Row>(
        &self,
        rows: usize,
        len: usize,
        setting: &Setting,
        scratch: &mut Scratch,
        row: impl Fn(usize) -> R + Sync,
    ) -> Result<(), Fault> {
        if let Method::Network(level) = self.method {
            // SAFETY: `accepts` was asked by the caller, so `len` is not too large; the rest is our own contract.
            unsafe { network::sort(level, rows, len, row) };
            return Ok(());
        }
        let knobs = self.knobs(setting);
        let in_place = rows > 0 && row(0).in_place().is_some();
        let threads = threads(knobs.threads);
        let sizes = Sizes {
            rows,
            len,
            key: R::KEY,
            in_place,
            threads,
            digits: knobs.digits(),
        };
        let needs = self.needs(sizes);
        let mut pieces = scratch.carve();
        let records: Start<R::Record> = take(&mut pieces, needs.records)?;
        let counts: &mut [u32] = pieces.take(needs.counts)?;
        let bits = KeyBits {
            below: R::BELOW,
            key: R::KEY,
        };
        // The second buffer of a row is its output, if that is possible.
        let second = |row: &R, scratch: *mut R::Record| row.in_place().unwrap_or(scratch);

        if let Method::Std = self.method {
            for number in 0..rows {
                let row = row(number);
                // SAFETY: the buffer holds `len` records; the row has `len` places. Where the buffer is the
                // output, each place is read before it is written.
                unsafe {
                    let buffer = second(&row, records.at(0));
                    (0..len).for_each(|place| buffer.add(place).write(row.read(place)));
                    std::slice::from_raw_parts_mut(buffer, len).sort_unstable();
                    (0..len).for_each(|place| row.write(place, buffer.add(place).read()));
                }
            }
            return Ok(());
        }
        if !sizes.whole_rows() {
            for number in 0..rows {
                let row = row(number);
                // SAFETY: `needs` counted these buffers and counters; the row has `len` places.
                unsafe {
                    let first = records.at(0);
                    let second = second(&row, records.at(len));
                    merge::sort(row, len, threads, knobs.digits(), counts, (first, second));
                }
            }
            return Ok(());
        }
        let at_once = sizes.at_once();
        let (each, counters) = (needs.records / at_once, needs.counts / at_once);
        let counts = Start::new(counts.as_mut_ptr());
        share(threads, Schedule::Static, rows, 1, |piece, range| {
            for number in range {
                let row = row(number);
                // SAFETY: there are at most `at_once` pieces, each with records and counters of its own.
                unsafe {
                    let counts =
                        std::slice::from_raw_parts_mut(counts.at(piece * counters), counters);
                    let near = records.at(piece * each);
                    // Where one buffer is enough this is no memory of ours; it is not used then.
                    let far = second(&row, near.wrapping_add(len));
                    let read = move |place| row.read(place);
                    let write = move |place, record| row.write(place, record);
                    radix::sort(len, bits, knobs.digits(), counts, (near, far), read, write);
                }
            }
        });
        Ok(())
    }

    /// Makes the rows of keys of one width and sorts them.
    pub(super) fn run<U: Bits>(
        &self,
        op: &Sort,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let [keys, others @ ..] = inputs else {
            return Err(self.unfit());
        };
        let len = op.shape.dims().get(op.axis).copied().unwrap_or(1).max(1);
        let rows = op.shape.elements() / len;
        let order = U::order(keys.dtype(), op.descending);
        let lines = Lines::new(keys.layout(), op.axis);
        let start: Start<U> = Start::new(first(keys)?.cast_mut().cast());
        // SAFETY of every line below: rows are numbered below `rows`, so a line begins at an element of the view
        // and its step is that of the layout: `len` places lie inside.
        let from = |row: usize| Line {
            first: start.at(0).cast_const().wrapping_offset(lines.start(row)),
            step: lines.step(),
        };
        match (op.kind, others, outputs) {
            (SortKind::Keys, [], [sorted]) => {
                let to = target::<U>(sorted, op.axis)?;
                // SAFETY: see above; layouts that can be written reach no element twice, so rows are apart.
                unsafe {
                    self.sort(rows, len, setting, scratch, |row| Keys {
                        from: from(row),
                        to: to(row),
                        order,
                    })
                }
            }
            (SortKind::Arg, [], [indices]) if indices.dtype() == DType::I64 => {
                let to = target::<i64>(indices, op.axis)?;
                // SAFETY: as above.
                unsafe {
                    self.sort(rows, len, setting, scratch, |row| Positioned {
                        from: from(row),
                        order,
                        sink: Positions(to(row)),
                    })
                }
            }
            (SortKind::Pairs(dtype), [values], [sorted, moved])
                if values.dtype() == dtype
                    && moved.dtype() == dtype
                    && sorted.dtype() == keys.dtype() =>
            {
                let size = dtype.size();
                let keys = target::<U>(sorted, op.axis)?;
                let values_from = Lines::new(values.layout(), op.axis);
                let values_to = Lines::new(moved.layout(), op.axis);
                let source = Start::new(first(values)?.cast_mut());
                let goal = Start::new(first_mut(moved)?);
                let bytes = |elements: isize| elements * size as isize;
                // SAFETY: as above, for each of the four tensors.
                unsafe {
                    self.sort(rows, len, setting, scratch, |row| Positioned {
                        from: from(row),
                        order,
                        sink: Values {
                            keys: keys(row),
                            from: Line {
                                first: source
                                    .at(0)
                                    .cast_const()
                                    .wrapping_offset(bytes(values_from.start(row))),
                                step: values_from.step(),
                            },
                            to: Line {
                                first: goal.at(0).wrapping_offset(bytes(values_to.start(row))),
                                step: values_to.step(),
                            },
                            size,
                        },
                    })
                }
            }
            _ => Err(self.unfit()),
        }
    }

    /// The fault of a call that is not for this kernel.
    pub(super) fn unfit(&self) -> Fault {
        Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal: Refusal::Shape {
                condition: "needs a sort of its own element types".to_owned(),
            },
        }
    }
}

/// The rows of an output whose elements have the size of `T`.
fn target<T: Copy + Send>(
    view: &mut TensorViewMut<'_>,
    axis: usize,
) -> Result<impl Fn(usize) -> Line<*mut T> + Sync + use<T>, Fault> {
    let lines = Lines::new(view.layout(), axis);
    let start = Start::new(first_mut(view)?.cast::<T>());
    Ok(move |row: usize| Line {
        first: start.at(0).wrapping_offset(lines.start(row)),
        step: lines.step(),
    })
}

/// Scratch memory for so many records, of which each thread keeps to a part.
fn take<R: Record>(pieces: &mut Carver<'_>, len: usize) -> Result<Start<R>, Fault> {
    // Scratch memory comes as element types, of which none has 128 bits; it is aligned for all.
    let bytes = pieces.take::<u8>(len.saturating_mul(size_of::<R>()))?;
    Ok(Start::new(bytes.as_mut_ptr().cast()))
}
