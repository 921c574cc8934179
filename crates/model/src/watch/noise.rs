//! Noise for tests.

use rand::RngExt;
use rand_pcg::Pcg64;

/// Of deviation 1 (Box and Muller).
pub(super) fn normal(rng: &mut Pcg64) -> f64 {
    let (a, b): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// Of deviation 1, with heavier tails.
pub(super) fn laplace(rng: &mut Pcg64) -> f64 {
    let at: f64 = rng.random::<f64>() - 0.5;
    -at.signum() * (1.0 - 2.0 * at.abs()).max(1e-300).ln() / std::f64::consts::SQRT_2
}
