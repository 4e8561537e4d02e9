//! One way of signing: where the signature is, over which text, with what.

use std::{borrow::Cow, time::Duration};

use domain::{
    delivery::{Delivery, Headers},
    limits,
    time::Timestamp,
};
use ring::digest;

use super::{
    Against, Grammar, Method, Rejection, Segment, Signed, SignedHeaders,
    header::{MAX_SIGNATURES, Unreadable},
    jwt::Token,
    template::{self, Values},
};
use crate::{
    endpoint::Endpoint,
    form::{self, Field},
    secret::{Encoding, KeyFormat, Material},
    select::{Condition, Each, Place, Reading, Selector, is_form},
    unit::Unit,
};

/// A scheme of the catalogue.
#[derive(Debug)]
pub(crate) struct Scheme {
    pub(crate) method: Method,
    pub(crate) key: KeyFormat,
    /// Of the signature.
    pub(crate) encoding: Encoding,
    pub(crate) place: SignaturePlace,
    pub(crate) grammar: Grammar,
    /// The token's algorithm, where the signature is a JSON web token's.
    pub(crate) jwt: Option<&'static str>,
    /// What deliveries signed like this are known by.
    pub(crate) when: Vec<Condition>,
    /// The list whose items are signed one by one.
    pub(crate) each: Option<Each>,
    pub(crate) parts: Vec<SignedPart>,
    pub(crate) fields: Fields,
    pub(crate) headers: Option<SignedHeaders>,
    pub(crate) time: Option<Time>,
    /// What is signed; any of these.
    pub(crate) templates: Vec<Vec<Segment>>,
    pub(crate) body_digest: Option<BodyDigest>,
    /// Claims of a token, and what each has to be.
    pub(crate) claims: Vec<(String, Vec<Segment>)>,
    /// Signed values that have to be the same as a setting, where the source has it.
    pub(crate) pinned: Vec<(Selector, String)>,
    pub(crate) tolerance: Option<Duration>,
    pub(crate) covers: Coverage,
}

/// Where signatures are.
#[derive(Debug)]
pub(crate) enum SignaturePlace {
    /// The first of these headers that is there.
    Headers(Vec<String>),
    /// Every header of this name and a number.
    Numbered(String),
    /// In the body or the query.
    Elsewhere(Selector),
}

/// A signed value.
#[derive(Debug)]
pub(crate) struct SignedPart {
    pub(crate) name: String,
    pub(crate) place: SignedPlace,
    /// It is empty where it is not there.
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum SignedPlace {
    /// The first of these headers that is there.
    Headers(Vec<String>),
    Elsewhere(Selector),
}

/// Fields of the body that are signed, by name.
pub(crate) type Fields = Vec<(String, Selector)>;

/// A signed time.
#[derive(Debug)]
pub(crate) struct Time {
    pub(crate) place: TimePlace,
    pub(crate) unit: Unit,
}

#[derive(Debug)]
pub(crate) enum TimePlace {
    /// A member of the signature header.
    Member(String),
    /// The first of these headers that is there.
    Header(Vec<String>),
    /// A claim of the token.
    Claim(String),
    /// In the body.
    Body(Selector),
}

/// Where the SHA-256 of the body is, in hex, itself signed.
#[derive(Debug)]
pub(crate) enum BodyDigest {
    /// A parameter of the query. Has to be there unless the body is an empty one or a form.
    Query(String),
    /// A claim of the token.
    Claim(String),
}

/// How much of the body a signature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    /// Every byte.
    Body,
    /// A checksum that anybody can meet with another body.
    Checksum,
    /// Some values in it.
    Parts,
    /// Nothing of it.
    Nothing,
}

/// What a signature is written as, and where.
struct Written<'d> {
    place: String,
    texts: Vec<Cow<'d, str>>,
}

impl Scheme {
    /// Whether it needs to look into the body.
    pub(crate) fn reads_body(&self) -> bool {
        let is_body = |selector: &Selector| {
            matches!(selector.place, Place::Json(_) | Place::Form { .. } | Place::Body)
        };
        matches!(&self.place, SignaturePlace::Elsewhere(selector) if is_body(selector))
            || matches!(&self.time, Some(Time { place: TimePlace::Body(_), .. }))
            || self.when.iter().any(|condition| is_body(&condition.selector))
            || !self.fields.is_empty()
            || self.parts.iter().any(
                |part| matches!(&part.place, SignedPlace::Elsewhere(selector) if is_body(selector)),
            )
    }

    /// Whether what lies at `place` is signed.
    pub(crate) fn signs(&self, place: &Place) -> bool {
        match place {
            Place::Signed(name) => self.parts.iter().any(|part| part.name == *name),
            Place::Json(_) | Place::Form { .. } | Place::Body => {
                let is_part = |selector: &Selector| selector.place == *place;
                self.covers == Coverage::Body
                    || self.fields.iter().any(|(_, selector)| is_part(selector))
                    || self.parts.iter().any(|part| {
                        matches!(&part.place, SignedPlace::Elsewhere(selector) if is_part(selector))
                    })
            }
            Place::Query(_) => self
                .templates
                .iter()
                .flatten()
                .any(|segment| matches!(segment, Segment::Url(_) | Segment::Path)),
            Place::Header(_) | Place::Received(_) => false,
        }
    }

    /// Whether the URL that was called is signed.
    pub(crate) fn signs_url(&self) -> bool {
        let claims = self.claims.iter().flat_map(|(_, template)| template);
        self.templates.iter().flatten().chain(claims).any(|segment| {
            matches!(segment, Segment::Url(_) | Segment::Path | Segment::RequestDigest)
        })
    }

    /// Whether `name` is a header with a signature.
    pub(crate) fn is_signature(&self, name: &str) -> bool {
        match &self.place {
            SignaturePlace::Headers(names) => names.iter().any(|known| known == name),
            SignaturePlace::Numbered(prefix) => is_numbered(name, prefix),
            SignaturePlace::Elsewhere(_) => false,
        }
    }

    /// Whether one of `keys` signed this delivery, and when.
    pub(super) fn check(
        &self,
        against: &Against<'_>,
        delivery: &Delivery,
        reading: &Reading<'_>,
        keys: &[&Material],
    ) -> Result<Signed, Rejection> {
        let Some(each) = &self.each else {
            return self.check_one(against, delivery, reading, keys);
        };
        let none = || Rejection::NoSignature { place: self.signature_place() };
        let items = reading.items(against.lookups, each).ok().flatten().unwrap_or_default();
        let mut signed = None;
        for item in &items {
            signed = Some(self.check_one(against, delivery, item, keys)?);
        }
        // What was signed for one item says nothing of the others.
        signed.map(|_| Signed { at: None, parts: Vec::new() }).ok_or_else(none)
    }

    fn check_one(
        &self,
        against: &Against<'_>,
        delivery: &Delivery,
        reading: &Reading<'_>,
        keys: &[&Material],
    ) -> Result<Signed, Rejection> {
        if !reading.meets(&self.when) {
            return Err(Rejection::NoSignature { place: self.signature_place() });
        }
        let written = self.written(&delivery.headers, reading)?;
        let token = self.token(&written)?;
        let signatures = self.signatures(&written, token.as_ref())?;
        let mut values = self.values(against.endpoint, delivery, reading, |headers| {
            self.time_text(headers, &written, token.as_ref(), reading)
        })?;
        self.refuse_ambiguity(&values, against.now)?;
        self.signed_by(against, keys, &mut values, token.as_ref(), &signatures)?;
        self.refuse_other_body(delivery, token.as_ref())?;
        self.refuse_other_request(&values, token.as_ref(), against.now)?;
        self.refuse_other_sender(against.endpoint, reading)?;
        let tolerance = against.tolerance.or(self.tolerance);
        let at = self.time_within(values.time.as_deref(), against.now, tolerance)?;
        let names = self.parts.iter().map(|part| part.name.clone());
        let parts = names.zip(values.parts.into_iter().map(Cow::into_owned)).collect();
        Ok(Signed { at, parts })
    }

    /// The name of the key that a delivery says it was signed with, where its signature has one.
    pub(crate) fn signer(
        &self,
        headers: &Headers,
        reading: &Reading<'_>,
    ) -> Result<Option<String>, Rejection> {
        if !reading.meets(&self.when) {
            return Err(Rejection::NoSignature { place: self.signature_place() });
        }
        let written = self.written(headers, reading)?;
        Ok(self.token(&written)?.and_then(|token| token.key_id))
    }

    /// The signatures as they are written.
    fn written<'d>(
        &self,
        headers: &'d Headers,
        reading: &Reading<'d>,
    ) -> Result<Written<'d>, Rejection> {
        let found = match &self.place {
            SignaturePlace::Headers(names) => first(headers, names)
                .map(|(name, text)| Written { place: header(name), texts: vec![text.into()] }),
            SignaturePlace::Numbered(prefix) => {
                let numbered = headers.iter().filter(|(name, _)| is_numbered(name, prefix));
                let texts: Vec<_> =
                    numbered.map(|(_, text)| text.into()).take(MAX_SIGNATURES).collect();
                let place = self.signature_place();
                (!texts.is_empty()).then_some(Written { place, texts })
            }
            SignaturePlace::Elsewhere(selector) => reading
                .text(selector)
                .map(|text| Written { place: selector.shown.clone(), texts: vec![text] }),
        };
        found.ok_or_else(|| Rejection::NoSignature { place: self.signature_place() })
    }

    fn token<'w>(&self, written: &'w Written<'_>) -> Result<Option<Token<'w>>, Rejection> {
        let Some(algorithm) = self.jwt else { return Ok(None) };
        let read = |text| {
            let texts = self.grammar.signatures(text).map_err(|problem| written.no(problem))?;
            let text = texts.first().copied().unwrap_or_default();
            Token::read(text, algorithm).map_err(|problem| written.malformed(problem))
        };
        written.texts.first().map(|text| read(text)).transpose()
    }

    /// Signatures that decode. One that does not is skipped as long as another does.
    fn signatures(
        &self,
        written: &Written<'_>,
        token: Option<&Token<'_>>,
    ) -> Result<Vec<Vec<u8>>, Rejection> {
        let mut texts = Vec::new();
        let mut problem = Unreadable::Malformed("it is empty");
        for text in &written.texts {
            match (token, self.grammar.signatures(text)) {
                (Some(token), _) => texts.push(token.signature),
                (None, Ok(signatures)) => texts.extend(signatures),
                (None, Err(other)) => problem = other,
            }
        }
        if texts.is_empty() {
            return Err(written.no(problem));
        }
        let decoded: Vec<_> = texts
            .into_iter()
            .filter_map(|signature| self.encoding.decode(signature))
            .filter(|signature| self.method.can_be(signature))
            .collect();
        if decoded.is_empty() {
            return Err(written.malformed(match self.encoding {
                Encoding::Hex => "it is not hex of a signature's length",
                Encoding::Base64 => "it is not base64 of a signature's length",
                Encoding::Base64Url => "it is not base64url of a signature's length",
                Encoding::Text => "it is empty",
            }));
        }
        Ok(decoded)
    }

    /// All that goes into the signed text.
    pub(super) fn values<'d>(
        &'d self,
        endpoint: &'d Endpoint,
        delivery: &'d Delivery,
        reading: &Reading<'d>,
        time: impl FnOnce(&'d Headers) -> Result<Option<Cow<'d, str>>, Rejection>,
    ) -> Result<Values<'d>, Rejection> {
        let headers = &delivery.headers;
        Ok(Values {
            delivery,
            endpoint,
            time: time(headers)?,
            parts: self
                .part_values(headers, reading)
                .map_err(|place| Rejection::NoSignedPart { place })?,
            fields: template::lines(reading, &self.fields)?,
            headers: match &self.headers {
                Some(signed) => template::listed(headers, signed)?,
                None => String::new(),
            },
            secret: None,
        })
    }

    fn time_text<'d>(
        &'d self,
        headers: &'d Headers,
        written: &Written<'d>,
        token: Option<&Token<'_>>,
        reading: &Reading<'d>,
    ) -> Result<Option<Cow<'d, str>>, Rejection> {
        let Some(time) = &self.time else { return Ok(None) };
        let found = match &time.place {
            TimePlace::Member(tag) => {
                let text = written.texts.first().map_or("", |text| text.as_ref());
                let only = self.grammar.only(text, tag).map_err(|problem| written.no(problem))?;
                only.map(|text| Cow::Owned(text.to_owned()))
            }
            TimePlace::Header(names) => first(headers, names).map(|(_, text)| text.into()),
            TimePlace::Claim(name) => token.and_then(|token| token.claim(name)).map(Cow::Owned),
            TimePlace::Body(selector) => reading.text(selector),
        };
        found.map(Some).ok_or_else(|| Rejection::NoTimestamp { place: self.time_place() })
    }

    /// The value of each part, or the place of the one that is missing.
    fn part_values<'d>(
        &'d self,
        headers: &'d Headers,
        reading: &Reading<'d>,
    ) -> Result<Vec<Cow<'d, str>>, String> {
        let value = |part: &'d SignedPart| {
            let (found, place) = match &part.place {
                SignedPlace::Headers(names) => {
                    (first(headers, names).map(|(_, text)| text.into()), either(names))
                }
                SignedPlace::Elsewhere(selector) => {
                    (reading.text(selector), selector.shown.clone())
                }
            };
            match found.filter(|value: &Cow<'_, str>| !value.is_empty()) {
                Some(value) => Ok(value),
                None if part.optional => Ok(Cow::Borrowed("")),
                None => Err(place),
            }
        };
        self.parts.iter().map(value).collect()
    }

    /// Refuses a part that may hold what was signed as the timestamp.
    ///
    /// `a.1700000000.5.x` is signed once and can be cut twice: id `a` at 1700000000, or id
    /// `a.1700000000` at 5. Whoever re-cuts an old delivery to make it look fresh ends up with an
    /// id that has the real time in it, so that is what is looked for. Other ids may hold the
    /// separator, though Standard Webhooks advises against it.
    fn refuse_ambiguity(&self, values: &Values<'_>, now: Timestamp) -> Result<(), Rejection> {
        let Some(time) = &self.time else { return Ok(()) };
        for window in self.templates.iter().flat_map(|template| template.windows(3)) {
            let [Segment::Part(part), Segment::Literal(separator), Segment::Timestamp] = window
            else {
                continue;
            };
            let holds_a_time = values.parts[*part].split(separator.as_str()).skip(1).any(|piece| {
                time.unit
                    .read_signed(piece)
                    .is_some_and(|at| EARLIEST_SIGNATURE < at && at < now.plus(A_DAY))
            });
            if holds_a_time {
                let place = self.parts[*part].place.shown();
                return Err(Rejection::AmbiguousSignedPart { place });
            }
        }
        Ok(())
    }

    /// Whether one of `keys` signed one of the texts.
    fn signed_by<'d>(
        &'d self,
        against: &Against<'_>,
        keys: &[&'d Material],
        values: &mut Values<'d>,
        token: Option<&Token<'_>>,
        signatures: &[Vec<u8>],
    ) -> Result<(), Rejection> {
        let mut rejection = Rejection::BadSignature;
        for key in keys {
            if let Material::Text(text) = key {
                values.secret = Some(text);
            }
            let wanted = token.and_then(|token| token.key_id.as_deref());
            if key.id().zip(wanted).is_some_and(|(id, wanted)| id != wanted) {
                continue;
            }
            let is_signed = match token {
                Some(token) => {
                    let text = [Cow::Borrowed(token.signed.as_bytes())];
                    self.method.is_signed(key, &text, signatures)
                }
                None if self.templates.is_empty() => self.method.is_signed(key, &[], signatures),
                None => {
                    let values: &Values<'_> = values;
                    let for_anybody = |text: &[_]| {
                        against.handshakes.iter().any(|known| known.signs_for_anybody(text))
                    };
                    let mut is_signed = false;
                    for template in &self.templates {
                        let text = values.fill(template)?;
                        if self.method.is_signed(key, &text, signatures) && !for_anybody(&text) {
                            is_signed = true;
                            break;
                        }
                    }
                    is_signed
                }
            };
            let is_valid = match key {
                Material::Public(key) => {
                    key.valid.as_ref().is_none_or(|valid| valid.contains(&against.now))
                }
                Material::Shared(_) | Material::Text(_) | Material::Pair(_) => true,
            };
            if is_signed && is_valid {
                return Ok(());
            }
            if is_signed {
                rejection = Rejection::ExpiredCertificate;
            }
        }
        Err(rejection)
    }

    fn refuse_other_body(
        &self,
        delivery: &Delivery,
        token: Option<&Token<'_>>,
    ) -> Result<(), Rejection> {
        let Some(place) = &self.body_digest else { return Ok(()) };
        let (stated, shown) = match place {
            BodyDigest::Query(name) => {
                let stated = match form::field(delivery.query.as_bytes(), name) {
                    Field::Value(value) => Some(value.into_owned()),
                    Field::Absent | Field::Twice | Field::Undecodable => None,
                };
                let Delivery { headers, body, .. } = delivery;
                if stated.is_none() && (body.is_empty() || is_form(headers, body)) {
                    return Ok(());
                }
                (stated, format!("query {name}"))
            }
            BodyDigest::Claim(name) => {
                (token.and_then(|token| token.claim(name)), format!("claim {name}"))
            }
        };
        let stated = stated.ok_or(Rejection::NoSignedPart { place: shown })?;
        let digest = hex::encode(digest::digest(&digest::SHA256, &delivery.body));
        if stated.eq_ignore_ascii_case(&digest) { Ok(()) } else { Err(Rejection::OtherBody) }
    }

    /// Some sign for all their customers with one key: what is signed says whose it is.
    fn refuse_other_sender(
        &self,
        endpoint: &Endpoint,
        reading: &Reading<'_>,
    ) -> Result<(), Rejection> {
        let is_other = |(selector, setting): &&(Selector, String)| {
            let wanted = endpoint.setting(setting);
            wanted.is_some_and(|wanted| reading.text(selector).as_deref() != Some(wanted))
        };
        match self.pinned.iter().find(is_other) {
            Some((selector, _)) => Err(Rejection::OtherSender { place: selector.shown.clone() }),
            None => Ok(()),
        }
    }

    fn refuse_other_request(
        &self,
        values: &Values<'_>,
        token: Option<&Token<'_>>,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let Some(token) = token else { return Ok(()) };
        for (claim, template) in &self.claims {
            let stated = token.claim(claim).unwrap_or_default();
            if values.fill(template)?.concat() != stated.as_bytes() {
                return Err(Rejection::OtherRequest { claim: claim.clone() });
            }
        }
        let Some(expiry) = token.claim("exp") else { return Ok(()) };
        let place = String::from("claim exp");
        let expiry = Unit::Seconds.read(&expiry).ok_or(Rejection::MalformedTimestamp { place })?;
        let age = now.since(expiry);
        let tolerance = limits::CLOCK_SKEW;
        if age > tolerance { Err(Rejection::StaleTimestamp { age, tolerance }) } else { Ok(()) }
    }

    /// The signed time, if it lies within `tolerance` of `now` on either side.
    fn time_within(
        &self,
        text: Option<&str>,
        now: Timestamp,
        tolerance: Option<Duration>,
    ) -> Result<Option<Timestamp>, Rejection> {
        let (Some(time), Some(text)) = (&self.time, text) else { return Ok(None) };
        let at = time
            .unit
            .read_signed(text)
            .ok_or_else(|| Rejection::MalformedTimestamp { place: self.time_place() })?;
        if let Some(tolerance) = tolerance {
            let age = now.since(at);
            if age > tolerance {
                return Err(Rejection::StaleTimestamp { age, tolerance });
            }
            let ahead = at.since(now);
            if ahead > tolerance {
                return Err(Rejection::FutureTimestamp { ahead, tolerance });
            }
        }
        Ok(Some(at))
    }

    pub(crate) fn signature_place(&self) -> String {
        match &self.place {
            SignaturePlace::Headers(names) => either(names),
            SignaturePlace::Numbered(prefix) => format!("header {prefix}1"),
            SignaturePlace::Elsewhere(selector) => selector.shown.clone(),
        }
    }

    pub(crate) fn time_place(&self) -> String {
        match self.time.as_ref().map(|time| &time.place) {
            Some(TimePlace::Member(tag)) => format!("{tag} in {}", self.signature_place()),
            Some(TimePlace::Header(names)) => either(names),
            Some(TimePlace::Claim(name)) => format!("claim {name}"),
            Some(TimePlace::Body(selector)) => selector.shown.clone(),
            None => String::new(),
        }
    }
}

impl SignedPlace {
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Headers(names) => either(names),
            Self::Elsewhere(selector) => selector.shown.clone(),
        }
    }
}

impl Written<'_> {
    fn malformed(&self, problem: &'static str) -> Rejection {
        Rejection::MalformedSignature { place: self.place.clone(), problem }
    }

    fn no(&self, problem: Unreadable) -> Rejection {
        match problem {
            Unreadable::Malformed(problem) => self.malformed(problem),
            Unreadable::NoneOf(version) => {
                Rejection::UnknownVersion { place: self.place.clone(), version }
            }
        }
    }
}

/// The first of `names` that is there, with its value.
fn first<'d>(headers: &'d Headers, names: &[String]) -> Option<(&'d str, &'d str)> {
    let of = |name: &String| headers.iter().find(|(known, _)| known == name);
    names.iter().find_map(of)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix);
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn either(names: &[String]) -> String {
    header(&names.join(" or "))
}

fn header(name: &str) -> String {
    format!("header {name}")
}

/// No scheme with a signed id is older than this (September 2001).
const EARLIEST_SIGNATURE: Timestamp = Timestamp::from_secs(1_000_000_000);
const A_DAY: Duration = Duration::from_secs(86_400);
