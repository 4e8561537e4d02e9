//! Handlers: what is to happen, once, because of an event. Chosen by source and event type, in the
//! configuration.
//!
//! To add one: implement [`Handler`], name it in [`NAMES`] and build it in [`built_in`].

mod http;
mod payments;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use domain::{effects::StepName, event::Source};
use futures::future::{BoxFuture, join_all};
use runtime::{
    config::Config,
    environment::MissingVariable,
    route::{Destination, Route, TypePattern},
    secrets::SecretStore,
};

use crate::{
    effects::{Effects, Event},
    failure::Failure,
};

pub use http::HttpHandler;
pub use payments::Payments;

/// Makes an event's effects take hold.
///
/// It may be called any number of times for one event, after a crash or a retry; what goes through
/// [`Effects`] takes hold once. It must not block: the records of a batch share a thread.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Handles one event. Local writes take hold when it returns `Ok`.
    ///
    /// # Errors
    /// [`Failure::retry`] to be called again later, [`Failure::permanent`] to park the event.
    fn handle<'a>(
        &'a self,
        event: &'a Event,
        effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// A step of policy `Never` or `Reconcile` that every event of this type surely starts with.
    /// Its start then rides on the lease and costs no write of its own. `None` is always right.
    fn opening_step(&self, event_type: Option<&str>) -> Option<StepName> {
        let _ = event_type;
        None
    }
}

/// Names of the handlers built into this worker.
pub const NAMES: [&str; 1] = ["payments"];

fn built_in(name: &str, client: &reqwest::Client) -> Result<Arc<dyn Handler>, InvalidHandlers> {
    match name {
        "payments" => Ok(Arc::new(Payments::from_environment(client.clone())?)),
        _ => Err(InvalidHandlers::Unknown { name: name.to_owned() }),
    }
}

type HttpHandlers = BTreeMap<(Source, Vec<TypePattern>), Arc<HttpHandler>>;

/// The handlers that a configuration names.
#[derive(Debug)]
pub struct Handlers {
    named: BTreeMap<String, Arc<dyn Handler>>,
    /// By source and the route's event types, which no two routes of a source share. The address
    /// would not do: two routes to one may differ in secret, timeout and permanent codes.
    http: HttpHandlers,
}

impl Handlers {
    /// Builds the handlers that `config` names, of those built into this worker.
    ///
    /// # Errors
    /// If there is none of a name, or one lacks its settings.
    pub fn new(config: &Config, store: &SecretStore) -> Result<Self, InvalidHandlers> {
        let client = runtime::http::client().build().map_err(InvalidHandlers::Client)?;
        let named = named_in(config)
            .map(|name| Ok((name.to_owned(), built_in(name, &client)?)))
            .collect::<Result<_, InvalidHandlers>>()?;
        Ok(Self { named, http: http_handlers(config, store, &client) })
    }

    /// The handlers that `config` names, of these.
    ///
    /// # Errors
    /// If there is none of a name.
    pub fn of(
        config: &Config,
        store: &SecretStore,
        named: BTreeMap<String, Arc<dyn Handler>>,
    ) -> Result<Self, InvalidHandlers> {
        if let Some(name) = named_in(config).find(|name| !named.contains_key(*name)) {
            return Err(InvalidHandlers::Unknown { name: name.to_owned() });
        }
        let client = runtime::http::client().build().map_err(InvalidHandlers::Client)?;
        Ok(Self { named, http: http_handlers(config, store, &client) })
    }

    /// Names in `config` that no handler has.
    #[must_use]
    pub fn unknown_names(config: &Config) -> BTreeSet<&str> {
        named_in(config).filter(|name| !NAMES.contains(name)).collect()
    }

    /// Fetches the secrets of HTTP destinations. What fails is logged, and tried again by the
    /// first event that needs it.
    pub async fn warm(&self) {
        join_all(self.http.values().map(|handler| handler.warm())).await;
    }

    pub(crate) fn get(&self, source: &Source, route: &Route) -> Option<&dyn Handler> {
        match &route.destination {
            Destination::Handler(name) => self.named.get(name).map(AsRef::as_ref),
            Destination::Http(_) => {
                let place = (source.clone(), route.types.clone());
                self.http.get(&place).map(|handler| handler.as_ref() as &dyn Handler)
            }
        }
    }
}

fn named_in(config: &Config) -> impl Iterator<Item = &str> {
    let routes = config.sources.values().flat_map(|source| &source.routes);
    routes.filter_map(|route| match &route.destination {
        Destination::Handler(name) => Some(name.as_str()),
        Destination::Http(_) => None,
    })
}

fn http_handlers(config: &Config, store: &SecretStore, client: &reqwest::Client) -> HttpHandlers {
    let routes = config
        .sources
        .iter()
        .flat_map(|(source, config)| config.routes.iter().map(move |route| (source, route)));
    routes
        .filter_map(|(source, route)| match &route.destination {
            Destination::Handler(_) => None,
            Destination::Http(destination) => {
                let handler = HttpHandler::new(destination.clone(), client.clone(), store.clone());
                Some(((source.clone(), route.types.clone()), Arc::new(handler)))
            }
        })
        .collect()
}

/// Handlers that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum InvalidHandlers {
    /// No handler of that name.
    #[error("no handler is named `{name}`; there are: {}", NAMES.join(", "))]
    Unknown {
        /// As configured.
        name: String,
    },
    /// A handler's setting.
    #[error(transparent)]
    Missing(#[from] MissingVariable),
    /// No TLS.
    #[error("the HTTP client cannot be built: {0}")]
    Client(reqwest::Error),
}
