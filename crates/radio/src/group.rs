//! An ad hoc group (IBSS): its clock, its members, and when they are there (IEEE 802.11-2020 sections 11.1.3.5 and 11.1.4).
//!
//! Nobody keeps frames for us here. Members that run this program tell in an element of their beacons how long they stay:
//! ```text
//!  1       1        3              1      1         2 (little endian)
//! +-------+--------+--------------+------+---------+-----------------+
//! | 221   | length | 02-41-42     | 1    | version | stays for (ms)  |
//! +-------+--------+--------------+------+---------+-----------------+
//! ```
//! The organisation's number is a local one, as nobody assigned us any. Frames to a member that told are sent only while it stays.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Frequency, MacAddress, Timestamp};

use crate::airtime::Flavour;
use crate::frame::{Elements, write_element};
use crate::network::lowest_rate;
use crate::rates::RateChoice;
use crate::reception::{Duplicates, Pieces};
use crate::{Rate, Transmission};

/// Members that are known at once; the one not heard for longest goes first.
const MOST_MEMBERS: usize = 32;
/// A member that told how long it stays and was not heard for so long is taken for one that does not tell.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3);
const VENDOR: u8 = 221;
const ORGANISATION: [u8; 3] = [0x02, 0x41, 0x42];
const PRESENCE: u8 = 1;
const VERSION: u8 = 1;

/// What is configured of an ad hoc group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// The channel on which it is founded if nobody is heard of it.
    pub frequency: Frequency,
}

/// The group's common clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupClock {
    at: Timestamp,
    value: u64,
}

impl GroupClock {
    pub fn new(now: Timestamp, value: u64) -> Self {
        Self { at: now, value }
    }

    pub fn now(&self, now: Timestamp) -> u64 {
        self.value.saturating_add(u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX))
    }

    /// When the next beacon is due after `now`: the clock is a multiple of the interval then (TBTT).
    pub fn next_beacon(&self, now: Timestamp, interval: Duration) -> Timestamp {
        let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).max(1);
        now + Duration::from_micros(interval - self.now(now) % interval)
    }
}

/// Another member.
pub(crate) struct Member {
    pub rates: RateChoice,
    pub duplicates: Duplicates,
    pub pieces: Pieces,
    pub heard: Timestamp,
    /// Until when it said that it stays; `None` if it does not tell.
    stays: Option<Timestamp>,
}

/// A group that we are a member of.
pub(crate) struct Group {
    pub bssid: MacAddress,
    pub frequency: Frequency,
    pub interval: Duration,
    pub rates: Vec<Rate>,
    pub basic: Vec<Rate>,
    pub clock: GroupClock,
    pub members: BTreeMap<MacAddress, Member>,
    /// When we send the next beacon, if nobody does before; chance is in it.
    pub next_beacon: Timestamp,
    /// We sent the latest beacon: who asks is answered by us.
    pub is_ours: bool,
    /// See [`crate::network::Linked::unsent`].
    pub unsent: Option<(Transmission, MacAddress, Rate)>,
}

impl Group {
    pub fn safe_rate(&self) -> Rate {
        self.basic.first().or(self.rates.first()).copied().unwrap_or(lowest_rate(self.frequency))
    }

    /// A member, new or known, that was just heard.
    pub fn member(&mut self, now: Timestamp, address: MacAddress) -> &mut Member {
        if !self.members.contains_key(&address) && self.members.len() >= MOST_MEMBERS {
            let oldest = self.members.iter().min_by_key(|(_, member)| member.heard).map(|(at, _)| *at);
            oldest.and_then(|oldest| self.members.remove(&oldest));
        }
        let (flavour, lowest) = (Flavour::of(self.frequency), self.safe_rate());
        let rates = &self.rates;
        let member = self.members.entry(address).or_insert_with(|| Member {
            rates: RateChoice::new(flavour, rates, lowest),
            duplicates: Duplicates::default(),
            pieces: Pieces::default(),
            heard: now,
            stays: None,
        });
        member.heard = now;
        member
    }

    /// Whether a frame to `receiver` is of use now: not if it told that it is away. One to all is if anybody who tells is there.
    pub fn is_there(&self, now: Timestamp, receiver: MacAddress) -> bool {
        if receiver.is_group() {
            let mut telling = self.members.values().filter(|member| member.tells(now)).peekable();
            return telling.peek().is_none() || telling.any(|member| member.is_there(now));
        }
        self.members.get(&receiver).is_none_or(|member| member.is_there(now))
    }

    /// Whether any member tells how long it stays.
    pub fn is_telling(&self, now: Timestamp) -> bool {
        self.members.values().any(|member| member.tells(now))
    }
}

impl Member {
    /// Takes what a beacon says of its stay.
    pub fn told(&mut self, now: Timestamp, elements: Elements<'_>) {
        if let Some(stay) = presence(elements) {
            self.stays = Some(now + stay);
        }
    }

    fn tells(&self, now: Timestamp) -> bool {
        self.stays.is_some() && now.since(self.heard) < FORGOTTEN_AFTER
    }

    fn is_there(&self, now: Timestamp) -> bool {
        !self.tells(now) || self.stays.is_some_and(|until| now < until)
    }
}

/// Appends the element that says how long we stay.
pub(crate) fn write_presence(frame: &mut Vec<u8>, stay: Duration) {
    let stay = u16::try_from(stay.as_millis()).unwrap_or(u16::MAX).to_le_bytes();
    let [a, b, c] = ORGANISATION;
    write_element(frame, VENDOR, &[a, b, c, PRESENCE, VERSION, stay[0], stay[1]]);
}

/// How long the sender of a beacon stays, if it says so.
fn presence(elements: Elements<'_>) -> Option<Duration> {
    let vendor = elements.iter().filter(|element| element.number == VENDOR);
    let mut ours = vendor.filter_map(|element| element.body.strip_prefix(&ORGANISATION));
    ours.find_map(|body| match *body {
        [PRESENCE, VERSION, low, high, ..] => {
            Some(Duration::from_millis(u16::from_le_bytes([low, high]).into()))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_is_told_and_read() {
        let mut elements = Vec::new();
        write_element(&mut elements, VENDOR, &[0, 0x50, 0xf2, 2, 0]);
        write_presence(&mut elements, Duration::from_millis(300));
        assert_eq!(presence(Elements::parse(&elements).unwrap()), Some(Duration::from_millis(300)));
        for length in 0..elements.len() {
            if let Ok(cut) = Elements::parse(&elements[..length]) {
                assert_eq!(presence(cut), None);
            }
        }
    }

    #[test]
    fn the_clock_says_when_beacons_are_due() {
        let interval = Duration::from_micros(102_400);
        let start = Timestamp::from_millis(5_000);
        let clock = GroupClock::new(start, 102_400 * 7 - 400);
        assert_eq!(clock.next_beacon(start, interval), start + Duration::from_micros(400));
        let later = start + Duration::from_micros(400);
        assert_eq!(clock.next_beacon(later, interval), later + interval);
    }

    #[test]
    fn who_told_is_sent_to_while_it_stays_and_who_did_not_always() {
        let (frequency, now) = (Frequency(2412), Timestamp::from_millis(100));
        let mut group = Group {
            bssid: MacAddress([2; 6]),
            frequency,
            interval: Duration::from_micros(102_400),
            rates: Rate::OFDM.to_vec(),
            basic: Vec::new(),
            clock: GroupClock::new(now, 0),
            members: BTreeMap::new(),
            next_beacon: now,
            is_ours: false,
            unsent: None,
        };
        let (telling, silent) = (MacAddress([4; 6]), MacAddress([6; 6]));
        let mut elements = Vec::new();
        write_presence(&mut elements, Duration::from_millis(20));
        let elements = Elements::parse(&elements).unwrap();
        group.member(now, silent);
        assert!(group.is_there(now, MacAddress::BROADCAST));
        group.member(now, telling).told(now, elements);
        let at = |millis| now + Duration::from_millis(millis);
        assert!(group.is_there(at(19), telling) && group.is_there(at(19), MacAddress::BROADCAST));
        assert!(!group.is_there(at(20), telling) && !group.is_there(at(20), MacAddress::BROADCAST));
        assert!(group.is_there(at(500), silent) && group.is_there(at(500), MacAddress([8; 6])));
        assert!(group.is_there(at(3_000), telling), "not heard of for so long");
        for last in 0..100 {
            group.member(at(last), MacAddress([2, 0, 0, 0, 1, last as u8]));
        }
        assert_eq!(group.members.len(), MOST_MEMBERS);
    }
}
