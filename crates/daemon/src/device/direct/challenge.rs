//! Making a host of a LAN show itself, whose connection has no network any more.
//!
//! Such a host may only be receiving: it sends nothing that a reset could be the answer to, and would wait for ever. Only a
//! reset with the very next sequence number is believed (RFC 5961 section 3.2), which nobody here knows. So the host gets the second packet
//! of a handshake, as if from its peer. It is out of place in an open connection, and the host says so with an acknowledgement
//! (section 4.2). That is a packet of a flow that nobody knows; the firewall resets it with the right number.

//!
//! It is said again twice: the packet may be lost on a LAN's Wi-Fi, and a host that has just acknowledged something out of place keeps
//! silent for half a second (Linux's `tcp_invalid_ratelimit`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linux::packet_sender::PacketSender;
use linux::tun::write_checksum;
use tracing::debug;
use units::Timestamp;

/// A host behind this machine and its peer, as the host sees them.
pub type Ends = (SocketAddr, SocketAddr);

/// Challenges that are to be said again.
#[derive(Debug, Default)]
pub struct Challenges(Vec<Round>);

#[derive(Debug)]
struct Round {
    due: Timestamp,
    /// How often they were said.
    said: usize,
    own_mark: u32,
    ends: Vec<Ends>,
}

impl Challenges {
    /// Makes hosts show what they still have open, at once and twice again. The packets have the mark `own_mark`: they are led nowhere
    /// else.
    pub fn begin(&mut self, now: Timestamp, own_mark: u32, ends: Vec<Ends>) {
        if ends.is_empty() {
            return;
        }
        say(own_mark, &ends);
        let waiting: usize = self.0.iter().map(|round| round.ends.len()).sum();
        if waiting + ends.len() <= MOST {
            self.0.push(Round { due: now + PAUSES[0], said: 1, own_mark, ends });
        }
    }

    /// When to call [`Self::advance`] next; `None` if there is nothing to say.
    pub fn due(&self) -> Option<Timestamp> {
        self.0.iter().map(|round| round.due).min()
    }

    /// Says what is due.
    pub fn advance(&mut self, now: Timestamp) {
        for round in self.0.iter_mut().filter(|round| round.due <= now) {
            say(round.own_mark, &round.ends);
            round.due = now + PAUSES.get(round.said).copied().unwrap_or_default();
            round.said += 1;
        }
        self.0.retain(|round| round.said <= PAUSES.len());
    }
}

/// One packet for each. Their senders are opened when they are needed first.
fn say(own_mark: u32, ends: &[Ends]) {
    let (mut v4, mut v6) = (None, None);
    for (host, peer) in ends {
        let outcome = match host.ip() {
            IpAddr::V4(_) => send(&mut v4, || PacketSender::v4(own_mark), *host, *peer),
            IpAddr::V6(_) => send(&mut v6, || PacketSender::v6(own_mark), *host, *peer),
        };
        if let Err(error) = outcome {
            debug!("{host} is not told that its connection to {peer} is over: {error}");
        }
    }
}

fn send(
    sender: &mut Option<PacketSender>,
    open: impl FnOnce() -> io::Result<PacketSender>,
    host: SocketAddr,
    peer: SocketAddr,
) -> io::Result<()> {
    let packet = packet(peer, host).ok_or(io::ErrorKind::InvalidInput)?;
    match sender {
        Some(sender) => sender.send(&packet),
        None => sender.insert(open()?).send(&packet),
    }
}

/// A SYN with an acknowledgement, both numbers 0; `None` if the addresses are of two families.
fn packet(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let mut bytes = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes = vec![0x45, 0, 0, (IPV4_HEADER + TCP_HEADER) as u8, 0, 0, 0, 0, HOPS, TCP, 0, 0];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut bytes = vec![0x60, 0, 0, 0, 0, TCP_HEADER as u8, TCP, HOPS];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes
        }
        _ => return None,
    };
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend([(TCP_HEADER as u8 / 4) << 4, SYN | ACK, 0, 0, 0, 0, 0, 0]);
    write_checksum(&mut bytes).then_some(bytes)
}

/// Before the second and the third time.
const PAUSES: [Duration; 2] = [Duration::from_millis(700), Duration::from_millis(1_500)];
/// Connections that are challenged again at one time. Beyond, they are challenged once.
const MOST: usize = 100_000;
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const HOPS: u8 = 64;
const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_have_the_peers_address_and_a_right_checksum() {
        let v4 = packet(socket("192.0.2.1:443"), socket("10.20.0.7:40000")).unwrap();
        assert_eq!(v4.len(), 40);
        assert_eq!((&v4[12..16], &v4[16..20]), (&[192, 0, 2, 1][..], &[10, 20, 0, 7][..]));
        assert_eq!((&v4[20..22], &v4[22..24]), (&[1, 0xbb][..], &[0x9c, 0x40][..]));
        // By hand: addresses, protocol, length and header without its checksum.
        let words = [0xc000_u32, 0x0201, 0x0a14, 0x0007, 6, 20, 0x01bb, 0x9c40, 0x5012];
        let sum: u32 = words.iter().sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(v4[36..38], (!(folded as u16)).to_be_bytes());
        let v6 = packet(socket("[2001:db8::1]:443"), socket("[fd20::7]:40000")).unwrap();
        assert_eq!((v6.len(), v6[53]), (60, SYN | ACK));
    }

    #[test]
    fn hosts_are_challenged_three_times() {
        let mut challenges = Challenges::default();
        let at = Timestamp::from_millis;
        assert_eq!(challenges.due(), None);
        // Two families make no packet, so nothing leaves.
        challenges.begin(at(0), 1, vec![(socket("10.20.0.7:40000"), socket("[2001:db8::1]:443"))]);
        challenges.begin(at(0), 1, Vec::new());
        assert_eq!(challenges.due(), Some(at(700)));
        challenges.advance(at(699));
        assert_eq!(challenges.due(), Some(at(700)));
        challenges.advance(at(710));
        assert_eq!(challenges.due(), Some(at(2_210)));
        challenges.advance(at(2_210));
        assert_eq!(challenges.due(), None);
    }

    #[test]
    fn two_families_make_no_packet() {
        assert_eq!(packet(socket("192.0.2.1:443"), socket("[fd20::7]:40000")), None);
    }
}
