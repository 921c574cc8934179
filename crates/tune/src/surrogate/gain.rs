//! How much better a configuration may turn out than the best one known.

/// Expected improvement on `best`, in the units of the model, of something believed to lie at `mean`, give or take `spread`
/// (Mockus; Jones and others, 1998).
pub(crate) fn expected_gain(best: f64, mean: f64, spread: f64) -> f64 {
    // Certainty is a limit that a division cannot take.
    let spread = spread.max(1e-9);
    let z = (best - mean) / spread;
    spread * (z * below(z) + density(z))
}

fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The share of a normal distribution below `z`, to seven digits (Abramowitz and Stegun, 26.2.17).
pub(crate) fn below(z: f64) -> f64 {
    const TERMS: [f64; 5] = [
        1.330_274_429,
        -1.821_255_978,
        1.781_477_937,
        -0.356_563_782,
        0.319_381_530,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let tail = density(z) * TERMS.into_iter().fold(0.0, |sum, term| (sum + term) * t);
    if z >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_those_of_the_table() {
        // At the best with spread 1: the density at zero.
        assert!((expected_gain(0.0, 0.0, 1.0) - 0.398_942).abs() < 1e-5);
        assert!((expected_gain(0.0, 1.0, 1.0) - 0.083_315).abs() < 1e-5);
        // Certain and better by two.
        assert!((expected_gain(2.0, 0.0, 0.0) - 2.0).abs() < 1e-6);
        assert!(expected_gain(0.0, 2.0, 0.0) < 1e-9);
        // More spread, more to hope for.
        assert!(expected_gain(0.0, 1.0, 2.0) > expected_gain(0.0, 1.0, 1.0));
    }
}
