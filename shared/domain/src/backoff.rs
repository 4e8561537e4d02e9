//! Exponential backoff with full jitter. The jitter is drawn by the caller.

use std::time::Duration;

use crate::limits;

/// How the wait grows between the attempts of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// # Errors
    /// If `base` is under a second or `cap` is not between `base` and [`limits::MAX_RETRY_AFTER`].
    pub fn new(base: Duration, cap: Duration) -> Result<Self, InvalidBackoff> {
        let valid = base >= limits::MIN_RETRY_WAIT && base <= cap && cap <= limits::MAX_RETRY_AFTER;
        if valid { Ok(Self { base, cap }) } else { Err(InvalidBackoff { base, cap }) }
    }

    /// The wait after attempt number `attempt` (1 is the first), for a `jitter` in 0..=1.
    ///
    /// Full jitter spreads a herd of retries over the whole interval; a second at least is left,
    /// so that a retry never spins.
    #[must_use]
    pub fn wait(&self, attempt: u32, jitter: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        ceiling.mul_f64(jitter.clamp(0.0, 1.0)).max(limits::MIN_RETRY_WAIT)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: limits::BACKOFF_BASE, cap: limits::BACKOFF_CAP }
    }
}

/// A backoff whose bounds are out of order.
#[derive(Debug, thiserror::Error)]
#[error(
    "backoff from {base:?} to {cap:?}: the first wait must be 1s or more, the longest at least the first and 24h at most"
)]
pub struct InvalidBackoff {
    base: Duration,
    cap: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_attempts_take_about_a_day() {
        let backoff = Backoff::default();
        let on_average: Duration =
            (1..limits::DEFAULT_ATTEMPT_LIMIT).map(|attempt| backoff.wait(attempt, 0.5)).sum();
        assert!(on_average > Duration::from_secs(12 * 3600), "{on_average:?}");
        assert!(on_average < Duration::from_secs(36 * 3600), "{on_average:?}");
    }

    #[test]
    fn a_wait_is_bounded_for_any_attempt_and_jitter() {
        let backoff = Backoff::default();
        for attempt in [0, 1, 2, 31, 32, u32::MAX] {
            for jitter in [f64::NEG_INFINITY, 0.0, 0.3, 1.0, f64::INFINITY] {
                let wait = backoff.wait(attempt, jitter);
                assert!(
                    wait >= limits::MIN_RETRY_WAIT && wait <= limits::BACKOFF_CAP,
                    "{attempt} {jitter} {wait:?}"
                );
            }
        }
    }

    #[test]
    fn disordered_bounds_are_refused() {
        let second = Duration::from_secs(1);
        assert!(Backoff::new(Duration::from_millis(10), second).is_err());
        assert!(Backoff::new(2 * second, second).is_err());
        assert!(Backoff::new(second, Duration::from_secs(90_000)).is_err());
    }
}
