//! What the loop says about itself.

use std::sync::PoisonError;

use anabranch::control::{DeliveryReport, FarEnd, NetworkReport, Role, Status};
use units::{Bytes, Timestamp};

use super::{DeviceLoop, SAMPLE_INTERVAL};
use crate::dataplane::path_report;
use crate::device::networks::Network;
use crate::device::report;

impl DeviceLoop {
    pub(super) fn sample(&mut self, now: Timestamp) {
        self.state.next_sample = now + SAMPLE_INTERVAL;
        let counters = self.plane.counters;
        self.state.total.sample(now, counters.from_interface, counters.to_interface);
        let Some(session) = self.gateways.session() else { return };
        let paths = self.plane.endpoint.path_reports(session);
        for path in &paths {
            let meter = self.state.meters.entry(path.network).or_default();
            meter.sample(now, path.counters.sent_bytes, path.counters.received_bytes);
        }
        self.weigh(now, &paths);
    }

    pub(super) fn network_reports(&self) -> Vec<NetworkReport> {
        let paths = self
            .gateways
            .session()
            .map_or_else(Vec::new, |session| self.plane.endpoint.path_reports(session));
        let traffic = |path: &bond::PathReport| {
            let meter = self.state.meters.get(&path.network).copied().unwrap_or_default();
            meter.traffic(path.counters.sent_bytes, path.counters.received_bytes)
        };
        let all: u64 = paths.iter().map(traffic).map(|traffic| traffic.sending.0 + traffic.receiving.0).sum();
        let direct = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |network: &Network| {
            let of_network = paths.iter().filter(|path| path.network == network.id);
            let of_network = of_network.map(|path| path_report::describe(path, traffic(path), all)).collect();
            report::network(network, self.status_of(network.id), of_network, direct.get(&network.id).cloned())
        };
        self.networks.iter().map(report).collect()
    }

    fn delivery(&self) -> Option<DeliveryReport> {
        let counters = self.plane.endpoint.session_counters(self.gateways.session()?)?;
        Some(DeliveryReport {
            repeats: counters.repeats,
            duplicates: counters.duplicates,
            repaired: counters.repaired,
            skipped: counters.skipped,
            late: counters.late,
            dropped: counters.queue_drops,
        })
    }

    pub(super) fn status(&self) -> Status {
        let state = &self.state;
        let counters = self.plane.counters;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: Role::Device,
            name: self.name.to_string(),
            public_key: self.public_key.clone(),
            pid: std::process::id(),
            started: state.started,
            state: state.phase,
            why: state.why.clone(),
            interface: self.plane.tun.name().to_owned(),
            addresses: state.lease.clone(),
            mtu: Bytes(state.mtu.into()),
            far_end: self.gateways.serving_or_only().map(|gateway| FarEnd {
                name: gateway.peer.name.clone(),
                public_key: gateway.peer.public_key.to_string(),
                connected_since: state.connected_since,
            }),
            connected_clients: None,
            traffic: state.total.traffic(counters.from_interface, counters.to_interface),
            gain: self.gain(),
            delivery: self.delivery(),
            networks: self.network_reports(),
        }
    }
}
