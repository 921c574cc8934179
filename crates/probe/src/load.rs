//! The load in one machine word, so that a decision can read it with one instruction.

use std::fmt;

use kernelwise_types::units::Share;
use kernelwise_types::{Reading, SystemState};

/// The load at the sampler's last look: what a decision may want to know, in 64 bits.
///
/// | bits | what | unit |
/// |---|---|---|
/// | 0 to 15 | busy share of all processors | 1/65534 |
/// | 16 to 31 | share of time some task waited for a processor | 1/65534 |
/// | 32 to 47 | share stolen by the hypervisor | 1/65534 |
/// | 48 to 63 | tasks running or ready to run | 1; 65534 means that many or more |
///
/// All ones in a field (65535) means unknown; the [`SystemState`] has the reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LoadNow(u64);

/// The value of a field that is not known.
const UNKNOWN: u16 = u16::MAX;

/// The value of a share of one, and the longest run queue told apart.
const FULL: u16 = u16::MAX - 1;

impl LoadNow {
    /// Nothing is known yet.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// The load as a full state shows it.
    pub fn of(state: &SystemState) -> Self {
        let queue = match state.run_queue {
            Reading::Known(tasks) => tasks.min(u32::from(FULL)) as u16,
            Reading::Unknown(_) => UNKNOWN,
        };
        let fields = [
            share_bits(&state.cpu_utilisation),
            share_bits(&state.cpu_pressure),
            share_bits(&state.steal),
            queue,
        ];
        let pack = |word, field: &u16| (word << 16) | u64::from(*field);
        Self(fields.iter().rev().fold(0, pack))
    }

    /// Takes a word apart that [`bits`](Self::bits) gave.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The word itself.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Busy share of all logical processors, steal included.
    pub fn utilisation(self) -> Option<Share> {
        self.share(0)
    }

    /// Share of the time in which some task waited for a processor.
    pub fn cpu_pressure(self) -> Option<Share> {
        self.share(1)
    }

    /// Share of the time that a hypervisor gave to others.
    pub fn steal(self) -> Option<Share> {
        self.share(2)
    }

    /// Tasks running or ready to run, 65534 at most.
    pub fn run_queue(self) -> Option<u32> {
        match self.field(3) {
            UNKNOWN => None,
            tasks => Some(u32::from(tasks)),
        }
    }

    fn field(self, index: u32) -> u16 {
        (self.0 >> (16 * index)) as u16
    }

    fn share(self, index: u32) -> Option<Share> {
        match self.field(index) {
            UNKNOWN => None,
            parts => Share::of(parts.into(), FULL.into()),
        }
    }
}

fn share_bits(share: &Reading<Share>) -> u16 {
    match share {
        Reading::Known(share) => (share.get() * f64::from(FULL)).round() as u16,
        Reading::Unknown(_) => UNKNOWN,
    }
}

impl fmt::Debug for LoadNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadNow")
            .field("utilisation", &self.utilisation())
            .field("cpu_pressure", &self.cpu_pressure())
            .field("steal", &self.steal())
            .field("run_queue", &self.run_queue())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sampler::not_looked_yet;

    fn share() -> impl Strategy<Value = Option<f64>> {
        proptest::option::of(prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0f64])
    }

    fn reading<T>(value: Option<T>) -> Reading<T> {
        value.map_or(Reading::unknown("not told"), Reading::Known)
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back_to_half_a_step(
            shares in [share(), share(), share()],
            queue in proptest::option::of(prop_oneof![any::<u32>(), 0..100u32, 65530..65540u32]),
        ) {
            let [utilisation, pressure, steal] =
                shares.map(|share| reading(share.map(|share| Share::new(share).unwrap())));
            let load = LoadNow::of(&SystemState {
                cpu_utilisation: utilisation,
                cpu_pressure: pressure,
                steal,
                run_queue: reading(queue),
                ..not_looked_yet()
            });
            let load = LoadNow::from_bits(load.bits());
            for (given, back) in shares.iter().zip([load.utilisation(), load.cpu_pressure(), load.steal()]) {
                prop_assert_eq!(given.is_some(), back.is_some());
                if let (Some(given), Some(back)) = (given, back) {
                    prop_assert!((given - back.get()).abs() <= 0.5 / 65534.0 + 1e-12);
                }
            }
            prop_assert_eq!(load.run_queue(), queue.map(|tasks| tasks.min(65534)));
        }

        #[test]
        fn any_word_can_be_taken_apart(bits: u64) {
            let load = LoadNow::from_bits(bits);
            prop_assert_eq!(load.utilisation().is_none(), bits & 0xffff == 0xffff);
            prop_assert_eq!(load.cpu_pressure().is_none(), bits >> 16 & 0xffff == 0xffff);
            prop_assert_eq!(load.steal().is_none(), bits >> 32 & 0xffff == 0xffff);
            prop_assert_eq!(load.run_queue().is_none(), bits >> 48 == 0xffff);
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let load = LoadNow::from_bits(0x0003_0000_ffff_fffe);
        assert_eq!(load.utilisation().unwrap().get(), 1.0);
        assert_eq!(load.cpu_pressure(), None);
        assert_eq!(load.steal().unwrap().get(), 0.0);
        assert_eq!(load.run_queue(), Some(3));
        assert_eq!(LoadNow::of(&not_looked_yet()), LoadNow::UNKNOWN);
        let text = format!("{:?}", LoadNow::UNKNOWN);
        assert!(text.contains("run_queue: None"), "{text}");
    }
}
