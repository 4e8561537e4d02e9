//! What a source is configured with besides its secrets: where the provider sends to, and the
//! values that its signatures name.

use std::collections::BTreeMap;

/// One endpoint, as its provider knows it. See [`crate::Provider::at`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    url: Option<String>,
    settings: BTreeMap<String, String>,
}

/// A setting that the provider needs, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub what: String,
    /// The values that it can have; any where there are none.
    pub one_of: Vec<String>,
    /// The source may do without it.
    pub optional: bool,
}

impl Endpoint {
    /// The endpoint at `url`, exactly as the provider was given it. Only its query is read from the
    /// deliveries.
    #[must_use]
    pub fn new(url: Option<impl Into<String>>) -> Self {
        Self { url: url.map(Into::into), settings: BTreeMap::new() }
    }

    /// With a value for a setting of the provider.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The query that the provider was given with the URL.
    pub(crate) fn query(&self) -> String {
        let query = self.url().and_then(|url| url.split_once('?'));
        query.map(|(_, query)| query.to_owned()).unwrap_or_default()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}
