//! Element types: their names, sizes and what arithmetic on them costs.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use num_complex::Complex;
use serde::{Deserialize, Serialize};

/// Declares every element type once: variant, text name, Rust type, class.
macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $rust:ty, $class:ident;)*) => {
        /// The type of a tensor's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum DType {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl DType {
            /// Every element type, in the order of this list.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in workload text, kernel ids and records.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Size of one element in bytes.
            pub const fn size(self) -> usize {
                match self { $(Self::$variant => size_of::<$rust>(),)* }
            }

            /// Alignment that one element needs, in bytes.
            pub const fn align(self) -> usize {
                match self { $(Self::$variant => align_of::<$rust>(),)* }
            }

            /// What kind of number it is.
            pub const fn class(self) -> DTypeClass {
                match self { $(Self::$variant => DTypeClass::$class,)* }
            }
        }

        $(
            impl Element for $rust {
                const DTYPE: DType = DType::$variant;
            }
            impl sealed::Sealed for $rust {}
        )*
    };
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an element type. Sealed: tensor views rely on the list being exactly this one.
pub trait Element: sealed::Sealed + Copy + Send + Sync + fmt::Debug + 'static {
    /// The element type this Rust type is.
    const DTYPE: DType;
}

dtypes! {
    /// IEEE half precision.
    F16 = "f16", f16, Float;
    /// Brain floating point: the range of f32, eight bits of precision.
    Bf16 = "bf16", bf16, Float;
    /// IEEE single precision.
    F32 = "f32", f32, Float;
    /// IEEE double precision.
    F64 = "f64", f64, Float;
    /// Signed, 8 bits.
    I8 = "i8", i8, Signed;
    /// Signed, 16 bits.
    I16 = "i16", i16, Signed;
    /// Signed, 32 bits.
    I32 = "i32", i32, Signed;
    /// Signed, 64 bits.
    I64 = "i64", i64, Signed;
    /// Unsigned, 8 bits.
    U8 = "u8", u8, Unsigned;
    /// Unsigned, 16 bits.
    U16 = "u16", u16, Unsigned;
    /// Unsigned, 32 bits.
    U32 = "u32", u32, Unsigned;
    /// Unsigned, 64 bits.
    U64 = "u64", u64, Unsigned;
    /// Truth values, one byte each.
    Bool = "bool", bool, Bool;
    /// Two f32: real and imaginary part.
    Complex64 = "complex64", Complex<f32>, Complex;
    /// Two f64: real and imaginary part.
    Complex128 = "complex128", Complex<f64>, Complex;
}

/// Kinds of element types, as legality checks tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DTypeClass {
    /// Real floating point.
    Float,
    /// Signed integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Truth values.
    Bool,
    /// Complex floating point.
    Complex,
}

impl DType {
    /// Real floating point.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), DTypeClass::Float)
    }

    /// Complex floating point.
    pub const fn is_complex(self) -> bool {
        matches!(self.class(), DTypeClass::Complex)
    }

    /// Whether elements can be put in order; floats can, by their total order.
    pub const fn is_ordered(self) -> bool {
        !matches!(self.class(), DTypeClass::Complex | DTypeClass::Bool)
    }

    /// Whether sums and products make sense: all but truth values.
    pub const fn is_numeric(self) -> bool {
        !matches!(self.class(), DTypeClass::Bool)
    }

    /// Arithmetic operations in one addition: a complex one adds two parts.
    pub const fn add_flops(self) -> u64 {
        if self.is_complex() { 2 } else { 1 }
    }

    /// Arithmetic operations in one multiplication: a complex one takes four products and two sums.
    pub const fn mul_flops(self) -> u64 {
        if self.is_complex() { 6 } else { 1 }
    }

    /// The type in which sums of products come out: 8-bit integers widen to 32 bits, as every
    /// integer dot-product instruction does; all others stay.
    pub const fn accumulator(self) -> Self {
        match self {
            Self::I8 | Self::U8 => Self::I32,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{word}`{}", crate::text::hint(.word, DType::ALL.iter().map(|d| d.name())))]
pub struct UnknownDType {
    word: String,
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(word: &str) -> Result<Self, UnknownDType> {
        Self::ALL
            .iter()
            .find(|dtype| dtype.name() == word)
            .copied()
            .ok_or_else(|| UnknownDType {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_memory() {
        let sizes: Vec<_> = DType::ALL.iter().map(|d| (d.name(), d.size())).collect();
        #[rustfmt::skip]
        assert_eq!(sizes, [
            ("f16", 2), ("bf16", 2), ("f32", 4), ("f64", 8), ("i8", 1), ("i16", 2), ("i32", 4), ("i64", 8),
            ("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8), ("bool", 1), ("complex64", 8), ("complex128", 16),
        ]);
    }

    #[test]
    fn names_round_trip_and_typos_get_a_hint() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), *dtype);
        }
        let error = "float32".parse::<DType>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown element type `float32`"),
            "{error}"
        );
        let error = "bf17".parse::<DType>().unwrap_err().to_string();
        assert!(error.ends_with("did you mean `bf16`?"), "{error}");
    }

    #[test]
    fn a_complex_product_is_six_operations() {
        assert_eq!(
            (DType::Complex64.mul_flops(), DType::Complex64.add_flops()),
            (6, 2)
        );
        assert_eq!((DType::F32.mul_flops(), DType::F32.add_flops()), (1, 1));
        assert_eq!(DType::I8.accumulator(), DType::I32);
    }
}
