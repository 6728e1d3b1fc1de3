#![no_main]

#[path = "../properties/trace.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::trace(bytes));
