//! OpenBLAS: matrix products through its C interface.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::{check_length, thread_count};
use crate::load::{Opened, Wanted};
use crate::{CallError, LoadError};

static WANTED: Wanted = Wanted {
    library: "OpenBLAS",
    variable: "KERNELWISE_OPENBLAS",
    sonames: &["libopenblas.so.0", "libopenblas.so"],
    in_prefix: &[
        "lib/*/site-packages/scipy_openblas32/lib/libscipy_openblas.so",
        "lib/*/dist-packages/scipy_openblas32/lib/libscipy_openblas.so",
    ],
    files: &[
        "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
        "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
    ],
    remedy: "pip install scipy-openblas32` or `apt-get install libopenblas0-pthread",
};

/// What wheels put before the names of all functions, so that two copies get along in one process.
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
type Text = unsafe extern "C" fn() -> *const c_char;

/// What `openblas_get_parallel` answers for a build without threads.
const SEQUENTIAL: c_int = 0;
/// And for one whose threads are OpenMP's: there, every thread of this process has a number of its own.
const OPENMP: c_int = 2;

/// Setting the number moves buffers in some builds, without a lock.
static SETTING: Mutex<()> = Mutex::new(());

/// A matrix in memory that OpenBLAS reads.
#[derive(Debug, Clone, Copy)]
pub struct Operand<T> {
    /// Its first element.
    pub first: *const T,
    /// Elements from one row to the next; with `transposed` from one column to the next.
    pub lead: c_int,
    /// Whether it lies in memory column by column.
    pub transposed: bool,
}

/// OpenBLAS, loaded.
#[derive(Debug, Clone)]
pub struct OpenBlas {
    sgemm: Gemm<f32>,
    dgemm: Gemm<f64>,
    set_threads: unsafe extern "C" fn(c_int),
    threads: unsafe extern "C" fn() -> c_int,
    parallel: c_int,
    config: String,
    core: String,
    file: String,
}

impl OpenBlas {
    /// Finds and loads OpenBLAS: the file that the environment variable `KERNELWISE_OPENBLAS` names; else the wheel
    /// `scipy-openblas32` of the active Python environment, of the user or of the system, which is usually the newest
    /// here; else what the system's loader knows as `libopenblas.so.0`; else Debian's alternatives.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: whoever installs a file under these names, or names it in the variable, says that it is OpenBLAS.
        unsafe { WANTED.open().and_then(|opened| Self::bind(opened)) }
    }

    /// Loads this file.
    ///
    /// # Safety
    ///
    /// The file runs in this process: if it is a library with functions of these names, it must be OpenBLAS.
    pub unsafe fn load_from(file: &Path) -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the file.
        unsafe { WANTED.open_file(file).and_then(|opened| Self::bind(opened)) }
    }

    /// # Safety
    ///
    /// The library must be OpenBLAS.
    unsafe fn bind(opened: Opened) -> Result<Self, LoadError> {
        let prefix = PREFIXES
            .into_iter()
            .find(|prefix| {
                // SAFETY: the type is that of the C interface; the pointer is not called here.
                unsafe { opened.get::<Gemm<f32>>(&format!("{prefix}cblas_sgemm")) }.is_ok()
            })
            .unwrap_or_default();
        let named = |name: &str| format!("{prefix}{name}");
        // SAFETY: the types are those of the C interface, with the 32-bit integers that `config` confirms below
        // before any function takes one; the texts are static.
        let (blas, config) = unsafe {
            let config = text(opened.get(&named("openblas_get_config"))?);
            let core = text(opened.get(&named("openblas_get_corename"))?);
            let parallel: unsafe extern "C" fn() -> c_int =
                opened.get(&named("openblas_get_parallel"))?;
            let blas = Self {
                sgemm: opened.get(&named("cblas_sgemm"))?,
                dgemm: opened.get(&named("cblas_dgemm"))?,
                set_threads: opened.get(&named("openblas_set_num_threads"))?,
                threads: opened.get(&named("openblas_get_num_threads"))?,
                parallel: parallel(),
                config: config.trim().to_owned(),
                core,
                file: opened.file.clone(),
            };
            (blas, config)
        };
        if config.contains("USE64BITINT") {
            let found = format!("a build with 64-bit integers ({})", config.trim());
            return Err(opened.unfit(found, "an OpenBLAS with 32-bit integers"));
        }
        opened.keep();
        Ok(blas)
    }

    /// How it was built, in its own words; the version stands first.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The core whose kernels it runs, in its own words, such as `Haswell`.
    pub fn core(&self) -> &str {
        &self.core
    }

    /// Why its speed here says little about OpenBLAS, if so: a release older than the processor does not know it and
    /// falls back to its oldest kernels.
    pub fn doubt(&self) -> Option<String> {
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        doubt(&self.core, has_avx2)
    }

    /// The file it came from, or the name under which the loader found it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Whether several threads may ask for products at once. A build without threads of its own need not have locks around its buffers,
    /// and does not say whether it has.
    pub fn is_shareable(&self) -> bool {
        self.parallel != SEQUENTIAL
    }

    /// Sets how many threads every later product may use, in the whole process; in a build with OpenMP those that this thread
    /// asks for.
    pub fn set_threads(&self, threads: usize) -> Result<(), CallError> {
        let count = thread_count(threads)?;
        // Asking costs less than setting anew.
        if self.parallel == OPENMP || self.threads() != threads {
            let _alone = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: any positive count is legal; the library bounds it by the number it was built for.
            unsafe { (self.set_threads)(count) };
        }
        Ok(())
    }

    /// How many threads a product may use.
    pub fn threads(&self) -> usize {
        // SAFETY: the function takes nothing and reads one integer.
        usize::try_from(unsafe { (self.threads)() }).unwrap_or_default()
    }

    /// `c = op(a) · op(b)` in f32, all stored row by row: `c` is m x n, `a` is m x k or with `ta` k x m, `b` is k x n
    /// or with `tb` n x k. Slices have exactly these lengths, and sizes fit 32-bit integers.
    #[expect(clippy::too_many_arguments, reason = "the arguments of a BLAS product")]
    pub fn sgemm(
        &self,
        m: usize,
        n: usize,
        k: usize,
        a: &[f32],
        ta: bool,
        b: &[f32],
        tb: bool,
        c: &mut [f32],
    ) -> Result<(), CallError> {
        product(self.sgemm, [0.0, 1.0], [m, n, k], (a, ta), (b, tb), c)
    }

    /// The same on parts of larger matrices; `c` comes with the elements from one of its rows to the next.
    ///
    /// # Safety
    ///
    /// No side of `size`, m, n and k, is negative or 0; leads are at least as long as the rows, or columns, that follow each other
    /// so. `a` and `b` are readable and `c` is writable, by nobody else, wherever that leads.
    #[inline]
    pub unsafe fn sgemm_at(
        &self,
        size: [c_int; 3],
        a: Operand<f32>,
        b: Operand<f32>,
        c: (*mut f32, c_int),
    ) {
        // SAFETY: as the caller vouches.
        unsafe { product_at(self.sgemm, [0.0, 1.0], size, a, b, c) };
    }

    /// [`sgemm`](Self::sgemm) in f64.
    #[expect(clippy::too_many_arguments, reason = "the arguments of a BLAS product")]
    pub fn dgemm(
        &self,
        m: usize,
        n: usize,
        k: usize,
        a: &[f64],
        ta: bool,
        b: &[f64],
        tb: bool,
        c: &mut [f64],
    ) -> Result<(), CallError> {
        product(self.dgemm, [0.0, 1.0], [m, n, k], (a, ta), (b, tb), c)
    }

    /// [`sgemm_at`](Self::sgemm_at) in f64.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn dgemm_at(
        &self,
        size: [c_int; 3],
        a: Operand<f64>,
        b: Operand<f64>,
        c: (*mut f64, c_int),
    ) {
        // SAFETY: as the caller vouches.
        unsafe { product_at(self.dgemm, [0.0, 1.0], size, a, b, c) };
    }
}

/// On x86-64, OpenBLAS runs a processor it does not know as a Prescott, which had 128-bit vectors.
fn doubt(core: &str, has_avx2: bool) -> Option<String> {
    (has_avx2 && core.eq_ignore_ascii_case("prescott")).then(|| {
        format!(
            "this OpenBLAS does not know the processor and runs kernels for {core}, without AVX; install a newer one \
             (`pip install scipy-openblas32`), or set OPENBLAS_CORETYPE=SkylakeX (with AVX-512) or Haswell"
        )
    })
}

/// A static text of the library.
///
/// # Safety
///
/// The function must return a null pointer or a static C string.
unsafe fn text(function: Text) -> String {
    // SAFETY: as the caller vouches.
    let start = unsafe { function() };
    if start.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a static C string.
    unsafe { CStr::from_ptr(start) }
        .to_string_lossy()
        .into_owned()
}

/// The product, once slices and sizes are seen to agree.
fn product<T: Copy>(
    gemm: Gemm<T>,
    [zero, one]: [T; 2],
    [m, n, k]: [usize; 3],
    (a, ta): (&[T], bool),
    (b, tb): (&[T], bool),
    c: &mut [T],
) -> Result<(), CallError> {
    // Products that saturate are longer than any slice.
    check_length("a", m.saturating_mul(k), a.len())?;
    check_length("b", k.saturating_mul(n), b.len())?;
    check_length("c", m.saturating_mul(n), c.len())?;
    let (m, n, k) = (size("m", m)?, size("n", n)?, size("k", k)?);
    if m == 0 || n == 0 || k == 0 {
        // The interface asks for leading dimensions of at least 1; an empty sum is zero.
        c.fill(zero);
        return Ok(());
    }
    let operand = |first: &[T], transposed: bool, leads: [c_int; 2]| Operand {
        first: first.as_ptr(),
        lead: leads[usize::from(transposed)],
        transposed,
    };
    let (a, b) = (operand(a, ta, [k, m]), operand(b, tb, [n, k]));
    // SAFETY: a holds m·k, b k·n and c m·n elements, which is what rows of these leading dimensions span; c is
    // borrowed alone, so it overlaps neither.
    unsafe { product_at(gemm, [zero, one], [m, n, k], a, b, (c.as_mut_ptr(), n)) };
    Ok(())
}

/// # Safety
///
/// As for [`OpenBlas::sgemm_at`].
unsafe fn product_at<T>(
    gemm: Gemm<T>,
    [zero, one]: [T; 2],
    [m, n, k]: [c_int; 3],
    a: Operand<T>,
    b: Operand<T>,
    (c, c_lead): (*mut T, c_int),
) {
    let order = |transposed| if transposed { TRANS } else { NO_TRANS };
    // SAFETY: as the caller vouches.
    unsafe {
        gemm(
            ROW_MAJOR,
            order(a.transposed),
            order(b.transposed),
            m,
            n,
            k,
            one,
            a.first,
            a.lead,
            b.first,
            b.lead,
            zero,
            c,
            c_lead,
        );
    }
}

fn size(what: &'static str, value: usize) -> Result<c_int, CallError> {
    c_int::try_from(value).map_err(|_| CallError::Size {
        what,
        value,
        max: c_int::MAX as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::{OpenBlas, doubt};
    use crate::load::tests::compile;

    #[test]
    fn kernels_far_older_than_the_processor_are_doubted() {
        assert!(doubt("Prescott", true).is_some_and(|why| why.contains("OPENBLAS_CORETYPE")));
        assert_eq!(doubt("Prescott", false), None);
        assert_eq!(doubt("SkylakeX", true), None);
    }

    #[test]
    fn a_build_with_64_bit_integers_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libkw_blas.so");
        let source =
            "const char *openblas_get_config(void) { return \"OpenBLAS 0.3 USE64BITINT \"; }
            const char *openblas_get_corename(void) { return \"Haswell\"; }
            int openblas_get_num_threads(void) { return 1; }
            int openblas_get_parallel(void) { return 1; }
            void openblas_set_num_threads(int n) { }
            void cblas_sgemm(void) { }
            void cblas_dgemm(void) { }";
        if let Err(reason) = compile(&file, source, &[]) {
            return kernelwise_testing::skip("cc", &reason);
        }
        // SAFETY: the library was just made; it is refused before a product is asked for.
        let error = unsafe { OpenBlas::load_from(&file) }.unwrap_err();
        let wanted = "a build with 64-bit integers (OpenBLAS 0.3 USE64BITINT)";
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
