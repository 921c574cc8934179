//! One call: a workload with tensors that were checked against it.

use kernelwise_types::{TensorView, TensorViewMut, ViewError, Workload};

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

    /// What is written, in the order of [`Workload::outputs`].
    pub fn outputs(&mut self) -> &mut [TensorViewMut<'t>] {
        self.outputs
    }

    /// All three at once, for kernels that read while they write.
    pub fn parts(&mut self) -> (&Workload, &'a [TensorView<'a>], &mut [TensorViewMut<'t>]) {
        (&self.workload, self.inputs, self.outputs)
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
