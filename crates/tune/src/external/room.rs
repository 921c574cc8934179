//! The folder in which everything is built and run.

use std::path::PathBuf;
use std::{fs, io};

use super::kin::Kin;
use super::{TuneError, folder};

/// What makes a folder one of ours.
pub(super) const SIGN: &str = "made-by-kernelwise-tune";

/// The folder of a session. When it goes, so does all that runs in it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) path: PathBuf,
    pub(super) kin: Kin,
}

impl Room {
    /// Makes the folder. One that a killed session left is removed first, with what still runs there.
    pub(super) fn make(path: PathBuf) -> Result<Self, TuneError> {
        let there = fs::symlink_metadata(&path).is_ok();
        let empty = || fs::read_dir(&path).is_ok_and(|mut all| all.next().is_none());
        if there && !path.join(SIGN).is_file() && !empty() {
            return Err(TuneError::NotOurs(path));
        }
        let kin = Kin::new(&path);
        let room = Self { path, kin };
        let made = room
            .empty()
            .and_then(|()| fs::create_dir(&room.path))
            .and_then(|()| fs::write(room.path.join(SIGN), ""));
        made.map_err(|problem| room.problem(problem))?;
        Ok(room)
    }

    fn empty(&self) -> io::Result<()> {
        self.kin.end();
        folder::remove(&self.path)
    }

    pub(super) fn problem(&self, problem: io::Error) -> TuneError {
        TuneError::Work {
            path: self.path.clone(),
            problem,
        }
    }

    /// Removes it, and says so if that is not possible.
    pub(super) fn clear(self) -> Result<(), TuneError> {
        self.empty().map_err(|problem| self.problem(problem))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.empty();
    }
}
