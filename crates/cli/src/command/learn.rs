//! `kernelwise learn`: the main job. There are no kernels to race yet, so it says so, and what works.

use crate::exit::Failure;
use crate::output;

const ANSWER: &str = "\
`learn` will race the built-in kernels on this machine and remember which wins where.
It is not built yet: this version has no kernels. What it can do:

  kernelwise probe               what this machine is and how busy it is
  kernelwise probe --calibrate   how fast it can possibly be, with the spread
  kernelwise probe --watch       its load, second by second
  kernelwise doctor              whether it can be measured on, and what to do about it
  kernelwise cost WORKLOAD       arithmetic and bytes of an operation, such as
                                 matmul f32 512x512x512
";

/// Says what there is instead.
pub(crate) fn run() -> Result<(), Failure> {
    output::text(ANSWER)
}
