//! Keys that a provider publishes, and how they are asked for.
//!
//! A delivery may choose which key is asked for, and nothing of it is believed yet. So an address
//! that it names has to be one of the catalogue's in every character but those that a `*` stands
//! for: no query, no port, no other path. Some hosts answer anybody's query with anybody's text.

use std::collections::BTreeMap;

use domain::{delivery::Delivery, limits};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    InvalidSecret, Key, Rejection, Secret,
    endpoint::Endpoint,
    reply::{host_and_path, is_host},
    select::{Reading, Selector},
    verify::Scheme,
};

/// Where keys are published.
#[derive(Debug)]
pub(crate) struct KeySource {
    pub(crate) answer: KeyAnswer,
    /// Where a delivery names the address; otherwise there is one for all.
    pub(crate) named: Vec<Selector>,
    /// What the address is: of a named one any of these patterns.
    pub(crate) at: Vec<String>,
    /// What is posted, by the name of its member.
    pub(crate) post: BTreeMap<String, Posted>,
    /// Where the key is in a JSON answer.
    pub(crate) pointer: String,
    /// Where a JSON answer says that there is no such key, and how.
    pub(crate) unknown: Option<(String, String)>,
}

/// What is served at such an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyAnswer {
    /// A certificate in PEM, and maybe those that it was signed by.
    Certificate,
    /// One JSON web key.
    Jwk,
    /// A set of them.
    Jwks,
}

/// A value that is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    KeyId,
    ApiSecret,
    Setting(String),
}

/// What is to be asked for the key that a delivery, unverified as it is, says it was signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRequest {
    /// Where: over HTTPS, at a host that the catalogue names, without a query.
    pub address: String,
    /// The delivery chose the address: what is there says something of it, and nothing of the
    /// provider.
    pub is_named: bool,
    key_id: Option<String>,
    /// Members with their values; `None` stands for the API secret.
    post: Vec<(String, Option<String>)>,
    asks_by_id: bool,
}

impl KeySource {
    pub(crate) fn request(
        &self,
        schemes: &[Scheme],
        endpoint: &Endpoint,
        delivery: &Delivery,
        reading: &Reading<'_>,
    ) -> Result<KeyRequest, Rejection> {
        // Without a signature that could be read, nothing is asked.
        let mut signer = Err(Rejection::NoKey);
        for scheme in schemes {
            signer = signer.or_else(|_| scheme.signer(&delivery.headers, reading));
        }
        let key_id = signer?;
        if key_id.as_deref().is_some_and(|id| !is_key_id(id)) {
            let place = "the token's header".to_owned();
            return Err(Rejection::MalformedSignature { place, problem: "no name of a key" });
        }
        let address = if self.named.is_empty() {
            self.fixed_address(endpoint)?
        } else {
            let named = self.named.iter().find_map(|place| reading.text(place));
            let known = named.filter(|url| self.at.iter().any(|pattern| is_like(pattern, url)));
            known.ok_or_else(|| Rejection::NoKeyNamed { place: self.places() })?.into_owned()
        };
        let mut post = Vec::with_capacity(self.post.len());
        for (member, value) in &self.post {
            let value = match value {
                Posted::ApiSecret => None,
                Posted::KeyId => Some(key_id.clone().ok_or_else(|| Rejection::NoKeyNamed {
                    place: "the token's header".to_owned(),
                })?),
                Posted::Setting(name) => Some(setting(endpoint, name)?.to_owned()),
            };
            post.push((member.clone(), value));
        }
        let asks_by_id = self.post.values().any(|value| *value == Posted::KeyId);
        Ok(KeyRequest { address, is_named: !self.named.is_empty(), key_id, post, asks_by_id })
    }

    fn fixed_address(&self, endpoint: &Endpoint) -> Result<String, Rejection> {
        let mut address = self.at.first().cloned().unwrap_or_default();
        for name in self.settings_in_address() {
            address = address.replace(&format!("{{{name}}}"), setting(endpoint, &name)?);
        }
        Ok(address)
    }

    pub(crate) fn needs_api_secret(&self) -> bool {
        self.post.values().any(|value| *value == Posted::ApiSecret)
    }

    /// Settings that are needed to ask.
    pub(crate) fn settings(&self) -> Vec<String> {
        let posted = self.post.values().filter_map(|value| match value {
            Posted::Setting(name) => Some(name.clone()),
            Posted::KeyId | Posted::ApiSecret => None,
        });
        self.settings_in_address().into_iter().chain(posted).collect()
    }

    /// Settings that a fixed address is made of.
    pub(crate) fn settings_in_address(&self) -> Vec<String> {
        let pieces = self.at.iter().flat_map(|address| address.split('{').skip(1));
        pieces.filter_map(|piece| Some(piece.split_once('}')?.0.to_owned())).collect()
    }

    /// The keys in an answer, of which those that the provider does not sign with are left out.
    pub(crate) fn read(
        &self,
        text: &str,
        read: impl Fn(&Secret) -> Result<Key, InvalidSecret>,
    ) -> Result<Vec<Key>, UnreadableKeys> {
        if self.answer == KeyAnswer::Certificate {
            // Not somewhere in the text: others may write before it.
            let is_certificate = text.trim_start().starts_with(CERTIFICATE);
            let text = is_certificate.then_some(text).ok_or(UnreadableKeys::NoCertificate)?;
            return Ok(vec![read(&Secret::new(text)).map_err(UnreadableKeys::Unfit)?]);
        }
        let answer: Value = serde_json::from_str(text).map_err(|_| UnreadableKeys::NotJson)?;
        let found = answer.pointer(&self.pointer).ok_or(UnreadableKeys::Missing)?;
        if self.answer == KeyAnswer::Jwk {
            return Ok(vec![read(&Secret::new(found.to_string())).map_err(UnreadableKeys::Unfit)?]);
        }
        let listed = found.as_array().ok_or(UnreadableKeys::Missing)?;
        let keys: Vec<_> =
            listed.iter().filter_map(|key| read(&Secret::new(key.to_string())).ok()).collect();
        if keys.is_empty() { Err(UnreadableKeys::Missing) } else { Ok(keys) }
    }

    /// Whether an answer says that there is no key of the name that was asked for.
    pub(crate) fn denies(&self, text: &str) -> bool {
        let Some((pointer, is)) = &self.unknown else { return false };
        let answer: Value = serde_json::from_str(text).unwrap_or_default();
        answer.pointer(pointer).and_then(Value::as_str) == Some(is)
    }

    /// What is fetched from where, in words.
    pub(crate) fn words(&self, endpoint: &Endpoint) -> String {
        let what = match self.answer {
            KeyAnswer::Certificate => "the certificate",
            KeyAnswer::Jwk => "the key",
            KeyAnswer::Jwks => "the keys",
        };
        if !self.named.is_empty() {
            return format!("{what} that {} names, at {}", self.places(), self.at.join(" or "));
        }
        let at = self.fixed_address(endpoint).unwrap_or_else(|_| self.at.join(" or "));
        if self.post.is_empty() {
            return format!("{what} at {at}");
        }
        let members: Vec<_> = self.post.keys().map(String::as_str).collect();
        format!("{what} at {at}, by a POST of {}", members.join(", "))
    }

    fn places(&self) -> String {
        let shown: Vec<_> = self.named.iter().map(|place| place.shown.as_str()).collect();
        shown.join(" or ")
    }
}

impl KeyRequest {
    /// What to remember its answer by.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.key_id {
            Some(id) if self.asks_by_id => format!("{}#{id}", self.address),
            _ => self.address.clone(),
        }
    }

    /// Whether the key that the delivery names is among `keys`.
    #[must_use]
    pub fn is_met_by(&self, keys: &[Key]) -> bool {
        let Some(wanted) = &self.key_id else { return !keys.is_empty() };
        keys.iter().any(|key| key.may_be(wanted))
    }

    /// The JSON to post; without one the address is to be got. The source's API secret may be part
    /// of it.
    #[must_use]
    pub fn body(&self, api_secret: Option<&Secret>) -> Option<Secret> {
        if self.post.is_empty() {
            return None;
        }
        let secret = api_secret.map_or("", Secret::expose);
        let members = self.post.iter().map(|(member, value)| {
            let value = value.as_deref().unwrap_or(secret);
            (member.clone(), Value::from(value))
        });
        Some(Secret::new(Value::Object(members.collect::<Map<_, _>>()).to_string()))
    }
}

/// An answer without a key that the provider could have signed with. Says nothing of its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableKeys {
    /// Not PEM from its first line.
    #[error("it does not begin with a certificate")]
    NoCertificate,
    /// Not JSON.
    #[error("it is no JSON")]
    NotJson,
    /// JSON of another shape, or without a usable key.
    #[error("there is no usable key in it")]
    Missing,
    /// A key of another kind.
    #[error(transparent)]
    Unfit(InvalidSecret),
}

fn setting<'e>(endpoint: &'e Endpoint, name: &str) -> Result<&'e str, Rejection> {
    endpoint.setting(name).ok_or_else(|| Rejection::NoSetting { name: name.to_owned() })
}

fn is_key_id(id: &str) -> bool {
    (1..=limits::MAX_LABEL_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether `url` is `pattern`: its host by [`is_host`], and its path, in which a `*` stands for some
/// of the characters of a file's name, never for a dot or a slash, nor for what begins a query.
pub(crate) fn is_like(pattern: &str, url: &str) -> bool {
    let Some((wanted_host, wanted_path)) = host_and_path(pattern) else { return false };
    let Some((host, path)) = host_and_path(url) else { return false };
    is_host(wanted_host, host) && is_path(wanted_path, path)
}

fn is_path(pattern: &str, path: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(before) else { return false };
    let run = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    // Any shorter run may be the one, if what follows the `*` could begin like it.
    (1..=run.count()).any(|length| is_path(after, &rest[length..]))
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_a_region_or_part_of_a_name() {
        let pattern = "https://sns.*.amazonaws.com/SimpleNotificationService-*.pem";
        let right = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem";
        assert!(is_like(pattern, right));
        for url in [
            "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.s3.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.s3-us-west-2.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.eu.west.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns..amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-0a1b.pem",
            "https://sns.evil.example/.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.evil.example#.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://u@sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
            "https://sns.eu-west-1.amazonaws.com:8443/SimpleNotificationService-0a1b.pem",
            "https://sns.eu-west-1.amazonaws.com/?Action=x&y=SimpleNotificationService-0a1b.pem",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem?x",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-?x.pem",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-../x.pem",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-.pem",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem\n",
            "",
        ] {
            assert!(!is_like(pattern, url), "{url}");
        }
        assert!(is_like("https://a.example/*-*", "https://a.example/a-b-c"));
    }
}
