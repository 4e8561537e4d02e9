//! What a provider's file says, in words: for people who set a source up.
//!
//! Nothing here is written down a second time. All of it follows from the file that deliveries are
//! verified and identified by, so it cannot say otherwise.

use ring::digest;
use serde::Serialize;

use crate::{
    catalogue::{self, Catalogue},
    identify::Identity,
    reply::Handshake,
    secret::{Encoding, KeyFormat, KeyText},
    select::{Condition, Each, Part, Place, Selector, Test},
    verify::{Algorithm, Coverage, Grammar, Method, Scheme, SignedPart},
};

/// A provider in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Its ways to sign, of which one has to hold.
    pub schemes: Vec<SchemeInWords>,
    /// What names its events.
    pub identities: Vec<IdentityInWords>,
    /// Requests that are no events, and what they get to hear.
    pub handshakes: Vec<String>,
    /// What its deliveries do not protect from.
    pub traps: Vec<Trap>,
}

/// A way to sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchemeInWords {
    /// The algorithm, and how the signature is written.
    pub method: String,
    /// Where the signature is.
    pub place: String,
    /// What deliveries signed like this are known by.
    pub when: Vec<String>,
    /// The list whose items are signed one by one.
    pub each: Option<String>,
    /// What is signed; one of these.
    pub signed: Vec<String>,
    /// What the names in it stand for.
    pub names: Vec<String>,
    /// Where the signed time is.
    pub time: Option<String>,
    /// How far that time may be from now.
    pub tolerance_s: Option<u64>,
    /// How much of the body is signed.
    pub covers: &'static str,
    /// The form of the secret.
    pub secret: String,
}

/// What names an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityInWords {
    /// What sets its ids apart.
    pub kind: Option<String>,
    /// The list whose items are events.
    pub each: Option<String>,
    /// What such events are known by.
    pub when: Vec<String>,
    /// The parts of the id.
    pub id: Vec<String>,
    /// The same in a word each, for a table.
    pub id_in_short: Vec<String>,
    /// Of the event's type.
    #[serde(rename = "type")]
    pub event_type: Vec<String>,
    /// Of what it is about.
    pub object: Vec<String>,
}

/// What a provider's deliveries do not protect from. Follows from its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trap {
    /// The event id lies outside what is signed.
    UnsignedId,
    /// The signature is for less than the body.
    UnsignedBody,
    /// No signed time is held against the clock.
    NoSignedTime,
    /// Nothing tells two events apart, so that each delivery is one.
    NoId,
}

impl Trap {
    /// What may happen.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::UnsignedId => {
                "the event id is not signed: a recorded delivery can come again under another id"
            }
            Self::UnsignedBody => "the signature is for less than the body",
            Self::NoSignedTime => {
                "no signed time is held against the clock: an old delivery verifies like a new one"
            }
            Self::NoId => "there is no id: each delivery is an event, a retry too",
        }
    }
}

pub(crate) fn describe(catalogue: &Catalogue, signs_event_id: bool) -> Description {
    let Catalogue { schemes, identities, handshakes, .. } = catalogue;
    let covers_all = schemes.iter().all(|scheme| scheme.covers == Coverage::Body);
    let has_time = schemes.iter().all(|scheme| scheme.time.is_some() && scheme.tolerance.is_some());
    let has_id = identities.iter().all(|identity| identity.coalesce.is_none());
    let traps = [
        (!signs_event_id).then_some(Trap::UnsignedId),
        (!covers_all).then_some(Trap::UnsignedBody),
        (!has_time).then_some(Trap::NoSignedTime),
        (!has_id).then_some(Trap::NoId),
    ];
    Description {
        schemes: schemes.iter().map(scheme).collect(),
        identities: identities.iter().map(identity).collect(),
        handshakes: handshakes.iter().map(handshake).collect(),
        traps: traps.into_iter().flatten().collect(),
    }
}

fn scheme(scheme: &Scheme) -> SchemeInWords {
    let encoding = match scheme.encoding {
        _ if scheme.jwt.is_some() => "",
        Encoding::Hex => ", hex",
        Encoding::Base64 => ", base64",
        Encoding::Base64Url => ", base64url",
        Encoding::Text => "",
    };
    let template = |template: &Vec<_>| catalogue::written(template, &scheme.parts);
    SchemeInWords {
        method: format!("{}{encoding}", method(scheme)),
        place: format!("{}{}", scheme.signature_place(), grammar(&scheme.grammar)),
        when: scheme.when.iter().map(condition).collect(),
        each: scheme.each.as_ref().map(list),
        signed: scheme.templates.iter().map(template).collect(),
        names: names(scheme),
        time: scheme.time.is_some().then(|| scheme.time_place()),
        tolerance_s: scheme.tolerance.map(|tolerance| tolerance.as_secs()),
        covers: match scheme.covers {
            Coverage::Body => "every byte of the body",
            Coverage::Checksum => "a checksum of the body, which another body can have too",
            Coverage::Parts => "some values of the body",
            Coverage::Nothing => "nothing of the body",
        },
        secret: secret(&scheme.key),
    }
}

/// Beside those that every file may use, which its README explains.
fn names(scheme: &Scheme) -> Vec<String> {
    let optional = |part: &SignedPart| if part.optional { ", or nothing" } else { "" };
    let part =
        |part: &SignedPart| format!("{{{}}}: {}{}", part.name, part.place.shown(), optional(part));
    let fields: Vec<_> = scheme.fields.iter().map(|(name, _)| name.as_str()).collect();
    let fields = (!fields.is_empty()).then(|| format!("{{fields}}: {}", fields.join(", ")));
    let headers = scheme
        .headers
        .as_ref()
        .map(|signed| format!("{{listed_headers}}: those that header {} lists", signed.list));
    scheme.parts.iter().map(part).chain(fields).chain(headers).collect()
}

fn list(each: &Each) -> String {
    if each.shown.trim() == "body" { "the body".to_owned() } else { each.shown.clone() }
}

fn method(scheme: &Scheme) -> &'static str {
    match (scheme.method, scheme.jwt) {
        (Method::Hmac(_), Some(_)) => "JWT, HS256",
        (Method::Public(Algorithm::RsaSha256), Some(_)) => "JWT, RS256",
        (Method::Public(_), Some(_)) => "JWT, ES256",
        (Method::Hmac(algorithm), None) => match algorithm.digest_algorithm().output_len() {
            digest::SHA1_OUTPUT_LEN => "HMAC-SHA1",
            digest::SHA512_OUTPUT_LEN => "HMAC-SHA512",
            _ => "HMAC-SHA256",
        },
        (Method::Digest(algorithm), _) => match algorithm.output_len() {
            digest::SHA512_OUTPUT_LEN => "SHA-512 over the secret",
            _ => "SHA-256 over the secret",
        },
        (Method::Token, _) => "shared token",
        (Method::Public(Algorithm::Ed25519), _) => "Ed25519",
        (Method::Public(Algorithm::P256Der | Algorithm::P256Fixed), _) => "ECDSA P-256",
        (Method::Public(Algorithm::RsaSha1), _) => "RSA-SHA1",
        (Method::Public(Algorithm::RsaSha256), _) => "RSA-SHA256",
    }
}

fn grammar(grammar: &Grammar) -> String {
    match grammar {
        Grammar::Plain { prefix } if prefix.is_empty() => String::new(),
        Grammar::Plain { prefix } => format!(", after \"{prefix}\""),
        Grammar::Members { separator, assign, tag } => {
            let tag = tag.as_deref().unwrap_or("…");
            format!(", as \"{tag}{assign}…\" in a list with \"{separator}\" between")
        }
    }
}

fn secret(key: &KeyFormat) -> String {
    let written = match (key.method, key.text) {
        (Method::Token, _) => "the token itself",
        (Method::Public(_), KeyText::Pem) => "the certificate or the public key, in PEM",
        (Method::Public(_), KeyText::Jwk) => "the public key, as a JSON web key",
        (Method::Public(Algorithm::Ed25519), KeyText::Hex) => "the public key, in hex",
        (Method::Public(Algorithm::Ed25519), _) => "the public key, in base64",
        (Method::Public(_), KeyText::Hex) => "the public key, DER in hex",
        (Method::Public(_), _) => "the public key, DER in base64",
        (_, KeyText::Hex) => "hex, which is decoded",
        (_, KeyText::Base64) => "base64, which is decoded",
        (_, KeyText::Html) => "text, whose HTML entities are written out",
        (_, KeyText::Sha1) => "text, whose SHA-1 is the key",
        (_, KeyText::Raw | KeyText::Pem | KeyText::Jwk) => "text, used as it is",
    };
    match (key.prefix.as_str(), key.method) {
        ("", _) => written.to_owned(),
        (prefix, Method::Public(_)) => format!("{written}, after {prefix}"),
        (prefix, _) => format!("{written}, with or without {prefix} before it"),
    }
}

fn identity(identity: &Identity) -> IdentityInWords {
    let words = |parts: &[Part]| parts.iter().map(|one| part(one, parts.len() > 1)).collect();
    IdentityInWords {
        kind: identity.kind.clone(),
        each: identity.each.as_ref().map(list),
        when: identity.when.iter().map(condition).collect(),
        id: words(&identity.id),
        id_in_short: identity.id.iter().map(part_in_short).collect(),
        event_type: words(&identity.event_type),
        object: words(&identity.object),
    }
}

/// `is_among` others, so that it has to be told where it ends.
fn part(part: &Part, is_among: bool) -> String {
    let places: Vec<_> = part.any.iter().map(selector).collect();
    let optional = if part.optional { ", if it is there" } else { "" };
    let words = format!("{}{optional}", places.join(" or "));
    if is_among && (part.optional || places.len() > 1) { format!("({words})") } else { words }
}

fn selector(selector: &Selector) -> String {
    let digest = if selector.digest { "the digest of " } else { "" };
    format!("{digest}{}", selector.shown)
}

fn part_in_short(part: &Part) -> String {
    let Some(selector) = part.any.first() else { return String::new() };
    let last = selector.shown.rsplit(['/', ' ']).find(|word| *word != "*").unwrap_or_default();
    match (&selector.place, selector.digest) {
        (Place::Received(_), _) => "arrival".to_owned(),
        (Place::Body, _) => "digest".to_owned(),
        (_, true) => format!("digest of {last}"),
        (_, false) => last.to_owned(),
    }
}

fn condition(condition: &Condition) -> String {
    let place = selector(&condition.selector);
    match &condition.test {
        Test::Is(text) => format!("{place} is \"{text}\""),
        Test::Present(true) => format!("{place} is there"),
        Test::Present(false) => format!("{place} is not there"),
    }
}

fn handshake(handshake: &Handshake) -> String {
    let Handshake { method, when, unsigned, token, challenge, confirm, reply, .. } = handshake;
    let known_by = method.iter().cloned().chain(when.iter().map(condition));
    let mut words = known_by.collect::<Vec<_>>().join(", ");
    words.push_str(if *unsigned { ", unsigned" } else { ", signed" });
    if let Some((place, setting)) = token {
        words.push_str(&format!("; {} has to be the setting {setting}", selector(place)));
    }
    if let Some(challenge) = challenge {
        let how = if challenge.hmac.is_some() { "signs" } else { "repeats" };
        words.push_str(&format!("; the answer {how} {}", selector(&challenge.place)));
    }
    if let Some((place, _)) = confirm {
        words.push_str(&format!("; the address at {} is to be called", selector(place)));
    }
    words.push_str(&format!("; answered {}", reply.status));
    words
}
