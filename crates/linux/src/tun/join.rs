//! Packets of one flow that follow each other, joined to one large segment for the TUN.
//!
//! The reverse of [`super::split`]: what is joined here and split there comes out byte for byte the same, and a
//! packet whose checksum is wrong is never joined, so that its receiver still sees the damage.

use std::io::IoSlice;

use super::checksum;
use super::layout::{Layout, put_u16, u16_at, u32_at};
use super::virtio::{self, NEEDS_CHECKSUM, TCP_V4, TCP_V6, UDP_SEGMENTS, VirtioHeader};

/// Most packets in one write. The kernel takes at most 64 UDP datagrams (UDP_MAX_SEGMENTS before Linux 6.9).
pub(super) const MAXIMUM_PACKETS: usize = 64;
const MAXIMUM_LENGTH: usize = 65_535;
const MAXIMUM_HEADERS: usize = 40 + 60;
/// How many of the newest groups are searched for a packet's flow.
const SEARCHED_GROUPS: usize = 32;

/// Packets that leave in one write, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// `None`: a packet of a kind that is never joined and belongs to no known flow.
    layout: Option<Layout>,
    /// May more be added?
    open: bool,
    /// Have the checksums of its packets been checked?
    checked: bool,
    first: usize,
    last: usize,
    count: usize,
    /// Length of the packets together, headers counted once.
    length: usize,
}

/// Sorts batches of packets into groups; keeps its memory between batches.
pub(super) struct Joiner {
    groups: Vec<Group>,
    /// For each packet of the batch, the next one of its group.
    next: Vec<usize>,
    udp: bool,
}

impl Joiner {
    /// `udp`: whether the kernel takes joined UDP datagrams.
    pub(super) fn new(udp: bool) -> Self {
        Self { groups: Vec::new(), next: Vec::new(), udp }
    }

    /// Groups `packets`; packets of one flow keep their order.
    pub(super) fn sort<P: AsRef<[u8]>>(&mut self, packets: &[P]) {
        self.groups.clear();
        self.next.clear();
        self.next.resize(packets.len(), 0);
        for index in 0..packets.len() {
            self.place(packets, index);
        }
    }

    /// The groups of the last batch, in the order in which they are to be written.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn place<P: AsRef<[u8]>>(&mut self, packets: &[P], index: usize) {
        let packet = packets[index].as_ref();
        let layout = Layout::read(packet);
        let joinable = layout.is_some_and(|layout| self.is_joinable(packet, &layout));
        if let Some(layout) = layout {
            let newest = self.groups.iter_mut().rev().take(SEARCHED_GROUPS);
            let of_flow = newest
                .filter(|group| group.layout.is_some_and(|other| other.protocol == layout.protocol))
                .find(|group| is_same_flow(packets[group.first].as_ref(), packet, &layout));
            if let Some(group) = of_flow {
                if joinable && group.open && group.append(packets, &mut self.next, index, &layout) {
                    return;
                }
                group.open = false;
            }
        }
        self.groups.push(Group {
            layout,
            open: joinable,
            checked: false,
            first: index,
            last: index,
            count: 1,
            length: packet.len(),
        });
    }

    /// Data without any flag that a joined segment could not carry.
    fn is_joinable(&self, packet: &[u8], layout: &Layout) -> bool {
        if layout.headers == packet.len() || layout.headers > MAXIMUM_HEADERS {
            return false;
        }
        if layout.is_udp() { self.udp } else { packet[layout.ip_header + 13] & !PSH == ACK }
    }

    /// Lays out `group` for one write: header, headers of the large segment, payloads.
    ///
    /// `scratch` holds the two headers; `slices` is filled, and the number of slices in use returned.
    pub(super) fn lay_out<'a, P: AsRef<[u8]>>(
        &self,
        group: &Group,
        packets: &'a [P],
        scratch: &'a mut Scratch,
        slices: &mut [IoSlice<'a>; MAXIMUM_PACKETS + 2],
    ) -> usize {
        let first = packets[group.first].as_ref();
        let (Some(layout), true) = (group.layout, group.count > 1) else {
            scratch.virtio = VirtioHeader::default().write();
            slices[0] = IoSlice::new(&scratch.virtio);
            slices[1] = IoSlice::new(first);
            return 2;
        };
        let segment_size = first.len() - layout.headers;
        scratch.virtio = VirtioHeader {
            flags: NEEDS_CHECKSUM,
            kind: match (layout.is_udp(), layout.ipv6) {
                (true, _) => UDP_SEGMENTS,
                (false, false) => TCP_V4,
                (false, true) => TCP_V6,
            },
            header_length: layout.headers as u16,
            segment_size: segment_size as u16,
            checksum_start: layout.ip_header as u16,
            checksum_offset: layout.checksum_offset() as u16,
        }
        .write();
        let headers = &mut scratch.headers[..layout.headers];
        headers.copy_from_slice(&first[..layout.headers]);
        write_headers(headers, &layout, group.length, packets[group.last].as_ref());

        slices[0] = IoSlice::new(&scratch.virtio);
        slices[1] = IoSlice::new(&scratch.headers[..layout.headers]);
        let mut index = group.first;
        for slice in &mut slices[2..group.count + 2] {
            *slice = IoSlice::new(&packets[index].as_ref()[layout.headers..]);
            index = self.next[index];
        }
        group.count + 2
    }
}

/// The bytes of a write that are not payload.
pub(super) struct Scratch {
    virtio: [u8; virtio::LENGTH],
    headers: [u8; MAXIMUM_HEADERS],
}

impl Default for Scratch {
    fn default() -> Self {
        Self { virtio: [0; virtio::LENGTH], headers: [0; MAXIMUM_HEADERS] }
    }
}

impl Group {
    /// How many packets it holds.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn append<P: AsRef<[u8]>>(
        &mut self,
        packets: &[P],
        next: &mut [usize],
        index: usize,
        layout: &Layout,
    ) -> bool {
        let first = packets[self.first].as_ref();
        let packet = packets[index].as_ref();
        let payload = packet.len() - layout.headers;
        let segment_size = first.len() - layout.headers;
        let fits = self.layout == Some(*layout)
            && payload <= segment_size
            && self.count < MAXIMUM_PACKETS
            && self.length + payload <= MAXIMUM_LENGTH
            && self.follows(first, packet, layout, segment_size);
        if !fits {
            return false;
        }
        if !self.checked {
            if !checksum::is_right(first, layout) {
                return false;
            }
            self.checked = true;
        }
        if !checksum::is_right(packet, layout) {
            return false;
        }
        next[self.last] = index;
        self.last = index;
        self.count += 1;
        self.length += payload;
        let pushed = !layout.is_udp() && packet[layout.ip_header + 13] & PSH != 0;
        self.open = payload == segment_size && !pushed;
        true
    }

    /// Whether `packet` has the headers that splitting would give the next packet of this group.
    fn follows(&self, first: &[u8], packet: &[u8], layout: &Layout, segment_size: usize) -> bool {
        let ip_is_same = if layout.ipv6 {
            first[..4] == packet[..4] && first[7] == packet[7]
        } else {
            let identification = u16_at(first, 4).wrapping_add(self.count as u16);
            first[1] == packet[1]
                && first[6..9] == packet[6..9]
                && identification == u16_at(packet, 4)
                && checksum::finish(checksum::sum(&packet[..layout.ip_header], 0)) == 0
        };
        if !ip_is_same || layout.is_udp() {
            return ip_is_same;
        }
        let (first, packet) = (&first[layout.ip_header..], &packet[layout.ip_header..]);
        let expected = u32_at(first, 4).wrapping_add((self.count * segment_size) as u32);
        let options = 20..layout.headers - layout.ip_header;
        u32_at(packet, 4) == expected
            && first[13] & PSH == 0
            && first[8..13] == packet[8..13]
            && first[14..16] == packet[14..16]
            && first[18..20] == packet[18..20]
            && first[options.clone()] == packet[options]
    }
}

fn is_same_flow(one: &[u8], other: &[u8], layout: &Layout) -> bool {
    let addresses = if layout.ipv6 { 8..40 } else { 12..20 };
    let ports = layout.ip_header..layout.ip_header + 4;
    one[0] >> 4 == other[0] >> 4
        && one[addresses.clone()] == other[addresses]
        && one.get(ports.clone()) == other.get(ports)
}

/// Turns the first packet's headers into those of a segment of `length` bytes that ends with `last`.
fn write_headers(headers: &mut [u8], layout: &Layout, length: usize, last: &[u8]) {
    let transport_length = length - layout.ip_header;
    if layout.ipv6 {
        put_u16(headers, 4, transport_length as u16);
    } else {
        put_u16(headers, 2, length as u16);
        put_u16(headers, 10, 0);
        let sum = checksum::sum(&headers[..layout.ip_header], 0);
        put_u16(headers, 10, checksum::finish(sum));
    }
    if layout.is_udp() {
        put_u16(headers, layout.ip_header + 4, transport_length as u16);
    } else {
        headers[layout.ip_header + 13] |= last[layout.ip_header + 13] & PSH;
    }
    let pseudo_header = checksum::pseudo_header(headers, layout, transport_length);
    put_u16(headers, layout.checksum_at(), checksum::partial(pseudo_header));
}

const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
