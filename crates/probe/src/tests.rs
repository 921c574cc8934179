//! Whole machines: one built in a directory, the same one with every file garbled.

use kernelwise_types::machine::Hypervisor;
use kernelwise_types::units::Bytes;
use kernelwise_types::{Machine, Reading};
use proptest::prelude::*;

use crate::cpu::Identity;
use crate::fake::FakeTree;
use crate::machine::assemble;
use crate::{LoadNow, StateReader};

/// A small virtual machine: one processor, half of it allowed, with every file the probe may read.
fn one_core() -> FakeTree {
    let fake = FakeTree::new();
    let cpu0 = "/sys/devices/system/cpu/cpu0";
    for (path, text) in [
        (
            "/proc/cpuinfo",
            "processor: 0\nvendor_id: TestVendor\nmodel name: One Core\ncpu family: 6\nmodel: 1\nstepping: 2\ncpu MHz: 2000\nphysical id: 0\ncore id: 0\n",
        ),
        (
            "/proc/meminfo",
            "MemTotal:       1048576 kB\nMemAvailable:    524288 kB\n",
        ),
        (
            "/proc/stat",
            "cpu  10 0 10 80 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0\nprocs_running 1\n",
        ),
        ("/proc/loadavg", "0.50 0.40 0.30 1/100 42\n"),
        (
            "/proc/pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=100\n",
        ),
        (
            "/proc/pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        ),
        (
            "/proc/pressure/io",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        ),
        ("/proc/sys/kernel/osrelease", "6.1.0-test\n"),
        ("/proc/self/status", "Name: x\nCpus_allowed_list: 0-3\n"),
        ("/proc/self/cgroup", "0::/box\n"),
        (
            "/proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ),
        ("/proc/device-tree/hypervisor/compatible", "linux,kvm\0"),
        ("/sys/fs/cgroup/box/cpu.max", "50000 100000\n"),
        ("/sys/fs/cgroup/box/memory.max", "268435456\n"),
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("/sys/class/dmi/id/product_name", "Standard PC\n"),
        ("/sys/devices/system/cpu/online", "0\n"),
        ("/sys/devices/system/node/online", "0\n"),
        ("/sys/devices/system/node/node0/cpulist", "0\n"),
        ("/sys/devices/system/node/node0/distance", "10\n"),
        (
            "/sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal: 1048576 kB\n",
        ),
        ("/sys/class/hwmon/hwmon0/name", "coretemp\n"),
        ("/sys/class/hwmon/hwmon0/temp1_input", "45000\n"),
        ("/sys/class/hwmon/hwmon0/temp1_label", "Package id 0\n"),
        ("/sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n"),
        ("/sys/class/thermal/thermal_zone0/temp", "46000\n"),
        ("/sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("/sys/class/powercap/intel-rapl:0/energy_uj", "123456\n"),
        (
            "/sys/class/powercap/intel-rapl:0/max_energy_range_uj",
            "262143328850\n",
        ),
        ("/sys/class/power_supply/BAT0/type", "Battery\n"),
        ("/sys/class/power_supply/BAT0/capacity", "70\n"),
        ("/sys/class/power_supply/BAT0/status", "Discharging\n"),
        ("/sys/firmware/acpi/platform_profile", "balanced\n"),
    ] {
        fake.write(path, text);
    }
    for (path, text) in [
        ("topology/thread_siblings_list", "0\n"),
        ("topology/physical_package_id", "0\n"),
        ("cache/index0/type", "Data\n"),
        ("cache/index0/level", "1\n"),
        ("cache/index0/size", "32K\n"),
        ("cache/index0/shared_cpu_list", "0\n"),
        ("cache/index0/ways_of_associativity", "8\n"),
        ("cache/index0/coherency_line_size", "64\n"),
        ("cpufreq/cpuinfo_max_freq", "3000000\n"),
        ("cpufreq/scaling_cur_freq", "2500000\n"),
        ("cpufreq/scaling_governor", "powersave\n"),
        ("cpufreq/scaling_driver", "intel_pstate\n"),
        ("cpufreq/energy_performance_preference", "balance_power\n"),
        ("thermal_throttle/core_throttle_count", "0\n"),
        ("thermal_throttle/package_throttle_count", "0\n"),
    ] {
        fake.write(&format!("{cpu0}/{path}"), text);
    }
    fake
}

fn machine(fake: &FakeTree) -> Machine {
    assemble(&fake.tree(), &Identity::silent())
}

#[test]
fn a_small_machine_is_described_in_full() {
    let machine = machine(&one_core());
    assert_eq!((machine.cpu.logical, machine.usable_threads()), (1, 1));
    assert_eq!(machine.cpu.vendor.known().unwrap(), "TestVendor");
    assert_eq!(machine.cpu.cores, Reading::Known(1));
    assert_eq!(machine.cpu.threads_per_core, Reading::Known(1));
    assert_eq!(machine.cpu.packages, Reading::Known(1));
    assert_eq!(machine.cpu.max_frequency.known().unwrap().get(), 3e9);
    assert_eq!(machine.limits.cpu_quota, Reading::Known(Some(0.5)));
    assert_eq!(machine.usable_memory(), Some(Bytes(256 << 20)));
    assert_eq!(machine.memory, Reading::Known(Bytes(1 << 30)));
    assert_eq!(
        machine
            .last_level_caches()
            .map(|c| c.size_bytes)
            .collect::<Vec<_>>(),
        [Bytes(32 << 10)]
    );
    assert_eq!(machine.numa.known().unwrap()[0].cpus, [0]);
    assert_eq!(
        machine.hypervisor,
        Reading::Known(Hypervisor::Named("KVM".into()))
    );
    assert_eq!(machine.kernel.known().unwrap(), "6.1.0-test");
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
}

#[test]
fn the_state_of_a_small_machine_is_known_in_full() {
    let fake = one_core();
    let mut reader = StateReader::new(fake.tree());
    reader.look(0);
    fake.write(
        "/proc/stat",
        "cpu  60 0 10 130 0 0 0 0\ncpu0 60 0 10 130 0 0 0 0\nprocs_running 1\n",
    );
    let state = reader.look(1_000_000_000);
    let text = serde_json::to_string(&state).unwrap();
    assert!(!text.contains("null"), "something is unknown: {text}");
    assert_eq!(LoadNow::of(&state).utilisation().unwrap().get(), 0.5);
}

/// What a file may turn into.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        // Text that looks like it almost fits.
        "[0-9a-zA-Z:,./ \n=-]{0,80}".prop_map(String::into_bytes),
        "-?[0-9]{1,30}\n?".prop_map(String::into_bytes),
        "cpu[0-9]{0,3}( [0-9]{1,20}){0,11}\n".prop_map(String::into_bytes),
        "(some|full) avg10=[0-9.]{1,5} total=[0-9]{0,25}\n".prop_map(String::into_bytes),
        "[0-9]{1,6}-[0-9]{1,6}(,[0-9]{1,6}){0,3}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Everything garbled, then some more between two looks: answers, or reasons, but no panic.
    #[test]
    fn garbage_in_every_file_is_survived(
        contents in proptest::collection::vec(content(), 1..40),
        later in proptest::collection::vec(content(), 1..40),
        elapsed: u64,
    ) {
        let fake = one_core();
        let files = fake.files();
        prop_assert!(files.len() > 40, "the machine offers every file");
        let garble = |contents: &[Vec<u8>]| {
            for (file, content) in files.iter().zip(contents.iter().cycle()) {
                fake.write_bytes(file, content);
            }
        };
        // The reader finds sensors in good files, so that bad values reach every later step.
        let mut good = StateReader::new(fake.tree());
        garble(&contents);
        let mut bad = StateReader::new(fake.tree());
        let machine = machine(&fake);
        prop_assert!(machine.usable_threads() >= 1);
        for reader in [&mut good, &mut bad] {
            reader.look(0);
        }
        garble(&later);
        for reader in [&mut good, &mut bad] {
            let state = reader.look(elapsed);
            let text = serde_json::to_string(&state).unwrap();
            let back: kernelwise_types::SystemState = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(LoadNow::of(&back), LoadNow::of(&state));
        }
    }

    /// One file garbled at a time: what does not depend on it stays known.
    #[test]
    fn one_bad_file_spoils_only_what_it_tells(which: prop::sample::Index, content in content()) {
        let fake = one_core();
        let files = fake.files();
        let file = which.get(&files);
        fake.write_bytes(file, &content);
        let machine = machine(&fake);
        if file != "/proc/meminfo" {
            prop_assert_eq!(machine.memory, Reading::Known(Bytes(1 << 30)));
        }
        if !file.starts_with("/sys/devices/system/node") {
            prop_assert!(machine.numa.known().is_some());
        }
        if !file.contains("cgroup") && file != "/proc/self/mountinfo" {
            prop_assert_eq!(machine.limits.cpu_quota, Reading::Known(Some(0.5)));
        }
        if !file.contains("cpu0/cache") && !file.ends_with("cpu/online") {
            prop_assert!(machine.caches.known().is_some());
        }
    }
}
