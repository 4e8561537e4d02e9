//! Points in time, as milliseconds since 1970. The clock itself is the caller's.

use std::{fmt, time::Duration};

/// Milliseconds since the Unix epoch. Arithmetic saturates: a hostile timestamp moves no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the epoch.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded up: an expiry in seconds is never early.
    #[must_use]
    pub const fn secs_rounded_up(self) -> i64 {
        self.0.div_euclid(1000) + if self.0.rem_euclid(1000) == 0 { 0 } else { 1 }
    }

    /// This point, later by `duration`.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis_of(duration)))
    }

    /// This point, earlier by `duration`.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis_of(duration)))
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_up_so_that_expiry_is_never_early() {
        assert_eq!(Timestamp::from_millis(1_000).secs_rounded_up(), 1);
        assert_eq!(Timestamp::from_millis(1_001).secs_rounded_up(), 2);
        assert_eq!(Timestamp::from_millis(-1).secs_rounded_up(), 0);
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(end.plus(Duration::MAX), end);
        assert_eq!(Timestamp::from_secs(i64::MAX), end);
        assert_eq!(Timestamp::from_millis(1).since(end), Duration::ZERO);
    }
}
