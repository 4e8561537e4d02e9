//! The wire between one process and all that it calls, DynamoDB, SQS and the services outside. Its
//! calls are numbered over all three, and at one of them something happens on order: the process is
//! killed, an answer is lost, a refusal comes.
//!
//! Calls that run at the same time come in any order, so a call is known by its name and by which
//! one of that name it is. All attempts that the SDK makes of a call are that call.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, request::Parts},
    response::Response,
};
use hookonce::lambda::Function;
use serde_json::Value;
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};

use crate::proxy::{Fault, action_of, broken, forward, meet};

/// What happens at a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The process is killed, SIGKILL; the call never arrives.
    KillBefore,
    /// The call takes hold, and the process is killed before it hears so.
    KillAfter,
    /// The process is killed while the call is under way; it arrives when [`Wire::let_arrive`] says.
    KillDuring,
    /// Its first attempt meets this.
    Once(Fault),
    /// Every attempt of it meets this.
    Always(Fault),
}

/// A strike, and the call that it is for.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The call's name: `PutItem`, `Query open#3`, `POST /receipt`.
    pub call: String,
    /// Which of that name, from 0.
    pub nth: usize,
    /// What happens at it.
    pub strike: Strike,
}

/// What went over the wire.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The calls by name, each once however often it was tried, in their order.
    pub calls: Vec<String>,
    /// How many attempts were struck.
    pub struck: usize,
}

/// A running wire.
#[derive(Debug)]
pub struct Wire {
    /// Where DynamoDB listens, for the process.
    pub dynamodb_url: String,
    /// Where SQS does.
    pub sqs_url: String,
    /// Where the services outside do.
    pub outside_url: String,
    shared: Arc<Shared>,
    servers: Vec<JoinHandle<()>>,
}

struct Shared {
    client: reqwest::Client,
    caller: OnceLock<Arc<Function>>,
    log: Mutex<Log>,
    /// Lets a call that is under way arrive, and says that it has.
    arrive: Notify,
    arrived: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("log", &self.log).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Log {
    calls: Vec<Call>,
    aim: Option<Aim>,
    struck: usize,
}

#[derive(Debug)]
struct Call {
    name: String,
    /// The SDK's own for all attempts of a call; others make one attempt.
    id: Option<String>,
}

impl Wire {
    /// A wire to these.
    pub async fn start(dynamodb: &str, sqs: &str, outside: &str) -> Self {
        runtime::aws::install_tls_provider();
        let shared = Arc::new(Shared {
            client: reqwest::Client::new(),
            caller: OnceLock::new(),
            log: Mutex::default(),
            arrive: Notify::new(),
            arrived: Notify::new(),
        });
        let mut servers = Vec::new();
        let mut urls = Vec::new();
        for upstream in [dynamodb, sqs, outside] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
            urls.push(format!("http://{}", listener.local_addr().expect("bound")));
            let state = (Arc::clone(&shared), upstream.to_owned());
            let router = Router::new().fallback(pass).with_state(state);
            servers.push(tokio::spawn(async move {
                axum::serve(listener, router).await.expect("serves");
            }));
        }
        let [dynamodb_url, sqs_url, outside_url] = urls.try_into().expect("three");
        Self { dynamodb_url, sqs_url, outside_url, shared, servers }
    }

    /// Says whose wire it is, and so whom a strike kills.
    pub fn belongs_to(&self, caller: &Arc<Function>) {
        self.shared.caller.set(Arc::clone(caller)).expect("one process has it");
    }

    /// From now on: forgets what was seen, and strikes once as told.
    pub fn aim(&self, aim: Option<Aim>) {
        *self.shared.log() = Log { aim, ..Log::default() };
    }

    /// How many attempts were struck so far.
    #[must_use]
    pub fn struck(&self) -> usize {
        self.shared.log().struck
    }

    /// Lets the call arrive that was under way when its process was killed.
    pub async fn let_arrive(&self) {
        self.shared.arrive.notify_one();
        self.shared.arrived.notified().await;
    }

    /// What was seen since; nothing is struck any more.
    pub fn disarm(&self) -> Seen {
        let log = std::mem::take(&mut *self.shared.log());
        Seen { calls: log.calls.into_iter().map(|call| call.name).collect(), struck: log.struck }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.servers.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self) -> &Function {
        self.caller.get().expect("the wire belongs to a process")
    }

    /// Kills the caller. It hears no answer: its connection ends with it.
    async fn kill(&self) -> Response {
        self.caller().kill_one();
        std::future::pending().await
    }
}

impl Log {
    /// Writes an attempt down; the strike, if it is to meet one.
    fn note(&mut self, name: String, id: Option<String>) -> Option<Strike> {
        let known = self.calls.iter().position(|call| id.is_some() && call.id == id);
        let call = known.unwrap_or(self.calls.len());
        if known.is_none() {
            self.calls.push(Call { name, id });
        }
        let aim = self.aim.as_ref()?;
        let mut namesakes = (0..self.calls.len()).filter(|i| self.calls[*i].name == aim.call);
        let struck = namesakes.nth(aim.nth) == Some(call)
            && (known.is_none() || matches!(aim.strike, Strike::Always(_)));
        self.struck += usize::from(struck);
        struck.then(|| aim.strike.clone())
    }
}

async fn pass(
    State((shared, upstream)): State<(Arc<Shared>, String)>,
    request: Request,
) -> Response {
    // On its own: what has arrived takes hold, whether or not the caller lives to hear so.
    tokio::spawn(carry(shared, upstream, request)).await.expect("no panic on the wire")
}

async fn carry(shared: Arc<Shared>, upstream: String, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else { return broken() };
    let strike = shared.log().note(name_of(&parts, &body), invocation_of(&parts.headers));
    let url = format!("{upstream}{}", parts.uri.path());
    let forward = forward(&shared.client, &url, &parts.headers, body);
    match strike {
        None => forward.await,
        Some(Strike::KillBefore) => shared.kill().await,
        Some(Strike::KillAfter) => {
            drop(forward.await);
            shared.kill().await
        }
        Some(Strike::KillDuring) => {
            shared.caller().kill_one();
            shared.arrive.notified().await;
            let answer = forward.await;
            shared.arrived.notify_one();
            answer
        }
        Some(Strike::Once(fault) | Strike::Always(fault)) => meet(fault, forward).await,
    }
}

/// AWS's word for the call, with the partition that a query reads; of other calls the path.
fn name_of(parts: &Parts, body: &Bytes) -> String {
    match action_of(&parts.headers) {
        Some("Query") => {
            let query: Value = serde_json::from_slice(body).expect("JSON");
            let partition = query["ExpressionAttributeValues"][":partition"]["S"].as_str();
            format!("Query {}", partition.unwrap_or("unknown"))
        }
        Some(action) => action.to_owned(),
        None => format!("{} {}", parts.method, parts.uri.path()),
    }
}

fn invocation_of(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("amz-sdk-invocation-id")?;
    id.to_str().ok().map(str::to_owned)
}
