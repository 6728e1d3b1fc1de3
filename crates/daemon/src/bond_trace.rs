//! Records what a running device's bond does, from outside: the daemon answers the same questions as ever, and knows nothing of it.
//!
//! While nobody records, there is no cost. A disk that fills up, or a bound that is reached, ends the recording and nothing else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch::control::{
    BlockingClient, ClientError, DeliveryReport, Event, EventSequence, PathReport, Role, Status, UnixMillis,
};
use thiserror::Error;
use trace::{Delivery, Happening, Metrics, PathFigures, ReadError, Recording, Sample, Writer};

/// How to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// From one look to the next.
    pub interval: Duration,
    /// For how long; `None` until the daemon ends.
    pub lasts: Option<Duration>,
    /// Bytes of the file.
    pub most: u64,
}

/// Why a recording came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Its time is over.
    TimeIsOver,
    /// The file is as long as it may be.
    IsFull,
    /// The daemon is gone.
    DaemonIsGone,
}

/// Why nothing more is recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The daemon does not answer, or not as expected.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// A gateway has no paths of its own.
    #[error("only a device's bond can be recorded; run this where `anabranch up` runs")]
    NoDevice,
    /// The file cannot be written.
    #[error("the record cannot be written: {0}; what it has until then can be drawn")]
    Write(#[from] io::Error),
}

/// Records until something ends it.
///
/// # Errors
/// Any [`RecordError`].
pub fn record(
    client: &BlockingClient,
    file: &mut impl Write,
    options: Options,
) -> Result<Ended, RecordError> {
    let first = client.status()?;
    if first.role != Role::Device {
        return Err(RecordError::NoDevice);
    }
    let mut told = client.events(EventSequence(0))?.last().map_or(EventSequence(0), |event| event.sequence);
    let mut writer = Writer::new(options.most);
    file.write_all(&writer.head(&first.name, true, &first.version))?;
    let start = Instant::now();
    let mut events_at = start;
    for look in 0u32.. {
        let due = start + options.interval * look;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if options.lasts.is_some_and(|lasts| start.elapsed() >= lasts) {
            return Ok(Ended::TimeIsOver);
        }
        let answers = client.status().and_then(|status| {
            let is_due = Instant::now() >= events_at;
            Ok((status, if is_due { client.events(told)? } else { Vec::new() }))
        });
        let (status, events) = match answers {
            Ok(answers) => answers,
            Err(ClientError::NotRunning(_)) => return Ok(Ended::DaemonIsGone),
            Err(error) => return Err(error.into()),
        };
        if Instant::now() >= events_at {
            events_at = Instant::now() + EVENTS_INTERVAL;
        }
        told = events.last().map_or(told, |event| event.sequence);
        match writer.sample(UnixMillis::now().0 as f64, sample(&status, &events)) {
            // In one piece, so that an end at any moment leaves whole records.
            Some(bytes) => file.write_all(&bytes)?,
            None => return Ok(Ended::IsFull),
        }
    }
    Ok(Ended::TimeIsOver)
}

fn sample(status: &Status, events: &[Event]) -> Sample {
    let paths =
        status.networks.iter().flat_map(|network| network.paths.iter().map(move |path| (network, path)));
    let path = |(network, path): (&anabranch::control::NetworkReport, &PathReport)| {
        (format!("{}#{}", network.name, path.id.0), metrics(path), figures(path))
    };
    let happened = |event: &Event| {
        let happening = Happening {
            kind: event.kind.as_str().to_owned(),
            subject: event.subject.clone().unwrap_or_default(),
            text: event.text.clone(),
        };
        (event.time.0 as f64, happening)
    };
    Sample {
        paths: paths.map(path).collect(),
        delivery: status.delivery.map(delivery),
        happened: events.iter().map(happened).collect(),
    }
}

fn metrics(path: &PathReport) -> Metrics {
    Metrics {
        smoothed_rtt: path.rtt.map(|rtt| rtt.0 as f64 / 1e3),
        min_rtt: path.min_rtt.map(|rtt| rtt.0 as f64 / 1e3),
        congestion_window: path.window.map(|window| window.0),
        bytes_in_flight: Some(path.in_flight.0),
        pacing_rate: path.rate.map(|rate| rate.0),
    }
}

fn figures(path: &PathReport) -> PathFigures {
    let packets = path.packets.unwrap_or_default();
    PathFigures {
        health: word(&path.health),
        status: word(&path.status),
        sent_bytes: path.traffic.sent.0,
        received_bytes: path.traffic.received.0,
        sent_packets: packets.sent,
        lost_packets: packets.lost,
    }
}

fn delivery(report: DeliveryReport) -> Delivery {
    let DeliveryReport { repeats, duplicates, repaired, skipped, late, dropped } = report;
    Delivery { repeats, duplicates, repaired, skipped, late, dropped }
}

/// The control API's word for it.
fn word(of: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(of).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Why a file cannot be drawn.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is longer than any record may be.
    #[error("{0} has more than {LONGEST_FILE} bytes")]
    Long(PathBuf),
    /// It is something else.
    #[error("{path}: {error}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: ReadError,
    },
}

/// Reads a record.
///
/// # Errors
/// Any [`LoadError`].
pub fn load(path: &Path) -> Result<Recording, LoadError> {
    let unreadable = |error| LoadError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(LoadError::Long(path.to_owned()));
    }
    trace::read(&bytes).map_err(|error| LoadError::Content { path: path.to_owned(), error })
}

/// Events are asked for less often: they have times of their own.
const EVENTS_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_FILE: u64 = 256 << 20;
