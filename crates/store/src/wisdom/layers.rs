//! Where wisdom is looked for, and in which order.
//!
//! The system's, which an administrator or a package put there; the user's; the project's. All of them are read, none is written.
//! They merge like any wisdom, so a file that stands in two layers counts once.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{FileError, Skipped, Wisdom};
use crate::dir::data_home;

/// Whose wisdom it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// All users'.
    System,
    /// This user's.
    User,
    /// This project's.
    Project,
}

/// The directories of wisdom, the most general first: `kernelwise/wisdom` in each of `XDG_DATA_DIRS` (by default
/// `/usr/local/share` and `/usr/share`), the same in the user's data home, and `.kernelwise/wisdom` in the project.
pub fn search_path(
    variable: impl Fn(&str) -> Option<OsString>,
    project: &Path,
) -> Vec<(Layer, PathBuf)> {
    let below = |dir: PathBuf| dir.join("kernelwise/wisdom");
    let set = variable("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    let system = set.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    // The specification puts the most important first.
    let mut system: Vec<PathBuf> = std::env::split_paths(&system).collect();
    system.reverse();
    let mut path: Vec<_> = system
        .into_iter()
        .map(|dir| (Layer::System, below(dir)))
        .collect();
    path.extend(data_home(variable).map(|dir| (Layer::User, below(dir))));
    path.push((Layer::Project, project.join(".kernelwise/wisdom")));
    path
}

/// What became of one file.
#[derive(Debug)]
pub struct LayerFile {
    /// Whose it is.
    pub layer: Layer,
    /// Where it is.
    pub path: PathBuf,
    /// The lines that were left out, or why all of it was.
    pub result: Result<Vec<Skipped>, FileError>,
}

/// All layers, merged.
#[derive(Debug, Default)]
pub struct Layered {
    /// What they know together.
    pub wisdom: Wisdom,
    /// The files, in the order in which they were read.
    pub files: Vec<LayerFile>,
}

impl Layered {
    /// Reads every file named `*.wisdom` or `*.wisdom.gz` in these directories, by name. A directory that is not there is
    /// empty; a file that cannot be read is listed, and the others are read.
    pub fn load(path: &[(Layer, PathBuf)]) -> Self {
        let mut all = Self::default();
        for (layer, dir) in path {
            let entries = fs::read_dir(dir).into_iter().flatten();
            let mut paths: Vec<PathBuf> = entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    name.ends_with(".wisdom") || name.ends_with(".wisdom.gz")
                })
                .collect();
            paths.sort();
            for path in paths {
                let result = Wisdom::load(&path).map(|(wisdom, skipped)| {
                    all.wisdom.merge(wisdom);
                    skipped
                });
                let layer = *layer;
                all.files.push(LayerFile {
                    layer,
                    path,
                    result,
                });
            }
        }
        all
    }
}
