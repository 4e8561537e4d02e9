//! Where nothing tells one change from the next, all that come together are one event, which is
//! worked on once they are over: no change is told of after the run that is to find it.

use std::time::Duration;

use domain::{
    delivery::Delivery,
    event::EventKey,
    item::Attribute,
    limits,
    record::{Record, StateName},
    time::Timestamp,
};
use runtime::clock::Clock;
use serde_json::{Value, json};
use sqs::Message;
use tests::{
    deliveries::{deliver_to, signed},
    handlers::Scripted,
    world::{TABLE, World},
};

const SECRET: &str = "kept-between-two";
const WINDOW: Duration = Duration::from_secs(10);

fn config() -> Value {
    let source = json!({
        "provider": "dropbox",
        "secrets": [format!("literal:{SECRET}")],
        "deliver": { "handler": "test" }
    });
    json!({ "sources": { "dropbox": source } })
}

/// What says no more than that something changed.
fn change(account: &str, more: &str) -> Delivery {
    let body = format!(r#"{{"list_folder":{{"accounts":["{account}"]}},"more":"{more}"}}"#);
    signed("dropbox", SECRET, &[], body.as_bytes())
}

/// A clock that says this much after the start of the next ten seconds.
fn into_window(after: Duration) -> Clock {
    let now = Clock::default().now().millis();
    let to_start = 10_000 - now.rem_euclid(10_000);
    Clock::with_offset(to_start + i64::try_from(after.as_millis()).expect("short"))
}

async fn records(world: &World) -> Vec<Record> {
    let scanned = world.ledger.client().scan().table_name(TABLE).send().await.expect("a scan");
    let mut records = Vec::new();
    for item in scanned.items.unwrap_or_default() {
        let pk = item[Attribute::Pk.name()].as_s().expect("text");
        let key = EventKey::parse(pk).expect("a key");
        let item = world.ledger.read(&key).await.expect("a read").expect("there");
        records.push(Record::from_item(item).expect("readable"));
    }
    records
}

#[tokio::test]
async fn changes_that_come_together_are_one_event_that_runs_after_the_last_of_them() {
    let world = World::start().await;
    let start = into_window(Duration::ZERO).now();
    for (after, account) in [(1, "a"), (4, "a"), (9, "a"), (9, "b"), (11, "a")] {
        let clock = into_window(Duration::from_secs(after));
        let (dynamodb, sqs) = (&world.dynamodb_url, &world.sqs_url);
        let receiver = world.receiver_at(&config(), clock, dynamodb, sqs).await;
        // Another body each time: they are to be one event all the same.
        let delivery = change(account, &after.to_string());
        assert_eq!(deliver_to(&receiver, "dropbox", &delivery).await.status, 200);
    }
    let mut records = records(&world).await;
    records.sort_by_key(|record| (record.object_id.clone(), record.received_at));
    let found: Vec<_> = records
        .iter()
        .map(|record| (record.object_id.as_deref(), record.payload_mismatch.is_some()))
        .collect();
    assert_eq!(found, [(Some("a"), false), (Some("a"), false), (Some("b"), false)]);
    assert_eq!(world.queue_depth().await, (0, 0), "each message waits as its record does");

    let first = &records[0];
    let first_run = start.plus(WINDOW).plus(limits::CLOCK_SKEW);
    let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    for (at, ran) in [(first_run.minus(Duration::from_secs(2)), 0), (first_run, 1)] {
        assert_eq!(work(&world, first, handler.clone(), at).await, ran, "{at:?}");
    }
    let now = world.ledger.read(&first.key).await.expect("a read").expect("there");
    let now = Record::from_item(now).expect("readable");
    assert_eq!(now.state.name(), StateName::Done);
}

/// Has a worker look at a record's message at this time; gives how often the handler ran so far.
async fn work(
    world: &World,
    record: &Record,
    handler: std::sync::Arc<Scripted>,
    at: Timestamp,
) -> usize {
    let clock = Clock::with_offset(at.millis() - Clock::default().now().millis());
    let (dynamodb, sqs) = (&world.dynamodb_url, &world.sqs_url);
    let worker = world.worker_at(&config(), &[("test", handler.clone())], clock, dynamodb, sqs);
    let message = Message { key: record.key.clone(), event_type: None };
    let deadline = at.plus(Duration::from_secs(30));
    worker.work_on(&message.to_body().expect("JSON"), "none", deadline).await;
    handler.called()
}

#[tokio::test]
async fn its_message_comes_when_it_may_run() {
    let world = World::start().await;
    // Near its end, so that the wait is the clocks' tolerance.
    let clock = into_window(Duration::from_millis(9_900));
    let receiver = world.receiver_at(&config(), clock, &world.dynamodb_url, &world.sqs_url).await;
    assert_eq!(deliver_to(&receiver, "dropbox", &change("a", "")).await.status, 200);
    assert_eq!(world.receive_batch().await.records.len(), 0);
    assert_eq!(world.await_batch(Duration::from_secs(20)).await.records.len(), 1);
}
