//! External steps and local writes: what each policy costs in writes, what a later attempt makes of
//! the journal, and that local writes commit with the record or not at all.

use std::{collections::HashMap, sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use domain::{
    effects::{StepName, StepPolicy, StepState, step_key},
    limits,
    record::{Record, StateName},
    transition::ATTEMPTS_EXHAUSTED,
};
use serde_json::Value;
use tests::{
    handlers::Scripted,
    play::{ACCOUNTS, Callee, accounts, ahead, balance, credit, hold, stripe_with},
    proxy::{Fault, FaultProxy},
    world::{World, stripe_config, stripe_key},
};
use worker::{Effects, Failure};

// ---- what it costs --------------------------------------------------------------------------

#[tokio::test]
async fn one_repeatable_step_costs_the_lease_and_the_completion_and_no_read() {
    let (_, calls) = calls_of(calling(&[("charge", StepPolicy::Repeat)])).await;
    assert_eq!(calls, ["UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_second_step_costs_one_journal_write_more() {
    let steps = [("charge", StepPolicy::Repeat), ("mail", StepPolicy::Repeat)];
    let (record, calls) = calls_of(calling(&steps)).await;
    assert_eq!(calls, ["UpdateItem"; 3]);
    assert_eq!(record.steps.len(), 2);
}

#[tokio::test]
async fn a_step_that_may_not_repeat_costs_its_start() {
    let (_, calls) = calls_of(calling(&[("charge", StepPolicy::Never)])).await;
    assert_eq!(calls, ["UpdateItem"; 3]);
}

#[tokio::test]
async fn an_opening_step_rides_on_the_lease_and_costs_nothing() {
    let callee = Arc::new(Callee::default());
    let called = Arc::clone(&callee);
    let handler = Scripted::opening("charge", move |_, effects| {
        let callee = Arc::clone(&called);
        Box::pin(async move { call(effects, "charge", StepPolicy::Never, &callee).await.map(drop) })
    });
    let (record, calls) = calls_of(handler).await;
    assert_eq!(calls, ["UpdateItem", "UpdateItem"]);
    assert_eq!(callee.called(), 1);
    assert!(matches!(record.steps[&step("charge")].state, StepState::Done { .. }));
}

#[tokio::test]
async fn local_writes_cost_one_transaction_in_place_of_the_completion() {
    let world = World::start().await;
    accounts(&world).await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(|_, effects| Box::pin(async move { effects.write(credit("ada")) }));
    let (worker, dynamodb) = world.seen_by_dynamodb(&stripe_config(), &handler).await;
    world.work(&worker).await;
    assert_eq!(dynamodb.calls(), ["UpdateItem", "TransactWriteItems"]);
    assert_eq!(balance(&world, "ada").await, Some(1));
}

// ---- the journal ----------------------------------------------------------------------------

#[tokio::test]
async fn the_start_is_on_the_record_before_the_call_is_made() {
    for (policy, expected) in [(StepPolicy::Never, true), (StepPolicy::Repeat, false)] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let ledger = world.ledger.clone();
        let handler = Scripted::new(move |_, effects| {
            let ledger = ledger.clone();
            Box::pin(async move {
                let look = async |_key: String| {
                    let item = ledger.read(&stripe_key("evt_1")).await.expect("a read");
                    let record = Record::from_item(item.expect("a record")).expect("readable");
                    Ok(record.steps.get(&step("charge")).map(|e| e.state == StepState::Started))
                };
                let started: Option<bool> = effects.step("charge", policy, look).await?;
                assert_eq!(started, expected.then_some(true), "{policy:?}");
                Ok(())
            })
        });
        world.work(&world.scripted(&stripe_config(), &handler)).await;
        assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done, "{policy:?}");
    }
}

#[tokio::test]
async fn a_started_step_that_may_not_repeat_parks_when_it_is_met_again() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let handler = failing_in_call("charge", StepPolicy::Never, &charge);
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Received);
    again(&world, &handler, 60).await;
    assert_eq!(charge.called(), 1, "a second call is worse than none");
    assert_parked(&world, "step_unfinished").await;
    // An operator's replay alone does not make the call either; forgetting the steps does.
    world.replay("evt_1", false).await;
    again(&world, &handler, 120).await;
    assert_eq!(charge.called(), 1);
    world.replay("evt_1", true).await;
    again(&world, &handler, 180).await;
    assert_eq!(charge.called(), 2);
}

#[tokio::test]
async fn an_opening_step_of_a_crashed_predecessor_parks() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let called = Arc::clone(&charge);
    let handler = Scripted::opening("charge", move |_, effects| {
        let charge = Arc::clone(&called);
        Box::pin(async move {
            effects
                .step("charge", StepPolicy::Never, async |key: String| {
                    charge.call(&key);
                    Err::<String, _>(Failure::retry("gateway_down", "no luck"))
                })
                .await
                .map(drop)
        })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    again(&world, &handler, 60).await;
    assert_eq!(charge.called(), 1);
    assert_parked(&world, "step_unfinished").await;
}

#[tokio::test]
async fn a_step_that_may_not_repeat_does_not_repeat_within_one_attempt_either() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let called = Arc::clone(&charge);
    let handler = Scripted::new(move |_, effects| {
        let charge = Arc::clone(&called);
        Box::pin(async move {
            let mut last = Ok(());
            for _ in 0..3 {
                let call = async |key: String| {
                    charge.call(&key);
                    Err::<String, _>(Failure::retry("gateway_down", "no luck"))
                };
                last = effects.step("charge", StepPolicy::Never, call).await.map(drop);
            }
            last
        })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_eq!(charge.called(), 1);
    assert_parked(&world, "step_unfinished").await;
}

#[tokio::test]
async fn a_repeatable_step_is_called_again_under_the_same_key() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let failing = failing_in_call("charge", StepPolicy::Repeat, &charge);
    world.work(&world.scripted(&stripe_config(), &failing)).await;
    again(&world, &failing, 60).await;
    let called = Arc::clone(&charge);
    let handler = Scripted::new(move |_, effects| {
        let charge = Arc::clone(&called);
        Box::pin(
            async move { call(effects, "charge", StepPolicy::Repeat, &charge).await.map(drop) },
        )
    });
    again(&world, &handler, 120).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    let key = step_key(&stripe_key("evt_1"), &step("charge"));
    assert_eq!(charge.keys(), vec![key; 3]);
}

#[tokio::test]
async fn a_key_that_may_be_forgotten_is_not_called_under_again() {
    let day: u32 = 86_400;
    for (first, second, calls, parked) in [
        // Soon enough; too late; the first call counts, not the event's arrival.
        (0, day - 60, 2, false),
        (0, day, 1, true),
        (2 * day, 2 * day + 60, 2, false),
    ] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let charge = Arc::new(Callee::default());
        let handler = forgotten_after_a_day(&charge, None);
        again(&world, &handler, first.into()).await;
        assert_eq!(charge.called(), 1, "{first} {second}");
        again(&world, &handler, second.into()).await;
        assert_eq!(charge.called(), calls, "{first} {second}");
        if parked {
            assert_parked(&world, "step_unfinished").await;
        }
        let keys = charge.keys();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}

#[tokio::test]
async fn a_callee_that_may_have_forgotten_a_key_is_asked_if_it_can_be() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let handler = forgotten_after_a_day(&charge, Some("charge-7"));
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    again(&world, &handler, 90_000).await;
    assert_eq!(charge.called(), 1);
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Done);
    let recorded = &record.steps[&step("charge")].state;
    assert_eq!(*recorded, StepState::Done { result: "\"charge-7\"".into() });
}

#[tokio::test]
async fn reconciling_asks_first_and_calls_only_what_was_not_made() {
    for (answer, calls) in [(Some("charge-7"), 1), (None, 2)] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let (asked, charge) = (Arc::new(Callee::default()), Arc::new(Callee::default()));
        let handler = reconciling(answer, &asked, &charge);
        world.work(&world.scripted(&stripe_config(), &handler)).await;
        assert_eq!((asked.called(), charge.called()), (0, 1), "nothing to ask at first");
        again(&world, &handler, 60).await;
        assert_eq!((asked.called(), charge.called()), (1, calls));
        assert_eq!(asked.keys()[0], charge.keys()[0], "asked by the key of the call");
        let record = world.expect_record("evt_1").await;
        assert_eq!(record.state.name(), StateName::Done);
        let result = answer.unwrap_or("call-2");
        let expected = StepState::Done { result: Value::from(result).to_string() };
        assert_eq!(record.steps[&step("charge")].state, expected);
    }
}

#[tokio::test]
async fn a_recorded_result_is_returned_without_a_call_even_after_a_replay() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let (charge, mail) = (Arc::new(Callee::default()), Arc::new(Callee::default()));
    let handler = charging_then_mailing(&charge, &mail);
    // The mail fails twice: released with the charge recorded, then done.
    for later in [0, 60, 120] {
        again(&world, &handler, later).await;
    }
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!((charge.called(), mail.called()), (1, 3));
    world.replay("evt_1", false).await;
    again(&world, &handler, 180).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!((charge.called(), mail.called()), (1, 3), "all of it is on the record");
    // Told to forget, it calls again, and still under the first keys.
    world.replay("evt_1", true).await;
    again(&world, &handler, 240).await;
    assert_eq!((charge.called(), mail.called()), (2, 4));
    assert_eq!(charge.keys()[0], charge.keys()[1]);
    assert!(mail.keys().iter().all(|key| *key == mail.keys()[0]));
    assert_ne!(charge.keys()[0], mail.keys()[0]);
}

#[tokio::test]
async fn results_are_kept_when_the_event_is_released_or_parked() {
    for permanent in [false, true] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let charge = Arc::new(Callee::default());
        let called = Arc::clone(&charge);
        let handler = Scripted::new(move |_, effects| {
            let charge = Arc::clone(&called);
            Box::pin(async move {
                call(effects, "charge", StepPolicy::Repeat, &charge).await?;
                Err(if permanent {
                    Failure::permanent("after", "no luck")
                } else {
                    Failure::retry("after", "no luck")
                })
            })
        });
        world.work(&world.scripted(&stripe_config(), &handler)).await;
        let record = world.expect_record("evt_1").await;
        let state = if permanent { StateName::Failed } else { StateName::Received };
        assert_eq!(record.state.name(), state);
        let expected = StepState::Done { result: "\"call-1\"".to_owned() };
        assert_eq!(record.steps[&step("charge")].state, expected);
    }
}

#[tokio::test]
async fn results_are_kept_when_the_handler_panics_or_hangs() {
    for hangs in [false, true] {
        let world = World::start().await;
        world.claim(&stripe_config(), "evt_1").await;
        let charge = Arc::new(Callee::default());
        let called = Arc::clone(&charge);
        let handler = Scripted::new(move |_, effects| {
            let charge = Arc::clone(&called);
            Box::pin(async move {
                call(effects, "charge", StepPolicy::Repeat, &charge).await?;
                assert!(hangs, "a panic after the call");
                std::future::pending().await
            })
        });
        let worker = world.scripted(&stripe_config(), &handler);
        world.work_for(&worker, Duration::from_secs(4)).await;
        let record = world.expect_record("evt_1").await;
        assert!(matches!(record.steps[&step("charge")].state, StepState::Done { .. }));
    }
}

// ---- wrong use ------------------------------------------------------------------------------

#[tokio::test]
async fn wrong_use_of_steps_parks_with_a_name_for_it() {
    let large = "x".repeat(limits::MAX_STEP_RESULT_BYTES);
    assert_eq!(
        class_of(move |effects| {
            let large = large.clone();
            Box::pin(async move {
                effects.step("charge", StepPolicy::Repeat, async |_| Ok(large)).await.map(drop)
            })
        })
        .await,
        "step_result_too_large"
    );
    for name in ["", "Charge", "a b", "a#b"] {
        let class = class_of(move |effects| {
            Box::pin(async move {
                effects.step(name, StepPolicy::Repeat, async |_| Ok(())).await.map(drop)
            })
        });
        assert_eq!(class.await, "step_name", "{name}");
    }
    let too_many = class_of(|effects| {
        Box::pin(async move {
            for number in 0..=limits::MAX_STEPS {
                let name = format!("step-{number}");
                effects.step(&name, StepPolicy::Repeat, async |_| Ok(number)).await?;
            }
            Ok(())
        })
    });
    assert_eq!(too_many.await, "too_many_steps");
    let too_many = class_of(|effects| {
        Box::pin(async move {
            (0..=limits::MAX_LOCAL_WRITES).try_for_each(|n| effects.write(credit(&n.to_string())))
        })
    });
    assert_eq!(too_many.await, "too_many_local_writes");
}

#[tokio::test]
async fn the_largest_result_and_the_most_steps_still_complete() {
    let handler = Scripted::new(|_, effects| {
        Box::pin(async move {
            // Two quotes are part of the result.
            let large = "x".repeat(limits::MAX_STEP_RESULT_BYTES - 2);
            for number in 0..limits::MAX_STEPS {
                let name = format!("step-{number}");
                effects.step(&name, StepPolicy::Repeat, async |_| Ok(large.clone())).await?;
            }
            Ok(())
        })
    });
    let (record, _) = calls_of(handler).await;
    assert_eq!(record.steps.len(), limits::MAX_STEPS);
}

#[tokio::test]
async fn a_recorded_result_of_another_type_parks_and_calls_nothing() {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let charge = Arc::new(Callee::default());
    let called = Arc::clone(&charge);
    let first = Scripted::new(move |_, effects| {
        let charge = Arc::clone(&called);
        Box::pin(async move {
            call(effects, "charge", StepPolicy::Repeat, &charge).await?;
            Err(Failure::retry("after", "no luck"))
        })
    });
    world.work(&world.scripted(&stripe_config(), &first)).await;
    let called = Arc::clone(&charge);
    let second = Scripted::new(move |_, effects| {
        let charge = Arc::clone(&called);
        Box::pin(async move {
            let call = async |key: String| {
                charge.call(&key);
                Ok(5_u32)
            };
            effects.step("charge", StepPolicy::Repeat, call).await.map(drop)
        })
    });
    again(&world, &second, 60).await;
    assert_eq!(charge.called(), 1);
    assert_parked(&world, "step_result_unreadable").await;
}

// ---- local writes ---------------------------------------------------------------------------

#[tokio::test]
async fn local_writes_of_an_attempt_that_fails_do_not_take_hold() {
    let world = World::start().await;
    accounts(&world).await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(|event, effects| {
        Box::pin(async move {
            effects.write(credit("ada"))?;
            if event.attempt == 1 { Err(Failure::retry("after", "no luck")) } else { Ok(()) }
        })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_eq!(balance(&world, "ada").await, None);
    again(&world, &handler, 60).await;
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!(balance(&world, "ada").await, Some(1));
}

#[tokio::test]
async fn a_local_write_whose_condition_fails_parks_and_writes_nothing() {
    let world = World::start().await;
    accounts(&world).await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(|_, effects| {
        Box::pin(async move {
            effects.write(credit("ada"))?;
            effects.write(only_for("nobody"))
        })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    assert_parked(&world, "local_write_refused").await;
    let error = world.expect_record("evt_1").await.last_error.expect("a reason");
    assert_eq!(error.text, "the condition of local write 1 does not hold");
    assert_eq!(balance(&world, "ada").await, None);
}

#[tokio::test]
async fn a_lost_lease_is_told_apart_from_a_refused_local_write() {
    let world = World::start().await;
    accounts(&world).await;
    world.claim(&stripe_config(), "evt_1").await;
    // Both conditions fail: the record's own counts, and nobody is parked.
    let ledger = world.ledger.clone();
    let handler = Scripted::new(move |_, effects| {
        let ledger = ledger.clone();
        Box::pin(async move {
            let far = ahead(Duration::from_secs(3600)).now();
            hold(&ledger, "evt_1", far, far.plus(Duration::from_secs(30))).await;
            effects.write(only_for("nobody"))
        })
    });
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.attempt), (StateName::Processing, 2));
    assert_eq!(record.last_error, None);
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again_and_succeeds() {
    let (world, worker, dynamodb) = crediting().await;
    dynamodb.follow(cancelling(&["TransactionConflict", "None"], 2));
    world.work(&worker).await;
    let commits = dynamodb.bodies("TransactWriteItems");
    assert_eq!(commits.len(), 3);
    let token = |commit: &Value| commit["ClientRequestToken"].as_str().map(ToOwned::to_owned);
    assert!(token(&commits[0]).is_some());
    assert!(commits.iter().all(|commit| token(commit) == token(&commits[0])), "one token for all");
    assert_eq!(world.expect_record("evt_1").await.state.name(), StateName::Done);
    assert_eq!(balance(&world, "ada").await, Some(1));
}

#[tokio::test]
async fn a_transaction_cancelled_for_another_reason_releases_with_it() {
    let (world, worker, dynamodb) = crediting().await;
    dynamodb.follow(cancelling(&["None", "ValidationError"], usize::MAX));
    world.work(&worker).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Received);
    let error = record.last_error.expect("a reason");
    assert_eq!(error.class, "ledger_refused");
    assert!(error.text.contains("ValidationError"), "{}", error.text);
    assert_eq!(dynamodb.bodies("TransactWriteItems").len(), 1, "time does not heal it");
    assert_eq!(balance(&world, "ada").await, None);
}

#[tokio::test]
async fn reasons_of_a_cancellation_are_read_by_position() {
    // The record's condition, by DynamoDB's word, without the record: it is read, and still ours.
    let (world, worker, dynamodb) = crediting().await;
    dynamodb.follow(cancelling(&["ConditionalCheckFailed", "None"], 1));
    world.work(&worker).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!((record.state.name(), record.last_error), (StateName::Processing, None));
    // The local write's.
    let (world, worker, dynamodb) = crediting().await;
    dynamodb.follow(cancelling(&["None", "ConditionalCheckFailed"], 1));
    world.work(&worker).await;
    let error = world.expect_record("evt_1").await.last_error.expect("a reason");
    assert_eq!(error.class, "local_write_refused");
    assert_eq!(error.text, "the condition of local write 0 does not hold");
}

#[tokio::test]
async fn a_local_write_that_dynamodb_cannot_carry_out_is_told_on_the_record() {
    let world = World::start().await;
    world.claim(&stripe_with("attempts", 2), "evt_1").await;
    // The table of the accounts does not exist.
    let handler = Scripted::new(|_, effects| Box::pin(async move { effects.write(credit("ada")) }));
    let config = stripe_with("attempts", 2);
    world.work(&world.scripted(&config, &handler)).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Received, "waits by its backoff, under no lease");
    assert!(record.last_error.is_some());
    world.enqueue("evt_1").await;
    world.work(&world.scripted_at(&config, &handler, ahead(Duration::from_secs(60)))).await;
    assert_parked(&world, ATTEMPTS_EXHAUSTED).await;
}

// ---- helpers --------------------------------------------------------------------------------

fn step(name: &str) -> StepName {
    StepName::new(name).expect("a step name")
}

async fn call(
    effects: &mut Effects<'_>,
    name: &str,
    policy: StepPolicy,
    callee: &Callee,
) -> Result<String, Failure> {
    effects.step(name, policy, async |key: String| Ok(callee.call(&key))).await
}

/// A handler that makes these calls, one after the other.
fn calling(steps: &[(&'static str, StepPolicy)]) -> Arc<Scripted> {
    let steps = steps.to_vec();
    Scripted::new(move |_, effects| {
        let steps = steps.clone();
        Box::pin(async move {
            let callee = Callee::default();
            for (name, policy) in steps {
                call(effects, name, policy, &callee).await?;
            }
            Ok(())
        })
    })
}

/// A handler whose call is made and then fails, so that nobody knows whether it took hold.
fn failing_in_call(name: &'static str, policy: StepPolicy, callee: &Arc<Callee>) -> Arc<Scripted> {
    let callee = Arc::clone(callee);
    Scripted::new(move |_, effects| {
        let callee = Arc::clone(&callee);
        Box::pin(async move {
            let call = async |key: String| {
                callee.call(&key);
                Err::<String, _>(Failure::retry("gateway_down", "no luck"))
            };
            effects.step(name, policy, call).await.map(drop)
        })
    })
}

/// A handler whose callee remembers keys for a day, and fails after each call. Where there is an
/// answer, it can be asked.
fn forgotten_after_a_day(charge: &Arc<Callee>, answer: Option<&'static str>) -> Arc<Scripted> {
    let day = Duration::from_secs(86_400);
    let charge = Arc::clone(charge);
    Scripted::new(move |_, effects| {
        let charge = Arc::clone(&charge);
        Box::pin(async move {
            let call = async |key: String| {
                charge.call(&key);
                Err::<String, _>(Failure::retry("gateway_down", "no luck"))
            };
            let made = match answer {
                None => effects.step("charge", StepPolicy::RepeatFor(day), call).await,
                Some(answer) => {
                    let ask = async |_key: String| Ok(Some(answer.to_owned()));
                    effects.remembered_step("charge", day, ask, call).await
                }
            };
            made.map(drop)
        })
    })
}

/// A handler that reconciles `charge`; on its first attempt the call's end is not known.
fn reconciling(
    answer: Option<&'static str>,
    asked: &Arc<Callee>,
    charge: &Arc<Callee>,
) -> Arc<Scripted> {
    let (asked, charge) = (Arc::clone(asked), Arc::clone(charge));
    Scripted::new(move |event, effects| {
        let (asked, charge) = (Arc::clone(&asked), Arc::clone(&charge));
        Box::pin(async move {
            let ask = async |key: String| {
                asked.call(&key);
                Ok(answer.map(ToOwned::to_owned))
            };
            let call = async |key: String| {
                let made = charge.call(&key);
                if event.attempt == 1 { Err(Failure::retry("lost", "no answer")) } else { Ok(made) }
            };
            effects.reconciled_step("charge", ask, call).await.map(drop)
        })
    })
}

/// A handler that charges, then mails; the mail succeeds at the third attempt.
fn charging_then_mailing(charge: &Arc<Callee>, mail: &Arc<Callee>) -> Arc<Scripted> {
    let (charge, mail) = (Arc::clone(charge), Arc::clone(mail));
    Scripted::new(move |event, effects| {
        let (charge, mail) = (Arc::clone(&charge), Arc::clone(&mail));
        Box::pin(async move {
            let charged = call(effects, "charge", StepPolicy::Repeat, &charge).await?;
            assert!(charged == "call-1" || charge.called() > 1, "the recorded result comes back");
            let send = async |key: String| {
                let sent = mail.call(&key);
                if event.attempt < 3 { Err(Failure::retry("mail", "no luck")) } else { Ok(sent) }
            };
            effects.step("mail", StepPolicy::Repeat, send).await.map(drop)
        })
    })
}

/// Works on `evt_1` again, some seconds later.
async fn again(world: &World, handler: &Arc<Scripted>, later_secs: u64) {
    world.drain().await;
    world.enqueue("evt_1").await;
    let clock = ahead(Duration::from_secs(later_secs));
    world.work(&world.scripted_at(&stripe_config(), handler, clock)).await;
}

/// The record of one event that `handler` completed, and the worker's calls to DynamoDB for it.
async fn calls_of(handler: Arc<Scripted>) -> (Record, Vec<String>) {
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let (worker, dynamodb) = world.seen_by_dynamodb(&stripe_config(), &handler).await;
    world.work(&worker).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Done);
    (record, dynamodb.calls())
}

/// The error class that an event parks with, after one attempt of this handler.
async fn class_of<F>(handle: F) -> String
where
    F: for<'a> Fn(&'a mut Effects<'_>) -> futures::future::BoxFuture<'a, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
{
    let world = World::start().await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(move |_, effects| handle(effects));
    world.work(&world.scripted(&stripe_config(), &handler)).await;
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Failed);
    record.last_error.expect("a reason").class
}

async fn assert_parked(world: &World, class: &str) {
    let record = world.expect_record("evt_1").await;
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.expect("a reason").class, class);
}

/// A claimed event, and a worker behind a proxy whose handler credits `ada`.
async fn crediting() -> (World, worker::Attempts, FaultProxy) {
    let world = World::start().await;
    accounts(&world).await;
    world.claim(&stripe_config(), "evt_1").await;
    let handler = Scripted::new(|_, effects| Box::pin(async move { effects.write(credit("ada")) }));
    let (worker, dynamodb) = world.seen_by_dynamodb(&stripe_config(), &handler).await;
    (world, worker, dynamodb)
}

/// Cancels the first `count` transactions for these reasons.
fn cancelling(reasons: &[&str], count: usize) -> impl FnMut(&str, usize) -> Fault + Send + 'static {
    let reasons: Vec<_> = reasons
        .iter()
        .map(|code| serde_json::json!({ "Code": code, "Message": "made up" }))
        .collect();
    let body = serde_json::json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "Transaction cancelled",
        "CancellationReasons": reasons
    });
    let mut cancelled = 0;
    move |action, _| {
        if action != "TransactWriteItems" || cancelled >= count {
            return Fault::None;
        }
        cancelled += 1;
        Fault::RefuseWith(400, body.to_string())
    }
}

/// A write that only an account that is there allows.
fn only_for(account: &str) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(ACCOUNTS)
        .set_item(Some(HashMap::from([(
            "account".to_owned(),
            AttributeValue::S(account.to_owned()),
        )])))
        .condition_expression("attribute_exists(account)");
    TransactWriteItem::builder().put(put.build().expect("complete")).build()
}
