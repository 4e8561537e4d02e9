//! How payload bytes lie on a record: compressed, where that gains something.
//!
//! With a record's other attributes a typical event stays within few write units. A codec once
//! written stays readable for good.

use domain::{limits, record::StoredPayload};

/// Encodes `bytes`.
#[must_use]
pub fn encode(bytes: &[u8]) -> StoredPayload {
    let compressed = zstd::bulk::compress(bytes, LEVEL).ok().filter(|c| c.len() < bytes.len());
    match compressed {
        Some(compressed) => StoredPayload { codec: ZSTD.to_owned(), bytes: compressed },
        None => StoredPayload { codec: PLAIN.to_owned(), bytes: bytes.to_vec() },
    }
}

/// Whether an encoded payload fits on a record.
///
/// # Errors
/// If it does not.
pub const fn fits(stored: &StoredPayload) -> Result<(), TooLarge> {
    let size = stored.bytes.len();
    if size > limits::MAX_INLINE_PAYLOAD_BYTES { Err(TooLarge { size }) } else { Ok(()) }
}

/// The bytes as received.
///
/// # Errors
/// If the codec is unknown to this version, or the bytes are damaged.
pub fn decode(stored: &StoredPayload) -> Result<Vec<u8>, Undecodable> {
    match stored.codec.as_str() {
        PLAIN => Ok(stored.bytes.clone()),
        // Bounded: what was received was no larger.
        ZSTD => zstd::bulk::decompress(&stored.bytes, limits::MAX_BODY_BYTES)
            .map_err(|_| Undecodable::Damaged),
        codec => Err(Undecodable::UnknownCodec(codec.to_owned())),
    }
}

/// A payload that does not fit on a record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the payload has {size} bytes after compression, {} at most without a bucket for payloads \
     (HOOKONCE_PAYLOADS_BUCKET)",
    limits::MAX_INLINE_PAYLOAD_BYTES
)]
pub struct TooLarge {
    size: usize,
}

/// A stored payload that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Written by a later version.
    #[error("payload codec `{0}` is unknown to this version")]
    UnknownCodec(String),
    /// Not what was written.
    #[error("the stored payload is damaged")]
    Damaged,
}

const ZSTD: &str = "zstd";
const PLAIN: &str = "none";
/// Level 3 takes some ten microseconds for a typical event; level 19 gains 5 % for a hundredfold.
const LEVEL: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_exactly_and_the_short_stay_plain() {
        let long = br#"{"id":"evt_1","object":"event"}"#.repeat(40);
        for bytes in [b"".as_slice(), b"{}", &long, &[0xff, 0x00, 0xfe]] {
            let stored = encode(bytes);
            assert_eq!(decode(&stored).as_deref(), Ok(bytes));
            assert!(stored.bytes.len() <= bytes.len());
        }
        assert_eq!(encode(b"{}").codec, "none");
        assert_eq!(encode(&long).codec, "zstd");
    }

    #[test]
    fn what_cannot_be_read_is_said_so() {
        let damaged = StoredPayload { codec: "zstd".into(), bytes: vec![1, 2, 3] };
        assert_eq!(decode(&damaged), Err(Undecodable::Damaged));
        let later = StoredPayload { codec: "zstd+d7".into(), bytes: vec![] };
        assert_eq!(decode(&later), Err(Undecodable::UnknownCodec("zstd+d7".into())));
    }
}
