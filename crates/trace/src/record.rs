//! The record: a JSON text sequence (RFC 7464) with the head and the events of qlog's main schema (draft-ietf-quic-qlog-main-schema).
//!
//! What a path's sender measures is `quic:recovery_metrics_updated` (draft-ietf-quic-qlog-quic-events), with the path as its `tuple`; the rest are events
//! of this project's own (docs/trace.md). Only what has changed is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Before each text of a sequence.
pub(crate) const SEPARATOR: u8 = 0x1e;
pub(crate) const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";
const EVENT_SCHEMAS: [&str; 2] = [
    "urn:ietf:params:qlog:events:quic-13",
    "https://github.com/anabranch/anabranch/blob/main/docs/trace.md#events-1",
];

/// What the sender of a path measures; times in milliseconds, sizes in bytes, the rate in bits a second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Smoothed round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothed_rtt: Option<f64>,
    /// The least of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<f64>,
    /// Congestion window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_window: Option<u64>,
    /// Sent and not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in_flight: Option<u64>,
    /// Rate that it is expected to deliver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<u64>,
}

/// How a path does, and its sums since it began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PathFigures {
    /// Word of the control API: `good`, `suspect`, `dead`, `validating`.
    pub health: String,
    /// Word of the control API: `active`, `backup`, `off`.
    pub status: String,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    #[serde(default)]
    pub sent_packets: u64,
    /// Packets found lost.
    #[serde(default)]
    pub lost_packets: u64,
}

/// What became of packets behind the paths: sums since the session began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// Sent again.
    pub repeats: u64,
    /// Arrived twice, and were removed.
    pub duplicates: u64,
    /// Restored by FEC.
    pub repaired: u64,
    /// Given up by the resequencer.
    pub skipped: u64,
    /// Arrived after that.
    pub late: u64,
    /// Dropped since a queue was full.
    pub dropped: u64,
}

/// An entry of the daemon's list of events.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Happening {
    /// Word of the control API, such as `path-down`.
    pub kind: String,
    /// The network or client it is about.
    #[serde(default)]
    pub subject: String,
    /// For people.
    pub text: String,
}

/// What a record tells of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", content = "data")]
pub enum Event {
    /// A path's sender measured something new.
    #[serde(rename = "quic:recovery_metrics_updated")]
    Metrics(Metrics),
    /// A path's state or sums have changed.
    #[serde(rename = "anabranch:path_updated")]
    Path(PathFigures),
    /// The session's sums have changed.
    #[serde(rename = "anabranch:delivery_updated")]
    Delivery(Delivery),
    /// Something happened.
    #[serde(rename = "anabranch:happened")]
    Happened(Happening),
}

/// Names of all of them.
pub(crate) const NAMES: [&str; 4] = [
    "quic:recovery_metrics_updated",
    "anabranch:path_updated",
    "anabranch:delivery_updated",
    "anabranch:happened",
];

/// One record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Milliseconds since 1970.
    pub time: f64,
    /// The path: its network's name, and its number behind a `#`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuple: Option<String>,
    /// What it tells.
    #[serde(flatten)]
    pub event: Event,
}

/// The bond at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// Each path, by its name in the record.
    pub paths: Vec<(String, Metrics, PathFigures)>,
    /// Of the session, if it is known.
    pub delivery: Option<Delivery>,
    /// What has happened since the last sample, with its time.
    pub happened: Vec<(f64, Happening)>,
}

/// Writes what is new, up to a bound.
#[derive(Debug)]
pub struct Writer {
    most: u64,
    written: u64,
    metrics: BTreeMap<String, Metrics>,
    paths: BTreeMap<String, PathFigures>,
    delivery: Option<Delivery>,
}

impl Writer {
    /// For a file of at most `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { most, written: 0, metrics: BTreeMap::new(), paths: BTreeMap::new(), delivery: None }
    }

    /// The head of the file. `name`: of this end; `is_device`: which end it is; `version`: of the program.
    pub fn head(&mut self, name: &str, is_device: bool, version: &str) -> Vec<u8> {
        let head = json!({
            "file_schema": FILE_SCHEMA,
            "serialization_format": "application/qlog+json-seq",
            "title": format!("anabranch {version}"),
            "trace": {
                "vantage_point": { "name": name, "type": if is_device { "client" } else { "server" } },
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z" },
                },
                "event_schemas": EVENT_SCHEMAS,
            },
        });
        let bytes = text_of(&head);
        self.written += bytes.len() as u64;
        bytes
    }

    /// What is new in a sample of this time, milliseconds since 1970; `None` if it does not fit any more.
    pub fn sample(&mut self, time: f64, sample: Sample) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut add = |record: Record| bytes.extend(text_of(&record));
        for (at, happening) in sample.happened {
            add(Record { time: at, tuple: None, event: Event::Happened(happening) });
        }
        for (path, metrics, figures) in sample.paths {
            let tuple = Some(path.clone());
            if self.metrics.insert(path.clone(), metrics) != Some(metrics) {
                add(Record { time, tuple: tuple.clone(), event: Event::Metrics(metrics) });
            }
            if self.paths.get(&path) != Some(&figures) {
                self.paths.insert(path, figures.clone());
                add(Record { time, tuple, event: Event::Path(figures) });
            }
        }
        if let Some(delivery) = sample.delivery
            && self.delivery.replace(delivery) != Some(delivery)
        {
            add(Record { time, tuple: None, event: Event::Delivery(delivery) });
        }
        self.written += bytes.len() as u64;
        (self.written <= self.most).then_some(bytes)
    }
}

/// One text of a sequence.
fn text_of(of: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![SEPARATOR];
    // Nothing in these types can fail to be JSON.
    bytes.extend(serde_json::to_vec(of).unwrap_or_default());
    bytes.push(b'\n');
    bytes
}
