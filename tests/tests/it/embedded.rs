//! `hookonce dev` as a process: what it says, where it listens, how it ends, and what it keeps
//! when it is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse as _,
    routing::post,
};
use domain::{delivery::Delivery, record::StateName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    dev::{Dev, Mark, eventually},
    programs::hookonce,
    world::{STRIPE_SECRET, stripe_delivery, stripe_key},
};
use tokio::{net::TcpListener, process::Command};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

// ---- a destination --------------------------------------------------------------------------

/// How the destination behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Answers 200.
    Up,
    /// Answers 503.
    Down,
    /// Takes the call and never answers.
    Hanging,
}

/// One call of the destination.
#[derive(Clone, Debug)]
struct Call {
    mood: Mood,
    event_id: String,
    idempotency_key: String,
    headers: HeaderMap,
    body: Bytes,
}

/// How it behaves now, and its calls so far.
type Shared = Arc<Mutex<(Mood, Vec<Call>)>>;

/// A customer's endpoint that remembers its calls.
struct Destination {
    url: String,
    shared: Shared,
}

impl Destination {
    async fn start(mood: Mood) -> Self {
        let shared = Arc::new(Mutex::new((mood, Vec::new())));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}/events", listener.local_addr().expect("bound"));
        let router = Router::new().route("/events", post(called)).with_state(Arc::clone(&shared));
        tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { url, shared }
    }

    fn turn(&self, mood: Mood) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).0 = mood;
    }

    fn calls(&self) -> Vec<Call> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Events that were taken, and how often each.
    fn taken(&self) -> BTreeMap<String, usize> {
        let mut taken = BTreeMap::new();
        for call in self.calls().into_iter().filter(|call| call.mood == Mood::Up) {
            *taken.entry(call.event_id).or_default() += 1;
        }
        taken
    }

    /// The idempotency keys that each event came under.
    fn keys(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut keys = BTreeMap::<_, BTreeSet<_>>::new();
        for call in self.calls() {
            keys.entry(call.event_id).or_default().insert(call.idempotency_key);
        }
        keys
    }

    fn config(&self, folder: &TempDir) -> String {
        let path = folder.path().join("hookonce.json");
        let config = json!({
            "clock_skew": "250ms",
            "sources": {
                "stripe": {
                    "provider": "stripe",
                    "secrets": [format!("literal:{STRIPE_SECRET}")],
                    "backoff": { "first": "1s", "longest": "1s" },
                    "attempts": 50,
                    "deliver": { "http": self.url, "timeout": "3s" }
                }
            }
        });
        fs::write(&path, config.to_string()).expect("written");
        path.display().to_string()
    }
}

async fn called(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let text = |name: &str| headers[name].to_str().expect("text").to_owned();
    let mood = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mood = shared.0;
        let (event_id, idempotency_key) = (text("hookonce-event-id"), text("idempotency-key"));
        let headers = headers.clone();
        shared.1.push(Call { mood, event_id, idempotency_key, headers, body });
        mood
    };
    match mood {
        Mood::Up => StatusCode::OK.into_response(),
        Mood::Down => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Mood::Hanging => std::future::pending().await,
    }
}

async fn deliver(dev: &Dev, delivery: &Delivery) -> u16 {
    runtime::aws::install_tls_provider();
    let url = format!("{}/webhooks/stripe", dev.url("receiver"));
    let mut request = reqwest::Client::new().post(url).body(delivery.body.clone());
    for (name, value) in delivery.headers.iter() {
        request = request.header(name, value);
    }
    request.send().await.expect("an answer").status().as_u16()
}

async fn state_of(dev: &Dev, id: &str) -> Option<StateName> {
    let item = dev.ledger().read(&stripe_key(id)).await.expect("a read")?;
    Some(domain::record::Record::from_item(item).expect("readable").state.name())
}

async fn until_ended(mark: &Mark) {
    eventually("all its processes ended", async || mark.processes().is_empty()).await;
}

// ---- what it says and where it listens ------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn it_says_in_one_line_where_it_serves_and_serves_this_machine_only() {
    let folder = folder();
    let dev = Dev::start(folder.path(), &[]).await;
    let said: BTreeSet<_> = dev.ready.as_object().expect("an object").keys().collect();
    let expected = ["dynamodb", "queue_url", "ready", "receiver", "sqs", "table"];
    assert_eq!(said, expected.map(ToOwned::to_owned).iter().collect());
    let queue_url = format!("{}/000000000000/hookonce-events", dev.url("sqs"));
    assert_eq!(dev.url("queue_url"), queue_url);
    assert_eq!(dev.ready["ready"], Value::Bool(true));
    for part in ["receiver", "dynamodb", "sqs"] {
        assert!(dev.url(part).starts_with("http://127.0.0.1:"), "{}", dev.ready);
    }
    let listens = listening(dev.pid());
    // Receiver, DynamoDB, SQS, and a Runtime API for each process of a function.
    assert!(listens.len() > 5, "{listens:?}");
    let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    assert!(listens.iter().all(|address| *address == loopback), "{listens:?}");
    // A person who starts it without a configuration is told what to sign with.
    assert!(dev.stderr().contains("whsec_hookonce_dev"), "{}", dev.stderr());
}

/// The addresses, as the kernel writes them, that a process listens at.
fn listening(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let sockets: BTreeSet<_> = descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(link.to_owned())
        })
        .collect();
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    let lines: Vec<_> = tables.into_iter().flatten().collect();
    lines
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let listens = fields[3] == "0A" && sockets.contains(fields[9]);
            listens.then(|| fields[1].split(':').next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_deliveries_of_an_event_reach_its_destination_once_and_unchanged() {
    let folder = folder();
    let destination = Destination::start(Mood::Up).await;
    let dev = Dev::start(folder.path(), &["--config", &destination.config(&folder)]).await;
    let delivery = stripe_delivery("evt_1");
    let answers = futures::join!(
        deliver(&dev, &delivery),
        deliver(&dev, &delivery),
        deliver(&dev, &delivery)
    );
    assert_eq!(answers, (200, 200, 200));
    eventually("the event is done", async || {
        state_of(&dev, "evt_1").await == Some(StateName::Done)
    })
    .await;
    let calls = destination.calls();
    let [call] = calls.as_slice() else { panic!("{} calls", calls.len()) };
    assert_eq!(call.body, delivery.body);
    assert_eq!(call.headers["hookonce-source"], "stripe");
    assert_eq!(call.headers["webhook-id"], "stripe#evt_1");
    assert_eq!(call.headers["hookonce-attempt"], "1");
    assert!(!call.headers.contains_key("stripe-signature"));
}

// ---- how it ends ----------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_asked_and_leaves_no_process_behind() {
    let folder = folder();
    let dev = Dev::start(folder.path(), &[]).await;
    let processes = dev.processes();
    assert!(processes.len() > 3, "{processes:?}");
    let (status, mark) = dev.terminate().await;
    assert_eq!(status.code(), Some(0));
    until_ended(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_said_and_leaves_no_process_behind() {
    let folder = folder();
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    for option in ["--port", "--dynamodb-port", "--sqs-port"] {
        let mark = Mark::new();
        let refused = refused(folder.path(), &[option, &port], &mark).await;
        assert!(refused.contains(&port) && refused.contains("in use"), "{refused}");
        until_ended(&mark).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_it_cannot_use_is_said_before_anything_starts() {
    let folder = folder();
    let bad = folder.path().join("bad.toml");
    for (text, said) in [
        ("[sources.shop]\nprovider = \"nobody\"\nsecrets = [\"env:X\"]\n", "sources.shop.provider"),
        ("clock_skew = 5", "line 1"),
        (
            "[sources.shop]\nprovider = \"stripe\"\nsecrets = [\"env:X\"]\n\
             deliver = { handler = \"refunds\" }\n",
            "no handler is named `refunds`",
        ),
    ] {
        fs::write(&bad, text).expect("written");
        let path = bad.display().to_string();
        let refused =
            refused(folder.path(), &["--port", "0", "--config", &path], &Mark::new()).await;
        assert!(refused.contains(said) && refused.contains("bad.toml"), "{refused}");
    }
    let absent = ["--port", "0", "--config", "nowhere.toml"];
    let refused = refused(folder.path(), &absent, &Mark::new()).await;
    assert!(refused.contains("nowhere.toml"), "{refused}");
}

/// What `dev` says when it does not start: with exit code 2, and nothing on standard output.
async fn refused(folder: &Path, arguments: &[&str], mark: &Mark) -> String {
    let mut command = Command::from(hookonce(folder));
    command.arg("dev").args(arguments).env(Mark::NAME, mark.as_str()).kill_on_drop(true);
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output()).await;
    let output = output.expect("ends by itself").expect("hookonce starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{said}");
    said
}

// ---- what it keeps --------------------------------------------------------------------------

/// Killed once while its destination is down, and once while that holds a call without an answer:
/// what was acknowledged arrives all the same, each event under its one key, and what was delivered
/// before is known as a duplicate after.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_being_killed_twice() {
    let folder = folder();
    let data = folder.path().join("data").display().to_string();
    let destination = Destination::start(Mood::Down).await;
    let config = destination.config(&folder);
    let start = async || Dev::start(folder.path(), &["--config", &config, "--data", &data]).await;

    let dev = start().await;
    let early = ["evt_1", "evt_2", "evt_3"];
    for id in early {
        assert_eq!(deliver(&dev, &stripe_delivery(id)).await, 200);
    }
    for id in early {
        eventually("it was refused and waits", async || {
            let item = dev.ledger().read(&stripe_key(id)).await.expect("a read").expect("a record");
            let record = domain::record::Record::from_item(item).expect("readable");
            record.attempt > 0 && record.state.name() == StateName::Received
        })
        .await;
    }
    until_ended(&dev.kill().await).await;

    destination.turn(Mood::Hanging);
    let dev = start().await;
    assert_eq!(deliver(&dev, &stripe_delivery("evt_4")).await, 200);
    assert_eq!(deliver(&dev, &stripe_delivery("evt_1")).await, 200);
    eventually("a call hangs for each", async || {
        let calls = destination.calls();
        let hang = calls.iter().filter(|call| call.mood == Mood::Hanging);
        hang.map(|call| call.event_id.clone()).collect::<BTreeSet<_>>().len() == 4
    })
    .await;
    until_ended(&dev.kill().await).await;
    assert!(destination.taken().is_empty());

    destination.turn(Mood::Up);
    let dev = start().await;
    eventually("each event arrived", async || destination.taken().len() == 4).await;
    for id in ["evt_1", "evt_2", "evt_3", "evt_4"] {
        eventually("each event is done", async || {
            state_of(&dev, id).await == Some(StateName::Done)
        })
        .await;
        assert_eq!(deliver(&dev, &stripe_delivery(id)).await, 200);
    }
    // One that is new goes the whole way after those duplicates: they would have arrived by then.
    assert_eq!(deliver(&dev, &stripe_delivery("evt_5")).await, 200);
    eventually("the last one arrived", async || destination.taken().contains_key("evt_5")).await;
    let once = |id: &str| (id.to_owned(), 1);
    let expected = ["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"].map(once);
    assert_eq!(destination.taken(), BTreeMap::from(expected));
    let keys = destination.keys();
    assert!(keys.values().all(|keys| keys.len() == 1), "{keys:?}");
    let distinct: BTreeSet<_> = keys.values().flatten().collect();
    assert_eq!(distinct.len(), 5, "{keys:?}");
}
