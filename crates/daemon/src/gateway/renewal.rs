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

use linux::BindTo;
use linux::handover::Handover;
use linux::poll::Poller;
use linux::prefix::IpPrefix;
use linux::tcp_carrier::TcpCarrierListener;
use linux::tun::{Tun, TunError};
use linux::udp::UdpPath;
use tracing::{info, warn};

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
    udp: Vec<UdpPath>,
    tcp: Vec<(SocketAddr, TcpCarrierListener)>,
}

impl Listening {
    /// Opens the sockets of the configuration, or goes on with those that were handed over.
    ///
    /// # Errors
    /// If a UDP socket cannot be opened; without TCP and, on machines that have none, IPv6 it goes on.
    pub fn open(config: &GatewayConfig, handover: &mut Handover) -> Result<Self, CarrierError> {
        let mut listening = Self { udp: Vec::new(), tcp: Vec::new() };
        let tcp = |local: &SocketAddr| Some(SocketAddr::new(local.ip(), config.tcp?.get()));
        let names = config.listen.iter().map(|local| udp_name(*local));
        let wanted: Vec<String> = names.chain(config.listen.iter().filter_map(tcp).map(tcp_name)).collect();
        // A port must be free before it is bound at another address.
        handover.retain(|name| name.starts_with(TUN) || wanted.iter().any(|wanted| wanted == name));
        for local in &config.listen {
            let adopted = handover.take(&udp_name(*local)).and_then(|socket| UdpPath::adopt(socket).ok());
            let bound = adopted.map_or_else(|| UdpPath::bind(&bind_to(*local)), Ok);
            match bound {
                Ok(path) => listening.udp.push(path),
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
        for path in &self.udp {
            handover.add(udp_name(path.local_address()), path.as_fd())?;
        }
        for (local, listener) in &self.tcp {
            handover.add(tcp_name(*local), listener.as_fd())?;
        }
        Ok(())
    }

    /// Listens.
    ///
    /// # Errors
    /// If a socket cannot be watched.
    pub fn attach(self, poller: &Poller, carriers: &mut Carriers) -> Result<(), CarrierError> {
        for path in self.udp {
            carriers.listen_udp(poller, path)?;
        }
        for (_, listener) in self.tcp {
            carriers.listen_tcp(poller, listener)?;
        }
        Ok(())
    }
}

/// The interface of the configuration, or the one that was handed over; and whether it is that.
///
/// # Errors
/// Any [`TunError`].
pub fn interface(
    config: &GatewayConfig,
    addresses: &[IpPrefix],
    handover: &mut Handover,
) -> Result<(Tun, bool), TunError> {
    if let Some(descriptor) = handover.take(&tun_name(&config.interface)) {
        match Tun::adopt(descriptor, config.mtu.into(), addresses) {
            Ok(tun) => return Ok((tun, true)),
            Err(error) => warn!("the interface is made anew: {error}"),
        }
    }
    Tun::create(&config.interface, config.mtu.into(), addresses).map(|tun| (tun, false))
}

/// Its name among what is handed over.
pub fn tun_name(interface: &str) -> String {
    format!("{TUN}{interface}")
}

fn udp_name(local: SocketAddr) -> String {
    format!("udp {local}")
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
        let listening = |listen: &str, handover: &mut Handover| {
            let config = GatewayConfig { listen: vec![listen.parse().unwrap()], ..GatewayConfig::default() };
            let opened = Listening::open(&config, handover).unwrap();
            let mut next = Handover::default();
            opened.hand_over(&mut next).unwrap();
            (opened.udp[0].local_address().to_string(), opened.tcp.len(), next)
        };
        // Whatever port is free.
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let one = format!("127.0.0.1:{free}");
        let (address, _, mut handed) = listening(&one, &mut Handover::default());
        assert_eq!(address, one);
        let (again, _, mut handed) = listening(&one, &mut handed);
        assert_eq!(again, one, "the port was not free: it is the same socket");
        let all = format!("0.0.0.0:{free}");
        assert_eq!(listening(&all, &mut handed).0, all);
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
