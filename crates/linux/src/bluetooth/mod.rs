//! Bluetooth: the machine's controllers, and datagrams over them.
//!
//! ```text
//! Management   which controllers there are, whether they are on; with CAP_NET_ADMIN also: switch them
//! LinkListener, Link   L2CAP over BR/EDR, connection-oriented: whole datagrams, in order, none lost (Bluetooth Core, volume 3 part A)
//! Advertiser, Scanner  a few bytes of Low Energy advertising to whoever listens, by way of BlueZ's daemon
//! ```
//!
//! The first three are sockets of the kernel's own, for which BlueZ's daemon need not run. The kernel has them in its first network namespace only.

mod link;
mod management;
mod message;
mod service;

pub use link::{Link, LinkError, LinkListener, LinkSendError, MAX_DATAGRAM, Multiplexer};
pub use management::{Controller, Management, ManagementError, Settings};
pub use service::{Advertised, Advertiser, MAX_SERVICE_DATA, Scanner, ServiceError};

/// `AF_BLUETOOTH` protocols and levels of `<bluetooth/bluetooth.h>`, which the C library does not have.
const PROTOCOL_L2CAP: libc::c_int = 0;
const PROTOCOL_HCI: libc::c_int = 1;

/// The kernel keeps device addresses with the last byte first.
fn reversed(mut address: [u8; 6]) -> [u8; 6] {
    address.reverse();
    address
}
