//! Where candidates are built and run: a folder for every build, a folder for every evaluation.
//!
//! What a compiler is told decides what it builds, so the same words are compiled once in a session. An evaluation gets a copy: what it
//! does to its files, nobody else sees.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use super::folder;
use super::outcome::{Abandoned, Evaluated, Failed, FailureKind, Part, judge, shown};
use super::process::{Job, Ran, Runner};
use super::reading;
use super::spec::{self, Command, Spec, Template};
use crate::recorded::Cost;
use crate::space::Configuration;

/// Builds that are kept. Beyond these the oldest go, and are built again should anybody want them.
const KEPT_BUILDS: usize = 64;
/// The file a check reads. Not among those of the candidate, who might have one of the name.
const OUTPUT_FILE: &str = "output";

/// What a compiler is told, but for where to put things.
type Words = (Vec<String>, Vec<(String, String)>);

/// Folders, and who runs in them.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    spec: &'a Spec,
    root: &'a Path,
    pub(crate) runner: Runner<'a>,
    builds: HashMap<Words, Result<PathBuf, Failed>>,
    order: VecDeque<Words>,
    folders: u64,
}

/// A candidate that is ready to run.
#[derive(Debug)]
pub(crate) struct Stage {
    configuration: Configuration,
    folder: PathBuf,
    /// What building it took; nothing if it was built before.
    compile: f64,
}

impl<'a> Bench<'a> {
    /// A bench whose folders are made below `root`.
    pub(crate) fn new(spec: &'a Spec, root: &'a Path, runner: Runner<'a>) -> Self {
        Self {
            spec,
            root,
            runner,
            builds: HashMap::new(),
            order: VecDeque::new(),
            folders: 0,
        }
    }

    /// Builds, runs and checks a configuration, as often as the specification says.
    pub(crate) fn evaluate(
        &mut self,
        configuration: &Configuration,
    ) -> Result<Evaluated, Abandoned> {
        let begin = self.runner.clock.now();
        let mut evaluated = Evaluated {
            configuration: configuration.clone(),
            result: Err(Failed {
                kind: FailureKind::NoTime,
                message: String::new(),
            }),
            samples: Vec::new(),
            cost: Cost::default(),
        };
        match self.stage(configuration)? {
            Err(failed) => {
                evaluated.result = Err(failed);
                // Compiling is all there was.
                evaluated.cost.compile = self.since(begin);
                return Ok(evaluated);
            }
            Ok(stage) => {
                evaluated.cost.compile = stage.compile;
                let ended = self.runs(&stage, &mut evaluated);
                self.strike(stage);
                ended?;
            }
        }
        let cost = &mut evaluated.cost;
        cost.framework = (self.since(begin) - cost.total()).max(0.0);
        Ok(evaluated)
    }

    fn since(&self, begin: u64) -> f64 {
        self.runner.clock.now().saturating_sub(begin) as f64 * 1e-9
    }

    /// All runs of an evaluation; the first that fails is the last.
    fn runs(&self, stage: &Stage, evaluated: &mut Evaluated) -> Result<(), Abandoned> {
        for run in 0..self.spec.warm_up.saturating_add(self.spec.runs) {
            let begin = self.runner.clock.now();
            match self.once(stage, run == 0, &mut evaluated.cost)? {
                Ok(time) if run >= self.spec.warm_up => evaluated.samples.push(time),
                Ok(_) => {}
                Err(failed) => {
                    evaluated.result = Err(failed);
                    evaluated.cost.benchmark += self.since(begin);
                    return Ok(());
                }
            }
        }
        if let Some(time) = kernelwise_measure::stats::location(&evaluated.samples) {
            evaluated.result = Ok(time);
        }
        Ok(())
    }

    /// One run: its time, if it ends well. The command that checks is run if `checked`; the printed result is held
    /// against what is expected in any case.
    pub(crate) fn once(
        &self,
        stage: &Stage,
        checked: bool,
        cost: &mut Cost,
    ) -> Result<Result<f64, Failed>, Abandoned> {
        let ran = self.command(&self.spec.run, stage)?;
        cost.benchmark += ran.seconds;
        let judged = judge(&ran, Part::Run)?;
        let judged = judged.and_then(|()| reading::check(&ran, &self.spec.check));
        if let Err(failed) = judged {
            return Ok(Err(failed));
        }
        if let Some(command) = self.spec.check.command.as_ref().filter(|_| checked) {
            let begin = self.runner.clock.now();
            fs::write(self.root.join(OUTPUT_FILE), &ran.stdout)?;
            let judged = judge(&self.command(command, stage)?, Part::Check)?;
            cost.verify += self.since(begin);
            if let Err(failed) = judged {
                return Ok(Err(failed));
            }
        }
        Ok(reading::time(&ran, &self.spec.time))
    }

    fn command(&self, command: &Command, stage: &Stage) -> io::Result<Ran> {
        let (arguments, environment) = self.words(command, &stage.configuration, &stage.folder);
        self.runner.run(&Job {
            arguments: &arguments,
            environment: &environment,
            folder: &stage.folder,
            timeout: command.timeout,
        })
    }

    /// A command with values in their places.
    fn words(&self, command: &Command, configuration: &Configuration, work: &Path) -> Words {
        let space = self.spec.space();
        let value = |name: &str| match name {
            spec::WORK => work.display().to_string(),
            spec::SPEC_DIR => self.spec.folder.display().to_string(),
            spec::OUTPUT => self.root.join(OUTPUT_FILE).display().to_string(),
            name => {
                let slot = space
                    .parameters()
                    .iter()
                    .position(|parameter| parameter.name == name);
                let value = slot.and_then(|slot| space.value(configuration, slot));
                value.map(spec::argument).unwrap_or_default()
            }
        };
        let filled = |template: &Template| template.argument(&value);
        let arguments = command.arguments.iter().filter_map(filled).collect();
        let environment = command.environment.iter();
        let environment = environment.map(|(name, text)| (name.clone(), text.fill(&value)));
        (arguments, environment.collect())
    }

    /// Makes a candidate ready: compiled, in a folder of its own.
    pub(crate) fn stage(
        &mut self,
        configuration: &Configuration,
    ) -> Result<Result<Stage, Failed>, Abandoned> {
        let begin = self.runner.clock.now();
        let build = match &self.spec.compile {
            Some(compile) => match self.build(compile, configuration)? {
                Ok(build) => Some(build),
                Err(failed) => return Ok(Err(failed)),
            },
            None => None,
        };
        let compile = self.since(begin);
        let folder = self.folder("run")?;
        if let Some(build) = build
            && let Err(failed) = copy(&build, &folder)?
        {
            folder::remove(&folder)?;
            return Ok(Err(failed));
        }
        Ok(Ok(Stage {
            configuration: configuration.clone(),
            folder,
            compile,
        }))
    }

    /// Ends whatever a candidate has left running, and removes its folder. What cannot be removed now is tried again with
    /// all folders, when the session ends.
    pub(crate) fn strike(&self, stage: Stage) {
        self.runner.kin.end();
        let _ = folder::remove(&stage.folder);
    }

    fn folder(&mut self, what: &str) -> io::Result<PathBuf> {
        self.folders += 1;
        let folder = self.root.join(format!("{what}-{}", self.folders));
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// The folder with what the compiler made of these words.
    fn build(
        &mut self,
        compile: &Command,
        configuration: &Configuration,
    ) -> Result<Result<PathBuf, Failed>, Abandoned> {
        // A name for the folder that no folder has, so that the place of things is no part of the key.
        let key = self.words(compile, configuration, Path::new("{work}"));
        if let Some(known) = self.builds.get(&key) {
            return Ok(known.clone());
        }
        let folder = self.folder("build")?;
        let (arguments, environment) = self.words(compile, configuration, &folder);
        let ran = self.runner.run(&Job {
            arguments: &arguments,
            environment: &environment,
            folder: &folder,
            timeout: compile.timeout,
        })?;
        let built = judge(&ran, Part::Compile)?.map(|()| folder.clone());
        if built.is_err() {
            self.runner.kin.end();
            folder::remove(&folder)?;
        }
        if self.order.len() == KEPT_BUILDS {
            let oldest = self
                .order
                .pop_front()
                .and_then(|key| self.builds.remove(&key));
            if let Some(Ok(folder)) = oldest {
                folder::remove(&folder)?;
            }
        }
        self.order.push_back(key.clone());
        self.builds.insert(key, built.clone());
        Ok(built)
    }
}

/// Copies what was built. By a program of its own: a file that this process writes can be open in a child that another thread is
/// just starting, and such a file cannot be run.
fn copy(from: &Path, to: &Path) -> io::Result<Result<(), Failed>> {
    let copied = Process::new("cp")
        .arg("-Rp")
        .arg(from.join("."))
        .arg(to)
        .stdin(Stdio::null())
        .output()?;
    Ok(match copied.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&copied.stderr);
            Err(Failed {
                kind: FailureKind::Compile,
                message: format!("what was built cannot be copied: {}", shown(why.trim())),
            })
        }
    })
}
