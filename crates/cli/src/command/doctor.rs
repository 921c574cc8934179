//! `kernelwise doctor`: can this machine be measured on, and what is in the way?
//!
//! Each check ends ok, with a warning, or unknown, and says what to do. The instrument measures itself
//! here as well: one body raced against itself must come out as a tie.

use std::hint::black_box;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use kernelwise_measure::selfcheck::null_comparison;
use kernelwise_measure::{Clock, ClockFacts, Indifference, Sampler, TscClock, Warning};
use kernelwise_probe::pin;
use kernelwise_types::machine::Hypervisor;
use kernelwise_types::{Machine, Reading, SystemState};
use serde::Serialize;

use super::probe::{limit, state_now};
use crate::args::{self, Format};
use crate::environment;
use crate::exit::Failure;
use crate::output;

#[derive(Serialize)]
struct Document {
    seed: u64,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Warning,
    Unknown,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            finding: finding.into(),
            advice: None,
        }
    }

    fn warning(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Warning,
            finding: finding.into(),
            advice: Some(advice.into()),
        }
    }

    /// A warning with its advice in one line; `None` if all is well or unknown.
    fn doubt(&self) -> Option<String> {
        let advice = self.advice.as_ref()?;
        let doubtful = self.status == Status::Warning;
        doubtful.then(|| format!("{}; {advice}", self.finding))
    }

    fn unknown(name: &'static str, reason: &str, advice: &str) -> Self {
        Self {
            name,
            status: Status::Unknown,
            finding: reason.to_owned(),
            advice: Some(advice.to_owned()),
        }
    }
}

/// Examines the machine and this program.
pub(crate) fn run(args: &args::Doctor) -> Result<(), Failure> {
    let clock = TscClock::new();
    let machine = kernelwise_probe::machine();
    // One reader for both looks: the shares of the second then cover the self-check.
    let (mut reader, before) = state_now(&clock);
    let instrument = instrument(&clock, args.seed);
    let after = reader.look(clock.now());

    let mut checks = vec![build(), clock_check(&ClockFacts::of(&clock)), pinning()];
    checks.extend(instrument);
    checks.extend(load(&machine, &before, &after));
    checks.push(hypervisor(&machine));
    checks.push(quota(&machine));
    checks.extend(sensors(&after));
    checks.push(variables(
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
    ));
    match args.format {
        Format::Json => output::json(
            "kernelwise.doctor/1",
            &Document {
                seed: args.seed,
                checks,
            },
        ),
        Format::Table => output::styled(&table(&checks, output::width())),
    }
}

/// What stands in the way of measuring on this machine at any time, in words with advice: for the report.
pub(super) fn standing(machine: &Machine) -> Vec<String> {
    let checks = [build(), pinning(), hypervisor(machine), quota(machine)];
    checks.iter().filter_map(Check::doubt).collect()
}

/// What disturbed a measurement between these two looks, in the same form.
pub(super) fn disturbed(
    machine: &Machine,
    before: &SystemState,
    after: &SystemState,
) -> Vec<String> {
    let checks = load(machine, before, after);
    checks.iter().filter_map(Check::doubt).collect()
}

fn build() -> Check {
    if cfg!(debug_assertions) {
        Check::warning(
            "build",
            "this program was built without optimisation",
            "build it with --release",
        )
    } else {
        Check::ok("build", "optimised")
    }
}

/// A counter of the processor is read in some tens of nanoseconds; a call into the kernel takes more.
const SLOW_CLOCK_NS: f64 = 200.0;

fn clock_check(facts: &ClockFacts) -> Check {
    let finding = format!("reading it costs {:.1} ns", facts.cost_ns);
    if facts.cost_ns > SLOW_CLOCK_NS {
        let advice = "see /sys/devices/system/clocksource/clocksource0/current_clocksource: tsc is fast, hpet and acpi_pm are not";
        Check::warning("clock", finding, advice)
    } else {
        Check::ok("clock", finding)
    }
}

/// Races a sum of 4096 numbers against itself for at most a second, on one processor if possible.
fn instrument(clock: &TscClock, seed: u64) -> Vec<Check> {
    let _pinned = pin::allowed().and_then(|cpus| pin::current_thread_to(cpus[0]));
    let numbers: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let sampler = Sampler::new(clock)
        .budget(Duration::from_secs(1))
        .seed(seed);
    let null = null_comparison(&sampler, Indifference::default(), || {
        Ok::<_, std::convert::Infallible>(black_box(&numbers).iter().sum::<f32>())
    });
    let verdict = if null.is_trustworthy() {
        Check::ok("instrument", null.to_string())
    } else {
        let advice =
            "end other programs or wait, then ask again; until then believe only large differences";
        Check::warning("instrument", null.to_string(), advice)
    };
    let doubt = |doubt: &Warning| Check::warning("instrument", doubt.to_string(), doubt.advice());
    std::iter::once(verdict)
        .chain(null.warnings.iter().map(doubt))
        .collect()
}

fn pinning() -> Check {
    match pin::allowed().and_then(|cpus| pin::current_thread_to(cpus[0])) {
        Ok(pinned) => Check::ok(
            "pinning",
            format!("a thread can be bound to processor {}", pinned.cpu()),
        ),
        Err(error) => Check::warning(
            "pinning",
            error.to_string(),
            "allow sched_setaffinity in the container; unpinned figures spread more",
        ),
    }
}

fn load(machine: &Machine, before: &SystemState, after: &SystemState) -> Vec<Check> {
    let warnings = Warning::from_states(before, after, 1, machine.cpu.logical);
    let unseen = (after.cpu_utilisation.reason(), after.cpu_pressure.reason());
    if let (true, (Some(reason), Some(_))) = (warnings.is_empty(), unseen) {
        let advice = "the load cannot be taken into account: see to it that nothing else runs";
        return vec![Check::unknown("load", reason, advice)];
    }
    if warnings.is_empty() {
        let finding = format!(
            "utilisation {}, waiting for CPU {}",
            after.cpu_utilisation, after.cpu_pressure
        );
        return vec![Check::ok("load", finding)];
    }
    let check = |warning: &Warning| Check::warning("load", warning.to_string(), warning.advice());
    warnings.iter().map(check).collect()
}

fn hypervisor(machine: &Machine) -> Check {
    match &machine.hypervisor {
        Reading::Known(Hypervisor::None) => Check::ok("hypervisor", "none"),
        Reading::Known(Hypervisor::Named(name)) => Check::warning(
            "hypervisor",
            format!(
                "a guest of {name}: neighbours share its processor, and cache sizes are the host's"
            ),
            "compare contenders in one run and believe ratios rather than times",
        ),
        Reading::Unknown(reason) => {
            Check::unknown("hypervisor", reason, "compare contenders in one run")
        }
    }
}

fn quota(machine: &Machine) -> Check {
    match &machine.limits.cpu_quota {
        Reading::Known(Some(quota)) if *quota < f64::from(machine.cpu.logical) => Check::warning(
            "processor quota",
            format!(
                "{quota} of {} processors: the group is stopped when it has used its time",
                machine.cpu.logical
            ),
            "raise the quota while measuring, or keep runs shorter than its period",
        ),
        Reading::Known(_) => Check::ok("processor quota", limit(&machine.limits.cpu_quota)),
        Reading::Unknown(reason) => Check::unknown(
            "processor quota",
            reason,
            "long runs may be stopped by a quota nobody sees",
        ),
    }
}

/// What cannot be seen here, and what that costs. Known values need no words.
fn sensors(state: &SystemState) -> Vec<Check> {
    let unseen: [(&'static str, Option<&str>, &str); 5] = [
        (
            "pressure",
            state.cpu_pressure.reason(),
            "boot the kernel with psi=1: waiting tasks are the best sign of load",
        ),
        (
            "temperature",
            state.temperature.reason(),
            "heat cannot be told from other causes of slowness",
        ),
        (
            "throttling",
            state.throttling.reason(),
            "a processor that slows itself down will look like a slow kernel",
        ),
        (
            "power",
            state.power.reason(),
            "energy per call stays unknown; RAPL may need read permission under /sys/class/powercap",
        ),
        (
            "core clock",
            state.frequency.reason(),
            "a change of frequency shows only as a change of speed",
        ),
    ];
    let check =
        |(name, reason, advice): (_, Option<&str>, _)| Some(Check::unknown(name, reason?, advice));
    unseen.into_iter().filter_map(check).collect()
}

fn variables(names: impl Iterator<Item = String>) -> Check {
    let stray = environment::without_effect(names);
    if stray.is_empty() {
        return Check::ok("environment", "no unread KERNELWISE_ variables");
    }
    let known: Vec<&str> = environment::VARIABLES
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let finding = format!("set but not read by this version: {}", stray.join(", "));
    Check::warning(
        "environment",
        finding,
        format!("unset them; read are: {}", known.join(", ")),
    )
}

fn table(checks: &[Check], room: Option<usize>) -> String {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let (word, style) = match check.status {
            Status::Ok => ("ok", colour(AnsiColor::Green)),
            Status::Warning => ("warning", colour(AnsiColor::Yellow)),
            Status::Unknown => ("unknown", colour(AnsiColor::Cyan)),
        };
        // Findings and advice keep to their column; where that leaves too little, the terminal breaks them as it likes.
        let indent = 7 + 2 + width + 2;
        let room = room.map_or(usize::MAX, |room| room.saturating_sub(indent).max(20));
        let hang = |text: &str, further: usize| {
            let gap = format!("\n{}", " ".repeat(indent + further));
            output::broken(text, room.saturating_sub(further)).join(&gap)
        };
        text += &format!(
            "{style}{word:7}{style:#}  {:width$}  {}\n",
            check.name,
            hang(&check.finding, 0)
        );
        if let Some(advice) = &check.advice {
            text += &format!("{:7}  {:width$}  -> {}\n", "", "", hang(advice, 3));
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    text += &format!(
        "ok: {}, warnings: {}, unknown: {}\n",
        count(Status::Ok),
        count(Status::Warning),
        count(Status::Unknown)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_clock_is_a_warning_with_advice() {
        let clock = kernelwise_measure::ScriptedClock::with_cost(500);
        let check = clock_check(&ClockFacts::of(&clock));
        assert_eq!(check.status, Status::Warning);
        let clock = kernelwise_measure::ScriptedClock::with_cost(20);
        assert_eq!(clock_check(&ClockFacts::of(&clock)).status, Status::Ok);
    }

    #[test]
    fn a_quota_below_the_processors_is_a_warning() {
        let mut machine = kernelwise_probe::machine();
        machine.cpu.logical = 4;
        let mut status = |quota| {
            machine.limits.cpu_quota = quota;
            super::quota(&machine).status
        };
        assert_eq!(status(Reading::Known(Some(0.5))), Status::Warning);
        assert_eq!(status(Reading::Known(Some(4.0))), Status::Ok);
        assert_eq!(status(Reading::Known(None)), Status::Ok);
        assert_eq!(status(Reading::unknown("no cgroup")), Status::Unknown);
    }

    #[test]
    fn a_load_that_cannot_be_seen_is_not_fine() {
        let clock = kernelwise_measure::ScriptedClock::new();
        let nowhere = kernelwise_probe::Tree::at("/nonexistent");
        let blind = kernelwise_probe::StateReader::new(nowhere).look(clock.now());
        let checks = load(&kernelwise_probe::machine(), &blind, &blind);
        assert_eq!(checks[0].status, Status::Unknown, "{checks:?}");
    }

    #[test]
    fn findings_keep_to_their_column() {
        let checks = [Check::warning(
            "clock",
            "the clock changes while we measure",
            "fix it, or use another machine",
        )];
        let plain = anstream::adapter::strip_str(&table(&checks, Some(40))).to_string();
        let expected = "warning  clock  the clock changes while\n                we measure\n                \
            -> fix it, or use\n                   another machine\nok: 0, warnings: 1, unknown: 0\n";
        assert_eq!(plain, expected);
        assert_eq!(table(&checks, None).lines().count(), 3);
    }

    #[test]
    fn a_guest_is_warned_of_its_neighbours() {
        let mut machine = kernelwise_probe::machine();
        let mut warned = |hypervisor| {
            machine.hypervisor = hypervisor;
            standing(&machine).join("\n").contains("neighbours share")
        };
        assert!(warned(Reading::Known(Hypervisor::Named("KVM".to_owned()))));
        assert!(!warned(Reading::Known(Hypervisor::None)));
        assert!(!warned(Reading::unknown("nobody tells")));
    }

    #[test]
    fn unread_variables_are_named() {
        let check = variables(["KERNELWISE_LOGS".to_owned()].into_iter());
        assert_eq!(check.status, Status::Warning);
        assert!(
            check.finding.ends_with("KERNELWISE_LOGS"),
            "{}",
            check.finding
        );
        assert_eq!(
            variables(["HOME".to_owned()].into_iter()).status,
            Status::Ok
        );
    }
}
