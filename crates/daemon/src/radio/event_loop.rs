//! One thread: what the card hears goes to the station, what the station wishes goes to the card, packets to and from the interfaces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linux::clock;
use linux::netlink::{Netlink, NetlinkError, Route};
use linux::poll::{Interest, Poller, Ready, Token, be_punctual};
use linux::prefix::IpPrefix;
use linux::radio::{RadioCard, TransferError, TuneError};
use linux::signals::EndSignals;
use linux::tap::{SHARED_RADIO, Tap, TapOptions};
use linux::tun::{self, Reserved, TunError};
use radio::pcap::{self, Record, Sent};
use radio::radiotap::Captured;
use radio::{
    Event, NetworkStatus, Outcome, PermittedChannel, Station, StationSettings, Switch, Transmission,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use thiserror::Error;
use tracing::{debug, info, warn};
use units::{Frequency, NetworkId, Timestamp};

use super::lease::{Lease, LeaseChange, LeaseClient};
use super::{KnownError, KnownNetworks, RadioOptions};
use crate::dataplane;

const CARD: Token = Token(0);
const SIGNALS: Token = Token(1);
/// Interfaces follow, by the number of their network.
const FIRST_INTERFACE: u64 = 16;
/// Frames taken from one source before the others have their turn.
const BUDGET: usize = 64;
/// Frames of an interface that wait in the kernel.
const INTERFACE_QUEUE: u32 = 64;
const MTU: u32 = 1_500;
/// The first network's routes have this metric, the next ones more: behind cables, as other programs have it for Wi-Fi.
const FIRST_METRIC: u32 = 600;
/// How often what is going on is logged.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Why the loop cannot start, or ended.
#[derive(Debug, Error)]
pub(super) enum LoopError {
    /// A network's settings.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// An interface.
    #[error(transparent)]
    Interface(#[from] TunError),
    /// Randomness, descriptors.
    #[error("the radio cannot go on: {0}")]
    System(#[from] io::Error),
    /// Randomness.
    #[error("no randomness: {0}")]
    Randomness(rand::rand_core::OsError),
    /// The card is gone or off.
    #[error(transparent)]
    Card(#[from] TransferError),
    /// The card cannot be tuned.
    #[error(transparent)]
    Tune(#[from] TuneError),
}

/// A network's interface.
struct Attached {
    ssid: String,
    tap: Tap,
    lease: LeaseClient,
    lent: Option<Lease>,
    metric: u32,
}

/// The loop and all that it owns.
pub(super) struct RadioLoop {
    card: RadioCard,
    station: Station,
    attached: BTreeMap<NetworkId, Attached>,
    poller: Poller,
    signals: EndSignals,
    capture: Option<File>,
    /// What the card had no room for.
    pending: Option<Transmission>,
    times: SwitchTimes,
    reported: Timestamp,
}

impl RadioLoop {
    /// Makes the interfaces, on devices opened before, one for each network; nothing is sent yet. `capture` has its header already.
    ///
    /// # Errors
    /// Any [`LoopError`] but those of the card.
    pub fn new(
        card: RadioCard,
        signals: EndSignals,
        options: &RadioOptions,
        known: &KnownNetworks,
        reserved: Vec<Reserved>,
        capture: Option<File>,
    ) -> Result<Self, LoopError> {
        be_punctual();
        let address = card.address().ok_or(TransferError::Gone)?;
        let listens = card.channels().iter().filter(|channel| channel.may_listen());
        let channels = listens
            .map(|channel| PermittedChannel { frequency: channel.frequency, active: channel.may_send() })
            .collect();
        let seed = dataplane::seed().map_err(LoopError::Randomness)?;
        let mut randomness = StdRng::from_seed(seed);
        let settings =
            StationSettings { address, channels, slots: options.slots, scan_weight: options.scan_weight };
        let mut station = Station::new(settings, StdRng::from_rng(&mut randomness));
        let poller = Poller::new()?;
        poller.add(&card, CARD, Interest::Readable)?;
        poller.add(&signals, SIGNALS, Interest::Readable)?;
        let now = clock::now();
        let mut attached = BTreeMap::new();
        for ((number, network), reserved) in (1..).zip(&known.network).zip(reserved) {
            let id = NetworkId(number);
            let name = network.interface_name()?;
            let tap = Tap::create_on(
                reserved,
                &TapOptions { name, address, mtu: MTU, queue: INTERFACE_QUEUE, alias: Some(SHARED_RADIO) },
            )?;
            poller.add(&tap, Token(FIRST_INTERFACE + u64::from(number)), Interest::Readable)?;
            station.add_network(now, id, network.settings()?);
            let lease = LeaseClient::new(now, address, randomness.random());
            let metric = FIRST_METRIC + number;
            attached.insert(id, Attached { ssid: network.ssid.clone(), tap, lease, lent: None, metric });
        }
        let (pending, times) = (None, SwitchTimes::default());
        Ok(Self { card, station, attached, poller, signals, capture, pending, times, reported: now })
    }

    /// Runs until a signal says to stop.
    ///
    /// # Errors
    /// Any [`LoopError`]: the card is gone, switched off, or held by another program for good.
    pub fn run(mut self) -> Result<(), LoopError> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            self.drain()?;
            let now = clock::now();
            let timeout = self.timeout(now).map(|at| at.since(now));
            self.poller.wait(Some(timeout.unwrap_or(REPORT_EVERY).min(REPORT_EVERY)), &mut ready)?;
            for one in &ready {
                match one.token {
                    CARD => self.hear()?,
                    SIGNALS => {
                        if let Some(signal) = self.signals.take() {
                            info!("ending on signal {signal}");
                            return self.leave();
                        }
                    }
                    Token(number) => self.read_interface(number),
                }
            }
            let now = clock::now();
            if self.station.poll_timeout(now).is_some_and(|due| due <= now) {
                self.station.handle_timeout(now);
            }
            self.report(now);
        }
    }

    /// Tells the access points that we go, as far as they are on this channel.
    fn leave(mut self) -> Result<(), LoopError> {
        let now = clock::now();
        let networks: Vec<NetworkId> = self.attached.keys().copied().collect();
        networks.into_iter().for_each(|id| self.station.remove_network(now, id));
        while let Some(transmission) = self.station.poll_transmit(now) {
            // The last words: what the card does not take is not said.
            drop(self.card.send(&transmission));
        }
        Ok(())
    }

    fn timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let station = self.station.poll_timeout(now);
        let up: Vec<NetworkId> =
            self.station.networks().filter(|network| network.up).map(|network| network.network).collect();
        let leases = self.attached.iter_mut().filter(|(id, _)| up.contains(id));
        leases.filter_map(|(_, attached)| attached.lease.timeout(now)).chain(station).min()
    }

    /// Does all that the station wishes.
    fn drain(&mut self) -> Result<(), LoopError> {
        loop {
            let now = clock::now();
            if let Some(frequency) = self.station.poll_tune() {
                self.tune(frequency)?;
                continue;
            }
            while let Some((id, packet)) = self.station.poll_packet() {
                self.deliver(id, packet);
            }
            while let Some(event) = self.station.poll_event() {
                self.note(event);
            }
            while let Some(switch) = self.station.poll_switch() {
                self.times.add(&switch);
            }
            self.drive_leases(now);
            let next = self.pending.take().or_else(|| self.station.poll_transmit(now));
            let Some(transmission) = next else {
                return Ok(self.poller.change(&self.card, CARD, Interest::Readable)?);
            };
            if !self.send(transmission)? {
                return Ok(self.poller.change(&self.card, CARD, Interest::ReadableOrWritable)?);
            }
        }
    }

    /// Gives whether the card took the frame, or will never.
    fn send(&mut self, transmission: Transmission) -> Result<bool, LoopError> {
        match self.card.send(&transmission) {
            Ok(()) => Ok(true),
            Err(TransferError::Full) => {
                self.pending = Some(transmission);
                Ok(false)
            }
            Err(TransferError::Silent) => {
                let outcome = Outcome { frame: &transmission.frame, acknowledged: false, attempts: Some(0) };
                self.station.handle_outcome(clock::now(), &outcome);
                Ok(true)
            }
            Err(TransferError::Off) => {
                warn!("another program switched the radio off; taking it back");
                self.card.reclaim()?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tune(&mut self, frequency: Frequency) -> Result<(), LoopError> {
        let before = clock::now();
        let mut outcome = self.card.tune(frequency);
        if matches!(outcome, Err(TuneError::Busy)) {
            warn!("another program uses the radio; taking it back");
            self.card.reclaim()?;
            outcome = self.card.tune(frequency);
        }
        let now = clock::now();
        match outcome {
            Ok(()) => {
                self.times.tuned(now.since(before));
                self.station.handle_tuned(now, frequency);
            }
            Err(TuneError::Channel { .. }) => self.station.handle_tune_failed(now, frequency),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Hands what the card has to the station.
    fn hear(&mut self) -> Result<(), LoopError> {
        let Self { card, station, capture, .. } = self;
        for _ in 0..BUDGET / 16 {
            let received = card.receive(|captured| {
                let now = clock::now();
                match captured {
                    Captured::Heard(heard) => {
                        record(capture, heard.frame, heard.frequency, heard.rate, heard.signal_dbm, None);
                        station.handle_frame(now, &heard);
                    }
                    Captured::Outcome(outcome) => {
                        let sent =
                            Sent { succeeded: outcome.acknowledged, attempts: outcome.attempts.unwrap_or(1) };
                        record(capture, outcome.frame, Frequency(0), None, None, Some(sent));
                        station.handle_outcome(now, &outcome);
                    }
                }
            });
            match received {
                Ok(0) => break,
                Ok(_) => {}
                Err(TransferError::Off) => {
                    warn!("another program switched the radio off; taking it back");
                    card.reclaim()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_interface(&mut self, number: u64) {
        let id =
            number.checked_sub(FIRST_INTERFACE).and_then(|number| u32::try_from(number).ok()).map(NetworkId);
        let Some((id, attached)) = id.and_then(|id| Some((id, self.attached.get_mut(&id)?))) else { return };
        let mut buffer = [0; Tap::longest_frame(MTU)];
        for _ in 0..BUDGET {
            match attached.tap.read_frame(&mut buffer) {
                Ok(length) => drop(self.station.handle_packet(clock::now(), id, &buffer[..length])),
                Err(_) => break,
            }
        }
    }

    fn deliver(&mut self, id: NetworkId, packet: Vec<u8>) {
        let Some(attached) = self.attached.get_mut(&id) else { return };
        if LeaseClient::wants(&packet) {
            attached.lease.receive(packet);
        } else if let Err(error) = attached.tap.write_frame(&packet) {
            debug!("{}: {error}", attached.tap.name());
        }
    }

    fn note(&mut self, event: Event) {
        let (Event::Up { network, .. } | Event::Down { network, .. } | Event::Trouble { network, .. }) =
            event;
        let Some(attached) = self.attached.get_mut(&network) else { return };
        let carrier = match event {
            Event::Up { bssid, frequency, .. } => {
                info!("{}: up, by {bssid} on {} MHz, as {}", attached.ssid, frequency.0, attached.tap.name());
                Some(true)
            }
            Event::Down { reason, .. } => {
                warn!("{}: down: {reason}", attached.ssid);
                Some(false)
            }
            Event::Trouble { reason, .. } => {
                warn!("{}: {reason}", attached.ssid);
                None
            }
        };
        if let Some(Err(error)) = carrier.map(|carrier| attached.tap.set_carrier(carrier)) {
            warn!("{}: {error}", attached.tap.name());
        }
    }

    /// Lets the clients of networks that are up ask for addresses.
    fn drive_leases(&mut self, now: Timestamp) {
        let up: Vec<NetworkStatus> = self.station.networks().filter(|network| network.up).collect();
        for id in up.iter().map(|network| network.network) {
            let Some(attached) = self.attached.get_mut(&id) else { continue };
            if let Some(change) = attached.lease.poll(now)
                && let Err(error) = attached.apply(change)
            {
                warn!("{}: the address that it lent cannot be used: {error}", attached.ssid);
            }
            while let Some(frame) = attached.lease.transmit() {
                self.station.handle_packet(now, id, &frame);
            }
        }
    }

    fn report(&mut self, now: Timestamp) {
        if now.since(self.reported) < REPORT_EVERY {
            return;
        }
        self.reported = now;
        info!("{}", self.times);
        self.times = SwitchTimes::default();
    }
}

impl Attached {
    /// Gives the interface the address that was lent, and the routes by it.
    fn apply(&mut self, change: LeaseChange) -> Result<(), NetlinkError> {
        let lent = if let LeaseChange::Lent(lease) = change { Some(lease) } else { None };
        if lent == self.lent {
            return Ok(());
        }
        let index = self.tap.index();
        let addresses: Vec<IpPrefix> = lent.iter().map(|lease| lease.address).collect();
        tun::configure(index, MTU, &addresses)?;
        if let Some((lease, gateway)) = lent.as_ref().and_then(|lease| Some((lease, lease.gateway?))) {
            let all = IpPrefix::new(IpAddr::from([0, 0, 0, 0]), 0);
            let Ok(all) = all else { return Ok(()) };
            let route = Route {
                gateway: Some(gateway.into()),
                metric: Some(self.metric),
                source: Some(lease.address.address()),
                on_link: true,
                ..Route::over(all, index)
            };
            Netlink::open()?.add_route(&route)?;
        }
        match &lent {
            Some(lease) => info!("{}: address {}", self.ssid, lease.address),
            None => info!("{}: the address is not ours any more", self.ssid),
        }
        self.lent = lent;
        Ok(())
    }
}

/// Adds a frame to the capture; a full disk ends the capture, not the radio.
fn record(
    capture: &mut Option<File>,
    frame: &[u8],
    frequency: Frequency,
    rate: Option<radio::Rate>,
    signal_dbm: Option<i8>,
    sent: Option<Sent>,
) {
    let Some(file) = capture else { return };
    let mut bytes = Vec::with_capacity(frame.len() + 64);
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    pcap::append(&mut bytes, &Record { at, frame, frequency, rate, signal_dbm, sent });
    if let Err(error) = file.write_all(&bytes) {
        warn!("the capture ends here: {error}");
        *capture = None;
    }
}

/// How long changes of channel took.
#[derive(Default)]
struct SwitchTimes {
    switches: u32,
    total: Duration,
    tunes: u32,
    tuning: Duration,
}

impl SwitchTimes {
    fn add(&mut self, switch: &Switch) {
        self.switches += 1;
        self.total += switch.tuned.since(switch.begun);
    }

    fn tuned(&mut self, time: Duration) {
        self.tunes += 1;
        self.tuning += time;
    }
}

impl std::fmt::Display for SwitchTimes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mean = |total: Duration, count: u32| total.checked_div(count).unwrap_or_default();
        write!(
            formatter,
            "{} changes of channel, {:?} each on average, of which the card took {:?}",
            self.switches,
            mean(self.total, self.switches),
            mean(self.tuning, self.tunes)
        )
    }
}
