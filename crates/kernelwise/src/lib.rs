//! Chooses the fastest kernel for your input on your machine, and learns while you use it.
//!
//! There are many ways to multiply two matrices, and which one is fastest depends on their sizes, their layout and the
//! machine. A [`Kernelwise`] has all of its own kernels behind one call. The first call of a workload is served at once; a
//! few later ones go to other kernels, as many as a [budget](select::Budget) of one per cent of the time allows, and the fastest
//! serves from then on. A kernel that fails or computes something wrong is kept away, and the reference serves in its
//! place.
//!
//! ```
//! use kernelwise::Kernelwise;
//!
//! let kw = Kernelwise::new()?;
//! let (a, b, mut c) = (vec![1f32; 64 * 32], vec![2f32; 32 * 16], vec![0f32; 64 * 16]);
//! for _ in 0..100 {
//!     kw.matmul((&a, [64, 32]), (&b, [32, 16]), (&mut c, [64, 16]))?;
//! }
//! assert!(c.iter().all(|element| *element == 64.0));
//!
//! // What was learned: who serves and why, and what is known of the others.
//! println!("{}", kw.explain(&"matmul f32 64x32x16".parse()?)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Arrays of `ndarray` are tensors as they are (feature `ndarray`, on by default):
//!
//! ```
//! # #[cfg(feature = "ndarray")] {
//! # let kw = kernelwise::Kernelwise::new()?;
//! use ndarray::Array2;
//!
//! let (a, b) = (Array2::<f64>::eye(3), Array2::from_elem((3, 4), 0.5));
//! let mut c = Array2::<f64>::zeros((3, 4));
//! kw.matmul(&a, &b, &mut c)?;
//! assert_eq!(c, b);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Operations of your own
//!
//! Anything that can be computed in several ways can be chosen among in the same way, on any Rust type. A closure says what
//! matters about an input; see [`own`] for what happens when a variant fails.
//!
//! ```
//! # let kw = kernelwise::Kernelwise::new()?;
//! use kernelwise::own::Features;
//!
//! let find = kw
//!     .operation("find_in_sorted")
//!     .features(|(list, _): &(Vec<u32>, u32)| Features::new().size("length", list.len()))
//!     .variant("binary", |(list, wanted): &mut (Vec<u32>, u32)| list.binary_search(wanted).ok())
//!     .variant("linear", |(list, wanted)| list.iter().position(|element| element == wanted))
//!     .verified_by(|mine, reference| mine.result == reference.result)
//!     .build()?;
//! assert_eq!(find.run(&mut (vec![2, 3, 5, 7], 5))?, Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Remembering
//!
//! With a directory, what is learned outlives the program (feature `records`, on by default). The next run begins where this one
//! ended, and so does every other program on this machine that names the same directory.
//!
//! ```
//! # #[cfg(feature = "records")] {
//! # let place = std::env::temp_dir().join(format!("kernelwise-front-page-{}", std::process::id()));
//! use kernelwise::{Kernelwise, Workload};
//!
//! let copy: Workload = "copy f32 1000".parse()?;
//! let (from, mut to) = (vec![1f32; 1000], vec![0f32; 1000]);
//! let kw = Kernelwise::builder().remember(&place).build()?;
//! for _ in 0..100 {
//!     kw.copy((&from, [1000]), (&mut to, [1000]))?;
//! }
//! drop(kw);
//!
//! let again = Kernelwise::builder().remember(&place).build()?;
//! let estimate = again.explain(&copy)?.chosen.estimate;
//! assert!(matches!(estimate, kernelwise::types::Estimate::Measured { .. }));
//! # drop(again);
//! # std::fs::remove_dir_all(&place)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The environment
//!
//! [`Kernelwise::new`] and [`Builder::from_env`] look at three variables. `KERNELWISE_DIR` is a directory to remember in. `KERNELWISE_MODE` is `learn` (as above), `frozen`
//! (nothing is learned or tried: the same choice for the same call, always) or `shadow` (everything is learned, and the
//! first choice serves all the same). `KERNELWISE_FORCE` names who serves, as `operation=kernel`, several separated by commas.
//!
//! # Limits
//!
//! - Only kernels of the processor. What is learned of operations of your own ends with the [`Kernelwise`] that learned it.
//! - Without a [calibration](Builder::calibration) kernels that never ran are compared by what their authors say of them, so
//!   the first calls of a workload may be slow.
//! - Outputs are the caller's, and share no memory with inputs.
#![forbid(unsafe_code)]

mod builder;
mod load;
#[cfg(feature = "records")]
pub mod memory;
mod operations;
mod tensor;
mod workloads;

use std::sync::Arc;

use kernelwise_select::{Plan, RunError, SelectError, Selector, Statistics};

pub use kernelwise_backend as backend;
pub use kernelwise_backend::Call;
pub use kernelwise_measure as measure;
pub use kernelwise_model as model;
pub use kernelwise_probe as probe;
pub use kernelwise_select as select;
pub use kernelwise_select::own;
#[cfg(feature = "records")]
pub use kernelwise_store as store;
pub use kernelwise_types as types;
pub use kernelwise_types::{
    DType, Decision, Element, Shape, TensorView, TensorViewMut, Workload, op,
};

pub use builder::{Builder, SetupError};
pub use operations::{Convolution, Error, Pooling};
pub use tensor::{Sizes, Tensor, TensorMut};

/// Every kernel of this machine behind one call. All threads may use it at once.
#[derive(Debug)]
pub struct Kernelwise {
    /// Ends before the selector does.
    load: Option<load::Watch>,
    selector: Arc<Selector>,
    /// Ends before the store does.
    #[cfg(feature = "postgres")]
    sync: Option<kernelwise_store::fleet::BackgroundSync>,
    #[cfg(feature = "records")]
    memory: Option<Arc<memory::Memory>>,
}

impl Kernelwise {
    /// With the usual settings, and what the environment says.
    pub fn new() -> Result<Self, SetupError> {
        Self::builder().from_env()?.build()
    }

    /// With settings of your own; the environment is asked by [`from_env`](Builder::from_env) alone.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Puts a selector to work; `tell` hears what the machine does, where anybody looks.
    pub(crate) fn of(
        selector: Selector,
        watches_load: bool,
        tell: impl Fn(&types::SystemState) + Send + 'static,
    ) -> Result<Self, SetupError> {
        let selector = Arc::new(selector);
        // Where only some of the processors may be used, what the system counts is not about them.
        let machine = kernelwise_probe::machine();
        let counts = machine.usable_threads() == machine.cpu.logical;
        let load = match watches_load && counts {
            true => Some(load::Watch::start(&selector, tell)?),
            false => None,
        };
        Ok(Self {
            load,
            selector,
            #[cfg(feature = "postgres")]
            sync: None,
            #[cfg(feature = "records")]
            memory: None,
        })
    }

    /// Processors that others keep busy, as of the last look, which is part of what choices depend on; `None` if nobody
    /// [looks](Builder::background), or only some of the processors may be used.
    pub fn load(&self) -> Option<u32> {
        self.load.as_ref().and_then(|load| load.busy())
    }

    /// Where what is learned is [remembered](Builder::remember); `None` where it is not.
    #[cfg(feature = "records")]
    pub fn memory(&self) -> Option<&memory::Memory> {
        self.memory.as_deref()
    }

    /// How the exchange with a [server](Builder::sync_with) is doing; `None` where there is none.
    #[cfg(feature = "postgres")]
    pub fn sync_state(&self) -> Option<kernelwise_store::fleet::SyncState> {
        self.sync.as_ref().map(|sync| sync.state())
    }

    /// What chooses: for callers who [run kernels themselves](Selector::select), [add kernels](Selector::register) or
    /// [let one run again](Selector::unquarantine) that failed.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Computes a call.
    pub fn run(&self, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        self.selector.run(call)
    }

    /// Looks a workload up once, for many calls of it.
    pub fn plan(&self, workload: &Workload) -> Result<Plan, SelectError> {
        self.selector.plan(workload)
    }

    /// The choice for a workload, with everything it was made from.
    pub fn explain(&self, workload: &Workload) -> Result<Decision, SelectError> {
        self.selector.explain(workload)
    }

    /// What was done so far, from what was measured.
    pub fn statistics(&self) -> Statistics {
        self.selector.statistics()
    }

    /// An operation of your own; see [`Selector::operation`].
    pub fn operation<I: ?Sized, R>(&self, name: &str) -> own::Builder<I, R> {
        self.selector.operation(name)
    }
}

/// The example of the front page, compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;

/// The tour, the same.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tour.md")]
struct Tour;

/// The guide, the same.
#[cfg(all(doctest, feature = "records", feature = "ndarray"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
