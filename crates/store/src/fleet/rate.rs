//! How fast a server takes records: for `kernelwise bench store`.

use std::path::Path;

use kernelwise_measure::Clock;
use kernelwise_types::units::Nanos;

use super::{Fleet, FleetError, FleetOptions, Synced};
use crate::figures;
use crate::store::{Options, Sample, Store, WallClock};

/// Records per second to a server, with as many as asked for, of a kind of machine that does not exist. They are deleted again, with
/// any that an interrupted measurement left; a user who may not do that is refused before anything is written. `dir` is an empty
/// directory.
pub fn sync_per_s(
    options: &FleetOptions,
    dir: &Path,
    records: u32,
    clock: &dyn Clock,
    wall: WallClock,
) -> Result<f64, FleetError> {
    let mut fleet = Fleet::connect(options)?;
    let sql = "SELECT has_table_privilege('kernelwise.series', 'DELETE')";
    if !fleet.link.query_one(sql, &[])?.get::<_, bool>(0) {
        return Err(FleetError::Refused {
            server: fleet.link.address().to_owned(),
            reason: "this user may not delete the records that measuring leaves".into(),
        });
    }
    let store = Store::open(dir, Options::new(wall))?;
    for (number, key) in figures::keys(records).enumerate() {
        store.record(store.slot(&key), Sample::timed(Nanos::from_u64(1000)));
        if number % 10_000 == 9_999 {
            store.flush()?;
        }
    }
    store.flush()?;
    let (mut synced, before) = (Synced::default(), clock.now());
    let pushed = fleet.push(&store, &mut synced);
    let seconds = clock.now().saturating_sub(before) as f64 / 1e9;
    // Also what was pushed before an error.
    let deleted = figures::keys(1).try_for_each(|key| {
        let sql = "DELETE FROM kernelwise.series WHERE fingerprint = $1";
        let kind = key.place.fingerprint.as_str();
        fleet.link.execute(sql, &[&kind]).map(|_| ())
    });
    pushed.and(deleted)?;
    Ok(synced.records_out as f64 / seconds)
}
