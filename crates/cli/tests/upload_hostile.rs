//! Uploads through neighbours where somebody listens and somebody attacks: programs in network namespaces. Needs root, and is left out without.

mod homes;
mod running;

use std::collections::{BTreeMap, HashSet};
use std::fs;

use homes::listener::{Stranger, Tap};
use homes::{Homes, most_memory, wait_until};
use linux::packet_socket::PacketSocket;
use wire::upload::{AirFrame, AirHeader};

/// Nothing of it is in any header.
const PATTERN: &[u8; 64] = b"Here is what only source and destination know, in 64 bytes: 1974";
/// So many bytes in a row are not there by chance.
const STRETCH: usize = 8;

/// Whether a stretch of the pattern is in there.
fn shows_pattern(bytes: &[u8]) -> bool {
    let twice = [&PATTERN[..], PATTERN].concat();
    let stretches: HashSet<&[u8]> = twice.windows(STRETCH).collect();
    bytes.windows(STRETCH).any(|window| stretches.contains(window))
}

#[test]
fn neither_the_air_nor_the_wire_shows_what_is_sent() {
    let Some(homes) = Homes::new(1) else { return };
    // As frames are on a wire: one packet each.
    for home in &homes.homes {
        let mut one = home.command("ip").unwrap();
        assert!(one.args(["link", "set", "wan", "gso_max_segs", "1"]).status().unwrap().success());
    }
    let (stranger, tap) = (Stranger::new(&homes), Tap::new(&homes.far));
    let destination = homes.accept(2);
    let _neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let name = "a name that only the two know.txt";
    let file = homes.file_of(name, PATTERN, 4_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out").join(name)).unwrap() == fs::read(&file).unwrap());
    assert!(homes.ledger(0) > 500_000, "the neighbour has carried {}", homes.ledger(0));
    assert!(shows_pattern(&fs::read(&file).unwrap()[1_399..1_430]), "it would be seen");

    let (air, wire) = (stranger.heard(), tap.passed());
    let bytes = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).sum::<usize>();
    assert!(bytes(&air) > 2_000_000, "{} bytes were heard on the air", bytes(&air));
    assert!(bytes(&wire) > 4_000_000, "{} bytes have passed on the wires", bytes(&wire));
    for frame in air.iter().chain(&wire) {
        assert!(frame.len() < PacketSocket::MAXIMUM_FRAME, "a frame was not seen whole");
        assert!(!shows_pattern(frame), "{}", String::from_utf8_lossy(frame));
        assert!(!frame.windows(name.len()).any(|window| window == name.as_bytes()), "the name is shown");
    }
    // Every 64th chunk has the same contents: that is not to be seen either.
    let mut sealed = BTreeMap::new();
    for frame in &air {
        let AirFrame { header: AirHeader::Chunk(header), sealed: contents, .. } =
            AirFrame::parse(frame).unwrap()
        else {
            panic!("a frame of another kind")
        };
        sealed.insert(header.chunk, contents);
    }
    let different: HashSet<&[u8]> =
        sealed.values().flat_map(|sealed| [&sealed[..16], &sealed[sealed.len() - 16..]]).collect();
    assert_eq!(different.len(), sealed.len() * 2);
}

#[test]
fn replayed_and_bent_frames_cost_neither_the_file_nor_the_neighbour() {
    let Some(homes) = Homes::new(1) else { return };
    let stranger = Stranger::new(&homes);
    let destination = homes.accept(2);
    let mut neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let upload = |name: &str, to: &str| {
        let file = homes.file(name, 12_000_000);
        let sent = homes.upload(&[&file], to);
        assert!(sent.status.success(), "{sent:?}");
        assert!(fs::read(homes.path("out").join(name)).unwrap() == fs::read(&file).unwrap());
        String::from_utf8_lossy(&sent.stdout).into_owned()
    };
    upload("in peace", &destination.links[0]);
    let (carried, memory) = (homes.ledger(0), most_memory(&neighbour));
    assert!(stranger.heard().len() > 1_000, "{} frames were heard", stranger.heard().len());

    let (own, came) = (stranger.heard().len() as u64, homes.came_by_lan(0));
    let attack = stranger.attack();
    let said = upload("attacked", "far");
    let (own, came) = (stranger.heard().len() as u64 - own, homes.came_by_lan(0) - came);
    let attacks = attack.sent();
    drop(attack);
    assert!(attacks > 1_000 && came > own + attacks / 2, "of {attacks} frames and {own} came {came}");
    let (carried_then, memory_then) = (homes.ledger(0) - carried, most_memory(&neighbour));
    assert!(carried_then > 1_000_000, "carried {carried}, then {carried_then}: {said}");
    assert!(memory_then < memory + 6_000_000, "{memory} bytes of memory, then {memory_then}");
    assert_eq!(neighbour.0.try_wait().unwrap(), None, "the neighbour goes on");
    // Nobody has said anything but what is for people.
    let errors = fs::read_to_string(homes.path("errors")).unwrap();
    assert!(!errors.contains("panicked"), "{errors}");
    upload("afterwards", "far");
}
