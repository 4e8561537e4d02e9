//! The sweeper: due records → requeue | park, and the gauges that show what is open, stuck and
//! parked.
//!
//! It needs no configuration of sources: what it decides lies on the records.

mod pass;

use std::sync::Arc;

use lambda_runtime::{LambdaEvent, service_fn};
use runtime::{
    aws::{Patience, sdk_config},
    clock::Clock,
    environment::{names, required},
    telemetry,
};

pub use pass::{IncompletePass, Sweeper};

/// Runs as a Lambda function until its environment ends.
///
/// # Errors
/// If it cannot start: the reason is logged as well.
pub async fn run() -> Result<(), lambda_runtime::Error> {
    let _telemetry = telemetry::start();
    let sweeper = match start().await {
        Ok(sweeper) => Arc::new(sweeper),
        Err(error) => {
            tracing::error!(error = %error, "the sweeper cannot start");
            return Err(error);
        }
    };
    lambda_runtime::run(service_fn(move |_event: LambdaEvent<serde_json::Value>| {
        let sweeper = Arc::clone(&sweeper);
        async move { sweeper.sweep().await.map_err(lambda_runtime::Error::from) }
    }))
    .await
}

async fn start() -> Result<Sweeper, lambda_runtime::Error> {
    let table = required(names::TABLE)?;
    let queue_url = required(names::QUEUE_URL)?;
    let aws = sdk_config(Patience::WORKER).await;
    let ledger = dynamo::Ledger::new(&aws, table);
    let queue = sqs::Queue::new(&aws, queue_url);
    Ok(Sweeper::new(ledger, queue, Clock::from_environment()))
}
