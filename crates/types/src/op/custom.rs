//! An operation of the user's own: Kernelwise knows its name and size, and what it costs if told.

use std::fmt;
use std::sync::Arc;

use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, legal};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "custom";

/// The name of a user's operation: lower-case letters, digits and `_`, at most 32 of them. A dash would
/// end it inside a kernel id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CustomName(Arc<str>);

impl CustomName {
    /// The longest name.
    pub const MAX: usize = 32;

    /// Accepts a short identifier.
    pub fn new(name: &str) -> Result<Self, WorkloadError> {
        let letter = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_');
        let fits = (1..=Self::MAX).contains(&name.len()) && name.bytes().all(letter);
        legal(fits, NAME, || {
            format!(
                "`{name}` is not a name: write 1 to {} of a-z, 0-9 and _, as in custom.wave_step",
                Self::MAX
            )
        })?;
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the user says one call costs, counted as [`Cost`](crate::Cost) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Declared {
    /// Arithmetic operations.
    pub flops: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// An operation of the user's own.
///
/// Text: `custom.wave_step f64 512x512`, with `flops89478485 read2097152 written2097152` if the counts are declared. The shape
/// is the size under which measurements are kept; what goes in and out is the user's affair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Custom {
    /// Its name.
    pub name: CustomName,
    /// Its size, as it stands in the key.
    pub shape: Shape,
    /// What a call costs; without it there is no roofline and no rate, only times.
    pub declared: Option<Declared>,
}

impl Custom {
    /// An operation of this name and size that declares no cost.
    ///
    /// ```
    /// use kernelwise_types::op::Custom;
    /// use kernelwise_types::{DType, Workload};
    ///
    /// let step = Custom::new("wave_step", "512x512".parse()?)?;
    /// let workload = Workload::new(step, DType::F64)?;
    /// assert_eq!(workload.to_string(), "custom.wave_step f64 512x512");
    /// assert_eq!(workload.cost(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(name: &str, shape: Shape) -> Result<Self, WorkloadError> {
        Ok(Self {
            name: CustomName::new(name)?,
            shape,
            declared: None,
        })
    }
}

impl Problem for Custom {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Every element type and shape will do.
    fn check(&self, _dtype: DType) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Unknown here, so none.
    fn inputs(&self, _dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(Vec::new())
    }

    /// Unknown here, so none.
    fn outputs(&self, _dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(Vec::new())
    }

    /// As declared.
    fn work(&self, _dtype: DType) -> Option<Work> {
        self.declared.map(|declared| Work::flops(declared.flops))
    }

    /// As declared.
    fn traffic(&self, _dtype: DType) -> Result<Traffic, WorkloadError> {
        let declared = self.declared.ok_or(WorkloadError::Missing {
            op: NAME,
            field: COUNTS,
        })?;
        Ok(Traffic {
            read: declared.read,
            written: declared.written,
        })
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name.as_str())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        match self.declared {
            None => Ok(()),
            Some(Declared {
                flops,
                read,
                written,
            }) => write!(f, " flops{flops} read{read} written{written}"),
        }
    }
}

const COUNTS: &str = "all of flops, read and written, or none of them";

impl Parse for Custom {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let counts = (
            fields.number("flops")?,
            fields.number("read")?,
            fields.number("written")?,
        );
        let declared = match counts {
            (None, None, None) => None,
            (Some(flops), Some(read), Some(written)) => Some(Declared {
                flops,
                read,
                written,
            }),
            _ => {
                return Err(WorkloadError::Missing {
                    op: NAME,
                    field: COUNTS,
                });
            }
        };
        Ok(Self {
            name: CustomName::new(variant)?,
            shape: fields.shape()?,
            declared,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_what_was_declared_or_unknown() {
        let text = "custom.wave_step f64 512x512 flops89478485 read2097152 written1048576";
        let w: Workload = text.parse().unwrap();
        let cost = w.cost().unwrap();
        assert_eq!(cost.flops.0, 89_478_485);
        assert_eq!(cost.bytes_read.0, 2_097_152);
        assert_eq!(cost.bytes_written.0, 1_048_576);
        assert_eq!(w.to_string(), text);
        let silent: Workload = "custom.x_2 bool 7".parse().unwrap();
        assert_eq!(silent.cost(), None);
        assert!(silent.inputs().is_empty() && silent.outputs().is_empty());
        let problem = silent.operation().problem();
        assert!(problem.work(DType::Bool).is_none() && problem.traffic(DType::Bool).is_err());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        for name in ["Wave", "a.b", "ä", &"x".repeat(33)] {
            let error = error(&format!("custom.{name} f64 8"));
            assert_eq!(
                error,
                format!(
                    "custom: `{name}` is not a name: write 1 to 32 of a-z, 0-9 and _, as in custom.wave_step"
                )
            );
        }
        assert!(Custom::new(&"x".repeat(32), Shape::SCALAR).is_ok());
        assert_eq!(
            error("custom.x f64 8 flops3"),
            "custom needs all of flops, read and written, or none of them"
        );
        assert_eq!(
            error("custom.x f64 0x3"),
            "custom: operand `size` of shape 0x3 is empty: there is nothing to compute, skip the call"
        );
        assert_eq!(
            error("custom.x f64 8 flops1 read18446744073709551615 written1"),
            "custom: the number of bytes moved does not fit 64 bits: split the problem"
        );
    }
}
