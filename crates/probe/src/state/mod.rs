//! How busy, hot and hungry the machine is now.
//!
//! Most of it is differences of counters, so a [`StateReader`] remembers the look before. What can be
//! found once (sensors, counters, batteries) is found when the reader is made; a look then only
//! reads known files. A look costs tens of microseconds to a few milliseconds, depending on
//! processors and sensors: the [`Sampler`](crate::Sampler) does it in the background.

use kernelwise_types::machine::Hypervisor;
use kernelwise_types::units::{Bytes, Share};
use kernelwise_types::{Reading, SystemState};

use crate::cpu::Identity;
use crate::cpu::topology::Processors;
use crate::hypervisor;
use crate::tree::{ReadError, Tree};
use power::{Batteries, EnergyCounters};
pub(crate) use stat::Stat;
use thermal::{Thermometers, ThrottleCounters};

mod power;
mod pressure;
mod stat;
mod thermal;

/// Looks at the machine time and again.
///
/// ```
/// use kernelwise_measure::{Clock, TscClock};
/// use kernelwise_probe::{StateReader, Tree};
///
/// let clock = TscClock::new();
/// let mut reader = StateReader::new(Tree::system());
/// let first = reader.look(clock.now());
/// // Shares cover the time between two looks, so the first has none.
/// assert!(first.cpu_utilisation.known().is_none());
/// let second = reader.look(clock.now());
/// match second.memory_available.known() {
///     Some(bytes) => println!("{bytes} available"),
///     None => println!("{:?}", second.memory_available.reason()),
/// }
/// ```
#[derive(Debug)]
pub struct StateReader {
    tree: Tree,
    cpus: Vec<u32>,
    hypervisor: Reading<Hypervisor>,
    thermometers: Thermometers,
    throttle: ThrottleCounters,
    energy: EnergyCounters,
    batteries: Batteries,
    before: Option<Counters>,
}

/// Everything that only means something as a difference.
#[derive(Debug)]
struct Counters {
    at_ns: u64,
    stat: Result<Stat, ReadError>,
    cpu_stall_us: Result<u64, ReadError>,
    memory_stall_us: Result<u64, ReadError>,
    io_stall_us: Result<u64, ReadError>,
    throttle: Result<Vec<u64>, ReadError>,
    energy_uj: Result<Vec<u64>, ReadError>,
}

impl StateReader {
    /// Finds what this machine offers. Takes a few milliseconds.
    pub fn new(tree: Tree) -> Self {
        let said = Identity::of_this_processor().hypervisor;
        let hypervisor = hypervisor::read(&tree, &said);
        Self::under(tree, hypervisor)
    }

    fn under(tree: Tree, hypervisor: Reading<Hypervisor>) -> Self {
        let cpus = Processors::read(&tree).usable();
        Self {
            thermometers: Thermometers::find(&tree),
            throttle: ThrottleCounters::find(&tree, &cpus),
            energy: EnergyCounters::find(&tree),
            batteries: Batteries::find(&tree),
            before: None,
            tree,
            cpus,
            hypervisor,
        }
    }

    /// Looks now, which is `now_ns` on a clock that only has to run forward.
    pub fn look(&mut self, now_ns: u64) -> SystemState {
        let now = self.count(now_ns);
        let state = self.state(self.before.as_ref(), &now);
        self.before = Some(now);
        state
    }

    fn count(&self, at_ns: u64) -> Counters {
        let tree = &self.tree;
        Counters {
            at_ns,
            stat: Stat::read(tree),
            cpu_stall_us: pressure::stalled_us(tree, "cpu"),
            memory_stall_us: pressure::stalled_us(tree, "memory"),
            io_stall_us: pressure::stalled_us(tree, "io"),
            throttle: self.throttle.read(tree),
            energy_uj: self.energy.read(tree),
        }
    }

    fn state(&self, before: Option<&Counters>, now: &Counters) -> SystemState {
        let tree = &self.tree;
        let elapsed_ns = before.map_or(0, |before| now.at_ns.saturating_sub(before.at_ns));
        let stat = before.map(|before| &before.stat);
        let waited = |before, now| {
            since(before, now, |before: &u64, now: &u64| -> Reading<Share> {
                pressure::share(*before, *now, elapsed_ns)
            })
        };
        SystemState {
            cpu_utilisation: since(stat, &now.stat, Stat::utilisation),
            per_cpu_utilisation: since(stat, &now.stat, Stat::per_cpu),
            steal: since(stat, &now.stat, Stat::steal),
            run_queue: match &now.stat {
                Ok(stat) => stat.running(),
                Err(error) => Reading::unknown(error.to_string()),
            },
            load_1min: load_1min(tree).into(),
            cpu_pressure: waited(before.map(|b| &b.cpu_stall_us), &now.cpu_stall_us),
            memory_pressure: waited(before.map(|b| &b.memory_stall_us), &now.memory_stall_us),
            io_pressure: waited(before.map(|b| &b.io_stall_us), &now.io_stall_us),
            memory_available: tree
                .kilobytes("/proc/meminfo", "MemAvailable")
                .map(Bytes)
                .into(),
            temperature: self.thermometers.hottest(tree),
            throttling: since(before.map(|b| &b.throttle), &now.throttle, |before, now| {
                Reading::Known(thermal::throttled(before, now))
            }),
            power: since(
                before.map(|b| &b.energy_uj),
                &now.energy_uj,
                |before, now| self.energy.power(before, now, elapsed_ns),
            ),
            battery: self.batteries.read(tree),
            power_mode: match self.cpus.first() {
                Some(cpu) => power::mode(tree, *cpu),
                None => power::mode(tree, 0),
            },
            frequency: power::frequency(tree, &self.cpus, &self.hypervisor),
        }
    }
}

/// What two readings of a counter tell, if both were had.
fn since<T, U>(
    before: Option<&Result<T, ReadError>>,
    now: &Result<T, ReadError>,
    difference: impl FnOnce(&T, &T) -> Reading<U>,
) -> Reading<U> {
    match (before, now) {
        (_, Err(error)) => Reading::unknown(error.to_string()),
        (None, Ok(_)) => Reading::unknown("first look: a share needs two"),
        (Some(Err(error)), Ok(_)) => Reading::unknown(format!("at the look before, {error}")),
        (Some(Ok(before)), Ok(now)) => difference(before, now),
    }
}

fn load_1min(tree: &Tree) -> Result<f64, ReadError> {
    const PATH: &str = "/proc/loadavg";
    let text = tree.text(PATH)?;
    text.split_whitespace()
        .next()
        .and_then(|first| first.parse::<f64>().ok())
        .filter(|load| load.is_finite() && *load >= 0.0)
        .ok_or_else(|| ReadError::unexpected(PATH, "a load average", &text))
}

#[cfg(test)]
mod tests;
