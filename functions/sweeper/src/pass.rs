//! One pass over the shards of the `open-by-due` index.
//!
//! The index is eventually consistent and holds keys only: each record it names is read again,
//! consistently, before anything is decided about it.

use std::time::Duration;

use domain::{
    event::EventKey,
    limits,
    record::{Record, State},
    sweep::{Sweep, sweep},
    time::Timestamp,
    transition::{Requeue, open_shard, parked_shard, put_off},
    write::Written,
};
use dynamo::{Backlog, Ledger, LedgerError, Returning};
use futures::{StreamExt as _, stream};
use runtime::{clock::Clock, telemetry::SweepLine};
use sqs::Queue;
use tokio::time::Instant;

/// The sweeper.
#[derive(Debug)]
pub struct Sweeper {
    ledger: Ledger,
    queue: Queue,
    clock: Clock,
}

/// What a pass saw and did.
#[derive(Debug, Default)]
struct Tally {
    open: u64,
    stuck: u64,
    parked: u64,
    oldest: Duration,
    requeued: u64,
    newly_parked: u64,
    /// Records that could not be read or moved. The next pass tries again.
    failed: u64,
    /// Why a shard could not be read.
    error: Option<String>,
}

/// What one record added.
enum Swept {
    Requeued,
    Parked,
    Nothing,
}

impl Sweeper {
    /// A sweeper.
    #[must_use]
    pub const fn new(ledger: Ledger, queue: Queue, clock: Clock) -> Self {
        Self { ledger, queue, clock }
    }

    /// Sweeps every shard once. What fails in one shard leaves the others alone; the next pass
    /// takes it up.
    ///
    /// # Errors
    /// If some shard could not be read. The line with what was seen is written either way; the
    /// heartbeat only counts where every shard was read. A record that cannot be read, or moved, is
    /// counted and logged, and stops neither the pass nor the heartbeat.
    pub async fn sweep(&self) -> Result<(), IncompletePass> {
        let started = Instant::now();
        let tally = stream::iter(0..limits::SHARDS)
            .map(|shard| self.sweep_shard(shard))
            .buffer_unordered(SHARDS_AT_ONCE)
            .fold(Tally::default(), async |sum, shard| sum.plus(shard))
            .await;
        let line = SweepLine {
            timestamp: Clock::system_time(self.clock.now()),
            outcome: if tally.error.is_none() { "complete" } else { "incomplete" },
            error: tally.error.clone(),
            open_events: tally.open,
            stuck_processing: tally.stuck,
            parked_events: tally.parked + tally.newly_parked,
            oldest_open_seconds: tally.oldest.as_secs_f64(),
            swept_requeued_total: tally.requeued,
            swept_parked_total: tally.newly_parked,
            swept_failed_total: tally.failed,
            sweeper_heartbeat: u64::from(tally.error.is_none()),
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
        };
        line.write();
        tally.error.map_or(Ok(()), |error| Err(IncompletePass(error)))
    }

    async fn sweep_shard(&self, shard: u32) -> Tally {
        let mut tally = Tally::default();
        match self.backlog(&parked_shard(shard)).await {
            Ok(parked) => tally.parked = count(&parked),
            Err(error) => tally.error = Some(error.to_string()),
        }
        let open = match self.backlog(&open_shard(shard)).await {
            Ok(open) => open,
            Err(error) => {
                tally.error = Some(error.to_string());
                return tally;
            }
        };
        tally.open = count(&open);
        let now = self.clock.now();
        stream::iter(chosen(&open, now))
            .map(|(key, due_at)| self.look_at(key, *due_at, now))
            .buffer_unordered(RECORDS_AT_ONCE)
            .fold(tally, async |sum, record| sum.plus(record))
            .await
    }

    async fn backlog(&self, partition: &str) -> Result<Backlog, LedgerError> {
        self.ledger.backlog(partition, limits::MAX_COUNTED_PER_SHARD).await
    }

    /// Reads one record, and does what is due.
    async fn look_at(&self, key: &EventKey, due_at: Timestamp, now: Timestamp) -> Tally {
        let looked = async {
            let Some(item) = self.ledger.read_outline(key).await? else {
                return Ok(Tally::default());
            };
            let record = Record::from_item(item)?;
            let swept = self.act(&record, now).await?;
            Ok::<_, SweepError>(Tally::of(&record, &swept, now))
        };
        match looked.await {
            Ok(tally) => tally,
            Err(error) => {
                tracing::error!(event.key = %key, error = %error, "a record is not swept");
                if due_at <= now && error.is_corrupt() {
                    self.put_off(key, due_at, now).await;
                }
                Tally { failed: 1, ..Tally::default() }
            }
        }
    }

    /// A record that this version cannot read stays due for ever; many of them would keep a shard's
    /// other records from being looked at.
    async fn put_off(&self, key: &EventKey, due_at: Timestamp, now: Timestamp) {
        let write = put_off(key, due_at, now);
        // What answers is unreadable too; whether it moved, the next pass sees.
        let _ = self.ledger.write(&write, Returning::Nothing).await;
    }

    async fn act(&self, record: &Record, now: Timestamp) -> Result<Swept, SweepError> {
        match sweep(record, now, limits::CLOCK_SKEW) {
            Sweep::Leave => Ok(Swept::Nothing),
            Sweep::Defer(defer) => {
                self.bump(&defer).await?;
                Ok(Swept::Nothing)
            }
            // Bump first, then send: should the send fail, the next pass after the bump does both
            // again. The other way round, two sweeps at once would each send.
            Sweep::Requeue(requeue) => {
                if !self.bump(&requeue).await? {
                    return Ok(Swept::Nothing);
                }
                self.queue.send(&record.into()).await?;
                Ok(Swept::Requeued)
            }
            Sweep::Park(park) => match self.ledger.write(&park, Returning::Nothing).await? {
                Written::Applied(_) => {
                    tracing::warn!(event.key = %record.key, "parked: its attempts are used up");
                    Ok(Swept::Parked)
                }
                Written::Refused(_) => Ok(Swept::Nothing),
            },
        }
    }

    async fn bump(&self, bump: &Requeue) -> Result<bool, LedgerError> {
        Ok(bump.settle(&self.ledger.write(&bump.write, Returning::Nothing).await?))
    }
}

impl Tally {
    /// What one record adds, as it was read.
    fn of(record: &Record, swept: &Swept, now: Timestamp) -> Self {
        let open = record.state.name().is_open();
        let stuck = matches!(record.state, State::Processing { lease_until, .. }
            if lease_until < now.minus(limits::CLOCK_SKEW));
        Self {
            stuck: u64::from(stuck),
            oldest: if open { now.since(record.received_at) } else { Duration::ZERO },
            requeued: u64::from(matches!(swept, Swept::Requeued)),
            newly_parked: u64::from(matches!(swept, Swept::Parked)),
            ..Self::default()
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            stuck: self.stuck + other.stuck,
            parked: self.parked + other.parked,
            oldest: self.oldest.max(other.oldest),
            requeued: self.requeued + other.requeued,
            newly_parked: self.newly_parked + other.newly_parked,
            failed: self.failed + other.failed,
            error: self.error.or(other.error),
        }
    }
}

/// The entries worth a read: those that are due, and for the age of the oldest those farthest from
/// being due, which have been put off most often.
fn chosen(open: &Backlog, now: Timestamp) -> impl Iterator<Item = &(EventKey, Timestamp)> {
    let due = open.entries.partition_point(|(_, due_at)| *due_at <= now);
    let (due, later) = open.entries.split_at(due);
    due.iter().take(limits::MAX_SWEPT_PER_SHARD).chain(later.iter().rev().take(MOST_PUT_OFF))
}

fn count(backlog: &Backlog) -> u64 {
    backlog.entries.len() as u64
}

#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Corrupt(#[from] domain::record::CorruptRecord),
    #[error(transparent)]
    Queue(#[from] sqs::QueueError),
}

impl SweepError {
    const fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Ledger(LedgerError::Corrupt(_)))
    }
}

/// A pass that could not see or do everything; the next one takes it up.
#[derive(Debug, thiserror::Error)]
#[error("the pass is incomplete: {0}")]
pub struct IncompletePass(String);

const SHARDS_AT_ONCE: usize = 4;
const RECORDS_AT_ONCE: usize = 8;
/// Records not yet due that are read per shard for the age of the oldest.
const MOST_PUT_OFF: usize = 25;
