//! `hookonce events replay`, `discard` and `unstick`.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, stderr},
    path::PathBuf,
};

use clap::Args;
use domain::{
    event::EventKey,
    limits,
    record::StateName,
    transition::{Operator, Standing},
};
use dynamo::{Ledger, LedgerError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime::{
    clock::Clock,
    environment::{names, optional},
};
use serde_json::json;
use sqs::Queue;

use super::{
    super::{NO, Outcome, WrongCall, YES},
    Wanted, at_least_one, key,
};
use crate::operate::{
    act::{Acted, Candidate, Candidates, Enqueued, Hands, MOST_REPLAYED, Replay, candidates},
    connect, moment, plain,
    policies::Policies,
};

/// Run parked events again, or done ones
///
/// Keys are replayed at once. A selection (--state failed or done, --source, …) is only shown,
/// until --yes, and leaves out what came so late that it may have run before, unless it is asked
/// for: --error beyond_horizon. What has changed since it was selected is left as it is. An event
/// goes on from its journal: steps that are recorded as done are not called
/// again, all others under the keys that they have always had. A done event runs again as a whole
/// but for its recorded steps: its local writes take hold once more.
#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// Which events, SOURCE#EVENT_ID
    #[arg(value_parser = key, required_unless_present_any = SELECTING, conflicts_with_all = SELECTING)]
    keys: Vec<EventKey>,
    /// In these states, failed or done, or both by a comma
    #[arg(long, value_delimiter = ',', default_value = "failed", value_parser = replayable)]
    state: Vec<StateName>,
    #[command(flatten)]
    wanted: Wanted,
    /// Of a selection the first so many
    #[arg(long, default_value_t = MOST_REPLAYED, value_parser = at_least_one)]
    limit: usize,
    /// Call every step again, as if the journal had none
    ///
    /// Keys stay: whoever still remembers one answers as before, whoever has forgotten it does it a
    /// second time.
    #[arg(long)]
    forget_steps: bool,
    /// Do it: replay the selection; replay by its key an event that is done
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    to: To,
}

const SELECTING: [&str; 6] = ["state", "source", "since", "until", "older_than", "error"];

/// Close parked events without running them
#[derive(Args, Debug)]
pub(super) struct DiscardArgs {
    /// Which events, SOURCE#EVENT_ID
    #[arg(value_parser = key, required = true)]
    keys: Vec<EventKey>,
    #[command(flatten)]
    who: Who,
}

/// Take events from the workers that hold them, so that others start at once
///
/// For a worker that is known to be gone; a lease ends by itself, and then others take over anyway.
/// If the worker lives, it can record nothing any more. A call that it is making is not stopped: the
/// next worker may make the same call, under the same key, at the same time.
#[derive(Args, Debug)]
pub(super) struct UnstickArgs {
    /// Which events, SOURCE#EVENT_ID
    #[arg(value_parser = key, required = true)]
    keys: Vec<EventKey>,
    /// Do it though the worker may be alive
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    to: To,
}

/// Who acts, and why. It is kept on the record.
#[derive(Args, Debug)]
struct Who {
    /// Why, for the record's history
    #[arg(long, value_parser = words)]
    reason: String,
    /// Who, for the record's history; without, this system's user
    #[arg(long, value_parser = words)]
    by: Option<String>,
    /// A configuration that says how long records are kept and how often events are tried; without,
    /// HOOKONCE_CONFIG or hookonce.toml, and for other sources the catalogue
    #[arg(long)]
    config: Option<PathBuf>,
}

/// Where events are enqueued.
#[derive(Args, Debug)]
struct To {
    /// The queue between receiver and worker; without, HOOKONCE_QUEUE_URL, or else the sweeper
    /// enqueues within some two minutes
    #[arg(long, value_name = "URL")]
    queue_url: Option<String>,
}

fn replayable(text: &str) -> Result<StateName, String> {
    let all = [StateName::Failed, StateName::Done];
    let state = all.into_iter().find(|state| state.as_str() == text);
    state.ok_or_else(|| "only failed and done are replayed".to_owned())
}

fn words(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say it in words".to_owned()),
        text if text.len() > limits::MAX_REASON_BYTES => {
            Err(format!("{} bytes are kept on a record", limits::MAX_REASON_BYTES))
        }
        text => Ok(text.to_owned()),
    }
}

impl Who {
    fn name(&self) -> Result<String, WrongCall> {
        let user = || ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(optional);
        let name = self.by.clone().or_else(user);
        name.ok_or_else(|| {
            WrongCall("no user in the environment: say with --by who is acting".to_owned())
        })
    }
}

impl To {
    async fn queue(&self) -> Result<Option<Queue>, WrongCall> {
        match self.queue_url.clone().or_else(|| optional(names::QUEUE_URL)) {
            Some(url) => Ok(Some(connect::queue(&url).await?)),
            None => Ok(None),
        }
    }
}

// ---- one by one -----------------------------------------------------------------------------

pub(super) async fn discard(ledger: &Ledger, args: DiscardArgs, json: bool) -> Outcome {
    let (name, policies) = (args.who.name()?, Policies::load(args.who.config.as_deref()).await?);
    let hands = hands(ledger, None, &policies, &name, &args.who.reason);
    let mut all = YES;
    for key in &args.keys {
        all |= tell(key, &hands.discard(key).await?, "discarded", json);
    }
    Ok(all)
}

pub(super) async fn unstick(ledger: &Ledger, args: UnstickArgs, json: bool) -> Outcome {
    let (name, policies) = (args.who.name()?, Policies::load(args.who.config.as_deref()).await?);
    let queue = args.to.queue().await?;
    let hands = hands(ledger, queue.as_ref(), &policies, &name, &args.who.reason);
    let mut all = YES;
    for key in &args.keys {
        all |= tell(key, &hands.unstick(key, args.yes).await?, "taken from its worker", json);
    }
    Ok(all)
}

pub(super) async fn replay(ledger: &Ledger, args: ReplayArgs, json: bool) -> Outcome {
    if args.forget_steps {
        complain!(
            "hookonce: --forget-steps: every step is called again. Keys stay; whoever has \
             forgotten one does it a second time"
        );
    }
    // Of a selection --yes says no more than to do it.
    let even_done = args.yes && (!args.keys.is_empty() || args.state.contains(&StateName::Done));
    let selected = if args.keys.is_empty() {
        let filter = args.wanted.filter(args.state, Clock::from_environment().now());
        let found = candidates(ledger, &filter, args.limit).await?;
        if !args.yes {
            return Ok(announce(&found, json));
        }
        Some(found)
    } else {
        None
    };
    let (name, policies) = (args.who.name()?, Policies::load(args.who.config.as_deref()).await?);
    let queue = args.to.queue().await?;
    let hands = hands(ledger, queue.as_ref(), &policies, &name, &args.who.reason);
    let how = Replay { even_done, forget_steps: args.forget_steps };
    if let Some(found) = selected {
        return Ok(replay_all(&hands, &found, how, json).await);
    }
    let mut all = YES;
    for key in &args.keys {
        all |= tell(key, &hands.replay(key, how).await?, "replayed", json);
    }
    Ok(all)
}

fn hands<'a>(
    ledger: &'a Ledger,
    queue: Option<&'a Queue>,
    policies: &'a Policies,
    name: &'a str,
    reason: &'a str,
) -> Hands<'a> {
    let operator = Operator { name, reason };
    Hands { ledger, queue, policies, clock: Clock::from_environment(), operator }
}

/// Says what became of one, and gives the exit code for it.
fn tell(key: &EventKey, acted: &Acted, done: &str, json: bool) -> u8 {
    let (outcome, detail) = match acted {
        Acted::Applied(Enqueued::Sent) => (done, "enqueued".to_owned()),
        Acted::Applied(Enqueued::NothingToRun) => (done, String::new()),
        Acted::Applied(Enqueued::BySweep(why)) => {
            (done, format!("the sweeper enqueues it, as {why}"))
        }
        Acted::Lost(standing) => {
            ("not changed", format!("somebody was faster: {}", now(*standing)))
        }
        Acted::Moved { state, attempt } => {
            let now = format!("it is {state} now, after {attempt} attempt(s)");
            ("not changed", format!("somebody was faster: {now}"))
        }
        Acted::Refused(why) => ("not changed", why.clone()),
        Acted::Unknown => ("not changed", "there is no such event".to_owned()),
    };
    let applied = matches!(acted, Acted::Applied(_));
    if json {
        let key = key.to_string();
        say!(
            "{}",
            json!({ "key": key, "changed": applied, "outcome": word(acted), "detail": detail })
        );
    } else {
        let detail = if detail.is_empty() { detail } else { format!(": {}", plain(&detail)) };
        say!("{}: {outcome}{detail}", plain(&key.to_string()));
    }
    if applied { YES } else { NO }
}

const fn word(acted: &Acted) -> &'static str {
    match acted {
        Acted::Applied(_) => "applied",
        Acted::Lost(_) | Acted::Moved { .. } => "lost",
        Acted::Refused(_) => "refused",
        Acted::Unknown => "unknown",
    }
}

fn now(standing: Standing) -> String {
    match standing {
        Standing::Settled(state) => format!("it is {state}"),
        Standing::Waiting(None) => "it waits for a worker".to_owned(),
        Standing::Waiting(Some(until)) => format!("it waits until {}", moment(until)),
        Standing::HeldElsewhere(until) => format!("a worker holds it until {}", moment(until)),
        Standing::Gone => "its record is gone".to_owned(),
    }
}

// ---- many -----------------------------------------------------------------------------------

/// Says what a replay of these would do, and does nothing.
fn announce(found: &Candidates, json: bool) -> u8 {
    let groups = groups(&found.events);
    if json {
        let groups: Vec<_> = groups
            .iter()
            .map(|((source, event_type, error), events)| {
                json!({ "source": source, "type": event_type, "error": error, "events": events })
            })
            .collect();
        say!(
            "{}",
            json!({
                "dry_run": true,
                "events": found.events.len(),
                "more": found.more,
                "groups": groups,
                "too_late": found.too_late,
                "unreadable": found.unreadable,
            })
        );
        return YES;
    }
    for ((source, event_type, error), events) in &groups {
        say!("{events:>7}  {source:<16} {:<28} {}", plain(event_type), plain(error));
    }
    say!("{} would be replayed; --yes does it", count(found));
    if let Some(oldest) = found.events.iter().map(|event| event.received_at).min() {
        say!("the oldest was received at {}", moment(oldest));
    }
    warn_of_others(found);
    YES
}

/// Events by source, type and class of error.
fn groups(events: &[Candidate]) -> BTreeMap<(&str, &str, &str), usize> {
    let mut groups = BTreeMap::new();
    for event in events {
        let event_type = event.event_type.as_deref().unwrap_or("-");
        let error = event.error_class.as_deref().unwrap_or("-");
        *groups.entry((event.key.source().as_str(), event_type, error)).or_default() += 1;
    }
    groups
}

fn count(found: &Candidates) -> String {
    let more = if found.more { " and there are more; these first" } else { "" };
    format!("{} event(s){more}", found.events.len())
}

fn warn_of_others(found: &Candidates) {
    if found.too_late > 0 {
        complain!(
            "hookonce: {} more came so late that they may have run before, and are left out; look \
             at them by --error beyond_horizon",
            found.too_late
        );
    }
    if let Some(first) = found.unreadable.first() {
        let count = found.unreadable.len();
        complain!("hookonce: {count} record(s) cannot be read, the first is {}", plain(first));
    }
}

async fn replay_all(hands: &Hands<'_>, found: &Candidates, how: Replay, json: bool) -> u8 {
    let bar = progress(found.events.len());
    let (mut replayed, mut by_sweep, mut not) = (0_usize, 0_usize, 0_usize);
    let mut why_by_sweep = None;
    let ended = |event: &Candidate, acted: &Result<Acted, LedgerError>| {
        bar.inc(1);
        match acted {
            Ok(Acted::Applied(enqueued)) => {
                replayed += 1;
                if let Enqueued::BySweep(why) = enqueued {
                    by_sweep += 1;
                    why_by_sweep.get_or_insert_with(|| why.clone());
                }
            }
            Ok(other) => {
                not += 1;
                bar.suspend(|| tell(&event.key, other, "replayed", json));
            }
            Err(error) => {
                not += 1;
                let key = event.key.to_string();
                bar.suspend(|| complain!("hookonce: {}: not known: {error}", plain(&key)));
            }
        }
    };
    hands.replay_all(&found.events, how, ended).await;
    bar.finish_and_clear();
    if json {
        say!(
            "{}",
            json!({
                "dry_run": false, "events": found.events.len(), "replayed": replayed,
                "enqueued_by_sweep": by_sweep, "why_by_sweep": why_by_sweep,
                "not_replayed": not, "more": found.more, "too_late": found.too_late,
                "unreadable": found.unreadable,
            })
        );
    } else {
        say!("{replayed} of {} replayed", count(found));
        if let Some(why) = why_by_sweep {
            let why = plain(&why);
            say!("{by_sweep} of them are left to the sweeper to enqueue, the first as {why}");
        }
    }
    warn_of_others(found);
    if not == 0 { YES } else { NO }
}

/// On a terminal alone: a log has no use for it.
fn progress(events: usize) -> ProgressBar {
    let bar = ProgressBar::new(events as u64);
    if !stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    match ProgressStyle::with_template("{pos} of {len} {wide_bar} {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
