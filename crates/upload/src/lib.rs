//! PURE. Upload through the neighbours (`[LINKALIKE] III`): a source, its neighbours and a destination as state machines. No I/O, no clock, no own
//! randomness.
//!
//! ```text
//!           frames for everybody            chunks, reports
//!  Source ----------------------> Neighbour ----------------> Destination
//!    |  ^                           ^    grants, acknowledgements |  |
//!    |  |                           +-----------------------------+  |
//!    |  +------------------------- feedback -------------------------+
//!    +--------------------- chunks, by its own uplink -------------->+
//! ```
//!
//! They know numbers of chunks, not contents. Who owns them reads, seals, opens and stores:
//!
//! | of | call | what the owner does |
//! |---|---|---|
//! | [`Source`] | `poll_broadcast(now)` while the card has room | reads the chunk, seals it, sends the frame at its rate |
//! | | `poll_uplink(now)` while its socket has room | reads and seals the chunk, sends it to the destination |
//! | | `handle_feedback`, `handle_unicast_outcome`, `set_uplink_window` | hands in what the destination and the card say |
//! | [`Neighbour`] | `handle_frame(now, header, sealed)` | checks the frame's authenticator first |
//! | | `poll_transmit(now)` while its socket has room | sends the report or the chunk to the destination |
//! | | `handle_grant`, `set_window`, `handle_reconnected` | hands in what the destination and the socket say |
//! | [`Lender`] | `poll_transmit(now, may_carry)` | one uplink for the [`Neighbour`]s of several transfers |
//! | [`Destination`] | `join`, `leave`, `handle_source_reconnected` | tells of the connections |
//! | | `handle_report`, `poll_grant(now)`, `poll_feedback(now)` | carries messages |
//! | | `wants(chunk)`, then `handle_stored` or `handle_refused` | opens and stores a chunk **before** it says so |
//! | all | `poll_timeout`, `handle_timeout` | time |
//!
//! After any call that takes `now` the owner drains what can be polled, then waits for input or for `poll_timeout`. Connections are reliable and in order
//! (TCP or a stream of a bond); the air is neither.
//!
//! **What counts as delivered** is what the destination has opened and stored, and nothing else. A neighbour that claims what it does not have,
//! falls silent or sends garbage loses its grants after a time and costs that time.
//!
//! **Memory** does not go with the file: [`Settings::ahead`] bounds what is under way, a neighbour's capacity bounds what it keeps, and what is
//! stored is a [`RangeSet`], which the owner keeps and gives to [`Destination::new`] after a restart.
#![forbid(unsafe_code)]

pub mod coding;
mod counting;
mod destination;
mod lender;
mod neighbour;
mod pace;
mod ranges;
mod rates;
mod settings;
mod source;
mod window;

pub use destination::{Arrival, Destination, MemberReport, PeerKey};
pub use lender::Lender;
pub use neighbour::{Lending, Neighbour, Transmit};
pub use ranges::RangeSet;
pub use rates::BitRates;
pub use settings::{Assignment, PaceRule, RateChoice, Settings, Strategy};
pub use source::{Broadcast, Source};
