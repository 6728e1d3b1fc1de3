//! Wi-Fi cards as this program uses them when one radio is in many networks.
//!
//! # From a card to frames
//! 1. [`Radios::list`] says what each card can do, [`BackEnd::choose`] who is to keep its networks: the kernel's own stations, or
//!    the station of the crate `radio` on a [`RadioCard`].
//! 2. [`take_over`] lists the [`Change`](crate::journal::Change)s that make a card ours: NetworkManager lets it go, its interfaces
//!    are switched off, an active monitor interface acknowledges frames to an address of ours. A
//!    [`Journal`](crate::journal::Journal) makes them and takes them back.
//! 3. [`RadioCard::open`] uses the monitor interface: [`tune`](RadioCard::tune), [`send`](RadioCard::send),
//!    [`receive`](RadioCard::receive), all without blocking but for the channel's change, with a descriptor to poll.
//! 4. Each network is a [`Tap`](crate::tap::Tap), whose carrier says whether the network is there.
//! 5. Where the kernel keeps the networks, a [`Listener`] hears what they hear.
//!
//! ```no_run
//! use linux::journal::Journal;
//! use linux::radio::{BackEnd, RadioCard, Radios, take_over};
//! use radio::{Rate, Transmission};
//! use radio::radiotap::Captured;
//! use units::Frequency;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let card = Radios::open()?.find("wlan0")?.ok_or("no such card")?;
//! println!("{}", BackEnd::choose(&card).reason);
//! let address = card.address.ok_or("no address")?;
//! let mut journal = Journal::open("/var/lib/anabranch".as_ref())?;
//! journal.apply(&take_over(&card, "radio0", &[address]))?;
//!
//! let mut radio = RadioCard::open("radio0")?;
//! radio.tune(Frequency(2412))?;
//! let frame = vec![0xd4, 0, 0, 0, 2, 0, 0, 0, 1, 0];
//! radio.send(&Transmission { frame, rate: Rate(12), attempts: 4 })?;
//! while radio.receive(|captured| match captured {
//!     Captured::Heard(heard) => println!("{} bytes heard", heard.frame.len()),
//!     Captured::Outcome(outcome) => println!("acknowledged: {}", outcome.acknowledged),
//! })? > 0 {}
//! drop(radio);
//! journal.restore()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What bites
//! - A monitor interface that acknowledges is needed (`NL80211_FEATURE_ACTIVE_MONITOR`), or access points give up on us.
//! - The card changes its channel only while no other interface of it is on ([`TuneError::Busy`]). After that, and after rfkill or
//!   another program switched the monitor interface off ([`TransferError::Off`]), [`RadioCard::reclaim`] takes the radio back.
//! - On channels where nobody may begin to send (no-IR) or radar has priority, the kernel drops our frames without a word;
//!   [`RadioCard::send`] says so instead.

mod addresses;
mod back_end;
mod capabilities;
mod card;
mod control;
mod description;
mod kernel_scan;
mod listener;
mod monitor_socket;
mod takeover;

pub use crate::rfkill::Block;
pub use addresses::further_addresses;
pub use back_end::{BackEnd, Choice};
pub use capabilities::{Band, Channel, Combination, Country, InterfaceLimit, Radio, RadioNumber};
pub use card::{OpenError, RadioCard, TransferError, TuneError};
pub use control::Radios;
pub use kernel_scan::{ScanError, kernel_scan};
pub use listener::{ListenError, Listener};
pub use takeover::{station_address, take_over};
