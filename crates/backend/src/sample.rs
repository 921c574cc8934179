//! Tensors made up for tests and benchmarks: every element type, values that are easy or hard, memory that
//! is convenient or not.

use std::ops::{Deref, DerefMut};

use half::{bf16, f16};
use kernelwise_types::op::{FftKind, Operand, Operation};
use kernelwise_types::{
    DType, Element, Layout, Shape, TensorView, TensorViewMut, ViewError, Workload,
};
use num_complex::Complex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::large_pages;

/// What numbers a tensor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Floats from −2 to 2, integers from −7 to 7 (0 to 7 without sign): sums neither overflow nor vanish,
    /// and equal keys occur.
    Ordinary,
    /// The same with one in nine replaced by what breaks kernels: not a number, infinities, −0,
    /// subnormals, the smallest normal one, and one so large that sums of squares just fit. Filters stay
    /// ordinary: a padding of zeros times infinity is not a number in one way of computing and skipped
    /// in another.
    Special,
    /// What calls are timed on: keys to sort are any of their type, floats from −2 to 2, because few different ones are sorted quickly by everybody.
    /// For all else, ordinary ones.
    Typical,
}

impl Values {
    /// Those of the operands of an operation.
    fn of(self, operation: &Operation) -> Self {
        match (self, operation) {
            (Self::Typical, Operation::Sort(_)) => Self::Typical,
            (Self::Typical, _) => Self::Ordinary,
            (other, _) => other,
        }
    }
}

/// How a tensor lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Without gaps, beginning with a cache line.
    Contiguous,
    /// Without gaps, beginning one element further.
    Offset,
    /// Rows with a gap after each.
    RowGaps,
    /// The last two dimensions stored the other way round, the first one backwards.
    Strided,
}

impl Arrangement {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Contiguous, Self::Offset, Self::RowGaps, Self::Strided];

    /// Layout, place of the first element and length of the memory for a shape.
    fn place(self, shape: Shape) -> (Layout, usize, usize) {
        let contiguous = (Layout::contiguous(shape), 0, shape.elements());
        let dims = shape.dims();
        let strided = |strides: &[isize], first, length| {
            let layout = Layout::strided(shape, strides).ok()?;
            Some((layout, first, length))
        };
        match self {
            Self::Contiguous => contiguous,
            Self::Offset => (contiguous.0, 1, shape.elements() + 1),
            Self::RowGaps => {
                let Some(&row) = dims.last() else {
                    return contiguous;
                };
                let mut strides = vec![1isize; dims.len()];
                let mut step = row + GAP;
                for axis in (0..dims.len() - 1).rev() {
                    strides[axis] = step as isize;
                    step *= dims[axis];
                }
                strided(&strides, 0, step).unwrap_or(contiguous)
            }
            Self::Strided => {
                // The order in memory: all axes as they are, the last two swapped; every element
                // followed by a hole.
                let mut order: Vec<usize> = (0..dims.len()).collect();
                if let [.., a, b] = order.as_mut_slice() {
                    std::mem::swap(a, b);
                }
                let mut strides = vec![0isize; dims.len()];
                let mut step = 2;
                for &axis in order.iter().rev() {
                    strides[axis] = step as isize;
                    step *= dims[axis];
                }
                let mut first = 0;
                if let (Some(stride), Some(&len)) = (strides.first_mut(), dims.first()) {
                    first = stride.unsigned_abs() * len.saturating_sub(1);
                    *stride = -*stride;
                }
                strided(&strides, first, step).unwrap_or(contiguous)
            }
        }
    }
}

/// Elements between two rows.
const GAP: usize = 3;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory that begins with a cache line, so that where the allocator happens to put a tensor decides neither a test nor
/// a time. Large blocks ask for large pages, as the calibration does: with small ones, kernels that stream would all wait
/// for address translation.
#[derive(Debug)]
struct Lined<T> {
    memory: Vec<T>,
    first: usize,
    length: usize,
}

impl<T: Copy> Lined<T> {
    fn filled(value: T, length: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let mut memory = Vec::with_capacity(length + spare);
        large_pages::ask(memory.spare_capacity_mut());
        memory.resize(length + spare, value);
        Self {
            first: memory.as_ptr().align_offset(LINE).min(spare),
            memory,
            length,
        }
    }
}

impl<T: Copy> Clone for Lined<T> {
    fn clone(&self) -> Self {
        let Some(&value) = self.first() else {
            return Self {
                memory: Vec::new(),
                first: 0,
                length: 0,
            };
        };
        let mut copy = Self::filled(value, self.length);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T> Deref for Lined<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.first..][..self.length]
    }
}

impl<T> DerefMut for Lined<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.first..][..self.length]
    }
}

/// A tensor that owns its memory.
#[derive(Debug, Clone)]
pub struct Tensor {
    data: Data,
    layout: Layout,
    first: usize,
}

macro_rules! data {
    ($($variant:ident = $rust:ty),* $(,)?) => {
        #[derive(Debug, Clone)]
        enum Data {
            $($variant(Lined<$rust>),)*
        }

        impl Data {
            fn filled(dtype: DType, length: usize, canary: u8) -> Self {
                match dtype {
                    $(DType::$variant => Self::$variant(Lined::filled(<$rust as Sample>::canary(canary), length)),)*
                }
            }
        }

        fn copy_elements(
            from: &TensorView<'_>,
            to: &mut TensorViewMut<'_>,
        ) -> Result<(), ViewError> {
            match from.dtype() {
                $(DType::$variant => {
                    let mut elements = from.iter::<$rust>()?;
                    write_all(to, || elements.next().unwrap_or(<$rust>::canary(CANARY)));
                })*
            }
            Ok(())
        }

        impl Tensor {
            /// Makes its first element wrong: another finite value, or the other truth value.
            pub(crate) fn spoil(&mut self) {
                match &mut self.data {
                    $(Data::$variant(data) => {
                        if let Some(first) = data.get_mut(self.first) {
                            *first = first.another();
                        }
                    })*
                }
            }

            /// To read.
            pub fn view(&self) -> Result<TensorView<'_>, ViewError> {
                match &self.data {
                    $(Data::$variant(data) => TensorView::strided(data, self.layout, self.first),)*
                }
            }

            /// To read and write.
            pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, ViewError> {
                match &mut self.data {
                    $(Data::$variant(data) => TensorViewMut::strided(data, self.layout, self.first),)*
                }
            }

            /// Fills every element in the order of indices.
            fn fill(&mut self, rng: &mut Pcg64Mcg, values: Values) -> Result<(), ViewError> {
                match &mut self.data {
                    $(Data::$variant(data) => {
                        let mut view = TensorViewMut::strided(data, self.layout, self.first)?;
                        write_all(&mut view, || <$rust>::draw(rng, values));
                    })*
                }
                Ok(())
            }

            /// The first element that differs from `other` in value, or in bits where floats are
            /// numbers; tensors of other types or shapes differ at 0.
            pub fn first_difference(&self, other: &Self) -> Option<usize> {
                if self.layout.shape() != other.layout.shape() {
                    return Some(0);
                }
                match (&self.data, &other.data) {
                    $((Data::$variant(_), Data::$variant(_)) => {
                        let all = |tensor: &Self| {
                            let view = tensor.view().ok()?;
                            let elements = view.iter::<$rust>().ok()?;
                            Some(elements.collect::<Vec<_>>())
                        };
                        let (Some(a), Some(b)) = (all(self), all(other)) else { return Some(0) };
                        a.into_iter().zip(b).position(|(a, b)| !a.same(b))
                    })*
                    _ => Some(0),
                }
            }

            /// Whether both hold the same bits, gaps included.
            pub fn same_memory(&self, other: &Self) -> bool {
                match (&self.data, &other.data) {
                    $((Data::$variant(a), Data::$variant(b)) => {
                        a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.bits() == b.bits())
                    })*
                    _ => false,
                }
            }

            /// Every element as real and imaginary part.
            pub fn numbers(&self) -> Vec<[f64; 2]> {
                match &self.data {
                    $(Data::$variant(_) => {
                        let view = self.view();
                        let elements = view.as_ref().ok().and_then(|view| view.iter::<$rust>().ok());
                        elements.into_iter().flatten().map(Sample::parts).collect()
                    })*
                }
            }

            /// The same elements, each replaced by its absolute value.
            pub fn absolute(&self) -> Result<Self, ViewError> {
                let mut copy = self.clone();
                match &mut copy.data {
                    $(Data::$variant(data) => {
                        let source = self.view()?;
                        let mut elements = source.iter::<$rust>()?;
                        let mut view = TensorViewMut::strided(data, self.layout, self.first)?;
                        let mut next = || elements.next().map_or(<$rust>::canary(0), Sample::absolute);
                        write_all(&mut view, &mut next);
                    })*
                }
                Ok(copy)
            }
        }
    };
}

data! {
    F16 = f16, Bf16 = bf16, F32 = f32, F64 = f64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
    U8 = u8, U16 = u16, U32 = u32, U64 = u64, Bool = bool,
    Complex64 = Complex<f32>, Complex128 = Complex<f64>,
}

fn write_all<T: Element>(view: &mut TensorViewMut<'_>, mut next: impl FnMut() -> T) {
    let shape = *view.shape();
    for position in 0..shape.elements() {
        let (index, rank) = shape.unravel(position);
        view.set(&index[..rank], next());
    }
}

impl Tensor {
    /// Memory for a shape, filled with a pattern that no kernel would leave: what was not written can be
    /// told from what was.
    pub fn empty(dtype: DType, shape: Shape, arrangement: Arrangement) -> Self {
        let (layout, first, length) = arrangement.place(shape);
        Self {
            data: Data::filled(dtype, length, CANARY),
            layout,
            first,
        }
    }

    /// A tensor of drawn values.
    fn drawn(
        operand: &Operand,
        arrangement: Arrangement,
        values: Values,
        rng: &mut Pcg64Mcg,
    ) -> Result<Self, ViewError> {
        let mut tensor = Self::empty(operand.dtype, operand.shape, arrangement);
        tensor.fill(rng, values)?;
        Ok(tensor)
    }

    /// The same elements in another arrangement.
    pub fn arranged(&self, arrangement: Arrangement) -> Result<Self, ViewError> {
        let mut copy = Self::empty(self.dtype(), *self.layout.shape(), arrangement);
        copy.assign(self)?;
        Ok(copy)
    }

    /// Takes over another tensor's elements, whatever lies where. Both have one type and shape.
    pub fn assign(&mut self, from: &Self) -> Result<(), ViewError> {
        self.read_from(&from.view()?)
    }

    /// Takes over the elements of a view of the same type and shape.
    pub fn read_from(&mut self, from: &TensorView<'_>) -> Result<(), ViewError> {
        copy(from, &mut self.view_mut()?)
    }

    /// Gives its elements to a view of the same type and shape.
    pub fn write_to(&self, to: &mut TensorViewMut<'_>) -> Result<(), ViewError> {
        copy(&self.view()?, to)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self.view() {
            Ok(view) => view.dtype(),
            Err(_) => DType::U8,
        }
    }
}

/// Copies element by element; another type or shape is an error.
fn copy(from: &TensorView<'_>, to: &mut TensorViewMut<'_>) -> Result<(), ViewError> {
    if from.dtype() != to.dtype() {
        let (actual, expected) = (from.dtype(), to.dtype());
        return Err(ViewError::DType { actual, expected });
    }
    if from.shape() != to.shape() {
        let (shape, length) = (*to.shape(), from.shape().elements());
        return Err(ViewError::Length { shape, length });
    }
    copy_elements(from, to)
}

/// The byte that fills memory nobody wrote.
const CANARY: u8 = 0x5a;

/// Inputs for a workload, drawn from a seed. Indices point inside what they pick from, with repeats.
/// Output memory that the operation updates in place is among [`outputs`].
pub fn inputs(
    workload: &Workload,
    arrangement: Arrangement,
    values: Values,
    seed: u64,
) -> Result<Vec<Tensor>, ViewError> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let values = values.of(workload.operation());
    let mut tensors = Vec::new();
    for operand in workload.inputs() {
        tensors.push(match picked_from(workload.operation(), operand) {
            Some(length) => indices(operand, arrangement, length, &mut rng),
            None if operand.name == "weights" => {
                Tensor::drawn(operand, arrangement, Values::Ordinary, &mut rng)?
            }
            None => Tensor::drawn(operand, arrangement, values, &mut rng)?,
        });
    }
    if let (Operation::Fft(fft), [spectrum]) = (workload.operation(), tensors.as_mut_slice())
        && fft.kind == FftKind::InverseReal
    {
        make_hermitian(spectrum, &fft.shape)?;
    }
    Ok(tensors)
}

/// Outputs for a workload: canaries, or drawn values where the operation updates in place.
pub fn outputs(
    workload: &Workload,
    arrangement: Arrangement,
    values: Values,
    seed: u64,
) -> Result<Vec<Tensor>, ViewError> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x6f75_7470_7574);
    let values = values.of(workload.operation());
    let in_place = matches!(workload.operation(), Operation::Scatter(_));
    let tensor = |operand: &Operand| match in_place {
        true => Tensor::drawn(operand, arrangement, values, &mut rng),
        false => Ok(Tensor::empty(operand.dtype, operand.shape, arrangement)),
    };
    workload.outputs().iter().map(tensor).collect()
}

/// How many slices there are to pick from, if this operand holds indices.
fn picked_from(operation: &Operation, operand: &Operand) -> Option<usize> {
    let (shape, axis) = match operation {
        Operation::Gather(gather) => (&gather.shape, gather.axis),
        Operation::Scatter(scatter) => (&scatter.shape, scatter.axis),
        _ => return None,
    };
    let holds_indices = operand.name == "indices";
    holds_indices
        .then(|| shape.dims().get(axis).copied())
        .flatten()
}

fn indices(
    operand: &Operand,
    arrangement: Arrangement,
    length: usize,
    rng: &mut Pcg64Mcg,
) -> Tensor {
    let mut tensor = Tensor::empty(operand.dtype, operand.shape, arrangement);
    let draw = |rng: &mut Pcg64Mcg| rng.random_range(0..length.max(1));
    if let Ok(mut view) = tensor.view_mut() {
        match operand.dtype {
            DType::I32 => write_all(&mut view, || draw(rng) as i32),
            _ => write_all(&mut view, || draw(rng) as i64),
        }
    }
    tensor
}

/// A half spectrum belongs to real numbers only if its first entry, and for an even length its last, is
/// real.
fn make_hermitian(spectrum: &mut Tensor, real: &Shape) -> Result<(), ViewError> {
    let Some(&length) = real.dims().last() else {
        return Ok(());
    };
    let mut view = spectrum.view_mut()?;
    let shape = *view.shape();
    for position in 0..shape.elements() {
        let (index, rank) = shape.unravel(position);
        let index = &index[..rank];
        let place = index.last().copied().unwrap_or(0);
        if place == 0 || (length % 2 == 0 && place == length / 2) {
            if let Some(value) = view.get::<Complex<f32>>(index) {
                view.set(index, Complex::new(value.re, 0.0));
            }
            if let Some(value) = view.get::<Complex<f64>>(index) {
                view.set(index, Complex::new(value.re, 0.0));
            }
        }
    }
    Ok(())
}

/// An element type of which values can be drawn and compared.
trait Sample: Element {
    fn draw(rng: &mut Pcg64Mcg, values: Values) -> Self;
    fn canary(byte: u8) -> Self;
    /// Equal in value; not a number equals not a number, 0 does not equal −0.
    fn same(self, other: Self) -> bool;
    fn bits(self) -> u128;
    /// A value that is clearly not this one.
    fn another(self) -> Self;
    fn parts(self) -> [f64; 2];
    fn absolute(self) -> Self;
}

/// One in so many values of [`Values::Special`] is special.
const SPECIAL: u32 = 9;

fn is_special(rng: &mut Pcg64Mcg, values: Values) -> bool {
    values == Values::Special && rng.random_range(0..SPECIAL) == 0
}

macro_rules! sample_float {
    ($($t:ty, $bits:ty, $from:expr, $to:expr;)*) => { $(
        impl Sample for $t {
            fn draw(rng: &mut Pcg64Mcg, values: Values) -> Self {
                if is_special(rng, values) {
                    let tiny = <$t>::from_bits(1);
                    let large = $from($to(<$t>::MAX).sqrt() / 64.0);
                    let special = [
                        <$t>::NAN, <$t>::INFINITY, <$t>::NEG_INFINITY, -$from(0.0), tiny, large, <$t>::MIN_POSITIVE,
                    ];
                    return special[rng.random_range(0..special.len())];
                }
                if values == Values::Typical {
                    return $from(rng.random_range(-2.0..2.0));
                }
                // Few distinct values, so that equal keys occur; exact in every type.
                $from(f64::from(rng.random_range(-64i32..=64)) / 32.0)
            }
            fn canary(byte: u8) -> Self {
                <$t>::from_bits(<$bits>::from_le_bytes([byte; size_of::<$bits>()]))
            }
            fn same(self, other: Self) -> bool {
                (self.is_nan() && other.is_nan()) || self.to_bits() == other.to_bits()
            }
            fn bits(self) -> u128 {
                self.to_bits().into()
            }
            fn another(self) -> Self {
                if self == $from(3.0) { $from(-3.0) } else { $from(3.0) }
            }
            fn parts(self) -> [f64; 2] {
                [$to(self), 0.0]
            }
            fn absolute(self) -> Self {
                if self.is_sign_negative() { -self } else { self }
            }
        }
    )* };
}

sample_float! {
    f16, u16, f16::from_f64, f16::to_f64;
    bf16, u16, bf16::from_f64, bf16::to_f64;
    f32, u32, |x: f64| x as f32, f64::from;
    f64, u64, |x: f64| x, |x: f64| x;
}

macro_rules! sample_integer {
    ($($t:ty, $low:expr;)*) => { $(
        impl Sample for $t {
            fn draw(rng: &mut Pcg64Mcg, values: Values) -> Self {
                if is_special(rng, values) {
                    return [<$t>::MIN, <$t>::MAX, 0][rng.random_range(0..3usize)];
                }
                match values {
                    Values::Typical => rng.random(),
                    _ => rng.random_range($low..=7),
                }
            }
            fn canary(byte: u8) -> Self {
                <$t>::from_le_bytes([byte; size_of::<$t>()])
            }
            fn same(self, other: Self) -> bool {
                self == other
            }
            fn bits(self) -> u128 {
                self as u128
            }
            fn another(self) -> Self {
                self.wrapping_add(1)
            }
            fn parts(self) -> [f64; 2] {
                [self as f64, 0.0]
            }
            #[allow(unused_comparisons, reason = "types without sign are never negative")]
            fn absolute(self) -> Self {
                if self < 0 { (0 as $t).wrapping_sub(self) } else { self }
            }
        }
    )* };
}

sample_integer! {
    i8, -7; i16, -7; i32, -7; i64, -7; u8, 0; u16, 0; u32, 0; u64, 0;
}

impl Sample for bool {
    fn draw(rng: &mut Pcg64Mcg, _values: Values) -> Self {
        rng.random()
    }
    fn canary(_byte: u8) -> Self {
        true
    }
    fn same(self, other: Self) -> bool {
        self == other
    }
    fn bits(self) -> u128 {
        self.into()
    }
    fn another(self) -> Self {
        !self
    }
    fn parts(self) -> [f64; 2] {
        [f64::from(u8::from(self)), 0.0]
    }
    fn absolute(self) -> Self {
        self
    }
}

macro_rules! sample_complex {
    ($($part:ty, $to:expr;)*) => { $(
        impl Sample for Complex<$part> {
            fn draw(rng: &mut Pcg64Mcg, values: Values) -> Self {
                Self::new(<$part>::draw(rng, values), <$part>::draw(rng, values))
            }
            fn canary(byte: u8) -> Self {
                Self::new(<$part>::canary(byte), <$part>::canary(byte))
            }
            fn same(self, other: Self) -> bool {
                self.re.same(other.re) && self.im.same(other.im)
            }
            fn bits(self) -> u128 {
                self.re.bits() << 64 | self.im.bits()
            }
            fn another(self) -> Self {
                Self::new(self.re.another(), self.im)
            }
            fn parts(self) -> [f64; 2] {
                [$to(self.re), $to(self.im)]
            }
            fn absolute(self) -> Self {
                Self::new(self.re.absolute(), self.im.absolute())
            }
        }
    )* };
}

sample_complex! {
    f32, f64::from;
    f64, |x: f64| x;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typical_keys_to_sort_are_many_different_ones_and_repeat_with_the_seed() {
        let different = |text: &str, values: Values, seed: u64| {
            let workload: Workload = text.parse().unwrap();
            let tensors = inputs(&workload, Arrangement::Contiguous, values, seed);
            let mut keys = tensors.unwrap()[0].numbers();
            keys.sort_by(|a, b| a[0].total_cmp(&b[0]));
            keys.dedup();
            keys
        };
        for text in ["sort u32 4000", "sort f32 4000", "sort i64 4000"] {
            let keys = |seed| different(text, Values::Typical, seed);
            assert!(keys(1).len() > 3990, "{text}");
            assert_eq!(keys(7), keys(7));
            assert_ne!(keys(7), keys(8));
            assert!(different(text, Values::Ordinary, 1).len() < 200, "{text}");
        }
        // Sums of any numbers would overflow.
        let sum = "reduce.sum i32 4000 axes0";
        assert_eq!(
            different(sum, Values::Typical, 3),
            different(sum, Values::Ordinary, 3)
        );
    }

    #[test]
    fn arrangements_have_the_layout_they_say() {
        use kernelwise_types::LayoutKind;
        let kind = |arrangement: Arrangement, shape: &str| {
            let tensor = Tensor::empty(DType::F32, shape.parse().unwrap(), arrangement);
            tensor.view().unwrap().layout().kind()
        };
        assert_eq!(
            kind(Arrangement::Contiguous, "3x4x5"),
            LayoutKind::Contiguous
        );
        assert_eq!(kind(Arrangement::Offset, "3x4x5"), LayoutKind::Contiguous);
        assert_eq!(kind(Arrangement::RowGaps, "3x4x5"), LayoutKind::RowGaps);
        assert_eq!(kind(Arrangement::Strided, "3x4x5"), LayoutKind::Strided);
        assert_eq!(kind(Arrangement::Strided, "5"), LayoutKind::Strided);
    }

    #[test]
    fn a_rearranged_tensor_has_the_same_elements_and_untouched_gaps() {
        for dtype in DType::ALL {
            let operand = Operand {
                name: "x",
                dtype: *dtype,
                shape: "3x4".parse().unwrap(),
            };
            let mut rng = Pcg64Mcg::seed_from_u64(1);
            let tensor =
                Tensor::drawn(&operand, Arrangement::Contiguous, Values::Special, &mut rng)
                    .unwrap();
            for arrangement in Arrangement::ALL {
                let other = tensor.arranged(arrangement).unwrap();
                assert_eq!(
                    tensor.first_difference(&other),
                    None,
                    "{dtype} {arrangement:?}"
                );
                assert_eq!(other.dtype(), *dtype);
            }
            let other = Tensor::drawn(
                &operand,
                Arrangement::Contiguous,
                Values::Ordinary,
                &mut rng,
            );
            assert!(
                tensor.first_difference(&other.unwrap()).is_some(),
                "{dtype}"
            );
        }
    }

    #[test]
    fn indices_point_inside_and_spectra_are_real_at_their_ends() {
        let gather: Workload = "gather f32 5x3 axis0 idx40".parse().unwrap();
        let tensors = inputs(&gather, Arrangement::Strided, Values::Special, 3).unwrap();
        let picked = tensors[1].numbers();
        assert_eq!(picked.len(), 40);
        assert!(picked.iter().all(|[index, _]| (0.0..5.0).contains(index)));

        let fft: Workload = "fft.inverse_real f32 2x6".parse().unwrap();
        let spectrum = inputs(&fft, Arrangement::Contiguous, Values::Ordinary, 3).unwrap();
        let numbers = spectrum[0].numbers();
        let imaginary: Vec<bool> = numbers.iter().map(|[_, im]| *im != 0.0).collect();
        assert_eq!(
            (imaginary[0], imaginary[3], imaginary[4]),
            (false, false, false)
        );
        assert!(imaginary.iter().any(|is| *is));
    }
}
