//! The processor: who made it, what it can execute, how many of it there are.
//!
//! Who it is comes from the processor itself where it can be asked ([`x86`]) and from
//! `/proc/cpuinfo` where not; how many there are, from the operating system ([`topology`]).

use kernelwise_types::Reading;
use kernelwise_types::machine::{Cache, Cpu, CpuSignature, Hypervisor, Isa};
use kernelwise_types::units::Hertz;

use crate::tree::{ReadError, Tree};
use cpuinfo::CpuInfo;
use topology::{CPUS, Processors, Topology};

pub(crate) mod cpuinfo;
mod isa;
pub(crate) mod topology;
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
mod x86;

/// What the processor says of itself, without any file.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) vendor: Reading<String>,
    pub(crate) model: Reading<String>,
    pub(crate) signature: Reading<CpuSignature>,
    pub(crate) isa: Vec<Isa>,
    pub(crate) tsc: Reading<Hertz>,
    pub(crate) hypervisor: Reading<Hypervisor>,
    pub(crate) caches: Reading<Vec<Cache>>,
}

impl Identity {
    /// Asks the processor this runs on.
    pub(crate) fn of_this_processor() -> Self {
        let mut identity = Self::by_instruction();
        identity.isa.extend(isa::detected());
        identity.isa.sort_unstable();
        identity
    }

    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    fn by_instruction() -> Self {
        x86::identify(&raw_cpuid::CpuId::new())
    }

    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    fn by_instruction() -> Self {
        Self::silent()
    }

    /// A processor that programs cannot ask.
    #[cfg(any(test, not(any(target_arch = "x86", target_arch = "x86_64"))))]
    pub(crate) fn silent() -> Self {
        const WHY: &str = "programs cannot ask a processor of this architecture";
        Self {
            vendor: Reading::unknown(WHY),
            model: Reading::unknown(WHY),
            signature: Reading::unknown(WHY),
            isa: Vec::new(),
            tsc: Reading::unknown("only x86 processors have a time-stamp counter"),
            hypervisor: Reading::unknown(WHY),
            caches: Reading::unknown(WHY),
        }
    }
}

/// Describes the processor from what it says and what the files add.
pub(crate) fn describe(tree: &Tree, identity: &Identity, processors: &Processors) -> Cpu {
    let info = CpuInfo::read(tree);
    let topology = Topology::read(tree, processors);
    Cpu {
        arch: std::env::consts::ARCH.to_owned(),
        vendor: or_listed(&identity.vendor, &info, CpuInfo::vendor),
        model: or_listed(&identity.model, &info, |info| {
            info.first("model name").map(str::to_owned)
        }),
        signature: or_listed(&identity.signature, &info, CpuInfo::signature),
        logical: processors.count(),
        cores: topology.cores,
        threads_per_core: topology.threads_per_core,
        packages: topology.packages,
        isa: identity.isa.clone(),
        tsc: identity.tsc.clone(),
        max_frequency: max_frequency(tree, processors),
    }
}

/// What the processor said, else what `/proc/cpuinfo` says, else why neither did.
fn or_listed<T: Clone>(
    said: &Reading<T>,
    info: &Result<CpuInfo, ReadError>,
    find: impl FnOnce(&CpuInfo) -> Result<T, ReadError>,
) -> Reading<T> {
    match (said, info) {
        (Reading::Known(value), _) => Reading::Known(value.clone()),
        (_, Ok(info)) => find(info).into(),
        (_, Err(error)) => Reading::unknown(error.to_string()),
    }
}

/// The highest clock any core may reach: on hybrid processors that of the fast cores.
fn max_frequency(tree: &Tree, processors: &Processors) -> Reading<Hertz> {
    let highest = processors.online.clone().and_then(|online| {
        let mut highest = 0;
        for cpu in online {
            let path = format!("{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq");
            highest = highest.max(tree.number::<u64>(&path)?);
        }
        Ok(highest)
    });
    match highest {
        Ok(0) => Reading::unknown("cpufreq states a highest clock of zero"),
        Ok(kilohertz) => Hertz::new(kilohertz as f64 * 1e3).into(),
        Err(error) => Reading::unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn describe_here(fake: &FakeTree, identity: &Identity) -> Cpu {
        describe(&fake.tree(), identity, &Processors::read(&fake.tree()))
    }

    #[test]
    fn files_speak_where_the_processor_is_silent() {
        let fake = FakeTree::new();
        let cpu = describe_here(&fake, &Identity::silent());
        assert_eq!(cpu.vendor.reason(), Some("/proc/cpuinfo: not found"));
        fake.write(
            "/proc/cpuinfo",
            "processor: 0\nvendor_id: V\nmodel name: M\ncpu family: 1\nmodel: 2\nstepping: 3\n",
        );
        let cpu = describe_here(&fake, &Identity::silent());
        assert_eq!(cpu.vendor.known().unwrap(), "V");
        assert_eq!(cpu.model.known().unwrap(), "M");
        assert_eq!(cpu.signature.known().unwrap().model, 2);
        assert_eq!(cpu.logical, 1);
        let outspoken = Identity {
            vendor: Reading::Known("W".into()),
            ..Identity::silent()
        };
        assert_eq!(
            describe_here(&fake, &outspoken).vendor.known().unwrap(),
            "W"
        );
    }

    #[test]
    fn the_highest_clock_is_that_of_the_fastest_core() {
        let fake = FakeTree::new();
        fake.write("/sys/devices/system/cpu/online", "0-1");
        fake.write(
            "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
            "5100000\n",
        );
        let clock = |fake: &FakeTree| describe_here(fake, &Identity::silent()).max_frequency;
        assert!(clock(&fake).reason().unwrap().contains("cpu1/cpufreq"));
        fake.write(
            "/sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq",
            "3800000\n",
        );
        assert_eq!(clock(&fake).known().unwrap().get(), 5.1e9);
    }

    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test says why")]
    fn detected_sets_are_those_the_kernel_lists() {
        let Ok(info) = CpuInfo::read(&Tree::system()) else {
            eprintln!("skipped: no /proc/cpuinfo to compare with");
            return;
        };
        let flags: Vec<&str> = info.first("flags").unwrap().split(' ').collect();
        let isa = Identity::of_this_processor().isa;
        assert!(isa.is_sorted());
        for (set, flag) in [
            (Isa::Avx2, "avx2"),
            (Isa::Avx512f, "avx512f"),
            (Isa::AmxTile, "amx_tile"),
            (Isa::AmxBf16, "amx_bf16"),
        ] {
            assert_eq!(isa.contains(&set), flags.contains(&flag), "{flag}");
        }
    }
}
