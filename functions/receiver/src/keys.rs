//! The keys of each source, fetched at start, and once more when a signature fails: a secret may
//! have been rotated while the function lived.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
    time::Duration,
};

use domain::{event::Source, time::Timestamp};
use futures::future::join_all;
use providers::Key;
use runtime::{
    config::{Config, SourceConfig},
    secrets::SecretStore,
};

/// Keys by source.
#[derive(Debug)]
pub(crate) struct KeyRings {
    store: SecretStore,
    rings: BTreeMap<Source, RwLock<Ring>>,
}

#[derive(Clone, Debug)]
struct Ring {
    keys: Arc<[Key]>,
    fetched_at: Timestamp,
}

impl KeyRings {
    /// Fetches every source's secrets, all at once.
    pub(crate) async fn fetch(config: &Config, store: SecretStore, now: Timestamp) -> Self {
        let rings = join_all(config.sources.iter().map(async |(source, config)| {
            let keys = fetch_keys(source, config, &store).await;
            (source.clone(), RwLock::new(Ring { keys, fetched_at: now }))
        }))
        .await;
        Self { store, rings: rings.into_iter().collect() }
    }

    /// The keys of a source. None of its secrets could be had if there are none.
    pub(crate) fn get(&self, source: &Source) -> Arc<[Key]> {
        self.read(source).map_or_else(|| Arc::from([]), |ring| ring.keys)
    }

    /// Fetches a source's secrets again, unless that was done a moment ago: whoever sends bad
    /// signatures must not drive calls to the secret store. `None` if there is nothing new.
    pub(crate) async fn refresh(
        &self,
        source: &Source,
        config: &SourceConfig,
        now: Timestamp,
    ) -> Option<Arc<[Key]>> {
        let ring = self.read(source)?;
        let may_change = ring.keys.is_empty() || config.secrets.iter().any(|s| s.is_remote());
        if !may_change || now.since(ring.fetched_at) < REFRESH_INTERVAL {
            return None;
        }
        // Taken before the call: of many deliveries at once, one fetches.
        self.put(source, Ring { fetched_at: now, ..ring });
        let keys = fetch_keys(source, config, &self.store).await;
        self.put(source, Ring { keys: Arc::clone(&keys), fetched_at: now });
        Some(keys)
    }

    fn read(&self, source: &Source) -> Option<Ring> {
        let ring = self.rings.get(source)?.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(ring.clone())
    }

    fn put(&self, source: &Source, ring: Ring) {
        if let Some(slot) = self.rings.get(source) {
            *slot.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = ring;
        }
    }
}

/// The keys of those secrets that can be had; the others are logged. During a rotation one of two
/// may well be missing.
async fn fetch_keys(source: &Source, config: &SourceConfig, store: &SecretStore) -> Arc<[Key]> {
    let fetched = join_all(config.secrets.iter().map(|reference| store.fetch(reference))).await;
    config
        .secrets
        .iter()
        .zip(fetched)
        .filter_map(|(reference, secret)| {
            let key = secret.map_err(|error| error.to_string()).and_then(|secret| {
                config.provider.key(&secret).map_err(|e| format!("secret {reference}: {e}"))
            });
            key.map_err(|error| tracing::error!(%source, error, "a secret cannot be used")).ok()
        })
        .collect()
}

const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
