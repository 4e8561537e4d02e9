//! `hookonce dev` as a process of its own, and how to look at its processes from outside.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dynamo::Ledger;
use hookonce::stack::dynamodb_config;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
};

use crate::programs::hookonce;

/// A running `hookonce dev`. Killed when dropped.
#[derive(Debug)]
pub struct Dev {
    /// The line it said when it served.
    pub ready: Value,
    child: Child,
    mark: Mark,
    stderr: Arc<Mutex<String>>,
}

impl Dev {
    /// Starts it in `folder` on free ports, with these further arguments, and waits until it says
    /// that it serves.
    pub async fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mark = Mark::new();
        let mut command = Command::from(hookonce(folder));
        let mut child = command
            .args(["dev", "--port", "0"])
            .args(arguments)
            .env(Mark::NAME, &mark.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("hookonce starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        tokio::spawn(gather(child.stderr.take().expect("piped"), Arc::clone(&stderr)));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
        let said = tokio::time::timeout(PATIENCE, stdout.next_line()).await;
        let line = said.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let ready = serde_json::from_str(&line);
        let ready = ready.unwrap_or_else(|_| panic!("said `{line}`, and {}", text(&stderr)));
        Self { ready, child, mark, stderr }
    }

    /// One of the addresses it serves at: `receiver`, `dynamodb`, `sqs`.
    #[must_use]
    pub fn url(&self, what: &str) -> &str {
        self.ready[what].as_str().expect("an address")
    }

    /// Its ledger, over the wire.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let table = self.ready["table"].as_str().expect("a table").to_owned();
        Ledger::new(dynamodb_config(self.url("dynamodb")), table)
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("running")
    }

    /// Its processes, the functions' included, even those it has left behind.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.mark.processes()
    }

    /// Asks it to end, as a terminal or a supervisor does.
    pub async fn terminate(mut self) -> (ExitStatus, Mark) {
        // There is no safe call for it in the standard library.
        let asked = std::process::Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.pid())])
            .status()
            .expect("a shell");
        assert!(asked.success());
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        (ended.expect("ends when asked").expect("waited for"), self.mark)
    }

    /// Ends it without a chance to do anything, SIGKILL.
    pub async fn kill(mut self) -> Mark {
        self.child.kill().await.expect("killed");
        self.mark
    }
}

/// Tells the processes of one test apart from all others: each inherits it in its environment.
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Mark {
    /// The environment variable.
    pub const NAME: &'static str = "HOOKONCE_TESTS_MARK";

    /// A mark that nobody else has.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The processes that carry it. An ended one that nobody has collected has no environment.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let marked = format!("{}={}", Self::NAME, self.0);
        let carries = |folder: &PathBuf| {
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes())
        };
        let entries = fs::read_dir("/proc").expect("a process table").flatten();
        entries
            .map(|entry| entry.path())
            .filter(carries)
            .filter_map(|folder| folder.file_name()?.to_str()?.parse().ok())
            .collect()
    }
}

/// Waits until `done`; gives up, and says so, after a patience that only a fault outlasts.
pub async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

async fn gather(from: impl AsyncRead + Unpin, into: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&line);
        text.push('\n');
    }
}

fn text(shared: &Mutex<String>) -> String {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

const PATIENCE: Duration = Duration::from_secs(60);
