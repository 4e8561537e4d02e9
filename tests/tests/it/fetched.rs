//! What the receiver fetches from a provider's own hosts, against hosts of the test's own: which
//! are called, how often, and what becomes of a delivery by what they answer.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use domain::{delivery::Delivery, limits, time::Timestamp};
use futures::future::join_all;
use providers::{Endpoint, Key, Provider, SampleRequest, Secret, Unsigned};
use rcgen::{CertificateParams, PKCS_RSA_SHA256, date_time_ymd};
use receiver::{Answer, Receiver};
use runtime::{
    clock::Clock,
    config::{Config, Format, Trust},
};
use serde_json::{Value, json};
use tests::{
    deliveries::{deliver_to, header, signed},
    hosts::{Hosts, Served},
    world::World,
};
use tracing::instrument::WithSubscriber as _;
use tracing_subscriber::fmt::MakeWriter;

/// The catalogue tests' own keys.
const RSA: &str = include_str!("../../../shared/providers/tests/keys/rsa.pem");
const CERTIFICATE: &str = include_str!("../../../shared/providers/tests/keys/certificate.pem");

const SNS: &str = "sns.eu-west-1.amazonaws.com";
const PAYPAL: &str = "api.paypal.com";
const PLAID: &str = "sandbox.plaid.com";
const KEYS: &str = "keys.example.com";
const TOPIC: &str = "arn:aws:sns:eu-west-1:000000000000:teapots";
const PLAID_KEYS: &str = "https://sandbox.plaid.com/webhook_verification_key/get";
const UNKNOWN_TO_PLAID: &str = r#"{"error_code":"INVALID_WEBHOOK_VERIFICATION_KEY_ID"}"#;
const KEY_SET: &str = "https://keys.example.com/certs";
/// Of Plaid's API. No log may show it.
const HUNTER: &str = "hunter2";

// ---- certificates ---------------------------------------------------------------------------

#[tokio::test]
async fn a_certificate_is_fetched_once_for_many_deliveries() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    hosts.serve(&certificate(1), good());
    let at_once = (0..8).map(|n| note(&format!("at-once-{n}"), &certificate(1)));
    let at_once: Vec<_> = at_once.collect();
    let answers = join_all(at_once.iter().map(|note| deliver_to(&receiver, "shop", note))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    for n in 0..4 {
        let note = note(&format!("later-{n}"), &certificate(1));
        assert_eq!(deliver_to(&receiver, "shop", &note).await.status, 200);
    }
    assert_eq!(called(&hosts), [format!("GET {}", certificate(1))]);
    assert_eq!(world.count_records().await, 12);
}

#[tokio::test]
async fn a_certificate_of_another_address_is_fetched_beside_it() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    for n in [1, 2] {
        hosts.serve(&certificate(n), good());
    }
    for n in [1, 2, 1, 2] {
        let note = note(&format!("of-{n}"), &certificate(n));
        assert_eq!(deliver_to(&receiver, "shop", &note).await.status, 200);
    }
    assert_eq!(called(&hosts), [1, 2].map(|n| format!("GET {}", certificate(n))));
}

#[tokio::test]
async fn paypals_certificate_is_where_a_header_says() {
    let (world, hosts) = stage().await;
    let source = json!({ "provider": "paypal", "settings": { "webhook_id": "w" } });
    let receiver = receiver(&world, &hosts, &source).await;
    let provider = Provider::builtin("paypal").expect("known");
    let provider = provider.at(Endpoint::default().with("webhook_id", "w"));
    let url = format!("https://{PAYPAL}/v1/notifications/certs/CERT-1");
    let request = SampleRequest { event_type: None, id: "evt_1", now: Clock::default().now() };
    let mut event = provider.sample(&request).expect("a sample");
    event.headers.push(("paypal-cert-url".into(), url.clone()));
    let key = provider.key(&Secret::new(RSA)).expect("a key");
    let delivery = provider.sign(&key, event, Clock::default().now()).expect("signed");
    hosts.serve(&url, good());
    assert_eq!(deliver_to(&receiver, "shop", &delivery).await.status, 200);
    assert_eq!(called(&hosts), [format!("GET {url}")]);
}

#[tokio::test]
async fn no_host_but_the_providers_is_called() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    let good_at = |url: String| {
        hosts.serve(url.split('?').next().unwrap_or_default(), good());
        url
    };
    for url in [
        good_at(format!("https://{KEYS}/SimpleNotificationService-1.pem")),
        good_at(format!("https://{SNS}.{KEYS}/SimpleNotificationService-1.pem")),
        good_at(format!("https://{SNS}/other/SimpleNotificationService-1.pem")),
        good_at(format!("https://{SNS}/?Action=Echo&x=SimpleNotificationService-1.pem")),
        good_at(format!("{}?x", certificate(1))),
        format!("https://{SNS}:8443/SimpleNotificationService-1.pem"),
        certificate(1).replace("https:", "http:"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ] {
        let answer = deliver_to(&receiver, "shop", &note("evt_1", &url)).await;
        assert_eq!(answer.status, 401, "{url}");
    }
    assert_eq!(called(&hosts), [""; 0]);
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn a_host_that_cannot_show_its_name_is_not_believed() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    let url = certificate(1).replace("eu-west-1", "eu-west-2");
    hosts.serve(&url, good());
    assert_unavailable(&deliver_to(&receiver, "shop", &note("evt_1", &url)).await, "impostor");
    assert_eq!(called(&hosts), [""; 0]);
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn a_forged_delivery_with_a_good_certificate_is_401() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    hosts.serve(&certificate(1), good());
    let mut forged = note("evt_1", &certificate(1));
    let body = String::from_utf8(forged.body).expect("text");
    forged.body = body.replace("tea is ready", "tea is gone").into_bytes();
    assert_eq!(deliver_to(&receiver, "shop", &forged).await.status, 401);
    hosts.serve(&certificate(2), Served::Answer(200, dated(1990, 1999)));
    let old = note("evt_1", &certificate(2));
    assert_eq!(deliver_to(&receiver, "shop", &old).await.status, 401, "not valid any more");
    hosts.serve(&certificate(3), Served::Answer(200, dated(2990, 2999)));
    let early = note("evt_1", &certificate(3));
    assert_eq!(deliver_to(&receiver, "shop", &early).await.status, 401, "not valid yet");
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn an_address_without_a_certificate_is_401_and_asked_once_a_minute() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    hosts.serve(&certificate(90), good());
    let padding = "\n".repeat(limits::MAX_FETCHED_BYTES);
    let answers = [
        Served::Answer(404, CERTIFICATE.to_owned()),
        Served::Answer(403, String::new()),
        Served::Answer(200, "garbage".to_owned()),
        Served::Answer(200, String::new()),
        Served::Answer(200, format!("<Attribute>\n{CERTIFICATE}")),
        Served::Answer(200, format!("{CERTIFICATE}{padding}")),
        Served::Redirect(certificate(90)),
    ];
    for (n, served) in answers.into_iter().enumerate() {
        let case = format!("{served:?}");
        hosts.serve(&certificate(n), served);
        let before = hosts.calls().len();
        for _ in 0..3 {
            let answer = deliver_to(&receiver, "shop", &note("evt_1", &certificate(n))).await;
            assert_eq!(answer.status, 401, "{case:.80}");
        }
        assert_eq!(hosts.calls().len(), before + 1, "{case:.80}");
    }
    assert!(!called(&hosts).contains(&format!("GET {}", certificate(90))), "a redirect");
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_had_for_a_moment_is_503_and_no_verdict() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    let delivery = note("evt_1", &certificate(1));
    for status in [500, 503, 429, 408] {
        hosts.serve(&certificate(1), Served::Answer(status, CERTIFICATE.to_owned()));
        assert_unavailable(&deliver_to(&receiver, "shop", &delivery).await, &status.to_string());
    }
    hosts.serve(&certificate(1), Served::Silence);
    let patience = limits::RECEIVER_TIMEOUT;
    let answer = tokio::time::timeout(patience, deliver_to(&receiver, "shop", &delivery)).await;
    assert_unavailable(&answer.expect("an answer while the function has time"), "silence");
    assert_nothing_written(&world).await;
    hosts.serve(&certificate(1), good());
    assert_eq!(deliver_to(&receiver, "shop", &delivery).await.status, 200);
}

#[tokio::test]
async fn whoever_makes_addresses_up_drives_few_calls_and_takes_nothing_away() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({}))).await;
    hosts.serve(&certificate(1), good());
    let known = |id: &str| note(id, &certificate(1));
    assert_eq!(deliver_to(&receiver, "shop", &known("evt_1")).await.status, 200);
    let mut statuses = Vec::new();
    for n in 100..160 {
        let answer = deliver_to(&receiver, "shop", &note("evt_2", &certificate(n))).await;
        statuses.push(answer.status);
    }
    let refused = limits::MAX_FETCHES - 1;
    assert!(statuses[..refused].iter().all(|status| *status == 401), "{statuses:?}");
    // Nobody knows whether these are good.
    assert!(statuses[refused..].iter().all(|status| *status == 503), "{statuses:?}");
    assert_eq!(hosts.calls().len(), limits::MAX_FETCHES);
    assert_eq!(deliver_to(&receiver, "shop", &known("evt_3")).await.status, 200);
    assert_eq!(world.count_records().await, 2);
}

// ---- keys by an address ---------------------------------------------------------------------

#[tokio::test]
async fn plaids_key_is_asked_for_by_its_id_once() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &plaid()).await;
    let (pair, public) = p256();
    hosts.serve(PLAID_KEYS, Served::Answer(200, format!(r#"{{"key":{public}}}"#)));
    for n in 0..3 {
        let delivery = plaid_delivery(&pair, n);
        assert_eq!(deliver_to(&receiver, "shop", &delivery).await.status, 200, "{n}");
    }
    let calls = hosts.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].what, format!("POST {PLAID_KEYS}"));
    let asked: Value = serde_json::from_str(&calls[0].body).expect("JSON");
    let expected = json!({ "client_id": "ours", "secret": HUNTER, "key_id": "hookonce-test" });
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn a_key_that_plaid_took_back_or_does_not_know_verifies_nothing() {
    let (world, hosts) = stage().await;
    let (pair, public) = p256();
    let delivery = plaid_delivery(&pair, 1);
    let expired = public.replacen('{', r#"{"expired_at":1600000000,"#, 1);
    let (_, other) = p256();
    for (answer, status) in [
        (Served::Answer(200, format!(r#"{{"key":{expired}}}"#)), 401),
        (Served::Answer(200, format!(r#"{{"key":{other}}}"#)), 401),
        (Served::Answer(400, UNKNOWN_TO_PLAID.to_owned()), 401),
        // Plaid's own fault, or our credentials': nothing that the delivery chose.
        (Served::Answer(400, r#"{"error_code":"INVALID_API_KEYS"}"#.to_owned()), 503),
        (Served::Answer(200, "{}".to_owned()), 503),
        (Served::Answer(200, "garbage".to_owned()), 503),
    ] {
        let receiver = receiver(&world, &hosts, &plaid()).await;
        let case = format!("{answer:?}");
        hosts.serve(PLAID_KEYS, answer);
        let before = hosts.calls().len();
        for _ in 0..2 {
            assert_eq!(deliver_to(&receiver, "shop", &delivery).await.status, status, "{case}");
        }
        let expected = if status == 401 { 1 } else { 2 };
        assert_eq!(hosts.calls().len() - before, expected, "{case}");
    }
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn a_set_of_keys_is_fetched_again_for_a_new_name_and_not_for_each() {
    let (world, hosts) = stage().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens.toml");
    std::fs::write(&file, TOKENS).expect("written");
    let tokens = Provider::parse("tokens.toml", TOKENS).expect("a provider");
    let (first, second) = (p256(), p256());
    // The test moves the clock itself.
    let clock = Clock::on_tokio(Clock::default().now());
    let config = config(&json!({ "provider": file.display().to_string() }));
    let receiver = world.receiver_at(&config, clock, &world.dynamodb_url, &world.sqs_url).await;
    let receiver = receiver.calling_by(hosts.client.clone());
    let publish = |keys: &[&str]| {
        hosts.serve(KEY_SET, Served::Answer(200, format!(r#"{{"keys":[{}]}}"#, keys.join(","))));
    };
    let delivery =
        |id: &str| token(&tokens, &first.0, &json!({ "id": id }).to_string(), clock.now());
    // What test keys are called, and another name.
    let renamed = second.1.replace("hookonce-test", "hookonce-next");
    publish(&[&renamed]);
    let early = delivery("evt_1");
    assert_eq!(deliver_to(&receiver, "shop", &early).await.status, 401, "not published yet");
    publish(&[&renamed, &first.1]);
    assert_eq!(deliver_to(&receiver, "shop", &early).await.status, 401, "asked a moment ago");
    assert_eq!(hosts.calls().len(), 1);
    pass(limits::FETCH_INTERVAL).await;
    assert_eq!(deliver_to(&receiver, "shop", &delivery("evt_1")).await.status, 200, "published");
    assert_eq!(hosts.calls().len(), 2);
    for n in 0..5 {
        let forged = with_key_id(delivery("evt_2"), &format!("made-up-{n}"));
        assert_eq!(deliver_to(&receiver, "shop", &forged).await.status, 401, "{n}");
    }
    assert_eq!(hosts.calls().len(), 2);
    publish(&[&renamed]);
    pass(limits::FETCHED_KEY_AGE).await;
    assert_eq!(deliver_to(&receiver, "shop", &delivery("evt_3")).await.status, 401, "taken back");
    assert_eq!(world.count_records().await, 1);
}

#[tokio::test]
async fn a_host_that_is_down_takes_no_key_away() {
    let (world, hosts) = stage().await;
    let clock = Clock::on_tokio(Clock::default().now());
    let config = config(&plaid());
    let receiver = world.receiver_at(&config, clock, &world.dynamodb_url, &world.sqs_url).await;
    let receiver = receiver.calling_by(hosts.client.clone());
    let (pair, public) = p256();
    hosts.serve(PLAID_KEYS, Served::Answer(200, format!(r#"{{"key":{public}}}"#)));
    let plaid = Provider::builtin("plaid").expect("known");
    let delivery = |n: u8| token(&plaid, &pair, &plaid_body(n), clock.now());
    assert_eq!(deliver_to(&receiver, "shop", &delivery(1)).await.status, 200);
    hosts.serve(PLAID_KEYS, Served::Answer(500, String::new()));
    pass(limits::FETCHED_KEY_AGE).await;
    for n in 2..5 {
        assert_eq!(deliver_to(&receiver, "shop", &delivery(n)).await.status, 200, "{n}");
    }
    assert_eq!(hosts.calls().len(), 2, "asked again once");
}

#[tokio::test]
async fn a_certificate_that_is_refused_for_a_moment_is_kept_and_one_that_stays_away_is_not() {
    let (world, hosts) = stage().await;
    let clock = Clock::on_tokio(Clock::default().now());
    let config = config(&sns(json!({})));
    let receiver = world.receiver_at(&config, clock, &world.dynamodb_url, &world.sqs_url).await;
    let receiver = receiver.calling_by(hosts.client.clone());
    hosts.serve(&certificate(1), good());
    let dated = |id: &str| sns_message_at(clock.now(), json!({ "MessageId": id }), &certificate(1));
    assert_eq!(deliver_to(&receiver, "shop", &dated("n_1")).await.status, 200);
    hosts.serve(&certificate(1), Served::Answer(403, String::new()));
    pass(limits::FETCHED_KEY_AGE).await;
    assert_eq!(deliver_to(&receiver, "shop", &dated("n_2")).await.status, 200);
    pass(limits::FETCHED_KEY_AGE).await;
    assert_eq!(deliver_to(&receiver, "shop", &dated("n_3")).await.status, 401);
}

// ---- confirmations --------------------------------------------------------------------------

#[tokio::test]
async fn a_verified_confirmation_is_called_once() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({ "confirm": true }))).await;
    hosts.serve(&certificate(1), good());
    hosts.serve(&format!("https://{SNS}/"), Served::Answer(200, "<Confirmed/>".to_owned()));
    let answer =
        deliver_to(&receiver, "shop", &subscription(TOPIC, "SubscriptionConfirmation")).await;
    assert_eq!(answer.status, 200);
    let expected = [format!("GET {}", certificate(1)), format!("GET {}", subscribe_url())];
    assert_eq!(called(&hosts), expected);
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn nothing_else_is_ever_called() {
    let (world, hosts) = stage().await;
    hosts.serve(&certificate(1), good());
    let confirming = receiver(&world, &hosts, &sns(json!({ "confirm": true }))).await;
    let asked = subscription(TOPIC, "SubscriptionConfirmation");
    let mut forged = asked.clone();
    let body = String::from_utf8(forged.body).expect("text");
    forged.body = body.replace("Token=t0ken", "Token=0ther").into_bytes();
    assert_eq!(deliver_to(&confirming, "shop", &forged).await.status, 401, "forged");
    let others = subscription("arn:aws:sns:eu-west-1:1:of-others", "SubscriptionConfirmation");
    assert_eq!(deliver_to(&confirming, "shop", &others).await.status, 401, "of others");
    let ended = subscription(TOPIC, "UnsubscribeConfirmation");
    assert_eq!(deliver_to(&confirming, "shop", &ended).await.status, 200, "ended");
    assert_eq!(called(&hosts), [format!("GET {}", certificate(1))]);
    let silent = receiver(&world, &hosts, &sns(json!({}))).await;
    let (answer, log) = logged(deliver_to(&silent, "shop", &asked)).await;
    assert_eq!(answer.status, 200, "not asked to confirm");
    assert!(log.contains("set confirm = true"), "{log}");
    assert_eq!(
        called(&hosts),
        [format!("GET {}", certificate(1)), format!("GET {}", certificate(1))]
    );
    assert_nothing_written(&world).await;
}

#[tokio::test]
async fn a_confirmation_that_fails_is_sent_again_and_then_confirmed() {
    let (world, hosts) = stage().await;
    let receiver = receiver(&world, &hosts, &sns(json!({ "confirm": true }))).await;
    hosts.serve(&certificate(1), good());
    let asked = subscription(TOPIC, "SubscriptionConfirmation");
    let address = format!("https://{SNS}/");
    for served in [
        Served::Answer(500, String::new()),
        Served::Answer(403, String::new()),
        Served::Redirect(format!("https://{SNS}/elsewhere")),
        Served::Silence,
    ] {
        let case = format!("{served:?}");
        hosts.serve(&address, served);
        assert_unavailable(&deliver_to(&receiver, "shop", &asked).await, &case);
    }
    hosts.serve(&address, Served::Answer(200, String::new()));
    assert_eq!(deliver_to(&receiver, "shop", &asked).await.status, 200);
    assert!(!called(&hosts).iter().any(|what| what.contains("elsewhere")));
    assert_nothing_written(&world).await;
}

// ---- said and configured --------------------------------------------------------------------

#[tokio::test]
async fn no_log_shows_a_token_or_a_secret() {
    let (world, hosts) = stage().await;
    hosts.serve(&certificate(1), good());
    let confirming = receiver(&world, &hosts, &sns(json!({ "confirm": true }))).await;
    let asked = subscription(TOPIC, "SubscriptionConfirmation");
    let asking = receiver(&world, &hosts, &plaid()).await;
    let (pair, _) = p256();
    let answer = format!(r#"{{"error":"{HUNTER}"}}"#);
    hosts.serve(PLAID_KEYS, Served::Answer(400, answer));
    let (statuses, log) = logged(async {
        let failed = deliver_to(&confirming, "shop", &asked).await;
        hosts.serve(&format!("https://{SNS}/"), Served::Answer(200, String::new()));
        let confirmed = deliver_to(&confirming, "shop", &asked).await;
        let unasked = deliver_to(&asking, "shop", &plaid_delivery(&pair, 1)).await;
        [failed.status, confirmed.status, unasked.status]
    })
    .await;
    assert_eq!(statuses, [503, 200, 503]);
    for said in ["could not be confirmed", "is confirmed", "no key could be fetched", SNS, PLAID] {
        assert!(log.contains(said), "{said}: {log}");
    }
    for secret in ["t0ken", "Action", HUNTER, "hookonce-test"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn what_could_not_be_fetched_or_confirmed_is_refused_at_load() {
    let refusal = |source: Value| {
        let text = config(&source).to_string();
        let parsed = Config::parse("test", &text, Format::Json, None, Trust::Local);
        parsed.expect_err("refused").to_string()
    };
    let plaid_without = |name: &str| {
        let mut source = plaid();
        source["settings"].as_object_mut().expect("settings").remove(name);
        source.as_object_mut().expect("a source").remove(name);
        source
    };
    for (source, words) in [
        (json!({ "provider": "stripe" }), "sources.shop.secrets: stripe publishes no keys"),
        (
            json!({ "provider": "aws-sns", "secrets": ["env:A", "fetched"] }),
            "sources.shop.secrets: \"fetched\" stands alone",
        ),
        (
            json!({ "provider": "aws-sns", "confirm": true }),
            "sources.shop.confirm: without settings.topic_arn anybody's would be confirmed",
        ),
        (
            json!({ "provider": "aws-sns" }),
            "sources.shop.settings.topic_arn: needed: the keys that are fetched sign for every",
        ),
        (
            sns(json!({ "settings": { "topic_arn": "" } })),
            "sources.shop.settings.topic_arn: is empty",
        ),
        (
            json!({ "provider": "stripe", "secrets": ["env:A"], "confirm": true }),
            "sources.shop.confirm: stripe has no subscription",
        ),
        (plaid_without("client_id"), "sources.shop.settings.client_id: needed to fetch"),
        (plaid_without("environment"), "sources.shop.settings.environment: needed to fetch"),
        (plaid_without("api_secret"), "sources.shop.api_secret: the provider gives its keys"),
        (sns(json!({ "api_secret": "env:A" })), "sources.shop.api_secret: the provider's keys"),
        (
            json!({ "provider": "plaid", "secrets": ["env:A"], "api_secret": "env:B" }),
            "sources.shop.api_secret: it goes with",
        ),
        (
            json!({ "provider": "plaid", "settings": { "environment": "evil.example#" } }),
            "sources.shop.settings.environment: one of production, sandbox",
        ),
    ] {
        let refusal = refusal(source);
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
}

// ---- the stage ------------------------------------------------------------------------------

async fn stage() -> (World, Hosts) {
    let impostor = SNS.replace("eu-west-1", "eu-west-2");
    let other = format!("{SNS}.{KEYS}");
    let hosts = Hosts::start(&[SNS, PAYPAL, PLAID, KEYS, &other], &[&impostor]).await;
    (World::start().await, hosts)
}

async fn receiver(world: &World, hosts: &Hosts, source: &Value) -> Receiver {
    world.receiver(&config(source)).await.calling_by(hosts.client.clone())
}

/// A configuration with source `shop`, whose keys are fetched unless it says otherwise.
fn config(source: &Value) -> Value {
    let mut shop = json!({ "secrets": ["fetched"], "deliver": { "handler": "test" } });
    for (name, value) in source.as_object().expect("an object") {
        shop[name] = value.clone();
    }
    json!({ "sources": { "shop": shop } })
}

fn sns(members: Value) -> Value {
    let mut source = json!({ "provider": "aws-sns", "settings": { "topic_arn": TOPIC } });
    for (name, value) in members.as_object().expect("an object") {
        source[name] = value.clone();
    }
    source
}

fn plaid() -> Value {
    json!({
        "provider": "plaid",
        "settings": { "client_id": "ours", "environment": "sandbox" },
        "api_secret": format!("literal:{HUNTER}")
    })
}

/// As a provider's OpenID tokens are.
const TOKENS: &str = r#"
name = "tokens"
title = "Tokens"

[keys]
answer = "jwks"
at = "https://keys.example.com/certs"

[[verify]]
scheme = "jwt"
algorithm = "es256"
key = { format = "jwk" }
header = ["authorization"]
prefix = "Bearer "
body_digest = { claim = "sha256" }
timestamp = { claim = "iat", unit = "s" }
tolerance_s = 300

[[identity]]
id = [{ pointer = "/id" }]
"#;

fn certificate(n: usize) -> String {
    format!("https://{SNS}/SimpleNotificationService-{n}.pem")
}

fn good() -> Served {
    Served::Answer(200, CERTIFICATE.to_owned())
}

/// A certificate of the same key that holds in these years.
fn dated(from: i32, until: i32) -> String {
    let key = rcgen::KeyPair::from_pkcs8_pem_and_sign_algo(RSA, &PKCS_RSA_SHA256).expect("a key");
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    params.self_signed(&key).expect("a certificate").pem()
}

/// A notification of our topic whose certificate is said to be at `url`.
fn note(id: &str, url: &str) -> Delivery {
    sns_message(json!({ "Type": "Notification", "MessageId": id, "TopicArn": TOPIC }), url)
}

fn subscription(topic: &str, kind: &str) -> Delivery {
    let members = json!({
        "Type": kind,
        "MessageId": "m",
        "TopicArn": topic,
        "Token": "t0ken",
        "SubscribeURL": subscribe_url(),
    });
    sns_message(members, &certificate(1))
}

fn subscribe_url() -> String {
    format!("https://{SNS}/?Action=ConfirmSubscription&Token=t0ken")
}

fn sns_message(members: Value, url: &str) -> Delivery {
    sns_message_at(Clock::default().now(), members, url)
}

fn sns_message_at(now: Timestamp, mut members: Value, url: &str) -> Delivery {
    let known = Provider::builtin("aws-sns").expect("known");
    let request = SampleRequest { event_type: None, id: "any", now };
    let sample = known.sample(&request).expect("a sample");
    let mut message: Value = serde_json::from_slice(&sample.body).expect("JSON");
    members["SigningCertURL"] = url.into();
    for (name, value) in members.as_object().expect("an object") {
        message[name] = value.clone();
    }
    signed("aws-sns", RSA, &[("content-type", "text/plain")], message.to_string().as_bytes())
}

/// A pair, and its public key as a JSON web key. All have the same name.
fn p256() -> (Key, String) {
    let plaid = Provider::builtin("plaid").expect("known");
    plaid.test_key(&plaid.generate_test_key().expect("a key")).expect("a pair")
}

fn plaid_body(n: u8) -> String {
    json!({ "webhook_type": "ITEM", "webhook_code": "ERROR", "item_id": n.to_string() }).to_string()
}

fn plaid_delivery(pair: &Key, n: u8) -> Delivery {
    let plaid = Provider::builtin("plaid").expect("known");
    token(&plaid, pair, &plaid_body(n), Clock::default().now())
}

fn token(provider: &Provider, pair: &Key, body: &str, now: Timestamp) -> Delivery {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let unsigned = Unsigned { headers, body: body.as_bytes().to_vec() };
    provider.sign(pair, unsigned, now).expect("signed")
}

/// The same, by its own word signed with the key of this name.
fn with_key_id(mut delivery: Delivery, id: &str) -> Delivery {
    let bearer = delivery.headers.get("authorization").expect("a token");
    let (_, signed) = bearer.split_once('.').expect("a header and more");
    let token = json!({ "alg": "ES256", "kid": id }).to_string();
    let bearer = format!("Bearer {}.{signed}", BASE64_URL_SAFE_NO_PAD.encode(token));
    delivery.headers = [("authorization", bearer.as_str())].into_iter().collect();
    delivery
}

/// Moves tokio's clock on.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn called(hosts: &Hosts) -> Vec<String> {
    hosts.calls().into_iter().map(|call| call.what).collect()
}

async fn assert_nothing_written(world: &World) {
    assert_eq!(world.count_records().await, 0);
    assert_eq!(world.queue_depth().await, (0, 0));
}

fn assert_unavailable(answer: &Answer, case: &str) {
    assert_eq!(answer.status, 503, "{case}");
    assert!(header(answer, "retry-after").is_some(), "{case}");
}

/// Runs to the end; gives what was logged on the way, too.
async fn logged<T>(run: impl Future<Output = T>) -> (T, String) {
    let log = Log::default();
    let logs = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let output = run.with_subscriber(logs).await;
    let text = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    (output, String::from_utf8_lossy(&text).into_owned())
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
