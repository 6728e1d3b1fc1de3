//! Datagrams in a byte stream: each is preceded by its length in two bytes, most significant first.
//!
//! ```text
//! +--------+--------+--------------------+--------+--------+-----
//! | length (1-16384)| datagram           |     length      | ...
//! +--------+--------+--------------------+--------+--------+-----
//! ```

use thiserror::Error;

/// Largest datagram that a frame may hold, in bytes.
pub const MAXIMUM_DATAGRAM: usize = 16_384;

/// Bytes of length before each datagram.
pub(super) const PREFIX: usize = 2;

/// The other end does not speak this framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("frame of {0} bytes, allowed are 1 to {MAXIMUM_DATAGRAM}")]
pub struct FrameError(pub usize);

/// Gives each whole frame's datagram at the start of `bytes` to `sink`; returns how many bytes they took.
pub(super) fn frames(bytes: &mut [u8], sink: &mut impl FnMut(&mut [u8])) -> Result<usize, FrameError> {
    let mut taken = 0;
    while let Some((length, rest)) = bytes[taken..].split_first_chunk_mut::<PREFIX>() {
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 || length > MAXIMUM_DATAGRAM {
            return Err(FrameError(length));
        }
        let Some(datagram) = rest.get_mut(..length) else { break };
        sink(datagram);
        taken += PREFIX + length;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Result<usize, FrameError>) {
        let mut found = Vec::new();
        let taken = frames(&mut bytes.to_vec(), &mut |datagram| found.push(datagram.to_vec()));
        (found, taken)
    }

    #[test]
    fn whole_frames_are_taken_and_the_rest_is_left() {
        assert_eq!(read(&[]), (vec![], Ok(0)));
        assert_eq!(read(&[0]), (vec![], Ok(0)));
        assert_eq!(read(&[0, 2, 7]), (vec![], Ok(0)));
        assert_eq!(read(&[0, 2, 7, 8, 0, 1, 9, 0]), (vec![vec![7, 8], vec![9]], Ok(7)));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(read(&[0, 0, 1]).1, Err(FrameError(0)));
        assert_eq!(read(b"HTTP/1.1 400 Bad Request").1, Err(FrameError(0x4854)));
        assert_eq!(read(&[0, 1, 5, 0x40, 1]), (vec![vec![5]], Err(FrameError(0x4001))));
    }
}
