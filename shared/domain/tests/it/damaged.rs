//! Records that this version cannot read: an error that names the attribute, and never a panic.

use std::collections::BTreeMap;

use domain::{
    item::{Attribute, Item, Value},
    limits,
    record::{Record, StateName},
    sweep::sweep,
    transition::{Operator, claim, lease, park_exhausted, replay, requeue},
    write::Written,
};
use proptest::prelude::*;

use crate::{NOW, SKEW, claim_as, event, key, owner, policy, sweep::in_state};

const STATES: [StateName; 5] = [
    StateName::Received,
    StateName::Processing,
    StateName::Done,
    StateName::Failed,
    StateName::Discarded,
];

/// What a record of this state cannot be without.
fn needed(state: StateName) -> Vec<Attribute> {
    let always = [
        Attribute::Pk,
        Attribute::State,
        Attribute::Provider,
        Attribute::ClaimId,
        Attribute::ReceivedAt,
        Attribute::PayloadSha256,
        Attribute::PayloadCodec,
        Attribute::Attempt,
        Attribute::AttemptLimit,
    ];
    let own: &[Attribute] = match state {
        StateName::Received | StateName::Failed => &[Attribute::DueAt],
        StateName::Processing => &[Attribute::DueAt, Attribute::LeaseUntil],
        StateName::Done | StateName::Discarded => &[Attribute::CompletedAt, Attribute::ExpiresAt],
    };
    always.into_iter().chain(own.iter().copied()).collect()
}

#[test]
fn a_record_without_what_its_state_needs_is_refused_by_name() {
    for state in STATES {
        for attribute in needed(state) {
            let mut item = in_state(state).item().clone();
            assert!(item.remove(&attribute).is_some(), "{state} has no {attribute:?}");
            assert_refused(item, attribute, state);
        }
    }
}

#[test]
fn an_attribute_of_another_type_is_refused_by_name() {
    let wrong = |value: &Value| match value {
        Value::Number(_) => Value::from("7"),
        Value::Text(_) | Value::Bytes(_) | Value::Map(_) | Value::List(_) => Value::Number(7),
    };
    // Kept for people and for the index; nothing is decided by them.
    let unread = [Attribute::Source, Attribute::EventId, Attribute::QueueKey];
    for state in STATES {
        let item = in_state(state).item().clone();
        for (attribute, value) in item.iter().filter(|(a, _)| !unread.contains(a)) {
            // A record holds what another state has left behind, and its own state does not read.
            let leftover = match attribute {
                Attribute::DueAt => state == StateName::Done || state == StateName::Discarded,
                _ => false,
            };
            if !leftover {
                let mut damaged = item.clone();
                damaged.insert(*attribute, wrong(value));
                assert_refused(damaged, *attribute, state);
            }
        }
    }
}

fn assert_refused(item: Item, attribute: Attribute, state: StateName) {
    let error = Record::from_item(item.clone()).expect_err("refused").to_string();
    assert!(error.contains(&format!("`{}`", attribute.name())), "{state}, {attribute:?}: {error}");
    // Nobody claims, leases or completes on the strength of a record that cannot be read.
    let claim = claim_as("other", &event());
    assert!(claim.settle(Written::Refused(Some(item.clone()))).is_err());
    let take = lease(&key(), owner("b"), NOW, NOW, SKEW, None);
    assert!(take.settle(Written::Refused(Some(item))).is_err());
}

#[test]
fn values_out_of_their_range_are_refused() {
    let damages: [(Attribute, Value); 8] = [
        (Attribute::Attempt, (-1_i64).into()),
        (Attribute::AttemptLimit, i64::MAX.into()),
        (Attribute::PayloadSha256, Value::Bytes(vec![0; 31])),
        (Attribute::State, "paused".into()),
        (Attribute::Pk, "no-separator".into()),
        (Attribute::Pk, "UPPER#evt".into()),
        (Attribute::Steps, Value::Map(BTreeMap::from([("B A D".into(), "x".into())]))),
        (Attribute::LastError, Value::Map(BTreeMap::from([("class".into(), 1_i64.into())]))),
    ];
    for (attribute, value) in damages {
        let mut item = in_state(StateName::Received).item().clone();
        item.insert(attribute, value);
        assert_refused(item, attribute, StateName::Received);
    }
}

#[test]
fn a_journal_entry_that_says_neither_started_nor_done_is_refused() {
    let text = |text: &str| Value::from(text);
    let whole: BTreeMap<String, Value> = BTreeMap::from([
        ("state".into(), text("done")),
        ("result".into(), text("1")),
        ("key".into(), text("k")),
        ("owner".into(), text("a")),
        ("at".into(), 1_i64.into()),
    ]);
    let journal = |entry: BTreeMap<String, Value>| {
        let mut item = in_state(StateName::Received).item().clone();
        let steps = BTreeMap::from([("mail".to_owned(), Value::Map(entry))]);
        item.insert(Attribute::Steps, Value::Map(steps));
        item
    };
    assert!(Record::from_item(journal(whole.clone())).is_ok());
    for part in ["state", "result", "key", "owner", "at"] {
        let mut entry = whole.clone();
        entry.remove(part);
        assert_refused(journal(entry), Attribute::Steps, StateName::Received);
        let mut entry = whole.clone();
        entry.insert(part.into(), Value::Bytes(vec![1]));
        assert_refused(journal(entry), Attribute::Steps, StateName::Received);
    }
    // A result of a step that is only started: one of the two is wrong, and which nobody knows.
    let started = BTreeMap::from([("state".into(), text("started"))]);
    let entry = whole.into_iter().chain(started).collect();
    assert_refused(journal(entry), Attribute::Steps, StateName::Received);
}

#[test]
fn what_an_event_brings_along_is_cut_to_what_a_record_holds() {
    let long = "ä".repeat(limits::MAX_LABEL_BYTES);
    let kept = limits::MAX_KEPT_HEADERS;
    let mut headers: Vec<_> = (0..=kept).map(|i| (format!("x-{i}"), "v".to_owned())).collect();
    headers.insert(0, ("x-long".into(), "v".repeat(limits::MAX_KEPT_HEADER_BYTES + 1)));
    let event = domain::event::Event {
        event_type: Some(long.clone()),
        object_id: Some(long.clone()),
        headers,
        ..event()
    };
    let payload = domain::record::StoredPayload { codec: "none".into(), bytes: Vec::new() };
    let id = domain::record::ClaimId("first".into());
    let mut table = crate::Table::default();
    table.write(&claim(&event, payload, id, NOW, &policy()).write);
    let record = table.record();
    assert_eq!(record.headers.len(), kept);
    assert!(!record.headers.contains_key("x-long"));
    for label in [record.event_type, record.object_id] {
        assert!(label.is_some_and(|l| l.len() <= limits::MAX_LABEL_BYTES && long.starts_with(&l)));
    }
}

fn values() -> impl Strategy<Value = Value> {
    let number = prop_oneof![any::<i64>(), -2_i64..3, Just(i64::MIN), Just(i64::MAX)];
    let word = prop_oneof![
        proptest::sample::select(
            ["received", "processing", "done", "failed", "discarded", "stripe#evt_1", ""].to_vec()
        )
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let bytes = proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes);
    let leaf = prop_oneof![number.prop_map(Value::Number), word, bytes];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let names = proptest::sample::select(
            ["class", "text", "at", "state", "key", "owner", "result", "mail"].to_vec(),
        )
        .prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::btree_map(names, inner.clone(), 0..5).prop_map(Value::Map),
            proptest::collection::vec(inner, 0..4).prop_map(Value::List),
        ]
    })
}

proptest! {
    /// A readable record of random attributes is one that every transition can be asked about.
    #[test]
    fn no_item_makes_anything_panic(
        state in proptest::sample::select(STATES.to_vec()),
        damage in proptest::collection::vec(
            (proptest::sample::select(Attribute::ALL.to_vec()), proptest::option::of(values())),
            0..6,
        ),
    ) {
        let mut item = in_state(state).item().clone();
        for (attribute, value) in damage {
            match value {
                Some(value) => drop(item.insert(attribute, value)),
                None => drop(item.remove(&attribute)),
            }
        }
        if let Ok(record) = Record::from_item(item.clone()) {
            let who = Operator { name: "ada", reason: "why" };
            drop((sweep(&record, NOW, SKEW), requeue(&record, NOW), park_exhausted(&record, NOW)));
            let _ = replay(&record, &who, NOW, &policy(), true);
            let take = lease(&key(), owner("b"), NOW, NOW, SKEW, None);
            prop_assert!(take.settle(Written::Refused(Some(item))).is_ok());
        }
    }
}
