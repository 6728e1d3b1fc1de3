//! The gateways that share a registry, as each of them announces itself.

use std::num::NonZeroU16;

use wire::hello::Name;
use wire::join_link::{HostPort, UnixSeconds};
use wire::request::{MOST_SIBLING_ADDRESSES, MOST_SIBLINGS, Sibling};

use super::store::{Row, Value};
use super::{Registry, RegistryError};
use crate::key::PublicKey;

impl Registry {
    /// Says that a gateway uses the registry, if it can tell where it is, and lists the others that have said so in the last day,
    /// by name.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn announce(
        &mut self,
        own: PublicKey,
        announced: Option<&Sibling>,
        now: UnixSeconds,
    ) -> Result<Vec<Sibling>, RegistryError> {
        let mut transaction = self.begin()?;
        let forgotten = Value::from(now.0.saturating_sub(FORGOTTEN));
        transaction.execute("DELETE FROM gateways WHERE last_seen < $1", &[forgotten])?;
        match announced {
            Some(own) => {
                let addresses: Vec<String> = own.addresses.iter().map(HostPort::to_string).collect();
                let values = [
                    own.public_key.into(),
                    own.name.as_str().into(),
                    addresses.join(",").as_str().into(),
                    own.tcp_port.map_or(0, NonZeroU16::get).into(),
                    now.0.into(),
                ];
                transaction.execute(
                    "INSERT INTO gateways (public_key, name, addresses, tcp_port, last_seen) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT (public_key) DO UPDATE SET name = excluded.name, addresses = excluded.addresses,
                         tcp_port = excluded.tcp_port, last_seen = excluded.last_seen",
                    &values,
                )?;
            }
            None => {
                transaction.execute("DELETE FROM gateways WHERE public_key = $1", &[own.0.into()])?;
            }
        }
        let rows = transaction.rows(
            "SELECT public_key, name, addresses, tcp_port FROM gateways WHERE public_key <> $1 ORDER BY name, public_key",
            &[own.0.into()],
        )?;
        transaction.commit()?;
        // What another version wrote otherwise is none that this one can tell of.
        Ok(rows.iter().filter_map(read).take(MOST_SIBLINGS).collect())
    }
}

fn read(row: &Row) -> Option<Sibling> {
    let addresses = row.text(2).ok()?;
    let addresses = addresses.split(',').filter_map(|address| address.parse().ok());
    let sibling = Sibling {
        public_key: row.key(0).ok()?,
        name: Name::new(&row.text(1).ok()?).ok()?,
        tcp_port: NonZeroU16::new(row.number(3).ok()?),
        addresses: addresses.take(MOST_SIBLING_ADDRESSES).collect(),
    };
    (!sibling.addresses.is_empty()).then_some(sibling)
}

/// A gateway that was not heard of for a day is none any more, in seconds.
const FORGOTTEN: u64 = 86_400;
