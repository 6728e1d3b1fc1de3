//! Bulk that arrives packet by packet waits a moment for what follows, so that programs here acknowledge several packets at once.
//!
//! A receiver acknowledges every second segment (RFC 5681 section 4.2), and by Wi-Fi an acknowledgement takes half as much air as a full packet. The kernel
//! acknowledges what it is given in one piece once, as it does behind a network card that joins packets, and TCP senders are used to that.
//!
//! ```text
//! packets of one flow   |  |  |  |     |  |  |  |
//! given to any0                  ||||           ||||
//! acknowledged                     ^              ^   with the bond's own acknowledgement, just before that is due
//! ```
//! Only full segments without a flag wait, only while they come so close that others will follow in time, and what else arrives ends the wait.

use std::time::Duration;

use units::Timestamp;
use wire::inner::{self, Headers, TCP};

/// Bytes of payload; a shorter segment is the end of what was sent.
const FULL: usize = 1_000;
/// So many packets go at once: the more come, the shorter they wait.
const ENOUGH: u32 = 16;
/// Time between packets is a mean over about so many.
const MEMORY: u32 = 8;
/// A longer time between two is a pause.
const PAUSE: Duration = Duration::from_millis(10);
/// Waiting is worth it if so many more are expected.
const WORTH: u32 = 2;

/// What waits for any0, and whether it may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// Mean time between full segments.
    interval: Duration,
    last: Option<Timestamp>,
    /// Since when the first one waits.
    since: Option<Timestamp>,
    count: u32,
    /// Something else is among them.
    is_urgent: bool,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { interval: PAUSE, last: None, since: None, count: 0, is_urgent: false }
    }
}

impl Gathering {
    /// One more waits.
    pub(super) fn take(&mut self, now: Timestamp, packet: &[u8]) {
        if !inner::parse(packet).is_ok_and(|headers| is_bulk(&headers)) {
            self.is_urgent = true;
            return;
        }
        let passed = self.last.replace(now).map_or(PAUSE, |last| now.since(last).min(PAUSE));
        self.interval = (self.interval * (MEMORY - 1) + passed) / MEMORY;
        self.since.get_or_insert(now);
        self.count += 1;
    }

    /// Until when what waits may, if the bond acknowledges after `delay`; `None` if it goes now.
    pub(super) fn until(&self, delay: Duration) -> Option<Timestamp> {
        let longest = delay * 3 / 4;
        let may_wait = !self.is_urgent && self.count < ENOUGH && self.interval * WORTH <= longest;
        self.since.filter(|_| may_wait).map(|since| since + longest)
    }

    /// Nothing waits any more.
    pub(super) fn end(&mut self) {
        (self.since, self.count, self.is_urgent) = (None, 0, false);
    }
}

/// A full TCP segment that neither begins nor ends anything and is not the last one of what its sender had.
fn is_bulk(headers: &Headers) -> bool {
    headers.key.protocol == TCP && headers.payload_len >= FULL && headers.tcp_flags == Headers::ACK
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(4);

    /// An IPv4 packet with so much payload and these TCP flags.
    fn segment(payload: usize, flags: u8) -> Vec<u8> {
        let length = 40 + payload;
        let mut packet = vec![0; length];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[8..10].copy_from_slice(&[64, TCP]);
        packet[32] = 5 << 4;
        packet[33] = flags;
        packet
    }

    /// After so many full segments in such a rhythm, each given at once.
    fn in_rhythm(count: u64, micros: u64) -> (Gathering, Timestamp) {
        let mut gathering = Gathering::default();
        let at = |number: u64| Timestamp::from_micros(1_000_000 + number * micros);
        for number in 0..count {
            gathering.take(at(number), &segment(1_400, Headers::ACK));
            gathering.end();
        }
        (gathering, at(count))
    }

    #[test]
    fn what_comes_close_waits_until_just_before_the_bond_acknowledges_it() {
        let (mut gathering, now) = in_rhythm(40, 600);
        gathering.take(now, &segment(1_400, Headers::ACK));
        assert_eq!(gathering.until(DELAY), Some(now + Duration::from_millis(3)));
        gathering.take(now + Duration::from_micros(600), &segment(1_400, Headers::ACK));
        assert_eq!(gathering.until(DELAY), Some(now + Duration::from_millis(3)), "from the first one on");
        gathering.end();
        assert_eq!(gathering.until(DELAY), None);
    }

    #[test]
    fn what_comes_seldom_or_has_just_begun_does_not_wait() {
        for (count, micros) in [(0, 600), (5, 600), (200, 2_000)] {
            let (mut gathering, now) = in_rhythm(count, micros);
            gathering.take(now, &segment(1_400, Headers::ACK));
            assert_eq!(gathering.until(DELAY), None, "{count} every {micros} us");
        }
    }

    #[test]
    fn anything_else_takes_along_what_waits() {
        let others = [
            segment(1_400, Headers::ACK | Headers::PSH),
            segment(1_400, Headers::ACK | Headers::FIN),
            segment(0, Headers::ACK),
            segment(300, Headers::ACK),
            vec![0; 60],
            Vec::new(),
        ];
        for other in others {
            let (mut gathering, now) = in_rhythm(40, 600);
            gathering.take(now, &segment(1_400, Headers::ACK));
            gathering.take(now, &other);
            assert_eq!(gathering.until(DELAY), None, "{:?}", other.get(33));
        }
    }

    #[test]
    fn many_go_at_once() {
        let (mut gathering, now) = in_rhythm(40, 10);
        for count in 1..=ENOUGH {
            gathering.take(now, &segment(1_400, Headers::ACK));
            assert_eq!(gathering.until(DELAY).is_some(), count < ENOUGH);
        }
    }
}
