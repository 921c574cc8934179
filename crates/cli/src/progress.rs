//! How far it is, for those who wait, on standard error: drawn where that is a terminal, and otherwise a plain line now and then.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

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

/// Between two plain lines, in seconds: a log of an hour has some hundred of them.
const LINE_EVERY_S: f64 = 10.0;

/// Plain lines for those who wait without a terminal.
#[derive(Debug)]
pub(crate) struct Lines {
    wanted: bool,
    next_s: f64,
}

impl Lines {
    /// Wanted where this bar is not drawn.
    pub(crate) fn instead_of(bar: &ProgressBar) -> Self {
        Self::new(bar.is_hidden())
    }

    fn new(wanted: bool) -> Self {
        Self {
            wanted,
            next_s: LINE_EVERY_S,
        }
    }

    /// Says how far it is after so many seconds, if it is time to.
    pub(crate) fn tell(&mut self, spent_s: f64, line: impl FnOnce() -> String) {
        if self.is_due(spent_s) {
            output::note(&line());
        }
    }

    fn is_due(&mut self, spent_s: f64) -> bool {
        let due = self.wanted && spent_s >= self.next_s;
        if due {
            self.next_s = spent_s + LINE_EVERY_S;
        }
        due
    }
}

/// The same as [`uncounted`] for the steps that follow the main work: where no bar is drawn, a plain line says that they begin.
pub(crate) fn step(step: &str) -> ProgressBar {
    let bar = uncounted(step);
    if bar.is_hidden() {
        output::note(step);
    }
    bar
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_every_ten_seconds_and_only_without_a_bar() {
        let seconds = [0.5, 9.9, 10.2, 12.0, 20.1, 20.3, 47.0, 56.0, 57.1];
        let mut lines = Lines::new(true);
        let said = seconds.map(|spent_s| lines.is_due(spent_s));
        let expected = [false, false, true, false, false, true, true, false, true];
        assert_eq!(said, expected);
        let mut lines = Lines::new(false);
        assert_eq!(seconds.map(|spent_s| lines.is_due(spent_s)), [false; 9]);
    }
}
