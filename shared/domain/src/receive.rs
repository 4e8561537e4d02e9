//! What a receiver does once it knows what became of a claim.

use crate::{
    record::StateName,
    time::Timestamp,
    transition::{Claimed, Requeue, requeue},
};

/// What follows a settled claim.
#[derive(Debug)]
pub enum Reaction {
    /// First: enqueue. If that fails the record is durable all the same, and a sweep enqueues it.
    Enqueue,
    /// First, and parked as too old to run unasked.
    Parked,
    /// A duplicate of an event that waits past its grace: its message may be lost. Bump, and if the
    /// bump holds, enqueue.
    Requeue(Requeue),
    /// A duplicate: nothing.
    Nothing(StateName),
    /// A recorded delivery under another id: nothing.
    Replayed,
    /// Nobody can know: the provider shall retry.
    Unavailable,
}

/// Decides what follows a claim.
#[must_use]
pub fn react(claimed: &Claimed, now: Timestamp) -> Reaction {
    match claimed {
        Claimed::New => Reaction::Enqueue,
        Claimed::BeyondHorizon => Reaction::Parked,
        Claimed::Replayed => Reaction::Replayed,
        Claimed::Vanished => Reaction::Unavailable,
        Claimed::Duplicate(record) => {
            let overdue = if record.is_overdue(now) { requeue(record, now) } else { None };
            overdue.map_or(Reaction::Nothing(record.state.name()), Reaction::Requeue)
        }
    }
}
