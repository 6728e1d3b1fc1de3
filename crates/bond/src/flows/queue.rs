//! One flow's queue: packets keep their order, but a slow path may take one from the middle.

use crate::unit::{DataUnit, Payload};
use policy::{FlowClass, Treatment};
use std::collections::VecDeque;
use units::Timestamp;

/// A queued packet; its sequence number follows from its place.
#[derive(Debug)]
struct Queued {
    payload: Payload,
    queued_at: Timestamp,
    ordered: bool,
    class: FlowClass,
    sequence: u32,
    twice: bool,
}

/// The queue of one flow.
#[derive(Debug, Default)]
pub(crate) struct FlowQueue {
    /// `None` marks a packet that was taken from the middle. Front and back are never `None`.
    slots: VecDeque<Option<Queued>>,
    bytes: u64,
    packets: usize,
}

impl FlowQueue {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Size of the packet at the head.
    pub(crate) fn head_len(&self) -> Option<usize> {
        self.slots.front().and_then(Option::as_ref).map(Queued::len)
    }

    pub(crate) fn push(
        &mut self,
        now: Timestamp,
        sequence: u32,
        ordered: bool,
        class: FlowClass,
        payload: Payload,
    ) {
        let queued = Queued { payload, queued_at: now, ordered, class, sequence, twice: false };
        self.bytes += queued.len() as u64;
        self.packets += 1;
        self.slots.push_back(Some(queued));
    }

    /// Whether the packet at the head may share a datagram: a repair ends one, and what is sent twice goes alone.
    pub(crate) fn head_may_share(&self) -> bool {
        let head = self.slots.front().and_then(Option::as_ref);
        head.is_some_and(|head| !head.twice && matches!(head.payload, Payload::Packet(_)))
    }

    /// The packet at the back is worth two copies.
    pub(crate) fn send_last_twice(&mut self) {
        if let Some(Some(last)) = self.slots.back_mut() {
            last.twice = true;
        }
    }

    /// Takes the packet that has about `depth` bytes in front of it.
    pub(crate) fn take(&mut self, flow: u16, treatment: Treatment, depth: u64) -> Option<DataUnit> {
        let index = self.index_at(depth)?;
        let queued = self.slots.get_mut(index)?.take()?;
        self.bytes -= queued.len() as u64;
        self.packets -= 1;
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
        }
        while self.slots.back().is_some_and(Option::is_none) {
            self.slots.pop_back();
        }
        Some(DataUnit {
            taken_from: None,
            flow,
            sequence: queued.sequence,
            ordered: queued.ordered,
            class: queued.class,
            part: None,
            repeats: 0,
            duplicate: treatment == Treatment::Duplicated || queued.twice,
            queued_at: queued.queued_at,
            payload: queued.payload,
        })
    }

    /// Number and size of the inner packet that [`FlowQueue::take`] would take; `None` if it would be a repair.
    pub(crate) fn peek(&self, depth: u64) -> Option<(u32, usize)> {
        let queued = self.slots.get(self.index_at(depth)?)?.as_ref()?;
        matches!(queued.payload, Payload::Packet(_)).then(|| (queued.sequence, queued.len()))
    }

    fn index_at(&self, depth: u64) -> Option<usize> {
        let average = self.bytes / (self.packets as u64).max(1);
        let wanted = (depth / average.max(1)) as usize;
        self.nearest(wanted.min(self.slots.len().checked_sub(1)?))
    }

    /// The first packet at or behind `index`, else the last before it.
    fn nearest(&self, index: usize) -> Option<usize> {
        let behind = self.slots.range(index..).position(Option::is_some).map(|offset| index + offset);
        behind.or_else(|| self.slots.range(..index).rposition(Option::is_some))
    }

    /// Drops packets queued before `limit`; returns their sequence numbers' run: (first, count).
    pub(crate) fn drop_older(&mut self, limit: Timestamp) -> Option<(u32, u32)> {
        let mut dropped: Option<(u32, u32)> = None;
        while let Some(Some(front)) = self.slots.front() {
            if front.queued_at >= limit {
                break;
            }
            self.bytes -= front.len() as u64;
            self.packets -= 1;
            // A repair bears the number of a packet that it covers, not one of its own.
            if matches!(front.payload, Payload::Packet(_)) {
                let sequence = front.sequence;
                let first = dropped.map_or(sequence, |(first, _)| first);
                dropped = Some((first, sequence.wrapping_sub(first).wrapping_add(1)));
            }
            self.slots.pop_front();
            while self.slots.front().is_some_and(Option::is_none) {
                self.slots.pop_front();
            }
        }
        dropped
    }

    /// Takes all packets out, as inner packets in order.
    pub(crate) fn drain_packets(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.bytes = 0;
        self.packets = 0;
        self.slots.drain(..).flatten().filter_map(|queued| match queued.payload {
            Payload::Packet(bytes) => Some(bytes),
            Payload::Repair { .. } => None,
        })
    }
}

impl Queued {
    fn len(&self) -> usize {
        match &self.payload {
            Payload::Packet(bytes) => bytes.len(),
            Payload::Repair { xor, .. } => xor.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(packets: u32) -> FlowQueue {
        let mut queue = FlowQueue::default();
        for sequence in 0..packets {
            let payload = Payload::Packet(vec![0; 100]);
            queue.push(Timestamp::from_millis(u64::from(sequence)), sequence, true, FlowClass::Bulk, payload);
        }
        queue
    }

    fn take(queue: &mut FlowQueue, depth: u64) -> Option<u32> {
        queue.take(1, Treatment::Bonded, depth).map(|unit| unit.sequence)
    }

    #[test]
    fn takes_from_the_middle_and_keeps_the_rest_in_order() {
        let mut queue = queue(10);
        assert_eq!(take(&mut queue, 500), Some(5));
        assert_eq!(take(&mut queue, 500), Some(6), "the nearest behind a gap");
        assert_eq!(take(&mut queue, 0), Some(0));
        assert_eq!(take(&mut queue, 9_999), Some(9));
        let rest: Vec<_> = std::iter::from_fn(|| take(&mut queue, 0)).collect();
        assert_eq!(rest, [1, 2, 3, 4, 7, 8]);
        assert_eq!((queue.bytes(), queue.packets()), (0, 0));
    }

    #[test]
    fn old_packets_are_dropped_as_a_run() {
        let mut queue = queue(10);
        take(&mut queue, 200);
        assert_eq!(queue.drop_older(Timestamp::from_millis(5)), Some((0, 5)));
        assert_eq!(queue.packets(), 5);
        assert_eq!(queue.drop_older(Timestamp::from_millis(5)), None);
    }

    #[test]
    fn a_dropped_repair_is_not_given_up() {
        let mut queue = queue(4);
        take(&mut queue, 0);
        let repair = Payload::Repair { count: 4, length_xor: 0, xor: vec![0; 100] };
        queue.push(Timestamp::from_millis(4), 0, true, FlowClass::Bulk, repair);
        assert_eq!(queue.drop_older(Timestamp::from_millis(5)), Some((1, 3)));
        assert_eq!(queue.packets(), 0);
    }
}
