//! What an operation is made of, checked when it is made.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kernelwise_types::op;

use super::{Features, Operation};
use crate::selector::{Selector, Shared};

/// More than a call's choice can name.
const MOST_VARIANTS: usize = 1 << 12;

/// Why an operation cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// A name without letters.
    #[error("{what} needs a name")]
    Unnamed {
        /// `an operation`, or `a variant of` one.
        what: String,
    },
    /// A name that could not be forced.
    #[error(
        "`{name}` is no name: leave out `=`, `,` and blanks at the ends, so that it can be forced"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// A name that the program has a use for.
    #[error("`{name}` is a built-in operation: give yours another name")]
    BuiltIn {
        /// As given.
        name: String,
    },
    /// Nothing to choose among.
    #[error("operation `{operation}` has no variants: add one")]
    NoVariants {
        /// The operation.
        operation: String,
    },
    /// Two variants of one name.
    #[error("operation `{operation}` has two variants `{variant}`: give one another name")]
    Duplicate {
        /// The operation.
        operation: String,
        /// The variant.
        variant: String,
    },
    /// A variant that was named and is not there.
    #[error("operation `{operation}` has no variant `{variant}`: there are {known}")]
    Unknown {
        /// The operation.
        operation: String,
        /// The variant.
        variant: String,
        /// Those there are.
        known: String,
    },
    /// More variants than can be told apart.
    #[error("operation `{operation}` has {count} variants: {MOST_VARIANTS} are the most")]
    TooMany {
        /// The operation.
        operation: String,
        /// How many there are.
        count: usize,
    },
    /// An operation of this name was made before, of other variants.
    #[error(
        "operation `{operation}` was made before with the variants {known}: use the same ones, or another name"
    )]
    Taken {
        /// The operation.
        operation: String,
        /// The variants it has.
        known: String,
    },
}

/// What a variant made of an input, for comparison with another.
#[derive(Debug)]
pub struct Outcome<'a, I: ?Sized, R> {
    /// The input, as it was left.
    pub input: &'a I,
    /// What was returned.
    pub result: &'a R,
}

/// An input that can be copied and put back: anything that is `Clone`, and slices.
pub trait Restore: sealed::Sealed {
    /// A copy.
    fn copy(&self) -> Box<Self>;

    /// Puts a copy in the place of what is there.
    fn put(&mut self, copy: Box<Self>);
}

mod sealed {
    pub trait Sealed {}
    impl<T: Clone> Sealed for T {}
    impl<T: Clone> Sealed for [T] {}
}

impl<T: Clone> Restore for T {
    fn copy(&self) -> Box<Self> {
        Box::new(self.clone())
    }

    fn put(&mut self, copy: Box<Self>) {
        *self = *copy;
    }
}

impl<T: Clone> Restore for [T] {
    fn copy(&self) -> Box<Self> {
        self.into()
    }

    fn put(&mut self, mut copy: Box<Self>) {
        self.swap_with_slice(&mut copy);
    }
}

pub(super) type Run<I, R> = Box<dyn Fn(&mut I) -> Result<R, String> + Send + Sync>;
pub(super) type FeaturesOf<I> = Box<dyn Fn(&I) -> Features + Send + Sync>;
pub(super) type Same<I, R> =
    Box<dyn Fn(Outcome<'_, I, R>, Outcome<'_, I, R>) -> bool + Send + Sync>;

/// How a copy of an input is made and put back.
pub(super) struct Copying<I: ?Sized> {
    pub(super) copy: fn(&I) -> Box<I>,
    pub(super) put: fn(&mut I, Box<I>),
}

impl<I: Restore + ?Sized> Copying<I> {
    const OF_IT: Self = Self {
        copy: I::copy,
        put: I::put,
    };
}

/// An operation before it is made.
#[must_use = "an operation is made by `build`"]
pub struct Builder<I: ?Sized, R> {
    shared: Arc<Shared>,
    name: String,
    features: FeaturesOf<I>,
    variants: Vec<(String, Run<I, R>)>,
    reference: Option<String>,
    restoring: Option<Copying<I>>,
    check: Option<(Same<I, R>, Copying<I>)>,
}

impl Selector {
    /// An operation of the user's own: its variants are chosen among as kernels are.
    ///
    /// ```
    /// use kernelwise_select::Selector;
    /// use kernelwise_select::own::Features;
    ///
    /// let selector = Selector::builder(kernelwise_probe::machine(), Vec::new()).build()?;
    /// let sum = selector
    ///     .operation("sum_of_squares")
    ///     .features(|x: &[f64]| Features::new().size("length", x.len()))
    ///     .variant("fold", |x: &mut [f64]| x.iter().fold(0.0, |sum, x| sum + x * x))
    ///     .variant("lanes", |x: &mut [f64]| {
    ///         let (chunks, rest) = x.as_chunks::<4>();
    ///         let mut lanes = [0.0; 4];
    ///         for chunk in chunks {
    ///             lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x * x);
    ///         }
    ///         lanes.iter().sum::<f64>() + rest.iter().map(|x| x * x).sum::<f64>()
    ///     })
    ///     .verified_by(|mine, reference| (mine.result - reference.result).abs() <= 1e-9 * reference.result.abs())
    ///     .build()?;
    ///
    /// let mut x = vec![0.5; 1000];
    /// for _ in 0..100 {
    ///     assert_eq!(sum.run(&mut x)?, 250.0);
    /// }
    /// let explanation = sum.explain(&x)?;
    /// assert_eq!(explanation.case, "length 896 to 1023");
    /// assert_eq!(explanation.alternatives.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn operation<I: ?Sized, R>(&self, name: &str) -> Builder<I, R> {
        Builder {
            shared: Arc::clone(self.shared()),
            name: name.to_owned(),
            features: Box::new(|_| Features::new()),
            variants: Vec::new(),
            reference: None,
            restoring: None,
            check: None,
        }
    }
}

impl<I: ?Sized, R> Builder<I, R> {
    /// What matters about an input; nothing by default. It is asked on every call, so it should be cheap: look at a sample
    /// where looking at everything would take as long as computing.
    pub fn features(mut self, features: impl Fn(&I) -> Features + Send + Sync + 'static) -> Self {
        self.features = Box::new(features);
        self
    }

    /// One way to compute it. The first one is the reference.
    pub fn variant(self, name: &str, run: impl Fn(&mut I) -> R + Send + Sync + 'static) -> Self {
        self.add(name, Box::new(move |input: &mut I| Ok(run(input))))
    }

    /// One that may fail; it does not run again once it did. Where a copy of the input was kept ([`restoring`](Self::restoring), or
    /// the call was verified) and the reference fails on it as well, the fault was the input's, and the variant stays.
    pub fn try_variant<E: fmt::Display>(
        self,
        name: &str,
        run: impl Fn(&mut I) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self {
        let run = move |input: &mut I| run(input).map_err(|error| format!("failed: {error}"));
        self.add(name, Box::new(run))
    }

    fn add(mut self, name: &str, run: Run<I, R>) -> Self {
        self.variants.push((name.to_owned(), run));
        self
    }

    /// The variant that is right by definition and serves when others fail: the first one by default.
    pub fn reference(mut self, variant: &str) -> Self {
        self.reference = Some(variant.to_owned());
        self
    }

    /// Keeps a copy of the input while a variant runs, so that the reference can begin anew if it fails. That is one copy per
    /// call that does not go to the reference.
    pub fn restoring(mut self) -> Self
    where
        I: Restore,
    {
        self.restoring = Some(Copying::OF_IT);
        self
    }

    /// Holds what a variant makes of an input, its first argument, against what the reference makes of a copy: on the
    /// variant's first call of every case, and later as often as [`verify_one_in`](crate::Builder::verify_one_in) says
    /// within one per cent of the time served. A variant that is wrong does not run again, and the reference's outcome is
    /// what the caller gets.
    pub fn verified_by(
        mut self,
        same: impl Fn(Outcome<'_, I, R>, Outcome<'_, I, R>) -> bool + Send + Sync + 'static,
    ) -> Self
    where
        I: Restore,
    {
        self.check = Some((Box::new(same), Copying::OF_IT));
        self
    }

    /// Makes it. One of the same name and variants goes on where the one before left off.
    pub fn build(self) -> Result<Operation<I, R>, OperationError> {
        let Self {
            shared,
            name,
            features,
            mut variants,
            reference,
            restoring,
            check,
        } = self;
        named("an operation", &name)?;
        let operation = name.split('.').next().unwrap_or_default();
        if op::Operation::NAMES.contains(&operation) {
            return Err(OperationError::BuiltIn { name });
        }
        if variants.is_empty() {
            return Err(OperationError::NoVariants { operation: name });
        }
        if variants.len() > MOST_VARIANTS {
            let count = variants.len();
            let operation = name;
            return Err(OperationError::TooMany { operation, count });
        }
        let mut seen = BTreeSet::new();
        for (variant, _) in &variants {
            named(&format!("a variant of `{name}`"), variant)?;
            if !seen.insert(variant) {
                return Err(OperationError::Duplicate {
                    operation: name,
                    variant: variant.clone(),
                });
            }
        }
        let place = |variants: &[(String, Run<I, R>)], wanted: &str| {
            let known = variants.iter().position(|(known, _)| known == wanted);
            known.ok_or_else(|| OperationError::Unknown {
                operation: name.clone(),
                variant: wanted.to_owned(),
                known: listed(variants.iter().map(|(known, _)| known)),
            })
        };
        if let Some(reference) = reference {
            let reference = place(&variants, &reference)?;
            variants[..=reference].rotate_right(1);
        }
        let forced = shared.forced.get(&name);
        let forced = forced.map(|forced| place(&variants, forced)).transpose()?;
        let (names, runs): (Vec<String>, Vec<Run<I, R>>) = variants.into_iter().unzip();
        let of = shared.own.register(name, names, forced)?;
        Ok(Operation {
            shared,
            of,
            features,
            runs,
            restoring,
            check,
        })
    }
}

impl<I: ?Sized, R> fmt::Debug for Builder<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("variants", &self.variants.len())
            .finish_non_exhaustive()
    }
}

fn named(what: &str, name: &str) -> Result<(), OperationError> {
    if name.trim().is_empty() {
        let what = what.to_owned();
        return Err(OperationError::Unnamed { what });
    }
    if name.contains(['=', ',']) || name.trim() != name {
        let name = name.to_owned();
        return Err(OperationError::Name { name });
    }
    Ok(())
}

pub(super) fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
