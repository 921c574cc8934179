//! One convolution, prepared once and run many times.
//!
//! oneDNN is at its best when images and weights already lie in the layout its kernel likes: blocks of channels
//! side by side. A network run wholly by oneDNN keeps them so between layers; a program whose tensors are plain
//! (NCHW) pays for the way there and back. Both are asked for: [`Convolution::execute`] is the first,
//! [`Convolution::execute_plain`] the second. The weights are in their layout beforehand in either case, as they
//! are constant: its best case.

use kernelwise_types::DType;
use kernelwise_types::op::{Conv2d, Problem};

use super::OneDnn;
use super::context::Context;
use super::interface::{
    ARG_DESTINATION, ARG_SOURCE, ARG_WEIGHTS, Handle, Memory, Primitive, QUERY_DESTINATION,
    QUERY_SOURCE, QUERY_WEIGHTS,
};
use super::tensor::{Form, Tensor};
use crate::CallError;
use crate::error::check_length;

/// A convolution that oneDNN has prepared. Images are f32.
///
/// Every run first tells the OpenMP runtime how many threads to use; this setting of the calling thread stays.
#[derive(Debug)]
pub struct Convolution {
    // In the order in which they are dropped: what runs, what it runs on, and the engine last.
    kernel: Handle<Primitive>,
    source: Tensor,
    weights: Tensor,
    destination: Tensor,
    implementation: String,
    context: Context,
}

// SAFETY: the objects of the library refer to one another and to the buffers beside them, all of which move
// together; none is bound to the thread that made it, and the number of OpenMP threads, which is, is set at
// every call.
unsafe impl Send for Convolution {}

impl Convolution {
    pub(super) fn new(
        onednn: &OneDnn,
        conv: &Conv2d,
        weights: &[f32],
        threads: usize,
    ) -> Result<Self, CallError> {
        conv.check(DType::F32)?;
        let [p, q] = conv.output_size()?;
        let &Conv2d {
            n,
            c,
            h,
            w,
            k,
            r,
            s,
            groups,
            ..
        } = conv;
        let filters = if groups == 1 {
            Form::new(&[k, c, r, s])?
        } else {
            Form::new(&[groups, k / groups, c / groups, r, s])?
        };
        let context = Context::new(onednn, threads)?;
        context.use_threads();
        let plain = [
            context.plain(&Form::new(&[n, c, h, w])?)?,
            context.plain(&filters)?,
            context.plain(&Form::new(&[n, k, p, q])?)?,
        ];
        let plan = context.plan(conv, [&plain[0].form, &plain[1].form, &plain[2].form])?;
        let [source, filters, destination] = plain;
        let mut prepared = Self {
            kernel: context.primitive(&plan)?,
            source: context.tensor(source, &plan, QUERY_SOURCE)?,
            weights: context.tensor(filters, &plan, QUERY_WEIGHTS)?,
            destination: context.tensor(destination, &plan, QUERY_DESTINATION)?,
            implementation: context.implementation(&plan)?,
            context,
        };
        prepared
            .weights
            .fill("weights", weights, &prepared.context)?;
        Ok(prepared)
    }

    /// The kernel that the library chose, in its own words, such as `jit:avx512_core`.
    pub fn implementation(&self) -> &str {
        &self.implementation
    }

    /// Brings images (n x c x h x w) into the library's layout, for [`execute`](Self::execute).
    pub fn set_source(&mut self, source: &[f32]) -> Result<(), CallError> {
        self.context.use_threads();
        self.source.fill("the source", source, &self.context)
    }

    /// Convolves the images last [set](Self::set_source), which are zeros at first, in the library's layout
    /// throughout.
    pub fn execute(&mut self) -> Result<(), CallError> {
        self.context.use_threads();
        let (source, destination) = (&self.source.own, &self.destination.own);
        // SAFETY: these memories own their buffers.
        unsafe { self.convolve(source, destination) }
    }

    /// Brings the result of the last run of [`execute`](Self::execute) into plain order (n x k x p x q).
    pub fn destination(&mut self, destination: &mut [f32]) -> Result<(), CallError> {
        self.context.use_threads();
        self.destination
            .read("the destination", destination, &self.context)
    }

    /// Convolves images in plain order (n x c x h x w) into images in plain order (n x k x p x q), with whatever
    /// rearranging the chosen kernel needs before and after.
    pub fn execute_plain(
        &mut self,
        source: &[f32],
        destination: &mut [f32],
    ) -> Result<(), CallError> {
        check_length("the source", self.source.elements, source.len())?;
        check_length(
            "the destination",
            self.destination.elements,
            destination.len(),
        )?;
        self.context.use_threads();
        let from = if self.source.plain_is_own {
            self.source
                .lend(source.as_ptr().cast_mut(), &self.context)?;
            &self.source.plain
        } else {
            self.source.fill("the source", source, &self.context)?;
            &self.source.own
        };
        if self.destination.plain_is_own {
            let pointer = destination.as_mut_ptr();
            self.destination.lend(pointer, &self.context)?;
            // SAFETY: plain memories have just been lent slices of the checked lengths, borrowed for this call.
            return unsafe { self.convolve(from, &self.destination.plain) };
        }
        // SAFETY: as above for the source; the destination owns its buffer.
        unsafe { self.convolve(from, &self.destination.own) }?;
        self.destination
            .read("the destination", destination, &self.context)
    }

    /// # Safety
    ///
    /// Both memories must refer to buffers of their size; nothing is written to the first.
    unsafe fn convolve(&self, from: &Handle<Memory>, to: &Handle<Memory>) -> Result<(), CallError> {
        let arguments = [
            (ARG_SOURCE, from),
            (ARG_WEIGHTS, &self.weights.own),
            (ARG_DESTINATION, to),
        ];
        // SAFETY: the kernel was made for memories of these descriptions; the caller vouches for two buffers, and
        // the weights own theirs.
        unsafe { self.context.run(&self.kernel, arguments) }
    }
}
