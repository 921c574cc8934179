//! One step, or a frequent pair of steps, over a block: a plain loop that becomes vector code.

use kernelwise_backend::Plain;
use kernelwise_types::op::{ActivationKind, Binary, Step, Unary};

use super::past::Past;
use crate::isa::Level;
use crate::movement::stream::{LINE, Stream, expect_read};
use crate::vector_math::{MathBody, run};

/// The further operand of a binary step, for one block.
#[derive(Debug, Clone, Copy)]
pub(super) enum Other<'a, T> {
    /// One for each element of the block.
    Each(&'a [T]),
    /// The same for all.
    Same(T),
}

/// Where the results of one loop go.
#[derive(Debug)]
pub(super) enum Out<'a, T> {
    /// To the caches.
    Near(&'a mut [T]),
    /// Past them.
    Past(&'a mut [T], Stream),
}

/// Element types with vector code for steps. Each function says whether there is a loop for this step on these
/// elements that can write there; where there is none, nothing is written. Operands are at least as long as the
/// result.
pub(super) trait Stepped: Plain {
    /// Something to fill a buffer with.
    const ZERO: Self;

    /// A function of the result so far.
    fn unary(level: Level, function: Unary, x: &[Self], out: Out<'_, Self>) -> bool;

    /// A function of the result so far and one more operand.
    fn binary(
        level: Level,
        function: Binary,
        x: &[Self],
        other: Other<'_, Self>,
        out: Out<'_, Self>,
    ) -> bool;

    /// An activation function of the result so far.
    fn activation(level: Level, function: ActivationKind, x: &[Self], out: Out<'_, Self>) -> bool;

    /// A binary step and the activation after it in one loop.
    fn then_activation(
        level: Level,
        steps: (Binary, ActivationKind),
        x: &[Self],
        other: Other<'_, Self>,
        out: Out<'_, Self>,
    ) -> bool;

    /// Two binary steps in one loop.
    fn then_binary(
        level: Level,
        steps: (Binary, Binary),
        x: &[Self],
        others: (Other<'_, Self>, Other<'_, Self>),
        out: Out<'_, Self>,
    ) -> bool;

    /// Any steps in one loop, each binary one with its operand.
    fn chain(
        level: Level,
        steps: &[Step],
        x: &[Self],
        others: &[Other<'_, Self>],
        out: Out<'_, Self>,
    ) -> bool;
}

/// A function of one element.
pub(super) trait Function<T>: Copy {
    /// Whether memory is slower than it: then there is a loop that writes past the caches.
    const LIGHT: bool;

    /// Its value.
    fn of<const FUSED: bool>(self, x: T) -> T;
}

/// A function of two elements.
pub(super) trait Function2<T>: Copy {
    /// As in [`Function`].
    const LIGHT: bool;

    /// Its value.
    fn of<const FUSED: bool>(self, x: T, y: T) -> T;
}

/// A function of two elements, the second always the same.
#[derive(Clone, Copy)]
pub(super) struct With<F, T>(pub(super) F, pub(super) T);

impl<T: Copy, F: Function2<T>> Function<T> for With<F, T> {
    const LIGHT: bool = F::LIGHT;

    #[inline(always)]
    fn of<const FUSED: bool>(self, x: T) -> T {
        self.0.of::<FUSED>(x, self.1)
    }
}

/// One function after the other.
#[derive(Clone, Copy)]
pub(super) struct Then<F, G>(pub(super) F, pub(super) G);

impl<T: Copy, F: Function2<T>, G: Function<T>> Function2<T> for Then<F, G> {
    const LIGHT: bool = F::LIGHT && G::LIGHT;

    #[inline(always)]
    fn of<const FUSED: bool>(self, x: T, y: T) -> T {
        self.1.of::<FUSED>(self.0.of::<FUSED>(x, y))
    }
}

/// Computes results from a position on.
pub(super) trait Fill<T> {
    /// Whether memory is slower than it.
    const LIGHT: bool;

    /// Results that are made before any is written past the caches, in whole cache lines: few, because the way from load to
    /// store costs bandwidth, and not one, because what the loop does besides moving them costs it too.
    const FEW: usize = 4 * LINE / size_of::<T>();

    /// As many results as `out` takes, the first of them number `at`. Inlined, as all vector code.
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]);

    /// Asks for what so many results need from memory.
    fn expect(&self, at: usize, length: usize);
}

/// A function of one operand.
pub(super) struct One<'a, T, F>(pub(super) F, pub(super) &'a [T]);

/// A function of two operands.
pub(super) struct Two<'a, T, F>(pub(super) F, pub(super) &'a [T], pub(super) &'a [T]);

/// A function of three operands, and of two with the same second argument for all.
struct Three<'a, T, F, G>((F, G), &'a [T], &'a [T], &'a [T]);
struct ThreeSame<'a, T, F, G>((F, G), &'a [T], T, &'a [T]);

impl<T: Copy, F: Function<T>> Fill<T> for One<'_, T, F> {
    const LIGHT: bool = F::LIGHT;

    #[inline(always)]
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        let operand = from(self.1, at, out.len());
        for (out, x) in out.iter_mut().zip(operand) {
            *out = self.0.of::<FUSED>(*x);
        }
    }

    #[inline(always)]
    fn expect(&self, at: usize, length: usize) {
        expect(self.1, at, length);
    }
}

impl<T: Copy, F: Function2<T>> Fill<T> for Two<'_, T, F> {
    const LIGHT: bool = F::LIGHT;

    #[inline(always)]
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        let operands = from(self.1, at, out.len())
            .iter()
            .zip(from(self.2, at, out.len()));
        for (out, (x, y)) in out.iter_mut().zip(operands) {
            *out = self.0.of::<FUSED>(*x, *y);
        }
    }

    #[inline(always)]
    fn expect(&self, at: usize, length: usize) {
        expect(self.1, at, length);
        expect(self.2, at, length);
    }
}

impl<T: Copy, F: Function2<T>, G: Function2<T>> Fill<T> for Three<'_, T, F, G> {
    const LIGHT: bool = F::LIGHT && G::LIGHT;

    #[inline(always)]
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        let (first, second) = self.0;
        let operands = from(self.1, at, out.len())
            .iter()
            .zip(from(self.2, at, out.len()));
        let operands = operands.zip(from(self.3, at, out.len()));
        for (out, ((x, y), z)) in out.iter_mut().zip(operands) {
            *out = second.of::<FUSED>(first.of::<FUSED>(*x, *y), *z);
        }
    }

    #[inline(always)]
    fn expect(&self, at: usize, length: usize) {
        expect(self.1, at, length);
        expect(self.2, at, length);
        expect(self.3, at, length);
    }
}

impl<T: Copy, F: Function2<T>, G: Function2<T>> Fill<T> for ThreeSame<'_, T, F, G> {
    const LIGHT: bool = F::LIGHT && G::LIGHT;

    #[inline(always)]
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        let (first, second) = self.0;
        let operands = from(self.1, at, out.len())
            .iter()
            .zip(from(self.3, at, out.len()));
        for (out, (x, z)) in out.iter_mut().zip(operands) {
            *out = second.of::<FUSED>(first.of::<FUSED>(*x, self.2), *z);
        }
    }

    #[inline(always)]
    fn expect(&self, at: usize, length: usize) {
        expect(self.1, at, length);
        expect(self.3, at, length);
    }
}

/// So many elements from a position on: where all operands have the length of the result, the loop over them needs
/// no other end.
#[inline(always)]
pub(super) fn from<T>(operand: &[T], at: usize, length: usize) -> &[T] {
    &operand[at..at + length]
}

/// Asks for the lines of elements that will be read; what is not there is no harm.
#[inline(always)]
pub(super) fn expect<T>(operand: &[T], at: usize, length: usize) {
    for element in (at..at + length).step_by((LINE / size_of::<T>()).max(1)) {
        expect_read(operand.as_ptr().wrapping_add(element).cast());
    }
}

/// The loop, if there is one that writes there.
pub(super) fn put<T: Stepped, F: Fill<T>>(level: Level, fill: F, out: Out<'_, T>) -> bool {
    struct Near<'a, T, F>(F, &'a mut [T]);
    impl<T, F: Fill<T>> MathBody for Near<'_, T, F> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(mut self) {
            self.0.fill::<FUSED>(0, self.1);
        }
    }
    match out {
        Out::Near(out) => run(level, Near(fill, out)),
        Out::Past(out, stream) if F::LIGHT => run(level, Past { fill, out, stream }),
        Out::Past(..) => return false,
    }
    true
}

/// `function` of every element.
pub(super) fn map<T: Stepped>(
    level: Level,
    function: impl Function<T>,
    x: &[T],
    out: Out<'_, T>,
) -> bool {
    put(level, One(function, x), out)
}

/// `function` of every element and the other operand.
pub(super) fn map2<T: Stepped>(
    level: Level,
    function: impl Function2<T>,
    x: &[T],
    other: Other<'_, T>,
    out: Out<'_, T>,
) -> bool {
    match other {
        Other::Each(y) => put(level, Two(function, x, y), out),
        Other::Same(y) => map(level, With(function, y), x, out),
    }
}

/// The second function of the result of the first, each with an operand of its own; the second one full.
pub(super) fn map3<T: Stepped>(
    level: Level,
    functions: (impl Function2<T>, impl Function2<T>),
    x: &[T],
    others: (Other<'_, T>, Other<'_, T>),
    out: Out<'_, T>,
) -> bool {
    match others {
        (Other::Each(y), Other::Each(z)) => put(level, Three(functions, x, y, z), out),
        (Other::Same(y), Other::Each(z)) => put(level, ThreeSame(functions, x, y, z), out),
        (_, Other::Same(_)) => false,
    }
}

/// Names functions: a type for each, with its value. `light` ones have loops that write past the caches.
macro_rules! functions {
    ($bound:ident: $($weight:ident $name:ident($($argument:ident),+) = $value:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;
            $crate::elementwise::loops::functions!(@ $bound $weight $name ($($argument),+) $value);
        )*
    };
    (@ $bound:ident $weight:ident $name:ident ($x:ident) $value:expr) => {
        impl<T: $bound> Function<T> for $name {
            const LIGHT: bool = $crate::elementwise::loops::functions!(@ $weight);
            #[inline(always)]
            fn of<const FUSED: bool>(self, $x: T) -> T {
                $value
            }
        }
    };
    (@ $bound:ident $weight:ident $name:ident ($x:ident, $y:ident) $value:expr) => {
        impl<T: $bound> Function2<T> for $name {
            const LIGHT: bool = $crate::elementwise::loops::functions!(@ $weight);
            #[inline(always)]
            fn of<const FUSED: bool>(self, $x: T, $y: T) -> T {
                $value
            }
        }
    };
    (@ light) => { true };
    (@ heavy) => { false };
}
pub(super) use functions;
