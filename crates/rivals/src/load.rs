//! Finding and opening a shared library.
//!
//! The order: a file named by an environment variable, and then no other, since whoever names a file wants that
//! one; files that a Python wheel brought, which somebody installed on purpose and which are often newer than the
//! system's; the names under which the system's loader knows the library; last, files of the system that the loader
//! does not look at. Wheels bring libraries that name their neighbours without saying where they are, so a
//! dependency that the loader misses is looked for beside the file that wants it.

use std::env;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::LoadError;

/// How one library is found.
pub(crate) struct Wanted {
    /// Its name in messages.
    pub(crate) library: &'static str,
    /// The environment variable that names its file.
    pub(crate) variable: &'static str,
    /// Names that the system's loader resolves.
    pub(crate) sonames: &'static [&'static str],
    /// Files under the prefix of a Python installation; `*` stands for any one folder.
    pub(crate) in_prefix: &'static [&'static str],
    /// Files elsewhere.
    pub(crate) files: &'static [&'static str],
    /// The command that installs it.
    pub(crate) remedy: &'static str,
}

/// A library that was opened, and under which name.
pub(crate) struct Opened {
    library: Library,
    pub(crate) file: String,
    wanted: &'static Wanted,
}

impl Wanted {
    /// Opens the first candidate that can be opened.
    ///
    /// # Safety
    ///
    /// The candidates run code when opened: they must be the libraries they are named after.
    pub(crate) unsafe fn open(&'static self) -> Result<Opened, LoadError> {
        let candidates = self.candidates(env::var_os(self.variable), &prefixes());
        // SAFETY: the caller vouches for the candidates.
        unsafe { self.open_first(&candidates) }
    }

    /// Opens this file and no other.
    ///
    /// # Safety
    ///
    /// As for [`Wanted::open`].
    pub(crate) unsafe fn open_file(&'static self, file: &Path) -> Result<Opened, LoadError> {
        // SAFETY: the caller vouches for the file.
        unsafe { self.open_first(&[file.to_path_buf()]) }
    }

    fn candidates(&self, named: Option<OsString>, prefixes: &[PathBuf]) -> Vec<PathBuf> {
        if let Some(file) = named.filter(|file| !file.is_empty()) {
            return vec![PathBuf::from(file)];
        }
        // A soname is always worth a try; a file that is not there would only lengthen the message.
        let in_prefix = prefixes.iter().flat_map(|prefix| {
            let patterns = self.in_prefix.iter();
            patterns.flat_map(|pattern| matching(prefix, pattern))
        });
        let sonames = self.sonames.iter().map(PathBuf::from);
        let files = self.files.iter().map(PathBuf::from);
        in_prefix
            .filter(|file| file.is_file())
            .chain(sonames)
            .chain(files.filter(|file| file.is_file()))
            .collect()
    }

    /// # Safety
    ///
    /// As for [`Wanted::open`].
    unsafe fn open_first(&'static self, candidates: &[PathBuf]) -> Result<Opened, LoadError> {
        let mut tried = Vec::new();
        for candidate in candidates {
            // SAFETY: the caller vouches for the candidates.
            match unsafe { open_with_neighbours(candidate, &mut Vec::new()) } {
                Ok(library) => {
                    return Ok(Opened {
                        library,
                        file: candidate.display().to_string(),
                        wanted: self,
                    });
                }
                Err(complaint) => tried.push(format!("{}: {complaint}", candidate.display())),
            }
        }
        Err(LoadError::Absent {
            library: self.library,
            tried: tried.join("; "),
            remedy: self.remedy,
            variable: self.variable,
        })
    }
}

impl Opened {
    /// The function or other item called `symbol`.
    ///
    /// # Safety
    ///
    /// `F` must be the type of a pointer to that item.
    pub(crate) unsafe fn get<F: Copy>(&self, symbol: &str) -> Result<F, LoadError> {
        // SAFETY: the caller vouches for the type.
        let found = unsafe { self.library.get::<F>(symbol) };
        found.map(|item| *item).map_err(|_| self.lacks(symbol))
    }

    /// The error of a library without this function.
    fn lacks(&self, symbol: &str) -> LoadError {
        LoadError::Symbol {
            library: self.wanted.library,
            file: self.file.clone(),
            symbol: symbol.to_owned(),
            remedy: self.wanted.remedy,
        }
    }

    /// The error of a build that cannot be used.
    pub(crate) fn unfit(&self, found: String, wanted: &'static str) -> LoadError {
        LoadError::Build {
            file: self.file.clone(),
            found,
            wanted,
            remedy: self.wanted.remedy,
        }
    }

    /// Keeps the library until the process ends, so that pointers into it stay good and its threads never find
    /// their code gone.
    pub(crate) fn keep(self) {
        mem::forget(self.library);
    }
}

/// Where Python installations keep their files, the most particular first. One of them is what `ci/rivals` makes
/// in the folder that this program was built into.
fn prefixes() -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(env::var_os);
    let program = env::current_exe().unwrap_or_default();
    let built_into = program.ancestors().map(|folder| folder.join("rivals"));
    let built_into = built_into.filter(|folder| folder.join("installed").is_file());
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".local").into_os_string());
    environments
        .into_iter()
        .flatten()
        .chain(built_into.map(PathBuf::into_os_string))
        .chain(home)
        .chain(["/usr/local", "/usr"].map(OsString::from))
        .filter(|prefix| !prefix.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// The paths under `prefix` that fit a pattern whose `*` stands for any one folder.
fn matching(prefix: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![prefix.to_path_buf()];
    for part in pattern.split('/') {
        found = match part {
            "*" => found.iter().flat_map(|folder| folders(folder)).collect(),
            name => found.iter().map(|folder| folder.join(name)).collect(),
        };
    }
    found
}

/// The folders within a folder, sorted so that the search is the same each time; none when unreadable.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Opens a library, and before it whatever the loader misses but finds in the same folder.
///
/// # Safety
///
/// As for [`Wanted::open`], for the file and its neighbours.
unsafe fn open_with_neighbours(file: &Path, opened: &mut Vec<PathBuf>) -> Result<Library, String> {
    loop {
        // SAFETY: the caller vouches for the file; nothing here is unloaded while in use.
        let error = match unsafe { Library::new(file) } {
            Ok(library) => return Ok(library),
            Err(error) => error,
        };
        let complaint = error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string);
        let neighbour = missing_library(&complaint).and_then(|name| {
            let neighbour = file.parent()?.join(name);
            (neighbour.is_file() && neighbour != file).then_some(neighbour)
        });
        // A neighbour is tried once, so this ends.
        let Some(neighbour) = neighbour.filter(|path| !opened.contains(path)) else {
            return Err(complaint);
        };
        opened.push(neighbour.clone());
        // SAFETY: the caller vouches for the neighbours.
        let library = unsafe { open_with_neighbours(&neighbour, opened) }?;
        // It serves whatever is opened next, as long as that stays.
        mem::forget(library);
    }
}

/// The plain file name at the start of a complaint such as `libtbb.so.12: cannot open shared object file: …`.
fn missing_library(complaint: &str) -> Option<&OsStr> {
    let (name, _) = complaint.split_once(": cannot open")?;
    let path = Path::new(name);
    path.file_name().filter(|&file| file == path.as_os_str())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::{OsStr, OsString, c_int};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::{Wanted, missing_library};
    use crate::LoadError;

    static WANTED: Wanted = Wanted {
        library: "Example",
        variable: "EXAMPLE",
        sonames: &["libexample.so.1"],
        in_prefix: &["lib/*/packages/libexample.so"],
        files: &["/nowhere/libexample.so"],
        remedy: "install example",
    };

    #[test]
    fn a_named_file_is_the_only_candidate() {
        let named = WANTED.candidates(Some(OsString::from("mine.so")), &[]);
        assert_eq!(named, [PathBuf::from("mine.so")]);
    }

    #[test]
    fn wheels_come_before_sonames_and_files_must_exist() {
        let prefix = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for version in ["b", "a"] {
            let folder = prefix.path().join("lib").join(version).join("packages");
            fs::create_dir_all(&folder).unwrap();
            files.push(folder.join("libexample.so"));
        }
        fs::write(prefix.path().join("lib/file"), "not a folder").unwrap();
        for file in &files {
            fs::write(file, "").unwrap();
        }
        let empty = tempfile::tempdir().unwrap();
        let prefixes = [empty.path().into(), prefix.path().into()];
        let candidates = WANTED.candidates(Some(OsString::new()), &prefixes);
        let [b, a] = files.try_into().unwrap();
        assert_eq!(candidates, [a, b, PathBuf::from("libexample.so.1")]);
    }

    #[test]
    fn a_complaint_names_the_missing_library() {
        let missing = |complaint| missing_library(complaint).and_then(OsStr::to_str);
        assert_eq!(
            missing("libtbb.so.12: cannot open shared object file: No such file or directory"),
            Some("libtbb.so.12")
        );
        assert_eq!(
            missing("/opt/lib/libtbb.so.12: cannot open shared object file"),
            None
        );
        assert_eq!(missing("libtbb.so.12: invalid ELF header"), None);
    }

    /// Makes `file` a library of this source, which needs `others`; says why when that is not possible.
    pub(crate) fn compile(file: &Path, source: &str, others: &[&Path]) -> Result<(), String> {
        let text = file.with_extension("c");
        fs::write(&text, source).unwrap();
        let ran = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(file)
            .arg(&text)
            .args(others)
            .arg(format!(
                "-Wl,-soname,{}",
                file.file_name().unwrap().display()
            ))
            .output()
            .map_err(|error| error.to_string())?;
        if ran.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&ran.stderr).into_owned())
        }
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "the loader's complaints differ")]
    fn what_the_loader_misses_is_found_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let [inner, middle, outer] =
            ["inner", "middle", "outer"].map(|name| folder.path().join(format!("libkw_{name}.so")));
        let made = compile(&inner, "int kw_inner(void) { return 42; }", &[])
            .and_then(|()| {
                let source = "int kw_inner(void); int kw_middle(void) { return kw_inner() + 1; }";
                compile(&middle, source, &[&inner])
            })
            .and_then(|()| {
                let source = "int kw_middle(void); int kw_outer(void) { return kw_middle() + 1; }";
                compile(&outer, source, &[&middle, &inner])
            });
        if let Err(reason) = made {
            kernelwise_testing::skip("cc", &reason);
            return;
        }

        // SAFETY: the library was just made from the source above.
        let (opened, answer) = unsafe {
            let opened = WANTED.open_file(&outer).unwrap();
            let function: unsafe extern "C" fn() -> c_int = opened.get("kw_outer").unwrap();
            (opened, function())
        };
        assert_eq!(answer, 44);
        // SAFETY: there is nothing of this name to call.
        let lacking = unsafe { opened.get::<unsafe extern "C" fn()>("kw_nothing") }.unwrap_err();
        assert_eq!(
            lacking,
            LoadError::Symbol {
                library: "Example",
                file: outer.display().to_string(),
                symbol: "kw_nothing".to_owned(),
                remedy: "install example",
            }
        );
        opened.keep();

        // Without its neighbour, the complaint names what is missing.
        let alone = folder.path().join("alone");
        fs::create_dir(&alone).unwrap();
        let moved = alone.join("libkw_other.so");
        compile(
            &folder.path().join("libkw_gone.so"),
            "int kw_gone(void) { return 1; }",
            &[],
        )
        .unwrap();
        let source = "int kw_gone(void); int kw_other(void) { return kw_gone(); }";
        compile(&moved, source, &[&folder.path().join("libkw_gone.so")]).unwrap();
        // SAFETY: as above.
        let error = unsafe { WANTED.open_file(&moved) }.err().unwrap();
        assert!(error.to_string().contains("libkw_gone.so"), "{error}");
    }
}
