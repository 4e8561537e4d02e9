//! Deliveries of many events, by the real receiver: each event is claimed for itself, what is new
//! is enqueued in as few calls as SQS takes, and one answer stands for all.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{
    delivery::Delivery,
    event::{EventId, EventKey, Source},
    limits,
    record::{Record, StateName},
};
use futures::future::join_all;
use providers::{Endpoint, Key, Provider, Secret, Unsigned};
use receiver::{Answer, Receiver};
use runtime::clock::Clock;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tests::{
    deliveries::{base64_event, deliver_to, header},
    handlers::Scripted,
    logged::LoggedReceiver,
    play::ahead,
    proxy::{Fault, FaultProxy},
    world::{World, occurred_at, payload_of},
};

// ---- three senders of different shape -------------------------------------------------------

/// A provider that sends batches.
struct Sender {
    provider: Provider,
    key: Key,
    /// What the receiver verifies with.
    secret: String,
    /// An item by its number, as it lies in the body.
    item: fn(usize) -> String,
    /// What stands around the items.
    around: (&'static str, &'static str),
    /// The event id of an item.
    id: fn(usize) -> String,
    /// What the provider wants to hear.
    success: &'static str,
}

/// Every item signed for itself, in a list within an object; an answer of its own.
fn adyen() -> Sender {
    let secret = "0f".repeat(32);
    let provider = Provider::builtin("adyen").expect("in the catalogue");
    Sender {
        key: provider.key(&Secret::new(&secret)).expect("a key"),
        provider,
        secret,
        item: |n| {
            let signature = json!({ "hmacSignature": "{{signature}}" });
            let item = json!({ "additionalData": signature, "pspReference": format!("P{n:04}"),
                "merchantAccountCode": "M", "eventCode": "CAPTURE", "success": "true" });
            json!({ "NotificationRequestItem": item }).to_string()
        },
        around: (r#"{"live":"false","notificationItems":["#, "]}"),
        id: |n| format!("1:M|5:P{n:04}|7:CAPTURE|4:true"),
        success: "[accepted]",
    }
}

/// A plain list, signed as a whole with a private key.
fn sendgrid() -> Sender {
    let provider = Provider::builtin("sendgrid").expect("in the catalogue");
    let private = provider.generate_test_key().expect("a key pair");
    let (key, secret) = provider.test_key(&private).expect("a key");
    Sender {
        provider,
        key,
        secret,
        item: |n| {
            let at = occurred_at().millis() / 1000;
            json!({ "sg_event_id": format!("sg-{n:04}"), "event": "open", "timestamp": at })
                .to_string()
        },
        around: ("[", "]"),
        id: |n| format!("sg-{n:04}"),
        success: "",
    }
}

/// A plain list, signed with the URL; ids of many parts.
fn hubspot() -> Sender {
    let provider = Provider::builtin("hubspot").expect("in the catalogue");
    let provider = provider.at(Endpoint::new(Some(HUBSPOT_URL)));
    let secret = "hubspot-tests-only".to_owned();
    Sender {
        key: provider.key(&Secret::new(&secret)).expect("a key"),
        provider,
        secret,
        item: |n| {
            json!({ "eventId": 1000 + n, "subscriptionId": 1, "portalId": 2, "appId": 3,
                "occurredAt": occurred_at().millis(), "subscriptionType": "contact.creation",
                "attemptNumber": 0, "objectId": 4 })
            .to_string()
        },
        around: ("[", "]"),
        id: |n| {
            let (event, at) = ((1000 + n).to_string(), occurred_at().to_string());
            format!("1:2|1:3|1:1|{}:{event}|1:4|{}:{at}|-", event.len(), at.len())
        },
        success: "",
    }
}

fn senders() -> [Sender; 3] {
    [adyen(), sendgrid(), hubspot()]
}

impl Sender {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn config(&self) -> Value {
        let mut source = json!({ "provider": self.name(), "deliver": { "handler": "test" },
            "secrets": [format!("literal:{}", self.secret)] });
        if self.provider.signs_url() {
            source["public_url"] = HUBSPOT_URL.into();
        }
        json!({ "clock_skew": "250ms", "sources": { self.name(): source } })
    }

    /// A delivery of these items.
    fn delivery(&self, items: &[String]) -> Delivery {
        let body = format!("{}{}{}", self.around.0, items.join(","), self.around.1);
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let unsigned = Unsigned { headers, body: body.into_bytes() };
        self.provider.sign(&self.key, unsigned, Clock::default().now()).expect("signed")
    }

    /// A delivery of the items with these numbers.
    fn batch(&self, numbers: impl IntoIterator<Item = usize>) -> Delivery {
        self.delivery(&numbers.into_iter().map(self.item).collect::<Vec<_>>())
    }

    async fn deliver(&self, receiver: &Receiver, delivery: &Delivery) -> Answer {
        deliver_to(receiver, self.name(), delivery).await
    }

    fn event_key(&self, number: usize) -> EventKey {
        let id = EventId::new((self.id)(number)).expect("a valid id");
        EventKey::new(Source::new(self.name()).expect("valid"), id)
    }

    async fn record(&self, world: &World, number: usize) -> Record {
        let item = world.ledger.read(&self.event_key(number)).await.expect("a read");
        let item = item.unwrap_or_else(|| panic!("no record {}", self.event_key(number)));
        Record::from_item(item).expect("a readable record")
    }
}

/// A receiver, and proxies that see what it says.
struct Watched {
    receiver: Receiver,
    dynamodb: FaultProxy,
    sqs: FaultProxy,
}

impl Watched {
    async fn start(world: &World, sender: &Sender) -> Self {
        let dynamodb = FaultProxy::start(&world.dynamodb_url, |_, _| Fault::None).await;
        let sqs = FaultProxy::start(&world.sqs_url, |_, _| Fault::None).await;
        let config = sender.config();
        let clock = Clock::default();
        let receiver = world.receiver_at(&config, clock, &dynamodb.url, &sqs.url).await;
        Self { receiver, dynamodb, sqs }
    }
}

/// Works on all that is in the queue; gives how often the handler was called.
async fn work_on_all(world: &World, sender: &Sender) -> usize {
    let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let worker = world.worker(&sender.config(), &[("test", Arc::clone(&handler) as _)]);
    while world.queue_depth().await != (0, 0) {
        let response = world.work(&worker).await;
        assert_eq!(response.batch_item_failures.len(), 0);
    }
    handler.called()
}

async fn assert_nothing_written(world: &World, case: &str) {
    assert_eq!(world.count_records().await, 0, "records: {case}");
    assert_eq!(world.queue_depth().await, (0, 0), "messages: {case}");
}

// ---- what holds for each --------------------------------------------------------------------

#[tokio::test]
async fn each_item_is_recorded_under_its_own_key_and_ten_are_enqueued_a_call() {
    for sender in senders() {
        let name = sender.name();
        let world = World::start().await;
        let watched = Watched::start(&world, &sender).await;
        let Watched { receiver, dynamodb, sqs } = &watched;
        let answer = sender.deliver(receiver, &sender.batch(0..23)).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, sender.success), "{name}");
        assert_eq!(dynamodb.calls(), ["PutItem"; 23], "{name}: one write an item, and no read");
        assert_eq!(sqs.calls(), ["SendMessageBatch"; 3], "{name}");
        assert_eq!((world.count_records().await, world.queue_depth().await), (23, (23, 0)));
        for number in 0..23 {
            let record = sender.record(&world, number).await;
            assert_eq!(record.state.name(), StateName::Received);
            let stored = payload_of(&record);
            let stored: Value = serde_json::from_slice(&stored).expect("an item's own text");
            let mut item: Value = serde_json::from_str(&(sender.item)(number)).expect("JSON");
            if let Some(signature) = stored.pointer(ADYEN_SIGNATURE) {
                *item.pointer_mut(ADYEN_SIGNATURE).expect("signed too") = signature.clone();
            }
            assert_eq!(stored, item, "{name} {number}");
        }
        assert_eq!(work_on_all(&world, &sender).await, 23, "{name}: each is handled once");
    }
}

#[tokio::test]
async fn a_batch_of_one_is_enqueued_as_any_event() {
    let (world, sender) = (World::start().await, sendgrid());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, sqs, .. } = &watched;
    assert_eq!(sender.deliver(receiver, &sender.batch([7])).await.status, 200);
    assert_eq!(sqs.calls(), ["SendMessage"]);
}

#[tokio::test]
async fn items_in_other_groups_are_duplicates_one_by_one_and_what_is_new_is_new() {
    for sender in senders() {
        let name = sender.name();
        let world = World::start().await;
        let watched = Watched::start(&world, &sender).await;
        let Watched { receiver, sqs, .. } = &watched;
        let groups: [(&[usize], usize); 5] = [
            (&[0, 1, 2, 3, 4, 5], 6),
            (&[9, 4, 8, 5], 8),
            (&[3], 8),
            (&[10, 0, 11], 10),
            (&[11, 10, 9, 8, 5, 4, 3, 2, 1, 0], 10),
        ];
        let (mut known_before, mut calls_before) = (0, 0);
        for (numbers, known) in groups {
            let batch = sender.batch(numbers.iter().copied());
            assert_eq!(sender.deliver(receiver, &batch).await.status, 200, "{name} {numbers:?}");
            assert_eq!(world.count_records().await, known, "{name} {numbers:?}");
            let (messages, _) = world.queue_depth().await;
            assert_eq!(messages as usize, known, "{name} {numbers:?}: only what is new");
            let calls = sqs.calls().len();
            assert_eq!(calls > calls_before, known > known_before, "{name} {numbers:?}");
            (known_before, calls_before) = (known, calls);
        }
        for number in [0, 1, 2, 3, 4, 5, 8, 9, 10, 11] {
            assert_eq!(sender.record(&world, number).await.payload_mismatch, None, "{name}");
        }
    }
}

#[tokio::test]
async fn an_item_that_comes_twice_in_one_delivery_is_one_event() {
    for sender in senders() {
        let world = World::start().await;
        let watched = Watched::start(&world, &sender).await;
        let Watched { receiver, sqs, .. } = &watched;
        assert_eq!(sender.deliver(receiver, &sender.batch([1, 2, 1, 1])).await.status, 200);
        assert_eq!(world.count_records().await, 2, "{}", sender.name());
        assert_eq!((world.queue_depth().await, sqs.calls().len()), ((2, 0), 1));
    }
}

#[tokio::test]
async fn batches_at_the_same_time_enqueue_each_item_once() {
    let (world, sender) = (World::start().await, sendgrid());
    let receiver = &world.receiver(&sender.config()).await;
    let batches = [0..8, 4..12, 2..10, 0..12].map(|numbers| sender.batch(numbers));
    let answers = join_all(batches.iter().map(|batch| sender.deliver(receiver, batch))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!((world.count_records().await, world.queue_depth().await), (12, (12, 0)));
}

#[tokio::test]
async fn a_batch_without_an_item_is_acknowledged() {
    for sender in [sendgrid(), hubspot()] {
        let world = World::start().await;
        let watched = Watched::start(&world, &sender).await;
        let Watched { receiver, sqs, .. } = &watched;
        assert_eq!(sender.deliver(receiver, &sender.batch([])).await.status, 200);
        assert_nothing_written(&world, sender.name()).await;
        assert_eq!(sqs.calls().len(), 0, "{}", sender.name());
    }
}

// ---- refused as a whole ---------------------------------------------------------------------

#[tokio::test]
async fn one_item_that_fits_no_record_is_413_for_all_and_nothing_is_written() {
    let (world, sender) = (World::start().await, sendgrid());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, dynamodb, sqs } = &watched;
    // Digests do not compress below half of their hex.
    let noise: String =
        (0..16_000_u32).map(|n| format!("{:x}", Sha256::digest(n.to_be_bytes()))).collect();
    let large = json!({ "sg_event_id": "large", "event": "open", "noise": noise }).to_string();
    for at in [0, 2, 4] {
        let mut items: Vec<_> = (0..4).map(sender.item).collect();
        items.insert(at, large.clone());
        let answer = sender.deliver(receiver, &sender.delivery(&items)).await;
        assert_eq!(answer.status, 413, "{at}");
        assert_nothing_written(&world, "one is too large").await;
    }
    assert_eq!((dynamodb.calls().len(), sqs.calls().len()), (0, 0));
}

#[tokio::test]
async fn one_item_without_an_id_is_422_for_all_and_nothing_is_written() {
    let (world, sender) = (World::start().await, hubspot());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, .. } = &watched;
    let items = [(sender.item)(0), r#"{"subscriptionType":"contact.creation"}"#.to_owned()];
    assert_eq!(sender.deliver(receiver, &sender.delivery(&items)).await.status, 422);
    assert_nothing_written(&world, "one has no id").await;
}

#[tokio::test]
async fn one_item_that_is_not_signed_is_401_for_all_and_nothing_is_written() {
    let (world, sender) = (World::start().await, adyen());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, .. } = &watched;
    let mut delivery = sender.batch(0..3);
    let body = String::from_utf8(delivery.body).expect("text");
    delivery.body = body.replace("P0001", "P0009").into_bytes();
    assert_eq!(sender.deliver(receiver, &delivery).await.status, 401);
    assert_nothing_written(&world, "one is forged").await;
}

#[tokio::test]
async fn more_items_than_are_taken_are_413_and_nothing_is_written() {
    let (world, sender) = (World::start().await, hubspot());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, .. } = &watched;
    let batch = sender.batch(0..=limits::MAX_EVENTS_PER_DELIVERY);
    assert_eq!(sender.deliver(receiver, &batch).await.status, 413);
    assert_nothing_written(&world, "one too many").await;
}

// ---- what fails behind the receiver ---------------------------------------------------------

#[tokio::test]
async fn an_item_that_cannot_be_recorded_is_503_for_all_and_the_retry_makes_it_whole() {
    for sender in senders() {
        let name = sender.name();
        let world = World::start().await;
        let watched = Watched::start(&world, &sender).await;
        let Watched { receiver, dynamodb, .. } = &watched;
        let throttled = Fault::Refuse(400, "ThrottlingException");
        dynamodb.spoil(&sender.event_key(7).pk(), throttled);
        let answer = sender.deliver(receiver, &sender.batch(0..12)).await;
        assert_eq!(answer.status, 503, "{name}");
        assert!(header(&answer, "retry-after").is_some(), "{name}");
        assert_eq!(dynamodb.calls().len(), 11 + 3, "{name}: tried thrice, the others once");
        let written = (world.count_records().await, world.queue_depth().await);
        assert_eq!(written, (11, (11, 0)), "{name}: the others do not wait for it");
        dynamodb.spoil(&sender.event_key(7).pk(), Fault::None);
        for _ in 0..2 {
            let answer = sender.deliver(receiver, &sender.batch(0..12)).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, sender.success), "{name}");
        }
        assert_eq!((world.count_records().await, world.queue_depth().await), (12, (12, 0)));
        assert_eq!(work_on_all(&world, &sender).await, 12, "{name}: each is handled once");
    }
}

#[tokio::test]
async fn what_got_recorded_although_its_answer_was_lost_is_not_recorded_twice() {
    let (world, sender) = (World::start().await, sendgrid());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, dynamodb, .. } = &watched;
    dynamodb.spoil(&sender.event_key(3).pk(), Fault::LoseResponse);
    assert_eq!(sender.deliver(receiver, &sender.batch(0..5)).await.status, 503);
    dynamodb.spoil(&sender.event_key(3).pk(), Fault::None);
    assert_eq!(sender.deliver(receiver, &sender.batch(0..5)).await.status, 200);
    assert_eq!(world.count_records().await, 5);
    // Whose it was to enqueue nobody could know: a sweep does.
    assert_eq!(work_on_all(&world, &sender).await, 4);
    world.sweeper(ahead(PAST_GRACE)).sweep().await.expect("a pass");
    assert_eq!(work_on_all(&world, &sender).await, 1);
}

/// Some are not taken, as SQS says it: with 200, and a list of those that failed.
#[tokio::test(flavor = "multi_thread")]
async fn items_that_cannot_be_enqueued_are_acknowledged_counted_as_deferred_and_swept() {
    let (world, sender) = (World::start().await, sendgrid());
    let sqs = FaultProxy::start(&world.sqs_url, |action, _| {
        let taken = ["0", "2", "3"].map(
            |id| json!({ "Id": id, "MessageId": format!("message-{id}"), "MD5OfMessageBody": "0" }),
        );
        let failed = ["1", "4"].map(
            |id| json!({ "Id": id, "SenderFault": false, "Code": "InternalError", "Message": "" }),
        );
        let answer = json!({ "Successful": taken, "Failed": failed });
        match action {
            "SendMessageBatch" => Fault::RefuseWith(200, answer.to_string()),
            _ => Fault::None,
        }
    });
    let sqs = sqs.await;
    let config = sender.config();
    let mut process = LoggedReceiver::start(&world, &config, &sqs.url).await;
    let event = base64_event("/webhooks/sendgrid", &sender.batch(0..5));
    assert_eq!(process.receive(&event).await, 200);
    let mut deferred = BTreeSet::new();
    for _ in 0..5 {
        let line = process.next_line("webhook_events_total").await;
        assert_eq!((&line["result"], &line["webhook_events_total"]), (&"new".into(), &1.into()));
        if line["enqueue_deferred_total"] == 1 {
            assert_eq!(line["error"].as_str().map(|e| e.contains("InternalError")), Some(true));
            deferred.insert(line["event_id"].as_str().expect("an id").to_owned());
        }
    }
    assert_eq!(deferred, [(sender.id)(1), (sender.id)(4)].into());
    assert_eq!((world.count_records().await, world.queue_depth().await), (5, (0, 0)));
    world.sweeper(ahead(PAST_GRACE)).sweep().await.expect("a pass");
    assert_eq!(work_on_all(&world, &sender).await, 5);
}

#[tokio::test]
async fn the_largest_batch_is_answered_before_its_function_ends_and_its_retries_finish_it() {
    let (world, sender) = (World::start().await, sendgrid());
    let receiver = world.receiver(&sender.config()).await;
    let all = limits::MAX_EVENTS_PER_DELIVERY;
    let batch = sender.batch(0..all);
    let answer = sender.deliver(&receiver, &batch);
    let answer = tokio::time::timeout(limits::RECEIVER_TIMEOUT, answer).await;
    let status = answer.expect("an answer in time").status;
    assert!([200, 503].contains(&status), "{status}");
    let recorded = world.ledger.read(&sender.event_key(all - 1)).await.expect("a read").is_some();
    assert!(recorded || status == 503, "200 is for every one of them");
    // As SendGrid does, in other groups.
    for first in (0..all).step_by(100) {
        let batch = sender.batch(first..first + 100);
        assert_eq!(sender.deliver(&receiver, &batch).await.status, 200, "from {first}");
    }
    for number in (0..all).step_by(37) {
        assert_eq!(sender.record(&world, number).await.payload_mismatch, None);
    }
    // What there was no time to enqueue is a sweep's.
    world.sweeper(ahead(PAST_GRACE)).sweep().await.expect("a pass");
    let (messages, _) = world.queue_depth().await;
    assert!(messages as usize >= all, "{messages}");
}

#[tokio::test]
async fn a_batch_that_does_not_fit_the_time_is_503_and_its_retry_finishes_it() {
    let (world, sender) = (World::start().await, hubspot());
    let watched = Watched::start(&world, &sender).await;
    let Watched { receiver, dynamodb, .. } = &watched;
    dynamodb.follow(|_, _| Fault::Delay(Duration::from_millis(800)));
    let batch = sender.batch(0..120);
    let answer = sender.deliver(receiver, &batch);
    let answer = tokio::time::timeout(limits::RECEIVER_TIMEOUT, answer).await;
    assert_eq!(answer.expect("an answer in time").status, 503);
    let recorded = world.count_records().await;
    assert!((1..120).contains(&recorded), "{recorded} were recorded in the time there was");
    dynamodb.follow(|_, _| Fault::None);
    assert_eq!(sender.deliver(receiver, &batch).await.status, 200);
    assert_eq!(world.count_records().await, 120);
    let at_once = work_on_all(&world, &sender).await;
    world.sweeper(ahead(PAST_GRACE)).sweep().await.expect("a pass");
    assert_eq!(at_once + work_on_all(&world, &sender).await, 120, "each is handled once");
}

/// The grace of a new event, and a little more.
const PAST_GRACE: Duration = Duration::from_secs(61);
const HUBSPOT_URL: &str = "https://hooks.example.com/webhooks/hubspot";
const ADYEN_SIGNATURE: &str = "/NotificationRequestItem/additionalData/hmacSignature";
