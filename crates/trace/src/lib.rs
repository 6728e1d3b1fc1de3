//! PURE. What a bond did over time: the record's format, reading it, and its picture; the SVG elements that other plots share.
//!
//! ```text
//! status of the daemon, ten times a second --> Writer --> JSON text sequence (qlog) --> read --> picture --> SVG
//! ```
//! The files and the clock are the `anabranch trace` command's.
#![forbid(unsafe_code)]

pub mod canvas;
mod picture;
mod read;
mod record;

pub use picture::picture;
pub use read::{LONGEST_RECORD, MOST_RECORDS, ReadError, Recording, read};
pub use record::{Delivery, Event, Happening, Metrics, PathFigures, Record, Sample, Writer};
