//! One HTTP request, before anything of it is believed.

use std::fmt;

/// A delivery as it came in. Nothing in it is trusted until `providers` has verified it.
#[derive(Clone)]
pub struct Delivery {
    /// Method, upper case.
    pub method: String,
    /// Headers.
    pub headers: Headers,
    /// Raw query string, without `?`.
    pub query: String,
    /// The exact bytes of the body.
    pub body: Vec<u8>,
}

impl fmt::Debug for Delivery {
    /// Without headers and body: both may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Headers by lower-case name, in the order they came.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of `name`, which is lower case. Of a header sent twice, the first: what a proxy
    /// appends cannot replace what was signed for.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All headers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Size of all names and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let lowered = headers
            .into_iter()
            .map(|(name, value)| (name.as_ref().to_ascii_lowercase(), value.into()));
        Self(lowered.collect())
    }
}

impl fmt::Debug for Headers {
    /// Names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_in_any_case_and_the_first_of_two_counts() {
        let headers: Headers = [("Webhook-ID", "a"), ("webhook-id", "b")].into_iter().collect();
        assert_eq!(headers.get("webhook-id"), Some("a"));
    }

    #[test]
    fn debug_shows_no_values() {
        let headers: Headers = [("authorization", "hunter2")].into_iter().collect();
        let delivery = Delivery {
            method: "POST".into(),
            headers,
            query: String::new(),
            body: b"hunter2".to_vec(),
        };
        assert!(!format!("{delivery:?} {:?}", delivery.headers).contains("hunter2"));
    }
}
