//! Bounds against what they are bounds for: a smaller one would refuse what arrives in practice.

use domain::{
    limits,
    record::StateName,
    retention::{Retention, RetryWindows},
};

use crate::DAY;

#[test]
fn a_body_may_be_about_as_large_as_lambda_carries() {
    // Base64 makes three bytes four, and the headers come along.
    let carried = limits::MAX_BODY_BYTES / 3 * 4 + limits::MAX_HEADER_BYTES;
    assert!((5_000_000..6 * 1024 * 1024).contains(&carried), "{carried}");
}

#[test]
fn headers_that_a_gateway_lets_through_are_not_too_many() {
    assert!((10_240..=65_536).contains(&limits::MAX_HEADER_BYTES));
}

#[test]
fn a_payload_as_large_as_a_queue_takes_lies_on_the_record() {
    let queue = 256 * 1024;
    assert!((queue..limits::DYNAMODB_ITEM_BYTES).contains(&limits::MAX_INLINE_PAYLOAD_BYTES));
}

#[test]
fn the_most_local_writes_and_the_record_fill_one_transaction() {
    assert_eq!(limits::MAX_LOCAL_WRITES + 1, 100);
}

#[test]
fn a_provider_of_unknown_windows_may_come_again_within_a_month() {
    let retention = Retention::new(None, &RetryWindows::default()).expect("within bounds");
    assert!(retention.duration() > 30 * DAY, "{retention:?}");
}

#[test]
fn a_state_is_open_parked_or_closed() {
    for (state, open, closed) in [
        (StateName::Received, true, false),
        (StateName::Processing, true, false),
        (StateName::Failed, false, false),
        (StateName::Done, false, true),
        (StateName::Discarded, false, true),
    ] {
        assert_eq!((state.is_open(), state.is_closed()), (open, closed), "{state}");
    }
}
