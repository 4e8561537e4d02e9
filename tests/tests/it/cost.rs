//! What an event consumes of DynamoDB: the calls of the real functions are made once more, on
//! another emulator, each with the question for its capacity units. `docs/cost.md` has the figures,
//! and this test holds it to them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use runtime::clock::Clock;
use serde_json::{Value, json};
use tests::{
    handlers::Scripted,
    play::{accounts, credit},
    proxy::{Fault, FaultProxy},
    world::{World, deliver, stripe_body, stripe_config},
};
use worker::handlers::Handler;

use self::Effect::{Elsewhere, Local};

/// What an event's handler does.
#[derive(Clone, Copy)]
enum Effect {
    /// It calls a service, whose result rides on the completion.
    Elsewhere,
    /// It writes to a table of its own, in one transaction with the completion.
    Local,
}

/// Write units of one call.
struct Units {
    table: f64,
    index: f64,
}

impl Units {
    /// Of one table, or of each in a transaction.
    fn of(consumed: &Value) -> Self {
        let tables = consumed.as_array().cloned().unwrap_or_else(|| vec![consumed.clone()]);
        let sum = |of: &dyn Fn(&Value) -> f64| tables.iter().map(of).sum::<f64>();
        let table = sum(&|one| one["Table"]["CapacityUnits"].as_f64().unwrap_or(0.0));
        let all = sum(&|one| one["CapacityUnits"].as_f64().expect("units"));
        Self { table, index: all - table }
    }

    fn sum(&self) -> f64 {
        self.table + self.index
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}", self.table, self.index)
    }
}

#[tokio::test]
async fn an_event_consumes_what_the_docs_say() {
    let docs = include_str!("../../../docs/cost.md");
    let (small, typical) = (body_of(0), body_of(TYPICAL_FIELDS));
    let sizes = [&small, &typical].map(String::len);
    let said = format!("| write units, table + index | {} bytes | {} bytes |", sizes[0], sizes[1]);
    let (mut rows, mut sums) = (vec![said], Vec::new());
    for (effect, calls) in [
        (Elsewhere, &[(0, "claim"), (1, "lease"), (2, "complete")][..]),
        (Local, &[(2, "complete, with one local write")]),
    ] {
        let (small, typical) = (consumed(&small, effect).await, consumed(&typical, effect).await);
        sums.extend([&small, &typical].map(|calls| calls.iter().map(Units::sum).sum::<f64>()));
        for (n, call) in calls {
            rows.push(format!("| {call} | {} | {} |", small[*n], typical[*n]));
        }
    }
    let [small, typical, small_local, typical_local] = sums[..] else { panic!("two of each") };
    rows.push(format!(
        "An event is {small} units, or {typical}; with one local write {small_local}, or \
         {typical_local}"
    ));
    for row in &rows {
        assert!(docs.contains(row), "docs/cost.md does not say:\n{}", rows.join("\n"));
    }
}

/// What each of an event's writes consumes: claim, lease, complete.
async fn consumed(body: &str, effect: Effect) -> Vec<Units> {
    let calls = calls_of(body, effect).await;
    let actions: Vec<_> = calls.iter().map(|(action, _)| action.as_str()).collect();
    let last = match effect {
        Elsewhere => "UpdateItem",
        Local => "TransactWriteItems",
    };
    assert_eq!(actions, ["PutItem", "UpdateItem", last], "more calls than an event needs");
    let again = World::start().await;
    accounts(&again).await;
    let mut units = Vec::new();
    for (action, call) in calls {
        units.push(Units::of(&ask(&again.dynamodb_url, &action, call).await));
    }
    units
}

/// The calls to DynamoDB by which an event is received and worked on, in their order.
async fn calls_of(body: &str, effect: Effect) -> Vec<(String, Value)> {
    let world = World::start().await;
    accounts(&world).await;
    let dynamodb = FaultProxy::start(&world.dynamodb_url, |_, _| Fault::None).await;
    let (config, clock) = (stripe_config(), Clock::default());
    let receiver = world.receiver_at(&config, clock, &dynamodb.url, &world.sqs_url).await;
    assert_eq!(deliver(&receiver, &stripe_body(body.as_bytes())).await.status, 200);
    let handler: Arc<dyn Handler> = Scripted::new(move |_, effects| {
        Box::pin(async move {
            match effect {
                Elsewhere => Ok(()),
                Local => effects.write(credit("acct")),
            }
        })
    });
    let handlers = [("test", handler)];
    let worker = world.worker_at(&config, &handlers, clock, &dynamodb.url, &world.sqs_url);
    assert!(world.work(&worker).await.batch_item_failures.is_empty());
    let mut by_action: BTreeMap<_, _> = dynamodb
        .calls()
        .into_iter()
        .map(|action| (action.clone(), dynamodb.bodies(&action).into_iter()))
        .collect();
    let next = |action: String| {
        let body = by_action.get_mut(&action).and_then(Iterator::next).expect("its body");
        (action, body)
    };
    dynamodb.calls().into_iter().map(next).collect()
}

/// Makes a call with the question what it consumes.
async fn ask(dynamodb_url: &str, action: &str, mut call: Value) -> Value {
    call["ReturnConsumedCapacity"] = json!("INDEXES");
    let request = reqwest::Client::new()
        .post(dynamodb_url)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-target", format!("DynamoDB_20120810.{action}"))
        .header("x-amz-date", "20260101T000000Z")
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=0",
        )
        .body(call.to_string());
    let answer = request.send().await.expect("an answer").text().await.expect("text");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert!(!answer["ConsumedCapacity"].is_null(), "{action}: {answer}");
    answer["ConsumedCapacity"].clone()
}

/// An event as a payment provider writes it, with so many fields that say little by themselves.
fn body_of(fields: usize) -> String {
    let mut chance = fastrand::Rng::with_seed(7);
    let mut word =
        |length: usize| -> String { (0..length).map(|_| chance.alphanumeric()).collect() };
    let fields: serde_json::Map<_, _> =
        (0..fields).map(|n| (format!("field_of_a_payment_{n}"), json!(word(28)))).collect();
    let event = json!({
        "id": "evt_1PqT5m2eZvKYlo2C0n3hXk7d",
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": Clock::default().now().millis() / 1000,
        "livemode": false,
        "data": { "object": {
            "id": "pi_3PqT5l2eZvKYlo2C1f9sQw8e",
            "object": "payment_intent",
            "amount": 1999,
            "currency": "eur",
            "metadata": fields,
        } },
    });
    serde_json::to_string_pretty(&event).expect("JSON")
}

/// Enough for 2.6 kB, which compress to 1.1 kB, as Stripe's events of this type do.
const TYPICAL_FIELDS: usize = 35;
