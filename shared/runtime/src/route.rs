//! Which destination an event of a source goes to.

use std::time::Duration;

use url::Url;

use crate::secrets::SecretRef;

/// Event types that a route takes: `payment_intent.*`, `charge.refunded` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypePattern {
    /// Any, also none.
    Any,
    /// Those that begin so.
    Prefix(String),
    /// This one.
    Exact(String),
}

impl TypePattern {
    /// # Errors
    /// If there is a `*` elsewhere than at the end, or nothing at all.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        match text.strip_suffix('*') {
            Some("") => Ok(Self::Any),
            Some(prefix) if !prefix.contains('*') => Ok(Self::Prefix(prefix.to_owned())),
            None if !text.is_empty() && !text.contains('*') => Ok(Self::Exact(text.to_owned())),
            _ => Err(InvalidPattern(text.to_owned())),
        }
    }

    fn matches(&self, event_type: Option<&str>) -> bool {
        match (self, event_type) {
            (Self::Any, _) => true,
            (Self::Prefix(prefix), Some(event_type)) => event_type.starts_with(prefix),
            (Self::Exact(exact), Some(event_type)) => exact == event_type,
            (Self::Prefix(_) | Self::Exact(_), None) => false,
        }
    }

    /// Whether some event type matches both.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Exact(exact), pattern) | (pattern, Self::Exact(exact)) => {
                pattern.matches(Some(exact))
            }
            (Self::Prefix(one), Self::Prefix(two)) => {
                one.starts_with(two.as_str()) || two.starts_with(one.as_str())
            }
        }
    }
}

/// A pattern that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no event type pattern: a type, or a prefix that ends with its only `*`")]
pub struct InvalidPattern(String);

/// One route of a source.
#[derive(Clone, Debug)]
pub struct Route {
    /// Event types it takes.
    pub types: Vec<TypePattern>,
    /// Where they go.
    pub destination: Destination,
}

impl Route {
    /// Whether it takes events of this type.
    #[must_use]
    pub fn takes(&self, event_type: Option<&str>) -> bool {
        self.types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// Whether some event type would be taken by both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.types.iter().any(|one| other.types.iter().any(|two| one.overlaps(two)))
    }
}

/// Where an event goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A handler built into the worker, by name.
    Handler(String),
    /// An HTTP endpoint.
    Http(HttpDestination),
}

/// An HTTP endpoint.
#[derive(Clone, Debug)]
pub struct HttpDestination {
    /// Where.
    pub url: Url,
    /// What deliveries to it are signed with, after Standard Webhooks.
    pub signing_secret: Option<SecretRef>,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// Status codes that no retry will change, beside 410.
    pub permanent: Vec<u16>,
}

impl HttpDestination {
    /// The address for people, without what may be a secret in it: user, password and query.
    #[must_use]
    pub fn place(&self) -> String {
        place(&self.url)
    }
}

/// An address without user, password and query.
#[must_use]
pub fn place(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> TypePattern {
        TypePattern::parse(text).expect("valid")
    }

    #[test]
    fn a_prefix_takes_what_begins_so() {
        assert!(pattern("payment_intent.*").matches(Some("payment_intent.succeeded")));
        assert!(!pattern("payment_intent.*").matches(Some("charge.refunded")));
        assert!(!pattern("payment_intent.*").matches(None));
        assert!(pattern("*").matches(None));
    }

    #[test]
    fn patterns_that_share_a_type_overlap() {
        for (one, two, expected) in [
            ("a.*", "a.b", true),
            ("a.*", "a.b.*", true),
            ("a.b", "a.b", true),
            ("*", "x", true),
            ("a.*", "b.*", false),
            ("a.b", "a.c", false),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(two)), expected, "{one} {two}");
            assert_eq!(pattern(two).overlaps(&pattern(one)), expected, "{two} {one}");
        }
    }

    #[test]
    fn a_star_elsewhere_is_refused() {
        for text in ["", "a*b", "*a", "**"] {
            assert!(TypePattern::parse(text).is_err(), "{text}");
        }
    }
}
