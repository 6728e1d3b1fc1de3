//! Upload through the neighbours: a file goes on the air, whoever hears it carries a part of it by an uplink of its own, and the
//! destination puts it together (`[LINKALIKE]`). What decides is `upload`, the pure crate; here are the programs around it.
//!
//! ```text
//! source.rs ---- multicast, or a card in monitor mode (air/) ----> neighbour.rs
//!     |                                                               |  ledger.rs: for whom it has carried how much
//!     | virtual socket (link.rs)                                      | virtual socket
//!     +-----------------------> destination/ <------------------------+
//!                                   store.rs: the file, and a journal of what is stored
//! ```
//!
//! Chunks are sealed by a key that only source and destination know (seal.rs). Neighbours get frames that carry the right authenticator, sizes, and who
//! the two are.

mod air;
mod away;
mod budget;
mod destination;
mod ledger;
mod link;
mod neighbour;
mod seal;
mod silence;
mod source;
mod store;
mod window;

pub use air::{AirError, AirRates};
pub use destination::{AcceptEvent, AcceptOptions, accept};
pub use ledger::{Ledger, LedgerEntry};
pub use neighbour::{ShareError, ShareEvent, ShareOptions, ShareSummary, Trust, share};
pub use silence::Silence;
pub use source::{UploadError, UploadEvent, UploadOptions, UploadShares, Uploaded, upload};
pub use store::StoreError;

use std::time::Duration;

use units::Timestamp;

/// The first line of a stream of an upload.
pub const UPLOAD: &str = "anabranch upload 1";
/// Bytes of a chunk: sealed, with its header and the headers of UDP and IPv6, a frame fits a packet of 1500 bytes.
const CHUNK_LENGTH: u16 = 1_380;

/// Sleeps until `due`, a moment at least: a machine that has nothing to do may name a time that is past.
async fn timer(now: Timestamp, due: Timestamp) {
    tokio::time::sleep(due.since(now).max(Duration::from_micros(500))).await;
}
