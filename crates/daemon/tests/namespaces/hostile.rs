//! A user who kills, damages and floods.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::bed::{Bed, SERVER_V4};
use crate::scenarios::snapshot;

pub fn a_start_killed_at_any_stage_leaves_nothing() {
    let bed = Bed::new(false);
    bed.write_config("device", "[device]\ndns = \"off\"\nkill_switch = true\n");
    let before = snapshot(&bed.device);
    let (_gateway, device) = bed.connected();
    bed.client("device").down().unwrap();
    assert!(device.wait());
    for millis in [2, 10, 20, 35, 50, 75, 110, 160, 250, 400] {
        let mut child = bed.command("device").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let device = bed.start("device");
    bed.wait_until_up();
    let again = bed.start_in_vain("device");
    assert!(again.contains("a daemon is already running"), "{again}");
    bed.download(SERVER_V4, 300_000, || {});
    bed.client("device").down().unwrap();
    assert!(device.wait());
    assert_eq!(snapshot(&bed.device), before);
}

pub fn damaged_state_is_named_and_kept() {
    let bed = Bed::new(false);
    let (gateway, device) = bed.connected();
    drop((gateway, device));
    for (role, name, words) in [
        ("device", "undo.json", "undo.json cannot be understood"),
        ("device", "key", "is damaged; put back a copy"),
        ("gateway", "gateway.sqlite", "gateway.sqlite is damaged: put back a copy"),
        ("gateway", "key", "is damaged; put back a copy"),
    ] {
        let path = bed.directory(role).join(name);
        let whole = fs::read(&path).ok();
        for damaged in [&b"{\"undo\""[..], &[0xff; 5_000]] {
            fs::write(&path, damaged).unwrap();
            let said = bed.start_in_vain(role);
            assert!(said.contains(words), "{role}, {name}: {said}");
            assert_eq!(fs::read(&path).unwrap(), damaged, "what somebody may want to mend was written over");
        }
        match whole {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    let daemons = (bed.start("gateway"), bed.start("device"));
    bed.wait_until_up();
    drop(daemons);
}

pub fn nonsense_on_the_control_socket_harms_nothing() {
    let bed = Bed::new(false);
    let _daemons = bed.connected();
    for role in ["gateway", "device"] {
        let socket = bed.directory(role).join("control.sock");
        let long = [&b"GET /"[..], &[b'a'; 200_000], b" HTTP/1.1\r\n\r\n"].concat();
        let endless = [
            &b"PUT /v1/networks/x HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n"[..],
            &[b'{'; 100_000],
        ];
        for bytes in [
            &long[..],
            &endless.concat(),
            &[b'A'; 3_000_000],
            &[0; 1_000],
            b"PUT /v1/networks/%00%ff HTTP/1.1\r\n\r\n",
        ] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
            // It may hang up in the middle, or wait for more.
            drop(stream.write_all(bytes));
            drop(stream.read(&mut [0; 100]));
        }
        let idle: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        bed.client(role).status().unwrap();
        drop(idle);
    }
    bed.download(SERVER_V4, 300_000, || {});
}
