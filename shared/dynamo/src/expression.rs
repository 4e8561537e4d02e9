//! A guard and its edits as DynamoDB expressions: one of the two readers of a guard.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    guard::{Comparison, Guard},
    item::{Attribute, Value},
    write::Edit,
};

use crate::item::to_value;

/// Names and values that expressions refer to by placeholder. Every name is one, so that none
/// collides with DynamoDB's reserved words.
#[derive(Default)]
pub(crate) struct Placeholders {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Placeholders {
    /// The condition expression of a guard.
    pub(crate) fn condition(&mut self, guard: &Guard) -> String {
        match guard {
            Guard::Present(attribute) => format!("attribute_exists({})", self.name(*attribute)),
            Guard::Missing(attribute) => {
                format!("attribute_not_exists({})", self.name(*attribute))
            }
            Guard::Compare(attribute, comparison, value) => {
                let (name, value) = (self.name(*attribute), self.value(value));
                format!("{name} {} {value}", operator(*comparison))
            }
            Guard::CompareAttributes(attribute, comparison, other) => {
                let (name, other) = (self.name(*attribute), self.name(*other));
                format!("{name} {} {other}", operator(*comparison))
            }
            Guard::All(guards) => self.joined(guards, " AND "),
            Guard::Any(guards) => self.joined(guards, " OR "),
        }
    }

    /// A group within a group. DynamoDB refuses parentheses around a single condition that has
    /// some already.
    fn grouped(&mut self, guard: &Guard) -> String {
        match guard {
            Guard::All(guards) | Guard::Any(guards) => match guards.as_slice() {
                [guard] => self.grouped(guard),
                _ => format!("({})", self.condition(guard)),
            },
            Guard::Present(_)
            | Guard::Missing(_)
            | Guard::Compare(..)
            | Guard::CompareAttributes(..) => self.condition(guard),
        }
    }

    /// The update expression of some edits.
    pub(crate) fn update(&mut self, edits: &[Edit]) -> String {
        let (mut set, mut remove, mut add) = (Vec::new(), Vec::new(), Vec::new());
        for edit in edits {
            match edit {
                Edit::Set(attribute, value) => {
                    set.push(format!("{} = {}", self.name(*attribute), self.value(value)));
                }
                Edit::Remove(attribute) => remove.push(self.name(*attribute)),
                Edit::Increment(attribute, by) => {
                    add.push(format!("{} {}", self.name(*attribute), self.value(&(*by).into())));
                }
                Edit::Append(attribute, value) => {
                    let name = self.name(*attribute);
                    let empty = self.value(&Value::List(Vec::new()));
                    let value = self.value(&Value::List(vec![value.clone()]));
                    set.push(format!(
                        "{name} = list_append(if_not_exists({name}, {empty}), {value})"
                    ));
                }
                Edit::SetStep(step, value) => {
                    set.push(format!("{} = {}", self.step(step), self.value(value)));
                }
                Edit::SetStepIfAbsent(step, value) => {
                    let (step, value) = (self.step(step), self.value(value));
                    set.push(format!("{step} = if_not_exists({step}, {value})"));
                }
            }
        }
        [("SET", set), ("REMOVE", remove), ("ADD", add)]
            .into_iter()
            .filter(|(_, clauses)| !clauses.is_empty())
            .map(|(verb, clauses)| format!("{verb} {}", clauses.join(", ")))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The names, as a request takes them.
    pub(crate) fn names(&mut self) -> Option<HashMap<String, String>> {
        Some(std::mem::take(&mut self.names)).filter(|names| !names.is_empty())
    }

    /// The values, as a request takes them.
    pub(crate) fn values(&mut self) -> Option<HashMap<String, AttributeValue>> {
        Some(std::mem::take(&mut self.values)).filter(|values| !values.is_empty())
    }

    fn joined(&mut self, guards: &[Guard], word: &str) -> String {
        // A group of one is that one, as it is where it stands.
        if let [guard] = guards {
            return self.condition(guard);
        }
        let parts: Vec<_> = guards.iter().map(|guard| self.grouped(guard)).collect();
        parts.join(word)
    }

    fn name(&mut self, attribute: Attribute) -> String {
        let placeholder = format!("#{}", attribute.name());
        self.names.insert(placeholder.clone(), attribute.name().to_owned());
        placeholder
    }

    fn step(&mut self, step: &str) -> String {
        let placeholder = format!("#s{}", self.names.len());
        self.names.insert(placeholder.clone(), step.to_owned());
        format!("{}.{placeholder}", self.name(Attribute::Steps))
    }

    fn value(&mut self, value: &Value) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), to_value(value));
        placeholder
    }
}

const fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::Less => "<",
        Comparison::AtMost => "<=",
        Comparison::AtLeast => ">=",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_reads_as_its_expression() {
        let guard = Guard::All(vec![
            Guard::equal(Attribute::State, "received"),
            Guard::Any(vec![
                Guard::Missing(Attribute::NotBefore),
                Guard::Compare(Attribute::NotBefore, Comparison::AtMost, 7_i64.into()),
            ]),
            Guard::CompareAttributes(Attribute::Attempt, Comparison::Less, Attribute::AttemptLimit),
        ]);
        let mut placeholders = Placeholders::default();
        assert_eq!(
            placeholders.condition(&guard),
            "#state = :v0 AND (attribute_not_exists(#not_before) OR #not_before <= :v1) \
             AND #attempt < #attempt_limit"
        );
        let values = placeholders.values().unwrap_or_default();
        assert_eq!(values[":v1"], AttributeValue::N("7".into()));
    }

    #[test]
    fn no_parentheses_are_doubled_and_none_is_missing() {
        let either = Guard::Any(vec![
            Guard::Missing(Attribute::DueAt),
            Guard::Missing(Attribute::NotBefore),
        ]);
        let alone = Guard::All(vec![either.clone()]);
        let either_text = "attribute_not_exists(#due_at) OR attribute_not_exists(#not_before)";
        assert_eq!(Placeholders::default().condition(&alone), either_text);
        let within = Guard::All(vec![Guard::Present(Attribute::Pk), Guard::All(vec![either])]);
        let expected = format!("attribute_exists(#pk) AND ({either_text})");
        assert_eq!(Placeholders::default().condition(&within), expected);
    }

    #[test]
    fn edits_read_as_one_update_expression() {
        let edits = [
            Edit::Set(Attribute::State, "done".into()),
            Edit::Remove(Attribute::DueAt),
            Edit::Increment(Attribute::Attempt, 1),
            Edit::SetStepIfAbsent("charge".into(), 1_i64.into()),
        ];
        let mut placeholders = Placeholders::default();
        assert_eq!(
            placeholders.update(&edits),
            "SET #state = :v0, #steps.#s3 = if_not_exists(#steps.#s3, :v2) \
             REMOVE #due_at ADD #attempt :v1"
        );
    }
}
