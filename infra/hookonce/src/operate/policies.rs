//! What each source's configuration says about its records, for who replays and discards them.

use std::path::Path;

use domain::{backoff::Backoff, limits, record::Record, retention::Retention, transition::Policy};
use providers::Provider;
use runtime::{
    config::{Config, ConfigError, Trust},
    environment::{self, names},
    secrets::SecretStore,
};

/// The policies of a configuration, and for the sources that it does not know the catalogue's.
#[derive(Debug)]
pub struct Policies(Option<Config>);

impl Policies {
    /// Of the configuration in `file`; else of the one that `HOOKONCE_CONFIG` names, else of
    /// `hookonce.toml` if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or is refused.
    pub async fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let beside = Path::new(BESIDE);
        let config = match file {
            Some(file) => Some(Config::read(file, Trust::Local)?),
            None if environment::optional(names::CONFIG).is_some() => {
                Some(Config::load(&SecretStore::new(None)).await?)
            }
            None if beside.is_file() => Some(Config::read(beside, Trust::Local)?),
            None => None,
        };
        Ok(Self(config))
    }

    /// How far the clocks of two machines may differ.
    #[must_use]
    pub fn clock_skew(&self) -> std::time::Duration {
        self.0.as_ref().map_or(limits::CLOCK_SKEW, |config| config.clock_skew)
    }

    /// The policy of a record's source. Where no configuration knows it, retention is what its
    /// provider's windows demand, and attempts are the default.
    ///
    /// # Errors
    /// If neither knows: a retention that is made up could reopen the door to a duplicate.
    pub fn of(&self, record: &Record) -> Result<Policy, UnknownPolicy> {
        let configured = self.0.as_ref().and_then(|config| config.sources.get(record.key.source()));
        if let Some(source) = configured {
            return Ok(source.policy);
        }
        let provider = Provider::builtin(&record.provider);
        let retention = provider.and_then(|known| Retention::new(None, &known.windows()).ok());
        let unknown = || UnknownPolicy {
            name: record.key.source().to_string(),
            provider: record.provider.clone(),
        };
        Ok(Policy {
            retention: retention.ok_or_else(unknown)?,
            attempt_limit: limits::DEFAULT_ATTEMPT_LIMIT,
            backoff: Backoff::default(),
            drop_payload_when_done: false,
        })
    }
}

/// A source of which nobody says how long its records are kept.
#[derive(Debug, thiserror::Error)]
#[error(
    "source `{name}` is in no configuration and its provider `{provider}` not in the catalogue, \
     so that nobody knows how long its records are kept; give --config"
)]
pub struct UnknownPolicy {
    name: String,
    provider: String,
}

const BESIDE: &str = "hookonce.toml";
