//! What the policy decided: each network's share of new flows, and why.

use units::{BitRate, NetworkId};

use crate::network::{Loss, OtherFlows, RttSummary};
use crate::{PathStatus, Priority, Reason, Share, Split, slots};

/// The outcome of [`crate::NetworkPolicy::evaluate`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// One entry for each network, in the order that they were given in.
    pub entries: Vec<Entry>,
    /// The networks that are used, in the order in which real-time flows take them: least delay and jitter first. Of two
    /// the better one goes ahead only after it was better for a while. Empty if they are to be dealt out like all others.
    pub for_calls: Vec<NetworkId>,
    /// The rule that made the shares.
    pub split: Split,
}

/// One network's part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entry {
    /// The network.
    pub network: NetworkId,
    /// Its priority.
    pub priority: Priority,
    /// What its paths may do: active if it carries new flows, backup if it could, off if it must not or cannot.
    pub status: PathStatus,
    /// Its share of new flows. The shares of a table sum to one, unless no network can be used.
    pub share: Share,
    /// Why.
    pub reason: Reason,
    /// Its round-trip time.
    pub rtt: Option<RttSummary>,
    /// Its capacity: what was delivered, else a guess no higher than what the link claims.
    pub capacity: Option<BitRate>,
    /// Bulk flows on it; [`Table::join`] counts further ones.
    pub bulk_flows: u32,
    /// Bulk flows of other people that share its capacity.
    pub others: OtherFlows,
    /// Part of packets lost.
    pub loss: Loss,
    /// Whether bulk flows fill it.
    pub full: bool,
}

impl Table {
    /// The entry of `network`.
    pub fn get(&self, network: NetworkId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.network == network)
    }

    /// The same table for flows that only some networks can carry, as those of an address family that not all have.
    ///
    /// Shares are made whole again over the networks for which `can_carry` holds. A network that was not used stays unused,
    /// so an IPv6 flow does not end on a paid network because the others have no IPv6.
    pub fn restricted(&self, can_carry: impl Fn(NetworkId) -> bool) -> Self {
        let mut entries: Vec<Entry> =
            self.entries.iter().filter(|entry| can_carry(entry.network)).copied().collect();
        let shares = Share::whole(entries.iter().map(|entry| entry.share));
        for (entry, share) in entries.iter_mut().zip(shares) {
            entry.share = share;
        }
        let for_calls = self.for_calls.iter().filter(|network| can_carry(**network)).copied().collect();
        Self { entries, for_calls, split: self.split }
    }

    /// The network that a real-time flow takes; `None` if it is dealt out like all others, or nothing can be used.
    pub fn preferred(&self) -> Option<NetworkId> {
        self.for_calls.first().copied()
    }

    /// Counts a bulk flow that was put on `network` since the table was made.
    pub fn join(&mut self, network: NetworkId) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.network == network) {
            entry.bulk_flows = entry.bulk_flows.saturating_add(1);
        }
    }

    /// `count` equal slots, each with its network, interleaved; see [`slots::interleave`].
    ///
    /// Empty if no network can be used.
    pub fn slots(&self, count: u16) -> Vec<NetworkId> {
        let shares: Vec<(NetworkId, Share)> =
            self.entries.iter().map(|entry| (entry.network, entry.share)).collect();
        slots::interleave(&shares, count)
    }

    /// The largest difference between a network's share here and in `other`: whether an update is worth its cost.
    pub fn largest_change(&self, other: &Self) -> Share {
        let share = |table: &Self, network| table.get(network).map_or(0.0, |entry| entry.share.part());
        let networks = self.entries.iter().chain(&other.entries).map(|entry| entry.network);
        let changes = networks.map(|network| (share(self, network) - share(other, network)).abs());
        Share::of_part(changes.fold(0.0, f64::max))
    }
}

impl Entry {
    /// How bad the network is for a call, in seconds: smoothed round-trip time and four times its variation, as
    /// RFC 6298 bounds what is still usual. Unmeasured networks come after all others, lossy ones after those.
    pub(crate) fn for_calls(&self) -> f64 {
        let delay = self.rtt.map_or(UNMEASURED, |rtt| (rtt.smoothed + 4 * rtt.variation).as_secs_f64());
        if self.loss.part() > MOST_LOSS_OF_CALLS { LOSSY + delay } else { delay }
    }
}

/// Loss from which speech suffers audibly even where it is concealed.
const MOST_LOSS_OF_CALLS: f64 = 0.05;
/// Seconds; more than any measured delay.
const UNMEASURED: f64 = 1e3;
/// Seconds; more than the above.
const LOSSY: f64 = 1e6;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::Timestamp;

    use super::*;
    use crate::network::{NetworkInput, PowerSupply, RttSummary};
    use crate::{ChoiceSettings, NetworkPolicy};

    fn table(times: &[u64]) -> Table {
        let inputs: Vec<NetworkInput> = (0..)
            .zip(times)
            .map(|(id, ms)| {
                let mut input = NetworkInput::new(NetworkId(id), format!("net{id}"));
                let smoothed = Duration::from_millis(*ms);
                input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 10 });
                input
            })
            .collect();
        let settings = ChoiceSettings { split: Split::InverseRtt, ..ChoiceSettings::default() };
        NetworkPolicy::new(settings).evaluate(Timestamp::ZERO, &inputs, PowerSupply::Mains)
    }

    #[test]
    fn restriction_keeps_proportions_and_finds_another_preferred() {
        let all = table(&[10, 20, 40]);
        assert_eq!(all.preferred(), Some(NetworkId(0)));
        let some = all.restricted(|network| network != NetworkId(0));
        let shares: Vec<f64> = some.entries.iter().map(|entry| entry.share.part()).collect();
        assert!((shares[0] - 2.0 / 3.0).abs() < 1e-9 && (shares[1] - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(some.preferred(), Some(NetworkId(1)));
        assert_eq!(all.restricted(|_| false), Table { split: Split::InverseRtt, ..Table::default() });
    }

    #[test]
    fn changes_are_measured_over_both_tables() {
        let (before, after) = (table(&[10, 10]), table(&[10]));
        assert_eq!(before.largest_change(&before), Share::NONE);
        assert!((before.largest_change(&after).part() - 0.5).abs() < 1e-9);
    }
}
