//! How good the access points of the kernel's stations are, coarsely: from what nl80211 counts of frames that we sent; and how much of the air
//! others take, where the card's driver counts its time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch::control::{AccessPointReport, Fraction};
use linux::wireless::{Association, Survey, Wireless, WirelessError};
use radio::airtime::Flavour;
use radio::quality::{Estimate, FULL_FRAME, packet_time};
use tracing::debug;
use units::{Frequency, MacAddress, NetworkId, Timestamp};

use super::super::access_points::sort;
use super::super::points::{Joined, Points};
use super::air::Air;
use super::listening::Listening;

/// How often the kernel is asked: with less between, few frames ...
const INTERVAL: Duration = Duration::from_millis(500);
/// ... but for how much came, where frames are heard as well and tell the rest.
const BESIDE_HEARING: Duration = Duration::from_millis(200);

/// A network that is up.
#[derive(Clone, Copy)]
pub(crate) struct Up<'a> {
    pub network: NetworkId,
    /// What people call it.
    pub title: &'a str,
    /// The name of its interface ...
    pub interface: &'a str,
    /// ... and the kernel's number of that.
    pub index: u32,
}

/// What the kernel counted, and what that tells.
#[derive(Default)]
pub(crate) struct Statistics {
    wireless: Option<Wireless>,
    due: Timestamp,
    known: BTreeMap<NetworkId, Reading>,
    air: Air,
}

/// What was last read of one network.
struct Reading {
    association: Association,
    estimate: Option<Estimate>,
    /// The part of the channel's air that others take, 0 to 1, if anybody knows.
    others: Option<f64>,
}

impl Statistics {
    /// Whether it is time to read.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// When it is.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Reads all that are up. What was not sent to since keeps its estimate for one interval more. `hears`: whether frames are heard as well.
    pub fn read(&mut self, now: Timestamp, up: &[Up<'_>], hears: bool) {
        self.due = now + if hears { BESIDE_HEARING } else { INTERVAL };
        self.known.retain(|network, _| up.iter().any(|one| one.network == *network));
        if self.wireless.is_none() {
            self.wireless = Wireless::open().map_err(|error| debug!("{error}")).ok();
        }
        let Some(wireless) = &mut self.wireless else { return };
        if let Err(error) = read_all(now, wireless, up, &mut self.known, &mut self.air) {
            debug!("{error}");
            self.wireless = None;
        }
    }

    /// Whether two of those that are up are on one channel.
    pub(super) fn share_channel(&self) -> bool {
        let channels: BTreeSet<Frequency> =
            self.known.values().map(|reading| reading.association.frequency).collect();
        channels.len() < self.known.len()
    }

    /// The access points that the stations are at.
    pub(super) fn access_points(&self) -> Vec<MacAddress> {
        self.known.values().map(|reading| reading.association.bssid).collect()
    }

    /// For the rule. `listening`: what is heard beside these interfaces; `reaches`: whether one leads anywhere.
    pub fn joined(
        &self,
        now: Timestamp,
        up: &[Up<'_>],
        listening: Option<&Listening>,
        reaches: impl Fn(&str) -> bool,
    ) -> Vec<Joined> {
        let known = up.iter().filter_map(|one| Some((one, self.known.get(&one.network)?)));
        known
            .map(|(one, reading)| Joined {
                network: one.network,
                ssid: one.title.to_owned(),
                bssid: reading.association.bssid,
                channel: reading.association.frequency,
                estimate: reading.estimate(now, listening),
                signal_dbm: reading.association.beacon_dbm.map(|signal| signal as f32),
                received: reading.association.received.unwrap_or_default().into(),
                presence: 1.0,
                there: now.since(Timestamp::ZERO),
                // What nobody knows is not reckoned with.
                others: reading.others(now, listening).unwrap_or(0.0),
                sharers: listening
                    .into_iter()
                    .flat_map(|listening| listening.pairs(now, reading.association.frequency))
                    .collect(),
                reaches: reaches(one.interface),
            })
            .collect()
    }

    /// For the control API: those that we are at, and those that are heard.
    pub fn reports(
        &self,
        now: Timestamp,
        up: &[Up<'_>],
        points: &Points,
        listening: Option<&Listening>,
    ) -> Vec<AccessPointReport> {
        let known = up.iter().filter_map(|one| Some((one, self.known.get(&one.network)?)));
        let mut reports: Vec<AccessPointReport> = known
            .map(|(one, reading)| {
                let association = &reading.association;
                let mut report = AccessPointReport {
                    ssid: association.ssid.as_ref().map(ToString::to_string),
                    bssid: association.bssid.to_string(),
                    channel: association.frequency.channel(),
                    megahertz: association.frequency.0,
                    signal_dbm: association.signal_dbm.map(|signal| signal as f32),
                    interface: Some(one.interface.to_owned()),
                    share: share(up.len()),
                    others: reading.others(now, listening).map(Fraction),
                    ..AccessPointReport::default()
                };
                points.complete(one.network, reading.estimate(now, listening), &mut report);
                report
            })
            .collect();
        if let Some(listening) = listening {
            reports.extend(listening.strangers(now, &reports));
        }
        sort(&mut reports);
        reports
    }
}

impl Reading {
    /// Frames that were heard tell more than counts of what we sent, unless there were hardly any.
    fn estimate(&self, now: Timestamp, listening: Option<&Listening>) -> Option<Estimate> {
        let Association { frequency, bssid, receive_rate, .. } = self.association;
        let heard = listening.and_then(|listening| listening.estimate(now, frequency, bssid));
        let heard = heard.map(|heard| heard.with_rate(Flavour::of(frequency), receive_rate));
        let both = heard.into_iter().chain(self.estimate.clone());
        both.max_by(|one, other| one.packet_time_confidence().total_cmp(&other.packet_time_confidence()))
    }

    /// What the driver tells is all there is; what is heard is what could be read.
    fn others(&self, now: Timestamp, listening: Option<&Listening>) -> Option<f64> {
        self.others.or_else(|| listening?.others(now, self.association.frequency))
    }
}

/// Reads all that are up.
fn read_all(
    now: Timestamp,
    wireless: &mut Wireless,
    up: &[Up<'_>],
    known: &mut BTreeMap<NetworkId, Reading>,
    air: &mut Air,
) -> Result<(), WirelessError> {
    let interfaces = wireless.interfaces()?;
    let card = |index| interfaces.iter().find(|one| one.index == index)?.radio;
    let mut surveys: BTreeMap<(u32, Frequency), (Survey, Option<Duration>)> = BTreeMap::new();
    for one in up {
        let Some(association) = wireless.association(one.index)? else {
            // At none now: what was read of the last one is over.
            known.remove(&one.network);
            continue;
        };
        let before = known.get(&one.network).map(|reading| &reading.association);
        let estimate = before.and_then(|before| estimate(before, &association));
        let received = before.and_then(|before| receive_time(before, &association));
        if let Some(card) = card(one.index)
            && let Some(survey) = survey(wireless, one)
            && survey.frequency == association.frequency
        {
            // Several of our stations may share a card and a channel.
            let (_, all) = surveys.entry((card, survey.frequency)).or_insert((survey, Some(Duration::ZERO)));
            *all = all.zip(received).map(|(all, received)| all.saturating_add(received));
        }
        known.insert(one.network, Reading { association, estimate, others: None });
    }
    for ((card, _), (survey, received)) in surveys {
        air.take(now, card, survey, received);
    }
    air.forget(now);
    for one in up {
        if let Some(reading) = known.get_mut(&one.network) {
            let place = card(one.index).map(|card| (card, reading.association.frequency));
            reading.others = place.and_then(|place| air.others(now, place));
        }
    }
    Ok(())
}

/// How a card spends its time. A driver that fails at that alone costs nothing else.
fn survey(wireless: &mut Wireless, one: &Up<'_>) -> Option<Survey> {
    wireless.survey(one.index).unwrap_or_else(|error| {
        debug!("{}: {error}", one.interface);
        None
    })
}

/// What each of so many networks has of the card's time, as far as known: the card and its driver share it out, and nobody tells how.
pub(super) fn share(up: usize) -> Fraction {
    Fraction((up as f64).recip())
}

/// What the counts since `before` tell; `None` if they are another association's.
fn estimate(before: &Association, now: &Association) -> Option<Estimate> {
    let since = |count: fn(&Association) -> Option<u32>| Some(count(now)?.wrapping_sub(count(before)?));
    if before.bssid != now.bssid || before.frequency != now.frequency {
        return None;
    }
    let sent = since(|one| one.transmitted)?;
    let repeats = since(|one| one.retries)?;
    let failed = since(|one| one.failed)?;
    // Counts that went back are those of a new association with the same access point.
    let plausible = [sent, repeats, failed].into_iter().all(|count| count < u32::MAX / 2);
    let rate = now.receive_rate.or(now.transmit_rate);
    if plausible {
        Estimate::of_counts(Flavour::of(now.frequency), sent, repeats, failed, rate)
    } else {
        None
    }
}

/// Air time of what was received since `before`: as the driver counts it, else as if each packet had been a long one alone, at the present
/// rate, which is more than it was. `None` if neither is known.
fn receive_time(before: &Association, now: &Association) -> Option<Duration> {
    if before.bssid != now.bssid || before.frequency != now.frequency {
        return None;
    }
    if let Some((before, now)) = before.receive_time.zip(now.receive_time) {
        return now.checked_sub(before);
    }
    let packets = now.received?.checked_sub(before.received?)?;
    if packets == 0 {
        return Some(Duration::ZERO);
    }
    let rate = now.receive_rate.filter(|rate| rate.0 > 0)?;
    let flavour = Flavour::of(now.frequency);
    let one = packet_time(flavour, flavour.exchange_time_at(rate, FULL_FRAME), 1.0, 1);
    Some(one.saturating_mul(packets))
}

#[cfg(test)]
mod tests {
    use units::BitRate;

    use super::*;

    fn association(transmitted: u32, retries: u32, failed: u32) -> Association {
        Association {
            ssid: None,
            bssid: MacAddress([2, 0, 0, 0, 1, 0]),
            frequency: Frequency(5_180),
            signal_dbm: Some(-50),
            beacon_dbm: None,
            transmit_rate: None,
            receive_rate: Some(BitRate::from_mbps(54.0)),
            received: None,
            transmitted: Some(transmitted),
            retries: Some(retries),
            failed: Some(failed),
            receive_time: None,
        }
    }

    #[test]
    fn counts_since_the_last_time_are_taken() {
        let first = association(1_000, 100, 10);
        let told = estimate(&first, &association(1_100, 200, 10)).unwrap();
        assert_eq!((told.delivery_ratio, told.frames), (0.5, 200));
        assert_eq!(estimate(&first, &association(3, 0, 0)), None, "associated anew");
        assert_eq!(estimate(&first, &Association { bssid: MacAddress::BROADCAST, ..first.clone() }), None);
        assert_eq!(estimate(&first, &first), None, "nothing was sent");
        let across = association(u32::MAX - 10, 0, 0);
        assert_eq!(estimate(&across, &association(89, 0, 0)).unwrap().frames, 100, "round the end");
        assert_eq!(estimate(&Association { retries: None, ..first.clone() }, &first), None);
    }
    /// By hand: a packet alone at 54 Mbit/s takes a third of a millisecond or so, with all gaps.
    #[test]
    fn what_was_received_is_reckoned_where_it_is_not_counted() {
        let first = Association { received: Some(1_000), ..association(0, 0, 0) };
        let later = Association { received: Some(1_100), ..first.clone() };
        let time = receive_time(&first, &later).unwrap();
        assert!((30..45).contains(&time.as_millis()), "{time:?}");
        assert_eq!(receive_time(&first, &first), Some(Duration::ZERO));
        assert_eq!(receive_time(&later, &first), None, "counted anew");
        assert_eq!(receive_time(&first, &Association { receive_rate: None, ..later.clone() }), None);
        let counted = |association: &Association, millis| Association {
            receive_time: Some(Duration::from_millis(millis)),
            ..association.clone()
        };
        let told = receive_time(&counted(&first, 200), &counted(&later, 207));
        assert_eq!(told, Some(Duration::from_millis(7)));
        let elsewhere = Association { frequency: Frequency(5_200), ..later };
        assert_eq!(receive_time(&first, &elsewhere), None);
    }
}
