//! The HTTP client towards all that is not AWS.

use std::time::Duration;

use reqwest::{ClientBuilder, redirect::Policy};

/// What every client has: no redirects, as they lead where nobody configured, and a bound on
/// connecting. The process needs a provider of TLS: [`crate::aws::install_tls_provider`].
pub fn client() -> ClientBuilder {
    ClientBuilder::new()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("hookonce/", env!("CARGO_PKG_VERSION")))
}

/// In words, and without the address: its query may hold a token.
#[must_use]
pub fn problem(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the exchange broke off"
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
