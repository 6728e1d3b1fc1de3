//! The kernel keeps the networks: a station interface and an unmodified wpa_supplicant for each, where the card can be in several
//! networks by itself.
//!
//! ```text
//! root:   makes and removes interfaces, by the journal
//! worker: for each network  wpa_supplicant (same user and rights as the worker) --control socket--> up, down, why
//!                           DHCP client <--packet socket--> interface
//!         listener <--monitor interface, while networks share a channel
//! ```
//! Packets never come here: they are the kernel's. Weights mean nothing: the card and its driver share the time out.

mod air;
mod configuration;
mod listening;
mod patience;
mod station;
pub(super) mod statistics;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use anabranch::control::{AccessPointReport, HeardNetwork, RadioNetworkReport, RadioStatus, Unreached};
use linux::clock;
use linux::netlink::Netlink;
use linux::poll::{Poller, Token};
use linux::radio::{Radios, ScanError, kernel_scan};
use linux::wireless::{Wireless, WirelessError};
use radio::Stations;
use radio::scan::SeenNetworks;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tracing::{debug, warn};
use units::{Frequency, MacAddress, NetworkId, Timestamp};

use super::KnownNetwork;
use super::control::heard_networks;
use super::keeping::{Keeper, LoopError};
use super::lease::LeaseMemory;
use super::points::Points;
use crate::control::EventLog;
use crate::dataplane;
use crate::supervision::{Request, Root};
use configuration::configuration;
use listening::Listening;
use station::{Beside, KernelStation, OwnInterface, Tokens, Told};
use statistics::{Statistics, Up, share};

/// Two tokens for each network follow, by its number.
const FIRST_TOKEN: u64 = 16;

/// Keeps networks by the kernel's stations.
pub(super) struct KernelKeeper {
    root: Arc<Root>,
    /// The state directory, where the programs have their control sockets.
    directory: File,
    /// In how many networks the card can be.
    most: usize,
    /// The only channels to use; empty: all.
    frequencies: Vec<Frequency>,
    poller: Poller,
    kept: BTreeMap<NetworkId, Kept>,
    randomness: StdRng,
    events: Arc<EventLog>,
    statistics: Statistics,
    listening: Listening,
    points: Points,
    memory: LeaseMemory,
}

struct Kept {
    known: KnownNetwork,
    /// `None`: the card is in as many networks as it can.
    station: Option<KernelStation>,
}

impl KernelKeeper {
    /// A card without networks yet, which can be in `most` of them. Programs run in `directory`, to which this process may write.
    ///
    /// # Errors
    /// [`LoopError::System`] or [`LoopError::Randomness`].
    pub fn new(
        root: Arc<Root>,
        events: Arc<EventLog>,
        directory: File,
        most: u32,
        frequencies: Vec<Frequency>,
        memory: LeaseMemory,
    ) -> Result<Self, LoopError> {
        let seed = dataplane::seed().map_err(LoopError::Randomness)?;
        Ok(Self {
            root,
            directory,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            frequencies,
            poller: Poller::new()?,
            kept: BTreeMap::new(),
            randomness: StdRng::from_seed(seed),
            events,
            statistics: Statistics::default(),
            listening: Listening::default(),
            points: Points::default(),
            memory,
        })
    }

    /// Interfaces that are up, with the names of their networks.
    fn up(&self) -> Vec<Up<'_>> {
        let kept = self.kept.iter();
        kept.filter_map(|(id, kept)| {
            let interface = kept.station.as_ref()?.up()?;
            Some(Up {
                network: *id,
                title: &kept.known.ssid,
                interface: &interface.name,
                index: interface.index,
            })
        })
        .collect()
    }

    /// Listens beside the stations, if that is wanted.
    fn listen(&mut self, now: Timestamp, wanted: bool) {
        let own: Vec<(&str, MacAddress)> = self
            .kept
            .values()
            .filter_map(|kept| kept.station.as_ref()?.up())
            .map(|interface| (interface.name.as_str(), interface.address))
            .collect();
        let addresses: Vec<MacAddress> = own.iter().map(|(_, address)| *address).collect();
        let interface = own.first().map_or("", |(name, _)| name);
        let access_points = self.statistics.access_points();
        let stations = Stations { addresses: &addresses, access_points: &access_points };
        self.listening.work(now, wanted, interface, stations);
    }

    fn begin(
        &mut self,
        now: Timestamp,
        id: NetworkId,
        known: &KnownNetwork,
    ) -> Result<KernelStation, LoopError> {
        let name = known.interface_name()?;
        let make = Request::AddStation { interface: name.clone(), number: id.0 };
        self.root.ask(&make).map_err(io::Error::other)?;
        let begun = self.begin_on(now, id, known, &name);
        if begun.is_err() {
            self.remove_interface(name);
        }
        begun
    }

    fn begin_on(
        &mut self,
        now: Timestamp,
        id: NetworkId,
        known: &KnownNetwork,
        name: &str,
    ) -> Result<KernelStation, LoopError> {
        let link = Netlink::open()?.link(name)?;
        let link = link.and_then(|link| Some((link.index, link.address?)));
        let (index, address) = link.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let interface = OwnInterface { name: name.to_owned(), index, address };
        let seed = self.randomness.random();
        let configuration = configuration(known, &self.frequencies)?;
        let told = Told {
            ssid: known.ssid.clone(),
            configuration,
            settings: known.settings()?,
            frequencies: self.frequencies.clone(),
            address: known.own_address()?,
            events: Arc::clone(&self.events),
        };
        Ok(KernelStation::new(now, id, told, interface, tokens(id), &self.poller, seed)?)
    }

    fn remove_interface(&self, interface: String) {
        if let Err(error) = self.root.ask(&Request::RemoveStation { interface }) {
            warn!("{error}");
        }
    }

    /// Reads what the kernel counted and decides, if it is time.
    fn judge(&mut self, now: Timestamp) {
        if !self.statistics.is_due(now) {
            return;
        }
        let mut statistics = std::mem::take(&mut self.statistics);
        let up = self.up();
        statistics.read(now, &up, self.listening.is_on());
        let joined = statistics
            .joined(now, &up, Some(&self.listening), |interface| self.points.reaches(now, interface));
        self.points.decide(now, &joined, &self.events);
        self.statistics = statistics;
    }

    fn running(&self) -> usize {
        self.kept.values().filter(|kept| kept.station.is_some()).count()
    }

    /// Lets one that waits have the place that has become free.
    fn let_next_in(&mut self, now: Timestamp) {
        if self.running() >= self.most {
            return;
        }
        let waiting = self.kept.iter().find(|(_, kept)| is_waiting(kept));
        let Some((id, known)) = waiting.map(|(id, kept)| (*id, kept.known.clone())) else { return };
        match self.begin(now, id, &known) {
            Ok(station) => {
                if let Some(kept) = self.kept.get_mut(&id) {
                    kept.station = Some(station);
                }
            }
            Err(error) => warn!("{}: {error}", known.ssid),
        }
    }
}

impl Keeper for KernelKeeper {
    fn networks(&self) -> Vec<(NetworkId, KnownNetwork)> {
        self.kept.iter().map(|(id, kept)| (*id, kept.known.clone())).collect()
    }

    fn join(&mut self, now: Timestamp, known: KnownNetwork) -> Result<(), LoopError> {
        // The lowest free one, for the hardware address is made from it.
        let id = (1..).map(NetworkId).find(|id| !self.kept.contains_key(id));
        let id = id.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let station = if known.ad_hoc_channel.is_some() {
            warn!("{}: the kernel keeps this card's networks: no ad hoc groups", known.ssid);
            None
        } else if self.running() < self.most {
            Some(self.begin(now, id, &known)?)
        } else {
            warn!("{}: waits: the card can be in {} networks at a time", known.ssid, self.most);
            None
        };
        self.kept.insert(id, Kept { known, station });
        Ok(())
    }

    fn leave(&mut self, now: Timestamp, id: NetworkId) {
        let kept = self.kept.remove(&id);
        if let Some(kept) = &kept {
            self.memory.forget(&kept.known);
        }
        if let Some(station) = kept.and_then(|kept| kept.station) {
            let interface = station.end();
            self.remove_interface(interface.name);
            self.let_next_in(now);
        }
    }

    fn set_weight(&mut self, id: NetworkId, weight: u16) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.known.weight = weight;
        }
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn handle(&mut self, token: Token) -> Result<(), LoopError> {
        let number = token.0.checked_sub(FIRST_TOKEN).and_then(|number| u32::try_from(number / 2).ok());
        let kept = number.and_then(|number| self.kept.get_mut(&NetworkId(number)));
        let Some(station) = kept.and_then(|kept| kept.station.as_mut()) else { return Ok(()) };
        if token.0.is_multiple_of(2) {
            station.hear()
        } else {
            station.receive()
        }
        Ok(())
    }

    fn work(&mut self) -> Result<Option<Timestamp>, LoopError> {
        let now = clock::now();
        let up = self.up().len();
        let Self { kept, poller, directory, memory, listening, .. } = self;
        let beside = Beside { listening, up };
        let stations = kept.values_mut().filter_map(|kept| Some((kept.station.as_mut()?, &kept.known)));
        let next = stations
            .filter_map(|(station, known)| station.work(now, poller, directory, known, memory, beside))
            .min();
        let several = self.up().len() > 1;
        let listens = several && self.statistics.share_channel();
        self.listen(now, listens);
        self.judge(now);
        let due = several.then_some(self.statistics.due());
        let heard = listens.then_some(self.listening.due());
        Ok(next.into_iter().chain(due).chain(heard).min())
    }

    fn status(&self, _now: Timestamp) -> RadioStatus {
        let up = self.up();
        let mut wireless = Wireless::open().map_err(|error| debug!("{error}")).ok();
        let networks = self.kept.values().map(|kept| {
            let mut report = kept.station.as_ref().map(KernelStation::report);
            if let Some(report) = &mut report
                && let Some(one) = up.iter().find(|one| one.interface == report.interface)
            {
                let association =
                    wireless.as_mut().and_then(|wireless| wireless.association(one.index).ok()?);
                let signal = association.and_then(|association| association.signal_dbm);
                report.signal_dbm = signal.map(|signal| signal as f32);
                report.share = share(up.len());
            }
            let waits = || RadioNetworkReport {
                interface: kept.known.interface_name().unwrap_or_default(),
                trouble: Some(format!("the card can be in {} networks at a time", self.most)),
                ..RadioNetworkReport::default()
            };
            RadioNetworkReport {
                ssid: kept.known.ssid.clone(),
                weight: kept.known.weight,
                ..report.unwrap_or_else(waits)
            }
        });
        RadioStatus {
            pid: std::os::unix::process::parent_id(),
            networks: networks.collect(),
            ..RadioStatus::default()
        }
    }

    /// Listens in a thread of its own: it takes seconds.
    fn scan(&mut self, _now: Timestamp, reply: SyncSender<Vec<HeardNetwork>>) {
        let known: Vec<KnownNetwork> = self.kept.values().map(|kept| kept.known.clone()).collect();
        let station = self.kept.values().find_map(|kept| kept.station.as_ref());
        let Some(interface) = station.map(|station| station.interface().to_owned()) else { return };
        let listen = move || {
            let known: Vec<&KnownNetwork> = known.iter().collect();
            match listen(&interface) {
                // Who asked may not wait any more.
                Ok(seen) => drop(reply.try_send(heard_networks(seen.iter(), &known))),
                Err(error) => warn!("{interface}: listening on all channels: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("scan".to_owned()).spawn(listen) {
            warn!("listening on all channels: {error}");
        }
    }

    fn access_points(&mut self, now: Timestamp) -> Vec<AccessPointReport> {
        self.judge(now);
        self.statistics.reports(now, &self.up(), &self.points, Some(&self.listening))
    }

    fn slept(&mut self) {
        self.points.forget();
        self.statistics = Statistics::default();
    }

    fn tell_unreached(&mut self, now: Timestamp, unreached: Unreached) {
        self.points.tell_unreached(now, unreached.interfaces);
    }

    fn end(&mut self) {
        for (_, kept) in std::mem::take(&mut self.kept) {
            // Root removes the interfaces, with all else.
            drop(kept.station.map(KernelStation::end));
        }
    }
}

fn listen(interface: &str) -> Result<SeenNetworks, ScanError> {
    let card = Radios::open()?.find(interface)?.ok_or(WirelessError::None)?;
    kernel_scan(&card)
}

fn is_waiting(kept: &Kept) -> bool {
    kept.station.is_none() && kept.known.ad_hoc_channel.is_none()
}

fn tokens(id: NetworkId) -> Tokens {
    let first = FIRST_TOKEN + 2 * u64::from(id.0);
    Tokens { control: Token(first), leases: Token(first + 1) }
}
