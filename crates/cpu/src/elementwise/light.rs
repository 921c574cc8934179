//! Any chain of light steps in one loop, whose results go past the caches.
//!
//! A few cache lines of results take all steps before the next few are read: the shorter the way from load to
//! store, the nearer a chain comes to a plain copy. Which step is next is asked anew for each of them; that costs less
//! than memory does, and a loop compiled for every chain there can be would have no end.

use kernelwise_types::op::Step;

use super::float::{Float, activation, binary, unary};
use super::loops::{Fill, Function, Function2, One, Other, Two, With, expect, from};

/// Does something with the function of a step.
pub(super) trait Visitor<T>: Sized {
    /// With one of the result so far.
    fn one<F: Function<T>>(self, function: F) -> bool;

    /// With one of the result so far and another operand.
    fn two<F: Function2<T>>(self, function: F) -> bool;
}

/// Asks whether memory is slower than a function.
struct Weigh;

impl<T> Visitor<T> for Weigh {
    fn one<F: Function<T>>(self, _function: F) -> bool {
        F::LIGHT
    }

    fn two<F: Function2<T>>(self, _function: F) -> bool {
        F::LIGHT
    }
}

/// Whether memory is slower than all of the steps.
pub(super) fn is_light<T: Float>(steps: &[Step]) -> bool {
    steps.iter().all(|step| match *step {
        Step::Unary(function) => unary::<T, _>(function, Weigh),
        Step::Binary(function, _) => binary::<T, _>(function, Weigh),
        Step::Activation(function) => activation::<T, _>(function, Weigh),
    })
}

/// The loop's body.
pub(super) struct Light<'a, T> {
    steps: &'a [Step],
    x: &'a [T],
    others: &'a [Other<'a, T>],
    /// Room for every other step.
    spare: [T; MOST],
}

impl<T: Float> Fill<T> for Light<'_, T> {
    const LIGHT: bool = true;
    /// So that asking for the steps is a small part of doing them.
    const FEW: usize = MOST;

    #[inline(always)]
    fn fill<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        // Of a length that the compiler knows it makes better code.
        if let Ok(out) = <&mut [T; MOST]>::try_from(&mut *out) {
            return self.few::<FUSED>(at, out);
        }
        for (out, at) in out.chunks_mut(MOST).zip((at..).step_by(MOST)) {
            self.few::<FUSED>(at, out);
        }
    }

    #[inline(always)]
    fn expect(&self, at: usize, length: usize) {
        expect(self.x, at, length);
        for other in self.others {
            if let Other::Each(values) = other {
                expect(values, at, length);
            }
        }
    }
}

/// Most elements that go through the steps at a time: whole cache lines of any type.
pub(super) const MOST: usize = 64;

impl<'a, T: Float> Light<'a, T> {
    /// Of steps that are all [light](is_light), a first operand and one for each binary step.
    pub(super) fn new(steps: &'a [Step], x: &'a [T], others: &'a [Other<'a, T>]) -> Self {
        Self {
            steps,
            x,
            others,
            spare: [<T as super::Stepped>::ZERO; MOST],
        }
    }

    /// All steps to at most [`MOST`] elements, to and fro between the result and the spare room. Never in place: of a
    /// function like the larger of two, compilers would write back only what has changed, and such stores are slow.
    #[inline(always)]
    fn few<const FUSED: bool>(&mut self, at: usize, out: &mut [T]) {
        let length = out.len();
        let spare = &mut self.spare[..length];
        let mut others = self.others.iter();
        let mut next = |step: &Step| {
            let other = match step {
                Step::Binary(..) => others.next(),
                _ => None,
            };
            match other {
                Some(Other::Each(values)) => Other::Each(from(values, at, length)),
                Some(Other::Same(value)) => Other::Same(*value),
                None => Other::Same(<T as super::Stepped>::ZERO),
            }
        };
        let x = from(self.x, at, length);
        // Two steps lead back to the result, so one or two come before the pairs.
        let before = 2 - self.steps.len() % 2;
        let (first, pairs) = self.steps.split_at(before.min(self.steps.len()));
        match first {
            [one] => Apply::<'_, T, FUSED>::step(one, x, next(one), out),
            [one, other] => {
                Apply::<'_, T, FUSED>::step(one, x, next(one), spare);
                Apply::<'_, T, FUSED>::step(other, spare, next(other), out);
            }
            _ => out.copy_from_slice(x),
        }
        for [one, other] in pairs.as_chunks::<2>().0 {
            Apply::<'_, T, FUSED>::step(one, out, next(one), spare);
            Apply::<'_, T, FUSED>::step(other, spare, next(other), out);
        }
    }
}

/// One step, from one buffer to another.
struct Apply<'a, T, const FUSED: bool> {
    x: &'a [T],
    other: Other<'a, T>,
    out: &'a mut [T],
}

impl<'a, T: Float, const FUSED: bool> Apply<'a, T, FUSED> {
    #[inline(always)]
    fn step(step: &Step, x: &'a [T], other: Other<'a, T>, out: &'a mut [T]) {
        let apply = Self { x, other, out };
        match *step {
            Step::Unary(function) => unary(function, apply),
            Step::Binary(function, _) => binary(function, apply),
            Step::Activation(function) => activation(function, apply),
        };
    }
}

impl<T: Copy, const FUSED: bool> Visitor<T> for Apply<'_, T, FUSED> {
    #[inline(always)]
    fn one<F: Function<T>>(self, function: F) -> bool {
        // What is heavy never comes here, and need not be compiled.
        if F::LIGHT {
            One(function, self.x).fill::<FUSED>(0, self.out);
        }
        F::LIGHT
    }

    #[inline(always)]
    fn two<F: Function2<T>>(self, function: F) -> bool {
        if F::LIGHT {
            match self.other {
                Other::Each(values) => Two(function, self.x, values).fill::<FUSED>(0, self.out),
                Other::Same(value) => One(With(function, value), self.x).fill::<FUSED>(0, self.out),
            }
        }
        F::LIGHT
    }
}
