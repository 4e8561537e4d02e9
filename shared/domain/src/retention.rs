//! How long a closed record is kept: past the last moment at which its provider may send the event
//! again. An expired record reopens the door to a duplicate, so a shorter wish is refused.

use std::time::Duration;

use crate::{
    limits,
    seeded::{self, Fault},
    time::Timestamp,
};

/// For how long after an event its provider may deliver it again. `None` is unknown, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryWindows {
    /// Of the provider's own retries.
    pub automatic: Option<Duration>,
    /// Of a person's resend from the provider's dashboard or API.
    pub manual: Option<Duration>,
}

impl RetryWindows {
    /// The least retention that closes the door, and why.
    ///
    /// A window that is not known counts as [`limits::UNKNOWN_WINDOW`].
    #[must_use]
    pub fn required(&self) -> Required {
        let unknown = self.automatic.is_none() || self.manual.is_none();
        let known = self.automatic.max(self.manual).unwrap_or(Duration::ZERO);
        let window = if unknown { known.max(limits::UNKNOWN_WINDOW) } else { known };
        Required { window, unknown, retention: window + limits::RETENTION_MARGIN }
    }
}

/// The least retention for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Required {
    /// The window that decides.
    pub window: Duration,
    /// Whether a window is unknown, so that the default stands in for it.
    pub unknown: bool,
    /// The window and [`limits::RETENTION_MARGIN`].
    pub retention: Duration,
}

/// A retention that covers its provider's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention(Duration);

impl Retention {
    /// The configured retention, or the required one.
    ///
    /// # Errors
    /// If the configured one is shorter than required, or beyond [`limits::MAX_RETENTION`].
    pub fn new(
        configured: Option<Duration>,
        windows: &RetryWindows,
    ) -> Result<Self, InvalidRetention> {
        let required = windows.required();
        let retention = configured.unwrap_or(required.retention);
        if retention < required.retention && !seeded::is_on(Fault::ShortRetention) {
            return Err(InvalidRetention::TooShort { retention, required });
        }
        if retention > limits::MAX_RETENTION {
            return Err(InvalidRetention::TooLong { retention });
        }
        Ok(Self(retention))
    }

    /// As a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// When a record received and closed at these times may go.
    #[must_use]
    pub fn expiry(self, received_at: Timestamp, completed_at: Timestamp) -> Timestamp {
        received_at.max(completed_at).plus(self.0)
    }

    /// Whether an event is so old that the record of an earlier delivery may have expired.
    ///
    /// Earlier than the expiry by [`limits::HORIZON_LEAD`]: the table's clock may be ahead of ours,
    /// and the provider's was ahead of it when the event occurred.
    #[must_use]
    pub fn is_beyond_horizon(self, occurred_at: Timestamp, now: Timestamp) -> bool {
        if seeded::is_on(Fault::NoHorizon) {
            return false;
        }
        occurred_at.plus(self.0.saturating_sub(limits::HORIZON_LEAD)) <= now
    }
}

/// A retention that would reopen the door.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRetention {
    /// Shorter than the provider's windows and the margin.
    #[error(
        "retention of {} is too short: the provider may send an event again for {}{}, and a margin of {} is kept; set {} or more, or leave it out",
        days(*.retention), days(.required.window),
        if .required.unknown { " (a window is not documented, so this is assumed)" } else { "" },
        days(limits::RETENTION_MARGIN), days(.required.retention)
    )]
    TooShort {
        /// As configured.
        retention: Duration,
        /// As the provider needs.
        required: Required,
    },
    /// Beyond ten years.
    #[error("retention of {} is too long: {} at most", days(*.retention), days(limits::MAX_RETENTION))]
    TooLong {
        /// As configured.
        retention: Duration,
    },
}

/// A duration in days, for people: `30d`, `2.5d`.
#[must_use]
pub fn days(duration: Duration) -> String {
    let tenths = duration.as_secs().div_ceil(8_640);
    if tenths.is_multiple_of(10) {
        format!("{}d", tenths / 10)
    } else {
        format!("{}.{}d", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_longer_window_decides() {
        let windows = RetryWindows { automatic: Some(3 * DAY), manual: Some(30 * DAY) };
        assert_eq!(windows.required().retention, 33 * DAY);
        assert!(Retention::new(Some(32 * DAY), &windows).is_err());
        assert_eq!(Retention::new(None, &windows).map(Retention::duration).ok(), Some(33 * DAY));
    }

    #[test]
    fn an_unknown_window_is_not_zero() {
        let windows = RetryWindows { automatic: Some(DAY), manual: None };
        let required = windows.required();
        assert!(required.unknown);
        assert_eq!(required.window, limits::UNKNOWN_WINDOW);
        let longer = RetryWindows { automatic: Some(90 * DAY), manual: None };
        assert_eq!(longer.required().window, 90 * DAY);
    }

    #[test]
    fn a_refusal_names_what_would_do() {
        let windows = RetryWindows { automatic: Some(3 * DAY), manual: Some(30 * DAY) };
        let refusal = Retention::new(Some(DAY), &windows).map_err(|e| e.to_string());
        assert_eq!(
            refusal,
            Err("retention of 1d is too short: the provider may send an event again for 30d, \
                 and a margin of 3d is kept; set 33d or more, or leave it out"
                .into())
        );
    }
}
