//! Other libraries, loaded at run time, to compare with.
//!
//! A claim about speed is a ratio, and a ratio is only worth something when both sides ran in one process, by
//! turns, on the same machine in the same minute. So the rivals are brought into this process:
//!
//! | rival | what it does here | how to get it |
//! |---|---|---|
//! | [`OpenBlas`] | matrix products of f32 and f64 | `pip install scipy-openblas32`, or `apt-get install libopenblas0-pthread` where that [knows the processor](OpenBlas::doubt) |
//! | [`OneDnn`] | [convolutions](Convolution) of f32 images | `pip install --no-deps onednn-cpu-gomp` |
//!
//! Nothing is linked: building needs neither of them, and where one is absent, loading answers with a
//! [`LoadError`] that says where it looked and how to install it.
//!
//! ```
//! use kernelwise_rivals::OpenBlas;
//!
//! match OpenBlas::load() {
//!     Ok(blas) => {
//!         let mut c = [0.0];
//!         blas.sgemm(1, 1, 2, &[1.0, 2.0], false, &[3.0, 4.0], false, &mut c)?;
//!         assert_eq!(c, [11.0]);
//!     }
//!     Err(absent) => assert!(absent.to_string().contains("libopenblas0-pthread")),
//! }
//! # Ok::<(), kernelwise_rivals::CallError>(())
//! ```
//!
//! Both run on as many threads as they are told: [`OpenBlas::set_threads`], and an argument of
//! [`OneDnn::convolution`]. A loaded library stays in the process until it ends, because both start threads
//! that outlive any call.

mod error;
mod load;
mod onednn;
mod openblas;

pub use error::{CallError, LoadError};
pub use onednn::{Convolution, OneDnn};
pub use openblas::{OpenBlas, Operand};
