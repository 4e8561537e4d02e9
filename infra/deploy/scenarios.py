"""What must hold of a stack that was deployed. Each gives what it counted, for the report.

They run in this order: while a sweep is awaited, the others have their turn.
"""

import contextlib
import hashlib
import json
import secrets
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter

from cloud import until
from deployment import Deployment

SWEPT_SECONDS = 240
"""An event is left alone for a minute, the schedule takes up to another and a while to start."""

LARGE_BYTES = 1_000_000


def a_lost_message_leaves_a_record_behind(on: Deployment) -> str:
    with on.worker_paused():
        on.deliver_new("evt_lost")
        on.lose_message("evt_lost")
    record = on.record("evt_lost")
    assert record["state"] == "received", record["state"]
    return "1 record received, 0 messages"


def a_parked_event_is_replayed(on: Deployment) -> str:
    on.deliver_new("evt_replayed_is-gone")
    on.await_state("evt_replayed_is-gone", "failed")
    on.replay("evt_replayed_is-gone")
    record = on.record("evt_replayed_is-gone")
    assert record["state"] == "received", record["state"]
    return "1 record open again, with its attempt kept"


def copies_of_one_event_take_hold_once(on: Deployment) -> str:
    answered = on.deliver("evt_copies", "--times", "20", "--parallel", "8")
    assert answered == {"200": 20}, answered
    on.sent += Counter(new=1, duplicate=19)
    on.await_state("evt_copies", "done")
    calls = on.calls("evt_copies")
    assert [call["calls"] for call in calls] == [1], calls
    assert calls[0]["signed"], "the destination cannot verify what it is sent"
    return "20 deliveries, 1 call"


def a_forged_delivery_writes_nothing(on: Deployment) -> str:
    answered = on.deliver("evt_forged", "--tamper", "--times", "3")
    assert answered == {"401": 3}, answered
    on.sent["rejected"] += 3
    assert on.record("evt_forged") is None
    return "3 deliveries, 3 refused"


def a_source_whose_secret_is_a_parameter_is_received_too(on: Deployment) -> str:
    on.deliver_new("delivery-1", provider="github")
    on.await_state("delivery-1", "done", provider="github")
    return "1 event done"


def a_recorded_delivery_under_a_fresh_id_does_nothing(on: Deployment) -> str:
    before = len(on.records())
    with tempfile.NamedTemporaryFile("w", suffix=".json") as body:
        json.dump({"after": "a1b2c3", "repository": {"full_name": "shop/orders"}}, body)
        body.flush()
        # Each gets an id of its own.
        for _ in range(3):
            answered = on.send("github", "--event", body.name)
            assert answered == {"200": 1}, answered
    on.sent += Counter(new=1, duplicate=2)
    recorded = len(on.records()) - before
    assert recorded == 1, f"{recorded} records"
    return "3 ids, 1 record"


def a_payload_that_fits_on_no_record_reaches_its_destination_whole(on: Deployment) -> str:
    # Of random digits half remains: more than a record takes, and less than Lambda does.
    event = payment_event("evt_large", "pi_large") | {"noise": secrets.token_hex(LARGE_BYTES // 2)}
    body = json.dumps(event).encode()
    on.deliver_body(body)
    on.sent["new"] += 1
    done = on.await_state("evt_large", "done")
    assert "payload" not in done, "it lies on the record as well"
    kept = on.payloads()
    assert list(kept) == [done["payload_ref"]], f"{list(kept)}, recorded {done['payload_ref']}"
    on.deliver_body(body)
    on.sent["duplicate"] += 1
    assert on.record("evt_large") == done, "a duplicate changed the record"
    assert on.payloads() == kept, "a duplicate changed what is kept"
    [call] = on.calls("evt_large")
    assert call["calls"] == 1, call
    assert call["sha256"] == hashlib.sha256(body).hexdigest(), "it came otherwise than it was sent"
    [size] = map(len, kept.values())
    return f"2 deliveries of {len(body):,} bytes, 1 object of {size:,}, 1 call with all of them"


def of_a_batch_only_what_failed_is_tried_again(on: Deployment) -> str:
    events = [f"evt_batch_{n}" for n in range(6)]
    failing = [f"evt_fails-once_{n}" for n in range(3)]
    with on.worker_paused():
        for event in [*events, *failing]:
            on.deliver_new(event)
    for event in events:
        assert on.await_state(event, "done")["attempt"] == 1, event
    for event in failing:
        record = on.await_state(event, "done")
        assert record["attempt"] == 2, event
        assert "requeues" not in record, f"{event} came again by a sweep, not by the queue"
    # That the others were not handed out again, their lines say.
    for event in events:
        outcomes = [line["outcome"] for line in attempts(on) if line["event_id"] == event]
        assert outcomes == ["done"], f"{event}: {outcomes}"
    keys = {call["idempotency_key"] for event in failing for call in on.calls(event)}
    assert len(keys) == len(failing), "an event's key changed between its attempts"
    return f"{len(events)} events in 1 attempt, {len(failing)} in 2 under one key"


def attempts(on: Deployment) -> list[dict]:
    """The worker's line for each attempt."""
    return [line for line in on.stack.lines("Worker") if "worker_outcomes_total" in line]


def events_of_one_object_end_in_the_order_of_their_claims(on: Deployment) -> str:
    events = ["evt_order_fails-once", *(f"evt_order_{n}" for n in range(1, 4))]
    for event in events:
        on.deliver_body(json.dumps(payment_event(event, "pi_in_order")).encode())
        on.sent["new"] += 1
    ends = {on.await_state(event, "done")["completed_at"]: event for event in events}
    assert [ends[at] for at in sorted(ends)] == events, ends
    return f"{len(events)} events, the first of them in 2 attempts"


def payment_event(event_id: str, payment: str) -> dict:
    return {
        "id": event_id,
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": int(time.time()),
        "data": {"object": {"id": payment, "object": "payment_intent"}},
    }


def what_can_never_succeed_is_parked(on: Deployment) -> str:
    on.deliver_new("evt_is-gone")
    record = on.await_state("evt_is-gone", "failed")
    assert "expires_at" not in record, "a parked record must not expire"
    assert record["queue_key"].startswith("parked#"), record["queue_key"]
    return "1 record failed, without an end"


def a_message_of_a_stranger_ends_in_the_dead_letter_queue(on: Deployment) -> str:
    sqs = on.cloud.sqs
    names = ["VisibilityTimeout", "RedrivePolicy"]
    before = sqs.get_queue_attributes(QueueUrl=on.queue, AttributeNames=names)["Attributes"]
    redrive = json.loads(before["RedrivePolicy"])
    # A hundred receives with six minutes between them would take ten hours.
    hurried = {
        "VisibilityTimeout": "1",
        "RedrivePolicy": json.dumps(redrive | {"maxReceiveCount": 2}),
    }
    sqs.set_queue_attributes(QueueUrl=on.queue, Attributes=hurried)
    try:
        fifo = {"MessageGroupId": "stranger", "MessageDeduplicationId": "stranger"}
        own = fifo if on.queue.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=on.queue, MessageBody="none of ours", **own)
        letters = until("the message is put aside", 120, lambda: dead_letters(on))
    finally:
        sqs.set_queue_attributes(QueueUrl=on.queue, Attributes=before)
    assert letters == ["none of ours"], letters
    return "1 message, by its own redrive policy hurried to 2 receives"


def dead_letters(on: Deployment) -> list[str]:
    queue = on.stack.outputs["DeadLetterQueueUrl"]
    received = on.cloud.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    return [message["Body"] for message in received.get("Messages", [])]


def the_schedule_finds_what_was_lost_and_what_was_replayed(on: Deployment) -> str:
    record = on.await_state("evt_lost", "done", seconds=SWEPT_SECONDS)
    assert record["requeues"] == 1, record
    assert [call["calls"] for call in on.calls("evt_lost")] == [1]
    replayed = on.await_state("evt_replayed_is-gone", "done", seconds=SWEPT_SECONDS)
    assert replayed["attempt"] == 2, replayed
    keys = {call["idempotency_key"] for call in on.calls("evt_replayed_is-gone")}
    assert len(keys) == 1, "a replay came under another key"
    return "1 event done after 1 requeue, and 1 after its replay, under its key"


def lines_count_what_was_sent(on: Deployment) -> str:
    def counted() -> Counter:
        counted = Counter()
        for line in on.stack.lines("Receiver"):
            counted[line.get("result")] += line.get("webhook_events_total", 0)
            counted["rejected"] += line.get("webhook_rejected_total", 0)
        return Counter({kind: counted[kind] for kind in on.sent})

    # Logs come late.
    with contextlib.suppress(AssertionError):
        until("all lines", 60, lambda: counted() == on.sent)
    assert counted() == on.sent, f"counted {dict(counted())}, sent {dict(on.sent)}"
    sweeps = sum(line.get("sweeper_heartbeat", 0) for line in on.stack.lines("Sweeper"))
    assert sweeps > 0, "no sweep was complete"
    outcomes = Counter(line["outcome"] for line in attempts(on))
    deliveries = [line for line in on.stack.lines("Receiver") if "result" in line]
    return (
        f"{dict(on.sent)}, {sweeps} sweeps, attempts {dict(outcomes)}; a line has "
        f"{mean_bytes(deliveries)} bytes a delivery, {mean_bytes(attempts(on))} an attempt"
    )


def mean_bytes(lines: list[dict]) -> int:
    sizes = [len(json.dumps(line, separators=(",", ":"))) for line in lines]
    return round(sum(sizes) / len(sizes))


def without_its_right_to_claim_the_receiver_records_nothing(on: Deployment) -> str:
    """Otherwise nobody would evaluate the template's policies, and all else would prove none."""
    role = {"RoleName": on.stack.resources["ReceiverRole"], "PolicyName": "receiver"}
    policy = on.cloud.iam.get_role_policy(**role)["PolicyDocument"]
    statements = [one for one in policy["Statement"] if one["Sid"] != "Claim"]
    assert len(statements) == len(policy["Statement"]) - 1, policy
    less = json.dumps(policy | {"Statement": statements})
    on.cloud.iam.put_role_policy(**role, PolicyDocument=less)
    try:
        answered = on.deliver("evt_denied")
    finally:
        on.cloud.iam.put_role_policy(**role, PolicyDocument=json.dumps(policy))
    assert answered == {"503": 1}, answered
    assert on.record("evt_denied") is None
    return "1 delivery, answered 503"


def every_record_is_closed_or_waits_for_a_person(on: Deployment) -> str:
    records = on.records()
    states = Counter(record["state"] for record in records)
    assert states == Counter(done=on.sent["new"] - 1, failed=1), states
    for record in records:
        closed = record["state"] == "done"
        assert ("expires_at" in record) == closed, record["pk"]
        assert ("queue_key" in record) != closed, record["pk"]
    return str(dict(states))


def what_is_no_delivery_is_told_so(on: Deployment) -> str:
    answers = {}
    for method, path in [("GET", "webhooks/stripe"), ("POST", "webhooks/nobody"), ("POST", "else")]:
        request = urllib.request.Request(f"{on.receiver}{path}", method=method)
        try:
            urllib.request.urlopen(request, timeout=30).close()
            answers[path] = 200
        except urllib.error.HTTPError as refusal:
            answers[path] = refusal.code
    assert answers == {"webhooks/stripe": 405, "webhooks/nobody": 404, "else": 404}, answers
    return str(sorted(answers.values()))


SCENARIOS = [
    a_lost_message_leaves_a_record_behind,
    a_parked_event_is_replayed,
    copies_of_one_event_take_hold_once,
    a_forged_delivery_writes_nothing,
    a_source_whose_secret_is_a_parameter_is_received_too,
    a_recorded_delivery_under_a_fresh_id_does_nothing,
    a_payload_that_fits_on_no_record_reaches_its_destination_whole,
    of_a_batch_only_what_failed_is_tried_again,
    what_can_never_succeed_is_parked,
    a_message_of_a_stranger_ends_in_the_dead_letter_queue,
    the_schedule_finds_what_was_lost_and_what_was_replayed,
    lines_count_what_was_sent,
    every_record_is_closed_or_waits_for_a_person,
    what_is_no_delivery_is_told_so,
]

WHERE_THE_QUEUE_KEEPS_ORDER = [events_of_one_object_end_in_the_order_of_their_claims]

WHERE_RIGHTS_CHANGE_AT_ONCE = [without_its_right_to_claim_the_receiver_records_nothing]
"""On AWS a change takes a while, and some emulators evaluate no policies."""
