//! A record of a bond whose link is cut, and its picture.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::time::Duration;

use daemon::bond_trace::{Ended, Options, RecordError, load, record};
use trace::{Event, picture};

use crate::bed::{Bed, SERVER_V4};

/// A disk that is full after so many bytes.
struct SmallDisk(usize);

impl io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn a_cut_link_is_recorded_and_drawn() {
    let bed = Bed::new(false);
    let _daemons = bed.connected();
    let path = bed.directory("bond.sqlog");
    let options =
        Options { interval: Duration::from_millis(100), lasts: Some(Duration::from_secs(8)), most: 1 << 20 };
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let mut file = File::create(&path).unwrap();
            record(&bed.client("device"), &mut file, options).unwrap()
        });
        bed.download(SERVER_V4, 60_000_000, || {
            std::thread::sleep(Duration::from_millis(1_500));
            // Either could carry it all: the one that does is cut.
            let received = |name: &str| {
                let networks = bed.status().networks;
                let network = networks.iter().find(|network| network.name == name).unwrap();
                network.paths.iter().map(|path| path.traffic.received.0).sum::<u64>()
            };
            let busy = if received("wan0") > received("wan1") { "lan0" } else { "lan1" };
            bed.gateway.set_up(busy, false).unwrap();
        });
        for link in ["lan0", "lan1"] {
            bed.gateway.set_up(link, true).unwrap();
        }
        assert_eq!(recorder.join().unwrap(), Ended::TimeIsOver);
    });
    let size = fs::metadata(&path).unwrap().len();
    assert!((5_000..400_000).contains(&size), "{size} bytes for 8 s");
    let recording = load(&path).unwrap();
    assert!(!recording.is_cut_off && recording.unknown == 0, "{recording:?}");
    let received = |name: &str| {
        let of_path = recording
            .records
            .iter()
            .filter(|record| record.tuple.as_deref().is_some_and(|path| path.starts_with(name)));
        let sums = of_path.filter_map(|record| match &record.event {
            Event::Path(figures) => Some(figures.received_bytes),
            _ => None,
        });
        sums.max().unwrap_or(0)
    };
    assert!(
        received("wan0#") > 1_000_000 && received("wan1#") > 1_000_000,
        "{} {}",
        received("wan0#"),
        received("wan1#")
    );
    let happened = |word: &str| {
        recording
            .records
            .iter()
            .any(|record| matches!(&record.event, Event::Happened(happening) if happening.kind == word))
    };
    assert!(happened("network-down") || happened("path-suspect") || happened("path-down"), "the cut is told");
    let was_ill =
        |record: &trace::Record| matches!(&record.event, Event::Path(figures) if figures.health != "good");
    assert!(recording.records.iter().any(was_ill), "the path's state is told");
    let svg = picture(&recording);
    assert!(svg.contains(">wan0#") && svg.contains(">wan1#"), "{svg}");
    if let Some(kept) = std::env::var_os("ANABRANCH_TEST_PICTURE") {
        fs::write(kept, svg).unwrap();
    }
    // A bound and a full disk end the record, and the bond goes on.
    let short = Options { most: 2_000, lasts: None, ..options };
    let mut bytes = Vec::new();
    assert_eq!(record(&bed.client("device"), &mut bytes, short).unwrap(), Ended::IsFull);
    assert!(bytes.len() <= 2_000);
    let full = record(&bed.client("device"), &mut SmallDisk(2_000), Options { lasts: None, ..options });
    assert!(matches!(full, Err(RecordError::Write(_))), "{full:?}");
    let went_on = Cell::new(false);
    bed.download(SERVER_V4, 1_000_000, || went_on.set(true));
    assert!(went_on.get());
}
