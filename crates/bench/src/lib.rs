//! Benchmarks of operations: which kernel is fastest on this shape, by how much, and how near to what the machine can do?
//!
//! For each shape, [`Bench::shape`] takes these steps:
//!
//! 1. **Who takes part?** Every kernel that is admitted, with its default setting, and the [`Rivals`]: other people's libraries,
//!    called as their users call them. The reference kernel is the answer key and does not race; a shape without any contender is
//!    not measured. Kernels of reduced precision race only when asked for, except those for images (Winograd and Fourier): they
//!    are timed and shown, and count neither as winner nor in a ratio of exact kernels.
//! 2. **Is it right?** Every contender computes the shape once. Small results are held against the reference; where that would
//!    take too long, against the first result that a second contender confirms. What is wrong is not timed.
//! 3. **How fast?** One short race of all, then a longer one of those near the front of their kind, interleaved, on one pinned thread and
//!    its clock of processor time, or on the wall clock with several threads.
//! 4. **Is it believable?** A rate above the calibrated peak is marked and wins nothing. Two exceptions: kernels that do fewer
//!    operations by design ([`Technique::Algorithmic`](kernelwise_types::Technique)) are not judged, and a
//!    convolution is judged by the taps that fall inside the image ([`inside_taps`]).
//! 5. **What does it mean?** Winner, ties within 2 %, and the [ratios](Ratio) the operation is held to, with their thresholds.
//!
//! Operands stay where they are from call to call, so small shapes are timed in the caches: that is how kernels meet their
//! inputs in a chain of operations, and the same for all contenders.
//!
//! The kernels come from the caller, so this crate can be asked about any:
//!
//! ```
//! use kernelwise_bench::{default_shapes, inside_taps};
//! use kernelwise_types::op::Operation;
//!
//! let machine = kernelwise_probe::machine();
//! let shapes = default_shapes("conv2d", &machine);
//! let Some(Operation::Conv2d(first)) = shapes.first().map(|shape| shape.operation()) else { panic!() };
//! assert!(inside_taps(first) < 1.0, "padding is not computed on");
//! ```

mod bench;
mod choices;
mod contest;
mod entrant;
mod figures;
mod hits;
mod judge;
mod ratios;
mod recommended;
mod rivals;
mod shapes;
mod standings;

pub use bench::{Bench, BenchError, Options};
pub use choices::{
    Choices, ChoicesOptions, ChoicesProgress, Chosen, Preference, Score, Scores, ShapeChoices,
    choices, static_rule, tiny_shapes,
};
pub use figures::{
    Conditions, Doubt, Figures, Outcome, RefusedKernel, RivalFact, ShapeFigures, SkippedShape,
    Source, Standing, Times,
};
pub use hits::{CountAllocations, Hits, HitsError, hits};
pub use judge::inside_taps;
pub use ratios::{Ratio, RatioSummary, Summary, ThresholdSummary, summarise};
pub use recommended::{
    Advice, Advised, Followed, FollowedScore, OnThreads, Recommendations, ShapeFollowed,
    ThreadsScore, recommended,
};
pub use rivals::Rivals;
pub use shapes::{SPREAD_OPERATIONS, ShapeFileError, default_shapes, read_shapes, spread_shapes};
