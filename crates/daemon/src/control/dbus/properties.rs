//! Properties of the objects: the daemon's, and each network's. They are read off the same status as every other door's.

use std::collections::BTreeMap;

use anabranch::control::{NetworkChange, NetworkReport, PathReport, Status};
use linux::dbus::Value;
use policy::Priority;
use units::NetworkId;

use super::fault::Fault;
use super::json;

/// The object of the daemon.
pub(super) const ROOT: &str = "/org/anabranch";
/// Below it there is one object for each network.
pub(super) const NETWORKS: &str = "/org/anabranch/networks";
/// Interface of [`ROOT`].
pub(super) const DAEMON: &str = "org.anabranch.Daemon1";
/// Interface of each network.
pub(super) const NETWORK: &str = "org.anabranch.Network1";

/// A property.
pub(super) struct Property<T: 'static> {
    pub(super) name: &'static str,
    pub(super) signature: &'static str,
    /// Whether changes are told; what counts up, or holds what does, is read instead.
    pub(super) told: bool,
    value: fn(&T) -> Value,
    /// The change of a network that setting it is; `None` for a value of another type.
    pub(super) set: Option<fn(&Value) -> Option<NetworkChange>>,
}

const fn told<T>(name: &'static str, signature: &'static str, value: fn(&T) -> Value) -> Property<T> {
    Property { name, signature, told: true, value, set: None }
}

const fn untold<T>(name: &'static str, signature: &'static str, value: fn(&T) -> Value) -> Property<T> {
    Property { name, signature, told: false, value, set: None }
}

/// Of [`DAEMON`].
pub(super) const DAEMON_PROPERTIES: &[Property<Status>] = &[
    told("Version", "s", |status| Value::text(&status.version)),
    told("Role", "s", |status| word(&status.role)),
    told("Name", "s", |status| Value::text(&status.name)),
    told("PublicKey", "s", |status| Value::text(&status.public_key)),
    told("Started", "t", |status| Value::uint64(status.started.0)),
    told("State", "s", |status| word(&status.state)),
    told("Why", "s", |status| Value::text(&status.why)),
    told("Interface", "s", |status| Value::text(&status.interface)),
    told("Addresses", "as", |status| addresses(&status.addresses)),
    told("Mtu", "t", |status| Value::uint64(status.mtu.0)),
    told("FarEnd", "s", |status| Value::text(status.far_end.as_ref().map_or("", |end| &end.name))),
    told("ConnectedSince", "t", |status| {
        let since = status.far_end.as_ref().and_then(|end| end.connected_since);
        Value::uint64(since.map_or(0, |since| since.0))
    }),
    told("ConnectedClients", "t", |status| Value::uint64(status.connected_clients.unwrap_or(0) as u64)),
    told("SendingRate", "t", |status| Value::uint64(status.traffic.sending.0)),
    told("ReceivingRate", "t", |status| Value::uint64(status.traffic.receiving.0)),
    untold("Sent", "t", |status| Value::uint64(status.traffic.sent.0)),
    untold("Received", "t", |status| Value::uint64(status.traffic.received.0)),
    untold("Gain", "a{sv}", |status| fields(&status.gain)),
    told("Networks", "ao", |status| {
        let paths = status.networks.iter().map(|network| Value::path(&path_of(network.id)));
        Value::Array("o".to_owned(), paths.collect())
    }),
];

/// Of [`NETWORK`].
pub(super) const NETWORK_PROPERTIES: &[Property<NetworkReport>] = &[
    told("Id", "u", |network| Value::uint32(network.id.0)),
    told("Name", "s", |network| Value::text(&network.name)),
    told("Connected", "b", |network| Value::boolean(network.connected)),
    told("Addresses", "as", |network| addresses(&network.addresses)),
    told("Status", "s", |network| word(&network.status)),
    told("Why", "s", |network| Value::text(&network.why)),
    Property {
        set: Some(|value| match value {
            Value::Number(b'y', priority) => {
                let priority = Some(Priority(u8::try_from(*priority).ok()?));
                Some(NetworkChange { priority, ..NetworkChange::default() })
            }
            _ => None,
        }),
        ..told("Priority", "y", |network| Value::Number(b'y', network.priority.0.into()))
    },
    Property {
        set: Some(|value| Some(NetworkChange { backup: Some(truth(value)?), ..NetworkChange::default() })),
        ..told("Backup", "b", |network| Value::boolean(network.backup))
    },
    Property {
        set: Some(|value| Some(NetworkChange { metered: Some(truth(value)?), ..NetworkChange::default() })),
        ..told("Metered", "b", |network| Value::boolean(network.metered))
    },
    Property {
        set: Some(|value| Some(NetworkChange { off: Some(truth(value)?), ..NetworkChange::default() })),
        ..told("Off", "b", |network| Value::boolean(network.off))
    },
    told("Rate", "t", |network| {
        let over_paths = network.paths.iter().filter_map(|path| path.rate).map(|rate| rate.0);
        let direct = network.direct.as_ref().and_then(|direct| direct.delivered).map(|rate| rate.0);
        Value::uint64(over_paths.reduce(u64::saturating_add).or(direct).unwrap_or(0))
    }),
    told("Rtt", "t", |network| {
        let over_paths = network.paths.iter().filter_map(|path| path.rtt).map(|rtt| rtt.0).min();
        let direct = network.direct.as_ref().and_then(|direct| direct.rtt).map(|rtt| rtt.0);
        Value::uint64(over_paths.or(direct).unwrap_or(0))
    }),
    told("Loss", "d", |network| {
        let over_paths = network.paths.iter().map(|path| path.loss.0).reduce(f64::max);
        Value::double(over_paths.unwrap_or(network.direct.as_ref().map_or(0.0, |direct| direct.loss.0)))
    }),
    told("Share", "d", |network| {
        let over_paths = network.paths.iter().filter_map(|path| path.share).map(|share| share.0);
        let direct = network.direct.as_ref().map_or(0.0, |direct| direct.share.0);
        Value::double(over_paths.reduce(|one, other| one + other).unwrap_or(direct))
    }),
    told("Load", "t", |network| {
        let load = |path: &PathReport| path.traffic.sending.0.saturating_add(path.traffic.receiving.0);
        let direct = network.direct.as_ref().map_or(0, |direct| direct.load.0);
        Value::uint64(network.paths.iter().map(load).fold(direct, u64::saturating_add))
    }),
    untold("Paths", "aa{sv}", |network| match serde_json::to_value(&network.paths) {
        Ok(serde_json::Value::Array(list)) => json::objects(&list),
        _ => json::objects(&[]),
    }),
    untold("Direct", "a{sv}", |network| fields(&network.direct)),
];

/// The path of a network's object.
pub(super) fn path_of(network: NetworkId) -> String {
    format!("{NETWORKS}/{}", network.0)
}

/// An object's interface and the values of its properties.
pub(super) type Properties = (&'static str, Vec<(&'static str, Value)>);

/// All objects by their paths.
pub(super) fn objects(status: &Status) -> BTreeMap<String, Properties> {
    let networks = status
        .networks
        .iter()
        .map(|network| (path_of(network.id), (NETWORK, values(NETWORK_PROPERTIES, network))));
    networks.chain([(ROOT.to_owned(), (DAEMON, values(DAEMON_PROPERTIES, status)))]).collect()
}

/// The properties of an interface that are told when they change.
pub(super) fn is_told(interface: &str, name: &str) -> bool {
    let of_daemon = DAEMON_PROPERTIES.iter().map(|property| (DAEMON, property.name, property.told));
    let of_network = NETWORK_PROPERTIES.iter().map(|property| (NETWORK, property.name, property.told));
    of_daemon.chain(of_network).any(|known| known == (interface, name, true))
}

/// What setting a property of a network changes.
pub(super) fn change(name: &str, value: &Value) -> Result<NetworkChange, Fault> {
    let property = NETWORK_PROPERTIES.iter().find(|property| property.name == name);
    let set = property.ok_or_else(Fault::unknown_property)?.set.ok_or_else(Fault::read_only)?;
    set(value).ok_or_else(|| Fault::arguments(&format!("{name} has another type")))
}

fn values<T>(properties: &[Property<T>], of: &T) -> Vec<(&'static str, Value)> {
    properties.iter().map(|property| (property.name, (property.value)(of))).collect()
}

fn addresses(all: &[std::net::IpAddr]) -> Value {
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    Value::texts(texts.iter().map(String::as_str))
}

/// A word, as JSON has it.
fn word(of: &impl serde::Serialize) -> Value {
    let json = serde_json::to_value(of).unwrap_or_default();
    Value::text(json.as_str().unwrap_or_default())
}

fn fields(of: &impl serde::Serialize) -> Value {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::Object(fields)) => json::object(&fields),
        _ => Value::properties([]),
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Number(b'b', truth) => Some(*truth != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_network_lets_change_can_be_set() {
        let priority = change("Priority", &Value::Number(b'y', 4)).unwrap();
        assert_eq!(priority.priority, Some(Priority(4)));
        assert_eq!(change("Off", &Value::boolean(true)).unwrap().off, Some(true));
        for (name, value) in [
            ("Priority", Value::uint32(4)),
            ("Off", Value::text("yes")),
            ("Name", Value::text("a")),
            ("Nothing", Value::boolean(true)),
        ] {
            assert!(change(name, &value).is_err(), "{name}");
        }
    }
}
