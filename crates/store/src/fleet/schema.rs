//! The tables on the server, as the steps that made them. Run under a lock that all clients share, so that of many that
//! come at once one makes them and the others wait.

use super::FleetError;
use super::link::Link;

/// Step n brings a server from format n to n + 1.
///
/// `changed` is the number of the transaction that last changed a row. Numbers are given out when transactions begin and not
/// when they end, so a reader takes only rows below the oldest transaction that still runs: what it passes by can no longer
/// appear behind it.
const STEPS: &[&str] = &["
    CREATE TABLE kernelwise.format (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        version integer NOT NULL,
        server text NOT NULL
    );
    INSERT INTO kernelwise.format (version, server) VALUES (0, gen_random_uuid()::text);
    CREATE TABLE kernelwise.series (
        key bytea NOT NULL CHECK (octet_length(key) = 16),
        origin text NOT NULL CHECK (octet_length(origin) = 16),
        revision bigint NOT NULL,
        content bytea NOT NULL CHECK (octet_length(content) = 32),
        changed bigint NOT NULL,
        fingerprint text NOT NULL CHECK (octet_length(fingerprint) = 16),
        environment text NOT NULL CHECK (octet_length(environment) <= 20000),
        workload text NOT NULL CHECK (octet_length(workload) <= 4096),
        kernel text NOT NULL CHECK (octet_length(kernel) <= 4096),
        version bigint NOT NULL,
        params text NOT NULL CHECK (octet_length(params) <= 4096),
        statistics text NOT NULL CHECK (octet_length(statistics) <= 4096),
        PRIMARY KEY (key, origin)
    );
    CREATE INDEX series_by_machine ON kernelwise.series (fingerprint, changed, key, origin);
    CREATE TABLE kernelwise.note (
        kind text NOT NULL CHECK (octet_length(kind) <= 64),
        fingerprint text NOT NULL CHECK (octet_length(fingerprint) = 16),
        name text NOT NULL CHECK (octet_length(name) <= 4096),
        at_s bigint NOT NULL,
        changed bigint NOT NULL,
        body text COLLATE \"C\" NOT NULL CHECK (octet_length(body) <= 16777216),
        PRIMARY KEY (kind, fingerprint, name)
    );
    CREATE INDEX note_by_machine ON kernelwise.note (fingerprint, changed, kind, name);
    CREATE TABLE kernelwise.job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        search text NOT NULL CHECK (octet_length(search) <= 4096),
        content bytea NOT NULL UNIQUE CHECK (octet_length(content) = 32),
        spec text NOT NULL CHECK (octet_length(spec) <= 65536),
        state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'leased', 'done', 'poisoned')),
        attempts integer NOT NULL DEFAULT 0,
        worker text,
        lease_until timestamptz,
        result text CHECK (octet_length(result) <= 65536),
        failure text CHECK (octet_length(failure) <= 4096)
    );
    CREATE INDEX job_open ON kernelwise.job (search, id) WHERE state IN ('waiting', 'leased');
    CREATE FUNCTION kernelwise.restored() RETURNS void LANGUAGE sql AS $$
        UPDATE kernelwise.series SET changed = pg_current_xact_id()::text::bigint;
        UPDATE kernelwise.note SET changed = pg_current_xact_id()::text::bigint;
        UPDATE kernelwise.format SET server = gen_random_uuid()::text;
    $$;
"];

/// The format this version makes.
pub(super) const FORMAT: i32 = STEPS.len() as i32;

/// Any number that nobody else locks: `kernelwi` in ASCII.
const LOCK: i64 = 0x6b65_726e_656c_7769;

/// The format and the name of a server.
pub(super) fn read(link: &Link) -> Result<(i32, String), FleetError> {
    let row = link.query_one("SELECT version, server FROM kernelwise.format", &[])?;
    Ok((row.get(0), row.get(1)))
}

/// Makes what is missing, all or nothing.
pub(super) fn migrate(link: &Link) -> Result<(), FleetError> {
    link.transact(|link| {
        link.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
        // Asked for first: a user who may not create finds it there.
        let sql = "SELECT to_regclass('kernelwise.format') IS NOT NULL";
        let there: bool = link.query_one(sql, &[])?.get(0);
        let found: i32 = if there {
            let sql = "SELECT version FROM kernelwise.format";
            link.query_one(sql, &[])?.get(0)
        } else {
            link.run("CREATE SCHEMA IF NOT EXISTS kernelwise")?;
            0
        };
        for step in STEPS.iter().skip(found.max(0) as usize) {
            link.run(step)?;
        }
        if found < FORMAT {
            link.execute("UPDATE kernelwise.format SET version = $1", &[&FORMAT])?;
        }
        Ok(())
    })
}
