//! Deliveries signed by implementations that are not ours, judged.
//!
//! Ours lie beside this file and come with what is to be found in them. The published ones are in
//! a folder beside the workspace, on machines that have it.

use std::{collections::BTreeMap, fs, path::Path};

use domain::{delivery::Delivery, event::Event, time::Timestamp};
use providers::{Key, Provider, Reply, Secret, VerifiedDelivery};
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
    headers: BTreeMap<String, String>,
    body: String,
    now: i64,
    reason: Option<String>,
    #[serde(default)]
    events: Vec<Expected>,
    #[serde(default)]
    unidentifiable: bool,
    reply: Option<ExpectedReply>,
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
    let provider = provider(&vector.provider);
    let delivery = Delivery {
        method: "POST".into(),
        headers: vector.headers.iter().collect(),
        query: String::new(),
        body: vector.body.clone().into_bytes(),
    };
    let fail = |what: String| Err(format!("{}, {}: {what}", vector.provider, vector.name));
    let attempt = provider.attempt_id(&delivery.headers).map(str::to_owned);
    let now = Timestamp::from_secs(vector.now);
    let verified = match (
        provider.verify(delivery, &keys(&provider, &vector.secrets), now, None),
        &vector.reason,
    ) {
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
            if events.iter().any(|event| event.payload != vector.body.as_bytes()) {
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

#[derive(Deserialize)]
struct Published {
    provider: String,
    name: String,
    secret: Option<String>,
    method: String,
    headers: BTreeMap<String, String>,
    body: String,
    body_encoding: String,
    now: Option<i64>,
    expect: String,
    expect_event_ids: Option<Vec<String>>,
    expect_response: Option<serde_json::Value>,
}

#[test]
fn published_vectors_are_judged_as_expected() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors.json");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("0 published vectors judged: none on this machine");
        return;
    };
    // Each is read on its own: those of providers that are not in the catalogue may look otherwise.
    let all: Vec<serde_json::Value> = serde_json::from_str(&text).expect("a list");
    let ours = all.iter().filter(|vector| {
        vector["provider"].as_str().is_some_and(|p| Provider::builtin(p).is_some())
    });
    let mut judged = BTreeMap::new();
    let mut wrong = Vec::new();
    for vector in ours {
        let vector = Published::deserialize(vector).expect("a vector");
        *judged.entry(vector.provider.clone()).or_insert(0) += 1;
        wrong.extend(judge_published(&vector).err());
    }
    println!("{} published vectors judged: {judged:?}", judged.values().sum::<i32>());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge_published(vector: &Published) -> Result<(), String> {
    let fail = |what: String| Err(format!("{}, {}: {what}", vector.provider, vector.name));
    let provider = provider(&vector.provider);
    let body = match vector.body_encoding.as_str() {
        "base64" => {
            use base64::{Engine, prelude::BASE64_STANDARD};
            BASE64_STANDARD.decode(&vector.body).expect("base64")
        }
        _ => vector.body.clone().into_bytes(),
    };
    let delivery = Delivery {
        method: vector.method.clone(),
        headers: vector.headers.iter().collect(),
        query: String::new(),
        body,
    };
    let secrets: Vec<_> = vector.secret.iter().cloned().collect();
    let now = Timestamp::from_secs(vector.now.unwrap_or(0));
    let tolerance = vector.now.is_none().then_some(std::time::Duration::MAX);
    let verified = provider.verify(delivery, &keys(&provider, &secrets), now, tolerance);
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
    let fail = |what: String| Err(format!("{}, {}: {what}", vector.provider, vector.name));
    if let Some(expected) = &vector.expect_response {
        let reply = provider.handshake(&verified);
        if reply.as_ref().map(|reply| reply.body.as_str()) != expected.as_str() {
            return fail(format!("answered {reply:?}"));
        }
    }
    if let Some(expected) = &vector.expect_event_ids {
        let events = provider.identify(verified, &source()).map_err(|error| error.to_string())?;
        let ids: Vec<_> = events.iter().map(|event| event.key.id().as_str()).collect();
        if ids != *expected {
            return fail(format!("identified as {ids:?}"));
        }
    }
    Ok(())
}
