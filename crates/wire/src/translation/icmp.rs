//! ICMP messages (RFC 7915 sections 4.2 and 5.2): echoes, and errors with the packet that they are about.

use super::to_v6::V4;
use super::{
    GROWTH, ICMP_V4, ICMP_V6, LEAST_V6_MTU, Translator, Untranslated, V4_HEADER, checksum, set_word, to_v4,
    to_v6, word,
};

// ICMPv4 (RFC 792, RFC 1812).
const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;
const FRAGMENTATION_NEEDED: u8 = 4;
// ICMPv6 (RFC 4443).
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_V6: u8 = 4;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;

const HEADER: usize = 8;
/// The longest error: what fits the least MTU (RFC 4443 section 2.4), less a fragment header.
const LONGEST: usize = LEAST_V6_MTU as usize - super::V6_HEADER - super::FRAGMENT_HEADER;
/// What an IPv4 error of ours quotes (RFC 1812 section 4.3.2.3).
const LONGEST_V4: usize = 576 - V4_HEADER - HEADER;

/// The ICMPv6 message for an ICMPv4 one.
pub(super) fn to_v6(translator: &Translator, packet: &V4<'_>) -> Result<Vec<u8>, Untranslated> {
    let message = packet.body;
    let head: &[u8; HEADER] = message.first_chunk().ok_or(Untranslated::Malformed)?;
    let sum = |prefix: super::Prefix, address| checksum::sum(&prefix.embed(address).octets());
    let addresses = sum(translator.own, packet.source) + sum(translator.far, packet.destination);
    if matches!(head[0], ECHO | ECHO_REPLY) {
        let mut message = message.to_vec();
        echo_to_v6(&mut message, addresses + u32::from(checksum::fold(packet.total as u32)))?;
        return Ok(message);
    }
    let (kind, code, rest) = error_to_v6(head).ok_or(Untranslated::NoCounterpart)?;
    let quoted = to_v6::quoted(translator, message.get(HEADER..).unwrap_or_default())?;
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(quoted);
    message.truncate(LONGEST);
    let pseudo = addresses + message.len() as u32 + u32::from(ICMP_V6);
    let checksum = checksum::of(pseudo + checksum::sum(&message));
    set_word(&mut message, 2, checksum);
    Ok(message)
}

/// The ICMPv4 message for an ICMPv6 one.
pub(super) fn to_v4(translator: &Translator, message: &[u8]) -> Result<Vec<u8>, Untranslated> {
    let head: &[u8; HEADER] = message.first_chunk().ok_or(Untranslated::Malformed)?;
    let mut translated = if matches!(head[0], ECHO_V6 | ECHO_REPLY_V6) {
        let kind = if head[0] == ECHO_V6 { ECHO } else { ECHO_REPLY };
        let mut message = message.to_vec();
        message[..4].copy_from_slice(&[kind, 0, 0, 0]);
        message
    } else {
        let (kind, code, rest) = error_to_v4(head).ok_or(Untranslated::NoCounterpart)?;
        let quoted = to_v4::quoted(translator, message.get(HEADER..).unwrap_or_default())?;
        let mut message = vec![kind, code, 0, 0];
        message.extend(rest.to_be_bytes());
        message.extend(quoted);
        message
    };
    let checksum = checksum::of(checksum::sum(&translated));
    set_word(&mut translated, 2, checksum);
    Ok(translated)
}

/// Whether it is an error, which may come from any router.
pub(super) fn is_error_v6(message: &[u8]) -> bool {
    message.first().is_some_and(|kind| *kind < 128)
}

/// Makes an echo one of ICMPv6. `pseudo` is the sum of the pseudo header but for its protocol.
///
/// The checksum is changed, not made anew: a quoted message may be cut off.
pub(super) fn echo_to_v6(message: &mut [u8], pseudo: u32) -> Result<(), Untranslated> {
    let kind = match message.first() {
        Some(&ECHO) => ECHO_V6,
        Some(&ECHO_REPLY) => ECHO_REPLY_V6,
        _ => return Err(Untranslated::NoCounterpart),
    };
    rewrite(message, kind, 0, pseudo + u32::from(ICMP_V6));
    Ok(())
}

/// The same the other way.
pub(super) fn echo_to_v4(message: &mut [u8], pseudo: u32) -> Result<(), Untranslated> {
    let kind = match message.first() {
        Some(&ECHO_V6) => ECHO,
        Some(&ECHO_REPLY_V6) => ECHO_REPLY,
        _ => return Err(Untranslated::NoCounterpart),
    };
    rewrite(message, kind, pseudo + u32::from(ICMP_V6), 0);
    Ok(())
}

/// A new type, and a checksum with another pseudo header.
fn rewrite(message: &mut [u8], kind: u8, old_pseudo: u32, new_pseudo: u32) {
    let (Some(old), Some(checksum)) = (word(message, 0), word(message, 2)) else { return };
    if let Some(first) = message.first_mut() {
        *first = kind;
    }
    let new = word(message, 0).unwrap_or_default();
    let checksum = checksum::updated(checksum, u32::from(old) + old_pseudo, u32::from(new) + new_pseudo);
    set_word(message, 2, checksum);
}

/// Type, code and the four octets behind the checksum.
fn error_to_v6(head: &[u8; HEADER]) -> Option<(u8, u8, u32)> {
    let [kind, code, _, _, pointer, _, high, low] = *head;
    Some(match (kind, code) {
        (UNREACHABLE, 2) => (PARAMETER_V6, 1, NEXT_HEADER),
        (UNREACHABLE, 3) => (UNREACHABLE_V6, 4, 0),
        (UNREACHABLE, FRAGMENTATION_NEEDED) => {
            let told = u16::from_be_bytes([high, low]);
            // RFC 1191 section 5: a router of old says nothing; RFC 8200 has no smaller MTU than this.
            let mtu = told.saturating_add(GROWTH).max(LEAST_V6_MTU);
            (TOO_BIG_V6, 0, mtu.into())
        }
        (UNREACHABLE, 9 | 10 | 13 | 15) => (UNREACHABLE_V6, 1, 0),
        (UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => (UNREACHABLE_V6, 0, 0),
        (TIME_EXCEEDED, code) => (TIME_EXCEEDED_V6, code, 0),
        (PARAMETER, 0 | 2) => {
            let place = POINTERS_TO_V6.iter().find(|(from, to, _)| (from..=to).contains(&&pointer));
            (PARAMETER_V6, 0, place?.2)
        }
        _ => return None,
    })
}

fn error_to_v4(head: &[u8; HEADER]) -> Option<(u8, u8, u32)> {
    let [kind, code, _, _, rest @ ..] = *head;
    let rest = u32::from_be_bytes(rest);
    Some(match (kind, code) {
        (UNREACHABLE_V6, 1) => (UNREACHABLE, 10, 0),
        (UNREACHABLE_V6, 4) => (UNREACHABLE, 3, 0),
        (UNREACHABLE_V6, 0 | 2 | 3) => (UNREACHABLE, 1, 0),
        (TOO_BIG_V6, _) => {
            let told = u16::try_from(rest).unwrap_or(u16::MAX).max(LEAST_V6_MTU);
            (UNREACHABLE, FRAGMENTATION_NEEDED, u32::from(told - GROWTH))
        }
        (TIME_EXCEEDED_V6, code) => (TIME_EXCEEDED, code, 0),
        (PARAMETER_V6, 0) => {
            let place = POINTERS_TO_V4.iter().find(|(from, to, _)| (from..=to).contains(&&rest));
            (PARAMETER, 0, u32::from(place?.2) << 24)
        }
        (PARAMETER_V6, 1) => (UNREACHABLE, 2, 0),
        _ => return None,
    })
}

/// Offset of the next header in an IPv6 header.
const NEXT_HEADER: u32 = 6;
/// From and to in an IPv4 header, and where that is in an IPv6 header (RFC 7915 figure 3).
const POINTERS_TO_V6: [(u8, u8, u32); 7] =
    [(0, 0, 0), (1, 1, 1), (2, 3, 4), (8, 8, 7), (9, 9, NEXT_HEADER), (12, 15, 8), (16, 19, 24)];
/// The other way (RFC 7915 figure 6).
const POINTERS_TO_V4: [(u32, u32, u8); 7] =
    [(0, 0, 0), (1, 1, 1), (4, 5, 2), (6, 6, 9), (7, 7, 8), (8, 23, 12), (24, 39, 16)];

/// An ICMPv4 error to the sender of `packet`, in the name of its destination.
pub(super) fn too_long(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let parsed = V4::read(packet, true)?;
    // Never about an error, nor about a later fragment (RFC 1122 section 3.2.2).
    let about_error =
        parsed.protocol == ICMP_V4 && !matches!(parsed.body.first(), Some(&(ECHO | ECHO_REPLY)));
    if parsed.is_later_fragment() || about_error {
        return None;
    }
    let mut message = vec![UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(packet.get(..packet.len().min(LONGEST_V4))?);
    let checksum = checksum::of(checksum::sum(&message));
    set_word(&mut message, 2, checksum);
    let mut answer = vec![0x45, 0];
    answer.extend(((V4_HEADER + message.len()) as u16).to_be_bytes());
    answer.extend([0, 0, 0, 0, 64, ICMP_V4, 0, 0]);
    answer.extend(parsed.destination.octets());
    answer.extend(parsed.source.octets());
    let checksum = checksum::of(checksum::sum(&answer));
    set_word(&mut answer, 10, checksum);
    answer.extend(message);
    Some(answer)
}
