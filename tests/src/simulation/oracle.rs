//! The judge: sees every write that takes hold, every call of an outside service and every answer,
//! and says which of the promises is broken.
//!
//! It reads the table's own JSON and knows none of the code under test.

use std::collections::{BTreeMap, BTreeSet};

use domain::time::Timestamp;
use serde_json::Value;

use crate::world::TABLE;

/// What is known of the whole.
#[derive(Debug, Default)]
pub struct Oracle {
    facts: BTreeMap<String, Facts>,
    broken: Option<String>,
    log: Vec<String>,
    seen: BTreeMap<&'static str, u64>,
}

/// What is known of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) state: String,
    pub(crate) due_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) expired: bool,
    pub(crate) beyond_horizon: bool,
    completions: u32,
    completed_before_expiry: u32,
    credits: u32,
    /// Who took the lease, by fence.
    holders: BTreeMap<i64, String>,
    /// Keys that a step was called under.
    keys: BTreeMap<String, BTreeSet<String>>,
    /// The fence under which a step was recorded as done, and its result.
    done: BTreeMap<String, (i64, String)>,
}

impl Oracle {
    /// Something worth a line in the account of a failure.
    pub(crate) fn note(&mut self, now: Timestamp, what: impl AsRef<str>) {
        self.log.push(format!("{} {}", now.millis(), what.as_ref()));
    }

    /// What happened so far, a line each.
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// The first promise that was broken.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// What was seen, and how often: a run in which nothing happens proves nothing.
    #[must_use]
    pub const fn seen(&self) -> &BTreeMap<&'static str, u64> {
        &self.seen
    }

    pub(crate) const fn facts(&self) -> &BTreeMap<String, Facts> {
        &self.facts
    }

    /// When the next open record is due.
    pub(crate) fn next_due(&self) -> Option<i64> {
        let open = self.facts.values().filter(|facts| is_open(&facts.state));
        open.filter_map(|facts| facts.due_at).min()
    }

    pub(crate) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn check(&mut self, holds: bool, pk: &str, promise: &str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(format!("{pk}: {promise}"));
            self.log.push(format!("BROKEN: {pk}: {promise}"));
        }
    }

    /// A write has taken hold.
    pub(crate) fn wrote(
        &mut self,
        now: Timestamp,
        by: &str,
        (table, key): &(String, Value),
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let pk = key["pk"]["S"].as_str().unwrap_or_default();
        let Some(after) = after else {
            return self.check(false, pk, "I9: nothing but expiry deletes a record");
        };
        if table != TABLE {
            let credits = number(after, "credits").and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            let pk = format!("stripe#{pk}");
            self.facts.entry(pk).or_default().credits = credits;
            return;
        }
        let (was, is) = (before.map_or("absent", state), state(after));
        self.note(now, format!("{by}: {pk}: {was} -> {is}"));
        let mut facts = self.facts.remove(pk).unwrap_or_default();
        if let Some(before) = before {
            self.check(before["claim_id"] == after["claim_id"], pk, "I2: one claim wins");
        }
        self.judge_place(pk, after);
        self.judge_transition(by, pk, before, after);
        if let Some(before) = before.filter(|before| state(before) == "processing") {
            let over = number(before, "lease_until").is_some_and(|until| until < now.millis());
            let taken = attempt(after) > attempt(before);
            self.check(over || !taken, pk, "I7: a lease is its holder's until it ends");
        }
        self.judge_holder(now, by, pk, &facts, before, after);
        self.judge_journal(pk, &mut facts, before, after);
        facts.take_in(by, before, after);
        self.judge_expiry(pk, &facts, after);
        let ran_again = facts.expired && facts.completions > facts.completed_before_expiry;
        self.check(!ran_again, pk, "I5: an event whose record expired does not run again unasked");
        self.facts.insert(pk.to_owned(), facts);
    }

    fn judge_transition(&mut self, by: &str, pk: &str, before: Option<&Value>, after: &Value) {
        let (was, is) = (before.map_or("absent", state), state(after));
        let seen = match (was, is) {
            ("absent", "received") => "claimed",
            ("absent", "failed") => "claimed beyond its horizon",
            ("received", "processing") => "leased",
            ("processing", "done") => "completed",
            ("processing", "received") => "released",
            ("processing" | "received", "failed") => "parked",
            ("done" | "failed", "received") => "replayed",
            ("failed", "discarded") => "discarded",
            ("processing", "processing") if attempt(after) > before.map_or(0, attempt) => {
                "taken over"
            }
            (was, is) if was == is => "amended",
            _ => "unknown",
        };
        self.see(seen);
        self.check(seen != "unknown", pk, &format!("no transition leads from {was} to {is}"));
        if matches!(was, "done" | "failed" | "discarded") && was != is {
            self.check(by == OPERATOR, pk, "I8: what is closed reopens only by an operator");
        }
        let fence = (before.map_or(0, attempt), attempt(after));
        let leases = matches!(seen, "leased" | "taken over");
        self.check(fence.1 == fence.0 + i64::from(leases), pk, "the fence grows by a lease alone");
    }

    /// Where an operator, or a sweep, would look for it.
    fn judge_place(&mut self, pk: &str, after: &Value) {
        let place = after["queue_key"]["S"].as_str().and_then(|key| key.split('#').next());
        let expected = match state(after) {
            "received" | "processing" => Some("open"),
            "failed" => Some("parked"),
            _ => None,
        };
        self.check(place == expected, pk, "I4: what is open or parked is in the index");
    }

    /// I7: only who holds the lease changes what is being processed.
    fn judge_holder(
        &mut self,
        now: Timestamp,
        by: &str,
        pk: &str,
        facts: &Facts,
        before: Option<&Value>,
        after: &Value,
    ) {
        let Some(before) = before.filter(|before| state(before) == "processing") else { return };
        if attempt(after) != attempt(before) {
            return;
        }
        let holder = facts.holders.get(&attempt(before)).map_or("nobody", String::as_str);
        let changed = |name: &str| before.get(name) != after.get(name);
        // Parked by whoever finds it, when its last holder is gone.
        let abandoned = state(after) == "failed"
            && class(after) == Some("attempts_exhausted")
            && number(before, "lease_until").is_some_and(|until| until < now.millis());
        let ends = state(after) != "processing" && !abandoned;
        let writes = ends || changed("steps") || changed("lease_until");
        let holds = !writes || by == holder;
        self.check(holds, pk, &format!("I7: {by} wrote under the lease of {holder}"));
    }

    fn judge_journal(
        &mut self,
        pk: &str,
        facts: &mut Facts,
        before: Option<&Value>,
        after: &Value,
    ) {
        let Some(steps) = after["steps"]["M"].as_object() else { return };
        for (name, entry) in steps {
            let (key, state) = (&entry["M"]["key"]["S"], &entry["M"]["state"]["S"]);
            let key = key.as_str().unwrap_or_default().to_owned();
            let keys = facts.keys.entry(name.clone()).or_default();
            keys.insert(key);
            self.check(keys.len() == 1, pk, "I6: a step's key never changes");
            if state == "done" {
                let result = entry["M"]["result"]["S"].as_str().unwrap_or_default().to_owned();
                let fence = attempt(before.unwrap_or(after));
                let first = facts.done.entry(name.clone()).or_insert((fence, result.clone()));
                self.check(first.1 == result, pk, "I6: a recorded result stays");
            }
        }
        let kept = facts
            .done
            .keys()
            .all(|name| steps.get(name).is_some_and(|entry| entry["M"]["state"]["S"] == "done"));
        self.check(kept, pk, "I6: a step recorded as done stays so");
    }

    fn judge_expiry(&mut self, pk: &str, facts: &Facts, after: &Value) {
        let closed = matches!(state(after), "done" | "discarded");
        self.check(
            facts.expires_at.is_some() == closed,
            pk,
            "I9: a record expires if and only if it is closed",
        );
        if let Some(expires_at) = facts.expires_at {
            let kept = expires_at.saturating_mul(1000)
                - number(after, "received_at")
                    .unwrap_or(0)
                    .max(number(after, "completed_at").unwrap_or(0));
            self.check(kept >= RETENTION_MS, pk, "I9: a record is kept for its retention");
        }
    }

    /// A step of an event is called, by the attempt with this fence.
    pub(crate) fn called(&mut self, now: Timestamp, pk: &str, step: &str, key: &str, fence: i64) {
        self.note(now, format!("{pk}: {step} called by attempt {fence}"));
        let facts = self.facts.entry(pk.to_owned()).or_default();
        let keys = facts.keys.entry(step.to_owned()).or_default();
        keys.insert(key.to_owned());
        let one_key = keys.len() == 1;
        let again = facts.done.get(step).is_some_and(|(done_under, _)| fence > *done_under);
        self.check(one_key, pk, "I6: a step's key never changes");
        self.check(!again, pk, "I6: a step recorded as done is never called again");
    }

    /// What a step gave its handler, by a call or from the journal.
    pub(crate) fn returned(&mut self, pk: &str, step: &str, result: &str) {
        self.check(result == step, pk, "I6: a recorded result is what was returned");
    }

    /// A delivery was answered, with 0 if the function ran out of time; `undisturbed`: no fault met its process meanwhile.
    pub(crate) fn answered(&mut self, now: Timestamp, pk: &str, status: u16, undisturbed: bool) {
        self.note(now, format!("{pk}: answered {status}"));
        self.check(
            status == 200 || !undisturbed,
            pk,
            "I10: a delivery that met no fault hears 200",
        );
        if status == 200 {
            self.see("acknowledged");
            let facts = self.facts.entry(pk.to_owned()).or_default();
            let durable = !facts.state.is_empty();
            self.check(durable, pk, "I3: what is acknowledged is on record");
        } else {
            self.see("not acknowledged");
        }
    }

    /// TTL has deleted a record.
    pub(crate) fn expired(&mut self, now: Timestamp, pk: &str) {
        self.note(now, format!("{pk}: expired"));
        self.see("expired");
        let facts = self.facts.entry(pk.to_owned()).or_default();
        let closed = matches!(facts.state.as_str(), "done" | "discarded");
        facts.expired = true;
        facts.completed_before_expiry = facts.completions;
        facts.state.clear();
        facts.due_at = None;
        facts.expires_at = None;
        facts.done.clear();
        self.check(closed, pk, "I9: only what is closed expires");
    }

    /// What the services did of a step, in the end.
    pub(crate) fn judge_effects(&mut self, pk: &str, step: &str, effects: u32, facts: &Facts) {
        self.check(effects <= 1, pk, &format!("{step} takes effect once at most"));
        let missing = facts.completions > 0 && effects == 0;
        self.check(!missing, pk, &format!("{step} of what is done took effect"));
    }

    /// Everything has had its time: what is left is judged.
    pub(crate) fn judge_end(&mut self) {
        for (pk, facts) in self.facts.clone() {
            let settled = !is_open(&facts.state);
            self.check(settled, &pk, "I4: what is recorded ends done or parked");
            self.check(
                facts.credits == facts.completions,
                &pk,
                "I5: local effects hold if and only if the record is done",
            );
        }
    }
}

impl Facts {
    fn take_in(&mut self, by: &str, before: Option<&Value>, after: &Value) {
        let (was, is) = (before.map_or("absent", state), state(after));
        self.beyond_horizon |= class(after) == Some("beyond_horizon");
        if attempt(after) > before.map_or(0, attempt) {
            self.holders.insert(attempt(after), by.to_owned());
        }
        self.completions += u32::from(was != is && is == "done");
        is.clone_into(&mut self.state);
        self.due_at = number(after, "due_at");
        self.expires_at = number(after, "expires_at");
    }
}

fn state(item: &Value) -> &str {
    item["state"]["S"].as_str().unwrap_or("absent")
}

fn attempt(item: &Value) -> i64 {
    number(item, "attempt").unwrap_or(0)
}

fn class(item: &Value) -> Option<&str> {
    item["last_error"]["M"]["class"]["S"].as_str()
}

fn number(item: &Value, name: &str) -> Option<i64> {
    item[name]["N"].as_str()?.parse().ok()
}

pub(crate) fn is_open(state: &str) -> bool {
    matches!(state, "received" | "processing")
}

/// Whom no fault meets, and who alone may reopen what is closed.
pub(crate) const OPERATOR: &str = "operator";
/// Stripe's longer window, 30 days, and the margin.
const RETENTION_MS: i64 = 33 * 86_400_000;
