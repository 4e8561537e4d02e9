//! Between Lambda's HTTP events and a delivery: API Gateway's HTTP API (payload 2.0) and function
//! URLs, which share one shape.
//!
//! The typed event is taken apart here rather than by `lambda_http`'s request conversion, which
//! panics on malformed base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    delivery::{Delivery, Headers},
    limits,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use lambda_http::{
    Body,
    aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse},
};
use providers::Reply;

use crate::refusal::Refusal;

/// The name of the source in a path `…/webhooks/{source}`. What stands before is a stage's name or
/// a mount point.
#[must_use]
pub fn source_of(path: &str) -> Option<&str> {
    let (before, source) = path.strip_suffix('/').unwrap_or(path).rsplit_once('/')?;
    before.ends_with("/webhooks").then_some(source)
}

/// The delivery in an event. Its method is still to be looked at: a handshake may be no POST.
///
/// # Errors
/// If the body or the headers cannot be taken.
pub fn delivery_of(event: ApiGatewayV2httpRequest) -> Result<Delivery, Refusal> {
    let method = event.request_context.http.method.as_str().to_owned();
    let headers = headers_of(&event.headers);
    if headers.bytes() > limits::MAX_HEADER_BYTES {
        return Err(Refusal::HeadersTooLarge { bytes: headers.bytes() });
    }
    let body = body_of(event.body.unwrap_or_default(), event.is_base64_encoded)?;
    let query = event.raw_query_string.unwrap_or_default();
    Ok(Delivery { method, headers, query, body })
}

fn body_of(body: String, is_base64: bool) -> Result<Vec<u8>, Refusal> {
    // Four characters hold three bytes: refused before it is decoded.
    let bytes = if is_base64 { body.len() / 4 * 3 } else { body.len() };
    if bytes > limits::MAX_BODY_BYTES + 2 {
        return Err(Refusal::BodyTooLarge { bytes });
    }
    let body = if is_base64 {
        STANDARD.decode(body).map_err(|_| Refusal::MalformedBase64)?
    } else {
        body.into_bytes()
    };
    if body.len() > limits::MAX_BODY_BYTES {
        return Err(Refusal::BodyTooLarge { bytes: body.len() });
    }
    Ok(body)
}

fn headers_of(headers: &HeaderMap) -> Headers {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
        .collect()
}

/// What the sender gets to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { status: reply.status, headers: reply.headers, body: reply.body }
    }
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        let mut headers = vec![text_plain()];
        match refusal {
            Refusal::WrongMethod(_) => headers.push(("allow".to_owned(), "POST".to_owned())),
            Refusal::NoSecrets | Refusal::NotConfirmed => headers.push(retry_after()),
            Refusal::Handshake(reply) => return reply.clone().into(),
            Refusal::UnknownSource
            | Refusal::BodyTooLarge { .. }
            | Refusal::PayloadTooLarge(_)
            | Refusal::HeadersTooLarge { .. }
            | Refusal::MalformedBase64
            | Refusal::Unverified(_)
            | Refusal::Unidentifiable(_)
            | Refusal::TooManyEvents(_) => {}
        }
        Self { status: refusal.status(), headers, body: refusal.body() }
    }
}

impl Answer {
    /// The ledger cannot be asked: the provider shall come again.
    #[must_use]
    pub fn unavailable() -> Self {
        let body = "the event could not be recorded; send it again".to_owned();
        Self { status: 503, headers: vec![text_plain(), retry_after()], body }
    }

    /// As Lambda takes it.
    #[must_use]
    pub fn into_response(self) -> ApiGatewayV2httpResponse {
        let headers = self.headers.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        let mut response = ApiGatewayV2httpResponse::default();
        response.status_code = self.status.into();
        response.headers = headers.collect();
        response.body = Some(Body::Text(self.body));
        response
    }
}

fn text_plain() -> (String, String) {
    ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())
}

fn retry_after() -> (String, String) {
    ("retry-after".to_owned(), limits::UNAVAILABLE_RETRY_AFTER.as_secs().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_the_segment_after_webhooks() {
        assert_eq!(source_of("/webhooks/stripe"), Some("stripe"));
        assert_eq!(source_of("/prod/webhooks/stripe/"), Some("stripe"));
        for path in ["", "/", "/stripe", "/webhooks", "/webhooksx/stripe", "/webhooks/a/b"] {
            assert_eq!(source_of(path), None, "{path}");
        }
    }

    #[test]
    fn malformed_base64_is_a_refusal_and_no_panic() {
        for body in ["%%%", "a", "ab=c", "ä"] {
            let refusal = body_of(body.to_owned(), true).expect_err("refused");
            assert_eq!(refusal.status(), 400, "{body}");
        }
        assert_eq!(body_of("e30=".to_owned(), true).ok().as_deref(), Some(b"{}".as_slice()));
        assert_eq!(body_of(String::new(), true).ok().as_deref(), Some(b"".as_slice()));
    }

    #[test]
    fn a_body_over_the_bound_is_refused_in_either_encoding() {
        let large = "A".repeat(limits::MAX_BODY_BYTES * 3);
        assert_eq!(body_of(large.clone(), false).map_err(|r| r.status()), Err(413));
        assert_eq!(body_of(large, true).map_err(|r| r.status()), Err(413));
        let just_over = "A".repeat(limits::MAX_BODY_BYTES + 1);
        assert_eq!(body_of(just_over, false).map_err(|r| r.status()), Err(413));
    }
}
