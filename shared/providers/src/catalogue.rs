//! Catalogue files: read, checked, and refused with the key and the reason.
//!
//! What is refused here cannot go wrong at a delivery: a time that is checked but not signed, an id
//! that could be read from elsewhere than it was signed, a signature that would be kept on records,
//! a key that could be taken for another scheme's.

mod checks;
mod file;
mod keys;
mod places;
mod scheme;

// Not among the sources, which touch no files: it writes one.
#[cfg(test)]
#[path = "../tests/unit/schema.rs"]
mod schema;

pub(crate) use scheme::written;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    endpoint::Setting,
    fetch::KeySource,
    identify::Identity,
    reply::{Handshake, Reply},
    sample::Sample,
    select::{Lookups, Part},
    verify::Scheme,
};

/// A catalogue file, checked.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) settings: Vec<Setting>,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) lookups: Lookups,
    pub(crate) identities: Vec<Identity>,
    pub(crate) automatic: Option<Fact>,
    pub(crate) manual: Option<Fact>,
    pub(crate) timeout: Option<Fact>,
    pub(crate) handshakes: Vec<Handshake>,
    /// Where its public keys are to be had.
    pub(crate) keys: Option<KeySource>,
    /// What tells a delivery from others where its id is not signed.
    pub(crate) fingerprint: Vec<Part>,
    pub(crate) answer: Reply,
    /// What is heard by whoever's signature does not hold, where the provider is particular.
    pub(crate) rejection: Option<Reply>,
    pub(crate) success: Option<String>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) cautions: Vec<String>,
    pub(crate) volatile: Vec<String>,
    pub(crate) keep_headers: Vec<String>,
    pub(crate) attempt_header: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// A fact about a provider, and how it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The value. Zero is a documented "never"; what is not known is no fact.
    pub value: Duration,
    /// The page or the repository file it is from.
    pub page: String,
    /// How well it is established.
    pub confidence: Confidence,
    /// What a reader should know beside it.
    pub note: Option<String>,
}

/// Where what a file says is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Of what: `signature`, `id`, `answer`, …
    pub of: String,
    /// The page or the repository file.
    pub page: String,
    /// How well it is established.
    pub confidence: Confidence,
}

/// How well a fact is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The provider's own documentation says so.
    Documented,
    /// The provider's own code, or its tests, say so.
    Sdk,
    /// Somebody else says so.
    Secondary,
    /// It follows from something else.
    Inferred,
}

/// A catalogue file that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Not TOML, a key that is unknown or missing, or a value of the wrong kind.
    #[error("{file}:{line}:{column}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// The same, of one that is written within a configuration.
    #[error("{place}: {reason}")]
    Malformed {
        /// Where it is written.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Well-formed, and not to be accepted.
    #[error("{file}: {key}: {reason}")]
    Invalid {
        /// The file.
        file: String,
        /// The key, as a path.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl Catalogue {
    /// Reads and checks a file.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, CatalogueError> {
        let written: file::File =
            toml::from_str(text).map_err(|error| syntax_error(file, text, &error))?;
        Self::checked(file, written)
    }

    /// Checks what a file would say, written at `place`.
    pub(crate) fn of_value(place: &str, value: Value) -> Result<Self, CatalogueError> {
        let written = file::File::deserialize(value).map_err(|error| {
            let reason = without_value(&error.to_string());
            CatalogueError::Malformed { place: place.to_owned(), reason }
        })?;
        Self::checked(place, written)
    }

    fn checked(file: &str, written: file::File) -> Result<Self, CatalogueError> {
        checks::checked(written).map_err(|checks::Refusal { key, reason }| {
            CatalogueError::Invalid { file: file.to_owned(), key, reason }
        })
    }
}

fn syntax_error(file: &str, text: &str, error: &toml::de::Error) -> CatalogueError {
    let at = error.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    CatalogueError::Syntax {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        reason: without_value(error.message()),
    }
}

/// A message of serde without the string that it quotes where something else is wanted: that may be
/// a secret.
#[must_use]
pub fn without_value(message: &str) -> String {
    let quoted = message.find("string \"").zip(message.rfind("\", expected"));
    match quoted {
        Some((from, to)) if from < to => {
            format!("{}string{}", &message[..from], &message[to + 1..])
        }
        _ => message.to_owned(),
    }
}
