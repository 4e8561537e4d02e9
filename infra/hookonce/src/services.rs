//! The outside world of the demo: a receipt and a shipment service that honour `Idempotency-Key`,
//! as real ones do, and count what they were asked and what they did.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

use crate::turned;

/// Services by name, and what they did by key.
#[derive(Debug, Default)]
pub struct Services {
    /// How long a service takes for what it does.
    delay: Duration,
    done: Mutex<HashMap<(String, String), u64>>,
}

/// What one service was asked and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls, repeated ones included.
    pub calls: u64,
    /// Effects: distinct keys.
    pub effects: u64,
}

impl Services {
    /// Starts the services; each call takes `delay`. Gives their address.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start(
        delay: Duration,
        closing: watch::Receiver<bool>,
    ) -> io::Result<(Arc<Self>, String)> {
        let services = Arc::new(Self { delay, done: Mutex::default() });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router =
            Router::new().route("/{service}", post(serve)).with_state(Arc::clone(&services));
        let served = axum::serve(listener, router).with_graceful_shutdown(turned(closing));
        tokio::spawn(async move { served.await });
        Ok((services, url))
    }

    /// What `service` was asked and did.
    #[must_use]
    pub fn count(&self, service: &str) -> Count {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = done.iter().filter(|((name, _), _)| name == service).map(|(_, calls)| *calls);
        calls.fold(Count::default(), |count, calls| Count {
            calls: count.calls + calls,
            effects: count.effects + 1,
        })
    }
}

async fn serve(
    State(services): State<Arc<Services>>,
    Path(service): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "idempotency-key is missing").into_response();
    };
    let id = format!("{service}_{}", &key[..key.len().min(12)]);
    {
        let mut done = services.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done.entry((service, key.to_owned())).or_default() += 1;
    }
    // The effect has taken hold, and the caller does not know yet: where a kill hurts most.
    tokio::time::sleep(services.delay).await;
    Json(json!({ "id": id })).into_response()
}
