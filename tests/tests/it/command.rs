//! `hookonce` as its user calls it: what it prints, and 0 for yes, 1 for no, 2 for a wrong call.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{delivery::Delivery, time::Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    dev::Dev,
    programs::{Ended, run},
    world::{STRIPE_SECRET, headers_of, stripe_delivery_at},
};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Its only line, as JSON.
fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no JSON: {ended:?}"))
}

// ---- the command itself ---------------------------------------------------------------------

#[test]
fn every_command_explains_itself_and_none_at_all_shows_how_to_call_it() {
    let folder = folder();
    let nothing = run(folder.path(), &[]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("Usage: hookonce"), "{nothing:?}");
    for (command, option) in [
        ("demo", "--kill"),
        ("dev", "--data"),
        ("send", "--tamper"),
        ("verify", "--request"),
        ("check", "--config"),
        ("providers", "--markdown"),
        ("events", "--endpoint"),
        ("queue", "--queue-url"),
        ("doctor", "--queue-url"),
    ] {
        let help = run(folder.path(), &[command, "--help"]);
        assert_eq!(help.code, Some(0), "{help:?}");
        assert!(help.stdout.contains(option), "{help:?}");
        assert!(nothing.stderr.contains(command), "{command} is not listed: {nothing:?}");
    }
    for wrong in [&["demon"][..], &["demo", "--evnts", "1"], &["check", "extra"]] {
        let refused = run(folder.path(), wrong);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}

// ---- demo -----------------------------------------------------------------------------------

#[test]
fn the_demo_says_once_each_in_exactly_these_words() {
    let folder = folder();
    let demo = run(folder.path(), &["demo", "--json"]);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    let expected = r#"{"deliveries":3,"acknowledged":3,"new":1,"duplicates":2,"effects":{"credit":1,"receipt":1,"shipment":1}}"#;
    assert_eq!(demo.stdout, format!("{expected}\n"));
    let demo = run(folder.path(), &["demo"]);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.stdout.contains("once each, after"), "{demo:?}");
    assert!(!demo.stdout.contains("NOT"), "{demo:?}");
}

#[test]
fn many_deliveries_of_some_events_take_effect_once_each() {
    let folder = folder();
    let arguments = ["--deliveries", "100", "--events", "20", "--parallel", "16", "--json"];
    let demo = run(folder.path(), &[&["demo"][..], &arguments].concat());
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert_eq!(json_of(&demo), books(100, 20));
}

#[test]
fn events_whose_worker_is_killed_again_and_again_take_effect_once_each() {
    let folder = folder();
    let arguments = ["demo", "--kill", "--deliveries", "12", "--events", "4", "--json"];
    let demo = run(folder.path(), &arguments);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert_eq!(json_of(&demo), books(12, 4));
}

fn books(deliveries: u32, events: u32) -> Value {
    json!({
        "deliveries": deliveries,
        "acknowledged": deliveries,
        "new": events,
        "duplicates": deliveries - events,
        "effects": { "credit": events, "receipt": events, "shipment": events }
    })
}

#[test]
fn a_demo_that_cannot_be_is_a_wrong_call() {
    let folder = folder();
    let demo = run(folder.path(), &["demo", "--events", "5", "--deliveries", "3"]);
    assert_eq!(demo.code, Some(2), "{demo:?}");
    assert!(demo.stderr.contains("5 events"), "{demo:?}");
    for zero in ["--deliveries", "--events", "--parallel"] {
        let demo = run(folder.path(), &["demo", zero, "0"]);
        assert_eq!(demo.code, Some(2), "{demo:?}");
    }
}

// ---- check ----------------------------------------------------------------------------------

#[test]
fn the_example_configuration_passes_and_each_retention_has_its_reason() {
    let folder = folder();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../hookonce.example.toml");
    let check = run(folder.path(), &["check", "--config", example]);
    assert_eq!(check.code, Some(0), "{check:?}");
    for said in ["POST /webhooks/stripe-eu", "retention 45d", "margin of 3d", "handler   payments"]
    {
        assert!(check.stdout.contains(said), "{said} is missing: {check:?}");
    }
    let fetched =
        "  fetches   the key at https://production.plaid.com/webhook_verification_key/get";
    for said in [fetched, "  confirms  subscriptions at sns.*.amazonaws.com"] {
        assert_eq!(check.stdout.matches(said).count(), 1, "{said}: {check:?}");
    }
    let check = run(folder.path(), &["check", "--config", example, "--json"]);
    let report = json_of(&check);
    assert_eq!(report["valid"], true);
    assert!(report["sources"]["paypal"]["fetches"].as_str().is_some_and(|at| at.contains("certs")));
    assert_eq!(report["sources"]["github"]["fetches"], Value::Null);
    assert_eq!(report["sources"]["github"]["confirms"], json!([]));
    assert_eq!(report["sources"]["alerts"]["confirms"][0], "sns.*.amazonaws.com");
    let stripe = &report["sources"]["stripe"];
    assert_eq!(stripe["retention_s"], 45 * 86_400);
    assert!(stripe["required_s"].as_u64() <= stripe["retention_s"].as_u64());
    assert!(stripe["reason"].as_str().is_some_and(|reason| reason.contains("margin")));
}

#[test]
fn a_configuration_in_the_folder_is_found_without_being_named() {
    let folder = folder();
    let absent = run(folder.path(), &["check"]);
    assert_eq!(absent.code, Some(2), "{absent:?}");
    assert!(absent.stderr.contains("no file hookonce.toml"), "{absent:?}");
    write(&folder, "hookonce.toml", &source("", "handler = \"payments\""));
    assert_eq!(run(folder.path(), &["check"]).code, Some(0));
}

#[test]
fn a_refused_configuration_is_a_no_and_says_which_key_and_why() {
    let folder = folder();
    let handler = "handler = \"payments\"";
    for (text, said) in [
        (source("retention = \"1d\"", handler), "sources.shop.retention: retention of 1d"),
        (source("attempts = 99", handler), "sources.shop.attempts: 1 to 50"),
        (source("", "handler = \"refunds\""), "no handler is named refunds"),
        (source("", "http = \"ftp://x\""), "sources.shop.deliver.http: an http or https"),
        (source("wrong_key = 1", handler), "wrong_key"),
        ("sources = 1".to_owned(), "line 1"),
        (String::new(), "sources: there is none"),
    ] {
        let config = write(&folder, "bad.toml", &text);
        let check = run(folder.path(), &["check", "--config", &config]);
        assert_eq!(check.code, Some(1), "{check:?}");
        assert!(check.stderr.contains(said), "not `{said}`: {check:?}");
        assert!(check.stderr.contains("bad.toml"), "{check:?}");
        let check = run(folder.path(), &["check", "--config", &config, "--json"]);
        assert_eq!(check.code, Some(1), "{check:?}");
        let report = json_of(&check);
        assert_eq!(report["valid"], false);
        assert!(report["error"].as_str().is_some_and(|error| error.contains(said)), "{report}");
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_refused_without_being_repeated() {
    let folder = folder();
    for secrets in [
        r#"secrets = ["hunter2"]"#,
        r#"secrets = "hunter2""#,
        r#"secrets = ["hunter2:x"]"#,
        r#"secrets = { hunter2 = 1 }"#,
        r#"secrets = ["hunter2""#,
    ] {
        let text = format!(
            "[sources.shop]\nprovider = \"stripe\"\n{secrets}\ndeliver = {{ handler = \"payments\" }}\n"
        );
        let config = write(&folder, "bad.toml", &text);
        for json in [&[][..], &["--json"]] {
            let check = run(folder.path(), &[&["check", "--config", &config][..], json].concat());
            assert_eq!(check.code, Some(1), "{check:?}");
            assert!(!format!("{check:?}").contains("hunter2"), "{check:?}");
        }
    }
}

#[test]
fn a_configuration_that_is_not_there_is_a_wrong_call() {
    let folder = folder();
    let check = run(folder.path(), &["check", "--config", "nowhere.toml", "--json"]);
    assert_eq!(check.code, Some(2), "{check:?}");
    assert!(check.stderr.contains("nowhere.toml"), "{check:?}");
}

fn source(more: &str, deliver: &str) -> String {
    format!(
        "[sources.shop]\nprovider = \"stripe\"\nsecrets = [\"env:X\"]\n{more}\ndeliver = {{ {deliver} }}\n"
    )
}

// ---- verify ---------------------------------------------------------------------------------

const SIGNED_AT: i64 = 1_700_000_000;

/// A signed Stripe request, as `verify` takes it.
fn request() -> Value {
    let delivery = stripe_delivery_at("evt_1", Timestamp::from_secs(SIGNED_AT));
    as_request(&delivery)
}

fn as_request(delivery: &Delivery) -> Value {
    json!({
        "provider": "stripe",
        "name": "one",
        "secret": STRIPE_SECRET,
        "url": null,
        "method": "POST",
        "headers": headers_of(delivery),
        "body": String::from_utf8(delivery.body.clone()).expect("text"),
        "now": SIGNED_AT,
        "a_key_nobody_knows": { "x": 1 }
    })
}

fn with(mut request: Value, key: &str, value: Value) -> Value {
    request[key] = value;
    request
}

/// Judges these with `--json`: the exit code and a line each.
fn verify(requests: &Value) -> (Option<i32>, Vec<Value>) {
    let folder = folder();
    let file = write(&folder, "request.json", &requests.to_string());
    let ended = run(folder.path(), &["verify", "--request", &file, "--json"]);
    let lines = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    assert!(!ended.stdout.contains(STRIPE_SECRET) && !ended.stderr.contains(STRIPE_SECRET));
    (ended.code, lines.collect())
}

#[test]
fn a_request_that_verifies_shows_its_events() {
    for requests in [request(), json!([request()])] {
        let (code, lines) = verify(&requests);
        assert_eq!(code, Some(0));
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let expected = json!({
            "provider": "stripe",
            "name": "one",
            "valid": true,
            "reason": null,
            "events": line["events"],
            "response": null
        });
        assert_eq!(line, &expected);
        let event = &line["events"][0];
        assert_eq!(event["id"], "evt_1");
        assert_eq!(event["type"], "payment_intent.succeeded");
        assert_eq!(event["occurred_at"], SIGNED_AT * 1000);
        let keys: Vec<_> = event.as_object().expect("an event").keys().collect();
        assert_eq!(keys, ["id", "object", "occurred_at", "type"]);
    }
}

#[test]
fn a_body_may_come_as_base64_and_a_clock_that_does_not_matter_as_null() {
    let body = request()["body"].as_str().map(|body| STANDARD.encode(body));
    let encoded = with(with(request(), "body", body.into()), "body_encoding", "base64".into());
    let timeless = with(request(), "now", Value::Null);
    let explicit = with(request(), "body_encoding", "utf8".into());
    let (code, lines) = verify(&json!([encoded, timeless, explicit]));
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(lines.iter().all(|line| line["events"][0]["id"] == "evt_1"), "{lines:?}");
}

#[test]
fn what_fails_is_named_and_one_failure_of_many_is_a_no() {
    let body = request()["body"].as_str().expect("text").replace("evt_1", "evt_2");
    let without_headers = with(request(), "headers", json!({}));
    let mut without_secret = request();
    without_secret.as_object_mut().expect("an object").remove("secret");
    let wrong_secret = with(request(), "secret", "whsec_other".into());
    let cases = [
        (request(), Value::Null),
        (with(request(), "body", body.into()), "bad_signature".into()),
        (wrong_secret, "bad_signature".into()),
        (with(request(), "now", json!(SIGNED_AT + 301)), "stale_timestamp".into()),
        (with(request(), "now", json!(SIGNED_AT + 299)), Value::Null),
        (
            with(with(request(), "now", json!(SIGNED_AT + 599)), "tolerance_s", json!(600)),
            Value::Null,
        ),
        (without_headers, "no_signature".into()),
        (with(request(), "provider", "nobody".into()), "unknown_provider".into()),
        (without_secret, "invalid_secret".into()),
        (with(request(), "body_encoding", "rot13".into()), "malformed_request".into()),
        (with(request(), "body_encoding", "base64".into()), "malformed_request".into()),
    ];
    let requests: Vec<_> = cases.iter().map(|(request, _)| request.clone()).collect();
    let (code, lines) = verify(&json!(requests));
    assert_eq!(code, Some(1));
    assert_eq!(lines.len(), cases.len());
    for (line, (request, reason)) in lines.iter().zip(&cases) {
        assert_eq!(&line["reason"], reason, "{line} of {request}");
        assert_eq!(line["valid"], reason.is_null(), "{line}");
        assert!(reason.is_null() || line["events"] == json!([]), "{line}");
    }
    let (code, _) = verify(&json!([request(), request()]));
    assert_eq!(code, Some(0));
}

#[test]
fn a_rejected_request_shows_what_its_provider_hears_where_that_is_particular() {
    let signature = STANDARD.encode([0_u8; 32]);
    let wrong = json!({
        "provider": "xero",
        "secret": "of the app",
        "method": "POST",
        "headers": { "x-xero-signature": signature },
        "body": "{}"
    });
    let unsigned = with(wrong.clone(), "headers", json!({}));
    let ordinary = with(request(), "secret", "whsec_other".into());
    let (code, lines) = verify(&json!([wrong, unsigned, ordinary]));
    assert_eq!(code, Some(1));
    let told: Vec<_> = lines.iter().map(|line| (&line["reason"], &line["response"])).collect();
    let xero = json!({ "status": 401, "headers": {}, "body": "" });
    let expected = [
        (&json!("bad_signature"), &xero),
        (&json!("no_signature"), &xero),
        (&json!("bad_signature"), &Value::Null),
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_authentic_request_without_an_event_id_is_unidentifiable() {
    let delivery = tests::world::stripe_body(br#"{"object":"event"}"#);
    let (code, lines) = verify(&with(as_request(&delivery), "now", Value::Null));
    assert_eq!(code, Some(1));
    assert_eq!(lines[0]["reason"], "unidentifiable");
    assert_eq!(lines[0]["valid"], true, "its signature holds all the same");
}

#[test]
fn a_person_reads_the_reason_too() {
    let folder = folder();
    let stale = with(request(), "now", json!(SIGNED_AT + 301));
    let file = write(&folder, "request.json", &json!([request(), stale]).to_string());
    let verify = run(folder.path(), &["verify", "--request", &file]);
    assert_eq!(verify.code, Some(1), "{verify:?}");
    assert!(verify.stdout.contains("stripe one: valid\n  event evt_1"), "{verify:?}");
    assert!(verify.stdout.contains("invalid, stale_timestamp"), "{verify:?}");
}

#[test]
fn a_file_without_requests_is_a_wrong_call_and_is_not_quoted() {
    let folder = folder();
    let absent = run(folder.path(), &["verify", "--request", "nowhere.json"]);
    assert_eq!(absent.code, Some(2), "{absent:?}");
    assert!(absent.stderr.contains("nowhere.json"), "{absent:?}");
    for text in [
        r#"{"provider":"stripe","secret":"hunter2","#,
        r#"{"provider":"stripe","secret":["hunter2"],"body":""}"#,
        r#"{"provider":1,"secret":"hunter2"}"#,
        r#""hunter2""#,
        "hunter2",
        "",
    ] {
        let file = write(&folder, "request.json", text);
        for json in [&[][..], &["--json"]] {
            let verify = run(folder.path(), &[&["verify", "--request", &file][..], json].concat());
            assert_eq!(verify.code, Some(2), "{text}: {verify:?}");
            assert!(verify.stderr.contains("request.json"), "{verify:?}");
            assert!(!format!("{verify:?}").contains("hunter2"), "{verify:?}");
        }
    }
}

#[test]
fn a_provider_of_ones_own_is_known_by_the_configuration() {
    let folder = folder();
    let catalogue = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/providers/catalogue");
    let stripe = fs::read_to_string(Path::new(catalogue).join("stripe.toml")).expect("a file");
    let renamed = stripe.replace("name = \"stripe\"", "name = \"acme\"");
    assert_ne!(renamed, stripe);
    write(&folder, "acme.toml", &renamed);
    let config = source("", "handler = \"payments\"").replace("\"stripe\"", "\"acme.toml\"");
    let config = write(&folder, "hookonce.toml", &config);
    let request = with(request(), "provider", "acme".into()).to_string();
    let file = write(&folder, "request.json", &request);
    let unknown = run(folder.path(), &["verify", "--request", &file, "--json"]);
    assert_eq!(json_of(&unknown)["reason"], "unknown_provider");
    let known = run(folder.path(), &["verify", "--request", &file, "--config", &config, "--json"]);
    assert_eq!(known.code, Some(0), "{known:?}");
    assert_eq!(json_of(&known)["events"][0]["id"], "evt_1");
}

#[test]
fn the_published_vectors_are_judged_as_expected() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors.json");
    let Ok(text) = fs::read_to_string(path) else {
        println!("0 published vectors judged: none on this machine");
        return;
    };
    let vectors: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let (code, lines) = verify(&json!(vectors));
    assert_eq!(code, Some(1));
    assert_eq!(lines.len(), vectors.len());
    let mut judged = 0;
    for (line, vector) in lines.iter().zip(&vectors) {
        assert_eq!(line["name"], vector["name"]);
        // A digest on its own is no delivery; the catalogue's own tests make one of it.
        if vector["kind"] == "primitive" {
            continue;
        }
        judged += 1;
        assert_judged(line, vector);
    }
    println!("{judged} published vectors judged");
    assert!(judged >= 170, "{judged}");
}

fn assert_judged(line: &Value, vector: &Value) {
    assert_eq!(line["valid"], vector["expect"] == "valid", "{line} of {vector}");
    if let Some(ids) = vector["expect_event_ids"].as_array() {
        let events = line["events"].as_array().expect("events");
        let found: Vec<_> = events.iter().map(|event| event["id"].clone()).collect();
        assert_eq!(&found, ids, "{line}");
    }
    if let Some(response) = vector["expect_response"].as_str() {
        let body = line["response"]["body"].as_str().unwrap_or_default();
        assert!(body.contains(response), "{line}");
        assert_eq!(line["response"]["status"], 200);
    }
}

// ---- send -----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_event_sent_often_is_acknowledged_each_time_and_recorded_once() {
    let folder = folder();
    let dev = Dev::start(folder.path(), &[]).await;
    let often = ["--times", "12", "--parallel", "6", "--id", "evt_often", "--json"];
    let sent = send(&dev, folder.path(), DEV_SECRET, &often);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let report = json_of(&sent);
    assert_eq!(report["statuses"], json!({ "200": 12 }));
    assert_eq!((&report["sent"], &report["id"]), (&json!(12), &json!("evt_often")));
    assert_eq!(records(&dev).await, ["stripe#evt_often"]);

    let body = request()["body"].as_str().expect("text").replace("evt_1", "evt_of_file");
    let file = write(&folder, "event.json", &body);
    let sent = send(&dev, folder.path(), DEV_SECRET, &["--event", &file]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.stdout.contains("1 × 200"), "{sent:?}");
    assert_eq!(records(&dev).await, ["stripe#evt_of_file", "stripe#evt_often"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_authentic_is_refused_and_leaves_no_record() {
    let folder = folder();
    let dev = Dev::start(folder.path(), &[]).await;
    let tampered = send(&dev, folder.path(), DEV_SECRET, &["--tamper", "--times", "3", "--json"]);
    assert_eq!(tampered.code, Some(0), "{tampered:?}");
    assert_eq!(json_of(&tampered)["statuses"], json!({ "401": 3 }));
    let other = send(&dev, folder.path(), "literal:whsec_other", &["--json"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert_eq!(json_of(&other)["statuses"], json!({ "401": 1 }));
    assert_eq!(records(&dev).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_delivery_verifies_on_a_clock_of_its_time() {
    let folder = folder();
    let dev = Dev::start(folder.path(), &["--now", "1700000000"]).await;
    let then = send(&dev, folder.path(), DEV_SECRET, &["--now", "1700000010", "--id", "evt_then"]);
    assert_eq!(then.code, Some(0), "{then:?}");
    // Signed by today's clock: the future, over there.
    let today = send(&dev, folder.path(), DEV_SECRET, &["--json"]);
    assert_eq!(today.code, Some(1), "{today:?}");
    assert_eq!(json_of(&today)["statuses"], json!({ "401": 1 }));
    assert_eq!(records(&dev).await, ["stripe#evt_then"]);
}

#[test]
fn nobody_at_the_other_end_is_a_no_and_a_senseless_call_a_wrong_one() {
    let folder = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let send =
        |arguments: &[&str]| run(folder.path(), &[&["send"], arguments, &["--url", &url]].concat());
    let nobody = send(&["stripe", "--secret", DEV_SECRET]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    let said = format!("cannot reach {url}");
    assert!(nobody.stdout.contains(&said), "{nobody:?}");
    for (arguments, said) in [
        (&["nobody", "--secret", DEV_SECRET][..], "`nobody` is not in the catalogue"),
        (&["stripe", "--secret", "hunter2"], "--secret: a secret is given by reference"),
        (&["stripe", "--secret", "env:NOT_SET_ANYWHERE"], "env:NOT_SET_ANYWHERE"),
        (&["stripe", "--secret", DEV_SECRET, "--event", "nowhere.json"], "nowhere.json"),
        (&["stripe", "--secret", DEV_SECRET, "--times", "0"], "--times"),
        (&["stripe", "--secret", DEV_SECRET, "--parallel", "0"], "--parallel"),
        (&["stripe"], "--secret"),
    ] {
        let wrong = send(arguments);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.stderr.contains(said), "not `{said}`: {wrong:?}");
        assert!(!wrong.stderr.contains("hunter2"), "{wrong:?}");
    }
}

fn send(dev: &Dev, folder: &Path, secret: &str, more: &[&str]) -> Ended {
    let url = dev.url("receiver");
    run(folder, &[&["send", "stripe", "--url", url, "--secret", secret], more].concat())
}

/// The keys of all records, in order.
async fn records(dev: &Dev) -> Vec<String> {
    let ledger = dev.ledger();
    let scan = ledger.client().scan().table_name(ledger.table()).consistent_read(true);
    let items = scan.send().await.expect("a scan").items.unwrap_or_default();
    let mut keys: Vec<_> =
        items.iter().filter_map(|item| item.get("pk")?.as_s().ok().cloned()).collect();
    keys.sort();
    keys
}

/// Of the source that `dev` has without a configuration.
const DEV_SECRET: &str = "literal:whsec_hookonce_dev";
