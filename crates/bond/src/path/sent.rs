//! What was sent on a path and has been neither acknowledged nor given up.

use crate::unit::{DataUnit, Item};
use std::collections::VecDeque;
use std::time::Duration;
use units::Timestamp;
use wire::frame::Ranges;

/// State of the peer's receiving side when a packet left: the base of its rate sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// The peer's clock, microseconds modulo 2^32.
    pub(crate) receive_time: u32,
    /// Bytes that it had received, modulo 2^32.
    pub(crate) received_bytes: u32,
    /// Whether any acknowledgement had come yet.
    pub(crate) known: bool,
}

/// One packet.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) sent_at: Timestamp,
    /// Bytes of the datagram; zero once it is no longer in flight, or was never counted.
    pub(crate) in_flight: u16,
    pub(crate) application_limited: bool,
    pub(crate) delivered: Delivered,
    /// What to send again if it is lost.
    pub(crate) items: Items,
    /// A packet that only measures the path's packet size: its loss says nothing about congestion.
    pub(crate) mtu_probe: bool,
    /// Its contents were taken out, to be sent on other paths.
    pub(crate) taken: bool,
}

/// Contents of a packet: most hold exactly one thing.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) first: Option<Item>,
    pub(crate) others: Vec<Item>,
}

impl Items {
    pub(crate) fn push(&mut self, item: Item) {
        if self.first.is_none() && self.others.is_empty() {
            self.first = Some(item);
        } else {
            self.others.push(item);
        }
    }

    /// Moves those whose arrival somebody wants to know of, and forgets the others.
    fn settle(&mut self, arrived: &mut Vec<Item>) {
        arrived.extend(self.first.take().filter(Item::is_awaited));
        if !self.others.is_empty() {
            arrived.extend(std::mem::take(&mut self.others).into_iter().filter(Item::is_awaited));
        }
    }

    pub(crate) fn drain_into(&mut self, into: &mut Vec<Item>) {
        into.extend(self.first.take());
        into.append(&mut self.others);
    }
}

/// All packets of a path from the oldest in flight on.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    packets: VecDeque<SentPacket>,
    /// Number of the front packet.
    base: u64,
    in_flight: u64,
    largest_acked: Option<u64>,
}

/// What an acknowledgement did.
#[derive(Debug, Default)]
pub(crate) struct AckOutcome {
    pub(crate) acked_bytes: u64,
    /// The largest number, if it was in flight until now: (sent at, base of the rate sample, application-limited).
    pub(crate) largest: Option<(Timestamp, Delivered, bool)>,
    /// How many packets were newly acknowledged.
    pub(crate) acked_packets: u32,
    /// Sum over the newly acknowledged packets of when they were sent, nanoseconds.
    pub(crate) sent_at_sum: u128,
    /// Sizes of acknowledged packet size probes.
    pub(crate) acked_probe: Option<u16>,
    /// Contents whose arrival somebody wants to know of.
    pub(crate) arrived: Vec<Item>,
    /// Numbers of packets that have arrived although their contents were taken out.
    pub(crate) arrived_taken: Vec<u64>,
}

/// What loss detection found.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) latest_sent: Timestamp,
    pub(crate) items: Vec<Item>,
    /// Sizes of lost packets, for the search of the path's packet size.
    pub(crate) lost_probe: Option<u16>,
    pub(crate) largest_size: u16,
}

impl AckOutcome {
    /// When the newly acknowledged packets were sent, on average.
    pub(crate) fn mean_sent_at(&self) -> Option<Timestamp> {
        let mean = self.sent_at_sum.checked_div(u128::from(self.acked_packets))?;
        u64::try_from(mean).ok().map(Timestamp::from_nanos)
    }
}

impl Sent {
    /// Number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// When the oldest of what is in flight was sent.
    pub(crate) fn oldest_sent_at(&self) -> Option<Timestamp> {
        self.packets.front().map(|packet| packet.sent_at)
    }

    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    pub(crate) fn push(&mut self, packet: SentPacket) {
        self.in_flight += u64::from(packet.in_flight);
        if self.packets.is_empty() && packet.in_flight == 0 {
            self.base += 1;
            return;
        }
        self.packets.push_back(packet);
    }

    /// Takes in what has arrived. News of packets never sent is ignored.
    pub(crate) fn on_ack(&mut self, ranges: &Ranges) -> AckOutcome {
        let mut outcome = AckOutcome::default();
        let largest = ranges.first().map_or(0, |range| *range.end());
        if largest >= self.next_number() {
            return outcome;
        }
        for range in ranges {
            let from = range.start().saturating_sub(self.base) as usize;
            let Some(to) = range.end().checked_sub(self.base) else { break };
            for index in from..=to as usize {
                let Some(packet) = self.packets.get_mut(index) else { break };
                let size = std::mem::take(&mut packet.in_flight);
                if size == 0 {
                    continue;
                }
                packet.items.settle(&mut outcome.arrived);
                if packet.taken {
                    outcome.arrived_taken.push(self.base + index as u64);
                }
                outcome.acked_bytes += u64::from(size);
                outcome.acked_packets += 1;
                outcome.sent_at_sum += u128::from(packet.sent_at.as_nanos());
                self.in_flight -= u64::from(size);
                if packet.mtu_probe {
                    outcome.acked_probe = Some(outcome.acked_probe.unwrap_or(0).max(size));
                }
                if self.base + index as u64 == largest {
                    outcome.largest = Some((packet.sent_at, packet.delivered, packet.application_limited));
                }
            }
        }
        self.largest_acked = Some(self.largest_acked.map_or(largest, |before| before.max(largest)));
        self.forget_front();
        outcome
    }

    /// Takes out packets that were passed by an acknowledged one and whose time, `sent + threshold`, is over (RFC 8985's
    /// idea on the path's own reordering window). Returns when to look again.
    pub(crate) fn detect_losses(
        &mut self,
        now: Timestamp,
        threshold: Duration,
        losses: &mut Losses,
    ) -> Option<Timestamp> {
        let largest_acked = self.largest_acked?;
        let mut look_again = None;
        for (offset, packet) in self.packets.iter_mut().enumerate() {
            if self.base + offset as u64 >= largest_acked {
                break;
            }
            if packet.in_flight == 0 {
                continue;
            }
            let lost_at = packet.sent_at + threshold;
            if lost_at > now {
                look_again = Some(lost_at);
                break;
            }
            self.in_flight -= u64::from(packet.in_flight);
            losses.take(packet);
        }
        self.forget_front();
        look_again
    }

    /// Takes the contents out of everything in flight, to be sent on other paths. The packets stay in flight: should they
    /// be acknowledged after all, the path is alive.
    pub(crate) fn take_items(&mut self, into: &mut Vec<Item>) {
        for (packet, number) in self.packets.iter_mut().zip(self.base..) {
            if packet.in_flight == 0 {
                continue;
            }
            let from = into.len();
            packet.items.drain_into(into);
            for item in into.iter_mut().skip(from) {
                if let Item::Data(unit) = item {
                    unit.taken_from = Some(number);
                    packet.taken = true;
                }
            }
        }
    }

    /// Puts contents that were taken out back where they were, if that packet is in flight still.
    pub(crate) fn give_back(&mut self, number: u64, unit: DataUnit) -> Result<(), DataUnit> {
        let index = number.checked_sub(self.base).map(|index| index as usize);
        let packet = index.and_then(|index| self.packets.get_mut(index));
        let Some(packet) = packet.filter(|packet| packet.in_flight > 0) else { return Err(unit) };
        packet.items.push(Item::Data(DataUnit { taken_from: None, ..unit }));
        packet.taken = false;
        Ok(())
    }

    /// Gives up everything in flight.
    pub(crate) fn give_up_all(&mut self, losses: &mut Losses) {
        for packet in self.packets.iter_mut().filter(|packet| packet.in_flight > 0) {
            losses.take(packet);
        }
        self.in_flight = 0;
        self.forget_front();
    }

    fn forget_front(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.in_flight == 0) {
            self.packets.pop_front();
            self.base += 1;
        }
    }
}

impl Losses {
    fn take(&mut self, packet: &mut SentPacket) {
        let size = std::mem::take(&mut packet.in_flight);
        packet.items.drain_into(&mut self.items);
        if packet.mtu_probe {
            self.lost_probe = Some(self.lost_probe.unwrap_or(u16::MAX).min(size));
            return;
        }
        self.bytes += u64::from(size);
        self.packets += 1;
        self.largest_size = self.largest_size.max(size);
        self.latest_sent = self.latest_sent.max(packet.sent_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> Sent {
        let mut sent = Sent::default();
        for number in 0..count {
            sent.push(SentPacket {
                sent_at: Timestamp::from_millis(number),
                in_flight: 100,
                application_limited: false,
                delivered: Delivered::default(),
                items: Items::default(),
                mtu_probe: false,
                taken: false,
            });
        }
        sent
    }

    fn ack(ranges: &[std::ops::RangeInclusive<u64>]) -> Ranges {
        ranges.iter().cloned().collect()
    }

    #[test]
    fn acknowledged_once_and_only_if_sent() {
        let mut sent = sent(10);
        assert_eq!(sent.on_ack(&ack(&[10..=10])).acked_bytes, 0, "never sent");
        assert_eq!(sent.on_ack(&ack(&[3..=5])).acked_bytes, 300);
        assert_eq!(sent.on_ack(&ack(&[3..=5, 0..=1])).acked_bytes, 200);
        assert_eq!(sent.in_flight(), 500);
        assert_eq!(sent.next_number(), 10);
        assert_eq!(sent.on_ack(&ack(&[0..=9])).acked_bytes, 500);
        assert_eq!((sent.in_flight(), sent.next_number()), (0, 10));
    }

    #[test]
    fn only_passed_packets_whose_time_is_over_are_lost() {
        let mut sent = sent(10);
        sent.on_ack(&ack(&[4..=4]));
        let mut losses = Losses::default();
        let again = sent.detect_losses(Timestamp::from_millis(22), Duration::from_millis(20), &mut losses);
        assert_eq!((losses.packets, losses.bytes), (3, 300));
        assert_eq!(losses.latest_sent, Timestamp::from_millis(2));
        assert_eq!(again, Some(Timestamp::from_millis(23)));
        assert_eq!(sent.in_flight(), 600);
    }
}
