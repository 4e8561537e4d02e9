//! External steps: one named call each, under a key that never changes, with a journal on the
//! record so that a resumed attempt knows where its predecessor stopped.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    event::EventKey,
    item::Value,
    limits,
    record::LeaseOwner,
    seeded::{self, Fault},
    time::Timestamp,
};

/// The journal of one event: step name to entry.
pub type Journal = BTreeMap<StepName, StepEntry>;

/// The name of a step, unique within its event: `[a-z0-9_-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepName(String);

impl StepName {
    /// # Errors
    /// If the name is empty, too long, or holds other characters.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidStepName> {
        let name = name.into();
        let valid = (1..=limits::MAX_STEP_NAME_BYTES).contains(&name.len())
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        if valid { Ok(Self(name)) } else { Err(InvalidStepName) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A step name that is not one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a step name is 1 to 64 of a-z, 0-9, '-' and '_'")]
pub struct InvalidStepName;

/// What the journal says of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepEntry {
    /// How far it got.
    pub state: StepState,
    /// The key its call carried, or will carry.
    pub key: String,
    /// The lease under which this entry was written.
    pub owner: LeaseOwner,
    /// When.
    pub at: Timestamp,
}

/// How far a step got.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StepState {
    /// The call may have been made.
    Started,
    /// The call was made and answered; never again.
    Done {
        /// What it returned, as JSON.
        result: String,
    },
}

impl StepEntry {
    /// As an attribute's value.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut map = BTreeMap::from([
            ("key".to_owned(), self.key.as_str().into()),
            ("owner".to_owned(), self.owner.0.as_str().into()),
            ("at".to_owned(), self.at.millis().into()),
        ]);
        match &self.state {
            StepState::Started => {
                map.insert("state".to_owned(), "started".into());
            }
            StepState::Done { result } => {
                map.insert("state".to_owned(), "done".into());
                map.insert("result".to_owned(), result.as_str().into());
            }
        }
        Value::Map(map)
    }
}

/// What to do about a step that a predecessor started and did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPolicy {
    /// Call again under the same key: the other side is idempotent. Needs no `started` entry.
    Repeat,
    /// As `Repeat`, for as long as the other side remembers a key; after that a call under it would
    /// be a second one, and the other side is asked, or the event parked. The `started` entry says
    /// since when.
    RepeatFor(Duration),
    /// Ask the other side what happened, then record that or call.
    Reconcile,
    /// Park: a person decides. For calls where a second one is worse than none.
    Never,
}

impl StepPolicy {
    /// Whether the journal must say `started` before the call is made.
    #[must_use]
    pub const fn journals_start(self) -> bool {
        match self {
            Self::Repeat => false,
            Self::RepeatFor(_) | Self::Reconcile | Self::Never => true,
        }
    }
}

/// How a step goes on, from what the journal says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDecision {
    /// Done before: the recorded result, no call.
    Recorded {
        /// As JSON.
        result: String,
    },
    /// Make the call.
    Call {
        /// After writing `started`.
        journal_first: bool,
    },
    /// A predecessor may have made the call: ask the other side.
    Reconcile,
    /// A predecessor may have made the call, and nobody can say: park.
    Park,
}

/// Decides how the holder of the lease `owner` goes on with a step, at `now`.
#[must_use]
pub fn decide_step(
    entry: Option<&StepEntry>,
    owner: &LeaseOwner,
    policy: StepPolicy,
    now: Timestamp,
) -> StepDecision {
    match entry {
        None => StepDecision::Call { journal_first: policy.journals_start() },
        Some(StepEntry { state: StepState::Done { result }, .. }) => {
            StepDecision::Recorded { result: result.clone() }
        }
        // The entry rode on this very lease: no predecessor got here.
        Some(entry) if entry.owner == *owner => StepDecision::Call { journal_first: false },
        Some(entry) => decide_begun(Some(entry), policy, now),
    }
}

/// Decides how to go on with a step whose call was begun before and is not known to have ended: by
/// a predecessor, or by this very attempt. `entry` says since when, if its start was journalled.
#[must_use]
pub fn decide_begun(entry: Option<&StepEntry>, policy: StepPolicy, now: Timestamp) -> StepDecision {
    // The start may have been noted by a machine whose clock is ahead.
    let age = entry.map(|entry| now.since(entry.at).saturating_add(limits::CLOCK_SKEW));
    match policy {
        _ if seeded::is_on(Fault::PolicyIgnored) => StepDecision::Call { journal_first: false },
        StepPolicy::RepeatFor(remembers) if age.is_none_or(|age| age >= remembers) => {
            StepDecision::Reconcile
        }
        StepPolicy::Repeat | StepPolicy::RepeatFor(_) => {
            StepDecision::Call { journal_first: false }
        }
        StepPolicy::Reconcile => StepDecision::Reconcile,
        StepPolicy::Never => StepDecision::Park,
    }
}

/// The idempotency key of a step: the same on every attempt, takeover and replay of its event.
///
/// SHA-256 over the length-framed source, event id and step name, as 64 hex characters: it fits
/// every receiver's bound (Step Functions takes 80, SQS 128, Stripe 255).
#[must_use]
pub fn step_key(event: &EventKey, step: &StepName) -> String {
    idempotency_key([event.source().as_str(), event.id().as_str(), step.as_str()])
}

/// The idempotency key of an event as a whole, for a destination that takes it whole.
#[must_use]
pub fn event_key(event: &EventKey) -> String {
    idempotency_key([event.source().as_str(), event.id().as_str()])
}

fn idempotency_key<const N: usize>(parts: [&str; N]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize())
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventId, Source};

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn entry(state: StepState, owner: &LeaseOwner) -> StepEntry {
        StepEntry { state, key: "k".into(), owner: owner.clone(), at: NOW }
    }

    fn mine() -> LeaseOwner {
        LeaseOwner("mine".into())
    }

    fn predecessor() -> LeaseOwner {
        LeaseOwner("predecessor".into())
    }

    #[test]
    fn a_step_recorded_done_is_never_called_again() {
        let done = entry(StepState::Done { result: "1".into() }, &predecessor());
        for policy in [StepPolicy::Repeat, StepPolicy::Reconcile, StepPolicy::Never] {
            for owner in [mine(), predecessor()] {
                let decision = decide_step(Some(&done), &owner, policy, NOW);
                assert_eq!(decision, StepDecision::Recorded { result: "1".into() });
            }
        }
    }

    #[test]
    fn a_predecessors_started_step_follows_its_policy() {
        let started = entry(StepState::Started, &predecessor());
        let decide = |policy| decide_step(Some(&started), &mine(), policy, NOW);
        assert_eq!(decide(StepPolicy::Repeat), StepDecision::Call { journal_first: false });
        assert_eq!(decide(StepPolicy::Reconcile), StepDecision::Reconcile);
        assert_eq!(decide(StepPolicy::Never), StepDecision::Park);
    }

    #[test]
    fn a_key_is_repeated_for_as_long_as_the_other_side_surely_remembers_it() {
        let day = Duration::from_secs(86_400);
        let started = entry(StepState::Started, &predecessor());
        let decide =
            |entry, age| decide_step(entry, &mine(), StepPolicy::RepeatFor(day), NOW.plus(age));
        let sure = day - limits::CLOCK_SKEW - Duration::from_millis(1);
        assert_eq!(decide(Some(&started), sure), StepDecision::Call { journal_first: false });
        let unsure = sure + Duration::from_millis(1);
        assert_eq!(decide(Some(&started), unsure), StepDecision::Reconcile);
        let fresh = StepDecision::Call { journal_first: true };
        assert_eq!(decide(None, day * 30), fresh, "nobody has called");
        let begun = |age| decide_begun(Some(&started), StepPolicy::RepeatFor(day), NOW.plus(age));
        assert_eq!(begun(sure), StepDecision::Call { journal_first: false });
        assert_eq!(begun(unsure), StepDecision::Reconcile);
    }

    #[test]
    fn a_start_that_rode_on_the_own_lease_is_no_predecessors() {
        let started = entry(StepState::Started, &mine());
        let decision = decide_step(Some(&started), &mine(), StepPolicy::Never, NOW);
        assert_eq!(decision, StepDecision::Call { journal_first: false });
    }

    #[test]
    fn only_a_policy_that_needs_it_pays_for_a_started_entry() {
        let fresh = |policy| decide_step(None, &mine(), policy, NOW);
        assert_eq!(fresh(StepPolicy::Repeat), StepDecision::Call { journal_first: false });
        assert_eq!(fresh(StepPolicy::Never), StepDecision::Call { journal_first: true });
    }

    #[test]
    fn keys_differ_by_source_event_and_step_and_by_nothing_else() {
        let key = |source: &str, id: &str, step: &str| {
            let event = EventKey::new(
                Source::new(source).expect("valid"),
                EventId::new(id).expect("valid"),
            );
            step_key(&event, &StepName::new(step).expect("valid"))
        };
        assert_eq!(key("a", "1", "charge"), key("a", "1", "charge"));
        let others = [key("b", "1", "charge"), key("a", "2", "charge"), key("a", "1", "mail")];
        assert!(!others.contains(&key("a", "1", "charge")));
        assert_ne!(key("a", "1b", "c"), key("a", "1", "bc"));
        assert_eq!(key("a", "1", "charge").len(), 64);
    }

    #[test]
    fn an_events_own_key_is_no_steps_and_no_other_events() {
        let event = |source: &str, id: &str| {
            EventKey::new(Source::new(source).expect("valid"), EventId::new(id).expect("valid"))
        };
        let one = event("a", "1b");
        let keys = [
            event_key(&one),
            event_key(&event("a1", "b")),
            event_key(&event("a", "1")),
            step_key(&event("a", "1"), &StepName::new("b").expect("valid")),
        ];
        assert_eq!(event_key(&one), keys[0]);
        assert!(!keys[1..].contains(&keys[0]), "{keys:?}");
        assert!(keys.iter().all(|key| key.len() == 64), "{keys:?}");
    }
}
