use kernelwise_types::op::Operand;

use super::order::Bits;
use super::row::{Keys, Line};
use super::*;
use crate::index::trial::{Dice, Tensor, assert_same_bits, run};
use crate::pool::Start;

fn workload(text: &str) -> Workload {
    text.parse().unwrap()
}

/// Keys of every sort of trouble: few different ones, all bits random, special floats.
fn keys(operand: &Operand, style: usize, seed: u64, awkward: bool) -> Tensor {
    let mut dice = Dice::new(seed);
    let special = [
        0u64,
        1 << 63,
        1 << 31,
        1 << 15,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffc0_0001,
        0x7f80_0001,
        0x7ff0 << 48,
        0xfff8 << 48,
        0x7c00,
        0xfe00,
        0x3f80_0000,
        u64::MAX,
    ];
    let fill = move |at: usize| -> u128 {
        match style {
            0 => dice.roll().into(),
            1 => (dice.roll() % 3).into(),
            2 => special[dice.roll() as usize % special.len()].into(),
            3 => 77,
            _ => (at as u64 * 3).into(),
        }
    };
    if awkward {
        Tensor::awkward(operand, fill)
    } else {
        Tensor::new(operand.dtype, operand.shape, fill)
    }
}

fn values(operand: &Operand, seed: u64, awkward: bool) -> Tensor {
    let mut dice = Dice::new(seed);
    let limit = if operand.dtype == DType::Bool {
        1
    } else {
        u64::MAX
    };
    let fill = move |_| -> u128 { (dice.roll() & limit).into() };
    if awkward {
        Tensor::awkward(operand, fill)
    } else {
        Tensor::new(operand.dtype, operand.shape, fill)
    }
}

/// Compares every kernel for a workload with the reference; returns how many there were.
fn compare(text: &str, style: usize, awkward: bool) -> usize {
    let w = workload(text);
    let mut inputs = vec![keys(&w.inputs()[0], style, 5, awkward)];
    inputs.extend(
        w.inputs()[1..]
            .iter()
            .map(|operand| values(operand, 9, awkward)),
    );
    let before: Vec<Tensor> = w
        .outputs()
        .iter()
        .map(|operand| values(operand, 3, awkward))
        .collect();
    assert_same_bits(&all(), &w, &inputs, &before)
}

/// Networks of every level, and the rest.
fn all() -> Vec<Arc<dyn HostKernel>> {
    let mut all: Vec<Arc<dyn HostKernel>> = kernels(&Level::all()).unwrap();
    for level in Level::all() {
        for dtypes in element_types() {
            all.push(Arc::new(
                SortKernel::new(&dtypes, Method::Network(level)).unwrap(),
            ));
        }
    }
    all
}

#[test]
fn every_key_type_is_sorted_both_ways() {
    for dtype in DType::ALL.iter().filter(|dtype| dtype.is_ordered()) {
        for style in 0..5 {
            for flags in ["", " desc stable"] {
                assert!(compare(&format!("sort {dtype} 3x300{flags}"), style, false) >= 3);
                assert!(compare(&format!("sort.arg {dtype} 3x300{flags}"), style, false) >= 3);
            }
        }
        assert!(compare(&format!("sort {dtype} 40x7 desc"), 2, false) >= 4);
    }
}

#[test]
fn values_of_any_size_move_along() {
    for key in ["u32", "f64", "i64", "f32"] {
        for value in ["u32", "i64", "f64", "f32", "u64"] {
            for style in [0, 1, 2] {
                assert!(
                    compare(
                        &format!("sort.pairs {key} 2x130 values={value}"),
                        style,
                        false
                    ) >= 3
                );
                assert!(
                    compare(
                        &format!("sort.pairs {key} 5x20 values={value} desc"),
                        style,
                        false
                    ) >= 3
                );
            }
        }
    }
    // The body moves values of other sizes too.
    for (key, value) in [("u8", "complex128"), ("f32", "bool"), ("i64", "bf16")] {
        let w = workload(&format!("sort.pairs {key} 3x50 values={value}"));
        let dtypes = w.dtypes();
        let methods = [Method::Std, Method::Radix, Method::Parallel];
        let kernels = methods.map(|method| {
            Arc::new(SortKernel::new(&dtypes, method).unwrap()) as Arc<dyn HostKernel>
        });
        let inputs = [
            keys(&w.inputs()[0], 1, 5, false),
            values(&w.inputs()[1], 9, false),
        ];
        let before: Vec<Tensor> = w
            .outputs()
            .iter()
            .map(|operand| values(operand, 3, false))
            .collect();
        assert_eq!(assert_same_bits(&kernels, &w, &inputs, &before), 3);
    }
}

#[test]
fn rows_may_lie_anywhere() {
    for axis in 0..3 {
        for (op, more) in [
            ("sort", ""),
            ("sort.arg", ""),
            ("sort.pairs", " values=f64"),
        ] {
            for dtype in ["f32", "u64"] {
                let text = format!("{op} {dtype} 5x9x70{more} axis{axis} desc");
                assert!(compare(&text, 0, true) >= 3, "{text}");
                assert!(compare(&text, 1, false) >= 3, "{text}");
            }
        }
    }
}

#[test]
fn rows_of_every_short_length() {
    for len in 1..=40 {
        compare(&format!("sort u32 19x{len}"), 0, false);
        compare(&format!("sort.arg i16 33x{len} desc"), 1, false);
        compare(&format!("sort f64 2x{len}"), 2, false);
    }
}

/// Parts of every size and with any number of digits to go: long rows whose keys differ in some digits only.
#[test]
fn long_rows_are_finished_part_by_part() {
    let masks = [
        u64::MAX,
        0xff00_ff00_00ff_00ff,
        0x0303_0303_0303_0303,
        0x1ff,
        0xff << 56,
        0x8000_0000_0000_0001,
    ];
    for (dtype, values) in [
        (DType::U64, None),
        (DType::F32, None),
        (DType::U32, Some(())),
    ] {
        for mask in masks {
            for len in [255, 3000, 20_000] {
                let kind = if values.is_some() { "sort.arg" } else { "sort" };
                let w = workload(&format!("{kind} {dtype} {len}"));
                let mut dice = Dice::new(len as u64);
                let inputs = [Tensor::new(dtype, w.inputs()[0].shape, |_| {
                    (dice.roll() & mask).into()
                })];
                let before: Vec<Tensor> = w
                    .outputs()
                    .iter()
                    .map(|operand| self::values(operand, 3, false))
                    .collect();
                let kernel = Arc::new(SortKernel::new(&w.dtypes(), Method::Radix).unwrap())
                    as Arc<dyn HostKernel>;
                assert_eq!(assert_same_bits(&[kernel], &w, &inputs, &before), 1);
            }
        }
    }
}

#[test]
fn threads_share_rows_or_parts_of_one() {
    // More threads than the machine may offer: the space is asked by `admit`, not by `execute`.
    for (text, threads) in [
        ("sort.arg u32 1003", 3),
        ("sort f32 2x4001", 5),
        ("sort u8 30x50", 3),
        ("sort u64 9", 4),
    ] {
        let w = workload(text);
        let kernel = SortKernel::new(&w.dtypes(), Method::Parallel).unwrap();
        for style in 0..3 {
            for (digit_bits, top_first) in [(8, 0), (11, 0), (8, 1)] {
                let setting = ParallelKnobs {
                    threads,
                    digit_bits,
                    top_first,
                }
                .setting();
                let inputs = [keys(&w.inputs()[0], style, 1, false)];
                let mut outputs = [values(&w.outputs()[0], 1, false)];
                let mut expected = outputs.clone();
                crate::index::trial::reference(&w, &inputs, &mut expected).unwrap();
                run(&kernel, &w, &setting, &inputs, &mut outputs).unwrap();
                assert_eq!(
                    outputs[0].bytes(),
                    expected[0].bytes(),
                    "{text} {threads} {digit_bits} {top_first}"
                );
            }
        }
    }
}

#[test]
fn every_parameter_shows_in_the_memory_it_takes() {
    let w = workload("sort u32 4x1000");
    let need = |method, setting: Setting| {
        let kernel = SortKernel::new(&w.dtypes(), method).unwrap();
        kernel.workspace(&w, &setting).0
    };
    let radix = |digit_bits| {
        need(
            Method::Radix,
            RadixKnobs {
                digit_bits,
                top_first: 0,
            }
            .setting(),
        )
    };
    // The output is the second buffer; four digits of 256 counters, or three of 2048.
    assert_eq!(radix(8), 64 + 4000 + 64 + 4 * 256 * 4);
    assert_eq!(radix(11), 64 + 4000 + 64 + 3 * 2048 * 4);
    let parallel = |threads| {
        need(
            Method::Parallel,
            ParallelKnobs {
                threads,
                digit_bits: 8,
                top_first: 0,
            }
            .setting(),
        )
    };
    assert_eq!(parallel(1), radix(8));
    assert_eq!(
        parallel(2),
        64 + 2 * 4000 + 64 + 2 * 4096,
        "a row for each thread"
    );
    assert_eq!(
        parallel(3),
        64 + 4000 + 64 + 3 * 4096,
        "all threads on one row"
    );
    let top = need(
        Method::Radix,
        RadixKnobs {
            digit_bits: 8,
            top_first: 1,
        }
        .setting(),
    );
    assert_eq!(top, 64 + 4000 + 64, "counters are on the stack");
    assert_eq!(need(Method::Std, Setting::NONE), 128);
    let machine = kernelwise_probe::machine();
    let kernel = SortKernel::new(&[DType::U16], Method::Radix).unwrap();
    assert_eq!(
        kernel
            .space(&workload("sort u16 9"), &machine)
            .iter()
            .count(),
        2
    );
    // Eleven bits go with the least significant digit first only.
    let kernel = SortKernel::new(&[DType::U32], Method::Radix).unwrap();
    assert_eq!(kernel.space(&w, &machine).iter().count(), 3);
}

/// The pool of the threads asked for did the work, and all of it where there are parts for all.
#[test]
fn threads_do_the_work_they_are_asked_for() {
    let kernel = SortKernel::new(&[DType::U32], Method::Parallel).unwrap();
    let setting = ParallelKnobs {
        threads: 2,
        digit_bits: 8,
        top_first: 0,
    }
    .setting();
    // Every second place of a row of six, so that a row is no buffer.
    let (mut from, mut to) = ([3u32, 1, 2], [[0u32; 6]; 8]);
    let (keys, rows) = (Start::new(from.as_mut_ptr()), Start::new(to.as_mut_ptr()));
    let mut scratch = Scratch::new();
    scratch.reserve(Bytes(1 << 16)).unwrap();
    crate::pool::trace::take();
    // SAFETY: each row reads the same three keys and writes three of its own.
    let done = unsafe {
        kernel.sort(8, 3, &setting, &mut scratch, |row| Keys {
            from: Line {
                first: keys.at(0).cast_const(),
                step: 1,
            },
            to: Line {
                first: rows.at(row).cast::<u32>(),
                step: 2,
            },
            order: u32::order(DType::U32, false),
        })
    };
    done.unwrap();
    assert_eq!(to, [[1, 0, 2, 0, 3, 0]; 8]);
    let shared = crate::pool::trace::take();
    assert!(shared.contains(&(2, 2)), "{shared:?}");
}

/// Settings from elsewhere: the memory that is asked for is the memory that is used, and results are right.
#[test]
fn any_parameter_is_taken_for_one_that_makes_sense() {
    let w = workload("sort.arg u32 3x700");
    let inputs = [keys(&w.inputs()[0], 1, 1, false)];
    let mut expected = [values(&w.outputs()[0], 1, false)];
    crate::index::trial::reference(&w, &inputs, &mut expected).unwrap();
    let alone = Setting::new([1, 8, 0]);
    for method in [Method::Std, Method::Radix, Method::Parallel] {
        let kernel = SortKernel::new(&w.dtypes(), method).unwrap();
        for values in [[0; 3], [257, 0, 0], [u32::MAX, 9, 0], [u32::MAX; 3]] {
            let setting = Setting::new(values);
            let mut outputs = [self::values(&w.outputs()[0], 1, false)];
            run(&kernel, &w, &setting, &inputs, &mut outputs).unwrap();
            assert_eq!(outputs[0].bytes(), expected[0].bytes(), "{values:?}");
        }
        let many = Setting::new([u32::MAX, 8, 0]);
        if let Method::Parallel = method {
            assert_eq!(kernel.workspace(&w, &many), kernel.workspace(&w, &alone));
        }
    }
}

/// Wide keys that move something along are refused by networks, so none is listed for them alone.
#[test]
fn every_network_has_something_to_sort() {
    for kernel in kernels(&Level::all()).unwrap() {
        let id = &kernel.spec().id;
        if id.variant().starts_with("network-")
            && let [key, _] = id.dtypes()
        {
            assert!(key.size() <= NARROW, "{id}");
        }
    }
}

#[test]
fn what_is_not_its_own_is_refused_and_outputs_untouched() {
    let refused = |kernel: &SortKernel, text: &str| {
        let w = workload(text);
        let inputs: Vec<Tensor> = w
            .inputs()
            .iter()
            .map(|operand| values(operand, 1, false))
            .collect();
        let before: Vec<Tensor> = w
            .outputs()
            .iter()
            .map(|operand| values(operand, 2, false))
            .collect();
        let mut outputs = before.clone();
        let error = run(kernel, &w, &Setting::NONE, &inputs, &mut outputs).unwrap_err();
        assert!(matches!(error, Fault::Refused { .. }), "{error}");
        for (after, before) in outputs.iter().zip(&before) {
            assert_eq!(after.bytes(), before.bytes());
        }
        error.to_string()
    };
    let radix = SortKernel::new(&[DType::U32], Method::Radix).unwrap();
    refused(&radix, "copy u32 5");
    refused(&radix, "sort f32 5");
    refused(&radix, "sort.arg u32 5");
    let network = SortKernel::new(&[DType::I64], Method::Network(Level::PORTABLE)).unwrap();
    assert!(refused(&network, "sort i64 33").contains("at most 32 keys"));
    assert!(refused(&network, "sort.arg i64 8").contains("at most 32 bits"));

    let w = workload("sort u32 2x500");
    let inputs = [values(&w.inputs()[0], 1, false)];
    let mut outputs = [values(&w.outputs()[0], 2, false)];
    let before = outputs[0].clone();
    let views = [inputs[0].view()];
    let mut views_mut = [outputs[0].view_mut()];
    let mut call = Call::new(&w, &views, &mut views_mut).unwrap();
    let error = radix
        .execute(&mut call, &Setting::NONE, &mut Scratch::new())
        .unwrap_err();
    assert!(matches!(error, Fault::Workspace { .. }), "{error}");
    assert_eq!(outputs[0].bytes(), before.bytes());
}

#[test]
fn a_row_that_threads_share_is_merged_and_rows_of_their_own_are_not() {
    let sharing = |text: &str, threads: u32| {
        let w = workload(text);
        let kernel = SortKernel::new(&[w.dtype()], Method::Parallel).unwrap();
        let setting = ParallelKnobs {
            threads,
            digit_bits: 8,
            top_first: 1,
        };
        kernel.sharing(&w, &setting.setting())
    };
    let merged = |rounds: u32, extra| Sharing::default().forked(1 + rounds).with_extra(extra);
    assert_eq!(sharing("sort u32 1000000", 2), merged(1, 0.5));
    assert_eq!(sharing("sort u64 1000000", 2), merged(1, 0.25));
    assert_eq!(sharing("sort u32 1000000", 4), merged(2, 1.0));
    let in_turn = Sharing::default().forked(3 * 2).with_extra(0.5);
    assert_eq!(sharing("sort u32 3x1000", 2), in_turn);
    assert_eq!(sharing("sort u32 100x1000", 2), Sharing::parts(100));
    assert_eq!(sharing("sort u32 1000000", 1), Sharing::parts(1));
}
