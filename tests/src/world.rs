//! A small world: DynamoDB and SQS emulated over the wire, in memory, and the real receiver, worker
//! and sweeper on them, in this process.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use domain::{
    delivery::Delivery,
    event::{EventId, EventKey, Source},
    item::Item,
    record::{KeptPayload, Record},
    time::Timestamp,
};
use dynamo::Ledger;
use dynoxide::Database;
use hookonce::{
    queue::QueueServer,
    stack::{dynamodb_config, sqs_config},
};
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use providers::{Provider, SampleRequest, Secret};
use receiver::{Answer, Receiver};
use runtime::{
    aws::Patience,
    clock::Clock,
    config::{Config, Format, Trust},
    secrets::SecretStore,
};
use serde_json::{Value, json};
use sqs::Queue;
use sweeper::Sweeper;
use tokio::net::TcpListener;
use worker::{Attempts, Handlers, handlers::Handler};

/// The secret of source `stripe`.
pub const STRIPE_SECRET: &str = "whsec_tests_only";
/// The ledger table.
pub const TABLE: &str = "events";

/// Emulators, and where they listen.
#[derive(Debug)]
pub struct World {
    /// DynamoDB.
    pub dynamodb_url: String,
    /// SQS.
    pub sqs_url: String,
    /// The queue between receiver and worker.
    pub queue_url: String,
    /// The ledger, by a connection of the test's own.
    pub ledger: Ledger,
    /// SQS, by a connection of the test's own.
    pub sqs: aws_sdk_sqs::Client,
}

impl World {
    /// Starts the emulators, with table and queue.
    pub async fn start() -> Self {
        Self::start_with("events", &[]).await
    }

    /// As [`World::start`], with a FIFO queue.
    pub async fn start_fifo() -> Self {
        Self::start_with("events.fifo", &[(QueueAttributeName::FifoQueue, "true")]).await
    }

    async fn start_with(queue: &str, attributes: &[(QueueAttributeName, &str)]) -> Self {
        crate::seeded::switch_on();
        runtime::aws::install_tls_provider();
        let database = Database::memory().expect("a database in memory");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let dynamodb_url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        let clock = Arc::new(|| u64::try_from(Clock::default().now().millis()).unwrap_or(0));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let sqs_url = format!("http://{}", listener.local_addr().expect("bound"));
        let server = Arc::new(QueueServer::new(clock));
        tokio::spawn(server.serve(listener, std::future::pending()));
        let ledger = Ledger::new(dynamodb_config(&dynamodb_url), TABLE.to_owned());
        dynamo::create_table(ledger.client(), TABLE).await.expect("a table");
        let sqs = aws_sdk_sqs::Client::from_conf(sqs_config(&sqs_url).build());
        let create = sqs.create_queue().queue_name(queue);
        let create = create.attributes(QueueAttributeName::VisibilityTimeout, "30");
        let attributes = attributes.iter();
        let create = attributes
            .fold(create, |create, (name, value)| create.attributes(name.clone(), *value));
        let created = create.send().await.expect("a queue");
        let queue_url = created.queue_url.expect("its URL");
        Self { dynamodb_url, sqs_url, queue_url, ledger, sqs }
    }

    /// A receiver on this world.
    pub async fn receiver(&self, config: &Value) -> Receiver {
        self.receiver_at(config, Clock::default(), &self.dynamodb_url, &self.sqs_url).await
    }

    /// A receiver whose clock, DynamoDB and SQS are these. As patient as the deployed one.
    pub async fn receiver_at(
        &self,
        config: &Value,
        clock: Clock,
        dynamodb_url: &str,
        sqs_url: &str,
    ) -> Receiver {
        let (ledger, queue) = self.adapters(Patience::RECEIVER, dynamodb_url, sqs_url);
        Receiver::new(parse(config), SecretStore::new(None), ledger, queue, clock).await
    }

    /// Ledger and queue at these places, with a deployed function's patience.
    fn adapters(&self, patience: Patience, dynamodb_url: &str, sqs_url: &str) -> (Ledger, Queue) {
        let dynamodb = dynamodb_config(dynamodb_url)
            .retry_config(patience.retries())
            .timeout_config(patience.timeouts());
        let sqs = sqs_config(sqs_url)
            .retry_config(patience.retries())
            .timeout_config(patience.timeouts());
        let queue_url = self.queue_url.replace(&self.sqs_url, sqs_url);
        (Ledger::new(dynamodb, TABLE.to_owned()), Queue::new(sqs, queue_url))
    }

    /// A worker with these handlers on this world.
    pub fn worker(&self, config: &Value, handlers: &[(&str, Arc<dyn Handler>)]) -> Attempts {
        self.worker_at(config, handlers, Clock::default(), &self.dynamodb_url, &self.sqs_url)
    }

    /// A worker whose clock, DynamoDB and SQS are these.
    pub fn worker_at(
        &self,
        config: &Value,
        handlers: &[(&str, Arc<dyn Handler>)],
        clock: Clock,
        dynamodb_url: &str,
        sqs_url: &str,
    ) -> Attempts {
        let (ledger, queue) = self.adapters(Patience::WORKER, dynamodb_url, sqs_url);
        let config = parse(config);
        let named: BTreeMap<_, _> = handlers
            .iter()
            .map(|(name, handler)| ((*name).to_owned(), Arc::clone(handler)))
            .collect();
        let handlers =
            Handlers::of(&config, &SecretStore::new(None), named).expect("handlers of the config");
        Attempts::new(config, handlers, ledger, queue, clock)
    }

    /// A sweeper on this world.
    pub fn sweeper(&self, clock: Clock) -> Sweeper {
        let ledger = Ledger::new(dynamodb_config(&self.dynamodb_url), TABLE.to_owned());
        Sweeper::new(ledger, Queue::new(sqs_config(&self.sqs_url), self.queue_url.clone()), clock)
    }

    /// What is visible in the queue, as the event of an invocation.
    pub async fn receive_batch(&self) -> SqsEvent {
        self.await_batch(Duration::ZERO).await
    }

    /// As [`World::receive_batch`], waiting up to `wait` for something to become visible.
    pub async fn await_batch(&self, wait: Duration) -> SqsEvent {
        let received = self
            .sqs
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(10)
            .wait_time_seconds(i32::try_from(wait.as_secs()).unwrap_or(20))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .expect("messages");
        let records = received.messages.unwrap_or_default().into_iter().map(|message| {
            let mut record = SqsMessage::default();
            record.message_id = message.message_id;
            record.receipt_handle = message.receipt_handle;
            record.body = message.body;
            let attributes = message.attributes.unwrap_or_default().into_iter();
            record.attributes =
                attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect();
            record
        });
        let mut event = SqsEvent::default();
        event.records = records.collect();
        event
    }

    /// Works on what is visible in the queue, as an event source mapping does: what the worker
    /// does not keep is deleted. Gives the response.
    pub async fn work(&self, worker: &Attempts) -> SqsBatchResponse {
        self.work_for(worker, Duration::from_secs(30)).await
    }

    /// As [`World::work`], with an invocation of this length.
    pub async fn work_for(&self, worker: &Attempts, time: Duration) -> SqsBatchResponse {
        let batch = self.receive_batch().await;
        self.work_on(worker, batch, time).await
    }

    /// As [`World::work_for`], on a batch at hand.
    pub async fn work_on(
        &self,
        worker: &Attempts,
        batch: SqsEvent,
        time: Duration,
    ) -> SqsBatchResponse {
        let handles: Vec<_> = batch
            .records
            .iter()
            .map(|record| (record.message_id.clone(), record.receipt_handle.clone()))
            .collect();
        let deadline = Clock::default().now().plus(time);
        let response = worker::work(worker, batch, deadline).await.expect("a response");
        let kept: Vec<_> =
            response.batch_item_failures.iter().map(|kept| kept.item_identifier.clone()).collect();
        for (id, handle) in handles {
            if !kept.contains(&id.unwrap_or_default()) {
                self.sqs
                    .delete_message()
                    .queue_url(&self.queue_url)
                    .set_receipt_handle(handle)
                    .send()
                    .await
                    .expect("deleted");
            }
        }
        response
    }

    /// Messages in the queue: visible, and in flight.
    pub async fn queue_depth(&self) -> (u32, u32) {
        let attributes = self
            .sqs
            .get_queue_attributes()
            .queue_url(&self.queue_url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .expect("attributes")
            .attributes
            .unwrap_or_default();
        let number = |name| attributes.get(&name).and_then(|n| n.parse().ok()).unwrap_or(0);
        (
            number(QueueAttributeName::ApproximateNumberOfMessages),
            number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }

    /// The record of an event of source `stripe`.
    pub async fn record(&self, id: &str) -> Option<Record> {
        self.item(id).await.map(|item| Record::from_item(item).expect("a readable record"))
    }

    /// The attributes of an event of source `stripe`.
    pub async fn item(&self, id: &str) -> Option<Item> {
        self.ledger.read(&stripe_key(id)).await.expect("a read")
    }

    /// How many records the table has.
    pub async fn count_records(&self) -> usize {
        let scanned = self.ledger.client().scan().table_name(TABLE).consistent_read(true).send();
        scanned.await.expect("a scan").items.unwrap_or_default().len()
    }

    /// Sets one attribute of a record of source `stripe`, as no transition would.
    pub async fn tamper(&self, id: &str, attribute: &str, value: AttributeValue) {
        self.ledger
            .client()
            .update_item()
            .table_name(TABLE)
            .key("pk", AttributeValue::S(stripe_key(id).pk()))
            .update_expression("SET #a = :v")
            .expression_attribute_names("#a", attribute)
            .expression_attribute_values(":v", value)
            .send()
            .await
            .expect("an update");
    }
}

/// Source `stripe`, handled by the handler `test`.
#[must_use]
pub fn stripe_config() -> Value {
    json!({
        "clock_skew": "250ms",
        "sources": {
            "stripe": {
                "provider": "stripe",
                "secrets": [format!("literal:{STRIPE_SECRET}")],
                "deliver": { "handler": "test" }
            }
        }
    })
}

/// A checked configuration.
#[must_use]
pub fn parse(config: &Value) -> Config {
    let text = config.to_string();
    Config::parse("test", &text, Format::Json, None, Trust::Local).expect("a valid configuration")
}

/// The payload that lies on a record.
#[must_use]
pub fn payload_of(record: &Record) -> Vec<u8> {
    let stored = record.payload.as_ref().and_then(KeptPayload::inline).expect("on the record");
    dynamo::payload::decode(stored).expect("readable")
}

/// The key of an event of source `stripe`.
#[must_use]
pub fn stripe_key(id: &str) -> EventKey {
    EventKey::new(Source::new("stripe").expect("valid"), EventId::new(id).expect("a valid id"))
}

/// A Stripe event of the sample type, signed now.
///
/// The same id is the same payload, however many seconds pass between two deliveries of it.
#[must_use]
pub fn stripe_delivery(id: &str) -> Delivery {
    stripe_delivery_of(id, occurred_at(), Clock::default().now())
}

/// When the events of this process occurred: one moment for all, so that an event built twice is
/// the same payload.
#[must_use]
pub fn occurred_at() -> Timestamp {
    static FIRST_ASKED: LazyLock<Timestamp> = LazyLock::new(|| Clock::default().now());
    *FIRST_ASKED
}

/// A Stripe event of the sample type that occurred and is signed at `now`.
#[must_use]
pub fn stripe_delivery_at(id: &str, now: Timestamp) -> Delivery {
    stripe_delivery_of(id, now, now)
}

/// A Stripe event of the sample type that occurred then, signed at another time.
#[must_use]
pub fn stripe_delivery_of(id: &str, occurred_at: Timestamp, signed_at: Timestamp) -> Delivery {
    let request =
        SampleRequest { event_type: Some("payment_intent.succeeded"), id, now: occurred_at };
    let unsigned = STRIPE.sample(&request).expect("a sample");
    let key = STRIPE.key(&Secret::new(STRIPE_SECRET)).expect("a key");
    STRIPE.sign(&key, unsigned, signed_at).expect("signed")
}

static STRIPE: LazyLock<Provider> =
    LazyLock::new(|| Provider::builtin("stripe").expect("in the catalogue"));

/// A Stripe delivery of this body, signed now.
#[must_use]
pub fn stripe_body(body: &[u8]) -> Delivery {
    let key = STRIPE.key(&Secret::new(STRIPE_SECRET)).expect("a key");
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let unsigned = providers::Unsigned { headers, body: body.to_vec() };
    STRIPE.sign(&key, unsigned, Clock::default().now()).expect("signed")
}

/// A delivery as the event that a function URL hands over.
#[must_use]
pub fn function_url_event(source: &str, delivery: &Delivery) -> ApiGatewayV2httpRequest {
    let body = String::from_utf8(delivery.body.clone()).expect("text");
    raw_event(&format!("/webhooks/{source}"), &delivery.method, &headers_of(delivery), &body, false)
}

/// Any event of a function URL.
#[must_use]
pub fn raw_event(
    path: &str,
    method: &str,
    headers: &Value,
    body: &str,
    is_base64: bool,
) -> ApiGatewayV2httpRequest {
    let event = json!({
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": { "http": { "method": method, "path": path } },
        "body": body,
        "isBase64Encoded": is_base64
    });
    serde_json::from_value(event).expect("an event")
}

/// The headers of a delivery, as an event has them.
#[must_use]
pub fn headers_of(delivery: &Delivery) -> Value {
    let headers = delivery.headers.iter();
    Value::Object(headers.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// Delivers to source `stripe`.
pub async fn deliver(receiver: &Receiver, delivery: &Delivery) -> Answer {
    receiver.receive(function_url_event("stripe", delivery)).await
}
