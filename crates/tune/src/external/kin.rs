//! Everything that descends from a candidate, also what has left its group.
//!
//! A daemon leaves the group of its parent, and then the group's end is not its own. But it keeps the environment it was
//! started with, and that carries a mark: the folder of the session. Linux lets us read the environments of our processes, so
//! they are found there. Elsewhere only the group is known.

use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// The variable that holds the mark.
pub(crate) const MARK: &str = "KERNELWISE_WORK";
/// Looks after which whatever is still there cannot be killed.
#[cfg(target_os = "linux")]
const LOOKS: usize = 200;

/// The processes that carry one mark.
#[derive(Debug, Clone)]
pub(crate) struct Kin {
    mark: std::path::PathBuf,
}

impl Kin {
    /// Those of a session with this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            mark: folder.to_owned(),
        }
    }

    pub(crate) fn mark(&self) -> &Path {
        &self.mark
    }

    /// How many there are.
    #[cfg(target_os = "linux")]
    pub(crate) fn count(&self) -> usize {
        self.all().count()
    }

    /// Kills all of them.
    #[cfg(target_os = "linux")]
    pub(crate) fn end(&self) {
        for _ in 0..LOOKS {
            let mut found = false;
            for pid in self.all() {
                found = true;
                let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                    continue;
                };
                // The number may have passed to somebody else between the look and the handle; from here on it cannot.
                if self.carries(pid) {
                    let _ = pidfd_send_signal(&handle, Signal::KILL);
                }
            }
            if !found {
                return;
            }
            // The killed take a moment to go.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[cfg(target_os = "linux")]
    fn all(&self) -> impl Iterator<Item = Pid> {
        let own = getpid();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let pids = numbers.filter_map(Pid::from_raw);
        pids.filter(move |pid| *pid != own && self.carries(*pid))
    }

    /// Whether a process carries the mark. The dead do not, even if nobody has reaped them.
    #[cfg(target_os = "linux")]
    fn carries(&self, pid: Pid) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let file = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let Ok(environment) = std::fs::read(file) else {
            return false;
        };
        let wanted = self.mark.as_os_str().as_bytes();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| {
            let value = variable.strip_prefix(MARK.as_bytes());
            value.and_then(|value| value.strip_prefix(b"=")) == Some(wanted)
        })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn count(&self) -> usize {
        0
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn end(&self) {}
}
