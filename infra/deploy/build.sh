#!/usr/bin/env bash
# Builds the Lambda artefacts: target/lambda/{receiver,worker,sweeper}/bootstrap, where template.yaml
# and the CDK app look for them, and target/lambda/{receiver,worker,sweeper}.zip, none larger than
# pack.py allows.
#
#   infra/deploy/build.sh [arm64 | x86_64]
#
# arm64 is what the template has by default. Rust's standard library for the other architecture is
# added to the toolchain by cargo-lambda, through rustup; without rustup it must be there.
set -euo pipefail
cd "$(dirname "$0")/../.."

case "${1:-arm64}" in
    arm64) target=--arm64 ;;
    x86_64) target=--x86-64 ;;
    *) echo "$1 is no architecture of Lambda's; there are arm64 and x86_64" >&2; exit 2 ;;
esac

# With it comes the linker for a C library as old as Lambda's, and for the other architecture.
tools="cargo-lambda==1.9.2"
if ! command -v cargo-lambda >/dev/null; then
    venv=$PWD/target/build-venv
    if [ "$(cat "$venv/installed" 2>/dev/null)" != "$tools" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$tools"
        echo "$tools" > "$venv/installed"
    fi
    PATH="$venv/bin:$PATH"
fi

# By name: without, the `hookonce` command would be built as a fourth function.
cargo lambda build --locked --profile deploy "$target" -p receiver -p worker -p sweeper
python3 infra/deploy/pack.py target/lambda
