//! Deliveries that nobody signed, in every way proptest thinks of.

use std::sync::LazyLock;

use domain::delivery::Delivery;
use proptest::{collection::vec, prelude::*};
use providers::{Greeting, Key, Provider, SampleRequest, Unsigned};

use crate::{NOW, key, post, provider, provider_at_home, secret_of, source};

const SECRET: &str = "whsec_b3VycyBvbmx5OiBhIHNlY3JldCBrZXk=";

/// Provider, signature header, timestamp header if it is one of its own.
const SCHEMES: [(&str, &str, Option<&str>); 6] = [
    ("github", "x-hub-signature-256", None),
    ("shopify", "x-shopify-hmac-sha256", None),
    ("slack", "x-slack-signature", Some("x-slack-request-timestamp")),
    ("standard-webhooks", "webhook-signature", Some("webhook-timestamp")),
    ("stripe", "stripe-signature", None),
    ("svix", "svix-signature", Some("svix-timestamp")),
];

fn signed(provider: &Provider, body: &[u8]) -> Delivery {
    let headers = ["webhook-id", "svix-id"].map(|name| (name.to_owned(), "msg_1".to_owned()));
    let unsigned = Unsigned { headers: headers.into(), body: body.to_vec() };
    provider.sign(&key(provider, SECRET), unsigned, NOW).expect("signed")
}

fn is_accepted(provider: &Provider, delivery: Delivery) -> bool {
    provider.verify(delivery, &[key(provider, SECRET)], NOW, None).is_ok()
}

/// `delivery` with `change` applied to the header `name`.
fn with_header(delivery: &Delivery, name: &str, change: impl Fn(&str) -> String) -> Delivery {
    let headers = delivery.headers.iter().map(|(known, value)| {
        (known.to_owned(), if known == name { change(value) } else { value.to_owned() })
    });
    Delivery { headers: headers.collect(), ..delivery.clone() }
}

proptest! {
    #[test]
    fn what_was_signed_verifies(body in vec(any::<u8>(), 0..200)) {
        for (name, ..) in SCHEMES {
            let provider = provider(name);
            prop_assert!(is_accepted(&provider, signed(&provider, &body)), "{name}");
        }
    }

    #[test]
    fn a_changed_body_is_rejected(
        body in vec(any::<u8>(), 1..200),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        for (name, ..) in SCHEMES {
            let provider = provider(name);
            let original = signed(&provider, &body);
            let mut changed = original.clone();
            changed.body[at.index(body.len())] ^= flip;
            prop_assert!(!is_accepted(&provider, changed), "{name}, changed");
            let mut shorter = original.clone();
            shorter.body.pop();
            prop_assert!(!is_accepted(&provider, shorter), "{name}, cut");
            let mut longer = original;
            longer.body.push(flip);
            prop_assert!(!is_accepted(&provider, longer), "{name}, extended");
        }
    }

    #[test]
    fn a_changed_signature_is_rejected(
        body in vec(any::<u8>(), 0..50),
        at in any::<prop::sample::Index>(),
        to in "[0-9a-zA-Z+/=,. ]",
    ) {
        for (name, header, _) in SCHEMES {
            let provider = provider(name);
            let original = signed(&provider, &body);
            let changed = with_header(&original, header, |value| {
                let at = at.index(value.len());
                format!("{}{to}{}", &value[..at], &value[at + 1..])
            });
            let was = original.headers.get(header).expect("signed");
            let is = changed.headers.get(header).expect("signed");
            // Hex may be written in either case; base64 may not.
            let is_hex = matches!(name, "github" | "slack" | "stripe");
            let is_same = if is_hex { is.eq_ignore_ascii_case(was) } else { is == was };
            prop_assert!(is_same || !is_accepted(&provider, changed.clone()), "{name}");
        }
    }

    #[test]
    fn a_changed_timestamp_is_rejected(body in vec(any::<u8>(), 0..50), by in -300_i64..300) {
        for (name, header, time_header) in SCHEMES {
            let provider = provider(name);
            let original = signed(&provider, &body);
            let moved = (1_750_000_000 + by).to_string();
            let changed = match (name, time_header) {
                ("stripe", _) => {
                    with_header(&original, header, |value| value.replace("1750000000", &moved))
                }
                (_, Some(time)) => with_header(&original, time, |_| moved.clone()),
                _ => continue,
            };
            prop_assert_eq!(is_accepted(&provider, changed), by == 0, "{}", name);
        }
    }

    #[test]
    fn any_signature_header_is_read_without_panic(
        value in "(t=|v1=|v1,|v1a,|v0=|sha256=|[0-9a-f]{64}|[,= ]|\\PC){0,40}",
        time in "([0-9]{0,20}|\\PC*)",
        id in "\\PC*",
        body in vec(any::<u8>(), 0..20),
    ) {
        for (name, header, time_header) in SCHEMES {
            let provider = provider(name);
            let headers = [
                (header, value.as_str()),
                (time_header.unwrap_or("x-time"), &time),
                ("webhook-id", &id),
                ("svix-id", &id),
            ];
            let rejection = provider
                .verify(post(&headers, &body), &[key(&provider, SECRET)], NOW, None)
                .expect_err("nobody signed this");
            prop_assert!(!rejection.reason().is_empty());
        }
    }

    #[test]
    fn any_body_is_identified_or_refused_without_panic(
        body in prop_oneof![vec(any::<u8>(), 0..200), json_like()],
        media_type in prop_oneof![
            Just("application/json"),
            Just("application/x-www-form-urlencoded"),
            Just("text/plain"),
        ],
    ) {
        for (name, ..) in SCHEMES {
            let provider = provider(name);
            let mut delivery = signed(&provider, &body);
            delivery.headers =
                delivery.headers.iter().chain([("content-type", media_type)]).collect();
            let verified = provider
                .verify(delivery, &[key(&provider, SECRET)], NOW, None)
                .expect("signed by us");
            let reply = provider.handshake(&verified);
            prop_assert!(reply.is_none_or(|reply| reply.status == 200));
            match provider.identify(verified, &source()) {
                Ok(events) => {
                    prop_assert_eq!(events.len(), 1);
                    prop_assert_eq!(&events[0].payload, &body);
                }
                Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
            }
            prop_assert!(provider.same_payload(&body, &body));
        }
    }
}

/// Every provider of the catalogue with a key, read once.
static ALL: LazyLock<Vec<(&str, Provider, Key)>> = LazyLock::new(|| {
    let read = |name: &&'static str| {
        let provider = provider_at_home(name);
        let key = key(&provider, secret_of(name));
        (*name, provider, key)
    };
    Provider::builtin_names().iter().map(read).collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_is_believed_whatever_is_written(
        values in vec("(sha1=|sha256=|v0=|v1=|v1,|t=|ts=|;|,|\\.|Basic |JWT |[0-9a-zA-Z+/=]{0,88}|\\PC)", 1..12),
        body in prop_oneof![vec(any::<u8>(), 0..200), json_like(), batch_like()],
        query in "(&|=|%|[a-z_.]{0,12}|hub\\.mode=subscribe|crc_token=|bodySHA256=|token=){0,8}",
        method in prop_oneof![Just("POST"), Just("GET")],
        is_form in any::<bool>(),
    ) {
        for (name, provider, key) in ALL.iter() {
            let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
            let genuine = provider.sample(&request).expect("a sample");
            let genuine = provider.sign(key, genuine, NOW).expect("signed");
            let mut values = values.iter().cycle();
            let text = values.by_ref().take(6).cloned().collect::<String>();
            let media = if is_form { "application/x-www-form-urlencoded" } else { "text/plain" };
            let headers = genuine.headers.iter().map(|(header, _)| match header {
                "content-type" => (header, media),
                _ => (header, text.as_str()),
            });
            let forged = Delivery {
                method: method.into(),
                headers: headers.collect(),
                query: query.clone(),
                body: body.clone(),
            };
            // An answer to an unsigned request tells nothing of it but what was to be told.
            let greeting = provider.greet(&forged, std::slice::from_ref(key));
            if let Some(Greeting::Answered(reply)) = greeting {
                prop_assert!(reply.body.len() < 2048 && !reply.body.contains("ours only"), "{name}");
            }
            let verified = provider.verify(forged, std::slice::from_ref(key), NOW, None);
            prop_assert!(verified.is_err(), "{name}");
        }
    }

    #[test]
    fn every_provider_identifies_or_refuses_whatever_is_signed(
        body in prop_oneof![json_like(), batch_like()],
        is_form in any::<bool>(),
    ) {
        for (name, provider, key) in ALL.iter() {
            let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
            let mut unsigned = provider.sample(&request).expect("a sample");
            let media = if is_form { "application/x-www-form-urlencoded" } else { "text/plain" };
            unsigned.headers.retain(|(header, _)| header != "content-type");
            unsigned.headers.push(("content-type".into(), media.into()));
            unsigned.body.clone_from(&body);
            // What is signed in parts, or in the body, cannot always be.
            let Ok(signed) = provider.sign(key, unsigned, NOW) else { continue };
            let text = String::from_utf8_lossy(&signed.body).into_owned();
            let verified = provider.verify(signed, std::slice::from_ref(key), NOW, None);
            let Ok(verified) = verified else { continue };
            let _ = (provider.handshake(&verified), provider.confirmation(&verified));
            let _ = provider.fingerprint(&verified);
            match provider.identify(verified, &source()) {
                Ok(events) => {
                    for event in events {
                        let payload = String::from_utf8_lossy(&event.payload).into_owned();
                        prop_assert!(text.contains(&payload), "{name}");
                    }
                }
                Err(refusal) => prop_assert!(!refusal.to_string().is_empty(), "{name}"),
            }
        }
    }
}

/// Lists that the catalogue goes through, with anything in them.
fn batch_like() -> impl Strategy<Value = Vec<u8>> {
    let lists = ["", "events", "entry", "value", "notificationItems", "eventNotifications"];
    let items = [
        "{}",
        "[]",
        "null",
        "1",
        "{\"id\":1}",
        "{\"id\":\"a\",\"id\":\"b\"}",
        "{\"changes\":[{\"field\":\"f\",\"value\":{\"messages\":[{\"id\":\"m\"}]}}]}",
        "{\"changes\":{},\"messaging\":[{\"message\":{\"mid\":\"m\"}}, 7]}",
        "{\"NotificationRequestItem\":{\"additionalData\":{\"hmacSignature\":\"{{signature}}\"}}}",
        "{\"clientState\":\"{{signature}}\",\"subscriptionId\":\"s\"}",
        "{\"dataChangeEvent\":{\"entities\":[{}]}}",
    ];
    let items = vec(prop::sample::select(items.to_vec()), 0..5);
    (prop::sample::select(lists.to_vec()), items).prop_map(|(list, items)| {
        let items = format!("[{}]", items.join(","));
        let body = if list.is_empty() { items } else { format!("{{\"{list}\":{items}}}") };
        body.into_bytes()
    })
}

/// Tokens that the catalogue looks for, in any order.
fn json_like() -> impl Strategy<Value = Vec<u8>> {
    let tokens = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"id\"",
        "\"type\"",
        "\"event_id\"",
        "\"data\"",
        "\"object\"",
        "\"created\"",
        "null",
        "true",
        "1e999",
        "-0",
        "17500000000000000000000",
        "\"\\ud800\"",
        "\"evt_1\"",
        "payload=",
        "trigger_id=",
        "&",
        "%7B",
        "%",
        " ",
        "\u{feff}",
        "{\"id\":\"x\"}",
        "\"url_verification\"",
        "\"challenge\"",
    ];
    vec(prop::sample::select(tokens.to_vec()), 0..30)
        .prop_map(|tokens| tokens.concat().into_bytes())
}

#[test]
fn nothing_passes_without_a_key() {
    for (name, ..) in SCHEMES {
        let provider = provider(name);
        let rejection = provider.verify(signed(&provider, b"{}"), &[], NOW, None);
        assert_eq!(
            rejection.map_err(|rejection| rejection.reason()).err(),
            Some("no_key"),
            "{name}"
        );
    }
}

#[test]
fn a_rejected_delivery_comes_back_for_another_try() {
    let stripe = provider("stripe");
    let delivery = signed(&stripe, b"{}");
    let rejected = stripe
        .try_verify(delivery, &[key(&stripe, "an old secret")], NOW, None)
        .expect_err("another secret");
    assert_eq!(rejected.rejection.reason(), "bad_signature");
    assert!(is_accepted(&stripe, *rejected.delivery));
}

#[test]
fn a_signature_beyond_the_bound_does_not_count() {
    let svix = provider("svix");
    let delivery = signed(&svix, b"{}");
    let behind = |others: usize| {
        let other = format!("v1,{}=", "A".repeat(43));
        with_header(&delivery, "svix-signature", |right| {
            format!("{} {right}", vec![other.as_str(); others].join(" "))
        })
    };
    assert!(is_accepted(&svix, behind(15)));
    assert!(!is_accepted(&svix, behind(16)));
}

#[test]
fn deep_bodies_cost_no_stack() {
    let stripe = provider("stripe");
    let key = key(&stripe, SECRET);
    let identify = |body: String| {
        let verified = stripe
            .verify(signed(&stripe, body.as_bytes()), std::slice::from_ref(&key), NOW, None)
            .expect("signed by us");
        assert!(stripe.handshake(&verified).is_none());
        stripe.identify(verified, &source())
    };
    let deep = "[".repeat(1_000_000);
    assert!(identify(deep.clone()).is_err());
    let closed = format!("{{\"data\":{deep}{},\"id\":\"evt_1\"}}", "]".repeat(1_000_000));
    let events = identify(closed).expect("valid JSON, however deep");
    assert_eq!(events[0].key.id().as_str(), "evt_1");
}

#[test]
fn errors_and_debug_show_no_payload_signature_or_secret() {
    let secret = "hunter2-secret";
    for (name, header, time_header) in SCHEMES {
        let provider = provider(name);
        let headers = [
            (header, "v1=hunter2,v0=hunter2,t=hunter2 sha256=hunter2"),
            (time_header.unwrap_or("x-time"), "hunter2"),
            ("webhook-id", "hunter2"),
            ("svix-id", "hunter2"),
        ];
        let key = key(&provider, SECRET);
        let rejected = provider
            .try_verify(post(&headers, b"hunter2"), std::slice::from_ref(&key), NOW, None)
            .expect_err("nobody signed this");
        let delivery = signed(&provider, b"{\"id\":{\"hunter2\":1},\"hunter2\"");
        let verified = provider.verify(delivery, &[key], NOW, None).expect("signed by us");
        let mut shown = format!("{rejected:?} {} {verified:?} {provider:?}", rejected.rejection);
        if let Err(refusal) = provider.identify(verified, &source()) {
            shown += &format!("{refusal} {refusal:?}");
        }
        shown += &format!("{:?}", provider.key(&providers::Secret::new(secret)));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
