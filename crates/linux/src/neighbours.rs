//! The kernel's neighbour table: which host of a link is being asked for its hardware address.

use std::net::IpAddr;

use crate::netlink::message::{self, Message, Request};
use crate::netlink::{ACK, CREATE_OR_REPLACE, DUMP, Netlink, NetlinkError, unless_missing};

/// What the kernel believes of a neighbour (`NUD_*` of `linux/neighbour.h`, RFC 4861 section 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NeighbourState {
    /// It is being asked for its hardware address.
    Incomplete,
    /// It is being asked whether it is still there.
    Probe,
    /// It did not answer.
    Failed,
    /// It was heard, or nobody asks.
    Known,
}

/// One entry of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Neighbour {
    address: IpAddr,
    /// Number of the interface on whose link it is.
    interface: u32,
    state: NeighbourState,
}

impl Netlink {
    /// All neighbours of this namespace, both families.
    fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let request = || Request::new(libc::RTM_GETNEIGH, DUMP, &[0; BODY]);
        self.dump("list neighbours", request, |message| parse(&message))
    }

    /// Drops the packets that wait until `address` on the link of `interface` is found, if any do: whoever has sent them is told at
    /// once that they are lost. The kernel itself asks for three seconds, and TCP does not repeat what waits.
    pub fn drop_waiting(&mut self, interface: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let is_waited_for = |known: &Neighbour| {
            (known.interface, known.address) == (interface, address)
                && matches!(known.state, NeighbourState::Incomplete | NeighbourState::Probe)
        };
        if !self.neighbours()?.iter().any(is_waited_for) {
            return Ok(());
        }
        self.forget_neighbour(interface, address)
    }

    /// Asks at once for the hosts on the link of `interface` that are being asked for or did not answer; what waits for them is lost.
    /// The kernel itself asks once a second, however short the link was down: an answer that was lost then costs all of it.
    pub fn ask_again(&mut self, interface: u32) -> Result<(), NetlinkError> {
        let unanswered = |known: &Neighbour| {
            known.interface == interface
                && matches!(known.state, NeighbourState::Incomplete | NeighbourState::Failed)
        };
        for Neighbour { address, .. } in self.neighbours()?.into_iter().filter(unanswered) {
            self.forget_neighbour(interface, address)?;
            let mut body = body(interface, address);
            body[10] = USE;
            let mut request = Request::new(libc::RTM_NEWNEIGH, CREATE_OR_REPLACE, &body);
            request.address(DESTINATION, address);
            self.change(&format!("look for {address} on link {interface}"), request)?;
        }
        Ok(())
    }

    fn forget_neighbour(&mut self, interface: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_DELNEIGH, ACK, &body(interface, address));
        request.address(DESTINATION, address);
        unless_missing(self.change(&format!("give up looking for {address} on link {interface}"), request))
    }
}

fn body(interface: u32, address: IpAddr) -> [u8; BODY] {
    let mut body = [0; BODY];
    body[0] = if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 };
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    body
}

fn parse(message: &Message<'_>) -> Option<Neighbour> {
    if message.kind == libc::RTM_NEWNEIGH { parse_body(message.body) } else { None }
}

/// `struct ndmsg`, then attributes. Multicast groups, proxies and bridge entries are no neighbours.
fn parse_body(body: &[u8]) -> Option<Neighbour> {
    let family = i32::from(*body.first()?);
    let flags = *body.get(10)?;
    if !matches!(family, libc::AF_INET | libc::AF_INET6) || flags & PROXY != 0 {
        return None;
    }
    let state = match message::short(body, 8)? {
        0x01 => NeighbourState::Incomplete,
        0x10 => NeighbourState::Probe,
        0x20 => NeighbourState::Failed,
        // Reachable, stale, delay, permanent.
        0x02 | 0x04 | 0x08 | 0x80 => NeighbourState::Known,
        _ => return None,
    };
    let mut attributes = message::attributes(body.get(BODY..)?);
    let (_, address) = attributes.find(|(kind, _)| *kind == DESTINATION)?;
    Some(Neighbour { address: message::address(address)?, interface: message::number(body, 4)?, state })
}

const BODY: usize = 12;
/// The kernel asks for the host's hardware address.
const USE: u8 = 0x01;
const PROXY: u8 = 0x08;
const DESTINATION: u16 = 1;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn a_neighbour_is_listed_and_gone() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        let far: [IpAddr; 2] = ["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()];
        left.run(|| {
            for (local, far) in [("0.0.0.0:0", far[0]), ("[::]:0", far[1])] {
                UdpSocket::bind(local).unwrap().send_to(b"x", (far, 9)).unwrap();
            }
        })
        .unwrap();
        let list = || left.run(|| Netlink::open().unwrap().neighbours().unwrap()).unwrap();
        let is_known = |one: &Neighbour| far.contains(&one.address) && one.state == NeighbourState::Known;
        let deadline = Instant::now() + Duration::from_secs(5);
        while list().into_iter().filter(is_known).count() < far.len() {
            assert!(Instant::now() < deadline, "{:?}", list());
            std::thread::sleep(Duration::from_millis(10));
        }
        left.delete_link("cable").unwrap();
        assert!(!list().iter().any(is_known));
    }

    #[test]
    fn what_waits_for_a_silent_host_is_dropped() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        for (local, far) in [("0.0.0.0:0", "10.77.0.9"), ("[::]:0", "fd77::9")] {
            let far: IpAddr = far.parse().unwrap();
            let waiting = left.run(|| {
                UdpSocket::bind(local).unwrap().send_to(b"x", (far, 9)).unwrap();
                let mut netlink = Netlink::open().unwrap();
                let index = netlink.link("cable").unwrap().unwrap().index;
                let states = |netlink: &mut Netlink| -> Vec<_> {
                    let all = netlink.neighbours().unwrap().into_iter();
                    all.filter(|known| known.address == far).map(|known| known.state).collect()
                };
                let before = states(&mut netlink);
                netlink.drop_waiting(index, far).unwrap();
                netlink.drop_waiting(index, far).unwrap();
                [before, states(&mut netlink)]
            });
            let [before, after] = waiting.unwrap();
            assert_eq!(before, [NeighbourState::Incomplete]);
            assert!(after.iter().all(|state| *state == NeighbourState::Failed), "{after:?}");
        }
    }

    #[test]
    fn who_did_not_answer_is_asked_again_at_once() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        let far: IpAddr = "10.77.0.9".parse().unwrap();
        let (index, asked) = left
            .run(|| {
                let index = Netlink::open().unwrap().link("cable").unwrap().unwrap().index;
                UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", (far, 9)).unwrap();
                (index, Instant::now())
            })
            .unwrap();
        right.add_address("cable", "10.77.0.9/24".parse().unwrap()).unwrap();
        let answered = left.run(|| {
            let is_known = |one: &Neighbour| one.address == far && one.state == NeighbourState::Known;
            let mut netlink = Netlink::open().unwrap();
            netlink.ask_again(index).unwrap();
            while asked.elapsed() < Duration::from_millis(900) {
                if netlink.neighbours().unwrap().iter().any(is_known) {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            false
        });
        assert!(answered.unwrap(), "the kernel asks for the second time after a second");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), state in 0u8..8) {
            if bytes.len() > 12 {
                bytes[0] = libc::AF_INET as u8;
                bytes[8..11].copy_from_slice(&[1 << state, 0, 0]);
            }
            let _ = parse_body(&bytes);
        }
    }
}
