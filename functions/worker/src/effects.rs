//! What a handler does its work through: local writes that commit with the record, and external
//! steps under a key that never changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    time::Duration,
};

use aws_sdk_dynamodb::types::TransactWriteItem;
use domain::{
    effects::{
        Journal, StepDecision, StepEntry, StepName, StepPolicy, StepState, decide_begun,
        decide_step, step_key,
    },
    event::EventKey,
    limits,
    seeded::{self, Fault},
    time::Timestamp,
    transition::{FencedOutcome, Lease, Standing},
};
use dynamo::{Ledger, LedgerError, Returning};
use runtime::{clock::Clock, telemetry::StepLine};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::failure::Failure;

/// An event as a handler sees it.
#[derive(Clone)]
pub struct Event {
    /// Its key.
    pub key: EventKey,
    /// Catalogue name of its provider.
    pub provider: String,
    /// The provider's word for what happened.
    pub event_type: Option<String>,
    /// What it happened to.
    pub object_id: Option<String>,
    /// When it happened, by the provider's clock.
    pub occurred_at: Option<Timestamp>,
    /// The exact bytes as received.
    pub payload: Vec<u8>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Kept headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

impl fmt::Debug for Event {
    /// Without payload and headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("key", &self.key)
            .field("event_type", &self.event_type)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// The effects of one attempt at one event.
pub struct Effects<'a> {
    ledger: &'a Ledger,
    clock: Clock,
    lease: Lease,
    journal: Journal,
    /// Results not written yet: they ride on the next write, the completion's if there is none.
    unwritten: Vec<(StepName, StepEntry)>,
    /// Steps whose call began in this attempt and has not returned a result.
    begun: BTreeSet<StepName>,
    /// Why this attempt may write nothing more. A handler that carries on hears it again.
    ended: Option<Ended>,
    local: Vec<TransactWriteItem>,
}

/// Why an attempt may write nothing more.
#[derive(Clone, Copy)]
enum Ended {
    /// The fence refused a write.
    Lost(Standing),
    /// Whether the journal was written is not known.
    Uncertain,
}

impl fmt::Debug for Effects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").field("key", self.lease.key()).finish_non_exhaustive()
    }
}

impl<'a> Effects<'a> {
    pub(crate) const fn new(
        ledger: &'a Ledger,
        clock: Clock,
        lease: Lease,
        journal: Journal,
    ) -> Self {
        Self {
            ledger,
            clock,
            lease,
            journal,
            unwritten: Vec::new(),
            begun: BTreeSet::new(),
            ended: None,
            local: Vec::new(),
        }
    }

    /// Adds a local write: it takes hold in the same transaction as the record's completion, if
    /// and only if that does.
    ///
    /// Should a condition of it not hold, nothing is written and the event is parked.
    ///
    /// # Errors
    /// If the event has more local writes than a transaction takes
    /// ([`limits::MAX_LOCAL_WRITES`]).
    pub fn write(&mut self, write: TransactWriteItem) -> Result<(), Failure> {
        self.still_held()?;
        if self.local.len() >= limits::MAX_LOCAL_WRITES {
            let text = format!("{} local writes at most", limits::MAX_LOCAL_WRITES);
            return Err(Failure::permanent("too_many_local_writes", text));
        }
        self.local.push(write);
        Ok(())
    }

    /// Makes one external call, under a key of ours that is the same on every attempt.
    ///
    /// A step recorded as done is not called again; its recorded result is returned. What happens
    /// to one that an earlier attempt started and did not finish is `policy`'s to say:
    ///
    /// - [`StepPolicy::Repeat`] calls again under the same key: for a callee that is idempotent;
    /// - [`StepPolicy::RepeatFor`] does so for as long as the callee remembers keys, counted from
    ///   the first start, and parks the event after that: the start costs a journal write, unless
    ///   it rides on the lease;
    /// - [`StepPolicy::Never`] parks the event: for one where a second call is worse than none;
    /// - for [`StepPolicy::Reconcile`] use [`Effects::reconciled_step`]; here it acts as `Never`.
    ///
    /// `name` is `[a-z0-9_-]{1,64}` and unique within the event; the result, as JSON, has at most
    /// [`limits::MAX_STEP_RESULT_BYTES`].
    ///
    /// # Errors
    /// What `call` returns, and what stops the attempt: pass both on with `?`.
    pub async fn step<T, C, F>(
        &mut self,
        name: &str,
        policy: StepPolicy,
        call: C,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        C: FnOnce(String) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        let nobody_knows = async |_key: String| -> Result<Option<T>, Failure> {
            Err(Failure::permanent(
                "step_unfinished",
                format!("step {name}: an earlier attempt may have made the call; a person decides"),
            ))
        };
        self.run(name, policy, nobody_knows, call).await
    }

    /// As [`Effects::step`], for a callee that can be asked what happened.
    ///
    /// If an earlier attempt may have made the call, `ask` is given the key and says: the result,
    /// or `None` for "it was not made", upon which `call` is.
    ///
    /// # Errors
    /// What `ask` and `call` return, and what stops the attempt: pass all on with `?`.
    pub async fn reconciled_step<T, A, G, C, F>(
        &mut self,
        name: &str,
        ask: A,
        call: C,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        A: FnOnce(String) -> G,
        G: Future<Output = Result<Option<T>, Failure>>,
        C: FnOnce(String) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        self.run(name, StepPolicy::Reconcile, ask, call).await
    }

    /// As [`Effects::step`] under [`StepPolicy::RepeatFor`], for a callee that can be asked what
    /// happened once it may have forgotten the key: as [`Effects::reconciled_step`] from then on.
    ///
    /// # Errors
    /// As [`Effects::reconciled_step`].
    pub async fn remembered_step<T, A, G, C, F>(
        &mut self,
        name: &str,
        remembers: Duration,
        ask: A,
        call: C,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        A: FnOnce(String) -> G,
        G: Future<Output = Result<Option<T>, Failure>>,
        C: FnOnce(String) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        self.run(name, StepPolicy::RepeatFor(remembers), ask, call).await
    }

    async fn run<T, A, G, C, F>(
        &mut self,
        name: &str,
        policy: StepPolicy,
        ask: A,
        call: C,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        A: FnOnce(String) -> G,
        G: Future<Output = Result<Option<T>, Failure>>,
        C: FnOnce(String) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        self.still_held()?;
        let step = self.named(name)?;
        let key = self.key_of(&step);
        let started = Instant::now();
        // A handler that makes a call again within one attempt is its own predecessor.
        let decision = if self.begun.contains(&step) {
            decide_begun(self.journal.get(&step), policy, self.clock.now())
        } else {
            let (entry, owner) = (self.journal.get(&step), self.lease.owner());
            decide_step(entry, owner, policy, self.clock.now())
        };
        let (journal_first, asked) = match decision {
            StepDecision::Recorded { result } => {
                self.log(&step, "recorded", started);
                return recorded(&step, &result);
            }
            StepDecision::Reconcile | StepDecision::Park => (false, ask(key.clone()).await),
            StepDecision::Call { journal_first } => (journal_first, Ok(None)),
        };
        let (outcome, result) = match asked {
            Ok(Some(result)) => ("reconciled", Ok(result)),
            Ok(None) => {
                self.journal_before(&step, &key, journal_first).await?;
                self.begun.insert(step.clone());
                ("called", call(key.clone()).await)
            }
            Err(failure) => ("unfinished", Err(failure)),
        };
        match result {
            Ok(result) => {
                self.record(step.clone(), key, &result)?;
                self.log(&step, outcome, started);
                Ok(result)
            }
            Err(failure) => {
                let outcome = if outcome == "called" { "failed" } else { outcome };
                self.log(&step, outcome, started);
                Err(failure)
            }
        }
    }

    /// The key that the step `name` of this event carries, on every attempt.
    ///
    /// # Errors
    /// If `name` is no step name.
    pub fn key(&self, name: &str) -> Result<String, Failure> {
        let step = StepName::new(name).map_err(|error| Failure::permanent("step_name", error))?;
        Ok(self.key_of(&step))
    }

    fn key_of(&self, step: &StepName) -> String {
        let key = step_key(self.lease.key(), step);
        if seeded::is_on(Fault::KeyPerAttempt) {
            return format!("{key}-{}", self.lease.fence());
        }
        key
    }

    fn named(&self, name: &str) -> Result<StepName, Failure> {
        let step = StepName::new(name)
            .map_err(|error| Failure::permanent("step_name", format!("`{name}`: {error}")))?;
        if !self.journal.contains_key(&step) && self.journal.len() >= limits::MAX_STEPS {
            let text = format!("{} steps at most", limits::MAX_STEPS);
            return Err(Failure::permanent("too_many_steps", text));
        }
        Ok(step)
    }

    /// Before a call: writes earlier results, so that a crash in it does not repeat theirs, and
    /// the start, if the policy needs one. One write for both; none where there is neither.
    async fn journal_before(
        &mut self,
        step: &StepName,
        key: &str,
        journal_start: bool,
    ) -> Result<(), Failure> {
        let started = journal_start.then(|| self.entry(key, StepState::Started));
        let mut entries = self.unwritten.clone();
        entries.extend(started.clone().map(|entry| (step.clone(), entry)));
        if entries.is_empty() {
            return Ok(());
        }
        let journal = self.lease.journal(&entries);
        let settled = match self.ledger.write(&journal.write, Returning::Nothing).await {
            Ok(written) => journal.settle(written).map_err(LedgerError::from),
            Err(error) => Err(error),
        };
        match settled {
            Ok(FencedOutcome::Applied) => {
                self.unwritten.clear();
                self.journal.extend(started.map(|entry| (step.clone(), entry)));
                Ok(())
            }
            Ok(FencedOutcome::Lost(standing)) => {
                self.ended = Some(Ended::Lost(standing));
                Err(Failure::lease_lost(standing))
            }
            Err(error) => {
                self.ended = Some(Ended::Uncertain);
                Err(error.into())
            }
        }
    }

    /// Whether this attempt may still write: not after a write that was refused, or is in doubt.
    pub(crate) fn still_held(&self) -> Result<(), Failure> {
        match self.ended {
            None => Ok(()),
            Some(Ended::Lost(standing)) => Err(Failure::lease_lost(standing)),
            Some(Ended::Uncertain) => {
                let text = "whether the journal was written is not known";
                Err(Failure::retry("journal_uncertain", text))
            }
        }
    }

    fn record<T: Serialize>(
        &mut self,
        step: StepName,
        key: String,
        result: &T,
    ) -> Result<(), Failure> {
        let result = serde_json::to_string(result).map_err(|_| {
            Failure::permanent(
                "step_result",
                format!("step {step}: the result is not representable as JSON"),
            )
        })?;
        if result.len() > limits::MAX_STEP_RESULT_BYTES {
            let text = format!(
                "step {step}: a result of {} bytes, {} at most; record an id instead",
                result.len(),
                limits::MAX_STEP_RESULT_BYTES
            );
            return Err(Failure::permanent("step_result_too_large", text));
        }
        let entry = self.entry(&key, StepState::Done { result });
        self.begun.remove(&step);
        self.journal.insert(step.clone(), entry.clone());
        self.unwritten.push((step, entry));
        Ok(())
    }

    fn entry(&self, key: &str, state: StepState) -> StepEntry {
        let owner = self.lease.owner().clone();
        StepEntry { state, key: key.to_owned(), owner, at: self.clock.now() }
    }

    fn log(&self, step: &StepName, outcome: &'static str, started: Instant) {
        let key = self.lease.key();
        let line = StepLine {
            timestamp: Clock::system_time(self.clock.now()),
            source: key.source().as_str().to_owned(),
            step: step.as_str().to_owned(),
            outcome,
            event_id: key.id().as_str().to_owned(),
            steps_total: 1,
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
        };
        line.write();
    }

    pub(crate) fn into_parts(self) -> (Vec<(StepName, StepEntry)>, Vec<TransactWriteItem>) {
        (self.unwritten, self.local)
    }
}

fn recorded<T: DeserializeOwned>(step: &StepName, result: &str) -> Result<T, Failure> {
    serde_json::from_str(result).map_err(|_| {
        Failure::permanent(
            "step_result_unreadable",
            format!("step {step}: its recorded result is of another type than this handler's"),
        )
    })
}
