//! The environment variables this program reads.

use std::env::VarError;

use kernelwise_select::Mode;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// Filter of log messages, in the syntax of `tracing`: `debug`, `kernelwise_probe=trace`, …
const LOG: &str = "KERNELWISE_LOG";

/// Warnings; but what the store has to say this program says itself.
const USUAL: &str = "warn,kernelwise_store=error";

/// Every variable that has an effect, with what it does.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    (
        LOG,
        "log messages on standard error: error, warn (default), info, debug, trace",
    ),
    (
        "KERNELWISE_OPENBLAS",
        "file of the OpenBLAS to run and to compare with",
    ),
    ("KERNELWISE_ONEDNN", "file of the oneDNN to compare with"),
    (
        "KERNELWISE_FORCE",
        "operation=kernel that `select` and `explain` have to choose",
    ),
    (
        "KERNELWISE_MODE",
        "learn (default), frozen (nothing is learned) or shadow (learned, not followed)",
    ),
    (
        "KERNELWISE_DIR",
        "directory of records, instead of the data home of the user",
    ),
    (
        "KERNELWISE_DATABASE_URL",
        "PostgreSQL server that records and jobs are shared through",
    ),
    (
        "KERNELWISE_DATABASE_CA",
        "PEM file of the authorities that its certificate is verified by",
    ),
];

/// A variable; what is empty is unset. One that is no text is refused: it says something, and ignoring it would be another thing.
pub(crate) fn text(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::Usage(anyhow::anyhow!(
            "{name} is not readable as text: unset it, or write it anew"
        ))),
    }
}

/// What is done with what is learned; what is unset or empty means learning.
pub(crate) fn mode() -> Result<Mode, Failure> {
    match text("KERNELWISE_MODE")? {
        None => Ok(Mode::Learn),
        Some(word) => word
            .parse()
            .map_err(|error| Failure::Usage(anyhow::anyhow!("KERNELWISE_MODE: {error}"))),
    }
}

/// Sends log messages to standard error.
pub(crate) fn start_log() {
    let asked = std::env::var(LOG).unwrap_or_default();
    let filter = log_filter(&asked);
    let colour = anstream::stderr().current_choice() != anstream::ColorChoice::Never;
    tracing_subscriber::fmt()
        .with_env_filter(filter.clone().unwrap_or_else(|| EnvFilter::new(USUAL)))
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .init();
    if filter.is_none() {
        tracing::warn!("{LOG}={asked} is not a log filter: using `warn`");
    }
}

/// Reads a filter; nothing asked for means warnings. A bare word is a level or one of our crates: any
/// other would silently hide everything.
fn log_filter(asked: &str) -> Option<EnvFilter> {
    let known = |directive: &str| {
        directive.contains('=')
            || directive.starts_with("kernelwise")
            || directive.parse::<LevelFilter>().is_ok()
    };
    match asked {
        "" => Some(EnvFilter::new(USUAL)),
        asked if asked.split(',').all(known) => EnvFilter::try_new(asked).ok(),
        _ => None,
    }
}

/// Variables with our prefix that nothing reads, sorted.
pub(crate) fn without_effect(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = |name: &str| VARIABLES.iter().any(|(variable, _)| *variable == name);
    let mut stray: Vec<String> = names
        .filter(|name| name.starts_with("KERNELWISE_") && !known(name))
        .collect();
    stray.sort_unstable();
    stray
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_would_hide_everything_are_refused() {
        for good in [
            "",
            "debug",
            "off",
            "kernelwise_probe=trace,warn",
            "kernelwise_measure",
        ] {
            assert!(log_filter(good).is_some(), "{good:?}");
        }
        for bad in ["loud", "debug,loud", "=,="] {
            assert!(log_filter(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn only_our_own_unread_variables_are_strays() {
        let names = [
            "PATH",
            "KERNELWISE_LOG",
            "KERNELWISE_ONEDNN",
            "KERNELWISE_LOGS",
            "KERNELWISE_A",
        ];
        let strays = without_effect(names.into_iter().map(str::to_owned));
        assert_eq!(strays, ["KERNELWISE_A", "KERNELWISE_LOGS"]);
    }
}
