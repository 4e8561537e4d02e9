//! `hookonce events list`.

use clap::Args;
use domain::record::StateName;
use dynamo::Ledger;
use runtime::clock::Clock;
use serde_json::json;

use super::{
    super::{Outcome, YES},
    Wanted, at_least_one,
};
use crate::operate::{
    explain, moment,
    page::{Bounds, Cursor, Entry, MOST_LOOKED_AT, page},
    plain,
};

/// List events, those that are open or parked by default, the earliest due first
///
/// Received, processing and failed events stand in an index. Done and discarded ones do not: to
/// list them the whole table is scanned, in no order, and AWS bills every record that lies between.
/// A page shows --limit events, and looks at --look-at records for them; if there may be more, it
/// says how to go on.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// In these states, several by commas: received, processing, failed, done, discarded
    #[arg(long, value_delimiter = ',', value_parser = state)]
    state: Vec<StateName>,
    #[command(flatten)]
    wanted: Wanted,
    /// Most events on the page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Most records to look at for them
    #[arg(long, default_value_t = MOST_LOOKED_AT, value_parser = at_least_one)]
    look_at: usize,
    /// Go on where the page before ended, as it said
    #[arg(long, value_name = "CONTINUATION")]
    after: Option<Cursor>,
}

fn state(text: &str) -> Result<StateName, String> {
    let all = [
        StateName::Received,
        StateName::Processing,
        StateName::Failed,
        StateName::Done,
        StateName::Discarded,
    ];
    all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        format!("no such state; there are {}", all.map(StateName::as_str).join(", "))
    })
}

pub(super) async fn run(ledger: &Ledger, args: ListArgs, json: bool) -> Outcome {
    let states = if args.state.is_empty() { NOT_CLOSED.to_vec() } else { args.state };
    let filter = args.wanted.filter(states, Clock::from_environment().now());
    let bounds = Bounds { shown: args.limit.into(), looked_at: args.look_at };
    let page = page(ledger, &filter, args.after.as_ref(), bounds).await?;
    let next = page.next.as_ref().map(Cursor::to_string);
    if json {
        for entry in &page.entries {
            say!("{}", as_json(entry));
        }
        let shown = page.entries.len();
        say!("{}", json!({ "shown": shown, "looked_at": page.looked_at, "next": next }));
        return Ok(YES);
    }
    if !page.entries.is_empty() {
        line(["state", "received", "attempt", "type", "last error", "key"].map(str::to_owned));
    }
    for entry in &page.entries {
        line(columns(entry));
    }
    let counts = format!("{} shown of {} looked at", page.entries.len(), page.looked_at);
    match next {
        Some(next) => say!("{counts}; there may be more: --after '{next}'"),
        None => say!("{counts}; that is all"),
    }
    Ok(YES)
}

fn as_json(entry: &Entry) -> serde_json::Value {
    match &entry.record {
        Ok(record) => explain::as_json(record),
        Err(error) => json!({ "key": entry.key, "unreadable": error.to_string() }),
    }
}

fn columns(entry: &Entry) -> [String; 6] {
    let record = match &entry.record {
        Ok(record) => record,
        Err(error) => {
            let [received, attempt, kind] = [const { String::new() }; 3];
            return ["?".to_owned(), received, attempt, kind, error.to_string(), plain(&entry.key)];
        }
    };
    let error = record.last_error.as_ref().map_or("", |error| &error.class);
    [
        record.state.name().to_string(),
        moment(record.received_at),
        format!("{}/{}", record.attempt, record.attempt_limit),
        plain(record.event_type.as_deref().unwrap_or_default()),
        plain(error),
        plain(&entry.key),
    ]
}

/// The key comes last and whole: it is what one copies.
fn line([state, received, attempt, event_type, error, key]: [String; 6]) {
    say!("{state:<10} {received:<24} {attempt:<7} {event_type:<28} {error:<24} {key}");
}

/// What a person may have to do something about.
const NOT_CLOSED: [StateName; 3] = [StateName::Received, StateName::Processing, StateName::Failed];
