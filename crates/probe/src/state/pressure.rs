//! Pressure stall information: how long tasks had to wait for a resource.
//!
//! Each file of `/proc/pressure` gives averages over 10 s and more, and a total in microseconds. The
//! averages move every two seconds and forget slowly; the total is brought up to date at each read.
//! Shares are therefore taken from the total, over the interval between two looks: they react
//! at once.

use kernelwise_types::Reading;
use kernelwise_types::units::Share;

use crate::tree::{ReadError, Tree};

/// Time in which some task waited for `resource` (`cpu`, `memory`, `io`), in microseconds since boot.
pub(super) fn stalled_us(tree: &Tree, resource: &str) -> Result<u64, ReadError> {
    let path = format!("/proc/pressure/{resource}");
    let text = tree.text(&path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("some "))
        .and_then(|line| line.split_once("total="))
        .and_then(|(_, total)| total.trim().parse().ok())
        .ok_or_else(|| ReadError::unexpected(&path, "`some … total=` and a number", &text))
}

/// The share of `elapsed_ns` between two totals.
pub(super) fn share(before_us: u64, now_us: u64, elapsed_ns: u64) -> Reading<Share> {
    let stalled_ns = now_us.saturating_sub(before_us).saturating_mul(1000);
    match Share::of(stalled_ns, elapsed_ns) {
        Some(share) => Reading::Known(share),
        None => Reading::unknown("no time passed since the look before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    #[test]
    fn the_total_of_some_is_read() {
        let fake = FakeTree::new();
        let total = |text: &str| {
            fake.write("/proc/pressure/cpu", text);
            stalled_us(&fake.tree(), "cpu")
        };
        let text =
            "some avg10=4.14 avg60=1.25 avg300=0.68 total=6766835\nfull avg10=0.00 total=7\n";
        assert_eq!(total(text), Ok(6_766_835));
        for bad in [
            "",
            "full avg10=0.00 total=7",
            "some avg10=1",
            "some total=x",
            "some total=-1",
        ] {
            assert!(total(bad).is_err(), "{bad}");
        }
        assert!(stalled_us(&fake.tree(), "io").unwrap_err().is_missing());
    }

    #[test]
    fn a_share_is_stalled_time_over_elapsed_time() {
        assert_eq!(share(1000, 1250, 1_000_000).known().unwrap().get(), 0.25);
        assert_eq!(
            share(0, 9999, 1000).known().unwrap().get(),
            1.0,
            "clocks may disagree"
        );
        assert_eq!(share(9, 5, 1000).known().unwrap().get(), 0.0);
        assert!(share(0, 1, 0).known().is_none());
        assert!(share(0, u64::MAX, 1).known().is_some());
    }
}
