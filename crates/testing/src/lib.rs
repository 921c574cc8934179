//! What the tests of the workspace share.
//!
//! A test that cannot run here says why and passes, unless `KERNELWISE_REQUIRE` names what it lacks: a
//! machine that is meant to have a thing must not pass by not finding it. `./check` sets the variable for
//! what it finds or installs.
#![forbid(unsafe_code)]

pub mod browser;

/// Names, separated by commas, of what must be there: `proc` (readable `/proc/stat`), `psi` (readable
/// `/proc/pressure`), `pin` (threads can be bound to processors), `large_pages` (the system offers them), `cc` (a
/// C compiler), `openblas` and `onednn` (libraries to compare with, installed by `ci/rivals`), `postgres` (binaries of a
/// server), `openssl` (the program, to make certificates), `mount` (small file systems can be mounted), `unprivileged` (a user
/// other than root to become), `chromium` (a browser, with node to drive it).
const REQUIRE: &str = "KERNELWISE_REQUIRE";

/// Notes that a test does not run for want of `what`.
///
/// # Panics
///
/// When `KERNELWISE_REQUIRE` lists `what`: then the skip is a failure.
pub fn skip(what: &str, reason: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    assert!(
        !lists(&required, what),
        "{what} is required by {REQUIRE}, but: {reason}"
    );
    #[expect(clippy::print_stderr, reason = "a skipped test says why")]
    {
        eprintln!("skipped for want of {what}: {reason}");
    }
}

fn lists(required: &str, what: &str) -> bool {
    required.split(',').any(|name| name.trim() == what)
}

#[cfg(test)]
mod tests {
    use super::lists;

    #[test]
    fn names_are_matched_whole() {
        assert!(lists("webgpu, proc", "proc"));
        assert!(!lists("process", "proc"));
        assert!(!lists("", "proc"));
    }
}
