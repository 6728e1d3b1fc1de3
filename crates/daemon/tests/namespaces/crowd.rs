//! A thousand clients on one gateway, each as small as its endpoint: what a gateway needs for an idle client.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anabranch::control::{InviteRequest, Seconds};
use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, PublicKey,
    SessionConfig,
};
use policy::PathStatus;
use units::NetworkId;
use wire::hello::{DefaultTreatment, Features, Hello, Name, Reply};
use wire::inner::Ecn;
use wire::join_link::JoinLink;

use crate::bed::Bed;

const CLIENTS: usize = 1_000;
/// More than one client may ask for at once without filling a socket's buffer.
const AT_ONCE: usize = 50;

struct Client {
    endpoint: Endpoint,
    socket: UdpSocket,
    remote: SocketAddr,
    welcomed: bool,
}

impl Client {
    fn new(bed: &Bed, number: usize) -> Self {
        let request = InviteRequest { name: format!("client {number}"), lifetime_seconds: Seconds(600) };
        let link = JoinLink::parse(&bed.client("gateway").invite(&request).unwrap().link.0).unwrap();
        let mut key = [7; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let config = EndpointConfig {
            key: PrivateKey::new(key),
            session: SessionConfig::default(),
            accept: false,
            retry_above: u32::MAX,
            aes: false,
        };
        let mut endpoint = Endpoint::new(config, key).unwrap();
        let hello = Hello {
            name: Name::new("crowd").unwrap(),
            secret: Some(link.secret),
            features: Features::default(),
            treatment: DefaultTreatment::default(),
        };
        let now = linux::clock::now();
        let session =
            endpoint.connect(now, PublicKey(link.public_key), hello.encode(), now.as_nanos()).unwrap();
        let remote: SocketAddr = "10.1.0.1:4600".parse().unwrap();
        let path = PathConfig {
            address: Address { network: NetworkId(0), carrier: Carrier::Udp, remote },
            mtu_limit: 1_472,
            status: PathStatus::Active,
            priority: 0,
        };
        endpoint.add_path(now, session, path);
        let socket = bed.device.run(|| UdpSocket::bind("10.1.0.2:0")).unwrap().unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { endpoint, socket, remote, welcomed: false }
    }

    fn work(&mut self) {
        let now = linux::clock::now();
        let mut buffer = vec![0; 2_048];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let from = Address { network: NetworkId(0), carrier: Carrier::Udp, remote: self.remote };
                    self.endpoint.handle_datagram(now, from, Ecn::NotEct, &mut buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.endpoint.handle_timeout(now);
        let mut datagram = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut datagram, 1) {
            self.socket.send_to(&datagram[..transmit.size], self.remote).unwrap();
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let EndpointEvent::Connected { payload, .. } = event {
                assert!(matches!(Reply::parse(&payload), Ok(Reply::Welcome(_))));
                self.welcomed = true;
            }
        }
    }
}

fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub fn a_thousand_idle_clients_are_small() {
    let bed = Bed::new(false);
    let _gateway = bed.start("gateway");
    let process = bed.client("gateway").status().unwrap().pid;
    let before = resident(process);
    let mut clients: Vec<Client> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    while clients.len() < CLIENTS {
        let next = clients.len()..(clients.len() + AT_ONCE).min(CLIENTS);
        clients.extend(next.map(|number| Client::new(&bed, number)));
        while !clients.iter().all(|client| client.welcomed) {
            assert!(Instant::now() < deadline, "not all clients were let in");
            clients.iter_mut().for_each(Client::work);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // Let paths be validated and measured.
    let settled = Instant::now() + Duration::from_secs(3);
    while Instant::now() < settled {
        clients.iter_mut().for_each(Client::work);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bed.client("gateway").status().unwrap().connected_clients, Some(CLIENTS));
    let each = (resident(process) - before) / CLIENTS as u64;
    println!("{each} kB a client");
    assert!(each < 60, "{each} kB a client");
}
