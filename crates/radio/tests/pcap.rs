//! Captures are read by tshark. Skipped where it is not installed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use radio::Rate;
use radio::pcap::{Record, Sent, append, file_header};
use units::Frequency;

/// A null frame with the Retry bit from 02:00:00:00:01:00 to 02:00:00:00:00:00, number 291.
const NULL: [u8; 24] = [0x48, 0x09, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0x30, 0x12];

#[test]
fn tshark_reads_a_capture() {
    let mut capture = file_header().to_vec();
    let heard = Record {
        at: Duration::new(1_700_000_000, 5_000),
        frame: &NULL,
        frequency: Frequency(2_412),
        rate: Some(Rate(11)),
        signal_dbm: Some(-42),
        sent: None,
    };
    let sent = Some(Sent { succeeded: false, attempts: 3 });
    append(&mut capture, &heard);
    append(
        &mut capture,
        &Record { frequency: Frequency(5_180), rate: Some(Rate(108)), signal_dbm: None, sent, ..heard },
    );
    let file = std::env::temp_dir().join(format!("ab-radio-{}.pcap", std::process::id()));
    fs::write(&file, capture).unwrap();
    let fields = [
        "frame.time_epoch",
        "wlan.fc.type_subtype",
        "wlan.fc.retry",
        "wlan.ta",
        "wlan.seq",
        "radiotap.channel.freq",
        "radiotap.datarate",
        "radiotap.dbm_antsignal",
        "radiotap.data_retries",
    ];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=,"]);
    let output = command.args(fields.iter().flat_map(|field| ["-e", field])).output();
    fs::remove_file(&file).unwrap();
    let Ok(output) = output else {
        println!("skipped: tshark is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).replace("True", "1");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines[0], "1700000000.000005000,0x0024,1,02:00:00:00:01:00,291,2412,5.5,-42,");
    assert_eq!(lines[1], "1700000000.000005000,0x0024,1,02:00:00:00:01:00,291,5180,54,,2");
}
