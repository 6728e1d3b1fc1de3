//! All that is known about networks beside their being there: what the policy judges them by.
//!
//! Owned by the thread of direct mode, which calls [`Observations::advance`] when [`Observations::due`] says so. Questions to
//! servers and programs are asked in threads of their own that end with their answer, at most one for each network and one
//! for programs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch::control::{CellularReport, DirectReport, EventKind, Fraction};
use identity::StateDirectory;
use linux::desktop::{self, DesktopError, Metered, Modem};
use policy::Table;
use policy::energy::Card;
use policy::network::{NetworkInput, NetworkKind, PowerSupply, Reach};
use rand::TryRngCore;
use tracing::debug;
use units::{NetworkId, Timestamp};

use super::caps::Caps;
use super::links::Links;
use super::plan::Numbers;
use super::probe::{self, Way};
use super::reach::{Horizon, Outcome, Pause};
use super::sampler::{PassiveSampler, Scene};
use crate::config::Config;
use crate::control::EventLog;
use crate::device::networks::{Network, reaches};

/// What the report of each network says of direct mode; written here, read by the loop.
pub type Board = Arc<Mutex<BTreeMap<NetworkId, DirectReport>>>;

/// What a thread that asked has to tell.
#[derive(Debug)]
pub enum Answer {
    /// A server was asked over a network, as it was in this generation.
    Probed(NetworkId, u32, Outcome),
    /// What NetworkManager holds for metered, by interface.
    Metered(Result<BTreeMap<String, Metered>, DesktopError>),
    /// What ModemManager knows of modems.
    Modems(Result<Vec<Modem>, DesktopError>),
}

/// How answers come back. False if they cannot.
pub type Reply = Arc<dyn Fn(Answer) -> bool + Send + Sync>;

/// See the module.
pub struct Observations {
    config: Config,
    own_mark: u32,
    events: Arc<EventLog>,
    board: Board,
    reply: Reply,
    sampler: PassiveSampler,
    links: Links,
    caps: Caps,
    horizons: BTreeMap<NetworkId, Ahead>,
    metered: BTreeMap<String, Metered>,
    metered_due: Option<Timestamp>,
    /// By interface.
    modems: BTreeMap<String, CellularReport>,
    modems_due: Option<Timestamp>,
    complained: bool,
}

/// A network's horizon with the state of the network that it was seen from.
struct Ahead {
    generation: u32,
    seen_from: Vantage,
    horizon: Horizon,
}

/// What makes a network another one: its interface, addresses and next hops.
#[derive(Clone, PartialEq, Eq)]
struct Vantage(linux::monitor::Interface);

impl Observations {
    /// Knows nothing yet but what data caps had counted.
    pub fn new(
        config: &Config,
        state: StateDirectory,
        events: Arc<EventLog>,
        board: Board,
        reply: Reply,
    ) -> Self {
        Self {
            config: config.clone(),
            own_mark: config.device.mark,
            events,
            board,
            reply,
            sampler: PassiveSampler::default(),
            links: Links::default(),
            caps: Caps::load(config, state),
            horizons: BTreeMap::new(),
            metered: BTreeMap::new(),
            metered_due: Some(Timestamp::ZERO),
            modems: BTreeMap::new(),
            modems_due: Some(Timestamp::ZERO),
            complained: false,
        }
    }

    /// When to call [`Self::advance`] next.
    pub fn due(&self) -> Timestamp {
        let horizons = self.horizons.values().filter_map(|ahead| ahead.horizon.due());
        let probes = horizons.filter(|_| !self.config.device.probe.is_empty());
        let [samples, links] = [self.sampler.due(), self.links.due()].map(Some);
        let others = [samples, links, self.caps.due(), self.metered_due, self.modems_due];
        others.into_iter().flatten().chain(probes).min().unwrap_or(Timestamp::FAR_FUTURE)
    }

    /// The networks are these now. Those that are elsewhere are measured anew.
    pub fn on_networks(&mut self, now: Timestamp, networks: &[Network]) {
        self.links.hurry();
        let connected = || networks.iter().filter(|network| network.connected);
        self.horizons.retain(|id, _| connected().any(|network| network.id == *id));
        for network in connected() {
            let seen_from = Vantage(network.interface.clone());
            let before = self.horizons.get(&network.id);
            if before.is_some_and(|ahead| ahead.seen_from == seen_from) {
                continue;
            }
            let generation = before.map_or(0, |ahead| ahead.generation.wrapping_add(1));
            self.sampler.forget(network.id);
            let horizon = Horizon::new(now, jitter());
            self.horizons.insert(network.id, Ahead { generation, seen_from, horizon });
        }
    }

    /// Does what is due. `forwarding` as in [`Scene`].
    pub fn advance(
        &mut self,
        now: Timestamp,
        networks: &[Network],
        numbers: &Numbers,
        forwarding: Option<&[IpAddr]>,
    ) {
        let scene = Scene { networks, numbers, own_mark: self.own_mark, forwarding };
        match self.sampler.sample(now, &scene) {
            Err(error) if !self.complained => {
                self.complained = true;
                let text = format!("networks are not measured: {error}");
                self.events.push(EventKind::Warning, None, text);
            }
            _ => {}
        }
        self.links.look(now, networks);
        if self.caps.count(now, networks) {
            self.tell_caps(networks);
        }
        if !self.config.device.probe.is_empty() {
            networks.iter().filter(|network| network.connected).for_each(|network| self.probe(now, network));
        }
        if self.metered_due.is_some_and(|due| now >= due) {
            self.metered_due = Some(now + METERED_INTERVAL);
            let reply = self.reply.clone();
            ask_aside("metered", move || reply(Answer::Metered(desktop::metered())));
        }
        if self.modems_due.is_some_and(|due| now >= due) {
            self.modems_due =
                Some(now + if self.modems.is_empty() { MODEMS_INTERVAL } else { SIGNAL_INTERVAL });
            let reply = self.reply.clone();
            ask_aside("modems", move || reply(Answer::Modems(desktop::modems())));
        }
    }

    /// Takes an answer in.
    pub fn hear(&mut self, now: Timestamp, answer: Answer, networks: &[Network]) {
        match answer {
            Answer::Probed(id, generation, outcome) => {
                let Some(network) = networks.iter().find(|network| network.id == id) else { return };
                let pause = Pause { jitter: jitter(), metered: self.is_metered(network) };
                let ahead = self.horizons.get_mut(&id).filter(|ahead| ahead.generation == generation);
                let Some(ahead) = ahead else { return };
                if let Outcome::Internet(rtt) = outcome {
                    self.sampler.meter(id).on_probe(rtt);
                    self.sampler.on_answer(id);
                }
                if ahead.horizon.on_outcome(now, outcome, pause) {
                    self.tell_reach(network);
                }
            }
            Answer::Metered(Ok(metered)) => self.metered = metered,
            Answer::Metered(Err(DesktopError::Missing(program))) => {
                debug!("{program} is not there: networks are metered if the configuration says so");
                self.metered_due = None;
            }
            Answer::Modems(Ok(modems)) => {
                if self.modems.is_empty() && !modems.is_empty() {
                    self.modems_due = Some(now + SIGNAL_INTERVAL);
                }
                self.modems = modems.into_iter().flat_map(by_interface).collect();
            }
            Answer::Modems(Err(DesktopError::Missing(program))) => {
                debug!(
                    "{program} is not there: nothing is known of mobile networks but what their links show"
                );
                self.modems_due = None;
            }
            Answer::Modems(Err(error)) => {
                debug!("{error}");
                // A program that is slow once does not make a network free of charge.
                self.modems.values_mut().for_each(|modem| modem.signal_percent = None);
            }
            Answer::Metered(Err(error)) => debug!("{error}"),
        }
    }

    /// What the policy is told about a network.
    pub fn input(&mut self, network: &Network) -> NetworkInput {
        let name = network.interface.name.clone();
        let (facts, settings) = (self.links.of(network.id), self.config.network(&name));
        let mut preference = network.preference;
        preference.metered = self.is_metered(network);
        NetworkInput {
            kind: if self.modems.contains_key(&name) { NetworkKind::Cellular } else { facts.kind },
            preference,
            up: network.connected,
            reach: self.reach_of(network.id),
            metrics: self.sampler.meter(network.id).metrics(facts.nominal),
            power: settings.card.and_then(Card::by_name).map(|card| card.model),
            price: settings.price,
            cap: self.caps.report(&name),
            ..NetworkInput::new(network.id, name)
        }
    }

    /// Whether more than a trickle goes over the networks.
    pub fn moves(&self) -> bool {
        self.sampler.moves()
    }

    /// Where the device's power comes from.
    pub fn power(&self) -> PowerSupply {
        self.links.power()
    }

    /// Puts up what came of `inputs`, for the reports.
    pub fn publish(&self, inputs: &[NetworkInput], table: &Table) {
        let reports = inputs.iter().filter_map(|input| {
            let entry = table.get(input.id)?;
            let ahead = self.horizons.get(&input.id);
            let report = DirectReport {
                share: Fraction(entry.share.part()),
                why: entry.reason.to_string(),
                kind: input.kind,
                reach: input.reach,
                rtt: input.metrics.rtt.map(|rtt| rtt.smoothed.into()),
                delivered: input.metrics.delivered,
                load: input.metrics.load,
                bulk_flows: input.metrics.bulk_flows,
                loss: Fraction(input.metrics.loss.part()),
                portal: ahead.and_then(|ahead| ahead.horizon.portal()).map(str::to_owned),
                wifi: self.links.of(input.id).wifi,
                cellular: self.modems.get(&input.name).cloned(),
                cap: input.cap,
            };
            Some((input.id, report))
        });
        *self.board.lock().unwrap_or_else(PoisonError::into_inner) = reports.collect();
    }

    /// A modem's network is metered where NetworkManager says nothing of it, as that would guess too, and abroad in any case.
    fn is_metered(&self, network: &Network) -> bool {
        let name = &network.interface.name;
        let known = match (self.metered.get(name), self.modems.get(name)) {
            (Some(hint), modem) => hint.is_metered() || modem.is_some_and(|modem| modem.roaming),
            (None, modem) => modem.is_some(),
        };
        network.preference.metered || known
    }

    fn probe(&mut self, now: Timestamp, network: &Network) {
        let pause = Pause { jitter: jitter(), metered: self.is_metered(network) };
        let Some(ahead) = self.horizons.get_mut(&network.id) else { return };
        if self.sampler.is_silent(network.id, now) {
            ahead.horizon.doubt(now);
        }
        let in_doubt = ahead.horizon.is_in_doubt();
        let lately = if in_doubt || ahead.horizon.has_failed() { MOVED_JUST_NOW } else { MOVED_LATELY };
        let moved = self.sampler.has_moved(network.id, now, lately);
        if !ahead.horizon.ask(now, moved, pause) {
            return;
        }
        let rtt = self.sampler.meter(network.id).metrics(None).rtt;
        let limit = rtt.map_or(SOONEST, |rtt| rtt.smoothed * ROUND_TRIPS).clamp(SOONEST, LATEST);
        let interface = &network.interface;
        let way = Way {
            interface: interface.name.clone(),
            mark: self.own_mark,
            v4: reaches(interface, false),
            v6: reaches(interface, true),
        };
        let (id, generation) = (network.id, ahead.generation);
        let (targets, reply) = (self.config.device.probe.clone(), self.reply.clone());
        let ask = move || {
            if in_doubt { probe::ask_soon(&way, &targets, limit) } else { probe::ask(&way, &targets) }
        };
        let asked = ask_aside("probe", move || reply(Answer::Probed(id, generation, ask())));
        if !asked {
            ahead.horizon.on_outcome(now, Outcome::Nothing, pause);
        }
    }

    /// Something else than flows gives reason to ask over a network.
    pub fn doubt(&mut self, now: Timestamp, network: NetworkId) {
        if let Some(ahead) = self.horizons.get_mut(&network) {
            ahead.horizon.doubt(now);
        }
    }

    /// Whether the network is dead though it is there: it has answered before, does not any more, and another one does.
    pub fn is_dead(&self, network: NetworkId) -> bool {
        let reach = |ahead: &Ahead| ahead.horizon.reach();
        let has_died = |ahead: &Ahead| ahead.horizon.has_answered() && reach(ahead) == Reach::Nothing;
        self.horizons.get(&network).is_some_and(has_died)
            && self.horizons.values().any(|ahead| reach(ahead) == Reach::Internet)
    }

    /// Where no question was answered on any network, it is the questions that lead nowhere: they may be blocked.
    fn reach_of(&self, network: NetworkId) -> Reach {
        let reach = self.horizons.get(&network).map_or(Reach::Unknown, |ahead| ahead.horizon.reach());
        let answered = self.horizons.values().any(|ahead| ahead.horizon.has_answered());
        if reach == Reach::Nothing && !answered { Reach::Unknown } else { reach }
    }

    fn tell_reach(&self, network: &Network) {
        let Some(ahead) = self.horizons.get(&network.id) else { return };
        let name = &network.interface.name;
        let text = match (self.reach_of(network.id), ahead.horizon.portal()) {
            (Reach::Captive, Some(page)) => {
                format!("{name} wants a login at {page}: no new flow takes it until then")
            }
            (Reach::Captive, None) => format!("{name} wants a login: no new flow takes it until then"),
            (Reach::Nothing, _) => {
                format!("nothing answers beyond {name}: no new flow takes it while another network is left")
            }
            (Reach::Internet, _) => format!("the Internet is reached over {name}"),
            (Reach::Unknown, _) => return,
        };
        self.events.push(EventKind::NetworkChanged, Some(name), text);
    }

    fn tell_caps(&self, networks: &[Network]) {
        for name in networks.iter().map(|network| &network.interface.name) {
            let Some(cap) = self.caps.report(name) else { continue };
            let text = match cap.effect {
                policy::network::CapEffect::None => continue,
                policy::network::CapEffect::Backup => "near its data cap: a backup from now on",
                policy::network::CapEffect::Off => "at its data cap: off until the next billing day",
            };
            self.events.push(EventKind::NetworkChanged, Some(name), format!("{name} is {text}"));
        }
    }
}

/// What is told of a modem, for each of its interfaces.
fn by_interface(modem: Modem) -> impl Iterator<Item = (String, CellularReport)> {
    let Modem { interfaces, signal_percent, technologies, operator, roaming } = modem;
    let report = CellularReport { operator, technologies, signal_percent, roaming };
    interfaces.into_iter().map(move |interface| (interface, report.clone()))
}

/// Runs `work` in a thread that ends with it. False if there is none to be had.
fn ask_aside(name: &str, work: impl FnOnce() -> bool + Send + 'static) -> bool {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if !work() {
            debug!("an answer came when nobody waited for it");
        }
    });
    spawned.is_ok()
}

/// 0 to 1. Without randomness devices ask in step, which is all that it is against.
fn jitter() -> f64 {
    rand::rngs::OsRng.try_next_u32().map_or(0.5, |drawn| f64::from(drawn) / f64::from(u32::MAX))
}

/// Bytes that moved since then show that a network works.
const MOVED_LATELY: Duration = Duration::from_secs(30);
/// The same while it is in doubt that it works still, and after a failure: what moved before tells nothing of now.
const MOVED_JUST_NOW: Duration = Duration::from_millis(1_500);
/// How long an answer may take then: a name, a connection and a page, with room to spare.
const ROUND_TRIPS: u32 = 6;
const SOONEST: Duration = Duration::from_millis(1_500);
const LATEST: Duration = Duration::from_secs(3);
const METERED_INTERVAL: Duration = Duration::from_secs(300);
/// How often it is looked whether there is a modem, and how its signal is.
const MODEMS_INTERVAL: Duration = Duration::from_secs(60);
const SIGNAL_INTERVAL: Duration = Duration::from_secs(30);
