//! What the SDK's errors mean: losing a race is an outcome, only "could not know" is an error.

use aws_sdk_dynamodb::{
    config::{
        interceptors::InterceptorContext,
        retry::{ClassifyRetry, RetryAction},
    },
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        put_item::PutItemError, transact_write_items::TransactWriteItemsError,
        update_item::UpdateItemError,
    },
};
use domain::record::CorruptRecord;

/// A call whose outcome is not known, or a record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// DynamoDB refuses for load; the SDK's retries are used up.
    #[error("{call} on table {table}: throttled ({code})")]
    Throttled {
        /// Which call.
        call: &'static str,
        /// On which table.
        table: String,
        /// DynamoDB's word for it.
        code: String,
    },
    /// Nobody answered in time.
    #[error("{call} on table {table}: no answer in time")]
    Timeout {
        /// Which call.
        call: &'static str,
        /// On which table.
        table: String,
    },
    /// Nobody there.
    #[error("{call} on table {table}: cannot reach DynamoDB: {problem}")]
    Unreachable {
        /// Which call.
        call: &'static str,
        /// On which table.
        table: String,
        /// What the connection says.
        problem: String,
    },
    /// No such table, or index.
    #[error(
        "{call}: there is no table {table} here; check HOOKONCE_TABLE, the region and that the stack is deployed"
    )]
    MissingTable {
        /// Which call.
        call: &'static str,
        /// Which table.
        table: String,
    },
    /// A transaction kept meeting concurrent ones; nothing was written.
    #[error("{call} on table {table}: still in conflict with another transaction after retries")]
    Conflict {
        /// Which call.
        call: &'static str,
        /// On which table.
        table: String,
    },
    /// Refused for another reason.
    #[error("{call} on table {table}: {code}: {message}")]
    Refused {
        /// Which call.
        call: &'static str,
        /// On which table.
        table: String,
        /// DynamoDB's word for it.
        code: String,
        /// DynamoDB's explanation.
        message: String,
    },
    /// A record this version cannot read.
    #[error(transparent)]
    Corrupt(#[from] CorruptRecord),
}

impl LedgerError {
    /// A short name for logs and metrics.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Throttled { .. } => "ledger_throttled",
            Self::Timeout { .. } => "ledger_timeout",
            Self::Unreachable { .. } => "ledger_unreachable",
            Self::MissingTable { .. } => "ledger_missing_table",
            Self::Conflict { .. } => "ledger_conflict",
            Self::Refused { .. } => "ledger_refused",
            Self::Corrupt(_) => "ledger_corrupt_record",
        }
    }

    /// Reads an SDK error that is no lost race.
    pub(crate) fn from_sdk<E, R>(call: &'static str, table: &str, error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata,
    {
        let table = table.to_owned();
        let (code, message) = match error {
            SdkError::TimeoutError(_) => return Self::Timeout { call, table },
            SdkError::DispatchFailure(failure) if failure.is_timeout() => {
                return Self::Timeout { call, table };
            }
            SdkError::DispatchFailure(failure) => {
                let problem = failure.as_connector_error().map_or("connection failed".into(), root);
                return Self::Unreachable { call, table, problem };
            }
            SdkError::ServiceError(_)
            | SdkError::ResponseError(_)
            | SdkError::ConstructionFailure(_)
            | _ => match error.code() {
                Some(code) => (code, error.message().unwrap_or("")),
                // Whoever answered so, whether a write took hold is not known.
                None => {
                    let problem = "unreadable response".to_owned();
                    return Self::Unreachable { call, table, problem };
                }
            },
        };
        match code {
            "ResourceNotFoundException" => Self::MissingTable { call, table },
            "TransactionConflictException" | "TransactionInProgressException" => {
                Self::Conflict { call, table }
            }
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException" => Self::Throttled { call, table, code: code.to_owned() },
            _ => Self::Refused { call, table, code: code.to_owned(), message: message.to_owned() },
        }
    }
}

/// The innermost cause: "connection refused" rather than "client error".
fn root(error: &aws_sdk_dynamodb::error::ConnectorError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Has the SDK retry, with its backoff, what a concurrent transaction alone stood in the way of.
///
/// DynamoDB cancels the later of two transactions on one item; nothing was written, and the same
/// request succeeds once the other is through.
#[derive(Debug)]
pub struct RetryConflicts;

impl ClassifyRetry for RetryConflicts {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let Some(Err(error)) = context.output_or_error() else {
            return RetryAction::NoActionIndicated;
        };
        let Some(error) = error.as_operation_error() else {
            return RetryAction::NoActionIndicated;
        };
        // A single write that meets a transaction on its item is refused as well.
        let single = matches!(
            error.downcast_ref::<PutItemError>(),
            Some(PutItemError::TransactionConflictException(_))
        ) || matches!(
            error.downcast_ref::<UpdateItemError>(),
            Some(UpdateItemError::TransactionConflictException(_))
        );
        let conflict = single
            || match error.downcast_ref::<TransactWriteItemsError>() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    let reasons = cancelled.cancellation_reasons();
                    let codes = || reasons.iter().filter_map(|reason| reason.code());
                    codes().any(|code| RETRIABLE_REASONS.contains(&code))
                        && !codes().any(|code| code == CONDITION_FAILED)
                }
                Some(TransactWriteItemsError::TransactionInProgressException(_)) => true,
                _ => false,
            };
        if conflict { RetryAction::transient_error() } else { RetryAction::NoActionIndicated }
    }

    fn name(&self) -> &'static str {
        "retry transaction conflicts"
    }
}

/// Cancellation reason of a condition that did not hold.
pub(crate) const CONDITION_FAILED: &str = "ConditionalCheckFailed";
/// Cancellation reasons that time heals.
pub(crate) const RETRIABLE_REASONS: [&str; 3] =
    ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
