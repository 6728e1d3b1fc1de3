#![no_main]

#[path = "../properties/wire.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::short_announcement(bytes));
