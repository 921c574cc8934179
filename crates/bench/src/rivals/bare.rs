//! The calibration's loop beside kernels that are as fast as memory lets them.

use kernelwise_backend::Call;
use kernelwise_backend::sample::Tensor;
use kernelwise_probe::calibrate::BareLoop;
use kernelwise_types::op::{Binary, Broadcast, Operation, Step};
use kernelwise_types::{DType, Workload};

use super::{Rival, output, slice};

/// As contenders have it.
pub(super) const NAME: &str = "bare-loop";

/// The loop for this workload, or why there is none.
pub(super) fn enter<'a>(
    workload: &Workload,
    inputs: &'a [Tensor],
    threads: u32,
) -> Result<Box<dyn Rival + 'a>, &'static str> {
    const ONLY: &str = "copies or adds two tensors of f32, nothing else";
    if threads > 1 {
        return Err("runs on one thread: compare with one");
    }
    if workload.dtype() != DType::F32 {
        return Err(ONLY);
    }
    let adds = match workload.operation() {
        Operation::TensorCopy(_) => false,
        Operation::Elementwise(chain) => {
            let sum = [Step::Binary(Binary::Add, Broadcast::Full)];
            if chain.steps.as_slice() != sum {
                return Err(ONLY);
            }
            true
        }
        _ => return Err(ONLY),
    };
    let operands = inputs.iter().map(slice).collect::<Result<Vec<_>, _>>();
    let operands = operands.map_err(|_| "takes operands without gaps")?;
    Ok(Box::new(Bare {
        bare: BareLoop::default(),
        operands,
        adds,
    }))
}

struct Bare<'a> {
    bare: BareLoop,
    operands: Vec<&'a [f32]>,
    adds: bool,
}

impl Rival for Bare<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        let to = output(call)?;
        let done = match (self.operands.as_slice(), self.adds) {
            ([from], false) => self.bare.copy(to, from),
            ([b, c], true) => self.bare.add(to, b, c),
            _ => return Err(format!("{} operands", self.operands.len())),
        };
        done.map_err(|error| error.to_string())
    }

    fn show(&mut self, _call: &mut Call<'_, '_>) -> Result<(), String> {
        Ok(())
    }
}
