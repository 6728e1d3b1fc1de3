//! What boxes on the way do to MPTCP's option and to ECN, network by network: nftables counts, as nobody else tells.
//!
//! A further subflow is only begun with an end that has answered in MPTCP before. If that answers it as if it were plain TCP, something on the way has
//! taken the option out. The same goes for a first one to a server that has lately answered another one in MPTCP, by whichever network; it counts once for each
//! such answer, as some servers are several machines. A packet without ECN may come from a sender that does not use it, or past a box that clears
//! it; either way it cannot be marked.

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
    pub join_stripped: u64,
    /// First subflows that the far end answered as such.
    pub begun: u64,
    /// Those that it answered as plain TCP, though it had answered another one as such within ten minutes.
    pub begin_stripped: u64,
    /// Large packets of MPTCP connections that have come in and may be marked.
    pub markable: u64,
    /// Those that may not.
    pub unmarkable: u64,
    /// Those of the markable ones that had met a queue before they came, by what is written on them.
    pub congested: u64,
}

impl WayCounts {
    const NAMES: [&str; 7] =
        ["joined", "join-stripped", "begun", "begin-stripped", "markable", "unmarkable", "congested"];

    fn of_name(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            "joined" => Some(&mut self.joined),
            "join-stripped" => Some(&mut self.join_stripped),
            "begun" => Some(&mut self.begun),
            "begin-stripped" => Some(&mut self.begin_stripped),
            "markable" => Some(&mut self.markable),
            "unmarkable" => Some(&mut self.unmarkable),
            "congested" => Some(&mut self.congested),
            _ => None,
        }
    }

    /// What has been added since `before`; all of it if the counters were made anew.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = [
            (self.joined, before.joined),
            (self.join_stripped, before.join_stripped),
            (self.begun, before.begun),
            (self.begin_stripped, before.begin_stripped),
            (self.markable, before.markable),
            (self.unmarkable, before.unmarkable),
            (self.congested, before.congested),
        ];
        if pairs.iter().any(|(now, then)| now < then) {
            return *self;
        }
        let [joined, join_stripped, begun, begin_stripped, markable, unmarkable, congested] =
            pairs.map(|(now, then)| now - then);
        Self { joined, join_stripped, begun, begin_stripped, markable, unmarkable, congested }
    }
}

/// The part of our table that counts.
pub(super) fn rules(networks: &[PathNetwork]) -> String {
    let mut script = String::new();
    for (version, ip) in FAMILIES {
        for (set, key, timeout) in [
            ("joining", "daddr . tcp sport", PATIENCE),
            ("beginning", "daddr . tcp sport", PATIENCE),
            ("speaking", "saddr . tcp sport", REMEMBERED),
        ] {
            let _ = writeln!(
                script,
                "set {set}_{version} {{ typeof {ip} {key}; flags dynamic,timeout; size {MOST_KNOWN}; timeout {timeout}; }}"
            );
        }
    }
    for PathNetwork { number, .. } in networks {
        for name in WayCounts::NAMES {
            let _ = writeln!(script, "counter {name}_{number} {{ }}");
        }
    }
    script.push_str("chain questions { type filter hook postrouting priority mangle; policy accept;\n");
    for (version, ip) in FAMILIES {
        let question = "tcp flags & (syn | ack) == syn tcp option mptcp";
        let key = format!("{ip} daddr . tcp sport");
        let _ = writeln!(
            script,
            "{question} subtype {JOIN} update @joining_{version} {{ {key} }}\n\
             {question} subtype {CAPABLE} update @beginning_{version} {{ {key} }}\n\
             {question} missing {key} @beginning_{version} delete @beginning_{version} {{ {key} }}"
        );
    }
    script.push_str("}\nchain answers { type filter hook prerouting priority raw; policy accept;\n");
    for PathNetwork { number, interface, addresses, .. } in networks {
        for (version, ip) in FAMILIES {
            let own = addresses.iter().filter(|address| address.is_ipv6() == (ip == "ip6"));
            let own = own.map(ToString::to_string).collect::<Vec<_>>().join(", ");
            if own.is_empty() {
                continue;
            }
            let answer =
                format!("iif {interface} {ip} daddr {{ {own} }} tcp flags & (syn | ack) == (syn | ack)");
            let (key, server) = (format!("{ip} saddr . tcp dport"), format!("{ip} saddr . tcp sport"));
            let counter = |name: &str| format!("counter name {name}_{number}");
            // An answer that comes twice counts once.
            let of = |set: &str| {
                (
                    format!("{answer} {key} @{set}_{version} tcp option mptcp"),
                    format!("delete @{set}_{version} {{ {key} }}"),
                )
            };
            let ((join, joined), (begin, begun)) = (of("joining"), of("beginning"));
            let speaking = format!("@speaking_{version}");
            let _ = writeln!(
                script,
                "{join} exists {} {joined}\n{join} missing {} {joined}\n\
                 {begin} subtype {CAPABLE} {} {begun} update {speaking} {{ {server} }}\n\
                 {begin} missing {server} {speaking} {} {begun} delete {speaking} {{ {server} }}",
                counter("joined"),
                counter("join-stripped"),
                counter("begun"),
                counter("begin-stripped"),
            );
            // Before our own marks, which are drawn later (`marking.rs`).
            for (ecn, name) in [("!= not-ect", "markable"), ("not-ect", "unmarkable"), ("ce", "congested")] {
                let _ = writeln!(
                    script,
                    "iif {interface} {ip} daddr {{ {own} }} meta length > {LARGE} tcp option mptcp exists {ip} ecn {ecn} counter name {name}_{number}"
                );
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

const FAMILIES: [(&str, &str); 2] = [("v4", "ip"), ("v6", "ip6")];
/// `MP_CAPABLE` (RFC 8684 section 3.1).
const CAPABLE: u8 = 0;
/// `MP_JOIN` (RFC 8684 section 3.2).
const JOIN: u8 = 1;
/// Until an answer is not waited for any more.
const PATIENCE: &str = "30s";
/// How long it is known that a server speaks MPTCP.
const REMEMBERED: &str = "10m";
const MOST_KNOWN: u32 = 4_096;
/// Acknowledgements alone carry no ECN.
const LARGE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nft_tells_is_sorted_by_network() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "inet", "name": "joined_1", "table": "t", "handle": 4, "packets": 3, "bytes": 180}},
            {"counter": {"family": "inet", "name": "join-stripped_12", "table": "t", "handle": 5, "packets": 2, "bytes": 120}},
            {"counter": {"family": "inet", "name": "other", "table": "t", "handle": 6, "packets": 9, "bytes": 0}}]}"#;
        let counts = parse(text).unwrap();
        assert_eq!(counts[&1], WayCounts { joined: 3, ..WayCounts::default() });
        assert_eq!(counts[&12], WayCounts { join_stripped: 2, ..WayCounts::default() });
        assert!(parse("[]").is_err());
    }

    #[test]
    fn counters_that_were_made_anew_count_from_nothing() {
        let counts = |joined, join_stripped| WayCounts { joined, join_stripped, ..WayCounts::default() };
        assert_eq!(counts(5, 2).since(&counts(3, 2)), counts(2, 0));
        assert_eq!(counts(1, 2).since(&counts(3, 2)), counts(1, 2));
    }
}
