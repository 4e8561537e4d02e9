//! A table in memory, as small as its rules allow: one event, guards evaluated as DynamoDB does.

use domain::{
    guard::{Comparison, Guard},
    item::{Attribute, Item, Value},
    record::Record,
    write::{Change, Edit, GuardedWrite, Written},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) item: Option<Item>,
}

impl Table {
    pub(crate) fn write(&mut self, write: &GuardedWrite) -> Written {
        if !holds(&write.guard, self.item.as_ref()) {
            return Written::Refused(self.item.clone());
        }
        match &write.change {
            Change::Put(item) => {
                self.item = Some(item.clone());
                Written::Applied(None)
            }
            Change::Update(edits) => {
                let item = self.item.get_or_insert_default();
                edits.iter().for_each(|edit| apply(edit, item));
                Written::Applied(Some(item.clone()))
            }
        }
    }

    pub(crate) fn item(&self) -> &Item {
        self.item.as_ref().expect("a record")
    }

    pub(crate) fn record(&self) -> Record {
        crate::record(self.item())
    }

    pub(crate) fn set(&mut self, attribute: Attribute, value: impl Into<Value>) {
        self.item.as_mut().expect("a record").insert(attribute, value.into());
    }
}

fn holds(guard: &Guard, item: Option<&Item>) -> bool {
    let value = |attribute| item.and_then(|item| item.get(attribute));
    match guard {
        Guard::Present(attribute) => value(attribute).is_some(),
        Guard::Missing(attribute) => value(attribute).is_none(),
        Guard::Compare(attribute, how, operand) => {
            value(attribute).is_some_and(|value| compares(value, *how, operand))
        }
        Guard::CompareAttributes(one, how, two) => {
            value(one).zip(value(two)).is_some_and(|(one, two)| compares(one, *how, two))
        }
        Guard::All(guards) => guards.iter().all(|guard| holds(guard, item)),
        Guard::Any(guards) => guards.iter().any(|guard| holds(guard, item)),
    }
}

fn compares(one: &Value, how: Comparison, two: &Value) -> bool {
    let order = match (one, two) {
        (Value::Number(one), Value::Number(two)) => one.cmp(two),
        (Value::Text(one), Value::Text(two)) => one.cmp(two),
        _ => return how == Comparison::Equal && one == two,
    };
    match how {
        Comparison::Equal => order.is_eq(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::AtLeast => order.is_ge(),
    }
}

fn apply(edit: &Edit, item: &mut Item) {
    match edit {
        Edit::Set(attribute, value) => drop(item.insert(*attribute, value.clone())),
        Edit::Remove(attribute) => drop(item.remove(attribute)),
        Edit::Increment(attribute, by) => {
            let Value::Number(number) = item.entry(*attribute).or_insert(Value::Number(0)) else {
                panic!("{attribute:?} is no number");
            };
            *number += by;
        }
        Edit::Append(attribute, value) => {
            let Value::List(list) = item.entry(*attribute).or_insert(Value::List(Vec::new()))
            else {
                panic!("{attribute:?} is no list");
            };
            list.push(value.clone());
        }
        Edit::SetStep(step, value) => {
            steps(item).insert(step.clone(), value.clone());
        }
        Edit::SetStepIfAbsent(step, value) => {
            steps(item).entry(step.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn steps(item: &mut Item) -> &mut std::collections::BTreeMap<String, Value> {
    match item.get_mut(&Attribute::Steps) {
        Some(Value::Map(steps)) => steps,
        other => panic!("no journal but {other:?}"),
    }
}
