//! How much of each channel's air others take, by the frames between them that are heard.
//!
//! What is too far to be read, and what collides, is missing: it is a lower bound.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Bytes, Frequency, Timestamp};

use crate::Heard;
use crate::airtime::{CHECK_SEQUENCE, Flavour};

/// Air of all channels that we are on at times.
#[derive(Clone, Default, Debug)]
pub(super) struct Others {
    channels: BTreeMap<Frequency, Channel>,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    taken: Duration,
    listened: Duration,
    last: Timestamp,
}

impl Others {
    /// A data frame was heard, on a channel where we have been since `present_since`; `is_ours`: it is to us or from us.
    pub fn take(&mut self, now: Timestamp, heard: &Heard<'_>, is_ours: bool, present_since: Timestamp) {
        if self.channels.len() >= MOST_CHANNELS && !self.channels.contains_key(&heard.frequency) {
            return;
        }
        let new = Channel { taken: Duration::ZERO, listened: Duration::ZERO, last: now };
        let channel = self.channels.entry(heard.frequency).or_insert(new);
        channel.listen(now, present_since);
        if !is_ours {
            channel.taken += air_time(heard);
        }
        if channel.listened >= REMEMBERED {
            channel.taken /= 2;
            channel.listened /= 2;
        }
    }

    /// The part of the air that others have taken, of the last second or so in which we listened; 0 if nothing was heard for some time.
    pub fn part(&self, now: Timestamp, frequency: Frequency) -> f64 {
        match self.channels.get(&frequency) {
            Some(channel) if now.since(channel.last) <= SILENCE && channel.listened >= ENOUGH => {
                (channel.taken.as_secs_f64() / channel.listened.as_secs_f64()).min(1.0)
            }
            _ => 0.0,
        }
    }
}

impl Channel {
    /// Time passes on this channel, as far as we are there. A clock that jumped, or a long absence, is no time.
    fn listen(&mut self, now: Timestamp, present_since: Timestamp) {
        let passed = now.since(self.last.max(present_since));
        self.listened += passed.min(SILENCE);
        self.last = now;
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

    const CHANNEL: Frequency = Frequency(5_180);

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
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
    fn what_others_take_is_counted_and_what_is_ours_is_not() {
        let bytes = [0; 1_536];
        let heard = frame(&bytes);
        let time = air_time(&heard);
        let mut others = Others::default();
        let mut now = at(1_000);
        for number in 0..4_000_u32 {
            now += time * 2;
            others.take(now, &heard, number % 2 == 0, Timestamp::ZERO);
        }
        let part = others.part(now, CHANNEL);
        assert!((part - 0.25).abs() < 0.01, "{part}");
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
                others.take(now, &heard, false, arrived);
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
            others.take(at(1_000_000 - u64::from(number)), &heard, false, at(2_000_000));
            let part = others.part(at(0), Frequency(number));
            assert!((0.0..=1.0).contains(&part));
        }
        assert_eq!(others.channels.len(), MOST_CHANNELS);
    }
}
