//! Folders that candidates write in: how full they are, and how to get rid of them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Files beyond which a folder counts as full: they take room even if they are empty.
const MOST_FILES: u64 = 100_000;

/// Bytes in files below a folder, or `enough` as soon as there are that many, or too many files.
pub(crate) fn size(folder: &Path, enough: u64) -> u64 {
    let (mut bytes, mut files) = (0_u64, 0);
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            // Of the link itself, where it is one. What goes away meanwhile does not count.
            let Ok(facts) = entry.metadata() else {
                continue;
            };
            files += 1;
            // Holes take no room, but the limit of the system counts them.
            bytes = bytes.saturating_add(if facts.is_file() { facts.size() } else { 0 });
            if bytes >= enough || files >= MOST_FILES {
                return enough;
            }
            if facts.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

/// Removes a folder with all that is in it, also if somebody forbade it. That it is not there is fine.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            allow(folder);
            fs::remove_dir_all(folder)
        }
        done => done,
    }
}

/// Takes back prohibitions on folders.
fn allow(folder: &Path) {
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        let _ = fs::set_permissions(&next, Permissions::from_mode(0o700));
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_count_and_counting_ends_when_there_are_enough() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("x"), [0; 1000]).unwrap();
        fs::write(folder.path().join("y"), [0; 24]).unwrap();
        // A way round, and one out.
        std::os::unix::fs::symlink("..", inner.join("up")).unwrap();
        std::os::unix::fs::symlink("/", inner.join("out")).unwrap();
        assert_eq!(size(folder.path(), u64::MAX), 1024);
        assert_eq!(size(folder.path(), 1024), 1024);
        assert_eq!(size(folder.path(), 900), 900);
        assert_eq!(size(&inner.join("nowhere"), 10), 0);
    }

    #[test]
    fn forbidden_folders_go_and_what_links_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        fs::write(&kept, "").unwrap();
        let gone = folder.path().join("gone");
        fs::create_dir_all(gone.join("in")).unwrap();
        fs::write(gone.join("in/x"), "").unwrap();
        std::os::unix::fs::symlink(folder.path(), gone.join("link")).unwrap();
        fs::set_permissions(gone.join("in"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(&gone, Permissions::from_mode(0o500)).unwrap();
        remove(&gone).unwrap();
        assert!(!gone.exists() && kept.exists());
        remove(&gone).unwrap();
    }
}
