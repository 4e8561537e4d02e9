//! Sweep, requeue and park: for each state, whether it is due, leased, waiting, exhausted.

use std::time::Duration;

use domain::{
    item::{Attribute, Value},
    limits,
    record::{ErrorNote, StateName},
    sweep::{Sweep, sweep},
    time::Timestamp,
    transition::{ATTEMPTS_EXHAUSTED, Operator, Requeue, discard, park_exhausted, replay, requeue},
    write::Written,
};
use proptest::prelude::*;

use crate::{DAY, MS, NOW, SKEW, Table, claimed, held, policy};

/// A record that real transitions brought into a state.
pub(crate) fn in_state(state: StateName) -> Table {
    let mut table = claimed();
    if state == StateName::Received {
        return table;
    }
    let (lease, _) = held(&mut table, "a", NOW);
    let error = ErrorNote::new("x", "y", NOW);
    let end = match state {
        StateName::Received | StateName::Processing => return table,
        StateName::Done => lease.complete(&[], NOW, &policy()),
        StateName::Failed | StateName::Discarded => lease.park(&error, &[], NOW),
    };
    table.write(&end.write);
    if state == StateName::Discarded {
        let who = Operator { name: "ada", reason: "no use" };
        let write = discard(&table.record(), &who, NOW, &policy()).expect("parked");
        table.write(&write);
    }
    assert_eq!(table.record().state.name(), state);
    table
}

fn decide(table: &Table) -> Sweep {
    sweep(&table.record(), NOW, SKEW)
}

fn due_at(write: &Requeue) -> Timestamp {
    let mut table = Table::default();
    table.write(&domain::write::GuardedWrite {
        guard: domain::guard::Guard::Missing(Attribute::Pk),
        ..write.write.clone()
    });
    match table.item()[&Attribute::DueAt] {
        Value::Number(at) => Timestamp::from_millis(at),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_open_or_not_due_is_left() {
    for state in [StateName::Done, StateName::Failed, StateName::Discarded] {
        assert!(matches!(decide(&in_state(state)), Sweep::Leave), "{state}");
    }
    for state in [StateName::Received, StateName::Processing] {
        let mut table = in_state(state);
        // Exhausted, so that only not being due can be why it is left.
        table.set(Attribute::Attempt, 3_i64);
        table.set(Attribute::LeaseUntil, NOW.minus(DAY).millis());
        table.set(Attribute::DueAt, NOW.plus(MS).millis());
        assert!(matches!(decide(&table), Sweep::Leave), "{state}");
        table.set(Attribute::DueAt, NOW.millis());
        assert!(matches!(decide(&table), Sweep::Park(_)), "{state}");
    }
}

#[test]
fn a_waiting_event_is_enqueued_when_due_and_put_off_while_it_waits() {
    let mut table = in_state(StateName::Received);
    table.set(Attribute::DueAt, NOW.millis());
    assert!(matches!(decide(&table), Sweep::Requeue(_)));
    table.set(Attribute::NotBefore, NOW.millis());
    assert!(matches!(decide(&table), Sweep::Requeue(_)));
    let later = NOW.plus(MS);
    table.set(Attribute::NotBefore, later.millis());
    match decide(&table) {
        Sweep::Defer(defer) => assert_eq!(due_at(&defer), later.plus(limits::GRACE)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_live_lease_is_put_off_past_its_end_and_an_outlived_one_enqueued() {
    let mut table = in_state(StateName::Processing);
    table.set(Attribute::DueAt, NOW.millis());
    for exhausted in [false, true] {
        table.set(Attribute::Attempt, if exhausted { 3_i64 } else { 1 });
        for until in [NOW.plus(DAY), NOW, NOW.minus(SKEW)] {
            table.set(Attribute::LeaseUntil, until.millis());
            match decide(&table) {
                // At the deferred moment a takeover's guard holds: `lease_until` < now − skew.
                Sweep::Defer(defer) => assert_eq!(due_at(&defer), until.plus(SKEW).plus(MS)),
                other => panic!("{other:?} with a lease until {until}"),
            }
        }
        table.set(Attribute::LeaseUntil, NOW.minus(SKEW).minus(MS).millis());
        assert_eq!(matches!(decide(&table), Sweep::Park(_)), exhausted);
        assert_eq!(matches!(decide(&table), Sweep::Requeue(_)), !exhausted);
    }
}

#[test]
fn of_two_that_requeue_at_once_one_enqueues() {
    let mut table = claimed();
    let seen = table.record();
    let due = NOW.plus(limits::GRACE);
    let one = requeue(&seen, due).expect("open");
    let two = requeue(&seen, due.plus(MS)).expect("open");
    let written = table.write(&one.write);
    assert!(one.settle(&written));
    let written = table.write(&two.write);
    assert!(!two.settle(&written));
    // The first one's repeat after a lost answer is still the first one's.
    let written = table.write(&one.write);
    assert!(matches!(written, Written::Refused(Some(_))));
    assert!(one.settle(&written));
    assert_eq!(table.record().requeues, 1);
    assert!(!one.settle(&Written::Refused(None)));
}

#[test]
fn a_requeue_of_what_was_settled_meanwhile_changes_nothing() {
    let seen = claimed().record();
    for state in [StateName::Done, StateName::Failed, StateName::Discarded] {
        let mut table = in_state(state);
        let before = table.clone();
        let bump = requeue(&seen, NOW.plus(limits::GRACE)).expect("open when seen");
        // Of the same `due_at`, so that only its state can be why it is refused.
        table.set(Attribute::DueAt, NOW.plus(limits::GRACE).millis());
        let written = table.write(&bump.write);
        assert!(!bump.settle(&written), "{state}");
        assert_eq!(table.record().requeues, 0);
        assert!(requeue(&before.record(), NOW).is_none(), "{state}");
    }
}

#[test]
fn requeues_grow_apart_and_stay_bounded() {
    let mut table = claimed();
    let mut waits = Vec::new();
    for _ in 0..40 {
        let bump = requeue(&table.record(), NOW).expect("open");
        assert!(matches!(table.write(&bump.write), Written::Applied(_)));
        waits.push(due_at(&bump).since(NOW));
    }
    assert_eq!(waits[..3], [limits::GRACE, limits::GRACE * 2, limits::GRACE * 4]);
    assert!(waits.is_sorted());
    assert_eq!(waits.last(), Some(&limits::MAX_REQUEUE_WAIT));
}

#[test]
fn parking_the_exhausted_names_all_that_was_seen() {
    let mut table = in_state(StateName::Processing);
    table.set(Attribute::Attempt, 3_i64);
    let park = park_exhausted(&table.record(), NOW);
    let changes: [(Attribute, Value); 4] = [
        (Attribute::State, "received".into()),
        (Attribute::Attempt, 4_i64.into()),
        (Attribute::AttemptLimit, 9_i64.into()),
        (Attribute::LeaseUntil, NOW.plus(DAY).millis().into()),
    ];
    for (attribute, value) in changes {
        let mut meanwhile = table.clone();
        meanwhile.set(attribute, value);
        let before = meanwhile.clone();
        assert!(matches!(meanwhile.write(&park), Written::Refused(_)), "{attribute:?}");
        assert_eq!(meanwhile, before);
    }
    assert!(matches!(table.write(&park), Written::Applied(_)));
    let record = table.record();
    assert_eq!(record.state.name(), StateName::Failed);
    assert_eq!(record.last_error.map(|error| error.class).as_deref(), Some(ATTEMPTS_EXHAUSTED));
    assert_eq!(table.item().get(&Attribute::ExpiresAt), None);
}

#[test]
fn an_exhausted_event_that_was_replayed_meanwhile_is_not_parked() {
    let mut table = in_state(StateName::Failed);
    let mut seen = in_state(StateName::Received);
    seen.set(Attribute::Attempt, 1_i64);
    seen.set(Attribute::AttemptLimit, 1_i64);
    let park = park_exhausted(&seen.record(), NOW);
    let who = Operator { name: "ada", reason: "fixed" };
    let again = replay(&table.record(), &who, NOW, &policy(), false).expect("parked");
    table.write(&again);
    assert!(matches!(table.write(&park), Written::Refused(_)));
}

proptest! {
    /// Whatever a sweep does with an open record, it never leaves one that is due as it is.
    #[test]
    fn an_open_record_that_is_due_is_never_left(
        leased in any::<bool>(),
        due in -2_i64..=0,
        lease_until in -7000_i64..7000,
        not_before in proptest::option::of(-3_i64..3),
        attempt in 0_u32..5,
        requeues in 0_u32..100,
    ) {
        let state = if leased { StateName::Processing } else { StateName::Received };
        let mut table = in_state(state);
        table.set(Attribute::DueAt, NOW.millis() + due);
        table.set(Attribute::Attempt, attempt);
        table.set(Attribute::Requeues, requeues);
        table.set(Attribute::LeaseUntil, NOW.millis() + lease_until);
        if let (false, Some(at)) = (leased, not_before) {
            table.set(Attribute::NotBefore, NOW.millis() + at);
        }
        let write = match decide(&table) {
            Sweep::Requeue(bump) => {
                prop_assert!(attempt < 3);
                bump.write
            }
            Sweep::Defer(bump) => bump.write,
            Sweep::Park(park) => {
                prop_assert!(attempt >= 3);
                park
            }
            Sweep::Leave => return Err(TestCaseError::fail("left")),
        };
        let applied = matches!(table.write(&write), Written::Applied(_));
        prop_assert!(applied);
        let bounded = NOW.plus(limits::MAX_REQUEUE_WAIT + SKEW + Duration::from_secs(8));
        match table.record().state {
            domain::record::State::Failed { .. } => {}
            domain::record::State::Received { due_at, .. }
            | domain::record::State::Processing { due_at, .. } => {
                prop_assert!(due_at > NOW && due_at <= bounded, "{due_at}");
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
