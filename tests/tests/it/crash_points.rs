//! Crash points: at every call of every flow the executables that are deployed are killed, before
//! it, during it and after it, and the call loses its answer, is refused or comes too late. Each time the
//! provider delivers again, the sweep passes, the message comes back, and then the books are judged
//! by what the services outside, the accounts, the queue and the ledger say.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    delivery::Delivery,
    effects::{StepEntry, StepName, StepState, step_key},
    item::{Attribute, Item},
    limits,
    record::{Record, State, StateName},
    transition::{Lease, open_shard, parked_shard},
};
use futures::FutureExt as _;
use hookonce::lambda::{Function, FunctionSpec, InvokeError};
use receiver::Receiver;
use runtime::clock::Clock;
use serde_json::{Value, json};
use sweeper::Sweeper;
use tests::{
    dev::eventually,
    outside::Outside,
    play::{accounts, ahead, balance},
    programs::programs,
    proxy::Fault,
    wire::{Aim, Seen, Strike, Wire},
    world::{
        TABLE, World, deliver, function_url_event, occurred_at, stripe_body, stripe_config,
        stripe_key,
    },
};
use tokio::sync::{mpsc, watch};

// ---- the flows ------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_new_event_survives_a_break_at_any_call() {
    check(Flow::NewEvent, 44).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_survives_a_break_at_any_call() {
    check(Flow::Duplicate, 25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_of_an_overdue_event_survives_a_break_at_any_call() {
    check(Flow::OverdueDuplicate, 69).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_that_differs_survives_a_break_at_any_call() {
    check(Flow::DifferingDuplicate, 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_survives_a_break_at_any_call() {
    check(Flow::Payment, 51).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_taken_over_midway_survives_a_break_at_any_call() {
    check(Flow::TakenOverPayment, 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_another_worker_has_survives_a_break_at_any_call() {
    check(Flow::HeldPayment, 23).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_without_attempts_left_survives_a_break_at_any_call() {
    check(Flow::ExhaustedPayment, 26).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_delivery_survives_a_break_at_any_call() {
    check(Flow::HttpDelivery, 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_delivery_to_be_retried_survives_a_break_at_any_call() {
    check(Flow::FailedHttpDelivery, 42).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_delivery_refused_for_good_survives_a_break_at_any_call() {
    check(Flow::RefusedHttpDelivery, 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_of_a_delivery_survives_a_break_at_any_call() {
    check(Flow::LastHttpDelivery, 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_a_due_event_survives_a_break_at_any_call() {
    check(Flow::SweptDue, 146).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_an_exhausted_event_survives_a_break_at_any_call() {
    check(Flow::SweptExhausted, 23).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_an_event_at_work_survives_a_break_at_any_call() {
    check(Flow::SweptHeld, 23).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_whose_start_breaks_takes_its_event_all_the_same() {
    check_runs("the receiver's start", runs_at_start(Flow::NewEvent), 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_start_breaks_does_its_work_all_the_same() {
    check_runs("the worker's start", runs_at_start(Flow::Payment), 12).await;
}

/// What a function does in one invocation, from how things stand before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    NewEvent,
    Duplicate,
    OverdueDuplicate,
    DifferingDuplicate,
    Payment,
    TakenOverPayment,
    HeldPayment,
    ExhaustedPayment,
    HttpDelivery,
    FailedHttpDelivery,
    RefusedHttpDelivery,
    LastHttpDelivery,
    SweptDue,
    SweptExhausted,
    SweptHeld,
}

/// The function whose invocation a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Receiver,
    Worker,
    Sweeper,
}

impl Flow {
    /// Whose flow it is.
    const fn subject(self) -> Subject {
        match self {
            Self::NewEvent
            | Self::Duplicate
            | Self::OverdueDuplicate
            | Self::DifferingDuplicate => Subject::Receiver,
            Self::Payment
            | Self::TakenOverPayment
            | Self::HeldPayment
            | Self::ExhaustedPayment
            | Self::HttpDelivery
            | Self::FailedHttpDelivery
            | Self::RefusedHttpDelivery
            | Self::LastHttpDelivery => Subject::Worker,
            Self::SweptDue | Self::SweptExhausted | Self::SweptHeld => Subject::Sweeper,
        }
    }

    /// Its calls where nothing goes wrong. A call that is new here is a crash point that is new.
    fn calls(self) -> Vec<String> {
        let own: &[&str] = match self {
            Self::NewEvent => &["PutItem", "SendMessage"],
            Self::Duplicate => &["PutItem"],
            Self::OverdueDuplicate => &["PutItem", "UpdateItem", "SendMessage"],
            Self::DifferingDuplicate => &["PutItem", "UpdateItem"],
            // Lease, a call, its result in the journal, a call, completion with the credit.
            Self::Payment => &[
                "UpdateItem",
                "POST /receipt",
                "UpdateItem",
                "POST /shipment",
                "TransactWriteItems",
            ],
            Self::TakenOverPayment => &["UpdateItem", "POST /shipment", "TransactWriteItems"],
            Self::HeldPayment => &["UpdateItem", "ChangeMessageVisibility"],
            Self::ExhaustedPayment => &["UpdateItem", "UpdateItem"],
            Self::FailedHttpDelivery => {
                &["UpdateItem", "POST /deliver", "UpdateItem", "ChangeMessageVisibility"]
            }
            Self::HttpDelivery | Self::RefusedHttpDelivery | Self::LastHttpDelivery => {
                &["UpdateItem", "POST /deliver", "UpdateItem"]
            }
            Self::SweptDue => &["GetItem", "UpdateItem", "SendMessage"],
            Self::SweptExhausted | Self::SweptHeld => &["GetItem", "UpdateItem"],
        };
        let shards = 0..if self.subject() == Subject::Sweeper { limits::SHARDS } else { 0 };
        let queries = shards.flat_map(|shard| [parked_shard(shard), open_shard(shard)]);
        let queries = queries.map(|partition| format!("Query {partition}"));
        queries.chain(own.iter().map(|&call| call.to_owned())).collect()
    }

    /// What it leaves behind where nothing goes wrong: the record's state, and messages.
    const fn leaves(self) -> (StateName, u32) {
        match self {
            Self::NewEvent | Self::OverdueDuplicate | Self::FailedHttpDelivery | Self::SweptDue => {
                (StateName::Received, 1)
            }
            Self::HeldPayment => (StateName::Processing, 1),
            Self::SweptHeld => (StateName::Processing, 0),
            Self::Duplicate
            | Self::DifferingDuplicate
            | Self::Payment
            | Self::TakenOverPayment
            | Self::ExhaustedPayment
            | Self::HttpDelivery
            | Self::RefusedHttpDelivery
            | Self::LastHttpDelivery
            | Self::SweptExhausted => (self.ends(), 0),
        }
    }

    /// How its event ends, once all has healed.
    const fn ends(self) -> StateName {
        match self {
            Self::ExhaustedPayment
            | Self::RefusedHttpDelivery
            | Self::LastHttpDelivery
            | Self::SweptExhausted => StateName::Failed,
            Self::NewEvent
            | Self::Duplicate
            | Self::OverdueDuplicate
            | Self::DifferingDuplicate
            | Self::Payment
            | Self::TakenOverPayment
            | Self::HeldPayment
            | Self::HttpDelivery
            | Self::FailedHttpDelivery
            | Self::SweptDue
            | Self::SweptHeld => StateName::Done,
        }
    }

    /// Whether its event goes to the HTTP destination; others are payments.
    const fn is_http(self) -> bool {
        matches!(
            self,
            Self::HttpDelivery
                | Self::FailedHttpDelivery
                | Self::RefusedHttpDelivery
                | Self::LastHttpDelivery
        )
    }

    /// The steps of its event.
    const fn steps(self) -> &'static [&'static str] {
        if self.is_http() { &["deliver"] } else { &["receipt", "shipment"] }
    }

    /// What the provider delivers, each time; the subject may be told something else.
    fn delivery(self, id: &str) -> Delivery {
        let event_type =
            if self.is_http() { "charge.refunded" } else { "payment_intent.succeeded" };
        event(id, event_type, AMOUNT)
    }

    /// Brings things to where the flow begins.
    async fn prepare(self, bench: &Bench, id: &str) {
        if self == Self::NewEvent {
            return;
        }
        bench.deliver(self, id).await;
        // Enqueued by the receiver, unless the machine left it no time for that.
        if bench.world.queue_depth().await == (0, 0) {
            bench.world.enqueue(id).await;
        }
        let (world, now) = (&bench.world, Clock::default().now());
        match self {
            Self::NewEvent | Self::Payment | Self::HttpDelivery => {}
            Self::Duplicate | Self::DifferingDuplicate => bench.heal().await,
            // From here on a lost message is one that only a sweep, or a duplicate, replaces.
            Self::OverdueDuplicate | Self::SweptDue => world.drain().await,
            Self::SweptExhausted => {
                world.drain().await;
                bench.use_up(id, ATTEMPTS).await;
            }
            Self::SweptHeld => {
                world.drain().await;
                world.hold(id, now, now.plus(HOUR)).await;
            }
            Self::TakenOverPayment => {
                let (lease, _) = world.hold(id, now, now).await;
                world.apply(&receipt_made(&lease).write).await;
            }
            Self::HeldPayment => {
                world.hold(id, now, now.plus(2 * HOUR)).await;
            }
            Self::ExhaustedPayment => bench.use_up(id, ATTEMPTS).await,
            Self::FailedHttpDelivery => bench.outside.answer("deliver", id, [503]),
            Self::RefusedHttpDelivery => bench.outside.answer("deliver", id, [410]),
            Self::LastHttpDelivery => {
                bench.outside.answer("deliver", id, [503]);
                bench.use_up(id, ATTEMPTS - 1).await;
            }
        }
    }
}

/// A payment or a refund of the account `id`.
fn event(id: &str, event_type: &str, amount: i64) -> Delivery {
    let body = json!({
        "id": id,
        "object": "event",
        "type": event_type,
        "created": occurred_at().millis() / 1000,
        "data": { "object": {
            "id": format!("pi_{id}"),
            "customer": id,
            "amount_received": amount,
            "currency": "eur"
        } }
    });
    stripe_body(body.to_string().as_bytes())
}

/// What a predecessor wrote after its first call.
fn receipt_made(lease: &Lease) -> domain::transition::Fenced {
    let name = StepName::new("receipt").expect("a step's name");
    let entry = StepEntry {
        state: StepState::Done { result: json!({ "id": "made" }).to_string() },
        key: step_key(lease.key(), &name),
        owner: lease.owner().clone(),
        at: Clock::default().now(),
    };
    lease.journal(&[(name, entry)])
}

// ---- the crash points -----------------------------------------------------------------------

/// One crash point: a flow, one of its calls, and what happens there.
struct Run {
    flow: Flow,
    /// Which of the flow's calls; none is one that the function makes as it starts.
    number: Option<usize>,
    aim: Aim,
    /// Whether the provider delivers again what was not acknowledged.
    redelivers: bool,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flow, number, aim, redelivers } = self;
        let place = number.map_or("at the start".to_owned(), |number| format!("call {number}"));
        write!(f, "{flow:?}: {place}, {}: {:?}", aim.call, aim.strike)?;
        if *redelivers { Ok(()) } else { f.write_str(", and no delivery after that") }
    }
}

impl Run {
    /// Whether the SDK's next attempt makes good what happened.
    fn is_absorbed(&self) -> bool {
        let Strike::Once(fault) = &self.aim.strike else { return false };
        // The one write that does not know itself again: its message comes back once, and finds
        // the record parked.
        let park = self.flow == Flow::ExhaustedPayment && self.aim.nth == 1;
        let unrecognised = park && *fault == Fault::LoseResponse;
        let at_aws = !self.aim.call.starts_with("POST");
        at_aws && !unrecognised && !matches!(fault, Fault::Delay(_))
    }
}

/// Runs every crash point of a flow.
async fn check(flow: Flow, points: usize) {
    check_runs(&format!("{flow:?}, {} calls", flow.calls().len()), runs_of(flow), points).await;
}

/// Runs these, which are so many, a few at a time. Those that fail do not keep the others back.
async fn check_runs(what: &str, runs: Vec<Run>, points: usize) {
    assert_eq!(runs.len(), points, "{what}: a crash point more, or less");
    let flow = runs[0].flow;
    let waiting = Mutex::new(VecDeque::from(runs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let lane = async |first| {
        let mut bench = Bench::start(flow).await;
        if first {
            bench.run_undisturbed(flow).await;
        }
        let (mut ran, mut failed) = (0, Vec::new());
        while let Some(run) = next() {
            ran += 1;
            if AssertUnwindSafe(bench.run(&run)).catch_unwind().await.is_err() {
                failed.push(run.to_string());
                bench = Bench::start(flow).await;
            }
        }
        (ran, failed)
    };
    // The SDK's waits between attempts are most of the time; a receiver's are short.
    let lanes = if flow.subject() == Subject::Receiver { 3 } else { 8 };
    let lanes = futures::future::join_all((0..lanes).map(|number| lane(number == 0))).await;
    let (ran, failed): (Vec<usize>, Vec<_>) = lanes.into_iter().unzip();
    let failed = failed.concat();
    assert!(failed.is_empty(), "{} of {points} fail: {failed:#?}", failed.len());
    assert_eq!(ran.iter().sum::<usize>(), points);
    println!("{what}: {points} crash points");
}

/// Every crash point of a flow; those that take long first, so that the lanes end together.
fn runs_of(flow: Flow) -> Vec<Run> {
    let calls = flow.calls();
    let mut runs = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        let nth = calls[..i].iter().filter(|earlier| *earlier == call).count();
        for strike in strikes(flow, call) {
            let late = strike == Strike::KillDuring;
            let aim = Aim { call: call.clone(), nth, strike };
            let run = |redelivers| {
                let (number, aim) = (Some(i + 1), aim.clone());
                Run { flow, number, aim, redelivers }
            };
            runs.push(run(true));
            // What arrives late finds what came of the next delivery.
            if flow.subject() == Subject::Receiver && !late {
                runs.push(run(false));
            }
        }
    }
    runs.sort_by_key(|run| !takes_long(&run.aim.strike));
    runs
}

/// Every crash point of the start of a flow's function.
fn runs_at_start(flow: Flow) -> Vec<Run> {
    let strikes = [
        Strike::Always(Fault::Refuse(400, "ThrottlingException")),
        Strike::Always(Fault::LoseResponse),
        Strike::Once(too_late(flow, START_CALLS[0])),
        Strike::Once(Fault::LoseResponse),
        Strike::KillBefore,
        Strike::KillAfter,
    ];
    let points = strikes.iter().flat_map(|strike| START_CALLS.map(|call| (call, strike)));
    let runs = points.map(|(call, strike)| {
        let aim = Aim { call: call.to_owned(), nth: 0, strike: strike.clone() };
        Run { flow, number: None, aim, redelivers: true }
    });
    runs.collect()
}

const fn kills(strike: &Strike) -> bool {
    matches!(strike, Strike::KillBefore | Strike::KillAfter | Strike::KillDuring)
}

const fn takes_long(strike: &Strike) -> bool {
    matches!(strike, Strike::Always(_) | Strike::Once(Fault::Delay(_)))
}

/// Everything that can happen at a call. The queries of a pass are the same in each of the
/// sweeper's flows, and are struck in one of them.
fn strikes(flow: Flow, call: &str) -> Vec<Strike> {
    let is_query = call.starts_with("Query");
    if is_query && flow != Flow::SweptDue {
        return Vec::new();
    }
    let mut strikes =
        vec![Strike::KillBefore, Strike::KillAfter, Strike::Once(Fault::LoseResponse)];
    let refusals = refusals(call);
    strikes.extend(refusals.iter().cloned().map(Strike::Once));
    // Late, a read finds nobody; and whether a service outside is called late is not ours to say.
    if !is_query && call != "GetItem" && !call.starts_with("POST") {
        strikes.push(Strike::KillDuring);
    }
    if is_query {
        strikes.push(Strike::Always(refusals[0].clone()));
    } else if !call.starts_with("POST") {
        // The SDK does not stop at the first attempt. The two words for throttling are one to it.
        let overloaded = Fault::Refuse(400, OVERLOADED);
        strikes.extend(refusals.into_iter().filter(|r| *r != overloaded).map(Strike::Always));
        strikes.push(Strike::Always(Fault::LoseResponse));
    }
    if !is_query || call == "Query open#0" {
        strikes.push(Strike::Once(too_late(flow, call)));
    }
    strikes
}

/// Longer than the caller waits for one answer.
fn too_late(flow: Flow, call: &str) -> Fault {
    Fault::Delay(Duration::from_millis(match call {
        "POST /receipt" | "POST /shipment" => 10_500,
        _ if flow.subject() == Subject::Receiver => 1200,
        _ => 3500,
    }))
}

/// How a call is refused that would succeed later.
fn refusals(call: &str) -> Vec<Fault> {
    let refuse = |status, code| Fault::Refuse(status, code);
    let (throttled, failed) =
        (refuse(400, "ThrottlingException"), refuse(500, "InternalServerError"));
    let overloaded = refuse(400, OVERLOADED);
    let conflict = refuse(400, "TransactionConflictException");
    match call {
        "PutItem" | "UpdateItem" => vec![throttled, overloaded, failed, conflict],
        "TransactWriteItems" => vec![throttled, overloaded, failed, cancelled()],
        "SendMessage" | "ChangeMessageVisibility" => vec![throttled, failed],
        _ if call.starts_with("POST") => [429, 500].map(|status| refuse(status, "Busy")).into(),
        _ => vec![throttled, overloaded, failed],
    }
}

/// A transaction that met another one.
fn cancelled() -> Fault {
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "Transaction cancelled",
        "CancellationReasons": [
            { "Code": "None" },
            { "Code": "TransactionConflict", "Message": "made up" }
        ]
    });
    Fault::RefuseWith(400, body.to_string())
}

// ---- the bench ------------------------------------------------------------------------------

/// The function under test with its wire, all that it calls, and all that heals.
struct Bench {
    world: World,
    outside: Outside,
    wire: Arc<Wire>,
    subject: Arc<Function>,
    receiver: Receiver,
    /// A sweeper and a worker of a time when every lease and every wait has ended.
    sweeper: Sweeper,
    healer: Function,
    events: AtomicUsize,
    _closing: watch::Sender<bool>,
}

impl Bench {
    /// A bench for a flow.
    async fn start(flow: Flow) -> Self {
        let world = World::start().await;
        accounts(&world).await;
        let outside = Outside::start(world.ledger.clone()).await;
        let wire = Wire::start(&world.dynamodb_url, &world.sqs_url, &outside.url).await;
        let (closing, closed) = watch::channel(false);
        let (name, clock, timeout) = match flow.subject() {
            Subject::Receiver => ("receiver", PAST_GRACE, Duration::from_secs(10)),
            // Longer than all attempts of a call, so that some end by being used up.
            Subject::Worker => ("worker", HOUR, Duration::from_secs(15)),
            Subject::Sweeper => ("sweeper", PAST_GRACE, Duration::from_secs(15)),
        };
        let places = [wire.dynamodb_url.as_str(), &wire.sqs_url, &wire.outside_url];
        let subject = start(name, clock, timeout, &world, places, &closed).await;
        let subject = Arc::new(subject);
        wire.belongs_to(&subject);
        let places = [world.dynamodb_url.as_str(), &world.sqs_url, &outside.url];
        let healer = start("worker", 3 * HOUR, 10 * SECOND, &world, places, &closed).await;
        let receiver = world.receiver(&config(&outside.url)).await;
        let sweeper = world.sweeper(ahead(2 * HOUR));
        let wire = Arc::new(wire);
        let (events, _closing) = (AtomicUsize::new(0), closing);
        Self { world, outside, wire, subject, receiver, sweeper, healer, events, _closing }
    }

    fn fresh_id(&self) -> String {
        format!("evt_{}", self.events.fetch_add(1, Ordering::Relaxed))
    }

    /// The flow as it is where nothing goes wrong.
    async fn run_undisturbed(&self, flow: Flow) {
        let id = self.fresh_id();
        flow.prepare(self, &id).await;
        self.wire.aim(None);
        let invoked = self.invoke(flow, &id).await;
        let mut seen = self.wire.disarm().calls;
        seen.retain(|call| !START_CALLS.contains(&call.as_str()));
        let mut calls = flow.calls();
        if flow.subject() == Subject::Sweeper {
            // Shards are swept at the same time.
            seen.sort();
            calls.sort();
        }
        assert_eq!(seen, calls, "{flow:?}");
        assert_eq!(invoked, Ok(true), "{flow:?}");
        self.judge_unharmed(flow, &id).await;
        self.settle(flow, &id).await;
        self.judge(flow, &id).await;
    }

    /// The flow with a strike at one of its calls.
    async fn run(&self, run: &Run) {
        let (flow, id) = (run.flow, self.fresh_id());
        if run.number.is_none() {
            // By then the process at hand has started, and only its successor's start is struck.
            self.run_undisturbed(flow).await;
        }
        flow.prepare(self, &id).await;
        let before = self.world.item(&id).await;
        self.wire.aim(Some(run.aim.clone()));
        if run.number.is_none() {
            self.subject.kill_one();
            eventually("its successor starts", async || self.wire.struck() > 0).await;
        }
        let invoked = self.invoke(flow, &id).await;
        let Seen { struck, calls } = self.wire.disarm();
        assert!(struck > 0, "never met; calls: {calls:?}");
        let killed = kills(&run.aim.strike) && run.number.is_some();
        assert_eq!(invoked == Err(InvokeError::Exited), killed, "{invoked:?}");
        if run.aim.strike == Strike::KillDuring {
            // Amid the work of a successor.
            let wire = Arc::clone(&self.wire);
            self.outside.meanwhile(async move { wire.let_arrive().await });
        }
        if run.is_absorbed() {
            self.judge_unharmed(flow, &id).await;
        }
        if invoked != Ok(true) && flow.subject() == Subject::Receiver {
            if !run.redelivers && self.world.item(&id).await.is_none() {
                return self.judge_unheard(&id).await;
            }
            if run.redelivers {
                self.redeliver(flow, &id).await;
            }
        }
        self.settle(flow, &id).await;
        self.judge(flow, &id).await;
        if let Some(arrives) = self.outside.take_meanwhile() {
            // Nobody called outside, and all has ended.
            arrives.await;
            self.heal().await;
            self.judge(flow, &id).await;
        }
        if flow == Flow::Duplicate || flow == Flow::DifferingDuplicate {
            let after = self.world.item(&id).await;
            assert_eq!(without_note(before), without_note(after), "by a duplicate");
        }
    }

    /// Delivers as the provider does, until it is acknowledged; on a busy machine that takes more
    /// than once.
    async fn deliver(&self, flow: Flow, id: &str) {
        for _ in 0..MOST_DELIVERIES {
            if deliver(&self.receiver, &flow.delivery(id)).await.status == 200 {
                return;
            }
        }
        panic!("never acknowledged");
    }

    /// As [`Bench::deliver`], to the subject.
    async fn redeliver(&self, flow: Flow, id: &str) {
        for _ in 0..MOST_DELIVERIES {
            if self.receive(flow, id).await == Ok(true) {
                return;
            }
        }
        panic!("never acknowledged");
    }

    /// One invocation of the subject: whether all is well by its own account.
    async fn invoke(&self, flow: Flow, id: &str) -> Result<bool, InvokeError> {
        match flow.subject() {
            Subject::Receiver => self.receive(flow, id).await,
            Subject::Worker => self.work(&self.subject).await.map(|()| true),
            Subject::Sweeper => match self.subject.invoke("{}").await {
                Ok(_) => Ok(true),
                // A shard could not be read.
                Err(InvokeError::Function(_)) => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Delivers to the subject: whether it acknowledged. What it acknowledges is on record.
    async fn receive(&self, flow: Flow, id: &str) -> Result<bool, InvokeError> {
        let delivery = if flow == Flow::DifferingDuplicate {
            event(id, "payment_intent.succeeded", AMOUNT + 1)
        } else {
            flow.delivery(id)
        };
        let event = serde_json::to_string(&function_url_event("stripe", &delivery));
        let answer = self.subject.invoke(event.expect("JSON")).await?;
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let on_record = self.world.item(id).await.is_some();
        match answer["statusCode"].as_u64() {
            Some(200) => {
                assert!(on_record, "acknowledged, and not on record");
                Ok(true)
            }
            Some(503) => Ok(false),
            _ => panic!("answered {answer}"),
        }
    }

    /// Hands a worker what is visible, as an event source mapping does. What it keeps is visible
    /// again at once; what it does not keep is settled.
    async fn work(&self, worker: &Function) -> Result<(), InvokeError> {
        let batch = self.world.receive_batch().await;
        let worked = worker.invoke(serde_json::to_string(&batch).expect("JSON")).await;
        let response: Option<Value> =
            worked.as_ref().ok().map(|bytes| serde_json::from_slice(bytes).expect("JSON"));
        for record in batch.records {
            let (id, handle) = (record.message_id, record.receipt_handle.expect("a handle"));
            let kept = response.as_ref().is_none_or(|response| {
                let kept = response["batchItemFailures"].as_array().expect("a list");
                kept.iter().any(|kept| kept["itemIdentifier"].as_str() == id.as_deref())
            });
            if kept {
                self.show(&handle).await;
                continue;
            }
            let message = sqs::Message::parse(&record.body.expect("a body")).expect("ours");
            let item = self.world.ledger.read(&message.key).await.expect("a read");
            let state = Record::from_item(item.expect("a record")).expect("readable").state.name();
            assert!(!state.is_open(), "{}: its message is gone, it is {state}", message.key);
            let delete = self.world.sqs.delete_message().queue_url(&self.world.queue_url);
            delete.receipt_handle(handle).send().await.expect("deleted");
        }
        worked.map(drop)
    }

    /// Ends a message's time out of sight.
    async fn show(&self, handle: &str) {
        let change = self.world.sqs.change_message_visibility().queue_url(&self.world.queue_url);
        let change = change.receipt_handle(handle).visibility_timeout(0);
        change.send().await.expect("visible");
    }

    /// Has this many workers take the event's lease and die.
    async fn use_up(&self, id: &str, attempts: u32) {
        let now = Clock::default().now();
        for attempt in 0..attempts {
            let then = now.plus(Duration::from_millis(attempt.into()));
            self.world.hold(id, then, then).await;
        }
    }

    /// What follows whatever happened: one more delivery, a sweep, and the messages.
    async fn settle(&self, flow: Flow, id: &str) {
        if flow == Flow::FailedHttpDelivery {
            self.outside.answer("deliver", id, [200]);
        }
        if flow.subject() != Subject::Receiver {
            self.deliver(flow, id).await;
        }
        self.heal().await;
    }

    /// Sweeps late, and works until the queue is empty.
    async fn heal(&self) {
        self.sweeper.sweep().await.expect("a pass");
        for _ in 0..MOST_ROUNDS {
            if self.world.queue_depth().await == (0, 0) {
                return;
            }
            self.work(&self.healer).await.expect("nothing is in its way");
        }
        panic!("messages are left: {:?}", self.world.queue_depth().await);
    }

    // ---- the judge --------------------------------------------------------------------------

    /// Judges the books of an event once all has healed.
    async fn judge(&self, flow: Flow, id: &str) {
        let item = self.world.expect_item(id).await;
        let record = self.world.expect_record(id).await;
        assert_eq!(record.state.name(), flow.ends(), "{:?}", record.last_error);
        if let State::Done(closure) = &record.state {
            assert!(closure.expires_at >= record.received_at.plus(RESEND_WINDOW), "expiry");
        } else {
            assert!(!item.contains_key(&Attribute::ExpiresAt), "expires unseen");
        }
        let done = flow.ends() == StateName::Done;
        let credited = (done && !flow.is_http()).then_some(AMOUNT);
        assert_eq!(balance(&self.world, id).await, credited, "credited once");
        for step in flow.steps() {
            self.judge_step(flow, &record, step);
        }
        assert_eq!(self.world.queue_depth().await, (0, 0), "messages are left");
        let shard = stripe_key(id).shard();
        assert!(!self.is_listed(&open_shard(shard), id).await, "listed as open");
        let shown = self.is_listed(&parked_shard(shard), id).await;
        assert_eq!(shown, !done, "parked where an operator sees it");
    }

    /// Judges how an event stands right after its flow, of which nothing went wrong for good. A
    /// message may have been sent twice.
    async fn judge_unharmed(&self, flow: Flow, id: &str) {
        let (state, messages) = flow.leaves();
        assert_eq!(self.world.expect_record(id).await.state.name(), state, "right after");
        let (visible, in_flight) = self.world.queue_depth().await;
        let found = visible + in_flight;
        assert!((messages..=2 * messages).contains(&found), "{found} messages right after");
    }

    async fn is_listed(&self, partition: &str, id: &str) -> bool {
        let listed = self.world.ledger.backlog(partition, 1000).await.expect("a query");
        listed.entries.iter().any(|(key, _)| *key == stripe_key(id))
    }

    /// One key, no call after the journal had it as done, and one call more at most.
    fn judge_step(&self, flow: Flow, record: &Record, step: &str) {
        let calls = self.outside.calls_for(record.key.id().as_str());
        let calls: Vec<_> = calls.iter().filter(|call| call.step == step).collect();
        let keys: BTreeSet<_> = calls.iter().map(|call| call.key.as_str()).collect();
        assert!(keys.len() <= 1, "{step} under {keys:?}");
        assert!(calls.iter().all(|call| !call.done_before), "{step} again: {calls:?}");
        let made_before = flow == Flow::TakenOverPayment && step == "receipt";
        let spent = matches!(flow, Flow::ExhaustedPayment | Flow::SweptExhausted);
        let most = if made_before || spent { 0 } else { 2 };
        assert!(calls.len() <= most, "{step}: {calls:?}");
        if flow.ends() == StateName::Done {
            assert!(made_before || !calls.is_empty(), "{step} was not called");
            let entry = record.steps.get(&StepName::new(step).expect("a step's name"));
            let entry = entry.unwrap_or_else(|| panic!("{step} is not in the journal"));
            assert!(matches!(entry.state, StepState::Done { .. }), "{step}");
            assert!(keys.iter().all(|key| *key == entry.key), "{step}");
        }
    }

    /// Of a delivery that was not acknowledged, took no hold and never came again, there is nothing.
    async fn judge_unheard(&self, id: &str) {
        self.heal().await;
        assert_eq!(self.world.item(id).await, None);
        assert_eq!(self.outside.calls_for(id), []);
        assert_eq!(balance(&self.world, id).await, None);
    }
}

/// The note of a payload that differed is no part of what the first delivery said.
fn without_note(item: Option<Item>) -> Item {
    let mut item = item.expect("a record");
    item.remove(&Attribute::PayloadMismatch);
    item
}

/// Starts an executable that reaches these: DynamoDB, SQS, the services outside.
async fn start(
    name: &'static str,
    clock: Duration,
    timeout: Duration,
    world: &World,
    [dynamodb, sqs, outside]: [&str; 3],
    closed: &watch::Receiver<bool>,
) -> Function {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "local".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.to_owned()),
        ("AWS_ENDPOINT_URL_SQS", sqs.to_owned()),
        ("HOOKONCE_TABLE", TABLE.to_owned()),
        ("HOOKONCE_QUEUE_URL", world.queue_url.replace(&world.sqs_url, sqs)),
        ("HOOKONCE_CONFIG", config(outside).to_string()),
        ("HOOKONCE_LOCAL", "1".to_owned()),
        ("HOOKONCE_CLOCK_OFFSET_MS", clock.as_millis().to_string()),
        ("PAYMENTS_ACCOUNTS_TABLE", tests::play::ACCOUNTS.to_owned()),
        ("PAYMENTS_RECEIPT_URL", format!("{outside}/receipt")),
        ("PAYMENTS_SHIPMENT_URL", format!("{outside}/shipment")),
    ];
    let spec = FunctionSpec {
        name,
        program: programs().join(name),
        arguments: Vec::new(),
        environment: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        instances: 1,
        timeout,
    };
    let (lines, mut written) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move { while written.recv().await.is_some() {} });
    Function::start(spec, lines, closed).await.expect("a process")
}

/// Payments go to the handler, refunds to an HTTP destination.
fn config(outside: &str) -> Value {
    let mut config = stripe_config();
    let source = &mut config["sources"]["stripe"];
    source["attempts"] = ATTEMPTS.into();
    source["backoff"] = json!({ "first": "1s", "longest": "1s" });
    source["deliver"] = Value::Null;
    source["routes"] = json!([
        { "types": ["payment_intent.*"], "handler": "payments" },
        { "types": ["charge.*"], "http": format!("{outside}/deliver"), "timeout": "1s" }
    ]);
    config
}

const AMOUNT: i64 = 4200;
const OVERLOADED: &str = "ProvisionedThroughputExceededException";
const ATTEMPTS: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// When an event that was claimed now is due.
const PAST_GRACE: Duration = Duration::from_secs(70);
/// For how long Stripe resends by hand.
const RESEND_WINDOW: Duration = Duration::from_secs(30 * 86_400);
/// What a function calls as it starts, and in no flow.
const START_CALLS: [&str; 2] = ["DescribeTable", "GetQueueAttributes"];
/// Deliveries until one is acknowledged where nothing is in its way.
const MOST_DELIVERIES: usize = 5;
/// Invocations until a healthy worker has emptied the queue of one event's messages.
const MOST_ROUNDS: usize = 6;
