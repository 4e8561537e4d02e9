//! The configuration: read once at start, checked whole, refused with every problem named.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::{
    backoff::Backoff,
    event::Source,
    limits,
    retention::{Required, Retention},
    transition::Policy,
};
use providers::{Endpoint, Provider, without_value};
use serde::Deserialize;
use url::Url;

use crate::{
    environment::{self, names},
    route::{Destination, HttpDestination, Route, TypePattern},
    secrets::{SecretError, SecretRef, SecretStore},
};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// By name.
    pub sources: BTreeMap<Source, SourceConfig>,
    /// How far clocks may differ.
    pub clock_skew: Duration,
}

/// One source.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Who sends.
    pub provider: Provider,
    /// What deliveries are verified with: any of these.
    pub secrets: Vec<SecretRef>,
    /// Or, without any, keys that the provider publishes and the receiver fetches.
    pub fetches_keys: bool,
    /// What the provider wants to see before it gives its keys out.
    pub api_secret: Option<SecretRef>,
    /// Subscriptions are confirmed by calling the address that a verified handshake names.
    pub confirm: bool,
    /// Overrides the provider's tolerance for signed times.
    pub tolerance: Option<Duration>,
    /// Whether what a delivery says is claimed along with its event, since its id is not signed.
    pub fingerprint: bool,
    /// Where the provider believes to send to.
    pub public_url: Option<Url>,
    /// What its records are kept and retried by.
    pub policy: Policy,
    /// The retention its provider needs at least.
    pub required: Required,
    /// Where its events go. An event that none takes is ignored.
    pub routes: Vec<Route>,
}

impl SourceConfig {
    /// The route of events of this type. At most one takes them.
    #[must_use]
    pub fn route(&self, event_type: Option<&str>) -> Option<&Route> {
        self.routes.iter().find(|route| route.takes(event_type))
    }
}

impl Config {
    /// Loads the configuration that the environment names: JSON, `ssm:NAME`, `s3://BUCKET/KEY`, or
    /// a file's path; `hookonce.toml` beside the function without any.
    ///
    /// # Errors
    /// If it cannot be had, or is refused.
    pub async fn load(store: &SecretStore) -> Result<Self, ConfigError> {
        let setting = environment::optional(names::CONFIG);
        let trust = if environment::is_local() { Trust::Local } else { Trust::Deployed };
        match setting.as_deref() {
            Some(json) if json.trim_start().starts_with('{') => {
                Self::parse(names::CONFIG, json, Format::Json, None, trust)
            }
            Some(reference) if reference.starts_with("ssm:") || reference.starts_with("s3://") => {
                let text = match reference.strip_prefix("ssm:") {
                    Some(name) => store.parameter_text(name).await?,
                    None => store.object_text(reference).await?,
                };
                let format =
                    if text.trim_start().starts_with('{') { Format::Json } else { Format::Toml };
                Self::parse(reference, &text, format, None, trust)
            }
            path => Self::read(Path::new(path.unwrap_or(DEFAULT_FILE)), trust),
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// If it cannot be read, or is refused.
    pub fn read(path: &Path, trust: Trust) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let json = path.extension().is_some_and(|extension| extension == "json");
        let format = if json { Format::Json } else { Format::Toml };
        Self::parse(&path.display().to_string(), &text, format, path.parent(), trust)
    }

    /// Reads a configuration. `origin` is named in errors; provider files are looked for in
    /// `folder`.
    ///
    /// # Errors
    /// If it is refused.
    pub fn parse(
        origin: &str,
        text: &str,
        format: Format,
        folder: Option<&Path>,
        trust: Trust,
    ) -> Result<Self, ConfigError> {
        let malformed = |problem: String| ConfigError::Malformed {
            origin: origin.to_owned(),
            problem: problem.trim_end().to_owned(),
        };
        let raw: RawConfig = match format {
            Format::Toml => {
                toml::from_str(text).map_err(|error| malformed(without_excerpt(&error, text)))?
            }
            Format::Json => serde_json::from_str(text)
                .map_err(|error| malformed(without_value(&error.to_string())))?,
        };
        Check { folder, trust, own: BTreeMap::new(), problems: Vec::new() }.config(raw).map_err(
            |problems| ConfigError::Refused {
                origin: origin.to_owned(),
                problems: Problems(problems),
            },
        )
    }
}

/// The message and its line, without toml's excerpt: a line of a configuration may hold a secret.
fn without_excerpt(error: &toml::de::Error, text: &str) -> String {
    let before = |end: usize| text.bytes().take(end).filter(|byte| *byte == b'\n').count();
    match error.span().map(|span| before(span.start) + 1) {
        Some(line) => format!("line {line}: {}", without_value(error.message())),
        None => without_value(error.message()),
    }
}

/// How a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

/// Where a configuration is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// On one machine: `literal:` secrets are allowed.
    Local,
    /// Anywhere else.
    Deployed,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file, or not to be read.
    #[error("cannot read {}: {problem}; set {} to a file, to JSON, to ssm:NAME or to s3://BUCKET/KEY", path.display(), names::CONFIG)]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// Kept elsewhere, and not to be had.
    #[error(transparent)]
    Unavailable(#[from] SecretError),
    /// No TOML or JSON, an unknown key, or a value of another type.
    #[error("{origin}: {problem}")]
    Malformed {
        /// Which configuration.
        origin: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// Readable, and wrong.
    #[error("{origin}:{problems}")]
    Refused {
        /// Which configuration.
        origin: String,
        /// Everything that is wrong.
        problems: Problems,
    },
}

/// What is wrong with a configuration, one line each: key and reason.
#[derive(Debug)]
pub struct Problems(Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    clock_skew: Option<String>,
    /// Each what a provider file would say.
    #[serde(default)]
    providers: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    sources: BTreeMap<String, RawSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    provider: String,
    secrets: SecretList,
    api_secret: Option<SecretText>,
    #[serde(default)]
    confirm: bool,
    tolerance: Option<String>,
    retention: Option<String>,
    #[serde(default)]
    fingerprint: bool,
    public_url: Option<String>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    types: Option<Vec<String>>,
    payload: Option<RawPayload>,
    attempts: Option<u32>,
    backoff: Option<RawBackoff>,
    deliver: Option<RawDestination>,
    #[serde(default)]
    routes: Vec<RawRoute>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum RawPayload {
    Keep,
    DropWhenDone,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBackoff {
    first: String,
    longest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    types: Vec<String>,
    handler: Option<String>,
    http: Option<String>,
    signing_secret: Option<SecretText>,
    timeout: Option<String>,
    #[serde(default)]
    permanent: Vec<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDestination {
    handler: Option<String>,
    http: Option<String>,
    signing_secret: Option<SecretText>,
    timeout: Option<String>,
    #[serde(default)]
    permanent: Vec<u16>,
}

impl RawRoute {
    fn split(self) -> (Vec<String>, RawDestination) {
        let Self { types, handler, http, signing_secret, timeout, permanent } = self;
        (types, RawDestination { handler, http, signing_secret, timeout, permanent })
    }
}

/// Untagged, so that the error over a value of another type does not quote it: somebody may have
/// put the secret itself there.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of secret references is needed, as [\"env:NAME\"]")]
enum SecretList {
    List(Vec<String>),
}

/// As [`SecretList`], for one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a secret reference is needed, as \"env:NAME\"")]
enum SecretText {
    Text(String),
}

/// Turns what was read into what is used, and gathers everything that is wrong on the way.
struct Check<'a> {
    folder: Option<&'a Path>,
    trust: Trust,
    /// Providers that the configuration brings along.
    own: BTreeMap<String, Provider>,
    problems: Vec<String>,
}

impl Check<'_> {
    fn config(mut self, raw: RawConfig) -> Result<Config, Vec<String>> {
        if raw.sources.is_empty() {
            self.problem("sources", "there is none; add [sources.NAME]");
        }
        let clock_skew =
            self.duration("clock_skew", raw.clock_skew.as_deref()).unwrap_or(limits::CLOCK_SKEW);
        if clock_skew > limits::CLOCK_SKEW {
            let most = humantime::format_duration(limits::CLOCK_SKEW);
            self.problem("clock_skew", format!("{most} at most: the lease is built on that"));
        }
        for (name, value) in raw.providers {
            self.own_provider(&name, value);
        }
        let mut sources = BTreeMap::new();
        for (name, raw) in raw.sources {
            let path = format!("sources.{name}");
            let config = self.source(&path, raw);
            match (Source::new(name), config) {
                (Ok(source), Some(config)) => {
                    sources.insert(source, config);
                }
                (Err(invalid), _) => self.problem(&path, invalid),
                (Ok(_), None) => {}
            }
        }
        if self.problems.is_empty() {
            Ok(Config { sources, clock_skew })
        } else {
            Err(self.problems)
        }
    }

    /// `None` only with a problem noted.
    fn source(&mut self, path: &str, raw: RawSource) -> Option<SourceConfig> {
        let provider = self.provider(&format!("{path}.provider"), &raw.provider);
        let SecretList::List(references) = &raw.secrets;
        let secrets = self.secrets(&format!("{path}.secrets"), references);
        let fetches_keys = references.iter().any(|text| text == FETCHED);
        if fetches_keys && references.len() > 1 {
            self.problem(&format!("{path}.secrets"), "\"fetched\" stands alone");
        }
        let api_secret = raw
            .api_secret
            .and_then(|SecretText::Text(text)| self.secret(&format!("{path}.api_secret"), &text));
        let tolerance = self.tolerance(&format!("{path}.tolerance"), raw.tolerance.as_deref());
        let public_url =
            raw.public_url.as_deref().and_then(|url| self.url(&format!("{path}.public_url"), url));
        let configured = self.duration(&format!("{path}.retention"), raw.retention.as_deref());
        let backoff = self.backoff(&format!("{path}.backoff"), raw.backoff.as_ref());
        let attempt_limit = raw.attempts.unwrap_or(limits::DEFAULT_ATTEMPT_LIMIT);
        if !(1..=limits::MAX_ATTEMPT_LIMIT).contains(&attempt_limit) {
            let most = limits::MAX_ATTEMPT_LIMIT;
            self.problem(&format!("{path}.attempts"), format!("1 to {most}"));
        }
        let routes = self.routes(path, raw.types, raw.deliver, raw.routes);
        let provider = provider?;
        let provider = self.endpoint(path, &provider, raw.public_url.as_deref(), &raw.settings);
        for (i, secret) in secrets.iter().enumerate() {
            let SecretRef::Literal(secret) = secret else { continue };
            if let Err(invalid) = provider.key(secret) {
                self.problem(&format!("{path}.secrets[{i}]"), invalid);
            }
        }
        if fetches_keys {
            self.fetched(path, &provider, &raw.settings, api_secret.is_some());
        } else if api_secret.is_some() {
            self.problem(&format!("{path}.api_secret"), "it goes with secrets = [\"fetched\"]");
        }
        if raw.confirm {
            self.confirmed(&format!("{path}.confirm"), &provider, &raw.settings);
        }
        let confirm = raw.confirm;
        let required = provider.windows().required();
        let retention = match Retention::new(configured, &provider.windows()) {
            Ok(retention) => retention,
            Err(invalid) => {
                self.problem(&format!("{path}.retention"), invalid);
                return None;
            }
        };
        if raw.fingerprint && !provider.has_fingerprint() {
            let why = "this provider's catalogue file names no fingerprint: its event id is signed, \
                       or it may honestly send the same twice; leave it out";
            self.problem(&format!("{path}.fingerprint"), why);
        }
        let fingerprint = raw.fingerprint;
        let drop_payload_when_done = raw.payload == Some(RawPayload::DropWhenDone);
        let policy = Policy { retention, attempt_limit, backoff, drop_payload_when_done };
        Some(SourceConfig {
            provider,
            secrets,
            fetches_keys,
            api_secret,
            confirm,
            tolerance,
            fingerprint,
            public_url,
            policy,
            required,
            routes,
        })
    }

    /// Whether the provider's keys can be fetched with what is given.
    fn fetched(
        &mut self,
        path: &str,
        provider: &Provider,
        settings: &BTreeMap<String, String>,
        has_api_secret: bool,
    ) {
        if provider.published_keys().is_none() {
            let problem = format!("{} publishes no keys: give it a secret", provider.name());
            return self.problem(&format!("{path}.secrets"), problem);
        }
        for name in provider.pins().filter(|name| !settings.contains_key(*name)) {
            let problem = "needed: the keys that are fetched sign for every account there";
            self.problem(&format!("{path}.settings.{name}"), problem);
        }
        let needed = provider.settings_for_keys();
        for name in needed.iter().filter(|name| !settings.contains_key(*name)) {
            self.problem(&format!("{path}.settings.{name}"), "needed to fetch the keys");
        }
        let api_secret = format!("{path}.api_secret");
        match (provider.keys_need_api_secret(), has_api_secret) {
            (true, false) => {
                let problem = "the provider gives its keys to who shows the secret of its API";
                self.problem(&api_secret, problem);
            }
            (false, true) => self.problem(&api_secret, "the provider's keys need none"),
            (true, true) | (false, false) => {}
        }
    }

    /// Whether nothing is confirmed but what was asked for.
    fn confirmed(&mut self, path: &str, provider: &Provider, settings: &BTreeMap<String, String>) {
        if provider.confirmed_at().is_empty() {
            let problem = format!("{} has no subscription to confirm", provider.name());
            self.problem(path, problem);
        }
        if let Some(name) = provider.pins().find(|name| !settings.contains_key(*name)) {
            self.problem(path, format!("without settings.{name} anybody's would be confirmed"));
        }
    }

    /// The provider as it sends to this source: it may sign the URL, as it is written and not as it
    /// is parsed, and values it was told.
    fn endpoint(
        &mut self,
        path: &str,
        provider: &Provider,
        public_url: Option<&str>,
        settings: &BTreeMap<String, String>,
    ) -> Provider {
        if provider.signs_url() && public_url.is_none() {
            let problem =
                format!("{} signs its URL: give it exactly as it was told", provider.name());
            self.problem(&format!("{path}.public_url"), problem);
        }
        let wanted = provider.settings();
        for setting in wanted.iter().filter(|w| !w.optional && !settings.contains_key(&w.name)) {
            self.problem(&format!("{path}.settings.{}", setting.name), &setting.what);
        }
        for name in settings.keys().filter(|name| wanted.iter().all(|w| w.name != **name)) {
            let problem = format!("{} has no such setting", provider.name());
            self.problem(&format!("{path}.settings.{name}"), problem);
        }
        for (name, _) in settings.iter().filter(|(_, value)| value.is_empty()) {
            self.problem(&format!("{path}.settings.{name}"), "is empty; leave it out or set it");
        }
        for setting in wanted.iter().filter(|wanted| !wanted.one_of.is_empty()) {
            let value = settings.get(&setting.name);
            if value.is_some_and(|value| !setting.one_of.contains(value)) {
                let problem = format!("one of {}", setting.one_of.join(", "));
                self.problem(&format!("{path}.settings.{}", setting.name), problem);
            }
        }
        let endpoint = Endpoint::new(public_url);
        provider.at(settings
            .iter()
            .fold(endpoint, |endpoint, (name, value)| endpoint.with(name, value)))
    }

    /// A provider of the configuration's own: for functions, which have no files beside them.
    fn own_provider(&mut self, name: &str, value: serde_json::Value) {
        let place = format!("providers.{name}");
        match Provider::of_value(&place, value) {
            Err(error) => self.problems.push(error.to_string()),
            Ok(_) if Provider::builtin(name).is_some() => {
                self.problem(&place, "the catalogue has one of this name; give it another");
            }
            Ok(provider) if provider.name() != name => {
                self.problem(&format!("{place}.name"), format!("it is {name} here as well"));
            }
            Ok(provider) => {
                self.own.insert(name.to_owned(), provider);
            }
        }
    }

    /// A catalogue name, one of the configuration's own, or the path of a provider file.
    fn provider(&mut self, path: &str, name: &str) -> Option<Provider> {
        if let Some(provider) = Provider::builtin(name).or_else(|| self.own.get(name).cloned()) {
            return Some(provider);
        }
        if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
            let known = Provider::builtin_names().join(", ");
            self.problem(
                path,
                format!("`{name}` is not in the catalogue ({known}), no [providers.{name}] of this configuration, and no path of a .toml file"),
            );
            return None;
        }
        let file = self.folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                self.problem(path, format!("cannot read {}: {error}", file.display()));
                return None;
            }
        };
        Provider::parse(&file.display().to_string(), &text)
            .map_err(|error| self.problem(path, error))
            .ok()
    }

    fn secrets(&mut self, path: &str, references: &[String]) -> Vec<SecretRef> {
        if references.is_empty() {
            self.problem(path, "there is none: nothing could be verified");
        }
        let parsed: Vec<_> = references
            .iter()
            .enumerate()
            .filter(|(_, text)| *text != FETCHED)
            .filter_map(|(i, text)| self.secret(&format!("{path}[{i}]"), text))
            .collect();
        parsed
    }

    fn secret(&mut self, path: &str, text: &str) -> Option<SecretRef> {
        let reference = SecretRef::parse(text).map_err(|error| self.problem(path, error)).ok()?;
        if matches!(reference, SecretRef::Literal(_)) && self.trust == Trust::Deployed {
            self.problem(path, "literal: is for local use only; use env:, secretsmanager: or ssm:");
            return None;
        }
        Some(reference)
    }

    fn tolerance(&mut self, path: &str, text: Option<&str>) -> Option<Duration> {
        let tolerance = self.duration(path, text)?;
        if tolerance.is_zero() || tolerance > limits::MAX_TOLERANCE {
            let most = humantime::format_duration(limits::MAX_TOLERANCE);
            self.problem(path, format!("above zero and {most} at most: what is older is a replay"));
        }
        Some(tolerance)
    }

    fn backoff(&mut self, path: &str, raw: Option<&RawBackoff>) -> Backoff {
        let Some(raw) = raw else { return Backoff::default() };
        let first = self.duration(&format!("{path}.first"), Some(&raw.first));
        let longest = self.duration(&format!("{path}.longest"), Some(&raw.longest));
        let (Some(first), Some(longest)) = (first, longest) else { return Backoff::default() };
        Backoff::new(first, longest).unwrap_or_else(|invalid| {
            self.problem(path, invalid);
            Backoff::default()
        })
    }

    fn routes(
        &mut self,
        path: &str,
        types: Option<Vec<String>>,
        deliver: Option<RawDestination>,
        routes: Vec<RawRoute>,
    ) -> Vec<Route> {
        let raw: Vec<(String, Vec<String>, RawDestination)> = match deliver {
            Some(destination) if routes.is_empty() => {
                let types = types.unwrap_or_else(|| vec!["*".to_owned()]);
                vec![(format!("{path}.deliver"), types, destination)]
            }
            None if !routes.is_empty() && types.is_none() => routes
                .into_iter()
                .enumerate()
                .map(|(i, route)| {
                    let (types, destination) = route.split();
                    (format!("{path}.routes[{i}]"), types, destination)
                })
                .collect(),
            Some(_) | None => {
                self.problem(path, "give it either one `deliver` (with `types` beside it), or `routes` with their own `types`");
                return Vec::new();
            }
        };
        // Numbered as they are written: one that is wrong itself is left out.
        let parsed: Vec<_> = raw
            .into_iter()
            .enumerate()
            .filter_map(|(i, (path, types, destination))| {
                let types = self.types(&path, &types);
                Some((i, Route { types, destination: self.destination(&path, destination)? }))
            })
            .collect();
        for (at, (i, route)) in parsed.iter().enumerate() {
            if let Some((j, _)) = parsed[..at].iter().find(|(_, earlier)| earlier.overlaps(route)) {
                self.problem(path, format!("routes {j} and {i} take some event types both"));
            }
        }
        parsed.into_iter().map(|(_, route)| route).collect()
    }

    fn types(&mut self, path: &str, types: &[String]) -> Vec<TypePattern> {
        if types.is_empty() {
            self.problem(&format!("{path}.types"), "there is none; \"*\" takes all");
        }
        let parsed: Vec<_> = types
            .iter()
            .filter_map(|text| {
                TypePattern::parse(text)
                    .map_err(|error| self.problem(&format!("{path}.types"), error))
                    .ok()
            })
            .collect();
        parsed
    }

    fn destination(&mut self, path: &str, raw: RawDestination) -> Option<Destination> {
        match (&raw.handler, &raw.http) {
            (Some(handler), None) => {
                let unused = raw.signing_secret.is_some()
                    || raw.timeout.is_some()
                    || !raw.permanent.is_empty();
                if unused {
                    self.problem(path, "signing_secret, timeout and permanent go with `http`");
                }
                Some(Destination::Handler(handler.clone()))
            }
            (None, Some(url)) => {
                let url = self.url(&format!("{path}.http"), url);
                self.http_destination(path, url, raw)
            }
            (Some(_), Some(_)) | (None, None) => {
                self.problem(path, "give it one destination: `handler` or `http`");
                None
            }
        }
    }

    fn http_destination(
        &mut self,
        path: &str,
        url: Option<Url>,
        raw: RawDestination,
    ) -> Option<Destination> {
        let signing_secret = raw.signing_secret.and_then(|SecretText::Text(text)| {
            self.secret(&format!("{path}.signing_secret"), &text)
        });
        let timeout = self
            .duration(&format!("{path}.timeout"), raw.timeout.as_deref())
            .unwrap_or(DEFAULT_HTTP_TIMEOUT);
        if timeout.is_zero() || timeout > MAX_HTTP_TIMEOUT {
            let most = humantime::format_duration(MAX_HTTP_TIMEOUT);
            let problem = format!("above zero and {most} at most: a lease must outlive it");
            self.problem(&format!("{path}.timeout"), problem);
        }
        for code in raw.permanent.iter().filter(|code| !(300..=599).contains(*code)) {
            let problem = format!("{code} is no status code from 300 to 599");
            self.problem(&format!("{path}.permanent"), problem);
        }
        let permanent = raw.permanent;
        Some(Destination::Http(HttpDestination { url: url?, signing_secret, timeout, permanent }))
    }

    fn duration(&mut self, path: &str, text: Option<&str>) -> Option<Duration> {
        humantime::parse_duration(text?)
            .map_err(|error| {
                self.problem(path, format!("{error}; write \"45d\", \"10s\", \"500ms\""))
            })
            .ok()
    }

    fn url(&mut self, path: &str, text: &str) -> Option<Url> {
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Some(url),
            Ok(_) => {
                self.problem(path, "an http or https address is needed");
                None
            }
            Err(error) => {
                self.problem(path, format!("no address: {error}"));
                None
            }
        }
    }

    fn problem(&mut self, path: &str, problem: impl fmt::Display) {
        self.problems.push(format!("{path}: {problem}"));
    }
}

/// Among a source's secrets: the keys that its provider publishes.
const FETCHED: &str = "fetched";
/// Looked for where no configuration is named: beside the function.
const DEFAULT_FILE: &str = "hookonce.toml";
const DEFAULT_HTTP_TIMEOUT: Duration = Duration::from_secs(10);
/// The worker's timeout less what leasing before and completing after the call may take.
const MAX_HTTP_TIMEOUT: Duration = Duration::from_secs(45);
const _: () = assert!(MAX_HTTP_TIMEOUT.as_secs() + 12 < limits::WORKER_TIMEOUT.as_secs());
