//! Devices on shared links whose keys are known: found, measured, and reached between any0 addresses over the best link.
//!
//! ```text
//! beacon heard, or due --> hello (sealed) <--> hello that echoes it --> policy::neighbours --> host route in the kernel
//! broadcast on any0 (from the packet thread) --> sealed copies over every link --> any0 there, once
//! ```
//!
//! A thread of its own, which no packet waits for; it ends with the process. What is believed is in [`contact`], what is sealed in
//! [`seal`], the sockets are in [`links`].

mod broadcast;
mod contact;
pub mod far;
mod hearing;
mod known;
mod links;
mod pace;
mod report;
mod routes;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use anabranch::control::NeighbourReport;
use identity::{InvitationKind, KeyPair, Peers, PublicKey, StateDirectory, any0_address};
use linux::clock;
use linux::monitor::Monitor;
use linux::neighbour_routes::{self, NeighbourRoutes};
use linux::netlink::Netlink;
use linux::poll::{Interest, Poller, Token, Waker};
use linux::prefix::IpPrefix;
use linux::traffic_tap::TrafficTap;
use policy::NetworkPreference;
use policy::neighbours::{NeighbourSettings, Neighbours, Ways};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tracing::{info, warn};
use units::{NetworkId, Timestamp};
use wire::inner::Headers;

use super::messages::Command;
use crate::config::Config;
use crate::control::EventLog;
use crate::mailbox::Mailbox;
use crate::supervision::{Request, Root};
use far::Far;
use known::Known;
use links::Links;
use routes::{FarRoutes, Routes};

pub use report::unmet;

/// To the thread.
#[derive(Debug)]
pub enum Message {
    /// How networks are preferred now, by name.
    Preferences(BTreeMap<String, NetworkPreference>),
    /// A program has sent this packet to everybody on any0.
    Broadcast(Vec<u8>),
    /// These keys are known now, by their names.
    Peers(Vec<(String, PublicKey)>),
    /// Who is where?
    Report(SyncSender<Vec<NeighbourReport>>),
}

/// What the other threads have of this one.
#[derive(Clone)]
pub struct Handle {
    mailbox: Mailbox<Message>,
    far: Option<Far>,
}

impl Handle {
    /// Takes a packet that a program has sent to any0, if it is for all neighbours, or for a peer whom no link leads to.
    pub fn take(&self, headers: &Headers, packet: &[u8]) -> bool {
        let is_for_all = broadcast::is_for_all(headers);
        if !is_for_all && self.far.as_ref().is_some_and(|far| far.take(headers, packet)) {
            return true;
        }
        if is_for_all && packet.len() <= LONGEST_BROADCAST {
            // Where the thread has more to do than it can, broadcasts are lost as on any link.
            self.mailbox.post(Message::Broadcast(packet.to_vec()));
        }
        is_for_all
    }

    /// Tells how networks are preferred now.
    pub fn prefer(&self, preferences: BTreeMap<String, NetworkPreference>) {
        self.mailbox.post(Message::Preferences(preferences));
    }

    /// Tells whose keys are known now.
    pub fn know(&self, peers: &Peers) {
        if let Some(far) = &self.far {
            far.know(peers);
        }
        self.mailbox.post(Message::Peers(known_peers(peers)));
    }

    /// The any0 addresses of the known peer of that name.
    pub fn addresses_of(&self, name: &str) -> Option<Vec<IpAddr>> {
        self.far.as_ref()?.addresses_of(name)
    }

    /// Who is where now; `None` if the thread does not answer.
    pub fn report(&self) -> Option<Vec<NeighbourReport>> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.mailbox.post(Message::Report(reply));
        answer.recv_timeout(PATIENCE).ok()
    }
}

/// The any0 addresses that neighbours know this device by.
pub fn own_addresses(config: &Config, key: PublicKey) -> Vec<IpAddr> {
    if !config.device.neighbours {
        return Vec::new();
    }
    let v4 = config.device.neighbour_address.unwrap_or_else(|| any0_address::v4_of(key));
    vec![any0_address::v6_of(key).into(), v4.into()]
}

/// What [`Neighbourhood::start`] needs of the daemon.
pub struct Surroundings {
    /// Where the known keys are.
    pub state: StateDirectory,
    /// Our own key.
    pub key: KeyPair,
    /// Number of any0.
    pub interface_index: u32,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// The packet thread.
    pub commands: Mailbox<Command>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// Reaches those whom no link leads to.
    pub far: Option<Far>,
}

/// The thread's state.
pub struct Neighbourhood {
    around: Surroundings,
    any0: String,
    own_v6: Ipv6Addr,
    /// `None` once another device turned out to have it.
    own_v4: Option<Ipv4Addr>,
    /// Of this run, and the next number of it.
    epoch: u64,
    number: u64,
    /// The next number of a broadcast.
    broadcasts: u64,
    random: StdRng,
    poller: Poller,
    monitor: Monitor,
    links: Links,
    known: Vec<Known>,
    heard_from: BTreeMap<(NetworkId, IpAddr), usize>,
    settings: NeighbourSettings,
    database: Neighbours,
    ways: Ways,
    routes: Routes,
    far_routes: FarRoutes,
    tap: Option<TrafficTap>,
    next_tick: Timestamp,
    next_look: Timestamp,
    budgets: pace::Budgets,
}

impl Neighbourhood {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses what it needs.
    pub fn start(config: &Config, around: Surroundings) -> io::Result<Handle> {
        let (mailbox, messages, waker) = Mailbox::new(MESSAGES)?;
        let seed = crate::dataplane::seed().map_err(io::Error::other)?;
        let far = around.far.clone();
        let this = Self::new(config, around, seed).map_err(io::Error::other)?;
        this.poller.add(&waker, WAKER, Interest::Readable)?;
        this.poller.add(&this.monitor, MONITOR, Interest::Readable)?;
        std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(move || this.run(&messages, &waker))?;
        Ok(Handle { mailbox, far })
    }

    fn new(
        config: &Config,
        around: Surroundings,
        seed: [u8; 32],
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let device = &config.device;
        around.root.ask(&Request::Neighbours)?;
        let table = NeighbourRoutes::table(device.table);
        let mut netlink = Netlink::open()?;
        let own = around.key.public();
        let addresses = own_addresses(config, own);
        let broadcast = Some(any0_address::BROADCAST_V4);
        neighbour_routes::settle(&mut netlink, around.interface_index, &addresses, broadcast, table)?;
        let own_v4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        let settings = NeighbourSettings { maxdiff: device.maxdiff, lifetime: LIFETIME, most: MOST_ENTRIES };
        let tap = TrafficTap::open(any0_address::PREFIX_V4, any0_address::PREFIX_V6);
        let mut random = StdRng::from_seed(seed);
        let peers = Peers::load(&around.state)?;
        let mut this = Self {
            any0: device.interface.clone(),
            own_v6: any0_address::v6_of(own),
            own_v4,
            epoch: random.random(),
            number: 0,
            broadcasts: 0,
            random,
            poller: Poller::new()?,
            monitor: Monitor::open()?,
            links: Links::new(device.interface.clone(), device.mark, config.networks.clone()),
            known: Vec::new(),
            heard_from: BTreeMap::new(),
            settings,
            database: Neighbours::new(settings),
            ways: Ways::default(),
            far_routes: FarRoutes::new(device.table, around.interface_index),
            routes: Routes::new(netlink, table),
            tap: tap
                .inspect_err(|error| info!("links to neighbours are looked at once a second only: {error}"))
                .ok(),
            next_tick: Timestamp::ZERO,
            next_look: Timestamp::ZERO,
            budgets: pace::Budgets::new(clock::now()),
            around,
        };
        this.let_in(&this.any0.clone());
        this.get_to_know(known_peers(&peers));
        Ok(this)
    }

    fn run(mut self, messages: &Receiver<Message>, waker: &Waker) {
        let mut ready = Vec::new();
        loop {
            let now = clock::now();
            self.advance(now);
            let timeout = clock::wait_until(clock::now(), self.due());
            if let Err(error) = self.poller.wait(timeout, &mut ready) {
                warn!("neighbours are not looked for any more: {error}");
                return;
            }
            for entry in &ready {
                match entry.token {
                    WAKER => {
                        waker.reset();
                        loop {
                            match messages.try_recv() {
                                Ok(message) => self.obey(message),
                                Err(TryRecvError::Empty) => break,
                                Err(TryRecvError::Disconnected) => return,
                            }
                        }
                    }
                    MONITOR => match self.monitor.read_events() {
                        Ok(events) if events.is_empty() => {}
                        Ok(_) => self.look(clock::now()),
                        Err(error) => warn!("the kernel's news about links cannot be read: {error}"),
                    },
                    token => self.receive(token),
                }
            }
        }
    }

    fn obey(&mut self, message: Message) {
        let now = clock::now();
        match message {
            Message::Preferences(preferences) => {
                self.links.prefer(preferences);
                self.look(now);
            }
            Message::Broadcast(packet) => self.spread(now, &packet),
            Message::Peers(peers) => self.get_to_know(peers),
            // The asker may have gone.
            Message::Report(reply) => drop(reply.try_send(self.report(now))),
        }
    }

    /// Looks which links there are.
    fn look(&mut self, now: Timestamp) {
        let addresses = match self.routes.netlink().addresses() {
            Ok(addresses) => addresses,
            Err(error) => {
                self.next_look = now + LOOK_PAUSE;
                return warn!("the links' addresses cannot be read: {error}");
            }
        };
        let interfaces: Vec<_> = self.monitor.interfaces().cloned().collect();
        let (gone, fresh) = self.links.update(now, &interfaces, &addresses, &self.poller);
        self.next_look = now + if self.links.is_waiting(now) { QUICK_LOOK_PAUSE } else { LOOK_PAUSE };
        for network in gone {
            self.say_left(network);
            self.database.forget_network(network);
            self.heard_from.retain(|(link, _), _| *link != network);
            for known in &mut self.known {
                known.contact.forget(network);
            }
        }
        for name in fresh {
            self.let_in(&name);
        }
        self.choose_all(now);
    }

    /// Packets of neighbours arrive on any link, whichever is the best way back.
    fn let_in(&self, interface: &str) {
        let request = Request::LetIn { interface: interface.to_owned() };
        if let Err(error) = self.around.root.ask(&request) {
            warn!("packets of neighbours may be dropped on {interface}: {error}");
        }
    }

    fn choose_all(&mut self, now: Timestamp) {
        for at in 0..self.known.len() {
            self.choose(now, at);
        }
    }

    /// Gives our IPv4 address up: a neighbour with a smaller key has it too.
    fn give_up_v4(&mut self, other: &str) {
        let Some(own) = self.own_v4.take() else { return };
        let text = format!(
            "{other} has the address {own} on any0 too and keeps it; set \"neighbour_address\" under [device] to another one, until then \
             neighbours reach this device by IPv6 only"
        );
        self.around.events.push(anabranch::control::EventKind::Warning, None, text);
        let index = self.around.interface_index;
        if let Err(error) = self.routes.netlink().delete_address(index, IpPrefix::host(own.into())) {
            warn!("{error}");
        }
        self.routes.retain(IpAddr::is_ipv6);
        self.lead_far();
    }
}

/// Those who are no gateways: they speak for themselves.
fn known_peers(peers: &Peers) -> Vec<(String, PublicKey)> {
    peers.of_kind(InvitationKind::Peer).map(|peer| (peer.name.clone(), peer.public_key)).collect()
}

/// A neighbour that said nothing on a link for so long is not there any more; questions are a second apart.
const LIFETIME: Duration = Duration::from_secs(15);
/// More than two addresses for each known key.
const MOST_ENTRIES: u32 = 1_024;
/// What expires is looked for so often.
const TICK: Duration = Duration::from_secs(1);
/// Beacons at first, and the time between them; then the time between all others.
const QUICK_BEACONS: (u32, Duration) = (4, Duration::from_millis(250));
const IDLE_BEACONS: Duration = Duration::from_secs(2);
const WAKER: Token = Token(0);
const MONITOR: Token = Token(1);
const MESSAGES: usize = 256;
const PATIENCE: Duration = Duration::from_secs(5);
/// Link-local addresses are ready a second or two after their link, and nothing tells.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The same while one is known to be on its way.
const QUICK_LOOK_PAUSE: Duration = Duration::from_millis(100);
/// What fits a datagram on a link of 1,500 bytes.
const LONGEST_BROADCAST: usize = 1_380;
