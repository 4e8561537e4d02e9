//! Records page by page.
//!
//! What is open or parked is found through the index, the earliest due first. What is done or
//! discarded stands in no index: the table is scanned for it, in no order. Either way a page is
//! bounded by what it shows and by what it looks at, and says where the next one begins, so that
//! nobody takes a part for the whole.

use std::{collections::BTreeSet, fmt, str::FromStr};

use domain::{
    event::{EventKey, Source},
    item::Item,
    limits,
    record::{Record, StateName},
    time::Timestamp,
    transition::{open_shard, parked_shard},
};
use dynamo::{Ledger, LedgerError};
use futures::{StreamExt as _, TryStreamExt as _, stream};

/// Which records are wanted.
#[derive(Clone, Debug)]
pub struct Filter {
    /// In one of these states.
    pub states: BTreeSet<StateName>,
    /// Of this source.
    pub source: Option<Source>,
    /// Received then or later.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
    /// Whose last error is of this class.
    pub error: Option<String>,
}

/// Some of the records that are wanted.
#[derive(Debug, Default)]
pub struct Page {
    /// The records.
    pub entries: Vec<Entry>,
    /// How many were looked at for them.
    pub looked_at: usize,
    /// Where the next page begins; without one, this is the last.
    pub next: Option<Cursor>,
}

/// A record on a page. One that this version cannot read belongs there all the more.
#[derive(Debug)]
pub struct Entry {
    /// Its key, as it stands in the table.
    pub key: String,
    /// The record without its payload, or why it cannot be read.
    pub record: Result<Box<Record>, LedgerError>,
}

/// How much a page has at most; one at least of either.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records that it shows.
    pub shown: usize,
    /// Records that it looks at for them: what is read, and paid for.
    pub looked_at: usize,
}

/// Where a page ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// In the index, after this entry.
    Due(Timestamp, EventKey),
    /// In the table, after this partition key.
    Key(String),
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The ledger does not say.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// From a listing of other states.
    #[error("the continuation {0} is of a listing by other states; give the same --state as there")]
    OtherListing(Cursor),
}

impl Filter {
    /// Whether the table must be scanned.
    #[must_use]
    pub fn needs_scan(&self) -> bool {
        self.states.iter().any(|state| state.is_closed())
    }

    fn wants_key(&self, key: &str) -> bool {
        let source = key.split('#').next();
        self.source.as_ref().is_none_or(|wanted| source == Some(wanted.as_str()))
    }

    fn wants(&self, record: &Record) -> bool {
        self.states.contains(&record.state.name())
            && self.since.is_none_or(|since| record.received_at >= since)
            && self.until.is_none_or(|until| record.received_at < until)
            && self.error.as_ref().is_none_or(|class| {
                record.last_error.as_ref().is_some_and(|error| error.class == *class)
            })
    }

    /// The partitions of the index in which such records stand.
    fn partitions(&self) -> Vec<String> {
        let open = self.states.iter().any(|state| state.is_open());
        let parked = self.states.contains(&StateName::Failed);
        let shards = 0..limits::SHARDS;
        let open = shards.clone().filter(|_| open).map(open_shard);
        open.chain(shards.filter(|_| parked).map(parked_shard)).collect()
    }
}

/// The records that `filter` wants, after `after`, within `bounds`.
///
/// # Errors
/// If the ledger cannot be asked, or `after` is of another listing.
pub async fn page(
    ledger: &Ledger,
    filter: &Filter,
    after: Option<&Cursor>,
    bounds: Bounds,
) -> Result<Page, PageError> {
    match (filter.needs_scan(), after) {
        (true, Some(Cursor::Key(key))) => scanned(ledger, filter, Some(key), bounds).await,
        (true, None) => scanned(ledger, filter, None, bounds).await,
        (false, Some(Cursor::Due(at, key))) => {
            indexed(ledger, filter, Some((*at, key)), bounds).await
        }
        (false, None) => indexed(ledger, filter, None, bounds).await,
        (_, Some(other)) => Err(PageError::OtherListing(other.clone())),
    }
}

// ---- through the index ----------------------------------------------------------------------

async fn indexed(
    ledger: &Ledger,
    filter: &Filter,
    after: Option<(Timestamp, &EventKey)>,
    bounds: Bounds,
) -> Result<Page, PageError> {
    let mut page = Page::default();
    let mut from = after.map_or(Timestamp::from_millis(0), |(at, _)| at);
    loop {
        let stretch = stretch(ledger, filter, from, bounds.shown).await?;
        let new =
            stretch.entries.iter().filter(|(at, key)| after.is_none_or(|seen| (*at, key) > seen));
        let new: Vec<_> = new.collect();
        let mut reading = stream::iter(&new)
            .map(|(_, key)| read(ledger, filter, key))
            .buffered(READS_AT_ONCE)
            .enumerate();
        while let Some((at, entry)) = reading.next().await {
            page.looked_at += 1;
            page.entries.extend(entry?);
            if page.entries.len() >= bounds.shown || page.looked_at >= bounds.looked_at {
                let is_last = at + 1 == new.len() && stretch.ends_at.is_none();
                let (due_at, key) = new[at];
                page.next = (!is_last).then(|| Cursor::Due(*due_at, key.clone()));
                return Ok(page);
            }
        }
        match stretch.ends_at {
            Some(at) => from = at.plus(MILLISECOND),
            None => return Ok(page),
        }
    }
}

/// All entries of a stretch of time, from every partition.
struct Stretch {
    /// By time and key.
    entries: Vec<(Timestamp, EventKey)>,
    /// Its last millisecond, if there is something after it.
    ends_at: Option<Timestamp>,
}

/// The stretch from `from` on in which at least one partition has `least` entries, or all there is.
async fn stretch(
    ledger: &Ledger,
    filter: &Filter,
    from: Timestamp,
    least: usize,
) -> Result<Stretch, LedgerError> {
    let partitions = filter.partitions();
    let backlogs: Vec<_> = stream::iter(&partitions)
        .map(|partition| ledger.backlog_from(partition, from, least))
        .buffered(READS_AT_ONCE)
        .try_collect()
        .await?;
    // Where one partition goes on, the others may not be shown any further: what comes first is
    // not known there.
    let cut_off = backlogs.iter().filter(|backlog| backlog.truncated);
    let ends_at = cut_off.filter_map(|backlog| Some(backlog.entries.last()?.1)).min();
    let entries = backlogs.into_iter().flat_map(|backlog| backlog.entries);
    let mut entries: Vec<_> = entries
        .map(|(key, due_at)| (due_at, key))
        .filter(|(due_at, _)| ends_at.is_none_or(|end| *due_at <= end))
        .collect();
    entries.sort();
    Ok(Stretch { entries, ends_at })
}

/// The record of an entry, if it is wanted. The index is behind the table: what it names may be
/// gone, or be in another state.
async fn read(
    ledger: &Ledger,
    filter: &Filter,
    key: &EventKey,
) -> Result<Option<Entry>, LedgerError> {
    let pk = key.pk();
    if !filter.wants_key(&pk) {
        return Ok(None);
    }
    match ledger.read_outline(key).await {
        Ok(item) => Ok(item.and_then(|item| entry(filter, pk, Ok(item)))),
        Err(error @ LedgerError::Corrupt(_)) => Ok(entry(filter, pk, Err(error))),
        Err(error) => Err(error),
    }
}

// ---- through the table ----------------------------------------------------------------------

async fn scanned(
    ledger: &Ledger,
    filter: &Filter,
    after: Option<&str>,
    bounds: Bounds,
) -> Result<Page, PageError> {
    let states: Vec<_> = filter.states.iter().copied().collect();
    let mut page = Page::default();
    let mut after = after.map(str::to_owned);
    loop {
        let most = SCANNED_AT_ONCE.min(bounds.looked_at - page.looked_at);
        let scanned = ledger.scan(&states, after.as_deref(), most).await?;
        page.looked_at += scanned.looked_at;
        let count = scanned.items.len();
        for (at, (pk, item)) in scanned.items.into_iter().enumerate() {
            let is_wanted = filter.wants_key(&pk);
            page.entries.extend(entry(filter, pk.clone(), item).filter(|_| is_wanted));
            if page.entries.len() >= bounds.shown {
                let is_last = at + 1 == count && scanned.more.is_none();
                page.next = (!is_last).then_some(Cursor::Key(pk));
                return Ok(page);
            }
        }
        after = scanned.more;
        if after.is_none() || page.looked_at >= bounds.looked_at {
            page.next = after.map(Cursor::Key);
            return Ok(page);
        }
    }
}

fn entry(filter: &Filter, key: String, item: Result<Item, LedgerError>) -> Option<Entry> {
    let record = item.and_then(|item| Ok(Box::new(Record::from_item(item)?)));
    let wanted = record.as_ref().map_or(true, |record| filter.wants(record));
    wanted.then_some(Entry { key, record })
}

// ---- cursors as text ------------------------------------------------------------------------

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // No source has a colon, so the two cannot be taken for one another.
            Self::Due(at, key) => write!(f, "{}:{key}", at.millis()),
            Self::Key(key) => f.write_str(key),
        }
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let source = text.split('#').next().unwrap_or_default();
        let Some((at, _)) = source.split_once(':') else {
            let key = Some(text).filter(|text| !text.is_empty()).ok_or(InvalidCursor)?;
            return Ok(Self::Key(key.to_owned()));
        };
        let key = EventKey::parse(&text[at.len() + 1..]).map_err(|_| InvalidCursor)?;
        let at = at.parse().map_err(|_| InvalidCursor)?;
        Ok(Self::Due(Timestamp::from_millis(at), key))
    }
}

/// Not what a page ends with.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a continuation is what the page before says: MILLISECONDS:SOURCE#ID, or SOURCE#ID")]
pub struct InvalidCursor;

/// Records that a page looks at unless told otherwise: some seconds of reads, a cent of a scan.
pub const MOST_LOOKED_AT: usize = 10_000;
/// As many as a megabyte, where a scan stops by itself, has of typical records.
const SCANNED_AT_ONCE: usize = 1_000;
const READS_AT_ONCE: usize = 16;
const MILLISECOND: std::time::Duration = std::time::Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_as_it_is_written() {
        let key = EventKey::parse("stripe#1:a#b").expect("valid");
        for cursor in [
            Cursor::Due(Timestamp::from_millis(1_700_000_000_000), key.clone()),
            Cursor::Key(key.pk()),
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for other in ["", "x:stripe#1", "1:stripe", "12:", ":stripe#1"] {
            assert_eq!(other.parse::<Cursor>(), Err(InvalidCursor), "{other}");
        }
    }

    #[test]
    fn only_what_stands_in_no_index_is_scanned_for() {
        use StateName::{Discarded, Done, Failed, Processing, Received};
        let partitions = |states: &[StateName]| {
            let states = states.iter().copied().collect();
            let (source, since, until, error) = Default::default();
            let filter = Filter { states, source, since, until, error };
            (!filter.needs_scan()).then(|| filter.partitions().len())
        };
        assert_eq!(partitions(&[Received]), Some(8));
        assert_eq!(partitions(&[Failed]), Some(8));
        assert_eq!(partitions(&[Processing, Failed]), Some(16));
        assert_eq!(partitions(&[Done]), None);
        assert_eq!(partitions(&[Failed, Discarded]), None);
    }
}
