//! Keeps marks to the connections that have another subflow to use, as these begin and end.
//!
//! The kernel's word that something has changed is only a bell, as in [`crate::monitor`]: each time it rings, its subflows are listed anew.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::debug;

use super::marking;
use super::paths::{Paths, PathsError, marking_table};
use super::ways::ways;
use crate::netlink::generic::GenericNetlink;
use crate::netlink::socket::NetlinkSocket;
use crate::nft;
use crate::poll::{Interest, Poller, Token, Waker};

/// Marks packets of MPTCP connections, of a network namespace.
#[derive(Debug, Default)]
pub struct Marker {
    current: Arc<Mutex<Option<Current>>>,
    listener: Option<Listener>,
    /// The kernel tells nothing: not asked again.
    is_deaf: bool,
}

/// What is marked now.
#[derive(Debug)]
struct Current {
    paths: Paths,
    /// The last script that said which connections there are.
    connections: String,
}

/// The thread that hears of connections, which ends with this.
#[derive(Debug)]
struct Listener {
    end: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Marker {
    /// Has nftables mark what comes in, so that senders prefer other networks (`[MULTIAP] section 5`), of connections that have others to use: `marking.rs`
    /// says which packets that are. They are those of the current network namespace, and it goes on as connections begin and end.
    ///
    /// # Errors
    /// [`PathsError::Marks`] or [`PathsError::Sockets`]; nothing is changed then.
    pub fn mark(&mut self, paths: &Paths) -> Result<(), PathsError> {
        if paths.has_marks() && self.listener.is_none() && !self.is_deaf {
            match Listener::start(Arc::clone(&self.current)) {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => {
                    self.is_deaf = true;
                    debug!("new connections are marked as soon as marks change: {error}");
                }
            }
        }
        let mut current = lock(&self.current);
        let table = marking_table(paths.table);
        if !paths.has_marks() {
            nft::load(&nft::removal(&table))?;
            *current = None;
            return Ok(());
        }
        let connections = marking::connections(&table, &paths.networks, &ways()?);
        nft::load(&(marking::rules(&table, &paths.networks) + &connections))?;
        *current = Some(Current { paths: paths.clone(), connections });
        Ok(())
    }
}

impl Current {
    fn follow(&mut self) -> Result<(), PathsError> {
        let Paths { table, networks } = &self.paths;
        let connections = marking::connections(&marking_table(*table), networks, &ways()?);
        if connections != self.connections {
            nft::load(&connections)?;
            self.connections = connections;
        }
        Ok(())
    }
}

impl Listener {
    fn start(current: Arc<Mutex<Option<Current>>>) -> io::Result<Self> {
        let events = events()?;
        let (mut poller, end) = (Poller::new()?, Waker::new()?);
        poller.add(&events, EVENTS, Interest::Readable)?;
        poller.add(&end, END, Interest::Readable)?;
        let thread = thread::Builder::new().name("mptcp-marks".to_owned()).spawn(move || {
            if let Err(error) = listen(events, &mut poller, &current) {
                debug!("new connections are marked as soon as marks change: {error}");
            }
        })?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What tells of connections and subflows; Linux 5.12.
fn events() -> io::Result<NetlinkSocket> {
    let mut netlink = GenericNetlink::open()?;
    let group = netlink.group("mptcp_pm", "mptcp_pm_events").map_err(io::Error::other)?;
    let events = netlink.into_socket();
    events.hear(group.ok_or(io::ErrorKind::Unsupported)?)?;
    Ok(events)
}

fn listen(
    mut events: NetlinkSocket,
    poller: &mut Poller,
    current: &Mutex<Option<Current>>,
) -> io::Result<()> {
    let mut ready = Vec::new();
    loop {
        poller.wait(None, &mut ready)?;
        if ready.iter().any(|ready| ready.token == END) {
            return Ok(());
        }
        // What begins together is looked at together.
        thread::sleep(TOGETHER);
        events.drain()?;
        if let Some(Err(error)) = lock(current).as_mut().map(Current::follow) {
            debug!("marks do not follow MPTCP's connections: {error}");
        }
    }
}

fn lock(current: &Mutex<Option<Current>>) -> MutexGuard<'_, Option<Current>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

const EVENTS: Token = Token(0);
const END: Token = Token(1);
const TOGETHER: Duration = Duration::from_millis(50);
