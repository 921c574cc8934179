//! Recorded spaces: what others, or earlier runs, have measured.
//!
//! Three formats are understood:
//!
//! - **Cache files** of Kernel Tuner, read and written: a [`Record`] with every configuration that was tried.
//! - **T4 results**, read and written: the exchange format of several tuners for the same thing. It does not
//!   say which values a parameter could have had; those that occur are taken.
//! - **T1 descriptions**, read: a [`Space`] before anything was measured.
//!
//! Compressed by gzip or not is seen from the first bytes. Times in these files are milliseconds; here they are seconds.

mod cache;
mod t1;
mod t4;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::gpu::device_of_file;
use crate::space::{Configuration, Space, SpaceError};

/// Text that a record may have: sixty times the largest recorded space we know.
const MOST_BYTES: u64 = 1 << 30;

pub use t1::{Description, read_t1};

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file itself.
    #[error("cannot read or write the record: {0}")]
    File(#[from] io::Error),
    /// Not JSON, or not of this form.
    #[error("the record is not a {format}: {problem}")]
    Form {
        /// What it was read as.
        format: &'static str,
        /// What the reader says.
        problem: serde_json::Error,
    },
    /// A parameter is named but has no values, or the other way round.
    #[error("the record names the parameter `{0}` without telling its values")]
    NoValues(String),
    /// A configuration whose values are not among those of its parameters.
    #[error("configuration `{key}` of the record does not fit its parameters {names}")]
    Configuration {
        /// How the record names it.
        key: String,
        /// The parameters.
        names: String,
    },
    /// A time that is none.
    #[error("configuration `{key}` of the record has the time {time}: times are above zero")]
    Time {
        /// How the record names the configuration.
        key: String,
        /// The time.
        time: f64,
    },
    /// Values that are no list.
    #[error("parameter `{name}` has the values `{text}`: write a list such as [1, 2, 4]")]
    Values {
        /// The parameter.
        name: String,
        /// What it says.
        text: String,
    },
    /// A unit nobody knows.
    #[error("`{0}` is not a unit of time: write s, ms, us or ns, or spell it out")]
    Unit(String),
    /// What it describes is no space.
    #[error("the record describes no space: {0}")]
    Space(#[from] SpaceError),
    /// No configurations.
    #[error("the record has no configurations")]
    Empty,
    /// A text that nobody should hold in memory: a few kilobytes of gzip can become as much.
    #[error("the record has more than {most} bytes of text: it is broken, or has to be split")]
    TooLarge {
        /// How many it may have.
        most: u64,
    },
}

/// Why a configuration has no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// It did not compile.
    Compile,
    /// It did not run.
    Run,
    /// It took too long.
    Timeout,
    /// Its result is wrong.
    Wrong,
    /// It is not allowed.
    Forbidden,
}

/// What was measured of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The configuration.
    pub configuration: Configuration,
    /// Its time in seconds, or why it has none.
    pub result: Result<f64, Failure>,
    /// Single samples of the time, in seconds.
    pub samples: Vec<f64>,
    /// What the evaluation cost, in seconds.
    pub cost: Cost,
}

/// What an evaluation cost, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Compiling.
    pub compile: f64,
    /// Checking the result.
    pub verify: f64,
    /// Running for the time.
    pub benchmark: f64,
    /// All around it.
    pub framework: f64,
}

impl Cost {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.compile + self.verify + self.benchmark + self.framework
    }
}

/// A kernel on a device, with what was measured of its space.
#[derive(Debug, Clone)]
pub struct Record {
    /// The device; may be empty.
    pub device: String,
    /// The kernel.
    pub kernel: String,
    /// The problem size, as the record has it.
    pub problem: serde_json::Value,
    /// The space, [listed](Space::listed).
    pub space: Space,
    /// What was measured, in the order of the list.
    pub entries: Vec<Entry>,
    /// Whether the file was cut short, so that its end had to be supplied.
    pub cut_short: bool,
}

impl Record {
    /// Reads a cache file or T4 results, whichever it is. One that does not say its device is of the one that its file is named after, if any.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let mut record = Self::read(BufReader::new(File::open(path)?))?;
        if record.device.is_empty() {
            let name = path.file_name().map(|name| name.to_string_lossy());
            record.device = name
                .and_then(|name| device_of_file(&name))
                .unwrap_or_default();
        }
        Ok(record)
    }

    /// Reads from anything.
    pub fn read(from: impl Read) -> Result<Self, RecordError> {
        let text = text(from)?;
        // Only results have a member of this name, and it comes early; a cache has names of parameters instead.
        let head: String = text.chars().take(4096).collect();
        match head.contains("\"results\"") && !head.contains("\"tune_params_keys\"") {
            true => t4::read(&text),
            false => cache::read(&text),
        }
    }

    /// Writes a cache file of Kernel Tuner.
    pub fn write_cache(&self, to: impl io::Write) -> Result<(), RecordError> {
        cache::write(self, to)
    }

    /// Writes T4 results.
    pub fn write_t4(&self, to: impl io::Write) -> Result<(), RecordError> {
        t4::write(self, to)
    }

    /// The shortest time.
    pub fn best(&self) -> Option<f64> {
        let times = self.entries.iter().filter_map(|entry| entry.result.ok());
        times.min_by(f64::total_cmp)
    }

    /// Puts entries in the order of the list; of one that comes twice, the last stays.
    fn new(
        parameters: Vec<crate::space::Parameter>,
        found: Vec<Entry>,
        about: (String, String, serde_json::Value),
        cut_short: bool,
    ) -> Result<Self, RecordError> {
        if found.is_empty() {
            return Err(RecordError::Empty);
        }
        let listed = found
            .iter()
            .map(|entry| entry.configuration.clone())
            .collect();
        let space = Space::listed(parameters, listed)?;
        let mut entries: Vec<Entry> = Vec::with_capacity(found.len());
        for entry in found {
            match space.place(&entry.configuration) {
                Some(place) if place < entries.len() => entries[place] = entry,
                _ => entries.push(entry),
            }
        }
        let (device, kernel, problem) = about;
        Ok(Self {
            device,
            kernel,
            problem,
            space,
            entries,
            cut_short,
        })
    }
}

/// All of it as text, decompressed if need be.
fn text(from: impl Read) -> Result<String, RecordError> {
    text_within(from, MOST_BYTES)
}

/// The same, if it has at most so many bytes; no more than that is ever in memory.
fn text_within(from: impl Read, most: u64) -> Result<String, RecordError> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    // One byte more shows that there is more.
    let allowed = most.saturating_add(1);
    match io::BufRead::fill_buf(&mut from)?.starts_with(&GZIP) {
        true => MultiGzDecoder::new(from)
            .take(allowed)
            .read_to_end(&mut bytes)?,
        false => from.take(allowed).read_to_end(&mut bytes)?,
    };
    if bytes.len() as u64 > most {
        return Err(RecordError::TooLarge { most });
    }
    let text = String::from_utf8(bytes);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error).into())
}

/// A time above zero, in seconds.
fn seconds(key: &str, time: f64, unit: f64) -> Result<f64, RecordError> {
    match time.is_finite() && time > 0.0 {
        true => Ok(time * unit),
        false => Err(RecordError::Time {
            key: key.to_owned(),
            time,
        }),
    }
}
