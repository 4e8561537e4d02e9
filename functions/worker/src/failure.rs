//! Why a handler did not finish, and what is to come of it.

use std::{fmt, time::Duration};

use domain::{limits, transition::Standing};
use dynamo::LedgerError;

/// Why a handler did not finish. Handlers make one by [`Failure::retry`] or
/// [`Failure::permanent`], and pass on with `?` what [`crate::Effects`] gives them.
#[derive(Debug)]
pub struct Failure {
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Retry {
        wait: Wait,
        class: String,
        text: String,
    },
    Permanent {
        class: String,
        text: String,
    },
    /// The fence refused a write: another worker has the event, or it is settled.
    LeaseLost(Standing),
    /// Whether a write took hold is not known.
    Uncertain(LedgerError),
}

/// How long until another attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// As the source's backoff says.
    Backoff,
    /// This.
    Exactly(Duration),
    /// As the backoff says, and this at least.
    NoSooner(Duration),
}

impl Failure {
    /// Another attempt may succeed: the event is tried again after the source's backoff, until its
    /// attempts are used up. `class` is a short name to search for; keep payloads out of `text`.
    pub fn retry(class: impl Into<String>, text: impl fmt::Display) -> Self {
        let (class, text) = (class.into(), text.to_string());
        Self { kind: Kind::Retry { wait: Wait::Backoff, class, text } }
    }

    /// No attempt will succeed: the event is parked, and a person decides.
    pub fn permanent(class: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { kind: Kind::Permanent { class: class.into(), text: text.to_string() } }
    }

    /// Tries again after this rather than the source's backoff; from [`limits::MIN_RETRY_WAIT`] to
    /// [`limits::MAX_RETRY_AFTER`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let delay = delay.clamp(limits::MIN_RETRY_WAIT, limits::MAX_RETRY_AFTER);
        self.waiting(Wait::Exactly(delay))
    }

    /// Tries again after the source's backoff, and no sooner than this, up to
    /// [`limits::MAX_RETRY_AFTER`]. For what another side asks for: an answer "in a second" to each
    /// attempt would use all of them up within the minute.
    #[must_use]
    pub fn no_sooner_than(self, delay: Duration) -> Self {
        self.waiting(Wait::NoSooner(delay.min(limits::MAX_RETRY_AFTER)))
    }

    fn waiting(mut self, wanted: Wait) -> Self {
        if let Kind::Retry { wait, .. } = &mut self.kind {
            *wait = wanted;
        }
        self
    }

    pub(crate) const fn lease_lost(standing: Standing) -> Self {
        Self { kind: Kind::LeaseLost(standing) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Retry { class, text, .. } | Kind::Permanent { class, text } => {
                write!(f, "{class}: {text}")
            }
            Kind::LeaseLost(_) => f.write_str("the lease is lost"),
            Kind::Uncertain(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self { kind: Kind::Uncertain(error) }
    }
}
