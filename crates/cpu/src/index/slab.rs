//! A tensor seen along one axis: so many slabs, each of so many places, each a run of bytes without gaps.

use kernelwise_types::Shape;

/// The sizes of a gather or scatter whose operands have no gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slab {
    /// The product of the sizes before the axis.
    pub(super) outer: usize,
    /// Places along the axis of the table or destination.
    pub(super) places: usize,
    /// Elements of one place: the product of the sizes behind the axis.
    pub(super) inner: usize,
}

impl Slab {
    /// `None` if there is no such axis.
    pub(super) fn new(shape: &Shape, axis: usize) -> Option<Self> {
        let dims = shape.dims();
        let (&places, behind) = dims.get(axis..)?.split_first()?;
        Some(Self {
            outer: dims[..axis].iter().product(),
            places,
            inner: behind.iter().product(),
        })
    }
}
