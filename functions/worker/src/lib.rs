//! The worker: lease → effects → complete | release | park.
//!
//! What a user edits lies in [`handlers`]. Everything else makes their effects take hold once.

mod attempt;
mod batch;
mod effects;
mod failure;
pub mod handlers;

use std::sync::Arc;

use aws_lambda_events::sqs::SqsEvent;
use domain::time::Timestamp;
use lambda_runtime::{LambdaEvent, service_fn};
use runtime::{
    aws::{Patience, install_tls_provider, sdk_config},
    clock::Clock,
    config::Config,
    environment::{names, required},
    payloads::PayloadStore,
    secrets::SecretStore,
    telemetry,
};

pub use attempt::{Attempts, Disposition};
pub use batch::work;
pub use effects::{Effects, Event};
pub use failure::Failure;
pub use handlers::Handlers;

/// Runs as a Lambda function until its environment ends.
///
/// # Errors
/// If it cannot start: the reason is logged as well.
pub async fn run() -> Result<(), lambda_runtime::Error> {
    let _telemetry = telemetry::start();
    let attempts = match start().await {
        Ok(attempts) => Arc::new(attempts),
        Err(error) => {
            tracing::error!(error = %error, "the worker cannot start");
            return Err(error);
        }
    };
    lambda_runtime::run(service_fn(move |event: LambdaEvent<SqsEvent>| {
        let attempts = Arc::clone(&attempts);
        async move {
            let deadline = i64::try_from(event.context.deadline).unwrap_or(i64::MAX);
            let deadline = Timestamp::from_millis(deadline);
            work(&attempts, event.payload, deadline).await.map_err(lambda_runtime::Error::from)
        }
    }))
    .await
}

async fn start() -> Result<Attempts, lambda_runtime::Error> {
    install_tls_provider();
    let table = required(names::TABLE)?;
    let queue_url = required(names::QUEUE_URL)?;
    let aws = sdk_config(Patience::WORKER).await;
    let store = SecretStore::new(Some(aws.clone()));
    let config = Config::load(&store).await?;
    let payloads = PayloadStore::from_environment(&aws)?;
    let ledger = dynamo::Ledger::new(&aws, table);
    let queue = sqs::Queue::new(&aws, queue_url);
    let handlers = Handlers::new(&config, &store)?;
    // The first batch finds the connections open. A failure here is only logged: whether AWS
    // answers is asked anew for each record.
    let (ledger_warm, queue_warm, ()) =
        futures::join!(ledger.warm(), queue.warm(), handlers.warm());
    if let Err(error) = ledger_warm {
        tracing::error!(error = %error, "the ledger cannot be reached");
    }
    if let Err(error) = queue_warm {
        tracing::error!(error = %error, "the queue cannot be reached");
    }
    let clock = Clock::from_environment();
    Ok(Attempts::new(config, handlers, ledger, queue, clock).with_payloads(payloads))
}
