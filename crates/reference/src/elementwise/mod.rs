//! Chains of element-by-element steps, and single activation functions.
//!
//! Floats and complex numbers stay wide through the whole chain and are rounded at its end; integers wrap
//! at every step, for quotients and comparisons depend on it.

use kernelwise_types::op::{ActivationKind, Binary, Broadcast, Step, Unary};
use kernelwise_types::{DType, Shape, TensorView, TensorViewMut, ViewError};

use crate::wide::Wide;

mod complex;
mod integer;
mod real;

/// Wide numbers with the functions of steps; `None` where one is not defined on this kind of number.
pub(crate) trait Stepped: Wide {
    /// A function of the result so far.
    fn unary(self, function: Unary) -> Option<Self>;

    /// A function of the result so far and one more operand.
    fn binary(self, function: Binary, other: Self) -> Option<Self>;

    /// An activation function of the result so far.
    fn activation(self, function: ActivationKind) -> Option<Self>;

    /// What is left of the result of a step in the element type.
    fn fit(self, _dtype: DType) -> Self {
        self
    }
}

pub(crate) fn compute<W: Stepped>(
    steps: &[Step],
    shape: &Shape,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let dtype = outputs[0].dtype();
    let operands: Vec<Vec<W>> = inputs.iter().map(W::load).collect::<Result<_, _>>()?;
    let row = shape.dims().last().copied().unwrap_or(1);
    let mut out = Vec::with_capacity(shape.elements());
    for position in 0..shape.elements() {
        let mut value = operands[0][position];
        let mut further = operands[1..].iter();
        for step in steps {
            let result = match *step {
                Step::Unary(function) => value.unary(function),
                Step::Activation(function) => value.activation(function),
                Step::Binary(function, broadcast) => further.next().and_then(|operand| {
                    let at = match broadcast {
                        Broadcast::Full => position,
                        Broadcast::Row => position % row,
                        Broadcast::Scalar => 0,
                    };
                    value.binary(function, operand[at])
                }),
            };
            // Every function is defined on real floating point.
            let undefined = ViewError::DType {
                actual: dtype,
                expected: DType::F64,
            };
            value = result.ok_or(undefined)?.fit(dtype);
        }
        out.push(value);
    }
    W::store(&mut outputs[0], out.into_iter().enumerate())
}

#[cfg(test)]
mod tests {
    use kernelwise_types::op::Steps;
    use num_complex::Complex;

    use super::*;
    use crate::trial::{owned, run};

    #[test]
    fn further_operands_are_spread_as_their_steps_say() {
        let out = run(
            "elementwise.add:row+mul+sub:scalar f32 2x3",
            &[
                owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0]),
                owned([10f32, 20.0, 30.0]),
                owned([1f32, 1.0, 1.0, 2.0, 2.0, 2.0]),
                owned([0.5f32]),
            ],
        );
        assert_eq!(out, [owned([10.5f32, 21.5, 32.5, 27.5, 49.5, 71.5])]);
    }

    #[test]
    fn a_chain_is_rounded_at_its_end() {
        // 1 + 2⁻²⁴ is not an f32, but adding it twice reaches one.
        let tiny = (-24f32).exp2();
        let out = run(
            "elementwise.add:scalar+add:scalar f32 1",
            &[owned([1f32]), owned([tiny]), owned([tiny])],
        );
        assert_eq!(out, [owned([1.0 + (-23f32).exp2()])]);
        // 60000² overflows f16, its root does not.
        let h = half::f16::from_f32;
        let out = run("elementwise.square+sqrt f16 1", &[owned([h(60000.0)])]);
        assert_eq!(out, [owned([h(60000.0)])]);
    }

    #[test]
    fn integer_chains_wrap_at_every_step() {
        // 100 + 100 is −56 in i8; half of that is −28, not 100.
        let out = run(
            "elementwise.add:scalar+div:scalar i8 1",
            &[owned([100i8]), owned([100i8]), owned([2i8])],
        );
        assert_eq!(out, [owned([-28i8])]);
        let out = run(
            "elementwise.sub:scalar+max u16 2",
            &[owned([1u16, 9]), owned([2u16]), owned([5u16, 8])],
        );
        assert_eq!(out, [owned([65535u16, 8])]);
    }

    #[test]
    fn scalars_have_one_element() {
        let out = run("elementwise.neg f64 scalar", &[owned([3f64])]);
        assert_eq!(out, [owned([-3f64])]);
    }

    #[test]
    fn what_is_not_defined_is_refused() {
        let shape = "1".parse().unwrap();
        let z = [Complex::new(1f64, 0.0)];
        let steps = Steps::new(&[Step::Unary(Unary::Abs)]).unwrap();
        let mut out = z;
        let input = TensorView::contiguous(&z, shape).unwrap();
        let mut output = [TensorViewMut::contiguous(&mut out, shape).unwrap()];
        let result = compute::<Complex<f64>>(steps.as_slice(), &shape, &[input], &mut output);
        let error = result.unwrap_err().to_string();
        assert_eq!(error, "the tensor holds complex128, not f64");
    }
}
