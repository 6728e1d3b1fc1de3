//! Content whose every byte follows from its place, so that a receiver notices what is lost, doubled or out of order.

/// A block of content for offsets that are multiples of its length apart.
///
/// Content is a sequence of 8-byte little-endian numbers: the offset of that number, modulo [`PERIOD`].
pub fn block() -> Vec<u8> {
    (0..PERIOD).step_by(8).flat_map(u64::to_le_bytes).collect()
}

/// Checks a flow's content as it arrives.
#[derive(Debug)]
pub struct Verifier {
    block: Vec<u8>,
    offset: u64,
    intact: bool,
}

impl Verifier {
    /// A verifier at the start of a flow.
    pub fn new() -> Self {
        Self { block: block(), offset: 0, intact: true }
    }

    /// Takes the next bytes of the flow.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (self.offset % PERIOD) as usize;
            let length = bytes.len().min(self.block.len() - at);
            self.intact &= bytes[..length] == self.block[at..at + length];
            self.offset += length as u64;
            bytes = &bytes[length..];
        }
    }

    /// Whether everything so far was as it should be.
    pub fn is_intact(&self) -> bool {
        self.intact
    }
}

/// After this many bytes content repeats.
const PERIOD: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_is_accepted_and_any_slip_is_not() {
        let content = [block(), block()].concat();
        let mut verifier = Verifier::new();
        for piece in content.chunks(1_013) {
            verifier.take(piece);
        }
        assert!(verifier.is_intact());

        let mut verifier = Verifier::new();
        verifier.take(&content[..1_000]);
        verifier.take(&content[1_008..2_000]);
        assert!(!verifier.is_intact());
    }
}
