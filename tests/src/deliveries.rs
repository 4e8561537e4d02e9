//! Deliveries of any provider, signed as that provider does, and the events they come in.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{delivery::Delivery, time::Timestamp};
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use providers::{Provider, SampleRequest, Secret, Unsigned};
use receiver::{Answer, Receiver};
use runtime::clock::Clock;

use crate::world::{headers_of, occurred_at, raw_event};

/// A delivery of this body and these headers, signed at `now`.
#[must_use]
pub fn signed_at(
    provider: &str,
    secret: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    now: Timestamp,
) -> Delivery {
    let provider = Provider::builtin(provider).expect("in the catalogue");
    let key = provider.key(&Secret::new(secret)).expect("a key");
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let unsigned = Unsigned { headers: headers.collect(), body: body.to_vec() };
    provider.sign(&key, unsigned, now).expect("signed")
}

/// As [`signed_at`], now.
#[must_use]
pub fn signed(provider: &str, secret: &str, headers: &[(&str, &str)], body: &[u8]) -> Delivery {
    signed_at(provider, secret, headers, body, Clock::default().now())
}

/// A provider's first sample, signed now.
#[must_use]
pub fn sample(provider: &str, secret: &str, id: &str) -> Delivery {
    let known = Provider::builtin(provider).expect("in the catalogue");
    let request = SampleRequest { event_type: None, id, now: occurred_at() };
    let Unsigned { headers, body } = known.sample(&request).expect("a sample");
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    signed(provider, secret, &headers, &body)
}

/// A delivery as an event whose body is base64, as Lambda hands over what it does not know as text.
#[must_use]
pub fn base64_event(path: &str, delivery: &Delivery) -> ApiGatewayV2httpRequest {
    let body = STANDARD.encode(&delivery.body);
    raw_event(path, &delivery.method, &headers_of(delivery), &body, true)
}

/// Delivers to any source, any bytes.
pub async fn deliver_to(receiver: &Receiver, source: &str, delivery: &Delivery) -> Answer {
    receiver.receive(base64_event(&format!("/webhooks/{source}"), delivery)).await
}

/// A header of an answer.
#[must_use]
pub fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let found = answer.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}
