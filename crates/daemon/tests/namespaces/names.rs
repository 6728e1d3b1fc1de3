//! DNS in a test: a server that answers what it is told to, and the scenarios about names.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::netns::Namespace;

use crate::bed::{Bed, SERVER_V4, eventually};

/// A DNS server that knows one IPv4 address, for every name.
pub struct Names {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    address: AtomicU32,
    asked: AtomicUsize,
    stop: AtomicBool,
}

impl Names {
    /// Serves at port 53 of `local` in the namespace.
    pub fn serve(space: &Namespace, local: &str, address: &str) -> Self {
        let socket = space.run(|| UdpSocket::bind((local, 53))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let shared = Arc::new(Shared {
            address: AtomicU32::new(0),
            asked: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let mut names = Self { shared: shared.clone(), thread: None };
        names.change(address);
        let thread = std::thread::spawn(move || {
            let mut query = [0; 512];
            while !shared.stop.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut query) else { continue };
                shared.asked.fetch_add(1, Ordering::Relaxed);
                // Who asks before there is a way back asks again.
                let answer = answer(&query[..length], shared.address.load(Ordering::Relaxed));
                drop(socket.send_to(&answer, from));
            }
        });
        names.thread = Some(thread);
        names
    }

    pub fn change(&self, address: &str) {
        let address: Ipv4Addr = address.parse().unwrap();
        self.shared.address.store(address.into(), Ordering::Relaxed);
    }

    /// Questions so far.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// One A record for a question that wants one, else none.
fn answer(query: &[u8], address: u32) -> Vec<u8> {
    let name = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let (question, kind) = (&query[12..12 + name + 5], query[12 + name + 2]);
    let count = u8::from(kind == 1);
    let mut answer = [&query[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
    if count == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.to_be_bytes());
    }
    answer
}

/// The gateway gets another address from its provider. The device has only its name, and while the session is up its own
/// name servers lie behind the gateway; with the kill switch it has had no other from the start.
pub fn a_gateway_that_moves_is_found_by_its_name() {
    for kill_switch in [false, true] {
        let bed = Bed::new(false);
        let gateway = "[gateway]\ndns = [\"198.51.100.9\"]\npublic_addresses = [\"gw.example.org\"]\n";
        bed.write_config("gateway", gateway);
        bed.write_config("device", &format!("[device]\nkill_switch = {kill_switch}\n"));
        let names = Names::serve(&bed.gateway, "10.1.0.1", "203.0.113.1");
        bed.gateway.add_address("wan", "203.0.113.1/32".parse().unwrap()).unwrap();
        let _gateway = bed.start("gateway");
        bed.join();
        let _device = bed.start_with_names("device", "nameserver 10.1.0.1\n");
        bed.wait_until_up();
        bed.download(SERVER_V4, 300_000, || {});
        assert_eq!(remotes(&bed), ["203.0.113.1"; 2]);

        let asked = names.asked();
        names.change("203.0.113.2");
        ip(&bed.gateway, "address add 203.0.113.2/32 dev wan");
        ip(&bed.gateway, "address del 203.0.113.1/32 dev wan");
        eventually("the device follows", || remotes(&bed) == ["203.0.113.2"; 2]);
        assert!(names.asked() > asked);
        bed.wait_until_up();
        bed.download(SERVER_V4, 300_000, || {});
    }
}

fn remotes(bed: &Bed) -> Vec<String> {
    let networks = bed.status().networks;
    let paths = networks.iter().flat_map(|network| &network.paths);
    paths.map(|path| path.remote.ip().to_string()).collect()
}

fn ip(space: &Namespace, arguments: &str) {
    let mut command = space.command("ip").unwrap();
    assert!(command.args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// What else resolv.conf says holds while its servers are others, and all of it comes back.
pub fn resolv_conf_keeps_its_search_list() {
    let bed = Bed::new(false);
    bed.write_config(
        "gateway",
        "[gateway]\ndns = [\"198.51.100.9\"]\npublic_addresses = [\"198.51.100.1\"]\n",
    );
    bed.write_config("device", "");
    let gateway = bed.start("gateway");
    bed.join();
    let before = "# by dhcp\nnameserver 10.1.0.1\nsearch lan example.org\noptions ndots:2 trust-ad\n";
    let device = bed.start_with_names("device", before);
    bed.wait_until_up();
    let read = || std::fs::read_to_string(format!("/proc/{}/root/etc/resolv.conf", device.id())).unwrap();
    let during = read();
    let lines: Vec<&str> = during.lines().skip(1).collect();
    assert_eq!(lines, ["nameserver 198.51.100.9", "search lan example.org", "options ndots:2"]);
    let file = bed.directory("resolv.conf");
    bed.client("device").down().unwrap();
    assert!(device.wait());
    assert_eq!(std::fs::read_to_string(file).unwrap(), before);
    drop(gateway);
}
