//! The radio as its control server sees it, and what is told of its networks.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use anabranch::control::{
    AccessPointReport, DownReport, EventKind, Fraction, HeardNetwork, KeptFrame, RadioCounters,
    RadioNetworkReport, RadioNetworkState, RadioStatus, Status, Unreached,
};
use linux::poll::Waker;
use radio::NetworkStatus;
use radio::handoff::Beyond;
use radio::scan::Seen;
use units::{Bytes, Frequency, NetworkId};

use super::KnownNetwork;
use crate::control::{Backend, BackendError, EventLog};
use crate::mailbox::Mailbox;
use crate::supervision::Root;

/// The loop answers between two frames.
const PATIENCE: Duration = Duration::from_secs(5);
/// A scan visits some forty channels, one each cycle of up to two seconds in turn with the networks.
const SCAN_PATIENCE: Duration = Duration::from_secs(25);

/// Requests that wait.
const MOST_COMMANDS: usize = 16;

/// What the loop is asked.
pub(super) enum Command {
    /// How the radio and its networks are.
    Status(SyncSender<RadioStatus>),
    /// Access points in range, and how much each is worth.
    AccessPoints(SyncSender<Vec<AccessPointReport>>),
    /// What is heard on all channels.
    Scan(SyncSender<Vec<HeardNetwork>>),
    /// Behind which networks nothing answers, as the device has found.
    Unreached(Unreached, SyncSender<Unreached>),
    /// What lies beyond a network, as was just found out.
    Beyond(NetworkId, Beyond),
    /// To end, once the card is given back.
    Stop(SyncSender<Result<DownReport, String>>),
}

/// Where requests arrive, and whom the loop tells what has happened.
pub(super) struct Desk {
    pub commands: Receiver<Command>,
    pub waker: Waker,
    /// What happened.
    pub events: Arc<EventLog>,
    /// The process that keeps root.
    pub root: Arc<Root>,
}

impl Desk {
    /// A desk, and what hands requests to it.
    ///
    /// # Errors
    /// If the system gives no descriptor.
    pub fn new(root: Root) -> io::Result<(RadioBackend, Self)> {
        let (mailbox, commands, waker) = Mailbox::new(MOST_COMMANDS)?;
        let events = Arc::new(EventLog::default());
        events.push(EventKind::Started, None, "the radio has started");
        let backend = RadioBackend { commands: mailbox, events: Arc::clone(&events) };
        Ok((backend, Self { commands, waker, events, root: Arc::new(root) }))
    }
}

/// Hands requests to the loop.
pub(super) struct RadioBackend {
    /// The loop.
    pub commands: Mailbox<Command>,
    /// What happened.
    pub events: Arc<EventLog>,
}

fn busy() -> BackendError {
    BackendError::Unavailable("the radio is too busy to answer; try again".to_owned())
}

impl Backend for RadioBackend {
    fn status(&self) -> Result<Status, BackendError> {
        Err(BackendError::WrongRole("this daemon is a radio; `anabranch radio list` shows its networks"))
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        let report = self.commands.ask(SCAN_PATIENCE, Command::Stop).ok_or_else(busy)?;
        report.map_err(BackendError::Internal)
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn radio(&self) -> Result<RadioStatus, BackendError> {
        self.commands.ask(PATIENCE, Command::Status).ok_or_else(busy)
    }

    fn radio_access_points(&self) -> Result<Vec<AccessPointReport>, BackendError> {
        self.commands.ask(PATIENCE, Command::AccessPoints).ok_or_else(busy)
    }

    fn radio_unreached(&self, unreached: Unreached) -> Result<Unreached, BackendError> {
        self.commands.ask(PATIENCE, |reply| Command::Unreached(unreached, reply)).ok_or_else(busy)
    }

    fn radio_scan(&self) -> Result<Vec<HeardNetwork>, BackendError> {
        self.commands.ask(SCAN_PATIENCE, Command::Scan).ok_or_else(busy)
    }
}

/// What was heard, strongest first, and whether `known` has it.
pub fn heard_networks<'a>(
    seen: impl Iterator<Item = &'a Seen>,
    known: &[&KnownNetwork],
) -> Vec<HeardNetwork> {
    let mut heard: Vec<HeardNetwork> = seen
        .map(|seen| HeardNetwork {
            ssid: seen.ssid.as_ref().map(ToString::to_string),
            bssid: seen.bssid.to_string(),
            channel: seen.frequency.channel(),
            megahertz: seen.frequency.0,
            signal_dbm: seen.signal_dbm,
            security: seen.protection.name().to_owned(),
            ad_hoc: seen.ad_hoc,
            known: known
                .iter()
                .any(|known| seen.ssid.as_ref().is_some_and(|ssid| ssid.as_bytes() == known.ssid.as_bytes())),
        })
        .collect();
    let signal = |one: &HeardNetwork| one.signal_dbm.unwrap_or(f32::NEG_INFINITY);
    heard.sort_by(|a, b| signal(b).total_cmp(&signal(a)));
    heard
}

/// A network, as far as the station knows it.
pub(super) fn network_report(
    status: &NetworkStatus,
    known: &KnownNetwork,
    interface: &str,
) -> RadioNetworkReport {
    let counters = status.counters;
    let slot = status.slot.unwrap_or_default();
    RadioNetworkReport {
        ssid: known.ssid.clone(),
        interface: interface.to_owned(),
        state: match (status.up, status.bssid) {
            (true, _) => RadioNetworkState::Asking,
            (false, Some(_)) => RadioNetworkState::Joining,
            (false, None) => RadioNetworkState::Searching,
        },
        trouble: None,
        primary: None,
        bssid: status.bssid.map(|bssid| bssid.to_string()),
        channel: status.frequency.and_then(Frequency::channel),
        signal_dbm: status.signal_dbm,
        addresses: Vec::new(),
        weight: status.weight,
        share: Fraction(status.presence),
        slot: slot.into(),
        given_up: status.given_up,
        queue: status.waiting,
        kept_frame: status
            .kept_frame
            .map(|(announced, polled)| KeptFrame { announced: announced.into(), polled: polled.into() }),
        counters: RadioCounters {
            received_packets: counters.received_packets,
            received: Bytes(counters.received_bytes),
            sent_packets: counters.sent_packets,
            sent: Bytes(counters.sent_bytes),
            failed_frames: counters.failed_frames,
            refused_packets: counters.refused_packets,
            dropped_frames: counters.dropped_frames,
            missed_beacons: 0,
            heard_dtims: counters.heard_dtims,
            missed_dtims: counters.missed_dtims,
            full_buffers: counters.full_buffers,
            unconfirmed_partings: counters.unconfirmed_partings,
            ups: counters.ups,
        },
    }
}

/// What the loop knows of a network beside the station.
pub(super) struct Known {
    /// It asks for an address.
    pub asks: bool,
    pub addresses: Vec<IpAddr>,
    pub trouble: Option<String>,
    pub missed_beacons: u32,
    pub primary: Option<bool>,
}

/// Adds what the loop knows.
pub(super) fn complete(mut report: RadioNetworkReport, known: Known) -> RadioNetworkReport {
    let Known { asks, addresses, trouble, missed_beacons, primary } = known;
    if report.state == RadioNetworkState::Asking && !(asks && addresses.is_empty()) {
        report.state = RadioNetworkState::Up;
    }
    report.counters.missed_beacons = missed_beacons;
    RadioNetworkReport { addresses, trouble, primary, ..report }
}
