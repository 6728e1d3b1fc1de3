//! I/O. What applications link: virtual sockets, and the control client and its types.
//!
//! - [`Endpoint`] makes [`VirtualStream`]s: connections to a peer, known by its key, that outlive the network that they began on. They
//!   implement tokio's [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite); [`blocking`] has the form for threads. See
//!   `examples/echo.rs`.
//! - [`nearby`] tells peers on the same links of this machine, and finds them.
//! - [`control`] talks to a running daemon over its Unix socket: its status, networks and events, and on a gateway its
//!   clients. See `examples/watch.rs` for a program that follows what the daemon does.
#![forbid(unsafe_code)]

pub mod apps;
pub mod blocking;
pub mod control;
pub mod link;
pub mod machine;
pub mod nearby;
mod sockets;
pub mod upload;

pub use mesh::{Counters as RelayCounters, Relaying};
pub use sockets::{
    Adapter, AdapterState, Admission, AskAdmission, BindError, Caller, ConnectError, ConnectOptions,
    Datagrams, Endpoint, EndpointOptions, Event, EventKind, Events, Incoming, MachineBeside, Membership,
    Packets, Peer, Relays, Standing, SwitchOff, SwitchOffError, VirtualListener, VirtualStream,
};
pub use wire::peer::{PeerAddress, PeerAddressError};
