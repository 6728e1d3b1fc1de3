//! How a card spent its time on a channel, as its driver counts it: the "survey" of `nl80211`.
//!
//! Every counter is optional: drivers tell some, many tell none. All of them rise from when the card was switched on, or from when the driver last felt like
//! beginning anew; only what two readings differ by means anything.

use std::time::Duration;

use units::Frequency;

use crate::netlink::message;

/// A card's time on one channel, as counted so far. `None`: the driver does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The channel.
    pub frequency: Frequency,
    /// How long the card was on it.
    pub time: Option<Duration>,
    /// How long of that the air was taken, by whomever, ourselves included.
    pub busy: Option<Duration>,
    /// How long the card sent.
    pub transmitting: Option<Duration>,
    /// How long it received frames of networks that it is in, those for others among them.
    pub receiving_own: Option<Duration>,
}

/// The survey in an answer, if it is of the channel that the card uses now. What a driver tells of others is what it saw of them when it last looked.
pub(super) fn parse_survey(attributes: &[u8]) -> Option<Survey> {
    let (_, told) = message::attributes(attributes).find(|(kind, _)| *kind == ATTRIBUTE_SURVEY)?;
    let (mut frequency, mut in_use) = (None, false);
    let (mut time, mut busy, mut transmitting, mut receiving_own) = (None, None, None, None);
    for (kind, value) in message::attributes(told) {
        match kind {
            SURVEY_FREQUENCY => frequency = message::number(value, 0).map(Frequency),
            SURVEY_IN_USE => in_use = true,
            SURVEY_TIME => time = milliseconds(value),
            SURVEY_BUSY => busy = milliseconds(value),
            SURVEY_TRANSMITTING => transmitting = milliseconds(value),
            SURVEY_RECEIVING_OWN => receiving_own = milliseconds(value),
            _ => {}
        }
    }
    let frequency = frequency.filter(|_| in_use)?;
    Some(Survey { frequency, time, busy, transmitting, receiving_own })
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    message::long(value, 0).map(Duration::from_millis)
}

/// `NL80211_ATTR_SURVEY_INFO`.
pub(super) const ATTRIBUTE_SURVEY: u16 = 84;

// `enum nl80211_survey_info`; times are 64-bit numbers of milliseconds.
const SURVEY_FREQUENCY: u16 = 1;
const SURVEY_IN_USE: u16 = 3;
const SURVEY_TIME: u16 = 4;
const SURVEY_BUSY: u16 = 5;
const SURVEY_TRANSMITTING: u16 = 8;
const SURVEY_RECEIVING_OWN: u16 = 11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::message::{HEADER, Request};

    /// What the kernel would send: a channel, whether it is in use, and counters.
    fn answer(frequency: u32, in_use: bool, counters: &[(u16, u64)]) -> Vec<u8> {
        let mut request = Request::new(0, 0, &[]);
        request.number(3, 7).nested(ATTRIBUTE_SURVEY, |survey| {
            survey.number(SURVEY_FREQUENCY, frequency).attribute(2, &[-92_i8 as u8]);
            if in_use {
                survey.attribute(SURVEY_IN_USE, &[]);
            }
            for (kind, value) in counters {
                survey.attribute(*kind, &value.to_ne_bytes());
            }
        });
        request.finish(0).split_off(HEADER)
    }

    #[test]
    fn the_channel_in_use_is_read_with_what_its_driver_tells() {
        let all = [(SURVEY_TIME, 10_000), (SURVEY_BUSY, 4_000), (7, 2_500), (SURVEY_TRANSMITTING, 1_000)];
        let mut all = all.to_vec();
        all.push((SURVEY_RECEIVING_OWN, 500));
        let expected = Survey {
            frequency: Frequency(5_180),
            time: Some(Duration::from_secs(10)),
            busy: Some(Duration::from_secs(4)),
            transmitting: Some(Duration::from_secs(1)),
            receiving_own: Some(Duration::from_millis(500)),
        };
        assert_eq!(parse_survey(&answer(5_180, true, &all)), Some(expected));
        let little = Survey { transmitting: None, receiving_own: None, ..expected };
        assert_eq!(parse_survey(&answer(5_180, true, &all[..2])), Some(little));
    }

    /// The kernel's simulated card tells of the channels of its last scan, with figures that are made up, and of none that it uses.
    #[test]
    fn channels_of_a_past_scan_are_left_alone() {
        assert_eq!(parse_survey(&answer(2_412, false, &[(SURVEY_TIME, 30), (SURVEY_BUSY, 3)])), None);
        assert_eq!(parse_survey(&[]), None);
    }

    #[test]
    fn a_counter_that_is_cut_is_unknown() {
        let mut request = Request::new(0, 0, &[]);
        request.nested(ATTRIBUTE_SURVEY, |survey| {
            survey.number(SURVEY_FREQUENCY, 2_412).attribute(SURVEY_IN_USE, &[]).number(SURVEY_TIME, 5);
        });
        let survey = parse_survey(&request.finish(0).split_off(HEADER)).unwrap();
        assert_eq!((survey.frequency, survey.time), (Frequency(2_412), None));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse_survey(&bytes);
            let mut request = Request::new(0, 0, &[]);
            request.attribute(ATTRIBUTE_SURVEY, &bytes);
            parse_survey(&request.finish(0).split_off(HEADER));
        }
    }
}
