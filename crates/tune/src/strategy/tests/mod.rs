//! Strategies on made-up devices whose true times are known.

mod choosing;
mod learning;
mod limits;
mod placing;
mod processor;
mod trying;

use std::collections::HashMap;
use std::sync::OnceLock;

use kernelwise_types::units::{Bytes, Nanos, Share, Watts};
use kernelwise_types::{Backend, Numerics, Params, Reading, SystemState, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// A machine that tells nothing.
pub(super) fn quiet() -> SystemState {
    fn no<T>() -> Reading<T> {
        Reading::unknown("test")
    }
    SystemState {
        cpu_utilisation: no(),
        per_cpu_utilisation: no(),
        steal: no(),
        run_queue: no(),
        load_1min: no(),
        cpu_pressure: no(),
        memory_pressure: no(),
        io_pressure: no(),
        memory_available: no(),
        temperature: no(),
        throttling: no(),
        power: no(),
        battery: no(),
        power_mode: no(),
        frequency: no(),
    }
}

pub(super) fn ns(time: f64) -> Nanos {
    Nanos::new(time).unwrap()
}

pub(super) fn workload(n: u64) -> Workload {
    format!("matmul f32 {n}x{n}x{n}").parse().unwrap()
}

/// One setting of a made-up device.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) params: Params,
    /// What it is said to take on a workload of 64x64x64; others in proportion to their arithmetic.
    pub(super) time_ns: f64,
    pub(super) compile_ns: f64,
    pub(super) memory: u64,
    pub(super) power: Option<f64>,
    pub(super) units: u32,
    pub(super) numerics: Numerics,
}

/// A made-up device.
#[derive(Debug, Clone)]
pub(super) struct Landscape {
    pub(super) backend: Backend,
    pub(super) device: String,
    pub(super) spread: f64,
    pub(super) floor: Option<f64>,
    pub(super) bound: Bound,
    pub(super) points: Vec<Point>,
    places: OnceLock<HashMap<Params, usize>>,
}

impl Landscape {
    /// Settings `x=0`, `x=1`, … with these prices.
    pub(super) fn of(times: &[f64]) -> Self {
        let point = |(x, time_ns): (usize, &f64)| Point {
            params: Params::new().with("x", x as u64).unwrap(),
            time_ns: *time_ns,
            compile_ns: 0.0,
            memory: 1000,
            power: None,
            units: 1,
            numerics: Numerics::Reordered,
        };
        Self {
            backend: Backend::Cpu,
            device: "made up".to_owned(),
            spread: 0.5,
            floor: None,
            bound: Bound::Compute,
            points: times.iter().enumerate().map(point).collect(),
            places: OnceLock::new(),
        }
    }

    pub(super) fn named(mut self, backend: Backend, device: &str) -> Self {
        (self.backend, self.device) = (backend, device.to_owned());
        self
    }

    pub(super) fn with(mut self, change: impl Fn(usize, &mut Point)) -> Self {
        let points = self.points.iter_mut().enumerate();
        points.for_each(|(x, point)| change(x, point));
        self
    }

    pub(super) fn strategy(self) -> Strategy<Self> {
        Strategy::new(self)
    }
}

impl Priced for Landscape {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn settings(
        &self,
        workload: &Workload,
        _situation: &Situation,
        allowed: Numerics,
    ) -> Result<Vec<Choice>, Infeasible> {
        let points = self.points.iter().filter(|p| p.numerics <= allowed);
        let choices: Vec<Choice> = points.map(|p| Choice::of(p.params.clone())).collect();
        if choices.is_empty() {
            let why = format!("nothing so exact for {workload}");
            return Err(Infeasible::new(Limit::Numerics, why));
        }
        Ok(choices)
    }

    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, Infeasible> {
        let places = self.places.get_or_init(|| {
            let points = self.points.iter().enumerate();
            points.map(|(place, p)| (p.params.clone(), place)).collect()
        });
        let place = places.get(&choice.params);
        let place = place.ok_or_else(|| Infeasible::new(Limit::Parameters, choice.to_string()))?;
        let point = &self.points[*place];
        let flops = workload.cost().unwrap().flops.0 as f64;
        Ok(Price {
            time_ns: ns(point.time_ns * flops / (2.0 * 64.0 * 64.0 * 64.0)),
            floor_ns: self.floor.map(ns),
            spread_ln: self.spread,
            compile_ns: ns(point.compile_ns),
            memory: Bytes(point.memory),
            power: point.power.map(|power| Watts::new(power).unwrap()),
            bound: self.bound,
            occupancy: Some(Share::new(0.5).unwrap()),
            units: point.units,
            usual: None,
            origin: Origin::Prior("a made-up formula".to_owned()),
            words: Vec::new(),
        })
    }
}

pub(super) fn x(choice: &Choice) -> u64 {
    choice.params.get("x").unwrap()
}

pub(super) fn at(x: u64) -> Choice {
    Choice::of(Params::new().with("x", x).unwrap())
}

/// It ran, as the strategy's own device would say.
pub(super) fn ran(
    strategy: &dyn TuningStrategy,
    on: &Workload,
    choice: Choice,
    time: f64,
) -> Feedback {
    Feedback {
        workload: on.clone(),
        choice,
        backend: strategy.backend(),
        device: strategy.device().to_owned(),
        outcome: Outcome::Ran {
            time_ns: ns(time),
            power: None,
        },
    }
}

pub(super) fn best(strategy: &dyn TuningStrategy, on: &Workload) -> Recommendation {
    strategy
        .tune_for_workload(on, &quiet(), &Constraints::default())
        .unwrap()
}

pub(super) struct Dice(Pcg64Mcg);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// A normal number, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        let (a, b): (f64, f64) = (self.0.random(), self.0.random());
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}
