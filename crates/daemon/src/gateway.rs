//! The gateway: from its clients to the Internet.
//!
//! ```text
//! root:   lock, journal, interface, NAT --fork--> supervisor: undoes all at the end
//! worker: watcher thread (signals, registry)  --commands-->  loop thread (packets)  --events--> log
//!         control thread (control.sock)       --commands-->
//! ```

mod admission;
mod backend;
mod clients;
mod event_loop;
mod messages;

use std::collections::VecDeque;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch::control::EventKind;
use arrayvec::ArrayVec;
use bond::{Endpoint, EndpointConfig, PrivateKey, SessionConfig};
use identity::{KeyError, KeyPair, OpenError, Registry, RegistryError, StateDirectory};
use linux::firewall::{self, ClosedChain};
use linux::journal::{ApplyError, Journal, JournalError};
use linux::nat::Nat;
use linux::poll::{Interest, Poller, Ready, Token, Waker};
use linux::prefix::IpPrefix;
use linux::privileges::requirements::Purpose;
use linux::signals::EndSignals;
use linux::tun::{Tun, TunError};
use thiserror::Error;
use tracing::{info, warn};
use wire::hello::MAX_DNS_SERVERS;

use crate::config::{Config, GatewayConfig};
use crate::control::clients::Introduction;
use crate::control::{Callers, ControlServer, EventLog};
use crate::dataplane::{self, CarrierError, Carriers, FIRST_SOCKET_TOKEN, PacketThread, Plane};
use crate::device::{host_name, name_servers};
use crate::mailbox::Mailbox;
use crate::supervision::{self, Answer, Machine, Request, Root, StartError, SuperviseError};

use admission::{ClientRegistry, StoredRegistry};
use messages::{Command, Task};

/// What a gateway needs to start.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayOptions {
    /// Where its key, its registry and its control socket are.
    pub state: StateDirectory,
    /// Its configuration.
    pub config: Config,
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
    let GatewayOptions { state, config } = options;
    let (_lock, mut journal) = supervision::begin(&state, Purpose::Gateway)?;
    let gateway = &config.gateway;
    let registry = Registry::open(&state, gateway.pool_v4, gateway.pool_v6)?;
    let key = KeyPair::load_or_create(&state)?;
    let nat = Nat { forwards: backend::port_forwards(&registry)?, ..nat(gateway, &registry) };
    let tun = Tun::create(&gateway.interface, gateway.mtu.into(), &own_addresses(&registry))?;
    // SQLite must not be carried over a fork.
    drop(registry);

    let changes = nat.plan().map_err(GatewayError::Settings)?;
    let user = supervision::prepare(&state, &config.daemon.user)?;
    if let Err(error) = journal.apply(&changes) {
        journal.restore()?;
        return Err(error.into());
    }
    let warnings = closed_firewalls(&gateway.interface);
    let work = move |root: Root| work(state, &config, key, nat, tun, root, &warnings);
    supervision::supervise(user, work, || GatewayMachine { journal })?;
    Ok(())
}

/// Everything that [`run`] would change on the machine, a line each, without changing it.
///
/// # Errors
/// Any [`GatewayError`].
pub fn plan(options: &GatewayOptions) -> Result<Vec<String>, GatewayError> {
    let config = &options.config.gateway;
    let registry = Registry::open(&options.state, config.pool_v4, config.pool_v6)?;
    let addresses: Vec<String> = own_addresses(&registry).iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("interface {} with {}", config.interface, addresses.join(" "))];
    let changes = nat(config, &registry).plan().map_err(GatewayError::Settings)?;
    lines.extend(changes.iter().map(ToString::to_string));
    lines.extend(config.listen.iter().map(|listen| format!("UDP port {listen}")));
    lines.extend(config.tcp.map(|port| format!("TCP port {port}")));
    for name in ["key", "gateway.sqlite", "undo.json", "daemon.lock", anabranch::control::SOCKET_NAME] {
        lines.push(format!("file {}", options.state.file(name).display()));
    }
    Ok(lines)
}

fn nat(config: &GatewayConfig, registry: &Registry) -> Nat {
    let (v4, v6) = (registry.v4_pool().network(), registry.v6_pool().network());
    let ranges = [IpPrefix::new(v4.address.into(), v4.prefix), IpPrefix::new(v6.address.into(), v6.prefix)];
    Nat {
        interface: config.interface.clone(),
        clients: ranges.into_iter().flatten().collect(),
        client_to_client: config.client_to_client,
        forwards: Vec::new(),
    }
}

/// The gateway's own addresses inside the clients' networks, whose prefixes lead them to the interface.
fn own_addresses(registry: &Registry) -> Vec<IpPrefix> {
    let (v4, v6) = (registry.v4_pool().gateway(), registry.v6_pool().gateway());
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
}

impl Machine for GatewayMachine {
    fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Restore => supervision::restore(&mut self.journal),
            _ => Answer::Failed { reason: "a gateway captures nothing".to_owned() },
        }
    }
}

/// The worker process, without root.
fn work(
    state: StateDirectory,
    config: &Config,
    key: KeyPair,
    nat: Nat,
    tun: Tun,
    root: Root,
    warnings: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    let signals = EndSignals::catch()?;
    let root = Arc::new(root);
    let events = Arc::new(EventLog::default());
    for warning in warnings {
        warn!("{warning}");
        events.push(EventKind::Warning, None, warning);
    }
    let (commands, command_receiver, command_waker) = Mailbox::new(COMMANDS)?;
    let (tasks, task_receiver, task_waker) = Mailbox::new(TASKS)?;
    let gateway = &config.gateway;
    let open = || Registry::open(&state, gateway.pool_v4, gateway.pool_v6);

    let endpoint = EndpointConfig {
        key: PrivateKey::new(*key.private_bytes()),
        session: SessionConfig::default(),
        accept: true,
        retry_above: RETRY_ABOVE,
        aes: dataplane::has_aes(),
    };
    let endpoint = Endpoint::new(endpoint, dataplane::seed()?)?;
    let poller = Poller::new()?;
    let mut carriers = Carriers::new(FIRST_SOCKET_TOKEN, None);
    listen(gateway, &poller, &mut carriers)?;
    let plane = Plane::new(poller, tun, carriers, endpoint, &command_waker)?;
    let name = config.daemon.name.clone().map_or_else(host_name, Ok)?;
    let mut registry =
        StoredRegistry { registry: open()?, name: name.clone(), mtu: gateway.mtu, dns: dns_servers(gateway) };
    let public = key.public().to_string();
    let mut status =
        event_loop::empty_status(name.to_string(), public, gateway.interface.clone(), gateway.mtu);
    if !warnings.is_empty() {
        status.why = format!("{}; but {}", status.why, warnings.join("; "));
    }
    status.addresses = own_addresses(&registry.registry).iter().map(|prefix| prefix.address()).collect();
    let packets = event_loop::GatewayLoop::new(plane, tasks.clone(), events.clone(), status);
    let ended = tasks.clone();
    let packets = PacketThread::start(
        move || packets.run(&command_receiver, &command_waker),
        move |outcome| {
            ended.post(Task::LoopEnded(outcome));
        },
    )?;

    let backend = backend::GatewayBackend {
        commands: commands.clone(),
        root,
        events,
        registry: Mutex::new(open()?),
        introduction: Introduction {
            public_key: key.public(),
            addresses: gateway.public_addresses.clone(),
            tcp_port: gateway.tcp,
        },
        nat: Nat { forwards: Vec::new(), ..nat },
    };
    let control = ControlServer::start(&state, Callers::of_state(&state, None)?, Arc::new(backend))?;
    info!("the gateway listens on {}", texts(&gateway.listen));
    let outcome = watch(&mut registry, &commands, &signals, &task_receiver, &task_waker);
    drop(control);
    packets.join()?;
    Ok(outcome?)
}

fn listen(config: &GatewayConfig, poller: &Poller, carriers: &mut Carriers) -> Result<(), CarrierError> {
    for local in &config.listen {
        match carriers.listen_udp(poller, *local) {
            // Machines without IPv6 are common, and "[::]" is the default.
            Err(error) if local.is_ipv6() && local.ip().is_unspecified() => warn!("no IPv6: {error}"),
            other => other?,
        }
        let Some(port) = config.tcp else { continue };
        let local = SocketAddr::new(local.ip(), port.get());
        if let Err(error) = carriers.listen_tcp(poller, local) {
            warn!("devices behind networks that block UDP cannot connect: {error}");
        }
    }
    Ok(())
}

/// The servers that clients are told: the configured ones, or those of this machine that clients can reach.
fn dns_servers(config: &GatewayConfig) -> ArrayVec<IpAddr, MAX_DNS_SERVERS> {
    let own = || -> Vec<IpAddr> {
        let files = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        name_servers(&text).into_iter().filter(|server| !server.is_loopback()).collect()
    };
    config.dns.clone().unwrap_or_else(own).into_iter().take(MAX_DNS_SERVERS).collect()
}

fn texts(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// The second thread's work, until the loop has ended.
fn watch(
    registry: &mut dyn ClientRegistry,
    commands: &Mailbox<Command>,
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
    loop {
        // Notes wait for the disk; devices that knock go first.
        let timeout = if seen.is_empty() { None } else { Some(Duration::ZERO) };
        poller.wait(timeout, &mut ready).map_err(failed)?;
        if ready.is_empty()
            && let Some(key) = seen.pop_front()
        {
            registry.seen(key);
        }
        while let Some(signal) = signals.take() {
            info!("ending on signal {signal}");
            commands.post(Command::Stop);
        }
        waker.reset();
        while let Ok(task) = tasks.try_recv() {
            match task {
                Task::Admit { id, peer, payload } => {
                    let (payload, admitted) = admission::answer(registry, peer, &payload);
                    commands.post(Command::Answer { id, peer, payload, admitted: admitted.map(Box::new) });
                }
                Task::Seen(key) if seen.len() < TASKS && !seen.contains(&key) => seen.push_back(key),
                Task::Seen(_) => {}
                Task::LoopEnded(outcome) => return outcome,
            }
        }
    }
}

const SIGNALS: Token = Token(0);
const WAKER: Token = Token(1);
/// Initiations a second above which devices must prove their address first.
const RETRY_ABOVE: u32 = 200;
const COMMANDS: usize = 1_024;
const TASKS: usize = 2_048;
