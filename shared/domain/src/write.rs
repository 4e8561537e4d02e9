//! A change of one record under a guard: the only way anything is ever written.

use std::fmt;

use crate::{
    event::EventKey,
    guard::Guard,
    item::{Attribute, Item, Value},
};

/// One conditional write, and what becomes of the record if its guard holds.
#[derive(Clone, PartialEq, Eq)]
pub struct GuardedWrite {
    /// Which record.
    pub key: EventKey,
    /// Under which condition.
    pub guard: Guard,
    /// What changes.
    pub change: Change,
}

impl fmt::Debug for GuardedWrite {
    /// Without values: a payload is among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes: Vec<&str> = match &self.change {
            Change::Put(item) => item.keys().map(|attribute| attribute.name()).collect(),
            Change::Update(edits) => edits.iter().map(|edit| edit.attribute().name()).collect(),
        };
        f.debug_struct("GuardedWrite")
            .field("key", &self.key)
            .field("attributes", &attributes)
            .finish_non_exhaustive()
    }
}

/// What a write does.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// The whole record (`PutItem`).
    Put(Item),
    /// Parts of it (`UpdateItem`).
    Update(Vec<Edit>),
}

/// One edit of a record.
#[derive(Clone, PartialEq, Eq)]
pub enum Edit {
    /// Sets an attribute.
    Set(Attribute, Value),
    /// Removes an attribute.
    Remove(Attribute),
    /// Adds to a number; an absent one counts as zero.
    Increment(Attribute, i64),
    /// Appends to a list; an absent one counts as empty.
    Append(Attribute, Value),
    /// Sets the journal entry of a step.
    SetStep(String, Value),
    /// Sets the journal entry of a step that has none yet.
    SetStepIfAbsent(String, Value),
}

impl Edit {
    /// Which attribute it touches.
    #[must_use]
    pub const fn attribute(&self) -> Attribute {
        match self {
            Self::Set(attribute, _)
            | Self::Remove(attribute)
            | Self::Increment(attribute, _)
            | Self::Append(attribute, _) => *attribute,
            Self::SetStep(..) | Self::SetStepIfAbsent(..) => Attribute::Steps,
        }
    }
}

/// What became of a guarded write. Losing a race is an outcome; an error is only "could not know".
#[derive(Clone, PartialEq, Eq)]
pub enum Written {
    /// The guard held. With the record as it is now, where an update returns it.
    Applied(Option<Item>),
    /// The guard did not hold. With the record as it was then; `None`: there is none.
    Refused(Option<Item>),
}

/// What became of two guarded writes of which both take hold, or neither.
#[derive(Debug, PartialEq, Eq)]
pub enum Both {
    /// The first's guard did not hold, or both took hold.
    First(Written),
    /// Only the second's guard did not hold. With the record that it met.
    SecondRefused(Option<Item>),
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied(_) => "Applied",
            Self::Refused(Some(_)) => "Refused",
            Self::Refused(None) => "Refused (no record)",
        })
    }
}
