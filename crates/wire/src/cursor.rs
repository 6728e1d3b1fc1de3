//! A bounded reader over untrusted bytes, and the variable-length integer of RFC 9000 section 16.

/// Bytes that do not follow the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before the format does.
    #[error("cut short")]
    Truncated,
    /// A field has a value that the format does not allow.
    #[error("field `{0}` has a value that is not allowed")]
    Field(&'static str),
    /// A type byte that this version does not know.
    #[error("unknown type {0:#04x}")]
    UnknownType(u8),
}

/// Reads from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all has been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(Malformed::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes, big-endian.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// The next four bytes, big-endian.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A variable-length integer (RFC 9000 section 16).
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let first = *self.rest.first().ok_or(Malformed::Truncated)?;
        let length = 1usize << (first >> 6);
        let bytes = self.bytes(length)?;
        let mut value = u64::from(first & 0x3f);
        for &byte in bytes.get(1..).unwrap_or_default() {
            value = value << 8 | u64::from(byte);
        }
        Ok(value)
    }
}

/// The largest value a variable-length integer holds.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Appends a variable-length integer (RFC 9000 section 16); values over [`VARINT_MAX`] are clamped to it.
pub fn put_varint(buffer: &mut Vec<u8>, value: u64) {
    let value = value.min(VARINT_MAX);
    match value {
        0..=0x3f => buffer.push(value as u8),
        0x40..=0x3fff => buffer.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => buffer.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => buffer.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// How many bytes [`put_varint`] appends for `value`.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_vectors_of_rfc_9000_appendix_a1() {
        let vectors: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in vectors {
            assert_eq!(Reader::new(bytes).varint(), Ok(value));
            let mut buffer = Vec::new();
            put_varint(&mut buffer, value);
            assert_eq!(buffer, bytes);
            assert_eq!(varint_len(value), bytes.len());
        }
    }

    #[test]
    fn every_cut_is_an_error() {
        let bytes = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        for end in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..end]).varint(), Err(Malformed::Truncated));
        }
    }
}
