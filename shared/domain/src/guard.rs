//! Conditions on a record, as data with two readers: `dynamo` renders a guard as a DynamoDB
//! condition expression, the simulated ledger evaluates it in memory.
//!
//! Semantics are DynamoDB's: a comparison with an absent attribute, or with one of another type,
//! does not hold.

use crate::item::{Attribute, Value};

/// A condition on one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The attribute is there.
    Present(Attribute),
    /// The attribute is not there; of the partition key: no such record.
    Missing(Attribute),
    /// The attribute compares so with a value.
    Compare(Attribute, Comparison, Value),
    /// The attribute compares so with another attribute of the record.
    CompareAttributes(Attribute, Comparison, Attribute),
    /// Each of these holds.
    All(Vec<Guard>),
    /// One of these holds.
    Any(Vec<Guard>),
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

impl Guard {
    /// `attribute` is `value`.
    pub fn equal(attribute: Attribute, value: impl Into<Value>) -> Self {
        Self::Compare(attribute, Comparison::Equal, value.into())
    }
}
