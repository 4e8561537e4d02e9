//! Where an event id is not signed, a recorded delivery under a fresh id is a replay: what it says
//! is claimed along with its event, in one transaction.

use domain::{delivery::Delivery, record::StateName, time::Timestamp};
use futures::future::join_all;
use providers::{Provider, SampleRequest, Secret, Unsigned};
use runtime::{
    clock::Clock,
    config::{Config, Format, Trust},
};
use serde_json::{Value, json};
use tests::{
    deliveries::{base64_event, deliver_to, signed},
    logged::LoggedReceiver,
    proxy::{Fault, FaultProxy, every_call, nth_call},
    world::{World, stripe_config},
};

const SECRET: &str = "kept-between-two";
/// Their signature leaves the event id out.
const UNSIGNED_ID: [&str; 8] = [
    "bitbucket",
    "bitbucket-data-center",
    "github",
    "jira",
    "linear",
    "razorpay",
    "sentry",
    "shopify",
];
const TRANSACTION: &str = "TransactWriteItems";

fn config(fingerprint: bool) -> Value {
    let source = |provider: &str| {
        json!({
            "provider": provider,
            "secrets": [format!("literal:{SECRET}")],
            "fingerprint": fingerprint,
            "deliver": { "handler": "test" }
        })
    };
    let sources = UNSIGNED_ID.iter().map(|name| ((*name).to_owned(), source(name)));
    let mut sources: serde_json::Map<_, _> = sources.collect();
    sources.insert("github-too".into(), source("github"));
    json!({ "sources": sources })
}

/// A GitHub delivery: whoever records it can give it any id.
fn push(id: &str, commit: &str) -> Delivery {
    let headers = [("x-github-delivery", id), ("x-github-event", "push")];
    signed("github", SECRET, &headers, format!(r#"{{"after":"{commit}"}}"#).as_bytes())
}

/// Records of events, and messages.
async fn written(world: &World) -> (usize, u32) {
    let scanned = world.ledger.client().scan().table_name(world.ledger.table()).send();
    let items = scanned.await.expect("a scan").items.unwrap_or_default();
    let events = items.iter().filter(|item| item.contains_key("state")).count();
    (events, world.queue_depth().await.0)
}

#[tokio::test]
async fn a_recorded_delivery_under_a_fresh_id_does_nothing() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    for (id, commit, expected) in [
        ("guid-1", "a", (1, 1)),
        ("guid-1", "a", (1, 1)),
        ("guid-2", "a", (1, 1)),
        ("guid-3", "b", (2, 2)),
        ("guid-3", "a", (2, 2)),
    ] {
        let answer = deliver_to(&receiver, "github", &push(id, commit)).await;
        assert_eq!(answer.status, 200, "{id} {commit}");
        assert_eq!(written(&world).await, expected, "{id} {commit}");
    }
}

#[tokio::test]
async fn without_a_fingerprint_it_is_an_event() {
    let world = World::start().await;
    let receiver = world.receiver(&config(false)).await;
    for id in ["guid-1", "guid-2"] {
        assert_eq!(deliver_to(&receiver, "github", &push(id, "a")).await.status, 200);
    }
    assert_eq!(written(&world).await, (2, 2));
}

#[tokio::test]
async fn at_each_provider_that_leaves_the_id_unsigned_a_replay_does_nothing() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    for (number, name) in UNSIGNED_ID.iter().enumerate() {
        let provider = Provider::builtin(name).expect("built in");
        assert!(!provider.signs_event_id() && provider.has_fingerprint(), "{name}");
        // One body, and so one signature, under two ids. Of now: Linear's has a time, which is
        // looked at.
        let now = Clock::default().now();
        let sample = |id: &str| {
            let request = SampleRequest { event_type: None, id, now };
            let Unsigned { headers, .. } = provider.sample(&request).expect("a sample");
            let request = SampleRequest { id: "recorded", ..request };
            let Unsigned { body, .. } = provider.sample(&request).expect("a sample");
            let key = provider.key(&Secret::new(SECRET)).expect("a key");
            provider.sign(&key, Unsigned { headers, body }, now).expect("signed")
        };
        let (recorded, replayed) = (sample("id-1"), sample("id-2"));
        assert_ne!(recorded.headers, replayed.headers, "{name}: the id lies there");
        for delivery in [&recorded, &replayed] {
            let mut answer = deliver_to(&receiver, name, delivery).await;
            // As a provider does: a machine under load may answer so.
            while answer.status == 503 {
                answer = deliver_to(&receiver, name, delivery).await;
            }
            assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        }
        assert_eq!(written(&world).await.0, number + 1, "{name}");
    }
    let others = Provider::builtin_names().iter().filter(|name| !UNSIGNED_ID.contains(name));
    for name in others {
        let provider = Provider::builtin(name).expect("built in");
        assert!(!provider.has_fingerprint(), "{name} belongs to the list");
    }
}

#[tokio::test]
async fn one_body_at_two_sources_is_two_events() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    for source in ["github", "github-too"] {
        assert_eq!(deliver_to(&receiver, source, &push("guid-1", "a")).await.status, 200);
    }
    assert_eq!(written(&world).await, (2, 2));
}

#[tokio::test]
async fn of_many_replays_at_once_one_is_the_event() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    let deliveries: Vec<_> = (0..32).map(|n| push(&format!("guid-{n}"), "a")).collect();
    let answers = join_all(deliveries.iter().map(|d| deliver_to(&receiver, "github", d))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(written(&world).await, (1, 1));
}

#[tokio::test]
async fn a_transaction_whose_answer_got_lost_is_new_and_enqueued() {
    for fault in [Fault::LoseResponse, Fault::LoseRequest, CONFLICT] {
        let world = World::start().await;
        let case = format!("{fault:?}");
        let proxy = FaultProxy::start(&world.dynamodb_url, nth_call(TRANSACTION, 0, fault)).await;
        let clock = Clock::default();
        let receiver = world.receiver_at(&config(true), clock, &proxy.url, &world.sqs_url).await;
        let answer = deliver_to(&receiver, "github", &push("guid-1", "a")).await;
        assert_eq!(answer.status, 200, "{case}");
        assert_eq!(proxy.calls().iter().filter(|call| *call == TRANSACTION).count(), 2, "{case}");
        assert_eq!(written(&world).await, (1, 1), "{case}");
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_made_leaves_no_fingerprint_behind() {
    for fault in [Fault::Refuse(500, "InternalServerError"), Fault::LoseRequest, CONFLICT] {
        let world = World::start().await;
        let case = format!("{fault:?}");
        let proxy = FaultProxy::start(&world.dynamodb_url, every_call(TRANSACTION, fault)).await;
        let clock = Clock::default();
        let receiver = world.receiver_at(&config(true), clock, &proxy.url, &world.sqs_url).await;
        let delivery = push("guid-1", "a");
        assert_eq!(deliver_to(&receiver, "github", &delivery).await.status, 503, "{case}");
        assert_eq!(world.count_records().await, 0, "{case}");
        proxy.follow(|_, _| Fault::None);
        assert_eq!(deliver_to(&receiver, "github", &delivery).await.status, 200, "{case}");
        assert_eq!(written(&world).await, (1, 1), "{case}");
    }
}

/// What DynamoDB says of a transaction that met another.
const CONFLICT: Fault = Fault::Refuse(400, "TransactionInProgressException");

#[tokio::test]
async fn a_duplicate_whose_transaction_meets_others_only_is_a_duplicate() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    assert_eq!(deliver_to(&receiver, "github", &push("guid-1", "a")).await.status, 200);
    let conflict = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "Transaction cancelled, please refer cancellation reasons for specific reasons",
        "CancellationReasons": [{ "Code": "TransactionConflict" }, { "Code": "None" }]
    });
    let fault = Fault::RefuseWith(400, conflict.to_string());
    let proxy = FaultProxy::start(&world.dynamodb_url, every_call(TRANSACTION, fault)).await;
    let clock = Clock::default();
    let receiver = world.receiver_at(&config(true), clock, &proxy.url, &world.sqs_url).await;
    // The record is there, whoever holds it: no reason for a 503.
    assert_eq!(deliver_to(&receiver, "github", &push("guid-1", "a")).await.status, 200);
    // Of an event without a record nothing is known.
    assert_eq!(deliver_to(&receiver, "github", &push("guid-2", "a")).await.status, 503);
}

#[tokio::test]
async fn a_sweep_passes_fingerprints_by_and_the_event_ends() {
    let world = World::start().await;
    let receiver = world.receiver(&config(true)).await;
    assert_eq!(deliver_to(&receiver, "github", &push("guid-1", "a")).await.status, 200);
    let handler = tests::handlers::Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let worker = world.worker(&config(true), &[("test", handler.clone())]);
    world.work(&worker).await;
    assert_eq!(handler.called(), 1);
    world.sweeper(Clock::with_offset(3_600_000)).sweep().await.expect("a pass");
    assert_eq!(world.queue_depth().await, (0, 0));
    let scanned = world.ledger.client().scan().table_name(world.ledger.table()).send();
    let items = scanned.await.expect("a scan").items.unwrap_or_default();
    let state = items.iter().find_map(|item| item.get("state")?.as_s().ok());
    assert_eq!(state.map(String::as_str), Some(StateName::Done.as_str()));
    let expiry = |item: &std::collections::HashMap<_, _>| -> Option<i64> {
        let value: &aws_sdk_dynamodb::types::AttributeValue = item.get("expires_at")?;
        value.as_n().ok()?.parse().ok()
    };
    let now = Clock::default().now();
    for item in &items {
        let expires_at = Timestamp::from_secs(expiry(item).expect("both expire"));
        assert!(expires_at > now.plus(std::time::Duration::from_secs(7 * 86_400)));
    }
}

#[tokio::test]
async fn a_replay_is_counted_as_a_duplicate_and_called_what_it_is() {
    let world = World::start().await;
    let mut receiver = LoggedReceiver::start(&world, &config(true), &world.sqs_url).await;
    for (id, result, outcome) in [("guid-1", "new", "claimed"), ("guid-2", "duplicate", "replayed")]
    {
        let event = base64_event("/webhooks/github", &push(id, "a"));
        assert_eq!(receiver.receive(&event).await, 200);
        let line = receiver.next_line("webhook_events_total").await;
        assert_eq!((&line["result"], &line["outcome"]), (&json!(result), &json!(outcome)));
    }
}

#[test]
fn a_fingerprint_is_refused_where_the_catalogue_has_none() {
    let mut config = stripe_config();
    config["sources"]["stripe"]["fingerprint"] = json!(true);
    let parsed = Config::parse("test", &config.to_string(), Format::Json, None, Trust::Local);
    let refused = parsed.expect_err("refused").to_string();
    assert!(refused.contains("sources.stripe.fingerprint: this provider's catalogue"), "{refused}");
}
