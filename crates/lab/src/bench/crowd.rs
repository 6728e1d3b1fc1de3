//! Many clients of one gateway in this process, each an endpoint with a socket and nothing else: what they
//! cost, they cost the gateway.

use crate::netbed::{GATEWAY_ADDRESS, NetBed};
use anabranch::control::{BlockingClient, InviteRequest, Seconds};
use anyhow::{Context, bail, ensure};
use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, PublicKey,
    SessionConfig,
};
use policy::PathStatus;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use units::NetworkId;
use wire::hello::{DefaultTreatment, Features, Hello, Name, Reply};
use wire::inner::Ecn;
use wire::join_link::JoinLink;

/// More at once would fill the gateway's socket buffer with handshakes.
const AT_ONCE: usize = 50;
/// The gateway's port, as `gateway init` chooses it.
const PORT: u16 = 4_600;
/// The whole payload of a cable's packet of 1500 bytes.
const CABLE_MTU: u16 = 1_472;
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(2);
const INVITATION_LIFETIME: Seconds = Seconds(600);

/// The clients that joined so far.
#[derive(Default)]
pub(super) struct Crowd {
    clients: Vec<Client>,
}

struct Client {
    endpoint: Endpoint,
    socket: UdpSocket,
    welcomed: bool,
}

impl Crowd {
    /// Lets `count` new clients join, each by an invitation of its own, and waits until all are let in.
    ///
    /// # Errors
    /// If the gateway refuses one or does not answer.
    pub(super) fn join(
        &mut self,
        bed: &NetBed,
        gateway: &BlockingClient,
        count: usize,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for first in (0..count).step_by(AT_ONCE) {
            for number in first..(first + AT_ONCE).min(count) {
                self.clients.push(Client::new(bed, gateway, number)?);
            }
            while !self.clients.iter().all(|client| client.welcomed) {
                ensure!(Instant::now() < deadline, "the gateway did not let all clients in");
                self.work()?;
                std::thread::sleep(STEP);
            }
        }
        Ok(())
    }

    /// Keeps the clients alive for `length`.
    ///
    /// # Errors
    /// If a socket fails.
    pub(super) fn idle(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.work()?;
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    fn work(&mut self) -> anyhow::Result<()> {
        self.clients.iter_mut().try_for_each(Client::work)
    }
}

fn gateway_address() -> Address {
    let remote = SocketAddr::from((GATEWAY_ADDRESS, PORT));
    Address { network: NetworkId(0), carrier: Carrier::Udp, remote }
}

impl Client {
    fn new(bed: &NetBed, gateway: &BlockingClient, number: usize) -> anyhow::Result<Self> {
        let request =
            InviteRequest { name: format!("client {number}"), lifetime_seconds: INVITATION_LIFETIME };
        let invited = gateway.invite(&request).context("invite a client")?;
        let link = JoinLink::parse(&invited.link.0).context("read a join link")?;
        // Any key will do, if only it is a client's own.
        let mut key = [7; 32];
        key[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let config = EndpointConfig {
            key: PrivateKey::new(key),
            session: SessionConfig::default(),
            accept: false,
            retry_above: u32::MAX,
            aes: true,
        };
        let mut endpoint = Endpoint::new(config, key).context("make an endpoint")?;
        let hello = Hello {
            name: Name::new("crowd").context("name a client")?,
            secret: Some(link.secret),
            features: Features::default(),
            treatment: DefaultTreatment::default(),
        };
        let now = linux::clock::now();
        let session = endpoint
            .connect(now, PublicKey(link.public_key), hello.encode(), now.as_nanos())
            .context("begin a session")?;
        let path = PathConfig {
            address: gateway_address(),
            mtu_limit: CABLE_MTU,
            status: PathStatus::Active,
            priority: 0,
        };
        endpoint.add_path(now, session, path);
        let own = SocketAddr::from(([0, 0, 0, 0], 0));
        let socket = bed.device.run(|| -> std::io::Result<UdpSocket> {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
            // Past any0, as the device's own paths are.
            socket.bind_device(Some(NetBed::interface(0).as_bytes()))?;
            socket.bind(&own.into())?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        });
        Ok(Self { endpoint, socket: socket?.context("open a client's socket")?, welcomed: false })
    }

    fn work(&mut self) -> anyhow::Result<()> {
        let now = linux::clock::now();
        let mut buffer = [0; 2_048];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let bytes = &mut buffer[..length];
                    self.endpoint.handle_datagram(now, gateway_address(), Ecn::NotEct, bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("receive as a client"),
            }
        }
        self.endpoint.handle_timeout(now);
        let mut datagram = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut datagram, 1) {
            let bytes = &datagram[..transmit.size];
            self.socket.send_to(bytes, gateway_address().remote).context("send as a client")?;
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let EndpointEvent::Connected { payload, .. } = event {
                match Reply::parse(&payload) {
                    Ok(Reply::Welcome(_)) => self.welcomed = true,
                    other => bail!("the gateway does not welcome a client: {other:?}"),
                }
            }
        }
        Ok(())
    }
}
