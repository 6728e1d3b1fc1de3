//! One Wi-Fi card in many networks: the station of the crate `radio` on a card of this machine, each network an interface of its own.
//!
//! ```text
//! root:   lock, journal, card taken over --fork--> supervisor: gives the card back at the end
//! worker: loop thread: a keeper of networks, and one DHCP client for each network
//!           slots:  card <-> station <-> one TAP for each network
//!           kernel: one interface of the card and one wpa_supplicant for each network
//! ```
//! Which of the two keepers serves a card is chosen by what it can do ([`BackEnd::choose`]).
//! It runs beside the device's daemon and knows nothing of it: what watches links sees further networks come and go.

mod access_points;
mod address;
mod control;
mod event_loop;
mod keeping;
mod kernel;
mod known;
mod lease;
mod login;
mod machine;
mod points;
mod soft_handoff;
mod switches;
mod watch;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch::control::radio_socket;
use identity::{StateDirectory, StateError};
use linux::clock;
use linux::journal::{ApplyError, Journal, JournalError};
use linux::radio::{BackEnd, Channel, Choice, OpenError, RadioCard, Radios, further_addresses, take_over};
use linux::signals::EndSignals;
use linux::supplicant::{Supplicant, SupplicantError};
use linux::tun::{Reserved, TunError};
use linux::wireless::WirelessError;
use radio::pcap::file_header;
use thiserror::Error;
use tracing::{info, warn};
use units::{Frequency, MacAddress};

use crate::config::ProbeTarget;
use crate::control::{Callers, ControlServer, Doors, listen_abstract};
use crate::supervision::{self, Root, StartError, SuperviseError};
use linux::privileges::requirements::Purpose;

use control::Desk;
pub use control::heard_networks;
use event_loop::RadioLoop;
use keeping::Keeper;
use kernel::KernelKeeper;
pub(crate) use kernel::statistics::{Statistics, Up};
pub use known::{KNOWN_NETWORKS_FILE, KnownError, KnownNetwork, KnownNetworks, MOST_NETWORKS};
use lease::LeaseMemory;
pub use login::{Login, LoginMethod};
use machine::RadioMachine;
pub(crate) use points::Points;
pub use radio::slots::{Cycle, SlotSettings};
use switches::TRACE_HEADER;
use watch::ListWatch;

/// The interface by which we use the card.
const MONITOR_INTERFACE: &str = "anyradio0";

/// Below the state directory: the journal of what is changed of name servers.
const NAMES_DIRECTORY: &str = "names";

/// What a radio needs to start.
#[derive(Clone, Debug)]
pub struct RadioOptions {
    /// Where its known networks and its journal are.
    pub state: StateDirectory,
    /// The card: name of one of its interfaces, or of the radio; `None`: the only one.
    pub card: Option<String>,
    /// The kernel is to keep the networks, whatever the card could do otherwise.
    pub kernel: bool,
    /// How turns are taken.
    pub slots: SlotSettings,
    /// Weight of listening for further networks; 0: only while one is sought.
    pub scan_weight: u16,
    /// Numbers of the only channels to use; empty: all.
    pub channels: Vec<u16>,
    /// One network carries all traffic, the others are kept ready; also if the file of known networks says so.
    pub soft_handoff: bool,
    /// What is asked for over each network then, to see what lies beyond it. Nothing: the radio link alone decides.
    pub probe: Vec<ProbeTarget>,
    /// Firewall mark of those questions, by which they go past any0.
    pub mark: u32,
    /// Where to write all frames that were sent and received, in the pcap format.
    pub capture: Option<PathBuf>,
    /// Where to write how long each change of channel took.
    pub trace: Option<PathBuf>,
    /// What a change of channel takes beside what the card takes: for simulated cards, which change at once.
    pub channel_cost: Duration,
    /// User that the worker becomes.
    pub user: String,
}

/// Why a radio cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum RadioError {
    /// Something is missing, another daemon runs, or a dead one's changes stay.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The known networks.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// There is nothing to do.
    #[error("the radio knows no network yet: `anabranch radio add NAME` adds one")]
    NoNetworks,
    /// The kernel knows no card.
    #[error(transparent)]
    Wireless(#[from] WirelessError),
    /// No card of that name, or several to choose from.
    #[error("{0}; `anabranch radio probe` lists the cards")]
    Card(String),
    /// The card cannot be shared in this way.
    #[error("{card} cannot be in several networks by turns: {reason}")]
    Unable {
        /// The card.
        card: String,
        /// Why.
        reason: String,
    },
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The undo journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The card could not be taken over.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The card could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file for captured frames, or for changes of channel.
    #[error("nothing can be written to {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The state directory.
    #[error("{} cannot be used: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The program that the kernel's stations need.
    #[error(transparent)]
    Supplicant(#[from] SupplicantError),
    /// The device of the networks' interfaces.
    #[error(transparent)]
    Interface(#[from] TunError),
    /// The worker process.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}

/// Runs the radio until SIGTERM or SIGINT, then gives the card back.
///
/// Splits the process: must be called before the process starts any thread.
///
/// # Errors
/// Any [`RadioError`].
pub fn run(options: RadioOptions) -> Result<(), RadioError> {
    let known = KnownNetworks::load(&options.state)?;
    if known.network.is_empty() {
        return Err(RadioError::NoNetworks);
    }
    let (_lock, mut journal) = supervision::begin(&options.state, Purpose::Device { nftables: false })?;
    let mut names = Journal::open(StateDirectory::create(options.state.file(NAMES_DIRECTORY))?.path())?;
    names.restore()?;
    let mut radios = Radios::open()?;
    let card = match &options.card {
        Some(name) => radios.find(name)?.ok_or_else(|| RadioError::Card(format!("no card \"{name}\"")))?,
        None => {
            let mut all = radios.list()?;
            match all.len() {
                1 => all.remove(0),
                0 => return Err(RadioError::Card("no Wi-Fi card".to_owned())),
                several => {
                    return Err(RadioError::Card(format!("{several} Wi-Fi cards; name one with --card")));
                }
            }
        }
    };
    let choice = if options.kernel { Choice::kernel(&card) } else { BackEnd::choose(&card) };
    let address = card.address.ok_or_else(|| RadioError::Card(format!("{} has no address", card.name)))?;
    let mut addresses = vec![address];
    let keeping = match choice.back_end {
        BackEnd::None => {
            return Err(RadioError::Unable { card: card.name.clone(), reason: choice.reason });
        }
        BackEnd::Kernel { networks, .. } => {
            Supplicant::program()?;
            if options.capture.is_some() || options.trace.is_some() {
                warn!(
                    "the kernel keeps the networks of this card: nothing is written of its frames and channels"
                );
            }
            let named = |channel: &&Channel| {
                channel.frequency.channel().is_some_and(|number| options.channels.contains(&number))
            };
            let frequencies = card.channels.iter().filter(named).map(|channel| channel.frequency).collect();
            Keeping::Kernel { networks, frequencies }
        }
        BackEnd::TimeSliced => {
            let capture =
                options.capture.as_ref().map(|path| begin_file(path, &file_header())).transpose()?;
            let trace =
                options.trace.as_ref().map(|path| begin_file(path, TRACE_HEADER.as_bytes())).transpose()?;
            // The worker may not open the device.
            let reserved: Result<Vec<Reserved>, TunError> =
                (0..MOST_NETWORKS).map(|_| Reserved::open()).collect();
            // For networks of a name that another one has too.
            let mut further = further_addresses(&card);
            further.truncate(known.same_names());
            addresses.extend(&further);
            Keeping::Slots { further, reserved: reserved?, written: Written { capture, trace } }
        }
    };
    // It may be below directories that the worker cannot pass.
    let directory = File::open(options.state.path())
        .map_err(|error| RadioError::Directory { path: options.state.path().to_owned(), error })?;
    let open = listen_abstract(&radio_socket());
    let open = open.inspect_err(|error| warn!("only root can ask the radio: {error}")).ok();
    let user = supervision::prepare(&options.state, &options.user)?;
    let taken = take_over(&card, MONITOR_INTERFACE, keeping.acknowledged(&addresses));
    if let Err(error) = journal.apply(&taken) {
        journal.restore()?;
        return Err(error.into());
    }
    info!("{}: {}", card.name, choice.reason);
    let work = move |root: Root| work(root, &options, Prepared { known, keeping, directory, open });
    let radio = card.name;
    supervision::supervise(user, work, || RadioMachine { card: journal, radio, addresses, names })?;
    Ok(())
}

/// A file that the worker goes on with.
fn begin_file(path: &PathBuf, header: &[u8]) -> Result<File, RadioError> {
    let begin = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(header)?;
        io::Result::Ok(file)
    };
    begin().map_err(|error| RadioError::File { path: path.clone(), error })
}

/// What root opened for the worker, which may not.
struct Prepared {
    known: KnownNetworks,
    keeping: Keeping,
    /// The state directory.
    directory: File,
    /// Where local users ask; `None` if another program has it.
    open: Option<UnixListener>,
}

/// What a radio whose time is shared out goes on with.
struct Outfit {
    /// Addresses beside the card's own, which it acknowledges.
    further: Vec<MacAddress>,
    /// For the networks' interfaces, those that are added later included.
    reserved: Vec<Reserved>,
    written: Written,
    memory: LeaseMemory,
}

/// What it writes all the time, where it was asked to.
struct Written {
    /// Every frame.
    capture: Option<File>,
    /// Every change of channel.
    trace: Option<File>,
}

/// Who keeps the networks, with what that takes.
enum Keeping {
    /// The kernel's stations.
    Kernel {
        /// In how many networks the card can be.
        networks: u32,
        /// The only ones to use; empty: all.
        frequencies: Vec<Frequency>,
    },
    /// The station of this program.
    Slots {
        /// Addresses beside the card's own, which it acknowledges.
        further: Vec<MacAddress>,
        /// For the networks' interfaces, those that are added later included.
        reserved: Vec<Reserved>,
        written: Written,
    },
}

impl Keeping {
    /// Which of the radio's addresses a monitor interface has to acknowledge.
    fn acknowledged<'a>(&self, addresses: &'a [MacAddress]) -> &'a [MacAddress] {
        match self {
            Self::Kernel { .. } => &[],
            Self::Slots { .. } => addresses,
        }
    }
}

/// The worker process, without root.
fn work(root: Root, options: &RadioOptions, prepared: Prepared) -> Result<(), Box<dyn std::error::Error>> {
    let signals = EndSignals::catch()?;
    let Prepared { known, keeping, directory, open } = prepared;
    let state = state_behind(&directory)?;
    let mut list = ListWatch::new(clock::now(), directory.try_clone()?)?;
    let memory = LeaseMemory::load(directory.try_clone()?, &known)?;
    let (backend, mut desk) = Desk::new(root)?;
    let replies = backend.commands.clone();
    let doors = Doors { open, ..Doors::default() };
    // The device, which may have a user of its own, keeps its state in the directory above.
    let device = rustix::fs::statat(&directory, "..", rustix::fs::AtFlags::empty())?.st_uid;
    let callers = Callers::of_state(&state, Some(device))?;
    let _server = ControlServer::start_with(doors, &state, callers, Arc::new(backend))?;
    let mut keeper: Box<dyn Keeper> = match keeping {
        Keeping::Kernel { networks, frequencies } => {
            let (root, events) = (Arc::clone(&desk.root), Arc::clone(&desk.events));
            Box::new(KernelKeeper::new(root, events, directory, networks, frequencies, memory)?)
        }
        Keeping::Slots { further, reserved, written } => {
            let card = RadioCard::open(MONITOR_INTERFACE)?;
            let options =
                RadioOptions { soft_handoff: options.soft_handoff || known.soft_handoff, ..options.clone() };
            let outfit = Outfit { further, reserved, written, memory };
            Box::new(RadioLoop::new(card, &options, outfit, &desk, replies)?)
        }
    };
    Ok(keeping::run(keeper.as_mut(), &signals, &mut list, known, &mut desk)?)
}

/// The state directory by a name by which only this process can open it, whatever lies above it.
fn state_behind(directory: &File) -> Result<StateDirectory, StateError> {
    StateDirectory::open(format!("/proc/self/fd/{}", directory.as_raw_fd()), "anabranch radio add")
}
