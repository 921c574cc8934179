//! Puts a page in its place, whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a page was not written. What stood there before still does.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: choose a file in a directory that may be written", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Writes `text` beside `path` and renames it there, so that a reader finds the old page or the new one, never a part. A link
/// stays one: the file it leads to is the one replaced. What is no file, such as `/dev/null` or a pipe, is written to as it is.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("report.html");
/// kernelwise_report::write(&path, "<!DOCTYPE html>")?;
/// assert_eq!(std::fs::read_to_string(&path)?, "<!DOCTYPE html>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(path: &Path, text: &str) -> Result<(), WriteError> {
    place(path, |file| file.write_all(text.as_bytes())).map_err(|source| WriteError {
        path: path.to_owned(),
        source,
    })
}

fn place(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let followed = fs::canonicalize(path);
    let path = followed.as_deref().unwrap_or(path);
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return fill(&mut File::options().write(true).open(path)?);
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    // Two programs may write the same page at once: each has a draft of its own.
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}.tmp", std::process::id()));
    let draft = path.with_file_name(draft);
    let written = File::create(&draft).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&draft, path));
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&draft);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn an_interrupted_page_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        write(&path, "old").unwrap();
        let interrupted = place(&path, |file| {
            file.write_all(b"half of the new")?;
            // The old page is there while the new one is under way.
            assert_eq!(fs::read_to_string(&path)?, "old");
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(interrupted.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(files(dir.path()), ["report.html"]);
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(files(dir.path()), ["report.html"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_what_is_no_file_is_not_replaced() {
        use std::os::unix::fs::{FileTypeExt, symlink};

        let dir = tempfile::tempdir().unwrap();
        let [page, link, socket] = ["page", "link", "socket"].map(|name| dir.path().join(name));
        write(&page, "old").unwrap();
        symlink(&page, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&page).unwrap(), "new");
        let _open = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(write(&socket, "page").is_err());
        let found = fs::symlink_metadata(&socket).unwrap();
        assert!(found.file_type().is_socket());
    }

    #[test]
    fn where_nothing_can_be_written_the_error_names_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("missing").join("report.html");
        let error = write(&nowhere, "page").unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        // A directory in the place of the page stays, and no draft is left.
        assert!(write(dir.path(), "page").is_err());
        assert!(write(Path::new("/"), "page").is_err());
        assert!(files(dir.path()).is_empty());
    }
}
