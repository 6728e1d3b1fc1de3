//! Cutting and joining against each other, and the interface against a real kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::layout::{TCP, UDP, put_u16, put_u32};
use super::*;
use crate::netns::Namespace;
use crate::test_namespace::{in_namespace, may_test};

struct Sample {
    ipv6: bool,
    port: u16,
    sequence: u32,
    identification: u16,
    flags: u8,
    payload: usize,
}

fn packet(sample: &Sample, protocol: u8) -> Vec<u8> {
    let ip_header = if sample.ipv6 { 40 } else { 20 };
    let headers = ip_header + if protocol == TCP { 32 } else { 8 };
    let mut bytes = vec![0; headers + sample.payload];
    let length = bytes.len();
    if sample.ipv6 {
        bytes[0] = 0x60;
        put_u16(&mut bytes, 4, (length - 40) as u16);
        (bytes[6], bytes[7]) = (protocol, 64);
        (bytes[8], bytes[24]) = (0xfd, 0xfd);
    } else {
        bytes[0] = 0x45;
        put_u16(&mut bytes, 2, length as u16);
        put_u16(&mut bytes, 4, sample.identification);
        (bytes[6], bytes[8], bytes[9]) = (0x40, 64, protocol);
        bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum::sum(&bytes[..20], 0);
        put_u16(&mut bytes, 10, checksum::finish(sum));
    }
    put_u16(&mut bytes, ip_header, sample.port);
    put_u16(&mut bytes, ip_header + 2, 80);
    if protocol == TCP {
        put_u32(&mut bytes, ip_header + 4, sample.sequence);
        (bytes[ip_header + 12], bytes[ip_header + 13]) = (0x80, sample.flags);
        bytes[ip_header + 20..ip_header + 24].copy_from_slice(&[1, 1, 8, 10]);
    } else {
        put_u16(&mut bytes, ip_header + 4, (length - ip_header) as u16);
    }
    for (at, byte) in bytes[headers..].iter_mut().enumerate() {
        *byte = (at as u32).wrapping_add(sample.sequence) as u8;
    }
    let layout = layout::Layout::read(&bytes).unwrap();
    let sum =
        checksum::sum(&bytes[ip_header..], checksum::pseudo_header(&bytes, &layout, length - ip_header));
    put_u16(&mut bytes, layout.checksum_at(), checksum::finish(sum));
    bytes
}

/// `count` packets of one flow as a sender makes them.
fn train(ipv6: bool, protocol: u8, port: u16, count: usize) -> Vec<Vec<u8>> {
    let one = |index: usize| {
        let last = index + 1 == count;
        let payload = if last { 300 } else { 1_200 };
        let flags = if last { 0x18 } else { 0x10 };
        let sequence = (u32::MAX - 2_000).wrapping_add(index as u32 * 1_200);
        packet(
            &Sample {
                ipv6,
                port,
                sequence,
                identification: 65_530u16.wrapping_add(index as u16),
                flags,
                payload,
            },
            protocol,
        )
    };
    (0..count).map(one).collect()
}

/// What the kernel would see of `packets`: the contents of each write.
fn writes(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut joiner = Joiner::new(true);
    joiner.sort(packets);
    let write = |group| {
        let mut scratch = Scratch::default();
        let mut slices = [IoSlice::new(&[]); MAXIMUM_PACKETS + 2];
        let used = joiner.lay_out(group, packets, &mut scratch, &mut slices);
        slices[..used].iter().flat_map(|slice| slice.to_vec()).collect()
    };
    joiner.groups().iter().map(write).collect()
}

fn split_again(writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for write in writes {
        let mut write = write.clone();
        let (header, packet) = write.split_first_chunk_mut().unwrap();
        split::split(VirtioHeader::read(header), packet, &mut |packet| packets.push(packet.to_vec()));
    }
    packets
}

#[test]
fn joined_and_split_again_is_the_same() {
    for ipv6 in [false, true] {
        for protocol in [TCP, UDP] {
            let packets = train(ipv6, protocol, 5_000, 30);
            let writes = writes(&packets);
            assert_eq!(writes.len(), 1, "ipv6 {ipv6}, protocol {protocol}");
            assert_eq!(split_again(&writes), packets, "ipv6 {ipv6}, protocol {protocol}");
        }
    }
}

#[test]
fn interleaved_flows_are_joined_each() {
    let (one, other) = (train(true, TCP, 5_000, 10), train(true, TCP, 5_001, 10));
    let mixed: Vec<_> = one.iter().zip(&other).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let writes = writes(&mixed);
    assert_eq!(writes.len(), 2);
    let again = split_again(&writes);
    assert_eq!(again[..10], one);
    assert_eq!(again[10..], other);
}

#[test]
fn what_does_not_follow_is_not_joined() {
    let mut packets = train(true, TCP, 5_000, 6);
    packets.swap(1, 2);
    let writes = writes(&packets);
    assert!(writes.len() > 1);
    assert_eq!(split_again(&writes), packets, "the order within a flow is kept");
}

#[test]
fn damaged_packets_keep_their_damage() {
    let mut packets = train(true, TCP, 5_000, 6);
    packets[3][200] ^= 1;
    let writes = writes(&packets);
    assert_eq!(split_again(&writes), packets);
    assert!(writes.len() >= 3);
}

#[test]
fn nonsense_does_not_panic() {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for round in 0..20_000 {
        let length = usize::from(byte()) % 120;
        let mut bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        if let Some(first) = bytes.first_mut() {
            *first = if round % 2 == 0 { 0x45 } else { 0x60 };
        }
        let header: [u8; virtio::LENGTH] = std::array::from_fn(|_| byte());
        split::split(VirtioHeader::read(&header), &mut bytes.clone(), &mut |_| {});
        writes(&[bytes.clone(), bytes]);
    }
}

/// Moves packets between two TUNs until `done` says so.
fn shuttle(one: &mut Tun, other: &mut Tun, done: impl Fn() -> bool) -> (usize, usize) {
    let (mut packets, mut writes) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() && Instant::now() < deadline {
        for forward in [true, false] {
            let (from, to) = if forward { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
            let mut batch = Vec::new();
            while batch.len() < 256 && from.read_packets(&mut |packet| batch.push(packet.to_vec())).is_ok() {}
            assert!(batch.iter().all(|packet| packet.len() <= 1_400), "a packet beyond the MTU");
            let written = to.write_packets(&batch).unwrap();
            packets += written.packets;
            writes += written.writes;
        }
    }
    (packets, writes)
}

#[test]
fn tcp_and_udp_cross_between_two_interfaces() {
    if !may_test() {
        return;
    }
    let spaces = [Namespace::anonymous().unwrap(), Namespace::anonymous().unwrap()];
    let make = |space: &Namespace, v4: &str, v6: &str| {
        let addresses = [v4.parse().unwrap(), v6.parse().unwrap()];
        space.run(|| Tun::create("any0", 1_400, &addresses)).unwrap().unwrap()
    };
    let mut one = make(&spaces[0], "10.78.0.1/24", "fd78::1/64");
    let mut other = make(&spaces[1], "10.78.0.2/24", "fd78::2/64");
    for remote in ["10.78.0.2:80", "[fd78::2]:80"] {
        let listener = spaces[1].run(|| TcpListener::bind(remote)).unwrap().unwrap();
        let sent: Vec<u8> =
            (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u8).collect();
        let received = std::thread::scope(|scope| {
            let (sent, spaces) = (&sent, &spaces);
            scope.spawn(move || {
                let mut stream = spaces[0].run(|| TcpStream::connect(remote)).unwrap().unwrap();
                stream.write_all(sent).unwrap();
            });
            let reader = scope.spawn(move || {
                let mut bytes = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
                bytes
            });
            let (packets, writes) = shuttle(&mut one, &mut other, || reader.is_finished());
            assert!(packets > 4 * writes, "{packets} packets in {writes} writes: nothing was joined");
            reader.join().unwrap()
        });
        assert!(received == sent, "the stream to {remote} was changed on its way");
    }
    for (from, to) in [("10.78.0.1:9", "10.78.0.2:9"), ("[fd78::1]:9", "[fd78::2]:9")] {
        let sender = spaces[0].run(|| UdpSocket::bind(from)).unwrap().unwrap();
        let receiver = spaces[1].run(|| UdpSocket::bind(to)).unwrap().unwrap();
        receiver.set_nonblocking(true).unwrap();
        for number in 0..20u8 {
            sender.send_to(&[number; 999], to).unwrap();
        }
        shuttle(&mut one, &mut other, {
            let start = Instant::now();
            move || start.elapsed() > Duration::from_millis(300)
        });
        let mut buffer = [0; 2_000];
        for number in 0..20u8 {
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [number; 999], "to {to}");
        }
    }
}

#[test]
fn a_flow_comes_back_in_its_queue() {
    in_namespace(|| {
        let mut queues = Tun::create_queues("any0", 1_400, &["10.0.0.2/24".parse().unwrap()], 3).unwrap();
        assert_eq!(queues.len(), 3);
        let server = UdpSocket::bind("10.0.0.2:80").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for port in 5_000..5_012 {
            let own = usize::from(port) % queues.len();
            queues[own].write_packets(&train(false, UDP, port, 1)).unwrap();
            let mut buffer = [0; 2_000];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!((length, from.port()), (300, port));
            server.send_to(b"yes", from).unwrap();
            let mut answers = vec![0; queues.len()];
            let deadline = Instant::now() + Duration::from_secs(5);
            while answers.iter().sum::<usize>() == 0 && Instant::now() < deadline {
                for (queue, answers) in queues.iter_mut().zip(&mut answers) {
                    while queue.read_packets(&mut |packet| *answers += usize::from(packet[9] == UDP)).is_ok()
                    {
                    }
                }
            }
            let at = answers.iter().position(|answers| *answers == 1);
            assert_eq!(at, Some(own), "{answers:?}");
        }
    });
}

#[test]
fn refusals_name_the_cause() {
    in_namespace(|| {
        let error = Tun::create("a name with blanks", 1_400, &[]).err().unwrap();
        assert!(error.to_string().contains("is not an interface name"), "{error}");
        let _first = Tun::create("any0", 1_400, &[]).unwrap();
        let error = Tun::create("any0", 1_400, &[]).err().unwrap();
        assert!(error.to_string().contains("is anabranch running already?"), "{error}");
        let _queues = Tun::create_queues("any1", 1_400, &[], 2).unwrap();
        for queues in [1, 2] {
            let error = Tun::create_queues("any1", 1_400, &[], queues).err().unwrap();
            assert!(error.to_string().contains("is anabranch running already?"), "{error}");
        }
    });
}

#[test]
fn a_new_lease_replaces_the_old_one() {
    in_namespace(|| {
        let old = ["10.78.0.2/24".parse().unwrap(), "fd78::2/64".parse().unwrap()];
        let tun = Tun::create("any0", 1_400, &old).unwrap();
        let new = ["10.78.0.3/24".parse().unwrap(), "fd78::2/64".parse().unwrap()];
        configure(tun.index(), 1_380, &new).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let addresses = netlink
            .addresses()
            .unwrap()
            .into_iter()
            .filter(|address| address.index == tun.index() && !address.link_local);
        let mut addresses: Vec<IpPrefix> = addresses.map(|address| address.address).collect();
        addresses.sort();
        assert_eq!(addresses, new);
        assert_eq!(netlink.link("any0").unwrap().unwrap().mtu, 1_380);
    });
}
