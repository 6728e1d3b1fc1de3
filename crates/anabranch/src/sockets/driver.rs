//! The thread of an endpoint: sockets to the bond and back.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linux::clock;
use linux::poll::{Interest, Poller, Ready, Token, Waker};
use tracing::{debug, warn};
use units::Timestamp;

use super::adapter::Sent;
use super::core::Core;
use super::monitor::AdapterMonitor;

/// Datagrams in one send, as the kernel takes them.
const SEGMENTS: usize = 44;
/// Sends in one turn, and reads from one socket, before others have theirs.
const SENDS: usize = 64;
const READS: usize = 16;
const WAKER: Token = Token(0);
const PLACES: Token = Token(1);

/// What the thread and the application's handles share.
pub(super) struct Shared {
    core: Mutex<Core>,
    waker: Waker,
    /// The thread waits and must be woken.
    sleeping: AtomicBool,
    /// Application threads that want the lock: the driver lets them.
    waiting: AtomicUsize,
    pub(super) monitor: Arc<AdapterMonitor>,
}

impl Shared {
    pub(super) fn new(core: Core, monitor: Arc<AdapterMonitor>) -> io::Result<Self> {
        let waker = Waker::new()?;
        Ok(Self {
            core: Mutex::new(core),
            waker,
            sleeping: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            monitor,
        })
    }

    /// The core, for a call of the application.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// After a call of the application: the driver goes on with what it left.
    pub(super) fn done(&self, core: MutexGuard<'_, Core>) {
        let has_work = core.bond.has_work() || core.closing.is_some();
        drop(core);
        if has_work {
            self.wake();
        }
    }

    /// Wakes the driver, if it sleeps.
    pub(super) fn wake(&self) {
        if self.sleeping.swap(false, Ordering::AcqRel) {
            self.waker.wake();
        }
    }
}

/// Starts the thread of an endpoint; it ends when the core says so.
///
/// # Errors
/// If the system has no thread or descriptor left.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let poller = Poller::new()?;
    poller.add(&shared.waker, WAKER, Interest::Readable)?;
    shared.monitor.subscribe(shared.waker.clone());
    poller.add(&shared.lock().poller_of_places, PLACES, Interest::Readable)?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("sockets".to_owned()).spawn(move || {
        linux::poll::be_punctual();
        run(&shared, poller);
        shared.monitor.unsubscribe(&shared.waker);
    })?;
    Ok(())
}

fn run(shared: &Shared, poller: Poller) {
    let mut poller = poller;
    let (mut ready, mut buffer) = (Vec::new(), Vec::new());
    loop {
        let mut core = shared.core.lock().unwrap_or_else(PoisonError::into_inner);
        let next = turn(shared, &mut core, &mut ready, &mut buffer);
        if core.ended {
            return;
        }
        let now = clock::now();
        let busy = next <= now;
        // Set under the lock: what is left by others from now on wakes us.
        shared.sleeping.store(!busy, Ordering::Release);
        drop(core);
        if busy {
            let mut patience = 100;
            while shared.waiting.load(Ordering::Relaxed) > 0 && patience > 0 {
                std::thread::yield_now();
                patience -= 1;
            }
            continue;
        }
        if let Err(error) = poller.wait(clock::wait_until(now, next), &mut ready) {
            warn!(%error, "virtual sockets cannot wait any more");
            return;
        }
        shared.sleeping.store(false, Ordering::Release);
        if ready.iter().any(|one| one.token == WAKER) {
            shared.waker.reset();
        }
    }
}

/// Takes in what is there and sends what is to be sent; returns when to come again.
fn turn(shared: &Shared, core: &mut Core, ready: &mut Vec<Ready>, buffer: &mut Vec<u8>) -> Timestamp {
    let now = clock::now();
    if let Err(error) = core.follow_adapters(now, &shared.monitor) {
        debug!(%error, "an adapter has no socket");
    }
    let mut more = receive(core, now, ready);
    core.follow_links(now);
    core.hear_mesh(now);
    if core.bond.poll_timeout().is_some_and(|at| at <= now) {
        core.bond.handle_timeout(now);
    }
    core.hear(now);
    let next = core.tick(now);
    for _ in 0..2 {
        more |= send(core, buffer);
        // Sending may have told something too.
        core.hear(now);
    }
    if more {
        return now;
    }
    core.bond.poll_timeout().unwrap_or(Timestamp::FAR_FUTURE).min(next)
}

/// Reads from the sockets that have something; whether there may be more.
fn receive(core: &mut Core, now: Timestamp, ready: &mut Vec<Ready>) -> bool {
    if let Err(error) = core.poller_of_places.wait(Some(std::time::Duration::ZERO), ready) {
        debug!(%error, "sockets cannot be asked");
        return false;
    }
    let mut more = false;
    for one in ready.iter().filter(|one| one.readable) {
        for read in 1..=READS {
            let bond = &mut core.bond;
            let count = core.carriers.receive(one.token, &mut |from, ecn, bytes| {
                bond.handle_datagram(now, from, ecn, bytes);
            });
            if count == 0 {
                break;
            }
            more |= read == READS;
        }
    }
    core.sweep_pairs();
    more
}

/// Sends what the bond has; whether there is more.
fn send(core: &mut Core, buffer: &mut Vec<u8>) -> bool {
    for _ in 0..SENDS {
        let Some(transmit) = core.bond.poll_transmit(clock::now(), buffer, SEGMENTS) else { return false };
        let bytes = buffer.get(..transmit.size).unwrap_or_default();
        let sent = if core.carriers.is_relayed(transmit.address.network) {
            core.send_relayed(transmit.address, transmit.ecn, bytes, transmit.segment_size)
        } else {
            core.carriers.send(&transmit, bytes)
        };
        if sent == Sent::TooLarge {
            let size = u16::try_from(transmit.segment_size).unwrap_or(u16::MAX);
            core.bond.datagram_too_large(transmit.address, size);
        }
    }
    true
}
