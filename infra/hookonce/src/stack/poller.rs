//! The event source mapping: messages in batches to the worker, and out of the queue what it does
//! not name as failed.

use std::{collections::HashSet, sync::Arc, time::Duration};

use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lambda::Function;

/// Polls and invokes, one batch at a time.
pub(super) async fn poll(sqs: aws_sdk_sqs::Client, queue_url: String, worker: Arc<Function>) {
    loop {
        let received = sqs
            .receive_message()
            .queue_url(&queue_url)
            .max_number_of_messages(BATCH_SIZE)
            .wait_time_seconds(LONG_POLL_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await;
        let Ok(received) = received else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            continue;
        }
        // If the function fails the whole batch stays, and comes back after its visibility.
        if let Ok(response) = worker.invoke(event_of(&messages).to_string()).await {
            delete_finished(&sqs, &queue_url, &messages, &response).await;
        }
    }
}

fn event_of(messages: &[Message]) -> Value {
    let records: Vec<_> = messages
        .iter()
        .map(|message| {
            let attributes = message.attributes.iter().flatten();
            let attributes: serde_json::Map<_, _> = attributes
                .map(|(name, value)| (name.as_str().to_owned(), Value::from(value.as_str())))
                .collect();
            json!({
                "messageId": message.message_id,
                "receiptHandle": message.receipt_handle,
                "body": message.body,
                "attributes": attributes,
                "messageAttributes": {},
                "md5OfBody": message.md5_of_body,
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:hookonce-events",
                "awsRegion": "us-east-1"
            })
        })
        .collect();
    json!({ "Records": records })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchResponse {
    #[serde(default)]
    batch_item_failures: Vec<BatchItemFailure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchItemFailure {
    item_identifier: String,
}

async fn delete_finished(
    sqs: &aws_sdk_sqs::Client,
    queue_url: &str,
    messages: &[Message],
    response: &[u8],
) {
    let Ok(response) = serde_json::from_slice::<BatchResponse>(response) else { return };
    let kept: HashSet<_> = response
        .batch_item_failures
        .iter()
        .map(|failure| failure.item_identifier.as_str())
        .collect();
    let known: HashSet<_> = messages.iter().filter_map(Message::message_id).collect();
    // An identifier that names no message, as AWS has it: the whole batch stays.
    if !kept.is_subset(&known) {
        return;
    }
    let finished: Vec<_> = messages
        .iter()
        .filter(|message| !kept.contains(message.message_id().unwrap_or_default()))
        .enumerate()
        .filter_map(|(i, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(i.to_string());
            entry.set_receipt_handle(message.receipt_handle.clone()).build().ok()
        })
        .collect();
    if finished.is_empty() {
        return;
    }
    let deleted =
        sqs.delete_message_batch().queue_url(queue_url).set_entries(Some(finished)).send().await;
    // What is not deleted comes again, and finds its record closed.
    drop(deleted);
}

const BATCH_SIZE: i32 = 10;
const LONG_POLL_SECONDS: i32 = 10;
