//! Whether two payloads under one key say the same.

use serde_json::Value;

use crate::json;

/// Compares two payloads: as JSON without the `volatile` members where both are JSON, byte by byte
/// otherwise. Numbers compare as JSON readers see them, so this is for reporting, not for deciding
/// what is one event.
pub(crate) fn same(volatile: &[String], first: &[u8], second: &[u8]) -> bool {
    if first == second {
        return true;
    }
    match (stable(volatile, first), stable(volatile, second)) {
        (Some(first), Some(second)) => first == second,
        _ => false,
    }
}

fn stable(volatile: &[String], payload: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(payload).ok()?;
    for pointer in volatile {
        remove(&mut value, pointer);
    }
    Some(value)
}

fn remove(value: &mut Value, pointer: &str) {
    let Ok(mut names) = json::steps(pointer) else { return };
    let Some(last) = names.pop() else { return };
    let parent = names.iter().try_fold(value, |value, name| value.get_mut(name));
    if let Some(Value::Object(members)) = parent {
        members.remove(&last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_volatile_members_may_differ() {
        let same = |first: &str, second: &str| {
            same(&["/pending_webhooks".into(), "/a/b".into()], first.as_bytes(), second.as_bytes())
        };
        assert!(same(r#"{"id":1,"pending_webhooks":1}"#, r#"{"pending_webhooks": 2, "id": 1}"#));
        assert!(same(r#"{"id":1,"a":{"b":1}}"#, r#"{"id":1,"a":{"b":[]}}"#));
        assert!(!same(r#"{"id":1}"#, r#"{"id":2}"#));
        assert!(!same(r#"{"data":{"pending_webhooks":1}}"#, r#"{"data":{"pending_webhooks":2}}"#));
    }

    #[test]
    fn what_is_no_json_is_compared_byte_by_byte() {
        assert!(same(&[], b"a=1", b"a=1"));
        assert!(!same(&[], b"a=1", b"a= 1"));
        let deep = "[".repeat(200_000);
        assert!(!same(&[], deep.as_bytes(), b"{}"));
    }
}
