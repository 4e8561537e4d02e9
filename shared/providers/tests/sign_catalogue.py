"""Deliveries of our own making for the rest of the catalogue; sign_vectors.py writes them.

Packages that sign are the providers' own: Twilio, Braintree, Adyen, HubSpot. Elsewhere hmac, PyJWT
or cryptography do. Every provider gets the same cases: as it should be, another body, another
secret, no signature, and out of time where time is signed.
"""

import base64
import hashlib
import hmac
import json
import zlib
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from urllib.parse import quote, urlencode

import braintree.util.crypto
import jwt
from Adyen.util import generate_notification_sig
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hubspot.utils.signature import Signature
from sendgrid.helpers.eventwebhook import EventWebhook
from twilio.request_validator import RequestValidator

NOW = 1_750_000_000
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
URL = "https://hooks.example.com/webhooks/shop-1"
SECRET = "ours only, with spaces & signs"
OTHER = "ours only, another one"


def frame(*parts, kind=None):
    framed = ["-" if part is None else f"{len(part.encode())}:{part}" for part in parts]
    return "|".join(([kind] if kind else []) + framed)


def rfc3339(at):
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def mac(secret, text, algorithm="sha256"):
    secret = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(secret, text.encode(), algorithm)


def b64(data):
    return base64.b64encode(data).decode()


@dataclass
class Sent:
    headers: dict
    body: str
    url: str | None = None


@dataclass
class Cases:
    """The cases that every provider has."""

    vector: object
    provider: str
    sign: object  # (secret, body, at) -> Sent
    body: str
    events: list
    signature: str  # its header, or a text in the body that is taken out
    by: str = "hmac"
    secret: str = SECRET
    shown: str | None = None  # what is configured, where that is not the secret
    other: str = OTHER
    other_body: str | None = None
    other_body_reason: str = "bad_signature"
    tolerance: int | None = None
    attempt: str | None = None
    extra: dict = field(default_factory=dict)

    def case(self, name, sent, secrets=None, now=NOW, **expected):
        secrets = secrets or [self.shown or self.secret]
        if sent.url:
            expected["url"] = sent.url
        if self.attempt and "reason" not in expected:
            expected["attempt"] = self.attempt
        self.vector(self.provider, name, self.by, secrets, sent.headers, sent.body, now=now, **self.extra, **expected)

    def run(self):
        sent = self.sign(self.secret, self.body, NOW)
        self.case("as it should be", sent, events=self.events)
        other = self.other_body if self.other_body is not None else sent.body + " "
        if other:
            self.case("another body", Sent(sent.headers, other, sent.url), reason=self.other_body_reason)
        self.case("another secret", sent, secrets=[self.other], reason="bad_signature")
        self.case("either of two secrets", sent, secrets=[self.other, self.shown or self.secret], events=self.events)
        headers = {name: value for name, value in sent.headers.items() if name.lower() != self.signature.lower()}
        body = sent.body if self.signature.lower() in (name.lower() for name in sent.headers) else sent.body.replace(self.signature, "unsigned")
        self.case("no signature", Sent(headers, body, sent.url), reason="no_signature")
        if self.tolerance:
            self.case("at the edge of the tolerance", sent, now=NOW + self.tolerance, events=self.events)
            self.case("a second too old", sent, now=NOW + self.tolerance + 1, reason="stale_timestamp")
            self.case("a second too new", sent, now=NOW - self.tolerance - 1, reason="future_timestamp")
        return self


def by_header(name, write, headers=None, content_type=JSON):
    """Signs the body, into a header."""
    return lambda secret, body, at: Sent({name: write(secret, body), "Content-Type": content_type, **(headers or {})}, body)


def hex_of(prefix="", algorithm="sha256"):
    return lambda secret, body: prefix + mac(secret, body, algorithm).hexdigest()


def b64_of(prefix=""):
    return lambda secret, body: prefix + b64(mac(secret, body).digest())


def run_cases(vector, provider, sign, body, events, signature, **rest):
    body = body if isinstance(body, str) else json.dumps(body)
    return Cases(vector, provider, sign, body, events, signature, **rest).run()


def cases(vector, event):
    run = partial(run_cases, vector)
    plain(run, event)
    timed(run, event)
    items(run, event)
    urls(run, event)
    asymmetric(run, event)
    tokens(run, event)
    handshakes(vector)


def plain(run, event):
    """One signature of the body in a header."""
    run(
        "coinbase-commerce",
        by_header("X-CC-Webhook-Signature", hex_of()),
        {"id": 7, "attempt_number": 2, "event": {"id": "ours-1", "type": "charge:failed", "created_at": rfc3339(NOW), "data": {"id": "c-1"}}},
        [event("ours-1", "charge:failed", "c-1", NOW)],
        "X-CC-Webhook-Signature",
    )
    run(
        "razorpay",
        by_header("X-Razorpay-Signature", hex_of(), {"x-razorpay-event-id": "ours-1"}),
        {"event": "payment.failed", "payload": {"payment": {"entity": {"id": "pay_1"}}}, "created_at": NOW},
        [event("ours-1", "payment.failed", "pay_1", NOW)],
        "X-Razorpay-Signature",
    )
    mollie = {"id": "event_1", "type": "payment-link.paid", "entityId": "pl_1", "createdAt": rfc3339(NOW)}
    for prefix in ("sha256=", ""):
        run("mollie", by_header("X-Mollie-Signature", hex_of(prefix)), mollie, [event("event_1", "payment-link.paid", "pl_1", NOW)], "X-Mollie-Signature")
    run(
        "checkout.com",
        by_header("Cko-Signature", hex_of()),
        {"id": "evt_1", "type": "payment_declined", "created_on": "2025-06-15T15:06:40.5Z", "data": {"id": "pay_1"}},
        [event("evt_1", "payment_declined", "pay_1", NOW + 0.5)],
        "Cko-Signature",
    )
    run(
        "intercom",
        by_header("X-Hub-Signature", hex_of("sha1=", "sha1")),
        {"id": "notif_1", "topic": "ping", "created_at": NOW, "data": {"item": {"id": "5"}}},
        [event("notif_1", "ping", "5", NOW)],
        "X-Hub-Signature",
    )
    for provider, header, id_header, extra, body, expected in (
        ("bitbucket", "X-Hub-Signature", "X-Request-UUID", {"X-Event-Key": "repo:push", "X-Event-Time": rfc3339(NOW)}, {"repository": {"uuid": "{r-1}"}}, ("repo:push", "{r-1}", NOW)),
        ("bitbucket-data-center", "X-Hub-Signature", "X-Request-Id", {"X-Event-Key": "pr:opened"}, {"date": "2025-06-15T17:06:40+0200", "pullRequest": {"id": 9}}, ("pr:opened", "9", NOW)),
        ("jira", "X-Hub-Signature", "X-Atlassian-Webhook-Identifier", {}, {"timestamp": NOW * 1000, "webhookEvent": "jira:issue_created", "issue": {"id": "10"}}, ("jira:issue_created", "10", NOW)),
    ):
        run(provider, by_header(header, hex_of("sha256="), {id_header: "ours-1", **extra}), body, [event("ours-1", *expected)], header)
    sentry = {"Request-ID": "ours-1", "Sentry-Hook-Resource": "issue", "Sentry-Hook-Timestamp": str(NOW)}
    run("sentry", by_header("Sentry-Hook-Signature", hex_of(), sentry), {"action": "resolved", "data": {"issue": {"id": "1"}}}, [event("ours-1", "issue.resolved", "1", NOW)], "Sentry-Hook-Signature")
    run("vercel", by_header("x-vercel-signature", hex_of(algorithm="sha1")), {"id": "v-1", "type": "project.created", "createdAt": NOW * 1000, "payload": {"project": {"id": "prj_1"}}}, [event("v-1", "project.created", "prj_1", NOW)], "x-vercel-signature")
    pager = {"event": {"id": "p-1", "event_type": "incident.resolved", "occurred_at": rfc3339(NOW), "data": {"id": "P1"}}}
    run("pagerduty", by_header("X-PagerDuty-Signature", hex_of("v1=")), pager, [event("p-1", "incident.resolved", "P1", NOW)], "X-PagerDuty-Signature")
    rolled = lambda secret, body: f"v1={'0' * 64},v2=junk,v1={mac(secret, body).hexdigest()}"
    run("pagerduty", by_header("X-PagerDuty-Signature", rolled), pager, [event("p-1", "incident.resolved", "P1", NOW)], "X-PagerDuty-Signature")
    run("circleci", by_header("circleci-signature", hex_of("v1=")), {"id": "c-1", "type": "job-completed", "happened_at": rfc3339(NOW), "job": {"id": "j-1"}}, [event("c-1", "job-completed", "j-1", NOW)], "circleci-signature")
    lemon = {"meta": {"event_name": "order_refunded"}, "data": {"type": "orders", "id": "1", "attributes": {"updated_at": "2025-06-15T15:06:40.000000Z"}}}
    run("lemonsqueezy", by_header("X-Signature", hex_of()), lemon, [event(frame("order_refunded", "orders", "1", "2025-06-15T15:06:40.000000Z"), "order_refunded", "1", NOW)], "X-Signature")
    cal = {"triggerEvent": "MEETING_ENDED", "createdAt": rfc3339(NOW), "uid": "u-1"}
    run("calcom", by_header("X-Cal-Signature-256", hex_of()), cal, [event(frame("MEETING_ENDED", "u-1", rfc3339(NOW)), "MEETING_ENDED", "u-1", NOW)], "X-Cal-Signature-256")
    typeform = {"event_id": "t-1", "event_type": "form_response", "form_response": {"token": "r-1", "submitted_at": rfc3339(NOW)}}
    run("typeform", by_header("Typeform-Signature", b64_of("sha256=")), typeform, [event("t-1", "form_response", "r-1", NOW)], "Typeform-Signature")
    docusign = {"event": "envelope-voided", "configurationId": 7, "generatedDateTime": rfc3339(NOW), "data": {"envelopeId": "e-1"}}
    expected = [event(frame("7", "envelope-voided", "e-1", None, rfc3339(NOW)), "envelope-voided", "e-1", NOW)]
    run("docusign", by_header("X-DocuSign-Signature-1", b64_of()), docusign, expected, "X-DocuSign-Signature-1")
    run("docusign", by_header("X-DocuSign-Signature-27", b64_of(), {"X-DocuSign-Signature-Time": "now"}), docusign, expected, "X-DocuSign-Signature-27")
    woo = json.dumps({"id": 7, "date_modified_gmt": "2025-06-15T15:06:40"})
    topic = {"X-WC-Webhook-Topic": "order.deleted", "X-WC-Webhook-Delivery-ID": "new each time"}
    expected = [event(frame("order.deleted", hashlib.sha256(woo.encode()).hexdigest()), "order.deleted", "7", NOW)]
    stored = lambda secret, body: b64_of()(secret.replace("&amp;", "&"), body)
    run("woocommerce", by_header("X-WC-Webhook-Signature", stored, topic), woo, expected, "X-WC-Webhook-Signature", secret="ours &amp; only", attempt="new each time")


def timed(run, event):
    """A time beside the body, or in it."""

    def tagged(header, write):
        return lambda secret, body, at: Sent({header: write(secret, body, at), "Content-Type": JSON}, body)

    run(
        "paddle",
        tagged("Paddle-Signature", lambda s, b, t: f"ts={t};h1={mac(s, f'{t}:{b}').hexdigest()};h1={'0' * 64}"),
        {"event_id": "evt_1", "event_type": "customer.created", "occurred_at": "2025-06-15T15:06:40.250000Z", "notification_id": "ntf_1", "data": {"id": "ctm_1"}},
        [event("evt_1", "customer.created", "ctm_1", NOW + 0.25)],
        "Paddle-Signature",
        tolerance=60,
    )
    calendly = {"event": "invitee.canceled", "created_at": rfc3339(NOW), "payload": {"uri": "https://example.com/i-1"}}
    run("calendly", tagged("Calendly-Webhook-Signature", lambda s, b, t: f"t={t},v1={mac(s, f'{t}.{b}').hexdigest()}"), calendly, [event(frame("invitee.canceled", rfc3339(NOW), "https://example.com/i-1"), "invitee.canceled", "https://example.com/i-1", NOW)], "Calendly-Webhook-Signature", tolerance=180)
    eleven = {"type": "post_call_audio", "event_timestamp": NOW, "data": {"conversation_id": "conv_1"}}
    run("elevenlabs", tagged("ElevenLabs-Signature", lambda s, b, t: f"t={t},v0={mac(s, f'{t}.{b}').hexdigest()}"), eleven, [event(frame("post_call_audio", "conv_1", str(NOW)), "post_call_audio", "conv_1", NOW)], "ElevenLabs-Signature", tolerance=1800)

    def zoom(secret, body, at):
        return Sent({"x-zm-signature": "v0=" + mac(secret, f"v0:{at}:{body}").hexdigest(), "x-zm-request-timestamp": str(at), "Content-Type": JSON}, body)

    joined = {"event": "meeting.participant_joined", "event_ts": NOW * 1000, "payload": {"account_id": "a", "object": {"uuid": "m-1", "participant": {"user_id": "16778240"}}}}
    run("zoom", zoom, joined, [event(frame("meeting.participant_joined", str(NOW * 1000), "a", "m-1", "16778240"), "meeting.participant_joined", "m-1", NOW)], "x-zm-signature", tolerance=300)

    def zendesk(secret, body, at):
        time = rfc3339(at)
        return Sent({"X-Zendesk-Webhook-Signature": b64(mac(secret, time + body).digest()), "X-Zendesk-Webhook-Signature-Timestamp": time, "Content-Type": JSON}, body)

    run("zendesk", zendesk, {"id": "z-1", "type": "zen:event-type:ticket.created", "time": rfc3339(NOW), "subject": "zen:ticket:1"}, [event("z-1", "zen:event-type:ticket.created", "zen:ticket:1", NOW)], "X-Zendesk-Webhook-Signature", secret=b64(b"looks like base64, is not"), tolerance=300)
    linear = {"action": "update", "type": "Issue", "createdAt": rfc3339(NOW), "data": {"id": "i-1"}, "webhookTimestamp": NOW * 1000}
    run("linear", by_header("Linear-Signature", hex_of(), {"Linear-Delivery": "d-1"}), linear, [event("d-1", "Issue.update", "i-1", NOW)], "Linear-Signature", tolerance=60)

    def standard(family, decode):
        def sign(secret, body, at):
            code = b64(mac(decode(secret), f"msg_1.{at}.{body}").digest())
            return Sent({family + "id": "msg_1", family + "timestamp": str(at), family + "signature": f"v1,junk v1,{code}", "Content-Type": JSON}, body)

        return sign

    encoded = lambda secret: base64.b64decode(secret.removeprefix("whsec_"))
    ours, other = "whsec_" + b64(b"ours only: twenty-six bytes"), "whsec_" + b64(b"ours only: another key")
    for provider, family, body, expected in (
        ("resend", "svix-", {"type": "email.bounced", "created_at": rfc3339(NOW), "data": {"email_id": "e-1"}}, ("email.bounced", "e-1", NOW)),
        ("clerk", "svix-", {"type": "user.deleted", "timestamp": NOW * 1000, "data": {"id": "user_1"}}, ("user.deleted", "user_1", NOW)),
        ("openai", "webhook-", {"type": "batch.failed", "created_at": NOW, "data": {"id": "batch_1"}}, ("batch.failed", "batch_1", NOW)),
    ):
        run(provider, standard(family, encoded), body, [event("msg_1", *expected)], family + "signature", secret=ours, other=other, tolerance=300)
    gitlab = lambda secret, body, at: (lambda sent: Sent({**sent.headers, "X-Gitlab-Event": "Tag Push Hook", "Idempotency-Key": "another"}, sent.body))(standard("webhook-", encoded)(secret, body, at))
    run("gitlab", gitlab, {"object_kind": "tag_push", "checkout_sha": "abc"}, [event("msg_1", "Tag Push Hook", "abc")], "webhook-signature", secret=ours, other=other, tolerance=300)
    big = {"producer": "stores/1", "scope": "store/order/updated", "data": {"id": 250}, "hash": "h-1", "created_at": NOW}
    run("bigcommerce", standard("webhook-", str.encode), big, [event(frame("stores/1", "h-1"), "store/order/updated", "250", NOW)], "webhook-signature", tolerance=300)


def items(run, event):
    """Several events in one delivery."""
    gocardless = {"events": [{"id": f"EV{n}", "created_at": rfc3339(NOW + n), "resource_type": "mandates", "action": "active", "links": {"mandate": f"MD{n}"}} for n in (1, 2, 3)], "meta": {"webhook_id": "WB1"}}
    run("gocardless", by_header("Webhook-Signature", hex_of()), gocardless, [event(f"EV{n}", "mandates.active", f"MD{n}", NOW + n) for n in (1, 2, 3)], "Webhook-Signature")
    xero = {"events": [{"tenantId": "t", "eventCategory": "CONTACT", "eventType": "CREATE", "resourceId": r, "eventDateUtc": "2025-06-15T15:06:40.125"} for r in "ab"], "entropy": "x"}
    run("xero", by_header("x-xero-signature", b64_of()), xero, [event(frame("t", "CONTACT", "CREATE", r, "2025-06-15T15:06:40.125"), "CONTACT.CREATE", r, NOW + 0.125) for r in "ab"], "x-xero-signature", secret=b64(b"looks like base64, is not"))
    quick = [{"id": f"q-{n}", "type": "qbo.bill.updated.v1", "time": "2025-06-15T15:06:40.123456789Z", "intuitentityid": str(n)} for n in (1, 2)]
    run("quickbooks", by_header("intuit-signature", b64_of()), quick, [event(f"q-{n}", "qbo.bill.updated.v1", str(n), NOW + 0.123) for n in (1, 2)], "intuit-signature")
    old = {"eventNotifications": [{"realmId": realm, "dataChangeEvent": {"entities": [{"name": "Bill", "id": n, "operation": "Update", "lastUpdated": rfc3339(NOW)} for n in "12"]}} for realm in ("r1", "r2")]}
    run("quickbooks", by_header("intuit-signature", b64_of()), old, [event(frame(realm, "Bill", n, "Update", rfc3339(NOW), kind="entity"), "Bill.Update", n, NOW) for realm in ("r1", "r2") for n in "12"], "intuit-signature")
    value = '{"item":"like","deep":{"a":[1, 2]}}'
    meta = '{"object":"page","entry":[{"id":"1","time":1,"messaging":[{"sender":{"id":"s"},"recipient":{"id":"r"},"timestamp":%d,"message":{"mid":"m-1"}},{"sender":{"id":"s"},"timestamp":%d,"read":{}}]},{"id":"2","time":1,"changes":[{"field":"feed","value":%s}]}]}' % (NOW * 1000, NOW * 1000, value)
    read = '{"sender":{"id":"s"},"timestamp":%d,"read":{}}' % (NOW * 1000)
    sha = lambda text: hashlib.sha256(text.encode()).hexdigest()
    expected = [
        event(frame("page", "2", "feed", sha(value)), "page.feed", "2"),
        event(frame("m-1", kind="message"), "page", "1", NOW),
        event(frame("s", None, str(NOW * 1000), sha(read), kind="messaging"), "page", "1", NOW),
    ]
    run("meta", by_header("X-Hub-Signature-256", hex_of("sha256=")), meta, expected, "X-Hub-Signature-256")
    wa = {"entry": [{"id": "w", "changes": [
        {"field": "messages", "value": {"messages": [{"id": "wamid.1", "from": "1", "timestamp": str(NOW), "type": "text"}]}},
        {"field": "messages", "value": {"statuses": [{"id": "wamid.0", "status": s, "timestamp": str(NOW)} for s in ("sent", "read")]}},
        {"field": "account_update", "value": {"event": "VERIFIED"}},
    ]}]}
    expected = [
        event("wamid.1", "messages.text", "1", NOW),
        *[event(frame("wamid.0", s, str(NOW), kind="status"), f"messages.{s}", "wamid.0", NOW) for s in ("sent", "read")],
        event(frame("w", "account_update", sha('{"event": "VERIFIED"}'), kind="change"), "account_update", "w"),
    ]
    run("whatsapp-cloud", by_header("X-Hub-Signature-256", hex_of("sha256=")), wa, expected, "X-Hub-Signature-256")
    x = '{"for_user_id":"7","tweet_create_events":[{"id":9007199254740993,"id_str":"9007199254740993","timestamp_ms":"%d"}],"favorite_events":[{"id":"f-1","timestamp_ms":%d}],"follow_events":[{"type":"follow","created_timestamp":"%d","source":{"id":9007199254740993},"target":{"id":"7"}}]}' % (NOW * 1000, NOW * 1000, NOW * 1000)
    expected = [
        event(frame("7", "9007199254740993", kind="tweet"), None, "7", NOW),
        event(frame("7", "f-1", kind="favorite"), None, "7", NOW),
        event(frame("7", "follow", "9007199254740993", "7", str(NOW * 1000), kind="follow"), None, "7", NOW),
    ]
    run("x", by_header("x-twitter-webhooks-signature", b64_of("sha256=")), x, expected, "x-twitter-webhooks-signature")
    run("x", by_header("x-twitter-webhooks-signature", b64_of("sha256=")), {"data": {"event_uuid": "u-1", "event_type": "post.create"}}, [event("u-1", "post.create")], "x-twitter-webhooks-signature")
    accounts = {"list_folder": {"accounts": ["dbid:1", "dbid:2"]}}
    run("dropbox", by_header("X-Dropbox-Signature", hex_of()), accounts, [event(frame(a, f"{NOW}000"), None, a) for a in ("dbid:1", "dbid:2")], "X-Dropbox-Signature")
    adyen(run, event)


def adyen(run, event):
    key, other = "00112233445566778899AABBCCDDEEFF" * 2, "FF" * 32

    def sign(secret, body, at):
        message = json.loads(body)
        for item in message["notificationItems"]:
            item = item["NotificationRequestItem"]
            item["additionalData"]["hmacSignature"] = generate_notification_sig(item, secret).decode()
        return Sent({"Content-Type": JSON}, json.dumps(message))

    def item(psp, code, success, reference):
        return {"NotificationRequestItem": {"pspReference": psp, "merchantAccountCode": "Shop", "merchantReference": reference, "amount": {"value": 4200, "currency": "EUR"}, "eventCode": code, "success": success, "eventDate": "2025-06-15T17:06:40+02:00", "additionalData": {}}}

    body = json.dumps({"live": "false", "notificationItems": [item("P1", "AUTHORISATION", "false", "o-1"), item("P1", "AUTHORISATION", "true", "o\\1")]})
    events = [event(frame("Shop", "P1", "AUTHORISATION", success), "AUTHORISATION", "P1", NOW) for success in ("false", "true")]
    signed = sign(key, body, NOW)
    one_more = json.loads(signed.body)
    one_more["notificationItems"].append(item("P2", "CAPTURE", "true", "o-2"))
    first = json.loads(signed.body)["notificationItems"][0]["NotificationRequestItem"]["additionalData"]["hmacSignature"]
    kept = dict(secret=key, other=other, by="Adyen")
    run("adyen", sign, body, events, '"hmacSignature": "' + first, other_body=signed.body.replace('"P1"', '"P9"', 1), **kept)
    platform = json.dumps({"type": "balancePlatform.transfer.created", "timestamp": rfc3339(NOW), "data": {"id": "T1"}})
    digest = hashlib.sha256(platform.encode()).hexdigest()
    header = by_header("HmacSignature", lambda secret, text: b64(mac(bytes.fromhex(secret), text).digest()))
    cases = run("adyen", header, platform, [event(frame(digest, kind="platform"), "balancePlatform.transfer.created", "T1", NOW)], "HmacSignature", secret=key, other=other)
    cases.case("one item of three is not signed", Sent({"Content-Type": JSON}, json.dumps(one_more)), reason="no_signature")
    cases.case("no items", Sent({"Content-Type": JSON}, '{"notificationItems":[]}'), reason="no_signature")


def urls(run, event):
    """The URL is signed too."""

    def square(secret, body, at):
        return Sent({"x-square-hmacsha256-signature": b64(mac(secret, URL + body).digest()), "Content-Type": JSON}, body, URL)

    cases = run("square", square, {"event_id": "sq-1", "type": "refund.created", "created_at": rfc3339(NOW), "data": {"id": "R1", "note": "<&>"}}, [event("sq-1", "refund.created", "R1", NOW)], "x-square-hmacsha256-signature")
    sent = square(SECRET, "{}", NOW)
    cases.case("another URL", Sent(sent.headers, sent.body, URL + "/"), reason="bad_signature")
    cases.case("no URL is known", Sent(sent.headers, sent.body), reason="no_url")

    params = {"MessageSid": "SM1", "MessageStatus": "delivered", "Body": "a b+c&d ä", "Empty": ""}
    for url, signed in ((URL + "?foo=1&bar=%27", URL + "?foo=1&bar=%27"), (URL, URL.replace(".com/", ".com:443/"))):

        def twilio(secret, body, at, url=url, signed=signed):
            code = RequestValidator(secret).compute_signature(signed, params)
            return Sent({"X-Twilio-Signature": code, "Content-Type": FORM}, body, url)

        expected = [event(frame("SM1", "delivered", kind="message"), "delivered", "SM1")]
        cases = run("twilio", twilio, urlencode(params), expected, "X-Twilio-Signature", by="twilio", other_body=urlencode({**params, "Added": "1"}))
    shuffled = urlencode(dict(reversed(params.items())))
    cases.case("in another order, with another escape", Sent(twilio(SECRET, "", NOW).headers, shuffled.replace("+", "%20"), URL), events=expected)
    body = json.dumps([{"id": "EZ1", "type": "com.example.sent", "time": rfc3339(NOW)}])
    url = f"{URL}?bodySHA256={hashlib.sha256(body.encode()).hexdigest()}"
    headers = {"X-Twilio-Signature": RequestValidator(SECRET).compute_signature(url, {}), "Content-Type": JSON}
    cases.case("a body that the URL has the digest of", Sent(headers, body, url), events=[event(frame("EZ1", kind="stream"), "com.example.sent", None, NOW)])
    cases.case("another body than the digest's", Sent(headers, body + " ", url), reason="other_body")
    cases.case("an empty body in place of it", Sent({**headers, "Content-Type": FORM}, "", url), reason="other_body")
    plain = {"X-Twilio-Signature": RequestValidator(SECRET).compute_signature(URL, {}), "Content-Type": JSON}
    cases.case("a body that nothing is signed of", Sent(plain, body, URL), reason="no_signed_part")

    hub = [{"eventId": 1, "subscriptionId": 2, "portalId": portal, "occurredAt": NOW * 1000, "subscriptionType": "contact.creation", "objectId": 3} for portal in (4, 5)]
    expected = [event(frame(portal, None, "2", "1", "3", str(NOW * 1000), None), "contact.creation", "3", NOW) for portal in "45"]

    def hubspot(version, url=URL):
        def sign(secret, body, at):
            code = Signature.get_signature(secret, body, version, http_uri=url, http_method="POST", timestamp=str(at * 1000))
            if version == "v3":
                return Sent({"X-HubSpot-Signature-v3": code, "X-HubSpot-Request-Timestamp": str(at * 1000), "Content-Type": JSON}, body, url)
            return Sent({"X-HubSpot-Signature": code, "X-HubSpot-Signature-Version": version, "Content-Type": JSON}, body, url)

        return sign

    cases = run("hubspot", hubspot("v3"), hub, expected, "X-HubSpot-Signature-v3", by="hubspot-api-client", tolerance=300)
    run("hubspot", hubspot("v2"), hub, expected, "X-HubSpot-Signature", by="hubspot-api-client")
    run("hubspot", hubspot("v1"), hub, expected, "X-HubSpot-Signature", by="hubspot-api-client")
    sent = hubspot("v3", URL + "?a=b:c/d")(SECRET, json.dumps(hub), NOW)
    for url in ("?a=b%3Ac%2Fd", "?a=b%3ac%2fd"):
        cases.case(f"escapes in the URL: {url}", Sent(sent.headers, sent.body, URL + url), events=expected)

    def contentful(secret, body, at):
        listed = {"x-contentful-signed-headers": "x-contentful-topic,x-contentful-timestamp,x-contentful-signed-headers", "x-contentful-timestamp": str(at * 1000), "x-contentful-topic": "Entry.save"}
        text = "\n".join(["POST", "/webhooks/shop-1", ";".join(f"{name}:{listed[name]}" for name in sorted(listed)), body])
        return Sent({**listed, "x-contentful-signature": mac(secret, text).hexdigest(), "X-Contentful-Idempotency-Key": "k-1", "Content-Type": JSON}, body, URL)

    cases = run("contentful", contentful, {"sys": {"id": "e-1"}}, [event("k-1", "Entry.save", "e-1")], "x-contentful-signature", tolerance=30)
    text = "POST\n/webhooks/shop-1\nx-contentful-topic:Entry.save\n{}"
    unlisted = {"x-contentful-signed-headers": "x-contentful-topic", "x-contentful-topic": "Entry.save", "x-contentful-timestamp": str(NOW * 1000), "x-contentful-signature": mac(SECRET, text).hexdigest()}
    cases.case("a time that is not among what is signed", Sent(unlisted, "{}", URL), reason="no_signed_part")

    def connect(secret, body, at, method="POST", query=""):
        qsh = hashlib.sha256(f"{method}&/webhooks/shop-1&{query}".encode()).hexdigest()
        token = jwt.encode({"iss": "ours", "iat": at, "exp": at + 3600, "qsh": qsh}, secret, "HS256")
        return Sent({"Authorization": "JWT " + token, "X-Atlassian-Webhook-Identifier": "w-1", "Content-Type": JSON}, body, URL)

    body = {"timestamp": NOW * 1000, "webhookEvent": "jira:issue_deleted", "issue": {"id": "1"}}
    # The body is not signed, so another one is no reason to refuse.
    cases = run("jira-connect", connect, body, [event("w-1", "jira:issue_deleted", "1", NOW)], "Authorization", by="PyJWT", secret=SECRET + " and long enough", other=OTHER + " and long enough", other_body="", tolerance=300)
    cases.case("a token for another method", connect(cases.secret, "{}", NOW, method="PUT"), reason="other_request")
    ours = connect(cases.secret, "{}", NOW, query="a=1,2&b=%C3%A4%20")
    cases.case("a query in another order", Sent(ours.headers, "{}", URL + "?b=%C3%A4+&a=2&a=1&jwt=x"), events=[event("w-1")])
    none = jwt.encode({"iat": NOW, "qsh": "x"}, None, "none")
    cases.case("a token that nobody signed", Sent({"Authorization": "JWT " + none}, "{}", URL), reason="malformed_signature")


def asymmetric(run, event):
    seed = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    other = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
    raw = lambda key: key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()

    def discord(secret, body, at):
        return Sent({"X-Signature-Ed25519": seed.sign(f"{at}{body}".encode()).hex(), "X-Signature-Timestamp": str(at), "Content-Type": JSON}, body)

    keys = dict(by="cryptography", shown=raw(seed), other=raw(other))
    run("discord-interactions", discord, {"id": "i-1", "type": 2, "data": {"id": "c-1", "name": "tea"}}, [event("i-1", "2.tea", "c-1")], "X-Signature-Ed25519", **keys)
    added = {"application_id": "a", "type": 1, "event": {"type": "APPLICATION_AUTHORIZED", "timestamp": "2025-06-15T15:06:40.5", "data": {"user": {"id": "u"}}}}
    expected = [event(frame("a", "APPLICATION_AUTHORIZED", "2025-06-15T15:06:40.5", "u"), "APPLICATION_AUTHORIZED", "u", NOW + 0.5)]
    run("discord-webhook-events", discord, added, expected, "X-Signature-Ed25519", **keys)

    curve = ec.derive_private_key(12345678901234567890, ec.SECP256R1())
    curve2 = ec.derive_private_key(98765432109876543210, ec.SECP256R1())
    spki = lambda key: b64(key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    deterministic = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)

    def sendgrid(secret, body, at):
        code = curve.sign(f"{at}{body}".encode(), deterministic)
        # SendGrid's own package signs nothing; what it verifies is signed right.
        known = EventWebhook().convert_public_key_to_ecdsa(spki(curve))
        assert EventWebhook().verify_signature(body, b64(code), str(at), known)
        return Sent({"X-Twilio-Email-Event-Webhook-Signature": b64(code), "X-Twilio-Email-Event-Webhook-Timestamp": str(at), "Content-Type": JSON}, body)

    two = '[{"sg_event_id":"s-1","event":"open","timestamp":%d,"sg_message_id":"m"},\r\n{"event":"click","timestamp":%d,"email":"ada@example.com","sg_message_id":"m"}]\r\n' % (NOW, NOW)
    expected = [event("s-1", "open", "m", NOW), event(frame("m", "click", str(NOW), "ada@example.com", kind="unnamed"), "click", "m", NOW)]
    run("sendgrid", sendgrid, two, expected, "X-Twilio-Email-Event-Webhook-Signature", by="cryptography", shown=spki(curve), other=spki(curve2), other_body=two.rstrip("\r\n"))

    def jwk(key, kid):
        numbers = key.public_key().public_numbers()
        part = lambda number: base64.urlsafe_b64encode(number.to_bytes(32, "big")).decode().rstrip("=")
        return json.dumps({"kty": "EC", "crv": "P-256", "kid": kid, "x": part(numbers.x), "y": part(numbers.y)})

    def plaid(secret, body, at, kid="k-1"):
        claims = {"iat": at, "request_body_sha256": hashlib.sha256(body.encode()).hexdigest()}
        return Sent({"Plaid-Verification": token(claims, curve, kid), "Content-Type": JSON}, body)

    def token(claims, key, kid):
        # PyJWT's signature would be another one at each run of this program.
        text = jwt.encode(claims, key, "ES256", headers={"kid": kid}).rsplit(".", 1)[0]
        r, s = decode_dss_signature(key.sign(text.encode(), deterministic))
        code = base64.urlsafe_b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode().rstrip("=")
        return f"{text}.{code}"

    body = {"webhook_type": "ITEM", "webhook_code": "ERROR", "item_id": "it-1"}
    expected = [event(frame("ITEM", "ERROR", "it-1", f"{NOW}000"), "ITEM.ERROR", "it-1")]
    cases = run("plaid", plaid, body, expected, "Plaid-Verification", by="cryptography", shown=jwk(curve, "k-1"), other=jwk(curve2, "k-1"), other_body_reason="other_body")
    old = plaid("", json.dumps(body), NOW)
    cases.case("too old", old, now=NOW + 301, reason="stale_timestamp")
    cases.case("by a key of another name", plaid("", json.dumps(body), NOW, kid="k-2"), reason="bad_signature")
    text = jwt.encode({"iat": NOW}, OTHER * 2, "HS256", headers={"kid": "k-1"}).rsplit(".", 1)[0]
    hs = text + "." + base64.urlsafe_b64encode(mac(jwk(curve, "k-1"), text).digest()).decode().rstrip("=")
    cases.case("by the public key as a shared secret", Sent({"Plaid-Verification": hs}, "{}"), reason="malformed_signature")
    none = jwt.encode({"iat": NOW}, None, "none", headers={"kid": "k-1"})
    cases.case("by nobody", Sent({"Plaid-Verification": none}, "{}"), reason="malformed_signature")

    certificates(run, event)


def certificates(run, event):
    with open("keys/rsa.pem", "rb") as file:
        key = serialization.load_pem_private_key(file.read(), None)
    pem, expired = certificate(key, NOW + 86_400 * 365), certificate(key, NOW - 86_400)
    with open("keys/other.pem") as file:
        other = file.read()

    def rsa_sign(text, digest):
        return b64(key.sign(text.encode(), padding.PKCS1v15(), digest))

    def sns(version, digest):
        def sign(secret, body, at):
            message = json.loads(body)
            names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
            text = "".join(f"{name}\n{message[name]}\n" for name in names if message.get(name) is not None)
            message.update(SignatureVersion=version, Signature=rsa_sign(text, digest), SigningCertURL="https://sns.eu-west-1.amazonaws.com/ours.pem")
            return Sent({"Content-Type": "text/plain; charset=UTF-8"}, json.dumps(message))

        return sign

    for version, digest in (("2", hashes.SHA256()), ("1", hashes.SHA1())):
        for subject in ("Tea", None):
            note = {"Type": "Notification", "MessageId": "n-1", "TopicArn": "arn:ours", "Subject": subject, "Message": "line\nTopicArn\nline", "Timestamp": rfc3339(NOW)}
            signed = sns(version, digest)("", json.dumps(note), NOW)
            code = json.loads(signed.body)["Signature"]
            cases = run("aws-sns", sns(version, digest), note, [event("n-1", "Notification", "arn:ours", NOW)], "Signature\": \"" + code, by="cryptography", shown=pem, other=other, other_body=signed.body.replace("n-1", "n-2"), tolerance=4500)
    cases.extra = {"settings": {"topic_arn": "arn:ours"}}
    cases.case("of the topic that the source is for", signed, events=[event("n-1", "Notification", "arn:ours", NOW)])
    cases.extra = {"settings": {"topic_arn": "arn:of-somebody-else"}}
    cases.case("of somebody else's topic", signed, reason="other_sender")
    cases.extra = {}
    cases.case("a certificate that has expired", signed, secrets=[expired], reason="expired_certificate")
    cut = json.loads(signed.body)
    cut.update(Message="line", TopicArn=f"line\nMessageId\nn-1\nTimestamp\n{rfc3339(NOW)}\nTopicArn\narn:ours", MessageId=None, Timestamp=rfc3339(NOW))
    cases.case("lines of the message as fields", Sent(signed.headers, json.dumps(cut)), reason="ambiguous_signed_part")
    cases.case("raw delivery", Sent({"x-amz-sns-rawdelivery": "true"}, "tea"), reason="no_signature")
    confirm = {"Type": "SubscriptionConfirmation", "MessageId": "s-1", "TopicArn": "arn:ours", "Message": "confirm", "Token": "t", "SubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription", "Timestamp": rfc3339(NOW)}
    signed = sns("2", hashes.SHA256())("", json.dumps(confirm), NOW)
    cases.case("a confirmation", signed, events=[event("s-1", "SubscriptionConfirmation", "arn:ours", NOW)], reply={"status": 200, "content_type": None, "body": ""})
    elsewhere = json.loads(signed.body)
    elsewhere["SubscribeURL"] = "https://evil.example/"
    cases.case("a confirmation at another address", Sent(signed.headers, json.dumps(elsewhere)), reason="bad_signature")

    def paypal(secret, body, at):
        text = f"t-1|{rfc3339(at)}|WH-OURS|{zlib.crc32(body.encode())}"
        return Sent({"PAYPAL-TRANSMISSION-ID": "t-1", "PAYPAL-TRANSMISSION-TIME": rfc3339(at), "PAYPAL-TRANSMISSION-SIG": rsa_sign(text, hashes.SHA256()), "PAYPAL-AUTH-ALGO": "SHA256withRSA", "Content-Type": JSON}, body)

    body = {"id": "WH-1", "event_type": "PAYMENT.SALE.REFUNDED", "create_time": rfc3339(NOW), "resource": {"id": "r-1"}}
    settings = {"settings": {"webhook_id": "WH-OURS"}}
    cases = run("paypal", paypal, body, [event("WH-1", "PAYMENT.SALE.REFUNDED", "r-1", NOW)], "PAYPAL-TRANSMISSION-SIG", by="cryptography", shown=pem, other=other, extra=settings)
    cases.extra = {}
    cases.case("without the id of the webhook", paypal("", "{}", NOW), reason="no_setting")

    def bt(secret, body, at):
        signature = "other_public|" + "0" * 40 + "&ours_public|" + braintree.util.crypto.Crypto.sha1_hmac_hash(secret, body)
        return Sent({"Content-Type": FORM}, urlencode({"bt_signature": signature, "bt_payload": body}))

    note = b64(b"<notification><timestamp type=\"datetime\">2025-06-15T15:06:40Z</timestamp><kind>check</kind></notification>") + "\n"
    expected = [event(hashlib.sha256(note.encode()).hexdigest())]
    sent = bt("ours_private", note, NOW)
    run("braintree", bt, note, expected, "bt_signature", by="braintree", secret="ours_private", other="another", other_body=sent.body.replace("bt_payload=P", "bt_payload=Q"), extra={"settings": {"public_key": "ours_public"}})


def certificate(key, until):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ours.example.com")])
    date = lambda at: datetime.fromtimestamp(at, timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, date(NOW - 86_400 * 30), date(until))
    made = builder.sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def tokens(run, event):
    """Nothing is signed: a shared secret comes along."""
    basic = lambda secret: "Basic " + b64(secret.encode())
    post = {"RecordType": "Open", "MessageID": "m-1", "Recipient": "ada@example.com", "ReceivedAt": rfc3339(NOW)}
    run("postmark", lambda s, b, t: Sent({"Authorization": basic(s), "Content-Type": JSON}, b), post, [event(frame("Open", "m-1", None, "ada@example.com", rfc3339(NOW), None), "Open", "m-1", NOW)], "Authorization", by="none", secret="user:ours", other="user:other", other_body="")
    bridge = {"id": "e-1", "account": "1", "source": "aws.s3", "detail-type": "Object Created", "time": rfc3339(NOW), "resources": ["arn:r"]}
    for header, write in (("X-Api-Key", lambda s: s), ("Authorization", basic)):
        run("eventbridge", lambda s, b, t: Sent({header: write(s), "Content-Type": JSON}, b), bridge, [event(frame("1", "e-1"), "aws.s3.Object Created", "arn:r", NOW)], header, by="none", other_body="")
    run("gitlab", lambda s, b, t: Sent({"X-Gitlab-Token": s, "X-Gitlab-Event": "Push Hook", "Idempotency-Key": "k-1"}, b), {"checkout_sha": "abc"}, [event("k-1", "Push Hook", "abc")], "X-Gitlab-Token", by="none", other_body="")
    graph = json.dumps({"value": [{"id": f"g-{n}", "subscriptionId": "s", "clientState": SECRET, "changeType": "created", "resource": f"r/{n}"} for n in (1, 2)]})
    expected = [event(frame("s", f"g-{n}"), "created", f"r/{n}") for n in (1, 2)]
    run("microsoft-graph", lambda s, b, t: Sent({"Content-Type": JSON}, b), graph, expected, '"clientState": "' + SECRET, by="none", other_body=graph.replace(SECRET, "x", 1))
    classic = Cases(run.args[0], "mollie-classic", None, "", [], "", by="none")
    sent = Sent({"Content-Type": FORM}, "id=tr_1", f"{URL}?token={quote(SECRET)}")
    classic.case("the address with its secret", sent, events=[event(frame("tr_1", f"{NOW}000"), None, "tr_1")])
    classic.case("another secret", sent, secrets=[OTHER], reason="bad_signature")
    classic.case("the address without its secret", Sent(sent.headers, sent.body, URL), reason="no_signature")
    mailgun(run, event)


def mailgun(run, event):
    def sign(secret, body, at):
        code = mac(secret, f"{at}token-1").hexdigest()
        return Sent({"Content-Type": JSON}, json.dumps({"signature": {"timestamp": str(at), "token": "token-1", "signature": code}, "event-data": json.loads(body)}))

    data = {"id": "mg-1", "event": "failed", "severity": "permanent", "timestamp": NOW + 0.25, "message": {"headers": {"message-id": "m"}}}
    cases = run("mailgun", sign, data, [event(frame("mg-1", f"{NOW}.25"), "failed.permanent", "m", NOW + 0.25)], '"signature": "' + mac(SECRET, f"{NOW}token-1").hexdigest(), other_body=sign(SECRET, json.dumps(data), NOW).body.replace("token-1", "token-2"), tolerance=43_200)
    forged = sign(SECRET, json.dumps({**data, "id": "mg-2"}), NOW)
    cases.case("another event under the same signature: the event is not signed", forged, events=[event(frame("mg-2", f"{NOW}.25"), "failed.permanent", "m", NOW + 0.25)])


def handshakes(vector):
    """Unsigned requests, and what answers them."""

    def ask(provider, name, url, reply, *, method="GET", body="", headers=None, settings=None, refused=False, secret=SECRET):
        vector(provider, name, "hmac", [secret], headers or {}, body, url=url, method=method, settings=settings or {}, greeting=reply, refused=refused)

    text = lambda body: {"status": 200, "content_type": "text/plain", "body": body}
    as_json = lambda value: {"status": 200, "content_type": JSON, "body": json.dumps(value, separators=(",", ":"))}
    refused = lambda status: {"status": status, "content_type": None, "body": ""}
    token = {"verify_token": "ours & only"}
    for provider in ("meta", "whatsapp-cloud"):
        query = f"?hub.mode=subscribe&hub.challenge=115&hub.verify_token={quote('ours & only')}"
        ask(provider, "a subscription", URL + query, text("115"), settings=token)
        ask(provider, "a subscription with another token", URL + query + "x", refused(403), settings=token, refused=True)
        ask(provider, "a subscription without a token", URL + "?hub.mode=subscribe&hub.challenge=115", refused(403), settings=token, refused=True)
        ask(provider, "a subscription where no token is known", URL + query, refused(403), refused=True)
        ask(provider, "a challenge that is a page", URL + query.replace("115", "%3Cb%3E"), refused(403), settings=token, refused=True)
    ask("dropbox", "a challenge", URL + "?challenge=a+b%2Fc", text("a b/c"))
    ask("dropbox", "a challenge of 1025 characters", URL + "?challenge=" + "x" * 1025, refused(400), refused=True)
    ask("microsoft-graph", "a validation", URL + "?validationToken=" + quote("Validation: a+b & c"), text("Validation: a+b & c"), method="POST", headers={"Content-Type": "text/plain"})
    code = b64(mac(SECRET, "ours-1").digest())
    ask("x", "a challenge", URL + "?crc_token=ours-1", as_json({"response_token": "sha256=" + code}))
    for token in ('{"for_user_id":"1"}', "", "x" * 129, "a b", 'a"b', "v0:1:{}"):
        ask("x", f"a challenge that is no token: {token[:20]}", URL + "?crc_token=" + quote(token), refused(400), refused=True)
    check = lambda token: json.dumps({"event": "endpoint.url_validation", "payload": {"plainToken": token}})
    reply = as_json({"plainToken": "ours-1", "encryptedToken": mac(SECRET, "ours-1").hexdigest()})
    ask("zoom", "a validation", None, reply, method="POST", body=check("ours-1"))
    ask("zoom", "a validation that is a delivery", None, refused(400), method="POST", body=check("v0:1750000000:{}"), refused=True)
    public = {"public_key": "ours_public"}
    key = hashlib.sha1(SECRET.encode()).digest()
    ask("braintree", "a challenge", URL + "?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53", {"status": 200, "content_type": "text/plain", "body": "ours_public|" + mac(key, "20f9f8ed05f77439fe955c977e4c8a53", "sha1").hexdigest()}, settings=public)
    ask("braintree", "a challenge that is a payload", URL + "?bt_challenge=PG5vdGlm", refused(400), settings=public, refused=True)
    ask("woocommerce", "the ping of a new webhook", None, {"status": 200, "content_type": None, "body": ""}, method="POST", body="webhook_id=7", headers={"Content-Type": FORM})
