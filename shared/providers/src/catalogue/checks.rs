//! From a written file to a catalogue, or to the key that is wrong and why.

use std::time::Duration;

use domain::limits;

use super::{Catalogue, Fact, Origin, file, keys::keys, places::Places, scheme::scheme};
use crate::{
    endpoint::Setting,
    identify::Identity,
    json,
    reply::{Alphabet, Challenge, Handshake, Reply, is_host_pattern},
    sample::Sample,
    select::{Lookups, Part},
    verify::{Algorithm, Method, Scheme},
};

/// The key that is wrong, as a path, and why.
pub(super) struct Refusal {
    pub(super) key: String,
    pub(super) reason: String,
}

pub(super) fn refuse<T>(key: &str, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { key: key.to_owned(), reason: reason.into() })
}

pub(super) fn checked(written: file::File) -> Result<Catalogue, Refusal> {
    let is_name = |name: &str| {
        (1..=limits::MAX_LABEL_BYTES).contains(&name.len())
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
    };
    if !is_name(&written.name) {
        return refuse("name", "a name is of a-z, 0-9, '-' and '.'");
    }
    let settings = settings(written.setting)?;
    let (schemes, lookups) = schemes(written.verify, &settings)?;
    let mut places = Places { lookups, schemes: &schemes, each: None };
    let identities = identities(written.identity, &mut places)?;
    let handshakes = handshakes(written.handshake, &mut places, &settings)?;
    let fingerprint = places.parts("fingerprint", written.fingerprint)?;
    check_fingerprint(&fingerprint, &identities, &schemes)?;
    let keys = written.keys.map(|written| keys(written, &mut places, &settings)).transpose()?;
    let lookups = places.lookups;
    kept_headers(&written.keep_headers, &schemes)?;
    header_names("attempt_header", written.attempt_header.as_slice())?;
    for pointer in &written.volatile {
        json::steps(pointer).or_else(|problem| refuse("volatile", problem))?;
    }
    let origins = written.origin.into_iter().map(|file::Origin { of, page, confidence }| Origin {
        of,
        page,
        confidence,
    });
    Ok(Catalogue {
        name: written.name,
        title: written.title,
        settings,
        samples: samples(written.sample, &schemes)?,
        schemes,
        lookups,
        identities,
        automatic: fact("windows.automatic", written.windows.automatic)?,
        manual: fact("windows.manual", written.windows.manual)?,
        timeout: fact("timeout", written.timeout)?,
        handshakes,
        keys,
        fingerprint,
        answer: reply("answer", written.answer.unwrap_or_default(), 200..=299)?,
        rejection: written.rejection.map(|own| reply("rejection", own, 400..=499)).transpose()?,
        success: written.success,
        origins: origins.collect(),
        cautions: written.cautions,
        volatile: written.volatile,
        keep_headers: written.keep_headers,
        attempt_header: written.attempt_header,
    })
}

fn settings(written: Vec<file::Setting>) -> Result<Vec<Setting>, Refusal> {
    let read = |(at, written): (usize, file::Setting)| {
        let file::Setting { name, what, one_of, optional } = written;
        let is_word =
            !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !is_word || RESERVED.contains(&name.as_str()) {
            return refuse(&format!("setting[{at}].name"), "a word of a-z, 0-9 and '_'");
        }
        Ok(Setting { name, what, one_of, optional })
    };
    written.into_iter().enumerate().map(read).collect()
}

fn schemes(
    written: Vec<file::Verify>,
    settings: &[Setting],
) -> Result<(Vec<Scheme>, Lookups), Refusal> {
    if written.is_empty() {
        return refuse("verify", "a provider without a signature cannot be received");
    }
    let mut places = Places { lookups: Lookups::default(), schemes: &[], each: None };
    let read = written.into_iter().enumerate();
    let schemes: Vec<_> = read
        .map(|(at, verify)| scheme(&format!("verify[{at}]"), verify, &mut places, settings))
        .collect::<Result<_, _>>()?;
    let takes_anything = |scheme: &Scheme| {
        matches!(scheme.method, Method::Public(Algorithm::Ed25519)) && scheme.key.prefix.is_empty()
    };
    if schemes.len() > 1
        && let Some(at) = schemes.iter().position(takes_anything)
    {
        let reason = "beside another scheme, an ed25519 key needs a prefix to be told from it";
        return refuse(&format!("verify[{at}].key"), reason);
    }
    Ok((schemes, places.lookups))
}

fn identities(
    written: Vec<file::Identity>,
    places: &mut Places<'_>,
) -> Result<Vec<Identity>, Refusal> {
    if written.is_empty() {
        return refuse("identity", "without an id nothing can be idempotent");
    }
    let mut identities: Vec<Identity> = Vec::with_capacity(written.len());
    for (at, written) in written.into_iter().enumerate() {
        let key = format!("identity[{at}]");
        places.go_through(&key, written.each.as_deref())?;
        let is_first = identities.iter().all(|earlier| earlier.each != places.each);
        let is_word = |kind: &String| {
            kind.starts_with(|c: char| c.is_ascii_lowercase())
                && kind.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        match &written.kind {
            None if at > 0 => {
                return refuse(&key, "after the first, a \"kind\" (a word) is needed");
            }
            Some(kind) if !is_word(kind) => return refuse(&key, "a \"kind\" is a word"),
            Some(_) | None => {}
        }
        let signed = places.schemes.iter().filter_map(|scheme| scheme.each.as_ref());
        if places.each.is_some()
            && signed.into_iter().any(|each| Some(each) != places.each.as_ref())
        {
            return refuse(&key, "what is signed item by item is identified item by item");
        }
        if !is_first && written.when.is_empty() {
            return refuse(&key, "only the first of those with one \"each\" takes all others");
        }
        let mut id = places.parts(&format!("{key}.id"), written.id)?;
        if id.iter().all(|part| part.optional) {
            return refuse(&format!("{key}.id"), "one part at least is not optional");
        }
        let coalesce = coalesce(&format!("{key}.coalesce_s"), written.coalesce_s)?;
        id.extend(coalesce.map(Part::received));
        let mut occurred_at = Vec::with_capacity(written.occurred_at.len());
        for time in written.occurred_at {
            let selector = places.selector(&format!("{key}.occurred_at"), time.selector())?;
            occurred_at.push((selector, time.unit));
        }
        identities.push(Identity {
            kind: written.kind,
            when: places.conditions(&format!("{key}.when"), written.when)?,
            id,
            event_type: places.parts(&format!("{key}.type"), written.event_type)?,
            object: places.parts(&format!("{key}.object"), written.object)?,
            occurred_at,
            coalesce,
            each: places.each.take(),
        });
    }
    Ok(identities)
}

/// What is left to its sender's choice, or may be missing, tells nothing from anything.
fn check_fingerprint(
    fingerprint: &[Part],
    identities: &[Identity],
    schemes: &[Scheme],
) -> Result<(), Refusal> {
    const KEY: &str = "fingerprint";
    if fingerprint.is_empty() {
        return Ok(());
    }
    if identities.iter().any(|identity| identity.each.is_some()) {
        return refuse(KEY, "it is a whole delivery's, and there are events in lists");
    }
    if identities.iter().any(|identity| identity.coalesce.is_some()) {
        return refuse(KEY, "with \"coalesce_s\" equal deliveries are further changes");
    }
    let is_signed = |part: &Part| {
        let mut places = part.any.iter().map(|selector| &selector.place);
        !part.optional && places.all(|place| schemes.iter().all(|scheme| scheme.signs(place)))
    };
    if !fingerprint.iter().any(is_signed) {
        return refuse(KEY, "one part at least is signed and not optional");
    }
    Ok(())
}

fn coalesce(key: &str, written: Option<u32>) -> Result<Option<Duration>, Refusal> {
    let window = written.map(|seconds| Duration::from_secs(seconds.into()));
    let longest = limits::MAX_COALESCING;
    if window.is_some_and(|window| window.is_zero() || window > longest) {
        return refuse(key, format!("1 to {} seconds", longest.as_secs()));
    }
    Ok(window)
}

fn handshakes(
    written: Vec<file::Handshake>,
    places: &mut Places<'_>,
    settings: &[Setting],
) -> Result<Vec<Handshake>, Refusal> {
    let read = |(at, written): (usize, file::Handshake)| {
        let key = format!("handshake[{at}]");
        let is_unmistakable = written.method.as_deref().is_some_and(|method| method != "POST");
        if written.when.is_empty() && !is_unmistakable {
            return refuse(&key, "without \"when\" it would swallow every event");
        }
        let token = match written.token {
            Some(token) if settings.iter().any(|setting| setting.name == token.setting) => {
                Some((places.selector(&format!("{key}.token"), token.selector())?, token.setting))
            }
            Some(_) => return refuse(&format!("{key}.token"), "it is compared with a setting"),
            None => None,
        };
        let mut reply = reply(&format!("{key}.answer"), written.answer, 200..=599)?;
        let challenge = match written.challenge {
            Some(written) => Some(challenge(&key, &written, &mut reply, places)?),
            None => None,
        };
        let confirm = match written.confirm {
            Some(confirm) => {
                let key = format!("{key}.confirm");
                if let Some(host) = confirm.hosts.iter().find(|h| !is_host_pattern(h, |_| false)) {
                    let reason = format!("{host} is no host: \"*\" only for a region");
                    return refuse(&format!("{key}.confirm.hosts"), reason);
                }
                if confirm.hosts.is_empty() {
                    return refuse(&key, "there is no host to call");
                }
                let place = places.selector(&key, confirm.selector())?;
                Some((place, confirm.hosts))
            }
            None => None,
        };
        if written.unsigned && confirm.is_some() {
            return refuse(&key, "what confirms a subscription is signed");
        }
        Ok(Handshake {
            method: written.method,
            when: places.conditions(&format!("{key}.when"), written.when)?,
            unsigned: written.unsigned,
            token,
            challenge,
            confirm,
            reply,
            refusal: written.refusal.unwrap_or(400),
        })
    };
    written.into_iter().enumerate().map(read).collect()
}

/// What is sent back to anybody must not be a page, nor a quotation mark in JSON.
fn challenge(
    key: &str,
    written: &file::Challenge,
    reply: &mut Reply,
    places: &mut Places<'_>,
) -> Result<Challenge, Refusal> {
    let key = format!("{key}.challenge");
    let is_json = reply.body.contains('"');
    let narrow = is_json || written.hmac.is_some();
    let alphabet =
        written.alphabet.unwrap_or(if narrow { Alphabet::Token } else { Alphabet::Text });
    if narrow && alphabet == Alphabet::Text {
        return refuse(&key, "what is quoted or signed is of a narrower alphabet");
    }
    if reply.body.contains("{{hmac}}") != written.hmac.is_some() {
        return refuse(&key, "{{hmac}} and \"hmac\" go together");
    }
    if written.hmac.is_none() && !reply.body.contains("{{challenge}}") {
        return refuse(&key, "the answer has no {{challenge}}");
    }
    if reply.headers.is_empty() {
        let media_type = if is_json { "application/json" } else { "text/plain" };
        reply.headers.push(("content-type".to_owned(), media_type.to_owned()));
    }
    reply.headers.push(("x-content-type-options".to_owned(), "nosniff".to_owned()));
    Ok(Challenge {
        place: places.selector(&key, written.selector())?,
        alphabet,
        longest: written.longest.unwrap_or(MAX_CHALLENGE_BYTES).min(MAX_CHALLENGE_BYTES),
        hmac: written.hmac,
    })
}

fn reply(
    key: &str,
    written: file::Answer,
    statuses: std::ops::RangeInclusive<u16>,
) -> Result<Reply, Refusal> {
    let file::Answer { status, content_type, body } = written;
    if !statuses.contains(&status) {
        let (from, to) = (statuses.start(), statuses.end());
        return refuse(key, format!("the status is between {from} and {to}"));
    }
    let headers = content_type.map(|value| ("content-type".to_owned(), value));
    Ok(Reply { status, headers: headers.into_iter().collect(), body })
}

fn fact(key: &str, written: Option<file::Fact>) -> Result<Option<Fact>, Refusal> {
    let Some(file::Fact { seconds, page, confidence, note }) = written else { return Ok(None) };
    let value = Duration::from_secs(seconds.into());
    if value + limits::RETENTION_MARGIN > limits::MAX_RETENTION {
        return refuse(key, "longer than any record is kept");
    }
    if page.is_empty() {
        return refuse(key, "a fact names its page");
    }
    Ok(Some(Fact { value, page, confidence, note }))
}

fn samples(written: Vec<file::Sample>, schemes: &[Scheme]) -> Result<Vec<Sample>, Refusal> {
    let read = |(at, written): (usize, file::Sample)| {
        let key = format!("sample[{at}]");
        let names: Vec<_> = written.headers.iter().map(|(name, _)| name.clone()).collect();
        header_names(&key, &names)?;
        if names.iter().any(|name| is_signature(name, schemes)) {
            return refuse(&key, "a sample is signed when it is sent");
        }
        Ok(Sample {
            event_type: (!written.any_type).then(|| written.event_type.clone()),
            default_type: written.event_type,
            headers: written.headers,
            body: written.body,
        })
    };
    written.into_iter().enumerate().map(read).collect()
}

/// Kept headers lie on records for as long as the records do.
fn kept_headers(names: &[String], schemes: &[Scheme]) -> Result<(), Refusal> {
    header_names("keep_headers", names)?;
    if names.len() > limits::MAX_KEPT_HEADERS {
        let most = limits::MAX_KEPT_HEADERS;
        return refuse("keep_headers", format!("{most} at most"));
    }
    let is_secret =
        |name: &String| is_signature(name, schemes) || NEVER_KEPT.contains(&name.as_str());
    match names.iter().find(|name| is_secret(name)) {
        Some(name) => refuse("keep_headers", format!("{name} is a signature or a secret")),
        None => Ok(()),
    }
}

fn is_signature(name: &str, schemes: &[Scheme]) -> bool {
    schemes.iter().any(|scheme| scheme.is_signature(name))
}

/// Names are compared in lower case, so a name written otherwise would never be found.
pub(super) fn header_names(key: &str, names: &[String]) -> Result<(), Refusal> {
    let is_name = |name: &String| {
        !name.is_empty()
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => refuse(key, format!("\"{name}\" is no header name in lower case")),
        None => Ok(()),
    }
}

/// Longest challenge that is sent back. Those seen have under 100 bytes.
const MAX_CHALLENGE_BYTES: usize = 1024;
/// Names with a meaning of their own where settings are filled in.
const RESERVED: [&str; 4] = ["api_secret", "challenge", "hmac", "key_id"];
const NEVER_KEPT: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];
