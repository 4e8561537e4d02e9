//! Looking through the ledger page by page, for people. Nothing here decides about an event.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    item::{Attribute, Item, OPEN_BY_DUE},
    record::StateName,
    time::Timestamp,
};

use crate::{
    Backlog, Ledger, LedgerError,
    item::from_attributes,
    ledger::{index_entry, outline},
};

/// Some records, in the order in which the table keeps them, which means nothing.
#[derive(Debug)]
pub struct Scanned {
    /// Partition keys, and the records without their payloads, as far as they can be read.
    pub items: Vec<(String, Result<Item, LedgerError>)>,
    /// How many records were looked at, those of other states included.
    pub looked_at: usize,
    /// The partition key after which there are more.
    pub more: Option<String>,
}

impl Ledger {
    /// Entries of a partition of the index that are due at `from` or later, the earliest first: at
    /// least `least` of them if there are so many, and always all of the last one's millisecond, so
    /// that the next page begins with the one after it.
    ///
    /// # Errors
    /// If it cannot be known.
    pub async fn backlog_from(
        &self,
        partition: &str,
        from: Timestamp,
        least: usize,
    ) -> Result<Backlog, LedgerError> {
        let mut entries = Vec::new();
        let mut start = None;
        loop {
            let query = self
                .client()
                .query()
                .table_name(self.table())
                .index_name(OPEN_BY_DUE)
                .key_condition_expression("#queue_key = :partition AND #due_at >= :from")
                .expression_attribute_names("#queue_key", Attribute::QueueKey.name())
                .expression_attribute_names("#due_at", Attribute::DueAt.name())
                .expression_attribute_values(":partition", AttributeValue::S(partition.to_owned()))
                .expression_attribute_values(":from", AttributeValue::N(from.to_string()))
                // One more than wanted shows that a millisecond is over.
                .limit(i32::try_from(least.saturating_add(1)).unwrap_or(i32::MAX))
                .set_exclusive_start_key(start);
            let page = query.send().await.map_err(|error| self.error("Query", &error))?;
            entries.extend(page.items.unwrap_or_default().iter().filter_map(index_entry));
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(Backlog { entries, truncated: false });
            }
            let Some((_, last)) = entries.last() else { continue };
            let whole = entries.partition_point(|(_, due_at)| due_at < last);
            if whole >= least.max(1) {
                entries.truncate(whole);
                return Ok(Backlog { entries, truncated: true });
            }
        }
    }

    /// Looks at up to `most` records after `after`, and gives those in one of `states`. Records of
    /// a state do not lie together: this reads, and pays for, all that is in between.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn scan(
        &self,
        states: &[StateName],
        after: Option<&str>,
        most: usize,
    ) -> Result<Scanned, LedgerError> {
        let (projection, names) = outline();
        let wanted = (0..).zip(states);
        let wanted: HashMap<_, _> = wanted
            .map(|(n, state)| (format!(":s{n}"), AttributeValue::S(state.as_str().to_owned())))
            .collect();
        let placeholders = wanted.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        let start = after.map(|pk| {
            HashMap::from([(Attribute::Pk.name().to_owned(), AttributeValue::S(pk.to_owned()))])
        });
        let scan = self
            .client()
            .scan()
            .table_name(self.table())
            .consistent_read(true)
            .projection_expression(projection)
            .filter_expression(format!("#state IN ({placeholders})"))
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(wanted))
            .limit(i32::try_from(most).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start);
        let page = scan.send().await.map_err(|error| self.error("Scan", &error))?;
        let items = page.items.unwrap_or_default().into_iter();
        Ok(Scanned {
            items: items
                .map(|item| {
                    (pk_of(&item).unwrap_or_default(), from_attributes(item).map_err(Into::into))
                })
                .collect(),
            looked_at: usize::try_from(page.scanned_count).unwrap_or(0),
            more: page.last_evaluated_key.as_ref().and_then(pk_of),
        })
    }
}

fn pk_of(attributes: &HashMap<String, AttributeValue>) -> Option<String> {
    attributes.get(Attribute::Pk.name())?.as_s().ok().cloned()
}
