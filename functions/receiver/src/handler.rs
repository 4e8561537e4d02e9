//! One delivery, from its bytes to its answer.

use std::time::Duration;

use domain::{
    delivery::Delivery,
    event::{Event, EventId, Source, cut},
    limits,
    record::StateName,
    seeded::{Fault, is_on},
    time::Timestamp,
};
use dynamo::Ledger;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use providers::{Greeting, Provider, Reply, VerifiedDelivery};
use runtime::{
    aws::Patience,
    clock::Clock,
    config::{Config, SourceConfig},
    payloads::PayloadStore,
    secrets::SecretStore,
    telemetry::{DeliveryLine, RejectionLine},
};
use sqs::Queue;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    events::{Outcome, Received},
    fetch::Fetcher,
    http::{Answer, delivery_of, source_of},
    keys::KeyRings,
    refusal::Refusal,
    seeded,
};

/// The receiver.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    keys: KeyRings,
    fetcher: Fetcher,
    pub(crate) ledger: Ledger,
    pub(crate) queue: Queue,
    /// For payloads that fit on no record; without it they are refused.
    pub(crate) payloads: Option<PayloadStore>,
    pub(crate) clock: Clock,
}

/// What is known of the delivery at hand.
pub(crate) struct Context<'a> {
    pub(crate) source: &'a Source,
    pub(crate) config: &'a SourceConfig,
    pub(crate) delivery_id: String,
    attempt_id: Option<String>,
    /// Of what the delivery says, where that is claimed as well.
    pub(crate) fingerprint: Option<EventId>,
    pub(crate) received_at: Timestamp,
    started: Instant,
}

impl Context<'_> {
    /// Until the provider may hang up.
    pub(crate) fn time_left(&self) -> Duration {
        answer_within(&self.config.provider).saturating_sub(self.started.elapsed())
    }
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
        let fetcher = Fetcher::new(&config, store.clone());
        let keys = KeyRings::fetch(&config, store, clock.now()).await;
        Self { config, keys, fetcher, ledger, queue, payloads: None, clock }
    }

    /// With a store for payloads that fit on no record.
    #[must_use]
    pub fn with_payloads(self, payloads: Option<PayloadStore>) -> Self {
        Self { payloads, ..self }
    }

    /// The same, calling providers' hosts by this client: those who have no such hosts at hand know
    /// others in their place.
    #[must_use]
    pub fn calling_by(self, client: reqwest::Client) -> Self {
        Self { fetcher: self.fetcher.calling_by(client), ..self }
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
                let (attempt_id, fingerprint) = (None, None);
                let context = Context {
                    source,
                    config,
                    delivery_id,
                    attempt_id,
                    fingerprint,
                    received_at,
                    started,
                };
                self.receive_from(context, event).await
            }
        };
        received.unwrap_or_else(|refusal| {
            let answer = answer_refusal(&refusal, found.map(|(_, config)| &config.provider));
            let ack_ms = millis_since(started);
            let line = RejectionLine {
                timestamp: Clock::system_time(received_at),
                source: name.to_owned(),
                reason: refusal.reason(),
                delivery_id,
                error: refusal.to_string(),
                status: answer.status,
                webhook_rejected_total: 1,
                ack_ms,
                duration_ms: ack_ms,
            };
            line.write();
            answer
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
        if let Some(reply) = self.greet(&context, &delivery).await? {
            return Ok(answer_handshake(&context, reply));
        }
        if delivery.method != "POST" {
            return Err(Refusal::WrongMethod(delivery.method));
        }
        if is_on(Fault::DedupeBeforeVerify) && self.is_known(&context, &delivery).await {
            return Ok(provider.answer().into());
        }
        let verified = self.verify(&context, delivery).await?;
        if let Some(reply) = provider.handshake(&verified) {
            self.fetcher.confirm(&context, &verified).await?;
            return Ok(answer_handshake(&context, reply));
        }
        if context.config.fingerprint {
            context.fingerprint = provider.fingerprint(&verified)?;
        }
        let mut events = provider.identify(verified, context.source)?;
        for event in &mut events {
            seeded::mistake_key(event, &context);
        }
        let mut durable = true;
        for Received { event, outcome } in self.receive_events(&context, events).await? {
            durable &= outcome.durable && !seeded::is_refusal(&outcome);
            log(&context, &event, outcome);
        }
        Ok(if durable { provider.answer().into() } else { Answer::unavailable() })
    }

    /// The answer to whoever asks, without a signature, whether we are who we say. Nothing is
    /// believed and nothing written for that; what may be said to anybody is the catalogue's.
    async fn greet(
        &self,
        context: &Context<'_>,
        delivery: &Delivery,
    ) -> Result<Option<Reply>, Refusal> {
        let Context { source, config, .. } = context;
        let keys = self.keys.get(source);
        let mut greeting = config.provider.greet(delivery, &keys);
        // For want of a key, maybe: some challenges are signed.
        if keys.is_empty() && matches!(greeting, Some(Greeting::Refused(_))) {
            let fresh = self.keys.refresh(source, config, self.clock.now()).await;
            let keys = fresh.filter(|keys| !keys.is_empty()).ok_or(Refusal::NoSecrets)?;
            greeting = config.provider.greet(delivery, &keys);
        }
        match greeting {
            None => Ok(None),
            Some(Greeting::Answered(reply)) => Ok(Some(reply)),
            Some(Greeting::Refused(reply)) => Err(Refusal::Handshake(reply)),
        }
    }

    /// Verifies, with the keys at hand, then once more with fresh ones, or those that the provider
    /// publishes.
    async fn verify(
        &self,
        context: &Context<'_>,
        delivery: Delivery,
    ) -> Result<VerifiedDelivery, Refusal> {
        let Context { source, config, .. } = context;
        let now = self.clock.now();
        let keys = self.keys.get(source);
        let delivery = seeded::rewritten(delivery);
        let verify = |delivery, keys: &[_]| {
            config.provider.try_verify(delivery, keys, now, config.tolerance)
        };
        let rejected = match verify(delivery, &keys) {
            Ok(verified) => return Ok(verified),
            Err(rejected) => rejected,
        };
        let reason = rejected.rejection.reason();
        if !matches!(reason, "bad_signature" | "expired_certificate" | "no_key") {
            return Err(rejected.rejection.into());
        }
        let fresh = if config.fetches_keys {
            Some(self.fetcher.keys(context, &rejected.delivery, now).await?)
        } else {
            self.keys.refresh(source, config, now).await
        };
        let verified = match fresh {
            None => Err(rejected.rejection),
            Some(keys) => verify(*rejected.delivery, &keys).map_err(|rejected| rejected.rejection),
        };
        verified.map_err(|rejection| {
            // The secret that is missing may be the one: not for us to say that it is forged.
            if self.keys.is_complete(source) { rejection.into() } else { Refusal::NoSecrets }
        })
    }
}

/// What the sender hears of a refusal. One provider or another tries out whether we verify at all,
/// and is particular about what it hears then.
fn answer_refusal(refusal: &Refusal, provider: Option<&Provider>) -> Answer {
    let own = provider.and_then(Provider::rejection);
    let own = own.filter(|_| matches!(refusal, Refusal::Unverified(_)));
    own.map_or_else(|| Answer::from(refusal), Answer::from)
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

pub(crate) fn millis_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}

/// Most of the time that the provider waits. Within the function's own, less a call that is under
/// way when it is up.
fn answer_within(provider: &Provider) -> Duration {
    let patience = provider.timeout().map_or(UNKNOWN_PATIENCE, |fact| fact.value);
    (patience * 5 / 6).min(limits::RECEIVER_TIMEOUT.saturating_sub(CALL_UNDER_WAY))
}

/// Where it is not known how long the provider waits. Most wait for longer.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(3);
/// A claim may be a write and then a read, each with all its attempts.
const CALL_UNDER_WAY: Duration = Duration::from_secs(3);

const _: () = assert!(CALL_UNDER_WAY.as_millis() > 2 * Patience::RECEIVER.operation.as_millis());
