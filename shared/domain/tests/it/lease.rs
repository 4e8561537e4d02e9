//! Claim, lease and what is written under one: who won, who lost, and whose answer got lost.

use std::time::Duration;

use domain::{
    effects::{StepEntry, StepName, StepState},
    event::EventId,
    guard::Guard,
    item::{Attribute, Value},
    limits,
    receive::{Reaction, react},
    record::{ErrorNote, State, StateName},
    transition::{
        BEYOND_HORIZON, Claimed, Fenced, FencedOutcome, Leased, Standing, lease, note_mismatch,
    },
    write::{Both, Change, Written},
};

use crate::{DAY, MS, NOW, SKEW, claim_as, claimed, event, held, key, owner, policy, take};

#[test]
fn of_two_claims_the_second_is_a_duplicate_and_sees_the_first() {
    let mut table = claimed();
    let second = claim_as("second", &event());
    let written = table.write(&second.write);
    match second.settle(written).expect("readable") {
        Claimed::Duplicate(record) => assert_eq!(record.claim_id.0, "first"),
        other => panic!("{other:?}"),
    }
    assert_eq!(table, claimed());
}

#[test]
fn a_claim_whose_answer_got_lost_is_not_its_own_duplicate() {
    let mut table = claimed();
    let again = claim_as("first", &event());
    let written = table.write(&again.write);
    assert!(matches!(written, Written::Refused(Some(_))));
    assert!(matches!(again.settle(written), Ok(Claimed::New)));
    // A lost answer of a claim that parked is a parked one's, and is not enqueued.
    let old = domain::event::Event { occurred_at: Some(NOW.minus(40 * DAY)), ..event() };
    let mut table = crate::Table::default();
    let parking = claim_as("first", &old);
    table.write(&parking.write);
    let written = table.write(&parking.write);
    let settled = parking.settle(written).expect("readable");
    assert!(matches!(settled, Claimed::BeyondHorizon));
    assert!(matches!(react(&settled, NOW), Reaction::Parked));
}

#[test]
fn a_record_that_vanished_under_a_claim_makes_the_provider_come_again() {
    let settled = claim_as("first", &event()).settle(Written::Refused(None)).expect("readable");
    assert!(matches!(react(&settled, NOW), Reaction::Unavailable));
}

#[test]
fn an_event_at_its_horizon_is_parked_and_a_younger_one_is_not() {
    // Before its retention ends, by more than any two clocks differ: at its end the record of an
    // earlier delivery may just have gone.
    let horizon = policy().retention.duration() - limits::HORIZON_LEAD;
    for (age, state) in [(horizon - MS, StateName::Received), (horizon, StateName::Failed)] {
        let event = domain::event::Event { occurred_at: Some(NOW.minus(age)), ..event() };
        let mut table = crate::Table::default();
        table.write(&claim_as("first", &event).write);
        let record = table.record();
        assert_eq!(record.state.name(), state, "{age:?}");
        let parked = state == StateName::Failed;
        let class = record.last_error.map(|error| error.class);
        assert_eq!(class.as_deref(), parked.then_some(BEYOND_HORIZON));
        let queue = if parked { "parked#" } else { "open#" };
        let Some(Value::Text(queue_key)) = table.item().get(&Attribute::QueueKey) else {
            panic!("not in the index");
        };
        assert!(queue_key.starts_with(queue), "{queue_key}");
        assert_eq!(table.item().get(&Attribute::ExpiresAt), None);
    }
}

#[test]
fn an_event_that_coalesces_waits_for_all_that_it_stands_for() {
    let until = NOW.plus(10 * 1000 * MS);
    let event = domain::event::Event { coalesces_until: Some(until), ..event() };
    let mut table = crate::Table::default();
    table.write(&claim_as("first", &event).write);
    // By a clock that is behind by the whole bound, it still takes deliveries until just before.
    let first_run = until.plus(limits::CLOCK_SKEW);
    match take(&mut table, "a", first_run.minus(MS)) {
        Leased::NotYet(at) => assert_eq!(at, first_run),
        other => panic!("{other:?}"),
    }
    let duplicate = Claimed::Duplicate(Box::new(table.record()));
    let due = first_run.plus(limits::GRACE);
    assert!(matches!(react(&duplicate, due), Reaction::Nothing(StateName::Received)));
    assert!(matches!(react(&duplicate, due.plus(MS)), Reaction::Requeue(_)));
    held(&mut table, "a", first_run);
    // One that is long over delays nothing.
    let event = domain::event::Event { coalesces_until: Some(NOW.minus(DAY)), ..event };
    let mut table = crate::Table::default();
    table.write(&claim_as("first", &event).write);
    let duplicate = Claimed::Duplicate(Box::new(table.record()));
    let due = NOW.plus(limits::GRACE);
    assert!(matches!(react(&duplicate, due), Reaction::Nothing(StateName::Received)));
}

#[test]
fn a_fingerprint_is_claimed_beside_its_event_and_outlives_nothing_that_it_stands_for() {
    let fingerprint = EventId::new("digest").expect("valid");
    let claim = claim_as("first", &event());
    let claim = claim.with_fingerprint(fingerprint.clone(), NOW, &policy());
    let beside = claim.fingerprint.as_ref().expect("there is one");
    assert_eq!(beside.key.pk(), "stripe!#digest");
    assert_eq!(beside.guard, Guard::Missing(Attribute::Pk));
    let Change::Put(item) = &beside.change else { panic!("an update") };
    let retention = policy().retention.duration();
    let expires_at = NOW.plus(retention).secs_rounded_up();
    assert_eq!(item.get(&Attribute::ExpiresAt), Some(&expires_at.into()));
    assert_eq!(item.get(&Attribute::EventId), Some(&"evt_1".into()));
    assert_eq!(item.get(&Attribute::QueueKey), None, "no sweep is to find it");
    let settled = |both| claim.settle_both(both).expect("readable");
    let new = settled(Both::First(Written::Applied(None)));
    assert!(matches!(react(&new, NOW), Reaction::Enqueue));
    let replayed = settled(Both::SecondRefused(Some(item.clone())));
    assert!(matches!(react(&replayed, NOW), Reaction::Replayed));
    // Its own record, after a lost answer, is looked at before the fingerprint.
    let own = Written::Refused(Some(claimed().item().clone()));
    assert!(matches!(settled(Both::First(own)), Claimed::New));
}

#[test]
fn a_duplicate_is_enqueued_again_only_past_its_grace() {
    let due = NOW.plus(limits::GRACE);
    let duplicate = || Claimed::Duplicate(Box::new(claimed().record()));
    assert!(matches!(react(&Claimed::New, NOW), Reaction::Enqueue));
    assert!(matches!(react(&duplicate(), due), Reaction::Nothing(StateName::Received)));
    assert!(matches!(react(&duplicate(), due.plus(MS)), Reaction::Requeue(_)));

    let mut table = claimed();
    held(&mut table, "a", NOW);
    let leased = Claimed::Duplicate(Box::new(table.record()));
    let late = due.plus(DAY);
    assert!(matches!(react(&leased, late), Reaction::Nothing(StateName::Processing)));
}

#[test]
fn a_duplicate_of_an_event_that_waits_for_its_next_attempt_is_left_waiting() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    let error = ErrorNote::new("x", "y", NOW);
    let wait = limits::GRACE * 2;
    table.write(&lease.release(wait, &error, &[], NOW).write);
    let duplicate = Claimed::Duplicate(Box::new(table.record()));
    let waiting = NOW.plus(wait).minus(MS);
    assert!(matches!(react(&duplicate, waiting), Reaction::Nothing(StateName::Received)));
    assert!(matches!(react(&duplicate, NOW.plus(wait)), Reaction::Requeue(_)));
}

#[test]
fn the_first_mismatch_stays_noted_and_none_makes_a_record() {
    let mut table = claimed();
    assert!(matches!(table.write(&note_mismatch(&key(), b"one")), Written::Applied(_)));
    let noted = table.record().payload_mismatch;
    assert!(noted.is_some());
    assert!(matches!(table.write(&note_mismatch(&key(), b"two")), Written::Refused(_)));
    assert_eq!(table.record().payload_mismatch, noted);
    let mut nothing = crate::Table::default();
    assert_eq!(nothing.write(&note_mismatch(&key(), b"one")), Written::Refused(None));
}

#[test]
fn each_lease_raises_the_fence_and_leaves_due_at_alone() {
    let mut table = claimed();
    let due = table.item()[&Attribute::DueAt].clone();
    let (first, record) = held(&mut table, "a", NOW);
    assert_eq!((first.fence(), record.attempt), (1, 1));
    let after = NOW.plus(limits::MAX_LEASE).plus(SKEW).plus(MS);
    let (second, record) = held(&mut table, "b", after);
    assert_eq!((second.fence(), record.attempt), (2, 2));
    assert_eq!(table.item()[&Attribute::DueAt], due);
}

#[test]
fn a_live_lease_is_not_taken_over_until_the_skew_bound_has_passed() {
    let mut table = claimed();
    held(&mut table, "a", NOW);
    let until = NOW.plus(limits::MAX_LEASE);
    for now in [NOW, until, until.plus(SKEW)] {
        match take(&mut table, "b", now) {
            Leased::HeldElsewhere(at) => assert_eq!(at, until),
            other => panic!("{other:?} at {now}"),
        }
    }
    let now = until.plus(SKEW).plus(MS);
    assert!(matches!(take(&mut table, "b", now), Leased::Held(..)));
}

#[test]
fn a_released_event_waits_until_not_before_and_not_longer() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    let error = ErrorNote::new("x", "y", NOW);
    let wait = Duration::from_secs(9);
    table.write(&lease.release(wait, &error, &[], NOW).write);
    let at = NOW.plus(wait);
    match take(&mut table, "b", at.minus(MS)) {
        Leased::NotYet(until) => assert_eq!(until, at),
        other => panic!("{other:?}"),
    }
    assert!(matches!(take(&mut table, "b", at), Leased::Held(..)));
    assert_eq!(table.item().get(&Attribute::NotBefore), None);
}

#[test]
fn a_long_wait_is_the_sweeps_and_a_short_one_the_queues() {
    for (wait, moved) in [(limits::MAX_KEPT_DELAY, false), (limits::MAX_KEPT_DELAY + MS, true)] {
        let mut table = claimed();
        let due = table.item()[&Attribute::DueAt].clone();
        let (lease, _) = held(&mut table, "a", NOW);
        table.write(&lease.release(wait, &ErrorNote::new("x", "y", NOW), &[], NOW).write);
        let expected = if moved { Value::from(NOW.plus(wait).millis()) } else { due };
        assert_eq!(table.item()[&Attribute::DueAt], expected, "{wait:?}");
    }
}

#[test]
fn used_up_attempts_are_exhausted_but_not_while_the_last_still_runs() {
    for last_runs in [true, false] {
        let mut table = claimed();
        let (lease, _) = held(&mut table, "a", NOW);
        if !last_runs {
            table.write(&lease.release(MS, &ErrorNote::new("x", "y", NOW), &[], NOW).write);
        }
        table.set(Attribute::Attempt, 3_i64);
        let leased = take(&mut table, "b", NOW.plus(MS));
        match (last_runs, leased) {
            (true, Leased::HeldElsewhere(_)) => {}
            (false, Leased::Exhausted(record)) => assert!(record.is_exhausted()),
            (_, other) => panic!("{other:?}"),
        }
        let after = NOW.plus(limits::MAX_LEASE + SKEW + MS);
        assert!(matches!(take(&mut table, "b", after), Leased::Exhausted(_)));
    }
}

#[test]
fn a_settled_event_is_not_leased_and_an_absent_one_not_made() {
    let mut nothing = crate::Table::default();
    assert!(matches!(take(&mut nothing, "a", NOW), Leased::Unknown));
    assert_eq!(nothing.item, None);
    for state in [StateName::Done, StateName::Failed, StateName::Discarded] {
        let mut table = crate::sweep::in_state(state);
        let before = table.clone();
        match take(&mut table, "b", NOW.plus(DAY)) {
            Leased::Settled(settled) => assert_eq!(settled, state),
            other => panic!("{other:?}"),
        }
        assert_eq!(table, before);
    }
}

#[test]
fn a_lease_whose_answer_got_lost_is_held_and_anothers_is_not() {
    let mut table = claimed();
    let until = NOW.plus(limits::MAX_LEASE);
    for (who, mine) in [("a", true), ("a", true), ("b", false)] {
        let take = lease(&key(), owner(who), NOW, until, SKEW, None);
        let written = table.write(&take.write);
        let settled = take.settle(written).expect("readable");
        assert_eq!(matches!(&settled, Leased::Held(lease, _) if lease.fence() == 1), mine, "{who}");
    }
    assert_eq!(table.record().attempt, 1);
}

#[test]
fn an_own_lease_that_was_released_since_is_not_held_any_more() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    table.write(&lease.release(DAY, &ErrorNote::new("x", "y", NOW), &[], NOW).write);
    assert!(matches!(take(&mut table, "a", NOW), Leased::NotYet(_)));
}

#[test]
fn an_opening_step_rides_on_the_lease_and_never_replaces_an_entry() {
    let mut table = claimed();
    let name = StepName::new("mail").expect("valid");
    let opens = |table: &mut crate::Table, who: &str, now: domain::time::Timestamp| {
        let entry = started(who);
        let until = now.plus(limits::MAX_LEASE);
        table.write(&lease(&key(), owner(who), now, until, SKEW, Some((&name, &entry))).write);
        table.record().steps[&name].owner.0.clone()
    };
    assert_eq!(opens(&mut table, "a", NOW), "a");
    assert_eq!(opens(&mut table, "b", NOW.plus(DAY)), "a");
    assert_eq!(table.record().attempt, 2);
}

fn started(who: &str) -> StepEntry {
    StepEntry { state: StepState::Started, key: "k".into(), owner: owner(who), at: NOW }
}

/// Each write that a lease allows, with the state it leads to.
fn writes(lease: &domain::transition::Lease) -> [(Fenced, StateName); 4] {
    let error = ErrorNote::new("x", "y", NOW);
    let entry = (StepName::new("mail").expect("valid"), started("a"));
    [
        (lease.journal(&[entry]), StateName::Processing),
        (lease.complete(&[], NOW, &policy()), StateName::Done),
        (lease.release(DAY, &error, &[], NOW), StateName::Received),
        (lease.park(&error, &[], NOW), StateName::Failed),
    ]
}

/// The SDK gave up on it and sent it again; the first one takes hold after all, when the step is
/// long done. The fence lets it through: the lease is the same.
#[test]
fn a_start_that_arrives_late_does_not_take_back_its_result() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    let mail = || StepName::new("mail").expect("valid");
    let start = lease.journal(&[(mail(), started("a"))]);
    let done = StepEntry { state: StepState::Done { result: "1".into() }, ..started("a") };
    table.write(&start.write);
    table.write(&lease.journal(&[(mail(), done.clone())]).write);
    let late = table.write(&start.write);
    assert_eq!(start.settle(late), Ok(FencedOutcome::Applied));
    assert_eq!(table.record().steps[&mail()], done);
}

#[test]
fn a_write_under_a_lease_takes_hold_and_its_lost_answer_is_known_again() {
    for i in 0..4 {
        let mut table = claimed();
        let (lease, _) = held(&mut table, "a", NOW);
        let (write, state) = writes(&lease).into_iter().nth(i).expect("four");
        let applied = table.write(&write.write);
        assert_eq!(write.settle(applied), Ok(FencedOutcome::Applied));
        assert_eq!(table.record().state.name(), state);
        // The SDK's repeat: refused where the state moved on, and seen as the own work it is.
        let after = table.clone();
        let repeated = table.write(&write.write);
        assert_eq!(write.settle(repeated), Ok(FencedOutcome::Applied), "{state}");
        assert_eq!(table, after);
    }
}

#[test]
fn a_worker_that_outlived_its_lease_changes_nothing_and_hears_how_things_stand() {
    let later = NOW.plus(limits::MAX_LEASE + SKEW + MS);
    for i in 0..4 {
        let mut table = claimed();
        let (late, _) = held(&mut table, "a", NOW);
        let (successor, _) = held(&mut table, "b", later);
        let until = later.plus(limits::MAX_LEASE);
        let lost = |table: &mut crate::Table| {
            let before = table.clone();
            let (write, _) = writes(&late).into_iter().nth(i).expect("four");
            let refused = table.write(&write.write);
            assert_eq!(*table, before);
            write.settle(refused).expect("readable")
        };
        let standing = lost(&mut table);
        assert_eq!(standing, FencedOutcome::Lost(Standing::HeldElsewhere(until)));
        let error = ErrorNote::new("x", "y", later);
        let ends = [
            (successor.release(DAY, &error, &[], later), Standing::Waiting(Some(later.plus(DAY)))),
            (successor.complete(&[], later, &policy()), Standing::Settled(StateName::Done)),
            (successor.park(&error, &[], later), Standing::Settled(StateName::Failed)),
        ];
        for (end, standing) in ends {
            let mut table = table.clone();
            table.write(&end.write);
            assert_eq!(lost(&mut table), FencedOutcome::Lost(standing));
        }
        assert_eq!(lost(&mut crate::Table::default()), FencedOutcome::Lost(Standing::Gone));
    }
}

#[test]
fn the_same_fence_of_another_owner_is_another_lease() {
    let mut table = claimed();
    let (lease, _) = held(&mut table, "a", NOW);
    table.set(Attribute::LeaseOwner, "b");
    for (write, _) in writes(&lease) {
        let refused = table.write(&write.write);
        assert!(matches!(write.settle(refused), Ok(FencedOutcome::Lost(_))));
    }
    assert!(matches!(table.record().state, State::Processing { .. }));
}

#[test]
fn completion_leaves_the_index_and_drops_a_payload_only_where_configured() {
    for drop_payload_when_done in [false, true] {
        let policy = domain::transition::Policy { drop_payload_when_done, ..policy() };
        let mut table = claimed();
        let (lease, before) = held(&mut table, "a", NOW);
        table.write(&lease.complete(&[], NOW, &policy).write);
        let record = table.record();
        assert_eq!(record.payload.is_none(), drop_payload_when_done);
        assert_eq!(record.payload_sha256, before.payload_sha256);
        for gone in [Attribute::QueueKey, Attribute::DueAt, Attribute::LeaseUntil] {
            assert_eq!(table.item().get(&gone), None, "{gone:?}");
        }
    }
}
