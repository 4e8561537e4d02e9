//! A proxy between the SDK and an emulator that breaks calls on order: before they arrive, after
//! they took hold, or on the way.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use tokio::{net::TcpListener, task::JoinHandle};

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It goes through.
    None,
    /// It takes hold, and its answer is lost: the connection breaks.
    LoseResponse,
    /// It never arrives: the connection breaks.
    LoseRequest,
    /// It is refused with this status and error code, as DynamoDB and SQS write it.
    Refuse(u16, &'static str),
    /// It is refused with this status and body.
    RefuseWith(u16, String),
    /// It takes hold, and its answer comes only after this.
    Delay(Duration),
}

/// Decides what happens to a call, by its action (`PutItem`) and its number, from 0.
pub type Plan = Box<dyn FnMut(&str, usize) -> Fault + Send>;

/// A running proxy.
#[derive(Debug)]
pub struct FaultProxy {
    /// Where it listens.
    pub url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    upstream: String,
    client: reqwest::Client,
    plan: Mutex<Plan>,
    calls: Mutex<Vec<String>>,
    bodies: Mutex<Vec<(String, Bytes)>>,
    /// What an SDK calls its calls: its repeats of one have the name of the first.
    operations: Mutex<BTreeSet<(String, String)>>,
    /// Calls whose body holds this meet this, whatever the plan says.
    spoilt: Mutex<Option<(String, Fault)>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// A proxy to `upstream` that follows `plan`.
    pub async fn start(
        upstream: &str,
        plan: impl FnMut(&str, usize) -> Fault + Send + 'static,
    ) -> Self {
        runtime::aws::install_tls_provider();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            client: reqwest::Client::new(),
            plan: Mutex::new(Box::new(plan)),
            calls: Mutex::default(),
            bodies: Mutex::default(),
            operations: Mutex::default(),
            spoilt: Mutex::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { url, shared, server }
    }

    /// The calls so far, by action, in their order.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many calls of one action there were so far, an SDK's repeats of one not counted.
    #[must_use]
    pub fn operations(&self, action: &str) -> usize {
        let operations = self.shared.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter().filter(|(called, _)| called == action).count()
    }

    /// The bodies of the calls of one action so far, in their order.
    #[must_use]
    pub fn bodies(&self, action: &str) -> Vec<serde_json::Value> {
        let bodies = self.shared.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = bodies.iter().filter(|(called, _)| called == action);
        wanted.map(|(_, body)| serde_json::from_slice(body).expect("JSON")).collect()
    }

    /// Follows another plan from now on; the numbers go on.
    pub fn follow(&self, plan: impl FnMut(&str, usize) -> Fault + Send + 'static) {
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(plan);
    }

    /// Has each call whose body holds `text` meet `fault` from now on, and only those.
    pub fn spoil(&self, text: &str, fault: Fault) {
        let mut spoilt = self.shared.spoilt.lock().unwrap_or_else(PoisonError::into_inner);
        *spoilt = Some((text.to_owned(), fault));
    }
}

impl Shared {
    fn spoils(&self, body: &[u8]) -> Option<Fault> {
        let spoilt = self.spoilt.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, fault) = spoilt.as_ref()?;
        let holds = body.windows(text.len()).any(|window| window == text.as_bytes());
        holds.then(|| fault.clone())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A plan that breaks call number `nth`, from 0, of one action, and lets all others through.
pub fn nth_call(
    action: &'static str,
    nth: usize,
    fault: Fault,
) -> impl FnMut(&str, usize) -> Fault + Send + 'static {
    let mut seen = 0;
    move |called, _| {
        if called != action {
            return Fault::None;
        }
        seen += 1;
        if seen == nth + 1 { fault.clone() } else { Fault::None }
    }
}

/// A plan that breaks every call of one action, and lets all others through.
pub fn every_call(
    action: &'static str,
    fault: Fault,
) -> impl FnMut(&str, usize) -> Fault + Send + 'static {
    move |called, _| if called == action { fault.clone() } else { Fault::None }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let action = action_of(&parts.headers).unwrap_or("unknown").to_owned();
    let fault = {
        let mut calls = shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let number = calls.len();
        calls.push(action.clone());
        (shared.plan.lock().unwrap_or_else(PoisonError::into_inner))(&action, number)
    };
    if let Some(name) = parts.headers.get("amz-sdk-invocation-id") {
        let operation = (action.clone(), String::from_utf8_lossy(name.as_bytes()).into_owned());
        shared.operations.lock().unwrap_or_else(PoisonError::into_inner).insert(operation);
    }
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else { return broken() };
    let fault = shared.spoils(&body).unwrap_or(fault);
    let seen = (action, body.clone());
    shared.bodies.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    meet(fault, forward(&shared.client, &shared.upstream, &parts.headers, body)).await
}

/// What a call that meets `fault` is answered; `forward` lets it take hold.
pub(crate) async fn meet(fault: Fault, forward: impl Future<Output = Response>) -> Response {
    match fault {
        Fault::None => forward.await,
        Fault::LoseResponse => {
            drop(forward.await);
            broken()
        }
        Fault::LoseRequest => broken(),
        Fault::Refuse(status, code) => refusal(status, code),
        Fault::RefuseWith(status, body) => refusal_with(status, body),
        Fault::Delay(delay) => {
            let response = forward.await;
            tokio::time::sleep(delay).await;
            response
        }
    }
}

/// What a call to AWS is called: `PutItem`.
pub(crate) fn action_of(headers: &HeaderMap) -> Option<&str> {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    target.and_then(|target| target.rsplit('.').next())
}

/// Hands a call on to `upstream`, and its answer back.
pub(crate) async fn forward(
    client: &reqwest::Client,
    upstream: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let mut headers = headers.clone();
    headers.remove("host");
    headers.remove("content-length");
    let sent = client.post(upstream).headers(headers).body(body).send().await;
    let Ok(answer) = sent else { return broken() };
    let (status, headers) = (answer.status(), answer.headers().clone());
    let Ok(body) = answer.bytes().await else { return broken() };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    for name in ["content-type", "x-amz-crc32", "x-amzn-requestid", "x-amzn-query-error"] {
        if let Some(value) = headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// A response whose body breaks off before it begins: the client sees the connection end.
pub(crate) fn broken() -> Response {
    let breaks =
        futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("connection lost")) });
    Response::new(Body::from_stream(breaks))
}

fn refusal(status: u16, code: &str) -> Response {
    let body =
        format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"made up"}}"#);
    refusal_with(status, body)
}

fn refusal_with(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).expect("a status code");
    (status, [("content-type", "application/x-amz-json-1.0")], body).into_response()
}
