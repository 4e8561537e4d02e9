//! A record as attributes: what DynamoDB stores, without DynamoDB's types.

use std::collections::BTreeMap;

/// An attribute of the ledger table. The names are those of the design, in the table and in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// Partition key, `{source}#{event_id}`.
    Pk,
    /// See [`crate::record::State`].
    State,
    /// Catalogue name of the provider.
    Provider,
    /// The source, also in the partition key.
    Source,
    /// The event id, also in the partition key.
    EventId,
    /// The provider's word for what happened.
    EventType,
    /// What it happened to.
    ObjectId,
    /// When it happened by the provider's clock, ms.
    OccurredAt,
    /// The delivery that claimed the event.
    ClaimId,
    /// When it was claimed, ms.
    ReceivedAt,
    /// The bytes as received, encoded as `payload_codec` says.
    Payload,
    /// Where the encoded bytes lie, if not here.
    PayloadRef,
    /// How the payload is encoded.
    PayloadCodec,
    /// SHA-256 of the bytes as received.
    PayloadSha256,
    /// SHA-256 of a later delivery whose payload differed.
    PayloadMismatch,
    /// Media type of the payload.
    ContentType,
    /// Kept headers, name to value.
    Headers,
    /// The fence.
    Attempt,
    /// The attempt after which the record parks.
    AttemptLimit,
    /// Who holds, or last held, the lease.
    LeaseOwner,
    /// Until when, ms.
    LeaseUntil,
    /// Earliest next lease after a release, ms.
    NotBefore,
    /// The journal, step name to entry.
    Steps,
    /// The last error, for people.
    LastError,
    /// How often the record was enqueued again.
    Requeues,
    /// Who replayed it, when and why.
    Replays,
    /// Partition key of the `open-by-due` index.
    QueueKey,
    /// Sort key of the `open-by-due` index, ms.
    DueAt,
    /// When it was closed, ms.
    CompletedAt,
    /// TTL, seconds. On closed records only.
    ExpiresAt,
}

impl Attribute {
    /// Every attribute.
    pub const ALL: [Self; 30] = [
        Self::Pk,
        Self::State,
        Self::Provider,
        Self::Source,
        Self::EventId,
        Self::EventType,
        Self::ObjectId,
        Self::OccurredAt,
        Self::ClaimId,
        Self::ReceivedAt,
        Self::Payload,
        Self::PayloadRef,
        Self::PayloadCodec,
        Self::PayloadSha256,
        Self::PayloadMismatch,
        Self::ContentType,
        Self::Headers,
        Self::Attempt,
        Self::AttemptLimit,
        Self::LeaseOwner,
        Self::LeaseUntil,
        Self::NotBefore,
        Self::Steps,
        Self::LastError,
        Self::Requeues,
        Self::Replays,
        Self::QueueKey,
        Self::DueAt,
        Self::CompletedAt,
        Self::ExpiresAt,
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pk => "pk",
            Self::State => "state",
            Self::Provider => "provider",
            Self::Source => "source",
            Self::EventId => "event_id",
            Self::EventType => "event_type",
            Self::ObjectId => "object_id",
            Self::OccurredAt => "occurred_at",
            Self::ClaimId => "claim_id",
            Self::ReceivedAt => "received_at",
            Self::Payload => "payload",
            Self::PayloadRef => "payload_ref",
            Self::PayloadCodec => "payload_codec",
            Self::PayloadSha256 => "payload_sha256",
            Self::PayloadMismatch => "payload_mismatch",
            Self::ContentType => "content_type",
            Self::Headers => "headers",
            Self::Attempt => "attempt",
            Self::AttemptLimit => "attempt_limit",
            Self::LeaseOwner => "lease_owner",
            Self::LeaseUntil => "lease_until",
            Self::NotBefore => "not_before",
            Self::Steps => "steps",
            Self::LastError => "last_error",
            Self::Requeues => "requeues",
            Self::Replays => "replays",
            Self::QueueKey => "queue_key",
            Self::DueAt => "due_at",
            Self::CompletedAt => "completed_at",
            Self::ExpiresAt => "expires_at",
        }
    }

    /// The attribute of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attribute| attribute.name() == name)
    }
}

/// The sparse index over records that are not closed: partition `queue_key`, sort `due_at`.
pub const OPEN_BY_DUE: &str = "open-by-due";

/// An attribute's value. Numbers are whole: nothing in a record has a fraction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Named values.
    Map(BTreeMap<String, Value>),
    /// Values in order.
    List(Vec<Value>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// A record's attributes.
pub type Item = BTreeMap<Attribute, Value>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_lead_back() {
        for attribute in Attribute::ALL {
            assert_eq!(Attribute::named(attribute.name()), Some(attribute));
        }
    }
}
