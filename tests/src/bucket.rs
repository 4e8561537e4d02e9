//! A bucket: as much of S3 as puts an object and gets it back, over the wire, and breaks calls on
//! order.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use runtime::{aws::Patience, payloads::PayloadStore};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::proxy::{Fault, meet};

/// A running bucket.
#[derive(Debug)]
pub struct Bucket {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    fault: Mutex<Fault>,
}

impl Bucket {
    /// An empty one.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared { objects: Mutex::default(), fault: Mutex::new(Fault::None) });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { url, shared, server }
    }

    /// The store of a function that is as patient as this.
    #[must_use]
    pub fn store(&self, patience: Patience) -> PayloadStore {
        use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region};
        let config = Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(patience.retries())
            .timeout_config(patience.timeouts())
            .force_path_style(true)
            .endpoint_url(&self.url);
        PayloadStore::new(config, NAME.to_owned())
    }

    /// Every call meets this from now on.
    pub fn meet(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The objects by key.
    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.shared.objects()
    }
}

impl Shared {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, method: &Method, key: &str, body: Bytes) -> Response {
        if *method == Method::PUT {
            self.objects().insert(key.to_owned(), body);
            return StatusCode::OK.into_response();
        }
        match self.objects().get(key) {
            Some(bytes) => bytes.clone().into_response(),
            None => {
                let error = "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
                (StatusCode::NOT_FOUND, [("content-type", "application/xml")], error)
                    .into_response()
            }
        }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let fault = shared.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let key = uri.path().trim_start_matches('/').trim_start_matches(NAME).trim_start_matches('/');
    meet(fault, async { shared.call(&method, key, body) }).await
}

const NAME: &str = "payloads";
