//! How good the access points of the kernel's stations are, coarsely: from what nl80211 counts of frames that we sent.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch::control::{AccessPointReport, Fraction};
use linux::wireless::{Association, Wireless};
use radio::airtime::Flavour;
use radio::quality::Estimate;
use tracing::debug;
use units::{NetworkId, Timestamp};

use super::super::access_points::sort;
use super::super::points::{Joined, Points, quality};

/// How often the kernel is asked: with less between, few frames.
const INTERVAL: Duration = Duration::from_millis(500);

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
}

/// What was last read of one network.
struct Reading {
    association: Association,
    estimate: Option<Estimate>,
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

    /// Reads all that are up, if it is time. What was not sent to since keeps its estimate for one interval more.
    pub fn read(&mut self, now: Timestamp, up: &[Up<'_>]) {
        if !self.is_due(now) {
            return;
        }
        self.due = now + INTERVAL;
        self.known.retain(|network, _| up.iter().any(|one| one.network == *network));
        if self.wireless.is_none() {
            self.wireless = Wireless::open().map_err(|error| debug!("{error}")).ok();
        }
        let Some(wireless) = &mut self.wireless else { return };
        for one in up {
            let association = match wireless.association(one.index) {
                Ok(Some(association)) => association,
                Ok(None) => continue,
                Err(error) => {
                    debug!("{}: {error}", one.interface);
                    self.wireless = None;
                    return;
                }
            };
            let before = self.known.get(&one.network).map(|reading| &reading.association);
            let estimate = before.and_then(|before| estimate(before, &association));
            self.known.insert(one.network, Reading { association, estimate });
        }
    }

    /// For the rule.
    pub fn joined(&self, up: &[Up<'_>]) -> Vec<Joined> {
        let known = up.iter().filter_map(|one| Some((one, self.known.get(&one.network)?)));
        known
            .map(|(one, reading)| Joined {
                network: one.network,
                ssid: one.title.to_owned(),
                channel: reading.association.frequency,
                estimate: reading.estimate.clone(),
                received: reading.association.received.unwrap_or_default().into(),
                presence: 1.0,
                // Its counts say nothing of them.
                others: 0.0,
            })
            .collect()
    }

    /// For the control API: those that we are at.
    pub fn reports(&self, up: &[Up<'_>], points: &Points) -> Vec<AccessPointReport> {
        let known = up.iter().filter_map(|one| Some((one, self.known.get(&one.network)?)));
        let mut reports: Vec<AccessPointReport> = known
            .map(|(one, Reading { association, estimate, .. })| {
                let mut report = AccessPointReport {
                    ssid: association.ssid.as_ref().map(ToString::to_string),
                    bssid: association.bssid.to_string(),
                    channel: association.frequency.channel(),
                    megahertz: association.frequency.0,
                    signal_dbm: association.signal_dbm.map(|signal| signal as f32),
                    interface: Some(one.interface.to_owned()),
                    quality: estimate.as_ref().map(quality),
                    share: share(up.len()),
                    ..AccessPointReport::default()
                };
                points.complete(one.network, &mut report);
                report
            })
            .collect();
        sort(&mut reports);
        reports
    }
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

#[cfg(test)]
mod tests {
    use units::{BitRate, Frequency, MacAddress};

    use super::*;

    fn association(transmitted: u32, retries: u32, failed: u32) -> Association {
        Association {
            ssid: None,
            bssid: MacAddress([2, 0, 0, 0, 1, 0]),
            frequency: Frequency(5_180),
            signal_dbm: Some(-50),
            transmit_rate: None,
            receive_rate: Some(BitRate::from_mbps(54.0)),
            received: None,
            transmitted: Some(transmitted),
            retries: Some(retries),
            failed: Some(failed),
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
}
