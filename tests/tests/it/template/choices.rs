//! What a parameter chooses: where deliveries arrive, and what the queue keeps in order.

use serde_json::{Value, json};

use super::{
    FUNCTIONS,
    document::{attribute, object, properties, resource, template, text, with_each_endpoint},
};

#[test]
fn deliveries_arrive_at_one_endpoint_and_everything_of_it_is_there_or_is_not() {
    let parameter = &template()["Parameters"]["ReceiverEndpoint"];
    assert_eq!(parameter["AllowedValues"], json!(["FunctionUrl", "HttpApi"]));
    let conditions = &template()["Conditions"];
    for (condition, value) in [("ReceiverHasUrl", "FunctionUrl"), ("ReceiverHasApi", "HttpApi")] {
        let equal = json!({ "Fn::Equals": [{ "Ref": "ReceiverEndpoint" }, value] });
        assert_eq!(conditions[condition], equal);
    }
    let mut parts = 0;
    for (name, resource) in object(&template()["Resources"]) {
        let of_url = name.starts_with("ReceiverUrl");
        if of_url || name.starts_with("ReceiverApi") {
            let condition = if of_url { "ReceiverHasUrl" } else { "ReceiverHasApi" };
            assert_eq!(resource["Condition"], condition, "{name}");
            parts += 1;
        }
    }
    assert_eq!(parts, 9);
}

#[test]
fn the_receivers_url_is_open_and_its_answers_are_whole() {
    let url = json!({
        "TargetFunctionArn": { "Ref": "Receiver" },
        "AuthType": "NONE",
        "InvokeMode": "BUFFERED",
    });
    assert_eq!(*properties("ReceiverUrl"), url);
    let others = object(&template()["Resources"]).filter(|(name, resource)| {
        *name != "ReceiverUrl" && resource["Type"] == "AWS::Lambda::Url"
    });
    assert_eq!(others.count(), 0);
    for (function, _) in FUNCTIONS {
        assert_eq!(properties(function)["FunctionUrlConfig"], Value::Null, "{function}");
    }
}

/// Since October 2025 a URL with but one of them answers 403.
#[test]
fn the_receivers_url_has_both_permissions_that_it_needs() {
    let permission = properties("ReceiverUrlPermission");
    assert_eq!(permission["Action"], "lambda:InvokeFunctionUrl");
    assert_eq!(permission["FunctionUrlAuthType"], "NONE");
    let invoke = properties("ReceiverUrlInvokePermission");
    assert_eq!(invoke["Action"], "lambda:InvokeFunction");
    assert_eq!(invoke["InvokedViaFunctionUrl"], true, "anybody could invoke it past its URL");
    for permission in [permission, invoke] {
        assert_eq!(permission["Principal"], "*");
        assert_eq!(permission["FunctionName"], attribute("Receiver.Arn"));
    }
}

#[test]
fn an_http_api_hands_every_method_of_a_webhook_on_and_no_other_path() {
    let api = json!({ "Ref": "ReceiverApi" });
    assert_eq!(properties("ReceiverApi")["ProtocolType"], "HTTP");
    let integration = properties("ReceiverApiIntegration");
    assert_eq!(integration["IntegrationType"], "AWS_PROXY");
    assert_eq!(integration["IntegrationUri"], attribute("Receiver.Arn"));
    // The one that the receiver reads, and that function URLs send.
    assert_eq!(integration["PayloadFormatVersion"], "2.0");
    let route = properties("ReceiverApiRoute");
    let path = text(&route["RouteKey"]).strip_prefix("ANY ").expect("every method");
    assert_eq!(path, "/webhooks/{source}");
    assert!(receiver::http::source_of(&path.replace("{source}", "stripe")).is_some());
    assert_eq!(route["Target"]["Fn::Sub"], "integrations/${ReceiverApiIntegration}");
    let stage = properties("ReceiverApiStage");
    assert_eq!(stage["StageName"], "$default");
    assert_eq!(stage["AutoDeploy"], true);
    for part in [integration, route, stage] {
        assert_eq!(part["ApiId"], api);
    }
    let permission = properties("ReceiverApiPermission");
    assert_eq!(permission["Action"], "lambda:InvokeFunction");
    assert_eq!(permission["Principal"], "apigateway.amazonaws.com");
    let from = text(&permission["SourceArn"]["Fn::Sub"]);
    assert!(from.ends_with(&format!(":${{ReceiverApi}}/*/*{path}")), "{from}");
}

#[test]
fn the_log_of_an_http_api_has_nothing_of_the_request_but_where_it_came_from() {
    let log = &properties("ReceiverApiStage")["AccessLogSettings"];
    assert_eq!(log["DestinationArn"], attribute("ReceiverApiLog.Arn"));
    let retention = &properties("ReceiverApiLog")["RetentionInDays"];
    assert_eq!(*retention, json!({ "Ref": "LogRetentionDays" }));
    let format = text(&log["Format"]);
    let line: Value = serde_json::from_str(format).expect("JSON");
    let mut variables: Vec<_> = object(&line).map(|(_, value)| text(value)).collect();
    variables.sort_unstable();
    let harmless = [
        "$context.identity.sourceIp",
        "$context.integrationErrorMessage",
        "$context.requestId",
        "$context.responseLatency",
        "$context.routeKey",
        "$context.status",
    ];
    assert_eq!(variables, harmless);
}

#[test]
fn answers_of_5xx_are_counted_at_either_endpoint() {
    let [url, api] = with_each_endpoint(properties("ReceiverFailingAlarm"));
    let of = |alarm: &Value, name: &str| alarm["Dimensions"][0][name].clone();
    assert_eq!([&url["Namespace"], &url["MetricName"]], ["AWS/Lambda", "Url5xxCount"]);
    assert_eq!(
        [of(&url, "Name"), of(&url, "Value")],
        [json!("FunctionName"), reference("Receiver")]
    );
    assert_eq!([&api["Namespace"], &api["MetricName"]], ["AWS/ApiGateway", "5xx"]);
    assert_eq!([of(&api, "Name"), of(&api, "Value")], [json!("ApiId"), reference("ReceiverApi")]);
}

#[test]
fn a_fifo_queue_keeps_order_by_object_alone_and_has_a_dead_letter_queue_of_its_kind() {
    let is_fifo = json!({ "Fn::Equals": [{ "Ref": "QueueType" }, "Fifo"] });
    assert_eq!(template()["Conditions"]["QueueIsFifo"], is_fifo);
    let if_fifo =
        |value: Value| json!({ "Fn::If": ["QueueIsFifo", value, reference("AWS::NoValue")] });
    // Not `false`: CloudFormation refuses that for a standard queue.
    for queue in ["Queue", "DeadLetterQueue"] {
        assert_eq!(properties(queue)["FifoQueue"], if_fifo(json!(true)), "{queue}");
        // Two enqueueings of one event have one body; the second may be all that is left of it.
        let by_content = &properties(queue)["ContentBasedDeduplication"];
        assert_eq!(*by_content, Value::Null, "{queue}");
    }
    let queue = properties("Queue");
    assert_eq!(queue["DeduplicationScope"], if_fifo(json!("messageGroup")));
    assert_eq!(queue["FifoThroughputLimit"], if_fifo(json!("perMessageGroupId")));
    assert_eq!(resource("Queue")["Condition"], Value::Null);
}

fn reference(to: &str) -> Value {
    json!({ "Ref": to })
}
