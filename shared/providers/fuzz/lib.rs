//! What the fuzz targets judge by: the same as the tests on the stable toolchain, from the same
//! files.
//!
//! ```text
//! cargo install --locked cargo-fuzz
//! cd shared/providers
//! cargo +nightly fuzz run delivery fuzz/corpus/delivery fuzz/seeds -- -dict=fuzz/words.dict
//! ```
//!
//! The targets are `delivery`, `signature_header`, `identification` and `greeting`, which begin
//! with `fuzz/seeds`, and `file`, which begins with `catalogue`. What one finds goes into the seeds
//! or, in words, into a test; the corpus that it gathers stays out of the repository.

#[path = "../tests/it/home.rs"]
mod home;
#[allow(dead_code, reason = "the tests make the seeds")]
#[path = "../tests/it/judge.rs"]
mod judge;

pub use judge::{delivery, file, greeting, identification, signature_header};
