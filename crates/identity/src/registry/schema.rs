//! The tables, and how older ones become newer ones.

use super::OpenError;

/// What leads from one version to the next, for either kind of store.
pub(super) struct Step {
    /// For SQLite.
    pub(super) file: &'static str,
    /// For PostgreSQL.
    pub(super) shared: &'static str,
}

/// Step `n` leads from version `n` to `n + 1`. Steps are only ever appended.
const STEPS: &[Step] = &[
    Step {
        file: "
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
",
        shared: "
    CREATE TABLE settings (
        name  TEXT PRIMARY KEY,
        value TEXT NOT NULL
    );
    CREATE TABLE clients (
        name       TEXT PRIMARY KEY,
        public_key BYTEA NOT NULL UNIQUE,
        host       BIGINT NOT NULL UNIQUE,
        joined     BIGINT NOT NULL,
        last_seen  BIGINT
    );
    CREATE TABLE invitations (
        hash        BYTEA PRIMARY KEY,
        name        TEXT NOT NULL,
        kind        TEXT NOT NULL,
        created     BIGINT NOT NULL,
        expires     BIGINT NOT NULL,
        state       TEXT NOT NULL CHECK (state IN ('open', 'redeemed', 'expired')),
        redeemed_by BYTEA
    );
    CREATE UNIQUE INDEX one_open_invitation_a_name ON invitations (name) WHERE state = 'open';
    CREATE TABLE forwards (
        protocol    TEXT NOT NULL,
        port        BIGINT NOT NULL,
        client      TEXT NOT NULL REFERENCES clients (name) ON DELETE CASCADE,
        device_port BIGINT NOT NULL,
        PRIMARY KEY (protocol, port)
    );
",
    },
    // NULL is the limit of all clients, 0 none; months begin on a day counted from 1970-01-01.
    Step {
        file: "
    ALTER TABLE clients ADD COLUMN rate  INTEGER;             -- bits a second
    ALTER TABLE clients ADD COLUMN quota INTEGER;             -- bytes a month
    ALTER TABLE clients ADD COLUMN used  INTEGER NOT NULL DEFAULT 0;  -- bytes in the month
    ALTER TABLE clients ADD COLUMN month INTEGER NOT NULL DEFAULT 0;  -- its first day
",
        shared: "
    ALTER TABLE clients ADD COLUMN rate  BIGINT;
    ALTER TABLE clients ADD COLUMN quota BIGINT;
    ALTER TABLE clients ADD COLUMN used  BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE clients ADD COLUMN month BIGINT NOT NULL DEFAULT 0;
",
    },
    // Those that use the registry say so here, again and again.
    Step {
        file: "
    CREATE TABLE gateways (
        public_key BLOB PRIMARY KEY,
        name       TEXT NOT NULL,
        addresses  TEXT NOT NULL,            -- HOST:PORT, by commas
        tcp_port   INTEGER NOT NULL,         -- 0 if none
        last_seen  INTEGER NOT NULL
    ) STRICT;
",
        shared: "
    CREATE TABLE gateways (
        public_key BYTEA PRIMARY KEY,
        name       TEXT NOT NULL,
        addresses  TEXT NOT NULL,
        tcp_port   BIGINT NOT NULL,
        last_seen  BIGINT NOT NULL
    );
",
    },
];

/// The version that this program makes.
pub(super) const NEWEST: u32 = STEPS.len() as u32;

/// The steps that a registry of version `found` lacks.
pub(super) fn missing(found: u32) -> Result<&'static [Step], OpenError> {
    STEPS.get(found as usize..).ok_or(OpenError::Newer { found, known: NEWEST })
}
