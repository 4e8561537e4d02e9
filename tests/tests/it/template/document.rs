//! The template as data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Duration,
};

use runtime::telemetry::NAMESPACE;
use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Value, json};

use super::{FUNCTIONS, STACK_NAMESPACE};

/// Statements that stand under a condition: each has a test of its own.
pub(super) const SOMETIMES: [&str; 5] =
    ["Configuration", "Decrypt", "PayloadKey", "Secrets", "Trace"];

/// The template with CloudFormation's short forms (`!Ref`) written out (`{"Ref": …}`).
pub(super) fn template() -> &'static Value {
    static TEMPLATE: OnceLock<Value> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let text = repository("template.yaml");
        let documents = Yaml::load_from_str(&text).expect("YAML without duplicate keys");
        let [document] = &documents[..] else { panic!("one document") };
        written_out(document)
    })
}

fn written_out(node: &Yaml<'_>) -> Value {
    match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(items) => items.iter().map(written_out).collect(),
        Yaml::Mapping(entries) => entries
            .iter()
            .map(|(key, value)| (key.as_str().expect("a key").to_owned(), written_out(value)))
            .collect(),
        Yaml::Tagged(tag, node) => {
            let name = match tag.suffix.as_str() {
                "Ref" => "Ref".to_owned(),
                function => format!("Fn::{function}"),
            };
            json!({ name: written_out(node) })
        }
        Yaml::Representation(..) | Yaml::Alias(_) | Yaml::BadValue => {
            panic!("CloudFormation takes no {node:?}")
        }
    }
}

pub(super) fn repository(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(super) fn resource(name: &str) -> &'static Value {
    &template()["Resources"][name]
}

pub(super) fn properties(name: &str) -> &'static Value {
    let properties = &resource(name)["Properties"];
    assert!(properties.is_object(), "there is no {name}");
    properties
}

pub(super) fn attribute(of: &str) -> Value {
    json!({ "Fn::GetAtt": of })
}

pub(super) fn environment(function: &str) -> BTreeMap<String, Value> {
    let globals = &template()["Globals"]["Function"]["Environment"]["Variables"];
    let own = &properties(function)["Environment"]["Variables"];
    let own = own.as_object().into_iter().flatten();
    object(globals)
        .chain(own.map(|(k, v)| (k.as_str(), v)))
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

/// Every statement of a function's role, those under a condition included.
pub(super) fn statements(function: &str) -> Vec<&'static Value> {
    let policies = &properties(&format!("{function}Role"))["Policies"];
    list(policies)
        .flat_map(|policy| list(&policy["PolicyDocument"]["Statement"]))
        .map(|statement| {
            let mut branches = statement["Fn::If"].as_array().into_iter().flatten();
            branches.find(|branch| branch["Sid"].is_string()).unwrap_or(statement)
        })
        .collect()
}

pub(super) fn actions(statement: &Value) -> Vec<String> {
    let action = &statement["Action"];
    match action.as_str() {
        Some(one) => vec![one.to_owned()],
        None => list(action).map(|action| text(action).to_owned()).collect(),
    }
}

pub(super) fn branches(choice: &Value) -> [&Value; 3] {
    let parts: Vec<_> = list(&choice["Fn::If"]).collect();
    parts.try_into().expect("a condition and two branches")
}

pub(super) fn alarms_of_template() -> impl Iterator<Item = (&'static str, &'static Value)> {
    object(&template()["Resources"])
        .filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm")
        .map(|(name, alarm)| (name, &alarm["Properties"]))
}

/// The metrics that an alarm reads, by itself or in an expression, with either endpoint.
pub(super) fn metrics_of(name: &'static str, alarm: &Value) -> Vec<(&'static str, Value)> {
    let of_one = |alarm: Value| {
        let several = alarm["Metrics"].as_array().cloned().into_iter().flatten();
        let several = several.map(|query| query["MetricStat"]["Metric"].clone());
        let several: Vec<_> = several.filter(|metric| !metric.is_null()).collect();
        let one = Some(alarm).filter(|alarm| !alarm["MetricName"].is_null());
        one.into_iter().chain(several)
    };
    let both = with_each_endpoint(alarm).into_iter().flat_map(of_one);
    both.map(|metric| (name, metric)).collect()
}

/// With a function URL, and with an HTTP API.
pub(super) fn dashboards() -> [Value; 2] {
    with_each_endpoint(&properties("Dashboard")["DashboardBody"]).map(|body| {
        let [body, variables] = &list(&body["Fn::Sub"]).collect::<Vec<_>>()[..] else {
            panic!("a text and its variables")
        };
        let of_endpoint = text(&variables["Endpoint"]["Fn::Sub"]);
        let body = text(body).replace("${Endpoint}", of_endpoint);
        serde_json::from_str(&body).expect("a dashboard is JSON")
    })
}

/// What becomes of a part of the template with a function URL, and with an HTTP API.
pub(super) fn with_each_endpoint(value: &Value) -> [Value; 2] {
    [true, false].map(|has_url| chosen(value, has_url))
}

fn chosen(value: &Value, has_url: bool) -> Value {
    match value {
        Value::Object(map) if value["Fn::If"][0] == "ReceiverHasUrl" => {
            assert_eq!(map.len(), 1, "{value}");
            let [_, with_url, with_api] = branches(value);
            chosen(if has_url { with_url } else { with_api }, has_url)
        }
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), chosen(value, has_url))).collect()
        }
        Value::Array(items) => items.iter().map(|item| chosen(item, has_url)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Dimensions and metric of `SEARCH('{hookonce,a,b} MetricName="m"', …)`.
pub(super) fn search(expression: &str) -> (BTreeSet<String>, String) {
    let rest = expression.strip_prefix("SEARCH('{").expect("a search");
    let (schema, rest) = rest.split_once("} MetricName=\"").expect("of one metric");
    let (name, _) = rest.split_once("\"'").expect("of one metric");
    let (namespace, dimensions) = schema.split_once(',').expect("dimensions");
    assert_eq!(namespace, NAMESPACE);
    (dimensions.split(',').map(ToOwned::to_owned).collect(), name.to_owned())
}

/// A metric filter of this template: conditions on fields, joined by `&&`, any of them a choice.
pub(super) struct Filter {
    pub(super) function: &'static str,
    pub(super) metric: &'static str,
    pub(super) field: &'static str,
    pattern: &'static str,
}

pub(super) fn filters() -> impl Iterator<Item = Filter> {
    let filters = object(&template()["Resources"])
        .filter(|(_, resource)| resource["Type"] == "AWS::Logs::MetricFilter");
    filters.map(|(name, filter)| {
        let filter = &filter["Properties"];
        let group = text(&filter["LogGroupName"]["Ref"]);
        let [made] = &filter["MetricTransformations"].as_array().expect("a list")[..] else {
            panic!("{name}: one metric a filter")
        };
        assert_eq!(made["MetricNamespace"]["Fn::Sub"], STACK_NAMESPACE, "{name}");
        let (function, _) = FUNCTIONS
            .into_iter()
            .find(|(function, _)| properties(function)["LoggingConfig"]["LogGroup"]["Ref"] == group)
            .expect("a function that logs there");
        Filter {
            function,
            metric: text(&made["MetricName"]),
            field: text(&made["MetricValue"]).strip_prefix("$.").expect("a field"),
            pattern: text(&filter["FilterPattern"]),
        }
    })
}

impl Filter {
    pub(super) fn matches(&self, line: &Value) -> bool {
        let pattern = self.pattern.trim().strip_prefix('{').and_then(|p| p.strip_suffix('}'));
        pattern.expect("a JSON pattern").split("&&").all(|part| {
            let part = part.trim();
            let choice = part.strip_prefix('(').and_then(|p| p.strip_suffix(')')).unwrap_or(part);
            choice.split("||").any(|condition| {
                let (field, wanted) = condition.split_once('=').expect("FIELD = VALUE");
                let field = field.trim().strip_prefix("$.").expect("a field");
                match wanted.trim() {
                    "*" => !line[field].is_null(),
                    wanted => line[field] == wanted.trim_matches('"'),
                }
            })
        })
    }
}

pub(super) fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_else(|| panic!("{value} is no number")))
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter()
}

pub(super) fn object(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = value.as_object().unwrap_or_else(|| panic!("{value} is no map"));
    entries.iter().map(|(name, value)| (name.as_str(), value))
}
