//! What a provider means: events, their keys, and what is known of them.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{
    limits,
    seeded::{self, Fault},
    time::Timestamp,
};

/// One configured endpoint of one provider account: `[a-z0-9-]{1,64}`.
///
/// Without `#`, so that the first `#` of a partition key ends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(String);

impl Source {
    /// # Errors
    /// If the name is empty, too long, or holds other characters.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidSource> {
        let name = name.into();
        let valid = (1..=limits::MAX_SOURCE_BYTES).contains(&name.len())
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if valid { Ok(Self(name)) } else { Err(InvalidSource) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A source name that is not one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a source is 1 to 64 of a-z, 0-9 and '-'")]
pub struct InvalidSource;

/// A provider's id of an event, stable across its deliveries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(String);

impl EventId {
    /// # Errors
    /// If the id is empty, longer than [`limits::MAX_EVENT_ID_BYTES`], or holds a control
    /// character. Such an id is refused, never replaced by a default: two events would become one.
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidEventId> {
        let id = id.into();
        if id.is_empty() {
            return Err(InvalidEventId::Empty);
        }
        if id.len() > limits::MAX_EVENT_ID_BYTES {
            return Err(InvalidEventId::TooLong { bytes: id.len() });
        }
        if id.chars().any(|c| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')) {
            return Err(InvalidEventId::ControlCharacter);
        }
        Ok(Self(id))
    }

    /// An id of several parts. Each is framed by its length, so that `("a:b", "c")` and
    /// `("a", "b:c")` stay two events; a part that is not there leaves its mark. `kind`, a word,
    /// sets ids apart from those of other kinds: what is framed begins with a digit or the mark.
    ///
    /// # Errors
    /// As [`EventId::new`]; an empty part counts as an empty id.
    pub fn frame<'a>(
        kind: Option<&str>,
        parts: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Result<Self, InvalidEventId> {
        let mut framed = kind.unwrap_or_default().to_owned();
        for part in parts {
            if !framed.is_empty() {
                framed.push('|');
            }
            match part {
                Some("") => return Err(InvalidEventId::Empty),
                Some(part) => framed.push_str(&format!("{}:{part}", part.len())),
                None => framed.push('-'),
            }
        }
        Self::new(framed)
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An id that cannot identify an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventId {
    /// Nothing there.
    #[error("the event id is empty")]
    Empty,
    /// Over the bound.
    #[error("the event id has {bytes} bytes, {} at most", limits::MAX_EVENT_ID_BYTES)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Unprintable.
    #[error("the event id holds a control character")]
    ControlCharacter,
}

/// What makes an event the same event: its source and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    source: Source,
    id: EventId,
}

impl EventKey {
    /// The key of `id` at `source`.
    #[must_use]
    pub const fn new(source: Source, id: EventId) -> Self {
        Self { source, id }
    }

    /// The key of a fingerprint, in the same table. No event can have it, whatever id its sender
    /// chooses: no source may hold the `!`.
    #[must_use]
    pub fn of_fingerprint(source: &Source, fingerprint: EventId) -> Self {
        Self { source: Source(format!("{}!", source.0)), id: fingerprint }
    }

    /// Reads a partition key, `{source}#{event_id}`.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(pk: &str) -> Result<Self, InvalidEventKey> {
        let (source, id) = pk.split_once('#').ok_or(InvalidEventKey::NoSeparator)?;
        Ok(Self { source: Source::new(source)?, id: EventId::new(id)? })
    }

    /// The source.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The id.
    #[must_use]
    pub const fn id(&self) -> &EventId {
        &self.id
    }

    /// The partition key, `{source}#{event_id}`.
    #[must_use]
    pub fn pk(&self) -> String {
        if seeded::is_on(Fault::KeyWithoutSource) {
            return format!("any#{}", self.id.0);
        }
        format!("{}#{}", self.source.0, self.id.0)
    }

    /// Which shard of the `open-by-due` index the record lies in.
    #[must_use]
    pub fn shard(&self) -> u32 {
        let digest = Sha256::digest(self.pk().as_bytes());
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % limits::SHARDS
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.source.0, self.id.0)
    }
}

/// A string that is no event key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventKey {
    /// No `#`.
    #[error("an event key is SOURCE#EVENT_ID; there is no '#'")]
    NoSeparator,
    /// The part before the first `#`.
    #[error(transparent)]
    Source(#[from] InvalidSource),
    /// The part after it.
    #[error(transparent)]
    Id(#[from] InvalidEventId),
}

/// One event, as identified in a verified delivery.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
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
    /// Until then, further deliveries mean this event too, and it waits for them: where nothing
    /// tells one change from the next, its handler reads what became of all of them.
    pub coalesces_until: Option<Timestamp>,
    /// The exact bytes: of the delivery, or of this item of a batch.
    pub payload: Vec<u8>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Headers that handlers need, by lower-case name. Never a signature or a secret.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for Event {
    /// Without the payload and the headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("key", &self.key)
            .field("event_type", &self.event_type)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// `text` cut to at most `max` bytes, at a character boundary.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_partition_key_even_with_separators_in_the_id() {
        let key = EventKey::new(
            Source::new("stripe-eu").expect("valid"),
            EventId::new("a#b#c").expect("valid"),
        );
        assert_eq!(EventKey::parse(&key.pk()), Ok(key));
    }

    #[test]
    fn sources_cannot_reach_into_another_sources_keys() {
        for name in ["", "a#b", "A", "ä", "a/b", &"x".repeat(65)] {
            assert_eq!(Source::new(name), Err(InvalidSource), "{name}");
        }
    }

    #[test]
    fn no_event_has_the_key_of_a_fingerprint() {
        let source = Source::new("github").expect("valid");
        let id = EventId::new("digest").expect("valid");
        let of_fingerprint = EventKey::of_fingerprint(&source, id);
        assert_eq!(
            EventKey::parse(&of_fingerprint.pk()),
            Err(InvalidEventKey::Source(InvalidSource))
        );
    }

    #[test]
    fn an_id_is_refused_rather_than_defaulted() {
        assert_eq!(EventId::new(""), Err(InvalidEventId::Empty));
        assert_eq!(EventId::new("x".repeat(513)), Err(InvalidEventId::TooLong { bytes: 513 }));
        assert_eq!(EventId::new("a\u{0}b"), Err(InvalidEventId::ControlCharacter));
        assert!(EventId::new("x".repeat(512)).is_ok());
    }

    #[test]
    fn parts_of_a_composite_id_cannot_flow_into_each_other() {
        // Records under such ids lie in tables for months: framed otherwise, each event is new again.
        let id = |kind, parts: &[Option<&str>]| {
            EventId::frame(kind, parts.iter().copied()).map(|id| id.0)
        };
        assert_eq!(id(None, &[Some("a|1:b"), Some("c")]).as_deref(), Ok("5:a|1:b|1:c"));
        assert_eq!(id(None, &[Some("a"), Some("b|1:c")]).as_deref(), Ok("1:a|5:b|1:c"));
        assert_eq!(id(None, &[None, Some("-")]).as_deref(), Ok("-|1:-"));
        assert_eq!(id(Some("kind"), &[Some("a"), None]).as_deref(), Ok("kind|1:a|-"));
        assert_eq!(id(None, &[Some("a"), Some("")]), Err(InvalidEventId::Empty));
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("abc", 9), "abc");
    }
}
