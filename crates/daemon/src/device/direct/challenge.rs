//! Making a host of a LAN show itself, whose connection has no network any more.
//!
//! Such a host may only be receiving: it sends nothing that a reset could be the answer to, and would wait for ever. Only a
//! reset with the very next sequence number is believed (RFC 5961 section 3.2), which nobody here knows. So the host gets the second packet
//! of a handshake, as if from its peer. It is out of place in an open connection, and the host says so with an acknowledgement
//! (section 4.2). That is a packet of a flow that nobody knows; the firewall resets it with the right number.
//!
//! It is said again twice: the packet may be lost on a LAN's Wi-Fi, and a host that has just acknowledged something out of place keeps
//! silent for half a second (Linux's `tcp_invalid_ratelimit`).
//!
//! The packets have no mark, so they are routed as a program's would be: to a LAN by its route. Where there is none any more they end at
//! any0 and never leave by a network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linux::packet_sender::PacketSender;
use linux::tun::write_checksum;
use tracing::debug;
use units::Timestamp;

/// A host behind this machine and its peer, as the host sees them.
pub type Ends = (SocketAddr, SocketAddr);

/// Challenges that are to be said, some now and all of them again.
#[derive(Debug, Default)]
pub struct Challenges(Vec<Round>);

#[derive(Debug)]
struct Round {
    due: Timestamp,
    /// How often all were said.
    said: usize,
    /// How many were said this time.
    next: usize,
    ends: Vec<Ends>,
}

impl Challenges {
    /// Makes hosts show what they still have open, as soon as possible and twice again. Beyond what there is room for they are left to
    /// their time-outs.
    pub fn add(&mut self, now: Timestamp, mut ends: Vec<Ends>) {
        let waiting: usize = self.0.iter().map(|round| round.ends.len()).sum();
        ends.truncate(MOST.saturating_sub(waiting));
        if !ends.is_empty() {
            self.0.push(Round { due: now, said: 0, next: 0, ends });
        }
    }

    /// When to call [`Self::advance`] next; `None` if there is nothing to say.
    pub fn due(&self) -> Option<Timestamp> {
        self.0.iter().map(|round| round.due).min()
    }

    /// Gives what is due to `say`, no more at once than a socket's buffer takes.
    pub fn advance(&mut self, now: Timestamp, mut say: impl FnMut(&[Ends])) {
        for round in self.0.iter_mut().filter(|round| round.due <= now) {
            let end = (round.next + BURST).min(round.ends.len());
            say(&round.ends[round.next..end]);
            round.next = end;
            round.due = now + BETWEEN_BURSTS;
            if end == round.ends.len() {
                round.due = now + PAUSES.get(round.said).copied().unwrap_or_default();
                (round.next, round.said) = (0, round.said + 1);
            }
        }
        self.0.retain(|round| round.said <= PAUSES.len());
    }
}

/// Sends one packet for each. The sockets are opened when they are needed first.
pub fn say(ends: &[Ends]) {
    let (mut v4, mut v6) = (None, None);
    for (host, peer) in ends {
        let outcome = match host.ip() {
            IpAddr::V4(_) => send(&mut v4, PacketSender::v4, *host, *peer),
            IpAddr::V6(_) => send(&mut v6, PacketSender::v6, *host, *peer),
        };
        if let Err(error) = outcome {
            debug!("{host} is not told that its connection to {peer} is over: {error}");
        }
    }
}

fn send(
    sender: &mut Option<PacketSender>,
    open: impl FnOnce(u32) -> io::Result<PacketSender>,
    host: SocketAddr,
    peer: SocketAddr,
) -> io::Result<()> {
    let packet = packet(peer, host).ok_or(io::ErrorKind::InvalidInput)?;
    match sender {
        Some(sender) => sender.send(&packet),
        None => sender.insert(open(UNMARKED)?).send(&packet),
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
/// Connections that are challenged at one time.
const MOST: usize = 100_000;
/// Packets at once: fewer than a socket's buffer holds.
const BURST: usize = 128;
const BETWEEN_BURSTS: Duration = Duration::from_millis(5);
const UNMARKED: u32 = 0;
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
    fn hosts_are_challenged_three_times_and_not_all_at_once() {
        let mut challenges = Challenges::default();
        let ends: Vec<Ends> = (0..200)
            .map(|port| (SocketAddr::new([10, 20, 0, 7].into(), 40_000 + port), socket("192.0.2.1:443")))
            .collect();
        challenges.add(Timestamp::ZERO, Vec::new());
        assert_eq!(challenges.due(), None);
        challenges.add(Timestamp::ZERO, ends.clone());
        let mut said = Vec::new();
        while let Some(due) = challenges.due() {
            challenges
                .advance(due, |some| said.push((due.since(Timestamp::ZERO).as_millis(), some.to_vec())));
        }
        let times: Vec<(u128, usize)> = said.iter().map(|(at, some)| (*at, some.len())).collect();
        assert_eq!(times, [(0, 128), (5, 72), (705, 128), (710, 72), (2_210, 128), (2_215, 72)]);
        assert_eq!([&said[2].1[..], &said[3].1].concat(), ends);
    }

    #[test]
    fn two_families_make_no_packet() {
        assert_eq!(packet(socket("192.0.2.1:443"), socket("[fd20::7]:40000")), None);
    }
}
