//! A record in words: how it stands, how it came to that, what happens next and when.
//!
//! What happens next is what the domain decides, not what this page remembers of it: the sweep that
//! will come is asked what it would do.

use std::time::Duration;

use domain::{
    effects::{StepEntry, StepState, hex},
    record::{KeptPayload, Record, State},
    sweep::{Sweep, sweep},
    time::Timestamp,
};
use serde_json::{Value, json};

use super::{Looked, moment};

/// Something that happened, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When; without, there is no telling.
    pub at: Option<Timestamp>,
    /// What, with names from outside as they came.
    pub what: String,
}

impl Moment {
    fn new(at: Timestamp, what: impl Into<String>) -> Self {
        Self { at: Some(at), what: what.into() }
    }

    fn sometime(what: impl Into<String>) -> Self {
        Self { at: None, what: what.into() }
    }
}

/// Until when a worker may hold the record's lease, if by any clock within `skew` it may do so at
/// `now`.
#[must_use]
pub fn held_until(record: &Record, now: Timestamp, skew: Duration) -> Option<Timestamp> {
    match record.state {
        State::Processing { lease_until, .. } if lease_until >= now.minus(skew) => {
            Some(lease_until)
        }
        State::Received { .. }
        | State::Processing { .. }
        | State::Done(_)
        | State::Failed { .. }
        | State::Discarded(_) => None,
    }
}

/// What is known to have happened to an event, the earliest first. A record keeps what is needed to
/// go on, not each attempt: of those that failed only the last left its error.
#[must_use]
pub fn timeline(looked: &Looked) -> Vec<Moment> {
    let Looked { record, history } = looked;
    let mut past = vec![Moment::new(
        record.received_at,
        format!("received, and claimed by delivery {}", record.claim_id.0),
    )];
    past.extend(record.occurred_at.map(|at| Moment::new(at, "occurred, by the provider's clock")));
    past.extend(record.steps.iter().map(|(name, entry)| {
        let how = match entry.state {
            StepState::Started => "started",
            StepState::Done { .. } => "done",
        };
        Moment::new(entry.at, format!("step {name} {how}"))
    }));
    past.extend(
        record
            .last_error
            .as_ref()
            .map(|error| Moment::new(error.at, format!("failed: {}: {}", error.class, error.text))),
    );
    past.extend(history.iter().map(|remark| {
        Moment::new(remark.at, format!("{} by {}: {}", remark.did, remark.by, remark.reason))
    }));
    match record.state {
        State::Done(closure) => past.push(Moment::new(closure.completed_at, "done")),
        State::Discarded(closure) => past.push(Moment::new(closure.completed_at, "discarded")),
        State::Received { .. } | State::Processing { .. } | State::Failed { .. } => {}
    }
    past.sort_by_key(|moment| moment.at);
    past
}

/// What happens to it next if nobody interferes.
#[must_use]
pub fn outlook(record: &Record, now: Timestamp, skew: Duration) -> Vec<Moment> {
    let next = format!("attempt {} of {}", record.attempt.saturating_add(1), record.attempt_limit);
    match record.state {
        State::Received { due_at, .. } if record.is_exhausted() => {
            vec![swept(record, due_at, now, skew)]
        }
        State::Received { not_before: Some(at), due_at } if at > now => {
            vec![Moment::new(at, format!("{next} may begin")), swept(record, due_at, now, skew)]
        }
        State::Received { due_at, .. } => vec![
            Moment::sometime(format!("{next} begins when a worker gets its message")),
            swept(record, due_at, now, skew),
        ],
        State::Processing { lease_until, due_at } => {
            let free = lease_until.plus(skew).plus(MILLISECOND);
            let mut next = vec![if held_until(record, now, skew).is_some() {
                Moment::new(
                    lease_until,
                    "the lease of its worker ends, if the worker does not first",
                )
            } else {
                Moment::new(lease_until, "the lease of its worker ended: who worked on it is gone")
            }];
            if !record.is_exhausted() {
                next.push(Moment::new(free, "from then on any worker with its message takes over"));
            }
            next.push(swept(record, due_at.max(free), now, skew));
            next
        }
        State::Failed { .. } => {
            vec![Moment::sometime("nothing, until a person replays or discards it")]
        }
        State::Done(closure) | State::Discarded(closure) => vec![Moment::new(
            closure.expires_at,
            "the table may forget it; until then another delivery of it is a duplicate",
        )],
    }
}

/// What the sweep does that looks at the record as it is now, once it is due.
fn swept(record: &Record, due_at: Timestamp, now: Timestamp, skew: Duration) -> Moment {
    let at = due_at.max(now);
    let what = match sweep(record, at, skew) {
        Sweep::Requeue(_) => "a sweep enqueues it again, if no worker has begun by then",
        Sweep::Defer(_) => "a sweep finds it waiting, and looks again later",
        Sweep::Park(_) => "a sweep parks it: its attempts are used up",
        Sweep::Leave => "a sweep leaves it as it is",
    };
    Moment::new(at, what)
}

/// The record for scripts, without payload and headers' values.
#[must_use]
pub fn as_json(record: &Record) -> Value {
    let at = |at: Option<Timestamp>| at.map(moment);
    let (mut not_before, mut due_at, mut lease_until, mut closure) = (None, None, None, None);
    match record.state {
        State::Received { not_before: wait, due_at: due } => {
            (not_before, due_at) = (wait, Some(due))
        }
        State::Processing { lease_until: until, due_at: due } => {
            (lease_until, due_at) = (Some(until), Some(due));
        }
        State::Failed { due_at: due } => due_at = Some(due),
        State::Done(closed) | State::Discarded(closed) => closure = Some(closed),
    }
    json!({
        "key": record.key.to_string(),
        "source": record.key.source().as_str(),
        "event_id": record.key.id().as_str(),
        "state": record.state.name().as_str(),
        "provider": record.provider,
        "event_type": record.event_type,
        "object_id": record.object_id,
        "occurred_at": at(record.occurred_at),
        "received_at": moment(record.received_at),
        "delivery_id": record.claim_id.0,
        "attempt": record.attempt,
        "attempt_limit": record.attempt_limit,
        "lease_owner": record.lease_owner.as_ref().map(|owner| &owner.0),
        "lease_until": at(lease_until),
        "not_before": at(not_before),
        "due_at": at(due_at),
        "requeues": record.requeues,
        "last_error": record.last_error.as_ref().map(|error| json!({
            "class": error.class, "text": error.text, "at": moment(error.at),
        })),
        "payload_sha256": hex(&record.payload_sha256),
        "payload_mismatch": record.payload_mismatch.as_deref().map(hex),
        "content_type": record.content_type,
        "headers": record.headers.keys().collect::<Vec<_>>(),
        "completed_at": at(closure.map(|closed| closed.completed_at)),
        "expires_at": at(closure.map(|closed| closed.expires_at)),
    })
}

/// All that is known of an event, for scripts: the record, its journal, its history and what
/// happens next.
#[must_use]
pub fn whole_as_json(looked: &Looked, now: Timestamp, skew: Duration) -> Value {
    let Looked { record, history } = looked;
    let moments = |moments: Vec<Moment>| -> Value {
        let one = |it: &Moment| json!({ "at": it.at.map(moment), "what": it.what });
        moments.iter().map(one).collect()
    };
    let mut whole = as_json(record);
    let (bytes, codec, key) = match &record.payload {
        None => (None, None, None),
        Some(KeptPayload::Inline(stored)) => (Some(stored.bytes.len()), Some(&stored.codec), None),
        Some(KeptPayload::Elsewhere { codec, key }) => (None, Some(codec), Some(key)),
    };
    whole["payload_bytes"] = json!(bytes);
    whole["payload_codec"] = json!(codec);
    whole["payload_ref"] = json!(key);
    whole["steps"] =
        record.steps.iter().map(|(name, entry)| (name.to_string(), step(entry))).collect();
    whole["history"] = history
        .iter()
        .map(|it| json!({ "did": it.did, "by": it.by, "reason": it.reason, "at": moment(it.at) }))
        .collect();
    whole["timeline"] = moments(timeline(looked));
    whole["next"] = moments(outlook(record, now, skew));
    whole
}

fn step(entry: &StepEntry) -> Value {
    let (state, result) = match &entry.state {
        StepState::Started => ("started", None),
        StepState::Done { result } => ("done", Some(result)),
    };
    let owner = &entry.owner.0;
    json!({ "state": state, "key": entry.key, "result": result, "owner": owner, "at": moment(entry.at) })
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use domain::{
        event::{Event, EventKey},
        item::{Attribute, Item},
        limits,
        record::{ClaimId, StoredPayload},
        retention::{Retention, RetryWindows},
        transition::{Policy, claim},
        write::Change,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const SKEW: Duration = Duration::from_secs(5);

    #[test]
    fn what_waits_is_told_by_its_wait_and_by_the_sweep_that_comes() {
        let fresh = record(&[]);
        let told = said(outlook(&fresh, NOW, SKEW));
        let begins = "attempt 1 of 2 begins when a worker gets its message";
        assert_eq!(told[0], (None, begins.to_owned()));
        assert_eq!(told[1].0, Some(NOW.plus(limits::GRACE)));
        assert!(told[1].1.starts_with("a sweep enqueues it again"), "{told:?}");
        let later = NOW.plus(limits::GRACE * 2);
        let waits = record(&[(Attribute::NotBefore, later.millis())]);
        let told = said(outlook(&waits, NOW, SKEW));
        assert_eq!(told[0], (Some(later), "attempt 1 of 2 may begin".to_owned()));
        assert_eq!(told[1].1, "a sweep finds it waiting, and looks again later");
    }

    #[test]
    fn what_is_leased_is_told_by_its_lease_dead_or_alive() {
        for (until, held) in [(NOW.minus(SKEW), true), (NOW.minus(SKEW).minus(MILLISECOND), false)]
        {
            let leased = processing(1, until);
            let told = outlook(&leased, NOW, SKEW);
            assert_eq!(held_until(&leased, NOW, SKEW).is_some(), held);
            assert_eq!(told[0].what.contains("is gone"), !held, "{told:?}");
            assert_eq!(told[1].at, Some(until.plus(SKEW).plus(MILLISECOND)));
            assert!(told[2].what.contains("enqueues it again"), "{told:?}");
        }
    }

    #[test]
    fn what_has_used_its_attempts_up_is_told_to_be_parked_and_not_to_run() {
        let waits = record(&[(Attribute::Attempt, 2)]);
        for told in [outlook(&waits, NOW, SKEW), outlook(&processing(2, NOW), NOW, SKEW)] {
            let all = format!("{told:?}");
            assert!(all.contains("a sweep parks it"), "{all}");
            assert!(!all.contains("takes over") && !all.contains("begin"), "{all}");
        }
    }

    fn said(moments: Vec<Moment>) -> Vec<(Option<Timestamp>, String)> {
        moments.into_iter().map(|moment| (moment.at, moment.what)).collect()
    }

    fn processing(attempt: i64, until: Timestamp) -> Record {
        let mut item = claimed();
        item.insert(Attribute::State, "processing".into());
        item.insert(Attribute::Attempt, attempt.into());
        item.insert(Attribute::LeaseUntil, until.millis().into());
        Record::from_item(item).expect("readable")
    }

    fn record(changes: &[(Attribute, i64)]) -> Record {
        let mut item = claimed();
        item.extend(changes.iter().map(|(attribute, number)| (*attribute, (*number).into())));
        Record::from_item(item).expect("readable")
    }

    fn claimed() -> Item {
        let event = Event {
            key: EventKey::parse("stripe#evt_1").expect("valid"),
            provider: "stripe".into(),
            event_type: None,
            object_id: None,
            occurred_at: None,
            coalesces_until: None,
            payload: b"{}".to_vec(),
            content_type: None,
            headers: Vec::new(),
        };
        let policy = Policy {
            retention: Retention::new(None, &RetryWindows::default()).expect("valid"),
            attempt_limit: 2,
            backoff: domain::backoff::Backoff::default(),
            drop_payload_when_done: false,
        };
        let payload = StoredPayload { codec: "none".into(), bytes: b"{}".to_vec() };
        match claim(&event, payload, ClaimId("c".into()), NOW, &policy).write.change {
            Change::Put(item) => item,
            Change::Update(_) => panic!("a claim puts"),
        }
    }
}
