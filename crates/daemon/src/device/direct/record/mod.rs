//! Records networks and flows for `anabranch what-if`, while the configuration asks for it.
//!
//! A thread of its own reads the kernel's list of connections each second and writes each flow when it has ended; the networks
//! when something about them changes. The thread of direct mode only leaves what it knows on a [`Stage`].

mod file;
mod watch;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch::control::EventKind;
use identity::StateDirectory;
use linux::cgroup::Hierarchy;
use linux::clock;
use linux::netlink::conntrack::{Conntrack, Entry};
use policy::network::{CapReport, Metrics, NetworkInput, PowerSupply};
use policy::replay::{TraceEvent, TraceRecord};
use tracing::{info, warn};
use units::{Bytes, Timestamp};

use super::flows::{Sockets, programs};
use crate::control::EventLog;
use crate::supervision::Root;
use file::{RecordError, TraceFile};
use watch::{Owner, Watch};

pub use watch::Scene;

/// What direct mode knows, for the recorder.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Known {
    /// The networks, as the policy judges them.
    pub networks: Vec<NetworkInput>,
    /// Where the power comes from.
    pub power: PowerSupply,
    /// See [`Scene`].
    pub scene: Scene,
}

/// Where direct mode leaves it.
pub type Stage = Arc<Mutex<Known>>;

/// A running recorder.
pub struct Recorder {
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts to record into the file `name` of the state directory. A file that cannot be used is told and tried again.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        name: &str,
        state: StateDirectory,
        stage: Stage,
        root: Arc<Root>,
        events: Arc<EventLog>,
    ) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let mut session = Session {
            name: name.to_owned(),
            state,
            stage,
            root,
            events,
            file: None,
            watch: Watch::new(0),
            conntrack: None,
            began: clock::now(),
            base: Duration::ZERO,
            written: None,
            complaint: None,
        };
        let run = move || session.run(&stopped);
        Ok(Self { stop, thread: std::thread::Builder::new().name("record".to_owned()).spawn(run)? })
    }

    /// Writes the flows that go on, and ends.
    pub fn finish(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            warn!("the recorder panicked");
        }
    }
}

struct Session {
    name: String,
    state: StateDirectory,
    stage: Stage,
    root: Arc<Root>,
    events: Arc<EventLog>,
    file: Option<TraceFile>,
    watch: Watch,
    conntrack: Option<Conntrack>,
    began: Timestamp,
    /// Where an earlier run left off.
    base: Duration,
    written: Option<Written>,
    /// What was told to be wrong and is not known to be right again.
    complaint: Option<String>,
}

/// The networks as they stand in the file.
struct Written {
    at: Duration,
    networks: Vec<NetworkInput>,
    power: PowerSupply,
}

impl Session {
    fn run(&mut self, stopped: &Receiver<()>) {
        let mut pause = SHORTEST_PAUSE;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let began = clock::now();
            let outcome = self.look();
            self.tell(outcome);
            // Reading a long list takes time, of which others are not to have less.
            pause = (clock::now().since(began) * IDLE_PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        }
        let outcome = self.end();
        self.tell(outcome);
    }

    fn look(&mut self) -> Result<(), RecordError> {
        let known = self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.scene.any0.is_empty() {
            return Ok(());
        }
        self.open()?;
        let at = self.base + clock::now().since(self.began);
        if let Some(file) = &mut self.file
            && file.turn_over()?
        {
            self.written = None;
        }
        let mut records: Vec<TraceRecord> = self.networks(at, &known).into_iter().collect();
        records.extend(self.flows(at, &known.scene));
        let Some(file) = self.file.as_mut().filter(|_| !records.is_empty()) else { return Ok(()) };
        file.append(&records).inspect_err(|_| self.written = None)
    }

    fn end(&mut self) -> Result<(), RecordError> {
        self.look()?;
        let living = self.watch.living();
        self.file.as_mut().map_or(Ok(()), |file| file.append(&living))
    }

    fn open(&mut self) -> Result<(), RecordError> {
        if self.file.is_some() {
            return Ok(());
        }
        let (file, left) = TraceFile::open(self.state.clone(), &self.name, LARGEST)?;
        self.file = Some(file);
        if let Some(last) = left.flow {
            // Flows that lived in a crash had numbers too.
            self.watch = Watch::new(last.saturating_add(Watch::MOST + 1));
        }
        (self.base, self.began) = (left.at, clock::now());
        info!("networks and flows are recorded in {}", self.state.file(&self.name).display());
        Ok(())
    }

    /// The networks, if they are to be written: what matters at once, measured values now and then.
    fn networks(&mut self, at: Duration, known: &Known) -> Option<TraceRecord> {
        let is_due = self.written.as_ref().is_none_or(|written| {
            let other = written.networks != known.networks || written.power != known.power;
            let later = at.saturating_sub(written.at) >= MEASURED_INTERVAL;
            other && (later || unmeasured(&written.networks) != unmeasured(&known.networks))
        });
        if !is_due || known.networks.is_empty() {
            return None;
        }
        let (networks, power) = (known.networks.clone(), known.power);
        self.written = Some(Written { at, networks: networks.clone(), power });
        Some(TraceRecord { at, event: TraceEvent::Networks { networks, power } })
    }

    fn flows(&mut self, at: Duration, scene: &Scene) -> Vec<TraceRecord> {
        let mut entries: Vec<Entry> = Vec::new();
        let listed = match &mut self.conntrack {
            Some(conntrack) => conntrack.for_each(None, |entry| {
                if entries.len() < MOST_LISTED {
                    entries.push(*entry);
                }
            }),
            closed => match Conntrack::open() {
                Ok(opened) => {
                    *closed = Some(opened);
                    return self.flows(at, scene);
                }
                Err(error) => {
                    self.complain(format!("no flow is recorded: the kernel lists none: {error}"));
                    return Vec::new();
                }
            },
        };
        if let Err(error) = listed {
            self.complain(format!("no flow is recorded: the kernel lists none: {error}"));
            return Vec::new();
        }
        let left_out = self.watch.left_out();
        let root = &self.root;
        let records = self.watch.look(at, scene, &entries, |unowned| owners(unowned, root));
        if self.watch.left_out() > left_out {
            self.complain(format!("more than {} flows at once: the rest is not recorded", Watch::MOST));
        }
        records
    }

    fn tell(&mut self, outcome: Result<(), RecordError>) {
        match outcome {
            Err(error) => {
                self.complain(format!("what happens now is not recorded: {error}"));
                self.file = self.file.take().filter(|_| matches!(error, RecordError::Write { .. }));
            }
            Ok(()) if self.complaint.as_ref().is_some_and(|text| text.starts_with("what happens")) => {
                self.complaint = None;
                let text = "networks and flows are recorded again";
                self.events.push(EventKind::Warning, None, text);
            }
            Ok(()) => {}
        }
    }

    /// Once, until something else is wrong.
    fn complain(&mut self, text: String) {
        if self.complaint.as_ref() != Some(&text) {
            self.events.push(EventKind::Warning, None, text.clone());
            self.complaint = Some(text);
        }
    }
}

/// What of the networks does not change by the second.
fn unmeasured(networks: &[NetworkInput]) -> Vec<NetworkInput> {
    let cap = |cap: CapReport| CapReport { used: Bytes(0), ..cap };
    let plain = |network: &NetworkInput| NetworkInput {
        metrics: Metrics::default(),
        cap: network.cap.map(cap),
        ..network.clone()
    };
    networks.iter().map(plain).collect()
}

/// Those of flows that have a socket here.
fn owners(entries: &[Entry], root: &Root) -> Vec<Owner> {
    let sockets = Sockets::read();
    let found: Vec<_> = entries.iter().map(|entry| sockets.of(entry)).collect();
    // Remarks are for people who ask; a flow without a program is recorded without.
    let programs = programs(found.iter().flatten(), root, &mut Vec::new());
    let groups = Hierarchy::find().ok();
    let owner = |socket: &Option<_>| {
        let socket: &linux::netlink::sock_diag::SocketInfo = socket.as_ref()?;
        let program = programs.get(&socket.inode);
        let group = groups.as_ref().zip(program).and_then(|(all, program)| all.path_of(program.process).ok());
        Some(Owner {
            program: program.and_then(|program| program.executable.clone()),
            cgroup: group.map(|group| group.as_str().to_owned()),
            user: Some(socket.user),
        })
    };
    found.iter().map(|socket| owner(socket).unwrap_or_default()).collect()
}

/// The file is turned over at this size, in bytes; with the one before it takes twice as much at most.
const LARGEST: u64 = 64 << 20;
/// Between two looks at the flows.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A pause is so many times as long as the look before it.
const IDLE_PART: u32 = 50;
/// Between two records of networks of which only measured values differ.
const MEASURED_INTERVAL: Duration = Duration::from_secs(10);
/// Entries of the kernel's list that are looked at.
const MOST_LISTED: usize = 262_144;
