//! From numbers to places on a figure, and the ticks between.

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// By powers of ten.
    Powers,
    /// By ratios, evenly to both sides of one.
    Ratios,
    /// By equal steps.
    Steps,
    /// By minutes, hours and days, in seconds since 1970.
    Times,
}

/// One axis of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    kind: Kind,
    /// The place of the low end and that of the high one.
    places: (f64, f64),
}

/// Room beyond the values of a logarithmic axis.
const ROOM: f64 = 1.5;

impl Axis {
    /// By powers of ten, around all finite values above zero; `None` if there are none.
    pub(super) fn powers(values: impl Iterator<Item = f64>, places: (f64, f64)) -> Option<Self> {
        // What lies beyond is no time or rate of any machine; it is shown at the end of the axis.
        let (low, high) = ends(values.filter(|value| (1e-9..1e24).contains(value)))?;
        let short = (10.0 / (high / low)).max(1.0).sqrt();
        Some(Self {
            low: low / short / ROOM,
            high: high * short * ROOM,
            kind: Kind::Powers,
            places,
        })
    }

    /// By ratios around one, with a little room; `None` if there are none.
    pub(super) fn ratios(values: impl Iterator<Item = f64>, places: (f64, f64)) -> Option<Self> {
        let (low, high) = ends(
            values
                .filter(|value| (1e-6..1e6).contains(value))
                .chain([1.0]),
        )?;
        let room = 1.04 * (high / low).powf(0.03);
        Some(Self {
            low: low / room,
            high: high * room,
            kind: Kind::Ratios,
            places,
        })
    }

    /// By equal steps from zero to the greatest value; `None` if there are none.
    pub(super) fn steps(values: impl Iterator<Item = f64>, places: (f64, f64)) -> Option<Self> {
        let (_, high) = ends(values)?;
        let high = if high > 1e-12 { high.min(1e24) } else { 1.0 };
        Some(Self {
            low: 0.0,
            high,
            kind: Kind::Steps,
            places,
        })
    }

    /// By times of day, from the first to the last; `None` if there are none.
    pub(super) fn times(at_s: impl Iterator<Item = u64>, places: (f64, f64)) -> Option<Self> {
        let (low, high) = ends(at_s.map(|at_s| at_s as f64))?;
        // A single moment stands in the middle of an hour.
        let room = (0.03 * (high - low)).max(if high > low { 0.0 } else { 1800.0 });
        Some(Self {
            low: low - room,
            high: high + room,
            kind: Kind::Times,
            places,
        })
    }

    /// The least value it shows.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// The greatest.
    pub(super) fn high(&self) -> f64 {
        self.high
    }

    /// Where a value lies; those beyond an end lie at it.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.kind {
            Kind::Powers | Kind::Ratios => (value / self.low).ln() / (self.high / self.low).ln(),
            Kind::Steps | Kind::Times => (value - self.low) / (self.high - self.low),
        };
        let (from, to) = self.places;
        from + share * (to - from)
    }

    /// Round values to mark. The second of a pair says whether it can be left out where there is little room.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        match self.kind {
            Kind::Ratios if self.high / self.low < 99.0 => self.ratio_ticks(),
            Kind::Powers | Kind::Ratios => self.power_ticks(),
            Kind::Steps => self.step_ticks(),
            Kind::Times => self.time_ticks(),
        }
    }

    fn power_ticks(&self) -> Vec<(f64, bool)> {
        let (low, high) = (
            self.low.log10().ceil() as i32,
            self.high.log10().floor() as i32,
        );
        let each = (high - low) / 9 + 1;
        let powers = (low..=high).filter(|power| power.rem_euclid(each) == 0);
        let rare = |power: i32| (high - low > 4) && (power / each).rem_euclid(2) == 1;
        powers
            .map(|power| (10f64.powi(power), rare(power)))
            .collect()
    }

    fn ratio_ticks(&self) -> Vec<(f64, bool)> {
        const ROUND: [f64; 19] = [
            0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0,
            50.0, 70.0,
        ];
        let shown = |value: &f64| (self.low..=self.high).contains(value);
        let near_one = self.high / self.low < 1.3;
        let fine = [0.95, 1.02, 1.05, 1.15].into_iter().filter(|_| near_one);
        let mut ticks: Vec<f64> = ROUND.into_iter().chain(fine).filter(shown).collect();
        ticks.sort_by(f64::total_cmp);
        let odd = |i: usize| ticks.len() > 5 && i % 2 == 1;
        ticks
            .iter()
            .enumerate()
            .map(|(i, value)| (*value, odd(i) && *value != 1.0))
            .collect()
    }

    /// Steps of 1, 2 or 5 times a power of ten, two to five of them.
    fn step_ticks(&self) -> Vec<(f64, bool)> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|by| by * power);
        self.every(
            step.into_iter()
                .find(|step| *step >= rough)
                .unwrap_or(rough),
        )
    }

    /// Steps of whole minutes, hours or days.
    fn time_ticks(&self) -> Vec<(f64, bool)> {
        const MINUTES: [f64; 13] = [
            1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 360.0, 720.0, 1440.0, 2880.0, 10_080.0, 43_200.0,
            525_600.0,
        ];
        let rough = (self.high - self.low) / 5.0;
        let step = MINUTES.into_iter().map(|minutes| 60.0 * minutes);
        self.every(
            step.into_iter()
                .find(|step| *step >= rough)
                .unwrap_or(rough),
        )
    }

    fn every(&self, step: f64) -> Vec<(f64, bool)> {
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        let ticks = (first..=last).map(|i| (i as f64 * step, (i - first) % 2 == 1));
        ticks.collect()
    }
}

/// The least and the greatest finite value.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(ticks: &[(f64, bool)]) -> Vec<f64> {
        ticks.iter().map(|(value, _)| *value).collect()
    }

    #[test]
    fn powers_of_ten_lie_between_the_values() {
        let all = [3.0, f64::NAN, 0.0, 4_000.0].into_iter();
        let axis = Axis::powers(all, (0.0, 100.0)).unwrap();
        assert!(axis.low() < 3.0 && axis.high() > 4_000.0);
        assert_eq!(values(&axis.ticks()), [10.0, 100.0, 1_000.0]);
        let middle = (3.0f64 * 4_000.0).sqrt();
        assert!((axis.at(middle) - 50.0).abs() < 1e-9);
        assert_eq!((axis.at(0.0), axis.at(1e9)), (0.0, 100.0));
        assert_eq!(Axis::powers([0.0].into_iter(), (0.0, 1.0)), None);
        let one = Axis::powers([100.0].into_iter(), (0.0, 1.0)).unwrap();
        assert_eq!((values(&one.ticks()), one.at(100.0)), (vec![100.0], 0.5));
    }

    #[test]
    fn lines_have_round_steps() {
        let axis = Axis::steps([30.0, 730.0].into_iter(), (100.0, 0.0)).unwrap();
        assert_eq!(values(&axis.ticks()), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!((axis.at(0.0), axis.at(730.0)), (100.0, 0.0));
        let flat = Axis::steps([0.0].into_iter(), (0.0, 1.0)).unwrap();
        assert!(flat.at(0.0).is_finite());
    }

    #[test]
    fn times_are_marked_at_whole_hours_and_days() {
        const DAY: u64 = 86_400;
        let axis = Axis::times([100 * DAY + 7, 103 * DAY].into_iter(), (0.0, 1.0)).unwrap();
        let ticks = values(&axis.ticks());
        assert_eq!(ticks[0], (100 * DAY) as f64);
        assert!(ticks.iter().all(|at_s| at_s % 3_600.0 == 0.0) && ticks.len() > 2);
        let moment = Axis::times([100 * DAY].into_iter(), (0.0, 1.0)).unwrap();
        assert_eq!(moment.at((100 * DAY) as f64), 0.5);
    }

    #[test]
    fn ratios_always_show_one() {
        for high in [1.01, 1.2, 2.5, 40.0, 4_000.0] {
            let axis = Axis::ratios([high].into_iter(), (0.0, 100.0)).unwrap();
            assert!(values(&axis.ticks()).contains(&1.0), "{high}");
            assert!(axis.low() < 1.0 && axis.high() > high);
        }
    }
}
