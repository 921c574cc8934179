//! What an operation costs, counted from its shapes in one fixed form.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Flops};

/// The work of one call, exact for the shapes at hand, in the textbook form of the operation. An
/// algorithm that needs less (Strassen, Winograd) is measured by the same count, as everywhere else.
///
/// How things are counted:
/// - `flops`: one each for addition, subtraction, multiplication, division, negation, absolute value,
///   square root, minimum, maximum, comparison and selection, of any element type; a multiply-add is
///   two. Complex numbers count the operations on their parts (2 for a sum, 6 for a product). Taps that
///   fall on padding count, as they do in every published convolution figure.
/// - `transcendentals`: evaluations of exp, log, tanh, erf, sin and the like. They are kept apart
///   because what one costs in additions depends on the implementation.
/// - `comparisons`: of keys, in sorting.
/// - `bytes_read`, `bytes_written`: compulsory traffic, every input element that is needed read once
///   and every output element written once. What caches and blocking add is the kernel's doing, not
///   the operation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Arithmetic operations.
    pub flops: Flops,
    /// Evaluations of transcendental functions.
    pub transcendentals: u64,
    /// Key comparisons.
    pub comparisons: u64,
    /// Bytes that must be read.
    pub bytes_read: Bytes,
    /// Bytes that must be written.
    pub bytes_written: Bytes,
}

impl Cost {
    /// Bytes read and written together.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes_read.0.saturating_add(self.bytes_written.0))
    }

    /// Arithmetic intensity in FLOP per byte; `None` when nothing is moved.
    pub fn intensity(&self) -> Option<f64> {
        let bytes = self.bytes().0;
        (bytes > 0).then(|| self.flops.0 as f64 / bytes as f64)
    }
}
