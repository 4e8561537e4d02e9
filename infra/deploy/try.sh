#!/usr/bin/env bash
# Deploys template.yaml for real and tries it out: signed deliveries and copies of them, forgeries,
# events that fail, a large payload, lost messages, strange messages; then removes everything. Without a word about
# where, on this machine: MiniStack runs the functions, needs no Docker and no account, and evaluates
# their policies.
#
#   infra/deploy/try.sh [--endpoint URL | --aws] [--receiver FunctionUrl | HttpApi]
#       [--queue Standard | Fifo] [--release]
#
# What it needs goes into target/deploy-venv, once for each set of versions. Needs Rust and Python
# 3.11.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Later ones may differ from AWS in other points than emulator.py knows. The translator is the one
# that sam brings, see .ci/template.sh: MiniStack transforms the template by it.
tools="ministack==1.5.33 aws-sam-translator==1.115.0 boto3==1.43.106"
venv=target/deploy-venv

if [ "$(cat "$venv/installed" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # shellcheck disable=SC2086  # one word a tool
    "$venv/bin/pip" install --quiet --disable-pip-version-check $tools
    echo "$tools" > "$venv/installed"
fi

# The command signs; the functions are what is deployed, unless --release has them built otherwise.
cargo build --quiet --locked -p hookonce -p receiver -p worker -p sweeper
exec "$venv/bin/python" infra/deploy/drive.py "$@"
