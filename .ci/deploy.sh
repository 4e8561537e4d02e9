#!/usr/bin/env bash
# template.yaml deployed for real, with either endpoint and either queue, and tried out: see
# infra/deploy/try.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

infra/deploy/try.sh --receiver FunctionUrl
infra/deploy/try.sh --receiver HttpApi --queue Fifo
