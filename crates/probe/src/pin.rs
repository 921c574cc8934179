//! Binding the calling thread to one logical processor while something is measured.
//!
//! A thread that wanders between processors takes its cold caches along, and two threads that meet on
//! one core look half as fast as they are. Measurements therefore hold still; everything else should
//! leave placement to the scheduler.

use std::marker::PhantomData;

/// Why a thread could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// This operating system has no such call, or none that this crate uses.
    #[error("binding a thread to a processor is not available on this operating system")]
    NotAvailable,
    /// The processor is offline, does not exist or lies outside the thread's affinity mask.
    #[error("this thread may not run on processor {cpu}; it may use {}", list(.allowed))]
    NotAllowed {
        /// The processor that was asked for.
        cpu: u32,
        /// The processors the thread may use.
        allowed: Vec<u32>,
    },
    /// The kernel refused; containers sometimes forbid the call.
    #[error("the kernel refused to {attempt} the affinity mask: {source}")]
    Refused {
        /// `read` or `set`.
        attempt: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

fn list(cpus: &[u32]) -> String {
    let numbers: Vec<String> = cpus.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// Keeps the thread that made it on one processor; dropping it restores the mask from before.
///
/// It cannot be sent to another thread, because it would restore the mask of the wrong one. Guards
/// made one inside the other must be dropped in reverse order, as scopes do.
#[derive(Debug)]
#[must_use = "dropping the guard lets the thread wander again"]
pub struct Pinned {
    cpu: u32,
    #[cfg(target_os = "linux")]
    before: rustix::thread::CpuSet,
    // A raw pointer is neither `Send` nor `Sync`.
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Pinned {
    /// The processor the thread is bound to.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }
}

/// Binds the calling thread to logical processor `cpu` until the guard is dropped. Threads started
/// meanwhile inherit the binding.
///
/// ```
/// use kernelwise_probe::pin;
///
/// // Containers and other systems may refuse; a measurement then says that it was not pinned.
/// if let Ok(cpus) = pin::allowed() {
///     let pinned = pin::current_thread_to(cpus[0])?;
///     assert_eq!(pinned.cpu(), cpus[0]);
/// }
/// # Ok::<(), pin::PinError>(())
/// ```
pub fn current_thread_to(cpu: u32) -> Result<Pinned, PinError> {
    system::current_thread_to(cpu)
}

/// The logical processors the calling thread may run on, ascending, never empty.
pub fn allowed() -> Result<Vec<u32>, PinError> {
    system::allowed()
}

#[cfg(target_os = "linux")]
mod system {
    use std::marker::PhantomData;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{PinError, Pinned};

    fn mask() -> Result<CpuSet, PinError> {
        sched_getaffinity(None).map_err(|errno| PinError::Refused {
            attempt: "read",
            source: errno.into(),
        })
    }

    fn members(mask: &CpuSet) -> Vec<u32> {
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| mask.is_set(cpu))
            .map(|cpu| cpu as u32)
            .collect()
    }

    pub(super) fn allowed() -> Result<Vec<u32>, PinError> {
        mask().map(|mask| members(&mask))
    }

    pub(super) fn current_thread_to(cpu: u32) -> Result<Pinned, PinError> {
        let before = mask()?;
        let index = cpu as usize;
        // `is_set` may only be asked about processors the mask has room for.
        if index >= CpuSet::MAX_CPU || !before.is_set(index) {
            return Err(PinError::NotAllowed {
                cpu,
                allowed: members(&before),
            });
        }
        let mut only = CpuSet::new();
        only.set(index);
        sched_setaffinity(None, &only).map_err(|errno| PinError::Refused {
            attempt: "set",
            source: errno.into(),
        })?;
        Ok(Pinned {
            cpu,
            before,
            stays_on_its_thread: PhantomData,
        })
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            // The mask was in force before, so the kernel refuses it only if those processors went
            // offline or were taken from the container meanwhile; it has then placed the thread itself.
            if let Err(errno) = sched_setaffinity(None, &self.before) {
                tracing::debug!(cpu = self.cpu, %errno, "affinity mask not restored");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{PinError, Pinned};

    pub(super) fn allowed() -> Result<Vec<u32>, PinError> {
        Err(PinError::NotAvailable)
    }

    pub(super) fn current_thread_to(_cpu: u32) -> Result<Pinned, PinError> {
        Err(PinError::NotAvailable)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_guard_holds_one_processor_and_gives_the_others_back() {
        let before = allowed().unwrap();
        for &cpu in &before {
            let pinned = current_thread_to(cpu).unwrap();
            assert_eq!(pinned.cpu(), cpu);
            assert_eq!(allowed().unwrap(), [cpu]);
            assert_eq!(rustix::thread::sched_getcpu(), cpu as usize);
            drop(pinned);
            assert_eq!(allowed().unwrap(), before);
        }
    }

    #[test]
    fn a_processor_outside_the_mask_is_refused_by_name() {
        for absent in [1023, 1024, u32::MAX] {
            match current_thread_to(absent) {
                Err(PinError::NotAllowed { cpu, allowed }) => {
                    assert_eq!(cpu, absent);
                    assert!(!allowed.is_empty());
                }
                other => panic!("{other:?}"),
            }
        }
        let error = PinError::NotAllowed {
            cpu: 7,
            allowed: vec![0, 1],
        };
        assert_eq!(
            error.to_string(),
            "this thread may not run on processor 7; it may use 0, 1"
        );
    }
}
