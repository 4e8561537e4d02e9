//! DynamoDB and SQS in this process, and the lines that SDK clients reach them by.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpConnector,
        },
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::time::Timestamp;
use dynamo::Ledger;
use dynoxide::{Database, DynoxideError};
use hookonce::{
    queue::QueueServer,
    stack::{dynamodb_config, sqs_config},
};
use runtime::{aws::Patience, clock::Clock};
use serde_json::{Value, json};
use sqs::Queue;
use tokio::sync::Notify;

use super::{
    oracle::{OPERATOR, Oracle},
    weather::{Fate, Process, Service, Weather},
};
use crate::world::TABLE;

/// The services, and what is known of them.
pub(crate) struct Aws {
    database: Database,
    queues: Arc<QueueServer>,
    weather: Mutex<Weather>,
    oracle: Mutex<Oracle>,
    pub(crate) clock: Clock,
    /// A message was sent.
    pub(crate) sent: Notify,
    /// A record was written.
    pub(crate) written: Notify,
}

impl std::fmt::Debug for Aws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aws")
    }
}

impl Aws {
    pub(crate) fn start(weather: Weather, seed: u64, clock: Clock) -> Arc<Self> {
        let millis = move || u64::try_from(clock.now().millis()).unwrap_or(0);
        Arc::new(Self {
            database: Database::memory().expect("a database in memory"),
            queues: Arc::new(QueueServer::seeded(Arc::new(millis), seed)),
            weather: Mutex::new(weather),
            oracle: Mutex::new(Oracle::default()),
            clock,
            sent: Notify::new(),
            written: Notify::new(),
        })
    }

    pub(crate) fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A ledger as `process` reaches it; without one, as somebody whom no fault meets.
    pub(crate) fn ledger(
        self: &Arc<Self>,
        process: Option<&Arc<Process>>,
        patience: Patience,
    ) -> Ledger {
        let config = dynamodb_config("http://dynamodb.invalid")
            .http_client(self.line(Service::DynamoDb, process))
            .retry_config(patience.retries())
            .timeout_config(patience.timeouts());
        Ledger::new(config, TABLE.to_owned())
    }

    /// The queue at `url`, likewise.
    pub(crate) fn queue(
        self: &Arc<Self>,
        process: Option<&Arc<Process>>,
        patience: Patience,
        url: &str,
    ) -> Queue {
        let config = sqs_config("http://sqs.invalid")
            .http_client(self.line(Service::Sqs, process))
            .retry_config(patience.retries())
            .timeout_config(patience.timeouts());
        Queue::new(config, url.to_owned())
    }

    fn line(self: &Arc<Self>, service: Service, process: Option<&Arc<Process>>) -> Line {
        Line { aws: Arc::clone(self), service, process: process.map(Arc::clone) }
    }

    /// What becomes of a call of `process`, which takes note of it.
    pub(crate) fn fate(&self, service: Service, process: &Process) -> Fate {
        let fate = self.weather().next(service);
        if fate != Fate::Fine {
            process.disturbed.fetch_add(1, Ordering::SeqCst);
            let note = format!("{}: {service:?}: {fate:?}", process.name);
            self.oracle().note(self.now(), note);
        }
        fate
    }

    /// Deletes an expired record, as TTL does.
    pub(crate) fn expire(&self, pk: &str) {
        let request = json!({ "TableName": TABLE, "Key": { "pk": { "S": pk } } });
        let request = serde_json::from_value(request).expect("a request");
        self.database.delete_item(request).expect("deleted");
        self.oracle().expired(self.now(), pk);
    }

    fn serve_dynamodb(&self, by: &str, action: &str, body: &[u8]) -> HttpResponse {
        let text = std::str::from_utf8(body).expect("JSON");
        let touched = touched(action, text);
        let before = self.images(&touched);
        let (status, body) = match perform(&self.database, action, text) {
            Ok(body) => (200, body),
            Err(error) => (error.status_code(), error.to_json()),
        };
        let after = self.images(&touched);
        for ((key, before), after) in touched.iter().zip(before).zip(after) {
            if before != after {
                self.oracle().wrote(self.now(), by, key, before.as_ref(), after.as_ref());
                self.written.notify_waiters();
            }
        }
        response(status, body)
    }

    fn images(&self, keys: &[(String, Value)]) -> Vec<Option<Value>> {
        let image = |(table, key): &(String, Value)| {
            let request = json!({ "TableName": table, "Key": key, "ConsistentRead": true });
            let request = serde_json::from_value(request).expect("a request");
            let read = self.database.get_item(request).expect("a read");
            read.item.map(|item| serde_json::to_value(item).expect("JSON"))
        };
        keys.iter().map(image).collect()
    }

    /// One request to SQS, at once.
    pub(crate) async fn serve_sqs(&self, action: &str, body: &[u8]) -> HttpResponse {
        let target = HeaderValue::try_from(format!("AmazonSQS.{action}")).expect("a header");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-amz-target"), target)]);
        let answer = Arc::clone(&self.queues).answer(headers, body.to_vec().into()).await;
        if action == "SendMessage" && answer.status().is_success() {
            self.sent.notify_waiters();
        }
        let status = answer.status().as_u16();
        let refusal = answer.headers().get("x-amzn-query-error").cloned();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        let mut response = response(status, String::from_utf8(body.to_vec()).expect("JSON"));
        if let Some(refusal) = refusal.and_then(|value| value.to_str().ok().map(str::to_owned)) {
            response.headers_mut().insert("x-amzn-query-error", refusal);
        }
        response
    }
}

/// How one client reaches one service.
#[derive(Clone, Debug)]
struct Line {
    aws: Arc<Aws>,
    service: Service,
    process: Option<Arc<Process>>,
}

impl HttpClient for Line {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Line {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let line = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").unwrap_or_default();
            let action = target.rsplit('.').next().unwrap_or_default().to_owned();
            let body = request.body().bytes().unwrap_or_default().to_vec();
            line.carry(&action, body).await
        })
    }
}

impl Line {
    async fn carry(&self, action: &str, body: Vec<u8>) -> Result<HttpResponse, ConnectorError> {
        let Some(process) = &self.process else { return Ok(self.serve(action, &body).await) };
        let fate = self.aws.fate(self.service, process);
        let latency = self.aws.weather().latency();
        tokio::time::sleep(latency).await;
        match fate {
            Fate::Fine => Ok(self.serve(action, &body).await),
            Fate::LoseRequest => Err(lost()),
            Fate::LoseResponse => {
                self.serve(action, &body).await;
                Err(lost())
            }
            Fate::Slow => {
                let response = self.serve(action, &body).await;
                tokio::time::sleep(LONGER_THAN_ANYBODY_WAITS).await;
                Ok(response)
            }
            Fate::Late => {
                let (line, action) = (self.clone(), action.to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    line.serve(&action, &body).await;
                });
                std::future::pending().await
            }
            Fate::Throttle | Fate::ServerError | Fate::Conflict => {
                Ok(refusal(self.service, action, fate))
            }
            Fate::CrashBefore => match process.die().await {},
            Fate::CrashAfter => {
                self.serve(action, &body).await;
                match process.die().await {}
            }
        }
    }

    async fn serve(&self, action: &str, body: &[u8]) -> HttpResponse {
        let by = self.process.as_ref().map_or(OPERATOR, |process| process.name.as_str());
        match self.service {
            Service::DynamoDb => self.aws.serve_dynamodb(by, action, body),
            Service::Sqs | Service::Outside => self.aws.serve_sqs(action, body).await,
        }
    }
}

fn lost() -> ConnectorError {
    ConnectorError::io("the connection broke".into())
}

fn refusal(service: Service, action: &str, fate: Fate) -> HttpResponse {
    let (status, code) = match (service, fate) {
        (Service::DynamoDb, Fate::Conflict) if action == "TransactWriteItems" => {
            let reasons = json!({
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "Message": "cancelled",
                "CancellationReasons": [{ "Code": "TransactionConflict" }, { "Code": "None" }]
            });
            return response(400, reasons.to_string());
        }
        (Service::DynamoDb, Fate::Conflict) if matches!(action, "PutItem" | "UpdateItem") => {
            (400, "TransactionConflictException")
        }
        (Service::DynamoDb, Fate::Throttle) => (400, "ProvisionedThroughputExceededException"),
        (Service::Sqs, Fate::Throttle) => (400, "RequestThrottled"),
        _ => (500, "InternalServerError"),
    };
    response(status, json!({ "__type": code, "message": "made up" }).to_string())
}

fn response(status: u16, body: String) -> HttpResponse {
    let status = StatusCode::try_from(status).expect("a status code");
    HttpResponse::new(status, body.into())
}

/// The items that a request may change: table and key.
fn touched(action: &str, body: &str) -> Vec<(String, Value)> {
    let request: Value = serde_json::from_str(body).expect("JSON");
    let item = |write: &Value| {
        let table = write["TableName"].as_str().expect("a table").to_owned();
        let key = match write.get("Key") {
            Some(key) => key.clone(),
            None => json!({ "pk": write["Item"]["pk"] }),
        };
        (table, key)
    };
    match action {
        "PutItem" | "UpdateItem" | "DeleteItem" => vec![item(&request)],
        "TransactWriteItems" => {
            let writes = request["TransactItems"].as_array().expect("a list");
            writes
                .iter()
                .flat_map(|write| write.as_object().expect("a write").values())
                .map(item)
                .collect()
        }
        _ => Vec::new(),
    }
}

fn perform(database: &Database, action: &str, body: &str) -> Result<String, DynoxideError> {
    macro_rules! call {
        ($operation:ident) => {
            serde_json::from_str(body)
                .map_err(|error| DynoxideError::SerializationException(error.to_string()))
                .and_then(|request| database.$operation(request))
                .map(|answer| serde_json::to_string(&answer).expect("JSON"))
        };
    }
    match action {
        "PutItem" => call!(put_item),
        "UpdateItem" => call!(update_item),
        "GetItem" => call!(get_item),
        "Query" => call!(query),
        "Scan" => call!(scan),
        "TransactWriteItems" => call!(transact_write_items),
        "CreateTable" => call!(create_table),
        "DescribeTable" => call!(describe_table),
        "UpdateTimeToLive" => call!(update_time_to_live),
        "DescribeTimeToLive" => call!(describe_time_to_live),
        other => panic!("the simulated DynamoDB has no {other}"),
    }
}

const LONGER_THAN_ANYBODY_WAITS: Duration = Duration::from_secs(300);
/// Past every attempt's timeout and within a lease, and past some of them.
const LATE: Duration = Duration::from_secs(11);
