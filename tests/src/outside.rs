//! The services outside, seen as a bookkeeper does: every call is written down with its key, and
//! with what the journal said of its step at that moment.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use domain::{
    effects::{StepName, StepState},
    record::Record,
};
use dynamo::Ledger;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::world::stripe_key;

/// Running services. Each is called as the step is that calls it: `POST /receipt`.
#[derive(Debug)]
pub struct Outside {
    /// Where they listen.
    pub url: String,
    books: Arc<Books>,
    server: JoinHandle<()>,
}

struct Books {
    ledger: Ledger,
    calls: Mutex<Vec<Call>>,
    answers: Mutex<BTreeMap<(String, String), VecDeque<u16>>>,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// One call of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The step.
    pub step: String,
    /// The event it was made for.
    pub event: String,
    /// Its idempotency key.
    pub key: String,
    /// Whether the journal had the step as done when the call came.
    pub done_before: bool,
}

impl Outside {
    /// Starts them; they look into `ledger` at each call.
    pub async fn start(ledger: Ledger) -> Self {
        let (calls, answers, meanwhile) = Default::default();
        let books = Arc::new(Books { ledger, calls, answers, meanwhile });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().route("/{step}", post(serve)).with_state(Arc::clone(&books));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { url, books, server }
    }

    /// How the calls of a step for an event are answered: each by the next of these statuses, and
    /// once there is one left by that. Unless told, by 200.
    pub fn answer(&self, step: &str, event: &str, statuses: impl Into<VecDeque<u16>>) {
        lock(&self.books.answers).insert((step.to_owned(), event.to_owned()), statuses.into());
    }

    /// Has this happen within the next call, before it is answered.
    pub fn meanwhile(&self, happens: impl Future<Output = ()> + Send + 'static) {
        *lock(&self.books.meanwhile) = Some(Box::pin(happens));
    }

    /// What has not happened yet, as no call came.
    #[must_use]
    pub fn take_meanwhile(&self) -> Option<BoxFuture<'static, ()>> {
        lock(&self.books.meanwhile).take()
    }

    /// The calls for an event so far, in their order.
    #[must_use]
    pub fn calls_for(&self, event: &str) -> Vec<Call> {
        let calls = lock(&self.books.calls);
        calls.iter().filter(|call| call.event == event).cloned().collect()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Books {
    async fn is_done(&self, event: &str, step: &str) -> bool {
        let item = self.ledger.read(&stripe_key(event)).await.expect("a read");
        let record = Record::from_item(item.expect("a record")).expect("a readable record");
        let entry = record.steps.get(&StepName::new(step).expect("a step's name"));
        entry.is_some_and(|entry| matches!(entry.state, StepState::Done { .. }))
    }

    fn status(&self, step: &str, event: &str) -> u16 {
        let mut answers = lock(&self.answers);
        let answers = answers.get_mut(&(step.to_owned(), event.to_owned()));
        answers.map_or(200, |answers| {
            let next = answers.front().copied().expect("an answer");
            if answers.len() > 1 {
                answers.pop_front();
            }
            next
        })
    }
}

async fn serve(
    State(books): State<Arc<Books>>,
    Path(step): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    // The payments handler names the account; the tests' accounts are named after their events.
    let order: Value = serde_json::from_slice(&body).expect("JSON");
    let account = order["account"].as_str().map(str::to_owned);
    let event = header("hookonce-event-id").or(account).expect("an event");
    let key = header("idempotency-key").expect("an idempotency key");
    let done_before = books.is_done(&event, &step).await;
    let status = books.status(&step, &event);
    lock(&books.calls).push(Call { step, event, key, done_before });
    let meanwhile = lock(&books.meanwhile).take();
    if let Some(meanwhile) = meanwhile {
        meanwhile.await;
    }
    let status = StatusCode::from_u16(status).expect("a status code");
    (status, Json(json!({ "id": "made" }))).into_response()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
