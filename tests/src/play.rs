//! What tests of the worker and the sweeper do again and again: claim an event, hold its lease,
//! replay it, and stand in for what its handler calls.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TransactWriteItem, Update,
};
use domain::{
    item::Item,
    record::{LeaseOwner, Record},
    time::Timestamp,
    transition::{Lease, Leased, Operator, Policy, discard, lease, replay},
    write::{GuardedWrite, Written},
};
use dynamo::{Ledger, Returning};
use hookonce::stack::{dynamodb_config, sqs_config};
use runtime::clock::Clock;
use serde_json::Value;
use sqs::{Message, Queue};
use sweeper::Sweeper;
use tokio::sync::Semaphore;
use worker::{Attempts, handlers::Handler};

use crate::{
    handlers::Scripted,
    proxy::{Fault, FaultProxy},
    world::{TABLE, World, deliver, parse, stripe_config, stripe_delivery, stripe_key},
};

impl World {
    /// Claims and enqueues an event of source `stripe`.
    pub async fn claim(&self, config: &Value, id: &str) {
        let answer = deliver(&self.receiver(config).await, &stripe_delivery(id)).await;
        assert_eq!(answer.status, 200, "the event is claimed");
    }

    /// Enqueues a message for an event of source `stripe`, as a sweep or a redelivery does.
    pub async fn enqueue(&self, id: &str) {
        let message = Message {
            key: stripe_key(id),
            event_type: Some("payment_intent.succeeded".to_owned()),
        };
        self.enqueue_body(&message.to_body().expect("JSON")).await;
    }

    /// Enqueues a message with this body.
    pub async fn enqueue_body(&self, body: &str) {
        let sent = self.sqs.send_message().queue_url(&self.queue_url).message_body(body).send();
        sent.await.expect("sent");
    }

    /// Takes out of the queue what is visible in it.
    pub async fn drain(&self) {
        for record in self.receive_batch().await.records {
            let deleted = self
                .sqs
                .delete_message()
                .queue_url(&self.queue_url)
                .set_receipt_handle(record.receipt_handle);
            deleted.send().await.expect("deleted");
        }
    }

    /// Replays an event of source `stripe`, as an operator does.
    pub async fn replay(&self, id: &str, forget_steps: bool) {
        let record = self.record(id).await.expect("a record");
        let operator = Operator { name: "ada", reason: "mended" };
        let now = Clock::default().now();
        let write = replay(&record, &operator, now, &stripe_policy(&stripe_config()), forget_steps);
        self.apply(&write.expect("can be replayed")).await;
    }

    /// Discards a parked event of source `stripe`, as an operator does.
    pub async fn discard(&self, id: &str) {
        let record = self.record(id).await.expect("a record");
        let operator = Operator { name: "ada", reason: "a test payment" };
        let now = Clock::default().now();
        let write = discard(&record, &operator, now, &stripe_policy(&stripe_config()));
        self.apply(&write.expect("can be discarded")).await;
    }

    /// A worker on this world whose only handler is this.
    pub fn scripted(&self, config: &Value, handler: &Arc<Scripted>) -> Attempts {
        self.worker(config, &[("test", handler.clone())])
    }

    /// As [`World::scripted`], by this clock.
    pub fn scripted_at(&self, config: &Value, handler: &Arc<Scripted>, clock: Clock) -> Attempts {
        let handlers: [(&str, Arc<dyn Handler>); 1] = [("test", handler.clone())];
        self.worker_at(config, &handlers, clock, &self.dynamodb_url, &self.sqs_url)
    }

    /// As [`World::scripted`], and a proxy that sees what it says to DynamoDB.
    pub async fn seen_by_dynamodb(
        &self,
        config: &Value,
        handler: &Arc<Scripted>,
    ) -> (Attempts, FaultProxy) {
        let proxy = FaultProxy::start(&self.dynamodb_url, |_, _| Fault::None).await;
        let handlers: [(&str, Arc<dyn Handler>); 1] = [("test", handler.clone())];
        let clock = Clock::default();
        (self.worker_at(config, &handlers, clock, &proxy.url, &self.sqs_url), proxy)
    }

    /// As [`World::scripted`], and a proxy that sees what it says to SQS.
    pub async fn seen_by_sqs(
        &self,
        config: &Value,
        handler: &Arc<Scripted>,
    ) -> (Attempts, FaultProxy) {
        let proxy = FaultProxy::start(&self.sqs_url, |_, _| Fault::None).await;
        let handlers: [(&str, Arc<dyn Handler>); 1] = [("test", handler.clone())];
        let clock = Clock::default();
        (self.worker_at(config, &handlers, clock, &self.dynamodb_url, &proxy.url), proxy)
    }

    /// A sweeper whose DynamoDB and SQS are these.
    pub fn sweeper_at(&self, clock: Clock, dynamodb_url: &str, sqs_url: &str) -> Sweeper {
        let ledger = Ledger::new(dynamodb_config(dynamodb_url), TABLE.to_owned());
        let queue = self.queue_url.replace(&self.sqs_url, sqs_url);
        Sweeper::new(ledger, Queue::new(sqs_config(sqs_url), queue), clock)
    }

    /// Carries out a write that must hold.
    pub async fn apply(&self, write: &GuardedWrite) {
        apply(&self.ledger, write).await;
    }

    /// Takes the lease of an event of source `stripe` for another worker.
    pub async fn hold(&self, id: &str, now: Timestamp, until: Timestamp) -> (Lease, Box<Record>) {
        hold(&self.ledger, id, now, until).await
    }

    /// The record of an event of source `stripe`, which there is.
    pub async fn expect_record(&self, id: &str) -> Record {
        self.record(id).await.expect("a record")
    }

    /// The attributes of the record of an event of source `stripe`, which there is.
    pub async fn expect_item(&self, id: &str) -> Item {
        self.item(id).await.expect("a record")
    }
}

/// Carries out a write that must hold.
pub async fn apply(ledger: &Ledger, write: &GuardedWrite) {
    let written = ledger.write(write, Returning::Nothing).await.expect("an answer");
    assert!(matches!(written, Written::Applied(_)), "the guard holds");
}

/// Takes the lease of an event of source `stripe` for another worker.
pub async fn hold(
    ledger: &Ledger,
    id: &str,
    now: Timestamp,
    until: Timestamp,
) -> (Lease, Box<Record>) {
    let owner = LeaseOwner(format!("another-{}", uuid::Uuid::new_v4()));
    let take = lease(&stripe_key(id), owner, now, until, Duration::ZERO, None);
    let written = ledger.write(&take.write, Returning::Record).await.expect("an answer");
    let leased = take.settle(written).expect("a readable record");
    let Leased::Held(lease, record) = leased else { panic!("to be had: {leased:?}") };
    (lease, record)
}

/// A clock that is ahead by this.
#[must_use]
pub fn ahead(by: Duration) -> Clock {
    Clock::with_offset(i64::try_from(by.as_millis()).expect("a sensible offset"))
}

/// The policy of source `stripe`.
#[must_use]
pub fn stripe_policy(config: &Value) -> Policy {
    let config = parse(config);
    config.sources.values().next().expect("a source").policy
}

/// [`stripe_config`] with this setting of the source.
#[must_use]
pub fn stripe_with(setting: &str, value: impl Into<Value>) -> Value {
    let mut config = stripe_config();
    config["sources"]["stripe"][setting] = value.into();
    config
}

/// The visibility that messages were given through a proxy to SQS, in seconds, in order.
#[must_use]
pub fn visibilities(sqs: &FaultProxy) -> Vec<u64> {
    let bodies = sqs.bodies("ChangeMessageVisibility");
    bodies.iter().map(|body| body["VisibilityTimeout"].as_u64().expect("seconds")).collect()
}

/// Creates the handlers' own table.
pub async fn accounts(world: &World) {
    let key = KeySchemaElement::builder().attribute_name("account").key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder()
        .attribute_name("account")
        .attribute_type(ScalarAttributeType::S);
    let created = world
        .ledger
        .client()
        .create_table()
        .table_name(ACCOUNTS)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key.build().expect("complete"))
        .attribute_definitions(attribute.build().expect("complete"));
    created.send().await.expect("a table");
}

/// Adds one to an account.
#[must_use]
pub fn credit(account: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name(ACCOUNTS)
        .key("account", AttributeValue::S(account.to_owned()))
        .update_expression("ADD balance :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    TransactWriteItem::builder().update(update.build().expect("complete")).build()
}

/// What an account has; `None`: there is no such account.
pub async fn balance(world: &World, account: &str) -> Option<i64> {
    let read = world
        .ledger
        .client()
        .get_item()
        .table_name(ACCOUNTS)
        .key("account", AttributeValue::S(account.to_owned()))
        .consistent_read(true);
    let item = read.send().await.expect("a read").item?;
    item["balance"].as_n().expect("a number").parse().ok()
}

/// An external service: remembers under which keys it was called.
#[derive(Debug, Default)]
pub struct Callee {
    keys: Mutex<Vec<String>>,
}

impl Callee {
    /// Is called under `key`; answers with a name of the call.
    pub fn call(&self, key: &str) -> String {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.push(key.to_owned());
        format!("call-{}", keys.len())
    }

    /// The keys so far, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often it was called.
    #[must_use]
    pub fn called(&self) -> usize {
        self.keys().len()
    }
}

/// Holds a handler up until a test lets it go on.
#[derive(Debug)]
pub struct Gate {
    waiting: Semaphore,
    open: Semaphore,
    passed: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Self { waiting: Semaphore::new(0), open: Semaphore::new(0), passed: AtomicUsize::new(0) }
    }
}

impl Gate {
    /// The handler's side: says that it is there, and waits.
    pub async fn pass(&self) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        self.waiting.add_permits(1);
        self.open.acquire().await.expect("a gate stays").forget();
    }

    /// The test's side: waits until `count` handlers are there.
    pub async fn wait_for(&self, count: u32) {
        self.waiting.acquire_many(count).await.expect("a gate stays").forget();
    }

    /// Lets handlers pass, those to come as well.
    pub fn open(&self) {
        self.open.add_permits(1 << 16);
    }

    /// How many handlers came to it so far.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

/// Table of the handlers' own.
pub const ACCOUNTS: &str = "accounts";
