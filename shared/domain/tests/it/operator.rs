//! What an operator may do, and what is kept of it.

use std::collections::BTreeMap;

use domain::{
    effects::{StepEntry, StepName, StepState},
    item::{Attribute, Value},
    limits,
    record::{ErrorNote, State, StateName},
    transition::{
        CannotReplay, CannotUnstick, FencedOutcome, Leased, Operated, Operator, Policy, Standing,
        discard, replay, settle_operation, unstick,
    },
    write::Written,
};

use crate::{DAY, MS, NOW, Table, claimed, held, owner, policy, sweep::in_state, take};

const ADA: Operator<'_> = Operator { name: "ada", reason: "fixed the account" };

#[test]
fn only_a_parked_or_done_event_is_replayed_and_only_a_parked_one_discarded() {
    for (state, replayable, discardable) in [
        (StateName::Received, false, false),
        (StateName::Processing, false, false),
        (StateName::Failed, true, true),
        (StateName::Done, true, false),
        (StateName::Discarded, false, false),
    ] {
        let record = in_state(state).record();
        let replayed = replay(&record, &ADA, NOW, &policy(), false);
        let discarded = discard(&record, &ADA, NOW, &policy());
        assert_eq!(replayed.is_ok(), replayable, "{state}");
        assert_eq!(discarded.is_ok(), discardable, "{state}");
        if !replayable {
            assert_eq!(replayed.err(), Some(CannotReplay::State(state)));
        }
    }
}

#[test]
fn a_replay_keeps_fence_and_journal_moves_the_limit_on_and_takes_the_expiry_away() {
    for forget in [false, true] {
        let mut table = done_with_a_step();
        table.set(Attribute::Attempt, 7_i64);
        let write = replay(&table.record(), &ADA, NOW, &policy(), forget).expect("done");
        assert!(matches!(table.write(&write), Written::Applied(_)));
        let record = table.record();
        assert_eq!(record.attempt, 7);
        assert_eq!(record.attempt_limit, 7 + policy().attempt_limit);
        assert_eq!(record.steps.is_empty(), forget);
        assert_eq!(record.replays, 1);
        let due_at = NOW.plus(limits::GRACE);
        assert_eq!(record.state, State::Received { not_before: None, due_at });
        for gone in [Attribute::ExpiresAt, Attribute::CompletedAt, Attribute::LeaseUntil] {
            assert_eq!(table.item().get(&gone), None, "{gone:?}");
        }
        // Open again, and to be found: the fence goes on from where it was.
        let queue_key = format!("open#{}", crate::key().shard());
        assert_eq!(table.item()[&Attribute::QueueKey], Value::from(queue_key));
        let (lease, _) = held(&mut table, "c", NOW);
        assert_eq!(lease.fence(), 8);
    }
}

#[test]
fn an_event_whose_payload_was_dropped_is_not_replayed() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    let dropping = Policy { drop_payload_when_done: true, ..policy() };
    table.write(&lease.complete(&[], NOW, &dropping).write);
    let refused = replay(&table.record(), &ADA, NOW, &policy(), false);
    assert_eq!(refused.err(), Some(CannotReplay::PayloadDropped));
}

#[test]
fn replays_are_remembered_to_the_last_and_then_refused() {
    let mut table = in_state(StateName::Failed);
    let entry = Value::Map(BTreeMap::new());
    for (count, allowed) in [(limits::MAX_REPLAYS - 1, true), (limits::MAX_REPLAYS, false)] {
        table.set(Attribute::Replays, Value::List(vec![entry.clone(); count]));
        let replayed = replay(&table.record(), &ADA, NOW, &policy(), false);
        assert_eq!(replayed.is_ok(), allowed, "{count}");
        assert_eq!(replayed.err(), (!allowed).then_some(CannotReplay::TooOften));
    }
}

#[test]
fn of_two_operators_the_second_changes_nothing() {
    let mut table = in_state(StateName::Failed);
    let seen = table.record();
    let one = replay(&seen, &ADA, NOW, &policy(), false).expect("parked");
    let two = discard(&seen, &ADA, NOW, &policy()).expect("parked");
    assert!(matches!(table.write(&one), Written::Applied(_)));
    let before = table.clone();
    assert!(matches!(table.write(&one), Written::Refused(_)));
    assert!(matches!(table.write(&two), Written::Refused(_)));
    assert_eq!(table, before);
    // Parked again meanwhile: another attempt than the one that was seen.
    let (lease, _) = held(&mut table, "b", NOW);
    table.write(&lease.park(&ErrorNote::new("x", "y", NOW), &[], NOW).write);
    assert!(matches!(table.write(&two), Written::Refused(_)));
}

#[test]
fn a_discarded_event_is_closed_expires_and_is_not_run() {
    let mut table = in_state(StateName::Discarded);
    let State::Discarded(closure) = table.record().state else { panic!("not discarded") };
    assert_eq!(closure.completed_at, NOW);
    assert!(closure.expires_at >= NOW.plus(policy().retention.duration()));
    for gone in [Attribute::QueueKey, Attribute::DueAt] {
        assert_eq!(table.item().get(&gone), None, "{gone:?}");
    }
    assert_eq!(table.record().replays, 1);
    let leased = take(&mut table, "b", NOW);
    let settled = Leased::Settled(StateName::Discarded);
    assert_eq!(format!("{leased:?}"), format!("{settled:?}"));
}

#[test]
fn an_operators_words_are_kept_and_bounded() {
    let long = "ü".repeat(limits::MAX_REASON_BYTES);
    let who = Operator { name: "ada", reason: &long };
    let mut table = in_state(StateName::Failed);
    let write = replay(&table.record(), &who, NOW, &policy(), false).expect("parked");
    table.write(&write);
    let Some(Value::List(history)) = table.item().get(&Attribute::Replays) else {
        panic!("no history")
    };
    let [Value::Map(entry)] = history.as_slice() else { panic!("{history:?}") };
    assert_eq!(entry["did"], "replay".into());
    assert_eq!(entry["by"], "ada".into());
    assert_eq!(entry["at"], NOW.millis().into());
    let Value::Text(reason) = &entry["reason"] else { panic!("no reason") };
    assert!(!reason.is_empty() && reason.len() <= limits::MAX_REASON_BYTES);
    assert!(long.starts_with(reason.as_str()));
}

// ---- unstick --------------------------------------------------------------------------------

#[test]
fn only_a_lease_that_somebody_holds_is_taken_away() {
    for state in [StateName::Received, StateName::Failed, StateName::Done, StateName::Discarded] {
        let refused = unstick(&in_state(state).record(), &ADA, NOW);
        assert_eq!(refused.err(), Some(CannotUnstick::State(state)));
    }
    let mut table = in_state(StateName::Processing);
    let entry = Value::Map(BTreeMap::new());
    for (count, allowed) in [(limits::MAX_REPLAYS - 1, true), (limits::MAX_REPLAYS, false)] {
        table.set(Attribute::Replays, Value::List(vec![entry.clone(); count]));
        let freed = unstick(&table.record(), &ADA, NOW);
        assert_eq!(freed.err(), (!allowed).then_some(CannotUnstick::TooOften));
    }
}

#[test]
fn a_lease_taken_away_leaves_the_next_worker_all_but_the_lease() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    table.write(&lease.journal(&[(step_name(), done_by("a"))]).write);
    free(&mut table);
    let record = table.record();
    let due_at = NOW.plus(limits::GRACE);
    assert_eq!(record.state, State::Received { not_before: None, due_at });
    assert_eq!((record.attempt, record.attempt_limit, record.steps.len()), (1, 3, 1));
    assert_eq!((record.lease_owner, record.replays), (None, 1));
    assert_eq!(table.item().get(&Attribute::LeaseUntil), None);
    // At once, though the lease that was taken away would have gone on for long.
    let (next, record) = held(&mut table, "b", NOW);
    assert_eq!((next.fence(), record.steps.len()), (2, 1));
}

#[test]
fn the_worker_whose_lease_was_taken_away_changes_nothing_before_or_after_the_next_one() {
    let error = ErrorNote::new("x", "y", NOW);
    for taken_over in [false, true] {
        let mut table = claimed();
        let (lease, _) = held(&mut table, "a", NOW);
        free(&mut table);
        let standing = if taken_over {
            held(&mut table, "b", NOW);
            Standing::HeldElsewhere(NOW.plus(limits::MAX_LEASE))
        } else {
            Standing::Waiting(None)
        };
        let before = table.clone();
        for late in [
            lease.journal(&[(step_name(), done_by("a"))]),
            lease.complete(&[], NOW, &policy()),
            lease.release(DAY, &error, &[], NOW),
            lease.park(&error, &[], NOW),
        ] {
            let written = table.write(&late.write);
            let outcome = late.settle(written).expect("readable");
            assert_eq!(outcome, FencedOutcome::Lost(standing), "{late:?}");
            assert_eq!(table, before);
        }
    }
}

#[test]
fn a_lease_that_ended_while_the_operator_looked_is_not_taken_away() {
    let seen = in_state(StateName::Processing).record();
    let write = unstick(&seen, &ADA, NOW).expect("held");
    for state in [StateName::Received, StateName::Done, StateName::Failed] {
        let mut table = in_state(state);
        let before = table.clone();
        assert!(matches!(table.write(&write), Written::Refused(_)), "{state}");
        assert_eq!(table, before);
    }
    // Taken over: the next worker's lease is not the one that was seen.
    let mut table = in_state(StateName::Processing);
    held(&mut table, "b", NOW.plus(DAY));
    assert!(matches!(table.write(&write), Written::Refused(_)));
}

#[test]
fn used_up_attempts_are_not_given_back_with_the_lease() {
    let mut table = in_state(StateName::Processing);
    table.set(Attribute::AttemptLimit, 1_i64);
    free(&mut table);
    assert!(matches!(take(&mut table, "b", NOW), Leased::Exhausted(_)));
}

// ---- what became of it ----------------------------------------------------------------------

#[test]
fn an_operators_write_whose_answer_got_lost_took_hold_whatever_happened_since() {
    let mut table = in_state(StateName::Failed);
    let write = replay(&table.record(), &ADA, NOW, &policy(), false).expect("parked");
    let first = table.write(&write);
    assert_eq!(settle_operation(&write, first), Ok(Operated::Applied));
    held(&mut table, "b", NOW);
    free(&mut table);
    let again = table.write(&write);
    assert!(matches!(again, Written::Refused(Some(_))));
    assert_eq!(settle_operation(&write, again), Ok(Operated::Applied));
}

#[test]
fn an_operator_who_was_too_late_hears_how_the_event_stands() {
    let seen = in_state(StateName::Failed);
    let write = discard(&seen.record(), &ADA, NOW, &policy()).expect("parked");
    let mut table = seen.clone();
    // Another operator, a moment later: not this one's entry.
    let other = replay(&seen.record(), &ADA, NOW.plus(MS), &policy(), false).expect("parked");
    table.write(&other);
    let refused = table.write(&write);
    assert_eq!(settle_operation(&write, refused), Ok(Operated::Lost(Standing::Waiting(None))));
    let gone = Written::Refused(None);
    assert_eq!(settle_operation(&write, gone), Ok(Operated::Lost(Standing::Gone)));
}

fn free(table: &mut Table) {
    let write = unstick(&table.record(), &ADA, NOW).expect("held");
    let written = table.write(&write);
    assert_eq!(settle_operation(&write, written), Ok(Operated::Applied));
}

fn step_name() -> StepName {
    StepName::new("mail").expect("valid")
}

fn done_by(who: &str) -> StepEntry {
    let state = StepState::Done { result: "1".into() };
    StepEntry { state, key: "k".into(), owner: owner(who), at: NOW }
}

fn done_with_a_step() -> Table {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    table.write(&lease.complete(&[(step_name(), done_by("a"))], NOW, &policy()).write);
    assert_eq!(table.record().steps.len(), 1);
    table
}
