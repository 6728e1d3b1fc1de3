//! One network that the kernel keeps: its interface, its wpa_supplicant, its DHCP client.
//!
//! ```text
//!            start                control socket is there
//! Ended ------------> Starting ----------------------------> Controlled
//!   ^  after a pause     | ends, or says nothing in time         | ends
//!   +--------------------+---------------------------------------+
//! ```

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch::control::{EventKind, RadioNetworkReport, RadioNetworkState};
use arrayvec::ArrayVec;
use linux::lease_socket::LeaseSocket;
use linux::poll::{Interest, Poller, Token};
use linux::prefix::IpPrefix;
use linux::supplicant::{Control, Said, Status, Supplicant};
use radio::NetworkSettings;
use tracing::{debug, warn};
use units::{Frequency, MacAddress, NetworkId, Timestamp};

use super::super::KnownNetwork;
use super::super::address::NetworkAddress;
use super::super::lease::{Lease, LeaseChange, LeaseClient, LeaseMemory};
use super::listening::Listening;
use super::patience::{Looks, Patience};
use crate::control::EventLog;

/// How often it is looked whether the control socket is there.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// It is there within this, or something is wrong.
const STARTING_TIME: Duration = Duration::from_secs(20);
/// Until one that has ended is started again.
const PAUSE: Duration = Duration::from_secs(5);
/// Told of a server whose certificate is not the right one.
const UNTRUSTED: &str = "whoever answers as this network shows a certificate that `authority` and `domain` do not vouch for; the password was not told";
/// Things said, or frames, that are taken at once.
const BUDGET: usize = 32;

/// By what its descriptors are known to the poller.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    /// Of the control socket.
    pub control: Token,
    /// Of the DHCP client's socket.
    pub leases: Token,
}

/// The interface of a network, as root made it.
pub(super) struct OwnInterface {
    /// Its name.
    pub name: String,
    /// The kernel's number of it.
    pub index: u32,
    /// Its hardware address.
    pub address: MacAddress,
}

/// What wpa_supplicant is told of the network.
pub(super) struct Told {
    /// Its name, for people.
    pub ssid: String,
    /// Holds the key.
    pub configuration: String,
    /// The same, read.
    pub settings: NetworkSettings,
    /// The only ones to use; empty: all.
    pub frequencies: Vec<Frequency>,
    /// Our address, where it is not to be asked for.
    pub address: Option<IpPrefix>,
    /// Where what happens to it is told.
    pub events: Arc<EventLog>,
}

/// What is known beside a network.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    /// What is heard.
    pub listening: &'a Listening,
    /// Networks that are up.
    pub up: usize,
}

/// A network that the kernel keeps.
pub(super) struct KernelStation {
    told: Told,
    interface: OwnInterface,
    tokens: Tokens,
    running: Running,
    up: bool,
    /// It has come to an access point, and the DHCP client does not know yet.
    came_up: bool,
    /// As wpa_supplicant last said.
    joined: Status,
    /// Why it was last down or does not come up.
    trouble: Option<String>,
    patience: Patience,
    looks: Looks,
    /// The access point that it has just lost.
    lost: Option<MacAddress>,
    leases: LeaseSocket,
    /// `None`: the address is configured.
    lease: Option<LeaseClient>,
    address: NetworkAddress,
}

enum Running {
    Ended { again: Timestamp },
    Starting { supplicant: Supplicant, since: Timestamp },
    Controlled { supplicant: Supplicant, control: Control },
}

impl KernelStation {
    /// A station on an interface of ours; it begins with the next [`work`](Self::work). `seed`: random.
    ///
    /// # Errors
    /// [`io::Error`] if DHCP cannot be spoken on it.
    pub fn new(
        now: Timestamp,
        id: NetworkId,
        told: Told,
        interface: OwnInterface,
        tokens: Tokens,
        poller: &Poller,
        seed: u64,
    ) -> io::Result<Self> {
        let leases = LeaseSocket::open(interface.index)?;
        poller.add(&leases, tokens.leases, Interest::Readable)?;
        let mut address = NetworkAddress::new(id);
        address.set_passes(interface.index, false).map_err(io::Error::other)?;
        if let Some(own) = told.address {
            let own = LeaseChange::Lent(Lease { address: own, gateway: None, servers: ArrayVec::new() });
            address.apply(&told.ssid, interface.index, own).map_err(io::Error::other)?;
        }
        let lease = told.address.is_none().then(|| LeaseClient::new(now, interface.address, seed));
        Ok(Self {
            joined: Status::default(),
            trouble: None,
            patience: Patience::default(),
            looks: Looks::default(),
            lost: None,
            told,
            lease,
            interface,
            tokens,
            running: Running::Ended { again: now },
            up: false,
            came_up: false,
            leases,
            address,
        })
    }

    /// The name of its interface.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// The interface, while packets pass.
    pub fn up(&self) -> Option<&OwnInterface> {
        self.up.then_some(&self.interface)
    }

    /// Does what is due; gives when to be called again at the latest. `memory`: what `known`, this network, lent before.
    pub fn work(
        &mut self,
        now: Timestamp,
        poller: &Poller,
        directory: &File,
        known: &KnownNetwork,
        memory: &mut LeaseMemory,
        beside: Beside<'_>,
    ) -> Option<Timestamp> {
        self.wait_or_look(now, beside);
        let next = self.look_after_supplicant(now, poller, directory);
        let lease = if self.up { self.drive_lease(now, known, memory) } else { None };
        next.into_iter().chain(lease).min()
    }

    fn look_after_supplicant(
        &mut self,
        now: Timestamp,
        poller: &Poller,
        directory: &File,
    ) -> Option<Timestamp> {
        let ended = Running::Ended { again: now + PAUSE };
        self.running = match std::mem::replace(&mut self.running, ended) {
            Running::Ended { again } if again > now => Running::Ended { again },
            Running::Ended { .. } => {
                match Supplicant::start(&self.interface.name, directory, &self.told.configuration) {
                    Ok(supplicant) => Running::Starting { supplicant, since: now },
                    Err(error) => self.gave_up(now, &error.to_string()),
                }
            }
            Running::Starting { mut supplicant, since } => {
                if let Some(how) = supplicant.ended() {
                    self.gave_up(now, &format!("wpa_supplicant cannot use the interface ({how})"))
                } else {
                    match begin_control(&supplicant, poller, self.tokens.control) {
                        Ok(control) => Running::Controlled { supplicant, control },
                        Err(_) if now.since(since) < STARTING_TIME => Running::Starting { supplicant, since },
                        Err(error) => {
                            supplicant.end();
                            self.gave_up(now, &format!("wpa_supplicant does not answer ({error})"))
                        }
                    }
                }
            }
            Running::Controlled { mut supplicant, control } => match supplicant.ended() {
                None => Running::Controlled { supplicant, control },
                Some(how) => self.gave_up(now, &format!("wpa_supplicant ended ({how})")),
            },
        };
        match &self.running {
            Running::Ended { again } => Some(*again),
            Running::Starting { .. } => Some(now + LOOK_AGAIN),
            Running::Controlled { .. } => self.patience.waiting().map(|(_, until)| until),
        }
    }

    /// Leaves an access point alone that is lost at the edge of its reach or again and again, and looks for it when that is over. One that is heard well
    /// is looked for at once.
    fn wait_or_look(&mut self, now: Timestamp, beside: Beside<'_>) {
        if self.up {
            self.patience.came_up(now);
            self.looks.came_up();
        }
        let lost = self.lost.take();
        let signal = |bssid| beside.listening.signal(now, bssid);
        let pause = lost.and_then(|bssid| self.patience.lost(now, bssid, signal(bssid)));
        if lost.is_some() {
            self.looks.lost(now);
        }
        let is_up = self.up;
        let heard = || {
            let Told { settings, frequencies, .. } = &self.told;
            if is_up { None } else { beside.listening.candidate(now, settings, frequencies) }
        };
        let Running::Controlled { control, .. } = &self.running else { return };
        let (said, text) = match (pause, self.patience.waiting()) {
            (Some(pause), _) => {
                let text = format!(
                    "lost at the edge of its reach, or soon after it was joined: looked for again in {} s, or when it is heard better or no other network is up",
                    pause.as_secs()
                );
                (control.rest(), Some(text))
            }
            (None, Some((bssid, _))) => {
                let other = heard().filter(|seen| seen.bssid != bssid).and_then(|seen| seen.signal_dbm);
                if !self.patience.ends(now, signal(bssid), other, beside.up > 0) {
                    return;
                }
                (control.go_on(), None)
            }
            (None, None) => {
                let heard = heard();
                let is_due = self.looks.is_due(now, heard.and_then(|seen| seen.signal_dbm));
                match heard.filter(|_| is_due) {
                    Some(seen) => (control.look(seen.frequency), None),
                    None => return,
                }
            }
        };
        if let Err(error) = said {
            debug!("{}: {error}", self.told.ssid);
        }
        if let Some(text) = text {
            self.tell(EventKind::NetworkChanged, text);
        }
    }

    fn gave_up(&mut self, now: Timestamp, why: &str) -> Running {
        self.complain(&format!("{why}; it is started again in {} s", PAUSE.as_secs()));
        self.set_up(false);
        Running::Ended { again: now + PAUSE }
    }

    /// Takes what wpa_supplicant says.
    pub fn hear(&mut self) {
        for _ in 0..BUDGET {
            let Running::Controlled { control, .. } = &self.running else { return };
            let Ok(said) = control.read() else { return };
            let asked = if said == Said::Connected { control.ask_status() } else { Ok(()) };
            if let Err(error) = asked {
                debug!("{}: {error}", self.told.ssid);
            }
            self.note(said);
        }
    }

    fn note(&mut self, said: Said) {
        let coded = |code: Option<u16>| code.map_or_else(String::new, |code| format!(" (code {code})"));
        match said {
            Said::Status(status) => {
                self.came_up |= status.completed && (!self.up || self.joined.bssid != status.bssid);
                self.joined = status;
                if status.completed && !self.up {
                    let by =
                        status.bssid.map_or_else(|| "an access point".to_owned(), |bssid| bssid.to_string());
                    let on = status.frequency.map_or_else(String::new, |on| format!(" on {} MHz", on.0));
                    self.trouble = None;
                    let text = format!("up, by {by}{on}, as {}", self.interface.name);
                    self.told.events.push(EventKind::NetworkUp, Some(&self.told.ssid), text);
                }
                self.set_up(status.completed);
            }
            Said::Disconnected { reason } => {
                if self.up {
                    let text = format!("down: the access point is gone or sent us away{}", coded(reason));
                    self.tell(EventKind::NetworkDown, text);
                    self.lost = self.joined.bssid;
                }
                self.joined = Status::default();
                self.set_up(false);
            }
            Said::Refused { wrong_key: true } => {
                self.complain("the access point does not accept the passphrase");
            }
            Said::Refused { wrong_key: false } => {
                warn!("{}: no access point lets us in; waiting a while", self.told.ssid);
            }
            Said::Rejected { status } => {
                self.complain(&format!("the access point refuses the association{}", coded(status)));
            }
            Said::LoginRefused if self.trouble.as_deref() == Some(UNTRUSTED) => {}
            Said::LoginRefused => self.complain("the network does not accept the login"),
            Said::Untrusted => self.complain(UNTRUSTED),
            Said::NotFound => debug!("{}: no access point is heard", self.told.ssid),
            Said::LookFailed => self.look_anew(),
            Said::Connected | Said::Other => {}
        }
    }

    /// The card was busy when it was told to look. By itself it would not do so again.
    fn look_anew(&self) {
        let Running::Controlled { control, .. } = &self.running else { return };
        if !self.up
            && self.patience.waiting().is_none()
            && let Err(error) = control.look_anew()
        {
            debug!("{}: {error}", self.told.ssid);
        }
    }

    fn complain(&mut self, text: &str) {
        self.tell(EventKind::Warning, text.to_owned());
    }

    fn tell(&mut self, kind: EventKind, text: String) {
        self.told.events.push(kind, Some(&self.told.ssid), text.clone());
        self.trouble = Some(text);
    }

    /// How it is.
    pub fn report(&self) -> RadioNetworkReport {
        let addresses: Vec<IpAddr> =
            self.address.lent().iter().map(|lease| lease.address.address()).collect();
        let state = match (self.up, self.joined.bssid) {
            (true, _) if addresses.is_empty() => RadioNetworkState::Asking,
            (true, _) => RadioNetworkState::Up,
            (false, Some(_)) => RadioNetworkState::Joining,
            (false, None) => RadioNetworkState::Searching,
        };
        RadioNetworkReport {
            interface: self.interface.name.clone(),
            state,
            trouble: self.trouble.clone(),
            bssid: self.joined.bssid.map(|bssid| bssid.to_string()),
            channel: self.joined.frequency.and_then(Frequency::channel),
            addresses,
            ..RadioNetworkReport::default()
        }
    }

    fn set_up(&mut self, up: bool) {
        self.up = up;
        if let Err(error) = self.address.set_passes(self.interface.index, up) {
            warn!("{}: {error}", self.told.ssid);
        }
    }

    /// Takes what DHCP servers say.
    pub fn receive(&mut self) {
        let mut buffer = [0; LeaseSocket::LONGEST];
        for _ in 0..BUDGET {
            // The interface is off now and then; the socket goes on when it is on again.
            let Ok(length) = self.leases.receive(&mut buffer) else { return };
            if let Some(lease) = &mut self.lease
                && LeaseClient::wants(&buffer[..length])
            {
                lease.receive(buffer[..length].to_vec());
            }
        }
    }

    fn drive_lease(
        &mut self,
        now: Timestamp,
        known: &KnownNetwork,
        memory: &mut LeaseMemory,
    ) -> Option<Timestamp> {
        let lease = self.lease.as_mut()?;
        let (own, wall) = (self.interface.address, SystemTime::now());
        if std::mem::take(&mut self.came_up) {
            let point = self.joined.bssid;
            lease.came_up(now, point, memory.candidates(now, wall, known, own, point));
        }
        if let Some(change) = lease.poll(now) {
            if let Some(text) = change.text() {
                self.told.events.push(EventKind::NetworkChanged, Some(&self.told.ssid), text);
            }
            if let Err(error) = self.address.apply(&self.told.ssid, self.interface.index, change) {
                warn!("{}: the address that it lent cannot be used: {error}", self.told.ssid);
            }
        }
        if let Some(learnt) = lease.learnt() {
            memory.remember(wall, known, own, &learnt);
        }
        while let Some(frame) = lease.transmit() {
            if let Err(error) = self.leases.send(&frame) {
                debug!("{}: {error}", self.interface.name);
            }
        }
        lease.timeout(now)
    }

    /// Leaves the access point; gives the interface, which is still there.
    pub fn end(self) -> OwnInterface {
        match self.running {
            Running::Starting { supplicant, .. } | Running::Controlled { supplicant, .. } => supplicant.end(),
            Running::Ended { .. } => {}
        }
        self.interface
    }
}

fn begin_control(supplicant: &Supplicant, poller: &Poller, token: Token) -> io::Result<Control> {
    let control = supplicant.control()?;
    poller.add(&control, token, Interest::Readable)?;
    control.ask_status()?;
    Ok(control)
}
