//! A scenario, and its run from the first delivery to the last expiry.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use domain::{
    event::EventKey,
    limits,
    record::Record,
    time::Timestamp,
    transition::{Operator, discard, replay},
};
use dynamo::Returning;
use receiver::Receiver;
use runtime::{aws::Patience, clock::Clock, secrets::SecretStore};
use serde_json::{Value, json};
use sweeper::Sweeper;
use tokio::{task::JoinSet, time::sleep};
use worker::{Attempts, Handlers, handlers::Handler};

use super::{
    aws::Aws,
    oracle::is_open,
    outside::{Kind, Outside, Work},
    weather::{Fate, Partition, Process, Weather},
};
use crate::{
    play::stripe_policy,
    world::{STRIPE_SECRET, deliver, parse, stripe_delivery_of, stripe_key},
};

/// What happens, chosen beforehand: everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The events.
    pub events: Vec<EventPlan>,
    /// After so many further calls, this fault.
    pub faults: Vec<(u16, Fate)>,
    /// Services that are cut off for a while.
    pub partitions: Vec<Partition>,
    /// How far each process' clock is off, ms.
    pub skews: [i16; PROCESSES],
    /// What an operator does, and when after the begin.
    pub operator: Vec<(Duration, OperatorAct)>,
    /// How long after its time an expired record is deleted.
    pub ttl_lag: Duration,
    /// Latencies, jitter and the queue's whims follow from it.
    pub seed: u64,
}

/// One event and its deliveries.
#[derive(Clone, Debug)]
pub struct EventPlan {
    /// How it is handled.
    pub kind: Kind,
    /// When it occurs and is first delivered, after the begin.
    pub at: Duration,
    /// Further deliveries, whatever became of the first, after it.
    pub duplicates: Vec<Duration>,
    /// A delivery about the time at which its record expires.
    pub late: Option<Late>,
}

/// When, about the record's expiry, an event is delivered once more.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// After the expiry; before it if negative.
    pub after_expiry_s: i64,
}

/// What an operator does to some event that allows it.
#[derive(Clone, Copy, Debug)]
pub enum OperatorAct {
    /// Replays one that is parked.
    ReplayFailed,
    /// Replays one that is done.
    ReplayDone,
    /// Discards one that is parked.
    Discard,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    /// Events.
    pub events: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<Fate, u64>,
    /// Calls that a partition cut off.
    pub partitioned: u64,
    /// What was seen, and how often.
    pub seen: BTreeMap<&'static str, u64>,
    /// Simulated time.
    pub time: Duration,
    /// What happened, a line each.
    pub log: Vec<String>,
}

/// A promise that was broken, and what had happened by then.
#[derive(Debug)]
pub struct Broken {
    /// Which, and of which event.
    pub promise: String,
    /// What happened, a line each.
    pub log: Vec<String>,
}

/// Runs a scenario.
///
/// # Errors
/// If a promise is broken.
pub fn simulate(scenario: &Scenario) -> Result<Simulated, Broken> {
    crate::seeded::switch_on();
    // What draws from it, the backoff of events and of the SDK's retries, runs on this thread.
    fastrand::seed(scenario.seed);
    runtime::aws::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let run = Arc::new(Run::start(scenario).await);
        let deliveries = Arc::clone(&run).play(scenario).await;
        run.judge(scenario, deliveries)
    })
}

/// A run, as far as its tasks share it.
struct Run {
    aws: Arc<Aws>,
    outside: Arc<Outside>,
    queue_url: String,
    config: Value,
    receivers: Vec<(Arc<Process>, Receiver)>,
    workers: Vec<(Arc<Process>, Attempts)>,
    sweeper: (Arc<Process>, Sweeper),
    began: tokio::time::Instant,
}

impl Run {
    async fn start(scenario: &Scenario) -> Self {
        let clock = Clock::on_tokio(Timestamp::from_millis(BEGIN_MS));
        let weather = Weather::new(&scenario.faults, &scenario.partitions, scenario.seed);
        let aws = Aws::start(weather, scenario.seed, clock);
        let client = aws.ledger(None, Patience::WORKER).client().clone();
        dynamo::create_table(&client, crate::world::TABLE).await.expect("a table");
        dynamo::create_table(&client, crate::shop::CREDITS).await.expect("a table");
        let queue_url = create_queue(&aws).await;
        let config = config();
        let outside = Arc::new(Outside::default());
        let kinds = scenario.events.iter().enumerate();
        let kinds = Arc::new(kinds.map(|(n, plan)| (key(n).pk(), plan.kind)).collect());
        let mut processes = scenario.skews.iter().enumerate().map(|(n, skew)| {
            (Arc::new(Process::new(PROCESS_NAMES[n])), clock.moved_by(i64::from(*skew)))
        });
        let mut receivers = Vec::new();
        for (process, clock) in processes.by_ref().take(RECEIVERS) {
            let ledger = aws.ledger(Some(&process), Patience::RECEIVER);
            let queue = aws.queue(Some(&process), Patience::RECEIVER, &queue_url);
            let store = SecretStore::new(None);
            let receiver = Receiver::new(parse(&config), store, ledger, queue, clock).await;
            receivers.push((process, receiver));
        }
        let worker = |(process, clock): (Arc<Process>, Clock)| {
            let ledger = aws.ledger(Some(&process), Patience::WORKER);
            let queue = aws.queue(Some(&process), Patience::WORKER, &queue_url);
            let handler: Arc<dyn Handler> = Arc::new(Work {
                aws: Arc::clone(&aws),
                process: Arc::clone(&process),
                outside: Arc::clone(&outside),
                kinds: Arc::clone(&kinds),
            });
            let parsed = parse(&config);
            let named = BTreeMap::from([("test".to_owned(), handler)]);
            let handlers = Handlers::of(&parsed, &SecretStore::new(None), named);
            (process, Attempts::new(parsed, handlers.expect("handlers"), ledger, queue, clock))
        };
        let workers = processes.by_ref().take(WORKERS).map(worker).collect();
        let (process, clock) = processes.next().expect("a process for the sweeper");
        let ledger = aws.ledger(Some(&process), Patience::WORKER);
        let queue = aws.queue(Some(&process), Patience::WORKER, &queue_url);
        let sweeper = (process, Sweeper::new(ledger, queue, clock));
        let began = tokio::time::Instant::now();
        Self { aws, outside, queue_url, config, receivers, workers, sweeper, began }
    }

    /// From the first delivery until nothing is left to happen. Gives the number of deliveries.
    async fn play(self: Arc<Self>, scenario: &Scenario) -> u64 {
        let mut standing = JoinSet::new();
        for n in 0..WORKERS {
            standing.spawn_local(Arc::clone(&self).work(n));
        }
        standing.spawn_local(Arc::clone(&self).sweep());
        let mut providers = JoinSet::new();
        for (n, plan) in scenario.events.iter().enumerate() {
            for duplicate in &plan.duplicates {
                let run = Arc::clone(&self);
                let (at, plan) = (plan.at + *duplicate, plan.clone());
                providers.spawn_local(async move {
                    run.until(at).await;
                    run.deliver(n, &plan, false).await;
                    1
                });
            }
            providers.spawn_local(Arc::clone(&self).provide(n, plan.clone()));
        }
        for (at, act) in scenario.operator.clone() {
            let run = Arc::clone(&self);
            providers.spawn_local(async move {
                run.until(at).await;
                run.operate(act).await;
                0
            });
        }
        let mut deliveries = providers.join_all().await.into_iter().sum();
        // The weather outlasts the last delivery. From then on nothing goes wrong, and everything
        // must end.
        sleep(WEATHER_OUTLASTS).await;
        self.aws.weather().calm();
        self.settle().await;
        deliveries += Arc::clone(&self).let_expire(scenario).await;
        self.settle().await;
        // They go on for ever, unless they panic.
        assert!(standing.try_join_next().is_none(), "work and sweeps go on");
        standing.shutdown().await;
        deliveries
    }

    async fn until(&self, at: Duration) {
        tokio::time::sleep_until(self.began + at).await;
    }

    // ---- a provider -------------------------------------------------------------------------

    /// Delivers an event until it is acknowledged, or the provider gives up.
    async fn provide(self: Arc<Self>, n: usize, plan: EventPlan) -> u64 {
        self.until(plan.at).await;
        let mut deliveries = 1;
        if self.deliver(n, &plan, false).await {
            return deliveries;
        }
        for wait in PROVIDER_WAITS {
            sleep(wait).await;
            deliveries += 1;
            if self.deliver(n, &plan, false).await {
                break;
            }
        }
        deliveries
    }

    /// One delivery, to one receiver or the other. Whether it was acknowledged.
    async fn deliver(&self, n: usize, plan: &EventPlan, calm: bool) -> bool {
        let which = usize::from(self.aws.weather().one_in(2));
        let (process, receiver) = &self.receivers[which];
        let id = id(n);
        let occurred_at = Timestamp::from_millis(BEGIN_MS).plus(plan.at);
        let delivery = stripe_delivery_of(&id, occurred_at, self.aws.now());
        let before = process.disturbed.load(Ordering::SeqCst);
        let invocation =
            tokio::time::timeout(limits::RECEIVER_TIMEOUT, deliver(receiver, &delivery));
        let Some(answered) = process.run(invocation).await else {
            let now = self.aws.now();
            self.aws.oracle().note(now, format!("{}: no answer", process.name));
            return false;
        };
        let undisturbed = calm || before == process.disturbed.load(Ordering::SeqCst);
        let (now, pk) = (self.aws.now(), key(n).pk());
        let status = answered.map_or(0, |answer| answer.status);
        self.aws.oracle().answered(now, &pk, status, undisturbed);
        status == 200
    }

    // ---- AWS's side of the worker and the sweeper -------------------------------------------

    /// An event source mapping: hands batches over, deletes what is not kept, and now and then
    /// delivers twice.
    async fn work(self: Arc<Self>, n: usize) {
        let (process, attempts) = &self.workers[n];
        loop {
            let sent = self.aws.sent.notified();
            let batch = self.receive().await;
            if batch.is_empty() {
                tokio::select! {
                    biased;
                    () = sent => {}
                    () = sleep(self.patience().await) => {}
                }
                continue;
            }
            let handles: Vec<_> = batch
                .iter()
                .map(|m| (m.message_id.clone(), m.receipt_handle.clone(), m.body.clone()))
                .collect();
            let mut event = SqsEvent::default();
            event.records = batch;
            let deadline = self.aws.now().plus(limits::WORKER_TIMEOUT);
            let work = worker::work(attempts, event, deadline);
            let worked = process.run(tokio::time::timeout(limits::WORKER_TIMEOUT, work)).await;
            // Killed, out of time, or failed as a whole: everything comes back.
            let Some(Ok(Ok(response))) = worked else { continue };
            let kept = response.batch_item_failures.iter();
            let kept: Vec<_> = kept.map(|failure| failure.item_identifier.as_str()).collect();
            for (id, handle, body) in handles {
                if kept.contains(&id.as_deref().unwrap_or_default()) {
                    continue;
                }
                if self.aws.weather().one_in(10) {
                    self.sqs("SendMessage", json!({ "MessageBody": body })).await;
                    self.aws.oracle().see("message delivered twice");
                }
                self.sqs("DeleteMessage", json!({ "ReceiptHandle": handle })).await;
            }
        }
    }

    /// What AWS itself asks of the queue, which no weather meets.
    async fn sqs(&self, action: &str, mut request: Value) -> Value {
        request["QueueUrl"] = self.queue_url.as_str().into();
        let answer = self.aws.serve_sqs(action, request.to_string().as_bytes()).await;
        let body = answer.body().bytes().expect("a body");
        assert!(answer.status().is_success(), "{action}: {}", String::from_utf8_lossy(body));
        serde_json::from_slice(body).unwrap_or(Value::Null)
    }

    async fn receive(&self) -> Vec<SqsMessage> {
        let received = self.sqs("ReceiveMessage", json!({ "MaxNumberOfMessages": 10 })).await;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let message = |message: &Value| {
            let mut record = SqsMessage::default();
            record.message_id = text(&message["MessageId"]);
            record.receipt_handle = text(&message["ReceiptHandle"]);
            record.body = text(&message["Body"]);
            record
        };
        received["Messages"].as_array().into_iter().flatten().map(message).collect()
    }

    /// How long to wait for the next look at an empty queue. Looking costs more than waiting.
    async fn patience(&self) -> Duration {
        let hidden = "ApproximateNumberOfMessagesNotVisible";
        let asked = self.sqs("GetQueueAttributes", json!({ "AttributeNames": [hidden] })).await;
        match asked["Attributes"][hidden].as_str() {
            Some(hidden) if hidden != "0" => Duration::from_secs(20),
            _ => DAY,
        }
    }

    /// A schedule: sweeps each minute in which something is due. An idle pass changes nothing.
    async fn sweep(self: Arc<Self>) {
        let (process, sweeper) = &self.sweeper;
        loop {
            let written = self.aws.written.notified();
            let due = self.aws.oracle().next_due();
            let now = self.aws.now().millis();
            match due {
                Some(due) if due <= now => {}
                Some(due) => {
                    let wait = u64::try_from(due - now).unwrap_or(0);
                    tokio::select! {
                        biased;
                        () = written => {}
                        () = sleep(Duration::from_millis(wait)) => {}
                    }
                    continue;
                }
                None => {
                    written.await;
                    continue;
                }
            }
            let pass = tokio::time::timeout(limits::SWEEPER_TIMEOUT, sweeper.sweep());
            let swept = process.run(pass).await;
            self.aws.oracle().see(match swept {
                Some(Ok(Ok(()))) => "swept",
                Some(_) => "swept in part",
                None => "sweeper killed",
            });
            sleep(limits::SWEEP_INTERVAL).await;
        }
    }

    // ---- an operator ------------------------------------------------------------------------

    /// Does it to the first event that allows it. Not to what came beyond its horizon: only a
    /// person who knows can replay that.
    async fn operate(&self, act: OperatorAct) {
        let state = match act {
            OperatorAct::ReplayFailed | OperatorAct::Discard => "failed",
            OperatorAct::ReplayDone => "done",
        };
        let candidates: Vec<String> = {
            let oracle = self.aws.oracle();
            let fit = |facts: &super::oracle::Facts| facts.state == state && !facts.beyond_horizon;
            oracle.facts().iter().filter(|(_, f)| fit(f)).map(|(pk, _)| pk.clone()).collect()
        };
        let Some(pk) = candidates.first() else { return };
        let key = EventKey::parse(pk).expect("a key");
        let ledger = self.aws.ledger(None, Patience::WORKER);
        let Some(item) = ledger.read(&key).await.expect("a read") else { return };
        let record = Record::from_item(item).expect("a readable record");
        let (now, policy) = (self.aws.now(), stripe_policy(&self.config));
        let operator = Operator { name: "ada", reason: "mended" };
        let write = match act {
            OperatorAct::ReplayFailed | OperatorAct::ReplayDone => {
                replay(&record, &operator, now, &policy, false)
            }
            OperatorAct::Discard => discard(&record, &operator, now, &policy),
        };
        let Ok(write) = write else { return };
        ledger.write(&write, Returning::Nothing).await.expect("an answer");
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Waits until everything is closed or parked.
    async fn settle(&self) {
        let give_up = self.began.elapsed() + SETTLES_WITHIN;
        let open = || {
            let oracle = self.aws.oracle();
            oracle.broken().is_none() && oracle.facts().values().any(|f| is_open(&f.state))
        };
        while open() && self.began.elapsed() < give_up {
            sleep(Duration::from_secs(30)).await;
        }
    }

    /// Lets closed records expire, with deliveries that come about that time.
    async fn let_expire(self: Arc<Self>, scenario: &Scenario) -> u64 {
        let mut expiring = JoinSet::new();
        for (n, plan) in scenario.events.iter().enumerate() {
            let pk = key(n).pk();
            let expires_at = self.aws.oracle().facts().get(&pk).and_then(|facts| facts.expires_at);
            let Some(expires_at) = expires_at else { continue };
            let at = |offset_s: i64| {
                let ms = (expires_at + offset_s) * 1000 - BEGIN_MS;
                Duration::from_millis(u64::try_from(ms).unwrap_or(0))
            };
            let lag = i64::try_from(scenario.ttl_lag.as_secs()).unwrap_or(0);
            let (run, deleted_at) = (Arc::clone(&self), at(lag));
            expiring.spawn_local(async move {
                run.until(deleted_at).await;
                run.aws.expire(&pk);
                0
            });
            if let Some(late) = plan.late {
                let (run, plan) = (Arc::clone(&self), plan.clone());
                let delivered_at = at(late.after_expiry_s);
                expiring.spawn_local(async move {
                    run.until(delivered_at).await;
                    run.deliver(n, &plan, true).await;
                    1
                });
            }
        }
        expiring.join_all().await.into_iter().sum()
    }

    fn judge(&self, scenario: &Scenario, deliveries: u64) -> Result<Simulated, Broken> {
        let mut oracle = self.aws.oracle();
        oracle.judge_end();
        for (n, plan) in scenario.events.iter().enumerate() {
            let pk = key(n).pk();
            let facts = oracle.facts().get(&pk).cloned().unwrap_or_default();
            for step in plan.kind.steps() {
                let effects = self.outside.effects(&pk, step);
                oracle.judge_effects(&pk, step, effects, &facts);
            }
        }
        if let Some(promise) = oracle.broken() {
            return Err(Broken { promise: promise.to_owned(), log: oracle.log().to_vec() });
        }
        let (faults, partitioned) = self.aws.weather().injected();
        Ok(Simulated {
            events: scenario.events.len() as u64,
            deliveries,
            faults,
            partitioned,
            seen: oracle.seen().clone(),
            time: self.began.elapsed(),
            log: oracle.log().to_vec(),
        })
    }
}

async fn create_queue(aws: &Aws) -> String {
    let visibility = limits::QUEUE_VISIBILITY.as_secs().to_string();
    let attributes = json!({ "VisibilityTimeout": visibility });
    let request = json!({ "QueueName": "events", "Attributes": attributes });
    let answer = aws.serve_sqs("CreateQueue", request.to_string().as_bytes()).await;
    let created: Value =
        serde_json::from_slice(answer.body().bytes().expect("a body")).expect("JSON");
    created["QueueUrl"].as_str().expect("its URL").to_owned()
}

fn config() -> Value {
    json!({
        "sources": {
            "stripe": {
                "provider": "stripe",
                "secrets": [format!("literal:{STRIPE_SECRET}")],
                "attempts": 8,
                "backoff": { "first": "5s", "longest": "30m" },
                "deliver": { "handler": "test" }
            }
        }
    })
}

fn id(n: usize) -> String {
    format!("evt_{n}")
}

fn key(n: usize) -> EventKey {
    stripe_key(&id(n))
}

const RECEIVERS: usize = 2;
const WORKERS: usize = 3;
const PROCESSES: usize = RECEIVERS + WORKERS + 1;
const PROCESS_NAMES: [&str; PROCESSES] =
    ["receiver 1", "receiver 2", "worker 1", "worker 2", "worker 3", "sweeper"];
const BEGIN_MS: i64 = 1_800_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// As Stripe spreads its attempts over three days.
const PROVIDER_WAITS: [Duration; 10] = {
    const fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }
    [
        minutes(1),
        minutes(5),
        minutes(30),
        minutes(120),
        minutes(300),
        minutes(600),
        minutes(600),
        minutes(600),
        minutes(600),
        minutes(600),
    ]
};
const WEATHER_OUTLASTS: Duration = Duration::from_secs(6 * 3600);
/// Eight attempts half an hour apart, requeues an hour apart, and as much again.
const SETTLES_WITHIN: Duration = Duration::from_secs(2 * 86_400);
