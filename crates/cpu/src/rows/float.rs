//! What softmax and normalisation need of floats beyond [`Number`].

use crate::reduce::lanes::{Number, Vector};
use crate::vector_math;

/// `f32` or `f64`. Statistics of a row are few and kept in `f64`; its elements stay what they are.
pub(super) trait Float: Number<Wide = f64> {
    /// Not a number.
    const NAN: Self;

    /// eˣ as vector code.
    fn exp<const FUSED: bool>(self) -> Self;
    /// Whether it is a number and not infinite.
    fn is_finite(self) -> bool;
}

macro_rules! float {
    ($rust:ident) => {
        impl Float for $rust {
            const NAN: Self = Self::NAN;

            #[inline(always)]
            fn exp<const FUSED: bool>(self) -> Self {
                vector_math::exp::<Self, FUSED>(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}

float!(f32);
float!(f64);

/// eˣ with the instructions that go with these registers.
#[inline(always)]
pub(super) fn exp<V: Vector<Scalar: Float>>(x: V::Scalar) -> V::Scalar {
    if V::FUSED {
        x.exp::<true>()
    } else {
        x.exp::<false>()
    }
}
