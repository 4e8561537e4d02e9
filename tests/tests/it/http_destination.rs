//! The HTTP destination, against a server of the test's own: what it is sent, and what becomes of
//! the event by what it answers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use axum::{
    Router,
    body::Body,
    extract::{Request, State as Shared},
    http::{HeaderMap, Response},
};
use domain::{
    delivery::Delivery,
    effects::{StepName, step_key},
    limits,
    record::{Record, State, StateName},
    time::Timestamp,
};
use providers::{Provider, Secret, Unsigned};
use runtime::clock::Clock;
use serde_json::{Value, json};
use tests::{
    play::{ahead, stripe_with},
    world::{STRIPE_SECRET, World, deliver, stripe_config, stripe_key},
};
use tokio::{net::TcpListener, task::JoinHandle};

// ---- what it is sent ------------------------------------------------------------------------

#[tokio::test]
async fn the_body_arrives_byte_for_byte_with_its_content_type() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let body = body_of("evt_1");
    let content_type = "application/json; charset=utf-8";
    deliver(
        &world.receiver(&stripe_config()).await,
        &signed(body.clone().into_bytes(), content_type),
    )
    .await;
    run(&world, &endpoint.config()).await;
    let seen = endpoint.only();
    assert_eq!(seen.body, body.as_bytes());
    assert_eq!(seen.header("content-type"), content_type);
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
}

#[tokio::test]
async fn headers_say_which_event_and_which_attempt() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    let before = Clock::default().now();
    run(&world, &endpoint.config()).await;
    let seen = endpoint.only();
    for (name, value) in [
        ("webhook-id", "stripe#evt_1"),
        ("hookonce-source", "stripe"),
        ("hookonce-event-id", "evt_1"),
        ("hookonce-event-type", "payment_intent.succeeded"),
        ("hookonce-attempt", "1"),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    let timestamp =
        Timestamp::from_secs(seen.header("webhook-timestamp").parse().expect("seconds"));
    assert!(timestamp >= before.minus(Duration::from_secs(1)));
    assert!(timestamp <= Clock::default().now());
}

#[tokio::test]
async fn the_signature_verifies_after_standard_webhooks_and_with_no_other_secret() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    run(&world, &endpoint.signed_config(&format!("literal:{SECRET}"))).await;
    let seen = endpoint.only();
    assert!(verifies(seen.delivery(), SECRET));
    assert!(!verifies(seen.delivery(), OTHER_SECRET));
    let mut tampered = seen.delivery();
    tampered.body[0] ^= 1;
    assert!(!verifies(tampered, SECRET));
}

#[tokio::test]
async fn an_id_that_no_header_takes_is_escaped_and_signed_so() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let delivery = signed(body_of("evt_ü").into_bytes(), "application/json");
    deliver(&world.receiver(&stripe_config()).await, &delivery).await;
    run(&world, &endpoint.signed_config(&format!("literal:{SECRET}"))).await;
    let seen = endpoint.only();
    assert_eq!(seen.header("webhook-id"), "stripe#evt_\\u{fc}");
    assert!(verifies(seen.delivery(), SECRET));
}

#[tokio::test]
async fn without_a_signing_secret_there_is_no_signature() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    run(&world, &endpoint.config()).await;
    assert!(!endpoint.only().headers.contains_key("webhook-signature"));
}

#[tokio::test]
async fn a_signing_secret_that_cannot_be_had_sends_nothing_unsigned() {
    for (secret, class) in [
        ("env:HOOKONCE_TESTS_ABSENT_SECRET", "no_signing_secret"),
        ("literal:whsec_%%%", "bad_signing_secret"),
        ("literal:whsec_", "bad_signing_secret"),
    ] {
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        world.claim(&stripe_config(), "evt_1").await;
        run(&world, &endpoint.signed_config(secret)).await;
        assert_eq!(endpoint.count(), 0, "{secret}");
        assert_released(&world, class).await;
    }
}

#[tokio::test]
async fn the_idempotency_key_is_the_same_on_every_attempt() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    endpoint.answer([Answer::status(500), Answer::status(503), Answer::status(200)]);
    for later in [0, 60, 120] {
        run_later(&world, &endpoint.config(), later).await;
    }
    let seen = endpoint.seen();
    let attempts: Vec<_> = seen.iter().map(|seen| seen.header("hookonce-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    let key = step_key(&stripe_key("evt_1"), &StepName::new("deliver").expect("a step name"));
    for seen in &seen {
        assert_eq!(seen.header("idempotency-key"), key);
        assert_eq!(seen.header("webhook-id"), "stripe#evt_1");
        assert_eq!(seen.body, endpoint.seen()[0].body);
    }
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
}

#[tokio::test]
async fn a_replay_of_a_delivered_event_sends_it_again_only_if_told_to_forget() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    run(&world, &endpoint.config()).await;
    world.replay("evt_1", false).await;
    run_later(&world, &endpoint.config(), 60).await;
    assert_eq!(endpoint.count(), 1);
    world.replay("evt_1", true).await;
    run_later(&world, &endpoint.config(), 120).await;
    let seen = endpoint.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
}

#[tokio::test]
async fn two_routes_to_one_address_keep_their_own_settings() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let route = |types: &str, secret: &str, permanent: u16| {
        json!({
            "types": [types], "http": endpoint.url, "permanent": [permanent],
            "signing_secret": format!("literal:{secret}"),
        })
    };
    let routes = [route("payment_intent.*", SECRET, 422), route("charge.*", OTHER_SECRET, 423)];
    let mut config = stripe_with("routes", json!(routes));
    config["sources"]["stripe"].as_object_mut().expect("a source").remove("deliver");
    world.claim(&config, "evt_1").await;
    endpoint.answer([Answer::status(422)]);
    run(&world, &config).await;
    assert!(verifies(endpoint.only().delivery(), SECRET));
    assert_parked(&world, "destination_refused").await;
}

// ---- what it answers ------------------------------------------------------------------------

#[tokio::test]
async fn any_2xx_is_done() {
    for status in [200, 201, 202, 204, 299] {
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        world.claim(&stripe_config(), "evt_1").await;
        endpoint.answer([Answer::status(status)]);
        run(&world, &endpoint.config()).await;
        assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done, "{status}");
        assert_eq!(world.queue_depth().await, (0, 0));
    }
}

#[tokio::test]
async fn gone_and_what_the_source_calls_permanent_park_at_once() {
    for status in [410, 422, 301] {
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        world.claim(&stripe_config(), "evt_1").await;
        endpoint.answer([Answer::status(status)]);
        run(&world, &endpoint.with("permanent", json!([422, 301]))).await;
        assert_parked(&world, "destination_refused").await;
        let error = world.expect_record("evt_1").await.last_error.expect("a reason");
        assert!(error.text.contains(&status.to_string()), "{}", error.text);
    }
}

#[tokio::test]
async fn every_other_answer_is_tried_again() {
    for status in [400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504] {
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        world.claim(&stripe_config(), "evt_1").await;
        endpoint.answer([Answer::status(status)]);
        run(&world, &endpoint.config()).await;
        assert_released(&world, "destination_failed").await;
        run_later(&world, &endpoint.config(), 60).await;
        assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done, "{status}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed_and_are_tried_again() {
    for status in [301, 302, 303, 307, 308] {
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        let elsewhere = Endpoint::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        endpoint.answer([Answer::status(status).with("location", &elsewhere.url)]);
        run(&world, &endpoint.config()).await;
        assert_eq!((endpoint.count(), elsewhere.count()), (1, 0), "{status}");
        assert_released(&world, "destination_failed").await;
    }
}

#[tokio::test]
async fn retry_after_is_honoured_in_seconds_and_as_a_date() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let at = Clock::default().now().plus(Duration::from_secs(600));
    let date = DateTime::from_millis(at.millis()).fmt(DateTimeFormat::HttpDate).expect("a date");
    for (id, retry_after) in [("evt_seconds", "600"), ("evt_date", date.as_str())] {
        world.claim(&stripe_config(), id).await;
        endpoint.answer([Answer::status(503).with("retry-after", retry_after)]);
        run(&world, &endpoint.config()).await;
        let not_before = not_before(&world.expect_record(id).await);
        let off = not_before.since(at).max(at.since(not_before));
        assert!(off < Duration::from_secs(30), "{id}: {off:?} off");
    }
}

#[tokio::test]
async fn retry_after_is_bounded_by_a_day() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let values = ["18446744073709551615", "99999999", "Fri, 31 Dec 9999 23:59:59 GMT"];
    for (number, retry_after) in values.into_iter().enumerate() {
        let id = format!("evt_{number}");
        world.claim(&stripe_config(), &id).await;
        endpoint.answer([Answer::status(429).with("retry-after", retry_after)]);
        run(&world, &endpoint.config()).await;
        let wait = not_before(&world.expect_record(&id).await).since(Clock::default().now());
        assert!(wait <= limits::MAX_RETRY_AFTER, "{retry_after}: {wait:?}");
        assert!(wait > limits::MAX_RETRY_AFTER / 2, "{retry_after}: {wait:?}");
        assert_eq!(world.queue_depth().await, (0, 0), "so long a wait is the sweep's");
    }
}

#[tokio::test]
async fn a_retry_after_that_says_nothing_leaves_the_backoff() {
    for retry_after in ["99999999999999999999", "soon", "-5", "", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        // Of its own: the event of the value before may be tried again by now.
        let (world, endpoint) = (World::start().await, Endpoint::start().await);
        let id = "evt_1";
        world.claim(&stripe_config(), id).await;
        endpoint.answer([Answer::status(429).with("retry-after", retry_after)]);
        let before = Clock::default().now();
        run(&world, &endpoint.config()).await;
        let wait = not_before(&world.expect_record(id).await).since(before);
        assert!(wait >= Duration::from_secs(1), "{retry_after}: {wait:?}");
        assert!(wait < Duration::from_secs(60), "{retry_after}: {wait:?}");
    }
}

#[tokio::test]
async fn a_short_retry_after_does_not_use_up_the_attempts_at_once() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    let mut config = endpoint.config();
    config["sources"]["stripe"]["backoff"] = json!({ "first": "1000s", "longest": "1000s" });
    let mut waits = Vec::new();
    for number in 0..3 {
        let id = format!("evt_{number}");
        world.claim(&config, &id).await;
        endpoint.answer([Answer::status(503).with("retry-after", "1")]);
        let before = Clock::default().now();
        run(&world, &config).await;
        waits.push(not_before(&world.expect_record(&id).await).since(before));
    }
    // The backoff's jitter gives thirty seconds or less three times once in 37,000 runs.
    assert!(waits.iter().max() > Some(&Duration::from_secs(30)), "{waits:?}");
}

// ---- no answer ------------------------------------------------------------------------------

#[tokio::test]
async fn an_answer_that_takes_too_long_is_tried_again() {
    let (world, endpoint) = (World::start().await, Endpoint::start().await);
    world.claim(&stripe_config(), "evt_1").await;
    endpoint.answer([Answer::never()]);
    run(&world, &endpoint.with("timeout", json!("300ms"))).await;
    assert_eq!(endpoint.count(), 1);
    assert_released(&world, "destination_unreachable").await;
    assert_eq!(error_text(&world).await, "no answer in time");
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_and_no_token_of_the_address_is_noted() {
    let world = World::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}/?token=hunter2", listener.local_addr().expect("bound"));
    drop(listener);
    world.claim(&stripe_config(), "evt_1").await;
    run(&world, &stripe_with("deliver", json!({ "http": url }))).await;
    assert_released(&world, "destination_unreachable").await;
    assert_eq!(error_text(&world).await, "no connection");
}

#[tokio::test]
async fn a_connection_that_breaks_is_tried_again() {
    let world = World::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let hangs_up = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    world.claim(&stripe_config(), "evt_1").await;
    run(&world, &stripe_with("deliver", json!({ "http": url }))).await;
    hangs_up.abort();
    assert_released(&world, "destination_unreachable").await;
}

// ---- helpers --------------------------------------------------------------------------------

/// A server that remembers what it was sent, and answers as it is told; 200 otherwise.
#[derive(Debug)]
struct Endpoint {
    url: String,
    inside: Arc<Inside>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Inside {
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<VecDeque<Answer>>,
}

/// One request.
#[derive(Clone, Debug)]
struct Seen {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// What it is answered. No status: no answer.
#[derive(Clone, Debug)]
struct Answer {
    status: Option<u16>,
    header: Option<(&'static str, String)>,
}

impl Endpoint {
    async fn start() -> Self {
        runtime::aws::install_tls_provider();
        let inside = Arc::new(Inside::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inside));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { url, inside, server }
    }

    fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.inside.answers.lock().expect("no panic").extend(answers);
    }

    fn seen(&self) -> Vec<Seen> {
        self.inside.seen.lock().expect("no panic").clone()
    }

    fn count(&self) -> usize {
        self.seen().len()
    }

    fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1);
        seen[0].clone()
    }

    /// Source `stripe`, delivered here, unsigned.
    fn config(&self) -> Value {
        stripe_with("deliver", json!({ "http": self.url }))
    }

    fn signed_config(&self, secret: &str) -> Value {
        self.with("signing_secret", json!(secret))
    }

    fn with(&self, setting: &str, value: Value) -> Value {
        let mut config = self.config();
        config["sources"]["stripe"]["deliver"][setting] = value;
        config
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(Shared(inside): Shared<Arc<Inside>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body").to_vec();
    inside.seen.lock().expect("no panic").push(Seen { headers: parts.headers, body });
    let told = inside.answers.lock().expect("no panic").pop_front();
    let answer = told.unwrap_or_else(|| Answer::status(200));
    let Some(status) = answer.status else { std::future::pending().await };
    let mut response = Response::builder().status(status);
    if let Some((name, value)) = answer.header {
        response = response.header(name, value);
    }
    response.body(Body::empty()).expect("a response")
}

impl Answer {
    fn status(status: u16) -> Self {
        Self { status: Some(status), header: None }
    }

    fn never() -> Self {
        Self { status: None, header: None }
    }

    fn with(self, name: &'static str, value: &str) -> Self {
        Self { header: Some((name, value.to_owned())), ..self }
    }
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("{name} is there"));
        value.to_str().expect("visible ASCII")
    }

    fn delivery(&self) -> Delivery {
        let headers = self.headers.iter();
        Delivery {
            method: "POST".to_owned(),
            headers: headers
                .map(|(name, value)| (name.as_str(), value.to_str().expect("visible ASCII")))
                .collect(),
            query: String::new(),
            body: self.body.clone(),
        }
    }
}

fn verifies(delivery: Delivery, secret: &str) -> bool {
    let provider = Provider::builtin("standard-webhooks").expect("in the catalogue");
    let key = provider.key(&Secret::new(secret)).expect("a key");
    provider.verify(delivery, &[key], Clock::default().now(), None).is_ok()
}

/// A body that any rewriting would change: odd spaces, escapes, a number's form, keys out of order.
fn body_of(id: &str) -> String {
    let created = Clock::default().now().millis() / 1000;
    format!(
        "{{ \"type\":\"a.b\",\n\t\"z\": 1.50e0,\"id\" :\"{id}\",\"a\":\"\\u00fc \\/ ü\",  \
         \"object\":\"event\",\"created\":{created}}}\r\n"
    )
}

/// A Stripe delivery of this body.
fn signed(body: Vec<u8>, content_type: &str) -> Delivery {
    let provider = Provider::builtin("stripe").expect("in the catalogue");
    let key = provider.key(&Secret::new(STRIPE_SECRET)).expect("a key");
    let headers = vec![("content-type".to_owned(), content_type.to_owned())];
    provider.sign(&key, Unsigned { headers, body }, Clock::default().now()).expect("signed")
}

/// Works on what is in the queue.
async fn run(world: &World, config: &Value) {
    world.work(&world.worker(config, &[])).await;
}

/// Works on `evt_1`, some seconds later.
async fn run_later(world: &World, config: &Value, later_secs: u64) {
    world.drain().await;
    world.enqueue("evt_1").await;
    let clock = ahead(Duration::from_secs(later_secs));
    let worker = world.worker_at(config, &[], clock, &world.dynamodb_url, &world.sqs_url);
    world.work(&worker).await;
}

async fn assert_released(world: &World, class: &str) {
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Received);
    assert_eq!(record.last_error.expect("a reason").class, class);
}

async fn assert_parked(world: &World, class: &str) {
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.expect("a reason").class, class);
}

async fn error_text(world: &World) -> String {
    world.expect_record("evt_1").await.last_error.expect("a reason").text
}

fn not_before(record: &Record) -> Timestamp {
    let State::Received { not_before, .. } = record.state else {
        panic!("waits, and is not {:?}", record.state)
    };
    not_before.expect("a wait")
}

const SECRET: &str = "whsec_dGVzdHMgb25seSwgbm90IGEgcmVhbCBzZWNyZXQ=";
const OTHER_SECRET: &str = "whsec_YW5vdGhlciBvbmUsIGZvciB0ZXN0cyBhcyB3ZWxs";
