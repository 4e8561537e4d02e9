"""What a million events cost, by the units that tests and `try.sh` counted and by prices to be set
here: the table in docs/cost.md.
"""

from dataclasses import dataclass

# Dollars, us-east-1, without the free tier, as of 2025. They were not read from AWS's
# price list: compare them with it, and with your region's.
WRITE_UNIT = 0.625 / 1e6
INVOCATION = 0.20 / 1e6
GB_SECOND = 0.0000133334  # arm64
SQS_REQUEST = 0.40 / 1e6
S3_PUT = 5.00 / 1e6
S3_GET = 0.40 / 1e6
API_REQUEST = 1.00 / 1e6
LOG_BYTE = 0.50 / 1e9

# Assumed, and yours to measure: the billed time depends on the round trips to DynamoDB and SQS and,
# of the worker, on what it waits for.
MEMORY_GB = 0.25
RECEIVER_SECONDS = 0.020
WORKER_SECONDS = 0.100

# Beside the functions' own lines: what Lambda writes about each invocation.
PLATFORM_LOG_BYTES = 300


@dataclass(frozen=True)
class Units:
    """Of one event, or of one delivery of an event that is there already."""

    writes: int
    """tests/tests/it/cost.rs"""
    messages: int
    """Requests to SQS, with a batch of one: sent, received, deleted."""
    receives: int
    works: int
    log_bytes: int
    """`try.sh`, in its line on what was counted."""
    puts: int = 0
    gets: int = 0
    """Of payloads that fit on no record."""

    def dollars(self) -> dict[str, float]:
        receiving = RECEIVER_SECONDS * self.receives
        working = WORKER_SECONDS * self.works
        invocations = self.receives + self.works
        logged = self.log_bytes + PLATFORM_LOG_BYTES * invocations
        return {
            "DynamoDB": self.writes * WRITE_UNIT,
            "SQS": self.messages * SQS_REQUEST,
            "S3": self.puts * S3_PUT + self.gets * S3_GET,
            "Lambda": invocations * INVOCATION + (receiving + working) * MEMORY_GB * GB_SECOND,
            "Logs": logged * LOG_BYTE,
        }


RECEIVER_LINE_BYTES = 530
WORKER_LINE_BYTES = 560
LINES = RECEIVER_LINE_BYTES + WORKER_LINE_BYTES

CASES = {
    "new, 331 bytes": Units(writes=5, messages=3, receives=1, works=1, log_bytes=LINES),
    "new, 2.6 kB": Units(writes=8, messages=3, receives=1, works=1, log_bytes=LINES),
    # Its record has the name of the payload instead of the payload.
    "new, in the bucket": Units(
        writes=5, messages=3, receives=1, works=1, log_bytes=LINES, puts=1, gets=1
    ),
    "duplicate, 331 bytes": Units(
        writes=1, messages=0, receives=1, works=0, log_bytes=RECEIVER_LINE_BYTES
    ),
    "duplicate, 2.6 kB": Units(
        writes=2, messages=0, receives=1, works=0, log_bytes=RECEIVER_LINE_BYTES
    ),
    "duplicate, in the bucket": Units(
        writes=1, messages=0, receives=1, works=0, log_bytes=RECEIVER_LINE_BYTES, puts=1
    ),
    "refused": Units(writes=0, messages=0, receives=1, works=0, log_bytes=RECEIVER_LINE_BYTES),
}


def main() -> None:
    parts = list(next(iter(CASES.values())).dollars())
    print(f"| a million | {' | '.join(parts)} | sum | with an HTTP API |")
    print(f"| --- |{' --: |' * (len(parts) + 2)}")
    for case, units in CASES.items():
        dollars = [part * 1e6 for part in units.dollars().values()]
        columns = [*dollars, sum(dollars), sum(dollars) + API_REQUEST * 1e6]
        print(f"| {case} | {' | '.join(f'{column:.2f}' for column in columns)} |")


if __name__ == "__main__":
    main()
