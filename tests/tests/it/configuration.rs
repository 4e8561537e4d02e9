//! The configuration: what is right is taken as it is meant, what is wrong is refused at start,
//! all at once, by its key, and without a word of any secret.

use std::{path::Path, time::Duration};

use domain::event::Source;
use runtime::{
    config::{Config, Format, SourceConfig, Trust},
    route::{Destination, TypePattern},
    secrets::SecretRef,
};
use serde_json::{Value, json};

/// What no error may show.
const HUNTER: &str = "whsec_hunter2";

fn parse(text: &str, format: Format, folder: Option<&Path>) -> Result<Config, String> {
    Config::parse("hookonce.toml", text, format, folder, Trust::Local)
        .map_err(|error| error.to_string())
}

fn toml(text: &str) -> Result<Config, String> {
    parse(text, Format::Toml, None)
}

fn refusal(config: &Value) -> String {
    match parse(&config.to_string(), Format::Json, None) {
        Ok(_) => panic!("taken: {config}"),
        Err(refusal) => refusal,
    }
}

/// A good source with these members in place of its own; `null` takes one away.
fn with(members: &Value) -> Value {
    let mut source = json!({
        "provider": "stripe",
        "secrets": ["env:STRIPE_SECRET"],
        "deliver": { "handler": "payments" }
    });
    let source_members = source.as_object_mut().expect("an object");
    for (name, value) in members.as_object().expect("an object") {
        if value.is_null() {
            source_members.remove(name);
        } else {
            source_members.insert(name.clone(), value.clone());
        }
    }
    json!({ "sources": { "stripe": source } })
}

fn stripe(config: &Config) -> &SourceConfig {
    &config.sources[&Source::new("stripe").expect("valid")]
}

// ---- right ----------------------------------------------------------------------------------

const EXAMPLE: &str = r#"
[sources.stripe]
provider = "stripe"
secrets = ["env:STRIPE_WEBHOOK_SECRET"]
retention = "45d"
public_url = "https://hooks.example.com/webhooks/stripe"

[sources.stripe.deliver]
http = "http://127.0.0.1:4000/stripe"
signing_secret = "env:FORWARD_SECRET"
timeout = "10s"
"#;

fn assert_is_the_example(config: &Config) {
    let source = stripe(config);
    assert_eq!(source.provider.name(), "stripe");
    assert_eq!(source.secrets, [SecretRef::Env("STRIPE_WEBHOOK_SECRET".to_owned())]);
    assert_eq!(source.policy.retention.duration(), Duration::from_secs(45 * 86_400));
    let url = source.public_url.as_ref().map(url::Url::as_str);
    assert_eq!(url, Some("https://hooks.example.com/webhooks/stripe"));
    let [route] = source.routes.as_slice() else { panic!("one route") };
    assert_eq!(route.types, [TypePattern::Any]);
    let Destination::Http(http) = &route.destination else { panic!("by HTTP") };
    assert_eq!(http.url.as_str(), "http://127.0.0.1:4000/stripe");
    assert_eq!(http.signing_secret, Some(SecretRef::Env("FORWARD_SECRET".to_owned())));
    assert_eq!(http.timeout, Duration::from_secs(10));
    assert!(http.permanent.is_empty());
}

#[test]
fn the_designs_example_means_the_same_in_toml_and_json() {
    assert_is_the_example(&toml(EXAMPLE).expect("valid"));
    let json = json!({ "sources": { "stripe": {
        "provider": "stripe",
        "secrets": ["env:STRIPE_WEBHOOK_SECRET"],
        "retention": "45d",
        "public_url": "https://hooks.example.com/webhooks/stripe",
        "deliver": {
            "http": "http://127.0.0.1:4000/stripe",
            "signing_secret": "env:FORWARD_SECRET",
            "timeout": "10s"
        }
    } } });
    assert_is_the_example(&parse(&json.to_string(), Format::Json, None).expect("valid"));
}

#[test]
fn what_is_left_out_has_the_documented_defaults() {
    let config = parse(&with(&json!({})).to_string(), Format::Json, None).expect("valid");
    assert_eq!(config.clock_skew, domain::limits::CLOCK_SKEW);
    let source = stripe(&config);
    assert_eq!(source.policy.attempt_limit, 16);
    assert!(!source.policy.drop_payload_when_done);
    assert_eq!(source.policy.retention.duration(), source.required.retention);
    assert_eq!(source.required.retention, Duration::from_secs(33 * 86_400));
    assert_eq!((source.tolerance, source.public_url.is_none()), (None, true));
    assert!(source.route(None).is_some(), "an event without a type is taken too");
}

#[test]
fn every_setting_of_a_source_is_taken() {
    let config = with(&json!({
        "tolerance": "10m",
        "payload": "drop-when-done",
        "attempts": 50,
        "backoff": { "first": "1s", "longest": "24h" },
        "secrets": ["env:A", "secretsmanager:prod/stripe#signing", "ssm:/a/b", "literal:c:d"],
    }));
    let config = parse(&config.to_string(), Format::Json, None).expect("valid");
    let source = stripe(&config);
    assert_eq!(source.tolerance, Some(Duration::from_secs(600)));
    assert_eq!(source.policy.attempt_limit, 50);
    assert!(source.policy.drop_payload_when_done);
    assert_eq!(source.policy.backoff.wait(1, 1.0), Duration::from_secs(1));
    assert_eq!(source.policy.backoff.wait(50, 1.0), Duration::from_secs(86_400));
    let shown: Vec<_> = source.secrets.iter().map(ToString::to_string).collect();
    let expected = ["env:A", "secretsmanager:prod/stripe#signing", "ssm:/a/b", "literal:…"];
    assert_eq!(shown, expected);
}

#[test]
fn types_and_routes_choose_what_is_taken() {
    let types = with(&json!({ "types": ["payment_intent.*", "charge.refunded"] }));
    let routes = with(&json!({ "deliver": null, "routes": [
        { "types": ["payment_intent.*"], "handler": "payments" },
        { "types": ["charge.refunded"], "http": "https://example.com/", "permanent": [401, 404] }
    ] }));
    for config in [types, routes] {
        let config = parse(&config.to_string(), Format::Json, None).expect("valid");
        let source = stripe(&config);
        for (event_type, taken) in [
            (Some("payment_intent.succeeded"), true),
            (Some("charge.refunded"), true),
            (Some("charge.refunded.x"), false),
            (Some("payment_intents"), false),
            (None, false),
        ] {
            assert_eq!(source.route(event_type).is_some(), taken, "{event_type:?}");
        }
        let refunds = source.route(Some("charge.refunded")).expect("a route");
        if let Destination::Http(http) = &refunds.destination {
            assert_eq!(http.permanent, [401, 404]);
            assert_eq!(http.timeout, Duration::from_secs(10), "the default");
        }
    }
}

// ---- wrong ----------------------------------------------------------------------------------

/// Checks that each of these is refused with these words.
fn assert_refused(cases: &[(Value, &[&str])]) {
    for (config, words) in cases {
        let refusal = refusal(config);
        for word in *words {
            assert!(refusal.contains(word), "no `{word}` in: {refusal}\nof: {config}");
        }
        assert!(refusal.starts_with("hookonce.toml:"), "{refusal}");
        assert!(!refusal.contains("hunter2"), "a secret is shown: {refusal}");
    }
}

#[test]
fn unknown_keys_are_named_at_each_level() {
    let route = json!({ "types": ["*"], "handler": "payments", "colour": 1 });
    assert_refused(&[
        (json!({ "colour": 1, "sources": {} }), &["colour"]),
        (with(&json!({ "colour": 1 })), &["colour"]),
        (with(&json!({ "secret": HUNTER })), &["`secret`", "`secrets`"]),
        (with(&json!({ "deliver": { "handler": "payments", "colour": 1 } })), &["colour"]),
        (with(&json!({ "deliver": null, "routes": [route] })), &["colour"]),
        (with(&json!({ "backoff": { "first": "1s", "longest": "2s", "colour": 1 } })), &["colour"]),
    ]);
}

#[test]
fn missing_and_mistyped_settings_are_named() {
    assert_refused(&[
        (with(&json!({ "provider": null })), &["provider"]),
        (with(&json!({ "secrets": null })), &["secrets"]),
        (with(&json!({ "attempts": "many" })), &["string", "u32"]),
        (with(&json!({ "payload": "forget" })), &["forget", "drop-when-done"]),
        (json!({}), &["sources", "[sources.NAME]"]),
        (json!({ "sources": {} }), &["sources", "[sources.NAME]"]),
    ]);
}

#[test]
fn providers_that_are_unknown_are_named_with_those_that_are_known() {
    assert_refused(&[
        (
            with(&json!({ "provider": "stripes" })),
            &["sources.stripe.provider", "stripes", "stripe", "github", ".toml"],
        ),
        (with(&json!({ "provider": "" })), &["sources.stripe.provider"]),
        (
            with(&json!({ "provider": "nowhere/own.toml" })),
            &["sources.stripe.provider", "cannot read nowhere/own.toml"],
        ),
    ]);
}

#[test]
fn secrets_are_given_by_reference_and_never_quoted() {
    let key = "sources.stripe.secrets";
    let forward = |secret: Value| {
        with(&json!({ "deliver": { "http": "https://example.com/", "signing_secret": secret } }))
    };
    let forward_key = "sources.stripe.deliver.signing_secret";
    assert_refused(&[
        (with(&json!({ "secrets": [] })), &[key, "nothing could be verified"]),
        (with(&json!({ "deliver": HUNTER })), &["invalid type: string, expected"]),
        (with(&json!({ "secrets": [HUNTER] })), &["sources.stripe.secrets[0]", "not as itself"]),
        (with(&json!({ "secrets": ["env:A", HUNTER] })), &["sources.stripe.secrets[1]"]),
        (with(&json!({ "secrets": ["vault:whsec_hunter2"] })), &[key, "secretsmanager"]),
        (with(&json!({ "secrets": ["whsec:hunter2"] })), &[key, "scheme"]),
        (with(&json!({ "secrets": ["env:"] })), &[key, "`env:` names nothing"]),
        (with(&json!({ "secrets": ["literal:"] })), &[key, "names nothing"]),
        (with(&json!({ "secrets": HUNTER })), &["list of secret references"]),
        (with(&json!({ "secrets": [[HUNTER]] })), &["list of secret references"]),
        (with(&json!({ "secrets": { "a": HUNTER } })), &["list of secret references"]),
        (with(&json!({ "secrets": [{ "a": HUNTER }] })), &["list of secret references"]),
        (forward(json!(HUNTER)), &[forward_key, "not as itself"]),
        (forward(json!([HUNTER])), &["secret reference"]),
        (forward(json!({ "a": HUNTER })), &["secret reference"]),
    ]);
}

#[test]
fn secrets_are_not_quoted_from_toml_either() {
    let texts = [
        "secrets = \"whsec_hunter2\"",
        "secrets = [\"whsec_hunter2\"]",
        "secrets = [[\"whsec_hunter2\"]]",
        "secrets = { a = \"whsec_hunter2\" }",
        "secrets = [whsec_hunter2]",
        "secrets = whsec_hunter2",
        "secrets = [\"whsec_hunter2",
        "secrets = ['whsec_hunter2\"]",
        "secrets = [\"whsec_hunter2\" \"b\"]",
        "secrets = [\"\\q whsec_hunter2\"]",
        "secrets = [\"env:A\"]\nwhsec_hunter2",
        "secrets = [\"env:A\"]\nsecrets = [\"whsec_hunter2\"]",
        "secrets = [\"env:A\"]\ndeliver.signing_secret = 5 # whsec_hunter2",
        "secrets = [\"env:A\"]\nsigning_secret = \"whsec_hunter2\"",
    ];
    for text in texts {
        let text = format!("[sources.stripe]\nprovider = \"stripe\"\n{text}\n");
        let refusal = toml(&text).expect_err("refused");
        assert!(!refusal.contains("hunter2"), "a secret is shown: {refusal}\nof: {text}");
    }
}

#[test]
fn a_literal_secret_is_for_local_use_only() {
    let config = with(&json!({ "secrets": ["literal:whsec_hunter2"] })).to_string();
    assert!(parse(&config, Format::Json, None).is_ok());
    let deployed = Config::parse("x", &config, Format::Json, None, Trust::Deployed);
    let refusal = deployed.expect_err("refused").to_string();
    assert!(refusal.contains("sources.stripe.secrets[0]"), "{refusal}");
    assert!(refusal.contains("local use only") && !refusal.contains("hunter2"), "{refusal}");
    let parsed = parse(&config, Format::Json, None).expect("valid");
    assert!(!format!("{parsed:?}").contains("hunter2"), "shown by Debug");
}

#[test]
fn retention_covers_the_providers_windows() {
    tests::seeded::switch_on();
    let key = "sources.stripe.retention";
    assert_refused(&[
        (with(&json!({ "retention": "32d" })), &[key, "30d", "3d", "set 33d or more"]),
        (with(&json!({ "retention": "0s" })), &[key, "too short"]),
        (with(&json!({ "retention": "11y" })), &[key, "too long"]),
        (with(&json!({ "retention": "18446744073709551615s" })), &[key, "too long"]),
        (with(&json!({ "retention": "45" })), &[key, "45d"]),
        (with(&json!({ "retention": "long" })), &[key, "45d"]),
        (with(&json!({ "retention": "-1d" })), &[key]),
        (with(&json!({ "retention": "" })), &[key]),
    ]);
    let exact = with(&json!({ "retention": "33d" })).to_string();
    assert!(parse(&exact, Format::Json, None).is_ok());
}

#[test]
fn durations_and_counts_out_of_range_are_named() {
    let backoff = |first: &str, longest: &str| {
        with(&json!({ "backoff": { "first": first, "longest": longest } }))
    };
    let mut skewed = with(&json!({}));
    skewed["clock_skew"] = json!("1m");
    assert_refused(&[
        (with(&json!({ "tolerance": "five" })), &["sources.stripe.tolerance"]),
        (with(&json!({ "tolerance": "0s" })), &["sources.stripe.tolerance", "1day"]),
        (with(&json!({ "tolerance": "2d" })), &["sources.stripe.tolerance", "1day"]),
        (with(&json!({ "attempts": 0 })), &["sources.stripe.attempts", "1 to 50"]),
        (with(&json!({ "attempts": 51 })), &["sources.stripe.attempts", "1 to 50"]),
        (backoff("10s", "5s"), &["sources.stripe.backoff"]),
        (backoff("10ms", "5s"), &["sources.stripe.backoff", "1s or more"]),
        (backoff("1s", "25h"), &["sources.stripe.backoff", "24h"]),
        (backoff("soon", "5s"), &["sources.stripe.backoff.first"]),
        (backoff("1s", "late"), &["sources.stripe.backoff.longest"]),
        (skewed, &["clock_skew", "5s"]),
    ]);
}

#[test]
fn a_source_goes_one_way() {
    let handler = json!({ "handler": "payments" });
    let route = json!({ "types": ["*"], "handler": "payments" });
    let deliver = "sources.stripe.deliver";
    assert_refused(&[
        (with(&json!({ "deliver": null })), &["sources.stripe", "`deliver`", "`routes`"]),
        (with(&json!({ "deliver": handler, "routes": [route] })), &["either one `deliver`"]),
        (
            with(&json!({ "deliver": null, "types": ["a"], "routes": [route] })),
            &["either one `deliver`"],
        ),
        (with(&json!({ "deliver": {} })), &[deliver, "one destination"]),
        (
            with(&json!({ "deliver": { "handler": "a", "http": "https://example.com/" } })),
            &[deliver, "one destination"],
        ),
        (
            with(&json!({ "deliver": { "handler": "a", "timeout": "1s" } })),
            &[deliver, "go with `http`"],
        ),
        (
            with(&json!({ "deliver": null, "routes": [{ "types": ["*"] }] })),
            &["sources.stripe.routes[0]", "one destination"],
        ),
    ]);
}

#[test]
fn types_that_are_none_or_taken_twice_are_named() {
    let routes = |one: Value, two: Value| {
        with(&json!({ "deliver": null, "routes": [
            { "types": one, "handler": "payments" },
            { "types": two, "http": "https://example.com/" }
        ] }))
    };
    let types = "sources.stripe.deliver.types";
    assert_refused(&[
        (with(&json!({ "types": [] })), &[types, "\"*\" takes all"]),
        (with(&json!({ "types": ["a*b"] })), &[types, "a*b"]),
        (with(&json!({ "types": [""] })), &[types]),
        (routes(json!(["a"]), json!([])), &["sources.stripe.routes[1].types"]),
        (routes(json!(["a.*"]), json!(["a.b"])), &["sources.stripe", "routes 0 and 1"]),
        (routes(json!(["*"]), json!(["a"])), &["routes 0 and 1"]),
        (routes(json!(["x", "a.b"]), json!(["y", "a.b"])), &["routes 0 and 1"]),
    ]);
    let apart = routes(json!(["a.*"]), json!(["b.*"])).to_string();
    assert!(parse(&apart, Format::Json, None).is_ok());
}

#[test]
fn overlapping_routes_are_counted_as_they_are_written() {
    let config = with(&json!({ "deliver": null, "routes": [
        { "types": ["z"] },
        { "types": ["a.*"], "handler": "payments" },
        { "types": ["a.b"], "handler": "payments" }
    ] }));
    assert_refused(&[(config, &["sources.stripe.routes[0]", "routes 1 and 2"])]);
}

#[test]
fn addresses_are_http_and_calls_end_before_a_lease() {
    let http = |http: &str, members: &Value| {
        let mut deliver = json!({ "http": http });
        for (name, value) in members.as_object().expect("an object") {
            deliver[name] = value.clone();
        }
        with(&json!({ "deliver": deliver }))
    };
    let good = "https://example.com/";
    let key = "sources.stripe.deliver";
    assert_refused(&[
        (http("", &json!({})), &[key, "http"]),
        (http("example.com", &json!({})), &["sources.stripe.deliver.http", "no address"]),
        (http("ftp://example.com/", &json!({})), &[key, "http or https"]),
        (http("file:///etc/passwd", &json!({})), &[key, "http or https"]),
        (http(good, &json!({ "timeout": "46s" })), &["sources.stripe.deliver.timeout", "45s"]),
        (http(good, &json!({ "timeout": "0s" })), &["sources.stripe.deliver.timeout"]),
        (http(good, &json!({ "timeout": "soon" })), &["sources.stripe.deliver.timeout"]),
        (http(good, &json!({ "permanent": [200] })), &["sources.stripe.deliver.permanent", "200"]),
        (http(good, &json!({ "permanent": [600] })), &["sources.stripe.deliver.permanent", "600"]),
        (with(&json!({ "public_url": "hooks" })), &["sources.stripe.public_url"]),
    ]);
    let longest = http(good, &json!({ "timeout": "45s" })).to_string();
    assert!(parse(&longest, Format::Json, None).is_ok());
}

#[test]
fn a_provider_that_signs_its_url_is_refused_without_it() {
    for provider in ["twilio", "square", "hubspot"] {
        let mut config = with(&json!({ "provider": provider }));
        assert_refused(&[(
            config.clone(),
            &["sources.stripe.public_url", provider, "signs its URL"],
        )]);
        config["sources"]["stripe"]["public_url"] = "https://hooks.example.com/in".into();
        assert!(parse(&config.to_string(), Format::Json, None).is_ok(), "{provider}");
    }
}

#[test]
fn a_source_whose_name_is_none_is_named() {
    for name in ["", "Stripe", "a#b", "a/b", "ä", &"x".repeat(65)] {
        let mut config = with(&json!({}));
        let source = config["sources"]["stripe"].take();
        config["sources"] = json!({ name: source });
        assert_refused(&[(config, &[&format!("sources.{name}"), "a-z, 0-9 and '-'"])]);
    }
}

#[test]
fn all_problems_are_named_at_once() {
    let config = json!({
        "clock_skew": "1h",
        "sources": {
            "one": {
                "provider": "unheard-of",
                "secrets": [HUNTER, "vault:x"],
                "tolerance": "x",
                "attempts": 0,
                "deliver": { "http": "ftp://x", "timeout": "1h" }
            },
            "two": { "provider": "stripe", "secrets": [], "retention": "1d" },
            "THREE": { "provider": "github", "secrets": ["env:A"], "deliver": { "handler": "a" } }
        }
    });
    let words = [
        "clock_skew",
        "sources.one.provider",
        "sources.one.secrets[0]",
        "sources.one.secrets[1]",
        "sources.one.tolerance",
        "sources.one.attempts",
        "sources.one.deliver.http",
        "sources.one.deliver.timeout",
        "sources.two.secrets",
        "sources.two.retention",
        "sources.two: give it either one `deliver`",
        "sources.THREE",
    ];
    assert_refused(&[(config.clone(), &words)]);
    assert_eq!(refusal(&config).lines().count(), 1 + words.len(), "{}", refusal(&config));
}

#[test]
fn malformed_text_is_refused_with_its_line() {
    let refusal = toml("\n\n[sources.stripe\nprovider = 1\n").expect_err("refused");
    assert!(refusal.contains("line 3"), "{refusal}");
    let refusal = toml("[sources.stripe]\nprovider = \"stripe\"\nprovider = \"x\"\n");
    assert!(refusal.as_ref().is_err_and(|refusal| refusal.contains("line 3")), "{refusal:?}");
    let refusal = toml("[sources.stripe]\nprovider = 5\nsecrets = []\n").expect_err("refused");
    assert!(refusal.contains("line 2"), "{refusal}");
    for text in ["", "{", "[]", "null", "{\n\"sources\": }"] {
        let refusal = parse(text, Format::Json, None).expect_err("refused");
        assert!(refusal.starts_with("hookonce.toml: "), "{refusal}");
        assert!(refusal.contains("line"), "{refusal}");
    }
}

// ---- files ----------------------------------------------------------------------------------

const OWN_PROVIDER: &str = r#"
name = "own"
title = "Our own"
[[verify]]
scheme = "hmac"
algorithm = "sha256"
encoding = "hex"
key = { format = "raw" }
header = ["x-own-signature"]
signed = "{body}"
[[identity]]
id = [{ pointer = "/id" }]
"#;

/// A folder with a configuration that names its own provider file.
fn folder_with(provider: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("providers")).expect("a folder in it");
    std::fs::write(folder.path().join("providers/own.toml"), provider).expect("written");
    let mut config = with(&json!({ "provider": "providers/own.toml" })).to_string();
    std::fs::write(folder.path().join("hookonce.json"), &config).expect("written");
    config = "[sources.stripe]\nprovider = \"providers/own.toml\"\nsecrets = [\"env:A\"]\n\
              deliver.handler = \"payments\"\n"
        .to_owned();
    std::fs::write(folder.path().join("hookonce.toml"), config).expect("written");
    folder
}

#[test]
fn a_provider_file_of_ones_own_is_found_beside_the_configuration() {
    let folder = folder_with(OWN_PROVIDER);
    for name in ["hookonce.toml", "hookonce.json"] {
        let config = Config::read(&folder.path().join(name), Trust::Local).expect("valid");
        let source = stripe(&config);
        assert_eq!(source.provider.name(), "own");
        assert!(source.required.unknown, "no window is documented");
        assert_eq!(source.required.retention, Duration::from_secs(33 * 86_400));
    }
}

#[test]
fn a_provider_file_that_is_refused_is_named_with_its_key() {
    let unsigned = OWN_PROVIDER.replace("signed = \"{body}\"", "signed = \"\"");
    let mistyped = OWN_PROVIDER.replace("encoding", "encodign");
    for (provider, words) in [(unsigned, "signed"), (mistyped, "encodign")] {
        let folder = folder_with(&provider);
        let refused = Config::read(&folder.path().join("hookonce.toml"), Trust::Local);
        let refusal = refused.expect_err("refused").to_string();
        for word in ["sources.stripe.provider", "own.toml", words] {
            assert!(refusal.contains(word), "no `{word}` in: {refusal}");
        }
    }
}

#[test]
fn a_configuration_that_cannot_be_read_says_which_and_what_to_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent.toml");
    let refusal = Config::read(&absent, Trust::Local).expect_err("refused").to_string();
    assert!(refusal.contains("absent.toml") && refusal.contains("HOOKONCE_CONFIG"), "{refusal}");
}

// ---- providers of its own -------------------------------------------------------------------

/// A provider file, as it stands within a configuration.
fn teapots() -> Value {
    json!({
        "name": "teapots",
        "title": "Teapots",
        "verify": [{
            "scheme": "hmac",
            "algorithm": "sha256",
            "encoding": "hex",
            "key": { "format": "raw" },
            "header": ["x-teapots-signature"],
            "signed": "{body}"
        }],
        "identity": [{ "id": [{ "pointer": "/id" }] }]
    })
}

fn with_own(name: &str, provider: &Value) -> Result<Config, String> {
    let config = json!({
        "providers": { name: provider },
        "sources": { "shop": {
            "provider": name,
            "secrets": ["literal:ours"],
            "deliver": { "handler": "test" }
        }}
    });
    Config::parse("test", &config.to_string(), Format::Json, None, Trust::Local)
        .map_err(|error| error.to_string())
}

#[test]
fn a_configuration_may_bring_a_provider_of_its_own_along() {
    let config = with_own("teapots", &teapots()).expect("valid");
    let source = config.sources.values().next().expect("one");
    assert_eq!(source.provider.name(), "teapots");
}

#[test]
fn a_provider_of_its_own_is_checked_as_a_file_is() {
    let changed = |pointer: &str, value: Value| {
        let mut provider = teapots();
        *provider.pointer_mut(pointer).expect("there") = value;
        provider
    };
    let mut unknown = teapots();
    unknown["verify"][0]["hush"] = json!("whsec_hush");
    for (name, provider, words) in [
        ("teapots", changed("/name", json!("kettles")), "providers.teapots.name: it is teapots"),
        ("stripe", changed("/name", json!("stripe")), "the catalogue has one of this name"),
        ("teapots", changed("/identity", json!([])), "providers.teapots: identity: without an id"),
        ("teapots", changed("/verify/0/key", json!("whsec_hush")), "providers.teapots: "),
        ("teapots", unknown, "providers.teapots: unknown field `hush`"),
    ] {
        let refused = with_own(name, &provider).expect_err(words);
        assert!(refused.contains(words), "{words}: {refused}");
        assert!(!refused.contains("whsec_hush"), "{refused}");
    }
}
