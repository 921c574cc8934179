//! Occupancy: how many groups a unit holds at a time, and what keeps it from holding more.
//!
//! The rules are those of NVIDIA's `cuda_occupancy.h`, with the numbers of the device's [`Residency`](super::Residency):
//!
//! - **Registers** belong to warps, in multiples of 256. A warp lives in one of the partitions of a multiprocessor, so what is left
//!   over in a partition is lost: of 16 384 registers, warps of 1280 leave 1024 unused.
//! - **Shared memory** belongs to blocks, in multiples of 128 or 256 bytes, and from capability 8.0 on the system keeps 1 KiB per
//!   block for itself.
//! - **Warps, threads and blocks** have limits of their own.
//!
//! Other makers hand out the same things in other portions; where they publish none, a limit is not applied, and if not even the
//! resident threads are known, there is no occupancy.

use serde::{Deserialize, Serialize};

use super::device::Gpu;

/// What a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Threads of a group.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a group, in bytes.
    pub shared_bytes: u64,
}

/// What keeps a unit from holding more groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Resident threads or warps.
    Threads,
    /// Resident groups.
    Groups,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl Limiter {
    /// The name as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Groups => "groups",
            Self::Registers => "registers",
            Self::SharedMemory => "shared_memory",
        }
    }
}

/// What a unit holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Groups per unit: at least 1.
    pub groups: u32,
    /// Subgroups (warps) per unit.
    pub subgroups: u32,
    /// Resident subgroups as a share of what the unit could hold.
    pub share: f64,
    /// What keeps it from being more.
    pub limiter: Limiter,
}

/// Why a kernel cannot run at all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OccupancyError {
    /// Nobody to do the work.
    #[error("a group of 0 threads does nothing: give it at least one")]
    NoThreads,
    /// A group that is too large.
    #[error("{threads} threads per group are more than the {most} that {device} allows")]
    TooManyThreads {
        /// Threads.
        threads: u32,
        /// The limit.
        most: u32,
        /// The device.
        device: String,
    },
    /// More registers than a thread can address, or than a unit has for one group.
    #[error(
        "{registers} registers for each of {threads} threads are more than {device} has: take fewer threads, or smaller tiles"
    )]
    TooManyRegisters {
        /// Registers of a thread.
        registers: u32,
        /// Threads.
        threads: u32,
        /// The device.
        device: String,
    },
    /// More shared memory than a group can have.
    #[error(
        "{bytes} bytes of shared memory are more than the {most} that a group has on {device}: take smaller tiles"
    )]
    TooMuchShared {
        /// What is asked for.
        bytes: u64,
        /// The limit.
        most: u64,
        /// The device.
        device: String,
    },
}

/// How many groups of this usage a unit holds; `None` if the maker does not say what a unit can hold.
///
/// NVIDIA's *Best Practices Guide* works this example for compute capability 7.0:
///
/// ```
/// use kernelwise_tune::gpu::{Usage, device, occupancy};
///
/// let usage = Usage { threads: 128, registers: 37, shared_bytes: 0 };
/// let held = occupancy(&device("v100")?, usage)?.expect("NVIDIA publishes what a unit holds");
/// assert_eq!((held.groups, held.share), (12, 0.75));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn occupancy(gpu: &Gpu, usage: Usage) -> Result<Option<Occupancy>, OccupancyError> {
    let device = || gpu.name.clone();
    let most = gpu.limits.threads_per_group;
    if usage.threads == 0 {
        return Err(OccupancyError::NoThreads);
    }
    if usage.threads > most {
        return Err(OccupancyError::TooManyThreads {
            threads: usage.threads,
            most,
            device: device(),
        });
    }
    let too_much = || OccupancyError::TooMuchShared {
        bytes: usage.shared_bytes,
        most: gpu.limits.shared_per_group,
        device: device(),
    };
    if usage.shared_bytes > gpu.limits.shared_per_group {
        return Err(too_much());
    }
    let Some(unit) = &gpu.residency else {
        return Ok(None);
    };
    let subgroups = usage.threads.div_ceil(gpu.subgroup.max(1));
    let held = (unit.threads / gpu.subgroup.max(1)).max(1);
    let by_threads = (held / subgroups, Limiter::Threads);
    let by_groups = (unit.groups, Limiter::Groups);

    let too_many = || OccupancyError::TooManyRegisters {
        registers: usage.registers,
        threads: usage.threads,
        device: device(),
    };
    if usage.registers > unit.registers_per_thread {
        return Err(too_many());
    }
    let by_registers = match unit.registers {
        Some(all) if usage.registers > 0 => {
            let parts = unit.partitions.max(1);
            let portion = u64::from(unit.register_unit.max(1));
            let needed = u64::from(usage.registers) * u64::from(gpu.subgroup);
            let per_subgroup = needed.div_ceil(portion) * portion;
            let per_part = u64::from(all / parts) / per_subgroup;
            let groups = per_part * u64::from(parts) / u64::from(subgroups);
            u32::try_from(groups).unwrap_or(u32::MAX)
        }
        _ => u32::MAX,
    };
    if by_registers == 0 {
        return Err(too_many());
    }
    let by_shared = match unit.shared {
        Some(all) => {
            let portion = unit.shared_unit.max(1);
            let asked = usage.shared_bytes.saturating_add(unit.shared_reserve);
            let each = asked.div_ceil(portion).saturating_mul(portion);
            match all.checked_div(each) {
                Some(0) => return Err(too_much()),
                Some(groups) => u32::try_from(groups).unwrap_or(u32::MAX),
                None => u32::MAX,
            }
        }
        None => u32::MAX,
    };
    // Of equal limits the first is named.
    let (groups, limiter) = [
        by_threads,
        by_groups,
        (by_registers, Limiter::Registers),
        (by_shared, Limiter::SharedMemory),
    ]
    .into_iter()
    .min_by_key(|(groups, _)| *groups)
    .unwrap_or(by_groups);
    let groups = groups.max(1);
    let subgroups = groups.saturating_mul(subgroups).min(held);
    Ok(Some(Occupancy {
        groups,
        subgroups,
        share: f64::from(subgroups) / f64::from(held),
        limiter,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gpu::{device, devices};

    fn held(name: &str, threads: u32, registers: u32, shared_bytes: u64) -> Occupancy {
        let usage = Usage {
            threads,
            registers,
            shared_bytes,
        };
        occupancy(&device(name).unwrap(), usage).unwrap().unwrap()
    }

    /// *CUDA C++ Best Practices Guide*, "Calculating Occupancy", capability 7.0: 128 threads of 37 registers give 12
    /// blocks and 75 %, 320 threads only 4 blocks and 63 %; 32 registers are the most for all warps.
    #[test]
    fn the_best_practices_guide() {
        let first = held("v100", 128, 37, 0);
        assert_eq!((first.groups, first.share), (12, 0.75));
        assert_eq!(first.limiter, Limiter::Registers);
        let second = held("v100", 320, 37, 0);
        assert_eq!((second.groups, second.share), (4, 0.625));
        assert_eq!(held("v100", 256, 32, 0).share, 1.0);
        assert!(held("v100", 256, 33, 0).share < 1.0);
    }

    /// *CUDA C++ Programming Guide*, "Multiprocessor Level", capability 6.x: with 64 registers two blocks of 512 threads are
    /// resident, with one register more only one.
    #[test]
    fn the_programming_guide() {
        for name in ["p100", "gtx-1080-ti"] {
            assert_eq!(held(name, 512, 64, 0).groups, 2, "{name}");
            assert_eq!(held(name, 512, 65, 0).groups, 1, "{name}");
        }
    }

    /// By hand from the published rules.
    #[test]
    fn worked_by_hand() {
        // 8.6: 1536 threads are one block of 1024, not one and a half.
        let one = held("a4000", 1024, 32, 0);
        assert_eq!((one.groups, one.share), (1, 1024.0 / 1536.0));
        assert_eq!(one.limiter, Limiter::Threads);
        // 8.0: (40 960 + 1024) of 167 936 bytes: 4 blocks; 16 warps of 64.
        let shared = held("a100", 128, 32, 40 << 10);
        assert_eq!((shared.groups, shared.share), (4, 0.25));
        assert_eq!(shared.limiter, Limiter::SharedMemory);
        // The reserve tells: without it 5 blocks of 20 KiB would fill the 100 KiB of capability 8.6; with it there are 4.
        assert_eq!(held("a4000", 128, 32, 20 << 10).groups, 4);
        // 7.5 keeps none: 3 blocks of 20 KiB in 64 KiB.
        assert_eq!(held("t4", 128, 32, 20 << 10).groups, 3);
        // 8.9: 24 blocks of one warp, 48 would fit otherwise.
        let small = held("l4", 32, 32, 0);
        assert_eq!((small.groups, small.limiter), (24, Limiter::Groups));
        assert_eq!(small.share, 0.5);
        // 8.9, 64 threads: 200 registers leave two warps per partition, 168 leave three.
        assert_eq!(held("l4", 64, 200, 0).groups, 4);
        assert_eq!(held("l4", 64, 168, 0).groups, 6);
        // 9.0, the largest block there is.
        assert_eq!(held("h100", 1024, 64, 227 << 10).groups, 1);
        // An M1 core holds 3072 threads; nothing else is published.
        let apple = held("apple-m1", 1024, 32, 32 << 10);
        assert_eq!((apple.groups, apple.share), (3, 1.0));
    }

    #[test]
    fn what_is_not_published_is_not_computed() {
        let usage = Usage {
            threads: 256,
            registers: 32,
            shared_bytes: 1024,
        };
        for name in ["apple-m2", "webgpu-default"] {
            assert_eq!(occupancy(&device(name).unwrap(), usage), Ok(None));
        }
    }

    #[test]
    fn what_cannot_run_says_why() {
        let gpu = device("a100").unwrap();
        let fails = |threads, registers, shared_bytes| {
            let usage = Usage {
                threads,
                registers,
                shared_bytes,
            };
            occupancy(&gpu, usage).unwrap_err()
        };
        assert_eq!(fails(0, 32, 0), OccupancyError::NoThreads);
        assert!(matches!(
            fails(1025, 32, 0),
            OccupancyError::TooManyThreads { most: 1024, .. }
        ));
        assert!(matches!(
            fails(32, 256, 0),
            OccupancyError::TooManyRegisters { .. }
        ));
        assert!(matches!(
            fails(1024, 65, 0),
            OccupancyError::TooManyRegisters { .. }
        ));
        assert!(matches!(
            fails(32, 32, 163 * 1024 + 1),
            OccupancyError::TooMuchShared { .. }
        ));
        assert!(matches!(
            fails(32, 32, u64::MAX),
            OccupancyError::TooMuchShared { .. }
        ));
        let webgpu = device("webgpu-default").unwrap();
        let usage = Usage {
            threads: 257,
            registers: 1,
            shared_bytes: 0,
        };
        let error = occupancy(&webgpu, usage).unwrap_err().to_string();
        assert_eq!(
            error,
            "257 threads per group are more than the 256 that webgpu-default allows"
        );
    }

    proptest! {
        /// Nobody holds more by needing more; all of it lies within what the unit has.
        #[test]
        fn more_of_anything_never_holds_more(
            which in 0usize..64, threads in 1u32..=1024, registers in 1u32..=255, shared in 0u64..(200 << 10),
            more in (0u32..64, 0u64..(8 << 10)),
        ) {
            let all = devices();
            let gpu = &all[which % all.len()];
            let usage = Usage { threads, registers, shared_bytes: shared };
            let Ok(Some(before)) = occupancy(gpu, usage) else { return Ok(()) };
            let unit = gpu.residency.unwrap();
            prop_assert!(before.groups >= 1 && before.groups <= unit.groups);
            prop_assert!(before.share > 0.0 && before.share <= 1.0);
            if let Some(all) = unit.registers {
                prop_assert!(u64::from(before.groups) * u64::from(threads) * u64::from(registers) <= u64::from(all));
            }
            if let Some(all) = unit.shared {
                prop_assert!(u64::from(before.groups) * (shared + unit.shared_reserve) <= all);
            }
            for worse in [
                Usage { registers: registers + more.0, ..usage },
                Usage { shared_bytes: shared + more.1, ..usage },
                Usage { threads: threads + more.0, ..usage },
            ] {
                if let Ok(Some(after)) = occupancy(gpu, worse) {
                    prop_assert!(after.groups <= before.groups, "{usage:?} {before:?} {worse:?} {after:?}");
                }
            }
        }
    }
}
