//! `kernelwise learn`: the main job. Nothing remembers yet which kernel won, so it says so, and what works.

use crate::exit::Failure;
use crate::output;

const ANSWER: &str = "\
`learn` will race the built-in kernels on this machine and remember which wins where.
There are kernels, `bench ops` races them and `explain` learns which to choose; remembering is not built yet.
What this version can do:

  kernelwise explain OP --shape S   which kernel computes an input best, and why
  kernelwise demo drift             how learning tells a slow kernel from a slow machine
  kernelwise bench ops --op OP      which kernel of an operation is fastest here, shape by shape
  kernelwise kernels --op OP        which kernels there are, and which may run on --shape SHAPE
  kernelwise probe                  what this machine is and how busy it is
  kernelwise probe --calibrate      how fast it can possibly be, with the spread
  kernelwise probe --watch          its load, second by second
  kernelwise doctor                 whether it can be measured on, and what to do about it
  kernelwise cost WORKLOAD          arithmetic and bytes of an operation, such as
                                    matmul f32 512x512x512
";

/// Says what there is instead.
pub(crate) fn run() -> Result<(), Failure> {
    output::text(ANSWER)
}
