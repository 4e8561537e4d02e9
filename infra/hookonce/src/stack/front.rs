//! The function URL: HTTP requests as the events that Lambda hands to a function.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use runtime::clock::Clock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::{lambda::Function, turned};

/// Serves until closed.
pub(super) async fn serve(
    listener: TcpListener,
    receiver: Arc<Function>,
    closed: watch::Receiver<bool>,
) {
    let router = Router::new()
        .fallback(receive)
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(receiver);
    let _ = axum::serve(listener, router).with_graceful_shutdown(turned(closed)).await;
}

async fn receive(
    State(receiver): State<Arc<Function>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let event = event_of(&method, &uri, &headers, &body).to_string();
    match receiver.invoke(event).await {
        Ok(answer) => answer_of(&answer),
        // What a function URL says when its function fails; the provider sends again.
        Err(_) => (StatusCode::BAD_GATEWAY, "Internal Server Error").into_response(),
    }
}

/// Payload format 2.0, as function URLs and HTTP APIs make it.
fn event_of(method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Value {
    let (body, is_base64) = match std::str::from_utf8(body) {
        Ok(text) if is_text(headers) => (text.to_owned(), false),
        _ => (STANDARD.encode(body), true),
    };
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let now = Clock::default().now().millis();
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": joined(headers),
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "local",
            "domainName": "localhost",
            "domainPrefix": "local",
            "http": {
                "method": method.as_str(),
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": ""
            },
            "requestId": uuid::Uuid::new_v4().to_string(),
            "routeKey": "$default",
            "stage": "$default",
            "time": "",
            "timeEpoch": now
        },
        "body": body,
        "isBase64Encoded": is_base64
    })
}

/// Lambda passes these on as text; forms, and bodies of no type, come as base64.
fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        media.starts_with("text/")
            || matches!(media, "application/json" | "application/javascript" | "application/xml")
    })
}

/// A header sent twice comes as one, joined by a comma.
fn joined(headers: &HeaderMap) -> BTreeMap<&str, String> {
    headers
        .keys()
        .map(|name| {
            let values = headers.get_all(name).iter();
            let values: Vec<_> =
                values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            (name.as_str(), values.join(","))
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
}

fn answer_of(answer: &[u8]) -> Response {
    let Ok(answer) = serde_json::from_slice::<Answer>(answer) else {
        return (StatusCode::BAD_GATEWAY, "Internal Server Error").into_response();
    };
    let mut response = Response::new(Body::from(answer.body.unwrap_or_default()));
    *response.status_mut() =
        StatusCode::from_u16(answer.status_code).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = answer.headers.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    });
    response.headers_mut().extend(headers);
    response
}

/// Lambda's limit for a synchronous request.
const MAX_REQUEST_BYTES: usize = 6 * 1024 * 1024;
