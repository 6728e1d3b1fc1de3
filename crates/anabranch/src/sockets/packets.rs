//! IP packets between peers: what a tunnel carries, over the same conversations as streams. For a daemon that gives peers an interface of
//! their own; programs have streams and datagrams.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use identity::PublicKey;
use linux::clock;

use super::core::Core;
use super::endpoint::{Endpoint, Owner};
use super::error::ConnectError;

/// Packets that wait for the owner; further ones are lost, as on a full link.
const MOST_WAITING: usize = 1_024;

/// What has come.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    packets: VecDeque<(PublicKey, Vec<u8>)>,
    wakers: Vec<Waker>,
    wanted: bool,
}

/// Takes the IP packets of all peers of an endpoint.
pub struct Packets(Arc<Owner>);

impl Endpoint {
    /// Takes IP packets of peers from now on; without this they are thrown away.
    pub fn packets(&self) -> Packets {
        self.shared().lock().arrivals.wanted = true;
        Packets(self.owner())
    }

    /// Sends an IP packet to a peer with whom there is a conversation, held as [`Endpoint::datagrams`] does or by the peer. False if there is
    /// none, the packet is none, or too many wait.
    pub fn send_packet(&self, peer: PublicKey, packet: &[u8]) -> bool {
        let mut core = self.shared().lock();
        let taken = core.send_packet(peer, packet);
        self.shared().done(core);
        taken
    }
}

impl Packets {
    /// The next packet, and whose it is. Nothing says that its addresses are that peer's.
    ///
    /// # Errors
    /// [`ConnectError::Closed`] once the endpoint is closed.
    pub async fn receive(&self) -> Result<(PublicKey, Vec<u8>), ConnectError> {
        poll_fn(|context| {
            let mut core = self.0.shared().lock();
            if let Some(arrived) = core.arrivals.packets.pop_front() {
                return Poll::Ready(Ok(arrived));
            }
            if core.ended {
                return Poll::Ready(Err(ConnectError::Closed));
            }
            core.arrivals.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Core {
    fn send_packet(&mut self, peer: PublicKey, packet: &[u8]) -> bool {
        let of_peer = self.conversations.values_mut().filter(|known| known.peer == peer && !known.is_over());
        let Some(known) = of_peer.filter(|known| known.established).last() else { return false };
        known.idle_since = None;
        self.bond.handle_packet(clock::now(), known.session, packet)
    }

    /// Takes over the packets that the bond has for this end.
    pub(super) fn take_packets(&mut self) {
        while let Some((session, packet)) = self.bond.poll_packet() {
            let Some(known) = self.conversation_of(session) else { continue };
            known.idle_since = None;
            let peer = known.peer;
            if self.arrivals.wanted && self.arrivals.packets.len() < MOST_WAITING {
                self.arrivals.packets.push_back((peer, packet));
            }
        }
        if !self.arrivals.packets.is_empty() {
            self.arrivals.wakers.drain(..).for_each(Waker::wake);
        }
    }

    pub(super) fn close_packets(&mut self) {
        self.arrivals.wakers.drain(..).for_each(Waker::wake);
    }
}
