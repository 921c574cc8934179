//! oneDNN: convolutions of f32 images through its C interface, version 3.
//!
//! Only builds on OpenMP are taken, because only they can be told from C how many threads to use: a rival that
//! silently runs on all processors is no comparison. The wheel `onednn-cpu-gomp` is such a build and needs nothing
//! but the compiler's runtime. The wheel `onednn` is built on SYCL, which sees no CPU without an OpenCL driver;
//! it is refused with that remedy.

mod context;
mod convolution;
mod interface;
mod tensor;

use std::ffi::{c_int, c_uint};
use std::path::Path;

use kernelwise_types::op::Conv2d;

use crate::load::{Opened, Wanted};
use crate::{CallError, LoadError};
pub use convolution::Convolution;
use interface::{Interface, RUNTIME_OMP, Version};

static WANTED: Wanted = Wanted {
    library: "oneDNN",
    variable: "KERNELWISE_ONEDNN",
    // Debian gives the library a name of its own for each version that changed it.
    sonames: &["libdnnl.so.3", "libdnnl.so.3.6"],
    in_prefix: &["lib/libdnnl.so.3"],
    files: &[],
    remedy: "pip install --no-deps onednn-cpu-gomp",
};

/// oneDNN, loaded.
#[derive(Debug, Clone)]
pub struct OneDnn {
    interface: Interface,
    set_threads: SetThreads,
    version: String,
    file: String,
}

/// `omp_set_num_threads`: holds for parallel regions that the calling thread starts.
type SetThreads = unsafe extern "C" fn(c_int);

impl OneDnn {
    /// Finds and loads oneDNN: the file that the environment variable `KERNELWISE_ONEDNN` names; else the wheel of the
    /// active Python environment, of the user or of the system; else what the system's loader knows as
    /// `libdnnl.so.3`.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: whoever installs a file under these names, or names it in the variable, says that it is oneDNN.
        unsafe { WANTED.open().and_then(|opened| Self::bind(opened)) }
    }

    /// Loads this file, and libraries beside it that it needs and the system's loader does not find.
    ///
    /// # Safety
    ///
    /// The file runs in this process: if it is a library with functions of these names, it must be oneDNN.
    pub unsafe fn load_from(file: &Path) -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the file.
        unsafe { WANTED.open_file(file).and_then(|opened| Self::bind(opened)) }
    }

    /// # Safety
    ///
    /// The library must be oneDNN, of any version.
    unsafe fn bind(opened: Opened) -> Result<Self, LoadError> {
        // SAFETY: this function and what it points to are the same in versions 1 to 3.
        let version = unsafe {
            let about: unsafe extern "C" fn() -> *const Version = opened.get("dnnl_version")?;
            about().as_ref()
        };
        let Some(about) = version else {
            return Err(opened.unfit("a oneDNN without a version".to_owned(), NEEDED));
        };
        let version = format!("{}.{}.{}", about.major, about.minor, about.patch);
        if let Some(build) = unusable(about.major, about.cpu_runtime) {
            return Err(opened.unfit(format!("oneDNN {version} built on {build}"), NEEDED));
        }
        // SAFETY: this is version 3; the OpenMP runtime is among the dependencies that the search for a symbol
        // covers, and its function has this type.
        let (interface, set_threads) = unsafe {
            (
                Interface::bind(&opened)?,
                opened.get::<SetThreads>("omp_set_num_threads")?,
            )
        };
        let file = opened.file.clone();
        opened.keep();
        Ok(Self {
            interface,
            set_threads,
            version,
            file,
        })
    }

    /// Its version, such as `3.2.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file it came from, or the name under which the loader found it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Prepares a convolution: the library chooses its kernel and the layouts that suit it, and the weights
    /// (k x c/groups x r x s) are brought into theirs, once. It will run on this many threads.
    pub fn convolution(
        &self,
        conv: &Conv2d,
        weights: &[f32],
        threads: usize,
    ) -> Result<Convolution, CallError> {
        Convolution::new(self, conv, weights, threads)
    }
}

const NEEDED: &str = "oneDNN 3 built on OpenMP";

/// What a build runs on, when it is not one that can be used.
fn unusable(major: c_int, cpu_runtime: c_uint) -> Option<&'static str> {
    match cpu_runtime {
        RUNTIME_OMP if major == 3 => None,
        RUNTIME_OMP => Some("OpenMP"),
        0 => Some("no CPU"),
        1 => Some("one thread"),
        4 => Some("TBB"),
        8 => Some("a thread pool of the caller"),
        512 => Some("SYCL"),
        _ => Some("an unknown runtime"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::thread;

    use kernelwise_types::op::Conv2d;

    use super::{OneDnn, WANTED, unusable};
    use crate::load::tests::compile;

    #[test]
    fn only_version_3_on_openmp_is_taken() {
        assert_eq!(unusable(3, 2), None);
        assert_eq!(unusable(2, 2), Some("OpenMP"));
        assert_eq!(unusable(3, 4), Some("TBB"));
        assert_eq!(unusable(3, 512), Some("SYCL"));
    }

    #[test]
    fn the_thread_that_runs_a_convolution_uses_as_many_threads_as_asked() {
        let onednn = match OneDnn::load() {
            Ok(onednn) => onednn,
            Err(absent) => return kernelwise_testing::skip("onednn", &absent.to_string()),
        };
        // SAFETY: the library just loaded, and the type of OpenMP's function.
        let most_threads: unsafe extern "C" fn() -> c_int = unsafe {
            let opened = WANTED.open().unwrap();
            let function = opened.get("omp_get_max_threads").unwrap();
            opened.keep();
            function
        };
        let images = "1x4x6x6".parse().unwrap();
        let weights = "8x4x3x3".parse().unwrap();
        let conv = Conv2d::infer(&images, &weights, [1, 1], [1, 1], [1, 1], 1).unwrap();
        for threads in [1, 5] {
            let mut prepared = onednn.convolution(&conv, &[1.0; 288], threads).unwrap();
            // SAFETY: the function takes nothing and reads a setting of this thread.
            assert_eq!(unsafe { most_threads() }, threads as c_int, "when made");
            let elsewhere = thread::spawn(move || {
                prepared.execute().unwrap();
                // SAFETY: as above.
                unsafe { most_threads() }
            });
            assert_eq!(elsewhere.join().unwrap(), threads as c_int, "when run");
        }
    }

    #[test]
    fn a_build_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libkw_dnnl.so");
        let source = "struct about { int v[3]; const char *hash; unsigned cpu, gpu; };
            static const struct about about = {{2, 6, 3}, 0, 2, 0};
            const struct about *dnnl_version(void) { return &about; }";
        if let Err(reason) = compile(&file, source, &[]) {
            return kernelwise_testing::skip("cc", &reason);
        }
        // SAFETY: the library was just made; what it has is as in oneDNN.
        let error = unsafe { OneDnn::load_from(&file) }.unwrap_err();
        let wanted = "is oneDNN 2.6.3 built on OpenMP, but oneDNN 3 built on OpenMP is needed; \
                      `pip install --no-deps onednn-cpu-gomp` installs one";
        assert_eq!(error.to_string(), format!("{} {wanted}", file.display()));
    }
}
