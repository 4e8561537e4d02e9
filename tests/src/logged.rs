//! The built receiver as a process, for what it logs: lines go to its standard output and nowhere
//! else.

use std::time::Duration;

use domain::limits;
use hookonce::lambda::{Function, FunctionSpec};
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::{
    programs::programs,
    world::{TABLE, World},
};

/// The built receiver, and the lines it writes.
#[derive(Debug)]
pub struct LoggedReceiver {
    function: Function,
    lines: mpsc::UnboundedReceiver<String>,
    _closing: watch::Sender<bool>,
}

impl LoggedReceiver {
    /// Starts it on `world`, with SQS at `sqs_url`.
    pub async fn start(world: &World, config: &Value, sqs_url: &str) -> Self {
        let (closing, closed) = watch::channel(false);
        let (writing, lines) = mpsc::unbounded_channel::<String>();
        let variables = [
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL_DYNAMODB", &world.dynamodb_url),
            ("AWS_ENDPOINT_URL_SQS", sqs_url),
            ("HOOKONCE_TABLE", TABLE),
            ("HOOKONCE_QUEUE_URL", &world.queue_url.replace(&world.sqs_url, sqs_url)),
            ("HOOKONCE_CONFIG", &config.to_string()),
            ("HOOKONCE_LOCAL", "1"),
        ];
        let spec = FunctionSpec {
            name: "receiver",
            program: programs().join("receiver"),
            arguments: Vec::new(),
            environment: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            instances: 1,
            timeout: limits::RECEIVER_TIMEOUT,
        };
        let function = Function::start(spec, writing, &closed).await.expect("a process");
        Self { function, lines, _closing: closing }
    }

    /// Receives a request; gives the status answered.
    pub async fn receive(&self, event: &ApiGatewayV2httpRequest) -> u64 {
        let event = serde_json::to_string(event).expect("JSON");
        let answered = self.function.invoke(event).await.expect("an answer");
        let answered: Value = serde_json::from_slice(&answered).expect("JSON");
        answered["statusCode"].as_u64().expect("a status")
    }

    /// The next line with this metric.
    pub async fn next_line(&mut self, metric: &str) -> Value {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                let parsed = line.find('{').and_then(|at| serde_json::from_str(&line[at..]).ok());
                let parsed: Value = parsed.unwrap_or_default();
                if parsed.get(metric).is_some() {
                    return parsed;
                }
            }
            panic!("the process ended");
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.expect("a line")
    }
}
