//! How much of each channel's air others take, and which of them, by the frames between them that are heard; and how much they and we take together.
//!
//! What is too far to be read, and what collides, is missing: it is a lower bound.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Bytes, Frequency, MacAddress, Timestamp};

use crate::Heard;
use crate::airtime::{CHECK_SEQUENCE, Flavour};
use crate::frame::Header;

/// Air of all channels that we are on at times.
#[derive(Clone, Default, Debug)]
pub(super) struct Others {
    channels: BTreeMap<Frequency, Channel>,
}

#[derive(Clone, Debug)]
struct Channel {
    /// By others.
    taken: Duration,
    /// By data frames to us or from us.
    ours: Duration,
    listened: Duration,
    last: Timestamp,
    /// Full packets from a transmitter to a receiver.
    packets: BTreeMap<(MacAddress, MacAddress), u32>,
}

impl Others {
    /// A data frame was heard, on a channel where we have been since `present_since`; `is_ours`: it is to us or from us.
    pub fn take(
        &mut self,
        now: Timestamp,
        header: &Header,
        heard: &Heard<'_>,
        is_ours: bool,
        present_since: Timestamp,
    ) {
        if self.channels.len() >= MOST_CHANNELS && !self.channels.contains_key(&heard.frequency) {
            return;
        }
        let channel = self.channels.entry(heard.frequency).or_insert_with(|| Channel::new(now));
        channel.listen(now, present_since);
        if is_ours {
            channel.ours += air_time(heard);
        } else {
            channel.taken += air_time(heard);
            channel.count(header, heard);
        }
        channel.age();
    }

    /// We send a data frame that takes so much of the air where we have been since `present_since`: nobody hears his own frames.
    pub fn sent(&mut self, now: Timestamp, frequency: Frequency, air: Duration, present_since: Timestamp) {
        let Some(channel) = self.channels.get_mut(&frequency) else { return };
        channel.listen(now, present_since);
        channel.ours += air;
        channel.age();
    }

    /// The part of the air that others have taken, of the last second or so in which we listened; 0 if nothing was heard for some time.
    pub fn part(&self, now: Timestamp, frequency: Frequency) -> f64 {
        self.listened(now, frequency).map_or(0.0, |channel| channel.part(channel.taken))
    }

    /// The same of all data frames, those to us and from us too.
    pub fn part_of_all(&self, now: Timestamp, frequency: Frequency) -> f64 {
        self.listened(now, frequency).map_or(0.0, |channel| channel.part(channel.taken + channel.ours))
    }

    /// Who sends full packets to whom, and how many in a second: the transmitter of each such pair of others.
    pub fn pairs(&self, now: Timestamp, frequency: Frequency) -> impl Iterator<Item = (MacAddress, f64)> {
        self.listened(now, frequency).into_iter().flat_map(|channel| {
            let seconds = channel.listened.as_secs_f64();
            channel
                .packets
                .iter()
                .map(move |((transmitter, _), packets)| (*transmitter, f64::from(*packets) / seconds))
        })
    }

    fn listened(&self, now: Timestamp, frequency: Frequency) -> Option<&Channel> {
        let channel = self.channels.get(&frequency)?;
        (now.since(channel.last) <= SILENCE && channel.listened >= ENOUGH).then_some(channel)
    }
}

impl Channel {
    fn new(now: Timestamp) -> Self {
        Self {
            taken: Duration::ZERO,
            ours: Duration::ZERO,
            listened: Duration::ZERO,
            last: now,
            packets: BTreeMap::new(),
        }
    }

    fn age(&mut self) {
        if self.listened >= REMEMBERED {
            self.taken /= 2;
            self.ours /= 2;
            self.listened /= 2;
            self.packets.values_mut().for_each(|packets| *packets /= 2);
            self.packets.retain(|_, packets| *packets > 0);
        }
    }

    fn part(&self, taken: Duration) -> f64 {
        taken.div_duration_f64(self.listened).min(1.0)
    }

    /// Time passes on this channel, as far as we are there. A clock that jumped, or a long absence, is no time.
    fn listen(&mut self, now: Timestamp, present_since: Timestamp) {
        let passed = now.since(self.last.max(present_since));
        self.listened += passed.min(SILENCE);
        self.last = now;
    }

    /// Repeats are no further packets. Acknowledgements of TCP and what else is short cost little, and are nobody's part.
    fn count(&mut self, header: &Header, heard: &Heard<'_>) {
        let pair = (header.transmitter, header.receiver);
        let is_packet = !header.control.retry && !header.receiver.is_group() && heard.frame.len() >= FULL;
        if is_packet && (self.packets.len() < MOST_PAIRS || self.packets.contains_key(&pair)) {
            let packets = self.packets.entry(pair).or_insert(0);
            *packets = packets.saturating_add(1);
        }
    }
}

/// With the gaps and the acknowledgement that belong to it, and the back-off that a sender waits for on average.
fn air_time(heard: &Heard<'_>) -> Duration {
    let flavour = Flavour::of(heard.frequency);
    let length = Bytes(heard.frame.len() as u64 + CHECK_SEQUENCE.0);
    match (heard.high_throughput, heard.rate) {
        (Some(rate), _) => {
            let frames = if heard.aggregate.is_some() { USUAL_AGGREGATE } else { 1 };
            flavour.aggregate_exchange_time(rate, length, frames) + flavour.mean_back_off(0) / frames
        }
        (None, Some(rate)) if rate.is_cck() => {
            Flavour::B.exchange_time(rate, length) + Flavour::B.mean_back_off(0)
        }
        (None, Some(rate)) => flavour.exchange_time(rate, length) + flavour.mean_back_off(0),
        (None, None) => Duration::ZERO,
    }
}

/// More than a card has of both bands together.
const MOST_CHANNELS: usize = 64;
/// More pairs than can have a part that is worth anything.
const MOST_PAIRS: usize = 64;
/// Bytes; what is as long counts as a full packet.
const FULL: usize = 750;
/// After so much listening what was before counts half.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Less listening says nothing.
const ENOUGH: Duration = Duration::from_millis(50);
/// Nothing heard for longer: nobody takes anything.
const SILENCE: Duration = Duration::from_secs(2);
/// Frames that share what surrounds an aggregate, about: how many came is only known afterwards.
const USUAL_AGGREGATE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::frame::Kind;

    const CHANNEL: Frequency = Frequency(5_180);

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
    }

    /// To the station of this number.
    fn header(station: u32) -> Header {
        let [_, high, middle, low] = station.to_be_bytes();
        let point = MacAddress([2, 0, 0, 0, 0, 1]);
        Header::new(Kind::QosData, MacAddress([2, 1, 0, high, middle, low]), point, point)
    }

    fn frame(bytes: &[u8]) -> Heard<'_> {
        Heard {
            frame: bytes,
            frequency: CHANNEL,
            signal_dbm: None,
            rate: Some(Rate(48)),
            high_throughput: None,
            aggregate: None,
        }
    }

    #[test]
    fn what_others_take_is_told_from_what_is_ours() {
        let bytes = [0; 1_536];
        let heard = frame(&bytes);
        let time = air_time(&heard);
        let mut others = Others::default();
        let mut now = at(1_000);
        for number in 0..4_000_u32 {
            now += time * 2;
            match number % 4 {
                0 => others.take(now, &header(1), &heard, true, Timestamp::ZERO),
                1 => others.sent(now, CHANNEL, time, Timestamp::ZERO),
                _ => others.take(now, &header(1), &heard, false, Timestamp::ZERO),
            }
        }
        let part = others.part(now, CHANNEL);
        assert!((part - 0.25).abs() < 0.01, "{part}");
        let all = others.part_of_all(now, CHANNEL);
        assert!((all - 0.5).abs() < 0.02, "{all}");
        others.sent(now, Frequency(2_437), time, Timestamp::ZERO);
        assert_eq!(others.part(now, Frequency(2_437)), 0.0);
        assert_eq!(others.part(now + SILENCE * 2, CHANNEL), 0.0, "they are gone");
    }

    #[test]
    fn time_on_other_channels_is_none() {
        let bytes = [0; 1_536];
        let heard = frame(&bytes);
        let time = air_time(&heard);
        let mut others = Others::default();
        // Every 200 ms we are there for 40 ms, in which they take all the air.
        for slot in 0..40_u64 {
            let arrived = at(slot * 200_000);
            let mut now = arrived;
            while now.since(arrived) + time < Duration::from_millis(40) {
                now += time;
                others.take(now, &header(1), &heard, false, arrived);
            }
        }
        let now = at(39 * 200_000 + 40_000);
        let part = others.part(now, CHANNEL);
        assert!(part > 0.95, "{part}");
    }

    #[test]
    fn memory_is_bounded_and_clocks_may_step() {
        let mut others = Others::default();
        for number in 0..1_000 {
            let heard = Heard { frequency: Frequency(number), ..frame(&[0; 40]) };
            others.take(at(1_000_000 - u64::from(number)), &header(1), &heard, false, at(2_000_000));
            let part = others.part(at(0), Frequency(number));
            assert!((0.0..=1.0).contains(&part));
        }
        assert_eq!(others.channels.len(), MOST_CHANNELS);
        for number in 0..100_000 {
            let heard = Heard { frequency: Frequency(0), ..frame(&[0; 1_000]) };
            others.take(at(2_000_000), &header(number), &heard, false, at(0));
        }
        assert_eq!(others.channels[&Frequency(0)].packets.len(), MOST_PAIRS);
    }

    #[test]
    fn full_packets_of_each_pair_are_counted_once() {
        let (long, short) = ([0; 1_536], [0; 100]);
        let mut others = Others::default();
        for number in 0..3_000_u64 {
            let now = at(1_000 + number * 1_000);
            let mut take = |header: Header, bytes: &[u8], is_ours| {
                others.take(now, &header, &frame(bytes), is_ours, Timestamp::ZERO);
            };
            take(header(1), &long, false);
            if number % 4 == 0 {
                take(header(2), &long, false);
            }
            let mut again = header(2);
            again.control.retry = true;
            take(again, &long, false);
            take(header(3), &short, false);
            take(header(4), &long, true);
        }
        let now = at(3_001_000);
        let rates: Vec<f64> = others.pairs(now, CHANNEL).map(|(_, packets)| packets).collect();
        assert!(
            matches!(rates[..], [one, two] if (one - 1_000.0).abs() < 20.0 && (two - 250.0).abs() < 10.0),
            "{rates:?}"
        );
        assert_eq!(others.pairs(now + SILENCE * 2, CHANNEL).count(), 0);
    }
}
