//! Devices whose makers published enough, each with the document that says so.
//!
//! Figures are those of the document named in the row; what it does not say is `None`. NVIDIA's limits per multiprocessor come from
//! the [compute capability](super::Capability). Single precision peaks follow from units, lanes and clock, and agree
//! with the published ones (tested).

use super::capability::{Capability, column};
use super::device::{Api, DeviceError, Gpu, Lanes, Limits, Residency, Tensor};
use crate::nearest;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One NVIDIA product.
struct Nvidia {
    name: &'static str,
    capability: (u32, u32),
    units: u32,
    clock_mhz: f64,
    gbs: f64,
    gib: u64,
    /// In units of 256 KiB: some are odd.
    l2_quarters: u64,
    l2_bytes_per_clock: Option<u32>,
    /// f16, bf16, TF32.
    tensor: Option<[u32; 3]>,
    tensor_mhz: Option<f64>,
    source: &'static str,
}

#[rustfmt::skip]
const NVIDIA: &[Nvidia] = &[
    Nvidia { name: "p100", capability: (6, 0), units: 56, clock_mhz: 1480.0, gbs: 732.0, gib: 16, l2_quarters: 16, l2_bytes_per_clock: None, tensor: None, tensor_mhz: None,
        source: "NVIDIA Tesla P100 whitepaper (WP-08019), table 1, SXM2" },
    Nvidia { name: "p100-pcie", capability: (6, 0), units: 56, clock_mhz: 1303.0, gbs: 732.0, gib: 16, l2_quarters: 16, l2_bytes_per_clock: None, tensor: None, tensor_mhz: None,
        source: "NVIDIA Tesla P100 PCIe datasheet (9.3 teraflops, 732 GB/s); per unit as in the P100 whitepaper" },
    Nvidia { name: "gtx-1080-ti", capability: (6, 1), units: 28, clock_mhz: 1582.0, gbs: 484.0, gib: 11, l2_quarters: 11, l2_bytes_per_clock: None, tensor: None, tensor_mhz: None,
        source: "NVIDIA Turing whitepaper (WP-09183), appendix, GTX 1080 Ti reference" },
    Nvidia { name: "v100", capability: (7, 0), units: 80, clock_mhz: 1530.0, gbs: 900.0, gib: 16, l2_quarters: 24, l2_bytes_per_clock: Some(2048), tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Tesla V100 whitepaper (WP-08608), table 1, SXM2; cache rate: A100 whitepaper" },
    Nvidia { name: "v100-32gb", capability: (7, 0), units: 80, clock_mhz: 1530.0, gbs: 900.0, gib: 32, l2_quarters: 24, l2_bytes_per_clock: Some(2048), tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Tesla V100 datasheet, SXM2 32 GB; per unit as in the V100 whitepaper; cache rate: A100 whitepaper" },
    Nvidia { name: "v100-pcie", capability: (7, 0), units: 80, clock_mhz: 1370.0, gbs: 900.0, gib: 16, l2_quarters: 24, l2_bytes_per_clock: Some(2048), tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Tesla V100 datasheet, PCIe 16 GB; the clock follows from its 14 teraflops; cache rate: A100 whitepaper" },
    Nvidia { name: "v100-pcie-32gb", capability: (7, 0), units: 80, clock_mhz: 1370.0, gbs: 900.0, gib: 32, l2_quarters: 24, l2_bytes_per_clock: Some(2048), tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Tesla V100 datasheet, PCIe 32 GB; the clock follows from its 14 teraflops; cache rate: A100 whitepaper" },
    Nvidia { name: "t4", capability: (7, 5), units: 40, clock_mhz: 1590.0, gbs: 320.0, gib: 16, l2_quarters: 16, l2_bytes_per_clock: None, tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Turing whitepaper (WP-09183), Tesla T4" },
    Nvidia { name: "rtx-2070-super", capability: (7, 5), units: 40, clock_mhz: 1770.0, gbs: 448.0, gib: 8, l2_quarters: 16, l2_bytes_per_clock: None, tensor: Some([256, 0, 0]), tensor_mhz: None,
        source: "NVIDIA product page of the RTX 2070 SUPER; per unit as in the Turing whitepaper" },
    Nvidia { name: "rtx-2080-ti", capability: (7, 5), units: 68, clock_mhz: 1545.0, gbs: 616.0, gib: 11, l2_quarters: 22, l2_bytes_per_clock: None, tensor: Some([256, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Turing whitepaper (WP-09183), table 1, RTX 2080 Ti reference" },
    Nvidia { name: "titan-rtx", capability: (7, 5), units: 72, clock_mhz: 1770.0, gbs: 672.0, gib: 24, l2_quarters: 24, l2_bytes_per_clock: None, tensor: Some([512, 0, 0]), tensor_mhz: None,
        source: "NVIDIA Turing whitepaper (WP-09183), Titan RTX" },
    Nvidia { name: "a100", capability: (8, 0), units: 108, clock_mhz: 1410.0, gbs: 1555.0, gib: 40, l2_quarters: 160, l2_bytes_per_clock: Some(5120), tensor: Some([1024, 1024, 512]), tensor_mhz: None,
        source: "NVIDIA A100 whitepaper (2020), table 4 and text on the L2 cache, 40 GB" },
    Nvidia { name: "a100-80gb", capability: (8, 0), units: 108, clock_mhz: 1410.0, gbs: 2039.0, gib: 80, l2_quarters: 160, l2_bytes_per_clock: Some(5120), tensor: Some([1024, 1024, 512]), tensor_mhz: None,
        source: "NVIDIA A100 datasheet (80 GB SXM) and whitepaper" },
    Nvidia { name: "a100-80gb-pcie", capability: (8, 0), units: 108, clock_mhz: 1410.0, gbs: 1935.0, gib: 80, l2_quarters: 160, l2_bytes_per_clock: Some(5120), tensor: Some([1024, 1024, 512]), tensor_mhz: None,
        source: "NVIDIA A100 datasheet (80 GB PCIe) and whitepaper" },
    Nvidia { name: "rtx-3060", capability: (8, 6), units: 28, clock_mhz: 1777.0, gbs: 360.0, gib: 12, l2_quarters: 0, l2_bytes_per_clock: None, tensor: Some([256, 256, 128]), tensor_mhz: None,
        source: "NVIDIA product page of the RTX 3060; per unit as in the GA102 whitepaper" },
    Nvidia { name: "rtx-3090", capability: (8, 6), units: 82, clock_mhz: 1695.0, gbs: 936.0, gib: 24, l2_quarters: 24, l2_bytes_per_clock: None, tensor: Some([256, 256, 128]), tensor_mhz: None,
        source: "NVIDIA GA102 whitepaper (v2), RTX 3090" },
    Nvidia { name: "a10", capability: (8, 6), units: 72, clock_mhz: 1695.0, gbs: 600.0, gib: 24, l2_quarters: 24, l2_bytes_per_clock: None, tensor: Some([512, 512, 256]), tensor_mhz: None,
        source: "NVIDIA A10 datasheet; per unit as in the GA102 whitepaper" },
    Nvidia { name: "a4000", capability: (8, 6), units: 48, clock_mhz: 1560.0, gbs: 448.0, gib: 16, l2_quarters: 16, l2_bytes_per_clock: None, tensor: Some([512, 512, 256]), tensor_mhz: None,
        source: "NVIDIA RTX A4000 datasheet; per unit as in the GA102 whitepaper" },
    Nvidia { name: "a6000", capability: (8, 6), units: 84, clock_mhz: 1800.0, gbs: 768.0, gib: 48, l2_quarters: 24, l2_bytes_per_clock: None, tensor: Some([512, 512, 256]), tensor_mhz: None,
        source: "NVIDIA GA102 whitepaper (v2), RTX A6000" },
    Nvidia { name: "l4", capability: (8, 9), units: 58, clock_mhz: 2040.0, gbs: 300.0, gib: 24, l2_quarters: 192, l2_bytes_per_clock: None, tensor: Some([512, 512, 256]), tensor_mhz: None,
        source: "NVIDIA L4 datasheet; per unit as in the Ada whitepaper" },
    Nvidia { name: "rtx-4090", capability: (8, 9), units: 128, clock_mhz: 2520.0, gbs: 1008.0, gib: 24, l2_quarters: 288, l2_bytes_per_clock: None, tensor: Some([256, 256, 128]), tensor_mhz: None,
        source: "NVIDIA Ada whitepaper (v2), RTX 4090" },
    Nvidia { name: "l40s", capability: (8, 9), units: 142, clock_mhz: 2520.0, gbs: 864.0, gib: 48, l2_quarters: 384, l2_bytes_per_clock: None, tensor: Some([512, 512, 256]), tensor_mhz: None,
        source: "NVIDIA L40S datasheet; per unit as in the Ada whitepaper" },
    Nvidia { name: "h100", capability: (9, 0), units: 132, clock_mhz: 1980.0, gbs: 3352.0, gib: 80, l2_quarters: 200, l2_bytes_per_clock: None, tensor: Some([2048, 2048, 1024]), tensor_mhz: Some(1830.0),
        source: "NVIDIA H100 whitepaper (v1.04), tables 2 and 3, SXM5" },
    Nvidia { name: "h100-pcie", capability: (9, 0), units: 114, clock_mhz: 1755.0, gbs: 2000.0, gib: 80, l2_quarters: 200, l2_bytes_per_clock: None, tensor: Some([2048, 2048, 1024]), tensor_mhz: Some(1620.0),
        source: "NVIDIA H100 whitepaper (v1.04), tables 2 and 3, PCIe; H100 datasheet: 2 TB/s, 756 teraflops of half precision on matrix units, which their clock follows from" },
];

impl Nvidia {
    fn gpu(&self) -> Option<Gpu> {
        let capability = Capability {
            major: self.capability.0,
            minor: self.capability.1,
        };
        let column = column(capability)?;
        let positive = |n: u32| (n > 0).then_some(n);
        Some(Gpu {
            name: self.name.to_owned(),
            source: format!(
                "{}; CUDA C++ Programming Guide, compute capability {capability}",
                self.source
            ),
            api: Api::Cuda,
            capability: Some(capability),
            units: Some(self.units),
            clock_mhz: Some(self.clock_mhz),
            published_tflops: None,
            subgroup: 32,
            lanes: Some(column.lanes),
            tensor: self.tensor.map(|[f16, bf16, tf32]| Tensor {
                f16,
                bf16: positive(bf16),
                tf32: positive(tf32),
                clock_mhz: self.tensor_mhz,
            }),
            bandwidth_gbs: Some(self.gbs),
            memory_bytes: Some(self.gib * GIB),
            l2_bytes: Some(self.l2_quarters * MIB / 4).filter(|&bytes| bytes > 0),
            l2_bytes_per_clock: self.l2_bytes_per_clock,
            half: true,
            limits: Limits {
                threads_per_group: 1024,
                group: [1024, 1024, 64],
                grid: [(1 << 31) - 1, 65_535, 65_535],
                shared_per_group: column.shared_per_block,
                binding_bytes: None,
            },
            residency: Some(column.residency),
        })
    }
}

/// One Apple chip. Limits are those of the Metal feature set tables for families Apple7 to Apple9.
struct Apple {
    name: &'static str,
    cores: u32,
    tflops: Option<f64>,
    gbs: f64,
    /// Threads per core, where Apple told how many a chip holds.
    threads: Option<u32>,
    source: &'static str,
}

#[rustfmt::skip]
const APPLE: &[Apple] = &[
    Apple { name: "apple-m1", cores: 8, tflops: Some(2.6), gbs: 68.25, threads: Some(3072), source: "Apple newsroom, November 2020: 8 cores, 2.6 teraflops, nearly 25,000 threads" },
    Apple { name: "apple-m1-pro", cores: 16, tflops: Some(5.2), gbs: 200.0, threads: Some(3072), source: "Apple newsroom, October 2021: M1 Pro" },
    Apple { name: "apple-m1-max", cores: 32, tflops: Some(10.4), gbs: 400.0, threads: Some(3072), source: "Apple newsroom, October 2021: M1 Max" },
    Apple { name: "apple-m1-ultra", cores: 64, tflops: Some(20.8), gbs: 800.0, threads: Some(3072), source: "Apple newsroom, March 2022: two M1 Max" },
    Apple { name: "apple-m2", cores: 10, tflops: Some(3.6), gbs: 100.0, threads: None, source: "Apple newsroom, June 2022: 10 cores, 3.6 teraflops, 100 GB/s" },
    Apple { name: "apple-m2-pro", cores: 19, tflops: None, gbs: 200.0, threads: None, source: "Apple newsroom, January 2023: M2 Pro" },
    Apple { name: "apple-m2-max", cores: 38, tflops: None, gbs: 400.0, threads: None, source: "Apple newsroom, January 2023: M2 Max" },
    Apple { name: "apple-m2-ultra", cores: 76, tflops: None, gbs: 800.0, threads: None, source: "Apple newsroom, June 2023: M2 Ultra" },
    Apple { name: "apple-m3", cores: 10, tflops: None, gbs: 100.0, threads: None, source: "Apple newsroom, October 2023: M3" },
    Apple { name: "apple-m3-pro", cores: 18, tflops: None, gbs: 150.0, threads: None, source: "Apple newsroom, October 2023: M3 Pro" },
    Apple { name: "apple-m3-max", cores: 40, tflops: None, gbs: 400.0, threads: None, source: "Apple newsroom, October 2023: M3 Max" },
];

impl Apple {
    fn gpu(&self) -> Gpu {
        Gpu {
            name: self.name.to_owned(),
            source: format!("{}; Metal feature set tables", self.source),
            api: Api::Metal,
            capability: None,
            units: Some(self.cores),
            clock_mhz: None,
            published_tflops: self.tflops,
            subgroup: 32,
            // 128 lanes per core are not Apple's word: they follow from published rates and clocks that others measured.
            // Only their product with the clock enters a peak, and that is published.
            lanes: Some(Lanes {
                f32: 128,
                f16: Some(128),
                f64: None,
                int: 128,
                special: 32,
            }),
            tensor: None,
            bandwidth_gbs: Some(self.gbs),
            // Shared with the processor: how much of it is free depends on the machine.
            memory_bytes: None,
            l2_bytes: None,
            l2_bytes_per_clock: None,
            half: true,
            limits: Limits {
                threads_per_group: 1024,
                group: [1024, 1024, 1024],
                // Metal names no limit for threadgroups per grid; positions are 32-bit.
                grid: [u32::MAX as u64; 3],
                shared_per_group: 32 << 10,
                binding_bytes: None,
            },
            residency: self.threads.map(|threads| Residency {
                threads,
                groups: threads / 32,
                registers: None,
                registers_per_thread: 128,
                register_unit: 1,
                partitions: 1,
                shared: None,
                shared_unit: 16,
                shared_reserve: 0,
            }),
        }
    }
}

/// One AMD product: subgroup, units, clock, bandwidth, memory, cache, and the registers of a unit.
struct Amd {
    name: &'static str,
    subgroup: u32,
    units: u32,
    clock_mhz: f64,
    gbs: f64,
    gib: u64,
    l2_mib: u64,
    lanes: [u32; 3],
    registers: u32,
    register_unit: u32,
    partitions: u32,
    threads: u32,
    source: &'static str,
}

#[rustfmt::skip]
const AMD: &[Amd] = &[
    // One of its two dies: they are two devices to a program.
    Amd { name: "mi250x", subgroup: 64, units: 110, clock_mhz: 1700.0, gbs: 1638.0, gib: 64, l2_mib: 8, lanes: [64, 256, 64], registers: 131_072, register_unit: 512, partitions: 4, threads: 2048,
        source: "AMD CDNA 2 whitepaper and instruction set guide, one die of an MI250X" },
    Amd { name: "w6600", subgroup: 32, units: 28, clock_mhz: 2903.0, gbs: 224.0, gib: 8, l2_mib: 2, lanes: [64, 128, 4], registers: 65_536, register_unit: 256, partitions: 2, threads: 1024,
        source: "AMD Radeon PRO W6600 product page; RDNA 2 instruction set guide" },
    Amd { name: "w7800", subgroup: 32, units: 70, clock_mhz: 2525.0, gbs: 576.0, gib: 32, l2_mib: 6, lanes: [128, 256, 4], registers: 98_304, register_unit: 768, partitions: 2, threads: 1024,
        source: "AMD Radeon PRO W7800 product page; RDNA 3 instruction set guide" },
];

impl Amd {
    fn gpu(&self) -> Gpu {
        let [f32, f16, f64] = self.lanes;
        Gpu {
            name: self.name.to_owned(),
            source: self.source.to_owned(),
            api: Api::Hip,
            capability: None,
            units: Some(self.units),
            clock_mhz: Some(self.clock_mhz),
            published_tflops: None,
            subgroup: self.subgroup,
            lanes: Some(Lanes {
                f32,
                f16: Some(f16),
                f64: Some(f64),
                int: f32 / 2,
                special: 16,
            }),
            tensor: None,
            bandwidth_gbs: Some(self.gbs),
            memory_bytes: Some(self.gib * GIB),
            l2_bytes: Some(self.l2_mib * MIB),
            l2_bytes_per_clock: None,
            half: true,
            limits: Limits {
                threads_per_group: 1024,
                group: [1024; 3],
                grid: [(1 << 31) - 1, 65_535, 65_535],
                shared_per_group: 64 << 10,
                binding_bytes: None,
            },
            residency: Some(Residency {
                threads: self.threads,
                groups: 32,
                registers: Some(self.registers),
                registers_per_thread: 256,
                register_unit: self.register_unit,
                partitions: self.partitions,
                shared: Some(64 << 10),
                shared_unit: 512,
                shared_reserve: 0,
            }),
        }
    }
}

/// What every WebGPU adapter grants: the default limits of the specification. How fast it is, nobody says.
fn webgpu_default() -> Gpu {
    Gpu {
        name: "webgpu-default".to_owned(),
        source: "WebGPU specification (W3C), default limits".to_owned(),
        api: Api::WebGpu,
        capability: None,
        units: None,
        clock_mhz: None,
        published_tflops: None,
        // Not told without the `subgroups` feature; 32 is the common multiple of what most adapters have.
        subgroup: 32,
        lanes: None,
        tensor: None,
        bandwidth_gbs: None,
        memory_bytes: None,
        l2_bytes: None,
        l2_bytes_per_clock: None,
        half: false,
        limits: Limits {
            threads_per_group: 256,
            group: [256, 256, 64],
            grid: [65_535; 3],
            shared_per_group: 16_384,
            binding_bytes: Some(128 * MIB),
        },
        residency: None,
    }
}

/// Every device of the table.
pub fn devices() -> Vec<Gpu> {
    let nvidia = NVIDIA.iter().filter_map(Nvidia::gpu);
    let apple = APPLE.iter().map(Apple::gpu);
    let amd = AMD.iter().map(Amd::gpu);
    let all = nvidia.chain(apple).chain(amd);
    all.chain([webgpu_default()]).collect()
}

/// The names of the table.
pub(super) fn names() -> Vec<String> {
    devices().into_iter().map(|gpu| gpu.name).collect()
}

pub(super) fn hint(name: &str) -> String {
    let names = names();
    nearest::hint(name, names.iter().map(String::as_str))
}

/// Words of a driver's name that tell products apart from nothing.
const NOISE: &[&str] = &[
    "nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct", "pro", "rtx", "gtx",
    "gpu", "pcie", "sxm", "sxm2", "sxm4", "sxm5", "hbm2", "hbm2e", "hbm3", "apple", "graphics",
];

/// The device of a name: that of the table, or what its driver calls it (`NVIDIA A100-PCIE-40GB`).
///
/// ```
/// use kernelwise_tune::gpu::device;
///
/// assert_eq!(device("A100")?.units, Some(108));
/// assert_eq!(device("NVIDIA GeForce RTX 2080 Ti")?.name, "rtx-2080-ti");
/// let error = device("rtx-3900").unwrap_err().to_string();
/// assert!(error.contains("did you mean `rtx-3090`?"), "{error}");
/// # Ok::<(), kernelwise_tune::gpu::DeviceError>(())
/// ```
pub fn device(name: &str) -> Result<Gpu, DeviceError> {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut found: Option<(isize, Gpu)> = None;
    for gpu in devices() {
        if gpu.name == lower {
            return Ok(gpu);
        }
        let own: Vec<&str> = gpu.name.split('-').collect();
        // Every word of ours that is not mere noise has to be there, and what is left over has to be noise or a memory size.
        let mut telling = own.iter().filter(|word| !NOISE.contains(word));
        let mut rest = words.iter().filter(|word| !own.contains(word));
        let fits = telling.all(|word| words.contains(word))
            && rest.all(|word| NOISE.contains(word) || word.ends_with("gb"));
        // `Apple M1 Pro` is not an `apple-m1`: the more of our words are there, and the fewer are not, the better.
        let there = own.iter().filter(|word| words.contains(word)).count() as isize;
        let likeness = 2 * there - own.len() as isize;
        if fits && found.as_ref().is_none_or(|(best, _)| likeness > *best) {
            found = Some((likeness, gpu));
        }
    }
    let unknown = || DeviceError::Unknown {
        name: name.to_owned(),
    };
    found.map(|(_, gpu)| gpu).ok_or_else(unknown)
}

/// The device that a file's name speaks of, such as `convolution-MI250X.json.gz`.
///
/// ```
/// use kernelwise_tune::gpu::device_of_file;
///
/// assert_eq!(device_of_file("dedispersion_milo-MI250X.json.gz").as_deref(), Some("mi250x"));
/// assert_eq!(device_of_file("gemm-RTX_2080_Ti.json").as_deref(), Some("rtx-2080-ti"));
/// // Results in the format T4 are not of a GPU of that name.
/// assert_eq!(device_of_file("A100_T4.json.gz").as_deref(), Some("a100"));
/// assert_eq!(device_of_file("program.t4.json"), None);
/// ```
pub fn device_of_file(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let is_mark = |c: char| !c.is_ascii_alphanumeric();
    let words: Vec<&str> = lower
        .split(is_mark)
        .filter(|word| !word.is_empty())
        .collect();
    let names = names();
    let found = names.iter().filter(|name| *name != "t4").filter(|name| {
        let own: Vec<&str> = name.split('-').collect();
        words.windows(own.len()).any(|run| run == own)
    });
    // `rtx-3090` rather than a shorter one that is part of it; of several as long, the first that the table has.
    let longest = found.rev().max_by_key(|name| name.len());
    longest.cloned()
}
