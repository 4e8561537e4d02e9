//! What strangers send, and what a provider should not: every request gets an answer, and nothing
//! refused leaves a trace.

use std::{cell::Cell, sync::Arc};

use aws_lambda_events::sqs::SqsEvent;
use domain::{
    delivery::{Delivery, Headers},
    event::{EventId, EventKey, Source},
    limits,
    record::StateName,
};
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use proptest::{prelude::*, test_runner::TestRunner};
use receiver::Receiver;
use serde_json::{Value, json};
use tests::{
    deliveries::{base64_event, deliver_to},
    handlers::Scripted,
    world::{World, deliver, headers_of, raw_event, stripe_body, stripe_config, stripe_delivery},
};

async fn assert_refused(world: &World, receiver: &Receiver, body: &[u8], status: u16, case: &str) {
    let answer = deliver_to(receiver, "stripe", &stripe_body(body)).await;
    assert_eq!(answer.status, status, "{case}");
    assert_eq!(world.count_records().await, 0, "{case}");
    assert_eq!(world.queue_depth().await, (0, 0), "{case}");
}

/// An event whose id is written so, as JSON.
fn with_id(id: &str) -> Vec<u8> {
    format!(r#"{{"type":"payment_intent.succeeded","id":{id}}}"#).into_bytes()
}

// ---- bodies ---------------------------------------------------------------------------------

#[tokio::test]
async fn a_signed_body_that_is_no_json_is_422_and_leaves_no_trace() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let bodies: [&[u8]; 15] = [
        b"",
        b" ",
        b"{",
        b"{}{}",
        b"null",
        b"0",
        b"\"id\"",
        b"[]",
        b"[{\"id\":\"evt_1\"}]",
        b"id=evt_1",
        b"{\"id\":\"evt_1\"",
        b"{'id':'evt_1'}",
        b"{\"id\":\"evt_\xff\"}",
        b"\xef\xbb\xbf{\"id\":\"evt_1\"}",
        b"\x00\x01\x02",
    ];
    for body in bodies {
        let case = String::from_utf8_lossy(body).into_owned();
        assert_refused(&world, &receiver, body, 422, &case).await;
    }
}

#[tokio::test]
async fn ten_megabytes_are_refused_before_anything_reads_them() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let body = vec![b' '; 10 * 1024 * 1024];
    assert_refused(&world, &receiver, &body, 413, "10 MB").await;
}

#[tokio::test]
async fn malformed_base64_is_400_and_leaves_no_trace() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let headers = headers_of(&stripe_delivery("evt_1"));
    for body in ["%%%", "a", "e30", "e30=\n", "e30=e30=", "ü", "{\"id\":\"evt_1\"}"] {
        let event = raw_event("/webhooks/stripe", "POST", &headers, body, true);
        assert_eq!(receiver.receive(event).await.status, 400, "{body}");
    }
    assert_eq!(world.count_records().await, 0);
}

#[tokio::test]
async fn depth_beside_the_id_is_taken_and_within_it_refused() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_refused(&world, &receiver, &with_id(&deep), 422, "a deep id").await;
    assert_refused(&world, &receiver, deep.as_bytes(), 422, "a deep body").await;
    assert_refused(&world, &receiver, &deep.as_bytes()[..200_000], 422, "an open end").await;
    // A duplicate that differs is compared, and must not exhaust the stack either.
    for more in ["", " "] {
        let body = format!(r#"{{"id":"evt_1","type":"a","data":{deep}{more}}}"#);
        let answer = deliver(&receiver, &stripe_body(body.as_bytes())).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(world.count_records().await, 1);
}

// ---- ids ------------------------------------------------------------------------------------

#[tokio::test]
async fn an_id_that_can_be_none_is_422_and_never_replaced_by_a_default() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let too_long = format!("\"{}\"", "x".repeat(limits::MAX_EVENT_ID_BYTES + 1));
    let huge = format!("\"{}\"", "x".repeat(10_000));
    let wide = format!("\"{}\"", "ü".repeat(limits::MAX_EVENT_ID_BYTES / 2 + 1));
    let long_number = "9".repeat(limits::MAX_EVENT_ID_BYTES + 1);
    let ids = [
        "null",
        "true",
        "false",
        "{}",
        "[]",
        "{\"id\":1}",
        "[\"evt_1\"]",
        "\"\"",
        "\"a\\u0000b\"",
        "\"\\u0001\"",
        "\"a\\nb\"",
        "\"\\u007f\"",
        "\"\\u0085\"",
        "\"\\ud800\"",
        "\"\\uffff\"",
        &too_long,
        &huge,
        &wide,
        &long_number,
        "\"a\",\"id\":\"b\"",
        "\"a\",\"\\u0069d\":\"b\"",
    ];
    for id in ids {
        assert_refused(&world, &receiver, &with_id(id), 422, id).await;
    }
}

#[tokio::test]
async fn an_unusual_id_that_is_one_is_recorded_as_it_is_and_handled() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let longest = "x".repeat(limits::MAX_EVENT_ID_BYTES);
    let ids = [
        ("5", "5"),
        ("9007199254740993", "9007199254740993"),
        ("-1.50e2", "-1.50e2"),
        ("\"a#b#c\"", "a#b#c"),
        ("\"#\"", "#"),
        ("\" \"", " "),
        ("\"\\u00fc \\ud83c\\udf75\"", "ü 🍵"),
        ("\"../../etc\"", "../../etc"),
        ("\"a\\\"b\\\\\"", "a\"b\\"),
        (&format!("\"{longest}\""), longest.as_str()),
    ];
    for (written, _) in ids {
        let answer = deliver(&receiver, &stripe_body(&with_id(written))).await;
        assert_eq!(answer.status, 200, "{written}");
    }
    assert_eq!(world.count_records().await, ids.len(), "no two of them are one");
    // The key survives the way through the queue.
    let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let worker = world.worker(&stripe_config(), &[("test", Arc::clone(&handler) as _)]);
    while world.queue_depth().await != (0, 0) {
        let response = world.work(&worker).await;
        assert_eq!(response.batch_item_failures.len(), 0);
    }
    for (written, id) in ids {
        let source = Source::new("stripe").expect("valid");
        let key = EventKey::new(source, EventId::new(id).expect("valid"));
        assert!(world.ledger.read(&key).await.expect("a read").is_some(), "{written}");
        let record = world.record(id).await.expect("recorded");
        assert_eq!(record.state.name(), StateName::Done, "{written}");
    }
    assert_eq!(handler.called(), ids.len());
}

// ---- headers --------------------------------------------------------------------------------

/// A delivery whose signature headers are these, in their order.
async fn status_with_signatures(receiver: &Receiver, delivery: &Delivery, all: &[&str]) -> u16 {
    let unsigned = Delivery { headers: Headers::default(), ..delivery.clone() };
    let mut event = base64_event("/webhooks/stripe", &unsigned);
    for signature in all {
        event.headers.append("stripe-signature", signature.parse().expect("a header value"));
    }
    receiver.receive(event).await.status
}

#[tokio::test]
async fn of_a_header_sent_twice_the_first_counts() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let good = delivery.headers.get("stripe-signature").expect("signed");
    assert_eq!(status_with_signatures(&receiver, &delivery, &["t=1,v1=00", good]).await, 401);
    let joined = format!("{good},{good}");
    assert_eq!(status_with_signatures(&receiver, &delivery, &[&joined]).await, 401, "as joined");
    assert_eq!(world.count_records().await, 0);
    assert_eq!(status_with_signatures(&receiver, &delivery, &[good, "t=1,v1=00"]).await, 200);
}

#[tokio::test]
async fn headers_over_the_limit_are_431() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let good = delivery.headers.get("stripe-signature").expect("signed");
    let members = format!("{good}{}", ",v1=00".repeat(10_000));
    assert_eq!(status_with_signatures(&receiver, &delivery, &[&members]).await, 431);
    let mut event = base64_event("/webhooks/stripe", &delivery);
    event.headers.insert("x-huge", "x".repeat(64 * 1024).parse().expect("a header value"));
    assert_eq!(receiver.receive(event).await.status, 431);
    assert_eq!(world.count_records().await, 0);
}

#[tokio::test]
async fn of_thousands_of_signatures_only_the_first_few_are_tried() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let good = delivery.headers.get("stripe-signature").expect("signed");
    let (time, code) = good.split_once(',').expect("time, then code");
    let wrong = ",v1=00".repeat(2_500);
    let last = format!("{time}{wrong},{code}");
    assert_eq!(status_with_signatures(&receiver, &delivery, &[&last]).await, 401);
    assert_eq!(world.count_records().await, 0);
    let first = format!("{good}{wrong}");
    assert_eq!(status_with_signatures(&receiver, &delivery, &[&first]).await, 200);
}

// ---- paths ----------------------------------------------------------------------------------

#[tokio::test]
async fn a_path_names_a_source_plainly_or_not_at_all() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let paths = [
        "",
        "/",
        "//",
        "webhooks/stripe",
        "/webhooks//stripe",
        "/webhooks/stripe//",
        "/webhooks/stripe/x",
        "/webhooks/str%69pe",
        "/webhooks%2Fstripe",
        "/webhooks/stripe%00",
        "/webhooks/stripe#x",
        "/webhooks/../webhooks/stripe/..",
        "/webhooks/\u{0}",
        "/webhooks/ß🍵",
        "/webhooks/' OR 1=1",
    ];
    let long = format!("/webhooks/{}", "s".repeat(100_000));
    for path in paths.into_iter().chain([long.as_str()]) {
        let answer = receiver.receive(base64_event(path, &delivery)).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("OR 1=1"), "what a stranger wrote is not sent back");
    }
    let mut pathless = base64_event("", &delivery);
    pathless.raw_path = None;
    assert_eq!(receiver.receive(pathless).await.status, 404);
    assert_eq!(world.count_records().await, 0);
}

// ---- anything -------------------------------------------------------------------------------

/// A runtime for properties, which are not async.
fn block_on<T>(future: impl Future<Output = T>) -> (tokio::runtime::Runtime, T) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let value = runtime.block_on(future);
    (runtime, value)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Mostly what a gateway sends, now and then anything.
fn or_anything(usual: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![9 => usual.boxed(), 1 => any_json().boxed()]
}

fn any_event() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        4 => Just("/webhooks/stripe".to_owned()),
        1 => "(/[a-z%#.]{0,9}){0,3}",
        1 => ".{0,30}",
    ];
    let method = prop_oneof![4 => Just("POST".to_owned()), 1 => "[A-Za-z]{1,8}", 1 => ".{0,4}"];
    let name = prop_oneof!["[a-zA-Z-]{1,12}", Just("stripe-signature".to_owned())];
    let value = prop_oneof!["[ -~]{0,40}", "t=[0-9]{1,20},v1=[0-9a-f]{0,64}", ".{0,20}"];
    let headers = prop::collection::btree_map(name, value.prop_map(Value::from), 0..5);
    let headers = headers.prop_map(|headers| Value::Object(headers.into_iter().collect()));
    let body = prop_oneof![".{0,60}", "[A-Za-z0-9+/]{0,40}={0,2}"];
    (
        or_anything(path.prop_map(Value::from)),
        or_anything(method.prop_map(|method| json!({ "http": { "method": method } }))),
        or_anything(headers),
        or_anything(body.prop_map(Value::from)),
        or_anything(any::<bool>().prop_map(Value::from)),
        or_anything(".{0,20}".prop_map(Value::from)),
    )
        .prop_map(|(path, context, headers, body, is_base64, query)| {
            json!({
                "version": "2.0",
                "rawPath": path,
                "rawQueryString": query,
                "headers": headers,
                "requestContext": context,
                "body": body,
                "isBase64Encoded": is_base64
            })
        })
}

#[test]
fn any_event_that_is_one_gets_an_answer_and_leaves_no_trace_unsigned() {
    let (runtime, (world, receiver)) = block_on(async {
        let world = World::start().await;
        let receiver = world.receiver(&stripe_config()).await;
        (world, receiver)
    });
    let (events, at_the_signature) = (Cell::new(0), Cell::new(0));
    let checked = runner(1500).run(&any_event(), |event| {
        let Ok(event) = serde_json::from_value::<ApiGatewayV2httpRequest>(event) else {
            return Ok(());
        };
        let answer = runtime.block_on(receiver.receive(event));
        events.set(events.get() + 1);
        if answer.status == 401 {
            at_the_signature.set(at_the_signature.get() + 1);
        }
        prop_assert!((400..=599).contains(&answer.status), "{}", answer.status);
        Ok(())
    });
    checked.expect("an answer to each");
    assert!(events.get() > 200, "only {} were events", events.get());
    assert!(at_the_signature.get() > 50, "only {} got that far", at_the_signature.get());
    assert_eq!(runtime.block_on(world.count_records()), 0);
    assert_eq!(runtime.block_on(world.queue_depth()), (0, 0));
}

/// Bodies: bytes, and JSON with surprising values where the catalogue looks.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let object = (any_json(), any_json(), any_json(), any_json());
    let event = object.prop_map(|(id, kind, created, data)| {
        json!({ "id": id, "type": kind, "created": created, "data": { "object": data } })
            .to_string()
            .into_bytes()
    });
    let times = prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        Just("99999999999999999999999".to_owned()),
        Just("1700000000.99999999999".to_owned()),
        Just("\"-009999-01-02T01:59:59Z\"".to_owned()),
    ];
    let timed = ("[a-z]{1,8}", times)
        .prop_map(|(id, at)| format!(r#"{{"id":"{id}","created":{at}}}"#).into_bytes());
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), event, timed]
}

#[test]
fn any_signed_body_is_recorded_or_422_and_never_both() {
    let (runtime, (world, receiver)) = block_on(async {
        let world = World::start().await;
        let receiver = world.receiver(&stripe_config()).await;
        (world, receiver)
    });
    let recorded = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let refused = Cell::new(0);
    let checked = runner(400).run(&any_body(), |body| {
        let answer = runtime.block_on(deliver_to(&receiver, "stripe", &stripe_body(&body)));
        match answer.status {
            200 => {
                let event: Value = serde_json::from_slice(&body).expect("JSON, if identified");
                recorded.borrow_mut().insert(event["id"].to_string());
            }
            422 => refused.set(refused.get() + 1),
            status => prop_assert!(false, "{status}: {}", answer.body),
        }
        Ok(())
    });
    checked.expect("an answer to each");
    assert_eq!(runtime.block_on(world.count_records()), recorded.borrow().len());
    assert!(recorded.borrow().len() > 50, "only {} were events", recorded.borrow().len());
    assert!(refused.get() > 50, "only {} were refused", refused.get());
}

#[test]
fn any_message_is_worked_on_without_a_panic_and_kept_for_the_dead_letter_queue() {
    let (runtime, (_world, worker)) = block_on(async {
        let world = World::start().await;
        let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
        let worker = world.worker(&stripe_config(), &[("test", handler)]);
        (world, worker)
    });
    let checked = runner(30).run(&".{0,40}", |body| {
        let mut event = SqsEvent::default();
        let mut record = aws_lambda_events::sqs::SqsMessage::default();
        record.message_id = Some("1".to_owned());
        record.receipt_handle = Some("made-up".to_owned());
        record.body = Some(body);
        event.records = vec![record];
        let deadline = runtime::clock::Clock::default().now();
        let deadline = deadline.plus(std::time::Duration::from_secs(30));
        let response = runtime.block_on(worker::work(&worker, event, deadline));
        prop_assert_eq!(response.expect("a response").batch_item_failures.len(), 1);
        Ok(())
    });
    checked.expect("a response to each");
}
