//! Ports of the gateway that lead to a client.

use std::fmt;
use std::num::NonZeroU16;

use super::store::{Row, Transaction};
use super::{ForwardError, Registry, RegistryError, clients};

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
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
        let mut transaction = self.begin()?;
        let client = match client {
            Some(name) if clients::by_name(&mut transaction, name)?.is_some() => name.to_owned(),
            Some(name) => return Err(ForwardError::UnknownClient(name.to_owned())),
            None => only_client(&mut transaction)?,
        };
        if let Some(found) = by_port(&mut transaction, protocol, port)?
            && found.client != client
        {
            return Err(ForwardError::PortTaken { protocol, port, client: found.client });
        }
        let values =
            [protocol.as_str().into(), port.get().into(), client.as_str().into(), device_port.get().into()];
        transaction.execute(
            "INSERT INTO forwards (protocol, port, client, device_port) VALUES ($1, $2, $3, $4)
             ON CONFLICT (protocol, port) DO UPDATE SET device_port = excluded.device_port",
            &values,
        )?;
        transaction.commit()?;
        Ok(Forward { client, protocol, port, device_port })
    }

    /// Takes a forwarded port back, and says where it led.
    ///
    /// # Errors
    /// [`ForwardError::NotForwarded`] or a failure of the registry.
    pub fn stop_forward(&mut self, protocol: Protocol, port: NonZeroU16) -> Result<Forward, ForwardError> {
        let mut transaction = self.begin()?;
        let found = by_port(&mut transaction, protocol, port)?
            .ok_or(ForwardError::NotForwarded { protocol, port })?;
        let statement = "DELETE FROM forwards WHERE protocol = $1 AND port = $2";
        transaction.execute(statement, &[protocol.as_str().into(), port.get().into()])?;
        transaction.commit()?;
        Ok(found)
    }

    /// All forwarded ports, in order.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn forwards(&mut self) -> Result<Vec<Forward>, RegistryError> {
        let statement = format!("SELECT {COLUMNS} FROM forwards ORDER BY protocol, port");
        self.read()?.rows(&statement, &[])?.iter().map(read).collect()
    }
}

fn only_client(transaction: &mut Transaction<'_>) -> Result<String, ForwardError> {
    let rows = transaction.rows("SELECT name FROM clients ORDER BY name", &[])?;
    match rows.as_slice() {
        [row] => Ok(row.text(0)?),
        rows => Err(ForwardError::WhichClient(rows.len())),
    }
}

fn by_port(
    transaction: &mut Transaction<'_>,
    protocol: Protocol,
    port: NonZeroU16,
) -> Result<Option<Forward>, RegistryError> {
    let statement = format!("SELECT {COLUMNS} FROM forwards WHERE protocol = $1 AND port = $2");
    let row = transaction.row(&statement, &[protocol.as_str().into(), port.get().into()])?;
    row.as_ref().map(read).transpose()
}

fn read(row: &Row) -> Result<Forward, RegistryError> {
    let port = |column| NonZeroU16::new(row.number(column)?).ok_or(RegistryError::Damaged);
    Ok(Forward {
        client: row.text(0)?,
        protocol: if row.text(1)? == Protocol::Udp.as_str() { Protocol::Udp } else { Protocol::Tcp },
        port: port(2)?,
        device_port: port(3)?,
    })
}

/// As [`read`] wants them.
const COLUMNS: &str = "client, protocol, port, device_port";
