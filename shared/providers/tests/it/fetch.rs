//! Keys that providers publish: which address a delivery may choose, what is asked for there, and
//! which answers hold a key.

use domain::delivery::Delivery;
use providers::{Endpoint, Key, KeyRequest, Provider, Rejection, Secret, UnreadableKeys, Unsigned};

use crate::{NOW, post, provider, secret_of};

/// A provider that signs tokens by keys of a set, as OpenID Connect does.
const TOKENS: &str = r#"
name = "tokens"
title = "Tokens"

[keys]
answer = "jwks"
at = "https://keys.example.com/certs"

[[verify]]
scheme = "jwt"
algorithm = "ALGORITHM"
key = { format = "jwk" }
header = ["authorization"]
prefix = "Bearer "
timestamp = { claim = "iat", unit = "s" }
tolerance_s = 300
covers = "nothing"

[[identity]]
id = [{ pointer = "/id" }]
"#;

fn tokens(algorithm: &str) -> Provider {
    Provider::parse("tokens.toml", &TOKENS.replace("ALGORITHM", algorithm)).expect("a provider")
}

fn plaid() -> Provider {
    let endpoint = Endpoint::default().with("client_id", "ours").with("environment", "sandbox");
    provider("plaid").at(endpoint)
}

/// Any delivery, signed by a key of the tests' own.
fn delivery(provider: &Provider, key: &Key) -> Delivery {
    let unsigned = Unsigned { headers: Vec::new(), body: br#"{"id":"1"}"#.to_vec() };
    provider.sign(key, unsigned, NOW).expect("signed")
}

fn sns(url: &str) -> Delivery {
    let body = format!(r#"{{"SignatureVersion":"2","Signature":"AAAA","SigningCertURL":"{url}"}}"#);
    post(&[], body.as_bytes())
}

fn paypal(url: &str) -> Delivery {
    post(&[("paypal-cert-url", url), ("paypal-transmission-sig", "AAAA")], b"{}")
}

fn address(name: &str, delivery: &Delivery) -> Result<String, &'static str> {
    let request = provider(name).key_request(delivery);
    request.map(|request| request.address).map_err(|rejection| rejection.reason())
}

#[test]
fn a_certificate_is_asked_for_at_the_providers_addresses_only() {
    let right = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem";
    assert_eq!(address("aws-sns", &sns(right)).as_deref(), Ok(right));
    for url in [
        "https://s3.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com/?Action=Other&x=/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com/other.pem",
        "http://169.254.169.254/latest/meta-data",
        "",
    ] {
        assert_eq!(address("aws-sns", &sns(url)), Err("no_key_named"), "{url}");
    }
    let right = "https://api.paypal.com/v1/notifications/certs/CERT-1";
    assert_eq!(address("paypal", &paypal(right)).as_deref(), Ok(right));
    for url in [
        "https://paypal.com.evil.example/v1/notifications/certs/CERT-1",
        "https://api.paypal.com:444/v1/notifications/certs/CERT-1",
        "https://api.paypal.com/v1/notifications/certs/../webhooks",
        "https://api.paypal.com/v1/notifications/certs/..",
    ] {
        assert_eq!(address("paypal", &paypal(url)), Err("no_key_named"), "{url}");
    }
    assert_eq!(address("stripe", &paypal(right)), Err("no_key"), "it publishes none");
}

#[test]
fn nothing_is_asked_for_without_a_signature_that_can_be_read() {
    let url = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem";
    let unsigned = format!(r#"{{"SignatureVersion":"2","SigningCertURL":"{url}"}}"#);
    assert_eq!(address("aws-sns", &post(&[], unsigned.as_bytes())), Err("no_signature"));
    let reason = |header: &str| {
        let delivery = post(&[("plaid-verification", header)], b"{}");
        plaid().key_request(&delivery).map_err(|rejection| rejection.reason())
    };
    assert_eq!(reason("a.b.c"), Err("malformed_signature"));
    let without_kid = "eyJhbGciOiJFUzI1NiJ9.e30.c2ln";
    assert_eq!(reason(without_kid), Err("no_key_named"));
    let with_space = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImEgYiJ9.e30.c2ln";
    assert_eq!(reason(with_space), Err("malformed_signature"));
}

#[test]
fn plaid_is_asked_for_the_key_of_the_token_with_the_secret_of_its_api() {
    let plaid = plaid();
    let (pair, _) = plaid.test_key(&plaid.generate_test_key().expect("a key")).expect("a pair");
    let request = plaid.key_request(&delivery(&plaid, &pair)).expect("a request");
    assert_eq!(request.address, "https://sandbox.plaid.com/webhook_verification_key/get");
    assert!(request.name().ends_with("get#hookonce-test") && !request.is_named);
    let body = request.body(Some(&Secret::new("hunter2"))).expect("something to post");
    let expected = r#"{"client_id":"ours","key_id":"hookonce-test","secret":"hunter2"}"#;
    assert_eq!(body.expose(), expected);
    assert!(!format!("{request:?} {body:?}").contains("hunter2"));
    let nowhere = provider("plaid").key_request(&delivery(&plaid, &pair));
    assert_eq!(nowhere, Err(Rejection::NoSetting { name: "environment".into() }));
}

#[test]
fn an_expired_key_verifies_nothing() {
    let plaid = plaid();
    let (pair, public) = plaid.test_key(&plaid.generate_test_key().expect("a key")).expect("one");
    let answer = |expired_at: &str| {
        let key = public.replacen('{', &format!("{{\"expired_at\":{expired_at},"), 1);
        plaid.read_keys(&format!(r#"{{"key":{key},"request_id":"r"}}"#)).expect("a key")
    };
    let verify = |keys: &[Key]| {
        let verified = plaid.verify(delivery(&plaid, &pair), keys, NOW, None);
        verified.map(drop).map_err(|rejection| rejection.reason())
    };
    assert_eq!(verify(&answer("null")), Ok(()));
    assert_eq!(verify(&answer("1749999999")), Err("expired_certificate"));
    assert_eq!(verify(&answer("1750000001")), Ok(()));
}

#[test]
fn only_plaids_own_word_says_that_there_is_no_such_key() {
    let denies = |text: &str| plaid().denies_key(text);
    assert!(denies(r#"{"error_code":"INVALID_WEBHOOK_VERIFICATION_KEY_ID"}"#));
    for text in
        [r#"{"error_code":"INVALID_API_KEYS"}"#, "{}", "INVALID_WEBHOOK_VERIFICATION_KEY_ID"]
    {
        assert!(!denies(text), "{text}");
    }
}

#[test]
fn a_set_of_keys_is_asked_again_only_for_a_name_that_it_lacks() {
    for (algorithm, pem) in [("es256", None), ("rs256", Some(secret_of("aws-sns")))] {
        let tokens = tokens(algorithm);
        let pem = pem.map_or_else(|| tokens.generate_test_key().expect("a key"), str::to_owned);
        let (pair, public) = tokens.test_key(&pem).expect("a pair");
        let delivery = delivery(&tokens, &pair);
        let request = tokens.key_request(&delivery).expect("a request");
        assert_eq!(request.name(), "https://keys.example.com/certs");
        assert!(request.body(None).is_none() && !request.is_named);
        let read = |keys: &str| tokens.read_keys(&format!(r#"{{"keys":[{keys}]}}"#));
        let keys = read(&format!(r#"{{"kty":"oct"}},{public}"#)).expect("one of two");
        assert_eq!(keys.len(), 1, "those of another kind are left out");
        assert!(request.is_met_by(&keys) && !request.is_met_by(&[]));
        assert!(tokens.verify(delivery.clone(), &keys, NOW, None).is_ok(), "{algorithm}");
        let mut forged = delivery;
        forged.headers = [("authorization", "Bearer e30.e30.c2ln")].into_iter().collect();
        assert!(tokens.verify(forged, &keys, NOW, None).is_err());
        assert_eq!(read("").map(|keys| keys.len()), Err(UnreadableKeys::Missing));
    }
    let es256 = tokens("es256");
    let (pair, public) = es256.test_key(&es256.generate_test_key().expect("a key")).expect("one");
    let request: KeyRequest = es256.key_request(&delivery(&es256, &pair)).expect("a request");
    let renamed = public.replace("hookonce-test", "another");
    let keys = es256.read_keys(&format!(r#"{{"keys":[{renamed}]}}"#)).expect("a key");
    assert!(!request.is_met_by(&keys));
}

#[test]
fn what_is_no_certificate_from_its_first_line_is_none() {
    let sns = provider("aws-sns");
    let read = |text: &str| sns.read_keys(text).map(|keys| keys.len());
    let pem = include_str!("../keys/certificate.pem");
    assert_eq!(read(pem), Ok(1));
    let chain = format!("{pem}{pem}");
    assert_eq!(read(&chain), Ok(1), "of a chain the first");
    assert_eq!(read(&format!("<xml>\n{pem}")), Err(UnreadableKeys::NoCertificate));
    assert_eq!(read(""), Err(UnreadableKeys::NoCertificate));
    let private = secret_of("aws-sns");
    assert_eq!(read(private), Err(UnreadableKeys::NoCertificate));
    let cut = &pem[..pem.len() / 2];
    assert!(matches!(read(cut), Err(UnreadableKeys::Unfit(_))));
}

#[test]
fn what_is_fetched_from_where_is_said_in_words() {
    let words = |provider: Provider| provider.published_keys().unwrap_or_default();
    let of_sns = words(provider("aws-sns"));
    assert!(of_sns.starts_with("the certificate that body /SigningCertURL or "), "{of_sns}");
    assert!(of_sns.contains("at https://sns.*.amazonaws.com/SimpleNotificationService-*.pem"));
    let of_plaid = "the key at https://sandbox.plaid.com/webhook_verification_key/get, by a POST \
                    of client_id, key_id, secret";
    assert_eq!(words(plaid()), of_plaid);
    assert!(words(provider("plaid")).contains("https://{environment}.plaid.com/"));
    assert_eq!(words(tokens("es256")), "the keys at https://keys.example.com/certs");
    assert_eq!(words(provider("stripe")), "");
}

#[test]
fn files_that_would_have_anybody_asked_are_refused() {
    let refusal = |keys: &str| {
        let text = TOKENS.replace("ALGORITHM", "es256");
        let at = "answer = \"jwks\"\nat = \"https://keys.example.com/certs\"\n";
        let text = text.replace(at, keys);
        Provider::parse("tokens.toml", &text).expect_err(keys).to_string()
    };
    for (keys, reason) in [
        ("answer = \"jwks\"\nat = \"http://keys.example.com/certs\"", "keys.at: an address is"),
        ("answer = \"jwks\"\nat = \"https://keys.example.com\"", "keys.at: an address is"),
        ("answer = \"jwks\"\nat = \"https://keys.example.com:1/certs\"", "no port"),
        ("answer = \"jwks\"\nat = \"https://keys.example.com/certs?x\"", "no query"),
        ("answer = \"jwks\"\nat = \"https://u@keys.example.com/certs\"", "no port, user"),
        ("answer = \"jwks\"\nat = \"https://keys.example.com/../x\"", "no query, no"),
        ("answer = \"jwks\"\nat = \"https://169.254.169.254/latest\"", "is no host"),
        ("answer = \"jwks\"\nat = \"https://keys.*.example.com/certs\"", "goes with \"named\""),
        ("answer = \"jwks\"\nat = \"https://{where}.example.com/certs\"", "{where} is no setting"),
        ("answer = \"jwks\"\nat = []", "there is no address"),
        ("answer = \"jwks\"\nat = [\"https://a.example.com/\", \"https://b.example.com/\"]", "one"),
        (
            "answer = \"jwks\"\nnamed = [{ header = \"x\" }]\nat = \"https://keys.example.*/certs\"",
            "is no host",
        ),
        (
            "answer = \"jwks\"\nnamed = [{ header = \"x\" }]\nat = \"https://a.example.com/*\"\npost = { a = \"{key_id}\" }",
            "keys.post: nothing",
        ),
        ("answer = \"jwk\"\nat = \"https://a.example.com/\"\npost = { a = \"b\" }", "keys.post.a"),
        ("answer = \"jwk\"\nat = \"https://a.example.com/\"\npointer = \"a\"", "keys.pointer"),
        (
            "answer = \"jwk\"\nat = \"https://a.example.com/\"\nunknown = { pointer = \"/a\", is = \"b\" }",
            "keys.unknown: it is for",
        ),
        ("answer = \"certificate\"\nat = \"https://a.example.com/\"\npointer = \"/a\"", "not JSON"),
    ] {
        let refusal = refusal(keys);
        assert!(refusal.contains(reason), "{keys}: {refusal}");
    }
    let shared = TOKENS.replace("ALGORITHM", "hs256").replace("\"jwk\"", "\"raw\"");
    let refusal = Provider::parse("tokens.toml", &shared).expect_err("shared").to_string();
    assert!(refusal.contains("a shared secret is published nowhere"), "{refusal}");
}
