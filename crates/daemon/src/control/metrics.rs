//! Figures for monitoring programs, in Prometheus' text format (version 0.0.4): base units, counters end in `_total`.
//!
//! `docs/monitoring.md` lists them; a test compares.

use std::collections::BTreeMap;
use std::fmt::Write;

use anabranch::control::{
    DirectReport, Fraction, GainReport, GatewayClients, Micros, NetworkReport, PathHealth, PathReport,
    RadioStatus, Role, SessionState, Status, Traffic,
};
use policy::PathStatus;
use policy::gain::Direction;
use units::BitRate;

use super::{Backend, BackendError};

/// What the text is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All figures of a daemon.
///
/// # Errors
/// If the daemon does not answer.
pub(super) fn text(backend: &dyn Backend) -> Result<String, BackendError> {
    let mut page = Page::default();
    page.status(&backend.status()?);
    for (kind, count) in backend.events().counts() {
        page.add(&EVENTS, &[("kind", kind.as_str())], count as f64);
    }
    // A role that has none says so; that is no fault.
    if let Ok(radio) = backend.radio() {
        page.radio(&radio);
    }
    match backend.clients() {
        Ok(clients) => page.clients(&clients),
        Err(BackendError::WrongRole(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(page.finish())
}

/// One metric.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "gauge", help }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "counter", help }
}

const BUILD: Metric =
    gauge("anabranch_build_info", "Always 1; version, role and name of the daemon are its labels.");
const STARTED: Metric = gauge("anabranch_start_time_seconds", "When the daemon started, seconds since 1970.");
const SESSION: Metric = gauge("anabranch_session_up", "1 while data flows, else 0.");
const SENT: Metric =
    counter("anabranch_sent_bytes_total", "Bytes that applications sent through the interface.");
const RECEIVED: Metric =
    counter("anabranch_received_bytes_total", "Bytes that applications received through the interface.");
const BONDED: Metric =
    gauge("anabranch_bonded_bytes_per_second", "What all networks carried together, mean of ten seconds.");
const BEST_ALONE: Metric = gauge(
    "anabranch_best_alone_bytes_per_second",
    "What the best of them could carry alone, by its path's model.",
);
const CONNECTED: Metric = gauge("anabranch_network_connected", "1 if the network has a link and an address.");
const ACTIVE: Metric = gauge(
    "anabranch_network_active",
    "1 if the network may carry data; 0 for a backup and for one that is off.",
);
const NETWORK_SHARE: Metric =
    gauge("anabranch_network_share_ratio", "The network's part of new direct flows.");
const NETWORK_RTT: Metric =
    gauge("anabranch_network_rtt_seconds", "Smoothed round-trip time of direct flows and probes.");
const NETWORK_LOAD: Metric =
    gauge("anabranch_network_load_bytes_per_second", "What goes over the network in its busier direction.");
const NETWORK_LOSS: Metric =
    gauge("anabranch_network_loss_ratio", "Part of the direct flows' segments that was repeated.");
const SIGNAL: Metric = gauge("anabranch_network_signal_dbm", "Signal of the network's access point.");
const PATH_UP: Metric = gauge("anabranch_path_up", "1 if the path answers.");
const PATH_SENT: Metric =
    counter("anabranch_path_sent_bytes_total", "Bytes sent over the path, headers included.");
const PATH_RECEIVED: Metric =
    counter("anabranch_path_received_bytes_total", "Bytes received over the path, headers included.");
const PATH_RATE: Metric =
    gauge("anabranch_path_expected_bytes_per_second", "What the path's model expects it to deliver outward.");
const PATH_RTT: Metric = gauge("anabranch_path_rtt_seconds", "Smoothed round-trip time of the path.");
const PATH_LEAST_RTT: Metric = gauge("anabranch_path_least_rtt_seconds", "Smallest round-trip time of late.");
const PATH_LOSS: Metric =
    gauge("anabranch_path_loss_ratio", "Part of the packets sent that was lost, of late.");
const PATH_FLIGHT: Metric = gauge("anabranch_path_in_flight_bytes", "Bytes sent and not yet acknowledged.");
const PATH_SHARE: Metric =
    gauge("anabranch_path_share_ratio", "The path's part of all that went over paths in the last second.");
const EVENTS: Metric = counter("anabranch_events_total", "Things that happened, by kind.");
const CLIENTS: Metric = gauge("anabranch_clients_connected", "Devices that are connected.");
const CLIENT_UP: Metric = gauge("anabranch_client_connected", "1 if the device is connected.");
const CLIENT_SENT: Metric =
    counter("anabranch_client_sent_bytes_total", "Bytes sent to the device in this session.");
const CLIENT_RECEIVED: Metric =
    counter("anabranch_client_received_bytes_total", "Bytes received from the device in this session.");
const RADIO_UP: Metric =
    gauge("anabranch_radio_network_up", "1 if packets pass between the radio and the network.");
const RADIO_SHARE: Metric = gauge(
    "anabranch_radio_network_time_ratio",
    "The part of the radio's time that the network's channel has.",
);
const RADIO_QUEUE: Metric =
    gauge("anabranch_radio_network_queue_packets", "Packets that wait for the network's turn.");
const RADIO_SENT: Metric =
    counter("anabranch_radio_network_sent_bytes_total", "Bytes sent through the network.");
const RADIO_RECEIVED: Metric =
    counter("anabranch_radio_network_received_bytes_total", "Bytes received through the network.");
const RADIO_FAILED: Metric = counter(
    "anabranch_radio_network_failed_frames_total",
    "Frames that were not acknowledged, with all their attempts.",
);

/// The order of the page, which is also what `docs/monitoring.md` has to list.
const ALL: [&Metric; 35] = [
    &BUILD,
    &STARTED,
    &SESSION,
    &SENT,
    &RECEIVED,
    &BONDED,
    &BEST_ALONE,
    &CONNECTED,
    &ACTIVE,
    &NETWORK_SHARE,
    &NETWORK_RTT,
    &NETWORK_LOAD,
    &NETWORK_LOSS,
    &SIGNAL,
    &PATH_UP,
    &PATH_SENT,
    &PATH_RECEIVED,
    &PATH_RATE,
    &PATH_RTT,
    &PATH_LEAST_RTT,
    &PATH_LOSS,
    &PATH_FLIGHT,
    &PATH_SHARE,
    &EVENTS,
    &CLIENTS,
    &CLIENT_UP,
    &CLIENT_SENT,
    &CLIENT_RECEIVED,
    &RADIO_UP,
    &RADIO_SHARE,
    &RADIO_QUEUE,
    &RADIO_SENT,
    &RADIO_RECEIVED,
    &RADIO_FAILED,
    &GAIN_DIRECTION,
];
const GAIN_DIRECTION: Metric = gauge(
    "anabranch_bonded_receiving",
    "1 if the bonded rate is that of what is received, 0 if of what is sent.",
);

/// Samples by metric: the format wants those of one metric together.
#[derive(Default)]
struct Page {
    samples: BTreeMap<&'static str, String>,
}

impl Page {
    fn add(&mut self, metric: &Metric, labels: &[(&str, &str)], value: f64) {
        let lines = self.samples.entry(metric.name).or_default();
        lines.push_str(metric.name);
        for (number, (name, value)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            // Writing to a string never fails.
            let _ = write!(lines, "{before}{name}=\"{}\"", escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(lines, "{end} {value}");
    }

    fn add_some(&mut self, metric: &Metric, labels: &[(&str, &str)], value: Option<f64>) {
        if let Some(value) = value {
            self.add(metric, labels, value);
        }
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for Metric { name, kind, help } in ALL {
            if let Some(lines) = self.samples.get(name) {
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
            }
        }
        text
    }

    fn status(&mut self, status: &Status) {
        let role = match status.role {
            Role::Device => "device",
            Role::Gateway => "gateway",
        };
        let labels = [("version", status.version.as_str()), ("role", role), ("name", status.name.as_str())];
        self.add(&BUILD, &labels, 1.0);
        self.add(&STARTED, &[], status.started.0 as f64 / 1e3);
        self.add(&SESSION, &[], truth(status.state == SessionState::Up));
        self.traffic(&SENT, &RECEIVED, &[], &status.traffic);
        self.add_some(&CLIENTS, &[], status.connected_clients.map(|clients| clients as f64));
        if let Some(gain) = &status.gain {
            self.gain(gain);
        }
        for network in &status.networks {
            self.network(network);
        }
    }

    fn gain(&mut self, gain: &GainReport) {
        self.add(&BONDED, &[], bytes(gain.bonded));
        self.add(&BEST_ALONE, &[("network", &gain.network)], bytes(gain.best_alone));
        self.add(&GAIN_DIRECTION, &[], truth(gain.direction == Direction::Receiving));
    }

    fn traffic(&mut self, sent: &Metric, received: &Metric, labels: &[(&str, &str)], traffic: &Traffic) {
        self.add(sent, labels, traffic.sent.0 as f64);
        self.add(received, labels, traffic.received.0 as f64);
    }

    fn network(&mut self, network: &NetworkReport) {
        let labels = [("network", network.name.as_str())];
        self.add(&CONNECTED, &labels, truth(network.connected));
        self.add(&ACTIVE, &labels, truth(network.status == PathStatus::Active));
        if let Some(direct) = &network.direct {
            self.direct(&labels, direct);
        }
        for path in &network.paths {
            self.path(&network.name, path);
        }
    }

    fn direct(&mut self, labels: &[(&str, &str)], direct: &DirectReport) {
        self.add(&NETWORK_SHARE, labels, direct.share.0);
        self.add_some(&NETWORK_RTT, labels, direct.rtt.map(seconds));
        self.add(&NETWORK_LOAD, labels, bytes(direct.load));
        self.add(&NETWORK_LOSS, labels, direct.loss.0);
        let signal = direct.wifi.as_ref().and_then(|wifi| wifi.signal_dbm);
        self.add_some(&SIGNAL, labels, signal.map(f64::from));
    }

    fn path(&mut self, network: &str, path: &PathReport) {
        let (number, remote) = (path.id.0.to_string(), path.remote.to_string());
        let labels = [("network", network), ("path", number.as_str()), ("remote", remote.as_str())];
        self.add(&PATH_UP, &labels, truth(path.health == PathHealth::Good));
        self.traffic(&PATH_SENT, &PATH_RECEIVED, &labels, &path.traffic);
        self.add_some(&PATH_RATE, &labels, path.rate.map(bytes));
        self.add_some(&PATH_RTT, &labels, path.rtt.map(seconds));
        self.add_some(&PATH_LEAST_RTT, &labels, path.min_rtt.map(seconds));
        self.add(&PATH_LOSS, &labels, path.loss.0);
        self.add(&PATH_FLIGHT, &labels, path.in_flight.0 as f64);
        self.add_some(&PATH_SHARE, &labels, path.share.map(|Fraction(share)| share));
    }

    fn clients(&mut self, clients: &GatewayClients) {
        for client in &clients.clients {
            let labels = [("client", client.name.as_str())];
            self.add(&CLIENT_UP, &labels, truth(client.connected));
            self.traffic(&CLIENT_SENT, &CLIENT_RECEIVED, &labels, &client.traffic);
        }
    }

    fn radio(&mut self, radio: &RadioStatus) {
        for network in &radio.networks {
            let labels = [("interface", network.interface.as_str()), ("ssid", network.ssid.as_str())];
            let up = network.state == anabranch::control::RadioNetworkState::Up;
            self.add(&RADIO_UP, &labels, truth(up));
            self.add(&RADIO_SHARE, &labels, network.share.0);
            self.add(&RADIO_QUEUE, &labels, network.queue as f64);
            self.add(&RADIO_SENT, &labels, network.counters.sent.0 as f64);
            self.add(&RADIO_RECEIVED, &labels, network.counters.received.0 as f64);
            self.add(&RADIO_FAILED, &labels, network.counters.failed_frames as f64);
        }
    }
}

fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn bytes(rate: BitRate) -> f64 {
    rate.bytes_per_second()
}

fn seconds(time: Micros) -> f64 {
    time.0 as f64 / 1e6
}

/// A label's value: backslash, quote and line end are escaped, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together_and_labels_are_escaped() {
        let mut page = Page::default();
        page.add(&CONNECTED, &[("network", "a\"b\\c\nd")], 1.0);
        page.add(&SESSION, &[], 0.0);
        page.add(&CONNECTED, &[("network", "wan0")], 0.0);
        let text = page.finish();
        let expected = "# TYPE anabranch_network_connected gauge\n\
            anabranch_network_connected{network=\"a\\\"b\\\\c\\nd\"} 1\nanabranch_network_connected{network=\"wan0\"} 0\n";
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(text.matches("# TYPE").count(), 2);
    }

    #[test]
    fn every_metric_is_named_by_convention_and_once() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        for metric in ALL {
            assert_eq!(metric.kind == "counter", metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.help.ends_with('.') && metric.name.starts_with("anabranch_"), "{}", metric.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn the_manual_lists_them_all() {
        let manual = include_str!("../../../../docs/monitoring.md");
        let listed: Vec<&str> = manual
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.starts_with("anabranch_"))
            .collect();
        assert_eq!(listed, ALL.map(|metric| metric.name), "docs/monitoring.md");
    }
}
