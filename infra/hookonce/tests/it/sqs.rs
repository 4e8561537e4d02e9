//! The embedded queue endpoint, spoken to by the AWS SDK: what an SDK needs to see on the wire, and
//! that long polls wake when they should. What the queues do is tested beside their state machine.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName,
    QueueAttributeName, SendMessageBatchRequestEntry,
};
use hookonce::queue::QueueServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running endpoint and a client of it.
struct Endpoint {
    client: Client,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Endpoint {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let start = Instant::now();
        let clock = move || 1_700_000_000_000 + start.elapsed().as_millis() as u64;
        let server = Arc::new(QueueServer::new(Arc::new(clock)));
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(listener, async {
            let _ = stopped.await;
        }));
        Self { client: client(&url), stop, served }
    }

    async fn queue(&self, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
        let attributes: HashMap<_, _> =
            attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned())).collect();
        let created = self.client.create_queue().queue_name(name).set_attributes(Some(attributes));
        let created = created.send().await.expect("the queue is created");
        created.queue_url.expect("it has a URL")
    }

    async fn send(&self, url: &str, body: &str) {
        let sent = self.client.send_message().queue_url(url).message_body(body).send().await;
        assert!(sent.is_ok(), "{sent:?}");
    }

    /// Receives with a long poll in the background, and waits until it has surely begun.
    async fn poll(&self, url: &str, wait_s: i32) -> JoinHandle<(Vec<Message>, Duration)> {
        let receive = self.client.receive_message().queue_url(url).wait_time_seconds(wait_s);
        let polling = tokio::spawn(async move {
            let start = Instant::now();
            let received = receive.send().await.expect("the poll is answered");
            (received.messages.unwrap_or_default(), start.elapsed())
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        polling
    }

    async fn receive_one(&self, url: &str, visibility_s: i32) -> Message {
        let receive = self.client.receive_message().queue_url(url);
        let received = receive.visibility_timeout(visibility_s).send().await.expect("answered");
        received.messages.unwrap_or_default().pop().expect("a message is there")
    }

    async fn attribute(&self, url: &str, name: QueueAttributeName) -> Option<String> {
        let attributes = self.client.get_queue_attributes().queue_url(url);
        let attributes = attributes.attribute_names(name.clone()).send().await.expect("answered");
        attributes.attributes?.remove(&name)
    }
}

fn client(url: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "static"))
        .endpoint_url(url)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}

fn text(value: &str) -> MessageAttributeValue {
    let attribute = MessageAttributeValue::builder().data_type("String").string_value(value);
    attribute.build().expect("an attribute")
}

fn code<T, E, R>(result: Result<T, SdkError<E, R>>) -> String
where
    T: std::fmt::Debug,
    SdkError<E, R>: ProvideErrorMetadata,
{
    match result {
        Ok(answer) => panic!("expected a refusal, got {answer:?}"),
        Err(error) => error.code().unwrap_or("no code").to_owned(),
    }
}

/// A prompt answer, on a machine that may be busy.
const PROMPT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn message_and_its_attributes_come_back_as_sent() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let binary = MessageAttributeValue::builder().data_type("Binary.raw");
    let binary = binary.binary_value(Blob::new([0, 255])).build().expect("an attribute");
    let send = endpoint.client.send_message().queue_url(&url).message_body("héllo \u{1F600}");
    let send = send.message_attributes("source.name", text("stripe"));
    let sent = send.message_attributes("raw", binary.clone()).send().await.expect("sent");
    assert_eq!(sent.md5_of_message_body(), Some("207dd4f0cd7a4f13b4932646cd1f8f2b"));

    let receive = endpoint.client.receive_message().queue_url(&url);
    let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
    let received = receive.message_attribute_names("All").send().await.expect("received");
    let message = &received.messages()[0];
    assert_eq!(message.body(), Some("héllo \u{1F600}"));
    assert_eq!(message.message_id(), sent.message_id());
    assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    let attributes = message.message_attributes().expect("attributes");
    assert_eq!(attributes["source.name"], text("stripe"));
    assert_eq!(attributes["raw"], binary);
    let system = message.attributes().expect("system attributes");
    assert_eq!(system[&MessageSystemAttributeName::ApproximateReceiveCount], "1");
    assert!(system.contains_key(&MessageSystemAttributeName::SentTimestamp));
    assert!(!system.contains_key(&MessageSystemAttributeName::MessageGroupId));
}

#[tokio::test]
async fn receive_returns_only_the_attributes_it_names() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let send = endpoint.client.send_message().queue_url(&url).message_body("x");
    let send = send.message_attributes("a.one", text("1")).message_attributes("a.two", text("2"));
    let sent = send.message_attributes("b", text("3")).send().await.expect("sent");

    let receive = endpoint.client.receive_message().queue_url(&url).message_attribute_names("a.*");
    #[expect(deprecated, reason = "the older field must work as well")]
    let receive = receive.attribute_names(QueueAttributeName::from("SenderId"));
    let received = receive.send().await.expect("received");
    let message = &received.messages()[0];
    let names: BTreeSet<&str> =
        message.message_attributes().expect("some").keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["a.one", "a.two"]));
    assert_ne!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    let system = message.attributes().expect("the one asked for");
    assert_eq!(system.keys().collect::<Vec<_>>(), [&MessageSystemAttributeName::SenderId]);
}

#[tokio::test]
async fn queues_are_found_listed_changed_and_deleted() {
    let endpoint = Endpoint::start().await;
    let client = &endpoint.client;
    let url = endpoint.queue("events", &[(QueueAttributeName::VisibilityTimeout, "60")]).await;
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/000000000000/events"));
    endpoint.queue("other", &[]).await;
    let found = client.get_queue_url().queue_name("events").send().await.expect("found");
    assert_eq!(found.queue_url(), Some(url.as_str()));
    let listed = client.list_queues().queue_name_prefix("ev").send().await.expect("listed");
    assert_eq!(listed.queue_urls(), std::slice::from_ref(&url));

    let change = client.set_queue_attributes().queue_url(&url);
    let change = change.attributes(QueueAttributeName::DelaySeconds, "5");
    assert!(change.send().await.is_ok());
    for (name, value) in [
        (QueueAttributeName::VisibilityTimeout, "60"),
        (QueueAttributeName::DelaySeconds, "5"),
        (QueueAttributeName::QueueArn, "arn:aws:sqs:us-east-1:000000000000:events"),
    ] {
        assert_eq!(endpoint.attribute(&url, name).await.as_deref(), Some(value));
    }
    endpoint.send(&url, "delayed").await;
    let delayed = QueueAttributeName::ApproximateNumberOfMessagesDelayed;
    assert_eq!(endpoint.attribute(&url, delayed.clone()).await.as_deref(), Some("1"));
    assert!(client.purge_queue().queue_url(&url).send().await.is_ok());
    assert_eq!(endpoint.attribute(&url, delayed).await.as_deref(), Some("0"));
    assert!(client.delete_queue().queue_url(&url).send().await.is_ok());
    let missing = client.get_queue_url().queue_name("events").send().await;
    assert_eq!(code(missing), "AWS.SimpleQueueService.NonExistentQueue");
}

#[tokio::test]
async fn sdk_recognises_the_errors() {
    let endpoint = Endpoint::start().await;
    let client = &endpoint.client;
    let url = endpoint.queue("events", &[]).await;

    let missing = client.send_message().queue_url("http://x/1/none").message_body("x").send().await;
    assert!(missing.expect_err("refused").into_service_error().is_queue_does_not_exist());
    let unreadable = client.send_message().queue_url(&url).message_body("\u{1}").send().await;
    assert!(unreadable.expect_err("refused").into_service_error().is_invalid_message_contents());
    let create = client.create_queue().queue_name("events");
    let create = create.attributes(QueueAttributeName::DelaySeconds, "1").send().await;
    assert!(create.expect_err("refused").into_service_error().is_queue_name_exists());
    let delete = client.delete_message().queue_url(&url).receipt_handle("made up").send().await;
    assert!(delete.expect_err("refused").into_service_error().is_receipt_handle_is_invalid());
    let empty = client.send_message_batch().queue_url(&url).set_entries(Some(vec![])).send().await;
    assert!(empty.expect_err("refused").into_service_error().is_empty_batch_request());
    let many = client.receive_message().queue_url(&url).max_number_of_messages(11).send().await;
    assert_eq!(code(many), "InvalidParameterValue");
    let unoffered = client.list_queue_tags().queue_url(&url).send().await;
    assert_eq!(code(unoffered), "InvalidAction");
}

#[tokio::test]
async fn batch_reports_each_entry() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let entry = |id: &str, body: &str| {
        let entry = SendMessageBatchRequestEntry::builder().id(id).message_body(body);
        entry.build().expect("an entry")
    };
    let send = endpoint.client.send_message_batch().queue_url(&url);
    let send = send.entries(entry("good", "x")).entries(entry("bad", "\0"));
    let sent = send.send().await.expect("a batch");
    assert_eq!(sent.successful()[0].id(), "good");
    assert_eq!(sent.failed()[0].id(), "bad");
    assert_eq!(sent.failed()[0].code(), "InvalidMessageContents");
    assert!(sent.failed()[0].sender_fault());

    let handle = endpoint.receive_one(&url, 30).await.receipt_handle.expect("a handle");
    let entry = DeleteMessageBatchRequestEntry::builder().id("one").receipt_handle(handle);
    let delete = endpoint.client.delete_message_batch().queue_url(&url);
    let delete = delete.entries(entry.build().expect("an entry")).send().await.expect("a batch");
    assert_eq!(delete.successful()[0].id(), "one");
    assert!(delete.failed().is_empty());
}

#[tokio::test]
async fn largest_message_passes_also_when_every_byte_is_escaped() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let body = "\n\t\"\\".repeat(256 * 1024);
    endpoint.send(&url, &body).await;
    assert_eq!(endpoint.receive_one(&url, 30).await.body(), Some(body.as_str()));
    let longer = format!("{body}x");
    let refused = endpoint.client.send_message().queue_url(&url).message_body(longer).send().await;
    assert_eq!(code(refused), "InvalidParameterValue");
}

#[tokio::test]
async fn long_poll_wakes_for_a_sent_message() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let polling = endpoint.poll(&url, 20).await;
    endpoint.send(&url, "now").await;
    let (messages, elapsed) = polling.await.expect("polled");
    assert_eq!(messages[0].body(), Some("now"));
    assert!(elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn long_poll_wakes_when_a_message_becomes_visible_again() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    endpoint.send(&url, "again").await;
    endpoint.receive_one(&url, 1).await;
    let (messages, elapsed) = endpoint.poll(&url, 20).await.await.expect("polled");
    assert_eq!(messages[0].body(), Some("again"));
    assert!(elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn long_poll_wakes_for_a_delay_that_began_after_it() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let polling = endpoint.poll(&url, 20).await;
    let send = endpoint.client.send_message().queue_url(&url).message_body("later");
    assert!(send.delay_seconds(1).send().await.is_ok());
    let (messages, elapsed) = polling.await.expect("polled");
    assert_eq!(messages[0].body(), Some("later"));
    assert!(elapsed > Duration::from_secs(1) && elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn long_poll_wakes_when_a_message_is_given_back() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    endpoint.send(&url, "back").await;
    let held = endpoint.receive_one(&url, 3600).await;
    let polling = endpoint.poll(&url, 20).await;
    let change = endpoint.client.change_message_visibility().queue_url(&url).visibility_timeout(0);
    let change = change.set_receipt_handle(held.receipt_handle).send().await;
    assert!(change.is_ok(), "{change:?}");
    let (messages, elapsed) = polling.await.expect("polled");
    assert_eq!(messages[0].body(), Some("back"));
    assert!(elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn long_poll_without_a_message_ends_empty_in_time() {
    let endpoint = Endpoint::start().await;
    let wait = [(QueueAttributeName::ReceiveMessageWaitTimeSeconds, "1")];
    let url = endpoint.queue("events", &wait).await;
    let start = Instant::now();
    let received = endpoint.client.receive_message().queue_url(&url).send().await;
    assert!(received.expect("answered").messages().is_empty());
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_secs(1) && elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn long_poll_on_a_deleted_queue_is_refused_at_once() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let receive = endpoint.client.receive_message().queue_url(&url).wait_time_seconds(20);
    let polling = tokio::spawn(receive.send());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(endpoint.client.delete_queue().queue_url(&url).send().await.is_ok());
    let refused = tokio::time::timeout(PROMPT, polling).await.expect("promptly").expect("polled");
    assert_eq!(code(refused), "AWS.SimpleQueueService.NonExistentQueue");
}

#[tokio::test]
async fn poll_whose_client_left_takes_no_message() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    endpoint.poll(&url, 20).await.abort();
    tokio::time::sleep(Duration::from_millis(200)).await;
    endpoint.send(&url, "kept").await;
    assert_eq!(endpoint.receive_one(&url, 30).await.body(), Some("kept"));
}

#[tokio::test]
async fn shutdown_answers_waiting_polls() {
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let polling = endpoint.poll(&url, 20).await;
    assert!(endpoint.stop.send(()).is_ok());
    let (messages, elapsed) = polling.await.expect("polled");
    assert!(messages.is_empty());
    assert!(elapsed < PROMPT, "{elapsed:?}");
    drop(endpoint.client);
    let served = tokio::time::timeout(PROMPT, endpoint.served).await.expect("it ends");
    assert!(served.expect("no panic").is_ok());
}

#[tokio::test]
async fn exhausted_message_wakes_the_poll_on_the_dead_letter_queue() {
    let endpoint = Endpoint::start().await;
    let dead = endpoint.queue("dead", &[]).await;
    let arn = endpoint.attribute(&dead, QueueAttributeName::QueueArn).await.expect("an ARN");
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}"#);
    let main = endpoint.queue("main", &[(QueueAttributeName::RedrivePolicy, &policy)]).await;
    endpoint.send(&main, "bad").await;
    endpoint.receive_one(&main, 0).await;
    let polling = endpoint.poll(&dead, 20).await;
    let received = endpoint.client.receive_message().queue_url(&main).send().await;
    assert!(received.expect("answered").messages().is_empty());
    let (messages, elapsed) = polling.await.expect("polled");
    assert_eq!(messages[0].body(), Some("bad"));
    assert!(elapsed < PROMPT, "{elapsed:?}");
}

#[tokio::test]
async fn deleting_the_head_of_a_group_wakes_the_poll_for_its_successor() {
    let endpoint = Endpoint::start().await;
    let fifo = [
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::ContentBasedDeduplication, "true"),
    ];
    let url = endpoint.queue("events.fifo", &fifo).await;
    for body in ["first", "second", "first"] {
        let send = endpoint.client.send_message().queue_url(&url).message_body(body);
        let sent = send.message_group_id("g").send().await.expect("sent");
        assert_eq!(sent.sequence_number().map(str::len), Some(20));
    }
    let head = endpoint.receive_one(&url, 3600).await;
    assert_eq!(head.body(), Some("first"));
    let polling = endpoint.poll(&url, 20).await;
    let delete = endpoint.client.delete_message().queue_url(&url);
    assert!(delete.set_receipt_handle(head.receipt_handle).send().await.is_ok());
    let (messages, elapsed) = polling.await.expect("polled");
    assert_eq!(messages[0].body(), Some("second"));
    assert!(elapsed < PROMPT, "{elapsed:?}");
    let visible = QueueAttributeName::ApproximateNumberOfMessages;
    assert_eq!(endpoint.attribute(&url, visible).await.as_deref(), Some("0"));
}

#[tokio::test]
async fn competing_consumers_get_every_message_once() {
    const MESSAGES: usize = 500;
    let endpoint = Endpoint::start().await;
    let url = endpoint.queue("events", &[]).await;
    let consumers: Vec<_> = (0..4)
        .map(|_| tokio::spawn(consume_until_idle(endpoint.client.clone(), url.clone())))
        .collect();
    for first in (0..MESSAGES).step_by(10) {
        let entries = (first..first + 10).map(|n| {
            let entry = SendMessageBatchRequestEntry::builder().id(n.to_string());
            entry.message_body(n.to_string()).build().expect("an entry")
        });
        let send = endpoint.client.send_message_batch().queue_url(&url);
        let sent = send.set_entries(Some(entries.collect())).send().await.expect("a batch");
        assert!(sent.failed().is_empty());
    }
    let mut bodies = Vec::new();
    for consumer in consumers {
        bodies.extend(consumer.await.expect("consumed"));
    }
    let distinct: BTreeSet<_> = bodies.iter().collect();
    assert_eq!((bodies.len(), distinct.len()), (MESSAGES, MESSAGES));
}

async fn consume_until_idle(client: Client, url: String) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let receive = client.receive_message().queue_url(&url).max_number_of_messages(10);
        let received = receive.wait_time_seconds(2).send().await.expect("answered");
        if received.messages().is_empty() {
            return bodies;
        }
        for message in received.messages.unwrap_or_default() {
            bodies.extend(message.body);
            let delete = client.delete_message().queue_url(&url);
            let deleted = delete.set_receipt_handle(message.receipt_handle).send().await;
            assert!(deleted.is_ok(), "{deleted:?}");
        }
    }
}
