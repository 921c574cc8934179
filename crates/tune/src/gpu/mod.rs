//! GPUs: launch parameters from what is published of a device, and times from a roofline. Nothing here runs on one.
//!
//! 1. A [`Gpu`] is what is known of a device: limits always, rates where somebody published them. [`device`] has a table
//!    with the source of each row; a description of your own is [checked](Gpu::check).
//! 2. A [`Problem`] is what a workload is to a GPU, whatever its name: a product, a stream, rows, an exchange of axes.
//! 3. A [`Launch`] makes a [`Config`] concrete: a grid that covers the output, [occupancy], shared memory, pieces
//!    where memory is short. Every limit is kept, or an error says which is not.
//! 4. [`predict`] says how long that should take, if the rates are known, and [`recommend`] takes the launch that should take
//!    least.
//! 5. [`judge`] asks the same model about spaces that somebody measured: how good is its first recommendation?
//!
//! ```
//! use kernelwise_tune::gpu::{Wishes, device, recommend};
//! use kernelwise_types::Workload;
//!
//! let product: Workload = "matmul f32 4096x4096x4096".parse()?;
//! let advice = recommend(&device("a100")?, &product, &Wishes::default())?;
//! let time = advice.prediction.expect("NVIDIA publishes the rates of an A100");
//! // 137 GFLOP at no more than 19.5 TFLOP/s.
//! assert!(time.warm_ns.get() > 7.0e6);
//! // TF32 would be faster, and is not taken without being asked for.
//! assert_eq!(advice.launch.config.arithmetic, kernelwise_tune::gpu::Arithmetic::Own);
//!
//! // A browser does not tell how fast the adapter is; how to launch is known all the same.
//! let advice = recommend(&device("webgpu-default")?, &product, &Wishes::default())?;
//! assert!(advice.prediction.is_none());
//! assert!(advice.launch.config.threads() <= 256);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod capability;
mod config;
mod cost;
mod demand;
mod device;
mod launch;
mod occupancy;
mod pieces;
mod priced;
mod problem;
mod recorded;
mod shapes;
mod table;

#[cfg(test)]
mod tests;

pub use advice::{Advice, Alternative, Wishes, recommend};
pub use capability::Capability;
pub use config::Config;
pub use cost::{Prediction, predict};
pub use device::{Api, Arithmetic, DeviceError, Gpu, Lanes, Limits, Residency, Tensor};
pub use launch::{Launch, LaunchError};
pub use occupancy::{Limiter, Occupancy, OccupancyError, Usage, occupancy};
pub use priced::GpuCost;
pub use problem::Problem;
pub use recorded::{JudgeError, Judgement, judge, predict_recorded};
pub use table::{device, device_of_file, devices};
