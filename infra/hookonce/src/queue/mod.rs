//! An SQS endpoint in the process: the AWS SDK's JSON protocol over the queues of [`state`].
//!
//! For running the whole system on one machine, and for tests. Queues live in memory and end with
//! the process. Requests are not authenticated, so the listener belongs on the loopback interface.
//!
//! The shell is thin: it reads the clock, holds the lock for one step of the state machine, and
//! waits. A long poll waits for its queue's bell, for the moment a hidden message becomes visible,
//! for its own end or for the shutdown, whichever is first, and then looks again. Because looking
//! is cheap and every change rings, a bell may ring once too often but never once too seldom.

mod attributes;
mod error;
mod limits;
mod message;
mod state;
mod store;
mod wire;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use self::error::QueueError;
use self::state::{Incoming, Queues};
use self::wire::{Call, Context, Operation, Receive};

/// The clock: milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The queues and the clock they live by.
pub struct QueueServer {
    clock: Clock,
    shared: Mutex<Shared>,
}

struct Shared {
    queues: Queues,
    /// One for each queue somebody has waited on.
    bells: HashMap<String, Arc<Notify>>,
}

/// What one listener's requests share.
#[derive(Clone)]
struct Endpoint {
    server: Arc<QueueServer>,
    base_url: Arc<str>,
    closing: watch::Receiver<bool>,
}

/// What one look at a queue gave.
enum Look {
    Found(Vec<Incoming>),
    Empty {
        /// Until the next hidden message becomes visible.
        visible_in: Option<Duration>,
    },
}

impl QueueServer {
    /// A server without queues. The clock dates messages and decides what is visible; how long a
    /// poll waits is measured on tokio's.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
        Self::seeded(clock, seed)
    }

    /// As [`QueueServer::new`], with ids that follow from `seed`.
    #[must_use]
    pub fn seeded(clock: Clock, seed: u64) -> Self {
        let shared = Shared { queues: Queues::new(seed), bells: HashMap::new() };
        Self { clock, shared: Mutex::new(shared) }
    }

    /// Serves until `shutdown` ends; polls that still wait then are answered empty.
    ///
    /// Queue URLs read `http://127.0.0.1:{port}/000000000000/{name}`.
    ///
    /// # Errors
    ///
    /// When the listener has no address or fails.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let port = listener.local_addr()?.port();
        let (close, closing) = watch::channel(false);
        let base_url = format!("http://127.0.0.1:{port}").into();
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::max(limits::MAX_REQUEST_BYTES))
            .with_state(Endpoint { server: self, base_url, closing });
        // Answers are small and awaited; without this some would sit out a delayed acknowledgement.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router)
            .with_graceful_shutdown(async move {
                shutdown.await;
                close.send_replace(true);
            })
            .await
    }

    /// Answers one request without a listener, for a simulation.
    pub async fn answer(self: Arc<Self>, headers: HeaderMap, body: Bytes) -> Response {
        let (_open, closing) = watch::channel(false);
        let endpoint = Endpoint { server: self, base_url: UNSERVED.into(), closing };
        answer(State(endpoint), Method::POST, headers, Ok(body)).await
    }

    /// Lets every waiting poll look again. For callers whose clock jumps: a poll sleeps until the
    /// moment it computed when it last looked.
    pub fn clock_moved(&self) {
        self.lock().bells.values().for_each(|bell| bell.notify_waiters());
    }

    fn perform(&self, operation: Box<dyn Operation>, base_url: &str) -> Result<String, QueueError> {
        let mut shared = self.lock();
        let context = Context { now_ms: (self.clock)(), base_url };
        let reply = operation.perform(&mut shared.queues, &context)?;
        if let Some(queue) = reply.changed {
            shared.ring(&queue);
        }
        Ok(reply.body)
    }

    fn look(&self, receive: &Receive) -> Result<Look, QueueError> {
        let mut shared = self.lock();
        let now_ms = (self.clock)();
        let received = shared.queues.receive(&receive.queue, &receive.ask, now_ms)?;
        if let Some(target) = received.redriven_to {
            shared.ring(&target);
        }
        if !received.messages.is_empty() {
            // No bell: whatever made these visible has woken the other polls as well, and their
            // next look sees when these come back.
            return Ok(Look::Found(received.messages));
        }
        let next_ms = shared.queues.next_visible_ms(&receive.queue);
        let visible_in =
            next_ms.map(|next_ms| Duration::from_millis(next_ms - now_ms.min(next_ms)));
        Ok(Look::Empty { visible_in })
    }

    /// How long this receive may wait, and the bell to wait for.
    fn patience(&self, receive: &Receive) -> Result<(Duration, Arc<Notify>), QueueError> {
        let mut shared = self.lock();
        let wait_s = shared.queues.wait_s(&receive.queue, &receive.ask)?;
        let bell = shared.bells.entry(receive.queue.clone()).or_default();
        Ok((Duration::from_secs(wait_s), Arc::clone(bell)))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic elsewhere in a request must not take the endpoint down with it.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn ring(&mut self, queue: &str) {
        let Some(bell) = self.bells.get(queue) else { return };
        bell.notify_waiters();
        // Only whoever still waits on a deleted queue keeps its bell, to be told it is gone.
        if self.queues.check_exists(queue).is_err() {
            self.bells.remove(queue);
        }
    }
}

impl Endpoint {
    async fn handle(&self, headers: &HeaderMap, body: &[u8]) -> Result<String, QueueError> {
        let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
        match wire::decode(target.unwrap_or_default(), body)? {
            Call::Direct(operation) => self.server.perform(operation, &self.base_url),
            Call::Receive(receive) => self.receive(&receive).await,
        }
    }

    async fn receive(&self, receive: &Receive) -> Result<String, QueueError> {
        let (wait, bell) = self.server.patience(receive)?;
        let end = Instant::now() + wait;
        let mut closing = self.closing.clone();
        loop {
            // Listen before looking: a message sent in between rings a bell that is heard.
            let mut rung = std::pin::pin!(bell.notified());
            rung.as_mut().enable();
            let visible_in = match self.server.look(receive)? {
                Look::Found(messages) => return Ok(receive.answer(&messages)),
                Look::Empty { visible_in } => visible_in,
            };
            if Instant::now() >= end {
                return Ok(receive.answer(&[]));
            }
            let wake =
                visible_in.map_or(end, |pause| end.min(Instant::now() + pause.max(MIN_PAUSE)));
            tokio::select! {
                () = rung => {}
                () = sleep_until(wake) => {}
                () = closed(&mut closing) => return Ok(receive.answer(&[])),
            }
        }
    }
}

/// Every method and path leads here; the target header alone says what is wanted.
async fn answer(
    State(endpoint): State<Endpoint>,
    method: Method,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let outcome = match body {
        _ if method != Method::POST => {
            Err(QueueError::UnknownAction { action: format!("{method} without a target") })
        }
        Ok(body) => endpoint.handle(&headers, &body).await,
        Err(_) => Err(QueueError::RequestTooLong),
    };
    let common = [
        ("content-type", "application/x-amz-json-1.0".to_owned()),
        ("x-amzn-requestid", uuid::Uuid::new_v4().to_string()),
    ];
    match outcome {
        Ok(body) => (StatusCode::OK, common, body).into_response(),
        Err(error) => {
            let code = [("x-amzn-query-error", format!("{};Sender", error.codes().query))];
            (StatusCode::BAD_REQUEST, common, code, wire::refusal(&error)).into_response()
        }
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped, which closes it as well.
    let _ = closing.wait_for(|closed| *closed).await;
}

/// What queue URLs begin with where nothing is listened on.
const UNSERVED: &str = "http://sqs.invalid";
/// With a clock that stands still a poll would otherwise wake as fast as timers allow.
const MIN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::http::HeaderValue;

    use super::*;

    struct Fixture {
        endpoint: Endpoint,
        now_ms: Arc<AtomicU64>,
        /// Dropped, it would close every poll.
        _open: watch::Sender<bool>,
    }

    impl Fixture {
        fn new() -> Self {
            let now_ms = Arc::new(AtomicU64::new(1_700_000_000_000));
            let clock = Arc::clone(&now_ms);
            let server = QueueServer::new(Arc::new(move || clock.load(Ordering::SeqCst)));
            let (open, closing) = watch::channel(false);
            let base_url = "http://127.0.0.1:1".into();
            let endpoint = Endpoint { server: Arc::new(server), base_url, closing };
            Self { endpoint, now_ms, _open: open }
        }

        async fn post(&self, target: &'static str, body: &str) -> (String, String) {
            let headers =
                HeaderMap::from_iter([("x-amz-target".parse(), target)].into_iter().filter_map(
                    |(name, value)| Some((name.ok()?, HeaderValue::from_static(value))),
                ));
            let body = Ok(Bytes::from(body.to_owned()));
            read(answer(State(self.endpoint.clone()), Method::POST, headers, body).await).await
        }

        async fn create(&self, name: &str) {
            let body = format!(r#"{{"QueueName":"{name}"}}"#);
            let (error, answer) = self.post("AmazonSQS.CreateQueue", &body).await;
            assert_eq!(error, "", "{answer}");
        }
    }

    /// The error header, empty on success, and the body.
    async fn read(response: Response) -> (String, String) {
        let refused = response.status() == StatusCode::BAD_REQUEST;
        let header = response.headers().get("x-amzn-query-error");
        let error = header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        assert_eq!(refused, !error.is_empty());
        let body = axum::body::to_bytes(response.into_body(), limits::MAX_REQUEST_BYTES).await;
        let body = String::from_utf8(body.expect("a body").to_vec());
        (error, body.expect("text"))
    }

    #[tokio::test]
    async fn refusal_carries_both_vocabularies() {
        let fixture = Fixture::new();
        let body = r#"{"QueueUrl":"http://host/000000000000/none","MessageBody":"x"}"#;
        let (error, body) = fixture.post("AmazonSQS.SendMessage", body).await;
        assert_eq!(error, "AWS.SimpleQueueService.NonExistentQueue;Sender");
        assert_eq!(
            body,
            r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}"#
        );
    }

    #[tokio::test]
    async fn what_is_no_request_gets_a_clear_refusal() {
        let fixture = Fixture::new();
        fixture.create("q").await;
        for (target, body, expected) in [
            ("", "{}", "InvalidAction"),
            ("AmazonSQS", "{}", "InvalidAction"),
            ("AmazonSQS.Unheard", "{}", "InvalidAction"),
            ("DynamoDB_20120810.PutItem", "{}", "InvalidAction"),
            ("AmazonSQS.SendMessage", "", "MissingParameter"),
            ("AmazonSQS.SendMessage", "{", "MalformedInput"),
            ("AmazonSQS.SendMessage", "[]", "MalformedInput"),
            ("AmazonSQS.SendMessage", r#"{"QueueUrl":7}"#, "MalformedInput"),
            ("AmazonSQS.SendMessage", r#"{"QueueUrl":"q"}"#, "MissingParameter"),
            ("AmazonSQS.ReceiveMessage", r#"{"WaitTimeSeconds":"1"}"#, "MalformedInput"),
            ("AmazonSQS.DeleteMessage", r#"{"QueueUrl":"q"}"#, "MissingParameter"),
            (
                "AmazonSQS.SendMessage",
                r#"{"QueueUrl":"q","MessageBody":"x","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"?"}}}"#,
                "InvalidParameterValue",
            ),
        ] {
            let (error, answer) = fixture.post(target, body).await;
            assert_eq!(error, format!("{expected};Sender"), "{target} {body}: {answer}");
        }
    }

    #[tokio::test]
    async fn other_methods_are_refused() {
        let state = State(Fixture::new().endpoint);
        let response = answer(state, Method::GET, HeaderMap::new(), Ok(Bytes::new())).await;
        assert_eq!(read(response).await.0, "InvalidAction;Sender");
    }

    #[tokio::test]
    async fn waiting_poll_follows_a_clock_that_jumps() {
        let fixture = Fixture::new();
        fixture.create("q").await;
        let delayed = r#"{"QueueUrl":"q","MessageBody":"later","DelaySeconds":900}"#;
        assert_eq!(fixture.post("AmazonSQS.SendMessage", delayed).await.0, "");
        let poll =
            fixture.post("AmazonSQS.ReceiveMessage", r#"{"QueueUrl":"q","WaitTimeSeconds":20}"#);
        let jump = async {
            // The poll runs first and is waiting by now.
            tokio::task::yield_now().await;
            fixture.now_ms.fetch_add(900_000, Ordering::SeqCst);
            fixture.endpoint.server.clock_moved();
        };
        let polled = async { tokio::join!(poll, jump).0 };
        let (_, answer) =
            tokio::time::timeout(Duration::from_secs(5), polled).await.expect("awake");
        assert!(answer.contains("later"), "{answer}");
    }
}
