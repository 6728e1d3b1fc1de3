//! The device's second thread: signals, the kernel's news, look-ups and root's help.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch::control::EventKind;
use identity::{InvitationKind, Peer, Peers, PeersError, PublicKey, StateDirectory, wall_time};
use linux::monitor::{Event, Monitor};
use linux::netlink::Netlink;
use linux::poll::{Interest, Poller, Token, Waker};
use linux::signals::EndSignals;
use tracing::{debug, info, warn};
use units::NetworkId;
use wire::join_link::{Host, HostPort};
use wire::request::Sibling;

use super::direct::name_proxy::Upstream;
use super::messages::{Command, Lease, Task};
use super::new_links::NewLinks;
use super::{direct, lookup, nat64};
use crate::control::EventLog;
use crate::mailbox::Mailbox;
use crate::supervision::{Request, Root};

/// What the thread works with.
pub struct Watcher {
    /// Where a gateway's invitation is forgotten once it was used.
    pub state: StateDirectory,
    /// This device's key.
    pub own: PublicKey,
    /// The loop.
    pub commands: Mailbox<Command>,
    /// The thread that chooses networks for flows.
    pub choices: Mailbox<direct::Message>,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// Number of the interface.
    pub interface_index: u32,
    /// Its MTU if the configuration sets one.
    pub mtu: Option<u16>,
    /// Whether the gateway's name servers are used.
    pub dns: bool,
    /// Where the server for names of this machine passes questions on to, if it runs.
    pub names: Option<Upstream>,
    /// Mark of the daemon's own packets.
    pub mark: u32,
    /// Gateways for which the system's resolver has been asked and has not answered yet.
    pub resolving: Arc<Mutex<BTreeSet<PublicKey>>>,
    /// Networks whose NAT64 is being looked for.
    pub discovering: Arc<Mutex<BTreeSet<NetworkId>>>,
}

impl Watcher {
    /// Works until the loop has ended, and tells how it did.
    ///
    /// # Errors
    /// A text for the log.
    pub fn run(self, signals: &EndSignals, tasks: &Receiver<Task>, waker: &Waker) -> Result<(), String> {
        let mut poller = Poller::new().map_err(|error| format!("cannot wait for events: {error}"))?;
        let mut monitor =
            Monitor::open().map_err(|error| format!("cannot watch the machine's networks: {error}"))?;
        let mut netlink =
            Netlink::open().map_err(|error| format!("cannot ask the kernel for neighbours: {error}"))?;
        // Those of the networks, before our own are written over them.
        let servers = lookup::network_servers();
        for (result, what) in [
            (poller.add(signals, SIGNALS, Interest::Readable), "signals"),
            (poller.add(waker, TASKS, Interest::Readable), "tasks"),
            (poller.add(&monitor, MONITOR, Interest::Readable), "networks"),
        ] {
            result.map_err(|error| format!("cannot wait for {what}: {error}"))?;
        }
        self.post_near(&monitor);
        self.choices.post(direct::Message::Forwarding(monitor.forwards()));
        self.post_interfaces(&monitor);
        let mut ready = Vec::new();
        let mut new_links = NewLinks::default();
        loop {
            let timeout = new_links.wait(Instant::now());
            poller.wait(timeout, &mut ready).map_err(|error| format!("cannot wait: {error}"))?;
            ask_again(&mut new_links, &mut netlink);
            for entry in &ready {
                match entry.token {
                    SIGNALS => {
                        while let Some(signal) = signals.take() {
                            info!("ending on signal {signal}");
                            self.commands.post(Command::Stop);
                        }
                    }
                    MONITOR => match monitor.read_events() {
                        Ok(events) if events.is_empty() => {}
                        Ok(events) => {
                            if events.contains(&Event::Routes) {
                                self.post_near(&monitor);
                            }
                            // Before the loop hears of it and sends: what waits for an answer is lost.
                            let now = Instant::now();
                            events.iter().filter_map(came_up).for_each(|link| new_links.came_up(now, link));
                            ask_again(&mut new_links, &mut netlink);
                            if events.contains(&Event::Forwarding) {
                                self.choices.post(direct::Message::Forwarding(monitor.forwards()));
                            }
                            self.post_interfaces(&monitor);
                        }
                        Err(error) => warn!("the kernel's news about networks cannot be read: {error}"),
                    },
                    _ => {
                        waker.reset();
                        while let Ok(task) = tasks.try_recv() {
                            if let Task::LoopEnded(outcome) = task {
                                return outcome;
                            }
                            self.carry_out(task, &servers);
                        }
                    }
                }
            }
        }
    }

    fn post_near(&self, monitor: &Monitor) {
        self.choices.post(direct::Message::Near(monitor.near().to_vec()));
    }

    fn post_interfaces(&self, monitor: &Monitor) {
        if !self.commands.post(Command::Interfaces(monitor.interfaces().cloned().collect())) {
            warn!("the loop is too busy to hear about its networks");
        }
    }

    fn carry_out(&self, task: Task, servers: &[IpAddr]) {
        match task {
            Task::Capture(lease) => {
                let outcome = self.capture(&lease, servers);
                self.commands.post(Command::Captured(outcome));
            }
            Task::Resolve { gateway, addresses, interfaces } => {
                self.resolve(gateway, addresses, interfaces, servers);
            }
            Task::Redeemed(gateway) => self.forget_invitation(gateway),
            Task::Learn(from, siblings) => self.learn(from, &siblings),
            Task::DiscoverNat64(network, interface) => {
                self.discover(network, interface, servers_now(servers));
            }
            Task::LetIn(interface) => {
                if let Err(error) = self.root.ask(&Request::LetIn { interface: interface.clone() }) {
                    warn!("answers may be dropped on {interface}: {error}");
                }
            }
            Task::LoopEnded(_) => {}
        }
    }

    fn capture(&self, lease: &Lease, servers: &[IpAddr]) -> Result<(), String> {
        let mtu = self.mtu.unwrap_or(lease.mtu);
        linux::tun::configure(self.interface_index, mtu.into(), &lease.addresses)
            .map_err(|error| error.to_string())?;
        let mut dns = if self.dns { lease.dns.clone() } else { Vec::new() };
        if let Some(upstream) = &self.names {
            upstream.set(if dns.is_empty() { servers_now(servers) } else { dns });
            dns = vec![direct::name_proxy::ADDRESS];
        }
        self.root.ask(&Request::Capture { dns }).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn forget_invitation(&self, gateway: PublicKey) {
        let forgotten = Peers::change(&self.state, |peers| -> Result<bool, identity::PeersError> {
            Ok(peers.redeemed(gateway))
        });
        if let Err(error) = forgotten {
            let text = format!("the used invitation could not be removed: {error}");
            self.events.push(EventKind::Warning, None, text);
        }
    }

    /// Keeps which gateways a gateway names, and has them used.
    fn learn(&self, from: PublicKey, siblings: &[Sibling]) {
        // With each session the same is said: nothing is written for that.
        let is_news = Peers::load(&self.state)
            .is_ok_and(|mut known| known.learn(from, siblings, self.own, wall_time()));
        if !is_news {
            return;
        }
        let learned = Peers::change(&self.state, |peers| -> Result<Vec<Peer>, PeersError> {
            peers.learn(from, siblings, self.own, wall_time());
            Ok(peers.of_kind(InvitationKind::Gateway).cloned().collect())
        });
        match learned {
            Ok(gateways) => {
                let names: Vec<&str> = gateways.iter().map(|gateway| gateway.name.as_str()).collect();
                info!("gateways are known: {}", names.join(", "));
                self.commands.post(Command::Gateways(gateways));
            }
            Err(error) => {
                let text = format!("the gateways that the gateway names could not be kept: {error}");
                self.events.push(EventKind::Warning, None, text);
            }
        }
    }

    /// Looks names up on threads of their own, since that can take long: past any0 over these interfaces, and as other
    /// programs do, which knows more (`/etc/hosts`) but may need any0.
    fn resolve(
        &self,
        gateway: PublicKey,
        addresses: Vec<HostPort>,
        interfaces: Vec<String>,
        servers: &[IpAddr],
    ) {
        let literal: Option<Vec<SocketAddr>> = addresses.iter().map(literal).collect();
        if let Some(literal) = literal {
            self.commands.post(Command::Resolved(gateway, literal));
            return;
        }
        let first = interfaces.is_empty();
        if !first {
            let (servers, mark) = (servers_now(servers), self.mark);
            let by = move |name: &str| lookup::look_up(name, &interfaces, mark, &servers);
            self.look_up("lookup", first, (gateway, addresses.clone()), by, || {});
        }
        // One at a time for each: with a resolver that does not answer this takes half a minute.
        if self.resolving.lock().unwrap_or_else(PoisonError::into_inner).insert(gateway) {
            let resolving = self.resolving.clone();
            self.look_up("resolver", first, (gateway, addresses), ask_the_system, move || {
                resolving.lock().unwrap_or_else(PoisonError::into_inner).remove(&gateway);
            });
        }
    }

    /// Has a thread look all names of a gateway up. What was found before stays if none is found later.
    fn look_up(
        &self,
        thread: &str,
        first: bool,
        (gateway, addresses): (PublicKey, Vec<HostPort>),
        by: impl Fn(&str) -> Vec<IpAddr> + Send + 'static,
        at_end: impl FnOnce() + Send + 'static,
    ) {
        let commands = self.commands.clone();
        let work = move || {
            let mut all: Vec<SocketAddr> = Vec::new();
            let mut named = false;
            for HostPort { host, port } in &addresses {
                let found = match host {
                    Host::Address(host) => vec![*host],
                    Host::Bluetooth(_) => Vec::new(),
                    Host::Name(name) => by(name.as_str()),
                };
                named |= matches!(host, Host::Name(_)) && !found.is_empty();
                all.extend(found.into_iter().map(|address| SocketAddr::new(address, port.get())));
            }
            at_end();
            all.truncate(MAXIMUM_ADDRESSES);
            if named || first {
                commands.post(Command::Resolved(gateway, all));
            }
        };
        if let Err(error) = thread::Builder::new().name(thread.to_owned()).spawn(work) {
            warn!("names cannot be looked up: {error}");
        }
    }

    fn discover(&self, network: NetworkId, interface: String, servers: Vec<IpAddr>) {
        let (commands, choices, mark) = (self.commands.clone(), self.choices.clone(), self.mark);
        let discovering = self.discovering.clone();
        // One at a time for each network, however often it comes and goes.
        if !self.discovering.lock().unwrap_or_else(PoisonError::into_inner).insert(network) {
            return;
        }
        let work = move || {
            // The servers of a network that has just come may not answer yet.
            for pause in DISCOVERY_PAUSES {
                thread::sleep(pause);
                let prefix = nat64::discover(&interface, mark, &servers);
                choices.post(direct::Message::Nat64(network, prefix));
                commands.post(Command::Nat64(network, prefix));
                if prefix.is_some() {
                    break;
                }
            }
            discovering.lock().unwrap_or_else(PoisonError::into_inner).remove(&network);
        };
        if let Err(error) = thread::Builder::new().name("nat64".to_owned()).spawn(work) {
            warn!("NAT64 cannot be looked for: {error}");
            self.discovering.lock().unwrap_or_else(PoisonError::into_inner).remove(&network);
        }
    }
}

/// Number of the interface, if it was not running before.
fn came_up(event: &Event) -> Option<u32> {
    match event {
        Event::Added(now) if now.is_running() => Some(now.index),
        Event::Changed { before, now } if now.is_running() && !before.is_running() => Some(now.index),
        _ => None,
    }
}

fn ask_again(links: &mut NewLinks, netlink: &mut Netlink) {
    for interface in links.take_due(Instant::now()) {
        if let Err(error) = netlink.ask_again(interface) {
            debug!("{error}");
        }
    }
}

fn literal(address: &HostPort) -> Option<SocketAddr> {
    match &address.host {
        Host::Address(host) => Some(SocketAddr::new(*host, address.port.get())),
        Host::Name(_) | Host::Bluetooth(_) => None,
    }
}

fn ask_the_system(name: &str) -> Vec<IpAddr> {
    match (name, 0).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            debug!("{name} cannot be looked up: {error}");
            Vec::new()
        }
    }
}

/// Those that were known at the start, and what the networks told since.
fn servers_now(known: &[IpAddr]) -> Vec<IpAddr> {
    lookup::merged(lookup::network_servers().into_iter().chain(known.iter().copied()))
}

const SIGNALS: Token = Token(0);
const TASKS: Token = Token(1);
const MONITOR: Token = Token(2);
const MAXIMUM_ADDRESSES: usize = 16;
/// Before each look for a NAT64.
const DISCOVERY_PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(10)];
