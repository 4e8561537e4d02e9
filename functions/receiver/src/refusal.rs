//! Why a delivery is refused, and what its sender gets to hear.

use domain::limits;
use dynamo::payload::TooLarge;
use providers::{Rejection, Reply, Unidentifiable};

/// Why a delivery is refused. Nothing has been written for any of these.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A path that names no configured source.
    #[error("no such source; deliveries go to POST /webhooks/SOURCE of a configured source")]
    UnknownSource,
    /// Not a POST.
    #[error("method {0}; a delivery is a POST")]
    WrongMethod(String),
    /// Over the bound.
    #[error("a body of {bytes} bytes, {} at most", limits::MAX_BODY_BYTES)]
    BodyTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Over the bound even compressed.
    #[error(transparent)]
    PayloadTooLarge(#[from] TooLarge),
    /// Over the bound.
    #[error("headers of {bytes} bytes, {} at most", limits::MAX_HEADER_BYTES)]
    HeadersTooLarge {
        /// Their size.
        bytes: usize,
    },
    /// The gateway said base64, and it is none.
    #[error("the body is marked as base64 and is none")]
    MalformedBase64,
    /// Somebody asks whether we are who we say, and is not who would ask so.
    #[error("a handshake with a wrong token, or with a challenge that its provider does not send")]
    Handshake(Reply),
    /// Not authentic, or too old.
    #[error(transparent)]
    Unverified(#[from] Rejection),
    /// The source's secrets cannot be had: nothing can be said about the signature.
    #[error("the source's secrets cannot be had")]
    NoSecrets,
    /// Authentic, and what it wants to be called by did not answer as it should.
    #[error("the subscription could not be confirmed; send the request again")]
    NotConfirmed,
    /// Authentic, and without an event id where the catalogue says.
    #[error(transparent)]
    Unidentifiable(Unidentifiable),
    /// More events than any known provider sends at once.
    #[error(transparent)]
    TooManyEvents(Unidentifiable),
}

impl From<Unidentifiable> for Refusal {
    /// A list that is too long is no mistake of the catalogue.
    fn from(found: Unidentifiable) -> Self {
        if matches!(found, Unidentifiable::TooMany { .. }) {
            Self::TooManyEvents(found)
        } else {
            Self::Unidentifiable(found)
        }
    }
}

impl Refusal {
    /// The status answered.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::MalformedBase64 => 400,
            Self::Handshake(reply) => reply.status,
            Self::Unverified(_) => 401,
            Self::UnknownSource => 404,
            Self::WrongMethod(_) => 405,
            Self::BodyTooLarge { .. } | Self::PayloadTooLarge(_) | Self::TooManyEvents(_) => 413,
            Self::Unidentifiable(_) => 422,
            Self::HeadersTooLarge { .. } => 431,
            Self::NoSecrets | Self::NotConfirmed => 503,
        }
    }

    /// The name in logs and metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::MalformedBase64 => "malformed_base64",
            Self::Handshake(_) => "handshake_refused",
            Self::Unverified(rejection) => rejection.reason(),
            Self::UnknownSource => "unknown_source",
            Self::WrongMethod(_) => "wrong_method",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::PayloadTooLarge(_) => "payload_too_large",
            Self::TooManyEvents(_) => "too_many_events",
            Self::Unidentifiable(_) => "unidentifiable",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::NoSecrets => "no_secrets",
            Self::NotConfirmed => "not_confirmed",
        }
    }

    /// What the sender reads. Of an unverified delivery only that: which part failed would help
    /// whoever is guessing, and stands in the log.
    #[must_use]
    pub fn body(&self) -> String {
        match self {
            Self::Handshake(reply) => reply.body.clone(),
            Self::Unverified(_) => "the signature does not verify".to_owned(),
            Self::WrongMethod(_) => "a delivery is a POST".to_owned(),
            Self::MalformedBase64
            | Self::UnknownSource
            | Self::BodyTooLarge { .. }
            | Self::PayloadTooLarge(_)
            | Self::TooManyEvents(_)
            | Self::Unidentifiable(_)
            | Self::HeadersTooLarge { .. }
            | Self::NoSecrets
            | Self::NotConfirmed => self.to_string(),
        }
    }
}
