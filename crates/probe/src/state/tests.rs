//! One look after the other on machines built in a directory.

use super::*;
use crate::fake::FakeTree;

fn reader(fake: &FakeTree) -> StateReader {
    StateReader::under(fake.tree(), Reading::Known(Hypervisor::None))
}

#[test]
fn the_first_look_has_no_shares_and_says_why() {
    let fake = FakeTree::new();
    fake.write("/proc/stat", "cpu 1 0 0 1\nprocs_running 2\n");
    fake.write("/proc/loadavg", "0.53 0.20 0.10 2/300 4711\n");
    fake.write("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  3 kB\n");
    let state = reader(&fake).look(5);
    assert_eq!(
        state.cpu_utilisation.reason(),
        Some("first look: a share needs two")
    );
    assert_eq!(state.run_queue, Reading::Known(2));
    assert_eq!(state.load_1min, Reading::Known(0.53));
    assert_eq!(state.memory_available, Reading::Known(Bytes(3072)));
    assert_eq!(
        state.cpu_pressure.reason(),
        Some("/proc/pressure/cpu: not found"),
        "a kernel without PSI"
    );
}

#[test]
fn shares_cover_the_time_between_two_looks() {
    let fake = FakeTree::new();
    let put = |stat: &str, stalls: [u64; 3], energy: &str, throttles: &str| {
        fake.write("/proc/stat", stat);
        for (name, stall) in ["cpu", "memory", "io"].iter().zip(stalls) {
            fake.write(
                &format!("/proc/pressure/{name}"),
                &format!("some avg10=99.00 avg60=0.00 avg300=0.00 total={stall}\n"),
            );
        }
        fake.write("/sys/class/powercap/intel-rapl:0/energy_uj", energy);
        let counter = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
        fake.write(counter, throttles);
    };
    fake.write("/sys/devices/system/cpu/online", "0");
    fake.write("/sys/class/powercap/intel-rapl:0/name", "package-0");
    fake.write(
        "/sys/class/powercap/intel-rapl:0/max_energy_range_uj",
        "900000000",
    );
    put(
        "cpu 0 0 0 100\ncpu0 0 0 0 100\n",
        [100, 0, 0],
        "1000000",
        "4",
    );
    let mut reader = reader(&fake);
    reader.look(1_000_000_000);
    put(
        "cpu 30 0 0 160 0 0 0 10\ncpu0 30 0 0 160 0 0 0 10\n",
        [500_100, 20_000, 0],
        "16000000",
        "4",
    );
    let state = reader.look(2_000_000_000);
    let share = |reading: &Reading<Share>| reading.known().map(|share| share.get());
    assert_eq!(share(&state.cpu_utilisation), Some(0.4));
    assert_eq!(share(&state.steal), Some(0.1));
    assert_eq!(state.per_cpu_utilisation.known().unwrap().len(), 1);
    assert_eq!(
        share(&state.cpu_pressure),
        Some(0.5),
        "of this second, not avg10"
    );
    assert_eq!(share(&state.memory_pressure), Some(0.02));
    assert_eq!(share(&state.io_pressure), Some(0.0));
    assert_eq!(state.power.known().unwrap().get(), 15.0);
    assert_eq!(state.throttling, Reading::Known(false));
    put(
        "cpu 30 0 0 160 0 0 0 10\n",
        [500_100, 20_000, 0],
        "16000000",
        "5",
    );
    let state = reader.look(3_000_000_000);
    assert_eq!(state.throttling, Reading::Known(true));
    assert_eq!(state.power.known().unwrap().get(), 0.0);
    // A look that fails does not spoil the one after the next.
    fake.remove("/proc/stat");
    let state = reader.look(4_000_000_000);
    assert_eq!(
        state.cpu_utilisation.reason(),
        Some("/proc/stat: not found")
    );
    put("cpu 60 0 0 190\n", [0; 3], "16000000", "5");
    let state = reader.look(5_000_000_000);
    assert_eq!(
        state.cpu_utilisation.reason(),
        Some("at the look before, /proc/stat: not found")
    );
    put("cpu 90 0 0 190\n", [0; 3], "16000000", "5");
    let state = reader.look(6_000_000_000);
    assert_eq!(share(&state.cpu_utilisation), Some(1.0));
}

#[test]
fn a_machine_without_sensors_says_so_for_each() {
    let state = reader(&FakeTree::new()).look(0);
    for (reason, expected) in [
        (state.temperature.reason(), "no processor sensor"),
        (
            state.throttling.reason(),
            "/sys/devices/system/cpu/cpu*/thermal_throttle",
        ),
        (state.power.reason(), "/sys/class/powercap"),
        (state.battery.reason(), "no battery"),
        (
            state.power_mode.reason(),
            "/sys/devices/system/cpu/cpu0/cpufreq",
        ),
        (state.frequency.reason(), ""),
        (state.load_1min.reason(), "/proc/loadavg"),
        (state.memory_available.reason(), "/proc/meminfo"),
        (state.run_queue.reason(), "/proc/stat"),
    ] {
        assert!(
            reason.unwrap().starts_with(expected),
            "{reason:?}, not {expected}"
        );
    }
}

#[test]
fn a_load_that_is_no_number_is_unknown() {
    let fake = FakeTree::new();
    for bad in ["", "x 1 2", "NaN 1 2", "inf", "-1.0"] {
        fake.write("/proc/loadavg", bad);
        assert!(load_1min(&fake.tree()).is_err(), "{bad}");
    }
}
