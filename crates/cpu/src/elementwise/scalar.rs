//! One element after the other, whatever the strides, with the bits of the reference.
//!
//! Floats are computed in `f64` from the first step to the last and rounded once, by the forms that keep their
//! digits over the whole range.
#![allow(unsafe_code)]

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::marker::PhantomData;

use half::{bf16, f16};
use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::{ActivationKind, Binary, Broadcast, Step, Steps, Unary};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Layout, LayoutKind, MAX_RANK, Numerics, Shape, Technique,
    TensorView, ViewError,
};

use super::integer::Integer;
use super::{of_another_operation, steps_of};
use crate::declare::{Needing, spec};
use crate::movement::walk::Cursor;
use crate::vector_math::{larger, smaller};

/// Element types with the numbers in which they are computed. Steps that are not defined on them give
/// nothing.
pub(super) trait Wide: Element {
    /// The numbers.
    type Number: Copy;
    /// Exactly.
    fn widen(self) -> Self::Number;
    /// Rounded.
    fn narrow(number: Self::Number) -> Self;
    /// A function of the result so far.
    fn unary(x: Self::Number, function: Unary) -> Option<Self::Number>;
    /// A function of the result so far and one more operand.
    fn binary(x: Self::Number, function: Binary, y: Self::Number) -> Option<Self::Number>;
    /// An activation function of the result so far.
    fn activation(x: Self::Number, function: ActivationKind) -> Option<Self::Number>;
}

macro_rules! wide_float {
    ($($float:ty: $narrow:expr;)*) => {
        $(
            impl Wide for $float {
                type Number = f64;
                fn widen(self) -> f64 {
                    self.into()
                }
                fn narrow(number: f64) -> Self {
                    $narrow(number)
                }
                fn unary(x: f64, function: Unary) -> Option<f64> {
                    Some(unary(x, function))
                }
                fn binary(x: f64, function: Binary, y: f64) -> Option<f64> {
                    Some(binary(x, function, y))
                }
                fn activation(x: f64, function: ActivationKind) -> Option<f64> {
                    Some(activation(x, function))
                }
            }
        )*
    };
}

wide_float! {
    f16: |number| f16::from_f32(on_the_way(number));
    bf16: |number| bf16::from_f32(on_the_way(number));
    f32: |number| number as f32;
    f64: |number| number;
}

/// An `f32` that rounds to 16 bits as the number itself would: where it is not exact its last digit is odd, so
/// that it never lies half-way between two of the shorter ones.
fn on_the_way(number: f64) -> f32 {
    let near = number as f32;
    let error = number - f64::from(near);
    // Infinities and NaN have an error that is not a number.
    if error == 0.0 || error.is_nan() || near.is_infinite() || near.to_bits() & 1 == 1 {
        near
    } else if (error > 0.0) == (near > 0.0) {
        f32::from_bits(near.to_bits() + 1)
    } else {
        f32::from_bits(near.to_bits().saturating_sub(1))
    }
}

macro_rules! wide_integer {
    ($($integer:ty),*) => {
        $(
            impl Wide for $integer {
                type Number = Self;
                fn widen(self) -> Self {
                    self
                }
                fn narrow(number: Self) -> Self {
                    number
                }
                fn unary(x: Self, function: Unary) -> Option<Self> {
                    match function {
                        Unary::Neg if Self::SIGNED => Some(x.wrapping_neg()),
                        Unary::Abs if Self::SIGNED => Some(x.max(x.wrapping_neg())),
                        Unary::Square => Some(x.wrapping_mul(x)),
                        _ => None,
                    }
                }
                fn binary(x: Self, function: Binary, y: Self) -> Option<Self> {
                    match function {
                        Binary::Add => Some(x.plus(y)),
                        Binary::Sub => Some(x.minus(y)),
                        Binary::Mul => Some(x.times(y)),
                        Binary::Div => Some(x.over(y)),
                        Binary::Min => Some(x.min(y)),
                        Binary::Max => Some(x.max(y)),
                        Binary::Pow => None,
                    }
                }
                fn activation(x: Self, function: ActivationKind) -> Option<Self> {
                    (Self::SIGNED && function == ActivationKind::Relu).then(|| x.max(0))
                }
            }
        )*
    };
}

wide_integer!(i8, i16, i32, i64, u8, u16, u32, u64);

fn unary(x: f64, function: Unary) -> f64 {
    match function {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Square => x * x,
    }
}

fn binary(x: f64, function: Binary, y: f64) -> f64 {
    match function {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Min => smaller(x, y),
        Binary::Max => larger(x, y),
        Binary::Pow => x.powf(y),
    }
}

fn activation(x: f64, function: ActivationKind) -> f64 {
    match function {
        ActivationKind::Relu => larger(x, 0.0),
        ActivationKind::LeakyRelu(_) if x > 0.0 => x,
        ActivationKind::LeakyRelu(slope) => f64::from(slope.get()) * x,
        ActivationKind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        ActivationKind::Tanh => x.tanh(),
        ActivationKind::Silu => x / (1.0 + (-x).exp()),
        ActivationKind::Gelu => 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2),
        ActivationKind::GeluTanh => {
            let alpha = FRAC_2_PI.sqrt();
            let t = x * (alpha + 0.044715 * alpha * (x * x));
            x / (1.0 + (-2.0 * t).exp())
        }
        ActivationKind::Softplus => larger(x, 0.0) + (-x.abs()).exp().ln_1p(),
        ActivationKind::Elu if x > 0.0 => x,
        ActivationKind::Elu => x.exp_m1(),
        ActivationKind::HardSwish => x * smaller(larger(x + 3.0, 0.0), 6.0) / 6.0,
    }
}

/// Chains or activations of one element type, one element at a time.
pub(super) struct Single<T> {
    spec: KernelSpec,
    element: PhantomData<fn() -> T>,
}

impl<T: Wide> Single<T> {
    /// For an operation, `elementwise` or `activation`.
    pub(super) fn new(operation: &str) -> Result<Self, InvalidKernelId> {
        let numerics = Numerics::BitIdentical;
        let spec = spec(
            operation,
            &[T::DTYPE],
            "scalar",
            Technique::Scalar,
            numerics,
        )?;
        Ok(Self {
            spec: spec.following(LayoutKind::Strided),
            element: PhantomData,
        })
    }
}

impl<T: Wide> Kernel for Single<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn hint(&self) -> Hint {
        Hint::percent(5).best_for(0..=64)
    }
}

/// An operand: its first element, and where the next one is.
#[derive(Clone, Copy)]
struct Operand<T> {
    first: *const T,
    cursor: Cursor,
}

impl<T: Element> Operand<T> {
    /// The operand spread over a shape; `None` if it is not one of this spread.
    fn new(
        view: &TensorView<'_>,
        spread: Broadcast,
        shape: &Shape,
    ) -> Result<Option<Self>, ViewError> {
        let last = shape.rank().saturating_sub(1);
        let (expected, kept): (&[usize], _) = match spread {
            Broadcast::Full => (shape.dims(), 0),
            Broadcast::Row => (&shape.dims()[last..], last),
            Broadcast::Scalar => (&[], shape.rank()),
        };
        if view.shape().dims() != expected {
            return Ok(None);
        }
        // Dimensions that it does not have are walked without going anywhere.
        let mut strides = [0; MAX_RANK];
        for (stride, own) in strides[kept..].iter_mut().zip(view.layout().strides()) {
            *stride = *own;
        }
        let layout = Layout::strided(*shape, &strides[..shape.rank()])?;
        Ok(Some(Self {
            first: view.as_ptr()?,
            cursor: Cursor::at(&layout, 0),
        }))
    }

    /// # Safety
    ///
    /// `ahead` is within the cursor's line.
    unsafe fn get(&self, ahead: usize) -> T {
        let offset = self.cursor.offset() + ahead as isize * self.cursor.stride();
        // SAFETY: the view keeps its elements in memory, and this is one of them.
        unsafe { self.first.offset(offset).read() }
    }
}

impl<T: Wide> HostKernel for Single<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let refused = || of_another_operation(&self.spec, workload);
        let (Some((steps, shape)), [output]) = (steps_of(workload), outputs) else {
            return Err(refused());
        };
        let spreads = steps.as_slice().iter().filter_map(|step| match step {
            Step::Binary(_, spread) => Some(*spread),
            _ => None,
        });
        let mut operands: [Option<Operand<T>>; Steps::MAX + 1] = [None; Steps::MAX + 1];
        let spreads = std::iter::once(Broadcast::Full).chain(spreads);
        for ((slot, spread), at) in operands.iter_mut().zip(spreads).zip(0..) {
            let view = inputs.get(at).ok_or_else(refused)?;
            *slot = Some(Operand::new(view, spread, &shape)?.ok_or_else(refused)?);
        }
        if *output.shape() != shape {
            return Err(refused());
        }
        let mut place = Cursor::at(output.layout(), 0);
        let out = output.as_mut_ptr::<T>()?;
        let mut left = shape.elements();
        while left > 0 {
            let reach = operands
                .iter()
                .flatten()
                .map(|operand| operand.cursor.line())
                .min();
            let line = reach.unwrap_or(left).min(place.line()).min(left);
            for ahead in 0..line {
                // SAFETY: `ahead` is within the line of every operand.
                let mut values = operands
                    .iter()
                    .flatten()
                    .map(|operand| unsafe { operand.get(ahead) });
                // Undefined steps are so for every element: the first one stops before anything is written.
                let value = apply::<T>(&steps, &mut values).ok_or_else(refused)?;
                let offset = place.offset() + ahead as isize * place.stride();
                // SAFETY: an element of the output, which nobody else can reach meanwhile.
                unsafe { out.offset(offset).write(value) };
            }
            place.advance(line);
            operands
                .iter_mut()
                .flatten()
                .for_each(|operand| operand.cursor.advance(line));
            left -= line;
        }
        Ok(())
    }
}

/// All steps for one element of each operand.
fn apply<T: Wide>(steps: &Steps, values: &mut impl Iterator<Item = T>) -> Option<T> {
    let mut x = values.next()?.widen();
    for step in steps.as_slice() {
        x = match *step {
            Step::Unary(function) => T::unary(x, function)?,
            Step::Activation(function) => T::activation(x, function)?,
            Step::Binary(function, _) => T::binary(x, function, values.next()?.widen())?,
        };
    }
    Some(T::narrow(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded_once() {
        // A hair above or below half-way between 1 and the next f16: an f32 between would be half-way.
        let (half, hair) = ((-11f64).exp2(), (-40f64).exp2());
        for sign in [1.0, -1.0] {
            let short = |x: f64| <f16 as Wide>::narrow(sign * x).to_f64() * sign;
            assert_eq!(short(1.0 + half + hair), 1.0 + 2.0 * half);
            assert_eq!(short(1.0 + half - hair), 1.0);
            assert_eq!(short(1.0 + half), 1.0, "to even");
            assert_eq!(short(1.0 + 3.0 * half - hair), 1.0 + 2.0 * half);
            assert_eq!(short(1e-60), 0.0);
            assert_eq!(short(1e60), f64::INFINITY);
        }
        assert!(<bf16 as Wide>::narrow(f64::NAN).is_nan());
    }
}
