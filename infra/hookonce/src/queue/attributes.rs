//! A queue's settings: read from the strings the API uses, rendered back to them.
//!
//! Values out of range are refused, as on AWS. Settings without a meaning on one machine
//! (encryption, policies) are kept and shown but do nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::QueueError;
use super::limits;

/// Settings of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) visibility_s: u64,
    pub(super) delay_s: u64,
    pub(super) retention_s: u64,
    pub(super) wait_s: u64,
    pub(super) maximum_message_bytes: u64,
    pub(super) redrive: Option<RedrivePolicy>,
    pub(super) fifo: bool,
    pub(super) content_based_deduplication: bool,
    /// FIFO: a deduplication id counts within its group instead of within the queue.
    pub(super) deduplicate_per_group: bool,
    inert: BTreeMap<String, String>,
}

/// Where messages go that were received too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedrivePolicy {
    pub(super) target_arn: String,
    pub(super) max_receives: u32,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            visibility_s: limits::DEFAULT_VISIBILITY_S,
            delay_s: 0,
            retention_s: limits::DEFAULT_RETENTION_S,
            wait_s: 0,
            maximum_message_bytes: limits::MAX_MESSAGE_BYTES,
            redrive: None,
            fifo: false,
            content_based_deduplication: false,
            deduplicate_per_group: false,
            inert: BTreeMap::new(),
        }
    }
}

impl Attributes {
    /// Takes one setting over, or refuses it.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), QueueError> {
        match name {
            "VisibilityTimeout" => {
                self.visibility_s = number(name, value, 0, limits::MAX_VISIBILITY_S)?;
            }
            "DelaySeconds" => self.delay_s = number(name, value, 0, limits::MAX_DELAY_S)?,
            "MessageRetentionPeriod" => {
                self.retention_s =
                    number(name, value, limits::MIN_RETENTION_S, limits::MAX_RETENTION_S)?;
            }
            "ReceiveMessageWaitTimeSeconds" => {
                self.wait_s = number(name, value, 0, limits::MAX_WAIT_S)?;
            }
            "MaximumMessageSize" => {
                self.maximum_message_bytes =
                    number(name, value, limits::MIN_MESSAGE_BYTES, limits::MAX_MESSAGE_BYTES)?;
            }
            "RedrivePolicy" => self.redrive = redrive_policy(value)?,
            "FifoQueue" => self.fifo = flag(name, value)?,
            "ContentBasedDeduplication" => {
                self.content_based_deduplication = flag(name, value)?;
            }
            "DeduplicationScope" => {
                self.deduplicate_per_group = choice(name, value, "messageGroup", "queue")?;
            }
            inert if INERT.contains(&inert) => {
                self.inert.insert(inert.to_owned(), value.to_owned());
            }
            unknown => {
                return Err(QueueError::InvalidAttributeName { name: unknown.to_owned() });
            }
        }
        Ok(())
    }

    /// A setting as the API shows it; nothing where it is unset or does not apply.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        match name {
            "VisibilityTimeout" => Some(self.visibility_s.to_string()),
            "DelaySeconds" => Some(self.delay_s.to_string()),
            "MessageRetentionPeriod" => Some(self.retention_s.to_string()),
            "ReceiveMessageWaitTimeSeconds" => Some(self.wait_s.to_string()),
            "MaximumMessageSize" => Some(self.maximum_message_bytes.to_string()),
            "RedrivePolicy" => self.redrive.as_ref().map(RedrivePolicy::render),
            "FifoQueue" => self.fifo.then(|| "true".to_owned()),
            "ContentBasedDeduplication" => {
                self.fifo.then(|| self.content_based_deduplication.to_string())
            }
            "DeduplicationScope" => self.fifo.then(|| {
                let scope = if self.deduplicate_per_group { "messageGroup" } else { "queue" };
                scope.to_owned()
            }),
            inert => self.inert.get(inert).cloned(),
        }
    }

    /// The first setting in which two queues differ.
    pub(super) fn first_difference(&self, other: &Self) -> Option<&'static str> {
        SETTABLE.iter().chain(&INERT).copied().find(|name| self.get(name) != other.get(name))
    }
}

impl RedrivePolicy {
    fn render(&self) -> String {
        serde_json::json!({
            "deadLetterTargetArn": self.target_arn,
            "maxReceiveCount": self.max_receives,
        })
        .to_string()
    }
}

/// Settings with an effect.
pub(super) const SETTABLE: [&str; 9] = [
    "VisibilityTimeout",
    "DelaySeconds",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "MaximumMessageSize",
    "RedrivePolicy",
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
];

/// Settings kept for show, so that templates written for AWS apply unchanged.
pub(super) const INERT: [&str; 6] = [
    "Policy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
    "FifoThroughputLimit",
];

fn number(name: &str, value: &str, min: u64, max: u64) -> Result<u64, QueueError> {
    value.parse().ok().filter(|n| (min..=max).contains(n)).ok_or_else(|| {
        QueueError::InvalidAttributeValue {
            name: name.to_owned(),
            reason: format!("expected an integer from {min} to {max}, got {value:?}."),
        }
    })
}

fn flag(name: &str, value: &str) -> Result<bool, QueueError> {
    choice(name, value, "true", "false")
}

fn choice(name: &str, value: &str, yes: &str, no: &str) -> Result<bool, QueueError> {
    if value == yes {
        Ok(true)
    } else if value == no {
        Ok(false)
    } else {
        Err(QueueError::InvalidAttributeValue {
            name: name.to_owned(),
            reason: format!("expected {yes} or {no}, got {value:?}."),
        })
    }
}

/// An empty value removes the policy, the only way SQS offers.
fn redrive_policy(value: &str) -> Result<Option<RedrivePolicy>, QueueError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        dead_letter_target_arn: String,
        max_receive_count: Count,
    }
    // Consoles and templates write the count as a number or as a string.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(u64),
        Text(String),
    }

    if value.is_empty() {
        return Ok(None);
    }
    let refuse = |reason: String| QueueError::parameter("RedrivePolicy", value, &reason);
    let policy: Policy = serde_json::from_str(value).map_err(|e| refuse(e.to_string()))?;
    let count = match policy.max_receive_count {
        Count::Number(count) => Some(count),
        Count::Text(text) => text.parse().ok(),
    };
    let count = count.filter(|n| (1..=limits::MAX_RECEIVE_COUNT).contains(n));
    let max_receives = count
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| refuse("maxReceiveCount must be an integer from 1 to 1000.".to_owned()))?;
    Ok(Some(RedrivePolicy { target_arn: policy.dead_letter_target_arn, max_receives }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<Option<String>, QueueError> {
        let mut attributes = Attributes::default();
        attributes.set(name, value).map(|()| attributes.get(name))
    }

    #[test]
    fn every_setting_reads_back_as_it_was_written() {
        for (name, value) in [
            ("VisibilityTimeout", "43200"),
            ("DelaySeconds", "900"),
            ("MessageRetentionPeriod", "60"),
            ("ReceiveMessageWaitTimeSeconds", "20"),
            ("MaximumMessageSize", "1048576"),
            ("RedrivePolicy", r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":3}"#),
            ("FifoQueue", "true"),
            ("Policy", "{}"),
        ] {
            assert_eq!(set(name, value), Ok(Some(value.to_owned())), "{name}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (name, value) in [
            ("VisibilityTimeout", "43201"),
            ("VisibilityTimeout", "-1"),
            ("DelaySeconds", "901"),
            ("MessageRetentionPeriod", "59"),
            ("ReceiveMessageWaitTimeSeconds", "21"),
            ("MaximumMessageSize", "1048577"),
            ("FifoQueue", "yes"),
            ("RedrivePolicy", "{}"),
            ("RedrivePolicy", r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":0}"#),
            ("RedrivePolicy", r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":1001}"#),
            ("Colour", "blue"),
        ] {
            assert!(set(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn redrive_count_may_be_text_and_an_empty_policy_clears() {
        let text = r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":"3"}"#;
        let mut attributes = Attributes::default();
        assert_eq!(attributes.set("RedrivePolicy", text), Ok(()));
        assert_eq!(attributes.redrive.as_ref().map(|policy| policy.max_receives), Some(3));
        assert_eq!(attributes.set("RedrivePolicy", ""), Ok(()));
        assert_eq!(attributes.redrive, None);
    }
}
