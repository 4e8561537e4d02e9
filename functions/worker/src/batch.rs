//! One SQS batch: its records run concurrently, each for itself, and the response names those that
//! stay in the queue.
//!
//! Of a FIFO queue the records of one message group run one after another, and the first that stays
//! in the queue holds back those behind it, and no other group's.

use std::{collections::HashMap, panic::AssertUnwindSafe};

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
    let kept: Vec<_> = stream::iter(in_order(batch.records))
        .map(|records| work_in_order(attempts, records, deadline))
        .buffer_unordered(limits::MAX_CONCURRENT_RECORDS)
        .flat_map(stream::iter)
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

/// The records of each message group in their order, every other record for itself.
fn in_order(records: Vec<SqsMessage>) -> Vec<Vec<SqsMessage>> {
    let mut sequences: Vec<Vec<SqsMessage>> = Vec::with_capacity(records.len());
    let mut of_group = HashMap::new();
    for record in records {
        // Messages of a standard queue have none: the receiver gives it to those of a FIFO queue.
        let Some(group) = record.attributes.get(GROUP).cloned() else {
            sequences.push(vec![record]);
            continue;
        };
        match of_group.get(&group).and_then(|at: &usize| sequences.get_mut(*at)) {
            Some(sequence) => sequence.push(record),
            None => {
                of_group.insert(group, sequences.len());
                sequences.push(vec![record]);
            }
        }
    }
    sequences
}

/// The message ids of those that stay in the queue.
async fn work_in_order(
    attempts: &Attempts,
    records: Vec<SqsMessage>,
    deadline: Timestamp,
) -> Vec<Option<String>> {
    let mut kept = Vec::new();
    for record in records {
        if kept.is_empty() {
            kept.extend(work_on(attempts, record, deadline).await);
        } else {
            // Visible at once, and yet behind the one that is not: else it would stay away for the
            // queue's whole timeout.
            attempts.hold_back(record.receipt_handle.as_deref().unwrap_or_default()).await;
            kept.push(record.message_id);
        }
    }
    kept
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

const GROUP: &str = "MessageGroupId";
