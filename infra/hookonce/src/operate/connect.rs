//! Where a deployment's ledger and queue are: on AWS, by the SDK's own settings, or in an emulator.

use std::time::Duration;

use dynamo::Ledger;
use runtime::aws::{self, Patience};
use sqs::Queue;
use url::Url;

use crate::stack::{dynamodb_config, sqs_config};

/// No connection can be tried.
#[derive(Debug, thiserror::Error)]
pub enum CannotConnect {
    /// An endpoint that is no emulator's.
    #[error(
        "--endpoint {0}: an emulator's address begins with http://; for another endpoint of AWS \
         set AWS_ENDPOINT_URL_DYNAMODB"
    )]
    NotPlain(Url),
    /// Nobody said where AWS is.
    #[error("no AWS region: set AWS_REGION or AWS_PROFILE, or --endpoint for an emulator")]
    NoRegion,
    /// No address at all.
    #[error("the queue's URL `{url}` is none: {problem}")]
    NotUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        problem: url::ParseError,
    },
}

/// The ledger on `table`; in the emulator at `endpoint`, if there is one, which is asked without
/// credentials.
///
/// # Errors
/// If there is nothing to be asked.
pub async fn ledger(endpoint: Option<&Url>, table: String) -> Result<Ledger, CannotConnect> {
    let config = match endpoint {
        Some(url) if url.scheme() == "http" => dynamodb_config(without_slash(url.as_str()))
            .retry_config(PATIENCE.retries())
            .timeout_config(PATIENCE.timeouts()),
        Some(url) => return Err(CannotConnect::NotPlain(url.clone())),
        None => {
            let config = aws::sdk_config(PATIENCE).await;
            config.region().ok_or(CannotConnect::NoRegion)?;
            (&config).into()
        }
    };
    Ok(Ledger::new(config, table))
}

/// The queue at `url`. A plain one is an emulator's, and says where that is.
///
/// # Errors
/// If there is nothing to be asked.
pub async fn queue(url: &str) -> Result<Queue, CannotConnect> {
    let parsed = Url::parse(url)
        .map_err(|problem| CannotConnect::NotUrl { url: url.to_owned(), problem })?;
    let config = if parsed.scheme() == "http" {
        sqs_config(&parsed.origin().ascii_serialization())
            .retry_config(PATIENCE.retries())
            .timeout_config(PATIENCE.timeouts())
    } else {
        let config = aws::sdk_config(PATIENCE).await;
        config.region().ok_or(CannotConnect::NoRegion)?;
        (&config).into()
    };
    Ok(Queue::new(config, url.to_owned()))
}

fn without_slash(url: &str) -> &str {
    url.trim_end_matches('/')
}

/// A person waits, and wants to hear soon what is wrong; a page of a scan may take its second.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(2),
    attempt: Duration::from_secs(5),
    operation: Duration::from_secs(15),
    attempts: 3,
    backoff: Duration::from_millis(200),
};
