#![no_main]

#[path = "../properties/radiotap.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::radiotap(bytes));
