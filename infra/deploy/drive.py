"""Deploys template.yaml for real, drives signed traffic through it, checks what became of it, and
removes everything again. `try.sh` says how it is called.
"""

import argparse
import contextlib
import json
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import emulator
from cloud import Cloud, remove_table
from deployment import Deployment, Secrets
from pack import FUNCTIONS, architecture, pack
from scenarios import SCENARIOS, WHERE_RIGHTS_CHANGE_AT_ONCE, WHERE_THE_QUEUE_KEEPS_ORDER

REPOSITORY = Path(__file__).parents[2]
WORK = REPOSITORY / "target/deploy"


def main() -> int:
    arguments = parse()
    # Whoever ends it wants its stacks, and MiniStack, to end as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    WORK.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with target(arguments) as cloud, deployed(cloud, arguments) as deployment:
        say(began, f"deployed as {deployment.stack.name}: {deployment.receiver}")
        scenarios = [
            *(WHERE_THE_QUEUE_KEEPS_ORDER if arguments.queue == "Fifo" else []),
            *SCENARIOS,
            *(WHERE_RIGHTS_CHANGE_AT_ONCE if cloud.is_ministack else []),
        ]
        held = [holds(scenario, deployment, began) for scenario in scenarios]
    say(began, "everything is removed again")
    print(json.dumps({"held": held.count(True), "failed": held.count(False), **deployment.sent}))
    return 0 if all(held) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="try.sh", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--endpoint", metavar="URL", help="an emulator that runs already")
    where.add_argument(
        "--aws",
        action="store_true",
        help="the account of the environment's credentials; costs cents",
    )
    parser.add_argument(
        "--release",
        action="store_true",
        help="what cargo lambda built, not the executables of `cargo build`",
    )
    parser.add_argument("--receiver", choices=["FunctionUrl", "HttpApi"], default="FunctionUrl")
    parser.add_argument("--queue", choices=["Standard", "Fifo"], default="Standard")
    arguments = parser.parse_args()
    if (arguments.aws or arguments.endpoint) and not arguments.release:
        # Those of `cargo build` need this machine's C library, or a newer one.
        parser.error("it runs them in Lambda's image: infra/deploy/build.sh, then --release")
    return arguments


def say(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)


@contextlib.contextmanager
def target(arguments: argparse.Namespace) -> Iterator[Cloud]:
    if arguments.aws:
        yield Cloud(None, is_ministack=False)
    elif arguments.endpoint:
        yield Cloud(arguments.endpoint.rstrip("/"), is_ministack=False)
    else:
        with emulator.started(WORK / "ministack.log") as endpoint:
            yield Cloud(endpoint, is_ministack=True)


@contextlib.contextmanager
def deployed(cloud: Cloud, arguments: argparse.Namespace) -> Iterator[Deployment]:
    """The destination, the secrets, the configuration and the stack; removed in turn."""
    name = f"hookonce-try-{secrets.token_hex(4)}"
    with (
        cloud.bucket(name) as bucket,
        Secrets.stored(cloud, name) as stored,
        cloud.stack(
            f"{name}-destination",
            bucket,
            (Path(__file__).parent / "destination.yaml").read_text(),
            {"SigningSecret": stored.signing},
        ) as destination,
        configured(cloud, name, stored, cloud.reachable(destination.outputs["Url"])),
        cloud.stack(
            name,
            bucket,
            packaged(cloud, bucket, arguments),
            {
                "Architecture": architecture(executable(arguments, "receiver")),
                "ReceiverEndpoint": arguments.receiver,
                "QueueType": arguments.queue,
                "LogRetentionDays": "1",
                "ReceiverSecretArns": ",".join(stored.receiver_arns),
                "WorkerSecretArns": ",".join(stored.worker_arns),
            },
        ) as stack,
    ):
        try:
            if cloud.is_ministack:
                emulator.adapt(cloud, stack)
            yield Deployment(stack, destination, stored, REPOSITORY / "target/debug/hookonce")
        finally:
            # Its stack leaves both behind.
            remove_table(cloud, stack.outputs["LedgerTable"])
            cloud.remove_bucket(stack.outputs["PayloadsBucket"])


def packaged(cloud: Cloud, bucket: str, arguments: argparse.Namespace) -> str:
    """The template as it is, but for the code's place: what `sam package` makes of it."""
    template = (REPOSITORY / "template.yaml").read_text()
    if cloud.is_ministack:
        template = emulator.without_metric_math(template)
    for function in FUNCTIONS:
        local = f"CodeUri: target/lambda/{function}/"
        if local not in template:
            raise SystemExit(f"template.yaml has no `{local}`")
        built = executable(arguments, function)
        zipped = pack(built, WORK / f"{function}.zip", level=9 if arguments.release else 1)
        template = template.replace(local, f"CodeUri: {cloud.upload(bucket, zipped)}")
    return template


def executable(arguments: argparse.Namespace, function: str) -> Path:
    place = f"lambda/{function}/bootstrap" if arguments.release else f"debug/{function}"
    return REPOSITORY / "target" / place


@contextlib.contextmanager
def configured(cloud: Cloud, name: str, stored: Secrets, destination: str) -> Iterator[None]:
    """The configuration, where the stack looks for it by default."""
    parameter = f"/{name}/config"
    deliver = {"http": destination, "signing_secret": stored.signing_reference, "timeout": "20s"}
    backoff = {"first": "1s", "longest": "4s"}
    sources = {
        provider: {
            "provider": provider,
            "secrets": [reference],
            "deliver": deliver,
            "backoff": backoff,
            # GitHub signs no event id.
            "fingerprint": provider == "github",
        }
        for provider, reference in stored.references.items()
    }
    cloud.ssm.put_parameter(Name=parameter, Type="String", Value=json.dumps({"sources": sources}))
    try:
        yield
    finally:
        cloud.ssm.delete_parameter(Name=parameter)


def holds(scenario, deployment: Deployment, began: float) -> bool:
    sentence = scenario.__name__.replace("_", " ")
    try:
        counted = scenario(deployment)
    except AssertionError as broken:
        say(began, f"NOT: {sentence}: {broken}")
        return False
    say(began, f"{sentence}: {counted}")
    return True


if __name__ == "__main__":
    sys.exit(main())
