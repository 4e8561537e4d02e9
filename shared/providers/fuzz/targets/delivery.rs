//! Requests that nobody signed: none is believed.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    providers_fuzz::delivery(input);
});
