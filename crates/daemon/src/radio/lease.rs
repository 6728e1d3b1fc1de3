//! A DHCP client for one network of the radio (RFC 2131, by smoltcp), fed past the kernel: it works before the interface has an address.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use arrayvec::ArrayVec;
use linux::prefix::IpPrefix;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress};
use units::{MacAddress, Timestamp};

/// Frames that wait for the client.
const MOST_FRAMES: usize = 16;
/// Longest Ethernet frame.
const LONGEST: usize = 1_514;
/// Name servers that are taken.
const MOST_SERVERS: usize = 3;
/// A first answer comes within this, or the question is repeated: the way there is one radio link.
const ANSWER_TIME: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(500);
const ETHERNET_IPV4: [u8; 2] = [0x08, 0x00];
const UDP: u8 = 17;
const CLIENT_PORT: [u8; 2] = [0, 68];

/// What a network lent us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    /// Our address and its subnet.
    pub address: IpPrefix,
    /// The way out.
    pub gateway: Option<Ipv4Addr>,
    /// Its name servers.
    pub servers: ArrayVec<Ipv4Addr, MOST_SERVERS>,
}

/// A change of what is lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LeaseChange {
    /// This from now on.
    Lent(Lease),
    /// Nothing any more.
    Ended,
}

/// The client of one network.
pub(super) struct LeaseClient {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    wire: Wire,
}

#[derive(Default)]
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

impl LeaseClient {
    /// Begins to ask as soon as it is polled. `seed`: random.
    pub fn new(now: Timestamp, address: MacAddress, seed: u64) -> Self {
        let mut wire = Wire::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(address.0)));
        config.random_seed = seed;
        let interface = Interface::new(config, &mut wire, instant(now));
        let mut socket = dhcpv4::Socket::new();
        let mut retries = dhcpv4::RetryConfig::default();
        retries.discover_timeout = ANSWER_TIME;
        retries.initial_request_timeout = ANSWER_TIME;
        socket.set_retry_config(retries);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { interface, sockets, handle, wire }
    }

    /// Whether a received Ethernet frame is for this client rather than for the kernel.
    pub fn wants(frame: &[u8]) -> bool {
        let Some([b'\x45'..=b'\x4f', ..]) = frame.get(14..34) else { return false };
        let start = 14 + usize::from(frame[14] & 15) * 4;
        frame.get(12..14) == Some(&ETHERNET_IPV4)
            && frame[23] == UDP
            && frame.get(start + 2..start + 4) == Some(&CLIENT_PORT)
    }

    /// Takes such a frame; more than a few that wait are dropped.
    pub fn receive(&mut self, frame: Vec<u8>) {
        if self.wire.received.len() < MOST_FRAMES {
            self.wire.received.push_back(frame);
        }
    }

    /// Works; gives what changed, if anything did.
    pub fn poll(&mut self, now: Timestamp) -> Option<LeaseChange> {
        self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        match self.sockets.get_mut::<dhcpv4::Socket<'_>>(self.handle).poll()? {
            dhcpv4::Event::Configured(config) => {
                let address =
                    IpPrefix::new(IpAddr::V4(config.address.address()), config.address.prefix_len()).ok()?;
                let servers = config.dns_servers.iter().copied().take(MOST_SERVERS).collect();
                Some(LeaseChange::Lent(Lease { address, gateway: config.router, servers }))
            }
            dhcpv4::Event::Deconfigured => Some(LeaseChange::Ended),
        }
    }

    /// A frame to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.wire.sent.pop_front()
    }

    /// When to poll again.
    pub fn timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let delay = self.interface.poll_delay(instant(now), &self.sockets)?;
        Some(now + Duration::from_micros(delay.total_micros()))
    }
}

fn instant(now: Timestamp) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Departing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Departing<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Arrived(frame), Departing(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Departing<'_>> {
        (self.sent.len() < MOST_FRAMES).then_some(Departing(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = LONGEST;
        capabilities
    }
}

struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

struct Departing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_at_once_and_only_wants_its_own() {
        let mut client = LeaseClient::new(Timestamp::ZERO, MacAddress([2, 0, 0, 0, 0, 1]), 7);
        let start = Timestamp::from_millis(10);
        assert_eq!(client.poll(start), Some(LeaseChange::Ended), "nothing is lent yet");
        let question = client.transmit().unwrap();
        assert_eq!(&question[..6], [0xff; 6]);
        assert_eq!(&question[36..38], [0, 67], "to the server's port");
        assert!(!LeaseClient::wants(&question));
        let mut answer = question.clone();
        answer[36..38].copy_from_slice(&CLIENT_PORT);
        assert!(LeaseClient::wants(&answer));
        for length in 0..answer.len() {
            LeaseClient::wants(&answer[..length]);
        }
        // Without an answer it asks again.
        let again = client.timeout(start).unwrap();
        assert!(again > start && again.since(start) <= Duration::from_secs(1), "{again:?}");
        client.poll(again + Duration::from_millis(1));
        assert!(client.transmit().is_some());
    }
}
