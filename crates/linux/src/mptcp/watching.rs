//! What boxes on the way do to MPTCP's option and to ECN, network by network: nftables counts, as nobody else tells.
//!
//! A further subflow is only begun with an end that has answered in MPTCP before. If that answers it as if it were plain TCP, something on the way has
//! taken the option out. A packet without ECN may come from a sender that does not use it, or past a box that clears it; either way it cannot be marked.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::paths::PathNetwork;
use crate::nft::{self, NftError};

/// What was seen of a network's packets since its counters were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WayCounts {
    /// Further subflows that the far end answered as such.
    pub joined: u64,
    /// Those that it answered as plain TCP.
    pub stripped: u64,
    /// Large packets of MPTCP connections that have come in and may be marked; counted while some are to be.
    pub markable: u64,
    /// Those that may not.
    pub unmarkable: u64,
}

impl WayCounts {
    const NAMES: [&str; 4] = ["joined", "stripped", "markable", "unmarkable"];

    fn of_name(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            "joined" => Some(&mut self.joined),
            "stripped" => Some(&mut self.stripped),
            "markable" => Some(&mut self.markable),
            "unmarkable" => Some(&mut self.unmarkable),
            _ => None,
        }
    }

    /// What has been added since `before`; all of it if the counters were made anew.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = [
            (self.joined, before.joined),
            (self.stripped, before.stripped),
            (self.markable, before.markable),
            (self.unmarkable, before.unmarkable),
        ];
        if pairs.iter().any(|(now, then)| now < then) {
            return *self;
        }
        let [joined, stripped, markable, unmarkable] = pairs.map(|(now, then)| now - then);
        Self { joined, stripped, markable, unmarkable }
    }
}

/// The part of our table that counts.
pub(super) fn rules(networks: &[PathNetwork]) -> String {
    let mut script = String::new();
    for (set, ip) in SETS {
        let _ = writeln!(
            script,
            "set {set} {{ typeof {ip} daddr . tcp sport; flags dynamic,timeout; size {MOST_JOINING}; timeout {PATIENCE}; }}"
        );
    }
    for PathNetwork { number, .. } in networks {
        for name in WayCounts::NAMES {
            let _ = writeln!(script, "counter {name}_{number} {{ }}");
        }
    }
    script.push_str("chain joining { type filter hook postrouting priority mangle; policy accept;\n");
    for (set, ip) in SETS {
        let _ = writeln!(
            script,
            "tcp flags & (syn | ack) == syn tcp option mptcp subtype {JOIN} update @{set} {{ {ip} daddr . tcp sport }}"
        );
    }
    script.push_str("}\nchain answers { type filter hook prerouting priority raw; policy accept;\n");
    for PathNetwork { number, interface, addresses, marks, .. } in networks {
        for (set, ip) in SETS {
            let own = addresses.iter().filter(|address| address.is_ipv6() == (ip == "ip6"));
            let own = own.map(ToString::to_string).collect::<Vec<_>>().join(", ");
            if own.is_empty() {
                continue;
            }
            for (option, name) in [("exists", "joined"), ("missing", "stripped")] {
                let _ = writeln!(
                    script,
                    "iif {interface} {ip} daddr {{ {own} }} tcp flags & (syn | ack) == (syn | ack) {ip} saddr . tcp dport @{set} \
                     tcp option mptcp {option} counter name {name}_{number}"
                );
            }
            for (ecn, name) in [("!= not-ect", "markable"), ("not-ect", "unmarkable")] {
                if *marks > 0 {
                    let _ = writeln!(
                        script,
                        "iif {interface} {ip} daddr {{ {own} }} meta length > {LARGE} tcp option mptcp exists {ip} ecn {ecn} counter name {name}_{number}"
                    );
                }
            }
        }
    }
    script.push_str("}\n");
    script
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    counter: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    packets: u64,
}

/// What `table` has counted, by the networks' numbers.
pub(super) fn read(table: &str) -> Result<BTreeMap<u8, WayCounts>, NftError> {
    let text = nft::ask(&["-j", "list", "counters", "table", "inet", table])?;
    parse(&text).map_err(|error| NftError::Run(std::io::Error::other(error)))
}

fn parse(text: &str) -> Result<BTreeMap<u8, WayCounts>, serde_json::Error> {
    let listing: Listing = serde_json::from_str(text)?;
    let mut counts: BTreeMap<u8, WayCounts> = BTreeMap::new();
    for counter in listing.nftables.into_iter().filter_map(|entry| entry.counter) {
        let parts =
            counter.name.split_once('_').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        let Some((name, number)) = parts else { continue };
        if let Some(count) = counts.entry(number).or_default().of_name(name) {
            *count = counter.packets;
        }
    }
    Ok(counts)
}

const SETS: [(&str, &str); 2] = [("joining_v4", "ip"), ("joining_v6", "ip6")];
/// `MP_JOIN` (RFC 8684 section 3.2).
const JOIN: u8 = 1;
/// Until an answer is not waited for any more.
const PATIENCE: &str = "30s";
const MOST_JOINING: u32 = 4_096;
/// Acknowledgements alone carry no ECN.
const LARGE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nft_tells_is_sorted_by_network() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "inet", "name": "joined_1", "table": "t", "handle": 4, "packets": 3, "bytes": 180}},
            {"counter": {"family": "inet", "name": "stripped_12", "table": "t", "handle": 5, "packets": 2, "bytes": 120}},
            {"counter": {"family": "inet", "name": "other", "table": "t", "handle": 6, "packets": 9, "bytes": 0}}]}"#;
        let counts = parse(text).unwrap();
        assert_eq!(counts[&1], WayCounts { joined: 3, ..WayCounts::default() });
        assert_eq!(counts[&12], WayCounts { stripped: 2, ..WayCounts::default() });
        assert!(parse("[]").is_err());
    }

    #[test]
    fn counters_that_were_made_anew_count_from_nothing() {
        let counts = |joined, stripped| WayCounts { joined, stripped, ..WayCounts::default() };
        assert_eq!(counts(5, 2).since(&counts(3, 2)), counts(2, 0));
        assert_eq!(counts(1, 2).since(&counts(3, 2)), counts(1, 2));
    }
}
