//! One large segment from the TUN, cut into the packets that a link would have carried.

use super::checksum;
use super::layout::{Layout, put_u16, put_u32, u16_at, u32_at};
use super::virtio::{ECN, NEEDS_CHECKSUM, SINGLE, TCP_V4, TCP_V6, UDP_SEGMENTS, VirtioHeader};

const MAXIMUM_HEADERS: usize = 40 + 60;

/// Gives each packet of `buffer` to `sink`; returns how many there were, 0 if header and packet do not fit.
///
/// The headers of each further packet are written right before its payload, over bytes that `sink` has seen
/// already, so no payload is copied.
pub(super) fn split(header: VirtioHeader, buffer: &mut [u8], sink: &mut impl FnMut(&[u8])) -> usize {
    if header.kind == SINGLE {
        if header.flags & NEEDS_CHECKSUM != 0 && complete_checksum(header, buffer).is_none() {
            return 0;
        }
        sink(buffer);
        return 1;
    }
    split_segments(header, buffer, sink).unwrap_or(0)
}

/// Finishes a checksum whose field holds the pseudo header's sum.
fn complete_checksum(header: VirtioHeader, packet: &mut [u8]) -> Option<()> {
    let start = usize::from(header.checksum_start);
    let field = start + usize::from(header.checksum_offset);
    if field + 2 > packet.len() {
        return None;
    }
    let checksum = match checksum::finish(checksum::sum(&packet[start..], 0)) {
        // In UDP zero would mean "no checksum"; the two are equal in one's complement.
        0 => 0xffff,
        checksum => checksum,
    };
    put_u16(packet, field, checksum);
    Some(())
}

fn split_segments(header: VirtioHeader, buffer: &mut [u8], sink: &mut impl FnMut(&[u8])) -> Option<usize> {
    let layout = Layout::read(buffer)?;
    let kind_fits = match header.kind & !ECN {
        TCP_V4 => !layout.is_udp() && !layout.ipv6,
        TCP_V6 => !layout.is_udp() && layout.ipv6,
        UDP_SEGMENTS => layout.is_udp(),
        _ => false,
    };
    let size = usize::from(header.segment_size);
    if !kind_fits || size == 0 || layout.headers >= buffer.len() {
        return None;
    }
    let mut first_headers = [0; MAXIMUM_HEADERS];
    let first_headers = &mut first_headers[..layout.headers];
    first_headers.copy_from_slice(&buffer[..layout.headers]);

    let payload_length = buffer.len() - layout.headers;
    let count = payload_length.div_ceil(size);
    for index in 0..count {
        let start = index * size;
        let end = (start + size).min(payload_length) + layout.headers;
        let packet = &mut buffer[start..end];
        packet[..layout.headers].copy_from_slice(first_headers);
        write_headers(packet, &layout, index, count, size);
        sink(packet);
    }
    Some(count)
}

/// Turns the large segment's headers into those of packet `index` of `count`.
fn write_headers(packet: &mut [u8], layout: &Layout, index: usize, count: usize, size: usize) {
    let transport_length = packet.len() - layout.ip_header;
    if layout.ipv6 {
        put_u16(packet, 4, transport_length as u16);
    } else {
        let identification = u16_at(packet, 4).wrapping_add(index as u16);
        put_u16(packet, 2, (layout.ip_header + transport_length) as u16);
        put_u16(packet, 4, identification);
        put_u16(packet, 10, 0);
        let sum = checksum::sum(&packet[..layout.ip_header], 0);
        put_u16(packet, 10, checksum::finish(sum));
    }
    let transport = layout.ip_header;
    if layout.is_udp() {
        put_u16(packet, transport + 4, transport_length as u16);
    } else {
        let sequence = u32_at(packet, transport + 4).wrapping_add((index * size) as u32);
        put_u32(packet, transport + 4, sequence);
        if index > 0 {
            packet[transport + 13] &= !CWR;
        }
        if index + 1 < count {
            packet[transport + 13] &= !(FIN | PSH);
        }
    }
    put_checksum(packet, layout);
}

/// Writes the transport checksum of a packet that lies so.
fn put_checksum(packet: &mut [u8], layout: &Layout) {
    let transport = layout.ip_header;
    put_u16(packet, layout.checksum_at(), 0);
    let pseudo_header = checksum::pseudo_header(packet, layout, packet.len() - transport);
    let checksum = match checksum::finish(checksum::sum(&packet[transport..], pseudo_header)) {
        0 => 0xffff,
        checksum => checksum,
    };
    put_u16(packet, layout.checksum_at(), checksum);
}

/// Writes the transport checksum of a TCP or UDP packet, as the kernel writes those of its own; false if it is neither, or not
/// whole: then it stays as it is.
pub fn write_checksum(packet: &mut [u8]) -> bool {
    let Some(layout) = Layout::read(packet) else { return false };
    put_checksum(packet, &layout);
    true
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
