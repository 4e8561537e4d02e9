//! What the functions really write.

use std::{
    collections::BTreeSet,
    process::Command,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use runtime::{
    clock::Clock,
    environment::optional,
    telemetry::{self, AttemptLine, DeliveryLine, RejectionLine, StepLine, SweepLine},
};
use serde_json::{Value, json};
use tests::world::{
    World, deliver, stripe_body, stripe_config, stripe_delivery, stripe_delivery_at,
};

use super::document::{list, text};

/// Set in the process that plays, by the test that reads it.
const PLAYS: &str = "HOOKONCE_TEST_PLAYS_FOR_TEMPLATE";

/// What the process that plays wrote: `{"function", "line"}`; of `play`, not of `show`.
pub(super) fn lines() -> &'static [Value] {
    written().0.as_slice()
}

/// Every metric that any line can have, with the dimensions it has it by.
pub(super) fn emitted() -> BTreeSet<(BTreeSet<String>, String)> {
    let strings = |values: &Value| -> Vec<String> {
        list(values).map(|value| text(value).to_owned()).collect()
    };
    let mut emitted = BTreeSet::new();
    for directive in written().1.iter().flat_map(|line| list(&line["_aws"]["CloudWatchMetrics"])) {
        for dimensions in list(&directive["Dimensions"]) {
            for metric in list(&directive["Metrics"]) {
                let dimensions: BTreeSet<_> = strings(dimensions).into_iter().collect();
                emitted.insert((dimensions, text(&metric["Name"]).to_owned()));
            }
        }
    }
    emitted
}

fn written() -> &'static (Vec<Value>, Vec<Value>) {
    static WRITTEN: OnceLock<(Vec<Value>, Vec<Value>)> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .args([
                "--exact",
                "template::lines::a_receiver_and_a_sweeper_write_their_lines",
                "--nocapture",
            ])
            .env(PLAYS, "1")
            .env_remove("RUST_LOG")
            .output()
            .expect("this program, once more");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        // Between the runner's own lines.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (shown, played): (Vec<_>, Vec<_>) =
            lines.filter(|line| !line["_aws"].is_null()).partition(|line| {
                line["event_id"] == SHOWN || line["delivery_id"] == SHOWN || line["error"] == SHOWN
            });
        let function = |line: &Value| {
            let sweeps = !line["sweeper_heartbeat"].is_null();
            if sweeps { "Sweeper" } else { "Receiver" }
        };
        let played =
            played.into_iter().map(|line| json!({ "function": function(&line), "line": line }));
        (played.collect(), shown)
    })
}

#[tokio::test]
async fn a_receiver_and_a_sweeper_write_their_lines() {
    if optional(PLAYS).is_some() {
        let _telemetry = telemetry::start();
        play().await;
        show();
        return;
    }
    let (played, shown) = tokio::task::spawn_blocking(written).await.expect("no panic");
    assert_eq!(played.len(), 8, "seven deliveries and a sweep");
    assert_eq!(shown.len(), 5, "a line of each kind");
}

/// One new event, two duplicates, three deliveries that do not verify, one without an event id, and
/// a sweep.
async fn play() {
    let world = World::start().await;
    let receiver = world.receiver(&stripe_config()).await;
    let now = Clock::default().now();
    let hour = Duration::from_secs(3600);
    for _ in 0..3 {
        assert_eq!(deliver(&receiver, &stripe_delivery("evt_1")).await.status, 200);
    }
    let mut forged = stripe_delivery("evt_2");
    forged.body.push(b' ');
    for unverified in [
        forged,
        stripe_delivery_at("evt_3", now.minus(hour)),
        stripe_delivery_at("evt_4", now.plus(hour)),
    ] {
        assert_eq!(deliver(&receiver, &unverified).await.status, 401);
    }
    assert_eq!(deliver(&receiver, &stripe_body(b"{}")).await.status, 422);
    world.sweeper(Clock::default()).sweep().await.expect("a complete pass");
}

/// A line of each kind with everything on it that it can have.
fn show() {
    show_what_a_receiver_writes();
    show_what_a_worker_writes();
    show_what_a_sweeper_writes();
}

fn show_what_a_receiver_writes() {
    let shown = || Some(SHOWN.to_owned());
    DeliveryLine {
        timestamp: SystemTime::UNIX_EPOCH,
        source: "stripe".to_owned(),
        result: "new",
        delivery_id: SHOWN.to_owned(),
        attempt_id: shown(),
        event_id: shown(),
        event_type: shown(),
        state: Some("received"),
        outcome: "claimed",
        error: shown(),
        webhook_events_total: 1,
        enqueue_deferred_total: Some(1),
        payload_mismatch_total: Some(1),
        claim_ms: Some(1.0),
        ack_ms: 1.0,
        duration_ms: 1.0,
    }
    .write();
    RejectionLine {
        timestamp: SystemTime::UNIX_EPOCH,
        source: "stripe".to_owned(),
        reason: "bad_signature",
        delivery_id: SHOWN.to_owned(),
        error: SHOWN.to_owned(),
        status: 401,
        webhook_rejected_total: 1,
        ack_ms: 1.0,
        duration_ms: 1.0,
    }
    .write();
}

fn show_what_a_worker_writes() {
    let shown = || Some(SHOWN.to_owned());
    AttemptLine {
        timestamp: SystemTime::UNIX_EPOCH,
        source: "stripe".to_owned(),
        outcome: "done",
        delivery_id: shown(),
        event_id: SHOWN.to_owned(),
        event_type: shown(),
        state: Some("done"),
        attempt: Some(1),
        error: shown(),
        worker_outcomes_total: 1,
        lease_lost_total: Some(1),
        orphan_message_total: Some(1),
        attempts_per_event: Some(1),
        duration_ms: 1.0,
        end_to_end_ms: Some(1.0),
    }
    .write();
    StepLine {
        timestamp: SystemTime::UNIX_EPOCH,
        source: "stripe".to_owned(),
        step: "receipt".to_owned(),
        outcome: "called",
        event_id: SHOWN.to_owned(),
        steps_total: 1,
        duration_ms: 1.0,
    }
    .write();
}

fn show_what_a_sweeper_writes() {
    SweepLine {
        timestamp: SystemTime::UNIX_EPOCH,
        outcome: "complete",
        error: Some(SHOWN.to_owned()),
        open_events: 1,
        stuck_processing: 1,
        parked_events: 1,
        oldest_open_seconds: 1.0,
        swept_requeued_total: 1,
        swept_parked_total: 1,
        swept_failed_total: 1,
        sweeper_heartbeat: 1,
        duration_ms: 1.0,
    }
    .write();
}

const SHOWN: &str = "shown, not played";
