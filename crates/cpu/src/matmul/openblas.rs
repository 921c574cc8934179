//! OpenBLAS, where it is installed. It is found when the kernels are listed and never linked; without it there is
//! nothing to offer.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_rivals::{CallError, OpenBlas};
use kernelwise_types::op::Operation;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::operands::refused;
use super::product::problem;
use crate::declare::spec;
use crate::pool::threads;

knobs! {
    /// How OpenBLAS works.
    struct BlasKnobs {
        /// Threads of its own that it may use.
        threads,
    }
}

/// Element types it multiplies.
trait Multiplied: Element {
    /// `c = op(a) · op(b)`, `size` being m, n and k; each operand comes with whether it is transposed.
    fn multiply(
        blas: &OpenBlas,
        size: (usize, usize, usize),
        a: (&[Self], bool),
        b: (&[Self], bool),
        c: &mut [Self],
    ) -> Result<(), CallError>;
}

macro_rules! multiplied {
    ($($element:ty: $gemm:ident),*) => {
        $(impl Multiplied for $element {
            fn multiply(
                blas: &OpenBlas,
                (m, n, k): (usize, usize, usize),
                a: (&[Self], bool),
                b: (&[Self], bool),
                c: &mut [Self],
            ) -> Result<(), CallError> {
                blas.$gemm(m, n, k, a.0, a.1, b.0, b.1, c)
            }
        })*
    };
}

multiplied!(f32: sgemm, f64: dgemm);

/// The kernels; none where the library is not installed.
pub(super) fn kernels() -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    static LIBRARY: OnceLock<Option<OpenBlas>> = OnceLock::new();
    Ok(match LIBRARY.get_or_init(|| OpenBlas::load().ok()) {
        None => Vec::new(),
        Some(blas) => vec![
            Arc::new(Blas::<f32>::new(blas)?),
            Arc::new(Blas::<f64>::new(blas)?),
        ],
    })
}

/// The kernel for one element type.
struct Blas<T> {
    spec: KernelSpec,
    blas: &'static OpenBlas,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Blas<T> {
    fn new(blas: &'static OpenBlas) -> Result<Self, InvalidKernelId> {
        let (technique, numerics) = (Technique::Library, Numerics::Reordered);
        Ok(Self {
            spec: spec("matmul", &[T::DTYPE], "openblas", technique, numerics)?,
            blas,
            element: PhantomData,
        })
    }
}

/// The C interface takes sizes as 32-bit integers.
fn narrow(workload: &Workload) -> bool {
    problem(workload).is_some_and(|product| {
        let sizes = [product.m, product.n, product.k];
        sizes.iter().all(|size| i32::try_from(*size).is_ok())
    })
}

const TOO_LONG: &str = "needs sides below 2^31";

impl<T: Multiplied> Kernel for Blas<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match narrow(workload) {
            true => Ok(()),
            false => Err(Refusal::Shape {
                condition: TOO_LONG.to_owned(),
            }),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<BlasKnobs, 1>([Axis::threads(machine)])
    }

    fn hint(&self) -> Hint {
        Hint::percent(80)
    }
}

impl<T: Multiplied> HostKernel for Blas<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (Operation::Matmul(product), [a, b], [c], true) =
            (workload.operation(), inputs, outputs, narrow(workload))
        else {
            return Err(refused(&self.spec.id, TOO_LONG));
        };
        let (a, b, c) = (
            a.as_slice::<T>()?,
            b.as_slice::<T>()?,
            c.as_mut_slice::<T>()?,
        );
        let failed = |error: CallError| Fault::kernel(&self.spec.id, error);
        let threads = threads(BlasKnobs::of(setting).threads);
        #[cfg(test)]
        crate::pool::trace::note(threads, threads);
        // It has one number of threads for the whole process; setting it anew costs more than asking.
        if self.blas.threads() != threads {
            self.blas.set_threads(threads).map_err(failed)?;
        }
        let (m, n, k) = (product.m, product.n, product.k);
        let matrices = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
        for ((a, b), c) in matrices.zip(c.chunks_exact_mut(m * n)) {
            let (a, b) = ((a, product.trans_a), (b, product.trans_b));
            T::multiply(self.blas, (m, n, k), a, b, c).map_err(failed)?;
        }
        Ok(())
    }
}
