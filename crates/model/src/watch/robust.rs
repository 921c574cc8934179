//! Middle and spread that a few wild numbers do not move, and the tail of the normal distribution.

/// The median absolute deviation of normal noise, times this, is its standard deviation.
const NORMAL: f64 = 1.4826;

/// The median of finite numbers, which change places; of none there is none.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let (middle, is_odd) = (values.len() / 2, !values.len().is_multiple_of(2));
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        return Some(upper);
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(lower / 2.0 + upper / 2.0)
}

/// The median and the standard deviation that normal noise of the same median absolute deviation has.
pub(super) fn middle_and_spread(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = values.collect();
    let middle = median(&mut values)?;
    for value in &mut values {
        *value = (*value - middle).abs();
    }
    Some((middle, NORMAL * median(&mut values)?))
}

/// How likely a standard normal number is further from 0 than this, on either side. Series and continued fraction of
/// Abramowitz and Stegun, 26.2.11 and 26.2.14.
pub(super) fn two_sided(z: f64) -> f64 {
    let z = z.abs();
    if z > 38.0 {
        return 0.0;
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for odd in (3..101).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        return (1.0 - 2.0 * density * sum).clamp(0.0, 1.0);
    }
    let fraction = (1..60).rev().fold(z, |below, k| z + f64::from(k) / below);
    2.0 * density / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some(3.0));
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_wild_number_moves_neither_middle_nor_spread() {
        let calm = [1.0, 2.0, 3.0, 4.0, 5.0];
        let wild = [1.0, 2.0, 3.0, 4.0, 1e9];
        let of = |values: [f64; 5]| middle_and_spread(values.into_iter()).unwrap();
        assert_eq!(of(calm), (3.0, NORMAL));
        assert_eq!(of(wild), (3.0, NORMAL));
        assert_eq!(middle_and_spread(std::iter::empty()), None);
    }

    #[test]
    fn tails_are_those_of_the_tables() {
        for (z, p) in [
            (0.0, 1.0),
            (1.0, 0.317_310_508),
            (1.959_963_985, 0.05),
            (2.999_999, 0.002_699_805),
            (3.290_526_731, 0.001),
            (-6.0, 1.973_175e-9),
        ] {
            assert!(
                (two_sided(z) / p - 1.0).abs() < 1e-5,
                "{z}: {}",
                two_sided(z)
            );
        }
        assert_eq!(two_sided(1e300), 0.0);
    }
}
