//! How signatures are written in headers: nothing is read into them that was not signed.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    providers_fuzz::signature_header(input);
});
