//! A ledger in memory: the second reader of a guard. `dynamo` renders it for DynamoDB, this
//! evaluates it; a differential test holds the two against each other.
//!
//! Semantics are DynamoDB's: a comparison with an absent attribute does not hold, values of
//! different types are not equal and not ordered.

use std::collections::BTreeMap;

use domain::{
    event::EventKey,
    guard::{Comparison, Guard},
    item::{Attribute, Item, Value},
    write::{Both, Change, Edit, GuardedWrite, Written},
};

/// Records by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulatedLedger {
    items: BTreeMap<EventKey, Item>,
}

impl SimulatedLedger {
    /// Carries out a guarded write. An update answers with the record as it is then.
    pub fn write(&mut self, write: &GuardedWrite) -> Written {
        let old = self.items.get(&write.key);
        if !holds(&write.guard, old) {
            return Written::Refused(old.cloned());
        }
        let new = match &write.change {
            Change::Put(item) => item.clone(),
            Change::Update(edits) => {
                let mut item = old
                    .cloned()
                    .unwrap_or_else(|| Item::from([(Attribute::Pk, Value::from(write.key.pk()))]));
                edits.iter().for_each(|edit| apply(edit, &mut item));
                item
            }
        };
        self.items.insert(write.key.clone(), new.clone());
        Written::Applied(match write.change {
            Change::Put(_) => None,
            Change::Update(_) => Some(new),
        })
    }

    /// Carries out two guarded writes of which both take hold, or neither.
    pub fn write_both(&mut self, first: &GuardedWrite, second: &GuardedWrite) -> Both {
        let old = |write: &GuardedWrite| self.items.get(&write.key);
        if !holds(&first.guard, old(first)) {
            return Both::First(Written::Refused(old(first).cloned()));
        }
        if !holds(&second.guard, old(second)) {
            return Both::SecondRefused(old(second).cloned());
        }
        self.write(first);
        self.write(second);
        Both::First(Written::Applied(None))
    }

    /// The record of a key.
    #[must_use]
    pub fn get(&self, key: &EventKey) -> Option<&Item> {
        self.items.get(key)
    }

    /// Puts a record as it is.
    pub fn put(&mut self, key: EventKey, item: Item) {
        self.items.insert(key, item);
    }

    /// Removes a record, as TTL does.
    pub fn remove(&mut self, key: &EventKey) -> Option<Item> {
        self.items.remove(key)
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = (&EventKey, &Item)> {
        self.items.iter()
    }
}

/// Whether a guard holds for a record, or for none.
#[must_use]
pub fn holds(guard: &Guard, item: Option<&Item>) -> bool {
    let value = |attribute| item.and_then(|item| item.get(attribute));
    match guard {
        Guard::Present(attribute) => value(attribute).is_some(),
        Guard::Missing(attribute) => value(attribute).is_none(),
        Guard::Compare(attribute, comparison, operand) => {
            value(attribute).is_some_and(|value| compares(value, *comparison, operand))
        }
        Guard::CompareAttributes(attribute, comparison, other) => {
            match (value(attribute), value(other)) {
                (Some(value), Some(other)) => compares(value, *comparison, other),
                _ => false,
            }
        }
        Guard::All(guards) => guards.iter().all(|guard| holds(guard, item)),
        Guard::Any(guards) => guards.iter().any(|guard| holds(guard, item)),
    }
}

fn compares(value: &Value, comparison: Comparison, operand: &Value) -> bool {
    let order = match (value, operand) {
        (Value::Text(one), Value::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
        (Value::Number(one), Value::Number(two)) => one.cmp(two),
        (Value::Bytes(one), Value::Bytes(two)) => one.cmp(two),
        (one, two) => return comparison == Comparison::Equal && one == two,
    };
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::AtLeast => order.is_ge(),
    }
}

fn apply(edit: &Edit, item: &mut Item) {
    match edit {
        Edit::Set(attribute, value) => {
            item.insert(*attribute, value.clone());
        }
        Edit::Remove(attribute) => {
            item.remove(attribute);
        }
        Edit::Increment(attribute, by) => {
            let entry = item.entry(*attribute).or_insert(Value::Number(0));
            if let Value::Number(number) = entry {
                *number += by;
            }
        }
        Edit::Append(attribute, value) => {
            let entry = item.entry(*attribute).or_insert_with(|| Value::List(Vec::new()));
            if let Value::List(list) = entry {
                list.push(value.clone());
            }
        }
        Edit::SetStep(step, value) => {
            if let Some(Value::Map(steps)) = item.get_mut(&Attribute::Steps) {
                steps.insert(step.clone(), value.clone());
            }
        }
        Edit::SetStepIfAbsent(step, value) => {
            if let Some(Value::Map(steps)) = item.get_mut(&Attribute::Steps) {
                steps.entry(step.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}
