//! OpenBLAS, where it is installed. It is found when the kernels are listed and never linked; without it there is
//! nothing to offer.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Numerics, Refusal, Technique, Workload,
};
use libloading::Library;

use super::operands::{Product, refused};
use super::product::problem;
use crate::declare::spec;

/// The variable that names a file to load instead of the system's.
const VARIABLE: &str = "KERNELWISE_OPENBLAS";

/// Names under which systems know it.
const NAMES: [&str; 4] = [
    "libopenblas.so.0",
    "libopenblas.so",
    "libopenblas.dylib",
    "libopenblas.dll",
];

/// What the builds for Python put in front of every name.
const PREFIXES: [&str; 2] = ["", "scipy_"];

// Values of the C interface's enumerations.
const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;

/// `cblas_?gemm`: order, transposition of a and b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc.
type Gemm<T> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    T,
    *const T,
    c_int,
    *const T,
    c_int,
    T,
    *mut T,
    c_int,
);

/// The functions used here. The library stays loaded for good, so they stay valid.
struct Functions {
    sgemm: Gemm<f32>,
    dgemm: Gemm<f64>,
}

/// The library, looked for once.
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref()
}

fn load() -> Option<Functions> {
    let named = std::env::var_os(VARIABLE);
    let open = |name: &std::ffi::OsStr| {
        // SAFETY: whoever installs a file under these names, or names it in the variable, says that it is
        // OpenBLAS, whose initialisers only start its threads.
        unsafe { Library::new(name) }.ok()
    };
    let library = match &named {
        Some(file) => open(file),
        None => NAMES.iter().find_map(|name| open(name.as_ref())),
    }?;
    let functions = PREFIXES.iter().find_map(|prefix| {
        let name = |name: &str| format!("{prefix}{name}");
        // SAFETY: the types are those of the C interface. One thread: sharing is for the caller to decide. A build
        // with 64-bit integers is refused before a function takes one.
        unsafe {
            let config = library
                .get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(name(
                    "openblas_get_config",
                ))
                .ok()?;
            let config = std::ffi::CStr::from_ptr(config());
            if config.to_string_lossy().contains("USE64BITINT") {
                return None;
            }
            let functions = Functions {
                sgemm: *library.get(name("cblas_sgemm")).ok()?,
                dgemm: *library.get(name("cblas_dgemm")).ok()?,
            };
            let set_threads = library
                .get::<unsafe extern "C" fn(c_int)>(name("openblas_set_num_threads"))
                .ok()?;
            set_threads(1);
            Some(functions)
        }
    });
    // Never unloaded: its threads would run into the void.
    std::mem::forget(library);
    functions
}

/// The kernels; none where the library is not installed.
pub(super) fn kernels() -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    Ok(match functions() {
        None => Vec::new(),
        Some(functions) => vec![
            Arc::new(OpenBlas::new(functions.sgemm, 0.0, 1.0)?),
            Arc::new(OpenBlas::new(functions.dgemm, 0.0, 1.0)?),
        ],
    })
}

/// The kernel for one element type.
struct OpenBlas<T> {
    spec: KernelSpec,
    gemm: Gemm<T>,
    zero: T,
    one: T,
}

impl<T: Element> OpenBlas<T> {
    fn new(gemm: Gemm<T>, zero: T, one: T) -> Result<Self, InvalidKernelId> {
        let (technique, numerics) = (Technique::Library, Numerics::Reordered);
        Ok(Self {
            spec: spec("matmul", &[T::DTYPE], "openblas", technique, numerics)?,
            gemm,
            zero,
            one,
        })
    }
}

/// The sizes as the C interface takes them.
fn narrow(workload: &Workload) -> Option<[c_int; 3]> {
    let product = problem(workload)?;
    let [m, n, k] = [product.m, product.n, product.k].map(|size| c_int::try_from(size).ok());
    Some([m?, n?, k?])
}

const TOO_LONG: &str = "needs sides below 2^31";

impl<T: Element> Kernel for OpenBlas<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match narrow(workload) {
            Some(_) => Ok(()),
            None => Err(Refusal::Shape {
                condition: TOO_LONG.to_owned(),
            }),
        }
    }

    fn hint(&self) -> Hint {
        Hint::percent(80)
    }
}

impl<T: Element> HostKernel for OpenBlas<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let Some([m, n, k]) = narrow(workload) else {
            return Err(refused(&self.spec.id, TOO_LONG));
        };
        let layouts = inputs.iter().map(|view| view.layout());
        let mut layouts = layouts.chain(outputs.iter().map(|view| view.layout()));
        let (trans_a, trans_b) = match problem(workload) {
            Some(product) if layouts.all(|layout| layout.is_contiguous()) => {
                (product.trans_a, product.trans_b)
            }
            _ => return Err(refused(&self.spec.id, "needs operands without gaps")),
        };
        let product = Product::<T>::read(call, &self.spec.id)?;
        let order = |transposed| if transposed { TRANS } else { NO_TRANS };
        for index in 0..product.batch as isize {
            if m == 0 || n == 0 {
                break;
            }
            // SAFETY: the operands lie row by row without gaps, in the order stated, and `c` is writable by
            // nobody else; sizes and row lengths are those of the matrices.
            unsafe {
                (self.gemm)(
                    ROW_MAJOR,
                    order(trans_a),
                    order(trans_b),
                    m,
                    n,
                    k,
                    self.one,
                    product.a.first.wrapping_offset(index * product.a.step),
                    if trans_a { m } else { k }.max(1),
                    product.b.first.wrapping_offset(index * product.b.step),
                    if trans_b { k } else { n }.max(1),
                    self.zero,
                    product.c.first.wrapping_offset(index * product.c.step),
                    n,
                );
            }
        }
        Ok(())
    }
}
