//! Clients and the addresses leased to them.

use std::net::{Ipv4Addr, Ipv6Addr};

use rusqlite::{Connection, OptionalExtension, params};
use wire::hello::Prefixed;
use wire::join_link::UnixSeconds;

use super::invitations::{bury_invitations, withdraw};
use super::{RedeemError, Registry, RegistryError, RevokeError};
use crate::key::PublicKey;
use crate::pool::{Ipv4Pool, Ipv6Pool};

/// The addresses of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// `None` if the pool was made smaller and no longer has it.
    pub v4: Option<Prefixed<Ipv4Addr>>,
    /// Always there: the network has room for all.
    pub v6: Prefixed<Ipv6Addr>,
}

/// A device that joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Name that the gateway's owner gave it.
    pub name: String,
    /// Who it is.
    pub public_key: PublicKey,
    /// Its addresses.
    pub lease: Lease,
    /// When it joined.
    pub joined: UnixSeconds,
    /// When it was last heard of, if ever since it joined.
    pub last_seen: Option<UnixSeconds>,
}

/// What [`Registry::revoke`] took away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The client that was removed.
    pub client: Option<Client>,
    /// An open invitation of that name was withdrawn.
    pub invitation: bool,
}

pub(super) struct Row {
    name: String,
    public_key: [u8; 32],
    host: u32,
    joined: u64,
    last_seen: Option<u64>,
}

impl Row {
    pub(super) fn into_client(self, v4: Ipv4Pool, v6: Ipv6Pool) -> Client {
        Client {
            name: self.name,
            public_key: PublicKey(self.public_key),
            lease: Lease { v4: v4.client(self.host), v6: v6.client(self.host) },
            joined: UnixSeconds(self.joined),
            last_seen: self.last_seen.map(UnixSeconds),
        }
    }

    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get(0)?,
            public_key: row.get(1)?,
            host: row.get(2)?,
            joined: row.get(3)?,
            last_seen: row.get(4)?,
        })
    }
}

impl Registry {
    /// The client with that key; `None` if it never joined or was revoked.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn client(&self, key: PublicKey) -> Result<Option<Client>, RegistryError> {
        Ok(by_key(&self.connection, key)?.map(|row| row.into_client(self.v4, self.v6)))
    }

    /// All clients, by name.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn clients(&self) -> Result<Vec<Client>, RegistryError> {
        let mut statement = self
            .connection
            .prepare("SELECT name, public_key, host, joined, last_seen FROM clients ORDER BY name")?;
        let rows = statement.query_map([], Row::read)?;
        Ok(rows.map(|row| row.map(|row| row.into_client(self.v4, self.v6))).collect::<Result<_, _>>()?)
    }

    /// Notes that the client was heard of. A time before the last one (a clock set back) is noted all the same.
    ///
    /// # Errors
    /// Any [`RegistryError`]; a session need not end for it.
    pub fn seen(&mut self, key: PublicKey, now: UnixSeconds) -> Result<(), RegistryError> {
        self.connection
            .execute("UPDATE clients SET last_seen = ?2 WHERE public_key = ?1", params![key.0, now.0])?;
        Ok(())
    }

    /// Removes a client with its lease and its forwarded ports, and withdraws an open invitation of that name.
    ///
    /// # Errors
    /// [`RevokeError::Unknown`] if there is neither.
    pub fn revoke(&mut self, name: &str) -> Result<Revoked, RevokeError> {
        let (v4, v6) = (self.v4, self.v6);
        let transaction = self.begin()?;
        let client = by_name(&transaction, name)?.map(|row| row.into_client(v4, v6));
        transaction.execute("DELETE FROM clients WHERE name = ?1", [name]).map_err(RegistryError::from)?;
        let invitation = withdraw(&transaction, name)?;
        if let Some(client) = &client {
            bury_invitations(&transaction, client.public_key)?;
        }
        if client.is_none() && !invitation {
            return Err(RevokeError::Unknown(name.to_owned()));
        }
        transaction.commit().map_err(RegistryError::from)?;
        Ok(Revoked { client, invitation })
    }
}

pub(super) fn by_name(connection: &Connection, name: &str) -> Result<Option<Row>, RegistryError> {
    let query = "SELECT name, public_key, host, joined, last_seen FROM clients WHERE name = ?1";
    Ok(connection.query_row(query, [name], Row::read).optional()?)
}

pub(super) fn by_key(connection: &Connection, key: PublicKey) -> Result<Option<Row>, RegistryError> {
    let query = "SELECT name, public_key, host, joined, last_seen FROM clients WHERE public_key = ?1";
    Ok(connection.query_row(query, [key.0], Row::read).optional()?)
}

/// Adds a client with the lowest free host number.
pub(super) fn insert(
    connection: &Connection,
    name: &str,
    key: PublicKey,
    pool: Ipv4Pool,
    now: UnixSeconds,
) -> Result<Row, RedeemError> {
    let host = free_host(connection, pool)?.ok_or(RedeemError::NoAddressLeft)?;
    connection
        .execute(
            "INSERT INTO clients (name, public_key, host, joined) VALUES (?1, ?2, ?3, ?4)",
            params![name, key.0, host, now.0],
        )
        .map_err(RegistryError::from)?;
    Ok(Row { name: name.to_owned(), public_key: key.0, host, joined: now.0, last_seen: None })
}

fn free_host(connection: &Connection, pool: Ipv4Pool) -> Result<Option<u32>, RegistryError> {
    let mut statement = connection.prepare("SELECT host FROM clients ORDER BY host")?;
    let taken = statement.query_map([], |row| row.get::<_, u32>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut taken = taken.into_iter().peekable();
    Ok(pool.client_hosts().find(|host| {
        while taken.next_if(|used| used < host).is_some() {}
        taken.peek() != Some(host)
    }))
}
