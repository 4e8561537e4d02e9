//! What must hold in every world, and what must come about in some.

use domain::{
    effects::StepPolicy,
    record::{State, StateName},
};
use stateright::Property;

use super::{
    Bounds, Protocol,
    turns::policy,
    world::{Broken, World},
};

pub(super) fn properties(bounds: &Bounds) -> Vec<Property<Protocol>> {
    let mut properties = promises();
    properties.extend(states(bounds));
    properties
}

fn promises() -> Vec<Property<Protocol>> {
    vec![
        Property::always("I2 one claim wins", |_, w: &World| w.truth.claims <= 1),
        Property::always("I3 a 2xx implies a record", |_, w: &World| {
            w.truth.broken != Some(Broken::AnsweredWithoutRecord)
        }),
        Property::always(SETTLES, |model: &Protocol, w: &World| model.settles(w)),
        Property::always("I4 no attempt is made beyond the limit", |_, w: &World| {
            w.record.as_ref().is_none_or(|record| record.attempt <= record.attempt_limit)
        }),
        Property::always(
            "I5 local effects hold if and only if it is done, once",
            |_, w: &World| {
                let done = w.state() == Some(StateName::Done);
                match w.truth.local_effects {
                    0 => !done,
                    1 => done || w.truth.expired,
                    _ => false,
                }
            },
        ),
        Property::always("I6 a step keeps its key", |_, w: &World| {
            w.truth.broken != Some(Broken::KeyChanged)
        }),
        Property::always("I6 a step recorded as done is not called", |_, w: &World| {
            w.truth.broken != Some(Broken::CalledAfterDone)
        }),
        Property::always(
            "I6 a step that must not be repeated is called once",
            |model: &Protocol, w: &World| {
                model.bounds.step != StepPolicy::Never || w.truth.calls <= 1
            },
        ),
        Property::always("I7 a worker that outlived its lease changes nothing", |_, w: &World| {
            w.truth.broken != Some(Broken::StaleWriteHeld)
        }),
        Property::always("I7 each lease raises the fence", |_, w: &World| {
            w.truth.broken != Some(Broken::FenceNotRaised)
        }),
        Property::always(
            "I7 a lease is its holder's until it ends by any clock",
            |_, w: &World| w.truth.broken != Some(Broken::LeaseCutShort),
        ),
        Property::always("I8 only an operator reopens", |_, w: &World| {
            w.truth.broken != Some(Broken::Reopened)
        }),
        Property::always(
            "I9 only what is closed expires, and after its retention",
            |_, w: &World| {
                let Some(record) = &w.record else { return true };
                match (&record.state, record.expires_at()) {
                    (State::Done(closure) | State::Discarded(closure), Some(at)) => {
                        let from = closure.completed_at.max(record.received_at);
                        at >= from.plus(policy().retention.duration()).millis()
                    }
                    (_, expires_at) => expires_at.is_none(),
                }
            },
        ),
        Property::always("I10 no duplicate is refused", |_, w: &World| {
            w.truth.broken != Some(Broken::DuplicateRefused)
        }),
    ]
}

fn states(bounds: &Bounds) -> Vec<Property<Protocol>> {
    let mut states = vec![
        Property::sometimes("received", |_, w: &World| w.state() == Some(StateName::Received)),
        Property::sometimes("processing", |_, w: &World| w.state() == Some(StateName::Processing)),
        Property::sometimes("done", |_, w: &World| w.state() == Some(StateName::Done)),
        Property::sometimes("failed", |_, w: &World| w.state() == Some(StateName::Failed)),
        Property::sometimes("expired", |_, w: &World| w.record.is_none() && w.truth.expired),
    ];
    if bounds.operations > 0 {
        states.push(Property::sometimes("discarded", |_, w: &World| {
            w.state() == Some(StateName::Discarded)
        }));
    }
    states
}

/// By this one the liveness of the protocol is known.
pub(super) const SETTLES: &str = "I4 it ends done or parked once faults stop";
