//! The events of one verified delivery: each is claimed by itself, and what is new is enqueued
//! together.
//!
//! A provider that sends the same events again in other groups meets a duplicate for each that is
//! on record, and a claim for each that is not.

use std::{collections::HashSet, time::Duration};

use domain::{
    event::Event,
    receive::{Reaction, react},
    record::{ClaimId, KeptPayload, Record, StateName, StoredPayload, object_key},
    seeded::{Fault, is_on},
    transition::{Claimed, claim, not_before_coalesced, note_mismatch},
};
use dynamo::{LedgerError, Returning, payload};
use futures::{StreamExt as _, stream};
use runtime::{config::SourceConfig, payloads::PayloadStore};
use sha2::{Digest as _, Sha256};
use sqs::{Message, Outgoing};
use tokio::time::Instant;

use crate::{
    Receiver, Refusal,
    handler::{Context, millis_since},
};

/// One event of a delivery, and what became of it.
pub(crate) struct Received {
    pub(crate) event: Event,
    pub(crate) outcome: Outcome,
}

/// A payload on its way.
enum Prepared {
    /// Onto its record.
    Inline(StoredPayload),
    /// Into the store, under this key: it fits on no record.
    Large { store: PayloadStore, key: String, stored: StoredPayload },
}

/// What became of one event of a delivery.
pub(crate) struct Outcome {
    pub(crate) result: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) durable: bool,
    pub(crate) state: Option<StateName>,
    pub(crate) claim_ms: Option<f64>,
    /// Whether it is this delivery's to enqueue.
    enqueue: bool,
    /// Why it was not, so that a sweep has to.
    pub(crate) deferred: Option<String>,
    pub(crate) mismatch: bool,
    pub(crate) error: Option<String>,
}

impl Receiver {
    /// Receives the events of a verified delivery.
    ///
    /// # Errors
    /// If one of them fits no record. Nothing is written then.
    pub(crate) async fn receive_events(
        &self,
        context: &Context<'_>,
        events: Vec<Event>,
    ) -> Result<Vec<Received>, Refusal> {
        let prepare = |event| self.prepare(context, event);
        let prepared = events.into_iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        let mut received: Vec<_> = stream::iter(prepared)
            .map(|(event, payload)| self.record(context, event, payload))
            .buffered(EVENTS_AT_ONCE)
            .collect()
            .await;
        count_once(&mut received);
        self.enqueue(context, &mut received).await;
        Ok(received)
    }

    async fn record(
        &self,
        context: &Context<'_>,
        event: Event,
        payload: Option<Prepared>,
    ) -> Received {
        let outcome = match payload {
            None => Outcome::of("ignored", "ignored", true),
            // The rest of a batch too large for the time there is: the provider sends it again.
            Some(_) if context.time_left().is_zero() => {
                Outcome::of("unavailable", "no_time", false)
            }
            Some(payload) => self.put_and_claim(context, &event, payload).await,
        };
        Received { event, outcome }
    }

    /// Puts a large payload where the claim says that it is, and claims. Should the one work and
    /// the other not, there is an object that no record names; the bucket's lifecycle removes it.
    async fn put_and_claim(
        &self,
        context: &Context<'_>,
        event: &Event,
        payload: Prepared,
    ) -> Outcome {
        let kept = match payload {
            Prepared::Inline(stored) => stored.into(),
            Prepared::Large { store, key, stored } => {
                if let Err(error) = store.put(&key, stored.bytes).await {
                    let outcome = Outcome::of("unavailable", error.class(), false);
                    return Outcome { error: Some(error.to_string()), ..outcome };
                }
                if context.time_left().is_zero() {
                    return Outcome::of("unavailable", "no_time", false);
                }
                KeptPayload::Elsewhere { codec: stored.codec, key }
            }
        };
        self.claim(context, event, kept).await
    }

    async fn claim(&self, context: &Context<'_>, event: &Event, payload: KeptPayload) -> Outcome {
        let claim_id = ClaimId(context.delivery_id.clone());
        let (now, policy) = (context.received_at, &context.config.policy);
        let mut claim = claim(event, payload, claim_id, now, policy);
        if let Some(fingerprint) = &context.fingerprint {
            claim = claim.with_fingerprint(fingerprint.clone(), now, policy);
        }
        let started = Instant::now();
        let claimed = self.ledger.claim(&claim).await;
        let claim_ms = Some(millis_since(started));
        let outcome = match claimed {
            Ok(claimed) => {
                let mut outcome = Outcome::after(&claimed);
                let follow_up = self.follow_up(context, event, &claimed, &mut outcome);
                // On record, and the provider must hear so before it hangs up: what was reached
                // counts, and a sweep does the rest.
                let _ = tokio::time::timeout(context.time_left(), follow_up).await;
                outcome
            }
            Err(error) => Outcome::unknown(&error),
        };
        Outcome { claim_ms, ..outcome }
    }

    /// An event with its payload as it is stored; without, where no route wants it. Before anything
    /// is written: a batch of which one event fits no record is refused as a whole.
    fn prepare(
        &self,
        context: &Context<'_>,
        event: Event,
    ) -> Result<(Event, Option<Prepared>), payload::TooLarge> {
        if context.config.route(event.event_type.as_deref()).is_none() {
            return Ok((event, None));
        }
        let stored = payload::encode(&event.payload);
        let prepared = match (payload::fits(&stored), &self.payloads) {
            (Ok(()), _) => Prepared::Inline(stored),
            (Err(too_large), None) => return Err(too_large),
            (Err(_), Some(store)) => {
                let sha256 = Sha256::digest(&event.payload).into();
                let key = object_key(&event.key, &sha256, &stored.codec);
                Prepared::Large { store: store.clone(), key, stored }
            }
        };
        Ok((event, Some(prepared)))
    }

    /// Does what follows a settled claim, as far as it is this event's alone.
    async fn follow_up(
        &self,
        context: &Context<'_>,
        event: &Event,
        claimed: &Claimed,
        outcome: &mut Outcome,
    ) {
        if let Reaction::Requeue(requeue) = react(claimed, self.clock.now()) {
            // Bump, then send. Should either fail, a sweep does both again: the record is
            // durable, so the provider hears 2xx whatever comes of this.
            outcome.outcome = "requeued";
            outcome.deferred = Some(NO_TIME.to_owned());
            let bumped = self.ledger.write(&requeue.write, Returning::Nothing).await;
            outcome.enqueue = bumped.as_ref().is_ok_and(|written| requeue.settle(written));
            outcome.deferred = bumped.err().map(|error| error.to_string());
        }
        if let Claimed::Duplicate(record) = claimed {
            outcome.mismatch = self.note_mismatch(context, event, record).await;
        }
    }

    /// Enqueues what is this delivery's to enqueue. It is on record: should this fail, a sweep does
    /// it, and the provider hears 2xx all the same.
    async fn enqueue(&self, context: &Context<'_>, received: &mut [Received]) {
        let mut waiting: Vec<_> = received.iter_mut().filter(|one| one.outcome.enqueue).collect();
        let now = self.clock.now();
        let message = |Received { event, .. }: &Received| Outgoing {
            message: Message { key: event.key.clone(), event_type: event.event_type.clone() },
            object_id: event.object_id.clone(),
            delay: event
                .coalesces_until
                .map_or(Duration::ZERO, |until| not_before_coalesced(until).since(now)),
        };
        let messages: Vec<_> = waiting.iter().map(|received| message(received)).collect();
        let sent = tokio::time::timeout(context.time_left(), self.queue.send_all(&messages)).await;
        match sent {
            Ok(sent) => {
                for (received, sent) in waiting.iter_mut().zip(sent) {
                    received.outcome.deferred = sent.err().map(|error| error.to_string());
                }
            }
            Err(_elapsed) => {
                for received in waiting {
                    received.outcome.deferred = Some(NO_TIME.to_owned());
                }
            }
        }
    }

    /// Notes a duplicate whose payload says something else. Whether the note succeeds changes
    /// nothing: the first delivery counts.
    async fn note_mismatch(&self, context: &Context<'_>, event: &Event, record: &Record) -> bool {
        if !differs(context.config, event, record) {
            return false;
        }
        if record.payload_mismatch.is_none() {
            let note = note_mismatch(&event.key, &event.payload);
            if let Err(error) = self.ledger.write(&note, Returning::Nothing).await {
                tracing::warn!(event.key = %event.key, error = %error, "a mismatch is not noted");
            }
        }
        true
    }
}

/// A delivery may name an event twice, and then both claims are its own, hence first. It is one
/// event all the same.
fn count_once(received: &mut [Received]) {
    let mut claimed = HashSet::new();
    for Received { event, outcome } in received {
        if outcome.result == "new" && !claimed.insert(&event.key) {
            (outcome.result, outcome.outcome) = ("duplicate", "duplicate");
            outcome.enqueue = false;
        }
    }
}

impl Outcome {
    /// As far as the claim alone tells.
    fn after(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::New => Self {
                state: Some(StateName::Received),
                enqueue: true,
                ..Self::of("new", "claimed", true)
            },
            Claimed::BeyondHorizon => {
                Self { state: Some(StateName::Failed), ..Self::of("new", "beyond_horizon", true) }
            }
            Claimed::Duplicate(record) => {
                let state = Some(record.state.name());
                Self { state, ..Self::of("duplicate", "duplicate", true) }
            }
            Claimed::Replayed => Self::of("duplicate", "replayed", true),
            Claimed::Vanished => Self::of("unavailable", "record_vanished", false),
        }
    }

    /// A record that cannot be read is on record all the same: a duplicate, and the sweep's to
    /// complain about. Only what cannot be known makes a provider try again.
    fn unknown(error: &LedgerError) -> Self {
        let (result, durable) = match error {
            LedgerError::Corrupt(_) => ("duplicate", true),
            _ if is_on(Fault::AcknowledgeBeforeDurable) => ("unavailable", true),
            LedgerError::Throttled { .. }
            | LedgerError::Timeout { .. }
            | LedgerError::Unreachable { .. }
            | LedgerError::MissingTable { .. }
            | LedgerError::Conflict { .. }
            | LedgerError::Refused { .. } => ("unavailable", false),
        };
        Self { error: Some(error.to_string()), ..Self::of(result, error.class(), durable) }
    }

    pub(crate) const fn of(result: &'static str, outcome: &'static str, durable: bool) -> Self {
        Self {
            result,
            outcome,
            durable,
            state: None,
            claim_ms: None,
            enqueue: false,
            deferred: None,
            mismatch: false,
            error: None,
        }
    }
}

/// Whether a duplicate says something else than the record. Where the first payload is not at hand
/// and the provider is known to change some fields, that cannot be told, and counts as no.
/// Deliveries that coalesce are to be one event, whatever they say.
fn differs(config: &SourceConfig, event: &Event, record: &Record) -> bool {
    if event.coalesces_until.is_some() {
        return false;
    }
    if record.payload_sha256 == <[u8; 32]>::from(Sha256::digest(&event.payload)) {
        return false;
    }
    let first = record.payload.as_ref().and_then(KeptPayload::inline).map(payload::decode);
    match first {
        Some(Ok(first)) => !config.provider.same_payload(&first, &event.payload),
        Some(Err(_)) | None => !config.provider.changes_payloads(),
    }
}

const NO_TIME: &str = "no time was left before the answer";
/// Events of one delivery claimed at the same time.
const EVENTS_AT_ONCE: usize = 16;
