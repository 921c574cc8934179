//! What the tests of reductions, rows and pooling share: kernels against the reference, with every corner of their settings.

use std::sync::{Arc, OnceLock};

use kernelwise_backend::{Call, HostKernel, Plain, Scratch, Setting, Terms, run};
use kernelwise_types::{
    DType, Layout, Machine, Numerics, Shape, TensorView, TensorViewMut, Workload,
};

use super::lanes::Number;

/// This machine, asked once, as if it had two processors at the least.
fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let machine = kernelwise_probe::machine();
        let threads = machine.usable_threads().max(2);
        machine.with_threads(threads)
    })
}

/// What the elements are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Numbers around zero.
    Plain,
    /// Some of them NaN or infinite.
    Special,
    /// A few values, so that many are equal.
    Few,
}

/// Elements that tests can make and compare.
pub(crate) trait Sample: Number {
    fn make(random: u64, values: Values) -> Self;
    fn wide(self) -> f64;
    /// The distance between one and the next number.
    const STEP: f64;
}

macro_rules! sample {
    ($($rust:ident, $step:expr, $special:expr;)*) => {
        $(impl Sample for $rust {
            fn make(random: u64, values: Values) -> Self {
                let number = (random >> 20) % 8192;
                match values {
                    Values::Few => (number % 5) as Self - 2 as Self,
                    Values::Special if number % 11 == 0 => $special[(number / 11 % 4) as usize],
                    _ => (number as Self - 4096 as Self) / 512 as Self,
                }
            }
            fn wide(self) -> f64 {
                self as f64
            }
            const STEP: f64 = $step;
        })*
    };
}

sample! {
    f32, f32::EPSILON as f64, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    f64, f64::EPSILON, [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    i32, 0.0, [i32::MAX, i32::MIN, -1, 7];
    i64, 0.0, [i64::MAX, i64::MIN, -1, 7];
}

/// Elements that look random and are the same for the same seed.
pub(crate) fn elements<T: Sample>(length: usize, seed: u64, values: Values) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::make(state, values)
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// The inputs of a workload; variances are not negative.
pub(crate) fn inputs<T: Sample>(workload: &Workload, seed: u64, values: Values) -> Vec<Vec<T>> {
    let make = |(number, operand): (u64, &kernelwise_types::op::Operand)| {
        let mut list = elements::<T>(operand.shape.elements(), seed + number, values);
        if operand.name == "variance" {
            list.iter_mut().for_each(|x| *x = x.times(*x));
        }
        list
    };
    (0..).zip(workload.inputs()).map(make).collect()
}

/// Every second element of memory, backwards: a layout that only strided kernels can follow.
fn sparse(shape: Shape) -> (Layout, usize, usize) {
    let packed = Layout::contiguous(shape);
    let strides: Vec<isize> = packed.strides().iter().map(|stride| -2 * stride).collect();
    let length = 2 * shape.elements();
    (
        Layout::strided(shape, &strides).unwrap(),
        length - 1,
        length,
    )
}

/// Runs a kernel on contiguous memory.
pub(crate) fn outputs<T: Sample, R: Sample>(
    kernel: &dyn HostKernel,
    workload: &Workload,
    inputs: &[Vec<T>],
    setting: &Setting,
) -> Vec<Vec<R>> {
    let views: Vec<_> = inputs
        .iter()
        .zip(workload.inputs())
        .map(|(list, operand)| TensorView::contiguous(list, operand.shape).unwrap())
        .collect();
    let lists = workload.outputs().iter();
    let mut lists: Vec<Vec<R>> = lists
        .map(|o| vec![R::HIGHEST; o.shape.elements()])
        .collect();
    let mut views_mut: Vec<_> = lists
        .iter_mut()
        .zip(workload.outputs())
        .map(|(list, operand)| TensorViewMut::contiguous(list, operand.shape).unwrap())
        .collect();
    execute(kernel, workload, &views, &mut views_mut, setting);
    lists
}

/// Runs a kernel on scattered memory, and looks that nothing beside it was touched.
fn scattered<T: Sample, R: Sample>(
    kernel: &dyn HostKernel,
    workload: &Workload,
    inputs: &[Vec<T>],
) -> Vec<Vec<R>> {
    let spread: Vec<Vec<T>> = inputs
        .iter()
        .map(|list| list.iter().rev().flat_map(|&x| [T::ONE, x]).collect())
        .collect();
    let views: Vec<_> = spread
        .iter()
        .zip(workload.inputs())
        .map(|(list, operand)| {
            let (layout, first, _) = sparse(operand.shape);
            TensorView::strided(list, layout, first).unwrap()
        })
        .collect();
    let lists = workload.outputs().iter();
    let mut lists: Vec<Vec<R>> = lists
        .map(|o| vec![R::ONE; 2 * o.shape.elements()])
        .collect();
    let mut views_mut: Vec<_> = lists
        .iter_mut()
        .zip(workload.outputs())
        .map(|(list, operand)| {
            let (layout, first, _) = sparse(operand.shape);
            TensorViewMut::strided(list, layout, first).unwrap()
        })
        .collect();
    execute(kernel, workload, &views, &mut views_mut, &Setting::NONE);
    let beside = |list: &Vec<R>| list.iter().step_by(2).all(|&x| x == R::ONE);
    assert!(
        lists.iter().all(beside),
        "{workload}: wrote beside its outputs"
    );
    let packed = |list: Vec<R>| list.into_iter().rev().step_by(2).collect();
    lists.into_iter().map(packed).collect()
}

fn execute(
    kernel: &dyn HostKernel,
    workload: &Workload,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
    setting: &Setting,
) {
    let machine = machine();
    let mut scratch = Scratch::new();
    let id = &kernel.spec().id;
    let mut call = Call::new(workload, inputs, outputs).unwrap();
    run(
        kernel,
        &mut call,
        setting,
        &mut scratch,
        &Terms::usual(machine),
    )
    .unwrap_or_else(|fault| panic!("{id} on {workload}: {fault}"));
}

/// What the reference says.
pub(crate) fn expected<T: Plain, R: Sample>(workload: &Workload, inputs: &[Vec<T>]) -> Vec<Vec<R>> {
    let views: Vec<_> = inputs
        .iter()
        .zip(workload.inputs())
        .map(|(list, operand)| TensorView::contiguous(list, operand.shape).unwrap())
        .collect();
    let lists = workload.outputs().iter();
    let mut lists: Vec<Vec<R>> = lists.map(|o| vec![R::ZERO; o.shape.elements()]).collect();
    let mut views_mut: Vec<_> = lists
        .iter_mut()
        .zip(workload.outputs())
        .map(|(list, operand)| TensorViewMut::contiguous(list, operand.shape).unwrap())
        .collect();
    kernelwise_reference::compute(workload, &views, &mut views_mut).unwrap();
    lists
}

/// How far results may be from the reference: so many steps of the element type, of a number this large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    pub(crate) steps: f64,
    pub(crate) size: f64,
}

#[track_caller]
fn compare<R: Sample>(actual: &[Vec<R>], expected: &[Vec<R>], near: Option<Near>, what: &str) {
    for (actual, expected) in actual.iter().zip(expected) {
        assert_eq!(actual.len(), expected.len());
        for (at, (&a, &e)) in actual.iter().zip(expected).enumerate() {
            let same = a == e || a.is_nan() && e.is_nan();
            let close = near.is_some_and(|near| {
                let room = near.steps * R::STEP * e.wide().abs().max(near.size);
                (a.wide() - e.wide()).abs() <= room
            });
            assert!(same || close, "{what}: {a:?} is not {e:?} at {at}");
        }
    }
}

/// Runs every kernel that takes the workload, with every corner of its space, against the reference. Returns how many
/// kernels there were.
#[track_caller]
pub(crate) fn check<T: Sample, R: Sample>(
    kernels: &[Arc<dyn HostKernel>],
    text: &str,
    values: Values,
    near: Near,
) -> usize {
    let workload: Workload = text.parse().unwrap();
    let inputs = inputs::<T>(&workload, text.len() as u64, values);
    let expected = expected::<T, R>(&workload, &inputs);
    let mut count = 0;
    for kernel in kernels {
        let spec = kernel.spec();
        let operation = workload.operation();
        let mine =
            spec.id.operation() == operation.name() || spec.id.operation() == operation.to_string();
        if !mine || spec.id.dtypes() != workload.dtypes() || kernel.accepts(&workload).is_err() {
            continue;
        }
        count += 1;
        let near = (spec.numerics != Numerics::BitIdentical).then_some(near);
        let space = kernel.space(&workload, machine());
        for setting in space.corners() {
            let actual = outputs::<T, R>(kernel.as_ref(), &workload, &inputs, &setting);
            let what = format!("{} {workload} {:?} {values:?}", spec.id, setting.as_slice());
            compare(&actual, &expected, near, &what);
        }
        if spec.needs.layout == kernelwise_types::LayoutKind::Strided {
            let actual = scattered::<T, R>(kernel.as_ref(), &workload, &inputs);
            compare(
                &actual,
                &expected,
                near,
                &format!("{} strided {workload}", spec.id),
            );
        }
    }
    count
}

/// The kernel of this name.
#[track_caller]
pub(crate) fn named(kernels: &[Arc<dyn HostKernel>], id: &str) -> Arc<dyn HostKernel> {
    let found = kernels
        .iter()
        .find(|kernel| kernel.spec().id.as_str() == id);
    found.unwrap_or_else(|| panic!("no kernel {id}")).clone()
}

/// The element types of a workload text, for [`check`].
pub(crate) fn dtype_of(text: &str) -> DType {
    text.parse::<Workload>().unwrap().dtype()
}

/// [`check`] with the element types that the text names.
#[track_caller]
pub(crate) fn check_any(
    kernels: &[Arc<dyn HostKernel>],
    text: &str,
    values: Values,
    near: Near,
) -> usize {
    let place = text.contains(".arg");
    match (dtype_of(text), place) {
        (DType::F32, false) => check::<f32, f32>(kernels, text, values, near),
        (DType::F64, false) => check::<f64, f64>(kernels, text, values, near),
        (DType::I32, false) => check::<i32, i32>(kernels, text, values, near),
        (DType::F32, true) => check::<f32, i64>(kernels, text, values, near),
        (DType::F64, true) => check::<f64, i64>(kernels, text, values, near),
        (DType::I32, true) => check::<i32, i64>(kernels, text, values, near),
        (DType::I64, _) => check::<i64, i64>(kernels, text, values, near),
        (other, _) => panic!("no tests on {other}"),
    }
}
