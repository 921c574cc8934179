//! Power: what the packages draw, what the battery holds, what the machine aims at, and the clock
//! that comes of it.

use kernelwise_types::Reading;
use kernelwise_types::machine::Hypervisor;
use kernelwise_types::state::{Battery, PowerMode};
use kernelwise_types::units::{Hertz, Share, Watts};

use crate::cpu::cpuinfo::CpuInfo;
use crate::cpu::topology::CPUS;
use crate::tree::{ReadError, Tree};

const ZONES: &str = "/sys/class/powercap";
const SUPPLIES: &str = "/sys/class/power_supply";
const PROFILE: &str = "/sys/firmware/acpi/platform_profile";

/// Clocks are read from at most this many processors, evenly spread: a read may interrupt the
/// processor it asks about.
const CLOCKS: usize = 16;

/// The energy counters of the processor packages (RAPL), found once.
#[derive(Debug)]
pub(super) struct EnergyCounters {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    file: String,
    /// Where the counter starts again from zero.
    range_uj: Result<u64, ReadError>,
}

impl EnergyCounters {
    /// Packages only: their cores and memory are counted inside them, and `psys` is the whole board.
    pub(super) fn find(tree: &Tree) -> Self {
        let names = tree.names(ZONES).unwrap_or_default();
        let zones = names
            .iter()
            .filter(|name| name.starts_with("intel-rapl:"))
            .map(|name| format!("{ZONES}/{name}"))
            .filter(|folder| {
                let name = tree.text(&format!("{folder}/name"));
                name.is_ok_and(|name| name.starts_with("package"))
            })
            .map(|folder| Zone {
                file: format!("{folder}/energy_uj"),
                range_uj: tree.number(&format!("{folder}/max_energy_range_uj")),
            })
            .collect();
        Self { zones }
    }

    /// The counters in microjoules, in a fixed order.
    pub(super) fn read(&self, tree: &Tree) -> Result<Vec<u64>, ReadError> {
        if self.zones.is_empty() {
            let path = format!("{ZONES}/intel-rapl:*");
            return Err(ReadError::lacks(&path, "energy counter"));
        }
        // Readable by root only on most systems, against a side channel; the reason then says so.
        self.zones
            .iter()
            .map(|zone| tree.number(&zone.file))
            .collect()
    }

    /// Mean power between two readings. A counter that went down has wrapped once; at an interval
    /// of minutes it could have wrapped more often unseen.
    pub(super) fn power(&self, before: &[u64], now: &[u64], elapsed_ns: u64) -> Reading<Watts> {
        let mut spent_uj = 0u64;
        for ((zone, &before), &now) in self.zones.iter().zip(before).zip(now) {
            let spent = match &zone.range_uj {
                _ if now >= before => now - before,
                Ok(range) if *range >= before => (range - before).saturating_add(now),
                Ok(_) => return Reading::unknown(format!("{}: ran backwards", zone.file)),
                Err(error) => return Reading::unknown(error.to_string()),
            };
            spent_uj = spent_uj.saturating_add(spent);
        }
        if elapsed_ns == 0 {
            return Reading::unknown("no time passed since the look before");
        }
        // A microjoule per nanosecond is a kilowatt.
        Watts::new(spent_uj as f64 / elapsed_ns as f64 * 1e3).into()
    }
}

/// The batteries that feed the machine, found once. Those of mice and headsets do not.
#[derive(Debug)]
pub(super) struct Batteries {
    folders: Vec<String>,
}

impl Batteries {
    pub(super) fn find(tree: &Tree) -> Self {
        let names = tree.names(SUPPLIES).unwrap_or_default();
        let says = |folder: &str, file: &str, word: &str| {
            tree.text(&format!("{folder}/{file}"))
                .is_ok_and(|text| text == word)
        };
        let folders = names
            .iter()
            .map(|name| format!("{SUPPLIES}/{name}"))
            .filter(|folder| says(folder, "type", "Battery"))
            .filter(|folder| !says(folder, "scope", "Device") && !says(folder, "present", "0"))
            .collect();
        Self { folders }
    }

    /// Their mean charge, and whether any is being emptied.
    pub(super) fn read(&self, tree: &Tree) -> Reading<Battery> {
        if self.folders.is_empty() {
            return Reading::unknown("no battery under /sys/class/power_supply");
        }
        let charges: Result<Vec<(Share, bool)>, ReadError> = self
            .folders
            .iter()
            .map(|folder| charge(tree, folder))
            .collect();
        match charges {
            Ok(charges) => {
                let total: f64 = charges.iter().map(|(charge, _)| charge.get()).sum();
                let discharging = charges.iter().any(|(_, discharging)| *discharging);
                Reading::from(Share::new(total / charges.len() as f64)).map(|charge| Battery {
                    charge,
                    discharging,
                })
            }
            Err(error) => Reading::unknown(error.to_string()),
        }
    }
}

fn charge(tree: &Tree, folder: &str) -> Result<(Share, bool), ReadError> {
    let file = format!("{folder}/capacity");
    let per_cent: u8 = tree.number(&file)?;
    let charge = Share::new(f64::from(per_cent) / 100.0)
        .map_err(|_| ReadError::unexpected(&file, "0 to 100", &per_cent.to_string()))?;
    let status = tree.text(&format!("{folder}/status"))?;
    Ok((charge, status == "Discharging"))
}

/// What power management aims at.
///
/// The governor decides if it says `performance`. Otherwise a processor that scales itself (Intel and
/// AMD P-states) follows its energy preference, under a governor that is called `powersave` and
/// is nothing of the sort; elsewhere the governor means what it says. Machines without cpufreq may
/// have a platform profile.
pub(super) fn mode(tree: &Tree, cpu: u32) -> Reading<PowerMode> {
    let file = |name: &str| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
    let governor = match tree.text(&file("scaling_governor")) {
        Ok(governor) => governor,
        Err(error) => {
            return match tree.text(PROFILE) {
                Ok(profile) => profile_mode(&profile),
                Err(_) => Reading::unknown(error.to_string()),
            };
        }
    };
    if governor == "performance" {
        return Reading::Known(PowerMode::Performance);
    }
    if let Ok(preference) = tree.text(&file("energy_performance_preference")) {
        return match preference.as_str() {
            "performance" => Reading::Known(PowerMode::Performance),
            "default" | "balance_performance" | "balance_power" => {
                Reading::Known(PowerMode::Balanced)
            }
            "power" => Reading::Known(PowerMode::PowerSave),
            other => unrecognised(&file("energy_performance_preference"), other),
        };
    }
    match governor.as_str() {
        "schedutil" | "ondemand" | "conservative" | "interactive" => {
            Reading::Known(PowerMode::Balanced)
        }
        "powersave" => {
            let driver = tree.text(&file("scaling_driver")).unwrap_or_default();
            Reading::Known(if driver.contains("pstate") {
                PowerMode::Balanced
            } else {
                PowerMode::PowerSave
            })
        }
        other => unrecognised(&file("scaling_governor"), other),
    }
}

fn profile_mode(profile: &str) -> Reading<PowerMode> {
    match profile {
        "performance" => Reading::Known(PowerMode::Performance),
        "balanced" | "balanced-performance" => Reading::Known(PowerMode::Balanced),
        "low-power" | "quiet" | "cool" => Reading::Known(PowerMode::PowerSave),
        other => unrecognised(PROFILE, other),
    }
}

fn unrecognised(path: &str, found: &str) -> Reading<PowerMode> {
    Reading::unknown(ReadError::unexpected(path, "a known power mode", found).to_string())
}

/// The mean clock of the cores.
///
/// `/proc/cpuinfo` states a clock as well, but in a virtual machine that is the constant rate of the
/// time-stamp counter, so it counts only where there is certainly no hypervisor.
pub(super) fn frequency(
    tree: &Tree,
    cpus: &[u32],
    hypervisor: &Reading<Hypervisor>,
) -> Reading<Hertz> {
    let step = cpus.len().div_ceil(CLOCKS).max(1);
    let clocks: Result<Vec<f64>, ReadError> = cpus
        .iter()
        .step_by(step)
        .map(|cpu| {
            let kilohertz: u64 =
                tree.number(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq"))?;
            Ok(kilohertz as f64 * 1e3)
        })
        .collect();
    let clocks = clocks.or_else(|error| match hypervisor {
        Reading::Known(Hypervisor::None) => {
            let listed = CpuInfo::read(tree)?.megahertz();
            Ok(listed.iter().map(|megahertz| megahertz * 1e6).collect())
        }
        _ => Err(error),
    });
    match clocks {
        Ok(clocks) if !clocks.is_empty() => {
            Hertz::new(clocks.iter().sum::<f64>() / clocks.len() as f64).into()
        }
        Ok(_) => Reading::unknown("neither cpufreq nor /proc/cpuinfo states a clock"),
        Err(error) => Reading::unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn package(fake: &FakeTree, name: &str, label: &str, energy: &str) {
        let file = |file: &str| format!("{ZONES}/{name}/{file}");
        fake.write(&file("name"), label);
        fake.write(&file("energy_uj"), energy);
        fake.write(&file("max_energy_range_uj"), "1000000");
    }

    #[test]
    fn packages_add_up_and_wrap() {
        let fake = FakeTree::new();
        package(&fake, "intel-rapl:0", "package-0", "400000");
        package(&fake, "intel-rapl:0:0", "core", "77");
        package(&fake, "intel-rapl:1", "package-1", "999000");
        package(&fake, "intel-rapl:2", "psys", "5");
        package(&fake, "intel-rapl-mmio:0", "package-0", "5");
        let counters = EnergyCounters::find(&fake.tree());
        let before = counters.read(&fake.tree()).unwrap();
        assert_eq!(before, [400_000, 999_000]);
        fake.write(&format!("{ZONES}/intel-rapl:0/energy_uj"), "500000");
        // The second counter passes its end: 1000 uJ up to it, 4000 uJ after.
        fake.write(&format!("{ZONES}/intel-rapl:1/energy_uj"), "4000");
        let now = counters.read(&fake.tree()).unwrap();
        let power = counters.power(&before, &now, 10_000_000);
        assert!(
            (power.known().unwrap().get() - 10.5).abs() < 1e-9,
            "{power:?}"
        );
        assert!(counters.power(&before, &now, 0).known().is_none());
        let odd = counters.power(&[2_000_000, 0], &[0, 0], 1);
        assert!(odd.reason().unwrap().ends_with("ran backwards"), "{odd:?}");
    }

    #[test]
    fn no_energy_counter_is_said_to_be_missing() {
        let fake = FakeTree::new();
        let error = EnergyCounters::find(&fake.tree()).read(&fake.tree());
        assert!(error.unwrap_err().to_string().contains("intel-rapl"));
    }

    #[test]
    fn a_wrapped_counter_of_unknown_range_is_unknown() {
        let fake = FakeTree::new();
        package(&fake, "intel-rapl:0", "package-0", "5");
        fake.remove(&format!("{ZONES}/intel-rapl:0/max_energy_range_uj"));
        let counters = EnergyCounters::find(&fake.tree());
        assert!(counters.power(&[5], &[9], 1000).known().is_some());
        let wrapped = counters.power(&[5], &[1], 1000);
        assert!(wrapped.reason().unwrap().contains("max_energy_range_uj"));
    }

    fn battery(fake: &FakeTree) -> Reading<Battery> {
        Batteries::find(&fake.tree()).read(&fake.tree())
    }

    #[test]
    fn the_battery_of_the_machine_is_read_and_that_of_the_mouse_is_not() {
        let fake = FakeTree::new();
        let put = |name: &str, file: &str, text: &str| {
            fake.write(&format!("{SUPPLIES}/{name}/{file}"), text);
        };
        put("AC", "type", "Mains");
        put("mouse", "type", "Battery");
        put("mouse", "scope", "Device");
        put("mouse", "capacity", "3");
        assert!(battery(&fake).reason().unwrap().starts_with("no battery"));
        put("BAT0", "type", "Battery");
        put("BAT0", "capacity", "80");
        put("BAT0", "status", "Discharging");
        let one = battery(&fake);
        assert_eq!(
            one.known().map(|b| (b.charge.get(), b.discharging)),
            Some((0.8, true))
        );
        put("BAT1", "type", "Battery");
        put("BAT1", "capacity", "40");
        put("BAT1", "status", "Not charging");
        let both = battery(&fake).known().copied().unwrap();
        assert!((both.charge.get() - 0.6).abs() < 1e-9 && both.discharging);
        put("BAT0", "status", "Charging");
        assert!(!battery(&fake).known().unwrap().discharging);
        put("BAT1", "capacity", "101");
        assert!(battery(&fake).reason().unwrap().contains("BAT1/capacity"));
    }

    #[test]
    fn governors_and_preferences_mean_what_their_driver_makes_of_them() {
        use PowerMode::{Balanced, Performance, PowerSave};
        let cases = [
            (["performance", "", "acpi-cpufreq"], Some(Performance)),
            (["schedutil", "", "acpi-cpufreq"], Some(Balanced)),
            (["ondemand", "", "acpi-cpufreq"], Some(Balanced)),
            (["powersave", "", "acpi-cpufreq"], Some(PowerSave)),
            (["powersave", "", "intel_pstate"], Some(Balanced)),
            (
                ["powersave", "performance", "intel_pstate"],
                Some(Performance),
            ),
            (
                ["powersave", "balance_performance", "intel_pstate"],
                Some(Balanced),
            ),
            (["powersave", "power", "amd-pstate-epp"], Some(PowerSave)),
            (["performance", "power", "intel_pstate"], Some(Performance)),
            (["powersave", "137", "intel_pstate"], None),
            (["userspace", "", "acpi-cpufreq"], None),
        ];
        for ([governor, preference, driver], expected) in cases {
            let fake = FakeTree::new();
            let file = |name: &str| format!("{CPUS}/cpu0/cpufreq/{name}");
            fake.write(&file("scaling_governor"), governor);
            fake.write(&file("scaling_driver"), driver);
            if !preference.is_empty() {
                fake.write(&file("energy_performance_preference"), preference);
            }
            let mode = mode(&fake.tree(), 0);
            assert_eq!(
                mode.known().copied(),
                expected,
                "{governor} {preference} {driver}"
            );
        }
    }

    #[test]
    fn a_platform_profile_speaks_where_cpufreq_is_silent() {
        let fake = FakeTree::new();
        let reason = mode(&fake.tree(), 0);
        assert!(
            reason
                .reason()
                .unwrap()
                .contains("scaling_governor: not found")
        );
        for (profile, expected) in [
            ("performance", Some(PowerMode::Performance)),
            ("balanced", Some(PowerMode::Balanced)),
            ("quiet", Some(PowerMode::PowerSave)),
            ("turbo-party", None),
        ] {
            fake.write(PROFILE, profile);
            assert_eq!(mode(&fake.tree(), 0).known().copied(), expected);
        }
    }

    #[test]
    fn the_clock_in_cpuinfo_counts_only_on_bare_metal() {
        let fake = FakeTree::new();
        fake.write(
            "/proc/cpuinfo",
            "processor: 0\ncpu MHz: 1000\n\nprocessor: 1\ncpu MHz: 3000\n",
        );
        let clock = |hypervisor| frequency(&fake.tree(), &[0, 1], &hypervisor);
        let metal = clock(Reading::Known(Hypervisor::None));
        assert_eq!(metal.known().unwrap().get(), 2e9);
        let guest = clock(Reading::Known(Hypervisor::Named("KVM".into())));
        assert!(
            guest
                .reason()
                .unwrap()
                .contains("scaling_cur_freq: not found")
        );
        assert!(clock(Reading::unknown("not told")).known().is_none());
    }

    #[test]
    fn many_processors_are_sampled_evenly() {
        let fake = FakeTree::new();
        let cpus: Vec<u32> = (0..64).collect();
        for cpu in cpus.iter().step_by(4) {
            let clock = if *cpu < 32 { "1000000" } else { "2000000" };
            fake.write(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq"), clock);
        }
        let mean = frequency(&fake.tree(), &cpus, &Reading::unknown("not told"));
        assert_eq!(mean.known().unwrap().get(), 1.5e9);
    }
}
