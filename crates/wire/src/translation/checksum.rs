//! The Internet checksum (RFC 1071) and its change when headers change (RFC 1624).

/// The ones' complement sum of `bytes` in words, an odd last byte filled up with zero.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let all: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let last = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    u32::from(fold(all.wrapping_add(last)))
}

/// The sum in 16 bits.
pub(super) fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The checksum of what has this sum.
pub(super) fn of(sum: u32) -> u16 {
    !fold(sum)
}

/// `checksum` after what had the sum `old` has the sum `new` (RFC 1624 equation 3).
pub(super) fn updated(checksum: u16, old: u32, new: u32) -> u16 {
    of(u32::from(!checksum) + u32::from(!fold(old)) + u32::from(fold(new)))
}
