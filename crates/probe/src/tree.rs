//! The one door to `/proc` and `/sys`.
//!
//! Everything the probe reads from files comes through a [`Tree`], so that tests can build a machine in
//! a directory, and so that every failure names the file it concerns. Files of the kernel are small,
//! but a tree may be anything: a read never takes more than [`LIMIT`] bytes, a list never names more
//! than [`MAX_ID`] processors, and whatever is not as expected is an error in words.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

/// The most that is read from one file. The largest one, `/proc/cpuinfo`, takes some 1.5 KiB per
/// logical processor, so this is enough for two thousand of them.
const LIMIT: u64 = 4 << 20;

/// Processors and nodes are numbered below this, which is what Linux can be built for.
const MAX_ID: u32 = 8192;

/// A directory is listed up to this many entries.
const MAX_NAMES: usize = 1 << 14;

/// Where the kernel's files are found: the running system, or a directory made to look like one.
#[derive(Debug, Clone)]
pub struct Tree {
    /// `None` on systems that keep no such files.
    root: Option<PathBuf>,
}

impl Tree {
    /// The running system. Off Linux every read answers that there are no such files.
    pub fn system() -> Self {
        Self {
            root: cfg!(target_os = "linux").then(|| PathBuf::from("/")),
        }
    }

    /// A directory that holds `proc` and `sys`: another system's root, or a test's.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: Some(root.into()),
        }
    }

    fn locate(&self, path: &str) -> Result<PathBuf, ReadError> {
        match &self.root {
            Some(root) => Ok(root.join(path.trim_start_matches('/'))),
            None => Err(ReadError::new(path, Problem::NoSuchSystem)),
        }
    }

    /// The whole file as text, without the blanks, line ends and zero bytes around it.
    pub(crate) fn text(&self, path: &str) -> Result<String, ReadError> {
        let file = self.locate(path)?;
        let mut bytes = Vec::new();
        File::open(file)
            .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
            .map_err(|error| ReadError::new(path, Problem::from(error)))?;
        if bytes.len() as u64 > LIMIT {
            return Err(ReadError::new(path, Problem::TooLarge));
        }
        let text = String::from_utf8(bytes).map_err(|_| ReadError::new(path, Problem::NotText))?;
        Ok(text
            .trim_matches(|c: char| c.is_whitespace() || c == '\0')
            .to_owned())
    }

    /// A file that holds one number.
    pub(crate) fn number<T: FromStr>(&self, path: &str) -> Result<T, ReadError> {
        let text = self.text(path)?;
        text.parse()
            .map_err(|_| ReadError::unexpected(path, "a number", &text))
    }

    /// A file that holds a list of processors or nodes, such as `0-3,8`. Ascending, without
    /// repetition; an empty file is an empty list.
    pub(crate) fn id_list(&self, path: &str) -> Result<Vec<u32>, ReadError> {
        let text = self.text(path)?;
        parse_id_list(&text)
            .ok_or_else(|| ReadError::unexpected(path, "a list such as 0-3,8", &text))
    }

    /// The number behind `key` in a file of `key: number kB` lines, in bytes.
    pub(crate) fn kilobytes(&self, path: &str, key: &str) -> Result<u64, ReadError> {
        let text = self.text(path)?;
        // The per-node file begins each line with `Node 0 `.
        let line = text
            .lines()
            .find_map(|line| line.split_once(key)?.1.strip_prefix(':'))
            .ok_or_else(|| ReadError::lacks(path, key))?;
        line.trim()
            .strip_suffix("kB")
            .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024))
            .ok_or_else(|| ReadError::unexpected(path, "a number of kB", line))
    }

    /// Names in a directory, sorted.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let entries = fs::read_dir(self.locate(path)?)
            .map_err(|error| ReadError::new(path, Problem::from(error)))?;
        let mut names: Vec<String> = entries
            .take(MAX_NAMES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether something of this name is there.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.locate(path).is_ok_and(|path| path.exists())
    }
}

pub(crate) fn parse_id_list(text: &str) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MAX_ID {
            return None;
        }
        ids.extend(first..=last);
        // Overlapping ranges could otherwise repeat the whole space once per range.
        if ids.len() > MAX_ID as usize {
            return None;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

/// A file that could not be read, or did not say what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub(crate) struct ReadError {
    path: String,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("not found")]
    Missing,
    #[error("{0}")]
    Refused(String),
    #[error("larger than {} MiB", LIMIT >> 20)]
    TooLarge,
    #[error("not UTF-8 text")]
    NotText,
    #[error("only Linux has this file")]
    NoSuchSystem,
    #[error("no {0}")]
    Lacks(String),
    #[error("expected {wanted}, found `{found}`")]
    Unexpected { wanted: String, found: String },
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Refused(error.to_string()),
        }
    }
}

impl ReadError {
    fn new(path: &str, problem: Problem) -> Self {
        Self {
            path: path.to_owned(),
            problem,
        }
    }

    /// The file was read, but its content makes no sense. Quotes the beginning of what was found.
    pub(crate) fn unexpected(path: &str, wanted: &str, found: &str) -> Self {
        let mut quote: String = found
            .chars()
            .take(40)
            .flat_map(char::escape_debug)
            .collect();
        if found.chars().nth(40).is_some() {
            quote.push('…');
        }
        Self::new(
            path,
            Problem::Unexpected {
                wanted: wanted.to_owned(),
                found: quote,
            },
        )
    }

    /// The place exists, or may, but what is wanted is not there.
    pub(crate) fn lacks(path: &str, wanted: &str) -> Self {
        Self::new(path, Problem::Lacks(wanted.to_owned()))
    }

    /// Whether there is simply no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.problem, Problem::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    #[test]
    fn every_failure_names_the_file_and_the_reason() {
        let fake = FakeTree::new();
        fake.write("/proc/garbage", "12x\n");
        fake.write_bytes("/proc/binary", &[0xff, 0xfe, b'1']);
        fake.write_bytes("/proc/huge", &vec![b'1'; LIMIT as usize + 1]);
        fake.write("/proc/dir/file", "");
        let tree = fake.tree();
        let reason = |path: &str| tree.number::<u64>(path).unwrap_err().to_string();
        assert_eq!(reason("/proc/none"), "/proc/none: not found");
        assert_eq!(
            reason("/proc/garbage"),
            "/proc/garbage: expected a number, found `12x`"
        );
        assert_eq!(reason("/proc/binary"), "/proc/binary: not UTF-8 text");
        assert_eq!(reason("/proc/huge"), "/proc/huge: larger than 4 MiB");
        assert!(
            reason("/proc/dir").starts_with("/proc/dir: "),
            "a directory is no file"
        );
        assert!(tree.number::<u64>("/proc/none").unwrap_err().is_missing());
        assert!(
            !tree
                .number::<u64>("/proc/garbage")
                .unwrap_err()
                .is_missing()
        );
        let elsewhere = Tree { root: None };
        assert_eq!(
            elsewhere.text("/proc/stat").unwrap_err().to_string(),
            "/proc/stat: only Linux has this file"
        );
    }

    #[test]
    fn lists_are_ranges_and_numbers_in_bounds() {
        assert_eq!(
            parse_id_list("0-3,8,10-11"),
            Some(vec![0, 1, 2, 3, 8, 10, 11])
        );
        assert_eq!(parse_id_list("5,1,1-2"), Some(vec![1, 2, 5]));
        assert_eq!(parse_id_list(""), Some(vec![]));
        for bad in ["3-1", "a", "0-", "-1", "0-4294967295", "99999999999", "1 2"] {
            assert_eq!(parse_id_list(bad), None, "{bad}");
        }
        assert_eq!(parse_id_list(&vec!["0-8191"; 1000].join(",")), None);
    }

    #[test]
    fn kilobytes_are_found_by_their_key() {
        let fake = FakeTree::new();
        fake.write(
            "/proc/meminfo",
            "MemTotal:  2048 kB\nMemAvailable:   10 kB\n",
        );
        fake.write(
            "/node",
            "Node 0 MemTotal:       4 kB\nNode 0 MemFree: x kB\n",
        );
        let tree = fake.tree();
        assert_eq!(tree.kilobytes("/proc/meminfo", "MemTotal"), Ok(2 << 20));
        assert_eq!(
            tree.kilobytes("/proc/meminfo", "MemAvailable"),
            Ok(10 << 10)
        );
        assert_eq!(tree.kilobytes("/node", "MemTotal"), Ok(4 << 10));
        assert!(tree.kilobytes("/node", "MemFree").is_err());
        assert!(tree.kilobytes("/node", "Swap").is_err());
    }
}
