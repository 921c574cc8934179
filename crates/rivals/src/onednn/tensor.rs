//! Tensors as oneDNN sees them: their sizes, and their memory in the caller's layout and in the kernel's.

use std::ffi::c_int;

use super::context::Context;
use super::interface::{
    ARG_DESTINATION, ARG_SOURCE, Dims, FORMAT_ABCD, FORMAT_ABCDE, Handle, Memory, MemoryDesc,
    Primitive, succeed,
};
use crate::CallError;
use crate::error::check_length;

/// Sizes of a tensor as the interface takes them.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) dims: Dims,
    pub(super) rank: c_int,
    pub(super) elements: usize,
}

/// Elements of a tensor beyond which none is prepared. Far more than a machine holds, and far from where the
/// library's arithmetic on sizes, which rounds channels up to blocks, would wrap around.
const MOST_ELEMENTS: usize = 1 << 40;

impl Form {
    pub(super) fn new(sizes: &[usize]) -> Result<Self, CallError> {
        let elements = sizes
            .iter()
            .fold(1, |so_far: usize, &size| so_far.saturating_mul(size));
        if elements > MOST_ELEMENTS {
            return Err(CallError::Size {
                what: "the number of elements",
                value: elements,
                max: MOST_ELEMENTS,
            });
        }
        let mut dims = Dims::default();
        for (dim, &size) in dims.iter_mut().zip(sizes) {
            *dim = dimension(size)?;
        }
        Ok(Self {
            dims,
            rank: if sizes.len() == 4 { 4 } else { 5 },
            elements,
        })
    }

    pub(super) const fn plain_format(&self) -> c_int {
        if self.rank == 4 {
            FORMAT_ABCD
        } else {
            FORMAT_ABCDE
        }
    }
}

pub(super) fn dimension(size: usize) -> Result<i64, CallError> {
    i64::try_from(size).map_err(|_| CallError::Size {
        what: "a dimension",
        value: size,
        max: i64::MAX as usize,
    })
}

/// Sizes along rows and columns.
pub(super) fn pair([rows, columns]: [usize; 2]) -> Result<Dims, CallError> {
    let mut dims = Dims::default();
    dims[0] = dimension(rows)?;
    dims[1] = dimension(columns)?;
    Ok(dims)
}

/// A tensor in plain order: its sizes and the library's description of it.
pub(super) struct Plain {
    pub(super) form: Form,
    pub(super) desc: Handle<MemoryDesc>,
}

/// A tensor in two layouts: that of the caller, whose memory is only lent, and that of the kernel.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) inward: Handle<Primitive>,
    pub(super) outward: Handle<Primitive>,
    pub(super) plain: Handle<Memory>,
    pub(super) own: Handle<Memory>,
    /// What `own` points to.
    pub(super) _buffer: Vec<Line>,
    /// Whether the kernel works on plain order, so that nothing needs rearranging.
    pub(super) plain_is_own: bool,
    pub(super) elements: usize,
}

/// A cache line, which is how the library likes its buffers aligned.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line(#[expect(dead_code, reason = "only the library looks inside")] [f32; 16]);

/// A buffer of this many bytes, or an error where the vector would abort.
pub(super) fn zeros(bytes: usize) -> Result<Vec<Line>, CallError> {
    let lines = bytes.div_ceil(size_of::<Line>());
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(lines)
        .map_err(|_| CallError::Memory(bytes))?;
    buffer.resize(lines, Line([0.0; 16]));
    Ok(buffer)
}

impl Tensor {
    /// Lets the plain memory refer to the caller's.
    pub(super) fn lend(&self, start: *mut f32, context: &Context) -> Result<(), CallError> {
        let set = context.interface.memory_set_data_handle;
        // SAFETY: the memory is alive; the pointer is only stored.
        let status = unsafe { set(self.plain.get(), start.cast()) };
        succeed("dnnl_memory_set_data_handle", status)
    }

    pub(super) fn fill(
        &mut self,
        what: &'static str,
        values: &[f32],
        context: &Context,
    ) -> Result<(), CallError> {
        check_length(what, self.elements, values.len())?;
        self.lend(values.as_ptr().cast_mut(), context)?;
        let arguments = [(ARG_SOURCE, &self.plain), (ARG_DESTINATION, &self.own)];
        // SAFETY: the plain memory refers to as many values as it describes, which are only read; the other owns
        // its buffer.
        unsafe { context.run(&self.inward, arguments) }
    }

    pub(super) fn read(
        &mut self,
        what: &'static str,
        values: &mut [f32],
        context: &Context,
    ) -> Result<(), CallError> {
        check_length(what, self.elements, values.len())?;
        self.lend(values.as_mut_ptr(), context)?;
        let arguments = [(ARG_SOURCE, &self.own), (ARG_DESTINATION, &self.plain)];
        // SAFETY: the plain memory refers to as many values as it describes, borrowed alone; the other owns its
        // buffer, which was zeroed when made.
        unsafe { context.run(&self.outward, arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::zeros;
    use crate::CallError;

    #[test]
    fn too_large_a_buffer_is_an_error() {
        assert_eq!(zeros(65).unwrap().len(), 2);
        let refused = zeros(usize::MAX).unwrap_err();
        assert_eq!(refused, CallError::Memory(usize::MAX));
    }
}
