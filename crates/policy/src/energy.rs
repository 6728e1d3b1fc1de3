//! What a network's card draws: one model for choosing, for experiments and for virtual sockets.
//!
//! ```text
//!  power
//!    |      _________ active + receive * rate
//!    |     |         |
//!    |     |         |____________ tail
//!    |  |\ |                      |
//!    |__| \|  start (an energy)   |_______ idle
//!    +-----------------------------------------> time
//!          | transfer |  tail time |
//! ```
//!
//! A transfer costs `start + active * t + transmit * bits out + receive * bits in`, and the card then stays in its tail
//! unless another transfer follows. Every model of the cited measurements fits into it; [`CARDS`] holds them.
//! Energy of being idle is counted by [`PowerModel::idle`] only: it is spent whichever network carries a flow, as
//! `[VIF] 3.2.4` assumes too.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes};

use crate::Share;

mod cards;
mod meter;

pub use cards::{CARDS, Card};
pub use meter::CardMeter;

/// Energy in joules.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
pub struct Joules(pub f64);

/// Power in watts.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
pub struct Watts(pub f64);

/// Energy of each bit in nanojoules, which is also the power in milliwatts of each Mbit/s.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
pub struct NanojoulesPerBit(pub f64);

/// What a card draws; see the module's drawing.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerModel {
    /// While connected, with nothing to do.
    pub idle: Watts,
    /// While a transfer runs, besides what its bits cost.
    pub active: Watts,
    /// For each bit sent.
    pub transmit: NanojoulesPerBit,
    /// For each bit received.
    pub receive: NanojoulesPerBit,
    /// For waking up from idle.
    pub start: Joules,
    /// After a transfer, until the card rests.
    pub tail: Watts,
    /// How long the tail lasts.
    pub tail_time: Duration,
}

/// Bytes to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Transfer {
    /// Sent.
    pub sent: Bytes,
    /// Received.
    pub received: Bytes,
}

impl PowerModel {
    /// Energy of moving `transfer` in `time`, from waking up until the card rests again.
    pub fn transfer(&self, transfer: Transfer, time: Duration) -> Joules {
        self.start + self.active * time + self.bits(transfer) + self.tail * self.tail_time
    }

    /// What [`Self::transfer`] takes more than a card that stays idle for as long: what a choice between cards can save, as
    /// all of them stay connected. (`[VIF] 3.2.4` takes listening for free, which it is not on every card.)
    pub fn added_by(&self, transfer: Transfer, time: Duration) -> Joules {
        Joules(self.transfer(transfer, time).0 - (self.idle * (time + self.tail_time)).0)
    }

    /// The same while other transfers keep the card awake: neither start nor tail.
    pub fn further_transfer(&self, transfer: Transfer, time: Duration) -> Joules {
        self.active * time + self.bits(transfer)
    }

    /// Power while receiving at `rate`.
    pub fn receiving(&self, rate: BitRate) -> Watts {
        Watts(self.active.0 + self.receive.0 * rate.as_mbps() / 1e3)
    }

    fn bits(&self, transfer: Transfer) -> Joules {
        let nanojoules = self.transmit.0 * bits(transfer.sent) + self.receive.0 * bits(transfer.received);
        Joules(nanojoules / 1e9)
    }
}

/// Throughput that a window allows, `[VIF] eq. 4`: `buffer / RTT`.
///
/// Assumes no loss and a full window; only for networks on which no rate was measured yet.
pub fn throughput_of_window(buffer: Bytes, round_trip_time: Duration) -> BitRate {
    BitRate::from_bytes_over(buffer, round_trip_time)
}

/// Energy of one packet, `[VIF] eq. 5`: `current * voltage * packet size / throughput`.
///
/// Current in milliamperes, voltage in volts. The paper calls the result joules; with milliamperes it is millijoules,
/// so a thousandth is taken here.
pub fn energy_of_packet(milliamperes: f64, volts: f64, packet: Bytes, throughput: BitRate) -> Joules {
    Joules(milliamperes / 1e3 * volts * throughput.time_for(packet).as_secs_f64())
}

/// Energy of emptying a buffer over several networks, `[VIF] eq. 6`: `buffer / packet * sum_j(energy_j * share_j)`.
///
/// `parts` holds each network's energy per packet and its share.
pub fn energy_of_split(buffer: Bytes, packet: Bytes, parts: &[(Joules, Share)]) -> Joules {
    let packets = buffer.0 as f64 / packet.0.max(1) as f64;
    parts.iter().map(|(energy, share)| Joules(energy.0 * share.part() * packets)).sum()
}

/// Energy of emptying a buffer over one network, `[VIF] eq. 7`: `buffer / packet * energy`.
///
/// The paper then uses the one network if [`energy_of_split`] is not less. Shares sum to one, so that is a mean, and never
/// less than its least part: below the threshold the paper's test always picks the single network.
pub fn energy_of_one(buffer: Bytes, packet: Bytes, energy: Joules) -> Joules {
    Joules(buffer.0 as f64 / packet.0.max(1) as f64 * energy.0)
}

fn bits(bytes: Bytes) -> f64 {
    bytes.0 as f64 * 8.0
}

impl Add for Joules {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sum for Joules {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self(0.0), Add::add)
    }
}

impl Mul<Duration> for Watts {
    type Output = Joules;

    fn mul(self, time: Duration) -> Joules {
        Joules(self.0 * time.as_secs_f64())
    }
}

impl fmt::Display for Joules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0.1 {
            write!(formatter, "{:.1} mJ", self.0 * 1e3)
        } else {
            write!(formatter, "{:.1} J", self.0)
        }
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1.0 {
            write!(formatter, "{:.0} mW", self.0 * 1e3)
        } else {
            write!(formatter, "{:.1} W", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shares::by_round_trip_time;

    fn near(left: Joules, right: f64) -> bool {
        (left.0 - right).abs() < 1e-9 * right.abs().max(1.0)
    }

    /// By hand: 65,536 bytes in 20 ms are 26.2144 Mbit/s.
    #[test]
    fn window_by_hand() {
        assert_eq!(throughput_of_window(Bytes(65_536), Duration::from_millis(20)), BitRate(26_214_400));
    }

    /// By hand: 284 mA at 4.74 V are 1.34616 W; 1,375 bytes at 11 Mbit/s take 1 ms: 1.34616 mJ.
    #[test]
    fn packet_by_hand() {
        let energy = energy_of_packet(284.0, 4.74, Bytes(1_375), BitRate(11_000_000));
        assert!(near(energy, 1.346_16e-3), "{energy:?}");
    }

    /// By hand: 10 packets; halves of 1 J and 3 J: 20 J; the first alone 10 J.
    #[test]
    fn split_and_one_by_hand() {
        let halves = by_round_trip_time(&[Duration::from_millis(10); 2]);
        let parts: Vec<(Joules, Share)> = [1.0, 3.0].map(Joules).into_iter().zip(halves).collect();
        assert!(near(energy_of_split(Bytes(15_000), Bytes(1_500), &parts), 20.0));
        assert!(near(energy_of_one(Bytes(15_000), Bytes(1_500), Joules(1.0)), 10.0));
    }

    /// By hand: 0.5 J + 2 W * 3 s + 100 nJ * 8 Mbit + 10 nJ * 80 Mbit + 1 W * 4 s = 12.1 J.
    #[test]
    fn transfer_by_hand() {
        let card = PowerModel {
            idle: Watts(0.1),
            active: Watts(2.0),
            transmit: NanojoulesPerBit(100.0),
            receive: NanojoulesPerBit(10.0),
            start: Joules(0.5),
            tail: Watts(1.0),
            tail_time: Duration::from_secs(4),
        };
        let transfer = Transfer { sent: Bytes(1_000_000), received: Bytes(10_000_000) };
        assert!(near(card.transfer(transfer, Duration::from_secs(3)), 12.1));
        assert!(near(card.further_transfer(transfer, Duration::from_secs(3)), 7.6));
        assert!(near(card.added_by(transfer, Duration::from_secs(3)), 11.4), "0.1 W for 7 s less");
    }

    proptest! {
        /// The slip in the paper's test, shown: one network is never worse than the split.
        #[test]
        fn the_papers_test_always_picks_one(
            networks in proptest::collection::vec((0.0f64..100.0, 1u64..1_000), 1..10)
        ) {
            let times: Vec<Duration> = networks.iter().map(|(_, ms)| Duration::from_millis(*ms)).collect();
            let parts: Vec<(Joules, Share)> =
                networks.iter().map(|(energy, _)| Joules(*energy)).zip(by_round_trip_time(&times)).collect();
            let least = networks.iter().map(|(energy, _)| *energy).fold(f64::MAX, f64::min);
            let split = energy_of_split(Bytes(64_000), Bytes(1_500), &parts);
            let one = energy_of_one(Bytes(64_000), Bytes(1_500), Joules(least));
            prop_assert!(split.0 >= one.0 * (1.0 - 1e-9));
        }
    }
}
