//! What a time means: rates, shares of what the machine can do, and whether to believe it.

use kernelwise_measure::selfcheck::{check_bandwidth, check_rate};
use kernelwise_types::calibration::{AccessPattern, Bandwidth, MemoryPlace, Peak};
use kernelwise_types::op::{Conv2d, Operation};
use kernelwise_types::units::{Bytes, FlopRate, Nanos};
use kernelwise_types::{Calibration, Machine, Measured, Technique, Workload};

/// The part of a convolution's multiply-adds that fall on the image, exactly: the others multiply a padding of zeros. The
/// count of operations includes them, so a kernel that leaves them out may run above peak by this much and be right.
///
/// ```
/// use kernelwise_bench::inside_taps;
/// use kernelwise_types::{Workload, op::Operation};
///
/// let conv: Workload = "conv2d f32 n1 c8 h3 w3 k8 r3 s3 pad1".parse()?;
/// let Operation::Conv2d(conv) = conv.operation() else { panic!() };
/// // Along each axis the window meets 2, 3 and 2 pixels of 3.
/// assert_eq!(inside_taps(conv), 49.0 / 81.0);
/// # Ok::<(), kernelwise_types::op::WorkloadError>(())
/// ```
pub fn inside_taps(conv: &Conv2d) -> f64 {
    let Ok(output) = conv.output_size() else {
        return 1.0;
    };
    let sizes = [(conv.h, conv.r), (conv.w, conv.s)];
    let along = |axis: usize| {
        let (input, taps) = sizes[axis];
        let inside = |position: usize| {
            let first = position * conv.stride[axis];
            let tap = |tap: usize| first + tap * conv.dilation[axis];
            // Positions count from the start of the padding.
            let image = conv.pad[axis]..conv.pad[axis] + input;
            (0..taps).filter(|&t| image.contains(&tap(t))).count()
        };
        let all = output[axis] * taps;
        (0..output[axis]).map(inside).sum::<usize>() as f64 / all as f64
    };
    along(0) * along(1)
}

/// What the machine can do for one shape.
#[derive(Debug, Clone)]
pub(crate) struct Ceiling {
    /// Where the operands lie, at the nearest.
    pub(crate) place: MemoryPlace,
    /// Whether they are twice as large as all caches, so that hardly anything is found there.
    pub(crate) beyond_cache: bool,
    pub(crate) peak: Option<Peak>,
    pub(crate) bandwidth: Option<Bandwidth>,
    /// Less than one where some taps fall outside the image.
    pub(crate) inside_taps: f64,
    flops: u64,
    bytes: u64,
}

impl Ceiling {
    pub(crate) fn of(
        workload: &Workload,
        threads: u32,
        machine: &Machine,
        calibration: &Calibration,
    ) -> Self {
        let (flops, bytes) = workload
            .cost()
            .map_or((0, 0), |cost| (cost.flops.0, cost.bytes().0));
        let last_level = machine.last_level_caches().map(|c| c.size_bytes.0).max();
        let beyond_cache = last_level.is_some_and(|cache| bytes >= 2 * cache);
        let place = if beyond_cache {
            MemoryPlace::Dram
        } else {
            nearest(bytes, machine)
        };
        Self {
            place,
            beyond_cache,
            peak: calibration.peak(workload.dtype(), threads).cloned(),
            bandwidth: calibration
                .bandwidth(place, pattern(workload), threads)
                .cloned(),
            inside_taps: match workload.operation() {
                Operation::Conv2d(conv) => inside_taps(conv),
                _ => 1.0,
            },
            flops,
            bytes,
        }
    }

    /// Whether the shape is limited by arithmetic rather than by memory, so that its rate is told in operations. Products and
    /// convolutions always are: that is what people ask of them.
    pub(crate) fn is_arithmetic(&self, operation: &Operation) -> bool {
        if matches!(
            operation,
            Operation::Matmul(_) | Operation::Conv2d(_) | Operation::Conv3d(_)
        ) {
            return true;
        }
        let (Some(peak), Some(bandwidth)) = (&self.peak, &self.bandwidth) else {
            return false;
        };
        let arithmetic = self.flops as f64 / peak.rate.value.get();
        arithmetic > self.bytes as f64 / bandwidth.rate.value.get()
    }

    pub(crate) fn gflops(&self, time_ns: f64) -> Option<f64> {
        (self.flops > 0 && time_ns > 0.0).then(|| self.flops as f64 / time_ns)
    }

    pub(crate) fn gbps(&self, time_ns: f64) -> Option<f64> {
        (self.bytes > 0 && time_ns > 0.0).then(|| self.bytes as f64 / time_ns)
    }

    pub(crate) fn peak_share(&self, time_ns: f64) -> Option<f64> {
        let peak = self.peak.as_ref()?;
        Some(self.gflops(time_ns)? * 1e9 / peak.rate.value.get())
    }

    pub(crate) fn bandwidth_share(&self, time_ns: f64) -> Option<f64> {
        let bandwidth = self.bandwidth.as_ref()?;
        Some(self.gbps(time_ns)? * 1e9 / bandwidth.rate.value.get())
    }

    /// Why a time is not to be believed, if so. Bandwidth is checked only far beyond the caches: what is found in one
    /// of them moves faster than the calibrated place, and rightly.
    pub(crate) fn disbelief(&self, technique: Technique, time_ns: f64) -> Option<String> {
        let time = Nanos::new(time_ns).ok()?;
        let arithmetic = self.peak.as_ref().and_then(|peak| {
            let rate = FlopRate::new(self.gflops(time_ns)? * 1e9).ok()?;
            let peak = raised(peak, self.inside_taps)?;
            check_rate(rate, &peak).err().map(|error| error.to_string())
        });
        // Fewer operations by design: the count says nothing about the arithmetic unit.
        let arithmetic = arithmetic.filter(|_| technique != Technique::Algorithmic);
        let traffic = self.bandwidth.as_ref().filter(|_| self.beyond_cache);
        let traffic = traffic.and_then(|bandwidth| {
            let rate = Bytes(self.bytes).per(time)?;
            let refused = check_bandwidth(rate, bandwidth).err();
            refused.map(|error| error.to_string())
        });
        arithmetic
            .or(traffic)
            .map(|error| format!("above peak, not believed: {error}"))
    }
}

/// A peak for work of which only this share needs doing.
fn raised(peak: &Peak, share: f64) -> Option<Peak> {
    let raise = |rate: FlopRate| FlopRate::new(rate.get() / share).ok();
    let Measured {
        value,
        low,
        high,
        samples,
    } = peak.rate;
    Some(Peak {
        rate: Measured {
            value: raise(value)?,
            low: raise(low)?,
            high: raise(high)?,
            samples,
        },
        ..peak.clone()
    })
}

/// The smallest cache that holds so many bytes, or main memory.
fn nearest(bytes: u64, machine: &Machine) -> MemoryPlace {
    let caches = machine
        .caches
        .known()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let holds = |level: u8| {
        let mut level = caches.iter().filter(|cache| cache.level == level);
        level.any(|cache| cache.size_bytes.0 >= bytes)
    };
    let levels = [
        (1, MemoryPlace::L1),
        (2, MemoryPlace::L2),
        (3, MemoryPlace::L3),
    ];
    let nearest = levels.into_iter().find(|(level, _)| holds(*level));
    nearest.map_or(MemoryPlace::Dram, |(_, place)| place)
}

/// What the calibration did that is most like this: read, copy, or read two streams and write one.
fn pattern(workload: &Workload) -> AccessPattern {
    let Some(cost) = workload.cost() else {
        return AccessPattern::Copy;
    };
    let (read, written) = (cost.bytes_read.0, cost.bytes_written.0);
    if written < read / 8 {
        AccessPattern::Read
    } else if written * 3 <= read * 2 {
        AccessPattern::Triad
    } else {
        AccessPattern::Copy
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kernelwise_types::units::ByteRate;
    use kernelwise_types::{DType, Reading};

    use super::*;

    /// 100 GFLOP/s and 10 GB/s everywhere, exactly.
    pub(crate) fn calibration() -> Calibration {
        let same = |value: f64| {
            let rate = FlopRate::new(value).unwrap();
            Measured {
                value: rate,
                low: rate,
                high: rate,
                samples: 9,
            }
        };
        let bytes = ByteRate::new(10e9).unwrap();
        let mut bandwidths = Vec::new();
        for place in MemoryPlace::ALL {
            for pattern in AccessPattern::ALL {
                bandwidths.push(Bandwidth {
                    place,
                    pattern,
                    threads: 1,
                    working_set_bytes: 1 << 28,
                    rate: Measured {
                        value: bytes,
                        low: bytes,
                        high: bytes,
                        samples: 9,
                    },
                });
            }
        }
        let nanos = Nanos::from_u64(20);
        Calibration {
            peaks: vec![Peak {
                dtype: DType::F32,
                threads: 1,
                isa: None,
                rate: same(100e9),
            }],
            bandwidths,
            handed_over: Vec::new(),
            fork_joins: Vec::new(),
            timer: Measured {
                value: nanos,
                low: nanos,
                high: nanos,
                samples: 9,
            },
            skipped: Vec::new(),
        }
    }

    /// This machine with caches of 32 KiB, 1 MiB and 16 MiB.
    fn machine() -> Machine {
        let mut machine = kernelwise_probe::machine();
        let cache = |level, size| kernelwise_types::machine::Cache {
            level,
            unified: true,
            size_bytes: Bytes(size),
            line_bytes: Reading::Known(64),
            ways: Reading::Known(8),
            shared_by: Reading::Known(1),
            instances: Reading::Known(1),
        };
        machine.caches = Reading::Known(vec![
            cache(1, 32 << 10),
            cache(2, 1 << 20),
            cache(3, 16 << 20),
        ]);
        machine
    }

    fn ceiling(text: &str) -> Ceiling {
        Ceiling::of(&text.parse().unwrap(), 1, &machine(), &calibration())
    }

    fn taps(text: &str) -> f64 {
        match text.parse::<Workload>().unwrap().operation() {
            Operation::Conv2d(conv) => inside_taps(conv),
            other => panic!("{other}"),
        }
    }

    /// Against a count of every tap of every window.
    #[test]
    fn taps_inside_the_image_are_counted_exactly() {
        assert_eq!(taps("conv2d f32 n1 c1 h9 w9 k1 r3 s3"), 1.0);
        assert_eq!(taps("conv2d f32 n1 c1 h56 w56 k1 r1 s1 stride2"), 1.0);
        for text in [
            "conv2d f32 n1 c1 h5 w7 k1 r3 s5 pad1x2",
            "conv2d f32 n1 c1 h8 w6 k1 r3 s3 stride2x1 pad2 dil2",
            "conv2d f32 n1 c1 h2 w2 k1 r5 s5 stride3 pad4",
        ] {
            let workload: Workload = text.parse().unwrap();
            let Operation::Conv2d(conv) = workload.operation() else {
                panic!()
            };
            let [p, q] = conv.output_size().unwrap();
            let (mut inside, mut all) = (0, 0);
            for (y, x) in (0..p).flat_map(|y| (0..q).map(move |x| (y, x))) {
                for (r, s) in (0..conv.r).flat_map(|r| (0..conv.s).map(move |s| (r, s))) {
                    let at = |o: usize, t: usize, axis: usize| {
                        (o * conv.stride[axis] + t * conv.dilation[axis]) as i64
                            - conv.pad[axis] as i64
                    };
                    let (row, column) = (at(y, r, 0), at(x, s, 1));
                    all += 1;
                    let on_image =
                        (0..conv.h as i64).contains(&row) && (0..conv.w as i64).contains(&column);
                    inside += i64::from(on_image);
                }
            }
            let exact = inside as f64 / f64::from(all);
            assert!((taps(text) - exact).abs() < 1e-12, "{text}: {exact}");
        }
    }

    #[test]
    fn rates_and_shares_are_those_of_the_cost() {
        let product = ceiling("matmul f32 100x100x100");
        // 2e6 operations in 40 us.
        assert_eq!(product.gflops(40_000.0), Some(50.0));
        assert_eq!(product.peak_share(40_000.0), Some(0.5));
        assert_eq!(product.gbps(40_000.0), Some(3.0));
        assert_eq!(product.bandwidth_share(40_000.0), Some(0.3));
        assert_eq!(ceiling("copy f32 100").gflops(10.0), None);
        assert_eq!(ceiling("matmul f64 100x100x100").peak_share(40_000.0), None);
    }

    #[test]
    fn a_rate_above_peak_is_not_believed_with_two_exceptions() {
        let product = ceiling("matmul f32 100x100x100");
        assert_eq!(product.disbelief(Technique::Vector, 19_100.0), None);
        let words = product.disbelief(Technique::Vector, 18_900.0).unwrap();
        assert!(
            words.starts_with("above peak, not believed: 106 GFLOP/s"),
            "{words}"
        );
        assert_eq!(product.disbelief(Technique::Algorithmic, 9_000.0), None);

        // 49 of 81 taps: the peak counts for 81/49 of itself.
        let text = "conv2d f32 n1 c100 h3 w3 k100 r3 s3 pad1";
        let conv = ceiling(text);
        let full = 2.0 * 100.0 * 100.0 * 81.0 / 100.0;
        assert_eq!(conv.disbelief(Technique::Vector, full * 49.0 / 81.0), None);
        assert!(
            conv.disbelief(Technique::Vector, full * 46.0 / 81.0)
                .is_some()
        );
    }

    #[test]
    fn bandwidth_is_judged_only_where_no_cache_helps() {
        let (near, far) = (ceiling("copy f32 1000"), ceiling("copy f32 8000000"));
        assert_eq!(
            (near.place, far.place),
            (MemoryPlace::L1, MemoryPlace::Dram)
        );
        assert!(!near.beyond_cache && far.beyond_cache);
        assert_eq!(near.disbelief(Technique::Vector, 1.0), None);
        // 64 MB at 10 GB/s are 6.4 ms.
        assert_eq!(far.disbelief(Technique::Vector, 6.3e6), None);
        assert!(far.disbelief(Technique::Algorithmic, 6.0e6).is_some());
        assert_eq!(ceiling("copy f32 1000000").place, MemoryPlace::L3);
    }

    #[test]
    fn the_roof_that_binds_names_the_rate() {
        let arithmetic =
            |text: &str| ceiling(text).is_arithmetic(text.parse::<Workload>().unwrap().operation());
        assert!(arithmetic("matmul f32 2x2x2"));
        assert!(!arithmetic("elementwise.add f32 1000"));
        assert!(
            arithmetic("fft complex64 65536") || calibration().peak(DType::Complex64, 1).is_none()
        );
        let of = |text: &str| pattern(&text.parse().unwrap());
        assert_eq!(of("copy f32 1000"), AccessPattern::Copy);
        assert_eq!(of("elementwise.add f32 1000"), AccessPattern::Triad);
        assert_eq!(of("reduce.sum f32 1000"), AccessPattern::Read);
    }
}
