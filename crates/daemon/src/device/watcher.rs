//! The device's second thread: signals, the kernel's news, look-ups and root's help.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use anabranch::control::EventKind;
use identity::{Peer, Peers, StateDirectory};
use linux::monitor::Monitor;
use linux::poll::{Interest, Poller, Token, Waker};
use linux::prefix::IpPrefix;
use linux::signals::EndSignals;
use tracing::{debug, info, warn};
use units::NetworkId;
use wire::hello::Welcome;
use wire::join_link::{Host, HostPort};

use super::messages::{Command, Mailbox, Task};
use super::nat64;
use crate::control::EventLog;
use crate::supervision::{Request, Root};

/// What the thread works with.
pub struct Watcher {
    /// Where the peer's invitation is forgotten once it was used.
    pub state: StateDirectory,
    /// The gateway.
    pub peer: Peer,
    /// The loop.
    pub commands: Mailbox<Command>,
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
    /// Mark of the daemon's own packets.
    pub mark: u32,
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
        let servers = known_name_servers();
        for (result, what) in [
            (poller.add(signals, SIGNALS, Interest::Readable), "signals"),
            (poller.add(waker, TASKS, Interest::Readable), "tasks"),
            (poller.add(&monitor, MONITOR, Interest::Readable), "networks"),
        ] {
            result.map_err(|error| format!("cannot wait for {what}: {error}"))?;
        }
        self.resolve();
        self.post_interfaces(&monitor);
        let mut ready = Vec::new();
        loop {
            poller.wait(None, &mut ready).map_err(|error| format!("cannot wait: {error}"))?;
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
                        Ok(_) => self.post_interfaces(&monitor),
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

    fn post_interfaces(&self, monitor: &Monitor) {
        if !self.commands.post(Command::Interfaces(monitor.interfaces().cloned().collect())) {
            warn!("the loop is too busy to hear about its networks");
        }
    }

    fn carry_out(&self, task: Task, servers: &[IpAddr]) {
        match task {
            Task::Capture(welcome) => {
                let outcome = self.capture(&welcome);
                self.commands.post(Command::Captured(outcome));
            }
            Task::Resolve => self.resolve(),
            Task::DiscoverNat64(network, interface) => self.discover(network, interface, servers.to_vec()),
            Task::LetIn(interface) => {
                if let Err(error) = self.root.ask(&Request::LetIn { interface: interface.clone() }) {
                    warn!("answers may be dropped on {interface}: {error}");
                }
            }
            Task::LoopEnded(_) => {}
        }
    }

    fn capture(&self, welcome: &Welcome) -> Result<(), String> {
        let v4 = welcome.v4.and_then(|lease| IpPrefix::new(lease.address.into(), 32).ok());
        let v6 = welcome.v6.and_then(|lease| IpPrefix::new(lease.address.into(), 128).ok());
        let addresses: Vec<IpPrefix> = v4.into_iter().chain(v6).collect();
        let mtu = self.mtu.unwrap_or(welcome.mtu);
        linux::tun::configure(self.interface_index, mtu.into(), &addresses)
            .map_err(|error| error.to_string())?;
        let dns = if self.dns { welcome.dns.to_vec() } else { Vec::new() };
        self.root.ask(&Request::Capture { dns }).map_err(|error| error.to_string())?;
        if self.peer.invitation.is_some() {
            let key = self.peer.public_key;
            let forgotten = Peers::change(&self.state, |peers| -> Result<bool, identity::PeersError> {
                Ok(peers.redeemed(key))
            });
            if let Err(error) = forgotten {
                self.events.push(
                    EventKind::Warning,
                    None,
                    format!("the used invitation could not be removed: {error}"),
                );
            }
        }
        Ok(())
    }

    /// Looks names up on a thread of its own, since that can take long.
    fn resolve(&self) {
        let (addresses, commands) = (self.peer.addresses.clone(), self.commands.clone());
        let literal: Option<Vec<SocketAddr>> = addresses.iter().map(literal).collect();
        if let Some(literal) = literal {
            commands.post(Command::Resolved(literal));
            return;
        }
        let work = move || {
            let mut found: Vec<SocketAddr> = Vec::new();
            for address in &addresses {
                match resolve_one(address) {
                    Ok(more) => found.extend(more),
                    Err(error) => debug!("{address} cannot be looked up: {error}"),
                }
            }
            found.truncate(MAXIMUM_ADDRESSES);
            commands.post(Command::Resolved(found));
        };
        if let Err(error) = thread::Builder::new().name("resolver".to_owned()).spawn(work) {
            warn!("names cannot be looked up: {error}");
        }
    }

    fn discover(&self, network: NetworkId, interface: String, servers: Vec<IpAddr>) {
        let (commands, mark) = (self.commands.clone(), self.mark);
        let work = move || {
            let prefix = nat64::discover(&interface, mark, &servers);
            commands.post(Command::Nat64(network, prefix));
        };
        if let Err(error) = thread::Builder::new().name("nat64".to_owned()).spawn(work) {
            warn!("NAT64 cannot be looked for: {error}");
        }
    }
}

fn literal(address: &HostPort) -> Option<SocketAddr> {
    match &address.host {
        Host::Address(host) => Some(SocketAddr::new(*host, address.port.get())),
        Host::Name(_) => None,
    }
}

fn resolve_one(address: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    match &address.host {
        Host::Address(host) => Ok(vec![SocketAddr::new(*host, address.port.get())]),
        Host::Name(name) => Ok((name.as_str(), address.port.get()).to_socket_addrs()?.collect()),
    }
}

/// The name servers before any0 was up: those of the networks.
fn known_name_servers() -> Vec<IpAddr> {
    let files = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.flat_map(|text| nat64::name_servers(&text)).collect()
}

const SIGNALS: Token = Token(0);
const TASKS: Token = Token(1);
const MONITOR: Token = Token(2);
const MAXIMUM_ADDRESSES: usize = 16;
