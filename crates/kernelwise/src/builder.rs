//! What can be set, and what the environment may set.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use kernelwise_backend::HostKernel;
use kernelwise_measure::Clock;
use kernelwise_select::{Budget, BuildError, Mode, Policy, Selector, UnknownMode};
use kernelwise_types::{Calibration, InvalidKernelId, Numerics};

use crate::Kernelwise;

/// What is done with what calls teach: `learn`, `frozen` or `shadow`.
const MODE: &str = "KERNELWISE_MODE";
/// Who serves, whatever is known: `operation=kernel`, several separated by commas.
const FORCE: &str = "KERNELWISE_FORCE";

/// Why there is no [`Kernelwise`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A kernel that comes with the program has no proper name: a mistake in the program.
    #[error(transparent)]
    Kernel(#[from] InvalidKernelId),
    /// A setting.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A mode in the environment that is none.
    #[error("KERNELWISE_MODE: {0}")]
    Mode(#[source] UnknownMode),
    /// A kernel forced by the environment in words that say nothing.
    #[error("KERNELWISE_FORCE: {0}")]
    Force(#[source] BuildError),
    /// A variable that is no text.
    #[error("{variable} is not readable as text: unset it, or write it anew")]
    NotText {
        /// The variable.
        variable: &'static str,
    },
}

/// A [`Kernelwise`] before it is made.
#[derive(Debug)]
#[must_use = "it is made by `build`"]
pub struct Builder {
    selector: Result<kernelwise_select::Builder, InvalidKernelId>,
}

/// Settings of the selector, by their own words.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => { $(
        $(#[$doc])*
        pub fn $name(self, $($argument: $type),*) -> Self {
            Self { selector: self.selector.map(|selector| selector.$name($($argument),*)) }
        }
    )* };
}

impl Builder {
    /// Every kernel this processor can run, with the usual settings; the machine is looked at, which takes about a
    /// millisecond.
    pub(crate) fn new() -> Self {
        let kernels = kernelwise_cpu::kernels();
        let builder = |kernels: Vec<Arc<dyn HostKernel>>| {
            Selector::builder(kernelwise_probe::machine(), kernels)
        };
        Self {
            selector: kernels.map(builder),
        }
    }

    settings! {
        /// What the machine can do at the best, as a first expectation of every kernel; without it the first calls of a
        /// workload find out. It comes from [`probe::calibrate`](kernelwise_probe::calibrate).
        calibration(calibration: Calibration);
        /// How choices are made; a bandit by default.
        policy(policy: Policy);
        /// What learning may cost; one per cent of the time served by default.
        budget(budget: Budget);
        /// Candidates that differ by less are as good as each other: 0.02 (2 %) by default.
        indifference(share: f64);
        /// After this time a measurement weighs half; a week by default.
        half_life(time: Duration);
        /// How exact results must be at the least; sums in another order are fine by default.
        numerics(numerics: Numerics);
        /// What is done with what calls teach; choices follow it by default.
        mode(mode: Mode);
        /// The kernel, or the variant of a user's own operation, that serves an operation, whatever is known of others.
        force(operation: &str, kernel: &str);
        /// Where times come from; the processor's counter by default.
        clock(clock: Arc<dyn Clock + Send + Sync>);
        /// Of the random numbers that trials are drawn with.
        seed(seed: u64);
        /// How many workloads are remembered; 100,000 by default.
        capacity(workloads: usize);
        /// One in so many timed calls is held against the reference, besides first uses; 256 by default, 0 for those alone.
        verify_one_in(calls: u32);
        /// Whether a thread of its own learns, yes by default. Without, somebody has to call
        /// [`Selector::settle`](kernelwise_select::Selector::settle).
        background(background: bool);
    }

    /// Lets the environment have its say, over what was set before: `KERNELWISE_MODE` (`learn`, `frozen`, `shadow`) and
    /// `KERNELWISE_FORCE` (`operation=kernel`, several separated by commas). What is unset or empty changes nothing.
    pub fn from_env(self) -> Result<Self, SetupError> {
        self.with_variables(|name| std::env::var_os(name))
    }

    fn with_variables(
        self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SetupError> {
        let text = |name: &'static str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Err(_)) => Err(SetupError::NotText { variable: name }),
        };
        let mut selector = self.selector?;
        if let Some(mode) = text(MODE)? {
            selector = selector.mode(mode.parse().map_err(SetupError::Mode)?);
        }
        if let Some(forced) = text(FORCE)? {
            selector = selector.force_from(&forced).map_err(SetupError::Force)?;
        }
        Ok(Self {
            selector: Ok(selector),
        })
    }

    /// Makes it.
    pub fn build(self) -> Result<Kernelwise, SetupError> {
        Ok(Kernelwise::of(self.selector?.build()?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Builder, SetupError> {
        Builder::new().with_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_has_its_say() {
        let kw = from(&[(MODE, "frozen"), (FORCE, "doubling=shift")]);
        let kw = kw.unwrap().build().unwrap();
        let doubling = kw
            .operation("doubling")
            .variant("add", |x: &mut u32| *x + *x)
            .variant("shift", |x: &mut u32| *x << 1)
            .build()
            .unwrap();
        assert_eq!(doubling.run(&mut 21), Ok(42));
        assert_eq!(doubling.explain(&21).unwrap().chosen.variant, "shift");
        assert!(format!("{kw:?}").contains("Frozen"), "{kw:?}");
        assert!(from(&[(MODE, ""), (FORCE, "")]).is_ok());
    }

    #[test]
    fn what_it_says_must_make_sense() {
        let words = |variables: &[(&str, &str)]| from(variables).unwrap_err().to_string();
        assert_eq!(
            words(&[(MODE, "forzen")]),
            "KERNELWISE_MODE: unknown mode `forzen`: there are learn, frozen and shadow"
        );
        let error = words(&[(FORCE, "cpu-matmul-f32-gemm")]);
        assert!(
            error.starts_with("KERNELWISE_FORCE: `cpu-matmul-f32-gemm` does not force a kernel")
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let error = Builder::new().with_variables(|_| Some(OsString::from_vec(vec![0xff])));
        assert_eq!(
            error.unwrap_err().to_string(),
            "KERNELWISE_MODE is not readable as text: unset it, or write it anew"
        );
    }

    #[test]
    fn settings_reach_the_selector() {
        let error = Builder::new().indifference(-1.0).build().unwrap_err();
        assert!(
            matches!(error, SetupError::Build(BuildError::Number { .. })),
            "{error}"
        );
    }
}
