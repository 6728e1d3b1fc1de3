//! The adapter monitor: one thread for all endpoints of a process, `[VCONN] 4`. More exactly, one for each network namespace that the
//! process is in.
//!
//! Where a daemon runs, it is asked what it knows of the networks and the power, so that both judge alike: cards and prices of the
//! configuration, networks that are switched off. Without one, the same code finds out what the kernel knows.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use linux::bluetooth::Management;
use linux::clock;
use linux::monitor::Monitor;
use linux::poll::{Interest, Poller, Token, Waker};
use linux::power::{self, PowerState};
use policy::network::PowerSupply;
use tracing::{debug, warn};
use units::Timestamp;

use super::adapter::Adapter;
use super::error::BindError;
use crate::control::{BlockingClient, DEFAULT_INTERFACE, MachineReport, open_socket};
use crate::link;

/// The battery is looked at, and a daemon asked, this often.
const POWER_INTERVAL: Duration = Duration::from_secs(10);
/// A daemon is asked no sooner again, however often adapters change.
const LEAST_BETWEEN_QUESTIONS: Duration = Duration::from_millis(250);
const MONITOR: Token = Token(0);
const STOP: Token = Token(1);
const BLUETOOTH: Token = Token(2);

static MONITORS: Mutex<BTreeMap<u64, Weak<AdapterMonitor>>> = Mutex::new(BTreeMap::new());

/// Adapters and power of this machine, as last seen.
pub(crate) struct AdapterMonitor {
    seen: Mutex<Seen>,
    stop: Waker,
}

struct Seen {
    adapters: Arc<Vec<Adapter>>,
    power: PowerSupply,
    /// Counts changes.
    version: u64,
    subscribers: Vec<Waker>,
}

impl AdapterMonitor {
    /// The one of this thread's network namespace; started if there is none.
    pub(crate) fn shared() -> Result<Arc<Self>, BindError> {
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |metadata| metadata.st_ino());
        let mut monitors = MONITORS.lock().unwrap_or_else(PoisonError::into_inner);
        monitors.retain(|_, monitor| monitor.strong_count() > 0);
        if let Some(known) = monitors.get(&namespace).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let monitor = Monitor::open()?;
        let poller = Poller::new()?;
        let stop = Waker::new()?;
        poller.add(&monitor, MONITOR, Interest::Readable)?;
        poller.add(&stop, STOP, Interest::Readable)?;
        // Most machines that run this have none, and other network namespaces have none either.
        let bluetooth = Management::open().inspect_err(|error| debug!(%error, "no Bluetooth")).ok();
        if let Some(bluetooth) = &bluetooth {
            poller.add(bluetooth, BLUETOOTH, Interest::Readable)?;
        }
        let (adapters, power) = Daemon::default().view(&monitor, bluetooth.as_ref());
        let seen = Seen { adapters: Arc::new(adapters), power, version: 0, subscribers: Vec::new() };
        let shared = Arc::new(Self { seen: Mutex::new(seen), stop });
        let weak = Arc::downgrade(&shared);
        // What wakes a thread must be there until it has woken.
        let held = shared.stop.clone();
        std::thread::Builder::new().name("adapters".to_owned()).spawn(move || {
            watch(&weak, monitor, bluetooth, poller);
            drop(held);
        })?;
        monitors.insert(namespace, Arc::downgrade(&shared));
        Ok(shared)
    }

    /// Wakes `waker` after every change from now on.
    pub(super) fn subscribe(&self, waker: Waker) {
        self.lock().subscribers.push(waker);
    }

    pub(super) fn unsubscribe(&self, waker: &Waker) {
        self.lock().subscribers.retain(|known| !known.is(waker));
    }

    /// Adapters and power, and the number of changes before.
    pub(crate) fn look(&self) -> (Arc<Vec<Adapter>>, PowerSupply, u64) {
        let seen = self.lock();
        (Arc::clone(&seen.adapters), seen.power, seen.version)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, adapters: Vec<Adapter>, power: PowerSupply) {
        let mut seen = self.lock();
        if *seen.adapters == adapters && seen.power == power {
            return;
        }
        seen.adapters = Arc::new(adapters);
        seen.power = power;
        seen.version += 1;
        seen.subscribers.iter().for_each(Waker::wake);
    }
}

impl Drop for AdapterMonitor {
    fn drop(&mut self) {
        self.stop.wake();
    }
}

/// The daemon of this network namespace, if one runs, and what it said.
#[derive(Default)]
struct Daemon {
    client: Option<BlockingClient>,
    asked: Option<Timestamp>,
    said: Option<MachineReport>,
}

impl Daemon {
    /// Asks, unless it was asked just now; gives whether it says something else than before. A daemon that does not answer knows nothing.
    fn ask(&mut self) -> bool {
        let now = clock::now();
        if self.asked.is_some_and(|asked| now.since(asked) < LEAST_BETWEEN_QUESTIONS) {
            return false;
        }
        self.asked = Some(now);
        if self.client.is_none() {
            self.client = BlockingClient::new(open_socket(DEFAULT_INTERFACE)).ok();
        }
        let said = self.client.as_ref().and_then(|client| client.machine().ok());
        let before = std::mem::replace(&mut self.said, said);
        self.said != before
    }

    /// Adapters and power, by the kernel and by what it said.
    fn view(&self, monitor: &Monitor, bluetooth: Option<&Management>) -> (Vec<Adapter>, PowerSupply) {
        let known = self.said.iter().flat_map(|said| &said.networks);
        let known: BTreeMap<&str, _> = known.map(|network| (network.name.as_str(), network)).collect();
        let adapter = |interface| {
            let adapter = Adapter::of(interface)?;
            Some(match known.get(adapter.name.as_str()) {
                Some(network) => adapter.judged_by(network),
                None => adapter,
            })
        };
        let mut adapters: Vec<Adapter> = monitor.interfaces().filter_map(adapter).collect();
        adapters.extend(bluetooth.into_iter().flat_map(Management::controllers).map(Adapter::of_controller));
        // `[VCONN] 3.3`: by operational state, then by speed.
        adapters.sort_by_key(|adapter| (adapter.state, std::cmp::Reverse(adapter.speed), adapter.index));
        let own = || link::supply(&PowerState::read(Path::new(power::SYSTEM)));
        (adapters, self.said.as_ref().map_or_else(own, |said| said.power))
    }
}

/// Runs until nobody holds the monitor any more.
fn watch(shared: &Weak<AdapterMonitor>, monitor: Monitor, bluetooth: Option<Management>, poller: Poller) {
    let (mut monitor, mut poller, mut daemon) = (monitor, poller, Daemon::default());
    let mut bluetooth = bluetooth;
    let mut ready = Vec::new();
    loop {
        if daemon.ask()
            && let Some(shared) = shared.upgrade()
        {
            let (adapters, power) = daemon.view(&monitor, bluetooth.as_ref());
            shared.update(adapters, power);
        }
        let waited = poller.wait(Some(POWER_INTERVAL), &mut ready);
        let Some(shared) = shared.upgrade() else { return };
        let read = monitor.read_events();
        if let Some(error) = waited.err().map(|error| error.to_string()).or(read.err().map(|e| e.to_string()))
        {
            warn!(%error, "network adapters are not watched any more");
            return;
        }
        if let Some(Err(error)) = bluetooth.as_mut().map(Management::read_events) {
            warn!(%error, "Bluetooth is not watched any more");
            bluetooth = None;
        }
        // A change is told at once; what the daemon says of it follows.
        let (adapters, power) = daemon.view(&monitor, bluetooth.as_ref());
        shared.update(adapters, power);
    }
}
