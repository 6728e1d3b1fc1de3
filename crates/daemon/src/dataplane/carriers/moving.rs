//! Connections of a gateway that has several parts: accepted by one, for another.

use bond::{Address, Carrier};
use linux::poll::{Poller, Token};
use linux::tcp_carrier::TcpCarrier;
use tracing::debug;
use units::Timestamp;
use wire::datagram::Part;
use wire::inner::Ecn;

use super::{ACCEPTED, Carriers, Socket};

/// A TCP connection whose other end speaks with another part of this gateway.
pub struct MovedConnection {
    /// Number of that part.
    pub part: usize,
    carrier: TcpCarrier,
    /// What has come by it for that part; at most [`MOST_STRAYS`].
    datagrams: Vec<Vec<u8>>,
}

impl MovedConnection {
    /// Bytes that go with it, at most.
    pub fn size(&self) -> usize {
        TcpCarrier::MOST_HELD + self.datagrams.iter().map(Vec::len).sum::<usize>()
    }
}

/// Datagrams that go with a connection: it is handed on after the read in which the first of them came.
pub(super) const MOST_STRAYS: usize = 32;

impl Carriers {
    /// These are of one part of a gateway. Connections are accepted by any part: [`Carriers::take_moving`] has those of others.
    pub fn set_part(&mut self, part: Part) {
        self.part = part;
    }

    /// A connection that belongs to another part.
    pub fn take_moving(&mut self) -> Option<MovedConnection> {
        self.moving.pop()
    }

    /// Goes on with a connection that another part has accepted, and gives what came by it to `sink`.
    pub fn go_on(
        &mut self,
        poller: &Poller,
        moved: MovedConnection,
        now: Timestamp,
        sink: &mut impl FnMut(Address, Ecn, &mut [u8]),
    ) {
        let remote = moved.carrier.remote_address();
        self.keep_connection(poller, moved.carrier, now);
        let address = Address { network: ACCEPTED, carrier: Carrier::Tcp, remote };
        for mut datagram in moved.datagrams {
            sink(address, Ecn::NotEct, &mut datagram);
        }
    }

    /// Hands a connection to the part that the last of these datagrams is for. Others may be lost, as on any network.
    pub(super) fn move_connection(&mut self, poller: &Poller, token: Token, strays: Vec<(usize, Vec<u8>)>) {
        let Some(part) = strays.last().map(|(part, _)| *part) else { return };
        let Some(Socket::Connection { carrier, .. }) = self.sockets.remove(&token) else { return };
        self.tcp.remove(&(ACCEPTED, carrier.remote_address()));
        if let Err(error) = poller.remove(&carrier) {
            debug!(%error, "a connection cannot be handed to another part");
            return;
        }
        let datagrams = strays.into_iter().filter(|(of, _)| *of == part).map(|(_, datagram)| datagram);
        let datagrams = datagrams.collect();
        self.moving.push(MovedConnection { part, carrier, datagrams });
    }
}
