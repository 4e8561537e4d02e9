//! The body of a message, versioned: a worker of today meets messages of yesterday.

use domain::event::EventKey;
use serde::{Deserialize, Serialize};

/// Which event to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its key.
    pub key: EventKey,
    /// Its type, a hint for choosing the handler before the record is read.
    pub event_type: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    v: u32,
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    #[serde(borrow, default, rename = "type", skip_serializing_if = "Option::is_none")]
    event_type: Option<std::borrow::Cow<'a, str>>,
}

impl Message {
    /// As a message body. JSON escapes the control characters that SQS would not take; a type that
    /// has one of the two others, U+FFFE and U+FFFF, is left out, being only a hint. No event id
    /// has any.
    ///
    /// # Errors
    /// Never for a valid message; serde's signature.
    pub fn to_body(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Envelope {
            v: VERSION,
            key: self.key.pk().into(),
            event_type: self
                .event_type
                .as_deref()
                .filter(|hint| !hint.contains(['\u{fffe}', '\u{ffff}']))
                .map(Into::into),
        })
    }

    /// Reads a message body.
    ///
    /// # Errors
    /// If it is none of ours. Such a message fails until it reaches the dead-letter queue, where a
    /// person looks at it.
    pub fn parse(body: &str) -> Result<Self, NotOurs> {
        let envelope: Envelope<'_> = serde_json::from_str(body).map_err(|_| NotOurs::NotJson)?;
        if envelope.v != VERSION {
            return Err(NotOurs::Version(envelope.v));
        }
        let key = EventKey::parse(&envelope.key).map_err(|_| NotOurs::Key)?;
        Ok(Self { key, event_type: envelope.event_type.map(Into::into) })
    }
}

/// A message that hookonce did not send, or that a later version sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// Another shape.
    #[error("the message is not of the form {{\"v\":1,\"key\":\"SOURCE#EVENT_ID\"}}")]
    NotJson,
    /// Another version.
    #[error("the message has version {0}, this worker reads {VERSION}")]
    Version(u32),
    /// No event key.
    #[error("the message's key is no event key")]
    Key,
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_its_body() {
        let key = EventKey::parse("stripe#evt \u{85}\"ü").err();
        assert!(key.is_some(), "control characters are no ids");
        let message = Message {
            key: EventKey::parse("stripe#evt \"ü").expect("valid"),
            event_type: Some("a.b".into()),
        };
        let body = message.to_body().expect("serializes");
        assert_eq!(Message::parse(&body), Ok(message));
    }

    #[test]
    fn a_type_that_sqs_would_not_take_is_left_out() {
        let message = Message {
            key: EventKey::parse("stripe#evt_1").expect("valid"),
            event_type: Some("a\u{ffff}".into()),
        };
        assert_eq!(message.to_body().ok().as_deref(), Some(r#"{"v":1,"key":"stripe#evt_1"}"#));
    }

    #[test]
    fn what_is_not_ours_is_said_so() {
        for body in ["", "null", "{}", "[]", "{\"v\":1}", "not json", "{\"v\":1,\"key\":5}"] {
            assert_eq!(Message::parse(body), Err(NotOurs::NotJson), "{body}");
        }
        assert_eq!(Message::parse(r#"{"v":2,"key":"a#b"}"#), Err(NotOurs::Version(2)));
        assert_eq!(Message::parse(r#"{"v":1,"key":"ab"}"#), Err(NotOurs::Key));
    }
}
