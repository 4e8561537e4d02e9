//! The table as it is deployed, for whoever asks whether it is as it should be.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::BeforeDeserializationInterceptorContextRef,
    },
    error::BoxError,
    types::{
        IndexStatus, KeySchemaElement, KeyType, ProjectionType, TableStatus, TimeToLiveStatus,
    },
};

use crate::{Ledger, LedgerError};

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether it serves.
    pub active: bool,
    /// Its key: partition, then sort.
    pub key: Vec<String>,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Whether it cannot be deleted by mistake; `None` where the endpoint does not say.
    pub deletion_protected: Option<bool>,
    /// The `Date` header of the answer, as it came.
    pub date: Option<String>,
}

/// An index of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// Its key: partition, then sort.
    pub key: Vec<String>,
    /// Whether it serves.
    pub active: bool,
    /// Whether it holds keys alone.
    pub keys_only: bool,
}

impl Ledger {
    /// The table as it is.
    ///
    /// # Errors
    /// If it is not there, or cannot be asked for.
    pub async fn inspect(&self) -> Result<Table, LedgerError> {
        let date = DateHeader::default();
        let asked = self.client().describe_table().table_name(self.table());
        let described = asked.customize().interceptor(date.clone()).send().await;
        let described = described.map_err(|error| self.error("DescribeTable", &error))?;
        let table = described.table.ok_or_else(|| LedgerError::MissingTable {
            call: "DescribeTable",
            table: self.table().to_owned(),
        })?;
        let indexes = table.global_secondary_indexes.unwrap_or_default().into_iter();
        Ok(Table {
            active: table.table_status == Some(TableStatus::Active),
            key: key_of(&table.key_schema.unwrap_or_default()),
            indexes: indexes
                .map(|index| Index {
                    name: index.index_name.unwrap_or_default(),
                    key: key_of(&index.key_schema.unwrap_or_default()),
                    active: index.index_status == Some(IndexStatus::Active),
                    keys_only: index.projection.and_then(|it| it.projection_type)
                        == Some(ProjectionType::KeysOnly),
                })
                .collect(),
            deletion_protected: table.deletion_protection_enabled,
            date: date.0.lock().unwrap_or_else(PoisonError::into_inner).take(),
        })
    }

    /// The attribute by which the table deletes, if it does.
    ///
    /// # Errors
    /// If it cannot be asked for.
    pub async fn ttl_attribute(&self) -> Result<Option<String>, LedgerError> {
        let asked = self.client().describe_time_to_live().table_name(self.table());
        let described = asked.send().await;
        let described = described.map_err(|error| self.error("DescribeTimeToLive", &error))?;
        let ttl = described.time_to_live_description;
        let ttl = ttl.filter(|ttl| {
            let on = [TimeToLiveStatus::Enabled, TimeToLiveStatus::Enabling];
            ttl.time_to_live_status.as_ref().is_some_and(|status| on.contains(status))
        });
        Ok(ttl.and_then(|ttl| ttl.attribute_name))
    }
}

fn key_of(schema: &[KeySchemaElement]) -> Vec<String> {
    let named = |kind: &KeyType| {
        let found = schema.iter().find(|element| element.key_type() == kind);
        found.map(|element| element.attribute_name().to_owned())
    };
    [&KeyType::Hash, &KeyType::Range].into_iter().filter_map(named).collect()
}

/// Keeps the `Date` header of the last answer.
#[derive(Clone, Debug, Default)]
struct DateHeader(Arc<Mutex<Option<String>>>);

impl Intercept for DateHeader {
    fn name(&self) -> &'static str {
        "date header"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}
