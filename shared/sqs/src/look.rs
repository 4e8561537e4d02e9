//! Looking at a queue and into it, for people. Whoever looks into a queue hides what is seen from
//! everybody else for a while, and gives it back by [`Queue::keep`] with no wait.

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use domain::time::Timestamp;

use crate::{Queue, QueueError};

/// A message as it lies in a queue, ours or not.
#[derive(Clone)]
pub struct Letter {
    /// The queue's id of it.
    pub id: String,
    /// By which it is kept or deleted, until somebody else receives it.
    pub handle: String,
    /// As it was sent.
    pub body: String,
    /// When it was sent, by the queue's clock.
    pub sent_at: Option<Timestamp>,
    /// How often it was received, from every queue it lay in, this time included.
    pub receives: u32,
}

impl std::fmt::Debug for Letter {
    /// Without the body: it may be anybody's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Queue {
    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Everything that the queue says of itself, by the names SQS has for it.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn attributes(&self) -> Result<BTreeMap<String, String>, QueueError> {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = asked.attribute_names(QueueAttributeName::All).send().await;
        let answer = answer.map_err(|error| self.error("GetQueueAttributes", &error))?;
        let attributes = answer.attributes.unwrap_or_default().into_iter();
        Ok(attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect())
    }

    /// Another queue of the same account and region.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be asked for.
    pub async fn sibling(&self, name: &str) -> Result<Self, QueueError> {
        let found = self.client.get_queue_url().queue_name(name).send().await;
        let found = found.map_err(|error| self.error("GetQueueUrl", &error))?;
        let url = found.queue_url.unwrap_or_default();
        Ok(Self { client: self.client.clone(), url })
    }

    /// Up to ten messages, hidden from everybody for `hidden`. None: the queue is empty, or the
    /// rest of it is hidden.
    ///
    /// # Errors
    /// If SQS cannot be asked.
    pub async fn look_into(&self, hidden: Duration) -> Result<Vec<Letter>, QueueError> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(10)
            .visibility_timeout(i32::try_from(hidden.as_secs()).unwrap_or(i32::MAX))
            // A wait asks all of SQS's servers; without one, an answer may be empty by chance.
            .wait_time_seconds(1)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|error| self.error("ReceiveMessage", &error))?;
        let letters = received.messages.unwrap_or_default().into_iter().map(|message| {
            let attribute = |name| message.attributes.as_ref().and_then(|all| all.get(&name));
            let sent_at = attribute(MessageSystemAttributeName::SentTimestamp);
            let receives = attribute(MessageSystemAttributeName::ApproximateReceiveCount);
            Letter {
                sent_at: sent_at.and_then(|ms| ms.parse().ok()).map(Timestamp::from_millis),
                receives: receives.and_then(|count| count.parse().ok()).unwrap_or(0),
                id: message.message_id.unwrap_or_default(),
                handle: message.receipt_handle.unwrap_or_default(),
                body: message.body.unwrap_or_default(),
            }
        });
        Ok(letters.collect())
    }

    /// Deletes a message that was received.
    ///
    /// # Errors
    /// If SQS did not confirm it; the message then comes back.
    pub async fn delete(&self, handle: &str) -> Result<(), QueueError> {
        let delete = self.client.delete_message().queue_url(&self.url).receipt_handle(handle);
        let deleted = delete.send().await;
        deleted.map(drop).map_err(|error| self.error("DeleteMessage", &error))
    }
}
