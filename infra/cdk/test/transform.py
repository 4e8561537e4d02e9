"""The template as AWS's own translator leaves it, with its Serverless resources written out."""

import json
import sys

from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

with open(sys.argv[1], encoding="utf-8") as file:
    template = yaml_parse(file.read())
for resource in template["Resources"].values():
    # Packing the code would put a bucket here; the translator takes no folder.
    if resource["Type"] == "AWS::Serverless::Function":
        resource["Properties"]["CodeUri"] = "s3://bucket/key"
json.dump(Translator({}, Parser()).translate(template, {}), sys.stdout)
