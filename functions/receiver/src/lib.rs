//! The receiver: verify → identify → claim → enqueue → answer.
//!
//! The provider hears 2xx only once every event of its delivery is on record. Nothing is written
//! for a delivery that does not verify.

mod events;
mod fetch;
pub mod handler;
pub mod http;
mod keys;
mod refusal;
mod seeded;

use std::sync::Arc;

use lambda_http::{
    aws_lambda_events::apigw::ApiGatewayV2httpRequest,
    lambda_runtime::{self, LambdaEvent, service_fn},
};
use runtime::{
    aws::{Patience, install_tls_provider, sdk_config},
    clock::Clock,
    config::Config,
    environment::{names, required},
    payloads::PayloadStore,
    secrets::SecretStore,
    telemetry,
};

pub use handler::Receiver;
pub use http::Answer;
pub use refusal::Refusal;

/// Runs as a Lambda function until its environment ends.
///
/// # Errors
/// If it cannot start: the reason is logged as well.
pub async fn run() -> Result<(), lambda_runtime::Error> {
    let _telemetry = telemetry::start();
    let receiver = match start().await {
        Ok(receiver) => Arc::new(receiver),
        Err(error) => {
            tracing::error!(error = %error, "the receiver cannot start");
            return Err(error);
        }
    };
    lambda_runtime::run(service_fn(move |event: LambdaEvent<ApiGatewayV2httpRequest>| {
        let receiver = Arc::clone(&receiver);
        async move {
            let answer = receiver.receive(event.payload).await;
            Ok::<_, std::convert::Infallible>(answer.into_response())
        }
    }))
    .await
}

async fn start() -> Result<Receiver, lambda_runtime::Error> {
    install_tls_provider();
    let table = required(names::TABLE)?;
    let queue_url = required(names::QUEUE_URL)?;
    let aws = sdk_config(Patience::RECEIVER).await;
    let store = SecretStore::new(Some(aws.clone()));
    let config = Config::load(&store).await?;
    let payloads = PayloadStore::from_environment(&aws)?;
    let ledger = dynamo::Ledger::new(&aws, table);
    let queue = sqs::Queue::new(&aws, queue_url);
    // The first delivery finds connections open and secrets fetched. A failure here is only
    // logged: whether DynamoDB answers is asked anew for each delivery.
    let (ledger_warm, queue_warm, receiver) = futures::join!(
        ledger.warm(),
        queue.warm(),
        Receiver::new(config, store, ledger.clone(), queue.clone(), Clock::from_environment()),
    );
    if let Err(error) = ledger_warm {
        tracing::error!(error = %error, "the ledger cannot be reached");
    }
    if let Err(error) = queue_warm {
        tracing::error!(error = %error, "the queue cannot be reached");
    }
    Ok(receiver.with_payloads(payloads))
}
