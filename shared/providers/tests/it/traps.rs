//! What has gone wrong elsewhere: each trap, and that it is not walked into.

use std::collections::BTreeSet;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use domain::{
    delivery::Delivery,
    event::{Event, Source},
    limits,
    time::Timestamp,
};
use providers::{
    Confirmation, Coverage, Endpoint, Greeting, Key, Provider, SampleRequest, Trap, Unidentifiable,
    Unsigned,
};
use ring::hmac;

use crate::{NOW, key, provider, provider_at_home, secret_of, source};

/// A body signed by the provider itself, with these headers.
fn signed(provider: &Provider, key: &Key, headers: &[(&str, &str)], body: &str) -> Delivery {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let unsigned = Unsigned { headers, body: body.into() };
    provider.sign(key, unsigned, NOW).expect("signed")
}

fn events(name: &str, headers: &[(&str, &str)], body: &str) -> Result<Vec<Event>, Unidentifiable> {
    events_at(name, headers, body, NOW)
}

fn events_at(
    name: &str,
    headers: &[(&str, &str)],
    body: &str,
    now: Timestamp,
) -> Result<Vec<Event>, Unidentifiable> {
    let provider = provider_at_home(name);
    let key = key(&provider, secret_of(name));
    let delivery = signed(&provider, &key, headers, body);
    let tolerance = Some(limits::MAX_TOLERANCE);
    let verified = provider.verify(delivery, &[key], now, tolerance).expect("signed by us");
    provider.identify(verified, &source())
}

fn ids(name: &str, headers: &[(&str, &str)], body: &str) -> Vec<String> {
    let events = events(name, headers, body).expect("identified");
    events.iter().map(|event| event.key.id().as_str().to_owned()).collect()
}

/// A sample of every provider, signed.
fn samples() -> impl Iterator<Item = (&'static str, Provider, Key, Delivery)> {
    Provider::builtin_names().iter().map(|name| {
        let provider = provider_at_home(name);
        let key = key(&provider, secret_of(name));
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let unsigned = provider.sample(&request).expect("a sample");
        let delivery = provider.sign(&key, unsigned, NOW).expect("signed");
        (*name, provider, key, delivery)
    })
}

#[test]
fn a_missing_signature_is_never_an_older_kind_of_delivery() {
    for (name, provider, key, delivery) in samples() {
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let unsigned = provider.sample(&request).expect("a sample");
        let unsigned = Delivery {
            headers: unsigned.headers.into_iter().collect(),
            query: String::new(),
            body: unsigned.body,
            ..delivery
        };
        let rejection = provider.verify(unsigned, &[key], NOW, None).expect_err(name);
        // Where the signature is in the body, the sample has something in its place.
        let reasons = ["no_signature", "malformed_signature", "bad_signature"];
        assert!(reasons.contains(&rejection.reason()), "{name}: {rejection}");
    }
}

#[test]
fn what_is_signed_for_one_provider_is_not_for_another_secret() {
    for (name, provider, _, delivery) in samples() {
        let other = match name {
            "adyen" => "ff".repeat(32),
            "aws-sns" | "paypal" => include_str!("../keys/other.pem").to_owned(),
            _ if secret_of(name).starts_with("whsec_") => "whsec_b3RoZXI=".to_owned(),
            "discord-interactions" | "discord-webhook-events" => "0f".repeat(32),
            "plaid" => secret_of(name).replace("\"d\"", "\"none\"").replace("ours-1", "ours-2"),
            "sendgrid" => continue, // Its vectors have another key.
            _ => "another".to_owned(),
        };
        let other = key(&provider, &other);
        let rejection = provider.verify(delivery, &[other], NOW, None).expect_err(name);
        assert_eq!(rejection.reason(), "bad_signature", "{name}");
    }
}

#[test]
fn a_recorded_body_under_a_fresh_id_has_the_same_fingerprint() {
    let with_unsigned_id = [
        ("github", "x-github-delivery"),
        ("shopify", "x-shopify-webhook-id"),
        ("razorpay", "x-razorpay-event-id"),
        ("linear", "linear-delivery"),
        ("bitbucket", "x-request-uuid"),
        ("bitbucket-data-center", "x-request-id"),
        ("jira", "x-atlassian-webhook-identifier"),
        ("sentry", "request-id"),
    ];
    for (name, header) in with_unsigned_id {
        let provider = provider(name);
        assert!(!provider.signs_event_id(), "{name}");
        let key = key(&provider, secret_of(name));
        let fingerprint = |id: &str, more: &str| {
            let request = SampleRequest { event_type: None, id: "recorded", now: NOW };
            let mut unsigned = provider.sample(&request).expect("a sample");
            unsigned.body.extend(more.bytes());
            let recorded = provider.sign(&key, unsigned, NOW).expect("signed");
            let others = recorded.headers.iter().filter(|(known, _)| *known != header);
            let headers = others.chain([(header, id)]).collect();
            let replayed = Delivery { headers, ..recorded.clone() };
            let verified =
                provider.verify(replayed, std::slice::from_ref(&key), NOW, None).expect(name);
            let print = provider.fingerprint(&verified).expect(name).expect(name);
            (provider.identify(verified, &source()).expect(name)[0].key.id().clone(), print)
        };
        let (first, second) = (fingerprint("recorded", ""), fingerprint("fresh", ""));
        assert_ne!(first.0, second.0, "{name}: it verifies as another event");
        assert_eq!(first.1, second.1, "{name}");
        assert_ne!(first.1, fingerprint("fresh", " ").1, "{name}: another body");
    }
    // Where the id is signed nothing of the kind is needed.
    let stripe = provider("stripe");
    let key = key(&stripe, "ours only");
    let verified = stripe.verify(signed(&stripe, &key, &[], "{}"), &[key], NOW, None);
    assert_eq!(stripe.fingerprint(&verified.expect("signed by us")), Ok(None));
}

#[test]
fn a_fingerprint_holds_however_long_an_unsigned_part_of_it_is() {
    let shopify = provider("shopify");
    let key = key(&shopify, secret_of("shopify"));
    let print = |topic: &str| {
        let verified = shopify.verify(
            signed(&shopify, &key, &[("x-shopify-topic", topic)], "{}"),
            std::slice::from_ref(&key),
            NOW,
            None,
        );
        shopify
            .fingerprint(&verified.expect("signed by us"))
            .expect("a topic")
            .expect("there is one")
    };
    let long = format!("orders/{}", "x".repeat(4000));
    assert_eq!(print(&long), print(&long));
    assert_ne!(print(&long), print("orders/create"));
    let without = shopify.verify(signed(&shopify, &key, &[], "{}"), &[key], NOW, None);
    let without = shopify.fingerprint(&without.expect("signed by us"));
    assert!(without.is_err(), "what is missing tells nothing");
}

#[test]
fn a_fingerprint_that_tells_nothing_is_refused() {
    let file = |fingerprint: &str, identity: &str| {
        format!(
            "name = \"a\"\ntitle = \"A\"\nfingerprint = {fingerprint}\n[[verify]]\nscheme = \"hmac\"\n\
             algorithm = \"sha256\"\nencoding = \"hex\"\nkey = {{ format = \"raw\" }}\n\
             header = [\"x-sig\"]\nsigned = \"{{body}}\"\n[[identity]]\n\
             id = [{{ header = \"x-id\" }}]\n{identity}"
        )
    };
    let refused = |fingerprint: &str, identity: &str| {
        let parsed = Provider::parse("a.toml", &file(fingerprint, identity));
        parsed.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(refused("[{ digest = true }]", ""), Ok(()));
    assert_eq!(refused("[{ header = \"x-a\" }, { pointer = \"/a\" }]", ""), Ok(()));
    for (fingerprint, identity, why) in [
        ("[{ header = \"x-a\", optional = true }]", "", "one part at least is signed"),
        ("[{ header = \"x-a\" }]", "", "one part at least is signed"),
        ("[{ pointer = \"/a\", optional = true }]", "", "one part at least is signed"),
        ("[{ digest = true }]", "coalesce_s = 10", "further changes"),
    ] {
        let error = refused(fingerprint, identity).expect_err(fingerprint);
        assert!(error.contains("fingerprint") && error.contains(why), "{error}");
    }
}

#[test]
fn a_secret_in_the_wrong_place_of_a_file_is_not_repeated() {
    for written in ["key = \"whsec_hush\"", "tolerance_s = \"whsec_hush\""] {
        let text = format!("name = \"a\"\ntitle = \"A\"\n[[verify]]\nscheme = \"hmac\"\n{written}");
        let error = Provider::parse("a.toml", &text).expect_err("refused").to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn ids_that_are_not_unique_are_not_taken_alone() {
    let hubspot = |portal: u32, attempt: u32| {
        let body = format!(
            r#"[{{"eventId":1,"subscriptionId":2,"portalId":{portal},"occurredAt":3,"attemptNumber":{attempt}}}]"#
        );
        ids("hubspot", &[], &body)
    };
    assert_eq!(hubspot(4, 0), hubspot(4, 1), "another attempt");
    assert_ne!(hubspot(4, 0), hubspot(5, 0));
    let mailgun = |time: u32| {
        let body = format!(
            r#"{{"signature":{{"timestamp":"1750000000","token":"t","signature":"{{{{signature}}}}"}},"event-data":{{"id":"a","timestamp":{time}}}}}"#
        );
        ids("mailgun", &[], &body)
    };
    assert_ne!(mailgun(1), mailgun(2), "unique within a day only");
    let woocommerce = |delivery: &str| {
        let topic = ("x-wc-webhook-topic", "order.updated");
        ids("woocommerce", &[topic, ("x-wc-webhook-delivery-id", delivery)], r#"{"id":1}"#)
    };
    assert_eq!(woocommerce("a"), woocommerce("b"), "another one at each attempt");
}

/// What a person has to know, since no file can do anything about it.
#[test]
fn an_id_that_is_not_what_it_seems_has_a_caution() {
    let cautions = |name: &str| provider(name).cautions().join(" ");
    for name in
        ["hubspot", "mailgun", "mollie-classic", "woocommerce", "zoom", "adyen", "braintree"]
    {
        let said = cautions(name);
        let is_said =
            ["is not unique", "unique within", "no event id", "no id", "that of two events"];
        let is_said = is_said.iter().any(|words| said.contains(words));
        assert!(is_said || said.contains("Nothing tells a retry"), "{name}: {said}");
    }
    for name in ["github", "standard-webhooks", "svix", "clerk", "resend", "openai", "stripe"] {
        assert!(cautions(name).contains("sources of their own"), "{name}: {}", cautions(name));
    }
    for name in ["plaid", "dropbox", "xero", "docusign"] {
        assert!(cautions(name).contains("no event id"), "{name}: {}", cautions(name));
    }
}

#[test]
fn an_id_that_endpoints_share_is_one_event_at_each_source() {
    let github = provider("github");
    let key = key(&github, "ours only");
    let at = |source: &str, hook: &str| {
        let headers = [("x-github-delivery", "shared"), ("x-github-hook-id", hook)];
        let delivery = signed(&github, &key, &headers, "{}");
        let verified = github.verify(delivery, std::slice::from_ref(&key), NOW, None);
        let source = Source::new(source).expect("a source name");
        github.identify(verified.expect("signed by us"), &source).expect("identified").remove(0).key
    };
    assert_eq!(at("shop", "1"), at("shop", "2"), "two hooks of one source");
    assert_ne!(at("shop", "1"), at("audit", "2"), "two sources");
}

#[test]
fn where_nothing_tells_two_changes_apart_what_comes_together_is_one_event_that_waits_for_it() {
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let bodies = [
        ("plaid", r#"{"webhook_type":"ITEM","webhook_code":"X","item_id":"i"}"#, &[][..]),
        ("dropbox", r#"{"list_folder":{"accounts":["a"]}}"#, &[]),
        ("mollie-classic", "id=tr_1", &form),
    ];
    for (name, body, headers) in bodies {
        let event = |millis: i64| {
            let now = Timestamp::from_millis(NOW.millis() - NOW.millis() % 10_000 + millis);
            let event = events_at(name, headers, body, now).expect(name).swap_remove(0);
            let until = event.coalesces_until.expect("it coalesces");
            // The run that follows this delivery must not begin before it.
            assert!(until > now, "{name}");
            (event.key, until.millis() - NOW.millis() + NOW.millis() % 10_000)
        };
        assert_eq!(event(0), event(9_999), "{name}");
        assert_eq!(event(0).1, 10_000, "{name}");
        assert_ne!(event(9_999), event(10_000), "{name}: a change that came later");
    }
}

#[test]
fn of_a_composite_id_every_part_counts() {
    let adyen = |success: &str| {
        let body = format!(
            r#"{{"notificationItems":[{{"NotificationRequestItem":{{"additionalData":{{"hmacSignature":"{{{{signature}}}}"}},"pspReference":"P","merchantAccountCode":"M","eventCode":"CAPTURE","success":"{success}"}}}}]}}"#
        );
        ids("adyen", &[], &body)
    };
    assert_eq!(adyen("false"), ["1:M|1:P|7:CAPTURE|5:false"]);
    assert_ne!(adyen("false"), adyen("true"), "a late success is no repetition of the failure");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let braintree = |payload: &str| {
        ids("braintree", &form, &format!("bt_signature={{{{signature}}}}&bt_payload={payload}"))
    };
    assert_eq!(braintree("PG5vdGU%2B"), braintree("PG5vdGU%2b"), "one payload, escaped otherwise");
    assert_ne!(braintree("PG5vdGU%2B"), braintree("PG5vdGU%2BPG5v"));
    let docusign = r#"{"configurationId":1,"event":"envelope-sent","data":{"envelopeId":"e","recipientId":"r"},"generatedDateTime":"2025-06-15T15:06:40Z"}"#;
    let xero = r#"{"events":[{"tenantId":"t","eventCategory":"INVOICE","eventType":"UPDATE","resourceId":"r","eventDateUtc":"2025-06-15T15:06:40.1"}]}"#;
    for (name, body, parts) in [
        ("docusign", docusign, &[":1,", "envelope-sent", "\"e\"", "\"r\"", "15:06:40"][..]),
        ("xero", xero, &["\"t\"", "INVOICE", "UPDATE", "\"r\"", "15:06:40"]),
    ] {
        assert_eq!(ids(name, &[], body), ids(name, &[], body), "{name}");
        for part in parts {
            let other = body.replacen(part, &part.replace(['e', 'I', 'U', 'r', 't', '1'], "2"), 1);
            assert_ne!(body, other, "{name}: {part}");
            assert_ne!(ids(name, &[], body), ids(name, &[], &other), "{name}: {part}");
        }
    }
}

#[test]
fn the_signed_url_is_the_configured_one_whatever_the_request_says() {
    for name in ["twilio", "square", "hubspot", "contentful", "jira-connect"] {
        assert!(provider(name).signs_url(), "{name}");
        let home = provider_at_home(name);
        let key = key(&home, secret_of(name));
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let unsigned = home.sample(&request).expect("a sample");
        let delivery = home.sign(&key, unsigned, NOW).expect("signed");
        let verify = |provider: &Provider, headers: &[(&str, &str)]| {
            let headers = headers.iter().copied().chain(delivery.headers.iter()).collect();
            let delivery = Delivery { headers, ..delivery.clone() };
            let verified = provider.verify(delivery, std::slice::from_ref(&key), NOW, None);
            verified.map(|_| ()).map_err(|rejection| rejection.reason())
        };
        assert_eq!(verify(&home, &[("host", "evil.example")]), Ok(()), "{name}");
        let elsewhere = provider(name).at(Endpoint::new(Some("https://evil.example/hook")));
        assert!(verify(&elsewhere, &[("host", "hooks.example.com")]).is_err(), "{name}");
        let forwarded = [("x-forwarded-host", "hooks.example.com"), ("x-forwarded-proto", "https")];
        assert_eq!(verify(&provider(name), &forwarded), Err("no_url"), "{name}");
    }
    assert!(!provider("stripe").signs_url());
}

#[test]
fn the_line_end_behind_the_last_event_is_signed() {
    let sendgrid = provider("sendgrid");
    let key = key(&sendgrid, secret_of("sendgrid"));
    let body = "[{\"email\":\"ada@example.com\",\"event\":\"open\",\"sg_event_id\":\"a\"},\r\n\
                {\"email\":\"ada@example.com\",\"event\":\"click\",\"sg_event_id\":\"b\"}]\r\n";
    let whole = signed(&sendgrid, &key, &[], body);
    let verify = |body: &str| {
        let delivery = Delivery { body: body.into(), ..whole.clone() };
        sendgrid.verify(delivery, std::slice::from_ref(&key), NOW, None)
    };
    let verified = verify(body).expect("every byte");
    assert_eq!(sendgrid.identify(verified, &source()).map(|events| events.len()), Ok(2));
    for trimmed in [body.trim_end(), &body.replace("\r\n", "\n"), body.trim_end_matches('\n')] {
        assert!(verify(trimmed).is_err(), "{trimmed:?}");
    }
}

/// Meta escapes what is no ASCII before it signs. Decoded, either case is the same text.
#[test]
fn escapes_of_either_case_are_one_id_and_two_bodies() {
    let meta = provider("meta");
    let key = key(&meta, "ours only");
    let body = |mid: &str| {
        format!(
            r#"{{"object":"page","entry":[{{"messaging":[{{"message":{{"mid":"{mid}"}}}}]}}]}}"#
        )
    };
    let lower = signed(&meta, &key, &[], &body(r"m_\u00e4"));
    let upper = Delivery { body: body(r"m_\u00E4").into(), ..lower.clone() };
    let plain = Delivery { body: body("m_ä").into(), ..lower.clone() };
    assert!(meta.verify(lower, std::slice::from_ref(&key), NOW, None).is_ok());
    for other in [upper, plain] {
        assert!(meta.verify(other, std::slice::from_ref(&key), NOW, None).is_err());
    }
    let stripe = |id: &str| ids("stripe", &[], &format!(r#"{{"id":"{id}"}}"#));
    assert_eq!(stripe(r"evt_\u00e9"), stripe(r"evt_\u00E9"));
    assert_eq!(stripe(r"\u0065vt_1"), ["evt_1"]);
}

#[test]
fn what_a_form_holds_is_found_in_it() {
    let form = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let payload =
        "payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%22a+b%2Bc%22%7D";
    assert_eq!(ids("slack", &form, payload), ["a b+c"]);
    assert_eq!(ids("slack", &form, "command=%2Ftea&trigger_id=1.2"), ["1.2"]);
    let twilio = "MessageSid=SM1&MessageStatus=sent";
    assert_eq!(
        ids("twilio", &form, twilio),
        ids("twilio", &form, "MessageStatus=sent&MessageSid=SM1")
    );
    assert_ne!(ids("twilio", &form, twilio), ids("twilio", &form, &twilio.replace("sent", "read")));
    // Of a name that comes twice, nobody could say which is meant.
    assert!(events("slack", &form, "trigger_id=1&trigger_id=2").is_err());
}

#[test]
fn what_a_handshake_signs_can_be_no_delivery() {
    for (name, method, parameter) in
        [("x", "GET", "crc_token"), ("braintree", "GET", "bt_challenge")]
    {
        let provider = provider_at_home(name);
        let key = key(&provider, secret_of(name));
        let refusals = ["%7B%22a%22%3A1%7D", "PG5vdGlm%0A", "a%20b", "v0%3A1", "", "%C3%A4"];
        for challenge in refusals {
            let query = format!("{parameter}={challenge}");
            let headers = [("content-type", "text/plain")].into_iter().collect();
            let delivery = Delivery { method: method.into(), headers, query, body: Vec::new() };
            let greeting = provider.greet(&delivery, std::slice::from_ref(&key));
            assert!(matches!(greeting, Some(Greeting::Refused(_))), "{name}: {challenge}");
        }
    }
}

/// Digits are JSON, and letters are what a payload is encoded with: either could be a body.
#[test]
fn what_a_handshake_has_signed_is_believed_from_nobody() {
    let asks = |method: &str, query: String, headers: &[(&str, &str)], body: String| Delivery {
        method: method.into(),
        headers: headers.iter().copied().collect(),
        query,
        body: body.into(),
    };
    let x = provider("x");
    let x_key = [key(&x, "ours only")];
    let braintree = provider_at_home("braintree");
    let braintree_key = [key(&braintree, "ours only")];
    let answer = |provider: &Provider, keys: &[Key], parameter: &str, challenge: &str| {
        let asked = asks("GET", format!("{parameter}={challenge}"), &[], String::new());
        match provider.greet(&asked, keys) {
            Some(Greeting::Answered(reply)) => reply.body,
            other => panic!("{challenge}: {other:?}"),
        }
    };
    for challenge in ["1234", "true", "abc"] {
        let body = answer(&x, &x_key, "crc_token", challenge);
        let signature = body.split('"').nth(3).expect("a signature");
        let headers = [("x-twitter-webhooks-signature", signature)];
        let recast = asks("POST", String::new(), &headers, challenge.into());
        let refusal = x.verify(recast, &x_key, NOW, None).expect_err(challenge);
        assert_eq!(refusal.reason(), "bad_signature", "x: {challenge}");
    }
    for challenge in ["1234", "abcdef"] {
        let signature = answer(&braintree, &braintree_key, "bt_challenge", challenge);
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let signature = signature.replace('|', "%7C").replace(' ', "+");
        let form = format!("bt_signature={signature}&bt_payload={challenge}");
        let recast = asks("POST", String::new(), &headers, form);
        let refusal = braintree.verify(recast, &braintree_key, NOW, None).expect_err(challenge);
        assert_eq!(refusal.reason(), "bad_signature", "braintree: {challenge}");
    }
}

#[test]
fn a_handshake_that_is_signed_wrongly_is_not_answered() {
    let zoom = provider("zoom");
    let key = key(&zoom, "ours only");
    let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"a"}}"#;
    let right = signed(&zoom, &key, &[], body);
    assert_eq!(zoom.greet(&right, std::slice::from_ref(&key)), None, "its signature comes first");
    let verified = zoom.verify(right.clone(), std::slice::from_ref(&key), NOW, None);
    let reply = zoom.handshake(&verified.expect("signed by us")).expect("an answer");
    assert!(reply.body.starts_with(r#"{"plainToken":"a","encryptedToken":""#), "{}", reply.body);
    let wrong = Delivery { body: body.replace("\"a\"", "\"b\"").into(), ..right };
    assert_eq!(zoom.greet(&wrong, std::slice::from_ref(&key)), None);
    assert!(zoom.verify(wrong, &[key], NOW, None).is_err());
}

#[test]
fn a_signature_for_less_than_the_body_is_said_to_be_one() {
    let less = |coverage: Coverage| {
        let names = Provider::builtin_names().iter().copied();
        names.filter(move |name| provider(name).coverage() == coverage).collect::<BTreeSet<_>>()
    };
    assert_eq!(less(Coverage::Checksum), ["paypal"].into());
    assert_eq!(less(Coverage::Parts), ["adyen", "aws-sns", "braintree"].into());
    let nothing = [
        "eventbridge",
        "gitlab",
        "jira-connect",
        "mailgun",
        "microsoft-graph",
        "mollie-classic",
        "postmark",
    ];
    assert_eq!(less(Coverage::Nothing), nothing.into());
    for name in nothing {
        assert!(!provider(name).signs_event_id(), "{name}");
    }
    for name in Provider::builtin_names() {
        let provider = provider(name);
        let is_shown = provider.describe().traps.contains(&Trap::UnsignedBody);
        assert_eq!(is_shown, provider.coverage() != Coverage::Body, "{name}");
    }
}

#[test]
fn of_a_list_of_signatures_what_cannot_be_read_is_skipped() {
    for (name, header, before, after) in [
        ("stripe", "stripe-signature", "v1=,v1=zz,v1,=,v2=00,", ",v1=00"),
        ("standard-webhooks", "webhook-signature", "v1,??? v1, v9,AAAA ", " v1,AAAA v1a,AAAA"),
        ("paddle", "paddle-signature", "h1=;h1=zz;h2=00;", ";h1=00"),
        ("pagerduty", "x-pagerduty-signature", "v1=zz,v0=00,", ",v1="),
    ] {
        let provider = provider(name);
        let key = key(&provider, secret_of(name));
        let id = [("webhook-id", "msg_1")];
        let right = signed(&provider, &key, &id, "{}");
        let verify = |change: &dyn Fn(&str) -> String| {
            let headers = right.headers.iter();
            let headers = headers.map(|(known, value)| {
                (known, if known == header { change(value) } else { value.to_owned() })
            });
            let delivery = Delivery { headers: headers.collect(), ..right.clone() };
            provider.verify(delivery, std::slice::from_ref(&key), NOW, None).is_ok()
        };
        assert!(verify(&|value| format!("{before}{value}{after}")), "{name}");
        let cut = |value: &str| value[..value.len() - 2].to_owned();
        assert!(
            !verify(&|value| format!("{before}{}{after}", cut(value))),
            "{name}: none is right"
        );
    }
}

/// The text of the secret is the key, however much it looks like something encoded.
#[test]
fn a_secret_that_looks_encoded_is_taken_as_it_is() {
    let tags = |secret: &[u8], text: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, text);
        [hex::encode(tag.as_ref()), BASE64_STANDARD.encode(tag.as_ref())]
    };
    for (name, header, text) in [
        ("slack", "x-slack-signature", "v0:1750000000:{}"),
        ("stripe", "stripe-signature", "1750000000.{}"),
        ("shopify", "x-shopify-hmac-sha256", "{}"),
        ("bigcommerce", "webhook-signature", "msg_1.1750000000.{}"),
        ("xero", "x-xero-signature", "{}"),
        ("dropbox", "x-dropbox-signature", "{}"),
    ] {
        for secret in
            ["0123456789abcdef0123456789abcdef", "00ff00ff", "b3VycyBvbmx5", "whsec_b3Vycw=="]
        {
            let provider = provider(name);
            let key = key(&provider, secret);
            let delivery = signed(&provider, &key, &[("webhook-id", "msg_1")], "{}");
            let signature = delivery.headers.get(header).expect(name);
            let expected = tags(secret.as_bytes(), text.as_bytes());
            assert!(expected.iter().any(|tag| signature.ends_with(tag)), "{name}: {signature}");
        }
    }
}

#[test]
fn an_item_that_is_not_signed_spoils_the_batch() {
    let adyen = provider("adyen");
    let key = key(&adyen, secret_of("adyen"));
    let item = r#"{"NotificationRequestItem":{"additionalData":{"hmacSignature":"{{signature}}"},"pspReference":"P","merchantAccountCode":"M","eventCode":"CAPTURE","success":"true"}}"#;
    let batch = |items: &[&str]| format!(r#"{{"notificationItems":[{}]}}"#, items.join(","));
    let signed = signed(&adyen, &key, &[], &batch(&[item, item]));
    let body = String::from_utf8(signed.body.clone()).expect("text");
    let verify = |body: String| {
        let delivery = Delivery { body: body.into(), ..signed.clone() };
        adyen.verify(delivery, std::slice::from_ref(&key), NOW, None).is_ok()
    };
    assert!(verify(body.clone()));
    assert!(!verify(body.replacen("\"P\"", "\"Q\"", 1)), "the first");
    let (before, after) = body.rsplit_once("\"P\"").expect("two items");
    assert!(!verify(format!("{before}\"Q\"{after}")), "the last");
    assert!(!verify(batch(&[])), "none");
    assert!(!verify("{}".into()), "no list");
}

#[test]
fn a_batch_keeps_its_order_and_each_event_its_own_text() {
    let body = r#"{"events":[{"id":"c", "n":9007199254740993},{"id":"a"},{"id":"b"}]}"#;
    let events = events("gocardless", &[], body).expect("identified");
    let found: Vec<_> = events
        .iter()
        .map(|event| (event.key.id().as_str(), std::str::from_utf8(&event.payload)))
        .collect();
    let expected = [
        ("c", Ok(r#"{"id":"c", "n":9007199254740993}"#)),
        ("a", Ok(r#"{"id":"a"}"#)),
        ("b", Ok(r#"{"id":"b"}"#)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_empty_batch_is_no_event_and_no_mistake() {
    assert_eq!(ids("gocardless", &[], r#"{"events":[]}"#), [""; 0]);
    assert!(matches!(
        events("gocardless", &[], r#"{"event":{}}"#),
        Err(Unidentifiable::Missing { .. })
    ));
    assert!(matches!(
        events("gocardless", &[], r#"{"events":{}}"#),
        Err(Unidentifiable::NoList { found: "an object", .. })
    ));
    assert!(matches!(
        events("gocardless", &[], r#"{"events":[],"events":[]}"#),
        Err(Unidentifiable::Twice { .. })
    ));
    assert!(matches!(
        events("gocardless", &[], r#"{"events":[{"id":"a"},{}]}"#),
        Err(Unidentifiable::Missing { .. })
    ));
}

#[test]
fn more_events_than_anybody_sends_are_refused() {
    let batch = |items: usize| format!("{{\"events\":[{}]}}", vec!["{\"id\":1}"; items].join(","));
    let most = limits::MAX_EVENTS_PER_DELIVERY;
    assert_eq!(events("gocardless", &[], &batch(most)).map(|events| events.len()), Ok(most));
    let place = "body /events".to_owned();
    assert_eq!(
        events("gocardless", &[], &batch(most + 1)).map(|events| events.len()),
        Err(Unidentifiable::TooMany { place })
    );
    // Lists within lists are counted together.
    let entry = format!("{{\"changes\":[{}]}}", vec!["{}"; 501].join(","));
    let nested = format!("{{\"entry\":[{entry},{entry}]}}");
    assert!(matches!(events("meta", &[], &nested), Err(Unidentifiable::TooMany { .. })));
}

#[test]
fn a_confirmation_is_called_at_amazons_hosts_only() {
    let sns = provider("aws-sns");
    let key = key(&sns, secret_of("aws-sns"));
    let asked = |url: &str| {
        let body = format!(
            r#"{{"Type":"SubscriptionConfirmation","MessageId":"m","TopicArn":"t","Message":"x","Token":"t","SubscribeURL":"{url}","Timestamp":"2025-06-15T15:06:40Z","SignatureVersion":"2","Signature":"{{{{signature}}}}"}}"#
        );
        let delivery = signed(&sns, &key, &[], &body);
        let verified = sns.verify(delivery, std::slice::from_ref(&key), NOW, None);
        let verified = verified.expect("signed by us");
        assert!(sns.handshake(&verified).is_some());
        sns.confirmation(&verified)
    };
    let right = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t";
    assert_eq!(asked(right), Some(Confirmation::At(right.to_owned())));
    for other in ["https://sns.eu-west-1.amazonaws.com.evil.example/", "http://169.254.169.254/"] {
        assert_eq!(asked(other), Some(Confirmation::Elsewhere), "{other}");
    }
}
