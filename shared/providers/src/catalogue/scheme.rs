//! From a written `[[verify]]` to a scheme.

use std::time::Duration;

use domain::limits;
use ring::{digest, hmac};

use super::{
    checks::{Refusal, header_names, refuse},
    file::{self, OneOrMany, SchemeName},
    places::Places,
};
use crate::{
    endpoint::Setting,
    secret::{Encoding, KeyFormat, KeyText},
    select::{Place, Selector},
    verify::{
        Algorithm, BodyDigest, Coverage, Fields, Grammar, Method, Scheme, Segment, SignaturePlace,
        SignedHeaders, SignedPart, SignedPlace, Spelling, Time, TimePlace,
    },
};

pub(super) fn scheme(
    key: &str,
    mut written: file::Verify,
    places: &mut Places<'_>,
    settings: &[Setting],
) -> Result<Scheme, Refusal> {
    places.go_through(key, written.each.as_deref())?;
    let method = method(key, &written)?;
    let grammar = grammar(key, &written)?;
    let place = signature_place(key, &mut written, places)?;
    let time = written.timestamp.take();
    let time = time.map(|time| timestamp(key, time, &grammar, places)).transpose()?;
    let mut parts = Vec::with_capacity(written.part.len());
    for part in std::mem::take(&mut written.part) {
        parts.push(signed_part(&format!("{key}.part"), part, places)?);
    }
    let fields = fields(&format!("{key}.fields"), &written.fields, places)?;
    let headers = written.listed_headers.take().map(|file::SignedHeaders { list, required }| {
        header_names(&format!("{key}.listed_headers"), &[&[list.clone()][..], &required].concat())?;
        Ok(SignedHeaders { list, required })
    });
    let headers = headers.transpose()?;
    let names = Names { parts: &parts, settings };
    let templates = templates(key, &written, &names, time.as_ref())?;
    let mut claims = Vec::with_capacity(written.claims.len());
    for (claim, text) in &written.claims {
        claims.push((claim.clone(), segments(&format!("{key}.claims"), text, &names)?));
    }
    let body_digest = written.body_digest.map(|digest| match digest {
        file::BodyDigest::Query(name) => BodyDigest::Query(name),
        file::BodyDigest::Claim(name) => BodyDigest::Claim(name),
    });
    let covers = coverage(key, written.covers, &templates, &fields, body_digest.as_ref(), &parts)?;
    let signed = Signed { parts: &parts, fields: &fields, headers: headers.as_ref(), covers };
    time_is_signed(key, time.as_ref(), &templates, &signed)?;
    let pinned = pinned(&format!("{key}.pinned"), &written.pinned, places, settings)?;
    let encoding = match (written.scheme, written.encoding) {
        (SchemeName::Jwt, None) => Encoding::Base64Url,
        (SchemeName::Token, None) => Encoding::Text,
        (SchemeName::Jwt, Some(_)) => return refuse(key, "a token is always base64url"),
        (_, Some(encoding)) => encoding,
        (_, None) => return refuse(key, "the encoding of the signature is missing"),
    };
    let scheme = Scheme {
        method,
        key: key_format(&format!("{key}.key"), written.scheme, method, written.key)?,
        encoding,
        place,
        grammar,
        jwt: match (written.scheme, method) {
            (SchemeName::Jwt, Method::Hmac(_)) => Some("HS256"),
            (SchemeName::Jwt, Method::Public(Algorithm::RsaSha256)) => Some("RS256"),
            (SchemeName::Jwt, _) => Some("ES256"),
            _ => None,
        },
        when: places.conditions(&format!("{key}.when"), written.when)?,
        each: places.each.take(),
        parts,
        fields,
        headers,
        time,
        templates,
        body_digest,
        claims,
        pinned,
        tolerance: tolerance(&format!("{key}.tolerance_s"), written.tolerance_s)?,
        covers,
    };
    match scheme.pinned.iter().find(|(selector, _)| !scheme.signs(&selector.place)) {
        Some((selector, _)) => {
            refuse(&format!("{key}.pinned"), format!("{} is not signed", selector.shown))
        }
        None => Ok(scheme),
    }
}

fn pinned(
    key: &str,
    written: &[file::Token],
    places: &mut Places<'_>,
    settings: &[Setting],
) -> Result<Vec<(Selector, String)>, Refusal> {
    let read = |token: &file::Token| {
        if settings.iter().all(|setting| setting.name != token.setting) {
            return refuse(key, "it is compared with a setting");
        }
        Ok((places.selector(key, token.selector())?, token.setting.clone()))
    };
    written.iter().map(read).collect()
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
    use SchemeName::{Digest, EcdsaP256, Ed25519, Hmac, Jwt, Rsa, Token};
    use file::Algorithm::{Es256, Hs256, Rs256, Sha1, Sha256, Sha512};
    Ok(match (written.scheme, written.algorithm) {
        (Hmac, Some(Sha1)) => Method::Hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        (Hmac, Some(Sha256)) | (Jwt, Some(Hs256)) => Method::Hmac(hmac::HMAC_SHA256),
        (Hmac, Some(Sha512)) => Method::Hmac(hmac::HMAC_SHA512),
        (Digest, Some(Sha256)) => Method::Digest(&digest::SHA256),
        (Digest, Some(Sha512)) => Method::Digest(&digest::SHA512),
        (Ed25519, None) => Method::Public(Algorithm::Ed25519),
        (EcdsaP256, None) => Method::Public(Algorithm::P256Der),
        (Jwt, Some(Es256)) => Method::Public(Algorithm::P256Fixed),
        (Rsa, Some(Sha1)) => Method::Public(Algorithm::RsaSha1),
        (Rsa, Some(Sha256)) | (Jwt, Some(Rs256)) => Method::Public(Algorithm::RsaSha256),
        (Token, None) => Method::Token,
        (scheme, _) => {
            let reason = match scheme {
                Hmac => "hmac needs sha1, sha256 or sha512",
                Digest => "digest needs sha256 or sha512",
                Rsa => "rsa needs sha1 or sha256",
                Jwt => "jwt needs es256, rs256 or hs256",
                Ed25519 | EcdsaP256 | Token => "this scheme has no choice of algorithm",
            };
            return refuse(&format!("{key}.algorithm"), reason);
        }
    })
}

fn grammar(key: &str, written: &file::Verify) -> Result<Grammar, Refusal> {
    match (&written.prefix, &written.members) {
        (Some(_), Some(_)) => {
            refuse(&format!("{key}.members"), "a header has a prefix or members, not both")
        }
        (prefix, None) => Ok(Grammar::Plain { prefix: prefix.clone().unwrap_or_default() }),
        (None, Some(members)) => {
            let file::Members { separator, assign, tag } = members;
            let is_tag = tag
                .as_ref()
                .is_none_or(|tag| !tag.is_empty() && !tag.contains([*separator, *assign]));
            if separator == assign || !is_tag {
                return refuse(&format!("{key}.members"), "separator, assign and tag must differ");
            }
            Ok(Grammar::Members { separator: *separator, assign: *assign, tag: tag.clone() })
        }
    }
}

fn signature_place(
    key: &str,
    written: &mut file::Verify,
    places: &mut Places<'_>,
) -> Result<SignaturePlace, Refusal> {
    let header = std::mem::take(&mut written.header);
    let (query, pointer, form) =
        (written.query.take(), written.pointer.take(), written.form.take());
    let is_elsewhere = query.is_some() || pointer.is_some() || form.is_some();
    match header.as_slice() {
        [] if is_elsewhere => {
            let selector = file::Selector { query, pointer, form, ..file::Selector::default() };
            places.selector(key, selector).map(SignaturePlace::Elsewhere)
        }
        [] => refuse(&format!("{key}.header"), "it is missing, or another place of the signature"),
        _ if is_elsewhere => refuse(&format!("{key}.header"), "a signature has one place"),
        [only] if only.ends_with('#') => {
            let prefix = only.trim_end_matches('#').to_owned();
            header_names(&format!("{key}.header"), std::slice::from_ref(&prefix))?;
            Ok(SignaturePlace::Numbered(prefix))
        }
        _ => {
            header_names(&format!("{key}.header"), &header)?;
            Ok(SignaturePlace::Headers(header))
        }
    }
}

fn timestamp(
    key: &str,
    written: file::Timestamp,
    grammar: &Grammar,
    places: &mut Places<'_>,
) -> Result<Time, Refusal> {
    let key = format!("{key}.timestamp");
    let file::Timestamp { member, header, claim, pointer, unit } = written;
    let place = match (member, header, claim, pointer) {
        (Some(tag), None, None, None) => match grammar {
            Grammar::Members { tag: signature, .. } if signature.as_ref() != Some(&tag) => {
                TimePlace::Member(tag)
            }
            Grammar::Members { .. } => return refuse(&key, "that member is the signature"),
            Grammar::Plain { .. } => return refuse(&key, "the signature header has no members"),
        },
        (None, Some(names), None, None) => {
            header_names(&key, &names)?;
            TimePlace::Header(names)
        }
        (None, None, Some(name), None) => TimePlace::Claim(name),
        (None, None, None, Some(pointer)) => {
            let selector = file::Selector { pointer: Some(pointer), ..file::Selector::default() };
            TimePlace::Body(places.selector(&key, selector)?)
        }
        _ => return refuse(&key, "it is in a member, a header, a claim or at a pointer"),
    };
    Ok(Time { place, unit })
}

fn signed_part(
    key: &str,
    written: file::SignedPart,
    places: &mut Places<'_>,
) -> Result<SignedPart, Refusal> {
    let file::SignedPart { name, header, query, pointer, form, optional } = written;
    if PLACEHOLDERS.iter().any(|(known, _)| *known == name) {
        return refuse(key, format!("\"{name}\" has a meaning already"));
    }
    let place = if header.is_empty() {
        let selector = file::Selector { query, pointer, form, ..file::Selector::default() };
        SignedPlace::Elsewhere(places.selector(key, selector)?)
    } else {
        header_names(key, &header)?;
        SignedPlace::Headers(header)
    };
    Ok(SignedPart { name, place, optional })
}

fn fields(key: &str, written: &[String], places: &mut Places<'_>) -> Result<Fields, Refusal> {
    let read = |pointer: &String| {
        let name = pointer.rsplit('/').next().unwrap_or_default().to_owned();
        let selector =
            file::Selector { pointer: Some(pointer.clone()), ..file::Selector::default() };
        Ok((name, places.selector(key, selector)?))
    };
    written.iter().map(read).collect()
}

/// What a template's names stand for.
struct Names<'n> {
    parts: &'n [SignedPart],
    settings: &'n [Setting],
}

/// The texts that may be signed. What is named must be signed: a time or an id outside the
/// signature would be anybody's.
fn templates(
    key: &str,
    written: &file::Verify,
    names: &Names<'_>,
    time: Option<&Time>,
) -> Result<Vec<Vec<Segment>>, Refusal> {
    let key = format!("{key}.signed");
    let texts = match (&written.signed, written.scheme) {
        (None, SchemeName::Jwt | SchemeName::Token) => return Ok(Vec::new()),
        (None, _) => return refuse(&key, "what is signed is missing"),
        (Some(_), SchemeName::Jwt) => return refuse(&key, "a token says itself what is signed"),
        (Some(_), SchemeName::Token) => return refuse(&key, "a shared token signs nothing"),
        (Some(OneOrMany::One(text)), _) => std::slice::from_ref(text),
        (Some(OneOrMany::Many(texts)), _) => texts.as_slice(),
    };
    if texts.is_empty() {
        return refuse(&key, "what is signed is missing");
    }
    let mut templates = Vec::with_capacity(texts.len());
    for text in texts {
        let template = segments(&key, text, names)?;
        let times = |wanted: &Segment| template.iter().filter(|at| *at == wanted).count();
        if times(&Segment::Body) > 1 {
            return refuse(&key, "{body} must be signed, once");
        }
        if times(&Segment::Timestamp) > usize::from(time.is_some()) {
            return refuse(&key, "{timestamp} and [verify.timestamp] go together");
        }
        let part = (0..names.parts.len()).find(|part| times(&Segment::Part(*part)) != 1);
        if let Some(part) = part {
            return refuse(
                &key,
                format!("part \"{}\" must be signed, once", names.parts[part].name),
            );
        }
        if (times(&Segment::Fields) == 1) == written.fields.is_empty() {
            return refuse(&key, "{fields} and \"fields\" go together");
        }
        if (times(&Segment::Secret) == 1) != (written.scheme == SchemeName::Digest) {
            return refuse(&key, "{secret} is signed by a digest, and by nothing else");
        }
        templates.push(template);
    }
    Ok(templates)
}

/// Cuts `{timestamp}.{body}` into segments.
fn segments(key: &str, written: &str, names: &Names<'_>) -> Result<Vec<Segment>, Refusal> {
    let mut segments = Vec::new();
    let mut rest = written;
    while let Some((literal, tail)) = rest.split_once('{') {
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal.to_owned()));
        }
        let Some((name, tail)) = tail.split_once('}') else {
            return refuse(key, "a '{' without its '}'");
        };
        let known = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
        let part = names.parts.iter().position(|part| part.name == name);
        let setting = names.settings.iter().find(|setting| setting.name == name);
        segments.push(match (known, part, setting) {
            (Some((_, segment)), _, _) => segment.clone(),
            (None, Some(part), _) => Segment::Part(part),
            (None, None, Some(setting)) => Segment::Setting(setting.name.clone()),
            (None, None, None) => {
                return refuse(key, format!("there is no part \"{name}\""));
            }
        });
        rest = tail;
    }
    if !rest.is_empty() {
        segments.push(Segment::Literal(rest.to_owned()));
    }
    Ok(segments)
}

/// A template as its file writes it.
pub(crate) fn written(template: &[Segment], parts: &[SignedPart]) -> String {
    let piece = |segment: &Segment| {
        if let Segment::Literal(text) = segment {
            return text.clone();
        }
        let known = PLACEHOLDERS.iter().find(|(_, known)| known == segment);
        let name = match (known, segment) {
            (Some((name, _)), _) => name,
            (None, Segment::Part(part)) => parts[*part].name.as_str(),
            (None, Segment::Setting(name)) => name,
            (None, _) => "",
        };
        format!("{{{name}}}")
    };
    template.iter().map(piece).collect()
}

/// How much of the body is signed by every one of the templates. Less than all of it has to be
/// said in the file, so that nobody is surprised.
fn coverage(
    key: &str,
    written: Option<Coverage>,
    templates: &[Vec<Segment>],
    fields: &Fields,
    digest: Option<&BodyDigest>,
    parts: &[SignedPart],
) -> Result<Coverage, Refusal> {
    let all = |wanted: &Segment| {
        !templates.is_empty() && templates.iter().all(|template| template.contains(wanted))
    };
    // A form is signed whole; what is neither a form nor empty has its digest in the signed query.
    let by_query = matches!(digest, Some(BodyDigest::Query(_))) && all(&Segment::Form);
    let by_claim = matches!(digest, Some(BodyDigest::Claim(_)));
    if matches!(digest, Some(BodyDigest::Query(_)))
        != templates.iter().any(|t| t.contains(&Segment::Form))
    {
        return refuse(
            &format!("{key}.body_digest"),
            "{form} and the digest of other bodies go together",
        );
    }
    let in_body =
        |selector: &Selector| matches!(selector.place, Place::Json(_) | Place::Form { .. });
    let some = !fields.is_empty()
        || parts.iter().any(
            |part| matches!(&part.place, SignedPlace::Elsewhere(selector) if in_body(selector)),
        );
    let covers = if all(&Segment::Body) || by_query || by_claim {
        Coverage::Body
    } else if all(&Segment::BodyCrc32) {
        Coverage::Checksum
    } else if some {
        Coverage::Parts
    } else {
        Coverage::Nothing
    };
    match written {
        Some(written) if written == covers => Ok(covers),
        // That what is covered does not name an event is for a person to know.
        Some(Coverage::Nothing) if covers == Coverage::Parts => Ok(Coverage::Nothing),
        None if covers == Coverage::Body => Ok(covers),
        None => refuse(
            &format!("{key}.signed"),
            "{body} must be signed, once; if the provider does not, say what the signature covers",
        ),
        Some(_) => refuse(&format!("{key}.covers"), "that is not what the signature covers"),
    }
}

/// What a scheme signs besides its template.
struct Signed<'s> {
    parts: &'s [SignedPart],
    fields: &'s Fields,
    headers: Option<&'s SignedHeaders>,
    covers: Coverage,
}

/// Refuses a time that is checked and not signed: it would be anybody's.
fn time_is_signed(
    key: &str,
    time: Option<&Time>,
    templates: &[Vec<Segment>],
    signed: &Signed<'_>,
) -> Result<(), Refusal> {
    let Some(Time { place, .. }) = time else { return Ok(()) };
    let is_written = !templates.is_empty()
        && templates.iter().all(|template| template.contains(&Segment::Timestamp));
    let is_signed = match place {
        TimePlace::Member(_) => is_written,
        TimePlace::Claim(_) => true,
        TimePlace::Header(names) => {
            let is_required = |name: &String| {
                signed.headers.is_some_and(|headers| headers.required.contains(name))
            };
            is_written || names.iter().all(is_required)
        }
        TimePlace::Body(time) => {
            let is_part = |part: &SignedPart| matches!(&part.place, SignedPlace::Elsewhere(at) if at.place == time.place);
            is_written
                || signed.covers == Coverage::Body
                || signed.fields.iter().any(|(_, at)| at.place == time.place)
                || signed.parts.iter().any(is_part)
        }
    };
    let reason = "{timestamp} and [verify.timestamp] go together";
    if is_signed { Ok(()) } else { refuse(&format!("{key}.signed"), reason) }
}

fn key_format(
    key: &str,
    scheme: SchemeName,
    method: Method,
    written: file::KeyFormat,
) -> Result<KeyFormat, Refusal> {
    let file::KeyFormat { format, prefix, private_prefix } = written;
    let is_encoded = matches!(format, KeyText::Hex | KeyText::Base64);
    match method {
        Method::Public(Algorithm::Ed25519) if !is_encoded => {
            return refuse(key, "an ed25519 key is hex or base64");
        }
        Method::Public(Algorithm::P256Der) if !is_encoded => {
            return refuse(key, "an ecdsa-p256 key is hex or base64");
        }
        Method::Public(_) if scheme == SchemeName::Jwt && format != KeyText::Jwk => {
            return refuse(key, "the key of such a token is a jwk");
        }
        Method::Public(_) if scheme == SchemeName::Rsa && format != KeyText::Pem => {
            return refuse(key, "an rsa key is pem");
        }
        Method::Hmac(_) if matches!(format, KeyText::Pem | KeyText::Jwk) => {
            return refuse(key, "a shared key is not pem or jwk");
        }
        Method::Digest(_) | Method::Token if format != KeyText::Raw => {
            return refuse(key, "the secret itself is used: it is raw");
        }
        Method::Hmac(_) | Method::Digest(_) | Method::Token | Method::Public(_) => {}
    }
    let is_ed25519 = matches!(method, Method::Public(Algorithm::Ed25519));
    if private_prefix.is_some() && !is_ed25519 {
        return refuse(key, "private_prefix is for ed25519");
    }
    if prefix.is_some() && !is_encoded {
        return refuse(key, "the text of a raw key is the key, with whatever it begins with");
    }
    Ok(KeyFormat { method, text: format, prefix: prefix.unwrap_or_default(), private_prefix })
}

/// What has a meaning in every template.
const PLACEHOLDERS: [(&str, Segment); 13] = [
    ("body", Segment::Body),
    ("body_crc32", Segment::BodyCrc32),
    ("fields", Segment::Fields),
    ("form", Segment::Form),
    ("listed_headers", Segment::Headers),
    ("method", Segment::Method),
    ("path", Segment::Path),
    ("qsh", Segment::RequestDigest),
    ("secret", Segment::Secret),
    ("timestamp", Segment::Timestamp),
    ("url", Segment::Url(Spelling::AsConfigured)),
    ("url_decoded", Segment::Url(Spelling::Decoded)),
    ("url_other_port", Segment::Url(Spelling::OtherPort)),
];
