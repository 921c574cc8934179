//! Matrix products by the crates `gemm` and `matrixmultiply` and by OpenBLAS.

use kernelwise_backend::Call;
use kernelwise_backend::sample::Tensor;
use kernelwise_rivals::{CallError, OpenBlas};
use kernelwise_types::Element;
use kernelwise_types::op::Matmul;

use super::{Rival, Target, slice};

/// A library of matrix products.
#[derive(Clone, Copy)]
pub(super) enum Library<'a> {
    Gemm,
    Matrixmultiply,
    /// With so many threads of its own.
    OpenBlas(&'a OpenBlas, usize),
}

/// A product of matrices, or of a batch of them.
pub(super) struct Product<'a, T> {
    name: &'static str,
    library: Library<'a>,
    shape: Matmul,
    a: &'a [T],
    b: &'a [T],
    out: Target<T>,
}

impl<'a, T: Real> Product<'a, T> {
    pub(super) fn new(
        name: &'static str,
        library: Library<'a>,
        shape: Matmul,
        inputs: &'a [Tensor],
    ) -> Result<Self, String> {
        let [a, b] = inputs else {
            return Err("takes two matrices".to_owned());
        };
        let Matmul { batch, m, n, .. } = shape;
        Ok(Self {
            name,
            library,
            shape,
            a: slice(a)?,
            b: slice(b)?,
            out: Target::new(batch * m * n, T::ZERO),
        })
    }
}

impl<T: Real> Rival for Product<'_, T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        let shape = self.shape;
        let Matmul { m, k, n, .. } = shape;
        let out = self.out.slice(call)?;
        let products = self
            .a
            .chunks_exact(m * k)
            .zip(self.b.chunks_exact(k * n))
            .zip(out.chunks_exact_mut(m * n));
        for ((a, b), out) in products {
            match self.library {
                Library::Gemm => T::gemm(&shape, a, b, out),
                Library::Matrixmultiply => T::matrixmultiply(&shape, a, b, out),
                Library::OpenBlas(blas, threads) => {
                    // The kernel around it runs in this process too, and lets it compute on one thread.
                    let told = blas.set_threads(threads);
                    told.map_err(|error| error.to_string())?;
                    T::openblas(blas, &shape, a, b, out).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    }

    fn show(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        self.out.show(call)
    }
}

/// Distances between rows and between columns of the two sides, as they are stored.
fn strides(shape: &Matmul) -> [[isize; 2]; 2] {
    let of = |rows: usize, columns: usize, transposed: bool| match transposed {
        false => [columns as isize, 1],
        true => [1, rows as isize],
    };
    [
        of(shape.m, shape.k, shape.trans_a),
        of(shape.k, shape.n, shape.trans_b),
    ]
}

/// Whether the slices hold the matrices of a product.
fn fits<T>(shape: &Matmul, a: &[T], b: &[T], out: &[T]) -> bool {
    let Matmul { m, k, n, .. } = *shape;
    a.len() == m * k && b.len() == k * n && out.len() == m * n
}

/// The element types that all libraries of products know.
pub(super) trait Real: Element + 'static {
    const ZERO: Self;

    /// Nothing happens if the slices do not hold the matrices.
    fn gemm(shape: &Matmul, a: &[Self], b: &[Self], out: &mut [Self]);

    /// As above.
    fn matrixmultiply(shape: &Matmul, a: &[Self], b: &[Self], out: &mut [Self]);

    fn openblas(
        blas: &OpenBlas,
        shape: &Matmul,
        a: &[Self],
        b: &[Self],
        out: &mut [Self],
    ) -> Result<(), CallError>;
}

macro_rules! real {
    ($($rust:ty, $matrixmultiply:path, $openblas:ident;)*) => {
        $(impl Real for $rust {
            const ZERO: Self = 0.0;

            fn gemm(shape: &Matmul, a: &[Self], b: &[Self], out: &mut [Self]) {
                if !fits(shape, a, b, out) {
                    return;
                }
                let Matmul { m, k, n, .. } = *shape;
                let [[a_rows, a_columns], [b_rows, b_columns]] = strides(shape);
                // SAFETY: the slices hold m x k, k x n and m x n elements, which these strides cover without
                // leaving them; the output is borrowed alone.
                unsafe {
                    gemm::gemm(
                        m, n, k,
                        out.as_mut_ptr(), 1, n as isize, false,
                        a.as_ptr(), a_columns, a_rows,
                        b.as_ptr(), b_columns, b_rows,
                        0.0, 1.0, false, false, false,
                        gemm::Parallelism::None,
                    );
                }
            }

            fn matrixmultiply(shape: &Matmul, a: &[Self], b: &[Self], out: &mut [Self]) {
                if !fits(shape, a, b, out) {
                    return;
                }
                let Matmul { m, k, n, .. } = *shape;
                let [[a_rows, a_columns], [b_rows, b_columns]] = strides(shape);
                // SAFETY: as above.
                unsafe {
                    $matrixmultiply(
                        m, k, n, 1.0,
                        a.as_ptr(), a_rows, a_columns,
                        b.as_ptr(), b_rows, b_columns,
                        0.0, out.as_mut_ptr(), n as isize, 1,
                    );
                }
            }

            fn openblas(
                blas: &OpenBlas,
                shape: &Matmul,
                a: &[Self],
                b: &[Self],
                out: &mut [Self],
            ) -> Result<(), CallError> {
                let Matmul { m, k, n, trans_a, trans_b, .. } = *shape;
                blas.$openblas(m, n, k, a, trans_a, b, trans_b, out)
            }
        })*
    };
}

real! {
    f32, matrixmultiply::sgemm, sgemm;
    f64, matrixmultiply::dgemm, dgemm;
}
