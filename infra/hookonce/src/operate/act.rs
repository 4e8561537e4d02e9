//! What an operator does: replay, discard, unstick; one event, or many.
//!
//! Each reads the record, decides by the domain, writes under its guard and reads what became of
//! that. Losing the race is reported and never tried again: whoever was faster may have made the
//! wish pointless.

use domain::{
    event::EventKey,
    record::{Record, StateName},
    time::Timestamp,
    transition::{
        BEYOND_HORIZON, Operated, Operator, Standing, discard, replay, settle_operation, unstick,
    },
    write::GuardedWrite,
};
use dynamo::{Ledger, LedgerError, Returning};
use futures::{StreamExt as _, stream};
use runtime::clock::Clock;
use sqs::Queue;

use super::{
    Looked,
    explain::held_until,
    look, moment,
    page::{Bounds, Cursor, Filter, MOST_LOOKED_AT, PageError, page},
    policies::Policies,
};

/// Somebody with a reason, and what it takes to act.
#[derive(Debug)]
pub struct Hands<'a> {
    /// The records.
    pub ledger: &'a Ledger,
    /// Where an event that is open again is enqueued. Without, a sweep does it.
    pub queue: Option<&'a Queue>,
    /// What the sources' configuration says.
    pub policies: &'a Policies,
    /// The clock.
    pub clock: Clock,
    /// Who, and why.
    pub operator: Operator<'a>,
}

/// How to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replay {
    /// Whether a done event is run again: its local writes take hold a second time.
    pub even_done: bool,
    /// Whether its steps are called again, each under its key, though the journal has their
    /// results.
    pub forget_steps: bool,
}

/// What became of one wish.
#[derive(Debug, PartialEq, Eq)]
pub enum Acted {
    /// It took hold.
    Applied(Enqueued),
    /// Somebody was faster; nothing was changed.
    Lost(Standing),
    /// Somebody was faster than the look at it: it stands otherwise than it was listed. Nothing was
    /// changed.
    Moved {
        /// Its state now.
        state: StateName,
        /// Attempts so far.
        attempt: u32,
    },
    /// It cannot be, or wants to be confirmed; nothing was changed.
    Refused(String),
    /// There is no such event.
    Unknown,
}

/// Whether the event's message was sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It was.
    Sent,
    /// It was not, and why: a sweep sends it within its grace.
    BySweep(String),
    /// It was closed: there is nothing to run.
    NothingToRun,
}

/// An event that would be replayed.
#[derive(Debug)]
pub struct Candidate {
    /// Which.
    pub key: EventKey,
    /// Its state when it was listed.
    pub state: StateName,
    /// Attempts until then.
    pub attempt: u32,
    /// Its type.
    pub event_type: Option<String>,
    /// The class of its last error.
    pub error_class: Option<String>,
    /// When it was received.
    pub received_at: Timestamp,
}

/// Those that would be replayed.
#[derive(Debug, Default)]
pub struct Candidates {
    /// In the order in which they are found.
    pub events: Vec<Candidate>,
    /// How many were left out as they came beyond their horizon, and may have run before.
    pub too_late: usize,
    /// Keys of records that cannot be read, which nobody can replay.
    pub unreadable: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

impl Acted {
    fn refused(why: impl ToString) -> Self {
        Self::Refused(why.to_string())
    }
}

impl Hands<'_> {
    /// Runs a parked event again, or a done one.
    ///
    /// # Errors
    /// If it is not known whether it took hold.
    pub async fn replay(&self, key: &EventKey, how: Replay) -> Result<Acted, LedgerError> {
        self.reopen(key, |record, now| self.decide_replay(record, now, how)).await
    }

    /// As [`Hands::replay`], of an event that still stands as it was listed: whoever wanted it
    /// replayed meant what the list showed, not what a colleague's replay made of it since.
    async fn replay_listed(&self, listed: &Candidate, how: Replay) -> Result<Acted, LedgerError> {
        let replay = |record: &Record, now| {
            let (state, attempt) = (record.state.name(), record.attempt);
            if (state, attempt) != (listed.state, listed.attempt) {
                return Err(Acted::Moved { state, attempt });
            }
            self.decide_replay(record, now, how)
        };
        self.reopen(&listed.key, replay).await
    }

    fn decide_replay(
        &self,
        record: &Record,
        now: Timestamp,
        how: Replay,
    ) -> Result<GuardedWrite, Acted> {
        if record.state.name() == StateName::Done && !how.even_done {
            return Err(Acted::refused(
                "it is done: a replay makes its effects once more, its local writes among them; \
                 --yes if that is wanted",
            ));
        }
        let policy = self.policies.of(record).map_err(Acted::refused)?;
        replay(record, &self.operator, now, &policy, how.forget_steps).map_err(Acted::refused)
    }

    /// Closes a parked event without running it.
    ///
    /// # Errors
    /// If it is not known whether it took hold.
    pub async fn discard(&self, key: &EventKey) -> Result<Acted, LedgerError> {
        let discard = |record: &Record, now| {
            let policy = self.policies.of(record).map_err(Acted::refused)?;
            discard(record, &self.operator, now, &policy).map_err(Acted::refused)
        };
        Ok(match self.change(key, discard).await? {
            Ok(_closed) => Acted::Applied(Enqueued::NothingToRun),
            Err(not) => not,
        })
    }

    /// Takes an event from the worker that holds it; one whose worker may be alive only if
    /// `even_held`.
    ///
    /// # Errors
    /// If it is not known whether it took hold.
    pub async fn unstick(&self, key: &EventKey, even_held: bool) -> Result<Acted, LedgerError> {
        let skew = self.policies.clock_skew();
        let unstick = |record: &Record, now| match held_until(record, now, skew) {
            Some(until) if !even_held => Err(Acted::refused(worker_may_be_alive(until))),
            Some(_) | None => unstick(record, &self.operator, now).map_err(Acted::refused),
        };
        self.reopen(key, unstick).await
    }

    async fn reopen(
        &self,
        key: &EventKey,
        decide: impl Fn(&Record, Timestamp) -> Result<GuardedWrite, Acted>,
    ) -> Result<Acted, LedgerError> {
        Ok(match self.change(key, decide).await? {
            Ok(record) => Acted::Applied(self.enqueue(&record).await),
            Err(not) => not,
        })
    }

    /// Reads, decides and writes. Gives the record that was seen, if the write took hold.
    async fn change(
        &self,
        key: &EventKey,
        decide: impl Fn(&Record, Timestamp) -> Result<GuardedWrite, Acted>,
    ) -> Result<Result<Record, Acted>, LedgerError> {
        let Some(Looked { record, .. }) = look(self.ledger, key).await? else {
            return Ok(Err(Acted::Unknown));
        };
        let write = match decide(&record, self.clock.now()) {
            Ok(write) => write,
            Err(not) => return Ok(Err(not)),
        };
        let written = self.ledger.write(&write, Returning::Nothing).await?;
        Ok(match settle_operation(&write, written)? {
            Operated::Applied => Ok(record),
            Operated::Lost(standing) => Err(Acted::Lost(standing)),
        })
    }

    async fn enqueue(&self, record: &Record) -> Enqueued {
        let Some(queue) = self.queue else {
            return Enqueued::BySweep("no queue was named".to_owned());
        };
        match queue.send(&record.into()).await {
            Ok(()) => Enqueued::Sent,
            Err(error) => Enqueued::BySweep(error.to_string()),
        }
    }

    /// Replays those of these that still stand as they were listed, some at a time, and tells of
    /// each as it ends. Each once: one that fails and parks again meanwhile is not taken up again.
    pub async fn replay_all(
        &self,
        candidates: &[Candidate],
        how: Replay,
        mut ended: impl FnMut(&Candidate, &Result<Acted, LedgerError>),
    ) {
        let mut acting = stream::iter(candidates)
            .map(|candidate| async move { (candidate, self.replay_listed(candidate, how).await) })
            .buffer_unordered(REPLAYS_AT_ONCE);
        while let Some((candidate, acted)) = acting.next().await {
            ended(candidate, &acted);
        }
    }
}

/// The first `most` events that `filter` wants, as they are now. What came beyond its horizon may
/// have run before: it is no candidate unless the filter names that error.
///
/// # Errors
/// If the ledger cannot be asked.
pub async fn candidates(
    ledger: &Ledger,
    filter: &Filter,
    most: usize,
) -> Result<Candidates, PageError> {
    let mut found = Candidates::default();
    let mut after: Option<Cursor> = None;
    loop {
        let room = most - found.events.len();
        let bounds = Bounds { shown: room.min(AT_A_TIME), looked_at: MOST_LOOKED_AT };
        let page = page(ledger, filter, after.as_ref(), bounds).await?;
        for entry in page.entries {
            match entry.record {
                Ok(record) if filter.error.is_none() && is_too_late(&record) => found.too_late += 1,
                Ok(record) => found.events.push(Candidate {
                    state: record.state.name(),
                    attempt: record.attempt,
                    key: record.key,
                    event_type: record.event_type,
                    error_class: record.last_error.map(|error| error.class),
                    received_at: record.received_at,
                }),
                Err(_) => found.unreadable.push(entry.key),
            }
        }
        after = page.next;
        if after.is_none() || found.events.len() >= most {
            found.more = after.is_some();
            return Ok(found);
        }
    }
}

fn is_too_late(record: &Record) -> bool {
    let error = record.last_error.as_ref();
    record.state.name() == StateName::Failed
        && error.is_some_and(|error| error.class == BEYOND_HORIZON)
}

fn worker_may_be_alive(lease_until: Timestamp) -> String {
    format!(
        "its worker may be alive, and holds it until {}. Taken away, that worker can record nothing \
         any more, but a call that it is making goes on while the next worker makes its own; --yes \
         if the worker is known to be gone",
        moment(lease_until)
    )
}

/// Each takes two calls to the ledger and one to the queue; more would crowd out the workers.
const REPLAYS_AT_ONCE: usize = 16;
/// Candidates read in one go.
const AT_A_TIME: usize = 500;
/// Events that one bulk replay takes on unless told otherwise: what a person can answer for.
pub const MOST_REPLAYED: usize = 10_000;
