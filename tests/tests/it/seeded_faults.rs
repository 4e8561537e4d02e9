//! Each fault that somebody has shipped, switched on, turns the test red that is there for it.
//!
//! `cargo test -p tests --test it seeded_faults` prints the table. To see one for oneself:
//! `HOOKONCE_SEEDED_FAULT='check-then-insert' cargo test -p tests --test it parallel::`.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::seeded::Fault;
use tests::seeded::VARIABLE;

/// The test that is there for a fault.
const fn guard(fault: Fault) -> &'static str {
    match fault {
        Fault::VerifyAfterParse => "receiver_table::a_signature_is_over_the_bytes_as_received",
        Fault::DedupeBeforeVerify => {
            "receiver_table::whatever_does_not_verify_hears_one_and_the_same_401_and_writes_nothing"
        }
        Fault::KeyWithoutSource => {
            "receiver_table::one_id_at_two_sources_of_one_provider_is_two_events"
        }
        Fault::KeyFromDeliveryId => {
            "receiver_table::a_signature_is_no_part_of_an_event_so_a_retry_signed_anew_is_a_duplicate"
        }
        Fault::KeyFromObject => "parallel::two_events_of_one_object_take_effect_once_each",
        Fault::CheckThenInsert => {
            "parallel::parallel_deliveries_of_each_event_make_one_claim_and_one_effect"
        }
        Fault::ShortRetention => "configuration::retention_covers_the_providers_windows",
        Fault::NoHorizon => {
            "receiver_table::an_event_beyond_its_horizon_is_parked_and_not_enqueued"
        }
        Fault::TtlOnOpenRecord => "sweep::only_closed_records_expire",
        Fault::ExpiryDecides => "receiver_table::a_record_past_its_expiry_still_makes_a_duplicate",
        Fault::OwnClaimIsDuplicate => {
            "lost_response::a_claim_whose_answer_got_lost_is_new_and_enqueued_once"
        }
        Fault::AcknowledgeBeforeDurable => {
            "receiver_table::a_ledger_that_breaks_every_claim_is_503_and_the_retry_succeeds"
        }
        Fault::DuplicateIsError => {
            "receiver_table::a_duplicate_within_its_grace_is_acknowledged_and_changes_nothing"
        }
        Fault::EnqueueOrFail => {
            "receiver_table::an_event_that_cannot_be_enqueued_is_acknowledged_and_a_sweep_enqueues_it"
        }
        Fault::RefusalFallsThrough => {
            "lost_response::two_messages_of_one_event_at_once_have_one_effect"
        }
        Fault::TakeoverIgnoresLease => {
            "takeover::a_redelivery_while_the_event_is_processed_is_kept_and_runs_nothing"
        }
        Fault::TakeoverIgnoresSkew => {
            "takeover::a_lease_is_not_taken_over_before_the_clocks_agree_that_it_ended"
        }
        Fault::LeaseReopensClosed => {
            "worker_table::a_message_of_a_closed_or_parked_event_is_deleted_and_runs_nothing"
        }
        Fault::CrashesNotCounted => {
            "worker_table::attempts_used_up_by_crashes_park_without_another_run"
        }
        Fault::JournalIgnored => "takeover::a_step_the_predecessor_recorded_is_not_called_again",
        Fault::PolicyIgnored => {
            "takeover::a_step_the_predecessor_started_parks_where_it_may_not_repeat"
        }
        Fault::KeyPerAttempt => {
            "takeover::a_step_the_predecessor_started_repeats_under_its_key_where_it_may"
        }
        Fault::MarkerAfterEffect => {
            "lost_response::a_completion_that_is_never_confirmed_leaves_its_message_and_no_second_effect"
        }
        Fault::CompleteWithoutFence | Fault::ReleaseWithoutFence => {
            "takeover::whatever_the_outlived_worker_ends_with_it_changes_nothing"
        }
        Fault::PanicIsSuccess => {
            "worker_table::a_record_whose_work_panics_is_kept_and_the_others_are_done"
        }
        Fault::EmptyMessageId => {
            "worker_table::a_kept_record_without_a_message_id_keeps_the_whole_batch"
        }
        Fault::NoSweep => "sweep::a_crash_between_claim_and_enqueue_is_healed",
    }
}

#[test]
fn each_fault_is_caught_by_the_test_that_is_there_for_it() {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let escaped = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                while let Some(fault) = Fault::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = catch(*fault) {
                        escaped.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                    }
                }
            });
        }
    });
    let escaped = escaped.into_inner().unwrap_or_else(PoisonError::into_inner);
    print_table(escaped.len(), began.elapsed());
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

/// Runs a fault's test without the fault, when it must pass, and with it, when it must fail.
fn catch(fault: Fault) -> Result<(), String> {
    let (test, name) = (guard(fault), fault.name());
    if !run(test, None).contains("test result: ok. 1 passed") {
        return Err(format!("{name}: {test} does not pass without it, or is not there"));
    }
    if !run(test, Some(name)).contains("test result: FAILED. 0 passed; 1 failed") {
        return Err(format!("{name}: {test} does not catch it"));
    }
    Ok(())
}

fn run(test: &str, fault: Option<&str>) -> String {
    let mut tests = Command::new(std::env::current_exe().expect("the path of the tests"));
    tests.args(["--exact", test]).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    match fault {
        Some(name) => tests.env(VARIABLE, name),
        None => tests.env_remove(VARIABLE),
    };
    let ran = tests.output().expect("the tests start");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Past the capture of a test's output: the table is the point.
fn print_table(escaped: usize, took: Duration) {
    let mut table = String::from("\nseeded faults, and the tests that catch them\n");
    for fault in Fault::ALL {
        let _ = writeln!(table, "  {:<40} {}", fault.name(), guard(*fault));
    }
    let all = Fault::ALL.len();
    let _ = writeln!(table, "{} of {all} caught, in {} s", all - escaped, took.as_secs());
    let _ = std::io::stdout().write_all(table.as_bytes());
}

/// Run at the same time: each is mostly waiting.
const PROCESSES: usize = 4;
