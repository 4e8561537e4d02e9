#!/usr/bin/env bash
# The CDK construct held against template.yaml, cdk-nag and itself; and checkov over template.yaml.
# The functions need not be built: they are stood in for. What it installs goes into
# infra/cdk/node_modules and target/cdk-venv, once for each set of versions.
set -euo pipefail
cd "$(dirname "$0")/.."

# A venv of their own: checkov wants other versions of the SDK than sam. The translator is the one
# that sam brings, see template.sh.
tools="aws-sam-translator==1.115.0 checkov==3.3.30"
venv=$PWD/target/cdk-venv

if [ "$(cat "$venv/installed" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # shellcheck disable=SC2086  # one word a tool
    "$venv/bin/pip" install --quiet --disable-pip-version-check $tools
    echo "$tools" > "$venv/installed"
fi

"$venv/bin/checkov" --config-file .ci/checkov.yaml --skip-download --file template.yaml
echo "checkov has no complaint about template.yaml but those that .ci/checkov.yaml argues"

cd infra/cdk
if ! cmp -s package-lock.json node_modules/installed; then
    npm ci --ignore-scripts --no-audit --no-fund
    cp package-lock.json node_modules/installed
fi
# Builds, which checks the types. What a file left that is no more would be tested as well.
rm -rf build
PYTHON=$venv/bin/python npm test

# The app as a user runs it.
code=$(mktemp -d)
trap 'rm -rf "$code"' EXIT
for function in receiver worker sweeper; do
    mkdir "$code/$function"
    touch "$code/$function/bootstrap"
done
export CDK_DISABLE_VERSION_CHECK=1
npx --no-install cdk synth --quiet --no-notices --context code="$code" --output "$code/cdk.out"
test -s "$code/cdk.out/hookonce.template.json"
echo "the CDK stack is that of template.yaml, and synthesises"
