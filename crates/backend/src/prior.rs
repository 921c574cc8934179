//! What is expected of a kernel before it was ever timed.
//!
//! The roofline of the calibrated machine bounds every kernel; a kernel's author says which part of it the
//! kernel reaches. Both are starting points only: a measurement outweighs them at once.

use std::ops::RangeInclusive;

use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Cost, Estimate, Machine, Workload};

use crate::kernel::Kernel;
use crate::space::{Setting, Space};

/// What the author of a kernel expects of it. It cannot claim more than the machine has.
#[derive(Debug, Clone, PartialEq)]
pub struct Hint {
    percent: u8,
    setup: Nanos,
    best_elements: RangeInclusive<u64>,
}

impl Default for Hint {
    /// Half of what the machine can do, at any size, without set-up.
    fn default() -> Self {
        Self::percent(50)
    }
}

impl Hint {
    /// The share of the roofline it reaches, in percent; brought into 1 to 100.
    pub const fn percent(percent: u8) -> Self {
        let percent = match percent {
            0 => 1,
            1..=100 => percent,
            _ => 100,
        };
        Self {
            percent,
            setup: Nanos::from_u64(0),
            best_elements: 0..=u64::MAX,
        }
    }

    /// The same with a cost that every call pays: packing, planning, a table.
    pub const fn with_setup(mut self, setup: Nanos) -> Self {
        self.setup = setup;
        self
    }

    /// The same for a kernel that is at its best when the first output has this many elements.
    pub const fn best_for(mut self, elements: RangeInclusive<u64>) -> Self {
        self.best_elements = elements;
        self
    }

    /// What every call of it pays: more if it is made for many elements, so that it comes after those that are made for few. The
    /// same for all sizes, or a few elements more could be expected to take less time.
    fn call_ns(&self) -> f64 {
        match *self.best_elements.start() {
            0 | 1 => CALL_NS,
            _ => OUTSIDE * CALL_NS,
        }
    }

    /// How much slower than hinted it is taken to be for so many elements: not at all where it is at its best, and more the
    /// farther away from there.
    fn slowdown(&self, elements: u64) -> f64 {
        let (low, high) = (*self.best_elements.start(), *self.best_elements.end());
        let (elements, low, high) = (elements as f64, low as f64, high as f64);
        let away = (low.max(1.0) / elements.max(1.0)).max(elements.max(1.0) / high.max(1.0));
        let share = (away.max(1.0).ln() / FAR.ln()).min(1.0);
        1.0 + (OUTSIDE - 1.0) * share
    }
}

/// How the work of a call falls to threads: what their number alone does not tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sharing {
    parts: u64,
    forks: u32,
    extra: f64,
}

impl Default for Sharing {
    /// In as many equal parts as there are threads, handed out once.
    fn default() -> Self {
        Self::parts(u64::MAX)
    }
}

impl Sharing {
    /// In so many equal parts that none can be shared further: more threads than that have nothing to do.
    pub const fn parts(parts: u64) -> Self {
        Self {
            parts: if parts == 0 { 1 } else { parts },
            forks: 1,
            extra: 0.0,
        }
    }

    /// The same, with threads woken so many times in a call.
    #[must_use]
    pub const fn forked(mut self, forks: u32) -> Self {
        self.forks = forks;
        self
    }

    /// The same with work that one thread would not have, shared among them as well: 0.5 is half of what there is without.
    #[must_use]
    pub fn with_extra(mut self, extra: f64) -> Self {
        self.extra = if extra > 0.0 { extra } else { 0.0 };
        self
    }

    /// How many of these threads have something to do.
    fn used(&self, threads: u32) -> u32 {
        u32::try_from(self.parts).map_or(threads, |parts| threads.min(parts))
    }

    /// How much longer it takes than with the least work in equal shares for all threads.
    fn longer(&self, threads: u32) -> f64 {
        let most = self.parts.div_ceil(u64::from(threads));
        let uneven = most as f64 * f64::from(threads) / self.parts as f64;
        uneven.max(1.0) * (1.0 + self.extra)
    }
}

/// How much slower than hinted a kernel is taken to be far outside the sizes it is best for.
const OUTSIDE: f64 = 1.5;
/// Far is this factor of elements; nearer, it is slower by less, so that a size just outside is expected to take hardly longer than
/// one just inside.
const FAR: f64 = 16.0;

/// What every call pays, in nanoseconds: checking the tensors, dispatch, the first and the last vector. On a server processor of 2020 the
/// quickest kernels of all need 35 ns for a few elements, most need 100 to 300 ns.
const CALL_NS: f64 = 100.0;
/// Operations at the peak rate that a transcendental function of a vector is worth, and a comparison of a sort. On the same
/// processor; the roofline counts neither.
const TRANSCENDENTAL: f64 = 50.0;
const COMPARISON: f64 = 10.0;

/// The shortest time this machine needs for a workload with so many threads: arithmetic at its peak or bytes
/// at the bandwidth of the nearest place that holds them, whichever takes longer. `None` where the cost or
/// both rates are unknown.
pub fn roofline(
    workload: &Workload,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
) -> Option<Nanos> {
    let flops = workload.cost()?.flops.0 as f64;
    bound(workload, flops, threads, machine, calibration)
}

/// The same for so much arithmetic.
fn bound(
    workload: &Workload,
    flops: f64,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
) -> Option<Nanos> {
    let cost = workload.cost()?;
    let peak = calibration.peak(workload.dtype(), threads);
    let arithmetic = peak.map(|peak| flops / peak.rate.value.get() * 1e9);
    let bytes = cost.bytes_read.0 + cost.bytes_written.0;
    let place = nearest(bytes, machine);
    let pattern = pattern(cost);
    // A place farther away is no faster than a nearer one, whatever noise says about both.
    let up_to = MemoryPlace::ALL.iter().filter(|nearer| **nearer <= place);
    let rates = up_to.filter_map(|place| calibration.bandwidth(*place, pattern, threads));
    let bandwidth = calibration.bandwidth(place, pattern, threads).map(|_| {
        let rates = rates.map(|bandwidth| bandwidth.rate.value.get());
        rates.fold(f64::INFINITY, f64::min)
    });
    let traffic = bandwidth.map(|rate| bytes as f64 / rate * 1e9);
    let time = match (arithmetic, traffic) {
        (Some(a), Some(t)) => a.max(t),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Nanos::new(time).ok()
}

fn pattern(cost: &Cost) -> AccessPattern {
    if cost.bytes_written.0 == 0 {
        AccessPattern::Read
    } else {
        AccessPattern::Copy
    }
}

/// How long threads that share a call take to get at its operands, which are in the caches of others: those of the caller, and of
/// whoever had that part in the call before. It is no bound, for they may be lucky. Caches hold no more than their size, so what
/// lies in main memory is not charged for more than that. Nothing where it was not measured.
fn handing_over(
    workload: &Workload,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
) -> f64 {
    let Some(cost) = workload.cost().filter(|_| threads > 1) else {
        return 0.0;
    };
    let bytes = cost.bytes_read.0 + cost.bytes_written.0;
    let place = nearest(bytes, machine);
    let times = calibration.handed_over.iter().filter_map(|rate| {
        let asked = rate.threads == threads && rate.pattern == pattern(cost);
        let held = cache_bytes(rate.place, machine).filter(|_| asked && rate.place <= place)?;
        Some(bytes.min(held) as f64 / rate.rate.value.get() * 1e9)
    });
    times.fold(0.0, f64::max)
}

/// The size of the largest cache of a level.
fn cache_bytes(place: MemoryPlace, machine: &Machine) -> Option<u64> {
    let level = match place {
        MemoryPlace::L1 => 1,
        MemoryPlace::L2 => 2,
        MemoryPlace::L3 => 3,
        MemoryPlace::Dram => return None,
    };
    let caches = machine.caches.known().into_iter().flatten();
    let data = caches.filter(|cache| cache.level == level);
    data.map(|cache| cache.size_bytes.0).max()
}

/// The smallest cache that holds so many bytes, or main memory.
fn nearest(bytes: u64, machine: &Machine) -> MemoryPlace {
    let caches = machine.caches.known();
    let holds = |level: u8| {
        let mut data = caches.into_iter().flatten().filter(|c| c.level == level);
        data.any(|cache| cache.size_bytes.0 >= bytes)
    };
    match (holds(1), holds(2), holds(3)) {
        (true, _, _) => MemoryPlace::L1,
        (_, true, _) => MemoryPlace::L2,
        (_, _, true) => MemoryPlace::L3,
        _ => MemoryPlace::Dram,
    }
}

/// How long a kernel should take with this setting, from its hint and the calibrated machine: what every call pays, set-up, the
/// cost of sharing it with threads, and its share of the roofline, with transcendental functions and comparisons as arithmetic. Threads
/// that share a call also get at their operands no faster than at what others had last, and at most at the parts that the kernel
/// [has for them](Sharing). It is longer for more work, as long as the output grows no faster than that, and never shorter than the roofline. `Unknown` where
/// the machine was not calibrated for it.
pub fn estimate(
    kernel: &dyn Kernel,
    workload: &Workload,
    setting: &Setting,
    machine: &Machine,
    calibration: &Calibration,
) -> Estimate {
    let asked = threads(&kernel.space(workload, machine), setting);
    let sharing = kernel.sharing(workload, setting);
    // Whoever finds one part only is alone with it, and wakes nobody.
    let threads = if sharing.used(asked) > 1 { asked } else { 1 };
    let steps = workload.cost().map(|cost| {
        let (functions, comparisons) = (cost.transcendentals as f64, cost.comparisons as f64);
        cost.flops.0 as f64 + TRANSCENDENTAL * functions + COMPARISON * comparisons
    });
    let least = steps.and_then(|steps| bound(workload, steps, threads, machine, calibration));
    let Some(least) = least else {
        return Estimate::Unknown;
    };
    let mut least = least.get();
    if threads > 1 {
        let handed = handing_over(workload, threads, machine, calibration);
        least = least.max(handed) * sharing.longer(threads);
    }
    let hint = kernel.hint();
    let wake = calibration
        .fork_joins
        .iter()
        .find(|fork_join| threads > 1 && fork_join.threads == threads)
        .map_or(0.0, |fork_join| fork_join.cost.value.get());
    let wake = wake * f64::from(sharing.forks);
    let reached = least * 100.0 / f64::from(hint.percent);
    let reached = reached * hint.slowdown(workload.elements());
    let time = hint.setup.get() + wake + hint.call_ns() + reached;
    match Nanos::new(time) {
        Ok(time_ns) => Estimate::Prior {
            time_ns,
            source: "roofline and hint".to_owned(),
        },
        Err(_) => Estimate::Unknown,
    }
}

/// The threads a setting asks for: its parameter of that name, else one.
pub fn threads(space: &Space, setting: &Setting) -> u32 {
    space
        .axes()
        .zip(setting.as_slice())
        .find(|((name, _), _)| *name == "threads")
        .map_or(1, |(_, &threads)| threads.max(1))
}

#[cfg(test)]
mod tests {
    use kernelwise_types::calibration::{Bandwidth, ForkJoin, Peak};
    use kernelwise_types::units::{ByteRate, FlopRate};
    use kernelwise_types::{DType, KernelSpec, Measured, Needs, Numerics, Technique};
    use proptest::prelude::*;

    use super::*;
    use crate::own::OwnKernel;
    use crate::space::{Axis, Knobs};

    crate::knobs! {
        struct Threads {
            threads,
        }
    }

    fn measured<T: Copy>(value: T) -> Measured<T> {
        Measured {
            value,
            low: value,
            high: value,
            samples: 1,
        }
    }

    /// 100 GFLOP/s per thread, 10 GB/s everywhere, 5 us to share a call between two threads.
    fn calibration() -> Calibration {
        let peak = |threads: u32| Peak {
            dtype: DType::F32,
            threads,
            isa: None,
            rate: measured(FlopRate::new(1e11 * f64::from(threads)).unwrap()),
        };
        let bandwidths = MemoryPlace::ALL.iter().flat_map(|&place| {
            [1, 2].map(|threads| Bandwidth {
                place,
                pattern: AccessPattern::Copy,
                threads,
                working_set_bytes: 1,
                rate: measured(ByteRate::new(1e10).unwrap()),
            })
        });
        Calibration {
            peaks: vec![peak(1), peak(2)],
            bandwidths: bandwidths.collect(),
            handed_over: Vec::new(),
            fork_joins: vec![ForkJoin {
                threads: 2,
                cost: measured(Nanos::from_u64(5000)),
            }],
            timer: measured(Nanos::from_u64(10)),
            skipped: Vec::new(),
        }
    }

    fn kernel(hint: Hint) -> impl Kernel {
        let spec = KernelSpec {
            id: "cpu-matmul-f32-mine".parse().unwrap(),
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::Reordered,
            needs: Needs::default(),
        };
        OwnKernel::new(spec, |_, _, _| Ok(()))
            .with_space(|_, _| Space::of::<Threads, 1>([Axis::new(1, [2])]))
            .with_hint(hint)
    }

    fn time(hint: Hint, workload: &str, threads: u32) -> f64 {
        let kernel = kernel(hint);
        let machine = kernelwise_probe::machine();
        let setting = Threads { threads }.setting();
        let workload = workload.parse().unwrap();
        match estimate(&kernel, &workload, &setting, &machine, &calibration()) {
            Estimate::Prior { time_ns, .. } => time_ns.get(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
        // 2 * 512^3 operations at 100 per ns; 3 MiB at 10 bytes per ns are less.
        let product = time(Hint::percent(100), "matmul f32 512x512x512", 1);
        assert!((product - CALL_NS - 2_684_354.56).abs() < 1e-6, "{product}");
        // 2 * 1000 operations are nothing; 2001 numbers of 4 bytes count.
        let dot = time(Hint::percent(100), "matmul f32 1x1000x1", 1);
        assert!((dot - CALL_NS - 2001.0 * 4.0 / 10.0).abs() < 1e-9, "{dot}");
        // What next to nothing takes is a call.
        let one = time(Hint::percent(100), "matmul f32 1x1x1", 1);
        assert!((CALL_NS..CALL_NS + 2.0).contains(&one), "{one}");
        let machine = kernelwise_probe::machine();
        let unknown: Workload = "matmul f64 8x8x8".parse().unwrap();
        let bound = roofline(&unknown, 3, &machine, &calibration());
        assert_eq!(bound, None, "neither rate is known for three threads");
    }

    #[test]
    fn threads_share_the_work_and_cost_their_waking() {
        let one = time(Hint::percent(100), "matmul f32 512x512x512", 1);
        let two = time(Hint::percent(100), "matmul f32 512x512x512", 2);
        assert!((two - CALL_NS - ((one - CALL_NS) / 2.0 + 5000.0)).abs() < 1e-6);
    }

    #[test]
    fn threads_get_at_what_others_had_no_faster_than_was_measured() {
        use kernelwise_types::Reading;
        use kernelwise_types::machine::Cache;
        use kernelwise_types::units::Bytes;
        let (kernel, mut machine) = (kernel(Hint::percent(100)), kernelwise_probe::machine());
        let cache = |level: u8, kib: u64| Cache {
            level,
            unified: level > 1,
            size_bytes: Bytes(kib << 10),
            line_bytes: Reading::unknown("made up"),
            ways: Reading::unknown("made up"),
            shared_by: Reading::unknown("made up"),
            instances: Reading::unknown("made up"),
        };
        machine.caches = Reading::Known(vec![cache(1, 32), cache(2, 1024), cache(3, 32 << 10)]);
        let mut calibration = calibration();
        let at = |calibration: &Calibration, threads: u32, workload: &str| {
            let setting = Threads { threads }.setting();
            let workload = workload.parse().unwrap();
            let known = estimate(&kernel, &workload, &setting, &machine, calibration);
            known.time().unwrap().get() - CALL_NS
        };
        let (cached, large) = ("copy f32 1000000", "copy f32 100000000");
        let before = [cached, large].map(|on| at(&calibration, 2, on));
        // Half of what threads have on data of their own.
        calibration.handed_over = vec![Bandwidth {
            place: MemoryPlace::L3,
            pattern: AccessPattern::Copy,
            threads: 2,
            working_set_bytes: 1,
            rate: measured(ByteRate::new(5e9).unwrap()),
        }];
        let after = [cached, large].map(|on| at(&calibration, 2, on));
        assert!((before[0] - 5000.0 - 800_000.0).abs() < 1e-3, "{before:?}");
        assert!((after[0] - 5000.0 - 1_600_000.0).abs() < 1e-3, "{after:?}");
        assert_eq!(after[1], before[1], "caches do not hold 800 MB");
        assert_eq!(
            at(&calibration, 1, cached),
            800_000.0,
            "alone, nothing is handed over"
        );
        let workload = cached.parse().unwrap();
        let least = roofline(&workload, 2, &machine, &calibration).unwrap();
        assert_eq!(
            least.get(),
            800_000.0,
            "it is no bound: threads may be lucky"
        );
    }

    #[test]
    fn threads_have_no_more_than_the_parts_there_are() {
        struct Shared<K>(K, Sharing);
        impl<K: Kernel> Kernel for Shared<K> {
            fn spec(&self) -> &KernelSpec {
                self.0.spec()
            }
            fn space(&self, workload: &Workload, machine: &Machine) -> Space {
                self.0.space(workload, machine)
            }
            fn hint(&self) -> Hint {
                self.0.hint()
            }
            fn sharing(&self, _workload: &Workload, _setting: &Setting) -> Sharing {
                self.1
            }
        }
        let machine = kernelwise_probe::machine();
        let workload = "matmul f32 512x512x512".parse().unwrap();
        let at = |sharing, threads| {
            let kernel = Shared(kernel(Hint::percent(100)), sharing);
            let setting = Threads { threads }.setting();
            let known = estimate(&kernel, &workload, &setting, &machine, &calibration());
            known.time().unwrap().get()
        };
        let (even, alone) = (at(Sharing::default(), 2), at(Sharing::default(), 1));
        let work = even - CALL_NS - 5000.0;
        assert_eq!(at(Sharing::parts(1), 2), alone, "nobody else is woken");
        assert_eq!(at(Sharing::parts(0), 2), alone);
        assert!((at(Sharing::parts(2), 2) - even).abs() < 1e-6);
        // One of two threads has two of three parts.
        let three = at(Sharing::parts(3), 2) - CALL_NS - 5000.0;
        assert!((three - work * 4.0 / 3.0).abs() < 1e-3, "{three}");
        let merged = Sharing::default().forked(2).with_extra(1.5);
        let longer = at(merged, 2) - CALL_NS - 10_000.0;
        assert!((longer - 2.5 * work).abs() < 1e-3, "{longer}");
        assert_eq!(at(merged, 1), alone, "one thread merges nothing");
        assert_eq!(Sharing::default().with_extra(f64::NAN), Sharing::default());
    }

    #[test]
    fn a_hint_cannot_promise_more_than_the_machine_has() {
        let at = |percent| time(Hint::percent(percent), "matmul f32 512x512x512", 1);
        assert_eq!(at(200), at(100));
        assert!((at(50) - CALL_NS - 2.0 * (at(100) - CALL_NS)).abs() < 1e-6);
        assert_eq!(at(0), at(1));
        let set_up = Hint::percent(100).with_setup(Nanos::from_u64(777));
        assert_eq!(time(set_up, "matmul f32 512x512x512", 1), at(100) + 777.0);
    }

    #[test]
    fn inside_its_best_sizes_a_kernel_is_expected_to_be_faster() {
        let at = |elements| {
            let hint = Hint::percent(100).best_for(elements);
            time(hint, "matmul f32 512x512x512", 1)
        };
        assert!(at(0..=512 * 512) < at(0..=1000));
        // Just outside is hardly slower, far outside by half at the most, on either side.
        let slowdown = |elements| Hint::percent(100).best_for(1000..=2000).slowdown(elements);
        assert_eq!((slowdown(1000), slowdown(2000)), (1.0, 1.0));
        assert!(slowdown(999) < 1.001 && slowdown(2001) < 1.001);
        assert!(slowdown(500) > 1.1 && slowdown(4000) > 1.1);
        assert_eq!((slowdown(1), slowdown(u64::MAX)), (OUTSIDE, OUTSIDE));
        // Of next to nothing to do, whoever is made for more is expected to take longer.
        let few = |elements| time(Hint::percent(100).best_for(elements), "matmul f32 2x2x2", 1);
        assert!(few(0..=100) < 0.8 * few(1000..=u64::MAX));
    }

    #[test]
    fn functions_and_comparisons_are_work() {
        let at = |workload: &str| time(Hint::percent(100), workload, 1);
        // 50 operations at 100 per ns for each, where traffic alone is 8 bytes at 10 per ns.
        let (relu, gelu) = (
            at("activation.relu f32 100000"),
            at("activation.gelu f32 100000"),
        );
        assert!((relu - CALL_NS - 80_000.0).abs() < 1e-6, "{relu}");
        assert!(gelu >= relu && gelu - CALL_NS >= 50_000.0, "{gelu}");
        assert!(at("sort f32 100000") > at("copy f32 100000"));
    }

    /// Ceilings with rates as they may come out of a calibration: up to a factor of 100 apart, and noisy.
    fn any_calibration() -> impl Strategy<Value = Calibration> {
        let rate = || 1e9..1e11;
        let bandwidths = prop::collection::vec(rate(), MemoryPlace::ALL.len());
        (rate(), bandwidths).prop_map(|(peak, rates)| {
            let mut made = calibration();
            for one in &mut made.peaks {
                one.rate = measured(FlopRate::new(peak * f64::from(one.threads)).unwrap());
            }
            for one in &mut made.bandwidths {
                let place = MemoryPlace::ALL
                    .iter()
                    .position(|place| *place == one.place);
                one.rate = measured(ByteRate::new(rates[place.unwrap()]).unwrap());
            }
            made
        })
    }

    proptest! {
        /// More work takes longer, nothing takes no time, and nobody is expected to be faster than the machine.
        #[test]
        fn expectations_are_sound_on_any_machine(
            calibration in any_calibration(),
            percent in 1_u8..=100,
            best in (0_u64..1 << 40, 0_u64..1 << 40),
            sizes in (1_usize..3000, 1_usize..3000),
            threads in 1_u32..=2,
        ) {
            let machine = kernelwise_probe::machine();
            let hint = Hint::percent(percent).best_for(best.0.min(best.1)..=best.0.max(best.1));
            let kernel = kernel(hint);
            let setting = Threads { threads }.setting();
            let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
            let families = [
                |n: usize| format!("copy f32 {}", n * n),
                |n: usize| format!("matmul f32 {n}x{n}x{n}"),
                |n: usize| format!("softmax f32 {n}x{n}"),
                |n: usize| format!("reduce.sum f32 {n}x{n} axes1"),
                |n: usize| format!("sort f32 {}", n * n),
            ];
            for family in families {
                let at = |n: usize| {
                    let workload: Workload = family(n).parse().unwrap();
                    let known = estimate(&kernel, &workload, &setting, &machine, &calibration);
                    let least = roofline(&workload, threads, &machine, &calibration);
                    (known.time().unwrap().get(), least.unwrap().get())
                };
                let ((less, floor), (more, ceiling)) = (at(small), at(large));
                prop_assert!(less.is_finite() && less >= CALL_NS && more.is_finite());
                prop_assert!(less >= floor && more >= ceiling);
                prop_assert!(less <= more, "{} takes {less}, {} {more}", family(small), family(large));
            }
        }
    }
}
