//! The queues' behaviour, told call by call, and a random walk that checks what must always hold.

use super::super::message::{AttributeMap, AttributeValue, Payload};
use super::*;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

/// A world of queues with a clock that the test turns.
struct World {
    queues: Queues,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        Self { queues: Queues::new(7), now_ms: 1_700_000_000_000 }
    }

    fn with_queue(name: &str, attributes: &[(&str, &str)]) -> Self {
        let mut world = Self::new();
        assert_eq!(world.create(name, attributes), Ok(()));
        world
    }

    fn create(&mut self, name: &str, attributes: &[(&str, &str)]) -> Result<(), QueueError> {
        self.queues.create(name, &map(attributes), self.now_ms)
    }

    fn send(&mut self, name: &str, body: &str) -> Sent {
        self.queues.send(name, message(body), self.now_ms).expect("the message is sent")
    }

    fn send_to(&mut self, name: &str, group: &str, id: &str, body: &str) -> Sent {
        let outgoing = in_group(group, Some(id), body);
        self.queues.send(name, outgoing, self.now_ms).expect("the message is sent")
    }

    fn receive(&mut self, name: &str, max: i64) -> Vec<Incoming> {
        let ask = Ask { max_messages: Some(max), ..Ask::default() };
        self.queues.receive(name, &ask, self.now_ms).expect("the receive succeeds").messages
    }

    fn bodies(&mut self, name: &str, max: i64) -> Vec<String> {
        bodies(&self.receive(name, max))
    }

    fn handle(&mut self, name: &str) -> String {
        self.receive(name, 1).pop().expect("a message is there").receipt_handle
    }

    fn delete(&mut self, name: &str, handle: &str) -> Result<(), QueueError> {
        self.queues.delete(name, handle, self.now_ms)
    }

    fn hide(&mut self, name: &str, handle: &str, timeout_s: i64) -> Result<(), QueueError> {
        self.queues.change_visibility(name, handle, timeout_s, self.now_ms)
    }

    fn attribute(&mut self, name: &str, attribute: &str) -> Option<String> {
        let wanted = [attribute.to_owned()];
        let attributes = self.queues.attributes(name, &wanted, self.now_ms);
        attributes.expect("the queue exists").remove(attribute)
    }

    /// Visible, in flight, delayed.
    fn counts(&mut self, name: &str) -> [usize; 3] {
        let now_ms = self.now_ms;
        let counts = self.queues.settled(name, now_ms).expect("the queue exists").store.counts();
        [counts.visible, counts.in_flight, counts.delayed]
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn message(body: &str) -> Outgoing {
    Outgoing {
        body: body.to_owned(),
        attributes: AttributeMap::new(),
        system_attributes: AttributeMap::new(),
        delay_s: None,
        group: None,
        deduplication: None,
    }
}

fn in_group(group: &str, id: Option<&str>, body: &str) -> Outgoing {
    Outgoing {
        group: Some(group.to_owned()),
        deduplication: id.map(str::to_owned),
        ..message(body)
    }
}

fn bodies(messages: &[Incoming]) -> Vec<String> {
    messages.iter().map(|message| message.delivered.content.body.clone()).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, QueueError>) -> String {
    result.expect_err("the call is refused").codes().query
}

const FIFO: &[(&str, &str)] = &[("FifoQueue", "true")];

#[test]
fn received_message_is_hidden_until_its_timeout_ends() {
    let mut world = World::with_queue("q", &[("VisibilityTimeout", "30")]);
    world.send("q", "one");
    assert_eq!(world.bodies("q", 1), ["one"]);
    assert_eq!(world.counts("q"), [0, 1, 0]);
    world.pass(30 * SECOND - 1);
    assert!(world.receive("q", 1).is_empty());
    assert_eq!(world.queues.next_visible_ms("q"), Some(world.now_ms + 1));
    world.pass(1);
    assert_eq!(world.bodies("q", 1), ["one"]);
}

#[test]
fn receive_may_override_the_timeout() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let ask = Ask { visibility_s: Some(5), ..Ask::default() };
    let received = world.queues.receive("q", &ask, world.now_ms).expect("received");
    assert_eq!(received.messages.len(), 1);
    world.pass(5 * SECOND);
    assert_eq!(world.bodies("q", 1), ["one"]);
}

#[test]
fn changed_visibility_counts_from_the_change() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    world.pass(20 * SECOND);
    assert_eq!(world.hide("q", &handle, 60), Ok(()));
    world.pass(60 * SECOND - 1);
    assert!(world.receive("q", 1).is_empty());
    world.pass(1);
    assert_eq!(world.bodies("q", 1), ["one"]);
}

#[test]
fn zero_visibility_gives_a_message_back_at_once() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    assert_eq!(world.hide("q", &handle, 0), Ok(()));
    assert_eq!(world.bodies("q", 1), ["one"]);
}

#[test]
fn visibility_is_bounded_at_twelve_hours_from_the_receive() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    assert_eq!(code(world.hide("q", &handle, 43_201)), "InvalidParameterValue");
    assert_eq!(world.hide("q", &handle, 43_200), Ok(()));
    world.pass(1);
    assert_eq!(code(world.hide("q", &handle, 43_200)), "InvalidParameterValue");
}

#[test]
fn returned_message_queues_behind_those_already_waiting() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "failing");
    world.pass(1);
    world.send("q", "waiting");
    let handle = world.handle("q");
    world.pass(1);
    assert_eq!(world.hide("q", &handle, 0), Ok(()));
    assert_eq!(world.bodies("q", 10), ["waiting", "failing"]);
}

#[test]
fn old_receipt_neither_deletes_nor_hides_what_was_received_again() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let old = world.handle("q");
    world.pass(30 * SECOND);
    let new = world.handle("q");
    assert_ne!(old, new);
    assert_eq!(world.delete("q", &old), Ok(()));
    assert_eq!(code(world.hide("q", &old, 0)), "InvalidParameterValue");
    assert_eq!(world.counts("q"), [0, 1, 0]);
    assert_eq!(world.delete("q", &new), Ok(()));
    assert_eq!(world.counts("q"), [0, 0, 0]);
    assert_eq!(world.delete("q", &new), Ok(()), "deleting twice is no error");
    assert_eq!(code(world.hide("q", &new, 0)), "InvalidParameterValue");
}

#[test]
fn lapsed_receipt_still_deletes_but_no_longer_hides() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    world.pass(30 * SECOND);
    assert_eq!(world.hide("q", &handle, 60), Ok(()));
    assert_eq!(world.counts("q"), [1, 0, 0], "the change had no effect");
    assert_eq!(world.delete("q", &handle), Ok(()));
    assert_eq!(world.counts("q"), [0, 0, 0]);
}

#[test]
fn foreign_and_made_up_receipts_are_refused() {
    let mut world = World::with_queue("q", &[]);
    assert_eq!(world.create("other", &[]), Ok(()));
    world.send("q", "one");
    let handle = world.handle("q");
    let forged = handle.replacen('-', "-0", 1);
    for (queue, handle) in [("other", &*handle), ("q", "nonsense"), ("q", ""), ("q", &*forged)] {
        assert_eq!(code(world.delete(queue, handle)), "ReceiptHandleIsInvalid", "{handle}");
        assert_eq!(code(world.hide(queue, handle, 1)), "ReceiptHandleIsInvalid", "{handle}");
    }
    let another_run = Queues::new(8);
    assert!(another_run.ids.parse_receipt(&handle).is_none());
}

#[test]
fn recreated_queue_does_not_know_receipts_of_its_predecessor() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    assert_eq!(world.queues.delete_queue("q"), Ok(()));
    assert_eq!(world.create("q", &[]), Ok(()));
    assert_eq!(code(world.delete("q", &handle)), "ReceiptHandleIsInvalid");
}

#[test]
fn delay_of_the_message_wins_over_the_delay_of_the_queue() {
    let mut world = World::with_queue("q", &[("DelaySeconds", "10")]);
    world.send("q", "queue");
    for (delay_s, body) in [(0, "none"), (900, "long")] {
        let outgoing = Outgoing { delay_s: Some(delay_s), ..message(body) };
        assert!(world.queues.send("q", outgoing, world.now_ms).is_ok());
    }
    assert_eq!(world.counts("q"), [1, 0, 2]);
    assert_eq!(world.bodies("q", 10), ["none"]);
    world.pass(10 * SECOND);
    assert_eq!(world.bodies("q", 1), ["queue"]);
    world.pass(890 * SECOND);
    assert!(world.bodies("q", 10).contains(&"long".to_owned()));
    let outgoing = Outgoing { delay_s: Some(901), ..message("x") };
    assert_eq!(code(world.queues.send("q", outgoing, world.now_ms)), "InvalidParameterValue");
}

#[test]
fn messages_end_with_their_retention_even_in_flight() {
    let mut world = World::with_queue("q", &[("MessageRetentionPeriod", "60")]);
    world.send("q", "visible");
    world.send("q", "held");
    let handle = world.handle("q");
    assert_eq!(world.hide("q", &handle, 3600), Ok(()));
    world.pass(MINUTE - 1);
    assert_eq!(world.counts("q"), [1, 1, 0]);
    world.pass(1);
    assert_eq!(world.counts("q"), [0, 0, 0]);
}

#[test]
fn shorter_retention_applies_to_messages_already_there() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    world.pass(2 * MINUTE);
    let changes = map(&[("MessageRetentionPeriod", "60")]);
    assert_eq!(world.queues.set_attributes("q", &changes, world.now_ms), Ok(()));
    assert_eq!(world.counts("q"), [0, 0, 0]);
}

fn with_dead_letters(kind: &[(&str, &str)], [main, dead]: [&str; 2], receives: u32) -> World {
    let mut world = World::with_queue(dead, kind);
    let policy = format!(
        r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":{receives}}}"#,
        arn_of_queue(dead)
    );
    let mut attributes = kind.to_vec();
    attributes.push(("RedrivePolicy", &policy));
    assert_eq!(world.create(main, &attributes), Ok(()));
    world
}

#[test]
fn message_moves_on_the_receive_that_would_exceed_the_count() {
    let mut world = with_dead_letters(&[], ["main", "dead"], 2);
    let sent = world.send("main", "bad");
    let sent_ms = world.now_ms;
    for receives in 1..=2 {
        let received = world.receive("main", 1);
        assert_eq!(received[0].delivered.receives, receives);
        world.pass(30 * SECOND);
    }
    assert_eq!(world.counts("dead"), [0, 0, 0], "it moves on a receive, not before");

    let ask = Ask::default();
    let received = world.queues.receive("main", &ask, world.now_ms).expect("received");
    assert!(received.messages.is_empty());
    assert_eq!(received.redriven_to.as_deref(), Some("dead"));
    assert_eq!(world.counts("main"), [0, 0, 0]);

    let moved = world.receive("dead", 1).pop().expect("it is in the dead-letter queue");
    assert_eq!(moved.delivered.content.id, sent.message_id);
    assert_eq!(moved.delivered.content.sent_ms, sent_ms);
    assert_eq!(moved.delivered.receives, 3, "counted over both queues");
    assert_eq!(moved.delivered.source_arn.as_deref(), Some(arn_of_queue("main").as_str()));
}

#[test]
fn receive_passes_exhausted_messages_over() {
    let mut world = with_dead_letters(&[], ["main", "dead"], 1);
    world.send("main", "bad");
    assert_eq!(world.bodies("main", 1), ["bad"]);
    world.pass(30 * SECOND);
    world.pass(1);
    world.send("main", "good");
    assert_eq!(world.bodies("main", 1), ["good"]);
    assert_eq!(world.bodies("dead", 1), ["bad"]);
}

#[test]
fn retention_goes_on_in_the_dead_letter_queue() {
    let mut world = with_dead_letters(&[], ["main", "dead"], 1);
    let changes = map(&[("MessageRetentionPeriod", "60")]);
    assert_eq!(world.queues.set_attributes("dead", &changes, world.now_ms), Ok(()));
    world.send("main", "bad");
    world.receive("main", 1);
    world.pass(59 * SECOND);
    world.receive("main", 1);
    assert_eq!(world.counts("dead"), [1, 0, 0]);
    world.pass(SECOND);
    assert_eq!(world.counts("dead"), [0, 0, 0]);
}

#[test]
fn without_its_dead_letter_queue_a_message_stays() {
    let mut world = with_dead_letters(&[], ["main", "dead"], 1);
    world.send("main", "bad");
    assert_eq!(world.queues.delete_queue("dead"), Ok(()));
    for _ in 0..3 {
        assert_eq!(world.bodies("main", 1), ["bad"]);
        world.pass(30 * SECOND);
    }
}

#[test]
fn redrive_policy_must_name_another_queue_of_the_same_type() {
    let mut world = World::with_queue("standard", &[]);
    assert_eq!(world.create("ordered.fifo", FIFO), Ok(()));
    for target in ["missing", "ordered.fifo", "standard"] {
        let policy =
            format!(r#"{{"deadLetterTargetArn":"{ARN_PREFIX}{target}","maxReceiveCount":1}}"#);
        let changes = map(&[("RedrivePolicy", &policy)]);
        let refused = world.queues.set_attributes("standard", &changes, world.now_ms);
        assert_eq!(code(refused), "InvalidParameterValue", "{target}");
    }
}

#[test]
fn groups_keep_their_order_and_wait_while_one_of_them_is_in_flight() {
    let mut world = World::with_queue("q.fifo", FIFO);
    for (group, id) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("b", "b2")] {
        world.send_to("q.fifo", group, id, id);
    }
    assert_eq!(world.bodies("q.fifo", 2), ["a1", "a2"]);
    let handle = world.receive("q.fifo", 1).pop().expect("b1").receipt_handle;
    assert!(world.receive("q.fifo", 10).is_empty(), "both groups are in flight");
    assert_eq!(world.delete("q.fifo", &handle), Ok(()));
    assert_eq!(world.bodies("q.fifo", 10), ["b2"]);
    world.pass(30 * SECOND);
    assert_eq!(world.bodies("q.fifo", 10), ["a1", "a2", "a3", "b2"]);
}

#[test]
fn group_stays_blocked_until_its_whole_batch_is_settled() {
    let mut world = World::with_queue("q.fifo", FIFO);
    for id in ["1", "2", "3"] {
        world.send_to("q.fifo", "g", id, id);
    }
    let batch = world.receive("q.fifo", 2);
    assert_eq!(world.hide("q.fifo", &batch[0].receipt_handle, 0), Ok(()));
    assert!(world.receive("q.fifo", 10).is_empty());
    assert_eq!(world.delete("q.fifo", &batch[1].receipt_handle), Ok(()));
    assert_eq!(world.bodies("q.fifo", 10), ["1", "3"]);
}

#[test]
fn fifo_refuses_receipts_that_no_longer_hold() {
    let mut world = World::with_queue("q.fifo", FIFO);
    world.send_to("q.fifo", "g", "1", "one");
    let old = world.handle("q.fifo");
    world.pass(30 * SECOND);
    assert_eq!(code(world.delete("q.fifo", &old)), "InvalidParameterValue");
    assert_eq!(code(world.hide("q.fifo", &old, 10)), "InvalidParameterValue");
    let new = world.handle("q.fifo");
    assert_eq!(code(world.delete("q.fifo", &old)), "InvalidParameterValue");
    assert_eq!(world.delete("q.fifo", &new), Ok(()));
    assert_eq!(world.delete("q.fifo", &new), Ok(()), "deleting twice is no error");
}

#[test]
fn repeated_deduplication_id_answers_with_the_first_message_for_five_minutes() {
    let mut world = World::with_queue("q.fifo", FIFO);
    let first = world.send_to("q.fifo", "g", "id", "one");
    let handle = world.handle("q.fifo");
    assert_eq!(world.delete("q.fifo", &handle), Ok(()));
    world.pass(5 * MINUTE - 1);
    let repeat = world.send_to("q.fifo", "other", "id", "two");
    assert_eq!(repeat.message_id, first.message_id);
    assert_eq!(repeat.sequence_number, first.sequence_number);
    assert_eq!(world.counts("q.fifo"), [0, 0, 0]);
    world.pass(1);
    let later = world.send_to("q.fifo", "g", "id", "three");
    assert_ne!(later.message_id, first.message_id);
    assert!(later.sequence_number > first.sequence_number);
}

#[test]
fn deduplication_may_count_per_group() {
    let attributes = [("FifoQueue", "true"), ("DeduplicationScope", "messageGroup")];
    let mut world = World::with_queue("q.fifo", &attributes);
    for group in ["a", "b", "a"] {
        world.send_to("q.fifo", group, "id", group);
    }
    assert_eq!(world.bodies("q.fifo", 10), ["a", "b"]);
}

#[test]
fn content_deduplicates_when_the_queue_says_so() {
    let attributes = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
    let mut world = World::with_queue("q.fifo", &attributes);
    for body in ["hello", "hello", "other"] {
        let outgoing = in_group("g", None, body);
        assert!(world.queues.send("q.fifo", outgoing, world.now_ms).is_ok());
    }
    let received = world.receive("q.fifo", 10);
    assert_eq!(bodies(&received), ["hello", "other"]);
    assert_eq!(
        received[0].delivered.content.deduplication.as_deref(),
        Some("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    );
}

#[test]
fn fifo_wants_group_and_deduplication_and_standard_refuses_the_latter() {
    let mut world = World::with_queue("q.fifo", FIFO);
    assert_eq!(world.create("q", &[]), Ok(()));
    let now_ms = world.now_ms;
    let mut send = |name: &str, outgoing| world.queues.send(name, outgoing, now_ms);
    assert_eq!(code(send("q.fifo", message("x"))), "MissingParameter");
    assert_eq!(code(send("q.fifo", in_group("g", None, "x"))), "InvalidParameterValue");
    let delayed = Outgoing { delay_s: Some(1), ..in_group("g", Some("id"), "x") };
    assert_eq!(code(send("q.fifo", delayed)), "InvalidParameterValue");
    assert_eq!(code(send("q", in_group("g", Some("id"), "x"))), "InvalidParameterValue");
    assert!(send("q", in_group("g", None, "x")).is_ok(), "a fairness hint");
}

#[test]
fn queue_delay_of_a_fifo_queue_keeps_the_order() {
    let mut world = World::with_queue("q.fifo", &[("FifoQueue", "true"), ("DelaySeconds", "10")]);
    world.send_to("q.fifo", "g", "1", "first");
    let changes = map(&[("DelaySeconds", "0")]);
    assert_eq!(world.queues.set_attributes("q.fifo", &changes, world.now_ms), Ok(()));
    world.send_to("q.fifo", "g", "2", "second");
    assert!(world.receive("q.fifo", 10).is_empty());
    world.pass(10 * SECOND);
    assert_eq!(world.bodies("q.fifo", 10), ["first", "second"]);
}

#[test]
fn exhausted_head_of_a_group_makes_way_in_the_same_receive() {
    let mut world = with_dead_letters(FIFO, ["main.fifo", "dead.fifo"], 1);
    world.send_to("main.fifo", "g", "1", "bad");
    world.send_to("main.fifo", "g", "2", "good");
    assert_eq!(world.bodies("main.fifo", 1), ["bad"]);
    world.pass(30 * SECOND);
    assert_eq!(world.bodies("main.fifo", 1), ["good"]);
    let moved = world.receive("dead.fifo", 1);
    assert_eq!(bodies(&moved), ["bad"]);
    assert_eq!(moved[0].delivered.content.group.as_deref(), Some("g"));
}

#[test]
fn size_limit_counts_message_and_batch() {
    let mut world = World::with_queue("q", &[]);
    let limit = limits::MAX_MESSAGE_BYTES as usize;
    let now_ms = world.now_ms;
    let mut send = |outgoing| world.queues.send("q", outgoing, now_ms);
    assert!(send(message(&"x".repeat(limit))).is_ok());
    assert_eq!(code(send(message(&"x".repeat(limit + 1)))), "InvalidParameterValue");
    let mut with_attribute = message(&"x".repeat(limit));
    let value =
        AttributeValue { data_type: "String".to_owned(), payload: Payload::Text("v".to_owned()) };
    with_attribute.attributes.insert("n".to_owned(), value);
    assert_eq!(code(send(with_attribute)), "InvalidParameterValue");

    let half = "x".repeat(limit / 2);
    let entries = |extra: &str| {
        vec![("a".to_owned(), message(&half)), ("b".to_owned(), message(&format!("{half}{extra}")))]
    };
    assert!(world.queues.send_batch("q", entries(""), now_ms).is_ok());
    assert_eq!(
        code(world.queues.send_batch("q", entries("x"), now_ms)),
        "AWS.SimpleQueueService.BatchRequestTooLong"
    );
}

#[test]
fn queue_may_set_a_smaller_size_limit() {
    let mut world = World::with_queue("q", &[("MaximumMessageSize", "1024")]);
    let entries = vec![
        ("small".to_owned(), message("x")),
        ("large".to_owned(), message(&"x".repeat(1025))),
        ("bad".to_owned(), message("\0")),
    ];
    let outcomes = world.queues.send_batch("q", entries, world.now_ms).expect("a batch");
    let codes: Vec<_> = outcomes
        .into_iter()
        .map(|(id, outcome)| (id, outcome.map_err(|e| e.codes().query).err()))
        .collect();
    let expected = [
        ("small", None),
        ("large", Some("InvalidParameterValue")),
        ("bad", Some("InvalidMessageContents")),
    ];
    assert_eq!(codes, expected.map(|(id, code)| (id.to_owned(), code.map(str::to_owned))));
}

#[test]
fn batches_are_bounded_and_their_ids_distinct() {
    let mut world = World::with_queue("q", &[]);
    let now_ms = world.now_ms;
    let entries = |ids: &[&str]| -> Entries<Outgoing> {
        ids.iter().map(|id| ((*id).to_owned(), message("x"))).collect()
    };
    let eleven: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let eleven: Vec<&str> = eleven.iter().map(String::as_str).collect();
    let long = "x".repeat(81);
    for (ids, expected) in [
        (&[][..], "EmptyBatchRequest"),
        (&eleven[..], "TooManyEntriesInBatchRequest"),
        (&["a", "a"][..], "BatchEntryIdsNotDistinct"),
        (&["a b"][..], "InvalidBatchEntryId"),
        (&[""][..], "InvalidBatchEntryId"),
        (&[&*long][..], "InvalidBatchEntryId"),
    ] {
        let refused = world.queues.send_batch("q", entries(ids), now_ms);
        assert_eq!(code(refused), format!("AWS.SimpleQueueService.{expected}"));
    }
    assert_eq!(world.counts("q"), [0, 0, 0]);
    assert!(world.queues.send_batch("q", entries(&eleven[..10]), now_ms).is_ok());
    assert_eq!(world.receive("q", 10).len(), 10);
}

#[test]
fn batch_entries_succeed_and_fail_one_by_one() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "one");
    let handle = world.handle("q");
    let changes =
        vec![("good".to_owned(), (handle.clone(), 10)), ("range".to_owned(), (handle.clone(), -1))];
    let outcomes = world.queues.change_visibility_batch("q", changes, world.now_ms);
    let outcomes = outcomes.expect("a batch");
    assert!(outcomes[0].1.is_ok() && outcomes[1].1.is_err());
    let deletes = vec![("good".to_owned(), handle), ("bad".to_owned(), "x".to_owned())];
    let outcomes = world.queues.delete_batch("q", deletes, world.now_ms).expect("a batch");
    assert!(outcomes[0].1.is_ok() && outcomes[1].1.is_err());
    assert_eq!(world.counts("q"), [0, 0, 0]);
}

#[test]
fn creating_again_is_fine_unless_an_attribute_differs() {
    let mut world = World::with_queue("q", &[("VisibilityTimeout", "60")]);
    world.send("q", "kept");
    assert_eq!(world.create("q", &[]), Ok(()));
    assert_eq!(world.create("q", &[("VisibilityTimeout", "60"), ("DelaySeconds", "0")]), Ok(()));
    let different = world.create("q", &[("VisibilityTimeout", "61")]);
    assert_eq!(code(different), "QueueAlreadyExists");
    assert_eq!(world.counts("q"), [1, 0, 0]);
}

#[test]
fn names_are_checked_against_the_type() {
    let mut world = World::new();
    let long = "x".repeat(81);
    for (name, attributes) in [
        ("", &[][..]),
        ("a b", &[]),
        ("a/b", &[]),
        (&*long, &[]),
        ("x.fifo", &[]),
        ("x", FIFO),
        (".fifo", FIFO),
    ] {
        assert_eq!(code(world.create(name, attributes)), "InvalidParameterValue", "{name}");
    }
    assert_eq!(world.create("x.fifo", FIFO), Ok(()));
    assert_eq!(world.create(&"x".repeat(80), &[]), Ok(()));
}

#[test]
fn fifo_settings_need_a_fifo_queue_and_the_type_is_fixed() {
    let mut world = World::with_queue("q", &[]);
    for attribute in [("ContentBasedDeduplication", "true"), ("FifoQueue", "true")] {
        let changes = map(&[attribute]);
        let refused = world.queues.set_attributes("q", &changes, world.now_ms);
        assert_eq!(code(refused), "InvalidAttributeName");
    }
}

#[test]
fn attributes_show_settings_and_facts() {
    let mut world = World::with_queue("q", &[("VisibilityTimeout", "60")]);
    world.send("q", "one");
    let all = world.queues.attributes("q", &["All".to_owned()], world.now_ms).expect("all");
    for (name, value) in [
        ("VisibilityTimeout", "60"),
        ("ApproximateNumberOfMessages", "1"),
        ("ApproximateNumberOfMessagesNotVisible", "0"),
        ("QueueArn", "arn:aws:sqs:us-east-1:000000000000:q"),
        ("CreatedTimestamp", "1700000000"),
    ] {
        assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!all.contains_key("FifoQueue") && !all.contains_key("RedrivePolicy"));
    assert_eq!(world.attribute("q", "DelaySeconds").as_deref(), Some("0"));
    let unknown = world.queues.attributes("q", &["Colour".to_owned()], world.now_ms);
    assert_eq!(code(unknown), "InvalidAttributeName");
}

#[test]
fn listing_filters_and_pages() {
    let mut world = World::new();
    for name in ["b1", "a", "b3", "b2", "c"] {
        assert_eq!(world.create(name, &[]), Ok(()));
    }
    let page = world.queues.list("b", Some(2), None).expect("a page");
    assert_eq!(page, Page { names: vec!["b1".into(), "b2".into()], next_token: Some("b2".into()) });
    let rest = world.queues.list("b", Some(2), page.next_token.as_deref()).expect("a page");
    assert_eq!(rest, Page { names: vec!["b3".into()], next_token: None });
    assert_eq!(world.queues.list("", None, None).expect("a page").names.len(), 5);
    assert_eq!(code(world.queues.list("", Some(0), None)), "InvalidParameterValue");
}

#[test]
fn purge_empties_a_queue() {
    let mut world = World::with_queue("q", &[]);
    world.send("q", "held");
    world.send("q", "visible");
    let handle = world.handle("q");
    assert_eq!(world.queues.purge("q", world.now_ms), Ok(()));
    assert_eq!(world.counts("q"), [0, 0, 0]);
    assert_eq!(world.delete("q", &handle), Ok(()));
}

#[test]
fn calls_on_a_missing_queue_say_so() {
    let mut world = World::new();
    let missing = "AWS.SimpleQueueService.NonExistentQueue";
    let now_ms = world.now_ms;
    assert_eq!(code(world.queues.send("q", message("x"), now_ms)), missing);
    assert_eq!(code(world.queues.receive("q", &Ask::default(), now_ms)), missing);
    assert_eq!(code(world.queues.delete_queue("q")), missing);
    assert_eq!(code(world.queues.purge("q", now_ms)), missing);
    assert_eq!(code(world.queues.send_batch("q", Vec::new(), now_ms)), missing);
    assert_eq!(code(world.hide("q", "x", 1)), missing);
}

#[test]
fn receive_asks_within_bounds() {
    let mut world = World::with_queue("q", &[]);
    for ask in [
        Ask { max_messages: Some(0), ..Ask::default() },
        Ask { max_messages: Some(11), ..Ask::default() },
        Ask { visibility_s: Some(43_201), ..Ask::default() },
        Ask { wait_s: Some(21), ..Ask::default() },
    ] {
        let refused = world.queues.receive("q", &ask, world.now_ms);
        assert_eq!(code(refused), "InvalidParameterValue", "{ask:?}");
    }
}

#[test]
fn too_much_in_flight_is_told_to_short_polls_only() {
    let mut world = World::with_queue("q", &[("VisibilityTimeout", "43200")]);
    for _ in 0..=limits::MAX_IN_FLIGHT {
        world.send("q", "x");
    }
    for _ in 0..limits::MAX_IN_FLIGHT / 10 {
        assert_eq!(world.receive("q", 10).len(), 10);
    }
    assert_eq!(code(world.queues.receive("q", &Ask::default(), world.now_ms)), "OverLimit");
    let ask = Ask { wait_s: Some(1), ..Ask::default() };
    let received = world.queues.receive("q", &ask, world.now_ms).expect("an empty receive");
    assert!(received.messages.is_empty());
}

/// What a consumer may believe about a message, kept the slow and obvious way.
#[derive(Debug)]
struct Believed {
    body: String,
    group: Option<usize>,
    handle: Option<(String, u64)>,
}

/// Sends, receives, deletes and gives back at random, and holds every receive against the beliefs:
/// nothing is delivered twice while it is held, nothing is lost, groups keep their order.
fn random_walk(seed: u64, fifo: bool) {
    let name = if fifo { "q.fifo" } else { "q" };
    let mut world = World::with_queue(name, if fifo { FIFO } else { &[] });
    let mut believed: Vec<Believed> = Vec::new();
    let mut state = seed;
    let mut random = |bound: u64| {
        state = mix(state);
        state % bound
    };
    for step in 0..2_000 {
        let pick = random(believed.len().max(1) as u64) as usize;
        match random(6) {
            0 | 1 => {
                let group = fifo.then(|| random(3) as usize);
                let body = format!("{step}");
                match group {
                    Some(group) => world.send_to(name, &group.to_string(), &body, &body),
                    None => world.send(name, &body),
                };
                believed.push(Believed { body, group, handle: None });
            }
            2 => {
                let received = world.receive(name, 1 + random(10) as i64);
                check_received(&world, &mut believed, &received);
            }
            3 => world.pass(random(20 * SECOND)),
            4 if !believed.is_empty() => {
                if let Some((handle, until_ms)) = believed[pick].handle.clone()
                    && until_ms > world.now_ms
                {
                    assert_eq!(world.delete(name, &handle), Ok(()));
                    believed.remove(pick);
                }
            }
            _ if !believed.is_empty() => {
                if let Some((handle, until_ms)) = believed[pick].handle.as_mut()
                    && *until_ms > world.now_ms
                {
                    let timeout_s = random(40);
                    assert_eq!(world.hide(name, handle, timeout_s as i64), Ok(()));
                    *until_ms = world.now_ms + timeout_s * SECOND;
                }
            }
            _ => {}
        }
        let now_ms = world.now_ms;
        let held = believed.iter().filter(|b| is_held(b, now_ms)).count();
        assert_eq!(world.counts(name), [believed.len() - held, held, 0], "seed {seed} step {step}");
    }
    world.pass(MINUTE);
    let mut left = 0;
    loop {
        let received = world.receive(name, 10);
        if received.is_empty() {
            break;
        }
        left += received.len();
        for message in received {
            assert_eq!(world.delete(name, &message.receipt_handle), Ok(()));
        }
    }
    assert_eq!(left, believed.len(), "seed {seed}: what is believed to be there comes out");
}

fn is_held(believed: &Believed, now_ms: u64) -> bool {
    believed.handle.as_ref().is_some_and(|(_, until_ms)| *until_ms > now_ms)
}

fn check_received(world: &World, believed: &mut [Believed], received: &[Incoming]) {
    // Before the batch is marked: a group with something in flight must not appear in it.
    let blocked: BTreeSet<usize> =
        believed.iter().filter(|b| is_held(b, world.now_ms)).filter_map(|b| b.group).collect();
    for message in received {
        let body = &message.delivered.content.body;
        let at = believed.iter().position(|b| &b.body == body).expect("it was sent");
        assert!(!is_held(&believed[at], world.now_ms), "{body} was held");
        if let Some(group) = believed[at].group {
            assert!(!blocked.contains(&group), "{body} of a blocked group");
            let earlier = &believed[..at];
            let skipped =
                earlier.iter().any(|b| b.group == Some(group) && !is_held(b, world.now_ms));
            assert!(!skipped, "{body} overtook its group");
        }
        let until_ms = world.now_ms + 30 * SECOND;
        believed[at].handle = Some((message.receipt_handle.clone(), until_ms));
    }
}

#[test]
fn random_walks_never_deliver_twice_nor_lose_nor_reorder() {
    for seed in 0..20 {
        random_walk(seed, false);
        random_walk(seed, true);
    }
}
