//! The calls to SQS.

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{QueueAttributeName, SendMessageBatchRequestEntry},
};
use domain::{effects::hex, record::Record};
use futures::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::Message;

/// A message on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// What is said.
    pub message: Message,
    /// What the event is about: on a FIFO queue, events about one object keep their order. Those
    /// about nothing that is known are each a group of their own.
    pub object_id: Option<String>,
    /// How long it stays out of sight at first; 15 minutes at most. A FIFO queue has no delay a
    /// message, and the record's `not_before` alone holds.
    pub delay: Duration,
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        Self { message, object_id: None, delay: Duration::ZERO }
    }
}

impl From<&Record> for Outgoing {
    /// For an event that is enqueued again.
    fn from(record: &Record) -> Self {
        let (key, event_type) = (record.key.clone(), record.event_type.clone());
        let object_id = record.object_id.clone();
        Self { object_id, ..Self::from(Message { key, event_type }) }
    }
}

impl Outgoing {
    /// Hashed: a group's name takes fewer characters than an object's, and no others than ASCII.
    fn group(&self) -> String {
        let key = &self.message.key;
        let name = match &self.object_id {
            Some(object) => format!("{}#{object}", key.source()),
            None => key.pk(),
        };
        hex(&Sha256::digest(name))
    }

    fn delay_seconds(&self) -> Option<i32> {
        let seconds = self.delay.as_millis().div_ceil(1000);
        Some(i32::try_from(seconds).unwrap_or(i32::MAX)).filter(|seconds| *seconds > 0)
    }
}

/// Where in its queue a message stands.
struct Place {
    group: Option<String>,
    /// The deduplication id.
    once: Option<String>,
    delay_seconds: Option<i32>,
}

/// The SQS queue of one deployment.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) client: Client,
    pub(crate) url: String,
}

impl Queue {
    /// The queue at `url`, by a client of this configuration.
    pub fn new(config: impl Into<aws_sdk_sqs::config::Builder>, url: String) -> Self {
        Self { client: Client::from_conf(config.into().build()), url }
    }

    /// Opens the connection before the first delivery waits for it, and says early that the queue
    /// is missing.
    ///
    /// # Errors
    /// If the queue's attributes cannot be read.
    pub async fn warm(&self) -> Result<(), QueueError> {
        let attributes = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(QueueAttributeName::QueueArn);
        attributes.send().await.map(drop).map_err(|error| self.error("GetQueueAttributes", &error))
    }

    /// Enqueues an event.
    ///
    /// # Errors
    /// If SQS did not confirm it. The event's record is durable; a sweep enqueues it.
    pub async fn send(&self, outgoing: &Outgoing) -> Result<(), QueueError> {
        let body = outgoing.message.to_body().map_err(|error| QueueError {
            call: "SendMessage",
            queue: self.url.clone(),
            problem: error.to_string(),
            class: "queue_refused",
        })?;
        let place = self.place_of(outgoing);
        let sent = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_body(body)
            .set_message_group_id(place.group)
            .set_message_deduplication_id(place.once)
            .set_delay_seconds(place.delay_seconds)
            .send()
            .await;
        sent.map(drop).map_err(|error| self.error("SendMessage", &error))
    }

    /// Enqueues events, in as few calls as SQS takes; gives what became of each, in their order.
    pub async fn send_all(&self, messages: &[Outgoing]) -> Vec<Result<(), QueueError>> {
        if let [message] = messages {
            return vec![self.send(message).await];
        }
        let batches = messages.chunks(MESSAGES_A_CALL).map(|batch| self.send_batch(batch));
        if self.is_fifo() {
            // One after the other: those about one object are to arrive in their order.
            let sent: Vec<_> = stream::iter(batches).then(|batch| batch).collect().await;
            return sent.into_iter().flatten().collect();
        }
        futures::future::join_all(batches).await.into_iter().flatten().collect()
    }

    fn is_fifo(&self) -> bool {
        self.url.ends_with(".fifo")
    }

    /// Every send is a message of its own: a requeue within the five minutes for which a FIFO queue
    /// remembers ids must not be swallowed. The SDK's retries of one call carry one id.
    fn place_of(&self, outgoing: &Outgoing) -> Place {
        if self.is_fifo() {
            let once = Uuid::new_v4().simple().to_string();
            Place { group: Some(outgoing.group()), once: Some(once), delay_seconds: None }
        } else {
            Place { group: None, once: None, delay_seconds: outgoing.delay_seconds() }
        }
    }

    async fn send_batch(&self, batch: &[Outgoing]) -> Vec<Result<(), QueueError>> {
        const CALL: &str = "SendMessageBatch";
        let refused = |problem: &str| QueueError {
            call: CALL,
            queue: self.url.clone(),
            problem: problem.to_owned(),
            class: "queue_refused",
        };
        let entry = |(n, outgoing): (usize, &Outgoing)| {
            let body = outgoing.message.to_body().unwrap_or_default();
            let place = self.place_of(outgoing);
            SendMessageBatchRequestEntry::builder()
                .id(n.to_string())
                .message_body(body)
                .set_message_group_id(place.group)
                .set_message_deduplication_id(place.once)
                .set_delay_seconds(place.delay_seconds)
                .build()
        };
        // None can fail: each has its id and its body.
        let entries = batch.iter().enumerate().filter_map(|numbered| entry(numbered).ok());
        let call = self.client.send_message_batch().queue_url(&self.url);
        match call.set_entries(Some(entries.collect())).send().await {
            Ok(sent) => {
                let failed = |n: usize| {
                    let id = n.to_string();
                    sent.failed().iter().find(|entry| entry.id() == id)
                };
                let sent = |n| failed(n).map_or(Ok(()), |entry| Err(refused(entry.code())));
                (0..batch.len()).map(sent).collect()
            }
            Err(error) => batch.iter().map(|_| Err(self.error(CALL, &error))).collect(),
        }
    }

    /// Keeps a received message out of sight for `wait`, from now.
    ///
    /// # Errors
    /// If SQS did not confirm it; the message then comes back after the queue's own timeout.
    pub async fn keep(&self, receipt_handle: &str, wait: Duration) -> Result<(), QueueError> {
        // Rounded up: a message back before its time costs a receive and a write.
        let seconds = i32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let changed = self
            .client
            .change_message_visibility()
            .queue_url(&self.url)
            .receipt_handle(receipt_handle)
            .visibility_timeout(seconds)
            .send()
            .await;
        changed.map(drop).map_err(|error| self.error("ChangeMessageVisibility", &error))
    }

    pub(crate) fn error<E: ProvideErrorMetadata, R>(
        &self,
        call: &'static str,
        error: &SdkError<E, R>,
    ) -> QueueError {
        let timeout = match error {
            SdkError::TimeoutError(_) => true,
            SdkError::DispatchFailure(failure) => failure.is_timeout(),
            SdkError::ServiceError(_)
            | SdkError::ResponseError(_)
            | SdkError::ConstructionFailure(_)
            | _ => false,
        };
        let (class, problem) = if timeout {
            ("queue_timeout", "no answer in time".to_owned())
        } else if let Some(code) = error.code() {
            ("queue_refused", format!("{code}: {}", error.message().unwrap_or("")))
        } else {
            ("queue_unreachable", "cannot reach SQS".to_owned())
        };
        QueueError { call, queue: self.url.clone(), problem, class }
    }
}

/// A call to SQS that was not confirmed.
#[derive(Debug, thiserror::Error)]
#[error("{call} on {queue}: {problem}")]
pub struct QueueError {
    call: &'static str,
    queue: String,
    problem: String,
    class: &'static str,
}

impl QueueError {
    /// A short name for logs and metrics.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        self.class
    }
}

/// SQS takes ten messages a call, of a megabyte in all; a message of ours has less than two kB.
const MESSAGES_A_CALL: usize = 10;
