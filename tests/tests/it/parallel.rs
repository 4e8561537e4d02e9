//! Many deliveries of one event at the same moment, and many workers at one record: one claim,
//! one lease at a time, one effect.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    delivery::Delivery,
    record::{LeaseOwner, StateName},
    transition::{Leased, lease},
};
use dynamo::Returning;
use futures::{StreamExt as _, future::join_all, stream};
use receiver::Receiver;
use runtime::clock::Clock;
use serde_json::json;
use tests::{
    handlers::Scripted,
    proxy::{Fault, FaultProxy},
    shop::{Shop, credits},
    world::{World, deliver, occurred_at, stripe_body, stripe_config, stripe_delivery, stripe_key},
};
use tokio::sync::Notify;
use worker::{Attempts, Disposition};

const EVENTS: usize = 50;
const DELIVERIES: usize = 64;
const WORKERS: usize = 64;
/// For whatever is awaited: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Delivers until it hears 2xx, as a provider does; a machine under load may answer 503.
async fn deliver_until_acknowledged(receiver: &Receiver, delivery: &Delivery) {
    loop {
        match deliver(receiver, delivery).await.status {
            200 => return,
            503 => {}
            status => panic!("answered {status}"),
        }
    }
}

/// Works, as an event source mapping does, until all is delivered and nothing is left.
async fn drain(world: &World, worker: &Attempts, all_delivered: &AtomicBool) {
    loop {
        let done = all_delivered.load(Ordering::SeqCst);
        let batch = world.await_batch(Duration::from_secs(1)).await;
        world.work_on(worker, batch, Duration::from_secs(5)).await;
        if done && world.queue_depth().await == (0, 0) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_deliveries_of_each_event_make_one_claim_and_one_effect() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let sqs = FaultProxy::start(&world.sqs_url, |_, _| Fault::None).await;
    let (config, clock) = (stripe_config(), Clock::default());
    let receivers = [
        world.receiver_at(&config, clock, &world.dynamodb_url, &sqs.url).await,
        world.receiver_at(&config, clock, &world.dynamodb_url, &sqs.url).await,
    ];
    let handler = shop.handler();
    let workers = [(); 2].map(|()| world.worker(&config, &[("test", Arc::clone(&handler) as _)]));
    let all_delivered = AtomicBool::new(false);
    let deliveries = async {
        for event in 0..EVENTS {
            let delivery = stripe_delivery(&format!("evt_{event}"));
            let both = receivers.iter().cycle().take(DELIVERIES);
            join_all(both.map(|receiver| deliver_until_acknowledged(receiver, &delivery))).await;
        }
        all_delivered.store(true, Ordering::SeqCst);
    };
    let drained = join_all(workers.iter().map(|worker| drain(&world, worker, &all_delivered)));
    let ran = tokio::time::timeout(PATIENCE, futures::future::join(deliveries, drained)).await;
    ran.expect("everything is delivered and done");

    let ids: BTreeSet<_> = (0..EVENTS).map(|event| format!("evt_{event}")).collect();
    assert_eq!(world.count_records().await, EVENTS);
    // Only the delivery whose claim held enqueues: as many messages as events, not as deliveries.
    assert_eq!(sqs.operations("SendMessage"), EVENTS, "messages");
    for id in &ids {
        let record = world.record(id).await.expect("recorded");
        assert_eq!((record.state.name(), record.attempt), (StateName::Done, 1), "{id}");
    }
    let credits = credits(world.ledger.client()).await;
    assert!(credits.values().all(|credits| *credits == 1), "{credits:?}");
    assert_eq!(credits.into_keys().collect::<BTreeSet<_>>(), ids);
    let calls = shop.calls();
    assert_eq!(calls.len(), EVENTS, "external calls");
    let keys: BTreeSet<_> = calls.iter().map(|(_, key)| key).collect();
    assert_eq!(keys.len(), EVENTS, "each event has its own key");
    assert_eq!(calls.into_iter().map(|(id, _)| id).collect::<BTreeSet<_>>(), ids);
    assert_eq!(handler.called(), EVENTS);
}

/// Each is idempotent by its own id; their order is another matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_events_of_one_object_take_effect_once_each() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let receiver = world.receiver(&stripe_config()).await;
    let body = |id: &str| {
        let body = json!({
            "id": id,
            "type": "payment_intent.succeeded",
            "created": occurred_at().millis() / 1000,
            "data": { "object": { "id": "pi_1" } }
        });
        stripe_body(body.to_string().as_bytes())
    };
    let (one, two) = (body("evt_1"), body("evt_2"));
    let deliveries = [&one, &two, &two, &one].map(|delivery| deliver(&receiver, delivery));
    for answer in join_all(deliveries).await {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(world.count_records().await, 2, "two events are two records");
    // Two batches at once, each as it came.
    let workers = [(); 2].map(|()| world.scripted(&stripe_config(), &shop.handler()));
    join_all(workers.iter().map(|worker| world.work(worker))).await;
    for id in ["evt_1", "evt_2"] {
        let record = world.record(id).await.expect("recorded");
        assert_eq!(record.object_id.as_deref(), Some("pi_1"), "{id}");
        assert_eq!((record.state.name(), record.attempt), (StateName::Done, 1), "{id}");
    }
    let credits = credits(world.ledger.client()).await;
    assert_eq!(credits, [("evt_1".to_owned(), 1), ("evt_2".to_owned(), 1)].into());
    assert_eq!(shop.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_workers_at_one_record_one_runs_and_the_others_keep_the_message() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    // The holder ends only when all others have had their answer: nobody is merely late.
    let others_answered = Arc::new(Notify::new());
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = Scripted::new({
        let (answered, running) = (Arc::clone(&others_answered), Arc::clone(&running));
        let most = Arc::clone(&most);
        move |_, _| {
            let (answered, running, most) =
                (Arc::clone(&answered), Arc::clone(&running), Arc::clone(&most));
            Box::pin(async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                answered.notified().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        }
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| world.worker(&stripe_config(), &[("test", Arc::clone(&handler) as _)]))
        .collect();
    let batch = world.receive_batch().await;
    let body = batch.records[0].body.as_deref().expect("a body");
    let receipt = batch.records[0].receipt_handle.as_deref().expect("a handle");
    let deadline = Clock::default().now().plus(PATIENCE);
    let mut ended = workers
        .iter()
        .map(|worker| worker.work_on(body, receipt, deadline))
        .collect::<stream::FuturesUnordered<_>>();
    let at_once = async {
        for _ in 1..WORKERS {
            assert_eq!(ended.next().await, Some(Disposition::Keep));
        }
        others_answered.notify_one();
        assert_eq!(ended.next().await, Some(Disposition::Delete));
    };
    tokio::time::timeout(PATIENCE, at_once).await.expect("all but one give way");
    assert_eq!((handler.called(), most.load(Ordering::SeqCst)), (1, 1));
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lease_that_ends_is_taken_over_by_exactly_one() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let start = Clock::default().now();
    let (length, skew) = (Duration::from_secs(10), Duration::from_secs(1));
    // Time is an argument: each round begins a moment after the last lease and its skew.
    let round_length = length + skew + Duration::from_millis(1);
    for round in 0..8_u32 {
        let now = start.plus(round_length * round);
        let takes = (0..WORKERS).map(|worker| {
            let owner = LeaseOwner(format!("{round}-{worker}"));
            let take = lease(&stripe_key("evt_1"), owner, now, now.plus(length), skew, None);
            let ledger = &world.ledger;
            async move {
                let written = ledger.write(&take.write, Returning::Record).await;
                take.settle(written.expect("an outcome")).expect("readable")
            }
        });
        let fences: Vec<_> = join_all(takes)
            .await
            .into_iter()
            .filter_map(|leased| match leased {
                Leased::Held(lease, _) => Some(lease.fence()),
                Leased::HeldElsewhere(until) => {
                    assert_eq!(until, now.plus(length));
                    None
                }
                Leased::NotYet(_) | Leased::Settled(_) | Leased::Exhausted(_) | Leased::Unknown => {
                    panic!("{leased:?}")
                }
            })
            .collect();
        assert_eq!(fences, [round + 1], "one holder, with the next fence");
        // Within the skew bound after its end nobody takes it over.
        let early = now.plus(length + skew);
        let owner = LeaseOwner("early".to_owned());
        let take = lease(&stripe_key("evt_1"), owner, early, early.plus(length), skew, None);
        let written = world.ledger.write(&take.write, Returning::Record).await;
        let leased = take.settle(written.expect("an outcome")).expect("readable");
        assert!(matches!(leased, Leased::HeldElsewhere(_)), "{leased:?}");
    }
}
