//! One thread: what the card hears goes to the station, what the station wishes goes to the card, packets to and from the interfaces.

mod card;
mod networks;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anabranch::control::{AccessPointReport, EventKind, HeardNetwork, RadioStatus, Unreached};
use arrayvec::ArrayVec;
use linux::clock;
use linux::poll::{Interest, Poller, Token, be_punctual};
use linux::radio::{Channel, RadioCard, TransferError};
use linux::tap::{SHARED_RADIO, Tap, TapOptions};
use linux::tun::Reserved;
use radio::handoff::Beyond;
use radio::{NetworkStatus, PermittedChannel, Station, StationSettings, Transmission};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tracing::info;
use units::{Frequency, NetworkId, Timestamp};

use super::access_points;
use super::address::{MTU, NetworkAddress};
use super::control::{self, Command, Desk};
use super::keeping::{Keeper, LoopError};
use super::lease::{Lease, LeaseChange, LeaseClient, LeaseMemory};
use super::points::Points;
use super::soft_handoff::SoftHandoff;
use super::switches::Switches;
use super::{KnownNetwork, Outfit, RadioOptions};
use crate::control::EventLog;
use crate::dataplane;
use crate::mailbox::Mailbox;
use crate::supervision::Root;

const CARD: Token = Token(0);
/// Interfaces follow, by the number of their network.
const FIRST_INTERFACE: u64 = 16;
/// Frames taken from one source before the others have their turn.
const BUDGET: usize = 64;
/// Frames of an interface that wait in the kernel.
const INTERFACE_QUEUE: u32 = 64;
/// How often root is told again whom names are asked: another program may have changed it.
const NAMES_EVERY: Duration = Duration::from_secs(30);
/// How often a card that is switched off or gone is looked for.
const LOOK_FOR_CARD: Duration = Duration::from_secs(1);
/// Time for the answer to a question for an address.
const ANSWER_TIME: Duration = Duration::from_millis(1_500);
/// How often what is going on is logged.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Why there is no card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CardLoss {
    /// Switched off: its interface is there.
    Blocked,
    /// Pulled out.
    Gone,
}

/// A network's interface.
struct Attached {
    known: KnownNetwork,
    tap: Tap,
    /// Asks for an address; `None` where it is configured or nobody lends any.
    lease: Option<LeaseClient>,
    address: NetworkAddress,
    /// Why it was last down or does not come up.
    trouble: Option<String>,
}

/// The loop and all that it owns.
pub(super) struct RadioLoop {
    card: RadioCard,
    station: Station,
    attached: BTreeMap<NetworkId, Attached>,
    poller: Poller,
    capture: Option<File>,
    /// What the card had no room for.
    pending: Option<Transmission>,
    waits_for_room: bool,
    switches: Switches,
    channel_cost: Duration,
    reported: Timestamp,
    randomness: StdRng,
    reserved: Vec<Reserved>,
    next_number: u32,
    events: Arc<EventLog>,
    /// The card is switched off or gone, and when it is looked for again.
    lost: Option<(CardLoss, Timestamp)>,
    /// What was said of it then.
    trouble: Option<String>,
    /// Who waits for a scan to end.
    scans: Vec<SyncSender<Vec<HeardNetwork>>>,
    root: Arc<Root>,
    handoff: Option<SoftHandoff>,
    points: Points,
    memory: LeaseMemory,
    /// When root is told again whom names are asked; at once if something changed.
    names_due: Timestamp,
}

impl RadioLoop {
    /// A radio without networks yet. Interfaces are made on what is `reserved`, then on what this process may open itself.
    ///
    /// # Errors
    /// Any [`LoopError`] but those of the card.
    pub fn new(
        card: RadioCard,
        options: &RadioOptions,
        outfit: Outfit,
        desk: &Desk,
        replies: Mailbox<Command>,
    ) -> Result<Self, LoopError> {
        let Outfit { further, reserved, written, memory } = outfit;
        be_punctual();
        let address = card.address().ok_or(TransferError::Gone)?;
        let is_wanted = |channel: &Channel| {
            let named = |number| options.channels.contains(&number);
            options.channels.is_empty() || channel.frequency.channel().is_some_and(named)
        };
        let listens = card.channels().iter().filter(|channel| channel.may_listen() && is_wanted(channel));
        let channels = listens
            .map(|channel| PermittedChannel { frequency: channel.frequency, active: channel.may_send() })
            .collect();
        let seed = dataplane::seed().map_err(LoopError::Randomness)?;
        let mut randomness = StdRng::from_seed(seed);
        let settings = StationSettings {
            address,
            further,
            channels,
            slots: options.slots,
            scan_weight: options.scan_weight,
        };
        let poller = Poller::new()?;
        poller.add(&card, CARD, Interest::Readable)?;
        Ok(Self {
            card,
            station: Station::new(settings, StdRng::from_rng(&mut randomness)),
            attached: BTreeMap::new(),
            poller,
            capture: written.capture,
            pending: None,
            waits_for_room: false,
            switches: Switches::new(written.trace),
            channel_cost: options.channel_cost,
            reported: clock::now(),
            randomness,
            reserved,
            next_number: 1,
            events: Arc::clone(&desk.events),
            lost: None,
            trouble: None,
            scans: Vec::new(),
            root: Arc::clone(&desk.root),
            handoff: options
                .soft_handoff
                .then(|| SoftHandoff::new(options.slots, options.probe.clone(), options.mark, replies)),
            points: Points::default(),
            memory,
            names_due: clock::now(),
        })
    }
}

impl Keeper for RadioLoop {
    fn networks(&self) -> Vec<(NetworkId, KnownNetwork)> {
        self.attached.iter().map(|(id, attached)| (*id, attached.known.clone())).collect()
    }

    fn join(&mut self, now: Timestamp, known: KnownNetwork) -> Result<(), LoopError> {
        if known.login.is_some() {
            let text = "needs a login (802.1X), which this card, whose time this program shares out, cannot give: see \"anabranch radio probe\"";
            self.events.push(EventKind::Warning, Some(&known.ssid), text);
            return Ok(());
        }
        let (name, settings) = (known.interface_name()?, known.settings()?);
        let id = NetworkId(self.next_number);
        self.next_number += 1;
        self.station.add_network(now, id, settings);
        let address = self.station.address_in(id);
        // A device serves one interface; those that root opened may be used up by networks that came and went.
        let reserved = self.reserved.pop().map_or_else(Reserved::open, Ok)?;
        let alias = Some(SHARED_RADIO);
        let tap =
            Tap::create_on(reserved, &TapOptions { name, address, mtu: MTU, queue: INTERFACE_QUEUE, alias })?;
        self.poller.add(&tap, Token(FIRST_INTERFACE + u64::from(id.0)), Interest::Readable)?;
        let own = known.own_address()?;
        let asks = own.is_none() && known.ad_hoc_channel.is_none();
        let lease = asks.then(|| LeaseClient::new(now, address, self.randomness.random()));
        let mut address = NetworkAddress::new(id);
        address.set_passes(tap.index(), false)?;
        if self.handoff.as_ref().is_some_and(|handoff| handoff.primary().is_some()) {
            address.set_primary(tap.index(), false)?;
        }
        if let Some(own) = own {
            let own = Lease { address: own, gateway: None, servers: ArrayVec::new() };
            address.apply(&known.ssid, tap.index(), LeaseChange::Lent(own))?;
        }
        self.attached.insert(id, Attached { known, tap, lease, address, trouble: None });
        if let Some(handoff) = &self.handoff {
            handoff.share_out(&mut self.station);
        }
        Ok(())
    }

    fn leave(&mut self, now: Timestamp, id: NetworkId) {
        self.station.remove_network(now, id);
        if let Some(attached) = self.attached.remove(&id) {
            self.memory.forget(&attached.known);
        }
        self.names_due = now;
        if let Some(handoff) = &mut self.handoff {
            handoff.share_out(&mut self.station);
            handoff.hurry();
        }
    }

    fn set_weight(&mut self, id: NetworkId, weight: u16) {
        self.station.set_weight(id, weight);
        if let Some(attached) = self.attached.get_mut(&id) {
            attached.known.weight = weight;
        }
        if let Some(handoff) = &self.handoff {
            handoff.share_out(&mut self.station);
        }
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn handle(&mut self, token: Token) -> Result<(), LoopError> {
        match token {
            // What it still has to say is of no use: it is looked at again in a while.
            CARD if self.lost.is_some() => {
                drop(self.card.receive(|_| {}));
                Ok(())
            }
            CARD => {
                let heard = self.hear();
                self.survive(heard)
            }
            Token(number) => {
                self.read_interface(number);
                Ok(())
            }
        }
    }

    fn work(&mut self) -> Result<Option<Timestamp>, LoopError> {
        let now = clock::now();
        self.look_for_card(now)?;
        if self.station.poll_timeout(now).is_some_and(|due| due <= now) {
            self.station.handle_timeout(now);
        }
        self.report(now);
        let drained = self.drain();
        self.survive(drained)?;
        let now = clock::now();
        self.drive_handoff(now);
        if self.points.is_due(now) {
            let known = |network| {
                let attached = self.attached.get(&network)?;
                Some((attached.known.ssid.clone(), self.points.reaches(now, attached.tap.name())))
            };
            let joined = access_points::joined(now, &self.station, known);
            self.points.decide(now, &joined, &self.events);
            // The primary has its part of the radio however little it carries.
            let primary = self.handoff.as_ref().and_then(SoftHandoff::primary);
            self.points.standing_by().for_each(|(network, stands_by)| {
                self.station.set_standby(network, stands_by && Some(network) != primary);
            });
        }
        self.tell_names(now);
        self.answer_scans();
        // A hand-off may have wished something.
        let drained = self.drain();
        self.survive(drained)?;
        Ok(self.timeout(clock::now()))
    }

    fn status(&self, now: Timestamp) -> RadioStatus {
        let statuses: Vec<NetworkStatus> = self.station.networks().collect();
        let networks = statuses.iter().filter_map(|status| {
            let attached = self.attached.get(&status.network)?;
            let report = control::network_report(status, &attached.known, attached.tap.name());
            let addresses: Vec<IpAddr> =
                attached.address.lent().iter().map(|lease| lease.address.address()).collect();
            let known = control::Known {
                asks: attached.lease.is_some(),
                addresses,
                trouble: attached.trouble.clone(),
                missed_beacons: self.station.health(now, status.network).unwrap_or_default().missed_beacons,
                primary: self.handoff.as_ref().map(|handoff| handoff.primary() == Some(status.network)),
            };
            Some(control::complete(report, known))
        });
        RadioStatus {
            pid: std::os::unix::process::parent_id(),
            address: self.station.address().to_string(),
            channel: self.station.present_channel().and_then(Frequency::channel),
            trouble: self.trouble.clone(),
            networks: networks.collect(),
        }
    }

    fn access_points(&mut self, now: Timestamp) -> Vec<AccessPointReport> {
        access_points::reports(now, &self.station, &self.points, |network| {
            self.attached.get(&network).map(|attached| attached.tap.name().to_owned())
        })
    }

    fn slept(&mut self) {
        self.points.forget();
    }

    fn tell_unreached(&mut self, now: Timestamp, unreached: Unreached) {
        self.points.tell_unreached(now, unreached.interfaces);
    }

    fn scan(&mut self, now: Timestamp, reply: SyncSender<Vec<HeardNetwork>>) {
        self.scans.push(reply);
        self.station.request_scan(now);
    }

    fn found(&mut self, now: Timestamp, network: NetworkId, found: Beyond) {
        if let Some(handoff) = &mut self.handoff {
            handoff.found(now, network, found);
        }
    }

    /// As far as they are on this channel.
    fn end(&mut self) {
        let now = clock::now();
        let networks: Vec<NetworkId> = self.attached.keys().copied().collect();
        networks.into_iter().for_each(|id| self.station.remove_network(now, id));
        while let Some(transmission) = self.station.poll_transmit(now) {
            // The last words: what the card does not take is not said.
            drop(self.card.send(&transmission));
        }
    }
}

impl RadioLoop {
    fn timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let station = self.station.poll_timeout(now);
        let up: Vec<NetworkId> =
            self.station.networks().filter(|network| network.up).map(|network| network.network).collect();
        let points = self.points.timeout(up.len());
        let leases = self.attached.iter_mut().filter(|(id, _)| up.contains(id));
        let handoff = self.handoff.as_ref().map(SoftHandoff::timeout);
        let leases = leases.filter_map(|(_, attached)| attached.lease.as_mut()?.timeout(now));
        let card = self.lost.map(|(_, due)| due);
        leases.chain(station).chain(handoff).chain(card).chain(points).min()
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
                self.switches.add(&switch);
            }
            self.drive_leases(now);
            while let Some(transmission) = self.pending.take().or_else(|| self.station.poll_transmit(now)) {
                if !self.send(transmission)? {
                    return self.wait_for_room(true);
                }
            }
            if !self.station.wishes_tune() {
                return self.wait_for_room(false);
            }
        }
    }

    fn report(&mut self, now: Timestamp) {
        if now.since(self.reported) < REPORT_EVERY {
            return;
        }
        self.reported = now;
        info!("{}", self.switches.report());
    }
}
