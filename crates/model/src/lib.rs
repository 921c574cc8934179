//! Learned models: from what was measured to what was not.
//!
//! A model is fitted to rows of features (sizes, strides, element type, threads) and a target, which
//! for kernels is the logarithm of a time or of what is left of it after an analytic prediction. It
//! answers for rows it has never seen.
//!
//! ```
//! use kernelwise_model::{Boosting, Table};
//!
//! // A kernel with a cost per call and a cost per element, as logarithms.
//! let mut seen = Table::new(1);
//! for n in 1..2000 {
//!     let n = n as f32;
//!     seen.push(&[n.ln()], (50.0 + 0.3 * n).ln())?;
//! }
//! let model = Boosting::default().fit(&seen, 1)?.flatten();
//! let guess = model.predict(&[1234.5_f32.ln()])?.exp();
//! assert!((guess / (50.0 + 0.3 * 1234.5) - 1.0).abs() < 0.05, "{guess}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The order of things
//!
//! 1. **Collect.** A [`Table`] takes rows one at a time and refuses what cannot be learned from, so
//!    that nothing later has to ask.
//! 2. **Fit.** [`Boosting`] holds the settings and grows an [`Ensemble`] of trees; [`boost`] says how.
//!    It is the default. [`Ridge`], [`DecisionTree`], [`Forest`], [`Perceptron`] and [`SupportVectors`] are there to be
//!    held against it, and [`Regressor`] is open to models from elsewhere. Same table, same settings, same seed: same model.
//! 3. **Check.** [`HeldOut`] tells the error on rows that were kept back; [`Conformal`] makes intervals of it.
//! 4. **Keep.** [`Fitted`] is what is written to a file; reading one back checks it.
//! 5. **Ask.** [`Flat`] is the same model laid out for the call path: no branches, no allocation,
//!    the same answers bit for bit.
//!
//! Who chooses among candidates collects [`Choices`] instead, and [`Boosting::fit_joint`] grows a [`Joint`] for all of them:
//! one descent of its [`FlatJoint`] answers for every candidate.
//!
//! Nothing here reads a clock, and all randomness comes from a seed.
#![forbid(unsafe_code)]

pub mod boost;
mod conformal;
mod forest;
mod held_out;
mod perceptron;
mod regress;
mod ridge;
mod saved;
mod scale;
mod support;
mod table;
pub mod watch;

pub use boost::{Boosting, Ensemble, Flat, FlatJoint, InvalidEnsemble, Joint};
pub use conformal::{CalibrateError, Conformal, Interval};
pub use forest::{DecisionTree, Forest};
pub use held_out::HeldOut;
pub use perceptron::{Network, Perceptron};
pub use regress::{FitError, ModelKind, Predict, Regressor, UnknownModel};
pub use ridge::{Linear, Ridge};
pub use saved::{Fitted, InvalidModel, ModelFileError};
pub use support::{SupportVectors, Waves};
pub use table::{Choices, RowError, Table, WidthMismatch};
