//! A lost response is not a duplicate: a write that took hold and whose answer got lost is made
//! again by the SDK, fails its own guard, and must be recognised as its own.

use std::{sync::Arc, time::Duration};

use domain::{
    effects::StepPolicy,
    record::{ErrorNote, LeaseOwner, StateName},
    transition::{Fenced, FencedOutcome, Lease, Leased, lease},
};
use dynamo::{Committed, Ledger, Returning};
use hookonce::stack::dynamodb_config;
use receiver::Receiver;
use runtime::clock::Clock;
use tests::{
    handlers::Scripted,
    proxy::{Fault, FaultProxy, every_call, nth_call},
    shop::{Shop, credits},
    world::{TABLE, World, deliver, parse, stripe_config, stripe_delivery, stripe_key},
};
use worker::{Disposition, Failure, handlers::Handler};

/// Longer than the worker waits for one answer.
const PAST_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(3500);

fn count(proxy: &FaultProxy, action: &str) -> usize {
    proxy.calls().iter().filter(|called| *called == action).count()
}

async fn receiver_through(world: &World, dynamodb: &str, sqs: &str) -> Receiver {
    world.receiver_at(&stripe_config(), Clock::default(), dynamodb, sqs).await
}

/// Works on everything in the queue, one message at a time, until it is empty.
async fn drain(world: &World, handler: Arc<dyn Handler>) {
    let worker = world.worker(&stripe_config(), &[("test", handler)]);
    let deadline = Clock::default().now().plus(Duration::from_secs(30));
    loop {
        let batch = world.receive_batch().await;
        if batch.records.is_empty() {
            return;
        }
        for message in batch.records {
            let (body, handle) =
                (message.body.unwrap_or_default(), message.receipt_handle.unwrap_or_default());
            let disposition = worker.work_on(&body, &handle, deadline).await;
            assert_eq!(disposition, Disposition::Delete, "{body}");
            let delete = world.sqs.delete_message().queue_url(&world.queue_url);
            delete.receipt_handle(handle).send().await.expect("deleted");
        }
    }
}

async fn assert_done_once(world: &World, shop: &Shop, case: &str) {
    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!(record.state.name(), StateName::Done, "{case}");
    let credits = credits(world.ledger.client()).await;
    assert_eq!(credits.into_iter().collect::<Vec<_>>(), [("evt_1".to_owned(), 1)], "{case}");
    assert_eq!(shop.calls().len(), 1, "{case}: {:?}", shop.calls());
}

// ---- receiver -------------------------------------------------------------------------------

#[tokio::test]
async fn a_claim_whose_answer_got_lost_is_new_and_enqueued_once() {
    for fault in [Fault::LoseResponse, Fault::LoseRequest] {
        let world = World::start().await;
        let shop = Shop::open(world.ledger.client()).await;
        let case = format!("{fault:?}");
        let proxy = FaultProxy::start(&world.dynamodb_url, nth_call("PutItem", 0, fault)).await;
        let receiver = receiver_through(&world, &proxy.url, &world.sqs_url).await;
        assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200, "{case}");
        assert_eq!(count(&proxy, "PutItem"), 2, "{case}: the SDK has tried again");
        assert_eq!(world.queue_depth().await, (1, 0), "{case}");
        // Its own second write is no duplicate; another delivery is.
        assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200, "{case}");
        assert_eq!(world.queue_depth().await, (1, 0), "{case}");
        drain(&world, shop.handler()).await;
        assert_done_once(&world, &shop, &case).await;
    }
}

#[tokio::test]
async fn a_claim_that_is_never_confirmed_is_503_and_its_event_takes_place_once() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let plan = every_call("PutItem", Fault::LoseResponse);
    let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
    let receiver = receiver_through(&world, &proxy.url, &world.sqs_url).await;
    let delivery = stripe_delivery("evt_1");
    assert_eq!(deliver(&receiver, &delivery).await.status, 503, "nobody knows");
    assert_eq!(world.count_records().await, 1, "it took hold all the same");
    proxy.follow(|_, _| Fault::None);
    assert_eq!(deliver(&receiver, &delivery).await.status, 200, "the provider's retry");
    world.sweeper(Clock::with_offset(61_000)).sweep().await.expect("a pass");
    drain(&world, shop.handler()).await;
    assert_done_once(&world, &shop, "never confirmed").await;
}

#[tokio::test]
async fn a_claim_confirmed_too_late_takes_place_once() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let plan = nth_call("PutItem", 0, Fault::Delay(Duration::from_secs(3)));
    let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
    let receiver = receiver_through(&world, &proxy.url, &world.sqs_url).await;
    let delivery = stripe_delivery("evt_1");
    // Whether the second attempt fits the time there is depends on the load of the machine.
    let status = deliver(&receiver, &delivery).await.status;
    assert!(matches!(status, 200 | 503), "{status}");
    assert_eq!(deliver(&receiver, &delivery).await.status, 200, "the provider's retry");
    world.sweeper(Clock::with_offset(61_000)).sweep().await.expect("a pass");
    drain(&world, shop.handler()).await;
    assert_done_once(&world, &shop, "too late").await;
}

#[tokio::test]
async fn a_message_sent_twice_has_one_effect() {
    for (fault, messages) in [(Fault::LoseResponse, 2), (Fault::LoseRequest, 1)] {
        let world = World::start().await;
        let shop = Shop::open(world.ledger.client()).await;
        let case = format!("{fault:?}");
        let proxy = FaultProxy::start(&world.sqs_url, nth_call("SendMessage", 0, fault)).await;
        let receiver = receiver_through(&world, &world.dynamodb_url, &proxy.url).await;
        assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200, "{case}");
        assert_eq!(count(&proxy, "SendMessage"), 2, "{case}: the SDK has tried again");
        assert_eq!(world.queue_depth().await, (messages, 0), "{case}");
        drain(&world, shop.handler()).await;
        assert_done_once(&world, &shop, &case).await;
        assert_eq!(world.record("evt_1").await.expect("recorded").attempt, 1, "{case}");
    }
}

#[tokio::test]
async fn two_messages_of_one_event_at_once_have_one_effect() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let plan = nth_call("SendMessage", 0, Fault::LoseResponse);
    let proxy = FaultProxy::start(&world.sqs_url, plan).await;
    let receiver = receiver_through(&world, &world.dynamodb_url, &proxy.url).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let handler = shop.handler();
    let worker = world.worker(&stripe_config(), &[("test", Arc::clone(&handler) as _)]);
    world.work(&worker).await;
    assert_done_once(&world, &shop, "at once").await;
    assert_eq!(handler.called(), 1);
}

// ---- worker ---------------------------------------------------------------------------------

/// How the scripted handler ends its first attempt; its second succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Local writes and a step: the completion is a transaction.
    Commits,
    /// A step alone: the completion is an update.
    Completes,
    /// A step whose start is journalled first.
    Journals,
    Releases,
    Parks,
}

fn handler(shop: &Arc<Shop>, end: End) -> Arc<Scripted> {
    let shop = Arc::clone(shop);
    Scripted::new(move |event, effects| {
        let shop = Arc::clone(&shop);
        Box::pin(async move {
            match end {
                End::Commits => shop.serve(event, effects).await,
                End::Completes => shop.ship(event, effects, StepPolicy::Repeat).await,
                End::Journals => shop.ship(event, effects, StepPolicy::Never).await,
                End::Releases if event.attempt > 1 => shop.serve(event, effects).await,
                End::Releases => {
                    shop.ship(event, effects, StepPolicy::Repeat).await?;
                    Err(Failure::retry("later", "once more"))
                }
                End::Parks => {
                    shop.ship(event, effects, StepPolicy::Repeat).await?;
                    Err(Failure::permanent("never", "no"))
                }
            }
        })
    })
}

/// Runs one event whose worker meets `fault` at call number `nth` of `action`, and checks that it
/// ends as if there had been none.
async fn check_worker(end: End, action: &'static str, nth: usize, fault: Fault) {
    let case = format!("{end:?}: {action} {nth}: {fault:?}");
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let proxy = FaultProxy::start(&world.dynamodb_url, nth_call(action, nth, fault)).await;
    let handler = handler(&shop, end);
    let named: [(&str, Arc<dyn Handler>); 1] = [("test", Arc::clone(&handler) as _)];
    let worker_at =
        |clock| world.worker_at(&stripe_config(), &named, clock, &proxy.url, &world.sqs_url);

    let batch = world.receive_batch().await;
    let [message] = batch.records.as_slice() else { panic!("{case}: one message") };
    let body = message.body.as_deref().expect("a body");
    let receipt = message.receipt_handle.as_deref().expect("a handle");
    let deadline = Clock::default().now().plus(Duration::from_secs(40));
    let disposition = worker_at(Clock::default()).work_on(body, receipt, deadline).await;

    let record = world.record("evt_1").await.expect("recorded");
    assert_eq!((record.attempt, handler.called()), (1, 1), "{case}");
    let calls = if action == "TransactWriteItems" { 2 } else { expected_updates(end) + 1 };
    assert_eq!(count(&proxy, action), calls, "{case}: the SDK has tried again");
    let (state, expected) = match end {
        End::Commits | End::Completes | End::Journals => (StateName::Done, Disposition::Delete),
        End::Parks => (StateName::Failed, Disposition::Delete),
        End::Releases => (StateName::Received, Disposition::Keep),
    };
    assert_eq!((record.state.name(), disposition), (state, expected), "{case}");
    if end == End::Releases {
        // Past any first backoff.
        let later = worker_at(Clock::with_offset(10_000));
        assert_eq!(later.work_on(body, receipt, deadline).await, Disposition::Delete, "{case}");
        let record = world.record("evt_1").await.expect("recorded");
        assert_eq!((record.attempt, record.state.name()), (2, StateName::Done), "{case}");
    }
    // A step that is recorded is not called again, and what is closed has its result.
    assert_eq!(shop.calls().len(), 1, "{case}: {:?}", shop.calls());
    assert_eq!(world.record("evt_1").await.expect("recorded").steps.len(), 1, "{case}");
    let credits: Vec<_> = credits(world.ledger.client()).await.into_values().collect();
    let credited = matches!(end, End::Commits | End::Releases);
    assert_eq!(credits, if credited { vec![1] } else { vec![] }, "{case}");
}

/// `UpdateItem`s of a first attempt where nothing breaks.
fn expected_updates(end: End) -> usize {
    match end {
        End::Commits => 1,
        End::Completes | End::Releases | End::Parks => 2,
        End::Journals => 3,
    }
}

/// Every write that a worker makes, once.
fn writes() -> Vec<(End, &'static str, usize)> {
    vec![
        (End::Commits, "UpdateItem", 0),
        (End::Commits, "TransactWriteItems", 0),
        (End::Completes, "UpdateItem", 1),
        (End::Journals, "UpdateItem", 1),
        (End::Journals, "UpdateItem", 2),
        (End::Releases, "UpdateItem", 1),
        (End::Parks, "UpdateItem", 1),
    ]
}

#[tokio::test]
async fn a_workers_write_whose_answer_got_lost_counts_once() {
    let checks = writes().into_iter();
    let checks = checks.map(|(end, call, nth)| check_worker(end, call, nth, Fault::LoseResponse));
    futures::future::join_all(checks).await;
}

#[tokio::test]
async fn a_workers_write_that_got_lost_is_made_again() {
    let checks = writes().into_iter();
    let checks = checks.map(|(end, call, nth)| check_worker(end, call, nth, Fault::LoseRequest));
    futures::future::join_all(checks).await;
}

#[tokio::test]
async fn a_workers_write_that_is_confirmed_too_late_counts_once() {
    let late = Fault::Delay(PAST_ATTEMPT_TIMEOUT);
    let checks = writes().into_iter();
    let checks = checks.map(|(end, call, nth)| check_worker(end, call, nth, late.clone()));
    futures::future::join_all(checks).await;
}

#[tokio::test]
async fn a_completion_that_is_never_confirmed_leaves_its_message_and_no_second_effect() {
    let world = World::start().await;
    let shop = Shop::open(world.ledger.client()).await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let plan = every_call("TransactWriteItems", Fault::LoseResponse);
    let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
    let handler = shop.handler();
    let worker = world.worker_at(
        &stripe_config(),
        &[("test", Arc::clone(&handler) as _)],
        Clock::default(),
        &proxy.url,
        &world.sqs_url,
    );
    let batch = world.receive_batch().await;
    let body = batch.records[0].body.clone().expect("a body");
    let receipt = batch.records[0].receipt_handle.clone().expect("a handle");
    let deadline = Clock::default().now().plus(Duration::from_secs(40));
    let disposition = worker.work_on(&body, &receipt, deadline).await;
    let credits = credits(world.ledger.client()).await;
    assert_eq!(credits.into_values().collect::<Vec<_>>(), [1], "it took hold, and once");
    assert_eq!(disposition, Disposition::Keep, "nobody knows");
    proxy.follow(|_, _| Fault::None);
    let disposition = worker.work_on(&body, &receipt, deadline).await;
    assert_eq!(disposition, Disposition::Delete, "by then the record tells");
    assert_done_once(&world, &shop, "never confirmed").await;
    assert_eq!(handler.called(), 1);
}

// ---- what each write says of itself ---------------------------------------------------------

/// A lease of `evt_1` taken through `ledger`.
async fn take(ledger: &Ledger) -> Lease {
    let now = Clock::default().now();
    let owner = LeaseOwner("me".to_owned());
    let until = now.plus(Duration::from_secs(60));
    let take = lease(&stripe_key("evt_1"), owner, now, until, Duration::ZERO, None);
    let written = ledger.write(&take.write, Returning::Record).await.expect("an outcome");
    let leased = take.settle(written).expect("readable");
    let Leased::Held(lease, record) = leased else { panic!("not held: {leased:?}") };
    assert_eq!((lease.fence(), record.attempt), (1, 1));
    lease
}

/// A world with `evt_1` received, and a ledger through a proxy that breaks as told.
async fn broken_ledger(
    plan: impl FnMut(&str, usize) -> Fault + Send + 'static,
) -> (World, FaultProxy, Ledger) {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    deliver(&receiver, &stripe_delivery("evt_1")).await;
    let proxy = FaultProxy::start(&world.dynamodb_url, plan).await;
    let ledger = Ledger::new(dynamodb_config(&proxy.url), TABLE.to_owned());
    (world, proxy, ledger)
}

#[tokio::test]
async fn each_write_under_a_lease_recognises_itself() {
    let now = Clock::default().now();
    let config = parse(&stripe_config());
    let policy = config.sources.values().next().expect("a source").policy;
    let note = ErrorNote::new("class", "text", now);
    type Write<'a> = Box<dyn Fn(&Lease) -> Fenced + 'a>;
    let wait = Duration::from_secs(5);
    let writes: [(&str, Write<'_>); 3] = [
        ("complete", Box::new(|lease| lease.complete(&[], now, &policy))),
        ("release", Box::new(|lease| lease.release(wait, &note, &[], now))),
        ("park", Box::new(|lease| lease.park(&note, &[], now))),
    ];
    for (case, write) in writes {
        // The lease's answer is lost, and so is the write's.
        let mut updates = 0;
        let plan = move |action: &str, _| {
            updates += usize::from(action == "UpdateItem");
            if matches!(updates, 1 | 3) { Fault::LoseResponse } else { Fault::None }
        };
        let (_world, proxy, ledger) = broken_ledger(plan).await;
        let fenced = write(&take(&ledger).await);
        let written = ledger.write(&fenced.write, Returning::Nothing).await.expect("an outcome");
        assert_eq!(count(&proxy, "UpdateItem"), 4, "{case}");
        assert_eq!(fenced.settle(written), Ok(FencedOutcome::Applied), "{case}");
    }
}

/// By its token, which the ledger remembers; past that by owner and fence, as an update.
#[tokio::test]
async fn a_transaction_recognises_itself() {
    let plan = nth_call("TransactWriteItems", 0, Fault::LoseResponse);
    let (_world, proxy, ledger) = broken_ledger(plan).await;
    let config = parse(&stripe_config());
    let policy = config.sources.values().next().expect("a source").policy;
    let lease = take(&ledger).await;
    let complete = lease.complete(&[], Clock::default().now(), &policy);
    let committed = ledger.commit(&complete.write, &lease, Vec::new()).await;
    let Committed::Record(written) = committed.expect("an outcome") else { panic!("refused") };
    assert_eq!(complete.settle(written), Ok(FencedOutcome::Applied));
    assert_eq!(count(&proxy, "TransactWriteItems"), 2);
}

#[tokio::test]
async fn anothers_write_is_not_taken_for_an_own_one() {
    let (world, _proxy, ledger) = broken_ledger(|_, _| Fault::None).await;
    let now = Clock::default().now();
    let mine = take(&ledger).await;
    // Past the end of the lease another takes over, and completes.
    let later = now.plus(Duration::from_secs(120));
    let owner = LeaseOwner("another".to_owned());
    let until = later.plus(Duration::from_secs(60));
    let over = lease(mine.key(), owner, later, until, Duration::ZERO, None);
    let written = ledger.write(&over.write, Returning::Record).await.expect("an outcome");
    let Leased::Held(theirs, _) = over.settle(written).expect("readable") else { panic!("held") };
    let config = parse(&stripe_config());
    let policy = config.sources.values().next().expect("a source").policy;
    for lease in [&theirs, &mine] {
        let complete = lease.complete(&[], later, &policy);
        let written = ledger.write(&complete.write, Returning::Nothing).await.expect("an outcome");
        let outcome = complete.settle(written).expect("readable");
        assert_eq!(outcome == FencedOutcome::Applied, lease.fence() == 2, "{outcome:?}");
    }
    assert_eq!(world.record("evt_1").await.expect("recorded").attempt, 2);
}
