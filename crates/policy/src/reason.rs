//! Why a network has the share that it has, in words.

use std::fmt;
use std::time::Duration;

use units::{BitRate, Bytes};

use crate::energy::{Joules, Watts};
use crate::network::{OtherFlows, Percent, Price};

/// Why a network is used, or is not. `Display` says it in a few plain words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// No other network of its priority is there.
    OnlyOne {
        /// Its priority.
        priority: u8,
    },
    /// Nothing is known that tells the networks of its priority apart.
    Equal {
        /// Their priority.
        priority: u8,
    },
    /// Share by nearness, `[VIF] eq. 2`.
    InverseRtt {
        /// Its smoothed round-trip time.
        own: Duration,
        /// The least of the others'.
        least: Duration,
        /// The most of the others'.
        most: Duration,
    },
    /// Share by rate, `[VIF] eq. 3`.
    Bandwidth {
        /// Its rate.
        own: BitRate,
        /// The rate of all.
        all: BitRate,
    },
    /// Share by capacity and the flows that are there.
    Capacity {
        /// Its capacity.
        own: BitRate,
        /// The capacity of all.
        all: BitRate,
        /// Bulk flows on it.
        flows: u32,
        /// Those of other people, as it were.
        others: OtherFlows,
    },
    /// A backup that is used: nothing better is left.
    BackupAtLast,
    /// Paid for by volume and used: nothing better is left.
    PaidAtLast,
    /// Not worth its air beside a better access point that is gone now.
    SparedAtLast,
    /// Back for a moment only and used: nothing better is left.
    RecoveringAtLast,
    /// Behind a captive portal and used: nothing better is left.
    CaptiveAtLast,
    /// Without an answer from beyond and tried: nothing better is left.
    NoReachAtLast,
    /// The battery is low, and it needs the least energy; `[VIF] 3.2.4`.
    LeastEnergy {
        /// Charge left.
        battery: Percent,
        /// Energy of one buffer.
        energy: Joules,
    },
    /// The battery is low, and its card draws least; `[VCONN] 3.3`.
    CheapestAdapter {
        /// Charge left.
        battery: Percent,
        /// What the card draws.
        power: Watts,
    },
    /// Needs more energy than the one that is used.
    MoreEnergy {
        /// Energy of one buffer.
        own: Joules,
        /// The same over the network that is used.
        least: Joules,
    },
    /// Its card draws more than the one that is used.
    DearerAdapter {
        /// What the card draws.
        own: Watts,
        /// What the other draws.
        least: Watts,
    },
    /// Another network saves power.
    SavesPower {
        /// Charge left.
        battery: Percent,
    },
    /// A better priority is there.
    LowerPriority {
        /// Its priority.
        own: u8,
        /// The priority in use.
        used: u8,
    },
    /// A cheaper one is there.
    Dearer {
        /// Its price.
        price: Price,
    },
    /// A backup, and something better is left.
    Backup,
    /// Paid for by volume, and something better is left.
    Paid,
    /// Its access point takes more air from better ones than it brings.
    Spared,
    /// Near its data cap, and something better is left.
    CapNear {
        /// Used in this period.
        used: Bytes,
        /// Allowed in a period.
        limit: Bytes,
    },
    /// At its data cap.
    CapReached {
        /// Used in this period.
        used: Bytes,
        /// Allowed in a period.
        limit: Bytes,
    },
    /// It has just come back.
    Recovering,
    /// Behind a captive portal.
    Captive,
    /// Nothing answers beyond the first hop.
    NoReach,
    /// No packet can leave by it.
    Down,
    /// Switched off by the user.
    TurnedOff,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OnlyOne { priority } => write!(formatter, "the only one of priority {priority}"),
            Self::Equal { priority } => {
                write!(formatter, "equal: nothing tells the networks of priority {priority} apart")
            }
            Self::InverseRtt { own, least, most } if least == most => {
                write!(formatter, "1/RTT: {} against {}", Ms(own), Ms(least))
            }
            Self::InverseRtt { own, least, most } => {
                write!(formatter, "1/RTT: {} against {} to {}", Ms(own), Ms(least), Ms(most))
            }
            Self::Bandwidth { own, all } => write!(formatter, "bandwidth: {own} of {all}"),
            Self::Capacity { own, all, flows, others } => {
                write!(formatter, "capacity: {own} of {all}")?;
                if flows > 0 {
                    write!(formatter, ", with {flows} bulk flows on it")?;
                }
                if others.number() > 0.0 {
                    write!(formatter, ", others take as much as {} flows", others.number())?;
                }
                Ok(())
            }
            Self::Spared => formatter.write_str("its access point is slow: better ones need the air"),
            Self::SparedAtLast => formatter.write_str("its access point is slow: nothing better is left"),
            Self::BackupAtLast => formatter.write_str("backup: nothing else is left"),
            Self::PaidAtLast => formatter.write_str("paid by volume: nothing else is left"),
            Self::RecoveringAtLast => formatter.write_str("just came back: nothing else is left"),
            Self::CaptiveAtLast => formatter.write_str("captive portal: nothing else is left; log in"),
            Self::NoReachAtLast => {
                formatter.write_str("no answer from beyond it: tried, as nothing else is left")
            }
            Self::LeastEnergy { battery, energy } => {
                write!(formatter, "battery {battery}: least energy, {energy} for each transfer")
            }
            Self::CheapestAdapter { battery, power } => {
                write!(formatter, "battery {battery}: cheapest adapter, {power}")
            }
            Self::MoreEnergy { own, least } => {
                write!(formatter, "battery: {own} for each transfer where another network needs {least}")
            }
            Self::DearerAdapter { own, least } => {
                write!(formatter, "battery: draws {own} where another adapter draws {least}")
            }
            Self::SavesPower { battery } => {
                write!(formatter, "battery {battery}: another network saves power")
            }
            Self::LowerPriority { own, used } => {
                write!(formatter, "priority {own}: networks of priority {used} are there")
            }
            Self::Dearer { price } => write!(formatter, "costs {price}: a cheaper network is there"),
            Self::Backup => formatter.write_str("backup: other networks are there"),
            Self::Paid => formatter.write_str("paid by volume: other networks are there"),
            Self::CapNear { used, limit } => {
                write!(formatter, "near its data cap: {} of {}, kept as backup", Size(used), Size(limit))
            }
            Self::CapReached { used, limit } => {
                write!(formatter, "data cap reached: {} of {}", Size(used), Size(limit))
            }
            Self::Recovering => formatter.write_str("just came back: not trusted yet"),
            Self::Captive => formatter.write_str("captive portal: log in first"),
            Self::NoReach => formatter.write_str("no answer from beyond it"),
            Self::Down => formatter.write_str("down"),
            Self::TurnedOff => formatter.write_str("off by configuration"),
        }
    }
}

/// Milliseconds, with a decimal where it matters.
struct Ms(Duration);

impl fmt::Display for Ms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_secs_f64() * 1e3;
        if ms < 10.0 { write!(formatter, "{ms:.1} ms") } else { write!(formatter, "{ms:.0} ms") }
    }
}

/// Bytes in powers of ten, as data caps are sold.
struct Size(Bytes);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.0 as f64;
        if bytes >= 1e9 {
            write!(formatter, "{:.2} GB", bytes / 1e9)
        } else {
            write!(formatter, "{:.1} MB", bytes / 1e6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_well() {
        let ms = Duration::from_millis;
        let two = Reason::InverseRtt { own: ms(20), least: ms(60), most: ms(60) };
        assert_eq!(two.to_string(), "1/RTT: 20 ms against 60 ms");
        let three = Reason::InverseRtt { own: Duration::from_micros(1_799), least: ms(30), most: ms(60) };
        assert_eq!(three.to_string(), "1/RTT: 1.8 ms against 30 ms to 60 ms");
        assert_eq!(Reason::OnlyOne { priority: 0 }.to_string(), "the only one of priority 0");
        assert_eq!(Reason::BackupAtLast.to_string(), "backup: nothing else is left");
        let low = Reason::LeastEnergy { battery: Percent::new(8), energy: Joules(0.011) };
        assert_eq!(low.to_string(), "battery 8 %: least energy, 11.0 mJ for each transfer");
        let cap = Reason::CapReached { used: Bytes(5_010_000_000), limit: Bytes(5_000_000_000) };
        assert_eq!(cap.to_string(), "data cap reached: 5.01 GB of 5.00 GB");
    }
}
