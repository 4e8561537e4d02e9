//! One delivery, from its bytes to its answer.

use std::time::{Duration, Instant};

use domain::{
    event::{Event, Source, cut},
    limits,
    receive::{Reaction, react},
    record::{ClaimId, Record, StateName},
    time::Timestamp,
    transition::{Claimed, claim, note_mismatch},
};
use dynamo::{Ledger, LedgerError, Returning, payload};
use futures::{StreamExt as _, stream};
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use providers::{Reply, VerifiedDelivery};
use runtime::{
    clock::Clock,
    config::{Config, SourceConfig},
    secrets::SecretStore,
    telemetry::{DeliveryLine, RejectionLine},
};
use sha2::{Digest as _, Sha256};
use sqs::{Message, Queue};
use uuid::Uuid;

use crate::{
    http::{Answer, delivery_of, source_of},
    keys::KeyRings,
    refusal::Refusal,
};

/// The receiver.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    keys: KeyRings,
    ledger: Ledger,
    queue: Queue,
    clock: Clock,
}

/// What is known of the delivery at hand.
struct Context<'a> {
    source: &'a Source,
    config: &'a SourceConfig,
    delivery_id: String,
    attempt_id: Option<String>,
    received_at: Timestamp,
    started: Instant,
}

/// What became of one event of a delivery.
struct Outcome {
    result: &'static str,
    outcome: &'static str,
    durable: bool,
    state: Option<StateName>,
    claim_ms: Option<f64>,
    deferred: Option<String>,
    mismatch: bool,
    error: Option<String>,
}

impl Receiver {
    /// A receiver; fetches the secrets of all sources.
    pub async fn new(
        config: Config,
        store: SecretStore,
        ledger: Ledger,
        queue: Queue,
        clock: Clock,
    ) -> Self {
        let keys = KeyRings::fetch(&config, store, clock.now()).await;
        Self { config, keys, ledger, queue, clock }
    }

    /// Receives one delivery.
    pub async fn receive(&self, event: ApiGatewayV2httpRequest) -> Answer {
        let started = Instant::now();
        let received_at = self.clock.now();
        let delivery_id = Uuid::new_v4().simple().to_string();
        let path = event.raw_path.as_deref().unwrap_or_default();
        let found = source_of(path)
            .and_then(|name| Source::new(name).ok())
            .and_then(|source| self.config.sources.get_key_value(&source));
        let name = found.map_or("unknown", |(source, _)| source.as_str());
        let received = match found {
            None => Err(Refusal::UnknownSource),
            Some((source, config)) => {
                let delivery_id = delivery_id.clone();
                let context =
                    Context { source, config, delivery_id, attempt_id: None, received_at, started };
                self.receive_from(context, event).await
            }
        };
        received.unwrap_or_else(|refusal| {
            let ack_ms = millis_since(started);
            let line = RejectionLine {
                timestamp: Clock::system_time(received_at),
                source: name.to_owned(),
                reason: refusal.reason(),
                delivery_id,
                error: refusal.to_string(),
                status: refusal.status(),
                webhook_rejected_total: 1,
                ack_ms,
                duration_ms: ack_ms,
            };
            line.write();
            Answer::from(&refusal)
        })
    }

    async fn receive_from(
        &self,
        mut context: Context<'_>,
        event: ApiGatewayV2httpRequest,
    ) -> Result<Answer, Refusal> {
        let delivery = delivery_of(event)?;
        let provider = &context.config.provider;
        // Outside the signature, and for the log only.
        context.attempt_id = provider
            .attempt_id(&delivery.headers)
            .map(|id| cut(id, limits::MAX_LABEL_BYTES).to_owned());
        let verified = self.verify(&context, delivery).await?;
        if let Some(reply) = provider.handshake(&verified) {
            return Ok(answer_handshake(&context, reply));
        }
        let events = provider.identify(verified, context.source)?;
        if events.len() > limits::MAX_EVENTS_PER_DELIVERY {
            return Err(Refusal::TooManyEvents { events: events.len() });
        }
        let outcomes: Vec<_> = stream::iter(&events)
            .map(|event| self.receive_event(&context, event))
            .buffered(EVENTS_AT_ONCE)
            .collect()
            .await;
        let mut durable = true;
        for (event, outcome) in events.iter().zip(outcomes) {
            let outcome = outcome?;
            durable &= outcome.durable;
            log(&context, event, outcome);
        }
        Ok(if durable { provider.answer().into() } else { Answer::unavailable() })
    }

    /// Verifies, with the keys at hand, then once more with fresh ones.
    async fn verify(
        &self,
        context: &Context<'_>,
        delivery: domain::delivery::Delivery,
    ) -> Result<VerifiedDelivery, Refusal> {
        let Context { source, config, .. } = context;
        let now = self.clock.now();
        let keys = self.keys.get(source);
        let verify = |delivery, keys: &[_]| {
            config.provider.try_verify(delivery, keys, now, config.tolerance)
        };
        let rejected = match verify(delivery, &keys) {
            Ok(verified) => return Ok(verified),
            Err(rejected) => rejected,
        };
        if !matches!(rejected.rejection.reason(), "bad_signature" | "no_key") {
            return Err(rejected.rejection.into());
        }
        let fresh = self.keys.refresh(source, config, now).await;
        let verified = match fresh {
            None => Err(rejected.rejection),
            Some(keys) => verify(*rejected.delivery, &keys).map_err(|rejected| rejected.rejection),
        };
        verified.map_err(|rejection| {
            // The secret that is missing may be the one: not for us to say that it is forged.
            if self.keys.is_complete(source) { rejection.into() } else { Refusal::NoSecrets }
        })
    }

    async fn receive_event(
        &self,
        context: &Context<'_>,
        event: &Event,
    ) -> Result<Outcome, Refusal> {
        if context.config.route(event.event_type.as_deref()).is_none() {
            return Ok(Outcome::of("ignored", "ignored", true));
        }
        let stored = payload::encode(&event.payload)?;
        let claim_id = ClaimId(context.delivery_id.clone());
        let claim = claim(event, stored, claim_id, context.received_at, &context.config.policy);
        let started = Instant::now();
        let claimed = match self.ledger.write(&claim.write, Returning::Nothing).await {
            Ok(written) => claim.settle(written).map_err(LedgerError::from),
            Err(error) => Err(error),
        };
        let claim_ms = Some(millis_since(started));
        Ok(match claimed {
            Ok(claimed) => {
                let follow_up = self.follow_up(context, event, &claimed);
                let time = ANSWER_WITHIN.saturating_sub(context.started.elapsed());
                let outcome = tokio::time::timeout(time, follow_up).await;
                // On record, and the provider must hear so before it hangs up: a sweep does the rest.
                let outcome = outcome.unwrap_or_else(|_elapsed| Outcome {
                    deferred: Some("no time was left before the answer".to_owned()),
                    ..Outcome::after(&claimed)
                });
                Outcome { claim_ms, ..outcome }
            }
            Err(error) => {
                // A record that cannot be read is on record all the same: a duplicate, and the
                // sweep's to complain about. Only what cannot be known makes a provider try again.
                let (result, durable) = match error {
                    LedgerError::Corrupt(_) => ("duplicate", true),
                    LedgerError::Throttled { .. }
                    | LedgerError::Timeout { .. }
                    | LedgerError::Unreachable { .. }
                    | LedgerError::MissingTable { .. }
                    | LedgerError::Conflict { .. }
                    | LedgerError::Refused { .. } => ("unavailable", false),
                };
                let outcome = Outcome::of(result, error.class(), durable);
                Outcome { error: Some(error.to_string()), claim_ms, ..outcome }
            }
        })
    }

    /// Does what follows a settled claim.
    async fn follow_up(&self, context: &Context<'_>, event: &Event, claimed: &Claimed) -> Outcome {
        let mut outcome = self.react(event, claimed).await;
        if let Claimed::Duplicate(record) = claimed {
            outcome.mismatch = self.note_mismatch(context, event, record).await;
        }
        outcome
    }

    async fn react(&self, event: &Event, claimed: &Claimed) -> Outcome {
        match react(claimed, self.clock.now()) {
            Reaction::Enqueue => {
                let deferred = self.enqueue(event).await.err();
                let state = Some(StateName::Received);
                Outcome { state, deferred, ..Outcome::of("new", "claimed", true) }
            }
            Reaction::Parked => Outcome {
                state: Some(StateName::Failed),
                ..Outcome::of("new", "beyond_horizon", true)
            },
            Reaction::Nothing(state) => {
                Outcome { state: Some(state), ..Outcome::of("duplicate", "duplicate", true) }
            }
            Reaction::Requeue(requeue) => {
                // Bump, then send. Should either fail, a sweep does both again: the record is
                // durable, so the provider hears 2xx whatever comes of this.
                let bumped = self.ledger.write(&requeue.write, Returning::Nothing).await;
                let deferred = match bumped {
                    Ok(written) if requeue.settle(&written) => self.enqueue(event).await.err(),
                    Ok(_) => None,
                    Err(error) => Some(error.to_string()),
                };
                let state = Some(StateName::Received);
                Outcome { state, deferred, ..Outcome::of("duplicate", "requeued", true) }
            }
            Reaction::Unavailable => Outcome::of("unavailable", "record_vanished", false),
        }
    }

    async fn enqueue(&self, event: &Event) -> Result<(), String> {
        let message = Message { key: event.key.clone(), event_type: event.event_type.clone() };
        self.queue.send(&message).await.map_err(|error| error.to_string())
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

impl Outcome {
    /// As far as the claim alone tells.
    const fn after(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::New => Self::of("new", "claimed", true),
            Claimed::BeyondHorizon => Self::of("new", "beyond_horizon", true),
            Claimed::Duplicate(_) => Self::of("duplicate", "duplicate", true),
            Claimed::Vanished => Self::of("unavailable", "record_vanished", false),
        }
    }

    const fn of(result: &'static str, outcome: &'static str, durable: bool) -> Self {
        Self {
            result,
            outcome,
            durable,
            state: None,
            claim_ms: None,
            deferred: None,
            mismatch: false,
            error: None,
        }
    }
}

/// Whether a duplicate says something else than the record. Where the first payload is gone and the
/// provider is known to change some fields, that cannot be told, and counts as no.
fn differs(config: &SourceConfig, event: &Event, record: &Record) -> bool {
    if record.payload_sha256 == <[u8; 32]>::from(Sha256::digest(&event.payload)) {
        return false;
    }
    let first = record.payload.as_ref().map(payload::decode);
    match first {
        Some(Ok(first)) => !config.provider.same_payload(&first, &event.payload),
        Some(Err(_)) | None => false,
    }
}

fn answer_handshake(context: &Context<'_>, reply: Reply) -> Answer {
    let line = DeliveryLine {
        webhook_events_total: 0,
        ..line(context, Outcome::of("handshake", "handshake", true))
    };
    line.write();
    reply.into()
}

fn log(context: &Context<'_>, event: &Event, outcome: Outcome) {
    let line = DeliveryLine {
        event_id: Some(event.key.id().as_str().to_owned()),
        event_type: event.event_type.clone(),
        ..line(context, outcome)
    };
    line.write();
}

fn line(context: &Context<'_>, outcome: Outcome) -> DeliveryLine {
    let ack_ms = millis_since(context.started);
    DeliveryLine {
        timestamp: Clock::system_time(context.received_at),
        source: context.source.as_str().to_owned(),
        result: outcome.result,
        delivery_id: context.delivery_id.clone(),
        attempt_id: context.attempt_id.clone(),
        event_id: None,
        event_type: None,
        state: outcome.state.map(StateName::as_str),
        outcome: outcome.outcome,
        webhook_events_total: 1,
        enqueue_deferred_total: outcome.deferred.is_some().then_some(1),
        payload_mismatch_total: outcome.mismatch.then_some(1),
        error: outcome.error.or(outcome.deferred),
        claim_ms: outcome.claim_ms,
        ack_ms,
        duration_ms: ack_ms,
    }
}

fn millis_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}

/// The least patient known provider hangs up after three seconds (Slack).
const ANSWER_WITHIN: Duration = Duration::from_millis(2500);
/// Events of one delivery claimed at the same time.
const EVENTS_AT_ONCE: usize = 16;
