//! What networks with a data cap have carried in this billing period, kept in the state directory.
//!
//! The kernel's counters go on while the daemon is away, and the last one seen is kept with the total: what was carried
//! meanwhile is counted too, unless the machine was started anew.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

use identity::StateDirectory;
use linux::clock;
use linux::netlink::{LinkCounters, Netlink, NetlinkError};
use policy::calendar::Day;
use policy::network::CapReport;
use policy::{CapSettings, DataCap};
use serde::{Deserialize, Serialize};
use tracing::warn;
use units::{Bytes, Timestamp};

use crate::config::Config;
use crate::device::networks::Network;

/// The caps of the configured networks.
pub struct Caps {
    state: StateDirectory,
    settings: BTreeMap<String, CapSettings>,
    kept: BTreeMap<String, Kept>,
    boot: String,
    due: Timestamp,
    write_at: Option<Timestamp>,
    complained: bool,
}

/// One network's total with what its counter belonged to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    cap: DataCap,
    /// The machine's start in which the counter was read.
    boot: String,
    /// The kernel's number of the interface.
    index: u32,
}

impl Caps {
    /// Those of `config`, with what was counted before. A file that cannot be understood is as none, and a warning.
    pub fn load(config: &Config, state: StateDirectory) -> Self {
        let settings: BTreeMap<String, CapSettings> = config
            .networks
            .iter()
            .filter_map(|(name, network)| {
                Some((name.clone(), CapSettings::new(network.cap?, network.billing_day)))
            })
            .collect();
        let kept = if settings.is_empty() { BTreeMap::new() } else { read(&state) };
        let boot = fs::read_to_string(BOOT).unwrap_or_default().trim().to_owned();
        Self { state, settings, kept, boot, due: Timestamp::ZERO, write_at: None, complained: false }
    }

    /// When to call [`Self::count`] next; `None` if there is nothing to count.
    pub fn due(&self) -> Option<Timestamp> {
        (!self.settings.is_empty()).then_some(self.due)
    }

    /// Reads the counters if it is time. True if a network's cap came to have another effect.
    pub fn count(&mut self, now: Timestamp, networks: &[Network]) -> bool {
        if self.settings.is_empty() || now < self.due {
            return false;
        }
        self.due = now + INTERVAL;
        let counters = match read_counters() {
            Ok(counters) => counters,
            Err(error) => {
                warn!("data caps are not counted: {error}");
                return false;
            }
        };
        let today = Day(clock::today());
        let mut changed = false;
        for network in networks.iter().filter(|network| network.present) {
            let index = network.interface.index;
            let Some(counter) = counters.iter().find(|link| link.index == index) else { continue };
            let carried = Bytes(counter.sent.0.saturating_add(counter.received.0));
            changed |= self.take(&network.interface.name, index, today, carried);
        }
        let write_at = *self.write_at.get_or_insert(now + WRITE_INTERVAL);
        if changed || now >= write_at {
            self.write();
            self.write_at = None;
        }
        changed
    }

    fn take(&mut self, name: &str, index: u32, today: Day, carried: Bytes) -> bool {
        let Some(settings) = self.settings.get(name).copied() else { return false };
        let boot = &self.boot;
        let kept = self.kept.entry(name.to_owned()).or_insert_with(|| Kept {
            cap: DataCap::new(settings, today),
            boot: boot.clone(),
            index,
        });
        kept.cap.set(settings);
        if kept.boot != *boot || kept.index != index {
            kept.cap.on_counter_restart();
            (kept.boot, kept.index) = (boot.clone(), index);
        }
        let before = kept.cap.report().effect;
        kept.cap.on_counter(today, carried);
        kept.cap.report().effect != before
    }

    /// Where a network stands; `None` if it has no cap.
    pub fn report(&self, name: &str) -> Option<CapReport> {
        self.settings.get(name)?;
        self.kept.get(name).map(|kept| kept.cap.report())
    }

    fn write(&mut self) {
        let written = serde_json::to_vec(&self.kept).map_err(|error| error.to_string());
        let outcome =
            written.and_then(|text| self.state.replace(FILE, &text).map_err(|error| error.to_string()));
        match outcome {
            Ok(()) => self.complained = false,
            Err(error) if !self.complained => {
                self.complained = true;
                warn!("what counts against data caps is lost at the next start: {error}");
            }
            Err(_) => {}
        }
    }
}

fn read_counters() -> Result<Vec<LinkCounters>, NetlinkError> {
    Netlink::open()?.link_counters()
}

fn read(state: &StateDirectory) -> BTreeMap<String, Kept> {
    let path = state.file(FILE);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => warn!("{}: {error}: data caps are counted from 0", path.display()),
        Ok(_) => match serde_json::from_str(&text) {
            Ok(kept) => return kept,
            Err(error) => warn!("{}: {error}: data caps are counted from 0", path.display()),
        },
    }
    BTreeMap::new()
}

const FILE: &str = "caps.json";
/// 256 networks need far less.
const LARGEST: u64 = 1024 * 1024;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const INTERVAL: Duration = Duration::from_secs(5);
/// The counters bridge what a crash loses; only a start of the machine without notice loses this much.
const WRITE_INTERVAL: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use policy::network::CapEffect;

    use super::*;
    use crate::config::NetworkConfig;

    const TODAY: Day = Day(20_778);

    fn caps(directory: &std::path::Path) -> Caps {
        let mut config = Config::default();
        let capped = NetworkConfig { cap: Some(Bytes(1_000_000)), ..NetworkConfig::default() };
        config.networks.insert("a".to_owned(), capped);
        Caps::load(&config, StateDirectory::create(directory).unwrap())
    }

    #[test]
    fn totals_outlive_the_daemon_and_new_interfaces() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = caps(directory.path());
        first.take("a", 3, TODAY, Bytes(5_000_000));
        assert_eq!(first.report("a").unwrap().used, Bytes(0), "what was there before counts nothing");
        assert!(!first.take("a", 3, TODAY, Bytes(5_100_000)));
        first.write();

        let mut second = caps(directory.path());
        second.take("a", 3, TODAY, Bytes(5_300_000));
        assert_eq!(second.report("a").unwrap().used, Bytes(300_000), "carried while nobody looked");
        assert!(second.take("a", 9, TODAY, Bytes(650_000)), "a new interface counts from 0");
        assert_eq!(second.report("a").unwrap().effect, CapEffect::Backup);
        second.boot = "another start".to_owned();
        assert!(second.take("a", 9, TODAY, Bytes(700_000)));
        let report = second.report("a").unwrap();
        assert_eq!((report.used, report.effect), (Bytes(1_650_000), CapEffect::Off));
        assert!(!second.take("b", 1, TODAY, Bytes(1)) && second.report("b").is_none());
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let directory = tempfile::tempdir().unwrap();
        drop(caps(directory.path()));
        fs::write(directory.path().join(FILE), "{\"a\": 7").unwrap();
        assert_eq!(caps(directory.path()).kept, BTreeMap::new());
    }
}
