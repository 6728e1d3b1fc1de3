//! The process that keeps root, and what the other may ask of it.
//!
//! ```text
//! start (root): lock, journal, interface --fork--> worker: packets, control, without root
//!                                        |            |  asks: capture, let in, lead out, run, restore
//!                                        +-- root: carries out, journals, waits; undoes all when the worker is gone
//! ```
//! The worker parses what strangers send, so it may only ask for the few things below; none of them can be turned
//! into writing another file or running another program than the one that is installed in this one's place (which reads the
//! configuration again, as any start does).

mod channel;
mod process;
mod start;

pub use channel::{Answer, MAXIMUM_INODES, Machine, Request, Root, SocketProgram, serve};
use process::take_lock;
pub use process::{SuperviseError, prepare, supervise};
pub use start::{StartError, begin, go_on, restore, undo};
