//! See `readers.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = quantsmith_fuzz::readers::read("importance", data);
});
