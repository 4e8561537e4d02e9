//! AWS clients: TLS on ring, time limits below the lease, few retries.
//!
//! ring needs no entropy warm-up: the first call over TLS costs some 60 ms of CPU less than with
//! the SDK's default provider, which a small function would feel on every start.

use std::time::Duration;

use aws_config::{
    AppName, BehaviorVersion, SdkConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_smithy_http_client::{
    Builder,
    tls::{self, rustls_provider::CryptoMode},
};

use crate::environment::{names, optional};

/// How patient a function is with AWS.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For one attempt.
    pub attempt: Duration,
    /// For all attempts of a call.
    pub operation: Duration,
    /// How many attempts.
    pub attempts: u32,
    /// The longest wait before the second attempt; it doubles from there, with full jitter.
    pub backoff: Duration,
}

impl Patience {
    /// Somebody waits at the other end: the least patient known provider hangs up after three
    /// seconds, and an honest 503 in time is better than a timeout.
    pub const RECEIVER: Self = Self {
        connect: Duration::from_millis(500),
        attempt: Duration::from_millis(1000),
        operation: Duration::from_millis(1400),
        attempts: 3,
        // The SDK's own, a second, would leave no time for a second attempt, let alone a third.
        backoff: Duration::from_millis(100),
    };
    /// Nobody waits, and the lease is long.
    pub const WORKER: Self = Self {
        connect: Duration::from_secs(1),
        attempt: Duration::from_secs(3),
        operation: Duration::from_secs(10),
        attempts: 5,
        backoff: Duration::from_secs(1),
    };
}

impl Patience {
    /// As the SDK's time limits.
    #[must_use]
    pub fn timeouts(self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connect)
            .operation_attempt_timeout(self.attempt)
            .operation_timeout(self.operation)
            .build()
    }

    /// As the SDK's retries.
    #[must_use]
    pub fn retries(self) -> RetryConfig {
        RetryConfig::standard().with_max_attempts(self.attempts).with_initial_backoff(self.backoff)
    }
}

/// The configuration of this environment's clients.
pub async fn sdk_config(patience: Patience) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .timeout_config(patience.timeouts())
        .retry_config(patience.retries())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    // Plain HTTP towards emulators that need no TLS: reading root certificates is most of a start.
    let http = Builder::new();
    loader = if endpoints_are_plain() {
        loader.http_client(http.build_http())
    } else {
        loader.http_client(http.tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https())
    };
    if let Ok(name) = AppName::new("hookonce") {
        loader = loader.app_name(name);
    }
    loader.load().await
}

fn endpoints_are_plain() -> bool {
    let endpoints =
        [names::ENDPOINT, names::ENDPOINT_DYNAMODB, names::ENDPOINT_SQS, names::ENDPOINT_S3];
    let mut set = endpoints.into_iter().filter_map(optional).peekable();
    set.peek().is_some() && set.all(|url| url.starts_with("http://"))
}

/// Makes ring the provider of TLS for clients that ask the process for one.
pub fn install_tls_provider() {
    // Fails only if there is one already, which then serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
