//! The device: from its networks to any0.
//!
//! ```text
//! root:   lock, journal, any0 --fork--> supervisor: routes, rules, DNS on request; undoes all at the end
//! worker: watcher thread (signals, netlink, names)  --commands-->  loop thread (packets)  --events--> log
//!         control thread (control.sock)             --commands-->
//! ```

mod advice;
mod backend;
mod direct;
mod event_loop;
mod gateways;
mod groups;
mod lookup;
mod machine;
mod messages;
mod nat64;
mod neighbours;
mod networks;
mod new_links;
mod open_sockets;
mod pace;
mod question;
mod report;
mod targets;
mod watcher;

use std::sync::Arc;

use bond::{Endpoint, EndpointConfig, PrivateKey, Scheduler, SessionConfig};
use identity::{InvitationKind, KeyError, KeyPair, Peer, Peers, PeersError, StateDirectory};
use linux::netlink::NetlinkError;
use linux::poll::Poller;
use linux::privileges::requirements::Purpose;
use linux::signals::EndSignals;
use linux::tun::{Reserved, Tun, TunError};
use policy::Treatment;
use thiserror::Error;
use tracing::{info, warn};
use wire::hello::{HelloError, Name};

use crate::config::{Config, DEFAULT_MTU, DIRECT_MTU, DeviceConfig, KeepAlive, NO_GATEWAY, SchedulerChoice};
use crate::control::{self, BusDoor, Callers, ControlServer, Doors, EventLog};
use crate::dataplane::{self, Carriers, FIRST_SOCKET_TOKEN, PacketThread, Plane};
use crate::mailbox::Mailbox;
use crate::supervision::{self, Root, StartError, SuperviseError};

use direct::name_proxy;

pub(crate) use direct::{ProbeOutcome, probe};
pub(crate) use identity::any0_address::may_be_v4;
pub(crate) use lookup::name_servers;

/// What a device needs to start.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceOptions {
    /// Where its key, its peers and its control socket are.
    pub state: StateDirectory,
    /// Its configuration.
    pub config: Config,
}

/// Why a device cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// Something is missing, another daemon runs, or a dead one's changes stay.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The chosen gateway is unknown.
    #[error(
        "device.gateway = \"{wanted}\" is not known here: join it, or name one of those that are known: {}",
        known.join(", ")
    )]
    UnknownGateway {
        /// The name in the configuration.
        wanted: String,
        /// The names of those that are known.
        known: Vec<String>,
    },
    /// Two devices with one mark would take each other's packets for their own.
    #[error(
        "another device or program on this machine uses the firewall mark {mark}, the routing table {table} or one of the 64 behind it: set \"interface\", \"mark\" and \"table\" under [device] in the configuration to others"
    )]
    MarkTaken {
        /// The configured mark.
        mark: u32,
        /// The configured table.
        table: u32,
    },
    /// The kernel does not tell which marks are in use.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel cannot lead flows out.
    #[error(transparent)]
    Direct(#[from] linux::direct::DirectError),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The known gateways.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The interface.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The worker process.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}

/// Runs a device until it is told to stop (control socket, SIGTERM, SIGINT), then takes back what it changed.
///
/// Splits the process: must be called before the process starts any thread.
///
/// # Errors
/// Any [`DeviceError`].
pub fn run(options: DeviceOptions) -> Result<(), DeviceError> {
    let DeviceOptions { state, config } = options;
    let gateways = gateways(&state, &config.device)?;
    let nftables = config.device.kill_switch || goes_directly(&gateways, &config.device);
    let (_lock, journal) = supervision::begin(&state, Purpose::Device { nftables })?;
    if goes_directly(&gateways, &config.device) {
        linux::direct::is_possible()?;
    }
    let key = KeyPair::load_or_create(&state)?;
    let mtu = config.device.mtu.unwrap_or(DEFAULT_MTU);
    if machine::routing(&config.device, 0).is_taken()? {
        return Err(DeviceError::MarkTaken { mark: config.device.mark, table: config.device.table });
    }
    let tun = Tun::create(&config.device.interface, mtu.into(), &[])?;
    let routing = machine::routing(&config.device, tun.index());

    let user = supervision::prepare(&state, &config.daemon.user)?;
    let opened = Opened {
        names: name_sockets(&config),
        sockets: open_sockets::OpenSockets::open(&config.device.interface),
        translators: direct::reserve(),
    };
    let work = move |root: Root| work(state, &config, key, gateways, tun, opened, root);
    supervision::supervise(user, work, || machine::DeviceMachine::new(journal, routing))?;
    Ok(())
}

/// Everything that [`run`] would change on the machine, a line each, without changing it.
///
/// # Errors
/// Any [`DeviceError`].
pub fn plan(options: &DeviceOptions) -> Result<Vec<String>, DeviceError> {
    let config = &options.config.device;
    let gateways = gateways(&options.state, config)?;
    let names: Vec<&str> = gateways.iter().map(|gateway| gateway.name.as_str()).collect();
    let names = names.join(" or ");
    let addresses = match gateways.is_empty() {
        false => format!("the addresses that {names} leases"),
        true => format!("the addresses {} and {}", config.address_v4, config.address_v6),
    };
    let mut lines = vec![format!("interface {} with {addresses}", config.interface)];
    let routing = machine::routing(config, 0);
    lines.extend(machine::changes(&routing, &[]).iter().map(ToString::to_string));
    if config.neighbours {
        lines.extend(machine::neighbour_routes(&routing).plan().iter().map(ToString::to_string));
    }
    lines
        .push("file /proc/sys/net/ipv4/conf/NETWORK/rp_filter = 2 for each network where it is 1".to_owned());
    // With a gateway too: rules, pins and held programs may come at any time.
    lines.extend(direct::plan(config));
    if config.dns && !gateways.is_empty() {
        let changes = linux::dns::plan(&config.interface, &[std::net::Ipv4Addr::UNSPECIFIED.into()], None);
        for change in changes.iter().map(ToString::to_string) {
            let what = change.split(':').next().unwrap_or_default();
            lines.push(format!("{what}, if {names} names DNS servers"));
        }
    }
    let own = ["key", "undo.json", "daemon.lock", anabranch::control::SOCKET_NAME];
    for name in own.into_iter().chain(config.record.as_deref()) {
        lines.push(format!("file {}", options.state.file(name).display()));
    }
    Ok(lines)
}

/// Whether flows leave directly unless a rule says otherwise.
fn goes_directly(gateways: &[Peer], config: &DeviceConfig) -> bool {
    gateways.is_empty() || config.default_treatment == Treatment::Direct
}

/// The gateways that may be used: all that are known, or the one that the configuration names; none for direct mode only.
fn gateways(state: &StateDirectory, config: &DeviceConfig) -> Result<Vec<Peer>, DeviceError> {
    let peers = Peers::load(state)?;
    let known: Vec<&Peer> = peers.of_kind(InvitationKind::Gateway).collect();
    match &config.gateway {
        Some(none) if none == NO_GATEWAY => Ok(Vec::new()),
        None => Ok(known.into_iter().cloned().collect()),
        Some(wanted) => match known.iter().find(|peer| peer.name == *wanted) {
            Some(peer) => Ok(vec![(*peer).clone()]),
            None => Err(DeviceError::UnknownGateway {
                wanted: wanted.clone(),
                known: known.iter().map(|peer| peer.name.clone()).collect(),
            }),
        },
    }
}

/// What was opened while the process was root.
struct Opened {
    names: Option<name_proxy::Sockets>,
    sockets: Option<open_sockets::OpenSockets>,
    /// For the interfaces of translators.
    translators: Vec<Reserved>,
}

/// The worker process, without root.
fn work(
    state: StateDirectory,
    config: &Config,
    key: KeyPair,
    gateways: Vec<Peer>,
    tun: Tun,
    opened: Opened,
    root: Root,
) -> Result<(), Box<dyn std::error::Error>> {
    let signals = EndSignals::catch()?;
    let root = Arc::new(root);
    let events = Arc::new(EventLog::default());
    let (commands, command_receiver, command_waker) = Mailbox::new(COMMANDS)?;
    let (tasks, task_receiver, task_waker) = Mailbox::new(TASKS)?;
    let (choices, choice_receiver, choice_waker) = Mailbox::new(TASKS)?;
    let treatments_wanted = event_loop::Wanted::default();
    let reports = direct::Board::default();
    let cards = advice::Cards::default();
    let interface_index = tun.index();
    if config.device.kill_switch {
        root.ask(&supervision::Request::Capture { dns: Vec::new() })?;
    }

    let far = far_peers(config, &state, &key, &commands);
    let neighbourhood = config.device.neighbours.then(|| {
        let around = neighbours::Surroundings {
            state: state.clone(),
            key: key.clone(),
            interface_index,
            root: root.clone(),
            commands: commands.clone(),
            events: events.clone(),
            far,
        };
        neighbours::Neighbourhood::start(config, around)
    });
    let neighbourhood = neighbourhood.transpose()?;
    let neighbourly = neighbours::own_addresses(config, key.public());

    let endpoint = EndpointConfig {
        key: PrivateKey::new(*key.private_bytes()),
        session: session(&config.device),
        accept: false,
        retry_above: u32::MAX,
        aes: dataplane::has_aes(),
    };
    let endpoint = Endpoint::new(endpoint, dataplane::seed()?)?;
    let carriers = Carriers::new(FIRST_SOCKET_TOKEN, Some(config.device.mark));
    let plane = Plane::new(Poller::new()?, tun, carriers, endpoint, &command_waker)?.gathering();
    let name = config.daemon.name.clone().map_or_else(host_name, Ok)?;
    let has_gateway = !gateways.is_empty();
    let device = event_loop::DeviceLoop::new(
        plane,
        gateways,
        name,
        key.public().to_string(),
        event_loop::Wishes {
            mtu: config.device.mtu,
            treatment: dataplane::on_the_wire(config.device.default_treatment),
            learns: config.device.gateway.is_none(),
            treatments: treatments_wanted.clone(),
            openings: config.device.auto_direct,
            steering: config.device.steering,
            networks: networks::Networks::new(config),
            reports: reports.clone(),
            standing: standing_lease(&config.device),
            neighbours: neighbourhood.clone(),
            cards: cards.clone(),
        },
        tasks.clone(),
        choices.clone(),
        events.clone(),
    );
    advice::start(&state, cards.clone(), events.clone(), commands.clone());
    let ended = tasks.clone();
    let packets = PacketThread::start(
        move || device.run(&command_receiver, &command_waker),
        move |outcome| ended.insist(messages::Task::LoopEnded(outcome)),
    )?;

    let answers = choices.clone();
    let reply = move |answer| answers.post(direct::Message::Observed(answer));
    let observations =
        direct::Observations::new(config, state.clone(), events.clone(), reports, Arc::new(reply));
    let stage = config.device.record.as_ref().map(|_| direct::Stage::default());
    let direct = direct::DirectControl::new(
        config,
        has_gateway,
        treatments_wanted,
        root.clone(),
        events.clone(),
        observations,
        neighbourly.clone(),
    )
    .on_stage(stage.clone())
    .with_translators(opened.translators);
    std::thread::Builder::new()
        .name("choices".to_owned())
        .spawn(move || direct.run(&choice_receiver, &choice_waker))?;
    let recording = config.device.record.as_ref().zip(stage);
    let recorder = recording.map(|(name, stage)| {
        direct::Recorder::start(name, state.clone(), stage, root.clone(), events.clone())
    });
    let recorder = recorder.transpose()?;

    let upstream = opened.names.map(|sockets| -> std::io::Result<_> {
        let upstream = name_proxy::Upstream::default();
        let learn = direct::learner(direct::patterns(&config.rules), choices.clone());
        let handle = neighbourhood.clone();
        let local = move |question: &[u8]| {
            let handle = handle.as_ref()?;
            direct::peer_names::answer(question, |name| handle.addresses_of(name))
        };
        name_proxy::start(sockets, upstream.clone(), learn, Arc::new(local))?;
        Ok(upstream)
    });

    let backend = backend::DeviceBackend {
        commands: commands.clone(),
        choices: choices.clone(),
        sampler: Default::default(),
        pace: Default::default(),
        root: root.clone(),
        events: events.clone(),
        neighbours: neighbourhood,
        cards,
        neighbourly,
        state: state.clone(),
        key: key.public(),
    };
    let (open, sockets) = opened.sockets.map(|open| (open.control, open.sockets)).unzip();
    if let Some(sockets) = sockets {
        open_sockets::serve(sockets, choices.clone())?;
    }
    let callers = Callers::of_state(&state, None)?;
    let web = control::web::open(&state, config.daemon.web, &events);
    let doors = Doors { open, web, bus: BusDoor::of_device(config.daemon.dbus) };
    let control = ControlServer::start_with(doors, &state, callers, Arc::new(backend))?;
    let watcher = watcher::Watcher {
        state,
        own: key.public(),
        commands,
        choices,
        root,
        events,
        interface_index,
        mtu: config.device.mtu,
        dns: config.device.dns,
        names: upstream.transpose()?,
        mark: config.device.mark,
        resolving: Arc::default(),
        discovering: Arc::default(),
    };
    let outcome = watcher.run(&signals, &task_receiver, &task_waker);
    drop(control);
    if let Some(recorder) = recorder {
        recorder.finish();
    }
    packets.join()?;
    info!("stopped");
    Ok(outcome?)
}

/// What reaches peers beyond the links, if the configuration wants it.
fn far_peers(
    config: &Config,
    state: &StateDirectory,
    key: &KeyPair,
    commands: &Mailbox<messages::Command>,
) -> Option<neighbours::far::Far> {
    if !config.device.peers {
        return None;
    }
    let peers = Peers::load(state).unwrap_or_default();
    let addresses = neighbours::own_addresses(config, key.public());
    let started = neighbours::far::Far::start(key, addresses, &peers, commands.clone());
    started.inspect_err(|error| warn!("peers beyond the links are not reached: {error}")).ok()
}

/// The sockets of the server for names of this machine, if rules or peers need it.
fn name_sockets(config: &Config) -> Option<name_proxy::Sockets> {
    if direct::patterns(&config.rules).is_empty() && !config.device.peers {
        return None;
    }
    let opened = name_proxy::Sockets::open();
    opened
        .inspect_err(|error| {
            let address = name_proxy::ADDRESS;
            warn!(
                "rules by domain and names of peers do not work: cannot listen on {address} port 53: {error}"
            );
        })
        .ok()
}

/// What any0 has where no gateway leases addresses.
fn standing_lease(config: &DeviceConfig) -> messages::Lease {
    let addresses = [config.address_v4.into(), config.address_v6.into()];
    messages::Lease {
        addresses: addresses.map(linux::prefix::IpPrefix::host).into(),
        mtu: DIRECT_MTU,
        dns: Vec::new(),
    }
}

fn session(config: &DeviceConfig) -> SessionConfig {
    SessionConfig {
        scheduler: match config.scheduler {
            SchedulerChoice::EarliestArrival => Scheduler::EarliestArrival,
            SchedulerChoice::MinimumRtt => Scheduler::MinimumRtt,
            SchedulerChoice::InverseRtt => Scheduler::InverseRtt,
            SchedulerChoice::Duplicated => Scheduler::Duplicated,
        },
        congestion: config.congestion.algorithm(),
        treatment: config.default_treatment,
        keep_alive: match config.keep_alive {
            KeepAlive::Auto => SessionConfig::default().keep_alive,
            KeepAlive::Off => NEVER,
            KeepAlive::Every(interval) => interval,
        },
    }
}

/// The host's name, or "device" if it has none that can be told.
///
/// # Errors
/// Never: "device" is a name.
pub(crate) fn host_name() -> Result<Name, HelloError> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Name::new(text.trim()).or_else(|_| Name::new("device"))
}

/// Longer than any session.
const NEVER: std::time::Duration = std::time::Duration::from_secs(365 * 86_400);
const COMMANDS: usize = 256;
const TASKS: usize = 256;
