//! The environment variables, read once at start. A missing one stops the function: a default
//! would write to somebody else's table.

/// Names of the environment variables. The template sets these.
pub mod names {
    /// The ledger table.
    pub const TABLE: &str = "HOOKONCE_TABLE";
    /// The queue between receiver and worker.
    pub const QUEUE_URL: &str = "HOOKONCE_QUEUE_URL";
    /// The bucket for payloads that fit on no record. Without it they are refused.
    pub const PAYLOADS_BUCKET: &str = "HOOKONCE_PAYLOADS_BUCKET";
    /// The configuration: JSON, `ssm:NAME`, `s3://BUCKET/KEY`, or a file's path.
    pub const CONFIG: &str = "HOOKONCE_CONFIG";
    /// Offset of the clock in ms; for the embedded stack.
    pub const CLOCK_OFFSET_MS: &str = "HOOKONCE_CLOCK_OFFSET_MS";
    /// Set by the embedded stack: `literal:` secrets are allowed.
    pub const LOCAL: &str = "HOOKONCE_LOCAL";
    /// The SDKs' own: where AWS is, if it is elsewhere.
    pub const ENDPOINT: &str = "AWS_ENDPOINT_URL";
    /// Where DynamoDB is, if it is elsewhere.
    pub const ENDPOINT_DYNAMODB: &str = "AWS_ENDPOINT_URL_DYNAMODB";
    /// Where SQS is, if it is elsewhere.
    pub const ENDPOINT_SQS: &str = "AWS_ENDPOINT_URL_SQS";
    /// Where S3 is, if it is elsewhere.
    pub const ENDPOINT_S3: &str = "AWS_ENDPOINT_URL_S3";
}

/// The value of a variable; an empty one counts as absent.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn optional(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable.
///
/// # Errors
/// If it is not set, or empty.
pub fn required(name: &'static str) -> Result<String, MissingVariable> {
    optional(name).ok_or(MissingVariable { name })
}

/// Whether this runs on the embedded stack.
#[must_use]
pub fn is_local() -> bool {
    optional(names::LOCAL).is_some()
}

/// A variable that must be set and is not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name} is not set; the template sets it, and so does `hookonce dev`")]
pub struct MissingVariable {
    name: &'static str,
}
