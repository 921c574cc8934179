//! What is believed of configurations that were not measured.
//!
//! Two models of ln t that err in different ways, and one of whether a configuration works at all:
//!
//! - [`forest`]: trees with random questions. They find the one switch that matters and do not mind the nine that do not;
//!   where they disagree, nothing is known.
//! - [`smooth`]: what is near in all parameters takes nearly as long. From ten measurements on that says more than trees
//!   do; where it disagrees with them, neither is to be trusted.
//! - [`features`]: what both are told about a configuration.

pub(crate) mod features;
pub(crate) mod forest;
pub(crate) mod gain;
pub(crate) mod smooth;
