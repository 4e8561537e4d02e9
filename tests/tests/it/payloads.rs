//! A payload that fits on no record lies in a bucket before any record names it.

use std::sync::{Arc, Mutex, PoisonError};

use domain::{
    delivery::Delivery,
    item::Attribute,
    record::{KeptPayload, StateName},
};
use receiver::Receiver;
use runtime::{aws::Patience, clock::Clock};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tests::{
    bucket::Bucket,
    handlers::Scripted,
    proxy::{Fault, FaultProxy, every_call},
    world::{World, deliver, occurred_at, stripe_body, stripe_config},
};
use worker::Attempts;

/// Digests do not compress below half of their hex: about a megabyte that becomes half of one.
fn large(id: &str, salt: u32) -> Vec<u8> {
    let noise: String = (0..16_000_u32)
        .map(|n| format!("{:x}", Sha256::digest((salt + n).to_be_bytes())))
        .collect();
    let event = json!({
        "id": id,
        "type": "payment_intent.succeeded",
        "created": occurred_at().millis() / 1000,
        "noise": noise
    });
    event.to_string().into_bytes()
}

fn delivery(id: &str, salt: u32) -> Delivery {
    stripe_body(&large(id, salt))
}

async fn receiver(world: &World, bucket: &Bucket) -> Receiver {
    let receiver = world.receiver(&stripe_config()).await;
    receiver.with_payloads(Some(bucket.store(Patience::RECEIVER)))
}

/// What the handler was given.
type Given = Arc<Mutex<Vec<Vec<u8>>>>;

fn worker(world: &World, bucket: Option<&Bucket>) -> (Attempts, Given) {
    let given = Given::default();
    let noted = Arc::clone(&given);
    let handler = Scripted::new(move |event, _| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(event.payload.clone());
        Box::pin(async { Ok(()) })
    });
    let worker = world.worker(&stripe_config(), &[("test", handler)]);
    let store = bucket.map(|bucket| bucket.store(Patience::WORKER));
    (worker.with_payloads(store), given)
}

fn given(given: &Given) -> Vec<Vec<u8>> {
    given.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::test]
async fn a_large_payload_comes_back_byte_by_byte_and_the_record_is_small() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    for _ in 0..3 {
        assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    }
    let item = world.item("evt_1").await.expect("recorded");
    assert_eq!(item.get(&Attribute::Payload), None);
    let record = world.record("evt_1").await.expect("recorded");
    let Some(KeptPayload::Elsewhere { key, codec }) = record.payload else { panic!("inline") };
    assert_eq!(codec, "zstd");
    assert_eq!(bucket.objects().keys().collect::<Vec<_>>(), [&key]);
    assert!(key.starts_with("stripe/"), "{key}");
    assert!(!key.contains("evt_1"), "an id may hold what a key may not: {key}");
    let (worker, seen) = worker(&world, Some(&bucket));
    world.work(&worker).await;
    assert_eq!(given(&seen), [large("evt_1", 0)]);
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn what_fits_on_its_record_goes_to_no_bucket() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    let body = json!({ "id": "evt_1", "type": "payment_intent.succeeded", "created": 1 });
    assert_eq!(deliver(&receiver, &stripe_body(body.to_string().as_bytes())).await.status, 200);
    assert!(bucket.objects().is_empty());
}

#[tokio::test]
async fn no_record_names_a_payload_that_is_not_there() {
    for fault in [
        Fault::Refuse(500, "InternalError"),
        Fault::Refuse(403, "AccessDenied"),
        Fault::LoseRequest,
    ] {
        let (world, bucket) = (World::start().await, Bucket::start().await);
        let case = format!("{fault:?}");
        let receiver = receiver(&world, &bucket).await;
        bucket.meet(fault);
        assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 503, "{case}");
        assert_eq!(world.count_records().await, 0, "{case}");
        assert_eq!(world.queue_depth().await, (0, 0), "{case}");
        bucket.meet(Fault::None);
        assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200, "{case}");
        let (worker, seen) = worker(&world, Some(&bucket));
        world.work(&worker).await;
        assert_eq!(given(&seen), [large("evt_1", 0)], "{case}");
    }
}

#[tokio::test]
async fn a_crash_between_the_bucket_and_the_claim_leaves_no_more_than_an_object() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let plan = every_call("PutItem", Fault::LoseRequest);
    let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
    let broken = world
        .receiver_at(&stripe_config(), Clock::default(), &proxy.url, &world.sqs_url)
        .await
        .with_payloads(Some(bucket.store(Patience::RECEIVER)));
    assert_eq!(deliver(&broken, &delivery("evt_1", 0)).await.status, 503);
    assert_eq!((world.count_records().await, bucket.objects().len()), (0, 1));
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    assert_eq!((world.count_records().await, bucket.objects().len()), (1, 1));
    let (worker, seen) = worker(&world, Some(&bucket));
    world.work(&worker).await;
    assert_eq!(given(&seen).len(), 1);
}

#[tokio::test]
async fn another_payload_under_one_id_takes_nothing_from_the_first() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    for salt in [0, 100_000] {
        assert_eq!(deliver(&receiver, &delivery("evt_1", salt)).await.status, 200);
    }
    assert_eq!(bucket.objects().len(), 2);
    let (worker, seen) = worker(&world, Some(&bucket));
    world.work(&worker).await;
    assert_eq!(given(&seen), [large("evt_1", 0)]);
}

#[tokio::test]
async fn a_payload_whose_object_is_gone_is_parked_and_says_so() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    bucket.objects().clear();
    let (worker, seen) = worker(&world, Some(&bucket));
    world.work(&worker).await;
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some("payload_missing"));
    assert!(given(&seen).is_empty());
}

#[tokio::test]
async fn an_object_that_holds_something_else_is_parked_and_handed_to_nobody() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    let other = dynamo::payload::encode(&large("evt_1", 100_000)).bytes;
    bucket.objects().values_mut().for_each(|object| *object = other.clone().into());
    let (worker, seen) = worker(&world, Some(&bucket));
    world.work(&worker).await;
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some("payload_damaged"));
    assert!(given(&seen).is_empty());
}

#[tokio::test]
async fn a_payload_whose_object_is_gone_comes_back_with_a_duplicate() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    let (before, kept) = (world.item("evt_1").await, bucket.objects().clone());
    bucket.objects().clear();
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    assert_eq!(world.item("evt_1").await, before);
    assert_eq!(*bucket.objects(), kept);
}

#[tokio::test]
async fn a_worker_that_cannot_reach_the_bucket_tries_again_later() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    let denied = "<Error><Code>AccessDenied</Code><Message>made up</Message></Error>";
    bucket.meet(Fault::RefuseWith(403, denied.to_owned()));
    for (reached, class) in [(Some(&bucket), "payload_refused"), (None, "no_payload_store")] {
        world.enqueue("evt_1").await;
        let (worker, seen) = worker(&world, reached);
        // Past the wait of the attempt before.
        world
            .tamper("evt_1", "not_before", aws_sdk_dynamodb::types::AttributeValue::N("0".into()))
            .await;
        world.work(&worker).await;
        let record = world.record("evt_1").await.expect("recorded");
        assert_eq!(record.state.name(), StateName::Received, "{class}");
        assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some(class));
        assert!(given(&seen).is_empty());
    }
}

#[tokio::test]
async fn a_payload_that_is_dropped_when_done_is_named_no_more() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let mut config = stripe_config();
    config["sources"]["stripe"]["payload"] = json!("drop-when-done");
    let receiver = receiver(&world, &bucket).await;
    assert_eq!(deliver(&receiver, &delivery("evt_1", 0)).await.status, 200);
    let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let worker = world.worker(&config, &[("test", handler)]);
    world.work(&worker.with_payloads(Some(bucket.store(Patience::WORKER)))).await;
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!((record.state.name(), record.payload), (StateName::Done, None));
}
