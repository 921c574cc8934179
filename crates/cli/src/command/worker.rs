//! Tuning on many machines: `kernelwise tune --queue` puts settings as jobs on a PostgreSQL server, `kernelwise worker` measures
//! them. A worker that vanishes loses its job to another after the lease; a job counts once, whoever finished it. A server that
//! is restarted is waited for.

use kernelwise_tune::search::Strategy;
use kernelwise_types::{Machine, Workload};

use super::tune::Usual;
use crate::args;
use crate::exit::Failure;

#[cfg(feature = "postgres")]
mod jobs;
#[cfg(feature = "postgres")]
mod patient;
#[cfg(feature = "postgres")]
pub(crate) use jobs::work;

/// Searches the settings of these kernels through workers; without waiting for them, puts settings that they shall measure.
pub(super) fn put(
    args: &args::Tune,
    strategy: Strategy,
    workload: &Workload,
    machine: &Machine,
    usual: &[Usual],
) -> Result<(), Failure> {
    #[cfg(feature = "postgres")]
    return jobs::put(args, strategy, workload, machine, usual);
    #[cfg(not(feature = "postgres"))]
    {
        let _ = (args, strategy, workload, machine, usual);
        super::fleet::without_server()
    }
}

/// Whether there is a server to ask, said before anything is measured.
pub(super) fn ready() -> Result<(), Failure> {
    #[cfg(feature = "postgres")]
    return jobs::ready();
    #[cfg(not(feature = "postgres"))]
    super::fleet::without_server()
}

/// Says how to have it.
#[cfg(not(feature = "postgres"))]
pub(crate) fn work(_: &args::Worker) -> Result<(), Failure> {
    super::fleet::without_server()
}
