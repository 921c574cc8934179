//! What NVIDIA documents per compute capability rather than per product.
//!
//! Sources. *CUDA C++ Programming Guide*, "Compute Capabilities": the table of technical specifications (resident threads,
//! warps and blocks, registers, shared memory) and the table of arithmetic throughput (results per clock and
//! multiprocessor). The header `cuda_occupancy.h` of the CUDA toolkit: the units in which registers and shared memory are
//! handed out, and the partitions of a multiprocessor. Half precision on 8.6 and 8.9 follows the whitepapers of GA102 and AD102,
//! which give it the rate of single precision.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::device::{Lanes, Residency};

/// A compute capability, such as 8.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Capability {
    /// The generation.
    pub major: u32,
    /// The variant within it.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One column of the guide's tables.
pub(super) struct Column {
    pub(super) residency: Residency,
    pub(super) lanes: Lanes,
    /// Shared memory that one block can be given, by opting in where that is needed.
    pub(super) shared_per_block: u64,
}

const KIB: u64 = 1024;

/// The column of a capability; `None` for one that is not in the tables read here.
#[rustfmt::skip]
pub(super) fn column(capability: Capability) -> Option<Column> {
    // threads, blocks, shared per unit and per block (KiB), unit and reserve of shared memory, partitions,
    // lanes: f32, f16, f64, int, special functions
    let (threads, blocks, shared, per_block, unit, reserve, partitions, lanes) = match (capability.major, capability.minor) {
        (6, 0) => (2048, 32,  64,  48, 256,    0, 2, [ 64, 128, 32,  64, 16]),
        (6, 1) => (2048, 32,  96,  48, 256,    0, 4, [128,   2,  4,  32, 32]),
        (7, 0) => (2048, 32,  96,  96, 256,    0, 4, [ 64, 128, 32,  64, 16]),
        (7, 5) => (1024, 16,  64,  64, 256,    0, 4, [ 64, 128,  2,  64, 16]),
        (8, 0) => (2048, 32, 164, 163, 128, 1024, 4, [ 64, 256, 32,  64, 16]),
        (8, 6) => (1536, 16, 100,  99, 128, 1024, 4, [128, 128,  2,  64, 16]),
        (8, 9) => (1536, 24, 100,  99, 128, 1024, 4, [128, 128,  2,  64, 16]),
        (9, 0) => (2048, 32, 228, 227, 128, 1024, 4, [128, 256, 64,  64, 16]),
        _ => return None,
    };
    let [f32, f16, f64, int, special] = lanes;
    Some(Column {
        residency: Residency {
            threads,
            groups: blocks,
            registers: Some(65_536),
            registers_per_thread: 255,
            // Handed out to warps in units of 256.
            register_unit: 256,
            partitions,
            shared: Some(shared * KIB),
            shared_unit: unit,
            shared_reserve: reserve,
        },
        lanes: Lanes { f32, f16: Some(f16), f64: Some(f64), int, special },
        shared_per_block: per_block * KIB,
    })
}
