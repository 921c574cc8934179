//! Recorded times, played back to the learner.
//!
//! A record says how long every algorithm took on many problems. The learner meets the problems one by one in a random order. It
//! sees what each is like, and the times of what it chooses to run, nothing else; in the end its choices are held against the
//! best that the record knows. The learner is the one of [`kernelwise_select`], not a copy.
//!
//! ```
//! use kernelwise_replay::{FindDb, Setup, replay};
//!
//! // Two algorithms; the second is faster from 64 channels on.
//! let mut rows = String::from("spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
//!     dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_direct,ms_gemm\n");
//! for c in 1..400 {
//!     let (direct, gemm) = (c as f64, 48.0 + 0.25 * c as f64);
//!     rows += &format!("2,{c},1,8,8,1,3,3,16,1,8,8,1,0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1,{direct},{gemm}\n");
//! }
//! let record = FindDb::read(rows.as_bytes())?;
//! let mut setup = Setup::default();
//! setup.rules.budget.share = 0.1;
//! let figures = replay(&record, &setup)?;
//! assert!(figures.geo_slowdown < 1.1, "{figures:?}");
//! assert!(figures.trial_share < 0.11 && figures.budget_overruns == 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`evaluate`] asks another question of the same record: which type of model predicts best, if half of the problems are known
//! with all their times.
#![forbid(unsafe_code)]

mod evaluate;
mod figures;
mod find_db;
mod others;
mod replay;

pub use evaluate::{Contender, EvaluateError, Evaluated, Evaluation, Progress, Watch, evaluate};
pub use figures::Figures;
pub use find_db::{FindDb, ReadError, Recorded};
pub use others::{StaticOrder, first_in_bucket, oracle};
pub use replay::{Setup, SetupError, order, replay, replay_watched};
