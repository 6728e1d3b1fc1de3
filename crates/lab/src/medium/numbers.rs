//! Sequence numbers without holes.
//!
//! The kernel numbers a frame before it reaches the card's queue, real cards that drop a frame from a full queue number it after. Who counts
//! lost frames by their numbers (`[MULTIAP] eq. 2`) would take the drops of a queue for losses of the air, so the numbers
//! that a full queue took are closed up. The number is no part of what CCMP protects (IEEE Std 802.11-2020 section 12.5.3.3.3).

use std::collections::BTreeMap;

use units::MacAddress;

/// How many numbers were dropped in each counter of each sender.
#[derive(Default)]
pub(super) struct Numbers {
    dropped: BTreeMap<Counter, u16>,
}

/// A sender has one counter for each receiver and traffic class, and one for all else (section 10.3.2.14).
type Counter = (MacAddress, Option<(MacAddress, u8)>);

impl Numbers {
    /// `frame` goes on: its number closes up to those before.
    pub(super) fn close_up(&self, frame: &mut [u8]) {
        let offset = counter_of(frame).and_then(|counter| self.dropped.get(&counter)).copied().unwrap_or(0);
        if let Some(number) = sequence_control(frame).filter(|_| offset != 0) {
            frame[CONTROL..CONTROL + 2].copy_from_slice(&number.wrapping_sub(offset << 4).to_le_bytes());
        }
    }

    /// `frame` was dropped.
    pub(super) fn drop(&mut self, frame: &[u8]) {
        let is_first = sequence_control(frame).is_some_and(|control| control & FRAGMENT == 0);
        let Some(counter) = counter_of(frame).filter(|_| is_first) else { return };
        if self.dropped.len() < MOST_COUNTERS || self.dropped.contains_key(&counter) {
            let dropped = self.dropped.entry(counter).or_default();
            *dropped = (*dropped + 1) & NUMBERS;
        }
    }
}

fn sequence_control(frame: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(frame.get(CONTROL..CONTROL + 2)?.try_into().ok()?))
}

/// The counter that numbered a frame; `None` for control frames and beacons, which are not counted.
fn counter_of(frame: &[u8]) -> Option<Counter> {
    let kind = *frame.first()?;
    if kind & TYPE == TYPE_CONTROL || kind == BEACON {
        return None;
    }
    let address = |at: usize| Some(MacAddress(frame.get(at..at + 6)?.try_into().ok()?));
    let (receiver, sender) = (address(4)?, address(10)?);
    let is_counted_apart = kind & TYPE == TYPE_DATA && kind & QOS != 0 && !receiver.is_group();
    if !is_counted_apart {
        return Some((sender, None));
    }
    let has_four_addresses = frame.get(1)? & BOTH_SYSTEMS == BOTH_SYSTEMS;
    let class = frame.get(if has_four_addresses { 30 } else { 24 })? & CLASS;
    Some((sender, Some((receiver, class))))
}

/// Place of the sequence control field: fragment in four bits, number in twelve.
const CONTROL: usize = 22;
const FRAGMENT: u16 = 0x000f;
const NUMBERS: u16 = 0x0fff;
// Bits of frame control.
const TYPE: u8 = 0x0c;
const TYPE_CONTROL: u8 = 0x04;
const TYPE_DATA: u8 = 0x08;
const QOS: u8 = 0x80;
const BEACON: u8 = 0x80;
const BOTH_SYSTEMS: u8 = 0x03;
/// Traffic class in QoS control.
const CLASS: u8 = 0x0f;
/// More senders and classes than any experiment has.
const MOST_COUNTERS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, receiver: u8, number: u16, class: u8) -> Vec<u8> {
        let mut frame = vec![0; 26];
        frame[0] = kind;
        frame[4..10].fill(receiver);
        frame[10..16].fill(2);
        frame[CONTROL..CONTROL + 2].copy_from_slice(&(number << 4).to_le_bytes());
        frame[24] = class;
        frame
    }

    #[test]
    fn numbers_close_up_within_their_counter() {
        let mut numbers = Numbers::default();
        let after = |numbers: &Numbers, mut frame: Vec<u8>| {
            numbers.close_up(&mut frame);
            sequence_control(&frame).unwrap() >> 4
        };
        assert_eq!(after(&numbers, frame(0x08, 4, 10, 0)), 10);
        numbers.drop(&frame(0x08, 4, 11, 0));
        numbers.drop(&frame(0x08, 6, 12, 0));
        assert_eq!(after(&numbers, frame(0x08, 4, 13, 0)), 11, "one counter for all receivers without QoS");
        assert_eq!(after(&numbers, frame(0x08, 4, 1, 0)), 4_095, "they go round");
        assert_eq!(after(&numbers, frame(BEACON, 0xff, 5, 0)), 5);
        numbers.drop(&frame(0x88, 4, 20, 3));
        assert_eq!(after(&numbers, frame(0x88, 4, 21, 3)), 20);
        assert_eq!(after(&numbers, frame(0x88, 4, 21, 5)), 21, "another class");
        assert_eq!(after(&numbers, frame(0x88, 6, 21, 3)), 21, "another receiver");
    }

    #[test]
    fn what_has_no_number_stays_as_it_is() {
        let mut numbers = Numbers::default();
        for length in 0..24 {
            let mut short = frame(0x88, 4, 9, 0)[..length].to_vec();
            numbers.drop(&short);
            let before = short.clone();
            numbers.close_up(&mut short);
            assert_eq!(short, before, "{length} bytes");
        }
        let mut fragment = frame(0x08, 4, 9, 0);
        fragment[CONTROL] |= 1;
        numbers.drop(&fragment);
        assert!(numbers.dropped.is_empty());
    }
}
