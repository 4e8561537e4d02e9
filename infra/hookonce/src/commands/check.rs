//! `hookonce check`: is this configuration to be deployed?

use std::path::PathBuf;

use clap::Args;
use domain::retention::days;
use runtime::{
    config::{Config, SourceConfig, Trust},
    route::{Destination, Route},
    secrets::SecretRef,
};
use serde_json::{Value, json};
use worker::Handlers;

use super::{NO, Outcome, WrongCall, YES, span};

/// Check a configuration, and show how long each source's records are kept and why.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration
    #[arg(long, default_value = "hookonce.toml")]
    config: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such file.
pub fn run(args: &CheckArgs) -> Outcome {
    if !args.config.is_file() {
        return Err(WrongCall(format!("there is no file {}", args.config.display())));
    }
    let checked = Config::read(&args.config, Trust::Local)
        .map_err(|error| error.to_string())
        .and_then(|config| match Handlers::unknown_names(&config) {
            unknown if unknown.is_empty() => Ok(config),
            unknown => {
                let unknown: Vec<_> = unknown.into_iter().collect();
                let known = worker::handlers::NAMES.join(", ");
                Err(format!(
                    "{}: no handler is named {}; there are: {known}",
                    args.config.display(),
                    unknown.join(", ")
                ))
            }
        });
    let config = match checked {
        Ok(config) => config,
        Err(problem) => {
            if args.json {
                say!("{}", json!({ "valid": false, "error": problem }));
            } else {
                complain!("{problem}");
            }
            return Ok(NO);
        }
    };
    if args.json {
        let sources: serde_json::Map<_, _> = config
            .sources
            .iter()
            .map(|(source, config)| (source.as_str().to_owned(), as_json(config)))
            .collect();
        say!("{}", json!({ "valid": true, "sources": sources }));
    } else {
        for (source, config) in &config.sources {
            print_source(source.as_str(), config);
        }
    }
    Ok(YES)
}

fn print_source(source: &str, config: &SourceConfig) {
    say!("{source}: {} at POST /webhooks/{source}", config.provider.title());
    say!("  retention {}: {}", days(config.policy.retention.duration()), reason(config));
    for (what, fact) in [
        ("retries by itself", config.provider.automatic_window()),
        ("resends by hand", config.provider.manual_window()),
    ] {
        match fact {
            Some(fact) if fact.value.is_zero() => say!("  {what} never ({})", fact.page),
            Some(fact) => say!("  {what} for {} ({})", span(fact.value), fact.page),
            None => say!("  {what} for a time that is not documented"),
        }
    }
    say!("  attempts  {}", config.policy.attempt_limit);
    if config.secrets.iter().any(|secret| matches!(secret, SecretRef::Literal(_))) {
        say!("  note: a literal: secret is for this machine only; deployed functions refuse it");
    }
    match (config.fingerprint, config.provider.has_fingerprint()) {
        (true, _) => {
            say!("  fingerprint claimed: a recorded delivery under a fresh id does nothing")
        }
        (false, true) => say!(
            "  note: the event id is not signed, so a recorded delivery under a fresh id is an event; \
             fingerprint = true ends that, for three write units more an event"
        ),
        (false, false) => {}
    }
    if let Some(keys) = fetched(config) {
        say!("  fetches   {keys}");
    }
    if config.confirm {
        say!("  confirms  subscriptions at {}", config.provider.confirmed_at().join(" or "));
    } else if !config.provider.confirmed_at().is_empty() {
        say!("  note: it confirms no subscription by itself; confirm = true has it do so");
    }
    for route in &config.routes {
        say!("  {}", destination(route));
    }
    for caution in config.provider.cautions() {
        say!("  caution: {caution}");
    }
}

fn reason(config: &SourceConfig) -> String {
    let required = config.required;
    let assumed = if required.unknown {
        "assumed, as a window is not documented"
    } else {
        "its longest window"
    };
    format!(
        "{} ({assumed}) and a margin of {} are needed",
        days(required.window),
        days(required.retention - required.window)
    )
}

/// What is fetched from where to verify with.
fn fetched(config: &SourceConfig) -> Option<String> {
    config.provider.published_keys().filter(|_| config.fetches_keys)
}

fn destination(route: &Route) -> String {
    match &route.destination {
        Destination::Handler(name) => format!("handler   {name}"),
        Destination::Http(http) => {
            let signed = if http.signing_secret.is_some() { "signed" } else { "not signed" };
            format!("http      {} ({signed})", http.place())
        }
    }
}

fn as_json(config: &SourceConfig) -> Value {
    json!({
        "provider": config.provider.name(),
        "retention_s": config.policy.retention.duration().as_secs(),
        "required_s": config.required.retention.as_secs(),
        "window_s": config.required.window.as_secs(),
        "window_assumed": config.required.unknown,
        "reason": reason(config),
        "attempts": config.policy.attempt_limit,
        "fingerprint": config.fingerprint,
        "fetches": fetched(config),
        "confirms": if config.confirm { config.provider.confirmed_at() } else { &[] },
        "routes": config.routes.iter().map(destination).collect::<Vec<_>>(),
    })
}
