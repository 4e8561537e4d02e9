"""A stack that is tried out: how to deliver to it, and how to look at what became of it."""

import base64
import contextlib
import json
import os
import secrets
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cloud import Cloud, Stack, until

EVENT_SECONDS = 60
"""An event that nothing holds up is done in a second; a busy machine or a cold start takes more."""


@dataclass
class Secrets:
    """One secret in each place that can keep one."""

    stripe: str
    github: str
    signing: str
    references: dict[str, str]
    """Where each source's secret lies."""
    signing_reference: str
    receiver_arns: list[str]
    worker_arns: list[str]

    @classmethod
    @contextlib.contextmanager
    def stored(cls, cloud: Cloud, name: str) -> Iterator["Secrets"]:
        stripe, github = (f"whsec_{secrets.token_urlsafe(24)}" for _ in range(2))
        signing = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
        kept = cloud.secrets.create_secret(Name=f"{name}/stripe", SecretString=stripe)["ARN"]
        parameters = {f"/{name}/github": github, f"/{name}/signing": signing}
        for parameter, value in parameters.items():
            cloud.ssm.put_parameter(Name=parameter, Type="SecureString", Value=value)
        arns = [
            cloud.ssm.get_parameter(Name=parameter)["Parameter"]["ARN"] for parameter in parameters
        ]
        try:
            yield cls(
                stripe=stripe,
                github=github,
                signing=signing,
                references={
                    "stripe": f"secretsmanager:{name}/stripe",
                    "github": f"ssm:/{name}/github",
                },
                signing_reference=f"ssm:/{name}/signing",
                receiver_arns=[kept, arns[0]],
                worker_arns=[arns[1]],
            )
        finally:
            cloud.secrets.delete_secret(SecretId=kept, ForceDeleteWithoutRecovery=True)
            cloud.ssm.delete_parameters(Names=list(parameters))


@dataclass
class Deployment:
    stack: Stack
    destination: Stack
    secrets: Secrets
    command: Path
    """The `hookonce` command: it signs as providers do."""
    sent: Counter = field(default_factory=Counter)
    """What was answered, by `new`, `duplicate` and `rejected`: the metrics must say the same."""

    @property
    def cloud(self) -> Cloud:
        return self.stack.cloud

    @property
    def receiver(self) -> str:
        return self.cloud.reachable(self.stack.outputs["ReceiverUrl"])

    @property
    def queue(self) -> str:
        return self.stack.outputs["QueueUrl"]

    # --- Deliveries ------------------------------------------------------------------------------

    def deliver(self, event_id: str, *options: str, provider: str = "stripe") -> dict[str, int]:
        """Signs and delivers an event; gives how often each status was answered."""
        return self.send(provider, "--id", event_id, *options)

    def send(self, provider: str, *options: str) -> dict[str, int]:
        command = [
            self.command,
            *["send", provider, "--json"],
            *["--url", f"{self.receiver}webhooks/{provider}", "--secret", "env:SECRET", *options],
        ]
        environment = os.environ | {"SECRET": getattr(self.secrets, provider)}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode != 2, ran.stderr
        return json.loads(ran.stdout)["statuses"]

    def deliver_new(self, event_id: str, provider: str = "stripe") -> None:
        answered = self.deliver(event_id, provider=provider)
        assert answered == {"200": 1}, f"{event_id} was answered {answered}"
        self.sent["new"] += 1

    def deliver_body(self, body: bytes) -> None:
        """Signs and delivers these bytes as Stripe would."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(body)
            file.flush()
            answered = self.send("stripe", "--event", file.name)
        assert answered == {"200": 1}, answered

    def replay(self, event_id: str) -> None:
        """Has an operator run a parked event again. The sweeper enqueues it: no queue is named."""
        command = [
            self.command,
            *["events", "replay", f"stripe#{event_id}", "--by", "try.sh"],
            *["--table", self.stack.outputs["LedgerTable"], "--reason", "the destination is back"],
        ]
        environment = os.environ | self.cloud.environment
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr

    # --- The ledger ------------------------------------------------------------------------------

    def record(self, event_id: str, provider: str = "stripe") -> dict | None:
        """An event's record, its numbers and texts plain."""
        key = {"pk": {"S": f"{provider}#{event_id}"}}
        table = self.stack.outputs["LedgerTable"]
        found = self.cloud.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)
        return plain(found["Item"]) if "Item" in found else None

    def records(self) -> list[dict]:
        pages = self.cloud.dynamodb.get_paginator("scan").paginate(
            TableName=self.stack.outputs["LedgerTable"], ConsistentRead=True
        )
        items = [plain(item) for page in pages for item in page["Items"]]
        # Fingerprints have no state.
        return [item for item in items if "state" in item]

    def await_state(
        self, event_id: str, state: str, provider: str = "stripe", seconds: float = EVENT_SECONDS
    ) -> dict:
        def look() -> dict | None:
            record = self.record(event_id, provider)
            return record if record and record["state"] == state else None

        return until(f"{event_id} is {state}", seconds, look)

    def payloads(self) -> dict[str, bytes]:
        """What lies in the bucket."""
        bucket, s3 = self.stack.outputs["PayloadsBucket"], self.cloud.s3
        return {
            key: s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            for key in self.cloud.objects(bucket)
        }

    # --- The destination -------------------------------------------------------------------------

    def calls(self, event_id: str) -> list[dict]:
        """The calls that the destination got for an event, one entry an attempt."""
        found = self.cloud.dynamodb.query(
            TableName=self.destination.outputs["Calls"],
            KeyConditionExpression="event_id = :id",
            ExpressionAttributeValues={":id": {"S": event_id}},
            ConsistentRead=True,
        )
        return [plain(item) for item in found["Items"]]

    # --- The queue -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def worker_paused(self) -> Iterator[None]:
        """Messages stay in the queue meanwhile."""
        self.poll_queue(enabled=False)
        try:
            yield
        finally:
            self.poll_queue(enabled=True)

    def poll_queue(self, *, enabled: bool) -> None:
        functions = self.cloud.functions
        mapping = self.stack.resources["WorkerEventKeys"]
        functions.update_event_source_mapping(UUID=mapping, Enabled=enabled)
        state = "Enabled" if enabled else "Disabled"
        until(
            f"the event source is {state}",
            120,
            lambda: functions.get_event_source_mapping(UUID=mapping)["State"] == state,
        )

    def lose_message(self, event_id: str) -> None:
        """Takes an event's message out of the queue, as an outage between two services would."""
        taken = self.cloud.sqs.receive_message(QueueUrl=self.queue, WaitTimeSeconds=10)
        [message] = taken.get("Messages") or [None]
        assert message, f"{event_id} has no message"
        assert json.loads(message["Body"])["key"].endswith(f"#{event_id}"), message["Body"]
        self.cloud.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])


def plain(item: dict) -> dict:
    """A DynamoDB item whose texts and numbers are Python's."""

    def value(typed: dict):
        [(kind, held)] = typed.items()
        return int(held) if kind == "N" else held

    return {name: value(typed) for name, typed in item.items()}
