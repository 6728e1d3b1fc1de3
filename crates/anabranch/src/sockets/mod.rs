//! Virtual sockets: streams of a bond inside the application's own process, without privileges.
//!
//! ```text
//! VirtualStream, VirtualListener, Datagrams, Events      what applications hold
//!        |  wakers                     ^
//!        v                             |
//! core: conversations, one for each peer process --- bond::Endpoint (sessions, paths, streams)
//!        ^                             |
//!        |  one thread for each Endpoint: driver
//! sockets of adapters (adapter/ip.rs, adapter/bluetooth.rs; a new kind is a file beside them) <--- AdapterMonitor, one thread for each process
//! ```
//!
//! `[VCONN]` calls a path that carries data a channel that is active, one that stands by passive, and its control socket is the path
//! itself: each pair of adapters that reach each other is a path of the one session, measured and ready, so a switch
//! moves data and opens nothing.

mod adapter;
mod beside;
mod conversation;
mod core;
mod driver;
mod endpoint;
mod error;
mod event;
mod listener;
mod monitor;
mod options;
mod packets;
mod paths;
mod relays;
mod remote;
mod stream;
mod switch_off;
mod wakers;

pub(crate) use monitor::AdapterMonitor;

pub use adapter::{Adapter, AdapterState};
pub use beside::MachineBeside;
pub use endpoint::{Datagrams, Endpoint};
pub use error::{BindError, ConnectError};
pub use event::{Event, EventKind, Events};
pub use listener::{Incoming, VirtualListener};
pub use options::{Admission, AskAdmission, Caller, ConnectOptions, EndpointOptions, Membership, Peer};
pub use packets::Packets;
pub use relays::Relays;
pub use stream::{Standing, VirtualStream};
pub use switch_off::{SwitchOff, SwitchOffError};
