//! The classic faults of webhook receivers, to be switched on in builds of the tests: each must turn
//! a test red. A proof that cannot fail proves nothing.
//!
//! Without the feature `seeded-faults` no fault can be on, and the compiler removes every trace of
//! them. Only the `tests` package asks for the feature; no deployed function has it.

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident = $name:literal,)+) => {
        /// A fault that somebody has shipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[doc = $doc])+ $fault,)+
        }

        impl Fault {
            /// Every one, in the order of the data's way.
            pub const ALL: &[Self] = &[$(Self::$fault,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$fault => $name,)+
                }
            }
        }
    };
}

faults! {
    /// The signature is checked over the body parsed and written again.
    VerifyAfterParse = "verify after parse",
    /// The event is looked up, and recorded, before its signature is checked.
    DedupeBeforeVerify = "dedupe before verify",
    /// Two sources' events of one id are one.
    KeyWithoutSource = "key without the source",
    /// Each delivery is an event of its own.
    KeyFromDeliveryId = "key from a delivery id",
    /// Two events of one object are one.
    KeyFromObject = "key from the object",
    /// Look, then record: a race.
    CheckThenInsert = "check-then-insert",
    /// A retention shorter than the provider's window is taken.
    ShortRetention = "retention inside the retry window",
    /// A delivery past its record's expiry runs as if it were new.
    NoHorizon = "no horizon",
    /// A record that is open can expire.
    TtlOnOpenRecord = "TTL on an open record",
    /// A record past its expiry counts as absent, deleted or not.
    ExpiryDecides = "expiry that decides",
    /// The SDK's retry of a claim that took hold finds the claim and says duplicate.
    OwnClaimIsDuplicate = "own lost response read as a duplicate",
    /// 2xx whatever became of the claim.
    AcknowledgeBeforeDurable = "acknowledge before durable",
    /// A duplicate hears an error, and its provider tries again.
    DuplicateIsError = "duplicate is an error",
    /// A recorded event that could not be enqueued hears an error.
    EnqueueOrFail = "enqueue or fail",
    /// A refused lease is processed all the same.
    RefusalFallsThrough = "swallowed conditional failure",
    /// A lease is taken over while its holder works.
    TakeoverIgnoresLease = "takeover that ignores the lease",
    /// A lease is taken over as soon as one's own clock says so.
    TakeoverIgnoresSkew = "takeover that ignores clock skew",
    /// A closed record is leased again.
    LeaseReopensClosed = "lease of a closed record",
    /// Attempts that ended in a crash are not counted.
    CrashesNotCounted = "crashes not counted",
    /// A resumed attempt does not read what its predecessor journalled.
    JournalIgnored = "step journal ignored on resume",
    /// A step that must not be repeated is.
    PolicyIgnored = "unfinished step repeated",
    /// Each attempt calls under a key of its own.
    KeyPerAttempt = "key that changes per attempt",
    /// Effects take hold, then the record says so.
    MarkerAfterEffect = "marker after the effect",
    /// An outlived worker completes.
    CompleteWithoutFence = "complete without the fence",
    /// An outlived worker releases.
    ReleaseWithoutFence = "release without the fence",
    /// A record whose work panicked is reported as done with.
    PanicIsSuccess = "success for a panicked record",
    /// A record without a message id is reported by an empty one.
    EmptyMessageId = "record with an empty message id",
    /// Recorded, and nobody looks for what a crash left behind.
    NoSweep = "marker before the effect without a sweep",
}

#[cfg(feature = "seeded-faults")]
mod switch {
    use std::sync::OnceLock;

    use super::Fault;

    static ON: OnceLock<Fault> = OnceLock::new();

    /// Switches a fault on, for the rest of the process.
    pub fn switch_on(fault: Fault) {
        // One a process: a second one could hide the first.
        let _ = ON.set(fault);
    }

    /// Whether a fault is on.
    #[must_use]
    pub fn is_on(fault: Fault) -> bool {
        ON.get() == Some(&fault)
    }
}

#[cfg(feature = "seeded-faults")]
pub use switch::{is_on, switch_on};

/// Whether a fault is on: never.
#[cfg(not(feature = "seeded-faults"))]
#[must_use]
pub const fn is_on(_fault: Fault) -> bool {
    false
}
