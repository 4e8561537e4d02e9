//! The catalogue as a whole, and files that are refused.

use std::time::Duration;

use domain::retention::Retention;
use providers::{
    CannotSign, CatalogueError, Coverage, InvalidSecret, NoSample, NoTestKey, Provider,
    SampleRequest, Secret, Unidentifiable,
};

use serde_json::Value;

use crate::{NOW, key, provider, provider_at_home, secret_of, source};

const DAY: Duration = Duration::from_secs(86_400);

const SMALL: &str = r#"
name = "small"
title = "Small"
keep_headers = ["x-kind"]

[[verify]]
scheme = "hmac"
algorithm = "sha256"
encoding = "hex"
key = { format = "raw" }
header = ["x-signature"]
signed = "{body}"

[[identity]]
id = [{ pointer = "/id" }]
"#;

#[test]
fn every_built_in_file_parses_and_is_complete() {
    for name in Provider::builtin_names() {
        let provider = provider(name);
        assert_eq!(provider.name(), *name);
        assert!(!provider.title().is_empty());
        assert!(Retention::new(None, &provider.windows()).is_ok(), "{name}");
        assert!((200..300).contains(&provider.answer().status), "{name}");
        let warns = provider.cautions().iter().any(|caution| caution.contains("not signed"));
        assert!(
            provider.signs_event_id() || warns,
            "{name} has its id outside the signature and does not say so"
        );
        let is_whole = provider.coverage() == Coverage::Body;
        assert!(is_whole || !provider.cautions().is_empty(), "{name} signs less than the body");
        let warns = provider.cautions().iter().any(|caution| caution.contains("public_url"));
        assert_eq!(provider.signs_url(), warns, "{name}: whether the endpoint has to know its URL");
        assert!(provider.sample_types().next().is_some(), "{name} has no sample");
    }
    assert_eq!(Provider::builtin_names().len(), 59);
    assert_eq!(provider("discord").name(), "discord-interactions");
    assert!(Provider::builtin_names().is_sorted());
    assert!(Provider::builtin("nobody").is_none());
}

#[test]
fn retention_follows_from_the_documented_windows() {
    let retention = |name| {
        let required = provider(name).windows().required();
        (required.window, required.unknown)
    };
    assert_eq!(retention("stripe"), (30 * DAY, false));
    assert_eq!(retention("svix"), (90 * DAY, false));
    assert_eq!(retention("github"), (7 * DAY, false));
    assert_eq!(retention("slack"), (DAY, false));
    assert_eq!(retention("shopify"), (Duration::from_secs(14_400), false));
    assert_eq!(retention("standard-webhooks"), (30 * DAY, true));
    let github = provider("github");
    let never = github.automatic_window().expect("documented");
    assert_eq!(never.value, Duration::ZERO, "zero is a documented never");
    assert!(never.page.contains("github"));
}

#[test]
fn every_sample_can_be_signed_verified_and_identified() {
    for name in Provider::builtin_names() {
        let provider = provider_at_home(name);
        let key = key(&provider, secret_of(name));
        let types: Vec<_> = provider.sample_types().map(str::to_owned).collect();
        for event_type in &types {
            let request = SampleRequest { event_type: Some(event_type), id: "id_1", now: NOW };
            let unsigned = provider.sample(&request).expect("a sample");
            let signed = provider.sign(&key, unsigned, NOW).expect(name);
            let body = signed.body.clone();
            let is_form =
                signed.headers.get("content-type").is_some_and(|t| t.ends_with("encoded"));
            assert!(is_form || serde_json::from_slice::<Value>(&body).is_ok(), "{name}");
            assert!(provider.greet(&signed, std::slice::from_ref(&key)).is_none(), "{name}");
            let verified =
                provider.verify(signed, std::slice::from_ref(&key), NOW, None).expect(name);
            assert!(provider.handshake(&verified).is_none(), "{name}");
            let events = provider.identify(verified, &source()).expect(name);
            let [event] = events.as_slice() else { panic!("{name}: {events:?}") };
            // Those without a type of their own have a name for their sample all the same.
            let is_type = event.event_type.as_deref().is_none_or(|t| t == event_type.as_str());
            assert!(is_type, "{name}: {:?}", event.event_type);
            let named_by_digest = ["braintree", "meta", "woocommerce"].contains(name);
            assert!(event.key.id().as_str().contains("id_1") || named_by_digest, "{name}");
            let text = String::from_utf8_lossy(&body);
            let payload = String::from_utf8_lossy(&event.payload);
            assert!(text.contains(&*payload) && !payload.is_empty(), "{name}");
            assert!(event.content_type.is_some(), "{name}");
        }
        let default = SampleRequest { event_type: None, id: "id_1", now: NOW };
        assert!(provider.sample(&default).is_ok());
    }
}

#[test]
fn samples_that_are_not_there_are_named() {
    let request = |event_type, id| SampleRequest { event_type, id, now: NOW };
    let github = provider("github");
    let refusal = github.sample(&request(Some("star.created"), "1")).expect_err("no such sample");
    assert!(refusal.to_string().contains("push, pull_request.opened"), "{refusal}");
    for id in ["", "a b", "ä", "a\n"] {
        assert_eq!(github.sample(&request(None, id)).err(), Some(NoSample::Unprintable), "{id:?}");
    }
    let small = Provider::parse("small.toml", SMALL).expect("a provider");
    assert!(matches!(small.sample(&request(None, "1")), Err(NoSample::None { .. })));
    let quoted = provider("stripe").sample(&request(Some("a\"b\\"), "\"\\")).expect("any type");
    assert!(serde_json::from_slice::<serde_json::Value>(&quoted.body).is_ok());
}

#[test]
fn a_public_key_verifies_and_does_not_sign() {
    let provider = provider("standard-webhooks");
    let public = key(&provider, "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
    let request = SampleRequest { event_type: None, id: "msg_1", now: NOW };
    let unsigned = provider.sample(&request).expect("a sample");
    assert_eq!(provider.sign(&public, unsigned.clone(), NOW).err(), Some(CannotSign::PublicKey));
    let shared = key(&provider, "whsec_b3VycyBvbmx5OiBhIHNlY3JldCBrZXk=");
    let without_id = providers::Unsigned { headers: Vec::new(), ..unsigned };
    assert_eq!(
        provider.sign(&shared, without_id, NOW).err(),
        Some(CannotSign::Missing { place: "header webhook-id".into() })
    );
}

#[test]
fn signing_replaces_the_signature_that_was_there() {
    let provider = provider("svix");
    let key = key(&provider, "whsec_b3VycyBvbmx5OiBhIHNlY3JldCBrZXk=");
    let request = SampleRequest { event_type: None, id: "msg_1", now: NOW };
    let mut unsigned = provider.sample(&request).expect("a sample");
    unsigned.headers.push(("Svix-Signature".into(), "v1,old".into()));
    unsigned.headers.push(("svix-timestamp".into(), "1".into()));
    let signed = provider.sign(&key, unsigned, NOW).expect("signed");
    let names: Vec<_> = signed.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["content-type", "svix-id", "user-agent", "svix-timestamp", "svix-signature"]
    );
    assert!(provider.verify(signed, &[key], NOW, None).is_ok());
}

#[test]
fn a_private_key_signs_what_its_public_key_verifies() {
    let provider = provider("svix");
    let pair = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
    let public = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
    let request = SampleRequest { event_type: None, id: "msg_1", now: NOW };
    let unsigned = provider.sample(&request).expect("a sample");
    let signed = provider.sign(&key(&provider, pair), unsigned, NOW).expect("signed");
    assert!(signed.headers.get("svix-signature").is_some_and(|value| value.starts_with("v1a,")));
    assert!(provider.verify(signed, &[key(&provider, public)], NOW, None).is_ok());
}

#[test]
fn a_test_key_signs_what_the_public_key_beside_it_verifies() {
    let mut tried = 0;
    for name in Provider::builtin_names() {
        let provider = provider_at_home(name);
        let pem = match provider.generate_test_key() {
            Ok(pem) => pem,
            Err(NoTestKey::NotGenerated) => include_str!("../keys/rsa.pem").to_owned(),
            Err(error) => {
                assert!(matches!(error, NoTestKey::SharedSecret { .. }), "{name}: {error}");
                assert!(provider.shares_secrets(), "{name}");
                assert_eq!(provider.test_key("any").err(), Some(error));
                continue;
            }
        };
        tried += 1;
        let (private, public) = provider.test_key(&pem).expect(name);
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let unsigned = provider.sample(&request).expect("a sample");
        let signed = provider.sign(&private, unsigned.clone(), NOW).expect(name);
        let public = key(&provider, &public);
        assert!(
            provider.verify(signed, std::slice::from_ref(&public), NOW, None).is_ok(),
            "{name}"
        );
        assert_eq!(
            provider.sign(&public, unsigned, NOW).err(),
            Some(CannotSign::PublicKey),
            "{name}"
        );
        for other in
            ["", "hunter2", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
        {
            let refusal = provider.test_key(other).expect_err("no key");
            assert!(matches!(refusal, NoTestKey::Unfit { .. }), "{name}: {refusal}");
        }
    }
    assert!(tried >= 6, "{tried}");
}

#[test]
fn secrets_are_checked_at_start() {
    for name in Provider::builtin_names() {
        let provider = provider(name);
        assert_eq!(provider.key(&Secret::new("")).err(), Some(InvalidSecret::Empty));
        let refusal = provider.key(&Secret::new("a\n")).err();
        let is_pem = matches!(refusal, Some(InvalidSecret::Unfit { .. }));
        assert!(is_pem || refusal == Some(InvalidSecret::Whitespace), "{name}: {refusal:?}");
    }
    let refusal = provider("svix").key(&Secret::new("whsec_?")).expect_err("no base64").to_string();
    assert_eq!(
        refusal,
        "the secret is none of svix's: it is not base64; no prefix of a public key"
    );
}

#[test]
fn headers_are_kept_as_the_catalogue_says_and_never_a_signature() {
    let provider = provider("github");
    let key = key(&provider, "ours only");
    let request = SampleRequest { event_type: Some("push"), id: "guid-1", now: NOW };
    let mut unsigned = provider.sample(&request).expect("a sample");
    unsigned.headers.push(("x-github-hook-installation-target-id".into(), "9".repeat(513)));
    unsigned.headers.push(("authorization".into(), "hunter2".into()));
    let signed = provider.sign(&key, unsigned, NOW).expect("signed");
    let verified = provider.verify(signed, &[key], NOW, None).expect("verified");
    let events = provider.identify(verified, &source()).expect("identified");
    let kept: Vec<_> = events[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kept, ["x-github-event", "x-github-delivery", "x-github-hook-id"]);
}

#[test]
fn what_stripe_changes_between_attempts_does_not_make_another_payload() {
    let stripe = provider("stripe");
    let attempt = |pending: u32| format!("{{\"id\":\"evt_1\",\"pending_webhooks\":{pending}}}");
    assert!(stripe.same_payload(attempt(2).as_bytes(), attempt(1).as_bytes()));
    assert!(!provider("svix").same_payload(attempt(2).as_bytes(), attempt(1).as_bytes()));
}

#[test]
fn the_least_file_of_the_readme_does() {
    let readme = include_str!("../../catalogue/README.md");
    let example = readme.split("```toml").nth(1).and_then(|rest| rest.split("```").next());
    let provider = Provider::parse("teapots.toml", example.expect("an example"));
    assert_eq!(provider.expect("a provider").name(), "teapots");
}

fn refusal(text: &str) -> String {
    Provider::parse("mine.toml", text).expect_err("a refusal").to_string()
}

#[test]
fn a_users_own_file_adds_a_provider() {
    let provider = Provider::parse("small.toml", SMALL).expect("a provider");
    assert_eq!((provider.name(), provider.title()), ("small", "Small"));
    assert!(provider.windows().required().unknown);
}

#[test]
fn syntax_errors_say_file_line_column_and_key() {
    assert_eq!(
        refusal(&SMALL.replace("header =", "headers =")).split(", expected").next(),
        Some("mine.toml:11:1: unknown field `headers`")
    );
    assert!(refusal(&SMALL.replace("\"hex\"", "\"hux\"")).starts_with("mine.toml:9:12: "));
    assert!(refusal(&SMALL.replace("title = \"Small\"", "")).contains("missing field `title`"));
    assert!(matches!(
        Provider::parse("mine.toml", "name = "),
        Err(CatalogueError::Syntax { line: 1, .. })
    ));
}

#[test]
fn unsafe_files_are_refused_with_key_and_reason() {
    for (from, to, reason) in UNSAFE {
        let file = SMALL.replace("\"x-kind\"", "\"x-signature-7\"");
        let file = if reason.contains("x-signature-7") { file } else { SMALL.to_owned() };
        let refusal = refusal(&file.replace(from, to));
        assert!(refusal.starts_with(&format!("mine.toml: {reason}")), "{refusal}");
    }
}

/// The id of `body` by a file whose `id` is this.
fn identified(id: &str, body: &str) -> Result<String, Unidentifiable> {
    let file = SMALL.replace("id = [{ pointer = \"/id\" }]", &format!("id = {id}"));
    let provider = Provider::parse("small.toml", &file).expect("a provider");
    let key = key(&provider, "ours only");
    let unsigned = providers::Unsigned { headers: Vec::new(), body: body.into() };
    let signed = provider.sign(&key, unsigned, NOW).expect("signed");
    let verified = provider.verify(signed, &[key], NOW, None).expect("verified");
    let events = provider.identify(verified, &source())?;
    Ok(events[0].key.id().as_str().to_owned())
}

#[test]
fn optional_parts_leave_their_mark_in_the_id() {
    let id = |body| {
        let parts = r#"[
            { pointer = "/a", optional = true },
            { pointer = "/b", optional = true },
            { pointer = "/c" },
        ]"#;
        identified(parts, body).expect("an id")
    };
    assert_eq!(id(r#"{"a":"x","c":"z"}"#), "1:x|-|1:z");
    assert_eq!(id(r#"{"b":"x","c":"z"}"#), "-|1:x|1:z");
    assert_eq!(id(r#"{"a":"x|-","b":null,"c":"z"}"#), "3:x|-|-|1:z");
}

#[test]
fn only_what_is_not_there_lets_an_alternative_count() {
    let id = |body| identified(r#"[{ any = [{ pointer = "/a" }, { pointer = "/b" }] }]"#, body);
    assert_eq!(id(r#"{"a":"x","b":"y"}"#).as_deref(), Ok("x"));
    for absent in [r#"{"b":"y"}"#, r#"{"a":null,"b":"y"}"#, r#"{"a":"","b":"y"}"#] {
        assert_eq!(id(absent).as_deref(), Ok("y"), "{absent}");
    }
    let place = || "body /a".to_owned();
    assert_eq!(id(r#"{"a":1,"a":2,"b":"y"}"#), Err(Unidentifiable::Twice { place: place() }));
    assert_eq!(
        id(r#"{"a":"\ud800","b":"y"}"#),
        Err(Unidentifiable::Undecodable { place: place() })
    );
    let found = "an array";
    assert_eq!(id(r#"{"a":[],"b":"y"}"#), Err(Unidentifiable::WrongType { place: place(), found }));
    let nowhere = Unidentifiable::Missing { place: "body /a or body /b".into() };
    assert_eq!(id("{}"), Err(nowhere));
    assert_eq!(
        id("{\"a\":\n?").map_err(|error| error.to_string()),
        Err("not JSON: syntax error (line 2, column 1)".into())
    );
}

/// What is changed in [`SMALL`], to what, and the refusal.
const UNSAFE: &[(&str, &str, &str)] = &[
    (
        "keep_headers = [\"x-kind\"]",
        "keep_headers = [\"x-signature\"]",
        "keep_headers: x-signature is a signature",
    ),
    (
        "keep_headers = [\"x-kind\"]",
        "keep_headers = [\"authorization\"]",
        "keep_headers: authorization is",
    ),
    (
        "keep_headers = [\"x-kind\"]",
        "keep_headers = [\"X-Kind\"]",
        "keep_headers: \"X-Kind\" is no header name",
    ),
    ("signed = \"{body}\"", "signed = \"{id}\"", "verify[0].signed: there is no part \"id\""),
    ("signed = \"{body}\"", "signed = \"v0\"", "verify[0].signed: {body} must be signed"),
    ("signed = \"{body}\"", "signed = \"{body\"", "verify[0].signed: a '{' without"),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\ntimestamp = { header = [\"x-time\"], unit = \"s\" }",
        "verify[0].signed: {timestamp} and",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\npart = [{ name = \"id\", header = [\"x-id\"] }]",
        "verify[0].signed: part \"id\" must be signed",
    ),
    ("algorithm = \"sha256\"", "", "verify[0].algorithm: hmac needs"),
    (
        "{ format = \"raw\" }",
        "{ format = \"raw\", prefix = \"a\" }",
        "verify[0].key: the text of a raw key",
    ),
    ("{ pointer = \"/id\" }", "{ pointer = \"id\" }", "identity[0].id[0]: a JSON pointer begins"),
    ("{ pointer = \"/id\" }", "{ signed = \"id\" }", "identity[0].id[0]: no scheme signs"),
    (
        "{ pointer = \"/id\" }",
        "{ header = \"x-signature\" }",
        "identity[0].id[0]: a signature is another",
    ),
    (
        "{ pointer = \"/id\" }",
        "{ pointer = \"/id\", header = \"x-id\" }",
        "identity[0].id[0]: a place is",
    ),
    (
        "{ pointer = \"/id\" }",
        "{ pointer = \"/id\", optional = true }",
        "identity[0].id: one part at least",
    ),
    // Less than the body, a time that nobody signed, a list that is not gone through.
    (
        "signed = \"{body}\"",
        "signed = \"{body_crc32}\"",
        "verify[0].signed: {body} must be signed, once; if the provider does not",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\ncovers = \"parts\"",
        "verify[0].covers: that is not what",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}{fields}\"",
        "verify[0].signed: {fields} and \"fields\"",
    ),
    ("signed = \"{body}\"", "signed = \"{form}\"", "verify[0].body_digest: {form} and the digest"),
    (
        "signed = \"{body}\"",
        "signed = \"{secret}{body}\"",
        "verify[0].signed: {secret} is signed by",
    ),
    ("signed = \"{body}\"", "", "verify[0].signed: what is signed is missing"),
    ("signed = \"{body}\"", "signed = []", "verify[0].signed: what is signed is missing"),
    (
        "signed = \"{body}\"",
        "signed = [\"{body}\", \"{method}\"]",
        "verify[0].signed: {body} must be signed, once; if",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{a}\"\ncovers = \"parts\"\npart = [{ name = \"a\", pointer = \"/a\" }]\ntimestamp = { pointer = \"/t\", unit = \"s\" }",
        "verify[0].signed: {timestamp} and",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}{a}\"\npart = [{ name = \"a\", pointer = \"/a/*/b\" }]",
        "verify[0].part: a list that \"each\" does not",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\neach = \"/a\"",
        "verify[0].each: it points to a list's items",
    ),
    (
        "[[verify]]",
        "[[setting]]\nname = \"a\"\nwhat = \"\"\n[[verify]]\npinned = [{ header = \"x-a\", setting = \"a\" }]",
        "verify[0].pinned: header x-a is not signed",
    ),
    (
        "[[verify]]",
        "[[verify]]\npinned = [{ pointer = \"/a\", setting = \"a\" }]",
        "verify[0].pinned: it is compared with a setting",
    ),
    ("header = [\"x-signature\"]", "", "verify[0].header: it is missing"),
    (
        "header = [\"x-signature\"]",
        "header = [\"x-signature\"]\nquery = \"s\"",
        "verify[0].header: a signature has one place",
    ),
    (
        "header = [\"x-signature\"]",
        "header = [\"x-signature-#\"]\n",
        "keep_headers: x-signature-7 is a signature",
    ),
    ("\"hmac\"", "\"token\"", "verify[0].algorithm: this scheme has no choice"),
    ("encoding = \"hex\"", "", "verify[0]: the encoding of the signature is missing"),
    ("{ format = \"raw\" }", "{ format = \"pem\" }", "verify[0].key: a shared key is not pem"),
    (
        "{ pointer = \"/id\" }",
        "{ pointer = \"/events/*/id\" }",
        "identity[0].id[0]: a list that \"each\" does not go through",
    ),
    ("{ pointer = \"/id\" }", "{ }", "identity[0].id[0]: a place is"),
    ("[[identity]]", "[[identity]]\ncoalesce_s = 0", "identity[0].coalesce_s: 1 to 300 seconds"),
    ("[[identity]]", "[[identity]]\ncoalesce_s = 301", "identity[0].coalesce_s: 1 to 300 seconds"),
    (
        "[[identity]]",
        "[[identity]]\nid = [{ pointer = \"/a\" }]\n[[identity]]",
        "identity[1]: after the first, a \"kind\"",
    ),
    (
        "[[identity]]",
        "[[identity]]\nid = [{ pointer = \"/a\" }]\n[[identity]]\nkind = \"b\"",
        "identity[1]: only the first of those",
    ),
    (
        "[[identity]]",
        "[[handshake]]\nmethod = \"GET\"\nunsigned = true\nchallenge = { query = \"c\", hmac = \"hex\", alphabet = \"text\" }\nanswer = { body = \"{{hmac}}\" }\n[[identity]]",
        "handshake[0].challenge: what is quoted or signed",
    ),
    (
        "[[identity]]",
        "[[handshake]]\nmethod = \"GET\"\ntoken = { query = \"t\", setting = \"s\" }\n[[identity]]",
        "handshake[0].token: it is compared with a setting",
    ),
    (
        "[[identity]]",
        "[[handshake]]\nunsigned = true\nwhen = [{ query = \"a\", present = true }]\nconfirm = { pointer = \"/u\", hosts = [\"a.example\"] }\n[[identity]]",
        "handshake[0]: what confirms a subscription is signed",
    ),
    (
        "[[identity]]",
        "[[handshake]]\nwhen = [{ query = \"a\", present = true }]\nconfirm = { pointer = \"/u\", hosts = [] }\n[[identity]]",
        "handshake[0].confirm: there is no host",
    ),
    ("[[identity]]", "[answer]\nstatus = 404\n[[identity]]", "answer: the status is between"),
    ("[[identity]]", "[[handshake]]\nwhen = []\n[[identity]]", "handshake[0]: without \"when\""),
];
