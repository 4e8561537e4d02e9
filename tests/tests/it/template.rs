//! `template.yaml` held against the code: its limits, its names, the calls it makes and the metrics
//! it emits. What AWS's own tools can see of it is checked by `.ci/template.sh`.
//!
//! The metrics are real: this test runs itself once more as a process of its own, in which a
//! receiver and a sweeper write their lines to standard output, as on Lambda.

mod calls;
mod choices;
mod document;
mod lines;
mod payloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    item::{Attribute, OPEN_BY_DUE},
    limits,
};
use runtime::{environment::names, telemetry::NAMESPACE};
use serde_json::{Value, json};
use tests::world::World;

use self::{
    document::{
        SOMETIMES, actions, alarms_of_template, attribute, branches, dashboards, environment,
        filters, list, metrics_of, object, properties, repository, resource, search, seconds,
        statements, template, text, with_each_endpoint,
    },
    lines::{emitted, lines},
};

/// The functions, and their timeouts.
const FUNCTIONS: [(&str, Duration); 3] = [
    ("Receiver", limits::RECEIVER_TIMEOUT),
    ("Worker", limits::WORKER_TIMEOUT),
    ("Sweeper", limits::SWEEPER_TIMEOUT),
];

/// The namespace of what metric filters make.
const STACK_NAMESPACE: &str = "hookonce/${AWS::StackName}";

/// All objects of the bucket for payloads.
const OBJECTS: &str = "${Payloads.Arn}/*";

#[test]
fn timeouts_are_those_that_the_code_builds_on() {
    for (name, timeout) in FUNCTIONS {
        assert_eq!(seconds(&properties(name)["Timeout"]), timeout, "{name}");
    }
}

#[test]
fn a_message_stays_out_of_sight_for_longer_than_a_lease_and_a_lease_outlives_the_worker() {
    let visibility = seconds(&properties("Queue")["VisibilityTimeout"]);
    let worker = seconds(&properties("Worker")["Timeout"]);
    assert_eq!(visibility, limits::QUEUE_VISIBILITY);
    assert!(visibility >= limits::MAX_LEASE + limits::CLOCK_SKEW);
    assert!(limits::MAX_LEASE >= worker + limits::CLOCK_SKEW);
}

#[test]
fn only_what_has_no_record_reaches_the_dead_letter_queue_and_it_keeps_longest() {
    let queue = properties("Queue");
    let redrive = &queue["RedrivePolicy"];
    assert_eq!(redrive["maxReceiveCount"], limits::MAX_RECEIVE_COUNT);
    assert_eq!(redrive["deadLetterTargetArn"], attribute("DeadLetterQueue.Arn"));
    let kept = seconds(&queue["MessageRetentionPeriod"]);
    let receives = limits::QUEUE_VISIBILITY * limits::MAX_RECEIVE_COUNT;
    assert!(kept > receives, "a message would expire before its receives are used up");
    let letters = properties("DeadLetterQueue");
    let kept_dead = seconds(&letters["MessageRetentionPeriod"]);
    assert_eq!(kept_dead, Duration::from_secs(14 * 86_400));
    assert!(kept_dead > kept);
    for queue in [queue, letters] {
        assert_eq!(queue["SqsManagedSseEnabled"], true);
    }
}

#[test]
fn a_batch_reports_each_record_and_holds_no_more_than_run_at_once() {
    let source = &properties("Worker")["Events"]["EventKeys"];
    assert_eq!(source["Type"], "SQS");
    let source = &source["Properties"];
    assert_eq!(source["Queue"], attribute("Queue.Arn"));
    assert_eq!(source["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    assert_eq!(source["BatchSize"], limits::MAX_CONCURRENT_RECORDS);
    assert_eq!(source["MaximumBatchingWindowInSeconds"], Value::Null);
    let concurrency = &source["ScalingConfig"]["MaximumConcurrency"];
    assert_eq!(*concurrency, json!({ "Ref": "WorkerMaximumConcurrency" }));
    assert_eq!(template()["Parameters"]["WorkerMaximumConcurrency"]["MinValue"], 2);
}

#[tokio::test]
async fn the_ledger_is_the_table_that_the_code_creates() {
    let world = World::start().await;
    let client = world.ledger.client();
    let described = client.describe_table().table_name(world.ledger.table()).send().await;
    let table = described.expect("a description").table.expect("a table");
    let keys = |schema: &[aws_sdk_dynamodb::types::KeySchemaElement]| -> Value {
        let keys = schema.iter().map(
            |key| json!({ "AttributeName": key.attribute_name, "KeyType": key.key_type.as_str() }),
        );
        keys.collect()
    };
    let ledger = properties("Ledger");
    assert_eq!(ledger["KeySchema"], keys(table.key_schema()));
    let definitions: BTreeMap<_, _> = table
        .attribute_definitions()
        .iter()
        .map(|a| (a.attribute_name.as_str(), a.attribute_type.as_str()))
        .collect();
    let declared: BTreeMap<_, _> = list(&ledger["AttributeDefinitions"])
        .map(|a| (text(&a["AttributeName"]), text(&a["AttributeType"])))
        .collect();
    assert_eq!(declared, definitions);
    let [index] = table.global_secondary_indexes() else { panic!("one index") };
    let projection = index.projection().and_then(|p| p.projection_type()).expect("a projection");
    let expected = json!([{
        "IndexName": index.index_name,
        "KeySchema": keys(index.key_schema()),
        "Projection": { "ProjectionType": projection.as_str() }
    }]);
    assert_eq!(ledger["GlobalSecondaryIndexes"], expected);
    assert_eq!(index.index_name.as_deref(), Some(OPEN_BY_DUE));
    let ttl = client.describe_time_to_live().table_name(world.ledger.table()).send().await;
    let ttl = ttl.expect("a description").time_to_live_description.expect("TTL");
    assert_eq!(ttl.attribute_name.as_deref(), Some(Attribute::ExpiresAt.name()));
    let declared = json!({ "AttributeName": ttl.attribute_name, "Enabled": true });
    assert_eq!(ledger["TimeToLiveSpecification"], declared);
}

#[test]
fn the_ledger_grows_with_its_load_and_outlives_its_stack() {
    let ledger = properties("Ledger");
    assert_eq!(ledger["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(ledger["DeletionProtectionEnabled"], true);
    assert_eq!(ledger["SSESpecification"]["SSEEnabled"], true);
    assert_eq!(
        ledger["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true,
        "a bad deployment must be undoable"
    );
    for policy in ["DeletionPolicy", "UpdateReplacePolicy"] {
        assert_eq!(resource("Ledger")[policy], "Retain", "{policy}");
    }
}

#[test]
fn each_function_gets_the_variables_that_it_reads_and_none_that_are_for_local_use() {
    let everywhere = [names::TABLE, names::QUEUE_URL, "RUST_LOG"];
    for (function, own) in [
        ("Receiver", &[names::CONFIG, names::PAYLOADS_BUCKET][..]),
        ("Worker", &[names::CONFIG, names::PAYLOADS_BUCKET]),
        // What a sweep decides lies on the records.
        ("Sweeper", &[]),
    ] {
        let environment = environment(function);
        let set: BTreeSet<_> = environment.keys().map(String::as_str).collect();
        let expected: BTreeSet<_> = everywhere.iter().chain(own).copied().collect();
        assert_eq!(set, expected, "{function}");
        assert_eq!(environment[names::TABLE], json!({ "Ref": "Ledger" }));
        assert_eq!(environment[names::QUEUE_URL], json!({ "Ref": "Queue" }));
    }
}

#[test]
fn the_configuration_is_inline_or_where_the_functions_may_read_it() {
    for function in ["Receiver", "Worker"] {
        let setting = &environment(function)[names::CONFIG];
        let [_, inline, elsewhere] = branches(setting);
        assert_eq!(*inline, json!({ "Ref": "Configuration" }));
        let statement = statements(function)
            .into_iter()
            .find(|statement| statement["Sid"] == "Configuration")
            .expect("a right to read the configuration");
        let named_first = |value: &Value| {
            let [condition, named, default] = branches(value);
            assert_eq!(condition, "ConfigurationIsNamed");
            [text(&named["Fn::Sub"]).to_owned(), text(&default["Fn::Sub"]).to_owned()]
        };
        // `ssm:` and a name that begins with a slash; the ARN has the same name.
        let read = named_first(elsewhere);
        let allowed = named_first(&statement["Resource"]);
        for (reference, arn) in read.iter().zip(&allowed) {
            let name = reference.strip_prefix("ssm:").expect("a reference to Parameter Store");
            assert!(arn.ends_with(&format!(":parameter{name}")), "{arn} is not {name}");
        }
    }
}

#[test]
fn sweeps_come_as_often_as_the_code_expects_and_are_not_repeated() {
    let sweeper = properties("Sweeper");
    let schedule = &sweeper["Events"]["EachMinute"];
    assert_eq!(schedule["Type"], "ScheduleV2");
    let schedule = &schedule["Properties"];
    let rate = text(&schedule["ScheduleExpression"]);
    let minutes: u64 = rate
        .strip_prefix("rate(")
        .and_then(|rate| rate.trim_end_matches("s)").trim_end_matches(')').strip_suffix(" minute"))
        .and_then(|minutes| minutes.parse().ok())
        .expect("a rate in minutes");
    assert_eq!(Duration::from_secs(minutes * 60), limits::SWEEP_INTERVAL);
    assert_eq!(schedule["FlexibleTimeWindow"]["Mode"], "OFF");
    for retries in [&schedule["RetryPolicy"], &sweeper["EventInvokeConfig"]] {
        assert_eq!(retries["MaximumRetryAttempts"], 0);
        assert!(seconds(&retries["MaximumEventAgeInSeconds"]) <= limits::SWEEP_INTERVAL);
    }
}

#[test]
fn functions_run_what_cargo_lambda_builds() {
    let globals = &template()["Globals"]["Function"];
    assert_eq!(globals["Runtime"], "provided.al2023");
    assert_eq!(globals["Handler"], "bootstrap");
    for (function, _) in FUNCTIONS {
        let package = function.to_lowercase();
        let manifest = repository(&format!("functions/{package}/Cargo.toml"));
        assert!(manifest.contains(&format!("name = \"{package}\"")), "its binary's name");
        let code = &properties(function)["CodeUri"];
        assert_eq!(*code, format!("target/lambda/{package}/"));
        assert_eq!(resource(function)["Metadata"]["SkipBuild"], true, "{function}");
    }
    assert!(repository("Cargo.toml").contains("[profile.deploy]"));
}

#[test]
fn each_function_logs_into_a_group_of_its_own_that_forgets() {
    let mut groups = BTreeSet::new();
    for (function, _) in FUNCTIONS {
        let group = text(&properties(function)["LoggingConfig"]["LogGroup"]["Ref"]);
        assert!(groups.insert(group), "{function} shares a log group");
        assert_eq!(resource(group)["Type"], "AWS::Logs::LogGroup");
        assert_eq!(properties(group)["RetentionInDays"], json!({ "Ref": "LogRetentionDays" }));
    }
}

/// The calls are those of `dynamo::ledger`, `sqs::queue` and `runtime::payloads`, as each function
/// reaches them; S3 asks for `ListBucket` of who may hear that an object is gone. The event source polls with the worker's rights.
#[test]
fn each_function_may_make_the_calls_that_it_makes_and_no_others() {
    let table = attribute("Ledger.Arn");
    let index = json!({ "Fn::Sub": format!("${{Ledger.Arn}}/index/{OPEN_BY_DUE}") });
    let queue = attribute("Queue.Arn");
    let bucket = attribute("Payloads.Arn");
    let objects = json!({ "Fn::Sub": OBJECTS });
    let expected = [
        (
            "Receiver",
            vec![
                (&objects, "s3", &["PutObject"][..]),
                (&table, "dynamodb", &["DescribeTable", "GetItem", "PutItem", "UpdateItem"]),
                (&queue, "sqs", &["GetQueueAttributes", "SendMessage"]),
            ],
        ),
        (
            "Worker",
            vec![
                (&table, "dynamodb", &["DescribeTable", "GetItem", "UpdateItem"]),
                (&objects, "s3", &["GetObject"]),
                (&bucket, "s3", &["ListBucket"]),
                (
                    &queue,
                    "sqs",
                    &[
                        "ChangeMessageVisibility",
                        "DeleteMessage",
                        "GetQueueAttributes",
                        "ReceiveMessage",
                    ],
                ),
            ],
        ),
        (
            "Sweeper",
            vec![
                (&index, "dynamodb", &["Query"]),
                (&table, "dynamodb", &["GetItem", "UpdateItem"]),
                (&queue, "sqs", &["SendMessage"]),
            ],
        ),
    ];
    for (function, expected) in expected {
        let always: Vec<_> = statements(function)
            .into_iter()
            .filter(|statement| !SOMETIMES.contains(&text(&statement["Sid"])))
            .map(|statement| (statement["Resource"].clone(), actions(statement)))
            .collect();
        let log = attribute(&format!("{function}Log.Arn"));
        let logging = (&log, "logs", &["CreateLogStream", "PutLogEvents"][..]);
        let expected: Vec<_> = expected
            .into_iter()
            .chain([logging])
            .map(|(resource, service, calls)| {
                let calls: Vec<_> = calls.iter().map(|call| format!("{service}:{call}")).collect();
                (resource.clone(), calls)
            })
            .collect();
        assert_eq!(always, expected, "{function}");
    }
}

#[test]
fn secrets_are_read_only_where_parameters_say() {
    for (function, secrets) in [("Receiver", "ReceiverSecretArns"), ("Worker", "WorkerSecretArns")]
    {
        let find = |sid| {
            let statements = statements(function);
            statements.into_iter().find(|statement| statement["Sid"] == sid).expect("a statement")
        };
        let (own, keys) = (find("Secrets"), find("Decrypt"));
        assert_eq!(own["Resource"], json!({ "Ref": secrets }));
        assert_eq!(actions(own), ["secretsmanager:GetSecretValue", "ssm:GetParameter"]);
        assert_eq!(keys["Resource"], json!({ "Ref": "SecretKeyArns" }));
        assert_eq!(actions(keys), ["kms:Decrypt"]);
    }
    let sids = statements("Sweeper").into_iter().map(|s| text(&s["Sid"]).to_owned());
    assert!(sids.clone().all(|sid| !["Secrets", "Decrypt", "Configuration"].contains(&&*sid)));
    assert!(sids.count() > 0);
}

#[test]
fn no_right_is_to_everything() {
    for (function, _) in FUNCTIONS {
        // With a role of our own SAM adds no managed policies, whose resources are all `*`.
        assert_eq!(properties(function)["Role"], attribute(&format!("{function}Role.Arn")));
        assert_eq!(properties(function)["Policies"], Value::Null);
        assert_eq!(properties(&format!("{function}Role"))["ManagedPolicyArns"], Value::Null);
        for statement in statements(function) {
            assert_eq!(statement["Effect"], "Allow");
            let sid = text(&statement["Sid"]);
            let tracing = sid == "Trace";
            for action in actions(statement) {
                assert!(!action.contains('*'), "{function}, {sid}: {action}");
                assert_eq!(action.starts_with("xray:"), tracing, "{function}, {sid}: {action}");
            }
            // X-Ray has no resources to name. Objects have no names before they are put.
            let resource = &statement["Resource"];
            let anything = resource["Fn::Sub"] != OBJECTS && resource.to_string().contains('*');
            assert_eq!(anything, tracing, "{function}, {sid}");
        }
    }
}

#[test]
fn several_stacks_fit_into_one_account() {
    let fixed = [
        "AlarmName",
        "BucketName",
        "DashboardName",
        "FunctionName",
        "LogGroupName",
        "Name",
        "QueueName",
        "RoleName",
        "TableName",
    ];
    for (name, resource) in object(&template()["Resources"]) {
        for property in fixed {
            let own = &resource["Properties"][property];
            // Some name another of the stack's resources, or are named after the stack.
            let refers = own["Ref"].is_string() || own["Fn::GetAtt"].is_string();
            assert!(own.is_null() || refers, "{name} is named {own}");
        }
    }
    let schedule = &properties("Sweeper")["Events"]["EachMinute"]["Properties"];
    assert_eq!(schedule["OmitName"], true, "SAM would name the schedule after the function");
}

#[test]
fn every_parameter_has_a_default() {
    for (name, parameter) in object(&template()["Parameters"]) {
        assert!(!parameter["Default"].is_null(), "{name}");
    }
}

#[test]
fn every_alarm_is_sent_where_the_parameter_says_and_shows_on_the_dashboard() {
    let topic = json!({ "Fn::If": ["AlarmsHaveTopic", [{ "Ref": "AlarmTopicArn" }], { "Ref": "AWS::NoValue" }] });
    let mut alarms = BTreeSet::new();
    for (name, alarm) in alarms_of_template() {
        assert_eq!(alarm["AlarmActions"], topic, "{name}");
        assert_eq!(alarm["OKActions"], topic, "{name}");
        assert!(!alarm["TreatMissingData"].is_null(), "{name} does not say what silence means");
        alarms.insert(format!("${{{name}.Arn}}"));
    }
    for dashboard in dashboards() {
        let shown: BTreeSet<_> = list(&dashboard["widgets"])
            .filter(|widget| widget["type"] == "alarm")
            .flat_map(|widget| list(&widget["properties"]["alarms"]))
            .map(|arn| text(arn).to_owned())
            .collect();
        assert_eq!(shown, alarms);
    }
}

#[test]
fn a_silent_sweeper_is_an_alarm_and_a_silent_receiver_is_not() {
    let breaching: Vec<_> = alarms_of_template()
        .filter(|(_, alarm)| alarm["TreatMissingData"] == "breaching")
        .map(|(_, alarm)| text(&alarm["MetricName"]))
        .collect();
    assert_eq!(breaching, ["sweeper_heartbeat"]);
}

#[test]
fn alarms_read_what_this_stack_alone_writes() {
    let filtered: BTreeSet<_> = filters().map(|filter| filter.metric).collect();
    let mut read = BTreeSet::new();
    for (name, metric) in alarms_of_template().flat_map(|(name, alarm)| metrics_of(name, alarm)) {
        let namespace = &metric["Namespace"];
        if namespace["Fn::Sub"] == STACK_NAMESPACE {
            let metric = text(&metric["MetricName"]);
            assert!(filtered.contains(metric), "{name}: no filter makes {metric}");
            read.insert(metric.to_owned());
        } else {
            // AWS's own, of a resource of this stack.
            assert!(text(namespace).starts_with("AWS/"), "{name}: {namespace}");
            let first = list(&metric["Dimensions"]).next().expect("a dimension");
            let of = &first["Value"];
            let of = of["Ref"].as_str().or_else(|| of["Fn::GetAtt"].as_str()).expect("a resource");
            let of = of.split('.').next().unwrap_or_default();
            assert!(!resource(of).is_null(), "{name}: there is no {of}");
        }
    }
    for needed in [
        "oldest_open_seconds",
        "parked_events",
        "stuck_processing",
        "sweeper_heartbeat",
        "swept_failed_total",
        "webhook_events_duplicate",
        "webhook_events_new",
        "webhook_rejected_unidentifiable",
        "webhook_rejected_unverified",
    ] {
        assert!(read.contains(needed), "no alarm on {needed}");
    }
}

#[test]
fn filters_count_the_lines_they_are_meant_for() {
    // Of what a real receiver and sweeper wrote: see `lines`.
    let expected: BTreeMap<_, _> = [
        ("webhook_events_new", 1.0),
        ("webhook_events_duplicate", 2.0),
        ("webhook_rejected_unverified", 3.0),
        ("webhook_rejected_unidentifiable", 1.0),
        ("open_events", 1.0),
        ("stuck_processing", 0.0),
        ("parked_events", 0.0),
        ("swept_failed_total", 0.0),
        ("sweeper_heartbeat", 1.0),
    ]
    .into();
    for filter in filters() {
        let lines = lines().iter().filter(|line| line["function"] == filter.function);
        let matched: Vec<_> =
            lines.map(|line| &line["line"]).filter(|line| filter.matches(line)).collect();
        assert!(!matched.is_empty(), "{} matches nothing", filter.metric);
        let sum: f64 = matched
            .iter()
            .map(|line| line[filter.field].as_f64().expect("a number for the metric"))
            .sum();
        match expected.get(filter.metric) {
            Some(expected) => assert!((sum - expected).abs() < 1e-9, "{}: {sum}", filter.metric),
            None => assert_eq!(filter.metric, "oldest_open_seconds"),
        }
    }
    assert_eq!(filters().count(), expected.len() + 1);
}

#[test]
fn every_widget_shows_a_metric_that_exists() {
    let emitted = emitted();
    // What is per source is all there.
    let per_source: BTreeSet<_> = emitted
        .iter()
        .filter(|(dimensions, name)| dimensions.contains("source") && name != "duration_ms")
        .map(|(_, name)| name.clone())
        .collect();
    for dashboard in dashboards() {
        let mut searched = BTreeSet::new();
        for widget in list(&dashboard["widgets"]).filter(|widget| widget["type"] == "metric") {
            for metric in list(&widget["properties"]["metrics"]) {
                let Some(expression) = metric[0]["expression"].as_str() else {
                    metric_of_this_stack(metric);
                    continue;
                };
                let (dimensions, name) = search(expression);
                assert!(
                    emitted.contains(&(dimensions.clone(), name.clone())),
                    "no line has {name} by {dimensions:?}"
                );
                searched.insert(name);
            }
        }
        assert_eq!(searched, per_source);
    }
}

/// A filter makes it, or AWS, of a resource of this stack.
fn metric_of_this_stack(metric: &Value) {
    let parts: Vec<_> = list(metric).filter_map(Value::as_str).collect();
    match parts[..] {
        [STACK_NAMESPACE, metric] => {
            assert!(filters().any(|filter| filter.metric == metric), "{metric}");
        }
        [namespace, _, _, of] | [namespace, _, _, of, ..] => {
            assert!(namespace.starts_with("AWS/"), "{namespace}");
            let of = of.trim_start_matches("${").trim_end_matches('}');
            let of = of.split('.').next().unwrap_or_default();
            assert!(!resource(of).is_null(), "there is no {of}");
        }
        _ => panic!("{metric} is no metric"),
    }
}

#[test]
fn our_metrics_are_in_the_namespace_that_the_dashboard_searches() {
    for line in lines() {
        let directives = &line["line"]["_aws"]["CloudWatchMetrics"];
        assert_eq!(directives[0]["Namespace"], NAMESPACE);
    }
}

#[test]
fn outputs_name_what_exists() {
    for (name, output) in object(&template()["Outputs"]) {
        for value in with_each_endpoint(&output["Value"]) {
            let sub = value["Fn::Sub"].as_str().and_then(|text| text.strip_prefix("${"));
            let of = value["Ref"].as_str().or_else(|| value["Fn::GetAtt"].as_str()).or(sub);
            let Some(of) = of else { continue };
            let of = of.split('.').next().unwrap_or_default();
            assert!(!resource(of).is_null(), "{name}: there is no {of}");
        }
    }
}
