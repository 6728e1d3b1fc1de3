//! Making packets: what must go out on a path, then what the scheduler chooses, as late as possible.

use super::{Session, Wanted};
use crate::address::Address;
use crate::congestion::Controller;
use crate::path::mtu::BASE_MTU;
use crate::path::sent::{Items, SentPacket};
use crate::path::{Path, PathState};
use crate::scheduler::{Choice, Demand, PathView};
use crate::unit::{DataUnit, Item, Payload};
use policy::FlowClass;
use units::{BitRate, Bytes, Timestamp};
use wire::datagram::{DataHeader, MAX_HEADER_LEN, TAG_LEN, packet_number_len};
use wire::frame::{Ack, Data, Frame, Part, Repair};
use wire::inner::Ecn;

/// What a packet adds to one inner packet, at most, bytes.
pub(crate) const DATA_OVERHEAD: usize = MAX_HEADER_LEN + TAG_LEN + 7;
/// What a packet adds to a part of an inner packet, at most.
const PART_OVERHEAD: usize = MAX_HEADER_LEN + TAG_LEN + Data::MAX_OVERHEAD;
/// Marks a session that has said goodbye.
pub(super) const CLOSED: u8 = u8::MAX;
/// Bytes in flight on a path above which flows carry whole sequence numbers.
const LONG_NUMBER_BYTES: u64 = 8_000_000;
/// Bytes in one batch: the kernel takes no more than an IP packet's worth.
const MAX_BATCH: usize = 65_000;
/// Ranges in an acknowledgement that rides along.
pub(super) const PIGGYBACK_RANGES: usize = 4;
/// Who is held to less than this is dear or slow; more is a part of a good one, which others want as well.
const LITTLE: BitRate = BitRate(2_000_000);
/// A challenge this often unanswered is tried without ECN: some networks drop what is marked ECN-capable.
const CHALLENGES_WITH_ECN: u32 = 3;

/// Datagrams to send: `size` bytes of the buffer, cut into `segment_size` pieces (the last may be shorter).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub address: Address,
    /// ECN codepoint of the outer header.
    pub ecn: Ecn,
    /// Bytes in all.
    pub size: usize,
    /// Bytes of each datagram.
    pub segment_size: usize,
}

/// A packet under construction.
pub(super) struct Draft {
    pub(super) header_from: usize,
    pub(super) plain_from: usize,
    pub(super) number: u64,
    pub(super) items: Items,
    pub(super) eliciting: bool,
    pub(super) mtu_probe: bool,
    pub(super) paced: bool,
}

/// A packet to send and the path for it.
pub(super) struct Pick {
    pub(super) path: usize,
    pub(super) source: Source,
}

pub(super) enum Source {
    Repeat(usize),
    Urgent,
    Bulk { depth: Bytes },
    Stream { depth: Bytes },
}

impl Session {
    /// Fills `buffer` with the next datagrams for one path: up to `max_segments` of equal size. `None` if nothing is to be sent now.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Timestamp,
        buffer: &mut Vec<u8>,
        max_segments: usize,
    ) -> Option<Transmit> {
        buffer.clear();
        if let Some(transmit) = self.poll_path_control(now, buffer) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_control(now, buffer) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_notices(now, buffer) {
            return Some(transmit);
        }
        self.poll_data(now, buffer, max_segments)
    }

    /// What belongs to one path: challenges and their answers, due acknowledgements, pings, packet size probes, goodbyes.
    fn poll_path_control(&mut self, now: Timestamp, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let closing = self.closing.filter(|&reason| reason != CLOSED);
        for index in 0..self.paths.len() {
            let path = self.paths.get_mut(index)?;
            if !path.may_speak() {
                continue;
            }
            let ack_due = path.received.ack_due().is_some_and(|due| due <= now);
            let response = path.pending_response.take();
            let challenge = path.take_challenge(now);
            let ping = std::mem::take(&mut path.ping_wanted);
            if ack_due || response.is_some() || challenge.is_some() || ping || closing.is_some() {
                let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
                // To an address that is not proved no more than fits the budget.
                let ranges = if path.is_validated() { usize::MAX } else { PIGGYBACK_RANGES };
                put_ack(path, now, ranges, buffer);
                for frame in
                    [response.map(Frame::Response), challenge.map(Frame::Challenge)].into_iter().flatten()
                {
                    frame.put(buffer);
                    draft.eliciting = true;
                }
                if let Some(reason) = closing {
                    Frame::Close { reason }.put(buffer);
                    // Nothing more is said here.
                    path.state = PathState::Down;
                }
                let pad = challenge.is_some() && path.amplification_budget() >= u64::from(BASE_MTU);
                if ping {
                    draft.eliciting = true;
                    Frame::Ping.put(buffer);
                    self.add_probe_data(index, &mut draft, buffer);
                }
                let least = draft.header_from + usize::from(BASE_MTU) - TAG_LEN;
                if pad && buffer.len() < least {
                    // Shows that the path carries the least size, and lets the peer answer at length.
                    buffer.resize(least, 0);
                }
                return self.finish_single(now, index, draft, buffer);
            }
            if path.state == PathState::Usable
                && path.is_validated()
                && let Some(size) = path.mtu.next_probe(now)
            {
                let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
                Frame::Ping.put(buffer);
                buffer.resize(draft.header_from + usize::from(size) - TAG_LEN, 0);
                draft.eliciting = true;
                draft.mtu_probe = true;
                return self.finish_single(now, index, draft, buffer);
            }
        }
        if closing.is_some() {
            self.closing = Some(CLOSED);
        }
        None
    }

    /// If no other path works, the probe of a silent one may as well carry what was lost.
    fn add_probe_data(&mut self, index: usize, draft: &mut Draft, buffer: &mut Vec<u8>) {
        let suspect = self.paths.get(index).is_some_and(|path| path.state == PathState::Suspect);
        let proved = self.paths.get(index).is_some_and(Path::is_validated);
        if !suspect || !proved || self.data_paths().next().is_some() {
            return;
        }
        let room = self.paths.get(index).map_or(0, |path| usize::from(mtu_of(path)));
        let used = buffer.len() - draft.header_from;
        let fits = |unit: &DataUnit| used + unit.len() + DATA_OVERHEAD <= room && unit.part.is_none();
        if self.repeats.front().is_some_and(|(unit, _)| fits(unit))
            && let Some((unit, _)) = self.repeats.pop_front()
        {
            let unit = unit.sent_again();
            put_unit(&unit, true, buffer);
            draft.items.push(Item::Data(unit));
        }
    }

    /// Control frames that any path may carry.
    fn poll_control(&mut self, now: Timestamp, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let first = self.control.max_len()?;
        let index = self.best_path()?;
        let path = self.paths.get_mut(index)?;
        if self.control.only_messages() && path.sent.in_flight() + first as u64 > path.controller.window() {
            // The owner decides how many there are: they keep to the window as data does.
            return None;
        }
        let room = usize::from(mtu_of(path)) - TAG_LEN;
        let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
        put_ack(path, now, PIGGYBACK_RANGES, buffer);
        while self.control.max_len().is_some_and(|len| buffer.len() - draft.header_from + len <= room)
            && let Some(control) = self.control.pop()
        {
            control.frame().put(buffer);
            draft.items.push(Item::Control(control));
        }
        draft.eliciting = true;
        self.finish_single(now, index, draft, buffer)
    }

    /// The working path with the least round-trip time among those that carry data freely; whatever its status if there are none. One that stands by or is
    /// held back is dear or slow, and seems near because nothing waits in it.
    pub(super) fn best_path(&self) -> Option<usize> {
        let wanted = self.wanted();
        let proved = |path: &Path| path.state == PathState::Usable && path.is_validated();
        let usable = self.paths.iter().enumerate().filter(|(_, path)| proved(path));
        let held = |path: &Path| path.limit().is_some_and(|limit| limit < LITTLE);
        let key = |path: &Path| (!wanted.admits(path), held(path), path.rtt.smoothed());
        usable.min_by_key(|(_, path)| key(path)).map(|(index, _)| index)
    }

    fn poll_data(&mut self, now: Timestamp, buffer: &mut Vec<u8>, max_segments: usize) -> Option<Transmit> {
        if self.repeats.is_empty() && self.flows.queued_packets() == 0 && !self.has_stream_data() {
            self.note_idle_paths(now);
            return None;
        }
        let mut views = self.views(now);
        self.hasten(now, &mut views);
        let mut first: Option<(usize, usize)> = None;
        for _ in 0..max_segments {
            let Some(pick) = self.pick(&views) else { break };
            if let Some((path, segment)) = first
                && (pick.path != path
                    || buffer.len() + segment > MAX_BATCH
                    || self.predicted_size(&pick) != Some(segment))
            {
                break;
            }
            let before = buffer.len();
            self.send_pick(now, &pick, first.is_none(), buffer);
            let size = buffer.len() - before;
            if size == 0 {
                break;
            }
            first.get_or_insert((pick.path, size));
            self.refresh_view(now, &mut views, pick.path);
        }
        let Some((index, segment_size)) = first else {
            self.note_idle_paths(now);
            return None;
        };
        let path = self.paths.get(index)?;
        Some(Transmit { address: path.address, ecn: ecn_of(path), size: buffer.len(), segment_size })
    }

    /// Paths that could send but have nothing to: their next rate samples are only lower bounds.
    fn note_idle_paths(&mut self, now: Timestamp) {
        for path in &mut self.paths {
            if path.state == PathState::Usable && path.ready_at().is_some_and(|at| at <= now) {
                path.note_application_limited();
            }
        }
    }

    /// What the scheduler sees: (index of the path, view).
    fn views(&self, now: Timestamp) -> Vec<(usize, PathView)> {
        let wanted: Wanted = self.wanted();
        let admitted = self.paths.iter().enumerate().filter(|(_, path)| wanted.admits(path));
        admitted.map(|(index, path)| (index, view_of(now, path))).collect()
    }

    /// Lets paths go faster than their estimates where what waits has no other way: a path with a free pace that would take
    /// it soon comes first, or an inner sender would never find that one.
    fn hasten(&mut self, now: Timestamp, views: &mut [(usize, PathView)]) {
        let all: Vec<PathView> = views.iter().map(|(_, view)| *view).collect();
        for (at, (index, view)) in views.iter_mut().enumerate() {
            let Some(path) = self.paths.get_mut(*index) else { continue };
            let size = Bytes(u64::from(path.mtu.current()));
            path.set_hastened(path.may_hasten() && !self.config.scheduler.overflows(&all, at, size));
            *view = view_of(now, path);
        }
    }

    fn refresh_view(&self, now: Timestamp, views: &mut [(usize, PathView)], index: usize) {
        let Some(path) = self.paths.get(index) else { return };
        if let Some((_, view)) = views.iter_mut().find(|(at, _)| *at == index) {
            *view = view_of(now, path);
        }
    }

    /// The next packet and its path: repeats first, then sparse flows, then bulk.
    fn pick(&mut self, views: &[(usize, PathView)]) -> Option<Pick> {
        if views.iter().all(|(_, view)| !view.sendable) {
            return None;
        }
        if let Some(pick) = self.pick_repeat(views) {
            return Some(pick);
        }
        let all: Vec<PathView> = views.iter().map(|(_, view)| *view).collect();
        let scheduler = self.config.scheduler;
        if let Some(size) = self.flows.urgent_len() {
            let demand = Demand::Urgent { size: Bytes((size + DATA_OVERHEAD) as u64) };
            if let Some(Choice { path, .. }) = scheduler.choose(&all, demand) {
                return Some(Pick { path: views.get(path)?.0, source: Source::Urgent });
            }
        }
        if self.is_turn_of_streams()
            && let Some(pick) = self.pick_stream(views, &all)
        {
            return Some(pick);
        }
        let Some(len) = self.flows.bulk_len() else { return self.pick_stream(views, &all) };
        let size = Bytes((len + DATA_OVERHEAD) as u64);
        let demand = Demand::Bulk { size, queued: Bytes(self.flows.bulk_bytes()) };
        let Choice { path, depth } = scheduler.choose(&all, demand)?;
        Some(Pick { path: views.get(path)?.0, source: Source::Bulk { depth } })
    }

    /// The first repeat that some path should take now. Few are looked at: they differ only in the path they must avoid.
    fn pick_repeat(&self, views: &[(usize, PathView)]) -> Option<Pick> {
        const LOOKED_AT: usize = 4;
        for (at, (unit, not_on)) in self.repeats.iter().enumerate().take(LOOKED_AT) {
            let barred = |index: usize| self.paths.get(index).map(|path| path.id) == *not_on;
            let others = views.iter().any(|(index, _)| !barred(*index));
            let open: Vec<(usize, PathView)> =
                views.iter().filter(|(index, _)| !others || !barred(*index)).copied().collect();
            let allowed: Vec<PathView> = open.iter().map(|(_, view)| *view).collect();
            let demand = Demand::Urgent { size: Bytes((unit.len() + DATA_OVERHEAD) as u64) };
            if let Some(Choice { path, .. }) = self.config.scheduler.choose(&allowed, demand) {
                return Some(Pick { path: open.get(path)?.0, source: Source::Repeat(at) });
            }
        }
        None
    }

    /// Bytes of the datagram that a pick would make if it holds one whole bulk packet and nothing else; `None` for others.
    fn predicted_size(&mut self, pick: &Pick) -> Option<usize> {
        let depth = match pick.source {
            Source::Bulk { depth } => depth,
            Source::Stream { depth } => return self.predicted_stream_size(pick.path, depth),
            Source::Repeat(_) | Source::Urgent => return None,
        };
        let (flow, sequence, len) = self.flows.peek_bulk(depth.0)?;
        let path = self.paths.get(pick.path)?;
        let long = self.wants_long_number(path, flow, sequence);
        let header = 6 + usize::from(number_len(path));
        let size = header + Data::overhead(long, false, false) + len + TAG_LEN;
        (len + DATA_OVERHEAD <= usize::from(mtu_of(path))).then_some(size)
    }

    /// Whether a packet's sequence number must be sent whole.
    fn wants_long_number(&self, path: &Path, flow: u16, sequence: u32) -> bool {
        path.sent.in_flight() > LONG_NUMBER_BYTES || self.flows.needs_long_number(flow, sequence)
    }

    fn send_pick(&mut self, now: Timestamp, pick: &Pick, may_acknowledge: bool, buffer: &mut Vec<u8>) {
        let (unit, repeat) = match pick.source {
            Source::Stream { depth } => {
                self.send_stream(now, pick.path, depth, may_acknowledge, buffer);
                return;
            }
            Source::Repeat(at) => (self.repeats.remove(at).map(|(unit, _)| unit.sent_again()), true),
            Source::Urgent => (self.flows.take_urgent(), false),
            Source::Bulk { depth } => (self.flows.take_bulk(depth.0), false),
        };
        let Some(unit) = unit else { return };
        self.count_packet(unit.len());
        let Some(path) = self.paths.get(pick.path) else { return };
        let room = usize::from(mtu_of(path));
        let long = repeat || self.wants_long_number(path, unit.flow, unit.sequence);
        let unit = match cut_to(unit, room) {
            Cut::Whole(unit) => unit,
            Cut::Split(first, rest) => {
                for part in rest.into_iter().rev() {
                    self.repeats.push_front((part, None));
                }
                first
            }
            // A repair that does not fit is not worth splitting.
            Cut::TooLarge => return,
        };
        if (unit.duplicate || self.config.scheduler.duplicates()) && !repeat && self.paths.len() > 1 {
            self.repeats.push_back((unit.clone(), self.paths.get(pick.path).map(|path| path.id)));
        }
        let Some(path) = self.paths.get_mut(pick.path) else { return };
        let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
        let used = buffer.len() - draft.header_from + unit.len() + Data::MAX_OVERHEAD + TAG_LEN;
        if may_acknowledge
            && path.received.ack_due().is_some()
            && used + Ack::max_len(PIGGYBACK_RANGES) <= room
        {
            put_ack(path, now, PIGGYBACK_RANGES, buffer);
        }
        let sparse = unit.class != FlowClass::Bulk && unit.part.is_none();
        if sparse {
            self.pack_sparse(unit, room, &mut draft, buffer);
        } else {
            write_unit(&unit, long, false, buffer);
            draft.items.push(Item::Data(unit));
        }
        draft.eliciting = true;
        draft.paced = true;
        self.finish(now, pick.path, draft, buffer);
    }

    /// Sparse packets that wait together share a datagram.
    fn pack_sparse(&mut self, first: DataUnit, room: usize, draft: &mut Draft, buffer: &mut Vec<u8>) {
        let mut unit = first;
        loop {
            let used = buffer.len() - draft.header_from + unit.len() + TAG_LEN + Data::MAX_OVERHEAD + 2;
            let next = self.flows.urgent_len().map(|len| used + len + Data::MAX_OVERHEAD + 2);
            let more = next.is_some_and(|total| total <= room)
                && !unit.duplicate
                && matches!(unit.payload, Payload::Packet(_))
                && self.flows.urgent_may_share();
            put_unit(&unit, more, buffer);
            draft.items.push(Item::Data(unit));
            if !more {
                return;
            }
            let Some(next) = self.flows.take_urgent() else { return };
            unit = next;
        }
    }

    pub(super) fn finish_single(
        &mut self,
        now: Timestamp,
        index: usize,
        draft: Draft,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.finish(now, index, draft, buffer);
        let path = self.paths.get(index)?;
        Some(Transmit {
            address: path.address,
            ecn: ecn_of(path),
            size: buffer.len(),
            segment_size: buffer.len(),
        })
    }

    /// Seals the packet and remembers it.
    pub(super) fn finish(&mut self, now: Timestamp, index: usize, draft: Draft, buffer: &mut Vec<u8>) {
        let Some(path) = self.paths.get_mut(index) else { return };
        self.keys.seal(path.id, draft.number, draft.header_from, draft.plain_from, buffer);
        let size = buffer.len() - draft.header_from;
        path.sent.push(SentPacket {
            sent_at: now,
            in_flight: if draft.eliciting { size as u16 } else { 0 },
            application_limited: path.application_limited() || !draft.paced,
            delivered: path.delivered(),
            items: draft.items,
            mtu_probe: draft.mtu_probe,
            taken: false,
        });
        path.on_datagram_sent(now, size, draft.eliciting, draft.paced);
    }
}

fn view_of(now: Timestamp, path: &Path) -> PathView {
    let ready = path.ready_at();
    let wait = match ready {
        Some(at) => at.since(now),
        None => path.window_wait(now),
    };
    PathView {
        sendable: ready.is_some_and(|at| at <= now),
        wait,
        // A path not measured yet is taken to be as far as half its round trip.
        one_way_delay: path.one_way_delay().unwrap_or(path.rtt.smoothed().as_secs_f64() * 0.5e6),
        queue_change: path.queue_change(),
        smoothed_rtt: path.rtt.smoothed(),
        rate: path.rate(),
        settled: path.controller.settled(),
        sent_bytes: path.counters.sent_bytes,
    }
}

pub(super) fn mtu_of(path: &Path) -> u16 {
    path.mtu.current()
}

pub(super) fn number_len(path: &Path) -> u8 {
    packet_number_len(path.sent.next_number(), path.sent.largest_acked())
}

/// Outer ECN codepoint for a path's packets.
fn ecn_of(path: &Path) -> Ecn {
    let unanswered = path.challenge.is_some_and(|challenge| challenge.tries > CHALLENGES_WITH_ECN);
    if unanswered || !path.ecn.is_capable() || path.address.carrier.properties().congestion_controlled {
        Ecn::NotEct
    } else {
        Ecn::Ect0
    }
}

pub(super) fn start(path: &Path, receiver_index: u32, epoch: u8, buffer: &mut Vec<u8>) -> Draft {
    let header_from = buffer.len();
    let number = path.sent.next_number();
    let number_len = number_len(path);
    let mask = (1u64 << (8 * number_len)) - 1;
    let truncated_number = (number & mask) as u32;
    DataHeader { receiver_index, epoch: epoch & 3, path: path.id, truncated_number, number_len }.put(buffer);
    Draft {
        header_from,
        plain_from: buffer.len(),
        number,
        items: Items::default(),
        eliciting: false,
        mtu_probe: false,
        paced: false,
    }
}

pub(super) fn put_ack(path: &mut Path, now: Timestamp, max_ranges: usize, buffer: &mut Vec<u8>) {
    if let Some(ack) = path.received.take_ack(now, max_ranges.min(path.received.range_count())) {
        ack.put(buffer);
    }
}

/// Writes a unit with its whole sequence number.
fn put_unit(unit: &DataUnit, has_length: bool, buffer: &mut Vec<u8>) {
    write_unit(unit, true, has_length, buffer);
}

fn write_unit(unit: &DataUnit, long: bool, has_length: bool, buffer: &mut Vec<u8>) {
    match &unit.payload {
        Payload::Packet(bytes) => Data {
            flow: unit.flow,
            sequence: unit.sequence,
            long,
            ordered: unit.ordered,
            part: unit.part,
            payload: bytes,
        }
        .put(has_length, buffer),
        Payload::Repair { count, length_xor, xor } => Repair {
            flow: unit.flow,
            first: unit.sequence as u16,
            count: *count,
            length_xor: *length_xor,
            payload_xor: xor,
        }
        .put(buffer),
    }
}

enum Cut {
    Whole(DataUnit),
    Split(DataUnit, Vec<DataUnit>),
    TooLarge,
}

/// Cuts an inner packet to what a path carries in one piece.
fn cut_to(unit: DataUnit, room: usize) -> Cut {
    if unit.len() + DATA_OVERHEAD <= room {
        return Cut::Whole(unit);
    }
    let Payload::Packet(bytes) = &unit.payload else { return Cut::TooLarge };
    let piece = room.saturating_sub(PART_OVERHEAD).max(1);
    if unit.part.is_some() && bytes.len() <= piece {
        return Cut::Whole(unit);
    }
    let start = unit.part.map_or(0, |part| part.offset);
    let more_after = unit.part.is_some_and(|part| part.more);
    let count = bytes.len().div_ceil(piece);
    let mut parts = bytes.chunks(piece).enumerate().map(|(index, chunk)| DataUnit {
        part: Some(Part { offset: start + (index * piece) as u16, more: more_after || index + 1 < count }),
        payload: Payload::Packet(chunk.to_vec()),
        ..without_payload(&unit)
    });
    match parts.next() {
        Some(first) => Cut::Split(first, parts.collect()),
        None => Cut::TooLarge,
    }
}

fn without_payload(unit: &DataUnit) -> DataUnit {
    DataUnit { payload: Payload::Packet(Vec::new()), ..*unit }
}
