//! What the radio advises about its access points, carried out on our own paths: those that are not worth their air are told to the gateway as
//! backups, and packets of those that are worse than another count as marked, for congestion control that heeds it.

use policy::PathStatus;
use policy::steering::{MarkShare, MarkingForm, safe_marks};
use units::NetworkId;

use super::DeviceLoop;
use crate::device::messages::PointAdvice;

impl DeviceLoop {
    pub(super) fn on_advice(&mut self, advice: Vec<PointAdvice>) {
        let spared = advice.iter().filter(|point| !point.used).map(|point| point.interface.clone()).collect();
        self.state.advice = advice;
        if self.networks.spare(spared) {
            self.update_statuses();
        }
        self.mark_paths();
    }

    /// Marks as much as is safe for each path as it is now.
    pub(super) fn mark_paths(&mut self) {
        let Some(session) = self.state.session else { return };
        let reports = self.plane.endpoint.path_reports(session);
        let usable = reports.iter().filter(|report| report.status == PathStatus::Active).count();
        for report in &reports {
            let round_trip = report.base_rtt.or(report.smoothed_rtt);
            let advised = self.advice_for(report.network);
            let marks = match (advised, round_trip) {
                // Only what has another way is sent there.
                (Some(point), Some(round_trip)) if usable > 1 => match point.packet_time {
                    Some(time) => safe_marks(MarkingForm::default(), time, round_trip).at_most(point.marks),
                    None => MarkShare::NONE,
                },
                _ => MarkShare::NONE,
            };
            self.plane.endpoint.set_path_marks(session, report.network, marks);
        }
    }

    fn advice_for(&self, network: NetworkId) -> Option<&PointAdvice> {
        let name = &self.networks.get(network)?.interface.name;
        self.state.advice.iter().find(|point| point.interface == *name)
    }
}
