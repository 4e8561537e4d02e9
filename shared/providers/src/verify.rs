//! Whether a delivery is authentic.
//!
//! A provider has one or several schemes, and one of them has to hold. Within a scheme the
//! signature is checked first and the signed time after it, so that the answer about the time is
//! about a time the provider wrote.
//!
//! Refused: no signature (there is no way to let one pass), a version that does not count, a time
//! outside the tolerance in either direction.

mod header;
mod jwt;
mod method;
mod scheme;
mod sign;
mod template;

use std::time::Duration;

use domain::{
    delivery::{Delivery, Headers},
    time::Timestamp,
};
use ring::hmac;

pub(crate) use header::Grammar;
pub(crate) use method::{Algorithm, Method, same};
pub use scheme::Coverage;
pub(crate) use scheme::{
    BodyDigest, Fields, Scheme, SignaturePlace, SignedPart, SignedPlace, Time, TimePlace,
};
pub(crate) use template::{Segment, SignedHeaders, Spelling};

use crate::{
    Key,
    endpoint::Endpoint,
    reply::Handshake,
    select::{Lookups, Reading},
};

/// A delivery whose signature held. Only [`crate::Provider::verify`] makes one.
#[derive(Clone)]
pub struct VerifiedDelivery {
    pub(crate) delivery: Delivery,
    signed: Signed,
    received: Timestamp,
    /// For a handshake that wants something signed.
    pub(crate) hmac: Option<hmac::Key>,
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

    /// Looks up in it what `lookups` are for.
    pub(crate) fn read<T>(&self, lookups: &Lookups, look: impl FnOnce(&Reading<'_>) -> T) -> T {
        let body = lookups.open(&self.delivery);
        look(&lookups.read(&self.delivery, &self.signed.parts, self.received, &body))
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
    /// No signature.
    #[error("no signature: {place} is missing")]
    NoSignature {
        /// Where it was looked for.
        place: String,
    },
    /// A signature that cannot be read.
    #[error("the signature in {place} cannot be read: {problem}")]
    MalformedSignature {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Readable signatures, but none of a version that counts.
    #[error("{place} holds no signature of version {version}")]
    UnknownVersion {
        /// Where they are.
        place: String,
        /// The version that counts.
        version: String,
    },
    /// Signatures, and none of them matches any secret.
    #[error("no signature matches: another secret, or the body was changed on its way")]
    BadSignature,
    /// The scheme signs a value that is not there.
    #[error("{place}, which is part of what is signed, is missing")]
    NoSignedPart {
        /// Where it was looked for.
        place: String,
    },
    /// A signed value that could be cut from the signed text in two ways.
    #[error("{place}, which is part of what is signed, could be cut in two ways")]
    AmbiguousSignedPart {
        /// Where it is.
        place: String,
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
    /// Well signed, and what is signed is the digest of another body.
    #[error("the signed digest is not that of the body: the body was changed on its way")]
    OtherBody,
    /// Well signed, for another request.
    #[error("what is signed as {claim} is not so")]
    OtherRequest {
        /// The claim.
        claim: String,
    },
    /// Well signed, by the provider, for somebody else.
    #[error("{place} is another than the source is for")]
    OtherSender {
        /// Where it is.
        place: String,
    },
    /// The provider signs the URL that it calls.
    #[error("the provider signs its URL, and the source has no public_url")]
    NoUrl,
    /// The provider signs a value that it was told, or tells.
    #[error("the provider signs {name}, and the source has no such setting")]
    NoSetting {
        /// The setting.
        name: String,
    },
    /// Signed by a certificate, or a key, that holds at another time.
    #[error("the certificate, or the key, is not valid at this time")]
    ExpiredCertificate,
    /// The key is to be fetched, and the delivery does not say which, or names another address than
    /// the provider's keys have.
    #[error("the key is to be fetched, and {place} names none of the provider's")]
    NoKeyNamed {
        /// Where it was looked for.
        place: String,
    },
    /// Where the delivery says that its key is, there is none.
    #[error("the provider publishes no key of the name, or at the address, that is given")]
    UnknownKey,
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
            Self::OtherBody => "other_body",
            Self::OtherRequest { .. } => "other_request",
            Self::OtherSender { .. } => "other_sender",
            Self::NoUrl => "no_url",
            Self::NoSetting { .. } => "no_setting",
            Self::ExpiredCertificate => "expired_certificate",
            Self::NoKeyNamed { .. } => "no_key_named",
            Self::UnknownKey => "unknown_key",
            Self::NoKey => "no_key",
        }
    }

    /// How far the delivery got. Of several schemes that fail, the one that got farthest tells a
    /// person what is wrong.
    const fn progress(&self) -> u8 {
        match self {
            Self::NoKey | Self::NoKeyNamed { .. } | Self::UnknownKey => 0,
            Self::NoSignature { .. } => 1,
            Self::UnknownVersion { .. } => 2,
            Self::NoSignedPart { .. } | Self::NoTimestamp { .. } => 3,
            Self::MalformedSignature { .. }
            | Self::AmbiguousSignedPart { .. }
            | Self::NoUrl
            | Self::NoSetting { .. } => 4,
            Self::BadSignature | Self::ExpiredCertificate => 5,
            Self::MalformedTimestamp { .. } => 6,
            Self::StaleTimestamp { .. }
            | Self::FutureTimestamp { .. }
            | Self::OtherBody
            | Self::OtherRequest { .. }
            | Self::OtherSender { .. } => 7,
        }
    }
}

/// What a delivery is verified against.
pub(crate) struct Against<'a> {
    pub(crate) schemes: &'a [Scheme],
    pub(crate) lookups: &'a Lookups,
    pub(crate) endpoint: &'a Endpoint,
    /// What they sign for anybody is no delivery.
    pub(crate) handshakes: &'a [Handshake],
    pub(crate) keys: &'a [Key],
    pub(crate) now: Timestamp,
    /// In place of the scheme's own.
    pub(crate) tolerance: Option<Duration>,
}

/// Verifies by any of the schemes, with any of the keys.
pub(crate) fn verify(
    against: &Against<'_>,
    delivery: Delivery,
) -> Result<VerifiedDelivery, Rejected> {
    match signed(against, &delivery) {
        Ok(signed) => {
            let hmac = against.keys.iter().find_map(Key::shared).cloned();
            Ok(VerifiedDelivery { delivery, signed, received: against.now, hmac })
        }
        Err(rejection) => Err(Rejected { rejection, delivery: Box::new(delivery) }),
    }
}

fn signed(against: &Against<'_>, delivery: &Delivery) -> Result<Signed, Rejection> {
    let Against { schemes, lookups, .. } = against;
    // A body that no signature needs to be read in stays closed until one has held.
    let unread = Lookups::default();
    let reads = schemes.iter().any(Scheme::reads_body);
    let lookups = if reads { lookups } else { &unread };
    let body = lookups.open(delivery);
    let reading = lookups.read(delivery, &[], against.now, &body);
    let mut rejection = Rejection::NoKey;
    for (index, scheme) in schemes.iter().enumerate() {
        let keys: Vec<_> = against.keys.iter().filter_map(|key| key.material(index)).collect();
        if keys.is_empty() {
            continue;
        }
        match scheme.check(against, delivery, &reading, &keys) {
            Ok(signed) => return Ok(signed),
            Err(other) if other.progress() > rejection.progress() => rejection = other,
            Err(_) => {}
        }
    }
    Err(rejection)
}
