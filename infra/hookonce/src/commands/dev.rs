//! `hookonce dev`: the embedded stack until interrupted.

use std::{
    io::{Write as _, stderr, stdout},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use domain::{limits, time::Timestamp};
use runtime::{
    clock::Clock,
    config::{Config, Trust},
    environment,
    route::Destination,
};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use worker::Handlers;

use super::{Outcome, WrongCall, YES, own_program};
use crate::{
    services::Services,
    stack::{Functions, Stack, StackOptions, TABLE},
};

/// Run the whole system on this machine until interrupted.
#[derive(Args, Debug)]
pub struct DevArgs {
    /// Port of the receiver; 0 is any
    #[arg(long, default_value_t = 4780)]
    port: u16,
    /// Folder to keep the table in; in memory without
    #[arg(long)]
    data: Option<PathBuf>,
    /// The configuration; without, hookonce.toml if there is one, else a source `stripe`
    #[arg(long)]
    config: Option<PathBuf>,
    /// Start the clock at this time, Unix seconds, so that recorded deliveries verify
    #[arg(long)]
    now: Option<i64>,
    /// Port of DynamoDB; 0 is any
    #[arg(long, default_value_t = 0)]
    dynamodb_port: u16,
    /// Port of SQS; 0 is any
    #[arg(long, default_value_t = 0)]
    sqs_port: u16,
}

/// What is said on standard output, once it serves.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    receiver: &'a str,
    dynamodb: &'a str,
    sqs: &'a str,
    queue_url: &'a str,
    table: &'a str,
}

/// Runs the command, until a signal ends it.
///
/// # Errors
/// If the configuration is refused, or a part of the stack cannot be started.
pub async fn run(args: DevArgs) -> Outcome {
    let (config, worker_timeout) = configuration(args.config.clone())?;
    let clock =
        args.now.map_or_else(Clock::default, |now| Clock::starting_at(Timestamp::from_secs(now)));
    let (ended, ending) = watch::channel(false);
    let (_services, services_url) = Services::start(Duration::ZERO, ending).await?;
    let (lines, written) = mpsc::unbounded_channel();
    let forwarding = tokio::task::spawn_blocking(move || forward(written));
    let stack = Stack::start(
        StackOptions {
            program: Functions::Hookonce(own_program()?),
            config,
            data: args.data,
            clock,
            port: args.port,
            dynamodb_port: args.dynamodb_port,
            sqs_port: args.sqs_port,
            receivers: 4,
            workers: 2,
            worker_timeout,
            sweep_every: SWEEP_EVERY,
            environment: payment_services(&services_url),
        },
        lines,
    )
    .await?;
    let ready = Ready {
        ready: true,
        receiver: &stack.receiver_url,
        dynamodb: &stack.dynamodb_url,
        sqs: &stack.sqs_url,
        queue_url: &stack.queue_url,
        table: TABLE,
    };
    say!("{}", serde_json::to_string(&ready)?);
    stdout().flush()?;
    interrupted().await?;
    stack.stop().await;
    let _ = ended.send(true);
    let _ = forwarding.await;
    Ok(YES)
}

/// What the functions get as `HOOKONCE_CONFIG`, and the worker's timeout: it must outlast the
/// slowest destination.
fn configuration(path: Option<PathBuf>) -> Result<(String, Duration), WrongCall> {
    let default = PathBuf::from("hookonce.toml");
    let path = path.or_else(|| default.is_file().then_some(default));
    let Some(path) = path else {
        complain!(
            "hookonce dev: no configuration; source `stripe` with secret {DEV_SECRET}, \
             handled by the built-in example"
        );
        return Ok((built_in_config(), LEAST_TIMEOUT));
    };
    let config = Config::read(&path, Trust::Local)?;
    if let Some(name) = Handlers::unknown_names(&config).first() {
        let known = worker::handlers::NAMES.join(", ");
        return Err(WrongCall(format!(
            "{}: no handler is named `{name}`; there are: {known}",
            path.display()
        )));
    }
    let routes = config.sources.values().flat_map(|source| &source.routes);
    let slowest = routes.filter_map(|route| match &route.destination {
        Destination::Http(http) => Some(http.timeout),
        Destination::Handler(_) => None,
    });
    let room = limits::MIN_ATTEMPT_TIME + limits::RELEASE_MARGIN;
    let timeout = slowest.max().unwrap_or_default() + room;
    let path = std::fs::canonicalize(&path)?;
    Ok((path.display().to_string(), timeout.max(LEAST_TIMEOUT)))
}

fn built_in_config() -> String {
    let secret = format!("literal:{DEV_SECRET}");
    json!({
        "clock_skew": "500ms",
        "sources": {
            "stripe": {
                "provider": "stripe",
                "secrets": [secret],
                "deliver": { "handler": "payments" }
            }
        }
    })
    .to_string()
}

/// The services of the built-in handler, unless the caller names others.
fn payment_services(url: &str) -> Vec<(String, String)> {
    [("PAYMENTS_RECEIPT_URL", "receipt"), ("PAYMENTS_SHIPMENT_URL", "shipment")]
        .into_iter()
        .filter(|(name, _)| environment::optional(name).is_none())
        .map(|(name, service)| (name.to_owned(), format!("{url}/{service}")))
        .collect()
}

/// The functions' lines go to standard error: standard output is for whoever scripts this.
fn forward(mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.blocking_recv() {
        if writeln!(stderr(), "{line}").is_err() {
            return;
        }
    }
}

async fn interrupted() -> Result<(), WrongCall> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupt = tokio::signal::ctrl_c() => Ok(interrupt?),
    }
}

const DEV_SECRET: &str = "whsec_hookonce_dev";
const LEAST_TIMEOUT: Duration = Duration::from_secs(15);
const SWEEP_EVERY: Duration = Duration::from_secs(5);
