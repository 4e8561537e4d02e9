//! Which events a verified delivery carries.
//!
//! An id of one part is used as it is. Of several parts, each is framed by its length, and an
//! optional part that is missing leaves its mark, so that no two events get one key.
//!
//! Refused: an id that is missing, of a wrong type, there twice, too long. It is never replaced by
//! a default, since two events would become one.

use std::fmt::Write;

use domain::{
    event::{self, Event, EventId, EventKey, InvalidEventId, Source},
    limits,
    time::Timestamp,
};

use crate::{
    VerifiedDelivery,
    select::{Condition, Lookups, Part, Reading, Selector},
    unit::Unit,
};

/// How one kind of delivery names its event.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Sets its ids apart from others. The first identity is of no kind, so its ids stay plain.
    pub(crate) kind: Option<String>,
    /// What deliveries of this kind are known by.
    pub(crate) when: Vec<Condition>,
    pub(crate) id: Vec<Part>,
    pub(crate) event_type: Vec<Part>,
    pub(crate) object: Vec<Part>,
    pub(crate) occurred_at: Vec<(Selector, Unit)>,
}

/// A verified delivery without an event id where the catalogue says. Names the place and what was
/// wrong there, never what was in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unidentifiable {
    /// What is to be JSON is not.
    #[error("not JSON: {problem} (line {line}, column {column})")]
    NotJson {
        /// What is wrong.
        problem: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column, from 1; 0 at a line's end.
        column: usize,
    },
    /// Nothing at any of the places.
    #[error("no event id: nothing at {place}")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
    /// Something that can be no id.
    #[error("no event id: {place} is {found}, not a string or a number")]
    WrongType {
        /// Where it was looked for.
        place: String,
        /// The JSON type found.
        found: &'static str,
    },
    /// The same name twice: two readers would see two ids.
    #[error("no event id: {place} is there more than once")]
    Twice {
        /// Where it was looked for.
        place: String,
    },
    /// A string that cannot be decoded.
    #[error("no event id: the text at {place} cannot be decoded")]
    Undecodable {
        /// Where it was looked for.
        place: String,
    },
    /// An id that cannot identify: empty, too long, unprintable.
    #[error("no event id: of {place}, {problem}")]
    Invalid {
        /// Where it was looked for.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// All but the payload and where it goes.
struct Identified {
    id: EventId,
    event_type: Option<String>,
    object_id: Option<String>,
    occurred_at: Option<Timestamp>,
}

/// The events of `delivery`.
pub(crate) fn identify(
    provider: &str,
    lookups: &Lookups,
    identities: &[Identity],
    keep_headers: &[String],
    delivery: VerifiedDelivery,
    source: &Source,
) -> Result<Vec<Event>, Unidentifiable> {
    let identified = {
        let body = lookups.open(&delivery);
        identified(&lookups.read(&delivery, &body), identities)?
    };
    let Identified { id, event_type, object_id, occurred_at } = identified;
    let headers = delivery.headers();
    let kept = keep_headers.iter().filter_map(|name| {
        let value =
            headers.get(name).filter(|value| value.len() <= limits::MAX_KEPT_HEADER_BYTES)?;
        Some((name.clone(), value.to_owned()))
    });
    let headers_kept = kept.collect();
    let content_type = headers.get("content-type").map(label);
    Ok(vec![Event {
        key: EventKey::new(source.clone(), id),
        provider: provider.to_owned(),
        event_type,
        object_id,
        occurred_at,
        payload: delivery.delivery.body,
        content_type,
        headers: headers_kept,
    }])
}

/// By the kind that the delivery is of. The first identity is for all that is of no kind.
fn identified(
    reading: &Reading<'_>,
    identities: &[Identity],
) -> Result<Identified, Unidentifiable> {
    let (first, kinds) = identities.split_first().ok_or(Unidentifiable::Missing {
        place: String::from("any place, as the catalogue names none"),
    })?;
    let identity = kinds.iter().find(|kind| reading.meets(&kind.when)).unwrap_or(first);
    Ok(Identified {
        id: identity.event_id(reading)?,
        event_type: reading.label(&identity.event_type, ".").as_deref().map(label),
        object_id: reading.label(&identity.object, ":").as_deref().map(label),
        occurred_at: identity
            .occurred_at
            .iter()
            .find_map(|(selector, unit)| unit.read(&reading.text(selector)?)),
    })
}

impl Identity {
    fn event_id(&self, reading: &Reading<'_>) -> Result<EventId, Unidentifiable> {
        let invalid = |problem: InvalidEventId| Unidentifiable::Invalid {
            place: self.places(),
            problem: problem.to_string(),
        };
        if let (None, [part]) = (&self.kind, self.id.as_slice())
            && let Some(id) = reading.part(part)?
        {
            return EventId::new(id).map_err(invalid);
        }
        // A kind is a word and a framed part begins with a digit: no kind's ids meet another's.
        let mut framed = self.kind.clone().unwrap_or_default();
        for part in &self.id {
            if !framed.is_empty() {
                framed.push('|');
            }
            match reading.part(part)? {
                Some(value) => framed.push_str(&frame(&value)),
                None => framed.push(ABSENT),
            }
        }
        EventId::new(framed).map_err(invalid)
    }

    fn places(&self) -> String {
        let mut places = String::new();
        for (at, selector) in self.id.iter().flat_map(|part| &part.any).enumerate() {
            let _ = write!(places, "{}{}", if at == 0 { "" } else { ", " }, selector.shown);
        }
        places
    }
}

/// As [`EventId::composite`] frames a part.
fn frame(part: &str) -> String {
    format!("{}:{part}", part.len())
}

fn label(text: &str) -> String {
    event::cut(text, limits::MAX_LABEL_BYTES).to_owned()
}

/// In place of an optional part that is missing. No framed part begins like this.
const ABSENT: char = '-';
