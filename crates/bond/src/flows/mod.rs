//! The sender's table of flows: which packets belong together, what they need, and whose turn it is.
//!
//! Real-time flows go first, then interactive ones; bulk flows share the rest by deficit round robin (RFC 8290 section 4.2's
//! scheme, with classes learned by `policy::FlowMeter` in place of new and old queues).

mod queue;

use crate::fec::{Encoder, run_length};
use crate::unit::{DataUnit, Payload};
use policy::{FlowClass, FlowMeter, Treatment};
use queue::FlowQueue;
use rustc_hash::FxSeededState;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use units::{Bytes, Timestamp};
use wire::inner::{FlowKey, Headers, TCP};

/// Flows kept at most; the one that was idle longest gives way.
const MAX_FLOWS: usize = 4_096;
/// A flow that was idle this long may be forgotten.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// A sparse flow may queue this much; more is a bulk flow's behaviour.
const SPARSE_LIMIT: u64 = 128 * 1024;
/// A bulk flow may always queue this many packets.
const MIN_BULK_PACKETS: usize = 30;
/// A sparse packet up to this size costs less to send twice than to wait for: a name look-up, a key stroke, a ping ...
const SMALL_PACKET: usize = 300;
/// ... where this much is lost.
const LOSS_WORTH_A_COPY: f64 = 0.001;
/// A packet of this size or more is part of a transfer.
const LARGE_PACKET: usize = 1_000;
/// Bytes that a bulk flow sends in one turn.
const QUANTUM: i64 = 3_000;
/// The first packets of a flow, and those after a pause, carry the whole sequence number.
const LONG_NUMBERS: u32 = 64;
/// A pause after which the receiver may have forgotten the flow.
const PAUSE: Duration = Duration::from_secs(10);

/// What became of a packet that was to be queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queueing {
    Queued,
    /// The queue is full: the packet is gone, as a router would have it.
    Dropped,
}

/// What limits the queues now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    /// Bytes of bulk that may wait in all.
    pub(crate) bulk: u64,
    /// Recent loss of the worst active path, 0 to 1.
    pub(crate) loss_rate: f64,
}

struct Flow {
    key: FlowKey,
    meter: FlowMeter,
    class: FlowClass,
    treatment: Treatment,
    queue: FlowQueue,
    next_sequence: u32,
    long_until: u32,
    listed: bool,
    deficit: i64,
    last_used: Timestamp,
    encoder: Option<Encoder>,
}

/// All flows of a session.
pub(crate) struct Flows {
    by_key: HashMap<FlowKey, u16, FxSeededState>,
    flows: Vec<Option<Flow>>,
    /// Sequence numbers of ids that were given up: an id that is used again goes on from there.
    retired: Vec<u32>,
    last: Option<(FlowKey, u16)>,
    real_time: VecDeque<u16>,
    interactive: VecDeque<u16>,
    bulk: VecDeque<u16>,
    bulk_bytes: u64,
    queued_packets: u64,
    default_treatment: Treatment,
    treatments: HashMap<FlowKey, Treatment, FxSeededState>,
    sweep_at: usize,
}

impl Flows {
    pub(crate) fn new(seed: u64, default_treatment: Treatment) -> Self {
        let hasher = FxSeededState::with_seed(seed as usize);
        Self {
            by_key: HashMap::with_hasher(hasher.clone()),
            flows: Vec::new(),
            retired: Vec::new(),
            last: None,
            real_time: VecDeque::new(),
            interactive: VecDeque::new(),
            bulk: VecDeque::new(),
            bulk_bytes: 0,
            queued_packets: 0,
            default_treatment,
            treatments: HashMap::with_hasher(hasher),
            sweep_at: 0,
        }
    }

    /// Fixes how one flow is treated; bounded by the number of flows.
    pub(crate) fn treat(&mut self, key: FlowKey, treatment: Treatment) {
        if self.treatments.len() < MAX_FLOWS || self.treatments.contains_key(&key) {
            self.treatments.insert(key, treatment);
        }
        if let Some(flow) =
            self.by_key.get(&key).and_then(|&id| self.flows.get_mut(usize::from(id))?.as_mut())
        {
            flow.treatment = treatment;
        }
    }

    /// How flows are treated that begin from now on and of which nothing else was said.
    pub(crate) fn set_default_treatment(&mut self, treatment: Treatment) {
        self.default_treatment = treatment;
    }

    /// Bytes of bulk that wait.
    pub(crate) fn bulk_bytes(&self) -> u64 {
        self.bulk_bytes
    }

    /// Packets of all classes that wait.
    pub(crate) fn queued_packets(&self) -> u64 {
        self.queued_packets
    }

    /// Sorts a packet into its flow's queue.
    pub(crate) fn push(
        &mut self,
        now: Timestamp,
        headers: &Headers,
        packet: Vec<u8>,
        limits: QueueLimits,
    ) -> Queueing {
        let Some(id) = self.flow_of(now, &headers.key) else { return Queueing::Dropped };
        let bulk_flows = self.bulk.len().max(1) as u64;
        let Some(Some(flow)) = self.flows.get_mut(usize::from(id)) else { return Queueing::Dropped };
        if now.since(flow.last_used) > PAUSE {
            flow.long_until = flow.next_sequence.wrapping_add(LONG_NUMBERS);
        }
        flow.last_used = now;
        let class = flow.meter.on_packet(now, &packet, headers);
        let class = class.max(flow.meter.on_queue(Bytes(flow.queue.bytes())));
        if class != flow.class {
            self.reclassify(id, class);
        }
        let Some(Some(flow)) = self.flows.get_mut(usize::from(id)) else { return Queueing::Dropped };
        let ordered = match headers.key.protocol {
            TCP => !headers.is_pure_ack(),
            // Large packets are a transfer's (QUIC), which takes disorder for loss.
            _ => class == FlowClass::Bulk || class == FlowClass::Interactive && packet.len() >= LARGE_PACKET,
        };
        let mut packet = packet;
        if flow.class == FlowClass::Bulk {
            let share = limits.bulk.max(1) * 3 / (bulk_flows + 2);
            let over = flow.queue.bytes() + packet.len() as u64 > share;
            if over && flow.queue.packets() >= MIN_BULK_PACKETS {
                let far_over = flow.queue.bytes() > 2 * share;
                if far_over || !wire::inner::mark_ce(&mut packet) {
                    return Queueing::Dropped;
                }
            }
        } else if flow.queue.bytes() > SPARSE_LIMIT {
            return Queueing::Dropped;
        }
        let sequence = flow.next_sequence;
        flow.next_sequence = sequence.wrapping_add(1);
        let run = match flow.treatment {
            Treatment::Protected => {
                let encoder = flow.encoder.get_or_insert_default();
                encoder.add(sequence, &packet, run_length(limits.loss_rate))
            }
            _ => None,
        };
        let before = flow.queue.bytes();
        let small = packet.len() <= SMALL_PACKET && !headers.is_pure_ack();
        flow.queue.push(now, sequence, ordered, class, Payload::Packet(packet));
        if small && class != FlowClass::Bulk && limits.loss_rate > LOSS_WORTH_A_COPY {
            flow.queue.send_last_twice();
        }
        self.queued_packets += 1;
        if let Some(run) = run {
            let repair = Payload::Repair { count: run.count, length_xor: run.length_xor, xor: run.xor };
            flow.queue.push(now, run.first, ordered, class, repair);
            self.queued_packets += 1;
        }
        if flow.class == FlowClass::Bulk {
            self.bulk_bytes += flow.queue.bytes() - before;
        }
        if !flow.listed {
            flow.listed = true;
            flow.deficit = QUANTUM;
            self.list(class).push_back(id);
        }
        Queueing::Queued
    }

    /// Moves a flow to the list of another class.
    fn reclassify(&mut self, id: u16, class: FlowClass) {
        let Some(Some(flow)) = self.flows.get_mut(usize::from(id)) else { return };
        let before = std::mem::replace(&mut flow.class, class);
        if !flow.listed {
            return;
        }
        let bytes = flow.queue.bytes();
        if before == FlowClass::Bulk {
            self.bulk_bytes -= bytes;
        } else if class == FlowClass::Bulk {
            self.bulk_bytes += bytes;
        }
        self.list(before).retain(|&listed| listed != id);
        self.list(class).push_back(id);
    }

    fn list(&mut self, class: FlowClass) -> &mut VecDeque<u16> {
        match class {
            FlowClass::RealTime => &mut self.real_time,
            FlowClass::Interactive => &mut self.interactive,
            FlowClass::Bulk => &mut self.bulk,
        }
    }

    /// Size of the next sparse packet, if one waits.
    pub(crate) fn urgent_len(&self) -> Option<usize> {
        self.real_time.front().or(self.interactive.front()).and_then(|&id| self.head_len(id))
    }

    /// Whether the next sparse packet may share a datagram with others.
    pub(crate) fn urgent_may_share(&self) -> bool {
        let next = self.real_time.front().or(self.interactive.front());
        let flow = next.and_then(|&id| self.flows.get(usize::from(id))?.as_ref());
        flow.is_some_and(|flow| flow.treatment != Treatment::Duplicated && flow.queue.head_may_share())
    }

    /// Takes the next sparse packet.
    pub(crate) fn take_urgent(&mut self) -> Option<DataUnit> {
        let real_time = !self.real_time.is_empty();
        let list = if real_time { &mut self.real_time } else { &mut self.interactive };
        let id = list.pop_front()?;
        let flow = self.flows.get_mut(usize::from(id))?.as_mut()?;
        let unit = flow.queue.take(id, flow.treatment, 0);
        if flow.queue.is_empty() {
            flow.listed = false;
        } else if real_time {
            self.real_time.push_back(id);
        } else {
            self.interactive.push_back(id);
        }
        self.queued_packets -= u64::from(unit.is_some());
        unit
    }

    /// Size of the next bulk packet, if one waits.
    pub(crate) fn bulk_len(&self) -> Option<usize> {
        self.bulk.front().and_then(|&id| self.head_len(id))
    }

    /// The packet that [`Flows::take_bulk`] would take, by flow, number and size.
    pub(crate) fn peek_bulk(&mut self, depth: u64) -> Option<(u16, u32, usize)> {
        let id = self.bulk_flow_at(depth)?;
        let flows = self.bulk.len().max(1) as u64;
        let (sequence, len) = self.flows.get(usize::from(id))?.as_ref()?.queue.peek(depth / flows)?;
        Some((id, sequence, len))
    }

    fn bulk_flow_at(&mut self, depth: u64) -> Option<u16> {
        if depth == 0 { self.next_bulk() } else { self.longest_bulk() }
    }

    /// Takes a bulk packet with about `depth` bytes of bulk in front of it: the head of the flow whose turn it is, or one from the
    /// middle of the longest queue.
    pub(crate) fn take_bulk(&mut self, depth: u64) -> Option<DataUnit> {
        let id = self.bulk_flow_at(depth)?;
        let flows = self.bulk.len().max(1) as u64;
        let flow = self.flows.get_mut(usize::from(id))?.as_mut()?;
        let before = flow.queue.bytes();
        let unit = flow.queue.take(id, flow.treatment, depth / flows)?;
        self.bulk_bytes -= before - flow.queue.bytes();
        self.queued_packets -= 1;
        flow.deficit -= unit.len() as i64;
        if flow.queue.is_empty() {
            flow.listed = false;
            self.bulk.retain(|&listed| listed != id);
        }
        Some(unit)
    }

    /// Whether a packet of this flow must carry its whole sequence number.
    pub(crate) fn needs_long_number(&self, flow: u16, sequence: u32) -> bool {
        match self.flows.get(usize::from(flow)) {
            Some(Some(flow)) => (flow.long_until.wrapping_sub(sequence) as i32) > 0,
            _ => true,
        }
    }

    /// Drops what has waited since before `limit`; returns the runs of numbers that will never be sent.
    pub(crate) fn drop_older(&mut self, limit: Timestamp) -> Vec<(u16, u32, u32)> {
        let mut dropped = Vec::new();
        for (id, flow) in self.flows.iter_mut().enumerate() {
            let Some(flow) = flow else { continue };
            let (bytes, packets) = (flow.queue.bytes(), flow.queue.packets());
            if let Some((first, count)) = flow.queue.drop_older(limit) {
                dropped.push((id as u16, first, count));
            }
            self.queued_packets -= (packets - flow.queue.packets()) as u64;
            if flow.class == FlowClass::Bulk {
                self.bulk_bytes -= bytes - flow.queue.bytes();
            }
            if flow.queue.is_empty() {
                flow.listed = false;
            }
        }
        let flows = &self.flows;
        let waits =
            |&id: &u16| matches!(flows.get(usize::from(id)), Some(Some(flow)) if !flow.queue.is_empty());
        self.real_time.retain(waits);
        self.interactive.retain(waits);
        self.bulk.retain(waits);
        dropped
    }

    /// Takes everything that waits, flow by flow.
    pub(crate) fn drain_packets(&mut self) -> Vec<Vec<u8>> {
        let packets = self.flows.iter_mut().flatten().flat_map(|flow| {
            flow.listed = false;
            flow.queue.drain_packets()
        });
        let packets = packets.collect();
        self.real_time.clear();
        self.interactive.clear();
        self.bulk.clear();
        self.bulk_bytes = 0;
        self.queued_packets = 0;
        packets
    }

    fn head_len(&self, id: u16) -> Option<usize> {
        self.flows.get(usize::from(id))?.as_ref()?.queue.head_len()
    }

    /// Deficit round robin: the first flow in turn that has credit left.
    fn next_bulk(&mut self) -> Option<u16> {
        for _ in 0..=2 * self.bulk.len() {
            let id = *self.bulk.front()?;
            let flow = self.flows.get_mut(usize::from(id))?.as_mut()?;
            if flow.deficit > 0 {
                return Some(id);
            }
            flow.deficit += QUANTUM;
            self.bulk.rotate_left(1);
        }
        self.bulk.front().copied()
    }

    fn longest_bulk(&self) -> Option<u16> {
        let bytes = |id: u16| {
            self.flows.get(usize::from(id)).and_then(Option::as_ref).map_or(0, |flow| flow.queue.bytes())
        };
        self.bulk.iter().copied().max_by_key(|&id| bytes(id))
    }

    fn flow_of(&mut self, now: Timestamp, key: &FlowKey) -> Option<u16> {
        if let Some((last, id)) = &self.last
            && last == key
        {
            return Some(*id);
        }
        let id = match self.by_key.get(key) {
            Some(&id) => id,
            None => self.begin(now, key)?,
        };
        self.last = Some((*key, id));
        Some(id)
    }

    fn begin(&mut self, now: Timestamp, key: &FlowKey) -> Option<u16> {
        let id = self.free_id(now)?;
        let next_sequence = self.retired.get(usize::from(id)).copied().unwrap_or(0);
        let treatment = self.treatments.get(key).copied().unwrap_or(self.default_treatment);
        let flow = Flow {
            key: *key,
            meter: FlowMeter::new(now),
            class: FlowClass::Interactive,
            treatment,
            queue: FlowQueue::default(),
            next_sequence,
            long_until: next_sequence.wrapping_add(LONG_NUMBERS),
            listed: false,
            deficit: 0,
            last_used: now,
            encoder: None,
        };
        *self.flows.get_mut(usize::from(id))? = Some(flow);
        self.by_key.insert(*key, id);
        Some(id)
    }

    /// An id that no flow uses: a new one, one that has long been idle, or the one that was idle longest of a sample.
    fn free_id(&mut self, now: Timestamp) -> Option<u16> {
        const SAMPLE: usize = 32;
        let sample = SAMPLE.min(self.flows.len());
        let mut idlest: Option<(Timestamp, usize)> = None;
        for _ in 0..sample {
            self.sweep_at = (self.sweep_at + 1) % self.flows.len();
            match self.flows.get(self.sweep_at) {
                Some(Some(flow)) if !flow.listed => {
                    let candidate = (flow.last_used, self.sweep_at);
                    idlest = Some(idlest.map_or(candidate, |best| best.min(candidate)));
                }
                _ => {}
            }
        }
        match idlest {
            Some((last_used, slot)) if now.since(last_used) > IDLE_AFTER || self.flows.len() >= MAX_FLOWS => {
                self.retire(slot);
                Some(slot as u16)
            }
            _ if self.flows.len() < MAX_FLOWS => {
                self.flows.push(None);
                self.retired.push(0);
                Some((self.flows.len() - 1) as u16)
            }
            _ => None,
        }
    }

    fn retire(&mut self, slot: usize) {
        if let Some(flow) = self.flows.get_mut(slot).and_then(Option::take) {
            self.by_key.remove(&flow.key);
            self.last = None;
            if let Some(sequence) = self.retired.get_mut(slot) {
                *sequence = flow.next_sequence;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
