//! Provider files: safe or refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    providers_fuzz::file(&String::from_utf8_lossy(input));
});
