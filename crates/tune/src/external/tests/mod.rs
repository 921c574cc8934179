//! Real processes: scripts that the tests write into a folder of their own.

#![allow(clippy::unwrap_used)]

mod isolation;
mod session;
mod specs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use kernelwise_measure::{Clock, ScriptedClock};
use tempfile::TempDir;

use super::{Evaluated, Progress, Spec, SpecError, TuneError, Tuned, tune};

/// A folder with a specification and a script.
struct Program {
    folder: TempDir,
    /// Counts how often it is read: a machine that stands still for a while makes no test fail.
    clock: Box<dyn Clock>,
}

impl Program {
    /// `script` is what `run.sh` does; `spec` is the specification.
    fn new(spec: &str, script: &str) -> Self {
        let program = Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Box::new(ScriptedClock::with_cost(1_000_000)),
        };
        program.write("spec.toml", spec);
        program.write("run.sh", script);
        program
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn spec(&self) -> Result<Spec, SpecError> {
        Spec::open(&self.path("spec.toml"))
    }

    fn tune(&self) -> Result<Tuned, TuneError> {
        self.watched(&AtomicBool::new(false), &mut |_, _| {})
    }

    /// Tunes; `watch` sees every new evaluation.
    fn watched(
        &self,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Spec, &Evaluated),
    ) -> Result<Tuned, TuneError> {
        let spec = self.spec().unwrap();
        tune(
            &spec,
            &spec.session(),
            &*self.clock,
            stop,
            &mut |progress| {
                if let Progress::Evaluated { evaluated, .. } = progress {
                    watch(&spec, evaluated);
                }
            },
        )
    }

    /// Evaluations by the value of the only parameter.
    fn all(&self) -> (Tuned, BTreeMap<String, Evaluated>) {
        let mut all = BTreeMap::new();
        let found = self.watched(&AtomicBool::new(false), &mut |spec, evaluated| {
            let value = spec.space().value(&evaluated.configuration, 0).unwrap();
            all.insert(value.to_string(), evaluated.clone());
        });
        (found.unwrap(), all)
    }

    /// Names of all files, sorted.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Whether a process is there and not dead.
fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    status.is_ok_and(|status| {
        !status
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim()
            .starts_with('Z')
    })
}
