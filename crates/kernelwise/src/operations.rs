//! The built-in operations. Each reads its sizes off the tensors, and all go one way, [`Kernelwise::compute`].
//!
//! Sizes that do not fit each other are told here or, operand by operand, when the tensors are held against the workload: in
//! both cases with both shapes.

use kernelwise_backend::Call;
use kernelwise_select::RunError;
use kernelwise_types::op::{
    Activation, ActivationKind, Conv2d, Conv3d, Elementwise, Fft, FftKind, Gather, IndexType,
    Matmul, Norm, NormKind, Operation, Pool2d, PoolKind, Reduce, ReduceKind, Reshape, Scan,
    ScanKind, Scatter, ScatterKind, Softmax, SoftmaxKind, Sort, SortKind, Step, Steps, TensorCopy,
    Transpose, WorkloadError,
};
use kernelwise_types::{DType, TensorView, TensorViewMut, ViewError};

use crate::{Kernelwise, Tensor, TensorMut, workloads};

/// Why a call was not computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tensors make no problem of this operation.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A tensor that is none, or does not fit the others.
    #[error(transparent)]
    Tensor(#[from] ViewError),
    /// Nobody could compute it.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How a window moves over N dimensions. By default by one, without padding, dilation or groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution<const N: usize> {
    /// Steps of the window.
    pub stride: [usize; N],
    /// Zeros at each side.
    pub pad: [usize; N],
    /// Distance of the elements a window looks at.
    pub dilation: [usize; N],
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl<const N: usize> Default for Convolution<N> {
    fn default() -> Self {
        Self {
            stride: [1; N],
            pad: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

/// How a window of pooling moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pooling {
    /// Its rows and columns.
    pub window: [usize; 2],
    /// Its steps.
    pub stride: [usize; 2],
    /// What is added at each side.
    pub pad: [usize; 2],
}

/// The type of indices that a tensor holds; others are found not to fit when it is held against the workload.
fn index_type(indices: &TensorView<'_>) -> IndexType {
    match indices.dtype() {
        DType::I32 => IndexType::I32,
        _ => IndexType::I64,
    }
}

impl Kernelwise {
    /// Computes any operation on tensors that fit it: for what the other methods leave at its default, such as exclusive scans
    /// or stable sorts, and for custom operations. `dtype` is the element type the operation is named by, that of the
    /// input in most cases.
    ///
    /// ```
    /// # let kw = kernelwise::Kernelwise::new()?;
    /// use kernelwise::op::{Scan, ScanKind};
    /// use kernelwise::{DType, Tensor, TensorMut};
    ///
    /// let (x, mut sums) = ([1u32, 2, 3, 4], [0u32; 4]);
    /// let inputs = [(&x, [4]).tensor()?];
    /// let scan = Scan { exclusive: true, ..Scan::infer(ScanKind::Sum, inputs[0].shape(), None)? };
    /// kw.compute(scan, DType::U32, &inputs, &mut [(&mut sums, [4]).tensor_mut()?])?;
    /// assert_eq!(sums, [0, 1, 3, 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compute(
        &self,
        operation: impl Into<Operation>,
        dtype: DType,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
    ) -> Result<(), Error> {
        let workload = workloads::of(operation.into(), dtype)?;
        let mut call = Call::new(&workload, inputs, outputs)?;
        Ok(self.selector().run(&mut call)?)
    }

    /// The matrix product `out = a · b`; of stacks of matrices, one by one.
    ///
    /// ```
    /// # let kw = kernelwise::Kernelwise::new()?;
    /// let (a, b, mut c) = ([1f32, 2.0, 3.0, 4.0], [5f32, 6.0, 7.0, 8.0], [0f32; 4]);
    /// kw.matmul((&a, [2, 2]), (&b, [2, 2]), (&mut c, [2, 2]))?;
    /// assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
    ///
    /// let error = kw.matmul((&a, [4, 1]), (&b, [2, 2]), (&mut c, [2, 2])).unwrap_err();
    /// assert_eq!(error.to_string(), "matmul: inner dimensions differ: 1 in 4x1, 2 in 2x2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matmul<'a>(
        &self,
        a: impl Tensor<'a>,
        b: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.matmul_transposed(a, false, b, false, out)
    }

    /// The same with sides that are stored transposed: `a` as k x m, `b` as n x k.
    pub fn matmul_transposed<'a>(
        &self,
        a: impl Tensor<'a>,
        trans_a: bool,
        b: impl Tensor<'a>,
        trans_b: bool,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let (a, b, out) = (a.tensor()?, b.tensor()?, out.tensor_mut()?);
        let product = Matmul::infer(a.shape(), b.shape(), trans_a, trans_b)?;
        let dtype = a.dtype();
        // Stacks in several dimensions are one batch to kernels, and a stack of one is a matrix.
        let plain =
            |view: &TensorView<'_>| view.shape().rank() == 2 + usize::from(product.batch != 1);
        if plain(&a) && plain(&b) {
            return self.compute(product, dtype, &[a, b], &mut [out]);
        }
        let stacked = |rank: usize| a.shape().dims()[..rank - 2].iter().copied();
        let expected = stacked(a.shape().rank()).chain([product.m, product.n]);
        if !expected.eq(out.shape().dims().iter().copied()) {
            return Err(WorkloadError::Illegal {
                op: "matmul",
                detail: format!(
                    "the product of {} and {} does not have shape {}",
                    a.shape(),
                    b.shape(),
                    out.shape()
                ),
            }
            .into());
        }
        let workload = workloads::of(product.into(), dtype)?;
        let (inputs, outputs) = (workload.inputs(), workload.outputs());
        let inputs = [a.reshaped(inputs[0].shape)?, b.reshaped(inputs[1].shape)?];
        let out = out.reshaped(outputs[0].shape)?;
        self.compute(product, dtype, &inputs, &mut [out])
    }

    /// A chain of element-by-element steps in one pass: `inputs` are what the first step takes, then one for each binary
    /// step.
    ///
    /// ```
    /// # let kw = kernelwise::Kernelwise::new()?;
    /// use kernelwise::Tensor;
    /// use kernelwise::op::{Binary, Broadcast, Step, Unary};
    ///
    /// let (x, row, mut out) = ([1f32, 2.0, 3.0, 4.0], [10f32, 20.0], [0f32; 4]);
    /// let steps = [Step::Binary(Binary::Add, Broadcast::Row), Step::Unary(Unary::Neg)];
    /// kw.elementwise(&steps, &[(&x, [2, 2]).tensor()?, (&row, [2]).tensor()?], (&mut out, [2, 2]))?;
    /// assert_eq!(out, [-11.0, -22.0, -13.0, -24.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn elementwise<'a>(
        &self,
        steps: &[Step],
        inputs: &[TensorView<'_>],
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let out = out.tensor_mut()?;
        let dtype = inputs.first().map_or(out.dtype(), TensorView::dtype);
        let shape = *out.shape();
        // One problem has one name.
        if let [Step::Activation(kind)] = *steps {
            return self.compute(Activation { kind, shape }, dtype, inputs, &mut [out]);
        }
        let steps = Steps::new(steps)?;
        self.compute(Elementwise { steps, shape }, dtype, inputs, &mut [out])
    }

    /// An activation function of every element.
    pub fn activation<'a>(
        &self,
        kind: ActivationKind,
        x: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(x, out, |x, _| {
            Ok(Activation {
                kind,
                shape: *x.shape(),
            })
        })
    }

    /// One tensor in, one out; the operation is read off them, and named by the element type of the input.
    fn unary<'a, O: Into<Operation>>(
        &self,
        x: impl Tensor<'a>,
        out: impl TensorMut<'a>,
        operation: impl FnOnce(&TensorView<'_>, &TensorViewMut<'_>) -> Result<O, WorkloadError>,
    ) -> Result<(), Error> {
        let (x, out) = (x.tensor()?, out.tensor_mut()?);
        let operation = operation(&x, &out)?;
        self.compute(operation, x.dtype(), &[x], &mut [out])
    }

    /// Convolution of images (n x c x h x w) with weights (k x c/groups x r x s).
    pub fn conv2d<'a>(
        &self,
        input: impl Tensor<'a>,
        weights: impl Tensor<'a>,
        how: Convolution<2>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let (input, weights) = (input.tensor()?, weights.tensor()?);
        let Convolution {
            stride,
            pad,
            dilation,
            groups,
        } = how;
        let (x, w) = (input.shape(), weights.shape());
        let conv = Conv2d::infer(x, w, stride, pad, dilation, groups)?;
        let dtype = input.dtype();
        self.compute(conv, dtype, &[input, weights], &mut [out.tensor_mut()?])
    }

    /// Convolution of volumes (n x c x d x h x w) with weights (k x c/groups x t x r x s).
    pub fn conv3d<'a>(
        &self,
        input: impl Tensor<'a>,
        weights: impl Tensor<'a>,
        how: Convolution<3>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let (input, weights) = (input.tensor()?, weights.tensor()?);
        let Convolution {
            stride,
            pad,
            dilation,
            groups,
        } = how;
        let (x, w) = (input.shape(), weights.shape());
        let conv = Conv3d::infer(x, w, stride, pad, dilation, groups)?;
        let dtype = input.dtype();
        self.compute(conv, dtype, &[input, weights], &mut [out.tensor_mut()?])
    }

    /// Pooling of images (n x c x h x w).
    pub fn pool2d<'a>(
        &self,
        kind: PoolKind,
        input: impl Tensor<'a>,
        how: Pooling,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(input, out, |input, _| {
            Pool2d::infer(kind, input.shape(), how.window, how.stride, how.pad)
        })
    }

    /// Rows of the last axis to mean 0 and variance 1, then scaled and shifted.
    pub fn layer_norm<'a>(
        &self,
        x: impl Tensor<'a>,
        scale: impl Tensor<'a>,
        shift: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [x.tensor()?, scale.tensor()?, shift.tensor()?];
        self.norm(NormKind::Layer, &inputs, &mut [out.tensor_mut()?])
    }

    /// Rows of the last axis to mean square 1, then scaled.
    pub fn rms_norm<'a>(
        &self,
        x: impl Tensor<'a>,
        scale: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [x.tensor()?, scale.tensor()?];
        self.norm(NormKind::Rms, &inputs, &mut [out.tensor_mut()?])
    }

    /// Channels (axis 1) to mean 0 and variance 1 over the batch, then scaled and shifted; the statistics come out too.
    pub fn batch_norm<'a>(
        &self,
        x: impl Tensor<'a>,
        scale: impl Tensor<'a>,
        shift: impl Tensor<'a>,
        out: impl TensorMut<'a>,
        mean: impl TensorMut<'a>,
        variance: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [x.tensor()?, scale.tensor()?, shift.tensor()?];
        let outputs = &mut [
            out.tensor_mut()?,
            mean.tensor_mut()?,
            variance.tensor_mut()?,
        ];
        self.norm(NormKind::Batch, &inputs, outputs)
    }

    /// The same with statistics that were learned.
    pub fn batch_norm_inference<'a>(
        &self,
        x: impl Tensor<'a>,
        scale: impl Tensor<'a>,
        shift: impl Tensor<'a>,
        mean: impl Tensor<'a>,
        variance: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [
            x.tensor()?,
            scale.tensor()?,
            shift.tensor()?,
            mean.tensor()?,
            variance.tensor()?,
        ];
        self.norm(NormKind::Batch, &inputs, &mut [out.tensor_mut()?])
    }

    /// Learned statistics are known by their number: there are five inputs.
    fn norm(
        &self,
        kind: NormKind,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
    ) -> Result<(), Error> {
        let (x, scale) = (inputs[0], inputs[1]);
        let norm = Norm::infer(kind, x.shape(), scale.shape(), inputs.len() == 5)?;
        self.compute(norm, x.dtype(), inputs, outputs)
    }

    /// Softmax or its logarithm, along the last axis unless another is named.
    pub fn softmax<'a>(
        &self,
        kind: SoftmaxKind,
        x: impl Tensor<'a>,
        axis: Option<usize>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(x, out, |x, _| Softmax::infer(kind, x.shape(), axis))
    }

    /// A reduction over some axes, or over all if none is named.
    ///
    /// ```
    /// # let kw = kernelwise::Kernelwise::new()?;
    /// use kernelwise::op::ReduceKind;
    ///
    /// let (x, mut sums) = ([1f64, 2.0, 3.0, 4.0, 5.0, 6.0], [0f64; 2]);
    /// kw.reduce(ReduceKind::Sum, (&x, [2, 3]), &[1], (&mut sums, [2]))?;
    /// assert_eq!(sums, [6.0, 15.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce<'a>(
        &self,
        kind: ReduceKind,
        x: impl Tensor<'a>,
        axes: &[usize],
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(x, out, |x, _| Reduce::infer(kind, x.shape(), axes))
    }

    /// Running sums, products or extremes, along the last axis unless another is named.
    pub fn scan<'a>(
        &self,
        kind: ScanKind,
        x: impl Tensor<'a>,
        axis: Option<usize>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(x, out, |x, _| Scan::infer(kind, x.shape(), axis))
    }

    /// Keys in ascending order, along the last axis unless another is named.
    pub fn sort<'a>(
        &self,
        keys: impl Tensor<'a>,
        axis: Option<usize>,
        sorted: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(keys, sorted, |keys, _| Sort::infer(keys.shape(), axis))
    }

    /// The same with a value that goes with each key.
    pub fn sort_pairs<'a>(
        &self,
        keys: impl Tensor<'a>,
        values: impl Tensor<'a>,
        axis: Option<usize>,
        sorted_keys: impl TensorMut<'a>,
        sorted_values: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [keys.tensor()?, values.tensor()?];
        let [keys, values] = &inputs;
        let sort = Sort::infer_pairs(keys.shape(), values.shape(), values.dtype(), axis)?;
        let outputs = &mut [sorted_keys.tensor_mut()?, sorted_values.tensor_mut()?];
        self.compute(sort, keys.dtype(), &inputs, outputs)
    }

    /// Where each key in ascending order stood (i64), along the last axis unless another is named.
    pub fn argsort<'a>(
        &self,
        keys: impl Tensor<'a>,
        axis: Option<usize>,
        indices: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(keys, indices, |keys, _| {
            Ok(Sort {
                kind: SortKind::Arg,
                ..Sort::infer(keys.shape(), axis)?
            })
        })
    }

    /// The Fourier transform of rows. The length of real rows that come out is that of `out`.
    pub fn fft<'a>(
        &self,
        kind: FftKind,
        x: impl Tensor<'a>,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let (x, out) = (x.tensor()?, out.tensor_mut()?);
        let (fft, dtype) = match kind {
            FftKind::InverseReal => {
                let length = out.shape().dims().last().copied().unwrap_or_default();
                (Fft::infer_inverse_real(x.shape(), length)?, out.dtype())
            }
            _ => (Fft::infer(kind, x.shape())?, x.dtype()),
        };
        self.compute(fft, dtype, &[x], &mut [out])
    }

    /// Slices of a table along an axis, picked by indices (i32 or i64).
    pub fn gather<'a>(
        &self,
        table: impl Tensor<'a>,
        indices: impl Tensor<'a>,
        axis: usize,
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [table.tensor()?, indices.tensor()?];
        let [table, indices] = &inputs;
        let index = index_type(indices);
        let gather = Gather::infer(table.shape(), indices.shape(), index, axis)?;
        self.compute(gather, table.dtype(), &inputs, &mut [out.tensor_mut()?])
    }

    /// Slices put into `destination` along an axis where indices (i32 or i64) say, or added to what is there, as `kind`
    /// says.
    pub fn scatter<'a>(
        &self,
        kind: ScatterKind,
        indices: impl Tensor<'a>,
        updates: impl Tensor<'a>,
        axis: usize,
        destination: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        let inputs = [indices.tensor()?, updates.tensor()?];
        let [indices, updates] = &inputs;
        let destination = destination.tensor_mut()?;
        let index = index_type(indices);
        let (to, from) = (destination.shape(), updates.shape());
        let scatter = Scatter::infer(kind, to, from, index, axis)?;
        self.compute(scatter, updates.dtype(), &inputs, &mut [destination])
    }

    /// The axes in another order: axis i of the result is axis `order[i]` of `x`.
    pub fn transpose<'a>(
        &self,
        x: impl Tensor<'a>,
        order: &[usize],
        out: impl TensorMut<'a>,
    ) -> Result<(), Error> {
        self.unary(x, out, |x, _| Transpose::infer(x.shape(), order))
    }

    /// The same elements in the shape of `out`.
    pub fn reshape<'a>(&self, x: impl Tensor<'a>, out: impl TensorMut<'a>) -> Result<(), Error> {
        self.unary(x, out, |x, out| Reshape::infer(x.shape(), out.shape()))
    }

    /// A plain copy, whatever the strides.
    pub fn copy<'a>(&self, x: impl Tensor<'a>, out: impl TensorMut<'a>) -> Result<(), Error> {
        self.unary(x, out, |x, _| Ok(TensorCopy { shape: *x.shape() }))
    }
}
