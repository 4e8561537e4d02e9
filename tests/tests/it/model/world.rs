//! The world around the transitions, at one moment: who is where in what, and what really happened.

use std::sync::Arc;

use domain::{
    effects::{StepEntry, StepState},
    limits,
    record::{Record, State, StateName},
    time::Timestamp,
    transition::{BEYOND_HORIZON, Lease},
    write::{GuardedWrite, Written},
};
use tests::ledger::{SimulatedLedger, holds};

use super::{kept::Kept, key, step_name};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: i64,
    pub(super) ticks: u8,
    pub(super) faults: u8,
    /// What the operator may still do.
    pub(super) operations: u8,
    pub(super) record: Option<Kept>,
    /// Messages not deleted. Any of them may be handed out at any time, to anybody.
    pub(super) messages: u8,
    /// Interchangeable: their clocks are one, and their order is of no account.
    pub(super) deliveries: Vec<Delivery>,
    pub(super) workers: Vec<Worker>,
    pub(super) sweeper: Sweeper,
    pub(super) truth: Truth,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Delivery {
    Waiting {
        tries: u8,
    },
    /// Sent its claim at that time, and has not heard.
    Claiming {
        tries: u8,
        claim_id: u8,
        at: i64,
    },
    /// Its event is on record, and to be enqueued.
    ToEnqueue {
        tries: u8,
    },
    /// A duplicate of an event that was overdue when it looked.
    ToBump {
        tries: u8,
        seen: Kept,
        at: i64,
    },
    Answered,
    /// The provider has given up.
    Unheard,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Idle,
    /// Asked for a lease at that time, and has not heard.
    Leasing {
        attempt: u32,
        at: i64,
    },
    Working(Working),
    /// Found that the attempts are used up.
    Exhausted {
        seen: Kept,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Working {
    pub(super) lease: Arc<Lease>,
    /// Of its attempts, as the lease said: none is left after this one.
    pub(super) last: bool,
    /// The step's entry, as the lease gave it or this worker wrote it.
    pub(super) journal: Option<Arc<StepEntry>>,
    pub(super) stage: Stage,
    /// Whether the step's result is still to be journalled.
    pub(super) unwritten: bool,
    /// What it sent at that time, and has not heard of.
    pub(super) sent: Option<(Work, i64)>,
    /// Whether a record had been deleted when it was leased.
    pub(super) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Leased,
    Journalled,
    Called,
    /// A predecessor may have called, and nobody can say.
    Undecidable,
}

/// What a worker does under its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Step,
    Complete,
    Release,
    Park,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sweeper {
    Absent,
    Idle,
    /// Read the record at that time.
    Looked {
        seen: Kept,
        at: i64,
    },
    /// Bumped it, and is to enqueue it.
    Bumped,
}

/// What really happened, for nobody in the world to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// Since the record was last deleted.
    pub(super) claims: u8,
    /// Whether a record was deleted.
    pub(super) expired: bool,
    /// Since an operator last wanted them again.
    pub(super) local_effects: u8,
    pub(super) calls: u8,
    /// The fence under which the step was recorded as done, and whether a record had been deleted.
    pub(super) done_under: Option<(bool, u32)>,
    /// The first promise that was broken.
    pub(super) broken: Option<Broken>,
}

/// A promise that shows its breaking only at the moment it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    AnsweredWithoutRecord,
    KeyChanged,
    CalledAfterDone,
    StaleWriteHeld,
    FenceNotRaised,
    LeaseCutShort,
    Reopened,
    DuplicateRefused,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Receiver,
    Worker(usize),
    Sweeper,
    Operator,
}

impl World {
    /// A party's clock. No two differ by more than the skew bound, and some differ by all of it.
    pub(super) fn clock(&self, of: Party) -> Timestamp {
        let now = Timestamp::from_millis(self.now);
        match of {
            Party::Receiver | Party::Worker(0) | Party::Operator => now,
            Party::Worker(_) | Party::Sweeper => now.plus(limits::CLOCK_SKEW),
        }
    }

    /// The clock by which the table deletes.
    pub(super) fn table_clock(&self) -> i64 {
        Timestamp::from_millis(self.now).plus(limits::CLOCK_SKEW).millis()
    }

    pub(super) fn state(&self) -> Option<StateName> {
        self.record.as_ref().map(|record| record.state.name())
    }

    pub(super) fn is_due(&self) -> bool {
        let now = self.clock(Party::Sweeper);
        self.record.as_ref().is_some_and(|record| {
            matches!(record.state,
                State::Received { due_at, .. } | State::Processing { due_at, .. } if due_at <= now)
        })
    }

    /// What an operator takes on: not what came too late, which may have run before.
    pub(super) fn for_operator(&self) -> Option<&Kept> {
        let too_late = |record: &Record| {
            record.last_error.as_ref().is_some_and(|error| error.class == BEYOND_HORIZON)
        };
        self.record.as_ref().filter(|record| match record.state.name() {
            StateName::Failed => !too_late(record),
            StateName::Done | StateName::Processing => true,
            StateName::Received | StateName::Discarded => false,
        })
    }

    pub(super) fn working(&self, w: usize) -> Option<&Working> {
        match &self.workers[w] {
            Worker::Working(working) => Some(working),
            Worker::Idle | Worker::Leasing { .. } | Worker::Exhausted { .. } => None,
        }
    }

    pub(super) fn working_mut(&mut self, w: usize) -> Option<&mut Working> {
        match &mut self.workers[w] {
            Worker::Working(working) => Some(working),
            Worker::Idle | Worker::Leasing { .. } | Worker::Exhausted { .. } => None,
        }
    }

    pub(super) fn enqueue(&mut self) {
        self.messages = (self.messages + 1).min(MOST_MESSAGES);
    }

    pub(super) fn delete_message(&mut self) {
        self.messages = self.messages.saturating_sub(1);
    }

    pub(super) fn answer(&mut self, d: usize) {
        if self.record.is_none() && !self.truth.expired {
            self.truth.breaks(Broken::AnsweredWithoutRecord);
        }
        self.deliveries[d] = Delivery::Answered;
    }

    /// One call to the ledger.
    pub(super) fn write(&mut self, by: Party, write: &GuardedWrite) -> Written {
        let before = self.record.as_ref().map(Kept::item);
        if !holds(&write.guard, before) {
            return Written::Refused(before.cloned());
        }
        let mut ledger = SimulatedLedger::default();
        if let Some(item) = before {
            ledger.put(key(), item.clone());
        }
        let written = ledger.write(write);
        let after = Kept::new(ledger.remove(&key()).expect("written just now"));
        self.witness(by, &after);
        self.record = Some(after);
        written
    }

    /// Notes what a write that took hold means, whatever its writer makes of it.
    fn witness(&mut self, by: Party, after: &Kept) {
        let Some(before) = self.record.clone() else {
            self.truth.claims += 1;
            return;
        };
        if let Party::Worker(w) = by
            && self.working(w).is_some_and(|working| !working.holds(&before))
        {
            self.truth.breaks(Broken::StaleWriteHeld);
        }
        let (was, is) = (before.state.name(), after.state.name());
        if by == Party::Receiver && after.claim_id != before.claim_id {
            self.truth.claims += 1;
        }
        if was.is_closed() && !is.is_closed() {
            match by {
                Party::Operator => self.truth.local_effects = 0,
                Party::Receiver | Party::Worker(_) | Party::Sweeper => {
                    self.truth.breaks(Broken::Reopened);
                }
            }
        }
        if is == StateName::Done {
            self.truth.local_effects += 1;
        }
        let another = after.lease_owner.is_some() && after.lease_owner != before.lease_owner;
        if another && after.attempt <= before.attempt {
            self.truth.breaks(Broken::FenceNotRaised);
        }
        if self.is_cut_short(by, &before, after) {
            self.truth.breaks(Broken::LeaseCutShort);
        }
        let entry = after.steps.get(&step_name());
        if entry.is_some_and(|entry| matches!(entry.state, StepState::Done { .. })) {
            let now = (self.truth.expired, after.attempt);
            self.truth.done_under.get_or_insert(now);
        }
    }

    /// Whether somebody ends a lease that by its holder's own clock has not ended. Only an operator
    /// may.
    fn is_cut_short(&self, by: Party, before: &Kept, after: &Kept) -> bool {
        if by == Party::Operator {
            return false;
        }
        let State::Processing { lease_until, .. } = before.state else { return false };
        let still_held = matches!(after.state, State::Processing { .. })
            && after.lease_owner == before.lease_owner;
        let holder = (0..self.workers.len()).map(Party::Worker).find(|holder| {
            let Party::Worker(w) = holder else { return false };
            self.working(*w).is_some_and(|w| Some(w.lease.owner()) == before.lease_owner.as_ref())
        });
        !still_held && holder.is_some_and(|holder| holder != by && self.clock(holder) < lease_until)
    }
}

impl Working {
    fn holds(&self, record: &Record) -> bool {
        record.state.name() == StateName::Processing
            && record.attempt == self.lease.fence()
            && record.lease_owner.as_ref() == Some(self.lease.owner())
    }
}

impl Truth {
    pub(super) fn breaks(&mut self, promise: Broken) {
        self.broken.get_or_insert(promise);
    }
}

impl Delivery {
    pub(super) fn tries(&self) -> u8 {
        match self {
            Self::Waiting { tries }
            | Self::Claiming { tries, .. }
            | Self::ToEnqueue { tries }
            | Self::ToBump { tries, .. } => *tries,
            Self::Answered | Self::Unheard => 0,
        }
    }

    /// The provider did not hear 2xx.
    pub(super) fn again(tries: u8) -> Self {
        match tries {
            0 => Self::Unheard,
            tries => Self::Waiting { tries: tries - 1 },
        }
    }
}

const MOST_MESSAGES: u8 = 2;
