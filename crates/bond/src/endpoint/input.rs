//! What comes in: datagrams, packets of any0, and time.

use super::slot::Succession;
use super::{Endpoint, EndpointEvent, SessionId};
use crate::address::Address;
use crate::session::{Session, SessionEvent};
use std::cmp::Reverse;
use units::Timestamp;
use wire::datagram::{DataHeader, Datagram};
use wire::frame::CLOSE_REPLACED;
use wire::inner::{Ecn, Headers};

impl Endpoint {
    /// Takes in one datagram from a carrier; its contents are overwritten.
    pub fn handle_datagram(&mut self, now: Timestamp, from: Address, ecn: Ecn, datagram: &mut [u8]) {
        match Datagram::parse(datagram) {
            Ok(Datagram::Data(header)) => {
                self.lend_streams(&header, |endpoint| endpoint.on_data(now, from, ecn, &header, datagram));
            }
            Ok(Datagram::Initiation(initiation)) => {
                let covered = datagram.len() - wire::datagram::MAC_LEN;
                let signed = datagram.get(..covered).unwrap_or_default();
                self.on_initiation(now, from, &initiation, signed);
            }
            Ok(Datagram::Response(response)) => self.on_response(now, from, &response),
            Ok(Datagram::Retry(retry)) => self.on_retry(now, from, &retry),
            Ok(Datagram::Reset(reset)) => self.on_reset(now, from, &reset),
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn on_data(&mut self, now: Timestamp, from: Address, ecn: Ecn, header: &DataHeader, datagram: &mut [u8]) {
        let Some(&id) = self.by_index.get(&header.receiver_index) else {
            self.on_unknown_session(now, from, header.receiver_index, datagram.len());
            return;
        };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(session) = slot.session.as_mut().filter(|_| slot.own_index == Some(header.receiver_index))
        else {
            return;
        };
        let outcome = session.handle_data(now, from, ecn, header, datagram, &self.config.key);
        if outcome.is_err() {
            session.count_rejected();
            self.counters.rejected += 1;
        }
        self.after_input(now, id);
    }

    /// Takes in one inner packet from any0. Returns false if it was dropped: no such session, not an IP packet, or a full queue.
    pub fn handle_packet(&mut self, now: Timestamp, session: SessionId, packet: &[u8]) -> bool {
        let Ok(headers) = wire::inner::parse(packet) else { return false };
        self.handle_parsed_packet(now, session, &headers, packet)
    }

    /// As [`Endpoint::handle_packet`], for an owner that has read the headers already.
    pub fn handle_parsed_packet(
        &mut self,
        now: Timestamp,
        session: SessionId,
        headers: &Headers,
        packet: &[u8],
    ) -> bool {
        let Some(slot) = self.slots.get_mut(&session) else { return false };
        let Some(established) = &mut slot.session else { return false };
        let outcome = established.handle_packet(now, headers, packet.to_vec());
        if !slot.ready {
            slot.ready = true;
            self.ready.push_back(session);
        }
        outcome == crate::flows::Queueing::Queued
    }

    /// Time has come to [`Endpoint::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if slot.timer != Some(at) {
                continue;
            }
            slot.timer = None;
            if let Some(session) = &mut slot.session {
                session.handle_timeout(now, &self.config.key);
            }
            self.continue_handshake(now, id);
            self.after_input(now, id);
        }
        self.incoming.expire(now);
    }

    pub(super) fn after_input(&mut self, now: Timestamp, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let mut closed = None;
        if let Some(session) = &mut slot.session
            && session.confirmed
            && !slot.announced
        {
            slot.announced = true;
            slot.answer = None;
            self.on_confirmed(id);
        }
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if let Some(session) = &mut slot.session {
            while let Some(event) = session.poll_event() {
                if let SessionEvent::ClosedByPeer(reason) = event {
                    closed = Some(reason);
                }
                self.events.push_back(EndpointEvent::Session { session: id, event });
            }
            if !slot.delivering {
                slot.delivering = true;
                self.delivering.push_back(id);
            }
        }
        if let Some(reason) = closed {
            let peer = slot.peer;
            if let Some(streams) = slot.session.as_mut().and_then(Session::take_streams) {
                self.remains.insert(id, streams.into_remains());
            }
            self.events.push_back(EndpointEvent::Closed { session: id, peer, reason });
            self.forget(id);
            return;
        }
        self.begin_again_if_stalled(now, id);
        self.touch(id);
    }

    /// Responder: the peer has used the keys. An older session with it is over.
    fn on_confirmed(&mut self, id: SessionId) {
        let Some(slot) = self.slots.get(&id) else { return };
        let (peer, succession) = (slot.peer, slot.succession);
        match succession {
            Succession::Sole => {}
            Succession::Beside | Succession::Of(_) => {
                if let Succession::Of(older) = succession {
                    self.succeed(id, older, peer);
                }
                self.events.push_back(EndpointEvent::Connected { session: id, peer, payload: Vec::new() });
                return;
            }
        }
        if let Some(older) = self.by_peer.insert(peer, id).filter(|&older| older != id) {
            self.events.push_back(EndpointEvent::Closed { session: older, peer, reason: CLOSE_REPLACED });
            self.close(older, CLOSE_REPLACED);
        }
        self.events.push_back(EndpointEvent::Connected { session: id, peer, payload: Vec::new() });
    }
}
