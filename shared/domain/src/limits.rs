//! Every bound of the system, with its reason. `template.yaml` is held against these by a test.

use std::time::Duration;

/// Longest source name. A source is a path segment and a metric dimension value.
pub const MAX_SOURCE_BYTES: usize = 64;

/// Longest event id. Ids seen in the field stay under 300 bytes; a DynamoDB partition key may have
/// 2,048 bytes, and the source and its separator must fit beside it.
pub const MAX_EVENT_ID_BYTES: usize = 512;

/// Longest event type, object id or provider name kept on a record. They are for people and for
/// choosing a handler; a longer one is cut.
pub const MAX_LABEL_BYTES: usize = 256;

/// Largest request body. Lambda takes 6 MB per synchronous request; base64 and the JSON envelope
/// leave about 4.4 MB of it.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Largest size of all request header names and values together. API Gateway and function URLs
/// stop at about 10 kB; what is larger never came through them.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Largest compressed payload kept on the record. A DynamoDB item may have 400 kB in all.
pub const MAX_INLINE_PAYLOAD_BYTES: usize = 340 * 1024;

/// Most headers kept on a record, and the size of one.
pub const MAX_KEPT_HEADERS: usize = 8;
/// Longest value of a kept header; a longer one is left out.
pub const MAX_KEPT_HEADER_BYTES: usize = 512;

/// Most journalled steps per event.
pub const MAX_STEPS: usize = 16;
/// Longest step name.
pub const MAX_STEP_NAME_BYTES: usize = 64;
/// Largest recorded result of a step. Results are ids and small facts, not documents.
pub const MAX_STEP_RESULT_BYTES: usize = 1024;

/// Longest error class kept on a record: a word to search for.
pub const MAX_ERROR_CLASS_BYTES: usize = 64;
/// Longest error text kept on a record.
pub const MAX_ERROR_BYTES: usize = 512;
/// Replays remembered on a record; the oldest is not overwritten, a further replay is refused.
pub const MAX_REPLAYS: usize = 32;
/// Longest reason or operator name of a replay or discard.
pub const MAX_REASON_BYTES: usize = 256;

/// DynamoDB's limit for one item.
pub const DYNAMODB_ITEM_BYTES: usize = 400 * 1024;
/// Most items in one `TransactWriteItems`; one of them is the record.
pub const MAX_TRANSACT_ITEMS: usize = 100;
/// Most local writes of one event.
pub const MAX_LOCAL_WRITES: usize = MAX_TRANSACT_ITEMS - 1;

/// Most events taken from one delivery. Known batch senders stop at 1,000 (SendGrid, HubSpot 100).
pub const MAX_EVENTS_PER_DELIVERY: usize = 1000;

/// Shards of the `open-by-due` index. An index partition takes 1,000 write units a second and each
/// event costs two there, so eight carry about 4,000 events a second.
pub const SHARDS: u32 = 8;

/// Longest time for which deliveries mean one event where nothing tells them apart: that long its
/// handler waits. A queue's delay, 15 minutes at most, has to cover it.
pub const MAX_COALESCING: Duration = Duration::from_secs(300);

/// How far the clocks of two machines may differ. Lambda's hosts are within milliseconds; this is
/// what the protocol tolerates.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// How long a new event may stay unleased before a sweep, or a duplicate, enqueues it again.
pub const GRACE: Duration = Duration::from_secs(60);

/// Longest wait between two requeues of one record.
pub const MAX_REQUEUE_WAIT: Duration = Duration::from_secs(3600);

/// How often the sweeper runs.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Due records handled by one sweep per shard; the next sweep takes the rest.
pub const MAX_SWEPT_PER_SHARD: usize = 250;
/// Index entries counted per shard and pass. Past this a gauge reads "at least".
pub const MAX_COUNTED_PER_SHARD: usize = 10_000;

/// Timeout of the receiver function. Providers hang up after three to ten seconds (Slack three);
/// the SDK's own bounds end a call well before.
pub const RECEIVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the worker function.
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the sweeper function: shorter than its interval, so that passes do not overlap.
pub const SWEEPER_TIMEOUT: Duration = Duration::from_secs(50);

/// Longest lease: the worker's whole timeout, and the skew after it.
pub const MAX_LEASE: Duration = Duration::from_secs(65);

/// Visibility timeout of the queue: six times the function's, as AWS advises for event sources.
pub const QUEUE_VISIBILITY: Duration = Duration::from_secs(360);
/// Longest visibility a single message is given by the worker. SQS takes twelve hours; a wait
/// longer than this is the sweep's, so that a queue's depth shows work and not waiting.
pub const MAX_KEPT_DELAY: Duration = Duration::from_secs(15 * 60);
/// Receives after which the queue gives a message to the dead-letter queue. Above any record's
/// attempt limit: only what has no record gets there.
pub const MAX_RECEIVE_COUNT: u32 = 100;

/// Before the invocation's deadline the worker gives its leases back this early.
pub const RELEASE_MARGIN: Duration = Duration::from_secs(2);
/// A worker with less time than this left starts no further record.
pub const MIN_ATTEMPT_TIME: Duration = Duration::from_secs(3);
/// Records of one batch worked on at the same time.
pub const MAX_CONCURRENT_RECORDS: usize = 10;

/// Default and largest number of attempts per event.
pub const DEFAULT_ATTEMPT_LIMIT: u32 = 16;
/// Largest configurable number of attempts.
pub const MAX_ATTEMPT_LIMIT: u32 = 50;

/// Shortest wait between two attempts, so that a retry never spins.
pub const MIN_RETRY_WAIT: Duration = Duration::from_secs(1);
/// First backoff. With doubling, full jitter and the cap below, sixteen attempts take about a day.
pub const BACKOFF_BASE: Duration = Duration::from_secs(5);
/// Longest backoff.
pub const BACKOFF_CAP: Duration = Duration::from_secs(12 * 3600);
/// Longest delay that a handler or a `Retry-After` may ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Longest tolerance for a signed time. Beyond a day a recorded delivery is a replay.
pub const MAX_TOLERANCE: Duration = Duration::from_secs(86_400);

/// Added to a provider's retry windows: queueing on its side, clocks, and a human's weekend.
pub const RETENTION_MARGIN: Duration = Duration::from_secs(3 * 86_400);
/// An event this close to the end of its retention is not run unasked any more: clocks differ, and
/// at the end itself the record of an earlier delivery may just have gone.
pub const HORIZON_LEAD: Duration = Duration::from_secs(3600);
/// Retention where the catalogue knows no window: unknown is not zero. The longest documented
/// window among known providers' automatic retries is under 30 days.
pub const UNKNOWN_WINDOW: Duration = Duration::from_secs(30 * 86_400);
/// Longest retention.
pub const MAX_RETENTION: Duration = Duration::from_secs(3650 * 86_400);

/// Longest call of a provider's host for a key, or to confirm a subscription. Somebody waits.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest answer with keys. A certificate has 2 kB, the largest known set of keys some 20 kB.
pub const MAX_FETCHED_BYTES: usize = 64 * 1024;
/// Most addresses, or names of keys, whose answers an execution environment remembers per source.
/// SNS has one for each of its regions, some thirty.
pub const MAX_FETCHED_KEYS: usize = 64;
/// Most calls for keys that an execution environment makes within [`FETCH_INTERVAL`] per source:
/// whoever sends garbage must not drive calls, and a provider has few keys.
pub const MAX_FETCHES: usize = 10;
/// What [`MAX_FETCHES`] are counted in, and how long an answer without the key counts.
pub const FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a fetched key is used before it is asked for again: a provider may take one back.
pub const FETCHED_KEY_AGE: Duration = Duration::from_secs(3600);

/// What a provider gets to hear in `Retry-After` when the ledger cannot be asked.
pub const UNAVAILABLE_RETRY_AFTER: Duration = Duration::from_secs(10);

const _: () = {
    assert!(MAX_LEASE.as_secs() >= WORKER_TIMEOUT.as_secs() + CLOCK_SKEW.as_secs());
    assert!(QUEUE_VISIBILITY.as_secs() >= MAX_LEASE.as_secs() + CLOCK_SKEW.as_secs());
    assert!(QUEUE_VISIBILITY.as_secs() >= 6 * WORKER_TIMEOUT.as_secs());
    assert!(MAX_RECEIVE_COUNT > MAX_ATTEMPT_LIMIT);
    assert!(DEFAULT_ATTEMPT_LIMIT <= MAX_ATTEMPT_LIMIT);
    assert!(MAX_KEPT_DELAY.as_secs() <= 12 * 3600);
    assert!(MAX_COALESCING.as_secs() + CLOCK_SKEW.as_secs() < MAX_KEPT_DELAY.as_secs());
    assert!(SWEEPER_TIMEOUT.as_secs() < SWEEP_INTERVAL.as_secs());
    assert!(RELEASE_MARGIN.as_secs() < MIN_ATTEMPT_TIME.as_secs());
    assert!(MIN_RETRY_WAIT.as_secs() <= BACKOFF_BASE.as_secs());
    assert!(BACKOFF_BASE.as_secs() < BACKOFF_CAP.as_secs());
    assert!(HORIZON_LEAD.as_secs() < RETENTION_MARGIN.as_secs());
    assert!(HORIZON_LEAD.as_secs() > 2 * CLOCK_SKEW.as_secs());
    assert!(GRACE.as_secs() > CLOCK_SKEW.as_secs());
    assert!(MAX_SOURCE_BYTES + 1 + MAX_EVENT_ID_BYTES <= 2048);
    assert!(UNKNOWN_WINDOW.as_secs() + RETENTION_MARGIN.as_secs() < MAX_RETENTION.as_secs());
    // Everything that can lie on one record at its largest still fits one item.
    assert!(
        MAX_INLINE_PAYLOAD_BYTES
            + MAX_KEPT_HEADERS * (MAX_KEPT_HEADER_BYTES + 64)
            + MAX_STEPS * (MAX_STEP_NAME_BYTES + MAX_STEP_RESULT_BYTES + 192)
            + MAX_REPLAYS * (2 * MAX_REASON_BYTES + 64)
            + MAX_ERROR_CLASS_BYTES
            + MAX_ERROR_BYTES
            + 8 * 1024
            <= DYNAMODB_ITEM_BYTES
    );
};
