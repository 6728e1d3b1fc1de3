//! Low Energy advertising by BlueZ's daemon, which every user may ask over the system bus (`org.bluez.LEAdvertisingManager1`,
//! `org.bluez.Adapter1`, as BlueZ documents them). The kernel itself lets only root advertise and scan.
//!
//! ```text
//! Advertiser --RegisterAdvertisement--> bluetoothd --GetAll--> Advertiser      a new value: signal PropertiesChanged
//! Scanner --SetDiscoveryFilter, StartDiscovery--> bluetoothd      InterfacesAdded, PropertiesChanged --> Scanner
//! ```
//!
//! Both end with their connection to the bus. An advertisement is a broadcast that nobody can connect to, so the kernel gives it a random address, a new one with
//! each change (Bluetooth Core, volume 6 part B, 1.3.2.2): who has seen one does not know the next for the same machine's by its address. While the controller is connectable for
//! all, so is the advertisement, and the kernel gives it the controller's own address.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;
use tracing::debug;

use crate::dbus::{Bus, BusError, Kind, Message, Value};

/// Bytes of service data beside a UUID of 128 bits in a legacy advertisement, which has 31 in all (volume 3 part C, 11; the supplement, part A 1.11).
pub const MAX_SERVICE_DATA: usize = 31 - 2 - 16;
/// Asked of controllers, where this BlueZ passes it on: more often than the kernel's 1.28 s, so that a short search hears it.
const LEAST_INTERVAL_MILLIS: u32 = 200;
const MOST_INTERVAL_MILLIS: u32 = 300;
/// Advertisements read from one message, and kept.
const MOST_AT_ONCE: usize = 64;

const SERVICE: &str = "org.bluez";
const ADAPTER: &str = "org.bluez.Adapter1";
const DEVICE: &str = "org.bluez.Device1";
const ADVERTISEMENT: &str = "org.bluez.LEAdvertisement1";
const ADVERTISING: &str = "org.bluez.LEAdvertisingManager1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const OBJECTS: &str = "org.freedesktop.DBus.ObjectManager";
/// Where our advertisement stands on our connection.
const OBJECT: &str = "/org/anabranch/advertisement";

/// Why nothing is advertised or heard.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// No bus, or no BlueZ on it, or it is gone.
    #[error("BlueZ's daemon cannot be asked: {0}")]
    NoService(String),
    /// It said no.
    #[error("BlueZ refuses: {0}")]
    Refused(String),
}

impl From<BusError> for ServiceError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Refused(text) => Self::Refused(text),
            other => Self::NoService(other.to_string()),
        }
    }
}

/// Advertises by one controller, until it is dropped.
#[derive(Debug)]
pub struct Advertiser {
    bus: Bus,
    uuid: String,
    data: Vec<u8>,
}

impl Advertiser {
    /// Begins to advertise `data`, at most [`MAX_SERVICE_DATA`] bytes, as that of the service `uuid`, by a controller such as `hci0`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn begin(controller: &str, uuid: &str, data: &[u8]) -> Result<Self, ServiceError> {
        let mut bus = Bus::system()?;
        let body = vec![Value::path(OBJECT), Value::properties([])];
        let call = [SERVICE, &path_of(controller), ADVERTISING, "RegisterAdvertisement"];
        bus.ask_serving(&Message::call(call, body), &mut |asked| answer(asked, uuid, data))?;
        Ok(Self { bus, uuid: uuid.to_owned(), data: data.to_vec() })
    }

    /// Advertises something else from now on.
    ///
    /// # Errors
    /// [`ServiceError::NoService`].
    pub fn change(&mut self, data: &[u8]) -> Result<(), ServiceError> {
        if self.data == data {
            return Ok(());
        }
        self.data = data.to_vec();
        let changed = Value::properties([("ServiceData", service_data(&self.uuid, data))]);
        let none = Value::Array("s".to_owned(), Vec::new());
        let body = vec![Value::text(ADVERTISEMENT), changed, none];
        self.bus.send(&Message::signal([OBJECT, PROPERTIES, "PropertiesChanged"], body))?;
        Ok(())
    }

    /// Answers what BlueZ has asked since.
    ///
    /// # Errors
    /// [`ServiceError`] once nothing is advertised any more.
    pub fn serve(&mut self) -> Result<(), ServiceError> {
        while let Some(asked) = self.bus.next(Duration::ZERO)? {
            if asked.kind != Kind::Call {
                continue;
            }
            if let Some(answer) = answer(&asked, &self.uuid, &self.data) {
                self.bus.send(&answer)?;
            }
            if asked.member == "Release" {
                return Err(ServiceError::Refused("it has ended the advertisement".to_owned()));
            }
        }
        Ok(())
    }
}

/// The answer to a call that BlueZ makes of an advertisement.
fn answer(asked: &Message, uuid: &str, data: &[u8]) -> Option<Message> {
    if asked.kind != Kind::Call {
        return None;
    }
    let is_ours = asked.path == OBJECT;
    Some(match (asked.interface.as_str(), asked.member.as_str()) {
        (PROPERTIES, "GetAll") if is_ours => asked.answer(vec![Value::properties([
            ("Type", Value::text("broadcast")),
            ("ServiceData", service_data(uuid, data)),
            ("MinInterval", Value::uint32(LEAST_INTERVAL_MILLIS)),
            ("MaxInterval", Value::uint32(MOST_INTERVAL_MILLIS)),
        ])]),
        (ADVERTISEMENT, "Release") if is_ours => asked.answer(Vec::new()),
        _ => asked.unknown(),
    })
}

fn service_data(uuid: &str, data: &[u8]) -> Value {
    Value::properties([(uuid, Value::Bytes(data.to_vec()))])
}

fn path_of(controller: &str) -> String {
    format!("/org/bluez/{controller}")
}

/// Service data that somebody advertises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// Of the service.
    pub uuid: String,
    /// As it is on the air.
    pub data: Vec<u8>,
}

/// Hears what others advertise, until it is dropped.
#[derive(Debug)]
pub struct Scanner {
    bus: Bus,
    /// The bus's name for the service.
    owner: String,
    heard: VecDeque<Advertised>,
}

impl Scanner {
    /// Listens by these controllers, such as `hci0`: by those that do. What BlueZ has heard just before is told first.
    ///
    /// # Errors
    /// [`ServiceError`] if none does.
    pub fn begin<'a>(controllers: impl IntoIterator<Item = &'a str>) -> Result<Self, ServiceError> {
        let mut bus = Bus::system()?;
        for (interface, member) in [(OBJECTS, "InterfacesAdded"), (PROPERTIES, "PropertiesChanged")] {
            bus.subscribe(&format!(
                "type='signal',sender='{SERVICE}',interface='{interface}',member='{member}'"
            ))?;
        }
        let mut refused = ServiceError::NoService("there is no controller".to_owned());
        let mut listening = 0;
        for controller in controllers {
            // With any filter BlueZ also tells of those who are not discoverable.
            let filter = Value::properties([
                ("Transport", Value::text("le")),
                ("DuplicateData", Value::boolean(false)),
            ]);
            let path = path_of(controller);
            let call = |member, body| Message::call([SERVICE, &path, ADAPTER, member], body);
            let filtered = bus.ask(&call("SetDiscoveryFilter", vec![filter]));
            match filtered.and_then(|_| bus.ask(&call("StartDiscovery", Vec::new()))) {
                Ok(_) => listening += 1,
                Err(error) => {
                    debug!(controller, %error, "BlueZ does not listen");
                    refused = error.into();
                }
            }
        }
        if listening == 0 {
            return Err(refused);
        }
        // Others may send us signals too; only the service's count.
        let name = "org.freedesktop.DBus";
        let whose =
            Message::call([name, "/org/freedesktop/DBus", name, "GetNameOwner"], vec![Value::text(SERVICE)]);
        let owner = bus.ask(&whose)?.first().and_then(Value::as_text).unwrap_or_default().to_owned();
        // In a crowd it may be more than is read; advertisements come again.
        let known = bus
            .ask(&Message::call([SERVICE, "/", OBJECTS, "GetManagedObjects"], Vec::new()))
            .inspect_err(|error| debug!(%error, "BlueZ does not say whom it has heard"))
            .unwrap_or_default();
        let objects = known.first().into_iter().flat_map(Value::entries);
        let heard = objects
            .flat_map(|(_, interfaces)| advertised(interfaces.get(DEVICE)))
            .take(MOST_AT_ONCE)
            .collect();
        Ok(Self { bus, owner, heard })
    }

    /// What is heard next; `None` if there is nothing in that time.
    ///
    /// # Errors
    /// [`ServiceError::NoService`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Advertised>, ServiceError> {
        if let Some(heard) = self.heard.pop_front() {
            return Ok(Some(heard));
        }
        let Some(message) = self.bus.next(patience)? else { return Ok(None) };
        if message.sender == self.owner {
            self.heard.extend(heard_in(&message).into_iter().take(MOST_AT_ONCE));
        }
        Ok(self.heard.pop_front())
    }
}

/// Service data in a signal of BlueZ's.
fn heard_in(signal: &Message) -> Vec<Advertised> {
    if signal.is_signal(OBJECTS, "InterfacesAdded") {
        return advertised(signal.body.get(1).and_then(|interfaces| interfaces.get(DEVICE)));
    }
    let is_devices = signal.body.first().and_then(Value::as_text) == Some(DEVICE);
    if signal.is_signal(PROPERTIES, "PropertiesChanged") && is_devices {
        return advertised(signal.body.get(1));
    }
    Vec::new()
}

/// The service data among the properties of a device.
fn advertised(properties: Option<&Value>) -> Vec<Advertised> {
    let data = properties.and_then(|properties| properties.get("ServiceData"));
    let entries = data.into_iter().flat_map(Value::entries);
    let one = |(uuid, data): (&Value, &Value)| match data {
        Value::Bytes(data) => Some(Advertised { uuid: uuid.as_text()?.to_owned(), data: data.clone() }),
        _ => None,
    };
    entries.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0000aaaa-0000-1000-8000-00805f9b34fb";

    fn call(path: &str, interface: &str, member: &str) -> Message {
        Message {
            serial: 5,
            sender: ":1.2".to_owned(),
            ..Message::call(["", path, interface, member], Vec::new())
        }
    }

    #[test]
    fn bluez_is_told_what_to_advertise_and_nothing_else() {
        let told = answer(&call(OBJECT, PROPERTIES, "GetAll"), UUID, &[1, 2]).unwrap();
        assert_eq!((told.kind, told.answers, told.destination.as_str()), (Kind::Return, 5, ":1.2"));
        assert_eq!(told.body[0].get("Type"), Some(&Value::text("broadcast")));
        assert_eq!(told.body[0].get("ServiceData").unwrap().get(UUID), Some(&Value::Bytes(vec![1, 2])));
        for other in [call("/", OBJECTS, "GetManagedObjects"), call("/other", PROPERTIES, "GetAll")] {
            assert_eq!(answer(&other, UUID, &[1, 2]).unwrap().kind, Kind::Error);
        }
    }

    #[test]
    fn service_data_is_found_in_both_signals() {
        let device = Value::properties([
            ("RSSI", Value::Number(b'n', 0xfffd)),
            ("ServiceData", service_data(UUID, &[7])),
        ]);
        let expected = [Advertised { uuid: UUID.to_owned(), data: vec![7] }];
        let interfaces = Value::Array(
            "{sa{sv}}".to_owned(),
            vec![Value::Struct(vec![Value::text(DEVICE), device.clone()])],
        );
        let path = "/org/bluez/hci0/dev_00";
        let added = Message::signal(["/", OBJECTS, "InterfacesAdded"], vec![Value::path(path), interfaces]);
        assert_eq!(heard_in(&added), expected);
        let changed = |interface| {
            let body = vec![Value::text(interface), device.clone(), Value::Array("s".to_owned(), Vec::new())];
            Message::signal([path, PROPERTIES, "PropertiesChanged"], body)
        };
        assert_eq!(heard_in(&changed(DEVICE)), expected);
        assert_eq!(heard_in(&changed(ADAPTER)), []);
        assert_eq!(heard_in(&call("/", "a.b", "c")), []);
    }
}
