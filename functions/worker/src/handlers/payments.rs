//! The reference handler: on `payment_intent.succeeded` it credits an account, sends a receipt and
//! orders a shipment. Once each, whatever is delivered twice or crashes in between.
//!
//! The credit is a local write: it commits with the record, or not at all. Receipt and shipment are
//! calls to services that take an `Idempotency-Key`, so they may be repeated under the same key.

use aws_sdk_dynamodb::{
    error::BuildError,
    types::{AttributeValue, TransactWriteItem, Update},
};
use domain::effects::StepPolicy;
use futures::future::BoxFuture;
use reqwest::Client;
use runtime::environment::{MissingVariable, required};
use serde::{Deserialize, Serialize};

use super::{Handler, http::transport_failure};
use crate::{
    effects::{Effects, Event},
    failure::Failure,
};

/// Credits, receipts and shipments.
#[derive(Debug)]
pub struct Payments {
    accounts_table: String,
    receipt_url: String,
    shipment_url: String,
    client: Client,
}

/// What of a payment matters here. Amounts are whole numbers of the currency's smallest unit.
#[derive(Debug, Deserialize)]
struct PaymentEvent {
    data: PaymentData,
}

#[derive(Debug, Deserialize)]
struct PaymentData {
    object: PaymentIntent,
}

#[derive(Debug, Deserialize)]
struct PaymentIntent {
    id: String,
    amount_received: u64,
    currency: String,
    customer: String,
}

/// What the receipt and shipment services are told.
#[derive(Serialize)]
struct Order<'a> {
    payment: &'a str,
    account: &'a str,
    amount: u64,
    currency: &'a str,
}

/// What they answer, kept in the journal.
#[derive(Serialize, Deserialize)]
struct Receipt {
    id: String,
}

impl Payments {
    /// Settings from `PAYMENTS_ACCOUNTS_TABLE`, `PAYMENTS_RECEIPT_URL`, `PAYMENTS_SHIPMENT_URL`.
    ///
    /// # Errors
    /// If one is missing.
    pub fn from_environment(client: Client) -> Result<Self, MissingVariable> {
        Ok(Self {
            accounts_table: required("PAYMENTS_ACCOUNTS_TABLE")?,
            receipt_url: required("PAYMENTS_RECEIPT_URL")?,
            shipment_url: required("PAYMENTS_SHIPMENT_URL")?,
            client,
        })
    }

    async fn succeeded(&self, event: &Event, effects: &mut Effects<'_>) -> Result<(), Failure> {
        // Serde's message would quote the payload.
        let event: PaymentEvent = serde_json::from_slice(&event.payload).map_err(|error| {
            let text = format!("line {}, column {}", error.line(), error.column());
            Failure::permanent("not_a_payment", text)
        })?;
        let payment = event.data.object;
        let order = Order {
            payment: &payment.id,
            account: &payment.customer,
            amount: payment.amount_received,
            currency: &payment.currency,
        };
        effects.write(self.credit(&payment).map_err(|e| Failure::permanent("credit", e))?)?;
        effects
            .step("receipt", StepPolicy::Repeat, async |key| {
                self.post(&self.receipt_url, &key, &order).await
            })
            .await?;
        effects
            .step("shipment", StepPolicy::Repeat, async |key| {
                self.post(&self.shipment_url, &key, &order).await
            })
            .await?;
        Ok(())
    }

    fn credit(&self, payment: &PaymentIntent) -> Result<TransactWriteItem, BuildError> {
        let update = Update::builder()
            .table_name(&self.accounts_table)
            .key("account", AttributeValue::S(payment.customer.clone()))
            .update_expression("ADD balance :amount, credits :one")
            .expression_attribute_values(
                ":amount",
                AttributeValue::N(payment.amount_received.to_string()),
            )
            .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
            .build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    async fn post(&self, url: &str, key: &str, order: &Order<'_>) -> Result<Receipt, Failure> {
        let body = serde_json::to_vec(order).map_err(|e| Failure::permanent("order", e))?;
        let sent = self
            .client
            .post(url)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .timeout(CALL_TIMEOUT)
            .body(body)
            .send()
            .await;
        let response = sent.map_err(|error| transport_failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(Failure::retry("service_failed", format!("the service answered {status}")));
        }
        let body = response.bytes().await.map_err(|error| transport_failure(&error))?;
        serde_json::from_slice(&body)
            .map_err(|_| Failure::retry("service_answer", "the service's answer has no id"))
    }
}

impl Handler for Payments {
    fn handle<'a>(
        &'a self,
        event: &'a Event,
        effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match event.event_type.as_deref() {
                Some("payment_intent.succeeded") => self.succeeded(event, effects).await,
                _ => Ok(()),
            }
        })
    }
}

const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
