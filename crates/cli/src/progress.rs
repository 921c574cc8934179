//! How far it is, for those who wait: drawn on standard error, and only where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Between two signs of life.
const TICK: Duration = Duration::from_millis(200);

/// For work that can be counted: how much is done, the time left and the step at hand. Whoever uses it sets the length.
pub(crate) fn counted() -> ProgressBar {
    styled(
        ProgressBar::new(0),
        "{bar:24} {pos}/{len} {eta} left, {wide_msg}",
    )
}

/// For work that can be counted and whose end is known otherwise: the message tells the time left.
pub(crate) fn steps(count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    styled(bar, "{bar:24} {pos}/{len} {wide_msg}")
}

/// For work that ends by the clock: the share of the time that is used up, the time left and the step at hand.
pub(crate) fn timed(seconds: f64, step: &str) -> ProgressBar {
    let bar = ProgressBar::new(millis(seconds));
    let bar = styled(bar, "{bar:24} {percent} % {eta} left, {wide_msg}");
    bar.set_message(step.to_owned());
    bar
}

/// The unit of [`timed`].
pub(crate) fn millis(seconds: f64) -> u64 {
    (1e3 * seconds.max(0.0)) as u64
}

/// For work that does not tell how far it is: the step at hand, and for how long it has been at work.
pub(crate) fn uncounted(step: &str) -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {elapsed} {wide_msg}");
    bar.set_message(step.to_owned());
    // Nobody looks, so no thread is needed to move it.
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
