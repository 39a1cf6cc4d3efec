//! See `readers.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quantsmith_fuzz::run("ggml", data));
