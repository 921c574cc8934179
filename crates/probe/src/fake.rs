//! A machine built in a temporary directory, for tests.

use std::fs;
use std::path::PathBuf;

use crate::Tree;

/// A root directory with whatever files a test writes into it.
#[derive(Debug)]
pub(crate) struct FakeTree {
    directory: tempfile::TempDir,
}

impl FakeTree {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::at(self.directory.path())
    }

    fn locate(&self, path: &str) -> PathBuf {
        self.directory.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    /// Replaces the file at once, as the kernel does: a reader sees the old text or the new one.
    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let file = self.locate(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut draft = file.clone().into_os_string();
        draft.push(".draft");
        fs::write(&draft, bytes).unwrap();
        fs::rename(&draft, &file).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let file = self.locate(path);
        if file.is_dir() {
            fs::remove_dir_all(file).unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
    }

    /// Every file, as the paths the probe would use.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut open = vec![self.directory.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let inside = path.strip_prefix(self.directory.path()).unwrap();
                    files.push(format!("/{}", inside.display()));
                }
            }
        }
        files.sort();
        files
    }
}
