//! One way of signing: which header, over which text, with what.

use std::time::Duration;

use domain::{
    delivery::{Delivery, Headers},
    time::Timestamp,
};
use ring::{hmac, signature};

use super::{Grammar, Rejection, Signed, header::Unreadable};
use crate::{
    CannotSign,
    secret::{Encoding, KeyFormat, Material},
    unit::Unit,
};

/// A scheme of the catalogue.
#[derive(Debug)]
pub(crate) struct Scheme {
    pub(crate) method: Method,
    pub(crate) key: KeyFormat,
    /// Of the signature.
    pub(crate) encoding: Encoding,
    /// Where the signature is; the first of these that is there.
    pub(crate) headers: Vec<String>,
    pub(crate) grammar: Grammar,
    /// Signed values by name, each with the headers it may be in.
    pub(crate) parts: Vec<(String, Vec<String>)>,
    pub(crate) time: Option<Time>,
    /// What is signed.
    pub(crate) template: Vec<Segment>,
    pub(crate) tolerance: Option<Duration>,
}

/// What computes the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Hmac(hmac::Algorithm),
    Ed25519,
}

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
}

/// A piece of the signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    Timestamp,
    /// A part, by index.
    Part(usize),
    Body,
}

/// The values of a delivery that go into the signed text, exactly as received.
struct Values<'d> {
    time: Option<&'d str>,
    parts: Vec<(&'d str, &'d str)>,
    body: &'d [u8],
}

impl Scheme {
    /// Whether one of `keys` signed this delivery, and when.
    pub(super) fn check(
        &self,
        delivery: &Delivery,
        keys: &[&Material],
        now: Timestamp,
        tolerance: Option<Duration>,
    ) -> Result<Signed, Rejection> {
        let (header, text) = first(&delivery.headers, &self.headers)
            .ok_or_else(|| Rejection::NoSignature { header: either(&self.headers) })?;
        let signatures = self.signatures(header, text)?;
        let values = Values {
            time: self.time_text(&delivery.headers, header, text)?,
            parts: self
                .part_values(&delivery.headers)
                .map_err(|header| Rejection::NoSignedPart { header })?,
            body: &delivery.body,
        };
        self.refuse_ambiguity(&values, now)?;
        let signed = self.signed_text(&values);
        if !keys.iter().any(|key| self.matches(key, &signed, &signatures)) {
            return Err(Rejection::BadSignature);
        }
        let at = self.time_within(values.time, now, tolerance.or(self.tolerance))?;
        let names = self.parts.iter().map(|(name, _)| name.clone());
        let parts = names.zip(values.parts.iter().map(|(_, value)| (*value).to_owned())).collect();
        Ok(Signed { at, parts })
    }

    /// Signatures that decode. One that does not is skipped as long as another does.
    fn signatures(&self, header: &str, text: &str) -> Result<Vec<Vec<u8>>, Rejection> {
        let written = self.grammar.signatures(text).map_err(|problem| rejected(header, problem))?;
        let decoded: Vec<_> = written
            .into_iter()
            .filter_map(|signature| self.encoding.decode(signature))
            .filter(|signature| signature.len() == self.method.signature_bytes())
            .collect();
        if decoded.is_empty() {
            let problem = match self.encoding {
                Encoding::Hex => "it is not hex of a signature's length",
                Encoding::Base64 => "it is not base64 of a signature's length",
            };
            return Err(rejected(header, Unreadable::Malformed(problem)));
        }
        Ok(decoded)
    }

    fn time_text<'d>(
        &'d self,
        headers: &'d Headers,
        header: &str,
        text: &'d str,
    ) -> Result<Option<&'d str>, Rejection> {
        let Some(time) = &self.time else { return Ok(None) };
        let found = match &time.place {
            TimePlace::Member(tag) => {
                self.grammar.only(text, tag).map_err(|problem| rejected(header, problem))?
            }
            TimePlace::Header(names) => first(headers, names).map(|(_, text)| text),
        };
        found.map(Some).ok_or_else(|| Rejection::NoTimestamp { place: self.time_place() })
    }

    /// Header and value of each part, or the header that is missing.
    fn part_values<'d>(&'d self, headers: &'d Headers) -> Result<Vec<(&'d str, &'d str)>, String> {
        let value = |(_, names): &'d (String, Vec<String>)| {
            first(headers, names)
                .filter(|(_, value)| !value.is_empty())
                .ok_or_else(|| either(names))
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
        for window in self.template.windows(3) {
            let [Segment::Part(part), Segment::Literal(separator), Segment::Timestamp] = window
            else {
                continue;
            };
            let (header, value) = values.parts[*part];
            let holds_a_time = value.split(separator.as_str()).skip(1).any(|piece| {
                time.unit
                    .read_signed(piece)
                    .is_some_and(|at| EARLIEST_SIGNATURE < at && at < now.plus(A_DAY))
            });
            if holds_a_time {
                return Err(Rejection::AmbiguousSignedPart { header: header.to_owned() });
            }
        }
        Ok(())
    }

    fn signed_text<'d>(&'d self, values: &Values<'d>) -> Vec<&'d [u8]> {
        let bytes = |segment: &'d Segment| match segment {
            Segment::Literal(text) => text.as_bytes(),
            Segment::Timestamp => values.time.unwrap_or_default().as_bytes(),
            Segment::Part(part) => values.parts[*part].1.as_bytes(),
            Segment::Body => values.body,
        };
        self.template.iter().map(bytes).collect()
    }

    fn matches(&self, key: &Material, signed: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        match key {
            Material::Shared(key) => {
                // The body is hashed once, however many signatures there are. They are compared by
                // their own codes under the same key: equal exactly if they are, and in constant
                // time.
                let expected = hmac::sign(key, tag(key, signed).as_ref());
                signatures
                    .iter()
                    .any(|signature| hmac::verify(key, signature, expected.as_ref()).is_ok())
            }
            Material::Public(public) => is_signed(public, signed, signatures),
            Material::Pair(pair) => {
                is_signed(signature::KeyPair::public_key(&**pair).as_ref(), signed, signatures)
            }
        }
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

    fn time_place(&self) -> String {
        match self.time.as_ref().map(|time| &time.place) {
            Some(TimePlace::Member(tag)) => format!("{tag} in header {}", either(&self.headers)),
            Some(TimePlace::Header(names)) => format!("header {}", either(names)),
            None => String::new(),
        }
    }

    /// Adds the signature headers to `headers`, in place of any that are there.
    pub(crate) fn sign(
        &self,
        key: &Material,
        headers: &Headers,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Headers, CannotSign> {
        let time = self.time.as_ref().map(|time| time.unit.write(now));
        let parts =
            self.part_values(headers).map_err(|header| CannotSign::MissingHeader { header })?;
        let signed = self.signed_text(&Values { time: time.as_deref(), parts, body });
        let signature = match key {
            Material::Shared(key) => self.encoding.encode(tag(key, &signed).as_ref()),
            Material::Pair(pair) => self.encoding.encode(pair.sign(&signed.concat()).as_ref()),
            Material::Public(_) => return Err(CannotSign::PublicKey),
        };
        let member = match (&self.time, &time) {
            (Some(Time { place: TimePlace::Member(tag), .. }), Some(time)) => {
                Some((tag.as_str(), time.as_str()))
            }
            _ => None,
        };
        let mut added = vec![(self.headers[0].as_str(), self.grammar.write(member, &signature))];
        if let (Some(Time { place: TimePlace::Header(names), .. }), Some(time)) =
            (&self.time, &time)
        {
            added.push((&names[0], time.clone()));
        }
        let kept = headers
            .iter()
            .filter(|(name, _)| added.iter().all(|(new, _)| new != name))
            .map(|(name, value)| (name, value.to_owned()));
        Ok(kept.chain(added.iter().cloned()).collect())
    }
}

impl Method {
    fn signature_bytes(self) -> usize {
        match self {
            Self::Hmac(algorithm) => algorithm.digest_algorithm().output_len(),
            Self::Ed25519 => ED25519_SIGNATURE_BYTES,
        }
    }
}

fn tag(key: &hmac::Key, signed: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for piece in signed {
        context.update(piece);
    }
    context.sign()
}

fn is_signed(public: &[u8], signed: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
    let key = signature::UnparsedPublicKey::new(&signature::ED25519, public);
    let text = signed.concat();
    signatures.iter().any(|signature| key.verify(&text, signature).is_ok())
}

fn rejected(header: &str, problem: Unreadable) -> Rejection {
    let header = header.to_owned();
    match problem {
        Unreadable::Malformed(problem) => Rejection::MalformedSignature { header, problem },
        Unreadable::NoneOf(version) => Rejection::UnknownVersion { header, version },
    }
}

/// The first of `names` that is there, with its value.
fn first<'d>(headers: &'d Headers, names: &'d [String]) -> Option<(&'d str, &'d str)> {
    names.iter().find_map(|name| Some((name.as_str(), headers.get(name)?)))
}

fn either(names: &[String]) -> String {
    names.join(" or ")
}

/// No scheme with a signed id is older than this (September 2001).
const EARLIEST_SIGNATURE: Timestamp = Timestamp::from_secs(1_000_000_000);
const ED25519_SIGNATURE_BYTES: usize = 64;
const A_DAY: Duration = Duration::from_secs(86_400);
