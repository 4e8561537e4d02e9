//! The text that is signed: a template, and what stands for its placeholders.

use std::{borrow::Cow, collections::BTreeSet};

use domain::delivery::{Delivery, Headers};
use ring::digest;

use super::Rejection;
use crate::{
    endpoint::Endpoint,
    form,
    select::{Reading, Selector, is_form},
};

/// A piece of the signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    Timestamp,
    /// A part, by index.
    Part(usize),
    /// A setting of the source.
    Setting(String),
    Body,
    /// Its CRC-32 in decimal.
    BodyCrc32,
    /// The parameters of a form body, sorted, each name and value, without separators.
    Form,
    /// The fields chosen from the body, one a line and its value on the next.
    Fields,
    /// The headers that a header lists.
    Headers,
    Method,
    Url(Spelling),
    /// Path and query of the URL.
    Path,
    /// The digest of the request that Atlassian calls `qsh`.
    RequestDigest,
    Secret,
}

/// How a sender may write the URL it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    AsConfigured,
    /// With the default port if it has none, without it if it has.
    OtherPort,
    /// With some escapes decoded.
    Decoded,
}

/// The headers that a header lists.
#[derive(Debug)]
pub(crate) struct SignedHeaders {
    pub(crate) list: String,
    /// Those that must be among them.
    pub(crate) required: Vec<String>,
}

/// The values of a delivery that go into the signed text, exactly as received.
pub(super) struct Values<'d> {
    pub(super) delivery: &'d Delivery,
    pub(super) endpoint: &'d Endpoint,
    pub(super) time: Option<Cow<'d, str>>,
    pub(super) parts: Vec<Cow<'d, str>>,
    /// Already written out.
    pub(super) fields: String,
    pub(super) headers: String,
    pub(super) secret: Option<&'d str>,
}

impl<'d> Values<'d> {
    /// The signed text, in pieces.
    pub(super) fn fill(&'d self, template: &'d [Segment]) -> Result<Vec<Cow<'d, [u8]>>, Rejection> {
        template.iter().map(|segment| self.piece(segment)).collect()
    }

    fn piece(&'d self, segment: &'d Segment) -> Result<Cow<'d, [u8]>, Rejection> {
        let owned = |text: String| Cow::Owned(text.into_bytes());
        Ok(match segment {
            Segment::Literal(text) => text.as_bytes().into(),
            Segment::Timestamp => self.time.as_deref().unwrap_or_default().as_bytes().into(),
            Segment::Part(part) => self.parts[*part].as_bytes().into(),
            Segment::Setting(name) => self
                .endpoint
                .setting(name)
                .ok_or_else(|| Rejection::NoSetting { name: name.clone() })?
                .as_bytes()
                .into(),
            Segment::Body => self.delivery.body.as_slice().into(),
            Segment::BodyCrc32 => owned(crc32fast::hash(&self.delivery.body).to_string()),
            Segment::Form => sorted_form(self.delivery).into(),
            Segment::Fields => self.fields.as_bytes().into(),
            Segment::Headers => self.headers.as_bytes().into(),
            Segment::Method => self.delivery.method.as_bytes().into(),
            Segment::Url(spelling) => owned(spelling.write(&self.url()?)),
            Segment::Path => {
                let url = self.url()?;
                let path = parts_of(&url).map_or("/", |(_, _, path)| path);
                owned(path.to_owned())
            }
            Segment::RequestDigest => owned(self.request_digest()?),
            Segment::Secret => self.secret.unwrap_or_default().as_bytes().into(),
        })
    }

    /// The URL as it was called: the configured one, with the query that came.
    fn url(&self) -> Result<String, Rejection> {
        let configured = self.endpoint.url().ok_or(Rejection::NoUrl)?;
        let base = configured.split(['?', '#']).next().unwrap_or_default();
        let query = &self.delivery.query;
        Ok(if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") })
    }

    /// The SHA-256 of method, path and sorted query, in hex.
    fn request_digest(&self) -> Result<String, Rejection> {
        let url = self.url()?;
        let (_, _, path) = parts_of(&url).ok_or(Rejection::NoUrl)?;
        let path = path.split('?').next().unwrap_or_default();
        let path = if path == "/" { path } else { path.trim_end_matches('/') };
        let mut sorted = std::collections::BTreeMap::<String, Vec<String>>::new();
        for (name, value) in form::pairs(self.delivery.query.as_bytes()) {
            if *name != *b"jwt" {
                sorted.entry(form::escaped(&name)).or_default().push(form::escaped(&value));
            }
        }
        let query: Vec<_> = sorted
            .into_iter()
            .map(|(name, mut values)| {
                values.sort();
                format!("{name}={}", values.join(","))
            })
            .collect();
        let text = format!("{}&{path}&{}", self.delivery.method, query.join("&"));
        Ok(hex::encode(digest::digest(&digest::SHA256, text.as_bytes())))
    }
}

impl Spelling {
    fn write(self, url: &str) -> String {
        match self {
            Self::AsConfigured => url.to_owned(),
            Self::OtherPort => other_port(url).unwrap_or_else(|| url.to_owned()),
            Self::Decoded => DECODED.iter().fold(url.to_owned(), |url, (escape, plain)| {
                url.replace(escape, plain).replace(&escape.to_ascii_lowercase(), plain)
            }),
        }
    }
}

/// Scheme, authority, and the rest of a URL.
fn parts_of(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    Some((scheme, authority, if path.is_empty() { "/" } else { path }))
}

fn other_port(url: &str) -> Option<String> {
    let (scheme, authority, _) = parts_of(url)?;
    let port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let end = scheme.len() + "://".len() + authority.len();
    let (before, after) = url.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    let has_port = host.rsplit(']').next().unwrap_or_default().contains(':');
    match before.strip_suffix(port) {
        Some(without) => Some(format!("{without}{after}")),
        None if has_port => None,
        None => Some(format!("{before}{port}{after}")),
    }
}

/// Every parameter once, by name and then by value.
fn sorted_form(delivery: &Delivery) -> Vec<u8> {
    if !is_form(&delivery.headers, &delivery.body) {
        return Vec::new();
    }
    let pairs: BTreeSet<_> = form::pairs(&delivery.body).collect();
    pairs.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()].concat()).collect()
}

/// The listed headers as `name:value`, sorted, with semicolons between them.
pub(super) fn listed(headers: &Headers, signed: &SignedHeaders) -> Result<String, Rejection> {
    let missing = |name: &str| Rejection::NoSignedPart { place: format!("header {name}") };
    let list = headers.get(&signed.list).ok_or_else(|| missing(&signed.list))?;
    let mut names: Vec<_> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    if let Some(left_out) = signed.required.iter().find(|name| !names.contains(name)) {
        return Err(missing(left_out));
    }
    names.sort();
    let written = names.iter().map(|name| {
        let value = headers.get(name).ok_or_else(|| missing(name))?;
        Ok(format!("{name}:{}", value.trim()))
    });
    Ok(written.collect::<Result<Vec<_>, _>>()?.join(";"))
}

/// Fields of the body, name and value on a line each; those that are not there are left out.
///
/// Only the first may hold a line feed. Whoever writes it could put lines there that look like
/// further fields, and cut the text anew; but then the true fields end up within a later one.
pub(super) fn lines(
    reading: &Reading<'_>,
    fields: &[(String, Selector)],
) -> Result<String, Rejection> {
    let mut lines = String::new();
    for (at, (name, selector)) in fields.iter().enumerate() {
        let Some(value) = reading.text(selector) else { continue };
        if at > 0 && value.contains('\n') {
            return Err(Rejection::AmbiguousSignedPart { place: selector.shown.clone() });
        }
        lines.push_str(&format!("{name}\n{value}\n"));
    }
    Ok(lines)
}

/// What HubSpot decodes in the URL before it signs it.
const DECODED: [(&str, &str); 14] = [
    ("%3A", ":"),
    ("%2F", "/"),
    ("%3F", "?"),
    ("%40", "@"),
    ("%26", "&"),
    ("%3D", "="),
    ("%2B", "+"),
    ("%24", "$"),
    ("%60", "`"),
    ("%22", "\""),
    ("%2C", ","),
    ("%3B", ";"),
    ("%3E", ">"),
    ("%3C", "<"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_port_is_added_or_taken_off() {
        for (url, other) in [
            ("https://a.example/x?y=1", "https://a.example:443/x?y=1"),
            ("https://a.example:443", "https://a.example"),
            ("http://u:p@a.example/x", "http://u:p@a.example:80/x"),
            ("https://[::1]/x", "https://[::1]:443/x"),
            // Of a port of its own there is no other way to write it.
            ("https://a.example:8443/x", "https://a.example:8443/x"),
            ("https://a.example:80/x", "https://a.example:80/x"),
            ("https://[::1]:8443/x", "https://[::1]:8443/x"),
            ("ftp://a.example/", "ftp://a.example/"),
            ("a.example", "a.example"),
        ] {
            assert_eq!(Spelling::OtherPort.write(url), other, "{url}");
        }
    }

    #[test]
    fn escapes_are_decoded_in_either_case_and_once() {
        let decoded = Spelling::Decoded.write("/a%3Ab%3ac%2520%253A%20");
        assert_eq!(decoded, "/a:b:c%2520%253A%20");
    }

    #[test]
    fn a_form_is_sorted_and_each_parameter_counts_once() {
        let form = |body: &str| {
            let delivery = Delivery {
                method: "POST".into(),
                headers: [("content-type", "application/x-www-form-urlencoded")]
                    .into_iter()
                    .collect(),
                query: String::new(),
                body: body.into(),
            };
            String::from_utf8(sorted_form(&delivery)).expect("text")
        };
        assert_eq!(form("b=2&a=1&b=1&b=2&c"), "a1b1b2c");
        assert_eq!(form("B=+&a=%26&&=x"), "xB a&");
        assert_eq!(form("{\"a\":1}"), "", "no form");
    }
}
