//! The kernel's neighbour table: which host of a link has which hardware address, and when it was last heard.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::netlink::message::{self, Message, Request};
use crate::netlink::socket::NetlinkSocket;
use crate::netlink::{ACK, CREATE_OR_REPLACE, DUMP, Netlink, NetlinkError, unless_missing};

/// What the kernel believes of a neighbour (`NUD_*` of `linux/neighbour.h`, RFC 4861 section 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourState {
    /// It is being asked for its hardware address.
    Incomplete,
    /// Heard lately.
    Reachable,
    /// Not heard lately, not needed either.
    Stale,
    /// A packet was sent to it; if nothing is heard soon it will be asked.
    Delay,
    /// It is being asked whether it is still there.
    Probe,
    /// It did not answer.
    Failed,
    /// Entered by hand or needing no address.
    Permanent,
}

/// One entry of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Number of the interface on whose link it is.
    pub interface: u32,
    /// Its hardware address, mostly 6 bytes; `None` if not known.
    pub link_address: Option<Vec<u8>>,
    /// What the kernel believes of it.
    pub state: NeighbourState,
    /// It says that it is a router (IPv6 only).
    pub router: bool,
    /// How long ago it was last known to be there.
    pub confirmed: Option<Duration>,
}

impl Neighbour {
    /// Whether it was heard and has not failed to answer since.
    pub fn is_known(&self) -> bool {
        self.link_address.is_some()
            && !matches!(self.state, NeighbourState::Incomplete | NeighbourState::Failed)
    }
}

/// A change of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NeighbourEvent {
    /// An entry is new or different.
    Changed(Neighbour),
    /// An entry is gone.
    Removed(Neighbour),
    /// Notifications were lost: list the table anew.
    Lost,
}

impl Netlink {
    /// All neighbours of this namespace, both families.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let request = || Request::new(libc::RTM_GETNEIGH, DUMP, &[0; BODY]);
        self.dump("list neighbours", request, |message| match parse(&message)? {
            NeighbourEvent::Changed(neighbour) => Some(neighbour),
            _ => None,
        })
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

/// Hears changes of the neighbour table of the namespace in which it was opened.
pub struct NeighbourMonitor {
    socket: NetlinkSocket,
}

impl NeighbourMonitor {
    /// Starts to listen.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: NetlinkSocket::open(libc::NETLINK_ROUTE, libc::RTMGRP_NEIGH as u32)? })
    }

    /// What changed since the last call; to be called when the descriptor is readable. Never blocks.
    ///
    /// At most about 1,000 changes a call, then the descriptor is still readable.
    pub fn read_events(&mut self) -> io::Result<Vec<NeighbourEvent>> {
        const ENOUGH: usize = 1_000;
        let mut events = Vec::new();
        while events.len() < ENOUGH {
            match self.socket.read_notifications(|message| events.extend(parse(&message))) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    events.push(NeighbourEvent::Lost)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other?,
            }
        }
        Ok(events)
    }
}

impl AsFd for NeighbourMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for NeighbourMonitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }
}

fn parse(message: &Message<'_>) -> Option<NeighbourEvent> {
    match message.kind {
        libc::RTM_NEWNEIGH => parse_body(message.body).map(NeighbourEvent::Changed),
        libc::RTM_DELNEIGH => parse_body(message.body).map(NeighbourEvent::Removed),
        _ => None,
    }
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
        0x02 => NeighbourState::Reachable,
        0x04 => NeighbourState::Stale,
        0x08 => NeighbourState::Delay,
        0x10 => NeighbourState::Probe,
        0x20 => NeighbourState::Failed,
        0x80 => NeighbourState::Permanent,
        _ => return None,
    };
    let (mut address, mut link_address, mut confirmed) = (None, None, None);
    for (kind, value) in message::attributes(body.get(BODY..)?) {
        match kind {
            DESTINATION => address = message::address(value),
            LINK_ADDRESS if !value.is_empty() && value.len() <= LONGEST_LINK_ADDRESS => {
                link_address = Some(value.to_vec());
            }
            CACHE => {
                let ticks = message::number(value, 0)?;
                confirmed = Some(Duration::from_millis(u64::from(ticks) * MILLIS_PER_TICK));
            }
            _ => {}
        }
    }
    Some(Neighbour {
        address: address?,
        interface: message::number(body, 4)?,
        link_address,
        state,
        router: flags & ROUTER != 0,
        confirmed,
    })
}

const BODY: usize = 12;
/// The kernel asks for the host's hardware address.
const USE: u8 = 0x01;
const PROXY: u8 = 0x08;
const ROUTER: u8 = 0x80;
const DESTINATION: u16 = 1;
const LINK_ADDRESS: u16 = 2;
const CACHE: u16 = 3;
const LONGEST_LINK_ADDRESS: usize = 32;
/// The kernel tells user space times in hundredths of a second (`USER_HZ`).
const MILLIS_PER_TICK: u64 = 10;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn a_neighbour_is_heard_listed_and_gone() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        let mut monitor = left.run(NeighbourMonitor::open).unwrap().unwrap();
        assert_eq!(monitor.read_events().unwrap(), []);
        let far: [IpAddr; 2] = ["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()];
        left.run(|| {
            for (local, far) in [("0.0.0.0:0", far[0]), ("[::]:0", far[1])] {
                UdpSocket::bind(local).unwrap().send_to(b"x", (far, 9)).unwrap();
            }
        })
        .unwrap();
        let list = || left.run(|| Netlink::open().unwrap().neighbours().unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let known = loop {
            let known: Vec<_> = list().into_iter().filter(|one| one.is_known()).collect();
            if far.iter().all(|far| known.iter().any(|one| one.address == *far)) {
                break known;
            }
            assert!(Instant::now() < deadline, "{known:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let one = known.iter().find(|one| one.address == far[0]).unwrap();
        assert_eq!(one.link_address.as_ref().unwrap().len(), 6);
        assert!(one.confirmed.unwrap() < Duration::from_secs(6), "{one:?}");
        let events = monitor.read_events().unwrap();
        let heard = |event: &NeighbourEvent| matches!(event, NeighbourEvent::Changed(changed) if changed.address == far[0] && changed.is_known());
        assert!(events.iter().any(heard), "{events:?}");

        left.delete_link("cable").unwrap();
        assert!(!list().iter().any(Neighbour::is_known));
        let events = monitor.read_events().unwrap();
        assert!(events.iter().any(|event| matches!(event, NeighbourEvent::Removed(_))), "{events:?}");
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
            let mut netlink = Netlink::open().unwrap();
            netlink.ask_again(index).unwrap();
            while asked.elapsed() < Duration::from_millis(900) {
                if netlink.neighbours().unwrap().iter().any(|known| known.address == far && known.is_known())
                {
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
            drop(parse_body(&bytes));
        }
    }
}
