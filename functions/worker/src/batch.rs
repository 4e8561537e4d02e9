//! One SQS batch: its records run concurrently, each for itself, and the response names those that
//! stay in the queue.

use std::panic::AssertUnwindSafe;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use domain::{
    limits,
    seeded::{self, Fault},
    time::Timestamp,
};
use futures::{FutureExt as _, StreamExt as _, stream};

use crate::attempt::{Attempts, Disposition};

/// Works on a batch until `deadline`, the invocation's, by the system's clock.
///
/// # Errors
/// If a record that must stay in the queue has no message id: SQS then keeps the whole batch, which
/// costs a second look at the others and loses nothing.
pub async fn work(
    attempts: &Attempts,
    batch: SqsEvent,
    deadline: Timestamp,
) -> Result<SqsBatchResponse, UnnamedRecord> {
    let kept: Vec<_> = stream::iter(batch.records)
        .map(|record| work_on(attempts, record, deadline))
        .buffer_unordered(limits::MAX_CONCURRENT_RECORDS)
        .filter_map(async |kept| kept)
        .collect()
        .await;
    let mut failures = Vec::with_capacity(kept.len());
    for id in kept {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier = match id.filter(|id| !id.is_empty()) {
            None if seeded::is_on(Fault::EmptyMessageId) => String::new(),
            id => id.ok_or(UnnamedRecord)?,
        };
        failures.push(failure);
    }
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failures;
    Ok(response)
}

/// The message id, if the record stays in the queue.
async fn work_on(
    attempts: &Attempts,
    record: SqsMessage,
    deadline: Timestamp,
) -> Option<Option<String>> {
    let body = record.body.unwrap_or_default();
    let handle = record.receipt_handle.unwrap_or_default();
    // A panic anywhere in it fails this record alone.
    let worked = AssertUnwindSafe(attempts.work_on(&body, &handle, deadline)).catch_unwind().await;
    match worked {
        Ok(Disposition::Delete) => None,
        Err(_) if seeded::is_on(Fault::PanicIsSuccess) => None,
        Ok(Disposition::Keep) => Some(record.message_id),
        Err(_) => {
            tracing::error!(message_id = record.message_id, "working on a record panicked");
            Some(record.message_id)
        }
    }
}

/// A record that must stay in the queue and has no id to say so by.
#[derive(Debug, thiserror::Error)]
#[error("a record without a message id must stay in the queue: the whole batch is kept")]
pub struct UnnamedRecord;
