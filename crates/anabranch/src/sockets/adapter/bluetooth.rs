//! Bluetooth: an L2CAP link to each peer, opened when there is something to send, or taken when the peer opens one.
//!
//! ```text
//!            send()                 writable             ended, or idle for a minute
//! (nothing) --------> Calling{up to 8 datagrams} -----> Up -------------------------> (nothing)
//!     ^                   | not heard: calls again 1, 2, 4, ... 15 s later               ^
//!     +-------------------+                          port told                           |
//! (accepted) ------------------------------> Nameless ---------> Up                      |
//!                                                | nothing of the kind within 5 s -------+
//! ```
//!
//! A controller's address does not say which of a machine's programs calls: the first datagram of each link, from whoever opened it, is
//! `62 01 | port (2)`. So both ends have the same name for a link, and whoever says something else is not listened to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bond::Carrier;
use linux::bluetooth::{Link, LinkError, LinkListener, LinkSendError, MAX_DATAGRAM, Multiplexer};
use linux::clock;
use linux::poll::{Interest, Poller, Ready, Token};
use linux::udp::ReceiveBuffer;
use tracing::{debug, info};
use units::{MacAddress, Timestamp};
use wire::inner::Ecn;

use super::{AdapterSocket, LinkChange, Sent, Sink};
use crate::sockets::error::BindError;
use crate::sockets::remote::{device_of, of_device};

/// What a link begins with: this, and the port of whoever opened it.
const PREAMBLE: [u8; 2] = [b'b', 1];
const LISTENER: Token = Token(0);
/// A controller has seven others in its piconet at most (Bluetooth Core, volume 2 part B, 1); some links may be about to end.
const MAX_LINKS: usize = 16;
/// Machines that did not hear and are remembered; the next call of others is not held back.
const MAX_UNHEARD: usize = 64;
/// Datagrams that wait for a link: a handshake, and what its repeats have.
const MAX_WAITING: usize = 8;
/// Bytes that may wait for a link whose socket is full; what comes on top is lost, as on any full link.
const OUTGOING: usize = 64 << 10;
/// Datagrams this short are acknowledgements and probes, for which there is room on top: without them the other end would take the link for dead.
const SHORT: usize = 256;
const ROOM_FOR_SHORT: usize = 8 << 10;
/// Datagrams read from one link in a turn.
const READS: usize = 16;
/// A link that was opened says within this time by whom.
const NAME_WITHIN: Duration = Duration::from_secs(5);
/// Links that nobody uses end: a path in use is never quiet for so long.
const IDLE: Duration = Duration::from_secs(60);
/// The kernel gives up calling by itself, after some 5 s; this is for controllers that say nothing.
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// Calls in vain are this far apart at first, then twice as far. Each keeps the controller busy for 5 s.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Ports that are tried when any will do.
const PORTS_TO_TRY: u16 = 64;
const FIRST_PORT: u16 = 49_152;

/// See the module.
pub(in crate::sockets) struct BluetoothSocket {
    device: MacAddress,
    port: u16,
    listener: LinkListener,
    poller: Poller,
    ready: Vec<Ready>,
    /// By token.
    links: BTreeMap<u64, Open>,
    next: u64,
    unheard: BTreeMap<SocketAddr, Unheard>,
    changes: Vec<LinkChange>,
    buffer: Vec<u8>,
}

struct Open {
    link: Link,
    state: State,
    /// Since when it is in this state, or was used last.
    since: Timestamp,
}

enum State {
    Calling { remote: SocketAddr, waiting: Vec<Vec<u8>> },
    Nameless,
    Up { remote: SocketAddr, outgoing: Outgoing },
}

/// What waits for the socket of a link.
#[derive(Default)]
struct Outgoing {
    datagrams: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Outgoing {
    /// Keeps a datagram, if there is room.
    fn push(&mut self, datagram: &[u8]) -> bool {
        let room = if datagram.len() < SHORT { OUTGOING + ROOM_FOR_SHORT } else { OUTGOING };
        let fits = self.bytes + datagram.len() <= room;
        if fits {
            self.bytes += datagram.len();
            self.datagrams.push_back(datagram.to_vec());
        }
        fits
    }

    /// Hands over what the socket takes.
    fn flush(&mut self, link: &Link) -> Result<(), LinkSendError> {
        while let Some(datagram) = self.datagrams.pop_front() {
            match link.send(&datagram) {
                Err(LinkSendError::Full) => {
                    self.datagrams.push_front(datagram);
                    return Ok(());
                }
                Err(error @ LinkSendError::Ended(_)) => return Err(error),
                Ok(()) | Err(LinkSendError::TooLarge) => self.bytes -= datagram.len(),
            }
        }
        Ok(())
    }
}

struct Unheard {
    again: Timestamp,
    pause: Duration,
}

impl BluetoothSocket {
    /// Listens at a controller; any port if it is 0.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(in crate::sockets) fn open(device: MacAddress, port: u16) -> Result<Self, BindError> {
        let (listener, port) = match port {
            0 => any_port(device)?,
            port => (LinkListener::bind(device, Multiplexer::of_port(port))?, port),
        };
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Readable)?;
        Ok(Self {
            device,
            port,
            listener,
            poller,
            ready: Vec::new(),
            links: BTreeMap::new(),
            next: LISTENER.0 + 1,
            unheard: BTreeMap::new(),
            changes: Vec::new(),
            // A byte more, so that what is too long shows.
            buffer: vec![0; usize::from(MAX_DATAGRAM) + 1],
        })
    }

    /// The newest link to a remote end, one that is up before one that is being opened.
    fn link_to(&self, to: SocketAddr) -> Option<u64> {
        let up = |open: &Open| matches!(open.state, State::Up { remote, .. } if remote == to);
        let calling = |open: &Open| matches!(open.state, State::Calling { remote, .. } if remote == to);
        let newest = |is: &dyn Fn(&Open) -> bool| {
            self.links.iter().rev().find(|(_, open)| is(open)).map(|(token, _)| *token)
        };
        newest(&up).or_else(|| newest(&calling))
    }

    /// Begins to open a link, unless that was in vain just now.
    fn call(&mut self, now: Timestamp, remote: SocketAddr) -> Option<u64> {
        let device = device_of(remote).filter(|device| *device != self.device)?;
        let too_early = self.unheard.get(&remote).is_some_and(|unheard| now < unheard.again);
        if too_early || self.links.len() >= MAX_LINKS {
            return None;
        }
        match Link::connect(self.device, device, Multiplexer::of_port(remote.port())) {
            Ok(link) => self.keep(now, link, State::Calling { remote, waiting: Vec::new() }),
            Err(error) => {
                self.note_unheard(now, remote, &error);
                None
            }
        }
    }

    fn keep(&mut self, now: Timestamp, link: Link, state: State) -> Option<u64> {
        let token = self.next;
        self.next += 1;
        let interest = if matches!(state, State::Calling { .. }) {
            Interest::ReadableOrWritable
        } else {
            Interest::Readable
        };
        if let Err(error) = self.poller.add(&link, Token(token), interest) {
            debug!(%error, "a link cannot be watched");
            return None;
        }
        self.links.insert(token, Open { link, state, since: now });
        Some(token)
    }

    fn note_unheard(&mut self, now: Timestamp, remote: SocketAddr, error: &LinkError) {
        let pause = self.unheard.get(&remote).map_or(FIRST_PAUSE, |unheard| unheard.pause);
        let told = self.unheard.contains_key(&remote);
        if let (Some(device), false) = (device_of(remote), told) {
            info!(%device, %error, "no Bluetooth link");
        }
        while self.unheard.len() >= MAX_UNHEARD {
            self.unheard.pop_first();
        }
        self.unheard.insert(remote, Unheard { again: now + pause, pause: (pause * 2).min(LONGEST_PAUSE) });
    }

    fn accept(&mut self, now: Timestamp) {
        loop {
            match self.listener.accept() {
                // One too many is closed at once.
                Ok(link) if self.links.len() < MAX_LINKS => {
                    self.keep(now, link, State::Nameless);
                }
                Ok(link) => debug!(device = %link.remote(), "too many Bluetooth links"),
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        debug!(%error, "a Bluetooth link was not taken");
                    }
                    return;
                }
            }
        }
    }

    /// A call has been answered, or not.
    fn on_called(&mut self, now: Timestamp, token: u64) {
        let Some(open) = self.links.get_mut(&token) else { return };
        let State::Calling { remote, waiting } = &mut open.state else { return };
        let (remote, waiting) = (*remote, std::mem::take(waiting));
        let [high, low] = self.port.to_be_bytes();
        let [kind, version] = PREAMBLE;
        let said = open
            .link
            .outcome()
            .and_then(|()| open.link.send(&[kind, version, high, low]).map_err(|_| LinkError::OutOfReach));
        match said {
            Ok(()) => {
                let mut outgoing = Outgoing::default();
                waiting.iter().for_each(|datagram| {
                    outgoing.push(datagram);
                });
                self.on_up(now, token, remote, outgoing);
                self.flush(token);
            }
            Err(error) => {
                self.links.remove(&token);
                self.note_unheard(now, remote, &error);
            }
        }
    }

    /// Sends what waits, and is woken again if some is left.
    fn flush(&mut self, token: u64) {
        let Some(open) = self.links.get_mut(&token) else { return };
        let State::Up { outgoing, .. } = &mut open.state else { return };
        let flushed = outgoing.flush(&open.link).map_err(|error| error.to_string());
        let interest = if outgoing.bytes > 0 { Interest::ReadableOrWritable } else { Interest::Readable };
        let watched =
            self.poller.change(&open.link, Token(token), interest).map_err(|error| error.to_string());
        if let Err(error) = flushed.and(watched) {
            debug!(error, "a Bluetooth link has ended");
            self.end(token);
        }
    }

    fn on_up(&mut self, now: Timestamp, token: u64, remote: SocketAddr, outgoing: Outgoing) {
        let Some(open) = self.links.get_mut(&token) else { return };
        open.state = State::Up { remote, outgoing };
        open.since = now;
        debug!(device = %open.link.remote(), mtu = ?open.link.largest_datagram(), "a Bluetooth link is up");
        self.unheard.remove(&remote);
        self.changes.push(LinkChange::Up(remote));
    }

    /// Ends a link; the bond hears of it if it was the last one there.
    fn end(&mut self, token: u64) {
        let Some(ended) = self.links.remove(&token) else { return };
        if let State::Up { remote, .. } = ended.state
            && self.link_to(remote).is_none()
        {
            self.changes.push(LinkChange::Down(remote));
        }
    }

    /// Reads what a link has; the number of datagrams.
    fn read(&mut self, now: Timestamp, token: u64, sink: &mut Sink<'_>) -> usize {
        for count in 0..READS {
            let Some(open) = self.links.get_mut(&token) else { return count };
            let length = match open.link.receive(&mut self.buffer) {
                Ok(length) if length > 0 => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return count,
                ended => {
                    debug!(device = %open.link.remote(), ?ended, "a Bluetooth link has ended");
                    self.end(token);
                    return count;
                }
            };
            open.since = now;
            let Some(datagram) =
                self.buffer.get_mut(..length).filter(|bytes| bytes.len() <= usize::from(MAX_DATAGRAM))
            else {
                continue;
            };
            match &open.state {
                State::Up { remote, .. } => sink(*remote, Ecn::NotEct, datagram),
                State::Nameless => match name(datagram) {
                    Some(port) => {
                        let remote = of_device(open.link.remote(), port);
                        self.on_up(now, token, remote, Outgoing::default());
                    }
                    None => {
                        debug!(device = %open.link.remote(), "a Bluetooth link of somebody else");
                        self.end(token);
                    }
                },
                // Readable before it is there: it has failed.
                State::Calling { .. } => return count,
            }
        }
        READS
    }

    /// Ends links that are of no use any more.
    fn sweep(&mut self, now: Timestamp) {
        let useless = |open: &Open| {
            let allowed = match open.state {
                State::Calling { .. } => CALL_WITHIN,
                State::Nameless => NAME_WITHIN,
                State::Up { .. } => IDLE,
            };
            now.since(open.since) > allowed
        };
        let tokens: Vec<u64> =
            self.links.iter().filter(|(_, open)| useless(open)).map(|(token, _)| *token).collect();
        for token in tokens {
            if let Some(Open { state: State::Calling { remote, .. }, .. }) = self.links.get(&token) {
                self.note_unheard(now, *remote, &LinkError::OutOfReach);
            }
            self.end(token);
        }
    }
}

impl AdapterSocket for BluetoothSocket {
    fn send(&mut self, remote: SocketAddr, _ecn: Ecn, bytes: &[u8], segment: usize) -> Sent {
        let now = clock::now();
        self.sweep(now);
        let Some(token) = self.link_to(remote).or_else(|| self.call(now, remote)) else {
            return Sent::Dropped;
        };
        let Some(open) = self.links.get_mut(&token) else { return Sent::Dropped };
        if let State::Calling { waiting, .. } = &mut open.state {
            let room = MAX_WAITING.saturating_sub(waiting.len());
            waiting.extend(bytes.chunks(segment.max(1)).take(room).map(<[u8]>::to_vec));
            return Sent::Yes;
        }
        let State::Up { outgoing, .. } = &mut open.state else { return Sent::Dropped };
        let (mut sent, was_waiting) = (Sent::Yes, outgoing.bytes > 0);
        for datagram in bytes.chunks(segment.max(1)) {
            // Nothing overtakes what waits.
            let outcome =
                if outgoing.bytes > 0 { Err(LinkSendError::Full) } else { open.link.send(datagram) };
            match outcome {
                Ok(()) => open.since = now,
                Err(LinkSendError::Full) if outgoing.push(datagram) => {}
                Err(LinkSendError::Full) => sent = Sent::Dropped,
                Err(LinkSendError::TooLarge) => return Sent::TooLarge,
                Err(LinkSendError::Ended(error)) => {
                    debug!(%error, "a Bluetooth link has ended");
                    self.end(token);
                    return Sent::Dropped;
                }
            }
        }
        if outgoing.bytes > 0 && !was_waiting {
            self.flush(token);
        }
        sent
    }

    fn receive(&mut self, _buffer: &mut ReceiveBuffer, sink: &mut Sink<'_>) -> io::Result<usize> {
        let now = clock::now();
        self.sweep(now);
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.poller.wait(Some(Duration::ZERO), &mut ready);
        let mut count = 0;
        for one in &ready {
            match one.token {
                LISTENER => self.accept(now),
                Token(token) => {
                    let is_calling = self
                        .links
                        .get(&token)
                        .is_some_and(|open| matches!(open.state, State::Calling { .. }));
                    if is_calling && !one.writable {
                        continue;
                    }
                    if is_calling {
                        self.on_called(now, token);
                    } else {
                        if one.writable {
                            self.flush(token);
                        }
                        count += self.read(now, token, sink);
                    }
                }
            }
        }
        self.ready = ready;
        waited.map(|()| count)
    }

    fn carrier(&self) -> Carrier {
        Carrier::Bluetooth
    }

    fn take_changes(&mut self) -> Vec<LinkChange> {
        std::mem::take(&mut self.changes)
    }

    fn connected(&self) -> Vec<SocketAddr> {
        let up = self.links.values().filter_map(|open| match &open.state {
            State::Up { remote, .. } => Some(*remote),
            State::Calling { .. } | State::Nameless => None,
        });
        let mut all: Vec<SocketAddr> = up.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn local(&self) -> SocketAddr {
        of_device(self.device, self.port)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// The port in the first datagram of a link; `None` if it is none of this program's.
fn name(datagram: &[u8]) -> Option<u16> {
    let port = datagram.strip_prefix(&PREAMBLE)?;
    Some(u16::from_be_bytes(port.try_into().ok()?)).filter(|port| *port > 0)
}

/// A listener on a port that no other program has.
fn any_port(device: MacAddress) -> Result<(LinkListener, u16), BindError> {
    let own = (std::process::id() % 8_192) as u16;
    let mut refused = LinkError::Taken;
    for port in (0..PORTS_TO_TRY).map(|turn| FIRST_PORT + own + turn * 101) {
        match LinkListener::bind(device, Multiplexer::of_port(port)) {
            Ok(listener) => return Ok((listener, port)),
            Err(LinkError::Taken) => {}
            Err(error) => {
                refused = error;
                break;
            }
        }
    }
    Err(refused.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_keeps_room_for_acknowledgements() {
        let mut outgoing = Outgoing::default();
        let kept = (0..100).filter(|_| outgoing.push(&[0; 1_500])).count();
        assert_eq!(kept, OUTGOING / 1_500);
        assert!(outgoing.push(&[0; 40]));
        let kept = (0..1_000).filter(|_| outgoing.push(&[0; 40])).count();
        assert!(kept < 300 && outgoing.bytes <= OUTGOING + ROOM_FOR_SHORT, "{kept}");
    }

    #[test]
    fn a_link_begins_with_a_port_or_is_somebody_elses() {
        assert_eq!(name(&[b'b', 1, 0x12, 0x02]), Some(4_610));
        for garbage in
            [&[][..], b"b\x01", b"b\x01\x12", b"b\x01\0\0", b"b\x02\x12\x02", b"b\x01\x12\x02\0", b"GET "]
        {
            assert_eq!(name(garbage), None, "{garbage:?}");
        }
    }
}
