//! The calls. Each asks for the old item where its condition fails, so that an outcome takes one
//! round trip.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    error::ProvideErrorMetadata,
    operation::{
        put_item::PutItemError, transact_write_items::TransactWriteItemsError,
        update_item::UpdateItemError,
    },
    types::{
        AttributeValue, CancellationReason, Put, ReturnValue, ReturnValuesOnConditionCheckFailure,
        TransactWriteItem, Update,
    },
};
use domain::{
    effects::hex,
    event::EventKey,
    item::{Attribute, Item, OPEN_BY_DUE},
    record::LeaseOwner,
    seeded::{self, Fault},
    time::Timestamp,
    transition::{Claim, Claimed, Lease},
    write::{Both, Change, Edit, GuardedWrite, Written},
};
use sha2::{Digest, Sha256};

use crate::{
    expression::Placeholders,
    item::{from_attributes, to_attributes},
    outcome::{CONDITION_FAILED, LedgerError, RETRIABLE_REASONS, RetryConflicts},
};

/// The DynamoDB table of event records.
#[derive(Clone, Debug)]
pub struct Ledger {
    client: Client,
    table: String,
}

/// Whether an update answers with the record as it is afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// It does: a lease needs the record.
    Record,
    /// It does not.
    Nothing,
}

/// What became of a transaction of a record and its event's local writes.
#[derive(Debug)]
pub enum Committed {
    /// All of it, or the record's guard did not hold: as of a single write.
    Record(Written),
    /// A condition among the local writes did not hold; nothing was written.
    LocalRefused {
        /// Which of them, from 0.
        index: usize,
    },
}

/// Some entries of one partition of the `open-by-due` index, the earliest due first.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Keys with their `due_at`.
    pub entries: Vec<(EventKey, Timestamp)>,
    /// Whether there are more.
    pub truncated: bool,
}

impl Ledger {
    /// A ledger on `table`, by a client of this configuration.
    pub fn new(config: impl Into<aws_sdk_dynamodb::config::Builder>, table: String) -> Self {
        let config = config.into().retry_classifier(RetryConflicts).build();
        Self { client: Client::from_conf(config), table }
    }

    /// The client, for local writes of handlers.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Opens the connection before the first delivery waits for it, and says early that a table
    /// is missing.
    ///
    /// # Errors
    /// If the table cannot be described.
    pub async fn warm(&self) -> Result<(), LedgerError> {
        let described = self.client.describe_table().table_name(&self.table).send().await;
        described.map(drop).map_err(|error| self.error("DescribeTable", &error))
    }

    /// Carries out one guarded write.
    ///
    /// # Errors
    /// If the outcome is not known, or the record in the way cannot be read.
    pub async fn write(
        &self,
        write: &GuardedWrite,
        returning: Returning,
    ) -> Result<Written, LedgerError> {
        match &write.change {
            Change::Put(item) => self.put(write, item).await,
            Change::Update(edits) => self.update(write, edits, returning).await,
        }
    }

    /// Claims an event: one write, or a transaction of two where its fingerprint is claimed too.
    ///
    /// # Errors
    /// If the outcome is not known, or the record in the way cannot be read.
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, LedgerError> {
        let claimed = match &claim.fingerprint {
            None => claim.settle(self.write(&claim.write, Returning::Nothing).await?),
            Some(fingerprint) => {
                claim.settle_both(self.write_both(&claim.write, fingerprint).await?)
            }
        };
        Ok(claimed?)
    }

    /// Carries out two guarded writes of which both take hold, or neither.
    ///
    /// # Errors
    /// If the outcome is not known, or the record in the way cannot be read.
    pub async fn write_both(
        &self,
        first: &GuardedWrite,
        second: &GuardedWrite,
    ) -> Result<Both, LedgerError> {
        let items = vec![self.transact_item(first)?, self.transact_item(second)?];
        // The SDK makes a request token of its own for each call, the same for its retries.
        let sent = self.client.transact_write_items().set_transact_items(Some(items)).send().await;
        let error = match sent {
            Ok(_) => return Ok(Both::First(Written::Applied(None))),
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            return Err(self.error("TransactWriteItems", &error));
        };
        let reasons = cancelled.cancellation_reasons();
        match first_refused(reasons) {
            Some(0) => Ok(Both::First(self.refused(&first.key, reasons[0].item.as_ref()).await?)),
            Some(position) => {
                match self.refused(&second.key, reasons[position].item.as_ref()).await? {
                    Written::Refused(item) => Ok(Both::SecondRefused(item)),
                    Written::Applied(_) => Ok(Both::SecondRefused(None)),
                }
            }
            // Still in another transaction after retries: as with a single write, whoever runs it
            // has the record.
            None => match self.read(&first.key).await? {
                Some(item) => Ok(Both::First(Written::Refused(Some(item)))),
                None => Err(self.uncancelled(reasons, "an event cannot be claimed")),
            },
        }
    }

    async fn put(&self, write: &GuardedWrite, item: &Item) -> Result<Written, LedgerError> {
        if seeded::is_on(Fault::CheckThenInsert) {
            return self.check_then_insert(write, item).await;
        }
        let mut placeholders = Placeholders::default();
        let condition = placeholders.condition(&write.guard);
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(to_attributes(item)))
            .condition_expression(condition)
            .set_expression_attribute_names(placeholders.names())
            .set_expression_attribute_values(placeholders.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.send().await {
            Ok(_) => Ok(Written::Applied(None)),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                    self.refused(&write.key, failed.item()).await
                }
                // Still in a transaction after retries: whoever runs it has the record, so it is
                // there, and this is no more than a lost race. Unless a read finds none.
                Some(PutItemError::TransactionConflictException(_)) => {
                    match self.read(&write.key).await? {
                        Some(item) => Ok(Written::Refused(Some(item))),
                        None => Err(self.error("PutItem", &error)),
                    }
                }
                _ => Err(self.error("PutItem", &error)),
            },
        }
    }

    /// What not to do. See [`Fault::CheckThenInsert`].
    async fn check_then_insert(
        &self,
        write: &GuardedWrite,
        item: &Item,
    ) -> Result<Written, LedgerError> {
        if let Some(item) = self.read(&write.key).await? {
            return Ok(Written::Refused(Some(item)));
        }
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(to_attributes(item))).send().await;
        put.map(|_| Written::Applied(None)).map_err(|error| self.error("PutItem", &error))
    }

    async fn update(
        &self,
        write: &GuardedWrite,
        edits: &[Edit],
        returning: Returning,
    ) -> Result<Written, LedgerError> {
        let mut placeholders = Placeholders::default();
        let condition = placeholders.condition(&write.guard);
        let expression = placeholders.update(edits);
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(Attribute::Pk.name(), AttributeValue::S(write.key.pk()))
            .update_expression(expression)
            .condition_expression(condition)
            .set_expression_attribute_names(placeholders.names())
            .set_expression_attribute_values(placeholders.values())
            .return_values(match returning {
                Returning::Record => ReturnValue::AllNew,
                Returning::Nothing => ReturnValue::None,
            })
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.send().await {
            Ok(output) => Ok(Written::Applied(output.attributes.map(from_attributes).transpose()?)),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    self.refused(&write.key, failed.item()).await
                }
                _ => Err(self.error("UpdateItem", &error)),
            },
        }
    }

    /// Carries out a guarded update and an event's local writes in one transaction.
    ///
    /// The request token is made of table and lease, which no other commit shares: a repeat after
    /// a lost response, within ten minutes, is answered as the first was.
    ///
    /// # Errors
    /// If the outcome is not known, or the transaction kept meeting others.
    pub async fn commit(
        &self,
        write: &GuardedWrite,
        lease: &Lease,
        local: Vec<TransactWriteItem>,
    ) -> Result<Committed, LedgerError> {
        if seeded::is_on(Fault::MarkerAfterEffect) {
            return self.effect_then_marker(write, local).await;
        }
        let record = self.transact_item(write)?;
        let items = std::iter::once(record).chain(local).collect();
        let sent = self
            .client
            .transact_write_items()
            .client_request_token(commit_token(&self.table, lease.owner()))
            .set_transact_items(Some(items))
            .send()
            .await;
        let error = match sent {
            Ok(_) => return Ok(Committed::Record(Written::Applied(None))),
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            let error = self.error("TransactWriteItems", &error);
            // The lease was written to the ledger's own table: a local write's is meant.
            if let LedgerError::MissingTable { call, table } = error {
                let code = "ResourceNotFoundException".to_owned();
                let message = "a table of the local writes does not exist".to_owned();
                return Err(LedgerError::Refused { call, table, code, message });
            }
            return Err(error);
        };
        self.read_cancellation(&write.key, cancelled.cancellation_reasons()).await
    }

    /// What not to do. See [`Fault::MarkerAfterEffect`].
    async fn effect_then_marker(
        &self,
        write: &GuardedWrite,
        local: Vec<TransactWriteItem>,
    ) -> Result<Committed, LedgerError> {
        let effect = self.client.transact_write_items().set_transact_items(Some(local)).send();
        effect.await.map_err(|error| self.error("TransactWriteItems", &error))?;
        self.write(write, Returning::Nothing).await.map(Committed::Record)
    }

    /// Reasons come by position: the record's first, then the local writes in their order.
    async fn read_cancellation(
        &self,
        key: &EventKey,
        reasons: &[CancellationReason],
    ) -> Result<Committed, LedgerError> {
        match first_refused(reasons) {
            Some(0) => Ok(Committed::Record(self.refused(key, reasons[0].item.as_ref()).await?)),
            Some(position) => Ok(Committed::LocalRefused { index: position - 1 }),
            None => Err(self.uncancelled(reasons, "a local write cannot be carried out")),
        }
    }

    /// Why a transaction was cancelled, if by no condition.
    fn uncancelled(&self, reasons: &[CancellationReason], message: &str) -> LedgerError {
        let (call, table) = ("TransactWriteItems", self.table.clone());
        let codes = || reasons.iter().filter_map(CancellationReason::code);
        if codes().any(|code| RETRIABLE_REASONS.contains(&code)) {
            return LedgerError::Conflict { call, table };
        }
        let code = codes().find(|code| *code != "None").unwrap_or("cancelled").to_owned();
        LedgerError::Refused { call, table, code, message: message.to_owned() }
    }

    fn transact_item(&self, write: &GuardedWrite) -> Result<TransactWriteItem, LedgerError> {
        let item = TransactWriteItem::builder();
        let mut placeholders = Placeholders::default();
        let condition = placeholders.condition(&write.guard);
        match &write.change {
            Change::Put(attributes) => Put::builder()
                .table_name(&self.table)
                .set_item(Some(to_attributes(attributes)))
                .condition_expression(condition)
                .set_expression_attribute_names(placeholders.names())
                .set_expression_attribute_values(placeholders.values())
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .build()
                .map(|put| item.put(put).build()),
            Change::Update(edits) => Update::builder()
                .table_name(&self.table)
                .key(Attribute::Pk.name(), AttributeValue::S(write.key.pk()))
                .update_expression(placeholders.update(edits))
                .condition_expression(condition)
                .set_expression_attribute_names(placeholders.names())
                .set_expression_attribute_values(placeholders.values())
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .build()
                .map(|update| item.update(update).build()),
        }
        .map_err(|error| LedgerError::Refused {
            call: "TransactWriteItems",
            table: self.table.clone(),
            code: "incomplete request".to_owned(),
            message: error.to_string(),
        })
    }

    /// A refusal, with the record that refused. Emulators may leave it out; then, and where there
    /// is no record at all, a consistent read tells.
    async fn refused(
        &self,
        key: &EventKey,
        old: Option<&HashMap<String, AttributeValue>>,
    ) -> Result<Written, LedgerError> {
        match old.filter(|item| !item.is_empty()) {
            Some(item) => Ok(Written::Refused(Some(from_attributes(item.clone())?))),
            None => Ok(Written::Refused(self.read(key).await?)),
        }
    }

    /// Reads a record, consistently.
    ///
    /// # Errors
    /// If it cannot be known, or read.
    pub async fn read(&self, key: &EventKey) -> Result<Option<Item>, LedgerError> {
        let get = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(Attribute::Pk.name(), AttributeValue::S(key.pk()))
            .consistent_read(true);
        let output = get.send().await.map_err(|error| self.error("GetItem", &error))?;
        Ok(output.item.map(from_attributes).transpose()?)
    }

    /// Reads a record without its payload, consistently: what a sweep needs.
    ///
    /// # Errors
    /// If it cannot be known, or read.
    pub async fn read_outline(&self, key: &EventKey) -> Result<Option<Item>, LedgerError> {
        let (projection, names) = outline();
        let get = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(Attribute::Pk.name(), AttributeValue::S(key.pk()))
            .consistent_read(true)
            .projection_expression(projection)
            .set_expression_attribute_names(Some(names));
        let output = get.send().await.map_err(|error| self.error("GetItem", &error))?;
        Ok(output.item.map(from_attributes).transpose()?)
    }

    /// The first `limit` entries of a partition of the index. Eventually consistent, as indexes
    /// are: what it names is read again before anything is decided.
    ///
    /// # Errors
    /// If it cannot be known.
    pub async fn backlog(&self, partition: &str, limit: usize) -> Result<Backlog, LedgerError> {
        let mut backlog = Backlog::default();
        let mut start = None;
        loop {
            let room = limit - backlog.entries.len();
            let query = self
                .client
                .query()
                .table_name(&self.table)
                .index_name(OPEN_BY_DUE)
                .key_condition_expression("#queue_key = :partition")
                .expression_attribute_names("#queue_key", Attribute::QueueKey.name())
                .expression_attribute_values(":partition", AttributeValue::S(partition.to_owned()))
                .limit(i32::try_from(room).unwrap_or(i32::MAX))
                .set_exclusive_start_key(start);
            let page = query.send().await.map_err(|error| self.error("Query", &error))?;
            backlog.entries.extend(page.items.unwrap_or_default().iter().filter_map(index_entry));
            start = page.last_evaluated_key;
            if start.is_none() || backlog.entries.len() >= limit {
                backlog.truncated = start.is_some();
                return Ok(backlog);
            }
        }
    }

    pub(crate) fn error<E: ProvideErrorMetadata, R>(
        &self,
        call: &'static str,
        error: &aws_sdk_dynamodb::error::SdkError<E, R>,
    ) -> LedgerError {
        LedgerError::from_sdk(call, &self.table, error)
    }
}

/// All but the payload, as a projection and its names.
pub(crate) fn outline() -> (String, HashMap<String, String>) {
    let wanted = || Attribute::ALL.into_iter().filter(|a| *a != Attribute::Payload);
    let names = wanted().map(|a| (format!("#{}", a.name()), a.name().to_owned())).collect();
    let projection = wanted().map(|a| format!("#{}", a.name())).collect::<Vec<_>>().join(",");
    (projection, names)
}

pub(crate) fn index_entry(
    attributes: &HashMap<String, AttributeValue>,
) -> Option<(EventKey, Timestamp)> {
    let pk = attributes.get(Attribute::Pk.name())?.as_s().ok()?;
    let due_at = attributes.get(Attribute::DueAt.name())?.as_n().ok()?;
    Some((EventKey::parse(pk).ok()?, Timestamp::from_millis(due_at.parse().ok()?)))
}

/// At most 36 characters, as DynamoDB takes them.
/// The first whose condition did not hold. Reasons come by position.
fn first_refused(reasons: &[CancellationReason]) -> Option<usize> {
    reasons.iter().position(|reason| reason.code() == Some(CONDITION_FAILED))
}

fn commit_token(table: &str, owner: &LeaseOwner) -> String {
    let digest = Sha256::digest(format!("{table}#{}", owner.0));
    hex(&digest[..16])
}
