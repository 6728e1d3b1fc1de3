//! Forward error correction: one XOR of a run of packets repairs the loss of any one of them.

use std::collections::VecDeque;
use wire::frame::MAX_REPAIR_COUNT;

/// Packets kept by a decoder for repairs that may come.
const KEPT_PACKETS: usize = 2 * MAX_REPAIR_COUNT as usize;
/// Share of expected losses that a run may hold: a run of `0.2 / loss` packets rarely loses two.
const LOSSES_PER_RUN: f64 = 0.2;
/// Shortest run: protection of no more than one packet in eight.
const MIN_RUN: f64 = 8.0;

/// How many packets one repair should cover at this loss rate (0 to 1).
pub(crate) fn run_length(loss_rate: f64) -> u8 {
    (LOSSES_PER_RUN / loss_rate.max(1e-6)).clamp(MIN_RUN, f64::from(MAX_REPAIR_COUNT)) as u8
}

/// Sums up packets of one flow as they are numbered.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    first: u32,
    count: u8,
    length_xor: u16,
    xor: Vec<u8>,
}

/// A finished run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u8,
    pub(crate) length_xor: u16,
    pub(crate) xor: Vec<u8>,
}

impl Encoder {
    /// Adds the packet with the next sequence number; a run of `length` packets is returned when it is full.
    pub(crate) fn add(&mut self, sequence: u32, packet: &[u8], length: u8) -> Option<Run> {
        if self.count == 0 {
            self.first = sequence;
        }
        self.count += 1;
        self.length_xor ^= packet.len() as u16;
        add(&mut self.xor, packet);
        if self.count < length.max(1) {
            return None;
        }
        self.finish()
    }

    /// Ends the run early, if there is one.
    pub(crate) fn finish(&mut self) -> Option<Run> {
        let Self { first, count, length_xor, xor } = std::mem::take(self);
        (count > 0).then_some(Run { first, count, length_xor, xor })
    }
}

/// Remembers a flow's packets so that a repair can restore the one that is missing.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    packets: VecDeque<(u32, Vec<u8>)>,
}

impl Decoder {
    /// Notes a packet that arrived or was restored.
    pub(crate) fn add(&mut self, sequence: u32, packet: &[u8]) {
        if self.packets.len() == KEPT_PACKETS {
            self.packets.pop_front();
        }
        self.packets.push_back((sequence, packet.to_vec()));
    }

    /// The one packet of the run that did not arrive; `None` if none or more than one is missing, or the repair is nonsense.
    pub(crate) fn repair(
        &self,
        first: u32,
        count: u8,
        length_xor: u16,
        xor: &[u8],
    ) -> Option<(u32, Vec<u8>)> {
        let mut seen = 0u64;
        let mut length = length_xor;
        let mut packet = xor.to_vec();
        for (sequence, bytes) in &self.packets {
            let offset = sequence.wrapping_sub(first);
            if offset >= u32::from(count) || seen >> offset & 1 == 1 {
                continue;
            }
            seen |= 1 << offset;
            length ^= bytes.len() as u16;
            add(&mut packet, bytes);
        }
        if seen.count_ones() + 1 != u32::from(count) {
            return None;
        }
        let missing = (!seen).trailing_zeros();
        if usize::from(length) > packet.len() || length == 0 {
            return None;
        }
        packet.truncate(usize::from(length));
        Some((first.wrapping_add(missing), packet))
    }
}

fn add(sum: &mut Vec<u8>, bytes: &[u8]) {
    if sum.len() < bytes.len() {
        sum.resize(bytes.len(), 0);
    }
    for (to, from) in sum.iter_mut().zip(bytes) {
        *to ^= from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_any_one_packet_of_a_run() {
        let packets: Vec<Vec<u8>> =
            (0u8..8).map(|index| vec![index + 1; 10 + usize::from(index) * 7]).collect();
        let start = u32::MAX - 3;
        let mut encoder = Encoder::default();
        let mut run = None;
        for (offset, packet) in packets.iter().enumerate() {
            run = encoder.add(start.wrapping_add(offset as u32), packet, 8);
        }
        let run = run.unwrap();
        for missing in 0..packets.len() {
            let mut decoder = Decoder::default();
            for (offset, packet) in packets.iter().enumerate().filter(|(offset, _)| *offset != missing) {
                decoder.add(start.wrapping_add(offset as u32), packet);
            }
            let restored = decoder.repair(run.first, run.count, run.length_xor, &run.xor);
            assert_eq!(restored, Some((start.wrapping_add(missing as u32), packets[missing].clone())));
            // A second one missing cannot be restored.
            decoder.packets.pop_front();
            assert_eq!(decoder.repair(run.first, run.count, run.length_xor, &run.xor), None);
        }
    }

    #[test]
    fn run_lengths() {
        assert_eq!(run_length(0.0), 64);
        assert_eq!(run_length(0.01), 20);
        assert_eq!(run_length(0.5), 8);
    }
}
