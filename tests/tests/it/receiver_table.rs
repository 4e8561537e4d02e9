//! Every row of the receiver's table: case, answer, writes.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    delivery::{Delivery, Headers},
    event::{EventId, EventKey, Source},
    item::{Attribute, Item, Value as Stored},
    record::{LeaseOwner, State, StateName},
    time::Timestamp,
    transition::{Leased, lease},
};
use dynamo::Returning;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use providers::{Endpoint, Provider, SampleRequest, Secret};
use receiver::{Answer, Receiver};
use runtime::clock::Clock;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tests::{
    deliveries::{base64_event, deliver_to, header, sample, signed, signed_at},
    handlers::Scripted,
    logged::LoggedReceiver,
    play::ahead,
    proxy::{Fault, FaultProxy, every_call},
    world::{
        STRIPE_SECRET, TABLE, World, deliver, headers_of, occurred_at, payload_of, raw_event,
        stripe_body, stripe_config, stripe_delivery, stripe_delivery_at, stripe_delivery_of,
        stripe_key,
    },
};
use worker::Failure;

/// HMAC-SHA256 of `abc` under `greeting-secret`, as X and as Zoom write it.
const X_ANSWER: &str =
    r#"{"response_token":"sha256=VYoQzOPqzRkbfzxGDRCG8hkhreNK+Z4StopKuG3a9Wc="}"#;
const ZOOM_ANSWER: &str = r#"{"plainToken":"abc","encryptedToken":"558a10cce3eacd191b7f3c460d1086f21921ade34af99e12b68a4ab86ddaf567"}"#;
/// HMAC-SHA1 of `abc` under the SHA-1 of `greeting-secret`.
const BRAINTREE_ANSWER: &str = "pk_1|aeb6c9e988bd39d78817e548ab24df600b486718";
/// The grace of a new event, and a little more.
const PAST_GRACE_MS: i64 = 61_000;

async fn assert_nothing_written(world: &World, case: &str) {
    assert_eq!(world.count_records().await, 0, "records: {case}");
    assert_eq!(world.queue_depth().await, (0, 0), "messages: {case}");
}

/// A receiver whose clock is past the grace of what is claimed now.
async fn late_receiver(world: &World) -> Receiver {
    let clock = Clock::with_offset(PAST_GRACE_MS);
    world.receiver_at(&stripe_config(), clock, &world.dynamodb_url, &world.sqs_url).await
}

/// A Stripe event of this process's moment, with these members in place of its own.
fn stripe_event(id: &str, members: &Value) -> Vec<u8> {
    let created = occurred_at().millis() / 1000;
    let mut event = json!({ "id": id, "type": "payment_intent.succeeded", "created": created });
    for (name, value) in members.as_object().expect("an object") {
        event[name] = value.clone();
    }
    event.to_string().into_bytes()
}

/// A config with a second source beside `stripe`.
fn config_with(name: &str, source: Value) -> Value {
    let mut config = stripe_config();
    config["sources"][name] = source;
    config
}

fn source_of(provider: &str, secrets: Value) -> Value {
    json!({ "provider": provider, "secrets": secrets, "deliver": { "handler": "test" } })
}

fn key_of(source: &str, id: &str) -> EventKey {
    EventKey::new(Source::new(source).expect("valid"), EventId::new(id).expect("valid"))
}

fn text_of(item: &Item, attribute: Attribute) -> Option<&str> {
    match item.get(&attribute) {
        Some(Stored::Text(text)) => Some(text),
        _ => None,
    }
}

// ---- refused --------------------------------------------------------------------------------

#[tokio::test]
async fn an_unknown_source_is_404_and_nothing_is_written() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    for path in ["/webhooks/other", "/webhooks/Stripe", "/webhooks/", "/webhooks", "/stripe", "/"] {
        let answer = receiver.receive(base64_event(path, &delivery)).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_nothing_written(&world, path).await;
    }
}

#[tokio::test]
async fn another_method_is_405_and_told_which_is_allowed() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "post"] {
        let delivery = Delivery { method: method.to_owned(), ..stripe_delivery("evt_1") };
        let answer = deliver(&receiver, &delivery).await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(header(&answer, "allow"), Some("POST"), "{method}");
        assert_nothing_written(&world, method).await;
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_however_well_it_is_signed() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let padding = "x".repeat(domain::limits::MAX_BODY_BYTES);
    let delivery = stripe_body(&stripe_event("evt_1", &json!({ "padding": padding })));
    assert_eq!(deliver(&receiver, &delivery).await.status, 413, "as text");
    assert_eq!(deliver_to(&receiver, "stripe", &delivery).await.status, 413, "as base64");
    assert_nothing_written(&world, "too large").await;
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_taken_if_it_compresses() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let unpadded = stripe_event("evt_1", &json!({ "padding": "" })).len();
    let padding = "x".repeat(domain::limits::MAX_BODY_BYTES - unpadded);
    let body = stripe_event("evt_1", &json!({ "padding": padding }));
    assert_eq!(body.len(), domain::limits::MAX_BODY_BYTES);
    assert_eq!(deliver(&receiver, &stripe_body(&body)).await.status, 200);
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(payload_of(&record), body, "byte by byte");
}

#[tokio::test]
async fn a_payload_that_fits_no_record_is_413_and_nothing_is_written() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    // Digests do not compress below half of their hex.
    let noise: String =
        (0..16_000_u32).map(|n| format!("{:x}", Sha256::digest(n.to_be_bytes()))).collect();
    let delivery = stripe_body(&stripe_event("evt_1", &json!({ "noise": noise })));
    assert_eq!(deliver(&receiver, &delivery).await.status, 413);
    assert_nothing_written(&world, "incompressible").await;
}

/// `delivery` with another signature header, or none.
fn resigned(delivery: &Delivery, signature: Option<&str>) -> Delivery {
    let others = delivery.headers.iter().filter(|(name, _)| *name != "stripe-signature");
    let headers: Headers =
        others.chain(signature.map(|signature| ("stripe-signature", signature))).collect();
    Delivery { headers, ..delivery.clone() }
}

/// Deliveries that do not verify, each with what is wrong with it.
fn unverified() -> Vec<(&'static str, Delivery)> {
    let now = Clock::default().now();
    let good = stripe_delivery_at("evt_1", now);
    let signature = good.headers.get("stripe-signature").expect("signed").to_owned();
    let (time, code) = signature.split_once(",v1=").expect("time, then code");
    let flipped = if code.starts_with('0') { "1" } else { "0" };
    let other_body = stripe_event("evt_2", &json!({}));
    vec![
        ("missing", resigned(&good, None)),
        ("empty", resigned(&good, Some(""))),
        ("malformed", resigned(&good, Some("nonsense"))),
        ("not hex", resigned(&good, Some(&format!("{time},v1=zz")))),
        ("cut short", resigned(&good, Some(&signature[..signature.len() - 2]))),
        ("no code", resigned(&good, Some(time))),
        ("a version that does not count", resigned(&good, Some(&format!("{time},v0={code}")))),
        ("no time", resigned(&good, Some(&format!("v1={code}")))),
        ("two times", resigned(&good, Some(&format!("t=1,{signature}")))),
        ("another time", resigned(&good, Some(&format!("t=1,v1={code}")))),
        ("wrong", resigned(&good, Some(&format!("{time},v1={flipped}{}", &code[1..])))),
        ("another secret", signed("stripe", "whsec_another", &[], &good.body)),
        ("another body", Delivery { body: other_body, ..good.clone() }),
        ("stale", stripe_delivery_at("evt_1", now.minus(Duration::from_secs(310)))),
        ("future", stripe_delivery_at("evt_1", now.plus(Duration::from_secs(400)))),
    ]
}

#[tokio::test]
async fn whatever_does_not_verify_hears_one_and_the_same_401_and_writes_nothing() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let mut answers: Vec<Answer> = Vec::new();
    for (case, delivery) in unverified() {
        let answer = deliver(&receiver, &delivery).await;
        assert_eq!(answer.status, 401, "{case}");
        assert_nothing_written(&world, case).await;
        answers.push(answer);
    }
    assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
    let good = stripe_delivery("evt_1");
    assert_eq!(deliver(&receiver, &good).await.status, 200, "the same, well signed");
}

/// Parsed and written again it would be shorter, and in another order.
#[tokio::test]
async fn a_signature_is_over_the_bytes_as_received() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let body = br#"{ "type": "payment_intent.succeeded",  "id": "evt_1", "created": 1.0e0 }"#;
    assert_eq!(deliver(&receiver, &stripe_body(body)).await.status, 200);
    let record = world.expect_record("evt_1").await;
    let payload = payload_of(&record);
    assert_eq!(payload, body);
}

#[tokio::test]
async fn a_signed_time_within_the_tolerance_is_taken_on_either_side() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let now = Clock::default().now();
    let some = Duration::from_secs(200);
    for (id, at) in [("evt_past", now.minus(some)), ("evt_future", now.plus(some))] {
        assert_eq!(deliver(&receiver, &stripe_delivery_at(id, at)).await.status, 200, "{id}");
    }
    assert_eq!(world.count_records().await, 2);
}

#[tokio::test]
async fn verified_without_an_event_id_is_422_and_nothing_is_written() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_body(br#"{"type":"payment_intent.succeeded"}"#);
    assert_eq!(deliver(&receiver, &delivery).await.status, 422);
    assert_nothing_written(&world, "no id").await;
}

/// Xero tries out whether signatures are looked at, and takes no answer with a body.
#[tokio::test]
async fn a_provider_that_is_particular_hears_its_own_rejection_the_same_for_all() {
    let world = World::start().await;
    let source = source_of("xero", json!(["literal:xero-secret"]));
    let receiver = world.receiver(&config_with("xero", source)).await;
    let body = br#"{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3"}"#;
    let right = signed("xero", "xero-secret", &[], body);
    let cases = [
        signed("xero", "another", &[], body),
        Delivery { headers: Headers::default(), ..right.clone() },
        Delivery { body: b"{}".to_vec(), ..right.clone() },
    ];
    for delivery in cases {
        let answer = deliver_to(&receiver, "xero", &delivery).await;
        assert_eq!(answer, Answer { status: 401, headers: Vec::new(), body: String::new() });
    }
    let answer = deliver_to(&receiver, "xero", &right).await;
    assert_eq!(answer, Answer { status: 200, headers: Vec::new(), body: String::new() });
    // Whatever else is refused says why.
    let unreadable = raw_event("/webhooks/xero", "POST", &json!({}), "%%%", true);
    assert!(!receiver.receive(unreadable).await.body.is_empty());
    assert_nothing_written(&world, "an intent to receive").await;
}

// ---- answered without a record --------------------------------------------------------------

/// A request without a signature.
fn unsigned(source: &str, method: &str, query: &str, body: &str) -> ApiGatewayV2httpRequest {
    let headers = json!({ "content-type": "application/json" });
    let mut event = raw_event(&format!("/webhooks/{source}"), method, &headers, body, false);
    event.raw_query_string = Some(query.to_owned());
    event
}

/// Sources of providers that ask, unsigned, who we are.
fn greeted_config() -> Value {
    let mut config = stripe_config();
    for provider in ["meta", "x", "zoom", "dropbox", "braintree", "microsoft-graph", "woocommerce"]
    {
        config["sources"][provider] = source_of(provider, json!(["literal:greeting-secret"]));
    }
    config["sources"]["meta"]["settings"] = json!({ "verify_token": "chosen-by-us" });
    config["sources"]["braintree"]["settings"] = json!({ "public_key": "pk_1" });
    config
}

#[tokio::test]
async fn an_unsigned_greeting_is_answered_as_its_provider_wants_and_nothing_is_written() {
    let world = World::start().await;
    let receiver = world.receiver(&greeted_config()).await;
    let zoom = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"abc"}}"#;
    let hub = "hub.mode=subscribe&hub.verify_token=chosen-by-us&hub.challenge=1158201444";
    let cases = [
        ("meta", "GET", hub, "", "1158201444"),
        ("dropbox", "GET", "challenge=abc", "", "abc"),
        ("microsoft-graph", "POST", "validationToken=Hello%20you", "", "Hello you"),
        ("x", "GET", "crc_token=abc&nonce=n", "", X_ANSWER),
        ("zoom", "POST", "", zoom, ZOOM_ANSWER),
        ("braintree", "GET", "bt_challenge=abc", "", BRAINTREE_ANSWER),
    ];
    for (provider, method, query, body, answered) in cases {
        let answer = receiver.receive(unsigned(provider, method, query, body)).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, answered), "{provider}");
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"), "{provider}");
        assert_ne!(header(&answer, "content-type"), Some("text/html"), "{provider}");
        assert_nothing_written(&world, provider).await;
    }
    // One that is only to be acknowledged.
    let mut saved = unsigned("woocommerce", "POST", "", "webhook_id=7");
    let form = "application/x-www-form-urlencoded".parse().expect("a header value");
    saved.headers.insert("content-type", form);
    assert_eq!(receiver.receive(saved).await.status, 200);
    assert_nothing_written(&world, "woocommerce").await;
}

/// X signs the query of its check, as it signs no delivery.
#[tokio::test]
async fn a_greeting_that_is_signed_in_its_own_way_is_answered_all_the_same() {
    let world = World::start().await;
    let receiver = world.receiver(&greeted_config()).await;
    let mut event = unsigned("x", "GET", "crc_token=abc&nonce=n", "");
    let signature = "sha256=AAAA".parse().expect("a header value");
    event.headers.insert("x-twitter-webhooks-signature", signature);
    let answer = receiver.receive(event).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, X_ANSWER));
    // A delivery is no check, whatever its query says: its signature counts.
    let mut event = unsigned("x", "POST", "crc_token=abc", "{}");
    let signature = "sha256=AAAA".parse().expect("a header value");
    event.headers.insert("x-twitter-webhooks-signature", signature);
    assert_eq!(receiver.receive(event).await.status, 401);
}

#[tokio::test]
async fn a_stranger_has_nothing_echoed_but_what_a_provider_would_send() {
    let world = World::start().await;
    let receiver = world.receiver(&greeted_config()).await;
    let long = format!("challenge={}", "a".repeat(5000));
    let cases = [
        ("meta", "GET", "hub.mode=subscribe&hub.verify_token=guessed&hub.challenge=abc", 403),
        ("meta", "GET", "hub.mode=subscribe&hub.challenge=abc", 403),
        ("meta", "GET", "hub.mode=subscribe&hub.verify_token=&hub.challenge=abc", 403),
        (
            "meta",
            "GET",
            "hub.mode=subscribe&hub.verify_token=chosen-by-us&hub.challenge=%3Cscript%3E",
            403,
        ),
        ("x", "GET", "crc_token=%7B%22a%22%3A1%7D", 400),
        ("x", "GET", "crc_token=", 400),
        ("dropbox", "GET", "challenge=a%0D%0Aset-cookie%3A%20b", 400),
        ("dropbox", "GET", &long, 400),
        ("braintree", "GET", "bt_challenge=xyz", 400),
    ];
    for (provider, method, query, status) in cases {
        let answer = receiver.receive(unsigned(provider, method, query, "")).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, ""), "{provider} {query}");
        assert_nothing_written(&world, query).await;
    }
}

#[tokio::test]
async fn a_get_that_is_no_greeting_is_405_and_told_what_is_allowed() {
    let world = World::start().await;
    let receiver = world.receiver(&greeted_config()).await;
    let hub = "hub.mode=subscribe&hub.verify_token=chosen-by-us&hub.challenge=1";
    let cases = [
        ("stripe", "GET", hub),
        ("stripe", "GET", "challenge=abc"),
        ("meta", "GET", ""),
        ("meta", "GET", "hub.mode=unsubscribe&hub.challenge=1"),
        ("meta", "HEAD", hub),
        ("x", "PUT", "crc_token=abc"),
        ("dropbox", "GET", ""),
    ];
    for (provider, method, query) in cases {
        let answer = receiver.receive(unsigned(provider, method, query, "")).await;
        assert_eq!(answer.status, 405, "{provider} {method} {query}");
        assert_eq!(header(&answer, "allow"), Some("POST"), "{provider} {method} {query}");
        assert_nothing_written(&world, query).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_is_logged_as_a_handshake_and_a_refused_one_as_that() {
    let world = World::start().await;
    let mut receiver = LoggedReceiver::start(&world, &greeted_config(), &world.sqs_url).await;
    let hub = "hub.mode=subscribe&hub.verify_token=chosen-by-us&hub.challenge=1";
    assert_eq!(receiver.receive(&unsigned("meta", "GET", hub, "")).await, 200);
    let line = receiver.next_line("webhook_events_total").await;
    let logged = [&line["source"], &line["result"], &line["outcome"]];
    assert_eq!(logged, ["meta", "handshake", "handshake"]);
    assert_eq!(line["webhook_events_total"], 0, "it is no event");
    let guessed = hub.replace("chosen-by-us", "guessed");
    assert_eq!(receiver.receive(&unsigned("meta", "GET", &guessed, "")).await, 403);
    let line = receiver.next_line("webhook_rejected_total").await;
    assert_eq!([&line["source"], &line["reason"]], ["meta", "handshake_refused"]);
    assert_eq!(line["status"], 403);
    assert!(!line.to_string().contains("guessed"), "{line}");
}

#[tokio::test]
async fn a_greeting_that_has_to_be_signed_waits_for_the_secret() {
    let world = World::start().await;
    let mut config = greeted_config();
    for provider in ["x", "meta"] {
        config["sources"][provider]["secrets"] = json!(["env:HOOKONCE_TESTS_NOT_SET"]);
    }
    let receiver = world.receiver(&config).await;
    let answer = receiver.receive(unsigned("x", "GET", "crc_token=abc", "")).await;
    assert_eq!(answer.status, 503);
    assert!(header(&answer, "retry-after").is_some());
    let hub = "hub.mode=subscribe&hub.verify_token=chosen-by-us&hub.challenge=1";
    let answer = receiver.receive(unsigned("meta", "GET", hub, "")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "1"), "that needs none");
}

#[tokio::test]
async fn a_signed_handshake_is_answered_and_nothing_is_written() {
    let world = World::start().await;
    let config = config_with("slack", source_of("slack", json!(["literal:slack-secret"])));
    let receiver = world.receiver(&config).await;
    let body = br#"{"type":"url_verification","challenge":"3eZbrw1aB10","token":"x"}"#;
    let headers = [("content-type", "application/json")];
    let handshake = signed("slack", "slack-secret", &headers, body);
    let answer = deliver_to(&receiver, "slack", &handshake).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "3eZbrw1aB10"));
    assert_eq!(header(&answer, "content-type"), Some("text/plain"));
    assert_nothing_written(&world, "handshake").await;
}

#[tokio::test]
async fn an_unsigned_handshake_is_refused_like_anything_unsigned() {
    let world = World::start().await;
    let config = config_with("slack", source_of("slack", json!(["literal:slack-secret"])));
    let receiver = world.receiver(&config).await;
    let body = br#"{"type":"url_verification","challenge":"3eZbrw1aB10","token":"x"}"#;
    let foreign = signed("slack", "another-secret", &[("content-type", "application/json")], body);
    let bare = Delivery { headers: Headers::default(), ..foreign.clone() };
    for delivery in [foreign, bare] {
        let answer = deliver_to(&receiver, "slack", &delivery).await;
        assert_eq!(answer.status, 401);
        assert!(!answer.body.contains("3eZbrw1aB10"), "{}", answer.body);
    }
    assert_nothing_written(&world, "unsigned handshake").await;
}

#[tokio::test]
async fn a_type_nobody_asked_for_is_acknowledged_and_not_recorded() {
    let world = World::start().await;
    let mut config = stripe_config();
    config["sources"]["stripe"]["types"] = json!(["charge.*"]);
    let receiver = world.receiver(&config).await;
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    assert_nothing_written(&world, "ignored").await;
    let wanted = stripe_body(&stripe_event("evt_2", &json!({ "type": "charge.refunded" })));
    assert_eq!(deliver(&receiver, &wanted).await.status, 200);
    assert_eq!(world.count_records().await, 1, "what is asked for is recorded");
}

// ---- new ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_new_event_is_recorded_enqueued_and_acknowledged() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let answer = deliver(&receiver, &stripe_delivery("evt_1")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.count_records().await, 1);
    assert_eq!(world.queue_depth().await, (1, 0));
}

#[tokio::test]
async fn a_record_holds_what_was_delivered_and_no_signature() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let before = Clock::default().now();
    deliver(&receiver, &delivery).await;
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.state.name(), StateName::Received);
    assert_eq!((record.attempt, record.attempt_limit, record.requeues), (0, 16, 0));
    assert_eq!(record.provider, "stripe");
    assert_eq!(record.event_type.as_deref(), Some("payment_intent.succeeded"));
    assert_eq!(record.object_id.as_deref(), Some("pi_evt_1"));
    assert_eq!(record.payload_sha256, <[u8; 32]>::from(Sha256::digest(&delivery.body)));
    let stored = payload_of(&record);
    assert_eq!(stored, delivery.body);
    let State::Received { due_at, not_before } = record.state else { panic!("received") };
    assert!(due_at >= before.plus(domain::limits::GRACE), "the grace is its worker's");
    assert_eq!(not_before, None);
    let item = world.item("evt_1").await.expect("an item");
    assert!(!item.contains_key(&Attribute::ExpiresAt), "no open record expires");
    let signature = delivery.headers.get("stripe-signature").expect("signed");
    let code = signature.rsplit('=').next().expect("a code");
    assert!(!format!("{item:?}").contains(code), "a signature is on the record");
}

#[tokio::test]
async fn a_message_carries_the_key_and_no_payload() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let batch = world.receive_batch().await;
    let [message] = batch.records.as_slice() else { panic!("one message: {batch:?}") };
    let body: Value = serde_json::from_str(message.body.as_deref().expect("a body")).expect("JSON");
    let expected = json!({ "v": 1, "key": "stripe#evt_1", "type": "payment_intent.succeeded" });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn an_event_beyond_its_horizon_is_parked_and_not_enqueued() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let created = Clock::default().now().minus(Duration::from_secs(34 * 86_400)).millis() / 1000;
    let old = stripe_body(&stripe_event("evt_old", &json!({ "created": created })));
    assert_eq!(deliver(&receiver, &old).await.status, 200);
    let record = world.record("evt_old").await.expect("recorded");
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some("beyond_horizon"));
    let item = world.item("evt_old").await.expect("an item");
    assert!(text_of(&item, Attribute::QueueKey).is_some_and(|key| key.starts_with("parked#")));
    assert!(!item.contains_key(&Attribute::ExpiresAt), "no parked record expires");
    assert_eq!(deliver(&receiver, &old).await.status, 200, "and again");
    world.sweeper(Clock::with_offset(PAST_GRACE_MS)).sweep().await.expect("a pass");
    assert_eq!(world.queue_depth().await, (0, 0), "nobody but a person runs it");
    let created = created + 2 * 86_400;
    let young = stripe_body(&stripe_event("evt_young", &json!({ "created": created })));
    assert_eq!(deliver(&receiver, &young).await.status, 200);
    assert_eq!(world.queue_depth().await, (1, 0), "within its horizon it runs");
}

// ---- duplicates -----------------------------------------------------------------------------

#[tokio::test]
async fn a_duplicate_within_its_grace_is_acknowledged_and_changes_nothing() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    deliver(&receiver, &delivery).await;
    let first = world.item("evt_1").await;
    for _ in 0..3 {
        assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    }
    assert_eq!(world.item("evt_1").await, first);
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
}

#[tokio::test]
async fn a_duplicate_past_its_grace_is_enqueued_again_once() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let late = late_receiver(&world).await;
    for _ in 0..3 {
        assert_eq!(deliver(&late, &stripe_delivery("evt_1")).await.status, 200);
    }
    // The first bump moves `due_at` on; the others find it in the future.
    assert_eq!(world.queue_depth().await, (2, 0));
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!((record.requeues, record.attempt), (1, 0));
    let State::Received { due_at, .. } = record.state else { panic!("received") };
    assert!(due_at > Clock::with_offset(PAST_GRACE_MS).now());
}

#[tokio::test]
async fn of_parallel_duplicates_past_the_grace_one_enqueues() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let due_at = Timestamp::from_millis(1);
    world.tamper("evt_1", "due_at", AttributeValue::N(due_at.to_string())).await;
    let delivery = stripe_delivery("evt_1");
    let answers = futures::future::join_all((0..16).map(|_| deliver(&receiver, &delivery))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    // Two bumps may fall on one millisecond: both then hold, and a message too many does no harm.
    let (messages, _) = world.queue_depth().await;
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.requeues, 1, "one bump took hold");
    assert!((2..16).contains(&messages), "{messages} messages");
}

#[tokio::test]
async fn a_duplicate_that_waits_for_its_backoff_is_left_alone() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let later = Clock::default().now().plus(Duration::from_secs(3600));
    world.tamper("evt_1", "not_before", AttributeValue::N(later.to_string())).await;
    let before = world.item("evt_1").await;
    let late = late_receiver(&world).await;
    assert_eq!(deliver(&late, &stripe_delivery("evt_1")).await.status, 200);
    assert_eq!(world.item("evt_1").await, before);
    assert_eq!(world.queue_depth().await, (1, 0));
}

/// Brings the event `id`, which is enqueued, into a state.
async fn bring(world: &World, id: &str, state: StateName) {
    let now = Clock::default().now();
    match state {
        StateName::Processing => {
            let owner = LeaseOwner("somebody".to_owned());
            let until = now.plus(Duration::from_secs(60));
            let take = lease(&stripe_key(id), owner, now, until, Duration::ZERO, None);
            let written = world.ledger.write(&take.write, Returning::Record).await;
            let leased = take.settle(written.expect("an outcome")).expect("readable");
            assert!(matches!(leased, Leased::Held(..)), "{leased:?}");
        }
        StateName::Done | StateName::Failed => {
            let fails = state == StateName::Failed;
            let handler = Scripted::new(move |_, _| {
                Box::pin(async move {
                    if fails { Err(Failure::permanent("no", "never")) } else { Ok(()) }
                })
            });
            let worker = world.worker(&stripe_config(), &[("test", handler)]);
            world.work(&worker).await;
        }
        StateName::Received | StateName::Discarded => unreachable!("not brought here"),
    }
    let record = world.record(id).await.expect("recorded");
    assert_eq!(record.state.name(), state);
}

#[tokio::test]
async fn a_duplicate_of_what_runs_or_is_settled_changes_nothing_however_late() {
    for state in [StateName::Processing, StateName::Done, StateName::Failed] {
        let world = World::start().await;
        let receiver = world.receiver(&stripe_config()).await;
        let delivery = stripe_delivery("evt_1");
        deliver(&receiver, &delivery).await;
        bring(&world, "evt_1", state).await;
        let before = (world.item("evt_1").await, world.queue_depth().await);
        for receiver in [receiver, late_receiver(&world).await] {
            assert_eq!(deliver(&receiver, &delivery).await.status, 200, "{state}");
            let after = (world.item("evt_1").await, world.queue_depth().await);
            assert_eq!(after, before, "{state}");
        }
    }
}

/// TTL deletes late: what is past its expiry and still there is there.
#[tokio::test]
async fn a_record_past_its_expiry_still_makes_a_duplicate() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    bring(&world, "evt_1", StateName::Done).await;
    let before = world.expect_item("evt_1").await;
    let State::Done(closure) = world.expect_record("evt_1").await.state else { panic!("done") };
    let past = ahead(closure.expires_at.since(Clock::default().now()) + Duration::from_secs(3600));
    let receiver =
        world.receiver_at(&stripe_config(), past, &world.dynamodb_url, &world.sqs_url).await;
    let delivery = stripe_delivery_of("evt_1", occurred_at(), past.now());
    assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    assert_eq!(world.expect_item("evt_1").await, before);
}

#[tokio::test]
async fn a_different_payload_is_noted_once_and_the_first_one_stays() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let bodies = [1, 2, 3].map(|n| stripe_event("evt_1", &json!({ "data": { "amount": n } })));
    for body in &bodies {
        assert_eq!(deliver(&receiver, &stripe_body(body)).await.status, 200);
    }
    let record = world.record("evt_1").await.expect("recorded");
    let second = Sha256::digest(&bodies[1]).to_vec();
    assert_eq!(record.payload_mismatch, Some(second), "the digest of the second stays");
    let stored = payload_of(&record);
    assert_eq!(stored, bodies[0]);
    assert_eq!(record.payload_sha256, <[u8; 32]>::from(Sha256::digest(&bodies[0])));
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
}

#[tokio::test]
async fn a_payload_that_differs_where_its_provider_changes_it_is_not_noted() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    for pending in [2, 1] {
        let body = stripe_event("evt_1", &json!({ "pending_webhooks": pending }));
        assert_eq!(deliver(&receiver, &stripe_body(&body)).await.status, 200);
    }
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.payload_mismatch, None);
}

// ---- what fails behind the receiver ---------------------------------------------------------

/// The delivery is answered 503, comes again once all is well, and is then recorded.
async fn assert_unavailable_then_recorded(world: &World, broken: &Receiver, case: &str) {
    let delivery = stripe_delivery("evt_1");
    let answer = deliver(broken, &delivery).await;
    assert_eq!(answer.status, 503, "{case}");
    let retry_after: u64 = header(&answer, "retry-after").expect(case).parse().expect("seconds");
    assert!(retry_after > 0, "{case}");
    assert_nothing_written(world, case).await;
    let healthy = world.receiver(&stripe_config()).await;
    assert_eq!(deliver(&healthy, &delivery).await.status, 200, "{case}");
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)), "{case}");
}

#[tokio::test]
async fn a_throttled_claim_is_503_and_the_retry_succeeds() {
    for code in ["ProvisionedThroughputExceededException", "ThrottlingException"] {
        let world = World::start().await;
        let plan = every_call("PutItem", Fault::Refuse(400, code));
        let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
        let clock = Clock::default();
        let broken = world.receiver_at(&stripe_config(), clock, &proxy.url, &world.sqs_url).await;
        assert_unavailable_then_recorded(&world, &broken, code).await;
    }
}

#[tokio::test]
async fn a_ledger_that_breaks_every_claim_is_503_and_the_retry_succeeds() {
    for fault in [Fault::LoseRequest, Fault::Refuse(500, "InternalServerError")] {
        let world = World::start().await;
        let case = format!("{fault:?}");
        let proxy = FaultProxy::start(&world.dynamodb_url, every_call("PutItem", fault)).await;
        let clock = Clock::default();
        let broken = world.receiver_at(&stripe_config(), clock, &proxy.url, &world.sqs_url).await;
        assert_unavailable_then_recorded(&world, &broken, &case).await;
    }
}

#[tokio::test]
async fn an_unreachable_ledger_is_503_and_the_retry_succeeds() {
    let world = World::start().await;
    let nowhere = "http://127.0.0.1:1";
    let clock = Clock::default();
    let broken = world.receiver_at(&stripe_config(), clock, nowhere, &world.sqs_url).await;
    assert_unavailable_then_recorded(&world, &broken, "unreachable").await;
}

#[tokio::test]
async fn a_ledger_that_never_answers_is_503_before_any_provider_hangs_up() {
    let world = World::start().await;
    // Connections are taken by the backlog, and nobody ever reads from them.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    let clock = Clock::default();
    let broken = world.receiver_at(&stripe_config(), clock, &url, &world.sqs_url).await;
    let patience = domain::limits::RECEIVER_TIMEOUT;
    let asserted = assert_unavailable_then_recorded(&world, &broken, "silent");
    tokio::time::timeout(patience, asserted).await.expect("an answer in time");
}

#[tokio::test]
async fn a_missing_table_is_503_and_nothing_is_enqueued() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let client = world.ledger.client();
    client.delete_table().table_name(TABLE).send().await.expect("deleted");
    let answer = deliver(&receiver, &stripe_delivery("evt_1")).await;
    assert_eq!(answer.status, 503);
    assert!(header(&answer, "retry-after").is_some());
    assert_eq!(world.queue_depth().await, (0, 0));
    dynamo::create_table(client, TABLE).await.expect("a table again");
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
}

#[tokio::test]
async fn an_event_that_cannot_be_enqueued_is_acknowledged_and_a_sweep_enqueues_it() {
    let world = World::start().await;
    let clock = Clock::default();
    let nowhere = "http://127.0.0.1:1";
    let cut_off = world.receiver_at(&stripe_config(), clock, &world.dynamodb_url, nowhere).await;
    assert_eq!(deliver(&cut_off, &stripe_delivery("evt_1")).await.status, 200);
    let record = world.record("evt_1").await.expect("durable");
    assert_eq!(record.state.name(), StateName::Received);
    assert_eq!(world.queue_depth().await, (0, 0));
    world.sweeper(clock).sweep().await.expect("a pass");
    assert_eq!(world.queue_depth().await, (0, 0), "within its grace it is its receiver's");
    world.sweeper(Clock::with_offset(PAST_GRACE_MS)).sweep().await.expect("a pass");
    assert_eq!(world.queue_depth().await, (1, 0));
    bring(&world, "evt_1", StateName::Done).await;
}

// ---- secrets --------------------------------------------------------------------------------

#[tokio::test]
async fn any_of_several_secrets_verifies() {
    let world = World::start().await;
    let mut config = stripe_config();
    config["sources"]["stripe"]["secrets"] = json!(["literal:whsec_old", "literal:whsec_new"]);
    let receiver = world.receiver(&config).await;
    let body = |id| stripe_event(id, &json!({}));
    for (id, secret, status) in
        [("evt_1", "whsec_old", 200), ("evt_2", "whsec_new", 200), ("evt_3", "whsec_third", 401)]
    {
        let delivery = signed("stripe", secret, &[], &body(id));
        assert_eq!(deliver(&receiver, &delivery).await.status, status, "{secret}");
    }
    assert_eq!(world.count_records().await, 2);
}

#[tokio::test]
async fn while_one_of_several_secrets_is_missing_nothing_is_called_forged() {
    let world = World::start().await;
    let mut config = stripe_config();
    config["sources"]["stripe"]["secrets"] =
        json!(["literal:whsec_old", "env:HOOKONCE_TESTS_NOT_SET"]);
    let receiver = world.receiver(&config).await;
    let body = stripe_event("evt_1", &json!({}));
    // The missing one may be what it was signed with: the provider shall come again.
    let answer = deliver(&receiver, &signed("stripe", "whsec_missing", &[], &body)).await;
    assert_eq!(answer.status, 503);
    assert_nothing_written(&world, "a secret is missing").await;
    let answer = deliver(&receiver, &signed("stripe", "whsec_old", &[], &body)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_claim_that_meets_a_transaction_is_tried_again() {
    let world = World::start().await;
    // Every other PutItem: the SDK tries again and gets through.
    let proxy = FaultProxy::start(&world.dynamodb_url, |action, number| match action {
        "PutItem" if number % 2 == 1 => Fault::Refuse(400, "TransactionConflictException"),
        _ => Fault::None,
    });
    let proxy = proxy.await;
    let receiver =
        world.receiver_at(&stripe_config(), Clock::default(), &proxy.url, &world.sqs_url).await;
    for status in [200, 200] {
        assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, status);
    }
    assert!(proxy.calls().len() > 2, "a conflict was met");
    assert_eq!(world.count_records().await, 1);
}

#[tokio::test]
async fn a_duplicate_that_keeps_meeting_a_transaction_is_a_duplicate() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    let proxy = FaultProxy::start(&world.dynamodb_url, |action, _| match action {
        "PutItem" => Fault::Refuse(400, "TransactionConflictException"),
        _ => Fault::None,
    });
    let proxy = proxy.await;
    let receiver =
        world.receiver_at(&stripe_config(), Clock::default(), &proxy.url, &world.sqs_url).await;
    // The record is there, whoever holds it: no reason for a 503.
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    // Of an event without a record nothing is known.
    assert_eq!(deliver(&receiver, &stripe_delivery("evt_2")).await.status, 503);
}

#[tokio::test]
async fn a_source_whose_secret_is_missing_is_503_and_the_others_go_on() {
    let world = World::start().await;
    let other = source_of("stripe", json!(["env:HOOKONCE_TESTS_NOT_SET"]));
    let receiver = world.receiver(&config_with("other", other)).await;
    let delivery = stripe_delivery("evt_1");
    let answer = deliver_to(&receiver, "other", &delivery).await;
    assert_eq!(answer.status, 503, "it may verify once the secret is there");
    assert!(header(&answer, "retry-after").is_some());
    assert_nothing_written(&world, "no secret").await;
    assert_eq!(deliver(&receiver, &delivery).await.status, 200);
}

#[tokio::test]
async fn a_source_takes_no_other_sources_secret() {
    let world = World::start().await;
    let other = source_of("stripe", json!(["literal:whsec_other"]));
    let receiver = world.receiver(&config_with("other", other)).await;
    let delivery = stripe_delivery("evt_1");
    assert_eq!(deliver_to(&receiver, "other", &delivery).await.status, 401);
    assert_nothing_written(&world, "another source's secret").await;
}

// ---- shapes of requests, and providers ------------------------------------------------------

#[tokio::test]
async fn plain_and_base64_bodies_are_one_event() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    assert_eq!(deliver_to(&receiver, "stripe", &delivery).await.status, 200);
    assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    let record = world.record("evt_1").await.expect("recorded");
    let stored = payload_of(&record);
    assert_eq!(stored, delivery.body);
    assert_eq!(record.payload_mismatch, None);
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
}

#[tokio::test]
async fn header_names_and_stage_prefixes_come_in_any_shape() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let shapes = [
        ("evt_1", "/webhooks/stripe", "Stripe-Signature"),
        ("evt_2", "/prod/webhooks/stripe", "STRIPE-SIGNATURE"),
        ("evt_3", "/a/b/webhooks/stripe/", "stripe-signature"),
    ];
    for (id, path, name) in shapes {
        let delivery = stripe_delivery(id);
        let signature = delivery.headers.get("stripe-signature").expect("signed");
        let body = String::from_utf8(delivery.body.clone()).expect("text");
        let headers = json!({ name: signature, "Content-Type": "application/json" });
        let event = raw_event(path, "POST", &headers, &body, false);
        assert_eq!(receiver.receive(event).await.status, 200, "{path} {name}");
        assert!(world.record(id).await.is_some(), "{id}");
    }
}

#[tokio::test]
async fn each_providers_event_is_recorded_under_its_own_key() {
    let world = World::start().await;
    let whsec = "whsec_c2VjcmV0LW9mLXRlc3Rz";
    let cases = [
        ("github", "gh-secret", "72d3162e-cc78-11e3-81ab-4c9367dc0958", None),
        ("standard-webhooks", whsec, "msg_1", None),
        ("slack", "slack-secret", "Ev0001", None),
        ("svix", whsec, "msg_1", None),
        ("shopify", "shpss_1", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", Some("shop")),
    ];
    let sources = cases.iter().map(|(provider, secret, ..)| {
        ((*provider).to_owned(), source_of(provider, json!([format!("literal:{secret}")])))
    });
    let config = json!({ "sources": Value::Object(sources.collect()) });
    let receiver = world.receiver(&config).await;
    for (provider, secret, id, composite) in cases {
        let delivery = sample(provider, secret, id);
        for _ in 0..2 {
            assert_eq!(deliver_to(&receiver, provider, &delivery).await.status, 200, "{provider}");
        }
        let id = match composite {
            None => id.to_owned(),
            Some(_) => {
                let part = |name| {
                    let text: &str = delivery.headers.get(name).expect("in the sample");
                    format!("{}:{text}", text.len())
                };
                let names = ["x-shopify-shop-domain", "x-shopify-topic", "x-shopify-webhook-id"];
                names.map(part).join("|")
            }
        };
        let item = world.ledger.read(&key_of(provider, &id)).await.expect("a read");
        let item = item.unwrap_or_else(|| panic!("no record {provider}#{id}"));
        assert_eq!(text_of(&item, Attribute::EventId), Some(id.as_str()));
        assert_eq!(text_of(&item, Attribute::Provider), Some(provider));
    }
    assert_eq!(world.count_records().await, cases.len());
    assert_eq!(world.queue_depth().await, (5, 0), "duplicates enqueue nothing");
}

#[tokio::test]
async fn a_signature_is_no_part_of_an_event_so_a_retry_signed_anew_is_a_duplicate() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let body = stripe_event("evt_1", &json!({}));
    let now = Clock::default().now();
    for seconds in [0, 7, 90] {
        let at = now.minus(Duration::from_secs(seconds));
        let delivery = signed_at("stripe", STRIPE_SECRET, &[], &body, at);
        assert_eq!(deliver(&receiver, &delivery).await.status, 200);
    }
    assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
    assert_eq!(world.record("evt_1").await.expect("recorded").payload_mismatch, None);
}

#[tokio::test]
async fn one_id_at_two_sources_of_one_provider_is_two_events() {
    let world = World::start().await;
    let eu = source_of("stripe", json!([format!("literal:{STRIPE_SECRET}")]));
    let receiver = world.receiver(&config_with("stripe-eu", eu)).await;
    let delivery = stripe_delivery("evt_1");
    for source in ["stripe", "stripe-eu", "stripe"] {
        assert_eq!(deliver_to(&receiver, source, &delivery).await.status, 200, "{source}");
    }
    assert_eq!((world.count_records().await, world.queue_depth().await), (2, (2, 0)));
    let keys = [stripe_key("evt_1"), key_of("stripe-eu", "evt_1")];
    for key in keys {
        assert!(world.ledger.read(&key).await.expect("a read").is_some(), "{key}");
    }
}

/// A delivery of a provider that signs the URL it was given, and the body as it was sent.
fn signed_for(provider: &str, url: &str, secret: &str) -> Delivery {
    let provider = Provider::builtin(provider).expect("in the catalogue");
    let provider = provider.at(Endpoint::new(Some(url)));
    let request = SampleRequest { event_type: None, id: "id_1", now: occurred_at() };
    let key = provider.key(&Secret::new(secret)).expect("a key");
    let unsigned = provider.sample(&request).expect("a sample");
    provider.sign(&key, unsigned, Clock::default().now()).expect("signed")
}

#[tokio::test]
async fn a_signed_url_is_the_configured_one_whatever_stage_and_host_the_request_has() {
    let public_url = "https://hooks.example.com/in/shop?tenant=7";
    for provider in ["twilio", "square"] {
        let world = World::start().await;
        let mut source = source_of(provider, json!(["literal:url-secret"]));
        source["public_url"] = public_url.into();
        let receiver = world.receiver(&config_with(provider, source)).await;
        let at = |delivery: &Delivery, path: &str, query: &str| {
            let mut event = base64_event(&format!("{path}/webhooks/{provider}"), delivery);
            event.raw_query_string = Some(query.to_owned());
            for (name, value) in [
                ("host", "abc123.execute-api.eu-west-1.amazonaws.com"),
                ("x-forwarded-host", "elsewhere.example"),
                ("x-forwarded-proto", "http"),
            ] {
                event.headers.insert(name, value.parse().expect("a header value"));
            }
            receiver.receive(event)
        };
        let right = signed_for(provider, public_url, "url-secret");
        for path in ["", "/prod", "/a/b"] {
            let answer = at(&right, path, "tenant=7").await;
            assert_eq!(answer.status, 200, "{provider} {path}");
        }
        assert_eq!((world.count_records().await, world.queue_depth().await), (1, (1, 0)));
        let other =
            signed_for(provider, "https://elsewhere.example/in/shop?tenant=7", "url-secret");
        assert_eq!(at(&other, "", "tenant=7").await.status, 401, "{provider}: the host it names");
        assert_eq!(at(&right, "", "tenant=8").await.status, 401, "{provider}: another query");
        assert_eq!(world.count_records().await, 1);
    }
}

#[tokio::test]
async fn cookies_and_a_query_do_not_matter() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let delivery = stripe_delivery("evt_1");
    let body = String::from_utf8(delivery.body.clone()).expect("text");
    let mut event = raw_event("/webhooks/stripe", "POST", &headers_of(&delivery), &body, false);
    event.raw_query_string = Some("a=%ff&b".to_owned());
    event.cookies = Some(vec!["session=1".to_owned()]);
    assert_eq!(receiver.receive(event).await.status, 200);
    assert_eq!(world.count_records().await, 1);
}
