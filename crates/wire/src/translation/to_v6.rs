//! From IPv4 to IPv6 (RFC 7915 section 4).
//!
//! ```text
//! version IHL | type of service | total length          version | traffic class | flow label 0
//! identification | DF MF offset                    ->   payload length | next header | hop limit
//! time to live | protocol | checksum                    own::source
//! source | destination | options (dropped)              far::destination | fragment header, if a fragment
//! ```

use std::net::Ipv4Addr;

use super::{
    FRAGMENT, FRAGMENT_HEADER, GROWTH, ICMP_V4, ICMP_V6, LEAST_V6_MTU, Prefix, Translator, UDP, Untranslated,
    V4_HEADER, V6_HEADER, checksum, checksum_at, has_counterpart, icmp, set_word, word,
};

const MORE: u16 = 0x2000;
const DO_NOT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

/// An IPv4 header and what follows it, as far as it is there.
pub(super) struct V4<'a> {
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) protocol: u8,
    hops: u8,
    service: u8,
    identification: u16,
    fragment: u16,
    /// What the header says of its own length.
    pub(super) total: usize,
    pub(super) options: bool,
    pub(super) body: &'a [u8],
}

impl<'a> V4<'a> {
    /// Reads a packet; with `whole` all of it must be there, else only its header, as in an ICMP error.
    pub(super) fn read(bytes: &'a [u8], whole: bool) -> Option<Self> {
        let header: &[u8; V4_HEADER] = bytes.first_chunk()?;
        let length = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(word(header, 2)?);
        if header[0] >> 4 != 4 || length < V4_HEADER || total < length || whole && bytes.len() < total {
            return None;
        }
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        Some(Self {
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
            protocol: header[9],
            hops: header[8],
            service: header[1],
            identification: word(header, 4)?,
            fragment: word(header, 6)?,
            total: total - length,
            options: length > V4_HEADER,
            body: bytes.get(length..total.min(bytes.len()))?,
        })
    }

    pub(super) const fn is_later_fragment(&self) -> bool {
        self.fragment & OFFSET != 0
    }

    pub(super) const fn is_fragment(&self) -> bool {
        self.fragment & (OFFSET | MORE) != 0
    }

    /// Sum of the addresses and the length, which the pseudo header has in both versions alike.
    fn addresses(&self) -> u32 {
        checksum::sum(&self.source.octets()) + checksum::sum(&self.destination.octets())
    }
}

pub(super) fn translate(
    translator: &Translator,
    packet: &[u8],
    mtu: u16,
    sink: &mut impl FnMut(&[u8]),
) -> Result<(), Untranslated> {
    let parsed = V4::read(packet, true).ok_or(Untranslated::Malformed)?;
    let nowhere = |address: Ipv4Addr| {
        let first = address.octets()[0];
        first == 0 || first >= 224 || address.is_loopback() || address.is_link_local()
    };
    if nowhere(parsed.source) || nowhere(parsed.destination) {
        return Err(Untranslated::Address);
    }
    let end = usize::from(parsed.fragment & OFFSET) * 8 + parsed.body.len();
    if parsed.is_fragment() && end > usize::from(u16::MAX) {
        return Err(Untranslated::Malformed);
    }
    if parsed.options && source_routed(packet) {
        return Err(Untranslated::NoCounterpart);
    }
    let (protocol, body) = body(translator, &parsed)?;
    let mtu = mtu.max(LEAST_V6_MTU);
    let limit = usize::from(mtu);
    let whole = V6_HEADER + body.len() + if parsed.is_fragment() { FRAGMENT_HEADER } else { 0 };
    if whole <= limit {
        sink(&packet_of(translator, &parsed, protocol, &body, parsed.fragment));
        return Ok(());
    }
    if parsed.fragment & DO_NOT != 0 {
        return Err(Untranslated::TooLong { mtu: mtu - GROWTH });
    }
    // Every fragment but the last is a multiple of 8 long (RFC 8200 section 4.5).
    let each = (limit - V6_HEADER - FRAGMENT_HEADER) / 8 * 8;
    let count = body.len().div_ceil(each);
    for (at, piece) in body.chunks(each).enumerate() {
        let offset = (parsed.fragment & OFFSET) + (at * each / 8) as u16;
        let more = if at + 1 < count { MORE } else { parsed.fragment & MORE };
        // A last fragment at offset 0 cannot be here: there are at least two.
        sink(&packet_of(translator, &parsed, protocol, piece, offset | more));
    }
    Ok(())
}

fn packet_of(translator: &Translator, parsed: &V4<'_>, protocol: u8, body: &[u8], fragment: u16) -> Vec<u8> {
    let is_fragment = fragment & (OFFSET | MORE) != 0;
    let payload = body.len() + if is_fragment { FRAGMENT_HEADER } else { 0 };
    let mut packet = Vec::with_capacity(V6_HEADER + payload);
    let next = if is_fragment { FRAGMENT } else { protocol };
    header(&mut packet, parsed, payload, next, translator.own, translator.far);
    if is_fragment {
        fragment_header(&mut packet, protocol, fragment, parsed.identification);
    }
    packet.extend_from_slice(body);
    packet
}

fn header(to: &mut Vec<u8>, parsed: &V4<'_>, payload: usize, next: u8, source: Prefix, destination: Prefix) {
    to.extend((6 << 28 | u32::from(parsed.service) << 20).to_be_bytes());
    to.extend((payload as u16).to_be_bytes());
    to.extend([next, parsed.hops]);
    to.extend(source.embed(parsed.source).octets());
    to.extend(destination.embed(parsed.destination).octets());
}

fn fragment_header(to: &mut Vec<u8>, protocol: u8, fragment: u16, identification: u16) {
    let offset = (fragment & OFFSET) << 3 | u16::from(fragment & MORE != 0);
    to.extend([protocol, 0]);
    to.extend(offset.to_be_bytes());
    to.extend(u32::from(identification).to_be_bytes());
}

/// The protocol and what follows the headers, with right checksums.
fn body(translator: &Translator, parsed: &V4<'_>) -> Result<(u8, Vec<u8>), Untranslated> {
    if parsed.protocol == ICMP_V4 {
        // The checksum of ICMPv6 covers a length that only the whole message has.
        if parsed.is_fragment() {
            return Err(Untranslated::NoCounterpart);
        }
        return Ok((ICMP_V6, icmp::to_v6(translator, parsed)?));
    }
    if parsed.protocol == ICMP_V6 || !has_counterpart(parsed.protocol) {
        return Err(Untranslated::NoCounterpart);
    }
    let mut body = parsed.body.to_vec();
    if let Some(at) = checksum_at(parsed.protocol)
        && !parsed.is_later_fragment()
    {
        let old = word(&body, at).ok_or(Untranslated::Malformed)?;
        let new = new_addresses(parsed, translator.own, translator.far);
        let checksum = if old == 0 && parsed.protocol == UDP {
            // IPv6 has no datagrams without a checksum (RFC 7915 section 4.5).
            if parsed.is_fragment() {
                return Err(Untranslated::NoCounterpart);
            }
            checksum::of(new + u32::from(UDP) + u32::from(fold_length(body.len())) + checksum::sum(&body))
        } else {
            checksum::updated(old, parsed.addresses(), new)
        };
        set_word(&mut body, at, if checksum == 0 && parsed.protocol == UDP { 0xffff } else { checksum });
    }
    Ok((parsed.protocol, body))
}

fn fold_length(length: usize) -> u16 {
    checksum::fold(length as u32)
}

fn new_addresses(parsed: &V4<'_>, source: Prefix, destination: Prefix) -> u32 {
    let sum = |prefix: Prefix, address| checksum::sum(&prefix.embed(address).octets());
    sum(source, parsed.source) + sum(destination, parsed.destination)
}

/// The packet that an ICMP error is about, cut off somewhere: it had come from the far side.
pub(super) fn quoted(translator: &Translator, bytes: &[u8]) -> Result<Vec<u8>, Untranslated> {
    let parsed = V4::read(bytes, false).ok_or(Untranslated::Malformed)?;
    let (source, destination) = (translator.far, translator.own);
    let protocol = if parsed.protocol == ICMP_V4 { ICMP_V6 } else { parsed.protocol };
    let growth = if parsed.is_fragment() { FRAGMENT_HEADER } else { 0 };
    let mut packet = Vec::with_capacity(V6_HEADER + growth + parsed.body.len());
    let next = if parsed.is_fragment() { FRAGMENT } else { protocol };
    header(&mut packet, &parsed, parsed.total + growth, next, source, destination);
    if parsed.is_fragment() {
        fragment_header(&mut packet, protocol, parsed.fragment, parsed.identification);
    }
    let mut body = parsed.body.to_vec();
    if !parsed.is_later_fragment() {
        let new = new_addresses(&parsed, source, destination);
        if parsed.protocol == ICMP_V4 {
            icmp::echo_to_v6(&mut body, new + fold_length(parsed.total) as u32)?;
        } else if let Some(at) = checksum_at(parsed.protocol)
            && let Some(old) = word(&body, at)
        {
            set_word(&mut body, at, checksum::updated(old, parsed.addresses(), new));
        }
    }
    packet.extend(body);
    Ok(packet)
}

/// Whether the options ask for a way of their own (RFC 7915 section 4.1).
fn source_routed(packet: &[u8]) -> bool {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let end = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let mut options = packet.get(V4_HEADER..end).unwrap_or_default();
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            _ if [LOOSE, STRICT].contains(kind) => return true,
            _ => match rest.first() {
                Some(length) if *length >= 2 => {
                    options = options.get(usize::from(*length)..).unwrap_or_default();
                }
                _ => return false,
            },
        }
    }
    false
}
