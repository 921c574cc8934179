//! Puts the description of a machine together from its parts.

use kernelwise_types::Machine;
use kernelwise_types::units::Bytes;

use crate::cpu::topology::Processors;
use crate::cpu::{self, Identity};
use crate::tree::Tree;
use crate::{caches, cgroup, hypervisor, numa};

/// Describes the machine this runs on. Takes a few milliseconds and reads some files; what could not
/// be read is unknown, with the file and the reason.
///
/// ```
/// let machine = kernelwise_probe::machine();
/// assert!(machine.usable_threads() >= 1);
/// println!("{} threads, L1 and up: {:?}", machine.usable_threads(), machine.caches);
/// ```
pub fn machine() -> Machine {
    assemble(&Tree::system(), &Identity::of_this_processor())
}

pub(crate) fn assemble(tree: &Tree, identity: &Identity) -> Machine {
    let processors = Processors::read(tree);
    Machine {
        cpu: cpu::describe(tree, identity, &processors),
        caches: caches::read(tree, &processors, &identity.caches),
        numa: numa::read(tree),
        memory: tree
            .kilobytes("/proc/meminfo", "MemTotal")
            .map(Bytes)
            .into(),
        limits: cgroup::read(tree, processors.affinity()),
        hypervisor: hypervisor::read(tree, &identity.hypervisor),
        os: std::env::consts::OS.to_owned(),
        kernel: tree.text("/proc/sys/kernel/osrelease").into(),
    }
}
