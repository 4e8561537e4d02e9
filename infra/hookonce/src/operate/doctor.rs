//! Whether a deployment is as the code takes it to be, as far as its table and queues can tell.
//!
//! What is wrong here shows elsewhere as something else: a table without TTL as a bill, a queue
//! without a dead-letter queue as a message that comes back for ever.

use std::time::Duration;

use domain::{
    item::{Attribute, OPEN_BY_DUE},
    limits,
    time::Timestamp,
    transition::{open_shard, parked_shard},
};
use dynamo::{Index, Ledger, LedgerError, Table};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sqs::{Queue, QueueError};

use super::dead_letters::{CannotLook, dead_letter_queue, depth};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub advice: Option<&'static str>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, and costs or risks something.
    Warning,
    /// A promise is not kept while it is so.
    Bad,
    /// It cannot be seen from here.
    Unknown,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Good, found: found.into(), advice: None }
    }

    fn unknown(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Unknown, found: found.into(), advice: None }
    }

    fn bad(what: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { what, verdict: Verdict::Bad, found: found.into(), advice: Some(advice) }
    }

    fn warning(what: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { what, verdict: Verdict::Warning, found: found.into(), advice: Some(advice) }
    }
}

// ---- the ledger -----------------------------------------------------------------------------

/// The table, its index and its TTL, how far this machine's clock is from its, and what lies there
/// unswept or parked. `around` gives this machine's time at each call.
///
/// # Errors
/// If DynamoDB cannot be asked. A table that is not there is a finding.
pub async fn ledger(
    ledger: &Ledger,
    around: impl Fn() -> Timestamp,
) -> Result<Vec<Finding>, LedgerError> {
    let before = around();
    let table = match ledger.inspect().await {
        Err(LedgerError::MissingTable { table, .. }) => {
            let found = format!("there is no table {table} here");
            return Ok(vec![Finding::bad(
                "table",
                found,
                "check --table, the region and the stack",
            )]);
        }
        described => described?,
    };
    let after = around();
    let mut findings = table_findings(&table);
    findings.push(ttl(ledger.ttl_attribute().await?.as_deref()));
    findings.push(clocks(table.date.as_deref(), before, after));
    if table.indexes.iter().any(|index| index.name == OPEN_BY_DUE) {
        findings.push(sweeps(ledger, after).await?);
        findings.push(parked(ledger).await?);
    }
    Ok(findings)
}

fn table_findings(table: &Table) -> Vec<Finding> {
    let mut findings = vec![match (table.active, table.key.as_slice()) {
        (true, [pk]) if pk == Attribute::Pk.name() => Finding::good("table", "active, keyed by pk"),
        (false, _) => Finding::bad("table", "not active", "wait until it is"),
        (true, key) => {
            let found = format!("keyed by {}", key.join(" and "));
            Finding::bad("table", found, "this is not a ledger: create it as template.yaml does")
        }
    }];
    let index = table.indexes.iter().find(|index| index.name == OPEN_BY_DUE);
    findings.push(index_finding(index));
    findings.push(match table.deletion_protected {
        Some(true) => Finding::good("deletion", "protected"),
        Some(false) | None => Finding::warning(
            "deletion",
            "not protected",
            "without the ledger every event in a resend window takes hold again: protect it",
        ),
    });
    findings
}

fn index_finding(index: Option<&Index>) -> Finding {
    const WHAT: &str = "index";
    let as_deployed = "create it as template.yaml does: nothing is swept without";
    let Some(index) = index else {
        return Finding::bad(WHAT, format!("there is no {OPEN_BY_DUE}"), as_deployed);
    };
    if index.key != [Attribute::QueueKey.name(), Attribute::DueAt.name()] {
        return Finding::bad(WHAT, format!("keyed by {}", index.key.join(" and ")), as_deployed);
    }
    if !index.active {
        return Finding::bad(WHAT, "not active", "wait until it is: until then nothing is swept");
    }
    if !index.keys_only {
        let advice = "create it with KEYS_ONLY: each write now pays for what nobody reads there";
        return Finding::warning(WHAT, "projects more than keys", advice);
    }
    Finding::good(WHAT, format!("{OPEN_BY_DUE} is active and holds keys alone"))
}

fn ttl(attribute: Option<&str>) -> Finding {
    const WHAT: &str = "TTL";
    match attribute {
        Some(name) if name == Attribute::ExpiresAt.name() => {
            Finding::good(WHAT, format!("by {name}"))
        }
        Some(other) => Finding::bad(
            WHAT,
            format!("by {other}"),
            "set it to expires_at: by anything else it may delete what is open",
        ),
        None => Finding::warning(
            WHAT,
            "off",
            "switch it on by expires_at: records are kept, and paid for, for ever",
        ),
    }
}

/// A header tells whole seconds: what is within them is no difference.
fn clocks(date: Option<&str>, before: Timestamp, after: Timestamp) -> Finding {
    const WHAT: &str = "clock";
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    let Some(date) = date.and_then(|date| i64::try_from(date.as_millis()).ok()) else {
        return Finding::unknown(WHAT, "the endpoint's answer has no date");
    };
    let (earliest, latest) =
        (Timestamp::from_millis(date), Timestamp::from_millis(date).plus(A_SECOND));
    let apart = earliest.since(after).max(before.since(latest));
    let found = if apart.is_zero() {
        "this machine's is the endpoint's, to the second".to_owned()
    } else {
        format!("this machine's is {} s from the endpoint's", apart.as_secs_f64())
    };
    if apart > limits::CLOCK_SKEW {
        let advice = "set this machine's clock before acting: leases are judged by it";
        return Finding::bad(WHAT, found, advice);
    }
    Finding::good(WHAT, found)
}

async fn sweeps(ledger: &Ledger, now: Timestamp) -> Result<Finding, LedgerError> {
    const WHAT: &str = "sweeper";
    let shards: Vec<_> = (0..limits::SHARDS).map(open_shard).collect();
    let first_due: Vec<_> = stream::iter(&shards)
        .map(|shard| ledger.backlog(shard, 1))
        .buffered(SHARDS_AT_ONCE)
        .map_ok(|backlog| backlog.entries.first().map(|(_, due_at)| *due_at))
        .try_collect()
        .await?;
    let Some(due_at) = first_due.into_iter().flatten().min() else {
        return Ok(Finding::unknown(WHAT, "nothing is open, so that there is nothing to sweep"));
    };
    let overdue = now.since(due_at);
    Ok(if overdue > limits::SWEEP_INTERVAL * MISSED_PASSES {
        let found = format!("an event has been due for {} s", overdue.as_secs());
        let advice = "nobody sweeps, or cannot move it: see SweeperSilentAlarm in docs/runbook.md";
        Finding::bad(WHAT, found, advice)
    } else {
        Finding::good(WHAT, "what is due is swept in time")
    })
}

async fn parked(ledger: &Ledger) -> Result<Finding, LedgerError> {
    const WHAT: &str = "parked";
    let shards: Vec<_> = (0..limits::SHARDS).map(parked_shard).collect();
    let backlogs: Vec<_> = stream::iter(&shards)
        .map(|shard| ledger.backlog(shard, limits::MAX_COUNTED_PER_SHARD))
        .buffered(SHARDS_AT_ONCE)
        .try_collect()
        .await?;
    let count: usize = backlogs.iter().map(|backlog| backlog.entries.len()).sum();
    let more = if backlogs.iter().any(|backlog| backlog.truncated) { " or more" } else { "" };
    Ok(if count == 0 {
        Finding::good(WHAT, "none")
    } else {
        let advice = "a person decides: hookonce events list --state failed";
        Finding::warning(WHAT, format!("{count} event(s){more}"), advice)
    })
}

// ---- the queues -----------------------------------------------------------------------------

/// The queue and its dead-letter queue.
///
/// # Errors
/// If SQS cannot be asked.
pub async fn queues(queue: &Queue) -> Result<Vec<Finding>, QueueError> {
    let attributes = queue.attributes().await?;
    let seconds = |name: &str| attributes.get(name).and_then(|text| text.parse::<u64>().ok());
    let mut findings = vec![visibility(seconds("VisibilityTimeout").map(Duration::from_secs))];
    let policy = attributes.get("RedrivePolicy");
    findings.push(redrive_policy(policy.map(String::as_str)));
    let dead = match dead_letter_queue(queue).await {
        Ok(dead) => dead,
        Err(CannotLook::Queue(error)) => return Err(error),
        Err(CannotLook::NoDeadLetterQueue(_) | CannotLook::Ledger(_)) => return Ok(findings),
    };
    let retention = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    let dead_attributes = dead.attributes().await?;
    findings.push(dead_retention(
        retention(attributes.get(RETENTION)),
        retention(dead_attributes.get(RETENTION)),
    ));
    findings.push(match depth(&dead).await?.visible {
        Some(0) => Finding::good("dead letters", "none"),
        Some(count) => Finding::warning(
            "dead letters",
            format!("{count} messages"),
            "look at them: hookonce queue dead-letters",
        ),
        None => Finding::unknown("dead letters", "the endpoint does not count them"),
    });
    Ok(findings)
}

fn visibility(timeout: Option<Duration>) -> Finding {
    const WHAT: &str = "visibility";
    let longest = limits::MAX_LEASE + limits::CLOCK_SKEW;
    match timeout {
        Some(timeout) if timeout >= longest => {
            Finding::good(WHAT, format!("{} s", timeout.as_secs()))
        }
        Some(timeout) => Finding::warning(
            WHAT,
            format!("{} s, and a lease may take {} s", timeout.as_secs(), longest.as_secs()),
            "set it to 360 s: messages come back while their worker works, and use receives up",
        ),
        None => Finding::unknown(WHAT, "the endpoint does not say"),
    }
}

fn redrive_policy(policy: Option<&str>) -> Finding {
    const WHAT: &str = "redrive policy";
    let advice = "set one with maxReceiveCount 100: else what nobody can read comes back for ever";
    let policy = policy.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let count = policy.as_ref().map(|policy| &policy["maxReceiveCount"]);
    // Some endpoints write the number as text.
    let count = count.and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok()));
    match count {
        Some(count) if count > u64::from(limits::MAX_ATTEMPT_LIMIT) => {
            Finding::good(WHAT, format!("after {count} receives"))
        }
        Some(count) => Finding::bad(
            WHAT,
            format!("after {count} receives, and an event may have {}", limits::MAX_ATTEMPT_LIMIT),
            "raise maxReceiveCount to 100: events get there that their records would have parked",
        ),
        None => Finding::bad(WHAT, "none", advice),
    }
}

/// A message's age goes on from its first sending when it is moved.
fn dead_retention(queue: Option<u64>, dead: Option<u64>) -> Finding {
    const WHAT: &str = "dead retention";
    match (queue, dead) {
        (Some(queue), Some(dead)) if dead > queue => Finding::good(WHAT, format!("{dead} s")),
        (Some(queue), Some(dead)) => Finding::warning(
            WHAT,
            format!("{dead} s, and {queue} s of the queue before it"),
            "set it to 1209600 s: a message may be deleted before anybody has looked at it",
        ),
        _ => Finding::unknown(WHAT, "the endpoint does not say"),
    }
}

const RETENTION: &str = "MessageRetentionPeriod";
const A_SECOND: Duration = Duration::from_secs(1);
const SHARDS_AT_ONCE: usize = 8;
/// As many as the alarm of a silent sweeper waits for.
const MISSED_PASSES: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_judged_by_what_its_date_leaves_open() {
        let date = Some("Tue, 14 Nov 2023 22:13:20 GMT");
        let at = |ms: i64| Timestamp::from_millis(1_700_000_000_000 + ms);
        for (before, after, verdict) in [
            (at(0), at(0), Verdict::Good),
            // Within the header's second, and as far as the skew bound beyond it.
            (at(6_000), at(6_000), Verdict::Good),
            (at(-5_000), at(-5_000), Verdict::Good),
            (at(6_001), at(6_500), Verdict::Bad),
            (at(-9_000), at(-5_001), Verdict::Bad),
            // A slow answer leaves more open.
            (at(-9_000), at(9_000), Verdict::Good),
        ] {
            assert_eq!(clocks(date, before, after).verdict, verdict, "{before} {after}");
        }
        assert_eq!(clocks(None, at(0), at(0)).verdict, Verdict::Unknown);
        assert_eq!(clocks(Some("soon"), at(0), at(0)).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_redrive_policy_must_outlast_the_attempts() {
        for (policy, verdict) in [
            (None, Verdict::Bad),
            (Some("{}"), Verdict::Bad),
            (Some(r#"{"maxReceiveCount":50}"#), Verdict::Bad),
            (Some(r#"{"maxReceiveCount":51}"#), Verdict::Good),
            (Some(r#"{"maxReceiveCount":"100"}"#), Verdict::Good),
        ] {
            assert_eq!(redrive_policy(policy).verdict, verdict, "{policy:?}");
        }
    }

    #[test]
    fn each_fault_of_a_table_is_found() {
        let index = Index {
            name: OPEN_BY_DUE.into(),
            key: vec!["queue_key".into(), "due_at".into()],
            active: true,
            keys_only: true,
        };
        let verdict = |index: Option<Index>| index_finding(index.as_ref()).verdict;
        assert_eq!(verdict(Some(index.clone())), Verdict::Good);
        assert_eq!(verdict(None), Verdict::Bad);
        assert_eq!(verdict(Some(Index { active: false, ..index.clone() })), Verdict::Bad);
        assert_eq!(
            verdict(Some(Index { key: vec!["queue_key".into()], ..index.clone() })),
            Verdict::Bad
        );
        assert_eq!(verdict(Some(Index { keys_only: false, ..index })), Verdict::Warning);
        assert_eq!(ttl(Some("expires_at")).verdict, Verdict::Good);
        assert_eq!(ttl(Some("due_at")).verdict, Verdict::Bad);
        assert_eq!(ttl(None).verdict, Verdict::Warning);
        let timeout = |seconds| visibility(Some(Duration::from_secs(seconds))).verdict;
        assert_eq!((timeout(69), timeout(70)), (Verdict::Warning, Verdict::Good));
        assert_eq!(dead_retention(Some(2), Some(2)).verdict, Verdict::Warning);
        assert_eq!(dead_retention(Some(2), Some(3)).verdict, Verdict::Good);
    }
}
