//! Ports of the gateway that lead to a client.

use std::fmt;
use std::num::NonZeroU16;

use rusqlite::{Connection, OptionalExtension, params};

use super::{ForwardError, Registry, RegistryError, clients};

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A port of the gateway that leads to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The client.
    pub client: String,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Port on the gateway.
    pub port: NonZeroU16,
    /// Port on the device.
    pub device_port: NonZeroU16,
}

impl Registry {
    /// Makes a port lead to a client; the only one if none is named. Repeating it changes the device's port.
    ///
    /// # Errors
    /// Any [`ForwardError`] but `NotForwarded`.
    pub fn forward(
        &mut self,
        client: Option<&str>,
        protocol: Protocol,
        port: NonZeroU16,
        device_port: NonZeroU16,
    ) -> Result<Forward, ForwardError> {
        let transaction = self.begin()?;
        let client = match client {
            Some(name) if clients::by_name(&transaction, name)?.is_some() => name.to_owned(),
            Some(name) => return Err(ForwardError::UnknownClient(name.to_owned())),
            None => only_client(&transaction)?,
        };
        if let Some(found) = by_port(&transaction, protocol, port)?
            && found.client != client
        {
            return Err(ForwardError::PortTaken { protocol, port, client: found.client });
        }
        transaction
            .execute(
                "INSERT INTO forwards (protocol, port, client, device_port) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET device_port = excluded.device_port",
                params![protocol.to_string(), port.get(), client, device_port.get()],
            )
            .map_err(RegistryError::from)?;
        transaction.commit().map_err(RegistryError::from)?;
        Ok(Forward { client, protocol, port, device_port })
    }

    /// Takes a forwarded port back, and says where it led.
    ///
    /// # Errors
    /// [`ForwardError::NotForwarded`] or a failure of the registry.
    pub fn stop_forward(&mut self, protocol: Protocol, port: NonZeroU16) -> Result<Forward, ForwardError> {
        let transaction = self.begin()?;
        let found =
            by_port(&transaction, protocol, port)?.ok_or(ForwardError::NotForwarded { protocol, port })?;
        transaction
            .execute(
                "DELETE FROM forwards WHERE protocol = ?1 AND port = ?2",
                params![protocol.to_string(), port.get()],
            )
            .map_err(RegistryError::from)?;
        transaction.commit().map_err(RegistryError::from)?;
        Ok(found)
    }

    /// All forwarded ports, in order.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn forwards(&self) -> Result<Vec<Forward>, RegistryError> {
        let mut statement = self
            .connection
            .prepare("SELECT client, protocol, port, device_port FROM forwards ORDER BY protocol, port")?;
        let rows = statement.query_map([], read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn only_client(connection: &Connection) -> Result<String, ForwardError> {
    let mut statement =
        connection.prepare("SELECT name FROM clients ORDER BY name").map_err(RegistryError::from)?;
    let names = statement
        .query_map([], |row| row.get(0))
        .and_then(Iterator::collect::<Result<Vec<String>, _>>)
        .map_err(RegistryError::from)?;
    let count = names.len();
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(_) => Err(ForwardError::WhichClient(count)),
    }
}

fn by_port(
    connection: &Connection,
    protocol: Protocol,
    port: NonZeroU16,
) -> Result<Option<Forward>, RegistryError> {
    let query = "SELECT client, protocol, port, device_port FROM forwards WHERE protocol = ?1 AND port = ?2";
    Ok(connection.query_row(query, params![protocol.to_string(), port.get()], read).optional()?)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Forward> {
    let port = |column| {
        let number: u16 = row.get(column)?;
        NonZeroU16::new(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, number.into()))
    };
    let protocol: String = row.get(1)?;
    Ok(Forward {
        client: row.get(0)?,
        protocol: if protocol == "udp" { Protocol::Udp } else { Protocol::Tcp },
        port: port(2)?,
        device_port: port(3)?,
    })
}
