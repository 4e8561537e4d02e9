//! Logs and metrics: one JSON line per delivery and per attempt that is both.
//!
//! A line is in CloudWatch's embedded metric format, so its numbers become metrics and its strings
//! stay searchable; nothing is logged twice. Absent on purpose: payloads, signatures, secrets.
//!
//! A metric's dimensions are those of its line: every line has `source`, and beside it the one
//! word that tells its kind apart. Names of sources come from the configuration, never from a
//! request: a scanner must not be able to make metrics.

use std::time::SystemTime;

use metrique::{
    ServiceMetrics,
    emf::{Emf, flags::NoMetric},
    unit::{Millisecond, Second},
    unit_of_work::metrics,
    writer::{AttachGlobalEntrySinkExt, FormatExt, sink::AttachHandle},
};
use tracing_subscriber::EnvFilter;

use crate::environment;

/// CloudWatch namespace of all metrics.
pub const NAMESPACE: &str = "hookonce";

/// Starts logging and metrics. Both go to standard output until the handle is dropped.
pub fn start() -> AttachHandle {
    let filter = environment::optional("RUST_LOG").unwrap_or_else(|| "info".to_owned());
    let logs = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_target(false)
        .with_env_filter(EnvFilter::new(filter))
        .finish();
    // A second start in one process keeps the first.
    let _ = tracing::subscriber::set_global_default(logs);
    ServiceMetrics::write_directly_to(
        Emf::builder(NAMESPACE.to_owned(), vec![vec![]]).build().output_to(std::io::stdout()),
    )
}

/// One delivery that was believed: what came in, what it was, how long it took.
#[metrics(emf::dimension_sets = [["source", "result"]])]
pub struct DeliveryLine {
    /// When the delivery came.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Which source.
    pub source: String,
    /// `new`, `duplicate`, `ignored`, `handshake`, `unavailable`.
    pub result: &'static str,
    /// Our id of the delivery.
    pub delivery_id: String,
    /// The provider's id of this attempt, if it has one.
    pub attempt_id: Option<String>,
    /// The event.
    pub event_id: Option<String>,
    /// Its type.
    pub event_type: Option<String>,
    /// The record's state after this.
    pub state: Option<&'static str>,
    /// What was done.
    pub outcome: &'static str,
    /// What went wrong.
    pub error: Option<String>,
    /// Counted once per event.
    pub webhook_events_total: u64,
    /// The event was first, and its message waits for a sweep.
    pub enqueue_deferred_total: Option<u64>,
    /// A duplicate with another payload.
    pub payload_mismatch_total: Option<u64>,
    /// How long the claim took.
    #[metrics(unit = Millisecond)]
    pub claim_ms: Option<f64>,
    /// How long the answer took, from the delivery's arrival in the function.
    #[metrics(unit = Millisecond)]
    pub ack_ms: f64,
    /// The same under the name that every line has; no metric of its own.
    #[metrics(unit = Millisecond, flags(NoMetric))]
    pub duration_ms: f64,
}

/// One delivery that was not believed, or could not be used.
#[metrics(emf::dimension_sets = [["source", "reason"]])]
pub struct RejectionLine {
    /// When the delivery came.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Which source; `unknown` for a path that names none.
    pub source: String,
    /// Why, in one word.
    pub reason: &'static str,
    /// Our id of the delivery.
    pub delivery_id: String,
    /// Why, in a sentence.
    pub error: String,
    /// The status answered.
    #[metrics(flags(NoMetric))]
    pub status: u16,
    /// Counted once per delivery.
    pub webhook_rejected_total: u64,
    /// How long the answer took.
    #[metrics(unit = Millisecond)]
    pub ack_ms: f64,
    /// The same under the name that every line has; no metric of its own.
    #[metrics(unit = Millisecond, flags(NoMetric))]
    pub duration_ms: f64,
}

/// One attempt of a worker.
#[metrics(emf::dimension_sets = [["source", "outcome"]])]
pub struct AttemptLine {
    /// When the attempt began.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Which source.
    pub source: String,
    /// What became of it.
    pub outcome: &'static str,
    /// The delivery that claimed the event.
    pub delivery_id: Option<String>,
    /// The event.
    pub event_id: String,
    /// Its type.
    pub event_type: Option<String>,
    /// The record's state after this.
    pub state: Option<&'static str>,
    /// Which attempt.
    #[metrics(flags(NoMetric))]
    pub attempt: Option<u32>,
    /// What went wrong.
    pub error: Option<String>,
    /// Counted once per attempt.
    pub worker_outcomes_total: u64,
    /// The fence refused a write.
    pub lease_lost_total: Option<u64>,
    /// A message whose event has no record.
    pub orphan_message_total: Option<u64>,
    /// Attempts the event took, once it is closed or parked.
    pub attempts_per_event: Option<u64>,
    /// How long this attempt took.
    #[metrics(unit = Millisecond)]
    pub duration_ms: f64,
    /// How long the event took from its claim, once it is done.
    #[metrics(unit = Millisecond)]
    pub end_to_end_ms: Option<f64>,
}

/// One external step of an attempt.
#[metrics(emf::dimension_sets = [["source", "step", "outcome"]])]
pub struct StepLine {
    /// When the step ended.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Which source.
    pub source: String,
    /// Which step.
    pub step: String,
    /// `called`, `recorded`, `reconciled`, `failed`, or `unfinished` where nobody can say.
    pub outcome: &'static str,
    /// The event.
    pub event_id: String,
    /// Counted once per step.
    pub steps_total: u64,
    /// How long the call took.
    #[metrics(unit = Millisecond)]
    pub duration_ms: f64,
}

/// One pass of the sweeper.
#[metrics]
pub struct SweepLine {
    /// When the pass ended.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// How it went: `complete`, or `incomplete` where some shard could not be read.
    pub outcome: &'static str,
    /// What went wrong.
    pub error: Option<String>,
    /// Records that are neither closed nor parked.
    pub open_events: u64,
    /// Of these, leased by a worker that has outlived its lease.
    pub stuck_processing: u64,
    /// Parked records.
    pub parked_events: u64,
    /// Age of the oldest open record.
    #[metrics(unit = Second)]
    pub oldest_open_seconds: f64,
    /// Enqueued again by this pass.
    pub swept_requeued_total: u64,
    /// Parked by this pass.
    pub swept_parked_total: u64,
    /// Records that this pass could not read or move.
    pub swept_failed_total: u64,
    /// A pass took place.
    pub sweeper_heartbeat: u64,
    /// How long it took.
    #[metrics(unit = Millisecond)]
    pub duration_ms: f64,
}

macro_rules! writable {
    ($($line:ident)*) => {$(
        impl $line {
            /// Writes the line; to nowhere before [`start`].
            pub fn write(self) {
                drop(self.append_on_drop(ServiceMetrics::sink_or_discard()));
            }
        }
    )*};
}

writable!(DeliveryLine RejectionLine AttemptLine StepLine SweepLine);
