//! Where programs of this project listen unless they are told others.

use identity::{InvitationKind, Peer, Peers, PublicKey};
use units::MacAddress;
use wire::join_link::Host;

use crate::MachineBeside;

/// `anabranch receive`.
pub const FILES_PORT: u16 = 4_610;
/// `anabranch chat`.
pub const CHAT_PORT: u16 = 4_611;
/// `anabranch serve`, relays too.
pub const SERVE_PORT: u16 = 4_612;
/// `anabranch accept`.
pub const UPLOAD_PORT: u16 = 4_613;
/// The daemon, for peers' any0 addresses.
pub const DAEMON_PORT: u16 = 4_615;

/// The machines of known peers that may be beside this one by Bluetooth: what [`crate::Endpoint::beside`] is to be told.
pub fn beside(peers: &Peers) -> Vec<MachineBeside> {
    let known = peers.of_kind(InvitationKind::Peer);
    known.flat_map(|peer| devices(peer).into_iter().map(|device| machine(peer.public_key, device))).collect()
}

/// A machine with a controller of this address.
pub fn machine(key: PublicKey, device: MacAddress) -> MachineBeside {
    let ports = [FILES_PORT, CHAT_PORT, SERVE_PORT, UPLOAD_PORT, DAEMON_PORT];
    MachineBeside { key, device, relay_port: SERVE_PORT, ports: ports.to_vec() }
}

/// The Bluetooth controllers of a known peer, each once.
pub fn devices(peer: &Peer) -> Vec<MacAddress> {
    let mut devices = Vec::new();
    for address in &peer.addresses {
        match address.host {
            Host::Bluetooth(device) if !devices.contains(&device) => devices.push(device),
            Host::Bluetooth(_) | Host::Address(_) | Host::Name(_) => {}
        }
    }
    devices
}
