//! The HTTP destination, for teams whose code is elsewhere: the provider's body, unchanged, signed
//! anew after Standard Webhooks and with an idempotency key that never changes.
//!
//! 2xx is done. 410 parks at once, and so do the codes a source names. Everything else is tried
//! again until the attempts are used up: a wrong deployment answers 401 or 404 for an hour, and
//! that must not park a day's events. Redirects are not followed: they would carry a signed body to
//! a place nobody configured.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use domain::effects::StepPolicy;
use futures::future::BoxFuture;
use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use ring::hmac;
use runtime::{clock::Clock, route::HttpDestination, secrets::SecretStore};
use tokio::sync::OnceCell;

use super::Handler;
use crate::{
    effects::{Effects, Event},
    failure::Failure,
};

/// Delivers events to one HTTP endpoint.
pub struct HttpHandler {
    destination: HttpDestination,
    client: Client,
    store: SecretStore,
    key: OnceCell<Option<hmac::Key>>,
}

impl fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHandler")
            .field("place", &self.destination.place())
            .finish_non_exhaustive()
    }
}

impl HttpHandler {
    /// A handler for `destination`.
    #[must_use]
    pub fn new(destination: HttpDestination, client: Client, store: SecretStore) -> Self {
        Self { destination, client, store, key: OnceCell::new() }
    }

    /// Fetches the signing secret ahead of the first event.
    pub(super) async fn warm(&self) {
        if let Err(failure) = self.signing_key().await {
            tracing::error!(error = %failure, place = self.destination.place(), "cannot sign");
        }
    }

    async fn signing_key(&self) -> Result<Option<&hmac::Key>, Failure> {
        let key = self.key.get_or_try_init(|| async {
            let Some(reference) = &self.destination.signing_secret else {
                return Ok::<_, Failure>(None);
            };
            let secret = self
                .store
                .fetch(reference)
                .await
                .map_err(|error| Failure::retry("no_signing_secret", error))?;
            let bytes = decode_secret(secret.expose()).ok_or_else(|| {
                let text = format!("secret {reference}: not base64 after `whsec_`, or empty");
                Failure::retry("bad_signing_secret", text)
            })?;
            Ok(Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
        });
        Ok(key.await?.as_ref())
    }

    fn request(
        &self,
        event: &Event,
        idempotency_key: &str,
        key: Option<&hmac::Key>,
    ) -> RequestBuilder {
        let id = event.key.pk();
        let timestamp = (Clock::default().now().millis() / 1000).to_string();
        let content_type = event.content_type.as_deref().unwrap_or("application/json");
        let mut request = self
            .client
            .post(self.destination.url.clone())
            .timeout(self.destination.timeout)
            .header(CONTENT_TYPE, content_type)
            .header("webhook-id", header_text(&id))
            .header("webhook-timestamp", &timestamp)
            .header("idempotency-key", idempotency_key)
            .header("hookonce-source", event.key.source().as_str())
            .header("hookonce-event-id", header_text(event.key.id().as_str()))
            .header("hookonce-attempt", event.attempt.to_string());
        if let Some(event_type) = &event.event_type {
            request = request.header("hookonce-event-type", header_text(event_type));
        }
        if let Some(key) = key {
            let signature = sign(key, &header_text(&id), &timestamp, &event.payload);
            request = request.header("webhook-signature", signature);
        }
        request.body(event.payload.clone())
    }

    async fn deliver(&self, event: &Event, idempotency_key: &str) -> Result<u16, Failure> {
        let key = self.signing_key().await?;
        let sent = self.request(event, idempotency_key, key).send().await;
        let response = sent.map_err(|error| transport_failure(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(status.as_u16());
        }
        let text = format!("the destination answered {status}");
        if status == StatusCode::GONE || self.destination.permanent.contains(&status.as_u16()) {
            return Err(Failure::permanent("destination_refused", text));
        }
        let failure = Failure::retry("destination_failed", text);
        Err(match retry_after(&response) {
            Some(delay) => failure.no_sooner_than(delay),
            None => failure,
        })
    }
}

impl Handler for HttpHandler {
    fn handle<'a>(
        &'a self,
        event: &'a Event,
        effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let deliver = async |key: String| self.deliver(event, &key).await;
            effects.step("deliver", StepPolicy::Repeat, deliver).await.map(drop)
        })
    }
}

/// `v1,` and the signature over `{id}.{timestamp}.{body}`.
fn sign(key: &hmac::Key, id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    format!("v1,{}", STANDARD.encode(context.sign()))
}

/// The bytes of a `whsec_…` secret; senders differ in whether they pad.
fn decode_secret(secret: &str) -> Option<Vec<u8>> {
    let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
    let bytes = FORGIVING.decode(encoded).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

/// A header takes visible ASCII; of an id that has other characters each becomes its escape, and
/// so does the escape's own sign: two ids stay two.
fn header_text(text: &str) -> String {
    let escaped = |c: char| match c {
        '\\' => c.escape_unicode().to_string(),
        '!'..='~' => c.to_string(),
        _ => c.escape_unicode().to_string(),
    };
    text.chars().map(escaped).collect()
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let now = u64::try_from(Clock::default().now().millis()).ok()?;
    Some(at.saturating_sub(Duration::from_millis(now)))
}

pub(super) fn transport_failure(error: &reqwest::Error) -> Failure {
    Failure::retry("destination_unreachable", runtime::http::problem(error))
}

const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_with_and_without_padding() {
        assert_eq!(decode_secret("whsec_aGk="), Some(b"hi".to_vec()));
        assert_eq!(decode_secret("whsec_aGk"), Some(b"hi".to_vec()));
        assert_eq!(decode_secret("whsec_"), None);
        assert_eq!(decode_secret("whsec_%%"), None);
    }

    #[test]
    fn header_text_is_visible_ascii() {
        assert_eq!(header_text("stripe#evt_1"), "stripe#evt_1");
        assert_eq!(header_text("ü\n"), "\\u{fc}\\u{a}");
        assert_ne!(header_text("ü"), header_text("\\u{fc}"));
    }
}
