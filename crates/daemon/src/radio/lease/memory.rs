//! What networks lent us before, so that coming back is quick: in memory, and in a file beside that of the known networks.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use identity::{StateDirectory, StateError};
use linux::prefix::IpPrefix;
use serde::{Deserialize, Serialize};
use tracing::warn;
use units::{MacAddress, Timestamp};

use super::super::{KnownNetwork, KnownNetworks, state_behind};
use super::{Candidate, Learnt, Lease};

/// The file's name.
const FILE: &str = "leases.toml";
const LONGEST_FILE: u64 = 64 * 1_024;
/// Leases of one network: there may be different routers behind its name, as along a street.
const MOST_OF_NETWORK: usize = 24;
/// States of the file that wait to be written.
const MOST_WAITING: usize = 4;

/// What was lent, newest first.
pub(in crate::radio) struct LeaseMemory {
    kept: Vec<Kept>,
    /// `None`: nobody writes.
    writer: Option<SyncSender<String>>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    lease: Vec<Kept>,
}

/// One lease. Addresses are text, and read when they are used.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    ssid: String,
    protection: Protection,
    /// Our hardware address, to which it was lent.
    hardware: String,
    /// The access point where we were, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    point: Option<String>,
    address: String,
    gateway: Ipv4Addr,
    /// The gateway's hardware address.
    router: String,
    servers: Vec<Ipv4Addr>,
    /// When, in seconds since 1970.
    lent: u64,
    /// For how many seconds.
    time: u32,
}

/// How a network keeps strangers out: one that poses under a name does not get at what is known of one that is protected.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protection {
    Open,
    Passphrase,
    Login,
}

impl Protection {
    fn of(known: &KnownNetwork) -> Self {
        match known {
            KnownNetwork { login: Some(_), .. } => Self::Login,
            KnownNetwork { passphrase: Some(_), .. } => Self::Passphrase,
            _ => Self::Open,
        }
    }
}

impl LeaseMemory {
    /// What the file in `directory` has of networks that are known. One that cannot be read costs no more than time: it is begun anew.
    ///
    /// # Errors
    /// [`StateError`] if it is no state directory.
    pub fn load(directory: File, known: &KnownNetworks) -> Result<Self, StateError> {
        let state = state_behind(&directory)?;
        let mut kept = read(&state).unwrap_or_else(|error| {
            warn!("{FILE} in the radio's state directory is of no use and begun anew: {error}");
            Vec::new()
        });
        kept.retain(|one| known.network.iter().any(|network| one.is_of(network)));
        Ok(Self { kept, writer: writer(state, directory) })
    }

    /// Those that may still hold for our `hardware` address in a network: what was lent at this access point first, then the newest. `wall`: the clock
    /// that people use.
    pub fn candidates(
        &self,
        now: Timestamp,
        wall: SystemTime,
        known: &KnownNetwork,
        hardware: MacAddress,
        point: Option<MacAddress>,
    ) -> Vec<Candidate> {
        let (hardware, point) = (hardware.to_string(), point.map(|point| point.to_string()));
        let of = self.kept.iter().filter(|one| one.is_of(known) && one.hardware == hardware);
        let (here, elsewhere): (Vec<&Kept>, Vec<&Kept>) =
            of.partition(|one| one.point.is_some() && one.point == point);
        here.into_iter().chain(elsewhere).filter_map(|one| one.candidate(now, wall)).collect()
    }

    /// Keeps what was lent just now.
    pub fn remember(
        &mut self,
        wall: SystemTime,
        known: &KnownNetwork,
        hardware: MacAddress,
        learnt: &Learnt,
    ) {
        let Some(gateway) = learnt.lease.gateway else { return };
        let new = Kept {
            ssid: known.ssid.clone(),
            protection: Protection::of(known),
            hardware: hardware.to_string(),
            point: learnt.point.map(|point| point.to_string()),
            address: learnt.lease.address.to_string(),
            gateway,
            router: learnt.router.to_string(),
            servers: learnt.lease.servers.to_vec(),
            lent: wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            time: u32::try_from(learnt.time.as_secs()).unwrap_or(u32::MAX),
        };
        // Behind one router there is one lease for one address of ours.
        self.kept.retain(|one| {
            !(one.ssid == new.ssid && one.hardware == new.hardware && one.router == new.router)
        });
        self.kept.insert(0, new);
        let mut of_network = 0;
        self.kept.retain(|one| {
            of_network += usize::from(one.is_of(known) && one.hardware == hardware.to_string());
            !one.is_of(known) || one.hardware != hardware.to_string() || of_network <= MOST_OF_NETWORK
        });
        self.write();
    }

    /// Nothing is kept of a network any more.
    pub fn forget(&mut self, known: &KnownNetwork) {
        let before = self.kept.len();
        self.kept.retain(|one| one.ssid != known.ssid);
        if self.kept.len() != before {
            self.write();
        }
    }

    fn write(&self) {
        let text = toml::to_string(&Contents { lease: self.kept.clone() });
        if let (Some(writer), Ok(text)) = (&self.writer, text) {
            // If the disk is so slow that some wait, the next one has all of it.
            drop(writer.try_send(text));
        }
    }
}

impl Kept {
    fn is_of(&self, known: &KnownNetwork) -> bool {
        self.ssid == known.ssid && self.protection == Protection::of(known)
    }

    /// `None` if its time is over, lies in the future, or makes no sense.
    fn candidate(&self, now: Timestamp, wall: SystemTime) -> Option<Candidate> {
        let age = wall.duration_since(UNIX_EPOCH + Duration::from_secs(self.lent)).ok()?;
        let left = Duration::from_secs(self.time.into()).checked_sub(age).filter(|left| !left.is_zero())?;
        let address: IpPrefix = self.address.parse().ok()?;
        let lease = Lease {
            address: Some(address).filter(|address| address.address().is_ipv4())?,
            gateway: Some(self.gateway),
            servers: self.servers.iter().copied().take(super::MOST_SERVERS).collect(),
        };
        let router = self.router.parse().ok().filter(|router: &MacAddress| !router.is_group())?;
        Some(Candidate { lease, router, ends: now + left })
    }
}

fn read(state: &StateDirectory) -> io::Result<Vec<Kept>> {
    let path = state.file(FILE);
    let text = match fs::metadata(&path).map(|metadata| metadata.len()) {
        Ok(length) if length > LONGEST_FILE => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => fs::read_to_string(&path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let contents: Contents =
        toml::from_str(&text).map_err(|error| io::Error::other(error.message().to_owned()))?;
    Ok(contents.lease)
}

/// Writes aside, since a disk may take longer than frames wait. Ends when nobody sends any more.
fn writer(state: StateDirectory, directory: File) -> Option<SyncSender<String>> {
    let (sender, receiver) = sync_channel::<String>(MOST_WAITING);
    let write = move || {
        // Behind the path of `state`.
        let _directory = directory;
        for text in receiver {
            if let Err(error) = state.replace(FILE, text.as_bytes()) {
                warn!("what networks lent is forgotten with this process: {error}");
            }
        }
    };
    let started = thread::Builder::new().name("leases".to_owned()).spawn(write);
    started.map_err(|error| warn!("what networks lent is forgotten with this process: {error}")).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn known(text: &str) -> KnownNetworks {
        toml::from_str(text).unwrap()
    }

    fn cafe() -> KnownNetworks {
        known("[[network]]\nssid = \"cafe\"\npassphrase = \"correct horse\"\n")
    }

    fn learnt(last: u8) -> Learnt {
        Learnt {
            lease: Lease {
                address: format!("10.0.0.{last}/24").parse().unwrap(),
                gateway: Some([10, 0, 0, 1].into()),
                servers: [Ipv4Addr::new(10, 0, 0, 2)].into_iter().collect(),
            },
            point: Some(MacAddress([2, 0, 0, 0, 2, last])),
            router: MacAddress([2, 0, 0, 0, 1, last]),
            time: Duration::from_secs(3_600),
        }
    }

    fn wall(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    fn load(path: &std::path::Path, known: &KnownNetworks) -> LeaseMemory {
        LeaseMemory::load(File::open(path).unwrap(), known).unwrap()
    }

    #[test]
    fn what_was_lent_comes_back_for_its_time_and_for_the_same_address_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let cafe = cafe();
        let network = &cafe.network[0];
        let mut memory = load(directory.path(), &cafe);
        let now = Timestamp::from_millis(5_000);
        memory.remember(wall(0), network, OURS, &learnt(7));
        let candidates = memory.candidates(now, wall(600), network, OURS, None);
        let LeaseMemory { writer, kept } = memory;
        drop(writer);
        assert_eq!(candidates.len(), 1);
        assert_eq!((&candidates[0].lease, candidates[0].router), (&learnt(7).lease, learnt(7).router));
        assert_eq!(candidates[0].ends, now + Duration::from_secs(3_000));
        let memory = LeaseMemory { kept, writer: None };
        for (age, expected) in [(3_599, 1), (3_600, 0)] {
            assert_eq!(memory.candidates(now, wall(age), network, OURS, None).len(), expected);
        }
        assert!(memory.candidates(now, UNIX_EPOCH, network, OURS, None).is_empty(), "the clock went back");
        let other = MacAddress([2, 0, 0, 0, 0, 2]);
        assert!(memory.candidates(now, wall(1), network, other, None).is_empty());
        let open = known("[[network]]\nssid = \"cafe\"\n");
        assert!(
            memory.candidates(now, wall(1), &open.network[0], OURS, None).is_empty(),
            "anybody may pose as it"
        );
    }

    #[test]
    fn the_file_is_private_bounded_and_may_be_broken() {
        let directory = tempfile::tempdir().unwrap();
        let (path, cafe) = (directory.path().join(FILE), cafe());
        let network = &cafe.network[0];
        let mut memory = load(directory.path(), &cafe);
        for last in 1..=29 {
            memory.remember(wall(last.into()), network, OURS, &learnt(last));
        }
        memory.remember(wall(30), network, OURS, &learnt(28));
        let now = Timestamp::from_millis(1);
        let addresses = |memory: &LeaseMemory| -> Vec<String> {
            let candidates = memory.candidates(now, wall(40), network, OURS, learnt(9).point);
            candidates.iter().map(|one| one.lease.address.address().to_string()).collect()
        };
        let newest: Vec<String> = [9, 28, 29]
            .into_iter()
            .chain((6..=27).rev().filter(|last| *last != 9))
            .map(|last| format!("10.0.0.{last}"))
            .collect();
        assert_eq!(addresses(&memory), newest);
        // What waited to be written is written before the thread ends; wait for the last one.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while addresses(&load(directory.path(), &cafe)) != newest {
            memory.write();
            assert!(std::time::Instant::now() < deadline, "it was not written");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(load(directory.path(), &known("")).kept.is_empty(), "a network that was removed");
        let text = fs::read_to_string(&path).unwrap();
        memory.forget(network);
        assert!(memory.kept.is_empty());
        // The thread may still write to the first place.
        let elsewhere = tempfile::tempdir().unwrap();
        for broken in ["[[lease", "lease = 7", &"#".repeat(100_000), &text.replace("10.0.0.", "10.0.0.x")] {
            fs::write(elsewhere.path().join(FILE), broken).unwrap();
            assert!(addresses(&load(elsewhere.path(), &cafe)).is_empty());
        }
    }
}
