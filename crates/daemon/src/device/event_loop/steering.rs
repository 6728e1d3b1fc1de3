//! What the radio advises about its access points, carried out on our own paths: the gateway is told which only stand by, and either how much may go over
//! the others, or packets of those that are worse than another count as marked, for congestion control that heeds it.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use bond::{PathReport, PathState};
use policy::PathStatus;
use policy::network::Reach;
use policy::steering::MarkShare;
use units::{NetworkId, Timestamp};

use super::{DeviceLoop, direct};
use crate::config::SteeringChoice;
use crate::device::messages::PointAdvice;
use crate::device::networks::Network;

/// Nothing is told of a silence that is shorter.
const LASTING: Duration = Duration::from_millis(300);

impl DeviceLoop {
    pub(super) fn on_advice(&mut self, advice: Vec<PointAdvice>) {
        let spared = advice.iter().filter(|point| !point.used).map(|point| point.interface.clone());
        let is_news = self.networks.spare(spared.collect());
        self.direct.post(direct::Message::Advice(advice.clone()));
        self.state.advice = advice;
        if is_news {
            self.update_statuses();
        }
        self.steer_paths();
    }

    /// Limits the paths, or marks what comes by each.
    pub(super) fn steer_paths(&mut self) {
        let Some(session) = self.gateways.session() else { return };
        let reports = self.plane.endpoint.path_reports(session);
        let alive =
            |report: &&PathReport| report.status == PathStatus::Active && report.state != PathState::Down;
        let usable: Vec<NetworkId> = reports.iter().filter(alive).map(|report| report.network).collect();
        for report in &reports {
            // Only what has another way is sent there.
            let has_other = usable.iter().any(|network| *network != report.network);
            let advised = self.advice_for(report.network).filter(|_| has_other);
            match self.steering {
                SteeringChoice::Limits => {
                    let (limit, fair) = advised.map_or((None, None), |point| (point.limit, point.fair_limit));
                    self.plane.endpoint.set_path_limit(session, report.network, limit);
                    self.plane.endpoint.set_inward_limit(session, report.network, fair);
                }
                SteeringChoice::Marks => {
                    let round_trip = report.base_rtt.or(report.smoothed_rtt);
                    let marks = advised.map_or(MarkShare::NONE, |point| point.marks_for(round_trip));
                    self.plane.endpoint.set_path_marks(session, report.network, marks);
                }
            }
        }
    }

    /// Tells those who judge access points behind which networks nothing answers, while something does behind another: neither the gateway nor a
    /// server that is asked. Where nobody asks, a gateway that is silent is enough. A network may fall silent for a moment, so it is told only of what
    /// lasts, but at once of what is over.
    pub(super) fn tell_unreached(&mut self, now: Timestamp) {
        let paths = self
            .gateways
            .session()
            .map_or_else(Vec::new, |session| self.plane.endpoint.path_reports(session));
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let reaches = |network: &Network| {
            let asked = reports.get(&network.id).map_or(Reach::Unknown, |report| report.reach);
            let path = paths.iter().find(|path| path.network == network.id).map(|path| path.state);
            match (asked, path) {
                (Reach::Internet, _) | (_, Some(PathState::Usable)) => Some(true),
                (Reach::Captive | Reach::Nothing, _) | (Reach::Unknown, Some(PathState::Suspect)) => {
                    Some(false)
                }
                (Reach::Unknown, _) => None,
            }
        };
        let (mut unreached, mut some_reach) = (BTreeSet::new(), false);
        for network in self.networks.preferred() {
            match reaches(network) {
                Some(true) => some_reach = true,
                Some(false) => drop(unreached.insert(network.interface.name.clone())),
                None => {}
            }
        }
        drop(reports);
        if !some_reach {
            unreached.clear();
        }
        let known = &mut self.state.unreached;
        known.retain(|interface, _| unreached.contains(interface));
        for interface in unreached {
            known.entry(interface).or_insert(now);
        }
        let lasts = |since: &Timestamp| now.since(*since) >= LASTING;
        let lasting = known.iter().filter(|(_, since)| lasts(since)).map(|(name, _)| name.clone());
        self.cards.tell_unreached(lasting.collect());
        self.state.unreached_due =
            known.values().filter(|since| !lasts(since)).min().map(|since| *since + LASTING);
    }

    fn advice_for(&self, network: NetworkId) -> Option<&PointAdvice> {
        let name = &self.networks.get(network)?.interface.name;
        self.state.advice.iter().find(|point| point.interface == *name)
    }
}
