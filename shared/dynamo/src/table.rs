//! The table as code: for the embedded stack and for tests. Deployments use the template.

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    operation::create_table::CreateTableError,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
        Projection, ProjectionType, ScalarAttributeType, TimeToLiveSpecification,
    },
};
use domain::item::{Attribute, OPEN_BY_DUE};

use crate::outcome::LedgerError;

/// Creates the ledger table with its index and TTL. One that is there already is left as it is.
///
/// # Errors
/// If DynamoDB cannot be asked or refuses.
pub async fn create_table(client: &Client, table: &str) -> Result<(), LedgerError> {
    let incomplete = |error: BuildError| LedgerError::Refused {
        call: "CreateTable",
        table: table.to_owned(),
        code: "incomplete request".to_owned(),
        message: error.to_string(),
    };
    let index = GlobalSecondaryIndex::builder()
        .index_name(OPEN_BY_DUE)
        .key_schema(key(Attribute::QueueKey, KeyType::Hash).map_err(incomplete)?)
        .key_schema(key(Attribute::DueAt, KeyType::Range).map_err(incomplete)?)
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .map_err(incomplete)?;
    let created = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute(Attribute::Pk, "S").map_err(incomplete)?)
        .attribute_definitions(attribute(Attribute::QueueKey, "S").map_err(incomplete)?)
        .attribute_definitions(attribute(Attribute::DueAt, "N").map_err(incomplete)?)
        .key_schema(key(Attribute::Pk, KeyType::Hash).map_err(incomplete)?)
        .global_secondary_indexes(index)
        .send()
        .await;
    match created {
        Ok(_) => enable_ttl(client, table).await,
        Err(error) => match error.as_service_error() {
            Some(CreateTableError::ResourceInUseException(_)) => Ok(()),
            _ => Err(LedgerError::from_sdk("CreateTable", table, &error)),
        },
    }
}

async fn enable_ttl(client: &Client, table: &str) -> Result<(), LedgerError> {
    let ttl = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name(Attribute::ExpiresAt.name())
        .build();
    let updated = client
        .update_time_to_live()
        .table_name(table)
        .set_time_to_live_specification(ttl.ok())
        .send()
        .await;
    updated.map(drop).map_err(|error| LedgerError::from_sdk("UpdateTimeToLive", table, &error))
}

fn key(attribute: Attribute, key_type: KeyType) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(attribute.name()).key_type(key_type).build()
}

fn attribute(attribute: Attribute, kind: &str) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder()
        .attribute_name(attribute.name())
        .attribute_type(ScalarAttributeType::from(kind))
        .build()
}
