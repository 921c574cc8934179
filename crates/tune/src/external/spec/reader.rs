//! From what is written to what can be used.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regex_lite::Regex;
use serde_json::json;
use toml::Spanned;

use super::problem::{SpecError, SpecProblem};
use super::template::Template;
use super::values::{check_name, parameter};
use super::written::{Written, WrittenCommand, WrittenLimits, WrittenTime};
use super::{Check, Command, Limits, OUTPUT, SPEC_DIR, Spec, Time, WORK};
use crate::recorded::{Record, RecordError, read_t1};
use crate::search::{Budget, Knowledge, Strategy, fits};
use crate::space::{Expression, Space, SpaceError, Value};

const COMPILE_TIMEOUT: f64 = 60.0;
const RUN_TIMEOUT: f64 = 10.0;
const WARM_UP: u32 = 1;
const RUNS: u32 = 5;
const EVALUATIONS: u64 = 100;
const OUTPUT_BYTES: u64 = 1 << 20;
const DISK_BYTES: u64 = 1 << 28;
const PROCESSES: u64 = 64;

/// A text and the file it stands in.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) path: &'a Path,
}

impl Reader<'_> {
    pub(super) fn error(&self, at: usize, problem: impl Into<SpecProblem>) -> SpecError {
        let before = self.text.as_bytes().iter().take(at);
        SpecError::Line {
            path: self.path.to_owned(),
            line: before.filter(|byte| **byte == b'\n').count() + 1,
            problem: problem.into(),
        }
    }

    pub(super) fn spec(&self, written: Written) -> Result<Spec, SpecError> {
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let (space, lines) = self.space(&written, &folder)?;
        let names: Vec<&str> = space.parameters().iter().map(|p| p.name.as_str()).collect();
        let mut known = names.clone();
        known.extend([WORK, SPEC_DIR]);
        let run = self.command(&written.run, &known, RUN_TIMEOUT)?;
        let compile = match &written.compile {
            Some(command) => Some(self.command(command, &known, COMPILE_TIMEOUT)?),
            None => None,
        };
        let mut check = Check {
            pattern: match &written.check.pattern {
                Some(pattern) => Some(self.pattern(pattern)?),
                None => None,
            },
            text: written.check.text.clone(),
            command: None,
        };
        if let Some(command) = &written.check.command {
            known.push(OUTPUT);
            check.command = Some(Command {
                arguments: self.arguments(command, &known)?,
                environment: Vec::new(),
                timeout: run.timeout,
            });
        }
        let mut used: BTreeSet<&str> = run.templates().flat_map(Template::names).collect();
        used.extend(
            compile
                .iter()
                .flat_map(Command::templates)
                .flat_map(Template::names),
        );
        for (name, at) in names.iter().zip(&lines) {
            if !used.contains(name) {
                return Err(self.error(*at, SpecProblem::Unused((*name).to_owned())));
            }
        }
        let time = self.time(&written.time)?;
        let fingerprint = self.fingerprint(&written, &space, &folder)?;
        let first = space.first().map_err(|none| {
            let restrictions = written.restrictions.first();
            self.error(restrictions.map_or(0, |one| one.span().start), none)
        })?;
        let strategy = match &written.strategy {
            Some(name) => {
                let strategy = name.as_ref().parse::<Strategy>();
                strategy.map_err(|error| self.error(name.span().start, error))?
            }
            None => Strategy::default(),
        };
        let evaluations = written.budget.evaluations.as_ref();
        Ok(Spec {
            budget: Budget {
                evaluations: Some(self.positive(evaluations, "evaluations", EVALUATIONS)?),
                seconds: match &written.budget.seconds {
                    Some(seconds) => Some(self.seconds(seconds, "seconds")?.as_secs_f64()),
                    None => None,
                },
            },
            strategy,
            seed: written.seed.unwrap_or(1),
            knowledge: self.knowledge(&written, &space, &folder)?,
            folder,
            compile,
            run,
            warm_up: written.repeat.warm_up.unwrap_or(WARM_UP),
            runs: self.positive(written.repeat.runs.as_ref(), "runs", RUNS)?,
            time,
            check,
            limits: self.limits(&written.limits)?,
            fingerprint,
            path: self.path.to_owned(),
            space: Arc::new(space),
            first,
            name: written.name,
        })
    }

    /// Records of other machines or sizes, and how often the program will run.
    fn knowledge(
        &self,
        written: &Written,
        space: &Space,
        folder: &Path,
    ) -> Result<Knowledge, SpecError> {
        let mut records = Vec::with_capacity(written.warm.len());
        for name in &written.warm {
            let at = name.span().start;
            let problem = |problem| SpecProblem::Record {
                name: name.as_ref().clone(),
                problem,
            };
            let record = Record::open(&folder.join(name.as_ref()));
            let record = record.map_err(|error| self.error(at, problem(error)))?;
            if !fits(space, &record) {
                let name = name.as_ref().clone();
                return Err(self.error(at, SpecProblem::OtherParameters(name)));
            }
            records.push(Arc::new(record));
        }
        Ok(Knowledge {
            records,
            device: written.device.clone().unwrap_or_default(),
            runs: match &written.runs {
                Some(runs) => Some(self.positive(Some(runs), "runs", 1)? as f64),
                None => None,
            },
        })
    }

    /// The space, and where each parameter stands.
    fn space(&self, written: &Written, folder: &Path) -> Result<(Space, Vec<usize>), SpecError> {
        let parameters = match (&written.parameters, &written.space) {
            (Some(parameters), None) => parameters,
            (None, Some(file)) => return self.described(written, file, folder),
            (Some(_), Some(file)) => {
                return Err(self.error(file.span().start, SpecProblem::TwoSpaces));
            }
            (None, None) => return Err(self.error(0, SpecProblem::NoSpace)),
        };
        let at_parameters = parameters.span().start;
        let mut declared: Vec<_> = parameters.as_ref().iter().collect();
        // In the order in which they are written.
        declared.sort_by_key(|(name, _)| name.span().start);
        let mut parameters = Vec::with_capacity(declared.len());
        let mut lines = Vec::with_capacity(declared.len());
        for (name, values) in declared {
            let at = name.span().start;
            let parameter = parameter(name.as_ref(), values.as_ref())
                .map_err(|problem| self.error(at, problem))?;
            // Alone, so that what is wrong with one is said with its line.
            let alone: Result<Space, SpaceError> =
                Space::new(vec![parameter.clone()], &[] as &[&str]);
            alone.map_err(|problem| self.error(at, problem))?;
            parameters.push(parameter);
            lines.push(at);
        }
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        for restriction in &written.restrictions {
            let at = restriction.span().start;
            Expression::parse(restriction.as_ref(), &names)
                .map_err(|problem| self.error(at, SpaceError::from(problem)))?;
        }
        let texts: Vec<&str> = written
            .restrictions
            .iter()
            .map(|one| one.as_ref().as_str())
            .collect();
        let space = Space::new(parameters, &texts);
        let at = match &space {
            Err(SpaceError::Meaningless { text, .. }) => {
                let found = written.restrictions.iter().find(|one| one.as_ref() == text);
                found.map_or(0, |one| one.span().start)
            }
            _ => at_parameters,
        };
        Ok((space.map_err(|problem| self.error(at, problem))?, lines))
    }

    /// The space of a T1 description, less what the specification forbids besides.
    fn described(
        &self,
        written: &Written,
        file: &Spanned<String>,
        folder: &Path,
    ) -> Result<(Space, Vec<usize>), SpecError> {
        let at = file.span().start;
        let problem = |problem: RecordError| {
            let name = file.as_ref().clone();
            self.error(at, SpecProblem::Record { name, problem })
        };
        let open = fs::File::open(folder.join(file.as_ref()));
        let open = open.map_err(|error| problem(error.into()))?;
        let described = read_t1(open).map_err(problem)?.space;
        for parameter in described.parameters() {
            check_name(&parameter.name).map_err(|problem| self.error(at, problem))?;
            // No argument can hold it.
            if parameter
                .values
                .iter()
                .any(|v| matches!(v, Value::Text(text) if text.contains('\0')))
            {
                return Err(self.error(at, SpecProblem::Values(parameter.name.clone())));
            }
        }
        let lines = vec![at; described.parameters().len()];
        let mut texts: Vec<String> = described.restrictions().map(str::to_owned).collect();
        for restriction in &written.restrictions {
            texts.push(restriction.as_ref().clone());
            // One by one, so that what is wrong with one is said with its line.
            let so_far = Space::new(described.parameters().to_vec(), &texts);
            so_far.map_err(|problem| self.error(restriction.span().start, problem))?;
        }
        let space = Space::new(described.parameters().to_vec(), &texts);
        Ok((space.map_err(|problem| self.error(at, problem))?, lines))
    }

    fn command(
        &self,
        written: &WrittenCommand,
        names: &[&str],
        timeout: f64,
    ) -> Result<Command, SpecError> {
        let mut environment = Vec::with_capacity(written.environment.len());
        for (name, value) in &written.environment {
            let at = value.span().start;
            if name.is_empty() || name.contains(['=', '\0']) {
                let problem = format!("`{name}` cannot be the name of a variable");
                return Err(self.error(at, SpecProblem::Form(problem)));
            }
            let value = Template::parse(value.as_ref(), names);
            environment.push((name.clone(), value.map_err(|error| self.error(at, error))?));
        }
        Ok(Command {
            arguments: self.arguments(&written.command, names)?,
            environment,
            timeout: match &written.timeout {
                Some(seconds) => self.seconds(seconds, "timeout")?,
                None => Duration::from_secs_f64(timeout),
            },
        })
    }

    fn arguments(
        &self,
        written: &Spanned<Vec<Spanned<String>>>,
        names: &[&str],
    ) -> Result<Vec<Template>, SpecError> {
        let arguments = written.as_ref().iter().map(|argument| {
            let template = Template::parse(argument.as_ref(), names);
            template.map_err(|error| self.error(argument.span().start, error))
        });
        let arguments = arguments.collect::<Result<Vec<Template>, SpecError>>()?;
        let Some(program) = arguments.first() else {
            return Err(self.error(written.span().start, SpecProblem::NoCommand));
        };
        // Where it is the same for all configurations, it can be looked for now.
        let name = program.to_string();
        if program.names().next().is_none()
            && !name.contains('/')
            && crate::external::process::find(&name).is_none()
        {
            return Err(self.error(written.span().start, SpecProblem::NoProgram(name)));
        }
        Ok(arguments)
    }

    fn pattern(&self, written: &Spanned<String>) -> Result<Regex, SpecError> {
        Regex::new(written.as_ref()).map_err(|problem| {
            let text = written.as_ref().clone();
            self.error(written.span().start, SpecProblem::Pattern { text, problem })
        })
    }

    fn time(&self, written: &WrittenTime) -> Result<Time, SpecError> {
        let from = written.from.as_ref().map_or("clock", |from| from.as_ref());
        let at = written.from.as_ref().map_or(0, |from| from.span().start);
        let problem = |problem: &str| Err(self.error(at, SpecProblem::Time(problem.to_owned())));
        let unit = match written.unit.as_ref() {
            None => None,
            Some(unit) => match unit.as_ref().as_str() {
                "s" => Some(1.0),
                "ms" => Some(1e-3),
                "us" => Some(1e-6),
                "ns" => Some(1e-9),
                other => {
                    let problem = format!("`{other}` is not a unit of time: write s, ms, us or ns");
                    return Err(self.error(unit.span().start, SpecProblem::Time(problem)));
                }
            },
        };
        match (from, &written.pattern, &written.field, unit) {
            ("clock", None, None, None) => Ok(Time::Clock),
            ("clock", ..) => problem("the clock needs no pattern, field or unit: leave them out"),
            ("output", Some(pattern), None, Some(unit)) => {
                let regex = self.pattern(pattern)?;
                match regex.captures_len() {
                    0 | 1 => {
                        let text = pattern.as_ref().clone();
                        Err(self.error(pattern.span().start, SpecProblem::NoGroup(text)))
                    }
                    _ => Ok(Time::Pattern(regex, unit)),
                }
            }
            ("output", ..) => {
                problem("from output, a time needs a `pattern` and a `unit`, and no `field`")
            }
            ("json", None, Some(field), Some(unit)) => {
                let way = field.as_ref().split('.').map(str::to_owned).collect();
                Ok(Time::Field(way, unit))
            }
            ("json", ..) => {
                problem("from JSON, a time needs a `field` and a `unit`, and no `pattern`")
            }
            (other, ..) => problem(&format!(
                "a time comes from \"clock\", \"output\" or \"json\", not \"{other}\""
            )),
        }
    }

    fn limits(&self, written: &WrittenLimits) -> Result<Limits, SpecError> {
        let memory = match &written.memory {
            Some(bytes) if cfg!(target_os = "linux") => {
                Some(self.positive(Some(bytes), "memory", 1)?)
            }
            Some(bytes) => {
                return Err(self.error(bytes.span().start, SpecProblem::NoLimit("memory")));
            }
            None => None,
        };
        Ok(Limits {
            output: self.positive(written.output.as_ref(), "output", OUTPUT_BYTES)?,
            disk: self.positive(written.disk.as_ref(), "disk", DISK_BYTES)?,
            memory,
            processes: match &written.processes {
                Some(count) if cfg!(not(target_os = "linux")) => {
                    return Err(self.error(count.span().start, SpecProblem::NoLimit("processes")));
                }
                count => self.positive(count.as_ref(), "processes", PROCESSES)?,
            },
        })
    }

    fn positive<N: Copy + Default + PartialEq>(
        &self,
        written: Option<&Spanned<N>>,
        name: &'static str,
        otherwise: N,
    ) -> Result<N, SpecError> {
        match written {
            Some(zero) if *zero.as_ref() == N::default() => {
                Err(self.error(zero.span().start, SpecProblem::NotAboveZero(name)))
            }
            Some(number) => Ok(*number.as_ref()),
            None => Ok(otherwise),
        }
    }

    fn seconds(&self, written: &Spanned<f64>, name: &'static str) -> Result<Duration, SpecError> {
        let time = Duration::try_from_secs_f64(*written.as_ref());
        let time = time.ok().filter(|time| !time.is_zero());
        time.ok_or_else(|| self.error(written.span().start, SpecProblem::NotAboveZero(name)))
    }

    /// What a measured time depends on, as one number: a session goes on only with the same. Budget, strategy and repeats may
    /// change from one run to the next.
    fn fingerprint(
        &self,
        written: &Written,
        space: &Space,
        folder: &Path,
    ) -> Result<String, SpecError> {
        let command = |command: &WrittenCommand| {
            let arguments = command.command.as_ref().iter().map(Spanned::as_ref);
            let environment = command
                .environment
                .iter()
                .map(|(name, value)| (name, value.as_ref()));
            json!([
                arguments.collect::<Vec<_>>(),
                environment.collect::<Vec<_>>()
            ])
        };
        let plain =
            |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.as_ref().clone());
        let checks = written.check.command.as_ref().map(|arguments| {
            let arguments = arguments.as_ref().iter().map(Spanned::as_ref);
            arguments.cloned().collect::<Vec<String>>()
        });
        let mut hash = blake3::Hasher::new();
        let facts = json!([
            space.parameters(),
            space.restrictions().collect::<Vec<_>>(),
            written.compile.as_ref().map(command),
            command(&written.run),
            [
                plain(&written.time.from),
                plain(&written.time.pattern),
                plain(&written.time.field),
                plain(&written.time.unit)
            ],
            [plain(&written.check.pattern), written.check.text.clone()],
            checks,
        ]);
        hash.update(facts.to_string().as_bytes());
        for file in &written.files {
            let name = file.as_ref();
            let content = fs::read(folder.join(name)).map_err(|problem| {
                let name = name.clone();
                self.error(file.span().start, SpecProblem::NoFile { name, problem })
            })?;
            hash.update(blake3::hash(&content).as_bytes());
        }
        Ok(hash.finalize().to_hex().to_string())
    }
}
