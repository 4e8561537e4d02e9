//! A record's attributes ⇄ DynamoDB's.

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::{
    item::{Attribute, Item, Value},
    record::CorruptRecord,
};

/// As DynamoDB's attributes.
pub(crate) fn to_attributes(item: &Item) -> HashMap<String, AttributeValue> {
    item.iter().map(|(attribute, value)| (attribute.name().to_owned(), to_value(value))).collect()
}

/// As DynamoDB's attribute value.
pub(crate) fn to_value(value: &Value) -> AttributeValue {
    match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Map(map) => {
            AttributeValue::M(map.iter().map(|(k, v)| (k.clone(), to_value(v))).collect())
        }
        Value::List(list) => AttributeValue::L(list.iter().map(to_value).collect()),
    }
}

/// From DynamoDB's attributes. Attributes that are not ours are left out: a user may add some.
pub(crate) fn from_attributes(
    attributes: HashMap<String, AttributeValue>,
) -> Result<Item, CorruptRecord> {
    attributes
        .into_iter()
        .filter_map(|(name, value)| Attribute::named(&name).map(|attribute| (attribute, value)))
        .map(|(attribute, value)| {
            let value = from_value(value)
                .ok_or(CorruptRecord::new(attribute, "is of a type that records do not have"))?;
            Ok((attribute, value))
        })
        .collect()
}

fn from_value(value: AttributeValue) -> Option<Value> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is non-exhaustive")]
    match value {
        AttributeValue::S(text) => Some(Value::Text(text)),
        AttributeValue::N(number) => number.parse().ok().map(Value::Number),
        AttributeValue::B(bytes) => Some(Value::Bytes(bytes.into_inner())),
        AttributeValue::M(map) => map
            .into_iter()
            .map(|(name, value)| Some((name, from_value(value)?)))
            .collect::<Option<_>>()
            .map(Value::Map),
        AttributeValue::L(list) => {
            list.into_iter().map(from_value).collect::<Option<_>>().map(Value::List)
        }
        _ => None,
    }
}
