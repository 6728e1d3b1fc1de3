//! What goes wrong in practice: networks that come under ever new names, routers that all use one subnet, other
//! programs' firewalls, two daemons on one machine.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anabranch::control::{EventKind, EventSequence, PathHealth, SessionState};
use linux::netns::Namespace;

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::scenarios::{kill, nft, shape, snapshot, working_paths};

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// A tethered phone has another name each time, and there is no end to names.
pub fn fifty_networks_come_and_go() {
    let bed = Bed::new(false);
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    let worker = bed.status().pid;
    let before = descriptors(worker);
    bed.gateway.set_sysctl("net.ipv4.conf.all.rp_filter", "0").unwrap();
    for number in 0..50 {
        let name = format!("usb{number}");
        plug_in(&bed, &name);
        if number % 10 == 9 {
            eventually("the new network is used", || path_works(&bed, &name));
        }
        bed.device.delete_link(&name).unwrap();
    }
    eventually("what is gone is not used", || working_paths(&bed) == 2);
    // Some are opened when first needed and kept, probes hold some for a moment; a leak would be one for each network.
    eventually("no descriptor is left of them", || descriptors(worker) <= before + 8);
    bed.download(SERVER_V4, 1_000_000, || {});
}

fn plug_in(bed: &Bed, name: &str) {
    bed.device.join(&bed.gateway, name, "phone").unwrap();
    bed.device.add_address(name, "10.1.7.2/24".parse().unwrap()).unwrap();
    bed.gateway.add_address("phone", "10.1.7.1/24".parse().unwrap()).unwrap();
    bed.device.add_route(name, "0.0.0.0/0".parse().unwrap(), "10.1.7.1".parse().ok(), Some(300)).unwrap();
}

fn path_works(bed: &Bed, name: &str) -> bool {
    let networks = bed.status().networks;
    let network = networks.iter().find(|network| network.name == name);
    network.is_some_and(|network| network.paths.iter().any(|path| path.health == PathHealth::Good))
}

/// DHCP gives another address while a transfer runs.
pub fn a_new_address_loses_nothing() {
    let bed = Bed::new(false);
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    bed.download(SERVER_V4, 20_000_000, || {
        std::thread::sleep(Duration::from_millis(300));
        let arguments = ["address", "del", "10.1.0.2/24", "dev", "wan0"];
        assert!(bed.device.command("ip").unwrap().args(arguments).status().unwrap().success());
        bed.device.add_address("wan0", "10.1.0.77/24".parse().unwrap()).unwrap();
        let via = "10.1.0.1".parse().ok();
        bed.device.add_route("wan0", "0.0.0.0/0".parse().unwrap(), via, Some(100)).unwrap();
        eventually("the gateway hears of the new address", || {
            let clients = bed.client("gateway").gateway_clients().unwrap().clients;
            clients[0].paths.iter().any(|path| path.ip().to_string() == "10.1.0.77")
        });
        eventually("both paths work again", || working_paths(&bed) == 2);
    });
}

/// Two home routers of one make: both networks have the same subnet, the same router and the same lease.
pub fn networks_with_the_same_subnet_work() {
    let bed = Bed::new(false);
    let routers: Vec<Namespace> = (0..2).map(|number| behind_a_router(&bed, number)).collect();
    shape(&bed);
    let (_gateway, device) = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    bed.download(SERVER_V4, 8_000_000, || {});
    for network in bed.status().networks {
        let twins = ["192.168.1.2", "fd01::2"].map(|address| address.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(network.addresses, twins);
        assert!(network.paths[0].traffic.received.0 > 100_000, "{network:#?}");
    }
    drop((device, routers));
}

/// Puts a router that translates addresses where the cable of a network was. All of them are alike on the device's side, down to the
/// hardware address.
pub fn behind_a_router(bed: &Bed, number: u8) -> Namespace {
    let router = Namespace::anonymous().unwrap();
    let (wan, far) = (format!("wan{number}"), format!("lan{number}"));
    bed.device.delete_link(&wan).unwrap();
    bed.device.join(&router, &wan, "lan").unwrap();
    router.join(&bed.gateway, "up", &far).unwrap();
    let mut ip = router.command("ip").unwrap();
    ip.args(["link", "set", "lan", "address", "02:00:5e:00:53:01"]);
    assert!(ip.status().unwrap().success());
    for (space, interface, address) in [
        (&bed.device, wan.as_str(), "192.168.1.2/24".to_owned()),
        (&bed.device, &wan, "fd01::2/64".to_owned()),
        (&router, "lan", "192.168.1.1/24".to_owned()),
        (&router, "lan", "fd01::1/64".to_owned()),
        (&router, "up", format!("10.1.{number}.2/24")),
        (&router, "up", format!("2001:db8:{number}::2/64")),
        (&bed.gateway, &far, format!("10.1.{number}.1/24")),
        (&bed.gateway, &far, format!("2001:db8:{number}::1/64")),
    ] {
        space.add_address(interface, address.parse().unwrap()).unwrap();
    }
    restore_routes(bed, number);
    for (any, via) in [("0.0.0.0/0", format!("10.1.{number}.1")), ("::/0", format!("2001:db8:{number}::1"))] {
        router.add_route("up", any.parse().unwrap(), via.parse().ok(), None).unwrap();
    }
    router.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    router.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    nft(
        &router,
        "table inet translate { chain c { type nat hook postrouting priority srcnat; oifname \"up\" masquerade; } }",
    );
    router
}

/// The device's default routes by such a router, of which a link that goes may take some with it.
pub fn restore_routes(bed: &Bed, number: u8) {
    for (any, via) in [("0.0.0.0/0", "192.168.1.1"), ("::/0", "fd01::1")] {
        let metric = Some(100 + u32::from(number));
        bed.device.add_route(&format!("wan{number}"), any.parse().unwrap(), via.parse().ok(), metric).ok();
    }
}

/// ufw and Docker close the forward chain; nothing that we may do opens it.
pub fn a_closed_firewall_is_told() {
    let bed = Bed::new(false);
    nft(
        &bed.gateway,
        "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; } chain DOCKER-USER { } }",
    );
    let _gateway = bed.start("gateway");
    let events = bed.client("gateway").events(EventSequence(0)).unwrap();
    let warning = events.iter().find(|event| event.kind == EventKind::Warning);
    let text = &warning.expect("a warning").text;
    assert!(text.contains("ip filter FORWARD") && text.contains("iptables -I DOCKER-USER -i any0"), "{text}");
}

/// One network sets every packet to CE, another clears the field: downloads go on, and both are told with what is lost.
pub fn networks_that_mangle_ecn_are_told() {
    let bed = Bed::new(false);
    let _running = bed.connected();
    nft(
        &bed.device,
        "table ip mangle_ecn { chain c { type filter hook prerouting priority raw; iifname wan0 udp sport > 0 ip ecn set ce; \
         iifname wan1 udp sport > 0 ip ecn set not-ect; } }",
    );
    let told = |name: &str, what: &str| {
        let events = bed.client("device").events(EventSequence(0)).unwrap();
        let about = |event: &anabranch::control::Event| event.subject.as_deref() == Some(name);
        events.iter().any(|event| about(event) && event.text.contains(what))
    };
    eventually("both are told", || {
        bed.download(SERVER_V4, 4_000_000, || {});
        told("wan0", "marks every packet") && told("wan1", "lets no marks of congestion through")
    });
}

/// A second device on one machine has marks, a table and an interface of its own; neither carries the other's bond.
pub fn two_devices_live_on_one_machine() {
    let bed = Bed::new(false);
    let before = snapshot(&bed.device);
    let (_gateway, first) = bed.connected();
    bed.write_config("other", "[device]\ndns = \"off\"\ninterface = \"any1\"\nmark = 0x77\ntable = 7700\n");
    bed.join_as("other");
    let second = bed.start("other");
    eventually("the second session is up", || {
        bed.client("other").status().is_ok_and(|status| status.state == SessionState::Up)
    });
    bed.download(SERVER_V4, 2_000_000, || {});
    let through_second = || bed.client("other").status().unwrap().traffic.received.0;
    let quiet = through_second();
    let address: SocketAddr = "198.51.100.9:81".parse().unwrap();
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let stream = bed.device.run(|| connect_over("any1", address)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut far, &[7; 100_000]).unwrap();
    drop(far);
    let mut received = Vec::new();
    { stream }.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 100_000);
    assert!(through_second() >= quiet + 100_000, "it did not come by the second device");
    bed.client("other").down().unwrap();
    assert!(second.wait());
    bed.download(SERVER_V4, 1_000_000, || {});
    bed.client("device").down().unwrap();
    assert!(first.wait());
    assert_eq!(snapshot(&bed.device), before);
}

/// With the mark or the table of another they would take down each other's rules, so the second does not start.
pub fn a_second_device_with_the_same_mark_is_refused() {
    let bed = Bed::new(false);
    let (_gateway, first) = bed.connected();
    let rules = || {
        let mut lines = snapshot(&bed.device);
        lines.retain(|line| line.contains("fwmark 0xab51") || line.contains("table 43857"));
        lines
    };
    let during = rules();
    // The last: one of the tables that belong to networks of the first.
    for settings in ["", "mark = 0x77", "table = 7700", "mark = 0x77\ntable = 43800"] {
        bed.write_config("other", &format!("[device]\ndns = \"off\"\ninterface = \"any1\"\n{settings}\n"));
        if settings.is_empty() {
            bed.join_as("other");
        }
        let said = bed.start_in_vain("other");
        assert!(said.contains("another device or program on this machine uses the firewall mark"), "{said}");
    }
    assert_eq!(rules(), during);
    bed.download(SERVER_V4, 1_000_000, || {});
    // What was left by one that is dead and whose journal is lost stands in nobody's way.
    let journal = bed.directory("device").join("undo.json");
    let worker = bed.status().pid;
    first.kill();
    eventually("the worker died too", || !fs::exists(format!("/proc/{worker}")).unwrap());
    fs::remove_file(journal).unwrap();
    let first = bed.start("device");
    bed.wait_until_up();
    bed.download(SERVER_V4, 300_000, || {});
    bed.client("device").down().unwrap();
    assert!(first.wait());
    assert_eq!(rules(), [""; 0]);
}

/// The same of the older kind, which nft does not show. The gateway's status says it too.
pub fn a_closed_legacy_firewall_is_told() {
    let bed = Bed::new(false);
    let close = ["-P", "FORWARD", "DROP"];
    let closed = bed.gateway.command("iptables-legacy").unwrap().args(close).status();
    if !closed.is_ok_and(|status| status.success()) {
        println!("skipped: iptables-legacy is missing, or the kernel has none of it");
        return;
    }
    let (_gateway, _device) = bed.connected();
    let why = bed.client("gateway").status().unwrap().why;
    assert!(why.contains("FORWARD of iptables-legacy"), "{why}");
    let remedy = why.split("let it through: ").nth(1).unwrap();
    let reach = || {
        let address: SocketAddr = "198.51.100.9:83".parse().unwrap();
        let _listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(1))).unwrap().is_ok()
    };
    assert!(!reach());
    assert!(bed.gateway.command("sh").unwrap().args(["-c", remedy]).status().unwrap().success());
    assert!(reach(), "the remedy does not help: {remedy}");
}

fn connect_over(interface: &str, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind_device(Some(interface.as_bytes())).unwrap();
    socket.connect_timeout(&address.into(), Duration::from_secs(5)).unwrap();
    socket.into()
}

/// Each thing that `down` undoes was told by `up --dry-run`.
pub fn what_down_undoes_was_told_before() {
    let bed = Bed::new(false);
    bed.write_config("device", "[device]\nkill_switch = true\n");
    bed.write_config(
        "gateway",
        "[gateway]\ndns = [\"198.51.100.9\"]\npublic_addresses = [\"198.51.100.1\"]\n",
    );
    bed.device.set_sysctl("net.ipv4.conf.wan1.rp_filter", "1").unwrap();
    let _gateway = bed.start("gateway");
    bed.join();
    let directory = bed.directory("device");
    let state = identity::StateDirectory::open(&directory, "the test").unwrap();
    let config = daemon::config::Config::read(&directory.join("config.toml")).unwrap();
    let plan = daemon::device::plan(&daemon::device::DeviceOptions { state, config }).unwrap();
    let device = bed.start_with_names("device", "nameserver 10.1.0.1\n");
    bed.wait_until_up();
    eventually("direct mode is ready", || {
        snapshot(&bed.device)
            .iter()
            .any(|line| line.contains("lookup 43859") || line.contains("anabranch_direct"))
    });
    let report = bed.client("device").down().unwrap();
    assert!(device.wait() && report.failed.is_empty(), "{report:?}");
    for undone in &report.undone {
        // Networks are found while it runs, so what each gets is told once, by its kind.
        let of_networks =
            ["rule IPv4 32490", "rule IPv6 32490", "routing table 438", "rp_filter", "tracked connections"];
        let told = match of_networks.iter().find(|kind| undone.contains(*kind)) {
            Some(kind) => kind.rsplit(' ').next().unwrap_or(kind),
            None => undone.split(' ').skip(1).find(|word| word.contains(['/', '_', ':'])).unwrap_or(undone),
        };
        assert!(plan.iter().any(|line| line.contains(told)), "{undone} ({told}) is not in {plan:#?}");
    }
    assert!(report.undone.len() >= 10, "{report:?}");
}

/// A gateway whose worker is killed leaves nothing behind either.
/// Everything of the machine that a gateway may change.
pub fn ruleset(bed: &Bed) -> (String, [String; 3]) {
    let output = bed.gateway.command("nft").unwrap().args(["list", "ruleset"]).output().unwrap();
    let forwarding = ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/wan/accept_ra"];
    let read = |key: &str| {
        let path = format!("/proc/sys/net/{key}");
        bed.gateway.run(|| fs::read_to_string(path)).unwrap().unwrap()
    };
    (String::from_utf8_lossy(&output.stdout).into_owned(), forwarding.map(read))
}

pub fn the_gateway_is_as_before() {
    let bed = Bed::new(false);
    let ruleset = || ruleset(&bed);
    let before = ruleset();
    let gateway = bed.start("gateway");
    assert_ne!(ruleset(), before);
    let worker = bed.client("gateway").status().unwrap().pid;
    kill(worker);
    assert!(!gateway.wait(), "a crash is not a good end");
    assert_eq!(ruleset(), before);
    let gateway = bed.start("gateway");
    gateway.kill();
    assert_ne!(ruleset(), before, "nobody was left to clean up");
    let gateway = bed.start("gateway");
    bed.client("gateway").down().unwrap();
    assert!(gateway.wait());
    assert_eq!(ruleset(), before);
}
