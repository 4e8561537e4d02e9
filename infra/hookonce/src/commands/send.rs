//! `hookonce send`: signs an event as its provider would, and delivers it as often as asked.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use domain::{delivery::Delivery, event::Source, time::Timestamp};
use futures::{StreamExt as _, stream};
use providers::{Endpoint, Key, NoTestKey, Provider, SampleRequest, Unsigned};
use reqwest::Client;
use runtime::{
    clock::Clock,
    config::{Config, Trust},
    route::place,
};
use serde::Serialize;
use url::Url;

use super::{
    NO, Outcome, WrongCall, YES, own_providers, percentile, provider_named, secret_of, source_name,
};

/// Sign an event as its provider would, and deliver it.
#[derive(Args, Debug)]
pub struct SendArgs {
    /// Catalogue name of the provider
    provider: String,
    /// Where to: http://HOST/webhooks/SOURCE; without a path, /webhooks/PROVIDER
    #[arg(long)]
    url: Url,
    /// The secret to sign with, by reference: env:NAME or literal:TEXT; "generate" for a test key
    ///
    /// A provider that signs with a private key of its own does so with a test key if there is no
    /// secret.
    #[arg(long)]
    secret: Option<String>,
    /// The test key's file, made if it is not there; without, PROVIDER-test-key.pem
    #[arg(long)]
    key: Option<PathBuf>,
    /// A configuration whose provider files, settings and addresses are to be known
    #[arg(long)]
    config: Option<PathBuf>,
    /// Body to send; a sample event of the provider without
    #[arg(long)]
    event: Option<PathBuf>,
    /// Event type of the sample
    #[arg(long = "type", conflicts_with = "event")]
    event_type: Option<String>,
    /// Event id of the sample; a fresh one without
    #[arg(long, conflicts_with = "event")]
    id: Option<String>,
    /// How often to deliver the event
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// How many deliveries at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    parallel: u16,
    /// Change the body after signing: the receiver must refuse it
    #[arg(long)]
    tamper: bool,
    /// Sign at this time, Unix seconds
    #[arg(long)]
    now: Option<i64>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// What deliveries came to.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// By status; `0` for those without an answer.
    pub(crate) by_status: BTreeMap<u16, usize>,
    /// How long each took, ms.
    pub(crate) latencies: Vec<f64>,
    /// Why there was no answer, of the last one.
    pub(crate) failure: Option<String>,
}

/// What `--json` says.
#[derive(Serialize)]
struct Report<'a> {
    provider: &'a str,
    id: Option<&'a str>,
    sent: usize,
    statuses: BTreeMap<String, usize>,
    latency_ms: Latency,
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<&'a str>,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p95: f64,
    max: f64,
}

/// Runs the command. Yes: every delivery was acknowledged; with `--tamper`, every one refused as
/// unverified.
///
/// # Errors
/// If there is no such provider, sample or secret.
pub async fn run(args: SendArgs) -> Outcome {
    let provider = provider_named(&args.provider, &own_providers(args.config.as_ref())?)?;
    let url = url_of(&args, &provider)?;
    // Where the URL is signed, it is this one.
    let provider = match source_at(&args, &url)? {
        Some(configured) if configured.name() == provider.name() => configured,
        _ => provider.at(Endpoint::new(Some(url.as_str()))),
    };
    let signer = Signer::of(&args, &provider).await?;
    let id = args.id.clone().unwrap_or_else(|| fresh_id(&provider));
    let now = args.now.map_or_else(|| Clock::default().now(), Timestamp::from_secs);
    let mut unsigned = unsigned_event(&provider, args.event_type.as_deref(), &id, now)?;
    if let Some(file) = &args.event {
        unsigned.body = std::fs::read(file)
            .map_err(|error| WrongCall(format!("cannot read {}: {error}", file.display())))?;
    }
    let client = client(&url)?;
    let wants_settings = args.config.is_none() && !provider.settings().is_empty();
    let hint =
        if wants_settings { "; --config names a configuration with this source" } else { "" };
    let answers = stream::iter(0..args.times)
        .map(|_| {
            // Each delivery is signed anew, as a provider's retries are.
            let signed = sign(&provider, &signer.key, &unsigned, args.now, args.tamper)
                .map_err(|WrongCall(problem)| WrongCall(format!("{problem}{hint}")));
            let (client, url) = (&client, &url);
            async move { Ok::<_, WrongCall>(deliver(client, url, signed?).await) }
        })
        .buffer_unordered(args.parallel.into())
        .fold(Ok(Answers::default()), async |sum: Result<Answers, WrongCall>, one| {
            Ok(sum?.plus(one?))
        })
        .await?;
    // Of a body of the caller's own the id is not known here.
    report(&args, args.event.is_none().then_some(id.as_str()), &answers, &signer);
    let expected = |status: u16| {
        if args.tamper { status == 401 } else { (200..300).contains(&status) }
    };
    let as_expected = answers.by_status.keys().all(|status| expected(*status));
    Ok(if as_expected { YES } else { NO })
}

fn report(args: &SendArgs, id: Option<&str>, answers: &Answers, signer: &Signer) {
    let mut latencies = answers.latencies.clone();
    latencies.sort_by(f64::total_cmp);
    let at = |share| percentile(&latencies, share);
    if args.json {
        let statuses: BTreeMap<_, _> =
            answers.by_status.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        let report = Report {
            provider: &args.provider,
            id,
            sent: latencies.len(),
            statuses,
            latency_ms: Latency { p50: at(0.5), p95: at(0.95), max: at(1.0) },
            error: answers.failure.as_deref(),
            public_key: signer.public.as_deref(),
        };
        say!("{}", serde_json::to_string(&report).unwrap_or_default());
        return;
    }
    let event = id.map_or_else(|| "from a file".to_owned(), ToOwned::to_owned);
    say!("{} event {event}, delivered {} times", args.provider, latencies.len());
    for (status, count) in &answers.by_status {
        match status {
            0 => say!("  {count} × no answer: {}", answers.failure.as_deref().unwrap_or("")),
            status => say!("  {count} × {status}"),
        }
    }
    say!("  p50 {:.1} ms, p95 {:.1} ms, max {:.1} ms", at(0.5), at(0.95), at(1.0));
}

fn url_of(args: &SendArgs, provider: &Provider) -> Result<Url, WrongCall> {
    let mut url = args.url.clone();
    if !matches!(url.scheme(), "http" | "https") {
        return Err(WrongCall("--url: an http or https address is needed".to_owned()));
    }
    if matches!(url.path(), "" | "/") {
        url.set_path(&format!("/webhooks/{}", source_name(provider)));
    }
    Ok(url)
}

/// The provider as it sends to the configured source that `url` is of: at its public address, with
/// its settings.
fn source_at(args: &SendArgs, url: &Url) -> Result<Option<Provider>, WrongCall> {
    let Some(path) = &args.config else { return Ok(None) };
    let config = Config::read(path, Trust::Local)?;
    let source = url.path().strip_prefix("/webhooks/").and_then(|name| Source::new(name).ok());
    Ok(source.and_then(|source| config.sources.get(&source)).map(|source| source.provider.clone()))
}

/// What signs, and the public key that the source has to have, where it is another.
struct Signer {
    key: Key,
    public: Option<String>,
}

impl Signer {
    async fn of(args: &SendArgs, provider: &Provider) -> Result<Self, WrongCall> {
        match args.secret.as_deref() {
            Some("generate") => Self::test_key(args, provider),
            None if !provider.shares_secrets() => Self::test_key(args, provider),
            None => Err(WrongCall(format!(
                "--secret: {} signs with a secret that the source has too; give it as env:NAME or \
                 literal:TEXT",
                provider.name()
            ))),
            Some(reference) => {
                Ok(Self { key: provider.key(&secret_of(reference).await?)?, public: None })
            }
        }
    }

    /// Of the key in its file, so that a second call is signed by the key that the source was
    /// configured for after the first.
    fn test_key(args: &SendArgs, provider: &Provider) -> Result<Self, WrongCall> {
        let default = || PathBuf::from(format!("{}-test-key.pem", source_name(provider)));
        let file = args.key.clone().unwrap_or_else(default);
        let pem = match std::fs::read_to_string(&file) {
            Ok(pem) => pem,
            Err(error) if error.kind() == ErrorKind::NotFound => new_test_key(&file, provider)?,
            Err(error) => {
                return Err(WrongCall(format!("cannot read {}: {error}", file.display())));
            }
        };
        let (key, public) = provider
            .test_key(&pem)
            .map_err(|error| WrongCall(format!("{}: {error}", file.display())))?;
        if !args.json {
            say!(
                "signed with the test key in {}; the source needs its public key:",
                file.display()
            );
            say!("  secrets = [{}]", serde_json::Value::from(format!("literal:{public}")));
        }
        Ok(Self { key, public: Some(public) })
    }
}

/// Makes a test key, for its owner's eyes only.
fn new_test_key(file: &Path, provider: &Provider) -> Result<String, WrongCall> {
    let pem = provider.generate_test_key().map_err(|error| {
        let how = match error {
            NoTestKey::NotGenerated => format!(
                "; make one: openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {}",
                file.display()
            ),
            NoTestKey::SharedSecret { .. } | NoTestKey::Unfit { .. } => String::new(),
        };
        WrongCall(format!("{}: {error}{how}", provider.name()))
    })?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(file).and_then(|mut file| file.write_all(pem.as_bytes()));
    written.map_err(|error| WrongCall(format!("cannot write {}: {error}", file.display())))?;
    Ok(pem)
}

impl Answers {
    fn plus(mut self, other: (Result<u16, String>, Duration)) -> Self {
        let (answer, took) = other;
        *self.by_status.entry(*answer.as_ref().unwrap_or(&0)).or_default() += 1;
        self.latencies.push(took.as_secs_f64() * 1000.0);
        self.failure = answer.err().or(self.failure);
        self
    }
}

/// The client of all deliveries to `url`.
pub(crate) fn client(url: &Url) -> Result<Client, WrongCall> {
    runtime::aws::install_tls_provider();
    let client =
        Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(ANSWER_PATIENCE);
    // What is meant for this machine goes to it, whatever proxy the system has.
    let local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    Ok(if local { client.no_proxy() } else { client }.build()?)
}

/// An event of the provider's, not signed yet.
pub(crate) fn unsigned_event(
    provider: &Provider,
    event_type: Option<&str>,
    id: &str,
    now: Timestamp,
) -> Result<Unsigned, WrongCall> {
    Ok(provider.sample(&SampleRequest { event_type, id, now })?)
}

/// Signs at this moment, or at `now`.
pub(crate) fn sign(
    provider: &Provider,
    key: &Key,
    unsigned: &Unsigned,
    now: Option<i64>,
    tamper: bool,
) -> Result<Delivery, WrongCall> {
    let now = now.map_or_else(|| Clock::default().now(), Timestamp::from_secs);
    let mut signed = provider.sign(key, unsigned.clone(), now)?;
    if tamper {
        signed.body.push(b' ');
    }
    Ok(signed)
}

/// One delivery: its status, or why there was none, and how long it took.
pub(crate) async fn deliver(
    client: &Client,
    url: &Url,
    signed: Delivery,
) -> (Result<u16, String>, Duration) {
    let mut url = url.clone();
    if !signed.query.is_empty() {
        url.set_query(Some(&signed.query));
    }
    let mut request = client.post(url.clone());
    for (name, value) in signed.headers.iter() {
        request = request.header(name, value);
    }
    let started = Instant::now();
    let sent = request.body(signed.body).send().await;
    let answer = match sent {
        Ok(response) => Ok(response.status().as_u16()),
        Err(error) if error.is_connect() => Err(format!("cannot reach {}", place(&url))),
        Err(error) if error.is_timeout() => Err("no answer in time".to_owned()),
        Err(error) => Err(error.without_url().to_string()),
    };
    (answer, started.elapsed())
}

/// An id that no other event has.
pub(crate) fn fresh_id(provider: &Provider) -> String {
    let unique = uuid::Uuid::new_v4().simple();
    match provider.name() {
        "stripe" => format!("evt_{unique}"),
        "slack" => format!("Ev{unique}"),
        "standard-webhooks" | "svix" => format!("msg_{unique}"),
        _ => uuid::Uuid::new_v4().to_string(),
    }
}

/// Longer than any provider waits.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
