//! The three transforms of F(2, 3) and F(4, 3) along one axis (Lavin and Gray, "Fast algorithms for convolutional
//! neural networks"); in two dimensions each is applied to the columns, then to the rows.
//!
//! Arrays have room for the larger of the two; a transform leaves alone what is beyond its own size.
#![allow(unsafe_code)]

use super::super::vector::Vector;

/// Room for the points of either transform.
pub(super) const MOST_POINTS: usize = 6;

/// Outputs of the larger transform.
pub(super) const MOST_OUTPUTS: usize = 4;

/// A fast algorithm for filters of three taps.
pub(super) trait Algorithm: Send + Sync + 'static {
    /// Outputs of one tile along one axis.
    const OUTPUTS: usize;
    /// Its inputs, which are as many as the products.
    const POINTS: usize = Self::OUTPUTS + 2;
    /// The name in kernel ids.
    const NAME: &'static str;

    /// # Safety
    /// The processor has the level of `V`.
    unsafe fn input<V: Vector>(d: [V; MOST_POINTS]) -> [V; MOST_POINTS];

    /// # Safety
    /// The processor has the level of `V`.
    unsafe fn filter<V: Vector>(g: [V; 3]) -> [V; MOST_POINTS];

    /// # Safety
    /// The processor has the level of `V`.
    unsafe fn output<V: Vector>(m: [V; MOST_POINTS]) -> [V; MOST_OUTPUTS];
}

/// F(2, 3): four products for two outputs instead of six.
pub(super) struct Two;

/// F(4, 3): six products for four outputs instead of twelve, and larger errors.
pub(super) struct Four;

impl Algorithm for Two {
    const OUTPUTS: usize = 2;
    const NAME: &'static str = "winograd-2x2";

    #[inline(always)]
    unsafe fn input<V: Vector>(mut d: [V; MOST_POINTS]) -> [V; MOST_POINTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let [a, b, c, e, ..] = d;
            d[0] = a.subtract(c);
            d[1] = b.add(c);
            d[2] = c.subtract(b);
            d[3] = b.subtract(e);
        }
        d
    }

    #[inline(always)]
    unsafe fn filter<V: Vector>([a, b, c]: [V; 3]) -> [V; MOST_POINTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let half = V::splat(0.5);
            let ends = a.add(c).multiply(half);
            let middle = b.multiply(half);
            [a, ends.add(middle), ends.subtract(middle), c, c, c]
        }
    }

    #[inline(always)]
    unsafe fn output<V: Vector>([a, b, c, d, ..]: [V; MOST_POINTS]) -> [V; MOST_OUTPUTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let first = a.add(b).add(c);
            let second = b.subtract(c).subtract(d);
            [first, second, first, second]
        }
    }
}

impl Algorithm for Four {
    const OUTPUTS: usize = 4;
    const NAME: &'static str = "winograd-4x4";

    #[inline(always)]
    unsafe fn input<V: Vector>([a, b, c, d, e, f]: [V; MOST_POINTS]) -> [V; MOST_POINTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let (two, four, minus_four, minus_five) =
                (V::splat(2.0), V::splat(4.0), V::splat(-4.0), V::splat(-5.0));
            let even = c.multiply_add(minus_four, e);
            let odd = b.multiply_add(minus_four, d);
            let inner_even = e.subtract(c);
            let inner_odd = d.subtract(b).multiply(two);
            [
                a.multiply_add(four, c.multiply_add(minus_five, e)),
                even.add(odd),
                even.subtract(odd),
                inner_even.add(inner_odd),
                inner_even.subtract(inner_odd),
                b.multiply_add(four, d.multiply_add(minus_five, f)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn filter<V: Vector>([a, b, c]: [V; 3]) -> [V; MOST_POINTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let (quarter, sixth, minus_sixth) =
                (V::splat(0.25), V::splat(1.0 / 6.0), V::splat(-1.0 / 6.0));
            let (twelfth, small) = (V::splat(1.0 / 12.0), V::splat(1.0 / 24.0));
            let ends = a.add(c).multiply(minus_sixth);
            let middle = b.multiply(sixth);
            let outer = a.multiply_add(small, c.multiply(sixth));
            let inner = b.multiply(twelfth);
            [
                a.multiply(quarter),
                ends.subtract(middle),
                ends.add(middle),
                outer.add(inner),
                outer.subtract(inner),
                c,
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<V: Vector>([a, b, c, d, e, f]: [V; MOST_POINTS]) -> [V; MOST_OUTPUTS] {
        // SAFETY: the caller has the level of V.
        unsafe {
            let (two, four, eight) = (V::splat(2.0), V::splat(4.0), V::splat(8.0));
            let (near, far) = (b.add(c), d.add(e));
            let (near_apart, far_apart) = (b.subtract(c), d.subtract(e));
            [
                a.add(near).add(far),
                far_apart.multiply_add(two, near_apart),
                far.multiply_add(four, near),
                far_apart.multiply_add(eight, near_apart).add(f),
            ]
        }
    }
}

/// Applies a transform to the columns, then to the rows, of a square of `size` points that become `to`.
macro_rules! both_axes {
    ($(#[$doc:meta])* $name:ident, $transform:ident, $from:expr, $in:expr, $to:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The processor has the level of `V`.
        #[inline(always)]
        pub(super) unsafe fn $name<A: Algorithm, V: Vector>(
            square: [[V; $from]; $from],
        ) -> [[V; $to]; $to] {
            // SAFETY: the caller has the level of V.
            unsafe {
                let zero = V::splat(0.0);
                let mut half = [[zero; $from]; $to];
                for x in 0..$in {
                    let mut column = [zero; $from];
                    for (value, row) in column.iter_mut().zip(&square) {
                        *value = row[x];
                    }
                    for (row, value) in half.iter_mut().zip(A::$transform(column)) {
                        row[x] = value;
                    }
                }
                // No closures: the compiler does not always give them the instructions of the level.
                let mut whole = [[zero; $to]; $to];
                for (whole, half) in whole.iter_mut().zip(half) {
                    *whole = A::$transform(half);
                }
                whole
            }
        }
    };
}

both_axes!(
    /// A tile of the input.
    input, input, MOST_POINTS, A::POINTS, MOST_POINTS
);
both_axes!(
    /// A filter.
    filter, filter, 3, 3, MOST_POINTS
);
both_axes!(
    /// A tile of products.
    output, output, MOST_POINTS, A::POINTS, MOST_OUTPUTS
);
