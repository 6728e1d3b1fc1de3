//! Taking in packets.

use super::{MAX_HOLD, MAX_RECEIVERS, MIN_HOLD, REKEY_PROLOGUE, Role, Session, SessionEvent};
use crate::address::Address;
use crate::handshake::Handshake;
use crate::keys::PrivateKey;
use crate::path::Others;
use crate::unit::Control;
use policy::PathStatus;
use rand::RngCore;
use std::collections::VecDeque;
use std::time::Duration;
use units::{BitRate, PathId, Timestamp};
use wire::datagram::{DataHeader, expand_packet_number};
use wire::frame::{
    Ack, Arrived, Data, Frame, Frames, GaveUp, PathStatus as PathStatusFrame, Rekey, Repair, STATUS_GONE,
};
use wire::inner::Ecn;

/// Bytes of UDP payload that a peer's path is searched up to when nothing is known of the interface.
const DEFAULT_MTU_LIMIT: u16 = 1_472;

/// Inner packets for any0, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    waiting: VecDeque<Vec<u8>>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Delivered {
    fn push(&mut self, packet: Vec<u8>) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
        self.waiting.push_back(packet);
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Rejected {
    #[error("not authentic")]
    NotAuthentic,
    #[error("arrived before, or too old to tell")]
    Replayed,
    #[error("path is not open here")]
    UnknownPath,
    #[error("frames make no sense")]
    Frames,
}

impl Session {
    /// Takes in a data packet. `header_len` bytes of `datagram` are the header; the rest is opened in place.
    pub(crate) fn handle_data(
        &mut self,
        now: Timestamp,
        from: Address,
        ecn: Ecn,
        header: &DataHeader,
        datagram: &mut [u8],
        own: &PrivateKey,
    ) -> Result<(), Rejected> {
        let size = datagram.len();
        let known = self.paths.iter().position(|path| path.id == header.path);
        if known.is_none() && (self.role == Role::Initiator || self.path_id_used(header.path)) {
            return Err(Rejected::UnknownPath);
        }
        let largest = known.and_then(|index| self.paths.get(index)).and_then(|path| path.received.largest());
        let number = expand_packet_number(header.truncated_number, header.number_len, largest);
        if known.and_then(|index| self.paths.get(index)).is_some_and(|path| !path.received.is_new(number)) {
            return Err(Rejected::Replayed);
        }
        let (head, sealed) = datagram.split_at_mut_checked(header.len()).ok_or(Rejected::Frames)?;
        let plain = self
            .keys
            .open(now, header.epoch, header.path, number, head, sealed)
            .map_err(|_| Rejected::NotAuthentic)?;
        self.confirmed = true;
        let index = match known {
            Some(index) => index,
            None => {
                let index = self.open_path(now, header.path, from, DEFAULT_MTU_LIMIT);
                if self.answered.contains(&from) {
                    self.validate_path(from);
                }
                index.ok_or(Rejected::UnknownPath)?
            }
        };
        self.note_origin(now, index, from, number > largest.unwrap_or(0) || largest.is_none());
        let mut elicits = false;
        let mut outcome = Ok(());
        for frame in Frames::new(plain) {
            let Ok(frame) = frame else {
                outcome = Err(Rejected::Frames);
                break;
            };
            elicits |= !matches!(frame, Frame::Ack(_) | Frame::Close { .. });
            // A frame may have closed or removed the path.
            let Some(index) = self.paths.iter().position(|path| path.id == header.path) else { break };
            self.handle_frame(now, index, frame, own);
        }
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == header.path) {
            // A straggler from an earlier address gives the present one no credit.
            let credit = if path.address == from { size } else { 0 };
            path.on_datagram_received(now, size, credit);
            let delay = path.acknowledgement_delay(now);
            // Before our end acknowledges, so that the peer's congestion control takes it for the path's word.
            let mut marked = ecn;
            // Over TCP the field is the kernel's.
            if !path.address.carrier.properties().congestion_controlled {
                if let Some(trouble) = path.ecn.on_arrival(ecn) {
                    self.events.push_back(SessionEvent::Ecn(path.address.network, trouble));
                }
                marked = path.received.marked(ecn);
            }
            path.counters.own_marks += u64::from(marked != ecn);
            path.received.record(now, number, size, marked, elicits, delay);
        }
        outcome
    }

    /// A packet came from `from`: if that is news and the packet is the newest, the peer has moved there.
    fn note_origin(&mut self, now: Timestamp, index: usize, from: Address, newest: bool) {
        let nonce = self.random.next_u64().to_be_bytes();
        let Some(path) = self.paths.get_mut(index) else { return };
        if path.address == from || !newest {
            return;
        }
        // Only another port is a NAT's new binding; the way stays the same.
        let same_way = path.address.network == from.network && path.address.remote.ip() == from.remote.ip();
        path.address = from;
        path.start_challenge(now, nonce);
        if !same_way {
            path.moved(now);
        }
        self.events.push_back(SessionEvent::PathMoved(from.network));
    }

    fn handle_frame(&mut self, now: Timestamp, index: usize, frame: Frame<'_>, own: &PrivateKey) {
        match frame {
            Frame::Ping => {}
            Frame::Ack(ack) => self.handle_ack(now, index, &ack),
            Frame::Challenge(nonce) => {
                if let Some(path) = self.paths.get_mut(index) {
                    path.pending_response = Some(nonce);
                }
            }
            Frame::Response(nonce) => self.handle_response(index, nonce),
            Frame::PathStatus(status) => self.handle_path_status(now, status),
            Frame::PathAbandon(path) => self.handle_path_abandon(now, path),
            Frame::GaveUp(gave_up) => self.handle_gave_up(now, gave_up),
            Frame::Hold { sequence, micros } => {
                if sequence > self.hold_sequence {
                    self.hold_sequence = sequence;
                    self.hold = Duration::from_micros(micros).clamp(MIN_HOLD, MAX_HOLD);
                }
            }
            Frame::Rekey(rekey) => self.handle_rekey(now, &rekey, own),
            Frame::Close { reason } => self.events.push_back(SessionEvent::ClosedByPeer(reason)),
            Frame::Repair(repair) => self.handle_repair(now, &repair),
            Frame::Message(bytes) => self.events.push_back(SessionEvent::Message(bytes.to_vec())),
            Frame::Arrived(arrived) => self.handle_arrived(now, &arrived),
            Frame::Stream(frame) => self.handle_stream(now, &frame),
            Frame::Data(data) => self.handle_inner(now, &data),
        }
    }

    fn handle_ack(&mut self, now: Timestamp, index: usize, ack: &Ack) {
        let siblings = self.siblings();
        let others = Others::of(now, &self.paths, index);
        let Some(path) = self.paths.get_mut(index) else { return };
        let before = path.state;
        let progress = path.on_ack(now, ack, &siblings, others);
        self.digest(now, index, before, progress);
    }

    fn handle_response(&mut self, index: usize, nonce: [u8; 8]) {
        let Some(path) = self.paths.get_mut(index) else { return };
        if path.challenge.is_none_or(|challenge| challenge.nonce != nonce) {
            return;
        }
        let fresh = path.state != super::PathState::Usable;
        path.set_validated();
        let network = path.address.network;
        if fresh {
            self.events.push_back(SessionEvent::PathUp(network));
            self.end_stall();
        }
    }

    fn handle_path_status(&mut self, now: Timestamp, frame: PathStatusFrame) {
        let Some(index) = self.paths.iter().position(|path| path.id == frame.path) else { return };
        let Some(path) = self.paths.get_mut(index) else { return };
        if path.peer_status_sequence.is_some_and(|seen| seen >= frame.sequence) {
            return;
        }
        path.peer_status_sequence = Some(frame.sequence);
        if frame.status == STATUS_GONE {
            let before = path.state;
            let (in_flight, was_usable) = (path.sent.in_flight(), before == super::PathState::Usable);
            let progress = path.on_gone(now);
            if was_usable {
                self.strand(now, in_flight);
            }
            self.digest(now, index, before, progress);
            return;
        }
        path.priority = frame.priority;
        path.peer_limit = (frame.limit > 0).then(|| BitRate(frame.limit.saturating_mul(8)));
        path.peer_status = match frame.status {
            0 => PathStatus::Active,
            1 => PathStatus::Backup,
            _ => PathStatus::Off,
        };
        path.note_wish();
        path.take_wish(now);
    }

    /// What has arrived need not be sent again. Inner senders will have as much under way as before, so room is made for all of it.
    fn handle_arrived(&mut self, now: Timestamp, arrived: &Arrived) {
        let Some(index) = self.paths.iter().position(|path| path.id == arrived.path) else { return };
        let Some(path) = self.paths.get_mut(index) else { return };
        let in_flight = path.sent.in_flight();
        let was_usable = path.state == super::PathState::Usable;
        let progress = path.on_arrived(now, &arrived.ranges);
        self.settle(&progress.arrived);
        self.recall(index, &progress);
        if was_usable {
            self.strand(now, in_flight);
        }
    }

    fn handle_path_abandon(&mut self, now: Timestamp, id: PathId) {
        // The initiator decides about paths; one that a responder gives up is kept and will fall silent.
        if self.role == Role::Initiator {
            return;
        }
        let Some(at) = self.paths.iter().position(|path| path.id == id) else { return };
        let mut path = self.paths.remove(at);
        self.bottlenecks.remove(path.id);
        let losses = path.go_down();
        self.requeue(now, losses.items, None);
        self.events.push_back(SessionEvent::PathAbandoned(path.address.network));
        self.check_stall(now);
    }

    fn handle_inner(&mut self, now: Timestamp, data: &Data<'_>) {
        self.last_data_at = Some(now);
        if !self.receivers.contains_key(&data.flow) && self.receivers.len() >= MAX_RECEIVERS {
            self.forget_a_receiver();
        }
        let receiver = self.receivers.entry(data.flow).or_default();
        let (held_before, load) = (receiver.held(), receiver.load());
        receiver.limit(self.load);
        let delivered = &mut self.delivered;
        receiver.on_data(now, data, &mut self.tally, &mut |packet| delivered.push(packet));
        self.load.replace(load, receiver.load());
        if held_before == 0 && receiver.held() > 0 {
            self.holding.push(data.flow);
        }
    }

    fn handle_repair(&mut self, now: Timestamp, repair: &Repair<'_>) {
        let Some(receiver) = self.receivers.get_mut(&repair.flow) else { return };
        let load = receiver.load();
        receiver.limit(self.load);
        let delivered = &mut self.delivered;
        receiver.on_repair(now, repair, &mut self.tally, &mut |packet| delivered.push(packet));
        self.load.replace(load, receiver.load());
        if receiver.held() > 0 && !self.holding.contains(&repair.flow) {
            self.holding.push(repair.flow);
        }
    }

    fn handle_gave_up(&mut self, now: Timestamp, gave_up: GaveUp) {
        let Some(receiver) = self.receivers.get_mut(&gave_up.flow) else { return };
        let load = receiver.load();
        receiver.limit(self.load);
        let delivered = &mut self.delivered;
        receiver.on_gave_up(now, gave_up, &mut self.tally, &mut |packet| delivered.push(packet));
        self.load.replace(load, receiver.load());
    }

    /// Lets go what was held long enough.
    pub(super) fn release_held(&mut self, now: Timestamp) {
        let hold = self.hold;
        let (delivered, tally) = (&mut self.delivered, &mut self.tally);
        let receivers = &mut self.receivers;
        self.holding.retain(|id| {
            let Some(receiver) = receivers.get_mut(id) else { return false };
            receiver.release(now, hold, tally, &mut |packet| delivered.push(packet));
            receiver.held() > 0
        });
    }

    /// Makes room by forgetting the receiving flow that was idle longest and holds nothing back.
    fn forget_a_receiver(&mut self) {
        let idlest = self
            .receivers
            .iter()
            .filter(|(_, receiver)| receiver.held() == 0)
            .min_by_key(|(id, receiver)| (receiver.last_used, **id))
            .map(|(id, _)| *id);
        if let Some(id) = idlest {
            self.receivers.remove(&id);
        }
    }

    pub(super) fn handle_rekey(&mut self, now: Timestamp, rekey: &Rekey<'_>, own: &PrivateKey) {
        let expected = self.keys.epoch().wrapping_add(1);
        if rekey.epoch != expected {
            return;
        }
        match (rekey.step, self.role) {
            // A repeat of what was answered must not bring forth other keys than the answer did.
            (0, Role::Responder) if self.answered_rekey == rekey.noise => {}
            (0, Role::Responder) => {
                let opened = Handshake::open(own, REKEY_PROLOGUE, rekey.noise, &mut self.random);
                let Some(opened) = opened.ok().filter(|opened| opened.peer == self.peer) else { return };
                if let Ok((noise, raw)) = opened.handshake.answer(&[rekey.epoch]) {
                    self.keys.prepare(now, &raw);
                    self.answered_rekey = rekey.noise.to_vec();
                    self.control.push(Control::Rekey { step: 1, epoch: rekey.epoch, noise });
                }
            }
            (1, Role::Initiator) => {
                let Some((epoch, handshake)) = &mut self.rekey else { return };
                if *epoch != rekey.epoch {
                    return;
                }
                if let Ok((_, raw)) = handshake.finish(rekey.noise) {
                    self.keys.advance(now, &raw);
                    self.rekey = None;
                    self.events.push_back(SessionEvent::Rekeyed);
                }
            }
            _ => {}
        }
    }
}
