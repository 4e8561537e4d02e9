//! One provider: what its catalogue file says, as operations.

use std::{fmt, sync::Arc, time::Duration};

use domain::{
    delivery::{Delivery, Headers},
    event::{Event, Source},
    retention::RetryWindows,
    time::Timestamp,
};

use crate::{
    CannotSign, CatalogueError, Fact, InvalidSecret, Key, NoSample, Rejected, Rejection, Reply,
    SampleRequest, Secret, Unidentifiable, Unsigned, VerifiedDelivery, catalogue::Catalogue,
    identify, payload, sample, select::Place, verify,
};

/// One provider. Cheap to clone.
#[derive(Clone)]
pub struct Provider(Arc<Catalogue>);

impl Provider {
    /// The provider of this name in the built-in catalogue. Its file is parsed here and now, so
    /// that only what a configuration names costs start-up.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        // A test parses every built-in file: of a known name there is always a provider.
        builtin_text(name).and_then(|text| Self::parse(&format!("{name}.toml"), text).ok())
    }

    /// Names in the built-in catalogue, sorted.
    #[must_use]
    pub const fn builtin_names() -> &'static [&'static str] {
        BUILTIN_NAMES
    }

    /// Reads a provider file. `file` is its name for errors.
    ///
    /// # Errors
    /// If it is no TOML, has unknown keys, or describes what could not be safe.
    pub fn parse(file: &str, text: &str) -> Result<Self, CatalogueError> {
        Catalogue::parse(file, text).map(|catalogue| Self(Arc::new(catalogue)))
    }

    /// Catalogue name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Name for people.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// For how long the provider may send an event again.
    #[must_use]
    pub fn windows(&self) -> RetryWindows {
        let value = |fact: Option<&Fact>| fact.map(|fact| fact.value);
        RetryWindows {
            automatic: value(self.automatic_window()),
            manual: value(self.manual_window()),
        }
    }

    /// For how long the provider retries by itself.
    #[must_use]
    pub fn automatic_window(&self) -> Option<&Fact> {
        self.0.automatic.as_ref()
    }

    /// For how long a person can have an event sent again.
    #[must_use]
    pub fn manual_window(&self) -> Option<&Fact> {
        self.0.manual.as_ref()
    }

    /// How long the provider waits for an answer.
    #[must_use]
    pub fn timeout(&self) -> Option<&Fact> {
        self.0.timeout.as_ref()
    }

    /// What an operator should know.
    #[must_use]
    pub fn cautions(&self) -> &[String] {
        &self.0.cautions
    }

    /// Whether the event id lies within what is signed. If not, a delivery that somebody recorded
    /// can be sent again as another event, for as long as its signed time allows.
    #[must_use]
    pub fn signs_event_id(&self) -> bool {
        let mut selectors = self.0.identities.iter().flat_map(|i| &i.id).flat_map(|part| &part.any);
        !selectors.any(|selector| matches!(selector.place, Place::Header(_)))
    }

    /// Reads a secret, once at start.
    ///
    /// # Errors
    /// If it is empty, surrounded by white space, or nothing that the provider hands out.
    pub fn key(&self, secret: &Secret) -> Result<Key, InvalidSecret> {
        Key::read(self.name(), self.0.schemes.iter().map(|scheme| &scheme.key), secret)
    }

    /// Verifies a delivery with any of `keys`. `tolerance` replaces the provider's own.
    ///
    /// # Errors
    /// If it is not authentic, or its signed time is out of tolerance.
    pub fn verify(
        &self,
        delivery: Delivery,
        keys: &[Key],
        now: Timestamp,
        tolerance: Option<Duration>,
    ) -> Result<VerifiedDelivery, Rejection> {
        self.try_verify(delivery, keys, now, tolerance).map_err(|rejected| rejected.rejection)
    }

    /// As [`Provider::verify`], and a rejected delivery comes back, for one more try with fresh
    /// secrets.
    ///
    /// # Errors
    /// As [`Provider::verify`].
    pub fn try_verify(
        &self,
        delivery: Delivery,
        keys: &[Key],
        now: Timestamp,
        tolerance: Option<Duration>,
    ) -> Result<VerifiedDelivery, Rejected> {
        verify::verify(&self.0.schemes, delivery, keys, now, tolerance)
    }

    /// The answer to a handshake, if `delivery` is one.
    #[must_use]
    pub fn handshake(&self, delivery: &VerifiedDelivery) -> Option<Reply> {
        if self.0.handshakes.is_empty() {
            return None;
        }
        let body = self.0.lookups.open(delivery);
        let reading = self.0.lookups.read(delivery, &body);
        self.0.handshakes.iter().find_map(|handshake| handshake.answer(&reading))
    }

    /// The events of a delivery, which goes into them: the payload is not copied.
    ///
    /// # Errors
    /// If there is no usable event id where the catalogue says.
    pub fn identify(
        &self,
        delivery: VerifiedDelivery,
        source: &Source,
    ) -> Result<Vec<Event>, Unidentifiable> {
        let Catalogue { name, lookups, identities, keep_headers, .. } = &*self.0;
        identify::identify(name, lookups, identities, keep_headers, delivery, source)
    }

    /// What the provider takes for success.
    #[must_use]
    pub fn answer(&self) -> Reply {
        self.0.answer.clone()
    }

    /// Whether two payloads under one key say the same, apart from what the provider changes
    /// between attempts.
    #[must_use]
    pub fn same_payload(&self, first: &[u8], second: &[u8]) -> bool {
        payload::same(&self.0.volatile, first, second)
    }

    /// The provider's name for this attempt, if it has one. For logs only.
    #[must_use]
    pub fn attempt_id<'a>(&self, headers: &'a Headers) -> Option<&'a str> {
        headers.get(self.0.attempt_header.as_deref()?)
    }

    /// A sample event of our own making.
    ///
    /// # Errors
    /// If there is none of this type, or the id is not visible ASCII.
    pub fn sample(&self, request: &SampleRequest<'_>) -> Result<Unsigned, NoSample> {
        sample::sample(self.name(), &self.0.samples, request)
    }

    /// Event types there are samples of, the default one first.
    pub fn sample_types(&self) -> impl Iterator<Item = &str> {
        self.0.samples.iter().map(|sample| sample.default_type.as_str())
    }

    /// Signs as the provider would, by its first scheme that `key` is for: a POST with the
    /// signature headers set.
    ///
    /// # Errors
    /// If the key is a public key or another provider's, or a signed header is missing.
    pub fn sign(
        &self,
        key: &Key,
        unsigned: Unsigned,
        now: Timestamp,
    ) -> Result<Delivery, CannotSign> {
        let usable = |(at, scheme)| Some((scheme, key.material(at)?));
        let first = self.0.schemes.iter().enumerate().find_map(usable);
        let Some((scheme, material)) = first else {
            return Err(CannotSign::WrongKey { provider: self.name().to_owned() });
        };
        let Unsigned { headers, body } = unsigned;
        let headers = scheme.sign(material, &headers.into_iter().collect(), &body, now)?;
        Ok(Delivery { method: "POST".to_owned(), headers, query: String::new(), body })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.name()).finish()
    }
}

/// Embeds the catalogue.
macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        const BUILTIN_NAMES: &[&str] = &[$($name),*];

        fn builtin_text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../catalogue/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

builtin!["github", "shopify", "slack", "standard-webhooks", "stripe", "svix"];
