//! The packed product and the libraries as kernels.

use half::{bf16, f16};
use kernelwise_backend::{
    Call, Fault, Host, HostKernel, Knobs, Scratch, Setting, Terms, conformance, run,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, Element, Layout, Machine, Params, Shape, TensorView, TensorViewMut, Workload,
};

use super::batched::BatchedKnobs;
use super::library::LibraryKnobs;
use super::packed::PackedKnobs;
use super::split::SplitKnobs;
use super::*;

const OURS: [&str; 6] = [
    "packed-",
    "batched-",
    "splitk-",
    "gemm",
    "matrixmultiply",
    "openblas",
];

fn ours() -> Vec<Arc<dyn HostKernel>> {
    kernels(&Level::all())
        .unwrap()
        .into_iter()
        .filter(|kernel| {
            let variant = kernel.spec().id.variant();
            OURS.iter().any(|ours| variant.starts_with(ours)) && !variant.starts_with("gemv")
        })
        .collect()
}

fn kernel(id: &str) -> Arc<dyn HostKernel> {
    let mut kernels = ours().into_iter();
    kernels
        .find(|kernel| kernel.spec().id.as_str() == id)
        .unwrap()
}

fn widest(dtype: &str, variant: &str) -> Arc<dyn HostKernel> {
    kernel(&format!(
        "cpu-matmul-{dtype}-{variant}-{}",
        Level::widest().name()
    ))
}

#[test]
fn every_kernel_keeps_the_contract() {
    let machine = kernelwise_probe::machine();
    let host = Host::new(machine.clone(), ours()).unwrap();
    let report = conformance::check(&host, &machine, "matmul");
    assert!(report.findings.is_empty(), "{report}");
    for kernel in ours() {
        let report = conformance::check_host(&kernel, &machine);
        assert!(report.findings.is_empty(), "{report}");
    }
}

/// Runs contiguous operands; returns the result.
fn execute<T: Element>(
    kernel: &dyn HostKernel,
    text: &str,
    setting: &Setting,
    a: &[T],
    b: &[T],
    c: &mut [T],
) -> Result<(), Fault> {
    let workload: Workload = text.parse().unwrap();
    let shape = |i: usize| workload.inputs()[i].shape;
    let inputs = [
        TensorView::contiguous(a, shape(0)).unwrap(),
        TensorView::contiguous(b, shape(1)).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(c, workload.outputs()[0].shape).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    scratch.reserve(kernel.workspace(&workload, setting))?;
    kernel.execute(&mut call, setting, &mut scratch)
}

/// Deep enough for the kernel that cuts the depth, and compared in every setting of few parts.
#[test]
fn deep_products_are_summed_in_parts() {
    let (m, n, k) = (3, 5, 515);
    let value = |i: usize| ((i * 37 % 101) as f64 - 50.0) / 64.0;
    let a: Vec<f64> = (0..m * k).map(value).collect();
    let b: Vec<f64> = (0..k * n).map(|i| value(i + 7)).collect();
    let mut wanted = vec![0.0; m * n];
    for (i, wanted) in wanted.iter_mut().enumerate() {
        // Multiples of 2^-12 below 2^10: every product and sum here is exact.
        *wanted = (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
    }
    for kernel in ours() {
        let id = &kernel.spec().id;
        if !id.variant().starts_with("splitk") || id.dtypes() != [DType::F64] {
            continue;
        }
        for (threads, parts) in [(1, 1), (1, 2), (2, 2), (2, 8), (3, 7), (1, 600)] {
            let mut c = vec![f64::NAN; m * n];
            let setting = SplitKnobs { threads, parts }.setting();
            execute(&*kernel, "matmul f64 3x515x5", &setting, &a, &b, &mut c).unwrap();
            assert_eq!(c, wanted, "{id} {threads} {parts}");
        }
    }
}

/// 2^24 + 1 is no f32: what is added after it is lost, unless another part has summed it apart.
#[test]
fn parts_are_summed_apart() {
    let k = 1024;
    let (a, mut b) = (vec![1f32; k], vec![1f32; k]);
    b[0] = 16_777_216.0;
    let kernel = kernel("cpu-matmul-f32-splitk-portable");
    let sum = |parts| {
        let mut c = [0f32];
        let setting = SplitKnobs { threads: 1, parts }.setting();
        execute(&*kernel, "matmul f32 1x1024x1", &setting, &a, &b, &mut c).unwrap();
        c[0] - 16_777_216.0
    };
    assert!(sum(8) > sum(2), "{} {}", sum(8), sum(2));
}

#[test]
fn shapes_that_are_not_for_a_kernel_are_refused_with_the_reason() {
    let refusal = |variant: &str, text: &str| {
        let workload: Workload = text.parse().unwrap();
        let refusal = widest("f32", variant).accepts(&workload);
        refusal.map_err(|refusal| refusal.to_string())
    };
    assert_eq!(refusal("splitk", "matmul f32 4x512x4"), Ok(()));
    for text in [
        "matmul f32 4x511x4",
        "matmul f32 600x512x4",
        "matmul f32 2x4x512x4",
    ] {
        let reason = refusal("splitk", text).unwrap_err();
        assert!(reason.contains("at least 512 deep"), "{reason}");
    }
    assert_eq!(refusal("batched", "matmul f32 2x4x4x4"), Ok(()));
    let reason = refusal("batched", "matmul f32 4x4x4").unwrap_err();
    assert_eq!(reason, "needs a stack of at least two products");
}

fn space_of(
    kernel: &dyn HostKernel,
    text: &str,
    machine: &Machine,
) -> Vec<(String, Vec<u32>, u32)> {
    kernel
        .space(&text.parse().unwrap(), machine)
        .axes()
        .map(|(name, axis)| {
            (
                name.to_owned(),
                axis.values().to_vec(),
                axis.default_value(),
            )
        })
        .collect()
}

#[test]
fn spaces_offer_what_makes_a_difference() {
    let machine = kernelwise_probe::machine();
    let kernel = kernel("cpu-matmul-f32-packed-portable");
    let values = |text: &str, name: &str| {
        let space = space_of(&*kernel, text, &machine);
        let (_, values, default) = space.into_iter().find(|axis| axis.0 == name).unwrap();
        assert!(values.contains(&default));
        values
    };
    assert_eq!(values("matmul f32 8x64x100", "mc"), [8], "one block is all");
    assert!(values("matmul f32 1000x64x100", "mc").len() >= 6);
    assert_eq!(values("matmul f32 8x64x100", "kc"), [64]);
    assert!(values("matmul f32 8x130x100", "kc").starts_with(&[64, 128, 192]));
    assert_eq!(values("matmul f32 8x64x100", "nc"), [128]);
    assert_eq!(values("matmul f32 8x64x100", "pack_b"), [0, 1]);
    assert_eq!(
        values("matmul f32 8x64x100 tb", "pack_b"),
        [1],
        "lanes lie apart"
    );
    assert_eq!(
        values("matmul f32 8x64x100", "threads").len(),
        machine.usable_threads() as usize
    );
    let deep = space_of(&*widest("f32", "splitk"), "matmul f32 4x600x4", &machine);
    assert_eq!(deep[1].1, [2, 4, 8], "parts of at least 64");
}

/// The workspace is what the setting packs; with less the kernel does not begin.
#[test]
fn workspace_follows_the_setting() {
    let kernel = widest("f32", "packed");
    let machine = kernelwise_probe::machine();
    let knobs = PackedKnobs {
        threads: 1,
        mc: 64,
        kc: 128,
        nc: 256,
        pack_a: 1,
        pack_b: 1,
    };
    let needs = |text: &str, knobs: PackedKnobs| {
        kernel.workspace(&text.parse().unwrap(), &knobs.setting()).0
    };
    let text = "matmul f32 200x300x400";
    let all = needs(text, knobs);
    assert!(needs(text, PackedKnobs { mc: 32, ..knobs }) < all);
    assert!(needs(text, PackedKnobs { kc: 64, ..knobs }) < all);
    assert!(needs(text, PackedKnobs { nc: 128, ..knobs }) < all);
    assert!(
        needs(
            text,
            PackedKnobs {
                threads: 2,
                ..knobs
            }
        ) > all
    );
    let neither = PackedKnobs {
        pack_a: 0,
        pack_b: 0,
        ..knobs
    };
    assert!(needs(text, neither) < 100, "nothing is packed");
    assert!(needs(text, PackedKnobs { pack_b: 0, ..knobs }) < all);
    let strided = "matmul f32 200x300x400 layout=strided";
    assert!(
        needs(strided, neither) >= all,
        "what cannot be read in place"
    );
    assert!(needs("matmul f32 200x300x400 tb", neither) > 100);

    let (a, b) = ([1f32; 4], [1f32; 4]);
    let mut c = [7f32; 4];
    let shape: Shape = "2x2".parse().unwrap();
    let workload: Workload = "matmul f32 2x2x2".parse().unwrap();
    let inputs = [
        TensorView::contiguous(&a, shape).unwrap(),
        TensorView::contiguous(&b, shape).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut c, shape).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let error = kernel.execute(&mut call, &knobs.setting(), &mut Scratch::new());
    assert!(matches!(error, Err(Fault::Workspace { .. })), "{error:?}");
    let terms = Terms {
        workspace: Bytes(0),
        ..Terms::usual(&machine)
    };
    let space = kernel.space(&workload, &machine);
    let packing = Params::new().with("pack_b", 1).unwrap();
    let setting = space.setting(&packing).unwrap();
    let error = run(&*kernel, &mut call, &setting, &mut Scratch::new(), &terms);
    assert!(matches!(error, Err(Fault::Refused { .. })), "{error:?}");
    assert_eq!(c, [7f32; 4]);
}

/// A result that lies column by column is computed the other way round, with `a` on the side of the vectors.
#[test]
fn column_major_results_of_operands_in_place() {
    let (m, n, k) = (20, 30, 10);
    let a: Vec<f32> = (0..m * k).map(|i| (i % 13) as f32).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i % 7) as f32).collect();
    let workload: Workload = "matmul f32 20x10x30".parse().unwrap();
    let columns = Layout::strided("20x30".parse().unwrap(), &[1, 20]).unwrap();
    let knobs = PackedKnobs {
        threads: 1,
        mc: 8,
        kc: 64,
        nc: 128,
        pack_a: 0,
        pack_b: 0,
    };
    for level in Level::all() {
        let kernel = kernel(&format!("cpu-matmul-f32-packed-{}", level.name()));
        let mut c = vec![0f32; m * n];
        let inputs = [
            TensorView::contiguous(&a, "20x10".parse().unwrap()).unwrap(),
            TensorView::contiguous(&b, "10x30".parse().unwrap()).unwrap(),
        ];
        let mut outputs = [TensorViewMut::strided(&mut c, columns, 0).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        let mut scratch = Scratch::new();
        let needs = kernel.workspace(call.workload(), &knobs.setting());
        scratch.reserve(needs).unwrap();
        kernel
            .execute(&mut call, &knobs.setting(), &mut scratch)
            .unwrap();
        for i in 0..m {
            for j in 0..n {
                let sum: f32 = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
                assert_eq!(c[i + j * m], sum, "{} {i},{j}", level.name());
            }
        }
    }
}

/// f16 holds no number above 65504, and bf16 but eight bits: sums that pass through them on the way would show.
#[test]
fn half_precision_is_rounded_once_at_the_end() {
    let k = 600;
    let text = |dtype| format!("matmul {dtype} 1x{k}x2");
    for kernel in ours() {
        let id = &kernel.spec().id;
        if !id.variant().starts_with("packed-") {
            continue;
        }
        let workload = text(id.dtypes()[0].name()).parse().unwrap();
        let setting = kernel
            .space(&workload, &kernelwise_probe::machine())
            .default_setting();
        match id.dtypes() {
            [DType::F16] => {
                // 300 times 300, then 299 times -300: 90000 on the way, 300 at the end.
                let a = vec![f16::from_f32(300.0); k];
                let sign = |i: usize| if i < 300 { 1.0 } else { -1.0 };
                let mut b: Vec<_> = (0..2 * k).map(|i| f16::from_f32(sign(i / 2))).collect();
                b[2 * k - 1] = f16::ZERO;
                let mut c = [f16::ZERO; 2];
                execute(&*kernel, &text("f16"), &setting, &a, &b, &mut c).unwrap();
                assert_eq!(c.map(f16::to_f32), [0.0, 300.0], "{id}");
            }
            [DType::Bf16] => {
                let (a, b) = (vec![bf16::ONE; k], vec![bf16::ONE; 2 * k]);
                let mut c = [bf16::ZERO; 2];
                execute(&*kernel, &text("bf16"), &setting, &a, &b, &mut c).unwrap();
                assert_eq!(c, [bf16::from_f32(600.0); 2], "{id}");
            }
            _ => {}
        }
    }
}

/// Threads of the pools are numbered, so that the last one of the size asked for shows that it was asked for.
#[cfg(target_os = "linux")]
#[test]
fn kernels_wake_the_threads_they_are_told_to() {
    let exists = |number: u32| {
        std::fs::read_dir("/proc/self/task").unwrap().any(|task| {
            let name = std::fs::read_to_string(task.unwrap().path().join("comm"));
            name.is_ok_and(|name| name.trim() == format!("kernelwise-{number}"))
        })
    };
    let packed = |threads| PackedKnobs {
        threads,
        mc: 8,
        kc: 64,
        nc: 128,
        pack_a: 0,
        pack_b: 0,
    };
    let batched = |threads| BatchedKnobs {
        threads,
        schedule: 1,
        kc: 64,
        pack_a: 0,
        pack_b: 0,
    };
    let (a, b) = (vec![1f32; 1 << 14], vec![1f32; 1 << 14]);
    type Run<'a> = (&'a str, &'a str, usize, &'a dyn Fn(u32) -> Setting);
    let runs: [Run<'_>; 4] = [
        ("packed-portable", "128x128x128", 1 << 14, &|n| {
            packed(n).setting()
        }),
        ("batched-portable", "256x8x8x8", 1 << 14, &|n| {
            batched(n).setting()
        }),
        ("splitk-portable", "16x1024x16", 256, &|threads| {
            SplitKnobs { threads, parts: 32 }.setting()
        }),
        ("gemm", "128x128x128", 1 << 14, &|threads| {
            LibraryKnobs { threads }.setting()
        }),
    ];
    // No other test asks for so many.
    for (threads, (variant, sizes, elements, setting)) in (21..).zip(runs) {
        assert!(!exists(threads - 1));
        let kernel = kernel(&format!("cpu-matmul-f32-{variant}"));
        let mut c = vec![0f32; elements];
        let text = format!("matmul f32 {sizes}");
        execute(&*kernel, &text, &setting(threads), &a, &b, &mut c).unwrap();
        assert!(c.iter().all(|x| *x == c[0]), "{variant}");
        // Threads name themselves when they first run, which may take a while on a busy machine.
        let named = (0..20_000).any(|_| {
            std::thread::yield_now();
            exists(threads - 1)
        });
        assert!(named, "{variant} woke no {threads} threads");
    }
}
