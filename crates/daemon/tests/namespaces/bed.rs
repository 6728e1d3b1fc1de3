//! The machines and cables of a test, and what is done with them.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anabranch::control::{BlockingClient, InviteRequest, Seconds, Status};
use identity::{KeyPair, Peers, Registry, StateDirectory, wall_time};
use linux::netns::Namespace;
use tempfile::TempDir;
use wire::join_link::JoinLink;

use crate::clock::Clock;

/// A device with the networks `wan0` and `wan1`, a gateway, and a server behind it.
pub struct Bed {
    pub device: Namespace,
    pub gateway: Namespace,
    pub server: Namespace,
    /// A gateway behind the first one's machine.
    second: Option<Namespace>,
    directory: TempDir,
}

/// A daemon that ends with the test.
pub struct Daemon(Child);

impl Daemon {
    /// A child that is a daemon.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// The supervising process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// As `kill -9`.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it ends by itself; whether it did so without error.
    pub fn wait(mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    /// The same where it is not sure that it ends.
    pub fn ends(self, what: &str) -> bool {
        let process = RefCell::new(self);
        eventually(what, || process.borrow_mut().0.try_wait().unwrap().is_some());
        process.into_inner().wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub const SERVER_V4: &str = "198.51.100.9";
pub const SERVER_V6: &str = "2001:db8:9::9";
/// The other gateway.
pub const SECOND: &str = "second";
pub const SECOND_V4: &str = "10.2.0.2";
/// What it calls the device.
pub const VAN_AT_SECOND: &str = "van-2";

impl Bed {
    /// `outside_v6`: the networks between device and gateway have IPv6 only.
    pub fn new(outside_v6: bool) -> Self {
        let space = || Namespace::anonymous().unwrap();
        let bed = Self {
            device: space(),
            gateway: space(),
            server: space(),
            second: None,
            directory: TempDir::new().unwrap(),
        };
        for number in 0..2 {
            let (near, far) = (format!("wan{number}"), format!("lan{number}"));
            bed.device.join(&bed.gateway, &near, &far).unwrap();
            let (device, gateway, any) = if outside_v6 {
                (format!("2001:db8:{number}::2/64"), format!("2001:db8:{number}::1/64"), "::/0")
            } else {
                (format!("10.1.{number}.2/24"), format!("10.1.{number}.1/24"), "0.0.0.0/0")
            };
            bed.device.add_address(&near, device.parse().unwrap()).unwrap();
            bed.gateway.add_address(&far, gateway.parse().unwrap()).unwrap();
            let via: IpAddr = gateway.split('/').next().unwrap().parse().unwrap();
            bed.device.add_route(&near, any.parse().unwrap(), Some(via), Some(100 + number)).unwrap();
        }
        bed.gateway.join(&bed.server, "wan", "lan").unwrap();
        for (space, interface, address) in [
            (&bed.gateway, "wan", "198.51.100.1/24"),
            (&bed.gateway, "wan", "2001:db8:9::1/64"),
            (&bed.server, "lan", "198.51.100.9/24"),
            (&bed.server, "lan", "2001:db8:9::9/64"),
        ] {
            space.add_address(interface, address.parse().unwrap()).unwrap();
        }
        bed.write_config(
            "gateway",
            "[gateway]\ndns = []\npublic_addresses = [\"198.51.100.1\", \"2001:db8:9::1\"]\n",
        );
        bed.write_config("device", "[device]\ndns = \"off\"\n");
        let state = bed.state("gateway");
        KeyPair::load_or_create(&state).unwrap();
        drop(Registry::create(&state, identity::Ipv4Pool::default()).unwrap());
        bed
    }

    /// The same with another gateway, the role [`SECOND`], at [`SECOND_V4`]. The first one's machine is the router to it, and stays that
    /// when its gateway ends.
    pub fn with_second_gateway() -> Self {
        let mut bed = Self::new(false);
        let second = Namespace::anonymous().unwrap();
        bed.gateway.set_sysctl("net/ipv4/ip_forward", "1").unwrap();
        bed.gateway.join(&second, "side", "wan").unwrap();
        bed.gateway.add_address("side", "10.2.0.1/24".parse().unwrap()).unwrap();
        second.add_address("wan", format!("{SECOND_V4}/24").parse().unwrap()).unwrap();
        let everything = "0.0.0.0/0".parse().unwrap();
        second.add_route("wan", everything, "10.2.0.1".parse().ok(), None).unwrap();
        bed.server.add_route("lan", everything, "198.51.100.1".parse().ok(), None).unwrap();
        bed.second = Some(second);
        bed.write_config(
            SECOND,
            &format!("name = \"{SECOND}\"\n[gateway]\ndns = []\npublic_addresses = [\"{SECOND_V4}\"]\n"),
        );
        KeyPair::load_or_create(&bed.state(SECOND)).unwrap();
        drop(Registry::create(&bed.state(SECOND), identity::Ipv4Pool::default()).unwrap());
        bed
    }

    pub fn directory(&self, role: &str) -> PathBuf {
        self.directory.path().join(role)
    }

    fn state(&self, role: &str) -> StateDirectory {
        StateDirectory::create(self.directory(role)).unwrap()
    }

    pub fn write_config(&self, role: &str, text: &str) {
        let directory = self.state(role).path().to_owned();
        fs::write(directory.join("config.toml"), text).unwrap();
    }

    pub fn client(&self, role: &str) -> BlockingClient {
        BlockingClient::of_state(&self.directory(role)).unwrap()
    }

    /// Starts a daemon and waits until its control socket answers.
    pub fn start(&self, role: &str) -> Daemon {
        self.answering(role, self.command(role).spawn().unwrap())
    }

    /// The same where the clocks are not the machine's.
    pub fn start_with_clock(&self, role: &str, clock: &Clock) -> Daemon {
        let mut command = self.command(role);
        clock.apply(&mut command);
        self.answering(role, command.spawn().unwrap())
    }

    /// The same for a device whose `/etc/resolv.conf` has this content, in mounts of its own.
    pub fn start_with_names(&self, role: &str, resolv_conf: &str) -> Daemon {
        let file = self.directory.path().join("resolv.conf");
        fs::write(&file, resolv_conf).unwrap();
        let mut command = self.device.command("unshare").unwrap();
        let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(file);
        self.answering(role, self.arguments(role, &mut command).spawn().unwrap())
    }

    /// Starts a daemon that is to end by itself; what it said.
    pub fn start_in_vain(&self, role: &str) -> String {
        let output = self.command(role).output().unwrap();
        assert!(!output.status.success(), "it has started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// This program as the daemon of `role`; gateways are in the gateway's namespace, all others in the device's.
    pub fn command(&self, role: &str) -> Command {
        let space = match role {
            "gateway" => &self.gateway,
            SECOND => self.second.as_ref().unwrap(),
            _ => &self.device,
        };
        let mut command = space.command(std::env::current_exe().unwrap()).unwrap();
        command.args(["DAEMON", role]).arg(self.directory(role));
        command
    }

    /// The same at the end of another command.
    pub fn arguments<'a>(&self, role: &str, command: &'a mut Command) -> &'a mut Command {
        command.arg(std::env::current_exe().unwrap()).args(["DAEMON", role]).arg(self.directory(role))
    }

    /// Waits until the daemon that was started answers.
    pub fn answering(&self, role: &str, child: Child) -> Daemon {
        let daemon = Daemon(child);
        eventually(&format!("the {role} answers"), || self.client(role).status().is_ok());
        daemon
    }

    /// Invites a device and has it join, as `gateway invite` and `join -` do.
    pub fn join(&self) {
        self.join_as("device");
    }

    /// The same for another state directory.
    pub fn join_as(&self, role: &str) {
        self.join_at("gateway", role);
    }

    /// The same at this gateway.
    pub fn join_at(&self, gateway: &str, role: &str) {
        // Gateways that share a registry have each name once.
        let name = match (gateway, role) {
            (SECOND, _) => VAN_AT_SECOND,
            (_, "device") => "van",
            _ => role,
        };
        let request = InviteRequest { name: name.to_owned(), lifetime_seconds: Seconds(600) };
        let invited = self.client(gateway).invite(&request).unwrap();
        let link = JoinLink::parse(&invited.link.0).unwrap();
        let state = self.state(role);
        let own = KeyPair::load_or_create(&state).unwrap().public();
        Peers::change(&state, |peers| peers.join(&link, None, own, wall_time())).unwrap();
    }

    /// Gateway and device, connected.
    pub fn connected(&self) -> (Daemon, Daemon) {
        let gateway = self.start("gateway");
        self.join();
        let device = self.start("device");
        self.wait_until_up();
        (gateway, device)
    }

    pub fn status(&self) -> Status {
        self.client("device").status().unwrap()
    }

    /// What a monitoring program on the device gets from the daemon's web address.
    pub fn figures(&self) -> String {
        let token = fs::read_to_string(self.directory("device").join("web-token")).unwrap();
        let head = format!(
            "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:4680\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            token.trim()
        );
        let mut stream = self.device.run(|| TcpStream::connect("127.0.0.1:4680")).unwrap().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn wait_until_up(&self) {
        let up = anabranch::control::SessionState::Up;
        eventually("the session is up", || {
            self.client("device").status().is_ok_and(|status| status.state == up)
        });
    }

    /// Downloads `length` bytes from the server to the device, `during` meanwhile; returns the longest pause.
    ///
    /// The server sends about 20 MB/s, so that the transfer takes a known time.
    pub fn download(&self, server: &str, length: usize, during: impl FnOnce()) -> Duration {
        let address = SocketAddr::new(server.parse().unwrap(), 8_080);
        let listener = self.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let Some(mut stream) = accept(&listener) else { return };
                // Else a reader that has failed would keep it for the kernel's quarter of an hour.
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                for start in (0..length).step_by(CHUNK) {
                    stream.write_all(&pattern(start, CHUNK.min(length - start))).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let reader = scope.spawn(move || {
                let limit = Duration::from_secs(10);
                let stream = self.device.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
                let mut stream = stream.expect("the server is not reached through any0");
                stream.set_read_timeout(Some(limit)).unwrap();
                let (mut received, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
                let mut buffer = vec![0; 65_536];
                loop {
                    let count = stream.read(&mut buffer).unwrap();
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                    if count == 0 {
                        break;
                    }
                    received.extend_from_slice(&buffer[..count]);
                }
                assert!(received == pattern(0, length), "the bytes were changed on their way");
                longest
            });
            during();
            reader.join().unwrap()
        })
    }
}

/// The first connection; `None` if nobody comes.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return Some(stream);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

const CHUNK: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(30);

fn pattern(start: usize, length: usize) -> Vec<u8> {
    (start..start + length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Waits until `wanted`, for at most half a minute: a busy machine takes its time.
pub fn eventually(what: &str, wanted: impl Fn() -> bool) {
    within(Duration::from_secs(30), what, wanted);
}

/// Waits until `wanted`, for at most `limit`.
pub fn within(limit: Duration, what: &str, wanted: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !wanted() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
