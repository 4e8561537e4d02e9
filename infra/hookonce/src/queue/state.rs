//! The queues as a state machine: every SQS operation as a function of state, request and time.
//!
//! Pure: no clock (`now_ms` is an argument), no randomness (ids derive from a seed and a counter),
//! no waiting (a receive answers at once; the shell polls again at [`Queues::next_visible_ms`]).
//! Nothing outlives the process.
//!
//! Follows the AWS documentation, and where that is silent what has been observed of AWS. Left out
//! on purpose: the waits of a minute after deleting or purging a queue, which protect a distributed
//! service and would only slow tests down.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use super::attributes::{Attributes, INERT, SETTABLE};
use super::error::QueueError;
use super::limits;
use super::message::{Content, Outgoing, md5_of_attributes, md5_of_body};
use super::store::{Delivered, Hold, Message, Seq, Store, Take};

/// All queues of the endpoint.
#[derive(Debug)]
pub(super) struct Queues {
    ids: Ids,
    queues: BTreeMap<String, Queue>,
}

/// What a sender learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) message_id: String,
    pub(super) body_md5: String,
    pub(super) attributes_md5: Option<String>,
    pub(super) system_attributes_md5: Option<String>,
    /// FIFO only.
    pub(super) sequence_number: Option<String>,
}

/// What a receive asks for, as it came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ask {
    pub(super) max_messages: Option<i64>,
    pub(super) visibility_s: Option<i64>,
    pub(super) wait_s: Option<i64>,
}

/// What a receive yields.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) messages: Vec<Incoming>,
    /// The queue that got messages by redrive; whoever waits on it must look again.
    pub(super) redriven_to: Option<String>,
}

/// One message as its consumer gets it.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) receipt_handle: String,
    pub(super) sequence_number: Option<String>,
    pub(super) delivered: Delivered,
}

/// One page of queue names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) names: Vec<String>,
    pub(super) next_token: Option<String>,
}

/// A batch entry's own result beside its id.
pub(super) type Entries<T> = Vec<(String, T)>;

/// Results of a batch: the entries succeed and fail one by one.
pub(super) type Outcomes<T> = Entries<Result<T, QueueError>>;

#[derive(Debug)]
struct Queue {
    /// Tells this queue from an earlier one of the same name.
    id: u64,
    attributes: Attributes,
    created_ms: u64,
    modified_ms: u64,
    store: Store,
    deduplication: Deduplication,
}

/// Source of unique numbers and of ids that look random and are not.
#[derive(Debug)]
struct Ids {
    seed: u64,
    last: u64,
}

/// Receipt handle, decoded: which receive of which message.
#[derive(Debug, Clone, Copy)]
struct Receipt {
    queue: u64,
    seq: Seq,
    number: u32,
}

/// Deduplication ids a FIFO queue has accepted lately, with what it answered.
#[derive(Debug, Default)]
struct Deduplication {
    accepted: HashMap<DeduplicationKey, Accepted>,
    order: VecDeque<(u64, DeduplicationKey)>,
}

/// The group stands in it only when ids count per group.
type DeduplicationKey = (Option<String>, String);

#[derive(Debug, Clone)]
struct Accepted {
    message_id: String,
    seq: Seq,
}

impl Queues {
    /// No queues. Two instances with one seed give the same ids for the same calls.
    pub(super) fn new(seed: u64) -> Self {
        Self { ids: Ids { seed, last: 0 }, queues: BTreeMap::new() }
    }

    /// Idempotent: an existing queue is fine unless a requested attribute differs from its own.
    pub(super) fn create(
        &mut self,
        name: &str,
        requested: &BTreeMap<String, String>,
        now_ms: u64,
    ) -> Result<(), QueueError> {
        let existing = self.queues.get(name).map(|queue| &queue.attributes);
        let mut attributes = existing.cloned().unwrap_or_default();
        for (attribute, value) in requested {
            attributes.set(attribute, value)?;
        }
        if let Some(existing) = existing {
            return match existing.first_difference(&attributes) {
                None => Ok(()),
                Some(attribute) => {
                    Err(QueueError::QueueNameExists { attribute: attribute.to_owned() })
                }
            };
        }
        check_name(name, attributes.fifo)?;
        self.check_settings(name, &attributes)?;
        let queue = Queue {
            id: self.ids.next(),
            created_ms: now_ms,
            modified_ms: now_ms,
            store: Store::new(attributes.fifo),
            deduplication: Deduplication::default(),
            attributes,
        };
        self.queues.insert(name.to_owned(), queue);
        Ok(())
    }

    pub(super) fn delete_queue(&mut self, name: &str) -> Result<(), QueueError> {
        self.queues.remove(name).map(|_| ()).ok_or(QueueError::QueueDoesNotExist)
    }

    /// Whether there is such a queue, for calls that need no more.
    pub(super) fn check_exists(&self, name: &str) -> Result<(), QueueError> {
        self.queue(name).map(|_| ())
    }

    /// Names in order; a page ends early only when the caller bounded it.
    pub(super) fn list(
        &self,
        prefix: &str,
        max: Option<i64>,
        after: Option<&str>,
    ) -> Result<Page, QueueError> {
        let reason = "Must be between 1 and 1000, if provided.";
        let bounds = (1, limits::MAX_LISTED_QUEUES as u64);
        let limit = match max {
            None => limits::MAX_LISTED_QUEUES,
            Some(max) => in_range("MaxResults", max, bounds, reason)? as usize,
        };
        let mut matching = self
            .queues
            .range::<str, _>((Included(prefix), Unbounded))
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(prefix))
            .filter(|name| after.is_none_or(|after| name.as_str() > after));
        let names: Vec<String> = matching.by_ref().take(limit).cloned().collect();
        let more = max.is_some() && matching.next().is_some();
        let next_token = if more { names.last().cloned() } else { None };
        Ok(Page { names, next_token })
    }

    /// The attributes asked for; `All` stands for every one that has a value.
    pub(super) fn attributes(
        &mut self,
        name: &str,
        wanted: &[String],
        now_ms: u64,
    ) -> Result<BTreeMap<String, String>, QueueError> {
        let queue = self.settled(name, now_ms)?;
        let mut names = BTreeSet::new();
        for wanted in wanted {
            match wanted.as_str() {
                "All" => names.extend(SETTABLE.iter().chain(&INERT).chain(&OBSERVED).copied()),
                one => {
                    let known = SETTABLE.iter().chain(&INERT).chain(&OBSERVED).find(|&&n| n == one);
                    let unknown = || QueueError::InvalidAttributeName { name: one.to_owned() };
                    names.insert(*known.ok_or_else(unknown)?);
                }
            }
        }
        let value = |attribute: &str| {
            queue.observed(name, attribute).or_else(|| queue.attributes.get(attribute))
        };
        Ok(names.into_iter().filter_map(|n| Some((n.to_owned(), value(n)?))).collect())
    }

    /// All or nothing. Messages already hidden or delayed keep the moment they were given.
    pub(super) fn set_attributes(
        &mut self,
        name: &str,
        changes: &BTreeMap<String, String>,
        now_ms: u64,
    ) -> Result<(), QueueError> {
        let mut attributes = self.queue(name)?.attributes.clone();
        for (attribute, value) in changes {
            if attribute == "FifoQueue" {
                return Err(QueueError::InvalidAttributeName { name: attribute.clone() });
            }
            attributes.set(attribute, value)?;
        }
        self.check_settings(name, &attributes)?;
        let queue = self.settled(name, now_ms)?;
        queue.attributes = attributes;
        queue.modified_ms = now_ms;
        Ok(())
    }

    pub(super) fn purge(&mut self, name: &str, now_ms: u64) -> Result<(), QueueError> {
        self.settled(name, now_ms)?.store.purge();
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        name: &str,
        outgoing: Outgoing,
        now_ms: u64,
    ) -> Result<Sent, QueueError> {
        self.settled(name, now_ms)?;
        let Self { ids, queues } = self;
        let queue = queues.get_mut(name).ok_or(QueueError::QueueDoesNotExist)?;
        queue.send(ids, outgoing, now_ms)
    }

    pub(super) fn send_batch(
        &mut self,
        name: &str,
        entries: Entries<Outgoing>,
        now_ms: u64,
    ) -> Result<Outcomes<Sent>, QueueError> {
        self.queue(name)?;
        check_batch("SendMessageBatchRequestEntry", &entries)?;
        let got = entries.iter().map(|(_, outgoing)| outgoing.bytes()).sum();
        if got > limits::MAX_MESSAGE_BYTES {
            return Err(QueueError::BatchRequestTooLong { got });
        }
        Ok(each(entries, |outgoing| self.send(name, outgoing, now_ms)))
    }

    /// Hands out visible messages. A message whose receives are used up moves to the dead-letter
    /// queue instead, here and not earlier, since only this receive would exceed the count.
    pub(super) fn receive(
        &mut self,
        name: &str,
        ask: &Ask,
        now_ms: u64,
    ) -> Result<Received, QueueError> {
        let target = self.redrive_target(name)?;
        let queue = self.settled(name, now_ms)?;
        let wait_s = queue.wait_s(ask)?;
        let Some(take) = queue.take(ask, wait_s, target.is_some())? else {
            return Ok(Received::default());
        };
        let taken = queue.store.receive(&take, now_ms);
        let (id, fifo) = (queue.id, queue.attributes.fifo);
        let messages =
            taken.delivered.into_iter().map(|d| self.ids.incoming(id, fifo, d)).collect();
        let Some(target) = target.filter(|_| !taken.exhausted.is_empty()) else {
            return Ok(Received { messages, redriven_to: None });
        };
        for message in taken.exhausted {
            self.redrive(name, &target, message, now_ms);
        }
        Ok(Received { messages, redriven_to: Some(target) })
    }

    /// How long a receive may wait for a first message.
    pub(super) fn wait_s(&self, name: &str, ask: &Ask) -> Result<u64, QueueError> {
        self.queue(name)?.wait_s(ask)
    }

    /// When a hidden message of the queue becomes visible next.
    pub(super) fn next_visible_ms(&self, name: &str) -> Option<u64> {
        self.queues.get(name)?.store.next_visible_ms()
    }

    /// Deletes what the receipt stands for. On a standard queue an old receipt succeeds without
    /// effect and a lapsed one still deletes; a FIFO queue refuses both, since order may have
    /// moved on.
    pub(super) fn delete(
        &mut self,
        name: &str,
        handle: &str,
        now_ms: u64,
    ) -> Result<(), QueueError> {
        let receipt = self.receipt(name, handle)?;
        let queue = self.settled(name, now_ms)?;
        match queue.store.hold(receipt.seq, receipt.number) {
            Hold::Gone => Ok(()),
            Hold::Superseded | Hold::Lapsed if queue.attributes.fifo => Err(expired(handle)),
            Hold::Superseded => Ok(()),
            Hold::Lapsed | Hold::Held { .. } => {
                queue.store.detach(receipt.seq);
                Ok(())
            }
        }
    }

    pub(super) fn delete_batch(
        &mut self,
        name: &str,
        entries: Entries<String>,
        now_ms: u64,
    ) -> Result<Outcomes<()>, QueueError> {
        self.queue(name)?;
        check_batch("DeleteMessageBatchRequestEntry", &entries)?;
        Ok(each(entries, |handle| self.delete(name, &handle, now_ms)))
    }

    /// Hides a held message for `timeout_s` from now; zero gives it back. A receipt that no longer
    /// holds the message must not touch its successor's timeout.
    pub(super) fn change_visibility(
        &mut self,
        name: &str,
        handle: &str,
        timeout_s: i64,
        now_ms: u64,
    ) -> Result<(), QueueError> {
        self.queue(name)?;
        let timeout_s = visibility(timeout_s)?;
        let receipt = self.receipt(name, handle)?;
        let queue = self.settled(name, now_ms)?;
        match queue.store.hold(receipt.seq, receipt.number) {
            Hold::Gone | Hold::Superseded => Err(QueueError::parameter(
                "ReceiptHandle",
                handle,
                "Message does not exist or is not available for visibility timeout change.",
            )),
            Hold::Lapsed if queue.attributes.fifo => Err(expired(handle)),
            // Observed of AWS, whatever MessageNotInflight in its model suggests.
            Hold::Lapsed => Ok(()),
            Hold::Held { since_ms } => {
                let until_ms = now_ms.saturating_add(timeout_s * 1000);
                if until_ms.saturating_sub(since_ms) > limits::MAX_VISIBILITY_S * 1000 {
                    return Err(QueueError::parameter(
                        "VisibilityTimeout",
                        timeout_s,
                        "Total VisibilityTimeout for the message is beyond the limit [43200 \
                         seconds].",
                    ));
                }
                queue.store.hide(receipt.seq, since_ms, until_ms);
                Ok(())
            }
        }
    }

    pub(super) fn change_visibility_batch(
        &mut self,
        name: &str,
        entries: Entries<(String, i64)>,
        now_ms: u64,
    ) -> Result<Outcomes<()>, QueueError> {
        self.queue(name)?;
        check_batch("ChangeMessageVisibilityBatchRequestEntry", &entries)?;
        Ok(each(entries, |(handle, timeout_s)| {
            self.change_visibility(name, &handle, timeout_s, now_ms)
        }))
    }

    fn queue(&self, name: &str) -> Result<&Queue, QueueError> {
        self.queues.get(name).ok_or(QueueError::QueueDoesNotExist)
    }

    fn settled(&mut self, name: &str, now_ms: u64) -> Result<&mut Queue, QueueError> {
        let queue = self.queues.get_mut(name).ok_or(QueueError::QueueDoesNotExist)?;
        queue.store.settle(now_ms, queue.attributes.retention_s * 1000);
        Ok(queue)
    }

    /// Refuses combinations that no single attribute shows to be wrong.
    fn check_settings(&self, name: &str, attributes: &Attributes) -> Result<(), QueueError> {
        let fifo_only = [
            ("ContentBasedDeduplication", attributes.content_based_deduplication),
            ("DeduplicationScope", attributes.deduplicate_per_group),
        ];
        if let Some((attribute, _)) = fifo_only.iter().find(|(_, on)| *on && !attributes.fifo) {
            return Err(QueueError::InvalidAttributeName { name: (*attribute).to_owned() });
        }
        let Some(policy) = &attributes.redrive else { return Ok(()) };
        let refuse =
            |reason| Err(QueueError::parameter("RedrivePolicy", &policy.target_arn, reason));
        let Some(target) = queue_name_of_arn(&policy.target_arn) else {
            return refuse("The dead letter target is no queue ARN of this endpoint.");
        };
        if target == name {
            return refuse("A queue cannot be its own dead letter target.");
        }
        match self.queues.get(target) {
            None => refuse("Dead letter target does not exist."),
            Some(queue) if queue.attributes.fifo != attributes.fifo => {
                refuse("The dead letter queue must be of the same type as the source queue.")
            }
            Some(_) => Ok(()),
        }
    }

    /// The dead-letter queue, while it exists; without it messages stay where they are.
    fn redrive_target(&self, name: &str) -> Result<Option<String>, QueueError> {
        let policy = self.queue(name)?.attributes.redrive.as_ref();
        let target = policy.and_then(|policy| queue_name_of_arn(&policy.target_arn));
        Ok(target.filter(|target| self.queues.contains_key(*target)).map(str::to_owned))
    }

    /// The message keeps its id, its sent time and what the API counts; the dead-letter queue
    /// counts receives for its own policy afresh. Retention goes on from the first enqueue, except
    /// in FIFO queues, where it starts again.
    fn redrive(&mut self, source: &str, target: &str, message: Message, now_ms: u64) {
        let seq = self.ids.next();
        let Some(queue) = self.queues.get_mut(target) else { return };
        let enqueued_ms = if queue.attributes.fifo { now_ms } else { message.enqueued_ms };
        let moved = Message {
            enqueued_ms,
            receives_here: 0,
            source_arn: Some(arn_of_queue(source)),
            ..message
        };
        queue.store.insert(seq, moved, now_ms, now_ms);
    }

    /// Reads a handle and refuses one that was never given out for this queue.
    fn receipt(&self, name: &str, handle: &str) -> Result<Receipt, QueueError> {
        let queue = self.queue(name)?;
        self.ids
            .parse_receipt(handle)
            .filter(|receipt| receipt.queue == queue.id)
            .ok_or_else(|| QueueError::ReceiptHandleIsInvalid { handle: handle.to_owned() })
    }
}

impl Queue {
    fn send(&mut self, ids: &mut Ids, outgoing: Outgoing, now_ms: u64) -> Result<Sent, QueueError> {
        outgoing.check()?;
        self.check_size(&outgoing)?;
        let delay_ms = self.delay_s(&outgoing)? * 1000;
        let deduplication = self.deduplication_id(&outgoing)?;
        let key = self.deduplication_key(&outgoing, deduplication.as_ref());
        let mut sent = Sent::draft(&outgoing);
        self.deduplication.forget(now_ms);
        if let Some(accepted) = key.as_ref().and_then(|key| self.deduplication.accepted.get(key)) {
            sent.message_id = accepted.message_id.clone();
            sent.sequence_number = Some(sequence_number(accepted.seq));
            return Ok(sent);
        }
        let seq = ids.next();
        sent.message_id = ids.message_id(seq);
        sent.sequence_number = self.attributes.fifo.then(|| sequence_number(seq));
        if let Some(key) = key {
            let accepted = Accepted { message_id: sent.message_id.clone(), seq };
            self.deduplication.remember(key, accepted, now_ms);
        }
        let message = new_message(outgoing, &sent, deduplication, now_ms);
        self.store.insert(seq, message, now_ms.saturating_add(delay_ms), now_ms);
        Ok(sent)
    }

    fn check_size(&self, outgoing: &Outgoing) -> Result<(), QueueError> {
        let limit = self.attributes.maximum_message_bytes;
        if outgoing.bytes() <= limit {
            return Ok(());
        }
        Err(QueueError::parameter(
            "MessageBody",
            format!("of {} bytes", outgoing.bytes()),
            &format!("Message must be shorter than {limit} bytes."),
        ))
    }

    fn delay_s(&self, outgoing: &Outgoing) -> Result<u64, QueueError> {
        match outgoing.delay_s {
            None => Ok(self.attributes.delay_s),
            // A delay of its own would let a message overtake or hold up its group.
            Some(delay) if self.attributes.fifo && delay != 0 => Err(QueueError::parameter(
                "DelaySeconds",
                delay,
                "The request include parameter that is not valid for this queue type.",
            )),
            Some(_) if self.attributes.fifo => Ok(self.attributes.delay_s),
            Some(delay) => {
                let reason = "DelaySeconds must be >= 0 and <= 900.";
                in_range("DelaySeconds", delay, (0, limits::MAX_DELAY_S), reason)
            }
        }
    }

    /// The id under which repeats are recognised; on a standard queue none is allowed.
    fn deduplication_id(&self, outgoing: &Outgoing) -> Result<Option<String>, QueueError> {
        match (&outgoing.deduplication, self.attributes.fifo) {
            (Some(id), false) => Err(QueueError::parameter(
                "MessageDeduplicationId",
                id,
                "The request includes a parameter that is not valid for this queue type.",
            )),
            (None, false) => Ok(None),
            (_, true) if outgoing.group.is_none() => {
                Err(QueueError::MissingParameter { parameter: "MessageGroupId" })
            }
            (Some(id), true) => Ok(Some(id.clone())),
            (None, true) if self.attributes.content_based_deduplication => {
                Ok(Some(outgoing.content_deduplication_id()))
            }
            (None, true) => Err(QueueError::parameter(
                "MessageDeduplicationId",
                "null",
                "The queue should either have ContentBasedDeduplication enabled or \
                 MessageDeduplicationId provided explicitly.",
            )),
        }
    }

    fn deduplication_key(
        &self,
        outgoing: &Outgoing,
        id: Option<&String>,
    ) -> Option<DeduplicationKey> {
        let group = outgoing.group.clone().filter(|_| self.attributes.deduplicate_per_group);
        id.map(|id| (group, id.clone()))
    }

    fn wait_s(&self, ask: &Ask) -> Result<u64, QueueError> {
        let reason = "Must be >= 0 and <= 20, if provided.";
        match ask.wait_s {
            None => Ok(self.attributes.wait_s),
            Some(wait) => in_range("WaitTimeSeconds", wait, (0, limits::MAX_WAIT_S), reason),
        }
    }

    /// What to take from the store; nothing when so much is in flight that the answer is empty.
    fn take(&self, ask: &Ask, wait_s: u64, redrives: bool) -> Result<Option<Take>, QueueError> {
        let reason = "Must be between 1 and 10, if provided.";
        let bounds = (1, limits::MAX_BATCH_ENTRIES as u64);
        let max = in_range("MaxNumberOfMessages", ask.max_messages.unwrap_or(1), bounds, reason)?;
        let visibility_s = ask.visibility_s.map_or(Ok(self.attributes.visibility_s), visibility)?;
        let fifo = self.attributes.fifo;
        let limit = if fifo { limits::MAX_IN_FLIGHT_FIFO } else { limits::MAX_IN_FLIGHT };
        let room = limit.saturating_sub(self.store.counts().in_flight);
        // Only a short poll on a standard queue is told; everyone else just gets nothing.
        if room == 0 && !fifo && wait_s == 0 {
            return Err(QueueError::OverLimit { limit });
        }
        let policy = self.attributes.redrive.as_ref().filter(|_| redrives);
        Ok((room > 0).then(|| Take {
            max: room.min(max as usize),
            visibility_ms: visibility_s * 1000,
            max_receives: policy.map(|policy| policy.max_receives),
        }))
    }

    /// Attributes that are facts about the queue rather than settings.
    fn observed(&self, name: &str, attribute: &str) -> Option<String> {
        let counts = self.store.counts();
        let value = match attribute {
            "ApproximateNumberOfMessages" => counts.visible.to_string(),
            "ApproximateNumberOfMessagesNotVisible" => counts.in_flight.to_string(),
            "ApproximateNumberOfMessagesDelayed" => counts.delayed.to_string(),
            "CreatedTimestamp" => (self.created_ms / 1000).to_string(),
            "LastModifiedTimestamp" => (self.modified_ms / 1000).to_string(),
            "QueueArn" => arn_of_queue(name),
            _ => return None,
        };
        Some(value)
    }
}

impl Sent {
    /// The digests, which are the same whether the message is new or a repeat.
    fn draft(outgoing: &Outgoing) -> Self {
        Self {
            message_id: String::new(),
            body_md5: md5_of_body(&outgoing.body),
            attributes_md5: md5_of_attributes(&outgoing.attributes),
            system_attributes_md5: md5_of_attributes(&outgoing.system_attributes),
            sequence_number: None,
        }
    }
}

impl Ids {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Unique because the mixing below maps different numbers to different ones.
    fn message_id(&self, number: u64) -> String {
        let high = mix(self.seed.wrapping_add(number));
        let low = mix(high ^ self.seed);
        let bits = (u128::from(high) << 64) | u128::from(low);
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }

    fn incoming(&self, queue: u64, fifo: bool, delivered: Delivered) -> Incoming {
        let receipt = Receipt { queue, seq: delivered.seq, number: delivered.receipt };
        Incoming {
            receipt_handle: self.render_receipt(receipt),
            sequence_number: fifo.then(|| sequence_number(delivered.seq)),
            delivered,
        }
    }

    /// Readable on purpose. The last part ties the handle to this run, so that one kept over a
    /// restart is refused instead of deleting another message.
    fn render_receipt(&self, receipt: Receipt) -> String {
        let Receipt { queue, seq, number } = receipt;
        format!("{queue:x}-{seq:x}-{number:x}-{:016x}", self.check_of(receipt))
    }

    fn parse_receipt(&self, handle: &str) -> Option<Receipt> {
        let mut parts = handle.split('-');
        let mut next = || u64::from_str_radix(parts.next()?, 16).ok();
        let receipt =
            Receipt { queue: next()?, seq: next()?, number: u32::try_from(next()?).ok()? };
        // Rendering again also refuses other spellings of the same numbers.
        (self.render_receipt(receipt) == handle).then_some(receipt)
    }

    fn check_of(&self, receipt: Receipt) -> u64 {
        mix(mix(mix(self.seed ^ receipt.queue) ^ receipt.seq) ^ u64::from(receipt.number))
    }
}

impl Deduplication {
    fn forget(&mut self, now_ms: u64) {
        while let Some((accepted_ms, _)) = self.order.front()
            && accepted_ms.saturating_add(limits::DEDUPLICATION_WINDOW_MS) <= now_ms
        {
            if let Some((_, key)) = self.order.pop_front() {
                self.accepted.remove(&key);
            }
        }
    }

    fn remember(&mut self, key: DeduplicationKey, accepted: Accepted, now_ms: u64) {
        self.order.push_back((now_ms, key.clone()));
        self.accepted.insert(key, accepted);
    }
}

fn new_message(
    outgoing: Outgoing,
    sent: &Sent,
    deduplication: Option<String>,
    now_ms: u64,
) -> Message {
    let content = Content {
        id: sent.message_id.clone(),
        body: outgoing.body,
        body_md5: sent.body_md5.clone(),
        attributes: outgoing.attributes,
        system_attributes: outgoing.system_attributes,
        sent_ms: now_ms,
        group: outgoing.group.map(Arc::from),
        deduplication,
    };
    Message {
        content: Arc::new(content),
        enqueued_ms: now_ms,
        receives: 0,
        receives_here: 0,
        first_received_ms: None,
        source_arn: None,
    }
}

/// The ARN of a queue of this endpoint.
fn arn_of_queue(name: &str) -> String {
    format!("{ARN_PREFIX}{name}")
}

fn queue_name_of_arn(arn: &str) -> Option<&str> {
    arn.strip_prefix(ARN_PREFIX)
}

/// Twenty digits, the width AWS uses, so that numbers compare as strings too.
fn sequence_number(seq: Seq) -> String {
    format!("{seq:020}")
}

fn expired(handle: &str) -> QueueError {
    QueueError::parameter("ReceiptHandle", handle, "The receipt handle has expired.")
}

fn check_name(name: &str, fifo: bool) -> Result<(), QueueError> {
    let stem = if fifo { name.strip_suffix(".fifo") } else { Some(name) };
    let valid = |stem: &str| {
        !stem.is_empty()
            && name.len() <= limits::MAX_NAME_BYTES
            && stem.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if stem.is_some_and(valid) {
        return Ok(());
    }
    let reason = if fifo {
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or \
         underscores, must end with .fifo suffix and be 1 to 80 in length."
    } else {
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
    };
    Err(QueueError::parameter("QueueName", name, reason))
}

fn check_batch<T>(entry: &'static str, entries: &[(String, T)]) -> Result<(), QueueError> {
    if entries.is_empty() {
        return Err(QueueError::EmptyBatchRequest { entry });
    }
    if entries.len() > limits::MAX_BATCH_ENTRIES {
        return Err(QueueError::TooManyEntriesInBatchRequest { got: entries.len() });
    }
    let mut seen = BTreeSet::new();
    for (id, _) in entries {
        let fits = !id.is_empty() && id.len() <= limits::MAX_NAME_BYTES;
        if !fits || !id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Err(QueueError::InvalidBatchEntryId);
        }
        if !seen.insert(id) {
            return Err(QueueError::BatchEntryIdsNotDistinct { id: id.clone() });
        }
    }
    Ok(())
}

fn each<T, U>(entries: Entries<T>, mut act: impl FnMut(T) -> Result<U, QueueError>) -> Outcomes<U> {
    entries.into_iter().map(|(id, entry)| (id, act(entry))).collect()
}

fn visibility(timeout_s: i64) -> Result<u64, QueueError> {
    let reason = "VisibilityTimeout must be an integer between 0 and 43200.";
    in_range("VisibilityTimeout", timeout_s, (0, limits::MAX_VISIBILITY_S), reason)
}

fn in_range(
    parameter: &str,
    value: i64,
    (min, max): (u64, u64),
    reason: &str,
) -> Result<u64, QueueError> {
    u64::try_from(value)
        .ok()
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| QueueError::parameter(parameter, value, reason))
}

/// The finaliser of SplitMix64: a bijection that spreads neighbouring numbers apart.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

const ARN_PREFIX: &str = "arn:aws:sqs:us-east-1:000000000000:";

const OBSERVED: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];

#[cfg(test)]
mod tests;
