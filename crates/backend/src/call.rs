//! One call: a workload with tensors that were checked against it.

use kernelwise_types::{LayoutKind, TensorView, TensorViewMut, ViewError, Workload};

/// The tensors of one call. That it exists means: there are as many as the operation has operands, of
/// their shapes and element types, and no output shares memory with another operand. Kernels rely on it.
///
/// ```
/// use kernelwise_backend::Call;
/// use kernelwise_types::{TensorView, TensorViewMut, Workload};
///
/// let product: Workload = "matmul f32 2x3x2".parse()?;
/// let (a, b, mut out) = ([1f32; 6], [1f32; 6], [0f32; 4]);
/// let inputs = [TensorView::contiguous(&a, "2x3".parse()?)?, TensorView::contiguous(&b, "3x2".parse()?)?];
/// let mut outputs = [TensorViewMut::contiguous(&mut out, "2x2".parse()?)?];
/// let call = Call::new(&product, &inputs, &mut outputs)?;
/// assert_eq!(call.workload(), &product);
///
/// let swapped = [inputs[1], inputs[0]];
/// let error = Call::new(&product, &swapped, &mut outputs).unwrap_err();
/// assert_eq!(error.to_string(), "matmul f32 2x3x2: operand `a` is f32 2x3, the tensor f32 3x2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Call<'a, 't> {
    workload: Workload,
    inputs: &'a [TensorView<'a>],
    outputs: &'a mut [TensorViewMut<'t>],
    /// Whether somebody had the outputs in hand, and may have put others in their place.
    lent: bool,
}

impl<'a, 't> Call<'a, 't> {
    /// Checks the tensors.
    pub fn new(
        workload: &Workload,
        inputs: &'a [TensorView<'a>],
        outputs: &'a mut [TensorViewMut<'t>],
    ) -> Result<Self, ViewError> {
        let workload = workload.over(inputs, outputs)?;
        Ok(Self {
            workload,
            inputs,
            outputs,
            lent: false,
        })
    }

    /// What is to be computed, with the layout these tensors have.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// What is read, in the order of [`Workload::inputs`].
    pub fn inputs(&self) -> &'a [TensorView<'a>] {
        self.inputs
    }

    /// What is written, in the order of [`Workload::outputs`]; see [`parts`](Self::parts).
    pub fn outputs(&mut self) -> &mut [TensorViewMut<'t>] {
        self.parts().2
    }

    /// All three at once, for kernels that read while they write.
    ///
    /// Whoever has the outputs in hand can put other views in their place. Once one is there that does not fit the workload, no
    /// outputs are given out any more, so kernels may rely on those they get.
    #[inline]
    pub fn parts(&mut self) -> (&Workload, &'a [TensorView<'a>], &mut [TensorViewMut<'t>]) {
        let fits = !self.lent || self.outputs_fit();
        self.lent = true;
        let outputs: &mut [TensorViewMut<'t>] = if fits { self.outputs } else { &mut [] };
        (&self.workload, self.inputs, outputs)
    }

    /// On the way of every call, so nothing is compared that need not be.
    #[inline]
    fn outputs_fit(&self) -> bool {
        let any = self.workload.layout() == LayoutKind::Strided;
        let operands = self.workload.outputs().iter();
        operands.zip(&*self.outputs).all(|(operand, output)| {
            output.dtype() == operand.dtype
                && output.shape().dims() == operand.shape.dims()
                && (any || output.layout().kind() <= self.workload.layout())
        })
    }

    /// The smallest alignment among the tensors, in bytes.
    pub fn alignment(&self) -> usize {
        let inputs = self.inputs.iter().map(TensorView::alignment);
        let outputs = self.outputs.iter().map(TensorViewMut::alignment);
        inputs.chain(outputs).min().unwrap_or(MAX_ALIGNMENT)
    }
}

/// The alignment that counts as "any": a page.
pub(crate) const MAX_ALIGNMENT: usize = 4096;

#[cfg(test)]
mod tests {
    use kernelwise_types::Layout;

    use super::*;

    #[test]
    fn outputs_that_were_replaced_by_others_are_not_given_out() {
        let workload: Workload = "copy f32 4x4".parse().unwrap();
        let from = [1f32; 16];
        let (mut to, mut small, mut large) = ([0f32; 16], [0f32; 1], [0f32; 32]);
        let inputs = [TensorView::contiguous(&from, "4x4".parse().unwrap()).unwrap()];
        let mut outputs = [TensorViewMut::contiguous(&mut to, "4x4".parse().unwrap()).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        assert_eq!(call.outputs().len(), 1);
        assert_eq!(call.parts().2.len(), 1, "as often as wanted");
        // Of the right shape, but not as the workload says it lies.
        let layout = Layout::strided("4x4".parse().unwrap(), &[8, 2]).unwrap();
        call.outputs()[0] = TensorViewMut::strided(&mut large, layout, 0).unwrap();
        assert!(call.parts().2.is_empty());

        let mut outputs = [TensorViewMut::contiguous(&mut to, "4x4".parse().unwrap()).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        call.outputs()[0] = TensorViewMut::contiguous(&mut small, "1x1".parse().unwrap()).unwrap();
        assert!(call.outputs().is_empty());
    }
}
