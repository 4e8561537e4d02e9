//! What is fetched from a provider's own hosts: keys to verify with, and confirmations to call.
//!
//! A key is asked for because of a delivery that nobody has verified. So the catalogue says which
//! addresses there are, answers are remembered, what asks is counted, and an answer is small and in
//! time or none at all. It makes nothing true by itself: the signature still has to hold under it.
//!
//! What cannot be had for a moment is no verdict, and the provider shall come again. What is
//! served at an address that the delivery chose is one: no key there, no belief.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{delivery::Delivery, event::Source, limits, time::Timestamp};
use providers::{Confirmation, Key, KeyRequest, Rejection, Secret, VerifiedDelivery};
use reqwest::{Client, Method, StatusCode, Url, header};
use runtime::{
    config::{Config, SourceConfig},
    secrets::SecretStore,
};

use crate::{handler::Context, refusal::Refusal};

/// Fetches, and remembers.
pub(crate) struct Fetcher {
    /// None where no source needs it: making one reads all root certificates.
    client: Option<Client>,
    store: SecretStore,
    shelves: BTreeMap<Source, Shelf>,
}

/// The fetched keys of one source.
#[derive(Default)]
struct Shelf {
    state: Mutex<State>,
    /// Of many deliveries at once, one asks. The others find what it got.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// By [`KeyRequest::name`].
    answers: BTreeMap<String, Answer>,
    /// The last calls, [`limits::MAX_FETCHES`] at most.
    calls: VecDeque<Timestamp>,
}

/// What was answered at an address.
#[derive(Clone)]
struct Answer {
    /// None where there was no usable key.
    keys: Arc<[Key]>,
    /// When these were had.
    had_at: Timestamp,
    /// When they were last asked for.
    asked_at: Timestamp,
}

/// A call without what was called for.
struct Problem {
    text: String,
    /// The host said so, and will again: it is not down or busy.
    is_answer: bool,
}

impl Fetcher {
    /// A fetcher for the sources that need one.
    pub(crate) fn new(config: &Config, store: SecretStore) -> Self {
        let needed = config.sources.values().any(|source| source.fetches_keys || source.confirm);
        let client = needed.then(|| runtime::http::client().https_only(true).build());
        let client = client.and_then(|built| {
            let failed = |error| tracing::error!(error = %error, "nothing can be fetched");
            built.map_err(failed).ok()
        });
        let fetching = config.sources.iter().filter(|(_, source)| source.fetches_keys);
        let shelves = fetching.map(|(source, _)| (source.clone(), Shelf::default())).collect();
        Self { client, store, shelves }
    }

    /// The same, calling by `client`.
    pub(crate) fn calling_by(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    /// The keys of whoever a delivery says it is from.
    pub(crate) async fn keys(
        &self,
        context: &Context<'_>,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Result<Arc<[Key]>, Refusal> {
        let Context { source, config, .. } = context;
        let request = config.provider.key_request(delivery)?;
        let shelf = self.shelves.get(source).ok_or(Refusal::NoSecrets)?;
        let answered = match shelf.settled(&request, now) {
            Some(answer) => Ok(answer),
            None => {
                let asking = async {
                    let _turn = shelf.turn.lock().await;
                    match shelf.settled(&request, now) {
                        Some(answer) => Ok(answer),
                        None => self.ask(shelf, &request, config, now).await,
                    }
                };
                within(patience(context), asking).await
            }
        };
        let is_met = |answer: &Answer| request.is_met_by(&answer.keys);
        match answered {
            Ok(answer) if is_met(&answer) => Ok(answer.keys),
            Ok(_) => Err(Rejection::UnknownKey.into()),
            Err(problem) => {
                let host = host(&request.address);
                tracing::warn!(%source, host, problem = problem.text, "no key could be fetched");
                // A host that is down for a moment takes no key away.
                let kept = shelf.answer(&request).filter(is_met);
                kept.map(|answer| answer.keys).ok_or(Refusal::NoSecrets)
            }
        }
    }

    async fn ask(
        &self,
        shelf: &Shelf,
        request: &KeyRequest,
        config: &SourceConfig,
        now: Timestamp,
    ) -> Result<Answer, Problem> {
        shelf.count_call(request, now)?;
        let was_there = shelf.answer(request).is_some_and(|answer| {
            request.is_met_by(&answer.keys)
                && now.since(answer.had_at) < 2 * limits::FETCHED_KEY_AGE
        });
        let keys = match self.fetch(request, config).await {
            Ok(keys) => keys,
            // What is at an address of the delivery's choice says something of the delivery. Unless a
            // certificate was there a while ago: nobody forges an address into holding one.
            Err(problem) if problem.is_answer && request.is_named && !was_there => Vec::new(),
            Err(problem) => return Err(problem),
        };
        let answer = Answer { keys: keys.into(), had_at: now, asked_at: now };
        shelf.put(request.name(), answer.clone());
        Ok(answer)
    }

    /// The keys that are published; none if the provider says that there is no such key.
    async fn fetch(
        &self,
        request: &KeyRequest,
        config: &SourceConfig,
    ) -> Result<Vec<Key>, Problem> {
        let secret = match &config.api_secret {
            Some(reference) => {
                let secret = self.store.fetch(reference).await;
                Some(secret.map_err(|error| Problem::momentary(error.to_string()))?)
            }
            None => None,
        };
        let body = request.body(secret.as_ref());
        let (status, text) = self.call(&request.address, body).await?;
        if status.is_success() {
            return config.provider.read_keys(&text).map_err(Problem::answer);
        }
        if config.provider.denies_key(&text) {
            return Ok(Vec::new());
        }
        Err(Problem::answer(format!("it answered {status}")))
    }

    /// Calls the address that a verified handshake wants to be called, if the source is to.
    pub(crate) async fn confirm(
        &self,
        context: &Context<'_>,
        delivery: &VerifiedDelivery,
    ) -> Result<(), Refusal> {
        let Context { source, config, .. } = context;
        let Some(wanted) = config.provider.confirmation(delivery) else { return Ok(()) };
        if !config.confirm {
            tracing::warn!(
                %source,
                "a subscription waits to be confirmed: set confirm = true on the source and have \
                 it sent again, or confirm it by hand"
            );
            return Ok(());
        }
        let Confirmation::At(address) = wanted else {
            tracing::error!(%source, "the address to confirm by is none of the provider's");
            return Err(Refusal::NotConfirmed);
        };
        // Its query is a secret, and stays out of what is logged.
        let host = host(&address);
        let called = within(patience(context), async {
            let (status, _) = self.call(&address, None).await?;
            let refused = || Problem::answer(format!("it answered {status}"));
            status.is_success().then_some(()).ok_or_else(refused)
        });
        match called.await {
            Ok(()) => {
                tracing::info!(%source, host, "a subscription is confirmed");
                Ok(())
            }
            Err(problem) => {
                let problem = problem.text;
                tracing::error!(%source, host, problem, "a subscription could not be confirmed");
                Err(Refusal::NotConfirmed)
            }
        }
    }

    /// Gets an address, or posts to it: the answer, if that is not too much. A redirect is one, and
    /// not followed.
    async fn call(
        &self,
        address: &str,
        body: Option<Secret>,
    ) -> Result<(StatusCode, String), Problem> {
        let client = self.client.as_ref();
        let client = client.ok_or_else(|| Problem::momentary("there is no client"))?;
        let address = Url::parse(address).map_err(|_| Problem::momentary("no address"))?;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = client.request(method, address);
        if let Some(body) = body {
            let json = (header::CONTENT_TYPE, "application/json");
            request = request.header(json.0, json.1).body(body.expose().to_owned());
        }
        let broken = |error: reqwest::Error| Problem::momentary(runtime::http::problem(&error));
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        if status.is_server_error() || busy.contains(&status) {
            return Err(Problem::momentary(format!("it answered {status}")));
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            text.extend_from_slice(&chunk);
            if text.len() > limits::MAX_FETCHED_BYTES {
                let most = limits::MAX_FETCHED_BYTES;
                return Err(Problem::answer(format!("it answered over {most} bytes")));
            }
        }
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("sources", &self.shelves.keys()).finish_non_exhaustive()
    }
}

impl Shelf {
    /// What was answered, unless it is to be asked again: as it is old, or lacks the key and may
    /// have it by now. A call that failed a moment ago is not repeated for a key that is there.
    fn settled(&self, request: &KeyRequest, now: Timestamp) -> Option<Answer> {
        let answer = self.answer(request)?;
        let is_settled = if request.is_met_by(&answer.keys) {
            now.since(answer.had_at) < limits::FETCHED_KEY_AGE
                || now.since(answer.asked_at) < limits::FETCH_INTERVAL
        } else {
            now.since(answer.had_at) < limits::FETCH_INTERVAL
        };
        is_settled.then_some(answer)
    }

    fn answer(&self, request: &KeyRequest) -> Option<Answer> {
        self.state().answers.get(&request.name()).cloned()
    }

    /// Counts one more call, or refuses it.
    fn count_call(&self, request: &KeyRequest, now: Timestamp) -> Result<(), Problem> {
        let mut state = self.state();
        let is_over = |at: &Timestamp| now.since(*at) >= limits::FETCH_INTERVAL;
        state.calls.retain(|at| !is_over(at));
        if state.calls.len() >= limits::MAX_FETCHES {
            return Err(Problem::momentary("asked too often within a minute"));
        }
        state.calls.push_back(now);
        if let Some(answer) = state.answers.get_mut(&request.name()) {
            answer.asked_at = now;
        }
        Ok(())
    }

    fn put(&self, name: String, answer: Answer) {
        let mut state = self.state();
        state.answers.insert(name, answer);
        if state.answers.len() > limits::MAX_FETCHED_KEYS {
            // Whoever makes addresses up gets no key there, and takes no key's place.
            let oldest = state.answers.iter();
            let oldest = oldest.min_by_key(|(_, answer)| (!answer.keys.is_empty(), answer.had_at));
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                state.answers.remove(&name);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Problem {
    fn answer(text: impl ToString) -> Self {
        Self { text: text.to_string(), is_answer: true }
    }

    fn momentary(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_answer: false }
    }
}

/// Half of the time that is left: the event has to be recorded in the other.
fn patience(context: &Context<'_>) -> Duration {
    limits::FETCH_TIMEOUT.min(context.time_left() / 2)
}

async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let called = tokio::time::timeout(patience, call).await;
    called.unwrap_or_else(|_| Err(Problem::momentary("no answer in time")))
}

/// What of an address may be logged.
fn host(address: &str) -> String {
    Url::parse(address).ok().and_then(|url| Some(url.host_str()?.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use providers::Provider;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);
    const PEM: &str = include_str!("../../../shared/providers/tests/keys/certificate.pem");

    fn request(certificate: usize) -> KeyRequest {
        let url = format!("https://api.paypal.com/v1/notifications/certs/CERT-{certificate}");
        let headers = [("paypal-cert-url", url.as_str()), ("paypal-transmission-sig", "AAAA")];
        let delivery = Delivery {
            method: "POST".to_owned(),
            headers: headers.into_iter().collect(),
            query: String::new(),
            body: Vec::new(),
        };
        paypal().key_request(&delivery).expect("an address of PayPal's")
    }

    fn paypal() -> Provider {
        Provider::builtin("paypal").expect("in the catalogue")
    }

    fn put(shelf: &Shelf, certificate: usize, keys: &[Key], at: Timestamp) {
        let answer = Answer { keys: keys.into(), had_at: at, asked_at: at };
        shelf.put(request(certificate).name(), answer);
    }

    fn is_settled(shelf: &Shelf, certificate: usize, now: Timestamp) -> bool {
        shelf.settled(&request(certificate), now).is_some()
    }

    #[test]
    fn addresses_that_were_made_up_take_no_keys_place() {
        let (shelf, keys) = (Shelf::default(), paypal().read_keys(PEM).expect("a key"));
        put(&shelf, 0, &keys, NOW);
        for made_up in 1..=2 * limits::MAX_FETCHED_KEYS {
            put(&shelf, made_up, &[], NOW.plus(Duration::from_secs(1)));
        }
        assert_eq!(shelf.state().answers.len(), limits::MAX_FETCHED_KEYS);
        assert!(is_settled(&shelf, 0, NOW));
    }

    #[test]
    fn a_key_is_asked_for_again_after_an_hour_and_its_lack_after_a_minute() {
        let (shelf, keys) = (Shelf::default(), paypal().read_keys(PEM).expect("a key"));
        put(&shelf, 0, &keys, NOW);
        put(&shelf, 1, &[], NOW);
        let just_before = |time: Duration| NOW.plus(time - Duration::from_millis(1));
        assert!(is_settled(&shelf, 0, just_before(limits::FETCHED_KEY_AGE)));
        assert!(!is_settled(&shelf, 0, NOW.plus(limits::FETCHED_KEY_AGE)));
        assert!(is_settled(&shelf, 1, just_before(limits::FETCH_INTERVAL)));
        assert!(!is_settled(&shelf, 1, NOW.plus(limits::FETCH_INTERVAL)));
        assert!(!is_settled(&shelf, 2, NOW), "nobody asked");
    }

    #[test]
    fn a_call_that_fails_leaves_the_key_for_another_minute_and_no_verdict() {
        let (shelf, keys) = (Shelf::default(), paypal().read_keys(PEM).expect("a key"));
        put(&shelf, 0, &keys, NOW);
        put(&shelf, 1, &[], NOW);
        let later = NOW.plus(limits::FETCHED_KEY_AGE);
        for certificate in [0, 1] {
            assert!(shelf.count_call(&request(certificate), later).is_ok());
        }
        assert!(is_settled(&shelf, 0, later));
        assert!(!is_settled(&shelf, 1, later), "whether it is there now, nobody knows");
    }

    #[test]
    fn calls_are_counted_within_a_minute() {
        let shelf = Shelf::default();
        for certificate in 0..limits::MAX_FETCHES {
            assert!(shelf.count_call(&request(certificate), NOW).is_ok(), "{certificate}");
        }
        assert!(shelf.count_call(&request(99), NOW).is_err());
        assert!(shelf.count_call(&request(99), NOW.plus(limits::FETCH_INTERVAL)).is_ok());
    }

    #[test]
    fn of_an_address_its_host_is_logged() {
        let url = "https://sns.eu-west-1.amazonaws.com/?Token=hunter2";
        assert_eq!(host(url), "sns.eu-west-1.amazonaws.com");
    }
}
