//! Providers as data: one catalogue file says how a provider signs, what names its events, for how
//! long it sends them again, and what it wants to hear.
//!
//! Decided here: whether a delivery is authentic ([`Provider::verify`]), whether it is a handshake
//! ([`Provider::handshake`]) and which events it carries ([`Provider::identify`]). The types hold
//! the order: only a [`VerifiedDelivery`] can be identified, and only verification makes one.
//!
//! Assumed: headers and body are as they came in, byte for byte.
//!
//! Absent on purpose: async, the network, SDK types, the clock, the environment and randomness (but
//! for signing samples by ECDSA and RSA, and for test keys); `now` is an argument. No error and no
//! `Debug` holds a payload, a signature or a secret.

mod catalogue;
mod describe;
mod endpoint;
mod fetch;
mod form;
mod identify;
mod json;
mod keys;
mod payload;
mod provider;
mod reply;
mod sample;
mod secret;
mod select;
mod unit;
mod verify;

pub use catalogue::{CatalogueError, Confidence, Fact, Origin, without_value};
pub use describe::{Description, IdentityInWords, SchemeInWords, Trap};
pub use endpoint::{Endpoint, Setting};
pub use fetch::{KeyRequest, UnreadableKeys};
pub use identify::Unidentifiable;
pub use provider::Provider;
pub use reply::{Confirmation, Greeting, Reply};
pub use sample::{CannotSign, NoSample, NoTestKey, SampleRequest, Unsigned};
pub use secret::{InvalidSecret, Key, Secret};
pub use verify::{Coverage, Rejected, Rejection, VerifiedDelivery};
