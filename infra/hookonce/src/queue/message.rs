//! What a sender hands in: checked once, immutable afterwards.
//!
//! Decides whether body and attributes may enter a queue at all (characters, names, types, size)
//! and computes the digests clients compare. Knows no queue and no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::error::QueueError;
use super::limits;

/// A message on its way in.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) body: String,
    pub(super) attributes: AttributeMap,
    /// Only `AWSTraceHeader` exists; it does not count towards the size.
    pub(super) system_attributes: AttributeMap,
    pub(super) delay_s: Option<i64>,
    pub(super) group: Option<String>,
    pub(super) deduplication: Option<String>,
}

/// Sorted by name, the order in which the digest runs over them.
pub(super) type AttributeMap = BTreeMap<String, AttributeValue>;

/// One message attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttributeValue {
    /// `String`, `Number` or `Binary`, with an optional label after a dot.
    pub(super) data_type: String,
    pub(super) payload: Payload,
}

/// An attribute's value in the encoding its type asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Payload {
    Text(String),
    Binary(Vec<u8>),
}

/// An accepted message without its fate: what every receive of it has in common.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) id: String,
    pub(super) body: String,
    pub(super) body_md5: String,
    pub(super) attributes: AttributeMap,
    pub(super) system_attributes: AttributeMap,
    pub(super) sent_ms: u64,
    pub(super) group: Option<Arc<str>>,
    pub(super) deduplication: Option<String>,
}

impl Outgoing {
    /// Bytes that count towards the size limits.
    pub(super) fn bytes(&self) -> u64 {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| name.len() + value.bytes()).sum();
        (self.body.len() + attributes) as u64
    }

    /// Refuses what no queue would take, whatever its settings.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        if self.body.is_empty() {
            return Err(QueueError::MissingParameter { parameter: "MessageBody" });
        }
        if let Some(character) = self.body.chars().find(|&c| !is_xml_character(c)) {
            return Err(QueueError::InvalidMessageContents { character: character.into() });
        }
        if self.attributes.len() > limits::MAX_MESSAGE_ATTRIBUTES {
            return Err(QueueError::parameter(
                "MessageAttributes",
                self.attributes.len(),
                "Number of message attributes exceeds the allowed maximum [10].",
            ));
        }
        self.attributes.iter().try_for_each(|(name, value)| check_attribute(name, value))?;
        self.system_attributes.iter().try_for_each(|(name, value)| check_system(name, value))?;
        check_id("MessageGroupId", self.group.as_deref())?;
        check_id("MessageDeduplicationId", self.deduplication.as_deref())
    }

    /// The id a FIFO queue derives from the body when the sender names none. Attributes are left
    /// out, as on AWS.
    pub(super) fn content_deduplication_id(&self) -> String {
        hex::encode(Sha256::digest(self.body.as_bytes()))
    }
}

impl AttributeValue {
    fn bytes(&self) -> usize {
        let payload = match &self.payload {
            Payload::Text(text) => text.len(),
            Payload::Binary(bytes) => bytes.len(),
        };
        self.data_type.len() + payload
    }
}

/// Digest of a body as clients compute it.
pub(super) fn md5_of_body(body: &str) -> String {
    hex::encode(Md5::digest(body.as_bytes()))
}

/// Digest over attributes in name order, each part length-prefixed; none for no attributes.
pub(super) fn md5_of_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a String, &'a AttributeValue)>,
) -> Option<String> {
    let mut digest = Md5::new();
    let mut any = false;
    for (name, value) in attributes {
        any = true;
        add_part(&mut digest, name.as_bytes());
        add_part(&mut digest, value.data_type.as_bytes());
        match &value.payload {
            Payload::Text(text) => {
                digest.update([1]);
                add_part(&mut digest, text.as_bytes());
            }
            Payload::Binary(bytes) => {
                digest.update([2]);
                add_part(&mut digest, bytes);
            }
        }
    }
    any.then(|| hex::encode(digest.finalize()))
}

fn add_part(digest: &mut Md5, part: &[u8]) {
    // Parts are bounded by the message size, far below what 32 bits hold.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    digest.update(length.to_be_bytes());
    digest.update(part);
}

/// What XML 1.0 admits, which is what SQS admits, also under the JSON protocol.
fn is_xml_character(c: char) -> bool {
    matches!(c,
        '\u{9}' | '\u{A}' | '\u{D}'
        | '\u{20}'..='\u{D7FF}'
        | '\u{E000}'..='\u{FFFD}'
        | '\u{10000}'..='\u{10FFFF}')
}

fn check_attribute(name: &str, value: &AttributeValue) -> Result<(), QueueError> {
    let refuse = |reason: &str| Err(QueueError::parameter("MessageAttributeName", name, reason));
    if name.is_empty() || name.len() > limits::MAX_ATTRIBUTE_NAME_BYTES {
        return refuse("Must be between 1 and 256 bytes long.");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) {
        return refuse("Can only include alphanumeric characters, hyphens, underscores, or dots.");
    }
    if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        return refuse("Must not start or end with a dot, nor have successive dots.");
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        return refuse("Must not start with a reserved prefix (AWS., Amazon.).");
    }
    check_value(name, value)
}

fn check_value(name: &str, value: &AttributeValue) -> Result<(), QueueError> {
    let refuse = |reason: &str| Err(QueueError::parameter("MessageAttributes", name, reason));
    if value.data_type.len() > limits::MAX_ATTRIBUTE_NAME_BYTES {
        return refuse("The data type is longer than 256 bytes.");
    }
    let base = value.data_type.split('.').next().unwrap_or_default();
    match (base, &value.payload) {
        ("String" | "Number", Payload::Text(text)) if text.is_empty() => {
            refuse("The value must not be empty.")
        }
        ("String" | "Number", Payload::Text(text)) if !text.chars().all(is_xml_character) => {
            refuse("The value holds a character outside XML 1.0.")
        }
        ("Number", Payload::Text(text)) if text.parse::<f64>().is_err() => {
            refuse("The value is not a number.")
        }
        ("String" | "Number", Payload::Text(_)) => Ok(()),
        ("Binary", Payload::Binary(bytes)) if bytes.is_empty() => {
            refuse("The value must not be empty.")
        }
        ("Binary", Payload::Binary(_)) => Ok(()),
        (_, Payload::Text(_) | Payload::Binary(_)) => {
            refuse("The type must be String, Number or Binary and match the value's field.")
        }
    }
}

fn check_system(name: &str, value: &AttributeValue) -> Result<(), QueueError> {
    if name != "AWSTraceHeader" {
        return Err(QueueError::parameter(
            "MessageSystemAttributes",
            name,
            "Only AWSTraceHeader is known.",
        ));
    }
    check_value(name, value)
}

fn check_id(parameter: &str, id: Option<&str>) -> Result<(), QueueError> {
    let Some(id) = id else { return Ok(()) };
    // Alphanumeric or punctuation: the printable ASCII range without the space.
    if id.is_empty() || id.len() > limits::MAX_ID_BYTES || !id.bytes().all(|b| b.is_ascii_graphic())
    {
        return Err(QueueError::parameter(
            parameter,
            id,
            "Can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(data_type: &str, value: &str) -> AttributeValue {
        AttributeValue { data_type: data_type.to_owned(), payload: Payload::Text(value.to_owned()) }
    }

    fn message(body: &str) -> Outgoing {
        Outgoing {
            body: body.to_owned(),
            attributes: AttributeMap::new(),
            system_attributes: AttributeMap::new(),
            delay_s: None,
            group: None,
            deduplication: None,
        }
    }

    /// Values that other clients and emulators publish for these attributes.
    #[test]
    fn attribute_digest_agrees_with_published_values() {
        for (name, digest) in [
            ("timestamp", "235c5c510d26fb653d073faed50ae77c"),
            ("SOME_Valid.attribute-Name", "36655e7e9d7c0e8479fa3f3f42247ae7"),
        ] {
            let attributes =
                AttributeMap::from([(name.to_owned(), text("Number", "1493147359900"))]);
            assert_eq!(md5_of_attributes(&attributes).as_deref(), Some(digest));
        }
        assert_eq!(md5_of_attributes(&AttributeMap::new()), None);
    }

    #[test]
    fn only_xml_characters_enter() {
        for body in ["\t\n\r plain", "\u{D7FF}\u{E000}\u{FFFD}\u{1F600}\u{10FFFF}"] {
            assert_eq!(message(body).check(), Ok(()));
        }
        for (body, character) in
            [("a\0", 0), ("\u{1F}", 0x1F), ("\u{FFFE}", 0xFFFE), ("\u{FFFF}", 0xFFFF)]
        {
            let refusal = message(body).check();
            assert_eq!(refusal, Err(QueueError::InvalidMessageContents { character }));
        }
        assert_eq!(
            message("").check(),
            Err(QueueError::MissingParameter { parameter: "MessageBody" })
        );
    }

    #[test]
    fn attributes_of_wrong_name_or_type_are_refused() {
        let good = [("a", text("String", "x")), ("b.c", text("Number.int", "-1.5"))];
        let bad = [
            ("", text("String", "x")),
            (".a", text("String", "x")),
            ("a..b", text("String", "x")),
            ("a b", text("String", "x")),
            ("AWS.x", text("String", "x")),
            ("a", text("Text", "x")),
            ("a", text("Number", "one")),
            ("a", text("String", "")),
            ("a", text("Binary", "x")),
            ("a", text("String", "\0")),
        ];
        for (name, value) in good {
            assert_eq!(check_attribute(name, &value), Ok(()), "{name}");
        }
        for (name, value) in bad {
            assert!(check_attribute(name, &value).is_err(), "{name} {value:?}");
        }
    }

    #[test]
    fn size_counts_names_types_and_values_of_attributes() {
        let mut outgoing = message("12345");
        outgoing.attributes.insert("ab".to_owned(), text("String", "xyz"));
        assert_eq!(outgoing.bytes(), 5 + 2 + 6 + 3);
    }
}
