//! Programs whose connections are carried by the kernel's MPTCP.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anabranch::control::{BlockingClient, EventSequence, ExplainRequest, Hold, PinRequest, open_socket};
use linux::mptcp::supervised::Supervised;
use linux::mptcp::{PathManager, why_not};
use linux::netlink::Netlink;
use linux::privileges::{self, User};
use linux::signals::EndSignals;
use policy::Treatment;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use socket2::{Domain, Protocol, Socket, Type};

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::direct::{bed, listing, started};
use crate::scenarios::nft;

fn hold() -> Hold {
    Hold { networks: Vec::new(), treatment: Some(Treatment::Mptcp) }
}

/// This program as another user's: has a shell run `script` as `anabranch run --treat mptcp` does.
pub fn supervised(script: &str) -> ExitCode {
    privileges::drop_to(&User::by_name("daemon").unwrap()).unwrap();
    // As a program that this user has started.
    set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    let client = BlockingClient::new(open_socket("any0")).unwrap();
    client.run(&hold()).unwrap();
    let program = Supervised::start(Command::new("bash").args(["-c", script])).unwrap();
    let signals = EndSignals::catch().unwrap();
    let source = |to: SocketAddr| {
        let request =
            ExplainRequest { destination: to.ip(), domain: None, port: to.port(), udp: false, dscp: 0 };
        let explained = client.explain(&request).unwrap();
        Netlink::open().unwrap().address_on(explained.preferred()?, to.is_ipv6()).unwrap()
    };
    let status = program.serve(&signals, source).unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn listener(bed: &Bed, address: SocketAddr) -> TcpListener {
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(8).unwrap();
        socket.into()
    };
    bed.server.run(open).unwrap()
}

/// A counter of the server's kernel.
fn counted(bed: &Bed, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let text = bed.server.run(read).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|known| known == name).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

pub fn a_program_is_carried_by_mptcp() {
    if let Some(why) = why_not() {
        println!("skipped: {why}");
        return;
    }
    let bed = bed();
    let daemon = started(&bed);
    let endpoints = || bed.device.run(|| PathManager::open().unwrap().unwrap().endpoints().unwrap()).unwrap();
    let client = bed.client("device");
    assert_eq!(endpoints(), [], "nobody has asked yet");
    for (hold, said) in [
        (Hold { networks: vec!["wan0".to_owned()], ..hold() }, "leave the network out"),
        (Hold { treatment: Some(Treatment::Bonded), ..hold() }, "need a gateway"),
    ] {
        let refused = client.run(&hold).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let pin = PinRequest { destination: Some("192.0.2.0/24".parse().unwrap()), domain: None, hold: hold() };
    let refused = client.pin(&pin).unwrap_err();
    assert!(refused.to_string().contains("anabranch run --treat mptcp"), "{refused}");

    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_095);
    let server = listener(&bed, address);
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; for turn in {{1..80}}; do head -c 10000 /dev/zero >&3; sleep 0.05; done",
        address.ip(),
        address.port()
    );
    let mut command: Command = bed.device.command(std::env::current_exe().unwrap()).unwrap();
    let mut program = command.args(["SUPERVISED", &script]).spawn().unwrap();
    let (mut stream, peer) = server.accept().unwrap();
    let first = match peer.ip().to_string().as_str() {
        "10.1.0.2" => 0,
        "10.1.1.2" => 1,
        other => panic!("a connection from {other}, not from a network's address"),
    };
    eventually("the other network has joined", || counted(&bed, "MPJoinAckRx") >= 1);
    assert_eq!(endpoints().len(), 2, "{:?}", endpoints());
    assert!(listing(&bed.device).contains("from 10.1.1.2 lookup"), "{}", listing(&bed.device));

    // The network by which it began dies in the middle.
    let (reading, total) = (
        std::thread::spawn(move || {
            let mut total = 0;
            let mut buffer = [0; 4_096];
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return total,
                    length => total += length,
                }
            }
        }),
        80 * 10_000,
    );
    std::thread::sleep(Duration::from_millis(500));
    let cut = Instant::now();
    bed.gateway.set_up(&format!("lan{first}"), false).unwrap();
    eventually("its endpoint is gone", || endpoints().len() == 1);
    assert_eq!(reading.join().unwrap(), total, "every byte has come");
    assert!(program.wait().unwrap().success());
    println!("the transfer ended {:?} after the cut", cut.elapsed());
    bed.gateway.set_up(&format!("lan{first}"), true).unwrap();
    eventually("its endpoint is back", || endpoints().len() == 2);

    // Whoever kills the daemon leaves nothing for good.
    daemon.kill();
    let daemon = started(&bed);
    client.down().unwrap();
    daemon.wait();
    assert_eq!(endpoints(), []);
    assert!(!listing(&bed.device).contains("from 10.1."), "{}", listing(&bed.device));
}

/// With a gateway, too: else the gateway would carry what is to have ways of its own, and both subflows would go over the same paths.
pub fn with_a_gateway_a_program_by_mptcp_goes_past_it() {
    if let Some(why) = why_not() {
        println!("skipped: {why}");
        return;
    }
    let bed = bed();
    let (_gateway, device) = bed.connected();
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_097);
    let server = listener(&bed, address);
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; for turn in {{1..40}}; do head -c 1000 /dev/zero >&3; sleep 0.05; done",
        address.ip(),
        address.port()
    );
    let mut command: Command = bed.device.command(std::env::current_exe().unwrap()).unwrap();
    let mut program = command.args(["SUPERVISED", &script]).spawn().unwrap();
    let (mut stream, peer) = server.accept().unwrap();
    let of_networks = ["10.1.0.2", "10.1.1.2"].map(|address| address.parse::<IpAddr>().unwrap());
    assert!(of_networks.contains(&peer.ip()), "a connection from {peer}, not from a network's address");
    eventually("the other network has joined", || counted(&bed, "MPJoinAckRx") >= 1);
    let endpoints = bed.device.run(|| PathManager::open().unwrap().unwrap().endpoints().unwrap()).unwrap();
    let mut addresses: Vec<IpAddr> = endpoints.iter().map(|endpoint| endpoint.address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, of_networks, "any0 is none of them");
    let read = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(read, 40_000);
    assert!(program.wait().unwrap().success());

    // What does not ask for it goes through the gateway, as before.
    let plain = SocketAddr::new(address.ip(), 8_098);
    let server = bed.server.run(|| TcpListener::bind(plain)).unwrap().unwrap();
    let _stream = bed.device.run(|| TcpStream::connect(plain)).unwrap().unwrap();
    let peer = server.accept().unwrap().1;
    assert!(!of_networks.contains(&peer.ip()), "{peer} goes past the gateway");
    bed.client("device").down().unwrap();
    device.wait();
    let left = bed.device.run(|| PathManager::open().unwrap().unwrap().endpoints().unwrap()).unwrap();
    assert_eq!(left, []);
}

/// A box between all networks and the server takes the option out of further subflows only, so whichever network is the second one is found out.
pub fn what_takes_mptcp_out_is_noticed_and_remembered() {
    what_takes_mptcp_out("tcp option mptcp subtype 1", &["wan0", "wan1"]);
}

/// One network takes it out of everything. What begins there is plain TCP from the first packet on, with a server that has answered in MPTCP elsewhere.
pub fn what_takes_mptcp_out_from_the_beginning_is_noticed_too() {
    what_takes_mptcp_out("iifname \"lan0\"", &["wan0"]);
}

/// `which` SYNs that come to the server, in words of nftables; `of` one of these networks it is told.
fn what_takes_mptcp_out(which: &str, of: &[&str]) {
    if let Some(why) = why_not() {
        println!("skipped: {why}");
        return;
    }
    let bed = bed();
    let daemon = started(&bed);
    let client = bed.client("device");
    let box_on_the_way = format!(
        "table ip box {{ chain strip {{ type filter hook prerouting priority raw; policy accept; \
         tcp flags & (syn | ack) == syn {which} reset tcp option mptcp;\n}}\n}}\n"
    );
    nft(&bed.gateway, &box_on_the_way);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_096);
    let server = listener(&bed, address);
    std::thread::spawn(move || {
        for stream in server.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut std::io::sink()));
        }
    });
    let script = format!(
        "for turn in {{1..6}}; do exec 3<>/dev/tcp/{}/{}; for part in {{1..5}}; do head -c 10000 /dev/zero >&3; sleep 0.1; done; exec 3>&-; done",
        address.ip(),
        address.port()
    );
    let mut command: Command = bed.device.command(std::env::current_exe().unwrap()).unwrap();
    assert!(
        command.args(["SUPERVISED", &script]).status().unwrap().success(),
        "connections work all the same"
    );
    eventually("it is told", || {
        let events = client.events(EventSequence(0)).unwrap();
        let is_of = |subject: &String| of.contains(&subject.as_str());
        events
            .iter()
            .any(|event| event.subject.as_ref().is_some_and(is_of) && event.text.contains("takes MPTCP out"))
    });
    let endpoints = || bed.device.run(|| PathManager::open().unwrap().unwrap().endpoints().unwrap()).unwrap();
    eventually("such a network is left out", || endpoints().len() < 2);
    let explained = client
        .explain(&ExplainRequest {
            destination: address.ip(),
            domain: None,
            port: address.port(),
            udp: false,
            dscp: 0,
        })
        .unwrap();
    let told = explained.networks.iter().any(|network| network.no_mptcp && network.why.contains("MPTCP"));
    assert!(told, "{explained:?}");
    client.down().unwrap();
    daemon.wait();
    assert!(!listing(&bed.device).contains("anabranch_mptcp"), "{}", listing(&bed.device));
}
