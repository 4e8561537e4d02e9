//! `hookonce providers`, and `send` for each of them: what a user reads is enough to set any of
//! them up, and what is sent for any of them is received.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use providers::Provider;
use receiver::Receiver;
use runtime::config::{Config, Trust};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tests::{
    programs::{Ended, run},
    world::{TABLE, World, raw_event},
};
use tokio::net::TcpListener;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Runs `hookonce` somewhere, which has to go well.
fn said(arguments: &[&str]) -> String {
    let ended = run(folder().path(), arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
    ended.stdout
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

// ---- the list -------------------------------------------------------------------------------

#[test]
fn the_list_has_a_line_for_each_provider_and_fits_a_hundred_columns() {
    let list = said(&["providers"]);
    for line in list.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let (rows, legend) = list.split_once("\n\n").expect("a legend");
    let names = rows.lines().skip(1).filter_map(|row| row.split_whitespace().next());
    assert_eq!(names.collect::<Vec<_>>(), Provider::builtin_names());
    assert!(legend.starts_with(&format!("{} providers", Provider::builtin_names().len())));
    let row = |name: &str| {
        let row = rows.lines().find(|row| row.starts_with(&format!("{name} ")));
        row.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("stripe"), "stripe HMAC-SHA256, hex id 3d doc 30d doc 4");
    assert_eq!(row("github"), "github HMAC-SHA256, hex x-github-delivery never doc 7d doc 5 it");
    assert_eq!(row("circleci"), "circleci HMAC-SHA256, hex id ? ? 2 t");
    assert_eq!(row("square"), "square HMAC-SHA256, base64 event_id 1d doc 28d sdk 2 t");
    assert_eq!(row("svix"), "svix HMAC-SHA256, base64 +1 webhook-id 1d3h doc 90d sdk 2");
    assert_eq!(
        row("dropbox"),
        "dropbox HMAC-SHA256, hex accounts + arrival 10m sec never doc 2 itn"
    );
}

#[test]
fn the_list_as_json_has_of_each_what_is_shown_of_it() {
    let list = json_of(&said(&["providers", "--json"]));
    let list = list.as_array().expect("a list");
    let names: Vec<_> = list.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, Provider::builtin_names());
    for one in list {
        let name = &one["name"];
        assert!(one["title"].as_str().is_some_and(|title| !title.is_empty()), "{name}");
        for some in ["schemes", "identities", "samples"] {
            assert!(one[some].as_array().is_some_and(|some| !some.is_empty()), "{name}: {some}");
        }
        for scheme in one["schemes"].as_array().into_iter().flatten() {
            for word in ["method", "place", "covers", "secret"] {
                assert!(scheme[word].as_str().is_some_and(|word| !word.is_empty()), "{scheme}");
            }
        }
    }
    let stripe = json_of(&said(&["providers", "show", "stripe", "--json"]));
    assert_eq!(Some(&stripe), list.iter().find(|one| one["name"] == "stripe"));
    let manual = &stripe["windows"]["manual"];
    assert_eq!(
        (&manual["seconds"], &manual["confidence"]),
        (&json!(2_592_000), &json!("documented"))
    );
    assert!(
        manual["page"].as_str().is_some_and(|page| page.starts_with("https://docs.stripe.com"))
    );
    assert_eq!(
        stripe["retention"],
        json!({
            "window_s": 2_592_000, "window_assumed": false, "required_s": 33 * 86_400
        })
    );
    assert_eq!(stripe["traps"], json!([]));
}

// ---- one of them ----------------------------------------------------------------------------

#[test]
fn what_is_shown_names_signature_secret_id_handshake_windows_and_settings() {
    for (name, words) in [
        (
            "stripe",
            &[
                "signature: HMAC-SHA256, hex",
                "where: header stripe-signature, as \"v1=…\" in a list with \",\" between",
                "of: `{timestamp}.{body}`",
                "time: t in header stripe-signature, at most 5m from now",
                "covers: every byte of the body",
                "secret: text, used as it is",
                "id: body /id",
                "by hand: 30d (documented, https://docs.stripe.com/cli/events/resend.md",
                "records are kept for 33d: 30d and a margin of 3d",
            ][..],
        ),
        (
            "adyen",
            &[
                "each item of body /notificationItems by itself",
                "with {reference}: body /notificationItems/*/NotificationRequestItem/merchantReference, or nothing",
                "covers: some values of the body",
                "secret: hex, which is decoded",
                "or event of kind platform",
                "id: the digest of the body",
                "we say: 200 and [accepted]",
                "within: 10s (documented",
                "by hand: for a time that is not documented",
                "33d: 30d, assumed as a window is not documented, and a margin of 3d",
                "no signed time is held against the clock",
            ],
        ),
        (
            "aws-sns",
            &[
                "when: body /SignatureVersion is \"2\"",
                "or signature: RSA-SHA1, base64",
                "with {fields}: Message, MessageId, ",
                "secret: the certificate or the public key, in PEM",
                "settings.topic_arn (optional): the topic",
                "the address at body /SubscribeURL is to be called",
            ],
        ),
        (
            "svix",
            &[
                "base64, which is decoded, with or without whsec_ before it",
                "in base64, after whpk_",
            ],
        ),
        (
            "meta",
            &[
                "GET, ",
                "has to be the setting verify_token",
                "the answer repeats query hub.challenge",
            ],
        ),
        ("zoom", &["unsigned; the answer signs body /payload/plainToken"]),
        (
            "twilio",
            &[
                "public_url: the address exactly as the provider was given it",
                "or event of kind stream, each item of the body",
                "id: form field MessageSid + (form field MessageStatus or form field SmsStatus, if it is there)",
            ],
        ),
        (
            "plaid",
            &[
                "JWT, ES256",
                "as a JSON web key",
                "the 10 seconds in which it came",
                "worked on once",
            ],
        ),
        (
            "paypal",
            &["`{transmission}|{timestamp}|{webhook_id}|{body_crc32}`", "a checksum of the body"],
        ),
    ] {
        let shown = said(&["providers", "show", name]);
        for words in words {
            assert!(shown.contains(words), "{name}: `{words}` is missing in\n{shown}");
        }
        for caution in Provider::builtin(name).expect("built in").cautions() {
            assert!(shown.contains(caution), "{name}: {caution}");
        }
    }
}

#[test]
fn the_traps_of_a_provider_are_its_files() {
    for (name, traps) in [
        ("github", &["unsigned-id", "no-signed-time"][..]),
        ("mollie-classic", &["unsigned-id", "unsigned-body", "no-signed-time", "no-id"]),
        ("mailgun", &["unsigned-id", "unsigned-body"]),
        ("slack", &[]),
    ] {
        let shown = json_of(&said(&["providers", "show", name, "--json"]));
        assert_eq!(shown["traps"], json!(traps), "{name}");
    }
}

#[test]
fn a_name_that_nobody_has_is_a_wrong_call_and_names_the_nearest() {
    let folder = folder();
    for (name, hint) in [
        ("strip", "near it: stripe"),
        ("GitHub", "near it: github"),
        ("gihtub", "near it: github"),
        ("sns", "near it: aws-sns"),
        ("discrod", "near it: discord-"),
        ("qqqq", "`hookonce providers` lists what is"),
        ("", "`hookonce providers` lists what is"),
    ] {
        let wrong = run(folder.path(), &["providers", "show", name]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.stdout.is_empty(), "{wrong:?}");
        let said = format!("`{name}` is not in the catalogue; {hint}");
        assert!(wrong.stderr.contains(&said), "not `{said}`: {wrong:?}");
    }
    for wrong in [&["providers", "show"][..], &["providers", "--json", "show", "stripe"]] {
        assert_eq!(run(folder.path(), wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_provider_file_of_ones_own_is_listed_shown_and_near() {
    let folder = folder();
    let own = r#"
name = "teapots"
title = "Teapots"

[[verify]]
scheme = "hmac"
algorithm = "sha256"
encoding = "hex"
key = { format = "raw" }
header = ["x-teapots-signature"]
signed = "{body}"

[[identity]]
id = [{ pointer = "/pot" }]
"#;
    fs::write(folder.path().join("own.toml"), own).expect("written");
    let config = r#"
[sources.kitchen]
provider = "own.toml"
secrets = ["env:KITCHEN"]
deliver = { handler = "payments" }
"#;
    fs::write(folder.path().join("hookonce.toml"), config).expect("written");
    let ask = |arguments: &[&str]| {
        run(folder.path(), &[&["providers"], arguments, &["--config", "hookonce.toml"]].concat())
    };
    let list = ask(&[]);
    assert!(list.stdout.contains("\nteapots "), "{list:?}");
    assert!(list.stdout.contains("\nstripe "), "{list:?}");
    let shown = ask(&["show", "teapots"]);
    assert!(shown.stdout.contains("where: header x-teapots-signature"), "{shown:?}");
    assert!(shown.stdout.contains("id: body /pot"), "{shown:?}");
    assert!(shown.stdout.contains("provider = \"teapots.toml\""), "{shown:?}");
    let near = ask(&["show", "teapot"]);
    assert!(near.stderr.contains("near it: teapots"), "{near:?}");
    assert_eq!(run(folder.path(), &["providers", "show", "teapots"]).code, Some(2));
    let missing = run(folder.path(), &["providers", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

#[test]
fn the_configuration_shown_of_each_provider_passes_the_check_with_a_reason_for_its_retention() {
    let folder = folder();
    let list = json_of(&said(&["providers", "--json"]));
    let list = list.as_array().expect("a list");
    let mut all = String::new();
    for one in list {
        let name = one["name"].as_str().expect("a name");
        let configuration = one["configuration"].as_str().expect("a configuration");
        let file = folder.path().join("one.toml");
        fs::write(&file, configuration).expect("written");
        // Without a secret in it, and so for a deployed function too.
        let config = Config::read(&file, Trust::Deployed);
        let config = config.unwrap_or_else(|error| panic!("{name}: {error}\n{configuration}"));
        assert_eq!(config.sources.len(), 1, "{configuration}");
        all.push_str(configuration);
        all.push('\n');
    }
    fs::write(folder.path().join("hookonce.toml"), all).expect("written");
    let check = run(folder.path(), &["check"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    let reasons = check.stdout.lines().filter(|line| line.starts_with("  retention "));
    assert_eq!(reasons.count(), list.len(), "{check:?}");
    let check = json_of(&run(folder.path(), &["check", "--json"]).stdout);
    let sources = check["sources"].as_object().expect("sources");
    assert_eq!(sources.len(), list.len());
    for one in list {
        let name = one["name"].as_str().expect("a name");
        let source = &sources[&name.replace('.', "-")];
        assert_eq!(source["provider"], one["name"]);
        assert_eq!(source["required_s"], one["retention"]["required_s"], "{name}");
        assert_eq!(source["retention_s"], source["required_s"], "{name}");
        let reason = source["reason"].as_str().expect("a reason");
        assert!(reason.contains("a margin of 3d"), "{name}: {reason}");
        let unknown = one["windows"].as_object().expect("windows").values().any(Value::is_null);
        assert_eq!(reason.contains("not documented"), unknown, "{name}: {reason}");
    }
}

#[test]
fn the_schema_for_editors_is_written_as_json() {
    let schema = json_of(&said(&["providers", "schema"]));
    assert_eq!(schema, json_of(Provider::file_schema()));
    assert!(schema["properties"]["verify"].is_object(), "{schema}");
}

#[test]
fn the_page_of_the_documentation_is_what_the_command_writes() {
    let written = said(&["providers", "--markdown"]);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(page, written)| page != written);
    assert!(page == written, "hookonce providers --markdown > docs/providers.md; {differs:?}");
    for name in Provider::builtin_names() {
        assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        let link = format!("| [{name}](#{}) |", name.replace('.', ""));
        assert!(page.contains(&link), "{link}");
    }
}

// ---- send -----------------------------------------------------------------------------------

/// The catalogue tests' own RSA key: no other is made here, and making one takes a second.
const RSA_KEY: &str = include_str!("../../../shared/providers/tests/keys/rsa.pem");
const OF_RSA: [&str; 2] = ["aws-sns", "paypal"];
/// Those whose events have nothing to be told apart by but when they came.
const WITHOUT_ID: [&str; 3] = ["dropbox", "mollie-classic", "plaid"];
const SETTING: &str = "a setting of ours";

/// A secret that signs, for a provider that shares one with its source.
fn shared_secret(provider: &Provider) -> &'static str {
    let takes = |secret: &&str| provider.key(&providers::Secret::new(*secret)).is_ok();
    // Hex and base64 at once, then text of the prefix that is required where there is one.
    ["0123456789abcdef0123456789abcdef", "whsec_b3VycyBvbmx5"]
        .into_iter()
        .find(takes)
        .unwrap_or_else(|| panic!("{}: a secret of another form is needed", provider.name()))
}

/// A receiver behind HTTP. It is served in this process, so that a test sees its world.
async fn serve(receiver: Receiver, listener: TcpListener) {
    let router = Router::new().fallback(receive).with_state(Arc::new(receiver));
    axum::serve(listener, router).await.expect("serves");
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let text = |value: &HeaderValue| Value::from(value.to_str().expect("text"));
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let headers = Value::Object(headers.collect());
    let mut event = raw_event(uri.path(), method.as_str(), &headers, &STANDARD.encode(&body), true);
    event.raw_query_string = uri.query().map(str::to_owned);
    StatusCode::from_u16(receiver.receive(event).await.status).expect("a status")
}

/// A source for the provider, as `name` and its configuration. Where it signs its URL, that is not
/// the one that is called: something stands in between.
fn source(provider: &Provider, secret: &str) -> (String, Value) {
    let name = provider.name().replace('.', "-");
    let mut source = json!({
        "provider": provider.name(),
        "secrets": [format!("literal:{secret}")],
        "deliver": { "handler": "test" }
    });
    if provider.signs_url() {
        source["public_url"] = format!("https://hooks.example.com/in/{name}?from=us").into();
    }
    let wanted = provider.settings().iter().filter(|setting| !setting.optional);
    let settings: Map<_, _> = wanted.map(|s| (s.name.clone(), SETTING.into())).collect();
    if !settings.is_empty() {
        source["settings"] = settings.into();
    }
    (name, source)
}

/// The public key of the test key that is made, or taken, in `folder`.
fn public_key(folder: &Path, name: &str, nobody: SocketAddr) -> String {
    let url = format!("http://{nobody}");
    let first = run(folder, &["send", name, "--url", &url, "--json", "--secret", "generate"]);
    assert_eq!(first.code, Some(1), "{first:?}");
    let report = json_of(&first.stdout);
    report["public_key"].as_str().unwrap_or_else(|| panic!("{name}: {report}")).to_owned()
}

/// A place where nobody listens.
fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}

#[tokio::test(flavor = "multi_thread")]
async fn three_deliveries_of_an_event_of_every_provider_are_one_record() {
    let folder = folder();
    let world = World::start().await;
    let nobody = nobody();
    let mut sources = Map::new();
    for name in Provider::builtin_names() {
        let provider = Provider::builtin(name).expect("built in");
        let secret = if provider.shares_secrets() {
            shared_secret(&provider).to_owned()
        } else if OF_RSA.contains(name) {
            let file = folder.path().join(format!("{name}-test-key.pem"));
            fs::write(file, RSA_KEY).expect("written");
            provider.test_key(RSA_KEY).expect("an RSA key").1
        } else {
            public_key(folder.path(), name, nobody)
        };
        sources.extend([source(&provider, &secret)]);
    }
    let config = json!({ "sources": sources });
    fs::write(folder.path().join("hookonce.json"), config.to_string()).expect("written");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(serve(world.receiver(&config).await, listener));
    let mut before = 0;
    for name in Provider::builtin_names() {
        let provider = Provider::builtin(name).expect("built in");
        let sent = send_three(folder.path(), &provider, &url);
        assert_eq!(sent.code, Some(0), "{name}: {sent:?}");
        let report = json_of(&sent.stdout);
        let status = provider.answer().status.to_string();
        assert_eq!(report["statuses"], json!({ status: 3 }), "{name}: {sent:?}");
        let records = world.count_records().await - before;
        before += records;
        // The time within which they are one may end between two deliveries.
        let expected = if WITHOUT_ID.contains(name) { 1..=2 } else { 1..=1 };
        assert!(expected.contains(&records), "{name}: {records} records");
    }
    assert_eq!(mismatches(&world).await, Vec::<String>::new());
}

fn send_three(folder: &Path, provider: &Provider, url: &str) -> Ended {
    let arguments = ["send", provider.name(), "--url", url, "--config", "hookonce.json"];
    let often = ["--times", "3", "--json"];
    let secret = provider.shares_secrets().then(|| format!("literal:{}", shared_secret(provider)));
    let secret = secret.iter().flat_map(|secret| ["--secret", secret.as_str()]);
    run(folder, &[&arguments[..], &often, &secret.collect::<Vec<_>>()].concat())
}

/// The records on which a delivery is noted that said something else.
async fn mismatches(world: &World) -> Vec<String> {
    let scan = world.ledger.client().scan().table_name(TABLE).consistent_read(true);
    let items = scan.send().await.expect("a scan").items.unwrap_or_default();
    let noted = items.iter().filter(|item| item.contains_key("payload_mismatch"));
    noted.filter_map(|item| item.get("pk")?.as_s().ok().cloned()).collect()
}

#[test]
fn a_test_key_is_made_once_and_is_of_the_kind_that_the_provider_signs_with() {
    let folder = folder();
    let nobody = nobody();
    for name in ["discord-interactions", "sendgrid", "plaid", "svix"] {
        let provider = Provider::builtin(name).expect("built in");
        let first = public_key(folder.path(), name, nobody);
        assert_eq!(public_key(folder.path(), name, nobody), first, "{name}: made anew");
        let other = public_key(tempfile::tempdir().expect("a folder").path(), name, nobody);
        assert_ne!(first, other, "{name}: everybody's");
        assert!(provider.key(&providers::Secret::new(first)).is_ok(), "{name}");
        let file = folder.path().join(format!("{name}-test-key.pem"));
        let pem = fs::read_to_string(&file).expect("a file");
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----"), "{name}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&file).expect("there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}: readable for others");
        }
    }
    let url = format!("http://{nobody}");
    let sent = run(folder.path(), &["send", "discord-interactions", "--url", &url]);
    assert!(sent.stdout.contains("the source needs its public key"), "{sent:?}");
    let line = sent.stdout.lines().find_map(|line| line.trim().strip_prefix("secrets = "));
    let secrets: Vec<String> = serde_json::from_str(line.expect("a line")).expect("a list");
    assert!(secrets[0].starts_with("literal:"), "{secrets:?}");
}

#[test]
fn what_cannot_be_signed_says_why_and_what_to_do() {
    let folder = folder();
    fs::write(folder.path().join("garbage.pem"), "hunter2").expect("written");
    fs::write(folder.path().join("rsa.pem"), RSA_KEY).expect("written");
    let url = format!("http://{}", nobody());
    for (arguments, said) in [
        (&["stripe"][..], "--secret: stripe signs with a secret that the source has too"),
        (&["stripe", "--secret", "generate"], "no key pair is of use to it"),
        (&["aws-sns"], "make one: openssl genpkey -algorithm RSA"),
        (&["sendgrid", "--key", "garbage.pem"], "garbage.pem: the private key is of no use"),
        (&["sendgrid", "--key", "rsa.pem"], "rsa.pem: the private key is of no use"),
        (
            &["discord", "--secret", "literal:hunter2"],
            "the secret is none of discord-interactions's",
        ),
        (&["paypal", "--key", "rsa.pem"], "no such setting; --config names a configuration"),
        (&["gihtub", "--secret", "literal:hunter2"], "near it: github"),
    ] {
        let wrong = run(folder.path(), &[&["send"], arguments, &["--url", &url]].concat());
        assert_eq!(wrong.code, Some(2), "{arguments:?}: {wrong:?}");
        assert!(wrong.stderr.contains(said), "not `{said}`: {wrong:?}");
        assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
    }
    assert!(!folder.path().join("aws-sns-test-key.pem").exists());
}
