//! Becoming the program that is on the disk, in place: for an update that closes no port.
//!
//! ```text
//! worker: asks root to check ----------> root: the new program says whether it could start
//!   | tells every device "renewed", ends        |
//!   '------------------------------------> root: becomes the new program (execve), which keeps the process number, the
//!                                          sockets, the interface and what was changed on the machine
//! ```
//! Sessions end and devices knock again at once; what they send meanwhile waits in the sockets. Keys of sessions are not handed
//! over: they would have to leave the process that alone knows them.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linux::handover::Handover;
use linux::poll::Poller;
use linux::prefix::IpPrefix;
use linux::tcp_carrier::TcpCarrierListener;
use linux::tun::{Tun, TunError};
use linux::udp::{NumberPlaces, UdpPath};
use linux::{BindError, BindTo};
use tracing::{info, warn};
use wire::datagram::{DATA_BIT, DATA_INDEX_AT, HANDSHAKE_INDEX_AT};

use crate::config::GatewayConfig;
use crate::dataplane::{CarrierError, Carriers};

/// How this program is started again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, with which it goes on.
    pub arguments: Vec<OsString>,
    /// What comes behind them for it to say only whether it could start.
    pub check: Vec<OsString>,
}

impl Renewal {
    /// The file that this process was started from, also if another has taken its place, with the arguments of this process.
    ///
    /// # Errors
    /// If the system does not tell the file.
    pub fn of_this_process(check: &[&str]) -> io::Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        let program = match program.to_str().and_then(|path| path.strip_suffix(DELETED)) {
            Some(path) => path.into(),
            None => PathBuf::from(program),
        };
        let check = check.iter().map(OsString::from).collect();
        Ok(Self { program, arguments: std::env::args_os().skip(1).collect(), check })
    }

    /// Whether the program could start.
    ///
    /// # Errors
    /// What it says, or that it says nothing.
    pub fn check(&self) -> Result<(), String> {
        let named = |cause: &dyn std::fmt::Display| format!("{}: {cause}", self.program.display());
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(&self.check).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|error| named(&error))?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().map_err(|error| named(&error))? {
                Some(status) => break status,
                None if Instant::now() < deadline => std::thread::sleep(PAUSE),
                None => {
                    drop(child.kill());
                    drop(child.wait());
                    return Err(named(&format!("does not answer within {} s", PATIENCE.as_secs())));
                }
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(stream) = child.stderr.take() {
            drop(stream.take(LONGEST_ANSWER).read_to_string(&mut said));
        }
        Err(named(&format!("could not start: {}", said.trim())))
    }

    /// Becomes the program; returns only if that fails.
    pub fn carry_out(&self, handover: &Handover) -> io::Error {
        info!("going on as {}", self.program.display());
        handover.become_program(&self.program, &self.arguments)
    }
}

/// Where devices knock.
pub struct Listening {
    /// For each address a socket for each part, in their order.
    udp: Vec<Vec<UdpPath>>,
    /// The first part accepts connections for all.
    tcp: Vec<(SocketAddr, TcpCarrierListener)>,
}

impl Listening {
    /// Opens the sockets of the configuration for as many parts, or goes on with those that were handed over.
    ///
    /// # Errors
    /// If a UDP socket cannot be opened; without TCP and, on machines that have none, IPv6 it goes on.
    pub fn open(config: &GatewayConfig, parts: usize, handover: &mut Handover) -> Result<Self, CarrierError> {
        let mut listening = Self { udp: Vec::new(), tcp: Vec::new() };
        let tcp = |local: &SocketAddr| Some(SocketAddr::new(local.ip(), config.tcp?.get()));
        let names = config.listen.iter().flat_map(|local| (0..parts).map(|part| udp_name(*local, part)));
        let wanted: Vec<String> = names.chain(config.listen.iter().filter_map(tcp).map(tcp_name)).collect();
        // A port must be free before it is bound at another address.
        handover.retain(|name| name.starts_with(TUN) || wanted.iter().any(|wanted| wanted == name));
        for local in &config.listen {
            let adopted = handover.take(&udp_name(*local, 0)).and_then(|socket| UdpPath::adopt(socket).ok());
            match adopted.map_or_else(|| UdpPath::bind(&bind_to(*local)), Ok) {
                Ok(first) => listening.udp.push(udp_sockets(first, parts, handover)?),
                // Machines without IPv6 are common, and "[::]" is the default.
                Err(error) if local.is_ipv6() && local.ip().is_unspecified() => warn!("no IPv6: {error}"),
                Err(error) => return Err(error.into()),
            }
            let Some(local) = tcp(local) else { continue };
            let adopted = handover.take(&tcp_name(local)).map(TcpCarrierListener::adopt);
            match adopted.map_or_else(|| TcpCarrierListener::bind(&bind_to(local)), Ok) {
                Ok(listener) => listening.tcp.push((local, listener)),
                Err(error) => warn!("devices behind networks that block UDP cannot connect: {error}"),
            }
        }
        Ok(listening)
    }

    /// Puts duplicates of all into `handover`.
    ///
    /// # Errors
    /// If there are too many descriptors.
    pub fn hand_over(&self, handover: &mut Handover) -> io::Result<()> {
        for team in &self.udp {
            for (part, path) in team.iter().enumerate() {
                handover.add(udp_name(path.local_address(), part), path.as_fd())?;
            }
        }
        for (local, listener) in &self.tcp {
            handover.add(tcp_name(*local), listener.as_fd())?;
        }
        Ok(())
    }

    /// Takes out the sockets of the first part of those that have none yet, and listens there.
    ///
    /// # Errors
    /// If a socket cannot be watched.
    pub fn attach(&mut self, poller: &Poller, carriers: &mut Carriers) -> Result<(), CarrierError> {
        for team in self.udp.iter_mut().filter(|team| !team.is_empty()) {
            carriers.listen_udp(poller, team.remove(0))?;
        }
        for (_, listener) in self.tcp.drain(..) {
            carriers.listen_tcp(poller, listener)?;
        }
        Ok(())
    }
}

/// A socket for each part, beside the first. Which one gets a datagram is told by the index in it.
fn udp_sockets(first: UdpPath, parts: usize, handover: &mut Handover) -> Result<Vec<UdpPath>, BindError> {
    let local = first.local_address();
    let mut team = vec![first];
    let handed = (1..parts).map_while(|part| handover.take(&udp_name(local, part)));
    team.extend(handed.map_while(|socket| UdpPath::adopt(socket).ok()));
    while let (Some(first), true) = (team.first(), team.len() < parts) {
        let next = first.beside()?;
        team.push(next);
    }
    if let Some(first) = team.first().filter(|_| parts > 1) {
        let places = NumberPlaces { bits: DATA_BIT, with: DATA_INDEX_AT, without: HANDSHAKE_INDEX_AT };
        first.share_out(places, parts as u32)?;
    }
    Ok(team)
}

/// The interface of the configuration with a queue for each part, and whether one of this name was handed over: what was changed on
/// the machine for it holds for this one too, be it the same or made anew.
///
/// # Errors
/// Any [`TunError`].
pub fn interface(
    config: &GatewayConfig,
    addresses: &[IpPrefix],
    parts: usize,
    handover: &mut Handover,
) -> Result<(Vec<Tun>, bool), TunError> {
    let (name, mtu) = (tun_name(&config.interface), config.mtu.into());
    let descriptors: Vec<_> = std::iter::from_fn(|| handover.take(&name)).collect();
    let is_known = !descriptors.is_empty();
    // Its number of queues is settled when it is made.
    if descriptors.len() == parts {
        let adopt = |descriptor| Tun::adopt(descriptor, mtu, addresses);
        match descriptors.into_iter().map(adopt).collect() {
            Ok(queues) => return Ok((queues, true)),
            Err(error) => warn!("the interface is made anew: {error}"),
        }
    } else {
        // Two cannot have one name.
        drop(descriptors);
    }
    Tun::create_queues(&config.interface, mtu, addresses, parts).map(|queues| (queues, is_known))
}

/// The name of its queues among what is handed over.
pub fn tun_name(interface: &str) -> String {
    format!("{TUN}{interface}")
}

/// The first is called as a gateway without parts calls its only one.
fn udp_name(local: SocketAddr, part: usize) -> String {
    match part {
        0 => format!("udp {local}"),
        _ => format!("udp {local} part {part}"),
    }
}

fn tcp_name(local: SocketAddr) -> String {
    format!("tcp {local}")
}

fn bind_to(local: SocketAddr) -> BindTo {
    BindTo { interface: None, local, mark: None }
}

const TUN: &str = "tun ";
/// What Linux says of a running file that was removed.
const DELETED: &str = " (deleted)";
/// Less than the worker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_ANSWER: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Renewal {
        let arguments = vec!["-c".into(), script.into(), "sh".into()];
        Renewal { program: "/bin/sh".into(), arguments, check: vec!["--dry-run".into()] }
    }

    #[test]
    fn sockets_are_gone_on_with_and_make_room_for_others() {
        let listening = |listen: &str, parts: usize, handover: &mut Handover| {
            let config = GatewayConfig { listen: vec![listen.parse().unwrap()], ..GatewayConfig::default() };
            let opened = Listening::open(&config, parts, handover).unwrap();
            let mut next = Handover::default();
            opened.hand_over(&mut next).unwrap();
            let addresses = opened.udp[0].iter().map(|path| path.local_address().to_string()).collect();
            (addresses, next)
        };
        // Whatever port is free.
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let one = format!("127.0.0.1:{free}");
        let (addresses, mut handed): (Vec<String>, _) = listening(&one, 1, &mut Handover::default());
        assert_eq!(addresses, [&*one]);
        // The port was not free meanwhile: these are the same sockets, with others beside them or without some.
        for parts in [1, 3, 2, 4, 1, 2] {
            let (addresses, next) = listening(&one, parts, &mut handed);
            assert_eq!(addresses, vec![&*one; parts]);
            handed = next;
        }
        let all = format!("0.0.0.0:{free}");
        assert_eq!(listening(&all, 2, &mut handed).0, [&*all, &all]);
    }

    #[test]
    fn a_program_that_could_not_start_is_told() {
        assert_eq!(shell("test \"$1\" = --dry-run").check(), Ok(()));
        let told = shell("echo 'line 3: mtu = 5' >&2; exit 1").check().unwrap_err();
        assert!(told.contains("/bin/sh") && told.contains("line 3: mtu = 5"), "{told}");
        let missing = Renewal { program: "/no/such/program".into(), ..shell("") };
        assert!(missing.check().unwrap_err().contains("/no/such/program"));
    }
}
