//! The gateway: from its clients to the Internet.
//!
//! ```text
//! root:   lock, journal, interface, NAT --fork--> supervisor: undoes all at the end
//! worker: watcher thread (signals, registry)  --commands-->  loop threads (packets)  --events--> log
//!         control thread (control.sock)       --commands-->  one for each part
//! ```

mod admission;
mod backend;
mod clients;
mod event_loop;
mod live;
mod messages;
mod parts;
mod renewal;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::control::EventKind;
use bond::{Endpoint, EndpointConfig, PrivateKey, SessionConfig};
use identity::{KeyError, KeyPair, OpenError, Pools, Registry, RegistryError, StateDirectory};
use linux::firewall::{self, ClosedChain};
use linux::handover::Handover;
use linux::journal::{ApplyError, Journal, JournalError};
use linux::nat::{Nat, NftError};
use linux::poll::{Interest, Poller, Ready, Token, Waker};
use linux::prefix::IpPrefix;
use linux::privileges::User;
use linux::privileges::requirements::Purpose;
use linux::signals::EndSignals;
use linux::tun::{Tun, TunError};
use thiserror::Error;
use tracing::{info, warn};
use units::Bytes;
use wire::datagram::Part;

use crate::config::{Config, GatewayConfig};
use crate::control::{self, BusDoor, Callers, ControlServer, Doors, EventLog};
use crate::dataplane::{self, CarrierError, Carriers, FIRST_SOCKET_TOKEN, PacketThread, Plane};
use crate::device::host_name;
use crate::mailbox::Mailbox;
use crate::supervision::{self, Answer, Machine, Request, Root, StartError, SuperviseError};

use admission::{ClientRegistry, StoredRegistry};
use event_loop::GatewayLoop;
use live::LiveConfig;
use messages::{Command, Task};
use parts::{Parts, Places};
use renewal::Listening;

pub use renewal::Renewal;

/// What a gateway needs to start.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayOptions {
    /// Where its key, its registry and its control socket are.
    pub state: StateDirectory,
    /// Its configuration.
    pub config: Config,
    /// The file that it was read from, if one was named.
    pub named: Option<PathBuf>,
    /// How it becomes the program that is installed in its place; `None` if it cannot.
    pub renewal: Option<Renewal>,
}

/// Why a gateway cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// Something is missing, another daemon runs, or a dead one's changes stay.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The undo journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The registry cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The interface.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Forwarding and translation.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A socket that a listener needs.
    #[error(transparent)]
    Listen(#[from] CarrierError),
    /// The descriptors for the program that goes on after this one.
    #[error("the sockets cannot be kept for an update: {0}")]
    HandOver(std::io::Error),
    /// The rules of the translation.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// The kernel's settings.
    #[error("the kernel's settings cannot be read: {0}")]
    Settings(std::io::Error),
    /// The worker process.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}

/// Runs a gateway until it is told to stop (control socket, SIGTERM, SIGINT), then takes back what it changed.
///
/// Splits the process: must be called before the process starts any thread.
///
/// # Errors
/// Any [`GatewayError`].
pub fn run(options: GatewayOptions) -> Result<(), GatewayError> {
    let GatewayOptions { state, config, named, renewal } = options;
    let mut received = Handover::received();
    let goes_on = received.is_some();
    let (lock, mut journal) = match &mut received {
        Some(received) => supervision::go_on(&state, Purpose::Gateway, received.take(LOCK))?,
        None => supervision::begin(&state, Purpose::Gateway)?,
    };
    let started = match prepare(&state, &config, received, &mut journal) {
        Err(error) if goes_on => {
            journal.restore()?;
            return Err(error);
        }
        other => other?,
    };
    let Started { key, nat, queues, listening, mut handover, user } = started;
    handover.add(LOCK.to_owned(), lock.as_fd()).map_err(GatewayError::HandOver)?;
    let warnings = closed_firewalls(&config.gateway.interface);
    let live = LiveConfig::new(config, named, state.clone());
    let work = move |root: Root| work(state, live, key, nat, queues, listening, root, &warnings);
    let machine = || GatewayMachine { journal, renewal, handover, is_renewed: false };
    supervision::supervise(user, work, machine)?;
    Ok(())
}

/// The lock of the state directory among what is handed over: it is never free meanwhile.
const LOCK: &str = "lock";

/// What there is before the process splits.
struct Started {
    key: KeyPair,
    nat: Nat,
    queues: Vec<Tun>,
    listening: Listening,
    /// Duplicates, for the program that goes on after this one.
    handover: Handover,
    user: User,
}

fn prepare(
    state: &StateDirectory,
    config: &Config,
    received: Option<Handover>,
    journal: &mut Journal,
) -> Result<Started, GatewayError> {
    if let Err(error) = linux::descriptors::raise_limit() {
        warn!("no more connections than usual: {error}");
    }
    let mut received = received.unwrap_or_default();
    let gateway = &config.gateway;
    let mut registry = open_registry(gateway, state)?;
    let pools = registry.pools();
    let key = KeyPair::load_or_create(state)?;
    let nat = Nat { forwards: backend::port_forwards(&mut registry)?, ..nat(gateway, pools) };
    let parts = parts::count(gateway.threads);
    let (queues, is_known) = renewal::interface(gateway, &own_addresses(pools), parts, &mut received)?;
    // No connection to it must be carried over a fork.
    drop(registry);
    let listening = Listening::open(gateway, parts, &mut received)?;
    let mut handover = Handover::default();
    for queue in &queues {
        handover.add(renewal::tun_name(queue.name()), queue.as_fd()).map_err(GatewayError::HandOver)?;
    }
    listening.hand_over(&mut handover).map_err(GatewayError::HandOver)?;

    let user = supervision::prepare(state, &config.daemon.user)?;
    if is_known {
        // Without a moment in which packets are not translated.
        nat.reload()?;
    } else {
        // Of another interface than this one.
        journal.restore()?;
        let changes = nat.plan().map_err(GatewayError::Settings)?;
        if let Err(error) = journal.apply(&changes) {
            journal.restore()?;
            return Err(error.into());
        }
    }
    Ok(Started { key, nat, queues, listening, handover, user })
}

/// Everything that [`run`] would change on the machine, a line each, without changing it.
///
/// # Errors
/// Any [`GatewayError`].
pub fn plan(options: &GatewayOptions) -> Result<Vec<String>, GatewayError> {
    let config = &options.config.gateway;
    // The program that runs may be of an older version, and is to go on if this one could not start.
    let pools = Registry::inspect(config.registry_place(&options.state), config.pool_v4, config.pool_v6)?;
    let addresses: Vec<String> = own_addresses(pools).iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("interface {} with {}", config.interface, addresses.join(" "))];
    let changes = nat(config, pools).plan().map_err(GatewayError::Settings)?;
    lines.extend(changes.iter().map(ToString::to_string));
    lines.extend(config.listen.iter().map(|listen| format!("UDP port {listen}")));
    lines.extend(config.tcp.map(|port| format!("TCP port {port}")));
    for name in ["key", "gateway.sqlite", "undo.json", "daemon.lock", anabranch::control::SOCKET_NAME] {
        lines.push(format!("file {}", options.state.file(name).display()));
    }
    Ok(lines)
}

fn open_registry(config: &GatewayConfig, state: &StateDirectory) -> Result<Registry, OpenError> {
    Registry::open(config.registry_place(state), config.pool_v4, config.pool_v6)
}

fn nat(config: &GatewayConfig, pools: Pools) -> Nat {
    let (v4, v6) = (pools.v4.network(), pools.v6.network());
    let ranges = [IpPrefix::new(v4.address.into(), v4.prefix), IpPrefix::new(v6.address.into(), v6.prefix)];
    Nat {
        interface: config.interface.clone(),
        clients: ranges.into_iter().flatten().collect(),
        client_to_client: config.client_to_client,
        forwards: Vec::new(),
    }
}

/// The gateway's own addresses inside the clients' networks, whose prefixes lead them to the interface.
fn own_addresses(pools: Pools) -> Vec<IpPrefix> {
    let (v4, v6) = (pools.v4.gateway(), pools.v6.gateway());
    [IpPrefix::new(v4.address.into(), v4.prefix), IpPrefix::new(v6.address.into(), v6.prefix)]
        .into_iter()
        .flatten()
        .collect()
}

/// What to tell the user about other programs' firewalls. Ours cannot open them.
fn closed_firewalls(interface: &str) -> Vec<String> {
    let found = [
        firewall::closed_chains(interface).map_err(|error| error.to_string()),
        firewall::closed_legacy_chains(interface).map_err(|error| error.to_string()),
    ];
    let tell = |outcome| match outcome {
        Ok(closed) => Vec::into_iter(closed).map(tell_closed).collect(),
        Err(error) => {
            vec![format!("it is not known whether a firewall keeps clients from the Internet: {error}")]
        }
    };
    found.into_iter().flat_map(tell).collect()
}

fn tell_closed(closed: ClosedChain) -> String {
    format!(
        "the firewall chain \"{}\" drops what clients send to the Internet; let it through: {}",
        closed.chain, closed.remedy
    )
}

/// Root's part of a gateway.
struct GatewayMachine {
    journal: Journal,
    renewal: Option<Renewal>,
    handover: Handover,
    is_renewed: bool,
}

impl Machine for GatewayMachine {
    fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Restore => {
                self.is_renewed = false;
                supervision::restore(&mut self.journal)
            }
            Request::Renew => match self.renewal.as_ref().map(Renewal::check) {
                Some(Ok(())) => {
                    self.is_renewed = true;
                    Answer::Done
                }
                Some(Err(reason)) => Answer::Failed { reason },
                None => Answer::Failed { reason: "it is not known how this program is started".to_owned() },
            },
            _ => Answer::Failed { reason: "a gateway captures nothing".to_owned() },
        }
    }

    fn renew(&mut self) -> Option<io::Error> {
        let renewal = self.renewal.as_ref().filter(|_| self.is_renewed)?;
        Some(renewal.carry_out(&self.handover))
    }
}

/// The worker process, without root.
fn work(
    state: StateDirectory,
    live: LiveConfig,
    key: KeyPair,
    nat: Nat,
    queues: Vec<Tun>,
    mut listening: Listening,
    root: Root,
    warnings: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    let signals = EndSignals::catch()?;
    let root = Arc::new(root);
    let events = Arc::new(EventLog::default());
    for warning in warnings {
        events.push(EventKind::Warning, None, warning);
    }
    let boxes = queues.iter().map(|_| Mailbox::new(COMMANDS)).collect::<io::Result<Vec<_>>>()?;
    let parts = Parts::new(boxes.iter().map(|(commands, ..)| commands.clone()).collect());
    let (tasks, task_receiver, task_waker) = Mailbox::new(TASKS)?;
    let (config, live) = (live.get(), Arc::new(live));
    let gateway = &config.gateway;
    let open = || open_registry(gateway, &state);

    let registry = open()?;
    let addresses = own_addresses(registry.pools()).iter().map(|prefix| prefix.address()).collect();
    let host = match &config.daemon.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let mut registry = StoredRegistry::new(registry, live.clone(), host.clone(), key.public(), state.clone());
    let public = key.public().to_string();
    let mut status =
        event_loop::empty_status(host.to_string(), public, gateway.interface.clone(), gateway.mtu);
    if !warnings.is_empty() {
        status.why = format!("{}; but {}", status.why, warnings.join("; "));
    }
    status.addresses = addresses;
    let mut planes = Vec::new();
    let shares = Part::all(queues.len() as u32);
    for ((queue, part), (_, receiver, waker)) in queues.into_iter().zip(shares).zip(boxes) {
        let session =
            SessionConfig { congestion: gateway.congestion.algorithm(), ..SessionConfig::default() };
        planes.push((
            plane(&key, queue, part, session, &mut listening, &waker)?,
            part.number(),
            receiver,
            waker,
        ));
    }
    let places = Places::default();
    let mut threads = Vec::new();
    for (plane, part, receiver, waker) in planes {
        let (parts, places, events) = (parts.clone(), places.clone(), events.clone());
        let packets = GatewayLoop::new(plane, part, parts, places, tasks.clone(), events, status.clone());
        let ended = tasks.clone();
        threads.push(PacketThread::start(
            move || packets.run(&receiver, &waker),
            move |outcome| ended.insist(Task::LoopEnded(outcome)),
        )?);
    }

    let web = control::web::open(&state, config.daemon.web, &events);
    let ported = nat.clone();
    let backend = backend::GatewayBackend {
        parts: parts.clone(),
        root,
        events,
        registry: Mutex::new(open()?),
        live: live.clone(),
        public_key: key.public(),
        nat: Nat { forwards: Vec::new(), ..nat },
    };
    let doors = Doors { open: None, web, bus: BusDoor::of_gateway(config.daemon.dbus) };
    let control =
        ControlServer::start_with(doors, &state, Callers::of_state(&state, None)?, Arc::new(backend))?;
    info!("the gateway listens on {}", texts(&gateway.listen));
    let mut ports = Ports { nat: ported, live };
    let outcome = watch(&mut registry, &mut ports, &parts, &signals, &task_receiver, &task_waker);
    drop(control);
    threads.into_iter().try_for_each(PacketThread::join)?;
    info!("stopped");
    Ok(outcome?)
}

/// What moves the packets of one part.
fn plane(
    key: &KeyPair,
    queue: Tun,
    part: Part,
    session: SessionConfig,
    listening: &mut Listening,
    waker: &Waker,
) -> Result<Plane, Box<dyn std::error::Error>> {
    let endpoint = EndpointConfig {
        key: PrivateKey::new(*key.private_bytes()),
        session,
        accept: true,
        retry_above: RETRY_ABOVE / part.count() as u32,
        aes: dataplane::has_aes(),
    };
    let endpoint = Endpoint::new(endpoint, dataplane::seed()?)?.as_part(part);
    let poller = Poller::new()?;
    let mut carriers = Carriers::new(FIRST_SOCKET_TOKEN, None);
    carriers.set_part(part);
    listening.attach(&poller, &mut carriers)?;
    Ok(Plane::new(poller, queue, carriers, endpoint, waker)?)
}

fn texts(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// Keeps the forwarded ports as the registry has them: another gateway may have changed it.
struct Ports {
    /// As it was loaded last.
    nat: Nat,
    live: Arc<LiveConfig>,
}

impl Ports {
    fn follow(&mut self, registry: &mut dyn ClientRegistry) {
        let Some(forwards) = registry.forwards() else { return };
        let nat = backend::translation(&self.nat, &self.live, forwards);
        if nat == self.nat {
            return;
        }
        match nat.reload() {
            Ok(()) => self.nat = nat,
            Err(error) => warn!("forwarded ports stay as they were: {error}"),
        }
    }
}

/// The watcher thread's work, until all loops have ended.
fn watch(
    registry: &mut dyn ClientRegistry,
    ports: &mut Ports,
    parts: &Parts,
    signals: &EndSignals,
    tasks: &Receiver<Task>,
    waker: &Waker,
) -> Result<(), String> {
    let failed = |error| format!("cannot wait for events: {error}");
    let mut poller = Poller::new().map_err(failed)?;
    poller.add(signals, SIGNALS, Interest::Readable).map_err(failed)?;
    poller.add(waker, WAKER, Interest::Readable).map_err(failed)?;
    let mut ready: Vec<Ready> = Vec::new();
    let mut seen: VecDeque<bond::PublicKey> = VecDeque::new();
    // At once: something may wait to be counted since the last run, and clients are to be known before the registry is gone.
    let mut next_look = Instant::now();
    let (mut running, mut all) = (parts.count(), Ok(()));
    loop {
        // Notes wait for the disk; devices that knock go first.
        let until_look = next_look.saturating_duration_since(Instant::now());
        let timeout = if seen.is_empty() { until_look } else { Duration::ZERO };
        poller.wait(Some(timeout), &mut ready).map_err(failed)?;
        if next_look <= Instant::now() {
            next_look = Instant::now() + LOOK_INTERVAL;
            look(registry, ports, parts, &[]);
        }
        if ready.is_empty()
            && let Some(key) = seen.pop_front()
        {
            registry.seen(key);
        }
        while let Some(signal) = signals.take() {
            info!("ending on signal {signal}");
            parts.tell(|| Command::Stop);
        }
        waker.reset();
        let mut counted: Option<Vec<(bond::PublicKey, Bytes)>> = None;
        while let Ok(task) = tasks.try_recv() {
            match task {
                Task::Admit { part, id, peer, payload } => {
                    let (payload, admitted) = admission::answer(registry, peer, &payload);
                    let admitted = admitted.map(Box::new);
                    parts.post(part, Command::Answer { id, peer, payload, admitted });
                }
                Task::Seen(key) if seen.len() < TASKS && !seen.contains(&key) => seen.push_back(key),
                Task::Seen(_) => {}
                Task::Count(of_part) => counted.get_or_insert_default().extend(of_part),
                Task::Forget(key) => registry.forget(key),
                Task::LoopEnded(outcome) => {
                    running -= 1;
                    all = all.and(outcome);
                    // Also if it has not failed: another may have been too busy to hear of the end.
                    parts.tell(|| Command::Stop);
                }
            }
        }
        // The parts count at about the same times: one look for all that have.
        if let Some(carried) = counted {
            look(registry, ports, parts, &carried);
            next_look = Instant::now() + LOOK_INTERVAL;
        }
        if running == 0 {
            return all;
        }
    }
}

/// Has counted what clients have carried, and follows what the registry says then.
fn look(
    registry: &mut dyn ClientRegistry,
    ports: &mut Ports,
    parts: &Parts,
    carried: &[(bond::PublicKey, Bytes)],
) {
    if let Some(standings) = registry.count(carried) {
        parts.tell(|| Command::Standings(standings.clone()));
        ports.follow(registry);
    }
    follow_siblings(registry, parts);
}

fn follow_siblings(registry: &mut dyn ClientRegistry, parts: &Parts) {
    if let Some(siblings) = registry.siblings() {
        parts.tell(|| Command::Siblings(siblings.clone()));
    }
}

/// Between two looks at what other gateways have changed in the registry, where the loop has nothing counted: it does so a little
/// more often while clients are connected.
const LOOK_INTERVAL: Duration = Duration::from_secs(35);
const SIGNALS: Token = Token(0);
const WAKER: Token = Token(1);
/// Initiations a second above which devices must prove their address first, of all parts.
const RETRY_ABOVE: u32 = 200;
const COMMANDS: usize = 1_024;
const TASKS: usize = 2_048;
