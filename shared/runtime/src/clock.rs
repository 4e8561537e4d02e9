//! The clock, in the one place that reads it.

use std::time::{SystemTime, UNIX_EPOCH};

use domain::time::Timestamp;
use tokio::time::Instant;

use crate::environment::{names, optional};

/// The system's clock, moved by a fixed offset: recorded deliveries verify at the time they were
/// signed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    base: Base,
    offset_ms: i64,
}

/// What a clock goes by.
#[derive(Clone, Copy, Debug, Default)]
enum Base {
    #[default]
    System,
    /// Tokio's, which read so at that moment.
    Tokio(Instant, Timestamp),
}

impl Clock {
    /// A clock moved by `offset_ms`. Zero on AWS.
    #[must_use]
    pub const fn with_offset(offset_ms: i64) -> Self {
        Self { base: Base::System, offset_ms }
    }

    /// A clock that reads `now` at this moment and goes on by tokio's, which a simulation pauses
    /// and moves on.
    #[must_use]
    pub fn on_tokio(now: Timestamp) -> Self {
        Self { base: Base::Tokio(Instant::now(), now), offset_ms: 0 }
    }

    /// This clock, moved by `offset_ms` more: one that differs from it.
    #[must_use]
    pub const fn moved_by(self, offset_ms: i64) -> Self {
        Self { offset_ms: self.offset_ms.saturating_add(offset_ms), ..self }
    }

    /// The clock of this process: the system's, or as far from it as the embedded stack says.
    #[must_use]
    pub fn from_environment() -> Self {
        let offset = optional(names::CLOCK_OFFSET_MS).and_then(|ms| ms.parse().ok());
        Self::with_offset(offset.unwrap_or(0))
    }

    /// A clock that reads `now` at this moment.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self::with_offset(now.millis().saturating_sub(Self::default().now().millis()))
    }

    /// The offset.
    #[must_use]
    pub const fn offset_ms(self) -> i64 {
        self.offset_ms
    }

    /// Now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub fn now(self) -> Timestamp {
        let base = match self.base {
            Base::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
            }
            Base::Tokio(then, read) => read.plus(then.elapsed()).millis(),
        };
        Timestamp::from_millis(base.saturating_add(self.offset_ms))
    }

    /// A point of this clock, as the system's type.
    #[must_use]
    pub fn system_time(at: Timestamp) -> SystemTime {
        UNIX_EPOCH + std::time::Duration::from_millis(u64::try_from(at.millis()).unwrap_or(0))
    }

    /// A point of the system's clock, which Lambda's deadlines are given in, on this clock.
    #[must_use]
    pub fn from_system(self, at: Timestamp) -> Timestamp {
        Timestamp::from_millis(at.millis().saturating_add(self.offset_ms))
    }
}
