//! The executables that are deployed, receiver, worker and sweeper, as the Runtime API runs them.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use domain::{
    record::{ClaimId, StateName},
    transition::claim,
};
use hookonce::{
    lambda::{Function, FunctionSpec},
    services::Services,
    stack::{Accounts, Functions, Stack, StackOptions},
};
use runtime::clock::Clock;
use serde_json::{Value, json};
use tests::{
    dev::eventually,
    programs::programs,
    world::{
        STRIPE_SECRET, TABLE, World, headers_of, parse, stripe_delivery, stripe_delivery_at,
        stripe_key,
    },
};
use tokio::sync::{mpsc, watch};

// ---- the whole, of these executables --------------------------------------------------------

/// A stack of the executables, and the outside world of the payments handler.
struct Payments {
    stack: Stack,
    services: Arc<Services>,
    _ended: watch::Sender<bool>,
}

impl Payments {
    async fn start(service_delay: Duration, workers: usize) -> Self {
        let (ended, ending) = watch::channel(false);
        let (services, url) = Services::start(service_delay, ending).await.expect("services");
        let (lines, mut written) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move { while written.recv().await.is_some() {} });
        let variables =
            [("PAYMENTS_RECEIPT_URL", "receipt"), ("PAYMENTS_SHIPMENT_URL", "shipment")];
        let options = StackOptions {
            program: Functions::Folder(programs().to_owned()),
            config: payments_config().to_string(),
            data: None,
            clock: Clock::default(),
            port: 0,
            dynamodb_port: 0,
            sqs_port: 0,
            receivers: 3,
            workers,
            worker_timeout: Duration::from_secs(5),
            // Only when a test asks for one: what arrives came by the queue.
            sweep_every: Duration::from_secs(3600),
            environment: variables
                .map(|(name, service)| (name.to_owned(), format!("{url}/{service}")))
                .into(),
        };
        let stack = Stack::start(options, lines).await.expect("a stack");
        Self { stack, services, _ended: ended }
    }

    async fn deliver(&self, id: &str) -> u16 {
        let delivery = stripe_delivery(id);
        let url = format!("{}/webhooks/stripe", self.stack.receiver_url);
        let mut request = client().post(url).body(delivery.body.clone());
        for (name, value) in delivery.headers.iter() {
            request = request.header(name, value);
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    async fn until_done(&self, id: &str) {
        eventually("the event is done", async || {
            let record = self.stack.record(&stripe_key(id)).await.expect("a read");
            record.is_some_and(|record| record.state.name() == StateName::Done)
        })
        .await;
    }

    /// Credits, receipts and shipments that took effect.
    async fn effects(&self) -> (u64, u64, u64) {
        let Accounts { credits, .. } = self.stack.accounts().await.expect("accounts");
        let effects = |service| self.services.count(service).effects;
        (credits, effects("receipt"), effects("shipment"))
    }
}

fn client() -> reqwest::Client {
    runtime::aws::install_tls_provider();
    reqwest::Client::new()
}

fn payments_config() -> Value {
    json!({
        "clock_skew": "250ms",
        "sources": {
            "stripe": {
                "provider": "stripe",
                "secrets": [format!("literal:{STRIPE_SECRET}")],
                "backoff": { "first": "1s", "longest": "1s" },
                "deliver": { "handler": "payments" }
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn three_parallel_deliveries_take_effect_once_each() {
    let payments = Payments::start(Duration::ZERO, 2).await;
    let answers = futures::join!(
        payments.deliver("evt_1"),
        payments.deliver("evt_1"),
        payments.deliver("evt_1")
    );
    assert_eq!(answers, (200, 200, 200));
    payments.until_done("evt_1").await;
    assert_eq!(payments.effects().await, (1, 1, 1));
    assert_eq!(payments.services.count("receipt").calls, 1);
    assert_eq!(payments.services.count("shipment").calls, 1);
    payments.stack.stop().await;
}

/// The receipt is out and its answer is not in when the process ends: a successor repeats the call
/// under the same key, and the rest of the event happens once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_midway_leaves_no_effect_undone_and_none_done_twice() {
    let payments = Payments::start(Duration::from_millis(700), 1).await;
    assert_eq!(payments.deliver("evt_1").await, 200);
    eventually("the receipt service was called", async || {
        payments.services.count("receipt").calls == 1
    })
    .await;
    payments.stack.worker.kill_one();
    payments.until_done("evt_1").await;
    assert_eq!(payments.effects().await, (1, 1, 1));
    // Twice called: the kill came midway, and not before or after.
    assert_eq!(payments.services.count("receipt").calls, 2);
    let record = payments.stack.record(&stripe_key("evt_1")).await.expect("a read");
    assert_eq!(record.map(|record| record.attempt), Some(2));
    payments.stack.stop().await;
}

/// What a receiver that died between its claim and its enqueueing leaves behind.
#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_enqueues_what_nobody_did() {
    let payments = Payments::start(Duration::ZERO, 1).await;
    let then = Clock::default().now().minus(Duration::from_secs(120));
    let delivery = stripe_delivery_at("evt_1", then);
    let config = parse(&payments_config());
    let source = config.sources.values().next().expect("a source");
    let event = domain::event::Event {
        key: stripe_key("evt_1"),
        provider: "stripe".to_owned(),
        event_type: Some("payment_intent.succeeded".to_owned()),
        object_id: None,
        occurred_at: None,
        coalesces_until: None,
        payload: delivery.body.clone(),
        content_type: None,
        headers: Vec::new(),
    };
    let stored = dynamo::payload::encode(&event.payload);
    let claim = claim(&event, stored, ClaimId("dead".to_owned()), then, &source.policy);
    let written = payments.stack.ledger.write(&claim.write, dynamo::Returning::Nothing).await;
    assert_eq!(written.expect("written"), domain::write::Written::Applied(None));
    payments.stack.sweep().await.expect("a pass");
    payments.until_done("evt_1").await;
    assert_eq!(payments.effects().await, (1, 1, 1));
    payments.stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_no_gateway_lets_through_is_refused_and_the_next_one_taken() {
    let payments = Payments::start(Duration::ZERO, 1).await;
    let url = format!("{}/webhooks/stripe", payments.stack.receiver_url);
    // Under the gateway's bound and over ours, and over both.
    for megabytes in [5, 10] {
        let body = vec![b'a'; megabytes * 1024 * 1024];
        let sent = client().post(&url).header("content-type", "application/json").body(body);
        // A server that refuses by length may close before it has read all.
        if let Ok(answer) = sent.send().await {
            assert_eq!(answer.status(), 413, "{megabytes} MB");
        } else {
            assert_eq!(megabytes, 10, "no answer to a body that the gateway takes");
        }
    }
    assert_eq!(payments.deliver("evt_1").await, 200);
    payments.until_done("evt_1").await;
    payments.stack.stop().await;
}

// ---- one of them, by itself -----------------------------------------------------------------

/// A receiver's process, with these variables beside those it needs.
async fn receiver(world: &World, more: &[(&str, &str)]) -> (Function, watch::Sender<bool>) {
    let (closing, closed) = watch::channel(false);
    let (lines, mut written) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move { while written.recv().await.is_some() {} });
    let mut environment = environment(world);
    environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let spec = FunctionSpec {
        name: "receiver",
        program: program("receiver"),
        arguments: Vec::new(),
        environment: environment.into_iter().collect(),
        instances: 1,
        timeout: Duration::from_secs(10),
    };
    let function = Function::start(spec, lines, &closed).await.expect("a process");
    (function, closing)
}

fn program(name: &str) -> PathBuf {
    programs().join(name)
}

fn environment(world: &World) -> BTreeMap<String, String> {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", &world.dynamodb_url),
        ("AWS_ENDPOINT_URL_SQS", &world.sqs_url),
        ("HOOKONCE_TABLE", TABLE),
        ("HOOKONCE_QUEUE_URL", &world.queue_url),
        ("HOOKONCE_CONFIG", &payments_config().to_string()),
        ("HOOKONCE_LOCAL", "1"),
        ("PAYMENTS_ACCOUNTS_TABLE", "accounts"),
        ("PAYMENTS_RECEIPT_URL", "http://127.0.0.1:1/receipt"),
        ("PAYMENTS_SHIPMENT_URL", "http://127.0.0.1:1/shipment"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// What it answers to a POST to source `stripe`.
async fn answer(receiver: &Function, headers: &Value, body: &str, is_base64: bool) -> Value {
    let event = json!({
        "version": "2.0",
        "rawPath": "/webhooks/stripe",
        "rawQueryString": "",
        "headers": headers,
        "requestContext": { "http": { "method": "POST", "path": "/webhooks/stripe" } },
        "body": body,
        "isBase64Encoded": is_base64
    });
    let answered = receiver.invoke(event.to_string()).await.expect("an answer");
    serde_json::from_slice(&answered).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_answers_what_is_malformed_and_lives_on() {
    let world = World::start().await;
    let (receiver, _closing) = receiver(&world, &[]).await;
    for body in ["%%%", "a", "ab=c", "ä"] {
        let refused = answer(&receiver, &json!({}), body, true).await;
        assert_eq!(refused["statusCode"], 400, "{body}: {refused}");
    }
    let large = "A".repeat(10 * 1024 * 1024);
    for is_base64 in [true, false] {
        let refused = answer(&receiver, &json!({}), &large, is_base64).await;
        assert_eq!(refused["statusCode"], 413, "{refused}");
    }
    assert_eq!(world.count_records().await, 0);
    let delivery = stripe_delivery("evt_1");
    let body = String::from_utf8(delivery.body.clone()).expect("text");
    let taken = answer(&receiver, &headers_of(&delivery), &body, false).await;
    assert_eq!(taken["statusCode"], 200, "{taken}");
    assert_eq!(world.count_records().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_cannot_reach_its_table_asks_the_provider_to_come_again() {
    let world = World::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let unreachable = [("AWS_ENDPOINT_URL_DYNAMODB", nowhere.as_str())];
    let (receiver, _closing) = receiver(&world, &unreachable).await;
    let delivery = stripe_delivery("evt_1");
    let body = String::from_utf8(delivery.body.clone()).expect("text");
    let answered = answer(&receiver, &headers_of(&delivery), &body, false).await;
    assert_eq!(answered["statusCode"], 503, "{answered}");
    assert_eq!(answered["headers"]["retry-after"], "10", "{answered}");
    assert_eq!(world.queue_depth().await, (0, 0));
    // Whether it is authentic is known all the same.
    let refused = answer(&receiver, &json!({}), &body, false).await;
    assert_eq!(refused["statusCode"], 401, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_without_its_settings_ends_and_says_which() {
    let world = World::start().await;
    let config = ("HOOKONCE_CONFIG", r#"{"sources":{"shop":{"provider":"stripe","secrets":[]}}}"#);
    let deployed_literal = ("HOOKONCE_LOCAL", "");
    let cases: [(&str, (&str, &str), &str); 8] = [
        ("receiver", ("HOOKONCE_TABLE", ""), "HOOKONCE_TABLE"),
        ("worker", ("HOOKONCE_TABLE", ""), "HOOKONCE_TABLE"),
        ("sweeper", ("HOOKONCE_TABLE", ""), "HOOKONCE_TABLE"),
        ("receiver", ("HOOKONCE_QUEUE_URL", ""), "HOOKONCE_QUEUE_URL"),
        ("receiver", config, "sources.shop.secrets: there is none"),
        ("worker", config, "sources.shop.secrets: there is none"),
        ("worker", ("PAYMENTS_ACCOUNTS_TABLE", ""), "PAYMENTS_ACCOUNTS_TABLE"),
        ("receiver", deployed_literal, "literal: is for local use only"),
    ];
    for (name, (variable, value), said) in cases {
        let mut environment = environment(&world);
        environment.insert(variable.to_owned(), value.to_owned());
        environment.insert("AWS_LAMBDA_RUNTIME_API".to_owned(), "127.0.0.1:1".to_owned());
        let mut command = tokio::process::Command::new(program(name));
        command.env_clear().envs(environment).kill_on_drop(true);
        let ended = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
        let ended = ended.expect("ends by itself").expect("starts");
        assert!(!ended.status.success(), "{name} without {variable}");
        let lines = String::from_utf8_lossy(&ended.stdout).into_owned();
        let line = lines.lines().find(|line| line.contains("cannot start")).unwrap_or_default();
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{name}: {lines}"));
        assert_eq!(line["level"], "ERROR");
        assert!(line["error"].as_str().is_some_and(|error| error.contains(said)), "{line}");
        assert!(!lines.contains(STRIPE_SECRET), "{lines}");
    }
}
