//! What the state of the machine changes.

use kernelwise_types::state::{Battery, PowerMode};
use kernelwise_types::units::{Celsius, Hertz};
use kernelwise_types::{Reading, SystemState};
use proptest::prelude::{prop_assert, proptest};

use super::*;

fn share(part: f64) -> Share {
    Share::new(part).unwrap()
}

fn battery(discharging: bool) -> Reading<Battery> {
    Reading::Known(Battery {
        charge: share(0.5),
        discharging,
    })
}

fn state(change: impl Fn(&mut SystemState)) -> SystemState {
    let mut state = quiet();
    change(&mut state);
    state
}

/// Throttling, battery and power mode each make up for time with fewer units at work, by as much as they say.
#[test]
fn saving_power_gives_time_for_fewer_units() {
    let strategy = Landscape::of(&[1000.0, 1080.0, 1200.0, 1400.0, 1600.0])
        .with(|x, point| point.units = 5 - x as u32)
        .strategy();
    let ask = |state: SystemState| {
        let said = strategy.tune_for_workload(&workload(64), &state, &Constraints::default());
        let said = said.unwrap();
        (x(&said.best.choice), said.reasoning.join("\n"))
    };
    assert_eq!(ask(quiet()).0, 0);
    let hot = ask(state(|s| s.throttling = Reading::Known(true)));
    assert!(hot.0 == 1 && hot.1.contains("throttles itself"), "{hot:?}");
    let away = ask(state(|s| s.battery = battery(true)));
    assert!(away.0 == 2 && away.1.contains("battery"), "{away:?}");
    let saving = ask(state(|s| {
        s.power_mode = Reading::Known(PowerMode::PowerSave)
    }));
    assert!(
        saving.0 == 3 && saving.1.contains("saves power"),
        "{saving:?}"
    );
    // That the processor throttles itself is nothing to a device beside it.
    let device = Landscape::of(&[1000.0, 1080.0]);
    let device = device.with(|x, point| point.units = 2 - x as u32);
    let device = device.named(Backend::Cuda, "gpu").strategy();
    let hot = state(|s| s.throttling = Reading::Known(true));
    let said = device.tune_for_workload(&workload(64), &hot, &Constraints::default());
    assert_eq!(x(&said.unwrap().best.choice), 0);
    // Plugged in, cool and told to be fast: nothing is given away.
    let easy = state(|s| {
        s.throttling = Reading::Known(false);
        s.battery = battery(false);
        s.power_mode = Reading::Known(PowerMode::Performance);
    });
    assert_eq!(ask(easy).0, 0);
}

#[test]
fn memory_that_is_not_there_is_not_recommended_on_the_host() {
    let full = |bytes: u64| state(|s| s.memory_available = Reading::Known(Bytes(bytes)));
    let points =
        Landscape::of(&[1000.0, 2000.0]).with(|x, point| point.memory = [1 << 20, 1 << 10][x]);
    let ask = |strategy: &dyn TuningStrategy, bytes| {
        let said = strategy.tune_for_workload(&workload(64), &full(bytes), &Constraints::default());
        said.map(|said| x(&said.best.choice))
    };
    let host = points.clone().strategy();
    assert_eq!(ask(&host, 2 << 20), Ok(0));
    assert_eq!(ask(&host, 1 << 19), Ok(1));
    let Err(TuneError::Infeasible(error)) = ask(&host, 1 << 9) else {
        panic!("half a KiB is too little")
    };
    assert_eq!(error.limit, Limit::Memory);
    // A device has memory of its own.
    let device = points.named(Backend::Cuda, "gpu").strategy();
    assert_eq!(ask(&device, 1 << 9), Ok(0));
}

#[test]
fn processors_in_use_are_the_busy_shares_or_the_queue() {
    let busy = |shares: &[f64], queue: Option<u32>| {
        let state = state(|s| {
            s.per_cpu_utilisation = Reading::Known(shares.iter().map(|p| share(*p)).collect());
            if let Some(tasks) = queue {
                s.run_queue = Reading::Known(tasks);
            }
        });
        Situation::of(&state).busy_processors
    };
    assert_eq!(busy(&[0.0, 0.0], None), 0);
    assert_eq!(busy(&[1.0, 0.1], None), 1);
    assert_eq!(busy(&[0.9, 0.8, 0.1, 0.0], None), 2);
    assert_eq!(busy(&[0.0; 4], Some(1)), 0, "the one task is this one");
    assert_eq!(busy(&[0.0; 4], Some(4)), 3);
    assert_eq!(Situation::of(&quiet()), Situation::default());
}

#[test]
fn what_is_not_read_changes_nothing() {
    let other = state(|s| {
        s.cpu_utilisation = Reading::Known(share(0.9));
        s.steal = Reading::Known(share(0.5));
        s.load_1min = Reading::Known(17.0);
        s.cpu_pressure = Reading::Known(share(0.7));
        s.memory_pressure = Reading::Known(share(0.7));
        s.io_pressure = Reading::Known(share(0.7));
        s.power = Reading::Known(Watts::new(90.0).unwrap());
        s.frequency = Reading::Known(Hertz::new(1e9).unwrap());
    });
    assert_eq!(Situation::of(&other), Situation::of(&quiet()));
}

proptest! {
    /// Rounding gives away a ninth at most, and never promises more than there is.
    #[test]
    fn rounding_is_on_the_safe_side(bytes: u64, degrees in -50.0..150.0f64) {
        let state = state(|s| {
            s.memory_available = Reading::Known(Bytes(bytes));
            s.temperature = Reading::Known(Celsius::new(degrees).unwrap());
        });
        let situation = Situation::of(&state);
        let memory = situation.memory.unwrap().0;
        prop_assert!(memory <= bytes && memory as f64 >= bytes as f64 * 8.0 / 9.0);
        let rounded = f64::from(situation.temperature_c.unwrap());
        prop_assert!((degrees..degrees + 1.0).contains(&rounded));
    }
}
