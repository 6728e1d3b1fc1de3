//! Flows, and what holds them to networks: programs, pins, sockets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use anabranch::control::{
    BlockingClient, ClientError, ExplainRequest, FailureCode, Hold, PinRequest, RuleOrigin, open_socket,
    pin_socket,
};
use linux::cgroup::Hierarchy;
use linux::netns::Namespace;
use linux::privileges::{self, User};
use policy::Treatment;
use socket2::{Domain, Socket, Type};

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::direct::{bed, calls, listing, network_of, started};
use crate::lacking::lacking;

/// This program as another user's: `CALLER run NETWORK ADDRESS` is held to the network, calls and waits; `CALLER treat TREATMENT
/// ADDRESS` is treated so, calls, sends a megabyte and waits; `CALLER pin NETWORK DESTINATION` pins. Says what came of it in a line.
pub fn caller(arguments: &[String]) -> ExitCode {
    let [task, network, target] = arguments else { return ExitCode::FAILURE };
    privileges::drop_to(&User::by_name("daemon").unwrap()).unwrap();
    let client = BlockingClient::new(open_socket("any0")).unwrap();
    assert!(
        matches!(client.status(), Err(ClientError::Failed(failure)) if failure.code == FailureCode::NotAllowed)
    );
    let hold = match &task[..] {
        "treat" => Hold {
            networks: Vec::new(),
            treatment: Some(serde_json::from_str(&format!("\"{network}\"")).unwrap()),
        },
        _ => Hold { networks: vec![network.clone()], treatment: None },
    };
    let answer = match &task[..] {
        "run" | "treat" => client.run(&hold).map(|running| running.cgroup),
        _ => {
            let destination = Some(target.parse().unwrap());
            client.pin(&PinRequest { destination, domain: None, hold }).map(|rule| rule.matches)
        }
    };
    match answer {
        Err(error) => println!("{error}"),
        Ok(answer) => {
            // A program that it starts is held too.
            let call = |target: &str| TcpStream::connect(target.parse::<SocketAddr>().unwrap());
            let mut call = (task != "pin").then(|| call(target).unwrap());
            if let Some(call) = call.as_mut().filter(|_| task == "treat") {
                for _ in 0..50 {
                    call.write_all(&[7; 20_000]).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            println!("{answer}");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            drop(call);
        }
    }
    ExitCode::SUCCESS
}

/// A running caller; ends with the test.
pub struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Caller {
    pub fn start(bed: &Bed, arguments: [&str; 3]) -> Self {
        let mut command: Command = bed.device.command(std::env::current_exe().unwrap()).unwrap();
        command.arg("CALLER").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn end(mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), port)
}

pub fn a_program_is_held_to_a_network() {
    let Ok(hierarchy) = Hierarchy::find() else {
        println!("skipped: no control groups of version 2 here");
        return;
    };
    let bed = bed();
    let daemon = started(&bed);
    let client = bed.client("device");
    let listener = bed.server.run(|| TcpListener::bind(server(8_090))).unwrap().unwrap();
    let call = |network| {
        let mut caller = Caller::start(&bed, ["run", network, &server(8_090).to_string()]);
        let (stream, peer) = listener.accept().unwrap();
        (caller.line(), caller, stream, network_of(peer))
    };
    let (group, first, stream, octet) = call("wan1");
    assert_eq!(octet, 1);
    let directory = |group: &str| hierarchy.mount_point().join(group.trim_start_matches('/'));
    assert!(directory(&group).is_dir(), "{group}");
    let flow = client.flows().unwrap().flows.into_iter().find(|flow| flow.destination == server(8_090));
    let flow = flow.unwrap();
    assert_eq!((flow.process, flow.network.as_deref()), (Some(first.child.id()), Some("wan1")));
    assert!(flow.user.is_some_and(|user| user != 0) && flow.why.contains("rule run-1"), "{flow:?}");
    // The same program again, and others meanwhile.
    let (_, second, _, octet) = call("wan0");
    assert_eq!(octet, 0);
    assert_eq!(client.rules().unwrap().len(), 2);
    assert_eq!(calls(&bed, 4), [(0, 2), (1, 2)].into());

    drop(stream);
    first.end();
    eventually("the group of a program that has ended is removed", || !directory(&group).exists());
    eventually("and its rule", || client.rules().unwrap().len() == 1);

    // More than a user may have at once, one after the other.
    for _ in 0..20 {
        let (group, caller, _, octet) = call("wan1");
        assert!(group.starts_with('/') && octet == 1, "{group}");
        caller.end();
    }

    let mut refused = Caller::start(&bed, ["run", "wan7", &server(8_090).to_string()]);
    assert!(refused.line().contains("no network called \"wan7\"; there are: wan0, wan1"));
    client.down().unwrap();
    assert!(daemon.wait());
    let path = hierarchy.path_of(second.child.id()).unwrap();
    assert!(!path.as_str().contains("anabranch-"), "{path}");
}

/// Both networks have the same subnet, router and lease; only the second has a page to log in at, on its router.
pub fn a_program_reaches_what_lies_on_its_network_itself() {
    if Hierarchy::find().is_err() {
        println!("skipped: no control groups of version 2 here");
        return;
    }
    let bed = bed();
    let routers = ["wan0", "wan1"].map(|wan| {
        bed.device.delete_link(wan).unwrap();
        let router = Namespace::anonymous().unwrap();
        bed.device.join(&router, wan, "lan").unwrap();
        bed.device.add_address(wan, "192.168.1.2/24".parse().unwrap()).unwrap();
        router.add_address("lan", "192.168.1.1/24".parse().unwrap()).unwrap();
        router
    });
    for (metric, wan) in [(100, "wan0"), (101, "wan1")] {
        let via = "192.168.1.1".parse().ok();
        bed.device.add_route(wan, "0.0.0.0/0".parse().unwrap(), via, Some(metric)).unwrap();
    }
    let _daemon = started(&bed);
    let page: SocketAddr = "192.168.1.1:8400".parse().unwrap();
    let listener = routers[1].run(|| TcpListener::bind(page)).unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut caller = Caller::start(&bed, ["run", "wan1", "192.168.1.1:8400"]);
    assert!(caller.line().starts_with('/'), "it has not reached the page");
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "192.168.1.2");
    // Others go on to the router that has the route, which has no page.
    let other = bed.device.run(|| TcpStream::connect_timeout(&page, Duration::from_secs(2))).unwrap();
    assert!(other.is_err());
    caller.end();
}

/// A connection that the server has accepted: both ends, and by which network it came.
fn connect(bed: &Bed, port: u16) -> (TcpStream, TcpStream, u8) {
    let listener = bed.server.run(|| TcpListener::bind(server(port))).unwrap().unwrap();
    let call = bed.device.run(|| TcpStream::connect(server(port))).unwrap().unwrap();
    let (answer, peer) = listener.accept().unwrap();
    (call, answer, network_of(peer))
}

/// A program that does what `nft` does, and once direct mode's table is there goes on only when it may.
const HESITANT_NFT: &str = r#"#!/bin/sh
PATH=${PATH#*:}
nft "$@"
code=$?
if nft list table inet anabranch_direct >/dev/null 2>&1; then
    tries=0
    until [ -e "$0.go" ] || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
fi
exit $code
"#;

/// Whether the kernel counts what flows carry; empty where it follows none yet.
fn counted(bed: &Bed) -> String {
    let read = || std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_acct");
    bed.device.run(read).unwrap().unwrap_or_default()
}

/// Flows that begin before the kernel was told to count are not counted for as long as they live, and nothing is learned of them.
pub fn the_first_flow_is_counted_too() {
    let bed = bed();
    let before = counted(&bed);
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    let programs = bed.directory("programs");
    std::fs::create_dir(&programs).unwrap();
    let hesitant = programs.join("nft");
    std::fs::write(&hesitant, HESITANT_NFT).unwrap();
    std::fs::set_permissions(&hesitant, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!("PATH={}:$PATH exec", programs.display());
    let mut command = lacking(&bed, "device", &script);
    let child = bed.arguments("device", &mut command).spawn().unwrap();
    let _daemon = bed.answering("device", child);
    eventually("the first rules hold", || listing(&bed.device).contains("anabranch_direct"));
    // The table may be what brings the kernel's connection tracking.
    if !before.is_empty() {
        assert_eq!(counted(&bed).trim(), "1");
    }
    std::fs::write(programs.join("nft.go"), "").unwrap();
    eventually("new flows are led out", || listing(&bed.device).contains("numgen inc"));
    let (call, _answer, _) = connect(&bed, 8_120);
    let far = call.peer_addr().unwrap();
    let flows = bed.client("device").flows().unwrap().flows;
    let flow = flows.iter().find(|flow| flow.destination == far).unwrap();
    assert!(flow.sent.is_some() && flow.received.is_some(), "{flow:?}");
}

pub fn flows_are_listed_with_their_reasons() {
    let bed = bed();
    let before = counted(&bed);
    let daemon = started(&bed);
    let client = bed.client("device");
    let mut open: BTreeMap<u8, (TcpStream, TcpStream)> = BTreeMap::new();
    // The daemon's own probes take turns too.
    for port in 8_100..8_110 {
        if open.len() < 2 {
            let (call, answer, octet) = connect(&bed, port);
            open.insert(octet, (call, answer));
        }
    }
    assert_eq!(open.len(), 2);
    let ports = open.values().map(|(call, _)| call.peer_addr().unwrap().port()).collect::<Vec<_>>();
    client.flows().unwrap();
    let (call, answer) = open.get_mut(&1).unwrap();
    call.write_all(&[7; 200_000]).unwrap();
    answer.read_exact(&mut [0; 200_000]).unwrap();
    let far = call.peer_addr().unwrap();
    let listed = client.flows().unwrap();
    assert_eq!((listed.left_out, &listed.remarks[..]), (0, &[][..]));
    let of = |port| listed.flows.iter().find(|flow| flow.destination == server(port)).unwrap();
    let flow = of(far.port());
    assert_eq!(flow.network.as_deref(), Some("wan1"));
    assert_eq!(
        (flow.treatment, flow.user, flow.process),
        (Treatment::Direct, Some(0), Some(std::process::id()))
    );
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(flow.program.as_deref(), Some(name.trim()));
    assert!(flow.sent.is_some_and(|sent| sent.0 > 200_000), "{flow:?}");
    assert!(flow.sending.is_some_and(|rate| rate.0 > 100_000) && flow.rtt.is_some(), "{flow:?}");
    assert!(flow.why.starts_with("no rule: 50 %"), "{flow:?}");
    assert_eq!(listed.flows[0], *flow, "the busiest comes first");
    let networks: Vec<&str> = ports.iter().map(|port| of(*port).network.as_deref().unwrap()).collect();
    assert_eq!(networks, ["wan0", "wan1"]);

    client.down().unwrap();
    assert!(daemon.wait());
    assert_eq!(counted(&bed), before);
}

pub fn bonded_flows_are_listed_too() {
    let bed = Bed::new(false);
    let _daemons = bed.connected();
    eventually("flows are followed", || listing(&bed.device).contains("anabranch_direct"));
    let listener = bed.server.run(|| TcpListener::bind(server(8_093))).unwrap().unwrap();
    let _call = bed.device.run(|| TcpStream::connect(server(8_093))).unwrap().unwrap();
    let _answer = listener.accept().unwrap();
    let flows = bed.client("device").flows().unwrap().flows;
    let flow = flows.iter().find(|flow| flow.destination == server(8_093));
    let flow = flow.unwrap_or_else(|| panic!("{flows:?}"));
    assert_eq!((flow.treatment, flow.network.as_ref()), (Treatment::Bonded, None));
    assert!(flow.why.contains("through the gateway"), "{flow:?}");
    let own = flows.iter().filter(|flow| flow.destination.port() == 4_600);
    assert_eq!(own.count(), 0, "the bond's own packets are no flows of the user");
}

pub fn pins_hold_and_are_explained() {
    let bed = bed();
    bed.write_config(
        "device",
        "[device]\ndns = \"off\"\n[[rule]]\nname = \"web\"\nport = 8094\nnetworks = \"wan0\"\n",
    );
    let _daemon = started(&bed);
    let client = bed.client("device");
    let explain = |port| {
        let destination = SERVER_V4.parse().unwrap();
        client.explain(&ExplainRequest { destination, domain: None, port, udp: false, dscp: 0 }).unwrap()
    };
    let usual = explain(8_080);
    assert_eq!((usual.rule.as_deref(), usual.treatment), (None, Treatment::Direct));
    assert!(usual.rules[0].contains("(web): port: wants 8094, is tcp/8080"), "{usual:?}");
    assert_eq!(usual.outcome, "direct, dealt out over wan0 (50 %), wan1 (50 %); there is no gateway");
    let ruled = explain(8_094);
    assert_eq!((ruled.rule.as_deref(), &ruled.outcome[..]), (Some("web"), "direct over wan0 (100 %)"));
    let near = ExplainRequest {
        destination: "10.1.0.1".parse().unwrap(),
        domain: None,
        port: 80,
        udp: true,
        dscp: 0,
    };
    assert!(client.explain(&near).unwrap().outcome.contains("route of its own"));

    let hold = |network: &str| Hold { networks: vec![network.to_owned()], treatment: None };
    let destination = Some("198.51.100.0/24".parse().unwrap());
    let pin = PinRequest { destination, domain: None, hold: hold("wan1") };
    let pinned = client.pin(&pin).unwrap();
    assert_eq!((&pinned.name[..], pinned.origin), ("pin-1", RuleOrigin::Pin));
    assert_eq!(calls(&bed, 4), [(1, 4)].into());
    assert_eq!(connect(&bed, 8_094).2, 1, "a pin comes before the configuration");
    let explained = explain(8_094);
    assert_eq!(explained.rule.as_deref(), Some("pin-1"));
    assert!(explained.rules[1].contains("would match, but an earlier rule decided"), "{explained:?}");
    let origins: Vec<RuleOrigin> = client.rules().unwrap().iter().map(|rule| rule.origin).collect();
    assert_eq!(origins, [RuleOrigin::Pin, RuleOrigin::Configured]);
    client.unpin("pin-1").unwrap();
    assert_eq!(calls(&bed, 4), [(0, 2), (1, 2)].into());

    // Of another user: for that user's flows only.
    let mut caller = Caller::start(&bed, ["pin", "wan1", "198.51.100.0/24"]);
    assert!(caller.line().contains("user "), "the rule names its user");
    assert_eq!(calls(&bed, 4).len(), 2, "others' flows are not pinned");
    caller.end();

    let code = |answer: Result<_, ClientError>| match answer.map(|_| ()) {
        Err(ClientError::Failed(failure)) => failure.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(client.unpin("web")), FailureCode::NotFound);
    assert_eq!(code(client.pin(&PinRequest { hold: hold("gone0"), ..pin.clone() })), FailureCode::NotFound);
    let bonded = Hold { networks: Vec::new(), treatment: Some(Treatment::Duplicated) };
    assert_eq!(code(client.pin(&PinRequest { hold: bonded, ..pin.clone() })), FailureCode::BadRequest);
    assert_eq!(code(client.pin(&PinRequest { destination: None, ..pin })), FailureCode::BadRequest);
}

pub fn a_socket_is_tied_to_a_network() {
    let bed = bed();
    let _daemon = started(&bed);
    let listener = bed.server.run(|| TcpListener::bind(server(8_095))).unwrap().unwrap();
    for (network, octet) in [("wan1", 1), ("wan1", 1), ("wan0", 0), ("wan0", 0)] {
        let call = bed.device.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            pin_socket(&socket, network, "any0").unwrap();
            socket.connect_timeout(&server(8_095).into(), Duration::from_secs(2)).unwrap();
            socket
        });
        let (_answer, peer) = listener.accept().unwrap();
        assert_eq!(network_of(peer), octet, "{network}");
        drop(call);
    }
    // Bound past any0, as any user may do: listed all the same.
    let bound = bed.device.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind_device(Some(b"wan0")).unwrap();
        socket.connect_timeout(&server(8_095).into(), Duration::from_secs(2)).unwrap();
        socket
    });
    let flows = bed.client("device").flows().unwrap().flows;
    let flow = flows.iter().find(|flow| flow.why.contains("bound it to the interface"));
    let flow = flow.unwrap_or_else(|| panic!("{flows:?}"));
    assert_eq!((flow.network.as_deref(), flow.destination), (Some("wan0"), server(8_095)));
    drop(bound);
    let refusal = |tie: &(dyn Fn() -> Result<(), ClientError> + Sync)| match bed.device.run(tie).unwrap() {
        Err(ClientError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    };
    let socket = || Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
    assert_eq!(refusal(&|| pin_socket(socket(), "wan9", "any0")).code, FailureCode::NotFound);
    let file = std::fs::File::open(Path::new("/dev/null")).unwrap();
    let refused = refusal(&|| pin_socket(&file, "wan0", "any0"));
    assert_eq!(refused.code, FailureCode::BadRequest);
    assert!(refused.message.contains("only IPv4 and IPv6 sockets"), "{refused:?}");
}
