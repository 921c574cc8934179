//! Each warning once beyond its threshold and once within.

use kernelwise_types::state::Battery;

use super::*;
use crate::sampler::Ending;

/// A machine that is fine in every respect.
fn calm() -> SystemState {
    let share = |value| Reading::Known(Share::new(value).unwrap());
    SystemState {
        cpu_utilisation: share(0.5),
        per_cpu_utilisation: Reading::unknown("not asked"),
        steal: share(0.0),
        run_queue: Reading::Known(1),
        load_1min: Reading::Known(0.4),
        cpu_pressure: share(0.01),
        memory_pressure: share(0.0),
        io_pressure: share(0.0),
        memory_available: Reading::unknown("not asked"),
        temperature: Reading::unknown("no sensor"),
        throttling: Reading::Known(false),
        power: Reading::unknown("no sensor"),
        battery: Reading::unknown("no battery"),
        power_mode: Reading::Known(PowerMode::Performance),
        frequency: Reading::Known(Hertz::new(3e9).unwrap()),
    }
}

/// What a change of the state after, of a one-thread measurement on two processors, gives.
fn after(change: impl FnOnce(&mut SystemState)) -> Vec<String> {
    let mut state = calm();
    change(&mut state);
    words(&Warning::from_states(&calm(), &state, 1, 2))
}

fn words(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(Warning::to_string).collect()
}

fn share(value: f64) -> Reading<Share> {
    Reading::Known(Share::new(value).unwrap())
}

#[test]
fn a_calm_machine_gives_no_warning() {
    assert!(after(|_| {}).is_empty());
}

#[test]
fn load_counts_against_the_processors_left_over() {
    let loaded = |load| SystemState {
        load_1min: Reading::Known(load),
        ..calm()
    };
    let warnings = |load, threads| Warning::from_states(&loaded(load), &calm(), threads, 2);
    assert!(warnings(1.0, 1).is_empty());
    assert_eq!(
        words(&warnings(1.3, 1)),
        ["a load of 1.3 and 1 measured threads share 2 processors"]
    );
    assert_eq!(warnings(0.4, 2).len(), 1);
}

#[test]
fn steal_and_pressure_warn_beyond_their_thresholds() {
    assert!(after(|s| s.steal = share(0.02)).is_empty());
    assert_eq!(
        after(|s| s.steal = share(0.03)),
        ["the hypervisor gave 3.0 % of the time to others"]
    );
    assert!(after(|s| s.cpu_pressure = share(0.10)).is_empty());
    assert_eq!(
        after(|s| s.cpu_pressure = share(0.25)),
        ["tasks waited for a processor in 25.0 % of the time"]
    );
    assert_eq!(
        after(|s| s.memory_pressure = share(0.25)),
        ["tasks waited for memory in 25.0 % of the time"]
    );
    assert_eq!(
        after(|s| s.io_pressure = share(0.25)),
        ["tasks waited for input or output in 25.0 % of the time"]
    );
    // Pressure that has just ended still spoils what was measured.
    let pressed = SystemState {
        cpu_pressure: share(0.9),
        ..calm()
    };
    assert_eq!(Warning::from_states(&pressed, &calm(), 1, 2).len(), 1);
}

#[test]
fn the_clock_of_the_cores_and_their_power_warn() {
    let clock = |hz| Reading::Known(Hertz::new(hz).unwrap());
    assert!(after(|s| s.frequency = clock(2.9e9)).is_empty());
    assert_eq!(
        after(|s| s.frequency = clock(2.5e9)),
        ["the core clock went from 3.00 GHz to 2.50 GHz"]
    );
    assert_eq!(
        after(|s| s.throttling = Reading::Known(true)),
        ["the processor throttled itself"]
    );
    assert!(after(|s| s.power_mode = Reading::Known(PowerMode::Balanced)).is_empty());
    assert_eq!(
        after(|s| s.power_mode = Reading::Known(PowerMode::PowerSave)),
        ["the machine is set to save power"]
    );
    let battery = |discharging| {
        let charge = Share::new(0.5).unwrap();
        Reading::Known(Battery {
            charge,
            discharging,
        })
    };
    assert!(after(|s| s.battery = battery(false)).is_empty());
    assert_eq!(
        after(|s| s.battery = battery(true)),
        ["the machine runs from its battery"]
    );
}

#[test]
fn what_is_unknown_gives_no_warning() {
    let silent = SystemState {
        load_1min: Reading::unknown("-"),
        steal: Reading::unknown("-"),
        cpu_pressure: Reading::unknown("-"),
        frequency: Reading::unknown("-"),
        throttling: Reading::unknown("-"),
        power_mode: Reading::unknown("-"),
        ..calm()
    };
    assert!(Warning::from_states(&silent, &silent, 8, 1).is_empty());
}

fn of_samples(samples: &[f64], batch: u64) -> Vec<Warning> {
    let entry = Entry {
        name: "a".to_owned(),
        ending: Ending::Measured,
        batch,
        samples_ns: samples.to_vec(),
        summary_ns: Summary::of(samples),
    };
    let clock = ClockFacts {
        clock: "tsc",
        cost_ns: 10.0,
        resolution_ns: Some(1),
    };
    Warning::from_entry(&entry, &clock)
}

#[test]
fn samples_warn_about_themselves() {
    let quiet = [1000.0; 20];
    assert!(of_samples(&quiet, 20).is_empty());
    assert_eq!(
        words(&of_samples(&quiet[..9], 20)),
        ["9 samples are few: 10 or more are wanted"]
    );
    assert!(of_samples(&quiet, 1).is_empty(), "1 % is allowed");
    assert_eq!(
        words(&of_samples(&[900.0; 20], 1)),
        ["samples of 900 ns are short for a clock that errs by 10.0 ns"]
    );
    assert_eq!(
        words(&of_samples(&[], 1)),
        ["0 samples are few: 10 or more are wanted"]
    );
}

#[test]
fn outliers_warn_when_they_are_not_rare() {
    let mut samples = [1000.0; 20];
    samples[3] = 10_000.0;
    assert!(
        of_samples(&samples, 20).is_empty(),
        "one in twenty is everyday"
    );
    samples[4] = 1090.0;
    assert!(of_samples(&samples, 20).is_empty(), "9 % off is no outlier");
    samples[4] = 1200.0;
    assert_eq!(
        words(&of_samples(&samples, 20)),
        ["2 of 20 samples are outliers, the worst 10.0 times the median"]
    );
}

#[test]
fn two_speeds_show_as_spread() {
    let two = |slow| [[1000.0; 10], [slow; 10]].concat();
    assert!(of_samples(&two(1150.0), 20).is_empty());
    assert_eq!(
        words(&of_samples(&two(1450.0), 20)),
        ["the middle half of the samples spreads over 37 % of the median"]
    );
}

#[test]
fn json_carries_kind_and_evidence() {
    let warning = Warning::Steal {
        share: Share::new(0.03).unwrap(),
    };
    assert_eq!(
        serde_json::to_string(&warning).unwrap(),
        r#"{"kind":"steal","share":0.03}"#
    );
    assert!(warning.advice().contains("neighbours"));
}
