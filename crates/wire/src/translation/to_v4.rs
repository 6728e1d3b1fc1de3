//! From IPv6 to IPv4 (RFC 7915 section 5).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{
    FRAGMENT, FRAGMENT_HEADER, ICMP_V4, ICMP_V6, Prefix, Translator, UDP, Untranslated, V4_HEADER, V6_HEADER,
    checksum, checksum_at, has_counterpart, icmp, set_word, word,
};

const MORE: u16 = 0x2000;
const DO_NOT: u16 = 0x4000;
/// For routers whose address has no IPv4 form (RFC 7600 section 4.8).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// An IPv6 header with its extension headers, and what follows them, as far as it is there.
pub(super) struct V6<'a> {
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) protocol: u8,
    hops: u8,
    class: u8,
    /// Offset and M as they stand in the fragment header, and the identification.
    fragment: Option<(u16, u32)>,
    /// Length of what follows the headers, as they say it.
    pub(super) total: usize,
    pub(super) body: &'a [u8],
}

impl<'a> V6<'a> {
    /// Reads a packet; with `whole` all of it must be there.
    pub(super) fn read(bytes: &'a [u8], whole: bool) -> Result<Self, Untranslated> {
        let header: &[u8; V6_HEADER] = bytes.first_chunk().ok_or(Untranslated::Malformed)?;
        let end = V6_HEADER + usize::from(word(header, 4).ok_or(Untranslated::Malformed)?);
        if header[0] >> 4 != 6 || whole && bytes.len() < end {
            return Err(Untranslated::Malformed);
        }
        let address =
            |at: usize| -> Option<Ipv6Addr> { Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?)) };
        let (source, destination) = address(8).zip(address(24)).ok_or(Untranslated::Malformed)?;
        let mut parsed = Self {
            source,
            destination,
            protocol: header[6],
            hops: header[7],
            class: header[0] << 4 | header[1] >> 4,
            fragment: None,
            total: 0,
            body: &[],
        };
        let start = parsed.skip_extensions(bytes, end)?;
        parsed.total = end - start;
        parsed.body = bytes.get(start..end.min(bytes.len())).ok_or(Untranslated::Malformed)?;
        Ok(parsed)
    }

    /// Walks the extension headers; where what follows them begins.
    fn skip_extensions(&mut self, bytes: &[u8], end: usize) -> Result<usize, Untranslated> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const DESTINATION_OPTIONS: u8 = 60;
        const MOST: usize = 8;
        let mut start = V6_HEADER;
        for _ in 0..MOST {
            let kind = self.protocol;
            if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
                return if start <= end { Ok(start) } else { Err(Untranslated::Malformed) };
            }
            let extension: &[u8; FRAGMENT_HEADER] =
                bytes.get(start..).and_then(<[u8]>::first_chunk).ok_or(Untranslated::Malformed)?;
            self.protocol = extension[0];
            start += FRAGMENT_HEADER;
            match kind {
                FRAGMENT if self.fragment.is_some() => return Err(Untranslated::Malformed),
                FRAGMENT => {
                    let [_, _, high, low, identification @ ..] = *extension;
                    let offset = u16::from_be_bytes([high, low]);
                    self.fragment = Some((offset, u32::from_be_bytes(identification)));
                    if offset & !7 != 0 {
                        return if start <= end { Ok(start) } else { Err(Untranslated::Malformed) };
                    }
                }
                // It still has stations to visit.
                ROUTING if extension[3] != 0 => return Err(Untranslated::NoCounterpart),
                _ => start += 8 * usize::from(extension[1]),
            }
        }
        Err(Untranslated::NoCounterpart)
    }

    fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|(offset, _)| offset & !7 != 0)
    }

    /// Whether it is only a piece; a fragment header on a whole packet (RFC 6946) does not make it one.
    fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|(offset, _)| offset & !6 != 0)
    }

    fn addresses(&self) -> u32 {
        checksum::sum(&self.source.octets()) + checksum::sum(&self.destination.octets())
    }
}

pub(super) fn translate(translator: &Translator, packet: &[u8]) -> Result<Vec<u8>, Untranslated> {
    let parsed = V6::read(packet, true)?;
    let destination = translator.own.extract(parsed.destination).ok_or(Untranslated::Address)?;
    let is_error = parsed.protocol == ICMP_V6 && !parsed.is_fragment() && icmp::is_error_v6(parsed.body);
    let source = match translator.far.extract(parsed.source) {
        Some(source) => source,
        None if is_error => DUMMY,
        None => return Err(Untranslated::Address),
    };
    let (protocol, body) = body(translator, &parsed, source, destination)?;
    assemble(&parsed, source, destination, protocol, &body, body.len())
}

/// An IPv4 packet whose header says that `total` bytes follow it.
fn assemble(
    parsed: &V6<'_>,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    body: &[u8],
    total: usize,
) -> Result<Vec<u8>, Untranslated> {
    let length = u16::try_from(V4_HEADER + total).map_err(|_| Untranslated::Malformed)?;
    let (identification, flags) = match parsed.fragment {
        Some((offset, identification)) if parsed.is_fragment() => {
            (identification as u16, offset >> 3 | if offset & 1 != 0 { MORE } else { 0 })
        }
        Some((_, identification)) => (identification as u16, 0),
        None => (0, DO_NOT),
    };
    let mut packet = Vec::with_capacity(V4_HEADER + body.len());
    packet.extend([0x45, parsed.class]);
    packet.extend(length.to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend(flags.to_be_bytes());
    packet.extend([parsed.hops, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let checksum = checksum::of(checksum::sum(&packet));
    set_word(&mut packet, 10, checksum);
    packet.extend_from_slice(body);
    Ok(packet)
}

fn body(
    translator: &Translator,
    parsed: &V6<'_>,
    source: Ipv4Addr,
    destination: Ipv4Addr,
) -> Result<(u8, Vec<u8>), Untranslated> {
    if parsed.protocol == ICMP_V6 {
        if parsed.is_fragment() {
            return Err(Untranslated::NoCounterpart);
        }
        return Ok((ICMP_V4, icmp::to_v4(translator, parsed.body)?));
    }
    if parsed.protocol == ICMP_V4 || !has_counterpart(parsed.protocol) {
        return Err(Untranslated::NoCounterpart);
    }
    let mut body = parsed.body.to_vec();
    if let Some(at) = checksum_at(parsed.protocol)
        && !parsed.is_later_fragment()
    {
        let old = word(&body, at).ok_or(Untranslated::Malformed)?;
        if old == 0 && parsed.protocol == UDP {
            return Err(Untranslated::Malformed);
        }
        set_word(&mut body, at, adjusted(old, parsed, source, destination));
    }
    Ok((parsed.protocol, body))
}

fn adjusted(old: u16, parsed: &V6<'_>, source: Ipv4Addr, destination: Ipv4Addr) -> u16 {
    let new = checksum::sum(&source.octets()) + checksum::sum(&destination.octets());
    match checksum::updated(old, parsed.addresses(), new) {
        // In UDP over IPv4 zero would mean that there is none.
        0 if parsed.protocol == UDP => 0xffff,
        checksum => checksum,
    }
}

/// The packet that an ICMPv6 error is about, cut off somewhere: it had left for the far side.
pub(super) fn quoted(translator: &Translator, bytes: &[u8]) -> Result<Vec<u8>, Untranslated> {
    let parsed = V6::read(bytes, false)?;
    let of = |prefix: Prefix, address| prefix.extract(address).ok_or(Untranslated::Address);
    let (source, destination) = (of(translator.own, parsed.source)?, of(translator.far, parsed.destination)?);
    let protocol = if parsed.protocol == ICMP_V6 { ICMP_V4 } else { parsed.protocol };
    let mut body = parsed.body.to_vec();
    if !parsed.is_later_fragment() {
        if parsed.protocol == ICMP_V6 {
            let pseudo = parsed.addresses() + checksum::fold(parsed.total as u32) as u32;
            icmp::echo_to_v4(&mut body, pseudo)?;
        } else if let Some(at) = checksum_at(parsed.protocol)
            && let Some(old) = word(&body, at)
        {
            set_word(&mut body, at, adjusted(old, &parsed, source, destination));
        }
    }
    assemble(&parsed, source, destination, protocol, &body, parsed.total)
}
