//! Pages in a real browser: Chromium, driven by a script in Node.js.
//!
//! The scripts and the lock file of the two packages they use are in `crates/report/tests/browser`; the packages are installed under the
//! target directory, once for each lock file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A browser with what drives it.
#[derive(Debug)]
pub struct Browser {
    chromium: PathBuf,
    node: &'static str,
    modules: PathBuf,
    screenshots: PathBuf,
}

impl Browser {
    /// Finds everything; `None` where something is missing, which was [noted](crate::skip) then. `target` is the target directory.
    ///
    /// # Panics
    ///
    /// When the files of this repository or the target directory cannot be used, or if `KERNELWISE_REQUIRE` names `chromium` and it
    /// is missing.
    pub fn find(target: &Path) -> Option<Self> {
        let found = Self::look_for(target);
        found.map_err(|why| crate::skip("chromium", &why)).ok()
    }

    fn look_for(target: &Path) -> Result<Self, String> {
        let chromium = program(&["chromium", "chromium-browser", "google-chrome"])
            .ok_or("no chromium can be started (Debian package chromium)")?;
        let node = program(&["node", "nodejs"])
            .ok_or("no Node.js to drive it with (Debian packages nodejs and npm)")?;
        let screenshots = target.join("report-screenshots");
        fs::create_dir_all(&screenshots).map_err(|error| error.to_string())?;
        Ok(Self {
            chromium: place(chromium).map_err(|error| error.to_string())?,
            node,
            modules: modules(target)?,
            screenshots,
        })
    }

    /// Where pages and pictures of them are left to be looked at.
    pub fn screenshots(&self) -> &Path {
        &self.screenshots
    }

    /// Runs a script on these pages, by the names it has for them; answers with what it says, or with what it complains of.
    pub fn run(&self, script: &str, pages: &[(&str, &Path)]) -> Result<String, String> {
        let own = [
            ("modules", self.modules.as_path()),
            ("browser", &self.chromium),
            ("screenshots", &self.screenshots),
        ];
        let all = own.iter().chain(pages);
        let all: Vec<String> = all
            .map(|(name, path)| format!("{name:?}:{:?}", path.display().to_string()))
            .collect();
        let seen = Command::new(self.node)
            .arg(scripts().join(script))
            .arg(format!("{{{}}}", all.join(",")))
            .output()
            .map_err(|error| format!("{} does not start: {error}", self.node))?;
        let said = String::from_utf8_lossy(&seen.stdout).into_owned();
        match seen.status.success() {
            true => Ok(said),
            false => Err(format!("{said}\n{}", String::from_utf8_lossy(&seen.stderr))),
        }
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/browser")
}

/// The first program of these names that can be started.
fn program(names: &[&'static str]) -> Option<&'static str> {
    let starts = |name: &&&str| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|out| out.status.success())
    };
    names.iter().find(starts).copied()
}

/// The file of a program: the script wants that, not its name.
fn place(program: &str) -> io::Result<PathBuf> {
    let asked = format!("command -v {program}");
    let which = Command::new("sh").args(["-c", &asked]).output()?;
    Ok(String::from_utf8_lossy(&which.stdout).trim().into())
}

/// The packages that the scripts drive the browser with.
fn modules(target: &Path) -> Result<PathBuf, String> {
    install(&target.join("report-browser")).map_err(|error| format!("npm ci failed: {error}"))
}

fn install(dir: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    // Tests run side by side, and only one may install; the lock ends with the file.
    let lock = File::create(dir.join("lock"))?;
    lock.lock()?;
    let wanted = fs::read(scripts().join("package-lock.json"))?;
    let done = dir.join("installed.json");
    if fs::read(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(dir.to_owned());
    }
    for name in ["package.json", "package-lock.json"] {
        fs::copy(scripts().join(name), dir.join(name))?;
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(dir)
        .output()?;
    if !npm.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&npm.stderr)));
    }
    fs::write(done, wanted)?;
    Ok(dir.to_owned())
}
