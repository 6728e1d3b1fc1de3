//! What a daemon says about itself, its networks and its paths.

use std::net::{IpAddr, SocketAddr};

use policy::gain::Direction;
use policy::network::{CapReport, NetworkKind, Reach};
use policy::{PathStatus, Priority};
use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes, NetworkId, PathId};

use super::{Fraction, Micros, UnixMillis};

/// Which end a daemon is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Has networks and bonds them.
    Device,
    /// Gives bonded flows to the Internet.
    Gateway,
}

/// How far a device's session with its gateway has come. A gateway that runs is `Up`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// Setting up the machine.
    Starting,
    /// Knocking at the gateway.
    Connecting,
    /// Data flows.
    Up,
    /// No network is left; packets wait.
    NoNetwork,
    /// The gateway refused; `why` of the status says for what reason.
    Refused,
    /// Taking everything back.
    Stopping,
}

/// The whole of a daemon at a glance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Which end this is.
    pub role: Role,
    /// Name of this device or gateway.
    pub name: String,
    /// This end's public key.
    pub public_key: String,
    /// The daemon's process.
    pub pid: u32,
    /// Since when the daemon runs.
    pub started: UnixMillis,
    /// How far the session has come.
    pub state: SessionState,
    /// A sentence on why the state is what it is.
    pub why: String,
    /// The interface that applications see.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its MTU in bytes.
    pub mtu: Bytes,
    /// The gateway; on a gateway `None`.
    pub far_end: Option<FarEnd>,
    /// Connected clients; on a device `None`.
    pub connected_clients: Option<usize>,
    /// What went through the interface.
    pub traffic: Traffic,
    /// What bonding is worth; `None` unless two networks or more carry something together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<GainReport>,
    /// What became of packets behind the paths; `None` on a gateway, and while there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryReport>,
    /// The networks with their paths; empty on a gateway.
    pub networks: Vec<NetworkReport>,
}

/// The proof of gain, from the last ten seconds and the models of the paths ([`policy::gain`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GainReport {
    /// The busier direction.
    pub direction: Direction,
    /// What all networks carried together, bits per second, headers included.
    pub bonded: BitRate,
    /// What the best of them could carry alone, bits per second; more than `bonded` while less is asked for.
    pub best_alone: BitRate,
    /// Name of that network.
    pub network: String,
}

/// The gateway that a device uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FarEnd {
    /// Name under which this machine knows it.
    pub name: String,
    /// Its public key.
    pub public_key: String,
    /// Since when the session is up, if it is.
    pub connected_since: Option<UnixMillis>,
}

/// Bytes and packets in both directions, and the rates over the last second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    /// Bytes sent since the start.
    pub sent: Bytes,
    /// Bytes received since the start.
    pub received: Bytes,
    /// Rate out over the last second, bits per second.
    pub sending: BitRate,
    /// Rate in over the last second, bits per second.
    pub receiving: BitRate,
}

/// One network of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkReport {
    /// Its number while the daemon runs.
    pub id: NetworkId,
    /// Name: that of its interface.
    pub name: String,
    /// Whether it has a link and an address.
    pub connected: bool,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether its paths may carry data.
    pub status: PathStatus,
    /// A sentence on why the status is what it is.
    pub why: String,
    /// Order of preference, 0 first.
    pub priority: Priority,
    /// Used only while no other network is left.
    pub backup: bool,
    /// Costs by the byte.
    pub metered: bool,
    /// Switched off by the user.
    pub off: bool,
    /// Its paths, by number.
    pub paths: Vec<PathReport>,
    /// What is known of it beside its paths, where flows go directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectReport>,
}

/// A network as direct mode sees it. What is not known is left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DirectReport {
    /// Its part of new direct flows.
    pub share: Fraction,
    /// Why it has this part.
    pub why: String,
    /// What it is made of.
    pub kind: NetworkKind,
    /// What lies beyond its first hop.
    pub reach: Reach,
    /// Smoothed round-trip time of flows or probes over it.
    #[serde(rename = "rtt_us", skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Micros>,
    /// Most that it delivered of late, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered: Option<BitRate>,
    /// What goes over it now in its busier direction, bits per second; 0 while no direct flow is open.
    pub load: BitRate,
    /// Bulk flows on it.
    pub bulk_flows: u32,
    /// Part of the segments that was repeated.
    pub loss: Fraction,
    /// Address of the login page, if it has one and told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portal: Option<String>,
    /// Its access point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wifi: Option<WifiReport>,
    /// Its mobile network, as ModemManager knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cellular: Option<CellularReport>,
    /// Where it stands against its data cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CapReport>,
}

/// A Wi-Fi network's access point.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WifiReport {
    /// The network's name; `None` if hidden.
    pub ssid: Option<String>,
    /// The access point's hardware address.
    pub bssid: String,
    /// Its channel.
    pub channel: Option<u16>,
    /// Signal in dBm.
    pub signal_dbm: Option<i32>,
    /// Rate at which frames are sent to it, bits per second.
    pub rate: Option<BitRate>,
}

/// A mobile network.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CellularReport {
    /// The operator's name.
    pub operator: Option<String>,
    /// Access technologies in use, such as `lte` or `5gnr`.
    pub technologies: Vec<String>,
    /// Quality of the signal in percent, if it was measured lately.
    pub signal_percent: Option<u8>,
    /// Whether it is not the one that the subscription is for.
    pub roaming: bool,
}

/// What a path's packets ride on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// Datagrams.
    Udp,
    /// Frames in a TCP connection.
    Tcp,
    /// Datagrams of a Bluetooth link.
    Bluetooth,
}

/// How a path does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PathHealth {
    /// Its far end has not answered yet.
    Validating,
    /// Answers.
    Good,
    /// Has not answered for longer than usual; nothing new is sent on it.
    Suspect,
    /// Given up until it answers a probe.
    Dead,
}

/// One path: one network to one remote address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathReport {
    /// Its number in the session.
    pub id: PathId,
    /// Where it leads.
    pub remote: SocketAddr,
    /// What it rides on.
    pub carrier: CarrierKind,
    /// Whether it may carry data.
    pub status: PathStatus,
    /// How it does.
    pub health: PathHealth,
    /// A sentence on why it is used as it is.
    pub why: String,
    /// Estimated rate that it can deliver outward, bits per second; `None` until something was measured.
    pub rate: Option<BitRate>,
    /// Smoothed round-trip time.
    #[serde(rename = "rtt_us")]
    pub rtt: Option<Micros>,
    /// Smallest round-trip time of late.
    #[serde(rename = "min_rtt_us")]
    pub min_rtt: Option<Micros>,
    /// One-way delay outward, beyond that of the fastest path.
    #[serde(rename = "extra_delay_us")]
    pub extra_delay: Option<Micros>,
    /// Part of the packets sent that was lost, of late.
    pub loss: Fraction,
    /// Bytes sent and not yet acknowledged.
    pub in_flight: Bytes,
    /// Largest datagram that it carries, in bytes.
    pub mtu: Bytes,
    /// Its part of all that went over the paths in the last second, both ways; `None` if nothing did.
    pub share: Option<Fraction>,
    /// What went over it.
    pub traffic: Traffic,
    /// Congestion window: bytes that may be on their way at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Its packets since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketCounts>,
}

/// Packets of a path since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacketCounts {
    /// Sent, those that were repeated included.
    pub sent: u64,
    /// Found lost of those.
    pub lost: u64,
    /// Received, and counted as marked by this end itself, since it likes other paths better.
    #[serde(default)]
    pub marked: u64,
}

/// What became of packets behind the paths, since the session began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DeliveryReport {
    /// Sent again.
    pub repeats: u64,
    /// Copies that arrived twice and were removed.
    pub duplicates: u64,
    /// Restored by forward error correction.
    pub repaired: u64,
    /// No longer waited for.
    pub skipped: u64,
    /// Arrived after that.
    pub late: u64,
    /// Dropped because a queue was full.
    pub dropped: u64,
}

/// What to change of a network; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkChange {
    /// Order of preference, 0 first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Use it only while no other network is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// It costs by the byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<bool>,
    /// Do not use it at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<bool>,
}

/// What `down` took back, a line each in the order it was done.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DownReport {
    /// Each change of the machine that was undone.
    pub undone: Vec<String>,
    /// Each change that could not be undone, with the reason and what to do.
    pub failed: Vec<String>,
}

/// The body of an answer to a request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// For programs.
    pub code: FailureCode,
    /// For people: what, where, how to mend it.
    pub message: String,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FailureCode {
    /// The caller may not use this socket.
    NotAllowed,
    /// No such thing.
    NotFound,
    /// The request makes no sense.
    BadRequest,
    /// It clashes with what is there.
    Conflict,
    /// This daemon is the other role.
    WrongRole,
    /// It cannot be done now.
    Unavailable,
    /// The daemon failed.
    Internal,
}
