//! One uplink lent to several transfers: who is next, and how much each may have under way.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;
use wire::upload::{AirRepeat, RateIndex, Transfer};

use crate::neighbour::{Neighbour, Transmit};

/// A transfer that has carried nothing for so long leaves its part of the window to the others.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The least window: one chunk on its way and one to follow.
const NARROWEST: u32 = 2;

/// What a neighbour lends, to one transfer or to several; each gets the same part of the uplink in bytes, and what one leaves the others get
/// (start-time fair queueing: Goyal, Vin, Cheng 1996).
#[derive(Clone, Debug)]
pub struct Lender<P> {
    transfers: BTreeMap<Transfer, Lent<P>>,
    /// Bytes that a transfer would have been given if it had always had something to carry.
    turn: u64,
    away: Duration,
}

#[derive(Clone, Debug)]
struct Lent<P> {
    machine: Neighbour<P>,
    /// Where its next chunk stands in the line of turns.
    next_turn: u64,
    carried_at: Option<Timestamp>,
    /// The destination, as far as is known, reckons with it.
    connected: bool,
}

impl<P> Default for Lender<P> {
    fn default() -> Self {
        Self { transfers: BTreeMap::new(), turn: 0, away: Duration::ZERO }
    }
}

impl<P: Clone> Lender<P> {
    /// Helps one more transfer. One of the same number is replaced.
    pub fn insert(&mut self, mut machine: Neighbour<P>) {
        machine.set_away(self.away);
        let lent = Lent { next_turn: self.turn, machine, carried_at: None, connected: true };
        self.transfers.insert(lent.machine.transfer(), lent);
    }

    /// Helps it no longer.
    pub fn remove(&mut self, transfer: Transfer) {
        self.transfers.remove(&transfer);
    }

    /// The connection to the destination is gone: nothing is sent for any transfer until it is [`Lender::resume`]d.
    pub fn suspend(&mut self) {
        for lent in self.transfers.values_mut() {
            lent.connected = false;
        }
    }

    /// The destination has told of this transfer on a new connection.
    pub fn resume(&mut self, now: Timestamp, transfer: Transfer) {
        if let Some(lent) = self.transfers.get_mut(&transfer) {
            lent.connected = true;
            lent.machine.handle_reconnected(now);
        }
    }

    /// The machine of a transfer, to hand in frames and grants.
    pub fn get_mut(&mut self, transfer: Transfer) -> Option<&mut Neighbour<P>> {
        self.transfers.get_mut(&transfer).map(|lent| &mut lent.machine)
    }

    /// What it keeps for a transfer.
    pub fn get(&self, transfer: Transfer) -> Option<&Neighbour<P>> {
        self.transfers.get(&transfer).map(|lent| &lent.machine)
    }

    /// The bandwidth-delay product of the uplink in bytes, as measured. It is shared out among those that carry; who may begin gets as much.
    pub fn set_window(&mut self, now: Timestamp, bytes: u64) {
        let active = |lent: &Lent<P>| lent.carried_at.is_some_and(|at| now.since(at) < IDLE_AFTER);
        let carrying = self.transfers.values().filter(|lent| active(lent)).count() as u64;
        for lent in self.transfers.values_mut() {
            let parts = carrying + u64::from(!active(lent));
            let chunks = bytes.div_ceil(parts * u64::from(lent.machine.chunk_bytes()).max(1));
            lent.machine.set_window(u32::try_from(chunks).unwrap_or(u32::MAX).max(NARROWEST));
        }
    }

    /// For how long at a time the radio that listens is in other networks: [`Neighbour::set_away`] of all.
    pub fn set_away(&mut self, away: Duration) {
        self.away = away;
        for lent in self.transfers.values_mut() {
            lent.machine.set_away(away);
        }
    }

    /// What to send next, while the socket has room: reports first, then chunks if `may_carry`, each transfer in its turn.
    pub fn poll_transmit(&mut self, now: Timestamp, may_carry: bool) -> Option<(Transfer, Transmit<P>)> {
        for (transfer, lent) in self.transfers.iter_mut().filter(|(_, lent)| lent.connected) {
            if let Some(report) = lent.machine.poll_report(now) {
                return Some((*transfer, Transmit::Report(report)));
            }
        }
        if !may_carry {
            return None;
        }
        let turn = self.turn;
        let place = |lent: &Lent<P>| lent.next_turn.max(turn);
        let next = self.transfers.iter().filter(|(_, lent)| lent.connected && lent.machine.has_chunks());
        let mut next: Vec<(u64, Transfer)> = next.map(|(transfer, lent)| (place(lent), *transfer)).collect();
        next.sort_unstable();
        for (place, transfer) in next {
            let Some(lent) = self.transfers.get_mut(&transfer) else { continue };
            if let Some((chunk, sealed)) = lent.machine.poll_chunk() {
                lent.next_turn = place + u64::from(lent.machine.chunk_bytes());
                lent.carried_at = Some(now);
                self.turn = place;
                return Some((transfer, Transmit::Carry(chunk, sealed)));
            }
        }
        None
    }

    /// The next chunk to be repeated on the air, of any transfer that is connected.
    pub fn poll_repeat(&mut self) -> Option<(AirRepeat, RateIndex, P)> {
        let mut connected = self.transfers.values_mut().filter(|lent| lent.connected);
        connected.find_map(|lent| lent.machine.poll_repeat())
    }

    /// When a report is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let connected = self.transfers.values().filter(|lent| lent.connected);
        connected.filter_map(|lent| lent.machine.poll_timeout()).min()
    }

    /// Bytes that it takes up without the sealed chunks themselves, roughly.
    pub fn memory(&self) -> usize {
        self.transfers.values().map(|lent| lent.machine.memory()).sum()
    }

    /// Chunks that it keeps.
    pub fn buffered(&self) -> usize {
        self.transfers.values().map(|lent| lent.machine.buffered()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbour::Lending;
    use crate::settings::Strategy;
    use wire::upload::{AirChunk, AirNumber, Chunk, Grant, RateIndex, Run, Runs};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    /// Helps a transfer whose first `granted` chunks it has and is to carry.
    fn help(lender: &mut Lender<()>, number: u64, granted: u32, chunk_bytes: u32) {
        let (transfer, strategy) = (Transfer(number), Strategy::Scheduled);
        let lending =
            Lending { transfer, strategy, chunks: 1_000, chunk_bytes, capacity: 1_000, window: 2, seed: 1 };
        let mut machine = Neighbour::new(lending);
        for chunk in 0..granted {
            let (air, rate) = (AirNumber(chunk), RateIndex(0));
            let frame = AirChunk { transfer, air, rate, addressee: None, chunk: Chunk(chunk) };
            machine.handle_frame(Timestamp::ZERO, &frame, ());
        }
        assert!(granted == 0 || machine.poll_report(NOW).is_some());
        if let Some(all) = granted.checked_sub(1).and_then(|last| Run::new(Chunk(0), Chunk(last))) {
            let (carry, none) = (Runs::rising([all]).unwrap(), Runs::new);
            machine.handle_grant(&Grant {
                transfer,
                carry,
                stored: none(),
                withdrawn: none(),
                forget: none(),
                repeat: none(),
            });
        }
        lender.insert(machine);
    }

    fn carried(lender: &mut Lender<()>, count: usize) -> Vec<u64> {
        let next = |_| lender.poll_transmit(NOW, true).map_or(0, |(transfer, _)| transfer.0);
        (0..count).map(next).collect()
    }

    #[test]
    fn each_gets_the_same_number_of_bytes_and_what_one_leaves_the_others_get() {
        let mut lender = Lender::default();
        help(&mut lender, 1, 100, 700);
        help(&mut lender, 2, 100, 1_400);
        help(&mut lender, 3, 1, 1_400);
        let order = carried(&mut lender, 31);
        let count = |transfer| order.iter().filter(|other| **other == transfer).count();
        assert_eq!((count(1), count(2), count(3)), (20, 10, 1), "{order:?}");
    }

    #[test]
    fn who_comes_late_gets_nothing_for_the_past() {
        let mut lender = Lender::default();
        help(&mut lender, 1, 100, 1_400);
        carried(&mut lender, 50);
        help(&mut lender, 2, 100, 1_400);
        let order = carried(&mut lender, 10);
        assert_eq!(order.iter().filter(|transfer| **transfer == 1).count(), 5, "{order:?}");
    }

    #[test]
    fn the_window_is_that_of_those_who_carry() {
        let mut lender = Lender::default();
        help(&mut lender, 1, 100, 1_000);
        help(&mut lender, 2, 0, 1_000);
        carried(&mut lender, 1);
        lender.set_window(NOW, 20_000);
        let window = |lender: &Lender<()>, number| lender.get(Transfer(number)).unwrap().window();
        assert_eq!((window(&lender, 1), window(&lender, 2)), (20, 10));
        lender.set_window(NOW + IDLE_AFTER, 20_000);
        assert_eq!((window(&lender, 1), window(&lender, 2)), (20, 20));
        lender.set_window(NOW, 0);
        assert_eq!(window(&lender, 1), NARROWEST);
    }

    #[test]
    fn without_a_connection_nothing_is_sent() {
        let mut lender = Lender::default();
        help(&mut lender, 1, 3, 1_000);
        lender.suspend();
        assert_eq!((lender.poll_transmit(NOW, true), lender.poll_timeout()), (None, None));
        lender.resume(NOW, Transfer(1));
        let Some((_, Transmit::Report(report))) = lender.poll_transmit(NOW, false) else {
            panic!("no report")
        };
        assert_eq!(report.buffered, 3);
        assert_eq!(lender.poll_transmit(NOW, true), None, "what was granted before is not any more");
    }
}
