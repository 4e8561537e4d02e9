"""MiniStack: AWS on this machine, without Docker. It runs the functions' executables as processes.

Where it differs from AWS, as far as a deployment meets it:

- its own environment is handed on to the functions, so it is started with next to none;
- it knows no alarms by metric math, and refuses a template that has one;
- it ignores a table's `TimeToLiveSpecification`, and takes the number that a parameter gives to
  `MaximumConcurrency` for a text: both are set once more by call;
- it has no TLS, without which the policy of the bucket refuses everybody: it is taken away by call;
- addresses of function URLs and HTTP APIs have AWS's form, and are reached under its own address.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

REGION = "us-east-1"
KEY = "test"
"""Access key and secret of the account's root."""

START_SECONDS = 60
"""It starts in two seconds on an idle machine."""


@contextlib.contextmanager
def started(log: Path):
    """Starts it on a free port, with IAM enforced; gives its address; ends it with all it ran."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    scripts = Path(sys.executable).parent
    with (
        tempfile.TemporaryDirectory(prefix="hookonce-ministack-") as scratch,
        log.open("wb") as out,
    ):
        environment = {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": scratch,
            "TMPDIR": scratch,
            "AUTH": "true",
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            # Of its IoT service, which would open a port of its own.
            "IOT_MTLS_ENABLED": "0",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_DEFAULT_REGION": REGION,
        }
        # Leader of a group, so that the functions' processes end with it.
        process = subprocess.Popen(
            [scripts / "ministack"], env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            await_health(process, endpoint, log)
            yield endpoint
        finally:
            end(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_health(process: subprocess.Popen, endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{endpoint}/_localstack/health", timeout=5).close()
            return
        time.sleep(0.1)
    raise SystemExit(f"MiniStack did not start; its log is {log}")


def end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    # What did not heed it, the functions' processes among them.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def without_metric_math(template: str) -> str:
    """The template without the one alarm that it does not know."""
    alarm = re.compile(r"^  DuplicatesAlarm:\n.*?\n(?=  \w)", re.DOTALL | re.MULTILINE)
    template, cut = alarm.subn("", template)
    shown = '"${DuplicatesAlarm.Arn}",'
    if cut != 1 or template.count(shown) != 1:
        raise SystemExit("template.yaml has no DuplicatesAlarm, or shows it otherwise")
    return template.replace(shown, "")


def adapt(cloud, stack) -> None:
    """Sets what it did not take from the template, and lets the functions reach the bucket."""
    table = stack.outputs["LedgerTable"]
    cloud.dynamodb.update_time_to_live(
        TableName=table, TimeToLiveSpecification={"AttributeName": "expires_at", "Enabled": True}
    )
    mapping = stack.resources["WorkerEventKeys"]
    cloud.functions.update_event_source_mapping(
        UUID=mapping, ScalingConfig={"MaximumConcurrency": 10}
    )
    cloud.s3.delete_bucket_policy(Bucket=stack.outputs["PayloadsBucket"])


def reachable(url: str, endpoint: str) -> str:
    """The address under which MiniStack serves what has the address `url` on AWS."""
    parts = urlsplit(url)
    name, kind, *_ = parts.hostname.split(".")
    stage = "/$default" if kind == "execute-api" else ""
    return f"{endpoint}/_aws/{kind}/{name}{stage}{parts.path}"
