"""AWS, or what stands in for it: clients, stacks, and what stacks leave behind."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import boto3
from botocore.config import Config

import emulator

POLL_SECONDS = 0.5

Seen = TypeVar("Seen")


def until(what: str, seconds: float, look: Callable[[], Seen]) -> Seen:
    """What `look` gives once it gives anything; `what` is awaited for so long at most."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    return seen


class Cloud:
    """Where to deploy."""

    def __init__(self, endpoint: str | None, *, is_ministack: bool) -> None:
        self.endpoint = endpoint
        self.is_ministack = is_ministack
        # An emulator takes any credentials; AWS takes those of the environment.
        stand_in = {
            "region_name": emulator.REGION,
            "aws_access_key_id": emulator.KEY,
            "aws_secret_access_key": emulator.KEY,
        }
        session = boto3.Session(**(stand_in if endpoint else {}))
        self.region = session.region_name
        self.environment = surroundings(endpoint) if endpoint else {}
        """What other programs need to reach it, beside what they have."""
        config = Config(retries={"mode": "standard"}, s3={"addressing_style": "path"})

        def client(service: str):
            return session.client(service, endpoint_url=endpoint, config=config)

        self.cloudformation = client("cloudformation")
        self.dynamodb = client("dynamodb")
        self.functions = client("lambda")
        self.iam = client("iam")
        self.logs = client("logs")
        self.s3 = client("s3")
        self.secrets = client("secretsmanager")
        self.sqs = client("sqs")
        self.ssm = client("ssm")

    def reachable(self, url: str) -> str:
        return emulator.reachable(url, self.endpoint) if self.is_ministack else url

    @contextlib.contextmanager
    def bucket(self, name: str) -> Iterator[str]:
        """A bucket for what is deployed, and for as long as that takes."""
        # The oldest region wants not to be named.
        place = {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
        self.s3.create_bucket(Bucket=name, **({} if self.region == "us-east-1" else place))
        try:
            yield name
        finally:
            self.remove_bucket(name)

    def objects(self, bucket: str) -> list[str]:
        """The keys of all objects."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def remove_bucket(self, bucket: str) -> None:
        for key in self.objects(bucket):
            self.s3.delete_object(Bucket=bucket, Key=key)
        self.s3.delete_bucket(Bucket=bucket)

    def upload(self, bucket: str, file: Path) -> str:
        self.s3.upload_file(str(file), bucket, file.name)
        return f"s3://{bucket}/{file.name}"

    @contextlib.contextmanager
    def stack(
        self, name: str, bucket: str, template: str, parameters: dict[str, str]
    ) -> Iterator["Stack"]:
        """Deploys a template by a change set, as `sam deploy` does, and removes the stack."""
        self.s3.put_object(Bucket=bucket, Key=f"{name}.yaml", Body=template.encode())
        try:
            self.deploy(name, bucket, parameters)
            yield Stack(self, name)
        finally:
            self.cloudformation.delete_stack(StackName=name)
            self.cloudformation.get_waiter("stack_delete_complete").wait(StackName=name)

    def deploy(self, name: str, bucket: str, parameters: dict[str, str]) -> None:
        made = self.cloudformation.create_change_set(
            StackName=name,
            ChangeSetName="first",
            ChangeSetType="CREATE",
            TemplateURL=f"{self.s3.meta.endpoint_url}/{bucket}/{name}.yaml",
            Parameters=[
                {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
            ],
            # The second is for SAM's transform.
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        change_set = {"ChangeSetName": made["Id"], "StackName": name}
        self.cloudformation.get_waiter("change_set_create_complete").wait(**change_set)
        self.cloudformation.execute_change_set(**change_set)
        try:
            self.cloudformation.get_waiter("stack_create_complete").wait(
                StackName=name, WaiterConfig={"Delay": 2, "MaxAttempts": 300}
            )
        except Exception as error:
            events = self.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
            failed = [event for event in events if "FAILED" in event["ResourceStatus"]]
            said = "; ".join(
                f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
                for event in failed
            )
            raise SystemExit(f"{name} cannot be deployed: {said or error}") from error


@dataclass
class Stack:
    """A stack that was deployed."""

    cloud: Cloud
    name: str
    outputs: dict[str, str] = field(init=False)
    resources: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        cloudformation = self.cloud.cloudformation
        [described] = cloudformation.describe_stacks(StackName=self.name)["Stacks"]
        self.outputs = {one["OutputKey"]: one["OutputValue"] for one in described["Outputs"]}
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.name)
        self.resources = {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for page in pages
            for one in page["StackResourceSummaries"]
        }

    def lines(self, function: str) -> list[dict]:
        """What a function has logged so far, but for what is no JSON."""
        group = self.resources[f"{function}Log"]
        pages = self.cloud.logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        messages = [event["message"] for page in pages for event in page["events"]]
        lines = []
        for line in "\n".join(messages).splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict)]


def surroundings(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": emulator.REGION,
        "AWS_ACCESS_KEY_ID": emulator.KEY,
        "AWS_SECRET_ACCESS_KEY": emulator.KEY,
    }


def remove_table(cloud: Cloud, table: str) -> None:
    """Removes a ledger, which its stack leaves behind and which is protected."""
    cloud.dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)
    cloud.dynamodb.get_waiter("table_exists").wait(TableName=table)
    cloud.dynamodb.delete_table(TableName=table)
