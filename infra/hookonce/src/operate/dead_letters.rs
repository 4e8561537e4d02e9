//! The queue, and its dead-letter queue: how deep they are, what lies there and why, and how it
//! gets back.
//!
//! A message carries a key; what is to become of it, the event's record says. So a redrive goes
//! through the records: what is open is enqueued by the transition by which a sweep does it, what
//! is settled needs no message, what is parked needs a person's replay. SQS's own redrive moves
//! messages without looking, and brings back what nobody can read.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    event::EventKey,
    record::{Record, StateName},
    time::Timestamp,
    transition::requeue,
};
use dynamo::{Ledger, LedgerError, Returning};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use sqs::{Letter, Message, Queue, QueueError};

/// How a queue stands. SQS counts approximately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Messages that wait for a worker.
    pub visible: Option<u64>,
    /// Messages that somebody has received and not yet deleted or given back.
    pub in_flight: Option<u64>,
    /// Messages that were sent with a delay.
    pub delayed: Option<u64>,
    /// Seconds since the oldest was sent. SQS has this as a metric only; some emulators say it.
    pub oldest_s: Option<u64>,
}

/// A message of the dead-letter queue, and what it is about.
#[derive(Debug)]
pub struct DeadLetter {
    /// The message.
    pub letter: Letter,
    /// What it is about.
    pub about: About,
}

/// What a message is about.
#[derive(Debug)]
pub enum About {
    /// An event, by its record.
    Event(Box<Record>),
    /// An event whose record cannot be read.
    Unsound(EventKey, LedgerError),
    /// An event of which there is no record.
    NoRecord(EventKey),
    /// Nothing that hookonce sent, and why.
    Unreadable(String),
}

/// What a redrive does with a message, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its event is open: enqueue it, and delete the message here.
    Enqueue,
    /// Its event is settled: delete the message.
    Delete,
    /// Nobody can make anything of it, and the operator wants it gone: delete the message.
    Discard,
    /// Its event is parked: a person replays it. The message stays.
    Parked,
    /// The message stays.
    Stay,
}

/// What was found.
#[derive(Debug)]
pub struct Peeked {
    /// The messages, in no order.
    pub letters: Vec<DeadLetter>,
    /// Whether there may be more.
    pub more: bool,
}

/// Why nothing is known of the queues, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CannotLook {
    /// SQS does not say.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The ledger does not say.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// It has none.
    #[error("the queue {0} has no dead-letter queue: its RedrivePolicy names none")]
    NoDeadLetterQueue(String),
}

/// What of a redrive policy names the dead-letter queue.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
}

/// How a queue stands.
///
/// # Errors
/// If SQS does not say.
pub async fn depth(queue: &Queue) -> Result<Depth, QueueError> {
    let attributes = queue.attributes().await?;
    let number = |name: &str| attributes.get(name).and_then(|number| number.parse().ok());
    Ok(Depth {
        visible: number("ApproximateNumberOfMessages"),
        in_flight: number("ApproximateNumberOfMessagesNotVisible"),
        delayed: number("ApproximateNumberOfMessagesDelayed"),
        oldest_s: number("ApproximateAgeOfOldestMessage"),
    })
}

/// The dead-letter queue of `queue`, by its redrive policy.
///
/// # Errors
/// If it has none, or SQS does not say.
pub async fn dead_letter_queue(queue: &Queue) -> Result<Queue, CannotLook> {
    let attributes = queue.attributes().await?;
    let policy = attributes.get("RedrivePolicy");
    let policy = policy.and_then(|text| serde_json::from_str::<RedrivePolicy>(text).ok());
    let name = policy.as_ref().and_then(|policy| policy.dead_letter_target_arn.rsplit(':').next());
    let name = name.ok_or_else(|| CannotLook::NoDeadLetterQueue(queue.url().to_owned()))?;
    Ok(queue.sibling(name).await?)
}

/// Looks at up to `most` messages and tells what each is about. They are hidden from others until
/// [`give_back`], or for [`HIDDEN`].
///
/// # Errors
/// If queue or ledger cannot be asked; then everything is given back first.
pub async fn peek(dead: &Queue, ledger: &Ledger, most: usize) -> Result<Peeked, CannotLook> {
    let mut letters = Vec::new();
    let looked = async {
        let more = receive(dead, most, &mut letters).await?;
        let about: Vec<_> = stream::iter(&letters)
            .map(|letter| about(ledger, &letter.body))
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        let about = about.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok((about, more))
    };
    match looked.await {
        Ok((about, more)) => {
            let letters = letters.into_iter().zip(about);
            let letters = letters.map(|(letter, about)| DeadLetter { letter, about }).collect();
            Ok(Peeked { letters, more })
        }
        Err(error) => {
            give_back(dead, letters.iter()).await;
            Err(error)
        }
    }
}

/// Whether there may be more than were received.
async fn receive(dead: &Queue, most: usize, letters: &mut Vec<Letter>) -> Result<bool, CannotLook> {
    let mut seen = BTreeSet::new();
    while letters.len() < most {
        let batch = dead.look_into(HIDDEN).await?;
        let count = letters.len();
        // One that was seen before is back: this took longer than it was hidden.
        letters.extend(batch.into_iter().filter(|letter| seen.insert(letter.id.clone())));
        if letters.len() == count {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn about(ledger: &Ledger, body: &str) -> Result<About, LedgerError> {
    let key = match Message::parse(body) {
        Ok(message) => message.key,
        Err(not_ours) => return Ok(About::Unreadable(not_ours.to_string())),
    };
    let read = ledger.read_outline(&key).await;
    let record = read.and_then(|item| Ok(item.map(Record::from_item).transpose()?));
    match record {
        Ok(Some(record)) => Ok(About::Event(Box::new(record))),
        Ok(None) => Ok(About::NoRecord(key)),
        Err(error @ LedgerError::Corrupt(_)) => Ok(About::Unsound(key, error)),
        Err(error) => Err(error),
    }
}

/// Lets others see messages again. One that cannot be given back shows after [`HIDDEN`].
pub async fn give_back(dead: &Queue, letters: impl Iterator<Item = &Letter>) {
    let keep = |letter: &Letter| {
        let handle = letter.handle.clone();
        async move { dead.keep(&handle, Duration::ZERO).await }
    };
    let given = stream::iter(letters).map(keep).buffer_unordered(READS_AT_ONCE);
    given.for_each(|_| async {}).await;
}

impl About {
    /// What a redrive does with its message.
    #[must_use]
    pub fn fate(&self, discard_unreadable: bool) -> Fate {
        match self {
            Self::Event(record) => match record.state.name() {
                StateName::Received | StateName::Processing => Fate::Enqueue,
                StateName::Done | StateName::Discarded => Fate::Delete,
                StateName::Failed => Fate::Parked,
            },
            Self::Unreadable(_) | Self::NoRecord(_) if discard_unreadable => Fate::Discard,
            Self::Unreadable(_) | Self::NoRecord(_) | Self::Unsound(..) => Fate::Stay,
        }
    }

    /// The event's key, where the message names one.
    #[must_use]
    pub fn key(&self) -> Option<&EventKey> {
        match self {
            Self::Event(record) => Some(&record.key),
            Self::Unsound(key, _) | Self::NoRecord(key) => Some(key),
            Self::Unreadable(_) => None,
        }
    }

    /// How it stands, and what it does here.
    #[must_use]
    pub fn explained(&self) -> String {
        match self {
            Self::Unreadable(why) => format!("unreadable: {why}"),
            Self::NoRecord(_) => "there is no record of its event: it expired, or was made by \
                                  hand, or its record is in another table"
                .to_owned(),
            Self::Unsound(_, error) => format!("its record cannot be read: {error}"),
            Self::Event(record) => event_explained(record),
        }
    }
}

fn event_explained(record: &Record) -> String {
    let state = record.state.name();
    let attempts = match record.attempt {
        0 => "never attempted: no worker took its lease".to_owned(),
        count => format!("after {count} of {} attempts", record.attempt_limit),
    };
    let last = record.last_error.as_ref();
    let last = last.map(|error| format!("; last: {}: {}", error.class, error.text));
    let last = last.unwrap_or_default();
    match state {
        StateName::Received | StateName::Processing => format!(
            "its event is {state}, {attempts}: workers received the message and could not finish \
             with it{last}"
        ),
        StateName::Failed => format!("its event is parked, {attempts}{last}"),
        StateName::Done | StateName::Discarded => {
            format!("its event is {state}: the message has nothing left to do")
        }
    }
}

/// Does with a message what its fate is, and tells what that was. One that stays is to be given
/// back; so is one whose event somebody else moved meanwhile.
///
/// # Errors
/// If a call was not confirmed.
pub async fn redrive(
    dead: &Queue,
    queue: &Queue,
    ledger: &Ledger,
    letter: &DeadLetter,
    discard_unreadable: bool,
    now: Timestamp,
) -> Result<Fate, CannotLook> {
    let fate = letter.about.fate(discard_unreadable);
    match fate {
        Fate::Parked | Fate::Stay => return Ok(fate),
        Fate::Enqueue if !enqueue(queue, ledger, &letter.about, now).await? => {
            return Ok(Fate::Stay);
        }
        Fate::Enqueue | Fate::Delete | Fate::Discard => {}
    }
    dead.delete(&letter.letter.handle).await?;
    Ok(fate)
}

/// As a sweep does: bump, then send. A crash before the message is deleted leaves two of them, and
/// one before it is sent leaves the event to the sweep; neither does harm.
async fn enqueue(
    queue: &Queue,
    ledger: &Ledger,
    about: &About,
    now: Timestamp,
) -> Result<bool, CannotLook> {
    let About::Event(record) = about else { return Ok(false) };
    let Some(bump) = requeue(record, now) else { return Ok(false) };
    if !bump.settle(&ledger.write(&bump.write, Returning::Nothing).await?) {
        return Ok(false);
    }
    queue.send(&(&**record).into()).await?;
    Ok(true)
}

/// How long a message that is looked at is hidden: longer than a thousand of them take to be read
/// and explained, and short enough to wait for should the process die.
pub const HIDDEN: Duration = Duration::from_secs(120);
const READS_AT_ONCE: usize = 16;
