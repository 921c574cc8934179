//! Busy, idle and stolen time from `/proc/stat`.
//!
//! The kernel counts in ticks of 10 ms, so the share over an interval of `t` is known in steps of
//! about 10 ms / `t` per processor: 4 % at the sampler's default period.

use std::collections::BTreeMap;

use kernelwise_types::Reading;
use kernelwise_types::units::Share;

use crate::tree::{ReadError, Tree};

const PATH: &str = "/proc/stat";

/// Ticks since boot. Guest time is part of user time and not counted again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    /// Spent running, by this machine or, as steal, by others on the same hardware.
    busy: u64,
    /// Idle.
    idle: u64,
    /// Waiting for disks, which is idle too: another task could have run.
    iowait: u64,
    /// The part of `busy` that a hypervisor gave to others.
    steal: u64,
}

/// One reading of `/proc/stat`.
#[derive(Debug, Clone)]
pub(crate) struct Stat {
    all: Ticks,
    each: BTreeMap<u32, Ticks>,
    running: Option<u32>,
}

impl Stat {
    pub(crate) fn read(tree: &Tree) -> Result<Self, ReadError> {
        let text = tree.text(PATH)?;
        let (mut all, mut each, mut running) = (None, BTreeMap::new(), None);
        for line in text.lines() {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            if let Some(number) = key.strip_prefix("cpu") {
                let ticks = Ticks::parse(rest)
                    .ok_or_else(|| ReadError::unexpected(PATH, "counters of ticks", line))?;
                match number.parse() {
                    Ok(cpu) => drop(each.insert(cpu, ticks)),
                    Err(_) => all = Some(ticks),
                }
            } else if key == "procs_running" {
                running = rest.trim().parse().ok();
            }
        }
        Ok(Self {
            all: all.ok_or_else(|| ReadError::lacks(PATH, "line `cpu`"))?,
            each,
            running,
        })
    }

    /// Tasks running or ready to run.
    pub(super) fn running(&self) -> Reading<u32> {
        match self.running {
            Some(running) => Reading::Known(running),
            None => Reading::unknown("/proc/stat: no number behind procs_running"),
        }
    }

    /// The busy share of all processors since `before`.
    pub(super) fn utilisation(before: &Self, now: &Self) -> Reading<Share> {
        share(before.all, now.all, |ticks| ticks.busy)
    }

    /// Processors that were busy since `before` with something else than this, in ticks; `None` if no time has passed.
    pub(crate) fn processors_busy(before: &Self, now: &Self, own: u64) -> Option<f64> {
        let passed = |ticks: &Ticks| ticks.busy + ticks.idle + ticks.iowait;
        let all = passed(&now.all).checked_sub(passed(&before.all))?;
        let busy = now.all.busy.checked_sub(before.all.busy)?;
        let others = busy.saturating_sub(own) as f64;
        let processors = now.each.len().max(1) as f64;
        (all > 0).then(|| others * processors / all as f64)
    }

    /// The stolen share of all processors since `before`.
    pub(super) fn steal(before: &Self, now: &Self) -> Reading<Share> {
        share(before.all, now.all, |ticks| ticks.steal)
    }

    /// The busy share of each processor that was online both times.
    pub(super) fn per_cpu(before: &Self, now: &Self) -> Reading<Vec<Share>> {
        let mut shares = Vec::new();
        for (cpu, now) in &now.each {
            if let Some(before) = before.each.get(cpu) {
                match share(*before, *now, |ticks| ticks.busy) {
                    Reading::Known(share) => shares.push(share),
                    Reading::Unknown(reason) => {
                        return Reading::unknown(format!("processor {cpu}: {reason}"));
                    }
                }
            }
        }
        if shares.is_empty() {
            return Reading::unknown("/proc/stat: no processor listed in both looks");
        }
        Reading::Known(shares)
    }
}

impl Ticks {
    /// `user nice system idle iowait irq softirq steal …`; old kernels end earlier.
    fn parse(fields: &str) -> Option<Self> {
        let mut ticks = [0u64; 8];
        let mut count = 0;
        for (slot, field) in ticks.iter_mut().zip(fields.split_whitespace()) {
            *slot = field.parse().ok()?;
            count += 1;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
        let sum = |parts: &[u64]| {
            parts
                .iter()
                .fold(0u64, |sum, part| sum.saturating_add(*part))
        };
        (count >= 4).then(|| Self {
            busy: sum(&[user, nice, system, irq, softirq, steal]),
            idle,
            iowait,
            steal,
        })
    }
}

/// The share of a part of the interval. Counters can step back a little (iowait is known to), which
/// counts as standing still, for each of them alone.
fn share(before: Ticks, now: Ticks, part: impl Fn(Ticks) -> u64) -> Reading<Share> {
    let busy = now.busy.saturating_sub(before.busy);
    let idle = now.idle.saturating_sub(before.idle);
    let waiting = now.iowait.saturating_sub(before.iowait);
    let whole = busy.saturating_add(idle).saturating_add(waiting);
    match Share::of(part(now).saturating_sub(part(before)), whole) {
        Some(share) => Reading::Known(share),
        None => Reading::unknown("/proc/stat: no tick passed since the look before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn stat(text: &str) -> Result<Stat, ReadError> {
        let fake = FakeTree::new();
        fake.write(PATH, text);
        Stat::read(&fake.tree())
    }

    #[test]
    fn a_counter_that_steps_back_does_not_hide_idle_time() {
        let before = stat("cpu 100 0 0 1000 500\n").unwrap();
        let now = stat("cpu 101 0 0 1024 400\n").unwrap();
        let busy = Stat::utilisation(&before, &now).known().unwrap().get();
        assert_eq!(busy, 1.0 / 25.0);
    }

    #[test]
    fn shares_follow_the_ticks_in_between() {
        let before = stat(
            "cpu  100 0 0 900 0 0 0 10 7 0\ncpu0 50 0 0 450 0 0 0 5\ncpu1 50 0 0 450 0 0 0 5\n",
        );
        let now = stat(
            "cpu  110 5 15 950 10 3 2 15 9 0\ncpu0 90 0 0 450 0 0 0 15\ncpu1 50 0 0 490 10 0 0 5\n\
             intr 1 2 3\nprocs_running 3\nprocs_blocked 1\n",
        );
        let (before, now) = (before.unwrap(), now.unwrap());
        let busy = Stat::utilisation(&before, &now).known().unwrap().get();
        assert_eq!(busy, 40.0 / 100.0);
        assert_eq!(Stat::steal(&before, &now).known().unwrap().get(), 0.05);
        let each: Vec<f64> = Stat::per_cpu(&before, &now)
            .known()
            .unwrap()
            .iter()
            .map(|s| s.get())
            .collect();
        assert_eq!(each, [1.0, 0.0]);
        assert_eq!(now.running(), Reading::Known(3));
        assert!(before.running().known().is_none());
    }

    #[test]
    fn no_time_and_counters_that_step_back_are_no_share() {
        let early = stat("cpu 10 0 0 100 0\ncpu0 10 0 0 100 0\n").unwrap();
        let late = stat("cpu 20 0 0 100 0\ncpu3 1 1 1 1\n").unwrap();
        let reason = Stat::utilisation(&early, &early);
        assert_eq!(
            reason.reason(),
            Some("/proc/stat: no tick passed since the look before")
        );
        assert!(Stat::utilisation(&late, &early).known().is_none());
        assert!(
            Stat::per_cpu(&early, &early)
                .reason()
                .unwrap()
                .starts_with("processor 0")
        );
        assert!(
            Stat::per_cpu(&early, &late)
                .reason()
                .unwrap()
                .contains("no processor")
        );
    }

    #[test]
    fn garbage_is_an_error() {
        for bad in [
            "",
            "cpu\n",
            "cpu 1 2 3\n",
            "cpu a b c d\n",
            "cpu0 1 2 3 4\n",
            "cpu -1 0 0 0\n",
        ] {
            assert!(stat(bad).is_err(), "{bad:?}");
        }
        let most = stat(&format!("cpu {0} {0} {0} {0}\n", u64::MAX)).unwrap();
        assert_eq!(most.all.busy, u64::MAX);
    }
}
