//! The Internet checksum (RFC 1071).

use super::layout::Layout;

/// One's complement sum of 16-bit big-endian words, not yet complemented.
///
/// Added up as native 32-bit words, which the compiler turns into vector instructions: by RFC 1071 section 2 the
/// sum may be formed in any byte order and word size and folded at the end.
pub(super) fn sum(bytes: &[u8], initial: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    initial + u32::from(u16::from_be(fold(total)))
}

/// The checksum to write: the folded complement of a [`sum`].
pub(super) fn finish(sum: u32) -> u16 {
    !fold(u64::from(sum))
}

/// A [`sum`] folded to 16 bits, as the kernel wants it in the field of a packet whose checksum it completes.
pub(super) fn partial(sum: u32) -> u16 {
    fold(u64::from(sum))
}

/// Sum of the pseudo header (RFC 9293 section 3.1, RFC 8200 section 8.1) for `length` bytes of transport data.
pub(super) fn pseudo_header(packet: &[u8], layout: &Layout, length: usize) -> u32 {
    let addresses = if layout.ipv6 { &packet[8..40] } else { &packet[12..20] };
    sum(addresses, u32::from(layout.protocol) + length as u32)
}

/// Whether the transport checksum of `packet` is right. A UDP packet without one is not.
pub(super) fn is_right(packet: &[u8], layout: &Layout) -> bool {
    if layout.is_udp() && packet[layout.checksum_at()..][..2] == [0, 0] {
        return false;
    }
    let transport = &packet[layout.ip_header..];
    finish(sum(transport, pseudo_header(packet, layout, transport.len()))) == 0
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3: the sum of these words is ddf2.
    #[test]
    fn published_example() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(partial(sum(&words, 0)), 0xddf2);
        assert_eq!(finish(sum(&words, 0)), !0xddf2);
    }

    #[test]
    fn odd_lengths_and_large_inputs_agree_with_the_plain_definition() {
        for length in [0, 1, 2, 3, 5, 1_399, 65_535] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + 250) as u8).collect();
            let mut plain: u64 = 0;
            for pair in bytes.chunks(2) {
                plain += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
            }
            assert_eq!(partial(sum(&bytes, 0)), fold(plain), "{length} bytes");
        }
    }
}
