//! The environment variables this program reads.

use tracing_subscriber::EnvFilter;

/// Filter of log messages, in the syntax of `tracing`: `debug`, `kernelwise_probe=trace`, …
const LOG: &str = "KERNELWISE_LOG";

/// Every variable that has an effect, with what it does.
pub(crate) const VARIABLES: &[(&str, &str)] = &[(
    LOG,
    "log messages on standard error: error, warn (default), info, debug, trace",
)];

/// Sends log messages to standard error.
pub(crate) fn start_log() {
    let asked = std::env::var(LOG).unwrap_or_default();
    let (filter, problem) = match EnvFilter::try_new(if asked.is_empty() { "warn" } else { &asked })
    {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("warn"), Some(error)),
    };
    let colour = anstream::stderr().current_choice() != anstream::ColorChoice::Never;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .init();
    if let Some(error) = problem {
        tracing::warn!("{LOG}={asked} is not a log filter ({error}): using `warn`");
    }
}

/// Variables with our prefix that nothing reads, each with the nearest one that is read, if one is near.
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
    fn only_our_own_unread_variables_are_strays() {
        let names = ["PATH", "KERNELWISE_LOG", "KERNELWISE_LOGS", "KERNELWISE_A"];
        let strays = without_effect(names.into_iter().map(str::to_owned));
        assert_eq!(strays, ["KERNELWISE_A", "KERNELWISE_LOGS"]);
    }
}
