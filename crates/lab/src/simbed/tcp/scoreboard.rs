//! What the sender knows of every packet in flight: sent, delivered, lost (RACK, RFC 8985), with the
//! delivery-rate samples of Linux's `tcp_rate`.

use super::control::RateSample;
use super::rtt::RoundTrip;
use crate::simbed::ranges::RangeSet;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;
use units::Timestamp;

/// Duplicate acknowledgements that end the patience with reordering where none was ever seen.
const DUPLICATE_THRESHOLD: u64 = 3;

/// One packet, by number, from when it was first sent until it is acknowledged cumulatively.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    sent_at: Timestamp,
    transmissions: u32,
    delivered: bool,
    lost: bool,
    /// A retransmission of a lost packet is under way.
    repeated: bool,
    delivered_before: u64,
    delivered_at_before: Timestamp,
    first_sent_at_before: Timestamp,
    application_limited: bool,
}

/// What one acknowledgement changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    pub(super) newly_delivered: u64,
    pub(super) newly_acknowledged: u64,
    /// Of the newest packet, if it was sent once.
    pub(super) rtt: Option<Duration>,
    pub(super) rate: Option<RateSample>,
    /// A packet that had been sent again was acknowledged cumulatively.
    pub(super) acknowledged_repeated: bool,
}

/// Packets between the first unacknowledged and the next new one.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    packets: VecDeque<InFlight>,
    first: u64,
    selectively: RangeSet,
    /// (packet, its transmission), in the order of sending; stale entries are skipped.
    sent_order: VecDeque<(u64, u32)>,
    to_repeat: BTreeSet<u64>,
    delivered_out_of_order: u64,
    lost: u64,
    repeated: u64,
    total_delivered: u64,
    delivered_at: Timestamp,
    first_sent_at: Timestamp,
    /// Packets delivered when the application last had nothing to send.
    application_limited_until: u64,
    rack: Rack,
}

/// State of RACK.
#[derive(Debug, Default)]
struct Rack {
    /// Send time, number and round-trip time of the most recently sent packet that was delivered.
    newest: Option<(Timestamp, u64, Duration)>,
    reordering_seen: bool,
    /// Quarters of the least round-trip time that the window has.
    window_quarters: u32,
    highest_delivered: Option<u64>,
}

impl Scoreboard {
    pub(super) fn first_unacknowledged(&self) -> u64 {
        self.first
    }

    pub(super) fn next_new(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Packets believed to be in the network (RFC 6675 section 4, "pipe").
    pub(super) fn in_flight(&self) -> u64 {
        (self.packets.len() as u64 + self.repeated).saturating_sub(self.delivered_out_of_order + self.lost)
    }

    pub(super) fn total_delivered(&self) -> u64 {
        self.total_delivered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Nothing was selectively acknowledged or found lost.
    pub(super) fn is_clean(&self) -> bool {
        self.delivered_out_of_order == 0 && self.lost == 0
    }

    /// The first lost packet that is not under way again.
    pub(super) fn next_to_repeat(&self) -> Option<u64> {
        self.to_repeat.first().copied()
    }

    /// The next new packet is sent.
    pub(super) fn send_new(&mut self, now: Timestamp) -> u64 {
        let number = self.next_new();
        if self.packets.is_empty() {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        self.packets.push_back(InFlight {
            sent_at: now,
            transmissions: 0,
            delivered: false,
            lost: false,
            repeated: false,
            delivered_before: 0,
            delivered_at_before: now,
            first_sent_at_before: now,
            application_limited: false,
        });
        self.stamp(now, number);
        number
    }

    /// Packet `number` is sent again: a lost one, or the last as a probe.
    pub(super) fn send_again(&mut self, now: Timestamp, number: u64) {
        if self.to_repeat.remove(&number) {
            self.repeated += 1;
            if let Some(packet) = self.packet_mut(number) {
                packet.repeated = true;
            }
        }
        self.stamp(now, number);
    }

    /// The application has nothing more to send while the window would let it.
    pub(super) fn set_application_limited(&mut self) {
        self.application_limited_until = self.total_delivered + self.in_flight().max(1);
    }

    /// The other end has everything below `acknowledged` and the packets of `selective`.
    pub(super) fn acknowledge(
        &mut self,
        now: Timestamp,
        acknowledged: u64,
        selective: &[Range<u64>],
        round_trip: &RoundTrip,
    ) -> Delivered {
        let mut result = Delivered::default();
        let mut newest: Option<(Timestamp, InFlight)> = None;
        let before = self.total_delivered;
        while self.first < acknowledged.min(self.next_new()) {
            let number = self.first;
            self.deliver(now, number, round_trip, &mut newest);
            if let Some(packet) = self.packets.pop_front() {
                result.acknowledged_repeated |= packet.transmissions > 1;
                self.delivered_out_of_order -= 1;
            }
            self.first += 1;
            result.newly_acknowledged += 1;
        }
        self.selectively.remove_below(self.first);
        for block in selective {
            let known = block.start.max(self.first)..block.end.min(self.next_new());
            for new in self.selectively.insert(known) {
                for number in new {
                    self.deliver(now, number, round_trip, &mut newest);
                }
            }
        }
        result.newly_delivered = self.total_delivered - before;
        if let Some((sent_at, packet)) = newest {
            result.rtt = (packet.transmissions == 1).then(|| now.since(sent_at));
            let send_time = sent_at.since(packet.first_sent_at_before);
            let interval = send_time.max(now.since(packet.delivered_at_before));
            let plausible = round_trip.least().is_none_or(|least| interval >= least) && !interval.is_zero();
            result.rate = plausible.then_some(RateSample {
                delivered: self.total_delivered - packet.delivered_before,
                interval,
                prior_delivered: packet.delivered_before,
                application_limited: packet.application_limited,
            });
        }
        result
    }

    /// Marks what RACK takes for lost; returns how many and when to look again.
    pub(super) fn detect_losses(
        &mut self,
        now: Timestamp,
        in_recovery: bool,
        round_trip: &RoundTrip,
    ) -> (u64, Option<Timestamp>) {
        let Some((newest_sent, newest_number, rtt)) = self.rack.newest else { return (0, None) };
        let patience = rtt + self.reordering_window(in_recovery, round_trip);
        let mut found = 0;
        while let Some(&(number, transmission)) = self.sent_order.front() {
            let Some(packet) = self.live(number, transmission) else {
                self.sent_order.pop_front();
                continue;
            };
            let sent_at = packet.sent_at;
            if (sent_at, number) >= (newest_sent, newest_number) {
                return (found, None);
            }
            if sent_at + patience > now {
                return (found, Some(sent_at + patience));
            }
            self.sent_order.pop_front();
            self.mark_lost(number);
            found += 1;
        }
        (found, None)
    }

    /// Everything in flight counts as lost.
    pub(super) fn lose_everything(&mut self) {
        for number in self.first..self.next_new() {
            if self.packet_mut(number).is_some_and(|packet| !packet.delivered) {
                self.mark_lost(number);
            }
        }
        self.sent_order.clear();
    }

    /// Nothing is lost after all: what has not been sent again is just late.
    pub(super) fn forgive_losses(&mut self) {
        for number in std::mem::take(&mut self.to_repeat) {
            if let Some(packet) = self.packet_mut(number) {
                packet.lost = false;
                let transmission = packet.transmissions;
                self.lost -= 1;
                self.sent_order.push_back((number, transmission));
            }
        }
    }

    /// The other end reported something that it had already (RFC 8985 section 6.2 step 4).
    pub(super) fn on_duplicate_report(&mut self) {
        self.rack.reordering_seen = true;
        self.rack.window_quarters = (self.rack.window_quarters.max(1) + 1).min(64);
    }

    fn reordering_window(&self, in_recovery: bool, round_trip: &RoundTrip) -> Duration {
        if !self.rack.reordering_seen && (in_recovery || self.delivered_out_of_order >= DUPLICATE_THRESHOLD) {
            return Duration::ZERO;
        }
        let quarter = round_trip.least().unwrap_or_default() / 4;
        (quarter * self.rack.window_quarters.max(1)).min(round_trip.smoothed().unwrap_or_default())
    }

    fn stamp(&mut self, now: Timestamp, number: u64) {
        let (delivered, delivered_at, first_sent_at) =
            (self.total_delivered, self.delivered_at, self.first_sent_at);
        let limited = delivered < self.application_limited_until;
        let Some(packet) = self.packet_mut(number) else { return };
        packet.sent_at = now;
        packet.transmissions += 1;
        packet.delivered_before = delivered;
        packet.delivered_at_before = delivered_at;
        packet.first_sent_at_before = first_sent_at;
        packet.application_limited = limited;
        let transmission = packet.transmissions;
        self.sent_order.push_back((number, transmission));
    }

    /// Packet `number` reached the other end, if that is news.
    fn deliver(
        &mut self,
        now: Timestamp,
        number: u64,
        round_trip: &RoundTrip,
        newest: &mut Option<(Timestamp, InFlight)>,
    ) {
        let Some(packet) = self.packet_mut(number).filter(|packet| !packet.delivered) else { return };
        packet.delivered = true;
        let packet = *packet;
        self.delivered_out_of_order += 1;
        self.total_delivered += 1;
        self.delivered_at = now;
        if packet.lost {
            self.lost -= 1;
            self.to_repeat.remove(&number);
            if packet.repeated {
                self.repeated -= 1;
            }
        }
        if packet.transmissions == 1 && self.rack.highest_delivered.is_some_and(|highest| number < highest) {
            self.rack.reordering_seen = true;
        }
        self.rack.highest_delivered = self.rack.highest_delivered.max(Some(number));
        if newest.is_none_or(|(sent_at, _)| packet.sent_at >= sent_at) {
            *newest = Some((packet.sent_at, packet));
            self.first_sent_at = packet.sent_at;
        }
        let rtt = now.since(packet.sent_at);
        let impossible = packet.transmissions > 1 && round_trip.least().is_some_and(|least| rtt < least);
        let newer = self.rack.newest.is_none_or(|(sent_at, at, _)| (packet.sent_at, number) > (sent_at, at));
        if !impossible && newer {
            self.rack.newest = Some((packet.sent_at, number, rtt));
        }
    }

    fn mark_lost(&mut self, number: u64) {
        let Some(packet) = self.packet_mut(number) else { return };
        let (was_lost, was_repeated) = (packet.lost, packet.repeated);
        packet.lost = true;
        packet.repeated = false;
        if !was_lost {
            self.lost += 1;
        }
        if was_repeated {
            self.repeated -= 1;
        }
        self.to_repeat.insert(number);
    }

    /// The packet if that transmission of it is under way still.
    fn live(&self, number: u64, transmission: u32) -> Option<&InFlight> {
        let packet = self.packets.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        let under_way = !packet.delivered && (!packet.lost || packet.repeated);
        (under_way && packet.transmissions == transmission).then_some(packet)
    }

    fn packet_mut(&mut self, number: u64) -> Option<&mut InFlight> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get_mut(index)
    }
}
