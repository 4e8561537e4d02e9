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
    /// By secret reference; those that could never be had are missing.
    by_reference: Vec<Option<Key>>,
    /// The keys there are.
    keys: Arc<[Key]>,
    fetched_at: Timestamp,
}

impl KeyRings {
    /// Fetches every source's secrets, all at once.
    pub(crate) async fn fetch(config: &Config, store: SecretStore, now: Timestamp) -> Self {
        let rings = join_all(config.sources.iter().map(async |(source, config)| {
            let fetched = fetch_keys(source, config, &store).await;
            (source.clone(), RwLock::new(Ring::new(fetched, now)))
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
        let may_change = !ring.is_complete() || config.secrets.iter().any(|s| s.is_remote());
        let wait = if ring.is_complete() { REFRESH_INTERVAL } else { MISSING_INTERVAL };
        if !may_change || now.since(ring.fetched_at) < wait {
            return None;
        }
        // Taken before the call: of many deliveries at once, one fetches.
        self.put(source, Ring { fetched_at: now, ..ring.clone() });
        let fetched = fetch_keys(source, config, &self.store).await;
        // A store that is down for a moment takes no key away: whoever sends bad signatures
        // meanwhile would shut out good ones.
        let kept = fetched.into_iter().zip(ring.by_reference).map(|(new, old)| new.or(old));
        let ring = Ring::new(kept.collect(), now);
        let keys = Arc::clone(&ring.keys);
        self.put(source, ring);
        Some(keys)
    }

    /// Whether every secret of a source could be had at some time.
    pub(crate) fn is_complete(&self, source: &Source) -> bool {
        self.read(source).is_some_and(|ring| ring.is_complete())
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

impl Ring {
    fn new(by_reference: Vec<Option<Key>>, fetched_at: Timestamp) -> Self {
        let keys = by_reference.iter().flatten().cloned().collect();
        Self { by_reference, keys, fetched_at }
    }

    fn is_complete(&self) -> bool {
        self.by_reference.iter().all(Option::is_some)
    }
}

/// The keys of a source's secret references. Those that cannot be had are logged: during a rotation
/// one of two may well be missing.
async fn fetch_keys(
    source: &Source,
    config: &SourceConfig,
    store: &SecretStore,
) -> Vec<Option<Key>> {
    let fetched = join_all(config.secrets.iter().map(|reference| store.fetch(reference))).await;
    let keys = config.secrets.iter().zip(fetched).map(|(reference, secret)| {
        let key = secret.map_err(|error| error.to_string()).and_then(|secret| {
            config.provider.key(&secret).map_err(|e| format!("secret {reference}: {e}"))
        });
        key.map_err(|error| tracing::error!(%source, error, "a secret cannot be used")).ok()
    });
    keys.collect()
}

const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// While a secret could not be had at all, deliveries that may well be good are refused.
const MISSING_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use providers::Secret;
    use runtime::config::{Format, Trust};

    use super::*;

    #[tokio::test]
    async fn a_secret_that_cannot_be_fetched_again_keeps_its_key() {
        let text = r#"{"sources":{"s":{"provider":"stripe","secrets":["ssm:/a"],
            "deliver":{"handler":"h"}}}}"#;
        let config = Config::parse("test", text, Format::Json, None, Trust::Local).expect("valid");
        let (source, of_source) = config.sources.first_key_value().expect("a source");
        let key = of_source.provider.key(&Secret::new("whsec_a")).expect("a key");
        let start = Timestamp::from_millis(0);
        // Without AWS no parameter can be had.
        let rings = KeyRings::fetch(&config, SecretStore::new(None), start).await;
        assert!(rings.get(source).is_empty());
        rings.put(source, Ring::new(vec![Some(key)], start));
        let later = start.plus(REFRESH_INTERVAL);
        let fresh = rings.refresh(source, of_source, later).await;
        assert_eq!(fresh.map(|keys| keys.len()), Some(1));
        assert_eq!(rings.get(source).len(), 1);
        assert!(rings.refresh(source, of_source, later).await.is_none(), "a moment ago");
        let later = later.plus(REFRESH_INTERVAL);
        let again = rings.refresh(source, of_source, later).await;
        assert_eq!(again.map(|keys| keys.len()), Some(1), "the ring does not grow");
    }
}
