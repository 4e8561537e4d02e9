//! `hookonce events`: the events of a deployment, one by one and page by page, and what a person
//! does about them.

mod act;
mod list;
mod show;
mod tail;

use std::{
    collections::BTreeSet,
    time::{Duration, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use domain::{
    event::{EventKey, Source},
    record::StateName,
    time::Timestamp,
};
use dynamo::Ledger;
use runtime::environment::{names, optional};
use url::Url;

use super::{Outcome, WrongCall};
use crate::{
    operate::{connect, page::Filter},
    stack::TABLE,
};

/// Look at the events of a deployment, and replay, discard or unstick them.
///
/// A key is SOURCE#EVENT_ID, as logs and lists show it. On AWS the SDK's own settings say which
/// account and region (AWS_PROFILE, AWS_REGION, …); a login by SSO is handed on by
/// `eval "$(aws configure export-credentials --format env)"`.
///
/// Exit codes: 0 if all that was asked for was found, or done; 1 if not; 2 if the call makes no
/// sense, or the endpoint cannot be asked.
#[derive(Args, Debug)]
pub struct EventsArgs {
    #[command(flatten)]
    place: Place,
    /// Report as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Payload(show::PayloadArgs),
    Replay(act::ReplayArgs),
    Discard(act::DiscardArgs),
    Unstick(act::UnstickArgs),
    Tail(tail::TailArgs),
}

/// Where a deployment's ledger is.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// DynamoDB of an emulator or of `hookonce dev`, asked without credentials; without, AWS
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<Url>,
    /// The ledger table; without, HOOKONCE_TABLE or hookonce-events
    #[arg(long, global = true)]
    table: Option<String>,
}

impl Place {
    pub(crate) async fn ledger(&self) -> Result<Ledger, WrongCall> {
        let table = self.table.clone().or_else(|| optional(names::TABLE));
        let table = table.unwrap_or_else(|| TABLE.to_owned());
        Ok(connect::ledger(self.endpoint.as_ref(), table).await?)
    }
}

/// Runs the command.
///
/// # Errors
/// If the call makes no sense, or the endpoint cannot be asked.
pub async fn run(args: EventsArgs) -> Outcome {
    let ledger = args.place.ledger().await?;
    match args.what {
        What::List(list) => list::run(&ledger, list, args.json).await,
        What::Show(show) => show::run(&ledger, &show, args.json).await,
        What::Payload(payload) => show::payload(&ledger, &payload, args.json).await,
        What::Replay(replay) => act::replay(&ledger, replay, args.json).await,
        What::Discard(discard) => act::discard(&ledger, discard, args.json).await,
        What::Unstick(unstick) => act::unstick(&ledger, unstick, args.json).await,
        What::Tail(tail) => tail::run(&ledger, &tail, args.json).await,
    }
}

// ---- which events ---------------------------------------------------------------------------

/// Which events are meant, of those in the states that a command is about.
#[derive(Args, Debug, Default)]
struct Wanted {
    /// Of this source
    #[arg(long, value_parser = |text: &str| Source::new(text))]
    source: Option<Source>,
    /// Received since: a time as 2026-01-31T12:00:00Z, or so long ago as 2h
    #[arg(long, value_parser = when)]
    since: Option<When>,
    /// Received before, likewise
    #[arg(long, value_parser = when)]
    until: Option<When>,
    /// Whose last error is of this class
    #[arg(long, value_name = "CLASS")]
    error: Option<String>,
    /// Received longer ago than this
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "until")]
    older_than: Option<Duration>,
}

/// A point in time, or a distance from now.
#[derive(Clone, Copy, Debug)]
enum When {
    At(Timestamp),
    Ago(Duration),
}

impl Wanted {
    fn filter(self, states: Vec<StateName>, now: Timestamp) -> Filter {
        let at = |when| match when {
            When::At(at) => at,
            When::Ago(ago) => now.minus(ago),
        };
        let states = BTreeSet::from_iter(states);
        let until = self.until.or(self.older_than.map(When::Ago)).map(at);
        let since = self.since.map(at);
        Filter { states, source: self.source, since, until, error: self.error }
    }
}

fn when(text: &str) -> Result<When, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(When::Ago(ago));
    }
    let at = humantime::parse_rfc3339_weak(text).ok();
    let since_epoch = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let millis = since_epoch.and_then(|since| i64::try_from(since.as_millis()).ok());
    let at = millis.map(|millis| When::At(Timestamp::from_millis(millis)));
    at.ok_or_else(|| "neither a time as 2026-01-31T12:00:00Z nor so long ago as 2h".to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("1 at least".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a count".to_owned()),
    }
}

fn key(text: &str) -> Result<EventKey, String> {
    EventKey::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_point_or_a_distance_from_now() {
        let now = Timestamp::from_secs(1_000_000);
        let since = |text| {
            let since = when(text).ok();
            since?;
            Wanted { since, ..Wanted::default() }
                .filter(Vec::new(), now)
                .since
                .map(Timestamp::millis)
        };
        assert_eq!(since("1970-01-02T00:00:00Z"), Some(86_400_000));
        assert_eq!(since("1970-01-02 00:00:00"), Some(86_400_000));
        assert_eq!(since("2h"), Some((1_000_000 - 7_200) * 1000));
        for wrong in ["", "yesterday", "12:00", "1960-01-01T00:00:00Z", "-2h"] {
            assert_eq!(since(wrong), None, "{wrong}");
        }
        let older = Wanted { older_than: Some(Duration::from_secs(60)), ..Wanted::default() };
        assert_eq!(older.filter(Vec::new(), now).until, Some(Timestamp::from_secs(999_940)));
    }
}
