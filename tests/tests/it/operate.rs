//! `hookonce events` and `hookonce queue`, as an operator calls them: the built command against the
//! emulators, with the real receiver, worker and sweeper at work beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::QueueAttributeName;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    effects::StepPolicy,
    event::Event,
    record::{ClaimId, State, StateName, StoredPayload},
    time::Timestamp,
    transition::{FencedOutcome, Operator, claim},
};
use dynamo::{Ledger, LedgerError, Returning};
use futures::{StreamExt as _, stream};
use hookonce::operate::{
    act::{Acted, Candidate, Enqueued, Hands, Replay, candidates},
    connect, moment,
    page::Filter,
    policies::Policies,
};
use runtime::{aws::Patience, clock::Clock};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tests::{
    bucket::Bucket,
    dev::{Dev, eventually},
    handlers::Scripted,
    play::{Callee, Gate, accounts, balance, credit, stripe_policy, stripe_with},
    programs::{Ended, hookonce, run},
    proxy::{Fault, FaultProxy},
    world::{TABLE, World, deliver, stripe_body, stripe_config, stripe_delivery, stripe_key},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};
use worker::Failure;

/// Somebody at a terminal.
struct Terminal<'a> {
    world: &'a World,
    dynamodb_url: String,
    folder: TempDir,
}

impl<'a> Terminal<'a> {
    fn at(world: &'a World) -> Self {
        Self::through(world, &world.dynamodb_url)
    }

    fn through(world: &'a World, dynamodb_url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { world, dynamodb_url: dynamodb_url.to_owned(), folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from(hookonce(self.folder.path()));
        command
            .args(arguments)
            .args(["--endpoint", &self.dynamodb_url, "--table", TABLE])
            .env("HOOKONCE_QUEUE_URL", &self.world.queue_url)
            .env("USER", "ada");
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().await.expect("hookonce starts").into()
    }

    /// Its lines, as JSON.
    async fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let ended = self.run(&[arguments, &["--json"]].concat()).await;
        let line =
            |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {ended:?}"));
        ended.stdout.lines().map(line).collect()
    }

    async fn show(&self, id: &str) -> Value {
        let lines = self.json(&["events", "show", &pk(id)]).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].clone()
    }
}

fn pk(id: &str) -> String {
    stripe_key(id).pk()
}

fn said(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let all = format!("{}{}", ended.stdout, ended.stderr);
    let missing: Vec<_> = words.iter().filter(|word| !all.contains(*word)).collect();
    assert!(missing.is_empty(), "does not say {missing:?}: {ended:?}");
}

// ---- stuck ----------------------------------------------------------------------------------

#[tokio::test]
async fn a_stuck_event_is_shown_taken_from_its_worker_and_finished_by_the_next() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    world.claim(&stripe_config(), "evt_1").await;
    world.drain().await;
    let now = Clock::default().now();
    let (lost, _) = world.hold("evt_1", now, now.plus(Duration::from_secs(600))).await;

    let shown = operator.show("evt_1").await;
    assert_eq!(shown["state"], "processing");
    assert_eq!(shown["attempt"], 1);
    let next = shown["next"].to_string();
    assert!(next.contains("the lease of its worker ends"), "{next}");
    assert!(next.contains("takes over"), "{next}");

    let unstick = ["events", "unstick", &pk("evt_1"), "--reason", "its host is gone"];
    let before = world.expect_item("evt_1").await;
    let refused = operator.run(&unstick).await;
    said(&refused, 1, &["its worker may be alive", "--yes"]);
    assert_eq!(world.expect_item("evt_1").await, before);

    let freed = operator.run(&[&unstick[..], &["--yes"]].concat()).await;
    said(&freed, 0, &["taken from its worker: enqueued"]);
    let late = lost.complete(&[], Clock::default().now(), &stripe_policy(&stripe_config()));
    let written = world.ledger.write(&late.write, Returning::Nothing).await.expect("an answer");
    let outcome = late.settle(written).expect("readable");
    assert!(matches!(outcome, FencedOutcome::Lost(_)), "{outcome:?}");

    let handler = done();
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_eq!(handler.called(), 1);
    let shown = operator.show("evt_1").await;
    assert_eq!((&shown["state"], &shown["attempt"]), (&json!("done"), &json!(2)));
    let history = &shown["history"][0];
    assert_eq!(
        (&history["did"], &history["by"], &history["reason"]),
        (&json!("unstick"), &json!("ada"), &json!("its host is gone"))
    );
}

#[tokio::test]
async fn of_an_operator_and_a_live_worker_at_once_one_wins_and_the_effect_is_one() {
    let world = World::start().await;
    accounts(&world).await;
    for round in 0..6 {
        let id = format!("evt_{round}");
        let gate = Arc::new(Gate::default());
        // The worker goes on once the operator has ended, before it begins, or after it has looked.
        let (is_last, is_first) = (round == 0, round == 1);
        let looked = Arc::clone(&gate);
        let proxy = FaultProxy::start(&world.dynamodb_url, move |action, _| {
            if action == "GetItem" && !is_last {
                looked.open();
            }
            Fault::None
        });
        let proxy = proxy.await;
        let operator = Terminal::through(&world, &proxy.url);
        let (held_up, account) = (Arc::clone(&gate), id.clone());
        let handler = Scripted::new(move |_, effects| {
            let (gate, account) = (Arc::clone(&held_up), account.clone());
            Box::pin(async move {
                effects.write(credit(&account))?;
                gate.pass().await;
                Ok(())
            })
        });
        world.claim(&stripe_config(), &id).await;
        let worker = world.scripted(&stripe_config(), &handler);
        let unstick = async {
            gate.wait_for(1).await;
            let key = pk(&id);
            if is_first {
                gate.open();
            }
            let ended = operator.run(&["events", "unstick", &key, "--reason", "x", "--yes"]).await;
            gate.open();
            ended
        };
        let (_, ended) = tokio::join!(world.work(&worker), unstick);
        let record = world.expect_record(&id).await;
        match ended.code {
            Some(0) => assert_eq!((record.state.name(), record.replays), (StateName::Received, 1)),
            Some(1) => {
                said(&ended, 1, &["not changed", "done"]);
                assert_eq!((record.state.name(), record.replays), (StateName::Done, 0));
            }
            _ => panic!("{ended:?}"),
        }
        while world.queue_depth().await.0 > 0 {
            world.work(&worker).await;
        }
        assert_eq!(world.expect_record(&id).await.state.name(), StateName::Done);
        assert_eq!(balance(&world, &id).await, Some(1), "round {round}");
    }
}

// ---- parked ---------------------------------------------------------------------------------

#[tokio::test]
async fn a_parked_event_is_shown_with_its_error_and_replayed_under_the_same_key() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    world.claim(&stripe_config(), "evt_1").await;
    let callee = Arc::new(Callee::default());
    let handler = charging(&callee, Some("card_declined"));
    world.work(&world.scripted(&stripe_config(), &handler)).await;

    let text = operator.run(&["events", "show", &pk("evt_1")]).await;
    said(&text, 0, &["failed", "card_declined", "until a person replays or discards it"]);
    let listed = operator.json(&["events", "list", "--state", "failed"]).await;
    assert_eq!(listed[0]["key"], pk("evt_1"));
    assert_eq!(listed[0]["last_error"]["class"], "card_declined");

    let replay = ["events", "replay", &pk("evt_1"), "--reason", "card replaced", "--by", "bob"];
    said(&operator.run(&replay).await, 0, &["replayed: enqueued"]);
    let mended = charging(&callee, None);
    world.work(&world.scripted(&stripe_config(), &mended)).await;
    let shown = operator.show("evt_1").await;
    assert_eq!(shown["state"], "done");
    assert_eq!(shown["history"][0]["by"], "bob");
    let keys = callee.keys();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    assert_eq!(shown["steps"]["charge"]["key"], keys[0].as_str());

    // Done: a replay would credit again, and wants to be confirmed.
    let before = world.expect_item("evt_1").await;
    said(&operator.run(&replay).await, 1, &["it is done", "--yes"]);
    assert_eq!(world.expect_item("evt_1").await, before);
    said(&operator.run(&[&replay[..], &["--yes"]].concat()).await, 0, &["replayed"]);
    world.work(&world.scripted(&stripe_config(), &mended)).await;
    assert_eq!(callee.called(), 2, "the journal had its result");
    let forgetting = [&replay[..], &["--yes", "--forget-steps"]].concat();
    said(&operator.run(&forgetting).await, 0, &["every step is called again", "replayed"]);
    world.work(&world.scripted(&stripe_config(), &mended)).await;
    assert_eq!(callee.keys(), vec![keys[0].clone(); 3], "called again, under the same key");
}

#[tokio::test]
async fn a_discarded_event_is_closed_and_only_a_parked_one_is_discarded() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    for id in ["evt_parked", "evt_done"] {
        world.claim(&stripe_config(), id).await;
        let handler = if id == "evt_done" { done() } else { refusing() };
        world.work(&world.scripted(&stripe_config(), &handler)).await;
    }
    let call = ["events", "discard", &pk("evt_parked"), &pk("evt_done"), "--reason", "a test"];
    let ended = operator.run(&call).await;
    said(&ended, 1, &["evt_parked: discarded", "evt_done: not changed: the event is done"]);
    let listed = operator.json(&["events", "list", "--state", "discarded,done"]).await;
    let states: BTreeMap<_, _> =
        listed.iter().filter_map(|line| Some((line["key"].as_str()?, &line["state"]))).collect();
    let expected = [(&*pk("evt_done"), &json!("done")), (&*pk("evt_parked"), &json!("discarded"))];
    assert_eq!(states, expected.into());
    assert!(matches!(world.expect_record("evt_parked").await.state, State::Discarded(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_was_too_slow_hears_how_the_event_stands_and_changes_nothing() {
    let world = Arc::new(World::start().await);
    park(&world, "evt_1").await;
    // Between the operator's look and its write a second one replays.
    let (other, runtime) = (Arc::clone(&world), tokio::runtime::Handle::current());
    let mut first = true;
    let proxy = FaultProxy::start(&world.dynamodb_url, move |action, _| {
        if action == "UpdateItem" && std::mem::take(&mut first) {
            tokio::task::block_in_place(|| runtime.block_on(other.replay("evt_1", false)));
        }
        Fault::None
    });
    let proxy = proxy.await;
    let operator = Terminal::through(&world, &proxy.url);
    let ended = operator.run(&["events", "discard", &pk("evt_1"), "--reason", "no use"]).await;
    said(&ended, 1, &["not changed", "somebody was faster: it waits for a worker"]);
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.replays), (StateName::Received, 1));
}

#[tokio::test]
async fn a_replay_whose_answer_got_lost_is_known_to_have_taken_hold_and_enqueued_once() {
    let world = World::start().await;
    park(&world, "evt_1").await;
    let mut first = true;
    let proxy = FaultProxy::start(&world.dynamodb_url, move |action, _| {
        let lose = action == "UpdateItem" && std::mem::take(&mut first);
        if lose { Fault::LoseResponse } else { Fault::None }
    });
    let proxy = proxy.await;
    let operator = Terminal::through(&world, &proxy.url);
    let ended = operator.run(&["events", "replay", &pk("evt_1"), "--reason", "mended"]).await;
    said(&ended, 0, &["replayed: enqueued"]);
    assert_eq!(proxy.calls().iter().filter(|call| *call == "UpdateItem").count(), 2);
    assert_eq!(world.expect_record("evt_1").await.replays, 1);
    assert_eq!(world.queue_depth().await, (1, 0));
}

#[tokio::test]
async fn a_replay_that_cannot_be_enqueued_is_left_to_the_sweeper_and_says_so() {
    let world = World::start().await;
    park(&world, "evt_1").await;
    let operator = Terminal::at(&world);
    let key = pk("evt_1");
    let nowhere = "http://127.0.0.1:1/000000000000/events";
    let call = ["events", "replay", &key, "--reason", "mended", "--queue-url", nowhere];
    said(&operator.run(&call).await, 0, &["replayed: the sweeper enqueues it"]);
    let State::Received { due_at, .. } = world.expect_record("evt_1").await.state else {
        panic!("open")
    };
    let clock = Clock::starting_at(due_at.plus(Duration::from_secs(1)));
    world.sweeper(clock).sweep().await.expect("a complete pass");
    assert_eq!(world.queue_depth().await, (1, 0));
}

// ---- many -----------------------------------------------------------------------------------

#[tokio::test]
async fn a_thousand_parked_events_are_paged_and_replayed_once_each_after_a_dry_run_that_does_nothing()
 {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    park_old(&world.ledger, 1000).await;
    // Of another source, and not meant.
    world.claim(&stripe_config(), "evt_open").await;
    world.drain().await;

    let pages = pages(&operator, &["events", "list", "--state", "failed", "--limit", "300"]).await;
    let counts: Vec<_> = pages.iter().map(Vec::len).collect();
    assert_eq!(counts, [300, 300, 300, 100]);
    let keys: Vec<_> = pages.concat();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1000);

    let replay =
        ["events", "replay", "--error", "beyond_horizon", "--source", "stripe", "--reason", "why"];
    let before = world.expect_item("old_7").await;
    let dry = operator.json(&replay).await;
    assert_eq!((&dry[0]["dry_run"], &dry[0]["events"]), (&json!(true), &json!(1000)));
    assert_eq!(dry[0]["groups"][0]["error"], "beyond_horizon");
    assert_eq!(world.expect_item("old_7").await, before);
    assert_eq!(world.queue_depth().await, (0, 0));

    let replayed = operator.json(&[&replay[..], &["--yes"]].concat()).await;
    let last = replayed.last().expect("a summary");
    assert_eq!((&last["replayed"], &last["not_replayed"]), (&json!(1000), &json!(0)), "{last}");
    let seen = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let counted = Arc::clone(&seen);
    let handler = Scripted::new(move |event, _| {
        let mut seen = counted.lock().unwrap_or_else(PoisonError::into_inner);
        *seen.entry(event.key.id().as_str().to_owned()).or_default() += 1;
        Box::pin(async { Ok(()) })
    });
    let worker = world.scripted(&stripe_config(), &handler);
    while world.queue_depth().await.0 > 0 {
        world.work(&worker).await;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(seen.len(), 1000);
    assert!(seen.values().all(|times| *times == 1));
    let again = operator.json(&[&replay[..], &["--yes"]].concat()).await;
    assert_eq!(again[0]["replayed"], 0);
}

#[tokio::test]
async fn a_bulk_replay_takes_the_oldest_first_and_no_more_than_it_is_told() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    park_old(&world.ledger, 5).await;
    let listed = pages(&operator, &["events", "list", "--limit", "2"]).await;
    let expected = [&["old_0", "old_1"][..], &["old_2", "old_3"], &["old_4"]];
    assert_eq!(listed, expected.map(|page| page.iter().map(|id| pk(id)).collect::<Vec<_>>()));
    // They may have run before: nobody replays them by mistake.
    let replay = ["events", "replay", "--state", "failed", "--reason", "try a few", "--limit", "2"];
    let unasked = operator.json(&[&replay[..], &["--yes"]].concat()).await;
    assert_eq!((&unasked[0]["replayed"], &unasked[0]["too_late"]), (&json!(0), &json!(5)));
    let replay = [&replay[..], &["--error", "beyond_horizon"]].concat();
    let dry = operator.json(&replay).await;
    assert_eq!((&dry[0]["events"], &dry[0]["more"]), (&json!(2), &json!(true)));
    let ended = operator.run(&[&replay[..], &["--yes"]].concat()).await;
    said(&ended, 0, &["2 of 2 event(s) and there are more"]);
    assert!(!ended.stderr.contains('\u{1b}'), "a bar where there is no terminal: {ended:?}");
    let left = pages(&operator, &["events", "list", "--state", "failed"]).await.concat();
    assert_eq!(left, ["old_2", "old_3", "old_4"].map(pk));
}

#[tokio::test]
async fn a_bulk_replay_leaves_what_was_replayed_since_it_was_listed() {
    let world = World::start().await;
    let colleague = Terminal::at(&world);
    accounts(&world).await;
    for id in ["evt_done", "evt_again", "evt_same"] {
        park(&world, id).await;
    }
    let (source, since, until, error) = Default::default();
    let filter = Filter { states: [StateName::Failed].into(), source, since, until, error };
    let listed = candidates(&world.ledger, &filter, 10).await.expect("a list").events;
    assert_eq!(listed.len(), 3);
    for (id, handler) in [("evt_done", crediting()), ("evt_again", refusing())] {
        let ended = colleague.run(&["events", "replay", &pk(id), "--reason", "mended"]).await;
        said(&ended, 0, &["replayed: enqueued"]);
        world.work(&world.scripted(&stripe_config(), &handler)).await;
    }

    let queue = connect::queue(&world.queue_url).await.expect("a queue");
    let policies = Policies::load(None).await.expect("the catalogue's");
    let hands = Hands {
        ledger: &world.ledger,
        queue: Some(&queue),
        policies: &policies,
        clock: Clock::default(),
        operator: Operator { name: "bob", reason: "deploy reverted" },
    };
    let mut expected = BTreeMap::from([
        (pk("evt_done"), Acted::Moved { state: StateName::Done, attempt: 2 }),
        (pk("evt_again"), Acted::Moved { state: StateName::Failed, attempt: 2 }),
        (pk("evt_same"), Acted::Applied(Enqueued::Sent)),
    ]);
    let how = Replay { even_done: true, ..Replay::default() };
    let ended = |event: &Candidate, acted: &Result<Acted, LedgerError>| {
        let acted = acted.as_ref().expect("known");
        assert_eq!(expected.remove(&event.key.pk()).as_ref(), Some(acted), "{event:?}");
    };
    hands.replay_all(&listed, how, ended).await;
    assert!(expected.is_empty(), "{expected:?}");
    let worker = world.scripted(&stripe_config(), &crediting());
    while world.queue_depth().await.0 > 0 {
        world.work(&worker).await;
    }
    let record = world.expect_record("evt_done").await;
    assert_eq!((record.state.name(), record.replays), (StateName::Done, 1));
    assert_eq!(balance(&world, "evt_done").await, Some(1));
    assert_eq!(balance(&world, "evt_same").await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_replays_a_selection_hears_what_a_colleague_has_finished_meanwhile() {
    let world = Arc::new(World::start().await);
    accounts(&world).await;
    park(&world, "evt_1").await;
    // The first look at the record is the list's, the second the replay's.
    let (other, runtime) = (Arc::clone(&world), tokio::runtime::Handle::current());
    let mut looks = 0;
    let proxy = FaultProxy::start(&world.dynamodb_url, move |action, _| {
        looks += u32::from(action == "GetItem");
        if action == "GetItem" && looks == 2 {
            let worker = other.scripted(&stripe_config(), &crediting());
            let finish = async {
                other.replay("evt_1", false).await;
                other.enqueue("evt_1").await;
                other.work(&worker).await;
            };
            tokio::task::block_in_place(|| runtime.block_on(finish));
        }
        Fault::None
    });
    let proxy = proxy.await;
    let operator = Terminal::through(&world, &proxy.url);
    let replay = ["events", "replay", "--state", "failed", "--reason", "reverted", "--yes"];
    let ended = operator.run(&replay).await;
    said(&ended, 1, &["somebody was faster: it is done now, after 2 attempt(s)", "0 of 1"]);
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.replays), (StateName::Done, 1));
    assert_eq!(world.queue_depth().await, (0, 0));
    assert_eq!(balance(&world, "evt_1").await, Some(1));
}

#[tokio::test]
async fn a_selection_that_names_done_events_has_them_replayed() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    world.claim(&stripe_config(), "evt_1").await;
    world.work(&world.scripted(&stripe_config(), &done())).await;
    let replay = ["events", "replay", "--state", "done", "--reason", "lost downstream", "--yes"];
    said(&operator.run(&replay).await, 0, &["1 of 1 event(s) replayed"]);
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.replays), (StateName::Received, 1));
}

#[tokio::test]
async fn a_bulk_replay_that_cannot_be_enqueued_says_once_why() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let replay = ["events", "replay", "--state", "failed", "--reason", "mended", "--yes"];
    for (queue_url, why) in [
        ("", "as no queue was named"),
        ("http://127.0.0.1:1/000000000000/events", "as SendMessage on"),
    ] {
        for number in 0..2 {
            park(&world, &format!("evt_{}_{number}", queue_url.len())).await;
        }
        let mut command = operator.command(&replay);
        let ended: Ended =
            command.env("HOOKONCE_QUEUE_URL", queue_url).output().await.expect("runs").into();
        said(&ended, 0, &["2 of them are left to the sweeper to enqueue, the first", why]);
        assert_eq!(ended.stdout.matches(why).count(), 1, "{ended:?}");
    }
    for id in ["evt_1", "evt_2"] {
        park(&world, id).await;
    }
    let nowhere = ["--queue-url", "http://127.0.0.1:1/000000000000/events"];
    let told = operator.json(&[&replay[..], &nowhere].concat()).await;
    let (by_sweep, why) = (&told[0]["enqueued_by_sweep"], &told[0]["why_by_sweep"]);
    assert_eq!((by_sweep, why.is_string()), (&json!(2), true), "{told:?}");
}

#[test]
fn a_replay_offers_no_state_that_it_would_refuse() {
    let help = run(&std::env::temp_dir(), &["events", "replay", "--help"]);
    said(&help, 0, &["failed or done"]);
    for refused in ["received,", "processing", "discarded"] {
        assert!(!help.stdout.contains(refused), "{refused}: {help:?}");
    }
}

// ---- listing --------------------------------------------------------------------------------

#[tokio::test]
async fn lists_keep_to_what_is_asked_for_and_pages_leave_nothing_out() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    for number in 0..7 {
        world.claim(&stripe_config(), &format!("evt_{number}")).await;
    }
    let ids = |numbers: std::ops::Range<u8>| -> BTreeSet<String> {
        numbers.map(|number| pk(&format!("evt_{number}"))).collect()
    };
    let list = async |arguments: &[&str]| -> BTreeSet<String> {
        let all = [&["events", "list", "--limit", "2"], arguments].concat();
        pages(&operator, &all).await.into_iter().flatten().collect()
    };
    assert_eq!(list(&[]).await, ids(0..7));
    world.work(&world.scripted(&stripe_config(), &done())).await;
    for number in 7..10 {
        world.claim(&stripe_config(), &format!("evt_{number}")).await;
    }
    assert_eq!(list(&["--state", "done"]).await, ids(0..7));
    assert_eq!(list(&["--state", "received"]).await, ids(7..10));
    assert_eq!(list(&["--state", "processing,failed"]).await, BTreeSet::new());
    assert_eq!(list(&["--state", "received,done"]).await, ids(0..10));
    assert_eq!(list(&["--source", "stripe-2"]).await, BTreeSet::new());
    // Pages that end by what they looked at, some of them without having found any.
    for state in ["done", "received"] {
        let expected = if state == "done" { ids(0..7) } else { ids(7..10) };
        let (all, none) =
            (["--state", state, "--look-at", "1"], ["--since", "2999-01-01T00:00:00Z"]);
        assert_eq!(list(&all).await, expected);
        assert_eq!(list(&[&all[..], &none].concat()).await, BTreeSet::new());
    }
    let first = operator.json(&["events", "list", "--state", "discarded", "--look-at", "4"]).await;
    assert_eq!((&first[0]["shown"], &first[0]["looked_at"]), (&json!(0), &json!(4)));
    assert!(first[0]["next"].is_string(), "a part, and not said so: {first:?}");
    assert_eq!(list(&["--since", "1h"]).await, ids(7..10));
    for none in [["--until", "1h"], ["--older-than", "1h"], ["--since", "2999-01-01T00:00:00Z"]] {
        assert_eq!(list(&none).await, BTreeSet::new(), "{none:?}");
    }
    let wrong = ["events", "list", "--state", "done", "--after", "1:stripe#evt_1"];
    said(&operator.run(&wrong).await, 2, &["1:stripe#evt_1", "the same --state"]);
}

#[tokio::test]
async fn a_page_that_reads_on_and_on_for_what_it_wants_neither_skips_nor_repeats() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let began = park_old(&world.ledger, 200).await;
    let since = moment(began.plus(Duration::from_millis(14)));
    // Small pages, and their first has to read past a hundred that are too old.
    let list = ["events", "list", "--state", "failed", "--limit", "20", "--since", &since];
    let keys = pages(&operator, &list).await.concat();
    let number = |key: &String| key.trim_start_matches("stripe#old_").parse::<u32>().expect("one");
    assert!(keys.is_sorted_by_key(|key| number(key) / IN_A_MILLISECOND), "{keys:?}");
    let mut numbers: Vec<_> = keys.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (14 * IN_A_MILLISECOND..200).collect::<Vec<_>>());
    // Five at a time, so that the reads end within milliseconds that a shard has more of.
    let list = ["events", "list", "--limit", "5", "--since", "2999-01-01T00:00:00Z"];
    let none = operator.json(&list).await;
    assert_eq!((&none[0]["looked_at"], &none[0]["next"]), (&json!(200), &Value::Null));
}

#[tokio::test]
async fn what_a_payload_says_does_not_reach_the_terminal_as_a_command() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let body =
        json!({ "id": "evt_1", "type": "a\u{1b}[2Jb", "created": 1, "data": { "object": {} } });
    let receiver = world.receiver(&stripe_config()).await;
    let answer = deliver(&receiver, &stripe_body(body.to_string().as_bytes())).await;
    assert_eq!(answer.status, 200);
    for call in [&["events", "list"][..], &["events", "show", &pk("evt_1")]] {
        let ended = operator.run(call).await;
        said(&ended, 0, &["a\\u{1b}[2Jb"]);
        assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_listed_as_such() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    for id in ["evt_1", "evt_2"] {
        world.claim(&stripe_config(), id).await;
    }
    world.tamper("evt_1", "attempt", AttributeValue::S("none".to_owned())).await;
    let listed = operator.json(&["events", "list"]).await;
    let unreadable: Vec<_> = listed.iter().filter(|line| line["unreadable"].is_string()).collect();
    assert_eq!(unreadable.len(), 1, "{listed:?}");
    assert_eq!(unreadable[0]["key"], pk("evt_1"));
    assert_eq!(listed.last().expect("a summary")["shown"], 2);
    let shown = operator.run(&["events", "show", &pk("evt_1")]).await;
    said(&shown, 2, &["attempt", "is not of its type"]);
}

#[tokio::test]
async fn a_payload_comes_back_byte_for_byte_and_a_dropped_one_says_so() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let delivery = stripe_delivery("evt_1");
    world.claim(&stripe_config(), "evt_1").await;
    let call = operator.command(&["events", "payload", &pk("evt_1")]).output().await.expect("runs");
    assert_eq!((call.status.code(), &call.stdout), (Some(0), &delivery.body));
    let told = operator.json(&["events", "payload", &pk("evt_1")]).await;
    let expected = json!({ "key": pk("evt_1"), "payload_base64": STANDARD.encode(&delivery.body) });
    assert_eq!(told, [expected]);
    let dropping = stripe_with("payload", "drop-when-done");
    world.work(&world.scripted(&dropping, &done())).await;
    let dropped = operator.run(&["events", "payload", &pk("evt_1")]).await;
    said(&dropped, 1, &["was dropped", "drop-when-done"]);
    assert!(dropped.stdout.is_empty());
    let replay = ["events", "replay", &pk("evt_1"), "--reason", "why not", "--yes"];
    said(&operator.run(&replay).await, 1, &["the payload was dropped"]);
}

#[tokio::test]
async fn a_payload_in_the_bucket_is_named_and_not_written() {
    let (world, bucket) = (World::start().await, Bucket::start().await);
    let operator = Terminal::at(&world);
    let receiver = world.receiver(&stripe_config()).await;
    let receiver = receiver.with_payloads(Some(bucket.store(Patience::RECEIVER)));
    // Digests in hex halve at best, and that half is more than fits on a record.
    let noise = |n: u32| format!("{:x}", Sha256::digest(n.to_be_bytes()));
    let noise: String = (0..16_000).map(noise).collect();
    let body = json!({ "id": "evt_1", "type": "charge.refunded", "created": 1, "noise": noise });
    let answer = deliver(&receiver, &stripe_body(body.to_string().as_bytes())).await;
    assert_eq!(answer.status, 200);
    let name = bucket.objects().keys().next().expect("an object").clone();
    for json in [&[][..], &["--json"]] {
        let ended = operator.run(&[&["events", "payload", &pk("evt_1")][..], json].concat()).await;
        said(&ended, 1, &["in the deployment's bucket", &name]);
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
    let help = operator.run(&["events", "payload", "--help"]).await;
    said(&help, 0, &["base64", "in the bucket", "is not written", "exit code is 1"]);
}

#[tokio::test]
async fn a_tail_tells_of_an_event_when_it_comes_and_when_it_is_parked() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let mut tail = operator
        .command(&["events", "tail", "--every", "1s", "--json"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("hookonce starts");
    let mut lines = BufReader::new(tail.stdout.take().expect("piped")).lines();
    world.claim(&stripe_config(), "evt_1").await;
    let mut next = async || -> Value {
        let line = lines.next_line().await.expect("text").expect("a line");
        serde_json::from_str(&line).expect("JSON")
    };
    let came = next().await;
    assert_eq!((&came["key"], &came["state"]), (&json!(pk("evt_1")), &json!("received")));
    world.work(&world.scripted(&stripe_config(), &refusing())).await;
    let parked = next().await;
    assert_eq!((&parked["key"], &parked["state"]), (&json!(pk("evt_1")), &json!("failed")));
}

// ---- the queue ------------------------------------------------------------------------------

#[tokio::test]
async fn a_poison_message_is_explained_and_still_lies_there() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let dead = dead_letter_queue(&world, 2).await;
    said(&operator.run(&["queue", "status"]).await, 0, &["dead letters  0 waiting"]);
    world.enqueue_body("{\"not\":\"ours\"}").await;
    // Twice received and not deleted; at the third time SQS gives it up.
    for _ in 0..3 {
        let received = world.sqs.receive_message().queue_url(&world.queue_url);
        received.visibility_timeout(0).send().await.expect("an answer");
    }
    assert_eq!(depth(&world, &dead).await, (1, 0));
    let status = operator.run(&["queue", "status"]).await;
    said(&status, 1, &["dead letters  1 waiting", "queue         0 waiting"]);
    for _ in 0..2 {
        let letters = operator.json(&["queue", "dead-letters"]).await;
        assert_eq!(letters.len(), 2, "{letters:?}");
        let explained = letters[0]["explained"].as_str().expect("text");
        assert!(explained.starts_with("unreadable: the message is not of the form"), "{explained}");
        assert_eq!(letters[0]["redrive"], "stay");
        assert_eq!(depth(&world, &dead).await, (1, 0), "given back");
    }
}

#[tokio::test]
async fn a_redrive_goes_through_the_records_and_leaves_what_is_for_a_person() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let dead = dead_letter_queue(&world, 100).await;
    park(&world, "evt_parked").await;
    world.claim(&stripe_config(), "evt_done").await;
    world.work(&world.scripted(&stripe_config(), &done())).await;
    world.claim(&stripe_config(), "evt_open").await;
    world.drain().await;
    for id in ["evt_parked", "evt_done", "evt_open", "evt_nobody"] {
        send(&world, &dead, &format!(r#"{{"v":1,"key":"{}"}}"#, pk(id))).await;
    }
    send(&world, &dead, "hello").await;
    let before = world.expect_item("evt_open").await;

    let dry = operator.json(&["queue", "redrive"]).await;
    let fates: BTreeMap<_, _> = dry
        .iter()
        .filter(|line| line["message_id"].is_string())
        .map(|line| (line["key"].as_str().unwrap_or("unreadable"), line["redrive"].as_str()))
        .collect();
    let (parked, closed, open, nobody) =
        (pk("evt_parked"), pk("evt_done"), pk("evt_open"), pk("evt_nobody"));
    let expected = [
        (&*parked, Some("parked")),
        (&*closed, Some("delete")),
        (&*open, Some("enqueue")),
        (&*nobody, Some("stay")),
        ("unreadable", Some("stay")),
    ];
    assert_eq!(fates, expected.into());
    let attempted = dry.iter().find(|line| line["key"] == open).expect("listed");
    let explained = attempted["explained"].as_str().expect("text");
    assert!(explained.contains("never attempted"), "{explained}");
    assert_eq!(depth(&world, &dead).await, (5, 0));
    assert_eq!(world.queue_depth().await, (0, 0));
    assert_eq!(world.expect_item("evt_open").await, before);

    said(&operator.run(&["queue", "redrive", "--yes"]).await, 0, &["enqueued", "left"]);
    assert_eq!(depth(&world, &dead).await, (3, 0));
    assert_eq!(world.queue_depth().await, (1, 0));
    assert_eq!(world.expect_record("evt_open").await.requeues, 1);
    world.work(&world.scripted(&stripe_config(), &done())).await;
    assert_eq!(world.expect_record("evt_open").await.state.name(), StateName::Done);

    let all = ["queue", "redrive", "--yes", "--discard-unreadable"];
    said(&operator.run(&all).await, 0, &["deleted", "its event is to be replayed"]);
    assert_eq!(depth(&world, &dead).await, (1, 0), "the parked event's stays");
}

#[tokio::test]
async fn a_dead_letter_whose_record_cannot_be_read_stays_and_nothing_else_is_said_of_it() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    let dead = dead_letter_queue(&world, 100).await;
    world.claim(&stripe_config(), "evt_1").await;
    world.drain().await;
    world.tamper("evt_1", "attempt", AttributeValue::S("none".to_owned())).await;
    send(&world, &dead, &format!(r#"{{"v":1,"key":"{}"}}"#, pk("evt_1"))).await;
    let unsound = operator.run(&["queue", "dead-letters"]).await;
    said(&unsound, 0, &["its record cannot be read", "a redrive leaves it: "]);
    assert!(!unsound.stdout.contains("--discard-unreadable"), "{unsound:?}");
    let all = ["queue", "redrive", "--yes", "--discard-unreadable"];
    said(&operator.run(&all).await, 0, &["its record cannot be read", "left"]);
    assert_eq!(depth(&world, &dead).await, (1, 0));
    // One that the option does delete.
    send(&world, &dead, "{}").await;
    said(&operator.run(&["queue", "dead-letters"]).await, 0, &["unless --discard-unreadable"]);
}

#[tokio::test]
async fn a_look_at_dead_letters_that_fails_halfway_gives_them_back() {
    let world = World::start().await;
    let dead = dead_letter_queue(&world, 100).await;
    send(&world, &dead, &format!(r#"{{"v":1,"key":"{}"}}"#, pk("evt_1"))).await;
    let operator = Terminal::through(&world, "http://127.0.0.1:1");
    let ended = operator.run(&["queue", "dead-letters"]).await;
    said(&ended, 2, &["cannot reach DynamoDB"]);
    assert_eq!(depth(&world, &dead).await, (1, 0));
}

// ---- doctor ---------------------------------------------------------------------------------

#[tokio::test]
async fn a_doctor_finds_nothing_bad_where_nothing_is_and_names_what_is() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    // A queue without a dead-letter queue.
    let bad = async || -> Vec<String> {
        let findings = operator.json(&["doctor"]).await;
        assert!(findings.len() > 6, "{findings:?}");
        let bad = findings.iter().filter(|finding| finding["verdict"] == "bad");
        assert!(bad.clone().all(|finding| finding["advice"].is_string()), "{findings:?}");
        bad.map(|finding| finding["what"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(bad().await, ["redrive policy"]);
    said(&operator.run(&["doctor"]).await, 1, &["bad      redrive policy"]);
    dead_letter_queue(&world, 100).await;
    assert_eq!(bad().await, [""; 0]);
    let healthy = ["good     table", "good     index", "good     TTL", "good     clock"];
    said(&operator.run(&["doctor"]).await, 0, &healthy);
    // Nobody has swept for an hour.
    world.claim(&stripe_config(), "evt_1").await;
    assert_eq!(bad().await, [""; 0]);
    let long_ago = Clock::default().now().minus(Duration::from_secs(3600)).millis();
    world.tamper("evt_1", "due_at", AttributeValue::N(long_ago.to_string())).await;
    assert_eq!(bad().await, ["sweeper"]);
    let nowhere = ["doctor", "--config", "nowhere.toml"];
    said(&operator.run(&nowhere).await, 1, &["bad      retention", "nowhere.toml"]);
}

// ---- wrong calls ----------------------------------------------------------------------------

#[tokio::test]
async fn what_cannot_be_done_says_why_and_what_to_do_and_exits_with_its_code() {
    let world = World::start().await;
    let operator = Terminal::at(&world);
    for unknown in [
        &["events", "show", "stripe#evt_x"][..],
        &["events", "payload", "stripe#evt_x"],
        &["events", "replay", "stripe#evt_x", "--reason", "x"],
        &["events", "discard", "stripe#evt_x", "--reason", "x"],
        &["events", "unstick", "stripe#evt_x", "--reason", "x"],
    ] {
        said(&operator.run(unknown).await, 1, &["there is no", "stripe#evt_x"]);
    }
    for (wrong, words) in [
        (&["events", "show", "evt_x"][..], &["SOURCE#EVENT_ID"][..]),
        (&["events", "show", "Stripe#evt_x"], &["Stripe#evt_x"]),
        (&["events", "replay", "stripe#evt_x"], &["--reason"]),
        (&["events", "replay", "stripe#evt_x", "--reason", " "], &["say it in words"]),
        (&["events", "replay", "stripe#evt_x", "--reason", &"x".repeat(257)], &["256 bytes"]),
        (&["events", "replay", "--reason", "x"], &["KEYS"]),
        (&["events", "replay", "stripe#a", "--source", "stripe", "--reason", "x"], &["--source"]),
        (&["events", "replay", "--state", "received", "--reason", "x"], &["failed and done"]),
        (&["events", "discard", "--reason", "x"], &["KEYS"]),
        (&["events", "list", "--state", "stuck"], &["received, processing, failed"]),
        (&["events", "list", "--since", "yesterday"], &["2026-01-31T12:00:00Z"]),
        (&["events", "list", "--limit", "0"], &["--limit"]),
        (&["events", "list", "--look-at", "0"], &["--look-at", "1 at least"]),
        (&["events", "tail", "--every", "1ms"], &["1s at least"]),
        (&["queue", "status", "--queue-url", "events"], &["events"]),
        // It has none.
        (&["queue", "status"], &["no dead-letter queue"]),
    ] {
        said(&operator.run(wrong).await, 2, words);
    }
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_asked_says_so_without_a_long_wait() {
    let world = World::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let run = async |arguments: &[&str], more: &[(&str, &str)]| -> Ended {
        let mut command = Command::from(hookonce(folder.path()));
        command.args(arguments).env_remove("USER").env_remove("LOGNAME").env_remove("USERNAME");
        // Nothing of this machine's own, and no question to a host that is not there.
        command.env("HOME", folder.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        command.envs(more.iter().copied());
        command.output().await.expect("hookonce starts").into()
    };
    let at = |url: &str| ["events", "list", "--endpoint", url].map(str::to_owned);
    let refused = at("http://127.0.0.1:1");
    let refused: Vec<_> = refused.iter().map(String::as_str).collect();
    said(&run(&refused, &[]).await, 2, &["cannot reach DynamoDB"]);
    let elsewhere = at("https://127.0.0.1:1");
    let elsewhere: Vec<_> = elsewhere.iter().map(String::as_str).collect();
    said(&run(&elsewhere, &[]).await, 2, &["AWS_ENDPOINT_URL_DYNAMODB"]);
    let missing = at(&world.dynamodb_url);
    let missing: Vec<_> = missing.iter().map(String::as_str).collect();
    said(&run(&missing, &[]).await, 2, &["no table hookonce-events", "HOOKONCE_TABLE"]);
    let by_variable = run(&missing, &[("HOOKONCE_TABLE", TABLE)]).await;
    said(&by_variable, 0, &["that is all"]);
    said(&run(&["events", "list"], &[]).await, 2, &["no AWS region", "--endpoint"]);
    let no_queue = run(&["queue", "status"], &[]).await;
    let where_it_is = ["--queue-url", "HOOKONCE_QUEUE_URL", "QueueUrl", "`hookonce dev`"];
    said(&no_queue, 2, &where_it_is);
    let nobody =
        ["events", "discard", "stripe#x", "--reason", "x", "--endpoint", &world.dynamodb_url];
    said(&run(&nobody, &[]).await, 2, &["--by"]);
}

// ---- hookonce dev ---------------------------------------------------------------------------

#[tokio::test]
async fn an_event_of_the_embedded_stack_is_listed_and_shown_by_its_own_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(folder.path(), &[]).await;
    let run = async |arguments: &[&str]| -> Ended {
        let output = Command::from(hookonce(folder.path())).args(arguments).output().await;
        output.expect("hookonce starts").into()
    };
    let secret = "literal:whsec_hookonce_dev";
    let sent =
        ["send", "stripe", "--url", dev.url("receiver"), "--secret", secret, "--id", "evt_1"];
    said(&run(&sent).await, 0, &[]);
    let endpoint = dev.url("dynamodb");
    let shown = async || run(&["events", "show", "stripe#evt_1", "--endpoint", endpoint]).await;
    eventually("it is done", async || shown().await.stdout.starts_with("stripe#evt_1: done")).await;
    let queue_url = dev.url("queue_url");
    let status = run(&["queue", "status", "--queue-url", queue_url]).await;
    said(&status, 0, &["dead letters  0 waiting"]);
    let doctor = run(&["doctor", "--endpoint", endpoint, "--queue-url", queue_url]).await;
    said(&doctor, 0, &["good     index", "warning  visibility"]);
}

// ---- the runbook ----------------------------------------------------------------------------

/// Who follows it at night must not be told that there is no such option.
#[test]
fn every_command_of_the_runbook_is_one() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook.md");
    let page = std::fs::read_to_string(page).expect("the runbook");
    let mut helps = BTreeMap::new();
    let mut commands = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("$ hookonce ")) {
        commands += 1;
        let words: Vec<_> = line.split_whitespace().take_while(|word| *word != "#").collect();
        let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let nested = ["events", "queue", "providers"].contains(&words[0]);
        let path: Vec<_> =
            words.iter().take(if nested { 2 } else { 1 }).take_while(is_name).copied().collect();
        let help = helps.entry(path.clone()).or_insert_with(|| {
            let help = run(&std::env::temp_dir(), &[&path[..], &["--help"]].concat());
            assert_eq!(help.code, Some(0), "{path:?}: {help:?}");
            help.stdout
        });
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{path:?} has no {option}");
        }
    }
    assert!(commands > 20, "only {commands} commands");
}

// ---- helpers --------------------------------------------------------------------------------

/// The keys of each page, until there is none.
async fn pages(operator: &Terminal<'_>, arguments: &[&str]) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let more: Vec<_> = after.iter().flat_map(|after| ["--after", after]).collect();
        let mut lines = operator.json(&[arguments, &more].concat()).await;
        let summary = lines.pop().expect("a summary");
        assert_eq!(summary["shown"], lines.len(), "{summary}");
        let key = |line: &Value| line["key"].as_str().expect("a key").to_owned();
        pages.push(lines.iter().map(key).collect());
        match summary["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return pages,
        }
    }
}

/// An event that a worker has parked.
async fn park(world: &World, id: &str) {
    world.claim(&stripe_config(), id).await;
    world.work(&world.scripted(&stripe_config(), &refusing())).await;
    assert_eq!(world.expect_record(id).await.state.name(), StateName::Failed);
}

/// Events `old_0`, `old_1`, … that came beyond their horizon, and so were parked by their claims, a
/// few in each millisecond. Gives the first one's.
async fn park_old(ledger: &Ledger, count: u32) -> Timestamp {
    let policy = stripe_policy(&stripe_config());
    let now = Clock::default().now();
    let parked = stream::iter(0..count).map(|number| {
        let event = Event {
            key: stripe_key(&format!("old_{number}")),
            provider: "stripe".into(),
            event_type: Some("charge.refunded".into()),
            object_id: None,
            occurred_at: Some(Timestamp::from_secs(0)),
            coalesces_until: None,
            payload: b"{}".to_vec(),
            content_type: None,
            headers: Vec::new(),
        };
        let payload = StoredPayload { codec: "none".into(), bytes: b"{}".to_vec() };
        let at = now.plus(Duration::from_millis((number / IN_A_MILLISECOND).into()));
        let claim = claim(&event, payload, ClaimId(format!("claim-{number}")), at, &policy);
        async move { ledger.write(&claim.write, Returning::Nothing).await.expect("parked") }
    });
    parked.buffer_unordered(8).for_each(|_| async {}).await;
    now
}

/// Gives the queue a dead-letter queue.
async fn dead_letter_queue(world: &World, most_receives: u32) -> String {
    let created = world.sqs.create_queue().queue_name("dead").send().await.expect("a queue");
    let url = created.queue_url.expect("its URL");
    let asked = world.sqs.get_queue_attributes().queue_url(&url);
    let asked = asked.attribute_names(QueueAttributeName::QueueArn).send().await.expect("its ARN");
    let arn = &asked.attributes.expect("attributes")[&QueueAttributeName::QueueArn];
    let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": most_receives });
    let set = world.sqs.set_queue_attributes().queue_url(&world.queue_url);
    let set = set.attributes(QueueAttributeName::RedrivePolicy, policy.to_string());
    set.send().await.expect("set");
    url
}

async fn send(world: &World, queue_url: &str, body: &str) {
    let sent = world.sqs.send_message().queue_url(queue_url).message_body(body).send().await;
    sent.expect("sent");
}

/// Messages in a queue: visible, and in flight.
async fn depth(world: &World, queue_url: &str) -> (u32, u32) {
    let asked = world.sqs.get_queue_attributes().queue_url(queue_url);
    let asked = asked.attribute_names(QueueAttributeName::All).send().await.expect("attributes");
    let attributes = asked.attributes.unwrap_or_default();
    let number = |name| attributes[&name].parse().expect("a number");
    (
        number(QueueAttributeName::ApproximateNumberOfMessages),
        number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
    )
}

fn done() -> Arc<Scripted> {
    Scripted::new(|_, _| Box::pin(async { Ok(()) }))
}

/// Credits the account of the event's id.
fn crediting() -> Arc<Scripted> {
    Scripted::new(|event, effects| {
        Box::pin(async move {
            effects.write(credit(event.key.id().as_str()))?;
            Ok(())
        })
    })
}

fn refusing() -> Arc<Scripted> {
    Scripted::new(|_, _| Box::pin(async { Err(Failure::permanent("refused", "no such account")) }))
}

/// Calls the callee in step `charge`, which fails for good if it is declined.
fn charging(callee: &Arc<Callee>, declined: Option<&'static str>) -> Arc<Scripted> {
    let callee = Arc::clone(callee);
    Scripted::new(move |_, effects| {
        let callee = Arc::clone(&callee);
        Box::pin(async move {
            let charged: String = effects
                .step("charge", StepPolicy::Repeat, async |key| {
                    let call = callee.call(&key);
                    declined.map_or(Ok(call), |why| Err(Failure::permanent(why, "no charge")))
                })
                .await?;
            assert!(charged.starts_with("call-"));
            Ok(())
        })
    })
}

/// So that pages end within one, and some hold no whole one.
const IN_A_MILLISECOND: u32 = 7;
