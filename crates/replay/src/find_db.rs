//! Records of convolutions: which algorithm took how long on which problem (the columns of MIOpen's find-db, as
//! comma-separated values, plain or compressed by gzip).
//!
//! Twenty-seven columns say what the problem is; every column `ms_…` after them is an algorithm. An empty field is an algorithm
//! that cannot compute the problem or was not recorded.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use kernelwise_select::problem::Problem;

/// What the columns are called.
const COLUMNS: [&str; 27] = [
    "spatial", "c", "d", "h", "w", "z", "y", "x", "k", "do", "ho", "wo", "n", "pad_d", "pad_h",
    "pad_w", "str_d", "str_h", "str_w", "dil_d", "dil_h", "dil_w", "bias", "layout", "dtype",
    "dir", "groups",
];

/// Places of columns.
const C: usize = 1;
const IMAGE: [usize; 3] = [2, 3, 4];
const FILTER: [usize; 3] = [5, 6, 7];
const K: usize = 8;
const RESULT: [usize; 3] = [9, 10, 11];
const N: usize = 12;
const STRIDES: [usize; 3] = [16, 17, 18];
const LAYOUT: usize = 23;
const DTYPE: usize = 24;
const DIRECTION: usize = 25;
const GROUPS: usize = 26;

/// Distance between two words on a line, as between sizes that differ by a factor of two.
const WORDS_APART: f64 = 0.7;

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file itself.
    #[error("cannot read the record: {0}")]
    File(#[from] std::io::Error),
    /// Not comma-separated values.
    #[error("the record is not a table: {0}")]
    Table(#[from] csv::Error),
    /// A column is missing.
    #[error("the record has no column `{column}` in place {place}: it begins with {}, then ms_…", COLUMNS.join(","))]
    Column {
        /// The column.
        column: &'static str,
        /// Where it should be, from 1 on.
        place: usize,
    },
    /// A column that is neither of the problem nor a time.
    #[error("column `{0}` of the record is no time: those after `groups` are called ms_…")]
    NotATime(String),
    /// No column of an algorithm.
    #[error("the record has no algorithm: name at least one column ms_…")]
    NoAlgorithm,
    /// A field is not what it should be.
    #[error("line {line} of the record: `{text}` in column `{column}` is not {wanted}")]
    Field {
        /// The line, from 1 on.
        line: u64,
        /// The column.
        column: String,
        /// What it says.
        text: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A problem that nothing computes.
    #[error("line {line} of the record has no time at all")]
    NoTime {
        /// The line, from 1 on.
        line: u64,
    },
    /// No rows.
    #[error("the record has no problems")]
    Empty,
}

/// A problem with the times that were recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    columns: [f64; COLUMNS.len()],
    /// Milliseconds, by algorithm.
    pub times_ms: Vec<Option<f64>>,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct FindDb {
    /// Names of the algorithms.
    pub algorithms: Vec<String>,
    /// Problems in the order of the file.
    pub problems: Vec<Recorded>,
}

impl FindDb {
    /// Reads a file; compressed or not is seen from its beginning.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::read(BufReader::new(File::open(path)?))
    }

    /// Reads from anything.
    pub fn read(mut from: impl BufRead) -> Result<Self, ReadError> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        match from.fill_buf()?.starts_with(&GZIP) {
            true => Self::read_table(MultiGzDecoder::new(from)),
            false => Self::read_table(from),
        }
    }

    fn read_table(from: impl Read) -> Result<Self, ReadError> {
        let mut table = csv::Reader::from_reader(from);
        let headers = table.headers()?.clone();
        for (place, column) in COLUMNS.into_iter().enumerate() {
            if headers.get(place) != Some(column) {
                let place = place + 1;
                return Err(ReadError::Column { column, place });
            }
        }
        let mut algorithms = Vec::new();
        for name in headers.iter().skip(COLUMNS.len()) {
            let Some(algorithm) = name.strip_prefix("ms_") else {
                return Err(ReadError::NotATime(name.to_owned()));
            };
            algorithms.push(algorithm.to_owned());
        }
        if algorithms.is_empty() {
            return Err(ReadError::NoAlgorithm);
        }
        // Words are numbered in the order they come.
        let mut words: [HashMap<String, f64>; COLUMNS.len()] =
            std::array::from_fn(|_| HashMap::new());
        let mut problems = Vec::new();
        let mut row = csv::StringRecord::new();
        while table.read_record(&mut row)? {
            let line = row.position().map_or(0, |position| position.line());
            let field = |place: usize, wanted| ReadError::Field {
                line,
                column: headers.get(place).unwrap_or("?").to_owned(),
                text: row.get(place).unwrap_or("").to_owned(),
                wanted,
            };
            let mut columns = [0.0; COLUMNS.len()];
            for (place, column) in columns.iter_mut().enumerate() {
                let text = row.get(place).unwrap_or("");
                if matches!(place, LAYOUT | DTYPE | DIRECTION) {
                    let known = words[place].len() as f64;
                    *column = *words[place].entry(text.to_owned()).or_insert(known);
                    continue;
                }
                let number = text
                    .parse::<u32>()
                    .map_err(|_| field(place, "a whole number"))?;
                *column = f64::from(number);
            }
            let mut times_ms = Vec::with_capacity(algorithms.len());
            for place in COLUMNS.len()..COLUMNS.len() + algorithms.len() {
                let text = row.get(place).unwrap_or("");
                times_ms.push(match text {
                    "" => None,
                    text => {
                        let time = text.parse::<f64>().ok();
                        let time = time.filter(|time| time.is_finite() && *time > 0.0);
                        Some(time.ok_or_else(|| field(place, "a time above zero"))?)
                    }
                });
            }
            if times_ms.iter().all(Option::is_none) {
                return Err(ReadError::NoTime { line });
            }
            problems.push(Recorded { columns, times_ms });
        }
        if problems.is_empty() {
            return Err(ReadError::Empty);
        }
        Ok(Self {
            algorithms,
            problems,
        })
    }
}

impl Recorded {
    /// The shortest time.
    pub fn best_ms(&self) -> f64 {
        let times = self.times_ms.iter().flatten().copied();
        times.fold(f64::INFINITY, f64::min)
    }

    /// What tells the bucket of a tuner: sizes up to the next power of two, the rest as it is.
    pub(crate) fn bucket(&self) -> Vec<u64> {
        let sizes = C..=N;
        let columns = self.columns.iter().enumerate();
        let rounded =
            columns.map(
                |(place, value)| match sizes.contains(&place) || place == GROUPS {
                    true => (*value as u64).next_power_of_two(),
                    false => *value as u64,
                },
            );
        rounded.collect()
    }

    /// What the learner may know of it.
    pub fn problem(&self) -> Problem {
        let at = |place: usize| self.columns[place];
        let over = |places: [usize; 3]| places.iter().map(|place| at(*place)).product::<f64>();
        let ln = |value: f64| value.max(1e-3).ln();
        // Rows of backward passes have the tensors exchanged; the filter is always moved over the smaller one.
        let positions = over(IMAGE).min(over(RESULT));
        let (n, c, k, groups) = (at(N), at(C), at(K), at(GROUPS).max(1.0));
        let depth = c / groups * over(FILTER);
        let flops = 2.0 * n * k * depth * positions;
        let (input, output) = (n * c * over(IMAGE), n * k * over(RESULT));
        let elements = input + output + k * depth;
        let twos = |value: f64| (value as u64).trailing_zeros().min(10) as f32;
        let mut features: Vec<f32> = self.columns.iter().map(|value| *value as f32).collect();
        let combined = [
            flops.max(1.0),
            elements.max(1.0),
            flops.max(1.0) / elements.max(1.0),
            n * positions,
            depth,
            c / k,
            c * k / groups,
            input,
            output,
            positions,
        ];
        features.extend(combined.map(|value| ln(value) as f32));
        features.extend([c, k, n, positions].map(twos));
        let grouped = groups > 1.0;
        let stride = over(STRIDES) as u64;
        let [_, height, width] = FILTER.map(|place| at(place) as u64);
        let category = (
            at(DTYPE) as u64,
            at(DIRECTION) as u64,
            height,
            width,
            stride,
            grouped,
        );
        let mut problem = Problem::new(features, flops).alike(&category, elements);
        let image: Vec<usize> = IMAGE.into_iter().chain(RESULT).collect();
        let lines: [(&[usize], f64); 6] = [
            (&[N], ln(n)),
            (&[K], ln(k)),
            (&[C], ln(c)),
            (&image, ln(over(IMAGE))),
            (&[DTYPE], WORDS_APART * at(DTYPE)),
            (&[DIRECTION], WORDS_APART * at(DIRECTION)),
        ];
        for (line, (left_out, place)) in lines.into_iter().enumerate() {
            let columns = self.columns.iter().enumerate();
            let rest = columns.filter(|(column, _)| !left_out.contains(column));
            let rest: Vec<u64> = rest.map(|(_, value)| value.to_bits()).collect();
            problem = problem.on_line(&(line, rest), place);
        }
        problem
    }
}

#[cfg(test)]
mod tests;
