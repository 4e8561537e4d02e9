//! A worker outlives its lease while another works on the same event: the later one counts, and the
//! earlier one changes nothing any more.

use std::{sync::Arc, time::Duration};

use domain::{
    effects::{StepName, StepPolicy, StepState},
    record::{State, StateName},
};
use runtime::clock::Clock;
use tests::{
    handlers::Scripted,
    play::{Callee, Gate, accounts, ahead, balance, credit, visibilities},
    world::{World, stripe_config},
};
use tokio::sync::oneshot;
use worker::Failure;

#[tokio::test]
async fn an_expired_lease_is_taken_over_with_a_higher_fence() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let now = Clock::default().now();
    let (lease, _) = world.hold("evt_1", now, now.plus(Duration::from_secs(30))).await;
    let handler = Scripted::new(|event, _| {
        assert_eq!(event.attempt, 2);
        Box::pin(async { Ok(()) })
    });
    world.work(&world.scripted_at(&stripe_config(), &handler, ahead(LATER))).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, lease.fence() + 1));
    assert_ne!(record.lease_owner.as_ref(), Some(lease.owner()));
}

#[tokio::test]
async fn a_lease_is_not_taken_over_before_the_clocks_agree_that_it_ended() {
    let world = World::start().await;
    let mut config = stripe_config();
    config["clock_skew"] = "5s".into();
    world.claim(&config, "evt_1").await;
    let now = Clock::default().now();
    // Ended a second ago by this clock; its holder's may be five behind.
    world
        .hold("evt_1", now.minus(Duration::from_secs(60)), now.minus(Duration::from_secs(1)))
        .await;
    let before = world.expect_item("evt_1").await;
    let handler = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let (worker, sqs) = world.seen_by_sqs(&config, &handler).await;
    world.work(&worker).await;
    assert_eq!(handler.called(), 0);
    assert_eq!(world.expect_item("evt_1").await, before);
    let visibility = visibilities(&sqs)[0];
    assert!(visibility <= 4, "back when the skew is over, not in {visibility} s");
    world.enqueue("evt_1").await;
    let clock = ahead(Duration::from_secs(5));
    world.work(&world.scripted_at(&config, &handler, clock)).await;
    assert_eq!(handler.called(), 1);
}

#[tokio::test]
async fn a_lease_lasts_past_the_deadline_of_its_invocation_by_the_skew() {
    let world = World::start().await;
    let mut config = stripe_config();
    config["clock_skew"] = "5s".into();
    world.claim(&config, "evt_1").await;
    let gate = Arc::new(Gate::default());
    let worker = world.scripted(&config, &held_up(&gate));
    let time = Duration::from_secs(30);
    let deadline = Clock::default().now().plus(time);
    let ((), _) = tokio::join!(
        async {
            gate.wait_for(1).await;
            let record = world.expect_record("evt_1").await;
            let State::Processing { lease_until, .. } = record.state else { panic!("leased") };
            assert!(lease_until >= deadline.plus(Duration::from_secs(5)));
            gate.open();
        },
        world.work_for(&worker, time)
    );
}

#[tokio::test]
async fn a_redelivery_while_the_event_is_processed_is_kept_and_runs_nothing() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let gate = Arc::new(Gate::default());
    let first = world.scripted(&stripe_config(), &held_up(&gate));
    let idle = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let (second, sqs) = world.seen_by_sqs(&stripe_config(), &idle).await;
    let (_, ()) = tokio::join!(world.work(&first), async {
        gate.wait_for(1).await;
        world.enqueue("evt_1").await;
        let response = world.work(&second).await;
        assert_eq!(response.batch_item_failures.len(), 1);
        gate.open();
    });
    assert_eq!(idle.called(), 0);
    assert!(visibilities(&sqs)[0] > 15, "until the lease ends");
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 1));
}

#[tokio::test]
async fn whatever_the_outlived_worker_ends_with_it_changes_nothing() {
    for ending in [Ending::Done, Ending::Retry, Ending::Permanent, Ending::Journal] {
        for through in [true, false] {
            let world = World::start().await;
            accounts(&world).await;
            world.claim(&stripe_config(), "evt_1").await;
            let calls = outlive(&world, ending, through).await;
            assert_eq!(calls, 0, "a start that is refused is followed by no call");
            let record = world.expect_record("evt_1").await;
            assert_eq!((record.state.name(), record.attempt), (StateName::Done, 2), "{ending:?}");
            assert_eq!(record.last_error, None);
            assert_eq!(balance(&world, "ada").await, Some(1), "{ending:?}: by the successor alone");
        }
    }
}

#[tokio::test]
async fn a_step_the_predecessor_started_parks_where_it_may_not_repeat() {
    let (world, charge) = abandoned_in(StepPolicy::Never).await;
    let handler = charging(StepPolicy::Never, &charge);
    world.work(&world.scripted_at(&stripe_config(), &handler, ahead(LATER))).await;
    assert_eq!(charge.called(), 1);
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.expect("a reason").class, "step_unfinished");
}

#[tokio::test]
async fn a_step_the_predecessor_started_repeats_under_its_key_where_it_may() {
    let (world, charge) = abandoned_in(StepPolicy::Repeat).await;
    let handler = charging(StepPolicy::Repeat, &charge);
    world.work(&world.scripted_at(&stripe_config(), &handler, ahead(LATER))).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    let keys = charge.keys();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_step_the_predecessor_recorded_is_not_called_again() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let (charge, gate) = (Arc::new(Callee::default()), Arc::new(Gate::default()));
    // Its second step hangs, before which the first one's result is written.
    let (called, held) = (Arc::clone(&charge), Arc::clone(&gate));
    let predecessor = Scripted::new(move |_, effects| {
        let (charge, gate) = (Arc::clone(&called), Arc::clone(&held));
        Box::pin(async move {
            let call = async |key: String| Ok(charge.call(&key));
            let charged: String = effects.step("charge", StepPolicy::Repeat, call).await?;
            assert_eq!(charged, "call-1");
            let hang = async |_key: String| {
                gate.pass().await;
                Ok(())
            };
            effects.step("mail", StepPolicy::Repeat, hang).await
        })
    });
    kill_in(&world, &predecessor, &gate).await;
    world.enqueue("evt_1").await;
    gate.open();
    world.work(&world.scripted_at(&stripe_config(), &predecessor, ahead(LATER))).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 2));
    assert_eq!(charge.called(), 1);
    let charged = &record.steps[&StepName::new("charge").expect("a step name")];
    assert_eq!(charged.state, StepState::Done { result: "\"call-1\"".to_owned() });
}

#[tokio::test]
async fn a_lease_that_was_taken_over_twice_leaves_both_predecessors_out() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let gate = Arc::new(Gate::default());
    let handler = held_up(&gate);
    let first = world.scripted(&stripe_config(), &handler);
    let second = world.scripted_at(&stripe_config(), &handler, ahead(LATER));
    let done = Scripted::new(|_, _| Box::pin(async { Ok(()) }));
    let third = world.scripted_at(&stripe_config(), &done, ahead(2 * LATER));
    tokio::join!(world.work(&first), async {
        gate.wait_for(1).await;
        world.enqueue("evt_1").await;
        tokio::join!(world.work(&second), async {
            gate.wait_for(1).await;
            world.enqueue("evt_1").await;
            world.work(&third).await;
            gate.open();
        });
    });
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Done, 3));
    assert_eq!(record.last_error, None);
}

// ---- helpers --------------------------------------------------------------------------------

/// How an outlived worker's handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    Retry,
    Permanent,
    /// With a step whose start must be journalled first.
    Journal,
}

/// A handler that waits at the gate.
fn held_up(gate: &Arc<Gate>) -> Arc<Scripted> {
    let gate = Arc::clone(gate);
    Scripted::new(move |_, _| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.pass().await;
            Ok(())
        })
    })
}

/// A handler that makes a local write, waits at the gate and ends so; its last step calls `calls`.
fn crediting(gate: &Arc<Gate>, ending: Ending, calls: &Arc<Callee>) -> Arc<Scripted> {
    let (gate, calls) = (Arc::clone(gate), Arc::clone(calls));
    Scripted::new(move |_, effects| {
        let (gate, calls) = (Arc::clone(&gate), Arc::clone(&calls));
        Box::pin(async move {
            effects.write(credit("ada"))?;
            gate.pass().await;
            match ending {
                Ending::Done => Ok(()),
                Ending::Retry => Err(Failure::retry("outlived", "no luck")),
                Ending::Permanent => Err(Failure::permanent("outlived", "no luck")),
                Ending::Journal => {
                    let mail = async |key: String| Ok(calls.call(&key));
                    effects.step("mail", StepPolicy::Never, mail).await.map(drop)
                }
            }
        })
    })
}

/// A worker takes the lease, credits and outlives it; a successor takes over and credits too, and is
/// through, or still at work, when the outlived one ends. Gives how often that one called its step.
async fn outlive(world: &World, ending: Ending, through: bool) -> usize {
    let (gate, calls) = (Arc::new(Gate::default()), Arc::new(Callee::default()));
    let outlived = world.scripted(&stripe_config(), &crediting(&gate, ending, &calls));
    let successors = Arc::new(Gate::default());
    let handler = crediting(&successors, Ending::Done, &Arc::new(Callee::default()));
    let successor = world.scripted_at(&stripe_config(), &handler, ahead(LATER));
    let (tell, ended) = oneshot::channel();
    let let_go = async || {
        let left = world.expect_item("evt_1").await;
        gate.open();
        ended.await.expect("the outlived worker ends");
        assert_eq!(world.expect_item("evt_1").await, left, "{ending:?}");
    };
    let end_outlived = async {
        world.work(&outlived).await;
        tell.send(()).expect("somebody waits");
    };
    tokio::join!(end_outlived, async {
        gate.wait_for(1).await;
        world.enqueue("evt_1").await;
        if through {
            successors.open();
            world.work(&successor).await;
            let_go().await;
        } else {
            tokio::join!(world.work(&successor), async {
                successors.wait_for(1).await;
                let_go().await;
                successors.open();
            });
        }
    });
    calls.called()
}

/// An event whose worker was killed in the middle of a step's call.
async fn abandoned_in(policy: StepPolicy) -> (World, Arc<Callee>) {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let (charge, gate) = (Arc::new(Callee::default()), Arc::new(Gate::default()));
    let (called, held) = (Arc::clone(&charge), Arc::clone(&gate));
    let handler = Scripted::new(move |_, effects| {
        let (charge, gate) = (Arc::clone(&called), Arc::clone(&held));
        Box::pin(async move {
            let hang = async |key: String| {
                charge.call(&key);
                gate.pass().await;
                Ok(String::new())
            };
            effects.step("charge", policy, hang).await.map(drop)
        })
    });
    kill_in(&world, &handler, &gate).await;
    world.enqueue("evt_1").await;
    (world, charge)
}

/// Runs a handler until it waits at the gate, then drops it in the middle, as a process is killed.
async fn kill_in(world: &World, handler: &Arc<Scripted>, gate: &Gate) {
    let worker = world.scripted(&stripe_config(), handler);
    tokio::select! {
        _ = world.work(&worker) => panic!("it hangs"),
        () = gate.wait_for(1) => {}
    }
}

fn charging(policy: StepPolicy, charge: &Arc<Callee>) -> Arc<Scripted> {
    let charge = Arc::clone(charge);
    Scripted::new(move |_, effects| {
        let charge = Arc::clone(&charge);
        Box::pin(async move {
            let call = async |key: String| Ok(charge.call(&key));
            effects.step("charge", policy, call).await.map(drop)
        })
    })
}

/// Past the end of any lease in these tests.
const LATER: Duration = Duration::from_secs(60);
