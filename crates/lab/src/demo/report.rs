//! What the demo showed.

use crate::netbed::FetchReport;
use anyhow::Context;
use std::path::Path;

/// The demo's figures.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct DemoReport {
    /// Each network alone.
    pub networks: Vec<NetworkReport>,
    /// One TCP connection through any0.
    pub bonded_goodput_mbps: f64,
    /// That, over the best network alone.
    pub gain_over_best: f64,
    /// Longest time without a byte in the transfer during which the better network was cut and came back.
    pub longest_stall_ms: f64,
    /// Bytes of all transfers that were compared with the original by hash.
    pub bytes_verified: u64,
    /// Goodput of the transfer with the cut.
    pub cut_goodput_mbps: f64,
    /// Every transfer brought exactly the right bytes.
    pub nothing_lost: bool,
}

/// A network alone.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct NetworkReport {
    /// Its name and what it is like.
    pub name: String,
    /// One TCP connection over it, without any0.
    pub goodput_mbps: f64,
}

impl DemoReport {
    /// The report on downloads over the networks alone (by name), through any0, and with a cut.
    pub fn new(networks: &[(String, FetchReport)], together: &FetchReport, with_cut: &FetchReport) -> Self {
        let all = || networks.iter().map(|(_, report)| report).chain([together, with_cut]);
        let best = networks.iter().map(|(_, report)| report.goodput_mbps()).fold(0.0, f64::max);
        let bonded = together.goodput_mbps();
        Self {
            networks: networks
                .iter()
                .map(|(name, report)| NetworkReport {
                    name: name.clone(),
                    goodput_mbps: tenth(report.goodput_mbps()),
                })
                .collect(),
            bonded_goodput_mbps: tenth(bonded),
            gain_over_best: if best > 0.0 { (bonded / best * 1e3).round() / 1e3 } else { 0.0 },
            longest_stall_ms: tenth(with_cut.longest_stall_ms),
            bytes_verified: all().filter(|report| report.verified).map(|report| report.bytes).sum(),
            cut_goodput_mbps: tenth(with_cut.goodput_mbps()),
            nothing_lost: all().all(|report| report.verified) && together.complete && with_cut.complete,
        }
    }

    /// Bonding beat the best network and no byte was lost.
    pub fn is_success(&self) -> bool {
        self.nothing_lost && self.gain_over_best > 1.0
    }

    /// Prints the table.
    pub fn print(&self) {
        println!("\n{:<46}{:>14}", "one TCP connection", "goodput");
        println!("{}", "-".repeat(60));
        for network in &self.networks {
            println!("{:<46}{:>7.1} Mbit/s", format!("{} (alone)", network.name), network.goodput_mbps);
        }
        println!("{:<46}{:>7.1} Mbit/s", "any0: both, bonded", self.bonded_goodput_mbps);
        println!("{:<46}{:>7.1} Mbit/s", "any0: the better one away for 3 s", self.cut_goodput_mbps);
        println!("{}", "-".repeat(60));
        println!("{:<46}{:>12.2} x", "gain over the best network", self.gain_over_best);
        println!("{:<46}{:>11.0} ms", "longest stall around the cut", self.longest_stall_ms);
        let megabytes = self.bytes_verified as f64 / 1e6;
        let verdict = if self.nothing_lost { "all right" } else { "NOT all right" };
        println!("{:<46}{:>11.1} MB, {verdict}", "verified by SHA-256", megabytes);
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("write the figures as JSON")? + "\n";
        if path == Path::new("-") {
            print!("{text}");
            return Ok(());
        }
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(bytes: u64, seconds: f64, verified: bool) -> FetchReport {
        FetchReport { bytes, verified, complete: true, seconds, longest_stall_ms: 12.34 }
    }

    #[test]
    fn success_needs_gain_and_every_byte() {
        let alone =
            [("a".to_owned(), fetched(1_000_000, 1.0, true)), ("b".to_owned(), fetched(500_000, 1.0, true))];
        let report = DemoReport::new(&alone, &fetched(1_400_000, 1.0, true), &fetched(2_000_000, 2.0, true));
        assert!(report.is_success());
        assert!((report.gain_over_best - 1.4).abs() < 1e-9);
        assert_eq!(report.bytes_verified, 4_900_000);
        let slower = DemoReport::new(&alone, &fetched(900_000, 1.0, true), &fetched(2_000_000, 2.0, true));
        assert!(!slower.is_success());
        let damaged =
            DemoReport::new(&alone, &fetched(1_400_000, 1.0, true), &fetched(2_000_000, 2.0, false));
        assert!(!damaged.is_success());
        assert_eq!(damaged.bytes_verified, 2_900_000);
    }
}
