//! What measurements say about prices.
//!
//! A price is wrong by a factor. Part of it is the device's (it is slower than its description says), part the kernel's, part
//! the workload's, and part that of the choice alone; so what was measured of one choice says something about its neighbours,
//! and less about those further away. In ln t these are four nested normal effects, and what follows about any choice from
//! all that was measured is arithmetic: means weighted by how sure they are, on the way from the device to the choice.
//!
//! Before anything is measured, each of the four has a quarter of the variance that the price admits ([`Price::spread_ln`]). How
//! large they really are is learned with them. So is the noise of measuring.
//!
//! Errors are counted in units of the price's own spread, so that a sloppy price that is far off says little against a careful
//! one.

use std::collections::BTreeMap;

use kernelwise_types::units::Watts;
use kernelwise_types::{KernelId, Workload};

use super::priced::{Choice, Price};
use super::recommendation::Kept;

/// A quarter for each of device, kernel, workload and choice.
const QUARTER: f64 = 0.25;
/// How many observations the assumed variances are worth.
const ASSUMED: f64 = 4.0;
/// Noise of measuring that is assumed before any was seen, in ln t: five per cent.
const NOISE: f64 = 0.05;
/// The newest time has at least this weight: after twenty, one in a hundred is left of what was before.
const NEWEST: f64 = 0.2;
/// Times that a mean with such weights is worth: (2 - w) / w.
const WORTH: f64 = 9.0;
/// Times after which one that is far too long is held to be a disturbance, and how many times the noise is too long.
const SETTLED: u64 = 3;
const FAR: f64 = 3.0;
/// So many in a row are no disturbance: the choice has become slower.
const CHANGED: u32 = 3;
/// Most choices on workloads that are remembered; of more, the one that was longest not heard of is forgotten.
const MOST: usize = 4096;

/// One choice on one workload.
#[derive(Debug, Clone)]
struct Cell {
    ln_price: f64,
    spread: f64,
    samples: u64,
    /// Mean and variance of ln t, newer times weighing more.
    mean: f64,
    variance: f64,
    /// Times in a row that were too long.
    too_long: u32,
    power: Option<Watts>,
    failed: bool,
    heard: u64,
}

impl Cell {
    fn worth(&self) -> f64 {
        (self.samples as f64).min(WORTH)
    }

    /// By how much the price is wrong, in units of its spread.
    fn error(&self) -> f64 {
        (self.mean - self.ln_price) / self.spread
    }

    /// The variance of one more time, in ln t.
    fn noise(&self, usual: f64) -> f64 {
        let seen = self.variance * self.worth();
        (ASSUMED * usual + seen) / (ASSUMED + self.worth() - 1.0)
    }

    /// How far a time is from the mean; one page fault, or whatever else happens once, counts no more than usual noise does.
    /// Times are disturbed upwards only.
    fn step(&mut self, ln_time: f64, usual: f64) -> f64 {
        let step = ln_time - self.mean;
        let most = FAR * self.noise(usual).sqrt();
        if self.samples < SETTLED || step <= most {
            self.too_long = 0;
            return step;
        }
        self.too_long += 1;
        match self.too_long < CHANGED {
            true => most,
            false => step,
        }
    }

    /// What it says about its workload: its error, give or take what is its own and the noise.
    fn message(&self, spreads: &Spreads) -> Sum {
        let noise = self.noise(spreads.noise) / self.worth() / (self.spread * self.spread);
        Sum::of(self.error(), spreads.own + noise)
    }
}

/// What a cell that was timed says about how large the effects are.
struct Timed {
    error: f64,
    scatter: f64,
    degrees: f64,
}

impl Timed {
    fn of(cell: &Cell) -> Self {
        Self {
            error: cell.error(),
            scatter: cell.variance * cell.worth(),
            degrees: cell.worth() - 1.0,
        }
    }
}

/// A mean weighted by precision, as its two sums.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    precision: f64,
    weighted: f64,
}

impl Sum {
    fn of(mean: f64, variance: f64) -> Self {
        Self {
            precision: 1.0 / variance,
            weighted: mean / variance,
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            precision: self.precision + other.precision,
            weighted: self.weighted + other.weighted,
        }
    }

    fn without(self, part: Self) -> Self {
        Self {
            precision: (self.precision - part.precision).max(0.0),
            weighted: self.weighted - part.weighted,
        }
    }

    /// What it says one level away, across an effect of this variance; nothing if it rests on nothing.
    fn across(self, variance: f64) -> Self {
        if self.precision > 0.0 {
            Self::of(
                self.weighted / self.precision,
                variance + 1.0 / self.precision,
            )
        } else {
            Self::default()
        }
    }
}

/// How large the effects are, as variances; noise in ln t, the others in units of the prices' spreads.
#[derive(Debug, Clone, Copy)]
struct Spreads {
    own: f64,
    workload: f64,
    kernel: f64,
    device: f64,
    noise: f64,
}

/// The kernel, or the operation where a device has one kernel; the workload.
type Site = (String, String);

/// Everything measured, and what follows from it.
#[derive(Debug, Clone)]
pub(super) struct Beliefs {
    sites: BTreeMap<Site, BTreeMap<Choice, Cell>>,
    spreads: Spreads,
    kernels: BTreeMap<String, Sum>,
    device: Sum,
    measured: u64,
    heard: u64,
}

/// What is believed of a choice on a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Belief {
    /// The middle of ln t, less that of the price.
    pub(super) over: f64,
    /// How far off that may be.
    pub(super) doubt: f64,
    /// How much single calls differ, in ln t.
    pub(super) noise: f64,
    /// Times of this choice on this workload.
    pub(super) samples: u64,
    /// Choices measured at all.
    pub(super) measured: u64,
    /// Power, if it was measured.
    pub(super) power: Option<Watts>,
    /// Whether it failed.
    pub(super) failed: bool,
}

impl Default for Beliefs {
    fn default() -> Self {
        let mut none = Self {
            sites: BTreeMap::new(),
            spreads: Spreads {
                own: QUARTER,
                workload: QUARTER,
                kernel: QUARTER,
                device: QUARTER,
                noise: NOISE * NOISE,
            },
            kernels: BTreeMap::new(),
            device: Sum::default(),
            measured: 0,
            heard: 0,
        };
        none.conclude();
        none
    }
}

fn site(workload: &Workload, kernel: Option<&KernelId>) -> Site {
    let kernel = match kernel {
        Some(kernel) => kernel.to_string(),
        None => format!("{} {}", workload.operation(), workload.dtype()),
    };
    (kernel, workload.to_string())
}

/// What is believed of one kernel on one workload. Made once for all its choices.
pub(super) struct Outlook<'a> {
    beliefs: &'a Beliefs,
    cells: Option<&'a BTreeMap<Choice, Cell>>,
    /// What its timed choices say together.
    here: Sum,
    /// What everything else says about them.
    above: Sum,
}

impl Outlook<'_> {
    /// What follows for one choice from all that was measured.
    pub(super) fn of(&self, choice: &Choice, price: &Price) -> Belief {
        let spreads = &self.beliefs.spreads;
        let cell = self.cells.and_then(|cells| cells.get(choice));
        let timed = cell.filter(|cell| cell.samples > 0);
        let message = timed.map_or(Sum::default(), |cell| cell.message(spreads));
        if timed.is_none()
            && let Some(usual) = self.usual(choice, price)
        {
            return Belief {
                doubt: usual.doubt.hypot(price.spread_ln * spreads.own.sqrt()),
                samples: 0,
                power: None,
                failed: cell.is_some_and(|cell| cell.failed),
                ..usual
            };
        }
        let others = self.above.add(self.here.without(message));
        let mut all = others.across(spreads.own);
        let mut scatter = spreads.noise;
        if let Some(cell) = timed {
            scatter = cell.noise(spreads.noise);
            let known = scatter / cell.worth() / (cell.spread * cell.spread);
            all = all.add(Sum::of(cell.error(), known));
        }
        Belief {
            over: price.spread_ln * all.weighted / all.precision,
            doubt: price.spread_ln / all.precision.sqrt(),
            noise: scatter.sqrt(),
            samples: cell.map_or(0, |cell| cell.samples),
            measured: self.beliefs.measured,
            power: cell.and_then(|cell| cell.power),
            failed: cell.is_some_and(|cell| cell.failed),
        }
    }

    /// What is believed of the choice that lends its price to this one, if that was timed: what other numbers of threads take would else make this one look
    /// faster than the one that it is not told from.
    fn usual(&self, choice: &Choice, price: &Price) -> Option<Belief> {
        let usual = Choice {
            kernel: choice.kernel.clone(),
            params: price.usual.clone()?,
        };
        let cell = self.cells?.get(&usual)?;
        (cell.samples > 0).then(|| self.of(&usual, price))
    }
}

impl Beliefs {
    /// What follows for the choices of a kernel from all that was measured: from the device down, each level takes what comes from
    /// above and what its other branches say.
    pub(super) fn of(&self, workload: &Workload, kernel: Option<&KernelId>) -> Outlook<'_> {
        let site = site(workload, kernel);
        let spreads = &self.spreads;
        let cells = self.sites.get(&site);
        let here = cells.map_or(Sum::default(), |cells| self.at_site(cells));
        let kernel = self.kernels.get(&site.0).copied().unwrap_or_default();
        let device = self.device.without(kernel.across(spreads.kernel));
        let kernel = device
            .across(spreads.kernel)
            .add(kernel.without(here.across(spreads.workload)));
        Outlook {
            beliefs: self,
            cells,
            here,
            above: kernel.across(spreads.workload),
        }
    }

    /// It took so long.
    pub(super) fn ran(
        &mut self,
        workload: &Workload,
        choice: &Choice,
        price: &Price,
        ln_time: f64,
        power: Option<Watts>,
    ) {
        let usual = self.spreads.noise;
        let cell = self.cell(workload, choice, price);
        let step = cell.step(ln_time, usual);
        cell.samples += 1;
        let weight = (1.0 / cell.samples as f64).max(NEWEST);
        cell.mean += weight * step;
        cell.variance = (1.0 - weight) * (cell.variance + weight * step * step);
        cell.power = power.or(cell.power);
        self.conclude();
    }

    /// It took so long in the past, by what was kept of those times. What was heard of it since is replaced.
    pub(super) fn recall(
        &mut self,
        workload: &Workload,
        choice: &Choice,
        price: &Price,
        kept: &Kept,
    ) {
        let cell = self.cell(workload, choice, price);
        cell.samples = kept.samples;
        cell.mean = kept.mean_ln;
        cell.variance = kept.sd_ln * kept.sd_ln;
        cell.too_long = 0;
        self.conclude();
    }

    /// It failed.
    pub(super) fn failed(&mut self, workload: &Workload, choice: &Choice, price: &Price) {
        self.cell(workload, choice, price).failed = true;
        self.conclude();
    }

    fn cell(&mut self, workload: &Workload, choice: &Choice, price: &Price) -> &mut Cell {
        self.heard += 1;
        let heard = self.heard;
        let site = site(workload, choice.kernel.as_ref());
        let known = |cells: &BTreeMap<Choice, Cell>| cells.contains_key(choice);
        if !self.sites.get(&site).is_some_and(known) {
            self.make_room();
        }
        let cells = self.sites.entry(site).or_default();
        let cell = cells.entry(choice.clone()).or_insert_with(|| Cell {
            ln_price: price.time_ns.get().ln(),
            spread: price.spread_ln,
            samples: 0,
            mean: 0.0,
            variance: 0.0,
            too_long: 0,
            power: None,
            failed: false,
            heard,
        });
        cell.heard = heard;
        cell
    }

    /// Forgets the cell that was longest not heard of, if there are too many.
    fn make_room(&mut self) {
        let count: usize = self.sites.values().map(BTreeMap::len).sum();
        if count < MOST {
            return;
        }
        let all = self.sites.iter().flat_map(|(site, cells)| {
            cells
                .iter()
                .map(move |(choice, cell)| (cell.heard, site, choice))
        });
        let oldest = all.min_by_key(|(heard, _, _)| *heard);
        let Some((site, choice)) = oldest.map(|(_, site, choice)| (site.clone(), choice.clone()))
        else {
            return;
        };
        if let Some(cells) = self.sites.get_mut(&site) {
            cells.remove(&choice);
            if cells.is_empty() {
                self.sites.remove(&site);
            }
        }
    }

    /// What the choices of one workload say together.
    fn at_site(&self, cells: &BTreeMap<Choice, Cell>) -> Sum {
        let timed = cells.values().filter(|cell| cell.samples > 0);
        let messages = timed.map(|cell| cell.message(&self.spreads));
        messages.fold(Sum::default(), Sum::add)
    }

    /// Learns how large the effects are, and sums up what all levels say.
    fn conclude(&mut self) {
        // Kernels, their workloads, and the choices timed on each.
        let mut kernels: BTreeMap<&str, Vec<Vec<Timed>>> = BTreeMap::new();
        for ((kernel, _), cells) in &self.sites {
            let timed = cells.values().filter(|cell| cell.samples > 0);
            let timed: Vec<Timed> = timed.map(Timed::of).collect();
            if !timed.is_empty() {
                kernels.entry(kernel).or_default().push(timed);
            }
        }
        let (mut own, mut workload) = (Deviations::default(), Deviations::default());
        let (mut scatter, mut degrees, mut measured) = (0.0, 0.0, 0);
        let mut of_kernels = Vec::new();
        for sites in kernels.values() {
            let mut of_sites = Vec::new();
            for cells in sites {
                let errors: Vec<f64> = cells.iter().map(|cell| cell.error).collect();
                of_sites.push(own.take(&errors));
                scatter += cells.iter().map(|cell| cell.scatter).sum::<f64>();
                degrees += cells.iter().map(|cell| cell.degrees).sum::<f64>();
                measured += cells.len() as u64;
            }
            of_kernels.push(workload.take(&of_sites));
        }
        // The device is said to be as described: one more kernel, without error.
        of_kernels.push(0.0);
        let mut kernel = Deviations::default();
        let grand = kernel.take(&of_kernels);
        self.measured = measured;
        self.spreads = Spreads {
            own: own.variance(),
            workload: workload.variance(),
            kernel: kernel.variance(),
            device: (ASSUMED * QUARTER + grand * grand) / (ASSUMED + 1.0),
            noise: (ASSUMED * NOISE * NOISE + scatter) / (ASSUMED + degrees),
        };
        if measured == 0 {
            self.spreads.device = QUARTER;
        }

        let spreads = self.spreads;
        let mut kernels: BTreeMap<String, Sum> = BTreeMap::new();
        for ((kernel, _), cells) in &self.sites {
            let here = self.at_site(cells).across(spreads.workload);
            match kernels.get_mut(kernel) {
                Some(sum) => *sum = sum.add(here),
                None => drop(kernels.insert(kernel.clone(), here)),
            }
        }
        let described = Sum::of(0.0, spreads.device);
        let messages = kernels.values().map(|kernel| kernel.across(spreads.kernel));
        self.device = messages.fold(described, Sum::add);
        self.kernels = kernels;
    }
}

/// Squared deviations of groups from their means.
#[derive(Default)]
struct Deviations {
    squares: f64,
    degrees: f64,
}

impl Deviations {
    /// Takes a group in and answers its mean.
    fn take(&mut self, group: &[f64]) -> f64 {
        let mean = group.iter().sum::<f64>() / group.len().max(1) as f64;
        self.squares += group.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        self.degrees += group.len().saturating_sub(1) as f64;
        mean
    }

    /// With what was assumed before.
    fn variance(&self) -> f64 {
        (ASSUMED * QUARTER + self.squares) / (ASSUMED + self.degrees)
    }
}
