//! Requests that are answered without a signature: the answer is of no use for anything else.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    providers_fuzz::greeting(input);
});
