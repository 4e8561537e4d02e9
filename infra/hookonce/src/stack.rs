//! The embedded stack: everything that a deployment has, on one machine, for as long as it runs.

mod front;
mod poller;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use domain::{limits, record::Record, transition::open_shard};
use dynamo::{Ledger, LedgerError};
use dynoxide::Database;
use runtime::{clock::Clock, environment::names};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    lambda::{Function, FunctionSpec, InvokeError},
    queue::QueueServer,
    turned,
};

/// What to run.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The executable that has the functions in it.
    pub program: Functions,
    /// The configuration, as `HOOKONCE_CONFIG` takes it.
    pub config: String,
    /// The folder to keep the table in; in memory without.
    pub data: Option<PathBuf>,
    /// The clock of the functions and of the queue.
    pub clock: Clock,
    /// Port of the receiver; 0 is any.
    pub port: u16,
    /// Port of DynamoDB; 0 is any.
    pub dynamodb_port: u16,
    /// Port of SQS; 0 is any.
    pub sqs_port: u16,
    /// Receiver processes.
    pub receivers: usize,
    /// Worker processes.
    pub workers: usize,
    /// Timeout of the worker function.
    pub worker_timeout: Duration,
    /// How often the sweeper runs.
    pub sweep_every: Duration,
    /// Further environment variables of the functions.
    pub environment: Vec<(String, String)>,
}

/// Where the functions' executables are.
#[derive(Clone, Debug)]
pub enum Functions {
    /// In this `hookonce` executable.
    Hookonce(PathBuf),
    /// As `receiver`, `worker` and `sweeper` in this folder.
    Folder(PathBuf),
}

impl Functions {
    fn command(&self, function: &'static str) -> (PathBuf, Vec<String>) {
        match self {
            Self::Hookonce(path) => {
                (path.clone(), vec!["function".to_owned(), function.to_owned()])
            }
            Self::Folder(folder) => (folder.join(function), Vec::new()),
        }
    }
}

/// A running stack.
#[derive(Debug)]
pub struct Stack {
    /// Where the receiver listens.
    pub receiver_url: String,
    /// Where DynamoDB listens.
    pub dynamodb_url: String,
    /// Where SQS listens.
    pub sqs_url: String,
    /// The queue between receiver and worker.
    pub queue_url: String,
    /// The worker function.
    pub worker: Arc<Function>,
    /// The sweeper function.
    pub sweeper: Arc<Function>,
    /// The ledger, for looking at it.
    pub ledger: Ledger,
    closing: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// A stack that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A port is taken, or a program cannot be started.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// The database file.
    #[error("the database in {path} cannot be opened: {problem}", path = path.display())]
    Database {
        /// Its folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The table.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The queues.
    #[error("the queue {queue} cannot be created: {problem}")]
    Queue {
        /// Which.
        queue: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl Stack {
    /// Starts everything. What the functions write comes as `lines`.
    ///
    /// # Errors
    /// If a part cannot be started: says which, and why.
    pub async fn start(
        options: StackOptions,
        lines: mpsc::UnboundedSender<String>,
    ) -> Result<Self, StackError> {
        let (closing, closed) = watch::channel(false);
        let mut tasks = Vec::new();
        let dynamodb_url = serve_dynamodb(&options, &closed, &mut tasks).await?;
        let sqs_url = serve_sqs(&options, &closed, &mut tasks).await?;
        let ledger = Ledger::new(dynamodb_config(&dynamodb_url), TABLE.to_owned());
        dynamo::create_table(ledger.client(), TABLE).await?;
        create_accounts_table(ledger.client()).await?;
        let sqs = aws_sdk_sqs::Client::from_conf(sqs_config(&sqs_url).build());
        let queue_url = create_queues(&sqs, options.worker_timeout).await?;
        enqueue_open(&ledger, &sqs_url, &queue_url).await?;

        let spec = |name, instances, timeout| {
            let (program, arguments) = options.program.command(name);
            let environment = environment(&options, &dynamodb_url, &sqs_url, &queue_url);
            FunctionSpec { name, program, arguments, environment, instances, timeout }
        };
        let specs = [
            spec("receiver", options.receivers, limits::RECEIVER_TIMEOUT),
            spec("worker", options.workers, options.worker_timeout),
            spec("sweeper", 1, limits::SWEEPER_TIMEOUT),
        ];
        let mut functions = Vec::with_capacity(specs.len());
        for spec in specs {
            let what = format!("function {} ({})", spec.name, spec.program.display());
            let started = Function::start(spec, lines.clone(), &closed).await;
            functions.push(Arc::new(started.map_err(|error| StackError::Io { what, error })?));
        }
        let [receiver, worker, sweeper] = functions.try_into().map_err(|_| StackError::Io {
            what: "functions".to_owned(),
            error: io::ErrorKind::Other.into(),
        })?;

        let listener = listen("the receiver", options.port).await?;
        let receiver_url = url_of(&listener)?;
        tasks.push(tokio::spawn(front::serve(listener, receiver, closed.clone())));
        for _ in 0..options.workers {
            let poll = poller::poll(sqs.clone(), queue_url.clone(), Arc::clone(&worker));
            tasks.push(tokio::spawn(until_closed(closed.clone(), poll)));
        }
        let schedule = schedule(Arc::clone(&sweeper), options.sweep_every);
        tasks.push(tokio::spawn(until_closed(closed, schedule)));
        Ok(Self {
            receiver_url,
            dynamodb_url,
            sqs_url,
            queue_url,
            worker,
            sweeper,
            ledger,
            closing,
            tasks,
        })
    }

    /// One pass of the sweeper, now.
    ///
    /// # Errors
    /// If the pass failed.
    pub async fn sweep(&self) -> Result<(), InvokeError> {
        self.sweeper.invoke("{}").await.map(drop)
    }

    /// The record of an event, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn record(
        &self,
        key: &domain::event::EventKey,
    ) -> Result<Option<Record>, LedgerError> {
        let item = self.ledger.read(key).await?;
        Ok(item.map(Record::from_item).transpose()?)
    }

    /// How many records are neither closed nor parked, and how many are parked.
    ///
    /// # Errors
    /// If they cannot be counted.
    pub async fn backlog(&self) -> Result<(usize, usize), LedgerError> {
        let (mut open, mut parked) = (0, 0);
        for shard in 0..limits::SHARDS {
            let most = limits::MAX_COUNTED_PER_SHARD;
            let parked_shard = domain::transition::parked_shard(shard);
            open += self.ledger.backlog(&open_shard(shard), most).await?.entries.len();
            parked += self.ledger.backlog(&parked_shard, most).await?.entries.len();
        }
        Ok((open, parked))
    }

    /// Credits and sum of all accounts that the reference handler wrote.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn accounts(&self) -> Result<Accounts, LedgerError> {
        accounts(self.ledger.client()).await
    }

    /// Ends everything.
    pub async fn stop(self) {
        let _ = self.closing.send(true);
        for task in self.tasks {
            let _ = tokio::time::timeout(STOP_PATIENCE, task).await;
        }
    }
}

/// What the reference handler's local writes add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// How many credits.
    pub credits: u64,
    /// Their sum.
    pub balance: u64,
}

async fn serve_dynamodb(
    options: &StackOptions,
    closed: &watch::Receiver<bool>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<String, StackError> {
    let database = open_database(options.data.as_deref())?;
    let listener = listen("DynamoDB", options.dynamodb_port).await?;
    let url = url_of(&listener)?;
    // On a clock that is elsewhere, expiry by the database's own clock would delete at random.
    if options.clock.offset_ms() == 0 {
        let expiring = database.clone();
        let expire = async move {
            loop {
                tokio::time::sleep(TTL_INTERVAL).await;
                let database = expiring.clone();
                // Blocking, and allowed to fail: what is past its time is deleted a pass later.
                let _ = tokio::task::spawn_blocking(move || database.sweep_ttl()).await;
            }
        };
        tasks.push(tokio::spawn(until_closed(closed.clone(), expire)));
    }
    let shutdown = turned(closed.clone());
    tasks.push(tokio::spawn(async move {
        let _ = dynoxide::server::serve_with_shutdown(listener, database, shutdown).await;
    }));
    Ok(url)
}

fn open_database(data: Option<&Path>) -> Result<Database, StackError> {
    let Some(folder) = data else {
        return Database::memory().map_err(|error| StackError::Database {
            path: PathBuf::from("memory"),
            problem: error.to_string(),
        });
    };
    let problem = |problem: String| StackError::Database { path: folder.to_owned(), problem };
    std::fs::create_dir_all(folder).map_err(|error| problem(error.to_string()))?;
    let file = folder.join("dynamodb.sqlite");
    let file = file.to_str().ok_or_else(|| problem("the path is not UTF-8".to_owned()))?;
    Database::new(file).map_err(|error| problem(error.to_string()))
}

async fn serve_sqs(
    options: &StackOptions,
    closed: &watch::Receiver<bool>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<String, StackError> {
    let clock = options.clock;
    let server =
        QueueServer::new(Arc::new(move || u64::try_from(clock.now().millis()).unwrap_or_default()));
    let listener = listen("SQS", options.sqs_port).await?;
    let url = url_of(&listener)?;
    let shutdown = turned(closed.clone());
    tasks.push(tokio::spawn(async move {
        let _ = Arc::new(server).serve(listener, shutdown).await;
    }));
    Ok(url)
}

async fn create_queues(
    sqs: &aws_sdk_sqs::Client,
    worker_timeout: Duration,
) -> Result<String, StackError> {
    use aws_sdk_sqs::types::QueueAttributeName as Name;
    let failed = |queue, problem: String| StackError::Queue { queue, problem };
    let dead = sqs.create_queue().queue_name(DEAD_LETTER_QUEUE).send().await;
    let dead = dead.map_err(|error| failed(DEAD_LETTER_QUEUE, format!("{error:?}")))?;
    let arn = sqs
        .get_queue_attributes()
        .set_queue_url(dead.queue_url)
        .attribute_names(Name::QueueArn)
        .send()
        .await
        .map_err(|error| failed(DEAD_LETTER_QUEUE, format!("{error:?}")))?;
    let arn = arn.attributes.unwrap_or_default().remove(&Name::QueueArn).unwrap_or_default();
    let redrive = format!(
        r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{}}}"#,
        limits::MAX_RECEIVE_COUNT
    );
    let visibility = worker_timeout + limits::CLOCK_SKEW;
    let created = sqs
        .create_queue()
        .queue_name(QUEUE)
        .attributes(Name::VisibilityTimeout, visibility.as_secs().to_string())
        .attributes(Name::RedrivePolicy, redrive)
        .send()
        .await
        .map_err(|error| failed(QUEUE, format!("{error:?}")))?;
    created.queue_url.ok_or_else(|| failed(QUEUE, "no queue URL in the answer".to_owned()))
}

/// The queue lives in memory: after a restart, what the table still has open is enqueued again. A
/// message too many does no harm, the lease sees to that.
async fn enqueue_open(ledger: &Ledger, sqs_url: &str, queue_url: &str) -> Result<(), StackError> {
    let queue = sqs::Queue::new(sqs_config(sqs_url), queue_url.to_owned());
    for shard in 0..limits::SHARDS {
        let open = ledger.backlog(&open_shard(shard), limits::MAX_COUNTED_PER_SHARD).await?;
        for (key, _) in open.entries {
            let message = sqs::Message { key, event_type: None };
            queue
                .send(&message.into())
                .await
                .map_err(|error| StackError::Queue { queue: QUEUE, problem: error.to_string() })?;
        }
    }
    Ok(())
}

async fn create_accounts_table(client: &aws_sdk_dynamodb::Client) -> Result<(), LedgerError> {
    let refused = |error: String| LedgerError::Refused {
        call: "CreateTable",
        table: ACCOUNTS_TABLE.to_owned(),
        code: "not created".to_owned(),
        message: error,
    };
    let attribute = AttributeDefinition::builder()
        .attribute_name("account")
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(|error| refused(error.to_string()))?;
    let key = KeySchemaElement::builder()
        .attribute_name("account")
        .key_type(KeyType::Hash)
        .build()
        .map_err(|error| refused(error.to_string()))?;
    let created = client
        .create_table()
        .table_name(ACCOUNTS_TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute)
        .key_schema(key)
        .send()
        .await;
    match created {
        Ok(_) => Ok(()),
        Err(error)
            if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) =>
        {
            Ok(())
        }
        Err(error) => Err(refused(format!("{error:?}"))),
    }
}

async fn accounts(client: &aws_sdk_dynamodb::Client) -> Result<Accounts, LedgerError> {
    let scanned = client.scan().table_name(ACCOUNTS_TABLE).consistent_read(true).send().await;
    let scanned = scanned.map_err(|error| LedgerError::Refused {
        call: "Scan",
        table: ACCOUNTS_TABLE.to_owned(),
        code: "not read".to_owned(),
        message: format!("{error:?}"),
    })?;
    let number = |item: &std::collections::HashMap<_, aws_sdk_dynamodb::types::AttributeValue>,
                  name: &str| {
        item.get(name).and_then(|value| value.as_n().ok()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let items = scanned.items.unwrap_or_default();
    Ok(items.iter().fold(Accounts::default(), |sum, item| Accounts {
        credits: sum.credits + number(item, "credits"),
        balance: sum.balance + number(item, "balance"),
    }))
}

fn environment(
    options: &StackOptions,
    dynamodb_url: &str,
    sqs_url: &str,
    queue_url: &str,
) -> Vec<(String, String)> {
    let own = [
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_REGION", "us-east-1"),
        // Everything is on this machine, whatever proxy the system has.
        ("NO_PROXY", "127.0.0.1,localhost"),
        ("no_proxy", "127.0.0.1,localhost"),
        (names::ENDPOINT_DYNAMODB, dynamodb_url),
        (names::ENDPOINT_SQS, sqs_url),
        (names::TABLE, TABLE),
        (names::QUEUE_URL, queue_url),
        (names::CONFIG, &options.config),
        (names::LOCAL, "1"),
        (names::CLOCK_OFFSET_MS, &options.clock.offset_ms().to_string()),
        ("PAYMENTS_ACCOUNTS_TABLE", ACCOUNTS_TABLE),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.into_iter().chain(options.environment.iter().cloned()).collect()
}

async fn schedule(sweeper: Arc<Function>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // What a pass could not do the next one does.
        let _ = sweeper.invoke("{}").await;
    }
}

async fn until_closed(closed: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = turned(closed) => {}
        () = work => {}
    }
}

async fn listen(what: &str, port: u16) -> Result<TcpListener, StackError> {
    TcpListener::bind(("127.0.0.1", port))
        .await
        .map_err(|error| StackError::Io { what: format!("port {port} for {what}"), error })
}

fn url_of(listener: &TcpListener) -> Result<String, StackError> {
    let address = listener.local_addr();
    let address =
        address.map_err(|error| StackError::Io { what: "a listener's address".into(), error })?;
    Ok(format!("http://{address}"))
}

/// A DynamoDB client's configuration for an endpoint on this machine.
#[must_use]
pub fn dynamodb_config(url: &str) -> aws_sdk_dynamodb::config::Builder {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
}

/// An SQS client's configuration for an endpoint on this machine.
#[must_use]
pub fn sqs_config(url: &str) -> aws_sdk_sqs::config::Builder {
    use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
    aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
}

/// Name of the embedded ledger table.
pub const TABLE: &str = "hookonce-events";
const ACCOUNTS_TABLE: &str = "demo-accounts";
const QUEUE: &str = "hookonce-events";
const DEAD_LETTER_QUEUE: &str = "hookonce-events-dead";
const TTL_INTERVAL: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(3);
