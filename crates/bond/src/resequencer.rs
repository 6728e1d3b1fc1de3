//! Puts a flow's packets back in order, removes duplicates, and knows when to stop waiting.
//!
//! A gap is closed by the packet itself, by the sender's word that it gave up, or when the hold time that the sender
//! announced (time for its repeats, given the paths' delays) has passed since the first packet behind the gap came.

use crate::fec::Decoder;
use std::collections::VecDeque;
use std::time::Duration;
use units::Timestamp;
use wire::frame::{Data, GaveUp, Part};

/// Packets of the past whose duplicates are recognised.
const PAST: u32 = 2048;
/// A first number below this is taken to belong to the beginning of its flow.
const FIRST_NUMBERS: u32 = 64;
/// Packets that one flow may hold back.
const MAX_HELD: u32 = 32_768;
/// Parts that one inner packet may come in.
const MAX_PARTS: usize = 16;
/// Packets that all flows of a session may hold back or wait for.
const MAX_SLOTS: u32 = 131_072;
/// Packets of a session of which only parts have come.
const MAX_PARTIAL: u32 = 256;
/// Flows of a session whose packets are kept for repairs.
const MAX_DECODERS: u32 = 64;
/// Room for slots that an emptied flow keeps.
const KEPT_SLOTS: usize = 64;
/// Longest inner packet.
const MAX_PACKET_LEN: usize = 65_535;

/// One flow's receiving side.
#[derive(Debug, Default)]
pub(crate) struct Resequencer {
    started: bool,
    /// Whether the packets that came last wanted to be in order.
    ordered: bool,
    /// Next sequence number to deliver in order.
    next: u32,
    /// `slots[i]` is sequence number `next + i`.
    slots: VecDeque<Slot>,
    held: u32,
    /// Bit `s % PAST`: sequence number `s` below `next` has been delivered.
    past: Option<Box<[u64; PAST as usize / 64]>>,
    decoder: Option<Box<Decoder>>,
    /// How many slots hold parts.
    partial: u32,
    room: Room,
    pub(crate) last_used: Timestamp,
}

/// What a flow, or all flows of a session, keep for packets to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) slots: u32,
    pub(crate) partial: u32,
    pub(crate) decoders: u32,
}

/// What a flow may keep in addition, so that a session's flows together stay within bounds.
#[derive(Clone, Copy, Debug)]
struct Room {
    slots: u32,
    partial: u32,
    decoders: u32,
}

impl Default for Room {
    fn default() -> Self {
        Load::default().room()
    }
}

impl Load {
    /// Adds what a flow has come to keep, and takes away what it kept before.
    pub(crate) fn replace(&mut self, before: Self, after: Self) {
        let replaced = |sum: u32, before: u32, after: u32| sum.saturating_add(after).saturating_sub(before);
        self.slots = replaced(self.slots, before.slots, after.slots);
        self.partial = replaced(self.partial, before.partial, after.partial);
        self.decoders = replaced(self.decoders, before.decoders, after.decoders);
    }

    fn room(self) -> Room {
        Room {
            slots: MAX_SLOTS.saturating_sub(self.slots),
            partial: MAX_PARTIAL.saturating_sub(self.partial),
            decoders: MAX_DECODERS.saturating_sub(self.decoders),
        }
    }
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Missing,
    /// Delivered out of order already, or never to come.
    Passed,
    Held {
        packet: Vec<u8>,
        since: Timestamp,
    },
    Parts(Vec<(Part, Vec<u8>)>),
}

/// What became of what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) duplicates: u64,
    pub(crate) repaired: u64,
    pub(crate) skipped: u64,
    pub(crate) late: u64,
}

impl Resequencer {
    /// Takes in a data frame; packets that can be delivered now are handed to `deliver` in order.
    pub(crate) fn on_data(
        &mut self,
        now: Timestamp,
        data: &Data<'_>,
        tally: &mut Tally,
        deliver: &mut impl FnMut(Vec<u8>),
    ) {
        self.last_used = now;
        let sequence = self.expand(data.sequence, data.long);
        self.ordered = data.ordered;
        let Some(part) = data.part else {
            if self.is_new(sequence) {
                if let Some(decoder) = &mut self.decoder {
                    decoder.add(sequence, data.payload);
                }
                self.insert(now, sequence, data.ordered, data.payload.to_vec(), tally, deliver);
            } else {
                tally.duplicates += 1;
            }
            return;
        };
        if let Some(packet) = self.add_part(sequence, data, part, tally) {
            self.insert(now, sequence, data.ordered, packet, tally, deliver);
        }
    }

    /// Takes in a repair.
    pub(crate) fn on_repair(
        &mut self,
        now: Timestamp,
        repair: &wire::frame::Repair<'_>,
        tally: &mut Tally,
        deliver: &mut impl FnMut(Vec<u8>),
    ) {
        if self.decoder.is_none() && self.room.decoders == 0 {
            return;
        }
        let first = self.expand(u32::from(repair.first), false);
        // Packets are kept from the first repair on: flows without protection keep none.
        let decoder = self.decoder.get_or_insert_default();
        let restored = decoder.repair(first, repair.count, repair.length_xor, repair.payload_xor);
        let Some((sequence, packet)) = restored.filter(|(sequence, _)| self.is_new(*sequence)) else {
            return;
        };
        tally.repaired += 1;
        if let Some(decoder) = &mut self.decoder {
            decoder.add(sequence, &packet);
        }
        self.insert(now, sequence, self.ordered, packet, tally, deliver);
    }

    /// The sender will not send these (again).
    pub(crate) fn on_gave_up(
        &mut self,
        now: Timestamp,
        gave_up: GaveUp,
        tally: &mut Tally,
        deliver: &mut impl FnMut(Vec<u8>),
    ) {
        if !self.started {
            return;
        }
        for offset in 0..gave_up.count {
            let ahead = gave_up.first.wrapping_add(offset).wrapping_sub(self.next);
            if ahead >= MAX_HELD {
                continue;
            }
            self.grow(ahead);
            if let Some(slot) = self.slots.get_mut(ahead as usize)
                && matches!(slot, Slot::Missing | Slot::Parts(_))
            {
                *slot = Slot::Passed;
                tally.skipped += 1;
            }
        }
        self.release(now, Duration::MAX, tally, deliver);
    }

    /// When the gap at the front will have been held long enough.
    pub(crate) fn release_at(&self, hold: Duration) -> Option<Timestamp> {
        if self.held == 0 {
            return None;
        }
        self.first_held_since().map(|since| since + hold)
    }

    /// Delivers what is in order, and what was held for longer than `hold`.
    pub(crate) fn release(
        &mut self,
        now: Timestamp,
        hold: Duration,
        tally: &mut Tally,
        deliver: &mut impl FnMut(Vec<u8>),
    ) {
        loop {
            self.deliver_front(deliver);
            if self.held == 0 || self.first_held_since().is_none_or(|since| now.since(since) < hold) {
                return;
            }
            // The gap has had its time: step over it.
            while matches!(self.slots.front(), Some(Slot::Missing | Slot::Passed | Slot::Parts(_))) {
                let passed = matches!(self.slots.front(), Some(Slot::Passed));
                tally.skipped += u64::from(!passed);
                self.step(passed);
            }
        }
    }

    /// Packets held back.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    fn first_held_since(&self) -> Option<Timestamp> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Held { since, .. } => Some(*since),
            _ => None,
        })
    }

    fn expand(&self, sequence: u32, long: bool) -> u32 {
        if long || !self.started {
            return sequence;
        }
        let reference = self.next.wrapping_add(self.slots.len() as u32);
        reference.wrapping_add(i32::from((sequence as u16).wrapping_sub(reference as u16) as i16) as u32)
    }

    fn is_new(&self, sequence: u32) -> bool {
        if !self.started {
            return true;
        }
        let ahead = sequence.wrapping_sub(self.next);
        if ahead < u32::MAX / 2 {
            let slot = self.slots.get(ahead as usize);
            return !matches!(slot, Some(Slot::Held { .. } | Slot::Passed));
        }
        let behind = self.next.wrapping_sub(sequence);
        let Some(past) = &self.past else { return behind <= PAST };
        let bit = sequence % PAST;
        behind <= PAST && past.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 0)
    }

    /// The first packet to arrive tells where the flow is. Numbers begin at 0: one near it is not the first if the paths differ.
    fn start(&mut self, sequence: u32) {
        if !self.started {
            self.started = true;
            self.next = if sequence < FIRST_NUMBERS { 0 } else { sequence };
        }
    }

    fn insert(
        &mut self,
        now: Timestamp,
        sequence: u32,
        ordered: bool,
        packet: Vec<u8>,
        tally: &mut Tally,
        deliver: &mut impl FnMut(Vec<u8>),
    ) {
        self.start(sequence);
        let ahead = sequence.wrapping_sub(self.next);
        if ahead >= u32::MAX / 2 {
            // Late: its gap was given up. Better out of order than never.
            tally.late += 1;
            self.mark_past(sequence);
            deliver(packet);
            return;
        }
        if ahead == 0 && self.slots.len() <= 1 {
            self.slots.pop_front();
            self.next = self.next.wrapping_add(1);
            self.mark_past(sequence);
            deliver(packet);
            return;
        }
        if ahead >= self.reach() {
            // The sender is far ahead of anything that can still come: start anew from here.
            self.release(now, Duration::ZERO, tally, deliver);
            self.slots = VecDeque::new();
            self.partial = 0;
            self.next = sequence.wrapping_add(1);
            self.mark_past(sequence);
            deliver(packet);
            return;
        }
        self.grow(ahead);
        if ordered {
            self.put(ahead, Slot::Held { packet, since: now });
            self.held += 1;
        } else {
            self.put(ahead, Slot::Passed);
            deliver(packet);
        }
        self.deliver_front(deliver);
        if self.held == 0 && self.slots.len() > PAST as usize / 2 {
            // Nobody waits for these: an unordered flow must not collect gaps.
            while self.slots.len() > PAST as usize / 4 {
                let passed = matches!(self.slots.front(), Some(Slot::Passed));
                self.step(passed);
            }
        }
    }

    fn deliver_front(&mut self, deliver: &mut impl FnMut(Vec<u8>)) {
        loop {
            match self.slots.front_mut() {
                Some(Slot::Held { packet, .. }) => {
                    let packet = std::mem::take(packet);
                    self.held -= 1;
                    self.step(true);
                    deliver(packet);
                }
                Some(Slot::Passed) => self.step(true),
                _ => return,
            }
        }
    }

    /// Moves on by one sequence number.
    fn step(&mut self, delivered: bool) {
        if let Some(Slot::Parts(_)) = self.slots.pop_front() {
            self.partial = self.partial.saturating_sub(1);
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            self.slots = VecDeque::new();
        }
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        if delivered {
            self.mark_past(sequence);
        } else {
            self.clear_past(sequence);
        }
    }

    fn mark_past(&mut self, sequence: u32) {
        let past = self.past.get_or_insert_with(|| Box::new([0; PAST as usize / 64]));
        let bit = sequence % PAST;
        if let Some(word) = past.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
    }

    fn clear_past(&mut self, sequence: u32) {
        let Some(past) = &mut self.past else { return };
        let bit = sequence % PAST;
        if let Some(word) = past.get_mut((bit / 64) as usize) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Puts something in a slot that exists.
    fn put(&mut self, ahead: u32, content: Slot) {
        let Some(slot) = self.slots.get_mut(ahead as usize) else { return };
        let was = u32::from(matches!(slot, Slot::Parts(_)));
        let is = u32::from(matches!(content, Slot::Parts(_)));
        *slot = content;
        self.partial = (self.partial + is).saturating_sub(was);
    }

    /// How far ahead of the next packet one may be held.
    fn reach(&self) -> u32 {
        MAX_HELD.min((self.slots.len() as u32).saturating_add(self.room.slots))
    }

    /// What this flow keeps.
    pub(crate) fn load(&self) -> Load {
        let decoders = u32::from(self.decoder.is_some());
        Load { slots: self.slots.len() as u32, partial: self.partial, decoders }
    }

    /// Tells what the session's flows keep, this one's included.
    pub(crate) fn limit(&mut self, session: Load) {
        self.room = session.room();
    }

    fn grow(&mut self, ahead: u32) {
        while self.slots.len() <= ahead as usize {
            self.slots.push_back(Slot::Missing);
        }
    }

    /// Adds a part; returns the packet once it is whole.
    fn add_part(&mut self, sequence: u32, data: &Data<'_>, part: Part, tally: &mut Tally) -> Option<Vec<u8>> {
        if !self.is_new(sequence) {
            tally.duplicates += 1;
            return None;
        }
        self.start(sequence);
        let ahead = sequence.wrapping_sub(self.next);
        if ahead >= self.reach() {
            // Parts of a packet that was given up, or far ahead: not worth keeping.
            return None;
        }
        self.grow(ahead);
        if matches!(self.slots.get(ahead as usize), Some(Slot::Missing)) {
            if self.room.partial == 0 {
                return None;
            }
            self.put(ahead, Slot::Parts(Vec::new()));
        }
        let Some(Slot::Parts(parts)) = self.slots.get_mut(ahead as usize) else { return None };
        if parts.len() >= MAX_PARTS || parts.iter().any(|(known, _)| known.offset == part.offset) {
            tally.duplicates += 1;
            return None;
        }
        parts.push((part, data.payload.to_vec()));
        let packet = assemble(parts)?;
        self.put(ahead, Slot::Missing);
        Some(packet)
    }
}

/// The packet, if the parts are complete and follow each other exactly.
fn assemble(parts: &mut [(Part, Vec<u8>)]) -> Option<Vec<u8>> {
    parts.sort_by_key(|(part, _)| part.offset);
    let mut end = 0usize;
    for (index, (part, bytes)) in parts.iter().enumerate() {
        if usize::from(part.offset) != end || part.more == (index + 1 == parts.len()) {
            return None;
        }
        end += bytes.len();
    }
    if end > MAX_PACKET_LEN {
        return None;
    }
    let mut packet = Vec::with_capacity(end);
    for (_, bytes) in parts {
        packet.append(bytes);
    }
    Some(packet)
}

#[cfg(test)]
#[path = "resequencer_tests.rs"]
mod tests;
