//! The bytes of a wisdom file; `docs/record-format.md` describes them.
//!
//! Lines of JSON, compressed or not. The first says what follows, how much of it, and its checksum; so a file that was cut off or
//! changed on the way is refused as a whole, before anything of it is used. Reading is bounded in memory whatever the bytes.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::Wisdom;
use crate::embedded::rows::SeriesRecord;
use crate::note::Note;

/// What a file begins with, and the version this library writes and reads.
const FAMILY: &str = "kernelwise.wisdom/";
const VERSION: u32 = 1;
/// The largest file that is read, after decompression.
const MOST_BYTES: u64 = 1 << 30;
/// The longest header line; a file whose first line is longer is something else.
const LONGEST_HEADER: usize = 4096;

/// Why bytes are no wisdom. Nothing of them was used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WisdomError {
    /// They do not begin as wisdom does.
    #[error("not a wisdom file: its first line is no header")]
    NotWisdom,
    /// A newer version wrote them.
    #[error("written by a newer version (wisdom format {found}, this one knows {VERSION}): update")]
    Newer {
        /// The format.
        found: u32,
    },
    /// They end too early.
    #[error("cut off: {found} of {expected} records are there: copy it again")]
    Truncated {
        /// Records that the header announces.
        expected: u64,
        /// Records that are there.
        found: u64,
    },
    /// They are not what was written.
    #[error("damaged: its checksum is wrong: copy it again")]
    Checksum,
    /// They cannot be decompressed.
    #[error("damaged: it cannot be decompressed ({reason}): copy it again")]
    Compression {
        /// What was found wrong.
        reason: String,
    },
    /// They are too many.
    #[error("larger than {MOST_BYTES} bytes: split it")]
    TooLarge,
}

/// A line that was not understood, in a file that was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is left out: {reason}")]
pub struct Skipped {
    /// Which, counted from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    schema: String,
    /// Version of the library that wrote it.
    library: String,
    records: u64,
    /// Of all bytes after this line.
    blake3: String,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LineOut<'a> {
    Series(&'a SeriesRecord),
    Note(&'a Note),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineIn {
    Series(SeriesRecord),
    Note(Note),
}

impl Wisdom {
    /// The bytes of a file; `compressed` with gzip, about a tenth of the size.
    pub fn to_bytes(&self, compressed: bool) -> Vec<u8> {
        let (mut body, mut records) = (Vec::new(), 0);
        let series = self.records().map(LineOut::Series);
        for line in series.chain(self.notes().map(LineOut::Note)) {
            // All of it has a JSON form: texts, finite numbers, JSON.
            if let Ok(mut line) = serde_json::to_vec(&line) {
                line.push(b'\n');
                body.append(&mut line);
                records += 1;
            }
        }
        let header = Header {
            schema: format!("{FAMILY}{VERSION}"),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            records,
            blake3: blake3::hash(&body).to_hex().to_string(),
        };
        let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
        bytes.push(b'\n');
        bytes.append(&mut body);
        if compressed {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            // Writing to memory does not fail.
            let _ = encoder.write_all(&bytes);
            return encoder.finish().unwrap_or_default();
        }
        bytes
    }

    /// Reads the bytes of a file, compressed or not; also those of one that was compiled in with `include_bytes!`.
    ///
    /// Lines that this version does not know, in a file that is otherwise whole, are left out and listed.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, Vec<Skipped>), WisdomError> {
        let unpacked;
        let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
            unpacked = unpack(bytes)?;
            &unpacked
        } else {
            bytes
        };
        if bytes.len() as u64 > MOST_BYTES {
            return Err(WisdomError::TooLarge);
        }
        let (header, body) = header(bytes)?;
        let lines = || body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        if blake3::hash(body).to_hex().as_str() != header.blake3 {
            let found = body.iter().filter(|b| **b == b'\n').count() as u64;
            return Err(if found < header.records {
                WisdomError::Truncated {
                    expected: header.records,
                    found,
                }
            } else {
                WisdomError::Checksum
            });
        }
        let (mut wisdom, mut skipped) = (Self::default(), Vec::new());
        for (number, line) in lines().enumerate() {
            let reason = match serde_json::from_slice(line) {
                Ok(LineIn::Series(record)) if record.is_sound() => {
                    wisdom.add(record);
                    continue;
                }
                Ok(LineIn::Note(note)) if note.is_sound() => {
                    wisdom.add_note(note);
                    continue;
                }
                Ok(_) => "no record can be like this".to_owned(),
                Err(error) => error.to_string(),
            };
            skipped.push(Skipped {
                line: number as u64 + 2,
                reason,
            });
        }
        Ok((wisdom, skipped))
    }
}

fn header(bytes: &[u8]) -> Result<(Header, &[u8]), WisdomError> {
    let start = &bytes[..bytes.len().min(LONGEST_HEADER)];
    let end = start.iter().position(|b| *b == b'\n');
    let end = end.ok_or(WisdomError::NotWisdom)?;
    // The version first: a newer header may have other fields.
    #[derive(Deserialize)]
    struct Schema {
        schema: String,
    }
    let line = &bytes[..end];
    let schema: Schema = serde_json::from_slice(line).map_err(|_| WisdomError::NotWisdom)?;
    let version = schema.schema.strip_prefix(FAMILY);
    match version.and_then(|version| version.parse().ok()) {
        Some(VERSION) => {}
        Some(found) if found > VERSION => return Err(WisdomError::Newer { found }),
        _ => return Err(WisdomError::NotWisdom),
    }
    let header = serde_json::from_slice(line).map_err(|_| WisdomError::NotWisdom)?;
    Ok((header, &bytes[end + 1..]))
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, WisdomError> {
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(MOST_BYTES + 1);
    match decoder.read_to_end(&mut unpacked) {
        Ok(_) if unpacked.len() as u64 > MOST_BYTES => Err(WisdomError::TooLarge),
        Ok(_) => Ok(unpacked),
        Err(error) => Err(WisdomError::Compression {
            reason: error.to_string(),
        }),
    }
}
