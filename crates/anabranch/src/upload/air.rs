//! The air of an ordinary LAN: frames for everybody by UDP multicast.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::task::{Context, Poll};

use linux::group::{Group, GroupSender, GroupSocket};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tracing::debug;

use crate::sockets::{Adapter, AdapterState};

/// Of the ranges for local use (RFC 2365, RFC 4291 section 2.7); the port is not registered.
const GROUP: Group = Group {
    v4: Ipv4Addr::new(239, 255, 97, 99),
    v6: Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x616e, 0x6163),
    port: 4_615,
};
/// What a card may have to send: more would be out of date when it goes out.
const SEND_BUFFER: usize = 32 * 1024;
/// Largest frame.
pub(super) const MAX_FRAME: usize = 2_048;

/// Whether an adapter leads to a neighbourhood: `only`, if it names some; else all but modems and Bluetooth.
fn leads_to_neighbours(adapter: &Adapter, only: Option<&[String]>) -> bool {
    use policy::network::NetworkKind::{Bluetooth, Cellular};
    let wanted = match only {
        Some(only) => only.contains(&adapter.name),
        None => !matches!(adapter.kind, Bluetooth | Cellular),
    };
    wanted && !adapter.loopback && adapter.bluetooth.is_none() && adapter.state == AdapterState::Connected
}

/// Sends frames to all neighbourhoods.
#[derive(Default)]
pub(super) struct AirSender {
    sockets: Vec<(u32, GroupSender)>,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AirSent {
    Yes,
    /// The card has enough; later.
    Full,
    /// There is no air.
    Nowhere,
}

impl AirSender {
    /// Follows the adapters as they are now.
    pub(super) fn follow(&mut self, adapters: &[Adapter], only: Option<&[String]>) {
        let wanted: Vec<&Adapter> =
            adapters.iter().filter(|adapter| leads_to_neighbours(adapter, only)).collect();
        self.sockets.retain(|(index, ..)| wanted.iter().any(|adapter| adapter.index == *index));
        for adapter in wanted {
            if self.sockets.iter().any(|(index, ..)| *index == adapter.index) {
                continue;
            }
            let ipv6 = !adapter.addresses.iter().any(|prefix| prefix.address().is_ipv4());
            match GroupSender::open(&GROUP, &adapter.name, adapter.index, ipv6, SEND_BUFFER) {
                Ok(socket) => self.sockets.push((adapter.index, socket)),
                Err(error) => debug!(%error, name = adapter.name, "an adapter has no multicast"),
            }
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Sends a frame; it counts as sent if one neighbourhood gets it.
    pub(super) fn send(&mut self, frame: &[u8]) -> AirSent {
        let (mut sent, mut full) = (false, false);
        self.sockets.retain(|(index, socket)| {
            match socket.send(frame) {
                Ok(true) => sent = true,
                Ok(false) => full = true,
                Err(error) => {
                    debug!(%error, index, "an adapter takes no frames");
                    return false;
                }
            }
            true
        });
        match (sent, full) {
            (true, _) => AirSent::Yes,
            (false, true) => AirSent::Full,
            (false, false) => AirSent::Nowhere,
        }
    }
}

/// Hears frames from all neighbourhoods.
#[derive(Default)]
pub(super) struct AirListener {
    sockets: Vec<(u32, bool, UdpSocket)>,
    /// Which one is asked first, so that none is deaf beside a loud one.
    first: usize,
}

impl AirListener {
    /// Follows the adapters as they are now.
    pub(super) fn follow(&mut self, adapters: &[Adapter], only: Option<&[String]>) {
        let wanted: Vec<&Adapter> =
            adapters.iter().filter(|adapter| leads_to_neighbours(adapter, only)).collect();
        self.sockets.retain(|(index, ..)| wanted.iter().any(|adapter| adapter.index == *index));
        for adapter in wanted {
            for ipv6 in [false, true] {
                if self.sockets.iter().any(|(index, family, _)| (*index, *family) == (adapter.index, ipv6)) {
                    continue;
                }
                let opened = GroupSocket::open(&GROUP, &adapter.name, adapter.index, ipv6);
                match opened.and_then(|group| UdpSocket::from_std(group.into())) {
                    Ok(socket) => self.sockets.push((adapter.index, ipv6, socket)),
                    Err(error) => debug!(%error, name = adapter.name, ipv6, "an adapter has no multicast"),
                }
            }
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The next frame's length.
    pub(super) async fn receive(&mut self, buffer: &mut [u8; MAX_FRAME]) -> usize {
        poll_fn(|context| self.poll_receive(context, buffer)).await
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8; MAX_FRAME]) -> Poll<usize> {
        let mut turn = 0;
        while turn < self.sockets.len() {
            let at = (self.first + turn) % self.sockets.len();
            let Some((_, _, socket)) = self.sockets.get(at) else { break };
            let mut into = ReadBuf::new(buffer.as_mut_slice());
            match socket.poll_recv(context, &mut into) {
                Poll::Ready(Ok(())) => {
                    self.first = at + 1;
                    return Poll::Ready(into.filled().len());
                }
                Poll::Ready(Err(error)) => {
                    debug!(%error, "an adapter is deaf");
                    self.sockets.remove(at);
                }
                Poll::Pending => turn += 1,
            }
        }
        Poll::Pending
    }
}
