//! From a written `[[verify]]` to a scheme.

use std::time::Duration;

use domain::limits;
use ring::hmac;

use super::{
    checks::{Refusal, header_names, refuse},
    file::{self, Algorithm, KeyText, SchemeName},
};
use crate::{
    secret::{Encoding, KeyFormat},
    verify::{Grammar, Method, Scheme, Segment, Time, TimePlace},
};

pub(super) fn scheme(key: &str, written: file::Verify) -> Result<Scheme, Refusal> {
    let method = method(key, &written)?;
    let grammar = grammar(key, &written)?;
    let time = written.timestamp.map(|time| timestamp(key, time, &grammar)).transpose()?;
    let mut parts = Vec::with_capacity(written.part.len());
    for part in written.part {
        header_names(&format!("{key}.part"), &part.header)?;
        if part.name == "timestamp" || part.name == "body" {
            return refuse(
                &format!("{key}.part"),
                format!("\"{}\" has a meaning already", part.name),
            );
        }
        parts.push((part.name, part.header));
    }
    header_names(&format!("{key}.header"), &written.header)?;
    let template = template(&format!("{key}.signed"), &written.signed, time.is_some(), &parts)?;
    Ok(Scheme {
        method,
        key: key_format(&format!("{key}.key"), method, written.key)?,
        encoding: written.encoding,
        headers: written.header,
        grammar,
        parts,
        time,
        template,
        tolerance: tolerance(&format!("{key}.tolerance_s"), written.tolerance_s)?,
    })
}

fn tolerance(key: &str, seconds: Option<u32>) -> Result<Option<Duration>, Refusal> {
    let tolerance = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    if tolerance.is_some_and(|t| t.is_zero() || t > limits::MAX_TOLERANCE) {
        let most = limits::MAX_TOLERANCE.as_secs();
        return refuse(key, format!("1 to {most}: what is older is a replay"));
    }
    Ok(tolerance)
}

fn method(key: &str, written: &file::Verify) -> Result<Method, Refusal> {
    let algorithm = match (written.scheme, written.algorithm) {
        (SchemeName::Ed25519, None) => return Ok(Method::Ed25519),
        (SchemeName::Ed25519, Some(_)) => {
            return refuse(&format!("{key}.algorithm"), "ed25519 has no choice of algorithm");
        }
        (SchemeName::Hmac, None) => {
            return refuse(&format!("{key}.algorithm"), "hmac needs sha1, sha256 or sha512");
        }
        (SchemeName::Hmac, Some(algorithm)) => algorithm,
    };
    Ok(Method::Hmac(match algorithm {
        Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Algorithm::Sha256 => hmac::HMAC_SHA256,
        Algorithm::Sha512 => hmac::HMAC_SHA512,
    }))
}

fn grammar(key: &str, written: &file::Verify) -> Result<Grammar, Refusal> {
    match (&written.prefix, &written.members) {
        (Some(_), Some(_)) => {
            refuse(&format!("{key}.members"), "a header has a prefix or members, not both")
        }
        (prefix, None) => Ok(Grammar::Plain { prefix: prefix.clone().unwrap_or_default() }),
        (None, Some(members)) => {
            let file::Members { separator, assign, tag } = members;
            if separator == assign || tag.contains([*separator, *assign]) || tag.is_empty() {
                return refuse(&format!("{key}.members"), "separator, assign and tag must differ");
            }
            Ok(Grammar::Members { separator: *separator, assign: *assign, tag: tag.clone() })
        }
    }
}

fn timestamp(key: &str, written: file::Timestamp, grammar: &Grammar) -> Result<Time, Refusal> {
    let key = format!("{key}.timestamp");
    let place = match (written.member, written.header) {
        (Some(tag), None) => match grammar {
            Grammar::Members { tag: signature, .. } if *signature != tag => TimePlace::Member(tag),
            Grammar::Members { .. } => return refuse(&key, "that member is the signature"),
            Grammar::Plain { .. } => return refuse(&key, "the signature header has no members"),
        },
        (None, Some(names)) => {
            header_names(&key, &names)?;
            TimePlace::Header(names)
        }
        _ => return refuse(&key, "it is in a member or in a header"),
    };
    Ok(Time { place, unit: written.unit })
}

/// Cuts `{timestamp}.{body}` into segments. Everything that is named must be signed: a time or an
/// id outside the signature would be anybody's.
fn template(
    key: &str,
    written: &str,
    has_time: bool,
    parts: &[(String, Vec<String>)],
) -> Result<Vec<Segment>, Refusal> {
    let mut segments = Vec::new();
    let mut rest = written;
    while let Some((literal, tail)) = rest.split_once('{') {
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal.to_owned()));
        }
        let Some((name, tail)) = tail.split_once('}') else {
            return refuse(key, "a '{' without its '}'");
        };
        segments.push(match name {
            "body" => Segment::Body,
            "timestamp" => Segment::Timestamp,
            name => match parts.iter().position(|(known, _)| known == name) {
                Some(part) => Segment::Part(part),
                None => return refuse(key, format!("there is no part \"{name}\"")),
            },
        });
        rest = tail;
    }
    if !rest.is_empty() {
        segments.push(Segment::Literal(rest.to_owned()));
    }
    let times = |wanted: &Segment| segments.iter().filter(|segment| *segment == wanted).count();
    if times(&Segment::Body) != 1 {
        return refuse(key, "{body} must be signed, once");
    }
    if times(&Segment::Timestamp) != usize::from(has_time) {
        return refuse(key, "{timestamp} and [verify.timestamp] go together");
    }
    if let Some(part) = (0..parts.len()).find(|part| times(&Segment::Part(*part)) != 1) {
        return refuse(key, format!("part \"{}\" must be signed, once", parts[part].0));
    }
    Ok(segments)
}

fn key_format(key: &str, method: Method, written: file::KeyFormat) -> Result<KeyFormat, Refusal> {
    let file::KeyFormat { format, prefix, private_prefix } = written;
    let encoding = match format {
        KeyText::Raw => None,
        KeyText::Hex => Some(Encoding::Hex),
        KeyText::Base64 => Some(Encoding::Base64),
    };
    match (method, encoding) {
        (Method::Ed25519, None) => refuse(key, "an ed25519 key is hex or base64"),
        (Method::Ed25519, Some(encoding)) => {
            Ok(KeyFormat::Ed25519 { encoding, prefix: prefix.unwrap_or_default(), private_prefix })
        }
        (Method::Hmac(_), _) if private_prefix.is_some() => {
            refuse(key, "private_prefix is for ed25519")
        }
        (Method::Hmac(_), None) if prefix.is_some() => {
            refuse(key, "the text of a raw key is the key, with whatever it begins with")
        }
        (Method::Hmac(algorithm), None) => Ok(KeyFormat::Text { algorithm }),
        (Method::Hmac(algorithm), Some(encoding)) => {
            Ok(KeyFormat::Encoded { algorithm, encoding, prefix: prefix.unwrap_or_default() })
        }
    }
}
