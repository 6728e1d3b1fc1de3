//! How many bytes each link has carried.

use units::Bytes;

use super::message::{self, Message, Request};
use super::{DUMP, Netlink, NetlinkError};

/// A link's counters since it was made, whoever's bytes they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCounters {
    /// The kernel's number of the link.
    pub index: u32,
    /// Received, headers of the link included.
    pub received: Bytes,
    /// Sent, likewise.
    pub sent: Bytes,
}

impl Netlink {
    /// The counters of all links of this namespace.
    pub fn link_counters(&mut self) -> Result<Vec<LinkCounters>, NetlinkError> {
        self.dump("read the counters of links", || Request::new(libc::RTM_GETLINK, DUMP, &[0; 16]), parse)
    }
}

fn parse(message: Message<'_>) -> Option<LinkCounters> {
    if message.kind != libc::RTM_NEWLINK {
        return None;
    }
    let index = message::number(message.body, 4)?;
    let (_, counters) =
        message::attributes(message.body.get(16..)?).find(|(kind, _)| *kind == libc::IFLA_STATS64)?;
    // `struct rtnl_link_stats64` begins with packets received and sent, then bytes received and sent.
    let received = Bytes(message::long(counters, 16)?);
    let sent = Bytes(message::long(counters, 24)?);
    Some(LinkCounters { index, received, sent })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn what_is_sent_is_counted_at_both_ends() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        let of = |space: &crate::netns::Namespace| {
            space
                .run(|| {
                    let mut netlink = Netlink::open().unwrap();
                    let index = netlink.link("cable").unwrap().unwrap().index;
                    let all = netlink.link_counters().unwrap();
                    all.into_iter().find(|counters| counters.index == index).unwrap()
                })
                .unwrap()
        };
        let (before, far) = (of(&left), of(&right));
        left.run(|| {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            for _ in 0..50 {
                socket.send_to(&[7; 1_000], "10.77.0.2:9").unwrap();
            }
        })
        .unwrap();
        // The first packets wait until the neighbour is known.
        let deadline = Instant::now() + Duration::from_secs(5);
        while of(&right).received.0 - far.received.0 < 50_000 {
            assert!(Instant::now() < deadline, "{:?} after {far:?}", of(&right));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(of(&left).sent.0 - before.sent.0 >= 50_000);
    }
}
