//! Remembers what was learned: across runs, crashes, versions and machines.
//!
//! A [`Store`] is a directory on this machine with one SQLite file. Programs record every timed run there in some ten
//! nanoseconds, and read what they know when they start. What it holds leaves as [`Wisdom`]: a value that merges, with a
//! file format that can be mailed, checked in, or compiled into a program. With the feature `postgres`, the module `fleet` exchanges the same
//! records through a PostgreSQL server, and runs tuning jobs on it.
//!
//! # What is kept
//!
//! *Series*: for each [`SeriesKey`] (kind of machine, software, workload, kernel, version, parameters) the [`Statistics`] of
//! all runs, twice: as they are, and with weights that halve every week; and the latest [`RECENT`] runs as they came, with
//! what had been predicted and what the machine was doing. *Notes*: machines, calibrations, the latest decision for each workload,
//! quarantines, models.
//!
//! # How it adds up
//!
//! A row of statistics belongs to the store it was measured in, its *origin*, a random number. Only that store changes it, and
//! each change has a higher revision. Of two copies of a row the higher revision holds; rows of different origins add up. So
//! merging needs no order and no memory of what was merged before: twice is once, and what comes home after a detour is
//! recognised. How far a row counts on this machine is another question, and [`Trust`] answers it when the row is used, never by
//! deleting it.
//!
//! # What is lost at most
//!
//! | event | lost |
//! |---|---|
//! | the process is killed | what was recorded in the last 50 ms, never what [`Store::flush`] acknowledged |
//! | the machine loses power | what was written since the last checkpoint, or nothing acknowledged with [`Durability::PowerCut`] |
//! | the disk is full, the file locked | nothing: sums wait in memory until there is room |
//! | the file is damaged | it is set aside for inspection once the damage shows, and a new one begun |
//! | the directory is removed | what was in it; a new one is begun |
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use kernelwise_store::{Environment, Export, Options, Place, Sample, SeriesKey, Store, WallClock};
//! use kernelwise_types::units::Nanos;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! // A program passes the clock of the system, and `Place::of` its machine.
//! let store = Store::open(dir, Options::new(WallClock::new(|| 1_800_000_000)))?;
//! let place = Arc::new(Place {
//!     fingerprint: "00112233aabbccdd".to_owned().try_into()?,
//!     environment: Environment { os: "linux".into(), release: None, driver: None, library: "0.1.0".into() },
//! });
//! let key = SeriesKey::new(place.clone(), "matmul f32 64x64x64", "cpu-matmul-f32-a", 1, "threads=1");
//! let slot = store.slot(&key);
//! for ns in [5_300, 5_400, 5_500] {
//!     store.record(slot, Sample::timed(Nanos::from_u64(ns)));
//! }
//! store.flush()?;
//!
//! let known = store.known(&place.fingerprint)?;
//! assert_eq!(known[0].statistics.times().samples(), 3);
//!
//! // Elsewhere, the same again, however often it arrives.
//! # let elsewhere = tempfile::tempdir()?;
//! # let elsewhere = elsewhere.path();
//! let other = Store::open(elsewhere, Options::new(WallClock::new(|| 1_800_000_000)))?;
//! let wisdom = store.export(&Export::default())?;
//! other.import(&wisdom)?;
//! other.import(&wisdom)?;
//! assert_eq!(other.known(&place.fingerprint)?, known);
//! # Ok(())
//! # }
//! ```
//!
//! Limits: times are whole seconds; a series of which more than [`RECENT`] runs come between two writes keeps the last of them; a
//! network file system without working locks is no place for the directory.
#![forbid(unsafe_code)]

mod dir;
mod embedded;
mod error;
mod figures;
#[cfg(feature = "postgres")]
pub mod fleet;
mod key;
mod note;
mod place;
mod private;
mod retention;
mod samples;
mod statistics;
mod store;
mod trust;
mod wisdom;

pub use dir::{NoDirectory, directory};
pub use embedded::rows::SeriesRecord;
pub use embedded::session::Durability;
pub use error::{StoreError, Warning};
pub use figures::{Figures, figures};
pub use key::SeriesKey;
pub use note::{Note, NoteKind, Quarantine};
pub use place::{Environment, Place};
pub use retention::{Kept, Prune, Pruned};
pub use samples::{RECENT, RawSample};
pub use statistics::{DamagedStatistics, Faded, HALF_LIFE_S, Happened, Statistics};
pub use store::{Known, Options, Sample, Slot, Store, WallClock};
pub use trust::{Here, Recalled, Trust, distance};
pub use wisdom::{
    Export, FileError, Imported, Layer, LayerFile, Layered, Skipped, Wisdom, WisdomError,
    search_path,
};
