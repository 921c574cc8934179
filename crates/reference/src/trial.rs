//! What the tests share: tensors whose element type is a value, and calls on them by workload text.

use half::{bf16, f16};
use kernelwise_types::{DType, Element, Layout, Shape, TensorView, TensorViewMut, Workload};
use num_complex::Complex;

use crate::elements::{load, store};
use crate::{ReferenceError, compute};

macro_rules! owned_types {
    ($($variant:ident = $rust:ty;)*) => {
        /// Elements in memory.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Owned {
            $($variant(Vec<$rust>),)*
        }

        $(
            impl From<Vec<$rust>> for Owned {
                fn from(elements: Vec<$rust>) -> Self {
                    Self::$variant(elements)
                }
            }
        )*

        impl Owned {
            /// `length` elements that each are `make(position)`, made narrow.
            pub(crate) fn build(dtype: DType, length: usize, make: impl Fn(usize) -> i32) -> Self {
                match dtype {
                    $(DType::$variant => Self::$variant(
                        (0..length).map(|position| <$rust>::small(make(position))).collect(),
                    ),)*
                }
            }

            fn len(&self) -> usize {
                match self { $(Self::$variant(elements) => elements.len(),)* }
            }

            pub(crate) fn view(&self, layout: Layout, offset: usize) -> TensorView<'_> {
                match self {
                    $(Self::$variant(elements) => TensorView::strided(elements, layout, offset),)*
                }
                .unwrap()
            }

            pub(crate) fn view_mut(&mut self, layout: Layout, offset: usize) -> TensorViewMut<'_> {
                match self {
                    $(Self::$variant(elements) => TensorViewMut::strided(elements, layout, offset),)*
                }
                .unwrap()
            }

            /// The elements a layout reaches, in index order.
            pub(crate) fn collected(&self, layout: Layout, offset: usize) -> Self {
                let view = self.view(layout, offset);
                match self { $(Self::$variant(_) => Self::$variant(load(&view).unwrap()),)* }
            }

            /// Puts the elements of `other` where a layout says.
            pub(crate) fn fill(&mut self, layout: Layout, offset: usize, other: &Self) {
                let mut view = self.view_mut(layout, offset);
                match other {
                    $(Self::$variant(elements) => {
                        store(&mut view, elements.iter().copied().enumerate()).unwrap();
                    })*
                }
            }
        }
    };
}

owned_types! {
    F16 = f16; Bf16 = bf16; F32 = f32; F64 = f64;
    I8 = i8; I16 = i16; I32 = i32; I64 = i64;
    U8 = u8; U16 = u16; U32 = u32; U64 = u64;
    Bool = bool; Complex64 = Complex<f32>; Complex128 = Complex<f64>;
}

/// Elements made from a small integer. Floats take halves, unsigned numbers wrap.
trait Small: Element {
    fn small(value: i32) -> Self;
}

macro_rules! small {
    ($($rust:ty, $value:ident => $make:expr;)*) => {
        $(impl Small for $rust {
            fn small($value: i32) -> Self {
                $make
            }
        })*
    };
}

small! {
    f16, value => f16::from_f32(value as f32 / 2.0);
    bf16, value => bf16::from_f32(value as f32 / 2.0);
    f32, value => value as f32 / 2.0;
    f64, value => f64::from(value) / 2.0;
    i8, value => value as i8;
    i16, value => value as i16;
    i32, value => value;
    i64, value => value.into();
    u8, value => value as u8;
    u16, value => value as u16;
    u32, value => value as u32;
    u64, value => value as u64;
    bool, value => value % 2 == 0;
    Complex<f32>, value => Complex::new(value as f32 / 2.0, (value % 3) as f32);
    Complex<f64>, value => Complex::new(f64::from(value) / 2.0, f64::from(value % 3));
}

/// A list as a tensor's memory.
pub(crate) fn owned<T, const N: usize>(elements: impl Into<List<T, N>>) -> Owned
where
    Vec<T>: Into<Owned>,
{
    elements.into().0.into()
}

/// What [`owned`] takes: an array, or a vector.
pub(crate) struct List<T, const N: usize>(Vec<T>);

impl<T, const N: usize> From<[T; N]> for List<T, N> {
    fn from(elements: [T; N]) -> Self {
        Self(elements.into())
    }
}

impl<T> From<Vec<T>> for List<T, 0> {
    fn from(elements: Vec<T>) -> Self {
        Self(elements)
    }
}

/// `length` small numbers that look random and are the same for the same seed.
pub(crate) fn sample(dtype: &str, length: usize, seed: u64) -> Owned {
    Owned::build(dtype.parse().unwrap(), length, |position| {
        let mixed = (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as i32 % 13 - 6
    })
}

/// Elements as `f64`, whatever real type they have.
pub(crate) fn values(elements: &Owned) -> Vec<f64> {
    match elements {
        Owned::F16(x) => x.iter().map(|x| x.to_f64()).collect(),
        Owned::Bf16(x) => x.iter().map(|x| x.to_f64()).collect(),
        Owned::F32(x) => x.iter().map(|&x| x.into()).collect(),
        Owned::F64(x) => x.clone(),
        Owned::I16(x) => x.iter().map(|&x| x.into()).collect(),
        Owned::I32(x) => x.iter().map(|&x| x.into()).collect(),
        Owned::I64(x) => x.iter().map(|&x| x as f64).collect(),
        Owned::U8(x) => x.iter().map(|&x| x.into()).collect(),
        other => panic!("no values of {other:?}"),
    }
}

/// Runs a workload on lists, the outputs holding zeros before.
#[track_caller]
pub(crate) fn run(text: &str, inputs: &[Owned]) -> Vec<Owned> {
    let workload: Workload = text.parse().unwrap();
    let zeros: Vec<Owned> = workload
        .outputs()
        .iter()
        .map(|operand| Owned::build(operand.dtype, operand.shape.elements(), |_| 0))
        .collect();
    run_onto(text, inputs, &zeros)
}

/// Runs a workload on lists, the outputs holding these elements before.
#[track_caller]
pub(crate) fn run_onto(text: &str, inputs: &[Owned], before: &[Owned]) -> Vec<Owned> {
    let mut outputs = before.to_vec();
    attempt(text, inputs, &mut outputs).unwrap();
    outputs
}

/// Runs a workload on lists that may not fit it; each has the shape of its operand, or is a plain list.
#[track_caller]
pub(crate) fn attempt(
    text: &str,
    inputs: &[Owned],
    outputs: &mut [Owned],
) -> Result<(), ReferenceError> {
    let workload: Workload = text.parse().unwrap();
    let shape = |list: &Owned, operand: Option<&kernelwise_types::op::Operand>| {
        let plain = Shape::new(&[list.len()]).unwrap();
        Layout::contiguous(operand.map_or(plain, |operand| operand.shape))
    };
    let inputs: Vec<TensorView<'_>> = inputs
        .iter()
        .enumerate()
        .map(|(at, list)| list.view(shape(list, workload.inputs().get(at)), 0))
        .collect();
    let mut outputs: Vec<TensorViewMut<'_>> = outputs
        .iter_mut()
        .enumerate()
        .map(|(at, list)| {
            let layout = shape(list, workload.outputs().get(at));
            list.view_mut(layout, 0)
        })
        .collect();
    compute(&workload, &inputs, &mut outputs)
}
