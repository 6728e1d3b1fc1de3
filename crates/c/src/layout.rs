//! The header says the same as this crate: structures, numbers, functions.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

use crate::arguments::CConnectOptions;
use crate::endpoint::COptions;
use crate::events::CEvent;
use crate::outcome;
use crate::stream::CStanding;

const HEADER: &str = include_str!("../include/anabranch.h");
const SOURCES: [&str; 6] = [
    include_str!("datagrams.rs"),
    include_str!("endpoint.rs"),
    include_str!("events.rs"),
    include_str!("keys.rs"),
    include_str!("outcome.rs"),
    include_str!("stream.rs"),
];

macro_rules! tell {
    ($into:ident, $name:literal, $kind:ident, $($member:ident),*) => {
        writeln!($into, concat!($name, " {}"), size_of::<$kind>()).unwrap();
        $(writeln!($into, concat!($name, ".", stringify!($member), " {}"), offset_of!($kind, $member)).unwrap();)*
    };
}

#[test]
fn structures_have_the_layout_of_the_header() {
    let mut ours = String::new();
    tell!(
        ours,
        "anabranch_options",
        COptions,
        private_key,
        name,
        adapters,
        admitted_keys,
        admitted_count,
        patience,
        port,
        admission,
        spread
    );
    tell!(ours, "anabranch_connect_options", CConnectOptions, deadline, wish);
    tell!(ours, "anabranch_standing", CStanding, round_trip, bandwidth, paths, adapter);
    tell!(ours, "anabranch_event", CEvent, kind, flag, peer, adapter, from);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("layout");
    let root = env!("CARGO_MANIFEST_DIR");
    let made = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg(format!("-I{root}/include"))
        .arg(format!("{root}/tests/layout.c"))
        .status()
        .unwrap();
    assert!(made.success());
    let theirs = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8(theirs.stdout).unwrap(), ours);
}

#[test]
fn numbers_are_those_of_the_header() {
    for (name, number) in [
        ("OK", outcome::OK),
        ("INVALID", outcome::INVALID),
        ("SYSTEM", outcome::SYSTEM),
        ("TIMED_OUT", outcome::TIMED_OUT),
        ("NO_ADDRESS", outcome::NO_ADDRESS),
        ("NOT_ADMITTED", outcome::NOT_ADMITTED),
        ("REFUSED", outcome::REFUSED),
        ("PROTOCOL", outcome::PROTOCOL),
        ("RESET", outcome::RESET),
        ("CLOSED", outcome::CLOSED),
    ] {
        assert!(HEADER.contains(&format!("ANABRANCH_{name} = {number}")), "{name}");
    }
}

#[test]
fn each_function_of_the_header_is_there_and_no_other() {
    let names_before = |text: &str, mark: char| -> BTreeSet<String> {
        let words =
            text.split(|character: char| !character.is_ascii_alphanumeric() && !"_(".contains(character));
        let calls = words.filter_map(|word| word.split_once(mark).map(|(name, _)| name.to_owned()));
        calls.filter(|name| name.starts_with("anabranch_")).collect()
    };
    let declared: String = HEADER
        .lines()
        .filter(|line| line.ends_with(");") || line.ends_with(','))
        .collect::<Vec<_>>()
        .join("\n");
    let defined: BTreeSet<String> = SOURCES
        .iter()
        .flat_map(|source| source.split("extern \"C\" fn ").skip(1))
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(names_before(&declared, '('), defined);
}
