//! What convolutions of images and of volumes share: operands, legality and cost.

use super::window::Window;
use super::{Operand, Traffic, Work, WorkloadError, count, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;

/// A convolution over `D` axes.
pub(super) struct Convolution<const D: usize> {
    pub(super) op: &'static str,
    pub(super) n: usize,
    pub(super) c: usize,
    pub(super) k: usize,
    pub(super) groups: usize,
    pub(super) window: Window<D>,
}

/// Sizes read off the stored shapes of input and weights.
pub(super) struct Sizes<const D: usize> {
    pub(super) n: usize,
    pub(super) c: usize,
    pub(super) input: [usize; D],
    pub(super) k: usize,
    pub(super) kernel: [usize; D],
}

/// Reads `n x c x input` and `k x c/groups x kernel`.
pub(super) fn sizes<const D: usize>(
    op: &'static str,
    input: &Shape,
    weights: &Shape,
    groups: usize,
) -> Result<Sizes<D>, WorkloadError> {
    let rank = |what: &str, shape: &Shape| WorkloadError::Illegal {
        op,
        detail: format!("{what} need {} dimensions, got {shape}", D + 2),
    };
    let &[n, c, ref spatial @ ..] = input.dims() else {
        return Err(rank("images", input));
    };
    let &[k, c_group, ref kernel @ ..] = weights.dims() else {
        return Err(rank("weights", weights));
    };
    let spatial = spatial.try_into().map_err(|_| rank("images", input))?;
    let kernel = kernel.try_into().map_err(|_| rank("weights", weights))?;
    legal(c_group.checked_mul(groups) == Some(c), op, || {
        format!(
            "weights {weights} take {c_group} channels in each of {groups} groups, the input {input} has {c}"
        )
    })?;
    Ok(Sizes {
        n,
        c,
        input: spatial,
        k,
        kernel,
    })
}

impl<const D: usize> Convolution<D> {
    /// Whether groups divide the channels and the window fits.
    pub(super) fn check_sizes(&self) -> Result<(), WorkloadError> {
        let (c, k, groups) = (self.c, self.k, self.groups);
        legal(groups > 0, self.op, || {
            "groups is 0, it must be at least 1".to_owned()
        })?;
        legal(
            c.is_multiple_of(groups) && k.is_multiple_of(groups),
            self.op,
            || format!("{groups} groups do not divide c{c} and k{k}"),
        )?;
        self.window.output(self.op).map(drop)
    }

    pub(super) fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        require(
            dtype.is_numeric(),
            self.op,
            dtype,
            "numbers, not truth values",
        )?;
        self.check_sizes()
    }

    /// Input channels that each output channel sees; the check made sure that groups divide them.
    fn group_channels(&self) -> usize {
        self.c.checked_div(self.groups).unwrap_or_default()
    }

    pub(super) fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let input = [&[self.n, self.c][..], &self.window.input].concat();
        let weights = [&[self.k, self.group_channels()][..], &self.window.kernel].concat();
        Ok(vec![
            Operand::new("input", dtype, &input)?,
            Operand::new("weights", dtype, &weights)?,
        ])
    }

    pub(super) fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let output = self.window.output(self.op)?;
        let dims = [&[self.n, self.k][..], &output].concat();
        Ok(vec![Operand::new("out", dtype.accumulator(), &dims)?])
    }

    /// One multiply-add per output element, channel of its group and tap.
    pub(super) fn work(&self, dtype: DType) -> Option<Work> {
        let output = self.window.output(self.op).ok()?;
        let outputs = count(&[self.n, self.k])?.checked_mul(count(&output)?)?;
        let steps = outputs
            .checked_mul(count(&[self.group_channels()])?)?
            .checked_mul(self.window.taps()?)?;
        let flops = steps.checked_mul(dtype.mul_flops() + dtype.add_flops())?;
        Some(Work::flops(flops))
    }

    /// Pixels that no window sees are not read.
    pub(super) fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let too_large = || WorkloadError::TooLarge {
            op: self.op,
            what: "bytes moved",
        };
        let weights: u64 = self.inputs(dtype)?.iter().skip(1).map(Operand::bytes).sum();
        let written = self.outputs(dtype)?.iter().map(Operand::bytes).sum();
        let read = count(&[self.n, self.c, dtype.size()])
            .and_then(|planes| planes.checked_mul(self.window.seen(self.op).ok()?))
            .and_then(|pixels| pixels.checked_add(weights))
            .ok_or_else(too_large)?;
        Ok(Traffic { read, written })
    }
}
