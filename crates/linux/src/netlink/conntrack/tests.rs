use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use proptest::prelude::*;

use super::entry::{TIMEOUT, TUPLE_REPLY};
use super::*;
use crate::netlink::CREATE;
use crate::test_namespace::{in_namespace, joined_pair, may_test};

impl Conntrack {
    /// Makes an entry without any packet, as `conntrack -I` does.
    fn insert(&mut self, original: &Tuple, mark: u32, zone: u16) {
        let reply = Tuple {
            source: original.destination,
            destination: original.source,
            transport: match original.transport {
                Transport::Ports { source, destination } => {
                    Transport::Ports { source: destination, destination: source }
                }
                other => other,
            },
            ..*original
        };
        let mut request = Request::new(kind(NEW), CREATE, &body(original.family().number()));
        original.add_to(&mut request);
        reply.add_as(TUPLE_REPLY, &mut request);
        request.attribute(TIMEOUT, &300u32.to_be_bytes()).attribute(MARK, &mark.to_be_bytes());
        if zone != 0 {
            request.attribute(ZONE, &zone.to_be_bytes());
        }
        self.socket.request("insert", request).unwrap();
    }

    fn all(&mut self, filter: Option<MarkFilter>) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.for_each(filter, |entry| entries.push(*entry)).unwrap();
        entries
    }
}

fn may_track() -> bool {
    may_test()
        && crate::netns::Namespace::anonymous()
            .unwrap()
            .run(|| Conntrack::open().and_then(|mut it| it.count().map_err(std::io::Error::other)))
            .unwrap()
            .map_err(|error| eprintln!("skipped: no connection tracking: {error}"))
            .is_ok()
}

fn udp(source: &str, destination: &str) -> Tuple {
    Tuple::with_ports(17, source.parse().unwrap(), destination.parse().unwrap())
}

#[test]
fn a_real_connection_is_seen_with_counts_state_and_mark() {
    if !may_track() || !crate::nft::is_installed() {
        return;
    }
    let (left, right) = joined_pair();
    left.set_sysctl("net.netfilter.nf_conntrack_acct", "1").unwrap();
    let script = "table inet test {
        chain marking { type filter hook output priority mangle;
            oifname cable ct mark set 0x107
        }
        chain hiding { type nat hook postrouting priority srcnat;
            oifname cable masquerade
        }
    }";
    left.run(|| crate::nft::load(script)).unwrap().unwrap();
    let listener = right.run(|| TcpListener::bind("10.77.0.2:80")).unwrap().unwrap();
    let mut client = left.run(|| TcpStream::connect("10.77.0.2:80")).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[7; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[8; 300]).unwrap();
    client.read_exact(&mut [0; 300]).unwrap();

    left.run(|| {
        let mut conntrack = Conntrack::open().unwrap();
        assert!(conntrack.is_available());
        let entries = conntrack.all(Some(MarkFilter { mark: 0x100, mask: 0xff00 }));
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((entry.family, entry.protocol, entry.mark, entry.zone), (Family::V4, 6, 0x107, 0));
        assert_eq!(entry.original.source_socket(), client.local_addr().unwrap());
        assert_eq!(entry.original.destination_socket(), "10.77.0.2:80".parse().unwrap());
        assert_eq!(entry.reply.destination_socket(), client.local_addr().unwrap());
        assert_eq!(entry.tcp_state, Some(TcpState::Established));
        assert!(entry.status.is_answered() && entry.status.is_assured());
        assert!(entry.original_count.unwrap().bytes > 1000, "{entry:?}");
        assert!((300..1000).contains(&entry.reply_count.unwrap().bytes), "{entry:?}");
        assert!(entry.timeout.unwrap().as_secs() > 60);

        assert_eq!(conntrack.find(&entry.original).unwrap().unwrap().id, entry.id);
        assert!(conntrack.all(Some(MarkFilter { mark: 0x8, mask: 0xff })).is_empty());
        assert!(conntrack.delete(entry).unwrap());
        assert!(!conntrack.delete(entry).unwrap(), "deleted twice");
        assert_eq!(conntrack.find(&entry.original).unwrap(), None);
    })
    .unwrap();
}

#[test]
fn entries_of_one_mark_are_forgotten_at_once_and_no_others() {
    if !may_track() {
        return;
    }
    in_namespace(|| {
        let mut conntrack = Conntrack::open().unwrap();
        conntrack.insert(&udp("10.0.0.1:1", "10.0.0.2:53"), 0x1003, 0);
        conntrack.insert(&udp("[fd00::1]:1", "[fd00::2]:53"), 0x2003, 0);
        conntrack.insert(&udp("10.0.0.1:2", "10.0.0.2:53"), 0x1004, 0);
        assert_eq!(conntrack.all(None).len(), 3);
        conntrack.delete_marked(MarkFilter { mark: 3, mask: 0xff }).unwrap();
        let left = conntrack.all(None);
        assert_eq!(left.iter().map(|entry| entry.mark).collect::<Vec<_>>(), [0x1004]);
        assert_eq!(conntrack.count().unwrap(), 1);
    });
}

#[test]
fn bits_of_marks_are_cleared_and_no_others() {
    if !may_track() {
        return;
    }
    in_namespace(|| {
        let mut conntrack = Conntrack::open().unwrap();
        conntrack.insert(&udp("10.0.0.1:1", "10.0.0.2:53"), 0x1003, 0);
        conntrack.insert(&udp("10.0.0.1:1", "10.0.0.2:53"), 0x7002, 9);
        conntrack.insert(&udp("[fd00::1]:1", "[fd00::2]:53"), 0x5001, 0);
        conntrack.insert(&udp("10.0.0.1:2", "10.0.0.2:53"), 0x4000, 0);
        assert_eq!(conntrack.clear_marks(0x0fff).unwrap(), 3);
        let mut left: Vec<u32> = conntrack.all(None).iter().map(|entry| entry.mark).collect();
        left.sort_unstable();
        assert_eq!(left, [0x1000, 0x4000, 0x5000, 0x7000]);
        assert_eq!(conntrack.clear_marks(0x0fff).unwrap(), 0);

        let entry = conntrack.all(Some(MarkFilter { mark: 0x5000, mask: u32::MAX }))[0];
        assert!(conntrack.set_mark(&entry, MarkFilter { mark: 0x30, mask: 0x7f0 }).unwrap());
        assert_eq!(conntrack.find(&entry.original).unwrap().unwrap().mark, 0x5030);
        assert!(conntrack.delete(&entry).unwrap());
        assert!(!conntrack.set_mark(&entry, MarkFilter { mark: 0x40, mask: 0x7f0 }).unwrap());
    });
}

#[test]
fn deleting_takes_the_very_entry_of_zone_and_id() {
    if !may_track() {
        return;
    }
    in_namespace(|| {
        let mut conntrack = Conntrack::open().unwrap();
        let tuple = udp("10.0.0.1:1", "10.0.0.2:53");
        conntrack.insert(&tuple, 1, 0);
        conntrack.insert(&tuple, 2, 9);
        let echo =
            Tuple { protocol: 1, transport: Transport::Echo { identifier: 77, kind: 8, code: 0 }, ..tuple };
        let zoned = conntrack.all(Some(MarkFilter { mark: 2, mask: u32::MAX }))[0];
        assert_eq!(zoned.zone, 9);
        assert!(conntrack.delete(&zoned).unwrap());
        assert_eq!(conntrack.find(&tuple).unwrap().unwrap().mark, 1);
        assert!(conntrack.delete(&Entry { original: echo, ..zoned }).is_ok_and(|deleted| !deleted));

        let entry = conntrack.find(&tuple).unwrap().unwrap();
        let other = Entry { id: entry.id.map(|id| id ^ 1), ..entry };
        assert!(!conntrack.delete(&other).unwrap(), "the id tells that this is another flow");
        assert!(conntrack.delete(&entry).unwrap());
    });
}

#[test]
fn a_long_list_is_streamed() {
    if !may_track() {
        return;
    }
    in_namespace(|| {
        let mut conntrack = Conntrack::open().unwrap();
        for number in 0..4_000u16 {
            let source = format!("10.0.{}.{}:{}", number / 200, 1 + number % 200, 1000 + number);
            conntrack.insert(&udp(&source, "10.9.0.1:53"), u32::from(number % 4), 0);
        }
        assert_eq!(conntrack.all(None).len(), 4_000);
        assert_eq!(conntrack.all(Some(MarkFilter { mark: 3, mask: 3 })).len(), 1_000);
    });
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Entry::parse(&bytes);
    }

    #[test]
    fn a_damaged_entry_never_panics(position in 0usize..200, value: u8, cut in 0usize..200) {
        let mut request = Request::new(kind(NEW), 0, &body(libc::AF_INET));
        udp("10.0.0.1:1", "10.0.0.2:53").add_to(&mut request);
        udp("10.0.0.2:53", "10.0.0.1:1").add_as(TUPLE_REPLY, &mut request);
        let mut bytes = request.finish(1).split_off(message::HEADER + GENERIC_HEADER);
        prop_assert!(Entry::parse(&bytes).is_some());
        let position = position % bytes.len();
        bytes[position] = value;
        bytes.truncate(cut.max(position + 1));
        let _ = Entry::parse(&bytes);
    }
}
