//! On a FIFO queue events of one object keep their order: what fails holds back what comes after it
//! for the same object, and nothing else.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::record::StateName;
use hookonce::stack::sqs_config;
use runtime::clock::Clock;
use serde_json::{Value, json};
use sqs::{Message, Outgoing, Queue};
use tests::{
    handlers::Scripted,
    world::{World, deliver, occurred_at, stripe_body, stripe_config, stripe_key},
};
use worker::Failure;

/// Ids of events in the order in which they were run, and those that shall fail still.
#[derive(Default)]
struct Runs {
    order: Mutex<Vec<String>>,
    failing: Mutex<Vec<(&'static str, Failure)>>,
}

impl Runs {
    /// A handler that notes each run; each of `failing` fails once.
    fn handler(self: &Arc<Self>) -> Arc<Scripted> {
        let runs = Arc::clone(self);
        Scripted::new(move |event, _| {
            let runs = Arc::clone(&runs);
            Box::pin(async move {
                let id = event.key.id().as_str();
                let lock = |order: &Mutex<Vec<String>>| {
                    order.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
                };
                lock(&runs.order);
                let mut failing = runs.failing.lock().unwrap_or_else(PoisonError::into_inner);
                let at = failing.iter().position(|(fails, _)| *fails == id);
                at.map_or(Ok(()), |at| Err(failing.swap_remove(at).1))
            })
        })
    }

    fn fail(&self, id: &'static str, failure: Failure) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).push((id, failure));
    }

    fn order(&self) -> Vec<String> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In the order of runs, those whose id begins so.
    fn order_of(&self, prefix: &str) -> Vec<String> {
        self.order().into_iter().filter(|id| id.starts_with(prefix)).collect()
    }
}

/// Delivers an event about an object.
async fn send(world: &World, id: &str, object: &str) {
    let body = json!({
        "id": id,
        "type": "payment_intent.succeeded",
        "created": occurred_at().millis() / 1000,
        "data": { "object": { "id": object } }
    });
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_body(body.to_string().as_bytes());
    assert_eq!(deliver(&receiver, &delivery).await.status, 200);
}

async fn state(world: &World, id: &str) -> StateName {
    world.record(id).await.expect("recorded").state.name()
}

fn retry() -> Failure {
    Failure::retry("not_now", "later").after(Duration::from_secs(1))
}

#[tokio::test]
async fn a_failed_record_holds_back_its_own_group_and_no_other() {
    let world = World::start_fifo().await;
    for (id, object) in [("a_1", "a"), ("b_1", "b"), ("a_2", "a"), ("a_3", "a"), ("b_2", "b")] {
        send(&world, id, object).await;
    }
    let runs = Arc::new(Runs::default());
    runs.fail("a_1", retry());
    let worker = world.worker(&quick(), &[("test", runs.handler())]);
    let response = world.work(&worker).await;
    assert_eq!(response.batch_item_failures.len(), 3, "a_1 and those behind it");
    // Those held back come right after it, and not after the queue's own timeout.
    assert!(world.queue_depth().await.1 <= 1);
    assert_eq!(runs.order_of("a"), ["a_1"]);
    assert_eq!(runs.order_of("b"), ["b_1", "b_2"]);
    for (id, expected) in
        [("a_1", StateName::Received), ("a_2", StateName::Received), ("b_2", StateName::Done)]
    {
        assert_eq!(state(&world, id).await, expected, "{id}");
    }
    while world.queue_depth().await != (0, 0) {
        let batch = world.await_batch(Duration::from_secs(20)).await;
        world.work_on(&worker, batch, Duration::from_secs(30)).await;
    }
    assert_eq!(runs.order_of("a"), ["a_1", "a_1", "a_2", "a_3"]);
    assert_eq!(state(&world, "a_3").await, StateName::Done);
}

#[tokio::test]
async fn a_parked_record_lets_its_group_go_on() {
    let world = World::start_fifo().await;
    for id in ["a_1", "a_2"] {
        send(&world, id, "a").await;
    }
    let runs = Arc::new(Runs::default());
    runs.fail("a_1", Failure::permanent("broken", "never"));
    let worker = world.worker(&quick(), &[("test", runs.handler())]);
    assert_eq!(world.work(&worker).await.batch_item_failures.len(), 0);
    assert_eq!(runs.order(), ["a_1", "a_2"]);
    assert_eq!(state(&world, "a_1").await, StateName::Failed);
    assert_eq!(state(&world, "a_2").await, StateName::Done);
}

#[tokio::test]
async fn events_of_nothing_known_wait_for_none() {
    let world = World::start_fifo().await;
    let runs = Arc::new(Runs::default());
    runs.fail("x_1", retry());
    let receiver = world.receiver(&stripe_config()).await;
    for id in ["x_1", "x_2"] {
        let body = json!({ "id": id, "type": "ping", "created": occurred_at().millis() / 1000 });
        let delivery = stripe_body(body.to_string().as_bytes());
        assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    }
    let worker = world.worker(&quick(), &[("test", runs.handler())]);
    assert_eq!(world.work(&worker).await.batch_item_failures.len(), 1);
    assert_eq!(state(&world, "x_2").await, StateName::Done);
}

/// More than one call takes.
#[tokio::test]
async fn events_of_one_delivery_arrive_in_their_order() {
    let world = World::start_fifo().await;
    let queue = Queue::new(sqs_config(&world.sqs_url), world.queue_url.clone());
    let outgoing = |number: usize| Outgoing {
        object_id: Some("a".to_owned()),
        ..Message { key: stripe_key(&format!("a_{number}")), event_type: None }.into()
    };
    let all: Vec<_> = (0..35).map(outgoing).collect();
    assert!(queue.send_all(&all).await.iter().all(Result::is_ok));
    let mut arrived = Vec::new();
    while arrived.len() < all.len() {
        for record in world.receive_batch().await.records {
            let body = record.body.unwrap_or_default();
            arrived.push(Message::parse(&body).expect("ours").key);
            let delete = world.sqs.delete_message().queue_url(&world.queue_url);
            delete.set_receipt_handle(record.receipt_handle).send().await.expect("deleted");
        }
    }
    assert_eq!(arrived, all.into_iter().map(|one| one.message.key).collect::<Vec<_>>());
}

/// A FIFO queue remembers what it was sent for five minutes; a sweep may have to send the same
/// within one.
#[tokio::test]
async fn a_message_that_got_lost_is_sent_again_and_not_swallowed() {
    let world = World::start_fifo().await;
    send(&world, "a_1", "a").await;
    world.drain().await;
    assert_eq!(world.queue_depth().await, (0, 0), "lost");
    world.sweeper(Clock::with_offset(61_000)).sweep().await.expect("a pass");
    let runs = Arc::new(Runs::default());
    let worker = world.worker(&quick(), &[("test", runs.handler())]);
    world.work(&worker).await;
    assert_eq!(runs.order(), ["a_1"]);
}

/// Waits of a second between attempts.
fn quick() -> Value {
    let mut config = stripe_config();
    config["sources"]["stripe"]["backoff"] = json!({ "first": "1s", "longest": "1s" });
    config
}
