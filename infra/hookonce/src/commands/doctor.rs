//! `hookonce doctor`: is this deployment as it should be?

use std::path::PathBuf;

use clap::Args;
use runtime::{
    clock::Clock,
    config::{Config, Trust},
    environment::{names, optional},
};
use serde_json::json;

use super::{NO, Outcome, YES, events::Place};
use crate::operate::{
    connect,
    doctor::{self, Finding, Verdict},
    plain,
};

/// Check a deployment: its table, index, TTL and queues, and how far the clocks are apart.
///
/// Looks at what DynamoDB and SQS tell, and changes nothing. Not looked at: the functions, their
/// schedule, permissions, alarms and the sweeper's own heartbeat, which are Lambda's, the
/// Scheduler's, IAM's and CloudWatch's; whether the sweeper runs is judged by what lies unswept.
///
/// Exit codes: 0 if nothing is bad, warnings aside; 1 if something is; 2 if the call makes no
/// sense, or the endpoint cannot be asked.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    place: Place,
    /// The queue between receiver and worker; without, HOOKONCE_QUEUE_URL, or no queue is looked at
    #[arg(long, value_name = "URL")]
    queue_url: Option<String>,
    /// A configuration whose retentions are to be held against the providers' windows
    #[arg(long)]
    config: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the call makes no sense, or the endpoint cannot be asked.
pub async fn run(args: DoctorArgs) -> Outcome {
    let ledger = args.place.ledger().await?;
    let mut findings = doctor::ledger(&ledger, || Clock::from_environment().now()).await?;
    match args.queue_url.clone().or_else(|| optional(names::QUEUE_URL)) {
        Some(url) => findings.extend(doctor::queues(&connect::queue(&url).await?).await?),
        None => findings.push(unseen("queue", "not looked at: give --queue-url")),
    }
    findings.push(args.config.as_ref().map_or_else(
        || unseen("retention", "not looked at: give --config"),
        |path| retention(Config::read(path, Trust::Local).map_err(|error| error.to_string())),
    ));
    for finding in &findings {
        print(finding, args.json);
    }
    let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { NO } else { YES })
}

fn unseen(what: &'static str, found: &str) -> Finding {
    Finding { what, verdict: Verdict::Unknown, found: found.to_owned(), advice: None }
}

/// A configuration that is read is one whose retentions cover the windows.
fn retention(config: Result<Config, String>) -> Finding {
    let (verdict, found, advice) = match config {
        Ok(config) => {
            let sources = config.sources.len();
            (Verdict::Good, format!("covers the windows of {sources} source(s)"), None)
        }
        Err(problem) => (Verdict::Bad, problem, Some("see hookonce check")),
    };
    Finding { what: "retention", verdict, found, advice }
}

fn print(finding: &Finding, json: bool) {
    let Finding { what, verdict, found, advice } = finding;
    let word = match verdict {
        Verdict::Good => "good",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
        Verdict::Unknown => "unknown",
    };
    if json {
        say!("{}", json!({ "what": what, "verdict": word, "found": found, "advice": advice }));
        return;
    }
    say!("{word:<8} {what:<15} {}", plain(found));
    if let Some(advice) = advice {
        say!("{:<24} {advice}", "");
    }
}
