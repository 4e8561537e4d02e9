//! Bounds of the queue, each with the reason for its value.
//!
//! They are the published quotas of SQS unless the comment says otherwise: a message that passes
//! here must pass there.

/// Largest message, and largest sum over a batch: body plus attributes.
pub(super) const MAX_MESSAGE_BYTES: u64 = 1024 * 1024;

/// Smallest value a queue may set as its own maximum message size.
pub(super) const MIN_MESSAGE_BYTES: u64 = 1024;

/// Entries in one batch request, and messages in one receive.
pub(super) const MAX_BATCH_ENTRIES: usize = 10;

/// Twelve hours: the longest a message may stay hidden, counted from its receive.
pub(super) const MAX_VISIBILITY_S: u64 = 12 * 60 * 60;

/// Fifteen minutes: beyond it a message needs a scheduler, not a queue.
pub(super) const MAX_DELAY_S: u64 = 15 * 60;

/// Longest long poll; also bounds how long a shutdown could have to wait for one.
pub(super) const MAX_WAIT_S: u64 = 20;

/// Shortest retention a queue may choose.
pub(super) const MIN_RETENTION_S: u64 = 60;

/// Fourteen days.
pub(super) const MAX_RETENTION_S: u64 = 14 * 24 * 60 * 60;

/// Four days, what a queue gets that does not choose.
pub(super) const DEFAULT_RETENTION_S: u64 = 4 * 24 * 60 * 60;

/// Visibility timeout of a queue that does not choose.
pub(super) const DEFAULT_VISIBILITY_S: u64 = 30;

/// Receives a redrive policy may allow.
pub(super) const MAX_RECEIVE_COUNT: u64 = 1000;

/// A FIFO queue remembers a deduplication id for five minutes.
pub(super) const DEDUPLICATION_WINDOW_MS: u64 = 5 * 60 * 1000;

/// Messages a standard queue lets be in flight at once.
pub(super) const MAX_IN_FLIGHT: usize = 120_000;

/// The same for a FIFO queue.
pub(super) const MAX_IN_FLIGHT_FIFO: usize = 20_000;

/// Attributes a sender may put on one message.
pub(super) const MAX_MESSAGE_ATTRIBUTES: usize = 10;

/// Length of a message attribute's name or type.
pub(super) const MAX_ATTRIBUTE_NAME_BYTES: usize = 256;

/// Length of a group id, a deduplication id.
pub(super) const MAX_ID_BYTES: usize = 128;

/// Length of a queue name (with `.fifo`) and of a batch entry id.
pub(super) const MAX_NAME_BYTES: usize = 80;

/// Queues in one page of a listing.
pub(super) const MAX_LISTED_QUEUES: usize = 1000;

/// Ours, not SQS's: a full batch written with every byte escaped as `\u00xx` is six times its size,
/// and the fields around it need room.
pub(super) const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

const _: () = assert!(MAX_REQUEST_BYTES as u64 > 6 * MAX_MESSAGE_BYTES);
const _: () = assert!(DEFAULT_RETENTION_S >= MIN_RETENTION_S);
const _: () = assert!(DEFAULT_RETENTION_S <= MAX_RETENTION_S);
const _: () = assert!(DEFAULT_VISIBILITY_S <= MAX_VISIBILITY_S);
