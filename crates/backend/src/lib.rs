//! The contract every backend keeps.
//!
//! Choosing needs to know of a kernel what it computes, on which inputs it may run, which settings it has,
//! how much scratch memory they take and what to expect of it. All of that is [`Kernel`]. Running is another matter: a
//! kernel of the processor works in the caller's memory ([`HostKernel`]), a device wants its tensors moved, its program compiled and
//! its work waited for ([`Accelerator`]). Both come together as a [`Backend`].
//!
//! # Who checks what
//!
//! | checked | by | when |
//! |---|---|---|
//! | shapes, element types, aliasing | [`Call::new`] | once per call; a `Call` that exists is sound |
//! | operation, layout, alignment, instructions, sizes, numerics, setting, workspace | [`admit`] | before a kernel runs for the first time on such an input; [`run`] does it every time |
//! | that what it is about to do is sound | the kernel | always: types by asking the view, memory by asking the [`Scratch`], instructions by a token it was made with |
//! | indices inside data | the kernel | before it writes |
//!
//! Every failure is a [`Fault`], and every fault says who has to change something ([`Blame`]).
//!
//! # To be sure
//!
//! [`conformance`] runs every kernel of a backend against the reference on odd sizes, strides and values; [`Simulated`] is a
//! device made of formulas and a scripted clock that passes it, and that breaks on request.
#![deny(unsafe_code)]

pub mod answer;
mod backend;
mod call;
pub mod conformance;
mod device;
mod fault;
mod host;
mod kernel;
mod large_pages;
mod own;
pub mod prior;
pub mod sample;
mod scratch;
mod simulated;
mod space;

pub use backend::{Backend, Timing};
pub use call::Call;
pub use device::{Accelerator, Direction, Staged};
pub use fault::{Blame, Fault};
pub use host::{DuplicateKernel, Host, ReferenceKernel};
pub use kernel::{HostKernel, Kernel, Terms, admit, run};
pub use own::OwnKernel;
pub use prior::{Hint, Sharing};
pub use scratch::{Carver, Plain, Scratch};
pub use simulated::{
    Cost, Mishap, Profile, Simulated, SimulatedBuffer, SimulatedKernel, SimulatedProgram,
    SimulatedWork,
};
pub use space::{Axis, Knobs, MAX_KNOBS, MAX_THREADS, Setting, SettingError, Space};

/// The pages under `docs/` that show code: compiled and run like the examples here.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/adding-a-kernel.md")]
    struct AddingAKernel;

    #[doc = include_str!("../../../docs/adding-a-backend.md")]
    struct AddingABackend;
}
