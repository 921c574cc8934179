//! Temperature of the processor, and whether it slowed itself down because of it.

use std::collections::BTreeSet;

use kernelwise_types::Reading;
use kernelwise_types::units::Celsius;

use crate::cpu::topology::CPUS;
use crate::tree::{ReadError, Tree};

const MONITORS: &str = "/sys/class/hwmon";
const ZONES: &str = "/sys/class/thermal";

/// Sensor chips that sit in processors: Intel's, AMD's, and AMD's by another driver.
const CHIPS: [&str; 3] = ["coretemp", "k10temp", "zenpower"];

/// Files that hold a temperature of the processor, found once.
#[derive(Debug)]
pub(super) struct Thermometers {
    files: Vec<String>,
}

impl Thermometers {
    /// Sensors in the processor first; thermal zones named after it where there are none.
    pub(super) fn find(tree: &Tree) -> Self {
        let mut files: Vec<String> = children(tree, MONITORS)
            .filter(|folder| {
                let name = tree.text(&format!("{folder}/name"));
                name.is_ok_and(|name| CHIPS.contains(&name.as_str()))
            })
            .flat_map(|folder| inputs(tree, &folder))
            .collect();
        if files.is_empty() {
            files = children(tree, ZONES)
                .filter(|folder| {
                    tree.text(&format!("{folder}/type")).is_ok_and(|kind| {
                        kind == "x86_pkg_temp" || kind.to_ascii_lowercase().starts_with("cpu")
                    })
                })
                .map(|folder| format!("{folder}/temp"))
                .collect();
        }
        Self { files }
    }

    /// The hottest sensor. One that fails is passed over as long as another answers.
    pub(super) fn hottest(&self, tree: &Tree) -> Reading<Celsius> {
        let readings: Vec<_> = self.files.iter().map(|file| degrees(tree, file)).collect();
        let hottest = readings
            .iter()
            .filter_map(|reading| reading.as_ref().ok())
            .max_by(|a, b| a.get().total_cmp(&b.get()));
        match (hottest, readings.first()) {
            (Some(hottest), _) => Reading::Known(*hottest),
            (None, Some(Err(error))) => Reading::unknown(error.to_string()),
            (None, _) => {
                Reading::unknown("no processor sensor under /sys/class/hwmon or /sys/class/thermal")
            }
        }
    }
}

/// Folders under `parent`.
fn children(tree: &Tree, parent: &str) -> impl Iterator<Item = String> {
    let names = tree.names(parent).unwrap_or_default();
    names
        .into_iter()
        .map(move |name| format!("{parent}/{name}"))
}

/// The inputs of one chip. AMD's `Tctl` steers the fans and lies above the true value on some
/// models; where `Tdie` is given as well, that is the true one.
fn inputs(tree: &Tree, folder: &str) -> Vec<String> {
    let inputs: Vec<(String, String)> = tree
        .names(folder)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| {
            let sensor = name.strip_prefix("temp")?.strip_suffix("_input")?;
            let label = tree.text(&format!("{folder}/temp{sensor}_label"));
            Some((format!("{folder}/{name}"), label.unwrap_or_default()))
        })
        .collect();
    let true_value = inputs.iter().any(|(_, label)| label == "Tdie");
    inputs
        .into_iter()
        .filter(|(_, label)| !(true_value && label == "Tctl"))
        .map(|(file, _)| file)
        .collect()
}

/// The kernel counts in thousandths of a degree.
fn degrees(tree: &Tree, file: &str) -> Result<Celsius, ReadError> {
    let thousandths: i64 = tree.number(file)?;
    let degrees = thousandths as f64 / 1000.0;
    // No processor lives above this; some sensors answer with nonsense while asleep.
    Celsius::new(degrees)
        .ok()
        .filter(|celsius| celsius.get() < 200.0)
        .ok_or_else(|| {
            ReadError::unexpected(
                file,
                "a temperature in thousandths",
                &thousandths.to_string(),
            )
        })
}

/// Counters of thermal throttling: one per core and one per socket, found once.
#[derive(Debug)]
pub(super) struct ThrottleCounters {
    files: Vec<String>,
}

impl ThrottleCounters {
    pub(super) fn find(tree: &Tree, cpus: &[u32]) -> Self {
        let mut files = Vec::new();
        let mut packages = BTreeSet::new();
        for cpu in cpus {
            let folder = format!("{CPUS}/cpu{cpu}");
            files.push(format!("{folder}/thermal_throttle/core_throttle_count"));
            let package = tree.text(&format!("{folder}/topology/physical_package_id"));
            if packages.insert(package.unwrap_or_default()) {
                files.push(format!("{folder}/thermal_throttle/package_throttle_count"));
            }
        }
        files.retain(|file| tree.exists(file));
        Self { files }
    }

    /// The counters in a fixed order.
    pub(super) fn read(&self, tree: &Tree) -> Result<Vec<u64>, ReadError> {
        if self.files.is_empty() {
            let path = format!("{CPUS}/cpu*/thermal_throttle");
            return Err(ReadError::lacks(&path, "throttle counter"));
        }
        self.files.iter().map(|file| tree.number(file)).collect()
    }
}

/// Whether any counter moved.
pub(super) fn throttled(before: &[u64], now: &[u64]) -> bool {
    before.iter().zip(now).any(|(before, now)| now > before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn hottest(fake: &FakeTree) -> Reading<Celsius> {
        Thermometers::find(&fake.tree()).hottest(&fake.tree())
    }

    fn celsius(degrees: f64) -> Reading<Celsius> {
        Celsius::new(degrees).into()
    }

    #[test]
    fn the_hottest_core_counts_and_disks_do_not() {
        let fake = FakeTree::new();
        fake.write("/sys/class/hwmon/hwmon0/name", "nvme\n");
        fake.write("/sys/class/hwmon/hwmon0/temp1_input", "90000\n");
        assert!(
            hottest(&fake)
                .reason()
                .unwrap()
                .starts_with("no processor sensor")
        );
        fake.write("/sys/class/hwmon/hwmon1/name", "coretemp\n");
        fake.write("/sys/class/hwmon/hwmon1/temp1_input", "51000\n");
        fake.write("/sys/class/hwmon/hwmon1/temp2_input", "63500\n");
        fake.write("/sys/class/hwmon/hwmon1/temp2_max", "100000\n");
        assert_eq!(hottest(&fake), celsius(63.5));
        fake.write("/sys/class/hwmon/hwmon1/temp2_input", "999999999\n");
        assert_eq!(hottest(&fake), celsius(51.0), "nonsense is passed over");
        fake.write("/sys/class/hwmon/hwmon1/temp1_input", "warm\n");
        assert!(
            hottest(&fake)
                .reason()
                .unwrap()
                .contains("hwmon1/temp1_input")
        );
    }

    #[test]
    fn the_true_die_temperature_is_preferred_to_the_control_value() {
        let fake = FakeTree::new();
        let file = |name: &str| format!("/sys/class/hwmon/hwmon2/{name}");
        fake.write(&file("name"), "k10temp");
        fake.write(&file("temp1_input"), "82000");
        fake.write(&file("temp1_label"), "Tctl");
        assert_eq!(hottest(&fake), celsius(82.0));
        fake.write(&file("temp2_input"), "55000");
        fake.write(&file("temp2_label"), "Tdie");
        assert_eq!(hottest(&fake), celsius(55.0));
    }

    #[test]
    fn thermal_zones_stand_in() {
        let fake = FakeTree::new();
        fake.write("/sys/class/thermal/thermal_zone0/type", "acpitz");
        fake.write("/sys/class/thermal/thermal_zone0/temp", "99000");
        fake.write("/sys/class/thermal/thermal_zone1/type", "cpu-thermal");
        fake.write("/sys/class/thermal/thermal_zone1/temp", "-5000");
        fake.write("/sys/class/thermal/cooling_device0/type", "Processor");
        assert_eq!(hottest(&fake), celsius(-5.0));
    }

    #[test]
    fn a_moved_counter_is_throttling() {
        let fake = FakeTree::new();
        let counters = ThrottleCounters::find(&fake.tree(), &[0, 1]);
        let reason = counters.read(&fake.tree()).unwrap_err().to_string();
        assert!(reason.contains("thermal_throttle"), "{reason}");
        for cpu in 0..2 {
            let file = |name: &str| format!("{CPUS}/cpu{cpu}/{name}");
            fake.write(&file("topology/physical_package_id"), "0");
            fake.write(&file("thermal_throttle/core_throttle_count"), "3");
            fake.write(&file("thermal_throttle/package_throttle_count"), "7");
        }
        let counters = ThrottleCounters::find(&fake.tree(), &[0, 1]);
        let before = counters.read(&fake.tree()).unwrap();
        assert_eq!(before, [3, 7, 3], "one counter per core, one per socket");
        assert!(!throttled(&before, &before));
        fake.write(
            &format!("{CPUS}/cpu1/thermal_throttle/core_throttle_count"),
            "4",
        );
        assert!(throttled(&before, &counters.read(&fake.tree()).unwrap()));
    }
}
