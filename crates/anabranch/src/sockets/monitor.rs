//! The adapter monitor: one thread for all endpoints of a process, `[VCONN] 4`. More exactly, one for each network namespace that the
//! process is in.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use linux::monitor::Monitor;
use linux::poll::{Interest, Poller, Token, Waker};
use linux::power::{self, PowerState};
use policy::network::PowerSupply;
use tracing::warn;

use super::adapter::Adapter;
use super::error::BindError;
use crate::link;

/// The battery is looked at this often.
const POWER_INTERVAL: Duration = Duration::from_secs(10);
const MONITOR: Token = Token(0);
const STOP: Token = Token(1);

static MONITORS: Mutex<BTreeMap<u64, Weak<AdapterMonitor>>> = Mutex::new(BTreeMap::new());

/// Adapters and power of this machine, as last seen.
pub(super) struct AdapterMonitor {
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
    pub(super) fn shared() -> Result<Arc<Self>, BindError> {
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
        let seen = Seen {
            adapters: Arc::new(adapters(&monitor)),
            power: supply(),
            version: 0,
            subscribers: Vec::new(),
        };
        let shared = Arc::new(Self { seen: Mutex::new(seen), stop });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("adapters".to_owned())
            .spawn(move || watch(&weak, monitor, poller))?;
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
    pub(super) fn look(&self) -> (Arc<Vec<Adapter>>, PowerSupply, u64) {
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

/// Runs until nobody holds the monitor any more.
fn watch(shared: &Weak<AdapterMonitor>, monitor: Monitor, poller: Poller) {
    let (mut monitor, mut poller) = (monitor, poller);
    let mut ready = Vec::new();
    loop {
        let waited = poller.wait(Some(POWER_INTERVAL), &mut ready);
        let Some(shared) = shared.upgrade() else { return };
        let read = monitor.read_events();
        if let Some(error) = waited.err().map(|error| error.to_string()).or(read.err().map(|e| e.to_string()))
        {
            warn!(%error, "network adapters are not watched any more");
            return;
        }
        shared.update(adapters(&monitor), supply());
    }
}

fn adapters(monitor: &Monitor) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = monitor.interfaces().filter_map(Adapter::of).collect();
    // `[VCONN] 3.3`: by operational state, then by speed.
    adapters.sort_by_key(|adapter| (adapter.state, std::cmp::Reverse(adapter.speed), adapter.index));
    adapters
}

fn supply() -> PowerSupply {
    link::supply(&PowerState::read(Path::new(power::SYSTEM)))
}
