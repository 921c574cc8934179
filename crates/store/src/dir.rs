//! Which directory records are kept in.

use std::ffi::OsString;
use std::path::PathBuf;

/// No directory can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "neither KERNELWISE_DIR nor XDG_DATA_HOME nor HOME is set: set KERNELWISE_DIR to a directory for records"
)]
pub struct NoDirectory;

/// The directory by the environment: `KERNELWISE_DIR` as it is, else `kernelwise` in the data home of the XDG base directory
/// specification, which is `XDG_DATA_HOME` if that is an absolute path and `~/.local/share` otherwise.
///
/// `variable` looks one up; programs pass `|name| std::env::var_os(name)`.
///
/// ```
/// use std::path::Path;
/// let dir = kernelwise_store::directory(|name| (name == "HOME").then(|| "/home/anna".into()))?;
/// assert_eq!(dir, Path::new("/home/anna/.local/share/kernelwise"));
/// # Ok::<(), kernelwise_store::NoDirectory>(())
/// ```
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoDirectory> {
    let set = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("KERNELWISE_DIR") {
        return Ok(dir);
    }
    data_home(variable)
        .map(|home| home.join("kernelwise"))
        .ok_or(NoDirectory)
}

/// The data home, if there is one.
pub(crate) fn data_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let xdg = set("XDG_DATA_HOME").filter(|dir| dir.is_absolute());
    xdg.or_else(|| set("HOME").map(|home| home.join(".local/share")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_first_counts() {
        let environment = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            }
        };
        let all = environment(&[
            ("KERNELWISE_DIR", "k"),
            ("XDG_DATA_HOME", "/x"),
            ("HOME", "/h"),
        ]);
        assert_eq!(directory(all), Ok("k".into()));
        let xdg = environment(&[
            ("KERNELWISE_DIR", ""),
            ("XDG_DATA_HOME", "/x"),
            ("HOME", "/h"),
        ]);
        assert_eq!(directory(xdg), Ok("/x/kernelwise".into()));
        // The specification: a relative path is ignored.
        let relative = environment(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]);
        assert_eq!(directory(relative), Ok("/h/.local/share/kernelwise".into()));
        assert_eq!(directory(|_| None), Err(NoDirectory));
    }
}
