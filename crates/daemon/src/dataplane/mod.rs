//! What the loops of device and gateway share: the sockets, the interface, and draining the endpoint.
//!
//! ```text
//!            wake, commands                 tasks, events
//! control ------------------> loop thread ----------------> watcher thread, event log
//!                              |  ^
//!                 any0, carriers, timer
//! ```
//! The loop thread owns the TUN, all sockets and the endpoint, and waits in epoll. Work that can block (netlink
//! dumps, name look-ups, the registry, nft) is done by the watcher thread, which never touches packets.

mod carriers;
mod gathering;
pub mod path_report;
mod plane;
mod thread;
mod traffic;
mod unreachable;

use policy::Treatment;
use wire::hello::DefaultTreatment;

pub use carriers::{CarrierError, Carriers, MovedConnection, SendFailure};
pub use plane::{FIRST_SOCKET_TOKEN, Owner, Plane, Verdict};
pub use thread::PacketThread;
pub use traffic::Meter;

pub use anabranch::machine::{has_aes, seed, stamp};

/// A treatment as the other end is told of it: the others need none.
pub fn on_the_wire(treatment: Treatment) -> DefaultTreatment {
    match treatment {
        Treatment::Duplicated => DefaultTreatment::Duplicated,
        Treatment::Protected => DefaultTreatment::Protected,
        Treatment::Bonded | Treatment::Direct | Treatment::Mptcp => DefaultTreatment::Bonded,
    }
}

/// What the other end has asked for.
pub fn off_the_wire(treatment: DefaultTreatment) -> Treatment {
    match treatment {
        DefaultTreatment::Bonded => Treatment::Bonded,
        DefaultTreatment::Duplicated => Treatment::Duplicated,
        DefaultTreatment::Protected => Treatment::Protected,
    }
}
