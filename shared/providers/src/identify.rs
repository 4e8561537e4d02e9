//! Which events a verified delivery carries.
//!
//! An id of one part is used as it is; several are framed by [`EventId::frame`], so that no two
//! events get one key.
//!
//! A delivery is one event, or a list of which every item is one: `each` says which list. An item's
//! payload is its own text within the body, so that a thousand of them weigh as much as the body.
//!
//! Refused: an id that is missing, of a wrong type, there twice, too long. It is never replaced by
//! a default, since two events would become one.

use std::time::Duration;

use domain::{
    event::{self, Event, EventId, EventKey, Source},
    limits,
    time::Timestamp,
};

use crate::{
    VerifiedDelivery,
    select::{Condition, Each, Lookups, Part, Reading, Selector},
    unit::Unit,
};

/// How one kind of delivery, or of item, names its event.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Sets its ids apart from others. The first identity is of no kind, so its ids stay plain.
    pub(crate) kind: Option<String>,
    /// The list whose items are the events. Without one, the delivery is the event.
    pub(crate) each: Option<Each>,
    /// What deliveries, or items, of this kind are known by.
    pub(crate) when: Vec<Condition>,
    pub(crate) id: Vec<Part>,
    pub(crate) event_type: Vec<Part>,
    pub(crate) object: Vec<Part>,
    pub(crate) occurred_at: Vec<(Selector, Unit)>,
    /// For how long deliveries of one id mean one event, by the time of arrival, which is the id's
    /// last part.
    pub(crate) coalesce: Option<Duration>,
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
    /// What is to be a list is none.
    #[error("no events: {place} is {found}, not a list")]
    NoList {
        /// Where it was looked for.
        place: String,
        /// The JSON type found.
        found: &'static str,
    },
    /// A longer list than any known provider sends.
    #[error("too many events: {place} has more than {} items", limits::MAX_EVENTS_PER_DELIVERY)]
    TooMany {
        /// Where it is.
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

/// All but where it goes.
struct Identified {
    id: EventId,
    event_type: Option<String>,
    object_id: Option<String>,
    occurred_at: Option<Timestamp>,
    coalesces_until: Option<Timestamp>,
    /// The text of the item that is the event; `None` where it is the whole body.
    item: Option<Vec<u8>>,
}

/// The events of `delivery`, in the order of their list.
pub(crate) fn identify(
    provider: &str,
    lookups: &Lookups,
    identities: &[Identity],
    keep_headers: &[String],
    delivery: VerifiedDelivery,
    source: &Source,
) -> Result<Vec<Event>, Unidentifiable> {
    let identified = delivery.read(lookups, |reading| identified(lookups, reading, identities))?;
    let headers = delivery.headers();
    let kept = keep_headers.iter().filter_map(|name| {
        let value =
            headers.get(name).filter(|value| value.len() <= limits::MAX_KEPT_HEADER_BYTES)?;
        Some((name.clone(), value.to_owned()))
    });
    let kept: Vec<_> = kept.collect();
    let content_type = headers.get("content-type").map(label);
    let mut body = Some(delivery.delivery.body);
    let event = |identified: Identified| Event {
        key: EventKey::new(source.clone(), identified.id),
        provider: provider.to_owned(),
        event_type: identified.event_type,
        object_id: identified.object_id,
        occurred_at: identified.occurred_at,
        coalesces_until: identified.coalesces_until,
        // The body goes to the one event that it is: there is no other beside it.
        payload: identified.item.unwrap_or_else(|| body.take().unwrap_or_default()),
        content_type: content_type.clone(),
        headers: kept.clone(),
    };
    Ok(identified.into_iter().map(event).collect())
}

/// Lists first: a delivery that has one of them is a batch, be it empty. Otherwise it is an event.
fn identified(
    lookups: &Lookups,
    reading: &Reading<'_>,
    identities: &[Identity],
) -> Result<Vec<Identified>, Unidentifiable> {
    let (mut is_batch, mut left_out) = (false, false);
    let mut events = Vec::new();
    for (at, identity) in identities.iter().enumerate() {
        let Some(each) = &identity.each else { continue };
        if identities[..at].iter().any(|earlier| earlier.each.as_ref() == Some(each)) {
            continue;
        }
        let Some(items) = reading.items(lookups, each)? else { continue };
        is_batch = true;
        left_out |= !items.is_empty();
        for item in &items {
            events.extend(one_event(item, identities, Some(each))?);
        }
        if events.len() > limits::MAX_EVENTS_PER_DELIVERY {
            return Err(Unidentifiable::TooMany { place: each.shown.clone() });
        }
    }
    if !is_batch {
        events.extend(one_event(reading, identities, None)?);
        left_out = true;
    }
    if events.is_empty() && left_out {
        return Err(Unidentifiable::Missing { place: lists(identities) });
    }
    Ok(events)
}

/// By the kind that the delivery, or the item, is of. The first identity of those with the same
/// `each` may be for all that is of no kind; where it is not, such an item is no event.
fn one_event(
    reading: &Reading<'_>,
    identities: &[Identity],
    each: Option<&Each>,
) -> Result<Option<Identified>, Unidentifiable> {
    let candidates = || identities.iter().filter(|identity| identity.each.as_ref() == each);
    let identity = candidates()
        .find(|identity| !identity.when.is_empty() && reading.meets(&identity.when))
        .or_else(|| candidates().find(|identity| identity.when.is_empty()));
    let Some(identity) = identity else { return Ok(None) };
    let item = match each {
        Some(each) => reading.item(each).map(|text| text.as_bytes().to_vec()),
        None => None,
    };
    Ok(Some(Identified {
        id: identity.event_id(reading)?,
        event_type: reading.label(&identity.event_type, ".").as_deref().map(label),
        object_id: reading.label(&identity.object, ":").as_deref().map(label),
        occurred_at: identity
            .occurred_at
            .iter()
            .find_map(|(selector, unit)| unit.read(&reading.text(selector)?)),
        coalesces_until: identity.coalesce.map(|window| reading.received_cut(window).plus(window)),
        item,
    }))
}

/// Where events were looked for.
fn lists(identities: &[Identity]) -> String {
    let lists = identities.iter().filter_map(|identity| identity.each.as_ref());
    let mut lists: Vec<_> = lists.map(|each| each.shown.as_str()).collect();
    lists.dedup();
    if lists.is_empty() { String::from("any place") } else { lists.join(" or ") }
}

impl Identity {
    fn event_id(&self, reading: &Reading<'_>) -> Result<EventId, Unidentifiable> {
        let parts: Vec<_> =
            self.id.iter().map(|part| reading.part(part)).collect::<Result<_, _>>()?;
        let id = match (&self.kind, parts.as_slice()) {
            (None, [Some(id)]) => EventId::new(id.as_ref()),
            (kind, parts) => EventId::frame(kind.as_deref(), parts.iter().map(Option::as_deref)),
        };
        id.map_err(|problem| {
            let places: Vec<_> = self.id.iter().map(Part::places).collect();
            Unidentifiable::Invalid { place: places.join(", "), problem: problem.to_string() }
        })
    }
}

fn label(text: &str) -> String {
    event::cut(text, limits::MAX_LABEL_BYTES).to_owned()
}
