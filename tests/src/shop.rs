//! What an event has done: local effects in a table of their own, and an outside service that
//! writes down every call it gets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, TransactWriteItem, Update},
};
use domain::effects::StepPolicy;
use worker::{Effects, Event, Failure};

use crate::handlers::Scripted;

/// Credits per event, and the calls of an outside service.
#[derive(Debug, Default)]
pub struct Shop {
    calls: Mutex<Vec<(String, String)>>,
}

impl Shop {
    /// A shop whose credits lie in a table beside the ledger's.
    pub async fn open(client: &Client) -> Arc<Self> {
        dynamo::create_table(client, CREDITS).await.expect("a table");
        Arc::new(Self::default())
    }

    /// Credits the event, and ships under the step's key.
    ///
    /// # Errors
    /// What stops the attempt.
    pub async fn serve(&self, event: &Event, effects: &mut Effects<'_>) -> Result<(), Failure> {
        effects.write(credit(event))?;
        self.ship(event, effects, StepPolicy::Repeat).await
    }

    /// Ships under the step's key.
    ///
    /// # Errors
    /// What stops the attempt.
    pub async fn ship(
        &self,
        event: &Event,
        effects: &mut Effects<'_>,
        policy: StepPolicy,
    ) -> Result<(), Failure> {
        let id = event.key.id().as_str().to_owned();
        let call = async |key| {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).push((id, key));
            Ok("shipped".to_owned())
        };
        let result: String = effects.step("ship", policy, call).await?;
        assert_eq!(result, "shipped", "a recorded result is what was returned");
        Ok(())
    }

    /// A handler that serves.
    #[must_use]
    pub fn handler(self: &Arc<Self>) -> Arc<Scripted> {
        let shop = Arc::clone(self);
        Scripted::new(move |event, effects| {
            let shop = Arc::clone(&shop);
            Box::pin(async move { shop.serve(event, effects).await })
        })
    }

    /// The calls so far: event id and key.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, String)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A local write that is no better than its transaction: repeated, it counts again.
pub(crate) fn credit(event: &Event) -> TransactWriteItem {
    let update = Update::builder()
        .table_name(CREDITS)
        .key("pk", AttributeValue::S(event.key.id().as_str().to_owned()))
        .update_expression("ADD credits :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
        .build();
    TransactWriteItem::builder().update(update.expect("complete")).build()
}

/// Credits by event id.
pub async fn credits(client: &Client) -> BTreeMap<String, u64> {
    let scanned = client.scan().table_name(CREDITS).consistent_read(true).send();
    let items = scanned.await.expect("a scan").items.unwrap_or_default();
    let credit = |item: &std::collections::HashMap<String, AttributeValue>| {
        let id = item.get("pk")?.as_s().ok()?.clone();
        Some((id, item.get("credits")?.as_n().ok()?.parse().ok()?))
    };
    items.iter().map(|item| credit(item).expect("a credit")).collect()
}

/// Table of the credits.
pub const CREDITS: &str = "credits";
