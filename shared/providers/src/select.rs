//! Where the catalogue says a value is, and what lies there.
//!
//! Whether a body is JSON or a form follows from its own first byte where that leaves no choice:
//! `content-type` is outside every signature, and a JSON text that contains `&trigger_id=…` must
//! not become a form because a header says so.

use std::borrow::Cow;

use domain::{delivery::Headers, event::InvalidEventId};

use crate::{
    Unidentifiable, VerifiedDelivery,
    form::{self, Field},
    json::{self, Found, NotJson, Pointers, Scalar},
};

/// One place of a value.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) place: Place,
    /// The place as errors name it.
    pub(crate) shown: String,
}

#[derive(Debug)]
pub(crate) enum Place {
    /// A header.
    Header(String),
    /// A part of what was signed, by name.
    Signed(String),
    /// A pointer into a JSON body, by slot.
    Json(usize),
    /// A field of a form body, and a pointer into it where it holds JSON.
    Form { field: usize, pointer: Option<usize> },
}

/// One part of an id, a type, an object: the first of its alternatives that has a value.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) any: Vec<Selector>,
    pub(crate) optional: bool,
}

/// A condition on a delivery.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) selector: Selector,
    pub(crate) is: String,
}

/// All that a provider looks up in bodies, so that one pass does.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    pub(crate) json: Pointers,
    pub(crate) fields: Vec<(String, Pointers)>,
}

/// A body, taken apart as far as `Lookups` needs it.
pub(crate) enum Body<'b> {
    Json(Result<&'b str, NotJson>),
    Form(Vec<Field<'b>>),
    /// Nothing is looked up in it.
    Unread,
}

/// A delivery in which values can be looked up.
pub(crate) struct Reading<'b> {
    delivery: &'b VerifiedDelivery,
    body: Values<'b>,
}

enum Values<'b> {
    Json(Result<Found<'b>, NotJson>),
    Form(Vec<(&'b Field<'b>, Option<Result<Found<'b>, NotJson>>)>),
    Unread,
}

impl Lookups {
    /// The slot of a pointer into JSON bodies.
    pub(crate) fn pointer(&mut self, pointer: &str) -> Result<usize, &'static str> {
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
    pub(crate) fn open<'b>(&self, delivery: &'b VerifiedDelivery) -> Body<'b> {
        let body = delivery.body();
        if !self.fields.is_empty() && is_form(delivery.headers(), body) {
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
        delivery: &'b VerifiedDelivery,
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
        Reading { delivery, body }
    }
}

impl<'b> Reading<'b> {
    fn scalar(&self, selector: &Selector) -> Result<Scalar<'b>, NotJson> {
        let text =
            |text: Option<&'b str>| text.map_or(Scalar::Absent, |text| Scalar::Text(text.into()));
        match (&selector.place, &self.body) {
            (Place::Header(name), _) => Ok(text(self.delivery.headers().get(name))),
            (Place::Signed(name), _) => Ok(text(self.delivery.signed_part(name))),
            (Place::Json(slot), Values::Json(found)) => match found {
                Ok(found) => Ok(found.scalar(*slot)),
                Err(error) => Err(error.clone()),
            },
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
            (Place::Json(_) | Place::Form { .. }, _) => Ok(Scalar::Absent),
        }
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
        conditions.iter().all(|Condition { selector, is }| {
            self.text(selector).is_some_and(|text| text == is.as_str())
        })
    }
}

impl Part {
    fn places(&self) -> String {
        self.any.iter().map(|selector| selector.shown.as_str()).collect::<Vec<_>>().join(" or ")
    }
}

/// Whether a body is a form. One that begins like a JSON object or array is none, whatever its
/// header says.
fn is_form(headers: &Headers, body: &[u8]) -> bool {
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
