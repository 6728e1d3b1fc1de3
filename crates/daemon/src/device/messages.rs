//! What the device's threads say to each other.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anabranch::control::{NetworkChange, NetworkReport, Status};
use identity::{Peer, PublicKey};
use linux::monitor::Interface;
use linux::prefix::IpPrefix;
use policy::steering::{MarkShare, marks_of_flows};
use units::{BitRate, NetworkId};
use wire::hello::Welcome;
use wire::join_link::HostPort;
use wire::request::Sibling;

use wire::translation::Prefix;

/// What any0 is set up with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its addresses, as hosts.
    pub addresses: Vec<IpPrefix>,
    /// Its MTU in bytes.
    pub mtu: u16,
    /// Name servers to be used; empty leaves names as they are.
    pub dns: Vec<IpAddr>,
}

impl From<&Welcome> for Lease {
    fn from(welcome: &Welcome) -> Self {
        let v4 = welcome.v4.map(|lease| IpPrefix::host(lease.address.into()));
        let v6 = welcome.v6.map(|lease| IpPrefix::host(lease.address.into()));
        Self { addresses: v4.into_iter().chain(v6).collect(), mtu: welcome.mtu, dns: welcome.dns.to_vec() }
    }
}

/// What a radio advises about one of its networks.
#[derive(Clone, PartialEq, Debug)]
pub struct PointAdvice {
    /// The network's interface.
    pub interface: String,
    /// Whether its access point is worth its air.
    pub used: bool,
    /// No more than this is to go over it.
    pub limit: Option<BitRate>,
    /// No more than this is to come from a gateway, as others want the air as well.
    pub fair_limit: Option<BitRate>,
    /// The most of its packets to mark.
    pub marks: MarkShare,
    /// How often flows over it were to begin anew.
    pub renewals: u32,
    /// Air time for a packet by its access point.
    pub packet_time: Option<Duration>,
}

impl PointAdvice {
    /// What is to be marked of flows with this round-trip time with an empty queue.
    pub fn marks_for(&self, empty: Option<Duration>) -> MarkShare {
        marks_of_flows(self.marks, self.limit.is_some() || !self.used, self.packet_time, empty)
    }
}

/// To the loop.
#[derive(Debug)]
pub enum Command {
    /// These interfaces are there now.
    Interfaces(Vec<Interface>),
    /// A gateway's addresses were looked up; empty if that failed.
    Resolved(PublicKey, Vec<SocketAddr>),
    /// These gateways are known now.
    Gateways(Vec<Peer>),
    /// A network has, or has no, NAT64.
    Nat64(NetworkId, Option<Prefix>),
    /// The interface is set up and traffic leads to it, or why not.
    Captured(Result<(), String>),
    /// Give this packet, which a neighbour's program has sent to everybody, to programs here.
    Deliver(Vec<u8>),
    /// What the radio advises about its networks, by interface; empty if none runs.
    Advice(Vec<PointAdvice>),
    /// What is the state of things?
    Status(SyncSender<Status>),
    /// Use a network differently; `None` is answered if there is none of that name.
    SetNetwork(String, NetworkChange, SyncSender<Option<NetworkReport>>),
    /// Say goodbye and end.
    Stop,
}

/// To the watcher.
#[derive(Debug)]
pub enum Task {
    /// Set the interface up, lead traffic to it: the gateway has let the device in, or none is needed.
    Capture(Lease),
    /// Look a gateway's addresses up.
    Resolve {
        /// The gateway.
        gateway: PublicKey,
        /// Where it says that it is.
        addresses: Vec<HostPort>,
        /// The networks that are connected.
        interfaces: Vec<String>,
    },
    /// A gateway names others, all that it knows.
    Learn(PublicKey, Vec<Sibling>),
    /// Forget the invitation of a gateway, which has let the device in.
    Redeemed(PublicKey),
    /// Find a network's NAT64.
    DiscoverNat64(NetworkId, String),
    /// Let answers in on this interface.
    LetIn(String),
    /// The loop has ended.
    LoopEnded(Result<(), String>),
}
