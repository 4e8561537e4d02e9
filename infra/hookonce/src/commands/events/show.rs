//! `hookonce events show` and `hookonce events payload`.

use std::io::{Write as _, stdout};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use domain::{
    effects::{StepState, hex},
    event::EventKey,
    limits,
    record::{KeptPayload, Record},
    time::Timestamp,
};
use dynamo::{Ledger, payload};
use runtime::clock::Clock;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    super::{NO, Outcome, WrongCall, YES},
    key,
};
use crate::operate::{
    Looked,
    explain::{self, Moment},
    look, moment, plain,
};

/// Show an event: how it stands, how it came to that, and what happens next
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// Which event, SOURCE#EVENT_ID
    #[arg(value_parser = key)]
    key: EventKey,
}

/// Write an event's payload to standard output, the bytes as they were received
///
/// With --json they come in base64. A payload that lies in the bucket for payloads, as it fits on
/// no record, is not written: where it lies is said, and the exit code is 1.
#[derive(Args, Debug)]
pub(super) struct PayloadArgs {
    /// Which event, SOURCE#EVENT_ID
    #[arg(value_parser = key)]
    key: EventKey,
}

pub(super) async fn run(ledger: &Ledger, args: &ShowArgs, json: bool) -> Outcome {
    let Some(looked) = look(ledger, &args.key).await? else {
        return Ok(unknown(ledger, &args.key));
    };
    let now = Clock::from_environment().now();
    if json {
        say!("{}", explain::whole_as_json(&looked, now, limits::CLOCK_SKEW));
    } else {
        print(&looked, now);
    }
    Ok(YES)
}

fn print(looked: &Looked, now: Timestamp) {
    let record = &looked.record;
    say!("{}: {}", plain(&record.key.to_string()), record.state.name());
    for (what, value) in facts(record) {
        say!("  {what:<10} {}", plain(&value));
    }
    for (name, entry) in &record.steps {
        let how = match &entry.state {
            StepState::Started => "started, and not known to have ended".to_owned(),
            StepState::Done { result } => format!("done: {}", plain(result)),
        };
        say!("  step       {name}, {how}, under key {}", plain(&entry.key));
    }
    say!("so far:");
    moments(explain::timeline(looked));
    say!("next, as of {}:", moment(now));
    moments(explain::outlook(record, now, limits::CLOCK_SKEW));
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let payload = match &record.payload {
        None => "dropped when the event was done".to_owned(),
        Some(KeptPayload::Inline(stored)) => {
            format!("{} bytes stored, {}", stored.bytes.len(), stored.codec)
        }
        Some(KeptPayload::Elsewhere { codec, key }) => {
            format!("in the bucket under {}, {codec}", plain(key))
        }
    };
    let error = record.last_error.as_ref();
    let optional = [
        ("type", record.event_type.clone()),
        ("object", record.object_id.clone()),
        ("error", error.map(|error| format!("{}: {}", error.class, error.text))),
        (
            "mismatch",
            record.payload_mismatch.as_deref().map(|digest| {
                format!("a later delivery carried another payload, sha256 {}", hex(digest))
            }),
        ),
    ];
    let mut facts = vec![("provider", record.provider.clone())];
    facts.extend(optional.into_iter().filter_map(|(what, value)| Some((what, value?))));
    facts.extend([
        ("attempts", format!("{} of {}", record.attempt, record.attempt_limit)),
        ("requeues", record.requeues.to_string()),
        ("payload", format!("{payload}, sha256 {}", hex(&record.payload_sha256))),
    ]);
    facts
}

fn moments(moments: Vec<Moment>) {
    for Moment { at, what } in moments {
        say!("  {:<24} {}", at.map(moment).unwrap_or_default(), plain(&what));
    }
}

pub(super) async fn payload(ledger: &Ledger, args: &PayloadArgs, json: bool) -> Outcome {
    let Some(looked) = look(ledger, &args.key).await? else {
        return Ok(unknown(ledger, &args.key));
    };
    let Some(stored) = &looked.record.payload else {
        complain!(
            "hookonce: the payload of {} was dropped when the event was done (payload = \
             \"drop-when-done\"); its sha256 was {}",
            plain(&args.key.to_string()),
            hex(&looked.record.payload_sha256)
        );
        return Ok(NO);
    };
    let stored = match stored {
        KeptPayload::Inline(stored) => stored,
        KeptPayload::Elsewhere { codec, key } => {
            complain!(
                "hookonce: the payload of {} fits on no record: it lies in the deployment's bucket \
                 for payloads under {}, encoded by {codec}",
                plain(&args.key.to_string()),
                plain(key)
            );
            return Ok(NO);
        }
    };
    let bytes = payload::decode(stored)?;
    if Sha256::digest(&bytes)[..] != looked.record.payload_sha256 {
        return Err(WrongCall("the stored payload is not what was received".to_owned()));
    }
    if json {
        let (key, base64) = (args.key.to_string(), STANDARD.encode(&bytes));
        say!("{}", json!({ "key": key, "payload_base64": base64 }));
        return Ok(YES);
    }
    // Whoever reads it may have stopped reading, which is no failure.
    let _ = stdout().write_all(&bytes).and_then(|()| stdout().flush());
    Ok(YES)
}

fn unknown(ledger: &Ledger, key: &EventKey) -> u8 {
    complain!(
        "hookonce: there is no event {} in table {}",
        plain(&key.to_string()),
        ledger.table()
    );
    NO
}
