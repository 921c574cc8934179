//! The table and descriptions of one's own.

use kernelwise_types::{Backend, DType};

use crate::gpu::{Api, Arithmetic, DeviceError, Gpu, Wishes, device, devices, recommend};

#[test]
fn every_row_holds_and_names_its_source() {
    let all = devices();
    assert!(all.len() > 25);
    for gpu in &all {
        gpu.check().unwrap();
        assert!(gpu.source.len() > 20, "{}", gpu.name);
        assert_eq!(device(&gpu.name).unwrap(), *gpu);
    }
}

/// Single precision peaks that the makers print, in TFLOP/s; ours follow from units, lanes and clocks.
#[test]
fn peaks_are_those_that_makers_print() {
    #[rustfmt::skip]
    let printed = [
        ("p100", 10.6), ("gtx-1080-ti", 11.3), ("v100", 15.7), ("t4", 8.1), ("rtx-2070-super", 9.1), ("rtx-2080-ti", 13.4), ("titan-rtx", 16.3),
        ("a100", 19.5), ("rtx-3060", 12.7), ("rtx-3090", 35.6), ("a10", 31.2), ("a4000", 19.2), ("a6000", 38.7), ("l4", 30.3),
        ("rtx-4090", 82.6), ("l40s", 91.6), ("h100", 66.9), ("h100-pcie", 51.2), ("v100-pcie", 14.0), ("v100-32gb", 15.7), ("p100-pcie", 9.3), ("mi250x", 23.95), ("w6600", 10.4), ("w7800", 45.2), ("apple-m2", 3.6),
    ];
    for (name, tflops) in printed {
        let peak = device(name)
            .unwrap()
            .peak_flops(DType::F32, Arithmetic::Own)
            .unwrap();
        assert!(
            (peak / 1e12 / tflops - 1.0).abs() < 0.01,
            "{name}: {peak:e}"
        );
    }
    // Half precision on matrix units, sums in single precision, no sparsity.
    let tensor = [
        ("v100", 125.0),
        ("t4", 65.0),
        ("a100", 312.0),
        ("rtx-3090", 71.0),
        ("a4000", 76.7),
        ("l4", 121.0),
        ("h100", 989.4),
        ("h100-pcie", 756.0),
        ("v100-pcie", 112.0),
    ];
    for (name, tflops) in tensor {
        let peak = device(name)
            .unwrap()
            .peak_flops(DType::F16, Arithmetic::Tensor)
            .unwrap();
        assert!(
            (peak / 1e12 / tflops - 1.0).abs() < 0.01,
            "{name}: {peak:e}"
        );
    }
    let tf32 = device("a100")
        .unwrap()
        .peak_flops(DType::F32, Arithmetic::Tensor)
        .unwrap();
    assert!((tf32 / 156e12 - 1.0).abs() < 0.01);
    // Volta and Turing have no TF32.
    assert_eq!(
        device("v100")
            .unwrap()
            .peak_flops(DType::F32, Arithmetic::Tensor),
        None
    );
}

#[test]
fn names_of_drivers_are_understood_and_others_get_a_hint() {
    for (driver, name) in [
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("NVIDIA RTX A4000", "a4000"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("AMD Radeon PRO W7800", "w7800"),
        ("Apple M1 Pro", "apple-m1-pro"),
        ("Apple M1", "apple-m1"),
        ("A100", "a100"),
    ] {
        assert_eq!(device(driver).unwrap().name, name, "{driver}");
    }
    for unknown in ["", "NVIDIA", "a101", "rtx 3090 ti", "m2", "NVIDIA H100 NVL"] {
        let found = device(unknown).map(|gpu| gpu.name);
        match unknown {
            "m2" => assert_eq!(found.unwrap(), "apple-m2"),
            _ => assert!(
                matches!(found, Err(DeviceError::Unknown { .. })),
                "{unknown}: {found:?}"
            ),
        }
    }
    let error = device("h200").unwrap_err().to_string();
    assert!(error.contains("did you mean `h100`?"), "{error}");
}

#[test]
fn descriptions_of_ones_own_are_read_and_checked() {
    let json = serde_json::to_string(&device("a100").unwrap()).unwrap();
    let read: Gpu = serde_json::from_str(&json).unwrap();
    assert_eq!(read, device("a100").unwrap());
    type Break = fn(&mut Gpu);
    let broken: [(&str, Break); 12] = [
        ("clock_mhz", |gpu| gpu.clock_mhz = Some(f64::NAN)),
        ("clock_mhz", |gpu| gpu.clock_mhz = Some(-1.0)),
        ("bandwidth_gbs", |gpu| gpu.bandwidth_gbs = Some(0.0)),
        ("bandwidth_gbs", |gpu| {
            gpu.bandwidth_gbs = Some(f64::INFINITY)
        }),
        ("units", |gpu| gpu.units = Some(0)),
        ("subgroup", |gpu| gpu.subgroup = 0),
        ("limits.threads_per_group", |gpu| {
            gpu.limits.threads_per_group = 0
        }),
        ("limits.grid", |gpu| gpu.limits.grid[1] = 0),
        ("memory_bytes", |gpu| gpu.memory_bytes = Some(0)),
        ("lanes.f32", |gpu| gpu.lanes.as_mut().unwrap().f32 = 0),
        ("residency.registers", |gpu| {
            gpu.residency.as_mut().unwrap().registers = Some(0)
        }),
        ("tensor.f16", |gpu| gpu.tensor.as_mut().unwrap().f16 = 0),
    ];
    for (field, change) in broken {
        let mut gpu = read.clone();
        change(&mut gpu);
        let error = gpu.check().unwrap_err();
        assert!(
            matches!(&error, DeviceError::Figure { field: named, .. } if *named == field),
            "{field}: {error}"
        );
        assert!(error.to_string().contains(field), "{error}");
    }
    let mut gpu = read.clone();
    gpu.residency.as_mut().unwrap().threads = 512;
    assert!(matches!(
        gpu.check(),
        Err(DeviceError::Contradiction { .. })
    ));
    let mut gpu = read;
    gpu.limits.shared_per_group = 1 << 30;
    assert!(matches!(
        gpu.check(),
        Err(DeviceError::Contradiction { .. })
    ));
}

#[test]
fn what_is_not_published_is_not_there() {
    let web = device("webgpu-default").unwrap();
    assert_eq!(web.peak_flops(DType::F32, Arithmetic::Own), None);
    assert_eq!(
        (web.bandwidth(), web.memory_bytes, web.residency),
        (None, None, None)
    );
    assert_eq!(web.limits.binding_bytes, Some(128 << 20));
    assert_eq!(
        (web.limits.shared_per_group, web.limits.threads_per_group),
        (16_384, 256)
    );
    // Apple tells cores and bandwidth of an M3, not how fast it computes.
    let m3 = device("apple-m3").unwrap();
    assert_eq!(m3.peak_flops(DType::F32, Arithmetic::Own), None);
    assert!(m3.bandwidth().is_some());
    // Why there is no time is said.
    let product = "matmul f32 512x512x512".parse().unwrap();
    for (gpu, why) in [
        (web, "WebGPU tells limits, not how fast"),
        (
            m3,
            "it is not published for apple-m3: its clock or how fast it computes",
        ),
    ] {
        let advice = recommend(&gpu, &product, &Wishes::default()).unwrap();
        assert_eq!(advice.prediction, None);
        let said = advice.reasoning.join("; ");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_description_may_leave_out_what_is_unknown_and_names_what_is_wrong() {
    let least = r#"{"name": "mine", "source": "I", "api": "web_gpu", "subgroup": 32, "half": false, "limits":
        {"threads_per_group": 256, "group": [256, 256, 64], "grid": [65535, 65535, 65535], "shared_per_group": 16384}}"#;
    let mine = Gpu::read(least).unwrap();
    assert_eq!((mine.units, mine.limits.binding_bytes), (None, None));
    assert_eq!(mine.unknown_rates().len(), 4);
    for (change, field) in [
        (
            least.replace("\"subgroup\": 32", "\"subgroup\": 0"),
            "`subgroup` is 0",
        ),
        (
            least.replace("\"subgroup\": 32,", ""),
            "missing field `subgroup`",
        ),
        (
            least.replace("\"half\"", "\"clock_mhZ\": 5, \"half\""),
            "unknown field `clock_mhZ`",
        ),
        (
            least.replace("web_gpu", "opencl"),
            "unknown variant `opencl`",
        ),
        (least.replace("16384", "\"much\""), "expected u64"),
    ] {
        let error = Gpu::read(&change).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn backends_and_element_types_are_those_of_the_api() {
    assert_eq!(device("a100").unwrap().api.backend(), Backend::Cuda);
    assert_eq!(device("apple-m1").unwrap().api.backend(), Backend::Metal);
    // An AMD device is described with the limits and types of its own driver, and not called anything else.
    assert_eq!(device("mi250x").unwrap().api.backend(), Backend::Hip);
    assert!(device("mi250x").unwrap().holds(DType::F64));
    assert_eq!(device("webgpu-default").unwrap().api, Api::WebGpu);
    let holds = |name: &str, dtype| device(name).unwrap().holds(dtype);
    assert!(holds("a100", DType::F64) && !holds("apple-m2", DType::F64));
    assert!(!holds("webgpu-default", DType::F16) && holds("webgpu-default", DType::I8));
    assert!(!holds("webgpu-default", DType::I64) && holds("apple-m2", DType::I64));
}
