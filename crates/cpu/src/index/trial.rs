//! What tests of data movement share: tensors whose element type is a value, and a kernel's answer next to that
//! of the reference.

use kernelwise_backend::{Call, Fault, HostKernel, Scratch, Setting};
use kernelwise_reference::ReferenceError;
use kernelwise_types::op::Operand;
use kernelwise_types::{DType, Layout, Shape, TensorView, TensorViewMut, Workload};

use super::memory::by_element;

/// Memory with a layout over it.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    dtype: DType,
    layout: Layout,
    /// Place of the first element.
    first: usize,
    /// How many elements the memory has.
    len: usize,
    /// Aligned for every element type.
    memory: Vec<u128>,
}

/// A generator of numbers that look random, the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl Tensor {
    /// Bytes that `fill` gives for each element, its low ones first, lying row by row.
    pub(crate) fn new(dtype: DType, shape: Shape, fill: impl FnMut(usize) -> u128) -> Self {
        Self::lying(dtype, Layout::contiguous(shape), 0, shape.elements(), fill)
    }

    /// The same through any layout over memory of `len` elements.
    pub(crate) fn lying(
        dtype: DType,
        layout: Layout,
        first: usize,
        len: usize,
        mut fill: impl FnMut(usize) -> u128,
    ) -> Self {
        let size = dtype.size();
        let mut bytes = Vec::with_capacity(len * size + 16);
        for at in 0..len {
            bytes.extend_from_slice(&fill(at).to_le_bytes()[..size]);
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let words = bytes.chunks_exact(16);
        let memory = words
            .map(|word| u128::from_le_bytes(word.try_into().unwrap()))
            .collect();
        Self {
            dtype,
            layout,
            first,
            len,
            memory,
        }
    }

    /// An operand like this one, with every dimension backwards and in reverse order in memory, and gaps.
    pub(crate) fn awkward(operand: &Operand, fill: impl FnMut(usize) -> u128) -> Self {
        let dims = operand.shape.dims();
        let mut strides = vec![0isize; dims.len()];
        let (mut stride, mut first) = (2usize, 1usize);
        for (axis, &size) in dims.iter().enumerate() {
            strides[axis] = if axis % 2 == 0 {
                -(stride as isize)
            } else {
                stride as isize
            };
            if axis % 2 == 0 {
                first += stride * (size - 1);
            }
            stride *= size;
            stride += 1;
        }
        let layout = Layout::strided(operand.shape, &strides).unwrap();
        Self::lying(operand.dtype, layout, first, stride + 2, fill)
    }

    pub(crate) fn view(&self) -> TensorView<'_> {
        by_element!(self.dtype, T => {
            // SAFETY: the memory holds `len` elements of that type; tests give truth values as 0 or 1.
            let slice = unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<T>(), self.len) };
            TensorView::strided(slice, self.layout, self.first).unwrap()
        })
    }

    pub(crate) fn view_mut(&mut self) -> TensorViewMut<'_> {
        by_element!(self.dtype, T => {
            // SAFETY: as in `view`.
            let slice = unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast::<T>(), self.len) };
            TensorViewMut::strided(slice, self.layout, self.first).unwrap()
        })
    }

    /// All of its memory, gaps included.
    pub(crate) fn bytes(&self) -> &[u128] {
        &self.memory
    }

    /// The elements in index order, as type `T`.
    pub(crate) fn values<T: kernelwise_types::Element>(&self) -> Vec<T> {
        self.view().iter::<T>().unwrap().collect()
    }
}

/// Runs a kernel as a careful caller does: with the scratch memory it asks for, filled with rubbish.
pub(crate) fn run(
    kernel: &dyn HostKernel,
    workload: &Workload,
    setting: &Setting,
    inputs: &[Tensor],
    outputs: &mut [Tensor],
) -> Result<(), Fault> {
    let mut scratch = Scratch::new();
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut views_mut: Vec<TensorViewMut<'_>> = outputs.iter_mut().map(Tensor::view_mut).collect();
    let mut call = Call::new(workload, &views, &mut views_mut)?;
    let needs = kernel.workspace(call.workload(), setting);
    scratch.reserve(needs)?;
    let len = usize::try_from(scratch.len().0).unwrap();
    if len > 0 {
        scratch.slice::<u8>(len)?.fill(0xa5);
    }
    kernel.execute(&mut call, setting, &mut scratch)
}

/// The reference's answer.
pub(crate) fn reference(
    workload: &Workload,
    inputs: &[Tensor],
    outputs: &mut [Tensor],
) -> Result<(), ReferenceError> {
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut views_mut: Vec<TensorViewMut<'_>> = outputs.iter_mut().map(Tensor::view_mut).collect();
    kernelwise_reference::compute(workload, &views, &mut views_mut)
}

/// The kernels made for a workload, by the rule of the registry, that accept it.
pub(crate) fn fitting<'a>(
    kernels: &'a [std::sync::Arc<dyn HostKernel>],
    workload: &Workload,
) -> Vec<&'a dyn HostKernel> {
    let (operation, dtypes) = (workload.operation(), workload.dtypes());
    let full = operation.to_string();
    let mine = |kernel: &&dyn HostKernel| {
        let id = &kernel.spec().id;
        (id.operation() == operation.name() || id.operation() == full)
            && id.dtypes() == dtypes
            && workload.layout() <= kernel.spec().needs.layout
            && kernel.accepts(workload).is_ok()
    };
    kernels
        .iter()
        .map(std::convert::AsRef::as_ref)
        .filter(mine)
        .collect()
}

/// Every kernel that fits gives the reference's bits with every corner of its settings, and writes nowhere else.
/// Returns how many did.
pub(crate) fn assert_same_bits(
    kernels: &[std::sync::Arc<dyn HostKernel>],
    workload: &Workload,
    inputs: &[Tensor],
    before: &[Tensor],
) -> usize {
    let machine = kernelwise_probe::machine();
    let mut expected = before.to_vec();
    reference(workload, inputs, &mut expected).unwrap();
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut outputs = before.to_vec();
    let outputs: Vec<TensorViewMut<'_>> = outputs.iter_mut().map(Tensor::view_mut).collect();
    let workload = &workload.over(&views, &outputs).unwrap();
    let fitting = fitting(kernels, workload);
    for kernel in &fitting {
        for setting in kernel.space(workload, &machine).corners() {
            let mut actual = before.to_vec();
            run(*kernel, workload, &setting, inputs, &mut actual).unwrap();
            for (actual, expected) in actual.iter().zip(&expected) {
                let id = &kernel.spec().id;
                assert_eq!(
                    actual.bytes(),
                    expected.bytes(),
                    "{id} {setting:?} on {workload}"
                );
            }
        }
    }
    fitting.len()
}

/// A shape from its sizes.
pub(crate) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}
