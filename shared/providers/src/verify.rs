//! Whether a delivery is authentic.
//!
//! A provider has one or several schemes, and one of them has to hold. Within a scheme the
//! signature is checked first and the signed time after it, so that the answer about the time is
//! about a time the provider wrote.
//!
//! Refused: no signature (there is no way to let one pass), a version that does not count, a time
//! outside the tolerance in either direction.

mod header;
mod scheme;

use std::time::Duration;

use domain::{
    delivery::{Delivery, Headers},
    time::Timestamp,
};

pub(crate) use header::Grammar;
pub(crate) use scheme::{Method, Scheme, Segment, Time, TimePlace};

use crate::Key;

/// A delivery whose signature held. Only [`crate::Provider::verify`] makes one.
#[derive(Clone)]
pub struct VerifiedDelivery {
    pub(crate) delivery: Delivery,
    signed: Signed,
}

/// What the scheme that held has signed beside the body.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) at: Option<Timestamp>,
    /// Named parts, as they were signed.
    pub(crate) parts: Vec<(String, String)>,
}

impl VerifiedDelivery {
    /// Headers. Most are outside the signature.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.delivery.headers
    }

    /// The exact bytes that were signed for.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.delivery.body
    }

    /// Raw query string.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.delivery.query
    }

    /// Method, upper case.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.delivery.method
    }

    /// When this attempt was signed, where the scheme signs a time.
    #[must_use]
    pub fn signed_at(&self) -> Option<Timestamp> {
        self.signed.at
    }

    /// A named part, as it was signed. Headers of the same name can have been added since.
    pub(crate) fn signed_part(&self, name: &str) -> Option<&str> {
        let part = self.signed.parts.iter().find(|(known, _)| known == name);
        part.map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for VerifiedDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedDelivery")
            .field("delivery", &self.delivery)
            .field("signed_at", &self.signed.at)
            .finish_non_exhaustive()
    }
}

/// A delivery that did not verify, given back: a receiver may try it once more with fresh secrets.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Why.
    pub rejection: Rejection,
    /// The delivery, as unverified as before.
    pub delivery: Box<Delivery>,
}

/// Why a delivery is not believed. Holds header names and times, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No signature header.
    #[error("no signature: header {header} is missing")]
    NoSignature {
        /// The header looked for, or several.
        header: String,
    },
    /// A signature header that cannot be read.
    #[error("the signature in header {header} cannot be read: {problem}")]
    MalformedSignature {
        /// The header.
        header: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A readable signature header, but none of a version that counts.
    #[error("header {header} holds no signature of version {version}")]
    UnknownVersion {
        /// The header.
        header: String,
        /// The version that counts.
        version: String,
    },
    /// Signatures, and none of them matches any secret.
    #[error("no signature matches: another secret, or the body was changed on its way")]
    BadSignature,
    /// The scheme signs a value that is not there.
    #[error("header {header}, which is part of what is signed, is missing")]
    NoSignedPart {
        /// The header looked for, or several.
        header: String,
    },
    /// A signed value that could be cut from the signed text in two ways.
    #[error("header {header}, which is part of what is signed, could be cut in two ways")]
    AmbiguousSignedPart {
        /// The header.
        header: String,
    },
    /// The scheme signs a time that is not there.
    #[error("no timestamp: {place} is missing")]
    NoTimestamp {
        /// Where it should be.
        place: String,
    },
    /// A signed time that is none.
    #[error("the timestamp in {place} is no time")]
    MalformedTimestamp {
        /// Where it is.
        place: String,
    },
    /// Well signed, too long ago: a replay, or a clock that is off.
    #[error("signed {age:?} ago, {tolerance:?} are tolerated")]
    StaleTimestamp {
        /// How long ago.
        age: Duration,
        /// How long ago is tolerated.
        tolerance: Duration,
    },
    /// Well signed, in the future: a clock that is off.
    #[error("signed {ahead:?} in the future, {tolerance:?} are tolerated")]
    FutureTimestamp {
        /// How far ahead.
        ahead: Duration,
        /// How far ahead is tolerated.
        tolerance: Duration,
    },
    /// No key was given that any scheme of the provider can use.
    #[error("no secret is configured that could verify this provider")]
    NoKey,
}

impl Rejection {
    /// The name in logs and metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoSignature { .. } => "no_signature",
            Self::MalformedSignature { .. } => "malformed_signature",
            Self::UnknownVersion { .. } => "unknown_signature_version",
            Self::BadSignature => "bad_signature",
            Self::NoSignedPart { .. } => "no_signed_part",
            Self::AmbiguousSignedPart { .. } => "ambiguous_signed_part",
            Self::NoTimestamp { .. } => "no_timestamp",
            Self::MalformedTimestamp { .. } => "malformed_timestamp",
            Self::StaleTimestamp { .. } => "stale_timestamp",
            Self::FutureTimestamp { .. } => "future_timestamp",
            Self::NoKey => "no_key",
        }
    }

    /// How far the delivery got. Of several schemes that fail, the one that got farthest tells a
    /// person what is wrong.
    const fn progress(&self) -> u8 {
        match self {
            Self::NoKey => 0,
            Self::NoSignature { .. } => 1,
            Self::UnknownVersion { .. } => 2,
            Self::NoSignedPart { .. } | Self::NoTimestamp { .. } => 3,
            Self::MalformedSignature { .. } | Self::AmbiguousSignedPart { .. } => 4,
            Self::BadSignature => 5,
            Self::MalformedTimestamp { .. } => 6,
            Self::StaleTimestamp { .. } | Self::FutureTimestamp { .. } => 7,
        }
    }
}

/// Verifies by any of `schemes`, with any of `keys`.
pub(crate) fn verify(
    schemes: &[Scheme],
    delivery: Delivery,
    keys: &[Key],
    now: Timestamp,
    tolerance: Option<Duration>,
) -> Result<VerifiedDelivery, Rejected> {
    let mut rejection = Rejection::NoKey;
    for (index, scheme) in schemes.iter().enumerate() {
        let keys: Vec<_> = keys.iter().filter_map(|key| key.material(index)).collect();
        if keys.is_empty() {
            continue;
        }
        match scheme.check(&delivery, &keys, now, tolerance) {
            Ok(signed) => return Ok(VerifiedDelivery { delivery, signed }),
            Err(other) if other.progress() > rejection.progress() => rejection = other,
            Err(_) => {}
        }
    }
    Err(Rejected { rejection, delivery: Box::new(delivery) })
}
