//! What the transitions promise, on records that real transitions made and on damaged ones.
#![expect(clippy::wildcard_enum_match_arm, reason = "any other outcome fails the test")]

mod bounds;
mod damaged;
mod lease;
mod operator;
mod shown;
mod sweep;
mod table;
mod time;

use std::time::Duration;

use domain::{
    backoff::Backoff,
    event::{Event, EventId, EventKey, Source},
    item::Item,
    limits,
    record::{ClaimId, LeaseOwner, Record, StoredPayload},
    retention::{Retention, RetryWindows},
    time::Timestamp,
    transition::{Claim, Lease, Leased, Policy, claim, lease},
    write::Written,
};

use crate::table::Table;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const SKEW: Duration = Duration::from_secs(5);
const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

fn key() -> EventKey {
    EventKey::new(Source::new("stripe").expect("valid"), EventId::new("evt_1").expect("valid"))
}

fn event() -> Event {
    Event {
        key: key(),
        provider: "stripe".into(),
        event_type: Some("charge.refunded".into()),
        object_id: Some("ch_1".into()),
        occurred_at: Some(NOW),
        coalesces_until: None,
        payload: b"{}".to_vec(),
        content_type: Some("application/json".into()),
        headers: vec![("x-kept".into(), "1".into())],
    }
}

fn policy() -> Policy {
    let windows = RetryWindows { automatic: Some(3 * DAY), manual: Some(30 * DAY) };
    Policy {
        retention: Retention::new(None, &windows).expect("valid"),
        attempt_limit: 3,
        backoff: Backoff::default(),
        drop_payload_when_done: false,
    }
}

fn claim_as(claim_id: &str, event: &Event) -> Claim {
    let payload = StoredPayload { codec: "none".into(), bytes: event.payload.clone() };
    claim(event, payload, ClaimId(claim_id.into()), NOW, &policy())
}

fn owner(name: &str) -> LeaseOwner {
    LeaseOwner(name.into())
}

/// A table with one claimed event.
fn claimed() -> Table {
    let mut table = Table::default();
    let written = table.write(&claim_as("first", &event()).write);
    assert_eq!(written, Written::Applied(None));
    table
}

fn take(table: &mut Table, who: &str, now: Timestamp) -> Leased {
    let until = now.plus(limits::MAX_LEASE);
    let take = lease(&key(), owner(who), now, until, SKEW, None);
    let written = table.write(&take.write);
    take.settle(written).expect("a readable record")
}

/// A lease that is held, and its record.
fn held(table: &mut Table, who: &str, now: Timestamp) -> (Lease, Box<Record>) {
    match take(table, who, now) {
        Leased::Held(lease, record) => (lease, record),
        other => panic!("not held: {other:?}"),
    }
}

fn record(item: &Item) -> Record {
    Record::from_item(item.clone()).expect("a readable record")
}
