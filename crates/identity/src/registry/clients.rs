//! Clients and the addresses leased to them.

use std::net::{Ipv4Addr, Ipv6Addr};

use policy::calendar::Day;
use policy::limit::{ClientLimits, Limit, NamedLimit};
use units::{BitRate, Bytes};
use wire::hello::Prefixed;
use wire::join_link::UnixSeconds;

use super::invitations::{bury_invitations, withdraw};
use super::store::{self, Transaction, Value};
use super::{LimitError, RedeemError, Registry, RegistryError, RevokeError};
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
    /// Its own limits.
    pub limits: ClientLimits,
    /// What it has used of its quota.
    pub used: Used,
}

/// Bytes that a client has sent and received in a month.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// The month's first day.
    pub month: Day,
    /// How many.
    pub bytes: Bytes,
}

impl Used {
    /// How many of them are in the month that begins on `month`.
    pub fn in_month(self, month: Day) -> Bytes {
        if self.month == month { self.bytes } else { Bytes(0) }
    }
}

/// What clients have carried since the last report, all of it in one month.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// The month's first day.
    pub month: Day,
    /// How much, for each that carried anything.
    pub bytes: Vec<(PublicKey, Bytes)>,
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
    limits: ClientLimits,
    used: Used,
}

impl Row {
    pub(super) fn into_client(self, v4: Ipv4Pool, v6: Ipv6Pool) -> Client {
        Client {
            name: self.name,
            public_key: PublicKey(self.public_key),
            lease: Lease { v4: v4.client(self.host), v6: v6.client(self.host) },
            joined: UnixSeconds(self.joined),
            last_seen: self.last_seen.map(UnixSeconds),
            limits: self.limits,
            used: self.used,
        }
    }

    fn read(row: &store::Row) -> Result<Self, RegistryError> {
        Ok(Self {
            name: row.text(0)?,
            public_key: row.key(1)?,
            host: row.number(2)?,
            joined: row.number(3)?,
            last_seen: row.number_or_null(4)?,
            limits: ClientLimits {
                rate: read_limit(row.number_or_null(5)?, BitRate),
                quota: read_limit(row.number_or_null(6)?, Bytes),
            },
            used: Used { bytes: Bytes(row.number(7)?), month: Day(row.number(8)?) },
        })
    }
}

impl Registry {
    /// The client with that key; `None` if it never joined or was revoked.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn client(&mut self, key: PublicKey) -> Result<Option<Client>, RegistryError> {
        let (v4, v6) = (self.v4, self.v6);
        Ok(by_key(&mut self.read()?, key)?.map(|row| row.into_client(v4, v6)))
    }

    /// All clients, by name.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn clients(&mut self) -> Result<Vec<Client>, RegistryError> {
        let (v4, v6) = (self.v4, self.v6);
        all(&mut self.read()?, v4, v6)
    }

    /// Notes that the client was heard of. A time before the last one (a clock set back) is noted all the same.
    ///
    /// # Errors
    /// Any [`RegistryError`]; a session need not end for it.
    pub fn seen(&mut self, key: PublicKey, now: UnixSeconds) -> Result<(), RegistryError> {
        let mut transaction = self.begin()?;
        let statement = "UPDATE clients SET last_seen = $2 WHERE public_key = $1";
        transaction.execute(statement, &[key.0.into(), now.0.into()])?;
        transaction.commit()
    }

    /// Gives a client limits of its own; what is `None` stays.
    ///
    /// # Errors
    /// [`LimitError::Unknown`] if nobody has the name.
    pub fn limit(
        &mut self,
        name: &str,
        rate: Option<Limit<BitRate>>,
        quota: Option<Limit<Bytes>>,
    ) -> Result<Client, LimitError> {
        let (v4, v6) = (self.v4, self.v6);
        let mut transaction = self.begin()?;
        if let Some(rate) = rate {
            let value = written_limit(rate, |rate| rate.0);
            transaction.execute("UPDATE clients SET rate = $2 WHERE name = $1", &[name.into(), value])?;
        }
        if let Some(quota) = quota {
            let value = written_limit(quota, |quota| quota.0);
            transaction.execute("UPDATE clients SET quota = $2 WHERE name = $1", &[name.into(), value])?;
        }
        let row = by_name(&mut transaction, name)?.ok_or_else(|| LimitError::Unknown(name.to_owned()))?;
        transaction.commit()?;
        Ok(row.into_client(v4, v6))
    }

    /// Adds what clients have carried to what they have used, and tells how all clients stand then.
    ///
    /// # Errors
    /// Any [`RegistryError`]; then nothing of it was added.
    pub fn count(&mut self, usage: &Usage) -> Result<Vec<Client>, RegistryError> {
        if usage.bytes.is_empty() {
            return self.clients();
        }
        let (v4, v6) = (self.v4, self.v6);
        let mut transaction = self.begin()?;
        for (key, bytes) in &usage.bytes {
            transaction.execute(
                "UPDATE clients SET used = CASE WHEN month = $2 THEN used + $3 ELSE $3 END, month = $2
                 WHERE public_key = $1",
                &[key.0.into(), Value::Number(usage.month.0.into()), bytes.0.into()],
            )?;
        }
        // Before the commit: what fails after it would be counted again.
        let clients = all(&mut transaction, v4, v6)?;
        transaction.commit()?;
        Ok(clients)
    }

    /// Removes a client with its lease and its forwarded ports, and withdraws an open invitation of that name.
    ///
    /// # Errors
    /// [`RevokeError::Unknown`] if there is neither.
    pub fn revoke(&mut self, name: &str) -> Result<Revoked, RevokeError> {
        let (v4, v6) = (self.v4, self.v6);
        let mut transaction = self.begin()?;
        let client = by_name(&mut transaction, name)?.map(|row| row.into_client(v4, v6));
        transaction.execute("DELETE FROM clients WHERE name = $1", &[name.into()])?;
        let invitation = withdraw(&mut transaction, name)?;
        if let Some(client) = &client {
            bury_invitations(&mut transaction, client.public_key)?;
        }
        if client.is_none() && !invitation {
            return Err(RevokeError::Unknown(name.to_owned()));
        }
        transaction.commit()?;
        Ok(Revoked { client, invitation })
    }
}

fn all(transaction: &mut Transaction<'_>, v4: Ipv4Pool, v6: Ipv6Pool) -> Result<Vec<Client>, RegistryError> {
    let rows = transaction.rows(&format!("SELECT {COLUMNS} FROM clients ORDER BY name"), &[])?;
    rows.iter().map(|row| Row::read(row).map(|row| row.into_client(v4, v6))).collect()
}

pub(super) fn by_name(transaction: &mut Transaction<'_>, name: &str) -> Result<Option<Row>, RegistryError> {
    let statement = format!("SELECT {COLUMNS} FROM clients WHERE name = $1");
    transaction.row(&statement, &[name.into()])?.as_ref().map(Row::read).transpose()
}

pub(super) fn by_key(
    transaction: &mut Transaction<'_>,
    key: PublicKey,
) -> Result<Option<Row>, RegistryError> {
    let statement = format!("SELECT {COLUMNS} FROM clients WHERE public_key = $1");
    transaction.row(&statement, &[key.0.into()])?.as_ref().map(Row::read).transpose()
}

/// Adds a client with the lowest free host number.
pub(super) fn insert(
    transaction: &mut Transaction<'_>,
    name: &str,
    key: PublicKey,
    pool: Ipv4Pool,
    now: UnixSeconds,
) -> Result<Row, RedeemError> {
    let host = free_host(transaction, pool)?.ok_or(RedeemError::NoAddressLeft)?;
    transaction.execute(
        "INSERT INTO clients (name, public_key, host, joined) VALUES ($1, $2, $3, $4)",
        &[name.into(), key.0.into(), host.into(), now.0.into()],
    )?;
    Ok(Row {
        name: name.to_owned(),
        public_key: key.0,
        host,
        joined: now.0,
        last_seen: None,
        limits: ClientLimits::default(),
        used: Used::default(),
    })
}

/// 0 is no limit.
fn read_limit<T>(column: Option<u64>, limit: impl FnOnce(u64) -> T) -> Limit<T> {
    match column {
        None => Limit::default(),
        Some(0) => Limit::Named(NamedLimit::None),
        Some(number) => Limit::At(limit(number)),
    }
}

fn written_limit<T>(limit: Limit<T>, number: impl FnOnce(T) -> u64) -> Value {
    match limit {
        Limit::Named(NamedLimit::Default) => Value::Null,
        Limit::Named(NamedLimit::None) => Value::Number(0),
        // 0 would be no limit at all.
        Limit::At(limit) => number(limit).max(1).into(),
    }
}

fn free_host(transaction: &mut Transaction<'_>, pool: Ipv4Pool) -> Result<Option<u32>, RegistryError> {
    let rows = transaction.rows("SELECT host FROM clients ORDER BY host", &[])?;
    let taken = rows.iter().map(|row| row.number(0)).collect::<Result<Vec<u32>, _>>()?;
    let mut taken = taken.into_iter().peekable();
    Ok(pool.client_hosts().find(|host| {
        while taken.next_if(|used| used < host).is_some() {}
        taken.peek() != Some(host)
    }))
}

/// As [`Row::read`] wants them.
const COLUMNS: &str = "name, public_key, host, joined, last_seen, rate, quota, used, month";
