//! The record of one event, typed: each state owns only its own data.

use std::{collections::BTreeMap, fmt};

use sha2::{Digest as _, Sha256};

use crate::{
    effects::{Journal, StepEntry, StepName, StepState, hex},
    event::{Event, EventKey},
    item::{Attribute, Item, Value},
    limits,
    time::Timestamp,
};

/// What the ledger knows of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which event.
    pub key: EventKey,
    /// Catalogue name of its provider.
    pub provider: String,
    /// The provider's word for what happened.
    pub event_type: Option<String>,
    /// What it happened to.
    pub object_id: Option<String>,
    /// When it happened, by the provider's clock.
    pub occurred_at: Option<Timestamp>,
    /// The delivery that claimed it.
    pub claim_id: ClaimId,
    /// When it was claimed.
    pub received_at: Timestamp,
    /// The payload; `None` once it was dropped on completion.
    pub payload: Option<KeptPayload>,
    /// SHA-256 of the bytes as received.
    pub payload_sha256: [u8; 32],
    /// SHA-256 of a later delivery whose payload differed.
    pub payload_mismatch: Option<Vec<u8>>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Kept headers.
    pub headers: BTreeMap<String, String>,
    /// The fence: how many leases there have been.
    pub attempt: u32,
    /// The attempt after which it parks.
    pub attempt_limit: u32,
    /// Who holds, or last held, the lease.
    pub lease_owner: Option<LeaseOwner>,
    /// The journal.
    pub steps: Journal,
    /// The last error.
    pub last_error: Option<ErrorNote>,
    /// How often it was enqueued again.
    pub requeues: u32,
    /// How often an operator replayed it.
    pub replays: usize,
    /// Where it stands.
    pub state: State,
}

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Claimed, or released: waits for a lease.
    Received {
        /// Earliest next lease.
        not_before: Option<Timestamp>,
        /// When a sweep looks at it.
        due_at: Timestamp,
    },
    /// Leased.
    Processing {
        /// Until when.
        lease_until: Timestamp,
        /// When a sweep looks at it.
        due_at: Timestamp,
    },
    /// Its effects took hold.
    Done(Closure),
    /// Parked: a person decides.
    Failed {
        /// Since when.
        due_at: Timestamp,
    },
    /// A person decided against it.
    Discarded(Closure),
}

/// When a record was closed and when it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closure {
    /// Closed at.
    pub completed_at: Timestamp,
    /// Kept until, to the second.
    pub expires_at: Timestamp,
}

impl State {
    /// Its name in the table, in logs and in metrics.
    #[must_use]
    pub const fn name(&self) -> StateName {
        match self {
            Self::Received { .. } => StateName::Received,
            Self::Processing { .. } => StateName::Processing,
            Self::Done(_) => StateName::Done,
            Self::Failed { .. } => StateName::Failed,
            Self::Discarded(_) => StateName::Discarded,
        }
    }
}

/// A state without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Waits for a lease.
    Received,
    /// Leased.
    Processing,
    /// Its effects took hold.
    Done,
    /// Parked.
    Failed,
    /// Given up by a person.
    Discarded,
}

impl StateName {
    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Discarded => "discarded",
        }
    }

    /// Neither closed nor parked.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Received | Self::Processing)
    }

    /// Done or discarded.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Done | Self::Discarded)
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Our id of one delivery. Unique per HTTP request; tells an own claim from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimId(pub String);

/// Our id of one lease. Unique per lease taken; tells an own write from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseOwner(pub String);

/// A payload as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPayload {
    /// How the bytes are encoded: `zstd`, or `none` where compression gains nothing.
    pub codec: String,
    /// The encoded bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for StoredPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredPayload({}, {} bytes)", self.codec, self.bytes.len())
    }
}

/// A payload as a record keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptPayload {
    /// On the record.
    Inline(StoredPayload),
    /// Elsewhere, as it is too large for a record.
    Elsewhere {
        /// How the bytes there are encoded.
        codec: String,
        /// The key of the object there.
        key: String,
    },
}

impl KeptPayload {
    /// The payload, if it is on the record.
    #[must_use]
    pub const fn inline(&self) -> Option<&StoredPayload> {
        match self {
            Self::Inline(stored) => Some(stored),
            Self::Elsewhere { .. } => None,
        }
    }
}

impl From<StoredPayload> for KeptPayload {
    fn from(stored: StoredPayload) -> Self {
        Self::Inline(stored)
    }
}

/// The key of the object that holds a large payload of an event. Deliveries that say the same share
/// one; one that says something else, or says it in a later codec, cannot overwrite what the record
/// names.
#[must_use]
pub fn object_key(event: &EventKey, payload_sha256: &[u8; 32], codec: &str) -> String {
    let of_event = hex(&Sha256::digest(event.pk()));
    format!("{}/{of_event}/{}.{codec}", event.source(), hex(payload_sha256))
}

/// An error as kept on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorNote {
    /// A short name to search for, cut to [`limits::MAX_ERROR_CLASS_BYTES`].
    pub class: String,
    /// What happened, cut to [`limits::MAX_ERROR_BYTES`].
    pub text: String,
    /// When.
    pub at: Timestamp,
}

impl ErrorNote {
    /// A note of `class` at `at`.
    #[must_use]
    pub fn new(class: &str, text: &str, at: Timestamp) -> Self {
        let class = crate::event::cut(class, limits::MAX_ERROR_CLASS_BYTES).to_owned();
        let text = crate::event::cut(text, limits::MAX_ERROR_BYTES).to_owned();
        Self { class, text, at }
    }

    /// As an attribute's value.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Map(BTreeMap::from([
            ("class".to_owned(), self.class.as_str().into()),
            ("text".to_owned(), self.text.as_str().into()),
            ("at".to_owned(), self.at.millis().into()),
        ]))
    }
}

/// The parts of a fresh record that no transition decides.
pub(crate) fn claimed_item(event: &Event, payload: KeptPayload, sha256: [u8; 32]) -> Item {
    let label = |text: &str| Value::from(crate::event::cut(text, limits::MAX_LABEL_BYTES));
    let mut item = Item::from([
        (Attribute::Pk, event.key.pk().into()),
        (Attribute::Source, event.key.source().as_str().into()),
        (Attribute::EventId, event.key.id().as_str().into()),
        (Attribute::Provider, label(&event.provider)),
        (Attribute::PayloadSha256, Value::Bytes(sha256.to_vec())),
        (Attribute::Steps, Value::Map(BTreeMap::new())),
    ]);
    item.extend(match payload {
        KeptPayload::Inline(StoredPayload { codec, bytes }) => {
            [(Attribute::PayloadCodec, codec.into()), (Attribute::Payload, Value::Bytes(bytes))]
        }
        KeptPayload::Elsewhere { codec, key } => {
            [(Attribute::PayloadCodec, codec.into()), (Attribute::PayloadRef, key.into())]
        }
    });
    let labels = [
        (Attribute::EventType, &event.event_type),
        (Attribute::ObjectId, &event.object_id),
        (Attribute::ContentType, &event.content_type),
    ];
    item.extend(labels.into_iter().filter_map(|(key, text)| Some((key, label(text.as_deref()?)))));
    item.extend(event.occurred_at.map(|at| (Attribute::OccurredAt, at.millis().into())));
    let headers: BTreeMap<String, Value> = event
        .headers
        .iter()
        .filter(|(_, value)| value.len() <= limits::MAX_KEPT_HEADER_BYTES)
        .take(limits::MAX_KEPT_HEADERS)
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    if !headers.is_empty() {
        item.insert(Attribute::Headers, Value::Map(headers));
    }
    item
}

/// A record that this version cannot read. Never guessed at: the event stays where it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("record attribute `{attribute}` {problem}")]
pub struct CorruptRecord {
    attribute: &'static str,
    problem: &'static str,
}

impl CorruptRecord {
    /// `attribute` has this `problem`.
    #[must_use]
    pub const fn new(attribute: Attribute, problem: &'static str) -> Self {
        Self { attribute: attribute.name(), problem }
    }
}

impl Record {
    /// Reads a record from its attributes.
    ///
    /// # Errors
    /// If an attribute that the record's state needs is absent or of another type.
    pub fn from_item(mut item: Item) -> Result<Self, CorruptRecord> {
        let mut fields = Fields(&mut item);
        let pk = fields.text(Attribute::Pk)?;
        let state = fields.state()?;
        Ok(Self {
            key: EventKey::parse(&pk).map_err(|_| corrupt(Attribute::Pk, "is no event key"))?,
            provider: fields.text(Attribute::Provider)?,
            event_type: fields.optional_text(Attribute::EventType)?,
            object_id: fields.optional_text(Attribute::ObjectId)?,
            occurred_at: fields.optional_time(Attribute::OccurredAt)?,
            claim_id: ClaimId(fields.text(Attribute::ClaimId)?),
            received_at: fields.time(Attribute::ReceivedAt)?,
            payload: fields.payload()?,
            payload_sha256: fields.sha256()?,
            payload_mismatch: fields.optional_bytes(Attribute::PayloadMismatch)?,
            content_type: fields.optional_text(Attribute::ContentType)?,
            headers: fields.headers()?,
            attempt: fields.count(Attribute::Attempt)?,
            attempt_limit: fields.count(Attribute::AttemptLimit)?,
            lease_owner: fields.optional_text(Attribute::LeaseOwner)?.map(LeaseOwner),
            steps: fields.journal()?,
            last_error: fields.error_note()?,
            requeues: fields.optional_count(Attribute::Requeues)?.unwrap_or(0),
            replays: fields.list_len(Attribute::Replays)?,
            state,
        })
    }

    /// Whether a claim or requeue has left it unleased past its grace.
    #[must_use]
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        matches!(self.state, State::Received { due_at, not_before }
            if due_at < now && not_before.is_none_or(|at| at <= now))
    }

    /// Whether every attempt is used up.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.attempt >= self.attempt_limit
    }
}

/// Takes typed values out of an item, one attribute at a time.
struct Fields<'a>(&'a mut Item);

impl Fields<'_> {
    fn state(&mut self) -> Result<State, CorruptRecord> {
        let name = self.text(Attribute::State)?;
        Ok(match name.as_str() {
            "received" => State::Received {
                not_before: self.optional_time(Attribute::NotBefore)?,
                due_at: self.time(Attribute::DueAt)?,
            },
            "processing" => State::Processing {
                lease_until: self.time(Attribute::LeaseUntil)?,
                due_at: self.time(Attribute::DueAt)?,
            },
            "failed" => State::Failed { due_at: self.time(Attribute::DueAt)? },
            "done" => State::Done(self.closure()?),
            "discarded" => State::Discarded(self.closure()?),
            _ => return Err(corrupt(Attribute::State, "is no state this version knows")),
        })
    }

    fn closure(&mut self) -> Result<Closure, CorruptRecord> {
        let expires_at = self.number(Attribute::ExpiresAt)?;
        Ok(Closure {
            completed_at: self.time(Attribute::CompletedAt)?,
            expires_at: Timestamp::from_secs(expires_at),
        })
    }

    fn payload(&mut self) -> Result<Option<KeptPayload>, CorruptRecord> {
        let (bytes, key) =
            (self.optional_bytes(Attribute::Payload)?, self.optional_text(Attribute::PayloadRef)?);
        let mut codec = || self.text(Attribute::PayloadCodec);
        Ok(match (bytes, key) {
            (Some(bytes), _) => Some(StoredPayload { codec: codec()?, bytes }.into()),
            (None, Some(key)) => Some(KeptPayload::Elsewhere { codec: codec()?, key }),
            (None, None) => None,
        })
    }

    fn sha256(&mut self) -> Result<[u8; 32], CorruptRecord> {
        let attribute = Attribute::PayloadSha256;
        let bytes = self.optional_bytes(attribute)?.ok_or(corrupt(attribute, ABSENT))?;
        bytes.try_into().map_err(|_| corrupt(attribute, "has not 32 bytes"))
    }

    fn headers(&mut self) -> Result<BTreeMap<String, String>, CorruptRecord> {
        let map = self.optional_map(Attribute::Headers)?.unwrap_or_default();
        map.into_iter()
            .map(|(name, value)| match value {
                Value::Text(text) => Ok((name, text)),
                Value::Number(_) | Value::Bytes(_) | Value::Map(_) | Value::List(_) => {
                    Err(corrupt(Attribute::Headers, WRONG_TYPE))
                }
            })
            .collect()
    }

    fn journal(&mut self) -> Result<Journal, CorruptRecord> {
        let map = self.optional_map(Attribute::Steps)?.unwrap_or_default();
        map.into_iter()
            .map(|(name, value)| {
                let name = StepName::new(name)
                    .map_err(|_| corrupt(Attribute::Steps, "has a step without a valid name"))?;
                Ok((name, step_entry(value)?))
            })
            .collect()
    }

    fn error_note(&mut self) -> Result<Option<ErrorNote>, CorruptRecord> {
        let Some(mut map) = self.optional_map(Attribute::LastError)? else { return Ok(None) };
        let malformed = corrupt(Attribute::LastError, WRONG_TYPE);
        match (map.remove("class"), map.remove("text"), map.remove("at")) {
            (Some(Value::Text(class)), Some(Value::Text(text)), Some(Value::Number(at))) => {
                Ok(Some(ErrorNote { class, text, at: Timestamp::from_millis(at) }))
            }
            _ => Err(malformed),
        }
    }

    fn list_len(&mut self, attribute: Attribute) -> Result<usize, CorruptRecord> {
        match self.0.remove(&attribute) {
            None => Ok(0),
            Some(Value::List(entries)) => Ok(entries.len()),
            Some(_) => Err(corrupt(attribute, WRONG_TYPE)),
        }
    }

    fn text(&mut self, attribute: Attribute) -> Result<String, CorruptRecord> {
        self.optional_text(attribute)?.ok_or(corrupt(attribute, ABSENT))
    }

    fn optional_text(&mut self, attribute: Attribute) -> Result<Option<String>, CorruptRecord> {
        match self.0.remove(&attribute) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(corrupt(attribute, WRONG_TYPE)),
        }
    }

    fn optional_bytes(&mut self, attribute: Attribute) -> Result<Option<Vec<u8>>, CorruptRecord> {
        match self.0.remove(&attribute) {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(corrupt(attribute, WRONG_TYPE)),
        }
    }

    fn optional_map(
        &mut self,
        attribute: Attribute,
    ) -> Result<Option<BTreeMap<String, Value>>, CorruptRecord> {
        match self.0.remove(&attribute) {
            None => Ok(None),
            Some(Value::Map(map)) => Ok(Some(map)),
            Some(_) => Err(corrupt(attribute, WRONG_TYPE)),
        }
    }

    fn number(&mut self, attribute: Attribute) -> Result<i64, CorruptRecord> {
        self.optional_number(attribute)?.ok_or(corrupt(attribute, ABSENT))
    }

    fn optional_number(&mut self, attribute: Attribute) -> Result<Option<i64>, CorruptRecord> {
        match self.0.remove(&attribute) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(_) => Err(corrupt(attribute, WRONG_TYPE)),
        }
    }

    fn count(&mut self, attribute: Attribute) -> Result<u32, CorruptRecord> {
        self.optional_count(attribute)?.ok_or(corrupt(attribute, ABSENT))
    }

    fn optional_count(&mut self, attribute: Attribute) -> Result<Option<u32>, CorruptRecord> {
        let number = self.optional_number(attribute)?;
        number
            .map(|n| u32::try_from(n).map_err(|_| corrupt(attribute, "is out of range")))
            .transpose()
    }

    fn time(&mut self, attribute: Attribute) -> Result<Timestamp, CorruptRecord> {
        self.number(attribute).map(Timestamp::from_millis)
    }

    fn optional_time(&mut self, attribute: Attribute) -> Result<Option<Timestamp>, CorruptRecord> {
        Ok(self.optional_number(attribute)?.map(Timestamp::from_millis))
    }
}

fn step_entry(value: Value) -> Result<StepEntry, CorruptRecord> {
    let malformed = || corrupt(Attribute::Steps, WRONG_TYPE);
    let Value::Map(mut map) = value else { return Err(malformed()) };
    let result = match map.remove("result") {
        None => None,
        Some(Value::Text(result)) => Some(result),
        Some(_) => return Err(malformed()),
    };
    let state = match (map.remove("state"), result) {
        (Some(Value::Text(state)), None) if state == "started" => StepState::Started,
        (Some(Value::Text(state)), Some(result)) if state == "done" => StepState::Done { result },
        _ => return Err(malformed()),
    };
    match (map.remove("key"), map.remove("owner"), map.remove("at")) {
        (Some(Value::Text(key)), Some(Value::Text(owner)), Some(Value::Number(at))) => {
            let owner = LeaseOwner(owner);
            Ok(StepEntry { state, key, owner, at: Timestamp::from_millis(at) })
        }
        _ => Err(malformed()),
    }
}

const fn corrupt(attribute: Attribute, problem: &'static str) -> CorruptRecord {
    CorruptRecord::new(attribute, problem)
}

const ABSENT: &str = "is absent";
const WRONG_TYPE: &str = "is not of its type";
