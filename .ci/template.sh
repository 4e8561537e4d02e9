#!/usr/bin/env bash
# Static checks of template.yaml by AWS's own tools, offline. The tools go into target/ci-venv, once
# for each pair of versions. What they cannot see is tests/tests/it/template.rs's.
set -euo pipefail
cd "$(dirname "$0")/.."

tools="aws-sam-cli==1.170.0 cfn-lint==1.58.0"
venv=target/ci-venv

if [ "$(cat "$venv/installed" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # shellcheck disable=SC2086  # one word a tool
    "$venv/bin/pip" install --quiet --disable-pip-version-check $tools
    echo "$tools" > "$venv/installed"
fi

# They want a region and credentials to be named, and ask nobody for them.
export AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none
export AWS_EC2_METADATA_DISABLED=true SAM_CLI_TELEMETRY=0

"$venv/bin/sam" validate --lint --template-file template.yaml
"$venv/bin/cfn-lint" --include-checks I --regions us-east-1 eu-central-1 -- template.yaml

# What SAM adds of its own has no name, and no rights of its choosing.
"$venv/bin/python" - <<'PYTHON'
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

with open("template.yaml", encoding="utf-8") as file:
    template = yaml_parse(file.read())
functions = ("Receiver", "Worker", "Sweeper")
for function in functions:
    template["Resources"][function]["Properties"]["CodeUri"] = "s3://bucket/key"
resources = Translator({}, Parser()).translate(template, {})["Resources"].values()


def of(kind):
    return [resource["Properties"] for resource in resources if resource["Type"] == kind]


assert all("FunctionName" not in function for function in of("AWS::Lambda::Function"))
[schedule] = of("AWS::Scheduler::Schedule")
assert "Name" not in schedule, schedule
assert not any("ManagedPolicyArns" in role for role in of("AWS::IAM::Role"))
PYTHON
echo "template.yaml passes sam validate --lint and cfn-lint, and SAM makes of it what it should"
