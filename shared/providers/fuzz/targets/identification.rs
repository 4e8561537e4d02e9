//! Signed deliveries of any content: identified or refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    providers_fuzz::identification(input);
});
