//! IPv4 over networks that have IPv6 only, with a NAT64: the customer's side of 464XLAT (RFC 6877).
//!
//! ```text
//! program's IPv4 flow --mark of the network--> its own table --> translator's TUN --IPv4--> translate --IPv6, raw socket, the mark-->
//!     network (masquerade) --> NAT64 --> answers --> masquerade undone --dup--> translator's TUN --IPv6--> translate --IPv4--> program
//! ```
//! Each such network has a TUN interface and a thread of its own, which live until the daemon ends; while the network is away or has
//! IPv4, they rest. Segments of up to 64 KiB come in and go out on the TUN; packets that go out by the network are sent one by one.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use linux::direct::{Translation, mark_of};
use linux::netlink::{Netlink, NetlinkError, Route};
use linux::packet_sender::PacketSender;
use linux::poll::{Interest, Poller, Ready, Token, Waker};
use linux::prefix::IpPrefix;
use linux::privileges::seccomp;
use linux::tun::{Reserved, Tun, TunError};
use thiserror::Error;
use tracing::{info, trace, warn};
use units::NetworkId;
use wire::translation::{Prefix, Translator, Untranslated};

use super::plan::Numbers;
use crate::device::networks::{Network, reaches};

/// Why a network's IPv4 flows are not translated.
#[derive(Debug, Error)]
enum StartError {
    /// More networks with a NAT64 than interfaces were reserved for.
    #[error("at most {MOST} networks with NAT64 can be used")]
    TooMany,
    /// The interface.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Its route.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A socket or a thread.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The translators of all networks.
pub struct Translations {
    /// The device's interface, whose name and table make ours its own.
    interface: String,
    table: u32,
    reserved: Vec<Reserved>,
    prefixes: BTreeMap<NetworkId, Prefix>,
    running: BTreeMap<NetworkId, Running>,
    /// What could not be started is not tried again.
    failed: Vec<NetworkId>,
}

struct Running {
    described: Translation,
    own: Prefix,
    /// Whether flows may be given to it now.
    active: bool,
    shared: Arc<Shared>,
    waker: Waker,
}

/// What the thread is told.
struct Shared(Mutex<Option<Task>>);

#[derive(Clone, Copy)]
enum Task {
    Rest,
    Translate { translator: Translator, mtu: u16 },
}

/// Opens what interfaces are made of, while the process still may. None where that fails: then IPv4 is not translated.
pub fn reserve() -> Vec<Reserved> {
    (0..MOST).map_while(|_| Reserved::open().ok()).collect()
}

impl Translations {
    /// No translators yet.
    pub fn new(interface: &str, table: u32) -> Self {
        Self {
            interface: interface.to_owned(),
            table,
            reserved: Vec::new(),
            prefixes: BTreeMap::new(),
            running: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// These can be made interfaces of.
    pub fn reserve(&mut self, reserved: Vec<Reserved>) {
        self.reserved = reserved;
    }

    /// A network's NAT64 was found, or was not.
    pub fn learn(&mut self, network: NetworkId, prefix: Option<Prefix>) {
        match prefix {
            Some(prefix) => self.prefixes.insert(network, prefix),
            None => self.prefixes.remove(&network),
        };
    }

    /// Starts, wakes and puts to rest what these networks need; gives the interfaces that are new.
    pub fn advance(&mut self, networks: &[Network], numbers: &Numbers) -> Vec<String> {
        // Ends the threads of networks that are forgotten.
        self.running.retain(|id, _| networks.iter().any(|network| network.id == *id));
        self.prefixes.retain(|id, _| networks.iter().any(|network| network.id == *id));
        let mut made = Vec::new();
        for network in networks {
            let interface = &network.interface;
            let needs = network.connected && reaches(interface, true) && !reaches(interface, false);
            let prefix = self.prefixes.get(&network.id).copied().filter(|_| needs);
            match (prefix, self.running.get_mut(&network.id)) {
                (None, Some(running)) => running.rest(),
                (Some(prefix), Some(running)) => running.translate(prefix, interface.mtu),
                (Some(prefix), None) if !self.failed.contains(&network.id) => {
                    let Some(number) = numbers.of(network.id) else { continue };
                    match self.start(number) {
                        Ok(mut running) => {
                            info!("IPv4 flows go by {} through its NAT64", interface.name);
                            running.translate(prefix, interface.mtu);
                            made.push(running.described.interface.clone());
                            self.running.insert(network.id, running);
                        }
                        Err(error) => {
                            warn!("{} carries no IPv4 although it has a NAT64: {error}", interface.name);
                            self.failed.push(network.id);
                        }
                    }
                }
                _ => {}
            }
        }
        made
    }

    /// Those of all networks that have one now.
    pub fn active(&self) -> BTreeMap<NetworkId, Translation> {
        let active = self.running.iter().filter(|(_, running)| running.active);
        active.map(|(id, running)| (*id, running.described.clone())).collect()
    }

    fn start(&mut self, number: u8) -> Result<Running, StartError> {
        let reserved = self.reserved.pop().ok_or(StartError::TooMany)?;
        let short: String = self.interface.chars().take(LONGEST_STEM).collect();
        // As large as it can be: the kernel hands over what it has put together. The route says what IPv4 packets may be.
        let tun = Tun::create_on(reserved, &format!("{short}-t{number}"), LARGEST, &[])?;
        let own = own_prefix(self.table, number);
        let all_own = IpPrefix::new(own.address().into(), own.length());
        let all_own = all_own.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // What the kernel itself says about our packets finds its way too.
        let mut netlink = Netlink::open()?;
        netlink.add_route(&Route::over(all_own, tun.index()))?;
        let shared = Arc::new(Shared(Mutex::new(Some(Task::Rest))));
        let waker = Waker::new()?;
        let described =
            Translation { interface: tun.name().to_owned(), index: tun.index(), own: all_own, mtu: LARGEST };
        let work = Work {
            tun,
            sender: PacketSender::v6(mark_of(number))?,
            shared: shared.clone(),
            waker: waker.clone(),
            back: Vec::new(),
        };
        std::thread::Builder::new().name(format!("translate-{number}")).spawn(move || work.run())?;
        Ok(Running { described, own, active: false, shared, waker })
    }
}

/// Where this side's IPv4 addresses are written: seen by nobody but this machine. It differs for each device and network of a
/// machine.
fn own_prefix(table: u32, number: u8) -> Prefix {
    let [high, low] = [(table >> 16) as u16, table as u16];
    let address = Ipv6Addr::new(0xfd61, 0x6e61, 0x6272, high, low, number.into(), 0, 0);
    // 96 is a length that there is.
    Prefix::new(address, 96).unwrap_or_else(|| unreachable!("a prefix of 96 bits"))
}

/// Whether it is an address of a translated flow, between its two translations.
pub fn is_own(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments().starts_with(&[0xfd61, 0x6e61, 0x6272]))
}

impl Running {
    fn rest(&mut self) {
        if self.active {
            self.active = false;
            self.shared.set(Some(Task::Rest));
        }
    }

    fn translate(&mut self, far: Prefix, link: u32) {
        let mtu = u16::try_from(link).unwrap_or(u16::MAX).max(LEAST_V6);
        self.active = true;
        // Room for the longer header and a fragment header (RFC 7915 section 4).
        self.described.mtu = u32::from(mtu) - GROWTH;
        self.shared.set(Some(Task::Translate { translator: Translator { own: self.own, far }, mtu }));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.set(None);
        self.waker.wake();
    }
}

impl Shared {
    fn set(&self, task: Option<Task>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }

    fn get(&self) -> Option<Task> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread has.
struct Work {
    tun: Tun,
    sender: PacketSender,
    shared: Arc<Shared>,
    waker: Waker,
    /// IPv4 packets for this machine.
    back: Vec<Vec<u8>>,
}

impl Work {
    fn run(mut self) {
        let outcome = self.poller().and_then(|poller| {
            if let Err(cause) = seccomp::allow_data_plane() {
                warn!("{cause}");
            }
            self.serve(poller)
        });
        if let Err(error) = outcome {
            warn!("{} is no longer translated: {error}", self.tun.name());
        }
    }

    fn poller(&self) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(&self.tun, PACKETS, Interest::Readable)?;
        poller.add(&self.waker, END, Interest::Readable)?;
        Ok(poller)
    }

    /// Until the network is forgotten.
    fn serve(&mut self, mut poller: Poller) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            poller.wait(None, &mut ready)?;
            let Some(task) = self.shared.get() else { return Ok(()) };
            for _ in 0..READS {
                match self.take_in(task) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if !self.back.is_empty() {
                self.tun.write_packets(&self.back)?;
                self.back.clear();
            }
        }
    }

    /// Reads once from the interface and translates what comes.
    fn take_in(&mut self, task: Task) -> io::Result<()> {
        let (sender, back) = (&self.sender, &mut self.back);
        self.tun.read_packets(&mut |packet| {
            let Task::Translate { translator, mtu } = task else { return };
            if packet.first().is_some_and(|first| first >> 4 == 6) {
                match translator.to_v4(packet) {
                    Ok(packet) => back.push(packet),
                    Err(cause) => trace!("an answer is dropped: {cause}"),
                }
            } else if let Err(Untranslated::TooLong { mtu }) = send(sender, &translator, packet, mtu) {
                back.extend(translator.too_long(packet, mtu));
            }
        })?;
        Ok(())
    }
}

fn send(sender: &PacketSender, translator: &Translator, packet: &[u8], mtu: u16) -> Result<(), Untranslated> {
    let outcome = translator.to_v6(packet, mtu, &mut |packet| {
        // A full queue drops, as everywhere; what the path says of sizes comes back as an ICMP message.
        if let Err(error) = sender.send(packet) {
            trace!("a translated packet is not sent: {error}");
        }
    });
    outcome.inspect_err(|cause| trace!("a packet is not translated: {cause}"))
}

const PACKETS: Token = Token(0);
const END: Token = Token(1);
/// Most networks with NAT64 that are used while the daemon runs.
const MOST: usize = 8;
/// Reads before packets are written back, each of up to 64 KiB.
const READS: usize = 16;
/// The largest MTU of a TUN interface.
const LARGEST: u32 = 65_535;
const LEAST_V6: u16 = 1_280;
const GROWTH: u32 = 28;
/// What of the interface's name still has room before `-t64`.
const LONGEST_STEM: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_between_translations_are_known() {
        let prefix = own_prefix(43_858, 64);
        assert_eq!(prefix.address().to_string(), "fd61:6e61:6272:0:ab52:40::");
        assert!(is_own(prefix.embed([10, 99, 0, 1].into()).into()));
        assert!(!is_own("fd61:6e61:6273::1".parse().unwrap()) && !is_own("10.99.0.1".parse().unwrap()));
    }
}
