//! What the radio's daemon does with its access points: brings what the station measured to the rule, asks for data accordingly, and tells the station
//! who stands by.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::steering::{FULL_PACKET, PointView, Steering};
use radio::{NetworkStatus, Station};
use units::{BitRate, NetworkId, Timestamp};

use super::road::Most;

/// As in `daemon/src/radio/points.rs`.
const INTERVAL: Duration = Duration::from_millis(100);
const LEAST_TIME: Duration = Duration::from_millis(50);
const LEAST_LIMIT: BitRate = BitRate(120_000);

/// The rule, and what it was last told.
#[derive(Default)]
pub(super) struct Steered {
    steering: Steering,
    due: Timestamp,
    before: BTreeMap<NetworkId, Seen>,
}

/// How long the radio had been there, how many packets had come, and how many came in a second of it.
#[derive(Clone, Copy)]
struct Seen {
    there: Duration,
    received: u64,
    carried: f64,
}

impl Steered {
    /// When to call [`Self::decide`].
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Decides anew. Gives how much may come by each.
    pub fn decide(&mut self, now: Timestamp, station: &mut Station) -> Vec<(NetworkId, Most)> {
        self.due = now + INTERVAL;
        let joined: Vec<NetworkStatus> = station.networks().filter(|status| status.up).collect();
        self.before = joined.iter().map(|one| (one.network, self.look(one))).collect();
        let views: Vec<PointView> =
            joined.iter().filter_map(|one| self.view(now, station, one, joined.len() > 1)).collect();
        let steered = self.steering.update(now, &views);
        steered
            .into_iter()
            .map(|one| {
                station.set_standby(one.network, !one.used);
                let presence =
                    joined.iter().find(|other| other.network == one.network).map_or(1.0, |one| one.presence);
                let packets = |limit: BitRate| {
                    let part = BitRate((limit.0 as f64 * presence) as u64);
                    part.max(LEAST_LIMIT.min(limit)).0 / (FULL_PACKET.0 * 8)
                };
                let most = match (one.used, one.limit) {
                    (false, _) => Most::NOTHING,
                    (true, None) => Most::ALL,
                    (true, Some(limit)) => Most(u32::try_from(packets(limit)).unwrap_or(u32::MAX).max(1)),
                };
                (one.network, most)
            })
            .collect()
    }

    fn look(&self, one: &NetworkStatus) -> Seen {
        let (there, received) = (one.visits.time, one.visits.received_packets);
        let Some(before) = self.before.get(&one.network).copied() else {
            return Seen { there, received, carried: 0.0 };
        };
        let passed = there.saturating_sub(before.there);
        if passed < LEAST_TIME {
            return before;
        }
        let carried = received.saturating_sub(before.received) as f64 / passed.as_secs_f64();
        Seen { there, received, carried }
    }

    fn view(
        &self,
        now: Timestamp,
        station: &Station,
        one: &NetworkStatus,
        several: bool,
    ) -> Option<PointView> {
        let (bssid, channel) = one.bssid.zip(one.frequency)?;
        let estimate = station.qualities().estimate(now, channel, bssid);
        let carried = self.before.get(&one.network).map_or(0.0, |seen| seen.carried);
        Some(PointView {
            network: one.network,
            access_point: bssid,
            channel,
            packet_time: estimate.as_ref().and_then(|estimate| estimate.packet_time),
            confidence: estimate.as_ref().map_or(0.0, radio::quality::Estimate::packet_time_confidence),
            stays: one.presence > 0.98,
            signal_dbm: one.signal_dbm,
            delivered: estimate.as_ref().map(|estimate| estimate.delivery_ratio),
            other_way: several,
            carried,
            others: station.qualities().others(now, channel),
            reaches: true,
        })
    }
}
