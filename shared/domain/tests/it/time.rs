//! Expiry and shards: bounds that hold for any input.

use std::time::Duration;

use domain::{
    backoff::Backoff,
    event::{EventId, EventKey, Source},
    item::{Attribute, Value},
    limits,
    time::Timestamp,
};
use proptest::prelude::*;

use crate::{MS, NOW, SKEW, claimed, held, policy};

proptest! {
    #[test]
    fn a_record_expires_after_its_retention_counted_from_the_later_of_its_times(
        received in 0_i64..4_000_000_000_000,
        completed in 0_i64..4_000_000_000_000,
    ) {
        let retention = policy().retention;
        let (received, completed) =
            (Timestamp::from_millis(received), Timestamp::from_millis(completed));
        let expiry = retention.expiry(received, completed);
        prop_assert_eq!(expiry, received.max(completed).plus(retention.duration()));
    }

    /// TTL is in seconds and may not be early by the part that is cut off.
    #[test]
    fn the_stored_expiry_is_never_early_and_at_most_a_second_late(ms in 0_u64..4_000) {
        let mut table = claimed();
        let (lease, record) = held(&mut table, "a", NOW);
        let completed = NOW.plus(Duration::from_millis(ms));
        table.write(&lease.complete(&[], completed, &policy()).write);
        let Value::Number(seconds) = table.item()[&Attribute::ExpiresAt] else {
            return Err(TestCaseError::fail("no expiry"));
        };
        let due = policy().retention.expiry(record.received_at, completed);
        let stored = Timestamp::from_secs(seconds);
        prop_assert!(stored >= due && stored < due.plus(Duration::from_secs(1)));
    }

    #[test]
    fn a_clock_that_ran_backwards_does_not_shorten_retention(back in 0_u64..10_000) {
        let mut table = claimed();
        let (lease, record) = held(&mut table, "a", NOW);
        let completed = NOW.minus(Duration::from_secs(back));
        table.write(&lease.complete(&[], completed, &policy()).write);
        let domain::record::State::Done(closure) = table.record().state else {
            return Err(TestCaseError::fail("not done"));
        };
        let least = record.received_at.plus(policy().retention.duration());
        prop_assert!(closure.expires_at >= least);
    }

    #[test]
    fn every_key_has_one_shard_in_range(source in "[a-z0-9-]{1,64}", id in "[!-~]{1,512}") {
        let key = EventKey::new(
            Source::new(source).expect("valid"),
            EventId::new(id).expect("valid"),
        );
        prop_assert!(key.shard() < limits::SHARDS);
        let again = EventKey::parse(&key.pk()).expect("a key");
        prop_assert_eq!(again.shard(), key.shard());
        prop_assert_eq!(again, key);
    }

    /// A wait that a source may configure never comes out longer than its longest, or as none.
    #[test]
    fn any_configured_backoff_stays_within_its_bounds(
        first in 1_u64..86_400,
        longest in 1_u64..86_400,
        attempt in any::<u32>(),
        jitter in any::<f64>(),
    ) {
        let (first, longest) = (Duration::from_secs(first), Duration::from_secs(longest));
        match Backoff::new(first, longest) {
            Ok(backoff) => {
                let wait = backoff.wait(attempt, jitter);
                prop_assert!(wait >= Duration::from_secs(1) && wait <= longest);
            }
            Err(_) => prop_assert!(first > longest),
        }
    }
}

#[test]
fn keys_spread_over_all_shards() {
    let mut counts = vec![0_u32; limits::SHARDS as usize];
    for i in 0..1000 {
        let key = EventKey::parse(&format!("stripe#evt_{i}")).expect("a key");
        counts[key.shard() as usize] += 1;
    }
    // An even spread has 125 each; less than half of it would be a hot partition elsewhere.
    assert!(counts.iter().all(|count| *count > 62), "{counts:?}");
}

#[test]
fn a_takeover_waits_for_the_same_moment_that_a_sweep_defers_to() {
    let mut table = claimed();
    held(&mut table, "a", NOW);
    let until = NOW.plus(limits::MAX_LEASE);
    table.set(Attribute::DueAt, NOW.millis());
    let deferred = match domain::sweep::sweep(&table.record(), NOW, SKEW) {
        domain::sweep::Sweep::Defer(defer) => defer,
        other => panic!("{other:?}"),
    };
    table.write(&deferred.write);
    let domain::record::State::Processing { due_at, .. } = table.record().state else {
        panic!("not leased")
    };
    assert_eq!(due_at, until.plus(SKEW).plus(MS));
    held(&mut table, "b", due_at);
}
