use kernelwise_backend::{Call, Scratch, Setting};
use kernelwise_types::op::Operand;
use kernelwise_types::{Layout, Workload};

use super::trial::{Dice, Tensor, assert_same_bits, fitting, reference, run, shape};
use super::*;

fn all() -> Vec<Arc<dyn HostKernel>> {
    kernels(&Level::all()).unwrap()
}

/// Small numbers, so that sums are exact in every order; floats also NaN and infinities if `special`.
fn operand(operand: &Operand, places: u64, seed: u64, awkward: bool, special: bool) -> Tensor {
    let mut dice = Dice::new(seed);
    let dtype = operand.dtype;
    let indices = operand.name == "indices";
    let fill = move |_: usize| -> u128 {
        let roll = dice.roll();
        let small = (roll % 13) as i64 - 6;
        match dtype {
            _ if indices => (roll % places).into(),
            DType::F32 if special && roll.is_multiple_of(7) => {
                [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0][roll as usize / 7 % 4]
                    .to_bits()
                    .into()
            }
            DType::F32 => (small as f32).to_bits().into(),
            DType::F64 => (small as f64).to_bits().into(),
            DType::Bool => (roll & 1).into(),
            _ => u128::from(roll) << 64 | u128::from(roll),
        }
    };
    if awkward {
        Tensor::awkward(operand, fill)
    } else {
        Tensor::new(dtype, operand.shape, fill)
    }
}

/// The operands of a workload, whose outputs hold something before.
fn operands(w: &Workload, places: u64, awkward: bool, special: bool) -> (Vec<Tensor>, Vec<Tensor>) {
    let make = |(seed, o): (u64, &Operand)| operand(o, places, seed, awkward, special);
    (
        (1..).zip(w.inputs()).map(make).collect(),
        (8..).zip(w.outputs()).map(make).collect(),
    )
}

/// Compares every kernel for a workload with the reference; returns how many there were.
fn compare(text: &str, places: u64, awkward: bool) -> usize {
    let w: Workload = text.parse().unwrap();
    let (inputs, before) = operands(&w, places, awkward, false);
    assert_same_bits(&all(), &w, &inputs, &before)
}

#[test]
fn every_element_type_is_moved() {
    for dtype in DType::ALL {
        for index in ["", " index=i32"] {
            assert_eq!(
                compare(
                    &format!("gather {dtype} 3x7x5 axis1 idx11{index}"),
                    7,
                    false
                ),
                3
            );
            assert_eq!(
                compare(
                    &format!("scatter.assign {dtype} 3x7x5 axis1 idx11{index}"),
                    7,
                    false
                ),
                3
            );
            assert_eq!(
                compare(&format!("gather {dtype} 3x7x5 axis1 idx11{index}"), 7, true),
                1
            );
            assert_eq!(
                compare(
                    &format!("scatter.assign {dtype} 3x7x5 axis1 idx11{index}"),
                    7,
                    true
                ),
                1
            );
        }
    }
}

#[test]
fn every_axis_and_every_meeting() {
    for dtype in ["f32", "f64", "i32", "i64"] {
        for kind in ["assign", "add", "max", "min"] {
            for (sizes, axis, places) in [
                ("40", 0, 40),
                ("1x9", 1, 9),
                ("9x33", 0, 9),
                ("3x4x50", 1, 4),
                ("3x4x50", 2, 50),
                ("9x2x3", 0, 9),
            ] {
                for indices in [1, 5, 70] {
                    let text = format!("scatter.{kind} {dtype} {sizes} axis{axis} idx{indices}");
                    assert_eq!(compare(&text, places, false), 3, "{text}");
                }
                assert_eq!(
                    compare(
                        &format!("scatter.{kind} {dtype} {sizes} axis{axis} idx9"),
                        places,
                        true
                    ),
                    1
                );
            }
        }
        for (sizes, axis, places) in [("40", 0, 40), ("9x33", 0, 9), ("3x4x50", 2, 50)] {
            assert_eq!(
                compare(
                    &format!("gather {dtype} {sizes} axis{axis} idx61"),
                    places,
                    false
                ),
                3
            );
        }
    }
}

/// More threads than the machine may offer, and every way to share.
#[test]
fn results_do_not_depend_on_the_threads() {
    for text in [
        "gather f32 5x40x3 axis1 idx70",
        "gather i64 50 axis0 idx300",
        "scatter.add f32 20x40x3 axis1 idx70",
        "scatter.add f64 6x200 axis0 idx40",
        "scatter.add f32 9 axis0 idx500",
        "scatter.assign i32 3 axis0 idx100",
        "scatter.max f32 1x7x2 axis1 idx90",
    ] {
        let w: Workload = text.parse().unwrap();
        // Halves that do not add up exactly in another order.
        let mut dice = Dice::new(4);
        let (mut inputs, before) = operands(&w, 3, false, false);
        if w.dtype() == DType::F32 && text.starts_with("scatter") {
            let o = &w.inputs()[1];
            inputs[1] = Tensor::new(o.dtype, o.shape, |_| {
                (dice.roll() as f32 * 1e-19).to_bits().into()
            });
        }
        for kernel in fitting(&all(), &w) {
            let results = [1, 2, 3, 5, 0, u32::MAX].map(|threads| {
                let mut out = before.clone();
                run(kernel, &w, &Setting::new([threads, 1]), &inputs, &mut out).unwrap();
                out[0].bytes().to_vec()
            });
            assert!(
                results.iter().all(|r| *r == results[0]),
                "{} on {text}",
                kernel.spec().id
            );
        }
    }
}

#[test]
fn nan_stays_and_infinities_meet() {
    for kind in ["add", "max", "min"] {
        let w: Workload = format!("scatter.{kind} f32 6x4 axis0 idx40")
            .parse()
            .unwrap();
        let (inputs, before) = operands(&w, 6, false, true);
        let mut expected = before.clone();
        reference(&w, &inputs, &mut expected).unwrap();
        let mut troubled = 0;
        for kernel in fitting(&all(), &w) {
            let mut actual = before.clone();
            run(kernel, &w, &Setting::new([1]), &inputs, &mut actual).unwrap();
            for (a, e) in actual[0]
                .values::<f32>()
                .into_iter()
                .zip(expected[0].values::<f32>())
            {
                assert!(
                    a == e || (a.is_nan() && e.is_nan()),
                    "{a} {e} {}",
                    kernel.spec().id
                );
                troubled += usize::from(a.is_nan());
            }
        }
        assert!(troubled > 0, "{kind}");
    }
}

#[test]
fn an_index_outside_leaves_the_outputs_alone() {
    for text in [
        "gather f32 4x3 axis0 idx5",
        "scatter.add f32 4x3 axis0 idx5",
        "scatter.assign f32 4x3 axis0 idx5",
    ] {
        let w: Workload = text.parse().unwrap();
        for bad in [4i64, -1, i64::MIN] {
            let (mut inputs, before) = operands(&w, 4, false, false);
            let at = w.inputs().iter().position(|o| o.name == "indices").unwrap();
            inputs[at] = Tensor::new(DType::I64, shape(&[5]), |i| {
                if i == 3 { bad as u128 } else { 1 }
            });
            for kernel in fitting(&all(), &w) {
                let mut out = before.clone();
                let fault = run(kernel, &w, &Setting::new([2, 0]), &inputs, &mut out).unwrap_err();
                let expected = Fault::Index {
                    operand: "indices",
                    position: 3,
                    value: bad,
                    length: 4,
                };
                assert_eq!(fault, expected, "{}", kernel.spec().id);
                assert_eq!(out[0].bytes(), before[0].bytes());
            }
        }
    }
}

#[test]
fn threads_do_the_work_they_are_asked_for() {
    let machine = kernelwise_probe::machine();
    let w: Workload = "scatter.add f32 4x3 axis0 idx5".parse().unwrap();
    let threads = machine.usable_threads();
    for kernel in fitting(&all(), &w) {
        let offered = kernel.space(&w, &machine).iter().count() as u32;
        let plain = kernel.spec().id.variant() == "plain";
        assert_eq!(offered, if plain { 1 } else { threads });
    }
}

#[test]
fn what_is_not_its_own_is_refused_and_outputs_untouched() {
    let all = all();
    let find = |id: &str| {
        all.iter()
            .find(|kernel| kernel.spec().id.as_str() == id)
            .unwrap()
            .as_ref()
    };
    for (id, text, awkward) in [
        (
            "cpu-gather-f32_i64-rows",
            "gather i32 4x3 axis0 idx5",
            false,
        ),
        ("cpu-gather-f32_i64-rows", "gather f32 4x3 axis0 idx5", true),
        ("cpu-gather-f32_i64-rows", "copy f32 4x3", false),
        (
            "cpu-scatter.add-f32_i64-sorted",
            "scatter.max f32 4x3 axis0 idx5",
            false,
        ),
        (
            "cpu-scatter.add-f32_i64-rows",
            "scatter.add f32 4x3 axis0 idx5",
            true,
        ),
        (
            "cpu-scatter.assign-f32_i64-rows",
            "scatter.assign f32 4x3 axis0 idx5 index=i32",
            false,
        ),
    ] {
        let w: Workload = text.parse().unwrap();
        let (inputs, before) = operands(&w, 4, awkward, false);
        let mut out = before.clone();
        let fault = run(find(id), &w, &Setting::new([1, 0]), &inputs, &mut out).unwrap_err();
        assert!(
            matches!(fault, Fault::Refused { .. }),
            "{id} on {text}: {fault}"
        );
        assert_eq!(out[0].bytes(), before[0].bytes(), "{id} on {text}");
    }
    for (id, text) in [
        ("cpu-gather-f32_i64-sorted", "gather f32 4x3 axis0 idx5"),
        (
            "cpu-scatter.add-f32_i64-sorted",
            "scatter.add f32 4x3 axis0 idx5",
        ),
    ] {
        let w: Workload = text.parse().unwrap();
        let (inputs, before) = operands(&w, 4, false, false);
        let mut out = before.clone();
        let views = inputs.iter().map(Tensor::view).collect::<Vec<_>>();
        let mut views_mut = out.iter_mut().map(Tensor::view_mut).collect::<Vec<_>>();
        let mut call = Call::new(&w, &views, &mut views_mut).unwrap();
        let fault = find(id)
            .execute(&mut call, &Setting::NONE, &mut Scratch::new())
            .unwrap_err();
        assert!(matches!(fault, Fault::Workspace { .. }), "{fault}");
        assert_eq!(out[0].bytes(), before[0].bytes());
    }
}

/// A list with gaps is followed even by kernels whose slices must have none.
#[test]
fn indices_may_have_gaps() {
    let w: Workload = "gather f32 4x3 axis0 idx3".parse().unwrap();
    let (mut inputs, before) = operands(&w, 4, false, false);
    let layout = Layout::strided(shape(&[3]), &[-2]).unwrap();
    inputs[1] = Tensor::lying(DType::I64, layout, 4, 5, |i| (i % 4) as u128);
    let mut expected = before.clone();
    reference(&w, &inputs, &mut expected).unwrap();
    for kernel in fitting(&all(), &w) {
        let mut out = before.clone();
        run(kernel, &w, &Setting::new([1, 0]), &inputs, &mut out).unwrap();
        assert_eq!(out[0].bytes(), expected[0].bytes(), "{}", kernel.spec().id);
    }
}
