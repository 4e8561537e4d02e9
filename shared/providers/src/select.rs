//! Where the catalogue says a value is, and what lies there.
//!
//! Whether a body is JSON or a form follows from its own first byte where that leaves no choice:
//! `content-type` is outside every signature, and a JSON text that contains `&trigger_id=…` must
//! not become a form because a header says so.

use std::{borrow::Cow, rc::Rc, time::Duration};

use domain::{
    delivery::{Delivery, Headers},
    event::InvalidEventId,
    limits,
    time::Timestamp,
};
use ring::digest;

use crate::{
    Unidentifiable,
    form::{self, Field},
    json::{self, Address, Found, Listed, NotJson, Pointers, Scalar, Scope},
};

/// One place of a value.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) place: Place,
    /// The value is the SHA-256 of what lies there.
    pub(crate) digest: bool,
    /// The place as errors name it.
    pub(crate) shown: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A header.
    Header(String),
    /// A parameter of the query string.
    Query(String),
    /// A part of what was signed, by name.
    Signed(String),
    /// A pointer into a JSON body.
    Json(Address),
    /// A field of a form body, and a pointer into it where it holds JSON.
    Form { field: usize, pointer: Option<usize> },
    /// The body as a whole.
    Body,
    /// When the delivery was received, cut to this.
    Received(Duration),
}

/// One part of an id, a type, an object: the first of its alternatives that has a value.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) any: Vec<Selector>,
    pub(crate) optional: bool,
}

impl Part {
    /// The start of the window of this length in which a delivery came.
    pub(crate) fn received(window: Duration) -> Self {
        let shown = format!("the {} seconds in which it came", window.as_secs());
        let place = Place::Received(window);
        Self { any: vec![Selector { place, digest: false, shown }], optional: false }
    }
}

/// A condition on a delivery.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) selector: Selector,
    pub(crate) test: Test,
}

#[derive(Debug)]
pub(crate) enum Test {
    /// The text there is this.
    Is(String),
    /// There is something, or there is nothing. `null` is nothing.
    Present(bool),
}

/// A list whose items count one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Each {
    pub(crate) items: Address,
    /// The place as errors name it.
    pub(crate) shown: String,
}

/// All that a provider looks up in bodies, so that one pass does.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    pub(crate) json: Scope,
    pub(crate) fields: Vec<(String, Pointers)>,
}

/// A body, taken apart as far as `Lookups` needs it.
pub(crate) enum Body<'b> {
    Json(Result<&'b str, NotJson>),
    Form(Vec<Field<'b>>),
    /// Nothing is looked up in it.
    Unread,
}

/// Named values, as they were signed.
pub(crate) type SignedParts = [(String, String)];

/// A delivery, or an item of one, in which values can be looked up.
#[derive(Clone)]
pub(crate) struct Reading<'b> {
    delivery: &'b Delivery,
    signed: &'b SignedParts,
    received: Timestamp,
    body: Rc<Values<'b>>,
    /// What was found in the items that lead here, the innermost last.
    items: Vec<Rc<Found<'b>>>,
}

enum Values<'b> {
    Json(Result<Found<'b>, NotJson>),
    Form(Vec<(&'b Field<'b>, Option<Result<Found<'b>, NotJson>>)>),
    Unread,
}

impl Lookups {
    /// The address of a pointer into JSON bodies.
    pub(crate) fn pointer(&mut self, pointer: &str) -> Result<Address, &'static str> {
        self.json.add(pointer)
    }

    /// The slots of a form field and of a pointer into it.
    pub(crate) fn field(
        &mut self,
        name: &str,
        pointer: Option<&str>,
    ) -> Result<Place, &'static str> {
        let field = match self.fields.iter().position(|(known, _)| known == name) {
            Some(field) => field,
            None => {
                self.fields.push((name.to_owned(), Pointers::default()));
                self.fields.len() - 1
            }
        };
        let pointer = pointer.map(|pointer| self.fields[field].1.add(pointer)).transpose()?;
        Ok(Place::Form { field, pointer })
    }

    /// Takes the body apart.
    pub(crate) fn open<'b>(&self, delivery: &'b Delivery) -> Body<'b> {
        let body = &delivery.body;
        if !self.fields.is_empty() && is_form(&delivery.headers, body) {
            Body::Form(self.fields.iter().map(|(name, _)| form::field(body, name)).collect())
        } else if self.json.is_empty() {
            Body::Unread
        } else {
            Body::Json(json::text(body))
        }
    }

    /// Finds all that is looked up.
    pub(crate) fn read<'b>(
        &self,
        delivery: &'b Delivery,
        signed: &'b SignedParts,
        received: Timestamp,
        body: &'b Body<'b>,
    ) -> Reading<'b> {
        let body = match body {
            Body::Json(text) => Values::Json(text.clone().and_then(|text| self.json.find(text))),
            Body::Form(fields) => {
                let found = fields.iter().zip(&self.fields).map(|(field, (_, pointers))| {
                    let found = match field {
                        Field::Value(text) if !pointers.is_empty() => Some(pointers.find(text)),
                        Field::Value(_) | Field::Absent | Field::Twice | Field::Undecodable => None,
                    };
                    (field, found)
                });
                Values::Form(found.collect())
            }
            Body::Unread => Values::Unread,
        };
        Reading { delivery, signed, received, body: Rc::new(body), items: Vec::new() }
    }
}

impl<'b> Reading<'b> {
    /// The items of a list, or of lists within lists, in the order of the body. `None` if there is
    /// no such list at all.
    pub(crate) fn items(
        &self,
        lookups: &Lookups,
        each: &Each,
    ) -> Result<Option<Vec<Self>>, Unidentifiable> {
        let Values::Json(root) = &*self.body else { return Ok(None) };
        let root = root.as_ref().map_err(Clone::clone)?;
        let (mut scope, mut readings) = (&lookups.json, vec![self.clone()]);
        let mut is_there = false;
        for list in &each.items.lists {
            let mut inner = Vec::new();
            is_there = false;
            let mut next = scope;
            for reading in &readings {
                let around = reading.items.last().map_or(root, |item| item);
                let (items, listed) =
                    scope.items(around, *list, limits::MAX_EVENTS_PER_DELIVERY)?;
                next = items;
                let place = || each.shown.clone();
                match listed {
                    Listed::Items(items) => {
                        is_there = true;
                        inner.extend(items.into_iter().map(|item| reading.within(item)));
                    }
                    Listed::Absent => {}
                    Listed::Other(found) => {
                        return Err(Unidentifiable::NoList { place: place(), found });
                    }
                    Listed::Twice => return Err(Unidentifiable::Twice { place: place() }),
                    Listed::TooMany => return Err(Unidentifiable::TooMany { place: place() }),
                }
                if inner.len() > limits::MAX_EVENTS_PER_DELIVERY {
                    return Err(Unidentifiable::TooMany { place: place() });
                }
            }
            (scope, readings) = (next, inner);
        }
        Ok(is_there.then_some(readings))
    }

    fn within(&self, item: Found<'b>) -> Self {
        let mut inner = self.clone();
        inner.items.push(Rc::new(item));
        inner
    }

    /// The text of the item that this is a reading of, as it is written.
    pub(crate) fn item(&self, each: &Each) -> Option<&'b str> {
        self.items.last()?.raw(each.items.slot)
    }

    fn scalar(&self, selector: &Selector) -> Result<Scalar<'b>, NotJson> {
        let plain = self.plain(&selector.place)?;
        if !selector.digest {
            return Ok(plain);
        }
        let digest =
            |bytes: &[u8]| Scalar::Text(hex::encode(digest::digest(&digest::SHA256, bytes)).into());
        if selector.place == Place::Body {
            return Ok(digest(&self.delivery.body));
        }
        // Of JSON, whatever it is counts as it is written.
        if let Place::Json(address) = &selector.place
            && !matches!(plain, Scalar::Null)
            && let Some(text) = self.found(address)?.and_then(|found| found.raw(address.slot))
        {
            return Ok(digest(text.as_bytes()));
        }
        Ok(if let Scalar::Text(text) = plain { digest(text.as_bytes()) } else { plain })
    }

    fn plain(&self, place: &Place) -> Result<Scalar<'b>, NotJson> {
        let text =
            |text: Option<&'b str>| text.map_or(Scalar::Absent, |text| Scalar::Text(text.into()));
        match (place, &*self.body) {
            (Place::Header(name), _) => Ok(text(self.delivery.headers.get(name))),
            (Place::Query(name), _) => {
                Ok(match form::field(self.delivery.query.as_bytes(), name) {
                    Field::Value(value) => Scalar::Text(value),
                    Field::Absent => Scalar::Absent,
                    Field::Twice => Scalar::Twice,
                    Field::Undecodable => Scalar::Undecodable,
                })
            }
            (Place::Signed(name), _) => {
                let part = self.signed.iter().find(|(known, _)| known == name);
                Ok(text(part.map(|(_, value)| value.as_str())))
            }
            (Place::Json(address), Values::Json(_)) => {
                Ok(self.found(address)?.map_or(Scalar::Absent, |found| found.scalar(address.slot)))
            }
            (Place::Form { field, pointer }, Values::Form(fields)) => {
                match (&fields[*field], pointer) {
                    ((Field::Value(value), _), None) => Ok(Scalar::Text(Cow::Borrowed(value))),
                    ((Field::Value(_), Some(found)), Some(slot)) => match found {
                        Ok(found) => Ok(found.scalar(*slot)),
                        Err(error) => Err(error.clone()),
                    },
                    ((Field::Value(_) | Field::Absent, _), _) => Ok(Scalar::Absent),
                    ((Field::Twice, _), _) => Ok(Scalar::Twice),
                    ((Field::Undecodable, _), _) => Ok(Scalar::Undecodable),
                }
            }
            (Place::Received(window), _) => {
                let start = self.received_cut(*window).millis();
                Ok(Scalar::Text(start.to_string().into()))
            }
            (Place::Json(_) | Place::Form { .. } | Place::Body, _) => Ok(Scalar::Absent),
        }
    }

    /// The start of the window of this length in which the delivery came.
    pub(crate) fn received_cut(&self, window: Duration) -> Timestamp {
        let millis = window.as_millis().try_into().unwrap_or(i64::MAX).max(1);
        let received = self.received.millis();
        Timestamp::from_millis(received - received.rem_euclid(millis))
    }

    /// Where the values of `address` are: in the body, or in the item that leads there.
    fn found(&self, address: &Address) -> Result<Option<&Found<'b>>, NotJson> {
        let Values::Json(root) = &*self.body else { return Ok(None) };
        let root = root.as_ref().map_err(Clone::clone)?;
        Ok(match address.lists.len().checked_sub(1) {
            None => Some(root),
            Some(depth) => self.items.get(depth).map(|item| &**item),
        })
    }

    /// The value of `part`; `None` where it is optional and not there.
    ///
    /// Nothing, `null` and the empty string let the next alternative have its turn. Whatever else
    /// is no value ends the search: a catalogue that no longer fits must not pick another id.
    pub(crate) fn part(&self, part: &Part) -> Result<Option<Cow<'b, str>>, Unidentifiable> {
        let mut refusal = None;
        for selector in &part.any {
            let place = || selector.shown.clone();
            match self.scalar(selector)? {
                Scalar::Text(text) if text.is_empty() => {
                    let problem = InvalidEventId::Empty.to_string();
                    refusal.get_or_insert(Unidentifiable::Invalid { place: place(), problem });
                }
                Scalar::Text(text) => return Ok(Some(text)),
                Scalar::Null => {
                    refusal
                        .get_or_insert(Unidentifiable::WrongType { place: place(), found: "null" });
                }
                Scalar::Absent => {}
                Scalar::Other(found) => {
                    return Err(Unidentifiable::WrongType { place: place(), found });
                }
                Scalar::Twice => return Err(Unidentifiable::Twice { place: place() }),
                Scalar::Undecodable => return Err(Unidentifiable::Undecodable { place: place() }),
            }
        }
        if part.optional {
            return Ok(None);
        }
        Err(refusal.unwrap_or_else(|| Unidentifiable::Missing { place: part.places() }))
    }

    /// Parts joined by `separator`, for people and for choosing a handler. An optional part that is
    /// not there or no value is left out; without another one there is no label.
    pub(crate) fn label(&self, parts: &[Part], separator: &str) -> Option<String> {
        let mut values = Vec::with_capacity(parts.len());
        for part in parts {
            match self.part(part) {
                Ok(value) => values.extend(value),
                Err(_) if part.optional => {}
                Err(_) => return None,
            }
        }
        if values.is_empty() { None } else { Some(values.join(separator)) }
    }

    /// The text at `selector`.
    pub(crate) fn text(&self, selector: &Selector) -> Option<Cow<'b, str>> {
        match self.scalar(selector) {
            Ok(Scalar::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether all conditions hold.
    pub(crate) fn meets(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|Condition { selector, test }| match test {
            Test::Is(is) => self.text(selector).is_some_and(|text| text == is.as_str()),
            Test::Present(present) => {
                let nothing =
                    matches!(self.scalar(selector), Ok(Scalar::Absent | Scalar::Null) | Err(_));
                nothing != *present
            }
        })
    }
}

impl Part {
    pub(crate) fn places(&self) -> String {
        self.any.iter().map(|selector| selector.shown.as_str()).collect::<Vec<_>>().join(" or ")
    }
}

/// Whether a body is a form. One that begins like a JSON object or array is none, whatever its
/// header says.
pub(crate) fn is_form(headers: &Headers, body: &[u8]) -> bool {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let media_type = headers.get("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    !matches!(first, Some(b'{' | b'['))
        && media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

impl From<NotJson> for Unidentifiable {
    fn from(NotJson { problem, line, column }: NotJson) -> Self {
        Self::NotJson { problem, line, column }
    }
}
