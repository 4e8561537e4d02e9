//! What an operator sees of a deployment and does to it: for the commands, and for whatever else
//! wants to show it.
//!
//! Nothing here changes a record but by a transition of the domain: an operator who is slower than
//! a worker, a sweep or another operator loses that race, hears so, and has changed nothing.

pub mod act;
pub mod connect;
pub mod dead_letters;
pub mod doctor;
pub mod explain;
pub mod page;
pub mod policies;

use domain::{
    event::EventKey,
    item::{Attribute, Item, Value},
    record::Record,
    time::Timestamp,
};
use dynamo::{Ledger, LedgerError};
use runtime::clock::Clock;

/// A record, and what operators did to it before.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The record.
    pub record: Record,
    /// The earliest first.
    pub history: Vec<Remark>,
}

/// What an operator did once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// `replay`, `discard` or `unstick`.
    pub did: String,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// Reads a record whole, payload and history included.
///
/// # Errors
/// If it cannot be known, or read.
pub async fn look(ledger: &Ledger, key: &EventKey) -> Result<Option<Looked>, LedgerError> {
    let Some(item) = ledger.read(key).await? else { return Ok(None) };
    let history = history(&item);
    Ok(Some(Looked { record: Record::from_item(item)?, history }))
}

fn history(item: &Item) -> Vec<Remark> {
    let Some(Value::List(entries)) = item.get(&Attribute::Replays) else { return Vec::new() };
    let remark = |entry: &Value| {
        let Value::Map(entry) = entry else { return None };
        let text = |name| match entry.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let Some(Value::Number(at)) = entry.get("at") else { return None };
        Some(Remark {
            // Entries of earlier versions do not say.
            did: text("did").unwrap_or_else(|| "replay or discard".to_owned()),
            by: text("by")?,
            reason: text("reason")?,
            at: Timestamp::from_millis(*at),
        })
    };
    entries.iter().filter_map(remark).collect()
}

/// A moment for people and for scripts: RFC 3339 in UTC. One beyond the calendar, which a provider
/// may well claim, stays a number.
#[must_use]
pub fn moment(at: Timestamp) -> String {
    if (0..END_OF_CALENDAR_MS).contains(&at.millis()) {
        humantime::format_rfc3339_millis(Clock::system_time(at)).to_string()
    } else {
        at.to_string()
    }
}

/// Text that came from outside, fit for a terminal: what would move its cursor or colour it is
/// shown instead.
#[must_use]
pub fn plain(text: &str) -> String {
    let shown = |c: char| {
        let hidden = c.is_control() || HIDDEN.contains(&c);
        if hidden { c.escape_unicode().to_string() } else { c.to_string() }
    };
    text.chars().map(shown).collect()
}

/// The year 10000 begins.
const END_OF_CALENDAR_MS: i64 = 253_402_300_800_000;
/// They turn the direction of what follows, so that a name reads as another.
const HIDDEN: [char; 9] = [
    '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}',
    '\u{2069}',
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_beyond_the_calendar_is_shown_as_a_number() {
        assert_eq!(moment(Timestamp::from_millis(1)), "1970-01-01T00:00:00.001Z");
        let last = Timestamp::from_millis(END_OF_CALENDAR_MS - 1);
        assert_eq!(moment(last), "9999-12-31T23:59:59.999Z");
        for millis in [END_OF_CALENDAR_MS, i64::MAX, -1, i64::MIN] {
            assert_eq!(moment(Timestamp::from_millis(millis)), millis.to_string());
        }
    }

    #[test]
    fn text_from_outside_moves_no_cursor_and_turns_no_direction() {
        assert_eq!(plain("charge.refunded ü"), "charge.refunded ü");
        assert_eq!(plain("a\u{1b}[2Jb\r\n\u{202e}"), "a\\u{1b}[2Jb\\u{d}\\u{a}\\u{202e}");
    }

    #[test]
    fn a_history_keeps_its_order_and_what_is_no_entry_is_left_out() {
        let entry = |did: Option<&str>, at: i64| {
            let mut map = std::collections::BTreeMap::from([
                ("by".to_owned(), "ada".into()),
                ("reason".to_owned(), "why".into()),
                ("at".to_owned(), at.into()),
            ]);
            map.extend(did.map(|did| ("did".to_owned(), did.into())));
            Value::Map(map)
        };
        let list = vec![entry(Some("unstick"), 1), 5_i64.into(), entry(None, 2)];
        let item = Item::from([(Attribute::Replays, Value::List(list))]);
        let history = history(&item);
        let told: Vec<_> = history.iter().map(|entry| (&*entry.did, entry.at.millis())).collect();
        assert_eq!(told, [("unstick", 1), ("replay or discard", 2)]);
    }
}
