//! Shapes: the sizes of a tensor's dimensions, outermost first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most dimensions a shape may have: a batched 3-D convolution needs five, a blocked transpose
/// seven. A fixed bound keeps shapes free of allocation on the call path.
pub const MAX_RANK: usize = 8;

/// The largest element in bytes; shapes are bounded so that no tensor of any type overflows `isize`.
const LARGEST_ELEMENT: usize = 16;

/// Sizes of a tensor's dimensions, outermost first. A shape without dimensions is a scalar; a
/// dimension of zero makes an empty tensor, which is legal.
///
/// ```
/// use kernelwise_types::Shape;
///
/// let shape: Shape = "32x64x56x56".parse()?;
/// assert_eq!(shape.elements(), 6_422_528);
/// assert_eq!(shape.to_string(), "32x64x56x56");
/// # Ok::<(), kernelwise_types::ShapeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<usize>", into = "Vec<usize>")]
pub struct Shape {
    rank: u8,
    /// Entries from `rank` on are zero, so that equality and hash may look at all of them.
    dims: [usize; MAX_RANK],
}

/// Why a list of numbers is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// More dimensions than [`MAX_RANK`].
    #[error("a shape has at most {MAX_RANK} dimensions, not {rank}: merge neighbouring ones")]
    TooManyDimensions {
        /// How many there were.
        rank: usize,
    },
    /// A tensor of this shape cannot be addressed.
    #[error(
        "shape {shape} has more elements than this machine can address: make a dimension smaller"
    )]
    TooLarge {
        /// The shape in text.
        shape: String,
    },
    /// Text that is not numbers joined by `x`.
    #[error("`{text}` is not a shape: write sizes joined by x, such as 128x256, or `scalar`")]
    Syntax {
        /// The text as given.
        text: String,
    },
}

impl Shape {
    /// A shape without dimensions: one element.
    pub const SCALAR: Self = Self {
        rank: 0,
        dims: [0; MAX_RANK],
    };

    /// Takes sizes, outermost first.
    pub fn new(sizes: &[usize]) -> Result<Self, ShapeError> {
        if sizes.len() > MAX_RANK {
            return Err(ShapeError::TooManyDimensions { rank: sizes.len() });
        }
        // Zeros are passed over: strides are products of the other sizes and must not overflow either.
        let addressable = isize::MAX as usize / LARGEST_ELEMENT;
        sizes
            .iter()
            .try_fold(1usize, |product, &size| {
                product
                    .checked_mul(size.max(1))
                    .filter(|&p| p <= addressable)
            })
            .ok_or_else(|| ShapeError::TooLarge {
                shape: joined(sizes),
            })?;
        let mut dims = [0; MAX_RANK];
        dims[..sizes.len()].copy_from_slice(sizes);
        Ok(Self {
            rank: sizes.len() as u8,
            dims,
        })
    }

    /// The sizes, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..usize::from(self.rank)]
    }

    /// How many dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// How many elements: the product of the sizes, 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// The index of the element at `position` in row-by-row order, in the first entries of an
    /// array, and how many entries those are.
    pub fn unravel(&self, position: usize) -> ([usize; MAX_RANK], usize) {
        let mut index = [0; MAX_RANK];
        let mut rest = position;
        for axis in (0..self.rank()).rev() {
            let size = self.dims[axis].max(1);
            index[axis] = rest % size;
            rest /= size;
        }
        (index, self.rank())
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }
}

fn joined(sizes: &[usize]) -> String {
    let words: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    words.join("x")
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rank == 0 {
            f.write_str("scalar")
        } else {
            f.write_str(&joined(self.dims()))
        }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        if text == "scalar" {
            return Ok(Self::SCALAR);
        }
        let sizes: Option<Vec<usize>> = text
            .split('x')
            .map(|word| crate::text::number(word).ok())
            .collect();
        Self::new(&sizes.ok_or_else(|| ShapeError::Syntax {
            text: text.to_owned(),
        })?)
    }
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = ShapeError;
    fn try_from(sizes: Vec<usize>) -> Result<Self, ShapeError> {
        Self::new(&sizes)
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_cannot_exist_are_refused() {
        assert_eq!(
            Shape::new(&[1; 9]),
            Err(ShapeError::TooManyDimensions { rank: 9 })
        );
        assert!(matches!(
            Shape::new(&[usize::MAX, 2]),
            Err(ShapeError::TooLarge { .. })
        ));
        // Empty, but its strides would overflow.
        assert!(matches!(
            Shape::new(&[0, usize::MAX, 2]),
            Err(ShapeError::TooLarge { .. })
        ));
        for text in [
            "",
            "x",
            "3x",
            "-1",
            "+3",
            "3x4.5",
            "3X4",
            "99999999999999999999999",
        ] {
            assert!(
                matches!(text.parse::<Shape>(), Err(ShapeError::Syntax { .. })),
                "{text:?}"
            );
        }
    }

    #[test]
    fn scalars_and_empty_shapes_count_their_elements() {
        assert_eq!(Shape::SCALAR.elements(), 1);
        assert_eq!(Shape::new(&[3, 0, 2]).unwrap().elements(), 0);
        assert_eq!("scalar".parse::<Shape>().unwrap(), Shape::SCALAR);
        assert_eq!(Shape::SCALAR.to_string(), "scalar");
    }
}
