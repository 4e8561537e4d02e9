//! The only place where an event changes state.
//!
//! Each transition is a [`GuardedWrite`] and a `settle` that reads what became of it. A write whose
//! response was lost is retried by the SDK and then fails its own guard; every `settle` recognises
//! its own work by `claim_id`, or by `lease_owner` and fence, and says that it took hold.
//!
//! Absent on purpose: a transition out of `done` or `discarded` other than an operator's, and any
//! read of `expires_at`. Expiry decides nothing.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::{
    backoff::Backoff,
    effects::{StepEntry, StepName, StepState},
    event::{Event, EventId, EventKey, cut},
    guard::{Comparison, Guard},
    item::{Attribute, Item, Value},
    limits,
    record::{
        ClaimId, CorruptRecord, ErrorNote, KeptPayload, LeaseOwner, Record, State, StateName,
        claimed_item,
    },
    retention::Retention,
    seeded::{self, Fault},
    time::Timestamp,
    write::{Both, Change, Edit, GuardedWrite, Written},
};

/// What one source's configuration says about its records.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How long closed records are kept.
    pub retention: Retention,
    /// How many attempts an event gets.
    pub attempt_limit: u32,
    /// The wait between them.
    pub backoff: Backoff,
    /// Whether completion removes the payload and keeps its digest.
    pub drop_payload_when_done: bool,
}

// ---- claim ----------------------------------------------------------------------------------

/// The write that makes a delivery the first of its event.
#[derive(Debug)]
pub struct Claim {
    /// `PutItem` under "no such record".
    pub write: GuardedWrite,
    /// `PutItem` under "no such fingerprint", where what the delivery says is claimed as well.
    ///
    /// In one transaction with the other: a fingerprint without its record would have the next
    /// delivery taken for a replay, and the event would be lost.
    pub fingerprint: Option<GuardedWrite>,
    claim_id: ClaimId,
    beyond_horizon: bool,
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// This delivery is the first.
    New,
    /// This delivery is the first on record, but an earlier one's record may have expired: parked,
    /// for a person to run.
    BeyondHorizon,
    /// Another delivery was first; its record.
    Duplicate(Box<Record>),
    /// Another event was first to say just this, and its sender says nothing twice: a recorded
    /// delivery, sent again under an id that nobody signed.
    Replayed,
    /// There was a record and it is gone: nobody can know. Answered so that the provider retries.
    Vanished,
}

/// Claims `event` for the delivery `claim_id`.
#[must_use]
pub fn claim(
    event: &Event,
    payload: impl Into<KeptPayload>,
    claim_id: ClaimId,
    now: Timestamp,
    policy: &Policy,
) -> Claim {
    let beyond_horizon =
        event.occurred_at.is_some_and(|at| policy.retention.is_beyond_horizon(at, now));
    let sha256 = Sha256::digest(&event.payload).into();
    let mut item = claimed_item(event, payload.into(), sha256);
    item.extend([
        (Attribute::ClaimId, claim_id.0.as_str().into()),
        (Attribute::ReceivedAt, now.millis().into()),
        (Attribute::Attempt, 0_i64.into()),
        (Attribute::AttemptLimit, policy.attempt_limit.into()),
    ]);
    if beyond_horizon {
        let text = "the event is older than its retention: an earlier record may have expired";
        item.extend([
            (Attribute::State, StateName::Failed.into()),
            (Attribute::QueueKey, parked_key(&event.key)),
            (Attribute::DueAt, now.millis().into()),
            (Attribute::LastError, ErrorNote::new(BEYOND_HORIZON, text, now).value()),
        ]);
    } else {
        let not_before = event.coalesces_until.map(not_before_coalesced);
        let due_at = now.max(not_before.unwrap_or(now)).plus(limits::GRACE);
        item.extend([
            (Attribute::State, StateName::Received.into()),
            (Attribute::QueueKey, open_key(&event.key)),
            (Attribute::DueAt, due_at.millis().into()),
        ]);
        item.extend(not_before.map(|at| (Attribute::NotBefore, at.millis().into())));
    }
    if seeded::is_on(Fault::TtlOnOpenRecord) {
        let expires_at = policy.retention.expiry(now, now);
        item.insert(Attribute::ExpiresAt, expires_at.secs_rounded_up().into());
    }
    let write =
        GuardedWrite { key: event.key.clone(), guard: absent(now), change: Change::Put(item) };
    Claim { write, fingerprint: None, claim_id, beyond_horizon }
}

/// When an event that coalesces may first be leased.
///
/// A receiver whose clock is behind still takes deliveries for this event when it has ended by
/// another's; each of them must have come before the handler looks.
#[must_use]
pub fn not_before_coalesced(until: Timestamp) -> Timestamp {
    until.plus(limits::CLOCK_SKEW)
}

/// No such record. One past its expiry that is still there is there: expiry decides nothing.
fn absent(now: Timestamp) -> Guard {
    let absent = Guard::Missing(Attribute::Pk);
    if seeded::is_on(Fault::ExpiryDecides) {
        let now = now.secs_rounded_up().into();
        let expired = Guard::Compare(Attribute::ExpiresAt, Comparison::AtMost, now);
        return Guard::Any(vec![absent, expired]);
    }
    absent
}

impl Claim {
    /// Claims what the delivery says as well, by its `fingerprint`, for as long as a record is kept.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: EventId, now: Timestamp, policy: &Policy) -> Self {
        let key = EventKey::of_fingerprint(self.write.key.source(), fingerprint);
        let expires_at = policy.retention.expiry(now, now);
        let item = Item::from([
            (Attribute::Pk, key.pk().into()),
            (Attribute::EventId, self.write.key.id().as_str().into()),
            (Attribute::ClaimId, self.claim_id.0.as_str().into()),
            (Attribute::ReceivedAt, now.millis().into()),
            (Attribute::ExpiresAt, expires_at.secs_rounded_up().into()),
        ]);
        let guard = Guard::Missing(Attribute::Pk);
        let fingerprint = GuardedWrite { key, guard, change: Change::Put(item) };
        Self { fingerprint: Some(fingerprint), ..self }
    }

    /// Reads what became of it and of its fingerprint's.
    ///
    /// A fingerprint is there only together with its event's record, so one in the way says that
    /// the event is on record. That it may be this event's, whose record has expired, makes no
    /// difference.
    ///
    /// # Errors
    /// If the record in the way cannot be read.
    pub fn settle_both(&self, both: Both) -> Result<Claimed, CorruptRecord> {
        match both {
            Both::First(written) => self.settle(written),
            Both::SecondRefused(_) => Ok(Claimed::Replayed),
        }
    }

    /// Reads what became of it.
    ///
    /// # Errors
    /// If the record in the way cannot be read.
    pub fn settle(&self, written: Written) -> Result<Claimed, CorruptRecord> {
        let first = if self.beyond_horizon { Claimed::BeyondHorizon } else { Claimed::New };
        match written {
            Written::Applied(_) => Ok(first),
            Written::Refused(None) => Ok(Claimed::Vanished),
            Written::Refused(Some(item)) => {
                let record = Record::from_item(item)?;
                // The record in the way is this delivery's own: the response to the write got
                // lost. Read as a duplicate, the event would never be enqueued.
                if record.claim_id == self.claim_id && !seeded::is_on(Fault::OwnClaimIsDuplicate) {
                    return Ok(first);
                }
                Ok(Claimed::Duplicate(Box::new(record)))
            }
        }
    }
}

/// Notes on a record that a later delivery carried another payload. The first note stays.
#[must_use]
pub fn note_mismatch(key: &EventKey, payload: &[u8]) -> GuardedWrite {
    let digest = Value::Bytes(Sha256::digest(payload).to_vec());
    GuardedWrite {
        key: key.clone(),
        guard: Guard::All(vec![
            Guard::Present(Attribute::Pk),
            Guard::Missing(Attribute::PayloadMismatch),
        ]),
        change: Change::Update(vec![Edit::Set(Attribute::PayloadMismatch, digest)]),
    }
}

// ---- lease ----------------------------------------------------------------------------------

/// The write that gives a worker the exclusive, bounded right to run an event's effects.
#[derive(Debug)]
pub struct TakeLease {
    /// `UpdateItem`; returns the whole record, so a worker needs no read.
    pub write: GuardedWrite,
    owner: LeaseOwner,
    now: Timestamp,
    skew: Duration,
}

/// A lease held. Made only by [`TakeLease::settle`], so nothing is written without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    key: EventKey,
    fence: u32,
    owner: LeaseOwner,
    received_at: Timestamp,
}

/// What became of taking a lease.
#[derive(Debug)]
pub enum Leased {
    /// Held, with the record as it is now.
    Held(Lease, Box<Record>),
    /// Released, and not to be run before this.
    NotYet(Timestamp),
    /// Another worker's lease ends then; the skew bound after that it may be taken over.
    HeldElsewhere(Timestamp),
    /// Done, discarded or parked: nothing to run.
    Settled(StateName),
    /// Every attempt is used up and nobody holds it: to be parked.
    Exhausted(Box<Record>),
    /// No such record.
    Unknown,
}

/// Takes the lease of `key` for `owner` until `until`, from `received`, or over from a holder whose
/// lease ended more than the skew bound ago.
///
/// `opening` is the journal entry of a step that this event surely starts with: riding on the lease
/// it costs no write of its own.
#[must_use]
pub fn lease(
    key: &EventKey,
    owner: LeaseOwner,
    now: Timestamp,
    until: Timestamp,
    skew: Duration,
    opening: Option<(&StepName, &StepEntry)>,
) -> TakeLease {
    let skew = if seeded::is_on(Fault::TakeoverIgnoresSkew) { Duration::ZERO } else { skew };
    let mut waiting = Guard::All(vec![
        state_is(StateName::Received),
        Guard::Any(vec![
            Guard::Missing(Attribute::NotBefore),
            Guard::Compare(Attribute::NotBefore, Comparison::AtMost, now.millis().into()),
        ]),
    ]);
    if seeded::is_on(Fault::LeaseReopensClosed) {
        waiting = Guard::Any(vec![waiting, state_is(StateName::Done)]);
    }
    let mut abandoned = Guard::All(vec![
        state_is(StateName::Processing),
        Guard::Compare(Attribute::LeaseUntil, Comparison::Less, now.minus(skew).millis().into()),
    ]);
    if seeded::is_on(Fault::TakeoverIgnoresLease) {
        abandoned = state_is(StateName::Processing);
    }
    let mut edits = vec![
        Edit::Set(Attribute::State, StateName::Processing.into()),
        Edit::Increment(Attribute::Attempt, 1),
        Edit::Set(Attribute::LeaseOwner, owner.0.as_str().into()),
        Edit::Set(Attribute::LeaseUntil, until.millis().into()),
        Edit::Remove(Attribute::NotBefore),
    ];
    if seeded::is_on(Fault::LeaseReopensClosed) {
        edits.push(Edit::Set(Attribute::DueAt, now.millis().into()));
    }
    edits.extend(
        opening.map(|(name, entry)| Edit::SetStepIfAbsent(name.as_str().to_owned(), entry.value())),
    );
    let write = GuardedWrite {
        key: key.clone(),
        guard: Guard::All(vec![attempts_left(), Guard::Any(vec![waiting, abandoned])]),
        change: Change::Update(edits),
    };
    TakeLease { write, owner, now, skew }
}

fn attempts_left() -> Guard {
    if seeded::is_on(Fault::CrashesNotCounted) {
        return Guard::Present(Attribute::Attempt);
    }
    Guard::CompareAttributes(Attribute::Attempt, Comparison::Less, Attribute::AttemptLimit)
}

impl TakeLease {
    /// Reads what became of it.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn settle(self, written: Written) -> Result<Leased, CorruptRecord> {
        let (applied, item) = match written {
            Written::Applied(Some(item)) => (true, item),
            Written::Refused(Some(item)) => (false, item),
            Written::Applied(None) | Written::Refused(None) => return Ok(Leased::Unknown),
        };
        let record = Box::new(Record::from_item(item)?);
        // Refused by a record that this very lease holds: the response to the write got lost.
        let own = record.lease_owner.as_ref() == Some(&self.owner)
            && record.state.name() == StateName::Processing;
        if applied || own || seeded::is_on(Fault::RefusalFallsThrough) {
            let lease = Lease {
                key: record.key.clone(),
                fence: record.attempt,
                owner: self.owner,
                received_at: record.received_at,
            };
            return Ok(Leased::Held(lease, record));
        }
        Ok(match record.state {
            State::Done(_) | State::Discarded(_) | State::Failed { .. } => {
                Leased::Settled(record.state.name())
            }
            State::Processing { lease_until, .. } if lease_until >= self.now.minus(self.skew) => {
                Leased::HeldElsewhere(lease_until)
            }
            State::Received { .. } | State::Processing { .. } if record.is_exhausted() => {
                Leased::Exhausted(record)
            }
            State::Processing { lease_until, .. } => Leased::HeldElsewhere(lease_until),
            State::Received { not_before, .. } => Leased::NotYet(not_before.unwrap_or(self.now)),
        })
    }
}

// ---- under a lease --------------------------------------------------------------------------

/// A write that holds only under a lease: its guard names fence and owner, so a worker that
/// outlived its lease changes nothing.
#[derive(Debug)]
pub struct Fenced {
    /// The write.
    pub write: GuardedWrite,
    lease: Lease,
    becomes: StateName,
}

/// What became of a write under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedOutcome {
    /// It took hold.
    Applied,
    /// The lease was lost; how the record stands now.
    Lost(Standing),
}

/// How a record stands for a worker that does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Closed or parked: nothing to run.
    Settled(StateName),
    /// Waits for a lease, from then on.
    Waiting(Option<Timestamp>),
    /// Another's lease, until then.
    HeldElsewhere(Timestamp),
    /// No such record.
    Gone,
}

impl Lease {
    /// The fence: this lease's attempt number.
    #[must_use]
    pub const fn fence(&self) -> u32 {
        self.fence
    }

    /// Our id of this lease.
    #[must_use]
    pub const fn owner(&self) -> &LeaseOwner {
        &self.owner
    }

    /// Whose lease.
    #[must_use]
    pub const fn key(&self) -> &EventKey {
        &self.key
    }

    /// Journals entries: a start before its call, results after theirs.
    #[must_use]
    pub fn journal(&self, entries: &[(StepName, StepEntry)]) -> Fenced {
        self.fenced(StateName::Processing, step_edits(entries))
    }

    /// Closes the record: its effects took hold. `results` are the journal's last entries.
    #[must_use]
    pub fn complete(
        &self,
        results: &[(StepName, StepEntry)],
        now: Timestamp,
        policy: &Policy,
    ) -> Fenced {
        let expires_at = policy.retention.expiry(self.received_at, now);
        let mut edits = vec![
            Edit::Set(Attribute::State, StateName::Done.into()),
            Edit::Set(Attribute::CompletedAt, now.millis().into()),
            Edit::Set(Attribute::ExpiresAt, expires_at.secs_rounded_up().into()),
            Edit::Remove(Attribute::QueueKey),
            Edit::Remove(Attribute::DueAt),
            Edit::Remove(Attribute::LeaseUntil),
        ];
        if policy.drop_payload_when_done {
            edits.push(Edit::Remove(Attribute::Payload));
            edits.push(Edit::Remove(Attribute::PayloadRef));
        }
        edits.extend(step_edits(results));
        self.fenced(StateName::Done, edits)
    }

    /// Gives the lease back, to be taken again after `wait`.
    ///
    /// A short wait is the queue's: the message stays invisible for it. A longer one is the
    /// sweep's, which looks when the wait ends.
    #[must_use]
    pub fn release(
        &self,
        wait: Duration,
        error: &ErrorNote,
        results: &[(StepName, StepEntry)],
        now: Timestamp,
    ) -> Fenced {
        let not_before = now.plus(wait);
        let mut edits = vec![
            Edit::Set(Attribute::State, StateName::Received.into()),
            Edit::Set(Attribute::NotBefore, not_before.millis().into()),
            Edit::Set(Attribute::LastError, error.value()),
            Edit::Remove(Attribute::LeaseUntil),
        ];
        if wait > limits::MAX_KEPT_DELAY {
            edits.push(Edit::Set(Attribute::DueAt, not_before.millis().into()));
        }
        edits.extend(step_edits(results));
        self.fenced(StateName::Received, edits)
    }

    /// Parks the record: a person decides.
    #[must_use]
    pub fn park(
        &self,
        error: &ErrorNote,
        results: &[(StepName, StepEntry)],
        now: Timestamp,
    ) -> Fenced {
        let mut edits = park_edits(&self.key, error, now);
        edits.extend(step_edits(results));
        self.fenced(StateName::Failed, edits)
    }

    fn fenced(&self, becomes: StateName, edits: Vec<Edit>) -> Fenced {
        let mut guard = Guard::All(vec![
            state_is(StateName::Processing),
            Guard::equal(Attribute::Attempt, self.fence),
            Guard::equal(Attribute::LeaseOwner, self.owner.0.as_str()),
        ]);
        let unfenced = match becomes {
            StateName::Done => seeded::is_on(Fault::CompleteWithoutFence),
            StateName::Received => seeded::is_on(Fault::ReleaseWithoutFence),
            StateName::Processing | StateName::Failed | StateName::Discarded => false,
        };
        if unfenced {
            guard = Guard::Present(Attribute::Pk);
        }
        let write = GuardedWrite { key: self.key.clone(), guard, change: Change::Update(edits) };
        Fenced { write, lease: self.clone(), becomes }
    }
}

impl Fenced {
    /// Reads what became of it.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn settle(&self, written: Written) -> Result<FencedOutcome, CorruptRecord> {
        let item = match written {
            Written::Applied(_) => return Ok(FencedOutcome::Applied),
            Written::Refused(None) => return Ok(FencedOutcome::Lost(Standing::Gone)),
            Written::Refused(Some(item)) => item,
        };
        let record = Record::from_item(item)?;
        let own = record.attempt == self.lease.fence
            && record.lease_owner.as_ref() == Some(&self.lease.owner);
        // The record stands where this write would have put it, by this lease: it did, and the
        // response got lost.
        if own && record.state.name() == self.becomes {
            return Ok(FencedOutcome::Applied);
        }
        Ok(FencedOutcome::Lost(standing(&record)))
    }
}

// ---- without a lease ------------------------------------------------------------------------

/// Moves an open record's `due_at` on, so that whoever does it first enqueues it, and alone.
#[derive(Debug)]
pub struct Requeue {
    /// The write. Bump first, then send: the other way round, two sweeps send twice as often.
    pub write: GuardedWrite,
    due_at: Timestamp,
}

/// Enqueues an open record again. `None` if it is not open.
#[must_use]
pub fn requeue(record: &Record, now: Timestamp) -> Option<Requeue> {
    let wait =
        limits::GRACE.saturating_mul(1 << record.requeues.min(16)).min(limits::MAX_REQUEUE_WAIT);
    move_due(record, now.plus(wait), vec![Edit::Increment(Attribute::Requeues, 1)])
}

/// Looks at an open record again at `until`; it is not for the queue before. `None` if not open.
#[must_use]
pub fn defer(record: &Record, until: Timestamp) -> Option<Requeue> {
    move_due(record, until, Vec::new())
}

fn move_due(record: &Record, to: Timestamp, more: Vec<Edit>) -> Option<Requeue> {
    let (State::Received { due_at, .. } | State::Processing { due_at, .. }) = record.state else {
        return None;
    };
    let guard = Guard::All(vec![is_open(), Guard::equal(Attribute::DueAt, due_at.millis())]);
    let mut edits = vec![Edit::Set(Attribute::DueAt, to.millis().into())];
    edits.extend(more);
    let write = GuardedWrite { key: record.key.clone(), guard, change: Change::Update(edits) };
    Some(Requeue { write, due_at: to })
}

impl Requeue {
    /// Whether it took hold, and the event is this caller's to enqueue. A record that already
    /// stands there counts: the response got lost, or another bumped it to the very same
    /// millisecond, and a second message does no harm.
    #[must_use]
    pub fn settle(&self, written: &Written) -> bool {
        match written {
            Written::Applied(_) => true,
            Written::Refused(None) => false,
            Written::Refused(Some(item)) => {
                item.get(&Attribute::DueAt) == Some(&self.due_at.millis().into())
            }
        }
    }
}

/// Puts off a record that cannot be read, so that it does not stand before those that can. Only its
/// place in the index is known.
#[must_use]
pub fn put_off(key: &EventKey, due_at: Timestamp, now: Timestamp) -> GuardedWrite {
    let later = now.plus(limits::MAX_REQUEUE_WAIT);
    GuardedWrite {
        key: key.clone(),
        guard: Guard::equal(Attribute::DueAt, due_at.millis()),
        change: Change::Update(vec![Edit::Set(Attribute::DueAt, later.millis().into())]),
    }
}

/// Parks an open record whose attempts are used up, as nobody's lease is left to do it.
///
/// The guard names all that was seen: between the look and the write a worker may have completed
/// it, or an operator replayed it.
#[must_use]
pub fn park_exhausted(record: &Record, now: Timestamp) -> GuardedWrite {
    let text = format!("{} of {} attempts used", record.attempt, record.attempt_limit);
    let last = record.last_error.as_ref();
    let text =
        last.map_or(text.clone(), |last| format!("{text}; last: {}: {}", last.class, last.text));
    let error = ErrorNote::new(ATTEMPTS_EXHAUSTED, &text, now);
    let mut guards = vec![
        state_is(record.state.name()),
        Guard::equal(Attribute::Attempt, record.attempt),
        Guard::equal(Attribute::AttemptLimit, record.attempt_limit),
    ];
    if let State::Processing { lease_until, .. } = record.state {
        guards.push(Guard::equal(Attribute::LeaseUntil, lease_until.millis()));
    }
    GuardedWrite {
        key: record.key.clone(),
        guard: Guard::All(guards),
        change: Change::Update(park_edits(&record.key, &error, now)),
    }
}

/// What an operator says for the record's history.
#[derive(Clone, Debug)]
pub struct Operator<'a> {
    /// Who.
    pub name: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// Why an operator's wish cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotReplay {
    /// Not parked, not done.
    #[error(
        "the event is {0}: only a failed or done event is replayed, only a failed one discarded"
    )]
    State(StateName),
    /// Dropped on completion.
    #[error("the payload was dropped when the event was done (payload = \"drop-when-done\")")]
    PayloadDropped,
    /// Too often.
    #[error("the event was replayed {} times before: that is the most", limits::MAX_REPLAYS)]
    TooOften,
}

/// Opens a parked or done record again. The fence goes on from where it was, the limit moves on by
/// `policy`'s; the journal stays unless `forget_steps`.
///
/// # Errors
/// If the record's state, payload or history forbids it.
pub fn replay(
    record: &Record,
    operator: &Operator<'_>,
    now: Timestamp,
    policy: &Policy,
    forget_steps: bool,
) -> Result<GuardedWrite, CannotReplay> {
    let state = record.state.name();
    if !matches!(state, StateName::Failed | StateName::Done) {
        return Err(CannotReplay::State(state));
    }
    if record.payload.is_none() {
        return Err(CannotReplay::PayloadDropped);
    }
    if record.replays >= limits::MAX_REPLAYS {
        return Err(CannotReplay::TooOften);
    }
    let limit = record.attempt.saturating_add(policy.attempt_limit);
    let mut edits = vec![
        Edit::Set(Attribute::State, StateName::Received.into()),
        Edit::Set(Attribute::AttemptLimit, limit.into()),
        Edit::Set(Attribute::QueueKey, open_key(&record.key)),
        Edit::Set(Attribute::DueAt, now.plus(limits::GRACE).millis().into()),
        Edit::Append(Attribute::Replays, history_entry(operator, "replay", now)),
        Edit::Remove(Attribute::Requeues),
        Edit::Remove(Attribute::NotBefore),
        Edit::Remove(Attribute::LeaseUntil),
        Edit::Remove(Attribute::CompletedAt),
        Edit::Remove(Attribute::ExpiresAt),
    ];
    if forget_steps {
        edits.push(Edit::Set(Attribute::Steps, Value::Map(std::collections::BTreeMap::new())));
    }
    Ok(as_seen(record, edits))
}

/// Closes a parked record without running it.
///
/// # Errors
/// If the record is not parked.
pub fn discard(
    record: &Record,
    operator: &Operator<'_>,
    now: Timestamp,
    policy: &Policy,
) -> Result<GuardedWrite, CannotReplay> {
    let state = record.state.name();
    if state != StateName::Failed {
        return Err(CannotReplay::State(state));
    }
    let expires_at = policy.retention.expiry(record.received_at, now);
    Ok(as_seen(
        record,
        vec![
            Edit::Set(Attribute::State, StateName::Discarded.into()),
            Edit::Set(Attribute::CompletedAt, now.millis().into()),
            Edit::Set(Attribute::ExpiresAt, expires_at.secs_rounded_up().into()),
            Edit::Append(Attribute::Replays, history_entry(operator, "discard", now)),
            Edit::Remove(Attribute::QueueKey),
            Edit::Remove(Attribute::DueAt),
        ],
    ))
}

/// Why a lease cannot be taken away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotUnstick {
    /// Nobody holds it.
    #[error("the event is {0}: only one that is processing has a lease to take away")]
    State(StateName),
    /// Too often.
    #[error(
        "operators have acted on the event {} times before: that is the most",
        limits::MAX_REPLAYS
    )]
    TooOften,
}

/// Takes the lease from its worker, so that the next one starts at once. The journal stays, and
/// the attempt counts.
///
/// The worker may be alive. Its every later write is refused: the record is not `processing`, and
/// once it is again, it is so under another fence. Its owner goes too, or a release of the outlived
/// worker would take this very state for its own work. A call it has just made is not undone: the
/// next worker repeats it under the same key, asks about it or parks, as after any takeover.
///
/// # Errors
/// If nobody holds a lease, or the history is full.
pub fn unstick(
    record: &Record,
    operator: &Operator<'_>,
    now: Timestamp,
) -> Result<GuardedWrite, CannotUnstick> {
    let state = record.state.name();
    if state != StateName::Processing {
        return Err(CannotUnstick::State(state));
    }
    if record.replays >= limits::MAX_REPLAYS {
        return Err(CannotUnstick::TooOften);
    }
    // State and attempt name the lease: no other has this attempt.
    Ok(as_seen(
        record,
        vec![
            Edit::Set(Attribute::State, StateName::Received.into()),
            Edit::Set(Attribute::DueAt, now.plus(limits::GRACE).millis().into()),
            Edit::Append(Attribute::Replays, history_entry(operator, "unstick", now)),
            Edit::Remove(Attribute::LeaseOwner),
            Edit::Remove(Attribute::LeaseUntil),
        ],
    ))
}

/// What became of an operator's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operated {
    /// It took hold.
    Applied,
    /// Somebody was faster, and it changed nothing; how the record stands now.
    Lost(Standing),
}

/// Reads what became of an operator's write. One whose response got lost is recognised by its
/// entry in the record's history, whatever happened since.
///
/// # Errors
/// If the record cannot be read.
pub fn settle_operation(write: &GuardedWrite, written: Written) -> Result<Operated, CorruptRecord> {
    let item = match written {
        Written::Applied(_) => return Ok(Operated::Applied),
        Written::Refused(None) => return Ok(Operated::Lost(Standing::Gone)),
        Written::Refused(Some(item)) => item,
    };
    if let (Change::Update(edits), Some(Value::List(history))) =
        (&write.change, item.get(&Attribute::Replays))
        && history
            .iter()
            .any(|entry| edits.contains(&Edit::Append(Attribute::Replays, entry.clone())))
    {
        return Ok(Operated::Applied);
    }
    Ok(Operated::Lost(standing(&Record::from_item(item)?)))
}

// ---- helpers --------------------------------------------------------------------------------

fn standing(record: &Record) -> Standing {
    match record.state {
        State::Received { not_before, .. } => Standing::Waiting(not_before),
        State::Processing { lease_until, .. } => Standing::HeldElsewhere(lease_until),
        State::Done(_) | State::Discarded(_) | State::Failed { .. } => {
            Standing::Settled(record.state.name())
        }
    }
}

fn as_seen(record: &Record, edits: Vec<Edit>) -> GuardedWrite {
    let guard = Guard::All(vec![
        state_is(record.state.name()),
        Guard::equal(Attribute::Attempt, record.attempt),
    ]);
    GuardedWrite { key: record.key.clone(), guard, change: Change::Update(edits) }
}

fn park_edits(key: &EventKey, error: &ErrorNote, now: Timestamp) -> Vec<Edit> {
    vec![
        Edit::Set(Attribute::State, StateName::Failed.into()),
        Edit::Set(Attribute::QueueKey, parked_key(key)),
        Edit::Set(Attribute::DueAt, now.millis().into()),
        Edit::Set(Attribute::LastError, error.value()),
        Edit::Remove(Attribute::LeaseUntil),
        Edit::Remove(Attribute::NotBefore),
    ]
}

fn step_edits(entries: &[(StepName, StepEntry)]) -> Vec<Edit> {
    let edit = |(name, entry): &(StepName, StepEntry)| {
        let (name, value) = (name.as_str().to_owned(), entry.value());
        match entry.state {
            // A start that arrives late, after its own retry and what followed, must not take back
            // a result that the fence alone would let it.
            StepState::Started => Edit::SetStepIfAbsent(name, value),
            StepState::Done { .. } => Edit::SetStep(name, value),
        }
    };
    entries.iter().map(edit).collect()
}

fn history_entry(operator: &Operator<'_>, did: &str, now: Timestamp) -> Value {
    Value::Map(std::collections::BTreeMap::from([
        ("did".to_owned(), did.into()),
        ("by".to_owned(), cut(operator.name, limits::MAX_REASON_BYTES).into()),
        ("reason".to_owned(), cut(operator.reason, limits::MAX_REASON_BYTES).into()),
        ("at".to_owned(), now.millis().into()),
    ]))
}

fn state_is(state: StateName) -> Guard {
    Guard::equal(Attribute::State, state.as_str())
}

fn is_open() -> Guard {
    Guard::Any(vec![state_is(StateName::Received), state_is(StateName::Processing)])
}

fn open_key(key: &EventKey) -> Value {
    open_shard(key.shard()).into()
}

fn parked_key(key: &EventKey) -> Value {
    parked_shard(key.shard()).into()
}

/// Partition of the index that holds the open records of a shard.
#[must_use]
pub fn open_shard(shard: u32) -> String {
    format!("open#{shard}")
}

/// Partition of the index that holds the parked records of a shard.
#[must_use]
pub fn parked_shard(shard: u32) -> String {
    format!("parked#{shard}")
}

impl From<StateName> for Value {
    fn from(state: StateName) -> Self {
        state.as_str().into()
    }
}

/// Error class of an event that came after its retention.
pub const BEYOND_HORIZON: &str = "beyond_horizon";
/// Error class of an event whose attempts are used up.
pub const ATTEMPTS_EXHAUSTED: &str = "attempts_exhausted";
