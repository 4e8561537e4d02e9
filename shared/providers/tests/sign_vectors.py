"""Writes vectors.json: deliveries of our own making, signed by implementations that are not ours.

    python -m venv venv
    venv/bin/pip install stripe svix standardwebhooks slack_sdk cryptography \\
        twilio braintree Adyen hubspot-api-client PyJWT sendgrid
    npm install @octokit/webhooks-methods@6
    venv/bin/python sign_vectors.py > vectors.json

Where a provider's package signs, it signs here; elsewhere the standard library's hmac does. The
output depends on the package versions only, which it records.
"""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version

import sign_catalogue
import slack_sdk.signature
import standardwebhooks
import stripe
import svix.webhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NOW = 1_750_000_000
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

vectors = []


def vector(provider, name, signed_by, secrets, headers, body, *, now=NOW, reason=None, **expected):
    """`reason` is why it is refused; without it the delivery verifies."""
    vectors.append(
        {
            "provider": provider,
            "name": name,
            "signed_by": signed_by,
            "secrets": secrets,
            "headers": headers,
            "body": body,
            "now": now,
            "reason": reason,
            **expected,
        }
    )


def event(id, type=None, object=None, occurred_at=None):
    return {"id": id, "type": type, "object": object, "occurred_at": occurred_at}


# Stripe

STRIPE_SECRET = "whsec_ours_only_1"
STRIPE_OLD = "whsec_ours_only_0"


def stripe_headers(body, secret=STRIPE_SECRET, at=NOW):
    header = stripe.WebhookSignature.generate_signature_header(body, secret, timestamp=at)
    return {"Stripe-Signature": header, "Content-Type": JSON}


def stripe_case(name, body, headers=None, secrets=(STRIPE_SECRET,), **rest):
    headers = headers or stripe_headers(body)
    vector("stripe", name, "stripe", list(secrets), headers, body, **rest)


def stripe_cases():
    paid = json.dumps(
        {
            "id": "evt_ours_1",
            "object": "event",
            "created": NOW - 20,
            "data": {"object": {"id": "pi_ours_1", "note": "Käse & \u2028 tea ☕"}},
            "type": "payment_intent.succeeded",
        },
        indent=2,
        ensure_ascii=False,
    )
    paid_event = event("evt_ours_1", "payment_intent.succeeded", "pi_ours_1", NOW - 20)
    stripe_case("one signature", paid, events=[paid_event])
    both = stripe_headers(paid, STRIPE_OLD)
    both["Stripe-Signature"] += "," + stripe_headers(paid)["Stripe-Signature"].split(",")[1]
    stripe_case("two signatures while a secret is rolled", paid, both, events=[paid_event])
    stripe_case(
        "an old secret among the configured ones",
        paid,
        stripe_headers(paid, STRIPE_OLD),
        secrets=(STRIPE_SECRET, STRIPE_OLD),
        events=[paid_event],
    )
    account = paid.replace('"object": "event"', '"object": "event", "account": "acct_ours"')
    stripe_case("of a connected account", account, events=[paid_event])
    stripe_case("at the edge of the tolerance", paid, now=NOW + 300, events=[paid_event])
    stripe_case("a second too old", paid, now=NOW + 301, reason="stale_timestamp")
    stripe_case("a second too new", paid, now=NOW - 301, reason="future_timestamp")
    stripe_case(
        "a timestamp with leading zeros is signed as it is written",
        paid,
        stripe_headers(paid, at=f"00{NOW}"),
        events=[paid_event],
    )
    stripe_case(
        "a signed timestamp that is none",
        paid,
        stripe_headers(paid, at=f"{NOW}s"),
        reason="malformed_timestamp",
    )
    thin = json.dumps(
        {
            "id": "evt_ours_2",
            "object": "v2.core.event",
            "created": "2025-06-15T15:06:40.250Z",
            "related_object": {"id": "mtr_ours", "type": "billing.meter"},
            "type": "v1.billing.meter.error_report_triggered",
        }
    )
    stripe_case(
        "a thin event",
        thin,
        events=[event("evt_ours_2", "v1.billing.meter.error_report_triggered", "mtr_ours", NOW + 0.25)],
    )
    only_v0 = stripe_headers(paid)
    only_v0["Stripe-Signature"] = only_v0["Stripe-Signature"].replace("v1=", "v0=")
    stripe_case("only a v0 member", paid, only_v0, reason="unknown_signature_version")
    no_time = {"Stripe-Signature": stripe_headers(paid)["Stripe-Signature"].split(",")[1]}
    stripe_case("no timestamp", paid, no_time, reason="no_timestamp")
    stripe_case("no signature", paid, {"Content-Type": JSON}, reason="no_signature")
    stripe_case("no hex", paid, {"Stripe-Signature": f"t={NOW},v1=tea"}, reason="malformed_signature")
    stripe_case("another body", paid + " ", stripe_headers(paid), reason="bad_signature")
    stripe_case("another secret", paid, secrets=(STRIPE_OLD,), reason="bad_signature")
    for name, body in {
        "no id": '{"type":"a"}',
        "an id that is an object": '{"id":{"a":1}}',
        "an id that is null": '{"id":null}',
        "an id that is true": '{"id":true}',
        "an empty id": '{"id":""}',
        "two ids": '{"id":"evt_1","id":"evt_2"}',
        "an id of 513 bytes": json.dumps({"id": "x" * 513}),
        "an id with a line end": '{"id":"evt\\n1"}',
        "half a body": '{"id":"evt_1"',
        "an array": '[{"id":"evt_1"}]',
        "a byte order mark": '\ufeff{"id":"evt_1"}',
        "an empty body": "",
    }.items():
        stripe_case(name, body, unidentifiable=True)
    stripe_case("an id that is a large number", '{"id":9007199254740993}', events=[event("9007199254740993")])


# GitHub, Shopify: their packages for Python do not sign.


def mac(secret, body, digest=hashlib.sha256):
    return hmac.new(secret.encode(), body.encode(), digest)


def by_octokit(secret, body):
    program = """
        import { sign } from '@octokit/webhooks-methods';
        process.stdout.write(await sign(process.argv[1], process.argv[2]));
    """
    node = ["node", "--input-type=module", "-e", program, secret, body]
    return subprocess.run(node, check=True, capture_output=True, text=True).stdout


def github_cases():
    secret = "ours only, with spaces in it"
    guid = "5f0e6c1e-0000-4000-8000-00000000aaaa"
    opened = json.dumps(
        {
            "action": "opened",
            "issue": {"id": 1, "node_id": "I_ours"},
            "repository": {"node_id": "R_ours"},
        }
    )

    def case(name, body, content_type=JSON, drop=(), add=None, by="hmac", **rest):
        headers = {
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": "issues",
            "X-GitHub-Hook-ID": "42",
            "X-Hub-Signature": "sha1=" + mac(secret, body, hashlib.sha1).hexdigest(),
            "X-Hub-Signature-256": "sha256=" + mac(secret, body).hexdigest(),
            "Content-Type": content_type,
        }
        for header in drop:
            del headers[header]
        headers.update(add or {})
        vector("github", name, by, [secret], headers, body, **rest)

    theirs = {"X-Hub-Signature-256": by_octokit(secret, opened)}
    by = "@octokit/webhooks-methods"
    case("by Octokit", opened, add=theirs, by=by, events=[event(guid, "issues.opened", "I_ours")])
    case("JSON", opened, events=[event(guid, "issues.opened", "I_ours")])
    case("without a hook id", opened, drop=["X-GitHub-Hook-ID"], events=[event(guid, "issues.opened", "I_ours")])
    form = "payload=%7B%22action%22%3A%22opened%22%2C%22issue%22%3A%7B%22node_id%22%3A%22I_ours%22%7D%7D"
    case("a form", form, FORM, events=[event(guid, "issues.opened", "I_ours")])
    case("no JSON, but the id is a header", "tea", events=[event(guid, "issues")])
    case("no delivery id", opened, drop=["X-GitHub-Delivery"], unidentifiable=True)
    case("only SHA-1", opened, drop=["X-Hub-Signature-256"], reason="no_signature")
    bare = {"X-Hub-Signature-256": mac(secret, opened).hexdigest()}
    case("no prefix", opened, add=bare, reason="malformed_signature")
    other = {"X-Hub-Signature-256": "sha256=" + mac("other", opened).hexdigest()}
    case("another secret", opened, add=other, reason="bad_signature")


def shopify_cases():
    secret = "shpss_ours_only"
    body = json.dumps({"id": 9007199254740993, "admin_graphql_api_id": "gid://shopify/Order/9007199254740993"})
    key = "23:teapots-9.myshopify.com|13:orders/create|9:wh-ours-1"

    def case(name, body=body, family="X-Shopify-", drop=(), add=None, **rest):
        headers = {
            family + "Hmac-Sha256": base64.b64encode(mac(secret, body).digest()).decode(),
            family + "Shop-Domain": "teapots-9.myshopify.com",
            family + "Topic": "orders/create",
            family + "Webhook-Id": "wh-ours-1",
            family + "Event-Id": "shared-by-several",
            family + "Triggered-At": "2025-06-15T15:06:40.123456789Z",
            "Content-Type": JSON,
        }
        for header in drop:
            del headers[header]
        headers.update(add or {})
        vector("shopify", name, "hmac", [secret], headers, body, **rest)

    created = event(key, "orders/create", "gid://shopify/Order/9007199254740993", NOW + 0.123)
    case("the older headers", events=[created])
    case("the newer headers", family="Shopify-", events=[created])
    case("a large number for an object", body='{"id":9007199254740993}', events=[event(key, "orders/create", "9007199254740993", NOW + 0.123)])
    case("XML", body="<order/>", events=[event(key, "orders/create", None, NOW + 0.123)])
    case("no topic", drop=["X-Shopify-Topic"], unidentifiable=True)
    case("only an event id", drop=["X-Shopify-Webhook-Id"], unidentifiable=True)
    case("hex", add={"X-Shopify-Hmac-Sha256": mac(secret, body).hexdigest()}, reason="malformed_signature")
    case("no signature", drop=["X-Shopify-Hmac-Sha256"], reason="no_signature")


# Slack


def slack_cases():
    secret = "00ff00ff00ff00ff00ff00ff00ff0009"
    verifier = slack_sdk.signature.SignatureVerifier(secret)

    def case(name, body, content_type=JSON, at=NOW, drop=(), add=None, **rest):
        headers = {
            "X-Slack-Request-Timestamp": str(at),
            "X-Slack-Signature": verifier.generate_signature(timestamp=str(at), body=body),
            "Content-Type": content_type,
        }
        for header in drop:
            del headers[header]
        headers.update(add or {})
        vector("slack", name, "slack_sdk", [secret], headers, body, **rest)

    message = json.dumps(
        {
            "team_id": "T1",
            "event": {
                "type": "message",
                "subtype": "channel_join",
                "channel": "C1",
                "ts": "1750000000.000200",
                "event_ts": "1750000000.000200",
                "text": "a&trigger_id=not-an-id&payload={}",
            },
            "type": "event_callback",
            "event_id": "EvOURS1",
            "event_time": NOW,
        }
    )
    joined = event("EvOURS1", "message.channel_join", "T1:C1:1750000000.000200", NOW)
    case("an event", message, events=[joined])
    case("a retry", message, add={"X-Slack-Retry-Num": "1"}, events=[joined], attempt="1")
    case("an event that a header calls a form", message, FORM, events=[joined])
    case(
        "a slash command",
        "team_id=T1&channel_id=C1&command=%2Ftea&text=green+%26+hot&trigger_id=13.7.ours",
        FORM,
        events=[event("13.7.ours", "/tea", "T1:C1")],
    )
    case(
        "an interaction",
        "payload=%7B%22type%22%3A%22block_actions%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%2C%22trigger_id%22%3A%2213.8.ours%22%7D",
        FORM + "; charset=utf-8",
        events=[event("13.8.ours", "block_actions")],
    )
    case(
        "events left out",
        json.dumps({"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1749999960}),
        events=[event("app_rate_limited|2:T1|10:1749999960", "app_rate_limited", "T1", 1749999960)],
    )
    challenge = json.dumps({"type": "url_verification", "challenge": "ours-only", "token": "x"})
    case("a handshake", challenge, reply={"status": 200, "content_type": "text/plain", "body": "ours-only"}, unidentifiable=True)
    case("a handshake without a challenge", '{"type":"url_verification"}', unidentifiable=True)
    long = json.dumps({"type": "url_verification", "challenge": "x" * 1025})
    case("a handshake with a challenge too long", long, unidentifiable=True)
    case("a handshake that is not signed", challenge, drop=["X-Slack-Signature"], reason="no_signature")
    case("a certificate check", "ssl_check=1&token=x", FORM, reply={"status": 200, "content_type": None, "body": ""}, unidentifiable=True)
    case("two trigger ids", "trigger_id=1&trigger_id=2", FORM, unidentifiable=True)
    case("an interaction that is no JSON", "payload=%7B", FORM, unidentifiable=True)
    case("no timestamp", message, drop=["X-Slack-Request-Timestamp"], reason="no_timestamp")
    case("too old", message, now=NOW + 301, reason="stale_timestamp")
    case("another timestamp", message, add={"X-Slack-Request-Timestamp": str(NOW + 1)}, reason="bad_signature")


# Standard Webhooks and Svix

SECRET = "whsec_" + base64.b64encode(b"ours only: twenty-six bytes").decode()
OTHER = "whsec_" + base64.b64encode(b"ours only: not the same key").decode()


def sign_standard(secret, id, at, body):
    return standardwebhooks.Webhook(secret).sign(id, at, body)


def sign_svix(secret, id, at, body):
    return svix.webhooks.Webhook(secret).sign(id, at, body)


def standard_cases(provider, package, sign, family):
    body = json.dumps({"type": "tea.ready", "timestamp": "2025-06-15T15:06:40Z", "data": {"id": "tea-1"}})
    ready = event("msg_ours_1", "tea.ready")
    if provider == "standard-webhooks":
        ready = event("msg_ours_1", "tea.ready", "tea-1", NOW)

    def case(name, headers, secrets=(SECRET,), signed_by=None, body=body, **rest):
        vector(provider, name, signed_by or package, list(secrets), headers, body, **rest)

    def signed(*signatures, id="msg_ours_1", at=str(NOW), family=family):
        return {family + "id": id, family + "timestamp": at, family + "signature": " ".join(signatures), "Content-Type": JSON}

    def by(secret, id="msg_ours_1", at=NOW):
        return sign(secret, id, datetime.fromtimestamp(at, timezone.utc), body)

    right, wrong = by(SECRET), by(OTHER)
    case("one signature", signed(right), events=[ready])
    case("a secret without its prefix", signed(right), [SECRET.removeprefix("whsec_")], events=[ready])
    case("a secret without its padding", signed(right), [SECRET.rstrip("=")], events=[ready])
    case("an older secret among the configured ones", signed(right), [OTHER, SECRET], events=[ready])
    case("a list with what is unknown and what is broken", signed("v1,ours", "v2,b3Vycw==", "junk", "v1a,b3Vycw==", wrong, right), events=[ready])
    case("none of a list", signed(wrong, wrong), reason="bad_signature")
    case("only a newer version", signed(right.replace("v1,", "v2,")), reason="unknown_signature_version")
    case("nothing that decodes", signed("v1,ours v1,"), reason="malformed_signature")
    case("another id", signed(right, id="msg_ours_2"), reason="bad_signature")
    case("another timestamp", signed(right, at=str(NOW + 1)), reason="bad_signature")
    case("too old", signed(right), now=NOW + 301, reason="stale_timestamp")
    case("too new", signed(right), now=NOW - 301, reason="future_timestamp")
    case("an id with points", signed(by(SECRET, "13.8.ours"), id="13.8.ours"), events=[{**ready, "id": "13.8.ours"}])
    without_id = {name: value for name, value in signed(right).items() if name != family + "id"}
    case("no id", without_id, reason="no_signed_part")
    without_time = {name: value for name, value in signed(right).items() if name != family + "timestamp"}
    case("no timestamp", without_time, reason="no_timestamp")

    # The signed text is msg_ours_1.(real time).(time of an attack).{}: cut elsewhere, it is fresh.
    real = NOW - 86_400
    text = sign(SECRET, "msg_ours_1", datetime.fromtimestamp(real, timezone.utc), f"{NOW}.{{}}")
    case("an old delivery, cut anew", signed(text, id=f"msg_ours_1.{real}"), body="{}", reason="ambiguous_signed_part")

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    pair = "whsk_" + base64.b64encode(bytes(range(32)) + public).decode()
    public = "whpk_" + base64.b64encode(public).decode()
    by_pair = "v1a," + base64.b64encode(key.sign(f"msg_ours_1.{NOW}.{body}".encode())).decode()
    case("by a key pair", signed(by_pair), [public], "cryptography", events=[ready])
    case("by a key pair that is known whole", signed(by_pair), [pair], "cryptography", events=[ready])
    case("by both", signed(wrong, by_pair), [SECRET, public], "cryptography", events=[ready])
    case("by neither", signed(wrong), [SECRET, public], reason="bad_signature")
    case("by a key pair, another body", signed(by_pair), [public], "cryptography", body=body + " ", reason="bad_signature")
    case("by a shared secret where a public key is known", signed(right), [public], reason="unknown_signature_version")
    as_secret = "v1," + base64.b64encode(hmac.new(public.encode(), f"msg_ours_1.{NOW}.{body}".encode(), "sha256").digest()).decode()
    case("by the public key as a shared secret", signed(as_secret), [public], "hmac", reason="unknown_signature_version")

    if provider == "svix":
        neutral = signed(right, family="webhook-")
        case("under the neutral headers", neutral, events=[ready])
        case("under the neutral headers, with a foreign id", {**neutral, "svix-id": "msg_foreign"}, reason="bad_signature")
        case("under both", {**neutral, **signed(right)}, events=[ready])


stripe_cases()
github_cases()
shopify_cases()
slack_cases()
standard_cases("standard-webhooks", "standardwebhooks", sign_standard, "webhook-")
standard_cases("svix", "svix", sign_svix, "svix-")

sign_catalogue.cases(vector, event)

PACKAGES = [
    "stripe",
    "svix",
    "standardwebhooks",
    "slack_sdk",
    "cryptography",
    "twilio",
    "braintree",
    "Adyen",
    "hubspot-api-client",
    "PyJWT",
    "sendgrid",
]
OCTOKIT = {"@octokit/webhooks-methods": "6.0.0"}
json.dump(
    {"packages": {name: version(name) for name in PACKAGES} | OCTOKIT, "vectors": vectors},
    sys.stdout,
    indent=1,
    ensure_ascii=True,
)
print()
