//! Providers' hosts, on this machine: a server that has their names and a certificate for them,
//! signed by an authority of its own, and the one client that knows both.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Response, StatusCode},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Running hosts.
#[derive(Debug)]
pub struct Hosts {
    /// What finds them, and believes them.
    pub client: reqwest::Client,
    books: Arc<Books>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Books {
    served: Mutex<BTreeMap<String, Served>>,
    calls: Mutex<Vec<Asked>>,
}

/// What is served at an address.
#[derive(Clone, Debug)]
pub enum Served {
    /// A status and a body.
    Answer(u16, String),
    /// Another address.
    Redirect(String),
    /// Nothing, ever.
    Silence,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Method, and address as it was called.
    pub what: String,
    /// Body.
    pub body: String,
}

impl Hosts {
    /// Starts hosts of these names. The client takes this machine for `impostors` too, for which
    /// there is no certificate.
    pub async fn start(names: &[&str], impostors: &[&str]) -> Self {
        runtime::aws::install_tls_provider();
        let (authority, config) = certified(names);
        let tcp = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = tcp.local_addr().expect("bound");
        let books = Arc::<Books>::default();
        let router = Router::new().fallback(serve).with_state(Arc::clone(&books));
        let listener = TlsListener { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) };
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        let client = runtime::http::client().no_proxy().tls_certs_only([authority]);
        let client = names
            .iter()
            .chain(impostors)
            .fold(client, |client, name| client.resolve(name, address));
        Self { client: client.build().expect("a client"), books, server }
    }

    /// Has this be served at `address`, whatever its query. Unless told, 404.
    pub fn serve(&self, address: &str, served: Served) {
        lock(&self.books.served).insert(address.to_owned(), served);
    }

    /// The calls so far, in their order.
    #[must_use]
    pub fn calls(&self) -> Vec<Asked> {
        lock(&self.books.calls).clone()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    State(books): State<Arc<Books>>,
    headers: HeaderMap,
    request: Request,
) -> Response<Body> {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).expect("a host");
    let address = format!("https://{host}{}", request.uri().path());
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let what = format!("{} {address}{query}", request.method());
    let body = to_bytes(request.into_body(), 1 << 20).await.expect("a body");
    lock(&books.calls).push(Asked { what, body: String::from_utf8_lossy(&body).into_owned() });
    let served = lock(&books.served).get(&address).cloned();
    let answer = Response::builder();
    match served.unwrap_or(Served::Answer(404, String::new())) {
        Served::Answer(status, body) => answer.status(status).body(body.into()),
        Served::Redirect(to) => {
            answer.status(StatusCode::FOUND).header("location", to).body(Body::empty())
        }
        Served::Silence => std::future::pending().await,
    }
    .expect("an answer")
}

/// An authority, and a server's certificate for `names` by it.
fn certified(names: &[&str]) -> (reqwest::Certificate, ServerConfig) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("an authority");
    let issuer = Issuer::new(params, key);
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(names).expect("names").signed_by(&key, &issuer);
    let certificate = certificate.expect("a certificate");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], private);
    let authority = reqwest::Certificate::from_der(authority.der()).expect("an authority");
    (authority, config.expect("a server's configuration"))
}

struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, from)) = self.tcp.accept().await else { continue };
            // Who does not believe the certificate hangs up.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
