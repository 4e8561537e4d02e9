//! Lambda for one machine: functions as processes, fed through the Lambda Runtime API.
//!
//! Each instance is one process with one listener. It takes one invocation at a time; if its
//! process ends or outlives the invocation's deadline, that invocation fails and a new process
//! takes the place, as on AWS.

use std::{
    io,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use runtime::clock::Clock;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot, watch},
    time::Instant,
};

use crate::turned;

/// How a function is run.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// Its name.
    pub name: &'static str,
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables beside those of the Runtime API.
    pub environment: Vec<(String, String)>,
    /// How many processes serve it at once.
    pub instances: usize,
    /// How long one invocation may take.
    pub timeout: Duration,
}

/// A running function.
#[derive(Debug)]
pub struct Function {
    spec: FunctionSpec,
    queue: mpsc::UnboundedSender<Invocation>,
    instances: Vec<Arc<Instance>>,
    next_kill: AtomicU64,
}

/// Why an invocation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function answered with an error.
    #[error("the function failed: {0}")]
    Function(String),
    /// Its process ended.
    #[error("the function's process ended")]
    Exited,
    /// It took too long, and its process was killed.
    #[error("the function did not finish within its timeout")]
    TimedOut,
    /// The stack is going down.
    #[error("the function is not running any more")]
    Gone,
}

struct Invocation {
    id: String,
    payload: Bytes,
    reply: oneshot::Sender<Result<Bytes, InvokeError>>,
}

struct Running {
    id: String,
    deadline: Instant,
    reply: oneshot::Sender<Result<Bytes, InvokeError>>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("function", &self.spec.name).finish_non_exhaustive()
    }
}

/// What one instance's listener and its process' keeper share.
struct Instance {
    spec: FunctionSpec,
    waiting: Arc<AsyncMutex<mpsc::UnboundedReceiver<Invocation>>>,
    running: Mutex<Option<Running>>,
    changed: Notify,
    kill: Notify,
    lines: mpsc::UnboundedSender<String>,
}

impl Function {
    /// Starts the processes of a function. Their output comes as `lines`; they end when `closing`
    /// says so.
    ///
    /// # Errors
    /// If a listener cannot be had, or the program not be started.
    pub async fn start(
        spec: FunctionSpec,
        lines: mpsc::UnboundedSender<String>,
        closing: &watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let (queue, waiting) = mpsc::unbounded_channel();
        let waiting = Arc::new(AsyncMutex::new(waiting));
        let mut instances = Vec::with_capacity(spec.instances);
        for _ in 0..spec.instances {
            let instance = Arc::new(Instance {
                spec: spec.clone(),
                waiting: Arc::clone(&waiting),
                running: Mutex::new(None),
                changed: Notify::new(),
                kill: Notify::new(),
                lines: lines.clone(),
            });
            Arc::clone(&instance).start(closing.clone()).await?;
            instances.push(instance);
        }
        Ok(Self { spec, queue, instances, next_kill: AtomicU64::new(0) })
    }

    /// Runs one invocation to its end.
    ///
    /// # Errors
    /// If the function failed, or was not there to finish.
    pub async fn invoke(&self, payload: impl Into<Bytes>) -> Result<Bytes, InvokeError> {
        let (reply, result) = oneshot::channel();
        let id = uuid::Uuid::new_v4().to_string();
        self.queue
            .send(Invocation { id, payload: payload.into(), reply })
            .map_err(|_| InvokeError::Gone)?;
        // A function that cannot start takes nothing from its queue; whoever waits hears so.
        match tokio::time::timeout(self.spec.timeout + START_PATIENCE, result).await {
            Ok(result) => result.unwrap_or(Err(InvokeError::Gone)),
            Err(_elapsed) => Err(InvokeError::TimedOut),
        }
    }

    /// Kills one of its processes, SIGKILL, each in turn. Another takes its place.
    pub fn kill_one(&self) {
        let turn = self.next_kill.fetch_add(1, Ordering::Relaxed);
        let index = usize::try_from(turn).unwrap_or(0) % self.instances.len();
        self.instances[index].kill.notify_one();
    }

    /// Kills a process that is in the middle of an invocation, SIGKILL. Whether there was one.
    pub fn kill_busy(&self) -> bool {
        let busy = self.instances.iter().find(|instance| instance.running().is_some());
        if let Some(instance) = busy {
            instance.kill.notify_one();
        }
        busy.is_some()
    }

    /// How long one invocation may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.spec.timeout
    }
}

impl Instance {
    async fn start(self: Arc<Self>, closing: watch::Receiver<bool>) -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?.to_string();
        let mut child = self.spawn(&address)?;
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(respond))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(fail))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .layer(DefaultBodyLimit::max(MAX_RESPONSE_BYTES))
            .with_state(Arc::clone(&self));
        let served = axum::serve(listener, router).with_graceful_shutdown(turned(closing.clone()));
        tokio::spawn(async move { served.await });
        tokio::spawn(async move {
            loop {
                let why = tokio::select! {
                    () = turned(closing.clone()) => {
                        let _ = child.kill().await;
                        self.finish(None, Err(InvokeError::Gone));
                        return;
                    }
                    _ = child.wait() => InvokeError::Exited,
                    () = self.kill.notified() => InvokeError::Exited,
                    () = self.overdue() => InvokeError::TimedOut,
                };
                let _ = child.kill().await;
                self.finish(None, Err(why));
                child = loop {
                    // A program that ends at once would otherwise be started without pause.
                    tokio::time::sleep(RESTART_PAUSE).await;
                    if let Ok(child) = self.spawn(&address) {
                        break child;
                    }
                };
            }
        });
        Ok(())
    }

    fn spawn(&self, address: &str) -> io::Result<Child> {
        let mut child = Command::new(&self.spec.program)
            .args(&self.spec.arguments)
            .env_remove("AWS_PROFILE")
            .env("AWS_LAMBDA_RUNTIME_API", address)
            .env("AWS_LAMBDA_FUNCTION_NAME", self.spec.name)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .envs(self.spec.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(forward(stdout, self.lines.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(forward(stderr, self.lines.clone()));
        }
        Ok(child)
    }

    /// Until the invocation at hand is past its deadline.
    async fn overdue(&self) {
        loop {
            let deadline = self.running().as_ref().map(|running| running.deadline);
            let changed = self.changed.notified();
            match deadline {
                None => changed.await,
                Some(deadline) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(deadline) => return,
                },
            }
        }
    }

    /// Ends the invocation at hand; with an id, only if it is that one.
    fn finish(&self, id: Option<&str>, result: Result<Bytes, InvokeError>) -> bool {
        let mut running = self.running();
        let matches = running.as_ref().is_some_and(|running| id.is_none_or(|id| id == running.id));
        let Some(ended) = (if matches { running.take() } else { None }) else { return false };
        drop(running);
        self.changed.notify_one();
        // Nobody may be waiting for it any more.
        let _ = ended.reply.send(result);
        true
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `GET …/next`: waits for an invocation. If the process is gone meanwhile, the wait is dropped
/// before anything was taken.
async fn next(State(instance): State<Arc<Instance>>) -> Response {
    let taken = instance.waiting.lock().await.recv().await;
    let Some(Invocation { id, payload, reply }) = taken else {
        // No more invocations: the process waits for its end, as a frozen one does.
        return std::future::pending().await;
    };
    let timeout = instance.spec.timeout;
    let deadline_ms = Clock::default().now().plus(timeout).millis();
    let arn = format!("arn:aws:lambda:us-east-1:000000000000:function:{}", instance.spec.name);
    let headers: HeaderMap = [
        ("lambda-runtime-aws-request-id", id.clone()),
        ("lambda-runtime-deadline-ms", deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", arn),
        ("content-type", "application/json".to_owned()),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    })
    .collect();
    let deadline = Instant::now() + timeout;
    *instance.running() = Some(Running { id, deadline, reply });
    instance.changed.notify_one();
    (headers, payload).into_response()
}

async fn respond(
    State(instance): State<Arc<Instance>>,
    Path(id): Path<String>,
    body: Bytes,
) -> StatusCode {
    accepted(instance.finish(Some(&id), Ok(body)))
}

async fn fail(
    State(instance): State<Arc<Instance>>,
    Path(id): Path<String>,
    body: Bytes,
) -> StatusCode {
    let error = InvokeError::Function(String::from_utf8_lossy(&body).into_owned());
    accepted(instance.finish(Some(&id), Err(error)))
}

async fn init_error() -> StatusCode {
    StatusCode::ACCEPTED
}

const fn accepted(known: bool) -> StatusCode {
    if known { StatusCode::ACCEPTED } else { StatusCode::BAD_REQUEST }
}

async fn forward(output: impl AsyncRead + Unpin, lines: mpsc::UnboundedSender<String>) {
    let mut output = BufReader::new(output).lines();
    while let Ok(Some(line)) = output.next_line().await {
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// Lambda's limit for a synchronous response.
const MAX_RESPONSE_BYTES: usize = 6 * 1024 * 1024;
/// How long an invocation may wait for a free process beside its own timeout.
const START_PATIENCE: Duration = Duration::from_secs(20);
const RESTART_PAUSE: Duration = Duration::from_millis(20);
