//! The record as the ledger keeps it: read once, shared by all worlds that hold it, and told apart
//! by a fingerprint instead of attribute by attribute.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use domain::{
    item::{Attribute, Item, Value},
    record::Record,
};

use super::fingerprint;

/// A record in the ledger.
#[derive(Clone)]
pub(super) struct Kept(Arc<Contents>);

struct Contents {
    item: Item,
    record: Record,
    fingerprint: u64,
}

impl Kept {
    pub(super) fn new(mut item: Item) -> Self {
        forget_what_nobody_decides_by(&mut item);
        let fingerprint = fingerprint(&item);
        let record = Record::from_item(item.clone()).expect("transitions write readable records");
        Self(Arc::new(Contents { item, record, fingerprint }))
    }

    pub(super) fn item(&self) -> &Item {
        &self.0.item
    }

    /// When the table may delete it, ms.
    pub(super) fn expires_at(&self) -> Option<i64> {
        match self.0.item.get(&Attribute::ExpiresAt)? {
            Value::Number(seconds) => Some(seconds * 1000),
            Value::Text(_) | Value::Bytes(_) | Value::Map(_) | Value::List(_) => None,
        }
    }
}

impl Deref for Kept {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0.record
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.record.fmt(f)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.0.fingerprint == other.0.fingerprint
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.fingerprint.cmp(&other.0.fingerprint)
    }
}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.fingerprint);
    }
}

/// Two worlds that differ in nothing but a note for people are one.
fn forget_what_nobody_decides_by(item: &mut Item) {
    if let Some(Value::Map(note)) = item.get_mut(&Attribute::LastError) {
        note.insert("text".to_owned(), "".into());
        note.insert("at".to_owned(), 0_i64.into());
    }
    if let Some(Value::List(replays)) = item.get_mut(&Attribute::Replays) {
        replays.fill(0_i64.into());
    }
}
