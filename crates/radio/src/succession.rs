//! Which access point of a network came after which: who moves along the same way again finds the next one where it was.
//!
//! `[MULTIAP] section 8` leaves association at the speed of a vehicle to later work; this is what a radio can know of it by itself.

use std::collections::VecDeque;

use units::{Frequency, MacAddress};

/// Access points of which it is remembered what came after them; the one that was left longest ago goes first.
pub const MOST_REMEMBERED: usize = 256;
/// Channels that are remembered for each: two ways on from a place and one back.
pub const MOST_FOLLOWERS: usize = 3;

/// What came after each access point of one network.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Succession {
    /// The one that was left longest ago first.
    remembered: VecDeque<Followers>,
    last: Option<MacAddress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Followers {
    of: MacAddress,
    /// The latest first.
    channels: Vec<Frequency>,
}

impl Succession {
    /// The network came up at an access point on a channel.
    pub fn arrived(&mut self, bssid: MacAddress, frequency: Frequency) {
        let Some(before) = self.last.replace(bssid).filter(|before| *before != bssid) else { return };
        let known = self.remembered.iter().position(|followers| followers.of == before);
        let known = known.and_then(|at| self.remembered.remove(at));
        let mut followers = known.unwrap_or(Followers { of: before, channels: Vec::new() });
        followers.channels.retain(|channel| *channel != frequency);
        followers.channels.insert(0, frequency);
        followers.channels.truncate(MOST_FOLLOWERS);
        if self.remembered.len() == MOST_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(followers);
    }

    /// The way begins anew: what comes next came after nothing.
    pub fn begin(&mut self) {
        self.last = None;
    }

    /// Channels on which the next access point is expected, the likeliest first; empty if none ever came after the last one.
    pub fn expected(&self) -> &[Frequency] {
        let followers = self.remembered.iter().find(|followers| Some(followers.of) == self.last);
        followers.map_or(&[], |followers| &followers.channels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNELS: [Frequency; 4] = [Frequency(2_412), Frequency(2_437), Frequency(2_462), Frequency(5_180)];

    fn point(number: u16) -> MacAddress {
        let [high, low] = number.to_be_bytes();
        MacAddress([2, 0, 0, 0, high, low])
    }

    #[test]
    fn the_latest_follower_is_expected_first() {
        let mut way = Succession::default();
        for (number, channel) in [(1, CHANNELS[0]), (2, CHANNELS[1]), (1, CHANNELS[0]), (3, CHANNELS[2])] {
            way.arrived(point(number), channel);
        }
        assert!(way.expected().is_empty(), "nothing ever came after the third");
        way.begin();
        way.arrived(point(1), CHANNELS[0]);
        assert_eq!(way.expected(), [CHANNELS[2], CHANNELS[1]]);
        way.arrived(point(1), CHANNELS[0]);
        assert_eq!(way.expected(), [CHANNELS[2], CHANNELS[1]], "back at the same one");
    }

    #[test]
    fn it_is_bounded() {
        let mut way = Succession::default();
        for number in 0..1_000 {
            way.arrived(point(number), CHANNELS[usize::from(number % 4)]);
        }
        assert_eq!(way.remembered.len(), MOST_REMEMBERED);
        for channel in CHANNELS {
            way.begin();
            way.arrived(point(5_000), CHANNELS[0]);
            way.arrived(point(6_000), channel);
        }
        way.begin();
        way.arrived(point(5_000), CHANNELS[0]);
        assert_eq!(way.expected(), [CHANNELS[3], CHANNELS[2], CHANNELS[1]]);
    }
}
