//! Where programs of this project listen unless they are told others.

use identity::{InvitationKind, Peers};
use units::MacAddress;
use wire::join_link::Host;
use wire::peer::PeerAddress;

use crate::Peer;

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

/// The known peers who may be beside this machine by Bluetooth, as they would listen on these ports: what [`crate::Endpoint::hint`] is to be told.
pub fn beside(peers: &Peers, ports: &[u16]) -> Vec<Peer> {
    let beside = peers.of_kind(InvitationKind::Peer).map(|peer| {
        let mut devices: Vec<MacAddress> = peer
            .addresses
            .iter()
            .filter_map(|address| match address.host {
                Host::Bluetooth(device) => Some(device),
                Host::Address(_) | Host::Name(_) => None,
            })
            .collect();
        devices.dedup();
        let at = |device| ports.iter().map(move |port| PeerAddress::Bluetooth { device, port: *port });
        Peer { key: peer.public_key, addresses: devices.into_iter().flat_map(at).collect() }
    });
    beside.filter(|peer| !peer.addresses.is_empty()).collect()
}
