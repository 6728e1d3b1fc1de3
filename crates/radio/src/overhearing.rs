//! What a card hears beside the kernel's stations: which access points are there, and how well their frames reach us.

use units::{Frequency, MacAddress, Timestamp};

use crate::Heard;
use crate::frame::management::Beacon;
use crate::frame::{Header, Kind};
use crate::quality::{Estimate, Qualities, Source};
use crate::scan::{Seen, SeenNetworks};

/// Who the kernel's stations on a card are, and at which access points.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stations<'a> {
    /// Their own addresses.
    pub addresses: &'a [MacAddress],
    /// Those of the access points.
    pub access_points: &'a [MacAddress],
}

/// Frames that somebody else's stations receive, and those around them.
///
/// A card that others tune may be away from a channel without a word, or asleep. What is sent to its stations waits for them then, so
/// only frames to them say how well an access point is heard; of frames to others, those missing may have been sent meanwhile.
#[derive(Clone, Default, Debug)]
pub struct Overhearing {
    qualities: Qualities,
    seen: SeenNetworks,
}

impl Overhearing {
    /// Takes a frame. What is no frame changes nothing.
    pub fn handle_frame(&mut self, now: Timestamp, heard: &Heard<'_>, stations: Stations<'_>) {
        let Ok((header, body)) = Header::parse(heard.frame) else { return };
        let is_own = |address| stations.addresses.contains(&address);
        if is_own(header.transmitter) || header.transmitter.is_group() {
            return;
        }
        let is_joined = |bssid| stations.access_points.contains(&bssid);
        self.qualities.take(now, &header, heard, is_own, is_joined);
        let tells = matches!(header.control.kind, Kind::Beacon | Kind::ProbeResponse);
        if tells
            && !header.control.protected
            && header.transmitter == header.third
            && let Ok(beacon) = Beacon::parse(body)
        {
            self.seen.take(now, header.third, &beacon, heard);
        }
    }

    /// We begin to listen, or frames have been missed without anybody knowing which: what was counted so far tells nothing.
    pub fn begin(&mut self, now: Timestamp) {
        self.qualities = Qualities::default();
        self.qualities.arrived(now);
    }

    /// What was not heard for a minute is forgotten.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.seen.forget_old(now);
    }

    /// How well an access point's frames to our stations arrive; `None` if there were none lately.
    pub fn estimate(&self, now: Timestamp, frequency: Frequency, bssid: MacAddress) -> Option<Estimate> {
        let estimate = self.qualities.estimate(now, frequency, bssid)?;
        (estimate.source == Source::ToUs).then_some(estimate)
    }

    /// The part of a channel's air that others have taken lately, 0 to 1: a lower bound.
    pub fn others(&self, now: Timestamp, frequency: Frequency) -> f64 {
        self.qualities.others(now, frequency)
    }

    /// Who else sends full packets on a channel: the transmitter to each receiver, and how many in a second.
    pub fn pairs(&self, now: Timestamp, frequency: Frequency) -> impl Iterator<Item = (MacAddress, f64)> {
        self.qualities.pairs(now, frequency)
    }

    /// Access points that were seen.
    pub fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| !seen.ad_hoc)
    }

    /// The same, with how well their frames to anybody arrive.
    pub fn access_points(&self, now: Timestamp) -> impl Iterator<Item = (&Seen, Option<Estimate>)> {
        self.seen().map(move |seen| (seen, self.qualities.estimate(now, seen.frequency, seen.bssid)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rate;

    const POINT: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const STATIONS: Stations<'_> = Stations { addresses: &[OURS], access_points: &[POINT] };
    const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const STRANGER: MacAddress = MacAddress([2, 0, 0, 0, 0, 3]);
    const CHANNEL: Frequency = Frequency(2_437);

    fn heard(frame: &[u8]) -> Heard<'_> {
        Heard {
            frame,
            frequency: CHANNEL,
            signal_dbm: Some(-50),
            rate: Some(Rate(108)),
            high_throughput: None,
            aggregate: None,
        }
    }

    /// A QoS frame of the access point (IEEE 802.11-2020 section 9.3.2).
    fn data(receiver: MacAddress, number: u16, retry: bool) -> Vec<u8> {
        let mut frame = vec![0x88, if retry { 0x0a } else { 0x02 }, 0, 0];
        for address in [receiver, POINT, POINT] {
            frame.extend(address.0);
        }
        frame.extend((number << 4).to_le_bytes());
        frame.extend([0, 0]);
        frame.resize(1_500, 0);
        frame
    }

    fn beacon() -> Vec<u8> {
        let mut frame = vec![0x80, 0, 0, 0];
        for address in [MacAddress::BROADCAST, POINT, POINT] {
            frame.extend(address.0);
        }
        // Number; clock, interval, capabilities; name, rates, channel.
        frame.extend([0, 0]);
        frame.extend([0; 8]);
        frame.extend([100, 0, 1, 0, 0, 4]);
        frame.extend(b"cafe");
        frame.extend([1, 1, 0x8c, 3, 1, 6]);
        frame
    }

    #[test]
    fn frames_to_our_stations_tell_how_well_and_those_to_others_only_that_there_is_somebody() {
        let mut overhearing = Overhearing::default();
        let mut now = Timestamp::from_millis(10_000);
        overhearing.handle_frame(now, &heard(&beacon()), STATIONS);
        for number in 0..100 {
            now += std::time::Duration::from_millis(4);
            overhearing.handle_frame(now, &heard(&data(STRANGER, number, false)), STATIONS);
        }
        assert_eq!(overhearing.estimate(now, CHANNEL, POINT), None);
        assert!(overhearing.others(now, CHANNEL) > 0.05);
        let (seen, estimate) = overhearing.access_points(now).next().unwrap();
        assert_eq!((seen.bssid, seen.ssid.as_ref().unwrap().to_string().as_str()), (POINT, "cafe"));
        assert_eq!(estimate.unwrap().source, Source::Overheard);
        // Every second attempt fails.
        for number in 0..100 {
            now += std::time::Duration::from_millis(4);
            overhearing.handle_frame(now, &heard(&data(OURS, number, number % 2 == 0)), STATIONS);
        }
        let estimate = overhearing.estimate(now, CHANNEL, POINT).unwrap();
        assert!((estimate.delivery_ratio - 0.5).abs() < 0.02, "{estimate:?}");
    }

    #[test]
    fn what_was_missed_for_lack_of_room_is_not_lost_on_the_air() {
        for told in [false, true] {
            let mut overhearing = Overhearing::default();
            let mut now = Timestamp::from_millis(10_000);
            for number in (0..40).chain(80..120) {
                now += std::time::Duration::from_millis(4);
                if told && number == 80 {
                    overhearing.begin(now);
                }
                overhearing.handle_frame(now, &heard(&data(OURS, number, false)), STATIONS);
            }
            let ratio = overhearing.estimate(now, CHANNEL, POINT).unwrap().delivery_ratio;
            assert_eq!(ratio == 1.0, told, "{ratio}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_change_nothing_for_the_worse(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..40)) {
            let mut overhearing = Overhearing::default();
            for frame in &frames {
                overhearing.handle_frame(Timestamp::from_millis(5), &heard(frame), STATIONS);
                overhearing.forget_old(Timestamp::from_millis(1));
            }
            prop_assert!(overhearing.access_points(Timestamp::from_millis(6)).count() <= frames.len());
        }
    }
}
