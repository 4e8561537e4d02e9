//! From a written file to a catalogue, or to the key that is wrong and why.

use std::time::Duration;

use domain::limits;

use super::{Catalogue, Fact, file, scheme::scheme};
use crate::{
    identify::Identity,
    json,
    reply::{Handshake, Reply},
    sample::Sample,
    secret::KeyFormat,
    select::{Condition, Lookups, Part, Place, Selector},
    verify::Scheme,
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
    let schemes = schemes(written.verify)?;
    let mut selectors = Selectors { lookups: Lookups::default(), schemes: &schemes };
    let identities = identities(written.identity, &mut selectors)?;
    let handshakes = handshakes(written.handshake, &mut selectors)?;
    let lookups = selectors.lookups;
    kept_headers(&written.keep_headers, &schemes)?;
    header_names("attempt_header", written.attempt_header.as_slice())?;
    for pointer in &written.volatile {
        json::steps(pointer).or_else(|problem| refuse("volatile", problem))?;
    }
    Ok(Catalogue {
        name: written.name,
        title: written.title,
        samples: samples(written.sample, &schemes)?,
        schemes,
        lookups,
        identities,
        automatic: fact("windows.automatic", written.windows.automatic)?,
        manual: fact("windows.manual", written.windows.manual)?,
        timeout: fact("timeout", written.timeout)?,
        handshakes,
        answer: reply("answer", written.answer.unwrap_or_default(), 200..=299)?,
        cautions: written.cautions,
        volatile: written.volatile,
        keep_headers: written.keep_headers,
        attempt_header: written.attempt_header,
    })
}

fn schemes(written: Vec<file::Verify>) -> Result<Vec<Scheme>, Refusal> {
    if written.is_empty() {
        return refuse("verify", "a provider without a signature cannot be received");
    }
    let read = written.into_iter().enumerate();
    let schemes: Vec<_> = read
        .map(|(at, verify)| scheme(&format!("verify[{at}]"), verify))
        .collect::<Result<_, _>>()?;
    let takes_anything = |scheme: &Scheme| matches!(&scheme.key, KeyFormat::Ed25519 { prefix, .. } if prefix.is_empty());
    if schemes.len() > 1
        && let Some(at) = schemes.iter().position(takes_anything)
    {
        let reason = "beside another scheme, an ed25519 key needs a prefix to be told from it";
        return refuse(&format!("verify[{at}].key"), reason);
    }
    Ok(schemes)
}

/// Reads selectors, and gathers what they look up in bodies.
struct Selectors<'s> {
    lookups: Lookups,
    schemes: &'s [Scheme],
}

impl Selectors<'_> {
    fn selector(&mut self, key: &str, written: file::Selector) -> Result<Selector, Refusal> {
        let refused = |problem| Refusal { key: key.to_owned(), reason: String::from(problem) };
        let file::Selector { header, signed, pointer, form } = written;
        let (place, shown) = match (header, signed, pointer, form) {
            (Some(name), None, None, None) => {
                header_names(key, std::slice::from_ref(&name))?;
                if is_signature(&name, self.schemes) {
                    return refuse(key, "a signature is another one at each attempt");
                }
                let shown = format!("header {name}");
                (Place::Header(name), shown)
            }
            (None, Some(name), None, None) => {
                let has = |scheme: &Scheme| scheme.parts.iter().any(|(known, _)| *known == name);
                if !self.schemes.iter().all(has) {
                    return refuse(key, format!("not every scheme signs a part \"{name}\""));
                }
                let shown = self.schemes.iter().flat_map(|scheme| &scheme.parts);
                let headers =
                    shown.filter(|(known, _)| *known == name).map(|(_, from)| from.join(" or "));
                let shown = format!("header {}", headers.take(1).collect::<String>());
                (Place::Signed(name), shown)
            }
            (None, None, Some(pointer), None) => {
                let slot = self.lookups.pointer(&pointer).map_err(refused)?;
                (Place::Json(slot), format!("body {pointer}"))
            }
            (None, None, pointer, Some(field)) => {
                let place = self.lookups.field(&field, pointer.as_deref()).map_err(refused)?;
                (place, format!("form field {field}{}", pointer.unwrap_or_default()))
            }
            _ => {
                return refuse(
                    key,
                    "a place is a header, a signed part, a pointer, or a form field",
                );
            }
        };
        Ok(Selector { place, shown })
    }

    fn part(&mut self, key: &str, written: file::Part) -> Result<Part, Refusal> {
        let only = written.selector();
        let any = match written.any {
            None => vec![self.selector(key, only)?],
            Some(any) if any.is_empty() => return refuse(key, "\"any\" of nothing"),
            Some(any) => {
                let file::Selector { header, signed, pointer, form } = &only;
                if [header, signed, pointer, form].iter().any(|place| place.is_some()) {
                    return refuse(key, "\"any\" goes without a place beside it");
                }
                any.into_iter()
                    .map(|selector| self.selector(key, selector))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Part { any, optional: written.optional })
    }

    fn parts(&mut self, key: &str, written: Vec<file::Part>) -> Result<Vec<Part>, Refusal> {
        let parts = written.into_iter().enumerate();
        parts.map(|(at, part)| self.part(&format!("{key}[{at}]"), part)).collect()
    }

    fn conditions(
        &mut self,
        key: &str,
        written: Vec<file::Condition>,
    ) -> Result<Vec<Condition>, Refusal> {
        let read = |condition: file::Condition| {
            let selector = self.selector(key, condition.selector())?;
            Ok(Condition { selector, is: condition.is })
        };
        written.into_iter().map(read).collect()
    }
}

fn identities(
    written: Vec<file::Identity>,
    selectors: &mut Selectors<'_>,
) -> Result<Vec<Identity>, Refusal> {
    if written.is_empty() {
        return refuse("identity", "without an id nothing can be idempotent");
    }
    let read = |(at, written): (usize, file::Identity)| {
        let key = format!("identity[{at}]");
        let is_word = |kind: &String| {
            kind.starts_with(|c: char| c.is_ascii_lowercase())
                && kind.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        match (at, &written.kind) {
            (0, None) if written.when.is_empty() => {}
            (0, _) => return refuse(&key, "the first identity takes all that no other does"),
            (_, Some(kind)) if is_word(kind) && !written.when.is_empty() => {}
            _ => return refuse(&key, "after the first, \"kind\" (a word) and \"when\" are needed"),
        }
        let id = selectors.parts(&format!("{key}.id"), written.id)?;
        if id.iter().all(|part| part.optional) {
            return refuse(&format!("{key}.id"), "one part at least is not optional");
        }
        let mut occurred_at = Vec::with_capacity(written.occurred_at.len());
        for time in written.occurred_at {
            let selector = selectors.selector(&format!("{key}.occurred_at"), time.selector())?;
            occurred_at.push((selector, time.unit));
        }
        Ok(Identity {
            kind: written.kind,
            when: selectors.conditions(&format!("{key}.when"), written.when)?,
            id,
            event_type: selectors.parts(&format!("{key}.type"), written.event_type)?,
            object: selectors.parts(&format!("{key}.object"), written.object)?,
            occurred_at,
        })
    };
    written.into_iter().enumerate().map(read).collect()
}

fn handshakes(
    written: Vec<file::Handshake>,
    selectors: &mut Selectors<'_>,
) -> Result<Vec<Handshake>, Refusal> {
    let read = |(at, written): (usize, file::Handshake)| {
        let key = format!("handshake[{at}]");
        if written.when.is_empty() {
            return refuse(&key, "without \"when\" it would swallow every event");
        }
        if written.echo.is_some() && !written.answer.body.is_empty() {
            return refuse(&key, "the body is what is echoed or what is written here, not both");
        }
        let echo = written.echo.map(|echo| selectors.selector(&format!("{key}.echo"), echo));
        Ok(Handshake {
            when: selectors.conditions(&format!("{key}.when"), written.when)?,
            reply: reply(&format!("{key}.answer"), written.answer, 200..=599)?,
            echo: echo.transpose()?,
        })
    };
    written.into_iter().enumerate().map(read).collect()
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
    schemes.iter().any(|scheme| scheme.headers.iter().any(|known| known == name))
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

const NEVER_KEPT: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];
