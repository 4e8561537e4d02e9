//! What a crash left behind is found: due records are enqueued again or parked, everything else is
//! left alone. Clocks are moved ahead; nothing waits.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    event::EventKey,
    item::Attribute,
    limits,
    record::{ErrorNote, Record, State, StateName},
    time::Timestamp,
    transition::ATTEMPTS_EXHAUSTED,
};
use runtime::clock::Clock;
use tests::{
    handlers::Scripted,
    play::{ahead, stripe_policy, stripe_with},
    proxy::{Fault, FaultProxy},
    world::{World, deliver, stripe_config, stripe_delivery, stripe_key},
};
use worker::Failure;

// ---- received -------------------------------------------------------------------------------

#[tokio::test]
async fn an_event_is_enqueued_again_once_its_grace_is_over() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let before = world.expect_item("evt_1").await;
    sweep(&world, ahead(limits::GRACE / 2)).await;
    assert_eq!(world.expect_item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (0, 0));
    let clock = ahead(limits::GRACE + SECOND);
    sweep(&world, clock).await;
    assert_eq!(world.queue_depth().await, (1, 0));
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.requeues), (StateName::Received, 1));
    assert!(due_at(&record) > clock.now());
}

#[tokio::test]
async fn a_crash_between_claim_and_enqueue_is_healed() {
    let world = World::start().await;
    let sqs = FaultProxy::start(&world.sqs_url, |action, _| match action {
        "SendMessage" => Fault::Refuse(400, "AccessDenied"),
        _ => Fault::None,
    });
    let sqs = sqs.await;
    let (clock, dynamodb_url) = (Clock::default(), &world.dynamodb_url);
    let receiver = world.receiver_at(&stripe_config(), clock, dynamodb_url, &sqs.url).await;
    let answer = deliver(&receiver, &stripe_delivery("evt_1")).await;
    assert_eq!(answer.status, 200, "the record is durable");
    assert_eq!(world.queue_depth().await, (0, 0));
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    world.work(&world.scripted(&stripe_config(), &done())).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn every_shard_is_swept() {
    let world = World::start().await;
    let ids: Vec<_> = (0..40).map(|number| format!("evt_{number}")).collect();
    let shards: BTreeSet<_> = ids.iter().map(|id| stripe_key(id).shard()).collect();
    assert_eq!(shards.len(), limits::SHARDS as usize);
    let receiver = world.receiver(&stripe_config()).await;
    for id in &ids {
        deliver(&receiver, &stripe_delivery(id)).await;
    }
    while world.queue_depth().await.0 > 0 {
        world.drain().await;
    }
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    assert_eq!(world.queue_depth().await, (40, 0));
}

#[tokio::test]
async fn waits_between_requeues_double_up_to_an_hour() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let clock = Clock::starting_at(due_at(&world.expect_record("evt_1").await).plus(SECOND));
        let now = clock.now();
        sweep(&world, clock).await;
        waits.push(due_at(&world.expect_record("evt_1").await).since(now));
    }
    // Within what a pass takes.
    let close = |wait: Duration, to: u64| wait.as_secs().abs_diff(to) <= 20;
    for (wait, expected) in waits.iter().zip([60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]) {
        assert!(close(*wait, expected), "{waits:?}");
    }
    assert_eq!(world.expect_record("evt_1").await.requeues, 9);
}

#[tokio::test]
async fn a_release_that_still_waits_is_looked_at_after_it_ends_and_not_enqueued_before() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    // Ten minutes: the message itself waits in the queue.
    world.work(&world.scripted(&stripe_config(), &retrying(600))).await;
    let State::Received { not_before: Some(not_before), .. } =
        world.expect_record("evt_1").await.state
    else {
        panic!("waits")
    };
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    let record = world.expect_record("evt_1").await;
    // Once it ends its message comes back by itself; only if that is lost another is due.
    assert_eq!((due_at(&record), record.requeues), (not_before.plus(limits::GRACE), 0));
    assert_eq!(world.queue_depth().await.0, 0);
}

#[tokio::test]
async fn a_long_release_is_enqueued_when_it_ends() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    world.work(&world.scripted(&stripe_config(), &retrying(3600))).await;
    assert_eq!(world.queue_depth().await, (0, 0));
    sweep(&world, ahead(Duration::from_secs(3500))).await;
    assert_eq!(world.queue_depth().await, (0, 0));
    let clock = ahead(Duration::from_secs(3700));
    sweep(&world, clock).await;
    assert_eq!(world.queue_depth().await, (1, 0));
    world.work(&world.scripted_at(&stripe_config(), &done(), clock)).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
}

// ---- processing -----------------------------------------------------------------------------

#[tokio::test]
async fn a_live_lease_is_put_off_until_it_may_be_taken_over() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let now = Clock::default().now();
    let until = now.plus(Duration::from_secs(200));
    world.hold("evt_1", now, until).await;
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.requeues), (StateName::Processing, 0));
    assert_eq!(due_at(&record), until.plus(limits::CLOCK_SKEW).plus(Duration::from_millis(1)));
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn a_lease_that_ended_within_the_skew_is_still_its_holders() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let now = Clock::default().now();
    let swept_at = limits::GRACE + SECOND;
    world.hold("evt_1", now, now.plus(swept_at).minus(limits::CLOCK_SKEW / 4)).await;
    sweep(&world, Clock::starting_at(now.plus(swept_at))).await;
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn an_expired_lease_is_enqueued_and_taken_over() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let now = Clock::default().now();
    world.hold("evt_1", now, now.plus(Duration::from_secs(30))).await;
    let clock = ahead(limits::GRACE + SECOND);
    sweep(&world, clock).await;
    assert_eq!(world.queue_depth().await, (1, 0));
    world.work(&world.scripted_at(&stripe_config(), &done(), clock)).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 2));
}

#[tokio::test]
async fn attempts_used_up_by_a_crash_are_parked_with_the_last_error() {
    let world = World::start().await;
    let config = stripe_with("attempts", 2);
    world.claim(&config, "evt_1").await;
    world.work(&world.scripted(&config, &retrying(1))).await;
    let then = ahead(Duration::from_secs(10)).now();
    world.hold("evt_1", then, then.plus(Duration::from_secs(30))).await;
    let depth = world.queue_depth().await;
    sweep(&world, ahead(2 * limits::GRACE)).await;
    assert_eq!(world.queue_depth().await, depth, "nothing to run");
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Failed);
    let error = record.last_error.expect("a reason");
    assert_eq!(error.class, ATTEMPTS_EXHAUSTED);
    assert_eq!(error.text, "2 of 2 attempts used; last: gateway_down: no luck");
    let item = world.expect_item("evt_1").await;
    let shard = stripe_key("evt_1").shard();
    assert_eq!(item[&Attribute::QueueKey], format!("parked#{shard}").into());
    assert!(!item.contains_key(&Attribute::ExpiresAt));
}

#[tokio::test]
async fn the_last_attempt_of_a_live_worker_is_not_parked_under_it() {
    let world = World::start().await;
    let config = stripe_with("attempts", 1);
    world.claim(&config, "evt_1").await;
    let now = Clock::default().now();
    world.hold("evt_1", now, now.plus(Duration::from_secs(200))).await;
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Processing);
}

// ---- settled --------------------------------------------------------------------------------

#[tokio::test]
async fn parked_and_closed_events_are_left_alone_for_good() {
    let world = World::start().await;
    for id in ["evt_parked", "evt_discarded"] {
        world.claim(&stripe_config(), id).await;
    }
    let refusing =
        Scripted::new(|_, _| Box::pin(async { Err(Failure::permanent("never", "no luck")) }));
    world.work(&world.scripted(&stripe_config(), &refusing)).await;
    world.discard("evt_discarded").await;
    world.claim(&stripe_config(), "evt_done").await;
    world.work(&world.scripted(&stripe_config(), &done())).await;
    let ids = ["evt_parked", "evt_discarded", "evt_done"];
    let mut before = Vec::new();
    for id in ids {
        before.push(world.expect_item(id).await);
    }
    sweep(&world, ahead(Duration::from_secs(400 * 86_400))).await;
    for (id, before) in ids.into_iter().zip(before) {
        assert_eq!(world.expect_item(id).await, before, "{id}");
    }
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn only_closed_records_expire() {
    let world = World::start().await;
    let expires = async || world.expect_item("evt_1").await.remove(&Attribute::ExpiresAt);
    world.claim(&stripe_config(), "evt_1").await;
    assert_eq!(expires().await, None, "received");
    let now = Clock::default().now();
    let (lease, _) = world.hold("evt_1", now, now.plus(SECOND)).await;
    assert_eq!(expires().await, None, "processing");
    let note = ErrorNote::new("gateway_down", "no luck", now);
    world.apply(&lease.release(Duration::ZERO, &note, &[], now).write).await;
    assert_eq!(expires().await, None, "released");
    world.work(&world.scripted(&stripe_config(), &done())).await;
    let record = world.expect_record("evt_1").await;
    let State::Done(closure) = record.state else { panic!("done") };
    let retention = stripe_policy(&stripe_config()).retention.duration();
    // In seconds, rounded up: never early.
    let early = closure.completed_at.plus(retention);
    assert!(closure.expires_at >= early && closure.expires_at < early.plus(SECOND));
    assert_eq!(expires().await, Some((closure.expires_at.millis() / 1000).into()));
    world.replay("evt_1", false).await;
    assert_eq!(expires().await, None, "replayed");
    let (lease, _) = world.hold("evt_1", now, now.plus(SECOND)).await;
    world.apply(&lease.park(&note, &[], now).write).await;
    assert_eq!(expires().await, None, "parked");
    world.discard("evt_1").await;
    assert!(expires().await.is_some(), "discarded");
}

#[tokio::test]
async fn a_replayed_event_is_swept_like_a_new_one() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    world.work(&world.scripted(&stripe_config(), &done())).await;
    world.replay("evt_1", true).await;
    let clock = ahead(limits::GRACE + SECOND);
    sweep(&world, clock).await;
    assert_eq!(world.queue_depth().await, (1, 0));
    let handler = done();
    world.work(&world.scripted_at(&stripe_config(), &handler, clock)).await;
    assert_eq!(handler.called(), 1);
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
}

// ---- races and failures ---------------------------------------------------------------------

#[tokio::test]
async fn two_sweeps_at_once_send_one_message() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    // Each has read the record before either writes.
    let slow_reads = |action: &str, _: usize| match action {
        "GetItem" => Fault::Delay(Duration::from_millis(500)),
        _ => Fault::None,
    };
    let one = FaultProxy::start(&world.dynamodb_url, slow_reads).await;
    let two = FaultProxy::start(&world.dynamodb_url, slow_reads).await;
    let grace = limits::GRACE;
    let first = world.sweeper_at(ahead(grace + SECOND), &one.url, &world.sqs_url);
    let second = world.sweeper_at(ahead(grace + 9 * SECOND), &two.url, &world.sqs_url);
    let (one_swept, two_swept) = tokio::join!(first.sweep(), second.sweep());
    assert!(one_swept.is_ok() && two_swept.is_ok(), "a lost race is no error");
    let writes = |proxy: &FaultProxy| proxy.bodies("UpdateItem").len();
    assert_eq!((writes(&one), writes(&two)), (1, 1), "both wanted to");
    assert_eq!(world.queue_depth().await, (1, 0));
    assert_eq!(world.expect_record("evt_1").await.requeues, 1);
}

#[tokio::test]
async fn a_send_that_fails_after_the_bump_is_made_up_for_by_the_next_due_sweep() {
    let world = World::start().await;
    lose_message_of(&world, "evt_1").await;
    let sqs = FaultProxy::start(&world.sqs_url, |_, _| Fault::Refuse(400, "AccessDenied")).await;
    let clock = ahead(limits::GRACE + SECOND);
    let swept = world.sweeper_at(clock, &world.dynamodb_url, &sqs.url).sweep().await;
    assert!(swept.is_ok(), "the pass itself is complete");
    let record = world.expect_record("evt_1").await;
    assert!(due_at(&record) > clock.now(), "bumped before the send");
    sweep(&world, clock).await;
    assert_eq!(world.queue_depth().await, (0, 0), "not due again yet");
    sweep(&world, Clock::starting_at(due_at(&record).plus(SECOND))).await;
    assert_eq!(world.queue_depth().await, (1, 0));
}

#[tokio::test]
async fn a_record_that_changed_since_it_was_read_is_neither_sent_nor_parked() {
    let world = World::start().await;
    let config = stripe_with("attempts", 1);
    lose_message_of(&world, "evt_moved").await;
    world.claim(&config, "evt_last").await;
    world.drain().await;
    let now = Clock::default().now();
    let (last, _) = world.hold("evt_last", now, now.plus(Duration::from_secs(30))).await;
    let slow_reads = |action: &str, _: usize| match action {
        "GetItem" => Fault::Delay(Duration::from_secs(1)),
        _ => Fault::None,
    };
    let dynamodb = FaultProxy::start(&world.dynamodb_url, slow_reads).await;
    let sweeper = world.sweeper_at(ahead(2 * limits::GRACE), &dynamodb.url, &world.sqs_url);
    let (swept, ()) = tokio::join!(sweeper.sweep(), async {
        let both_are_read = async {
            while dynamodb.bodies("GetItem").len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(30 * SECOND, both_are_read).await.expect("both are due");
        // Read, or about to be: its holder completes the one, somebody bumps the other.
        let complete = last.complete(&[], now, &stripe_policy(&config));
        world.apply(&complete.write).await;
        let later = AttributeValue::N(ahead(10 * limits::GRACE).now().millis().to_string());
        world.tamper("evt_moved", "due_at", later).await;
    });
    assert!(swept.is_ok());
    assert_eq!(world.expect_record("evt_last").await.state.name(), StateName::Done);
    assert_eq!(world.expect_record("evt_moved").await.requeues, 0);
    assert_eq!(world.queue_depth().await, (0, 0));
}

#[tokio::test]
async fn a_corrupt_record_does_not_stop_the_others() {
    let world = World::start().await;
    let shard = stripe_key("evt_corrupt").shard();
    let neighbour = (0..).map(|number| format!("evt_{number}"));
    let neighbour = neighbour.into_iter().find(|id| stripe_key(id).shard() == shard);
    let neighbour = neighbour.expect("one of many");
    lose_message_of(&world, "evt_corrupt").await;
    lose_message_of(&world, &neighbour).await;
    world.tamper("evt_corrupt", "state", AttributeValue::S("exotic".into())).await;
    let before = world.expect_item("evt_corrupt").await;
    sweep(&world, ahead(limits::GRACE + SECOND)).await;
    assert_eq!(world.queue_depth().await, (1, 0));
    assert_eq!(world.expect_record(&neighbour).await.requeues, 1);
    let mut after = world.expect_item("evt_corrupt").await;
    let due_at = after.insert(Attribute::DueAt, before[&Attribute::DueAt].clone());
    assert_eq!(after, before, "never guessed at");
    assert_ne!(
        due_at.as_ref(),
        before.get(&Attribute::DueAt),
        "put off, not to stand before others"
    );
}

#[tokio::test]
async fn a_shard_that_cannot_be_read_does_not_stop_the_others() {
    let world = World::start().await;
    let ids: Vec<_> = (0..20).map(|number| format!("evt_{number}")).collect();
    let receiver = world.receiver(&stripe_config()).await;
    for id in &ids {
        deliver(&receiver, &stripe_delivery(id)).await;
    }
    while world.queue_depth().await.0 > 0 {
        world.drain().await;
    }
    let keys: Vec<EventKey> = ids.iter().map(|id| stripe_key(id)).collect();
    let dynamodb = FaultProxy::start(&world.dynamodb_url, |action, number| match action {
        // The very first query: of one shard's parked or open ones.
        "Query" if number < 2 => Fault::Refuse(400, "AccessDeniedException"),
        _ => Fault::None,
    });
    let dynamodb = dynamodb.await;
    let clock = ahead(limits::GRACE + SECOND);
    let swept = world.sweeper_at(clock, &dynamodb.url, &world.sqs_url).sweep().await;
    assert!(swept.is_err());
    let most = (0..limits::SHARDS)
        .map(|shard| keys.iter().filter(|key| key.shard() == shard).count())
        .max()
        .expect("shards");
    let sent = world.queue_depth().await.0 as usize;
    assert!(sent >= ids.len() - 2 * most && sent > 0, "{sent} of {}", ids.len());
}

// ---- helpers --------------------------------------------------------------------------------

/// An event whose message is lost.
async fn lose_message_of(world: &World, id: &str) {
    world.claim(&stripe_config(), id).await;
    world.drain().await;
}

async fn sweep(world: &World, clock: Clock) {
    world.sweeper(clock).sweep().await.expect("a complete pass");
}

fn done() -> Arc<Scripted> {
    Scripted::new(|_, _| Box::pin(async { Ok(()) }))
}

fn retrying(after_secs: u64) -> Arc<Scripted> {
    Scripted::new(move |_, _| {
        Box::pin(async move {
            let failure = Failure::retry("gateway_down", "no luck");
            Err(failure.after(Duration::from_secs(after_secs)))
        })
    })
}

fn due_at(record: &Record) -> Timestamp {
    let (State::Received { due_at, .. } | State::Processing { due_at, .. }) = record.state else {
        panic!("open, and not {:?}", record.state)
    };
    due_at
}

const SECOND: Duration = Duration::from_secs(1);
