//! Reading a record, which anybody may have made.

use thiserror::Error;

use crate::record::{FILE_SCHEMA, NAMES, Record, SEPARATOR};

/// Records of one file.
pub const MOST_RECORDS: usize = 2_000_000;
/// Bytes of one record.
pub const LONGEST_RECORD: usize = 64 << 10;

/// What was recorded, in the order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// Name of the end that recorded.
    pub name: String,
    /// Its records.
    pub records: Vec<Record>,
    /// Records of other programs' schemas, left out.
    pub unknown: usize,
    /// The last record was cut off, and is left out.
    pub is_cut_off: bool,
}

/// Why some bytes are no record of a bond.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It begins otherwise.
    #[error("it is no qlog file of JSON text sequences")]
    NotQlog,
    /// A record makes no sense.
    #[error("record {number} makes no sense: {error}")]
    Record {
        /// Which, from 1; the head is the first.
        number: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A record is longer than any is.
    #[error("record {number} has more than {LONGEST_RECORD} bytes")]
    Long {
        /// Which, from 1.
        number: usize,
    },
    /// A time that is none.
    #[error("record {number} has no sensible time")]
    Time {
        /// Which, from 1.
        number: usize,
    },
    /// There are too many.
    #[error("it has more than {MOST_RECORDS} records")]
    TooMany,
}

/// Reads a whole file.
///
/// # Errors
/// Any [`ReadError`].
pub fn read(bytes: &[u8]) -> Result<Recording, ReadError> {
    let mut texts = bytes.split(|byte| *byte == SEPARATOR).enumerate().skip(1);
    let (_, head) = texts.next().ok_or(ReadError::NotQlog)?;
    let head = bounded(head, 1)?;
    let head: serde_json::Value = serde_json::from_slice(head).map_err(|_| ReadError::NotQlog)?;
    if head["file_schema"] != FILE_SCHEMA {
        return Err(ReadError::NotQlog);
    }
    let name = head["trace"]["vantage_point"]["name"].as_str().unwrap_or_default();
    let mut recording = Recording { name: name.chars().take(64).collect(), ..Recording::default() };
    for (number, text) in texts {
        if number > MOST_RECORDS {
            return Err(ReadError::TooMany);
        }
        let text = bounded(text, number)?;
        match serde_json::from_slice::<Record>(text) {
            Ok(record) if record.time.is_finite() && (0.0..=LATEST).contains(&record.time) => {
                recording.records.push(record);
            }
            Ok(_) => return Err(ReadError::Time { number }),
            // The specification has it that a text without its line feed was cut off.
            Err(error) if error.is_eof() && !text.ends_with(b"\n") => recording.is_cut_off = true,
            Err(_) if is_foreign(text) => recording.unknown += 1,
            Err(error) => return Err(ReadError::Record { number, error }),
        }
    }
    recording.records.sort_by(|one, other| one.time.total_cmp(&other.time));
    Ok(recording)
}

fn bounded(text: &[u8], number: usize) -> Result<&[u8], ReadError> {
    if text.len() > LONGEST_RECORD { Err(ReadError::Long { number }) } else { Ok(text) }
}

/// Whether it is an event of another program, or of a newer one.
fn is_foreign(text: &[u8]) -> bool {
    let event: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let name = event.as_ref().and_then(|event| event["name"].as_str());
    name.is_some_and(|name| !NAMES.contains(&name))
}

/// The year 5138, milliseconds since 1970.
const LATEST: f64 = 1e14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Delivery, Event, Happening, Metrics, PathFigures, Sample, Writer};

    fn sample(sent_bytes: u64) -> Sample {
        let figures = PathFigures {
            health: "good".to_owned(),
            status: "active".to_owned(),
            sent_bytes,
            ..PathFigures::default()
        };
        let metrics =
            Metrics { smoothed_rtt: Some(20.5), congestion_window: Some(14_000), ..Metrics::default() };
        Sample {
            paths: vec![("wan0#1".to_owned(), metrics, figures)],
            delivery: Some(Delivery::default()),
            happened: Vec::new(),
        }
    }

    fn recorded() -> Vec<u8> {
        let mut writer = Writer::new(1 << 20);
        let mut bytes = writer.head("van", true, "0");
        for (time, sent) in [(1_000.0, 1), (1_100.0, 1), (1_200.0, 9)] {
            bytes.extend(writer.sample(time, sample(sent)).unwrap());
        }
        let happening =
            Happening { kind: "path-down".to_owned(), subject: "wan0".to_owned(), text: "gone".to_owned() };
        let happened = Sample { happened: vec![(1_150.0, happening)], ..Sample::default() };
        bytes.extend(writer.sample(1_300.0, happened).unwrap());
        bytes
    }

    #[test]
    fn what_was_written_is_read_in_the_order_of_time_and_once() {
        let recording = read(&recorded()).unwrap();
        assert_eq!((recording.name.as_str(), recording.unknown, recording.is_cut_off), ("van", 0, false));
        let times: Vec<f64> = recording.records.iter().map(|record| record.time).collect();
        assert_eq!(
            times,
            [1_000.0, 1_000.0, 1_000.0, 1_150.0, 1_200.0],
            "what stays the same is not written"
        );
        assert!(
            matches!(&recording.records[3].event, Event::Happened(happening) if happening.kind == "path-down")
        );
        assert_eq!(recording.records[0].tuple.as_deref(), Some("wan0#1"));
    }

    #[test]
    fn a_record_has_qlogs_own_words() {
        let bytes = recorded();
        let texts: Vec<&[u8]> = bytes.split(|byte| *byte == SEPARATOR).skip(1).collect();
        let metrics: serde_json::Value = serde_json::from_slice(texts[1]).unwrap();
        let expected = serde_json::json!({
            "time": 1_000.0, "tuple": "wan0#1", "name": "quic:recovery_metrics_updated",
            "data": { "smoothed_rtt": 20.5, "congestion_window": 14_000 },
        });
        assert_eq!(metrics, expected);
        assert!(texts.iter().all(|text| text.ends_with(b"\n")));
    }

    #[test]
    fn a_writer_stops_at_its_bound() {
        let mut writer = Writer::new(600);
        let head = writer.head("van", true, "0").len() as u64;
        assert!(head < 600);
        let fits = (0..100).take_while(|sent| writer.sample(0.0, sample(*sent)).is_some()).count();
        assert!(fits < 5, "{fits}");
    }

    #[test]
    fn nonsense_is_named_by_its_number_and_what_was_cut_off_is_left_out() {
        let whole = recorded();
        let cut = read(&whole[..whole.len() - 7]).unwrap();
        assert!(cut.is_cut_off);
        assert!(matches!(read(b""), Err(ReadError::NotQlog)));
        assert!(matches!(read(b"{}"), Err(ReadError::NotQlog)));
        assert!(matches!(read(b"\x1e{}\n"), Err(ReadError::NotQlog)));
        let with = |text: &str| read(&[&whole, text.as_bytes()].concat());
        let many = 7;
        let error = with("\x1e{\"name\":\"anabranch:path_updated\",\"time\":1,\"data\":3}\n").unwrap_err();
        assert!(error.to_string().starts_with(&format!("record {many} makes no sense")), "{error}");
        assert!(matches!(
            with(
                "\x1e{\"name\":\"anabranch:happened\",\"time\":-1,\"data\":{\"kind\":\"\",\"text\":\"\"}}\n"
            ),
            Err(ReadError::Time { number: 7 })
        ));
        assert!(matches!(
            with(&format!("\x1e{}", " ".repeat(LONGEST_RECORD + 1))),
            Err(ReadError::Long { number: 7 })
        ));
        assert_eq!(with("\x1e{\"name\":\"quic:packet_sent\",\"time\":1,\"data\":{}}\n").unwrap().unknown, 1);
        // No damage to one byte does more than be an error.
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x15;
            drop(read(&damaged));
        }
    }
}
