//! What a sweep does with an open record that is due.

use std::time::Duration;

use crate::{
    limits,
    record::{Record, State},
    seeded::{self, Fault},
    time::Timestamp,
    transition::{Requeue, defer, park_exhausted, requeue},
    write::GuardedWrite,
};

/// What a sweep does with a record.
#[derive(Debug)]
pub enum Sweep {
    /// Bump, and if the bump holds, enqueue.
    Requeue(Requeue),
    /// Not for the queue yet: look again later.
    Defer(Requeue),
    /// Its attempts are used up and nobody is left to say so.
    Park(GuardedWrite),
    /// Not open, or not due: somebody was faster.
    Leave,
}

/// Decides what a sweep at `now` does with a record it has read.
#[must_use]
pub fn sweep(record: &Record, now: Timestamp, skew: Duration) -> Sweep {
    match record.state {
        _ if seeded::is_on(Fault::NoSweep) => Sweep::Leave,
        State::Received { due_at, .. } | State::Processing { due_at, .. } if due_at > now => {
            Sweep::Leave
        }
        // A live lease, or one that ended within the skew bound, is nobody else's.
        State::Processing { lease_until, .. } if lease_until >= now.minus(skew) => {
            let after = lease_until.plus(skew).plus(Duration::from_millis(1));
            defer(record, after).map_or(Sweep::Leave, Sweep::Defer)
        }
        State::Received { .. } | State::Processing { .. } if record.is_exhausted() => {
            Sweep::Park(park_exhausted(record, now))
        }
        // Its message is out of sight until then. Only one that is lost needs another.
        State::Received { not_before: Some(at), .. } if at > now => {
            defer(record, at.plus(limits::GRACE)).map_or(Sweep::Leave, Sweep::Defer)
        }
        State::Received { .. } | State::Processing { .. } => {
            requeue(record, now).map_or(Sweep::Leave, Sweep::Requeue)
        }
        State::Done(_) | State::Discarded(_) | State::Failed { .. } => Sweep::Leave,
    }
}
