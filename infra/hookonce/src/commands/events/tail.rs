//! `hookonce events tail`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::Args;
use domain::{
    event::EventKey,
    limits,
    record::Record,
    time::Timestamp,
    transition::{open_shard, parked_shard},
};
use dynamo::{Ledger, LedgerError};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use runtime::clock::Clock;

use super::super::{Outcome, WrongCall, YES};
use crate::operate::{explain, moment, plain};

/// Follow events that come in or change, until interrupted
///
/// Looks again and again at what is due from now on, and tells of each event once it is another
/// than at the look before. What comes and is done between two looks is not seen.
#[derive(Args, Debug)]
pub(super) struct TailArgs {
    /// How often to look
    #[arg(long, default_value = "2s", value_parser = pace)]
    every: Duration,
}

/// Every look costs a query of each shard, and a read of each event that is followed.
fn pace(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(every) if every >= LEAST_PACE => Ok(every),
        Ok(_) => Err("1s at least: each look is paid for".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) async fn run(ledger: &Ledger, args: &TailArgs, json: bool) -> Outcome {
    let since = Clock::from_environment().now();
    let (known, unreadable) = Default::default();
    let mut tail = Tail { ledger, since, known, unreadable };
    // What cannot be asked from the start will not be later.
    tail.look(json).await?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            interrupt = &mut interrupted => return interrupt.map(|()| YES).map_err(WrongCall::from),
            () = tokio::time::sleep(args.every) => {}
        }
        if let Err(error) = tail.look(json).await {
            complain!("hookonce: {error}");
        }
    }
}

/// What is followed.
struct Tail<'a> {
    ledger: &'a Ledger,
    since: Timestamp,
    /// Open and parked records as they were last told of.
    known: BTreeMap<EventKey, Record>,
    /// Those that cannot be read, and were complained of.
    unreadable: BTreeSet<EventKey>,
}

impl Tail<'_> {
    async fn look(&mut self, json: bool) -> Result<(), LedgerError> {
        let mut keys = self.indexed().await?;
        // Those that are in the index no more have become something else.
        let open = self.known.iter().filter(|(_, record)| record.state.name().is_open());
        keys.extend(open.map(|(key, _)| key.clone()));
        keys.sort();
        keys.dedup();
        let ledger = self.ledger;
        let read: Vec<_> = stream::iter(&keys)
            .map(|key| ledger.read_outline(key))
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        for (key, item) in keys.iter().zip(read) {
            let record = item.and_then(|item| Ok(item.map(Record::from_item).transpose()?));
            match record {
                Ok(Some(record)) => self.seen(record, json),
                // Deleted by the table, or not there yet where the index is ahead.
                Ok(None) => {}
                Err(error @ LedgerError::Corrupt(_)) => {
                    if self.unreadable.insert(key.clone()) {
                        complain!("hookonce: {}: {error}", plain(&key.to_string()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn seen(&mut self, record: Record, json: bool) {
        if self.known.get(&record.key) == Some(&record) {
            return;
        }
        tell(&record, json);
        if record.state.name().is_closed() {
            self.known.remove(&record.key);
        } else {
            self.known.insert(record.key.clone(), record);
        }
    }

    async fn indexed(&self) -> Result<Vec<EventKey>, LedgerError> {
        let shards = 0..limits::SHARDS;
        let partitions: Vec<_> =
            shards.clone().map(open_shard).chain(shards.map(parked_shard)).collect();
        let backlogs: Vec<_> = stream::iter(&partitions)
            .map(|partition| self.ledger.backlog_from(partition, self.since, MOST_FOLLOWED))
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        if backlogs.iter().any(|backlog| backlog.truncated) {
            complain!("hookonce: more events than can be followed; the first of each shard are");
        }
        Ok(backlogs.into_iter().flat_map(|backlog| backlog.entries).map(|(key, _)| key).collect())
    }
}

fn tell(record: &Record, json: bool) {
    if json {
        say!("{}", explain::as_json(record));
        return;
    }
    let error =
        record.last_error.as_ref().map(|error| format!("  {}: {}", error.class, error.text));
    say!(
        "{} {:<10} {:>2}/{:<2} {}{}",
        moment(Clock::from_environment().now()),
        record.state.name(),
        record.attempt,
        record.attempt_limit,
        plain(&record.key.to_string()),
        plain(&error.unwrap_or_default())
    );
}

const LEAST_PACE: Duration = Duration::from_secs(1);
/// Of each shard: together more than a person reads, and less than a thousand read units a look.
const MOST_FOLLOWED: usize = 100;
const READS_AT_ONCE: usize = 16;
