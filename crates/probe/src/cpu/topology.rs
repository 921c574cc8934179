//! Which logical processors there are, which of them this process may use, and which of those share a
//! core or a socket.
//!
//! Order of sources: `/sys/devices/system/cpu` first; `/proc/cpuinfo` where a sandbox hides it; and
//! for the bare number of processors, if both are silent, what the standard library says.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::available_parallelism;

use kernelwise_types::Reading;

use super::cpuinfo::{CpuInfo, Place};
use crate::tree::{ReadError, Tree};

pub(crate) const CPUS: &str = "/sys/devices/system/cpu";

/// Numbers of logical processors.
#[derive(Debug)]
pub(crate) struct Processors {
    /// All that are switched on.
    pub(crate) online: Result<Vec<u32>, ReadError>,
    /// Those in the affinity mask of this process, some of which may be switched off.
    mask: Result<BTreeSet<u32>, ReadError>,
}

impl Processors {
    pub(crate) fn read(tree: &Tree) -> Self {
        let online = tree.id_list(&format!("{CPUS}/online")).or_else(|error| {
            CpuInfo::read(tree)
                .and_then(|info| info.processors())
                .map_err(|_| error)
        });
        Self {
            online,
            mask: affinity(tree),
        }
    }

    /// Those this process may use, as far as they are known; without a mask nothing forbids any.
    pub(crate) fn usable(&self) -> Vec<u32> {
        let online = self.online.as_deref().unwrap_or_default();
        let forbidden = |cpu: &u32| self.mask.as_ref().is_ok_and(|mask| !mask.contains(cpu));
        online
            .iter()
            .copied()
            .filter(|cpu| !forbidden(cpu))
            .collect()
    }

    /// How many the affinity mask allows.
    pub(crate) fn affinity(&self) -> Reading<u32> {
        match (&self.mask, &self.online) {
            (Err(error), _) => Reading::unknown(error.to_string()),
            (Ok(mask), Err(_)) => Reading::Known(mask.len() as u32),
            (Ok(_), Ok(_)) => Reading::Known(self.usable().len() as u32),
        }
    }

    /// How many are switched on; at least one, since this is running.
    pub(crate) fn count(&self) -> u32 {
        match &self.online {
            Ok(online) if !online.is_empty() => online.len() as u32,
            // This one also honours CPU quotas, so it may be low; it is never invented.
            _ => available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        }
    }
}

/// The mask of the process (its first thread), rather than of a thread that happens to be pinned.
fn affinity(tree: &Tree) -> Result<BTreeSet<u32>, ReadError> {
    const PATH: &str = "/proc/self/status";
    let text = tree.text(PATH)?;
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .ok_or_else(|| ReadError::lacks(PATH, "Cpus_allowed_list"))?;
    let mask = crate::tree::parse_id_list(list.trim())
        .ok_or_else(|| ReadError::unexpected(PATH, "a list such as 0-3,8", list))?;
    Ok(mask.into_iter().collect())
}

/// Cores and sockets among the processors that are switched on.
#[derive(Debug, PartialEq)]
pub(crate) struct Topology {
    pub(crate) cores: Reading<u32>,
    pub(crate) threads_per_core: Reading<u32>,
    pub(crate) packages: Reading<u32>,
}

impl Topology {
    pub(crate) fn read(tree: &Tree, processors: &Processors) -> Self {
        let online = match &processors.online {
            Ok(online) => online,
            Err(error) => {
                return Self {
                    cores: Reading::unknown(error.to_string()),
                    threads_per_core: Reading::unknown(error.to_string()),
                    packages: Reading::unknown(error.to_string()),
                };
            }
        };
        let listed = CpuInfo::read(tree).and_then(|info| info.places());
        let cores = cores_in_sysfs(tree, online).or_else(|error| match &listed {
            Ok(places) => Ok(cores_in_cpuinfo(places, online)),
            Err(_) => Err(error),
        });
        let packages = packages_in_sysfs(tree, online).or_else(|error| match &listed {
            Ok(places) => Ok(distinct(places, online, |place| place.package)),
            Err(_) => Err(error),
        });
        let (cores, threads_per_core) = match cores {
            Ok((cores, threads)) => (Reading::Known(cores), Reading::Known(threads)),
            Err(error) => (
                Reading::unknown(error.to_string()),
                Reading::unknown(error.to_string()),
            ),
        };
        Self {
            cores,
            threads_per_core,
            packages: packages.into(),
        }
    }
}

/// The number of cores and the most hardware threads on one.
fn cores_in_sysfs(tree: &Tree, online: &[u32]) -> Result<(u32, u32), ReadError> {
    let mut cores = BTreeSet::new();
    for cpu in online {
        // The newer name says what it is; the older one is on every kernel.
        let siblings = tree
            .id_list(&format!("{CPUS}/cpu{cpu}/topology/core_cpus_list"))
            .or_else(|_| tree.id_list(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")))?;
        if !siblings.contains(cpu) {
            let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
            let found = format!("{siblings:?}");
            return Err(ReadError::unexpected(&path, "the processor itself", &found));
        }
        cores.insert(siblings);
    }
    let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
    Ok((cores.len() as u32, threads as u32))
}

fn packages_in_sysfs(tree: &Tree, online: &[u32]) -> Result<u32, ReadError> {
    let mut packages = BTreeSet::new();
    for cpu in online {
        let path = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
        let package: i64 = tree.number(&path)?;
        if package < 0 {
            // Firmware of some ARM machines leaves it open.
            return Err(ReadError::unexpected(
                &path,
                "a socket number",
                &package.to_string(),
            ));
        }
        packages.insert(package);
    }
    Ok(packages.len() as u32)
}

fn cores_in_cpuinfo(places: &[Place], online: &[u32]) -> (u32, u32) {
    let core = |place: &Place| (place.package, place.core);
    let mut threads: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for place in places {
        *threads.entry(core(place)).or_default() += 1;
    }
    let threads = threads.into_values().max().unwrap_or(1);
    (distinct(places, online, core), threads)
}

fn distinct<K: Ord>(places: &[Place], online: &[u32], key: impl Fn(&Place) -> K) -> u32 {
    let keys: BTreeSet<K> = places
        .iter()
        .filter(|place| online.contains(&place.cpu))
        .map(key)
        .collect();
    keys.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn read(fake: &FakeTree) -> (u32, Topology) {
        let processors = Processors::read(&fake.tree());
        (
            processors.count(),
            Topology::read(&fake.tree(), &processors),
        )
    }

    fn known(cores: u32, threads_per_core: u32, packages: u32) -> Topology {
        Topology {
            cores: Reading::Known(cores),
            threads_per_core: Reading::Known(threads_per_core),
            packages: Reading::Known(packages),
        }
    }

    /// Eight processors on four cores of two sockets; processor n and n + 4 share a core.
    fn hyperthreaded() -> FakeTree {
        let fake = FakeTree::new();
        fake.write("/sys/devices/system/cpu/online", "0-7\n");
        for cpu in 0..8 {
            let (core, topology) = (cpu % 4, format!("{CPUS}/cpu{cpu}/topology"));
            fake.write(
                &format!("{topology}/thread_siblings_list"),
                &format!("{core},{}\n", core + 4),
            );
            fake.write(
                &format!("{topology}/physical_package_id"),
                &format!("{}\n", core / 2),
            );
        }
        fake
    }

    #[test]
    fn hyperthreads_are_not_cores() {
        assert_eq!(read(&hyperthreaded()), (8, known(4, 2, 2)));
    }

    #[test]
    fn the_affinity_mask_limits_the_process_not_the_machine() {
        let fake = hyperthreaded();
        let affinity = || Processors::read(&fake.tree()).affinity();
        assert!(affinity().reason().unwrap().contains("/proc/self/status"));
        assert_eq!(Processors::read(&fake.tree()).usable().len(), 8);
        fake.write("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1,4\n");
        assert_eq!(affinity(), Reading::Known(3));
        assert_eq!(Processors::read(&fake.tree()).usable(), [0, 1, 4]);
        assert_eq!(read(&fake), (8, known(4, 2, 2)));
        // A mask may name processors that are offline.
        fake.write("/sys/devices/system/cpu/online", "0\n");
        assert_eq!(affinity(), Reading::Known(1));
    }

    #[test]
    fn cpuinfo_stands_in_for_a_hidden_sysfs() {
        let fake = FakeTree::new();
        fake.write(
            "/proc/cpuinfo",
            "processor: 0\nphysical id: 0\ncore id: 0\n\nprocessor: 1\nphysical id: 0\ncore id: 0\n\n\
             processor: 2\nphysical id: 1\ncore id: 0\n",
        );
        assert_eq!(read(&fake), (3, known(2, 2, 2)));
    }

    #[test]
    fn silence_is_unknown_and_names_the_file() {
        let (count, topology) = read(&FakeTree::new());
        assert!(count >= 1);
        assert_eq!(
            topology.cores.reason(),
            Some("/sys/devices/system/cpu/online: not found")
        );
        let fake = hyperthreaded();
        fake.write(&format!("{CPUS}/cpu5/topology/physical_package_id"), "-1");
        fake.write(&format!("{CPUS}/cpu6/topology/thread_siblings_list"), "1-2");
        let (count, topology) = read(&fake);
        assert_eq!(count, 8);
        assert!(topology.packages.reason().unwrap().contains("cpu5"));
        assert!(topology.cores.reason().unwrap().contains("cpu6"));
    }
}
