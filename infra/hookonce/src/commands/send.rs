//! `hookonce send`: signs an event as its provider would, and delivers it as often as asked.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use domain::{delivery::Delivery, time::Timestamp};
use futures::{StreamExt as _, stream};
use providers::{Endpoint, Key, Provider, SampleRequest, Unsigned};
use reqwest::Client;
use runtime::{clock::Clock, route::place};
use serde::Serialize;
use url::Url;

use super::{NO, Outcome, WrongCall, YES, percentile, secret_of};

/// Sign an event as its provider would, and deliver it.
#[derive(Args, Debug)]
pub struct SendArgs {
    /// Catalogue name of the provider
    provider: String,
    /// Where to: http://HOST/webhooks/SOURCE; without a path, /webhooks/PROVIDER
    #[arg(long)]
    url: Url,
    /// The secret to sign with, by reference: env:NAME or literal:TEXT
    #[arg(long)]
    secret: String,
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
    let provider = Provider::builtin(&args.provider).ok_or_else(|| {
        let known = Provider::builtin_names().join(", ");
        WrongCall(format!("`{}` is not in the catalogue; there are: {known}", args.provider))
    })?;
    let key = provider.key(&secret_of(&args.secret).await?)?;
    let id = args.id.clone().unwrap_or_else(|| fresh_id(&provider));
    let now = args.now.map_or_else(|| Clock::default().now(), Timestamp::from_secs);
    let mut unsigned = unsigned_event(&provider, args.event_type.as_deref(), &id, now)?;
    if let Some(file) = &args.event {
        unsigned.body = std::fs::read(file)
            .map_err(|error| WrongCall(format!("cannot read {}: {error}", file.display())))?;
    }
    let mut url = args.url.clone();
    if !matches!(url.scheme(), "http" | "https") {
        return Err(WrongCall("--url: an http or https address is needed".to_owned()));
    }
    if matches!(url.path(), "" | "/") {
        url.set_path(&format!("/webhooks/{}", provider.name()));
    }
    // Where the URL is signed, it is this one.
    let provider = provider.at(Endpoint::new(Some(url.as_str())));
    let client = client(&url)?;
    let answers = stream::iter(0..args.times)
        .map(|_| {
            // Each delivery is signed anew, as a provider's retries are.
            let signed = sign(&provider, &key, &unsigned, args.now, args.tamper);
            let (client, url) = (&client, &url);
            async move { Ok::<_, WrongCall>(deliver(client, url, signed?).await) }
        })
        .buffer_unordered(args.parallel.into())
        .fold(Ok(Answers::default()), async |sum: Result<Answers, WrongCall>, one| {
            Ok(sum?.plus(one?))
        })
        .await?;
    // Of a body of the caller's own the id is not known here.
    report(&args, args.event.is_none().then_some(id.as_str()), &answers);
    let expected = |status: u16| {
        if args.tamper { status == 401 } else { (200..300).contains(&status) }
    };
    let as_expected = answers.by_status.keys().all(|status| expected(*status));
    Ok(if as_expected { YES } else { NO })
}

fn report(args: &SendArgs, id: Option<&str>, answers: &Answers) {
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
