//! What goes into the contenders of a shape, and what lies in their outputs before.

use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_types::op::Operation;
use kernelwise_types::{DType, ViewError, Workload};

/// Inputs of a shape, drawn from a seed. Keys to sort are drawn from all values of their type: with few different keys every
/// sort is quick.
pub(crate) fn inputs(workload: &Workload, seed: u64) -> Result<Vec<Tensor>, ViewError> {
    let mut inputs = sample::inputs(workload, Arrangement::Contiguous, Values::Ordinary, seed)?;
    if let (Operation::Sort(_), Some(keys)) = (workload.operation(), inputs.first_mut()) {
        scatter_keys(keys, seed)?;
    }
    Ok(inputs)
}

/// What lies in the outputs before a run: patterns no kernel would leave, or what the operation updates.
pub(crate) fn outputs(workload: &Workload, seed: u64) -> Result<Vec<Tensor>, ViewError> {
    sample::outputs(workload, Arrangement::Contiguous, Values::Ordinary, seed)
}

fn scatter_keys(keys: &mut Tensor, seed: u64) -> Result<(), ViewError> {
    let mut state = seed;
    // SplitMix64: every seed is good, and all bits of its output are.
    let mut bits = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    macro_rules! fill {
        ($($dtype:ident: $rust:ty = $value:expr;)*) => {
            match keys.dtype() {
                $(DType::$dtype => {
                    let mut view = keys.view_mut()?;
                    let value: fn(u64) -> $rust = $value;
                    view.as_mut_slice::<$rust>()?.iter_mut().for_each(|key| *key = value(bits()));
                })*
                // The other types have few values, which the ordinary draw covers.
                _ => {}
            }
        };
    }
    /// From −1 to 1.
    fn unit(bits: u64) -> f64 {
        (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    fill! {
        U16: u16 = |bits| bits as u16;
        U32: u32 = |bits| bits as u32;
        U64: u64 = |bits| bits;
        I16: i16 = |bits| bits as i16;
        I32: i32 = |bits| bits as i32;
        I64: i64 = |bits| bits as i64;
        F32: f32 = |bits| unit(bits) as f32;
        F64: f64 = unit;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_to_sort_are_many_different_ones_and_repeat_with_the_seed() {
        for text in ["sort u32 4000", "sort f32 4000", "sort i64 4000"] {
            let sort: Workload = text.parse().unwrap();
            let keys = |seed| {
                let mut keys = inputs(&sort, seed).unwrap()[0].numbers();
                keys.sort_by(|a, b| a[0].total_cmp(&b[0]));
                keys.dedup();
                keys
            };
            assert!(keys(1).len() > 3990, "{text}");
            assert_eq!(keys(7), keys(7));
            assert_ne!(keys(7), keys(8));
        }
    }
}
