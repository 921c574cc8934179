//! What a sync would do. Nothing is written, here or there.

use serde::Serialize;

use super::sync::{notes_after, pushed_notes, pushed_records, records_after};
use super::{Fleet, FleetError, FleetOptions};
use crate::store::Store;
use crate::trust::Here;
use crate::wisdom::Wisdom;

/// How many lines [`SyncPreview::first_out`] has at most.
const FIRST: usize = 20;

/// What a preview knows of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerSeen {
    /// It was asked how far it was told and what it has.
    Asked,
    /// It has no tables yet, so everything would leave and nothing come.
    Empty,
    /// It cannot be reached: everything that could leave is shown, though some of it may be there already.
    Away,
    /// No server was named: the same.
    #[default]
    Unnamed,
}

/// What a sync would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SyncPreview {
    /// What is known of the server.
    pub server: ServerSeen,
    /// Why it could not be reached.
    pub trouble: Option<String>,
    /// Records that would leave this machine, or whose later revision would.
    pub records_out: u64,
    /// Notes that would leave it.
    pub notes_out: u64,
    /// All of them, each as the line that would stand in a wisdom file: nothing else leaves.
    pub out: Vec<String>,
    /// The first 20 of [`out`](Self::out).
    pub first_out: Vec<String>,
    /// Records on the server that fit this machine and changed since the last sync; 0 if it was not asked.
    pub records_in: u64,
    /// Kinds of machine that fit; 0 if it was not asked.
    pub kinds: u64,
}

impl SyncPreview {
    /// What a sync with this server would do. Where it is away or not set up, or none is named, what would leave is told all the
    /// same. A server that refuses, is not trusted or newer is an error.
    pub fn of(
        store: &Store,
        here: &Here,
        options: Option<&FleetOptions>,
    ) -> Result<Self, FleetError> {
        let Some(options) = options else {
            return Self::outgoing(store, None);
        };
        let seen = Fleet::look(options).and_then(|fleet| fleet.preview(store, here));
        let (server, trouble) = match seen {
            Err(FleetError::NotReady { .. }) => (ServerSeen::Empty, None),
            Err(error) if error.is_temporary() => (ServerSeen::Away, Some(error.to_string())),
            seen => return seen,
        };
        Ok(Self {
            server,
            trouble,
            ..Self::outgoing(store, None)?
        })
    }

    /// What would leave for the server of this name, or for one that knows nothing yet.
    fn outgoing(store: &Store, server: Option<&str>) -> Result<Self, FleetError> {
        store.flush()?;
        let mut preview = Self::default();
        let mut after = server.map_or(Ok((0, 0)), |name| pushed_records(store, name))?;
        while let Some((records, behind)) = records_after(store, after)? {
            preview.records_out += records.len() as u64;
            let mut wisdom = Wisdom::default();
            records.into_iter().for_each(|record| wisdom.add(record));
            preview.add(&wisdom);
            after = behind;
        }
        let mut after = server.map_or(Ok(Default::default()), |name| pushed_notes(store, name))?;
        while let Some((notes, behind)) = notes_after(store, &after)? {
            preview.notes_out += notes.len() as u64;
            let mut wisdom = Wisdom::default();
            notes.into_iter().for_each(|note| wisdom.add_note(note));
            preview.add(&wisdom);
            after = behind;
        }
        preview.first_out = preview.out.iter().take(FIRST).cloned().collect();
        Ok(preview)
    }

    fn add(&mut self, wisdom: &Wisdom) {
        let bytes = wisdom.to_bytes(false);
        let text = String::from_utf8_lossy(&bytes);
        // The first line says what kind of file it is.
        self.out.extend(text.lines().skip(1).map(str::to_owned));
    }
}

impl Fleet {
    /// What [`Fleet::sync`] would do, without doing it.
    pub fn preview(&self, store: &Store, here: &Here) -> Result<SyncPreview, FleetError> {
        let mut preview = SyncPreview {
            server: ServerSeen::Asked,
            ..SyncPreview::outgoing(store, Some(&self.name))?
        };
        let horizon = self.horizon()?;
        let kinds = self.kinds(here)?;
        for kind in &kinds {
            let from = self.pulled(store, kind, horizon)?;
            let sql = "SELECT count(*) FROM kernelwise.series WHERE fingerprint = $1 AND changed >= $2 AND changed < $3";
            let count = self
                .link
                .query_one(sql, &[&kind.as_str(), &from, &horizon])?;
            preview.records_in += count.get::<_, i64>(0).unsigned_abs();
        }
        preview.kinds = kinds.len() as u64;
        Ok(preview)
    }
}
