//! Deliveries signed by implementations that are not ours, judged.
//!
//! Ours lie beside this file and come with what is to be found in them. The published ones are in
//! a folder beside the workspace, on machines that have it.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use domain::{delivery::Delivery, event::Event, time::Timestamp};
use providers::{Endpoint, Greeting, Key, Provider, Reply, Secret, VerifiedDelivery};
use serde::Deserialize;

use crate::{provider, source};

#[derive(Deserialize)]
struct Ours {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    provider: String,
    name: String,
    secrets: Vec<String>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    url: Option<String>,
    method: Option<String>,
    headers: BTreeMap<String, String>,
    body: String,
    now: i64,
    reason: Option<String>,
    #[serde(default)]
    events: Vec<Expected>,
    #[serde(default)]
    unidentifiable: bool,
    reply: Option<ExpectedReply>,
    /// What an unsigned request is answered.
    greeting: Option<ExpectedReply>,
    #[serde(default)]
    refused: bool,
    attempt: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Expected {
    id: String,
    r#type: Option<String>,
    object: Option<String>,
    occurred_at: Option<f64>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct ExpectedReply {
    status: u16,
    content_type: Option<String>,
    body: String,
}

impl From<Event> for Expected {
    #[expect(clippy::cast_precision_loss, reason = "the times of the vectors are small")]
    fn from(event: Event) -> Self {
        Self {
            id: event.key.id().as_str().to_owned(),
            r#type: event.event_type,
            object: event.object_id,
            occurred_at: event.occurred_at.map(|at| at.millis() as f64 / 1000.0),
        }
    }
}

impl From<Reply> for ExpectedReply {
    fn from(reply: Reply) -> Self {
        let content_type = reply.headers.into_iter().find(|(name, _)| name == "content-type");
        Self {
            status: reply.status,
            content_type: content_type.map(|(_, value)| value),
            body: reply.body,
        }
    }
}

fn keys(provider: &Provider, secrets: &[String]) -> Vec<Key> {
    let read = |secret: &String| provider.key(&Secret::new(secret)).expect("a usable secret");
    secrets.iter().map(read).collect()
}

#[test]
fn our_vectors_are_judged_as_they_say() {
    let Ours { vectors } =
        serde_json::from_str(include_str!("../vectors.json")).expect("vectors of this shape");
    let wrong: Vec<_> = vectors.iter().filter_map(|vector| judge(vector).err()).collect();
    println!("{} vectors of our own judged", vectors.len());
    assert!(vectors.len() > 90, "only {} vectors", vectors.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge(vector: &Vector) -> Result<(), String> {
    let endpoint = vector
        .settings
        .iter()
        .fold(Endpoint::new(vector.url.clone()), |endpoint, (name, value)| {
            endpoint.with(name, value)
        });
    let provider = provider(&vector.provider).at(endpoint);
    let delivery = Delivery {
        method: vector.method.clone().unwrap_or_else(|| "POST".into()),
        headers: vector.headers.iter().collect(),
        query: query_of(vector.url.as_deref()),
        body: vector.body.clone().into_bytes(),
    };
    let fail = |what: String| Err(format!("{}, {}: {what}", vector.provider, vector.name));
    let keys = keys(&provider, &vector.secrets);
    if let Some(expected) = &vector.greeting {
        return match provider.greet(&delivery, &keys) {
            Some(Greeting::Answered(reply)) if !vector.refused => is_greeting(reply, expected),
            Some(Greeting::Refused(reply)) if vector.refused => is_greeting(reply, expected),
            other => fail(format!("greeted by {other:?}")),
        };
    }
    if provider.greet(&delivery, &keys).is_some() {
        return fail("taken for a handshake".into());
    }
    let attempt = provider.attempt_id(&delivery.headers).map(str::to_owned);
    let now = Timestamp::from_secs(vector.now);
    let verified = match (provider.verify(delivery, &keys, now, None), &vector.reason) {
        (Ok(verified), None) => verified,
        (Err(rejection), Some(reason)) if rejection.reason() == reason => return Ok(()),
        (Err(rejection), wanted) => return fail(format!("{wanted:?}, got {}", rejection.reason())),
        (Ok(_), Some(reason)) => return fail(format!("{reason}, got no rejection")),
    };
    let reply = provider.handshake(&verified).map(ExpectedReply::from);
    if reply != vector.reply || attempt != vector.attempt {
        return fail(format!("answered {reply:?}, attempt {attempt:?}"));
    }
    match provider.identify(verified, &source()) {
        Ok(events) if !vector.unidentifiable => {
            // Of a batch, each event's payload is its own item.
            let payload = |event: &Event| String::from_utf8_lossy(&event.payload).into_owned();
            if events.iter().map(payload).any(|p| p.is_empty() || !vector.body.contains(&p)) {
                return fail("another payload".into());
            }
            let events: Vec<_> = events.into_iter().map(Expected::from).collect();
            if events == vector.events { Ok(()) } else { fail(format!("{events:?}")) }
        }
        Ok(events) => fail(format!("identified as {events:?}")),
        Err(_) if vector.unidentifiable => Ok(()),
        Err(error) => fail(error.to_string()),
    }
}

fn is_greeting(reply: Reply, expected: &ExpectedReply) -> Result<(), String> {
    let reply = ExpectedReply::from(reply);
    if reply == *expected { Ok(()) } else { Err(format!("{reply:?}, wanted {expected:?}")) }
}

fn query_of(url: Option<&str>) -> String {
    let query = url.and_then(|url| url.split_once('?'));
    query.map(|(_, query)| query.to_owned()).unwrap_or_default()
}

#[derive(Deserialize)]
struct Published {
    provider: String,
    name: String,
    kind: String,
    secret: Option<String>,
    public_key: Option<String>,
    cert_pem: Option<String>,
    jwk: Option<serde_json::Value>,
    tolerance_s: Option<u64>,
    url: Option<String>,
    method: String,
    headers: BTreeMap<String, String>,
    body: String,
    body_encoding: String,
    now: Option<i64>,
    expect: String,
    expect_event_ids: Option<Vec<String>>,
    expect_response: Option<serde_json::Value>,
    expect_qsh: Option<String>,
}

#[test]
fn published_vectors_are_judged_as_expected() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors.json");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("0 published vectors judged: none on this machine");
        return;
    };
    let vectors: Vec<Published> = serde_json::from_str(&text).expect("vectors of this shape");
    let wrong: Vec<_> = vectors.iter().filter_map(|vector| judge_published(vector).err()).collect();
    println!("{} of {} published vectors as expected", vectors.len() - wrong.len(), vectors.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Published {
    /// The provider as it sends to the vector's URL, and the keys of the vector.
    fn provider(&self) -> Result<(Provider, Vec<Key>), String> {
        let provider = Provider::builtin(&self.provider).ok_or("no such provider")?;
        let value = self.public_key.as_ref().or(self.secret.as_ref());
        let settings = provider.settings().iter().filter(|setting| !setting.optional);
        let endpoint = settings.fold(Endpoint::new(self.url.clone()), |endpoint, setting| {
            endpoint.with(&setting.name, value.map_or("", String::as_str))
        });
        let jwk = self.jwk.as_ref().map(ToString::to_string);
        let texts = [jwk, self.cert_pem.clone(), self.secret.clone()];
        let texts = texts.into_iter().flatten();
        let keys = texts.filter_map(|text| provider.key(&Secret::new(text)).ok()).collect();
        Ok((provider.at(endpoint), keys))
    }

    fn delivery(&self) -> Delivery {
        let body = match self.body_encoding.as_str() {
            "base64" => BASE64_STANDARD.decode(&self.body).expect("base64"),
            _ => self.body.clone().into_bytes(),
        };
        Delivery {
            method: self.method.clone(),
            headers: self.headers.iter().collect(),
            query: query_of(self.url.as_deref()),
            body,
        }
    }
}

fn judge_published(vector: &Published) -> Result<(), String> {
    let fail = |what: String| Err(format!("{}, {}: {what}", vector.provider, vector.name));
    let (provider, keys) =
        vector.provider().map_err(|what| format!("{}: {what}", vector.provider))?;
    if let Some(qsh) = &vector.expect_qsh {
        return if is_request_digest(&provider, vector, qsh) { Ok(()) } else { fail("qsh".into()) };
    }
    let delivery = vector.delivery();
    if let Some(greeting) = provider.greet(&delivery, &keys) {
        return match (greeting, vector.expect.as_str()) {
            (Greeting::Answered(reply), "valid") => answered(Some(&reply), vector),
            (Greeting::Refused(reply), "invalid") => answered(Some(&reply), vector),
            (other, _) => fail(format!("{other:?}")),
        };
    }
    let now = Timestamp::from_secs(vector.now.unwrap_or(0));
    let tolerance = match vector.now {
        Some(_) => vector.tolerance_s.map(Duration::from_secs),
        None => Some(Duration::MAX),
    };
    let verified = provider.verify(delivery, &keys, now, tolerance);
    match (verified, vector.expect.as_str()) {
        (Ok(verified), "valid") => found(&provider, verified, vector),
        (Err(_), "invalid") => Ok(()),
        (Ok(_), _) => fail("verified".into()),
        (Err(rejection), _) => fail(rejection.to_string()),
    }
}

fn found(
    provider: &Provider,
    verified: VerifiedDelivery,
    vector: &Published,
) -> Result<(), String> {
    answered(provider.handshake(&verified).as_ref(), vector)?;
    if let Some(expected) = &vector.expect_event_ids {
        let events = provider.identify(verified, &source()).map_err(|error| error.to_string())?;
        let ids: Vec<_> = events.iter().map(|event| event.key.id().as_str()).collect();
        if ids != *expected {
            return Err(format!("{}, {}: identified as {ids:?}", vector.provider, vector.name));
        }
    }
    Ok(())
}

/// Whether a reply is the expected one: its text, its JSON, its status, its headers.
fn answered(reply: Option<&Reply>, vector: &Published) -> Result<(), String> {
    let Some(expected) = &vector.expect_response else { return Ok(()) };
    let is_as_expected = reply.is_some_and(|reply| {
        let json = || serde_json::from_str::<serde_json::Value>(&reply.body).ok();
        let has = |(name, value): (&String, &serde_json::Value)| {
            let name = name.to_ascii_lowercase();
            reply.headers.iter().any(|(known, text)| *known == name && *value == text.as_str())
        };
        if let Some(text) = expected.as_str() {
            return reply.body == text;
        }
        expected["status"] == reply.status
            && expected.get("text").is_none_or(|text| *text == reply.body.as_str())
            && expected.get("json").is_none_or(|wanted| Some(wanted) == json().as_ref())
            && expected["headers"].as_object().is_none_or(|headers| headers.iter().all(has))
    });
    if is_as_expected {
        return Ok(());
    }
    Err(format!("{}, {}: answered {reply:?}", vector.provider, vector.name))
}

/// Whether a token that claims `qsh` is one for the vector's request. It is no delivery, so it is
/// signed here.
fn is_request_digest(provider: &Provider, vector: &Published, qsh: &str) -> bool {
    assert_eq!(vector.kind, "primitive");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"ours only");
    let url_safe = |text: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(text);
    let header = url_safe(br#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = url_safe(format!("{{\"iat\":1700000000,\"qsh\":\"{qsh}\"}}").as_bytes());
    let text = format!("{header}.{claims}");
    let signature = url_safe(ring::hmac::sign(&key, text.as_bytes()).as_ref());
    let headers = [("authorization", format!("JWT {text}.{signature}"))];
    let delivery = Delivery { headers: headers.into_iter().collect(), ..vector.delivery() };
    let key = provider.key(&Secret::new("ours only")).expect("a key");
    provider.verify(delivery, &[key], Timestamp::from_secs(1_700_000_000), None).is_ok()
}
