//! The JSON 1.0 protocol: typed requests in, typed answers out.
//!
//! [`decode`] turns a target and a body into a [`Call`]; nothing of it touches the queues, so it
//! runs outside their lock. Unknown fields are ignored, since SDKs grow them; missing ones are
//! named. Which queue a URL means is decided by its last path segment alone, so that clients may
//! reach the endpoint under any host.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::QueueError;
use super::message::{AttributeMap, AttributeValue, Outgoing, Payload, md5_of_attributes};
use super::state::{Ask, Incoming, Outcomes, Queues, Sent};

/// A request, decoded.
pub(super) enum Call {
    /// Answers at once.
    Direct(Box<dyn Operation>),
    /// May wait for a message.
    Receive(Receive),
}

/// What an operation may know besides the queues.
pub(super) struct Context<'a> {
    pub(super) now_ms: u64,
    /// Scheme and authority of queue URLs.
    pub(super) base_url: &'a str,
}

/// An operation that answers at once.
pub(super) trait Operation: Send {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome;
}

/// The answer of an operation, and the queue whose waiting receives must look again.
pub(super) type Outcome = Result<Reply, QueueError>;

/// An answered operation.
pub(super) struct Reply {
    pub(super) body: String,
    pub(super) changed: Option<String>,
}

/// A receive, checked as far as the protocol goes.
pub(super) struct Receive {
    pub(super) queue: String,
    pub(super) ask: Ask,
    system: SystemAttributes,
    attributes: Vec<String>,
}

/// Reads the action from the target and its request from the body.
pub(super) fn decode(target: &str, body: &[u8]) -> Result<Call, QueueError> {
    let unknown = || QueueError::UnknownAction { action: target.to_owned() };
    let action = target.strip_prefix(TARGET_PREFIX).ok_or_else(unknown)?;
    match action {
        "CreateQueue" => direct::<CreateQueue>(action, body),
        "DeleteQueue" => direct::<DeleteQueue>(action, body),
        "GetQueueUrl" => direct::<GetQueueUrl>(action, body),
        "ListQueues" => direct::<ListQueues>(action, body),
        "GetQueueAttributes" => direct::<GetQueueAttributes>(action, body),
        "SetQueueAttributes" => direct::<SetQueueAttributes>(action, body),
        "PurgeQueue" => direct::<PurgeQueue>(action, body),
        "SendMessage" => direct::<SendMessage>(action, body),
        "SendMessageBatch" => direct::<SendMessageBatch>(action, body),
        "DeleteMessage" => direct::<DeleteMessage>(action, body),
        "DeleteMessageBatch" => direct::<DeleteMessageBatch>(action, body),
        "ChangeMessageVisibility" => direct::<ChangeMessageVisibility>(action, body),
        "ChangeMessageVisibilityBatch" => direct::<ChangeMessageVisibilityBatch>(action, body),
        "ReceiveMessage" => parse::<ReceiveMessage>(action, body)?.check().map(Call::Receive),
        _ => Err(unknown()),
    }
}

impl Receive {
    /// The answer to a receive, with the attributes it asked for.
    pub(super) fn answer(&self, messages: &[Incoming]) -> String {
        let messages = messages.iter().map(|message| self.render(message)).collect();
        json(&ReceiveMessageAnswer { messages })
    }

    fn render<'a>(&self, incoming: &'a Incoming) -> MessageOut<'a> {
        let content = &incoming.delivered.content;
        let attributes: BTreeMap<&String, &AttributeValue> =
            content.attributes.iter().filter(|(name, _)| self.wants(name)).collect();
        MessageOut {
            message_id: &content.id,
            receipt_handle: &incoming.receipt_handle,
            body_md5: &content.body_md5,
            body: &content.body,
            attributes: self.system.pick(incoming),
            attributes_md5: md5_of_attributes(
                attributes.iter().map(|(name, value)| (*name, *value)),
            ),
            message_attributes: attributes
                .into_iter()
                .map(|(name, value)| (name.as_str(), AttributeOut::from(value)))
                .collect(),
        }
    }

    /// Names may be exact, `All`, or end in `.*`.
    fn wants(&self, name: &str) -> bool {
        self.attributes.iter().any(|wanted| match wanted.strip_suffix(".*") {
            Some(prefix) => {
                prefix.is_empty()
                    || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
            }
            None => wanted == "All" || wanted == name,
        })
    }
}

/// The body of a refusal; its codes also go into a header.
pub(super) fn refusal(error: &QueueError) -> String {
    #[derive(Serialize)]
    struct Refusal {
        #[serde(rename = "__type")]
        shape: String,
        message: String,
    }
    json(&Refusal { shape: error.codes().shape, message: error.to_string() })
}

/// The system attributes a receive wants.
struct SystemAttributes(Vec<&'static str>);

impl SystemAttributes {
    fn parse(wanted: &[String]) -> Result<Self, QueueError> {
        let mut names = Vec::new();
        for wanted in wanted {
            if wanted == "All" {
                return Ok(Self(SYSTEM_ATTRIBUTES.to_vec()));
            }
            let known = SYSTEM_ATTRIBUTES.iter().find(|name| *name == wanted);
            names.push(
                *known
                    .ok_or_else(|| QueueError::InvalidAttributeName { name: wanted.to_owned() })?,
            );
        }
        Ok(Self(names))
    }

    fn pick<'a>(&self, incoming: &'a Incoming) -> BTreeMap<&'static str, Cow<'a, str>> {
        let value = |name| system_attribute(name, incoming);
        self.0.iter().filter_map(|&name| Some((name, value(name)?))).collect()
    }
}

fn system_attribute<'a>(name: &str, incoming: &'a Incoming) -> Option<Cow<'a, str>> {
    let delivered = &incoming.delivered;
    let content = &delivered.content;
    match name {
        "ApproximateReceiveCount" => Some(delivered.receives.to_string().into()),
        "ApproximateFirstReceiveTimestamp" => Some(delivered.first_received_ms.to_string().into()),
        "SentTimestamp" => Some(content.sent_ms.to_string().into()),
        "SenderId" => Some(SENDER_ID.into()),
        "MessageGroupId" => content.group.as_deref().map(Cow::from),
        "MessageDeduplicationId" => content.deduplication.as_deref().map(Cow::from),
        "SequenceNumber" => incoming.sequence_number.as_deref().map(Cow::from),
        "DeadLetterQueueSourceArn" => delivered.source_arn.as_deref().map(Cow::from),
        "AWSTraceHeader" => match &content.system_attributes.get(name)?.payload {
            Payload::Text(text) => Some(text.as_str().into()),
            Payload::Binary(_) => None,
        },
        _ => None,
    }
}

// Requests and their answers, in the order of `decode`.

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateQueue {
    queue_name: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

impl Operation for CreateQueue {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let name = required(self.queue_name, "QueueName")?;
        queues.create(&name, &self.attributes, context.now_ms)?;
        Ok(Reply::unchanged(&UrlAnswer { queue_url: context.url_of(&name) }))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteQueue {
    queue_url: Option<String>,
}

impl Operation for DeleteQueue {
    fn perform(self: Box<Self>, queues: &mut Queues, _: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        queues.delete_queue(&queue)?;
        Ok(Reply::changed(queue, &Nothing {}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueUrl {
    queue_name: Option<String>,
}

impl Operation for GetQueueUrl {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let name = required(self.queue_name, "QueueName")?;
        queues.check_exists(&name)?;
        Ok(Reply::unchanged(&UrlAnswer { queue_url: context.url_of(&name) }))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListQueues {
    queue_name_prefix: Option<String>,
    max_results: Option<i64>,
    next_token: Option<String>,
}

impl Operation for ListQueues {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let prefix = self.queue_name_prefix.unwrap_or_default();
        let page = queues.list(&prefix, self.max_results, self.next_token.as_deref())?;
        let queue_urls = page.names.iter().map(|name| context.url_of(name)).collect();
        Ok(Reply::unchanged(&ListQueuesAnswer { queue_urls, next_token: page.next_token }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ListQueuesAnswer {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue_urls: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributes {
    queue_url: Option<String>,
    #[serde(default)]
    attribute_names: Vec<String>,
}

impl Operation for GetQueueAttributes {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let attributes = queues.attributes(&queue, &self.attribute_names, context.now_ms)?;
        Ok(Reply::unchanged(&GetQueueAttributesAnswer { attributes }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributesAnswer {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SetQueueAttributes {
    queue_url: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

impl Operation for SetQueueAttributes {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        queues.set_attributes(&queue, &self.attributes, context.now_ms)?;
        Ok(Reply::changed(queue, &Nothing {}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PurgeQueue {
    queue_url: Option<String>,
}

impl Operation for PurgeQueue {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        queues.purge(&queue, context.now_ms)?;
        Ok(Reply::changed(queue, &Nothing {}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessage {
    queue_url: Option<String>,
    #[serde(flatten)]
    message: MessageIn,
}

impl Operation for SendMessage {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let sent = queues.send(&queue, self.message.into_outgoing()?, context.now_ms)?;
        Ok(Reply::changed(queue, &SentOut::from(sent)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessageBatch {
    queue_url: Option<String>,
    #[serde(default)]
    entries: Vec<Entry<MessageIn>>,
}

impl Operation for SendMessageBatch {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let entries = read_entries(self.entries, MessageIn::into_outgoing)?;
        let outcomes = queues.send_batch(&queue, entries, context.now_ms)?;
        Ok(Reply::changed(queue, &BatchAnswer::new(outcomes, SentOut::from)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteMessage {
    queue_url: Option<String>,
    #[serde(flatten)]
    handle: HandleIn,
}

impl Operation for DeleteMessage {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        queues.delete(&queue, &self.handle.read()?, context.now_ms)?;
        Ok(Reply::changed(queue, &Nothing {}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteMessageBatch {
    queue_url: Option<String>,
    #[serde(default)]
    entries: Vec<Entry<HandleIn>>,
}

impl Operation for DeleteMessageBatch {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let entries = read_entries(self.entries, HandleIn::read)?;
        let outcomes = queues.delete_batch(&queue, entries, context.now_ms)?;
        Ok(Reply::changed(queue, &BatchAnswer::new(outcomes, |()| Nothing {})))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeMessageVisibility {
    queue_url: Option<String>,
    #[serde(flatten)]
    change: VisibilityIn,
}

impl Operation for ChangeMessageVisibility {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let (handle, timeout_s) = self.change.read()?;
        queues.change_visibility(&queue, &handle, timeout_s, context.now_ms)?;
        Ok(Reply::changed(queue, &Nothing {}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeMessageVisibilityBatch {
    queue_url: Option<String>,
    #[serde(default)]
    entries: Vec<Entry<VisibilityIn>>,
}

impl Operation for ChangeMessageVisibilityBatch {
    fn perform(self: Box<Self>, queues: &mut Queues, context: &Context<'_>) -> Outcome {
        let queue = queue_name(self.queue_url)?;
        let entries = read_entries(self.entries, VisibilityIn::read)?;
        let outcomes = queues.change_visibility_batch(&queue, entries, context.now_ms)?;
        Ok(Reply::changed(queue, &BatchAnswer::new(outcomes, |()| Nothing {})))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessage {
    queue_url: Option<String>,
    max_number_of_messages: Option<i64>,
    visibility_timeout: Option<i64>,
    wait_time_seconds: Option<i64>,
    /// The older name for the same wish; SDKs still send either.
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

impl ReceiveMessage {
    fn check(self) -> Result<Receive, QueueError> {
        let mut system = self.attribute_names;
        system.extend(self.message_system_attribute_names);
        Ok(Receive {
            queue: queue_name(self.queue_url)?,
            ask: Ask {
                max_messages: self.max_number_of_messages,
                visibility_s: self.visibility_timeout,
                wait_s: self.wait_time_seconds,
            },
            system: SystemAttributes::parse(&system)?,
            attributes: self.message_attribute_names,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessageAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessageOut<'a>>,
}

// Parts that several of them share.

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct UrlAnswer {
    queue_url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<T> {
    id: Option<String>,
    #[serde(flatten)]
    entry: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MessageIn {
    message_body: Option<String>,
    delay_seconds: Option<i64>,
    #[serde(default)]
    message_attributes: BTreeMap<String, AttributeIn>,
    #[serde(default)]
    message_system_attributes: BTreeMap<String, AttributeIn>,
    message_group_id: Option<String>,
    message_deduplication_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeIn {
    data_type: Option<String>,
    string_value: Option<String>,
    binary_value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HandleIn {
    receipt_handle: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VisibilityIn {
    #[serde(flatten)]
    handle: HandleIn,
    visibility_timeout: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SentOut {
    message_id: String,
    #[serde(rename = "MD5OfMessageBody")]
    body_md5: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    attributes_md5: Option<String>,
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    system_attributes_md5: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_number: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MessageOut<'a> {
    message_id: &'a str,
    receipt_handle: &'a str,
    #[serde(rename = "MD5OfBody")]
    body_md5: &'a str,
    body: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, Cow<'a, str>>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    attributes_md5: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    message_attributes: BTreeMap<&'a str, AttributeOut<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeOut<'a> {
    data_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct BatchAnswer<T> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    successful: Vec<Success<T>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Failure>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Success<T> {
    id: String,
    #[serde(flatten)]
    result: T,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    id: String,
    sender_fault: bool,
    code: String,
    message: String,
}

impl MessageIn {
    fn into_outgoing(self) -> Result<Outgoing, QueueError> {
        Ok(Outgoing {
            body: required(self.message_body, "MessageBody")?,
            attributes: read_attributes(self.message_attributes)?,
            system_attributes: read_attributes(self.message_system_attributes)?,
            delay_s: self.delay_seconds,
            group: self.message_group_id,
            deduplication: self.message_deduplication_id,
        })
    }
}

impl AttributeIn {
    fn read(self, name: &str) -> Result<AttributeValue, QueueError> {
        let refuse = |reason| QueueError::parameter("MessageAttributes", name, reason);
        let data_type = self.data_type.ok_or_else(|| refuse("It must have a DataType."))?;
        let payload = match (self.string_value, self.binary_value) {
            (Some(text), None) => Payload::Text(text),
            (None, Some(encoded)) => {
                let decoded = STANDARD.decode(encoded);
                Payload::Binary(decoded.map_err(|_| refuse("BinaryValue must be base64."))?)
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(refuse("It must have either a StringValue or a BinaryValue."));
            }
        };
        Ok(AttributeValue { data_type, payload })
    }
}

impl HandleIn {
    fn read(self) -> Result<String, QueueError> {
        required(self.receipt_handle, "ReceiptHandle")
    }
}

impl VisibilityIn {
    fn read(self) -> Result<(String, i64), QueueError> {
        Ok((self.handle.read()?, required(self.visibility_timeout, "VisibilityTimeout")?))
    }
}

impl From<Sent> for SentOut {
    fn from(sent: Sent) -> Self {
        Self {
            message_id: sent.message_id,
            body_md5: sent.body_md5,
            attributes_md5: sent.attributes_md5,
            system_attributes_md5: sent.system_attributes_md5,
            sequence_number: sent.sequence_number,
        }
    }
}

impl<'a> From<&'a AttributeValue> for AttributeOut<'a> {
    fn from(value: &'a AttributeValue) -> Self {
        let (string_value, binary_value) = match &value.payload {
            Payload::Text(text) => (Some(text.as_str()), None),
            Payload::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { data_type: &value.data_type, string_value, binary_value }
    }
}

impl<T> BatchAnswer<T> {
    fn new<U>(outcomes: Outcomes<U>, render: impl Fn(U) -> T) -> Self {
        let mut answer = Self { successful: Vec::new(), failed: Vec::new() };
        for (id, outcome) in outcomes {
            match outcome {
                Ok(result) => answer.successful.push(Success { id, result: render(result) }),
                Err(error) => answer.failed.push(Failure {
                    id,
                    sender_fault: true,
                    code: error.codes().query,
                    message: error.to_string(),
                }),
            }
        }
        answer
    }
}

impl Context<'_> {
    fn url_of(&self, name: &str) -> String {
        format!("{}/{ACCOUNT}/{name}", self.base_url)
    }
}

impl Reply {
    fn unchanged(answer: &impl Serialize) -> Self {
        Self { body: json(answer), changed: None }
    }

    fn changed(queue: String, answer: &impl Serialize) -> Self {
        Self { body: json(answer), changed: Some(queue) }
    }
}

fn direct<T: Operation + DeserializeOwned + 'static>(
    action: &str,
    body: &[u8],
) -> Result<Call, QueueError> {
    parse::<T>(action, body).map(|request| Call::Direct(Box::new(request)))
}

fn parse<T: DeserializeOwned>(action: &str, body: &[u8]) -> Result<T, QueueError> {
    // Some clients send nothing at all where no field is required.
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|e| QueueError::Malformed { action: action.to_owned(), reason: e.to_string() })
}

/// Every answer is made of strings, numbers and string-keyed maps, which always serialise.
fn json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).unwrap_or_else(|_| "{}".to_owned())
}

fn required<T>(value: Option<T>, parameter: &'static str) -> Result<T, QueueError> {
    value.ok_or(QueueError::MissingParameter { parameter })
}

fn queue_name(url: Option<String>) -> Result<String, QueueError> {
    let url = required(url, "QueueUrl")?;
    let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    Ok(name.to_owned())
}

fn read_attributes(attributes: BTreeMap<String, AttributeIn>) -> Result<AttributeMap, QueueError> {
    attributes
        .into_iter()
        .map(|(name, value)| value.read(&name).map(|value| (name, value)))
        .collect()
}

/// A field missing in one entry fails the whole batch, as a malformed request.
fn read_entries<T, U>(
    entries: Vec<Entry<T>>,
    read: impl Fn(T) -> Result<U, QueueError>,
) -> Result<Vec<(String, U)>, QueueError> {
    entries.into_iter().map(|Entry { id, entry }| Ok((required(id, "Id")?, read(entry)?))).collect()
}

const TARGET_PREFIX: &str = "AmazonSQS.";

const ACCOUNT: &str = "000000000000";

/// Any caller is this one; nothing checks credentials.
const SENDER_ID: &str = "AIDAHOOKONCE000000000";

const SYSTEM_ATTRIBUTES: [&str; 9] = [
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SentTimestamp",
    "SenderId",
    "MessageGroupId",
    "MessageDeduplicationId",
    "SequenceNumber",
    "DeadLetterQueueSourceArn",
    "AWSTraceHeader",
];
