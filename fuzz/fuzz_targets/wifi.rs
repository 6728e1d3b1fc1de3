#![no_main]

#[path = "../properties/wifi.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::wifi(bytes));
