//! `hookonce verify`: why does my webhook not verify?
//!
//! Runs recorded requests through the receiver's own verification, and says of each whether it
//! holds, what events it carries, or what failed.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use domain::{
    delivery::Delivery,
    event::{Event, Source},
    time::Timestamp,
};
use providers::{Endpoint, Greeting, Key, Provider, Reply, Secret};
use runtime::clock::Clock;
use serde::{Deserialize, Serialize};

use super::{NO, Outcome, WrongCall, YES, own_providers};

/// Say of recorded requests whether they verify, and if not, why.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// One request or an array of them, as JSON
    #[arg(long)]
    request: PathBuf,
    /// A configuration whose provider files are to be known
    #[arg(long)]
    config: Option<PathBuf>,
    /// Report as JSON, one line each
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Requests {
    One(Box<Request>),
    Many(Vec<Request>),
}

#[derive(Deserialize)]
struct Request {
    provider: String,
    name: Option<String>,
    secret: Option<String>,
    public_key: Option<String>,
    cert_pem: Option<String>,
    jwk: Option<serde_json::Value>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    tolerance_s: Option<u64>,
    url: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderValues>,
    #[serde(default)]
    body: String,
    body_encoding: Option<String>,
    now: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValues {
    One(String),
    Many(Vec<String>),
}

/// What is said of one request.
#[derive(Serialize)]
struct Judgement<'a> {
    provider: &'a str,
    name: Option<&'a str>,
    valid: bool,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    events: Vec<EventView>,
    response: Option<ResponseView>,
}

#[derive(Serialize)]
struct EventView {
    id: String,
    #[serde(rename = "type")]
    event_type: Option<String>,
    object: Option<String>,
    occurred_at: Option<i64>,
}

#[derive(Serialize)]
struct ResponseView {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// What failed: in a word, and in a sentence.
struct Problem {
    reason: &'static str,
    detail: String,
}

/// What came of a request.
#[derive(Default)]
struct Verdict {
    /// Its signature holds, or it is a handshake that needs none.
    valid: bool,
    problem: Option<Problem>,
    events: Vec<Event>,
    response: Option<Reply>,
}

/// Runs the command. Yes: all of them verify.
///
/// # Errors
/// If the file cannot be read, or holds no requests.
pub fn run(args: &VerifyArgs) -> Outcome {
    let own = own_providers(args.config.as_ref())?;
    let text = std::fs::read_to_string(&args.request)
        .map_err(|error| WrongCall(format!("cannot read {}: {error}", args.request.display())))?;
    let requests: Requests = serde_json::from_str(&text).map_err(|_| {
        // Without serde's own words: they would quote the file, and a secret with it.
        let position = serde_json::from_str::<serde_json::Value>(&text).err().map_or_else(
            || {
                "each request needs provider, secret, method, headers and body, as text and numbers"
                    .to_owned()
            },
            |error| format!("no JSON at line {}, column {}", error.line(), error.column()),
        );
        WrongCall(format!("{}: {position}", args.request.display()))
    })?;
    let requests = match requests {
        Requests::One(request) => vec![*request],
        Requests::Many(requests) => requests,
    };
    if requests.is_empty() {
        return Err(WrongCall(format!("{}: there is no request in it", args.request.display())));
    }
    let mut all_valid = true;
    for request in &requests {
        let judgement = judge(request, &own);
        all_valid &= judgement.reason.is_none();
        if args.json {
            say!("{}", serde_json::to_string(&judgement)?);
        } else {
            print(&judgement);
        }
    }
    Ok(if all_valid { YES } else { NO })
}

fn judge<'a>(request: &'a Request, own: &BTreeMap<String, Provider>) -> Judgement<'a> {
    let verdict = verify(request, own)
        .unwrap_or_else(|problem| Verdict { problem: Some(problem), ..Verdict::default() });
    let Verdict { valid, problem, events, response } = verdict;
    Judgement {
        provider: &request.provider,
        name: request.name.as_deref(),
        valid,
        reason: problem.as_ref().map(|problem| problem.reason),
        detail: problem.map(|problem| problem.detail),
        events: events.into_iter().map(EventView::from).collect(),
        response: response.map(ResponseView::from),
    }
}

fn verify(request: &Request, own: &BTreeMap<String, Provider>) -> Result<Verdict, Problem> {
    let problem = |reason, detail: String| Problem { reason, detail };
    let provider = own
        .get(&request.provider)
        .cloned()
        .or_else(|| Provider::builtin(&request.provider))
        .ok_or_else(|| {
            problem("unknown_provider", format!("`{}` is not in the catalogue", request.provider))
        })?;
    let provider = provider.at(endpoint_of(request, &provider));
    let delivery = delivery_of(request).map_err(|detail| problem("malformed_request", detail))?;
    let (keys, refused) = keys_of(request, &provider);
    match provider.greet(&delivery, &keys) {
        Some(Greeting::Answered(reply)) => return Ok(Verdict::handshake(reply)),
        Some(Greeting::Refused(reply)) => {
            let detail = "a handshake with a wrong token, or a challenge that is none".to_owned();
            return Ok(Verdict::refused(problem("refused_handshake", detail), Some(reply)));
        }
        None => {}
    }
    if keys.is_empty() {
        let detail = refused.unwrap_or_else(|| "the request names no secret".to_owned());
        return Err(problem("invalid_secret", detail));
    }
    let (now, tolerance) = match request.now {
        Some(seconds) => (from_seconds(seconds), request.tolerance_s.map(Duration::from_secs)),
        // The clock does not matter: whatever was signed is recent enough.
        None => (Clock::default().now(), Some(Duration::MAX)),
    };
    let verified = match provider.verify(delivery, &keys, now, tolerance) {
        Ok(verified) => verified,
        Err(rejection) => {
            let problem = problem(rejection.reason(), rejection.to_string());
            return Ok(Verdict::refused(problem, provider.rejection()));
        }
    };
    if let Some(reply) = provider.handshake(&verified) {
        return Ok(Verdict::handshake(reply));
    }
    let source = Source::new("verify").map_err(|error| problem("internal", error.to_string()))?;
    Ok(match provider.identify(verified, &source) {
        Ok(events) => Verdict { valid: true, events, ..Verdict::default() },
        // Authentic all the same.
        Err(error) => {
            let problem = Some(problem("unidentifiable", error.to_string()));
            Verdict { valid: true, problem, ..Verdict::default() }
        }
    })
}

impl Verdict {
    fn handshake(reply: Reply) -> Self {
        Self { valid: true, response: Some(reply), ..Self::default() }
    }

    /// With what the sender is answered, if its provider wants words of its own.
    fn refused(problem: Problem, response: Option<Reply>) -> Self {
        Self { problem: Some(problem), response, ..Self::default() }
    }
}

/// The endpoint that the request came to. A setting that is not given as one is its public key, or
/// its secret: what a provider shows for the purpose.
fn endpoint_of(request: &Request, provider: &Provider) -> Endpoint {
    let shown = request.public_key.as_ref().or(request.secret.as_ref());
    provider.settings().iter().fold(Endpoint::new(request.url.clone()), |endpoint, setting| {
        match request.settings.get(&setting.name).or(shown.filter(|_| !setting.optional)) {
            Some(value) => endpoint.with(&setting.name, value),
            None => endpoint,
        }
    })
}

/// The keys, and why one of the secrets is none.
fn keys_of(request: &Request, provider: &Provider) -> (Vec<Key>, Option<String>) {
    let jwk = request.jwk.as_ref().map(ToString::to_string);
    let (mut keys, mut refused) = (Vec::new(), None);
    let secrets = [&jwk, &request.cert_pem, &request.secret, &request.public_key];
    for secret in secrets.into_iter().flatten() {
        match provider.key(&Secret::new(secret.as_str())) {
            Ok(key) => keys.push(key),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    (keys, refused)
}

fn delivery_of(request: &Request) -> Result<Delivery, String> {
    let body = match request.body_encoding.as_deref() {
        None | Some("utf8") => request.body.clone().into_bytes(),
        Some("base64") => {
            STANDARD.decode(&request.body).map_err(|_| "the body is no base64".to_owned())?
        }
        Some(other) => return Err(format!("body_encoding `{other}` is neither utf8 nor base64")),
    };
    let headers = request.headers.iter().flat_map(|(name, values)| {
        let values = match values {
            HeaderValues::One(value) => std::slice::from_ref(value),
            HeaderValues::Many(values) => values,
        };
        values.iter().map(move |value| (name, value.as_str()))
    });
    let query = request.url.as_deref().and_then(|url| url.split_once('?'));
    Ok(Delivery {
        method: request.method.as_deref().unwrap_or("POST").to_ascii_uppercase(),
        headers: headers.collect(),
        query: query.map(|(_, query)| query.to_owned()).unwrap_or_default(),
        body,
    })
}

fn from_seconds(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as timestamps do")]
    Timestamp::from_millis((seconds * 1000.0) as i64)
}

fn print(judgement: &Judgement<'_>) {
    // What others wrote is shown so that it cannot steer the terminal.
    let name = judgement.name.unwrap_or("request").escape_debug();
    let provider = judgement.provider.escape_debug();
    if let Some(reason) = judgement.reason {
        let valid = if judgement.valid { "valid, but" } else { "invalid," };
        say!("{provider} {name}: {valid} {reason}: {}", judgement.detail.as_deref().unwrap_or(""));
        return;
    }
    match &judgement.response {
        Some(response) => {
            say!("{provider} {name}: valid, a handshake; answer {}", response.status)
        }
        None => say!("{provider} {name}: valid"),
    }
    for event in &judgement.events {
        let event_type = event.event_type.as_deref().unwrap_or("no type");
        say!("  event {} ({})", event.id.escape_debug(), event_type.escape_debug());
    }
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        Self {
            id: event.key.id().as_str().to_owned(),
            event_type: event.event_type,
            object: event.object_id,
            occurred_at: event.occurred_at.map(Timestamp::millis),
        }
    }
}

impl From<Reply> for ResponseView {
    fn from(reply: Reply) -> Self {
        let headers = reply.headers.into_iter().collect();
        Self { status: reply.status, headers, body: reply.body }
    }
}
