//! The tables, and how older ones become newer ones.

use rusqlite::{Connection, TransactionBehavior};

use super::OpenError;

/// Step `n` leads from version `n` to `n + 1`. Steps are only ever appended.
const STEPS: &[&str] = &["
    CREATE TABLE settings (
        name  TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT;
    CREATE TABLE clients (
        name       TEXT PRIMARY KEY,
        public_key BLOB NOT NULL UNIQUE,
        host       INTEGER NOT NULL UNIQUE,  -- host number in both pools
        joined     INTEGER NOT NULL,         -- seconds since 1970
        last_seen  INTEGER
    ) STRICT;
    CREATE TABLE invitations (
        hash        BLOB PRIMARY KEY,        -- SHA-256 of the secret; the secret itself is not kept
        name        TEXT NOT NULL,
        kind        TEXT NOT NULL,
        created     INTEGER NOT NULL,
        expires     INTEGER NOT NULL,
        state       TEXT NOT NULL CHECK (state IN ('open', 'redeemed', 'expired')),
        redeemed_by BLOB
    ) STRICT;
    CREATE UNIQUE INDEX one_open_invitation_a_name ON invitations (name) WHERE state = 'open';
    CREATE TABLE forwards (
        protocol    TEXT NOT NULL,
        port        INTEGER NOT NULL,
        client      TEXT NOT NULL REFERENCES clients (name) ON DELETE CASCADE,
        device_port INTEGER NOT NULL,
        PRIMARY KEY (protocol, port)
    ) STRICT;
"];

/// Brings the tables to the newest version, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    if version(connection)? == STEPS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited.
    let found = version(&transaction)?;
    let missing =
        STEPS.get(found..).ok_or(OpenError::Newer { found: found as u32, known: STEPS.len() as u32 })?;
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", STEPS.len())?;
    Ok(transaction.commit()?)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(version as usize)
}
