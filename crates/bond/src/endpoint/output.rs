//! What goes out: datagrams, packets for any0, events, and when to look again.

use super::{Endpoint, EndpointEvent, STALL_PATIENCE, SessionId};
use crate::session::Session;
use crate::session::transmit::Transmit;
use std::cmp::Reverse;
use units::Timestamp;
use wire::inner::Ecn;

impl Endpoint {
    /// The next datagrams to send: up to `max_segments` of equal size for one address, in `buffer`.
    pub fn poll_transmit(
        &mut self,
        now: Timestamp,
        buffer: &mut Vec<u8>,
        max_segments: usize,
    ) -> Option<Transmit> {
        if let Some((address, message)) = self.outbox.pop_front() {
            buffer.clear();
            buffer.extend_from_slice(&message);
            let size = buffer.len();
            return Some(Transmit { address, ecn: Ecn::NotEct, size, segment_size: size });
        }
        while let Some(&id) = self.ready.front() {
            let Some(slot) = self.slots.get_mut(&id) else {
                self.ready.pop_front();
                continue;
            };
            let transmit =
                slot.session.as_mut().and_then(|session| session.poll_transmit(now, buffer, max_segments));
            if transmit.is_some() {
                // Sessions take turns.
                self.ready.rotate_left(1);
                return transmit;
            }
            self.ready.pop_front();
            slot.ready = false;
            if slot.session.as_ref().is_some_and(Session::is_closed) {
                self.forget(id);
                continue;
            }
            self.set_timer(now, id);
        }
        None
    }

    /// The next inner packet for any0, and the session that it came by.
    pub fn poll_packet(&mut self) -> Option<(SessionId, Vec<u8>)> {
        while let Some(&id) = self.delivering.front() {
            let slot = self.slots.get_mut(&id);
            if let Some(slot) = slot {
                if let Some(packet) = slot.session.as_mut().and_then(Session::poll_packet) {
                    return Some((id, packet));
                }
                slot.delivering = false;
            }
            self.delivering.pop_front();
        }
        None
    }

    /// The next thing the owner should know.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        if let Some(closed) = self.told_closed.take() {
            self.remains.remove(&closed);
        }
        let event = self.events.pop_front();
        if let Some(EndpointEvent::Closed { session, .. }) = event {
            self.told_closed = Some(session);
        }
        event
    }

    /// When to call [`Endpoint::handle_timeout`]; ask after [`Endpoint::poll_transmit`] has returned `None`.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if self.slots.get(&id).is_some_and(|slot| slot.timer == Some(at)) {
                return Some(at);
            }
            self.timers.pop();
        }
        None
    }

    fn set_timer(&mut self, now: Timestamp, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let session = slot.session.as_ref().and_then(|session| session.poll_timeout(now));
        let handshake = slot.connecting.as_ref().map(|connecting| connecting.next_try());
        // Only an initiator can begin again.
        let stalled = slot.session.as_ref().filter(|_| slot.connecting.is_none() && slot.renewal.is_some());
        let stalled = stalled.and_then(Session::stalled_since).map(|since| since + STALL_PATIENCE);
        let next = [session, handshake, stalled].into_iter().flatten().min();
        if next != slot.timer {
            slot.timer = next;
            self.timers.extend(next.map(|at| Reverse((at, id))));
        }
    }
}
