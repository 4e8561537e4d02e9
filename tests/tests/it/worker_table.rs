//! Every row of the worker's table: what becomes of the message, and of the record.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    effects::StepName,
    item::Attribute,
    record::{ErrorNote, Record, State, StateName},
    time::Timestamp,
    transition::{ATTEMPTS_EXHAUSTED, CannotReplay, Operator, replay},
};
use dynamo::Ledger;
use futures::future::BoxFuture;
use runtime::clock::Clock;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqs::Message;
use tests::{
    handlers::Scripted,
    play::{Gate, ahead, apply, hold, stripe_policy, stripe_with, visibilities},
    proxy::Fault,
    world::{TABLE, World, deliver, stripe_config, stripe_delivery, stripe_key},
};
use tokio::sync::Barrier;
use worker::{Effects, Event, Failure, handlers::Handler};

// ---- nothing to run -------------------------------------------------------------------------

#[tokio::test]
async fn effects_that_are_done_close_the_record_and_delete_the_message() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = done();
    let response = world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert!(response.batch_item_failures.is_empty());
    assert_eq!(handler.called(), 1);
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 1));
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn a_message_of_a_closed_or_parked_event_is_deleted_and_runs_nothing() {
    let world = World::start().await;
    let config = stripe_config();
    world.claim(&config, "evt_done").await;
    world.work(&world.scripted(&config, &done())).await;
    for id in ["evt_parked", "evt_discarded"] {
        world.claim(&config, id).await;
    }
    world.work(&world.scripted(&config, &refusing())).await;
    world.discard("evt_discarded").await;
    for (id, state) in [
        ("evt_done", StateName::Done),
        ("evt_parked", StateName::Failed),
        ("evt_discarded", StateName::Discarded),
    ] {
        let before = world.expect_item(id).await;
        world.enqueue(id).await;
        let handler = done();
        world.work(&world.scripted(&config, &handler)).await;
        assert_eq!(handler.called(), 0, "{id}");
        assert_eq!(world.expect_record(id).await.state.name(), state);
        assert_eq!(world.expect_item(id).await, before, "{id}");
        assert_eq!(world.queue_depth().await, (0, 0), "{id}");
    }
}

#[tokio::test]
async fn a_message_without_a_record_is_deleted_and_makes_none() {
    let world = World::start().await;
    world.enqueue("evt_nobody").await;
    let handler = done();
    let response = world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert!(response.batch_item_failures.is_empty());
    assert_eq!(handler.called(), 0);
    assert_eq!(world.queue_depth().await, (0, 0));
    assert_eq!(world.count_records().await, 0);
}

// ---- not now --------------------------------------------------------------------------------

#[tokio::test]
async fn anothers_live_lease_keeps_the_message_until_that_lease_ends() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let now = Clock::default().now();
    world.hold("evt_1", now, now.plus(Duration::from_secs(200))).await;
    let before = world.expect_item("evt_1").await;
    let handler = done();
    let (worker, sqs) = world.seen_by_sqs(&stripe_config(), &handler).await;
    world.work(&worker).await;
    assert_eq!(handler.called(), 0);
    assert_eq!(world.expect_item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (0, 1));
    assert_about(&visibilities(&sqs), 201);
}

#[tokio::test]
async fn a_release_that_still_waits_keeps_the_message_until_it_ends() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let later = Clock::default().now().plus(Duration::from_secs(300)).millis();
    world.tamper("evt_1", "not_before", AttributeValue::N(later.to_string())).await;
    let before = world.expect_item("evt_1").await;
    let handler = done();
    let (worker, sqs) = world.seen_by_sqs(&stripe_config(), &handler).await;
    world.work(&worker).await;
    assert_eq!(handler.called(), 0);
    assert_eq!(world.expect_item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (0, 1));
    assert_about(&visibilities(&sqs), 300);
}

#[tokio::test]
async fn a_release_whose_wait_has_ended_is_leased() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let later = Clock::default().now().plus(Duration::from_secs(300)).millis();
    world.tamper("evt_1", "not_before", AttributeValue::N(later.to_string())).await;
    let clock = ahead(Duration::from_secs(301));
    world.work(&world.scripted_at(&stripe_config(), &done(), clock)).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
}

#[tokio::test]
async fn with_too_little_time_left_no_lease_is_taken() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let before = world.expect_item("evt_1").await;
    let handler = done();
    let worker = world.scripted(&stripe_config(), &handler);
    let response = world.work_for(&worker, Duration::from_millis(2_500)).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(handler.called(), 0);
    assert_eq!(world.expect_item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (0, 1));
}

#[tokio::test]
async fn a_ledger_that_cannot_be_asked_keeps_the_message_and_runs_nothing() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let before = world.expect_item("evt_1").await;
    let handler = done();
    let (worker, dynamodb) = world.seen_by_dynamodb(&stripe_config(), &handler).await;
    dynamodb.follow(|_, _| Fault::Refuse(400, "AccessDeniedException"));
    let response = world.work(&worker).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(handler.called(), 0);
    assert_eq!(world.expect_item("evt_1").await, before);
}

// ---- the handler says no --------------------------------------------------------------------

#[tokio::test]
async fn a_retry_without_delay_waits_in_the_queue_as_long_as_the_record_says() {
    let world = World::start().await;
    let backoff = json!({ "first": "100s", "longest": "100s" });
    let config = stripe_with("backoff", backoff);
    world.claim(&config, "evt_1").await;
    let due = world.expect_item("evt_1").await[&Attribute::DueAt].clone();
    let before = Clock::default().now();
    let handler = retrying(None);
    let (worker, sqs) = world.seen_by_sqs(&config, &handler).await;
    world.work(&worker).await;
    let record = world.expect_record("evt_1").await;
    let wait = not_before(&record).since(before);
    assert!(wait >= Duration::from_secs(1) && wait < Duration::from_secs(110), "{wait:?}");
    assert_about(&visibilities(&sqs), wait.as_secs());
    assert_eq!(world.queue_depth().await, (0, 1));
    assert_eq!(record.last_error.expect("an error").class, "gateway_down");
    // The message comes back by itself: the sweep's time stays where the claim put it.
    assert_eq!(world.expect_item("evt_1").await[&Attribute::DueAt], due);
}

#[tokio::test]
async fn a_delay_up_to_fifteen_minutes_stays_in_the_queue() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let (_, due_before) = waiting(&world.expect_record("evt_1").await);
    let (worker, sqs) = world.seen_by_sqs(&stripe_config(), &retrying(Some(900))).await;
    world.work(&worker).await;
    assert_about(&visibilities(&sqs), 900);
    assert_eq!(world.queue_depth().await, (0, 1));
    assert_eq!(waiting(&world.expect_record("evt_1").await).1, due_before);
}

#[tokio::test]
async fn a_longer_delay_is_the_sweeps_and_the_message_is_deleted() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let before = Clock::default().now();
    let (worker, sqs) = world.seen_by_sqs(&stripe_config(), &retrying(Some(3600))).await;
    let response = world.work(&worker).await;
    assert!(response.batch_item_failures.is_empty());
    assert_eq!(world.queue_depth().await, (0, 0));
    assert_eq!(visibilities(&sqs), Vec::<u64>::new());
    let record = world.expect_record("evt_1").await;
    let (not_before, due_at) = waiting(&record);
    assert_eq!(not_before, Some(due_at));
    assert!(due_at >= before.plus(Duration::from_secs(3600)));
}

#[tokio::test]
async fn a_delay_is_bounded() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    world.work(&world.scripted(&stripe_config(), &retrying(Some(u64::MAX)))).await;
    let wait = not_before(&world.expect_record("evt_1").await).since(Clock::default().now());
    assert!(wait <= domain::limits::MAX_RETRY_AFTER, "{wait:?}");
    assert!(wait > domain::limits::MAX_RETRY_AFTER / 2, "{wait:?}");
}

#[tokio::test]
async fn a_handler_that_wants_no_wait_does_not_use_up_its_attempts_at_once() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let before = Clock::default().now();
    world.work(&world.scripted(&stripe_config(), &retrying(Some(0)))).await;
    let wait = not_before(&world.expect_record("evt_1").await).since(before);
    assert!(wait >= Duration::from_secs(1), "{wait:?}");
}

#[tokio::test]
async fn a_permanent_failure_parks_with_its_reason_and_deletes_the_message() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let response = world.work(&world.scripted(&stripe_config(), &refusing())).await;
    assert!(response.batch_item_failures.is_empty());
    assert_parked(&world, "evt_1", "card_stolen", "never again").await;
}

#[tokio::test]
async fn the_retry_that_uses_up_the_attempts_parks_with_the_last_reason() {
    let world = World::start().await;
    let config = stripe_with("attempts", 2);
    world.claim(&config, "evt_1").await;
    let handler = retrying(None);
    world.work(&world.scripted(&config, &handler)).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Received);
    world.enqueue("evt_1").await;
    world.work(&world.scripted_at(&config, &handler, ahead(Duration::from_secs(60)))).await;
    assert_eq!(handler.called(), 2);
    let text = "2 attempts used; last: gateway_down: no luck";
    assert_parked(&world, "evt_1", ATTEMPTS_EXHAUSTED, text).await;
}

#[tokio::test]
async fn attempts_used_up_by_crashes_park_without_another_run() {
    let world = World::start().await;
    let config = stripe_with("attempts", 2);
    world.claim(&config, "evt_1").await;
    world.work(&world.scripted(&config, &retrying(None))).await;
    // The last attempt took its lease, and its process died.
    let then = Clock::default().now().plus(Duration::from_secs(60));
    world.hold("evt_1", then, then.plus(Duration::from_secs(30))).await;
    world.enqueue("evt_1").await;
    let handler = done();
    let clock = ahead(Duration::from_secs(120));
    world.work(&world.scripted_at(&config, &handler, clock)).await;
    assert_eq!(handler.called(), 0);
    let text = "2 of 2 attempts used; last: gateway_down: no luck";
    assert_parked(&world, "evt_1", ATTEMPTS_EXHAUSTED, text).await;
}

#[tokio::test]
async fn the_last_attempt_of_a_live_worker_is_not_parked_under_it() {
    let world = World::start().await;
    let config = stripe_with("attempts", 1);
    world.claim(&config, "evt_1").await;
    let now = Clock::default().now();
    world.hold("evt_1", now, now.plus(Duration::from_secs(60))).await;
    let before = world.expect_item("evt_1").await;
    world.work(&world.scripted(&config, &done())).await;
    assert_eq!(world.expect_item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (0, 1));
}

#[tokio::test]
async fn a_hanging_handler_is_released_before_the_deadline() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(|_, _| Box::pin(std::future::pending()));
    let worker = world.scripted(&stripe_config(), &handler);
    let time = Duration::from_secs(4);
    let deadline = Clock::default().now().plus(time);
    let response = world.work_for(&worker, time).await;
    assert!(
        Clock::default().now() < deadline,
        "the worker is through before its process is killed"
    );
    assert_eq!(response.batch_item_failures.len(), 1);
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Received);
    assert_eq!(record.last_error.expect("an error").class, "deadline");
}

// ---- the lease is lost ----------------------------------------------------------------------

#[tokio::test]
async fn a_lease_lost_at_completion_leaves_the_record_and_follows_it() {
    let cases = [
        (Usurper::Holds, Some(200)),
        (Usurper::Releases, Some(600)),
        (Usurper::Completes, None),
        (Usurper::Parks, None),
        (Usurper::Vanishes, None),
    ];
    for (usurper, kept) in cases {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let left = Arc::new(Mutex::new(None));
        let (ledger, left_by_usurper) = (world.ledger.clone(), Arc::clone(&left));
        let handler = Scripted::new(move |_, _| {
            let (ledger, left) = (ledger.clone(), Arc::clone(&left_by_usurper));
            Box::pin(async move {
                usurp(&ledger, "evt_1", usurper).await;
                let item = ledger.read(&stripe_key("evt_1")).await.expect("a read");
                *left.lock().expect("no panic") = item;
                Ok(())
            })
        });
        let (worker, sqs) = world.seen_by_sqs(&stripe_config(), &handler).await;
        let response = world.work(&worker).await;
        assert_eq!(response.batch_item_failures.is_empty(), kept.is_none(), "{usurper:?}");
        match kept {
            Some(seconds) => assert_about(&visibilities(&sqs), seconds),
            None => assert_eq!(world.queue_depth().await, (0, 0), "{usurper:?}"),
        }
        let left = left.lock().expect("no panic").clone();
        assert_eq!(left.is_none(), usurper == Usurper::Vanishes);
        assert_eq!(world.item("evt_1").await, left, "{usurper:?}");
    }
}

/// What another worker did to the record meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usurper {
    Holds,
    Releases,
    Completes,
    Parks,
    Vanishes,
}

async fn usurp(ledger: &Ledger, id: &str, usurper: Usurper) {
    if usurper == Usurper::Vanishes {
        let key = AttributeValue::S(stripe_key(id).pk());
        let deleted = ledger.client().delete_item().table_name(TABLE).key("pk", key).send();
        deleted.await.expect("deleted");
        return;
    }
    let now = Clock::default().now();
    let far = now.plus(Duration::from_secs(3600));
    let (lease, _) = hold(ledger, id, far, now.plus(Duration::from_secs(200))).await;
    let note = ErrorNote::new("usurper", "the usurper's own", now);
    let write = match usurper {
        Usurper::Holds | Usurper::Vanishes => return,
        Usurper::Releases => lease.release(Duration::from_secs(600), &note, &[], now),
        Usurper::Completes => lease.complete(&[], now, &stripe_policy(&stripe_config())),
        Usurper::Parks => lease.park(&note, &[], now),
    };
    apply(ledger, &write.write).await;
}

// ---- batches --------------------------------------------------------------------------------

#[tokio::test]
async fn an_unreadable_message_fails_alone() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    for body in ["not ours", "{\"v\":2,\"key\":\"stripe#evt_1\"}", "{\"v\":1,\"key\":\"no key\"}"] {
        world.enqueue_body(body).await;
    }
    let response = world.work(&world.scripted(&stripe_config(), &done())).await;
    assert_eq!(response.batch_item_failures.len(), 3);
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!(world.queue_depth().await, (0, 3));
}

#[tokio::test]
async fn a_panicking_handler_fails_its_record_alone_and_is_released() {
    for sync in [false, true] {
        let world = World::start().await;
        for id in ["evt_1", "evt_bad", "evt_2"] {
            world.claim(&stripe_config(), id).await;
        }
        let handler = Scripted::new(move |event, _| {
            let bad = event.key.id().as_str() == "evt_bad";
            assert!(!(bad && sync), "a panic before the handler's first await");
            Box::pin(async move {
                assert!(!bad, "a panic in the handler");
                Ok(())
            })
        });
        let response = world.work(&world.scripted(&stripe_config(), &handler)).await;
        assert_eq!(response.batch_item_failures.len(), 1);
        for id in ["evt_1", "evt_2"] {
            assert_eq!(world.expect_record(id).await.state.name(), StateName::Done, "{id}");
        }
        let record = world.expect_record("evt_bad").await;
        assert_eq!(record.state.name(), StateName::Received, "sync: {sync}");
        assert_eq!(record.last_error.expect("an error").class, "handler_panicked");
    }
}

/// Its handler panics where no attempt has begun that could be released.
#[tokio::test]
async fn a_record_whose_work_panics_is_kept_and_the_others_are_done() {
    let world = World::start().await;
    for id in ["evt_1", "evt_bad", "evt_2"] {
        world.claim(&stripe_config(), id).await;
    }
    world.drain().await;
    for (id, event_type) in [("evt_1", "good"), ("evt_bad", "bad"), ("evt_2", "good")] {
        let message = Message { key: stripe_key(id), event_type: Some(event_type.to_owned()) };
        world.enqueue_body(&message.to_body().expect("JSON")).await;
    }
    let worker = world.worker(&stripe_config(), &[("test", Arc::new(PanicsBefore))]);
    let response = world.work(&worker).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(world.queue_depth().await, (0, 1), "one message is kept");
    for id in ["evt_1", "evt_2"] {
        assert_eq!(world.expect_record(id).await.state.name(), StateName::Done, "{id}");
    }
    assert_eq!(world.expect_record("evt_bad").await.state.name(), StateName::Received);
}

/// Panics when it is asked for the step that a `bad` event opens with.
#[derive(Debug)]
struct PanicsBefore;

impl Handler for PanicsBefore {
    fn handle<'a>(
        &'a self,
        _event: &'a Event,
        _effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn opening_step(&self, event_type: Option<&str>) -> Option<StepName> {
        assert_ne!(event_type, Some("bad"), "a panic before the lease");
        None
    }
}

#[tokio::test]
async fn the_records_of_a_batch_run_at_the_same_time() {
    let world = World::start().await;
    for number in 0..10 {
        world.claim(&stripe_config(), &format!("evt_{number}")).await;
    }
    // Each waits for the nine others: one after the other, none would ever be done.
    let barrier = Arc::new(Barrier::new(10));
    let handler = Scripted::new(move |_, _| {
        let barrier = Arc::clone(&barrier);
        Box::pin(async move {
            barrier.wait().await;
            Ok(())
        })
    });
    let response = world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert!(response.batch_item_failures.is_empty());
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn no_more_records_run_at_the_same_time_than_the_limit() {
    let world = World::start().await;
    let count = domain::limits::MAX_CONCURRENT_RECORDS + 2;
    for number in 0..count {
        world.claim(&stripe_config(), &format!("evt_{number}")).await;
    }
    let mut batch = world.receive_batch().await;
    batch.records.extend(world.receive_batch().await.records);
    assert_eq!(batch.records.len(), count);
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let handler = Scripted::new(move |_, _| {
        let gate = Arc::clone(&held);
        Box::pin(async move {
            gate.pass().await;
            Ok(())
        })
    });
    let worker = world.scripted(&stripe_config(), &handler);
    let deadline = Clock::default().now().plus(Duration::from_secs(30));
    let (response, ()) = tokio::join!(worker::work(&worker, batch, deadline), async {
        gate.wait_for(10).await;
        // Time enough for one more to arrive, if there were one.
        for _ in 0..20 {
            world.count_records().await;
        }
        assert_eq!(gate.arrived(), domain::limits::MAX_CONCURRENT_RECORDS);
        gate.open();
    });
    assert!(response.expect("a response").batch_item_failures.is_empty());
    assert_eq!(gate.arrived(), count);
}

#[tokio::test]
async fn a_kept_record_without_a_message_id_keeps_the_whole_batch() {
    for id in [None, Some(String::new())] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let mut batch = world.receive_batch().await;
        let mut unnamed = SqsMessage::default();
        unnamed.message_id = id;
        unnamed.body = Some("not ours".to_owned());
        batch.records.push(unnamed);
        let worker = world.scripted(&stripe_config(), &done());
        // An error of the invocation: SQS keeps all, where an empty name might delete all.
        assert!(worker::work(&worker, batch, in_half_a_minute()).await.is_err());
        assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    }
}

#[tokio::test]
async fn a_record_that_is_done_needs_no_message_id() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let mut batch = world.receive_batch().await;
    batch.records[0].message_id = None;
    let worker = world.scripted(&stripe_config(), &done());
    let response = worker::work(&worker, batch, in_half_a_minute()).await.expect("a response");
    assert!(response.batch_item_failures.is_empty());
}

#[tokio::test]
async fn a_message_without_a_receipt_handle_is_kept_all_the_same() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let mut batch = world.receive_batch().await;
    batch.records[0].receipt_handle = None;
    let worker = world.scripted(&stripe_config(), &retrying(None));
    let response = worker::work(&worker, batch, in_half_a_minute()).await.expect("a response");
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Received);
}

#[tokio::test]
async fn an_empty_batch_is_answered_with_nothing_kept() {
    let world = World::start().await;
    let worker = world.scripted(&stripe_config(), &done());
    let response = worker::work(&worker, SqsEvent::default(), in_half_a_minute()).await;
    assert!(response.expect("a response").batch_item_failures.is_empty());
}

// ---- the configuration moved on -------------------------------------------------------------

#[tokio::test]
async fn an_event_of_a_source_that_this_worker_does_not_know_is_tried_again() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let mut config = stripe_config();
    let source = config["sources"]["stripe"].take();
    config["sources"] = json!({ "another": source });
    let handler = done();
    world.work(&world.scripted(&config, &handler)).await;
    assert_eq!(handler.called(), 0);
    // A warm worker may be older than the receiver's configuration.
    assert_released(&world, "evt_1", "no_source").await;
}

#[tokio::test]
async fn an_event_that_no_route_of_this_worker_takes_is_tried_again() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = done();
    world.work(&world.scripted(&stripe_with("types", json!(["charge.*"])), &handler)).await;
    assert_eq!(handler.called(), 0);
    assert_released(&world, "evt_1", "no_route").await;
}

async fn assert_released(world: &World, id: &str, class: &str) {
    let record = world.expect_record(id).await;
    assert_eq!(record.state.name(), StateName::Received);
    assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some(class));
    assert_eq!(world.queue_depth().await.1, 1, "the message stays");
}

#[tokio::test]
async fn a_payload_to_be_dropped_goes_with_completion_and_its_digest_stays() {
    let world = World::start().await;
    let config = stripe_with("payload", "drop-when-done");
    let delivery = stripe_delivery("evt_1");
    let digest: [u8; 32] = Sha256::digest(&delivery.body).into();
    deliver(&world.receiver(&config).await, &delivery).await;
    world.work(&world.scripted(&config, &retrying(None))).await;
    assert!(world.expect_record("evt_1").await.payload.is_some(), "a retry needs it");
    world.enqueue("evt_1").await;
    world.work(&world.scripted_at(&config, &done(), ahead(Duration::from_secs(60)))).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.payload.as_ref(), record.payload_sha256), (None, digest));
    let operator = Operator { name: "ada", reason: "again" };
    let now = Clock::default().now();
    let replayed = replay(&record, &operator, now, &stripe_policy(&config), false);
    assert_eq!(replayed.err(), Some(CannotReplay::PayloadDropped));
}

#[tokio::test]
async fn the_handler_sees_the_exact_bytes_and_what_was_identified() {
    let world = World::start().await;
    let delivery = stripe_delivery("evt_1");
    deliver(&world.receiver(&stripe_config()).await, &delivery).await;
    let body = delivery.body.clone();
    let seen = Arc::new(AtomicUsize::new(0));
    let seen_by_handler = Arc::clone(&seen);
    let handler = Scripted::new(move |event, _| {
        let same = event.payload == body
            && event.key == stripe_key("evt_1")
            && event.event_type.as_deref() == Some("payment_intent.succeeded")
            && event.provider == "stripe"
            && event.attempt == 1;
        seen_by_handler.fetch_add(usize::from(same), Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

// ---- helpers --------------------------------------------------------------------------------

fn done() -> Arc<Scripted> {
    Scripted::new(|_, _| Box::pin(async { Ok(()) }))
}

fn retrying(after_secs: Option<u64>) -> Arc<Scripted> {
    Scripted::new(move |_, _| {
        Box::pin(async move {
            let failure = Failure::retry("gateway_down", "no luck");
            Err(match after_secs {
                Some(secs) => failure.after(Duration::from_secs(secs)),
                None => failure,
            })
        })
    })
}

fn refusing() -> Arc<Scripted> {
    Scripted::new(|_, _| Box::pin(async { Err(Failure::permanent("card_stolen", "never again")) }))
}

fn in_half_a_minute() -> Timestamp {
    Clock::default().now().plus(Duration::from_secs(30))
}

fn waiting(record: &Record) -> (Option<Timestamp>, Timestamp) {
    let State::Received { not_before, due_at } = record.state else {
        panic!("waits, and is not {:?}", record.state)
    };
    (not_before, due_at)
}

fn not_before(record: &Record) -> Timestamp {
    waiting(record).0.expect("a wait")
}

/// One visibility was set, and to about this: within what a slow machine takes.
fn assert_about(visibilities: &[u64], seconds: u64) {
    let [visibility] = visibilities else { panic!("one, not {visibilities:?}") };
    assert!(visibility.abs_diff(seconds) <= 10, "{visibility} s, not {seconds} s");
}

async fn assert_parked(world: &World, id: &str, class: &str, text: &str) {
    let record = world.expect_record(id).await;
    assert_eq!(record.state.name(), StateName::Failed);
    let error = record.last_error.expect("a reason");
    assert_eq!((error.class.as_str(), error.text.as_str()), (class, text));
    assert!(!world.expect_item(id).await.contains_key(&Attribute::ExpiresAt));
    assert_eq!(world.queue_depth().await.0, 0);
}
