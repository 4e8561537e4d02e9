//! Why a call was refused, and under which two names the wire knows each reason.
//!
//! SQS moved from the query protocol to JSON and kept both vocabularies: the body carries the shape
//! (`com.amazonaws.sqs#QueueDoesNotExist`), the `x-amzn-query-error` header the older code. SDKs
//! match on either, so both must be right. Every refusal here is the caller's fault; losing a race
//! for a message is not an error.

use super::limits;

/// A refused call. The message is what the caller reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueError {
    #[error("The specified queue does not exist.")]
    QueueDoesNotExist,
    #[error(
        "A queue already exists with the same name and a different value for attribute {attribute}"
    )]
    QueueNameExists { attribute: String },
    #[error("Unknown Attribute {name}.")]
    InvalidAttributeName { name: String },
    #[error("Invalid value for the parameter {name}. Reason: {reason}")]
    InvalidAttributeValue { name: String, reason: String },
    #[error("Value {value} for parameter {parameter} is invalid. Reason: {reason}")]
    InvalidParameterValue { parameter: String, value: String, reason: String },
    #[error("The request must contain the parameter {parameter}.")]
    MissingParameter { parameter: &'static str },
    #[error(
        "Invalid binary character '#x{character:X}' was found in the message body, the set of \
         allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to \
         #x10FFFF"
    )]
    InvalidMessageContents { character: u32 },
    #[error("The input receipt handle \"{handle}\" is not a valid receipt handle.")]
    ReceiptHandleIsInvalid { handle: String },
    #[error("Too many messages in flight: the limit is {limit}.")]
    OverLimit { limit: usize },
    #[error("There should be at least one {entry} in the request.")]
    EmptyBatchRequest { entry: &'static str },
    #[error(
        "Maximum number of entries per request are {}. You have sent {got}.",
        limits::MAX_BATCH_ENTRIES
    )]
    TooManyEntriesInBatchRequest { got: usize },
    #[error("Id {id} repeated.")]
    BatchEntryIdsNotDistinct { id: String },
    #[error(
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It \
         can be at most 80 letters long."
    )]
    InvalidBatchEntryId,
    #[error(
        "Batch requests cannot be longer than {} bytes. You have sent {got} bytes.",
        limits::MAX_MESSAGE_BYTES
    )]
    BatchRequestTooLong { got: u64 },
    #[error("The action {action} is not offered by this endpoint.")]
    UnknownAction { action: String },
    #[error("The request is not what {action} takes: {reason}")]
    Malformed { action: String, reason: String },
    #[error("Request bodies are bounded at {} bytes.", limits::MAX_REQUEST_BYTES)]
    RequestTooLong,
}

/// The two names of an error on the wire.
pub(super) struct Codes {
    /// `__type` in the body, with its namespace.
    pub(super) shape: String,
    /// What stands before `;Sender` in `x-amzn-query-error`, and in a batch result.
    pub(super) query: String,
}

impl QueueError {
    /// A parameter out of its range or shape.
    pub(super) fn parameter(parameter: &str, value: impl ToString, reason: &str) -> Self {
        Self::InvalidParameterValue {
            parameter: parameter.to_owned(),
            value: value.to_string(),
            reason: reason.to_owned(),
        }
    }

    /// The names under which clients recognise this error.
    pub(super) fn codes(&self) -> Codes {
        match self {
            Self::QueueDoesNotExist => prefixed("QueueDoesNotExist", "NonExistentQueue"),
            Self::QueueNameExists { .. } => plain("QueueNameExists", "QueueAlreadyExists"),
            Self::InvalidAttributeName { .. } => same("InvalidAttributeName"),
            Self::InvalidAttributeValue { .. } => same("InvalidAttributeValue"),
            Self::InvalidMessageContents { .. } => same("InvalidMessageContents"),
            Self::ReceiptHandleIsInvalid { .. } => same("ReceiptHandleIsInvalid"),
            Self::OverLimit { .. } => same("OverLimit"),
            Self::EmptyBatchRequest { .. } => both_prefixed("EmptyBatchRequest"),
            Self::TooManyEntriesInBatchRequest { .. } => {
                both_prefixed("TooManyEntriesInBatchRequest")
            }
            Self::BatchEntryIdsNotDistinct { .. } => both_prefixed("BatchEntryIdsNotDistinct"),
            Self::InvalidBatchEntryId => both_prefixed("InvalidBatchEntryId"),
            Self::BatchRequestTooLong { .. } => both_prefixed("BatchRequestTooLong"),
            Self::InvalidParameterValue { .. } => {
                framework("InvalidParameterValueException", "InvalidParameterValue")
            }
            Self::MissingParameter { .. } => {
                framework("MissingRequiredParameterException", "MissingParameter")
            }
            Self::UnknownAction { .. } => framework("UnknownOperationException", "InvalidAction"),
            Self::Malformed { .. } => framework("SerializationException", "MalformedInput"),
            Self::RequestTooLong => framework("SerializationException", "RequestTooLong"),
        }
    }
}

fn plain(shape: &str, query: &str) -> Codes {
    Codes { shape: format!("com.amazonaws.sqs#{shape}"), query: query.to_owned() }
}

fn same(name: &str) -> Codes {
    plain(name, name)
}

fn prefixed(shape: &str, query: &str) -> Codes {
    plain(shape, &format!("AWS.SimpleQueueService.{query}"))
}

fn both_prefixed(name: &str) -> Codes {
    prefixed(name, name)
}

/// Errors that come from AWS's service framework rather than from SQS's own model.
fn framework(shape: &str, query: &str) -> Codes {
    Codes { shape: format!("com.amazon.coral.service#{shape}"), query: query.to_owned() }
}
