//! One record of a batch: take the lease, run the handler, write how it ended, say what becomes of
//! the message.

use std::{panic::AssertUnwindSafe, time::Duration};

use aws_sdk_dynamodb::types::TransactWriteItem;
use domain::{
    backoff::Backoff,
    effects::{Journal, StepEntry, StepName, StepState, step_key},
    limits,
    record::{ErrorNote, KeptPayload, LeaseOwner, Record, StateName, StoredPayload},
    seeded::{self, Fault},
    time::Timestamp,
    transition::{
        ATTEMPTS_EXHAUSTED, Fenced, FencedOutcome, Lease, Leased, Policy, Standing, lease,
        park_exhausted,
    },
    write::Written,
};
use dynamo::{
    Committed, Ledger, LedgerError, Returning,
    payload::{self, Undecodable},
};
use futures::FutureExt as _;
use runtime::{
    clock::Clock,
    config::{Config, SourceConfig},
    payloads::PayloadStore,
    telemetry::AttemptLine,
};
use sha2::{Digest as _, Sha256};
use sqs::{Message, Queue};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    effects::{Effects, Event},
    failure::{Failure, Kind, Wait},
    handlers::Handlers,
};

/// Works on records.
#[derive(Debug)]
pub struct Attempts {
    config: Config,
    handlers: Handlers,
    ledger: Ledger,
    queue: Queue,
    /// Where payloads lie that fit on no record.
    payloads: Option<PayloadStore>,
    clock: Clock,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing is left to do for it.
    Delete,
    /// It stays in the queue.
    Keep,
}

/// How an attempt ended, for the queue and for the log.
struct Ended {
    outcome: &'static str,
    message: Fate,
    state: Option<StateName>,
    error: Option<String>,
    lease_lost: bool,
}

/// What becomes of a message, and for how long it stays out of sight.
enum Fate {
    Delete,
    /// Out of sight until then.
    Until(Timestamp),
}

/// What the writing of an attempt's end needs.
struct Attempt<'a> {
    lease: &'a Lease,
    record: &'a Record,
    backoff: Backoff,
    results: Vec<(StepName, StepEntry)>,
}

impl Attempts {
    /// A worker.
    #[must_use]
    pub const fn new(
        config: Config,
        handlers: Handlers,
        ledger: Ledger,
        queue: Queue,
        clock: Clock,
    ) -> Self {
        Self { config, handlers, ledger, queue, payloads: None, clock }
    }

    /// With the store of payloads that fit on no record.
    #[must_use]
    pub fn with_payloads(self, payloads: Option<PayloadStore>) -> Self {
        Self { payloads, ..self }
    }

    /// Works on the message with this body, until `deadline` by the system's clock.
    pub async fn work_on(&self, body: &str, handle: &str, deadline: Timestamp) -> Disposition {
        let message = match Message::parse(body) {
            Ok(message) => message,
            Err(error) => {
                // Soon again, and so soon in the dead-letter queue.
                tracing::error!(error = %error, "a message that is not ours");
                let soon = self.clock.now().plus(UNREADABLE_WAIT);
                return self.settle_message(handle, Fate::Until(soon)).await;
            }
        };
        let started = Instant::now();
        let begun_at = self.clock.now();
        let (ended, record) = self.attempt(&message, self.clock.from_system(deadline)).await;
        self.log(&message, &ended, record.as_deref(), begun_at, started);
        self.settle_message(handle, ended.message).await
    }

    async fn attempt(
        &self,
        message: &Message,
        deadline: Timestamp,
    ) -> (Ended, Option<Box<Record>>) {
        let now = self.clock.now();
        if deadline.since(now) < limits::MIN_ATTEMPT_TIME {
            let soon = Fate::Until(now.plus(Duration::from_secs(1)));
            return (Ended::of("deadline_near", soon), None);
        }
        // The lease outlives the invocation by the skew bound: a worker that is killed at its
        // deadline has stopped before anybody takes over, and needs no heartbeat.
        let until = deadline.plus(self.config.clock_skew);
        let owner = LeaseOwner(Uuid::new_v4().simple().to_string());
        let opening = self.opening_step(message, &owner, now);
        let take = lease(
            &message.key,
            owner,
            now,
            until,
            self.config.clock_skew,
            opening.as_ref().map(|(name, entry)| (name, entry)),
        );
        let (leased, refusing) = match self.ledger.write(&take.write, Returning::Record).await {
            Ok(written) => {
                let refusing = refusing_record(&written);
                (take.settle(written).map_err(LedgerError::from), refusing)
            }
            Err(error) => (Err(error), None),
        };
        match leased {
            Ok(Leased::Held(lease, record)) => {
                let ended = self.run(&lease, &record, deadline).await;
                (ended, Some(record))
            }
            Ok(Leased::Exhausted(record)) => (self.park_exhausted(&record).await, Some(record)),
            Ok(Leased::Settled(state)) => {
                let ended = Ended::of("settled_already", Fate::Delete);
                (Ended { state: Some(state), ..ended }, refusing)
            }
            Ok(Leased::Unknown) => (Ended::of("orphan", Fate::Delete), None),
            Ok(Leased::HeldElsewhere(until)) => {
                let until = until.plus(self.config.clock_skew);
                let ended = Ended::of("held_elsewhere", Fate::Until(until));
                (Ended { state: Some(StateName::Processing), ..ended }, refusing)
            }
            Ok(Leased::NotYet(at)) => {
                let ended = Ended::of("not_yet", self.waiting(at));
                (Ended { state: Some(StateName::Received), ..ended }, refusing)
            }
            Err(error) => (self.uncertain(&error), None),
        }
    }

    /// A step that the handler surely starts with and that needs its start journalled: riding on
    /// the lease it costs no write of its own.
    fn opening_step(
        &self,
        message: &Message,
        owner: &LeaseOwner,
        now: Timestamp,
    ) -> Option<(StepName, StepEntry)> {
        let config = self.config.sources.get(message.key.source())?;
        let route = config.route(message.event_type.as_deref())?;
        let handler = self.handlers.get(message.key.source(), route)?;
        let name = handler.opening_step(message.event_type.as_deref())?;
        let key = step_key(&message.key, &name);
        let entry = StepEntry { state: StepState::Started, key, owner: owner.clone(), at: now };
        Some((name, entry))
    }

    /// The message of an event that waits until then. A long wait is the sweeper's: a message kept
    /// for a day would use its receives up.
    fn waiting(&self, until: Timestamp) -> Fate {
        let wait = until.since(self.clock.now());
        if wait > limits::MAX_KEPT_DELAY { Fate::Delete } else { Fate::Until(until) }
    }

    async fn park_exhausted(&self, record: &Record) -> Ended {
        let write = park_exhausted(record, self.clock.now());
        match self.ledger.write(&write, Returning::Nothing).await {
            Ok(Written::Applied(_)) => Ended {
                state: Some(StateName::Failed),
                error: Some(ATTEMPTS_EXHAUSTED.to_owned()),
                ..Ended::of("parked", Fate::Delete)
            },
            // Somebody else moved it: the next look tells.
            Ok(Written::Refused(_)) => {
                let soon = self.clock.now().plus(Duration::from_secs(1));
                Ended::of("lost_race", Fate::Until(soon))
            }
            Err(error) => self.uncertain(&error),
        }
    }

    /// Runs the handler under the lease, until shortly before the deadline.
    async fn run(&self, lease: &Lease, record: &Record, deadline: Timestamp) -> Ended {
        let Some(config) = self.config.sources.get(record.key.source()) else {
            // A receiver with a newer configuration knows it already: this worker's may be old.
            let failure = Failure::retry("no_source", "this worker has no such source configured");
            let backoff = Backoff::default();
            return self
                .fail(Attempt { lease, record, backoff, results: Vec::new() }, failure)
                .await;
        };
        let policy = &config.policy;
        let journal = if seeded::is_on(Fault::JournalIgnored) {
            Journal::new()
        } else {
            record.steps.clone()
        };
        let mut effects = Effects::new(&self.ledger, self.clock, lease.clone(), journal);
        let handled = self.handle(config, record, &mut effects, deadline).await;
        // A handler may have swallowed what ended its attempt.
        let handled = handled.and_then(|()| effects.still_held());
        let (results, local) = effects.into_parts();
        let attempt = Attempt { lease, record, backoff: policy.backoff, results };
        match handled {
            Ok(()) => self.complete(attempt, policy, local).await,
            Err(failure) => self.fail(attempt, failure).await,
        }
    }

    async fn handle(
        &self,
        config: &SourceConfig,
        record: &Record,
        effects: &mut Effects<'_>,
        deadline: Timestamp,
    ) -> Result<(), Failure> {
        let handler = config
            .route(record.event_type.as_deref())
            .and_then(|route| self.handlers.get(record.key.source(), route))
            .ok_or_else(|| {
                // As for a source: another configuration than the receiver's.
                Failure::retry("no_route", "no route of this worker takes events of this type")
            })?;
        let time = deadline.minus(limits::RELEASE_MARGIN).since(self.clock.now());
        // In a block of its own: a handler may panic before its first await as well.
        let handling = async {
            let event = self.event_of(record).await?;
            handler.handle(&event, effects).await
        };
        let handling = AssertUnwindSafe(handling).catch_unwind();
        match tokio::time::timeout(time, handling).await {
            Ok(Ok(handled)) => handled,
            Ok(Err(_panic)) => Err(Failure::retry("handler_panicked", "the handler panicked")),
            Err(_elapsed) => {
                let text = format!("not finished in the {} s there were", time.as_secs());
                Err(Failure::retry("deadline", text))
            }
        }
    }

    async fn event_of(&self, record: &Record) -> Result<Event, Failure> {
        let fetched;
        let stored = match &record.payload {
            None => {
                let text = "the payload was dropped when the event was done";
                return Err(Failure::permanent("no_payload", text));
            }
            Some(KeptPayload::Inline(stored)) => stored,
            Some(KeptPayload::Elsewhere { codec, key }) => {
                fetched = self.fetch_payload(codec, key).await?;
                &fetched
            }
        };
        let payload = payload::decode(stored).map_err(|error| match error {
            // Written by a later version, which another worker may be already.
            Undecodable::UnknownCodec(_) => Failure::retry("payload_codec", error),
            Undecodable::Damaged => Failure::permanent("payload_damaged", error),
        })?;
        let is_elsewhere = matches!(record.payload, Some(KeptPayload::Elsewhere { .. }));
        if is_elsewhere && record.payload_sha256 != <[u8; 32]>::from(Sha256::digest(&payload)) {
            let text = "the object in the bucket is not the payload that was received";
            return Err(Failure::permanent("payload_damaged", text));
        }
        Ok(Event {
            key: record.key.clone(),
            provider: record.provider.clone(),
            event_type: record.event_type.clone(),
            object_id: record.object_id.clone(),
            occurred_at: record.occurred_at,
            payload,
            content_type: record.content_type.clone(),
            headers: record.headers.clone(),
            attempt: record.attempt,
        })
    }

    async fn fetch_payload(&self, codec: &str, key: &str) -> Result<StoredPayload, Failure> {
        let store = self.payloads.as_ref().ok_or_else(|| {
            let text = "the payload is in a bucket, and this worker is given none \
                        (HOOKONCE_PAYLOADS_BUCKET)";
            Failure::retry("no_payload_store", text)
        })?;
        let found = store.get(key).await.map_err(|error| Failure::retry(error.class(), error))?;
        let bytes = found.ok_or_else(|| {
            let text = "its object is not in the bucket any more: the bucket's lifecycle is shorter \
                        than this event had to wait";
            Failure::permanent("payload_missing", text)
        })?;
        Ok(StoredPayload { codec: codec.to_owned(), bytes })
    }

    /// Closes the record, and commits the local writes with it.
    async fn complete(
        &self,
        attempt: Attempt<'_>,
        policy: &Policy,
        local: Vec<TransactWriteItem>,
    ) -> Ended {
        let Attempt { lease, results, .. } = &attempt;
        let complete = lease.complete(results, self.clock.now(), policy);
        let written = if local.is_empty() {
            self.ledger.write(&complete.write, Returning::Nothing).await
        } else {
            match self.ledger.commit(&complete.write, lease, local).await {
                Ok(Committed::Record(written)) => Ok(written),
                Ok(Committed::LocalRefused { index }) => {
                    let text = format!("the condition of local write {index} does not hold");
                    let failure = Failure::permanent("local_write_refused", text);
                    return self.fail(attempt, failure).await;
                }
                // Most surely not written, and why is known: the record is to say so, and to be tried
                // again by its backoff, not whenever its lease runs out. Had it been written after
                // all, the fence refuses the release.
                Err(
                    error @ (LedgerError::Refused { .. }
                    | LedgerError::Conflict { .. }
                    | LedgerError::Throttled { .. }),
                ) => {
                    let failure = Failure::retry(error.class(), error);
                    return self.fail(attempt, failure).await;
                }
                Err(error) => Err(error),
            }
        };
        match self.settle_fenced(&complete, written) {
            Ok(()) => Ended { state: Some(StateName::Done), ..Ended::of("done", Fate::Delete) },
            Err(ended) => ended,
        }
    }

    /// Releases or parks after a failure; what the handler's steps returned is kept either way.
    async fn fail(&self, attempt: Attempt<'_>, failure: Failure) -> Ended {
        let now = self.clock.now();
        let Attempt { lease, record, backoff, results } = &attempt;
        match failure.kind {
            Kind::LeaseLost(standing) => self.lost(standing),
            Kind::Uncertain(error) => self.uncertain(&error),
            Kind::Permanent { class, text } => {
                let note = ErrorNote::new(&class, &text, now);
                self.park(lease.park(&note, results, now), note).await
            }
            Kind::Retry { class, text, .. } if record.is_exhausted() => {
                let text = format!("{} attempts used; last: {class}: {text}", record.attempt);
                let note = ErrorNote::new(ATTEMPTS_EXHAUSTED, &text, now);
                self.park(lease.park(&note, results, now), note).await
            }
            Kind::Retry { wait, class, text } => {
                let backoff = backoff.wait(record.attempt, fastrand::f64());
                let wait = match wait {
                    Wait::Backoff => backoff,
                    Wait::Exactly(wait) => wait,
                    Wait::NoSooner(wait) => wait.max(backoff),
                };
                let note = ErrorNote::new(&class, &text, now);
                let release = lease.release(wait, &note, results, now);
                let message = self.waiting(now.plus(wait));
                let written = self.ledger.write(&release.write, Returning::Nothing).await;
                match self.settle_fenced(&release, written) {
                    Ok(()) => Ended {
                        state: Some(StateName::Received),
                        error: Some(format!("{}: {}", note.class, note.text)),
                        ..Ended::of("released", message)
                    },
                    Err(ended) => ended,
                }
            }
        }
    }

    async fn park(&self, park: Fenced, note: ErrorNote) -> Ended {
        let written = self.ledger.write(&park.write, Returning::Nothing).await;
        match self.settle_fenced(&park, written) {
            Ok(()) => Ended {
                state: Some(StateName::Failed),
                error: Some(format!("{}: {}", note.class, note.text)),
                ..Ended::of("parked", Fate::Delete)
            },
            Err(ended) => ended,
        }
    }

    fn settle_fenced(
        &self,
        fenced: &Fenced,
        written: Result<Written, LedgerError>,
    ) -> Result<(), Ended> {
        let settled = written
            .and_then(|written| fenced.settle(written).map_err(LedgerError::from))
            .map_err(|error| self.uncertain(&error))?;
        match settled {
            FencedOutcome::Applied => Ok(()),
            FencedOutcome::Lost(standing) => Err(self.lost(standing)),
        }
    }

    /// The fence refused: nothing was changed, and the message goes by what the record now says.
    fn lost(&self, standing: Standing) -> Ended {
        let now = self.clock.now();
        let (message, state) = match standing {
            Standing::Settled(state) => (Fate::Delete, Some(state)),
            Standing::Gone => (Fate::Delete, None),
            Standing::Waiting(not_before) => {
                (self.waiting(not_before.unwrap_or(now)), Some(StateName::Received))
            }
            Standing::HeldElsewhere(until) => {
                (Fate::Until(until.plus(self.config.clock_skew)), Some(StateName::Processing))
            }
        };
        Ended { state, lease_lost: true, ..Ended::of("lease_lost", message) }
    }

    /// Whether a write took hold is not known. The message comes back; by then the record tells.
    fn uncertain(&self, error: &LedgerError) -> Ended {
        let soon = self.clock.now().plus(UNCERTAIN_WAIT);
        Ended { error: Some(error.to_string()), ..Ended::of(error.class(), Fate::Until(soon)) }
    }

    async fn settle_message(&self, handle: &str, fate: Fate) -> Disposition {
        let until = match fate {
            Fate::Delete => return Disposition::Delete,
            Fate::Until(until) => until,
        };
        let wait = until.since(self.clock.now()).min(limits::MAX_KEPT_DELAY);
        self.keep(handle, wait).await;
        Disposition::Keep
    }

    /// Leaves a message for after the one before it in its group.
    pub(crate) async fn hold_back(&self, handle: &str) {
        self.keep(handle, Duration::ZERO).await;
    }

    async fn keep(&self, handle: &str, wait: Duration) {
        if let Err(error) = self.queue.keep(handle, wait).await {
            // It comes back after the queue's own timeout instead, and finds the record as it is.
            tracing::warn!(error = %error, "a message's visibility is not set");
        }
    }

    fn log(
        &self,
        message: &Message,
        ended: &Ended,
        record: Option<&Record>,
        begun_at: Timestamp,
        started: Instant,
    ) {
        let settled = matches!(ended.outcome, "done" | "parked");
        let attempt = record.map(|record| record.attempt);
        let line = AttemptLine {
            timestamp: Clock::system_time(begun_at),
            source: message.key.source().as_str().to_owned(),
            outcome: ended.outcome,
            delivery_id: record.map(|record| record.claim_id.0.clone()),
            event_id: message.key.id().as_str().to_owned(),
            event_type: message.event_type.clone(),
            state: ended.state.map(StateName::as_str),
            attempt,
            error: ended.error.clone(),
            worker_outcomes_total: 1,
            lease_lost_total: ended.lease_lost.then_some(1),
            orphan_message_total: (ended.outcome == "orphan").then_some(1),
            attempts_per_event: attempt.filter(|_| settled).map(u64::from),
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
            end_to_end_ms: record
                .filter(|_| ended.outcome == "done")
                .map(|record| self.clock.now().since(record.received_at).as_secs_f64() * 1000.0),
        };
        line.write();
    }
}

/// The record that refused a lease: whose attempt it is, the log line says from it.
fn refusing_record(written: &Written) -> Option<Box<Record>> {
    let Written::Refused(Some(item)) = written else { return None };
    Record::from_item(item.clone()).ok().map(Box::new)
}

impl Ended {
    const fn of(outcome: &'static str, message: Fate) -> Self {
        Self { outcome, message, state: None, error: None, lease_lost: false }
    }
}

/// Until a message whose write is in doubt comes back. A table that cannot be reached for hours
/// must not use the message's receives up; a sweep looks at the record sooner.
const UNCERTAIN_WAIT: Duration = Duration::from_secs(300);
/// Until a message that nobody can read is tried again, on its way to the dead-letter queue.
const UNREADABLE_WAIT: Duration = Duration::from_secs(1);
